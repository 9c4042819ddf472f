"""Eigenvalues of large constrained systems near a shift, by sparse factors."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import LinearOperator, eigs, eigsh, splu

from genalpha.statics.tangent import saddle

# The shift, relative to the largest diagonal entry of stiffness over mass. It lies below zero, so that the
# matrix exists where motions need no force.
_SHIFT = 1e-9
_INFINITE = 1e8  # eigenvalues beyond this times the same entry belong to constraints


def curvatures(
    K: Any, M: Any, B: Any, unit: np.ndarray, count: int, near: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (count,) of K x = κ M x on B x = 0 nearest to a shift, with vectors (n, count).

    K is symmetric. By default the shift is just below zero. Vectors have unit mass.
    """
    n, rows = K.shape[0], B.shape[0]
    stiff = float(np.abs(K.diagonal() * unit**2).max(initial=0.0))
    if near is None:
        near = -_SHIFT * stiff
    solve = saddle(K - near * M, B.T, B, unit)
    inverse = lambda x: solve(np.concatenate([np.ravel(x), np.zeros(rows)]))[:n]
    start = inverse(np.random.default_rng(0).normal(size=n) / unit)  # in the null space of B
    operator = LinearOperator((n, n), matvec=inverse, dtype=float)
    values, vectors = eigsh(K, min(count, n - 2), M=M, sigma=near, OPinv=operator, v0=start, tol=1e-12)
    order = np.argsort(values)
    order = order[np.abs(values[order]) < _INFINITE * stiff]  # if fewer motions are free
    return values[order], vectors[:, order]


def eigenvalues(E: Any, A: Any, count: int, near: complex, vectors: int) -> tuple[np.ndarray, np.ndarray]:
    """Finite eigenvalues λ (count,) of λ E z = A z nearest to a shift, with the first entries of z.

    E may be singular, as that of equations with constraints.
    """
    factors = splu((A - near * E).tocsc().astype(complex))
    operator = LinearOperator(A.shape, matvec=lambda x: factors.solve(E @ np.ravel(x)), dtype=complex)
    start = factors.solve(E @ np.random.default_rng(0).normal(size=A.shape[0]).astype(complex))
    shifted, found = eigs(operator, count, v0=start, tol=1e-11)
    values = near + 1 / shifted
    order = np.lexsort((values.imag, np.abs(values)))
    return values[order], found[:vectors, order]


def first_order(K: Any, C: Any, M: Any, H: Any, drift: Any, B: Any, L: Any, m: int) -> tuple[Any, Any]:
    """The pencil (E, A) of d' = w − drift d, M w' = −K d − C w − L μ with G d = 0 and k(d, w) = 0.

    H (m + p, n) are derivatives of the rows for velocities, of which those from m on are nonholonomic.
    """
    n, rows = K.shape[0], B.shape[0]
    eye, none = sparse.eye(n), sparse.csc_matrix((rows, rows))
    E = sparse.block_diag([eye, M, none]).tocsc()
    of_positions = sparse.vstack([B[:m], H[m:]])
    of_speeds = sparse.vstack([sparse.csc_matrix((m, n)), B[m:]])
    A = sparse.bmat([[-drift, eye, None], [-K, -C, -L], [of_positions, of_speeds, none]]).tocsc()
    return E, A
