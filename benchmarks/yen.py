"""What a step costs on the flexible slider crank, for 4 and 16 elements: ``python -m benchmarks.yen``."""

from __future__ import annotations

import statistics
import time
from functools import partial

import genalpha as ga

METHODS = ("soi2", "stabilized", "dae-alpha", "cs", "cm", "projected")
ELEMENTS = (4, 16)
STEPS, T_END, REPEATS = 1000, 0.5, 7


def main() -> None:
    print(
        "| method | k | unknowns | iterations a step | matrices a step | µs a step | first result | backend |"
    )
    print("|" + "---|" * 8)
    for k in ELEMENTS:
        problem = ga.problems.get("flexible-slider-crank", k=k)
        n, m = len(problem.v0), 2
        unknowns = {"soi2": 2 * (n + m), "stabilized": n + 2 * m, "dae-alpha": 2 * (n + m)}
        unknowns |= {"cs": 2 * n, "cm": 2 * n, "projected": 3 * (n + m)}
        for method in METHODS:
            run = partial(problem.solve, h=T_END / STEPS, t_end=T_END, method=method)
            begin = time.perf_counter()
            sol = run()
            first = time.perf_counter() - begin
            times = []
            for _ in range(REPEATS):
                begin = time.perf_counter()
                run()
                times.append(time.perf_counter() - begin)
            cost = 1e6 * statistics.median(times) / STEPS
            per = [x / sol.stats.steps for x in (sol.stats.newton_iterations, sol.stats.factorizations)]
            print(
                f"| {method} | {k} | {unknowns[method]} | {per[0]:.1f} | {per[1]:.2f} | {cost:.1f} | "
                f"{first:.1f} s | {sol.backend} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
