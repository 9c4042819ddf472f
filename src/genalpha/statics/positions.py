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
    """The smallest d (n,) with B d = wanted, as nearly as possible; zero where ``free`` (n,) is zero."""
    rows, n = B.shape
    B = B @ sparse.diags(free)
    size = abs(B).max() if B.nnz else 0.0
    if not size > 1e-100:  # nothing moves these rows
        return np.zeros(n)
    matrix = sparse.bmat([[sparse.eye(n), B.T], [B, -_DAMPING * size**2 * sparse.eye(rows)]], format="csc")
    return splu(matrix).solve(np.concatenate([np.zeros(n), wanted]))[:n]


def closed(
    at: Callable[[np.ndarray], AtState],
    retract: Callable[[np.ndarray, np.ndarray], np.ndarray],
    q: np.ndarray,
    free: np.ndarray,
    most: int = MOST_TURNS,
) -> ClosedAt:
    """Move q onto the holonomic constraints, in at most so many turns.

    ``at(q)`` gives the equations there. ``free`` (n,) is one for what may move, else zero.
    """
    here = at(q)
    m = here.dims.m
    first = size = float(np.abs(here.g).max(initial=0.0))
    for _ in range(most):
        if size <= TOLERANCE * (1 + np.abs(q).max()):
            # One more correction costs little and leaves rounding.
            better = retract(q, least(here.B[:m], -here.g, free)) if size else q
            there = at(better) if size else here
            last = float(np.abs(there.g).max(initial=0.0))
            return ClosedAt(better, there, first, last) if last <= size else ClosedAt(q, here, first, size)
        step, share = least(here.B[:m], -here.g, free), 1.0
        step *= min(1.0, 1.0 / max(np.abs(step).max(), 1e-300))  # at most one radian, or one unit of length
        while share > 1e-4:
            moved = retract(q, share * step)
            there = at(moved)
            if np.linalg.norm(there.g) < (1 - 1e-4 * share) * np.linalg.norm(here.g):
                break
            share /= 2
        else:
            break
        q, here, size = moved, there, float(np.abs(there.g).max())
    return ClosedAt(q, here, first, size)
