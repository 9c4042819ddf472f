"""``accuracy`` with events: the whole run twice, and the difference as its error."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from genalpha.backends import sampling
from genalpha.engine import events
from genalpha.engine.events import Happened
from genalpha.engine.extrapolation import Sizes
from genalpha.numerics import codes
from genalpha.results.concatenate import concatenate
from genalpha.results.deferred import Deferred
from genalpha.results.global_errors import GlobalErrors
from genalpha.results.phases import Phases
from genalpha.results.progress import Bar
from genalpha.results.records import Stats
from genalpha.results.solution import Solution
from genalpha.run import restart
from genalpha.run.accurate.columns import Column, ColumnStore
from genalpha.run.accurate.combine import MeshMotion, relative
from genalpha.run.accurate.legs import Course, Leg, LegRuns
from genalpha.run.accurate.result import Result
from genalpha.run.request import Request

# The legs of one run after the other are computed with these fractions of the wanted accuracy. The difference
# of two runs is the estimated error of the better one.
FRACTIONS = (1.0, 0.1, 0.01, 0.001)


class Compared(NamedTuple):
    """The better of two runs, and the differences of both at its rows, of all legs together.

    ``norm`` (K,) is in units of the accuracy.
    """

    best: Course
    error: GlobalErrors
    matches: bool
    forces: float = 0.0  # the error of the multipliers, in units of their accuracy

    @property
    def largest(self) -> float:
        return max(float(np.max(self.error.norm, initial=0.0)), self.forces) if self.matches else np.inf


def run(asked: Request, bar: Bar, store: ColumnStore | None) -> Solution:
    """The solution with an estimate of its global error."""
    legs = LegRuns(asked, bar, store)
    course = legs.course(FRACTIONS[0])
    work, tried = [course], list[Compared]()
    for fraction in FRACTIONS[1:]:
        finer = legs.course(fraction)
        work.append(finer)
        if not finer.legs:
            assert finer.failed is not None
            return finer.failed
        tried.append(_compared(legs, course, finer))
        course = finer
        if tried[-1].largest <= 1 or (len(tried) > 1 and tried[-1].largest > 0.5 * tried[-2].largest):
            break
    return _solution(legs, min(tried, key=lambda each: each.largest), work)


def _compared(legs: LegRuns, coarse: Course, fine: Course) -> Compared:
    """Differences at the rows of the finer run."""
    assert legs.want.accuracy is not None
    missing = [None] * (len(fine.legs) - len(coarse.legs))
    pairs = list(zip([*coarse.legs, *missing], fine.legs, strict=False))
    happened = [[h.event for h in course.happened] for course in (coarse, fine)]
    matches = len(coarse.legs) == len(fine.legs) and happened[0] == happened[1]
    found = [_differences(legs, *pair) for pair in pairs]
    joined = lambda i: np.concatenate([each[i] for each in found])
    motion = np.concatenate([leg.motion.v for _, leg in pairs])
    t0, t1 = legs.asked.span
    sizes = Sizes.of(legs.want.accuracy, joined(0), motion, t1 - t0)
    dq, dv = joined(1), joined(2)
    norm = sizes.norm(dq, dv)
    norm[0] = 0.0
    parts = [*(np.abs(x) for x in (dq, dv, *map(joined, (3, 4, 5)))), norm]
    forces = 0.0
    if legs.want.forces is not None:
        forces = max(relative(joined(4), joined(6)), relative(joined(5), joined(7))) / legs.want.forces
    return Compared(fine, GlobalErrors(*parts), matches, forces)


def _differences(legs: LegRuns, coarse: Leg | None, fine: Leg) -> tuple[np.ndarray, ...]:
    """The magnitudes of q, differences of q, v, a, λ and ψ at the rows of the finer leg, and its λ and ψ.

    The differences are infinite if the other run has no such leg.
    """
    space, (t, q, v) = legs.setup.system.space, fine.motion
    one = fine.run.columns.derived(fine.motion)
    if coarse is None:
        magnitude = fine.run.combiner.compared(q, q)[1]
        unknown = (np.full_like(x, np.inf) for x in (v, v, one.a, one.lam, one.psi))
        return magnitude, *unknown, one.lam, one.psi
    other = sampling.smooth(space, coarse.whole, t)
    move, magnitude = fine.run.combiner.compared(q, other[0])
    two = coarse.run.columns.derived(Column(t, *other))
    forces = ((x - y) for x, y in ((one.a, two.a), (one.lam, two.lam), (one.psi, two.psi)))
    return magnitude, move, other[1] - v, *forces, one.lam, one.psi


def _solution(legs: LegRuns, found: Compared, work: list[Course]) -> Solution:
    """The solution of all legs of the better run."""
    course, keep = found.best, legs.asked.output
    status, detail = course.status, course.detail
    if status <= codes.SUCCESS and found.largest > 1:
        status, detail = codes.INACCURATE, _why(found)
    parts: list[Solution] = []
    first = 0
    for i, leg in enumerate(course.legs):
        last = i == len(course.legs) - 1
        own = GlobalErrors(*(x[first : first + len(leg.motion.t)] for x in found.error))
        first += len(leg.motion.t)
        result = _result(legs, leg, i == 0)
        attempt = leg.attempt._replace(motion=MeshMotion.of(leg.motion))
        part = result.solution(attempt, *((status, detail) if last else (codes.SUCCESS, "")), own)
        stopped = part.status == codes.STOPPED
        if keep.every > 0 or last or stopped:
            parts.append(part)
        if stopped:
            break
    sol = concatenate(*parts, jumps=True) if len(parts) > 1 else parts[0]
    listed = events.lists(len(legs.listed), _happened(course, sol), legs.setup.dims)
    more: dict[str, Any] = {f"{name}_events": rows for name, rows in listed.items()}
    whole = dataclasses.replace(sol, stats=_stats(sol, course, work), **more)
    phases = sol.__dict__["_equations"].phases
    return whole.connected(_after(legs, course, sol), Phases(phases, legs.listed))


def _result(legs: LegRuns, leg: Leg, first: bool) -> Result:
    """Makes the solution of a leg, with the rows that the user wants."""
    asked, keep = leg.run.asked, legs.asked.output
    if keep.t_eval is not None:
        t0 = leg.motion.t[0]
        own = keep.t_eval[(keep.t_eval >= t0) if first else (keep.t_eval > t0)]
        keep = dataclasses.replace(keep, t_eval=own)
    asked = asked._replace(output=keep, watch=legs.asked.watch)
    return Result(asked, leg.run.columns, leg.run.combiner)


def _stats(sol: Solution, course: Course, work: list[Course]) -> Stats:
    """The totals of a solution. Steps of the runs that were not used count as rejected."""
    unused = [leg.run.columns for each in work if each is not course for leg in each.legs]
    rejected = sum(columns.steps + columns.earlier for columns in unused)
    return dataclasses.replace(sol.stats, rejected=sol.stats.rejected + rejected)


def _happened(course: Course, sol: Solution) -> list[Happened]:
    """The events up to the end of a solution, which the callback may have ended early."""
    return [h for h in course.happened if float(h.state.t) <= sol.t_end]


def _after(legs: LegRuns, course: Course, sol: Solution) -> Deferred | None:
    """The state from which another run can continue."""
    outcome, args = course.legs[-1].outcome, course.legs[-1].args
    if course.status in (codes.CROWDED, codes.NOT_RESUMED) or course.failed is not None:
        return None
    if outcome is None or sol.status == codes.STOPPED:
        return sol.__dict__["_later"]
    return Deferred(
        lambda: restart.state_anew(legs.setup, outcome.after, args.after(outcome.args), outcome.together)
    )


def _why(found: Compared) -> str:
    """Why the accuracy was not reached."""
    if not found.matches:
        return "Runs with different accuracies have different events: two of them may nearly coincide"
    return (
        f"The estimated error is {found.largest:.2g} times the accuracy that was asked for: rounding, or "
        "motions that separate fast after their events, let it grow"
    )
