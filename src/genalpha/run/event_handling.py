"""Events during a run: their times, the states there on the constraints, and how the run continues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends import sampling
from genalpha.backends.cache import program
from genalpha.backends.native import kernels as native
from genalpha.backends.native.step import LIMIT, floating
from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sparse import front as sparse
from genalpha.engine import event_values, events, interpolate
from genalpha.engine import start as starts
from genalpha.engine.events import Event, Happened
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.setup import Setup
from genalpha.errors import InconsistentInitialValues
from genalpha.mechanics import initial_values
from genalpha.mechanics.initial_values import NOTHING_HELD
from genalpha.mechanics.system import Args
from genalpha.numerics.data import State
from genalpha.run import arguments

# Residuals of the constraints at an event, relative to 1 + |q|. If they are larger, Newton's method is used.
ENOUGH = 1e-12
# A short time, as a fraction of the last step, or of the time span before the first step.
_MOMENT = 1e-7
# Events closer than this, relative to the step and to t, are simultaneous.
_SAME = 1e-12
# The motion is Zeno if one event causes this many resets within this fraction of the span. If less than a
# tenth of the span has passed, ten times the passed time replaces the span.
CROWD, CROWDED = 30, 1e-6
_NAMES = {"q": "positions", "v": "velocities"}


class Outcome(NamedTuple):
    """An event at ``state`` that changes the run or ends it.

    ``after`` has the q and v after the resets, ``args`` are the arguments after them. ``returned`` names what
    the resets returned. ``stop`` says that the run ends, ``crowded`` that it ends because it is Zeno.
    """

    event: int
    state: State
    after: State
    args: Args
    returned: tuple[str, ...] = ()
    stop: bool = False
    crowded: bool = False
    together: tuple[int, ...] = ()  # all events at this time

    def check_finite(self) -> None:
        """Raise if positions or velocities after the resets are NaN or infinite."""
        for name, what in _NAMES.items():
            values = np.asarray(getattr(self.after, name))
            if not np.isfinite(values).all():
                raise NotFinite(what, values)


class NotFinite(ValueError):
    """Positions or velocities that are NaN or infinite."""

    def __init__(self, what: str, values: np.ndarray) -> None:
        super().__init__(what)
        self.values = values


class Handler:
    """Finds events in steps, and decides how the run continues."""

    def __init__(
        self, setup: Setup, listed: tuple[Event, ...], began: float, span: float, args: Args
    ) -> None:
        self.setup, self.listed, self.began, self.span = setup, listed, began, span
        self.happened: list[Happened] = []
        self._moment = _MOMENT * span
        self.use(args)

    def use(self, args: Args) -> None:
        """Call all functions with these args from now on."""
        self.args = args
        self._compiled: dict[str, Rowwise] = {}
        if self.listed:
            self._doubles, self._rebuild, self._fixed = floating(args)

    def known(self, state: State, just: tuple[int, ...] = (), before: Any = None) -> np.ndarray:
        """The values (E,) of the functions of events at the start.

        For an event that is zero, or has ``just`` happened, the value is instead the change a short time
        later. So an event that returns to zero within one step is found. If a value is larger than that
        ``before`` the resets (E,), a reset may have moved the function away from zero, and if these are None,
        it may be a function of another run. Then the event counts only if its value is small.
        """
        values = np.array(self.values(state))
        at_zero, certain = values == 0, np.zeros(len(values), bool)
        if before is not None:  # a new start with unit quaternions may change them by rounding
            certain = np.abs(values) <= 2 * np.abs(before)
        at_zero[[i for i in just if i < len(values)]] = True
        if at_zero.any():
            row = lambda x: np.asarray(x, dtype=float)[None]
            soon = self._soon(*jax.tree.map(row, (state, self._doubles)))[0]
            at_zero &= certain | (np.abs(values) <= np.abs(soon))
            values = np.where(at_zero, soon, values)
        return values

    def known_of(self, states: State, doubles: list[np.ndarray]) -> np.ndarray:
        """The same (K, E) at the starts of runs (K, ...), each with its own arguments."""
        t, q, v, _, lam, psi = states
        values = np.array(self._values(StepEnd(t, q, v, lam, psi), doubles))
        zero = np.flatnonzero((values == 0).any(axis=1))
        if zero.size:
            some = [x if len(x) == 1 else x[zero] for x in doubles]  # one row is shared by all
            soon = self._soon(jax.tree.map(lambda x: np.asarray(x)[zero], states), some)
            values[zero] = np.where(values[zero] == 0, soon, values[zero])
        return values

    def _soon(self, states: State, doubles: list[np.ndarray]) -> np.ndarray:
        """The changes of the functions of events (K, E) a short time after states (K, ...)."""
        function = lambda at, by, x: event_values.soon(self.setup, at, by, self._rebuild(x))
        return self._rows("soon", function, (states, np.array([self._moment]), doubles))

    def values(self, state: State) -> np.ndarray:
        """The functions of all events (E,) at a state."""
        t, q, v, _, lam, psi = state
        row = jax.tree.map(lambda x: np.asarray(x, dtype=float)[None], StepEnd(t, q, v, lam, psi))
        return self.values_at(row)[0]

    def values_at(self, ends: StepEnd) -> np.ndarray:
        """The functions of all events (K, E) at states (K, ...)."""
        return self._values(ends, [np.asarray(x)[None] for x in self._doubles])

    def _values(self, ends: StepEnd, doubles: list[np.ndarray]) -> np.ndarray:
        """The functions of all events (K, E) at states (K, ...), each with its own arguments."""
        function = lambda at, x: event_values.values(self.setup, at, self._rebuild(x))
        return self._rows("event values", function, (ends, doubles))

    def examine(self, before: StepEnd, after: StepEnd, fired: np.ndarray) -> Outcome | None:
        """Record all events in a step in order, up to the first that ends or changes the run."""
        row = lambda node: StepEnd(*(np.asarray(x)[None] for x in node))
        ends, span = (row(before), row(after)), (float(before.t), float(after.t))
        between = lambda t: jax.tree.map(
            lambda x: x[0], sampling.between(self.setup.system.space, *ends, np.array([t]))
        )
        return self.occurrences(span, fired, lambda t: self._along(*ends, t), between)

    def occurrences(
        self,
        span: tuple[float, float],
        fired: np.ndarray,
        values: Callable[[np.ndarray], np.ndarray],
        between: Callable[[float], State],
    ) -> Outcome | None:
        """Record the events ``fired`` (E,) within a span of time, up to the first that changes the run.

        ``values`` returns the functions of all events (K, E) at times (K,), ``between`` the state at a time.
        """
        value = lambda i: lambda t: values(t)[:, i]
        times = sorted((events.located(value(i), *span), i) for i in np.flatnonzero(fired).tolist())
        self._moment = _MOMENT * (span[1] - span[0])
        while times:
            t = times[0][0]
            together = tuple(i for later, i in times if later - t <= _SAME * (span[1] - span[0] + abs(t)))
            times = times[len(together) :]
            state = self.settled(between(t))
            self.happened += [Happened(i, state) for i in together]
            verdict = self._judged(together, state)
            if verdict is not None:
                return verdict
        return None

    def _along(self, before: StepEnd, after: StepEnd, t: np.ndarray) -> np.ndarray:
        """The functions of all events (K, E) at times t (K,) in a step whose ends are rows."""
        space = self.setup.system.space

        def function(before: StepEnd, after: StepEnd, t: Any, x: Any) -> Any:
            _, q, v, _, lam, psi = interpolate.between(space, before, after, t)
            return event_values.values(self.setup, StepEnd(t, q, v, lam, psi), self._rebuild(x))

        doubles = [np.asarray(x)[None] for x in self._doubles]
        return self._rows("events along", function, (before, after, t, doubles))

    def _judged(self, together: tuple[int, ...], state: State) -> Outcome | None:
        """The outcome of simultaneous events: the end of the run, or what holds after all resets."""
        for i in together:
            terminal = self.listed[i].terminal
            if terminal and sum(h.event == i for h in self.happened) >= int(terminal):
                return Outcome(i, state, state, self.args, stop=True, together=together)
        found: Outcome | None = None
        for i in together:
            if self.listed[i].reset is None:
                continue
            if self._crowded(i, float(state.t)):
                return Outcome(i, state, state, self.args, stop=True, crowded=True, together=together)
            found = self._reset(i, found or Outcome(i, state, state, self.args, together=together))
        return found

    def _reset(self, i: int, so_far: Outcome) -> Outcome:
        """What holds after the reset of event ``i``; ``so_far`` is what holds before it."""
        at = so_far.after
        own = jax.tree.map(np.array, at)  # a copy, because the reset may change it in place
        try:
            wanted = events.reset_of(self.listed[i], own, so_far.args)
        except Exception as error:
            error.add_note(f"This happened in the reset of event {i} at t = {at.t:.9g}.")
            raise
        dims, told = self.setup.dims, f"the reset of event {i} returned"
        found: dict[str, Any] = {}
        for name, width, what in (("v", dims.n, "velocities"), ("q", dims.size, "positions")):
            value = getattr(wanted, name)
            if value is None:
                continue
            found[name] = np.array(value, dtype=float)
            if found[name].shape != (width,):
                raise ValueError(
                    f"the reset of event {i} must return {what} of shape ({width},); at t = {at.t:.9g} it "
                    f"returned {found[name]!r}"
                )
        if "q" in found and np.isfinite(found["q"]).all():
            found["q"] = arguments.point(self.setup.system.space, found["q"], f"the positions that {told}")
        args = so_far.args if wanted.args is None else arguments.alike(so_far.args, wanted.args, told)
        returned = [_NAMES[name] for name in found] + ["args"] * (wanted.args is not None)
        return so_far._replace(
            after=at._replace(**found),
            args=args,
            returned=tuple(dict.fromkeys((*so_far.returned, *returned))),
            stop=so_far.stop or bool(wanted.stop),
        )

    def _crowded(self, i: int, t: float) -> bool:
        """Whether resets by event i follow each other so fast that the motion is Zeno."""
        times = [float(h.state.t) for h in self.happened if h.event == i][-CROWD:]
        reached = min(self.span, 10 * (t - self.began))
        return len(times) == CROWD and times[-1] - times[0] < CROWDED * reached

    def settled(self, state: State) -> State:
        """The state with q and v projected onto the constraints, and with consistent a, λ and ψ."""
        setup = self.setup
        if sparse.large(setup):
            t, q, v, _, *guess = map(np.asarray, state)
            return sparse.projector(setup, self.args).settled(t, q, v, guess)
        found, left = self.corrected(state)
        if left <= ENOUGH * (1 + np.abs(state.q).max()):
            return found
        at = (np.float64(state.t), state.q, state.v)
        q, v, _ = program(setup, ("project", NOTHING_HELD), starts.project)(*at, self.args)
        begin = program(setup, "begin", starts.begin)(at[0], q, v, self.args, (state.lam, state.psi))
        return jax.tree.map(np.asarray, begin.state)

    def corrected(self, state: State) -> tuple[State, float]:
        """The same by a few corrections, and the residual that remains."""
        setup = self.setup
        function = lambda t, q, v, guess, x: initial_values.settled(
            setup.system, setup.dims, t, q, v, self._rebuild(x), guess
        )
        at = (np.float64(state.t), state.q, state.v, (state.lam, state.psi))
        return self._one("settled", function, (*at, self._doubles))

    def _one(self, name: str, function: Callable[..., Any], arguments: Any) -> Any:
        """A function of one set of arguments, compiled once."""
        rows = jax.tree.map(lambda x: np.asarray(x)[None], arguments)
        return jax.tree.map(lambda x: x[0], self._rows(name, function, rows))

    def _rows(self, name: str, function: Callable[..., Any], arguments: Any) -> Any:
        """A function of rows of arguments, compiled once. An argument with one row is shared by all."""
        if name not in self._compiled:
            example = jax.tree.map(lambda x: x[0], arguments)
            key = (name, *self.setup[1:], native.shapes(example), self._fixed)
            limit = 0 if sparse.large(self.setup) else LIMIT  # else every node would be unrolled
            make = lambda: Rowwise("row", function, example, limit)
            self._compiled[name] = self.setup.system._programs.made(key, make)
        return self._compiled[name](arguments)


def explained(error: ValueError, verdict: Outcome) -> str:
    """The reason why a run cannot continue after an event."""
    reset = f"the reset of event {verdict.event} returned"
    if isinstance(error, NotFinite):
        return f"The {error} that {reset} are NaN or infinite: {error.values}"
    what = " and ".join(sorted(verdict.returned, key=("positions", "velocities", "args").index)) or "state"
    if not isinstance(error, InconsistentInitialValues):
        return f"With the {what} that {reset}, {error}"
    moves = "ga.project_position moves positions and ga.project_velocity velocities onto them"
    if verdict.returned == ("velocities",):
        moves = "ga.project_velocity moves velocities onto them"
    return f"The {what} that {reset} break the constraints: {error.broken}. {moves}"
