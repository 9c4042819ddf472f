"""Positions on the holonomic constraints from a rough guess, by a damped Gauss-Newton iteration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from genalpha.backends.sparse.equations import AtState

# Constraints are satisfied if no row is larger than this, times 1 + |q|.
TOLERANCE = 1e-10
MOST_TURNS = 60
_DENSE = 200  # the most unknowns of dense matrices
_DAMPING = 1e-12  # of the square of the largest entry


class ClosedAt(NamedTuple):
    """Where the iteration ended: q (size,), the equations there, and the largest row before and after."""

    q: np.ndarray
    at: AtState
    first: float
    last: float

    @property
    def open(self) -> bool:
        """Whether constraints are still broken."""
        return not self.last <= TOLERANCE * (1 + np.abs(self.q).max())


def least(B: Any, wanted: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The smallest d (n,) with B d = wanted, as nearly as possible.

    It is measured in units of ``free`` (n,), and zero where these are zero.
    """
    rows, n = B.shape
    B = sparse.csr_matrix(B @ sparse.diags(free))
    weights = 1 / _natural(B, free)
    B, wanted = sparse.diags(weights) @ B, weights * wanted
    size = abs(B).max() if B.nnz else 0.0
    if not size > 1e-100:  # nothing moves these rows
        return np.zeros(n)
    damping, right = -_DAMPING * size**2, np.concatenate([np.zeros(n), wanted])
    if n + rows <= _DENSE:  # sparse matrices of SciPy take ten times as long to make
        full = np.diag(np.repeat([1.0, damping], [n, rows]))
        full[n:, :n] = B.toarray()
        full[:n, n:] = full[n:, :n].T
        return np.asarray(free * np.linalg.solve(full, right)[:n])
    matrix = sparse.bmat([[sparse.eye(n), B.T], [B, damping * sparse.eye(rows)]], format="csc")
    try:
        return np.asarray(free * splu(matrix).solve(right)[:n])
    except RuntimeError:  # singular: some numbers are not finite
        return np.full(n, np.nan)


def _natural(B: Any, free: np.ndarray) -> np.ndarray:
    """The sizes that rows (m,) of B have elsewhere: one for angles, the unit in ``free`` for lengths."""
    unit = max(free.max(initial=0.0), 1.0) * min(free[free > 0].min(initial=1.0), 1.0)
    largest = abs(B).max(axis=1).toarray().reshape(-1)
    order = np.log(np.where(largest > 0, largest, 1.0))
    return np.where(np.abs(order - np.log(unit)) < np.abs(order), unit, 1.0)


def closed(
    at: Callable[[np.ndarray], AtState],
    retract: Callable[[np.ndarray, np.ndarray], np.ndarray],
    q: np.ndarray,
    free: np.ndarray,
    most: int = MOST_TURNS,
    turns: Any = True,
    size: float = 1.0,
) -> ClosedAt:
    """Move q onto the holonomic constraints, in at most so many turns.

    ``at(q)`` gives the equations there. ``free`` (n,) is one for what may move, else zero. ``turns`` (n,)
    says which velocities are those of angles; all others are lengths, in units of ``size``.
    """
    here = at(q)
    m = here.dims.m
    first = gap = float(np.abs(here.g).max(initial=0.0))
    units = free * np.where(turns, 1.0, size)
    limits = np.where(turns, 1.0, max(size, first))  # of a step: one radian, and the longest way to go
    for _ in range(most):
        if gap <= TOLERANCE * (1 + np.abs(q).max()):
            # One more correction costs little and leaves rounding.
            better = retract(q, least(here.B[:m], -here.g, units)) if gap else q
            there = at(better) if gap else here
            last = float(np.abs(there.g).max(initial=0.0))
            return ClosedAt(better, there, first, last) if last <= gap else ClosedAt(q, here, first, gap)
        step, share = least(here.B[:m], -here.g, units), 1.0
        step /= max(1.0, float((np.abs(step) / limits).max()))
        while share > 1e-4:
            moved = retract(q, share * step)
            there = at(moved)
            if np.linalg.norm(there.g) < (1 - 1e-4 * share) * np.linalg.norm(here.g):
                break
            share /= 2
        else:
            break
        q, here, gap = moved, there, float(np.abs(there.g).max())
    return ClosedAt(q, here, first, gap)
