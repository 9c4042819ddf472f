"""The kernels of one step: prepare, renew, correct, judge, finish. Together they compute `advance`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

import jax
import numpy as np

from genalpha.backends.native.writer import ITERATION, RUN, STEP, Writer
from genalpha.compiler import lu
from genalpha.compiler.differentiate import jacobian
from genalpha.compiler.evaluate import evaluator
from genalpha.compiler.graph import ZERO, Graph, Unsupported
from genalpha.compiler.program import Builder, Loop, Program
from genalpha.compiler.reader import Helpers, Symbols, inline
from genalpha.engine import event_values
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.setup import Setup
from genalpha.engine.start import RunStart
from genalpha.engine.step import extrapolated, moved_parabola, rounding_levels, sizes_of_motion
from genalpha.numerics import linear, newton
from genalpha.numerics.data import COUNTED, Carry, Scale, StepOutput
from genalpha.numerics.host import lenient

# The most scalar operations in one step. Programs with more are made too slowly (docs/native.md).
LIMIT = 400_000
# The number of further configurations on which an order of pivots is tested.
SAMPLES = 16

# Orders of pivots: of the Newton matrix, and of each linear system that follows the iteration.
Orders = tuple[lu.Order, ...]
W = TypeVar("W", bound=Writer)


class Following(NamedTuple):
    """A linear system that follows Newton's iteration: nodes of its matrix and right side, slots for x."""

    matrix: np.ndarray
    rhs: np.ndarray
    places: np.ndarray


class Values(NamedTuple):
    """The starting values of a run: carry, scale, arguments, and the unknowns x of the first guess."""

    carry: Carry
    scale: Scale
    args: Any
    x: Any


def floating(args: Any) -> tuple[list[np.ndarray], Callable[[list[Any]], Any], tuple[Any, ...]]:
    """The leaves of ``args`` that hold doubles, a function that replaces them, and all other leaves."""
    leaves, structure = jax.tree.flatten(args)
    try:
        leaves = [np.asarray(leaf) for leaf in leaves]
    except TypeError as error:
        raise Unsupported(f"an argument that is not an array of numbers ({error})") from error
    variable = [leaf.dtype.kind == "f" for leaf in leaves]

    def rebuild(doubles: list[Any]) -> Any:
        rest = iter(doubles)
        return jax.tree.unflatten(
            structure, [next(rest) if v else x for v, x in zip(variable, leaves, strict=True)]
        )

    fixed = tuple((x.shape, x.dtype.str, x.tobytes()) for v, x in zip(variable, leaves, strict=True) if not v)
    return [x.astype(float, copy=False) for v, x in zip(variable, leaves, strict=True) if v], rebuild, fixed


