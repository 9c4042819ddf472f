"""Positions and rotations over time, checked and in one form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from genalpha.view import checks

_ROUNDED = 1e-3  # a larger error of a matrix or a quaternion is a mistake
_STILL = np.array([[1.0, 0.0, 0.0, 0.0]])


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
        return Track(np.zeros((1, 3)), _STILL), False
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
    p = _STILL if R is None else quaternions(rotations(R, f"rotation in {what}", count))
    return Track(_short(x), _short(_continuous(p))), planar


def matrices(p: np.ndarray) -> np.ndarray:
    """The rotation matrices (..., 3, 3) of unit quaternions (..., 4). NumPy needs no compilation."""
    return np.asarray(Rotation.from_quat(np.roll(p, -1, axis=-1)).as_matrix())


def quaternions(R: np.ndarray) -> np.ndarray:
    """The unit quaternions (..., 4), (w, x, y, z) with w ≥ 0, of rotation matrices (..., 3, 3)."""
    return np.roll(Rotation.from_matrix(R).as_quat(canonical=True), 1, axis=-1)


def rotations(value: Any, what: str, count: int = 1) -> np.ndarray:
    """Rotation matrices (K, 3, 3) from matrices, unit quaternions (w, x, y, z) or angles about z.

    Rotations of SciPy are taken too. K is one, or ``count``. Matrices and quaternions with three correct
    digits are made exact.

    >>> rotations(np.pi / 2, "rotation").round(9)[0].tolist()
    [[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    >>> rotations([1.0, 1.0, 0.0, 0.0], "rotation of 'arm'")
    Traceback (most recent call last):
    ValueError: rotation of 'arm' is a quaternion of length 1.41421: divide it by its length
    """
    R = checks.array(value.as_matrix() if hasattr(value, "as_matrix") else value, what)
    if R.shape in ((), (count,)):
        c, s = np.cos(np.atleast_1d(R)), np.sin(np.atleast_1d(R))
        none = np.zeros_like(c)
        rows = [[c, -s, none], [s, c, none], [none, none, none + 1.0]]
        return np.moveaxis(np.array(rows), -1, 0)
    if R.shape in ((4,), (count, 4)):
        length = np.linalg.norm(R.reshape(-1, 4), axis=1)
        worst = length[np.argmax(np.abs(length - 1))]
        if abs(worst - 1) > _ROUNDED:
            raise ValueError(f"{what} is a quaternion of length {worst:.6g}: divide it by its length")
        return matrices(R.reshape(-1, 4))
    if R.shape not in ((3, 3), (count, 3, 3)):
        many = f", or {count} of them" if count > 1 else ""
        raise ValueError(
            f"{what} has shape {R.shape}: pass a matrix (3, 3), a quaternion (4,) or an angle about z{many}"
        )
    R = R.reshape(-1, 3, 3)
    gap, det = np.abs(R.transpose(0, 2, 1) @ R - np.eye(3)).max(), np.linalg.det(R).min()
    if gap > _ROUNDED or det < 0:
        raise ValueError(
            f"{what} is not orthonormal and right-handed: RᵀR differs from one by {gap:.2g}, "
            f"its determinant is {det:.3g}"
        )
    u, _, vt = np.linalg.svd(R)
    return np.asarray(u @ vt)


def between(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rotations (K, 3, 3) that turn z into the direction from start (K, 3) to end, and the distances (K,)."""
    along = end - start
    distance = np.linalg.norm(along, axis=1)
    z = np.where(distance[:, None] > 0, along, [0.0, 0.0, 1.0]) / np.where(distance > 0, distance, 1)[:, None]
    helper = np.where(np.abs(z[:, [2]]) < 0.9, [0.0, 0.0, 1.0], [1.0, 0.0, 0.0])
    x = np.cross(helper, z)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.stack([x, np.cross(z, x), z], axis=-1), distance


def _continuous(p: np.ndarray) -> np.ndarray:
    """Quaternions with the signs for which each is near the one before it."""
    turned = np.einsum("ij,ij->i", p[1:], p[:-1]) < 0
    return p * np.where(np.cumsum([False, *turned]) % 2, -1.0, 1.0)[:, None]


def _short(rows: np.ndarray) -> np.ndarray:
    """One row if all are equal."""
    return rows[:1] if (rows == rows[0]).all() else rows
