"""One chain of point masses and rods, written as a `System` and as an `Assembly`.

``python -m benchmarks.rods [links ...]`` prints a table and writes it to ``out/bench/``. Each row is measured
in a process of its own, with an empty cache of machine code. The first result includes all compilation. The
time of a step is the difference of a long and a short run, divided by the difference of their steps; the best
of some runs counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import Any

import jax.numpy as jnp
import numpy as np

import genalpha as ga
from benchmarks.measure import OUT, markdown, seconds

LINKS = (10, 18, 30, 60, 120)
H, SHORT, LONG = 1e-4, 20, 520
METHODS = ("soi2", "index3")


def start(links: int, straight: bool) -> np.ndarray:
    """Positions of a chain of length one that hangs from the origin, curved or in a straight line."""
    angles = np.zeros(links) if straight else np.linspace(0.3, 2.0, links)
    return np.cumsum(np.stack([np.cos(angles), np.sin(angles)], axis=1) / links, axis=0)


def as_system(links: int) -> ga.System:
    def rods(t: Any, q: Any) -> Any:
        d = jnp.diff(q.reshape(links, 2), axis=0, prepend=jnp.zeros((1, 2)))
        return 0.5 * (jnp.sum(d**2, axis=1) - links**-2.0)

    weight = np.tile([0.0, -9.81 / links], links)
    return ga.System(np.eye(2 * links) / links, lambda t, q, v: weight, rods)


def as_assembly(links: int) -> ga.Assembly:
    rod = lambda d: jnp.array([0.5 * (d @ d - links**-2.0)])
    weight = np.array([0.0, -9.81 / links])
    ends = np.stack([np.arange(links - 1), np.arange(1, links)], axis=1)
    parts = [
        ga.Part(mass=np.eye(2) / links, force=lambda t, q, v: weight, nodes=np.arange(links)),
        ga.Part(holonomic=lambda t, q: rod(q), nodes=[0]),
        ga.Part(holonomic=lambda t, q: rod(q[1] - q[0]), nodes=ends),
    ]
    return ga.Assembly(parts, space=ga.Euclidean(2), count=links)


def measured(kind: str, links: int, method: str, straight: bool) -> dict[str, Any]:
    """Seconds of the first result and of a step, iterations and matrices of a step, and the backend."""
    system = as_assembly(links) if kind == "Assembly" else as_system(links)
    q0 = start(links, straight).ravel()

    def run(steps: int) -> ga.Solution:
        return ga.solve(system, (0, steps * H), q0, 0 * q0, h=H, method=method, save="final")

    first = seconds(lambda: run(SHORT))
    sol = run(LONG)
    short, long = (min(seconds(lambda n=n: run(n)) for _ in range(5)) for n in (SHORT, LONG))  # type: ignore[misc]
    step, stats = (long - short) / (LONG - SHORT), sol.stats
    return {
        "first": first,
        "step": step,
        "iterations": stats.newton_iterations / LONG,
        "matrices": stats.jacobians / LONG,
        "backend": sol.backend,
    }


def child(*job: Any) -> dict[str, Any]:
    """The same in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.rods", "--child", json.dumps(job)]
        found = subprocess.run(
            command, env=os.environ | {"GENALPHA_CACHE": folder}, capture_output=True, text=True, check=True
        )
    return json.loads(found.stdout.splitlines()[-1])


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--child"]:
        print(json.dumps(measured(*json.loads(arguments[1]))))
        return
    head = [
        "links",
        "method",
        "start",
        "written as",
        "first s",
        "a step µs",
        "ratio",
        "iterations",
        "matrices",
    ]
    lines = []
    for links in map(int, arguments or LINKS):
        for method, straight in ((METHODS[0], False), (METHODS[0], True), (METHODS[1], False)):
            rows = {kind: child(kind, links, method, straight) for kind in ("System", "Assembly")}
            for kind, row in rows.items():
                ratio = row["step"] / rows["Assembly"]["step"]
                numbers = [f"{row['first']:.1f}", f"{1e6 * row['step']:.1f}", f"{ratio:.1f}"]
                work = [f"{row['iterations']:.1f}", f"{row['matrices']:.2f}"]
                assert row["backend"] == "native"
                lines.append(
                    [str(links), method, "straight" if straight else "curved", kind, *numbers, *work]
                )
                print(*lines[-1], flush=True)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "rods.md").write_text(markdown(head, lines))


if __name__ == "__main__":
    main(sys.argv[1:])
