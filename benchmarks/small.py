"""Cost to reach a given accuracy on two small problems, against general solvers of DAEs.

``python -m benchmarks.small`` prints the result and writes it to ``out/bench/small.json`` and ``small.md``.

Every solver runs down a ladder of settings (number of steps, or tolerance) and gets the coarsest one that
meets the target together with the next finer ones, so that no error counts that is small by chance. Solvers
that can be set up in several ways (statement of the problem, Jacobian, stages) get the fastest of them. The
chosen settings are then timed in turns. XLA may spread even small operations over threads, which makes times
uneven on busy machines; ``taskset -c 0 python -m benchmarks.small`` measures on one core.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import textwrap
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import genalpha as ga
from benchmarks import peers
from genalpha.drive import xla

Problem = ga.problems.Problem

PROBLEMS = ("pendulum", "rolling-disk")
TARGETS = (1e-4, 1e-6)
METHOD, RHO_INF = "soi2", 0.8
REPEATS = 21  # timed runs of each chosen setting; their median counts
TRIALS = 5  # timed runs of each variant of a solver, to choose one
CONFIRM = 2  # finer settings that must meet the target too
TOO_LONG = 1.0  # seconds of one run, after which a variant is given up
STEPS = tuple(round(32 * 2 ** (k / 4)) for k in range(45))
TOLERANCES = tuple(10 ** (-1 - k / 4) for k in range(47))
SOLVERS = ("genalpha", "scipy_dae Radau", "scipy_dae BDF", "sksundae IDA")
OUT = Path("out/bench")


# --- runs --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Variant:
    """A solver, set up but for one setting, with the settings to try from coarse to fine."""

    solver: str
    detail: str
    run: Callable[[float], peers.Path]
    settings: Sequence[float]


@dataclass(frozen=True)
class Point:
    """One setting of one variant and the relative error of q at the end; infinite where a run failed."""

    variant: Variant
    setting: float
    error: float

    def run(self) -> peers.Path:
        return self.variant.run(self.setting)


@dataclass(frozen=True)
class Row:
    """One line of the result. Times in milliseconds; violations are the largest at the solver's own steps."""

    problem: str
    target: float
    solver: str
    setting: str
    reached: bool
    error: float
    position: float | None
    velocity: float
    steps: int
    median_ms: float
    best_ms: float
    us_per_step: float
    ratio: float


