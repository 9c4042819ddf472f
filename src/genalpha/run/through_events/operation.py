"""A run with events as an operation of JAX."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.native.tape import TapedControlledKernels, TapedKernels
from genalpha.backends.transforms.controlled_runs import sampling
from genalpha.backends.transforms.dense_run import DenseRun
from genalpha.backends.transforms.operation import Arrays, Shape
from genalpha.backends.transforms.records import NUMBERS, Found, Rebuild
from genalpha.backends.transforms.rows import RowOperation
from genalpha.backends.transforms.runs import TAPE
from genalpha.engine import event_values, interpolate
from genalpha.engine.events import Event
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Rows
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given, Steps
from genalpha.mechanics import initial_values
from genalpha.numerics.data import COUNTED, Times
from genalpha.run.through_events import course as courses
from genalpha.run.through_events import sensitivities
from genalpha.run.through_events.course import HostCourse
from genalpha.run.through_events.resets import ResetOperation
from genalpha.run.through_events.sensitivities import MOTION, AtStart, OfLeg, Within


class EventPlan(NamedTuple):
    """Events, the rows that are kept ("all", "times" or "final"), and the most occurrences of an event."""

    events: tuple[Event, ...]
    keep: str
    most: int


class _ShownRows(NamedTuple):
    """Where the rows of the output come from: leg and step of each, and whether it is within the step.

    ``lost`` rows are those that a failed run did not reach.
    """

    leg: np.ndarray
    step: np.ndarray
    within: np.ndarray
    lost: np.ndarray

    def of(self, leg: int, within: bool) -> np.ndarray:
        """The numbers of the rows of a leg, at the ends of steps or within them."""
        return np.flatnonzero((self.leg == leg) & (self.within == within) & ~self.lost)


class EventfulFound(NamedTuple):
    """The outputs: the run, the lists of events (E, M, ...) by name, and the doubles of all rows or None."""

    run: Found
    happened: dict[str, Any]
    doubles: list[Any] | None


class EventfulRun(DenseRun):
    """A run with events.

    Inputs are t_eval if rows at given times are kept, the span, q, v, the steps (times and sizes, or the
    leaves of the control), and the arguments. Rows after the end repeat the last one.
    """

    def __init__(
        self, setup: Setup, strict: bool, doubles: list[Any], rebuild: Rebuild, steps: Steps, plan: EventPlan
    ) -> None:
        self.kind = TapedControlledKernels if steps.controlled else TapedKernels
        super().__init__(setup, strict, doubles, rebuild, steps if steps.controlled else 1.0)
        self.plan, self.counted = plan, len(COUNTED)
        self.even = getattr(steps, "even", False)
        self.steps: Any = None if isinstance(steps, Given) else jax.tree.structure(steps)
        self._most = steps.room(0)
        self.room = [min(int(e.terminal) or plan.most, plan.most) for e in plan.events]
        self.values = [np.zeros(np.shape(x)) for x in doubles]
        example = rebuild(self.values)
        self.resets = {
            i: ResetOperation(setup, i, e, example) for i, e in enumerate(plan.events) if e.reset is not None
        }
        self.changes_args = any(reset.changes_args for reset in self.resets.values())
        self.functions: dict[str, RowOperation] = {}
        self.sampling = sampling(setup)
        self.at_event = self._at_event()
        point = np.zeros(setup.dims.size), np.zeros(setup.dims.n)
        self.rate = RowOperation("rate", setup.system.space.rate, point, [False] * 2)
        smooth = len(self.parts) - 1 + 7 + (len(doubles) if self.changes_args else 0)
        self.smooth = (*[True] * smooth, *[False] * (2 + bool(steps.controlled) + len(NUMBERS) + 1))
        self._last: tuple[list[np.ndarray], HostCourse] | None = None

    def _at_event(self) -> RowOperation:
        """The functions of all events, and q, v, a, λ and ψ on the constraints, for the motion at a time."""
        setup, dims, zeros = self.setup, self.setup.dims, lambda *shape: np.zeros(shape)

        def one(at: StepEnd, x: list[Any]) -> Any:
            args, (t, q, v, *loads) = self.rebuild(x), at
            state, _ = initial_values.settled(setup.system, dims, t, q, v, args, (loads[0], loads[1]))
            return event_values.values(setup, at, args), *state[1:]

        at = StepEnd(zeros(), zeros(dims.size), zeros(dims.n), zeros(dims.m), zeros(dims.p))
        return RowOperation("event", one, (at, self.values), [False] * 5 + [True] * len(self.values))

    # --- inputs and outputs -----------------------------------------------------------------------

    def _split(self, inputs: Arrays) -> tuple[Any, tuple[float, float], Any, Any, Steps, list[Any]]:
        """The wanted times or None, the span, q, v, the steps, and the arguments."""
        times, rest = (inputs[0], inputs[1:]) if self.plan.keep == "times" else (None, inputs)
        t0, t1, q, v, *others = rest
        count = 2 if self.steps is None else self.steps.num_leaves
        given, doubles = others[:count], list(others[count:])
        steps: Steps
        if self.steps is None:
            steps = Given(given[0], Times(given[0][:-1], given[1]), self.even)
        else:
            steps = jax.tree.unflatten(self.steps, given)
        return times, (float(t0), float(t1)), q, v, steps, doubles

    def _count(self, inputs: Sequence[Shape]) -> int:
        """The number of rows."""
        if self.plan.keep == "times":
            return inputs[0][0]
        if self.plan.keep == "final":
            return 1
        resets = sum(self.room[i] for i in self.resets)
        return inputs[5][0] + 1 + 2 * resets if self.steps is None else self._most + 1 + resets

    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        count, dims, events = self._count(inputs), self.setup.dims, (len(self.room), max(self.room))
        *parts, report = [(count, at.stop - at.start) for at in self.parts]
        lists = [(*events, *w) for w in ((), (dims.size,), (dims.n,), (dims.m,), (dims.p,))]
        doubles = [(count, *x.shape) for x in self.values] if self.changes_args else []
        errors = [] if self.steps is None else [(count, 1 + 2 * dims.n)]
        numbers = [()] * len(NUMBERS)
        return [
            *(*parts, (count,), (), *lists, *doubles),
            *(report, (count,), *errors, *numbers, (dims.n + dims.m + dims.p,)),
        ]

    def found(self, *inputs: Any) -> EventfulFound:
        """The run, with inputs that JAX may trace."""
        parts = iter(self(*inputs))
        q, v, a_alpha, lam, psi = (next(parts) for _ in range(5))
        extra = {name: next(parts) for name in self.layout.extra}
        t, t_end = next(parts), next(parts)
        happened = {name: next(parts) for name in ("t", *MOTION)}
        doubles = [next(parts) for _ in self.values] if self.changes_args else None
        report, t_alpha = next(parts), next(parts)
        errors = None if self.steps is None else next(parts)
        numbers = {name: next(parts) for name in NUMBERS} | {"t_end": t_end}
        timing = (t, t_alpha, errors)
        run = Found(Rows(q, v, a_alpha, lam, psi, extra, report), timing, numbers, next(parts))
        return EventfulFound(run, happened, doubles)

    def _course(self, inputs: Arrays) -> HostCourse:
        """The run. That of the last inputs is kept, because each direction of a derivative asks for it."""
        known = self._last
        same = functools.partial(np.array_equal, equal_nan=True)
        if known is not None and all(map(same, known[0], inputs)):
            return known[1]
        found = courses.course(self, *self._split(inputs)[1:])
        if found.steps * len(self.step.row) <= TAPE:
            self._last = ([np.array(x) for x in inputs], found)
        return found

    def _rows(self, inputs: Arrays, of: HostCourse) -> _ShownRows:
        count = self._count([np.shape(x) for x in inputs])
        lengths = [len(leg.ends) for leg in of.legs]
        if self.plan.keep == "times":
            return self._rows_at(inputs[0], of)
        nothing = np.zeros(count, bool)
        if not of.legs:
            return _ShownRows(0 * nothing, 0 * nothing, nothing, ~nothing)
        legs, steps = np.repeat(np.arange(len(lengths)), lengths), np.concatenate([*map(np.arange, lengths)])
        last = len(legs) - 1
        number = np.arange(count) if self.plan.keep == "all" else np.array([last])
        late = (number > last) | (np.arange(count) == count - 1)  # the last row is the end
        number = np.minimum(number, last)
        return _ShownRows(legs[number], steps[number], nothing, late & of.failed)

    def _rows_at(self, times: np.ndarray, of: HostCourse) -> _ShownRows:
        """The rows at given times. A time at which two legs meet belongs to the first of them."""
        late = times > of.t_end if of.legs else np.ones(len(times), bool)
        leg, step = np.zeros((2, len(times)), int)
        for i, one in enumerate(of.legs):
            here = (times > one.ends[0]) | (i == 0)
            leg[here], step[here] = i, interpolate.steps_of(one.ends, times[here])
        lost = late if of.failed or not of.legs else np.zeros(len(times), bool)
        return _ShownRows(leg, step, ~late, lost)

    # --- the value --------------------------------------------------------------------------------

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        of = self._course(inputs)
        rows, layout = self._rows(inputs, of), self.layout
        width = layout.plain if self.steps is None else layout.controlled
        table, (t, t_alpha) = np.full((len(rows.leg), width), np.nan), np.full((2, len(rows.leg)), np.nan)
        doubles = [np.full((len(t), *x.shape), np.nan) for x in self.values]
        for i, leg in enumerate(of.legs):
            alpha = leg.ends + self.setup.method.alpha * leg.sizes
            alpha[0] = leg.t_alpha
            for within in (False, True):
                here = rows.of(i, within)
                steps = rows.step[here]
                table[here], t[here], t_alpha[here] = leg.records[steps], leg.ends[steps], alpha[steps]
                for own, x in zip(doubles, leg.taken.doubles, strict=True):
                    own[here] = x
                if within and len(here):
                    t[here] = inputs[0][here]
                    nodes = layout.ends(leg.records, leg.ends)
                    both = [x[k] for k in (np.maximum(steps - 1, 0), steps) for x in nodes]
                    motion = self.sampling.value([*both, t[here]])
                    for name, x in zip(MOTION, motion, strict=True):
                        table[here[:, None], np.arange(width)[layout.parts[name]][None]] = x
        *parts, report = (table[:, at] for at in self.parts)
        first = of.legs[0].t_alpha if of.legs else np.nan
        numbers = (of.status, of.steps, of.rejected, of.t_end, first, *of.totals)
        smooth = [*parts, t, np.asarray(of.t_end), *self._lists(of), *(doubles if self.changes_args else ())]
        errors = [] if self.steps is None else [table[:, layout.of_errors]]
        return [*smooth, report, t_alpha, *errors, *(np.asarray(x, dtype=float) for x in numbers), of.scale]

    def _places(self, of: HostCourse) -> list[list[tuple[int, int, int]]]:
        """For each leg: moments, and the places (event, number) in the lists of events that they fill."""
        counts, found = [0] * len(self.room), []
        for leg in of.legs:
            places = []
            for j, moment in enumerate(leg.moments):
                for i in moment.events:
                    if counts[i] < self.room[i]:
                        places.append((j, i, counts[i]))
                    counts[i] += 1
            found.append(places)
        return found

    def _lists(self, of: HostCourse) -> list[np.ndarray]:
        dims, events = self.setup.dims, (len(self.room), max(self.room))
        lists = [np.full((*events, *w), np.nan) for w in ((), (dims.size,), (dims.n,), (dims.m,), (dims.p,))]
        for leg, places in zip(of.legs, self._places(of), strict=True):
            for j, i, k in places:
                state = leg.moments[j].state
                for own, x in zip(lists, (state.t, state.q, state.v, state.lam, state.psi), strict=True):
                    own[i, k] = x
        return lists

    # --- derivatives ------------------------------------------------------------------------------

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        of = self._course(inputs)
        shapes = self.shapes([np.shape(x) for x in inputs])[: sum(self.smooth)]
        if of.failed or not of.legs:
            return [np.full(s, np.nan) for s in shapes]
        _, _, q, v, steps, doubles = self._split(changes)
        times = steps.times if isinstance(steps, Given) else np.zeros(1)
        legs = sensitivities.tangent(self, of, AtStart(0.0, q, v, doubles), np.asarray(times))
        rows, found = self._rows(inputs, of), [np.zeros(s) for s in shapes]
        parts, (t, t_end, *rest) = found[: len(self.parts) - 1], found[len(self.parts) - 1 :]
        lists, of_rows = rest[:5], rest[5:]
        t_end[...] = sensitivities.shown(self, of.legs[-1], legs[-1])[1][-1]
        for i, (leg, own, places) in enumerate(zip(of.legs, legs, self._places(of), strict=True)):
            records, ends = sensitivities.shown(self, leg, own)
            for within in (False, True):
                here = rows.of(i, within)
                steps_ = rows.step[here]
                table = records[steps_]
                if within and len(here):
                    motion = Within(self, leg, steps_, inputs[0][here]).changed(own)
                    for name, x in zip(MOTION, motion, strict=True):
                        table[:, self.layout.parts[name]] = x
                else:
                    t[here] = ends[steps_]
                for part, at in zip(parts, self.parts, strict=False):
                    part[here] = table[:, at]
                for part, x in zip(of_rows, own.doubles, strict=False):
                    part[here] = x
            for j, event, k in places:
                for part, x in zip(lists, [own.states[m] for m in (0, 1, 2, 4, 5)], strict=True):
                    part[event, k] = x[j]
        return found

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        of = self._course(inputs)
        if of.failed or not of.legs:
            return [np.full(np.shape(x), np.nan) for x in inputs]
        legs = self._weights(inputs, of, weights)
        _, _, _, _, steps, doubles = self._split(inputs)
        count = len(np.asarray(steps.times)) if isinstance(steps, Given) else 1
        start, times = sensitivities.cotangent(self, of, legs, count)
        found = [np.zeros(np.shape(x)) for x in inputs]
        lead = int(self.plan.keep == "times")
        found[lead + 2 : lead + 4] = start.q, start.v
        if isinstance(steps, Given):
            found[lead + 4] = times
        found[len(found) - len(doubles) :] = start.doubles
        return [np.reshape(x, np.shape(y)) for x, y in zip(found, inputs, strict=True)]

    def _weights(self, inputs: Arrays, of: HostCourse, weights: Arrays) -> list[OfLeg]:
        """The derivatives with respect to all legs, from those to the outputs."""
        rows, layout = self._rows(inputs, of), self.layout
        parts, (t, t_end, *rest) = weights[: len(self.parts) - 1], weights[len(self.parts) - 1 :]
        whole, found = np.concatenate(parts, axis=1), []
        for i, (leg, places) in enumerate(zip(of.legs, self._places(of), strict=True)):
            own = sensitivities.blank(self, leg)
            own.ends[-1] += t_end if leg is of.legs[-1] else 0.0
            for within in (False, True):
                here = rows.of(i, within)
                steps, table = rows.step[here], whole[here]
                if within and len(here):
                    wanted = [table[:, layout.parts[name]].copy() for name in MOTION]
                    for name in MOTION:
                        table[:, layout.parts[name]] = 0.0
                    Within(self, leg, steps, inputs[0][here]).pull(own, wanted)
                np.add.at(own.records, steps, table)
                if not within:
                    np.add.at(own.ends, steps, t[here])
                    sensitivities.move_to_event(self, leg, own)
                for mine, x in zip(own.doubles, rest[5:], strict=False):
                    mine += x[here].sum(axis=0)
            for j, event, k in places:
                for m, x in zip((0, 1, 2, 4, 5), rest[:5], strict=True):
                    own.states[m][j] += x[event, k]
            found.append(own)
        return found

    def by_xla(self, *inputs: Any) -> list[Any]:
        raise NotImplementedError(
            "second derivatives through events are not possible: only machine code finds events under a JAX "
            "transform. Take differences of first derivatives"
        )
