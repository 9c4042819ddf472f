"""Mechanisms from bodies and joints: genalpha, Exudyn and, for trees, MuJoCo, at equal error.

``python -m benchmarks.multibody [part of a name ...]`` prints tables and writes them to ``out/bench/``. Names
are those of :mod:`benchmarks.mechanism_cases`; all are run by default. ``--first`` measures first results,
``--runs`` all else. ``taskset -c 1`` before it keeps it on one core.

Solvers take turns, each case in a process of its own (``--child``). Times are CPU times, since other programs
disturb the clock on the wall; all solvers have one thread. Exudyn runs in the fastest of all its
variants, judged by time · √error at a long and at a short step, because it is of second order.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import genalpha as ga
from benchmarks.exudyn_mechanisms import TOLERANCES, Mechanism, Variant, variants
from benchmarks.measure import OUT, markdown, time_to, versions
from benchmarks.mechanism_cases import CASES, MIX, Case
from benchmarks.mujoco_trees import INTEGRATORS, Tree
from genalpha.compiler import objects
from genalpha.multibody.closing.geometry import Geometry

Array = np.ndarray
RHO_INF, TOL = 0.8, 1e-8
METHODS = ("index3", "stabilized", "soi2")
TARGETS = (1e-3, 1e-4, 1e-5, 1e-6)
LIMIT = 0.7  # seconds of the longest run
ENOUGH = 0.2  # seconds of repeated runs
APART = 3e-8  # if the limits of genalpha and Exudyn differ by more, each has its own reference
OWN = tuple(f"{m}, equal steps" for m in METHODS), "extrapolated", "tolerance", "accuracy"


def busy(function: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of one call, and its result."""
    begin = time.process_time()
    result = function()
    return time.process_time() - begin, result


class Point(NamedTuple):
    """A run of a ladder: seconds, error, and largest constraint of positions and velocities at the end."""

    time: float
    error: float
    g: float = np.nan
    g_dot: float = np.nan


