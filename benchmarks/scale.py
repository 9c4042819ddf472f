"""Large systems: how time and memory grow with a chain of rigid bodies, and what other large systems cost.

``python -m benchmarks.scale [N ...]`` prints tables and writes them, with a picture, to ``out/bench/``. N are
the lengths of the chain, 1 to 10,000 by default. ``--all`` adds 100,000 bodies, which genalpha runs alone.
``--chain`` and ``--others`` run one half only. ``taskset -c 1`` before it keeps it on one core.

Each solver runs each system in a process of its own. ``--child`` is for these processes. The time of a step
is the difference of a long and a short run, divided by the difference of their steps; the best of some runs
counts. Exudyn may choose its coordinates, its rule for new matrices and its linear solver, and the
fastest counts.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from benchmarks import scale_models as models
from benchmarks.measure import OUT, in_turns, markdown, seconds, versions

H, RHO_INF, TOL = 1e-3, models.RHO_INF, models.TOL
LENGTHS = (1, 3, 10, 30, 100, 1000, 10_000)
LONGEST, PEER_LIMIT = 100_000, 10_000  # Exudyn runs no longer chains than the latter
METHODS = ("index3", "soi2")
SOLVERS, NAMES = (*METHODS, "exudyn"), (*METHODS, "Exudyn")
SHORT = 2  # steps of a short run
ENOUGH = 2.0  # seconds of repeated runs
REPEATS = 50  # at most
OTHERS: tuple[tuple[str, int, int], ...] = (
    ("four_bars", 40, 200),
    ("four_bars", 1000, 100),
    ("net", 10, 200),
    ("net", 30, 50),
    ("net", 100, 20),
    ("truss", 40, 200),
    ("truss", 1000, 50),
)  # model, size, steps
TITLES = {"four_bars": "{} four-bars", "net": "net of {0} x {0}", "truss": "truss of {} x 4"}


@dataclass(frozen=True)
class Job:
    """What one process has to do. ``variant`` is how Exudyn is set up; all are tried if it is empty."""

    solver: str
    model: str
    size: int
    steps: int
    folder: str
    variant: tuple[str, ...] = ()
    first_only: bool = False

    @property
    def end(self) -> Path:
        """The file with the positions of the bodies at the end."""
        return Path(self.folder) / f"{self.solver}-{self.model}-{self.size}.npy"


@dataclass(frozen=True)
class Row:
    """Seconds of the first result, of a whole call and of a step; work of a step; MB; unknown is NaN.

    ``stored`` is the time of the first result in another process, with code on disk. ``peak`` is the memory
    of the whole process until its first result, ``own`` what came on top after its imports. ``error``
    estimates the error of the positions at the end, from a run with half the step.
    """

    step: float = np.nan
    whole: float = np.nan
    iterations: float = np.nan
    factorizations: float = np.nan
    first: float = np.nan
    stored: float = np.nan
    peak: float = np.nan
    own: float = np.nan
    error: float = np.nan
    unknowns: int = 0  # velocities and constraints
    variant: tuple[str, ...] = field(default_factory=tuple)


def steps_of(bodies: int) -> int:
    """Steps of a run of the chain."""
    return max(10 if bodies > PEER_LIMIT else 20, min(1000, 20_000 // bodies))


# --- what a process does ---------------------------------------------------------------------------------


def peak() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def timed(long: Callable[[], Any], short: Callable[[], Any], steps: int) -> tuple[float, float]:
    """Seconds of a step and of the long run; both run before."""
    short()
    once = seconds(long)
    repeats = int(np.clip(ENOUGH / once, 2, REPEATS))
    times = in_turns([long, short], repeats)
    whole, begin = min(times[0]), min(times[1])
    return (whole - begin) / (steps - SHORT), whole


def own(job: Job) -> Row:
    """genalpha, in a process of its own."""
    before = peak()
    begin = time.perf_counter()
    case: models.Case = getattr(models, job.model)(job.size)

    def run(steps: int, h: float = H) -> ga.Solution:
        if job.size >= LONGEST:
            gc.collect()  # what is left of the run before is too much to be kept
        options: dict[str, Any] = {"method": job.solver, "rho_inf": RHO_INF, "newton": ga.Newton(tol=TOL)}
        return ga.solve(case.system, (0.0, steps * h), case.q0, case.v0, h=h, save="final", **options)

    sol = run(job.steps if job.size < LONGEST else SHORT)
    first = time.perf_counter() - begin
    ga.finish_compiling()  # steps are measured with optimized code, which is then on disk
    if job.first_only:
        return Row(first=first)
    memory = peak()
    step, whole = timed(lambda: run(job.steps), lambda: run(SHORT), job.steps)
    sol = run(job.steps)
    assert sol.stats.fallback is None, sol.stats.fallback
    m = sum(element.count * (element.m + element.p) for element in case.system.elements)
    x, error = positions(case, sol), np.nan
    np.save(job.end, x)
    if job.size < LONGEST:
        error = float(np.abs(x - positions(case, run(2 * job.steps, H / 2))).max()) * 4 / 3
    work = sol.stats.newton_iterations / job.steps, sol.stats.factorizations / job.steps
    unknowns = len(case.v0) + m
    row = Row(step, whole, *work, first, peak=memory, own=memory - before)
    return replace(row, error=error, unknowns=unknowns)


def positions(case: models.Case, sol: ga.Solution) -> np.ndarray:
    """Points, or centres of bodies, at the end."""
    return case.system.by_node(np.asarray(sol.q[-1]))[:, :3]


def fastest(job: Job) -> Row:
    """The fastest way to run Exudyn, by the best of some runs of each."""
    times: dict[tuple[str, ...], float] = {}
    turns = 5 if job.size <= 100 else 2
    for variant in models.variants(job.size):
        peer = models.exudyn_chain(job.size, variant[0])
        try:
            times[variant] = min(in_turns([models.exudyn_run(peer, variant, job.steps * H, H)], turns)[0])
        except RuntimeError:
            continue  # it did not converge
    return Row(variant=min(times, key=times.__getitem__))


def other(job: Job) -> Row:
    """Exudyn, in a process of its own."""
    before = peak()
    begin = time.perf_counter()
    peer = models.exudyn_chain(job.size, job.variant[0])
    long, short = (models.exudyn_run(peer, job.variant, n * H, H) for n in (job.steps, SHORT))
    done = long().it
    first = time.perf_counter() - begin
    memory = peak()
    np.save(job.end, peer.x())
    step, whole = timed(long, short, job.steps)
    work = done.newtonStepsCount / job.steps, done.newtonJacobiCount / job.steps
    row = Row(step, whole, *work, first, peak=memory, own=memory - before)
    return replace(row, unknowns=peer.unknowns, variant=job.variant)


def child(text: str) -> None:
    """Do a job and print its row."""
    given = json.loads(text)
    job = Job(**given | {"variant": tuple(given["variant"])})
    run = own if job.solver != "exudyn" else other if job.variant else fastest
    print(json.dumps(asdict(run(job))))


# --- all processes ---------------------------------------------------------------------------------------


def in_child(job: Job) -> Row:
    """Do a job in a new process. Code is stored in its folder and nowhere else."""
    command = [sys.executable, "-m", "benchmarks.scale", "--child", json.dumps(asdict(job))]
    environment = os.environ | {"GENALPHA_CACHE": str(Path(job.folder) / "code")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{job} failed with {done.returncode}:\n{done.stderr[-3000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Row(**found | {"variant": tuple(found["variant"])})


def measure(solver: str, model: str, size: int, steps: int, folder: str) -> Row:
    """One solver and one system."""
    job = Job(solver, model, size, steps, folder)
    print(f"{model} {size}: {solver}", file=sys.stderr, flush=True)
    if solver == "exudyn":
        return in_child(Job(solver, model, size, steps, folder, in_child(job).variant))
    with tempfile.TemporaryDirectory() as empty:  # no code from other runs
        cold = Job(solver, model, size, steps, empty)
        row = in_child(cold)
        again = in_child(Job(solver, model, size, steps, empty, first_only=True))
        job.end.write_bytes(cold.end.read_bytes())
    return replace(row, stored=again.first)


class Length(NamedTuple):
    """A length of the chain: a row for each solver, and how far Exudyn and index3 are apart at the end."""

    bodies: int
    rows: dict[str, Row]
    apart: float

    def row(self, solver: str) -> Row:
        return self.rows.get(solver, Row())


def chain(lengths: Sequence[int]) -> Iterator[Length]:
    """All lengths of the chain."""
    with tempfile.TemporaryDirectory() as folder:
        for bodies in lengths:
            solvers = SOLVERS if bodies <= PEER_LIMIT else METHODS
            steps = steps_of(bodies)
            rows = {solver: measure(solver, "chain", bodies, steps, folder) for solver in solvers}
            apart = np.nan
            if "exudyn" in rows:
                x, y = (np.load(Job(s, "chain", bodies, steps, folder).end) for s in ("index3", "exudyn"))
                apart = float(np.abs(x - y).max())
            yield Length(bodies, rows, apart)


# --- the report ------------------------------------------------------------------------------------------


def number(x: float, scale: float = 1.0) -> str:
    """Three digits, or a dash."""
    if np.isnan(x):
        return "-"
    x *= scale
    return f"{x:,.0f}" if abs(x) >= 100 else f"{x:.3g}"


def slope(found: Sequence[Length], solver: str, name: str) -> str:
    """The power of N with which a number grows, from 100 bodies to the longest chain."""
    known = [(f.bodies, getattr(f.rows[solver], name)) for f in found if solver in f.rows and f.bodies >= 100]
    if len(known) < 2:
        return "-"
    n, y = np.log(np.array(known)).T
    return f"{np.polyfit(n, y, 1)[0]:.2f} (to {known[-1][0]:,})"


def compared(found: Sequence[Length], key: str, scale: float) -> str:
    """A table of one number of all solvers, and how often Exudyn's is that of genalpha."""
    lines = []
    for f in found:
        values = [getattr(f.row(name), key) for name in SOLVERS]
        ratios = [number(values[2] / value) for value in values[:2]]
        lines.append((f"{f.bodies:,}", str(steps_of(f.bodies)), *(number(x, scale) for x in values), *ratios))
    return markdown(("bodies", "steps", *NAMES, "Exudyn/index3", "Exudyn/soi2"), lines)


