"""What a force costs that runs in Python: the time of a step, against the same force in machine code.

``python -m benchmarks.host_functions`` prints the result and writes it to ``out/bench/host_functions.md``. N
masses on nonlinear springs take given steps. ``--short`` takes few steps, to see that it works.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

import genalpha as ga
from benchmarks.measure import OUT, in_turns, markdown, start_up

SIZES = 1, 3, 10
REPEATS, STEPS, H = 7, 5_000, 1e-3


def slopes(t: float, q: np.ndarray, v: np.ndarray) -> tuple[Any, ...]:
    """The derivatives of the force."""
    return 0, np.diag(-np.cos(q)), 0


def forces(size: int) -> dict[str, Callable[..., Any]]:
    """The force in all ways."""
    numpy = lambda t, q, v: -np.sin(q)
    diagonal, nothing = np.eye(size, dtype=bool), np.zeros((size, size), dtype=bool)
    return {
        "machine code": lambda t, q, v: -jnp.sin(q),
        "NumPy, found": numpy,
        "NumPy, derivative given": ga.host(numpy, size, slopes),
        "NumPy, pattern given": ga.host(numpy, size, pattern=(None, diagonal, nothing)),
        "jnp in Python": ga.host(lambda t, q, v: -jnp.sin(q), size),
    }


def measured(size: int, steps: int, repeats: int) -> dict[str, float]:
    """Microseconds of a step in every way; the shortest of several runs counts."""
    q0, v0 = np.linspace(0.5, 1.0, size), np.zeros(size)
    systems = {name: ga.System(np.eye(size), force) for name, force in forces(size).items()}
    solve = lambda system: ga.solve(system, (0.0, steps * H), q0, v0, h=H, save="final")
    for system in systems.values():
        solve(system)
    calls = [lambda system=system: solve(system) for system in systems.values()]
    times = in_turns(calls, repeats)
    return {name: 1e6 * min(taken) / steps for name, taken in zip(systems, times, strict=True)}


def main() -> None:
    short = "--short" in sys.argv[1:]
    start_up()
    warnings.simplefilter("ignore", ga.HostWarning)
    steps, repeats = (100, 2) if short else (STEPS, REPEATS)
    found = {size: measured(size, steps, repeats) for size in SIZES}
    head = ["µs a step", *(f"N = {size}" for size in SIZES)]
    rows = [[name, *(f"{found[size][name]:.1f}" for size in SIZES)] for name in found[SIZES[0]]]
    text = markdown(head, rows)
    print(text)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "host_functions.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