def seconds(function: Callable[[], Any]) -> float:
    """Time of one call."""
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def in_turns(functions: Sequence[Callable[[], Any]], repeats: int) -> list[list[float]]:
    """Times of ``repeats`` calls of each function, taken in turns so that all meet the same disturbances."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for taken, function in zip(times, functions, strict=True):
            taken.append(seconds(function))
    return times


def solve(problem: Problem, steps: float, quarters: int = 4) -> ga.Solution:
    """genalpha over the first quarters of the time span, with ``steps`` steps to the whole of it."""
    t0, t1 = problem.t_span
    h = (t1 - t0) / round(steps)
    end = t0 + (t1 - t0) * quarters / 4
    return problem.solve(t_end=end, h=h, method=METHOD, rho_inf=RHO_INF, throw=False)


def variants(problem: Problem) -> list[Variant]:
    """genalpha and all peers, ready to run."""

    def run(steps: float) -> peers.Path:
        sol = solve(problem, steps)
        return peers.Path(sol.q, sol.v, bool(sol.success))

    t0 = problem.t_span[0]
    state = ga.consistent(problem.system, t0, problem.q0, problem.v0, problem.args)
    others = [Variant(p.solver, p.detail, p.run, TOLERANCES) for p in peers.peers(problem, state)]
    return [Variant("genalpha", METHOD, run, STEPS), *others]


# --- the search --------------------------------------------------------------------------------------


def ladder(variant: Variant, q_end: np.ndarray) -> list[Point]:
    """Errors from coarse to fine, until the hardest target is met and confirmed."""
    points: list[Point] = []
    variant.run(variant.settings[0])
    for setting in variant.settings:
        begin = time.perf_counter()
        path = variant.run(setting)
        error = np.linalg.norm(path.q[-1] - q_end) / np.linalg.norm(q_end)
        points.append(Point(variant, setting, float(error) if path.success else np.inf))
        if time.perf_counter() - begin > TOO_LONG or choose(points, min(TARGETS)):
            break
    return points


def choose(points: Sequence[Point], target: float) -> Point | None:
    """The coarsest point that meets the target together with the next ``CONFIRM`` ones."""
    for i in range(len(points) - CONFIRM):
        if all(point.error <= target for point in points[i : i + CONFIRM + 1]):
            return points[i]
    return None


def fastest(candidates: Sequence[Point]) -> Point:
    """The point whose best of ``TRIALS`` runs, taken in turns, is shortest."""
    if len(candidates) == 1:
        return candidates[0]
    times = in_turns([point.run for point in candidates], TRIALS)
    return min(zip(times, candidates, strict=True), key=lambda pair: min(pair[0]))[1]


def contenders(ladders: Sequence[Sequence[Point]], target: float) -> dict[str, tuple[Point, bool]]:
    """For each solver its fastest point that meets the target, or its most accurate one; and which it is."""
    best: dict[str, tuple[Point, bool]] = {}
    for solver in SOLVERS:
        own = [points for points in ladders if points[0].variant.solver == solver]
        found = [point for points in own if (point := choose(points, target))]
        if found:
            best[solver] = fastest(found), True
        else:
            best[solver] = min((point for points in own for point in points), key=lambda p: p.error), False
    return best


def compare(problem: Problem) -> list[Row]:
    """All solvers at all targets."""
    assert problem.reference is not None
    q_end = np.asarray(problem.reference(problem.t_span[1]).q)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        ladders = [ladder(variant, q_end) for variant in variants(problem)]
    rows = []
    for target in TARGETS:
        chosen = contenders(ladders, target)
        times = in_turns([point.run for point, _ in chosen.values()], REPEATS)
        own = statistics.median(times[0])
        for (point, reached), taken in zip(chosen.values(), times, strict=True):
            rows.append(_row(problem, target, point, reached, taken, own))
    return rows


def _row(
    problem: Problem, target: float, point: Point, reached: bool, times: Sequence[float], own: float
) -> Row:
    path = point.run()
    position, velocity = peers.forms(problem)[0].mechanics.violation(path.q, path.v)
    median, steps = statistics.median(times), len(path.q) - 1
    return Row(
        problem=problem.name,
        target=target,
        solver=point.variant.solver,
        setting=_setting(problem, point),
        reached=reached,
        error=point.error,
        position=float(np.abs(position).max()) if position.size else None,
        velocity=float(np.abs(velocity).max()),
        steps=steps,
        median_ms=1e3 * median,
        best_ms=1e3 * min(times),
        us_per_step=1e6 * median / steps,
        ratio=median / own,
    )


def _setting(problem: Problem, point: Point) -> str:
    if point.variant.solver == "genalpha":
        return f"h = {(problem.t_span[1] - problem.t_span[0]) / point.setting:.3g}"
    return f"{point.setting:.1e} {point.variant.detail}"


# --- genalpha on its own -----------------------------------------------------------------------------


class First(NamedTuple):
    """The first call on a problem, and the same call later (median), in seconds."""

    problem: Problem
    first: float
    later: float


@dataclass(frozen=True)
class Own:
    """What one problem costs in genalpha.

    ``first_s`` is the time to the first result, ``compile_s`` that less the time of the same call later.
    Steps are timed as the difference between a whole run and its first quarter, medians in ``us_per_step``
    and shortest times in ``best_us_per_step``, apart from what a call costs however short, ``call_ms``.
    ``iterations`` and ``jacobians`` are means per step of that run.
    """

    problem: str
    first_s: float
    compile_s: float
    steps: int
    us_per_step: float
    best_us_per_step: float
    call_ms: float
    iterations: float
    jacobians: float


def start_up() -> float:
    """Seconds until JAX has compiled and run anything at all; nothing is read from a cache of programs."""
    jax.config.update("jax_enable_compilation_cache", False)
    return seconds(lambda: jax.jit(lambda x: x + 1.0)(1.0).block_until_ready())


def first_call(name: str) -> First:
    """The first call on a problem in this process."""
    problem = ga.problems.get(name)
    call = partial(solve, problem, (problem.t_span[1] - problem.t_span[0]) / problem.h)
    first = seconds(call)
    return First(problem, first, statistics.median(in_turns([call], REPEATS)[0]))


def own_costs(first: First, steps: int = 8 * xla.BLOCK) -> Own:
    """genalpha's costs on one problem, with ``steps`` steps to the time span."""
    problem = first.problem
    runs = [partial(solve, problem, steps, quarters) for quarters in (1, 4)]
    times = in_turns(runs, REPEATS)
    part, whole = (statistics.median(taken) for taken in times)
    step = (whole - part) / (0.75 * steps)
    best = (min(times[1]) - min(times[0])) / (0.75 * steps)
    stats = solve(problem, steps).stats
    return Own(
        problem=problem.name,
        first_s=first.first,
        compile_s=first.first - first.later,
        steps=steps,
        us_per_step=1e6 * step,
        best_us_per_step=1e6 * best,
        call_ms=1e3 * (whole - steps * step),
        iterations=stats.newton_iterations / steps,
        jacobians=stats.jacobians / steps,
    )


