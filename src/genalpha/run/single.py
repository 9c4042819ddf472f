"""A run as a few calls of compiled programs: what `solve` does outside of JAX transforms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends import loop
from genalpha.backends.batch.plan import MOST_STEPS
from genalpha.backends.native import kernels as native
from genalpha.backends.native import runners
from genalpha.backends.native.kernels import Aim
from genalpha.backends.xla import controlled as adaptive
from genalpha.backends.xla import given as xla
from genalpha.compiler.graph import Unsupported
from genalpha.consistent import begin as begin_program
from genalpha.engine import events
from genalpha.engine import steps as control
from genalpha.engine.events import Event
from genalpha.engine.files import storable
from genalpha.engine.run_data import Grid, MethodText, RunState, identity, of_system
from genalpha.engine.step import Setup
from genalpha.mechanics import initial_values, start_errors
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import Schedule, State
from genalpha.results import assemble, collect
from genalpha.results.collect import Begun, Part, Pieces, RunSoFar
from genalpha.results.output import Output
from genalpha.results.solution import Solution
from genalpha.run import failure
from genalpha.run.checkpoint import Saved, Saving
from genalpha.run.event_handling import Handler, Outcome, explained


class Observers(NamedTuple):
    """Who is told about a run: a function of states every so many steps, and the bar on the terminal."""

    callback: Callable[[State], Any] | None
    every: int
    bar: Callable[[float, int], None] | None


@storable
class StartPoint(NamedTuple):
    """Where a run, or a part of it after an event, begins. ``after`` is that event."""

    t: float
    q: Any
    v: Any
    guess: Any
    mode: str
    after: Outcome | None = None
    h: float | None = None  # of the first step, where the run does not begin with it
    just: tuple[int, ...] = ()  # events at the start that have happened


@dataclass
class SingleRun:
    """A run outside of transforms: from one event that changes it to the next, till it ends."""

    setup: Setup
    args: Args
    backend: str
    most: int | None
    keep: Output
    watch: Observers
    listed: tuple[Event, ...]
    grid: Grid | None = None
    saving: Saving | None = None
    fallback: str | None = None
    parts: list[Pieces | Part] = field(default_factory=list)
    stopped: bool = False
    refused: str = ""  # why it could not start again after an event

    def solution(self, start: StartPoint, steps: Schedule | Aim, state: RunState | None = None) -> Solution:
        end = steps.control[1].end if isinstance(steps, Aim) else steps.times[-1]
        self.even = isinstance(steps, Schedule) and bool(np.all(steps.steps.h[:-1] == steps.steps.h[0]))
        self.handler = Handler(self.setup, self.listed, start.t, float(end) - start.t, self.args)
        saved = None if self.saving is None else self.saving.file.read()
        if saved is not None:
            self.parts, self.handler.happened = [*saved.parts], saved.happened
            steps = steps if saved.steps is None else saved.steps
            start = saved.state.start
            verdict = self._part(start, steps, self._begun(start, steps), saved.state, saved)
        else:
            verdict = self._part(start, steps, self._begun(start, steps), state)
        while verdict is not None and verdict.velocity is not None and not self.stopped:
            at = verdict.state
            if at.t >= end:
                break
            guess, just = (at.lam, at.psi), verdict.together
            again = StartPoint(float(at.t), at.q, verdict.velocity, guess, "check", verdict, just=just)
            if isinstance(steps, Aim):
                steps = steps._replace(wish=np.float64(np.nan))
            else:
                steps = control.resumed(steps, float(at.t), self.even)
                self.grid = _shortened(self.grid, steps)
            try:
                begun = self._begun(again, steps)
            except ValueError as error:
                self.refused = explained(error, verdict)
                break
            verdict = self._part(again, steps, begun)
        last = self.parts[-1]
        assert isinstance(last, Pieces)
        return self._finished(last, verdict)

    def _part(
        self,
        start: StartPoint,
        steps: Schedule | Aim,
        begun: Begun,
        state: RunState | None = None,
        saved: Saved | None = None,
    ) -> Outcome | None:
        """The run up to an event that changes it, or to its end; from a state, where one is given."""
        before = sum(p.done for p in self.parts)
        done = 0 if saved is None else saved.done
        row = begun.first
        if state is not None:
            fields = state.fields
            assert fields is not None
            if self.listed:
                at = State(np.asarray(state.t), state.q, state.v, state.a, state.lam, state.psi)  # type: ignore[arg-type]
                fields = fields._replace(known=self.handler.known(at, ()))
            begun.runner.restore(fields, state.exact, done)
            row = state.row
            if row.shape != begun.first.shape:
                raise ValueError(
                    f"a record of the state has {row.size} numbers, one of this run {begun.first.size}: it "
                    "is the state of another kind of run. Start from its q and v instead"
                )
            if saved is None:
                begun = begun._replace(first=row, t_alpha=np.asarray(state.t_alpha))
        course = RunSoFar(self.setup, begun, steps)
        expected, limit = _expected(steps, self.most)
        pieces = Pieces(course, self.keep, expected, bool(self.parts))
        if saved is not None:
            pieces.fill(saved.kept, row)
        self.parts = [*(p.over() if isinstance(p, Pieces) else p for p in self.parts), pieces]
        verdict: Outcome | None = None

        def occur(before: np.ndarray, after: np.ndarray, number: int, fired: np.ndarray) -> bool:
            nonlocal verdict
            node = lambda row, n: collect.single(pieces.course.nodes(row[None], n))
            verdict = self.handler.examine(node(before, number - 1), node(after, number), fired)
            if verdict is None:
                return False
            pieces.end_at(number, verdict.state, after)
            return True

        self.start = start
        watchers = _watchers(pieces, before, self.watch)
        patience = loop.PATIENCE
        if self.saving is not None:
            patience = min(patience, self.saving.interval)
            watchers.insert(0, loop.Watcher(None, lambda row, done: self._save(pieces, row, done)))
        room = limit if isinstance(steps, Schedule) else limit - before
        counts = (done, patience, before)
        self.stopped = loop.run(begun.runner, pieces.keeper, row, room, watchers, occur, *counts)
        if self.saving is not None and verdict is None:
            self._save(pieces, pieces.last_row, pieces.done, now=True)
        return verdict

    def _save(self, pieces: Pieces, row: np.ndarray, done: int, now: bool = False) -> bool:
        """Write a checkpoint where it is time; never a reason to stop."""
        assert self.saving is not None
        if self.saving.due(now) and pieces.course.begun.runner.status == codes.SUCCESS:
            state = self._state(pieces, row, done)()
            over = [part for part in self.parts if isinstance(part, Part)]
            steps = pieces.course.steps if over and isinstance(pieces.course.steps, Schedule) else None
            self.saving.write(Saved(state, over, pieces.dump(), done, self.handler.happened, steps))
        return False

    def _state(self, pieces: Pieces, row: np.ndarray, done: int) -> Callable[[], RunState]:
        """What makes the state after ``done`` steps of the last part, of which ``row`` is the record.

        It holds on to the code and its numbers, not to the rows.
        """
        grid = None if self.grid is None else self.grid._replace(steps=self.grid.steps + done)
        course, about = pieces.course, self._about()
        return functools.partial(_run_state, course, self.start, grid, about, np.array(row), done)

    def _about(self) -> Callable[[], dict[str, Any]]:
        """What a state knows about the system and its arguments; functions are read when it is asked for."""
        args = identity(self.args)  # now: they may be changed in place later
        return lambda: {"system": of_system(self.setup, self.args), "args": args}

    def _begun(self, start: StartPoint, steps: Schedule | Aim) -> Begun:
        if self.backend != "xla":
            try:
                return _native(self.setup, start, steps, self.args, self._known(start))
            except Unsupported as reason:
                self.fallback = str(reason)
        return _xla(self.setup, start, steps, self.args, self._known(start))

    def _known(self, start: StartPoint) -> Callable[[State], np.ndarray]:
        """The values of events at the start, as a function of the consistent state there."""
        if not self.listed:
            return lambda state: np.zeros(0)
        known = functools.partial(self.handler.known, just=start.just, elsewhere=start.after is None)
        return lambda state: known(jax.tree.map(np.asarray, state))

    def _finished(self, pieces: Pieces, verdict: Outcome | None) -> Solution:
        last = pieces.course
        runner, status = last.begun.runner, last.begun.runner.status
        if self.refused:
            status = codes.NOT_RESUMED
        elif verdict is not None and (verdict.velocity is None or verdict.crowded):
            status = codes.CROWDED if verdict.crowded else codes.EVENT
        elif status == codes.SUCCESS and (not runner.finished or (self.stopped and verdict is not None)):
            status = codes.STOPPED if self.stopped else codes.TOO_MANY
        parts = self.parts if self.keep.every else self.parts[-1:]
        of_rows, t, t_alpha = collect.joined([part.joined() for part in parts])
        totals = np.sum([part.totals for part in self.parts], axis=0)
        rejected = sum(part.rejected for part in self.parts)
        work = assemble.Work(sum(p.done for p in self.parts), rejected, *totals.astype(int).tolist())
        fallback = self.fallback or getattr(runner, "fallback", None)
        nodes = collect.joined_nodes([part.nodes() for part in self.parts])
        backend, setup = last.begun.backend, self.setup
        found = events.lists(len(self.listed), self.handler.happened, setup.dims) if self.listed else None
        state: Callable[[], RunState] | None = None
        if verdict is not None and not (verdict.crowded or self.refused):
            velocity = verdict.state.v if verdict.velocity is None else verdict.velocity
            at = verdict.state._replace(v=velocity)  # type: ignore[arg-type]
            state = functools.partial(anew, setup, at, self._about(), verdict.together)
        elif runner.status == codes.SUCCESS and not self.refused:
            state = self._state(pieces, pieces.last_row, pieces.done)
        ended, detail = (pieces.last_row, pieces.done), self.refused
        if status > codes.SUCCESS and not detail:
            detail = failure.detail(setup, status, last.state(*ended), last.next_size, self.args)
        return assemble.solution(
            setup,
            of_rows,
            t,
            t_alpha,
            status,
            last.time(*ended),
            backend,
            fallback,
            work,
            complete=self.keep.complete,
            nodes=nodes,
            happened=found,
            state=state,
            detail=detail,
        )


def _shortened(grid: Grid | None, steps: Schedule) -> Grid | None:
    """The grid of a run after an event, where it had one."""
    if grid is None:
        return None
    times = np.asarray(steps.times)
    return Grid(float(times[0]), grid.h, 0, (times, np.asarray(steps.steps.h)))


def _run_state(
    course: RunSoFar,
    start: StartPoint,
    grid: Grid | None,
    about: Callable[[], dict[str, Any]],
    row: np.ndarray,
    done: int,
) -> RunState:
    at, runner, method = course.state(row, done), course.begun.runner, course.setup.method
    paced = isinstance(course.steps, Aim)
    first = None if paced else start.h
    if isinstance(course.steps, Schedule) and first is None:
        first = float(course.steps.steps.h[0])
    return RunState(
        t=float(at.t),
        q=np.asarray(at.q),
        v=np.asarray(at.v),
        a=np.asarray(at.a),
        lam=np.asarray(at.lam),
        psi=np.asarray(at.psi),
        method=MethodText.of(method),
        dims=course.setup.dims,
        start=start._replace(h=first),
        row=row,
        t_alpha=float(at.t) + method.alpha * float(course.times(row[None], done)[1][0]),
        paced=paced,
        fields=runner.fields(),
        exact=runner.exact(),
        grid=grid,
        limits=_limits(course.steps),
        **about(),
    )


def anew(setup: Setup, at: State, about: Callable[[], dict[str, Any]], just: tuple[int, ...]) -> RunState:
    """A state from which a run starts anew: after an event."""
    parts: dict[str, Any] = {name: np.asarray(getattr(at, name)) for name in ("q", "v", "a", "lam", "psi")}
    return RunState(
        t=float(at.t),
        **parts,
        method=MethodText.of(setup.method),
        dims=setup.dims,
        start=None,
        row=np.zeros(0),
        t_alpha=np.nan,
        paced=False,
        fields=None,
        exact=None,
        grid=None,
        just=just,
        **about(),
    )


def _limits(steps: Schedule | Aim) -> tuple[float, float] | None:
    if isinstance(steps, Schedule):
        return None
    limits = steps.control[1]
    return float(limits.max_step), float(limits.min_step)


def _expected(steps: Schedule | Aim, most: int | None) -> tuple[int | None, int]:
    """The number of steps, if it is known, and how many there may be."""
    if isinstance(steps, Schedule):
        return len(steps.steps.h), len(steps.steps.h)
    return None, MOST_STEPS if most is None else most


def projected(setup: Setup, t0: float, q: Any, v: Any, args: Args) -> tuple[Any, Any]:
    """q and v moved onto the constraints."""
    project = lambda setup, t, q, v, args: initial_values.project(setup.system, setup.dims, t, q, v, args)
    q, v, status = xla.program(setup, "project", project)(t0, q, v, args)
    if int(status) != codes.SUCCESS:
        raise ValueError(
            "initial='project' found no q and v on the constraints near q0 and v0: "
            + codes.reason(int(status))
        )
    return q, v


def _xla(setup: Setup, at: StartPoint, steps: Schedule | Aim, args: Args, known: Any) -> Begun:
    begin = xla.program(setup, "begin", begin_program)(at.t, at.q, at.v, args, at.guess)
    start_errors.examine(begin, at.mode, setup.system.space)
    values = known(begin.state)
    runner: Any
    if isinstance(steps, Aim):
        start = xla.program(setup, "paced start", adaptive.start)
        point, row, t_alpha = start(begin, steps.control, steps.wish, args)
        point = point._replace(known=xla.nothing_crossed(values))
        runner = adaptive.XlaControlled(setup, point, steps.control, begin.scale, args)
    else:
        h = steps.steps.h[0] if at.h is None else at.h
        carry, memory, row, t_alpha = xla.program(setup, "start", xla.start)(begin, h, args)
        status = int(begin.report.status)
        runner = xla.XlaGiven(setup, carry, memory, begin.scale, steps.steps, args, status, values)
    massless = start_errors.is_singular(begin.M)
    derive = lambda rows, t: xla.derive_blocks(setup, rows, t, begin.scale, args, massless)
    return Begun(runner, np.asarray(row), np.asarray(t_alpha), derive, "xla")


def _native(setup: Setup, at: StartPoint, steps: Schedule | Aim, args: Args, known: Any) -> Begun:
    q, v = np.asarray(at.q), np.asarray(at.v)
    runner: Any
    if isinstance(steps, Aim):
        begun = native.begin(setup, at.t, q, v, steps, args, at.guess, at.mode)
        runner = runners.NativeControlled(setup, begun, steps.control, args, known(begun.start.begin.state))
    else:
        setup = setup._replace(method=control.suited(setup.method, steps.steps.h))
        h = float(steps.steps.h[0]) if at.h is None else at.h
        begun = native.begin(setup, at.t, q, v, h, args, at.guess, at.mode)
        runner = runners.NativeGiven(setup, begun, steps.steps, args, known(begun.start.begin.state))
    scale = begun.start.begin.scale
    derive = lambda rows, t: native.derive(setup, begun, rows, t, scale, args)
    return Begun(runner, begun.start.row, np.asarray(begun.start.t_alpha), derive, "native")


def _watchers(pieces: Pieces, before: int, watch: Observers) -> list[loop.Watcher]:
    watchers = []
    if watch.callback is not None:
        callback = watch.callback
        look = lambda row, done: bool(callback(pieces.course.state(row, done)))
        watchers.append(loop.Watcher(watch.every, look))
    if watch.bar is not None:
        show = watch.bar
        tell = lambda row, done: bool(show(pieces.course.time(row, done), before + done))
        watchers.append(loop.Watcher(None, tell))
    return watchers
