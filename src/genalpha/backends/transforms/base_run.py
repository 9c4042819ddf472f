"""What runs under JAX transforms have in common: the start, and derivatives along a tape."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.native import kernels as native
from genalpha.backends.native import tape as tapes
from genalpha.backends.native.code import MAKING
from genalpha.backends.native.kernels import AtFirst, Kernels, NativeRun, StartValues
from genalpha.backends.native.step import LIMIT, StepKernels, Values
from genalpha.backends.native.tape import Adjoint, Derivative, Tangent, Tape, flat
from genalpha.backends.rowwise import Rowwise
from genalpha.backends.transforms.operation import Operation
from genalpha.backends.transforms.rows import RowDerivative
from genalpha.compiler.graph import Unsupported
from genalpha.compiler.rows import RowFunction, SingularExample
from genalpha.engine import row
from genalpha.engine import start as starts
from genalpha.engine.setup import Setup
from genalpha.engine.start import RunStart, start_run
from genalpha.mechanics import start_errors
from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED

# The numbers that follow the parts of the records: status, steps taken and rejected, the time reached, that
# of a_α at the start, and Newton's totals.
NUMBERS = ("status", "taken", "rejected", "t_end", "t_alpha", *COUNTED)
# The most orders of pivots that are made for the derivatives of one run, and the most rows that are tried
# together with one of them.
MOST_ORDERS, TOGETHER = 8, 512

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


class Taken(NamedTuple):
    """A run that was computed: its start, the starts and sizes (N,) of its steps, and its tape (N+1, W)."""

    t0: float
    q: np.ndarray
    v: np.ndarray
    doubles: list[np.ndarray]
    times: np.ndarray
    sizes: np.ndarray
    table: np.ndarray
    scale: np.ndarray

    @property
    def start(self) -> np.ndarray:
        """The inputs of the start: t0, q, v, the size of the first step, and the arguments."""
        first = self.sizes[0] if len(self.sizes) else 1.0
        return np.concatenate([np.ravel(x) for x in (self.t0, self.q, self.v, first, *self.doubles)])


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
        begin = lambda t, q, v, h, x: start_run(setup, t, q, v, h, rebuild(x))
        like = jax.tree.map(lambda x: number(*np.shape(x)), first)
        shapes = jax.eval_shape(begin, number(), number(dims.size), number(dims.n), like, args)
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

    def run(self, *inputs: Any) -> Found:
        """The run, with inputs that JAX may trace."""
        parts = iter(self(*inputs))
        q, v, a_alpha, lam, psi = (next(parts) for _ in range(5))
        extra = {name: next(parts) for name in self.layout.extra}
        report, timing = next(parts), tuple(next(parts) for _ in range(self.timed))
        numbers = {name: next(parts) for name in NUMBERS}
        return Found(q, v, a_alpha, lam, psi, extra, report, timing, numbers, next(parts))

    # --- the start --------------------------------------------------------------------------------

    def begun(self, at: StartValues, doubles: list[np.ndarray]) -> tuple[NativeRun | None, int]:
        """The start, or None if there is none, and its status."""
        made = self._made(at, doubles)
        numbers = None if made is None else self._numbers(made, at, doubles)
        if made is None or numbers is None:
            finite = all(np.isfinite(x).all() for x in jax.tree.leaves((at.t, at.q, at.v, doubles)))
            return None, codes.SINGULAR if finite else codes.NOT_FINITE
        run = NativeRun(made, numbers, doubles)
        defects = self._defect.interpret(np.asarray(at.q))[0]
        status = codes.not_a_rotation(np.asarray(defects)) or int(run.start.status)
        if status == codes.SUCCESS and self.strict and not run.start.consistent:
            status = codes.INCONSISTENT
        return run, status

    def _begin(self, t: Any, q: Any, v: Any, h: Any, x: list[Any]) -> RunStart:
        return start_run(self.setup, t, self.setup.system.space.normalize(q), v, h, self.rebuild(x))

    def _start(self, at: StartValues, doubles: list[np.ndarray]) -> Rowwise | None:
        """The start as a function of rows, with pivots that suit these values; None if they are singular."""
        found = Rowwise("start", self._begin, at.columns(doubles), LIMIT)
        if found.reason is not None and not isinstance(found.reason, SingularExample):
            raise found.reason
        return None if found.rows is None else found

    def _made(self, at: StartValues, doubles: list[np.ndarray]) -> Kernels | None:
        """The kernels, which the first start that is not singular makes."""
        with MAKING:
            start = self._start(at, doubles) if self._kernels is None else None
            if start is not None and start.rows is not None:
                found, good = start.rows.interpret(start.rows.example)
                if not good:
                    return None
                made = native.built(self.step, found, start, at, self.rebuild, doubles)
                try:
                    made.program(made.order)
                except AtFirst:
                    return None
                self._kernels = made
                if isinstance(at.first, float):  # the start with a given first step
                    self._starts.append(start.rows)
            return self._kernels

    def _numbers(self, made: Kernels, at: StartValues, doubles: list[np.ndarray]) -> np.ndarray | None:
        """The numbers of the start, with other pivots if its own are bad; None if there are none."""
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

    def first_rows(self, run: NativeRun | None) -> tuple[np.ndarray, np.ndarray]:
        """The first row of the tape, and the first record; NaN if there is no start."""
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

    def begun_by_xla(self, t: Any, q: Any, v: Any, args: Args, status: Any = codes.SUCCESS) -> Beginning:
        """The start as a traced computation. Its status says whether it is valid."""
        space = self.setup.system.space
        begin = starts.begin(self.setup, t, space.normalize(q), v, args)
        status = codes.first(
            jnp.asarray(status), codes.not_rotations(jnp.array(codes.SUCCESS), space.defect(q))
        )
        if self.strict:
            fitting = start_errors.consistent(begin)
            status = codes.first(status, jnp.where(fitting, codes.SUCCESS, codes.INCONSISTENT))
        status = codes.first(status, begin.report.status)
        return begin._replace(report=begin.report._replace(status=status))

    @staticmethod
    def unless_failed(parts: list[Any], status: Any) -> list[Any]:
        """Parts that have NaN, also in all their derivatives, if a run has failed."""
        return [x * jnp.where(status == codes.SUCCESS, 1.0, jnp.nan) for x in parts]

    def start_rows(self, taken: Taken, form: int = 0) -> RowFunction:
        """The start with a given first step, as a function of rows, in one of several forms.

        Each form has pivots that suit the run for which it was made.
        """
        with MAKING:
            if form == len(self._starts):
                example = (np.float64(taken.t0), taken.q, taken.v, np.float64(taken.sizes[0]), taken.doubles)
                self._starts.append(RowFunction("start", self._begin, example, LIMIT, often=False))
            return self._starts[form]

    def _start_change(self, taken: Taken, more: np.ndarray, reverse: bool) -> np.ndarray:
        """Changes of the results of the start, or in ``reverse`` the derivatives to its inputs."""
        for form in range(MOST_ORDERS):
            with MAKING:
                rows, key = self.start_rows(taken, form), ("start", form, reverse)
                if key not in self._derivatives:
                    self._derivatives[key] = RowDerivative(rows, reverse)
            found, good = self._derivatives[key](taken.start[None], more[None])
            if good[0]:
                return found[0]
        raise SingularExample("no order of pivots is good for the start")

    def _start_columns(self, taken: Taken) -> tuple[int, np.ndarray, np.ndarray]:
        """The number of results of the start, and the columns of the carry and of the first record in them.

        They are the same in all forms.
        """
        with MAKING:
            if "columns" not in self._derivatives:
                rows = self.start_rows(taken)
                at: RunStart = rows.unpack(np.arange(rows.width))[0]
                record = np.ravel(at.row).astype(int)[: self.tape.width]
                self._derivatives["columns"] = rows.width - 1, flat(at.carry).astype(int), record
            return self._derivatives["columns"]

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
        """Go through rows (N, W), which ``more`` numbers follow; other pivots where they have become bad.

        All results are NaN if no order of pivots is good for some row.
        """
        results: list[np.ndarray] = []
        done, made, own = 0, len(self._orders), len(self.tape.scale) + len(self.tape.doubles)
        table = np.concatenate([rows, more], axis=1)
        while done < len(rows):
            good, part = 0, table[done : done + TOGETHER, :, None]
            for order in self._suggested(rows[done:], shared[:own], made + MOST_ORDERS):
                code = self._derivative(kind, order)
                found, after = code.run(part, shared[:, None], state[:, None])
                bad = np.flatnonzero(found[:, -1, 0] == 0)
                good = int(bad[0]) if len(bad) else len(found)
                if good:
                    break
            if not good:
                results, state = [np.full((len(rows), kind.width(self.tape)), np.nan)], state * np.nan
                break
            if good < len(found):  # again, up to there
                found, after = code.run(part[:good], shared[:, None], state[:, None])
            results.append(found[:, :-1, 0])
            state, done = after[:, 0], done + good
        return np.concatenate(results), state

    def _suggested(self, rows: np.ndarray, shared: np.ndarray, most: int) -> Iterator[Any]:
        """The orders of pivots that are known, the last one first, and then one that suits these rows."""
        yield from self._orders[::-1]
        if len(self._orders) < most:
            some = np.unique(np.linspace(0, len(rows) - 1, tapes.SAMPLES).astype(int))
            try:
                with MAKING:
                    found = tapes.orders(self.tape, rows[some], shared)
            except Unsupported:  # the matrix is singular
                return
            self._orders.append(found)
            yield found

    def changed(self, taken: Taken, start: np.ndarray, of_steps: np.ndarray) -> np.ndarray:
        """Changes of all records (N+1, width), from those of the start and of the steps (N, 2).

        NaN if a matrix is singular. JAX asks for such numbers too: those of the branch of a ``lax.cond`` that
        a member of a batch does not take. All inputs are zero there.
        """
        try:
            return self._changed(taken, start, of_steps)
        except SingularExample:
            return np.full((len(taken.table), self.tape.width), np.nan)

    def pulled(self, taken: Taken, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives with respect to the start and the steps (N, 2), from those to records (N+1, width)."""
        try:
            return self._pulled(taken, weights)
        except SingularExample:
            return np.full(len(taken.start), np.nan), np.full((len(taken.sizes), 2), np.nan)

    def _changed(self, taken: Taken, start: np.ndarray, of_steps: np.ndarray) -> np.ndarray:
        count = sum(np.size(x) for x in taken.doubles)
        begun = self._start_change(taken, start, reverse=False)
        _, of_carry, of_row = self._start_columns(taken)
        first = begun[of_row][None]
        if not len(taken.sizes):
            return first
        rows = self.tape.inputs(taken.table, taken.times, taken.sizes)
        shared = np.concatenate([taken.scale, flat(taken.doubles), start[len(start) - count :]])
        found, _ = self._through(Tangent, rows, of_steps, shared, begun[of_carry])
        return np.concatenate([first, found])

    def _pulled(self, taken: Taken, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        count = len(self.tape.carry)
        state, found = np.zeros(count + len(self.tape.doubles)), np.zeros((0, 2))
        if len(taken.sizes):
            rows = self.tape.inputs(taken.table, taken.times, taken.sizes)
            shared = np.concatenate([taken.scale, flat(taken.doubles)])
            found, state = self._through(Adjoint, rows[::-1], weights[:0:-1], shared, state)
        width, of_carry, of_row = self._start_columns(taken)
        weight = np.zeros(width)
        np.add.at(weight, of_carry, state[:count])
        np.add.at(weight, of_row, weights[0])
        start = self._start_change(taken, weight, reverse=True)
        start[len(start) - (len(state) - count) :] += state[count:]
        return start, found[::-1]

    def apart(self, start: np.ndarray, doubles: list[np.ndarray]) -> list[np.ndarray]:
        """The parts of a row of inputs of the start: t0, q, v, the first step, and the arguments."""
        dims = self.setup.dims
        sizes = [1, dims.size, dims.n, 1, *(np.size(x) for x in doubles)]
        return np.split(start, np.cumsum(sizes)[:-1])
