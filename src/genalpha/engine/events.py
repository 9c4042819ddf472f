"""Events: zeros of functions of the state. They may end a run or change it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.system import Dims
from genalpha.mechanics.user_errors import explaining
from genalpha.numerics.data import State

Function = Callable[..., Any]
# Zeros are located to this fraction of a step, or to the rounding of t if that is larger.
_XTOL = 1e-14
# Points in a step at which functions are evaluated, as fractions of it: dense near its start, then even.
_SPREAD = np.concatenate([[0.0], 2.0 ** -np.arange(20.0, 5.0, -1.0), np.arange(1, 33) / 32])
POINTS = len(_SPREAD)
# Points in the interval that is left: even with both ends, and around a guess.
_EVEN = np.linspace(0.0, 1.0, 17)
_AROUND = np.concatenate([sign * 10.0 ** -np.arange(1.0, 16.0) for sign in (-1.0, 1.0)] + [[0.0]])


@dataclass(frozen=True, eq=False)
class Reset:
    """What the ``reset`` of an event changes. None leaves things as they are.

    Parameters
    ----------
    v (n,) : velocities after the event. They must satisfy the constraints; see :func:`project_velocity`.
    q (size,) : positions after the event, on the constraints; see :func:`project_position`.
    args : further arguments of the functions after the event: a tuple like ``args`` of :func:`solve`, with
        the same structure, shapes and types. The rest of the run uses them, and so do its accelerations,
        multipliers, reactions and residuals. ``sol.phases`` lists which args hold in which part.
    stop : True ends the run at the event, after the changes. The changes are in ``sol.state``. Under a JAX
        transform it may be traced.

    A spring that becomes four times as stiff when the mass passes the centre:

    >>> import jax.numpy as jnp, genalpha as ga
    >>> spring = ga.System(jnp.eye(1), lambda t, q, v, k: -k * q)
    >>> stiffer = lambda t, q, v, k: ga.Reset(args=(4 * k,))
    >>> centre = ga.Event(lambda t, q, v, k: q[0], direction=-1, reset=stiffer)
    >>> sol = ga.solve(spring, (0.0, 3.0), [1.0], [0.0], args=(1.0,), events=centre, rtol=1e-6)
    >>> float(sol.q.min().round(3)), [float(phase.args[0]) for phase in sol.phases]
    (-0.5, [1.0, 4.0])
    """

    v: Any = None
    q: Any = None
    args: Any = None
    stop: Any = False


@dataclass(frozen=True)
class Event:
    """A change of sign of a function of the state. The run finds its time.

    Parameters
    ----------
    function : (t, q, v, *args), (t, q, v, lam, psi, *args) or (state, *args) -> number, written with
        jax.numpy. It may depend on everything in the state except the accelerations.
    terminal : True ends the run at the first event, a whole number k at the k-th. The default is False.
    direction : a positive number counts only zeros at which the function rises, a negative number only those
        at which it falls. The default, 0, counts both.
    reset : a function of the same arguments that returns the velocities (n,) after the event, or a
        :class:`Reset` that changes velocities, positions or args, or ends the run. It is called from Python
        and need not use jax.numpy, except under a JAX transform. Velocities and positions must satisfy the
        constraints. The run continues with them, and with accelerations and multipliers computed from them.
        The default is None: no change.

    period : for functions that are known up to multiples of it, such as an angle from −π to π (2π). A change
        of sign by more than half of it is a jump between two values of one angle, and no event. The default
        is None.

    The attributes ``terminal``, ``direction`` and ``reset`` of a plain function work too, as in SciPy.

    A ball that keeps 80 % of its speed in each impact:

    >>> import jax.numpy as jnp, genalpha as ga
    >>> ball = ga.System(jnp.eye(1), lambda t, q, v: jnp.array([-9.81]))
    >>> floor = ga.Event(lambda t, q, v: q[0], direction=-1, reset=lambda t, q, v: -0.8 * v)
    >>> sol = ga.solve(ball, (0.0, 2.0), [1.0], [0.0], h=0.01, events=floor)
    >>> sol.t_events[0].round(3).tolist()
    [0.452, 1.174, 1.752]
    """

    function: Function
    terminal: bool | int = False
    direction: float = 0.0
    reset: Function | None = None
    period: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"an event must be a function (t, q, v, *args) -> number, got {self.function!r}")
        whole = isinstance(self.terminal, bool | int | np.integer | np.bool_)
        if not (whole and self.terminal >= 0):
            raise ValueError(
                f"terminal of an event must be True, False or a whole number >= 0, got {self.terminal!r}"
            )
        if not (isinstance(self.direction, int | float | np.number) and np.isfinite(self.direction)):
            raise ValueError(f"direction of an event must be a finite number, got {self.direction!r}")
        if self.period is not None and not 0 < self.period < np.inf:
            raise ValueError(f"period of an event must be a positive number, got {self.period!r}")
        if self.reset is not None and not callable(self.reset):
            raise TypeError(
                f"reset of an event must be a function that returns velocities, got {self.reset!r}"
            )


class _NoAcceleration:
    """A placeholder for accelerations that are not known. Using it raises an error."""

    def _refuse(self, *_: Any) -> Any:
        raise TypeError(_NO_A)

    __getitem__ = __iter__ = __len__ = __neg__ = __abs__ = __add__ = __radd__ = __sub__ = __rsub__ = _refuse
    __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __matmul__ = __rmatmul__ = __pow__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __getattr__ = _refuse


_NO_A = (
    "an event cannot depend on the accelerations of its state, because they are not known between the steps: "
    "use t, q, v, lam and psi only"
)


class Crossing(NamedTuple):
    """The part of an event that compiled loops need: its function and its direction.

    ``loads`` says whether the function depends on the multipliers. A larger change than ``jump`` is no event.
    """

    function: Function
    direction: float
    loads: bool = False
    jump: float = np.inf


def parse(events: Any, args: tuple[Any, ...]) -> tuple[Event, ...]:
    """The argument ``events`` of ``solve`` as a tuple of events."""
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
    """The number of arguments that a function takes before ``count`` further ones.

    It is 3 for (t, q, v), 5 for (t, q, v, λ, ψ), or 1 for a State.
    """
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
        f"the function {getattr(function, '__name__', function)!r} of an event takes {signature}. An event "
        "and its reset must take (t, q, v, *args), (t, q, v, lam, psi, *args) or (state, *args), with "
        f"{count} args here"
    )


def call(function: Function, state: State, args: tuple[Any, ...]) -> Any:
    """Call the function or the reset of an event with a state."""
    number = form(function, len(args))
    if number == 1:
        return function(state, *args)
    t, q, v, _, lam, psi = state
    return function(*(t, q, v, lam, psi)[:number], *args)


def reset_of(event: Event, state: State, args: tuple[Any, ...]) -> Reset:
    """What the reset of an event returns, as a :class:`Reset`."""
    assert event.reset is not None
    found = call(event.reset, state, args)
    return found if isinstance(found, Reset) else Reset(v=found)


def values(crossings: tuple[Crossing, ...], t: Any, q: Any, v: Any, lam: Any, psi: Any, args: Any) -> Array:
    """The functions of all events (E,) at a state. Its accelerations are not known."""
    state = State(t, q, v, _NoAcceleration(), lam, psi)  # type: ignore[arg-type]
    found = [_number(c.function, state, args) for c in crossings]
    for value, crossing in zip(found, crossings, strict=True):
        if value.size != 1:
            name = getattr(crossing.function, "__name__", "event")
            raise ValueError(f"the event {name!r} must return one number, got shape {value.shape}")
    return jnp.stack([value.reshape(()) for value in found]) if found else jnp.zeros(0)


def _number(function: Function, state: State, args: Any) -> Array:
    """The function of an event. Errors in it are explained."""
    with explaining(f"the event {getattr(function, '__name__', 'function')!r}"):
        return jnp.asarray(call(function, state, args), float)


def fired(crossings: tuple[Crossing, ...], before: Any, after: Any) -> Any:
    """Which events (E,) happen between two values of their functions: those that reach or pass zero.

    A function that starts at zero and leaves it is not an event.
    """
    direction = np.array([c.direction for c in crossings])
    rising = (before < 0) & (after >= 0) & (direction >= 0)
    falling = (before > 0) & (after <= 0) & (direction <= 0)
    jump = np.array([c.jump for c in crossings])
    return (rising | falling) & ((abs(after - before) < jump) if np.isfinite(jump).any() else True)


def located(function: Callable[[np.ndarray], np.ndarray], first: float, last: float) -> float:
    """The first zero of a function that changes its sign between two times.

    The function takes an array of times (POINTS,). Right after another event it starts at zero, up to
    rounding. Then the next zero is wanted; if there is none, the result is a moment after the start. If the
    function is zero over an interval, the result is the beginning of that interval.
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
        # The zero of the line through both ends, and points around it at growing distances
        guess = last - (last - first) * (high / (high - low)) if np.isfinite(high - low) else last
        near = np.concatenate([first + (last - first) * _EVEN, guess + (last - first) * _AROUND])
        times = np.sort(np.clip(near, first, last))
        signs = np.sign(found := function(times))
        before = np.flatnonzero(signs == side)
    return float(last)


