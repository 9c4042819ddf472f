"""How the largest step of table 1 depends on what YPR98 does not state, and a map over (h, ε)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from reproduce.common import Check, Experiment, Result
from reproduce.YPR98.bushing import largest
from reproduce.YPR98.iteration import METHODS, Policy, draw_map, runner_of

STARTS = {0: "last step", 1: "parabola", 2: "no acceleration"}
LIMITS = (5, 10, 25, 100)
TOLERANCES = (1e-3, 1e-7, 1e-9)
RHO = 0.5
# of the map
EPS = np.logspace(-6, 0, 31)
STEPS = np.logspace(-7, 0, 57)
COUNT = 100


def converged(method: str) -> np.ndarray:
    """Whether 100 steps converge, for ε (rows) and h (columns)."""
    eps, h = (grid.ravel() for grid in np.meshgrid(EPS, STEPS, indexing="ij"))
    run = runner_of(method, RHO, True, "bushing")
    outcome = run(h, np.full(h.size, COUNT), Policy(limit=25, start=1), (eps,))
    return (outcome.steps == COUNT).reshape(len(EPS), len(STEPS))


def run() -> Result:
    names = list(METHODS)
    lines = [
        f"| matrix | start | corrections at most | {' | '.join(names)} |",
        "|---|---|---|" + "---|" * len(names),
    ]
    found: dict[tuple[bool, int, int, str], int | None] = {}
    for full, start, limit in itertools.product((True, False), STARTS, LIMITS):
        if not full and start == 2:
            continue
        for name in names:
            policy = Policy(1e-7, limit, True, start)
            found[full, start, limit, name] = largest(name, RHO, policy, full=full)
        cells = [_fraction(found[full, start, limit, name]) for name in names]
        matrix = "every correction" if full else "once a step"
        lines.append(f"| {matrix} | {STARTS[start]} | {limit} | {' | '.join(cells)} |")
    lines += ["", f"| tolerance | test | {' | '.join(names)} |", "|---|---|" + "---|" * len(names)]
    changed = 0
    for tol in TOLERANCES:
        rows = []
        for multipliers in (True, False):
            row = [largest(name, RHO, Policy(tol, 25, multipliers, 1)) for name in names]
            what = "q, v, ν, μ" if multipliers else "q, v"
            lines.append(f"| {tol:g} | {what} | {' | '.join(map(_fraction, row))} |")
            rows.append(row)
        changed += rows[0] != rows[1]
    maps = {name: converged(name) for name in ("(3.3)", "CM")}
    edge = {name: _edge(found) for name, found in maps.items()}
    lines += [
        "",
        f"Largest h/ε in the map, median over ε ≤ 1e-2: (3.3) {edge['(3.3)']:.2f}, CM {edge['CM']:.2f}.",
    ]
    ratio = lambda *at: float(found[*at, "(3.3)"] or np.nan) / float(found[*at, "CM"] or np.nan)
    checks = [
        Check("tolerances at which multipliers in the test matter", float(changed), 0.0, 0.0),
        Check("new matrices, parabola, 25 corrections: CM over (3.3)", ratio(True, 1, 25), 1.5, 0.3),
        Check("new matrices, last step, 25 corrections: CM over (3.3)", ratio(True, 0, 25), 1.0, 0.15),
        Check("new matrices, last step, 10 corrections: CM over (3.3)", ratio(True, 0, 10), 0.4, 0.15),
        Check("matrix once a step, parabola, 25 corrections: CM over (3.3)", ratio(False, 1, 25), 1.0, 0.1),
        Check("map: largest h/ε of CM over that of (3.3)", edge["CM"] / edge["(3.3)"], 1.5, 0.4),
    ]
    return Result(maps, "\n".join(lines), checks)


def _fraction(count: int | None) -> str:
    return "none" if count is None else f"T/{count}"


def _edge(good: np.ndarray) -> float:
    """The largest h/ε below which everything converges, in the median over small ε."""
    ratios = []
    for eps, row in zip(EPS, good, strict=True):
        if eps <= 1e-2:
            first = np.argmin(row) if not row.all() else len(row)
            ratios.append(STEPS[max(first - 1, 0)] / eps)
    return float(np.median(ratios))


def plot(maps: Any) -> Figure:
    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    ax = figure.subplots()
    handles = draw_map(ax, STEPS, EPS, maps)
    ax.loglog(EPS * 40 * np.pi / 22.5, EPS, "k--", lw=0.8)
    ax.text(1.2e-4, 1.2e-5, "h = one period of x, y", fontsize="small", rotation=37)
    ax.set(xlabel="h", ylabel="ε", xlim=(STEPS[0], STEPS[-1]), ylim=(EPS[0], EPS[-1]))
    ax.set_title(f"Bushing, ρ = {RHO:g}: {COUNT} steps from the start of YPR98")
    ax.legend(handles=handles, fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="YPR98-policies",
    title="Largest steps of the bushing by Newton's policy, ρ = 0.5, and where only CM converges",
    paper="steps of CM are about twice those of the index-2 form, whatever the policy was",
    run=run,
    plot=plot,
    notes=(
        "Every number is T over the largest step such that all smaller ones (in steps of five) converge "
        "too. The tolerance is 1e-7 unless stated otherwise. CM leaves a term out, so it converges linearly "
        "and needs more corrections. If only few are allowed, it takes smaller steps than (3.3). If many "
        "are allowed and the start is extrapolated, it takes larger ones. From the values of the last step "
        "both allow the same steps. With one matrix a step they do so too, and 25 corrections from the "
        "parabola then give T/155 for (3.3), where the paper gives T/150. It does not matter here "
        "whether ν and μ take part in the test, because corrections of v are always larger. In the map "
        "(3.3) and CM depend only on h/ε until gravity becomes important, near ε = 0.1."
    ),
)
