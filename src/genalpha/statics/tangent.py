"""Motions that constraints allow: bases of null spaces, and linear equations on them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

# Rows depend on others if a combination of those comes as close to them, in units of their length.
RANK = 1e-8
# Systems with more velocities than this are solved with sparse matrices.
DENSE = 400
# Damping of multipliers in units that make all entries one. More is taken if rows depend on others. A known
# vector must be found again up to these bounds.
_DAMPING, _LEFT, _MOST_GROWN = (0.0, 1e-14, 1e-12, 1e-10, 1e-8), 1e-8, 1e3
_REFINED = 3  # how often a damped solution is corrected


class NullSpace:
    """The null space of rows (r, n). Its coordinates are entries of the vectors, the ``free`` ones.

    ``basis`` (n, f) has the unit matrix in the rows ``free``. ``unit`` (n,) says what counts as equal sizes.

    >>> plane = NullSpace(np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0]]), np.ones(3))
    >>> plane.free.tolist(), plane.basis.round(12).tolist()
    ([0, 2], [[1.0, 0.0], [-0.5, 0.0], [0.0, 1.0]])
    >>> plane.part(np.array([4.0, 8.0])).round(12).tolist()
    [0.0, 2.0, 0.0]
    """

    def __init__(self, rows: np.ndarray, unit: np.ndarray) -> None:
        n = rows.shape[1]
        scaled = rows * unit
        lengths = np.linalg.norm(scaled, axis=1)
        self._length = np.where(lengths > 0, lengths, 1.0)
        self._unit, rank, order = unit, 0, np.arange(n)
        if rows.size:
            self._Q, triangle, order = scipy.linalg.qr(scaled / self._length[:, None], pivoting=True)
            rank = int((np.abs(np.diagonal(triangle)) > RANK).sum())
            self._R, right = triangle[:rank, :rank], triangle[:rank, rank:]
        self.rank, self.bound = rank, order[:rank]
        inverse = np.argsort(order[rank:])
        self.free = order[rank:][inverse]
        self.basis = np.zeros((n, n - rank))
        self.basis[self.free, np.arange(n - rank)] = 1.0
        if rank:
            factors = -scipy.linalg.solve_triangular(self._R, right)[:, inverse]
            self.basis[self.bound] = unit[self.bound, None] * factors / unit[self.free]

    def part(self, wanted: np.ndarray) -> np.ndarray:
        """A vector x (n, ...) with rows x = wanted (r, ...) whose free entries are zero."""
        found = np.zeros((len(self._unit), *wanted.shape[1:]))
        if self.rank:
            column = (slice(None), *[None] * (wanted.ndim - 1))
            seen = (self._Q.T @ (wanted / self._length[column]))[: self.rank]
            found[self.bound] = self._unit[self.bound][column] * scipy.linalg.solve_triangular(self._R, seen)
        return found


def left_null(loads: np.ndarray, basis: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Directions (n, f) in which reactions with derivatives ``loads`` (n, r) do not act.

    For reactions −Bᵀλ it is the ``basis`` of the null space of B, which are ``rows``.
    """
    if loads.shape == rows.T.shape and np.array_equal(loads, rows.T):
        return basis
    return NullSpace(loads.T, np.ones(len(loads))).basis


class Constrained:
    """Solves T x + L μ = F, B x = 0 for x (n,) and μ (r,). Rows of B (r, n) may depend on each other.

    ``unit`` (n,) are sizes of x, such as 1/√mass.
    """

    def __init__(self, B: Any, L: Any, unit: np.ndarray) -> None:
        self.B, self.L, self.unit = B, L, unit
        self.sparse = B.shape[1] > DENSE

    @functools.cached_property
    def tangent(self) -> NullSpace:
        return NullSpace(self.B.toarray(), self.unit)

    @functools.cached_property
    def left(self) -> np.ndarray:
        """Directions (n, f) in which reactions do not act."""
        return left_null(self.L.toarray(), self.tangent.basis, self.B.toarray())

    def part(self, wanted: np.ndarray) -> np.ndarray:
        """A vector x (n,) with B x = wanted (r,)."""
        if not self.sparse:
            return self.tangent.part(wanted)
        n = len(self.unit)
        if not wanted.any():
            return np.zeros(n)
        solve = saddle(sparse.diags(self.unit**-2.0), self.B.T, self.B, self.unit)
        return solve(np.concatenate([np.zeros(n), wanted]))[:n]

    def solve(self, T: Any, F: np.ndarray, least: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """x and μ. μ has the least norm, or nearly so if matrices are sparse.

        With ``least`` and dense matrices, x has the least norm too, if several or none fit.
        """
        if self.sparse:
            return self._by_sparse(T, F)
        basis, left, L = self.tangent.basis, self.left, self.L.toarray()
        inner, pushes = left.T @ T @ basis, left.T @ F
        if least:
            sizes = self.unit[self.tangent.free]
            x = basis @ (sizes * np.linalg.lstsq(inner * sizes, pushes, rcond=RANK)[0])
        else:
            x = basis @ np.linalg.solve(inner, pushes)
        if not np.isfinite(x).all():
            raise np.linalg.LinAlgError("not finite")
        return x, np.linalg.lstsq(L, F - T @ x, rcond=RANK)[0]

    def _by_sparse(self, T: Any, F: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, rows = len(F), self.B.shape[0]
        solve = saddle(T, self.L, self.B, self.unit)
        found = solve(np.concatenate([F, np.zeros(rows)]))
        if not np.isfinite(found).all():
            raise np.linalg.LinAlgError("not finite")
        return found[:n], found[n:]


def saddle(T: Any, L: Any, B: Any, unit: np.ndarray) -> Any:
    """A function that solves (T, L; B, 0) x = y for y (n + r,), by sparse factors.

    Rows of B that depend on others are allowed if y is consistent with it. Raises a LinAlgError if the matrix
    is singular for another reason.
    """
    lengths = np.sqrt(np.asarray((B @ sparse.diags(unit)).power(2).sum(axis=1)).reshape(-1))
    rows = 1 / np.where(lengths > 0, lengths, 1.0)
    sizes = sparse.diags(np.concatenate([unit, rows]))
    exact = (sizes @ sparse.bmat([[T, L], [B, None]]) @ sizes).tocsc() if len(rows) else None
    if exact is None:
        exact = (sizes @ T @ sizes).tocsc()
    rng = np.random.default_rng(0)
    trial = rng.normal(size=exact.shape[0])
    for damping in _DAMPING if len(rows) else _DAMPING[:1]:
        weights = np.concatenate([np.zeros(len(unit)), np.full(len(rows), damping)])
        try:
            factors = splu((exact - sparse.diags(weights)).tocsc())
        except RuntimeError:
            continue
        found = _refined(factors, exact, exact @ trial)
        left = np.linalg.norm(exact @ (found - trial))
        if left <= _LEFT * np.linalg.norm(exact @ trial) and np.abs(found).max() <= _MOST_GROWN * len(trial):
            return lambda y: sizes @ _refined(factors, exact, sizes @ y)
    raise np.linalg.LinAlgError("singular matrix")


def _refined(factors: Any, exact: Any, wanted: np.ndarray) -> np.ndarray:
    """The solution with a matrix, by factors of one nearby."""
    x = factors.solve(wanted)
    for _ in range(_REFINED):
        x = x + factors.solve(wanted - exact @ x)
    return x
