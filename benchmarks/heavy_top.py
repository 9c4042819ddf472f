"""The heavy top of Arnold, Cardona & Brüls in genalpha and in Exudyn: time of a step, time to an accuracy.

``python -m benchmarks.heavy_top`` prints the result and writes it to ``out/bench/heavy_top.json``,
``heavy_top.md`` and ``heavy-top-work-precision.png``; ``taskset -c 1`` before it keeps it on one core. All
solvers take turns, so that noise of the machine hits all alike.

genalpha solves three statements of the problem: on R³×SO(3), on SE(3), and in angles, the coordinates in
which Exudyn is most accurate.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from benchmarks import exudyn_top
from benchmarks.measure import (
    OUT,
    cores,
    in_turns,
    markdown,
    paragraphs,
    plain,
    seconds,
    start_up,
    time_to,
    versions,
)

Key = tuple[str, str, str]  # code, coordinates, method
Problem = ga.problems.Problem

RHO_INF, H = 0.9, 1e-3
STEP_SIZES = tuple(4e-3 / 2**k for k in range(7))
REPEATS, TURNS = 31, 9  # timed runs of each solver in the table, and of each point of the curves
METHODS = ("index3", "stabilized", "soi2")
LIE, ANGLES = (
    ("Exudyn", "vector", "index 3"),
    ("Exudyn", "angles", "index 3"),
)  # what others are compared with
TARGETS = (("error_x", 1e-3), ("error_x", 1e-4), ("worst_lam", 1e-2), ("worst_lam", 1e-3))


# --- solvers -----------------------------------------------------------------------------------------


class Run(NamedTuple):
    """What is timed, and the same with a look at everything afterwards."""

    solve: Callable[[], Any]
    result: Callable[[], exudyn_top.Result]


@dataclass(frozen=True)
class Solver:
    """A solver with all of its settings; ``prepare(h, t_end)`` makes it ready to run."""

    key: Key
    newton: str
    tol: float
    prepare: Callable[[float, float], Run]


def own(problem: Problem, coordinates: str, method: str, policy: Any, tol: float) -> Solver:
    """genalpha."""
    options: dict[str, Any] = {"method": method, "rho_inf": RHO_INF, "newton": ga.Newton(policy, tol=tol)}

    def prepare(h: float, t_end: float) -> Run:
        solve = partial(problem.solve, h=h, t_end=t_end, **options)

        def result() -> exudyn_top.Result:
            sol = solve()
            work = [each / sol.stats.steps for each in (sol.stats.newton_iterations, sol.stats.jacobians)]
            residuals = [float(each.max()) for each in (sol.residuals.position, sol.residuals.velocity)]
            return exudyn_top.Result(sol.q[-1, :3], sol.lam, *work, *residuals)

        return Run(solve, result)

    return Solver(("genalpha", coordinates, method), policy, tol, prepare)


def peer(formulation: Any, newton: Any, index2: bool = False) -> Solver:
    """Exudyn, with its default tolerance."""

    def prepare(h: float, t_end: float) -> Run:
        options: Any = {"formulation": formulation, "newton": newton, "index2": index2}
        top = exudyn_top.Top(h, t_end=t_end, rho_inf=RHO_INF, **options)
        return Run(top.solve, top.result)

    return Solver(("Exudyn", formulation, "index 2" if index2 else "index 3"), newton, 1e-8, prepare)


def solvers(problem: Problem) -> list[Solver]:
    """All of them."""
    lie = [own(problem, "R³×SO(3)", *each) for each in product(METHODS, ("modified", "full"), (1e-8, 1e-12))]
    others = {"SE(3)": ga.problems.get("heavy-top", space="SE3"), "angles": exudyn_top.in_angles()}
    rest = [own(others[name], name, method, "modified", 1e-8) for name, method in product(others, METHODS)]
    return lie + rest + [peer(**preset) for preset in exudyn_top.PRESETS]


# --- measurements ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One solver with one step size.

    Times of a step in µs: of the whole call, the best of it, and without what a call costs however short.
    ``error_x`` and ``error_lam`` are relative errors at t = 1, ``worst_lam`` is the largest error of λ at any
    step in units of |λ(1)|, ``position`` and ``velocity`` are the largest residuals of the constraints.
    """

    key: Key
    newton: str
    tol: float
    h: float
    us: float
    best_us: float
    us_step: float
    iterations: float
    jacobians: float
    error_x: float
    error_lam: float
    worst_lam: float
    position: float
    velocity: float

    @property
    def ms(self) -> float:
        return 1e-3 * self.us / self.h


Errors = Callable[[exudyn_top.Result], dict[str, float]]


