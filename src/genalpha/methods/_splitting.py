"""The split into dependent and independent coordinates: YPR98 definition 3.1, from LU or QR of Gᵀ."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jax import Array

from genalpha.numerics import linear

Factorization = Literal["lu", "qr"]

# A split is kept while dependent coordinates move at most this many times as fast as the others.
WORST = 5.0


def choose(G: Array, by: Factorization) -> Array:
    """Y (n, m) of a new split for G (m, n).

    "lu": Gaussian elimination of Gᵀ with row pivoting, (3.8). The columns of Y are the columns of the
    identity that belong to the pivots, in their order, so that GY needs no further pivoting. "qr": an
    orthonormal basis of the range of Gᵀ, remark 3.2; then GY is lower triangular.
    """
    return (_lu if by == "lu" else _qr)(G)


def _lu(G: Array) -> Array:
    m, n = G.shape
    columns, free = [G[k] for k in range(m)], jnp.ones(n)
    chosen = []
    for k in range(m):
        at = (jnp.arange(n) == jnp.argmax(jnp.abs(columns[k]) * free)).astype(float)
        pivot = at @ columns[k]
        free = free - at
        multiples = free * columns[k] / jnp.where(pivot == 0, 1.0, pivot)
        for j in range(k + 1, m):
            columns[j] = columns[j] - multiples * (at @ columns[j])
        chosen.append(at)
    return jnp.stack(chosen, axis=1)


def _qr(G: Array) -> Array:
    rows = [G[k] for k in range(len(G))]
    basis = []
    for k in range(len(G)):
        size = jnp.sqrt(rows[k] @ rows[k])
        basis.append(rows[k] / jnp.where(size == 0, 1.0, size))
        for j in range(k + 1, len(G)):
            rows[j] = rows[j] - (basis[k] @ rows[j]) * basis[k]
    return jnp.stack(basis, axis=1)


def ratio(G: Array, Y: Array) -> Array:
    """The largest entry of (GY)⁻¹G: how much faster than the others dependent coordinates move."""
    return jnp.max(jnp.abs(linear.solve_in_order(G @ Y, G)))


def multipliers(G: Array, Y: Array, r: Array) -> Array:
    """s = −(GY)⁻ᵀYᵀr (m,) below (3.7), with P r = Xᵀ(r + Gᵀs). The paper lacks the transposes."""
    return -linear.solve_in_order(Y.T @ G.T, Y.T @ r)
