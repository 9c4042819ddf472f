"""Faults of sweeps, with real processes where it is slow: nothing lost, nothing twice, the same bits."""

from __future__ import annotations

import errno
import functools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import genalpha as ga
from genalpha.sweep import driver, worker
from genalpha.sweep.driver import SweepFailed
from sweep_models import bits, pendulum, slowly, study

pytest.importorskip("zarr")
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def system() -> ga.System:
    return pendulum()


@pytest.fixture(scope="module")
def whole(system: ga.System, tmp_path_factory: pytest.TempPathFactory) -> ga.Sweep:
    return study(tmp_path_factory.mktemp("whole") / "whole.zarr", system=system)


class Inline(Executor):
    """Runs blocks at once, and calls ``before(block)`` first."""

    def __init__(self, before: Any) -> None:
        self.before = before

    def submit(self, function: Any, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            if function is worker.run_block:
                self.before(args[1])
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class LateWorkers:
    """Stands for a Dask client. Its cluster has no workers until it was asked ``until`` times."""

    status, scheduler = "running", SimpleNamespace(address="tcp://127.0.0.1:8786")

    def __init__(self, until: float) -> None:
        self.until, self.asked, self.left = until, 0, list[tuple[Future[Any], Any]]()

    def get_executor(self, pure: bool) -> Any:
        return self

    def submit(self, function: Any, *args: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.left.append((future, functools.partial(function, *args)))
        return future

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        self.asked += 1
        if self.asked <= self.until:
            return {"workers": {}}
        while self.left:
            future, work = self.left.pop()
            future.set_result(work())
        return {"workers": {"one": {}}}


def test_a_cluster_without_workers_is_named(
    whole: ga.Sweep, system: ga.System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(block: int) -> None:
        raise KeyboardInterrupt

    begun, late = tmp_path / "begun.zarr", LateWorkers(np.inf)
    with pytest.raises(KeyboardInterrupt):
        study(begun, system=system, executor=Inline(stopping))
    monkeypatch.setattr(driver, "_TICK", 0.01)
    for store in (tmp_path / "new.zarr", begun):  # while a run is tried, and while blocks are waited for
        with pytest.raises(SweepFailed, match=r"cluster at tcp://127\.0\.0\.1:8786 has had no workers for"):
            study(store, system=system, executor=late, worker_timeout=0.05)
    monkeypatch.setattr(driver, "_NOBODY", 0.05)
    with pytest.warns(UserWarning, match="The sweep waits for them: start some, such as by 'dask") as seen:
        found = study(begun, system=system, executor=LateWorkers(20), worker_timeout=60.0, deadline=60.0)
    assert len(seen) == 1
    assert bits(found) == bits(whole)


def test_a_driver_that_stops_is_resumed(whole: ga.Sweep, system: ga.System, tmp_path: Path) -> None:
    computed = []

    def before(block: int) -> None:
        if len(computed) % 2:
            computed.append(None)
            raise KeyboardInterrupt
        computed.append(block)

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            study(tmp_path / "a.zarr", system=system, executor=Inline(before))
    found = study(tmp_path / "a.zarr", system=system, executor=Inline(before))
    assert computed == [0, None, 1, None, 2, None, 3, None, 4]  # nothing lost, nothing twice
    assert bits(found) == bits(whole)


def test_a_lost_block_is_tried_again(whole: ga.Sweep, system: ga.System, tmp_path: Path) -> None:
    tried: list[int] = []

    def before(block: int) -> None:
        tried.append(block)
        if block == 2 and tried.count(2) < 3:
            raise MemoryError("no memory on this worker")

    found = study(tmp_path / "a.zarr", system=system, executor=Inline(before))
    assert (tried.count(2), found.tally.attempts) == (3, {2: 2})
    assert bits(found) == bits(whole)


def test_a_full_disk_ends_the_sweep_and_loses_nothing(
    whole: ga.Sweep, system: ga.System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zarr.storage import _local

    put = _local._put

    def full(path: Path, *rest: Any, **more: Any) -> Any:
        if "c/2/" in path.as_posix() and "lam" in path.parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return put(path, *rest, **more)

    monkeypatch.setattr(_local, "_put", full)
    with pytest.raises(OSError, match=r"block 2 .*No space left.*Make room"):
        study(tmp_path / "a.zarr", system=system, executor=Inline(lambda block: None))
    monkeypatch.undo()
    assert 0 < ga.open_sweep(tmp_path / "a.zarr").counts["done"] < 100
    assert bits(study(tmp_path / "a.zarr", system=system)) == bits(whole)


def test_a_worker_of_another_version_is_refused_by_name(
    whole: ga.Sweep, system: ga.System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = study(tmp_path / "a.zarr", system=system)
    found.store.discard(0)
    monkeypatch.setattr(worker, "__version__", "0.0.9")
    text = rf"the worker process {os.getpid()} on .* \(genalpha: 0.0.9 instead of {ga.__version__}\)"
    with pytest.raises(RuntimeError, match=text):
        study(tmp_path / "a.zarr", system=system)


def test_blocks_of_another_kind_are_marked(
    whole: ga.Sweep, system: ga.System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from genalpha.sweep import kinds

    found = study(tmp_path / "a.zarr", system=system)
    found.store.discard(0)
    here = kinds.here("auto")
    monkeypatch.setattr(kinds, "here", lambda backend: here | {"instructions": "of another processor"})
    with pytest.raises(RuntimeError, match="instructions: of another processor instead of"):
        study(tmp_path / "a.zarr", system=system)
    marked = study(tmp_path / "a.zarr", system=system, other_kinds="mark")
    numbers = [marked.store.record(block)["kind"] for block in range(5)]
    assert numbers[0] != numbers[1] == numbers[4]
    assert marked.store.header["kinds"][str(numbers[0])]["instructions"] == "of another processor"


def test_a_store_that_was_replaced_is_not_written_to(system: ga.System, tmp_path: Path) -> None:
    path = tmp_path / "a.zarr"

    def before(block: int) -> None:
        if block == 1:
            text = (path / "zarr.json").read_text()
            token = ga.open_sweep(path).store.header["token"]
            (path / "zarr.json").write_text(text.replace(token, "0" * 32))

    with pytest.raises(ValueError, match=r"was removed or replaced while block \d was computed"):
        study(path, system=system, executor=Inline(before))


LOCKED = """
import fcntl, json, os, sys, time
file = open(sys.argv[1], "a+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
json.dump({"host": "elsewhere", "pid": os.getpid()}, file)
file.flush()
print("locked", flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(os.name == "nt", reason="uses fcntl")
def test_the_lock_of_a_killed_driver_is_free(whole: ga.Sweep, system: ga.System) -> None:
    lock = str(whole.store.path) + ".lock"
    with subprocess.Popen([sys.executable, "-c", LOCKED, lock], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(RuntimeError, match=rf"another driver .*process {other.pid} on elsewhere"):
            study(whole.store.path, system=system)
        other.kill()
    assert study(whole.store.path, system=system).tally.blocks == 0


# --- real processes -------------------------------------------------------------------------------

LONG: dict[str, Any] = {"count": 3000, "h": 2e-5, "block": 60}
DRIVER = f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from sweep_models import slowly, study
if __name__ == "__main__":
    study(sys.argv[1], progress=True, observe=slowly(0.6), **{LONG!r})
"""


def records(store: Path) -> int:
    return sum(1 for _ in (store / "record" / "c").glob("*/0")) if (store / "record" / "c").exists() else 0


@pytest.fixture(scope="module")
def long(system: ga.System, tmp_path_factory: pytest.TempPathFactory) -> ga.Sweep:
    return study(tmp_path_factory.mktemp("long") / "long.zarr", system=system, **LONG)


@contextmanager
def cluster(workers: int = 2) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    settings = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as local, distributed.Client(local) as client:
        yield client


@pytest.mark.slow
def test_a_real_cluster_without_workers(system: ga.System, tmp_path: Path) -> None:
    with cluster(0) as client, pytest.raises(SweepFailed, match=client.scheduler.address):
        study(tmp_path / "a.zarr", system=system, executor=client, worker_timeout=2.0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_workers_killed_twenty_times(long: ga.Sweep, system: ga.System, tmp_path: Path) -> None:
    store, over, killed = tmp_path / "a.zarr", threading.Event(), []

    def started(address: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", "worker", address, "--no-nanny", "--nthreads=1"]
        return subprocess.Popen(
            [*command, "--no-dashboard"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    with cluster(0) as client:
        rng, address = random.Random(1), client.scheduler.address
        running = [started(address) for _ in range(3)]

        def kill() -> None:
            while not over.is_set() and len(killed) < 20:
                time.sleep(4 * rng.random())
                if records(store):
                    running.insert(0, started(address))
                    victim = running.pop(rng.randrange(1, 4))
                    victim.kill()
                    victim.communicate()
                    killed.append(victim.pid)

        killer = threading.Thread(target=kill)
        killer.start()
        try:
            found = study(store, system=system, executor=client, retries=50, observe=slowly(3.0), **LONG)
        finally:
            over.set()
            killer.join()
            for one in running:
                one.kill()
                one.communicate()
    assert len(killed) == 20
    assert found.tally.given_up == {}
    assert found.verify() == []
    assert bits(found) == bits(long)


@pytest.mark.slow
def test_the_driver_killed_and_resumed_ten_times(long: ga.Sweep, system: ga.System, tmp_path: Path) -> None:
    store, rng = tmp_path / "a.zarr", random.Random(2)
    done = []
    for _ in range(10):
        before = records(store)
        with subprocess.Popen([sys.executable, "-c", DRIVER, str(store)], stderr=subprocess.PIPE) as driver:
            while records(store) <= before and driver.poll() is None:
                time.sleep(0.02)
            time.sleep(0.5 * rng.random())
            driver.kill()
        done.append(records(store))
    assert sorted(done) == done
    assert 0 < done[-1] < long.store.blocks
    found = study(store, system=system, observe=slowly(0.6), **LONG)
    assert found.tally.blocks == long.store.blocks - done[-1]  # all that was done stays, and nothing else
    assert bits(found) == bits(long)


@pytest.mark.slow
def test_two_drivers(long: ga.Sweep, system: ga.System, tmp_path: Path) -> None:
    store = tmp_path / "a.zarr"
    with subprocess.Popen([sys.executable, "-c", DRIVER, str(store)], stderr=subprocess.PIPE) as first:
        while not records(store) and first.poll() is None:
            time.sleep(0.02)
        with pytest.raises(RuntimeError, match=f"another driver works on .*process {first.pid} on"):
            study(store, system=system, observe=slowly(0.6), **LONG)
        first.kill()
    assert bits(study(store, system=system, observe=slowly(0.6), **LONG)) == bits(long)


@pytest.mark.slow
def test_a_small_disk(whole: ga.Sweep, system: ga.System, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(place)]
    if os.name == "nt" or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no small file system can be mounted here")
    try:
        with pytest.raises(OSError, match="No space left on device"):
            study(place / "a.zarr", system=system)
        assert not list(place.glob("**/*.partial"))
        subprocess.run(["mount", "-o", "remount,size=20m", str(place)], check=True)
        found = study(place / "a.zarr", system=system)
        assert bits(found) == bits(whole)
    finally:
        subprocess.run(["umount", str(place)], check=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_dask_worker_of_another_version(whole: ga.Sweep, system: ga.System, tmp_path: Path) -> None:
    def older() -> None:
        from genalpha.sweep import worker

        worker.__version__ = "0.0.9"  # type: ignore[attr-defined]

    with cluster(1) as client:
        found = study(tmp_path / "a.zarr", system=system, executor=client)
        assert bits(found) == bits(whole)
        found.store.discard(1)
        client.run(older)
        with pytest.raises(RuntimeError, match=r"the worker 0 \(tcp://.*genalpha: 0.0.9 instead of"):
            study(tmp_path / "a.zarr", system=system, executor=client)
        assert records(tmp_path / "a.zarr") == 4


@pytest.mark.slow
def test_a_pool_of_processes(whole: ga.Sweep, system: ga.System, tmp_path: Path) -> None:
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = study(tmp_path / "a.zarr", system=system, executor=pool)
        assert bits(found) == bits(whole)
        found.store.discard(1)
        for process in list(pool._processes.values()):
            process.kill()
        with pytest.raises(RuntimeError, match=r"the executor is gone .*call the sweep again"):
            study(tmp_path / "a.zarr", system=system, executor=pool)
    assert bits(study(tmp_path / "a.zarr", system=system)) == bits(whole)
