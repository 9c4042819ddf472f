"""Pictures of a solution."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from genalpha.results.solution import Solution

_MOST_LABELS = 12


def plot(sol: Solution, names: list[str] | None = None) -> Any:
    """A figure with one panel each for q, v and, if there are constraints, multipliers and residuals."""
    if np.ndim(sol.status):
        raise TypeError("a plot needs a single solution, and this is a batch: plot a member, sol[0].plot()")
    if any(x is None for x in (sol.q, sol.v, sol.lam, sol.psi, sol.residuals)):
        raise ValueError(
            "a plot needs q, v, lam, psi and residuals, and save left out some of them: keep them"
        )
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a plot needs matplotlib: pip install genalpha[plot]") from error

    size = sol.q.shape[1]
    labels = list(names) if names is not None else [f"q{i}" for i in range(size)]
    if len(labels) != size:
        raise ValueError(f"names has {len(labels)} entries for {size} coordinates: pass one for each")
    rates = [f"d/dt {label}" for label in labels] if sol.v.shape[1] == size else None
    rates = rates or [f"v{i}" for i in range(sol.v.shape[1])]
    panels: list[tuple[str, list[tuple[str, Any]], bool]] = [
        ("coordinates", [(label, sol.q[:, i]) for i, label in enumerate(labels)], False),
        ("velocities", [(label, sol.v[:, i]) for i, label in enumerate(rates)], False),
    ]
    forces = [(f"λ{i}", sol.lam[:, i]) for i in range(sol.lam.shape[1])]
    forces += [(f"ψ{i}", sol.psi[:, i]) for i in range(sol.psi.shape[1])]
    if forces:
        panels.append(("multipliers", forces, False))
        shown = [(name, r) for name, r in sol.residuals._asdict().items() if np.any(r)]
        panels.append(("constraint residuals", shown, True))

    figure = Figure(figsize=(8, 2.2 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (title, curves, logarithmic) in zip(axes, panels, strict=True):
        for label, values in curves:
            if logarithmic:  # zero has no logarithm: a gap means that the residual is zero
                values = np.where(values > 0, values, np.nan)
            ax.plot(sol.t, values, label=label, lw=1.2)
        if logarithmic:
            ax.set_yscale("log")
        ax.set_ylabel(title)
        ax.grid(alpha=0.3)
        if 0 < len(curves) <= _MOST_LABELS:
            ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize="small", frameon=False)
    axes[-1].set_xlabel("t")
    axes[0].set_title(f"{sol.method}, {len(sol.t) - 1} steps")
    return figure
