"""Whole runs with given steps as operations of JAX: values, changes and derivatives by machine code."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.native import kernels as native
from genalpha.backends.native import tape as tapes
from genalpha.backends.native.code import MAKING
from genalpha.backends.native.kernels import Kernels, NativeRun, StartValues
from genalpha.backends.native.runners import NativeGiven
from genalpha.backends.native.step import StepKernels, Values
from genalpha.backends.native.tape import Adjoint, Derivative, Tangent, Tape, TapedKernels, flat
from genalpha.backends.transforms.operation import Arrays, Operation, Shape
from genalpha.backends.transforms.rows import RowDerivative
from genalpha.backends.xla import whole
from genalpha.compiler.graph import Unsupported
from genalpha.compiler.rows import RowFunction
from genalpha.engine import row, step_choice
from genalpha.engine import start as starts
from genalpha.engine.setup import Setup
from genalpha.engine.start import RunStart, start_run
from genalpha.engine.steps import Given
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED, Times

# The numbers that follow the parts of the records: status, steps taken, the time reached, that of a_α at the
# start, and Newton's totals.
NUMBERS = ("status", "taken", "t_end", "t_alpha", *COUNTED)
# How often the derivatives of one run may change their order of pivots.
MOST_ORDERS = 8

Rebuild = Callable[[list[Any]], Args]


class _Strict(NativeGiven):
    """A run that fails where no order of pivots is good: XLA must not be called from inside XLA."""

    def _leave(self) -> None:
        self.status = codes.NOT_CONVERGED


class Found(NamedTuple):
    """The outputs of a run: records in parts, each (N+1, ...), numbers by name, and the scale."""

    q: Any
    v: Any
    a_alpha: Any
    lam: Any
    psi: Any
    extra: dict[str, Any]
    report: Any
    numbers: dict[str, Any]
    scale: Any


class GivenRun(Operation):
    """A run with given steps.

    Inputs are t0, t1, q, v, the starts (N,) and the sizes (N,) of the steps, and the arguments. The records
    are NaN after a failure.
    """

    def __init__(self, setup: Setup, strict: bool, doubles: list[Any], rebuild: Rebuild) -> None:
        self.setup, self.strict, self.rebuild = setup, strict, rebuild
        self.layout, dims = row.layout(setup), setup.dims
        *parts, report = self.layout.parts.values()
        self.parts = [*parts, *self.layout.extra.values(), report]
        self.smooth = (*[True] * (len(self.parts) - 1), False, *[False] * len(NUMBERS), False)
        number = lambda *shape: jax.ShapeDtypeStruct(shape, float)
        args = [number(*np.shape(x)) for x in doubles]
        begin = lambda t, q, v, h, x: start_run(setup, t, q, v, h, rebuild(x))
        shapes = jax.eval_shape(begin, number(), number(dims.size), number(dims.n), number(), args)
        zeros = lambda tree: jax.tree.map(lambda s: np.zeros(s.shape), tree)
        example = Values(
            zeros(shapes.carry), zeros(shapes.begin.scale), rebuild(zeros(args)), zeros(shapes.x)
        )
        with MAKING:
            self.step: StepKernels = TapedKernels(setup, example)
            self._defect = RowFunction("defect", setup.system.space.defect, (np.zeros(dims.size),))
        self.tape = Tape(self.step)
        self._kernels: Kernels | None = None
        self._derivatives: dict[Any, Any] = {}
        self._orders: list[Any] = []

    def run(self, *inputs: Any) -> Found:
        """The run, with inputs that JAX may trace."""
        parts = iter(self(*inputs))
        q, v, a_alpha, lam, psi = (next(parts) for _ in range(5))
        extra = {name: next(parts) for name in self.layout.extra}
        report, numbers = next(parts), {name: next(parts) for name in NUMBERS}
        return Found(q, v, a_alpha, lam, psi, extra, report, numbers, next(parts))

    # --- the value --------------------------------------------------------------------------------

    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        rows, dims = inputs[4][0] + 1, self.setup.dims
        of_parts = [(rows, at.stop - at.start) for at in self.parts]
        return [*of_parts, *[()] * len(NUMBERS), (dims.n + dims.m + dims.p,)]

    def tape_shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        return [(inputs[4][0] + 1, len(self.step.row))]

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        return self.taped(inputs)[:-1]

    def taped(self, inputs: Arrays) -> list[np.ndarray]:
        t0, t1, q, v, times, sizes, *doubles = inputs
        numbers = dict.fromkeys(NUMBERS, 0.0)
        table = np.full((len(sizes) + 1, len(self.step.row)), np.nan)
        run, status = self._begun(StartValues(float(t0), q, v, sizes[0]), doubles)
        status = codes.BAD_STEPS if not self._fitting(t0, t1, times, sizes) else status
        slots, columns = np.zeros(self.step.builder.slots), self.step.row
        run.fill(slots)
        table[0] = slots[columns.start : columns.stop]
        taken = 0
        if status == codes.SUCCESS:
            steps = Given(np.append(times, t1), Times(times, sizes))
            runner = _Strict(self.setup, run, steps, self.rebuild(doubles))
            taken = runner.take(table[1:])
            status = runner.status
            table[taken + 1 :] = np.nan
        shown = table[:, : self.layout.plain].copy()
        shown[0] = run.row
        totals = self.layout.report(shown[1 : taken + 1]).sum(axis=0)
        end = times[taken - 1] + sizes[taken - 1] if taken else t0
        numbers |= dict(zip(NUMBERS, (status, taken, end, run.t_alpha, *totals), strict=True))
        scale = flat(jax.tree.map(np.asarray, run.start.begin.scale))
        return [*(shown[:, at] for at in self.parts), *map(np.asarray, numbers.values()), scale, table]

    @staticmethod
    def _fitting(t0: Any, t1: Any, times: np.ndarray, sizes: np.ndarray) -> bool:
        """Whether all steps are positive, and end at t1."""
        off = abs(times[-1] + sizes[-1] - t1)
        return bool((sizes > 0).all() and off <= step_choice.SPAN_TOLERANCE * (t1 - t0))

    def _begun(self, at: StartValues, doubles: list[np.ndarray]) -> tuple[NativeRun, int]:
        """The start, and its status."""
        made = self._made(at, doubles)
        assert made.start is not None
        numbers = made.start.code().numbers(at.columns(doubles))
        if not numbers[-1]:  # its pivots are bad
            numbers = self._other_start(at, doubles)
        run = NativeRun(made, numbers, doubles)
        defects = self._defect.interpret(at.q)[0]
        status = codes.not_a_rotation(np.asarray(defects)) or int(run.start.status)
        if status == codes.SUCCESS and self.strict and not run.start.consistent:
            status = codes.INCONSISTENT
        return run, status

    def _made(self, at: StartValues, doubles: list[np.ndarray]) -> Kernels:
        with MAKING:
            if self._kernels is None:
                start, found = native.started(self.setup, at, doubles, self.rebuild, normalize=True)
                if start is None or found is None:
                    raise Unsupported("the start of the run has no scalar form, or is singular")
                made = native.built(self.step, found, start, at, self.rebuild, doubles)
                made.program(made.order)
                self._kernels = made
            return self._kernels

    def _other_start(self, at: StartValues, doubles: list[np.ndarray]) -> np.ndarray:
        """The numbers of a start with pivots of its own."""
        start, _ = native.started(self.setup, at, doubles, self.rebuild, normalize=True)
        assert start is not None
        assert start.rows is not None
        return start.code().numbers(at.columns(doubles))

    # --- derivatives ------------------------------------------------------------------------------

    def _rows(self, inputs: Arrays, tape: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of all steps (N, W), and those that they share."""
        t0, _, q, v, times, sizes, *doubles = inputs
        (table,) = tape
        at = StartValues(float(t0), q, v, sizes[0])
        scale = flat(jax.tree.map(np.asarray, self._begun(at, doubles)[0].start.begin.scale))
        return self.tape.inputs(table, times, sizes), np.concatenate([scale, flat(doubles)])

    def _derivative(self, kind: type[Derivative], order: Any) -> Derivative:
        with MAKING:
            if (kind, order) not in self._derivatives:
                self._derivatives[kind, order] = kind(self.tape, *order)
            return self._derivatives[kind, order]

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
        done = 0
        own = len(self.tape.scale) + len(self.tape.doubles)
        table = np.concatenate([rows, more], axis=1)
        for _ in range(MOST_ORDERS):
            if not self._orders or results:
                some = np.unique(np.linspace(done, len(rows) - 1, tapes.SAMPLES).astype(int))
                self._orders.append(tapes.orders(self.tape, rows[some], shared[:own]))
            code = self._derivative(kind, self._orders[-1])
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

    @functools.cached_property
    def _start_columns(self) -> tuple[np.ndarray, np.ndarray]:
        """The columns of the carry, and of the first record, in the results of the start."""
        made = self._kernels
        assert made is not None
        at: RunStart = made.columns.rows.unpack(np.arange(made.columns.rows.width))[0]
        return flat(at.carry).astype(int), np.ravel(at.row).astype(int)

    def _start_change(self, reverse: bool) -> RowDerivative:
        made, key = self._kernels, ("start", reverse)
        assert made is not None
        with MAKING:
            if key not in self._derivatives:
                self._derivatives[key] = RowDerivative(made.columns.rows, reverse)
            return self._derivatives[key]

    @staticmethod
    def _start_row(inputs: Arrays) -> np.ndarray:
        t0, _, q, v, _, sizes, *doubles = inputs
        return np.concatenate([np.ravel(x) for x in (t0, q, v, sizes[0], *doubles)])

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        rows, shared = self._rows(inputs, tape)
        begun = self._start_change(reverse=False)
        start = begun(self._start_row(inputs)[None], self._start_row(changes)[None])[0]
        of_carry, of_row = self._start_columns
        more = np.stack([changes[4], changes[5]], axis=1)
        shared = np.concatenate([shared, flat(list(changes[6:]))])
        found, _ = self._through(Tangent, rows, more, shared, start[of_carry])
        table = np.concatenate([start[of_row][None, : found.shape[1]], found])
        if not np.isfinite(tape[0]).all():  # the run has failed
            table[:] = np.nan
        return [table[:, at] for at in self.parts[:-1]]

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        if not np.isfinite(tape[0]).all():  # the run has failed
            return [np.full(np.shape(x), np.nan) for x in inputs]
        rows, shared = self._rows(inputs, tape)
        table, count = np.concatenate(weights, axis=1), len(self.tape.carry)
        state = np.zeros(count + len(self.tape.doubles))
        found, state = self._through(Adjoint, rows[::-1], table[:0:-1], shared, state)
        of_carry, of_row = self._start_columns
        assert self._kernels is not None
        weight = np.zeros(self._kernels.columns.rows.width - 1)
        np.add.at(weight, of_carry, state[:count])
        np.add.at(weight, of_row[: table.shape[1]], table[0])
        first = self._start_change(reverse=True)(self._start_row(inputs)[None], weight[None])[0]
        first[-len(self.tape.doubles) :] += state[count:] if count < len(state) else 0.0
        t0, _, q, v, _, _, *doubles = inputs
        ends = np.cumsum([np.size(x) for x in (t0, q, v, 0.0, *doubles)])[:-1]
        of_t0, of_q, of_v, of_h, *of_doubles = np.split(first, ends)
        times, sizes = found[::-1].T.copy()
        sizes[0] += of_h[0]
        parts = (of_t0, np.zeros(()), of_q, of_v, times, sizes, *of_doubles)
        return [np.reshape(x, np.shape(y)) for x, y in zip(parts, inputs, strict=True)]

    def by_xla(self, *inputs: Any) -> list[Any]:
        t0, _, q, v, times, sizes, *doubles = inputs
        args = self.rebuild(list(doubles))
        begin = starts.begin(self.setup, t0, self.setup.system.space.normalize(q), v, args)
        steps = Given(jnp.append(times, times[-1] + sizes[-1]), Times(times, sizes))
        found = whole.run(self.setup, begin, steps, args)
        numbers = [found.status, found.taken, jnp.max(steps.times), found.t_alpha, *found.totals]
        parts = [found.table[:, at] for at in self.parts]
        return [*parts, *(jnp.asarray(x, float) for x in numbers), jnp.concatenate([*begin.scale])]
