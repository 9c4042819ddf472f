"""What a batch is to do and what became of it, whatever runs it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.native import kernels as native
from genalpha.backends.native.controlled_step import ControlledKernels, SampledKernels
from genalpha.backends.native.step import PIVOT
from genalpha.backends.xla import controlled as adaptive
from genalpha.backends.xla import given as xla
from genalpha.engine.interpolate import StepEnd, steps_of
from genalpha.engine.step import Setup
from genalpha.numerics import codes
from genalpha.numerics.data import Times
from genalpha.results.solution import Errors

# Steps that a member may take under error control, unless others are asked for; more than anybody takes.
MOST_STEPS = 1_000_000
_NEVER = 1e18


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


class BatchPlan(NamedTuple):
    """The steps of all members, and which of them are kept: indices (K,), 0 for the start.

    With ``strict``, members whose initial values break the constraints are not run. Under error control they
    take steps of their own towards ``aim``, up to ``most`` of them, and the end is kept. With times
    ``t_eval`` the motion there is wanted: kept are the ends of the steps in which they lie.
    """

    steps: Times
    ends: np.ndarray  # times (N+1,)
    kept: np.ndarray
    strict: bool
    aim: native.Aim | None = None
    most: int = 0
    t_eval: np.ndarray | None = None

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
    def rows(self) -> int:
        """How many records a member has while it runs."""
        sampled = self.t_eval is not None and self.aim is not None
        return len(self.times) if sampled else len(self.kept)

    @property
    def times(self) -> np.ndarray:
        """Times (K,) of the rows of the solution."""
        return self.ends[self.kept] if self.t_eval is None else self.t_eval

    @property
    def from_start(self) -> bool:
        """Whether the first row of the solution is the start."""
        return bool(self.times[0] == self.ends[0])

    @property
    def has_start(self) -> bool:
        """Whether the first record of a member is the start."""
        return self.from_start if self.aim is not None else bool(self.kept[0] == 0)

    def start(self, setup: Setup, row: Any) -> Any:
        """The record of the start, from (B, width) numbers of its row."""
        if self.aim is None or self.t_eval is None:
            return row
        at = xla.columns(setup, row, None)
        t = row[..., xla.width(setup)][..., None]
        return np.concatenate([row, t, at.q, at.v, at.lam, at.psi], axis=-1)

    @property
    def listed(self) -> np.ndarray:
        """The list of times that the loop looks at: beginnings of steps, or times to be sampled."""
        if self.aim is None or self.t_eval is None:
            return self.steps.t
        return np.append(self.t_eval, np.inf)

    def timing(self, setup: Setup, table: np.ndarray) -> tuple[np.ndarray, np.ndarray, Errors | None]:
        """Ends, sizes and errors of the steps that the rows of the solution belong to."""
        if self.aim is not None:
            return adaptive.timing(setup, table)
        index = self.kept if self.t_eval is None else steps_of(self.ends, self.t_eval)
        return self.ends[index], np.append(0.0, self.steps.h)[index], None

    def around(self, setup: Setup, table: Any, v0: Any, axis: int) -> tuple[StepEnd, StepEnd, Any]:
        """Both ends of the steps in which the times lie, and the records of the later ones.

        ``table`` (..., width) has its records along ``axis``, ``v0`` (..., n) one: methods may start beside
        the velocities that were given.
        """
        if self.aim is not None:
            plain, dims = adaptive.width(setup), setup.dims
            records, began = table[..., :plain], table[..., plain:]
            cuts = np.cumsum([0, 1, dims.size, dims.n, dims.m, dims.p])
            t, q, v, lam, psi = (began[..., a:b] for a, b in itertools.pairwise(cuts))
            before = StepEnd(t[..., 0], q, np.where(t == self.ends[0], v0, v), lam, psi)
            return before, _node(setup, records, records[..., xla.width(setup)]), records
        shape, after = [1, 1], steps_of(self.ends, self.times)
        shape[axis] = -1
        ends = []
        for index in (np.maximum(after - 1, 0), after):
            records = table.take(np.searchsorted(self.kept, index), axis=axis)
            ends.append(_node(setup, records, self.ends[index].reshape(shape)))
        return *ends, records


def _node(setup: Setup, records: Any, t: Any) -> StepEnd:
    rows = xla.columns(setup, records, None)
    return StepEnd(t, rows.q, rows.v, rows.lam, rows.psi)


class Results(NamedTuple):
    """What became of some members, batch axis first.

    ``table`` (B, K, width) are records as of `xla`, ``derived`` is what follows from them; ``status``,
    ``t_end``, ``taken`` and ``totals`` (B, 3) belong to whole runs. ``trusted`` is false where other pivots
    are needed.
    """

    table: np.ndarray
    derived: xla.Derived
    t_alpha: np.ndarray
    status: np.ndarray
    t_end: np.ndarray
    trusted: np.ndarray
    taken: np.ndarray
    totals: np.ndarray
    rejected: np.ndarray


def begun_status(plan: BatchPlan, status: Any, consistent: Any) -> np.ndarray:
    """The status of members before their first step."""
    inconsistent = plan.strict & (status == codes.SUCCESS) & (consistent == 0)
    return np.where(inconsistent, codes.INCONSISTENT, status)


def paced_inputs(step: ControlledKernels, plan: BatchPlan) -> list[tuple[Any, Any]]:
    """Slots that are the same for all members under error control, and what belongs there."""
    assert plan.aim is not None
    control = zip(
        jax.tree.leaves((step.tolerances, step.limits)), jax.tree.leaves(plan.aim.control), strict=True
    )
    until = [(step.until, plan.most or MOST_STEPS), (step.room, _NEVER), (step.every, _NEVER)]
    if not isinstance(step, SampledKernels):
        return [*control, *until]
    known = int(plan.from_start)  # nothing has to be computed there
    return [*control, *until, (step.due, plan.listed[known]), (step.sample, known)]


def paced_status(step: ControlledKernels, plan: BatchPlan, at: Any) -> Any:
    """The status of members that have come to rest, from an array of slots."""
    assert plan.aim is not None
    short = (at[step.pace.status] == codes.SUCCESS) & (at[step.pace.t] < plan.aim.control[1].end)
    status = np.where(short, codes.TOO_MANY, at[step.pace.status])
    return np.where(at[step.status] == PIVOT, PIVOT, status)
