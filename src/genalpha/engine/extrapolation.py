"""Extrapolation over step sizes: meshes, weights of the columns, and the estimated error of a combination.

A column is a run whose steps divide every interval of a mesh into the same number of parts. The errors of
columns have an expansion in powers of 1/k for k parts (docs/theory.md), so a combination of p columns is of
order p + 1.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from genalpha.engine.grading import Grading

# The coarsest column has this many steps in an interval, each other column has one more than the one before.
COARSEST = 2
# A run starts with this fraction of its usual step, and reaches the usual one after so many intervals. Errors
# of a_α at the start, which are not part of the expansion, are proportional to h³ there, and decay meanwhile.
# With a smaller fraction steps grow so fast that the expansion says little (docs/theory.md).
START, RAMP = 0.1, 6
# The estimated error, as a multiple of the difference between the last two combinations: this times the ratio
# of that difference to the one before, and at least the second.
RATIO, LEAST = 4.0, 0.5
# The same multiple for columns that do not converge: their differences may be small by chance.
CHANCE = 20.0
# Rounding errors of a combination are about the first multiple of ε √steps, and those of Newton's method are
# about the second of its tolerance, times the sum of all weights.
ROUNDING, NEWTON = 4.0, 0.3
# The distance from a breakpoint at which segments start and end, relative to the largest time.
BESIDE = 4 * float(np.finfo(float).eps)
# Columns that converge have a ratio below this one.
CONVERGING = 0.5


def divisions(columns: int, even: bool = False) -> tuple[int, ...]:
    """The numbers of steps in an interval, from the coarsest column to the finest; only even ones if wanted.

    >>> divisions(4), divisions(4, even=True)
    ((2, 3, 4, 5), (2, 4, 6, 8))
    """
    stride = 2 if even else 1
    return tuple(range(COARSEST, COARSEST + stride * columns, stride))


@functools.lru_cache(maxsize=64)
def weights(parts: tuple[int, ...]) -> np.ndarray:
    """The weights (p,) of columns with so many steps in an interval. They eliminate h², h³, ..., h^p.

    >>> weights((1, 2)).round(12).tolist()  # Richardson's
    [-0.333333333333, 1.333333333333]
    """
    steps = 1 / np.array(parts, dtype=float)
    powers = [0, *range(2, len(parts) + 1)]
    return np.linalg.solve(steps ** np.array(powers)[:, None], np.eye(len(parts))[0])


class Accurate(NamedTuple):
    """What is wanted of an extrapolated run.

    ``accuracy`` (2, n) is the largest relative error of q and v. If it is None, there is one attempt with
    ``intervals`` equal intervals. ``divisions`` are the numbers of steps in an interval, one for each column.
    ``ends`` are the start, the breakpoints and the end. An attempt takes at most ``most`` steps. ``forces``
    is the largest error of λ and of ψ, relative to the largest of them; None if any error will do.
    """

    accuracy: np.ndarray | None
    intervals: int | None
    divisions: tuple[int, ...]
    ends: tuple[float, ...]
    most: int
    forces: float | None = None
    even: bool = False

    def alternating(self) -> Accurate:
        """The same for methods with errors that alternate from step to step and do not decay.

        Rows are then at even numbers of steps of every column, where these errors have the same sign.
        """
        return self._replace(divisions=divisions(len(self.divisions), even=True), even=True)


class StepMesh(NamedTuple):
    """The intervals of a run between ``ends`` (S+1,): its start, its breakpoints, and its end.

    Segment i between two of these has ``counts[i]`` intervals. After each of the ends the run starts anew. If
    the mesh is ``smooth``, steps are short there, and grow smoothly. Otherwise they are equal. Apart from
    this, intervals are equal or follow a ``grading``.
    """

    ends: tuple[float, ...]
    counts: tuple[int, ...]
    smooth: bool = True
    grading: Grading | None = None

    @classmethod
    def of(
        cls, ends: tuple[float, ...], count: int, smooth: bool = True, grading: Grading | None = None
    ) -> StepMesh:
        """A mesh with about ``count`` intervals. If it is smooth, short segments have a fair share."""
        lengths = np.diff(ends if grading is None else grading.places(np.array(ends)))
        share = lengths / lengths.sum()
        if smooth:
            share = np.maximum(share, 0.5 / len(share))
        least = RAMP if smooth else 1
        return cls(ends, tuple(max(least, math.ceil(count * part - 1e-9)) for part in share), smooth, grading)

    def segment(self, i: int, parts: int) -> np.ndarray:
        """The times of steps in segment i, if every interval has so many of them."""
        start, end = self.ends[i : i + 2]
        count = self.counts[i]
        xi = np.arange(count * parts + 1) / (count * parts)
        xi = _progress(xi, min(0.5, RAMP / count)) if self.smooth else xi
        if self.grading is None:
            times = start + (end - start) * xi
        else:
            first, last = self.grading.places(np.array([start, end]))
            times = self.grading.map(first + (last - first) * xi)
        # A force that jumps at a breakpoint is evaluated on the side of this segment.
        times[0] = start + (self.aside if i else 0.0)
        times[-1] = end - (self.aside if i + 2 < len(self.ends) else 0.0)
        return times

    @property
    def aside(self) -> float:
        """The distance from a breakpoint at which segments start and end."""
        return BESIDE * max(abs(self.ends[0]), abs(self.ends[-1]))

    @property
    def intervals(self) -> int:
        return sum(self.counts)


def _progress(xi: np.ndarray, ramp: float) -> np.ndarray:
    """A smooth map of [0, 1] whose slope grows from START to a constant within ``ramp``."""
    x = np.minimum(xi / ramp, 1.0)
    rise = x**5 * (7 - 14 * x + 10 * x**2 - 2.5 * x**3)  # the integral of a smooth step from 0 to 1
    whole = START * xi + (1 - START) * (ramp * rise + np.maximum(xi - ramp, 0.0))
    return whole / whole[-1]


class Sizes(NamedTuple):
    """The accuracy wanted in each component times the size of the motion: of q and of v, (n,) each."""

    q: np.ndarray
    v: np.ndarray

    @classmethod
    def of(cls, accuracy: np.ndarray, q: np.ndarray, v: np.ndarray, span: float) -> Sizes:
        """From the accuracy (2, n), magnitudes of q and v at rows (K, n), and the time that they take.

        The size of a component is its largest magnitude, and at least a hundredth of the root mean square of
        all sizes. Errors of v are not wanted smaller than those that move q by rounding in this time:
        velocities of a mechanism that cannot move are nothing but rounding.
        """

        def size(x: np.ndarray) -> np.ndarray:
            largest = np.abs(x).max(axis=0, initial=0.0)
            least = 0.01 * math.sqrt(np.mean(largest**2)) if largest.size else 0.0
            return np.maximum(largest, least) + np.finfo(float).tiny

        of_q = size(q)
        return cls(accuracy[0] * of_q, np.maximum(accuracy[1] * size(v), np.finfo(float).eps * of_q / span))

    def norm(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Differences of q and v at rows (K, n) in units of the accuracy: root mean squares (K,)."""
        both = np.concatenate([q / self.q, v / self.v], axis=1)
        return np.sqrt(np.mean(both**2, axis=1)) if both.size else np.zeros(len(both))


