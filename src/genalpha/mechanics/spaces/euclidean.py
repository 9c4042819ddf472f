"""The flat space R^n, with q' = v."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.spaces._base import Space


@dataclass(frozen=True)
class Euclidean(Space):
    """The space R^n with q' = v; ``n=None`` takes n from the initial velocity.

    >>> import jax.numpy as jnp
    >>> Euclidean(2).retract(jnp.array([1.0, 2.0]), jnp.array([0.5, 0.0])).tolist()
    [1.5, 2.0]
    """

    n: int | None = None

    def __post_init__(self) -> None:
        if self.n is not None and not (isinstance(self.n, int | np.integer) and self.n > 0):
            raise ValueError(f"the dimension must be a positive integer, got Euclidean({self.n!r})")

    @property
    def dim(self) -> int | None:  # type: ignore[override]
        return self.n

    def size(self, dim: int) -> int:
        return dim

    def retract(self, q: Array, d: Array) -> Array:
        return q + d

    def difference(self, q: Array, p: Array) -> Array:
        return p - q

    def rate(self, q: Array, v: Array) -> Array:
        return v

    def pull(self, q: Array, w: Array) -> Array:
        return w

    def magnitude(self, q: Array) -> Array:
        return jnp.abs(q)
