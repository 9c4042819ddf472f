"""Heavy tops on a GPU: steps a second of the kernel and of the whole call, and what the kernel is made of.

``python -m benchmarks.gpu`` needs cupy and a GPU; it prints the result and writes it to ``out/bench/gpu.md``
and ``gpu.json``. Masses vary by 10 % over the batch, or not at all; results are compared with the CPU. Then
tops under error control, with none or some rows at common times, on the GPU and on all cores of the CPU.

``python -m benchmarks.gpu gradients`` measures batches of gradients instead, on the GPU and on all cores of
the CPU, and runs of the same members. It takes two minutes and writes ``out/bench/gpu_gradients.md``.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

import genalpha as ga
from benchmarks.gradients import MEMBER_STEPS, Pushed, scores
from genalpha.backends.batch import cuda
from genalpha.backends.native import kernels as native
from genalpha.compiler.program import Program

OUT = Path("out/bench")
METHODS, SIZES, VARIATIONS = ("index3", "soi2"), (2**10, 2**16, 2**20), (0.0, 0.1)
STEPS, H, REPEATS = 1000, 1e-3, 3
LANES = 64  # double-precision units of a multiprocessor of an H100 or H200
# Under error control: systems, end, tolerance, numbers of common times.
MANY, END, RTOL, SAMPLES = 2**15, 0.2, 1e-5, (0, 21, 101)


def tops(count: int, variation: float) -> tuple[Any, ...]:
    """Arguments of the heavy top with masses that vary."""
    m = 15.0 * (1 + variation * np.random.default_rng(0).uniform(size=count))
    return ({"m": m, "g": 9.81},)


def run(problem: ga.problems.Problem, method: str, count: int, variation: float, backend: Any) -> ga.Solution:
    return ga.solve_batch(
        problem.system,
        (0.0, STEPS * H),
        problem.q0,
        problem.v0,
        h=H,
        args=tops(count, variation),
        args_axes=({"m": 0, "g": None},),
        method=method,
        rho_inf=0.9,
        newton=ga.Newton(tol=1e-8),
        backend=backend,
    )


class Clock:
    """Seconds that the kernel of steps takes, measured on the GPU."""

    def __init__(self, cupy: Any) -> None:
        self.cupy, self.seconds, self.steps = cupy, 0.0, cuda.CudaCode.steps

    def __enter__(self) -> Clock:
        clock = self

        def timed(code: cuda.CudaCode, *arguments: Any) -> None:
            begin, end = clock.cupy.cuda.Event(), clock.cupy.cuda.Event()
            begin.record()
            clock.steps(code, *arguments)
            end.record()
            end.synchronize()
            clock.seconds += clock.cupy.cuda.get_elapsed_time(begin, end) / 1e3

        cuda.CudaCode.steps = timed  # type: ignore
        return self

    def __exit__(self, *_: object) -> None:
        cuda.CudaCode.steps = self.steps  # type: ignore[method-assign]


def operations(program: Program, sol: ga.Solution) -> float:
    """Scalar operations in a mean step."""
    steps = sol.stats.steps.sum()
    counts = {"prepare": 1.0, "judge": 1.0, "finish": 1.0}
    counts["correct"] = sol.stats.newton_iterations.sum() / steps
    counts["renew"] = sol.stats.jacobians.sum() / steps
    return sum(number * program.kernels[name].operations for name, number in counts.items())


def markdown(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in (head, ["---"] * len(head), *lines))


def controlled(problem: ga.problems.Problem, samples: int, backend: Any) -> list[object]:
    """Members whose velocities vary by 10 %, each with steps of its own; q and v cross to the host.

    Accelerations, residuals and reactions are computed when they are asked for: a third number, in seconds.
    """
    v0 = problem.v0 * np.linspace(1.0, 1.1, MANY)[:, None]
    times: dict[str, Any] = {"t_eval": np.linspace(0.0, END, samples)} if samples else {}
    options: dict[str, Any] = {"rtol": RTOL, "args": problem.args, "initial": "assume", "backend": backend}
    run = lambda v0: ga.solve_batch(problem.system, (0.0, END), problem.q0, v0, **options, **times)
    run(v0[:64])
    seconds, later = [], []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        sol = run(v0)
        assert sol.q.shape[0] == len(sol.v)
        seconds.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        assert sol.a.shape == sol.v.shape
        later.append(time.perf_counter() - begin)
    rate = sol.stats.steps.sum() / min(seconds)
    numbers = [f"{min(seconds):.2f}", f"{rate:.1e}", f"{min(later):.2f}"]
    return [backend, samples or "the last", *numbers, int(sol.success.sum())]


def best(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a call, after a first one, and what it returns."""
    found, seconds = jax.block_until_ready(call()), []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        found = jax.block_until_ready(call())
        seconds.append(time.perf_counter() - begin)
    return min(seconds), found


