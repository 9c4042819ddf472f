"""A JAX function applied to rows of numbers: its beginnings and its ends need no loop of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from genalpha import linear
from genalpha.kernels import lu
from genalpha.kernels.graph import TRUE, ZERO, Graph, Unsupported
from genalpha.kernels.program import Builder, Map, Program
from genalpha.kernels.scalar import Symbols, inline, nodes

VARYING, FIXED = 1, 0


class RowFunction:
    """``function(varying, fixed)`` of two pytrees of doubles, as a kernel on rows.

    The numbers of ``varying`` are the columns of a row, those of ``fixed`` stay the same. Small linear systems
    are solved with pivots chosen on the example; the last column of the result is 1 where that went well.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[Any, Any], Any],
        varying: Any,
        fixed: Any,
        limit: int,
    ) -> None:
        graph = Graph(limit)
        builder = Builder(graph)
        slot = lambda leaf: builder.slot(np.size(leaf)).reshape(np.shape(leaf))
        self.columns = jax.tree.map(slot, varying)
        inputs = range(builder.slots)
        self.fixed = jax.tree.map(slot, fixed)
        symbols = lambda level: lambda s: Symbols(builder.inputs(s, level), "f")
        self._numbers: dict[int, float] = {}
        given = []
        for slots, values, level in ((self.columns, varying, VARYING), (self.fixed, fixed, FIXED)):
            given.append(jax.tree.map(symbols(level), slots))
            ids = jax.tree.leaves(given[-1], is_leaf=lambda s: isinstance(s, Symbols))
            for s, value in zip(ids, jax.tree.leaves(values), strict=True):
                self._numbers.update(
                    zip(s.ids.reshape(-1).tolist(), np.asarray(value, float).reshape(-1).tolist(), strict=True)
                )
        self._factors: dict[bytes, lu.Factors] = {}
        self._trusted = TRUE
        helpers = {
            linear.solve_once.__name__: self._solve,
            linear.condition_number.__name__: self._condition,
        }
        outputs = inline(graph, function, *given, helpers=helpers)
        leaves, self._structure = jax.tree.flatten(outputs)
        self._shapes = [leaf.shape for leaf in leaves]
        flat = np.concatenate([leaf.reshape(-1) for leaf in leaves] + [np.array([self._trusted])])
        results = builder.slot(len(flat))
        builder.kernel(f"{name}_row", VARYING, (results, flat))
        self._graph, self._flat = graph, flat.tolist()
        self.program: Program = builder.build({})
        self.name = name
        self.map = Map(f"{name}_row", inputs, range(int(results[0]), int(results[-1]) + 1))
        self.width = len(flat)

    # --- small linear systems -------------------------------------------------------------------

    def _factor(self, graph: Graph, matrix: np.ndarray) -> lu.Factors:
        key = matrix.tobytes()
        if key not in self._factors:
            with np.errstate(all="ignore"):
                values = graph.evaluate(matrix.reshape(-1).tolist(), self._numbers)
            order = lu.choose(matrix != ZERO, np.array(values, dtype=float).reshape(matrix.shape))
            if order is None:
                raise Unsupported("a linear system that is singular at the start")
            factors = self._factors[key] = lu.factor(graph, matrix, order)
            for good in lu.examine(graph, matrix, factors):
                self._trusted = graph.logic("and", self._trusted, good)
        return self._factors[key]

    def _solve(self, graph: Graph, matrix: np.ndarray, rhs: np.ndarray) -> list[np.ndarray]:
        return [lu.solve(graph, self._factor(graph, matrix), rhs)]

    def _condition(self, graph: Graph, matrix: np.ndarray) -> list[np.ndarray]:
        """One: where it is not known to be small, the last column says so."""
        self._factor(graph, matrix)
        return [nodes(graph, np.array(1.0))]

    # --- numbers --------------------------------------------------------------------------------

    def example(self) -> np.ndarray:
        """The results (width,) for the numbers it was made from, without machine code."""
        with np.errstate(all="ignore"):
            return np.array(self._graph.evaluate(self._flat, self._numbers), dtype=float)

    def pack(self, varying: Any) -> np.ndarray:
        """Columns (count, inputs) from arrays with rows first."""
        leaves = [np.asarray(leaf, dtype=float) for leaf in jax.tree.leaves(varying)]
        count = len(leaves[0])
        return np.concatenate([leaf.reshape(count, -1) for leaf in leaves], axis=1)

    def fill(self, work: np.ndarray, fixed: Any) -> None:
        """Write the numbers that stay the same into the slots."""
        for slots, value in zip(jax.tree.leaves(self.fixed), jax.tree.leaves(fixed), strict=True):
            work[slots.reshape(-1)] = np.asarray(value, dtype=float).reshape(-1)

    def unpack(self, table: np.ndarray) -> tuple[Any, np.ndarray]:
        """The results (count, width), as the pytree that the function returns, and where they are good."""
        leaves, at = [], 0
        for shape in self._shapes:
            size = int(np.prod(shape))
            leaves.append(table[..., at : at + size].reshape((*table.shape[:-1], *shape)))
            at += size
        return jax.tree.unflatten(self._structure, leaves), table[..., -1] != 0
