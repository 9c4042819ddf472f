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
from genalpha.mechanics.spaces import Space
from genalpha.numerics.data import State

# Intervals up to this length, relative to the largest time, have no length but for rounding.
_NOTHING = 16 * float(np.finfo(float).eps)
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
    return compiled(space, tuple(x.shape[1:] for x in after))((before, after, t), lanes)


def smooth(space: Space, nodes: Smooth, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """q and v at times t (K,) by quintics; ``nodes`` are the ends of all intervals.

    Two nodes at one time, or so close to it that only rounding is between them, divide the motion into parts.
    There the motion is that of the part before.
    """
    after = np.maximum(steps_of(nodes.t, t), 1)
    nothing = np.diff(nodes.t, prepend=-np.inf) <= _NOTHING * max(abs(nodes.t[0]), abs(nodes.t[-1]))
    after -= nothing[after] & (after > 1)
    pick = lambda index: Smooth(*(x[index] for x in nodes))
    shapes = tuple(x.shape[1:] for x in nodes)
    return compiled(space, shapes, Smooth)((pick(after - 1), pick(after), t))


@functools.lru_cache(maxsize=64)
def compiled(space: Space, shapes: tuple[tuple[int, ...], ...], kind: Any = StepEnd) -> Rowwise:
    """The interpolant between ends of steps of this kind, with these shapes."""
    name = _FORMULAS[kind].__name__
    example = kind(*(np.full(shape, 0.5) for shape in shapes))
    later = example._replace(t=np.array(1.5))
    function = functools.partial(_FORMULAS[kind], space)
    return Rowwise(name, function, (example, later, np.array(1.0)), often=True)
