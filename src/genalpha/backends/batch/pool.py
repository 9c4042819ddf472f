"""Threads on all cores. An exception in the main thread, such as Ctrl-C, stops their work soon."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from genalpha.compiler.machine import THREADS, cores

_wanted: ContextVar[Callable[[], None] | None] = ContextVar("wanted", default=None)


@contextlib.contextmanager
def limited(threads: int | None, wanted: Callable[[], None] | None = None) -> Iterator[None]:
    """Work that is started in this block uses so many threads, or all cores if it is None.

    ``wanted`` is called from time to time, and raises if the work is no longer wanted.
    """
    before = THREADS.set(threads), _wanted.set(wanted)
    try:
        yield
    finally:
        THREADS.reset(before[0])
        _wanted.reset(before[1])


class Stopped(Exception):
    """The work is no longer wanted."""


class Pool:
    """Threads that share work. Work that takes long calls ``proceed`` from time to time."""

    def __init__(self) -> None:
        self._threads, self._stop = ThreadPoolExecutor(cores()), threading.Event()
        self._wanted = _wanted.get()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def proceed(self) -> None:
        """Raise in a thread whose work is no longer wanted."""
        if self._stop.is_set():
            raise Stopped
        if self._wanted is not None:
            self._wanted()

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """The function of all items."""
        futures = [self._threads.submit(function, item) for item in items]
        return [future.result() for future in futures]
