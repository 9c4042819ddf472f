"""ACB15 figure 2: multipliers of the index-3 method after a projection of the velocity, and their order."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from genalpha.convergence import slope
from reproduce.ACB15.top import METHODS, T_STAR, multipliers, relative_error, run
from reproduce.common import Check, Experiment, Result

STEPS = [1e-3 / 2**k for k in range(5)]
TITLE = "ACB15 figure 2: heavy top, λ after a velocity projection at t* = 0.7 s"


def measure() -> Result:
    errors: dict[str, dict[str, list[float]]] = {}
    for name in METHODS:
        errors[name] = {"before": [], "all": []}
        for h in STEPS:
            sol = run(name, h)
            error = relative_error(sol)
            errors[name]["before"].append(error[sol.t < T_STAR - 1e-9].max())
            errors[name]["all"].append(error.max())
    columns = [(name, part) for name in METHODS for part in ("before", "all")]
    titles = {"before": "t < t*", "all": "0 ≤ t ≤ 1"}
    lines = [
        "| h | " + " | ".join(f"{name}, {titles[part]}" for name, part in columns) + " |",
        "|---|" + "---|" * 6,
    ]
    for i, h in enumerate(STEPS):
        lines.append(f"| {h:g} | " + " | ".join(f"{errors[n][p][i]:.2e}" for n, p in columns) + " |")
    slopes = {(n, p): slope(STEPS, errors[n][p]) for n, p in columns}
    lines.append("| slope | " + " | ".join(f"{slopes[c]:.2f}" for c in columns) + " |")
    checks = [
        Check(f"{n}, {titles[p]}", value, 1.0 if (n, p) == ("index 3", "all") else 2.0, 0.15)
        for (n, p), value in slopes.items()
    ]
    return Result(errors, "\n".join(lines), checks)


def plot(errors: Any) -> Figure:
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, color in zip(METHODS, ("C0", "C1", "C2"), strict=True):
        sol = run(name, 1e-3)
        window = (sol.t >= 0.65) & (sol.t <= 0.8)
        shift = {"index 3": 0, "stabilized": 1200, "SOI2": 2400}[name]
        left.plot(sol.t[window], sol.lam_method[window] - shift, color=color, lw=0.8)
        left.text(0.745, -shift + 250, name, fontsize="small", color=color)
        for part, style in (("before", "--"), ("all", "-")):
            label = f"{name}, {'t < t*' if part == 'before' else '0 ≤ t ≤ 1'}"
            right.loglog(STEPS, errors[name][part], color + style, marker="o", ms=3, lw=0.9, label=label)
    exact = np.linspace(0.65, 0.8, 301)
    left.plot(exact, multipliers(exact), "k:", lw=0.6)
    left.set(xlabel="t [s]", title="λ for h = 1e-3 (dotted: exact), methods shifted", ylabel="λ")
    for order, at in ((1, 1e-1), (2, 3e-4)):
        right.loglog(STEPS, at * (np.array(STEPS) / STEPS[0]) ** order, "k:", lw=0.6)
        right.text(STEPS[-1], at * 16.0**-order * 1.2, f"order {order}", fontsize="x-small")
    right.set(xlabel="h", title="largest relative error of λ")
    right.grid(which="both", alpha=0.2)
    right.set_ylim(5e-7, 1.0)
    right.legend(fontsize="x-small", ncols=2, loc="lower right")
    return figure


EXPERIMENT = Experiment(
    name="ACB15-figure2",
    title=TITLE,
    paper="slope 2 for t < t*, slope 1 over [0, 1] with the projection; oscillations for about 100 steps",
    run=measure,
    plot=plot,
    notes=(
        "ρ∞ = 0.9, relative errors ‖λ(t_n) − λ_n‖/‖λ_n‖. The paper shows only the index-3 method. For "
        "comparison the stabilized method, which the paper recommends, and SOI2 are shown with the same "
        "projection."
    ),
)
