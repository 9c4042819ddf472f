"""Batches on the CPU: systems side by side in the lanes of vector registers, groups of them on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha import beginning, diagnose
from genalpha.advance import Setup
from genalpha.drive import host, native, xla
from genalpha.kernels import machine
from genalpha.kernels.paced import PacedStep
from genalpha.kernels.step import PIVOT
from genalpha.state import Times

# Steps that a member may take under error control, unless others are asked for; more than anybody takes.
MOST_STEPS = 1_000_000
_NEVER = 1e18
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

    With ``strict``, members whose initial values break the constraints are not run. Under error control only
    the end is kept.
    """

    steps: Times
    ends: np.ndarray  # times (N+1,)
    kept: np.ndarray
    strict: bool
    aim: native.Aim | None = None  # under error control: members take steps of their own, up to
    most: int = 0

    @property
    def first(self) -> Any:
        """What the first step is chosen from."""
        return self.steps.h[0] if self.aim is None else self.aim

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
    rejected: np.ndarray


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
        shared = jax.tree.map(lambda x: np.asarray(x, dtype=float)[None], plan.first)
        columns = (np.array([steps.t[0]]), members.q, members.v, shared, members.doubles)
        start, trusted = kernels.map(kernels.start, code.lanes)(columns)
    table = np.empty((count, len(plan.kept), len(kernels.step.row)))
    first_status = begun_status(plan, start.status, start.consistent)
    status, taken, totals = first_status.copy(), np.zeros(count), np.zeros((count, 3))
    rejected = np.zeros(count)

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
                (status, taken, totals, rejected),
            )

    firsts = range(0, count, code.lanes)
    share = max(1, len(firsts) // (8 * cores()))
    list(pool.map(part, [firsts[i : i + share] for i in range(0, len(firsts), share)]))
    if plan.kept[0] == 0:
        table[:, 0] = start.row
    if plan.aim is None:
        table[plan.kept > taken[:, None]] = np.nan
    else:
        table[status != diagnose.SUCCESS] = np.nan
    derived, good = derive(kernels, table, members, plan, start)
    trusted &= _alike(kernels, start) & (status != PIVOT) & (good | np.isnan(table[..., 0])).all(axis=1)
    status = np.where(first_status != diagnose.SUCCESS, first_status, status)
    return Results(table, derived, start.t_alpha, status, trusted, taken, totals, rejected)


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
    places = (step.carry, step.scale, step.args, step.parabola[0])
    values = (start.carry, start.begin.scale, members.doubles, start.x)
    for place, value in zip(jax.tree.leaves(places), jax.tree.leaves(values), strict=True):
        work[place.reshape(-1), :here] = value[at].reshape(here, -1).T
    work[:, here:] = work[:, :1]
    work[step.flags["alive"], :here] = summary[0][at] == diagnose.SUCCESS
    rows = np.zeros((len(plan.kept), len(step.row), lanes))
    alive = work[step.flags["alive"]]
    if isinstance(step, PacedStep):
        begun = alive.copy()
        for place, value in paced_inputs(step, plan):
            work[place] = np.reshape(value, (-1, 1))
        assert start.pace is not None
        for place, value in zip(step.pace, start.pace, strict=True):
            work[place, :here] = value[at]
            work[place, here:] = work[place, 0]
        while alive.any():
            code.steps(work.ctypes.data, 0, 0, 0, rows.ctypes.data, 0, host.BLOCK)
        work[step.status] = paced_status(step, plan, work) * begun
    else:
        arrays = (work, steps.t, steps.h, plan.row_of, rows)
        for first in range(0, len(steps.h), host.BLOCK):
            last = min(first + host.BLOCK, len(steps.h))
            code.steps(*(x.ctypes.data for x in arrays), first, last)
    table[at] = rows.transpose(2, 0, 1)[:here]
    counted: list[Any] = [step.status, step.taken, step.totals]
    counted += [step.pace.rejected] if isinstance(step, PacedStep) else []
    for target, slots in zip(summary, counted, strict=False):
        target[at] = work[np.asarray(slots), :here].T


def paced_inputs(step: PacedStep, plan: Plan) -> list[tuple[Any, Any]]:
    """Slots that are the same for all members under error control, and what belongs there."""
    assert plan.aim is not None
    control = zip(
        jax.tree.leaves((step.tolerances, step.limits)), jax.tree.leaves(plan.aim.control), strict=True
    )
    return [*control, (step.until, plan.most or MOST_STEPS), (step.room, _NEVER), (step.every, _NEVER)]


def paced_status(step: PacedStep, plan: Plan, at: Any) -> Any:
    """The status of members that have come to rest, from an array of slots."""
    assert plan.aim is not None
    short = (at[step.pace.status] == diagnose.SUCCESS) & (at[step.pace.t] < plan.aim.control[1].end)
    status = np.where(short, diagnose.TOO_MANY, at[step.pace.status])
    return np.where(at[step.status] == PIVOT, PIVOT, status)


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
