"""LU of a matrix of expressions, unrolled. The order of pivots is chosen beforehand, from numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from genalpha.compiler.graph import ONE, TRUE, ZERO, Graph

# Factors are trusted while multiples of rows are at most GROWTH, and the ratio of pivots at most CONDITION.
GROWTH, CONDITION = 1e6, 1e12
# A sample matrix is dropped if a pivot is smaller than this fraction of the largest entry in its column.
_USELESS = 1e-6
# A pivot is at least this fraction of the largest entry in its column.
THRESHOLD = 0.1

Order = tuple[tuple[int, int], ...]


class Active:
    """The entries of the rows and columns without pivots, sorted by column.

    ``keys`` (E,) are column · N + row, ``values`` (S, E) the numbers of S matrices with this pattern.
    """

    def __init__(self, pattern: np.ndarray, values: np.ndarray) -> None:
        self.size = len(pattern)
        columns, rows = np.nonzero(pattern.T)
        self.keys, self.values = columns * self.size + rows, values[:, rows, columns]

    def share(self, columns: np.ndarray) -> np.ndarray:
        """Every entry relative to the largest one in its column (S, E)."""
        starts = np.flatnonzero(np.diff(columns, prepend=-1))
        sizes = np.abs(self.values)
        largest = np.repeat(
            np.maximum.reduceat(sizes, starts, axis=1), np.diff(starts, append=len(columns)), axis=1
        )
        return sizes / np.where(largest > 0, largest, 1.0)

    def eliminate(self, k: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Subtract multiples of the row of pivot ``k``, remove its row and column, return the multiples."""
        below = np.flatnonzero((columns == columns[k]) & (rows != rows[k]))
        right = np.flatnonzero((rows == rows[k]) & (columns != columns[k]))
        multiples = self.values[:, below] / self.values[:, k, None]
        change = (multiples[:, :, None] * self.values[:, right][:, None, :]).reshape(len(self.values), -1)
        keys = (columns[right] * self.size + rows[below][:, None]).reshape(-1)
        rest = (rows != rows[k]) & (columns != columns[k])
        self.keys, self.values = self.keys[rest], self.values[:, rest]
        place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        known = self.keys[place] == keys if len(self.keys) else np.zeros(len(keys), bool)
        self.values[:, place[known]] -= change[:, known]
        if not known.all():
            together = np.concatenate([self.keys, keys[~known]])
            order = np.argsort(together, kind="stable")
            self.keys = together[order]
            self.values = np.concatenate([self.values, -change[:, ~known]], axis=1)[:, order]
        return multiples


class Factors(NamedTuple):
    """Triangular factors as nodes: P A Q = L U, without the entries that are always zero.

    ``order`` holds row and column of each pivot, ``pivots`` the pivots, ``inverse`` one over each.
    ``lower[k]`` holds pairs of a row and the multiple of the k-th pivot's row that is subtracted from it.
    ``upper[k]`` holds pairs of a column and the entry of the k-th pivot's row in it.
    """

    order: Order
    pivots: tuple[int, ...]
    inverse: tuple[int, ...]
    lower: tuple[tuple[tuple[int, int], ...], ...]
    upper: tuple[tuple[tuple[int, int], ...], ...]

    def entries(self) -> list[int]:
        """All nodes in the factors."""
        parts = [x for row in (*self.lower, *self.upper) for _, x in row]
        return list(dict.fromkeys([*self.inverse, *parts]))

    def renamed(self, new: Callable[[int], int]) -> Factors:
        rename = lambda rows: tuple(tuple((i, new(x)) for i, x in row) for row in rows)
        inverse = tuple(map(new, self.inverse))
        return Factors(self.order, self.pivots, inverse, rename(self.lower), rename(self.upper))


def choose(pattern: np.ndarray, values: np.ndarray) -> Order | None:
    """An order of pivots (row, column) for matrices with this pattern of nonzeros, and similar numbers.

    ``values`` (S, N, N) holds the matrix in question first, and then others that may follow during a run. As
    in Markowitz's rule, the pivot is the entry with the least fill-in, among those that are not much smaller
    than others in their column. Entries that are large in the other matrices too, with the same sign, are
    preferred: if a pivot passes through zero, the order is useless there. None if the first matrix is
    singular.
    """
    values = np.where(pattern, values, 0.0)
    values = values[np.isfinite(values).all(axis=(1, 2)) | (np.arange(len(values)) == 0)]
    if not np.isfinite(values[0]).all():
        return None
    active, size = Active(pattern, values), len(pattern)
    smallest = np.finfo(float).eps * np.abs(values[0]).max(initial=0.0)
    order = []
    for _ in range(size):
        columns, rows = np.divmod(active.keys, size)
        if not len(rows):
            return None
        share, first = active.share(columns), np.abs(active.values[0])
        good = (first > smallest) & (share[0] >= THRESHOLD)
        if not good.any():
            return None
        signs = np.sign(active.values)
        steady = (share.min(axis=0) >= THRESHOLD**2) & (np.abs(signs.sum(axis=0)) == len(signs))
        counts = [np.bincount(x, minlength=size) - 1 for x in (rows, columns)]
        fill = counts[0][rows] * counts[1][columns] - 0.5 * share[0] * (first / first.max())
        fill += np.where(steady, 0.0, size**2)
        best = np.flatnonzero(good & (fill == fill[good].min()))
        k = int(best[np.argmin(rows[best] * size + columns[best])])
        order.append((int(rows[k]), int(columns[k])))
        active.values = active.values[share[:, k] > _USELESS]
        active.eliminate(k, rows, columns)
    return tuple(order)


