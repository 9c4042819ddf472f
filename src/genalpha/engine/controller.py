"""The controller of step sizes under error control. Every backend runs these same formulas."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.spaces import Space
from genalpha.numerics import codes
from genalpha.numerics.data import Carry, State

# The local error of a method of order 2 is of size h³.
ORDER = 3
# PI control after Gustafsson: the exponents of the current error and of the previous one.
INTEGRAL, PROPORTIONAL = 0.7 / ORDER, 0.4 / ORDER
# The target error, and the limits of one change of the step size. Larger growth would amplify a_α by JN08
# (14a).
TARGET, LEAST, MOST = 0.5, 0.2, 2.0
# The factor of the step size after a step without a solution.
AFTER_FAILURE = 0.25
# Near a kinematic singularity, a rejected step is not made much shorter, but repeated with this fraction, and
# then with ever longer steps by this factor, up to this number of attempts. So the step passes over it. Its
# error may be this multiple of what follows from its length.
PASS_SHORTER, PASS_LONGER, PASS_ATTEMPTS, PASS_ERROR = 0.6, 1.6, 8, 4.0
# Errors below this fraction of the tolerance count as this fraction, which limits the growth.
SMALLEST = 1e-4
# Steps below this multiple of t are lost in rounding.
ROUNDING = 16 * jnp.finfo(float).eps
# Limits of the first step: its fraction of the span, its estimated error as a fraction of the tolerance, and
# the change of q relative to q.
FIRST_SPAN, FIRST_ERROR, FIRST_MOVE = 1e-3, 0.1, 0.01
# A first step of the user's own may be this multiple of the step that changes q by FIRST_MOVE. In much longer
# steps the equations may have other solutions, whose errors look small.
FIRST_ASKED = 3.0


class Tolerances(NamedTuple):
    """The tolerance of the local error in each component, atol + rtol · size; arrays (n,)."""

    rtol_q: Any
    atol_q: Any
    rtol_v: Any
    atol_v: Any


class Limits(NamedTuple):
    """The end of a run, the longest and the shortest step, and the longest one of a quiet motion.

    A motion with errors below ``quiet_error`` is quiet, such as that of a system at rest. Its errors do not
    reveal later loads.
    """

    end: Any
    max_step: Any
    min_step: Any
    quiet_step: Any
    quiet_error: Any


class Pace(NamedTuple):
    """The time of a run, the size of its next step, and the memory of the controller.

    The next step starts at ``t`` and has the size ``h``. This is the size ``wish``, shortened near the end.
    ``error`` is the error of the last step in units of the tolerance. ``held`` is 1 after a rejected step,
    1 + k in the k-th attempt to pass a kinematic singularity, and −1 after a step that ended near one.
    ``rejected`` counts rejected steps. ``failure`` is the status of the last rejected step, 0 if only its
    error was too large. ``status`` is the status of the run.
    """

    t: Any
    h: Any
    wish: Any
    error: Any
    held: Any
    rejected: Any
    failure: Any
    status: Any


def norm(space: Space, tolerances: Tolerances, before: Carry, after: Carry, error: Array) -> Array:
    """The root mean square of the errors (2n,) of q and v, each divided by its tolerance.

    States have no positions, so they have one error each, that of v.
    """
    rtol_q, atol_q, rtol_v, atol_v = tolerances
    q = jnp.maximum(space.magnitude(before.q), space.magnitude(after.q))
    v = jnp.maximum(jnp.abs(before.v), jnp.abs(after.v))
    allowed = jnp.concatenate([atol_q + rtol_q * q, atol_v + rtol_v * v])
    if not (moved := space.moved(len(v))).all():
        counted = np.flatnonzero(np.append(moved, np.ones(len(v), bool)))
        allowed, error = allowed[counted], error[counted]
    return jnp.sqrt(jnp.mean(jnp.where(error == 0, 0.0, error / allowed) ** 2))


def first(
    space: Space, size: Array, tolerances: Tolerances, limits: Limits, state: State, a_dot: Array
) -> Array:
    """The size of the first step, from consistent values and a_0' (n,) at the start.

    ``size`` (n,) is the magnitude of q. Arrays of NumPy give one of NumPy, here and in the functions below.

    Its errors h³/12 a_0' in positions and ½h²a_0' in velocities stay well below the tolerance. (The second
    is larger than the error of the method.) If a_0' is not known, a_0 replaces it with one power of h less.
    In addition neither h v_0 nor ½h²a_0 may exceed a hundredth of q_0, or the tolerance if that is larger.
    This is needed because a_0' may be zero by chance, as for a pendulum that is released at rest.
    """
    rtol_q, atol_q, rtol_v, atol_v = tolerances
    xp = library(a_dot)
    # Components with zero tolerance (atol = 0, at rest) are left out.
    some = lambda allowed: xp.where(allowed > 0, allowed, xp.inf)
    allowed_q = some(FIRST_ERROR * (atol_q + rtol_q * size))
    if not (moved := space.moved(len(state.v))).all():
        allowed_q = xp.where(moved, allowed_q, xp.inf)
    allowed_v = some(FIRST_ERROR * (atol_v + rtol_v * xp.abs(state.v)))
    known = xp.all(xp.isfinite(a_dot))
    a_dot = xp.where(known, a_dot, 0.0)
    a = xp.where(known, 0.0, state.a)
    least_q = xp.where(xp.isfinite(allowed_q), allowed_q, 0.0)
    whole = xp.maximum(FIRST_MOVE * _size(size), _size(least_q))
    motion = _moving(space, state)
    guesses = [
        _size(a_dot / (12 * allowed_q)) ** (1 / 3),
        _size(a_dot / (2 * allowed_v)) ** (1 / 2),
        _size(a / (2 * allowed_q)) ** (1 / 2),
        _size(a / allowed_v),
        *_rates(whole, motion),
    ]
    fastest = xp.max(xp.stack(guesses))
    longest = FIRST_SPAN * (limits.end - state.t)
    wish = 1 / xp.maximum(fastest, 1 / longest)
    least = xp.maximum(limits.min_step, 100 * ROUNDING * xp.abs(state.t))
    return xp.clip(wish, xp.minimum(least, limits.max_step), limits.max_step)


def asked(space: Space, size: Array, state: State, wish: Array) -> Array:
    """The size of the first step that the user asks for. It is shortened if q would change too much."""
    rates, xp = _rates(FIRST_MOVE * _size(size), _moving(space, state)), library(size)
    return 1 / xp.maximum(1 / wish, xp.max(xp.stack(rates)) / FIRST_ASKED)


def _moving(space: Space, state: State) -> State:
    """The state without the values and rates of first-order states, which change no position."""
    moved = space.moved(len(state.v))
    if moved.all():
        return state
    xp = library(state.v)
    return state._replace(v=xp.where(moved, state.v, 0.0), a=xp.where(moved, state.a, 0.0))


def _rates(change: Array, state: State) -> list[Array]:
    """The inverse of steps in which h v_0 or ½h²a_0 reach ``change``; zero if that is zero."""
    xp = library(change)
    inverse = xp.where(change > 0, 1 / xp.where(change > 0, change, 1.0), 0.0)
    return [_size(state.v) * inverse, xp.sqrt(0.5 * _size(state.a) * inverse)]


def _size(x: Array) -> Array:
    xp = library(x)
    return xp.sqrt(xp.mean(x**2))


def library(x: Any) -> Any:
    """NumPy for its arrays and numbers, else JAX."""
    return np if isinstance(x, np.ndarray | np.generic) else jnp


def begun(limits: Limits, t: Array, wish: Array, status: Any) -> Pace:
    """The pace before the first step."""
    xp = library(wish)
    zero = xp.zeros(())
    status = xp.asarray(status, float)
    return Pace(t, fitted(limits, t, wish), wish, xp.array(TARGET), zero, zero, zero, status)


def fitted(limits: Limits, t: Array, wish: Array) -> Array:
    """The size of the next step. It does not pass the end, and the last two steps are equal."""
    left, xp = limits.end - t, library(wish)
    h = xp.minimum(wish, limits.max_step)
    return xp.where(h >= left, left, xp.where(2 * h > left, 0.5 * left, h))


def reached(limits: Limits, pace: Pace) -> Array:
    """The time at the end of the next step."""
    return jnp.where(pace.h >= limits.end - pace.t, limits.end, pace.t + pace.h)


class Counters(NamedTuple):
    """Steps taken and rows kept so far, the row of a step, whether it is kept, whether the run goes on."""

    taken: Any
    kept: Any
    place: Any
    keep: Any
    alive: Any


def counted(
    limits: Limits, asked: tuple[Any, Any, Any], taken: Any, kept: Any, accepted: Any, after: Pace
) -> Counters:
    """The counters after a step that led to the pace ``after``.

    ``asked`` are the most steps, the most rows, and that every k-th step is kept. The last step is kept too.
    """
    until, room, every = asked
    taken = taken + jnp.where(accepted, 1.0, 0.0)
    ended = after.t >= limits.end
    due = taken - every * jnp.floor(taken / every) == 0
    keep = accepted & (due | ended)
    place, kept = kept, kept + jnp.where(keep, 1.0, 0.0)
    alive = (after.status == codes.SUCCESS) & ~ended & (taken < until) & (kept < room)
    return Counters(taken, kept, place, keep, alive)


def judged(
    limits: Limits, pace: Pace, error: Array, status: Array, near_singular: Array
) -> tuple[Array, Pace]:
    """Whether a step with this error and status is accepted, and the pace after it.

    ``near_singular`` says that the constraints are nearly dependent at the end of the step, so that rounding
    is amplified there. Shorter steps would come closer to such a position, and amplify it even more.
    """
    solved = (status == codes.SUCCESS) & jnp.isfinite(error)
    passing = pace.held > 1
    usual = jnp.where(passing, pace.wish, pace.h)  # the size of steps before the singularity
    longer = jnp.maximum(pace.h / usual, 1.0)
    accepted = solved & (error <= jnp.where(passing, PASS_ERROR * longer**ORDER, 1.0))
    bounded = jnp.maximum(error, SMALLEST)
    smooth = (TARGET / bounded) ** INTEGRAL * (pace.error / TARGET) ** PROPORTIONAL
    grown = jnp.clip(smooth, LEAST, jnp.where(pace.held > 0, 1.0, MOST))
    shrunk = jnp.where(solved, jnp.maximum((TARGET / bounded) ** (1 / ORDER), LEAST), AFTER_FAILURE)
    # A step that was shortened near the end must not make the next one shorter.
    wish = jnp.where(
        accepted, jnp.maximum(pace.h * grown, jnp.where(grown >= 1, pace.wish, 0.0)), usual * shrunk
    )
    attempts = jnp.maximum(pace.held - 1, 0.0)
    singular = near_singular | (status == codes.SINGULAR) | passing | (pace.held < 0)
    again = ~accepted & singular & (attempts < PASS_ATTEMPTS)
    wish = jnp.where(again | (accepted & passing), usual, wish)
    t = jnp.where(accepted, reached(limits, pace), pace.t)
    least = jnp.maximum(limits.min_step, ROUNDING * jnp.abs(t))
    too_small = ~accepted & ~(wish >= least)
    # Without this limit, steps could shrink without a rejection until t + h equals t.
    wish = jnp.where(accepted, jnp.maximum(wish, least), wish)
    wish = jnp.where(accepted & (error < limits.quiet_error), jnp.minimum(wish, limits.quiet_step), wish)
    size = jnp.where(attempts == 0, PASS_SHORTER * usual, PASS_LONGER * jnp.maximum(pace.h, usual))
    failure = jnp.where(
        accepted, 0.0, jnp.where(solved, 0.0, jnp.where(status == 0, codes.NOT_FINITE, status))
    )
    stopped = codes.too_small(failure)
    return accepted, Pace(
        t=t,
        h=fitted(limits, t, jnp.where(again, size, wish)),
        wish=wish,
        error=jnp.where(accepted & ~passing, bounded, pace.error),
        held=jnp.where(accepted, jnp.where(near_singular, -1.0, 0.0), jnp.where(again, attempts + 2, 1.0)),
        rejected=pace.rejected + jnp.where(accepted, 0.0, 1.0),
        failure=failure,
        status=jnp.where(too_small, stopped, pace.status),
    )
