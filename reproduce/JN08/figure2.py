"""JN08 figure 2: as figure 1, without the adjusting formulas."""

from __future__ import annotations

from matplotlib.figure import Figure

from genalpha.convergence import Study
from reproduce.common import Experiment, Result, convergence_plot, convergence_result
from reproduce.JN08.figure1 import measure

BANDS = {
    "q": (2.0, 0.15),
    "v": (2.0, 0.15),
    "a_alpha": (1.0, 0.3),
    "lam_method": (1.0, 0.3),
    "psi_method": (1.0, 0.3),
}
TITLE = "JN08 figure 2: problem (15), steps h/3 and 2h/3, not adjusted, t = 1"


def run() -> Result:
    return convergence_result(measure(adjust=False), BANDS)


def plot(data: Study) -> Figure:
    return convergence_plot(data, list(BANDS), TITLE)


EXPERIMENT = Experiment(
    name="JN08-figure2",
    title=TITLE,
    paper="order 2 in y, z; reduced to 1 in a, λ, ψ",
    run=run,
    plot=plot,
    notes="ρ∞ = 0.2. Slopes of a and ψ approach 1 from above as h shrinks.",
)
