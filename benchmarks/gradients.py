"""What derivatives of a run cost: first and later results, both modes, batches, and other packages.

``taskset -c 1 python -m benchmarks.gradients`` prints the result and writes it to
``out/bench/gradients.json`` and ``gradients.md``. It takes five minutes, without MJX one. "peers" after it
leaves out all but the other packages, "own" leaves these out.

The parameters are a force on the first velocity: its values at 1, 10, 100 or 1,000 equidistant times, with
straight lines between them. The loss is the mean over all rows of the square of a weighted sum of q.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import genalpha as ga
from benchmarks import gradient_peers as peers
from benchmarks.measure import OUT, cores, in_turns, markdown, paragraphs, plain, seconds, start_up, versions

STEPS, TURNS, DIRECTIONS = 1000, 15, 10
COUNTS = (1, 10, 100, 1000)
RUNS = (
    ("pendulum", "soi2"),
    ("heavy-top", "index3"),
    ("heavy-top", "soi2"),
    ("slider-crank", "soi2"),
    ("andrews", "soi2"),
)
MEMBERS, MEMBER_STEPS = 4096, 100


def scores(x: Any) -> Any:
    """The loss. Weights, because squares of quaternions have the sum one."""
    return jnp.mean((x @ jnp.arange(1.0, 1.0 + x.shape[1])) ** 2)


class Pushed:
    """A named problem with a force that has ``count`` parameters, and a loss."""

    def __init__(self, name: str, method: str, count: int) -> None:
        self.problem, self.method = ga.problems.get(name), method
        given, h = self.problem.system, self.problem.h
        first = np.zeros(len(self.problem.v0))
        first[0] = 1.0
        times = np.linspace(0.0, STEPS * h, count)
        push = (lambda t, u: u[0]) if count == 1 else (lambda t, u: jnp.interp(t, times, u))
        passed = lambda function: function and (lambda t, q, u, *args: function(t, q, *args))
        mass: Any = passed(given.mass) if callable(given.mass) else given.mass
        assert given.nonholonomic is None
        self.system = ga.System(
            mass,
            lambda t, q, v, u, *args: given.force(t, q, v, *args) + first * push(t, u),
            passed(given.holonomic),
            space=given.space,
        )
        self.u = np.zeros(count)

    def solve(self, u: Any, steps: int = STEPS) -> ga.Solution:
        problem = self.problem
        span, args = (0.0, steps * problem.h), (u, *problem.args)
        return ga.solve(self.system, span, problem.q0, problem.v0, h=problem.h, args=args, method=self.method)

    def loss(self, u: Any, steps: int = STEPS) -> Any:
        return scores(self.solve(u, steps).q)

    def loss_of_forces(self, u: Any) -> Any:
        sol = self.solve(u)
        return scores(sol.q) + scores(sol.lam)


# --- first results ------------------------------------------------------------------------------------------


def first(name: str, method: str, count: int, what: str) -> float:
    """Seconds to a first result in this process, without import and start of JAX."""
    start_up()
    pushed = Pushed(name, method, count)
    calls: dict[str, Callable[[], Any]] = {
        "plain": lambda: pushed.solve(pushed.u).q,
        "jit(grad)": lambda: jax.jit(jax.grad(pushed.loss))(pushed.u).block_until_ready(),
        "grad": lambda: jax.grad(pushed.loss)(pushed.u).block_until_ready(),
    }
    return seconds(calls[what])


def in_new_process(*what: Any) -> float:
    """The same in a new process with an empty cache."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.gradients", "first", *map(str, what)]
        found = subprocess.run(
            command, env=os.environ | {"GENALPHA_CACHE": folder}, capture_output=True, check=True
        )
    return float(found.stdout)