def gradients(count: int, save: Any) -> list[object]:
    """Runs by solve_batch, and gradients of a loss of their q, on the GPU and on the CPU."""
    pushed, u = Pushed("heavy-top", "index3", 10), np.random.default_rng(0).normal(size=(count, 10))
    problem = pushed.problem
    axes = (0, *[None] * len(problem.args))
    given = (pushed.system, (0.0, MEMBER_STEPS * problem.h), problem.q0, problem.v0)
    options: dict[str, Any] = {"h": problem.h, "method": "index3"}

    def plain(backend: Any) -> Any:
        args = (u, *problem.args)
        return ga.solve_batch(
            *given, args=args, args_axes=axes, save=(save, ("q",)), backend=backend, **options
        ).q

    def loss(u: Any, backend: Any) -> Any:
        return scores(ga.solve(*given, args=(u, *problem.args), save=save, backend=backend, **options).q)

    found: dict[str, tuple[float, Any]] = {}
    for backend in ("cuda", "native"):
        found[f"runs, {backend}"] = best(partial(plain, backend))
        slopes = jax.jit(jax.vmap(jax.grad(partial(loss, backend=backend))))
        found[f"gradients, {backend}"] = best(partial(slopes, u))
    one, two = (np.asarray(found[f"gradients, {backend}"][1]) for backend in ("cuda", "native"))
    differ = np.abs(one - two).max() / np.abs(two).max()
    return [count, save, *(f"{seconds:.3f}" for seconds, _ in found.values()), f"{differ:.0e}"]


def main_gradients() -> None:
    """Measure batches of gradients, print, write."""
    cupy, lines = cuda.library(), []
    for save in ("all", "final"):
        for count in (2**12, 2**16):
            lines.append(gradients(count, save))
            print(*lines[-1], flush=True)
    head = [
        "members",
        "rows of q",
        "runs: GPU s",
        "gradients: GPU s",
        "runs: CPU s",
        "gradients: CPU s",
        "differ",
    ]
    name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    OUT.mkdir(parents=True, exist_ok=True)
    text = f"{name}, cupy {cupy.__version__}, {time.strftime('%Y-%m-%d')}\n\n{markdown(head, lines)}\n"
    (OUT / "gpu_gradients.md").write_text(text)
    print(text)


def main() -> None:
    cupy = cuda.library()
    properties = cupy.cuda.runtime.getDeviceProperties(0)
    clock_rate = 1e3 * cupy.cuda.Device(0).attributes["ClockRate"]
    peak = properties["multiProcessorCount"] * LANES * clock_rate
    rows, kernels = [], []
    problem = ga.problems.get("heavy-top")
    for method in METHODS:
        begin = time.perf_counter()
        run(problem, method, 32, 0.0, "cuda")
        first = time.perf_counter() - begin
        made = [k for k in problem.system._programs.values() if isinstance(k, native.Kernels)][-1]
        code = next(c for c in made.codes.values() if isinstance(c, cuda.CudaCode))
        kernel = code.module.get_function("steps")
        blocks = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.kernel.ptr, cuda.BLOCK, 0)
        warps = blocks * cuda.BLOCK // 32
        kernels.append([method, kernel.num_regs, kernel.local_size_bytes, f"{warps} of 64", f"{first:.1f}"])
        for variation in VARIATIONS:
            for count in SIZES:
                whole, inside = [], []
                for _ in range(REPEATS):
                    with Clock(cupy) as clock:
                        begin = time.perf_counter()
                        sol = run(problem, method, count, variation, "cuda")
                        whole.append(time.perf_counter() - begin)
                    inside.append(clock.seconds)
                done = count * STEPS
                rate = done / min(inside)
                share = rate * operations(code.program, sol) / peak
                few = partial(run, problem, method, 8, variation)
                differ = np.abs(few("cuda").q - few("native").q).max()
                rows.append(
                    [
                        method,
                        f"{100 * variation:.0f} %",
                        f"2^{count.bit_length() - 1}",
                        f"{rate:.2e}",
                        f"{done / min(whole):.2e}",
                        f"{operations(code.program, sol):.0f}",
                        f"{100 * share:.0f} %",
                        int(sol.success.sum()),
                        f"{differ:.0e}",
                    ]
                )
                print(*rows[-1], flush=True)
    head = [
        "method",
        "masses vary",
        "systems",
        "steps/s",
        "whole call",
        "ops/step",
        "of issue rate",
        "good",
        "vs CPU",
    ]
    lines = [controlled(problem, samples, backend) for samples in SAMPLES for backend in ("cuda", "native")]
    head3 = ["backend", "rows", "q and v: s", "steps/s", "a: s more", "good"]
    head2 = ["method", "registers", "local bytes", "warps", "first result s"]
    name = properties["name"].decode()
    OUT.mkdir(parents=True, exist_ok=True)
    text = f"{name}, cupy {cupy.__version__}, {time.strftime('%Y-%m-%d')}\n\n"
    text += "\n\n".join([markdown(head, rows), markdown(head2, kernels), markdown(head3, lines)]) + "\n"
    (OUT / "gpu.md").write_text(text)
    found = {"device": name, "rows": rows, "kernels": kernels, "controlled": lines}
    (OUT / "gpu.json").write_text(json.dumps(found, indent=1))
    print(text)


if __name__ == "__main__":
    main_gradients() if sys.argv[1:] == ["gradients"] else main()