# --- the report --------------------------------------------------------------------------------------

HEAD = ("solver", "setting", "error", "pos.", "vel.", "steps", "ms", "best", "ratio")
_OWN = "genalpha, first s, compile, us/step (best), call ms, iter., Jac."
HEAD_OWN = tuple(_OWN.split(", "))


def cells(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """The comparison, with a line before each problem and target."""
    last = ("", 0.0)
    for row in rows:
        if (row.problem, row.target) != last:
            last = row.problem, row.target
            yield (f"{row.problem} {row.target:.0e}", *[""] * (len(HEAD) - 1))
        yield (
            row.solver,
            row.setting,
            f"{row.error:.1e}" + ("" if row.reached else "!"),
            "-" if row.position is None else f"{row.position:.0e}",
            f"{row.velocity:.0e}",
            str(row.steps),
            f"{row.median_ms:.2f}",
            f"{row.best_ms:.2f}",
            f"{row.ratio:.2f}",
        )


def own_cells(costs: Sequence[Own]) -> Iterator[tuple[str, ...]]:
    """genalpha's own numbers."""
    for own in costs:
        numbers = (own.call_ms, own.iterations, own.jacobians)
        yield (
            own.problem,
            f"{own.first_s:.2f}",
            f"{own.compile_s:.2f}",
            f"{own.us_per_step:.1f} ({own.best_us_per_step:.1f})",
            *(f"{number:.2f}" for number in numbers),
        )


def plain(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A table for the terminal."""
    widths = [max(len(line[i]) for line in (head, *lines)) for i in range(len(head))]
    left = 2 if head is HEAD else 1

    def text(line: Sequence[str]) -> str:
        sized = enumerate(zip(line, widths, strict=True))
        return "  ".join(c.ljust(w) if i < left else c.rjust(w) for i, (c, w) in sized).rstrip()

    return "\n".join([text(head), *(text(line) for line in lines)])


def markdown(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *lines))


NOTES = """\
error: of q at the end, 2-norm, relative; ! where the target was not met. Setting: step size or tolerance,
the coarsest of a ladder that meets the target together with the next {CONFIRM} finer ones. pos., vel.:
largest violation of the constraints of position and of velocity at the solver's own steps. ms: median of
{REPEATS} runs, solvers in turns; best: of the same runs; ratio: of the medians, to genalpha.

genalpha: {METHOD}, rho_inf = {RHO_INF:g}, one step size; its time holds consistent initial values,
residuals and reactions. Peers: rtol = atol, residual in Python without JAX, consistent initial values given
and not timed, the fastest of several variants. GGL: stabilised index 2 (Gear, Gupta, Leimkuhler). index 2:
rolling conditions. index 1: constraints of acceleration. ∫: integrals of the multipliers as unknowns. J,
fd: Jacobian by hand, by differences. s3, s5: stages. free: multipliers out of the error test. At the
reference the peers' residuals are at most {residual:.0e}, their Jacobians differ from differences by
{jacobian:.0e}, relative to the largest entry.

first: seconds to the first result of a problem in this process, after JAX itself has started
({start:.2f} s). compile: less the same call later (median of {REPEATS}). us/step: slope between a quarter
and the whole of a run of {steps} steps (medians of {REPEATS}, and best); call ms: what is left. iter.,
Jac.: Newton corrections and new matrices per step of that run.

Cores to run on: {cores}; mean number of busy processes in the minute before: {load:.1f}. Times mean little
where others are at work."""


def notes(checks: dict[str, peers.Check], **values: float) -> list[str]:
    """What the numbers mean, in paragraphs."""
    residual, jacobian = (max(column) for column in zip(*checks.values(), strict=True))
    filled = NOTES.format(**globals(), **values, residual=residual, jacobian=jacobian)
    return [" ".join(paragraph.split()) for paragraph in filled.split("\n\n")]


def write(rows: Sequence[Row], costs: Sequence[Own], text: str, extra: dict[str, Any]) -> None:
    """The JSON and the Markdown file."""
    OUT.mkdir(parents=True, exist_ok=True)
    packages = ("genalpha", "jax", "jaxlib", "numpy", "scipy", "scipy_dae", "scikit-sundae")
    record = {
        "versions": {name: version(name) for name in packages} | {"python": platform.python_version()},
        "repeats": REPEATS,
        "rows": [asdict(row) for row in rows],
        "genalpha": [asdict(own) for own in costs],
        **extra,
    }
    (OUT / "small.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    (OUT / "small.md").write_text(text, encoding="utf-8")


def verify(problem: Problem) -> dict[str, peers.Check]:
    """Checks of the peers' equations at seven states of the reference; raises where one is wrong."""
    assert problem.reference is not None
    states = [problem.reference(t) for t in np.linspace(*problem.t_span, 7)]
    checks = {f"{problem.name} {form.name}": peers.check(form, states) for form in peers.forms(problem)}
    for name, result in checks.items():
        if max(result) > 1e-7:
            raise RuntimeError(f"the equations for the peers are wrong: {name}, {result}")
    return checks


def main() -> None:
    """Measure, print, write."""
    load, start = os.getloadavg()[0], start_up()
    firsts = [first_call(name) for name in PROBLEMS]
    checks = {name: value for first in firsts for name, value in verify(first.problem).items()}
    costs = [own_costs(first) for first in firsts]
    rows = [row for first in firsts for row in compare(first.problem)]
    tables = [(HEAD, list(cells(rows))), (HEAD_OWN, list(own_cells(costs)))]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    explained = notes(checks, start=start, steps=costs[0].steps, load=load, cores=cores)
    print(*(plain(*table) for table in tables), *(textwrap.fill(note, 98) for note in explained), sep="\n\n")
    text = "\n\n".join([*(markdown(*table) for table in tables), *explained]) + "\n"
    results = {name: result._asdict() for name, result in checks.items()}
    write(rows, costs, text, {"jax_start_up_s": start, "load": load, "cores": cores, "checks": results})


if __name__ == "__main__":
    main()
