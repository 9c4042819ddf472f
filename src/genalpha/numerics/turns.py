"""Formulas of unit quaternions (w, x, y, z). The reader of `compiler` knows some of them by name.

It has shorter derivatives for these (`compiler/turned.py`) than those of their operations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from genalpha.numerics.stumpff import stumpff

_SERIES = 10  # terms of the arc tangent's series, which is used for |tan|² < 1/50


class Known:
    """A formula of vectors and matrices as one operation of JAX.

    ``shapes`` are those of its inputs and of its output. Where they have further dimensions in front, it is
    applied to each row, as `vmap` does.
    """

    def __init__(self, plain: Callable[..., Array], *shapes: tuple[int, ...]) -> None:
        self.plain, self.shapes = plain, shapes
        self.operation = operation = Primitive(f"genalpha_{plain.__name__.strip('_')}")
        operation.def_impl(self.rows)
        operation.def_abstract_eval(self._shaped)
        mlir.register_lowering(operation, mlir.lower_fun(self.rows, multiple_results=False))
        batching.primitive_batchers[operation] = self._batched
        ad.primitive_jvps[operation] = self._pushed
        ad.primitive_transposes[operation] = self._transposed

    def __call__(self, *inputs: Any) -> Array:
        arrays = [jnp.asarray(x, float) for x in inputs]
        given, wanted = [x.shape for x in arrays], list(self.shapes[:-1])
        if given != wanted:
            name = self.plain.__name__.strip("_")
            raise ValueError(
                f"{name} takes arrays of shapes {wanted}, got {given}; use jax.vmap for many rotations"
            )
        return self.operation.bind(*arrays)

    def rows(self, *inputs: Array) -> Array:
        function = self.plain
        for _ in range(inputs[0].ndim - len(self.shapes[0])):
            function = jax.vmap(function)
        return function(*inputs)

    def _shaped(self, *inputs: Any) -> Any:
        rows = inputs[0].shape[: inputs[0].ndim - len(self.shapes[0])]
        return inputs[0].update(shape=(*rows, *self.shapes[-1]))

    def _batched(self, inputs: Any, axes: Any) -> Any:
        count = next(x.shape[i] for x, i in zip(inputs, axes, strict=True) if i is not None)
        front = lambda x, i: jnp.broadcast_to(x, (count, *x.shape)) if i is None else jnp.moveaxis(x, i, 0)
        return self.operation.bind(*(front(x, i) for x, i in zip(inputs, axes, strict=True))), 0

    def _pushed(self, inputs: Any, directions: Any) -> Any:
        return jax.jvp(self.rows, inputs, tuple(map(ad.instantiate_zeros, directions)))

    def _transposed(self, weights: Any, *inputs: Any) -> Any:
        """Where it is linear in some inputs: the weights of these."""
        unknown = [k for k, x in enumerate(inputs) if ad.is_undefined_primal(x)]

        def of_unknown(*values: Any) -> Any:
            given = list(inputs)
            for k, value in zip(unknown, values, strict=True):
                given[k] = value
            return self.rows(*given)

        found = jax.linear_transpose(of_unknown, *(inputs[k].aval for k in unknown))(weights)
        return [found[unknown.index(k)] if k in unknown else None for k in range(len(inputs))]


def product(p: Array, r: Array) -> Array:
    """The product (4,) of two quaternions."""
    (a, b, c, d), (w, x, y, z) = p, r
    return jnp.stack(
        [
            a * w - b * x - c * y - d * z,
            a * x + b * w + c * z - d * y,
            a * y - b * z + c * w + d * x,
            a * z + b * y - c * x + d * w,
        ]
    )


def cross(a: Array, b: Array) -> Array:
    """a × b (3,)."""
    (a1, a2, a3), (b1, b2, b3) = a, b
    return jnp.stack([a2 * b3 - a3 * b2, a3 * b1 - a1 * b3, a1 * b2 - a2 * b1])


def skew(a: Array) -> Array:
    """ã (3, 3) with ã b = a × b."""
    (x, y, z), zero = a, jnp.zeros_like(a[0])
    return jnp.stack([jnp.stack([zero, -z, y]), jnp.stack([z, zero, -x]), jnp.stack([-y, x, zero])])


def exponential(w: Array) -> Array:
    """The quaternion (4,) of a rotation vector (3,)."""
    x = 0.25 * (w @ w)
    return jnp.concatenate([stumpff(0, x)[None], 0.5 * stumpff(1, x) * w])


def tangent(w: Array) -> Array:
    """T (3, 3) with exp(w + ε) = exp(w) exp(T ε) for small ε: 1 − c₂ w̃ + c₃ w̃², with Stumpff's c_k(|w|²)."""
    x = w @ w
    square = jnp.outer(w, w) - x * jnp.eye(3)
    return jnp.eye(3) - stumpff(2, x) * skew(w) + stumpff(3, x) * square


