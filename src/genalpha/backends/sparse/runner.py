"""Runs of large assemblies, and those with given steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from genalpha.backends.native.step import floating
from genalpha.backends.native.writer import PIVOT
from genalpha.backends.sparse.code import SparseCode
from genalpha.backends.sparse.memory import KEPT, SparseMemory
from genalpha.backends.sparse.models import KindModel
from genalpha.backends.sparse.start import SparseStart
from genalpha.compiler.lu import CONDITION
from genalpha.compiler.sparse_pattern import Singular, address
from genalpha.engine.controller import Pace
from genalpha.engine.run_data import ExactNumbers, Fields, exact_key
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED, Carry

# The most changes of the order of pivots in one run.
MOST_CHANGES = 10_000
# The name of this kind of run in states.
KIND = "sparse"
# Stages are coupled if a step needs more than this many matrices in the mean of several steps. While they are
# not, so many steps are taken between two decisions.
MATRICES, SEVERAL, DECISION = 2.5, 5, 50
# Unknowns times steps of one call of machine code.
CALL = 1_000_000


class SparseRunner:
    """A run of a large assembly.

    Pivots are chosen anew if they have become bad. If the stages of the method depend too much on each
    other, as with strong damping, the run goes on with coupled stages. ``coupled`` makes the code for that.
    It is None if there is one stage, or if the run has done so.
    """

    fallback = None
    coupled: Callable[[], SparseCode] | None = None

    def __init__(
        self, setup: Setup, code: Any, models: list[KindModel], start: SparseStart, args: Args
    ) -> None:
        self.setup, self.code, self.models, self.start, self.args = setup, code, models, start, args
        self.memory = SparseMemory(code, setup.dims)
        self.width = self.memory.lengths["record"]
        self.changes, self._stuck = 0, (-1.0, 0)
        self._learning = setup.system._programs.learning
        self._fill(start)

    def _fill(self, start: SparseStart) -> None:
        memory, central = self.memory, self.code.central
        memory.array("record")[: len(start.row)] = start.row
        size, n = self.setup.dims.size, self.setup.dims.n
        memory.array("record")[size : size + n] = start.v
        if start.a_old is not None:
            memory.array("a_old")[:] = start.a_old
        places = memory.compact(self.code.blocks.unknowns)
        for name in ("x", "guess", "p0"):
            memory.array(name)[places] = start.x
        memory.fill_constants(self.models, start.scale, start.numbers)
        memory.fill_own(start.own)
        t, h = self._first(start)
        memory.w[central.times] = [t, h, h, *(() if start.lag is None else start.lag)]
        if self.code.taped:
            memory.array("past")[:] = memory.w[central.times[2:]]
            for kind in self.code.kinds:
                memory.array(f"own:{kind.name}")[:] = memory.read(kind, kind.own_slots).reshape(-1)

    def watch(self, known: np.ndarray) -> None:
        """Start with these values (E,) of the functions of events."""
        w, central = self.memory.w, self.code.central
        if self.setup.crossings:
            w[central.events] = known
            doubles = floating(self.args)[0]
            w[central.watched.given] = [doubles[k].reshape(-1)[i] for k, i in central.watched.numbers]

    @property
    def taped_row(self) -> np.ndarray:
        """The last row of the tape."""
        return self.memory.array("record").copy()

    @property
    def fired(self) -> np.ndarray:
        return self.memory.w[self.code.central.fired] != 0

    @property
    def crossed(self) -> bool:
        """Whether the last step has passed an event."""
        return bool(self.fired.any())

    def _first(self, start: SparseStart) -> tuple[float, float]:
        """The start and the size of the first step."""
        raise NotImplementedError

    def _begin(self) -> None:
        """Use the pivots of earlier runs with this code, or choose some for the first step."""
        known = self.code.patterns
        if not known:
            self.memory.run("probe")
            found = self.memory.analyse()
            if self.memory.lengths["x"] <= KEPT and not known:  # another thread may have found them, too
                known[:] = found
            self.memory.use(known or found)
        else:
            self.memory.use(known)

    def _call(self, lists: tuple[int, int, int], rows: int, first: int, last: int) -> int:
        memory = self.memory
        return self.code.steps(
            address(memory.w), *lists, rows, first, last, address(memory.head), address(memory.lists)
        )

    def _couple(self) -> None:
        """Go on with coupled stages. If it is soon, other runs start with them."""
        assert self.coupled is not None
        old, old_code = self.memory, self.code
        if old.ready is not None:
            old.ready.couples = True
        if self._learning and old.w[old_code.central.taken] <= DECISION:
            old_code.kept["coupled"] = True
        self.code, self.coupled = self.coupled(), None
        self.memory = new = SparseMemory(self.code, self.setup.dims)
        for name in ("record", "a_old", "x", "guess", "p0", "p1", "p2"):
            new.array(name)[:] = old.array(name)
        new.fill_constants(self.models, self.start.scale, self.start.numbers)
        for before, after in zip(old_code.kinds, self.code.kinds, strict=True):
            for name, slots in after.own.items():
                new.fill(after, slots, old.read(before, before.own[name]))
        of_old, of_new = old_code.central, self.code.central
        for name in ("times", "memory", "totals", "events", "fired", "taken", "status"):
            new.w[getattr(of_new, name)] = old.w[getattr(of_old, name)]
        new.w[of_new.memory[0]] = 0.0  # no factors yet
        self.watch(old.w[of_old.events].copy())
        self._begin()

    def _recover(self, status: int, at: float) -> int:
        """What to do after a step from ``at`` without a solution. Returns the status then.

        Pivots are those that an earlier run has chosen in place of the present ones. If they are bad too, or
        unknown, they are chosen for the first guess of the step, then for the iterate at which the factors
        were bad. Bad pivots may also make an iteration diverge. Then stages are coupled.
        """
        if status not in (PIVOT, codes.NOT_CONVERGED):
            return status
        memory, central = self.memory, self.code.central
        if self._learning and self.coupled is not None and memory.ready is not None and memory.ready.couples:
            self._couple()
            return codes.SUCCESS
        if self._learning and memory.known_pivots():
            self.changes += 1
            memory.w[central.memory[0]] = 0.0  # no factors yet
            return codes.SUCCESS
        verdict = int(memory.w[central.if_singular]) if status == PIVOT else status
        last, count = self._stuck
        count = count + 1 if at == last else 1
        self._stuck, self.changes = (at, count), self.changes + 1
        plans = ("probe", "entries") if status == PIVOT else ("probe",)
        if count <= len(plans) and self.changes <= MOST_CHANGES:
            memory.run(plans[count - 1])
            try:
                memory.other_pivots()
            except Singular:
                return verdict
        elif self.coupled is not None:
            self._couple()
            self._stuck = (-1.0, 0)
        else:  # singular, or an iteration that led to a bad matrix
            _, largest, inverse, _ = memory.w[central.report].max(axis=0)
            return verdict if largest * inverse > CONDITION else codes.NOT_CONVERGED
        self.memory.w[self.code.central.memory[0]] = 0.0  # no factors yet
        return codes.SUCCESS

    @property
    def _steps_of_a_call(self) -> int:
        """The most steps in one call of machine code, which cannot be interrupted."""
        most = max(1, CALL // self.memory.lengths["x"])
        return most if self.coupled is None else min(most, DECISION)

    # --- states -----------------------------------------------------------------------------------

    def fields(self) -> Fields:
        """The data that a step needs from earlier steps. ``own`` are those of each kind."""
        memory, central, (size, n, _, _) = self.memory, self.code.central, self.setup.dims
        q, v, a = np.split(memory.array("record")[: size + 2 * n].copy(), [size, size + n])
        times = memory.w[central.times]
        own = {
            f"{kind.name}:{name}": memory.read(kind, slots)
            for kind in self.code.kinds
            for name, slots in kind.own.items()
        }
        lag = times[3:].copy() if central.adjusts else None
        carry = Carry(q, v, a, times[2], memory.array("a_old").copy(), lag, own)  # type: ignore[arg-type]
        compact = memory.compact(self.code.blocks.unknowns)
        parabola = np.stack([memory.array(name)[compact] for name in ("p0", "p1", "p2")])
        return Fields(
            carry, parabola, memory.w[central.memory[1]], self._pace(), memory.w[central.events].copy()
        )

    def _pace(self) -> Pace | None:
        return None

    def exact(self) -> ExactNumbers:
        return ExactNumbers(self._key(), self.memory.w.copy(), self.memory.orders, (), self.changes)

    def _key(self, coupled: bool = False) -> tuple[Any, ...]:
        """What identifies the code to which numbers belong."""
        stages = 1 if coupled else self.code.blocks.stages
        return exact_key(f"{KIND}{self.kind}, {stages}", self.setup, self.args)

    kind = ""

    def restore(self, fields: Fields, exact: ExactNumbers, done: int) -> None:
        """Continue after ``done`` steps, to the last bit if possible."""
        if exact.key == self._key(coupled=True) and self.coupled is not None:
            self._couple()
        memory, central = self.memory, self.code.central
        if exact.key == self._key():
            memory.use(memory.analyse(exact.order))
            memory.w[:] = exact.numbers
            memory.fill_constants(self.models, self.start.scale, self.start.numbers)
            self.changes = exact.changes
            return
        carry, size, n = fields.carry, self.setup.dims.size, self.setup.dims.n
        memory.array("record")[: size + 2 * n] = np.concatenate([carry.q, carry.v, carry.a])
        if carry.a_old is not None:
            memory.array("a_old")[:] = carry.a_old
        compact = memory.compact(self.code.blocks.unknowns)
        if np.shape(fields.parabola) == (3, len(compact)):
            for name, values in zip(("p0", "p1", "p2"), fields.parabola, strict=True):
                memory.array(name)[compact] = values
        for kind in self.code.kinds:
            for name, slots in kind.own.items():
                memory.fill(kind, slots, np.asarray(carry.own[f"{kind.name}:{name}"]))
        memory.w[central.times[2:]] = [
            carry.h,
            *(carry.lag if central.adjusts and carry.lag is not None else []),
        ]
        memory.w[central.memory] = 0.0, fields.noise


class SparseGiven(SparseRunner):
    """A run with given steps."""

    rejected = 0

    def __init__(
        self,
        setup: Setup,
        code: SparseCode,
        models: list[KindModel],
        start: SparseStart,
        given: Given,
        args: Args,
    ) -> None:
        steps = given.steps
        self.times, self.sizes = (np.ascontiguousarray(x, dtype=float) for x in (steps.t, steps.h))
        super().__init__(setup, code, models, start, args)
        self._row_of = np.arange(len(self.sizes))
        self.done, self.status = 0, codes.SUCCESS
        self._begin()

    def _first(self, start: SparseStart) -> tuple[float, float]:
        return self.times[0], self.sizes[0]

    def restore(self, fields: Fields, exact: ExactNumbers, done: int) -> None:
        self.done = done
        super().restore(fields, exact, 0)

    def mark(self) -> tuple[Any, ...]:
        """All that is needed to take the next steps once more, to the last bit."""
        of, run = self.memory, (self.code, self.coupled, self.changes, self._stuck, self.done)
        return of, of.w.copy(), of.ready, run

    def go_back(self, mark: tuple[Any, ...]) -> None:
        self.memory, w, ready, run = mark
        self.code, self.coupled, self.changes, self._stuck, self.done = run
        if self.memory.ready is not ready:
            self.memory.go_on(ready)
        self.memory.w[:], self.status = w, codes.SUCCESS

    @property
    def finished(self) -> bool:
        return self.status != codes.SUCCESS or self.done == len(self.sizes)

    @property
    def next_size(self) -> float:
        return float(self.sizes[min(self.done, len(self.sizes) - 1)])

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with steps; the number of rows that were filled."""
        first = self.done
        self.memory.w[self.code.central.fired] = 0.0
        while not self.finished and self.done - first < len(out) and not self.crossed:
            stop = min(len(self.sizes), first + len(out), self.done + self._steps_of_a_call)
            self._some(out, first, stop)
        return self.done - first

    def _some(self, out: np.ndarray, first: int, stop: int) -> None:
        w, central = self.memory.w, self.code.central
        w[central.flags["alive"]] = 1.0
        rows = out.ctypes.data - 8 * self.width * first
        lists = (address(self.times), address(self.sizes), address(self._row_of))
        end = self._call(lists, rows, self.done, stop)
        status = int(w[central.status])
        before, self.done = self.done, end if status == codes.SUCCESS else end - 1
        counts = self.memory.first["counts"] - self.memory.first["record"]
        matrices = out[before - first : self.done - first, counts + COUNTED.index("jacobians")]
        slow = len(matrices) >= SEVERAL and matrices.mean() > MATRICES
        self.status = self._recover(status, self.done)
        if self.coupled is not None and slow and status == codes.SUCCESS and not self.finished:
            self._couple()
