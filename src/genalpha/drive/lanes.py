"""Batches on the CPU: systems side by side in the lanes of vector registers, groups of them on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha import check, diagnose
from genalpha.advance import Setup
from genalpha.drive import host, native, xla
from genalpha.kernels import machine
from genalpha.kernels.step import PIVOT
from genalpha.state import Times

# Systems that are begun, run and evaluated together: enough for all cores, little memory.
CHUNK = 4096


@dataclass(frozen=True)
class Members:
    """Systems with the batch axis first: q (B, size), v (B, n), and the floating-point leaves of args."""

    q: np.ndarray
    v: np.ndarray
    doubles: list[np.ndarray]

    def __getitem__(self, index: slice) -> Members:
        return Members(self.q[index], self.v[index], [x[index] for x in self.doubles])

    def __len__(self) -> int:
        return len(self.q)


class Plan(NamedTuple):
    """The steps of all members, and which of them are kept: indices (K,), 0 for the start.

    With ``strict``, members whose initial values break the constraints are not run.
    """

    steps: Times
    ends: np.ndarray  # times (N+1,)
    kept: np.ndarray
    strict: bool

    @property
    def row_of(self) -> np.ndarray:
        """The row in which each step is kept, or −1."""
        rows = np.full(len(self.steps.h) + 1, -1)
        rows[self.kept] = np.arange(len(self.kept))
        return rows[1:]

    @property
    def times(self) -> np.ndarray:
        """Times (K,) of the kept rows."""
        return self.ends[self.kept]


class Results(NamedTuple):
    """What became of some members, batch axis first.

    ``table`` (B, K, width) are records as of `xla`, ``derived`` what follows from them; ``status``, ``taken``
    and ``totals`` (B, 3) belong to whole runs. ``trusted`` is false where other pivots are needed.
    """

    table: np.ndarray
    derived: xla.Derived
    t_alpha: np.ndarray
    status: np.ndarray
    trusted: np.ndarray
    taken: np.ndarray
    totals: np.ndarray


def begun_status(plan: Plan, status: Any, consistent: Any) -> np.ndarray:
    """The status of members before their first step."""
    inconsistent = plan.strict & (status == diagnose.SUCCESS) & (consistent == 0)
    return np.where(inconsistent, diagnose.INCONSISTENT, status)


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
        columns = (np.array([steps.t[0]]), members.q, members.v, np.array([steps.h[0]]), members.doubles)
        start, trusted = kernels.map(kernels.start, code.lanes)(columns)
    table = np.empty((count, len(plan.kept), len(kernels.step.row)))
    first_status = begun_status(plan, start.status, start.consistent)
    status, taken, totals = first_status.copy(), np.zeros(count), np.zeros((count, 3))

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
                (status, taken, totals),
            )

    firsts = range(0, count, code.lanes)
    share = max(1, len(firsts) // (8 * cores()))
    list(pool.map(part, [firsts[i : i + share] for i in range(0, len(firsts), share)]))
    if plan.kept[0] == 0:
        table[:, 0] = start.row
    table[plan.kept > taken[:, None]] = np.nan
    derived, good = derive(kernels, table, members, plan, start)
    trusted &= _alike(kernels, start) & (status != PIVOT) & (good | np.isnan(table[..., 0])).all(axis=1)
    status = np.where(first_status != diagnose.SUCCESS, first_status, status)
    return Results(table, derived, start.t_alpha, status, trusted, taken, totals)


def _alike(kernels: native.Kernels, start: native.Start) -> Any:
    """Members whose accelerations are found in the way of the first one.

    Where its mass matrix is singular, they follow from the constraints; others must not do so.
    """
    if not kernels.massless or kernels.step.setup.system.constant_mass:
        return True
    return np.array([check.is_singular(M) for M in start.begin.M])


def _group(
    kernels: native.Kernels,
    code: native.Code,
    members: Members,
    plan: Plan,
    start: native.Start,
    at: slice,
    table: np.ndarray,
    summary: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> None:
    """The steps of the members in one group of lanes."""
    step, lanes, steps = kernels.step, code.lanes, plan.steps
    here = len(members.q[at])
    work = native.aligned(code.program.slots * lanes).reshape(-1, lanes)
    places = (step.carry, step.scale, step.args, step.parabola[0])
    values = (start.carry, start.begin.scale, members.doubles, start.x)
    for place, value in zip(jax.tree.leaves(places), jax.tree.leaves(values), strict=True):
        work[place.reshape(-1), :here] = value[at].reshape(here, -1).T
    work[:, here:] = work[:, :1]
    work[step.flags["alive"], :here] = summary[0][at] == diagnose.SUCCESS
    rows = np.zeros((len(plan.kept), len(step.row), lanes))
    arrays = (work, steps.t, steps.h, plan.row_of, rows)
    for first in range(0, len(steps.h), host.BLOCK):
        last = min(first + host.BLOCK, len(steps.h))
        code.steps(*(x.ctypes.data for x in arrays), first, last)
    table[at] = rows.transpose(2, 0, 1)[:here]
    for target, slots in zip(summary, (step.status, step.taken, step.totals), strict=True):
        target[at] = work[np.asarray(slots), :here].T


def derive(
    kernels: native.Kernels,
    table: np.ndarray,
    members: Members,
    plan: Plan,
    start: native.Start,
) -> tuple[xla.Derived, np.ndarray]:
    """What follows from the kept rows, and where it is good (B, K)."""
    count, kept, _ = table.shape
    flat = lambda x: np.repeat(np.asarray(x), kept, axis=0)
    rows = xla.columns(kernels.step.setup, table.reshape(count * kept, -1), None)
    fixed = jax.tree.map(flat, (start.begin.scale, members.doubles))
    arguments = (np.tile(plan.times, count), rows.q, rows.v, rows.lam, rows.psi, *fixed)
    assert kernels.derive is not None
    found, good = kernels.map(kernels.derive, machine.lanes())(arguments)
    shape = lambda x: x.reshape(count, kept, *x.shape[1:])
    return jax.tree.map(shape, found), shape(good)
