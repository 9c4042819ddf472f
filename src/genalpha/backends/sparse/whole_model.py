"""A system that is not made of parts, as the only part of itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from genalpha.mechanics.parts import Places
from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import Args, Dims, System


class WholeModel(NamedTuple):
    """A system as the only part of itself. It has the attributes of :class:`models.KindModel`.

    ``data`` are the doubles of its args with an axis for the only copy, ``rebuild`` makes args of them.
    """

    whole: System
    dims: Dims
    data: Any
    rebuild: Callable[..., Args]
    name: str = "whole"
    element: None = None
    copies: int = 1

    @property
    def space(self) -> Space:
        return self.whole.space

    @property
    def places(self) -> Places:
        return Places(*(np.arange(count)[None] for count in self.dims))

    @property
    def own_reaction(self) -> bool:
        return self.whole.reaction is not None

    def system(self, data: Any, whole: Dims) -> System:
        """The system with these args."""
        of, args = self.whole, self.rebuild(data)
        bind = lambda function: lambda *inputs: function(*inputs, args)
        given = lambda name, function: bind(function) if getattr(of, name) is not None else None
        return System(
            bind(of.M),
            bind(of.applied),
            given("holonomic", of.g),
            given("nonholonomic", of.k),
            given("reaction", of.reactions),
            of.space,
        )


class WholeArgs:
    """The doubles of a run as the data of a whole model (1, D), as in :class:`CopyArgs`."""

    def __init__(self, shapes: list[Any]) -> None:
        self._shapes = shapes
        self._ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]

    def pulled(self, weights: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The weights of the doubles, from those of the data (R, 1, D)."""
        rows = weights["whole"][:, 0]
        parts = np.split(rows, self._ends, axis=1) if self._shapes else []
        return [x.reshape(len(rows), *shape) for x, shape in zip(parts, self._shapes, strict=True)]

    def spread(self, changes: list[np.ndarray], width: dict[str, int]) -> dict[str, np.ndarray]:
        """The changes of the data (R, 1, D), from those of the doubles (R, ...)."""
        rows = [np.reshape(x, (len(x), 1, -1)) for x in changes]
        return {"whole": np.concatenate(rows, axis=2) if rows else np.zeros((1, 1, 0))}
