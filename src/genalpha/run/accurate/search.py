"""The search for a mesh that is fine enough for a wanted accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from genalpha.engine import extrapolation
from genalpha.engine.extrapolation import Accurate, StepMesh
from genalpha.engine.grading import Grading
from genalpha.numerics import codes
from genalpha.results.deferred import Deferred
from genalpha.results.solution import Solution
from genalpha.run.accurate.combine import Combination

# The number of intervals in the first attempt for an accuracy of 1e-3; it grows with this power of the
# accuracy. The most attempts.
FIRST, GROWTH, ATTEMPTS = 30.0, 1 / 7, 12
# A graded mesh has this many times more intervals than its shortest ones need.
MORE = 1.5
# Errors that fall more slowly than this power of the step size, twice in a row, do not have the expansion.
LEAST_ORDER = 2.5
# Relative errors above this may belong to motions that are not resolved yet.
RESOLVED = 1e-3
# Relative errors below this that do not fall at all are due to rounding.
TINY = 1e-8
# Errors up to this multiple of the expected rounding errors may be due to rounding.
NOISE = 50.0


class Attempted(NamedTuple):
    """An attempt with its status, and why the accuracy was not reached; or a run that failed."""

    attempt: Combination | None
    status: int
    reason: str = ""
    failed: Solution | None = None


class Search:
    """Decides about the next mesh, and when to end.

    ``found`` is None as long as another attempt is needed. ``first`` is the number of intervals of the first
    attempt, if it is known. With ``grid``, numbers of intervals are rounded up to its powers.
    """

    def __init__(self, want: Accurate, first: int | None = None, grid: float | None = None) -> None:
        self.want, self.grid = want, grid
        self.count = want.intervals or first or self._first_count()
        self.found: Attempted | None = None
        self._history: list[Combination] = []
        self.grading: Grading | None = None
        self._failed: Deferred | None = None
        self._attempts, self._graded, self._reason = 0, 0, ""

    def _first_count(self) -> int:
        assert self.want.accuracy is not None
        return math.ceil(FIRST * max(1.0, 1e-3 / self.want.accuracy.min()) ** GROWTH)

    def mesh(self) -> StepMesh | None:
        """The mesh of the next attempt; None if the search is over."""
        if self.found is None and self._attempts == ATTEMPTS:
            self._give_up()
        if self.found is not None:
            return None
        want = self.want
        mesh = StepMesh.of(want.ends, self.count, want.intervals is None, self.grading)
        needed = mesh.intervals * sum(want.divisions)
        if needed > want.most and not self._attempts:
            raise ValueError(f"max_steps = {want.most} is too small: raise it to {needed} or more")
        if needed > want.most:
            self._reason = f"more than max_steps = {want.most} steps would be needed"
            self._give_up()
            return None
        self._attempts += 1
        return mesh

    def grade(self, grading: Grading) -> None:
        """Use a graded mesh from now on, whose shortest intervals are about those of the next mesh."""
        self.grading, self._graded = grading, len(self._history)
        self.count = max(self._first_count(), math.ceil(MORE * self.count / grading.ratio))

    def failed(self, solution: Deferred) -> None:
        """A column has failed, with this solution."""
        self._failed = solution
        if self.want.intervals is not None:
            self._give_up()
        self._finer(3.0)

    def judge(self, attempt: Combination, excess: Callable[[], tuple[float, str]]) -> None:
        """Accept an attempt or make the mesh finer.

        ``excess`` returns other errors in units of what is wanted, and says which they are.
        """
        want, found = self.want, attempt.judgement
        self._history.append(attempt)
        if want.accuracy is None:
            self.found = Attempted(attempt, codes.SUCCESS)
        elif found.error <= 1:
            other, self._reason = excess()
            if other <= 1:
                self.found = Attempted(attempt, codes.SUCCESS)
                return
            self._finer(min(max(1.1 * other ** (1 / 5), 1.25), 8.0))
        else:
            why = _hopeless(self._history[self._graded :], float(want.accuracy.min()))
            if why:
                self._reason = self._reason or why
                self._give_up()
            self._finer(extrapolation.more(found, len(want.divisions)))

    def _finer(self, factor: float) -> None:
        self.count = math.ceil(factor * self.count)
        if self.grid is not None:
            self.count = math.ceil(self.grid ** math.ceil(math.log(self.count, self.grid) - 1e-9))

    def _give_up(self) -> None:
        """The best attempt is the result, or the failure if no attempt succeeded."""
        if not self._history:
            assert self._failed is not None
            solution = self._failed()
            self.found = Attempted(None, solution.status, "", solution)
            return
        best = min(self._history, key=lambda attempt: attempt.judgement.error)
        reason = self._reason or "the error did not become small enough"
        self.found = Attempted(best, codes.INACCURATE, reason)


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
    stuck = max(orders) < 0.5 and last.error * accuracy < TINY
    if stuck or last.error < NOISE * last.rounding:
        return "finer steps do not make it smaller, because of rounding. Ask for less accuracy"
    return (
        f"with finer steps it falls only like h^{max(orders):.1f}. Forces may have kinks or jumps (pass "
        "their times as breakpoints), stiff components may not be resolved, or neighbouring motions may "
        "separate too fast"
    )
