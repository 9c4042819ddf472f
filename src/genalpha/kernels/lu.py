"""LU of a matrix of expressions, unrolled, in an order of pivots that is chosen beforehand on numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from genalpha.kernels.graph import ONE, ZERO, Graph

# Factors are trusted while their backward error is below the one, the condition number below the other.
BACKWARD, CONDITION = 1e-10, 1e12
# A pivot is at least this fraction of the largest entry in its column.
THRESHOLD = 0.1

Order = tuple[tuple[int, int], ...]


class Factors(NamedTuple):
    """Triangular factors as nodes: P A Q = L U, without the entries that are always zero.

    ``order`` holds row and column of each pivot, ``inverse`` one over it; ``lower[k]`` pairs of a row and its
    multiple of the k-th pivot's row, ``upper[k]`` pairs of a column and the entry of the k-th pivot's row.
    """

    order: Order
    inverse: tuple[int, ...]
    lower: tuple[tuple[tuple[int, int], ...], ...]
    upper: tuple[tuple[tuple[int, int], ...], ...]

    def entries(self) -> list[int]:
        """All nodes in the factors."""
        parts = [x for row in (*self.lower, *self.upper) for _, x in row]
        return list(dict.fromkeys([*self.inverse, *parts]))

    def renamed(self, new: Callable[[int], int]) -> Factors:
        rename = lambda rows: tuple(tuple((i, new(x)) for i, x in row) for row in rows)
        return Factors(self.order, tuple(map(new, self.inverse)), rename(self.lower), rename(self.upper))


def choose(pattern: np.ndarray, values: np.ndarray) -> Order | None:
    """An order of pivots (row, column) for matrices with this pattern, and numbers like these.

    Markowitz: the entry that causes least fill, among those not much smaller than others in their column.
    None where the numbers give no nonsingular matrix.
    """
    pattern, values = pattern.copy(), np.where(pattern, values, 0.0)
    size = len(pattern)
    rows, columns = np.ones(size, dtype=bool), np.ones(size, dtype=bool)
    if not np.isfinite(values).all():
        return None
    smallest = np.finfo(float).eps * np.abs(values).max(initial=0.0)
    order = []
    for _ in range(size):
        active = pattern & rows[:, None] & columns
        sizes = np.where(active, np.abs(values), 0.0)
        good = (sizes > smallest) & (sizes >= THRESHOLD * sizes.max(axis=0))
        if not good.any():
            return None
        fill = np.outer(active.sum(axis=1) - 1, active.sum(axis=0) - 1).astype(float)
        fill -= sizes / (1 + sizes.max(axis=0))  # between equals, the larger one
        row, column = divmod(int(np.argmin(np.where(good, fill, np.inf))), size)
        order.append((row, column))
        rows[row], columns[column] = False, False
        below = np.flatnonzero(active[:, column] & rows)
        right = np.flatnonzero(active[row] & columns)
        pattern[np.ix_(below, right)] = True
        factors = values[below, column] / values[row, column]
        values[np.ix_(below, right)] -= np.outer(factors, values[row, right])
    return tuple(order)


def factor(graph: Graph, matrix: np.ndarray, order: Order) -> Factors:
    """The factors of a matrix (N, N) of nodes."""
    entries = [[int(x) for x in row] for row in matrix]
    rows, columns = set(range(len(matrix))), set(range(len(matrix)))
    inverse, lower, upper = [], [], []
    for row, column in order:
        rows.discard(row)
        columns.discard(column)
        over = graph.div(ONE, entries[row][column])
        right = [(j, entries[row][j]) for j in sorted(columns) if entries[row][j] != ZERO]
        below = []
        for i in sorted(rows):
            if entries[i][column] != ZERO:
                multiple = graph.mul(entries[i][column], over)
                below.append((i, multiple))
                for j, x in right:
                    entries[i][j] = graph.sub(entries[i][j], graph.mul(multiple, x))
        inverse.append(over)
        lower.append(tuple(below))
        upper.append(tuple(right))
    return Factors(order, tuple(inverse), tuple(lower), tuple(upper))


def solve(graph: Graph, factors: Factors, rhs: np.ndarray) -> np.ndarray:
    """A⁻¹ rhs (N,), as nodes."""
    left = [int(x) for x in rhs]
    for (row, _), below in zip(factors.order, factors.lower, strict=True):
        for i, multiple in below:
            left[i] = graph.sub(left[i], graph.mul(multiple, left[row]))
    result = np.full(len(left), ZERO, dtype=np.int64)
    for (row, column), over, right in reversed(
        list(zip(factors.order, factors.inverse, factors.upper, strict=True))
    ):
        total = left[row]
        for j, x in right:
            total = graph.sub(total, graph.mul(x, int(result[j])))
        result[column] = graph.mul(total, over)
    return result


def examine(graph: Graph, matrix: np.ndarray, factors: Factors) -> tuple[int, int]:
    """Whether a matrix is finite, and whether its factors solve a test problem well: the monitor.

    In another order than rows ask for, small pivots make factors grow and the solution inexact. That shows in
    the residual of a solution, and a singular matrix in its size.
    """
    size = len(matrix)
    probe = np.random.default_rng(size).uniform(0.5, 1.0, size) * np.where(np.arange(size) % 3 == 1, -1, 1)
    rhs = [graph.constant(x) for x in probe]
    found = solve(graph, factors, np.array(rhs)).tolist()
    sums, defects, total = [], [], ZERO
    for row, right in zip(matrix.tolist(), rhs, strict=True):
        size_of_row, product = ZERO, ZERO
        for x, y in zip(row, found, strict=True):
            if x != ZERO:
                size_of_row = graph.add(size_of_row, graph.apply("abs", x))
                product = graph.add(product, graph.mul(x, y))
        sums.append(size_of_row)
        defects.append(graph.apply("abs", graph.sub(product, right)))
        total = graph.add(total, size_of_row)
    largest = graph.largest(graph.apply("abs", y) for y in found)
    amplified = graph.mul(graph.largest(sums), largest)
    allowed = graph.mul(graph.constant(BACKWARD), graph.add(amplified, ONE))
    exact = graph.compare("le", graph.largest(defects), allowed)
    regular = graph.compare("le", amplified, graph.constant(CONDITION))
    finite = graph.compare("lt", total, graph.constant(np.inf))
    return finite, graph.logic("and", exact, regular)
