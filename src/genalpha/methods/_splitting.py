"""Which coordinates depend on the others: YPR98 definition 3.1, from LU or QR of Gᵀ."""

from __future__ import annotations

from typing import Literal

import jax.numpy as jnp
from jax import Array

from genalpha import linear

Factorization = Literal["lu", "qr"]

# A split is kept while the dependent coordinates move at most this many times faster than others,
WORST = 5.0
# and G has lost its rank where a new one leaves less than this of a row.
LOST = 1e-10


def choose(G: Array, by: Factorization) -> tuple[Array, Array]:
    """Y (n, m) of a new split for G (m, n), and how much of each row of G it leaves (m,), of size one.

    "lu": Gaussian elimination with row pivoting of Gᵀ, (3.8); the columns of Y are those of the identity that
    belong to the pivots, in their order, so that GY needs no pivots any more. "qr": an orthonormal basis of
    the range of Gᵀ, remark 3.2; there GY is lower triangular.
    """
    return (_lu if by == "lu" else _qr)(G)


def _lu(G: Array) -> tuple[Array, Array]:
    m, n = G.shape
    columns, free = [G[k] for k in range(m)], jnp.ones(n)
    chosen, left = [], []
    for k in range(m):
        at = (jnp.arange(n) == jnp.argmax(jnp.abs(columns[k]) * free)).astype(float)
        pivot = at @ columns[k]
        free = free - at
        multiples = free * columns[k] / jnp.where(pivot == 0, 1.0, pivot)
        for j in range(k + 1, m):
            columns[j] = columns[j] - multiples * (at @ columns[j])
        chosen.append(at)
        left.append(jnp.abs(pivot))
    return jnp.stack(chosen, axis=1), _relative(jnp.stack(left), G)


def _qr(G: Array) -> tuple[Array, Array]:
    rows = [G[k] for k in range(len(G))]
    basis, left = [], []
    for k in range(len(G)):
        size = jnp.sqrt(rows[k] @ rows[k])
        y = rows[k] / jnp.where(size == 0, 1.0, size)
        for j in range(k + 1, len(G)):
            rows[j] = rows[j] - (y @ rows[j]) * y
        basis.append(y)
        left.append(size)
    return jnp.stack(basis, axis=1), _relative(jnp.stack(left), G)


def _relative(left: Array, G: Array) -> Array:
    size = jnp.max(jnp.abs(G), axis=1)
    return left / jnp.where(size == 0, 1.0, size)


def ratio(G: Array, Y: Array) -> Array:
    """The largest entry of (GY)⁻¹G: how fast dependent coordinates move, seen from the others."""
    return jnp.max(jnp.abs(linear.solve_in_order(G @ Y, G)))


def multipliers(G: Array, Y: Array, r: Array) -> Array:
    """s = −(GY)⁻ᵀYᵀr (m,) below (3.7), with the transposes that it lacks: P r = Xᵀ(r + Gᵀs)."""
    return -linear.solve_in_order(Y.T @ G.T, Y.T @ r)
