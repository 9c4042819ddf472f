"""Products of configuration spaces: several bodies, or bodies and coordinates."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.spaces._base import Space


class _Run(NamedTuple):
    """``number`` equal factors in a row. A point has ``size`` entries, a velocity ``dim``."""

    space: Space
    number: int
    size: int
    dim: int


@dataclass(frozen=True, init=False)
class Product(Space):
    """The product of spaces. Points and velocities of the factors follow one after the other.

    Equal neighbours are computed together, so a hundred bodies need hardly more array operations than one.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> space = ga.Product(ga.R3xSO3(), ga.R3xSO3(), ga.Euclidean(2))
    >>> space.size(14)
    16
    >>> [part.shape for part in space.split(jnp.zeros(16))]
    [(7,), (7,), (2,)]
    """

    factors: tuple[Space, ...]
    _runs: tuple[_Run, ...] = field(compare=False)

    def __init__(self, *factors: Space) -> None:
        if not factors:
            raise ValueError("Product() is empty: pass at least one factor, such as ga.R3xSO3()")
        for factor in factors:
            if not isinstance(factor, Space):
                raise TypeError(f"the factors of a Product must be spaces such as ga.SO3(), got {factor!r}")
        runs = []
        for space, group in itertools.groupby(factors):
            if space.dim is None:
                raise ValueError(f"a factor needs its dimension, such as Euclidean(3); got {space!r}")
            runs.append(_Run(space, len(list(group)), space.size(space.dim), space.dim))
        object.__setattr__(self, "factors", factors)
        object.__setattr__(self, "_runs", tuple(runs))

    def __repr__(self) -> str:
        return f"Product({', '.join(map(repr, self.factors))})"

    @functools.cached_property
    def rotations(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(
            f"factor {i} ({name})" for i, factor in enumerate(self.factors) for name in factor.rotations
        )

    @property
    def dim(self) -> int:  # type: ignore[override]
        return sum(run.number * run.dim for run in self._runs)

    def size(self, dim: int) -> int:
        return sum(run.number * run.size for run in self._runs)

    @property
    def runs(self) -> tuple[_Run, ...]:
        """Equal neighbours among the factors: space, number, size of a point and of a velocity."""
        return self._runs

    def split(self, q: Array) -> list[Array]:
        """The points of the factors, in order."""
        return _cut(q, [run.size for run in self._runs for _ in range(run.number)])

    def split_velocity(self, v: Array) -> list[Array]:
        """The velocities of the factors, in order."""
        return _cut(v, [run.dim for run in self._runs for _ in range(run.number)])

    @functools.partial(jax.jit, static_argnames=("self", "name", "kinds"), inline=True)
    def _each(self, name: str, kinds: tuple[str, ...], *values: Array) -> Array:
        """The map ``name`` of every factor. Its inputs are points ("size") or velocities ("dim").

        It is traced once for all steps, starts and systems with this space.
        """
        at = dict.fromkeys(("size", "dim"), 0)
        parts = []
        for run in self._runs:
            pieces = []
            for kind, value in zip(kinds, values, strict=True):
                width = getattr(run, kind)
                piece = value[at[kind] : at[kind] + run.number * width]
                pieces.append(piece if run.number == 1 else piece.reshape(run.number, width))
            function: Callable[..., Array] = getattr(run.space, name)
            parts.append((function if run.number == 1 else jax.vmap(function))(*pieces).reshape(-1))
            for kind in at:
                at[kind] += run.number * getattr(run, kind)
        return jnp.concatenate(parts)

    def moved(self, dim: int) -> np.ndarray:
        return self._moved

    @functools.cached_property
    def _moved(self) -> np.ndarray:
        return np.concatenate([np.tile(run.space.moved(run.dim), run.number) for run in self._runs])

    def retract(self, q: Array, d: Array) -> Array:
        return self._each("retract", ("size", "dim"), q, d)

    def nudged(self, q: Array, d: Array) -> Array:
        return self._each("nudged", ("size", "dim"), q, d)

    def difference(self, q: Array, p: Array) -> Array:
        return self._each("difference", ("size", "size"), q, p)

    def rate(self, q: Array, v: Array) -> Array:
        return self._each("rate", ("size", "dim"), q, v)

    def pull(self, q: Array, w: Array) -> Array:
        return self._each("pull", ("size", "size"), q, w)

    def bracket(self, v: Array, w: Array) -> Array:
        return self._each("bracket", ("dim", "dim"), v, w)

    def magnitude(self, q: Array) -> Array:
        return self._each("magnitude", ("size",), q)

    def normalize(self, q: Array) -> Array:
        return self._each("normalize", ("size",), q)

    def defect(self, q: Array) -> Array:
        return self._each("defect", ("size",), q)

    def turns(self, d: Array) -> Array:
        return self._each("turns", ("dim",), d)


def _cut(values: Array, widths: list[int]) -> list[Array]:
    ends = np.cumsum(widths)
    if values.shape != (ends[-1],):
        raise ValueError(f"expected shape ({ends[-1]},), got {values.shape}")
    return [values[end - width : end] for width, end in zip(widths, ends, strict=True)]