def factor(graph: Graph, matrix: np.ndarray, order: Order) -> Factors:
    """The factors of a matrix (N, N) of nodes."""
    entries = [[int(x) for x in row] for row in matrix]
    rows, columns = set(range(len(matrix))), set(range(len(matrix)))
    pivots, inverse, lower, upper = [], [], [], []
    for row, column in order:
        rows.discard(row)
        columns.discard(column)
        pivots.append(entries[row][column])
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
    return Factors(order, tuple(pivots), tuple(inverse), tuple(lower), tuple(upper))


def solve(graph: Graph, factors: Factors, rhs: np.ndarray) -> np.ndarray:
    """A⁻¹ rhs (N,), as nodes."""
    left = [int(x) for x in rhs]
    for (row, _), below in zip(factors.order, factors.lower, strict=True):
        for i, multiple in below:
            left[i] = graph.sub(left[i], graph.mul(multiple, left[row]))
    result = np.full(len(left), ZERO, dtype=np.int64)
    position = {column: k for k, (_, column) in enumerate(factors.order)}
    for (row, column), over, right in reversed(
        list(zip(factors.order, factors.inverse, factors.upper, strict=True))
    ):
        total = left[row]
        for j, x in sorted(right, key=lambda term: -position[term[0]]):  # the result found last is used last
            total = graph.sub(total, graph.mul(x, int(result[j])))
        result[column] = graph.mul(total, over)
    return result


def solve_transposed(graph: Graph, factors: Factors, rhs: np.ndarray) -> np.ndarray:
    """A⁻ᵀ rhs (N,), as nodes."""
    left, found = [int(x) for x in rhs], [ZERO] * len(rhs)
    for (row, column), over, right in zip(factors.order, factors.inverse, factors.upper, strict=True):
        found[row] = graph.mul(left[column], over)
        for j, x in right:
            left[j] = graph.sub(left[j], graph.mul(x, found[row]))
    for (row, _), below in reversed(list(zip(factors.order, factors.lower, strict=True))):
        for i, multiple in below:
            found[row] = graph.sub(found[row], graph.mul(multiple, found[i]))
    return np.array(found, dtype=np.int64)


def trusted(matrix: np.ndarray, order: Order) -> bool:
    """Whether the factors of a matrix (N, N) of numbers can be trusted, with pivots in this order."""
    active, size, pivots = Active(matrix != 0, matrix[None]), len(matrix), []
    for row, column in order:
        columns, rows = np.divmod(active.keys, size)
        here = np.flatnonzero((rows == row) & (columns == column))
        if not here.size:
            return False
        pivots.append(abs(active.values[0, here[0]]))
        with np.errstate(all="ignore"):
            multiples = active.eliminate(int(here[0]), rows, columns)
        if not (np.abs(multiples) <= GROWTH).all():
            return False
    return bool(max(pivots, default=1.0) <= CONDITION * min(pivots, default=1.0))


def examine(graph: Graph, matrix: np.ndarray, factors: Factors) -> tuple[int, int]:
    """Two nodes: whether a matrix seems to be finite, and whether its factors can be trusted.

    If a pivot has become small, multiples of its row are large and the factors grow. If the sizes of pivots
    are very different, the matrix may be singular.
    """
    total = ZERO
    for x in matrix.max(axis=1, initial=ZERO).tolist():  # the latest expression of each row is enough
        total = graph.add(total, x)
    finite = graph.compare("lt", graph.apply("abs", total), graph.constant(np.inf))
    largest = lambda entries: graph.largest([graph.apply("abs", x) for x in entries])
    healthy = TRUE
    if factors.pivots:
        spread = graph.mul(largest(factors.inverse), largest(factors.pivots))
        healthy = graph.compare("le", spread, graph.constant(CONDITION))
    multiples = [x for row in factors.lower for _, x in row]
    if multiples:
        healthy = graph.logic("and", healthy, graph.compare("le", largest(multiples), graph.constant(GROWTH)))
    return finite, healthy
