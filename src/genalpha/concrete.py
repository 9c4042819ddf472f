"""A run as a few calls of compiled programs: what `solve` does outside of JAX transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from genalpha import assemble, check, control, diagnose, initial
from genalpha.advance import Setup
from genalpha.drive import adaptive, host, native, xla
from genalpha.drive.native import Aim
from genalpha.keep import Keep
from genalpha.kernels.graph import Unsupported
from genalpha.record import Begun, Course, Pieces
from genalpha.solution import Solution
from genalpha.state import Schedule, State
from genalpha.states import begin as begin_program
from genalpha.system import Args

MOST_STEPS = 1_000_000  # under error control, unless more are asked for


class Watch(NamedTuple):
    """Who is told about a run: a function of states every so many steps, and the bar on the terminal."""

    callback: Callable[[State], Any] | None
    every: int
    bar: Callable[[float, int], None] | None


def run(
    setup: Setup,
    mode: str,
    t0: float,
    steps: Schedule | Aim,
    q: Any,
    v: Any,
    args: Args,
    guess: Any,
    backend: str,
    most: int | None,
    keep: Keep,
    watch: Watch,
) -> tuple[Solution, float]:
    """The solution, and the size of the step that would have been next."""
    if mode == "project":
        q, v, status = xla.program(setup, "project", _project)(t0, q, v, args)
        if int(status) != diagnose.SUCCESS:
            raise ValueError(
                "initial='project' found no q and v on the constraints near q0 and v0: "
                + diagnose.reason(int(status))
            )
    begun, fallback = None, None
    if backend != "xla":
        try:
            begun = _native(setup, mode, t0, steps, np.asarray(q), np.asarray(v), args, guess)
        except Unsupported as reason:
            fallback = str(reason)
    begun = begun or _xla(setup, mode, t0, steps, q, v, args, guess)
    course = Course(setup, begun, steps)
    expected, limit = _expected(steps, most)
    pieces = Pieces(course, keep, expected)
    stopped = host.run(begun.runner, pieces.keeper, limit, _watchers(course, watch))
    return _finished(course, pieces, stopped, fallback), course.next_size


def _expected(steps: Schedule | Aim, most: int | None) -> tuple[int | None, int]:
    """The number of steps, if it is known, and how many there may be."""
    if isinstance(steps, Schedule):
        return len(steps.steps.h), len(steps.steps.h)
    return None, MOST_STEPS if most is None else most


def _project(setup: Setup, t: Any, q: Any, v: Any, args: Args) -> tuple[Any, Any, Any]:
    return initial.project(setup.system, setup.dims, t, q, v, args)


def _xla(
    setup: Setup, mode: str, t0: float, steps: Schedule | Aim, q: Any, v: Any, args: Args, guess: Any
) -> Begun:
    begin = xla.program(setup, "begin", begin_program)(t0, q, v, args, guess)
    check.beginning(begin, mode, setup.system.space)
    runner: Any
    if isinstance(steps, Aim):
        start = xla.program(setup, "paced start", adaptive.start)
        point, row, t_alpha = start(begin, steps.control, steps.wish, args)
        runner = adaptive.Paced(setup, point, steps.control, begin.scale, args)
    else:
        carry, memory, row, t_alpha = xla.program(setup, "start", xla.start)(begin, steps.steps.h[0], args)
        status = int(begin.report.status)
        runner = xla.Listed(setup, carry, memory, begin.scale, steps.steps, args, status)
    massless = check.is_singular(begin.M)
    derive = lambda rows, t: xla.derive_blocks(setup, rows, t, begin.scale, args, massless)
    return Begun(runner, np.asarray(row), np.asarray(t_alpha), derive, "xla")


def _native(
    setup: Setup,
    mode: str,
    t0: float,
    steps: Schedule | Aim,
    q: np.ndarray,
    v: np.ndarray,
    args: Args,
    guess: Any,
) -> Begun:
    runner: Any
    if isinstance(steps, Aim):
        begun = native.begin(setup, t0, q, v, steps, args, guess, mode)
        runner = native.Paced(setup, begun, steps.control, args)
    else:
        setup = setup._replace(method=control.suited(setup.method, steps.steps.h))
        begun = native.begin(setup, t0, q, v, float(steps.steps.h[0]), args, guess, mode)
        runner = native.Listed(setup, begun, steps.steps, args)
    scale = begun.start.begin.scale
    derive = lambda rows, t: native.derive(setup, begun, rows, t, scale, args)
    return Begun(runner, begun.start.row, np.asarray(begun.start.t_alpha), derive, "native")


def _watchers(course: Course, watch: Watch) -> list[host.Watcher]:
    watchers = []
    if watch.callback is not None:
        callback = watch.callback
        look = lambda row, done: bool(callback(course.state(row, done)))
        watchers.append(host.Watcher(watch.every, look))
    if watch.bar is not None:
        show = watch.bar
        watchers.append(host.Watcher(None, lambda row, done: bool(show(course.time(row, done), done))))
    return watchers


def _finished(course: Course, pieces: Pieces, stopped: bool, fallback: str | None) -> Solution:
    setup, begun, steps = course
    runner, status = begun.runner, begun.runner.status
    if status == diagnose.SUCCESS and not runner.finished:
        status = diagnose.STOPPED if stopped else diagnose.TOO_MANY
    of_rows, t, t_alpha = pieces.joined()
    rejected = runner.rejected if isinstance(steps, Aim) else 0
    totals = runner.totals if isinstance(steps, Aim) else pieces.totals
    work = assemble.Work(pieces.done, rejected, *np.asarray(totals).astype(int).tolist())
    fallback = fallback or getattr(runner, "fallback", None)
    return assemble.solution(
        setup,
        of_rows,
        t,
        t_alpha,
        status,
        begun.backend,
        fallback,
        work,
        pieces.keep.complete,
        pieces.nodes(),
    )
