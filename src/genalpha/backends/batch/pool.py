"""Threads on all cores. An exception in the main thread, such as Ctrl-C, stops their work soon."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from genalpha.compiler.machine import cores


class Stopped(Exception):
    """The work is no longer wanted."""


class Pool:
    """Threads that share work. Work that takes long calls ``proceed`` from time to time."""

    def __init__(self) -> None:
        self._threads, self._stop = ThreadPoolExecutor(cores()), threading.Event()

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

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """The function of all items."""
        futures = [self._threads.submit(function, item) for item in items]
        return [future.result() for future in futures]
