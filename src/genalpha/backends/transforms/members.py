"""Batches of runs with given steps as operations of JAX, whoever runs the members."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.native.kernels import Kernels
from genalpha.backends.native.tape import Adjoint, Derivative, Tangent, TapeSteps
from genalpha.backends.native.writer import PIVOT
from genalpha.backends.transforms.operation import Arrays, Asked
from genalpha.backends.transforms.records import NUMBERS, Taken
from genalpha.compiler import machine
from genalpha.engine import step_choice
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED

if TYPE_CHECKING:
    from genalpha.backends.transforms.runs import GivenRun


class Passed(NamedTuple):
    """What a derivative along tapes has found: whether pivots were good (n,), and the last states (n, S).

    ``rows(K)`` returns the results (n, K, ...) for the last K steps.
    """

    good: np.ndarray
    state: np.ndarray
    rows: Callable[[int], np.ndarray]


class MemberGroup(ABC):
    """Some members that have taken their steps, and their tapes.

    ``those`` (n,) are their numbers, and ``here`` is an index of them. ``status`` and ``taken`` (n,) say how
    they ended.
    """

    those: np.ndarray
    here: slice | np.ndarray
    status: np.ndarray
    taken: np.ndarray

    def choose(self, those: np.ndarray) -> None:
        self.those = those
        self.here = slice(those[0], those[-1] + 1) if those[-1] - those[0] < len(those) else those

    @abstractmethod
    def rows(self, columns: slice, count: int) -> np.ndarray:
        """Columns (n, K, ...) of the last ``count`` records; NaN in those that were not reached."""

    @property
    @abstractmethod
    def steps(self) -> TapeSteps:
        """The tape. Only its first lane counts."""

    @abstractmethod
    def through(self, code: Derivative, more: Arrays, changes: np.ndarray, state: np.ndarray) -> Passed:
        """Go through the tapes from states (n, S).

        ``more`` are numbers (n, K, ...) for the last K steps, and zero for those before. ``changes`` (n, ...)
        are those of the arguments.
        """


class RunMembers(ABC):
    """The members of a batch, of which q, v and the arguments may differ.

    ``status`` (B,) is that of their starts, ``alone`` says which of them must run by themselves. ``row``,
    ``t_alpha`` and ``scale`` (B, ...) belong to the starts. They are known after :meth:`each`.
    """

    status: np.ndarray
    alone: np.ndarray
    row: np.ndarray
    t_alpha: np.ndarray
    scale: np.ndarray

    def __init__(
        self, operation: GivenRun, made: Kernels, size: int, inputs: Arrays, own: Sequence[bool]
    ) -> None:
        self.op, self.made, self.size, self.count = operation, made, size, len(inputs[5])
        wide = [
            np.asarray(x) if yes else np.broadcast_to(x, (size, *np.shape(x)))
            for x, yes in zip(inputs, own, strict=True)
        ]
        self.t0, self.t1, self.times, self.sizes = float(inputs[0]), inputs[1], inputs[4], inputs[5]
        self.q, self.v, self.doubles = wide[2], wide[3], wide[6:]
        self.args = self.wide(self.doubles)

    @abstractmethod
    def each(self, work: Callable[[Any], None], rows: int) -> None:
        """Run all members, in groups, and call ``work`` after each. The last ``rows`` records are kept."""

    def start_change(self, more: np.ndarray, reverse: bool) -> np.ndarray:
        """Changes of the results of starts (B, ...), or in ``reverse`` the derivatives to their inputs."""
        return self.op.start_change(self.taken, self.starts(), more, reverse)

    def wide(self, tree: Any) -> np.ndarray:
        """All numbers of every member (B, ...)."""
        parts = [np.reshape(x, (self.size, -1)) for x in jax.tree.leaves(tree)]
        return np.concatenate([np.zeros((self.size, 0)), *parts], axis=1)

    def statuses(self, status: Any, consistent: Any, q: np.ndarray) -> np.ndarray:
        """The status of some starts, from what they have found."""
        op, found = self.op, np.asarray(status).astype(int)
        if op.setup.system.space.rotations:
            rotated = codes.not_a_rotation(op.defects(q, machine.lanes()))
            found = np.where(rotated != codes.SUCCESS, rotated, found)
        bad = ~np.asarray(consistent).astype(bool) & (found == codes.SUCCESS) & op.strict
        found = np.where(bad, codes.INCONSISTENT, found)
        fitting = step_choice.fitting((self.t0, self.t1), self.times, self.sizes)
        return found if fitting else np.full(len(found), codes.BAD_STEPS)

    def taken(self, i: int) -> Taken:
        """Member i without a tape, for the start alone."""
        doubles, none = [x[i] for x in self.doubles], np.zeros(0)
        return Taken(
            self.t0, self.q[i], self.v[i], doubles, self.times, self.sizes, none, lambda backward: []
        )

    def starts(self) -> np.ndarray:
        """The inputs of all starts."""
        same = [np.full((self.size, 1), x) for x in (self.t0, self.sizes[0])]
        return np.concatenate([same[0], self.q, self.v, same[1], self.args], axis=1)

    @property
    def rows(self) -> int:
        """The number of rows that are kept."""
        return len(range(self.count + 1)[self.op.kept])


def values(members: RunMembers, asked: Asked, more: Arrays) -> list[np.ndarray]:
    """The wanted outputs of all members."""
    op, size, count = members.op, members.size, members.count
    shapes = op.shapes([(), (), members.q.shape[1:], members.v.shape[1:], (count,), (count,)])
    parts, rows = len(op.parts), members.rows
    last = min(rows, count)
    outs = [
        np.empty((size, *s)) if yes else None for s, yes in zip(shapes[:parts], asked.wanted, strict=False)
    ]
    wanted = [(at, out) for at, out in zip(op.parts, outs, strict=True) if out is not None]
    counted = any(asked.wanted[parts + len(NUMBERS) - len(COUNTED) : -1])
    status, taken, totals = np.zeros(size), np.zeros(size, int), np.zeros((size, len(COUNTED)))

    def one(group: MemberGroup) -> None:
        members.alone[group.those[group.status == PIVOT]] = True
        for at, out in wanted:
            out[group.here, -last:] = group.rows(at, last)
        status[group.here], taken[group.here] = group.status, group.taken
        if counted:
            totals[group.here] = np.nansum(group.rows(op.parts[-1], count), axis=1)

    members.each(one, count + 1 if counted else rows)
    if rows > count:  # the start
        for at, out in wanted:
            out[:, 0] = members.row[:, at]
    end = np.maximum(taken - 1, 0)
    ends = np.where(taken > 0, members.times[end] + members.sizes[end], members.t0)
    numbers = (status, taken, np.zeros(size), ends, members.t_alpha, *totals.T)
    found = [*outs, *(np.array(x, dtype=float) for x in numbers), members.scale]
    return [np.asarray(x) for x in asked.chosen(found)]


class _Sweep:
    """Derivatives of all members along their tapes, group by group."""

    def __init__(
        self, members: RunMembers, kind: type[Derivative], which: Sequence[bool], timed: bool
    ) -> None:
        self.members, self.kind, self.timed = members, kind, timed
        parts = [at for at, yes in zip(members.op.parts, which, strict=False) if yes]
        self.columns = tuple(i for at in parts for i in range(at.start, at.stop))
        self.cuts = np.cumsum([at.stop - at.start for at in parts])[:-1]
        self.failed = np.zeros(members.size, bool)

    def through(
        self, group: MemberGroup, more: Arrays, changes: np.ndarray, state: np.ndarray
    ) -> Passed | None:
        """Go through the tapes of a group; members whose pivots are bad must run alone."""
        members, op, those = self.members, self.members.op, group.those
        fixed = np.concatenate([members.scale[those[0]], members.args[those[0]]])
        order = op.order(group.steps, fixed)
        if order is None:  # no order is good: each member finds its own
            members.alone[those] = True
            return None
        found = group.through(op.derivative(self.kind, order, self.columns, self.timed), more, changes, state)
        lost = (group.taken < members.count) & (group.status != PIVOT)
        self.failed[those[lost]] = True
        bad = ~found.good | (group.status == PIVOT)
        members.alone[those[bad & ~lost]] = True
        return found

    @property
    def lost(self) -> np.ndarray:
        """Members that have no derivatives."""
        return self.failed | (self.members.status != codes.SUCCESS)


def tangents(members: RunMembers, asked: Asked, changes: Arrays) -> list[np.ndarray]:
    """The wanted changes of the records of all members."""
    op, size, rows = members.op, members.size, members.rows
    sweep = _Sweep(members, Tangent, asked.wanted, any(asked.given[4:6]))
    t0, _, q, v, times, sizes, *doubles = changes
    wide = [np.reshape(x, (size, -1)) for x in (t0, q, v, sizes[:, 0], *doubles)]
    _, of_carry, of_row = op.start_columns(members.taken(0))
    begun = members.start_change(np.concatenate(wide, axis=1), reverse=False)
    table = np.full((size, rows, len(sweep.columns)), np.nan)
    of_args, of_carries, last = members.wide(wide[4:]), begun[:, of_carry], min(rows, members.count)
    of_steps = np.stack([times, sizes], axis=2) if sweep.timed else None

    def one(group: MemberGroup) -> None:
        more = [] if of_steps is None else [of_steps[group.here]]
        found = sweep.through(group, more, of_args[group.here], of_carries[group.here])
        if found is not None:
            table[group.here, -last:] = found.rows(last)

    members.each(one, members.count + 1)
    if rows > members.count:
        table[:, 0] = begun[:, of_row[list(sweep.columns)]]
    table[sweep.lost] = np.nan
    return np.split(table, sweep.cuts, axis=2)


def cotangents(members: RunMembers, asked: Asked, weights: Arrays) -> list[np.ndarray]:
    """The wanted derivatives with respect to the inputs of all members."""
    op, size, count, rows = members.op, members.size, members.count, members.rows
    sweep = _Sweep(members, Adjoint, asked.given, any(asked.wanted[4:6]))
    kept, doubles = len(op.tape.carry), len(op.tape.doubles)
    given = [x for x, yes in zip(weights, asked.given, strict=True) if yes]
    later = [x[:, -min(rows, count) :] for x in given]
    states = np.zeros((size, kept + doubles))
    steps = np.zeros((size, count if sweep.timed else 1, 2))

    def one(group: MemberGroup) -> None:
        more, none = [x[group.here] for x in later], np.zeros((len(group.those), kept + doubles))
        found = sweep.through(group, more, none[:, :0], none)
        if found is not None:
            states[group.here] = found.state
        if found is not None and sweep.timed:
            steps[group.here] = found.rows(count)

    members.each(one, count + 1)
    width, of_carry, of_row = op.start_columns(members.taken(0))
    weight = np.zeros((size, width))
    weight[:, of_carry] += states[:, :kept]
    if rows > count:  # the first row is kept
        weight[:, of_row[list(sweep.columns)]] += np.concatenate([x[:, 0] for x in given], axis=1)
    start = members.start_change(weight, reverse=True)
    start[:, start.shape[1] - doubles :] += states[:, kept:]
    start[sweep.lost] = np.nan
    dims = op.setup.dims
    ends = np.cumsum([1, dims.size, dims.n, 1, *(np.size(x[0]) for x in members.doubles)])[:-1]
    t0, q, v, h, *parts = np.split(start, ends, axis=1)
    times, sizes = steps[:, :, 0], steps[:, :, 1].copy()
    sizes[:, 0] += h[:, 0]
    shaped = [np.reshape(x, np.shape(y)) for x, y in zip(parts, members.doubles, strict=True)]
    return asked.chosen([t0[:, 0], np.zeros(size), q, v, times, sizes, *shaped])


COMPUTED = {"value": values, "tangent": tangents, "cotangent": cotangents}
