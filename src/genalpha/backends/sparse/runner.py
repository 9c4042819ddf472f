"""A run of a large assembly with given steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from genalpha.backends.native.writer import PIVOT
from genalpha.backends.sparse.code import SparseCode, address
from genalpha.backends.sparse.factors import Singular
from genalpha.backends.sparse.memory import Memory
from genalpha.backends.sparse.models import Model
from genalpha.backends.sparse.start import SparseStart
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED

# The most changes of the order of pivots in one run, and at one step.
MOST_CHANGES, MOST_HERE = 1000, 3
_NO_EVENTS = np.zeros(0, bool)


class SparseGiven:
    """A run with given steps. Pivots are chosen anew if they have become bad."""

    rejected, fallback = 0, None
    fired, crossed = _NO_EVENTS, False

    def __init__(
        self, setup: Setup, code: SparseCode, models: list[Model], start: SparseStart, given: Given
    ) -> None:
        self.setup, self.code, self.models = setup, code, models
        self.times, self.sizes = (
            np.ascontiguousarray(x, dtype=float) for x in (given.steps.t, given.steps.h)
        )
        self.memory = Memory(code, setup.dims)
        self.width = self.memory.lengths["record"] + len(COUNTED)
        self._row_of = np.arange(len(self.sizes))
        self.done, self.status, self.changes, self._stuck = 0, codes.SUCCESS, 0, (-1, 0)
        self._fill(start)
        self._analyse("probe")

    def _fill(self, start: SparseStart) -> None:
        memory, central = self.memory, self.code.central
        memory.array("record")[:] = start.row[: memory.lengths["record"]]
        size, n = self.setup.dims.size, self.setup.dims.n
        memory.array("record")[size : size + n] = start.v
        if start.a_old is not None:
            memory.array("a_old")[:] = start.a_old
        for name in ("x", "guess", "p0"):
            memory.array(name)[memory.compact(self.code.blocks.unknowns)] = start.x
        memory.fill_constants(self.models, start.scale)
        for kind, own in zip(self.code.kinds, start.own, strict=True):
            for name, values in own.items():
                memory.fill(kind, kind.own[name], values)
        first = [self.times[0], self.sizes[0], self.sizes[0]]
        memory.w[central.times] = [*first, *(() if start.lag is None else start.lag)]

    def _analyse(self, plan: str) -> None:
        """Choose an order of pivots for the matrix of the next step, or of the iterate where it has failed."""
        self.memory.run(plan)
        self.memory.use(self.memory.analyse())

    @property
    def finished(self) -> bool:
        return self.status != codes.SUCCESS or self.done == len(self.sizes)

    @property
    def next_size(self) -> float:
        return float(self.sizes[min(self.done, len(self.sizes) - 1)])

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with steps; the number of rows that were filled."""
        first = self.done
        while not self.finished and self.done - first < len(out):
            self._some(out, first, min(len(self.sizes), first + len(out)))
        return self.done - first

    def _some(self, out: np.ndarray, first: int, stop: int) -> None:
        memory, central = self.memory, self.code.central
        memory.w[central.flags["alive"]] = 1.0
        rows = out.ctypes.data - 8 * self.width * first
        arrays = (address(x) for x in (memory.w, self.times, self.sizes, self._row_of))
        end = self.code.steps(*arrays, rows, self.done, stop, address(memory.head), address(memory.lists))
        status = int(memory.w[central.status])
        self.done = end if status == codes.SUCCESS else end - 1
        if status == PIVOT:
            status = self._new_order()
        self.status = status

    def _new_order(self) -> int:
        """Choose other pivots. Returns a status."""
        memory, central = self.memory, self.code.central
        at, count = self._stuck
        self._stuck = (self.done, count + 1 if at == self.done else 1)
        self.changes += 1
        if self._stuck[1] > MOST_HERE or self.changes > MOST_CHANGES:
            return int(memory.w[central.if_singular])
        try:
            self._analyse("entries")
        except Singular:
            return int(memory.w[central.if_singular])
        memory.w[central.memory[0]] = 0.0  # no factors yet
        return codes.SUCCESS

    def fields(self) -> Any:
        raise NotImplementedError

    def exact(self) -> Any:
        raise NotImplementedError
