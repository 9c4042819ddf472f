"""The columns of an extrapolated run: runs with different numbers of steps on one mesh."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from genalpha.engine import row
from genalpha.engine.extrapolation import Mesh
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived
from genalpha.engine.steps import Given
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED
from genalpha.results.collect import Begun
from genalpha.results.output import Output
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import beginning, restart
from genalpha.run.beginning import StartPoint
from genalpha.run.request import Request, Restart, Start, Watch
from genalpha.run.single import SingleRun

# The most steps in one call of machine code, which cannot be interrupted.
BLOCK = 20_000


class Column(NamedTuple):
    """The motion of one column at the points of the mesh: t (K,), q (K, size) and v (K, n)."""

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray


class Failed(Exception):
    """A column stopped before its end, with this solution."""

    def __init__(self, solution: Solution) -> None:
        super().__init__(solution.message)
        self.solution = solution


class ColumnRuns:
    """Runs columns, and counts their work."""

    def __init__(self, asked: Request, bar: Bar) -> None:
        assert asked.accurate is not None
        self.asked, self.bar, self.setup, self.want = asked, bar, asked.setup, asked.accurate
        self.args = restart.starting_args(asked).now
        self.steps = self.earlier = 0  # of the last attempt, and of those before
        self.totals = np.zeros(len(COUNTED))
        self.begun: Begun | None = None
        self.fallback: str | None = None

    def all(self, mesh: Mesh, start: Start) -> list[Column]:
        """All columns on a mesh, from the coarsest to the finest. Raises :class:`Failed`."""
        self.earlier, self.steps = self.earlier + self.steps, 0
        return [self._column(mesh, parts, start) for parts in self.want.divisions]

    def count(self, mesh: Mesh) -> None:
        """Count the steps of columns that were run elsewhere."""
        self.earlier, self.steps = self.earlier + self.steps, mesh.intervals * sum(self.want.divisions)

    def _column(self, mesh: Mesh, parts: int, start: Start) -> Column:
        """A run whose steps divide every interval of the mesh into so many parts."""
        found: list[Column] = []
        for i in range(len(mesh.counts)):
            times = mesh.segment(i, parts)
            part = self._run(times, parts, start._replace(t=times[0]))
            part.t[[0, -1]] = mesh.ends[i : i + 2]
            found.append(part if not found else Column(*(x[1:] for x in part)))
            start = start._replace(t=part.t[-1], q=part.q[-1], v=part.v[-1], guess=None, mode="assume")
        done = self.steps / max(1, mesh.intervals * sum(self.want.divisions))
        self.bar.update(min(done, 1.0), f"{mesh.intervals} intervals, {self.steps} steps")
        return found[0] if len(found) == 1 else Column(*map(np.concatenate, zip(*found, strict=True)))

    def _run(self, times: np.ndarray, parts: int, start: Start) -> Column:
        """The motion at every ``parts``-th of these times, of which one is the end of each step."""
        steps = Given.of(times, np.diff(times))
        at = StartPoint(start.t, start.q, start.v, start.guess, start.mode)
        native, nothing = self.asked.backend != "xla" and self.fallback is None, lambda state: np.zeros(0)
        begun, fallback = beginning.begun(self.setup, at, steps, self.args, nothing, native)
        self.begun, runner, layout = begun, begun.runner, row.layout(self.setup)
        rows, done = [begun.first[None]], 0
        while not runner.finished:
            block = np.empty((min(BLOCK, len(times) - 1 - done), runner.width))
            taken = runner.take(block)
            self.totals += layout.report(block[:taken]).sum(axis=0)
            rows.append(block[(-done - 1) % parts : taken : parts])
            done += taken
        self.steps += done
        self.fallback = self.fallback or fallback or getattr(runner, "fallback", None)
        if runner.status != codes.SUCCESS:
            raise Failed(SingleRun(self._request(steps, start), Bar(False)).solution())
        found = layout.rows(np.concatenate(rows))
        return Column(times[::parts].copy(), found.q, found.v)

    def _request(self, steps: Given, start: Start) -> Request:
        """The request of a single column, to find out why it failed."""
        return self.asked._replace(
            span=(float(steps.times[0]), steps.end),
            start=start,
            steps=steps,
            output=Output(),
            watch=Watch(),
            restart=Restart(),
            accurate=None,
        )

    def derived(self, of: Column) -> Derived:
        """Accelerations, multipliers, residuals and reactions of rows."""
        assert self.begun is not None
        dims = self.setup.dims
        none = [np.zeros((len(of.t), size)) for size in (dims.m, dims.p)]
        return self.begun.derive(StepEnd(of.t, of.q, of.v, *none), self.args)
