"""The outer loop of a run: takes steps in blocks, keeps records, and calls watchers."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from genalpha.numerics.host import raise_pending

# The most steps in one call of compiled code. Between calls Python can react to an interrupt.
BLOCK = 100_000
# The initial number of rows if the number of steps is not known, and the size of a block if few are kept.
ROOM = 512
# The most numbers in such a block.
MOST = 2**24
# Seconds between two calls of a watcher without a step count, and steps before the clock is first read.
PATIENCE, GLANCE = 0.05, 1024


class Runner(Protocol):
    """A run in progress on one backend.

    ``take`` fills an array (K, width) with the records of the next steps and returns their number. It is less
    than K if the run is finished or if events happened in the last of these steps. The run is finished at its
    end or after a failure; ``status`` says which. ``fired`` (E,) says which events happened.
    """

    width: int

    @property
    def finished(self) -> bool: ...

    @property
    def status(self) -> int: ...

    @property
    def fired(self) -> np.ndarray: ...

    def take(self, out: np.ndarray) -> int: ...


class Keeper(Protocol):
    """Provides the memory for records, and keeps those that are wanted.

    ``room`` returns an array for at most ``most`` further records. ``add`` is called with the number of
    records that were written to it. After that the array may be used again.
    """

    def room(self, most: int) -> np.ndarray: ...

    def add(self, count: int) -> None: ...


class All:
    """Keeps every record, with the start first."""

    def __init__(self, first: np.ndarray, expected: int | None) -> None:
        self._table = np.empty(((expected or ROOM) + 1, len(first)))
        self._table[0], self._rows = first, 1

    def room(self, most: int) -> np.ndarray:
        if self._rows == len(self._table):
            self._table = np.concatenate([self._table, np.empty_like(self._table)])
        return self._table[self._rows : self._rows + most]

    def add(self, count: int) -> None:
        self._rows += count

    def fill(self, rows: np.ndarray) -> None:
        """Restore rows that another run had kept."""
        if len(rows) > len(self._table):
            self._table = np.empty((2 * len(rows), self._table.shape[1]))
        self._table[: len(rows)], self._rows = rows, len(rows)

    @property
    def table(self) -> np.ndarray:
        return self._table[: self._rows]


class Some:
    """Passes blocks of records to the function ``use``, each with the last record before it in front."""

    def __init__(self, first: np.ndarray, use: Callable[[np.ndarray, int], None], done: int = 0) -> None:
        self._block = np.empty((1 + max(1, min(ROOM, MOST // len(first))), len(first)))
        self._block[0], self._use, self._done = first, use, done

    @property
    def last(self) -> np.ndarray:
        return self._block[0]

    def room(self, most: int) -> np.ndarray:
        return self._block[1 : 1 + most]

    def add(self, count: int) -> None:
        self._use(self._block[: count + 1], self._done)
        self._block[0] = self._block[count]
        self._done += count


class Watcher(NamedTuple):
    """A function that is called after every ``every`` steps, or from time to time if that is None.

    ``look(row, done)`` gets the last record and the number of steps. It returns whether to stop the run.
    """

    every: int | None
    look: Callable[[np.ndarray, int], bool]


Occur = Callable[[np.ndarray, np.ndarray, int, np.ndarray], bool]


class Counts(NamedTuple):
    """Step counts: at most ``limit`` steps, ``done`` of which are taken, after ``earlier`` in other parts.

    Watchers without a step count are called every ``patience`` seconds.
    """

    limit: int
    done: int = 0
    earlier: int = 0
    patience: float = PATIENCE


def run(
    runner: Runner,
    keeper: Keeper,
    first: np.ndarray,
    watchers: list[Watcher],
    occur: Occur,
    counts: Counts,
) -> bool:
    """Take steps until the run is finished, the limit is reached, or a watcher stops it.

    ``occur(before, after, done, fired)`` handles events between two records. It may change the second
    record, and returns whether this part of the run ends there. Returns whether a watcher stopped the run.
    """
    limit, done, earlier, patience = counts
    counted = lambda w: w.every and (earlier + done) % w.every
    glance, told, before = GLANCE, time.monotonic(), first
    while not runner.finished and done < limit:
        most = min(BLOCK, limit - done, *(w.every - counted(w) for w in watchers if w.every))
        if any(w.every is None for w in watchers):
            most = min(most, glance)
        out = keeper.room(most)
        taken = runner.take(out)
        last = out[taken - 1] if taken else before
        done += taken
        events = runner.fired
        over = bool(taken and events.size and events.any())
        if over:
            over = occur(out[taken - 2] if taken > 1 else before, last, done, events)
        before = last.copy()
        keeper.add(taken)
        raise_pending()
        if over:
            verdicts = [w.look(last, done) for w in watchers if counted(w) == 0]
            return any(verdicts)
        now = time.monotonic()
        late = now - told >= patience or runner.finished
        glance = glance if late else 2 * glance
        told = now if late else told
        due = [w for w in watchers if taken and (counted(w) == 0 if w.every else late)]
        verdicts = [w.look(last, done) for w in due]  # call all of them, even if the first stops the run
        if any(verdicts):
            return True
    return False
