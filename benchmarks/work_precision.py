"""Error against run time on six problems: genalpha in three ways, scipy_dae, IDA, and Exudyn.

``python -m benchmarks.work_precision [PROBLEM ...]`` prints the result and writes it, with a picture of each
problem, to ``out/bench/``; ``taskset -c 1`` before it keeps it on one core.

Every solver runs down a ladder of tolerances or step sizes. Where one can be set up in several ways
(statement of the problem, stages, method), all of them run, and the fastest counts. Solvers of one rung take
turns, so that noise of the machine hits all alike.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from benchmarks import exudyn_models, peers, statements
from benchmarks.exudyn_top import in_angles
from benchmarks.measure import OUT, cores, markdown, paragraphs, plain, seconds, start_up, time_to, versions

Problem = ga.problems.Problem

CASES = ("pendulum", "heavy-top", "heavy-top-angles", "rolling-disk", "flexible-slider-crank", "andrews")
ENDS = {"flexible-slider-crank": 0.2}  # shorter than the problem: its vibrations take the peers long
METHODS = ("soi2", "stabilized", "projected")
TARGETS = (1e-3, 1e-4, 1e-5, 1e-6, 1e-8, 1e-10)
TOLERANCES = tuple(10 ** (-1 - k / 2) for k in range(21))
STEPS = tuple(round(25 * 2 ** (k / 2)) for k in range(28))
REPEATS = 7  # timed runs of each setting; their median counts
TOO_LONG = 1.0  # seconds of one run, after which a ladder ends; runs of one setting end after half of it
FINEST = 1e-11  # error after which it ends
RHO_INF = 0.9
CONTROLLED, EQUAL, ACCURATE = "genalpha", "genalpha, equal steps", "genalpha, accuracy"
SOLVERS = (CONTROLLED, EQUAL, ACCURATE, *peers.SOLVERS, "Exudyn")


@dataclass(frozen=True)
class Line:
    """A solver, set up but for one setting: ``run(setting)`` returns q at the end, None where it failed."""

    solver: str
    detail: str
    run: Callable[[float], np.ndarray | None]
    settings: Sequence[float]
    prepare: Callable[[float], Any] = lambda setting: None  # is not timed


@dataclass(frozen=True)
class Point:
    """One setting: relative error of q at the end, and the median time in milliseconds."""

    setting: float
    error: float
    ms: float


Curves = dict[tuple[str, str], list[Point]]  # by solver and detail


# --- what runs -----------------------------------------------------------------------------------------


def get(name: str) -> tuple[Problem, np.ndarray]:
    """A problem and the true q at its end. The disk is a rigid body, which J11's as it is printed is not."""
    parameters = {"sense": -1.0} if name == "rolling-disk" else {}
    source = ga.problems.get(name.removesuffix("-angles"), **parameters)
    problem = in_angles() if name == "heavy-top-angles" else source
    span = (problem.t_span[0], ENDS.get(name, problem.t_span[1]))
    q = exudyn_models.truth(replace(source, t_span=span))
    return replace(problem, t_span=span), q[:3] if name.startswith("heavy-top") else q


def own(problem: Problem) -> Iterator[Line]:
    """genalpha: its methods with error control, with equal steps, and with a wanted accuracy."""

    def controlled(method: str, tolerance: float) -> np.ndarray | None:
        options: dict[str, Any] = {
            "method": method,
            "rtol": tolerance,
            "atol": tolerance,
            "throw": False,
            "rho_inf": RHO_INF,
        }
        p = problem
        sol = ga.solve(p.system, p.t_span, p.q0, p.v0, args=p.args, max_steps=10_000_000, **options)
        return np.asarray(sol.q[-1]) if sol.success else None

    def equal(method: str, steps: float) -> np.ndarray | None:
        h = (problem.t_span[1] - problem.t_span[0]) / steps
        sol = problem.solve(h=h, t_end=problem.t_span[1], method=method, rho_inf=RHO_INF, throw=False)
        return np.asarray(sol.q[-1]) if sol.success else None

    def accurate(method: str, accuracy: float) -> np.ndarray | None:
        options: dict[str, Any] = {"t_end": problem.t_span[1], "rho_inf": RHO_INF, "throw": False}
        sol = problem.solve(accuracy=accuracy, method=method, max_steps=10_000_000, **options)
        return np.asarray(sol.q[-1]) if sol.success else None

    for method in METHODS:
        run = partial(accurate, method)
        yield Line(
            ACCURATE, method, run, TOLERANCES, run
        )  # columns and Newton's tolerance vary: compile before
        yield Line(CONTROLLED, method, partial(controlled, method), TOLERANCES)
        yield Line(EQUAL, method, partial(equal, method), STEPS)


