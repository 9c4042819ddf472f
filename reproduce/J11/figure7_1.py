"""J11 figure 7.1: the nonholonomic test problem (7.1) with constant steps."""

from __future__ import annotations

from matplotlib.figure import Figure

import genalpha as ga
from genalpha.convergence import Study, study
from reproduce.common import Experiment, Result, convergence_plot, convergence_result

STEPS = [0.01 / 2**i for i in range(6)]
BANDS = dict.fromkeys(("q", "v", "a_alpha", "psi_method"), (2.0, 0.15))
TITLE = "J11 figure 7.1: problem (7.1), constant steps, t = 1"


def run() -> Result:
    method = ga.SOI2(ga.chung_hulbert(0.2), start="a0")
    return convergence_result(study(ga.problems.get("jay-nonholonomic"), method, h=STEPS), BANDS)


def plot(data: Study) -> Figure:
    return convergence_plot(data, list(BANDS), TITLE)


EXPERIMENT = Experiment(
    name="J11-figure7.1",
    title=TITLE,
    paper="order 2 in y, z, a, ψ",
    run=run,
    plot=plot,
    notes="ρ∞ = 0.2. Above h = 0.02 the slopes of a and ψ are still below 2.",
)
