"""What runs under JAX transforms have in common: the start, and derivatives along a tape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.native import kernels as native
from genalpha.backends.native import tape as tapes
from genalpha.backends.native.code import MAKING
from genalpha.backends.native.kernels import Kernels, NativeRun, StartValues
from genalpha.backends.native.step import StepKernels, Values
from genalpha.backends.native.tape import Adjoint, Derivative, Tangent, Tape, flat
from genalpha.backends.transforms.operation import Operation
from genalpha.backends.transforms.rows import RowDerivative
from genalpha.compiler.graph import Unsupported
from genalpha.compiler.rows import RowFunction
from genalpha.engine import row
from genalpha.engine.setup import Setup
from genalpha.engine.start import RunStart, from_consistent
from genalpha.engine.start import shapes as start_shapes
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED

# The numbers that follow the parts of the records: status, steps taken and rejected, the time reached, that
# of a_α at the start, and Newton's totals.
NUMBERS = ("status", "taken", "rejected", "t_end", "t_alpha", *COUNTED)
# How often the derivatives of one run may change their order of pivots.
MOST_ORDERS = 8

Rebuild = Callable[[list[Any]], Args]


class Found(NamedTuple):
    """The outputs of a run: records in parts, each (R, ...), numbers by name, and the scale.

    ``timing`` are the times, the sizes and the errors (R, 1 + 2n) of the steps under error control.
    """

    q: Any
    v: Any
    a_alpha: Any
    lam: Any
    psi: Any
    extra: dict[str, Any]
    report: Any
    timing: tuple[Any, ...]
    numbers: dict[str, Any]
    scale: Any


# Some steps of a run: the number of the first one, and the tape (n+1, W) from its start on.
Block = tuple[int, np.ndarray]


class Taken(NamedTuple):
    """A run that was computed: its start, the starts and sizes (N,) of its steps, and their tape in blocks.

    ``blocks`` returns the blocks of the tape in the order of time, or, if asked, in reverse.
    """

    t0: float
    q: np.ndarray
    v: np.ndarray
    doubles: list[np.ndarray]
    times: np.ndarray
    sizes: np.ndarray
    scale: np.ndarray
    blocks: Callable[[bool], Iterable[Block]]
    guess: np.ndarray = np.zeros(0)  # of multipliers, from which the start was found; a constant

    def steps(self, block: Block, tape: Tape) -> tuple[slice, np.ndarray]:
        """The numbers of the steps in a block, and the inputs of their derivatives."""
        first, table = block
        here = slice(first, first + len(table) - 1)
        return here, tape.inputs(table, self.times[here], self.sizes[here])

    @property
    def start(self) -> np.ndarray:
        """The inputs of the start: t0, q, v, the size of the first step, the arguments, and the guess."""
        first = self.sizes[0] if len(self.sizes) else 1.0
        parts = (self.t0, self.q, self.v, first, *self.doubles, self.guess)
        return np.concatenate([np.ravel(x) for x in parts])


class RunOperation(Operation):
    """A run as an operation. ``first`` is an example of the first step, or the control that chooses it."""

    kind: type[StepKernels]
    timed = 0  # the number of arrays in ``timing``

    def __init__(self, setup: Setup, strict: bool, doubles: list[Any], rebuild: Rebuild, first: Any) -> None:
        self.setup, self.strict, self.rebuild = setup, strict, rebuild
        self.layout, dims = row.layout(setup), setup.dims
        *parts, report = self.layout.parts.values()
        self.parts = [*parts, *self.layout.extra.values(), report]
        smooth = len(self.parts) - 1
        self.smooth = (*[True] * smooth, *[False] * (1 + self.timed + len(NUMBERS) + 1))
        number = lambda *shape: jax.ShapeDtypeStruct(shape, float)
        args = [number(*np.shape(x)) for x in doubles]
        begin = lambda at, h, x: from_consistent(setup, at, h, rebuild(x))
        like = jax.tree.map(lambda x: number(*np.shape(x)), first)
        shapes = jax.eval_shape(begin, start_shapes(dims), like, args)
        zeros = lambda tree: jax.tree.map(lambda s: np.zeros(s.shape), tree)
        example = Values(
            zeros(shapes.carry), zeros(shapes.begin.scale), rebuild(zeros(args)), zeros(shapes.x)
        )
        with MAKING:
            self.step: StepKernels = self.kind(setup, example)
            self._defect = RowFunction("defect", setup.system.space.defect, (np.zeros(dims.size),))
        self.tape = Tape(self.step)
        self.iterates = setup.system.reaction is not None  # at the start
        self._kernels: Kernels | None = None
        self._derivatives: dict[Any, Any] = {}
        self._orders: list[Any] = []

    def run(self, *inputs: Any) -> Found:
        """The run, with inputs that JAX may trace."""
        parts = iter(self(*inputs))
        q, v, a_alpha, lam, psi = (next(parts) for _ in range(5))
        extra = {name: next(parts) for name in self.layout.extra}
        report, timing = next(parts), tuple(next(parts) for _ in range(self.timed))
        numbers = {name: next(parts) for name in NUMBERS}
        return Found(q, v, a_alpha, lam, psi, extra, report, timing, numbers, next(parts))

    # --- the start --------------------------------------------------------------------------------

    def begun(self, at: StartValues, doubles: list[np.ndarray]) -> tuple[NativeRun, int]:
        """The start, and its status."""
        made = self.made(at, doubles)
        run = NativeRun(made, self._numbers(made, at, doubles), doubles)
        status = codes.not_a_rotation(self.defect(at.q)) or int(run.start.status)
        if status == codes.SUCCESS and self.strict and not run.start.consistent:
            status = codes.INCONSISTENT
        return run, status

    def _numbers(self, made: Kernels, at: StartValues, doubles: list[np.ndarray]) -> RunStart | np.ndarray:
        if made.iteration is not None:
            found = native.iterated(self.setup, made.iteration, at, doubles)
            assert found is not None
            return found
        assert made.start is not None
        numbers = made.start.code().numbers(at.columns(doubles))
        if not numbers[-1]:  # its pivots are bad
            start, _ = native.started(self.setup, at, doubles, self.rebuild, normalize=True)
            assert start is not None
            numbers = start.code().numbers(at.columns(doubles))
        return numbers

    def defect(self, q: np.ndarray) -> np.ndarray:
        """By how much the lengths of quaternions differ from one."""
        return np.asarray(self._defect.interpret(np.asarray(q))[0])

    def made(self, at: StartValues, doubles: list[np.ndarray]) -> Kernels:
        with MAKING:
            if self._kernels is None:
                start, found = native.started(self.setup, at, doubles, self.rebuild, normalize=True)
                iteration = None
                if self.iterates:
                    iteration = native.one_turn(self.setup, at, doubles, self.rebuild, normalize=True)
                    found = native.iterated(self.setup, iteration, at, doubles)
                if found is None:
                    raise Unsupported("the start of the run has no scalar form, or is singular")
                made = native.built(self.step, found, start, at, self.rebuild, doubles)
                made.iteration = iteration
                made.program(made.order)
                self._kernels = made
            return self._kernels

    def guess_of(self, run: NativeRun) -> np.ndarray:
        """The multipliers of a start that an iteration has found: one more turn leads to the same."""
        state = run.start.begin.state
        return np.concatenate([state.lam, state.psi]) if self.iterates else np.zeros(0)

    def first_rows(self, run: NativeRun) -> tuple[np.ndarray, np.ndarray]:
        """The first row of the tape, and the first record."""
        slots, columns = np.zeros(self.step.builder.slots), self.step.row
        run.fill(slots)
        return slots[columns.start : columns.stop], run.row

    def scale_of(self, run: NativeRun) -> np.ndarray:
        return flat(jax.tree.map(np.asarray, run.start.begin.scale))

    # --- derivatives ------------------------------------------------------------------------------

    def start_rows(self, taken: Taken) -> RowFunction:
        """The start with a given first step, as a function of rows."""
        raise NotImplementedError

    def start_change(self, taken: Taken, reverse: bool) -> RowDerivative:
        with MAKING:
            key = ("start", reverse)
            if key not in self._derivatives:
                self._derivatives[key] = RowDerivative(self.start_rows(taken), reverse)
            return self._derivatives[key]

    @functools.lru_cache(maxsize=1)  # noqa: B019 - it lives as long as the operation
    def start_columns(self, rows: RowFunction) -> tuple[np.ndarray, np.ndarray]:
        """The columns of the carry, and of the first record, in the results of the start."""
        at: RunStart = rows.unpack(np.arange(rows.width))[0]
        return flat(at.carry).astype(int), np.ravel(at.row).astype(int)[: self.tape.width]

    def derivative(self, kind: type[Derivative], order: Any) -> Derivative:
        with MAKING:
            if (kind, order) not in self._derivatives:
                self._derivatives[kind, order] = kind(self.tape, *order)
            return self._derivatives[kind, order]

    def order(self, rows: np.ndarray, shared: np.ndarray, another: bool = False) -> Any:
        """Orders of pivots for the steps of a tape (N, W): those used last, or others that are good there."""
        with MAKING:
            if not self._orders or another:
                some = np.unique(np.linspace(0, len(rows) - 1, tapes.SAMPLES).astype(int))
                self._orders.append(tapes.orders(self.tape, rows[some], shared))
            return self._orders[-1]

    def _through(
        self,
        kind: type[Derivative],
        rows: np.ndarray,
        more: np.ndarray,
        shared: np.ndarray,
        state: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Go through rows (N, W), which ``more`` numbers follow; other pivots where they have become bad."""
        results: list[np.ndarray] = []
        done, own = 0, len(self.tape.scale) + len(self.tape.doubles)
        table = np.concatenate([rows, more], axis=1)
        for _ in range(MOST_ORDERS):
            code = self.derivative(kind, self.order(rows[done:], shared[:own], another=bool(results)))
            found, after = code.run(table[done:, :, None], shared[:, None], state[:, None])
            bad = np.flatnonzero(found[:, -1, 0] == 0)
            good = bad[0] if len(bad) else len(found)
            if good < len(found):  # again, up to there
                found, after = code.run(table[done : done + good, :, None], shared[:, None], state[:, None])
            results.append(found[:, :-1, 0])
            state, done = after[:, 0], done + good
            if done == len(rows):
                return np.concatenate(results), state
        return np.full((len(rows), results[0].shape[1]), np.nan), np.full_like(state, np.nan)

    def changed(self, taken: Taken, start: np.ndarray, of_steps: np.ndarray) -> np.ndarray:
        """Changes of all records (N+1, width), from those of the start and of the steps (N, 2)."""
        count = sum(np.size(x) for x in taken.doubles)
        change = np.concatenate([start, np.zeros(len(taken.guess))])
        begun = self.start_change(taken, reverse=False)(taken.start[None], change[None])[0]
        of_carry, of_row = self.start_columns(self.start_rows(taken))
        table, state = [begun[of_row][None]], begun[of_carry]
        shared = np.concatenate([taken.scale, flat(taken.doubles), start[len(start) - count :]])
        for block in taken.blocks(False):
            here, rows = taken.steps(block, self.tape)
            found, state = self._through(Tangent, rows, of_steps[here], shared, state)
            table.append(found)
        return np.concatenate(table)

    def pulled(self, taken: Taken, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives with respect to the start and the steps (N, 2), from those to records (N+1, width)."""
        count = len(self.tape.carry)
        state, of_steps = np.zeros(count + len(self.tape.doubles)), np.zeros((len(taken.sizes), 2))
        shared, later = np.concatenate([taken.scale, flat(taken.doubles)]), weights[1:]
        for block in taken.blocks(True):
            here, rows = taken.steps(block, self.tape)
            found, state = self._through(Adjoint, rows[::-1], later[here][::-1], shared, state)
            of_steps[here] = found[::-1]
        rows_of_start = self.start_rows(taken)
        of_carry, of_row = self.start_columns(rows_of_start)
        weight = np.zeros(rows_of_start.width - 1)
        weight[of_carry] += state[:count]
        weight[of_row] += weights[0]
        start = self.start_change(taken, reverse=True)(taken.start[None], weight[None])[0]
        start = start[: len(start) - len(taken.guess)]
        start[len(start) - (len(state) - count) :] += state[count:]
        return start, of_steps

    def apart(self, start: np.ndarray, doubles: list[np.ndarray]) -> list[np.ndarray]:
        """The parts of a row of inputs of the start: t0, q, v, the first step, and the arguments."""
        dims = self.setup.dims
        sizes = [1, dims.size, dims.n, 1, *(np.size(x) for x in doubles)]
        return np.split(start, np.cumsum(sizes)[:-1])