# --- later results ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """Times in ms of one problem with ``count`` parameters; ``direct`` is that of ten directions.

    ``agreement`` is the relative difference of the derivative in a direction by forward and reverse mode.
    """

    name: str
    method: str
    count: int
    plain: float
    jit: float
    grad: float
    with_forces: float
    grad_with_forces: float
    one: float
    ten: float
    agreement: float


def measure(name: str, method: str, count: int) -> Row:
    pushed, u = Pushed(name, method, count), jnp.zeros(count)
    moves = np.random.default_rng(0).normal(size=(DIRECTIONS, count))
    rows = lambda u: pushed.solve(u).q
    run, grad = jax.jit(rows), jax.jit(jax.grad(pushed.loss))
    forces = jax.jit(jax.grad(pushed.loss_of_forces))
    change = jax.jit(lambda u, du: jax.jvp(rows, (u,), (du,)))
    changes = jax.jit(lambda u, du: jax.vmap(lambda d: jax.jvp(rows, (u,), (d,))[1])(du))

    def plain_with_forces() -> Any:
        sol = pushed.solve(pushed.u)
        return sol.q, sol.lam

    calls = [
        rows,
        run,
        grad,
        lambda u: plain_with_forces(),
        forces,
        lambda u: change(u, moves[0]),
        lambda u: changes(u, moves),
    ]
    given = [pushed.u, *[u] * (len(calls) - 1)]
    ready = [
        partial(lambda f, x: jax.block_until_ready(f(x)), f, x) for f, x in zip(calls, given, strict=True)
    ]
    for call in ready:
        call()
    times = 1e3 * np.min(in_turns(ready, TURNS), axis=1)
    forward = float(jax.jvp(pushed.loss, (u,), (jnp.asarray(moves[0]),))[1])
    off = abs(float(grad(u) @ moves[0]) / forward - 1)
    values: list[float] = [*times.tolist(), off]
    return Row(name, method, count, *values)


def batch(name: str, method: str) -> tuple[float, ...]:
    """CPU seconds of ``MEMBERS`` runs and of their gradients.

    The runs are by solve_batch with the last row, the same with q of all rows, and by vmap; the gradients by
    vmap.
    """
    pushed = Pushed(name, method, 10)
    problem, u = pushed.problem, np.random.default_rng(0).normal(size=(MEMBERS, 10))
    span, axes = (0.0, MEMBER_STEPS * problem.h), (0, *[None] * len(problem.args))
    start = (problem.q0, problem.v0)
    options: dict[str, Any] = {
        "h": problem.h,
        "method": method,
        "args": (u, *problem.args),
        "args_axes": axes,
    }
    loss = partial(pushed.loss, steps=MEMBER_STEPS)
    value, grad = jax.jit(jax.vmap(loss)), jax.jit(jax.vmap(jax.grad(loss)))
    calls = (
        lambda: ga.solve_batch(pushed.system, span, *start, **options).q,
        lambda: ga.solve_batch(pushed.system, span, *start, save=("all", ("q",)), **options).q,
        lambda: value(u).block_until_ready(),
        lambda: grad(u).block_until_ready(),
    )
    best = []
    for call in calls:
        call()
        best.append(min(cpu_seconds(call) for _ in range(5)))
    return tuple(best)


def cpu_seconds(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


# --- other packages -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PeerRow:
    """First results in s, later ones in ms, and the relative error of the gradient."""

    problem: str
    solver: str
    first: float
    first_grad: float
    ms: float
    grad_ms: float
    error: float


def compare(name: str) -> list[PeerRow]:
    true, x = peers.reference(name), jnp.asarray(peers.PARAMETERS[name])
    rows = []
    for solver, loss in peers.contenders(name):
        times: list[float] = []
        functions = jax.jit(loss), jax.jit(jax.grad(loss))
        calls = [partial(lambda f: f(x).block_until_ready(), f) for f in functions]
        times += [seconds(call) for call in calls]
        times += (1e3 * np.min(in_turns(calls, 5), axis=1)).tolist()
        error = float(np.linalg.norm(functions[1](x) - true) / np.linalg.norm(true))
        rows.append(PeerRow(name, solver, times[0], times[1], times[2], times[3], error))
    return rows


# --- the report ---------------------------------------------------------------------------------------------

HEAD_FIRST = ("first result, s", "plain", "jit(grad)", "ratio", "grad", "ratio")
HEAD = (
    *("later results, ms", "parameters", "plain", "jit − plain", "grad", "ratio", "with λ", "grad", "ratio"),
    *("1 direction, ratio", "10, per direction", "agreement"),
)
HEAD_BATCH = ("CPU s", "solve_batch", "q of all rows", "vmap", "vmap of grad", "ratio", "to q of all rows")
HEAD_PEERS = ("problem", "solver", "first s", "first grad s", "ms", "grad ms", "error of grad")

NOTES = """\
{STEPS} steps of the size of the problem. first result: in a new process with an empty cache, with 10
parameters, after import and start of JAX. ratio: to the plain call, which returns all rows of q. jit: of the
plain call under jax.jit. with λ: the loss has the forces of constraints too. 1 direction: the run and the
change of q by jvp, relative to the plain call. 10, per direction: what a direction adds in a vmap of jvp
over ten, relative to the plain call. agreement: relative difference of forward and reverse mode. Best of
{TURNS} in turns.

