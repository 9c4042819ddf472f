"""The question under JN08 (13): may ψ̃ be replaced by ψ, and (13b), (13h) and two unknowns be dropped?"""

from __future__ import annotations

from matplotlib.figure import Figure

import genalpha as ga
from genalpha.convergence import Study, study
from reproduce.common import MARKS, Check, Experiment, Result, convergence_plot

CASES = {
    "jay-negrut": ([0.01 / 2**i for i in range(5)], (1 / 3, 2 / 3)),
    "wheel-on-rod": ([0.02 / 2**i for i in range(5)], (1 / 3, 2 / 3)),
}
DAMPING = (0.0, 0.2, 0.8)
COMPONENTS = ["q", "v", "a_alpha", "lam_method", "psi_method"]
TITLE = "JN08 (13) without ψ̃: the reduced method"


def run() -> Result:
    """Full and reduced method side by side, for both problems with both kinds of constraint."""
    lines = [
        "| problem | ρ∞ | method | " + " | ".join(f"{MARKS[c][0]}" for c in COMPONENTS) + " |",
        "|---|---|---|" + "---|" * len(COMPONENTS),
    ]
    checks, data = [], {}
    for name, (steps, pattern) in CASES.items():
        problem = ga.problems.get(name)
        for rho in DAMPING:
            for reduced in (False, True):
                method = ga.SOI2(ga.chung_hulbert(rho), reduced=reduced)
                result = study(problem, method, h=steps, pattern=pattern)
                label = "reduced" if reduced else "full"
                cells = [f"{result.slopes[c]:.2f} ({result.errors[c][-1]:.1e})" for c in COMPONENTS]
                lines.append(f"| {name} | {rho:g} | {label} | {' | '.join(cells)} |")
                data[name, rho, reduced] = result
                if reduced:
                    checks += [
                        Check(f"{name} ρ∞={rho:g} {c}", result.slopes[c], 2.0, 0.15) for c in COMPONENTS
                    ]
    return Result(data, "\n".join(lines), checks)


def plot(data: dict[tuple[str, float, bool], Study]) -> Figure:
    return convergence_plot(
        data["wheel-on-rod", 0.2, True], COMPONENTS, "reduced SOI2: wheel on a rod, ρ∞ = 0.2"
    )


EXPERIMENT = Experiment(
    name="JN08-reduced",
    title=TITLE,
    paper="left open ('remains to be investigated')",
    run=run,
    plot=plot,
    notes=(
        "The table shows slopes and, in brackets, the error at the smallest step. Steps alternate between "
        "h/3 and 2h/3."
    ),
)
