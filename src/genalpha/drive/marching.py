"""Runs by machine code on the CPU: given steps, or error control."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha import diagnose, initial
from genalpha.advance import Memory, Setup
from genalpha.drive import adaptive, host, xla
from genalpha.drive.native import MAKING, Code, Kernels, Run, aligned, fill
from genalpha.kernels.paced import PacedStep
from genalpha.kernels.step import PIVOT, Step, floating
from genalpha.newton import MAX_CONDITION, no_memory
from genalpha.pace import Pace, judged
from genalpha.resume import Exact, Fields, exact_key
from genalpha.state import Carry, Times
from genalpha.system import Args

# Orders of pivots that one run may try before it goes on with pivots chosen anew for every matrix.
MOST_ORDERS = 8


class Listed:
    """A run with given steps. Where no order of pivots serves for long, XLA goes on; ``fallback`` says so."""

    def __init__(self, setup: Setup, run: Run, steps: Times, args: Args, known: Any = ()) -> None:
        self.setup, self.run, self.steps, self.args = setup, run, steps, args
        self.times, self.sizes = (np.ascontiguousarray(x, dtype=float) for x in (steps.t, steps.h))
        self.marked = [] if steps.project is None else np.flatnonzero(steps.project).tolist()
        self.step = run.kernels.step
        self.machine = _Machine(run.kernels)
        fill(self.step, self.machine.slots, run.start, floating(args)[0])
        self.machine.slots[self.step.events] = known
        self._row_of = np.arange(len(self.sizes))
        self.done, self.width, self.status = 0, len(self.step.row), diagnose.SUCCESS
        self.fallback: str | None = None
        self._rest: xla.Listed | None = None

    @property
    def finished(self) -> bool:
        return self.status != diagnose.SUCCESS or self.done == len(self.sizes)

    @property
    def fired(self) -> np.ndarray:
        return self.machine.fired if self._rest is None else self._rest.fired

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with steps; the number of rows that were filled."""
        first = self.done
        self.machine.slots[self.step.fired] = 0.0
        while not self.finished and self.done - first < len(out) and not self.fired.any():
            if self._rest is not None:
                self.done += self._rest.take(out[self.done - first :])
                self.status = self._rest.status
            else:
                self._some(out, first, min(len(self.sizes), first + len(out)))
        return self.done - first

    def fields(self) -> Fields:
        return self._rest.fields() if self._rest is not None else self.machine.fields(None)

    def exact(self) -> Exact:
        return (
            self._rest.exact()
            if self._rest is not None
            else self.machine.exact(exact_key("native", self.setup, self.args))
        )

    def restore(self, fields: Fields, exact: Exact, done: int) -> None:
        """Go on after ``done`` steps: exactly, where that is possible."""
        self.done = done
        if exact.key == exact_key("xla", self.setup, self.args):  # it had to
            self._leave()
            assert self._rest is not None
            self._rest.restore(fields, exact, 0)
        else:
            self.machine.restore("native", self.setup, fields, exact, self.args)

    def _some(self, out: np.ndarray, first: int, stop: int) -> None:
        """Steps up to one that is marked, or that needs other pivots."""
        step, slots = self.step, self.machine.slots
        slots[step.flags["alive"]] = 1.0
        stop = min(next((i + 1 for i in self.marked if i >= self.done), stop), stop)
        arrays = (x.ctypes.data for x in (slots, self.times, self.sizes, self._row_of))
        rows = out.ctypes.data - 8 * self.width * first  # row i of the run is row i − first of ``out``
        end = self.machine.code.steps(*arrays, rows, self.done, stop)
        status = int(slots[step.status])
        self.done = end if status == diagnose.SUCCESS else end - 1
        if status == PIVOT:
            status = self.machine.new_order()
            if status == PIVOT:
                status = diagnose.SUCCESS
                self._leave()
        elif status == diagnose.SUCCESS and self.done - 1 in self.marked:
            at = self.times[self.done - 1] + self.sizes[self.done - 1]
            status = _project(self.setup, step, slots, at, self.args)
            out[self.done - 1 - first] = slots[step.row.start : step.row.stop]
            self.done -= status != diagnose.SUCCESS
        self.status = status

    def _leave(self) -> None:
        """Let XLA go on, which chooses pivots anew for every matrix."""
        self.fallback = f"no order of pivots served for long; XLA went on at t = {self.times[self.done]:.9g}"
        carry, memory = self.machine.look()
        rest = jax.tree.map(lambda column: column[self.done :], self.steps)
        scale = self.run.start.begin.scale
        known = self.machine.slots[self.step.events]
        self._rest = xla.Listed(self.setup, carry, memory, scale, rest, self.args, known=known)


