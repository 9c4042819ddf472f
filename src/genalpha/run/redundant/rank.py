"""Rows of a matrix that depend on each other: which to keep, what the others are made of, and multipliers.

NumPy only; rows are those of the constraint matrix (G; K), holonomic ones first, divided by their lengths.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Rows are chosen such that the others are combinations of them with factors up to WELL (unless a row of
# the other kind would have to go), and chosen anew where a factor exceeds WORST.
WELL, WORST = 2.0, 5.0
_TIE = 1e-6  # rows whose lengths differ by less are taken in their order


Kept = tuple[int, ...]


def choose(rows: np.ndarray, m: int, tolerance: float, most: tuple[int, int] | None = None) -> Kept:
    """Indices of independent rows among ``rows`` (R, n), as many as there are and well conditioned.

    The first ``m`` are holonomic, and as many of them as are independent are kept whatever the others are: a
    velocity constraint in the place of a position constraint would let positions drift. Of each kind the row
    farthest from the span of those taken comes next, until none is farther than ``tolerance`` or there are as
    many as ``most`` (holonomic, other); this is QR of the transpose with pivots, and rounding does not decide
    between rows that are equal.

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
    """Rows left out in the place of rows kept, as long as that makes the volume of those kept much larger."""
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
    """|factors| (..., d, r) of rows by which a row left out can be replaced: those of its own kind."""
    count = sum(factors.shape[-2:])
    kind = np.array(left_out(kept, count), dtype=int)[:, None] < m
    return np.abs(factors) * (kind == (np.array(kept, dtype=int) < m))


def worst(factors: np.ndarray, kept: Kept, m: int) -> np.ndarray:
    """The largest factor (...) that another choice of rows would make smaller."""
    return _within_kinds(factors, kept, m).max(axis=(-2, -1), initial=0.0)


class Relation(NamedTuple):
    """What d rows left out are made of: ``factors`` (..., d, r) of the r rows kept, and what remains.

    ``rest`` (..., d) is the length of what is no combination of rows kept. ``smallest`` (...) is about the
    smallest singular value of the rows kept, at most √r below it; 0 where they are dependent.
    """

    factors: np.ndarray
    rest: np.ndarray
    smallest: np.ndarray


def relation(rows: np.ndarray, kept: list[int] | Kept) -> Relation:
    """How the other rows of ``rows`` (..., R, n) follow from those kept, by QR of the latter.

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


_TINY = 1e-30  # a pivot in the place of none: rows kept are dependent


def minimum_norm(factors: np.ndarray, of_kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Multipliers x (N, r) of rows kept and y (N, d) of others, of minimum norm, with a given force.

    Those of the rows kept alone would be ``of_kept`` (N, r). With rows (A; F A), all (x, y) with
    x + Fᵀy = of_kept exert the same force. For (I; F) = Q R, R upper triangular, the one of minimum norm is
    Q R⁻ᵀ of_kept. Rows that no other row is made of keep what they have.

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
