"""Which rows of a constraint matrix are independent."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

# Rows are redundant if a combination of the others comes as close to them, in units of their length.
RANK = 1e-8
# A row is one of the first that are independent if it is as far from those before it.
CLEAR = 0.02
# The most rows whose rank is found with dense matrices.
DENSE = 1500
# With sparse ones, squares of distances are found. This is added to them, and smaller ones count as zero.
_ADDED, _ZERO = 1e-11, 1e-9


def independent(B: Any) -> np.ndarray:
    """Numbers of rows of B (m, n), sparse, that are independent."""
    unit = unit_rows(B)
    return _dense(unit.toarray()) if B.shape[0] <= DENSE else _sparse(unit.tocsr())


def unit_rows(B: Any) -> Any:
    """The rows of B (m, n), sparse, with length one."""
    lengths = np.sqrt(np.asarray(B.multiply(B).sum(axis=1)).reshape(-1))
    return sparse.diags(1 / np.where(lengths > 0, lengths, 1.0)) @ B


def _dense(unit: np.ndarray) -> np.ndarray:
    """The first rows where they are far enough from each other, so that few joints have rows left out."""
    if not unit.size:
        return np.zeros(0, int)
    triangle, order = scipy.linalg.qr(unit.T, mode="r", pivoting=True)
    best = np.sort(order[: int((np.abs(np.diagonal(triangle)) > RANK).sum())])
    if len(best) == len(unit):
        return best
    first: list[int] = []
    basis = np.zeros((unit.shape[1], 0))
    for i, row in enumerate(unit):
        rest = row - basis @ (basis.T @ row)
        rest -= basis @ (basis.T @ rest)
        if np.linalg.norm(rest) > CLEAR:
            first.append(i)
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
    return np.array(first) if len(first) == len(best) else best


def _sparse(unit: Any) -> np.ndarray:
    """From the pivots of B Bᵀ + δ: squares of the distances of rows from those before them, and δ."""
    matrix = (unit @ unit.T + _ADDED * sparse.eye(unit.shape[0])).tocsc()
    factors = splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
    return np.flatnonzero(np.abs(factors.U.diagonal())[factors.perm_c] > _ZERO)
