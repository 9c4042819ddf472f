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
# The same for equations of first order: the direction of shifts, the smallest one relative to the first, and
# how many eigenvalues more are computed than are wanted.
_BESIDE, _LEAST, _MORE = 0.1 + 1j, 1e-9, 4
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


def smallest(E: Any, A: Any, count: int, first: float, vectors: int) -> tuple[np.ndarray, np.ndarray]:
    """At least ``count`` of the smallest eigenvalues, as :func:`eigenvalues` finds them near a shift.

    Those near the shift ``first`` may leave out smaller ones. Then the shift is moved towards zero. It is
    not zero, where the matrix is singular if a motion needs no force.
    """
    asked, size = min(count + _MORE, A.shape[0] - 2), first
    found = eigenvalues(E, A, asked, size * _BESIDE, vectors)
    while size > _LEAST * first:
        near = size * _BESIDE
        inside = np.abs(found[0] - near).max() - abs(near)  # all that are smaller were found
        if (np.abs(found[0]) <= inside + 1e-3 * abs(near)).sum() >= min(count, asked):
            break
        size *= 0.1
        try:
            found = eigenvalues(E, A, asked, size * _BESIDE, vectors)
        except RuntimeError:  # singular
            break
    return found


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
