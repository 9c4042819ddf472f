"""What accuracy makes of a load that is much shorter than the run, at random times.

``python -m benchmarks.short_loads`` runs an oscillator of period 2π over 10 s with a Gaussian force, with and
without breakpoints around it. All forces have the same momentum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

import genalpha as ga
from benchmarks.measure import markdown

END, MOMENTUM = 10.0, 0.1 * np.sqrt(np.pi)
WIDTHS = (1e-3, 1e-2, 1e-1)
VANISHED = 6.0  # widths from its middle, the force has vanished
PLACES = np.random.default_rng(1).uniform(0.0, 1.0, 40)  # 0 and 1 are the first and last possible one
ACCURACIES = (1e-4, 1e-6, 1e-8)
RIGHT, WITH_STATUS, WRONG = "right", "fails with a status", "silently wrong"
HEAD = ("width", "accuracy", "breakpoints", RIGHT, WITH_STATUS, WRONG)


def load(t: jnp.ndarray, place: float, width: float) -> jnp.ndarray:
    return MOMENTUM / (width * np.sqrt(np.pi)) * jnp.exp(-(((t - place) / width) ** 2))


SYSTEM = ga.System(jnp.eye(1), lambda t, q, v, place, width: -q + load(t, place, width))


def exact(t: np.ndarray, place: float, width: float) -> np.ndarray:
    """q and v (2, K) at times when the force has vanished."""
    push, since = (t > place) * MOMENTUM * np.exp(-(width**2) / 4), t - place
    return np.stack([np.cos(t) + push * np.sin(since), -np.sin(t) + push * np.cos(since)])


def outcome(place: float, width: float, accuracy: float, breakpoints: Sequence[float]) -> str:
    """What becomes of a run. It is right if its error is at most the accuracy at all rows beside the load."""
    sol = ga.solve(
        SYSTEM,
        (0.0, END),
        [1.0],
        [0.0],
        args=(place, width),
        accuracy=accuracy,
        breakpoints=breakpoints,
        throw=False,
    )
    if not sol.success:
        return WITH_STATUS
    rows = np.abs(sol.t - place) > 0.99 * VANISHED * width
    true = exact(sol.t[rows], place, width)
    found = np.stack([sol.q[rows, 0], sol.v[rows, 0]])
    error = np.abs(found - true).max(axis=1) / np.abs(true).max(axis=1)
    return RIGHT if error.max() <= accuracy else WRONG


def line(width: float, accuracy: float, around: bool) -> list[str]:
    beside = VANISHED * width
    places = beside + PLACES * (END - 2 * beside)
    found = Counter(
        outcome(place, width, accuracy, [place - 0.999 * beside, place + 0.999 * beside] if around else [])
        for place in places
    )
    counts = [str(found[what]) for what in (RIGHT, WITH_STATUS, WRONG)]
    return [f"{width:g} s", f"{accuracy:.0e}", "around the load" if around else "none", *counts]


def main() -> None:
    cases = [
        (width, accuracy, around) for width in WIDTHS for accuracy in ACCURACIES for around in (False, True)
    ]
    print(f"{len(PLACES)} places:\n" + markdown(HEAD, [line(*case) for case in cases]))


if __name__ == "__main__":
    main()
