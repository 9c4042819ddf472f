"""JN08 figure 1: SOI2 on (15) with step sizes alternating between h/3 and 2h/3, adjusting formulas (14)."""

from __future__ import annotations

from matplotlib.figure import Figure

import genalpha as ga
from genalpha.convergence import Study, study
from reproduce.common import Experiment, Result, convergence_plot, convergence_result

STEPS = [0.1 / 2**i for i in range(7)]
BANDS = dict.fromkeys(("q", "v", "a_alpha", "lam_method", "psi_method"), (2.0, 0.15))
TITLE = "JN08 figure 1: problem (15), steps h/3 and 2h/3, adjusted, t = 1"


def measure(adjust: bool) -> Study:
    method = ga.SOI2(ga.chung_hulbert(0.2), adjust=adjust, start="a0")
    return study(ga.problems.get("jay-negrut"), method, h=STEPS, pattern=(1 / 3, 2 / 3))


def run() -> Result:
    return convergence_result(measure(adjust=True), BANDS)


def plot(data: Study) -> Figure:
    return convergence_plot(data, list(BANDS), TITLE)


EXPERIMENT = Experiment(
    name="JN08-figure1",
    title=TITLE,
    paper="order 2 in y, z, a, λ, ψ",
    run=run,
    plot=plot,
    notes=(
        "ρ∞ = 0.2. The paper does not print its start. Here it is a_α = a_0; the other start gives the same."
    ),
)