def work(found: Sequence[Length]) -> str:
    """Newton iterations and factorizations of a step."""
    head = ("bodies", "n + m", *(f"{name}: {x}" for name in NAMES for x in ("iter.", "fact.")))
    lines = []
    for f in found:
        rows = [f.row(name) for name in SOLVERS]
        counts = [number(x) for r in rows for x in (r.iterations, r.factorizations)]
        peer = (f"{rows[2].unknowns:,}", " ".join(rows[2].variant)) if rows[2].unknowns else ("-", "-")
        lines.append((f"{f.bodies:,}", f"{rows[0].unknowns:,}", *counts, *peer))
    return markdown((*head, "Exudyn: n + m", "Exudyn: setup"), lines)


def memory(found: Sequence[Length]) -> str:
    """Times to the first result, and memory."""
    head = ("bodies", *(f"{m}: {x}" for m in METHODS for x in ("s", "s stored", "MB")), "Exudyn: s", "MB")
    lines = []
    for f in found:
        cells = [c for m in METHODS for r in [f.row(m)] for c in (number(r.first), number(r.stored), mb(r))]
        peer = f.row("exudyn")
        lines.append((f"{f.bodies:,}", *cells, number(peer.first), mb(peer)))
    return markdown(head, lines)


def same(found: Sequence[Length]) -> str:
    """How far solvers are apart, and errors."""
    lines = []
    for f in found:
        values = (f.apart, f.row("index3").error, f.row("soi2").error)
        lines.append((f"{f.bodies:,}", f"{steps_of(f.bodies) * H:g}", *map(small, values)))
    return markdown(("bodies", "t", "Exudyn - index3, m", "error of index3, m", "error of soi2, m"), lines)


