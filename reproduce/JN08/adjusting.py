"""Are the adjusting formulas (14) needed for y and z? JN08 section 7 says no; problem (15) cannot show it."""

from __future__ import annotations

from matplotlib.figure import Figure

import genalpha as ga
from genalpha.convergence import Study, study
from reproduce.common import MARKS, Check, Experiment, Result, convergence_plot

# problem: degrees of freedom that its constraints leave in the velocities, coarsest step, end
CASES = {
    "jay-negrut": (0, 0.01, 1.0),
    "double-pendulum": (2, 4e-3, 1.0),
    "rolling-disk": (3, 4e-3, 1.0),
    "spring-chain": (5, 2.5e-3, 1.0),
}
COMPONENTS = ["q", "v", "a_alpha", "lam_method", "psi_method"]
PATTERN = (0.1, 0.2, 0.3, 0.4)
TITLE = "JN08 section 7: second order of y and z without the adjusting formulas?"
Data = dict[tuple[str, bool], Study]


def run() -> Result:
    symbols = " | ".join(MARKS[c][0] for c in COMPONENTS)
    head = f"| problem | degrees of freedom | adjusted | {symbols} |"
    lines = [head, "|---|---|---|" + "---|" * len(COMPONENTS)]
    checks: list[Check] = []
    data: Data = {}
    for name, (freedoms, coarsest, t_end) in CASES.items():
        for adjust in (True, False):
            method = ga.SOI2(ga.chung_hulbert(0.2), adjust=adjust)
            steps = [coarsest / 2**i for i in range(5)]
            result = study(ga.problems.get(name), method, h=steps, pattern=PATTERN, t_end=t_end)
            data[name, adjust] = result
            cells = [f"{result.slopes[c]:.2f}" if c in result.slopes else "–" for c in COMPONENTS]
            lines.append(f"| {name} | {freedoms} | {'yes' if adjust else 'no'} | {' | '.join(cells)} |")
            order = 2.0 if adjust or not freedoms else 1.0
            label = "adjusted" if adjust else "not adjusted"
            checks += [Check(f"{name} {MARKS[c][0]}, {label}", result.slopes[c], order, 0.15) for c in "qv"]
    return Result(data, "\n".join(lines), checks)


def plot(data: Data) -> Figure:
    title = "rolling disk, steps 0.1h, 0.2h, 0.3h, 0.4h, not adjusted"
    return convergence_plot(data["rolling-disk", False], ["q", "v", "a_alpha", "psi_method"], title)


EXPERIMENT = Experiment(
    name="JN08-adjusting",
    title=TITLE,
    paper="'not necessary to preserve the second order of convergence for the y and z components'",
    run=run,
    plot=plot,
    notes=(
        "ρ∞ = 0.2, steps 0.1h, 0.2h, 0.3h, 0.4h in turns. The paper's example (15) has as many constraints "
        "as coordinates, so its y and z follow from the constraints alone. If a degree of freedom is left, "
        "y and z fall to first order as well: a_α is off by α(h_n − h_{n−1}) a', z by h_n times that, and "
        "these errors add up."
    ),
)
