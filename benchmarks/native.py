"""Machine code made for a system against JAX's compiler: time of a step, of the first result, of batches.

``python -m benchmarks.native`` prints the result and writes it to ``out/bench/native.json``, ``native.md``
and ``native-growth.png``; ``taskset -c 1`` before it keeps it on one core, but for the batches, which get
all cores. Solvers take turns, so that noise of the machine hits all alike. Nothing is read from caches
between runs unless a table says so.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

import genalpha as ga
from benchmarks import exudyn_top, growth, jacobians
from benchmarks.growth import PARTS, H, begun
from benchmarks.measure import OUT, cores, in_turns, markdown, paragraphs, plain, seconds, start_up, versions
from genalpha.compiler import machine

Problem = ga.problems.Problem

TOL, T_END = growth.TOL, 1.0
REPEATS = 21  # timed runs of each solver
FRESH = 3  # processes of each kind
SYSTEMS, SYSTEMS_XLA = 4096, 256  # in a batch; XLA gets fewer, as it would take minutes
BATCHES = 3  # timed batches


class Case(NamedTuple):
    """A problem with a method."""

    problem: str
    method: str
    rho_inf: float

    @property
    def name(self) -> str:
        return f"{self.problem} {self.method}"

    def solve(self, problem: Problem, backend: Any) -> ga.Solution:
        options: dict[str, Any] = {"method": self.method, "rho_inf": self.rho_inf, "backend": backend}
        return problem.solve(t_end=T_END, h=H, newton=ga.Newton(tol=TOL), **options)


TOPS = tuple(Case("heavy-top", method, 0.9) for method in ("index3", "stabilized", "soi2"))
CASES = (*TOPS, *(Case(name, "soi2", 0.8) for name in ("rolling-disk", "pendulum", "slider-crank")))
FIRST = (CASES[0], CASES[2], CASES[4], CASES[5])  # cases whose first result is waited for
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


# --- single runs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Single:
    """One case. Medians and least times of a step in µs, by solver.

    "native" and "xla" are whole calls, "loop" is the native loop of steps alone, "exudyn" its Lie group node.
    ``iterations`` and ``jacobians`` are means per step, ``operations`` scalar operations in each kernel.
    """

    case: str
    unknowns: int
    us: dict[str, float]
    best: dict[str, float]
    iterations: float
    jacobians: float
    operations: dict[str, int]
    bytes: int

    @property
    def mean(self) -> float:
        """Scalar operations of a mean step."""
        ops = self.operations
        once = ops["prepare"] + ops["judge"] + ops["finish"]
        return once + self.iterations * ops["correct"] + self.jacobians * ops["renew"]


def single(case: Case) -> Single:
    """A case by all solvers in turns."""
    problem = ga.problems.get(case.problem)
    sol = case.solve(problem, "native")
    assert sol.backend == "native", sol.stats.fallback
    case.solve(problem, "xla")
    started = begun(problem, case.method, case.rho_inf, T_END)
    runs: dict[str, Any] = {name: partial(case.solve, problem, name) for name in ("native", "xla")}
    runs["loop"] = started.march
    if case in TOPS and find_spec("exudyn"):
        top = exudyn_top.Top(H, t_end=T_END, rho_inf=case.rho_inf, formulation="vector", newton="step")
        runs["exudyn"] = top.solve
    steps = sol.stats.steps
    times = dict(zip(runs, in_turns(list(runs.values()), REPEATS), strict=True))
    return Single(
        case=case.name,
        unknowns=started.size,
        us={name: 1e6 * statistics.median(taken) / steps for name, taken in times.items()},
        best={name: 1e6 * min(taken) / steps for name, taken in times.items()},
        iterations=sol.stats.newton_iterations / steps,
        jacobians=sol.stats.jacobians / steps,
        operations=started.operations,
        bytes=started.code.library.size,
    )


def single_tables(rows: Sequence[Single]) -> Iterator[Table]:
    head = "whole call, native µs (best), loop alone (best), XLA (best), Exudyn (best), XLA/native, "
    head += "Exudyn/native, XLA/loop, Exudyn/loop, iter., Jac."
    lines, parts = [], []
    for row in rows:
        us = row.us
        cells = [
            f"{us[name]:.2f} ({row.best[name]:.2f})" if name in us else "-"
            for name in ("native", "loop", "xla", "exudyn")
        ]
        pairs = [(a, b) for b in ("native", "loop") for a in ("xla", "exudyn")]
        cells += [f"{us[a] / us[b]:.1f}" if a in us else "-" for a, b in pairs]
        lines.append((row.case, *cells, f"{row.iterations:.2f}", f"{row.jacobians:.2f}"))
        numbers = [row.unknowns, *(row.operations[name] for name in PARTS)]
        speed = 1e3 * us["loop"] / row.mean
        parts.append(
            (row.case, *map(str, numbers), f"{row.mean:.0f}", f"{speed:.2f}", f"{row.bytes / 1e3:.0f}")
        )
    yield tuple(head.split(", ")), lines
    yield ("operations", "unknowns", *PARTS, "mean step", "ns/op", "kB code"), parts


# --- the first result ----------------------------------------------------------------------------------


def first(problem_name: str, method: str, rho_inf: str, backend: str) -> dict[str, float]:
    """Seconds to the first result in this process, which must be a fresh one, and what they consist of."""
    start = start_up()
    case = Case(problem_name, method, float(rho_inf))
    problem = ga.problems.get(case.problem)
    with growth.pieces() as spent:
        taken = seconds(lambda: case.solve(problem, backend))
    return {"first": taken, "start": start, **spent}


def child(*words: str, cache: str = "off") -> Any:
    """What a part of this program says in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.native", *words]
    done = subprocess.run(
        command, env=os.environ | {"GENALPHA_CACHE": cache}, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def firsts() -> dict[str, dict[str, dict[str, list[float]]]]:
    """For each case and each way to the first result, seconds in fresh processes, in turns."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for _ in range(FRESH):
        for case in FIRST:
            words = ("first", case.problem, case.method, str(case.rho_inf))
            with tempfile.TemporaryDirectory() as folder:
                for way, backend in (("empty", "native"), ("filled", "native"), ("XLA", "xla")):
                    begin = child(*words, backend, cache=folder)
                    into = found.setdefault(case.name, {}).setdefault(way, {})
                    for name, value in begin.items():
                        into.setdefault(name, []).append(value)
    return found


def first_table(found: dict[str, dict[str, dict[str, list[float]]]]) -> Table:
    head = "first result, s: empty cache (best), filled cache (best), XLA (best), XLA/empty, XLA/filled, "
    head += "empty: trace, write, LLVM, filled: trace, write, load, functions to code"
    lines = []
    for name, ways in found.items():
        median = {way: statistics.median(values["first"]) for way, values in ways.items()}
        cells = [f"{median[way]:.2f} ({min(ways[way]['first']):.2f})" for way in median]
        cells += [f"{median['XLA'] / median[way]:.1f}" for way in ("empty", "filled")]
        parts = [
            statistics.median(ways[way][piece])
            for way in ("empty", "filled")
            for piece in ("trace", "write", "llvm")
        ]
        lines.append((name, *cells, *(f"{part:.2f}" for part in parts), f"{sum(parts[:3]):.2f}"))
    return tuple(head.split(", ")), lines


# --- batches -------------------------------------------------------------------------------------------


def batch(method: str, backend: Any, count: int) -> Callable[[], ga.Solution]:
    """Tops whose masses differ by up to 10 %."""
    problem = ga.problems.get("heavy-top")
    masses = 15.0 * np.linspace(0.9, 1.1, count)
    args = ({**problem.args[0], "m": masses},)
    options: dict[str, Any] = {"method": method, "rho_inf": 0.9, "newton": ga.Newton(tol=TOL)}
    options |= {"save": "final", "backend": backend, "args": args}
    return partial(ga.solve_batch, problem.system, (0.0, T_END), problem.q0, problem.v0, h=H, **options)


def batches() -> list[dict[str, Any]]:
    """µs a step and system on the cores this process may use."""
    rows = []
    for method in ("index3", "soi2"):
        calls = {
            name: batch(method, name, count) for name, count in (("native", SYSTEMS), ("xla", SYSTEMS_XLA))
        }
        first = {name: seconds(call) for name, call in calls.items()}
        sol = calls["native"]()
        times = {"xla": [seconds(calls["xla"])], "native": [seconds(calls["native"]) for _ in range(BATCHES)]}
        scale = {"native": 1e6 / (SYSTEMS * T_END / H), "xla": 1e6 / (SYSTEMS_XLA * T_END / H)}
        rows.append(
            {
                "method": method,
                "cores": machine.cores(),
                "lanes": machine.lanes(),
                "first_s": first,
                "us": {name: scale[name] * statistics.median(taken) for name, taken in times.items()},
                "best": {name: scale[name] * min(taken) for name, taken in times.items()},
                "success": bool(sol.success.all()),
                "iterations": float(np.mean(sol.stats.newton_iterations / sol.stats.steps)),
            }
        )
    return rows


@contextmanager
def all_cores() -> Iterator[None]:
    """Processes started meanwhile may use all cores."""
    if not hasattr(os, "sched_getaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
        yield
    finally:
        os.sched_setaffinity(0, before)


def batch_table(rows: Sequence[dict[str, Any]]) -> Table:
    head = f"heavy tops, cores, lanes, native µs ({SYSTEMS} systems; best), XLA µs ({SYSTEMS_XLA} systems), "
    head += "XLA/native, first s: native, XLA, all succeeded"
    lines = []
    for row in rows:
        us, best = row["us"], row["best"]
        cells = (f"{us['native']:.3f} ({best['native']:.3f})", f"{us['xla']:.1f}")
        ratio = f"{us['xla'] / us['native']:.0f}"
        begin = [f"{row['first_s'][name]:.1f}" for name in ("native", "xla")]
        counts = (str(row["cores"]), str(row["lanes"]))
        lines.append((row["method"], *counts, *cells, ratio, *begin, "yes" if row["success"] else "no"))
    return tuple(head.split(", ")), lines


# --- the report ----------------------------------------------------------------------------------------

NOTES = """\
First table: one second in steps of {H:g}, Newton tolerance {TOL:g}; heavy top on R³×SO(3) with rho_inf =
0.9, others with 0.8. Times are µs per step, median (and smallest) of {REPEATS} runs in turns. Whole call:
ga.solve with checks and initial values; accelerations, residuals and reactions are computed when they are
first asked for, and are not included. Loop alone: only the steps, after the start of the run. Exudyn: the
top on the Lie group, position constraints, a new Jacobian once per step; its "index 3" is the method
"index3"; it keeps only the end. iter., Jac.: Newton iterations and new matrices per step.

Operations: scalar operations in each kernel. prepare and finish run once per step, correct once per
iteration, renew once per matrix, judge once after the iterations with a matrix. mean step: operations of a
mean step, with one judge. ns/op: time of the loop divided by these operations. kB code: object code of the
steps, the start and the output.

First result: new processes, medians (and smallest) of {FRESH}, after imports and after JAX has started
({start:.2f} s). The caches of machine code are as named, JAX's own cache is off. trace: tracing, scalar
program, derivatives, pivots. write: LU, kernels, LLVM's language. LLVM: its compiler (load: from the
cache). functions to code: the sum of the three with an empty cache.

