"""Derivatives of functions of q with respect to velocities: along a motion, as forces, and as matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from genalpha.mechanics.spaces import Space
from genalpha.numerics.derivatives import by_reader, jacobian, pulled_back, value_and_rate
from genalpha.numerics.tracing import zeros


def rate_along(
    space: Space, function: Callable[..., Array], t: Any, q: Array, v: Array, *others: tuple[Array, Array]
) -> tuple[Array, Array]:
    """``function(t, q, ...)`` and its time derivative if q moves with the velocity v.

    ``others`` are pairs of a further argument of the function and its rate.
    """
    t = jnp.asarray(t, float)
    more, rates = [x for x, _ in others], [rate for _, rate in others]
    if _turns(space):
        moved = lambda t, d, *more: function(t, space.nudged(q, d), *more)
        return value_and_rate(moved, (t, zeros(*jnp.shape(v)), *more), (jnp.ones_like(t), v, *rates))
    return value_and_rate(function, (t, q, *more), (jnp.ones_like(t), space.rate(q, v), *rates))


def force_of(space: Space, function: Callable[[Array], Array], q: Array, weights: Array) -> Array:
    """The gradient (n,) of weights · function with respect to the velocity."""
    if _turns(space):
        return pulled_back(lambda d: function(space.nudged(q, d)), zeros(space.dim or 0), weights)
    return space.pull(q, pulled_back(function, q, weights))


def matrix_of(space: Space, function: Callable[[Array], Array], q: Array) -> Array:
    """The matrix (m, n) of derivatives of a function (m,) with respect to the velocity."""
    if _turns(space):
        return jacobian(lambda d: function(space.nudged(q, d)), zeros(space.dim or 0))
    return jax.vmap(lambda row: space.pull(q, row))(jacobian(function, q))


def _turns(space: Space) -> bool:
    """Whether to differentiate by small turns: the reader has short derivatives for these."""
    return by_reader() and bool(space.rotations)
