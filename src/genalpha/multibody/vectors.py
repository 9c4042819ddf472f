"""Vectors and rotations in few operations on arrays, which JAX traces faster than many on numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

EYE = np.eye(3)
_CYCLE = np.zeros((3, 3, 3))  # (a × b)_i = Σ CYCLE[i, k, j] a_j b_k
for _i, _j, _k in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
    _CYCLE[_i, _k, _j], _CYCLE[_i, _j, _k] = 1.0, -1.0


def skew(a: Any) -> Any:
    """The matrix (3, 3) with skew(a) b = a × b.

    >>> skew(np.array([1.0, 2.0, 3.0])).tolist()
    [[0.0, -3.0, 2.0], [3.0, 0.0, -1.0], [-2.0, 1.0, 0.0]]
    """
    return _CYCLE @ a


def cross(a: Any, b: Any) -> Any:
    """a × b (3,)."""
    return skew(a) @ b
