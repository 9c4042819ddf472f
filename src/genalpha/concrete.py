"""A run as a few calls of compiled programs: what `solve` does outside of JAX transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from genalpha import assemble, check, control, diagnose, initial
from genalpha.advance import Setup
from genalpha.drive import adaptive, host, native, xla
from genalpha.drive.native import Aim
from genalpha.kernels.graph import Unsupported
from genalpha.solution import Solution
from genalpha.state import Schedule
from genalpha.states import begin as begin_program
from genalpha.system import Args

MOST_STEPS = 1_000_000  # under error control, unless more are asked for


class Begun(NamedTuple):
    """A run before its first step: how to go on, its first row, and what follows from rows."""

    runner: Any
    first: np.ndarray
    t_alpha: np.ndarray
    derive: Callable[[xla.Rows, np.ndarray], xla.Derived]
    backend: str


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
    log = host.run(begun.runner, begun.first, *_expected(steps, most))
    return _finished(setup, begun, steps, log, fallback)


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


def _finished(
    setup: Setup, begun: Begun, steps: Schedule | Aim, log: host.Log, fallback: str | None
) -> tuple[Solution, float]:
    runner, table = begun.runner, log.table
    rows, status = xla.columns(setup, table, begun.t_alpha), runner.status
    if isinstance(steps, Aim):
        t, h, errors = adaptive.timing(setup, table)
        h, after = h[1:], float(runner.pace.h)
        if status == diagnose.SUCCESS and t[-1] < steps.control[1].end:
            status = diagnose.TOO_MANY
        work = assemble.Work(len(h), runner.rejected, *runner.totals.astype(int).tolist())
    else:
        done = len(table) - 1
        sizes = steps.steps.h
        t, h, errors = np.asarray(steps.times)[: done + 1], sizes[:done], None
        after = float(sizes[min(done, len(sizes) - 1)])
        work = assemble.Work(done, 0, *rows.report.astype(int).sum(axis=0).tolist())
    fallback = fallback or getattr(runner, "fallback", None)
    derived = begun.derive(rows, t)
    return assemble.solution(setup, rows, derived, t, h, status, begun.backend, fallback, work, errors), after
