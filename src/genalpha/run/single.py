"""A run outside of JAX transforms, as a few calls of compiled programs."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable

import jax
import numpy as np

from genalpha.backends import loop
from genalpha.engine import events, row
from genalpha.engine.discrete import ControlRecord, stacked
from genalpha.engine.extrapolation import BESIDE
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived
from genalpha.engine.run_data import Fields, RunState, identity
from genalpha.engine.steps import Controlled, Given, Steps
from genalpha.numerics import codes
from genalpha.numerics.data import State
from genalpha.numerics.host import from_host
from genalpha.numerics.tracing import is_traced
from genalpha.results import assemble, collect
from genalpha.results.assemble import Ending, Work
from genalpha.results.collect import Begun, FinishedPart, Pieces, RunSoFar
from genalpha.results.deferred import Deferred
from genalpha.results.phases import Phase, Phases
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import beginning, checkpoint, failure, restart, traced
from genalpha.run.beginning import StartPoint
from genalpha.run.checkpoint import Saved
from genalpha.run.event_handling import Handler, Outcome, explained
from genalpha.run.request import Request
from genalpha.run.restart import RunArgs


def run(asked: Request) -> Solution:
    """The solution. A failure becomes its status."""
    with contextlib.closing(Bar(asked.watch.progress)) as bar:
        return SingleRun(asked, bar).solution()


class SingleRun:
    """A run outside of JAX transforms. Events that change the motion divide it into parts."""

    def __init__(self, asked: Request, bar: Bar) -> None:
        self.asked, self.setup, self.bar = asked, asked.setup, bar
        self.args = restart.starting_args(asked)
        self.listed, self.keep, self.grid = asked.watch.events, asked.output, asked.restart.grid
        self.layout = row.layout(asked.setup)
        self.saving = checkpoint.saving(asked)
        self.controller = asked.controller
        self.fallback: str | None = None
        self.parts: list[Pieces | FinishedPart] = []
        self.taken = 0  # steps in all parts but the last
        self.stopped = self.interrupted = False
        self.refused = ""  # the reason why it could not start again after an event

    def solution(self) -> Solution:
        start, steps, state = self._first()
        left = self.asked.span[1] - start.t
        self.handler = Handler(self.setup, self.listed, start.t, left, self.args.now)
        saved = None if self.saving is None else self.saving.file.read()
        if saved is not None:
            self._use(self.args.again(saved.state.changed))
            self.parts, self.handler.happened = [*saved.parts], saved.happened
            self.taken = sum(part.done for part in self.parts)
            steps = steps if saved.steps is None else saved.steps
            start, state = saved.state.start, saved.state
        elif self.controller is not None and self.controller.due(self.asked.start.t):
            start, steps, state = self._first_sample(start, steps, state)
        if saved is None or saved.steps is None:
            steps = self._until(steps, start.t)
        outcome = self._part(start, steps, self._begun(start, steps), state, saved)
        while not self.stopped:
            if outcome is None:
                if self.refused or not self._at_breakpoint():
                    break
                again, steps = self._after_breakpoint(steps)
                outcome = self._part(again, steps, self._begun(again, steps))
                continue
            if outcome.stop:
                break
            at, just = outcome.after, outcome.together
            if at.t >= self.asked.span[1]:
                break
            before = self.handler.values(outcome.state)
            self._use(self.args.after(outcome.args))
            guess = (at.lam, at.psi)
            again = StartPoint(float(at.t), at.q, at.v, guess, "check", just=just, before=before)
            steps = self._resumed(steps, at)
            self.grid = restart.shortened(self.grid, steps)
            try:
                outcome.check_finite()
                begun = self._begun(again, steps)
            except ValueError as error:
                self.refused = explained(error, outcome)
                break
            outcome = self._part(again, steps, begun)
        last = self.parts[-1]
        assert isinstance(last, Pieces)
        return self._finished(last, outcome)

    @property
    def _aside(self) -> float:
        """The distance from a breakpoint at which parts end and start, so that each sees its own side."""
        return BESIDE * max(map(abs, self.asked.span))

    def _until(self, steps: Steps, t: float) -> Steps:
        """The steps from t up to the next breakpoint or sample."""
        if self.controller is None and not self.asked.breakpoints:
            return steps
        last = self.asked.span[1]
        stops = [end - self._aside for end in self.asked.breakpoints if end > t + 2 * self._aside]
        stops += [] if self.controller is None else [self.controller.after(t)]
        stop = min(stops, default=last)
        stop = stop if stop < last - self._aside else last
        if isinstance(steps, Controlled):
            return steps.until(stop)
        return steps if self.controller is None else self._on_grid(t, stop)

    def _on_grid(self, t: float, stop: float) -> Given:
        """The given steps from t to ``stop``. The grid of states that follow starts with them."""
        assert isinstance(self.asked.steps, Given)
        leg, grid = self.asked.steps.within(t, stop), self.asked.restart.grid
        if grid is not None:
            before = int(np.searchsorted(np.asarray(self.asked.steps.times), leg.times[0]))
            self.grid = grid._replace(steps=grid.steps + before)
        return leg

    def _first_sample(
        self, start: StartPoint, steps: Steps, state: RunState | None
    ) -> tuple[StartPoint, Steps, None]:
        """The start after the sample there, and the steps. The run starts anew, because forces jump."""
        if state is not None:
            at = (self.asked.start.t, state.q, state.v)  # as they are, with the rounding of their rotations
            start = StartPoint(*at, (state.lam, state.psi), "assume", just=state.just)
            steps = self._paced(steps, lambda: state.fields)
        self._sample(State(start.t, start.q, start.v, *np.zeros((3, 0))))  # type: ignore[arg-type]
        return start, steps, None

    def _sample(self, at: State) -> None:
        """Call the controller at a state, and continue with its output."""
        assert self.controller is not None
        self._use(self.args.after(self.controller.updated(at, self.args.now)))

    def _paced(self, steps: Steps, last: Callable[[], Fields | None]) -> Steps:
        """The steps. Under error control the first is as long as the next one of the ``last`` part."""
        if isinstance(steps, Controlled):
            fields = last()
            if fields is not None and fields.pace is not None:
                return dataclasses.replace(steps, wish=np.float64(fields.pace.wish))
        return steps

    def _at_breakpoint(self) -> bool:
        """Whether the last part ended at a breakpoint or a sample."""
        last = self.parts[-1]
        assert isinstance(last, Pieces)
        runner = last.course.begun.runner
        ended = runner.finished and runner.status == codes.SUCCESS
        return ended and last.course.steps.end < self.asked.span[1]

    def _after_breakpoint(self, steps: Steps) -> tuple[StartPoint, Steps]:
        """The start of the part after a breakpoint or a sample, and its steps."""
        last = self.parts[-1]
        assert isinstance(last, Pieces)
        at = last.course.state(last.last_row, last.done)
        t = float(at.t)
        beside = any(abs(t - end) <= 1.5 * self._aside for end in self.asked.breakpoints)
        t += 2 * self._aside if beside else 0.0  # it sees the other side of the breakpoint
        guess, mode = (at.lam, at.psi), "check"
        if self.controller is not None and self.controller.due(t):
            self._sample(at)
            mode = "assume"
            steps = self._paced(steps, last.course.begun.runner.fields)
        elif isinstance(steps, Controlled):
            steps = steps.resumed(t)
        return StartPoint(t, at.q, at.v, guess, mode), self._until(steps, t)

    def _resumed(self, steps: Steps, at: State) -> Steps:
        """The steps after an event, which may happen at the very time of a sample."""
        t = float(at.t)
        if self.controller is None or t < steps.end - self._aside:
            return steps.resumed(t)
        self._sample(at)
        return self._until(steps.resumed(t) if isinstance(steps, Controlled) else steps, steps.end)

    def _use(self, args: RunArgs) -> None:
        """Continue with these args."""
        self.args = args
        self.handler.use(args.now)

    def _first(self) -> tuple[StartPoint, Steps, RunState | None]:
        """The start of the run, its steps, and the state from which it continues."""
        t, q, v, guess, mode, *_ = self.asked.start
        if mode == "project":
            q, v = beginning.projected(self.setup, t, q, v, self.args.now, self.asked.start.held)
        start, state = restart.resumed(self.asked, StartPoint(t, q, v, guess, mode), self.args.now)
        return start, self.asked.steps, state

    def _part(
        self,
        start: StartPoint,
        steps: Steps,
        begun: Begun,
        state: RunState | None = None,
        saved: Saved | None = None,
    ) -> Outcome | None:
        """The run up to the next event that changes it, or to its end; from a state if one is given."""
        before = self.taken
        done = 0 if saved is None else saved.done
        record = begun.first
        if state is not None:
            self._restore(begun, state, done)
            record = state.row
            if record.shape != begun.first.shape:
                raise ValueError(
                    f"a record of the state has {record.size} numbers, but one of this run has "
                    f"{begun.first.size}: it is the state of another kind of run. Start from its q and v"
                )
            if saved is None:
                begun = begun._replace(first=record, t_alpha=np.asarray(state.t_alpha))
        course = RunSoFar(self.setup, begun, steps, self.layout, self.args.changed)
        pieces = Pieces(course, self.keep, steps.expected, bool(self.parts))
        if saved is not None:
            pieces.fill(saved.kept, record)
        if self.parts and isinstance(self.parts[-1], Pieces):
            self.parts[-1] = self.parts[-1].over()
            before = self.taken = before + self.parts[-1].done
        self.parts.append(pieces)
        self.start = start
        outcome: Outcome | None = None

        def occur(before: np.ndarray, after: np.ndarray, number: int, fired: np.ndarray) -> bool:
            nonlocal outcome
            node = lambda record, n: collect.single(pieces.course.nodes(record[None], n))
            outcome = self.handler.examine(node(before, number - 1), node(after, number), fired)
            if outcome is None:
                return False
            pieces.end_at(number, outcome.state, after)
            return True

        patience = loop.PATIENCE if self.saving is None else min(loop.PATIENCE, self.saving.interval)
        watchers = self._watchers(pieces, before)
        counts = loop.Counts(steps.room(before), done, before, patience)
        try:
            self.stopped = loop.run(begun.runner, pieces.keeper, record, watchers, occur, counts)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) or from_host(error):
                self.interrupted = True
                error.solution = self._finished(pieces, None)  # type: ignore[attr-defined]
            raise
        if self.saving is not None and outcome is None:
            self._save(pieces, pieces.last_row, pieces.done, now=self.stopped or not self._at_breakpoint())
        return outcome

    def _restore(self, begun: Begun, state: RunState, done: int) -> None:
        """Restore the run from a state."""
        fields = state.fields
        assert fields is not None
        known = np.zeros(0)
        if self.listed:
            at = State(np.asarray(state.t), state.q, state.v, state.a, state.lam, state.psi)  # type: ignore[arg-type]
            known = self.handler.known(at)
        fields = fields._replace(known=known)
        begun.runner.restore(fields, state.exact, done)

    def _watchers(self, pieces: Pieces, before: int) -> list[loop.Watcher]:
        watchers, (callback, every, progress, *_) = [], self.asked.watch
        if self.saving is not None:
            watchers.append(loop.Watcher(None, lambda record, done: self._save(pieces, record, done)))
        if callback is not None:
            look = lambda record, done: bool(callback(_with_forces(pieces.course, record, done)))
            watchers.append(loop.Watcher(every, look))
        if progress:
            show = lambda record, done: self._show(pieces.course.time(record, done), before + done)
            watchers.append(loop.Watcher(None, show))
        return watchers

    def _show(self, t: float, done: int) -> bool:
        t0, t1 = self.asked.span
        self.bar.update((t - t0) / (t1 - t0), f"t = {t:.4g} of {t1:.4g}, {done} steps")
        return False

    def _save(self, pieces: Pieces, record: np.ndarray, done: int, now: bool = False) -> bool:
        """Write a checkpoint if it is time. Returns False: the run does not stop."""
        assert self.saving is not None
        if self.saving.due(now) and pieces.course.begun.runner.status == codes.SUCCESS:
            state = self._state(pieces, record, done)()
            over = [part.computed() for part in self.parts if isinstance(part, FinishedPart)]
            steps = pieces.course.steps if over and isinstance(pieces.course.steps, Given) else None
            self.saving.write(Saved(state, over, pieces.dump(), done, self.handler.happened, steps))
        return False

    def _state(self, pieces: Pieces, record: np.ndarray, done: int) -> Deferred:
        """The state after ``done`` steps of the last part; ``record`` is the last record.

        It keeps the code and its numbers in memory, but not the rows.
        """
        grid = None if self.grid is None else self.grid._replace(steps=self.grid.steps + done)
        course, start, args, own = pieces.course, self.start, self.args, np.array(record)
        return Deferred(lambda: restart.state_after(course, start, grid, args, own, done))

    def _begun(self, start: StartPoint, steps: Steps) -> Begun:
        native, known = self.asked.backend != "xla", self._known(start)
        begun, fallback = beginning.begun(self.setup, start, steps, self.args.now, known, native)
        self.fallback = fallback or self.fallback
        return begun

    def _known(self, start: StartPoint) -> beginning.Known:
        """The values of events at the start."""
        if not self.listed:
            return lambda state: np.zeros(0)
        known = functools.partial(self.handler.known, just=start.just, before=start.before)
        return lambda state: known(jax.tree.map(np.asarray, state()))

    def _finished(self, pieces: Pieces, outcome: Outcome | None) -> Solution:
        course, status = pieces.course, self._status(pieces, outcome)
        kept = [part.joined() for part in (self.parts if self.keep.every else self.parts[-1:])]
        of_rows, t, t_alpha = collect.joined(kept)
        totals = [int(sum(column)) for column in zip(*(p.totals.tolist() for p in self.parts), strict=True)]
        steps, rejected = sum(p.done for p in self.parts), sum(p.rejected for p in self.parts)
        record, done, detail = pieces.last_row, pieces.done, self.refused
        if status > codes.SUCCESS and not detail:
            size = course.begun.runner.next_size
            detail = failure.detail(self.setup, status, course.state(record, done), size, self.args.now)
        fallback = self.fallback or getattr(course.begun.runner, "fallback", None)
        work = Work(steps, rejected, *totals)
        ending = Ending(status, course.time(record, done), work, course.begun.backend, fallback, detail)
        nodes = [part.nodes() for part in self.parts]
        happened = None
        if self.listed:
            happened = events.lists(len(self.listed), self.handler.happened, self.setup.dims)
        complete = self.keep.complete
        every = collect.joined_nodes(nodes)
        sol = assemble.solution(self.setup, of_rows, t, t_alpha, ending, complete, every, happened)
        rows = [0] * (len(self.parts) - len(kept)) + [len(times) for _, times, _ in kept]
        control = None if self.controller is None else Deferred(self._record)
        return sol.connected(self._after(pieces, outcome), self._phases(rows, nodes, course.begun), control)

    def _record(self) -> ControlRecord:
        """The samples of the controller: each part that starts at a sample time has its output."""
        assert self.controller is not None
        starts = [self.asked.start.t, *(part.t_end for part in self.parts[:-1])]
        held = ((t, self.args.again(p.changed).now[-1]) for t, p in zip(starts, self.parts, strict=True))
        return stacked([(t, signals) for t, signals in held if self.controller.due(t)])

    def _phases(self, rows: list[int], nodes: list[StepEnd | None], begun: Begun) -> Phases:
        """The phases of the run, from the number of rows and the ends of steps of each part."""
        found: list[Phase] = []
        sizes = (self.setup.dims.m, self.setup.dims.p)
        changed, first, t0 = self.parts[0].changed, 0, self.asked.start.t
        for part, count, ends in zip(self.parts, rows, nodes, strict=True):
            number = 0 if ends is None else len(ends.t)
            if found and (part.changed is changed or identity(part.changed) == identity(changed)):
                found[-1] = found[-1].longer(part.t_end, count, number)
            else:
                args = self.args.again(part.changed).now
                derive = functools.partial(_derived, self.asked._replace(args=args), begun)
                at = (t0, part.t_end, slice(first, first + count))
                found.append(Phase(self.setup.system, args, *at, derive, sizes, number))
            changed, first, t0 = part.changed, first + count, part.t_end
        return Phases(found, self.listed)

    def _status(self, pieces: Pieces, outcome: Outcome | None) -> int:
        runner = pieces.course.begun.runner
        if self.interrupted:
            return codes.INTERRUPTED
        if self.refused:
            return codes.NOT_RESUMED
        if outcome is not None and outcome.stop:
            return codes.CROWDED if outcome.crowded else codes.EVENT
        reached = runner.finished and pieces.course.steps.end >= self.asked.span[1]
        ended = reached and not (self.stopped and outcome is not None)
        if runner.status == codes.SUCCESS and not ended:
            return codes.STOPPED if self.stopped else codes.TOO_MANY
        return runner.status

    def _after(self, pieces: Pieces, outcome: Outcome | None) -> Deferred | None:
        """The state from which another run can continue."""
        if outcome is not None and not (outcome.crowded or self.refused):
            setup, at, args, just = self.setup, outcome.after, self.args.after(outcome.args), outcome.together
            return Deferred(lambda: restart.state_anew(setup, at, args, just))
        if pieces.course.begun.runner.status == codes.SUCCESS and not (self.refused or self.interrupted):
            return self._state(pieces, pieces.last_row, pieces.done)
        return None


def _derived(asked: Request, begun: Begun, ends: StepEnd) -> Derived:
    """The quantities derived from the motion at some times."""
    return traced.derived(asked, ends) if is_traced(ends) else begun.derive(ends, asked.args)


def _with_forces(course: RunSoFar, record: np.ndarray, done: int) -> State:
    """The state after a step, with a, λ and ψ that solve the equations of motion."""
    found = course.begun.derive(course.nodes(record[None], done))
    return course.state(record, done)._replace(a=found.a[0], lam=found.lam[0], psi=found.psi[0])