class Happened(NamedTuple):
    """One occurrence: the number of the event, and the state, which satisfies the constraints."""

    event: int
    state: State


def lists(count: int, happened: list[Happened], dims: Any) -> dict[str, list[np.ndarray]]:
    """``t_events`` and so on: for each event one array, with one row for each occurrence."""
    widths = {"t": None, "q": dims.size, "v": dims.n, "lam": dims.m, "psi": dims.p}
    result: dict[str, list[np.ndarray]] = {}
    for name, width in widths.items():
        rows = [[getattr(h.state, name) for h in happened if h.event == i] for i in range(count)]
        empty = np.zeros(0) if width is None else np.zeros((0, width))
        result[name] = [np.array(r, dtype=float) if r else empty for r in rows]
    return result


def crossings(listed: tuple[Event, ...], dims: Dims, args: Any) -> tuple[Crossing, ...]:
    """What compiled loops need of events. Their functions are traced, so that errors in them are raised."""
    jump = lambda e: np.inf if e.period is None else 0.5 * e.period
    return tuple(
        Crossing(e.function, float(e.direction), _loads(e.function, dims, args), jump(e)) for e in listed
    )


def _loads(function: Function, dims: Dims, args: Any) -> bool:
    """Whether a function depends on the multipliers."""
    number = lambda *shape: jax.ShapeDtypeStruct(shape, float)
    at = [number(), number(dims.size), number(dims.n), number(dims.m), number(dims.p)]
    one = (Crossing(function, 0.0),)
    try:
        found = jax.make_jaxpr(lambda t, q, v, lam, psi: values(one, t, q, v, lam, psi, args))(*at).jaxpr
    except TypeError as error:
        if _NoAcceleration.__name__ in str(error):  # it was passed to JAX
            raise TypeError(_NO_A) from error
        raise
    used = [*found.outvars, *(x for equation in found.eqns for x in equation.invars)]
    return any(x is multiplier for x in used for multiplier in found.invars[3:])
