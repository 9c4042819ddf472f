"""First-order states: velocities without positions."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.spaces._base import Space


@dataclass(frozen=True)
class States(Space):
    """n first-order states z' = c: velocities that move nothing. A point has no coordinates.

    As a factor of a :class:`Product`, or as the space of a node of an :class:`Assembly`, it adds states to a
    system: their mass is one, their force is c. :class:`StateSystem` does this for a whole system.

    >>> import genalpha as ga
    >>> space = ga.Product(ga.Euclidean(2), ga.States(3))
    >>> space.dim, space.size(space.dim)
    (5, 2)
    """

    n: int

    def __post_init__(self) -> None:
        if isinstance(self.n, bool) or not (isinstance(self.n, int | np.integer) and self.n > 0):
            raise ValueError(f"the number of states must be a positive integer, got States({self.n!r})")

    @property
    def dim(self) -> int:  # type: ignore[override]
        return self.n

    def size(self, dim: int) -> int:
        return 0

    def moved(self, dim: int) -> np.ndarray:
        return np.zeros(dim, bool)

    def retract(self, q: Array, d: Array) -> Array:
        return q

    def difference(self, q: Array, p: Array) -> Array:
        return jnp.zeros(self.n)

    def rate(self, q: Array, v: Array) -> Array:
        return jnp.zeros_like(q)

    def pull(self, q: Array, w: Array) -> Array:
        return jnp.zeros(self.n)

    def magnitude(self, q: Array) -> Array:
        return jnp.zeros(self.n)
