"""Pictures of a solution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.results import named
from genalpha.results.named import NamedColumn

if TYPE_CHECKING:
    from genalpha.results.solution import Solution

_MOST_LABELS = 10  # in a legend, as many as there are colours; more curves get a colour bar
_TICKS = 5
_TITLES = {
    "q": "coordinates",
    "v": "velocities",
    "a": "accelerations",
    "lam": "multipliers",
    "psi": "multipliers",
    "residuals": "constraint residuals",
}


def plot(sol: Solution, keys: Sequence[str], names: Sequence[str] | None) -> Any:
    """A figure with one panel for each kind and unit of the curves with these keys."""
    if np.ndim(sol.status):
        raise TypeError("a plot needs a single solution, and this is a batch: plot a member, sol[0].plot()")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plot needs matplotlib: pip install genalpha[plot]") from error
    panels = _panels(_renamed(named.chosen(sol, keys) if keys else _all(sol), sol, names))
    figure = Figure(figsize=(8, 2.2 * len(panels) + 0.4), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for ax, ((title, unit), curves) in zip(axes, panels.items(), strict=True):
        logarithmic = curves[0].kind == "residuals"
        colours = _colours(len(curves))
        for curve, colour in zip(curves, colours, strict=True):
            y = np.asarray(curve.values)
            if logarithmic:  # zero has no logarithm: a gap means that the residual is zero
                y = np.where(y > 0, y, np.nan)
            ax.plot(sol.t, y, label=curve.key.removeprefix("residuals."), lw=1.2, color=colour)
        if logarithmic:
            ax.set_yscale("log")
        ax.set_ylabel(f"{title} [{unit}]" if unit else title)
        ax.grid(alpha=0.3)
        _legend(figure, ax, curves)
    axes[-1].set_xlabel(f"t [{sol.labels.time}]" if sol.labels.time else "t")
    axes[0].set_title(f"{sol.method}, {sol.stats.steps} steps")
    return figure


def _all(sol: Solution) -> list[NamedColumn]:
    """What is drawn if nothing is chosen."""
    if any(x is None for x in (sol.q, sol.v, sol.lam, sol.psi, sol.residuals)):
        raise ValueError(
            "a plot needs q, v, lam, psi and residuals, and save left out some of them: keep them, or name "
            "what is drawn, such as sol.plot('q')"
        )
    found = named.chosen(sol, ["q", "v", "lam", "psi"])
    if sol.lam.shape[1] + sol.psi.shape[1]:
        found += [one for one in named.chosen(sol, ["residuals"]) if np.any(one.values)]
    return found


def _renamed(curves: list[NamedColumn], sol: Solution, names: Sequence[str] | None) -> list[NamedColumn]:
    """Curves of coordinates, and of velocities that are their rates, with other names."""
    if names is None:
        return curves
    size = sol.q.shape[1]
    if len(names) != size:
        raise ValueError(f"names has {len(names)} entries for {size} coordinates: pass one for each")
    other = dict(zip(named.keys(sol, "q"), names, strict=True))
    if sol.v is not None and sol.v.shape[1] == size:
        other |= {key: f"d/dt {name}" for key, name in zip(named.keys(sol, "v"), names, strict=True)}
    return [curve._replace(key=other.get(curve.key, curve.key)) for curve in curves]


def _panels(curves: list[NamedColumn]) -> dict[tuple[str, str], list[NamedColumn]]:
    """The curves by kind and unit."""
    found: dict[tuple[str, str], list[NamedColumn]] = {}
    for curve in curves:
        found.setdefault((_TITLES[curve.kind], curve.unit), []).append(curve)
    return {key: found[key] for key in sorted(found, key=lambda key: list(_TITLES.values()).index(key[0]))}


def _colours(count: int) -> list[Any]:
    """The usual colours of a few curves, or a scale."""
    if count <= _MOST_LABELS:
        return [f"C{i}" for i in range(count)]
    from matplotlib import colormaps

    return list(colormaps["viridis"](np.linspace(0, 1, count)))


def _legend(figure: Any, ax: Any, curves: list[NamedColumn]) -> None:
    """A legend for a few curves, a colour bar with some of the names for many."""
    if len(curves) <= _MOST_LABELS:
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", frameon=False)
        return
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    at = np.unique(np.linspace(0, len(curves) - 1, _TICKS).round().astype(int))
    beside = ax.inset_axes([1.02, 0.0, 0.03, 1.0])
    bar = figure.colorbar(ScalarMappable(Normalize(0, len(curves) - 1), "viridis"), cax=beside)
    bar.set_ticks(at, labels=[curves[i].key for i in at], fontsize="small")
