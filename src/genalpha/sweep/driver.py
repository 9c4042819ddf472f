"""The driver: gives blocks to an executor, a few at a time, and notes what comes back."""

from __future__ import annotations

import contextlib
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from genalpha.compiler.machine import cores
from genalpha.results.progress import Bar
from genalpha.sweep import kinds, worker
from genalpha.sweep.kinds import RefusedWorker
from genalpha.sweep.store import NotSameSweep, StoreNotWritable
from genalpha.sweep.worker import BlockReport

_TICK = 0.5  # seconds between two looks at the clock
# A block that has not come back after so many deadlines, and so many seconds more, is given to another
# worker.
_PATIENCE, _GRACE = 4, 60.0
_NOBODY = 60.0  # seconds without workers after which there is a warning
_HOPELESS = 5  # so many blocks in a row, given up before any was done, end the sweep
_FATAL = (RefusedWorker, NotSameSweep, StoreNotWritable)


class SweepFailed(RuntimeError):
    """The sweep cannot go on. What is done stays in the store."""


@dataclass
class Tally:
    """What a call has done."""

    blocks: int = 0
    runs: int = 0
    failures: int = 0
    bytes: int = 0
    seconds: float = 0.0  # of workers, for computing
    given_up: dict[int, str] = field(default_factory=dict)
    attempts: Counter[int] = field(default_factory=Counter)
    workers: Counter[str] = field(default_factory=Counter)
    kinds: dict[int, dict[str, str]] = field(default_factory=dict)

    def add(self, report: BlockReport) -> None:
        self.blocks += 1
        self.runs += report.runs
        self.failures += report.failures
        self.bytes += report.bytes
        self.seconds += report.seconds
        self.workers[report.worker] += 1
        self.kinds[kinds.number(report.kind)] = report.kind


class Crew:
    """An executor as the driver needs it. None is this machine's cores; a Dask client is one too.

    ``timeout`` are the seconds that a Dask cluster may have no workers; None waits for ever.
    """

    def __init__(self, executor: Any, timeout: float | None = None) -> None:
        self.timeout, self._warned = timeout, False
        self._empty_since: float | None = None
        self.client: Any = None
        self.own = executor is None
        if executor is None:
            # Two blocks at a time: while one of them is written, all cores work for the other.
            self.executor: Executor = ThreadPoolExecutor(2, "sweep")
        elif isinstance(executor, Executor):
            self.executor = executor
        elif hasattr(executor, "get_executor") and hasattr(executor, "scheduler_info"):
            self.client, self.executor = executor, executor.get_executor(pure=False)
        else:
            raise TypeError(
                "executor must be a concurrent.futures.Executor or a dask.distributed.Client, got "
                f"{type(executor).__name__}"
            )

    @property
    def threads(self) -> int | None:
        """Threads for each block: all cores if this machine's cores are the executor, else one."""
        return None if self.own or self.client is not None else 1

    @property
    def most(self) -> int:
        """How many blocks are under way at a time: enough that nobody waits, and no more."""
        if self.client is not None:
            return max(2, 2 * (self._workers() or 0))
        if self.own:
            return 3
        return 2 * int(getattr(self.executor, "_max_workers", cores()))

    def _workers(self) -> int | None:
        """The number of workers of a Dask cluster; None if it is not known."""
        with contextlib.suppress(Exception):  # while the connection is lost
            return len(self.client.scheduler_info(n_workers=-1)["workers"])
        return None

    def empty(self) -> bool:
        """Whether a Dask cluster has no workers now. Warns after a while, and raises after the timeout."""
        if self.client is None or self._workers() != 0:
            self._empty_since = None
            return False
        now = time.monotonic()
        self._empty_since = now if self._empty_since is None else self._empty_since
        seconds, address = now - self._empty_since, self.client.scheduler.address
        if self.timeout is not None and seconds >= self.timeout:
            raise SweepFailed(
                f"the Dask cluster at {address} has had no workers for {seconds:.0f} s. Start some, such as "
                f"by 'dask worker {address}', and call again, or wait longer by worker_timeout"
            )
        if seconds >= _NOBODY and not self._warned:
            self._warned = True
            warnings.warn(
                f"the Dask cluster at {address} has had no workers for {seconds:.0f} s. The sweep waits for "
                f"them: start some, such as by 'dask worker {address}'. worker_timeout ends the wait",
                stacklevel=2,
            )
        return True

    def result(self, future: Future[Any]) -> Any:
        """The result of a future."""
        while not wait([future], timeout=_TICK).done:
            self.empty()
        return future.result()

    def lost(self) -> bool:
        """Whether the executor is gone."""
        return self.client is not None and self.client.status != "running"

    def close(self) -> None:
        if self.own:
            self.executor.shutdown(wait=True, cancel_futures=True)


