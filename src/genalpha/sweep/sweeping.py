"""A sweep from its checked arguments to its store: the template, the missing blocks, and what failed."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genalpha._version import __version__
from genalpha.sweep import kinds, store, worker
from genalpha.sweep.axes import Axes
from genalpha.sweep.driver import Crew, Driver, SweepBar, Tally
from genalpha.sweep.fingerprint import fingerprints
from genalpha.sweep.job import Job, Values, checked_options, not_run
from genalpha.sweep.lock import locked
from genalpha.sweep.opening import Opened
from genalpha.sweep.store import GIVEN_UP, LOST, MISSING, NotSameSweep, SweepStore
from genalpha.sweep.worker import BlockReport, PackedJob, Probed, Task

_TRIED = 3  # runs that are tried as an example: the first ones, and so many others
# The runs of a cell with the example: at least, at most, the most bytes of its results, about how many cells.
_LEAST_CELL, _MOST_CELL, _CELL_BYTES, _CELLS = 8, 1024, 2**25, 32
_USUAL = 16  # entries of a quantity, if q0 does not say more
# Seconds that a block shall take, so that what is done once for a block is little; and its most runs.
_BLOCK_SECONDS, _MOST_RUNS = 2.0, 2**16
_PARTS = {
    "system": "the functions of the system or of its events",
    "axes": "the values of over",
    "member": "the function member",
    "start": "t_span, q0, v0 or args",
    "options": "options such as h, rtol, method, t_eval or backend",
    "events": "the settings of events",
    "output": "save, most_events or observe",
}


class Policy(NamedTuple):
    """How the work is done. Nothing of it changes a bit of the results."""

    block: int | None
    memory: float
    threads: int | None
    deadline: float | None
    retries: int
    verify: bool
    other_kinds: str
    progress: bool
    worker_timeout: float | None


def begin(job: Job, axes: Axes, path: Path, executor: Any, policy: Policy) -> Sweep:
    """Begin a sweep or resume it, and run what is missing."""
    store.zarr()
    if policy.other_kinds not in ("refuse", "mark"):
        raise ValueError(f"other_kinds must be 'refuse' or 'mark', got {policy.other_kinds!r}")
    prints = fingerprints(job, axes, {name: x[:1] for name, x in next(axes.parts()).items()})
    crew = Crew(executor, policy.worker_timeout)
    try:
        with locked(path):
            if not path.exists():
                _create(job, axes, path, prints, crew, policy)
            files = SweepStore(path)
            _recognise(files, prints)
            found = Sweep(job, files, policy, executor)
            found._run(found._blocks(), crew)
            return found
    finally:
        crew.close()


def _recognise(files: SweepStore, prints: dict[str, str]) -> None:
    """Raise if the store belongs to another sweep."""
    known = files.header["fingerprints"]
    other = [text for part, text in _PARTS.items() if known.get(part) != prints[part]]
    if other:
        raise NotSameSweep(
            f"{files.path} belongs to another sweep: it differs in {', and in '.join(other)}. Choose another "
            "store for this one, or delete it"
        )


def _create(job: Job, axes: Axes, path: Path, prints: dict[str, str], crew: Crew, policy: Policy) -> None:
    """Try some runs, and write the template of the store."""
    runs, first = axes.count, next(axes.parts())
    cell = _cell(runs, job)
    example, probed = _probed(job, first, cell, crew)
    size = sum(int(np.prod(v.shape)) * np.dtype(v.dtype).itemsize for v in probed.variables.values())
    wanted = policy.block or _default_block(runs, probed.seconds, crew.most)
    fitting = max(1, int(policy.memory // (size * cell)))  # cells of a block
    times = job.options.get("t_eval")
    header = {
        "genalpha": __version__,
        "created": store.stamp(),
        "fingerprints": prints,
        "runs": runs,
        "cell": cell,
        "block": cell * min(fitting, -(-min(wanted, runs) // cell)),
        "example": example,
        "kind": probed.kind,
        "kinds": {str(kinds.number(probed.kind)): probed.kind},
        "design": axes.kind if axes.samples is None else axes.samples.design,
        "shape": list(axes.shape),
        "rotations": list(job.system.space.rotations),
        "names": _names(job),
        "times": None if times is None else np.asarray(times).tolist(),
        "retries": [],
    }
    store.create(path, header, probed.variables, axes)


def _names(job: Job) -> dict[str, list[str]]:
    """The names of the entries of quantities, where the system has names."""
    labels = job.system.labels
    told = {"q": labels.q, "v": labels.v, "a": labels.a, "lam": labels.holonomic, "psi": labels.nonholonomic}
    return {name: list(told[name]) for name in job.save if told[name]}


def _probed(job: Job, first: Values, cell: int, crew: Crew) -> tuple[int, Probed]:
    """The first run that can be started, and what a trial tells. Raises if there is none."""
    packed, count = worker.pack(job), len(next(iter(first.values())))
    tried = dict.fromkeys(
        [*range(min(count, _TRIED)), *np.linspace(0, count - 1, _TRIED, dtype=int).tolist()]
    )
    backend, error = str(job.options.get("backend", "auto")), None
    some = {name: x[np.arange(cell) % count] for name, x in first.items()}
    for at in tried:
        example = {name: x[at : at + 1] for name, x in first.items()}
        work = worker.PackedJob(__version__, packed, cell, example, backend)
        try:
            found = crew.result(crew.executor.submit(worker.probe, work, some))
        except (ArithmeticError, TypeError, ValueError) as reason:
            error = error or reason
            continue
        if found is not None:
            return at, found
    raise error or ValueError(
        f"none of the {len(tried)} runs that were tried can be started: try one with ga.solve"
    )


def _cell(runs: int, job: Job) -> int:
    """The number of runs of a cell. It depends on the sweep alone, and so do the last bits of its results.

    With the example it is a power of two, so that it fills the lanes of vector registers.
    """
    times = job.options.get("t_eval")
    rows = 1 if times is None else len(times)
    size = 8 * rows * len(job.save) * max(np.size(job.q0), _USUAL)
    below = lambda x: 1 << max(0, int(x).bit_length() - 1)
    return max(_LEAST_CELL, min(_MOST_CELL, below(runs // _CELLS), below(_CELL_BYTES // size))) - 1


def _default_block(runs: int, seconds: float, underway: int) -> int:
    """Long enough that a block is worth its costs, and enough of them for all workers."""
    return max(1, min(int(_BLOCK_SECONDS / max(seconds, 1e-9)), _MOST_RUNS, runs // (2 * underway)))


class Sweep(Opened):
    """A sweep and its store.

    ``tally`` says what the last call has done: blocks, runs, failures, bytes, seconds, workers, and blocks
    that were given up. :class:`Opened` has the parts that only read the store.
    """

    def __init__(self, job: Job, files: SweepStore, policy: Policy, executor: Any) -> None:
        super().__init__(files)
        self._job, self._policy, self._executor = job, policy, executor
        self.tally, self._before = Tally(), 0

    def retry(self, executor: Any = None, statuses: Any = None, **options: Any) -> Sweep:
        """Run the runs that failed again, with other options such as a smaller h; returns the sweep.

        None takes an option away, such as ``retry(h=1e-4, rtol=None)``.

        ``statuses`` chooses some statuses of :attr:`failures`, by default all. Results replace those of the
        failed runs, whether they are better or not, unless a block is lost again (``tally.given_up``);
        ``retried`` counts from one which retry they are from, and ``store.header["retries"]`` has its
        options.
        """
        job = dataclasses.replace(self._job, options=self._job.options | checked_options(options))
        crew = Crew(self._executor if executor is None else executor, self._policy.worker_timeout)
        try:
            with locked(self.store.path):
                which, number = self._failed(statuses), len(self.store.header["retries"]) + 1
                if number > 255:
                    raise ValueError("a store keeps at most 255 retries")
                texts = {name: repr(value) for name, value in options.items()}
                self.store.update(retries=[*self.store.header["retries"], texts])
                task = self._task(job, crew)

                def submit(executor: Executor, block: int) -> Future[BlockReport]:
                    return executor.submit(worker.run_again, task, block, which[block], number)

                self._before = self.store.runs - sum(map(self._size, which))
                self._drive(
                    Driver(crew, submit, self._policy.retries, self._policy.deadline, task.token), which
                )
        finally:
            crew.close()
        return self

    def verify(self) -> list[int]:
        """The blocks with a record whose data are damaged. Call the sweep again to compute them."""
        return [b for b in range(self.store.blocks) if self._state(b) != MISSING and not self.store.sound(b)]

    # --- blocks ---------------------------------------------------------------------------------

    def _state(self, block: int) -> int:
        return self.store.record(block)["state"]

    def _blocks(self) -> Iterator[int]:
        """The blocks that must be computed: first those without a record, then those that are damaged."""
        self.store.tidy()
        states = [self._state(block) for block in range(self.store.blocks)]
        self._before = sum(self._size(b) for b, state in enumerate(states) if state != MISSING)
        yield from (block for block, state in enumerate(states) if state == MISSING)
        for block in (b for b, state in enumerate(states) if state != MISSING and self._policy.verify):
            if not self.store.sound(block):
                self.store.discard(block)
                self._before -= self._size(block)
                yield block

    def _size(self, block: int) -> int:
        here = self.store.where(block)
        return here.stop - here.start

    def _failed(self, statuses: Any) -> dict[int, np.ndarray]:
        """The failed runs of each block, as indices in it."""
        found = {}
        for block in range(self.store.blocks):
            status = self.store.read(block)["status"] if self._state(block) != MISSING else np.zeros(0, int)
            bad = status > 0 if statuses is None else np.isin(status, statuses)
            if bad.any():
                found[block] = np.flatnonzero(bad)
        return found

    def _task(self, job: Job, crew: Crew) -> Task:
        policy, header = self._policy, self.store.header
        threads = policy.threads if policy.threads is not None else crew.threads
        example = self.store.axes(slice(header["example"], header["example"] + 1))
        backend = str(job.options.get("backend", "auto"))
        work = PackedJob(__version__, worker.pack(job), header["cell"], example, backend)
        kind = header["kind"] | {"backend": backend}
        mark = policy.other_kinds == "mark"
        return Task(work, str(self.store.path), header["token"], kind, mark, threads, policy.deadline)

    def _run(self, blocks: Iterator[int], crew: Crew) -> None:
        first = next(blocks, None)
        if first is None:  # nothing to do, and nothing to pack
            return
        task = self._task(self._job, crew)

        def submit(executor: Executor, block: int) -> Future[BlockReport]:
            return executor.submit(worker.run_block, task, block)

        driver = Driver(crew, submit, self._policy.retries, self._policy.deadline, task.token)
        self._drive(driver, itertools.chain([first], blocks))
        for block, reason in self.tally.given_up.items():
            values = not_run(self.store.variables, self._size(block), LOST, reason)
            self.store.write(block, values, GIVEN_UP, 0, 0.0)

    def _drive(self, driver: Driver, blocks: Any) -> None:
        """Run blocks, and note in the store which kinds of workers there were."""
        bar = SweepBar(self._policy.progress, self.store.runs, self._before)
        self.tally = driver.tally
        try:
            driver.run(blocks, bar.show)
        finally:
            bar.close()
            known = self.store.header["kinds"]
            found = {str(number): kind for number, kind in self.tally.kinds.items()}
            if not found.keys() <= known.keys():
                self.store.update(kinds=known | found)
