"""Runs by machine code on the CPU: given steps, or error control."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import jax
import numpy as np

from genalpha.backends import loop
from genalpha.backends.cache import program
from genalpha.backends.native.controlled_step import ControlledKernels
from genalpha.backends.native.kernels import NativeRun
from genalpha.backends.native.machine import machine_of
from genalpha.backends.native.step import StepKernels
from genalpha.backends.native.writer import PIVOT
from genalpha.backends.xla import controlled as xla_controlled
from genalpha.backends.xla import given as xla
from genalpha.engine.controller import Pace, judged
from genalpha.engine.run_data import ExactNumbers, Fields, exact_key
from genalpha.engine.setup import Setup
from genalpha.engine.step import Memory
from genalpha.engine.steps import Controlled, Given
from genalpha.errors import warn_of_fallback
from genalpha.mechanics import initial_values
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import Carry

# How often in a row a step under error control is repeated with another length if no order is good for it.
MOST_RETRIES = 12
_NO_EVENTS = np.zeros(0, dtype=bool)

Rest = TypeVar("Rest", bound=xla.XlaGiven | xla_controlled.XlaControlled)


class _Native(Generic[Rest]):
    """A run by machine code. If no order of pivots is good for long, XLA continues and ``fallback`` is set.

    ``kind`` is the name of this kind of run in states.
    """

    kind: str

    def __init__(self, setup: Setup, run: NativeRun, args: Args, known: Any) -> None:
        self.setup, self.run, self.args = setup, run, args
        self.step: Any = run.kernels.step
        self.machine = machine_of(run.kernels)
        run.fill(self.machine.slots)
        if setup.crossings:
            self.machine.slots[self.step.events] = known
        self.width = len(self.step.row)
        self.fallback: str | None = None
        self._rest: Rest | None = None

    @property
    def fired(self) -> np.ndarray:
        if not self.setup.crossings:
            return _NO_EVENTS
        return self.machine.fired if self._rest is None else self._rest.fired

    @property
    def crossed(self) -> bool:
        """Whether the last step has passed an event."""
        return bool(self.setup.crossings) and bool(self.fired.any())

    def fields(self) -> Fields:
        return self._fields() if self._rest is None else self._rest.fields()

    def _fields(self) -> Fields:
        return self.machine.fields(None)

    def exact(self) -> ExactNumbers:
        if self._rest is not None:
            return self._rest.exact()
        return self.machine.exact(exact_key(f"native{self.kind}", self.setup, self.args))

    def restore(self, fields: Fields, exact: ExactNumbers, done: int) -> None:
        """Continue after ``done`` steps, to the last bit if possible."""
        if exact.key == exact_key(f"xla{self.kind}", self.setup, self.args):  # XLA had taken over
            self._leave()
            assert self._rest is not None
            self._rest.restore(fields, exact, done)
        else:
            self.machine.restore(f"native{self.kind}", self.setup, fields, exact, self.args)

    def _leave(self) -> None:
        """Continue with XLA, which chooses pivots for every matrix."""
        taken = xla.rebuilt(self.setup, self.step.values.carry, self._fields())
        self.fallback = f"no order of pivots was good for long; XLA continued from t = {self._time:.9g}"
        warn_of_fallback(self.fallback)
        self._rest = self._by_xla(*taken)

    @property
    def _time(self) -> float:
        raise NotImplementedError

    def _by_xla(self, carry: Carry, memory: Memory, known: Any) -> Rest:
        raise NotImplementedError


class NativeGiven(_Native[xla.XlaGiven]):
    """A run with given steps."""

    kind, rejected = "", 0

    def __init__(self, setup: Setup, run: NativeRun, given: Given, args: Args, known: Any = ()) -> None:
        super().__init__(setup, run, args, known)
        self.steps = steps = given.steps
        self.times, self.sizes = (np.ascontiguousarray(x, dtype=float) for x in (steps.t, steps.h))
        self.marked = [] if steps.project is None else np.flatnonzero(steps.project).tolist()
        self._row_of = np.arange(len(self.sizes))
        self.done, self.status = 0, codes.SUCCESS

    @property
    def finished(self) -> bool:
        return self.status != codes.SUCCESS or self.done == len(self.sizes)

    @property
    def next_size(self) -> float:
        return float(self.sizes[min(self.done, len(self.sizes) - 1)])

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with steps; the number of rows that were filled."""
        first = self.done
        if self.setup.crossings:
            self.machine.slots[self.step.fired] = 0.0
        while not self.finished and self.done - first < len(out) and not self.crossed:
            if self._rest is not None:
                self.done += self._rest.take(out[self.done - first :])
                self.status = self._rest.status
            else:
                self._some(out, first, min(len(self.sizes), first + len(out)))
        return self.done - first

    def restore(self, fields: Fields, exact: ExactNumbers, done: int) -> None:
        self.done = done
        super().restore(fields, exact, 0)

    def _some(self, out: np.ndarray, first: int, stop: int) -> None:
        """Take steps up to one that is marked for a projection, or that needs other pivots."""
        step, slots = self.step, self.machine.slots
        slots[step.flags["alive"]] = 1.0
        stop = min(next((i + 1 for i in self.marked if i >= self.done), stop), stop)
        arrays = (x.ctypes.data for x in (slots, self.times, self.sizes, self._row_of))
        rows = out.ctypes.data - 8 * self.width * first  # row i of the run is row i − first of ``out``
        end = self.machine.code.steps(*arrays, rows, self.done, stop)
        status = int(slots[step.status])
        self.done = end if status == codes.SUCCESS else end - 1
        if status == PIVOT:
            status = self.machine.new_order()
            if status == PIVOT:
                status = codes.SUCCESS
                self._leave()
        elif status == codes.SUCCESS and self.done - 1 in self.marked:
            at = self.times[self.done - 1] + self.sizes[self.done - 1]
            status = _project(self.setup, step, slots, at, self.args)
            out[self.done - 1 - first] = slots[step.row.start : step.row.stop]
            self.done -= status != codes.SUCCESS
        self.status = status

    @property
    def _time(self) -> float:
        return float(self.times[self.done])

    def _by_xla(self, carry: Carry, memory: Memory, known: Any) -> xla.XlaGiven:
        rest = jax.tree.map(lambda column: column[self.done :], self.steps)
        scale = self.run.start.begin.scale
        return xla.XlaGiven(self.setup, (carry, memory, known), scale, rest, self.args)


