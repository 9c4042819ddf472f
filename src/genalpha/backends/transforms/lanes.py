"""Batches of runs with given steps as operations of JAX: members side by side in vector registers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.batch.pool import Pool
from genalpha.backends.native.code import StepCode, aligned
from genalpha.backends.native.kernels import Kernels
from genalpha.backends.native.tape import Adjoint, Derivative, Tangent, flat
from genalpha.backends.native.writer import PIVOT
from genalpha.backends.transforms.operation import Arrays, Asked
from genalpha.backends.transforms.records import NUMBERS, Taken
from genalpha.compiler import machine
from genalpha.engine import step_choice
from genalpha.engine.start import RunStart
from genalpha.numerics import codes

if TYPE_CHECKING:
    from genalpha.backends.transforms.runs import GivenRun


class _Group(NamedTuple):
    """Some members: their numbers (lanes,), padded with the last one, a tape (N+1, W, lanes), their end."""

    here: np.ndarray
    table: np.ndarray
    status: np.ndarray
    taken: np.ndarray


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
        self._places = flat([step.start_places, step.output[:2], step.args])
        self.args = self._wide(self.doubles)
        self._first = np.concatenate([self._wide([step.start_values(start), state[-2:]]), self.args], axis=1)

    def _wide(self, tree: Any) -> np.ndarray:
        """All numbers of every member (size, ...)."""
        parts = [np.reshape(x, (self.size, -1)) for x in jax.tree.leaves(tree)]
        return np.concatenate([np.zeros((self.size, 0)), *parts], axis=1)

    def _statuses(self) -> np.ndarray:
        """The status of every start."""
        op, found = self.op, np.asarray(self.start.status).astype(int)
        if op.setup.system.space.rotations:
            defects = op.defects(self.q, self.lanes)
            rotated = np.array([codes.not_a_rotation(x) for x in defects])
            found = np.where(rotated != codes.SUCCESS, rotated, found)
        bad = ~np.asarray(self.start.consistent).astype(bool) & (found == codes.SUCCESS) & op.strict
        found = np.where(bad, codes.INCONSISTENT, found)
        fitting = step_choice.fitting((self.t0, self.t1), self.times, self.sizes)
        return found if fitting else np.full(len(found), codes.BAD_STEPS)

    def groups(self) -> list[np.ndarray]:
        """The numbers of members that run side by side, the last one repeated in lanes that are left."""
        which = np.flatnonzero(~self.alone)
        cuts = range(0, len(which), self.lanes)
        return [which[np.minimum(np.arange(first, first + self.lanes), len(which) - 1)] for first in cuts]

    def run(self, here: np.ndarray) -> _Group:
        """Take all steps of some members."""
        step, lanes = self.op.step, self.lanes
        work = aligned(self.code.numbers)
        slots = work[: self.code.program.slots * lanes].reshape(-1, lanes)
        slots[self._places] = self._first[here].T
        slots[step.flags["alive"]] = 1.0
        count, width = len(self.sizes), len(step.row)
        table = np.full((count + 1, width, lanes), np.nan)
        table[0] = slots[step.row.start : step.row.stop]
        lists = [np.ascontiguousarray(x, dtype=float) for x in (self.times, self.sizes)]
        arrays = [work, *lists, np.arange(count)]
        self.code.steps(*(x.ctypes.data for x in arrays), table[1:].ctypes.data, 0, count)
        status, taken = (slots[i].astype(int) for i in (step.status, step.taken))
        for lane in np.flatnonzero(taken < count):
            table[taken[lane] + 1 :, :, lane] = np.nan
        return _Group(here, table, status, taken)

    def taken(self, i: int) -> Taken:
        """Member i without a tape, for the start alone."""
        doubles = [x[i] for x in self.doubles]
        return Taken(
            self.t0, self.q[i], self.v[i], doubles, self.times, self.sizes, self.scale[i], lambda backward: []
        )


def values(members: LaneMembers, asked: Asked, more: Arrays) -> list[np.ndarray]:
    """The outputs of all members."""
    op, size, count = members.op, members.size, len(members.sizes)
    shapes = op.shapes([(), (), members.q.shape[1:], members.v.shape[1:], (count,), (count,)])
    outs = [np.zeros((size, *s)) for s in shapes]
    parts = len(op.parts)

    def one(here: np.ndarray) -> None:
        group = members.run(here)
        shown = group.table[:, : op.layout.plain].transpose(2, 0, 1).copy()
        shown[:, 0] = members.start.row[here]
        members.alone[here[group.status == PIVOT]] = True
        for out, at in zip(outs, op.parts, strict=False):
            out[here] = shown[:, op.kept, at]
        last = np.maximum(group.taken - 1, 0)
        ends = np.where(group.taken > 0, members.times[last] + members.sizes[last], members.t0)
        totals = np.nansum(op.layout.report(shown[:, 1:]), axis=1)
        zero = np.zeros(len(here))
        numbers = (group.status, group.taken, zero, ends, np.asarray(members.start.t_alpha)[here], *totals.T)
        for out, x in zip(outs[parts : parts + len(NUMBERS)], numbers, strict=True):
            out[here] = x
        outs[-1][here] = members.scale[here]

    with Pool() as pool:
        pool.map(one, members.groups())
    return asked.chosen(outs)


class _Sweep:
    """Derivatives of all members along their tapes, group by group."""

    def __init__(self, members: LaneMembers, kind: type[Derivative]) -> None:
        self.members, self.op, self.kind = members, members.op, kind
        self.failed = np.zeros(members.size, bool)

    def through(self, group: _Group, more: np.ndarray, shared: np.ndarray, state: np.ndarray) -> Any:
        """Go through the steps of a group; members whose pivots are bad must run alone."""
        members, op, here = self.members, self.op, group.here
        rows = op.tape.inputs(group.table, members.times, members.sizes)
        backward = self.kind is Adjoint
        rows, more = (rows[::-1], more[::-1]) if backward else (rows, more)
        order = op.order(rows[:, :, 0], shared[: len(op.tape.scale) + len(op.tape.doubles), 0])
        if order is None:  # no order is good: each member finds its own
            members.alone[here] = True
            return np.zeros((len(rows), self.kind.width(op.tape), len(here))), state
        code = op.derivative(self.kind, order)
        found, after = code.run(np.concatenate([rows, more], axis=1), shared, state)
        lost = (group.taken < len(rows)) & (group.status != PIVOT)
        self.failed[here[lost]] = True
        bad = (found[:, -1] == 0).any(axis=0) | (group.status == PIVOT)
        members.alone[here[bad & ~lost]] = True
        return (found[::-1] if backward else found)[:, :-1], after

    def shared(self, here: np.ndarray) -> np.ndarray:
        return np.concatenate([self.members.scale[here], self.members.args[here]], axis=1).T

    def starts(self) -> np.ndarray:
        """The inputs of all starts."""
        members = self.members
        same = [np.full((members.size, 1), x) for x in (members.t0, members.sizes[0])]
        return np.concatenate([same[0], members.q, members.v, same[1], members.args], axis=1)


def tangents(members: LaneMembers, asked: Asked, changes: Arrays) -> list[np.ndarray]:
    """The changes of the records of all members."""
    op, size, sweep = members.op, members.size, _Sweep(members, Tangent)
    t0, _, q, v, times, sizes, *doubles = changes
    wide = [np.reshape(x, (size, -1)) for x in (t0, q, v, sizes[:, 0], *doubles)]
    _, of_carry, of_row = op.start_columns(members.taken(0))
    begun = op.start_change(members.taken, sweep.starts(), np.concatenate(wide, axis=1), reverse=False)
    rows = len(range(len(members.sizes) + 1)[op.kept])
    table = np.full((size, rows, op.tape.width), np.nan)
    of_args = np.concatenate([np.zeros((size, 0)), *wide[4:]], axis=1)

    def one(here: np.ndarray) -> None:
        shared = np.concatenate([sweep.shared(here), of_args[here].T])
        more = np.stack([times[here].T, sizes[here].T], axis=1)
        found, _ = sweep.through(members.run(here), more, shared, begun[here][:, of_carry].T.copy())
        every = np.concatenate([begun[here][:, None, of_row], found.transpose(2, 0, 1)], axis=1)
        table[here] = every[:, op.kept]

    with Pool() as pool:
        pool.map(one, members.groups())
    table[sweep.failed | (members.status != codes.SUCCESS)] = np.nan
    return asked.chosen([table[:, :, at] for at in op.parts[:-1]])


def cotangents(members: LaneMembers, asked: Asked, weights: Arrays) -> list[np.ndarray]:
    """The derivatives with respect to all inputs of all members."""
    op, size, sweep = members.op, members.size, _Sweep(members, Adjoint)
    table, count = np.concatenate(weights, axis=2), len(op.tape.carry)
    states = np.zeros((size, count + len(op.tape.doubles)))
    steps = np.zeros((size, len(members.sizes), 2))

    def one(here: np.ndarray) -> None:
        every = np.zeros((len(here), len(members.sizes) + 1, op.tape.width))
        every[:, op.kept] = table[here]
        more = every[:, 1:].transpose(1, 2, 0)
        none = np.zeros((states.shape[1], len(here)))
        found, after = sweep.through(members.run(here), more, sweep.shared(here), none)
        steps[here], states[here] = found.transpose(2, 0, 1), after.T

    with Pool() as pool:
        pool.map(one, members.groups())
    width, of_carry, of_row = op.start_columns(members.taken(0))
    weight = np.zeros((size, width))
    weight[:, of_carry] += states[:, :count]
    if table.shape[1] > 1:  # the first row is kept
        weight[:, of_row] += table[:, 0]
    start = op.start_change(members.taken, sweep.starts(), weight, reverse=True)
    doubles = flat([x[0] for x in members.doubles]).size
    start[:, start.shape[1] - doubles :] += states[:, count:]
    start[sweep.failed | (members.status != codes.SUCCESS)] = np.nan
    dims = op.setup.dims
    cuts = np.cumsum([1, dims.size, dims.n, 1, *(np.size(x[0]) for x in members.doubles)])[:-1]
    t0, q, v, h, *parts = np.split(start, cuts, axis=1)
    times, sizes = steps[:, :, 0], steps[:, :, 1].copy()
    sizes[:, 0] += h[:, 0]
    found = [t0[:, 0], np.zeros(size), q, v, times, sizes]
    return asked.chosen(found + [np.reshape(x, np.shape(y)) for x, y in zip(parts, members.doubles, strict=True)])
