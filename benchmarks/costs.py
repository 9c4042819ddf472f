"""What genalpha costs: the first result of a process, a warm call, a step with and without error control,
and options.

``python -m benchmarks.costs`` prints the result and writes it to ``out/bench/costs.json`` and ``costs.md``;
``taskset -c 1`` before it keeps it on one core.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax.numpy as jnp
import numpy as np

import genalpha as ga
from benchmarks.measure import OUT, cores, in_turns, markdown, paragraphs, plain, start_up, versions

Problem = ga.problems.Problem

# With these tolerances a run takes more than ten thousand steps.
TOLERANCES = {
    "pendulum": 1e-7,
    "rolling-disk": 1e-7,
    "heavy-top": 1e-7,
    "andrews": 1e-7,
    "flexible-slider-crank": 1e-3,
}
METHOD = "soi2"
REPEATS = 21  # timed runs; their median counts
STARTS = 5  # processes of each kind; their median counts
PARTS = 0.25, 1.0
STEPS = 200_000  # of the runs with options
CALLS = 2001  # of one step each


# --- the first result ------------------------------------------------------------------------------------

_FIRST = """
import time
a = time.perf_counter()
import jax, numpy, llvmlite.binding
b = time.perf_counter()
import jax.numpy as jnp
import genalpha as ga
rod = ga.System(
    mass=jnp.eye(2),
    force=lambda t, q, v: jnp.array([0.0, -9.81]),
    holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
)
c = time.perf_counter()
sol = ga.solve(rod, (0.0, 10.0), [1.0, 0.0], [0.0, 0.0]{options})
d = time.perf_counter()
assert sol.success
print(b - a, c - b, d - c)
"""


@dataclass(frozen=True)
class Start:
    """Seconds of a new process: to import the dependencies, genalpha on top of them, and to solve."""

    kind: str
    dependencies: float
    package: float
    solve: float


def starts() -> list[Start]:
    """The pendulum of the README in new processes, with kernels compiled and taken from the cache on disk."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for kind, options, cache in (
            ("error control, compiled", "", "off"),
            ("error control, kept on disk", "", folder),
            ("h = 1e-3, compiled", ", h=1e-3", "off"),
            ("h = 1e-3, kept on disk", ", h=1e-3", folder),
        ):
            command = [sys.executable, "-c", _FIRST.format(options=options)]
            environment = os.environ | {"GENALPHA_CACHE": cache}
            run = partial(
                subprocess.run, command, env=environment, capture_output=True, text=True, check=True
            )
            if cache != "off":
                run()
            times = np.array([[float(x) for x in run().stdout.split()] for _ in range(STARTS)])
            found.append(Start(kind, *np.median(times, axis=0).tolist()))
    return found


# --- a call ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Call:
    """A warm call that takes one step: milliseconds of the call, and of asking for residuals after it.

    ``steps`` is how the step is chosen. The step itself is part of the call; it takes a microsecond or two.
    """

    problem: str
    steps: str
    ms: float
    residuals_ms: float


def calls() -> list[Call]:
    """What a call of the README's pendulum and of the heavy top costs beyond its steps."""
    top, rod = ga.problems.get("heavy-top"), readme_pendulum()
    models: dict[str, tuple[Any, ...]] = {
        "README's pendulum": (rod, [1.0, 0.0], [0.0, 0.0], ()),
        "heavy-top": (top.system, top.q0, top.v0, top.args),
    }
    found = []
    for name, (system, q0, v0, args) in models.items():
        one = partial(ga.solve, system, (0.0, 1e-4), q0, v0, args=args)
        kinds: dict[str, dict[str, Any]] = {
            "given": {"h": 1e-4},
            "controlled": {"first_step": 1e-4, "max_step": 1e-4},
        }
        for kind, chosen in kinds.items():
            solve = partial(one, **chosen)
            assert solve().stats.steps == 1
            times = in_turns([solve, lambda solve=solve: solve().residuals], CALLS)  # type: ignore[misc]
            bare, asked = (1e3 * statistics.median(each) for each in times)
            found.append(Call(name, kind, bare, asked - bare))
    return found


def readme_pendulum() -> ga.System:
    return ga.System(
        mass=jnp.eye(2),
        force=lambda t, q, v: jnp.array([0.0, -9.81]),
        holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
    )


