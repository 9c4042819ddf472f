"""Members of a batch side by side in vector registers: their steps, and right after them derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from genalpha.backends.batch.pool import Pool
from genalpha.backends.native.code import StepCode, aligned
from genalpha.backends.native.kernels import Kernels
from genalpha.backends.native.tape import Adjoint, Derivative, TapeSteps, flat
from genalpha.backends.transforms.members import MemberGroup, Passed, RunMembers
from genalpha.backends.transforms.operation import Arrays
from genalpha.compiler import machine
from genalpha.numerics import codes

if TYPE_CHECKING:
    from genalpha.backends.transforms.runs import GivenRun


class _Lanes(MemberGroup):
    """Memory of members that run side by side: slots, and a tape (N+1, W, lanes). It is used again."""

    def __init__(self, members: LaneMembers) -> None:
        step, lanes, count = members.op.step, members.lanes, members.count
        self.members, self.count = members, count
        self.work = aligned(members.code.numbers)
        self.slots = self.work[: members.code.program.slots * lanes].reshape(-1, lanes)
        self.table = aligned((count + 1) * len(step.row) * lanes).reshape(-1, len(step.row), lanes)
        self.lists = [np.ascontiguousarray(x, dtype=float) for x in (members.times, members.sizes)]
        self.places = np.arange(count)  # of records
        times = np.broadcast_to(np.stack(self.lists, axis=1)[:, :, None], (count, 2, lanes))
        self._steps = TapeSteps(self.table[:-1], self.table[1:], np.ascontiguousarray(times))
        arrays = [self.work, *self.lists, self.places, self.table[1:]]
        self._addresses = [x.ctypes.data for x in arrays]

    @property
    def steps(self) -> TapeSteps:
        return self._steps

    def run(self, those: np.ndarray) -> None:
        """Take all steps of some members. In lanes that are left they are taken once more."""
        members, step, slots = self.members, self.members.op.step, self.slots
        self.choose(those)
        self.used = len(those)
        self.padded = those if self.used == members.lanes else np.resize(those, members.lanes)
        slots[:] = 0.0
        slots[members.places] = members.first[self.padded].T
        slots[step.flags["alive"]] = 1.0
        self.table[0] = slots[step.row.start : step.row.stop]
        members.code.steps(*self._addresses, 0, self.count)
        status, taken = (slots[i].astype(int) for i in (step.status, step.taken))
        self.status, self.taken = status[: self.used], taken[: self.used]
        for lane in np.flatnonzero(taken < self.count):
            self.table[taken[lane] + 1 :, :, lane] = np.nan

    def rows(self, columns: slice, count: int) -> np.ndarray:
        block = np.ascontiguousarray(self.table[len(self.table) - count :, columns])
        return block[:, :, : self.used].transpose(2, 0, 1)

    def _side_by_side(self, x: np.ndarray) -> np.ndarray:
        """Numbers of members (n, S) as (S, lanes)."""
        return x.T if self.used == self.members.lanes else np.resize(x, (self.members.lanes, x.shape[1])).T

    def through(self, code: Derivative, more: Arrays, changes: np.ndarray, state: np.ndarray) -> Passed:
        table, first = np.zeros((self.count, len(code.more), self.members.lanes)), 0
        for x in more:
            last = first + x.shape[2]
            table[self.count - x.shape[1] :, first:last, : self.used] = x.transpose(1, 2, 0)
            first = last
        shared = np.concatenate([self.members.fixed[self.padded].T, self._side_by_side(changes)])
        turn = slice(None, None, -1 if isinstance(code, Adjoint) else 1)
        found, after = code.run(self.steps[turn], table[turn], shared, self._side_by_side(state))
        good = (found[:, -1, : self.used] != 0).all(axis=0)
        results = found[turn, :-1, : self.used]
        rows = lambda count: results[self.count - count :].transpose(2, 0, 1)
        return Passed(good, after[:, : self.used].T, rows)


class LaneMembers(RunMembers):
    """Members that run side by side, in threads on all cores."""

    def __init__(
        self, operation: GivenRun, made: Kernels, size: int, inputs: Arrays, own: Sequence[bool]
    ) -> None:
        super().__init__(operation, made, size, inputs, own)
        self.lanes = machine.lanes()
        assert made.start is not None
        columns = (np.array([self.t0]), self.q, self.v, np.array([self.sizes[0]]), self.doubles)
        start, good = made.start.code(self.lanes)(columns)
        self.status = self.statuses(start.status, start.consistent, self.q)
        self.alone = ~good | (self.status != codes.SUCCESS)
        self.row, self.t_alpha = start.row, np.asarray(start.t_alpha)
        self.scale = self.wide(start.begin.scale)
        self.code: StepCode = made.code(self.lanes)
        step, state = operation.step, start.begin.state
        self.places = flat([step.start_places, step.output[:2], step.args])
        self.fixed = np.concatenate([self.scale, self.args], axis=1)
        self.first = np.concatenate([self.wide([step.start_values(start), state[-2:]]), self.args], axis=1)

    def each(self, work: Callable[[_Lanes], None], rows: int) -> None:
        which = np.flatnonzero(~self.alone)
        groups = [which[first : first + self.lanes] for first in range(0, len(which), self.lanes)]
        share = max(1, len(groups) // (8 * machine.cores()))

        def some(first: int) -> None:
            group = _Lanes(self)
            for those in groups[first : first + share]:
                pool.proceed()
                group.run(those)
                work(group)

        with Pool() as pool:
            pool.map(some, range(0, len(groups), share))
