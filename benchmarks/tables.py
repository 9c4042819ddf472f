"""What a look-up table costs: the time to compile it, and the time of a look-up.

``python -m benchmarks.tables`` prints the result and writes it to ``out/bench/tables.md``. A mass moves on a
spring whose force is −q³, by a formula or by a table that `jnp.interp` reads.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

import genalpha as ga
from benchmarks.measure import OUT, in_turns, markdown, plain, seconds, start_up

SIZES = 101, 1001, 10001
FIRSTS, REPEATS = 5, 11  # new systems, and runs; the shortest counts, since other programs disturb
STEPS = {"native": 200_000, "xla": 20_000}
H = 1e-3

Force = Callable[..., Any]


def forces(size: int) -> dict[str, tuple[Force, tuple[np.ndarray, ...]]]:
    """The force in all ways, with its arguments."""
    x = np.linspace(-2.0, 2.0, size)
    f = -(x**3)
    return {
        "formula": (lambda t, q, v: -(q**3), ()),
        "arguments": (lambda t, q, v, x, f: jnp.interp(q, x, f), (x, f)),
        "constants": (lambda t, q, v: jnp.interp(q, x, f), ()),
        "derived": (lambda t, q, v, x: jnp.interp(q, x, -(x**3)), (x,)),
    }


def run(system: ga.System, args: tuple[Any, ...], steps: int, backend: Any) -> ga.Solution:
    options: dict[str, Any] = {"h": H, "save": steps, "args": args, "backend": backend}
    return ga.solve(system, (0.0, steps * H), [1.0], [0.0], **options)


def measure(size: int, backend: str) -> list[list[str]]:
    """Lines: size, backend, way, seconds to the first result, nanoseconds of a step and of a look-up."""
    ways = forces(size)
    new = lambda way: partial(run, ga.System(jnp.eye(1), ways[way][0]), ways[way][1], backend=backend)
    first = {way: [seconds(partial(new(way), steps=10)) for _ in range(FIRSTS)] for way in ways}
    calls = [partial(new(way), steps=STEPS[backend]) for way in ways]
    work = [call().stats for call in calls]
    times = [1e9 * min(t) / STEPS[backend] for t in in_turns(calls, REPEATS)]
    lines = []
    for way, stats, step in zip(ways, work, times, strict=True):
        looked = stats.newton_iterations / STEPS[backend]
        cost = "" if way == "formula" else f"{(step - times[0]) / looked:.0f}"
        lines.append([str(size), backend, way, f"{min(first[way]):.2f}", f"{step:.0f}", cost])
    return lines


def main() -> None:
    os.environ["GENALPHA_CACHE"] = "off"
    start_up()
    for backend in STEPS:
        measure(SIZES[0], backend)  # the first system of a process takes longer
    head = ["points", "backend", "table", "first result, s", "step, ns", "look-up, ns"]
    lines = [line for size in SIZES for backend in STEPS for line in measure(size, backend)]
    print(plain(head, lines))
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "tables.md").write_text(markdown(head, lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
