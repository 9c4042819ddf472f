"""What every configuration space offers to the rest of the package."""

from __future__ import annotations

from typing import Protocol

from jax import Array


class Space(Protocol):
    """A configuration space with points ``q`` of shape (size,) and velocities ``v`` of shape (dim,).

    The methods state their equations with these few maps only, so a new space needs no new method.
    """

    def size(self, dim: int) -> int:
        """Number of stored coordinates of a point whose velocity has ``dim`` components."""
        ...

    def retract(self, q: Array, d: Array) -> Array:
        """The point reached from ``q`` (size,) by the increment ``d`` (dim,)."""
        ...

    def difference(self, q: Array, p: Array) -> Array:
        """The increment (dim,) that leads from ``q`` to ``p``: ``retract(q, difference(q, p)) = p``."""
        ...

    def rate(self, q: Array, v: Array) -> Array:
        """Time derivative (size,) of the stored coordinates at velocity ``v`` (dim,)."""
        ...

    def pull(self, q: Array, w: Array) -> Array:
        """Transpose of ``rate``: a gradient with respect to the stored q (size,) becomes a force (dim,)."""
        ...

    def magnitude(self, q: Array) -> Array:
        """Size (dim,) of the numbers behind each velocity direction, for rounding estimates."""
        ...
