"""Batches on the CPU: several systems in the lanes of vector registers, and groups of them on all cores."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from genalpha.backends import sampling
from genalpha.backends.batch.plan import BatchPlan, HostRecords, Members, Results, begun_status
from genalpha.backends.batch.pool import Pool
from genalpha.backends.native.code import StepCode, aligned
from genalpha.backends.native.iterated import iterated_together
from genalpha.backends.native.kernels import Kernels
from genalpha.backends.native.step import StepKernels
from genalpha.backends.native.writer import PIVOT
from genalpha.compiler import machine
from genalpha.engine import row
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.start import RunStart
from genalpha.mechanics.system import Dims
from genalpha.numerics import codes
from genalpha.numerics.data import State

# The most systems that run together, the most bytes of their slots, and the most rows that are derived at a
# time. This is enough for all cores and takes little memory.
CHUNK, MEMORY, ROWS = 4096, 2**27, 4096
# A function that returns the values (B, E) of events at the states of members at the start.
Known = Callable[[State, Members], np.ndarray]


def run(
    kernels: Kernels,
    members: Members,
    plan: BatchPlan,
    begun: Callable[[Members], RunStart],
    done: Callable[[int], None],
    known: Known | None = None,
) -> Results:
    """Run all members, one chunk at a time. ``begun`` starts them if their start has no scalar form.

    ``done`` is called with the number of members of each finished chunk. ``known`` returns the values (B, E)
    of events at the start. Members with an event are not run to their end, and are not trusted.
    """
    code = kernels.code(machine.lanes(), shared=members.shared)
    fitting = MEMORY // (8 * code.numbers) * code.lanes
    chunk = max(code.lanes, min(CHUNK, fitting))
    store, parts = Store(kernels, plan, len(members)), []
    with Pool() as pool:
        for first in range(0, len(members), chunk):
            here = slice(first, min(first + chunk, len(members)))
            parts.append(_chunk(kernels, members[here], begun, pool, store.part(here), known))
            done(here.stop - here.start)
    return Results.joined(HostRecords(store.table, plan.quantities, store.derived), parts)


class Store:
    """What is kept of the rows of members: a table (B, K, width), and derived quantities by name (B, K, ...).

    Members write their rows into it one after the other, so that nothing else takes memory.
    """

    def __init__(self, kernels: Kernels, plan: BatchPlan, count: int) -> None:
        self.kernels, self.plan, self.layout = kernels, plan, row.layout(kernels.step.setup)
        kept, width = plan.quantities, plan.steps.width(self.layout)
        rows = (count, len(plan.times))
        self.table = np.empty((*rows, width if kept.columns is None else len(kept.columns)))
        self.derived = empty(kept.derived, rows, self.layout.dims)

    def part(self, here: slice) -> Store:
        """The place of some members."""
        found = copy.copy(self)
        found.table, found.derived = self.table[here], {key: x[here] for key, x in self.derived.items()}
        return found

    def put(self, here: slice, rows: np.ndarray, scale: Any, doubles: list[np.ndarray]) -> None:
        """Keep the rows (b, K, width) of some members with these scales and arguments."""
        self.table[here] = self.plan.quantities.taken(rows)
        if self.derived:
            ends = self.layout.ends(rows, np.broadcast_to(self.plan.times, rows.shape[:2]))
            fixed = picked((scale, doubles), here)
            derive(self.kernels, ends, fixed, {key: x[here] for key, x in self.derived.items()})


def empty(names: Iterable[str], rows: tuple[int, int], dims: Dims) -> dict[str, np.ndarray]:
    """Arrays (B, K, ...) for derived quantities, filled with NaN."""
    numbers = ("position", "velocity", "nonholonomic")
    sizes = {"lam": dims.m, "psi": dims.p}
    shape = lambda name: () if name in numbers else (sizes.get(name, dims.n),)
    return {name: np.full((*rows, *shape(name)), np.nan) for name in names}


def picked(tree: Any, index: Any) -> Any:
    """The part of some members in arrays that have one row for each, or one row for all of them."""
    return jax.tree.map(lambda x: np.asarray(x) if len(x) == 1 else np.asarray(x)[index], tree)


def derive(kernels: Kernels, ends: StepEnd, fixed: Any, into: dict[str, np.ndarray]) -> None:
    """Write derived quantities at the ends of steps (b, K, ...) of some members into arrays (b, K, ...).

    ``fixed`` are the scales and the arguments of the members. Rows that they did not reach stay as they are.
    """
    reached = np.argwhere(np.isfinite(ends.q).all(axis=-1))
    for first in range(0, len(reached), ROWS):
        member, place = reached[first : first + ROWS].T
        here = jax.tree.map(lambda x: x[member, place], ends)  # noqa: B023
        scale, doubles = picked(fixed, member)
        found = kernels.derive((here, scale, doubles), machine.lanes())
        for name, whole in into.items():
            whole[member, place] = getattr(found, name)


def _chunk(
    kernels: Kernels,
    members: Members,
    begun: Callable[[Members], RunStart],
    pool: Pool,
    store: Store,
    known: Known | None,
) -> Results:
    """Run some members. The rows of the solution go to the store."""
    code, count, plan = kernels.code(machine.lanes(), shared=members.shared), len(members), store.plan
    shared = jax.tree.map(lambda x: np.asarray(x, dtype=float)[None], plan.steps.first)
    columns = (np.array([plan.t0]), members.q, members.v, shared, members.doubles)
    if kernels.start is None:
        iteration, together = kernels.iteration, None
        if iteration is not None:
            together = iterated_together(kernels.step.setup, iteration, columns)
        start, trusted = together or begun(members), np.ones(count, dtype=bool)
    else:
        start, trusted = kernels.start.code(code.lanes)(columns)
    first_status = begun_status(plan, start.status, start.consistent)
    groups = _Groups(kernels.step, code, plan, members, start, first_status == codes.SUCCESS)
    if known is not None:
        groups.watch(known(start.begin.state, members))
    fixed = (start.begin.scale, members.doubles)
    share = max(1, len(groups) // (8 * machine.cores()))
    firsts = range(0, len(groups), share)

    block = max(1, ROWS // (code.lanes * plan.records))  # groups whose records are in memory at a time

    def some(first: int) -> None:
        end = min(first + share, len(groups))
        for at in range(first, end, block):
            here, records = groups.run(range(at, min(at + block, end)), pool.proceed)
            rows = records
            if plan.t_eval is not None:
                rows = _sampled(kernels, plan, records, start.begin.state.v[here, None])
            store.put(here, rows, *fixed)

    pool.map(some, firsts)
    found = plan.summary(kernels.step, groups.slot)
    trusted &= (found.status != PIVOT) & ~groups.fired
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
        self.lists, self.first = plan.lists, start.row

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

    def watch(self, values: np.ndarray) -> None:
        """Start with these values (B, E) of the functions of events."""
        self.work[:, self.step.events] = self._side_by_side(values)

    @property
    def fired(self) -> np.ndarray:
        """Which members (B,) have stopped at an event."""
        fired = [self.slot(int(number)) != 0 for number in self.step.fired]
        return np.any(fired, axis=0) if fired else np.zeros(self.count, bool)

    def _side_by_side(self, values: np.ndarray) -> np.ndarray:
        """Values of members (B, ...) as (groups, numbers, lanes), padded with the last member."""
        lanes = self.code.lanes
        flat = np.asarray(values, dtype=float).reshape(self.count, -1)
        missing = -self.count % lanes
        full = np.concatenate([flat, np.repeat(flat[-1:], missing, axis=0)]) if missing else flat
        return full.reshape(len(full) // lanes, lanes, flat.shape[1]).swapaxes(1, 2)

    def run(self, groups: range, proceed: Callable[[], None]) -> tuple[slice, np.ndarray]:
        """Take all steps of some groups: which members they have, and their records (b, K, width).

        ``proceed`` is called from time to time, and raises if the steps are no longer wanted.
        """
        step, lanes, steps, plan = self.step, self.code.lanes, self.code.steps, self.plan
        here = slice(groups.start * lanes, min(groups.stop * lanes, self.count))
        records = np.empty((here.stop - here.start, plan.records, len(step.row)))
        for group in groups:
            work, rows = self.work[group], np.full((plan.records, len(step.row), lanes), np.nan)
            arrays = tuple(x.ctypes.data for x in (work, *self.lists, rows))
            alive = work[step.flags["alive"]]

            def some(first: int, last: int, arrays: tuple[int, ...] = arrays) -> None:
                proceed()
                steps(*arrays, first, last)

            plan.drive(some, alive.any)
            first = (group - groups.start) * lanes
            own = records[first : first + lanes]
            own[...] = rows.transpose(2, 0, 1)[: len(own)]
        found = plan.summary(step, lambda number: self.slot(number, groups))
        records[np.broadcast_to(plan.unreached(found), records.shape[:2])] = np.nan
        if plan.has_start:
            records[:, 0] = plan.start(row.layout(step.setup), self.first[here])
        return here, records

    def slot(self, number: int, groups: range | None = None) -> np.ndarray:
        """The values of one slot, of all members or of those of some groups."""
        some = range(len(self.work)) if groups is None else groups
        count = min(some.stop * self.code.lanes, self.count) - some.start * self.code.lanes
        return self.work[some.start : some.stop, number].reshape(-1)[:count]


def _sampled(kernels: Kernels, plan: BatchPlan, records: np.ndarray, v0: Any) -> np.ndarray:
    """Rows (b, K, width) with the motion at the times of the plan, from records of some members."""
    setup, count, kept = kernels.step.setup, len(records), len(plan.times)
    layout = row.layout(setup)
    flat = lambda x: np.broadcast_to(x, (count, kept, *x.shape[2:])).reshape(count * kept, *x.shape[2:])
    before, after, later = plan.around(layout, records, v0, axis=1)
    before, after = jax.tree.map(flat, (before, after))
    times = np.tile(plan.times, count)
    at = sampling.between(setup.system.space, before, after, times, machine.lanes())
    rows = np.array(later)
    layout.put(rows, jax.tree.map(lambda x: x.reshape(count, kept, *x.shape[1:]), at))
    return rows
