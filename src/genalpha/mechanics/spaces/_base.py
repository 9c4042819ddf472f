"""The base class of configuration spaces."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array


class Space:
    """A configuration space with points ``q`` of shape (size,) and velocities ``v`` of shape (dim,).

    Integration methods use only the maps below, so a new space works with all of them. It must define
    ``size``, ``retract``, ``difference`` and ``magnitude``, and ``bracket`` if its increments do not commute.
    The other maps follow from these; a space may redefine them if there is a cheaper way.

    On a Lie group (ACB15 section 2) velocities are those of left translation, q' = q·ṽ, and
    ``retract(q, d)`` is q ∘ exp(d).
    """

    #: Number of velocities; None if it is taken from v0.
    dim: int | None = None
    #: Names of the rotations in the space, for messages. Empty if there are none.
    rotations: tuple[str, ...] = ()

    def size(self, dim: int) -> int:
        """Number of stored coordinates of a point whose velocity has ``dim`` components."""
        raise NotImplementedError

    def moved(self, dim: int) -> np.ndarray:
        """Which of the ``dim`` velocities move a position, (dim,); all but :class:`States`."""
        return np.ones(dim, bool)

    def retract(self, q: Array, d: Array) -> Array:
        """The point reached from ``q`` (size,) by the increment ``d`` (dim,)."""
        raise NotImplementedError

    def difference(self, q: Array, p: Array) -> Array:
        """The increment (dim,) that leads from ``q`` to ``p``: ``retract(q, difference(q, p)) = p``."""
        raise NotImplementedError

    def interpolate(self, q: Array, p: Array, s: Array | float) -> Array:
        """The point between ``q`` (s = 0) and ``p`` (s = 1)."""
        return self.retract(q, s * self.difference(q, p))

    def rate(self, q: Array, v: Array) -> Array:
        """Time derivative (size,) of the stored coordinates at velocity ``v`` (dim,)."""
        return jax.jvp(lambda d: self.retract(q, d), (jnp.zeros_like(v),), (v,))[1]

    def nudged(self, q: Array, d: Array) -> Array:
        """``q`` moved by a small ``d`` (dim,). At d = 0 its first derivatives are those of ``retract``."""
        return q + self.rate(q, d)

    def pull(self, q: Array, w: Array) -> Array:
        """Transpose of ``rate``: a gradient with respect to the stored q (size,) becomes a force (dim,)."""
        dim = q.size if self.dim is None else self.dim
        return jax.linear_transpose(lambda v: self.rate(q, v), jnp.zeros(dim))(w)[0]

    def bracket(self, v: Array, w: Array) -> Array:
        """The Lie bracket [v, w] (dim,); zero in a flat space."""
        return jnp.zeros_like(v)

    def magnitude(self, q: Array) -> Array:
        """Size (dim,) of the coordinates that each velocity component changes, for rounding estimates."""
        raise NotImplementedError

    def normalize(self, q: Array) -> Array:
        """The point of the space nearest to ``q``, for a ``q`` that differs from it by rounding only."""
        return q

    def defect(self, q: Array) -> Array:
        """By how much the length of each quaternion differs from one: | |quaternion| − 1 |."""
        return jnp.zeros(0)

    def turns(self, d: Array) -> Array:
        """Angle by which the increment ``d`` turns each of the ``rotations``."""
        return jnp.zeros(0)