def judge(problem: Problem) -> Errors:
    """A function that finds the errors, from the true motion at the finest steps."""
    assert problem.reference is not None
    end = {name: np.array(values) for name, values in problem.published[1.0].items()}
    lam = np.asarray(problem.reference(np.linspace(0.0, 1.0, round(1 / min(STEP_SIZES)) + 1)).lam)

    def errors(found: exudyn_top.Result) -> dict[str, float]:
        true = lam[:: (len(lam) - 1) // (len(found.lam) - 1)]
        x, unit = end["q"][:3], np.linalg.norm(end["lam"])
        return {
            "error_x": float(np.linalg.norm(found.x - x) / np.linalg.norm(x)),
            "error_lam": float(np.linalg.norm(found.lam[-1] - end["lam"]) / unit),
            "worst_lam": float(np.linalg.norm(found.lam - true, axis=1).max() / unit),
        }

    return errors


def measure(contenders: Sequence[Solver], h: float, repeats: int, errors: Errors) -> list[Row]:
    """All solvers that come to the end with one step size."""
    found = []
    for solver in contenders:
        try:
            found.append((solver, solver.prepare(h, 1.0).result()))
        except (RuntimeError, ga.IntegrationError):
            continue
    runs = [solver.prepare(h, t_end).solve for t_end in (1.0, 0.2) for solver, _ in found]
    times = 1e6 * h * np.array(in_turns(runs, repeats))
    whole, fifth = np.median(times, axis=1).reshape(2, -1)
    best = times[: len(found)].min(axis=1)
    rows = []
    for (solver, result), us, part, least in zip(found, whole, fifth, best, strict=True):
        values = vars(result) | errors(result) | {"us": us, "us_step": (us - part) / 0.8, "best_us": least}
        del values["x"], values["lam"]
        rows.append(Row(solver.key, solver.newton, solver.tol, h, **values))
    return rows


Curves = dict[Key, list[Row]]


def curves(contenders: Sequence[Solver], errors: Errors) -> Curves:
    """For all step sizes the fastest of Newton's policies."""
    found: Curves = {solver.key: [] for solver in contenders}
    for h in STEP_SIZES:
        rows = measure([solver for solver in contenders if solver.tol == 1e-8], h, TURNS, errors)
        for key, points in found.items():
            points += sorted((row for row in rows if row.key == key), key=lambda row: row.us)[:1]
    return found


def reached(points: Sequence[Row], name: str, target: float) -> float:
    """Milliseconds to an error of one kind."""
    return time_to([getattr(point, name) for point in points], [point.ms for point in points], target)


def import_seconds(package: str) -> float:
    """Time of a process that only imports a package, less that of one that does nothing."""
    commands = ([sys.executable, "-c", code] for code in ("pass", f"import {package}"))
    without, taken = (seconds(partial(subprocess.run, each, stdout=subprocess.DEVNULL)) for each in commands)
    return taken - without


# --- the report --------------------------------------------------------------------------------------

_HEAD = "solver, µs, best, step, ×best, ×Lie, iter., Jac., error x, error λ, worst λ, pos., vel., first s"
HEAD = tuple(_HEAD.split(", "))
HEAD_TIMES = ("ms to an error of (×Lie, ×angles)", "x 1e-3", "x 1e-4", "worst λ 1e-2", "worst λ 1e-3")


def name(item: Solver | Row) -> str:
    return f"{' '.join(item.key)} {item.newton} {item.tol:.0e}"


def cells(rows: Sequence[Row], firsts: dict[str, float]) -> Iterator[tuple[str, ...]]:
    """The table of solvers."""
    best = min(row.us for row in rows if row.key[0] == "Exudyn")
    lie = min(row.us for row in rows if row.key == LIE)
    for row in rows:
        yield (
            name(row),
            *(f"{value:.1f}" for value in (row.us, row.best_us, row.us_step)),
            *(f"{value:.2f}" for value in (row.us / best, row.us / lie, row.iterations, row.jacobians)),
            *(f"{value:.1e}" for value in (row.error_x, row.error_lam, row.worst_lam)),
            *(f"{value:.0e}" for value in (row.position, row.velocity)),
            f"{firsts[name(row)]:.2f}",
        )


def time_cells(found: Curves) -> Iterator[tuple[str, ...]]:
    """Times to reach errors, and how they compare with Exudyn's."""

    def cell(*times: float) -> str:
        ms, lie, angles = times
        return "-" if np.isnan(ms) else f"{ms:.1f} ({ms / lie:.2f}, {ms / angles:.2f})".replace("nan", "-")

    for key in found:
        line = (cell(*(reached(found[each], *target) for each in (key, LIE, ANGLES))) for target in TARGETS)
        yield (" ".join(key), *line)


TITLES = {"error_x": "x at t = 1", "worst_lam": "λ at its worst step, in units of |λ(1)|"}
NAMES = {"vector": "Lie group node", "parameters": "Euler parameters"}
COLORS = {"R³×SO(3)": "C0", "vector": "C0", "SE(3)": "C4", "angles": "C3", "parameters": "C2"}
MARKERS = {"index3": "o", "index 3": "o", "stabilized": "s", "soi2": "^", "index 2": "D"}


def picture(found: Curves) -> Figure:
    """Errors over run time. On SE(3) all methods give the same: one is drawn."""
    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(1, 2)
    for axis, (error, title) in zip(axes, TITLES.items(), strict=True):
        for key, points in found.items():
            if key[1] == "SE(3)" and key[2] != "stabilized":
                continue
            theirs = {"ls": "--", "mfc": "white"} if key[0] == "Exudyn" else {}
            look = {"color": COLORS[key[1]], "marker": MARKERS[key[2]], "ms": 5, "lw": 1.3} | theirs
            label = f"{key[0]}, {NAMES.get(key[1], key[1])}, {key[2]}"
            axis.loglog(
                [point.ms for point in points], [getattr(p, error) for p in points], label=label, **look
            )
        axis.set(title=title, xlabel="run time in ms", ylim=(1e-7, 1.0))
        axis.grid(which="major", alpha=0.4)
    axes[0].set_ylabel("relative error")
    handles = axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(f"Heavy top, ρ∞ = {RHO_INF:g}, h from {max(STEP_SIZES):g} down to {min(STEP_SIZES):g}")
    return figure


NOTES = """\
First table: one second, rho_inf = {RHO_INF:g}, h = {H:g}. µs: time of the whole call divided by the number
of steps, median of {REPEATS} with all solvers in turns. best: the smallest of these. step: slope between a
fifth and the whole of the second. ×best, ×Lie: µs relative to Exudyn's fastest line, and to its fastest on
the Lie group, index 3. iter., Jac.: Newton iterations and new matrices per step. error x, λ: at t = 1.
worst λ: at any step, in units of |λ(1)|. pos., vel.: largest residual of the constraints. first s: time to
the first result, after the packages are imported (genalpha {genalpha:.2f} s, exudyn {exudyn:.2f} s) and JAX
has started ({start:.2f} s).

A call of genalpha includes checks and initial values, and returns all steps. Accelerations, λ, residuals
and reactions are computed when they are first asked for, and that is not timed. Exudyn's model is assembled
before timing starts; it writes nothing and keeps only the end. The last two parts of a name are Newton's
policy and tolerance; the two codes test convergence differently. Exudyn's new matrices: once per step
(step), after three iterations (modified), by its own rule (default), in every iteration (full).

Times to an error: h from {STEP_SIZES[0]:g} to {STEP_SIZES[6]:g}, medians of {TURNS} in turns, tolerance
1e-8, the fastest policy for each, interpolated by a power law between step sizes. In brackets: relative to
Exudyn on the Lie group and in angles, index 3. -: not reached. If the longest step is accurate enough, its
time is shown.

Cores available: {cores}; mean number of busy processes in the minute before: {load:.1f}. Times are not
reliable if other programs run at the same time."""


def write(text: str, record: dict[str, Any], figure: Figure) -> None:
    """The three files."""
    OUT.mkdir(parents=True, exist_ok=True)
    packages = ("genalpha", "jax", "jaxlib", "numpy", "exudyn")
    record["versions"] = versions(*packages)
    data = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (OUT / "heavy_top.json").write_text(data, encoding="utf-8")
    (OUT / "heavy_top.md").write_text(text, encoding="utf-8")
    figure.savefig(OUT / "heavy-top-work-precision.png", dpi=110)


def main() -> None:
    """Measure, print, write."""
    values = {"load": os.getloadavg()[0], "cores": cores(), "start": start_up()}
    values |= {package: import_seconds(package) for package in ("genalpha", "exudyn")}
    exudyn_top.exudyn()
    problem = ga.problems.get("heavy-top")
    contenders, errors = solvers(problem), judge(problem)
    firsts = {name(each): seconds(lambda each=each: each.prepare(H, 1.0).solve()) for each in contenders}  # type: ignore[misc]
    rows, found = measure(contenders, H, REPEATS, errors), curves(contenders, errors)
    tables = (
        (HEAD, list(cells(rows, firsts))),
        (HEAD_TIMES, list(time_cells(found))),
    )
    notes = paragraphs(NOTES.format(**globals() | values))
    print(*(plain(*each) for each in tables), *(textwrap.fill(note, 98) for note in notes), sep="\n\n")
    text = "\n\n".join([*(markdown(*each) for each in tables), *notes]) + "\n"
    lines = {" ".join(key): [asdict(point) for point in points] for key, points in found.items()}
    record = {"rows": [asdict(row) for row in rows], "curves": lines, "first_s": firsts}
    write(text, record | values, picture(found))


if __name__ == "__main__":
    main()
