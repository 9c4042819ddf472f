"""Simulate a slider crank with the default method, print a summary and save a plot.

``make run`` runs this. It also works with any other named problem:
``python examples/slider_crank.py rolling-disk``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

import genalpha as ga


def main(name: str = "slider-crank", folder: str = "out") -> None:
    problem = ga.problems.get(name)

    def run() -> tuple[ga.Solution, float]:
        start = time.perf_counter()
        sol = problem.solve()
        return sol, time.perf_counter() - start

    _, first = run()  # traces and compiles, then runs
    sol, later = run()  # runs
    print(summary(problem, sol, first, later))
    path = Path(folder) / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    sol.plot(names=list(problem.coordinates)).savefig(path, dpi=110)
    print(f"plot                     {path}")


def summary(problem: ga.problems.Problem, sol: ga.Solution, first: float, later: float) -> str:
    """What happened, in a dozen lines."""
    stats, residuals = sol.stats, sol.residuals
    iterations = stats.newton_iterations
    lines = [
        f"{problem.title}, by {sol.method}: {sol.message}",
        f"time span                {sol.t[0]:g} to {sol.t[-1]:g} s, h = {problem.h:g} s",
        f"steps                    {stats.steps}",
        f"Newton iterations        {iterations}, {iterations / stats.steps:.2f} a step",
        f"new Newton matrices      {stats.jacobians}",
        "largest residuals        " + ", ".join(f"{k} {r.max():.1e}" for k, r in residuals._asdict().items()),
    ]
    if problem.energy is not None:
        row = int(np.searchsorted(sol.t, problem.conserved_from or 0.0))
        before, after = (
            float(problem.energy(sol.t[i], sol.q[i], sol.v[i], *problem.args)) for i in (row, -1)
        )
        kept = "conserved" if problem.conserved_from is not None else "not conserved"
        since = f"since {sol.t[row]:g} s, {kept} in truth"
        lines.append(f"energy change            {after - before:+.2e} J of {before:.4g} J {since}")
    if problem.reference is not None:
        true = problem.reference(sol.t[-1])
        error = np.linalg.norm(sol.q[-1] - true.q) / np.linalg.norm(true.q)
        lines.append(f"error of q at the end    {error:.1e} (relative, against {problem.reference.kind})")
    lines.append(f"compile time             {first - later:.2f} s")
    lines.append(f"run time                 {later * 1e3:.1f} ms, {later / stats.steps * 1e6:.1f} µs a step")
    return "\n".join(lines)


if __name__ == "__main__":
    main(*sys.argv[1:])
