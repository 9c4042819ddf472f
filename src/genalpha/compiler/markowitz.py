"""An order of pivots with little fill-in: at every pivot the fewest new entries (Markowitz, 1957)."""

from __future__ import annotations

import heapq

import numpy as np

# The number of columns with the fewest entries among which a pivot is chosen.
TRIED = 8


class Exhausted(Exception):
    """No entry that is left can be a pivot: the matrix is singular."""


class Elimination:
    """What is left of a matrix during an elimination: its columns by rows, and the columns of each row.

    Pivots are at least ``threshold`` times the largest entry in their column.
    """

    def __init__(
        self, size: int, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, threshold: float
    ) -> None:
        self.threshold, self._pivots = threshold, list[float]()
        self.columns: list[dict[int, float]] = [{} for _ in range(size)]
        self.rows: list[set[int]] = [set() for _ in range(size)]
        for i, j, value in zip(rows.tolist(), columns.tolist(), values.tolist(), strict=True):
            column = self.columns[j]
            column[i] = column.get(i, 0.0) + value
            self.rows[i].add(j)
        # Columns by their numbers of entries. Pairs are stale if the number has changed since.
        self._shortest = [(len(column), j) for j, column in enumerate(self.columns)]
        heapq.heapify(self._shortest)

    def order(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows and the columns of all pivots, (n,) each. Raises :class:`Exhausted`."""
        found = []
        for _ in self.columns:
            pivot = self._pivot()
            self._eliminate(*pivot)
            found.append(pivot)
        row, column = np.array(found, dtype=np.int64).reshape(-1, 2).T
        return row, column

    @property
    def spread(self) -> float:
        """The largest pivot divided by the smallest."""
        return max(self._pivots, default=1.0) / min(self._pivots, default=1.0)

    def _pivot(self) -> tuple[int, int]:
        """The entry with the least product of other entries in its row and in its column.

        Among equals it is the one that is largest in its column.
        """
        best, least, seen = None, (np.inf, 0.0), list[tuple[int, int]]()
        while self._shortest and len(seen) < TRIED:
            count, j = one = heapq.heappop(self._shortest)
            column = self.columns[j]
            if count != len(column) or one in seen:
                continue
            seen.append(one)
            if best is not None and (count - 1) ** 2 > least[0]:
                break
            largest = max(map(abs, column.values()), default=0.0)
            for i, value in column.items():
                share = abs(value) / largest if largest else 0.0
                cost = (count - 1) * (len(self.rows[i]) - 1), -share
                if share >= self.threshold and cost < least:
                    best, least = (i, j), cost
        if best is None:
            raise Exhausted
        for one in seen:
            if one[1] != best[1]:
                heapq.heappush(self._shortest, one)
        return best

    def _eliminate(self, i: int, j: int) -> None:
        """Subtract multiples of row i from all rows with an entry in column j."""
        columns, rows = self.columns, self.rows
        column, columns[j] = columns[j], {}
        pivot = column.pop(i)
        self._pivots.append(abs(pivot))
        multiples = [(r, value / pivot) for r, value in column.items()]
        for r in column:
            rows[r].discard(j)
        rows[i].discard(j)
        for c in rows[i]:
            other = columns[c]
            by, before = other.pop(i), len(other) + 1
            for r, multiple in multiples:
                if r in other:
                    other[r] -= multiple * by
                else:
                    other[r] = -multiple * by
                    rows[r].add(c)
            if len(other) != before:
                heapq.heappush(self._shortest, (len(other), c))
