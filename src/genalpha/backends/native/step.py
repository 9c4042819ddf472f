"""One step of a method as kernels: prepare, renew, correct, judge, finish. `advance` in another form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.compiler import lu
from genalpha.compiler.differentiate import jacobian
from genalpha.compiler.graph import ONE, TRUE, ZERO, Graph, Unsupported
from genalpha.compiler.program import Builder, Call, If, Instructions, Loop, Program, While
from genalpha.compiler.reader import Helpers, Symbols, inline
from genalpha.engine import events
from genalpha.engine.step import Setup, extrapolated, moved_parabola, rounding_levels
from genalpha.numerics import codes, linear, newton
from genalpha.numerics.data import Carry, Scale

# Scalar operations of one step at most. Beyond, compile time grows faster than XLA's (docs/native.md).
LIMIT = 40_000
# The status of a step whose matrix needs other pivots; it never leaves the driver.
PIVOT = 8

# Configurations that an order of pivots is tried on, beside the first.
SAMPLES = 16

RUN, STEP, ITERATION = range(3)

# Orders of pivots: of the Newton matrix, and of each linear system that follows the iteration.
Orders = tuple[lu.Order, ...]


class Following(NamedTuple):
    """A linear system that follows Newton's iteration: nodes of its matrix and right side, slots for x."""

    matrix: np.ndarray
    rhs: np.ndarray
    places: np.ndarray


class Values(NamedTuple):
    """What a run starts from: carry, scale and floating-point arguments, and the parabola of `advance`."""

    carry: Carry
    scale: Scale
    args: Any
    x: Any


def floating(args: Any) -> tuple[list[np.ndarray], Callable[[list[Any]], Any], tuple[Any, ...]]:
    """The leaves of ``args`` that hold doubles, how to put others in their place, and all other leaves."""
    leaves, structure = jax.tree.flatten(args)
    try:
        leaves = [np.asarray(leaf) for leaf in leaves]
    except TypeError as error:
        raise Unsupported(f"an argument that is no array of numbers ({error})") from error
    variable = [leaf.dtype.kind == "f" for leaf in leaves]

    def rebuild(doubles: list[Any]) -> Any:
        rest = iter(doubles)
        return jax.tree.unflatten(
            structure, [next(rest) if v else x for v, x in zip(variable, leaves, strict=True)]
        )

    fixed = tuple((x.shape, x.dtype.str, x.tobytes()) for v, x in zip(variable, leaves, strict=True) if not v)
    return [x.astype(float) for v, x in zip(variable, leaves, strict=True) if v], rebuild, fixed