def carry(w: Array) -> Array:
    """The matrix (4, 4) that multiplies a quaternion from the right by that of a rotation vector."""
    e = exponential(w)
    return jnp.stack([product(unit, e) for unit in jnp.eye(4)], axis=1)


def _matrix(p: Array) -> Array:
    """The rotation matrix (3, 3)."""
    w, x, y, z = p
    return jnp.stack(
        [
            jnp.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)]),
            jnp.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)]),
            jnp.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]),
        ]
    )


def _rotate(p: Array, x: Array) -> Array:
    """The vector x (3,) turned by p: R(p) x."""
    across = 2 * cross(p[1:], x)
    return x + p[0] * across + cross(p[1:], across)


def _retract(p: Array, w: Array) -> Array:
    """p exp(w) (4,). Rounding has changed its length, which is set back to one; derivatives ignore this."""
    found = product(p, exponential(w))
    return found * lax.stop_gradient(1.5 - 0.5 * (found @ found))


def rate(p: Array, w: Array) -> Array:
    """½ p (0, w): the rate (4,) of a quaternion with an angular velocity (3,) in axes of the body."""
    u = p[1:]
    return 0.5 * jnp.concatenate([-(u @ w)[None], p[0] * w + cross(u, w)])


def _nudge(p: Array, w: Array) -> Array:
    """p + ½ p (0, w): a quaternion (4,) moved by a small turn."""
    return p + rate(p, w)


def logarithm(p: Array) -> Array:
    """The rotation vector (3,), of length at most π, of a quaternion."""
    p = jnp.where(p[0] < 0, -p, p)
    w, u = p[0], p[1:]
    square = u @ u
    near = 50 * square < w**2
    # atan2(|u|, w)/|u|. In the branch that is not taken, the arguments are replaced by harmless ones.
    z = jnp.where(near, square, 0.0) / jnp.where(near, w**2, 1.0)
    series = jnp.full_like(z, 1.0 / (2 * _SERIES + 1))
    for i in reversed(range(_SERIES)):
        series = 1.0 / (2 * i + 1) - z * series
    size = jnp.sqrt(jnp.where(near, 1.0, square))
    return 2 * jnp.where(near, series / jnp.where(near, w, 1.0), jnp.arctan2(size, w) / size) * u


def from_matrix(R: Array) -> Array:
    """The quaternion (4,) with w ≥ 0 of a rotation matrix (3, 3).

    |w|, |x|, |y| and |z| follow from the diagonal of R. The formula divides by the largest of them.
    """
    (a, b, c), (d, e, f), (g, h, i) = R
    products = jnp.stack(  # 4 times the outer product of the quaternion with itself
        [
            jnp.stack([1 + a + e + i, h - f, c - g, d - b]),
            jnp.stack([h - f, 1 + a - e - i, b + d, c + g]),
            jnp.stack([c - g, b + d, 1 - a + e - i, f + h]),
            jnp.stack([d - b, c + g, f + h, 1 - a - e + i]),
        ]
    )
    row = products[jnp.argmax(jnp.diagonal(products))]
    p = row / jnp.sqrt(row @ row)
    return jnp.where(p[0] < 0, -p, p)


def untwist(w: Array) -> Array:
    """The inverse (3, 3) of ``tangent``: 1 + ½ w̃ + c w̃²."""
    x = w @ w
    c = (stumpff(3, x) - 2 * stumpff(4, x)) / (2 * stumpff(2, x))
    return jnp.eye(3) + 0.5 * skew(w) + c * (jnp.outer(w, w) - x * jnp.eye(3))


@jax.custom_jvp
def _vector(R: Array) -> Array:
    """The rotation vector w (3,) of a rotation matrix (3, 3). R' = R δ̃ makes w' = T⁻¹ δ."""
    return logarithm(from_matrix(R))


@_vector.defjvp
def _vector_rate(at: tuple[Array], along: tuple[Array]) -> tuple[Array, Array]:
    (R,), (by,), w = at, along, _vector(*at)
    return w, untwist(w) @ jnp.stack([R[:, 2] @ by[:, 1], R[:, 0] @ by[:, 2], R[:, 1] @ by[:, 0]])


matrix, rotate = Known(_matrix, (4,), (3, 3)), Known(_rotate, (4,), (3,), (3,))
retract, nudge = Known(_retract, (4,), (3,), (4,)), Known(_nudge, (4,), (3,), (4,))
vector = Known(_vector, (3, 3), (3,))