def others(name: str, forms: peers.Forms) -> Iterator[Line]:
    """The peers."""

    def run(peer: peers.Peer, tolerance: float) -> np.ndarray | None:
        try:
            path = peer.run(tolerance)
        except (ValueError, np.linalg.LinAlgError):  # at loose tolerances some end so
            return None
        return path.q[-1] if path.success and np.isfinite(path.q[-1]).all() else None

    for peer in peers.peers(*forms):
        yield Line(peer.solver, peer.detail, partial(run, peer), TOLERANCES)
    for variant in exudyn_models.models(name, fastest=True):
        yield exudyn(variant, forms[0].problem.t_span[1])


def exudyn(variant: exudyn_models.Variant, t_end: float) -> Line:
    """Exudyn, assembled before the clock runs."""
    ready: list[exudyn_models.Run] = []

    def prepare(steps: float) -> None:
        ready[:] = [variant.prepare(t_end / steps, t_end, RHO_INF)]

    def run(steps: float) -> np.ndarray | None:
        try:
            ready[0].solve()
        except RuntimeError:
            return None
        return ready[0].q()

    return Line("Exudyn", variant.settings, run, STEPS, prepare)


# --- measurements --------------------------------------------------------------------------------------


def climb(lines: Sequence[Line], q_end: np.ndarray) -> Curves:
    """All settings of all lines, rung by rung; a line ends where a run takes too long."""
    found: Curves = {(line.solver, line.detail): [] for line in lines}
    alive = list(lines)
    for line in lines:  # compiles, imports, allocates
        line.prepare(line.settings[4])
        line.run(line.settings[4])
    for rung in range(max(len(line.settings) for line in lines)):
        alive = [line for line in alive if rung < len(line.settings)]
        ran = []
        for line in list(alive):
            line.prepare(line.settings[rung])
            begin = time.perf_counter()
            q = line.run(line.settings[rung])
            first, error = time.perf_counter() - begin, np.inf
            if q is not None:
                error = float(np.linalg.norm(q[: len(q_end)] - q_end) / np.linalg.norm(q_end))
                ran.append((line, error, [first]))
            patience = TOO_LONG if q is not None else 5 * TOO_LONG  # the first failure is explained at length
            if first > patience or error < FINEST:
                alive.remove(line)
        for _ in range(REPEATS - 1):
            for line, _, times in ran:
                if len(times) * times[0] < TOO_LONG / 2:
                    times.append(seconds(partial(line.run, line.settings[rung])))
        for line, reached, times in ran:
            point = Point(line.settings[rung], reached, 1e3 * statistics.median(times))
            found[line.solver, line.detail].append(point)
    return {key: points for key, points in found.items() if points}


def fastest(curves: Curves, solver: str, target: float) -> tuple[float, str]:
    """The shortest time of a solver's variants to an error, and which it is."""
    own = {detail: points for (name, detail), points in curves.items() if name == solver}
    times = [(time_to([p.error for p in o], [p.ms for p in o], target), detail) for detail, o in own.items()]
    reached = [pair for pair in times if not np.isnan(pair[0])]
    return min(reached) if reached else (np.nan, "")


# --- the report ----------------------------------------------------------------------------------------

HEAD = ("problem, error of q", *SOLVERS)


def cells(found: dict[str, Curves]) -> Iterator[tuple[str, ...]]:
    """Milliseconds to errors and, in brackets, times genalpha's with error control."""
    for name, curves in found.items():
        for target in TARGETS:
            unit = fastest(curves, CONTROLLED, target)[0]
            line = []
            for solver in SOLVERS:
                ms, detail = fastest(curves, solver, target)
                if np.isnan(ms):
                    line.append("-")
                    continue
                ratio = "" if solver == CONTROLLED or np.isnan(unit) else f" (×{ms / unit:.2g})"
                line.append(f"{ms:.3g}{ratio} {detail}")
            if any(cell != "-" for cell in line):
                yield (f"{name} {target:.0e}", *line)


def ahead(found: dict[str, Curves]) -> list[str]:
    """Where a peer needs less time than genalpha with error control or with ``accuracy``."""
    said = []
    for name, curves in found.items():
        for target in TARGETS:
            own = [fastest(curves, solver, target)[0] for solver in (CONTROLLED, ACCURATE)]
            unit = float(np.fmin(own[0], own[1]))
            times = [(fastest(curves, solver, target)[0], solver) for solver in (*peers.SOLVERS, "Exudyn")]
            reached = [pair for pair in times if not np.isnan(pair[0])]
            if reached and not min(reached)[0] >= unit:
                ms, solver = min(reached)
                by = "which genalpha does not reach" if np.isnan(unit) else f"{unit / ms:.1f} times as fast"
                said.append(f"{name}, {target:.0e}: {solver}, {by}")
    return said