Batch: {MEMBERS} members with {MEMBER_STEPS} steps and 10 parameters each; best of 5. solve_batch keeps the
last row, or q of all rows, which the gradients need.

Other packages: gradient of a mean over {peers.ROWS} rows of the position with respect to stiffness, damping
and angular velocity (pendulum) or the angular velocity (top). genalpha integrates the constrained equations,
diffrax and MJX an ODE in an angle, or in a quaternion and an angular velocity. The true gradient is that of
SciPy's DOP853 with a tolerance of 1e-13, for motion and sensitivities together. Times are the best of 5, one
core.

Cores available: {cores}; mean number of busy processes in the minute before: {load:.1f}."""


def first_cells() -> list[tuple[str, ...]]:
    lines: list[tuple[str, ...]] = []
    for name, method in RUNS:
        found = [in_new_process(name, method, 10, what) for what in ("plain", "jit(grad)", "grad")]
        ratios = [f"{x / found[0]:.1f}" for x in found[1:]]
        lines.append(
            (
                f"{name}, {method}",
                f"{found[0]:.2f}",
                f"{found[1]:.2f}",
                ratios[0],
                f"{found[2]:.2f}",
                ratios[1],
            )
        )
    return lines


def cells(row: Row) -> tuple[str, ...]:
    return (
        f"{row.name}, {row.method}",
        str(row.count),
        *(f"{x:.2f}" for x in (row.plain, row.jit - row.plain, row.grad)),
        f"{row.grad / row.plain:.1f}",
        *(f"{x:.2f}" for x in (row.with_forces, row.grad_with_forces)),
        f"{row.grad_with_forces / row.with_forces:.1f}",
        f"{row.one / row.plain:.2f}",
        f"{(row.ten / row.plain - 1) / DIRECTIONS:.2f}",
        f"{row.agreement:.0e}",
    )


def peer_cells(row: PeerRow) -> tuple[str, ...]:
    times = (f"{row.first:.2f}", f"{row.first_grad:.2f}", f"{row.ms:.2f}", f"{row.grad_ms:.2f}")
    return row.problem, row.solver, *times, f"{row.error:.1e}"


def main(parts: Sequence[str]) -> None:
    """Measure, print, write."""
    values: dict[str, Any] = {"load": os.getloadavg()[0], "cores": cores()}
    tables: list[tuple[Sequence[str], list[tuple[str, ...]]]] = []
    record: dict[str, Any] = dict(values)
    if "peers" not in parts:
        tables.append((HEAD_FIRST, first_cells()))
        rows = [measure(*run, count) for run in RUNS for count in COUNTS]
        tables.append((HEAD, list(map(cells, rows))))
        both = {" ".join(run): batch(*run) for run in RUNS[:2]}
        ratios = lambda t: (f"{t[3] / t[0]:.1f}", f"{t[3] / t[1]:.1f}")
        lines = [(name, *(f"{x:.3f}" for x in t), *ratios(t)) for name, t in both.items()]
        tables.append((HEAD_BATCH, lines))
        record |= {"rows": [asdict(row) for row in rows], "batch": both}
    if "own" not in parts:
        found = [row for name in peers.PARAMETERS for row in compare(name)]
        tables.append((HEAD_PEERS, list(map(peer_cells, found))))
        record["peers"] = [asdict(row) for row in found]
    notes = paragraphs(NOTES.format(**globals() | values))
    print(*(plain(*each) for each in tables), *(textwrap.fill(note, 98) for note in notes), sep="\n\n")
    OUT.mkdir(parents=True, exist_ok=True)
    record["versions"] = versions("genalpha", "jax", "jaxlib", "numpy", "diffrax", "mujoco-mjx")
    text = json.dumps(record, indent=1, ensure_ascii=False) + "\n"
    (OUT / "gradients.json").write_text(text, encoding="utf-8")
    text = "\n\n".join([*(markdown(*each) for each in tables), *notes]) + "\n"
    (OUT / "gradients.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:2] == ["first"]:
        print(first(sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]))
    else:
        main(sys.argv[1:])
