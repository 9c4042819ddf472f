"""Derivatives of the user's functions: by JAX, or later by the reader of `compiler`, which is faster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import Primitive

_left_to_reader = ContextVar("left_to_reader", default=False)

# Kinds of calls in a jaxpr that the reader recognizes by their names. The second output is this derivative of
# the first. The last inputs are the point, ``count`` arrays, and the factors of the derivative, if any.
RATE, PULL, JACOBIAN = "rate", "pull", "jacobian"
PREFIX = "genalpha"

# Stands for a derivative inside such a call. JAX can neither differentiate nor batch it, and raises an error.
STAND_IN = Primitive("genalpha_derivative")
STAND_IN.def_abstract_eval(lambda value, shape: value.update(shape=shape))


@contextlib.contextmanager
def left_to_reader(choice: bool) -> Iterator[None]:
    """Whether derivatives that are traced in this context are left to the reader."""
    token = _left_to_reader.set(choice)
    try:
        yield
    finally:
        _left_to_reader.reset(token)


def by_reader() -> bool:
    """Whether derivatives that are traced now are left to the reader."""
    return _left_to_reader.get()


def value_and_rate(
    function: Callable[..., Array], at: tuple[Array, ...], direction: tuple[Array, ...]
) -> tuple[Array, Array]:
    """``function(*at)`` and its derivative along ``direction``, which has the same shapes as ``at``."""
    if not _left_to_reader.get():
        return jax.jvp(function, at, direction)
    return _left(RATE, function, at, direction, jnp.shape)


def pulled_back(function: Callable[[Array], Array], at: Array, weights: Array) -> Array:
    """The gradient of weights · function at a point; it has the same shape as ``at``."""
    if not _left_to_reader.get():
        return jax.vjp(function, at)[1](weights)[0]
    return _left(PULL, function, (at,), (weights,), lambda value: at.shape)[1]


def jacobian(function: Callable[[Array], Array], at: Array) -> Array:
    """The matrix (m, n) of derivatives of a function (m,) at a point (n,), by reverse differentiation."""
    if not _left_to_reader.get():
        return jax.jacrev(function)(at)
    return _left(JACOBIAN, function, (at,), (), lambda value: (*value.shape, *at.shape))[1]


def for_each(function: Callable[..., Array], *arguments: Array) -> Array:
    """``function`` applied to every row of its arguments. It may contain derivatives of this module."""
    if not _left_to_reader.get():
        return jax.vmap(function)(*arguments)
    return jnp.stack([function(*rows) for rows in zip(*arguments, strict=True)])


def _left(
    kind: str,
    function: Callable[..., Array],
    at: tuple[Array, ...],
    factors: tuple[Array, ...],
    shape: Callable[[Any], tuple[int, ...]],
) -> tuple[Array, Array]:
    def both(at: tuple[Array, ...], factors: tuple[Array, ...]) -> tuple[Array, Array]:
        value = function(*at)
        return value, STAND_IN.bind(value, shape=shape(value))

    both.__name__ = f"{PREFIX}_{kind}_{len(at)}"
    return jax.jit(both)(at, factors)


def blanked(bad: Array, x: Array) -> Array:
    """x (...) with NaN where ``bad`` (...).

    Unlike those of ``jnp.where``, derivatives of such values are infinite or NaN, not zero. Values that
    nothing depends on do not affect derivatives.

    >>> bad = jnp.array([False, True])
    >>> [float(jax.grad(lambda k: blanked(bad, k * jnp.ones(2))[i])(1.0)) for i in (0, 1)]
    [1.0, inf]
    """
    # Repeated factors make every derivative infinite but zero. A factor of infinity would make NaN of zero.
    factor = jnp.where(bad, 1e300, 1.0)
    large = x * factor * factor * factor
    return jnp.where(bad, jnp.nan, lax.stop_gradient(x)) + (large - lax.stop_gradient(large))
