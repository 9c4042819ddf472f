"""The Newton matrix from derivatives of the scalar program, and from JAX's derivatives of the residual.

Part of :mod:`benchmarks.native`: operations that the entries need, and the time to build them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import genalpha as ga
from benchmarks.growth import H, begun
from genalpha.backends.native.step import floating
from genalpha.compiler.differentiate import jacobian
from genalpha.compiler.graph import ZERO, Graph
from genalpha.compiler.reader import Symbols, inline
from genalpha.numerics.derivatives import left_to_reader

Problem = ga.problems.Problem

PROBLEMS = ("pendulum", "rolling-disk", "slider-crank", "heavy-top", "body-chain")
TURNS = 7


@dataclass(frozen=True)
class Jacobian:
    """The Newton matrix of a problem made in two ways: operations, milliseconds, how far apart they are."""

    problem: str
    unknowns: int
    entries: int
    residual: int
    operations: dict[str, int]
    ms: dict[str, float]
    best: dict[str, float]
    difference: float


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


Built = tuple[float, Graph, np.ndarray, np.ndarray, dict[int, float]]


def build(problem: Problem, way: str) -> Built:
    """Milliseconds of one way to the matrix, the graph, residual, matrix, and numbers for the inputs."""
    started = begun(problem, "soi2", 0.8, problem.t_span[0] + 10 * H)
    (system, method, _, dims, _), (carry, scale, args, x) = started.setup, started.run.kernels.step.values
    doubles, rebuild, _ = floating(args)
    graph = Graph()
    numbers: dict[int, float] = {}

    def given(leaf: Any) -> Symbols:
        ids = graph.inputs(np.shape(leaf))
        numbers.update(zip(ids.reshape(-1).tolist(), np.ravel(leaf).tolist(), strict=True))
        return Symbols(ids, "f")

    def symbols(ids: np.ndarray) -> Symbols:
        kinds = {graph.nodes[i].kind for i in ids.reshape(-1).tolist()}
        return Symbols(ids, kinds.pop() if kinds else "f")

    at = (np.float64(problem.t_span[0]), np.float64(H))
    carry, scale, doubles, unknowns, t, h = jax.tree.map(given, (carry, scale, doubles, x, *at))
    args = rebuild(doubles)
    prepare = lambda carry, t, h, scale, args: method.prepare(system, carry, t, h, dims, scale, args)
    residual = lambda x, step, scale, args: method.residual(system, step, dims, scale, x, args)
    step = jax.tree.map(symbols, inline(graph, prepare, carry, t, h, scale, args))
    value = inline(graph, residual, unknowns, step, scale, args)

    def by_jax(*inputs: Any) -> Any:
        with left_to_reader(False):
            return jax.jacfwd(residual)(*inputs)

    makers = {
        "scalar": lambda: jacobian(graph, value, unknowns.ids),
        "jacfwd": lambda: inline(graph, by_jax, unknowns, step, scale, args),
    }
    begin = time.perf_counter()
    made = makers[way]()
    return 1e3 * (time.perf_counter() - begin), graph, value, made, numbers


def compare(name: str) -> Jacobian:
    """Both ways on one problem, each time in a new graph that holds the residual already."""
    problem, ways = ga.problems.get(name), ("scalar", "jacfwd")
    built: dict[str, list[Built]] = {way: [] for way in ways}
    for _ in range(TURNS):
        for way in ways:
            built[way].append(build(problem, way))
    last = {way: built[way][-1] for way in ways}
    values = []
    for _, graph, _, made, numbers in last.values():
        with np.errstate(all="ignore"):
            values.append(np.array(graph.evaluate(made.reshape(-1).tolist(), numbers), dtype=float))
    _, graph, value, made, _ = last["scalar"]
    return Jacobian(
        problem=name,
        unknowns=len(value),
        entries=int(np.sum(made != ZERO)),
        residual=live(graph, value),
        operations={way: live(last[way][1], last[way][3]) for way in ways},
        ms={way: statistics.median(each[0] for each in built[way]) for way in ways},
        best={way: min(each[0] for each in built[way]) for way in ways},
        difference=float(np.abs(values[0] - values[1]).max() / np.abs(values[1]).max()),
    )


def table(rows: Sequence[Jacobian]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    head = "Newton matrix soi2, unknowns, entries, residual ops, matrix ops: scalar, jacfwd, ratio, "
    head += "ms: scalar (best), jacfwd (best), ratio, difference"
    lines = []
    for row in rows:
        ops, ms = row.operations, row.ms
        counts = (row.unknowns, row.entries, row.residual, ops["scalar"], ops["jacfwd"])
        timed = [f"{ms[way]:.1f} ({row.best[way]:.1f})" for way in ms]
        ratios = f"{ops['jacfwd'] / ops['scalar']:.2f}", f"{ms['jacfwd'] / ms['scalar']:.1f}"
        lines.append((row.problem, *map(str, counts), ratios[0], *timed, ratios[1], f"{row.difference:.0e}"))
    return tuple(head.split(", ")), lines
