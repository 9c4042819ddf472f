"""Linear analysis: the spectral radius of the error recursion (8), and amplification of all families."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from genalpha import analysis
from reproduce.ACB15.top import METHODS, RHO
from reproduce.common import Check, Experiment, Result

FAMILIES = [
    ga.chung_hulbert(0.0),
    ga.chung_hulbert(0.5),
    ga.chung_hulbert(0.9),
    ga.hht(-0.1),
    ga.wbz(-0.3),
    ga.trapezoidal(),
]
RHOS = np.linspace(0.0, 0.999, 1000)
TITLE = "Spectral radii, period errors and numerical damping"


def run() -> Result:
    z = 1e-2
    off = max(abs(analysis.error_recursion_radius(ga.chung_hulbert(rho)) - rho) for rho in RHOS)
    lines = [
        "| coefficients | radius of (8) | radius as hω → ∞ | period error/(hω)² | damping/(hω)³ |",
        "|---|---|---|---|---|",
    ]
    for c in FAMILIES:
        A = analysis.amplification(c, z)
        limit = analysis.spectral_radius(analysis.amplification(c, 1e7))
        period, damping = analysis.period_error(A, z) / z**2, analysis.numerical_damping(A) / z**3
        lines.append(f"| {c.name} | {c.r_index3:.4f} | {limit:.4f} | {period:.4f} | {abs(damping):.4f} |")
    lines += [
        "",
        "| constrained test equation, ρ∞ = 0.9, hω = 0.1 | moduli of the eigenvalues |",
        "|---|---|",
    ]
    moduli = {}
    for name, method in METHODS.items():
        A = analysis.constrained_amplification(method, 0.1)
        moduli[name] = np.sort(np.abs(np.linalg.eigvals(A)))[::-1]
        lines.append(f"| {name} | {', '.join(f'{v:.3f}' for v in moduli[name])} |")
    lines += ["", f"largest |ρ(T₊⁻¹T₀) − ρ∞| for 1000 ρ∞ in [0, 1): {off:.1e}"]
    checks = [
        Check("largest deviation of the spectral radius from ρ∞", off, 0.0, 1e-6),
        Check("third largest modulus, index 3", float(moduli["index 3"][2]), RHO, 1e-3),
    ]
    return Result(None, "\n".join(lines), checks)


def plot(data: None) -> Figure:
    return analysis.plot(FAMILIES)


EXPERIMENT = Experiment(
    name="ACB15-analysis",
    title=TITLE,
    paper="ρ(T₊⁻¹T₀) = ρ∞ for the coefficients of Chung & Hulbert",
    run=run,
    plot=plot,
    notes=(
        "−ρ∞ is a triple eigenvalue with one eigenvector; its modulus is computed from the factors of the "
        "characteristic polynomial. The constrained test equation is an oscillator with one constraint; its "
        "matrix is the derivative of the step as it is run. Two eigenvalues belong to the oscillation, and "
        "the others to the method: index 3 has ρ∞ three times, the other two methods have r_γ and r_αf of "
        "J11."
    ),
)
