"""Solutions of batches. Some members may have run alone or not at all."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.batch import lanes
from genalpha.backends.batch.plan import BatchPlan, Results
from genalpha.backends.native.kernels import Kernels
from genalpha.engine import row
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived
from genalpha.engine.setup import Setup
from genalpha.results import assemble
from genalpha.results.assemble import Ending, Work
from genalpha.results.deferred import Deferred
from genalpha.results.output import NAMES
from genalpha.results.solution import Solution

# Fields of a solution with one row for every kept time, except the history of Newton's method.
TIMED = ("t_alpha", *(name for name in NAMES if name != "newton"))


class Alone(NamedTuple):
    """A member that ran alone: its solution, the rows of it that are kept, and their places in the batch."""

    member: int
    solution: Solution
    rows: np.ndarray
    places: np.ndarray


class NotStarted(NamedTuple):
    """A member that could not be started, with its status."""

    member: int
    status: int


class BatchSolution:
    """A batch computed by machine code: its records, and in ``apart`` the members without valid records.

    Quantities are computed, or copied from the GPU, on first access.
    """

    def __init__(
        self, kernels: Kernels, plan: BatchPlan, results: Results, doubles: list[np.ndarray]
    ) -> None:
        self.kernels, self.plan, self.results, self.doubles = kernels, plan, results, doubles
        self.setup: Setup = kernels.step.setup
        self.layout = row.layout(self.setup)
        self.apart: list[Alone | NotStarted] = []
        self._derived = Deferred(self._derive)

    def solution(self, backend: str) -> Solution:
        """The solution, batch axis first."""
        plan, found = self.plan, self.results.summary
        status, count = found.status.astype(int), len(found.status)
        bad = (status != 0) & (found.taken == 0)
        totals = np.where(bad[:, None], 0, found.totals).astype(int)
        work = Work(found.taken.astype(int), found.rejected.astype(int), *totals.T.copy())
        t_end = np.array(found.t_end, dtype=float)
        for one in self.apart:
            _count(one, status, t_end, work, plan.t0)
        times = np.broadcast_to(plan.times, (count, len(plan.times)))
        later = lambda name: Deferred(lambda: self._patched(name))
        fields: dict[str, Any] = {name: later(name) for name in (*TIMED, "newton")}
        t_alpha = fields.pop("t_alpha")
        ending = Ending(status, t_end, work, backend)
        return assemble.solution(self.setup, fields, times, t_alpha, ending, complete=False)

    def _patched(self, name: str) -> Any:
        """A quantity of all members, including those in ``apart``."""
        found = self._quantity(name)
        for one in self.apart:
            _write(name, found, one)
        return found

    def _quantity(self, name: str) -> Any:
        if name in assemble.DERIVED:
            return assemble.derived(self._derived)[name]()
        if name == "t_alpha":
            return self._t_alpha()
        column = self.results.records.column
        if name == "errors":
            return self.plan.errors(self.layout, column)
        if name == "newton":
            return assemble.history(column(self.layout.parts["report"]))
        if name == "extra":
            return {key: column(at) for key, at in self.layout.extra.items()}
        return column(self.layout.parts[name.removesuffix("_method")])

    def _t_alpha(self) -> np.ndarray:
        plan, count = self.plan, len(self.results.t_alpha)
        ends, sizes = plan.timing(self.layout, self.results.records.column)
        t_alpha = np.array(np.broadcast_to(ends + self.setup.method.alpha * sizes, (count, len(plan.times))))
        if plan.from_start:
            t_alpha[:, 0] = self.results.t_alpha
        return t_alpha

    def _derive(self) -> Derived:
        """Accelerations, residuals and reactions of all rows, on all cores."""
        parts = [self.results.records.column(self.layout.parts[name]) for name in ("q", "v", "lam", "psi")]
        count, kept = parts[0].shape[:2]
        flat = lambda x: x.reshape(count * kept, *x.shape[2:])
        repeated = lambda x: np.repeat(np.asarray(x), kept, axis=0) if len(x) == count else x
        ends = StepEnd(np.tile(self.plan.times, count), *map(flat, parts))
        fixed = jax.tree.map(repeated, (self.results.scale, self.doubles))
        found = lanes.in_parts(self.kernels.derive, (ends, *fixed))
        return jax.tree.map(lambda x: x.reshape(count, kept, *x.shape[1:]), found)


def patched(sol: Solution, apart: list[Alone | NotStarted], t0: float) -> Solution:
    """A solution of arrays in memory, in which the members in ``apart`` are replaced."""
    for one in apart:
        for name in (*TIMED, "newton"):
            _write(name, getattr(sol, name), one)
        _count(one, sol.status, sol.t_end, _work(sol), t0)
        sol.stats.factorizations[one.member] = sol.stats.jacobians[one.member]
    return sol


def _write(name: str, found: Any, one: Alone | NotStarted) -> None:
    """Write a member into its place. Rows that it did not reach are NaN."""
    i, leaves = one.member, jax.tree.leaves(found)
    for whole in leaves:
        if whole.dtype.kind == "f":
            whole[i] = np.nan
        else:
            whole[i] = 0
    if isinstance(one, NotStarted):
        return
    own = getattr(one.solution, name)
    if name == "newton" and len(own.iterations) < len(one.solution.t):
        own = jax.tree.map(lambda x: np.concatenate([np.zeros_like(x[:1]), x]), own)
    for whole, part in zip(leaves, jax.tree.leaves(own), strict=True):
        whole[i, one.places] = part[one.rows]


def _work(sol: Solution) -> Work:
    of = sol.stats
    return Work(
        of.steps, of.rejected, of.newton_iterations, of.jacobians, of.rounding_limited, of.near_singular
    )


def _count(one: Alone | NotStarted, status: Any, t_end: Any, work: Work, t0: float) -> None:
    """Write the totals of a member into their places."""
    i = one.member
    if isinstance(one, NotStarted):
        status[i], t_end[i], own = one.status, t0, (0,) * len(work)
    else:
        status[i], t_end[i], own = one.solution.status, one.solution.t_end, _work(one.solution)
    for column, number in zip(work, own, strict=True):
        column[i] = number
