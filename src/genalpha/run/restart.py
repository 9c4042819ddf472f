"""States of runs, from which other runs continue."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.sparse import front
from genalpha.backends.sparse.runner import KIND
from genalpha.engine.run_data import Grid, MethodText, RunState, identity, of_system
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given, Steps
from genalpha.mechanics.system import Args
from genalpha.numerics.data import State
from genalpha.results.collect import RunSoFar
from genalpha.run.beginning import StartPoint
from genalpha.run.request import Request


class RunArgs(NamedTuple):
    """The args that hold now, those that the run was given, and the leaves of the former if they differ."""

    now: Args
    given: Args
    changed: list[np.ndarray] | None = None

    def after(self, args: Args) -> RunArgs:
        """The args after a reset."""
        if args is self.now or identity(args) == identity(self.now):
            return self
        return RunArgs(args, self.given, [np.asarray(x) for x in jax.tree.leaves(args)])

    def again(self, changed: list[np.ndarray] | None) -> RunArgs:
        """The args with these leaves, from a file or a state."""
        if changed is None:
            return RunArgs(self.given, self.given)
        own, structure = jax.tree.flatten(self.given)
        form = lambda x: (np.shape(x), np.asarray(x).dtype)
        if [*map(form, own)] != [*map(form, changed)]:
            raise ValueError(
                "the state holds args of other shapes than those of its run: it is damaged. Make a new one"
            )
        return RunArgs(jax.tree.unflatten(structure, changed), self.given, changed)


def starting_args(asked: Request) -> RunArgs:
    """The args with which a run starts: those of its state if a reset has changed them in the same run."""
    state, found = asked.restart.state, RunArgs(asked.args, asked.args)
    if state is None or state.changed is None or state.args != identity(asked.args):
        return found
    return found.again(state.changed) if state.system == of_system(asked.setup, asked.args) else found


def resumed(asked: Request, start: StartPoint, args: Args) -> tuple[StartPoint, RunState | None]:
    """The start of a run, and the state from which it continues; None if it starts again from q and v."""
    state, setup = asked.restart.state, asked.setup
    if state is None:
        return start, None
    same = _identity_of(state, args) == identity(args) and state.system == of_system(setup, args)
    guess = (state.lam, state.psi) if state.dims == setup.dims else start.guess
    start = start._replace(mode="assume" if same else start.mode, guess=guess, just=state.just)
    size = asked.steps.first_size
    first = 0.0 if size is not None and asked.restart.grid is None else size  # a list may have any sizes
    # Runs with sparse and with dense matrices keep different variables.
    sparse = state.exact is not None and str(state.exact.key[0]).startswith(KIND)
    native = asked.backend != "xla"
    if sparse != (native and front.wanted(setup, asked.steps)) or not (
        same and state.fits(setup.method, first)
    ):
        return start, None
    return state.start._replace(mode="assume", before=None), state


def _identity_of(state: RunState, args: Args) -> bytes:
    """What identifies the args that hold at a state."""
    if state.changed is None:
        return state.args
    own, structure = jax.tree.flatten(args)
    return identity(jax.tree.unflatten(structure, state.changed)) if len(own) == len(state.changed) else b""


def state_after(
    course: RunSoFar, start: StartPoint, grid: Grid | None, args: RunArgs, row: np.ndarray, done: int
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


def _about(setup: Setup, at: State, args: RunArgs) -> dict[str, Any]:
    """What every state has: the motion, and what it takes to recognise its run."""
    motion = {name: np.asarray(getattr(at, name)) for name in ("q", "v", "a", "lam", "psi")}
    known = {"method": MethodText.of(setup.method), "dims": setup.dims, "system": of_system(setup, args.now)}
    return {"t": float(at.t), **motion, **known, "args": identity(args.given), "changed": args.changed}


def state_anew(setup: Setup, at: State, args: RunArgs, just: tuple[int, ...]) -> RunState:
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
