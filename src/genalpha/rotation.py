"""Rotations as unit quaternions (w, x, y, z), and conversions to and from other forms.

Each function takes one rotation; use ``jax.vmap`` for many. All are differentiable and work under ``jit``,
except those that call SciPy. ``rotate(p, x)`` turns a body-fixed vector x into an inertial vector.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from genalpha.numerics import turns


def identity() -> Array:
    """The quaternion (4,) of no rotation."""
    return jnp.array([1.0, 0.0, 0.0, 0.0])


def multiply(p: ArrayLike, r: ArrayLike) -> Array:
    """The product (4,) of two quaternions: first ``r``, then ``p``.

    >>> multiply([0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]).tolist()  # i j = k
    [0.0, 0.0, 0.0, 1.0]
    """
    return turns.product(jnp.asarray(p, float), jnp.asarray(r, float))


def inverse(p: ArrayLike) -> Array:
    """The inverse (4,) of a unit quaternion."""
    return jnp.asarray(p, float) * jnp.array([1.0, -1.0, -1.0, -1.0])


def normalize(p: ArrayLike) -> Array:
    """The unit quaternion (4,) in the direction of ``p``."""
    p = jnp.asarray(p, float)
    return p / jnp.sqrt(p @ p)


def rotate(p: ArrayLike, x: ArrayLike) -> Array:
    """The vector ``x`` (3,) turned by ``p``: R(p) x.

    >>> (rotate(from_rotation_vector([0.0, 0.0, jnp.pi / 2]), [1.0, 0.0, 0.0]).round(12) + 0.0).tolist()
    [0.0, 1.0, 0.0]
    """
    return turns.rotate(p, x)


def cross(a: ArrayLike, b: ArrayLike) -> Array:
    """The vector product a × b (3,), with fewer operations than ``jnp.cross``."""
    return turns.cross(jnp.asarray(a, float), jnp.asarray(b, float))


def skew(a: ArrayLike) -> Array:
    """The matrix ã (3, 3) with ã b = a × b (ACB15 A.1).

    >>> skew([1.0, 2.0, 3.0]).tolist()
    [[0.0, -3.0, 2.0], [3.0, 0.0, -1.0], [-2.0, 1.0, 0.0]]
    """
    return turns.skew(jnp.asarray(a, float))


# --- rotation vectors -------------------------------------------------------------------------------


def from_rotation_vector(w: ArrayLike) -> Array:
    """The quaternion (4,) of the rotation by the angle |w| about ``w`` (3,): the exponential map.

    >>> from_rotation_vector([jnp.pi, 0.0, 0.0]).round(12).tolist()
    [0.0, 1.0, 0.0, 0.0]
    """
    return turns.exponential(jnp.asarray(w, float))


def rotation_vector(p: ArrayLike) -> Array:
    """The rotation vector (3,), of length at most π, of a unit quaternion: the logarithm.

    Differentiable for all angles from zero to below π. At π the vector changes its sign.

    >>> np.asarray(rotation_vector(from_rotation_vector([0.3, -0.2, 0.1]))).round(12).tolist()
    [0.3, -0.2, 0.1]
    """
    return turns.logarithm(jnp.asarray(p, float))


# --- matrices ---------------------------------------------------------------------------------------


def matrix(p: ArrayLike) -> Array:
    """The rotation matrix (3, 3) of a unit quaternion.

    >>> matrix(identity()).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return turns.matrix(p)


