"""The methods of YPR98 on a linear, constrained oscillation: spectral radius, energy, overshoot."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from reproduce.common import Check, Experiment, Result

RHO = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)
H_OMEGA = np.logspace(-2, 4, 121)
STEPS = 200
LARGE = (1.0, 10.0, 100.0, 1000.0)

# A mass in the plane on y = 0, held by a spring along (1, 1)/√2: the constraint carries half of its force.
SYSTEM = ga.System(
    mass=np.eye(2),
    force=lambda t, q, v, omega: -(omega**2) * (q[0] + q[1]) * jnp.ones(2),
    holonomic=lambda t, q, omega: q[1:],
)


def energies(rho: float, h_omega: float) -> tuple[np.ndarray, np.ndarray]:
    """Energy over that at the start, and the displacement, for steps of size one from (1, 0) at rest."""
    method = ga.DAEAlpha(ga.chung_hulbert(rho), start="a0")
    start = np.array([1.0, 0.0]), np.zeros(2)
    sol = ga.solve(SYSTEM, (0.0, float(STEPS)), *start, h=1.0, args=(h_omega,), method=method)
    x, v = sol.q[:, 0], sol.v[:, 0]
    return v**2 / h_omega**2 + x**2, x


def run() -> Result:
    radius = {
        rho: ga.analysis.spectral_radius(
            ga.analysis.constrained_amplification(ga.DAEAlpha(ga.chung_hulbert(rho)), H_OMEGA)
        )
        for rho in RHO
    }
    lines = ["| ρ∞ | radius, hω → ∞ | hω | energy after 200 steps | largest energy | largest displacement |"]
    lines.append("|---|---|---|---|---|---|")
    checks = []
    worst = {}
    for rho in RHO:
        limit = max(rho, ga.chung_hulbert(rho).r_alpha_m)
        checks.append(Check(f"ρ∞ = {rho:g}: radius for hω = 1e4", float(radius[rho][-1]), limit, 5e-3))
        checks.append(Check(f"ρ∞ = {rho:g}: largest radius", float(radius[rho].max()), 1.0, 1e-4))
        for h_omega in LARGE:
            energy, x = energies(rho, h_omega)
            worst[rho, h_omega] = energy.max()
            lines.append(
                f"| {rho:g} | {radius[rho][-1]:.3f} | {h_omega:g} | {energy[-1]:.1e} | {energy.max():.2f} | "
                f"{np.abs(x).max():.2f} |"
            )
            if rho < 0.9 and h_omega >= 10:
                checks.append(
                    Check(f"ρ∞ = {rho:g}, hω = {h_omega:g}: energy left", float(energy[-1]), 0.0, 1e-6)
                )
    return Result(radius, "\n".join(lines), checks)


def plot(radius: Any) -> Figure:
    figure = Figure(figsize=(9.6, 4.0), layout="constrained")
    left, right = figure.subplots(1, 2)
    for rho, values in radius.items():
        left.semilogx(H_OMEGA, values, lw=0.9, label=f"ρ∞ = {rho:g}")
    left.set(xlabel="hω", title="Spectral radius of a step with a constraint")
    left.legend(fontsize="small")
    for rho in (0.0, 0.5, 0.9, 1.0):
        energy, _ = energies(rho, 10.0)
        right.semilogy(np.arange(61), np.maximum(energy[:61], 1e-16), lw=0.9, label=f"ρ∞ = {rho:g}")
    right.set(xlabel="steps", title="Energy over that at the start, hω = 10", ylim=(1e-12, 1e2))
    right.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="YPR98-linear",
    title="The DAE α-method on a linear constrained oscillation",
    paper="unconditionally stable, ρ is the damping of the highest frequencies, no additional oscillations",
    run=run,
    plot=plot,
    notes=(
        "A unit mass on y = 0 with a spring along the diagonal, displaced and at rest. The radius is that "
        "of the map of all variables that a step carries, scaled to (q, hv, h²a, h²φ). For large hω it is "
        "the larger of ρ∞ and |α_m/(1 − α_m)|; the second factor damps the remaining part of a_n across the "
        "constraint. Displacements never overshoot. Velocities do in the first steps, by a factor that "
        "grows with hω, as in the α-method for ODEs. This causes the largest energy in the table. It comes "
        "from a_0 = φ_0 = −ω²x and disappears after a few steps."
    ),
)
