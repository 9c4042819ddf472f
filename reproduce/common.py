"""What the reproductions share: an experiment, its picture in the papers' form, and its verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from genalpha.convergence import Study

# Symbols and markers of the papers' figures.
MARKS = {
    "q": ("y", "s"),
    "v": ("z", "o"),
    "a_alpha": ("a", "x"),
    "lam_method": ("λ", "+"),
    "psi_method": ("ψ", "*"),
}


@dataclass(frozen=True)
class Check:
    """A measured number and the band in which it must lie."""

    name: str
    value: float
    expected: float
    band: float

    @property
    def passed(self) -> bool:
        return abs(self.value - self.expected) <= self.band


@dataclass(frozen=True)
class Result:
    """What an experiment measured: the data behind its picture, a table, and the checks."""

    data: Any
    table: str
    checks: list[Check]


@dataclass(frozen=True)
class Experiment:
    """A figure of a paper, or a question that a paper leaves open."""

    name: str
    title: str
    paper: str
    run: Callable[[], Result]
    plot: Callable[[Any], Figure]
    notes: str = ""


def convergence_result(study: Study, bands: Mapping[str, tuple[float, float]]) -> Result:
    """Slopes of a study as checks, for the components that the figure shows."""
    slopes = study.slopes
    checks = [Check(MARKS[name][0], slopes[name], *bands[name]) for name in bands]
    return Result(study, study.table(), checks)


def convergence_plot(study: Study, components: list[str], title: str) -> Figure:
    """Global errors over h in doubly logarithmic axes, with the markers of the papers."""
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    ax = figure.subplots()
    for name in components:
        symbol, marker = MARKS[name]
        slope = study.slopes[name]
        ax.loglog(
            study.h,
            study.errors[name],
            marker=marker,
            mfc="none",
            ms=7,
            lw=0.8,
            label=f"{symbol}   slope {slope:.2f}",
        )
    errors = np.array([study.errors[name] for name in components])
    for order, style in ((1, ":"), (2, "--")):
        line = errors.max() * 1.5 * (study.h / study.h[0]) ** order
        ax.loglog(study.h, line, "k" + style, lw=0.7, label=f"order {order}")
    ax.set_ylim(errors.min() / 3, errors.max() * 3)
    ax.set_xticks(study.h, [f"{h:.1e}" for h in study.h], fontsize="x-small", rotation=30)
    ax.xaxis.set_minor_formatter("")
    ax.set_xlabel("h")
    ax.set_ylabel("global error")
    ax.set_title(title, fontsize="small")
    ax.grid(which="both", alpha=0.2)
    ax.legend(fontsize="small")
    return figure