def from_matrix(R: ArrayLike) -> Array:
    """The quaternion (4,) with w ≥ 0 of a rotation matrix (3, 3).

    |w|, |x|, |y| and |z| follow from the diagonal of R. The formula divides by the largest of them.

    >>> from_matrix(jnp.diag(jnp.array([-1.0, -1.0, 1.0]))).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    return turns.from_matrix(jnp.asarray(R, float))


def vector_of_matrix(R: ArrayLike) -> Array:
    """The rotation vector (3,), of length at most π, of a rotation matrix (3, 3).

    >>> turned = matrix(from_rotation_vector([0.3, -0.2, 0.1]))
    >>> np.asarray(vector_of_matrix(turned)).round(12).tolist()
    [0.3, -0.2, 0.1]
    """
    return turns.vector(R)


# --- Euler angles -----------------------------------------------------------------------------------


def _axes(seq: str) -> tuple[list[int], bool]:
    intrinsic = seq.isupper()
    axes = ["xyz".find(letter) for letter in seq.lower()]
    if len(axes) != 3 or -1 in axes or not (intrinsic or seq.islower()):
        raise ValueError(
            f"seq = {seq!r} must be three letters of xyz (fixed axes) or of XYZ (body-fixed axes)"
        )
    if axes[0] == axes[1] or axes[1] == axes[2]:
        raise ValueError(f"seq = {seq!r} turns about one axis twice in a row: neighbours must differ")
    return axes, intrinsic


def from_euler(seq: str, angles: ArrayLike) -> Array:
    """The quaternion (4,) of three turns about the axes ``seq``, by ``angles`` (3,).

    Axes are named as in SciPy: "ZYX" turn with the body, "zyx" are fixed.

    >>> matrix(from_euler("ZYX", [0.3, 0.0, 0.0]))[0, 0].round(6) == jnp.cos(0.3).round(6)
    Array(True, dtype=bool)
    """
    axes, intrinsic = _axes(seq)
    p = identity()
    for axis, angle in zip(axes, jnp.asarray(angles, float), strict=True):
        turn = from_rotation_vector(angle * jnp.eye(3)[axis])
        p = multiply(p, turn) if intrinsic else multiply(turn, p)
    return p


def euler(seq: str, p: ArrayLike) -> Array:
    """The three angles (3,) with ``from_euler(seq, angles)`` = ±p, in SciPy's ranges.

    If the first and third axes coincide, only the sum or difference of their angles is determined. Then the
    third angle is set to zero.

    >>> np.asarray(euler("ZYX", from_euler("ZYX", [0.3, -0.4, 0.5]))).round(12).tolist()
    [0.3, -0.4, 0.5]
    """
    axes, intrinsic = _axes(seq)
    i, j, k = axes if not intrinsic else axes[::-1]  # turns about fixed axes, in their order
    p = jnp.asarray(p, float)
    proper = i == k
    if proper:
        k = 3 - i - j
    sign = (i - j) * (j - k) * (k - i) // 2
    w, x, y, z = p[0], p[1 + i], p[1 + j], sign * p[1 + k]
    if not proper:
        w, x, y, z = w - y, x + z, y + w, z - x
    middle = 2 * jnp.arctan2(jnp.hypot(y, z), jnp.hypot(w, x))
    plus, minus = jnp.arctan2(x, w), jnp.arctan2(z, y)
    first, third = plus - minus, plus + minus
    tiny = 1e-7
    at_zero, at_pi = jnp.abs(middle) < tiny, jnp.abs(middle - jnp.pi) < tiny
    # The third angle, in the caller's order, is set to zero.
    kept_first = jnp.where(at_zero, 2 * plus, -2 * minus)
    kept_third = jnp.where(at_zero, 2 * plus, 2 * minus)
    degenerate = at_zero | at_pi
    if intrinsic:
        first, third = jnp.where(degenerate, 0.0, first), jnp.where(degenerate, kept_third, third)
    else:
        first, third = jnp.where(degenerate, kept_first, first), jnp.where(degenerate, 0.0, third)
    if not proper:
        third, middle = sign * third, middle - jnp.pi / 2
    wrap = lambda angle: jnp.arctan2(jnp.sin(angle), jnp.cos(angle))
    angles = jnp.stack([wrap(first), middle, wrap(third)])
    return angles[::-1] if intrinsic else angles


# --- other orders and libraries ---------------------------------------------------------------------


def to_xyzw(p: ArrayLike) -> Array:
    """The same quaternion with its scalar part last, (x, y, z, w).

    >>> to_xyzw([1.0, 2.0, 3.0, 4.0]).tolist()
    [2.0, 3.0, 4.0, 1.0]
    """
    return jnp.roll(jnp.asarray(p, float), -1)


def from_xyzw(p: ArrayLike) -> Array:
    """The quaternion with its scalar part first, from (x, y, z, w)."""
    return jnp.roll(jnp.asarray(p, float), 1)


def to_scipy(p: ArrayLike) -> Any:
    """The ``scipy.spatial.transform.Rotation`` of quaternions of shape (4,) or (N, 4).

    They must be numbers: this function does not work under JAX transforms.

    >>> to_scipy(identity()).as_rotvec().tolist()
    [0.0, 0.0, 0.0]
    """
    from scipy.spatial.transform import Rotation

    return Rotation.from_quat(np.roll(np.asarray(p, dtype=float), -1, axis=-1))


def from_scipy(rotation: Any) -> Array:
    """The quaternions (4,) or (N, 4), scalar first, of a ``scipy.spatial.transform.Rotation``."""
    return jnp.asarray(np.roll(rotation.as_quat(), 1, axis=-1))
