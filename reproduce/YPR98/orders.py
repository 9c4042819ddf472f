"""Orders of the methods of YPR98: higher than the paper proves, and higher than JN08 states."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from genalpha.convergence import slope, study
from reproduce.common import MARKS, Check, Experiment, Result

METHODS = {"DAE-α (3.3)": ga.DAEAlpha, "projected (2.5)": ga.ProjectedAlpha}
RHO = (0.0, 0.5, 0.9, 1.0)
# problem, coarsest step, end
CASES = [
    ("double-pendulum", 2e-3, 0.5),
    ("slider-crank", 3e-4, 0.15),
    ("heavy-top", 5e-4, 0.2),
    ("pendulum", 1.25e-4, 0.1),
    ("wheel-on-rod", 1e-2, 1.0),
    ("rolling-disk", 1e-2, 2.0),
]
COMPONENTS = ["q", "v", "a_alpha", "lam_method", "psi_method"]
Errors = dict[tuple[str, str, float], dict[str, np.ndarray]]


EPS2 = 1e-8  # of the stiff spring


def slow_motion() -> tuple[np.ndarray, np.ndarray, float]:
    """q, v and the tension of the stiff spring at t = 1, by an independent integrator.

    In polar coordinates with r = 1 + ε²s, so that the tension s keeps its digits: in Cartesian ones rounding
    shakes the spring, by 4e-6 in s after a million steps. Radau damps what is left of fast motion.
    """
    from scipy.integrate import solve_ivp

    def rhs(t: float, y: Any) -> list[float]:
        s, angle, s_dot, rate = y
        r, r_dot = 1 + EPS2 * s, EPS2 * s_dot
        pull = (r * rate**2 - s + np.sin(angle)) / EPS2
        return [s_dot, rate, pull, (np.cos(angle) - 2 * r_dot * rate) / r]

    atol = [1e-9, 1e-11, 1.0, 1e-11]  # that of s' counts with ε²
    s, angle, s_dot, rate = solve_ivp(rhs, (0, 1), np.zeros(4), "Radau", rtol=1e-10, atol=atol).y[:, -1]
    r, r_dot = 1 + EPS2 * s, EPS2 * s_dot
    along = np.array([np.cos(angle), np.sin(angle)])
    return r * along, r_dot * along + r * rate * np.array([-along[1], along[0]]), s


def stiff_spring(rho: float) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Errors on the slow motion of the pendulum on a spring with ω = 1e4, for steps far beyond 1/ω.

    From (1, 0) at rest the spring hardly oscillates (3e-16). Its tension (r − 1)/ε² is a multiplier in the
    limit.
    """
    problem = ga.problems.get("stiff-spring-pendulum", eps2=EPS2)
    start = np.array([1.0, 0.0]), np.zeros(2)
    solve = partial(ga.solve, problem.system, (0.0, 1.0), *start, args=problem.args)
    q, v, tension = slow_motion()
    h = np.array([0.02 / 2**k for k in range(4)])
    errors: dict[str, list[float]] = {"q": [], "v": [], "lam_method": []}
    for size in h:
        sol = solve(h=size, method=ga.DAEAlpha(ga.chung_hulbert(rho)))
        errors["q"].append(float(np.linalg.norm(sol.q[-1] - q)))
        errors["v"].append(float(np.linalg.norm(sol.v[-1] - v)))
        errors["lam_method"].append(float(abs((np.linalg.norm(sol.q[-1]) - 1) / EPS2 - tension)))
    return h, {name: np.array(values) for name, values in errors.items()}


def run() -> Result:
    symbols = " | ".join(MARKS[c][0] for c in COMPONENTS)
    lines = [f"| problem | ρ∞ | method | {symbols} |", "|---|---|---|" + "---|" * 5]
    checks: list[Check] = []
    data: Errors = {}

    def add(name: str, rho: float, label: str, h: Any, errors: dict[str, np.ndarray], band: float) -> None:
        slopes = {s: slope(h, errors[s]) for s in COMPONENTS if s in errors}
        cells = [f"{slopes[s]:.2f}" if s in slopes else "–" for s in COMPONENTS]
        lines.append(f"| {name} | {rho:g} | {label} | {' | '.join(cells)} |")
        checks.extend(Check(f"{name} {rho:g} {label} {s}", x, 2.0, band) for s, x in slopes.items())
        data[name, label, rho] = {"h": np.asarray(h), **errors}

    for name, coarsest, t_end in CASES:
        problem = ga.problems.get(name)
        h = [coarsest / 2**i for i in range(4)]
        for rho in RHO:
            for label, kind in METHODS.items():
                result = study(problem, kind(ga.chung_hulbert(rho)), h=h, t_end=t_end)
                add(name, rho, label, h, result.errors, 0.2)
    for rho in RHO[:3]:
        sizes, errors = stiff_spring(rho)
        add("stiff-spring-pendulum, hω = 25 to 200", rho, "DAE-α (3.3)", sizes, errors, 0.2)
    return Result(data, "\n".join(lines), checks)


def plot(data: Errors) -> Figure:
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    for axes, (name, title) in zip(
        figure.subplots(1, 2),
        [("slider-crank", "slider crank"), ("wheel-on-rod", "wheel on a rod")],
        strict=True,
    ):
        errors = data[name, "DAE-α (3.3)", 0.0]
        for part in COMPONENTS:
            if part in errors:
                symbol, marker = MARKS[part]
                label = f"{symbol}   slope {slope(errors['h'], errors[part]):.2f}"
                axes.loglog(errors["h"], errors[part], marker=marker, mfc="none", lw=0.8, label=label)
        axes.set(xlabel="h", title=f"DAE α-method, ρ∞ = 0: {title}")
        axes.grid(which="both", alpha=0.2)
        axes.legend(fontsize="small")
    return figure


EXPERIMENT = Experiment(
    name="YPR98-orders",
    title="Orders of the DAE α-method and of the projected α-method",
    paper="theorems 2.1 and 3.1: O(h²) for q, O(h) for v and λ; JN08 calls the method first order",
    run=run,
    plot=plot,
    notes=(
        "Least squares over four steps, errors at the end. a is a_n at its own time, and λ follows from "
        "(2.2). All components are of second order, for every ρ∞. The theorems are not sharp: they bound "
        "the local error of v by O(h²) and sum it. But q̃ and ṽ break the constraints by only O(h³), so the "
        "projection moves v by only O(h³). Coordinate splitting solves the same equations "
        "(`tests/methods/test_yen.py`). Nonholonomic constraints are our extension. For the pendulum on a "
        "stiff spring λ is the tension of the spring, and the steps are far longer than its period."
    ),
)
