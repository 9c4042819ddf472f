"""``accuracy`` of ``solve_batch``: every column is a batch, and every member finds its own mesh."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.batch.plan import GivenPlan
from genalpha.backends.batch.pool import Pool
from genalpha.engine import row
from genalpha.engine.extrapolation import Accurate, StepMesh
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given
from genalpha.numerics import codes
from genalpha.results import members as gathered
from genalpha.results.collect import Begun
from genalpha.results.members import Alone, NotStarted
from genalpha.results.output import Output
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import accurate, beginning
from genalpha.run.accurate.columns import Column
from genalpha.run.accurate.front import AccurateRun
from genalpha.run.accurate.search import Search
from genalpha.run.batch import Batch, Progress, not_started
from genalpha.run.beginning import StartPoint
from genalpha.run.request import Backend, BatchBackend

# Numbers of intervals are rounded up to powers of this, so that many members share a mesh.
GRID = 1.3


class ColumnBatch(NamedTuple):
    """A column of some members: t (K,), q (B, K, size), v (B, K, n); ``good`` (B,): those that ended well."""

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    good: np.ndarray

    def member(self, i: int) -> Column:
        return Column(self.t.copy(), self.q[i], self.v[i])


class AccurateBatch:
    """Attempts of all members with ever finer meshes. Members that need the same mesh run in lanes."""

    def __init__(self, batch: Batch, want: Accurate, backend: BatchBackend, bar: Progress) -> None:
        self.want, self.backend, self.bar = want, backend, bar
        self.batch, self.refused = batch.placed()
        self.ready = np.flatnonzero(self.refused == codes.SUCCESS).tolist()
        backend_of_members: Backend = "xla" if backend == "xla" else "auto"
        request = functools.partial(self.batch.request, backend=backend_of_members, accurate=want)
        self.requests = {i: request(i) for i in self.ready}
        self.runs = {i: AccurateRun(self.requests[i], Bar(False)) for i in self.ready}
        self.searches = {i: Search(want, grid=GRID) for i in self.ready}
        self.alone: set[int] = set()
        self._begun: tuple[Begun, str | None] | None = None
        self.own = bool(batch.events) or batch.output.t_eval is None  # members have times of their own

    def solution(self) -> Solution:
        """The solution. Members that fail have a status."""
        if not self.ready:
            self.batch.explain(self.refused)
        active = self.ready if not self.batch.events else []
        while active:
            alike: dict[StepMesh, list[int]] = {}
            for i in active:
                mesh = self.searches[i].mesh()
                if mesh is not None:
                    alike.setdefault(mesh, []).append(i)
            for mesh, those in alike.items():
                self._attempt(mesh, np.array(those))
            active = [i for i in active if i not in self.alone and self.searches[i].found is None]
        apart = not_started(self.refused) + self._members()
        self.bar.add(len(self.refused))
        if not any(isinstance(one, Alone) for one in apart):
            self.batch.explain(self.refused)
        sol = gathered.all_alone(
            self.batch.setup, self.batch.plan, apart, self.batch.output, len(self.batch.events)
        )
        return dataclasses.replace(sol, backend="cuda") if self.backend == "cuda" else sol

    def _attempt(self, mesh: StepMesh, those: np.ndarray) -> None:
        """Run all columns of some members on a mesh, and judge each member."""
        columns = [self._column(mesh, parts, those) for parts in self.want.divisions]
        for place, i in enumerate(those.tolist()):
            if not all(column.good[place] for column in columns):
                self.alone.add(i)
                continue
            combiner = self.runs[i].combiner
            self._begin(i)
            attempt = combiner.combined(mesh, [column.member(place) for column in columns])
            self.runs[i].columns.count(mesh)
            excess = functools.partial(combiner.excess, attempt, self.batch.output.t_eval is not None)
            self.searches[i].judge(attempt, excess)

    def _column(self, mesh: StepMesh, parts: int, those: np.ndarray) -> ColumnBatch:
        """Runs of some members whose steps divide every interval of the mesh into so many parts."""
        found: list[ColumnBatch] = []
        batch, setup = self.batch, self.runs[int(those[0])].asked.setup
        q, v = batch.q[those], batch.v[those]
        args = jax.tree.map(
            lambda x, varies: np.asarray(x)[those] if varies else x, batch.args, batch.varying
        )
        mode, good = batch.mode_of_members, np.ones(len(those), bool)
        for i in range(len(mesh.counts)):
            times = mesh.segment(i, parts)
            part = batch._replace(
                **_about(setup, times, parts, mode == "check"), q=q, v=v, args=args, mode=mode, events=()
            )
            sol = part.run(self.backend, Progress(len(those), False))
            good &= np.asarray(sol.success)
            t = times[::parts].copy()
            t[[0, -1]] = mesh.ends[i : i + 2]
            skip = slice(1 if found else 0, None)
            found.append(ColumnBatch(t[skip], sol.q[:, skip], sol.v[:, skip], good))
            q, v, mode = (
                np.where(good[:, None], sol.q[:, -1], q),
                np.where(good[:, None], sol.v[:, -1], v),
                "assume",
            )
        if len(found) == 1:
            return found[0]
        q, v = (np.concatenate([getattr(x, name) for x in found], axis=1) for name in "qv")
        return ColumnBatch(np.concatenate([x.t for x in found]), q, v, good)

    def _members(self) -> list[Alone | NotStarted]:
        """The solutions of all members, and of those that must run alone on all cores."""
        lonely = [i for i in self.ready if self._lonely(i)]
        with Pool() as pool:
            alone = pool.map(
                lambda i: self.batch.alone(i, lambda: accurate.run(self.requests[i]), self.own), lonely
            )
        return alone + [self._member(i) for i in self.ready if not self._lonely(i)]

    def _lonely(self, i: int) -> bool:
        """Whether a member could not be extrapolated with the others."""
        found = self.searches[i].found
        return i in self.alone or found is None or found.attempt is None

    def _member(self, i: int) -> Alone:
        """The solution of a member."""
        found = self.searches[i].found
        assert found is not None
        return self.batch.kept(i, self.runs[i].made(found), self.own)

    def _begin(self, i: int) -> None:
        """Give a member the start from which derived quantities are computed. One serves all members."""
        columns = self.runs[i].columns
        if self._begun is None:
            start = self.runs[i].asked.start
            at = StartPoint(start.t, start.q, start.v, None, "assume")
            steps = Given.of(np.array(self.batch.span), np.diff(self.batch.span))
            native, nothing = self.backend != "xla", lambda state: np.zeros(0)
            self._begun = beginning.begun(columns.setup, at, steps, columns.args, nothing, native)
        columns.begun, columns.fallback = self._begun


def _about(setup: Setup, times: np.ndarray, parts: int, strict: bool) -> dict[str, Any]:
    """The span, steps and rows of a batch that keeps q and v at every ``parts``-th of these times."""
    steps = Given.of(times, np.diff(times))
    rows = np.arange(0, len(times), parts)
    names = ("q", "v")
    what = gathered.kept(row.layout(setup), names, False)
    plan = GivenPlan(steps, rows, strict, None, what)
    output = Output(every=parts, names=names)
    return {"setup": setup, "span": (float(times[0]), float(times[-1])), "plan": plan, "output": output}