# --- a step ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """What a step of a problem costs: with equal steps, and with those of error control.

    ``us`` is the slope between a quarter and the whole of the span, ``call_ms`` what is left of a call,
    ``rejected`` the share of attempts that were given up, the rest means per step.
    """

    problem: str
    kind: str
    steps: int
    us: float
    call_ms: float
    iterations: float
    jacobians: float
    rejected: float


def step_costs(name: str) -> list[Step]:
    """Controlled steps, and as many equal ones."""
    problem = ga.problems.get(name)
    t0, t1 = problem.t_span
    controlled = partial(_controlled, problem)
    count = int(controlled(1.0).stats.steps)
    equal = lambda part: problem.solve(h=(t1 - t0) / count, t_end=t0 + part * (t1 - t0), method=METHOD)
    kinds: dict[str, Callable[[float], ga.Solution]] = {"equal": equal, "controlled": controlled}
    runs = [partial(solve, part) for solve in kinds.values() for part in PARTS]
    times = np.array([statistics.median(each) for each in in_turns(runs, REPEATS)]).reshape(-1, 2)
    found = []
    for (kind, solve), (part, whole) in zip(kinds.items(), times, strict=True):
        less, stats = int(solve(PARTS[0]).stats.steps), solve(1.0).stats
        us = 1e6 * (whole - part) / (stats.steps - less)
        iterations, jacobians = stats.newton_iterations / stats.steps, stats.jacobians / stats.steps
        rejected = stats.rejected / (stats.steps + stats.rejected)
        left = 1e3 * whole - 1e-3 * us * stats.steps
        found.append(Step(name, kind, int(stats.steps), us, left, iterations, jacobians, rejected))
    return found


def _controlled(problem: Problem, part: float) -> ga.Solution:
    t0, t1 = problem.t_span
    span = (t0, t0 + part * (t1 - t0))
    p = problem
    tolerance = TOLERANCES[p.name]
    options: dict[str, Any] = {"rtol": tolerance, "atol": tolerance, "max_step": (t1 - t0) / 16}
    return ga.solve(p.system, span, p.q0, p.v0, method=METHOD, args=p.args, **options)


# --- options -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Option:
    """A run of the pendulum with an option: milliseconds, and relative to the run without."""

    option: str
    ms: float
    ratio: float


def never(t: Any, q: Any, v: Any, *args: Any) -> Any:
    """An event that does not happen."""
    return q[0] - 100.0


def options() -> list[Option]:
    """What options of :func:`genalpha.solve` cost on the pendulum with equal steps."""
    problem = ga.problems.get("pendulum")
    t0, t1 = problem.t_span
    h = (t1 - t0) / STEPS
    kinds: dict[str, dict[str, Any]] = {
        "none": {},
        "progress=True": {"progress": True},
        "callback, every 1,000 steps": {"callback": lambda state: None, "callback_every": 1000},
        "an event that never happens": {"events": never},
        "save=10": {"save": 10},
        'save="final"': {"save": "final"},
        "t_eval of 100 times": {"t_eval": np.linspace(t0, t1, 100)},
        "dense_output=True": {"dense_output": True},
        'backend="xla"': {"backend": "xla"},
    }

    def run(chosen: dict[str, Any]) -> None:
        with redirect_stderr(io.StringIO()):
            problem.solve(h=h, method=METHOD, **chosen)

    for chosen in kinds.values():
        run(chosen)
    times = [statistics.median(each) for each in in_turns([partial(run, c) for c in kinds.values()], REPEATS)]
    return [Option(kind, 1e3 * each, each / times[0]) for kind, each in zip(kinds, times, strict=True)]


# --- the report ---------------------------------------------------------------------------------------

HEAD_STARTS = ("first result, s", "dependencies", "genalpha", "solve", "beyond dependencies")
HEAD_CALLS = ("a warm call with one step", "steps", "ms", "residuals, ms more")
HEAD_STEPS = ("problem", "steps", "number", "µs", "call ms", "iter.", "Jac.", "rejected")
HEAD_OPTIONS = ("option", "ms", "ratio")

NOTES = """\
First result: the pendulum of the README over ten seconds in a new process, medians of {STARTS}.
dependencies: import of JAX, NumPy and llvmlite. genalpha: its import and the definition of the system.
solve: the call.

A warm call: medians of {CALLS} calls that take one step each. Accelerations, residuals and reactions are
computed when they are first asked for.

Steps: {METHOD}, error control with rtol = atol = 1e-7 (1e-3 for the flexible slider crank), and the same
number of equal steps. µs: slope between a quarter and the whole of the span, medians of {REPEATS} in turns.
call ms: the rest of the call; negative if later steps take longer than those of the first quarter. iter.,
Jac.: Newton corrections and new matrices per step. rejected: share of rejected steps.

Options: {STEPS:,} equal steps of the pendulum; ratio to the run without options.

Cores available: {cores}; mean number of busy processes in the minute before: {load:.1f}; JAX starts in
{start:.2f} s. Times are not reliable if other programs run at the same time."""


def start_cells(found: list[Start]) -> Iterator[tuple[str, ...]]:
    for each in found:
        times = (each.dependencies, each.package, each.solve, each.package + each.solve)
        yield (each.kind, *(f"{time:.2f}" for time in times))


def step_cells(found: list[Step]) -> Iterator[tuple[str, ...]]:
    for s in found:
        numbers = (s.us, s.call_ms, s.iterations, s.jacobians)
        yield (s.problem, s.kind, str(s.steps), *(f"{x:.2f}" for x in numbers), f"{100 * s.rejected:.1f} %")


def main() -> None:
    """Measure, print, write."""
    values: dict[str, Any] = {"load": os.getloadavg()[0], "cores": cores(), "start": start_up()}
    first, warm = starts(), calls()
    steps = [step for name in TOLERANCES for step in step_costs(name)]
    chosen = options()
    tables: list[tuple[tuple[str, ...], list[tuple[str, ...]]]] = [
        (HEAD_STARTS, list(start_cells(first))),
        (HEAD_CALLS, [(c.problem, c.steps, f"{c.ms:.3f}", f"{c.residuals_ms:.3f}") for c in warm]),
        (HEAD_STEPS, list(step_cells(steps))),
        (HEAD_OPTIONS, [(o.option, f"{o.ms:.2f}", f"{o.ratio:.3f}") for o in chosen]),
    ]
    notes = paragraphs(NOTES.format(**globals() | values))
    print(*(plain(*table) for table in tables), *(textwrap.fill(note, 98) for note in notes), sep="\n\n")
    OUT.mkdir(parents=True, exist_ok=True)
    text = "\n\n".join([*(markdown(*table) for table in tables), *notes]) + "\n"
    (OUT / "costs.md").write_text(text, encoding="utf-8")
    parts: dict[str, list[Any]] = {"starts": first, "calls": warm, "steps": steps, "options": chosen}
    record = values | {"versions": versions("genalpha", "jax", "jaxlib", "numpy", "llvmlite")}
    record |= {name: [asdict(each) for each in part] for name, part in parts.items()}
    (OUT / "costs.json").write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
