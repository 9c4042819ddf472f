"""A run with events, as legs from one event that changes the motion to the next, by machine code alone.

It is called from compiled programs, so nothing here may call XLA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.native.code import MAKING
from genalpha.backends.native.kernels import NativeRun, StartValues
from genalpha.backends.transforms.controlled_runs import ControlledOnly
from genalpha.backends.transforms.records import Taken
from genalpha.backends.transforms.rows import RowOperation
from genalpha.backends.transforms.runs import GivenOnly
from genalpha.engine import step_choice
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.steps import Given, Steps
from genalpha.numerics import codes
from genalpha.numerics.data import State
from genalpha.run.event_handling import ENOUGH, Handler, Outcome
from genalpha.run.through_events.resets import Changed

if TYPE_CHECKING:
    from genalpha.run.through_events.operation import EventfulRun

# How often a state is moved onto the constraints at most.
_MOVES = 4


class Moment(NamedTuple):
    """Events at one time: the number of the step, the events in the order of their list, and the state.

    The first event defines the time.
    """

    step: int
    events: list[int]
    state: State


class Applied(NamedTuple):
    """A reset: the number of its event, and the state and the arguments before it."""

    event: int
    state: State
    doubles: list[np.ndarray]


class HostHandler(Handler):
    """Finds events and applies resets by machine code. ``applied`` are the resets at the last moment."""

    def __init__(self, run: EventfulRun, span: tuple[float, float], doubles: list[np.ndarray]) -> None:
        self.run, self.applied = run, list[Applied]()
        super().__init__(run.setup, run.plan.events, span[0], span[1] - span[0], run.rebuild(doubles))
        self.doubles = doubles

    def continue_with(self, doubles: list[np.ndarray]) -> None:
        self.doubles, self.applied = doubles, []
        self.use(self.run.rebuild(doubles))

    def _rows(self, name: str, function: Callable[..., Any], arguments: Any) -> Any:
        leaves = jax.tree.leaves(arguments)
        with MAKING:
            if name not in self.run.functions:
                example = jax.tree.map(lambda x: x[0], arguments)
                self.run.functions[name] = RowOperation("row", function, example, [False] * len(leaves))
        made, count = self.run.functions[name], max(map(len, leaves))
        found = made.value([np.broadcast_to(x, (count, *np.shape(x)[1:])) for x in leaves])
        return jax.tree.unflatten(made.out_structure, found)

    def settled(self, state: State) -> State:
        for _ in range(_MOVES):
            state, left = self.corrected(state)
            if left <= ENOUGH * (1 + np.abs(state.q).max()):
                break
        return state

    def _reset(self, i: int, so_far: Outcome) -> Outcome:
        state = so_far.after
        self.applied.append(Applied(i, state, self.doubles))
        reset = self.run.resets[i]
        inputs = [np.asarray(x, dtype=float)[None] for x in (*state, *self.doubles)]
        q, v, self.doubles, stop = Changed(
            *(jax.tree.map(lambda x: x[0], jax.tree.unflatten(reset.out_structure, reset.value(inputs))))
        )
        after = state._replace(q=q, v=v)
        return so_far._replace(
            after=after, args=self.run.rebuild(self.doubles), stop=so_far.stop or bool(stop)
        )


class HostLeg(NamedTuple):
    """The motion from one event that changes it to the next.

    ``records`` (K+1, width) and ``ends`` (K+1,) are the ends of its steps. The last one is at the event that
    ends the leg; ``last`` is the end of that step as it was taken. The ends of the steps as taken move by
    ``share`` (K+1,) of the change of the start of the leg, and by the rest of that of the given times with
    the numbers ``of`` (K+1,).
    """

    taken: Taken
    records: np.ndarray
    ends: np.ndarray
    sizes: np.ndarray
    t_alpha: float
    last: StepEnd
    share: np.ndarray
    of: np.ndarray
    moments: list[Moment]
    outcome: Outcome | None
    applied: list[Applied]

    @property
    def cut(self) -> bool:
        """Whether an event ends it."""
        return self.outcome is not None


class HostCourse(NamedTuple):
    """All legs of a run, how it ended, and its work."""

    legs: list[HostLeg]
    status: int
    rejected: int
    totals: np.ndarray
    scale: np.ndarray

    @property
    def t_end(self) -> float:
        return float(self.legs[-1].ends[-1]) if self.legs else np.nan

    @property
    def steps(self) -> int:
        return sum(len(leg.ends) - 1 for leg in self.legs)

    @property
    def failed(self) -> bool:
        return self.status > codes.SUCCESS


class _LegStart(NamedTuple):
    """The start of a leg. ``just`` and ``before`` are as in `Handler.known`."""

    at: StartValues
    steps: Steps
    just: tuple[int, ...] = ()
    before: np.ndarray | None = None


def course(
    run: EventfulRun, span: tuple[float, float], q: Any, v: Any, steps: Steps, doubles: Any
) -> HostCourse:
    """Run from event to event."""
    handler, legs, most = HostHandler(run, span, doubles), list[HostLeg](), steps.room(0)
    start = _LegStart(StartValues(span[0], q, v, _first(steps)), steps)
    status, rejected, totals, scale = codes.SUCCESS, 0, np.zeros(run.counted), run.scale_of(None)
    if isinstance(steps, Given) and not step_choice.fitting(span, steps.steps.t, steps.steps.h):
        return HostCourse([], codes.BAD_STEPS, 0, totals, scale)
    while True:
        begun, status = run.begun(start.at, handler.doubles)
        bad = legs and begun is not None and not (begun.start.consistent and np.isfinite(begun.row).all())
        if begun is None or bad or status != codes.SUCCESS:
            status = codes.NOT_RESUMED if legs else status
            break
        scale = scale if legs else run.scale_of(begun)
        of_leg = _LegRun(run, handler, start, begun, steps)
        leg, status = of_leg.leg(most - sum(len(x.ends) - 1 for x in legs))
        legs.append(leg)
        rejected, totals = rejected + of_leg.runner.rejected, totals + of_leg.totals
        outcome = leg.outcome
        if status != codes.SUCCESS or outcome is None or float(outcome.after.t) >= span[1]:
            break
        at, before = outcome.after, handler.values(outcome.state)
        handler.continue_with(handler.doubles)
        following = start.steps.resumed(float(at.t))
        again = StartValues(float(at.t), at.q, at.v, _first(following), (at.lam, at.psi))
        start = _LegStart(again, following, outcome.together, before)
    return HostCourse(legs, status, rejected, totals, scale)


def _first(steps: Steps) -> Any:
    """The first step, or the control that chooses it."""
    return float(steps.steps.h[0]) if isinstance(steps, Given) else steps


class _LegRun:
    """Takes the steps of a leg."""

    def __init__(
        self, run: EventfulRun, handler: HostHandler, start: _LegStart, begun: NativeRun, whole: Steps
    ) -> None:
        self.run, self.handler, self.start, self.begun, self.whole = run, handler, start, begun, whole
        state = jax.tree.map(np.asarray, begun.start.begin.state)
        known = handler.known(state, start.just, start.before)
        kind: Any = GivenOnly if isinstance(start.steps, Given) else ControlledOnly
        self.runner = kind(run.setup, begun, start.steps, run.rebuild(handler.doubles), known)
        first, self.record = run.first_rows(begun)
        self.table, self.taken, self.moments = np.empty((513, len(first))), 0, list[Moment]()
        self.table[0] = first

    @property
    def totals(self) -> np.ndarray:
        counted = self.run.layout.report(self.table[1 : self.taken + 1]).sum(axis=0)
        return self.start.steps.totals(self.runner, counted)

    def leg(self, room: int) -> tuple[HostLeg, int]:
        """The leg of at most ``room`` steps, and the status after it."""
        doubles, outcome, status = self.handler.doubles, None, codes.SUCCESS
        room = room if self.start.steps.controlled else len(self.runner.sizes)
        while not self.runner.finished and self.taken < room:
            if self.taken + 1 == len(self.table):
                self.table = np.concatenate([self.table, np.empty_like(self.table)])
            count = self.runner.take(self.table[self.taken + 1 : room + 1])
            self.taken += count
            if count and self.runner.crossed:
                outcome = self._examined()
                status = self._status(outcome)
                if outcome is not None or status != codes.SUCCESS:
                    break
        if outcome is None and status == codes.SUCCESS:
            status = self.runner.status
            if status == codes.SUCCESS and not self.runner.finished:
                status = codes.TOO_MANY
        return self._made(doubles, outcome), status

    def _times(self) -> tuple[np.ndarray, np.ndarray]:
        """Ends and sizes (K+1,) of the steps as taken; those of the start first."""
        table = self.table[: self.taken + 1, : self.start.steps.width(self.run.layout)].copy()
        table[0] = self.record
        ends, sizes = self.start.steps.timing(self.run.layout, table, 0)
        return np.array(ends), np.array(sizes)

    def _end(self, step: int, ends: np.ndarray) -> StepEnd:
        record = self.record if step == 0 else self.table[step]
        return jax.tree.map(np.array, self.run.layout.ends(record, ends[step]))

    def _examined(self) -> Outcome | None:
        """Record the events in the last step; the outcome if one of them changes the motion."""
        known, happened, ends = len(self.handler.happened), self.handler.happened, self._times()[0]
        before, after = self._end(self.taken - 1, ends), self._end(self.taken, ends)
        outcome = self.handler.examine(before, after, self.runner.fired)
        for i, state in happened[known:]:
            if self.moments and self.moments[-1].state is state:
                self.moments[-1].events.append(i)
            else:
                self.moments.append(Moment(self.taken, [i], state))
        return outcome

    def _status(self, outcome: Outcome | None) -> int:
        numbers = [h.event for h in self.handler.happened]
        if any(numbers.count(i) > most for i, most in enumerate(self.run.room)):
            return codes.TOO_MANY_EVENTS
        if outcome is None or not outcome.stop:
            return codes.SUCCESS
        return codes.CROWDED if outcome.crowded else codes.EVENT

    def _made(self, doubles: list[np.ndarray], outcome: Outcome | None) -> HostLeg:
        ends, sizes = self._times()
        tape, at, steps = self.table[: self.taken + 1], self.start.at, self.start.steps
        records = tape[:, : steps.width(self.run.layout)].copy()
        records[0] = self.record
        blocks = lambda backward: [(0, tape)] if len(tape) > 1 else []
        scale, guess = self.run.scale_of(self.begun), self.run.guess_of(self.begun)
        starts = ends[:-1].copy()
        taken = Taken(float(at.t), at.q, at.v, doubles, starts, sizes[1:].copy(), scale, blocks, guess)
        last = self._end(self.taken, ends)
        share, of = self._moving(ends)
        if outcome is not None:
            sizes[-1] += float(outcome.state.t) - ends[-1]
            ends[-1] = outcome.state.t
            self.run.layout.put(records[-1], outcome.state)
        return HostLeg(
            *(taken, records, ends, sizes, float(self.begun.t_alpha), last, share, of, self.moments),
            *(outcome, self.handler.applied),
        )

    def _moving(self, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How the ends of steps move with the start of the leg, see `HostLeg`.

        Equal steps are stretched. In a list only the start moves. Under error control all steps keep their
        sizes, but for one that ends with the span.
        """
        share, of, steps = np.ones(len(ends)), np.zeros(len(ends), dtype=int), self.start.steps
        if not isinstance(steps, Given):
            share[1:][ends[1:] >= steps.end] = 0.0
            return share, of
        times = np.asarray(self.whole.times)  # type: ignore[union-attr]
        if steps is self.whole:
            return 0 * share, np.arange(len(ends))
        if steps.even:
            share = 1 - np.arange(len(ends)) / len(steps.steps.h)
            return share, np.full(len(ends), len(times) - 1)
        share[1:] = 0.0
        return share, np.searchsorted(times, ends)
