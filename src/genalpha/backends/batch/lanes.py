"""Batches on the CPU: systems side by side in the lanes of vector registers, groups of them on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from genalpha.backends import loop
from genalpha.backends.batch.plan import BatchPlan, Members, Results, begun_status, paced_inputs, paced_status
from genalpha.backends.native import kernels as native
from genalpha.backends.native.controlled_step import ControlledKernels
from genalpha.backends.native.step import PIVOT, StepKernels
from genalpha.backends.xla import given as xla
from genalpha.compiler import machine
from genalpha.engine.step import Setup
from genalpha.mechanics import start_errors
from genalpha.numerics import codes

# Systems that are begun and run together at most, bytes that their slots may take, and rows that are
# evaluated at a time: enough for all cores, little memory.
CHUNK, MEMORY, ROWS = 4096, 2**27, 4096


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(
    setup: Setup,
    kernels: native.Kernels,
    members: Members,
    plan: BatchPlan,
    begun: Callable[[Members], Any] | None,
) -> Iterator[Results]:
    """All members, a chunk at a time. ``begun`` starts them where their start has no scalar form."""
    code = kernels.code(machine.lanes())
    fitting = MEMORY // (8 * code.program.slots * code.lanes) * code.lanes
    chunk = max(code.lanes, min(CHUNK, fitting))
    with ThreadPoolExecutor(cores()) as pool:
        for first in range(0, len(members), chunk):
            yield _chunk(kernels, code, members[first : first + chunk], plan, begun, pool)


def _chunk(
    kernels: native.Kernels,
    code: native.StepCode,
    members: Members,
    plan: BatchPlan,
    begun: Callable[[Members], Any] | None,
    pool: ThreadPoolExecutor,
) -> Results:
    count, steps = len(members), plan.steps
    if kernels.start is None:
        assert begun is not None
        start, trusted = begun(members), np.ones(count, dtype=bool)
    else:
        shared = jax.tree.map(lambda x: np.asarray(x, dtype=float)[None], plan.first)
        columns = (np.array([steps.t[0]]), members.q, members.v, shared, members.doubles)
        start, trusted = kernels.map(kernels.start, code.lanes)(columns)
    first_status = begun_status(plan, start.status, start.consistent)
    groups = _Groups(kernels.step, code, plan, members, start, first_status == codes.SUCCESS)
    table = np.empty((count, plan.rows, len(kernels.step.row)))
    share = max(1, len(groups) // (8 * cores()))
    firsts = range(0, len(groups), share)
    list(pool.map(lambda first: groups.run(range(first, min(first + share, len(groups))), table), firsts))
    status, taken, totals, rejected, t_end = groups.summary()
    if plan.aim is None:
        table[plan.kept > taken[:, None]] = np.nan
    elif plan.t_eval is None:
        table[status != codes.SUCCESS] = np.nan
    if plan.has_start:
        table[:, 0] = plan.start(kernels.step.setup, start.row)
    some = max(1, ROWS // len(plan.times))
    slices = [slice(first, first + some) for first in range(0, count, some)]
    parts = pool.map(lambda at: derive(kernels, table[at], members[at], plan, start, at), slices)
    table, derived, good = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    trusted &= _alike(kernels, start) & (status != PIVOT) & (good | np.isnan(table[..., 0])).all(axis=1)
    status = np.where(first_status != codes.SUCCESS, first_status, status)
    return Results(table, derived, start.t_alpha, status, t_end, trusted, taken, totals, rejected)


def _alike(kernels: native.Kernels, start: native.RunStart) -> Any:
    """Members whose accelerations are found in the way of the first one.

    Where its mass matrix is singular, they follow from the constraints; others must not do so.
    """
    if not kernels.massless or kernels.step.setup.system.constant_mass:
        return True
    return np.array([start_errors.is_singular(M) for M in start.begin.M])


class _Groups:
    """Members in groups of as many as there are lanes, each group with an array of slots of its own."""

    def __init__(
        self,
        step: StepKernels,
        code: native.StepCode,
        plan: BatchPlan,
        members: Members,
        start: native.RunStart,
        alive: np.ndarray,
    ) -> None:
        self.step, self.code, self.plan, self.count = step, code, plan, len(members)
        lanes, slots = code.lanes, code.program.slots
        groups = -(-self.count // lanes)
        self.work = native.aligned(groups * slots * lanes).reshape(groups, slots, lanes)
        multipliers = start.begin.state[-2:]
        places = (step.carry, step.scale, step.args, step.parabola[0], step.output[:2])
        values = (start.carry, start.begin.scale, members.doubles, start.x, multipliers)
        for place, value in zip(jax.tree.leaves(places), jax.tree.leaves(values), strict=True):
            self.work[:, place.reshape(-1)] = self._side_by_side(value)
        self.work[:, step.flags["alive"]] = self._side_by_side(alive)[:, 0]
        self.work[-1, step.flags["alive"], self.count - (groups - 1) * lanes :] = 0.0
        if isinstance(step, ControlledKernels):
            for place, value in paced_inputs(step, plan):
                self.work[:, place] = np.reshape(value, (-1, 1))
            assert start.pace is not None
            for place, value in zip(step.pace, start.pace, strict=True):
                self.work[:, place] = self._side_by_side(value)[:, 0]
        self.begun = self.work[:, step.flags["alive"]].copy()
        self.lists = (plan.listed, plan.steps.h, plan.row_of)

    def __len__(self) -> int:
        return len(self.work)

    def _side_by_side(self, values: np.ndarray) -> np.ndarray:
        """Values of members (B, ...) as (groups, numbers, lanes); the last member fills the last group."""
        lanes = self.code.lanes
        flat = np.asarray(values, dtype=float).reshape(self.count, -1)
        missing = -self.count % lanes
        full = np.concatenate([flat, np.repeat(flat[-1:], missing, axis=0)]) if missing else flat
        return full.reshape(len(full) // lanes, lanes, flat.shape[1]).swapaxes(1, 2)

    def run(self, groups: range, table: np.ndarray) -> None:
        """All steps of some groups; what is kept of them goes to the table (B, K, width)."""
        step, lanes, steps, lists = self.step, self.code.lanes, self.code.steps, self.lists
        for group in groups:
            work, rows = self.work[group], np.full((self.plan.rows, len(step.row), lanes), np.nan)
            arrays = tuple(x.ctypes.data for x in (work, *lists, rows))
            if isinstance(step, ControlledKernels):
                while work[step.flags["alive"]].any():
                    steps(*arrays, 0, loop.BLOCK)
            else:
                for first in range(0, len(lists[1]), loop.BLOCK):
                    steps(*arrays, first, min(first + loop.BLOCK, len(lists[1])))
            here = slice(group * lanes, min((group + 1) * lanes, self.count))
            table[here] = rows.transpose(2, 0, 1)[: here.stop - here.start]

    def summary(self) -> tuple[np.ndarray, ...]:
        """Status, steps, Newton's totals (B, 3), rejected steps and times of all members at the end."""
        step, work, plan = self.step, self.work, self.plan
        members = lambda x: x.reshape(-1)[: self.count]
        taken = members(work[:, step.taken])
        totals = np.stack([members(work[:, int(slot)]) for slot in step.totals], axis=1)
        if not isinstance(step, ControlledKernels):
            return (
                members(work[:, step.status]),
                taken,
                totals,
                np.zeros(self.count),
                plan.ends[taken.astype(int)],
            )
        status = paced_status(step, plan, work.swapaxes(0, 1)) * self.begun
        return (
            members(status),
            taken,
            totals,
            members(work[:, step.pace.rejected]),
            members(work[:, step.pace.t]),
        )


