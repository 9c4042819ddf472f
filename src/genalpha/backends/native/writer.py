"""Writes the kernels of a step in one order of pivots: prepare, renew, correct, judge, settle, finish."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.compiler import lu
from genalpha.compiler.graph import ONE, TRUE, ZERO
from genalpha.compiler.program import Builder, Call, If, Instructions, Loop, Program, While
from genalpha.compiler.reader import Symbols
from genalpha.engine import events
from genalpha.engine.step import close_step
from genalpha.numerics import codes, newton

if TYPE_CHECKING:
    from genalpha.backends.native.step import Orders, StepKernels

# The status of a step whose matrix needs other pivots. It is used only inside the backends.
PIVOT = 8
# Factors that are data are trusted while multiples of rows are at most this: another order of their pivots
# takes no compilation.
GROWTH = 1e4
# How often kernels run: once per run, per step, or per iteration.
RUN, STEP, ITERATION = range(3)


def flagged(options: newton.Newton, numbers: newton.Numbers) -> Any:
    """The numbers of an iteration, and the flags running, unfinished and slow."""
    running, unfinished = newton.running(options, numbers), newton.unfinished(options, numbers)
    slow = unfinished & (numbers.status == newton.SLOW_DOWN)
    return jnp.stack(numbers), jnp.stack([running, unfinished, slow]).astype(float)


def renewed(options: newton.Newton, numbers: newton.Numbers, finite: Any, healthy: Any) -> Any:
    """The numbers and flags after a new matrix, and its status if it is singular.

    If the factors are not ``healthy``, other pivots are needed.
    """
    after = newton.renewed(options, numbers, finite, jnp.array(False))
    singular = newton.renewed(options, numbers, finite, jnp.array(True))
    trusted = healthy | (after.status != newton.RUNNING)
    after = after._replace(status=jnp.where(trusted, after.status, PIVOT))
    return *flagged(options, after), singular.status


def examined(report: Any) -> tuple[Any, Any]:
    """Whether matrices are finite and their factors are healthy: from reports (K, 4) (see `sparse_text`)."""
    growth, largest, inverse = jnp.max(report[:, :3], axis=0)
    healthy = (largest * inverse <= lu.CONDITION) & (growth <= GROWTH)
    return jnp.abs(jnp.sum(report[:, 3])) < jnp.inf, healthy


def renewed_by(options: newton.Newton, numbers: newton.Numbers, report: Any) -> Any:
    """Like `renewed`, from reports (K, 4)."""
    return renewed(options, numbers, *examined(report))


class Writer:
    """Writes the kernels of a step for one order of pivots, with separate slots for the factors.

    ``case`` says whether the matrix leaves out parts of the derivative (see `newton.judged`).
    """

    case: newton.Case = "usual"

    def __init__(self, step: StepKernels) -> None:
        self.step, self.graph, self.options = step, step.graph, step.setup.newton
        old = step.builder
        self.builder = Builder(step.graph, old.slots, dict(old.slot_of), dict(old.level_of))
        places = self.builder.inputs(step.numbers, ITERATION)
        self.numbers = newton.Numbers(*(Symbols(i, "f") for i in places))  # type: ignore[arg-type]
        flags = step.flags
        self.course = (step.numbers, np.array([flags["running"], flags["unfinished"], flags["slow"]]))

    def write(self, orders: Orders) -> tuple[Program, Loop]:
        self.prepare()
        self.renew(orders)
        self.correct()
        self.judge()
        if self.step.systems:
            self.settle(orders[1:])
        self.finish()
        self.builder.kernel("once", RUN)
        return self.builder.build({RUN: "once", STEP: "prepare"}), self.loop()

    def flagged(self, numbers: newton.Numbers) -> Any:
        """The numbers of an iteration, and flags derived from them."""
        return flagged(self.options, numbers)

    def prepare(self) -> None:
        """Write the kernel before a step: the first guess, and the initial numbers of the iteration."""
        step = self.step
        begun = ids(step.inline(lambda memory: self.flagged(newton.begun(*memory)), step.symbols["memory"]))
        self.builder.kernel("prepare", STEP, (step.x, step.guess.ids), *zip(self.course, begun, strict=True))

    # --- systems with the Newton matrix -----------------------------------------------------------

    def renew(self, orders: Orders) -> None:
        """Write the kernel for a new matrix. Its factors are inputs of the other kernels."""
        step, graph = self.step, self.graph
        factors = lu.factor(graph, step.matrix, orders[0])
        stored = [i for i in factors.entries() if i not in graph.constants]
        places = self.builder.slot(len(stored))
        finite, healthy = (Symbols(np.array(i), "b") for i in lu.examine(graph, step.matrix, factors))
        renew = functools.partial(renewed, self.options)
        self.resume(step.inline(renew, self.numbers, finite, healthy), (places, np.array(stored, np.int64)))
        kept = dict(zip(stored, self.builder.inputs(places, ITERATION).tolist(), strict=True))
        self.factors = factors.renamed(lambda i: kept.get(i, i))

    def resume(self, after: Any, *new: tuple[np.ndarray, np.ndarray]) -> None:
        """Write the kernel that resumes the iteration with new factors: what `renewed` returns."""
        targets = (*self.course, np.array(self.step.if_singular))
        self.builder.kernel("renew", ITERATION, *new, *zip(targets, ids(after), strict=True))

    def renewal(self) -> Instructions:
        """Compute a new matrix and its factors."""
        return (Call("renew"),)

    def solved(self, name: str, rhs: Symbols) -> tuple[Symbols, Symbols]:
        """The right side and the solution of a system with the Newton matrix, for another kernel.

        Before that kernel, the instructions of `solution` with this name are needed.
        """
        return rhs, Symbols(lu.solve(self.graph, self.factors, rhs.ids), "f")

    def solution(self, name: str) -> Instructions:
        return ()

    # --- other kernels ----------------------------------------------------------------------------

    def correct(self) -> None:
        """Write the kernel that applies a correction and judges it."""
        step, x = self.step, self.step.symbols["x"].ids.tolist()
        value, correction = self.solved("value", step.value)
        moved = np.array([self.graph.sub(a, b) for a, b in zip(x, correction.ids.tolist(), strict=True)])

        def judge(levels: Any, numbers: newton.Numbers, x: Any, value: Any, by: Any) -> Any:
            after = newton.judged(self.options, levels, step.groups, numbers, x, value, by, self.case)
            return self.flagged(after)

        inputs = (step.levels, self.numbers, Symbols(moved, "f"), value, correction)
        judged = ids(step.inline(judge, *inputs))
        self.builder.kernel("correct", ITERATION, (step.x, moved), *zip(self.course, judged, strict=True))

    def judge(self) -> None:
        """Write the kernel after all corrections with one matrix."""
        step = self.step

        def reconsider(numbers: newton.Numbers, x: Any, guess: Any) -> Any:
            astray, numbers = newton.reconsidered(self.options, numbers)
            unfinished = newton.unfinished(self.options, numbers)
            converged = numbers.status == codes.SUCCESS
            ends = jnp.stack(self.ends(numbers, unfinished, converged)).astype(float)
            return jnp.where(astray, guess, x), *self.flagged(numbers), ends, newton.final_status(numbers)

        flags = np.array([step.flags[name] for name in ("converged", "alive", "lost")])
        targets = (step.x, *self.course, flags, np.array(step.status))
        after = ids(step.inline(reconsider, self.numbers, step.symbols["x"], step.guess))
        self.builder.kernel("judge", ITERATION, *zip(targets, after, strict=True))

    def ends(self, numbers: newton.Numbers, unfinished: Any, converged: Any) -> list[Any]:
        """Whether an iteration converged, whether the run continues, and whether the step is lost."""
        return [converged, unfinished | converged, jnp.array(False)]

    def settle(self, orders: Orders) -> None:
        """Write the kernel for linear systems after a step that converged. With bad pivots the step fails."""
        step, graph = self.step, self.graph
        solutions, trusted = [], TRUE
        for system, order in zip(step.systems, orders, strict=True):
            factors = lu.factor(graph, system.matrix, order)
            solutions.append((system.places, lu.solve(graph, factors, system.rhs)))
            for good in lu.examine(graph, system.matrix, factors):
                trusted = graph.logic("and", trusted, good)
        self.decide(trusted, *solutions)

    def decide(self, trusted: int, *solutions: tuple[np.ndarray, np.ndarray]) -> None:
        """Write the kernel that stores solutions, and ends the run if they cannot be trusted."""
        step, graph = self.step, self.graph
        on, status = (graph.select(trusted, a, b) for a, b in ((ONE, ZERO), (ZERO, graph.constant(PIVOT))))
        flags = [(np.array(step.flags[name]), np.array(on)) for name in ("converged", "alive")]
        self.builder.kernel(
            "settle", ITERATION, *solutions, *flags, (np.array(step.status), np.array(status))
        )

    def settling(self) -> Instructions:
        """Solve the linear systems after a step that converged."""
        return (Call("settle"),)

    def finish(self) -> None:
        """After a step that converged: what the next one starts from, and the record."""
        step, builder = self.step, self.builder
        carry, output, parabola = step.finished

        def close(numbers: newton.Numbers, output: Any, taken: Any, totals: Any, g: Any) -> Any:
            status = close_step(jnp.array(codes.SUCCESS), output)
            good = status == codes.SUCCESS
            counts = jnp.stack(newton.counted(numbers))
            memory = newton.remembered(self.options, numbers)
            totals += jnp.where(good, counts, 0.0)
            fired = events.fired(step.setup.crossings, *g) if step.setup.crossings else jnp.zeros(0, bool)
            alive = good & ~jnp.any(fired)
            return (
                counts,
                memory,
                status,
                alive.astype(float),
                taken + good,
                totals,
                g[1],
                fired.astype(float),
            )

        taken, totals, before = (
            Symbols(builder.inputs(np.array(s), STEP), "f") for s in (step.taken, step.totals, step.events)
        )
        inputs = (output, taken, totals, (before, step.crossed))
        closed = ids(step.inline(close, self.numbers, *inputs))
        single = map(np.array, (step.status, step.flags["alive"], step.taken))
        targets = [step.counts, step.memory, *single, step.totals, step.events, step.fired]
        pairs = list(zip(jax.tree.leaves(step.carry), jax.tree.leaves(ids(carry)), strict=True))
        pairs += zip(step.output, ids(output[:3]), strict=True)
        pairs += zip(step.parabola, ids(parabola), strict=True)
        builder.kernel("finish", ITERATION, *pairs, *zip(targets, closed, strict=True))

    def loop(self) -> Loop:
        """The loop that calls the kernels: `advance` with Newton's two loops."""
        step, flags = self.step, self.step.flags
        corrections = While(flags["running"], (*self.solution("value"), Call("correct")))
        attempt = (If(flags["slow"], self.renewal()), corrections, Call("judge"))
        iteration = While(flags["unfinished"], attempt)
        settle: Instructions = (If(flags["converged"], self.settling()),) if step.systems else ()
        body = (Call("prepare"), iteration, *settle, If(flags["converged"], self.closing()))
        return Loop("once", body, flags["alive"], step.row, (int(step.t[0]), int(step.h[0])))

    def closing(self) -> Instructions:
        """After a step that converged."""
        return (Call("finish"),)


def ids(tree: Any) -> Any:
    return jax.tree.map(lambda s: s.ids, tree, is_leaf=lambda s: isinstance(s, Symbols))
