"""Batches of runs with given steps as operations of JAX: members side by side in vector registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from genalpha.backends.batch.pool import Pool
from genalpha.backends.native.code import StepCode, aligned
from genalpha.backends.native.kernels import Kernels
from genalpha.backends.native.tape import Adjoint, Derivative, Tangent, TapeSteps, flat
from genalpha.backends.native.writer import PIVOT
from genalpha.backends.transforms.operation import Arrays, Asked
from genalpha.backends.transforms.records import NUMBERS, Taken
from genalpha.compiler import machine
from genalpha.engine import step_choice
from genalpha.engine.start import RunStart
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED

if TYPE_CHECKING:
    from genalpha.backends.transforms.runs import GivenRun


class _Group:
    """Memory of members that run side by side: slots, and a tape (N+1, W, lanes)."""

    def __init__(self, members: LaneMembers) -> None:
        step, lanes = members.op.step, members.lanes
        self.members, self.count = members, len(members.sizes)
        self.work = aligned(members.code.numbers)
        self.slots = self.work[: members.code.program.slots * lanes].reshape(-1, lanes)
        self.table = aligned((self.count + 1) * len(step.row) * lanes).reshape(-1, len(step.row), lanes)
        self.lists = [np.ascontiguousarray(x, dtype=float) for x in (members.times, members.sizes)]
        self.rows = np.arange(self.count)
        times = np.broadcast_to(np.stack(self.lists, axis=1)[:, :, None], (self.count, 2, lanes))
        self.steps = TapeSteps(self.table[:-1], self.table[1:], np.ascontiguousarray(times))
        arrays = [self.work, *self.lists, self.rows, self.table[1:]]
        self._addresses = [x.ctypes.data for x in arrays]

    def run(self, those: np.ndarray) -> None:
        """Take all steps of some members. In lanes that are left they are taken once more."""
        members, step, slots = self.members, self.members.op.step, self.slots
        self.here = slice(those[0], those[-1] + 1) if those[-1] - those[0] < len(those) else those
        self.those, self.used = those, len(those)
        self.padded = those if self.used == members.lanes else np.resize(those, members.lanes)
        slots[:] = 0.0
        slots[members.places] = members.first[self.padded].T
        slots[step.flags["alive"]] = 1.0
        self.table[0] = slots[step.row.start : step.row.stop]
        members.code.steps(*self._addresses, 0, self.count)
        self.status, self.taken = (slots[i, : self.used].astype(int) for i in (step.status, step.taken))
        for lane in np.flatnonzero(slots[step.taken] < self.count):
            self.table[int(slots[step.taken, lane]) + 1 :, :, lane] = np.nan

    def put(self, columns: slice, into: np.ndarray) -> None:
        """Copy columns of the last records of the tape to the rows of members (B, K, ...)."""
        rows, width = into.shape[1:]
        block = np.ascontiguousarray(self.table[len(self.table) - rows :, columns])
        flat = block.reshape(rows * width, self.members.lanes)[:, : self.used].T
        into[self.here] = flat.reshape(self.used, rows, width)


class LaneMembers:
    """The members of a batch, of which q, v and the arguments may differ."""

    def __init__(
        self, operation: GivenRun, made: Kernels, size: int, inputs: Arrays, own: Sequence[bool]
    ) -> None:
        self.op, self.made, self.size = operation, made, size
        wide = [
            np.asarray(x) if yes else np.broadcast_to(x, (size, *np.shape(x)))
            for x, yes in zip(inputs, own, strict=True)
        ]
        self.t0, self.t1, self.times, self.sizes = float(inputs[0]), inputs[1], inputs[4], inputs[5]
        self.q, self.v, self.doubles = wide[2], wide[3], wide[6:]
        self.lanes = machine.lanes()
        assert self.made.start is not None
        columns = (np.array([self.t0]), self.q, self.v, np.array([self.sizes[0]]), self.doubles)
        start, good = self.made.start.code(self.lanes)(columns)
        self.start: RunStart = start
        self.status = self._statuses()
        self.alone = ~good | (self.status != codes.SUCCESS)  # members that run by themselves
        self.scale = self._wide(start.begin.scale)
        self.code: StepCode = self.made.code(self.lanes)
        step, state = operation.step, start.begin.state
        self.places = flat([step.start_places, step.output[:2], step.args])
        self.args = self._wide(self.doubles)
        self.fixed = np.concatenate([self.scale, self.args], axis=1)
        self.first = np.concatenate([self._wide([step.start_values(start), state[-2:]]), self.args], axis=1)

    def _wide(self, tree: Any) -> np.ndarray:
        """All numbers of every member (size, ...)."""
        parts = [np.reshape(x, (self.size, -1)) for x in jax.tree.leaves(tree)]
        return np.concatenate([np.zeros((self.size, 0)), *parts], axis=1)

    def _statuses(self) -> np.ndarray:
        """The status of every start."""
        op, found = self.op, np.asarray(self.start.status).astype(int)
        if op.setup.system.space.rotations:
            rotated = codes.not_a_rotation(op.defects(self.q, self.lanes))
            found = np.where(rotated != codes.SUCCESS, rotated, found)
        bad = ~np.asarray(self.start.consistent).astype(bool) & (found == codes.SUCCESS) & op.strict
        found = np.where(bad, codes.INCONSISTENT, found)
        fitting = step_choice.fitting((self.t0, self.t1), self.times, self.sizes)
        return found if fitting else np.full(len(found), codes.BAD_STEPS)

    def each(self, work: Callable[[_Group], None]) -> None:
        """Run members side by side, as many as there are lanes, and call ``work`` after each such group."""
        which = np.flatnonzero(~self.alone)
        groups = [which[first : first + self.lanes] for first in range(0, len(which), self.lanes)]
        share = max(1, len(groups) // (8 * machine.cores()))

        def some(first: int) -> None:
            group = _Group(self)
            for those in groups[first : first + share]:
                pool.proceed()
                group.run(those)
                work(group)

        with Pool() as pool:
            pool.map(some, range(0, len(groups), share))

    def taken(self, i: int) -> Taken:
        """Member i without a tape, for the start alone."""
        doubles = [x[i] for x in self.doubles]
        return Taken(
            self.t0, self.q[i], self.v[i], doubles, self.times, self.sizes, self.scale[i], lambda backward: []
        )


def values(members: LaneMembers, asked: Asked, more: Arrays) -> list[np.ndarray]:
    """The wanted outputs of all members."""
    op, size, count = members.op, members.size, len(members.sizes)
    shapes = op.shapes([(), (), members.q.shape[1:], members.v.shape[1:], (count,), (count,)])
    parts, rows = len(op.parts), len(range(count + 1)[op.kept])
    outs = [
        np.empty((size, *s)) if yes else None for s, yes in zip(shapes[:parts], asked.wanted, strict=False)
    ]
    wanted = [(at, out) for at, out in zip(op.parts, outs, strict=True) if out is not None]
    counted = any(asked.wanted[parts + len(NUMBERS) - len(COUNTED) : -1])
    status, taken, totals = np.zeros(size), np.zeros(size, int), np.zeros((size, len(COUNTED)))

    def one(group: _Group) -> None:
        members.alone[group.those[group.status == PIVOT]] = True
        for at, out in wanted:
            group.put(at, out[:, -min(rows, count) :])
        status[group.here], taken[group.here] = group.status, group.taken
        if counted:
            totals[group.here] = np.nansum(group.table[1:, op.parts[-1], : group.used], axis=0).T

    members.each(one)
    if rows > count:  # the start
        for at, out in wanted:
            out[:, 0] = members.start.row[:, at]
    last = np.maximum(taken - 1, 0)
    ends = np.where(taken > 0, members.times[last] + members.sizes[last], members.t0)
    numbers = (status, taken, np.zeros(size), ends, np.asarray(members.start.t_alpha), *totals.T)
    found = [*outs, *(np.array(x, dtype=float) for x in numbers), members.scale]
    return [np.asarray(x) for x in asked.chosen(found)]


class _Sweep:
    """Derivatives of all members along their tapes, group by group."""

    def __init__(
        self, members: LaneMembers, kind: type[Derivative], columns: tuple[int, ...], timed: bool
    ) -> None:
        self.members, self.op, self.kind = members, members.op, kind
        self.columns, self.timed = columns, timed
        self.failed = np.zeros(members.size, bool)

    def through(self, group: _Group, more: np.ndarray, shared: np.ndarray, state: np.ndarray) -> Any:
        """Go through the steps of a group; members whose pivots are bad must run alone.

        Returns results for every step, or None, and the last state.
        """
        members, op, those = self.members, self.op, group.those
        order = op.order(group.steps, shared[:, 0])
        if order is None:  # no order is good: each member finds its own
            members.alone[those] = True
            return None, state
        code, backward = op.derivative(self.kind, order, self.columns, self.timed), self.kind is Adjoint
        turn = slice(None, None, -1 if backward else 1)
        found, after = code.run(group.steps[turn], more[turn], shared, state)
        lost = (group.taken < group.count) & (group.status != PIVOT)
        self.failed[those[lost]] = True
        bad = (found[:, -1, : group.used] == 0).any(axis=0) | (group.status == PIVOT)
        members.alone[those[bad & ~lost]] = True
        return found[turn, :-1], after

    def shared(self, group: _Group) -> np.ndarray:
        return self.members.fixed[group.padded].T

    def starts(self) -> np.ndarray:
        """The inputs of all starts."""
        members = self.members
        same = [np.full((members.size, 1), x) for x in (members.t0, members.sizes[0])]
        return np.concatenate([same[0], members.q, members.v, same[1], members.args], axis=1)

    @property
    def lost(self) -> np.ndarray:
        """Members that have no derivatives."""
        return self.failed | (self.members.status != codes.SUCCESS)


def _columns(op: GivenRun, which: Sequence[bool]) -> tuple[int, ...]:
    """The columns of a record that belong to some of its smooth parts."""
    parts = zip(op.parts, which, strict=False)
    return tuple(i for at, yes in parts if yes for i in range(at.start, at.stop))


def tangents(members: LaneMembers, asked: Asked, changes: Arrays) -> list[np.ndarray]:
    """The wanted changes of the records of all members."""
    op, size, count = members.op, members.size, len(members.sizes)
    columns, timed = _columns(op, asked.wanted), any(asked.given[4:6])
    sweep = _Sweep(members, Tangent, columns, timed)
    t0, _, q, v, times, sizes, *doubles = changes
    wide = [np.reshape(x, (size, -1)) for x in (t0, q, v, sizes[:, 0], *doubles)]
    _, of_carry, of_row = op.start_columns(members.taken(0))
    begun = op.start_change(members.taken, sweep.starts(), np.concatenate(wide, axis=1), reverse=False)
    rows = len(range(count + 1)[op.kept])
    table = np.full((size, rows, len(columns)), np.nan)
    of_args, of_carries = np.concatenate([np.zeros((size, 0)), *wide[4:]], axis=1), begun[:, of_carry]

    def one(group: _Group) -> None:
        padded = group.padded
        shared = np.concatenate([sweep.shared(group), of_args[padded].T])
        more = np.zeros((count, 0, members.lanes))
        if timed:
            more = np.stack([times[padded].T, sizes[padded].T], axis=1)
        found, _ = sweep.through(group, more, shared, of_carries[padded].T)
        if found is not None:
            last = found[-min(rows, count) :, :, : group.used]
            table[group.here, -min(rows, count) :] = last.transpose(2, 0, 1)

    members.each(one)
    if rows > count:
        table[:, 0] = begun[:, of_row[list(columns)]]
    table[sweep.lost] = np.nan
    ends = np.cumsum([at.stop - at.start for at, yes in zip(op.parts, asked.wanted, strict=False) if yes])
    return np.split(table, ends[:-1], axis=2)


def cotangents(members: LaneMembers, asked: Asked, weights: Arrays) -> list[np.ndarray]:
    """The wanted derivatives with respect to the inputs of all members."""
    op, size, count = members.op, members.size, len(members.sizes)
    columns, timed = _columns(op, asked.given), any(asked.wanted[4:6])
    sweep, kept = _Sweep(members, Adjoint, columns, timed), len(op.tape.carry)
    given = [x for x, yes in zip(weights, asked.given, strict=True) if yes]
    rows, cuts = len(range(count + 1)[op.kept]), np.cumsum([0, *(x.shape[2] for x in given)]).tolist()
    states = np.zeros((size, kept + len(op.tape.doubles)))
    steps = np.zeros((size, count, 2)) if timed else np.zeros((size, 1, 2))

    def one(group: _Group) -> None:
        more = np.zeros((count, len(columns), members.lanes))
        for x, first, last in zip(given, cuts, cuts[1:], strict=False):
            some = x[group.here, -min(rows, count) :]
            more[-min(rows, count) :, first:last, : group.used] = some.transpose(1, 2, 0)
        none = np.zeros((states.shape[1], members.lanes))
        found, after = sweep.through(group, more, sweep.shared(group), none)
        states[group.here] = after[:, : group.used].T
        if timed and found is not None:
            steps[group.here] = found[:, :, : group.used].transpose(2, 0, 1)

    members.each(one)
    width, of_carry, of_row = op.start_columns(members.taken(0))
    weight = np.zeros((size, width))
    weight[:, of_carry] += states[:, :kept]
    if rows > count:  # the first row is kept
        weight[:, of_row[list(columns)]] += np.concatenate([x[:, 0] for x in given], axis=1)
    start = op.start_change(members.taken, sweep.starts(), weight, reverse=True)
    doubles = flat([x[0] for x in members.doubles]).size
    start[:, start.shape[1] - doubles :] += states[:, kept:]
    start[sweep.lost] = np.nan
    dims = op.setup.dims
    ends = np.cumsum([1, dims.size, dims.n, 1, *(np.size(x[0]) for x in members.doubles)])[:-1]
    t0, q, v, h, *parts = np.split(start, ends, axis=1)
    times, sizes = steps[:, :, 0], steps[:, :, 1].copy()
    sizes[:, 0] += h[:, 0]
    shaped = [np.reshape(x, np.shape(y)) for x, y in zip(parts, members.doubles, strict=True)]
    return asked.chosen([t0[:, 0], np.zeros(size), q, v, times, sizes, *shaped])
