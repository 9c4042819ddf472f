"""States of runs, from which other runs continue."""

from __future__ import annotations

from typing import Any

import numpy as np

from genalpha.engine.run_data import Grid, MethodText, RunState, identity, of_system
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given, Steps
from genalpha.mechanics.system import Args
from genalpha.numerics.data import State
from genalpha.results.collect import RunSoFar
from genalpha.run.beginning import StartPoint
from genalpha.run.request import Request


def resumed(asked: Request, start: StartPoint) -> tuple[StartPoint, RunState | None]:
    """The start of a run, and the state from which it continues; None if it starts again from q and v."""
    state, setup = asked.restart.state, asked.setup
    if state is None:
        return start, None
    same = state.args == identity(asked.args) and state.system == of_system(setup, asked.args)
    guess = (state.lam, state.psi) if state.dims == setup.dims else start.guess
    start = start._replace(mode="assume" if same else start.mode, guess=guess, just=state.just)
    size = asked.steps.first_size
    first = 0.0 if size is not None and asked.restart.grid is None else size  # a list may have any sizes
    if not (same and state.fits(setup.method, first)):
        return start, None
    return state.start._replace(mode="assume", after=None), state


def state_after(
    course: RunSoFar, start: StartPoint, grid: Grid | None, args: Args, row: np.ndarray, done: int
) -> RunState:
    """The state of a run after ``done`` steps; ``row`` is the last record."""
    at, runner, steps = course.state(row, done), course.begun.runner, course.steps
    return RunState(
        **_about(course.setup, at, args),
        start=start._replace(h=None if steps.controlled else start.h or steps.first_size),
        row=row,
        t_alpha=float(at.t) + course.setup.method.alpha * float(course.times(row[None], done)[1][0]),
        controlled=steps.controlled,
        fields=runner.fields(),
        exact=runner.exact(),
        grid=grid,
        limits=steps.step_limits,
    )


def _about(setup: Setup, at: State, args: Args) -> dict[str, Any]:
    """What every state has: the motion, and what it takes to recognise its run."""
    motion = {name: np.asarray(getattr(at, name)) for name in ("q", "v", "a", "lam", "psi")}
    known = {"method": MethodText.of(setup.method), "dims": setup.dims}
    return {"t": float(at.t), **motion, **known, "system": of_system(setup, args), "args": identity(args)}


def state_anew(setup: Setup, at: State, args: Args, just: tuple[int, ...]) -> RunState:
    """A state after an event, from which a run starts again."""
    return RunState(
        **_about(setup, at, args),
        start=None,
        row=np.zeros(0),
        t_alpha=np.nan,
        controlled=False,
        fields=None,
        exact=None,
        grid=None,
        just=just,
    )


def shortened(grid: Grid | None, steps: Steps) -> Grid | None:
    """The grid of a run after an event, if it had one."""
    if grid is None or not isinstance(steps, Given):
        return None
    times = np.asarray(steps.times)
    return Grid(float(times[0]), grid.h, 0, (times, np.asarray(steps.steps.h)))
