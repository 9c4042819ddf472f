"""What gradients of models of bodies and joints cost, with respect to all their numbers.

``taskset -c 1 python -m benchmarks.model_gradients`` prints the result and writes it to
``out/bench/model_gradients.json`` and ``.md``. The loss is a sum over all rows and coordinates. Its gradient
is that with respect to the args of the model (masses, inertias, stiffnesses, points of joints), q0 and v0.
Every model runs in a process of its own with an empty cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import genalpha as ga
from benchmarks.measure import OUT, cores, in_turns, markdown, plain, seconds, start_up
from benchmarks.mechanism_cases import CASES, chain
from genalpha import multibody as mb

TURNS = 7
RUNS = [
    ("chain of 10", 300),
    ("Stewart platform", 300),
    ("car", 300),
    ("chain of 100", 100),
    ("chain of 1,000", 30),
]
METHODS = ("index3", "soi2")
STEP = 1e-3


@dataclass
class Cost:
    """Times in seconds: first results, and later ones; and by how much forward and reverse mode differ."""

    model: str
    method: str
    steps: int
    numbers: int
    first_run: float
    first_gradient: float
    run: float
    gradient: float
    direction: float
    difference: float


def model(name: str) -> mb.Model:
    """A model, with closed joints."""
    if not name.startswith("chain"):
        return next(case.model() for case in CASES if case.name.startswith(name))
    found = chain(int(name.split()[-1].replace(",", "")))
    found.assemble()
    return found


def measure(name: str, method: str, steps: int) -> Cost:
    """The costs of one model."""
    start_up()
    of = model(name)
    system, q0, v0 = of.system, of.q0, of.v0
    at = (system.args, q0, v0)

    def run(args: Any, q0: Any, v0: Any) -> Any:
        return ga.solve(system, (0.0, steps * STEP), q0, v0, args=args, h=STEP, method=method).q

    weights = np.cos(np.arange(len(q0)))
    loss = lambda *x: jnp.sum(jnp.sin(run(*x)) @ weights)
    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    rng = np.random.default_rng(0)
    along = jax.tree.map(lambda x: rng.normal(size=np.shape(x)), at)
    forward = jax.jit(lambda: jax.jvp(loss, at, along)[1])
    first_run = seconds(lambda: run(*at))
    first_gradient = seconds(lambda: jax.block_until_ready(gradient(*at)))
    whole = [lambda: run(*at), lambda: jax.block_until_ready(gradient(*at))]
    times = in_turns([*whole, lambda: jax.block_until_ready(forward())], TURNS)
    leaves = zip(jax.tree.leaves(gradient(*at)), jax.tree.leaves(along), strict=True)
    reverse = float(sum(np.vdot(a, b) for a, b in leaves))
    numbers = sum(np.size(x) for x in jax.tree.leaves(at))
    difference = abs(float(forward()) - reverse) / abs(reverse)
    best = [min(taken) for taken in times]
    return Cost(
        name, method, steps, numbers, first_run, first_gradient, best[0], best[1], best[2], difference
    )


def _line(c: Cost) -> list[str]:
    first, times = (c.first_run, c.first_gradient), (1e3 * c.run, 1e3 * c.gradient)
    ratios = (c.gradient / c.run, c.direction / c.run)
    numbers = [*(f"{x:.1f}" for x in first), *(f"{x:.3g}" for x in times), *(f"{x:.1f}" for x in ratios)]
    return [c.model, c.method, f"{c.numbers:,}", *numbers, f"{c.difference:.0e}"]


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(asdict(measure(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
        return
    costs = []
    for name, steps in RUNS:
        for method in METHODS:
            command = [sys.executable, "-m", "benchmarks.model_gradients", name, method, str(steps)]
            with tempfile.TemporaryDirectory() as cache:
                environment = os.environ | {"GENALPHA_CACHE": cache}
                done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            costs.append(Cost(**json.loads(done.stdout.splitlines()[-1])))
    head = ["model", "method", "numbers", "first run, s", "first gradient, s", "run, ms", "gradient, ms"]
    head += ["gradient / run", "1 direction / run", "forward and reverse differ by"]
    lines = [_line(c) for c in costs]
    print(f"{cores()} cores\n\n{plain(head, lines)}")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "model_gradients.json").write_text(json.dumps([asdict(c) for c in costs], indent=1))
    (OUT / "model_gradients.md").write_text(markdown(head, lines) + "\n")


if __name__ == "__main__":
    main()