class Paced:
    """A run under error control. Where no order of pivots serves for long, XLA goes on."""

    def __init__(
        self, setup: Setup, run: Run, control: adaptive.Control, args: Args, known: Any = ()
    ) -> None:
        self.setup, self.run, self.control, self.args = setup, run, control, args
        step = run.kernels.step
        assert isinstance(step, PacedStep)
        self.step, self.machine = step, _Machine(run.kernels)
        slots = self.machine.slots
        fill(step, slots, run.start, floating(args)[0])
        for place, value in zip(
            jax.tree.leaves((step.tolerances, step.limits)), jax.tree.leaves(control), strict=True
        ):
            slots[place] = value
        slots[step.until], slots[step.every], slots[step.events] = np.inf, 1.0, known
        self.width = len(step.row)
        self.fallback: str | None = None
        self._rest: adaptive.Paced | None = None

    @property
    def pace(self) -> Pace:
        return (
            Pace(*self.machine.slots[list(self.step.pace)]) if self._rest is None else self._rest.point.pace
        )

    @property
    def status(self) -> int:
        return int(self.pace.status)

    @property
    def finished(self) -> bool:
        return not bool(adaptive.unfinished(self.control[1], self.pace))

    @property
    def fired(self) -> np.ndarray:
        return self.machine.fired if self._rest is None else self._rest.fired

    @property
    def rejected(self) -> int:
        return int(self.pace.rejected)

    @property
    def totals(self) -> np.ndarray:
        own = self.machine.slots[self.step.totals]
        return own if self._rest is None else own + self._rest.totals

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with steps; the number of rows that were filled."""
        step, done = self.step, 0
        self.machine.slots[step.fired] = 0.0
        while not self.finished and done < len(out) and not self.fired.any():
            if self._rest is not None:
                return done + self._rest.take(out[done:])
            slots = self.machine.slots
            slots[step.kept], slots[step.room], slots[step.flags["alive"]] = done, len(out), 1.0
            nothing = (0, 0, 0)
            self.machine.code.steps(slots.ctypes.data, *nothing, out.ctypes.data, 0, host.BLOCK)
            done = int(slots[step.kept])
            if int(slots[step.status]) == PIVOT:
                self._pivot()
        return done

    def fields(self) -> Fields:
        return self._rest.fields() if self._rest is not None else self.machine.fields(self.pace)

    def exact(self) -> Exact:
        return (
            self._rest.exact()
            if self._rest is not None
            else self.machine.exact(exact_key("native, paced", self.setup, self.args))
        )

    def restore(self, fields: Fields, exact: Exact, done: int) -> None:
        """Go on from there: exactly, where that is possible. Steps are counted from zero unless ``done``."""
        slots, step = self.machine.slots, self.step
        control = jax.tree.leaves((step.tolerances, step.limits))
        wanted = [slots[place].copy() for place in control]
        if exact.key == exact_key("xla, paced", self.setup, self.args):  # it had to
            self._leave()
            assert self._rest is not None
            self._rest.restore(fields, exact, done)
            return
        self.machine.restore("native, paced", self.setup, fields, exact, self.args)
        slots = self.machine.slots
        for place, value in zip(control, wanted, strict=True):
            slots[place] = value
        at = self.pace if fields.pace is None else fields.pace
        slots[list(step.pace)] = np.array(adaptive.renewed(self.control[1], at, done), dtype=float)
        if not done:
            slots[step.totals] = 0.0

    def _leave(self) -> None:
        """Let XLA go on, which chooses pivots anew for every matrix."""
        self.fallback = f"no order of pivots served for long; XLA went on at t = {self.pace.t:.9g}"
        known = xla.nothing_crossed(self.machine.slots[self.step.events])
        point = adaptive.Point(*self.machine.look(), self.pace, known)
        scale = self.run.start.begin.scale
        self._rest = adaptive.Paced(self.setup, point, self.control, scale, self.args)

    def _pivot(self) -> None:
        """Other pivots; where a matrix is singular, a smaller step; where nothing helps for long, XLA."""
        status = self.machine.new_order()
        slots, step = self.machine.slots, self.step
        slots[step.status] = diagnose.SUCCESS
        if status == PIVOT:
            self._leave()
        elif status != diagnose.SUCCESS:
            _, after = judge(self.control[1], self.pace, np.float64(np.nan), np.float64(status))
            slots[list(step.pace)], slots[step.memory[0]] = np.array(after), 0.0


judge = jax.jit(judged)


class _Machine:
    """The code that a run uses, and the numbers that it works on."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels, self.order, self.orders = kernels, kernels.order, 0
        self.code = kernels.code()
        self.slots = aligned(self.code.program.slots)

    @property
    def fired(self) -> np.ndarray:
        return self.slots[self.kernels.step.fired] != 0

    def look(self) -> tuple[Carry, Memory]:
        """Carry and memory, without a matrix."""
        step, slots = self.kernels.step, self.slots
        look = lambda place: slots[place]
        carry: Carry = jax.tree.map(look, step.carry)
        kept = no_memory(len(step.x))._replace(fit_and_noise=jnp.array([0.0, slots[step.memory[1]]]))
        x, slope, bend = (jnp.asarray(look(place)) for place in step.parabola)
        return carry, Memory(x, slope, bend, kept)

    def fields(self, pace: Pace | None) -> Fields:
        step, slots = self.kernels.step, self.slots
        carry = jax.tree.map(lambda place: slots[place].copy(), step.carry)
        parabola = np.stack([slots[place] for place in step.parabola])
        return Fields(carry, parabola, slots[step.memory[1]], pace, slots[step.events].copy())

    def exact(self, key: tuple[Any, ...]) -> Exact:
        return Exact(key, self.slots.copy(), self.order, self.orders)

    def restore(self, kind: str, setup: Setup, fields: Fields, exact: Exact, args: Args) -> None:
        """The numbers of a run that stopped, or what there is of them, with these arguments."""
        step = self.kernels.step
        if exact.key == exact_key(kind, setup, args):
            self.order, self.orders = exact.order, exact.orders
            self.code = self.kernels.code(order=exact.order)
            self.slots = aligned(self.code.program.slots)
            self.slots[:] = exact.numbers
            for place, value in zip(step.args, floating(args)[0], strict=True):
                self.slots[place.reshape(-1)] = value.reshape(-1)
            return
        carry = xla.fitting(setup, step.values.carry, fields.carry)
        places = jax.tree.leaves((step.carry, step.parabola, step.events))
        for place, value in zip(
            places, jax.tree.leaves((carry, [*fields.parabola], fields.known)), strict=True
        ):
            self.slots[place.reshape(-1)] = np.asarray(value).reshape(-1)
        self.slots[step.memory] = 0.0, fields.noise

    def new_order(self) -> int:
        """Other pivots for the matrices that the last ones do not suit, unless one is singular; the status.

        It stays PIVOT where none help for long.
        """
        step, slots = self.kernels.step, self.slots
        self.orders += 1
        first, *others = step.matrices_at(slots, start=False)
        verdict = int(slots[step.if_singular])
        if not np.isfinite(first).all():
            return verdict if verdict == diagnose.NOT_CONVERGED else diagnose.NOT_FINITE
        if not all(np.isfinite(matrix).all() for matrix in others):
            return diagnose.NOT_FINITE
        with MAKING, np.errstate(all="ignore"):
            if not np.linalg.cond(first, np.inf) <= MAX_CONDITION:
                return verdict
            if not all(np.linalg.cond(matrix, np.inf) <= MAX_CONDITION for matrix in others):
                return diagnose.SINGULAR
            order = step.choose(slots, start=False)
        if order is None or order == self.order or self.orders > MOST_ORDERS:
            return PIVOT
        self.order = order
        self._use(self.kernels.code(order=order))
        self.slots[step.flags["alive"]], self.slots[step.memory[0]] = 1.0, 0.0
        return diagnose.SUCCESS

    def _use(self, code: Code) -> None:
        old, own = self.slots, self.kernels.step.builder.slots
        self.code, self.slots = code, aligned(code.program.slots)
        self.slots[:own] = old[:own]


def _project(setup: Setup, step: Step, slots: np.ndarray, t: float, args: Args) -> int:
    """The velocity moved onto the hidden constraints by (7) of ACB15."""
    q, v = slots[step.carry.q], slots[step.carry.v]
    project = lambda setup, t, q, v, args: initial.project_velocity(setup.system, setup.dims, t, q, v, args)
    v, status = xla.program(setup, "project velocity", project)(t, q, v, args)
    slots[step.carry.v] = v
    return int(status)
