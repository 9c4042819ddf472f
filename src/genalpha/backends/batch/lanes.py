"""Batches on the CPU: several systems in the lanes of vector registers, and groups of them on all cores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from genalpha.backends import sampling
from genalpha.backends.batch.plan import BatchPlan, HostRecords, Members, Results, begun_status
from genalpha.backends.batch.pool import Pool, cores
from genalpha.backends.native.code import StepCode, aligned
from genalpha.backends.native.kernels import Kernels
from genalpha.backends.native.step import StepKernels
from genalpha.backends.native.writer import PIVOT
from genalpha.backends.rowwise import Rowwise
from genalpha.compiler import machine
from genalpha.engine import row
from genalpha.engine.start import RunStart
from genalpha.numerics import codes

# The most systems that run together, the most bytes of their slots, and the most rows that are evaluated at a
# time. This is enough for all cores and takes little memory.
CHUNK, MEMORY, ROWS = 4096, 2**27, 4096


def run(
    kernels: Kernels,
    members: Members,
    plan: BatchPlan,
    begun: Callable[[Members], RunStart],
    done: Callable[[int], None],
) -> Results:
    """Run all members, one chunk at a time. ``begun`` starts them if their start has no scalar form.

    ``done`` is called with the number of members of each finished chunk.
    """
    code, setup = kernels.code(machine.lanes(), shared=members.shared), kernels.step.setup
    fitting = MEMORY // (8 * code.numbers) * code.lanes
    chunk = max(code.lanes, min(CHUNK, fitting))
    table = np.empty((len(members), len(plan.times), plan.steps.width(row.layout(setup))))
    parts = []
    with Pool() as pool:
        for first in range(0, len(members), chunk):
            here = slice(first, first + chunk)
            parts.append(_chunk(kernels, members[here], plan, begun, pool, table[here]))
            done(len(table[here]))
    return Results.joined(HostRecords(table), parts)


def _chunk(
    kernels: Kernels,
    members: Members,
    plan: BatchPlan,
    begun: Callable[[Members], RunStart],
    pool: Pool,
    table: np.ndarray,
) -> Results:
    """Run some members. The rows of the solution go to the table (B, K, width)."""
    code, count = kernels.code(machine.lanes(), shared=members.shared), len(members)
    if kernels.start is None:
        start, trusted = begun(members), np.ones(count, dtype=bool)
    else:
        shared = jax.tree.map(lambda x: np.asarray(x, dtype=float)[None], plan.steps.first)
        columns = (np.array([plan.t0]), members.q, members.v, shared, members.doubles)
        start, trusted = kernels.start.code(code.lanes)(columns)
    first_status = begun_status(plan, start.status, start.consistent)
    groups = _Groups(kernels.step, code, plan, members, start, first_status == codes.SUCCESS)
    records = table if plan.t_eval is None else np.empty((count, plan.records, len(kernels.step.row)))
    share = max(1, len(groups) // (8 * cores()))
    firsts = range(0, len(groups), share)
    share_of = lambda first: range(first, min(first + share, len(groups)))
    pool.map(lambda first: groups.run(share_of(first), records, pool.proceed), firsts)
    found = plan.summary(kernels.step, groups.slot)
    records[np.broadcast_to(plan.unreached(found), records.shape[:2])] = np.nan
    if plan.has_start:
        records[:, 0] = plan.start(row.layout(kernels.step.setup), start.row)
    if plan.t_eval is not None:
        some = max(1, ROWS // len(plan.times))
        slices = [slice(first, first + some) for first in range(0, count, some)]
        v0 = start.begin.state.v[:, None]
        pool.map(lambda at: _sample(kernels, plan, records[at], v0[at], table[at]), slices)
    trusted &= found.status != PIVOT
    status = np.where(first_status != codes.SUCCESS, first_status, found.status)
    return Results(None, found._replace(status=status), start.t_alpha, trusted, start.begin.scale)


class _Groups:
    """Members in groups of one per lane. Each group has its own array of slots."""

    def __init__(
        self,
        step: StepKernels,
        code: StepCode,
        plan: BatchPlan,
        members: Members,
        start: RunStart,
        alive: np.ndarray,
    ) -> None:
        self.step, self.code, self.plan, self.count = step, code, plan, len(members)
        lanes = code.lanes
        groups = -(-self.count // lanes)
        wide = -(-code.numbers // lanes)  # what the lanes share is in further rows
        self.work = aligned(groups * wide * lanes).reshape(groups, wide, lanes)
        self._share(members)
        places = (step.start_places, step.output[:2])
        values = (step.start_values(start), start.begin.state[-2:])  # and λ, ψ
        for place, value in zip(jax.tree.leaves(places), jax.tree.leaves(values), strict=True):
            self.work[:, np.reshape(place, -1)] = self._side_by_side(value)
        self.work[:, step.flags["alive"]] = self._side_by_side(alive)[:, 0]
        self.work[-1, step.flags["alive"], self.count - (groups - 1) * lanes :] = 0.0
        for place, value in plan.inputs(step):
            self.work[:, place] = np.reshape(value, (-1, 1))
        self.lists = plan.lists

    def __len__(self) -> int:
        return len(self.work)

    def _share(self, members: Members) -> None:
        """Write the arguments: in each lane, or once for all lanes of a group."""
        shared = np.zeros(self.code.program.slots)
        for place, value, same in zip(self.step.args, members.doubles, members.shared, strict=True):
            if same:
                shared[place.reshape(-1)] = value.reshape(-1)
            else:
                self.work[:, place.reshape(-1)] = self._side_by_side(value)
        rest = np.setdiff1d(self.step.slots_of(members.shared), self.code.common).astype(int)
        self.work[:, rest] = shared[rest][:, None]
        flat, start = self.work.reshape(len(self.work), -1), self.code.program.slots * self.code.lanes
        flat[:, start : start + len(self.code.common)] = shared[self.code.common]

    def _side_by_side(self, values: np.ndarray) -> np.ndarray:
        """Values of members (B, ...) as (groups, numbers, lanes), padded with the last member."""
        lanes = self.code.lanes
        flat = np.asarray(values, dtype=float).reshape(self.count, -1)
        missing = -self.count % lanes
        full = np.concatenate([flat, np.repeat(flat[-1:], missing, axis=0)]) if missing else flat
        return full.reshape(len(full) // lanes, lanes, flat.shape[1]).swapaxes(1, 2)

    def run(self, groups: range, table: np.ndarray, proceed: Callable[[], None]) -> None:
        """Take all steps of some groups. The records that are kept go to the table (B, K, width).

        ``proceed`` is called from time to time, and raises if the steps are no longer wanted.
        """
        step, lanes, steps = self.step, self.code.lanes, self.code.steps
        for group in groups:
            work, rows = self.work[group], np.full((self.plan.records, len(step.row), lanes), np.nan)
            arrays = tuple(x.ctypes.data for x in (work, *self.lists, rows))
            alive = work[step.flags["alive"]]

            def some(first: int, last: int, arrays: tuple[int, ...] = arrays) -> None:
                proceed()
                steps(*arrays, first, last)

            self.plan.drive(some, alive.any)
            here = slice(group * lanes, min((group + 1) * lanes, self.count))
            table[here] = rows.transpose(2, 0, 1)[: here.stop - here.start]

    def slot(self, number: int) -> np.ndarray:
        """The values (B,) of one slot."""
        return self.work[:, number].reshape(-1)[: self.count]


def _sample(kernels: Kernels, plan: BatchPlan, records: np.ndarray, v0: Any, table: np.ndarray) -> None:
    """Fill the table (B, K, width) with the motion at the times of the plan."""
    setup, count, kept = kernels.step.setup, len(records), len(plan.times)
    layout = row.layout(setup)
    flat = lambda x: np.broadcast_to(x, (count, kept, *x.shape[2:])).reshape(count * kept, *x.shape[2:])
    before, after, later = plan.around(layout, records, v0, axis=1)
    before, after = jax.tree.map(flat, (before, after))
    times = np.tile(plan.times, count)
    at = sampling.between(setup.system.space, before, after, times, machine.lanes())
    table[...] = later
    layout.put(table, jax.tree.map(lambda x: x.reshape(count, kept, *x.shape[1:]), at))


def in_parts(rowwise: Rowwise, arguments: Any) -> Any:
    """A function of many rows, in parts on all cores."""
    count = max(len(x) for x in jax.tree.leaves(arguments))
    if count <= ROWS or rowwise.rows is None:
        return rowwise(arguments, machine.lanes())
    cut = lambda first: jax.tree.map(lambda x: x if len(x) == 1 else x[first : first + ROWS], arguments)
    with Pool() as pool:
        run = lambda first: rowwise(cut(first), machine.lanes())
        parts = pool.map(run, range(0, count, ROWS))
    return jax.tree.map(lambda *blocks: np.concatenate(blocks), *parts)