class Underway(NamedTuple):
    """A block that was given to the executor."""

    block: int
    since: float


Submit = Callable[[Executor, int], "Future[BlockReport]"]


class Driver:
    """Runs blocks. ``submit(executor, block)`` starts one; a lost one is tried again ``retries`` times."""

    def __init__(self, crew: Crew, submit: Submit, retries: int, deadline: float | None, token: str) -> None:
        self.crew, self.submit, self.retries, self.deadline = crew, submit, retries, deadline
        self.token, self.tally = token, Tally()
        self._waiting: dict[Future[BlockReport], Underway] = {}
        self._again: deque[int] = deque()

    def run(self, blocks: Iterable[int], show: Callable[[Tally], None]) -> Tally:
        """Run all blocks. Those that were given up are in the tally, with the reason."""
        left = iter(blocks)
        worker.go_on(self.token)
        try:
            while self._fill(left) or self._waiting:
                done, _ = wait(list(self._waiting), timeout=_TICK, return_when=FIRST_COMPLETED)
                for future in done:
                    self._take(future, self._waiting.pop(future).block)
                if not done and self.crew.empty():  # nobody has begun: deadlines begin later
                    now = time.monotonic()
                    self._waiting = {f: at._replace(since=now) for f, at in self._waiting.items()}
                self._late()
                show(self.tally)
        except BaseException:
            worker.stop(self.token)
            for future in self._waiting:
                future.cancel()
            wait(list(self._waiting), timeout=0 if self.crew.client is not None else _GRACE)
            raise
        return self.tally

    def _fill(self, left: Iterator[int]) -> bool:
        """Give blocks to the executor until it has enough. Returns whether it got any."""
        most, got = self.crew.most, False
        while len(self._waiting) < most:
            block = next(left, None)
            if block is None:
                if not self._again:
                    break
                block = self._again.popleft()
            try:
                future = self.submit(self.crew.executor, block)
            except (BrokenExecutor, RuntimeError) as error:
                raise self._gone(error) from error
            self._waiting[future], got = Underway(block, time.monotonic()), True
        return got

    def _take(self, future: Future[BlockReport], block: int) -> None:
        try:
            self.tally.add(future.result())
        except _FATAL:
            raise
        except BrokenExecutor as error:
            raise self._gone(error) from error
        except CancelledError as error:
            if self.crew.lost():
                raise self._gone(error) from error
            self._missed(block, "the executor cancelled it")
        except Exception as error:
            self._missed(block, f"{type(error).__name__}: {error}")

    def _missed(self, block: int, reason: str) -> None:
        """A block has failed as a whole: try it again, or give it up."""
        if self.crew.lost():
            raise self._gone(RuntimeError(reason))
        self.tally.attempts[block] += 1
        if self.tally.attempts[block] <= self.retries:
            self._again.append(block)
            return
        self.tally.given_up[block] = f"given up after {self.retries + 1} attempts: {reason}"
        if not self.tally.blocks and len(self.tally.given_up) >= _HOPELESS:
            raise SweepFailed(f"no block could be computed; the last one was {self.tally.given_up[block]}")

    def _late(self) -> None:
        """Give up waiting for blocks that should have come back long ago."""
        if self.deadline is None:
            return
        limit = time.monotonic() - _PATIENCE * self.deadline - _GRACE
        for future in [f for f, at in self._waiting.items() if at.since < limit]:
            future.cancel()
            block = self._waiting.pop(future).block
            self._missed(block, f"no answer within {_PATIENCE} deadlines of {self.deadline:g} s")

    def _gone(self, error: BaseException) -> SweepFailed:
        return SweepFailed(
            f"the executor is gone ({type(error).__name__}: {error}). {self.tally.blocks} blocks were done "
            "in this call. Start it anew and call the sweep again with the same store: only what is missing "
            "is computed"
        )


class SweepBar(Bar):
    """A bar with the rate, the time that is left, and the failures so far."""

    def __init__(self, shown: bool, runs: int, before: int) -> None:
        super().__init__(shown)
        self.runs, self.before, self._begun = runs, before, time.monotonic()

    def show(self, tally: Tally) -> None:
        seconds = max(time.monotonic() - self._begun, 1e-9)
        done, rate = self.before + tally.runs, tally.runs / seconds
        left = f", {duration((self.runs - done) / rate)} left" if rate else ""
        failures = f", {tally.failures} failed" if tally.failures else ""
        lost = f", {len(tally.given_up)} blocks given up" if tally.given_up else ""
        text = f"{done} of {self.runs} runs, {rate:.0f} a second{left}{failures}{lost}"
        self.update(done / self.runs, text)


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(42), duration(90 * 60)
    ('42 s', '1.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"
