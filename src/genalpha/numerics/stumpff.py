"""Stumpff's functions, which the exponential maps of rotations consist of. All derivatives are exact."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
from jax import Array

# Below this x the series is as exact as sine and cosine, and needs no square root. A quaternion has half the
# angle, √x, so this covers rotations by up to π.
_FAR = 2.5


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def stumpff(k: int, x: Array) -> Array:
    """c_k(x) = Σ_i (−x)^i / (2i + k)! for x ≥ 0.

    c_0 = cos √x, c_1 = sin √x / √x, c_2 = (1 − cos √x)/x, c_3 = (√x − sin √x)/√x³. They are entire functions.
    From x c_{k+2} = 1/k! − c_k follows c_k' = (k c_{k+2} − c_{k+1})/2, so no derivative divides by zero.

    >>> import jax
    >>> [float(stumpff(k, 0.0)) for k in range(3)]
    [1.0, 1.0, 0.5]
    >>> round(float(jax.grad(lambda x: stumpff(1, x))(0.0)), 12)  # sin √x / √x = 1 − x/6 + ...
    -0.166666666667
    """
    if k < 2:
        root = jnp.sqrt(x + jnp.finfo(float).tiny)
        return jnp.where(x < _FAR, _series(k, x, 12), jnp.sin(root) / root if k else jnp.cos(root))
    if k == 2:
        return 0.5 * stumpff(1, 0.25 * x) ** 2  # no cancellation
    far = (1 / math.factorial(k - 2) - stumpff(k - 2, x)) / jnp.maximum(x, 1.0)
    return jnp.where(x < 1, _series(k, x, 11), far)


def _series(k: int, x: Array, terms: int) -> Array:
    """The first terms, even and odd ones separately: two short chains of operations, not a long one."""
    even, odd = ([(-1) ** i / math.factorial(2 * i + k) for i in range(first, terms, 2)] for first in (0, 1))
    square = x * x
    nested = lambda coefficients: functools.reduce(
        lambda total, c: c + square * total, reversed(coefficients)
    )
    return nested(even) + x * nested(odd)


@stumpff.defjvp
def _derivative(k: int, primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (x,), (x_dot,) = primals, tangents
    slope = -0.5 * stumpff(1, x) if k == 0 else 0.5 * (k * stumpff(k + 2, x) - stumpff(k + 1, x))
    return stumpff(k, x), slope * x_dot
