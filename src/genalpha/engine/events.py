"""Events: functions of the state whose zeros are found, may end a run, or change the velocities."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import Dims
from genalpha.numerics.data import State
from genalpha.numerics.derivatives import value_and_rate

Function = Callable[..., Any]
# Zeros are located to this part of a step, and no better than rounding of t allows.
_XTOL = 1e-14
# Where functions are looked at in a step, in parts of it: closely after its start, then evenly.
_SPREAD = np.concatenate([[0.0], 2.0 ** -np.arange(20.0, 5.0, -1.0), np.arange(1, 33) / 32])
POINTS = len(_SPREAD)
# Then in parts of what is left: evenly with both ends, and around a guess.
_EVEN = np.linspace(0.0, 1.0, 17)
_AROUND = np.concatenate([sign * 10.0 ** -np.arange(1.0, 16.0) for sign in (-1.0, 1.0)] + [[0.0]])


@dataclass(frozen=True)
class Event:
    """A zero of a function of the state, to be found during a run.

    Parameters
    ----------
    function : (t, q, v, *args), (t, q, v, lam, psi, *args) or (state, *args) -> number, written with
        jax.numpy;
        an event is where it changes its sign.
    terminal : end the run at the event; a whole number k ends it at the k-th one.
    direction : only where the function rises (positive), falls (negative), or both (0).
    reset : a function with the same arguments, called in Python at the event, that returns the velocities
        (n,)
        with which the run goes on. Accelerations and multipliers are then computed anew.

    SciPy's way, attributes ``terminal``, ``direction`` (and ``reset``) of a plain function, works as well.

    >>> Event(lambda t, q, v: q[0], direction=-1).terminal
    False
    """

    function: Function
    terminal: bool | int = False
    direction: float = 0.0
    reset: Function | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"an event is a function (t, q, v, *args) -> number, got {self.function!r}")
        whole = isinstance(self.terminal, bool | int | np.integer | np.bool_)
        if not (whole and self.terminal >= 0):
            raise ValueError(
                f"terminal of an event must be True, False or a whole number, got {self.terminal!r}"
            )
        if not (isinstance(self.direction, int | float | np.number) and np.isfinite(self.direction)):
            raise ValueError(f"direction of an event must be a number, got {self.direction!r}")
        if self.reset is not None and not callable(self.reset):
            raise TypeError(
                f"reset of an event must be a function that returns velocities, got {self.reset!r}"
            )


class _NoAcceleration:
    """In the place of accelerations, where there are none; to use it is an error."""

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(_NO_A)

    __getitem__ = __iter__ = __len__ = __neg__ = __abs__ = __add__ = __radd__ = __sub__ = __rsub__ = _refuse
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = __pow__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __getattr__ = _refuse


_NO_A = (
    "an event cannot depend on the accelerations of its state, which are not known between the steps: "
    "express it in t, q, v, lam and psi"
)


class Crossing(NamedTuple):
    """What compiled loops know of an event: its function of (t, q, v, λ, ψ, args), and a direction."""

    function: Function
    direction: float


def parse(events: Any, args: tuple[Any, ...]) -> tuple[Event, ...]:
    """The events of a run, whatever form they came in."""
    if events is None:
        return ()
    listed = events if isinstance(events, Sequence) else (events,)
    return tuple(_made(event, args) for event in listed)


def _made(event: Any, args: tuple[Any, ...]) -> Event:
    if not isinstance(event, Event):
        names = ("terminal", "direction", "reset")
        event = Event(event, **{name: getattr(event, name) for name in names if hasattr(event, name)})
    for what in (event.function, event.reset):
        if what is not None:
            form(what, len(args))
    return event


def form(function: Function, count: int) -> int:
    """How many of (t, q, v, λ, ψ) a function with ``count`` further arguments takes: 3, 5, or 1 for a
    State."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return 3
    kinds = [p.kind for p in signature.parameters.values()]
    fixed = sum(
        k in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for k in kinds
    )
    if inspect.Parameter.VAR_POSITIONAL in kinds and fixed in (1, 3, 5):
        return fixed
    for number in (3, 5, 1):
        try:
            signature.bind(*[None] * (number + count))
        except TypeError:
            continue
        return number
    raise TypeError(
        f"an event and its reset take (t, q, v, *args), (t, q, v, lam, psi, *args) or (state, *args), with "
        f"{count} args here; {getattr(function, '__name__', function)!r} takes {signature}"
    )


def call(function: Function, state: State, args: tuple[Any, ...]) -> Any:
    """A function of an event, of a state."""
    number = form(function, len(args))
    if number == 1:
        return function(state, *args)
    t, q, v, _, lam, psi = state
    return function(*(t, q, v, lam, psi)[:number], *args)