def slopes(found: Sequence[Length]) -> str:
    """How times and memory grow."""
    growing = [("time of a step", "step"), ("memory after imports", "own")]
    lines = [(title, *(slope(found, name, key) for name in SOLVERS)) for title, key in growing]
    return markdown(("grows with N to the power of", *NAMES), lines)


def chain_tables(found: Sequence[Length]) -> list[str]:
    """All tables of the chain."""
    return [
        *("### Time of a step, µs", compared(found, "step", 1e6)),
        *("### Whole call, ms", compared(found, "whole", 1e3)),
        *("### Work of a step", work(found)),
        *("### First result, and peak memory (of it after imports)", memory(found)),
        *("### The same motion: positions at the end", same(found)),
        *("### Slopes from 100 bodies on", slopes(found)),
    ]


def small(x: float) -> str:
    return "-" if np.isnan(x) else f"{x:.1e}"


def mb(row: Row) -> str:
    """Memory of the process, and of it what came after its imports."""
    return "-" if np.isnan(row.peak) else f"{row.peak:,.0f} ({row.own:,.0f})"


def others_table(rows: Sequence[tuple[str, int, int, str, Row]]) -> str:
    """All numbers of the other systems."""
    head = (
        "system, n + m, method, steps, µs a step, whole call ms, iter., fact., first s, stored s, MB, error"
    )
    return markdown(
        head.split(", "),
        [
            (
                *(TITLES[model].format(size), f"{r.unknowns:,}", method, str(steps), number(r.step, 1e6)),
                *(number(r.whole, 1e3), number(r.iterations), number(r.factorizations), number(r.first)),
                *(number(r.stored), mb(r), small(r.error)),
            )
            for model, size, steps, method, r in rows
        ],
    )


