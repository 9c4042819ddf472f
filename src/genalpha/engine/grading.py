"""Meshes whose intervals follow the steps of another run, smoothly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.ndimage import gaussian_filter1d

# Sizes of steps are smoothed over so many steps (the standard deviation of a Gaussian).
WIDTH = 48.0
# The first steps of a run are short for other reasons, and the last one ends with the span.
FIRST, LAST = 12, 2
# Points of the map for each step, and the fewest.
FINE, FEWEST = 2, 1000
# Steps must differ by this factor, the mean of 1/h to its largest value, for a graded mesh to be worth it.
WORTH = 3.0


class Grading(NamedTuple):
    """A smooth map from [0, 1] to the time span. Equal intervals become short where steps were short.

    ``ratio`` is the largest density of the mesh, relative to its mean.
    """

    map: CubicSpline
    ratio: float

    @classmethod
    def of(cls, t: np.ndarray) -> Grading | None:
        """The grading from the ends (N+1,) of the steps of a run; None if its steps are about equal."""
        h = np.diff(t)
        if len(h) < 4 * WIDTH:
            return None
        h[:FIRST], h[-LAST:] = h[FIRST], h[-LAST - 1]
        count = max(FEWEST, FINE * len(h))
        at, middle = np.linspace(0.0, 1.0, count + 1), (np.arange(len(h)) + 0.5) / len(h)
        sizes = np.exp(
            gaussian_filter1d(np.interp(at, middle, np.log(h)), WIDTH / len(h) * count, mode="nearest")
        )
        along = np.concatenate([[0.0], np.cumsum(0.5 * (sizes[1:] + sizes[:-1]))])
        ratio = float(along[-1] / count / sizes.min())
        if ratio < WORTH:
            return None
        times = t[0] + (t[-1] - t[0]) * along / along[-1]
        return cls(CubicSpline(at, times), ratio)

    def places(self, times: np.ndarray) -> np.ndarray:
        """The points of [0, 1] that are mapped to these times."""
        grid = self.map.x
        found = np.interp(times, self.map(grid), grid)
        for _ in range(3):
            found = np.clip(found - (self.map(found) - times) / self.map(found, 1), 0.0, 1.0)
        return found
