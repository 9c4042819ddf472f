"""One step of a method as kernels: prepare, renew, correct, judge, finish. `advance` in another form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha import advance, diagnose, newton
from genalpha.kernels import lu
from genalpha.kernels.differentiate import jacobian
from genalpha.kernels.graph import ZERO, Graph, Unsupported
from genalpha.kernels.program import Builder, Call, If, Loop, Program, While
from genalpha.kernels.scalar import Symbols, inline
from genalpha.state import Carry, Scale

# Scalar operations of one step at most. Beyond, compile time grows faster than XLA's (docs/native.md).
LIMIT = 25_000
# The status of a step whose matrix needs other pivots; it never leaves the driver.
PIVOT = 8

# Configurations that an order of pivots is tried on, beside the first.
SAMPLES = 16

RUN, STEP, ITERATION = range(3)


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
class Step:
    """The expressions of a step for one setup, and where their inputs live."""

    setup: advance.Setup
    values: Values  # an example, for shapes
    graph: Graph = field(default_factory=lambda: Graph(LIMIT))

    def __post_init__(self) -> None:
        self.builder = Builder(self.graph)
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
        self.row = range(first, builder.slots)
        rest = carry._replace(q=None, v=None, a=None)  # type: ignore[arg-type]
        self.carry: Carry = shape(rest)._replace(q=q, v=v, a=a)
        self.scale: Scale = shape(scale)
        doubles, self._rebuild, self.fixed = floating(args)
        self.args: list[np.ndarray] = shape(doubles)
        size = len(x)
        self.parabola = tuple(slot(size) for _ in range(3))
        self.memory = slot(2)  # fit, noise
        self.t, self.h = slot(1), slot(1)
        self.x = slot(size)
        self.numbers = slot(len(newton.Numbers._fields))
        self.flags = {
            name: int(slot(1)[0]) for name in ("unfinished", "running", "slow", "converged", "alive")
        }
        self.status, self.taken, self.if_singular = (int(slot(1)[0]) for _ in range(3))
        self.totals = slot(3)  # of the counts

    def _inputs(self, slots: Any, level: int) -> Any:
        """Symbols for a tree of slots."""
        return jax.tree.map(lambda s: Symbols(self.builder.inputs(s, level), "f"), slots)

    def _inline(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Like `inline`, with symbols out of symbols."""
        return jax.tree.map(lambda ids: self._symbols(ids), inline(self.graph, function, *arguments))

    def _symbols(self, ids: np.ndarray) -> Symbols:
        kinds = {self.graph.nodes[i].kind for i in ids.reshape(-1).tolist()}
        return Symbols(ids, kinds.pop() if kinds else "f")

    # --- the equations --------------------------------------------------------------------------

    def _trace(self) -> None:
        system, method, _, dims = setup = self.setup
        scale, doubles = self._inputs((self.scale, self.args), RUN)
        args = self._rebuild(doubles)
        level_one = (self.carry, self.parabola, self.t.reshape(()), self.h.reshape(()), self.memory)
        carry, parabola, t, h, memory = self._inputs(level_one, STEP)
        (x,) = self._inputs((self.x,), ITERATION)
        groups: tuple[int, ...] = ()

        def prepare(carry: Carry, parabola: Any, t: Any, h: Any, scale: Scale, args: Any) -> Any:
            nonlocal groups
            levels, groups = advance.rounding_levels(setup, scale, carry, h)
            step = method.prepare(system, carry, t, h, dims, scale, args)
            guess = advance.extrapolated(parabola, carry.h, h)
            return step, guess, levels

        step, guess, levels = self._inline(prepare, carry, parabola, t, h, scale, args)
        residual = lambda x, step, scale, args: method.residual(system, step, dims, scale, x, args)
        value = self._inline(residual, x, step, scale, args)
        self.guess, self.value, self.levels, self.groups = guess, value, levels, groups
        self.symbols = {"x": x, "memory": memory, "q": carry.q, "v": carry.v}
        self.turn = self.builder.inputs(self.builder.slot(dims.n), STEP)
        self.turned = inline(self.graph, system.space.retract, carry.q, Symbols(self.turn, "f"))
        self.matrix = jacobian(self.graph, value.ids, x.ids)

        def finish(step: Any, scale: Scale, x: Any, args: Any, parabola: Any, h_old: Any, h: Any) -> Any:
            carry, output = method.finish(system, step, dims, scale, x, args)
            return carry, output, advance.parabola(parabola, x, h_old, h)

        self.finished = self._inline(finish, step, scale, x, args, parabola, carry.h, h)

    # --- an order of pivots ---------------------------------------------------------------------

    def matrix_at(self, slots: np.ndarray, start: bool) -> np.ndarray:
        """The Newton matrix (N, N) as numbers, at the guess of a step that starts, or at its last iterate."""
        return self._matrix({i: float(slots[s]) for i, s in self.builder.slot_of.items()}, start)

    def _matrix(self, values: dict[int, float], start: bool) -> np.ndarray:
        x = self.symbols["x"].ids.tolist()
        with np.errstate(all="ignore"):
            if start:
                known = {i: v for i, v in values.items() if i not in x}
                values = values | dict(
                    zip(x, self.graph.evaluate(self.guess.ids.tolist(), known), strict=True)
                )
            flat = self.graph.evaluate(self.matrix.reshape(-1).tolist(), values)
        return np.array(flat, dtype=float).reshape(self.matrix.shape)

    def choose(self, slots: np.ndarray, start: bool) -> lu.Order | None:
        """An order for the matrix at a step, that suits other configurations too."""
        values = {i: float(slots[s]) for i, s in self.builder.slot_of.items()}
        rng = np.random.default_rng(0)
        matrices = [self._matrix(values, start)]
        q, v = self.symbols["q"].ids, self.symbols["v"].ids
        for _ in range(SAMPLES):
            speeds = np.array([values[i] for i in v.tolist()])
            turns = dict(zip(self.turn.tolist(), 2 * rng.normal(size=len(self.turn)), strict=True))
            moved = self.graph.evaluate(self.turned.tolist(), values | turns)
            faster = speeds * rng.normal(size=len(speeds))
            elsewhere = dict(zip([*q.tolist(), *v.tolist()], [*moved, *faster], strict=True))
            matrices.append(self._matrix(values | elsewhere, start=True))
        return lu.choose(self.matrix != ZERO, np.stack(matrices))

    # --- kernels --------------------------------------------------------------------------------

    def program(self, order: lu.Order) -> tuple[Program, Loop]:
        """The kernels, with the matrix factorized in this order.

        They are made from nodes of their own: the next order starts from the equations again.
        """
        count = len(self.graph.nodes)
        try:
            return self._program(order)
        finally:
            self.graph.reset(count)

    def _program(self, order: lu.Order) -> tuple[Program, Loop]:
        graph, options = self.graph, self.setup.newton
        builder = Builder(graph, self.builder.slots, dict(self.builder.slot_of), dict(self.builder.level_of))
        flags, x, numbers = self.flags, self.symbols["x"], newton.Numbers(*self._numbers(builder))
        factors = lu.factor(graph, self.matrix, order)
        stored = [i for i in factors.entries() if i not in graph.constants]
        places = builder.slot(len(stored))
        kept = dict(zip(stored, builder.inputs(places, ITERATION).tolist(), strict=True))

        def state_of(numbers: newton.Numbers) -> Any:
            running, unfinished = newton.running(options, numbers), newton.unfinished(options, numbers)
            return running, unfinished, unfinished & (numbers.status == newton.SLOW_DOWN)

        def flagged(numbers: newton.Numbers) -> Any:
            return jnp.stack(numbers), jnp.stack([b.astype(float) for b in state_of(numbers)])

        three = np.array([flags["running"], flags["unfinished"], flags["slow"]])

        # before a step
        begun = self._inline(lambda memory: flagged(newton.begun(*memory)), self.symbols["memory"])
        builder.kernel(
            "prepare", STEP, (self.x, self.guess.ids), *zip((self.numbers, three), _ids(begun), strict=True)
        )

        # a new matrix
        finite, healthy = (Symbols(np.array(i), "b") for i in lu.examine(graph, self.matrix, factors))

        def renew(numbers: newton.Numbers, finite: Any, healthy: Any) -> Any:
            after = newton.renewed(options, numbers, finite, jnp.array(False))
            singular = newton.renewed(options, numbers, finite, jnp.array(True))
            trusted = healthy | (after.status != newton.RUNNING)
            after = after._replace(status=jnp.where(trusted, after.status, PIVOT))
            return *flagged(after), singular.status

        renewed = _ids(self._inline(renew, numbers, finite, healthy))
        targets = (self.numbers, three, np.array([self.if_singular]))
        builder.kernel(
            "renew",
            ITERATION,
            (places, np.array(stored, dtype=np.int64)),
            *zip(targets, renewed, strict=True),
        )

        # a correction
        correction = lu.solve(graph, factors.renamed(lambda i: kept.get(i, i)), self.value.ids)
        moved = np.array([graph.sub(a, b) for a, b in zip(x.ids.tolist(), correction.tolist(), strict=True)])

        def judge(levels: Any, numbers: newton.Numbers, x: Any, value: Any, step: Any) -> Any:
            return flagged(newton.judged(options, levels, self.groups, numbers, x, value, step))

        judged = self._inline(
            judge, self.levels, numbers, Symbols(moved, "f"), self.value, Symbols(correction, "f")
        )
        builder.kernel(
            "correct", ITERATION, (self.x, moved), *zip((self.numbers, three), _ids(judged), strict=True)
        )

        # after corrections with one matrix
        def reconsider(numbers: newton.Numbers, x: Any, guess: Any) -> Any:
            astray, numbers = newton.reconsidered(options, numbers)
            unfinished = newton.unfinished(options, numbers)
            converged = numbers.status == diagnose.SUCCESS
            status = newton.final_status(numbers)
            alive = jnp.stack([converged, unfinished | converged]).astype(float)
            return jnp.where(astray, guess, x), *flagged(numbers), alive, status

        ends = (
            self.x,
            self.numbers,
            three,
            np.array([flags["converged"], flags["alive"]]),
            np.array([self.status]),
        )
        after = _ids(self._inline(reconsider, numbers, x, self.guess))
        builder.kernel("judge", ITERATION, *zip(ends, after, strict=True))

        self._finish(builder, numbers)
        builder.kernel("once", RUN)
        program = builder.build({RUN: "once", STEP: "prepare"})
        loop = Loop(
            once="once",
            body=(
                Call("prepare"),
                While(
                    flags["unfinished"],
                    (
                        If(flags["slow"], (Call("renew"),)),
                        While(flags["running"], (Call("correct"),)),
                        Call("judge"),
                    ),
                ),
                If(flags["converged"], (Call("finish"),)),
            ),
            time=int(self.t[0]),
            step=int(self.h[0]),
            alive=flags["alive"],
            row=self.row,
        )
        return program, loop

    def _numbers(self, builder: Builder) -> list[Any]:
        ids = builder.inputs(self.numbers, ITERATION)
        return [Symbols(i, "f") for i in ids]

    def _finish(self, builder: Builder, numbers: newton.Numbers) -> None:
        carry, output, parabola = self.finished
        options = self.setup.newton

        def close(numbers: newton.Numbers, turns: Any, taken: Any, totals: Any) -> Any:
            status = diagnose.turned(jnp.array(diagnose.SUCCESS), turns)
            good = status == diagnose.SUCCESS
            counts = jnp.stack([numbers.iterations, numbers.jacobians, numbers.rounding])
            memory = newton.remembered(options, numbers)
            totals += jnp.where(good, counts, 0.0)
            return counts, memory, status, good.astype(float), taken + good, totals

        taken, totals = (Symbols(builder.inputs(np.array(s), STEP), "f") for s in (self.taken, self.totals))
        closed = _ids(self._inline(close, numbers, output.turns, taken, totals))
        single = map(np.array, (self.status, self.flags["alive"], self.taken))
        targets = [self.counts, self.memory, *single, self.totals]
        pairs = list(zip(jax.tree.leaves(self.carry), jax.tree.leaves(_ids(carry)), strict=True))
        pairs += zip(self.output, _ids(output[:3]), strict=True)
        pairs += zip(self.parabola, _ids(parabola), strict=True)
        builder.kernel("finish", ITERATION, *pairs, *zip(targets, closed, strict=True))


def _ids(tree: Any) -> Any:
    return jax.tree.map(lambda s: s.ids, tree, is_leaf=lambda s: isinstance(s, Symbols))