class Problem:
    """A case with its reference and a measure for errors."""

    def __init__(self, case: Case) -> None:
        self.case, self.model, self.span = case, case.model(), (0.0, case.t_end)
        self.geometry = Geometry(self.model)
        self.points = np.concatenate(
            [np.arange(q.start, q.start + 3 - (body.kind.name == "planar")) for body, q in self._slices()]
        )
        sharp: dict[str, Any] = {"newton": ga.Newton(tol=1e-12), "method": "stabilized", "rho_inf": RHO_INF}
        run = lambda steps, **options: self.model.solve(
            self.span, h=case.t_end / steps, **sharp | {"save": "final"} | options
        )
        x = np.asarray(run(case.fine, save=max(1, case.fine // 50)).q)[:, self.points]
        self.size = float(np.abs(x - x[0]).max())  # the largest displacement
        self.limit = np.asarray(run(case.fine, extrapolate=4).q[-1])[self.points]

    def _slices(self) -> Any:
        return [(body, self.model.slices()[body.name][0]) for body in self.model.bodies]

    def point(self, q: Array, v: Array | None, limit: Array | None = None) -> Point:
        """Error and constraints of a state at the end; the time comes later."""
        error = self.error(np.asarray(q)[self.points], self.limit if limit is None else limit)
        if v is None:
            return Point(np.nan, error)
        at = self.geometry.at(np.asarray(q), np.asarray(v))
        return Point(np.nan, error, *(float(np.abs(x).max(initial=0.0)) for x in (at.g, at.g_dot)))

    def error(self, x: Array, limit: Array) -> float:
        return float(np.abs(x - limit).max()) / self.size


class Rung(NamedTuple):
    """A setting of a ladder: a run, and what it leaves."""

    run: Callable[[], Any]
    point: Callable[[Any], Point]


def own(problem: Problem) -> dict[str, list[Rung]]:
    """The ladders of genalpha."""
    solve = problem.model.solve

    def rung(**options: Any) -> Rung:
        given: dict[str, Any] = {"rho_inf": RHO_INF, "newton": ga.Newton(tol=TOL), "save": "final"}
        given |= options
        return Rung(lambda: solve(problem.span, **given), lambda sol: problem.point(sol.q[-1], sol.v[-1]))

    end, steps = problem.case.t_end, problem.case.steps
    found = {f"{method}, equal steps": [rung(method=method, h=end / n) for n in steps] for method in METHODS}
    fewer = [max(4, steps[0] // 4), max(8, steps[0] // 2), *steps]
    for tol in TOLERANCES:
        own = {"method": "index3", "newton": ga.Newton(tol=tol)}
        found[f"extrapolated, {tol:.0e}"] = [rung(h=end / n, extrapolate=2, **own) for n in fewer]
        if tol != TOL:
            found[f"index3, equal steps, Newton {tol:.0e}"] = [rung(h=end / n, **own) for n in steps]
    found["tolerance"] = [rung(method="stabilized", rtol=10.0**-k, atol=10.0**-k) for k in range(2, 9)]
    found["accuracy"] = [rung(method="stabilized", accuracy=10.0**-k) for k in range(3, 8)]
    return found


def exudyn_limit(problem: Problem) -> tuple[Array | None, float]:
    """Exudyn's own limit where it is not that of genalpha, and how far the two are apart."""
    case, ends = problem.case, []
    variant = next(v for v in variants(problem.model) if v.formulation in ("planar", "parameters"))
    peer = Mechanism(problem.model, variant.formulation)
    for steps in case.steps[-2:]:
        peer.runner(variant._replace(rule="step", index2=False, tol=1e-10), steps, case.t_end, RHO_INF)()
        ends.append(peer.state()[0][problem.points])
    limit = ends[1] + (ends[1] - ends[0]) / 3
    apart = problem.error(limit, problem.limit)
    return (limit if apart > APART else None), apart


def exudyn_best(problem: Problem, limit: Array | None) -> list[Variant]:
    """The best variants of each index at a long and at a short step, with all tolerances."""
    case, model = problem.case, problem.model
    peers = {v.formulation: Mechanism(model, v.formulation) for v in variants(model)}
    best: dict[tuple[int, bool], Variant] = {}
    for place in (len(case.steps) // 4, 3 * len(case.steps) // 4):
        scores: dict[Variant, float] = {}
        for variant in variants(model):
            run = peers[variant.formulation].runner(variant, case.steps[place], case.t_end, RHO_INF)
            try:
                taken, _ = busy(run)
            except (RuntimeError, ValueError):  # it did not converge, or cannot run with this linear solver
                continue
            q, v = peers[variant.formulation].state()
            error = problem.point(q, v, limit).error
            if np.isfinite(error):
                scores[variant] = taken * np.sqrt(error)
        for variant in sorted(scores, key=scores.__getitem__):
            best.setdefault((place, variant.index2), variant)
    return [variant._replace(tol=tol) for variant in dict.fromkeys(best.values()) for tol in TOLERANCES]


def exudyn_ladders(problem: Problem, limit: Array | None) -> dict[str, list[Rung]]:
    case, found = problem.case, {}
    for variant in exudyn_best(problem, limit):
        peer = Mechanism(problem.model, variant.formulation)
        point = partial(_reached, problem, peer, limit)
        runs = [peer.runner(variant, n, case.t_end, RHO_INF) for n in case.steps]
        found[f"Exudyn, {variant}"] = [Rung(run, point) for run in runs]
    return found


def _reached(problem: Problem, peer: Mechanism, limit: Array | None, _: Any) -> Point:
    q, v = peer.state()
    return problem.point(q, v, limit)


def mujoco_ladders(problem: Problem) -> dict[str, list[Rung]]:
    tree, case = Tree(problem.model), problem.case

    def point(_: Any) -> Point:
        return Point(np.nan, problem.error(tree.positions().reshape(-1), problem.limit))

    return {
        f"MuJoCo, {kind}": [Rung(tree.runner(kind, n, case.t_end), point) for n in case.steps]
        for kind in INTEGRATORS
    }


def climbed(ladders: dict[str, list[Rung]]) -> dict[str, list[Point]]:
    """All runs, the ladders in turns. A ladder ends where a run is too long or fails, or the error rises."""
    found: dict[str, list[Point]] = {name: [] for name in ladders}
    for level in range(max(map(len, ladders.values()))):
        ready: dict[str, tuple[Rung, Point]] = {}
        for name, rungs in ladders.items():
            if level < len(rungs) and len(found[name]) == level:
                try:
                    if not level:
                        rungs[level].run()  # what has to be compiled is
                        ga.finish_compiling()
                    taken, result = busy(rungs[level].run)
                    point = rungs[level].point(result)
                except (RuntimeError, ValueError, ga.IntegrationError) as error:
                    print(f"  {name}, setting {level}: {str(error)[:120]!r}", file=sys.stderr)
                    found[name].append(Point(np.nan, np.inf))
                    continue
                ready[name] = rungs[level], point._replace(time=taken)
        total = sum(point.time for _, point in ready.values()) or 1.0
        repeats = int(np.clip(len(ready) * ENOUGH / total, 1, 7))
        for _ in range(repeats):
            for name, (rung, point) in ready.items():
                ready[name] = rung, point._replace(time=min(point.time, busy(rung.run)[0]))
        for name, (_, done) in ready.items():
            found[name].append(done)
            if done.time > LIMIT:
                ladders[name] = ladders[name][: level + 1]
    return found


def child(name: str) -> None:
    """Measure a case and print what was found as JSON."""
    case = next(case for case in CASES if case.name == name)
    problem = Problem(case)
    limit, apart = exudyn_limit(problem)
    ladders = own(problem) | exudyn_ladders(problem, limit)
    if case.tree:
        ladders |= mujoco_ladders(problem)
    found = climbed(ladders)
    print(json.dumps({"apart": apart, "size": problem.size, "ladders": found}))


# --- first results ---------------------------------------------------------------------------------------

FIRSTS: dict[str, dict[str, Any]] = {
    "index3, h": {"method": "index3", "h": 1e-3},
    "soi2 (default), h": {"h": 1e-3},
    "soi2 (default), rtol": {"rtol": 1e-4},
}
FIRST_OF = ("chain of 10", "Stewart platform", "car, 20 bodies", MIX.name)


def first(name: str, how: str) -> None:
    """Seconds of a new process, after imports: to assemble, to solve, and all; CPU seconds of LLVM."""
    case = next(case for case in (*CASES, MIX) if case.name == name)
    spent, compiled, now = [0.0], objects.compiled, time.perf_counter

    def timed(text: str, level: int, scheduled: bool) -> bytes:
        begin = time.thread_time()
        code = compiled(text, level, scheduled)
        spent.append(time.thread_time() - begin)
        return code

    objects.compiled = timed
    begin = now()
    model = case.build()
    between = begin
    if how == "Exudyn":
        Mechanism(model, "parameters").runner(variants(model)[0], 10, 0.01, RHO_INF)()
    else:
        model.assemble(redundant="drop")
        between = now()
        model.solve((0.0, 0.01), save="final", **FIRSTS[how])
    found = [between - begin, now() - between, sum(spent), now() - begin]
    ga.finish_compiling()  # so that it is on disk
    print(json.dumps(found))


def in_child(*arguments: str, cache: str) -> Any:
    """What a new process prints last. Code is stored in the folder ``cache`` and nowhere else."""
    command = [sys.executable, "-m", "benchmarks.multibody", *arguments]
    environment = os.environ | {"GENALPHA_CACHE": cache, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{arguments} failed with {done.returncode}:\n{done.stderr[-3000:]}")
    print(done.stderr, file=sys.stderr, end="")
    return json.loads(done.stdout.splitlines()[-1])


def firsts(repeats: int = 3) -> str:
    """The table of first results: the best of some, since other programs disturb."""
    head = ("mechanism", "run", "assemble s", "solve s", "LLVM, CPU s", "all s", "code on disk: all s")
    lines = []
    for name in FIRST_OF:
        for how in FIRSTS if name == MIX.name else (*FIRSTS, "Exudyn"):
            print(f"first result of {name}: {how}", file=sys.stderr, flush=True)
            cold, warm = [], []
            for _ in range(repeats):
                with tempfile.TemporaryDirectory() as cache:
                    cold.append(in_child("--child-first", name, how, cache=cache))
                    warm.append(in_child("--child-first", name, how, cache=cache))
            cells = (*min(cold, key=lambda x: x[3]), min(x[3] for x in warm))
            lines.append((name, how, *(f"{x:.2f}" for x in cells)))
    return markdown(head, lines)


# --- the report ------------------------------------------------------------------------------------------


def fastest(found: dict[str, list[Point]], start: str, target: float) -> tuple[float, str]:
    """Milliseconds to an error, and the ladder, of those whose names start in a way."""
    best, which = np.nan, "-"
    for name, points in found.items():
        failed = [i for i, p in enumerate(points) if not np.isfinite(p.error)]
        points = points[failed[-1] + 1 if failed else 0 :]
        if points and name.startswith(start):
            taken = 1e3 * time_to([p.error for p in points], [p.time for p in points], target)
            if not np.isnan(taken) and not taken >= best:
                best, which = taken, name
    return best, which


def equal_error(cases: dict[str, Any]) -> str:
    """Times to an error, with the ratio of Exudyn and of MuJoCo to genalpha's best."""
    head = ("mechanism", "error", *OWN[0], *OWN[1:], "Exudyn", "ratio", "Exudyn's variant", "MuJoCo", "ratio")
    lines = []
    ms = lambda x: "-" if np.isnan(x) else f"{x:.3g}"
    for name, case in cases.items():
        found = {key: [Point(*p) for p in points] for key, points in case["ladders"].items()}
        for target in TARGETS:
            times = [fastest(found, one, target)[0] for one in (*OWN[0], *OWN[1:])]
            best = np.nanmin(times) if not np.isnan(times).all() else np.nan
            peer, which = fastest(found, "Exudyn", target)
            other, kind = fastest(found, "MuJoCo", target)
            cells = (*map(ms, times), ms(peer), ms(peer / best), which.removeprefix("Exudyn, "))
            tree = (f"{ms(other)} {kind.removeprefix('MuJoCo, ')}".strip("- "), ms(other / best))
            lines.append((name, f"{target:.0e}", *cells, *tree))
    return markdown(head, lines)


def steps_and_calls(cases: dict[str, Any]) -> str:
    """The time of a step by the two finest runs, and of a whole call with the fewest steps."""
    head = ("mechanism", *(f"{m}: µs a step (call, ms)" for m in METHODS), "Exudyn: µs a step", "ratios")
    lines = []
    for name, case in cases.items():
        steps = next(one.steps for one in CASES if one.name == name)
        slopes, calls = [], []
        for ladder in (*OWN[0], "Exudyn"):
            found = [points for key, points in case["ladders"].items() if key.startswith(ladder)]
            spans = [
                (p[-1][0] - p[-2][0]) / (steps[len(p) - 1] - steps[len(p) - 2]) for p in found if len(p) > 1
            ]
            slopes.append(1e6 * min(spans, default=np.nan))
            calls.append(1e3 * min((p[0][0] for p in found if p), default=np.nan))
        own = [f"{a:.3g} ({b:.3g})" for a, b in zip(slopes[:-1], calls, strict=False)]
        ratios = ", ".join(f"{slopes[-1] / x:.3g}" for x in slopes[:-1])
        lines.append((name, *own, f"{slopes[-1]:.3g}", ratios))
    return markdown(head, lines)


def guarantees(cases: dict[str, Any]) -> str:
    """Constraints at the end, at the setting with the smallest error above 1e-5."""
    head = ("mechanism", "solver", "error", "positions", "velocities")
    lines = []
    for name, case in cases.items():
        for ladder, points in case["ladders"].items():
            near = [Point(*p) for p in points if p[1] >= 1e-5]
            if near and not ladder.startswith("MuJoCo"):
                p = near[-1]
                lines.append((name, ladder, f"{p.error:.0e}", f"{p.g:.0e}", f"{p.g_dot:.0e}"))
    return markdown(head, lines)


def main(arguments: Sequence[str]) -> None:
    names = [a for a in arguments if not a.startswith("--")]
    OUT.mkdir(parents=True, exist_ok=True)
    report = [f"Versions: {versions('genalpha', 'jax', 'llvmlite', 'exudyn', 'mujoco-core')}"]
    if "--first" not in arguments:
        kept = OUT / "multibody.json"  # what is not run is taken from the last run
        cases: dict[str, Any] = {}
        if names and kept.exists():
            cases = json.loads(kept.read_text(encoding="utf-8"))
        for case in CASES:
            if not names or any(name in case.name for name in names):
                print(case.name, file=sys.stderr, flush=True)
                with tempfile.TemporaryDirectory() as cache:
                    cases[case.name] = in_child("--child", case.name, cache=cache)
                kept.write_text(json.dumps(cases), encoding="utf-8")
        apart = [(name, f"{c['apart']:.1e}", f"{c['size']:.3g}") for name, c in cases.items()]
        report += ["## ms to an error", equal_error(cases), "## A step", steps_and_calls(cases)]
        report += ["## Constraints at the end", guarantees(cases)]
        report += ["## Limits of Exudyn and genalpha", markdown(("mechanism", "apart", "size, m"), apart)]
    if "--runs" not in arguments:
        report += ["## First results", firsts()]
    text = "\n\n".join(report) + "\n"
    print(text)
    (OUT / f"multibody{'-first' if '--first' in arguments else ''}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
    elif sys.argv[1:2] == ["--child-first"]:
        first(*sys.argv[2:4])
    else:
        main(sys.argv[1:])
