"""Legs of a run with events and a wanted accuracy: extrapolated runs from one event to the next."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from genalpha.backends import sampling
from genalpha.engine import events, extrapolation, step_choice
from genalpha.engine.events import Happened
from genalpha.engine.extrapolation import Accurate
from genalpha.engine.interpolate import Smooth, StepEnd
from genalpha.engine.step_choice import StepOptions
from genalpha.numerics import codes
from genalpha.numerics.data import State
from genalpha.results.output import Output
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import restart
from genalpha.run.accurate.columns import Column, ColumnStore
from genalpha.run.accurate.combine import Combination
from genalpha.run.accurate.front import AccurateRun, controlled, placed
from genalpha.run.event_handling import Handler, Outcome, explained
from genalpha.run.request import Request, Restart, Watch
from genalpha.run.restart import RunArgs

# The functions of events are evaluated at so many points of every interval.
POINTS = 8
# A leg is computed beyond the event that ends it by this fraction of its expected length.
BEYOND = 0.1
# The intervals of a leg, as a multiple of those of the same leg with ten times the accuracy; and the fewest.
MORE, LEAST = 1.5, 8
# The tolerance of the run that predicts the times of events.
PREDICTED = 1e-5


class Leg(NamedTuple):
    """The motion from one event to the next, as a run and its attempt.

    ``motion`` ends at the event. ``whole`` is the motion with its accelerations, a little beyond it.
    ``outcome`` is None if the leg ends with the span.
    """

    run: AccurateRun
    attempt: Combination
    motion: Column
    whole: Smooth
    outcome: Outcome | None
    args: RunArgs


class Course(NamedTuple):
    """All legs of a run and its events; and why it could not go on, as a status with its detail."""

    legs: list[Leg]
    happened: list[Happened]
    status: int = codes.SUCCESS
    detail: str = ""
    failed: Solution | None = None


class LegStart(NamedTuple):
    """The start of a leg: its request and args, and the events that have just happened.

    ``before`` (E,) are the values of the functions of all events before the resets.
    """

    asked: Request
    args: RunArgs
    just: tuple[int, ...]
    before: np.ndarray | None = None

    def after(self, outcome: Outcome, before: np.ndarray) -> LegStart:
        """The start after an event, before which the functions of events had the given values."""
        at, args, asked = outcome.after, self.args.after(outcome.args), self.asked
        start = asked.start._replace(t=float(at.t), q=at.q, v=at.v, guess=(at.lam, at.psi), mode="check")
        asked = asked._replace(start=start, args=args.now, restart=Restart())
        return LegStart(asked, args, outcome.together, before)


class LegRuns:
    """Runs legs one after the other, as accurately as wanted."""

    def __init__(self, asked: Request, bar: Bar, store: ColumnStore | None) -> None:
        assert asked.accurate is not None
        self.asked, self.bar, self.want, self.store = asked, bar, asked.accurate, store
        self.setup, self.listed, self.end = asked.setup, asked.watch.events, asked.span[1]
        start = placed(self.setup, asked.start, restart.starting_args(asked).now)
        self.first = asked._replace(start=start, restart=asked.restart._replace(checkpoint=None))
        self.predicted = self._predicted()
        self.before: list[Leg] = []  # those of the run before

    def _predicted(self) -> np.ndarray:
        """The times at which events change the motion or end it, as a run with error control finds them."""
        asked = self.first._replace(output=Output(), watch=Watch(events=self.listed))
        sol = controlled(asked, StepOptions(rtol=PREDICTED))
        if sol is None:
            return np.zeros(0)
        resets = sol.t[1:][np.diff(sol.t) == 0]
        return np.append(resets, sol.t_end) if sol.status == codes.EVENT else resets

    def course(self, factor: float) -> Course:
        """All legs, with this fraction of the wanted accuracy."""
        asked, args = self.first, restart.starting_args(self.first)
        t0, state = asked.start.t, asked.restart.state
        handler = Handler(self.setup, self.listed, t0, self.end - t0, args.now)
        start = LegStart(asked, args, () if state is None else state.just)
        legs, outcome = list[Leg](), None
        while True:
            try:
                if outcome is not None:
                    outcome.check_finite()
                leg = self._leg(len(legs), start, handler, factor)
            except ValueError as error:
                if outcome is None:
                    raise
                return Course(legs, handler.happened, codes.NOT_RESUMED, explained(error, outcome))
            if isinstance(leg, Solution):
                return Course(legs, handler.happened, leg.status, leg.message, leg)
            legs.append(leg)
            outcome = leg.outcome
            if outcome is None or outcome.stop or float(outcome.after.t) >= self.end:
                self.before = legs
                return Course(legs, handler.happened, self._status(outcome))
            start = start.after(outcome, handler.values(outcome.state))
            handler.use(start.args.now)

    def _status(self, outcome: Outcome | None) -> int:
        if outcome is None or not outcome.stop:
            return codes.SUCCESS
        return codes.CROWDED if outcome.crowded else codes.EVENT

    def _leg(self, number: int, start: LegStart, handler: Handler, factor: float) -> Leg | Solution:
        """The leg from a start to the next event that changes the motion, or to the end of the span."""
        known = len(handler.happened)
        end, count = self._expected(number, start.asked.start.t)
        while True:
            run = AccurateRun(self._request(start.asked, end, factor), self.bar, count, self.store)
            found = run.attempted()
            if found.attempt is None:
                assert found.failed is not None
                return found.failed
            motion = found.attempt.motion.all()
            whole = run.combiner.smooth(found.attempt.mesh, motion)
            outcome = self._search(run, handler, whole, start)
            if outcome is not None or end == self.end:
                break
            end, count = self.end, None
            del handler.happened[known:]
        motion = motion if outcome is None else _until(motion, outcome.state)
        return Leg(run, found.attempt, motion, whole, outcome, start.args)

    def _expected(self, number: int, t: float) -> tuple[float, int | None]:
        """A time soon after the event that ends a leg, and the number of intervals up to it, if known."""
        if number >= len(self.before):
            known = number < len(self.predicted) and self.predicted[number] > t
            return (self._beyond(t, self.predicted[number] - t) if known else self.end), None
        last = self.before[number]
        if last.outcome is None:
            return self.end, math.ceil(MORE * last.attempt.mesh.intervals)
        end = self._beyond(t, last.motion.t[-1] - last.motion.t[0])
        share = (end - t) / (last.whole.t[-1] - last.whole.t[0])
        return end, max(LEAST, math.ceil(MORE * share * last.attempt.mesh.intervals))

    def _beyond(self, t: float, length: float) -> float:
        return min(self.end, t + (1 + BEYOND) * length)

    def _request(self, asked: Request, end: float, factor: float) -> Request:
        """A run without events from a start to a time, with this fraction of the wanted accuracy."""
        assert self.want.accuracy is not None
        t, accuracy = asked.start.t, np.maximum(factor * self.want.accuracy, step_choice.LEAST_ACCURACY)
        between = [x for x in self.want.ends[1:-1] if t < x < end]
        parts = extrapolation.divisions(extrapolation.columns_for(float(accuracy.min())), self.want.even)
        forces = self.want.forces
        forces = None if forces is None else max(factor * forces, step_choice.LEAST_ACCURACY)
        want = Accurate(accuracy, None, parts, (t, *between, end), self.want.most, forces, self.want.even)
        return asked._replace(span=(t, end), accurate=want, output=Output(dense=True), watch=Watch())

    def _search(self, run: AccurateRun, handler: Handler, whole: Smooth, start: LegStart) -> Outcome | None:
        """Record the events of a motion up to the first one that changes it."""
        space, dims = self.setup.system.space, self.setup.dims
        own = run.columns.derived(Column(*whole[:3]))

        def ends(t: np.ndarray) -> StepEnd:
            q, v = sampling.smooth(space, whole, t)
            _, q, v = run.combiner.placed(Column(t, q, v), np.zeros_like(v), v)
            near = np.minimum(np.searchsorted(whole.t, t), len(whole.t) - 1)
            return StepEnd(t, q, v, own.lam[near], own.psi[near])

        def state(t: float) -> State:
            at, q, v, lam, psi = (x[0] for x in ends(np.array([t])))
            return State(at, q, v, np.zeros(dims.n), lam, psi)  # type: ignore[arg-type]

        fractions = np.arange(POINTS) / POINTS
        times = np.append((whole.t[:-1, None] + np.diff(whole.t)[:, None] * fractions).ravel(), whole.t[-1])
        values = handler.values_at(ends(times))
        first = State(whole.t[0], *(x[0] for x in (*whole[1:], own.lam, own.psi)))
        values[0] = handler.known(first, start.just, start.before)
        fired = np.asarray(events.fired(self.setup.crossings, values[:-1], values[1:]))
        for i in np.flatnonzero(fired.any(axis=1)):
            span = (float(times[i]), float(times[i + 1]))
            outcome = handler.occurrences(span, fired[i], lambda t: handler.values_at(ends(t)), state)
            if outcome is not None:
                return outcome
        return None


def _until(motion: Column, state: State) -> Column:
    """The motion up to a state, which is its last row."""
    count = max(1, int(np.searchsorted(motion.t, float(state.t))))
    last = (np.float64(state.t), state.q, state.v)
    return Column(
        *(np.concatenate([x[:count], np.asarray(y)[None]]) for x, y in zip(motion, last, strict=True))
    )
