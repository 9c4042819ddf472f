"""``accuracy`` of ``solve``: attempts with ever finer meshes, until the estimated error is small enough."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math

from genalpha.engine import step_choice
from genalpha.engine.extrapolation import Accurate
from genalpha.engine.grading import Grading
from genalpha.engine.setup import Setup
from genalpha.engine.step_choice import StepOptions
from genalpha.mechanics.system import Args
from genalpha.results.output import Output
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import beginning, single
from genalpha.run.accurate.columns import ColumnRuns, ColumnStore, Failed
from genalpha.run.accurate.combine import Combiner
from genalpha.run.accurate.result import Result
from genalpha.run.accurate.search import Attempted, Search
from genalpha.run.request import Request, Restart, Start, Watch

# Newton's tolerance for accuracies below the first of these. Its errors add up over the steps, and weights
# of columns amplify them.
TIGHT, NEWTON = 3e-7, 1e-14
# The tolerance of the run whose steps show where a mesh must be fine.
PILOT = 1e-4
# It is made if the next mesh has this many times more intervals than the second, and takes at most this
# fraction of its steps.
FAR, SHORT = 3.0, 1 / 16


class Pilot:
    """A run with error control, whose steps show where a mesh must be fine."""

    def __init__(self, asked: Request, start: Start, args: Args) -> None:
        assert asked.accurate is not None
        self.want = asked.accurate
        self.plain = asked._replace(
            args=args, start=start, output=Output(names=()), watch=Watch(), restart=Restart()
        )
        self.first, self.over = 0, self.want.intervals is not None

    def grading(self, count: int) -> Grading | None:
        """A grading, if the next mesh, of ``count`` intervals, would be much finer than the second."""
        self.first = self.first or count
        if self.over or count < FAR * self.first:
            return None
        most = math.ceil(SHORT * count * sum(self.want.divisions))
        sol = controlled(self.plain, StepOptions(rtol=PILOT, max_steps=most))
        self.over = sol is not None and sol.success
        return Grading.of(sol.t) if sol is not None and sol.success else None


def controlled(asked: Request, options: StepOptions) -> Solution | None:
    """The run with error control instead of an accuracy; None if it cannot start."""
    steps, _ = step_choice.choose(asked.span, asked.setup.dims.n, options)
    with contextlib.suppress(ValueError):
        return single.run(asked._replace(steps=steps, accurate=None))
    return None


def placed(setup: Setup, start: Start, args: Args) -> Start:
    """A start, on the constraints if it is to be projected."""
    if start.mode != "project":
        return start
    q, v = beginning.projected(setup, start.t, start.q, start.v, args, start.held)
    return start._replace(q=q, v=v, mode="check")


class AccurateRun:
    """Attempts with ever finer meshes, until the estimated error is small enough."""

    def __init__(
        self, asked: Request, bar: Bar, first: int | None = None, store: ColumnStore | None = None
    ) -> None:
        assert asked.accurate is not None
        self.want: Accurate = asked.accurate
        self.first = first  # the number of intervals of the first attempt
        newton = asked.setup.newton
        if self.want.accuracy is not None and self.want.accuracy.min() < TIGHT:
            newton = dataclasses.replace(newton, tol=min(newton.tol, NEWTON))
        setup = asked.setup._replace(newton=newton, crossings=())
        asked = asked._replace(setup=setup)
        self.asked, self.columns = asked, ColumnRuns(asked, bar, store)
        self.combiner = Combiner(self.columns)
        self.result = Result(asked, self.columns, self.combiner)

    def solution(self) -> Solution:
        return self.made(self.attempted())

    def made(self, found: Attempted) -> Solution:
        """The solution of an attempt, or of the run that failed."""
        if found.attempt is None:
            assert found.failed is not None
            return found.failed
        detail = self.result.detail(found.attempt, found.reason) if found.reason else ""
        return self.result.solution(found.attempt, found.status, detail)

    def attempted(self) -> Attempted:
        """The last attempt, or the best one if none is good enough."""
        start = placed(self.asked.setup, self.asked.start, self.columns.args)
        search, keep = Search(self.want, self.first), self.asked.output
        dense, pilot = keep.t_eval is not None or keep.dense, Pilot(self.asked, start, self.columns.args)
        while (mesh := search.mesh()) is not None:
            try:
                attempt = self.combiner.attempt(mesh, start)
            except Failed as error:
                search.failed(error.solution)
            else:
                search.judge(attempt, functools.partial(self.combiner.excess, attempt, dense))
            if search.found is None and (grading := pilot.grading(search.count)) is not None:
                search.grade(grading)
        assert search.found is not None
        return search.found
