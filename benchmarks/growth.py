"""How native code and XLA grow with the system: a chain of n links in the plane, from one to forty.

Part of :mod:`benchmarks.native`. Every link adds a point mass with two coordinates and a distance that is
kept: n links are 2n coordinates, n constraints and 6n unknowns a step with SOI2.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import genalpha as ga
from benchmarks.measure import in_turns, seconds
from genalpha.backends.native import code, runners
from genalpha.backends.native import kernels as native
from genalpha.backends.native.step import LIMIT
from genalpha.compiler import machine
from genalpha.engine.setup import Setup
from genalpha.engine.step_choice import steps_of_size
from genalpha.engine.steps import Given
from genalpha.methods import by_name
from genalpha.numerics.newton import Newton
from genalpha.run import arguments

Problem = ga.problems.Problem

LINKS = (1, 2, 3, 5, 8, 12, 16, 20, 25, 30, 40)
H, TOL, RHO_INF = 1e-3, 1e-8, 0.8
STEPS = 500  # of each run here
TURNS = 5
PARTS = ("prepare", "correct", "renew", "judge", "finish")


# --- runs that have begun, and what their code is made of ------------------------------------------------


class Begun(NamedTuple):
    """A run before its first step; ``march()`` takes all of its steps."""

    setup: Setup
    run: native.NativeRun
    march: Callable[[], Any]

    @property
    def code(self) -> code.StepCode:
        return self.run.kernels.code()

    @property
    def operations(self) -> dict[str, int]:
        """Scalar operations in each kernel."""
        made = self.run.kernels
        kernels = made.program(made.order)[0].kernels
        return {name: kernels[name].operations for name in PARTS}

    @property
    def size(self) -> int:
        """Unknowns of a step."""
        return len(self.run.kernels.step.x)


def begun(problem: Problem, method: str, rho_inf: float, t_end: float, h: float = H) -> Begun:
    """A native run, as `ga.solve` begins it; kernels that the system has already are taken."""
    t0, system, args = problem.t_span[0], problem.system, arguments.arguments(problem.args)
    q, v = np.asarray(problem.q0, dtype=float), np.asarray(problem.v0, dtype=float)
    dims, _ = arguments.trace(system, t0, q, v, args)
    steps = Given.of(*steps_of_size(t0, t_end, h))
    setup = Setup(system, steps.suited(by_name(method, rho_inf)), Newton(tol=TOL), dims)
    run = native.begin(setup, native.StartValues(t0, q, v, steps.first_size), args)

    def march() -> None:
        """All steps of the run, into an array."""
        runner = runners.NativeGiven(setup, run, steps, args)
        runner.take(np.empty((len(steps.steps.h), runner.width)))

    return Begun(setup, run, march)


@contextmanager
def pieces() -> Iterator[dict[str, float]]:
    """Seconds from functions to machine code while this lasts.

    ``trace``: JAX's tracing, the scalar program and its derivatives, and pivots; ``write``: LU, cutting
    kernels, and LLVM's language, all in Python; ``llvm``: LLVM, or reading its result from the cache.
    """
    spent = {"trace": 0.0, "write": 0.0, "llvm": 0.0}

    def watched(function: Callable[..., Any], name: str, within: str | None) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            try:
                return function(*args, **options)
            finally:
                taken = time.perf_counter() - begin
                spent[name] += taken
                if within:
                    spent[within] -= taken

        return run

    places: list[tuple[Any, str, str, str | None]] = [
        (native, "kernels", "trace", None),
        (code.StepCode, "__init__", "write", None),
        (code.RowCode, "__init__", "write", None),
        (machine.Library, "__init__", "llvm", "write"),
    ]
    with ExitStack() as stack:
        for owner, name, piece, within in places:
            stack.enter_context(patch.object(owner, name, watched(getattr(owner, name), piece, within)))
        yield spent


# --- the chain -------------------------------------------------------------------------------------------


def chain(n: int) -> Problem:
    """Point masses of 1 kg, a metre apart, that hang from the origin in an arc and are let go."""

    def distances(t: Any, q: Any) -> Any:
        points = jnp.concatenate([jnp.zeros((1, 2)), q.reshape(n, 2)])
        links = points[1:] - points[:-1]
        return jnp.sum(links * links, axis=1) - 1.0

    angles = np.linspace(0.0, 0.5, n)
    q0 = np.cumsum(np.stack([np.cos(angles), np.sin(angles)], axis=1), axis=0).reshape(-1)
    weight = jnp.tile(jnp.array([0.0, -9.81]), n)
    return Problem(
        name=f"{n} links",
        title=f"Chain of {n} links in the plane",
        system=ga.System(mass=jnp.eye(2 * n), force=lambda t, q, v: weight, holonomic=distances),
        t_span=(0.0, STEPS * H),
        q0=q0,
        v0=np.zeros(2 * n),
        coordinates=tuple(f"{x}{i}" for i in range(n) for x in "xy"),
        source="",
        h=H,
    )


@dataclass(frozen=True)
class Row:
    """One length of the chain. Times to the first result in s, of a step in µs; None where native refuses.

    ``nodes`` is what the limit counts: all scalars of a step, used or not. Where native code is refused,
    ``refusal`` says why and ``first_native`` is what it took to find out and to let XLA run.
    """

    links: int
    unknowns: int
    nodes: int | None
    operations: dict[str, int] | None
    bytes: int | None
    pieces: dict[str, float] | None
    first_native: float
    first_xla: float
    us_native: float | None
    us_xla: float
    best_native: float | None
    best_xla: float
    jacobians: float
    refusal: str | None


def run(problem: Problem, backend: Any) -> ga.Solution:
    return problem.solve(method="soi2", rho_inf=RHO_INF, newton=Newton(tol=TOL), backend=backend)


def measure(n: int) -> Row:
    """One length: first results, then runs in turns."""
    problem, other = chain(n), chain(n)
    with pieces() as spent:
        first_native = seconds(partial(run, problem, "native"))
    first_xla = seconds(partial(run, other, "xla"))
    refusal = run(problem, "native").stats.fallback
    calls = [partial(run, other, "xla")] + ([] if refusal else [partial(run, problem, "native")])
    times = [[1e6 * t / STEPS for t in taken] for taken in in_turns(calls, TURNS)]
    sol = run(other, "xla")
    started = None if refusal else begun(problem, "soi2", RHO_INF, STEPS * H)
    return Row(
        links=n,
        unknowns=6 * n,
        nodes=len(started.run.kernels.step.graph.nodes) if started else None,
        operations=started.operations if started else None,
        bytes=started.code.library.size if started else None,
        pieces=dict(spent) if started else None,
        first_native=first_native,
        first_xla=first_xla,
        us_native=statistics.median(times[1]) if started else None,
        us_xla=statistics.median(times[0]),
        best_native=min(times[1]) if started else None,
        best_xla=min(times[0]),
        jacobians=sol.stats.jacobians / STEPS,
        refusal=refusal,
    )


def growth() -> list[Row]:
    """All lengths, after something else has been solved by both."""
    for backend in ("native", "xla"):
        ga.problems.get("pendulum").solve(t_end=0.1, h=H, backend=backend)
    return [measure(n) for n in LINKS]


def break_even(row: Row) -> float:
    """Steps after which native code, which took longer to make, has caught up; 0 where it did not."""
    if row.us_native is None:
        return np.nan
    later, gain = row.first_native - row.first_xla, 1e-6 * (row.us_xla - row.us_native)
    return max(0.0, later / gain) if gain > 0 else np.inf


# --- the report ------------------------------------------------------------------------------------------

_HEAD = (
    "links, unknowns, nodes, ops: renew, correct, kB code, s: trace, write, LLVM, first s: native, XLA, "
    "µs/step: native (best), XLA (best), ×, catches up after"
)
HEAD = tuple(_HEAD.split(", "))


def cells(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        own, ratio = ["-"] * 7, "-"
        native_us, even = "refused", "-"
        if row.operations and row.pieces and row.us_native and row.bytes:
            numbers = (row.nodes, row.operations["renew"], row.operations["correct"])
            own = [*map(str, numbers), f"{row.bytes / 1e3:.0f}"]
            own += [f"{row.pieces[name]:.2f}" for name in ("trace", "write", "llvm")]
            native_us = f"{row.us_native:.1f} ({row.best_native:.1f})"
            ratio = f"{row.us_xla / row.us_native:.1f}"
            even = f"{break_even(row):.0f}"
        firsts = (f"{row.first_native:.2f}", f"{row.first_xla:.2f}")
        xla_us = f"{row.us_xla:.1f} ({row.best_xla:.1f})"
        yield (str(row.links), str(row.unknowns), *own, *firsts, native_us, xla_us, ratio, even)


def crossing(rows: Sequence[Row]) -> str:
    """Where XLA takes over, in words."""
    served = [row for row in rows if row.us_native is not None]
    slower = [row.links for row in served if row.us_native and row.us_native > row.us_xla]
    later = [row.links for row in served if row.first_native > row.first_xla]
    refused = [row for row in rows if row.refusal]
    parts = [
        f"XLA gives the first result earlier from {min(later)} links on"
        if later
        else "native code always gives the first result earlier",
        f"XLA's steps are faster from {min(slower)} links on" if slower else "XLA's steps are never faster",
    ]
    if refused:
        parts.append(f"native code is refused from {refused[0].links} links on ({refused[0].refusal})")
    return "; ".join(parts) + "."


def picture(rows: Sequence[Row]) -> Figure:
    """Time of a step and time to the first result, over the number of links."""
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots(1, 2)
    served = [row for row in rows if row.us_native is not None]
    n, own = [row.links for row in rows], [row.links for row in served]
    panels: list[tuple[str, list[Any], list[Any]]] = [
        ("µs a step, whole call", [row.us_native for row in served], [row.us_xla for row in rows]),
        (
            "s to the first result",
            [row.first_native for row in served],
            [row.first_xla for row in rows],
        ),
    ]
    for axis, (label, mine, xla) in zip(axes, panels, strict=True):
        axis.loglog(own, mine, "o-", label="native")
        axis.loglog(n, xla, "s--", label="XLA")
        if len(served) < len(rows):
            axis.axvspan(rows[len(served)].links, max(n), color="0.92", zorder=0, label="native refuses")
        axis.set(xlabel="links", ylabel=label, xticks=n, xticklabels=map(str, n))
        axis.minorticks_off()
        axis.grid(alpha=0.4)
    axes[0].legend()
    figure.suptitle(f"Chain of n links in the plane, SOI2, 6n unknowns; limit {LIMIT} scalars a step")
    return figure
