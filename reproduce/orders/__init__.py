"""Measured orders of every method and coefficient family, component by component."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from genalpha.convergence import Study, study
from reproduce.common import MARKS, Check, Experiment, Result

FAMILIES = [
    ga.chung_hulbert(0.0),
    ga.chung_hulbert(0.2),
    ga.chung_hulbert(0.8),
    ga.chung_hulbert(1.0),
    ga.hht(-0.1),
    ga.hht(-1 / 3),
    ga.wbz(-0.3),
    ga.trapezoidal(),
    ga.stormer(),
]
# problem: what it has, coarsest step, end
CASES = {
    "wheel-on-rod": ("holonomic and nonholonomic", 0.01, 1.0),
    "double-pendulum": ("holonomic", 4e-3, 1.0),
    "rolling-disk": ("nonholonomic", 4e-3, 2.0),
    "spring-chain": ("none", 2.5e-3, 1.0),
}
COMPONENTS = ["q", "v", "a_alpha", "lam_method", "psi_method"]
TITLE = "Orders of SOI2 for every coefficient family"
Data = dict[tuple[str, str], Study]


def run() -> Result:
    symbols = " | ".join(MARKS[c][0] for c in COMPONENTS)
    lines = [
        f"| constraints | problem | coefficients | {symbols} |",
        "|---|---|---|" + "---|" * len(COMPONENTS),
    ]
    checks: list[Check] = []
    data: Data = {}
    for name, (kind, coarsest, t_end) in CASES.items():
        problem = ga.problems.get(name)
        for c in FAMILIES:
            if c.beta == 0 and problem.system.holonomic is not None:
                continue  # refused: positions could not be corrected
            steps = [coarsest / 2**i for i in range(4)]
            result = study(problem, ga.SOI2(c), h=steps, t_end=t_end)
            data[name, c.name] = result
            cells = [f"{result.slopes[s]:.2f}" if s in result.slopes else "–" for s in COMPONENTS]
            lines.append(f"| {kind} | {name} | {c.name} | {' | '.join(cells)} |")
            checks += [
                Check(f"{name} {c.name} {s}", result.slopes[s], 2.0, 0.15)
                for s in COMPONENTS
                if s in result.slopes
            ]
    return Result(data, "\n".join(lines), checks)


def plot(data: Data) -> Figure:
    """How the error depends on the family: errors of q at the smallest step."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    ax = figure.subplots()
    names = [c.name for c in FAMILIES]
    for problem in CASES:
        points = [(i, data[problem, n].errors["q"][-1]) for i, n in enumerate(names) if (problem, n) in data]
        where, errors = np.array(points).T
        ax.semilogy(where, errors, "o-", lw=0.8, label=problem)
    ax.set_xticks(range(len(names)), [n.replace("(", "\n(") for n in names], fontsize="x-small")
    ax.set_ylabel("error of q at the smallest h")
    ax.grid(alpha=0.2)
    ax.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="orders",
    title=TITLE,
    paper="JN08 theorem 1 and J11 theorem 6.1: order 2 for ratios below 1",
    run=run,
    plot=plot,
    notes=(
        "Least squares over four steps. ρ∞ = 1, the trapezoidal rule and Störmer's rule lie on the boundary "
        "of the theorems. With a start of second order they show order 2 here as well. Störmer's rule (β = "
        "0) is refused with holonomic constraints."
    ),
)
EXPERIMENTS = [EXPERIMENT]