@dataclass
class StepKernels:
    """The expressions of a step for one setup, and where their inputs live."""

    setup: Setup
    values: Values  # an example, for shapes
    graph: Graph = field(default_factory=lambda: Graph(LIMIT))

    writer: ClassVar[type[Writer]]

    def __post_init__(self) -> None:
        self.builder = Builder(self.graph)
        self.systems: list[Following] = []
        self._lay_out()
        self._trace()

    # --- where things are -----------------------------------------------------------------------

    def _lay_out(self) -> None:
        setup, builder, (carry, scale, args, x) = self.setup, self.builder, self.values
        dims, slot = setup.dims, builder.slot
        shape = lambda tree: jax.tree.map(lambda leaf: slot(np.size(leaf)).reshape(np.shape(leaf)), tree)
        first = builder.slots
        q, v, a = slot(dims.size), slot(dims.n), slot(dims.n)
        extra = sum(setup.method.extras(dims).values())
        self.output = (slot(dims.m), slot(dims.p), slot(extra))
        self.counts = slot(3)
        self._extend_row()
        self.row = range(first, builder.slots)
        rest = carry._replace(q=None, v=None, a=None)  # type: ignore[arg-type]
        self.carry: Carry = shape(rest)._replace(q=q, v=v, a=a)
        self.scale: Scale = shape(scale)
        doubles, self._rebuild, self.fixed = floating(args)
        self.args: list[np.ndarray] = shape(doubles)
        size = len(x)
        self.parabola = tuple(slot(size) for _ in range(3))
        self.memory = slot(2)  # fit, noise
        self._lay_out_times()
        self.x = slot(size)
        self.numbers = slot(len(newton.Numbers._fields))
        self.flags = {
            name: int(slot(1)[0]) for name in ("unfinished", "running", "slow", "converged", "alive", "lost")
        }
        self.status, self.taken, self.if_singular = (int(slot(1)[0]) for _ in range(3))
        self.totals = slot(3)  # of the counts
        self.events, self.fired = slot(len(setup.crossings)), slot(len(setup.crossings))

    def _extend_row(self) -> None:
        """Places for what else belongs to a record."""

    def _lay_out_times(self) -> None:
        """Places for the start and the size of a step."""
        self.t, self.h = self.builder.slot(1), self.builder.slot(1)

    def _inputs(self, slots: Any, level: int) -> Any:
        """Symbols for a tree of slots."""
        return jax.tree.map(lambda s: Symbols(self.builder.inputs(s, level), "f"), slots)

    def inline(self, function: Callable[..., Any], *arguments: Any, helpers: Helpers | None = None) -> Any:
        """Like `inline`, with symbols out of symbols."""
        outputs = inline(self.graph, function, *arguments, helpers=helpers)
        return jax.tree.map(self._symbols, outputs)

    def _later(self, graph: Graph, matrix: np.ndarray, rhs: np.ndarray) -> list[np.ndarray]:
        """The solution of a linear system as inputs: a kernel of its own puts it there."""
        before = {
            i for system in self.systems for i in self.builder.inputs(system.places, ITERATION).tolist()
        }
        if not before.isdisjoint(graph.reachable([*matrix.reshape(-1).tolist(), *rhs.tolist()])):
            raise Unsupported("a linear system that follows from another one")
        self.systems.append(Following(matrix, rhs, self.builder.slot(len(rhs))))
        return [self.builder.inputs(self.systems[-1].places, ITERATION)]

    def _symbols(self, ids: np.ndarray) -> Symbols:
        kinds = {self.graph.nodes[i].kind for i in ids.reshape(-1).tolist()}
        return Symbols(ids, kinds.pop() if kinds else "f")

    # --- the equations --------------------------------------------------------------------------

    def _trace(self) -> None:
        system, method, _, dims, crossings = setup = self.setup
        scale, doubles = self._inputs((self.scale, self.args), RUN)
        args = self._rebuild(doubles)
        level_one = (self.carry, self.parabola, self.t.reshape(()), self.h.reshape(()), self.memory)
        carry, parabola, t, h, memory = self._inputs(level_one, STEP)
        (x,) = self._inputs((self.x,), ITERATION)
        groups: tuple[int, ...] = ()

        def prepare(carry: Carry, parabola: Any, t: Any, h: Any, scale: Scale, args: Any) -> Any:
            nonlocal groups
            levels, groups = rounding_levels(setup, scale, carry, h)
            step = method.prepare(system, carry, t, h, dims, scale, args)
            guess = extrapolated(parabola, carry.h, h)
            return step, guess, levels

        step, guess, levels = self.inline(prepare, carry, parabola, t, h, scale, args)
        residual = lambda x, step, scale, args: method.equations(system, step, dims, scale, x, args)
        value = self.inline(residual, x, step, scale, args)
        self.guess, self.value, self.levels, self.groups = guess, value, levels, groups
        self.symbols = {"x": x, "memory": memory, "q": carry.q, "v": carry.v}
        self.turn = self.builder.inputs(self.builder.slot(dims.n), STEP)
        self.turned = inline(self.graph, system.space.retract, carry.q, Symbols(self.turn, "f"))
        if not method.exact_matrix:
            linearized = lambda x, step, scale, args: method.linearized(system, step, dims, scale, x, args)
            value = self.inline(linearized, x, step, scale, args)
        self.matrix = jacobian(self.graph, value.ids, x.ids)
        own_at = lambda t, q, scale, args: method.own_at(system, t, q, scale, args)
        chosen = inline(self.graph, own_at, t, carry.q, scale, args)
        self.chosen = [(carry.own[name].ids.ravel(), part.ravel()) for name, part in chosen.items()]

        def finish(step: Any, scale: Scale, x: Any, args: Any, parabola: Any, h_old: Any, h: Any) -> Any:
            carry, output = method.finish(system, step, dims, scale, x, args)
            return carry, output, moved_parabola(parabola, x, h_old, h)

        inputs = (step, scale, x, args, parabola, carry.h, h)
        self.finished = self.inline(finish, *inputs, helpers={linear.SOLVE: self._later})
        self.parts = (carry, step, x, scale, args)
        cross = lambda t, h, carry, output, args: events.values(
            crossings, t + h, carry.q, carry.v, output.lam, output.psi, args
        )
        self.crossed = self.inline(cross, t, h, *self.finished[:2], args)

    # --- orders of pivots -----------------------------------------------------------------------

    @property
    def matrices(self) -> list[np.ndarray]:
        """The nodes of all matrices (N, N) that a step factorizes; the Newton matrix comes first."""
        return [self.matrix, *(system.matrix for system in self.systems)]

    def matrices_at(self, slots: np.ndarray, start: bool) -> list[np.ndarray]:
        """Matrices (N, N) as numbers, at the guess of a step that starts, or at its last iterate."""
        return self._numbers({i: float(slots[s]) for i, s in self.builder.slot_of.items()}, start)

    def _numbers(self, values: dict[int, float], start: bool) -> list[np.ndarray]:
        x = self.symbols["x"].ids.tolist()
        with np.errstate(all="ignore"):
            if start:
                known = {i: v for i, v in values.items() if i not in x}
                values = values | dict(
                    zip(x, self.graph.evaluate(self.guess.ids.tolist(), known), strict=True)
                )
            flat = self.graph.evaluate([i for m in self.matrices for i in m.reshape(-1).tolist()], values)
        parts = np.split(np.array(flat, dtype=float), np.cumsum([m.size for m in self.matrices])[:-1])
        return [part.reshape(m.shape) for part, m in zip(parts, self.matrices, strict=True)]

    def choose(self, slots: np.ndarray, start: bool) -> Orders | None:
        """Orders for the matrices at a step, that suit other configurations too."""
        values = {i: float(slots[s]) for i, s in self.builder.slot_of.items()}
        rng = np.random.default_rng(0)
        samples = [self._numbers(values, start)]
        samples += [self._numbers(values | self._elsewhere(values, rng), start=True) for _ in range(SAMPLES)]
        orders = tuple(
            lu.choose(m != ZERO, np.stack(numbers))
            for m, numbers in zip(self.matrices, zip(*samples, strict=True), strict=True)
        )
        return None if None in orders else orders  # type: ignore[return-value]

    def _elsewhere(self, values: dict[int, float], rng: np.random.Generator) -> dict[int, float]:
        """Another configuration, with other velocities and what the method chooses for it."""
        q, v = self.symbols["q"].ids.tolist(), self.symbols["v"].ids.tolist()
        turns = dict(zip(self.turn.tolist(), 2 * rng.normal(size=len(self.turn)), strict=True))
        with np.errstate(all="ignore"):
            moved = self.graph.evaluate(self.turned.tolist(), values | turns)
            faster = np.array([values[i] for i in v]) * rng.normal(size=len(v))
            there = dict(zip([*q, *v], [*moved, *faster], strict=True))
            for own, chosen in self.chosen:
                there |= zip(own.tolist(), self.graph.evaluate(chosen.tolist(), values | there), strict=True)
        return there

    # --- kernels --------------------------------------------------------------------------------

    def program(self, orders: Orders) -> tuple[Program, Loop]:
        """The kernels, with matrices factorized in these orders.

        They are made from nodes of their own: the next order starts from the equations again.
        """
        count = len(self.graph.nodes)
        try:
            return self.writer(self).write(orders)
        finally:
            self.graph.reset(count)


