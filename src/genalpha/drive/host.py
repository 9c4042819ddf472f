"""The loop around the loops: takes steps in blocks, keeps what was asked for, and lets others watch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

# Steps that are taken without the interpreter at most: then it may notice that the user wants to stop.
BLOCK = 100_000
# Rows that there is room for at first where their number is not known, and in a block of which few are kept.
ROOM = 4096


class Runner(Protocol):
    """A run that is under way, on one backend.

    ``take`` fills an array (K, width) with the records of the next steps and returns how many there were: fewer
    where the run is finished, by its end or by a failure, which ``status`` tells.
    """

    width: int

    @property
    def finished(self) -> bool: ...

    @property
    def status(self) -> int: ...

    def take(self, out: np.ndarray) -> int: ...


class Keeper(Protocol):
    """What becomes of records: it gets every block of them, with the numbers of its steps and their ends."""

    def add(self, rows: np.ndarray, steps: np.ndarray, t: np.ndarray) -> None: ...


class Log(NamedTuple):
    """Kept records (K, width) with the start first, and the numbers of the steps (K,) that they belong to."""

    table: np.ndarray
    step: np.ndarray


Watch = Callable[[int, float, np.ndarray], bool]


def run(runner: Runner, first: np.ndarray, expected: int | None, limit: int) -> Log:
    """All steps, at most ``limit`` of them, all kept."""
    table = np.empty(((expected or min(limit, ROOM)) + 1, runner.width))
    table[0] = first
    done = 0
    while not runner.finished and done < limit:
        if done + 1 == len(table):
            table = np.concatenate([table, np.empty_like(table)])
        stop = min(done + BLOCK, limit, len(table) - 1)
        done += runner.take(table[done + 1 : stop + 1])
    return Log(table[: done + 1], np.arange(done + 1))