def values(crossings: tuple[Crossing, ...], t: Any, q: Any, v: Any, lam: Any, psi: Any, args: Any) -> Array:
    """The functions of all events (E,) at a state without accelerations, which steps do not know."""
    state = State(t, q, v, _NoAcceleration(), lam, psi)  # type: ignore[arg-type]
    found = [jnp.asarray(call(c.function, state, args), float) for c in crossings]
    for value, crossing in zip(found, crossings, strict=True):
        if value.size != 1:
            name = getattr(crossing.function, "__name__", "event")
            raise ValueError(f"the event {name!r} must return one number, got shape {value.shape}")
    return jnp.stack([value.reshape(()) for value in found]) if found else jnp.zeros(0)


def fired(crossings: tuple[Crossing, ...], before: Array, after: Array) -> Array:
    """Which events (E,) happen between two values of their functions: where they reach or pass zero.

    One that starts at zero and leaves it is none.
    """
    direction = np.array([c.direction for c in crossings])
    rising = (before < 0) & (after >= 0) & (direction >= 0)
    falling = (before > 0) & (after <= 0) & (direction <= 0)
    return rising | falling


def located(function: Callable[[np.ndarray], np.ndarray], first: float, last: float) -> float:
    """The first zero of a function of many times (POINTS,) at once that changes its sign between two times.

    Right after another event the function starts at zero, give or take rounding; then the zero after that one
    is looked for, and where there is none in between, it is a moment after the start. Where the function is
    zero for a while, that is where it begins to be.
    """
    times = first + (last - first) * _SPREAD
    signs = np.sign(found := function(times))
    leaves = np.flatnonzero(signs)
    side = -signs[-1] or (signs[leaves[0]] if leaves.size else np.nan)
    before = np.flatnonzero(signs == side)
    if not before.size:
        return float(times[1])
    enough = max(_XTOL * (last - first), 4 * np.finfo(float).eps * max(abs(first), abs(last)))
    while before.size:
        i = before[0] + int(np.argmax(signs[before[0] :] != side))  # the first that is not before the zero
        first, last, low, high = times[i - 1], times[i], found[i - 1], found[i]
        if last - first <= enough:
            break
        # Where a line through both ends is zero, and more and more widely around it
        guess = last - (last - first) * (high / (high - low)) if np.isfinite(high - low) else last
        near = np.concatenate([first + (last - first) * _EVEN, guess + (last - first) * _AROUND])
        times = np.sort(np.clip(near, first, last))
        signs = np.sign(found := function(times))
        before = np.flatnonzero(signs == side)
    return float(last)


def soon(crossings: tuple[Crossing, ...], space: Space, state: State, by: float, args: Any) -> Array:
    """How the functions of events (E,) change from a state on: along v and a for a moment ``by``.

    Where their rates are zero, after that moment.
    """
    t, q, v, a, lam, psi = state
    at = lambda t, q, v: values(crossings, t, q, v, lam, psi, args)
    direction = (jnp.ones_like(t), space.rate(q, v), a)
    now, rate = value_and_rate(at, (jnp.asarray(t, float), q, v), direction)
    later = at(t + by, space.retract(q, by * v + 0.5 * by**2 * a), v + by * a)
    return jnp.where(rate == 0, later - now, rate * by)


class Happened(NamedTuple):
    """One event: its number, and the state on the constraints."""

    event: int
    state: State


def lists(count: int, happened: list[Happened], dims: Any) -> dict[str, list[np.ndarray]]:
    """``t_events`` and so on: one array for each event, with a row each time it happened."""
    widths = {"t": None, "q": dims.size, "v": dims.n, "lam": dims.m, "psi": dims.p}
    result: dict[str, list[np.ndarray]] = {}
    for name, width in widths.items():
        rows = [[getattr(h.state, name) for h in happened if h.event == i] for i in range(count)]
        empty = np.zeros(0) if width is None else np.zeros((0, width))
        result[name] = [np.array(r, dtype=float) if r else empty for r in rows]
    return result


def check_events(crossings: tuple[Crossing, ...], dims: Dims, args: Any) -> None:
    """Trace the functions once, so that what is wrong with them is said before the run."""
    if not crossings:
        return
    number = lambda *shape: jax.ShapeDtypeStruct(shape, float)
    at = [number(), number(dims.size), number(dims.n), number(dims.m), number(dims.p)]
    try:
        jax.eval_shape(lambda t, q, v, lam, psi: values(crossings, t, q, v, lam, psi, args), *at)
    except TypeError as error:
        if _NoAcceleration.__name__ in str(error):  # JAX met it
            raise TypeError(_NO_A) from error
        raise