@dataclass
class StepKernels:
    """The expressions of a step for one setup, and the slots of their inputs."""

    setup: Setup
    values: Values  # an example, for shapes
    graph: Graph = field(default_factory=lambda: Graph(LIMIT))

    writer: ClassVar[type[Writer]] = Writer
    # Whether records end with the rest of the carry and with the unknowns, from which derivatives follow.
    taped: ClassVar[bool] = False
    # Under error control: the slots of the pace, of counters that start at zero, and of the end of a run.
    places_of_pace: ClassVar[Any] = None
    counters: ClassVar[Any] = ()
    ends: ClassVar[Any] = ()

    def __post_init__(self) -> None:
        self.builder = Builder(self.graph)
        self.systems: list[Following] = []
        self._lay_out()
        self._trace()
        tables = [i for i, node in enumerate(self.graph.nodes) if node.kind == "t"]
        self._tables = [i for i in tables if self.builder.levels()[i] == RUN]

    # --- where things are -----------------------------------------------------------------------

    def _lay_out(self) -> None:
        setup, builder, (carry, scale, args, x) = self.setup, self.builder, self.values
        dims, slot = setup.dims, builder.slot
        shape = lambda tree: jax.tree.map(lambda leaf: slot(np.size(leaf)).reshape(np.shape(leaf)), tree)
        first = builder.slots
        q, v, a = slot(dims.size), slot(dims.n), slot(dims.n)
        extra = sum(setup.method.extras(dims).values())
        self.output = (slot(dims.m), slot(dims.p), slot(extra))
        self.counts = slot(len(COUNTED))
        self._extend_row()
        rest = carry._replace(q=None, v=None, a=None)  # type: ignore[arg-type]
        tape = (shape(rest), slot(len(x))) if self.taped else None
        self.row = range(first, builder.slots)
        self.carry: Carry = (tape[0] if tape else shape(rest))._replace(q=q, v=v, a=a)
        self.scale: Scale = shape(scale)
        doubles, self._rebuild, self.fixed = floating(args)
        self.args: list[np.ndarray] = shape(doubles)
        size = len(x)
        self.parabola = tuple(slot(size) for _ in range(3))
        self.memory = slot(2)  # fit, noise
        self._lay_out_times()
        self.x = tape[1] if tape else slot(size)
        self.numbers = slot(len(newton.Numbers._fields))
        self.flags = {
            name: int(slot(1)[0]) for name in ("unfinished", "running", "slow", "converged", "alive", "lost")
        }
        self.status, self.taken, self.if_singular = (int(slot(1)[0]) for _ in range(3))
        self.totals = slot(len(COUNTED))  # of the counts
        self.events, self.fired = slot(len(setup.crossings)), slot(len(setup.crossings))

    def _extend_row(self) -> None:
        """Reserve slots for further columns of a record."""

    def _lay_out_times(self) -> None:
        """Reserve slots for the start and the size of a step."""
        self.t, self.h = self.builder.slot(1), self.builder.slot(1)

    @property
    def start_places(self) -> Any:
        """The slots of the start of a run, in the order of :meth:`start_values`."""
        return self.carry, self.scale, self.parabola[0], self.places_of_pace

    @staticmethod
    def start_values(start: RunStart) -> Any:
        return start.carry, start.begin.scale, start.x, start.pace

    def fill(self, slots: np.ndarray, start: RunStart, doubles: list[np.ndarray]) -> None:
        """Write the start of a run into the slots."""
        places, values = jax.tree.leaves(self.start_places), jax.tree.leaves(self.start_values(start))
        for place, value in zip(places, values, strict=True):
            slots[place] = value
        self.fill_arguments(slots, doubles)
        slots[self.flags["alive"]] = 1.0

    def fill_arguments(self, slots: np.ndarray, doubles: list[np.ndarray]) -> None:
        """Write the floating-point arguments of a run into the slots."""
        for place, value in zip(self.args, doubles, strict=True):
            slots[place] = value

    def slots_of(self, chosen: Sequence[bool]) -> list[int]:
        """The slots of some of the floating-point arguments."""
        return [s for place, yes in zip(self.args, chosen, strict=False) if yes for s in place.flat]

    def fill_first(self, slots: np.ndarray, t: float, first: Any) -> None:
        """Write the start and the size of the first step into the slots."""
        slots[self.t], slots[self.h] = t, first

    def _inputs(self, slots: Any, level: int) -> Any:
        """Symbols for a tree of slots."""
        return jax.tree.map(lambda s: Symbols(self.builder.inputs(s, level), "f"), slots)

    def inline(self, function: Callable[..., Any], *arguments: Any, helpers: Helpers | None = None) -> Any:
        """Like the function `inline`, but returns symbols."""
        outputs = inline(self.graph, function, *arguments, helpers=helpers)
        return jax.tree.map(self._symbols, outputs)

    def _later(self, graph: Graph, matrix: np.ndarray, rhs: np.ndarray) -> list[np.ndarray]:
        """The solution of a linear system as inputs, which a separate kernel computes."""
        for known in self.systems:
            if np.array_equal(known.matrix, matrix) and np.array_equal(known.rhs, rhs):
                return [self.builder.inputs(known.places, ITERATION)]
        before = {
            i for system in self.systems for i in self.builder.inputs(system.places, ITERATION).tolist()
        }
        if not before.isdisjoint(graph.reachable([*matrix.reshape(-1).tolist(), *rhs.tolist()])):
            raise Unsupported("a linear system that depends on the solution of another one")
        self.systems.append(Following(matrix, rhs, self.builder.slot(len(rhs))))
        return [self.builder.inputs(self.systems[-1].places, ITERATION)]

    def _symbols(self, ids: np.ndarray) -> Symbols:
        kinds = {self.graph.nodes[i].kind for i in ids.reshape(-1).tolist()}
        return Symbols(ids, kinds.pop() if kinds else "f")

    # --- the equations --------------------------------------------------------------------------

    def _trace(self) -> None:
        system, method, _, dims, _ = setup = self.setup
        scale, doubles = self._inputs((self.scale, self.args), RUN)
        args = self._rebuild(doubles)
        level_one = (self.carry, self.parabola, self.t.reshape(()), self.h.reshape(()), self.memory)
        carry, parabola, t, h, memory = self._inputs(level_one, STEP)
        self.given = (carry, t, h, scale, doubles)
        (x,) = self._inputs((self.x,), ITERATION)
        groups: tuple[newton.Group, ...] = ()

        def prepare(carry: Carry, parabola: Any, t: Any, h: Any, scale: Scale, args: Any) -> Any:
            nonlocal groups
            sizes = sizes_of_motion(system.space, scale, carry.q, carry.v)
            levels, groups = rounding_levels(setup, sizes, h)
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
        self.matrix = self._matrix(value.ids, x.ids)
        own_at = lambda t, q, scale, args: method.own_at(system, t, q, scale, args)
        chosen = inline(self.graph, own_at, t, carry.q, scale, args)
        self.chosen = [(carry.own[name].ids.ravel(), part.ravel()) for name, part in chosen.items()]

        def finish(step: Any, scale: Scale, x: Any, args: Any, parabola: Any, h_old: Any, h: Any) -> Any:
            carry, output = method.finish(system, step, dims, scale, x, args)
            return carry, output, moved_parabola(parabola, x, h_old, h)

        inputs = (step, scale, x, args, parabola, carry.h, h)
        self.finished = self.inline(finish, *inputs, helpers={linear.SOLVE: self._later})
        self.parts = (carry, step, x, scale, args)

        def cross(t: Any, h: Any, carry: Carry, output: StepOutput, scale: Scale, args: Any) -> Any:
            at = StepEnd(t + h, carry.q, carry.v, output.lam, output.psi)
            return event_values.values(setup, at, args, scale)

        self.crossed = self.inline(
            cross, t, h, *self.finished[:2], scale, args, helpers={linear.SOLVE: self._later}
        )

    def _matrix(self, value: np.ndarray, x: np.ndarray) -> np.ndarray:
        """The Newton matrix (N, N), from the equations (N,) and the unknowns (N,)."""
        return jacobian(self.graph, value, x)

    # --- orders of pivots -----------------------------------------------------------------------

    @property
    def matrices(self) -> list[np.ndarray]:
        """The nodes of all matrices (N, N) that a step factorizes; the Newton matrix comes first."""
        return [self.matrix, *(system.matrix for system in self.systems)]

    def matrices_at(self, slots: np.ndarray, start: bool) -> list[np.ndarray]:
        """Matrices (N, N) as numbers: at the first guess of a step if ``start``, else at its last iterate."""
        values = self._values(slots)
        return self._numbers(values)(values, start)

    def _values(self, slots: np.ndarray) -> dict[int, Any]:
        """The numbers of inputs, and of tables that are the same during a run."""
        places = self.builder.slot_of
        values: dict[int, Any] = dict(zip(places, slots[list(places.values())].tolist(), strict=True))
        return values | dict(zip(self._tables, self.graph.evaluate(self._tables, values), strict=True))

    def _numbers(self, given: Iterable[int]) -> Callable[[dict[int, Any], bool], list[np.ndarray]]:
        """A function that evaluates all matrices, from the values of the nodes ``given``."""
        x = self.symbols["x"].ids.tolist()
        guess = evaluator(self.graph, self.guess.ids.tolist(), set(given).difference(x))
        entries = evaluator(self.graph, [i for m in self.matrices for i in m.reshape(-1).tolist()], given)
        cuts = np.cumsum([m.size for m in self.matrices])[:-1]

        def run(values: dict[int, Any], start: bool) -> list[np.ndarray]:
            with np.errstate(all="ignore"):
                if start:
                    known = {i: v for i, v in values.items() if i not in x}
                    values = values | dict(zip(x, guess(known), strict=True))
                parts = np.split(np.array(entries(values), dtype=float), cuts)
            return [part.reshape(m.shape) for part, m in zip(parts, self.matrices, strict=True)]

        return run

    def choose(self, slots: np.ndarray, start: bool) -> Orders | None:
        """Orders of pivots for the matrices of a step that are good for other configurations too."""
        values = self._values(slots)
        rng = np.random.default_rng(0)
        numbers_at, elsewhere = self._numbers(values), self._elsewhere(values)
        samples = [numbers_at(values, start)]
        with lenient():  # functions of the user may not be defined there
            samples += [numbers_at(values | elsewhere(rng), True) for _ in range(SAMPLES)]
        orders = tuple(
            lu.choose(m != ZERO, np.stack(numbers))
            for m, numbers in zip(self.matrices, zip(*samples, strict=True), strict=True)
        )
        return None if None in orders else orders  # type: ignore[return-value]

    def _elsewhere(self, values: dict[int, Any]) -> Callable[[np.random.Generator], dict[int, float]]:
        """Returns other configurations, with other velocities and the method's own choices for them."""
        q, v, turn = self.symbols["q"].ids.tolist(), self.symbols["v"].ids.tolist(), self.turn.tolist()
        turned = evaluator(self.graph, self.turned.tolist(), [*values, *turn])
        chosen = [(own.tolist(), evaluator(self.graph, by.tolist(), values)) for own, by in self.chosen]

        def draw(rng: np.random.Generator) -> dict[int, float]:
            turns = dict(zip(turn, 2 * rng.normal(size=len(turn)), strict=True))
            with np.errstate(all="ignore"):
                moved = turned(values | turns)
                faster = np.array([values[i] for i in v]) * rng.normal(size=len(v))
                there = dict(zip([*q, *v], [*moved, *faster], strict=True))
                for own, choice in chosen:
                    there |= zip(own, choice(values | there), strict=True)
            return there

        return draw

    # --- kernels --------------------------------------------------------------------------------

    def program(self, orders: Orders) -> tuple[Program, Loop]:
        """The kernels, with matrices factorized in these orders."""
        return self.written(self.writer, orders)[1:]

    def written(self, kind: type[W], orders: Orders) -> tuple[W, Program, Loop]:
        """A writer of this kind, and the kernels that it writes.

        Their nodes are removed from the graph afterwards, so that the next writer starts from the equations.
        """
        count = len(self.graph.nodes)
        try:
            writer = kind(self)
            return writer, *writer.write(orders)
        finally:
            self.graph.reset(count)
