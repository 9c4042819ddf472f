"""Derivatives of a course with events: along a direction, and its transpose.

At an event with the function e, a change δ of the state at a fixed time moves the time of the event by
−e'δ / ė, where ė is the rate of e along the motion. The state there changes by δ and, with the change of
time, by its own rate. The reset and the steps after it follow by the chain rule. For the motion itself this
is the saltation matrix. Changes at fixed times are those of the interpolated discrete solution. Rates are
those of the equations of motion. The rate of the interpolated velocity would be of first order only: its
parabola has errors of second order within a step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from genalpha.engine.interpolate import StepEnd
from genalpha.run.through_events.course import HostCourse, HostLeg

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


def blank(run: EventfulRun, leg: HostLeg) -> OfLeg:
    """Zeros."""
    rows, dims = (len(leg.moments), len(leg.ends)), run.setup.dims
    states = [np.zeros((rows[0], *w)) for w in ((), (dims.size,), (dims.n,), (dims.n,), (dims.m,), (dims.p,))]
    doubles = [np.zeros(np.shape(x)) for x in leg.taken.doubles]
    return OfLeg(np.zeros((rows[1], run.tape.width)), np.zeros(rows[1]), doubles, states)


def as_taken(run: EventfulRun, leg: HostLeg) -> StepEnd:
    """The ends of the steps (K+1, ...) as they were taken."""
    nodes = run.layout.ends(leg.records, leg.ends)
    pairs = zip(nodes, leg.last, strict=True)
    return StepEnd(*(np.concatenate([x[:-1], np.asarray(y)[None]]) for x, y in pairs))


class Within:
    """The motion (J, ...) at some times within steps of a leg, by interpolation.

    Ends of steps move with the events before them. Here their changes count at fixed times: those at moving
    times, less what the rates of the motion bring.
    """

    def __init__(self, run: EventfulRun, leg: HostLeg, steps: np.ndarray, t: np.ndarray) -> None:
        self.run, self.doubles = run, leg.taken.doubles
        self.ends, nodes = (np.maximum(steps - 1, 0), steps), as_taken(run, leg)
        before, after = ([x[i] for x in nodes] for i in self.ends)
        self.inputs = [*before, *after, t]
        size = np.where(steps == 0, 1.0, after[0] - before[0])[:, None]
        self.of_loads = [(after[k] - before[k]) / size for k in (3, 4)]  # as interpolated
        self.rates = [self.flow(before), self.flow(after)]

    def flow(self, at: list[np.ndarray]) -> list[np.ndarray]:
        """The rates of q, v, λ and ψ at some states (J, ...): t, q, v, λ, ψ."""
        a = self.run.at_event.value([*at, *self.doubles])[3]
        return [*self.run.rate.value(at[1:3]), a, *self.of_loads]

    def value(self) -> list[np.ndarray]:
        """q, v, λ and ψ."""
        return self.run.sampling.value(self.inputs)

    def changed(self, of: OfLeg) -> list[np.ndarray]:
        """Their changes."""
        along = []
        for steps, rates in zip(self.ends, self.rates, strict=True):
            t, parts = of.ends[steps], [of.records[steps][:, self.run.layout.parts[name]] for name in MOTION]
            moved = [x - rate * t[:, None] for x, rate in zip(parts, rates, strict=True)]
            along += [np.zeros_like(t), *moved]
        return self.run.sampling.tangent(self.inputs, [], [*along, np.zeros_like(self.inputs[10])])

    def pull(self, of: OfLeg, weights: list[np.ndarray]) -> None:
        """Add the derivatives with respect to the steps as taken, from those to q, v, λ and ψ."""
        back = self.run.sampling.cotangent(self.inputs, [], weights)
        for steps, rates, parts in zip(self.ends, self.rates, (back[1:5], back[6:10]), strict=True):
            pairs = zip(parts, rates, strict=True)
            np.subtract.at(of.ends, steps, sum((x * rate).sum(axis=1) for x, rate in pairs))
            for name, x in zip(MOTION, parts, strict=True):
                at = self.run.layout.parts[name]
                np.add.at(of.records, (steps[:, None], np.arange(at.start, at.stop)[None]), x)


class _Moments:
    """The moments of a leg, and how the states there change with the motion."""

    def __init__(self, run: EventfulRun, leg: HostLeg) -> None:
        steps, first = (np.array(x) for x in zip(*((m.step, m.events[0]) for m in leg.moments), strict=True))
        self.run, self.first = run, (np.arange(len(first)), first)
        self.t = np.array([float(m.state.t) for m in leg.moments])
        self.motion = Within(run, leg, steps, self.t)
        self.inputs = [self.t, *self.motion.value(), *leg.taken.doubles]
        rest = [np.zeros_like(x) for x in leg.taken.doubles]
        along = [np.ones_like(self.t), *self.motion.flow(self.inputs[:5]), *rest]
        values, *self.rates = run.at_event.tangent(self.inputs, [], along)
        self.slope = values[self.first]  # ė (J,)

    def changed(self, of: OfLeg) -> list[np.ndarray]:
        """The changes of the states, from those of the steps as taken."""
        along = [np.zeros_like(self.t), *self.motion.changed(of), *of.doubles]
        values, *states = self.run.at_event.tangent(self.inputs, [], along)
        t = -values[self.first] / self.slope
        return [t, *(x + rate * t[:, None] for x, rate in zip(states, self.rates, strict=True))]

    def pull(self, of: OfLeg) -> None:
        """Add the derivatives with respect to the steps as taken, from those to the states."""
        t, *states = of.states
        along = sum((x * rate).sum(axis=1) for x, rate in zip(states, self.rates, strict=True))
        values = np.zeros((len(self.t), len(self.run.plan.events)))
        values[self.first] = -(t + along) / self.slope
        _, *back = self.run.at_event.cotangent(self.inputs, [], [values, *states])
        self.motion.pull(of, back[:4])
        for own, x in zip(of.doubles, back[4:], strict=True):
            own += x


def tangent(run: EventfulRun, course: HostCourse, start: AtStart, times: np.ndarray) -> list[OfLeg]:
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
            start = _after(run, leg, of)
        found.append(of)
    return found


def shown(run: EventfulRun, leg: HostLeg, of: OfLeg) -> tuple[np.ndarray, np.ndarray]:
    """Changes of the records and of their times. The last one is at the event that ends the leg."""
    records, ends = of.records.copy(), of.ends.copy()
    if leg.cut:
        ends[-1] = of.states[0][-1]
        for name, k in zip(MOTION, (1, 2, 4, 5), strict=True):
            records[-1, run.layout.parts[name]] = of.states[k][-1]
    return records, ends


def move_to_event(run: EventfulRun, leg: HostLeg, of: OfLeg) -> None:
    """The transpose of `shown`: derivatives with respect to the last record are those to the last state."""
    if not leg.cut:
        return
    of.states[0][-1] += of.ends[-1]
    of.ends[-1] = 0.0
    for name, k in zip(MOTION, (1, 2, 4, 5), strict=True):
        at = run.layout.parts[name]
        of.states[k][-1] += of.records[-1, at]
        of.records[-1, at] = 0.0


def _after(run: EventfulRun, leg: HostLeg, of: OfLeg) -> AtStart:
    """Changes of the start of the next leg."""
    state, doubles = [x[-1] for x in of.states], of.doubles
    for i, at, values in leg.applied:
        inputs = [np.asarray(x, dtype=float)[None] for x in (*at, *values)]
        found = run.resets[i].tangent(inputs, [], [np.asarray(x)[None] for x in (*state, *doubles)])
        state[1], state[2], *doubles = (x[0] for x in found[:-1])
    return AtStart(state[0], state[1], state[2], doubles)


def cotangent(
    run: EventfulRun, course: HostCourse, weights: list[OfLeg], count: int
) -> tuple[AtStart, np.ndarray]:
    """Derivatives with respect to the start and to ``count`` given times, from those to all legs."""
    later: AtStart | None = None
    times = np.zeros(count)
    for leg, of in zip(reversed(course.legs), reversed(weights), strict=True):
        if later is not None:
            _pull_resets(run, leg, of, later)
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


def _pull_resets(run: EventfulRun, leg: HostLeg, of: OfLeg, later: AtStart) -> None:
    """Add derivatives with respect to the start of the next leg to those to the last state of this one."""
    of.states[0][-1] += later.t
    q, v, doubles = later.q, later.v, later.doubles
    for i, at, values in reversed(leg.applied):
        inputs = [np.asarray(x, dtype=float)[None] for x in (*at, *values)]
        back = run.resets[i].cotangent(inputs, [], [np.asarray(x)[None] for x in (q, v, *doubles, 0.0)])
        t, q, v, a, lam, psi, *doubles = (x[0] for x in back)
        for k, x in ((0, t), (3, a), (4, lam), (5, psi)):
            of.states[k][-1] += x
    of.states[1][-1] += q
    of.states[2][-1] += v
    for mine, x in zip(of.doubles, doubles, strict=True):
        mine += x
