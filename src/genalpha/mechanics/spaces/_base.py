"""What every configuration space offers to the rest of the package."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array


class Space:
    """A configuration space with points ``q`` of shape (size,) and velocities ``v`` of shape (dim,).

    The methods state their equations with these few maps only, so a new space needs no new method: it
    defines ``size``, ``retract``, ``difference`` and ``magnitude``, and ``bracket`` if its increments do not
    commute. The other maps follow, and are redefined where there is a cheaper way.

    On a Lie group (ACB15 section 2) velocities are those of left translation, q' = q·ṽ, and
    ``retract(q, d)`` is q ∘ exp(d).
    """

    #: Number of velocities; None where v0 decides.
    dim: int | None = None
    #: Names of the rotations in the space, for messages. Empty where nothing turns.
    rotations: tuple[str, ...] = ()

    def size(self, dim: int) -> int:
        """Number of stored coordinates of a point whose velocity has ``dim`` components."""
        raise NotImplementedError

    def retract(self, q: Array, d: Array) -> Array:
        """The point reached from ``q`` (size,) by the increment ``d`` (dim,)."""
        raise NotImplementedError

    def difference(self, q: Array, p: Array) -> Array:
        """The increment (dim,) that leads from ``q`` to ``p``: ``retract(q, difference(q, p)) = p``."""
        raise NotImplementedError

    def interpolate(self, q: Array, p: Array, s: Array | float) -> Array:
        """The point at the fraction ``s`` of the way from ``q`` (s = 0) to ``p`` (s = 1)."""
        return self.retract(q, s * self.difference(q, p))

    def rate(self, q: Array, v: Array) -> Array:
        """Time derivative (size,) of the stored coordinates at velocity ``v`` (dim,)."""
        return jax.jvp(lambda d: self.retract(q, d), (jnp.zeros_like(v),), (v,))[1]

    def pull(self, q: Array, w: Array) -> Array:
        """Transpose of ``rate``: a gradient with respect to the stored q (size,) becomes a force (dim,)."""
        dim = q.size if self.dim is None else self.dim
        return jax.linear_transpose(lambda v: self.rate(q, v), jnp.zeros(dim))(w)[0]

    def bracket(self, v: Array, w: Array) -> Array:
        """The Lie bracket [v, w] (dim,); zero in a flat space."""
        return jnp.zeros_like(v)

    def magnitude(self, q: Array) -> Array:
        """Size (dim,) of the numbers behind each velocity direction, for rounding estimates."""
        raise NotImplementedError

    def normalize(self, q: Array) -> Array:
        """The point of the space next to ``q``, of which only rounding may separate it."""
        return q

    def defect(self, q: Array) -> Array:
        """How far each of the ``rotations`` is from being one: | |quaternion| − 1 |."""
        return jnp.zeros(0)

    def turns(self, d: Array) -> Array:
        """Angle by which the increment ``d`` turns each of the ``rotations``."""
        return jnp.zeros(0)
