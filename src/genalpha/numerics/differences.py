"""Derivatives by differences of functions of NumPy arrays, and a check of derivatives that a user gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Function = Callable[[np.ndarray], np.ndarray]
EPS = float(np.finfo(float).eps)
# The step of differences with two points. The error is about STEP² for a function of size and scale one.
STEP = EPS ** (1 / 3)
# How much a given derivative may differ from differences, relative to its largest entry.
_TOLERANCE = 1e-5


def wide_step(depth: int) -> float:
    """The step of differences with four points, nested ``depth`` deep: 7e-4, 3e-3, 1e-2.

    The error of the innermost values is that of rounding. Each difference makes it larger.
    """
    return EPS ** (0.8 ** (depth - 1) / 5)


def jacobian(
    function: Function, x: np.ndarray, step: float, four: bool, scale: float, groups: Sequence[np.ndarray]
) -> np.ndarray:
    """The derivatives (..., N) of an array (...) with respect to x (N,).

    Steps are ``step`` times the larger of |x| and ``scale``. The columns of a group are found together: no
    entry of the function depends on two of them. With ``four`` points a difference is of fourth order.
    """
    sizes = step * np.maximum(np.abs(x), scale)
    result: np.ndarray | None = None
    for group in groups:
        shift = np.zeros_like(x)
        shift[group] = (x[group] + sizes[group]) - x[group]  # a step that the sum represents exactly
        found = function(x + shift) - function(x - shift)
        if four:
            found = (8 * found - (function(x + 2 * shift) - function(x - 2 * shift))) / 6
        if result is None:
            result = np.zeros((*found.shape, x.size))
        result[..., group] = found[..., None] / (2 * shift[group])
    return np.zeros((*function(x).shape, 0)) if result is None else result


def one_by_one(count: int) -> list[np.ndarray]:
    """Groups of one column each."""
    return [np.array([k]) for k in range(count)]


def grouped(pattern: np.ndarray) -> list[np.ndarray]:
    """Groups of columns of a pattern (M, N) in which no row has two entries, largest columns first.

    >>> [group.tolist() for group in grouped(np.array([[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]], bool))]
    [[1, 3], [2, 0]]
    """
    rows: list[np.ndarray] = []
    groups: list[list[int]] = []
    for k in np.argsort(-pattern.sum(axis=0), kind="stable").tolist():
        column = pattern[:, k]
        for group, taken in zip(groups, rows, strict=True):
            if not (taken & column).any():
                group.append(k)
                taken |= column
                break
        else:
            groups.append([k])
            rows.append(column.copy())
    return [np.array(group) for group in groups]


class WrongEntry(NamedTuple):
    """An entry of a derivative that differs from differences."""

    at: tuple[int, ...]
    given: float
    found: float


def wrong_entry(given: np.ndarray, function: Function, x: np.ndarray, scale: float) -> Any:
    """The entry of a derivative (..., N) that is furthest from differences; None if all are close enough.

    At a kink, every value between the derivatives of both sides is right. Raises FloatingPointError if the
    values are not finite, so that nothing can be said.
    """
    sizes, here = STEP * np.maximum(np.abs(x), scale), function(x)
    sides = np.zeros((2, *here.shape, x.size))
    for k in range(x.size):
        shift = np.zeros_like(x)
        shift[k] = sizes[k]
        sides[0, ..., k] = (function(x + shift) - here) / sizes[k]
        sides[1, ..., k] = (here - function(x - shift)) / sizes[k]
    if not (np.isfinite(sides).all() and np.isfinite(given).all()):
        raise FloatingPointError
    noise = 100 * EPS * np.abs(here).max(initial=0.0) / sizes
    allowed = _TOLERANCE * np.abs(sides).max(initial=0.0) + noise
    away = np.maximum(sides.min(axis=0) - given, given - sides.max(axis=0)) - allowed
    if away.max(initial=0.0) <= 0:
        return None
    at = tuple(int(i) for i in np.unravel_index(int(away.argmax()), away.shape))
    return WrongEntry(at, float(given[at]), float(sides.mean(axis=0)[at]))
