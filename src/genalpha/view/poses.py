"""Positions and rotations over time, checked and in one form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from genalpha.view import checks

_ORTHOGONAL = 1e-3  # a larger error of a matrix or a quaternion is a mistake, not rounding


class Track(NamedTuple):
    """Positions ``x`` (K, 3) and unit quaternions ``p`` (K, 4), (w, x, y, z). Fixed ones have one row."""

    x: np.ndarray
    p: np.ndarray

    def rows(self, count: int) -> Track:
        """The track with so many rows, also if it is fixed."""
        return Track(*(np.broadcast_to(part, (count, part.shape[1])) for part in self))


def track(value: Any, count: int, what: str) -> tuple[Track, bool]:
    """The poses of a shape at ``count`` times, and whether its positions have two numbers.

    ``value`` is a position (2,) or (3,), an array of them (K, 2) or (K, 3), or a pair of one of these and
    rotations. None is the origin.

    >>> path, planar = track((np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([0.0, np.pi])), 2, "at")
    >>> path.x.tolist(), path.p.round(9).tolist(), planar
    ([[0.0, 1.0, 0.0], [2.0, 1.0, 0.0]], [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]], True)
    """
    if value is None:
        return Track(np.zeros((1, 3)), np.array([[1.0, 0.0, 0.0, 0.0]])), False
    x, R = value if isinstance(value, tuple) and len(value) == 2 and np.ndim(value[0]) else (value, None)
    x = checks.array(x, what)
    planar = x.ndim > 0 and x.shape[-1] == 2
    if x.ndim not in (1, 2) or x.shape[-1] not in (2, 3):
        raise ValueError(
            f"{what} has positions of shape {x.shape}: a position must have 2 or 3 numbers. "
            "Pass a position, or a tuple (position, rotation)"
        )
    if x.ndim == 2 and len(x) != count:
        raise ValueError(f"{what} has {len(x)} rows for {count} times: pass one for each time")
    x = np.pad(x.reshape(-1, x.shape[-1]), [(0, 0), (0, 3 - x.shape[-1])])
    p = np.array([[1.0, 0.0, 0.0, 0.0]]) if R is None else _quaternions(R, count, what)
    return Track(_short(x), _short(_continuous(p))), planar


def matrices(p: np.ndarray) -> np.ndarray:
    """The rotation matrices (K, 3, 3) of unit quaternions (K, 4)."""
    w, x, y, z = p.T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


def between(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotations (K, 3, 3) that turn z into the direction from start (K, 3) to end, and the distances (K,)."""
    along = end - start
    distance = np.linalg.norm(along, axis=1)
    z = np.where(distance[:, None] > 0, along, [0.0, 0.0, 1.0]) / np.where(distance > 0, distance, 1)[:, None]
    helper = np.where(np.abs(z[:, [2]]) < 0.9, [0.0, 0.0, 1.0], [1.0, 0.0, 0.0])
    x = np.cross(helper, z)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.stack([x, np.cross(z, x), z], axis=-1), distance


def _quaternions(value: Any, count: int, what: str) -> np.ndarray:
    """Quaternions (K, 4) or (1, 4) from angles about z, matrices or quaternions."""
    R = checks.array(value, f"rotation in {what}")
    if R.shape in ((), (count,)):
        half = 0.5 * np.atleast_1d(R)
        zero = np.zeros_like(half)
        return np.stack([np.cos(half), zero, zero, np.sin(half)], axis=1)
    if R.shape in ((3, 3), (count, 3, 3)):
        R = R.reshape(-1, 3, 3)
        error = np.abs(R @ R.transpose(0, 2, 1) - np.eye(3)).max()
        if error > _ORTHOGONAL or (np.linalg.det(R) < 0).any():
            raise ValueError(f"rotation in {what} is no rotation matrix: R Rᵀ = 1 and det R = 1 must hold")
        return _from_matrices(R)
    if R.shape in ((4,), (count, 4)):
        norm = np.linalg.norm(R.reshape(-1, 4), axis=1, keepdims=True)
        if np.abs(norm - 1).max() > _ORTHOGONAL:
            raise ValueError(f"rotation in {what} is no unit quaternion (w, x, y, z): divide it by its norm")
        return np.asarray(R.reshape(-1, 4) / norm)
    raise ValueError(
        f"rotation in {what} has shape {R.shape}: pass a matrix (3, 3), a quaternion (4,) or an angle "
        f"about z, or {count} of them"
    )


def _from_matrices(R: np.ndarray) -> np.ndarray:
    """Quaternions (K, 4) of rotation matrices (K, 3, 3), from the largest of |w|, |x|, |y| and |z|."""
    (a, b, c), (d, e, f), (g, h, i) = np.moveaxis(R, 0, -1)
    products = np.array(  # 4 times the outer product of the quaternion with itself
        [
            [1 + a + e + i, h - f, c - g, d - b],
            [h - f, 1 + a - e - i, b + d, c + g],
            [c - g, b + d, 1 - a + e - i, f + h],
            [d - b, c + g, f + h, 1 - a - e + i],
        ]
    )
    largest = products[range(4), range(4)].argmax(axis=0)
    p = products[largest, :, np.arange(len(R))]
    return np.asarray(p / np.linalg.norm(p, axis=1, keepdims=True))


def _continuous(p: np.ndarray) -> np.ndarray:
    """Quaternions with the signs for which each is near the one before it."""
    turned = np.einsum("ij,ij->i", p[1:], p[:-1]) < 0
    return p * np.where(np.cumsum([False, *turned]) % 2, -1.0, 1.0)[:, None]


def _short(rows: np.ndarray) -> np.ndarray:
    """One row if all are equal."""
    return rows[:1] if (rows == rows[0]).all() else rows
