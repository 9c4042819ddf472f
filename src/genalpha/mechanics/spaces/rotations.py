"""Spaces with rotations: SO(3), R³×SO(3) and SE(3), stored with unit quaternions (w, x, y, z)."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from genalpha import rotation
from genalpha.mechanics.spaces._base import Space
from genalpha.mechanics.spaces.euclidean import Euclidean
from genalpha.mechanics.spaces.product import Product
from genalpha.numerics import turns
from genalpha.numerics.stumpff import stumpff


@dataclass(frozen=True)
class SO3(Space):
    """Rotations: q = (w, x, y, z), a unit quaternion, and v = Ω, the body-fixed angular velocity (3,).

    >>> import jax.numpy as jnp
    >>> q = SO3().retract(jnp.array([1.0, 0.0, 0.0, 0.0]), jnp.array([0.0, 0.0, jnp.pi]))
    >>> q.round(12).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """

    dim = 3
    rotations = ("SO3",)

    def size(self, dim: int) -> int:
        return 4

    def retract(self, q: Array, d: Array) -> Array:
        return turns.retract(q, d)

    def nudged(self, q: Array, d: Array) -> Array:
        return turns.nudge(q, d)

    def difference(self, q: Array, p: Array) -> Array:
        return rotation.rotation_vector(rotation.multiply(rotation.inverse(q), p))

    def rate(self, q: Array, v: Array) -> Array:
        """½ q (0, v)."""
        return turns.rate(q, v)

    def pull(self, q: Array, w: Array) -> Array:
        return 0.5 * (q[0] * w[1:] - w[0] * q[1:] - rotation.cross(q[1:], w[1:]))

    def bracket(self, v: Array, w: Array) -> Array:
        return rotation.cross(v, w)

    def magnitude(self, q: Array) -> Array:
        return jnp.ones(3)

    def normalize(self, q: Array) -> Array:
        return rotation.normalize(q)

    def defect(self, q: Array) -> Array:
        return jnp.abs(jnp.sqrt(q @ q) - 1)[None]

    def turns(self, d: Array) -> Array:
        return jnp.sqrt(d @ d)[None]


@dataclass(frozen=True)
class R3xSO3(Product):
    """Positions and rotations side by side, (x₁, R₁)∘(x₂, R₂) = (x₁ + x₂, R₁R₂) (ACB15 A.1).

    q = (position (3,), w, x, y, z) and v = (inertial velocity (3,), body-fixed angular velocity (3,)).

    >>> import jax.numpy as jnp
    >>> q = jnp.array([1.0, 2.0, 3.0, 1.0, 0.0, 0.0, 0.0])
    >>> (R3xSO3().rate(q, jnp.array([1.0, 0.0, 0.0, 0.0, 0.0, 2.0])) + 0.0).tolist()
    [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]
    """

    def __init__(self) -> None:
        super().__init__(Euclidean(3), SO3())

    @property
    def rotations(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("R3xSO3",)

    def __repr__(self) -> str:
        return "R3xSO3()"


@dataclass(frozen=True)
class SE3(Space):
    """Rigid motions, (x₁, R₁)∘(x₂, R₂) = (x₁ + R₁x₂, R₁R₂).

    q = (position (3,), w, x, y, z) as in :class:`R3xSO3`; v = (velocity (3,), angular velocity (3,)), both
    body-fixed: x' = R v₁.

    >>> import jax.numpy as jnp
    >>> q = jnp.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    >>> d = jnp.array([jnp.pi, 0.0, 0.0, 0.0, 0.0, jnp.pi])  # half a circle of diameter 2
    >>> (SE3().retract(q, d)[:3] + 0.0).round(12).tolist()
    [0.0, 2.0, 0.0]
    """

    dim = 6
    rotations = ("SE3",)

    def size(self, dim: int) -> int:
        return 7

    def retract(self, q: Array, d: Array) -> Array:
        u, w = d[:3], d[3:]
        x = w @ w
        around = rotation.cross(w, u)
        moved = u + stumpff(2, x) * around + stumpff(3, x) * rotation.cross(w, around)
        return jnp.concatenate([q[:3] + rotation.rotate(q[3:], moved), SO3().retract(q[3:], w)])

    def difference(self, q: Array, p: Array) -> Array:
        w = SO3().difference(q[3:], p[3:])
        x = w @ w
        moved = rotation.rotate(rotation.inverse(q[3:]), p[:3] - q[:3])
        around = rotation.cross(w, moved)
        factor = (stumpff(3, x) - 2 * stumpff(4, x)) / (2 * stumpff(2, x))
        return jnp.concatenate([moved - 0.5 * around + factor * rotation.cross(w, around), w])

    def rate(self, q: Array, v: Array) -> Array:
        return jnp.concatenate([rotation.rotate(q[3:], v[:3]), SO3().rate(q[3:], v[3:])])

    def pull(self, q: Array, w: Array) -> Array:
        turned = rotation.rotate(rotation.inverse(q[3:]), w[:3])
        return jnp.concatenate([turned, SO3().pull(q[3:], w[3:])])

    def bracket(self, v: Array, w: Array) -> Array:
        linear = rotation.cross(v[3:], w[:3]) - rotation.cross(w[3:], v[:3])
        return jnp.concatenate([linear, rotation.cross(v[3:], w[3:])])

    def magnitude(self, q: Array) -> Array:
        return jnp.concatenate([jnp.full(3, jnp.max(jnp.abs(q[:3]))), jnp.ones(3)])

    def normalize(self, q: Array) -> Array:
        return jnp.concatenate([q[:3], rotation.normalize(q[3:])])

    def defect(self, q: Array) -> Array:
        return SO3().defect(q[3:])

    def turns(self, d: Array) -> Array:
        return SO3().turns(d[3:])
