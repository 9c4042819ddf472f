"""Machine code made for a system against JAX's compiler: time of a step, of the first result, of batches.

``python -m benchmarks.native`` prints the result and writes it to ``out/bench/native.json``, ``native.md``
and ``native-growth.png``; ``taskset -c 1`` before it keeps it on one core, but for the batches, which get
all cores. Solvers take turns, so that noise of the machine hits all alike. Nothing is read from caches
between runs unless a table says so.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, NamedTuple

import jax
import numpy as np

import genalpha as ga
from benchmarks import exudyn_top, growth
from benchmarks.growth import PARTS, H, begun
from benchmarks.small import OUT, in_turns, markdown, plain, seconds, start_up
from genalpha import advance
from genalpha.kernels.differentiate import jacobian
from genalpha.kernels.graph import Graph
from genalpha.kernels.scalar import Symbols, inline
from genalpha.kernels.step import LIMIT, floating

Problem = ga.problems.Problem

TOL, T_END = growth.TOL, 1.0
REPEATS = 21  # timed runs of each solver
FRESH = 3  # processes of each kind
TURNS = 7  # of the Jacobians
SYSTEMS, SYSTEMS_XLA = 4096, 512  # in a batch; XLA gets fewer, as it would take minutes
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
JACOBIANS = ("pendulum", "rolling-disk", "slider-crank", "heavy-top", "body-chain")
Table = tuple[tuple[str, ...], list[tuple[str, ...]]]


# --- single runs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Single:
    """One case. Medians and least times of a step in µs, by solver: "native" and "xla" are whole calls, "loop"
    is the native loop of steps alone, "exudyn" the same method on the Lie group. ``iterations`` and
    ``jacobians`` are means per step, ``operations`` scalar operations in each kernel, ``bytes`` of code.
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


# --- Jacobians -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Jacobian:
    """The Newton matrix of a problem made in two ways: operations, milliseconds, how far apart they are."""

    problem: str
    unknowns: int
    entries: int
    residual: int
    operations: dict[str, int | None]
    ms: dict[str, float]
    difference: float | None


def live(graph: Graph, ids: np.ndarray) -> int:
    """Operations that some nodes need."""
    seen: set[int] = set()
    stack = ids.reshape(-1).tolist()
    while stack:
        i = stack.pop()
        if i not in seen and i not in graph.constants and graph.nodes[i].op != "input":
            seen.add(i)
            stack.extend(graph.nodes[i].inputs)
    return len(seen)


def matrix(name: str, way: str) -> tuple[float, Graph, np.ndarray, np.ndarray, dict[int, float]]:
    """Milliseconds of one way to the matrix, the graph, residual, matrix, and numbers of the inputs."""
    started = _started(name)
    setup, step = started.setup, started.run.kernels.step
    system, method, _, dims = setup
    carry, scale, args, x = step.values
    doubles, rebuild, _ = floating(args)
    graph, numbers = Graph(), {}

    def inputs(leaf: Any) -> Symbols:
        ids = graph.inputs(np.shape(leaf))
        numbers.update(zip(ids.reshape(-1).tolist(), np.ravel(leaf).tolist(), strict=True))
        return Symbols(ids, "f")

    def symbols(ids: np.ndarray) -> Symbols:
        kinds = {graph.nodes[i].kind for i in ids.reshape(-1).tolist()}
        return Symbols(ids, kinds.pop() if kinds else "f")

    given = (carry, scale, doubles, np.asarray(x), np.float64(0.0), np.float64(H))
    carry, scale, doubles, x, t, h = jax.tree.map(inputs, given)
    args = rebuild(doubles)
    prepared = inline(
        graph, partial(method.prepare, system), carry, t, h, *_fixed(dims), scale=scale, args=args
    )
    raise NotImplementedError
