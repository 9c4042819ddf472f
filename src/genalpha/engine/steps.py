"""Step sizes: fixed, a given list, or what error control needs to know."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from genalpha.engine.controller import ROUNDING, Limits, Tolerances
from genalpha.numerics.data import Schedule, Times

_SPREAD = 1e-9  # a remainder below this fraction of h is spread over all steps
MOST_STEPS = 1e9
SPAN_TOLERANCE = 1e-9  # of the sum of listed steps, relative to the span
# The longest and the shortest step under error control, as parts of the span, unless others are asked for.
# A system at rest tells nothing about loads to come; the odd fraction does not fall in with those that are
# periodic. Below rounding of the end of the span, steps from t = 0 lead nowhere either: what they add to q is
# lost, and Newton's method meets nothing but rounding.
LONGEST, SHORTEST = 0.0618, float(ROUNDING)
LEAST_RTOL = 1e-11  # that means something without an absolute tolerance


def steps(t0: float, t1: float, h: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    """Times (N+1,) and step sizes (N,) that lead from t0 to t1.

    A number h gives equal steps and, where h does not divide the span, a shorter last one.

    >>> times, sizes = steps(0.0, 1.0, 0.4)
    >>> [round(float(x), 12) for x in sizes]
    [0.4, 0.4, 0.2]
    """
    if isinstance(h, str):
        raise TypeError(f"h must be a step size, an array of step sizes or None (error control), got {h!r}")
    if np.ndim(h) == 0:
        if isinstance(h, jax.core.Tracer):
            raise TypeError(
                "a scalar h decides the number of steps and must not be traced; "
                "pass an array of step sizes to differentiate with respect to h"
            )
        return _fixed(t0, t1, float(h))  # type: ignore[arg-type]
    return _listed(t0, t1, h)


def controlled(
    span: tuple[float, float],
    n: int,
    rtol: ArrayLike,
    atol: ArrayLike,
    max_step: float | None,
    min_step: float | None,
) -> tuple[Tolerances, Limits]:
    """What error control follows: tolerances for n velocities, and limits of the steps.

    >>> tolerances, limits = controlled((0.0, 2.0), 2, 1e-4, [1e-6, 1e-8], None, None)
    >>> tolerances.atol_v.tolist(), float(limits.max_step)
    ([1e-06, 1e-08], 0.1236)
    """
    t0, t1 = span
    relative, absolute = _tolerance("rtol", rtol, n), _tolerance("atol", atol, n)
    if (relative < LEAST_RTOL).any() and not (absolute > 0).all():
        raise ValueError(f"rtol = {relative.min():g} is below {LEAST_RTOL:g}, where rounding hides the error")
    if (relative + absolute == 0).any():
        raise ValueError("rtol and atol are both zero for some component: no step could be accepted")
    longest = limit("max_step", max_step, t1 - t0) if max_step is not None else LONGEST * (t1 - t0)
    shortest = max(limit("min_step", min_step, 0.0), SHORTEST * (t1 - t0))
    if max_step is None:  # and such that t gets on
        longest = max(longest, min(max(shortest, SHORTEST * max(abs(t0), abs(t1))), t1 - t0))
    if shortest > longest:
        raise ValueError(f"min_step = {shortest:g} is larger than max_step = {longest:g}")
    tolerances = Tolerances(relative[0], absolute[0], relative[1], absolute[1])
    return tolerances, Limits(np.float64(t1), np.float64(longest), np.float64(shortest))


def _tolerance(name: str, value: ArrayLike, n: int) -> np.ndarray:
    """A tolerance for q and one for v, (2, n)."""
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} must not be traced: it decides the steps")
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a number or an array of numbers: {error}") from error
    if array.shape not in ((), (n,), (2, n)):
        raise ValueError(
            f"{name} must be a number, an array of shape ({n},) for the components of q and v alike, or one "
            f"of shape (2, {n}), for q and for v; got shape {array.shape}"
        )
    if not (np.isfinite(array) & (array >= 0)).all():
        raise ValueError(f"{name} must not be negative, NaN or infinite, got {value!r}")
    return np.array(np.broadcast_to(array, (2, n)))


def limit(name: str, value: float | None, default: float) -> float:
    if value is None:
        return default
    if isinstance(value, jax.core.Tracer) or np.ndim(value) or isinstance(value, str):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not value > 0:
        raise ValueError(f"{name} = {value} must be positive")
    return float(min(value, default)) if default else float(value)


def resumed(schedule: Schedule, t: float, even: bool) -> Schedule:
    """The steps that lead from a time t within a schedule to its end.

    Equal steps stay equal, a little shorter (``even``). In a list the first step ends where the one that was
    interrupted would have, or the next one, if little is left of it: much shorter steps between long ones do
    harm.
    """
    times = np.asarray(schedule.times)
    rest = times[times > t]
    if even:
        count = max(1, math.ceil((times[-1] - t) / float(schedule.steps.h[0]) * (1 - _SPREAD)))
        sizes = np.full(count, (times[-1] - t) / count)
        ends = t + sizes[0] * np.arange(count + 1)
        ends[-1] = times[-1]
    else:
        if len(rest) > 1 and rest[0] - t < 0.5 * (rest[1] - rest[0]):
            rest = rest[1:]
        ends = np.append(t, rest)
        sizes = np.diff(ends)
    return Schedule(ends, Times(ends[:-1], sizes, _marked(schedule, ends)))


def _marked(schedule: Schedule, ends: np.ndarray) -> np.ndarray | None:
    """The steps of another grid that end nearest to where velocities were to be projected."""
    marks = schedule.steps.project
    if marks is None:
        return None
    wanted = np.asarray(schedule.times)[1:][np.asarray(marks)]
    nearest = [int(np.argmin(np.abs(ends[1:] - t))) for t in wanted[wanted > ends[0]]]
    return np.isin(np.arange(len(ends) - 1), nearest)


def cut(schedule: Schedule, done: int, t: float) -> Schedule:
    """The first ``done`` steps of a schedule, of which the last one ends at t."""
    times = np.append(np.asarray(schedule.times)[:done], t)
    marks = schedule.steps.project
    marks = None if marks is None else np.asarray(marks)[:done]
    sizes = np.append(np.asarray(schedule.steps.h)[: done - 1], times[-1] - times[-2])
    return Schedule(times, Times(times[:-1], sizes, marks))


def suited(method: Any, sizes: Any) -> Any:
    """The method without its adjusting formulas, which change nothing, where all steps are equal."""
    if not method.adjust or isinstance(sizes, jax.core.Tracer) or np.ptp(sizes) != 0:
        return method
    return dataclasses.replace(method, adjust=False)


def _fixed(t0: float, t1: float, h: float) -> tuple[np.ndarray, np.ndarray]:
    span = t1 - t0
    if not (math.isfinite(h) and h > 0):
        raise ValueError(f"h = {h} must be a positive, finite step size")
    if h > span * (1 + _SPREAD):
        raise ValueError(f"h = {h:g} is larger than the time span {span:g}")
    if span / h > MOST_STEPS:
        raise ValueError(
            f"h = {h:g} asks for {span / h:.3g} steps, of which at most {MOST_STEPS:g} can be kept"
        )
    count = max(1, round(span / h))
    if abs(count * h - span) <= _SPREAD * h:
        exact = abs(count * h - span) <= 8 * np.finfo(float).eps * max(abs(t0), abs(t1))
        # Where only rounding separates them, times do not depend on t1: runs can be continued on one grid.
        size = h if exact else span / count
        times = t0 + size * np.arange(count + 1)
        times[-1] = t1
        return times, np.full(count, size)
    whole = math.floor(span / h)
    times = np.append(t0 + h * np.arange(whole + 1), t1)
    return times, np.append(np.full(whole, h), t1 - times[-2])


def _listed(t0: float, t1: float, h: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    if np.ndim(h) != 1 or np.size(h) == 0:
        raise ValueError(f"h must be a number or a one-dimensional array of steps, got shape {np.shape(h)}")
    if isinstance(h, jax.core.Tracer):
        traced = jnp.asarray(h, float)
        return t0 + jnp.concatenate([jnp.zeros(1), jnp.cumsum(traced)]), traced
    sizes = np.asarray(h, dtype=float)
    wrong = np.flatnonzero(~(np.isfinite(sizes) & (sizes > 0)))
    if wrong.size:
        raise ValueError(f"step sizes must be positive and finite; h[{wrong[0]}] = {sizes[wrong[0]]}")
    if abs(math.fsum(sizes) - (t1 - t0)) > SPAN_TOLERANCE * (t1 - t0):
        raise ValueError(
            f"the step sizes sum to {math.fsum(sizes):.12g}, but the time span is {t1 - t0:.12g} long"
        )
    times = t0 + np.append(0.0, np.cumsum(sizes))
    times[-1] = t1
    return times, sizes