class Judgement(NamedTuple):
    """The error of a combination in units of the accuracy, at rows (K,) and the largest.

    ``ratio`` is the ratio of the last two differences between combinations. ``factor`` is the multiple of the
    last difference that is the estimate. ``rounding`` is the part of the error that is due to rounding.
    """

    rows: np.ndarray
    error: float
    ratio: float
    factor: float
    rounding: float

    @property
    def converging(self) -> bool:
        return self.ratio < CONVERGING


def judged(sizes: Sizes, accuracy: np.ndarray, parts: tuple[int, ...], noise: float, of: Any) -> Judgement:
    """The estimated error.

    ``of`` are the last difference of combinations and the one before, (q, v) each. ``noise`` is the relative
    error of the columns that does not depend on their steps (see :func:`noise`).
    """
    last, before = (sizes.norm(*difference) for difference in of)
    largest, earlier = last.max(initial=0.0), before.max(initial=0.0)
    ratio = float(largest / earlier) if earlier > 0 else float(largest > 0)
    factor = max(RATIO * ratio, LEAST) if ratio < CONVERGING else CHANCE
    rounding = float(np.abs(weights(parts)).sum() * noise / np.min(accuracy))
    rows = factor * last + rounding
    rows[0] = 0.0
    return Judgement(rows, float(factor * largest + rounding), ratio, factor, rounding)


def noise(steps: int, tol: float) -> float:
    """Relative errors of a column with so many steps that come from rounding and from Newton's tolerance."""
    return ROUNDING * float(np.finfo(float).eps) * math.sqrt(steps) + NEWTON * tol


def more(judgement: Judgement, columns: int) -> float:
    """By how much the number of intervals must grow."""
    if not judgement.converging:
        return 3.0
    excess = max(judgement.error - judgement.rounding, 1e-300) / max(1 - judgement.rounding, 0.1)
    return min(max(1.1 * excess ** (1 / (columns + 1)), 1.25), 8.0)


def columns_for(accuracy: float) -> int:
    """The number of columns that is cheapest for an accuracy."""
    return 3 if accuracy > 3e-4 else 4 if accuracy > 3e-6 else 5 if accuracy > 3e-10 else 6
