"""A JAX function that machine code applies to every row of an array."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.compiler import emit_llvm, lu
from genalpha.compiler.graph import TRUE, ZERO, Graph, Unsupported
from genalpha.compiler.kept import KeptOnDisk
from genalpha.compiler.program import PIECE, Builder, Map, Program, cut
from genalpha.compiler.reader import Helpers, Symbols, inline, nodes
from genalpha.numerics import linear


class SingularExample(Unsupported):
    """There may be a scalar form with pivots that suit another example."""


class Written(NamedTuple):
    """The text of a function of rows, the number of its slots, and how many operations it has."""

    text: str
    slots: int
    operations: int


class RowFunction(KeptOnDisk):
    """``function(*arguments)`` of pytrees of doubles, as a kernel on rows: a row holds one set of arguments.

    Small linear systems are solved with pivots that are chosen for an example. The last column of the result
    is 1 if the pivots were good for that row. ``often`` says whether optimizing its machine code is worth the
    time. In ``graph``, ``columns`` are the nodes of the inputs, ``results`` those of the results; ``given``
    and ``found`` are the same as pytrees.
    """

    HEAVY = frozenset({"graph", "given", "program", "_numbers", "_factors"})

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        example: Any,
        limit: int | None = None,
        often: bool = True,
    ) -> None:
        self.graph, self._trusted = Graph(limit), TRUE
        self._factors: dict[bytes, lu.Factors] = {}
        builder = Builder(self.graph)
        number = lambda leaf: builder.inputs(builder.slot(np.size(leaf)).reshape(np.shape(leaf)), 0)
        self.given = self._read_from(example, jax.tree.map(number, example))
        helpers: Helpers = {linear.SOLVE: self._solve, linear.CONDITION: self._condition}
        self.found = inline(self.graph, function, *jax.tree.map(_doubles, self.given), helpers=helpers)
        self._write(name, often, builder)

    def then(
        self, name: str, function: Callable[..., Any], example: Any, same: Callable[[Any], Any]
    ) -> RowFunction:
        """A function of rows that goes on with the expressions of this one.

        ``function(graph, found, *arguments)`` returns a pytree of nodes, from those of the results of this
        function and of its own arguments. ``same`` are those of its arguments that are arguments of this
        function too.
        """
        after = copy.copy(self)
        after.place = after.remake = None
        builder = Builder(self.graph)
        slots = jax.tree.map(lambda leaf: builder.slot(np.size(leaf)).reshape(np.shape(leaf)), example)
        known = dict(zip(map(id, jax.tree.leaves(same(slots))), jax.tree.leaves(self.given), strict=True))

        def nodes_of(slots: np.ndarray) -> np.ndarray:
            if id(slots) not in known:
                return builder.inputs(slots, 0)
            ids = known[id(slots)]
            builder.slot_of |= dict(zip(ids.reshape(-1).tolist(), slots.reshape(-1).tolist(), strict=True))
            builder.level_of |= dict.fromkeys(ids.reshape(-1).tolist(), 0)
            return ids

        after.given = after._read_from(example, jax.tree.map(nodes_of, slots))
        after.found = function(self.graph, self.found, *after.given)
        after._write(name, self.often, builder)
        return after

    def _read_from(self, example: Any, given: Any) -> Any:
        """Read the nodes ``given`` from rows; ``example`` is one of them."""
        leaves = jax.tree.leaves(given)
        self.columns = np.concatenate([ids.reshape(-1) for ids in leaves])
        ends = itertools.pairwise(itertools.accumulate((ids.size for ids in leaves), initial=0))
        self._inputs = [(slice(*cut), ids.ndim < 2) for cut, ids in zip(ends, leaves, strict=True)]
        self.example = self.row(example)
        self._numbers = self._named(self.example)
        return given

    def _write(self, name: str, often: bool, builder: Builder) -> None:
        """Write the kernel for the nodes that were found."""
        inputs = range(builder.slots)
        leaves = jax.tree.leaves(self.found)
        sizes = itertools.accumulate((leaf.size for leaf in leaves), initial=0)
        cuts = itertools.starmap(slice, itertools.pairwise(sizes))
        self._parts = [(at, leaf.shape) for at, leaf in zip(cuts, leaves, strict=True)]
        flat = np.concatenate([leaf.reshape(-1) for leaf in leaves] + [np.array([self._trusted])])
        self.results = flat.tolist()
        self.name, self.width, self.often = name, len(flat), often
        results = builder.slot(len(flat))
        builder.kernel(f"{name}_row", 0, (results, flat))
        self.program: Program = builder.build({})
        self.hosted, self._written = bool(self.program.hosts), dict[int, Written]()
        self.map = Map(f"{name}_row", inputs, range(int(results[0]), int(results[-1]) + 1))

    def written(self, lanes: int) -> Written:
        """The text of its machine code for several lanes."""
        if lanes not in self._written:
            program = cut(self.program, PIECE)
            text = emit_llvm.emit([(program, {self.name: self.map})], lanes)
            operations = sum(kernel.operations for kernel in self.program.kernels.values())
            self._written[lanes] = Written(text, program.slots, operations)
            self.keep()
        return self._written[lanes]

    # --- small linear systems -------------------------------------------------------------------

    def _factor(self, graph: Graph, matrix: np.ndarray) -> lu.Factors:
        key = matrix.tobytes()
        if key not in self._factors:
            with np.errstate(all="ignore"):
                values = graph.evaluate(matrix.reshape(-1).tolist(), self._numbers)
            order = lu.choose(matrix != ZERO, np.array(values, dtype=float).reshape((1, *matrix.shape)))
            if order is None:
                raise SingularExample("a linear system is singular at the start")
            factors = self._factors[key] = lu.factor(graph, matrix, order)
            for good in lu.examine(graph, matrix, factors):
                self._trusted = graph.logic("and", self._trusted, good)
        return self._factors[key]

    def _solve(self, graph: Graph, matrix: np.ndarray, rhs: np.ndarray) -> list[np.ndarray]:
        return [lu.solve(graph, self._factor(graph, matrix), rhs)]

    def _condition(self, graph: Graph, matrix: np.ndarray) -> list[np.ndarray]:
        """Always one. If the condition may be bad, the last column of the result is 0."""
        self._factor(graph, matrix)
        return [nodes(graph, np.array(1.0))]

    # --- numbers --------------------------------------------------------------------------------

    def _named(self, row: np.ndarray) -> dict[int, float]:
        return dict(zip(self.columns.tolist(), row.tolist(), strict=True))

    def interpret(self, row: np.ndarray) -> tuple[Any, np.ndarray]:
        """The results for one row of inputs, without machine code, and whether they are good."""
        with np.errstate(all="ignore"):
            return self.unpack(np.array(self.graph.evaluate(self.results, self._named(row)), dtype=float))

    @property
    def inputs(self) -> int:
        return len(self.columns)

    def row(self, arguments: Any, out: np.ndarray | None = None) -> np.ndarray:
        """One set of arguments as a row (inputs,), written into ``out`` if it is given."""
        row = np.empty(self.inputs) if out is None else out
        for (at, flat), leaf in zip(self._inputs, jax.tree.leaves(arguments), strict=True):
            row[at] = leaf if flat else np.ravel(leaf)
        return row

    def pack(self, arguments: Any) -> tuple[np.ndarray, np.ndarray]:
        """Arrays whose first axis counts the rows, as columns (count, width) and numbers (inputs − width,).

        The numbers are the last inputs, if they are the same for all rows: arrays with one row.
        """
        leaves = [np.asarray(leaf, dtype=float) for leaf in jax.tree.leaves(arguments)]
        count = max(map(len, leaves)) if all(map(len, leaves)) else 0
        varying = [k for k, leaf in enumerate(leaves, 1) if len(leaf) != 1]
        some = max(varying, default=1)
        flat = [leaf.reshape(len(leaf), math.prod(leaf.shape[1:])) for leaf in leaves]
        ends = list(itertools.accumulate((x.shape[1] for x in flat[:some]), initial=0))
        table = np.empty((count, ends[-1]))
        for at, end, x in zip(ends, ends[1:], flat[:some], strict=False):  # one row is shared by all
            table[:, at:end] = x[:count]
        return table, np.concatenate([np.zeros(0), *(x[0] for x in flat[some:])])

    def unpack(self, table: np.ndarray) -> tuple[Any, np.ndarray]:
        """The results (count, width) as the pytree that the function returns, and which rows are good."""
        lead = table.shape[:-1]
        leaves = [table[..., at].reshape((*lead, *shape)) for at, shape in self._parts]
        return jax.tree.unflatten(jax.tree.structure(self.found), leaves), table[..., -1] != 0


def _doubles(ids: np.ndarray) -> Symbols:
    return Symbols(ids, "f")
