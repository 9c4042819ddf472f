"""Runs of large assemblies under error control."""

from __future__ import annotations

import numpy as np

from genalpha.backends.native.runners import judge
from genalpha.backends.native.writer import PIVOT
from genalpha.backends.sparse.controlled import ControlledCode
from genalpha.backends.sparse.models import KindModel
from genalpha.backends.sparse.runner import MATRICES, SEVERAL, SparseRunner
from genalpha.backends.sparse.start import SparseStart
from genalpha.backends.xla.controlled import renewed
from genalpha.engine.controller import Pace
from genalpha.engine.run_data import ExactNumbers, Fields
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Controlled
from genalpha.mechanics.system import Args
from genalpha.numerics import codes


class SparseControlled(SparseRunner):
    """A run under error control."""

    kind = ", controlled"

    def __init__(
        self,
        setup: Setup,
        code: ControlledCode,
        models: list[KindModel],
        start: SparseStart,
        steps: Controlled,
        args: Args,
    ) -> None:
        super().__init__(setup, code, models, start, args)
        self.control, self._end = steps.control, float(steps.limits.end)
        self.memory.w[list(code.central.pace)] = list(start.pace or ())
        self._write_control()
        self._begin()

    def _write_control(self) -> None:
        """Write tolerances and limits."""
        memory, central = self.memory, self.code.central
        tolerances, limits = self.control
        memory.w[list(central.limits)] = [float(x) for x in limits]
        memory.w[central.until], memory.w[central.every] = np.inf, 1.0
        whole = np.empty((len(tolerances), self.setup.dims.n))
        for row, values in zip(whole, tolerances, strict=True):
            row[:] = values
        memory.fill_tolerances(whole)
        for kind, model in zip(self.code.kinds, self.models, strict=True):
            if model.element is None:
                lanes = memory.lanes(kind, kind.weight)
                lanes[:] = np.arange(lanes.size).reshape(lanes.shape) < model.copies

    def _pace(self) -> Pace:
        return self.pace

    def restore(self, fields: Fields, exact: ExactNumbers, done: int) -> None:
        """Continue with this control. If ``done`` is 0, rejected steps and totals are counted from zero."""
        super().restore(fields, exact, done)
        self._write_control()
        w, central = self.memory.w, self.code.central
        at = self.pace if fields.pace is None else fields.pace
        w[list(central.pace)] = np.array(renewed(self.control[1], at, done), dtype=float)
        if not done:
            w[central.totals] = 0.0

    def _first(self, start: SparseStart) -> tuple[float, float]:
        assert start.pace is not None
        return float(start.pace.t), float(start.pace.h)

    @property
    def pace(self) -> Pace:
        return Pace(*self.memory.w[list(self.code.central.pace)])

    @property
    def next_size(self) -> float:
        return float(self.pace.h)

    @property
    def status(self) -> int:
        return int(self.pace.status)

    @property
    def finished(self) -> bool:
        return self.status != codes.SUCCESS or self.pace.t >= self._end

    @property
    def rejected(self) -> int:
        return int(self.pace.rejected)

    @property
    def totals(self) -> np.ndarray:
        return self.memory.w[self.code.central.totals]

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with steps; the number of rows that were filled."""
        done = 0
        self.memory.w[self.code.central.fired] = 0.0
        while not self.finished and done < len(out) and not self.crossed:
            w, central = self.memory.w, self.code.central  # coupled stages have others
            w[central.kept], w[central.room], w[central.flags["alive"]] = done, len(out), 1.0
            w[central.status] = codes.SUCCESS
            before = self._work
            self._call((0, 0, 0), out.ctypes.data, 0, self._steps_of_a_call)
            done = int(w[central.kept])
            if int(w[central.status]) == PIVOT:
                self._pivot()
            elif self.pace.failure == codes.NOT_CONVERGED and not self.finished:
                self._recover(codes.NOT_CONVERGED, self.pace.t)
            attempts, matrices = self._work - before
            slow = attempts >= SEVERAL and matrices > MATRICES * attempts
            if self.coupled is not None and slow and not self.finished:
                self._couple()
        return done

    @property
    def _work(self) -> np.ndarray:
        """Attempts and matrices so far."""
        w, central = self.memory.w, self.code.central
        return np.array([w[central.taken] + w[central.pace.rejected], w[central.totals[1]]])

    def _couple(self) -> None:
        pace = self.pace
        super()._couple()
        self.memory.w[list(self.code.central.pace)] = np.array(pace)
        self._write_control()

    def _pivot(self) -> None:
        """Choose other pivots. If the matrix is singular, take another step."""
        status = self._recover(PIVOT, self.pace.t)
        w, central = self.memory.w, self.code.central
        w[central.status] = codes.SUCCESS
        if status != codes.SUCCESS:
            how = (np.float64(np.nan), np.float64(status), np.bool_(False))
            _, after = judge(self.control[1], self.pace, *how)
            w[list(central.pace)], w[central.memory[0]] = np.array(after), 0.0
