"""States of a system on its constraints, with functions in machine code: nothing is compiled by XLA."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from genalpha.backends.native.step import LIMIT, floating
from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sparse.projection import EqualFactors, Projector
from genalpha.compiler.graph import Unsupported
from genalpha.engine.setup import Setup
from genalpha.mechanics.initial_values import matrices, scales
from genalpha.mechanics.spaces import Product, Space
from genalpha.mechanics.system import Args, Dims
from genalpha.numerics.data import Scale
from genalpha.numerics.newton import MAX_CONDITION


class Place(NamedTuple):
    """Constraints and masses at one state: g (m,), g_t + G v (m,), k (p,), M (n, n), (G; K) and scales."""

    g: Any
    g_dot: Any
    k: Any
    M: Any
    B: Any
    scale: Scale


class WholeProjector(Projector):
    """Moves states of a system that is not made of parts. Raises ``Unsupported`` without a scalar form."""

    def __init__(self, setup: Setup, args: Args) -> None:
        self.dims, system = setup.dims, setup.system
        self.factors = _factors(system.space, setup.dims)
        self.doubles, rebuild, fixed = floating(args)
        shapes = tuple(x.shape for x in self.doubles)

        def place(t: Any, q: Any, v: Any, doubles: Any) -> Place:
            args, none = rebuild(doubles), np.zeros(0)
            of = matrices(system, setup.dims, t, q, v, args)
            g, g_dot = system.g_and_dot(t, q, v, args) if setup.dims.m else (none, none)
            return Place(g, g_dot, system.k(t, q, v, args), of.M, of[1:], scales(of))

        q, d = np.zeros(self.dims.size), np.zeros(self.dims.n)
        make = lambda: (
            Rowwise("place", place, (np.zeros(()), q, d, self.doubles), LIMIT),
            Rowwise("retract", system.space.retract, (q, d)),
        )
        key = ("projector", setup.dims, shapes, fixed)
        self._place, self._retract = system._programs.made(key, make)
        for function in (self._place, self._retract):
            if function.rows is None:
                raise Unsupported(str(function.reason))

    def at(self, t: float, q: np.ndarray, v: np.ndarray) -> Place:
        found = self._place.one((np.float64(t), q, v, self.doubles))
        return found._replace(B=np.concatenate(found.B))

    def finite(self, at: Place) -> bool:
        return bool(np.isfinite(at.B).all())

    def retract(self, q: np.ndarray, d: np.ndarray) -> np.ndarray:
        return self._retract.one((q, d))

    def _solved(
        self,
        at: Place,
        M: np.ndarray,
        B: np.ndarray,
        motion: np.ndarray,
        wanted: np.ndarray,
        held: tuple[int, ...],
    ) -> tuple[np.ndarray, bool]:
        free, found = np.setdiff1d(np.arange(self.dims.n), held), np.zeros(self.dims.n)
        weights = np.concatenate(at.scale[1:])[: len(B)]
        a, count = np.asarray(at.scale.a)[free], len(free)
        B = weights[:, None] * B[:, free] * a
        matrix = np.block([[a[:, None] * M[np.ix_(free, free)] * a, B.T], [B, np.zeros((len(B), len(B)))]])
        wanted = np.concatenate([a * motion[free], weights * wanted])
        if not np.isfinite(matrix).all() or not np.linalg.cond(matrix) <= MAX_CONDITION:
            return found, False
        x = np.linalg.solve(matrix, wanted)
        x += np.linalg.solve(matrix, wanted - matrix @ x)
        found[free] = a * x[:count]
        return found, bool(np.isfinite(found).all())


def _factors(space: Space, dims: Dims) -> list[EqualFactors]:
    """The factors of a space and where they are."""
    if not isinstance(space, Product):
        return [EqualFactors(space, np.arange(dims.size)[None], np.arange(dims.n)[None])]
    found, q, v = list[EqualFactors](), 0, 0
    for factor, number, size, dim in space.runs:
        places = [
            at + np.arange(number * width).reshape(number, width) for at, width in ((q, size), (v, dim))
        ]
        found.append(EqualFactors(factor, *places))
        q, v = q + number * size, v + number * dim
    return found