def picture(found: Sequence[Length]) -> Figure:
    """Time of a step, time to the first result and memory, over the number of bodies."""
    figure = Figure(figsize=(13, 4.3), layout="constrained")
    panels = (("step", 1e6, "µs a step"), ("first", 1.0, "s to the first result"), ("own", 1.0, "MB"))
    for axis, (key, scale, label) in zip(figure.subplots(1, 3), panels, strict=True):
        for name, style in zip(SOLVERS, ("o-", "s-", "^--"), strict=True):
            known = [(f.bodies, scale * getattr(f.rows[name], key)) for f in found if name in f.rows]
            if known:
                title = "Exudyn" if name == "exudyn" else f"genalpha {name}"
                axis.loglog(*np.array(known).T, style, label=title)
        axis.set(xlabel="bodies", ylabel=label)
        axis.grid(alpha=0.4)
        axis.legend()
    figure.suptitle(f"Chain of rigid bodies with revolute joints, h = {H:g}, ρ∞ = {RHO_INF:g}")
    return figure


def main() -> None:
    """Measure, print and write."""
    given = sys.argv[1:]
    if given[:1] == ["--child"]:
        return child(given[1])
    flags = {text for text in given if text.startswith("--")}
    lengths = [int(text) for text in given if text not in flags] or list(LENGTHS)
    lengths += [LONGEST] if "--all" in flags and LONGEST not in lengths else []
    OUT.mkdir(parents=True, exist_ok=True)
    parts = [f"# Large systems\n\n{versions('genalpha', 'exudyn', 'jax', 'llvmlite', 'numpy')}"]
    if "--others" not in flags:
        found = list(chain(sorted(lengths)))
        parts += ["## Chain of rigid bodies", *chain_tables(found)]
        picture(found).savefig(OUT / "scale_chain.png", dpi=150)
    if "--chain" not in flags:
        with tempfile.TemporaryDirectory() as folder:
            rows = [
                (model, size, steps, method, measure(method, model, size, steps, folder))
                for (model, size, steps), method in product(OTHERS, METHODS)
            ]
        parts += ["## Other systems", others_table(rows)]
    text = "\n\n".join(parts) + "\n"
    (OUT / "scale.md").write_text(text)
    print(text)
    return None


if __name__ == "__main__":
    main()
