"""Derivatives of a course with events: along a direction, and its transpose.

The time t* of an event is a zero of its function e along the interpolated step, e(c, t*) = 0, where c are
both ends of the step and the arguments. So it changes by −e_c c' / e_t, and the state there by its
derivatives with respect to c and t*. The reset and the steps after it follow by the chain rule. All of them
are derivatives of what the run computes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from genalpha.engine.interpolate import StepEnd
from genalpha.run.through_events.course import Course, Leg

if TYPE_CHECKING:
    from genalpha.run.through_events.operation import EventfulRun

MOTION = ("q", "v", "lam", "psi")


class AtStart(NamedTuple):
    """Changes of the start of a leg, or derivatives with respect to it."""

    t: Any
    q: np.ndarray
    v: np.ndarray
    doubles: list[np.ndarray]


class OfLeg(NamedTuple):
    """Changes of a leg, or derivatives with respect to it.

    Of its records (K+1, width) and their times (K+1,), of the arguments, and of the states at its moments:
    t (J,), q, v, a, λ and ψ (J, ...).
    """

    records: np.ndarray
    ends: np.ndarray
    doubles: list[np.ndarray]
    states: list[np.ndarray]


def blank(run: EventfulRun, leg: Leg) -> OfLeg:
    """Zeros."""
    rows, dims = (len(leg.moments), len(leg.ends)), run.setup.dims
    states = [np.zeros((rows[0], *w)) for w in ((), (dims.size,), (dims.n,), (dims.n,), (dims.m,), (dims.p,))]
    doubles = [np.zeros(np.shape(x)) for x in leg.taken.doubles]
    return OfLeg(np.zeros((rows[1], run.tape.width)), np.zeros(rows[1]), doubles, states)


def add_to_ends(run: EventfulRun, of: OfLeg, steps: np.ndarray, found: list[np.ndarray]) -> None:
    """Add derivatives with respect to t, q, v, λ and ψ at the ends of some steps."""
    np.add.at(of.ends, steps, found[0])
    for name, x in zip(MOTION, found[1:], strict=True):
        at = run.layout.parts[name]
        np.add.at(of.records, (steps[:, None], np.arange(at.start, at.stop)[None]), x)


class _Moments:
    """The moments of a leg as rows of inputs of ``run.at_event``."""

    def __init__(self, run: EventfulRun, leg: Leg) -> None:
        self.run, self.leg, self.steps = run, leg, np.array([m.step for m in leg.moments], dtype=int)
        self.first = np.array([m.events[0] for m in leg.moments], dtype=int)
        nodes = run.layout.ends(leg.records, leg.ends)
        nodes = StepEnd(
            *(np.concatenate([x[:-1], np.asarray(y)[None]]) for x, y in zip(nodes, leg.last, strict=True))
        )
        t = np.array([float(m.state.t) for m in leg.moments])
        pick = lambda steps: [x[steps] for x in nodes]
        self.inputs = [*pick(self.steps - 1), *pick(self.steps), t, *leg.taken.doubles]
        self.nowhere = [np.zeros_like(x) for x in self.inputs]
        along = [*self.nowhere]
        along[10] = np.ones_like(t)
        self.in_time = run.at_event.tangent(self.inputs, [], along)  # derivatives with respect to t

    @property
    def slope(self) -> np.ndarray:
        """The rates (J,) of the functions of the events."""
        return self.in_time[0][np.arange(len(self.first)), self.first]

    def changed(self, of: OfLeg) -> list[np.ndarray]:
        """The changes of the states, from those of the steps as taken."""
        columns, steps = self.run.layout.parts, self.steps
        ends = lambda i: [of.ends[i], *(of.records[i][:, columns[name]] for name in MOTION)]
        along = [*ends(steps - 1), *ends(steps), self.nowhere[10], *of.doubles]
        values, *states = self.run.at_event.tangent(self.inputs, [], along)
        t = -values[np.arange(len(self.first)), self.first] / self.slope
        moved = [x + rate * t[:, None] for x, rate in zip(states, self.in_time[1:], strict=True)]
        return [t, *moved]

    def pull(self, of: OfLeg) -> None:
        """Add the derivatives with respect to the steps as taken, from those to the states."""
        t, *states = of.states
        values = np.zeros_like(self.in_time[0])
        back = self.run.at_event.cotangent(self.inputs, [], [values, *states])
        values[np.arange(len(self.first)), self.first] = -(t + back[10]) / self.slope
        more = self.run.at_event.cotangent(self.inputs, [], [values, *(0 * x for x in states)])
        total = [x + y for x, y in zip(back, more, strict=True)]
        add_to_ends(self.run, of, self.steps - 1, total[:5])
        add_to_ends(self.run, of, self.steps, total[5:10])
        for own, x in zip(of.doubles, total[11:], strict=True):
            own += x


def tangent(run: EventfulRun, course: Course, start: AtStart, times: np.ndarray) -> list[OfLeg]:
    """Changes of all legs, from those of the start and of the given times of steps."""
    found = []
    for leg in course.legs:
        of = blank(run, leg)
        of.ends[:] = leg.share * start.t + (1 - leg.share) * times[leg.of]
        sizes = np.diff(of.ends)
        first = np.concatenate(
            [np.ravel(x) for x in (of.ends[0], start.q, start.v, sizes[0], *start.doubles)]
        )
        of.records[:] = run.changed(leg.taken, first, np.stack([of.ends[:-1], sizes], axis=1))
        of = of._replace(doubles=start.doubles)
        if leg.moments:
            of = of._replace(states=_Moments(run, leg).changed(of))
        if leg.cut:
            of.ends[-1] = of.states[0][-1]
            for name, x in zip(MOTION, [of.states[k] for k in (1, 2, 4, 5)], strict=True):
                of.records[-1, run.layout.parts[name]] = x[-1]
            start = _after(run, leg, of)
        found.append(of)
    return found


def _after(run: EventfulRun, leg: Leg, of: OfLeg) -> AtStart:
    """Changes of the start of the next leg."""
    state, doubles = [x[-1] for x in of.states], of.doubles
    for i, at, values in leg.applied:
        inputs = [np.asarray(x, dtype=float)[None] for x in (*at, *values)]
        found = run.resets[i].tangent(inputs, [], [np.asarray(x)[None] for x in (*state, *doubles)])
        state[1], state[2], *doubles = (x[0] for x in found[:-1])
    return AtStart(state[0], state[1], state[2], doubles)


def cotangent(
    run: EventfulRun, course: Course, weights: list[OfLeg], count: int
) -> tuple[AtStart, np.ndarray]:
    """Derivatives with respect to the start and to ``count`` given times, from those to all legs."""
    later: AtStart | None = None
    times = np.zeros(count)
    for leg, of in zip(reversed(course.legs), reversed(weights), strict=True):
        if leg.cut:
            _gather_end(run, leg, of, later)
        if leg.moments:
            _Moments(run, leg).pull(of)
        first, of_steps = run.pulled(leg.taken, of.records)
        t, q, v, size, *doubles = run.apart(first, leg.taken.doubles)
        sizes = of_steps[:, 1].copy()
        sizes[0] += size[0]
        ends = of.ends
        ends[0] += t[0]
        ends[:-1] += of_steps[:, 0] - sizes
        ends[1:] += sizes
        np.add.at(times, leg.of, (1 - leg.share) * ends)
        pairs = zip(of.doubles, doubles, strict=True)
        later = AtStart(leg.share @ ends, q, v, [x + y.reshape(x.shape) for x, y in pairs])
    assert later is not None
    return later, times


def _gather_end(run: EventfulRun, leg: Leg, of: OfLeg, later: AtStart | None) -> None:
    """Add derivatives with respect to the end of a leg and the start of the next one to its last state."""
    own = [x[-1] for x in of.states]
    of.states[0][-1] += of.ends[-1]
    of.ends[-1] = 0.0
    for name, k in zip(MOTION, (1, 2, 4, 5), strict=True):
        at = run.layout.parts[name]
        own[k] += of.records[-1, at]
        of.records[-1, at] = 0.0
    if later is None:
        return
    of.states[0][-1] += later.t
    q, v, doubles = later.q, later.v, later.doubles
    for i, at, values in reversed(leg.applied):
        inputs = [np.asarray(x, dtype=float)[None] for x in (*at, *values)]
        back = run.resets[i].cotangent(inputs, [], [np.asarray(x)[None] for x in (q, v, *doubles, 0.0)])
        t, q, v, a, lam, psi, *doubles = (x[0] for x in back)
        of.states[0][-1] += t
        for k, x in ((3, a), (4, lam), (5, psi)):
            own[k] += x
    own[1] += q
    own[2] += v
    for mine, x in zip(of.doubles, doubles, strict=True):
        mine += x
