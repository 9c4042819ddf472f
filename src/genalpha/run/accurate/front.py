"""``accuracy`` of ``solve``: attempts with ever finer meshes, until the estimated error is small enough."""

from __future__ import annotations

import dataclasses

from genalpha.engine.extrapolation import Accurate
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import beginning
from genalpha.run.accurate.columns import ColumnRuns, Failed
from genalpha.run.accurate.combine import Combiner
from genalpha.run.accurate.result import Result
from genalpha.run.accurate.search import Attempted, Search
from genalpha.run.request import Request, Start

# Newton's tolerance for accuracies below the first of these. Its errors add up over the steps, and weights
# of columns amplify them.
TIGHT, NEWTON = 3e-7, 1e-14


class AccurateRun:
    """Attempts with ever finer meshes, until the estimated error is small enough."""

    def __init__(self, asked: Request, bar: Bar, first: int | None = None) -> None:
        assert asked.accurate is not None
        self.want: Accurate = asked.accurate
        self.first = first  # the number of intervals of the first attempt
        newton = asked.setup.newton
        if self.want.accuracy is not None and self.want.accuracy.min() < TIGHT:
            newton = dataclasses.replace(newton, tol=min(newton.tol, NEWTON))
        setup = asked.setup._replace(newton=newton, crossings=())
        asked = asked._replace(setup=setup)
        self.asked, self.columns = asked, ColumnRuns(asked, bar)
        self.combiner = Combiner(self.columns)
        self.result = Result(asked, self.columns, self.combiner)

    def solution(self) -> Solution:
        found = self.attempted()
        if found.attempt is None:
            assert found.failed is not None
            return found.failed
        detail = self.result.detail(found.attempt, found.reason) if found.reason else ""
        return self.result.solution(found.attempt, found.status, detail)

    def attempted(self) -> Attempted:
        """The last attempt, or the best one if none is good enough."""
        start, search, keep = self._start(), Search(self.want, self.first), self.asked.output
        dense = keep.t_eval is not None or keep.dense
        while (mesh := search.mesh()) is not None:
            try:
                attempt = self.combiner.attempt(mesh, start)
            except Failed as error:
                search.failed(error.solution)
                continue
            search.judge(attempt, lambda: self.combiner.excess(attempt, dense))  # noqa: B023 - at once
        assert search.found is not None
        return search.found

    def _start(self) -> Start:
        """The start, on the constraints if it is to be projected."""
        start = self.asked.start
        if start.mode != "project":
            return start
        q, v = beginning.projected(self.asked.setup, start.t, start.q, start.v, self.columns.args, start.held)
        return start._replace(q=q, v=v, mode="check")