Newton matrix: derivatives of the scalar program compared with jax.jacfwd of the residual read into scalar
form, each in a new graph that contains the residual. Only operations that the entries need are counted.
difference: of the two matrices at the start, relative to the largest entry. Medians (and smallest) of
{jacobians.TURNS}.

Batches: heavy tops with masses within 10 %, {steps} steps, save="final", µs per step and system. native:
median (and smallest) of {BATCHES}. XLA: one run after the first. In a separate process on all cores.

Growth: chain of n links, SOI2, {growth.STEPS} steps, medians (and smallest) of {growth.TURNS} in turns.
nodes: all scalars of a step, which the limit of {growth.LIMIT} counts. first s: in one process, after
another problem, nothing from caches; for a refused system the time until XLA has the result. catches up
after: number of steps after which native code has made up for its longer compilation. {crossing}

Cores available: {cores}; mean number of busy processes in the minute before: {load:.1f}; took {minutes:.1f}
minutes. Times are not reliable if other programs run at the same time."""


def report(results: dict[str, Any], values: dict[str, Any], begin: float) -> None:
    """Print and write everything."""
    tables: list[Table] = [
        *single_tables(results["single"]),
        first_table(results["first"]),
        jacobians.table(results["jacobians"]),
        batch_table(results["batch"]),
        (growth.HEAD, list(growth.cells(results["growth"]))),
    ]
    values = values | {"crossing": growth.crossing(results["growth"]), "steps": round(T_END / H)}
    values["minutes"] = (time.perf_counter() - begin) / 60
    notes = paragraphs(NOTES.format(**globals() | values))
    print(*(plain(*each) for each in tables), *(textwrap.fill(note, 98) for note in notes), sep="\n\n")
    OUT.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join([*(markdown(*each) for each in tables), *notes]) + "\n"
    (OUT / "native.md").write_text(text, encoding="utf-8")
    found = versions("genalpha", "jax", "jaxlib", "numpy", "llvmlite", "exudyn")

    def rows(part: Any) -> Any:
        return [asdict(row) if not isinstance(row, dict) else row for row in part]

    record = {name: rows(part) if isinstance(part, list) else part for name, part in results.items()}
    data = json.dumps(record | values | {"versions": found}, indent=1, ensure_ascii=False) + "\n"
    (OUT / "native.json").write_text(data, encoding="utf-8")
    growth.picture(results["growth"]).savefig(OUT / "native-growth.png", dpi=110)


def main() -> None:
    """Measure, print, write."""
    begin = time.perf_counter()
    os.environ["GENALPHA_CACHE"] = "off"
    values = {"load": os.getloadavg()[0], "cores": cores(), "start": start_up()}
    with all_cores():
        together = child("batch")
    results = {
        "single": [single(case) for case in CASES],
        "first": firsts(),
        "jacobians": [jacobians.compare(name) for name in jacobians.PROBLEMS],
        "batch": together,
        "growth": growth.growth(),
    }
    report(results, values, begin)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(first(*sys.argv[2:]) if sys.argv[1] == "first" else batches()))
    else:
        main()
