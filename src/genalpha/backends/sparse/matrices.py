"""The mass matrix, the constraint matrices, and the matrix (12) of JN08 of an assembly, by their entries."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from genalpha.backends.sparse.memory import KEPT
from genalpha.backends.sparse.models import KindModel
from genalpha.backends.sparse.together import Together
from genalpha.compiler.sparse_factors import Lists, SparseFactors
from genalpha.compiler.sparse_pattern import Singular, analysed, by_columns
from genalpha.mechanics.system import Dims
from genalpha.numerics.data import Scale

# a (n,), λ (m,) and ψ (p,).
Vectors = tuple[np.ndarray, np.ndarray, np.ndarray]


class Structure:
    """Where the results of all copies belong: in vectors, in the mass matrix M, and in B = (G; K).

    Entries that are always zero are left out, but for the diagonal of M and one in each row of B.

    ``targets`` are the places in one array of sums: the vectors, whose ``slices`` are known by name, and the
    entries of M by columns (``mass``: rows and starts). ``sources`` are the results that are added there.
    ``of_B`` are the results that are the entries of B by rows (``rows``: columns and starts).
    """

    def __init__(self, parts: list[KindModel], dims: Dims, terms: Together) -> None:
        n, m, p = dims[1:]
        vectors = {"applied": ("v", n), "g": ("g", m), "g_dot": ("g", m), "g_ddot": ("g", m)}
        vectors |= {"k": ("k", p), "k_dot": ("k", p)}
        self.slices: dict[str, slice] = {}
        first = 0
        for name, (_, count) in vectors.items():
            self.slices[name] = slice(first, first + count)
            first += count
        targets, sources = [], []
        of_mass, of_rows = [], []
        for k, model in enumerate(parts):
            at, columns = model.places, terms.columns[k]
            for name, (kind, _) in vectors.items():
                numbers = getattr(columns, name)
                some = ~terms.zero(k, numbers)
                targets.append(self.slices[name].start + getattr(at, kind)[:, some])
                sources.append(terms.places(k, numbers[some]))
            kept = ~terms.zero(k, columns.M) | np.eye(model.dims.n, dtype=bool)
            of_mass.append(_block(terms, k, columns.M, kept, at.v, at.v))
            for numbers, rows in ((columns.G, at.g), (columns.K, m + at.k)):
                kept = ~terms.zero(k, numbers)
                kept[~kept.any(axis=1), :1] = True
                of_rows.append(_block(terms, k, numbers, kept, rows, at.v))
        where, row, column = (np.concatenate(x) for x in zip(*of_mass, strict=True))
        places, *self.mass = by_columns(n, row, column)
        self.first = first  # of the entries of M
        self.targets = np.concatenate([*(x.reshape(-1) for x in targets), first + places])
        self.sources = np.concatenate([*(x.reshape(-1) for x in sources), where])
        self.sums = first + len(self.mass[0])
        where, row, column = (np.concatenate(x) for x in zip(*of_rows, strict=True))
        order = np.lexsort((column, row))
        self.of_B, self.row, self.column = where[order], row[order], column[order]
        self.rows = (self.column.astype(np.int32), np.searchsorted(self.row, np.arange(m + p + 1)))
        self.dims = dims

    @functools.cached_property
    def saddle(self) -> SaddlePattern:
        """Where the entries of M, B and Bᵀ are in the whole matrix."""
        return SaddlePattern(self, self.column, self.row)


def _block(
    terms: Together, k: int, numbers: np.ndarray, kept: np.ndarray, rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The places of some results of a block, and their rows and columns."""
    row, column = np.nonzero(kept)
    return tuple(x.reshape(-1) for x in (terms.places(k, numbers[kept]), rows[:, row], columns[:, column]))  # type: ignore[return-value]


class SaddlePattern:
    """Where the entries of M, B and C are in the matrix (M C; B 0), by columns.

    ``row`` and ``column`` are those of the entries of C, which is Bᵀ unless reactions are the user's own.
    """

    def __init__(self, of: Structure, row: np.ndarray, column: np.ndarray) -> None:
        n, m, p = of.dims[1:]
        self.size = n + m + p
        indices, starts = of.mass
        masses = np.repeat(np.arange(n), np.diff(starts))
        rows = np.concatenate([indices, n + of.row, row])
        columns = np.concatenate([masses, of.column, n + column])
        self.rows, self.columns = rows.astype(np.int64), columns.astype(np.int64)
        self._lists: Lists | None = None  # of the factors

    def matrix(self, entries: np.ndarray) -> Any:
        """The matrix with these entries, sparse."""
        return sparse.csc_matrix((entries, (self.rows, self.columns)), shape=(self.size,) * 2)

    def product(self, entries: np.ndarray, x: np.ndarray, transposed: bool = False) -> np.ndarray:
        """The matrix with these entries, or its transpose, times x."""
        rows, columns = (self.columns, self.rows) if transposed else (self.rows, self.columns)
        return np.bincount(rows, entries * x[columns], self.size)

    def factors(self, entries: np.ndarray) -> Any:
        """L and U of the matrix with these entries. Raises a RuntimeError if it is singular."""
        if self.size > KEPT:
            return splu(self.matrix(entries))
        lists = self._lists
        if lists is None:
            try:
                lists = Lists(analysed(self.size, self.rows, self.columns, entries))
            except Singular as error:
                raise RuntimeError(str(error)) from error
        found = SparseFactors(lists, entries)
        if found.healthy:
            self._lists = lists
            return found
        return splu(self.matrix(entries))


class Saddle:
    """The matrix (12) of JN08, M and B = (G; K), scaled. It is factorized when it is first used."""

    def __init__(self, pattern: SaddlePattern, entries: np.ndarray, scale: Scale) -> None:
        self.pattern, self.scale = pattern, scale
        self._sizes = np.concatenate(scale)
        self.entries = entries * self._sizes[pattern.rows] * self._sizes[pattern.columns]

    @functools.cached_property
    def _factors(self) -> Any:
        return self.pattern.factors(self.entries)

    def solve(self, motion: np.ndarray, holonomic: np.ndarray, nonholonomic: np.ndarray) -> Vectors:
        """x = (a, λ, ψ) with M a + Bᵀ(λ, ψ) = motion and B a = (holonomic, nonholonomic)."""
        x, n, m = self.solved(np.concatenate([motion, holonomic, nonholonomic])), len(motion), len(holonomic)
        return x[:n], x[n : n + m], x[n + m :]

    def solved(self, rows: np.ndarray, transposed: bool = False) -> np.ndarray:
        """The solution for a right-hand side (n + m + p,), also with the transposed matrix."""
        wanted, how = self._sizes * rows, "T" if transposed else "N"
        x = self._factors.solve(wanted, how)
        x += self._factors.solve(wanted - self.pattern.product(self.entries, x, transposed), how)
        x *= self._sizes
        return x
