"""Primitives of small linear algebra, unrolled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from genalpha.compiler.graph import ONE, ZERO, Graph, Unsupported
from genalpha.compiler.reader import Handler, Params, Symbols, Value, nodes


def _each(count: int, entry: Callable[..., tuple[np.ndarray, ...]], kinds: str) -> Handler:
    """A handler for stacks of matrices, from a function of ``count`` single matrices."""

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Any:
        arrays = [nodes(graph, x) for x in inputs[:count]]
        lead = arrays[0].shape[:-2]
        stacks = [entry(graph, *(x[at] for x in arrays), params) for at in np.ndindex(*lead)]
        if not stacks:
            raise Unsupported("the factorization of an empty stack of matrices has no scalar form")
        joined = [np.stack(part).reshape(*lead, *part[0].shape) for part in zip(*stacks, strict=True)]
        results = [Symbols(x.astype(np.int64), kind) for x, kind in zip(joined, kinds, strict=True)]
        return results if len(results) > 1 else results[0]

    return handler


def _lu(graph: Graph, matrix: np.ndarray, params: Params) -> tuple[np.ndarray, ...]:
    """LU with row pivoting as in LAPACK, unrolled. Pivots are chosen at run time, by comparisons."""
    rows = matrix.tolist()
    height, width = matrix.shape
    order = [graph.constant(k) for k in range(height)]
    pivots = []
    for k in range(min(height, width)):
        best, at = graph.apply("abs", rows[k][k]), graph.constant(k)
        for i in range(k + 1, height):
            if rows[i][k] == ZERO:
                continue
            size = graph.apply("abs", rows[i][k])
            ahead = graph.compare("lt", best, size)
            best, at = graph.select(ahead, size, best), graph.select(ahead, graph.constant(i), at)
        pivots.append(at)
        for i in range(k + 1, height):  # if row i has the pivot, exchange it with row k
            if rows[i][k] == ZERO:
                continue
            here = graph.compare("eq", at, graph.constant(i))
            for j in range(width):
                a, b = rows[k][j], rows[i][j]
                rows[k][j], rows[i][j] = graph.select(here, b, a), graph.select(here, a, b)
            a, b = order[k], order[i]
            order[k], order[i] = graph.select(here, b, a), graph.select(here, a, b)
        # A column of zeros is left as it is: a singular matrix also has factors, and a determinant.
        pivot = graph.select(graph.compare("eq", rows[k][k], ZERO), ONE, rows[k][k])
        for i in range(k + 1, height):
            if rows[i][k] == ZERO:
                continue
            factor = rows[i][k] = graph.div(rows[i][k], pivot)
            for j in range(k + 1, width):
                rows[i][j] = graph.sub(rows[i][j], graph.mul(factor, rows[k][j]))
    whole = lambda x: np.array(x, dtype=np.int64)
    return whole(rows).reshape(height, width), whole(pivots), whole(order)


def _triangular(graph: Graph, a: np.ndarray, b: np.ndarray, params: Params) -> tuple[np.ndarray, ...]:
    lower = params["lower"]
    if params["transpose_a"]:
        a, lower = a.T, not lower
    if not params["left_side"]:
        a, b, lower = a.T, b.T, not lower
    size = len(a)
    result = b.copy()
    order = range(size) if lower else range(size - 1, -1, -1)
    for column in range(b.shape[1]):
        for i in order:
            total = int(result[i, column])
            for j in range(i) if lower else range(i + 1, size):
                total = graph.sub(total, graph.mul(int(a[i, j]), int(result[j, column])))
            result[i, column] = total if params["unit_diagonal"] else graph.div(total, int(a[i, i]))
    return (result if params["left_side"] else result.T,)


def _cholesky(graph: Graph, a: np.ndarray, params: Params) -> tuple[np.ndarray, ...]:
    size = len(a)
    result = np.full(a.shape, ZERO, dtype=np.int64)
    for j in range(size):
        for i in range(j, size):
            total = int(a[i, j])
            for k in range(j):
                total = graph.sub(total, graph.mul(int(result[i, k]), int(result[j, k])))
            result[i, j] = graph.apply("sqrt", total) if i == j else graph.div(total, int(result[j, j]))
    return (result,)


lu, triangular_solve, cholesky = _each(1, _lu, "fii"), _each(2, _triangular, "f"), _each(1, _cholesky, "f")
