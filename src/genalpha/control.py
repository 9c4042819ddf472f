"""Step sizes: fixed, or a given list."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

_SPREAD = 1e-9  # a remainder below this fraction of h is spread over all steps
MOST_STEPS = 1e9
SPAN_TOLERANCE = 1e-9  # of the sum of listed steps, relative to the span


def steps(t0: float, t1: float, h: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    """Times (N+1,) and step sizes (N,) that lead from t0 to t1.

    A number h gives equal steps and, where h does not divide the span, a shorter last one.

    >>> times, sizes = steps(0.0, 1.0, 0.4)
    >>> [round(float(x), 12) for x in sizes]
    [0.4, 0.4, 0.2]
    """
    if h is None or isinstance(h, str):
        raise TypeError(
            f"h must be a step size or an array of step sizes, got {h!r}; there is no error control yet"
        )
    if np.ndim(h) == 0:
        if isinstance(h, jax.core.Tracer):
            raise TypeError(
                "a scalar h decides the number of steps and must not be traced; "
                "pass an array of step sizes to differentiate with respect to h"
            )
        return _fixed(t0, t1, float(h))  # type: ignore[arg-type]
    return _listed(t0, t1, h)


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
        times = t0 + span * (np.arange(count + 1) / count)
        times[-1] = t1
        return times, np.full(count, span / count)
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
