"""Starting values of the index-3 method: what ACB15 section 3 says about E_0."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from genalpha.convergence import slope
from reproduce.ACB15.top import RHO, multipliers, top
from reproduce.common import Check, Experiment, Result

STEPS = [1e-3 / 2**k for k in range(4)]
STARTS = {"perturbed": 2.0, "second-order": 1.0, "a0": 1.0}
TITLE = "Largest error of λ in [0, 0.3] for three starts of the index-3 method"


def run() -> Result:
    data: dict[str, list[np.ndarray]] = {}
    for start in STARTS:
        method = ga.Index3(ga.chung_hulbert(RHO), start=start)  # type: ignore[arg-type]
        runs = [top().solve(t_end=0.3, h=h, method=method) for h in STEPS]
        data[start] = [np.linalg.norm(sol.lam_method - multipliers(sol.t), axis=1) for sol in runs]
    lines = ["| h | " + " | ".join(STARTS) + " |", "|---|" + "---|" * len(STARTS)]
    for i, h in enumerate(STEPS):
        lines.append(f"| {h:g} | " + " | ".join(f"{data[s][i].max():.3e}" for s in STARTS) + " |")
    slopes = {s: slope(STEPS, [e.max() for e in data[s]]) for s in STARTS}
    lines.append("| slope | " + " | ".join(f"{slopes[s]:.2f}" for s in STARTS) + " |")
    return Result(data, "\n".join(lines), [Check(s, slopes[s], STARTS[s], 0.2) for s in STARTS])


def plot(data: dict[str, list[np.ndarray]]) -> Figure:
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    ax = figure.subplots()
    for start, errors in data.items():
        ax.semilogy(np.arange(1, 151), errors[0][1:151], lw=1.0, label=start)
    ax.set(xlabel="step", ylabel="error of λ", title="h = 1e-3, ρ∞ = 0.9")
    ax.grid(alpha=0.2)
    ax.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="ACB15-start",
    title=TITLE,
    paper="E_n = O(h²) for ρ∞ < 1 if v_0, a_0 are such that E_0 = O(h²); consistent v_0 reduce the order",
    run=run,
    plot=plot,
    notes=(
        "'perturbed' starts from B v_0 = h² B r(t_0) and a_0 = v̇(t_0 + Δ_α h). 'second-order' starts from "
        "the same a_0 and the given v_0, and 'a0' from a_0 = v̇(t_0) and the given v_0."
    ),
)
