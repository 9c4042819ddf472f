"""Runs under JAX transforms with dense matrices: their start, and derivatives along a tape."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from genalpha.backends.native import iterated
from genalpha.backends.native import kernels as native
from genalpha.backends.native import tape as tapes
from genalpha.backends.native.code import MAKING, RowCode
from genalpha.backends.native.kernels import AtFirst, Kernels, NativeRun, StartValues
from genalpha.backends.native.step import LIMIT, StepKernels, Values
from genalpha.backends.native.tape import Adjoint, Derivative, Tangent, Tape, TapeSteps, flat
from genalpha.backends.rowwise import Rowwise
from genalpha.backends.transforms.base_run import RunOperation
from genalpha.backends.transforms.records import RunOf, Taken
from genalpha.backends.transforms.rows import RowDerivative
from genalpha.compiler import machine
from genalpha.compiler.graph import Unsupported
from genalpha.compiler.rows import RowFunction, SingularExample
from genalpha.engine.start import RunStart, from_consistent, start_run
from genalpha.engine.start import shapes as start_shapes
from genalpha.engine.steps import Steps
from genalpha.numerics import codes

# The most orders of pivots that are made for the derivatives of one run, and the most rows that are tried
# together with one of them.
MOST_ORDERS, TOGETHER = 8, 512


class DenseRun(RunOperation):
    """A run with dense matrices. ``kind`` makes its kernels, ``runner`` takes its steps."""

    kind: type[StepKernels]
    runner: type

    def _prepare(self, doubles: list[Any], first: Any) -> None:
        setup, rebuild, dims = self.setup, self.rebuild, self.setup.dims
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
        self._kernels: Kernels | None = None
        self._derivatives: dict[Any, Any] = {}
        self._orders: list[Any] = []
        self._starts: list[RowFunction] = []
        self._other_starts: deque[Rowwise] = deque(maxlen=MOST_ORDERS)

    @property
    def widths(self) -> tuple[int, int]:
        return len(self.step.row), self.tape.width

    # --- the start --------------------------------------------------------------------------------

    def starting(self, at: StartValues, steps: Steps, doubles: list[np.ndarray]) -> tuple[Any, Any, int]:
        run, status = self.begun(at, doubles)
        if run is None or status != codes.SUCCESS:
            return run, None, status
        return run, self.runner(self.setup, run, steps, self.rebuild(doubles)), status

    def begun(self, at: StartValues, doubles: list[np.ndarray]) -> tuple[NativeRun | None, int]:
        """The start, or None if there is none, and its status."""
        made = self.made(at, doubles)
        numbers = None if made is None else self._numbers(made, at, doubles)
        if made is None or numbers is None:
            finite = all(np.isfinite(x).all() for x in jax.tree.leaves((at.t, at.q, at.v, doubles)))
            return None, codes.SINGULAR if finite else codes.NOT_FINITE
        run = NativeRun(made, numbers, doubles)
        status = int(codes.not_a_rotation(self.defect(at.q))) or int(run.start.status)
        if status == codes.SUCCESS and self.strict and not run.start.consistent:
            status = codes.INCONSISTENT
        return run, status

    def defect(self, q: np.ndarray) -> np.ndarray:
        """By how much the lengths of quaternions differ from one."""
        return np.asarray(self._defect.interpret(np.asarray(q))[0])

    def defects(self, rows: np.ndarray, lanes: int) -> np.ndarray:
        """The same for rows (B, size)."""
        with MAKING:
            if "defect" not in self._derivatives:
                self._derivatives["defect"] = RowCode(self._defect, lanes)
        return np.asarray(self._derivatives["defect"]((rows,))[0])

    def _begin(self, t: Any, q: Any, v: Any, h: Any, x: list[Any]) -> RunStart:
        return start_run(self.setup, t, self.setup.system.space.normalize(q), v, h, self.rebuild(x))

    def _start(self, at: StartValues, doubles: list[np.ndarray]) -> Rowwise | None:
        """The start as a function of rows, with pivots that suit these values; None if they are singular.

        With a reaction of the user's own it is one turn of an iteration.
        """
        if self.iterates:
            found = iterated.one_turn(self.setup, at, doubles, self.rebuild, normalize=True)
        else:
            found = Rowwise("start", self._begin, at.columns(doubles), LIMIT)
        if found.reason is not None and not isinstance(found.reason, SingularExample):
            raise found.reason
        return None if found.rows is None else found

    def made(self, at: StartValues, doubles: list[np.ndarray]) -> Kernels | None:
        """The kernels, which the first start that is not singular makes."""
        with MAKING:
            start = self._start(at, doubles) if self._kernels is None else None
            if start is not None and start.rows is not None:
                found = self._first(start, at, doubles)
                if found is None:
                    return None
                begin = None if self.iterates else start
                made = native.built(self.step, found, begin, at, self.rebuild, doubles)
                made.iteration = start if self.iterates else None
                try:
                    made.program(made.order)
                except AtFirst:
                    return None
                self._kernels = made
                if not getattr(at.first, "controlled", False):  # the start with a given first step
                    self._starts.append(start.rows)
            return self._kernels

    def _first(self, start: Rowwise, at: StartValues, doubles: list[np.ndarray]) -> RunStart | None:
        if self.iterates:
            return iterated.iterated(self.setup, start, at, doubles)
        assert start.rows is not None
        found, good = start.rows.interpret(start.rows.example)
        return found if good else None

    def _numbers(
        self, made: Kernels, at: StartValues, doubles: list[np.ndarray]
    ) -> RunStart | np.ndarray | None:
        """The numbers of the start, with other pivots if its own are bad; None if there are none."""
        if made.iteration is not None:
            return iterated.iterated(self.setup, made.iteration, at, doubles)
        assert made.start is not None
        values = at.columns(doubles)
        for start in (made.start, *self._other_starts):
            numbers = start.code().numbers(values)
            if numbers[-1]:
                return numbers
        with MAKING:
            other = self._start(at, doubles)
        if other is None:
            return None
        self._other_starts.append(other)
        numbers = other.code().numbers(values)
        return numbers if numbers[-1] else None

    def guess_of(self, run: NativeRun | None) -> np.ndarray:
        if run is None or not self.iterates:
            return np.zeros(0)
        return np.concatenate([run.start.begin.state.lam, run.start.begin.state.psi])

    def first_rows(self, run: NativeRun | None) -> tuple[np.ndarray, np.ndarray]:
        if run is None:
            return np.full(len(self.step.row), np.nan), np.full(1, np.nan)
        slots, columns = np.zeros(self.step.builder.slots), self.step.row
        run.fill(slots)
        return slots[columns.start : columns.stop], run.row

    def scale_of(self, run: NativeRun | None) -> np.ndarray:
        if run is None:
            return np.full(sum(self.setup.dims[1:]), np.nan)
        return flat(jax.tree.map(np.asarray, run.start.begin.scale))

    # --- derivatives ------------------------------------------------------------------------------

    def _start_rows(self, taken: Taken, form: int = 0) -> RowFunction:
        """The start with a given first step, as a function of rows, in one of several forms.

        Each form has pivots that suit the run for which it was made.
        """
        with MAKING:
            if form == len(self._starts):
                guess = np.split(taken.guess, [self.setup.dims.m]) if self.iterates else None
                at = StartValues(taken.t0, taken.q, taken.v, np.float64(taken.sizes[0]), guess)
                made = self._start(at, taken.doubles)
                if made is None or made.rows is None:
                    raise SingularExample("a start is singular")
                self._starts.append(made.rows)
            return self._starts[form]

    def start_change(
        self, taken: RunOf, table: np.ndarray, more: np.ndarray, reverse: bool, by: Any = None
    ) -> np.ndarray:
        """Changes of the results of starts (B, ...), or in ``reverse`` the derivatives to their inputs.

        They are NaN where no order of pivots is good. ``by`` does what a derivative does with inputs and more
        numbers, on another device than the CPU.
        """
        by = by or (lambda code, table, more: code.run(table, more, np.zeros(0))[:2])
        lanes = machine.lanes() if len(table) > 1 else 1
        width = table.shape[1] if reverse else self.start_columns(taken(0))[0]
        found, left = np.full((len(table), width), np.nan), np.arange(len(table))
        for form in range(MOST_ORDERS):
            with MAKING:
                try:
                    rows, key = self._start_rows(taken(int(left[0])), form), ("start", form, reverse, lanes)
                except SingularExample:
                    break
                if key not in self._derivatives:
                    self._derivatives[key] = RowDerivative(rows, reverse, lanes=lanes)
            values, good = by(self._derivatives[key], table[left], more[left])
            found[left[good]] = values[good]
            left = left[~good]
            if not len(left):
                break
        return found

    def start_columns(self, taken: Taken) -> tuple[int, np.ndarray, np.ndarray]:
        """The number of results of the start, and the columns of the carry and of the first record in them.

        They are the same in all forms.
        """
        with MAKING:
            if "columns" not in self._derivatives:
                rows = self._start_rows(taken)
                at: RunStart = rows.unpack(np.arange(rows.width))[0]
                record = np.ravel(at.row).astype(int)[: self.tape.width]
                self._derivatives["columns"] = rows.width - 1, flat(at.carry).astype(int), record
            return self._derivatives["columns"]

    def derivative(
        self, kind: type[Derivative], order: Any, columns: tuple[int, ...] | None = None, timed: bool = True
    ) -> Derivative:
        key = (kind, order, columns, timed)
        with MAKING:
            if key not in self._derivatives:
                self._derivatives[key] = kind(self.tape, order, columns, timed)
            return self._derivatives[key]

    def suggested(self, steps: TapeSteps, shared: np.ndarray, most: int) -> Iterator[Any]:
        """The orders of pivots that are known, the last one first, and then one that suits these steps.

        ``shared`` (...,) are numbers of the first lane.
        """
        yield from self._orders[::-1]
        if len(self._orders) < most:
            some = np.unique(np.linspace(0, len(steps) - 1, tapes.SAMPLES).astype(int))
            own = len(self.tape.scale) + len(self.tape.doubles)
            try:
                with MAKING:
                    found = tapes.orders(self.tape, self.tape.inputs(steps, some), shared[:own])
            except Unsupported:  # the matrix is singular
                return
            self._orders.append(found)
            yield found

    def order(self, steps: TapeSteps, shared: np.ndarray) -> Any:
        """An order of pivots for the steps of a tape: the one used last, or a new one; or None."""
        return next(self.suggested(steps, shared, MOST_ORDERS), None)

    def _through(
        self,
        kind: type[Derivative],
        steps: TapeSteps,
        more: np.ndarray,
        shared: np.ndarray,
        state: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Go through steps with more numbers (N, ...); other pivots where they have become bad.

        All results are NaN if no order of pivots is good for some step.
        """
        results: list[np.ndarray] = []
        done, made, more = 0, len(self._orders), np.ascontiguousarray(more)[:, :, None]
        while done < len(steps):
            good, here = 0, slice(done, done + TOGETHER)
            for order in self.suggested(steps[done:], shared, made + MOST_ORDERS):
                code = self.derivative(kind, order)
                found, after = code.run(steps[here], more[here], shared[:, None], state[:, None])
                bad = np.flatnonzero(found[:, -1, 0] == 0)
                good = int(bad[0]) if len(bad) else len(found)
                if good:
                    break
            if not good:
                results, state = [np.full((len(steps), kind.width(self.tape)), np.nan)], state * np.nan
                break
            if good < len(found):  # again, up to there
                here = slice(done, done + good)
                found, after = code.run(steps[here], more[here], shared[:, None], state[:, None])
            results.append(found[:, :-1, 0])
            state, done = after[:, 0], done + good
        return np.concatenate(results), state

    def changed(self, taken: Taken, start: np.ndarray, of_steps: np.ndarray) -> np.ndarray:
        try:
            _, of_carry, of_row = self.start_columns(taken)
        except SingularExample:
            return np.full((len(taken.sizes) + 1, self.tape.width), np.nan)
        count = sum(np.size(x) for x in taken.doubles)
        change = np.concatenate([start, np.zeros(len(taken.guess))])
        begun = self.start_change(lambda i: taken, taken.start[None], change[None], reverse=False)[0]
        table, state = [begun[of_row][None]], begun[of_carry]
        shared = np.concatenate([taken.scale, flat(taken.doubles), start[len(start) - count :]])
        for block in taken.blocks(False):
            here, steps = taken.steps(block)
            found, state = self._through(Tangent, steps, of_steps[here], shared, state)
            table.append(found)
        changes = np.concatenate(table)
        self._examine(taken, np.isnan(changes).any() and np.isfinite(start).all())
        return changes

    def pulled(self, taken: Taken, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        length = len(taken.start) - len(taken.guess)
        try:
            width, of_carry, of_row = self.start_columns(taken)
        except SingularExample:
            return np.full(length, np.nan), np.full((len(taken.sizes), 2), np.nan)
        count = len(self.tape.carry)
        state, of_steps = np.zeros(count + len(self.tape.doubles)), np.zeros((len(taken.sizes), 2))
        shared, later = np.concatenate([taken.scale, flat(taken.doubles)]), weights[1:]
        for block in taken.blocks(True):
            here, steps = taken.steps(block)
            found, state = self._through(Adjoint, steps[::-1], later[here][::-1], shared, state)
            of_steps[here] = found[::-1]
        weight = np.zeros(width)
        weight[of_carry] += state[:count]
        weight[of_row] += weights[0]
        start = self.start_change(lambda i: taken, taken.start[None], weight[None], reverse=True)[0, :length]
        start[length - (len(state) - count) :] += state[count:]
        self._examine(taken, np.isnan(start).any() and np.isfinite(weights).all())
        return start, of_steps
