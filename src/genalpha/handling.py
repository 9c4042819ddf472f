"""What happens at events: where they are, the state there on the constraints, and how the run goes on."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha import dense, events, initial
from genalpha.advance import Setup
from genalpha.dense import Node
from genalpha.drive import native, xla
from genalpha.errors import InconsistentInitialValues
from genalpha.events import Event, Happened
from genalpha.kernels.graph import Unsupported
from genalpha.kernels.rows import RowFunction
from genalpha.kernels.step import floating
from genalpha.state import State
from genalpha.states import begin as begin_program
from genalpha.system import Args

# Constraints hold at an event as well as this, relative to 1 + |q|, or Newton's method is asked to help.
_ENOUGH = 1e-12
# A moment, as a part of the time span.
_MOMENT = 1e-7
# So many events in a row within this part of the time span are taken for a motion that never gets on.
CROWD, CROWDED = 30, 1e-6


class Verdict(NamedTuple):
    """Why a run does not go on as it was: an event that ends it, or new velocities (n,) after it."""

    event: int
    state: State
    velocity: np.ndarray | None
    crowded: bool = False
    together: tuple[int, ...] = ()  # all events at this moment


class Handler:
    """Finds events in steps, and says how to go on."""

    def __init__(self, setup: Setup, listed: tuple[Event, ...], span: float, args: Args) -> None:
        self.setup, self.listed, self.args, self.span = setup, listed, args, span
        self.happened: list[Happened] = []
        if listed:
            self._doubles, self._rebuild, self._fixed = floating(args)

    def known(self, state: State, just: tuple[int, ...]) -> np.ndarray:
        """The values (E,) that a run starts with: of those that are zero, or have ``just`` happened, where
        they go.

        Then an event that returns to zero within one step is seen.
        """
        values = np.array(self.values(state))
        at_zero = values == 0
        at_zero[list(just)] = True
        if at_zero.any():
            moment, space = _MOMENT * self.span, self.setup.system.space
            function = lambda at, x: events.soon(self.setup.crossings, space, at, moment, self._rebuild(x))
            at = state._replace(t=np.asarray(state.t, dtype=float))  # type: ignore[arg-type]
            values = np.where(at_zero, self._one("soon", function, (at, self._doubles)), values)
        return values

    def values(self, state: State) -> np.ndarray:
        """The functions of all events (E,) at a state."""
        function = lambda t, q, v, lam, psi, x: events.values(
            self.setup.crossings, t, q, v, lam, psi, self._rebuild(x)
        )
        t, q, v, _, lam, psi = state
        return self._one("event values", function, (np.float64(t), q, v, lam, psi, self._doubles))

    def examine(self, before: Node, after: Node, fired: np.ndarray) -> Verdict | None:
        """All that happened in a step, in order, up to what changes the run."""
        between = lambda t: _one_row(dense.ends, self.setup.system.space, before, after, t)
        value = lambda i, t: float(self.values(between(t))[i])
        times = [
            (events.located(functools.partial(value, i), float(before.t), float(after.t)), i)
            for i in np.flatnonzero(fired).tolist()
        ]
        times.sort()
        for k, (t, i) in enumerate(times):
            state = self.settled(between(t))
            self.happened.append(Happened(i, state))
            verdict = self._judged(i, state)
            if verdict is not None:
                moment = 1e-12 * (self.span + abs(t))
                others = [j for later, j in times[k + 1 :] if later - t <= moment]
                self.happened += [Happened(j, state) for j in others]
                together = (*(j for earlier, j in times[: k + 1] if t - earlier <= moment), *others)
                return verdict._replace(together=together)
        return None

    def _judged(self, i: int, state: State) -> Verdict | None:
        event = self.listed[i]
        number = sum(h.event == i for h in self.happened)
        if event.terminal and number >= int(event.terminal):
            return Verdict(i, state, None)
        if event.reset is None:
            return None
        recent = self.happened[-CROWD:]
        if len(recent) == CROWD and recent[-1].state.t - recent[0].state.t < CROWDED * self.span:
            return Verdict(i, state, None, crowded=True)
        velocity = np.asarray(events.call(event.reset, state, self.args), dtype=float)
        if velocity.shape != (self.setup.dims.n,) or not np.isfinite(velocity).all():
            raise ValueError(
                f"the reset of event {i} must return velocities of shape ({self.setup.dims.n},), finite; "
                f"at t = {state.t:.9g} it returned {velocity!r}"
            )
        return Verdict(i, state, velocity)

    def settled(self, state: State) -> State:
        """A state with q and v on the constraints, and a, λ and ψ that belong to them."""
        setup = self.setup
        at = (np.float64(state.t), state.q, state.v)
        if setup.system.reaction is None:
            function = lambda t, q, v, x: initial.settled(setup.system, setup.dims, t, q, v, self._rebuild(x))
            found, left = self._one("settled", function, (*at, self._doubles))
            if left <= _ENOUGH * (1 + np.abs(state.q).max()):
                return found
        project = lambda setup, t, q, v, args: initial.project(setup.system, setup.dims, t, q, v, args)
        q, v, _ = xla.program(setup, "project", project)(*at, self.args)
        begin = xla.program(setup, "begin", begin_program)(at[0], q, v, self.args, (state.lam, state.psi))
        return jax.tree.map(np.asarray, begin.state)

    def _one(self, name: str, function: Callable[..., Any], arguments: Any) -> Any:
        """A function of one set of arguments, compiled once, by LLVM where it can."""
        cache = self.setup.system._programs
        key = (name, *self.setup[1:], native.shapes(arguments), self._fixed, self.span)
        if key not in cache:
            try:
                cache[key] = native.RowCode(RowFunction("row", function, arguments, often=False), 1)
            except Unsupported:
                cache[key] = None
        if cache[key] is not None:
            found, good = cache[key](jax.tree.map(lambda x: np.asarray(x)[None], arguments))
            if good.all():
                return jax.tree.map(lambda x: x[0], found)
        plain = lambda setup, *inputs: function(*inputs)
        known = f"{name} by xla, {self._fixed} {self.span}"
        return jax.tree.map(np.asarray, xla.program(self.setup, known, plain)(*arguments))


def _one_row(function: Callable[..., Any], space: Any, before: Node, after: Node, t: float) -> State:
    row = lambda node: Node(*(np.asarray(x)[None] for x in node))
    return jax.tree.map(lambda x: x[0], function(space, row(before), row(after), np.array([t])))


def explained(error: InconsistentInitialValues, verdict: Verdict) -> InconsistentInitialValues:
    """What is wrong with velocities that a reset returned."""
    return InconsistentInitialValues(
        f"the velocities that the reset of event {verdict.event} returned at t = {verdict.state.t:.9g} break "
        f"the constraints: {error}. ga.project_velocity moves velocities onto them"
    )
