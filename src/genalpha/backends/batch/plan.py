"""The plan and the results of a batch, the same for all backends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.native.controlled_step import ControlledKernels, SampledKernels
from genalpha.backends.native.step import StepKernels
from genalpha.backends.native.writer import PIVOT
from genalpha.engine.interpolate import StepEnd, steps_of
from genalpha.engine.row import Errors, Layout
from genalpha.engine.steps import MOST_STEPS, Controlled, Given
from genalpha.numerics import codes

# The most steps in one call of a kernel. Between the calls a batch can be stopped.
BLOCK = 10_000
_NEVER = 1e18


@dataclass(frozen=True)
class Members:
    """Systems with the batch axis first: q (B, size), v (B, n), and the floating-point leaves of args.

    A leaf with one row is the same for all members.
    """

    q: np.ndarray
    v: np.ndarray
    doubles: list[np.ndarray]

    def __getitem__(self, index: slice | np.ndarray) -> Members:
        some = [x if shared else x[index] for x, shared in zip(self.doubles, self.shared, strict=True)]
        return Members(self.q[index], self.v[index], some)

    def __len__(self) -> int:
        return len(self.q)

    @property
    def shared(self) -> tuple[bool, ...]:
        """Which leaves are the same for all members."""
        return tuple(len(x) == 1 for x in self.doubles)


@dataclass(frozen=True, eq=False)
class Kept:
    """What is kept of every row: some columns of the records, and derived quantities by their names.

    ``columns`` (C,) are the numbers of the columns in increasing order, None for all of them. ``derived`` are
    fields of :class:`Derived` that are computed during the run, because the columns are not enough for them.
    """

    columns: np.ndarray | None = None
    derived: tuple[str, ...] = ()

    def taken(self, records: Any) -> Any:
        """The columns of records (..., width) that are kept."""
        return records if self.columns is None else records[..., self.columns]

    def place(self, at: slice) -> slice:
        """Where some columns of a record are among those that are kept."""
        if self.columns is None:
            return at
        first = int(np.searchsorted(self.columns, at.start))
        return slice(first, first + at.stop - at.start)


EVERYTHING = Kept()


class Summary(NamedTuple):
    """How members ended: status, steps taken, Newton's totals (B, 4), rejected steps, and final time (B,)."""

    status: np.ndarray
    taken: np.ndarray
    totals: np.ndarray
    rejected: np.ndarray
    t_end: np.ndarray


