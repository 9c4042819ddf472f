"""Sweeps: throughput beside `solve_batch` alone, overhead of blocks, resuming, growth, a cluster on paper.

``python -m benchmarks.ensembles`` takes about an hour on two cores; ``--runs 20000 --short 10000 100000`` is
a quick look. The result is printed and written to ``out/bench/ensembles.json`` and ``ensembles.md``.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import genalpha as ga
from benchmarks.measure import OUT, cores, markdown, versions

H, SHORT_STEPS = 1e-3, 10
BATCH = 65_536  # members of a call of solve_batch that is measured alone
_EMPTY = 500  # tasks that measure the scheduler
WORKERS = 1_000  # of the cluster on paper
_GROWTH = """
import sys
from benchmarks import ensembles
ensembles.print_short(int(sys.argv[1]), sys.argv[2])
"""


def spins(count: int) -> np.ndarray:
    """Angular velocities of heavy tops, which stay consistent with their constraints."""
    return np.linspace(140.0, 160.0, count)


def tops(store: Path, count: int, **more: Any) -> ga.Sweep:
    """Heavy tops of 1,000 steps; the last row is kept."""
    top = ga.problems.get("heavy-top")
    over = {"v0[4]": spins(count)}
    return ga.sweep(
        top.system, (0.0, 1.0), top.q0, top.v0, args=top.args, h=H, over=over, store=store, **more
    )


def alone(count: int) -> float:
    """Seconds of solve_batch for the same tops, without a store; code is compiled before."""
    top = ga.problems.get("heavy-top")
    given = spins(count)

    def some(spin: np.ndarray) -> None:
        v0 = np.tile(top.v0, (len(spin), 1))
        v0[:, 4] = spin
        sol = ga.solve_batch(top.system, (0.0, 1.0), top.q0, v0, args=top.args, h=H, save=["q", "v", "lam"])
        assert sol.success.all()
        _ = sol.q, sol.v, sol.lam

    some(given[:64])
    begin = time.perf_counter()
    for first in range(0, count, BATCH):
        some(given[first : first + BATCH])
    return time.perf_counter() - begin


def short(store: Path, count: int, **more: Any) -> ga.Sweep:
    """Pendulums of a few steps."""
    import jax.numpy as jnp

    system = ga.System(
        mass=jnp.eye(2),
        force=lambda t, q, v, length: jnp.array([0.0, -9.81]),
        holonomic=lambda t, q, length: jnp.array([q @ q - length**2]),
    )
    start = lambda length: {"q0": [length, 0.0], "v0": [0.0, 0.0], "args": (length,)}
    over, span = {"length": np.linspace(0.5, 1.5, count)}, (0.0, 1e-2 * SHORT_STEPS)
    return ga.sweep(system, span, over=over, member=start, h=1e-2, save=["q"], store=store, **more)


def print_short(count: int, store: str) -> None:
    """Run short runs in this process, and print its seconds and its largest memory in MiB."""
    short(Path(store + ".first"), 1_000)  # what is compiled and imported once
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    begin = time.perf_counter()
    found = short(Path(store), count)
    seconds = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps([seconds, before, after, found.store.blocks]))


# --- measurements ---------------------------------------------------------------------------------


def throughput(folder: Path, count: int) -> dict[str, float]:
    """Runs a second: solve_batch alone, a sweep in threads, and one in two processes of Dask.

    A first sweep in the same executor compiles, so that both sides are without compilation.
    """
    from distributed import Client, LocalCluster

    found = {"solve_batch": count / alone(count)}
    tops(folder / "first.zarr", 1_000)
    begin = time.perf_counter()
    tops(folder / "threads.zarr", count)
    found["threads"] = count / (time.perf_counter() - begin)
    settings: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**settings) as cluster, Client(cluster) as client:
        tops(folder / "first_dask.zarr", 1_000, executor=client)
        begin = time.perf_counter()
        tops(folder / "dask.zarr", count, executor=client)
        found["two processes"] = count / (time.perf_counter() - begin)
        found |= overhead(folder, client)
    return found


def overhead(folder: Path, client: Any) -> dict[str, float]:
    """What blocks cost beside their runs, from the same runs in many small blocks and in a few large ones.

    The scheduler is measured alone too, with tasks that do nothing but carry a model of 20 kB.
    """
    found = {}
    for name, executor in (("threads", None), ("Dask", client)):
        seconds, blocks = [], []
        for i, block in enumerate((None, 10_000, 1)):  # the first one compiles
            begin = time.perf_counter()
            done = short(folder / f"blocks_{name}_{i}.zarr", 20_000, executor=executor, block=block)
            seconds.append(time.perf_counter() - begin)
            blocks.append(done.store.blocks)
        found[f"ms a block, {name}"] = 1e3 * (seconds[2] - seconds[1]) / (blocks[2] - blocks[1])
    executor, packed = client.get_executor(pure=False), bytes(20_000)
    begin, underway = time.perf_counter(), [executor.submit(len, packed) for _ in range(8)]
    for _ in range(_EMPTY):
        underway.pop(0).result()
        underway.append(executor.submit(len, packed))
    found["empty tasks a second, Dask"] = _EMPTY / (time.perf_counter() - begin)
    for future in underway:
        future.result()
    return found


def resuming(folder: Path) -> dict[str, float]:
    """Seconds to resume a store that is 99 % done, with checksums and without, and to find it complete."""
    path = folder / "threads.zarr"
    count = ga.open_sweep(path).store.runs
    found = {}
    for name, verify in (("with checksums", True), ("without checksums", False)):
        opened = tops(path, count, verify=False)
        for block in range(0, opened.store.blocks, 100):
            opened.store.discard(block)
        begin = time.perf_counter()
        again = tops(path, count, verify=verify)
        seconds = time.perf_counter() - begin
        found[name] = seconds
        found[f"{name}, of which runs"] = again.tally.seconds / 2
    begin = time.perf_counter()
    tops(path, count, verify=False)
    found["complete already"] = time.perf_counter() - begin
    return found


def growth(folder: Path, counts: list[int]) -> list[dict[str, float]]:
    """Short runs, each number of them in a process of its own."""
    rows = []
    for count in counts:
        store = folder / f"short_{count}.zarr"
        command = [sys.executable, "-c", _GROWTH, str(count), str(store)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        seconds, before, after, blocks = json.loads(printed.splitlines()[-1])
        about = {"runs": count, "seconds": seconds, "microseconds a run": 1e6 * seconds / count}
        rows.append(about | {"MiB before": before, "MiB at most": after, "blocks": blocks})
        shutil.rmtree(store)
    return rows


def on_disk(store: Path) -> tuple[int, int]:
    """Bytes and files of a store."""
    sizes = [file.stat().st_size for file in store.rglob("*") if file.is_file()]
    return sum(sizes), len(sizes)


def on_paper(folder: Path, speeds: dict[str, float]) -> dict[str, float]:
    """What a thousand workers would need, if each of them computes as fast as one of the two here."""
    size, files = on_disk(folder / "dask.zarr")
    store = ga.open_sweep(folder / "dask.zarr").store
    rate = WORKERS * speeds["two processes"] / 2
    tasks = rate / store.block
    return {
        "runs a second": rate,
        "tasks a second": tasks,
        "tasks a second of one driver and scheduler": speeds["empty tasks a second, Dask"],
        "bytes a run": size / store.runs,
        "MB a second into the store": 1e-6 * rate * size / store.runs,
        "files a second into the store": tasks * files / store.blocks,
        "workers that they keep busy": WORKERS * speeds["empty tasks a second, Dask"] / tasks,
    }


# --- the report -----------------------------------------------------------------------------------


def table(title: str, numbers: dict[str, float]) -> str:
    rows = [(name, f"{value:.4g}") for name, value in numbers.items()]
    return f"### {title}\n\n{markdown(('quantity', 'value'), rows)}\n"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="heavy tops")
    parser.add_argument("--short", type=int, nargs="+", default=[10**k for k in range(4, 8)])
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="ensembles"))
    try:
        speeds = throughput(folder, options.runs)
        for name in ("threads", "two processes"):
            speeds[f"{name} / solve_batch"] = speeds[name] / speeds["solve_batch"]
        again, paper = resuming(folder), on_paper(folder, speeds)
        rows = growth(folder, options.short)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = {"runs": options.runs, "throughput": speeds, "resuming": again, "on paper": paper, "growth": rows}
    found |= {"cores": cores(), "versions": versions("genalpha", "jax", "zarr", "xarray", "distributed")}
    names = tuple(rows[0])
    text = "\n".join(
        [
            table(f"{options.runs} heavy tops of 1,000 steps: runs a second", speeds),
            table("Seconds to resume, 99 % done", again),
            table(f"A cluster of {WORKERS} workers on paper", paper),
            f"### Short runs\n\n{markdown(names, [[f'{row[n]:.4g}' for n in names] for row in rows])}\n",
        ]
    )
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "ensembles.json").write_text(json.dumps(found, indent=1))
    (OUT / "ensembles.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
