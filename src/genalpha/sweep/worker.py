"""What a worker does: it computes one block and writes it. Nothing but a short report travels back."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from genalpha._version import __version__
from genalpha.backends.batch import pool
from genalpha.sweep import kinds
from genalpha.sweep.job import Job, Values, variables_of
from genalpha.sweep.store import DONE, SweepStore, Variable

_MOST_JOBS = 4  # that a worker keeps
_QUICK = 20.0  # seconds of a trial that is made twice
_ready: OrderedDict[bytes, Job] = OrderedDict()
_stores: OrderedDict[tuple[str, str], SweepStore] = OrderedDict()
_lock = threading.RLock()
_stopped: set[str] = set()  # tokens of sweeps that this process shall not go on with


class TimeIsUp(RuntimeError):
    """A block took longer than its deadline."""


class NoLongerWanted(RuntimeError):
    """The sweep was stopped."""


class PackedJob(NamedTuple):
    """A job by cloudpickle, and what was found out about it: the runs of a cell, and the example (1, ...)."""

    version: str
    packed: bytes
    cell: int
    example: Values
    backend: str

    def job(self) -> Job:
        """The job, prepared once for each process."""
        import cloudpickle

        digest = hashlib.sha256(self.packed)
        for name, x in self.example.items():
            digest.update(name.encode() + x.tobytes())
        key = digest.digest()
        with _lock:
            if key not in _ready:
                job: Job = cloudpickle.loads(self.packed)
                job.prepare(self.example)
                _kept(_ready, key, job)
            return _ready[key]


class Task(NamedTuple):
    """What travels to a worker with the index of a block.

    ``kind`` is the kind of workers that are wanted, ``mark`` allows others. ``threads`` is the number of
    threads for a block, None for all cores.
    """

    work: PackedJob
    store: str
    token: str
    kind: dict[str, str]
    mark: bool
    threads: int | None
    deadline: float | None


class BlockReport(NamedTuple):
    """What a worker tells about a block."""

    block: int
    runs: int
    failures: int
    seconds: float
    bytes: int
    worker: str
    kind: dict[str, str]


class Probed(NamedTuple):
    """What a trial tells: the variables of the store, the kind of the worker, and seconds a run."""

    variables: dict[str, Variable]
    kind: dict[str, str]
    seconds: float


def probe(work: PackedJob, axes: Values) -> Probed | None:
    """Run the first cell as a trial. None if the example cannot be started, but perhaps another one."""
    if work.version != __version__:
        kinds.check({"genalpha": work.version}, {"genalpha": __version__})
    job = work.job()
    times = [time.perf_counter()]
    whole = {name: np.concatenate([x, axes[name]]) for name, x in work.example.items()}
    found = job.solved(whole)
    times.append(time.perf_counter())
    if found["status"][0] > 0 and not found["steps"][0]:
        return None
    if times[1] - times[0] < _QUICK:  # once more, without compilation
        job.solved(whole)
        times.append(time.perf_counter())
    variables = variables_of(job, found)
    return Probed(variables, kinds.here(work.backend), (times[-1] - times[-2]) / len(found["status"]))


def pack(job: Job) -> bytes:
    import cloudpickle

    return bytes(cloudpickle.dumps(job))


def _kept(where: OrderedDict[Any, Any], key: Any, value: Any) -> None:
    where[key] = value
    while len(where) > _MOST_JOBS:
        where.popitem(last=False)


def _opened(task: Task) -> SweepStore:
    with _lock:
        key = task.store, task.token
        if key not in _stores:
            _kept(_stores, key, SweepStore(task.store))
        return _stores[key]


def _checked(task: Task) -> dict[str, str]:
    """The kind of this worker, if it may work for the store. It looks before it unpacks the job."""
    if task.work.version != __version__ and not task.mark:
        kinds.check(task.kind, task.kind | {"genalpha": __version__})
    found = kinds.here(task.kind["backend"])
    if not task.mark:
        kinds.check(task.kind, found)
    return found


def _wanted(task: Task) -> Callable[[], None]:
    """A function that raises when the block is no longer wanted."""
    end = None if task.deadline is None else time.monotonic() + task.deadline

    def check() -> None:
        if task.token in _stopped:
            raise NoLongerWanted
        if end is not None and time.monotonic() > end:
            raise TimeIsUp(f"the block took longer than its deadline of {task.deadline:g} s")

    return check


def stop(token: str) -> None:
    """Blocks of this sweep that run in this process end soon, unfinished."""
    _stopped.add(token)


def go_on(token: str) -> None:
    _stopped.discard(token)


def run_block(task: Task, block: int) -> BlockReport:
    """Compute a block and write it."""
    return _run(task, block, lambda job, store, axes: job.computed(axes, task.work.cell))


def run_again(task: Task, block: int, which: np.ndarray, number: int) -> BlockReport:
    """Compute some runs of a block once more, those with the indices ``which`` in it."""

    def values(job: Job, store: SweepStore, axes: Values) -> Values:
        whole = store.read(block)
        new = job.computed({name: x[which] for name, x in axes.items()}, task.work.cell)
        new["retried"][:] = number
        for name, old in whole.items():
            old[which] = new[name]
        return whole

    return _run(task, block, values)


def _run(task: Task, block: int, values: Callable[[Job, SweepStore, Values], Values]) -> BlockReport:
    kind = _checked(task)
    job, store, start, wanted = task.work.job(), _opened(task), time.perf_counter(), _wanted(task)
    job.variables = store.variables
    here = store.where(block)
    with pool.limited(_threads(task), wanted):
        wanted()
        results = values(job, store, store.axes(here))
        wanted()
    seconds = time.perf_counter() - start
    size = store.write(block, results, DONE, kinds.number(kind), seconds)
    failures = int(np.count_nonzero(results["status"] > 0))
    return BlockReport(block, here.stop - here.start, failures, seconds, size, kinds.name(), kind)


def _threads(task: Task) -> int | None:
    worker: Any = kinds.dask_worker()
    return task.threads if worker is None or task.threads is not None else int(worker.state.nthreads)
