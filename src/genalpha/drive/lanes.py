"""Batches on the CPU: systems side by side in the lanes of vector registers, groups of them on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from genalpha import beginning, diagnose
from genalpha.advance import Setup
from genalpha.drive import host, native, xla
from genalpha.drive.plan import Members, Plan, Results, begun_status, paced_inputs, paced_status
from genalpha.kernels import machine
from genalpha.kernels.paced import PacedStep
from genalpha.kernels.step import PIVOT

# Systems that are begun and run together, and rows that are evaluated at a time: enough for all cores, little
# memory.
CHUNK, ROWS = 4096, 4096


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run(
    setup: Setup,
    kernels: native.Kernels,
    members: Members,
    plan: Plan,
    begun: Callable[[Members], Any] | None,
) -> Iterator[Results]:
    """All members, a chunk at a time. ``begun`` starts them where their start has no scalar form."""
    code = kernels.code(machine.lanes())
    with ThreadPoolExecutor(cores()) as pool:
        for first in range(0, len(members), CHUNK):
            yield _chunk(kernels, code, members[first : first + CHUNK], plan, begun, pool)


def _chunk(
    kernels: native.Kernels,
    code: native.Code,
    members: Members,
    plan: Plan,
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
    table = np.empty((count, plan.rows, len(kernels.step.row)))
    first_status = begun_status(plan, start.status, start.consistent)
    status, taken, totals = first_status.copy(), np.zeros(count), np.zeros((count, 3))
    rejected, t_end = np.zeros(count), np.full(count, steps.t[0])

    def part(firsts: range) -> None:
        for first in firsts:
            _group(
                kernels,
                code,
                members,
                plan,
                start,
                slice(first, first + code.lanes),
                table,
                (status, taken, totals, rejected, t_end),
            )

    firsts = range(0, count, code.lanes)
    share = max(1, len(firsts) // (8 * cores()))
    list(pool.map(part, [firsts[i : i + share] for i in range(0, len(firsts), share)]))
    if plan.aim is None:
        table[plan.kept > taken[:, None]] = np.nan
        t_end = plan.ends[taken.astype(int)]
    elif plan.t_eval is None:
        table[status != diagnose.SUCCESS] = np.nan
    if plan.has_start:
        table[:, 0] = plan.start(kernels.step.setup, start.row)
    some = max(1, ROWS // len(plan.times))
    slices = [slice(first, first + some) for first in range(0, count, some)]
    parts = pool.map(lambda at: derive(kernels, table[at], members[at], plan, start, at), slices)
    table, derived, good = jax.tree.map(lambda *x: np.concatenate(x), *parts)
    trusted &= _alike(kernels, start) & (status != PIVOT) & (good | np.isnan(table[..., 0])).all(axis=1)
    status = np.where(first_status != diagnose.SUCCESS, first_status, status)
    return Results(table, derived, start.t_alpha, status, t_end, trusted, taken, totals, rejected)


def _alike(kernels: native.Kernels, start: native.Start) -> Any:
    """Members whose accelerations are found in the way of the first one.

    Where its mass matrix is singular, they follow from the constraints; others must not do so.
    """
    if not kernels.massless or kernels.step.setup.system.constant_mass:
        return True
    return np.array([beginning.is_singular(M) for M in start.begin.M])


def _group(
    kernels: native.Kernels,
    code: native.Code,
    members: Members,
    plan: Plan,
    start: native.Start,
    at: slice,
    table: np.ndarray,
    summary: tuple[np.ndarray, ...],
) -> None:
    """The steps of the members in one group of lanes."""
    step, lanes, steps = kernels.step, code.lanes, plan.steps
    here = len(members.q[at])
    work = native.aligned(code.program.slots * lanes).reshape(-1, lanes)
    multipliers = start.begin.state[-2:]
    places = (step.carry, step.scale, step.args, step.parabola[0], step.output[:2])
    values = (start.carry, start.begin.scale, members.doubles, start.x, multipliers)
    for place, value in zip(jax.tree.leaves(places), jax.tree.leaves(values), strict=True):
        work[place.reshape(-1), :here] = value[at].reshape(here, -1).T
    work[:, here:] = work[:, :1]
    work[step.flags["alive"], :here] = summary[0][at] == diagnose.SUCCESS
    rows = np.full((plan.rows, len(step.row), lanes), np.nan)
    alive = work[step.flags["alive"]]
    if isinstance(step, PacedStep):
        begun, times = alive.copy(), plan.listed
        for place, value in paced_inputs(step, plan):
            work[place] = np.reshape(value, (-1, 1))
        assert start.pace is not None
        for place, value in zip(step.pace, start.pace, strict=True):
            work[place, :here] = value[at]
            work[place, here:] = work[place, 0]
        while alive.any():
            code.steps(work.ctypes.data, times.ctypes.data, 0, 0, rows.ctypes.data, 0, host.BLOCK)
        work[step.status] = paced_status(step, plan, work) * begun
    else:
        arrays = (work, steps.t, steps.h, plan.row_of, rows)
        for first in range(0, len(steps.h), host.BLOCK):
            last = min(first + host.BLOCK, len(steps.h))
            code.steps(*(x.ctypes.data for x in arrays), first, last)
    table[at] = rows.transpose(2, 0, 1)[:here]
    counted: list[Any] = [step.status, step.taken, step.totals]
    counted += [step.pace.rejected, step.pace.t] if isinstance(step, PacedStep) else []
    for target, slots in zip(summary, counted, strict=False):
        target[at] = work[np.asarray(slots), :here].T


def derive(
    kernels: native.Kernels,
    table: np.ndarray,
    members: Members,
    plan: Plan,
    start: native.Start,
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
    rows = xla.columns(setup, table, None)
    rows.q[:], rows.v[:], rows.lam[:], rows.psi[:] = there.q, there.v, there.lam, there.psi
    return table, found, good
