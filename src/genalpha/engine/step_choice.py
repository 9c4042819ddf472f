"""The steps of a run from the arguments of the user: step sizes, or tolerances and limits."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from genalpha.engine import extrapolation
from genalpha.engine.controller import ROUNDING, SMALLEST, Limits, Tolerances
from genalpha.engine.extrapolation import Accurate
from genalpha.engine.run_data import Grid, RunState
from genalpha.engine.steps import MOST_STEPS, SPREAD, Controlled, Given, Steps
from genalpha.errors import warn
from genalpha.numerics.tracing import is_traced

DEFAULT_RTOL = 1e-4
ATOL_PER_RTOL = 0.01  # the default of atol, as a multiple of rtol
# The local error of a step is of size h³, and the error at the end of size h². So a local tolerance of
# STRICTER · rtol^(3/2) makes the error at the end proportional to rtol. The factor is such that the median of
# error over tolerance is near 1 (docs/theory.md). LEAST_LOCAL is the smallest local tolerance above rounding.
STRICTER, LEAST_LOCAL = 5.0, 1e-13
MOST_GIVEN = 1e9
SPAN_TOLERANCE = 1e-9  # of the sum of listed steps, relative to the span
# Defaults of the longest and the shortest step under error control, as fractions of the span. The longest
# step is limited because errors reveal only loads that the steps meet. While the errors are negligible, as
# for a system at rest, steps are limited further: a load that lasts 1 % of the span is seen. The odd
# fractions avoid steps in phase with a periodic load. Steps shorter than the rounding of t at the end of the
# span are useless even near t = 0: q does not change, and Newton's residuals consist of rounding.
LONGEST, QUIET, SHORTEST = 0.0618, 0.00618, float(ROUNDING)
LEAST_ACCURACY = 1e-14  # the smallest accuracy that may be asked for
MOST_BREAKPOINTS = 10_000
AT_REST = 1e-14  # relative errors below this are rounding
LEAST_RTOL = 1e-11  # the smallest useful value if atol is 0


class StepOptions(NamedTuple):
    """The arguments of ``solve`` about steps; None means "not given"."""

    h: Any = None
    rtol: Any = None
    atol: Any = None
    first_step: Any = None
    max_step: Any = None
    min_step: Any = None
    max_steps: Any = None
    project_velocity_at: Any = ()
    accuracy: Any = None
    extrapolate: Any = None
    breakpoints: Any = ()
    force_accuracy: Any = None


def accurate(span: tuple[float, float], n: int, asked: StepOptions) -> Accurate | None:
    """What ``accuracy``, ``extrapolate`` and ``breakpoints`` ask for; None if neither of the first two."""
    if asked.force_accuracy is not None and asked.accuracy is None:
        raise ValueError("force_accuracy needs accuracy, that of q and v: pass both")
    if asked.accuracy is None and asked.extrapolate is None:
        if np.size(asked.breakpoints) and asked.h is not None:
            raise ValueError("breakpoints are not possible with h alone: list steps that end there as h")
        return None
    what = "extrapolate" if asked.accuracy is None else "accuracy"
    allowed = {what, "max_steps", "breakpoints", "force_accuracy", *(["h"] if asked.accuracy is None else [])}
    names = [name for name, value in asked._asdict().items() if value is not None and np.size(value)]
    other = ", ".join(name for name in names if name not in allowed)
    if other:
        raise ValueError(f"pass either {what} or {other}, not both: each of them is about the steps")
    whole_number("max_steps", asked.max_steps)
    most = MOST_STEPS if asked.max_steps is None else int(asked.max_steps)
    ends = (span[0], *breakpoints(asked.breakpoints, span), span[1])
    if asked.accuracy is None:
        columns, h = asked.extrapolate, asked.h
        if isinstance(columns, bool) or not isinstance(columns, int | np.integer) or not 2 <= columns <= 8:
            raise ValueError(f"extrapolate must be a whole number of columns from 2 to 8, got {columns!r}")
        if h is None or np.ndim(h) or isinstance(h, str | jax.core.Tracer):
            raise ValueError("extrapolate needs h, a number: the columns divide steps of this size")
        count = len(np.asarray(steps_of_size(*span, float(h))[1]))
        return Accurate(None, count, extrapolation.divisions(int(columns)), ends, most)
    accuracy, forces = (_least(name, getattr(asked, name), n) for name in ("accuracy", "force_accuracy"))
    assert accuracy is not None
    columns = extrapolation.columns_for(float(accuracy.min()))
    wanted = None if forces is None else float(forces.min())
    return Accurate(accuracy, None, extrapolation.divisions(columns), ends, most, wanted)


def _least(name: str, value: Any, n: int) -> np.ndarray | None:
    """An accuracy (2, n) that is above rounding; None if it is not given."""
    if value is None:
        return None
    if name == "force_accuracy" and np.ndim(value):
        raise ValueError(f"force_accuracy must be a number, got {value!r}")
    found = _tolerance(name, value, n)
    if not found.min() >= LEAST_ACCURACY:
        raise ValueError(
            f"{name} must be at least {LEAST_ACCURACY:g} in all components, because rounding hides smaller "
            f"errors; got {value!r}"
        )
    return found


def breakpoints(times: Any, span: tuple[float, float]) -> list[float]:
    """The argument ``breakpoints``, checked."""
    if isinstance(times, tuple) and not times:  # the usual case
        return []
    try:
        found = np.asarray(times, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"breakpoints must be increasing times: {error}") from error
    if found.ndim != 1 or not np.isfinite(found).all() or (np.diff(found) <= 0).any():
        raise ValueError(f"breakpoints must be increasing times without NaN, got {times!r}")
    if found.size and not (span[0] < found[0] and found[-1] < span[1]):
        raise ValueError(f"breakpoints must lie inside of the time span {span}, got {times!r}")
    if found.size > MOST_BREAKPOINTS:
        raise ValueError(f"at most {MOST_BREAKPOINTS} breakpoints are possible, got {found.size}")
    return found.tolist()


def choose(
    span: tuple[float, float], n: int, asked: StepOptions, state: RunState | None = None
) -> tuple[Steps, Grid | None]:
    """The steps that the user wants, and their grid if all have one size.

    ``n`` is the number of velocities. A run that continues from a state stays on its grid.
    """
    if asked.accuracy is not None:  # the steps of the columns are chosen later
        return Given.of(np.array(span), np.diff(span)), None
    if asked.h is not None:
        own = {"h", "project_velocity_at", "extrapolate", "breakpoints"}
        own |= {"max_steps"} if asked.extrapolate is not None else set()
        given = [name for name, value in asked._asdict().items() if value is not None and name not in own]
        if given:
            names = ", ".join(given)
            raise ValueError(
                f"pass either h or {names}, not both: h sets the steps, error control chooses them"
            )
        times, sizes, grid = _on_grid(span, asked.h, state)
        marks = projections(asked.project_velocity_at, times)
        return Given.of(times, sizes, marks, even=grid is not None and grid.rest is None), grid
    if np.size(asked.project_velocity_at):
        raise ValueError(
            "project_velocity_at needs h, because error control chooses the ends of steps during the run: "
            "pass h"
        )
    whole_number("max_steps", asked.max_steps)
    longest, shortest, quiet = asked.max_step, asked.min_step, None
    if state is not None and state.limits is not None:  # the limits of the whole span
        quiet = None if longest else state.limits[2]
        longest, shortest = longest or state.limits[0], shortest or state.limits[1]
        longest = min(longest, span[1] - span[0])
        shortest = min(shortest, longest)
    elif asked.min_step is not None and limit("min_step", asked.min_step, 0.0) >= span[1] - span[0]:
        raise ValueError(
            f"min_step = {asked.min_step:g} is as long as the time span {span[1] - span[0]:g}, so the run "
            "would be one step with any error: lower min_step"
        )
    rtol = DEFAULT_RTOL if asked.rtol is None else asked.rtol
    control = controlled(span, n, rtol, asked.atol, longest, shortest, quiet)
    first = asked.first_step
    wish = np.nan if first is None else limit("first_step", first, span[1] - span[0])
    return Controlled(np.float64(wish), *control, asked.max_steps), None


def _on_grid(span: tuple[float, float], h: ArrayLike, state: RunState | None) -> tuple[Any, Any, Grid | None]:
    """Times and sizes of steps. If a state is on a grid of this step size, the next ones on that grid."""
    if not isinstance(h, float) and (np.ndim(h) or isinstance(h, str | jax.core.Tracer)):
        return *steps_of_size(*span, h), None
    size = float(h)  # type: ignore[arg-type]
    if state is not None and state.grid is not None and state.grid.h == size:
        grid, done = state.grid, state.grid.steps
        rest = grid.rest if grid.rest is not None and grid.rest[0][-1] == span[1] else None
        times, sizes = map(np.asarray, steps_of_size(grid.t0, span[1], size) if rest is None else rest)
        if done < len(sizes) and abs(times[done] - state.t) <= 1e-9 * size:
            return times[done:], sizes[done:], grid
    if state is not None and 0 < span[1] - span[0] < size:  # little is left after an event
        size = span[1] - span[0]
    return *steps_of_size(*span, size), Grid(span[0], float(h), 0)  # type: ignore[arg-type]


def steps_of_size(t0: float, t1: float, h: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    """Times (N+1,) and step sizes (N,) that lead from t0 to t1.

    A number h gives equal steps and, if h does not divide the span, a shorter last one.

    >>> times, sizes = steps_of_size(0.0, 1.0, 0.4)
    >>> [round(float(x), 12) for x in sizes]
    [0.4, 0.4, 0.2]
    """
    if isinstance(h, str):
        raise TypeError(f"h must be a step size, an array of step sizes or None (error control), got {h!r}")
    if np.ndim(h) == 0:
        if isinstance(h, jax.core.Tracer):
            raise TypeError(
                "a scalar h must not be traced, because it sets the number of steps: pass an array of step "
                "sizes to differentiate with respect to h"
            )
        return _fixed(t0, t1, float(h))  # type: ignore[arg-type]
    return _listed(t0, t1, h)


def controlled(
    span: tuple[float, float],
    n: int,
    rtol: ArrayLike,
    atol: ArrayLike | None,
    max_step: float | None,
    min_step: float | None,
    quiet: float | None = None,
) -> tuple[Tolerances, Limits]:
    """The local tolerances for n velocities and the limits of the steps under error control.

    >>> tolerances, limits = controlled((0.0, 2.0), 2, 1e-4, [1e-6, 1e-8], None, None)
    >>> tolerances.atol_v.tolist(), float(limits.max_step)
    ([5e-08, 5e-10], 0.1236)
    """
    t0, t1 = span
    relative = _tolerance("rtol", rtol, n)
    absolute = ATOL_PER_RTOL * relative if atol is None else _tolerance("atol", atol, n)
    if relative.min() < LEAST_RTOL and not absolute.min() > 0:
        raise ValueError(
            f"rtol = {relative.min():g} must be at least {LEAST_RTOL:g} if atol is 0, because rounding hides "
            "smaller errors: raise rtol, or pass a positive atol"
        )
    longest = limit("max_step", max_step, t1 - t0) if max_step is not None else LONGEST * (t1 - t0)
    shortest = max(limit("min_step", min_step, 0.0), SHORTEST * (t1 - t0))
    least = min(max(shortest, SHORTEST * max(abs(t0), abs(t1))), t1 - t0)  # long enough to change t
    if max_step is None:
        longest = max(longest, least)
    if shortest > longest:
        raise ValueError(
            f"min_step = {shortest:g} is larger than max_step = {longest:g}: lower min_step or raise max_step"
        )
    factor = _stricter(relative, absolute)
    relative, absolute = factor * relative, factor * absolute
    tolerances = Tolerances(relative[0], absolute[0], relative[1], absolute[1])
    if quiet is None:
        quiet = longest if max_step is not None else max(QUIET * (t1 - t0), least)
    smallest = min(x[x > 0].min(initial=1.0) for x in (relative, absolute))
    rest = min(SMALLEST, AT_REST / smallest)
    return tolerances, Limits(*map(np.float64, (t1, longest, shortest, quiet, rest)))


def _stricter(relative: np.ndarray, absolute: np.ndarray) -> np.ndarray:
    """The factors (2, n) from tolerances of the error at the end to those of the error of a step.

    Where rtol is zero, the smallest positive one of the others counts. If there is none, atol takes its
    place.
    """
    given = relative[relative > 0] if relative.any() else absolute[absolute > 0]
    level = np.where(relative > 0, relative, given.min(initial=1.0))
    return np.clip(STRICTER * np.sqrt(level), np.minimum(LEAST_LOCAL / level, 1.0), 1.0)


def _tolerance(name: str, value: ArrayLike, n: int) -> np.ndarray:
    """A tolerance for q and one for v, (2, n)."""
    if isinstance(value, float) and 0 <= value < math.inf:  # the usual case
        return np.full((2, n), value)
    if isinstance(value, jax.core.Tracer):
        raise TypeError(f"{name} must not be traced, because it determines the steps: pass known numbers")
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
    if isinstance(value, bool) or not value > 0:
        raise ValueError(f"{name} must be a positive number, got {value!r}")
    return float(min(value, default)) if default else float(value)


def _fixed(t0: float, t1: float, h: float) -> tuple[np.ndarray, np.ndarray]:
    span = t1 - t0
    if not (math.isfinite(h) and h > 0):
        raise ValueError(f"h = {h} must be a positive, finite step size")
    if h > span * (1 + SPREAD):
        raise ValueError(f"h = {h:g} is larger than the time span {span:g}: choose a smaller h")
    if h >= span * (1 - SPREAD):
        warn(f"h = {h:g} is as long as the time span: the run is one step. Choose a smaller h for accuracy")
    if span / h > MOST_GIVEN:
        raise ValueError(
            f"h = {h:g} asks for {span / h:.3g} steps, but at most {MOST_GIVEN:g} are possible: choose a "
            "larger h"
        )
    count = max(1, round(span / h))
    if abs(count * h - span) <= SPREAD * h:
        exact = abs(count * h - span) <= 8 * np.finfo(float).eps * max(abs(t0), abs(t1))
        # If they differ only by rounding, times do not depend on t1, and runs continue on the same grid.
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
        raise ValueError(f"h[{wrong[0]}] = {sizes[wrong[0]]}: all step sizes must be positive and finite")
    if abs(math.fsum(sizes) - (t1 - t0)) > SPAN_TOLERANCE * (t1 - t0):
        raise ValueError(
            f"the step sizes h sum to {math.fsum(sizes):.12g}, but the time span is {t1 - t0:.12g} long: "
            "change one of them"
        )
    times = t0 + np.append(0.0, np.cumsum(sizes))
    times[-1] = t1
    return times, sizes


def projections(at: Any, times: Any) -> Any:
    """Which steps (N,) end at the times ``at``; None if ``at`` is empty."""
    if isinstance(at, tuple | list) and not at:
        return None
    if is_traced(times, at):
        raise TypeError("neither project_velocity_at nor h may be traced: pass known numbers")
    try:
        if isinstance(at, str | bool):
            raise TypeError
        at = np.atleast_1d(np.asarray(at, dtype=float))
        if at.ndim > 1:
            raise TypeError
    except (TypeError, ValueError) as error:
        raise TypeError(f"project_velocity_at must be a time or a list of times, got {at!r}") from error
    if at.size == 0:
        return None
    ends = np.asarray(times)[1:]
    nearest = np.abs(ends - at[:, None]).argmin(axis=1)
    for t, i in zip(at, nearest, strict=True):
        if not abs(ends[i] - t) <= 1e-6 * (ends[-1] - times[0]) / len(ends):
            raise ValueError(
                f"project_velocity_at: no step ends at t = {t:g}, the nearest at {ends[i]:.9g}. Pass times "
                "at which steps end"
            )
    return np.isin(np.arange(len(ends)), nearest)


def whole_number(name: str, value: Any) -> None:
    """Raise unless the value is a whole number above zero or None."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if value is not None and not (whole and value > 0):
        raise ValueError(f"{name} must be a whole number above zero, got {value!r}")


def fitting(span: tuple[Any, Any], times: Any, sizes: Any) -> Any:
    """Whether steps with these starts and sizes (N,) are positive, and end where the span does."""
    off = abs(times[-1] + sizes[-1] - span[1])
    return (sizes > 0).all() & (off <= SPAN_TOLERANCE * (span[1] - span[0]))
