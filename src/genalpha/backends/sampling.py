"""The motion between the steps of a run, from the ends of the steps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha.backends.rowwise import Rowwise
from genalpha.engine import interpolate
from genalpha.engine.interpolate import Smooth, StepEnd, steps_of
from genalpha.mechanics.spaces import Product, Space
from genalpha.numerics.data import State

# Intervals up to this length, relative to the largest time, have no length but for rounding.
_NOTHING = 16 * float(np.finfo(float).eps)
# Spaces with more factors are interpolated factor by factor.
FACTORS = 8
_FORMULAS: dict[Any, Callable[..., Any]] = {StepEnd: interpolate.between, Smooth: interpolate.smooth}


def at(space: Space, nodes: StepEnd, t: Any) -> State:
    """The motion at times t (K,), from the ends of all steps (N+1, ...). Their times may repeat."""
    if isinstance(nodes.q, np.ndarray) and isinstance(t, np.ndarray):
        return sampled(space, nodes, np.maximum(steps_of(nodes.t, t), 1), t)
    nodes = StepEnd(*map(jnp.asarray, nodes))
    return interpolate.within(space, nodes, jnp.maximum(steps_of(nodes.t, t), 1), t)


def sampled(space: Space, nodes: StepEnd, steps: np.ndarray, t: np.ndarray) -> State:
    """The motion at times t (K,) within the given steps (K,); step 0 is the start."""
    pick = lambda index: StepEnd(*(x[index] for x in nodes))
    return between(space, pick(np.maximum(steps - 1, 0)), pick(steps), t)


def between(space: Space, before: StepEnd, after: StepEnd, t: np.ndarray, lanes: int = 1) -> State:
    """The motion at times t (K,), each between the two ends of its step (K, ...)."""
    if isinstance(space, Product) and len(space.factors) > FACTORS:
        q, v, a = _by_factor(space, before, after, t, lambda f, b, a, t: between(f, b, a, t, lanes)[1:4])
        h = after.t - before.t
        share = ((t - before.t) / np.where(h == 0, 1.0, h))[:, None]
        forces = (x + share * (y - x) for x, y in ((before.lam, after.lam), (before.psi, after.psi)))
        return State(t, q, v, a, *forces)  # type: ignore[arg-type]
    return compiled(space, tuple(x.shape[1:] for x in after))((before, after, t), lanes)


def _by_factor(
    space: Product, before: Any, after: Any, t: np.ndarray, formula: Callable[..., Any]
) -> list[Any]:
    """A formula for the motion between ``before`` and ``after`` (K, ...), applied to each factor of a space.

    Factors are rows of their own: ``formula(space, before, after, t)`` returns arrays (K · factors, ...).
    """
    parts, at = [], np.zeros(2, int)
    for factor, number, size, dim in space.runs:
        widths = {"q": (0, size), "v": (1, dim), "a": (1, dim)}

        def rows(name: str, x: np.ndarray, at: Any = at, number: int = number, widths: Any = widths) -> Any:
            if name not in widths:
                return np.repeat(x, number) if name == "t" else np.zeros((1, 0))
            which, width = widths[name]
            return x[:, at[which] : at[which] + number * width].reshape(len(x) * number, width)

        ends = [type(end)(*map(rows, end._fields, end)) for end in (before, after)]
        parts.append([x.reshape(len(t), -1) for x in formula(factor, *ends, np.repeat(t, number))])
        at = at + number * np.array([size, dim])
    return [np.concatenate(each, axis=1) for each in zip(*parts, strict=True)]


def smooth(space: Space, nodes: Smooth, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """q and v at times t (K,) by quintics; ``nodes`` are the ends of all intervals.

    Two nodes at one time, or so close to it that only rounding is between them, divide the motion into parts.
    There the motion is that of the part before.
    """
    after = np.maximum(steps_of(nodes.t, t), 1)
    nothing = np.diff(nodes.t, prepend=-np.inf) <= _NOTHING * max(abs(nodes.t[0]), abs(nodes.t[-1]))
    after -= nothing[after] & (after > 1)
    ends = [Smooth(*(x[index] for x in nodes)) for index in (after - 1, after)]
    return _smooth(space, ends[0], ends[1], t)


def _smooth(space: Space, before: Smooth, after: Smooth, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(space, Product) and len(space.factors) > FACTORS:
        q, v = _by_factor(space, before, after, t, _smooth)
        return q, v
    shapes = tuple(x.shape[1:] for x in after)
    return compiled(space, shapes, Smooth)((before, after, t))


@functools.lru_cache(maxsize=64)
def compiled(space: Space, shapes: tuple[tuple[int, ...], ...], kind: Any = StepEnd) -> Rowwise:
    """The interpolant between ends of steps of this kind, with these shapes."""
    name = _FORMULAS[kind].__name__
    example = kind(*(np.full(shape, 0.5) for shape in shapes))
    later = example._replace(t=np.array(1.5))
    function = functools.partial(_FORMULAS[kind], space)
    return Rowwise(name, function, (example, later, np.array(1.0)), often=True)
