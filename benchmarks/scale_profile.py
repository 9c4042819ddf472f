"""Where the time of a step of a large assembly goes: ``python -m benchmarks.scale_profile [N ...]``.

The pieces of a step are compiled as functions of their own, and run on the memory of a chain of rigid bodies
after some steps. A piece is multiplied by how often it runs in a mean step. Prints a table and writes it,
with a picture, to ``out/bench/``.
"""

from __future__ import annotations

import sys
import time
from typing import Any
from unittest import mock

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from benchmarks.measure import OUT, markdown
from benchmarks.scale_models import chain
from genalpha.backends.native.kernels import StartValues
from genalpha.backends.sparse import front
from genalpha.backends.sparse.code import SparseCode
from genalpha.compiler.program import Instructions
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given
from genalpha.run import arguments

SIZES = (1000, 100_000)  # pieces of smaller systems take less time than a call of them
METHODS = ("index3", "soi2")
H, REPEATS = 1e-3, 20
PIECES = ("prepare", "residual", "solve", "correct", "matrix", "factors", "finish")
SHOWN = (*PIECES, "rest")  # the rest: records, decisions, and memory that is no longer in caches


class Pieces(SparseCode):
    """The code of a run, with the pieces of a step as functions of their own."""

    plan_names = (*SparseCode.plan_names, *(f"{name}_piece" for name in (*PIECES, "nothing")))

    def _plans(self, once: Instructions) -> dict[str, Instructions]:
        stages = range(self.blocks.stages)
        correct = [part for k in stages for part in self.stream.correct(self.central, k)]
        return super()._plans(once) | {
            "prepare_piece": self.prepare(),
            "residual_piece": [part for k in stages for part in self.residual(k)],
            "solve_piece": [self.solve(k) for k in stages],
            "correct_piece": correct,
            "matrix_piece": self.matrix(),
            "factors_piece": self.factor(),
            "finish_piece": self.finish(),
            "nothing_piece": [],
        }


def profile(count: int, method: str) -> dict[str, float]:
    """Microseconds of each piece in a mean step, and of the whole step."""
    model = chain(count)
    steps = max(5, min(200, 2_000_000 // (20 * count)))
    times = H * np.arange(steps + 1)
    given = Given.of(times, np.diff(times), even=True)
    q, v = np.asarray(model.q0, dtype=float), np.asarray(model.v0, dtype=float)
    dims, _ = arguments.trace(model.system, 0.0, q, v, ())
    setup = Setup(model.system, given.suited(ga.methods.by_name(method, 0.8)), ga.Newton(), dims)
    with mock.patch.dict(front._CODES, {(False, False): Pieces}):
        run = front.begin(setup, StartValues(0.0, q, v, H), given, (), lambda state: np.zeros(0))
    runner: Any = run.runner
    out = np.empty((steps, runner.width))
    began = time.perf_counter()
    taken = runner.take(out)
    whole = (time.perf_counter() - began) / taken
    assert taken == steps, "the run failed"
    iterations, matrices = out[:, -4:-2].mean(axis=0)
    often = {"matrix": matrices, "factors": matrices, "prepare": 1.0, "finish": 1.0}
    call = least(runner, "nothing")
    found = {n: 1e6 * (least(runner, n) - call) * often.get(n, iterations) for n in PIECES}
    return found | {"rest": max(0.0, 1e6 * whole - sum(found.values())), "step": 1e6 * whole}


def least(runner: Any, name: str) -> float:
    """Seconds of a piece, the least of some runs."""
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        runner.memory.run(f"{name}_piece")
        times.append(time.perf_counter() - began)
    return min(times)


def picture(found: dict[tuple[int, str], dict[str, float]]) -> None:
    """Shares of the pieces, one bar for each size and method."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    labels, below = [f"{method}\nN = {count:,}" for count, method in found], np.zeros(len(found))
    totals = np.array([sum(x[name] for name in SHOWN) for x in found.values()])
    for name in SHOWN:
        share = np.array([x[name] for x in found.values()]) / totals
        axes.bar(labels, share, bottom=below, label=name)
        below += share
    axes.set_ylabel("share of a step")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(OUT / "scale_profile.png", dpi=150)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    sizes = tuple(map(int, sys.argv[1:])) or SIZES
    found = {(count, method): profile(count, method) for count in sizes for method in METHODS}
    rows = [[f"{n:,}", m, *(f"{x[name]:,.3g}" for name in (*SHOWN, "step"))] for (n, m), x in found.items()]
    table = markdown(["N", "method", *(f"{name} µs" for name in SHOWN), "whole step µs"], rows)
    print(table)
    (OUT / "scale_profile.md").write_text(table + "\n")
    picture(found)


if __name__ == "__main__":
    main()
