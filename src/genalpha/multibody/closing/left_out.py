"""Which redundant rows to leave out, so that the others stay independent while the mechanism moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

# A choice is good enough if forces of rows that are left out are shared with factors up to 1/GOOD. Another
# one must be better by the factor BETTER.
GOOD, BETTER = 0.1, 2.0
# Models with more rows are not looked at elsewhere. It would take too long.
MOST_ROWS = 120
# How many choices are improved, and how many exchanges of a row are compared at a time.
_TRIED, _SWAPS = 4, 24
_SINGULAR = 1e-9
# The mechanism moves so far, in radians or sizes, in so many steps to either side.
STEP, STEPS = 0.5, 6

Array = np.ndarray
Moved = Callable[[Array, Array], tuple[Array, Array] | None]


def along(start: Array, moved: Moved, matrix: Callable[[Array], Array]) -> list[Array]:
    """The matrices (m, n) of the rows, of length one, at positions to which the mechanism can move.

    ``moved(q, d)`` is the position after a step that is nearest to d and satisfies the rows, and the step, or
    None if there is no such position.
    """
    found = [matrix(start)]
    for sense in (1.0, -1.0):
        q: Array = start
        d = np.asarray(np.random.default_rng(0).normal(size=found[0].shape[1]) * sense)
        for _ in range(STEPS):
            step = moved(q, d)
            if step is None:
                break
            q, d = step
            found.append(matrix(q))
    return found


def chosen(left: list[int], matrices: list[np.ndarray], wanted: Sequence[int] = ()) -> list[int]:
    """The rows to leave out: those given, or others if these are much better somewhere.

    Rows that are ``wanted`` are kept if that is good enough.

    If N (m, d) are orthonormal combinations of rows that are zero, the rows D can be left out if N[D] is
    regular: the least singular value of the others is at least that of all rows times that of N[D].
    """
    nulls = [x for x in map(_combinations, matrices) if x.shape[1] == len(left)]
    if not nulls or not left:
        return left
    all_of = np.stack(nulls)
    quality = _quality(all_of, [left])[0]
    if quality >= GOOD:
        return left
    if wanted:
        others = all_of.copy()
        others[:, list(wanted)] = 0.0  # to leave these out would leave the others singular
        best, value = _best(others, left, BETTER * quality)
        if value >= GOOD:
            return best
    return _best(all_of, left, BETTER * quality)[0]


def good(left: list[int], rows: np.ndarray) -> bool:
    """Whether the others of rows (m, n) of length one are far from dependent, and these depend on them."""
    nulls = _combinations(rows)
    return nulls.shape[1] == len(left) and bool(_quality(nulls[None], [left])[0] >= GOOD)


def _best(nulls: np.ndarray, left: list[int], quality: float) -> tuple[list[int], float]:
    """The rows to leave out if that is better than some quality, or those given, and how good it is."""
    best, value, starts = left, quality, [*_starts(nulls)]
    for i in np.argsort(-_quality(nulls, starts), kind="stable")[:_TRIED]:
        found, own = _exchanged(nulls, starts[i])
        if own > value:
            best, value = found, own
        if value >= GOOD:
            break
    return sorted(best), value


def _combinations(rows: np.ndarray) -> np.ndarray:
    """Orthonormal combinations (m, d) of rows that are zero."""
    left, sizes, _ = np.linalg.svd(rows)
    sizes = np.concatenate([sizes, np.zeros(len(rows) - len(sizes))])
    return left[:, sizes < 1e-6]


def _quality(nulls: np.ndarray, choices: list[list[int]]) -> np.ndarray:
    """The least singular value of N[D] among all positions, for several choices D."""
    parts = nulls[:, np.array(choices)]  # positions, choices, rows, combinations
    return np.linalg.svd(parts, compute_uv=False)[..., -1].min(axis=0)


def _starts(nulls: np.ndarray) -> Iterator[list[int]]:
    """Choices that are good at one of the positions."""
    from scipy.linalg import qr

    for one in nulls:
        yield qr(one.T, mode="r", pivoting=True)[1][: one.shape[1]].tolist()


def _exchanged(nulls: np.ndarray, choice: list[int]) -> tuple[list[int], float]:
    """A better choice by exchanges of one row for another, and how good it is."""
    value = float(_quality(nulls, [choice])[0])
    while value < GOOD:
        swaps = _swaps(nulls, choice)
        found = _quality(nulls, swaps)
        if not found.max() > 1.01 * value:
            break
        choice, value = swaps[int(found.argmax())], float(found.max())
    return choice, value


def _swaps(nulls: np.ndarray, choice: list[int]) -> list[list[int]]:
    """The choices with one row exchanged for which the least determinant of N[D] is largest.

    With row i for the row at k, it is det N[D] times the entry (i, k) of N N[D]⁻¹.
    """
    left, sizes, right = np.linalg.svd(nulls[:, choice])
    sizes = np.maximum(sizes, _SINGULAR)[:, None, :]
    ratios = nulls @ (right.swapaxes(1, 2) / sizes) @ left.swapaxes(1, 2)
    least = (np.log(np.abs(ratios) + _SINGULAR) + np.log(sizes).sum(axis=2)[:, :, None]).min(axis=0)
    least[choice] = -np.inf
    best = np.argsort(-least, axis=None, kind="stable")[:_SWAPS]
    rows, places = np.unravel_index(best, least.shape)
    return [[*choice[:k], i, *choice[k + 1 :]] for i, k in zip(rows.tolist(), places.tolist(), strict=True)]
