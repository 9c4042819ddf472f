"""How the starting error of a, λ and ψ decays, compared with r of JN08 and r_γ, r_αf, r_αm of J11."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from reproduce.common import Check, Experiment, Result

H, STEPS = 1e-4, 100
TITLE = "Decay of the starting error from a_α = a_0"
# problem, ρ∞, and for each component the steps over which one factor dominates and its name
CASES = [
    ("jay-negrut", 0.9, {"a_alpha": ((1, 40), "r_gamma"), "psi_method": ((40, 80), "r_alpha_f")}),
    ("jay-negrut", 0.2, {"a_alpha": ((1, 6), "r_gamma"), "psi_method": ((3, 9), "r_alpha_f")}),
    ("rolling-disk", 0.9, {"a_alpha": ((1, 20), "r_alpha_m"), "psi_method": ((1, 60), "r_alpha_f")}),
    ("rolling-disk", 0.2, {"a_alpha": ((1, 5), "r_alpha_m"), "psi_method": ((1, 4), "r_alpha_f")}),
]
SYMBOLS = {"r_gamma": "r_γ", "r_alpha_f": "r_αf", "r_alpha_m": "r_αm = r"}
Data = dict[tuple[str, float], dict[str, np.ndarray]]


def starting_error(name: str, rho: float) -> dict[str, np.ndarray]:
    """Difference between runs from a_0 and from a_0 + αh a_0', after each step."""
    p = ga.problems.get(name)
    methods = [ga.SOI2(ga.chung_hulbert(rho), start=start) for start in ("a0", "second-order")]
    runs = [p.solve(t_end=STEPS * H, h=H, method=method) for method in methods]
    fields = ("a_alpha", "lam_method", "psi_method")
    return {f: np.linalg.norm(getattr(runs[0], f) - getattr(runs[1], f), axis=1) for f in fields}


def run() -> Result:
    lines = [
        "| problem | ρ∞ | component | measured | r_αm = r | r_γ | r_αf | described by |",
        "|---|" + "---|" * 7,
    ]
    checks: list[Check] = []
    data: Data = {}
    for name, rho, fits in CASES:
        c = ga.chung_hulbert(rho)
        data[name, rho] = starting_error(name, rho)
        for component, ((first, last), factor) in fits.items():
            n = np.arange(first, last + 1)
            fit = np.polyfit(n, np.log(data[name, rho][component][first : last + 1]), 1)
            measured = float(np.exp(fit[0]))
            symbol = {"a_alpha": "a", "psi_method": "ψ"}[component]
            ratios = f"{c.r_alpha_m:.3f} | {c.r_gamma:.3f} | {c.r_alpha_f:.3f}"
            lines.append(f"| {name} | {rho} | {symbol} | {measured:.3f} | {ratios} | {SYMBOLS[factor]} |")
            checks.append(Check(f"{name} ρ∞={rho} {symbol}", measured, getattr(c, factor), 0.01))
    return Result(data, "\n".join(lines), checks)


def plot(data: Data) -> Figure:
    figure = Figure(figsize=(8.4, 3.8), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, name in zip(axes, ("jay-negrut", "rolling-disk"), strict=True):
        error = data[name, 0.9]
        c = ga.chung_hulbert(0.9)
        n = np.arange(1, STEPS + 1)
        for component, symbol in (("a_alpha", "a"), ("psi_method", "ψ")):
            ax.semilogy(n, error[component][1:], label=symbol, lw=1.2)
        for factor, style in (("r_alpha_m", ":"), ("r_gamma", "--"), ("r_alpha_f", "-.")):
            line = error["a_alpha"][1] * getattr(c, factor) ** (n - 1)
            ax.semilogy(n, line, "k" + style, lw=0.7, label=SYMBOLS[factor])
        ax.set_title(f"{name}, ρ∞ = 0.9, h = {H:g}", fontsize="medium")
        ax.set_xlabel("step")
        ax.grid(alpha=0.2)
    axes[0].set_ylim(1e-13, 1e-3)
    axes[0].set_ylabel("error that the start causes")
    axes[0].legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="J11-start",
    title=TITLE,
    paper="JN08 theorem 1: rⁿ for a, λ, ψ. J11 theorem 6.1: r_γⁿ for a, r_γⁿ + r_αfⁿ for ψ",
    run=run,
    plot=plot,
    notes=(
        "Errors of a that break the hidden constraints decay with r_γ, and those that satisfy them with "
        "r_αm. Multipliers decay with r_αf. These are J11's factors, with r_αmⁿ added to its estimate of a."
    ),
)
