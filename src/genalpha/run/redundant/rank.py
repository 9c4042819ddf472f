"""Dependent rows of a matrix: which to keep, how the others depend on them, and multipliers.

It uses only NumPy. The rows are those of the constraint matrix (G; K), holonomic ones first, divided by their
lengths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Rows are chosen such that the others are combinations of them with factors up to WELL. (Only rows of the
# same kind are exchanged.) They are chosen again when a factor exceeds WORST.
WELL, WORST = 2.0, 5.0
_TIE = 1e-6  # if lengths differ by less, the first row is taken


Kept = tuple[int, ...]


def choose(rows: np.ndarray, m: int, tolerance: float, most: tuple[int, int] | None = None) -> Kept:
    """Indices of independent rows among ``rows`` (R, n), as many as possible and well conditioned.

    The first ``m`` rows are holonomic. As many of them as are independent are kept, because positions would
    drift if a velocity constraint replaced a position constraint. Then the others follow. Within each kind
    the next row is the one farthest from the span of those taken. This ends when none is farther than
    ``tolerance``, or when there are ``most`` (holonomic, other) rows. It is a QR factorization of the
    transpose with pivoting; between equal rows the choice does not depend on rounding.

    >>> choose(np.array([[1.0, 0.0], [1.0, 0.0], [0.6, 0.8]]), 3, 1e-11)
    (0, 2)
    """
    kept: list[int] = []
    rest = rows.copy()
    for kind, limit in zip((np.arange(m), np.arange(m, len(rows))), most or (m, len(rows)), strict=True):
        for _ in range(limit):
            lengths = np.linalg.norm(rest[kind], axis=1)
            longest = lengths.max(initial=0.0)
            if not longest > tolerance:
                break
            i = int(kind[np.argmax(lengths >= (1 - _TIE) * longest)])
            direction = rest[i] / np.linalg.norm(rest[i])
            rest -= np.outer(rest @ direction, direction)
            rest[i] = 0.0
            kept.append(i)
    return tuple(sorted(_exchanged(rows, m, kept)))


def _exchanged(rows: np.ndarray, m: int, kept: list[int]) -> list[int]:
    """Exchange rows kept for rows left out, as long as the volume of those kept grows by a factor > WELL."""
    for _ in range(10 * len(rows)):
        factors = _within_kinds(relation(rows, kept).factors, kept, m)
        if not factors.max(initial=0.0) > WELL:
            break
        i, j = np.unravel_index(factors.argmax(), factors.shape)
        kept[j] = left_out(kept, len(rows))[i]
    return kept


def left_out(kept: list[int] | Kept, count: int) -> list[int]:
    return [i for i in range(count) if i not in set(kept)]


def _within_kinds(factors: np.ndarray, kept: list[int] | Kept, m: int) -> np.ndarray:
    """|factors| (..., d, r), with zeros for pairs of different kinds, which must not be exchanged."""
    count = sum(factors.shape[-2:])
    kind = np.array(left_out(kept, count), dtype=int)[:, None] < m
    return np.abs(factors) * (kind == (np.array(kept, dtype=int) < m))


def worst(factors: np.ndarray, kept: Kept, m: int) -> np.ndarray:
    """The largest factor (...) that another choice of rows could reduce."""
    return _within_kinds(factors, kept, m).max(axis=(-2, -1), initial=0.0)


class Relation(NamedTuple):
    """How d rows left out depend on r rows kept: ``factors`` (..., d, r), and a remainder.

    ``rest`` (..., d) is the length of the part that is no combination of the rows kept. ``smallest`` (...)
    estimates the smallest singular value of the rows kept: it is too small by a factor of at most √r, and 0
    if they are dependent.
    """

    factors: np.ndarray
    rest: np.ndarray
    smallest: np.ndarray


def relation(rows: np.ndarray, kept: list[int] | Kept) -> Relation:
    """How the other rows of ``rows`` (..., R, n) depend on those kept, by QR of the latter.

    >>> relation(np.array([[1.0, 0.0], [3.0, 0.0]]), [0]).factors.round(12).tolist()
    [[3.0]]
    """
    base, others = rows[..., list(kept), :], rows[..., left_out(kept, rows.shape[-2]), :]
    Q, R = np.linalg.qr(np.swapaxes(base, -1, -2))
    R, diagonal = R.copy(), np.arange(len(kept))
    pivots = R[..., diagonal, diagonal]
    R[..., diagonal, diagonal] = np.where(np.abs(pivots) > _TINY, pivots, _TINY)
    inverse = np.linalg.inv(R)
    factors = others @ Q @ np.swapaxes(inverse, -1, -2)
    size = np.linalg.norm(inverse, axis=(-2, -1))
    smallest = 1 / np.maximum(size, 1e-300)
    return Relation(factors, np.linalg.norm(others - factors @ base, axis=-1), smallest)


_TINY = 1e-30  # replaces a zero pivot, which means that the rows kept are dependent


def minimum_norm(factors: np.ndarray, of_kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multipliers x (N, r) of rows kept and y (N, d) of the others, of minimum norm for a given force.

    ``of_kept`` (N, r) are the multipliers if only the rows kept act. With rows (A; F A), all (x, y) with
    x + Fᵀy = of_kept exert the same force. For (I; F) = Q R, R upper triangular, the one of minimum norm is
    Q R⁻ᵀ of_kept. If no row left out depends on a row kept, its multiplier does not change.

    >>> both = minimum_norm(np.array([[[1.0]]]), np.array([[3.0]]))  # a row given twice
    >>> [x.round(12).tolist() for x in both]
    [[[1.5]], [[1.5]]]
    """
    x, shared = of_kept.copy(), np.flatnonzero((factors != 0).any(axis=(0, 1)))
    count = len(shared)
    identity = np.broadcast_to(np.eye(count), (len(x), count, count))
    Q, R = np.linalg.qr(np.concatenate([identity, factors[:, :, shared]], axis=1))
    both = Q @ np.linalg.solve(np.swapaxes(R, 1, 2), x[:, shared, None])
    x[:, shared] = both[:, :count, 0]
    return x, both[:, count:, 0]
