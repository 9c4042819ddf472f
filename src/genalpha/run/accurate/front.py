"""``accuracy`` of ``solve``: attempts with ever finer meshes, until the estimated error is small enough."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from genalpha.engine import extrapolation
from genalpha.engine.extrapolation import Accurate, Mesh
from genalpha.numerics import codes
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import beginning
from genalpha.run.accurate.columns import ColumnRuns, Failed
from genalpha.run.accurate.combine import Combination, Combiner
from genalpha.run.accurate.result import Result
from genalpha.run.request import Request, Start

# The number of intervals in the first attempt for an accuracy of 1e-3; it grows with this power of the
# accuracy. The most attempts.
FIRST, GROWTH, ATTEMPTS = 16.0, 1 / 7, 12
# Newton's tolerance for accuracies below the first of these. Its errors add up over the steps, and weights
# of columns amplify them.
TIGHT, NEWTON = 3e-7, 1e-14
# Errors that fall more slowly than this power of the step size, twice in a row, do not have the expansion.
LEAST_ORDER = 2.5
# Relative errors above this may belong to motions that are not resolved yet.
RESOLVED = 1e-3
# Errors up to this multiple of the expected rounding errors may be due to rounding.
NOISE = 50.0


class Attempted(NamedTuple):
    """An attempt with its status, and why the accuracy was not reached; or a run that failed."""

    attempt: Combination | None
    status: int
    reason: str = ""
    failed: Solution | None = None


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
        start, want = self._start(), self.want
        count, failed = want.intervals or self.first or self._first_count(), None
        history: list[Combination] = []
        reason = ""
        for _ in range(ATTEMPTS):
            mesh = Mesh.of(want.ends, count, want.intervals is None)
            needed = mesh.intervals * sum(want.divisions)
            if needed > want.most and not history and failed is None:
                raise ValueError(f"max_steps = {want.most} is too small: raise it to {needed} or more")
            if needed > want.most:
                reason = f"more than max_steps = {want.most} steps would be needed"
                break
            try:
                history.append(self.combiner.attempt(mesh, start))
            except Failed as error:
                if want.intervals is not None:
                    return Attempted(None, error.solution.status, "", error.solution)
                failed, count = error.solution, 3 * count
                continue
            found = history[-1].judgement
            if want.accuracy is None:
                return Attempted(history[-1], codes.SUCCESS)
            if found.error <= 1:
                keep = self.asked.output
                dense = keep.t_eval is not None or keep.dense
                between = self.combiner.between(history[-1]) if dense else 0.0
                if between <= 1:
                    return Attempted(history[-1], codes.SUCCESS)
                reason = f"between the rows it is {between:.2g} times that"
                count = math.ceil(count * min(max(1.1 * between ** (1 / 5), 1.25), 8.0))
                continue
            why = _hopeless(history, float(want.accuracy.min()))
            if why:
                reason = reason or why
                break
            count = math.ceil(count * extrapolation.more(found, len(want.divisions)))
        if not history:
            assert failed is not None
            return Attempted(None, failed.status, "", failed)
        best = min(history, key=lambda attempt: attempt.judgement.error)
        return Attempted(best, codes.INACCURATE, reason or "the error did not become small enough")

    def _first_count(self) -> int:
        assert self.want.accuracy is not None
        return math.ceil(FIRST * max(1.0, 1e-3 / self.want.accuracy.min()) ** GROWTH)

    def _start(self) -> Start:
        """The start, on the constraints if it is to be projected."""
        start = self.asked.start
        if start.mode != "project":
            return start
        q, v = beginning.projected(self.asked.setup, start.t, start.q, start.v, self.columns.args, start.held)
        return start._replace(q=q, v=v, mode="check")


def _hopeless(history: list[Combination], accuracy: float) -> str:
    """Why a finer mesh will not help; empty if it may.

    As long as errors are large, fast motions may not be resolved yet, and errors need not fall.
    """
    last = history[-1].judgement
    if last.rounding > 0.5:
        return "rounding errors of the columns are larger than that. Ask for less accuracy"
    if len(history) < 3 or last.error * accuracy > RESOLVED:
        return ""
    orders = []
    for before, after in zip(history[-3:], history[-2:], strict=False):
        growth = after.mesh.intervals / before.mesh.intervals
        fall = before.judgement.error / max(after.judgement.error, 1e-300)
        orders.append(math.log(max(fall, 1e-300)) / math.log(growth))
    if max(orders) > LEAST_ORDER or last.converging:
        return ""
    if last.error < NOISE * last.rounding:
        return "finer steps do not make it smaller, because of rounding. Ask for less accuracy"
    return (
        f"with finer steps it falls only like h^{max(orders):.1f}. Forces may have kinks or jumps (pass "
        "their times as breakpoints), stiff components may not be resolved, or neighbouring motions may "
        "separate too fast"
    )