def derive(
    kernels: native.Kernels,
    table: np.ndarray,
    members: Members,
    plan: BatchPlan,
    start: native.RunStart,
    at: slice,
) -> tuple[np.ndarray, xla.Derived, np.ndarray]:
    """The rows of the solution (B, K, width), what follows from them, and where it is good (B, K).

    ``start`` is that of all members, of which these are those ``at`` some place.
    """
    setup, count, kept = kernels.step.setup, len(table), len(plan.times)
    flat = lambda x: np.broadcast_to(x, (count, kept, *x.shape[2:])).reshape(count * kept, *x.shape[2:])
    repeated = lambda x: np.repeat(np.asarray(x), kept, axis=0)
    shape = lambda x: x.reshape(count, kept, *x.shape[1:])
    fixed = jax.tree.map(repeated, (jax.tree.map(lambda x: x[at], start.begin.scale), members.doubles))
    times = np.tile(plan.times, count)
    if plan.t_eval is None:
        assert kernels.derive is not None
        rows = xla.columns(setup, table.reshape(count * kept, -1), None)
        arguments = (times, rows.q, rows.v, rows.lam, rows.psi, *fixed)
        found, good = kernels.map(kernels.derive, machine.lanes())(arguments)
        return table, jax.tree.map(shape, found), shape(good)
    assert kernels.sample is not None
    before, after, table = plan.around(setup, table, start.begin.state.v[at, None], axis=1)
    arguments = (*jax.tree.map(flat, (before, after)), times, *fixed)
    (there, found), good = jax.tree.map(shape, kernels.map(kernels.sample, machine.lanes())(arguments))
    table = np.array(table)
    xla.put(setup, table, there)
    return table, found, good
