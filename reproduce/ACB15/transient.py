"""The transient after a projection: the bound n²ρ∞ⁿh of ACB15, and the error recursion (8) itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from reproduce.ACB15.top import RHO, T_STAR, hidden, run, top
from reproduce.common import Check, Experiment, Result

STEPS = (1e-3, 5e-4, 2.5e-4)
COUNT = 150
TITLE = "ACB15 (8): the transient of λ after a velocity projection"


def change(h: float) -> tuple[np.ndarray, np.ndarray]:
    """‖λ with − λ without the projection‖ after n̄ = 1..COUNT steps, and what (8) predicts.

    The projection takes B v away from the first component −B v/h + ... of E, so the second one,
    [B M⁻¹Bᵀ](λ(t) − λ_n), changes by the entry (2, 1) of (T₊⁻¹T₀)^n̄ times B v/h. The matrix in front of λ
    is that at t*.
    """
    p, t_end = top(), T_STAR + COUNT * h
    with_it, without = run("index 3", h, t_end=t_end), run("index 3", h, False, t_end)
    at = int(np.abs(without.t - T_STAR).argmin())
    removed = hidden(without)[at] / h
    G = np.asarray(p.system.G(T_STAR, without.q[at], p.args))
    M = np.asarray(p.system.M(T_STAR, without.q[at], p.args))
    impulse = np.linalg.solve(G @ np.linalg.solve(M, G.T), -removed)
    T, power = ga.analysis.error_recursion(ga.chung_hulbert(RHO)), np.eye(3)
    measured, predicted = [], []
    for n in range(1, COUNT + 1):
        power = T @ power
        measured.append(with_it.lam_method[at + n] - without.lam_method[at + n])
        predicted.append(power[1, 0] * impulse)
    return np.array(measured), np.array(predicted)


def measure() -> Result:
    n = np.arange(1, COUNT + 1)
    data: dict[float, Any] = {}
    head = "| h | largest change | at n̄ | max of change/(n̄²ρ∞ⁿ̄ h) | measured/predicted, n̄ = 1 | n̄ = 20 |"
    lines = [head, "|---|---|---|---|---|---|"]
    constants, ratios, ratios_late = [], [], []
    for h in STEPS:
        measured, predicted = change(h)
        size = np.linalg.norm(measured, axis=1)
        constant = (size / (n**2 * RHO**n * h)).max()
        ratio = float(measured[0] @ predicted[0] / (predicted[0] @ predicted[0]))
        ratios_late.append(size[19] / np.linalg.norm(predicted[19]))
        data[h] = (size, np.linalg.norm(predicted, axis=1))
        constants.append(constant)
        ratios.append(ratio)
        largest = f"{size.max():.3g} | {n[size.argmax()]}"
        lines.append(f"| {h:g} | {largest} | {constant:.4g} | {ratio:.3f} | {ratios_late[-1]:.3f} |")
    decay = np.polyfit(n[60:120], np.log(data[STEPS[-1]][0][60:120]) - 2 * np.log(n[60:120]), 1)[0]
    lines += ["", f"decay of change/n̄² from n̄ = 60 to 120 at h = {STEPS[-1]:g}: {np.exp(decay):.4f} a step"]
    checks = [
        Check("constant of the bound, h = 1e-3 over 5e-4", constants[0] / constants[1], 1.0, 0.25),
        Check("constant of the bound, h = 5e-4 over 2.5e-4", constants[1] / constants[2], 1.0, 0.15),
        Check("measured over predicted in the first step", ratios[-1], 1.0, 0.1),
        Check("measured over predicted after 20 steps", ratios_late[-1], 1.0, 0.2),
        Check("decay a step", float(np.exp(decay)), RHO, 0.02),
    ]
    return Result(data, "\n".join(lines), checks)


def plot(data: dict[float, Any]) -> Figure:
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    ax = figure.subplots()
    n = np.arange(1, COUNT + 1)
    for h, color in zip(STEPS, ("C0", "C1", "C2"), strict=True):
        measured, predicted = data[h]
        ax.semilogy(n, measured / h, color, lw=1.2, label=f"measured, h = {h:g}")
        ax.semilogy(n, predicted / h, color + ":", lw=1.0)
    constant = max((data[h][0] / (n**2 * RHO**n * h)).max() for h in STEPS)
    ax.semilogy(n, constant * n**2 * RHO**n, "k--", lw=0.8, label="C n̄² ρ∞ⁿ̄")
    ax.set(
        xlabel="steps n̄ after the projection", ylabel="change of λ over h", title="dotted: predicted by (8)"
    )
    ax.grid(alpha=0.2)
    ax.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="ACB15-transient",
    title=TITLE,
    paper="‖λ(t_n) − λ_n‖ ≤ C (n̄² ρ∞ⁿ̄ h + h²) with n̄ steps after the projection",
    run=measure,
    plot=plot,
    notes=(
        "ρ∞ = 0.9. The table shows the difference of two runs, with and without the projection at t* = 0.7 "
        "s. C does not depend on h, and the decay is that of the bound. The recursion (8) predicts size and "
        "sign if the first component of E is −B v/h + h B r. The sign printed in the paper would give the "
        "opposite."
    ),
)