@dataclass(frozen=True)
class GivenPlan:
    """Members that take the same given steps. ``kept`` (K,) are the numbers of the kept ones; 0 is the start.

    With ``strict``, members whose initial values break the constraints are not run. With ``t_eval``, the rows
    are at these times, and both ends of the steps that contain them are kept.
    """

    steps: Given
    kept: np.ndarray
    strict: bool
    t_eval: np.ndarray | None = None
    quantities: Kept = EVERYTHING

    @property
    def t0(self) -> float:
        return float(self.steps.times[0])

    @property
    def times(self) -> np.ndarray:
        """Times (K,) of the rows of the solution."""
        return self.steps.times[self.kept] if self.t_eval is None else self.t_eval

    @property
    def from_start(self) -> bool:
        """Whether the first row of the solution is the start."""
        return bool(self.times[0] == self.steps.times[0])

    @property
    def records(self) -> int:
        """The number of records of a member during the run."""
        return len(self.kept)

    @property
    def has_start(self) -> bool:
        """Whether the first record of a member is the start."""
        return bool(self.kept[0] == 0)

    @property
    def lists(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The inputs of the loop: starts and sizes of steps, and the row in which each is kept, or −1."""
        rows = np.full(len(self.steps.times), -1)
        rows[self.kept] = np.arange(len(self.kept))
        contiguous = map(np.ascontiguousarray, (self.steps.steps.t, self.steps.steps.h, rows[1:]))
        return tuple(contiguous)  # type: ignore[return-value]

    @property
    def last(self) -> int:
        """The number of steps in the loop."""
        return len(self.steps.steps.h)

    def drive(self, run: Callable[[int, int], None], alive: Callable[[], bool]) -> None:
        """Call ``run(first, last)`` until all steps are taken."""
        for first in range(0, self.last, BLOCK):
            run(first, min(first + BLOCK, self.last))

    def start(self, layout: Layout, row: Any) -> Any:
        """The record of the start, from its row (..., width)."""
        return row

    def inputs(self, step: StepKernels) -> list[tuple[Any, Any]]:
        """Slots that are the same for all members, and their values."""
        return []

    def summary(self, step: StepKernels, at: Callable[[int], np.ndarray]) -> Summary:
        """How members ended, from the values (B,) of slots."""
        taken = at(step.taken)
        totals = np.stack([at(int(slot)) for slot in step.totals], axis=1)
        t_end = np.asarray(self.steps.times)[taken.astype(int)]
        return Summary(at(step.status), taken, totals, np.zeros(len(taken)), t_end)

    def unreached(self, found: Summary) -> np.ndarray:
        """Records (B, K) that members did not reach."""
        return self.kept > found.taken[:, None]

    def timing(self, layout: Layout, column: Callable[[slice], Any]) -> tuple[Any, Any]:
        """Ends and sizes of the steps that the rows of the solution belong to."""
        times = np.asarray(self.steps.times)
        index = self.kept if self.t_eval is None else steps_of(times, self.t_eval)
        return times[index], np.append(0.0, self.steps.steps.h)[index]

    def errors(self, layout: Layout, column: Callable[[slice], Any]) -> Errors | None:
        """The estimated errors of these steps."""
        return None

    def around(self, layout: Layout, table: Any, v0: Any, axis: int) -> tuple[StepEnd, StepEnd, Any]:
        """Both ends of the steps that contain the times, and the records at the later ends.

        ``table`` (..., width) has its records along ``axis``. ``v0`` (..., n) are the given velocities; a
        method may start from slightly different ones.
        """
        times = np.asarray(self.steps.times)
        shape, after = [1, 1], steps_of(times, self.times)
        shape[axis] = -1
        ends = []
        for index in (np.maximum(after - 1, 0), after):
            records = table.take(np.searchsorted(self.kept, index), axis=axis)
            ends.append(layout.ends(records, times[index].reshape(shape)))
        return ends[0], ends[1], records


@dataclass(frozen=True)
class ControlledPlan:
    """Members under error control, each with its own steps. The end or the times ``t_eval`` are kept.

    The interface is that of :class:`GivenPlan`.
    """

    steps: Controlled
    span: tuple[float, float]
    strict: bool
    t_eval: np.ndarray | None = None
    quantities: Kept = EVERYTHING

    @property
    def t0(self) -> float:
        return self.span[0]

    @property
    def times(self) -> np.ndarray:
        return np.array(self.span[1:]) if self.t_eval is None else self.t_eval

    @property
    def from_start(self) -> bool:
        return bool(self.times[0] == self.span[0])

    @property
    def records(self) -> int:
        return len(self.times)

    @property
    def has_start(self) -> bool:
        return self.from_start

    @property
    def lists(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The inputs of the loop: the times to be sampled."""
        listed = np.array([self.span[0]]) if self.t_eval is None else np.append(self.t_eval, np.inf)
        return listed, np.array([np.nan]), np.array([0])

    @property
    def last(self) -> int:
        return 2**62  # the loop ends when no member is alive

    def drive(self, run: Callable[[int, int], None], alive: Callable[[], bool]) -> None:
        while alive():
            run(0, BLOCK)

    def start(self, layout: Layout, row: Any) -> Any:
        if self.t_eval is None:
            return row
        at = layout.rows(row)
        t = row[..., layout.plain][..., None]
        return np.concatenate([row, t, at.q, at.v, at.lam, at.psi], axis=-1)

    def inputs(self, step: StepKernels) -> list[tuple[Any, Any]]:
        assert isinstance(step, ControlledKernels)
        control = step.control_places(self.steps.control)
        until = [(step.until, self.steps.most or MOST_STEPS), (step.room, _NEVER), (step.every, _NEVER)]
        if not isinstance(step, SampledKernels):
            return [*control, *until]
        known = int(self.from_start)  # the start needs no sample
        return [*control, *until, (step.due, self.lists[0][known]), (step.sample, known)]

    def summary(self, step: StepKernels, at: Callable[[int], np.ndarray]) -> Summary:
        assert isinstance(step, ControlledKernels)
        ended, t_end = at(step.pace.status), at(step.pace.t)
        short = (ended == codes.SUCCESS) & (t_end < self.steps.end)
        status = np.where(short, codes.TOO_MANY, ended)
        status = np.where(at(step.status) == PIVOT, PIVOT, status)
        totals = np.stack([at(int(slot)) for slot in step.totals], axis=1)
        return Summary(status, at(step.taken), totals, at(step.pace.rejected), t_end)

    def unreached(self, found: Summary) -> np.ndarray:
        if self.t_eval is not None:
            return np.zeros((len(found.status), 1), bool)
        return (found.status != codes.SUCCESS)[:, None]

    def timing(self, layout: Layout, column: Callable[[slice], Any]) -> tuple[Any, Any]:
        two = column(slice(layout.plain, layout.plain + 2))
        return two[..., 0], two[..., 1]

    def errors(self, layout: Layout, column: Callable[[slice], Any]) -> Errors | None:
        return layout.split_errors(column(layout.of_errors))

    def around(self, layout: Layout, table: Any, v0: Any, axis: int) -> tuple[StepEnd, StepEnd, Any]:
        records, before = table[..., : layout.controlled], layout.began(table)
        first = (before.t == self.span[0])[..., None]
        before = before._replace(v=np.where(first, v0, before.v))
        return before, layout.ends(records, records[..., layout.plain]), records


BatchPlan = GivenPlan | ControlledPlan


def begun_status(plan: BatchPlan, status: Any, consistent: Any) -> np.ndarray:
    """The status of members before their first step."""
    inconsistent = plan.strict & (status == codes.SUCCESS) & (consistent == 0)
    return np.where(inconsistent, codes.INCONSISTENT, status)


class HostRecords:
    """What is kept of records, in memory: their columns (B, K, width), and derived quantities by name."""

    def __init__(
        self, table: np.ndarray, kept: Kept = EVERYTHING, derived: dict[str, np.ndarray] | None = None
    ) -> None:
        self.table, self._kept, self.derived = table, kept, derived or {}

    def column(self, at: slice) -> np.ndarray:
        """Some columns (B, K, ...) of all records."""
        return self.table[..., self._kept.place(at)]

    def replace(self, which: np.ndarray, by: Any) -> None:
        """Replace the records of some members by all of others."""
        self.table[which] = by.column(slice(None))


class Results(NamedTuple):
    """The results of members, batch axis first.

    ``records`` are the rows of the solution. ``scale`` is that of Newton's method. ``trusted`` is false for
    members that need other pivots.
    """

    records: Any
    summary: Summary
    t_alpha: np.ndarray
    trusted: np.ndarray
    scale: Any

    def replaced(self, which: np.ndarray, by: Results) -> Results:
        """The results with those of some members replaced, in records too."""
        self.records.replace(which, by.records)

        def exchanged(old: Any, new: Any) -> np.ndarray:
            both = np.array(old)
            both[which] = new
            return both

        return Results(self.records, *jax.tree.map(exchanged, self[1:], by[1:]))

    @staticmethod
    def joined(records: Any, parts: list[Results]) -> Results:
        """Chunks of members, one after the other, with the records of all."""
        rest = [part[1:] for part in parts]
        return Results(records, *jax.tree.map(lambda *x: np.concatenate(x), *rest))