class NativeControlled(_Native[xla_controlled.XlaControlled]):
    """A run under error control."""

    kind = ", controlled"
    step: ControlledKernels

    def __init__(self, setup: Setup, run: NativeRun, steps: Controlled, args: Args, known: Any = ()) -> None:
        super().__init__(setup, run, args, known)
        self.control, step, slots = steps.control, self.step, self.machine.slots
        step.control(slots, steps.control)
        slots[step.until], slots[step.every] = np.inf, 1.0
        self._end = float(steps.limits.end)
        self._stuck = (-np.inf, 0)  # the time at which no order of pivots was good, and how often

    @property
    def pace(self) -> Pace:
        if self._rest is not None:
            return self._rest.point.pace
        return Pace(*self.machine.slots[list(self.step.pace)])

    @property
    def next_size(self) -> float:
        return self._now("h")

    def _now(self, name: str) -> float:
        """One number of the pace."""
        if self._rest is not None:
            return float(getattr(self._rest.point.pace, name))
        return float(self.machine.slots[getattr(self.step.pace, name)])

    @property
    def status(self) -> int:
        return int(self._now("status"))

    @property
    def finished(self) -> bool:
        if self._rest is not None:
            return self._rest.finished
        slots, pace = self.machine.slots, self.step.pace
        return bool(slots[pace.status] != codes.SUCCESS or slots[pace.t] >= self._end)

    @property
    def rejected(self) -> int:
        return int(self._now("rejected"))

    @property
    def totals(self) -> np.ndarray:
        own = self.machine.slots[self.step.totals]
        return own if self._rest is None else own + self._rest.totals

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with steps; the number of rows that were filled."""
        step, done = self.step, 0
        if self.setup.crossings:
            self.machine.slots[step.fired] = 0.0
        while not self.finished and done < len(out) and not self.crossed:
            if self._rest is not None:
                return done + self._rest.take(out[done:])
            slots = self.machine.slots
            slots[step.kept], slots[step.room], slots[step.flags["alive"]] = done, len(out), 1.0
            nothing = (0, 0, 0)
            self.machine.code.steps(slots.ctypes.data, *nothing, out.ctypes.data, 0, loop.BLOCK)
            done = int(slots[step.kept])
            if int(slots[step.status]) == PIVOT:
                self._pivot()
        return done

    def _fields(self) -> Fields:
        return self.machine.fields(self.pace)

    def restore(self, fields: Fields, exact: ExactNumbers, done: int) -> None:
        """Continue with this control. If ``done`` is 0, rejected steps and totals are counted from zero."""
        super().restore(fields, exact, done)
        if self._rest is not None:
            return
        step, slots = self.step, self.machine.slots
        step.control(slots, self.control)
        at = self.pace if fields.pace is None else fields.pace
        slots[list(step.pace)] = np.array(xla_controlled.renewed(self.control[1], at, done), dtype=float)
        if not done:
            slots[step.totals] = 0.0

    @property
    def _time(self) -> float:
        return self._now("t")

    def _by_xla(self, carry: Carry, memory: Memory, known: Any) -> xla_controlled.XlaControlled:
        point = xla_controlled.Point(carry, memory, self.pace, known)
        return xla_controlled.XlaControlled(
            self.setup, point, self.control, self.run.start.begin.scale, self.args
        )

    def _pivot(self) -> None:
        """Choose other pivots. Take another step if the matrix is singular, or if no order is good for it.

        If that happens again and again without getting any further, XLA continues.
        """
        status = self.machine.new_order()
        slots, step, near = self.machine.slots, self.step, False
        slots[step.status] = codes.SUCCESS
        if status == PIVOT:
            at, count = self._stuck
            self._stuck = (self._time, count + 1 if at == self._time else 1)
            if self._stuck[1] <= MOST_RETRIES:
                status, near = codes.NOT_CONVERGED, True
        if status == PIVOT:
            self._leave()
        elif status != codes.SUCCESS:
            how = (np.float64(np.nan), np.float64(status), np.bool_(near))
            _, after = judge(self.control[1], self.pace, *how)
            slots[list(step.pace)], slots[step.memory[0]] = np.array(after), 0.0


judge = jax.jit(judged)


def _project(setup: Setup, step: StepKernels, slots: np.ndarray, t: float, args: Args) -> int:
    """Project the velocity onto the hidden constraints by ACB15 (7). Returns a status."""
    q, v = slots[step.carry.q], slots[step.carry.v]
    project = lambda setup, t, q, v, args: initial_values.project_velocity(
        setup.system, setup.dims, t, q, v, args
    )
    v, status = program(setup, "project velocity", project)(t, q, v, args)
    slots[step.carry.v] = v
    return int(status)
