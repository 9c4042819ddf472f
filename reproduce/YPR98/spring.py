"""YPR98 figures 2 and 3: the pendulum on a stiff spring, damped by ρ∞ and by h."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from reproduce.common import Check, Experiment, Result

NEWTON = ga.Newton(policy="full", tol=1e-10)
RHO = (1.0, 0.75, 0.5, 0.25, 0.0)
H_OF_FIGURE_2 = 1e-2
STEPS = (1e-3, 1e-2, 1e-1)
RHO_OF_FIGURE_3 = 0.5


def solve(h: float, rho: float) -> ga.Solution:
    problem = ga.problems.get("stiff-spring-pendulum")
    method = ga.DAEAlpha(ga.chung_hulbert(rho), start="a0")
    return problem.solve(h=h, method=method, newton=NEWTON)


def energy(sol: ga.Solution) -> np.ndarray:
    eps2, gravity = ga.problems.get("stiff-spring-pendulum").args
    length = np.linalg.norm(sol.q, axis=1)
    return 0.5 * np.sum(sol.v**2, axis=1) + (length - 1) ** 2 / (2 * eps2) - gravity * sol.q[:, 1]


def vibration(sol: ga.Solution) -> float:
    """Half of what the length varies in the last half second, two and a half periods of the spring."""
    return float(np.ptp(np.linalg.norm(sol.q[sol.t >= 4.5], axis=1)) / 2)


def predicted(h: float, rho: float) -> float:
    """The vibration that linear analysis leaves of 0.1 in the middle of the last half second."""
    eps2 = ga.problems.get("stiff-spring-pendulum").args[0]
    A = ga.analysis.amplification(ga.chung_hulbert(rho), h / np.sqrt(eps2))
    return 0.1 * float(ga.analysis.spectral_radius(A)) ** (4.75 / h)


def slow_angle() -> float:
    """Where a pendulum with a rigid rod is at t = 5, from the same start: the slow motion."""
    from scipy.integrate import solve_ivp

    run = solve_ivp(lambda t, y: [y[1], np.cos(y[0])], (0, 5), [0, 0], rtol=1e-11, atol=1e-11)
    return float(run.y[0, -1])


def run() -> Result:
    by_rho = {rho: solve(H_OF_FIGURE_2, rho) for rho in RHO}
    by_h = {h: solve(h, RHO_OF_FIGURE_3) for h in STEPS}
    lines = [
        "| ρ∞ | h | energy at t = 0 | at t = 5 | vibration of the length | linear theory | angle at t = 5 |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    angle = lambda sol: float(np.unwrap(np.arctan2(sol.q[:, 1], sol.q[:, 0]))[-1])
    for (rho, h), sol in {
        **{(rho, H_OF_FIGURE_2): sol for rho, sol in by_rho.items()},
        **{(RHO_OF_FIGURE_3, h): sol for h, sol in by_h.items()},
    }.items():
        total = energy(sol)
        lines.append(
            f"| {rho:g} | {h:g} | {total[0]:.3f} | {total[-1]:.3f} | {vibration(sol):.1e} | "
            f"{predicted(h, rho):.1e} | {angle(sol):.3f} |"
        )
    slow = slow_angle()
    lines.append(f"| – | rigid rod | | 0 | 0 | | {slow:.3f} |")
    last = [energy(by_rho[rho])[-1] for rho in RHO]
    checks = [
        Check("energy kept with ρ∞ = 1 and h = 1e-2", last[0] / 5.0, 1.0, 0.05),
        Check("energy falls with ρ∞ (number of falls)", float(np.sum(np.diff(last) < 1e-3)), 4.0, 0.0),
        *(
            Check(
                f"vibration with ρ∞ = {rho:g} over linear theory",
                vibration(sol) / predicted(H_OF_FIGURE_2, rho),
                1.0,
                0.15,
            )
            for rho, sol in by_rho.items()
        ),
        Check("vibration left with h = 1e-1, of 0.1", vibration(by_h[1e-1]) / 0.1, 0.0, 0.02),
        Check("vibration left with h = 1e-3, of 0.1", vibration(by_h[1e-3]) / 0.1, 1.0, 0.1),
        Check("slow swing with ρ∞ = 0", angle(by_rho[0.0]) - slow, 0.0, 0.05),
    ]
    return Result((by_rho, by_h), "\n".join(lines), checks)


def plot(data: Any) -> Figure:
    by_rho, by_h = data
    figure = Figure(figsize=(10.4, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.2, 1])
    for rho, sol in by_rho.items():
        left.plot(sol.t, energy(sol), lw=0.9, label=f"ρ = {rho:g}")
    left.set(xlabel="t [s]", ylabel="total energy", title=f"Figure 2: energy, h = {H_OF_FIGURE_2:g}")
    left.legend(fontsize="small")
    for h, sol in by_h.items():
        right.plot(
            sol.q[:, 0], sol.q[:, 1], lw=0.7, marker="." if h == 0.1 else None, ms=3, label=f"h = {h:g}"
        )
    right.invert_yaxis()  # gravity acts along +y
    right.set(xlabel="x", ylabel="y", title=f"Figure 3: trajectory, ρ = {RHO_OF_FIGURE_3:g}", aspect="equal")
    right.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="YPR98-figures2-3",
    title="YPR98 figures 2 and 3: pendulum on a stiff spring, ε² = 1e-3, Newton tolerance 1e-10",
    paper="with ρ → 0 or larger h the spring comes to its equilibrium, and the slow swing stays",
    run=run,
    plot=plot,
    notes=(
        "The paper does not state h of figure 2 or ρ of figure 3; here they are 1e-2 and 0.5. The period of "
        "the spring is 0.2 s. Its energy is 5 at the start; without the vibration the rod swings with "
        "energy 0."
    ),
)