class Writer:
    """Writes the kernels of a step in one order of pivots, with slots of its own for the factors."""

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
        self.factors = self.renew(lu.factor(self.graph, self.step.matrix, orders[0]))
        self.correct(self.factors)
        self.judge()
        if self.step.systems:
            self.settle(orders[1:])
        self.finish()
        self.builder.kernel("once", RUN)
        return self.builder.build({RUN: "once", STEP: "prepare"}), self.loop()

    def flagged(self, numbers: newton.Numbers) -> Any:
        """The numbers of an iteration, and what they say about its course."""
        running, unfinished = newton.running(self.options, numbers), newton.unfinished(self.options, numbers)
        slow = unfinished & (numbers.status == newton.SLOW_DOWN)
        return jnp.stack(numbers), jnp.stack([running, unfinished, slow]).astype(float)

    def prepare(self) -> None:
        """Before a step: the guess, and an iteration that has not begun."""
        step = self.step
        begun = ids(step.inline(lambda memory: self.flagged(newton.begun(*memory)), step.symbols["memory"]))
        self.builder.kernel("prepare", STEP, (step.x, step.guess.ids), *zip(self.course, begun, strict=True))

    def renew(self, factors: lu.Factors) -> lu.Factors:
        """A new matrix; returns its factors as the other kernels find them."""
        step, graph = self.step, self.graph
        stored = [i for i in factors.entries() if i not in graph.constants]
        places = self.builder.slot(len(stored))
        finite, healthy = (Symbols(np.array(i), "b") for i in lu.examine(graph, step.matrix, factors))

        def renew(numbers: newton.Numbers, finite: Any, healthy: Any) -> Any:
            after = newton.renewed(self.options, numbers, finite, jnp.array(False))
            singular = newton.renewed(self.options, numbers, finite, jnp.array(True))
            trusted = healthy | (after.status != newton.RUNNING)
            after = after._replace(status=jnp.where(trusted, after.status, PIVOT))
            return *self.flagged(after), singular.status

        renewed = ids(step.inline(renew, self.numbers, finite, healthy))
        targets = (*self.course, np.array(step.if_singular))
        new = (places, np.array(stored, dtype=np.int64))
        self.builder.kernel("renew", ITERATION, new, *zip(targets, renewed, strict=True))
        kept = dict(zip(stored, self.builder.inputs(places, ITERATION).tolist(), strict=True))
        return factors.renamed(lambda i: kept.get(i, i))

    def correct(self, factors: lu.Factors) -> None:
        """A correction, and the verdict on it."""
        step, x = self.step, self.step.symbols["x"].ids.tolist()
        correction = lu.solve(self.graph, factors, step.value.ids)
        moved = np.array([self.graph.sub(a, b) for a, b in zip(x, correction.tolist(), strict=True)])

        def judge(levels: Any, numbers: newton.Numbers, x: Any, value: Any, by: Any) -> Any:
            return self.flagged(newton.judged(self.options, levels, step.groups, numbers, x, value, by))

        inputs = (step.levels, self.numbers, Symbols(moved, "f"), step.value, Symbols(correction, "f"))
        judged = ids(step.inline(judge, *inputs))
        self.builder.kernel("correct", ITERATION, (step.x, moved), *zip(self.course, judged, strict=True))

    def judge(self) -> None:
        """After corrections with one matrix."""
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
        """Whether an iteration converged, whether the run goes on, and whether to go back."""
        return [converged, unfinished | converged, jnp.array(False)]

    def settle(self, orders: Orders) -> None:
        """Linear systems at the end of a step that converged; where pivots do not suit, it has not ended."""
        step, graph = self.step, self.graph
        solutions, trusted = [], TRUE
        for system, order in zip(step.systems, orders, strict=True):
            factors = lu.factor(graph, system.matrix, order)
            solutions.append((system.places, lu.solve(graph, factors, system.rhs)))
            for good in lu.examine(graph, system.matrix, factors):
                trusted = graph.logic("and", trusted, good)
        on, status = (graph.select(trusted, a, b) for a, b in ((ONE, ZERO), (ZERO, graph.constant(PIVOT))))
        flags = [(np.array(step.flags[name]), np.array(on)) for name in ("converged", "alive")]
        self.builder.kernel(
            "settle", ITERATION, *solutions, *flags, (np.array(step.status), np.array(status))
        )

    def finish(self) -> None:
        """After a step that converged: what the next one starts from, and the record."""
        step, builder = self.step, self.builder
        carry, output, parabola = step.finished

        def close(numbers: newton.Numbers, turns: Any, fault: Any, taken: Any, totals: Any, g: Any) -> Any:
            status = codes.first(codes.turned(jnp.array(codes.SUCCESS), turns), fault)
            good = status == codes.SUCCESS
            counts = jnp.stack([numbers.iterations, numbers.jacobians, numbers.rounding])
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
        inputs = (output.turns, output.fault, taken, totals, (before, step.crossed))
        closed = ids(step.inline(close, self.numbers, *inputs))
        single = map(np.array, (step.status, step.flags["alive"], step.taken))
        targets = [step.counts, step.memory, *single, step.totals, step.events, step.fired]
        pairs = list(zip(jax.tree.leaves(step.carry), jax.tree.leaves(ids(carry)), strict=True))
        pairs += zip(step.output, ids(output[:3]), strict=True)
        pairs += zip(step.parabola, ids(parabola), strict=True)
        builder.kernel("finish", ITERATION, *pairs, *zip(targets, closed, strict=True))

    def loop(self) -> Loop:
        """`advance` and Newton's two loops, as a plan."""
        step, flags = self.step, self.step.flags
        corrections = While(flags["running"], (Call("correct"),))
        attempt = (If(flags["slow"], (Call("renew"),)), corrections, Call("judge"))
        iteration = While(flags["unfinished"], attempt)
        settle: Instructions = (If(flags["converged"], (Call("settle"),)),) if step.systems else ()
        body = (Call("prepare"), iteration, *settle, If(flags["converged"], (Call("finish"),)))
        return Loop("once", body, flags["alive"], step.row, (int(step.t[0]), int(step.h[0])))


def ids(tree: Any) -> Any:
    return jax.tree.map(lambda s: s.ids, tree, is_leaf=lambda s: isinstance(s, Symbols))


StepKernels.writer = Writer