LOOKS: dict[str, dict[str, Any]] = {
    CONTROLLED: {"color": "C0", "marker": "o", "lw": 1.6},
    EQUAL: {"color": "C0", "marker": "o", "ls": ":", "mfc": "white"},
    ACCURATE: {"color": "C9", "marker": "*", "lw": 1.6},
    "scipy_dae Radau": {"color": "C1", "marker": "s"},
    "scipy_dae BDF": {"color": "C2", "marker": "^"},
    "sksundae IDA": {"color": "C3", "marker": "D"},
    "Exudyn": {"color": "C4", "marker": "v"},
}


def picture(title: str, curves: Curves) -> Figure:
    """Errors over run time: of each solver the variant that is the fastest at most targets."""
    figure = Figure(figsize=(8, 5.5), layout="constrained")
    axis = figure.subplots()
    for solver in SOLVERS:
        winners = [fastest(curves, solver, target)[1] for target in TARGETS]
        reached = [detail for detail in winners if detail]
        if not reached:
            continue
        detail = statistics.mode(reached)
        points = curves[solver, detail]
        label = f"{solver}, {detail}"
        look: dict[str, Any] = {"ms": 4, "lw": 1.1} | LOOKS[solver]
        axis.loglog([point.ms for point in points], [point.error for point in points], label=label, **look)
    axis.set(title=title, xlabel="run time in ms", ylabel="relative error of q at the end", ylim=(1e-11, 2.0))
    axis.grid(which="major", alpha=0.4)
    axis.legend(fontsize=8)
    return figure


NOTES = """\
The table shows milliseconds to a relative error of q at the end (2-norm; heavy top: of x). Each entry is
interpolated by a power law between two settings of a ladder, from medians of up to {REPEATS} runs in turns.
In brackets: the ratio to genalpha with error control. All finer settings must reach the error too. -: not
reached by runs of at most {TOO_LONG:g} s. The name after the time is the fastest variant.

accuracy: the error that is asked for; the whole call is timed, with all attempts, but without the estimates
for a and λ. With error control rtol = atol. ρ∞ = {RHO_INF:g} as in Exudyn, native code. The time includes
checks and consistent initial values. Accelerations, multipliers, residuals and reactions are computed when
they are first asked for, and are not included. Peers: rtol = atol. F(t, y, y') and its Jacobian are machine
code made from the same equations. Initial values are consistent, given, and not timed. GGL: stabilised
index 2 (Gear, Gupta, Leimkuhler). index 1: constraints of acceleration. ∫: integrals of the multipliers as
unknowns. s3, s5: stages. free: multipliers are left out of the error test. Exudyn: equal steps; the model
is assembled before timing starts, and nothing is written. For the rotation of the heavy top the general
solvers use unit quaternions and Exudyn uses a Lie group node; heavy-top-angles is the same top in three
angles for all solvers.

At consistent states F is at most {residual:.0e}, and its matrices differ from JAX's by {jacobian:.0e},
relative to the largest entry. Cores available: {cores}; mean number of busy processes in the minute before:
{load:.1f}. Times are not reliable if other programs run at the same time."""


def verify(forms: peers.Forms) -> statements.Check:
    """How far the peers' equations are from what is integrated here; raises where one is wrong."""
    worst = statements.worst(statements.check(form) for form in forms)
    if max(worst) > 1e-10:
        raise RuntimeError(f"the equations for the peers are wrong: {forms[0].problem.name}, {worst}")
    return worst


def main(names: Sequence[str]) -> None:
    """Measure, print, write."""
    values: dict[str, Any] = {"load": os.getloadavg()[0], "cores": cores(), "start": start_up()}
    found: dict[str, Curves] = {}
    checks = []
    OUT.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for name in names:
            problem, q_end = get(name)
            forms = peers.forms(problem)
            checks.append(verify(forms))
            found[name] = climb([*own(problem), *others(name, forms)], q_end)
            title = f"{problem.title}, t = {problem.t_span[1]:g}"
            picture(title, found[name]).savefig(OUT / f"work-precision-{name}.png", dpi=110)
            print(plain(HEAD, list(cells({name: found[name]}))), flush=True)
    notes = paragraphs(NOTES.format(**globals() | values, **statements.worst(checks)._asdict()))
    where = ahead(found)
    print(
        *("A peer is ahead: " + each for each in where),
        *(textwrap.fill(note, 98) for note in notes),
        sep="\n",
    )
    text = "\n\n".join([markdown(HEAD, list(cells(found))), *notes, "\n".join(f"- {each}" for each in where)])
    (OUT / "work_precision.md").write_text(text + "\n", encoding="utf-8")
    packages = ("genalpha", "jax", "jaxlib", "numpy", "scipy", "scipy_dae", "scikit-sundae", "exudyn")
    record: dict[str, Any] = values | {"versions": versions(*packages), "ahead": where}
    record["curves"] = {
        name: {" | ".join(key): [asdict(point) for point in points] for key, points in curves.items()}
        for name, curves in found.items()
    }
    data = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (OUT / "work_precision.json").write_text(data, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:] or CASES)
