"""The loop around the loops: takes steps in blocks, keeps what was asked for, and lets others watch."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

# Steps that are taken without the interpreter at most: then it may notice that the user wants to stop.
BLOCK = 100_000
# Rows that there is room for at first where their number is not known, or where few of them are kept.
ROOM = 512
# Seconds after which those who watch are told, and steps between two looks at the clock at first.
PATIENCE, GLANCE = 0.05, 1024


class Runner(Protocol):
    """A run that is under way, on one backend.

    ``take`` fills an array (K, width) with the records of the next steps and returns how many there were:
    fewer where the run is finished, by its end or by a failure, which ``status`` tells, or
    where events happened in the last of these steps: ``fired`` (E,) says which.
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
    """What becomes of records: it lends the place for them, and looks at those that were written.

    ``room`` is an array for the next records, at most ``most``; after ``add`` of the number of those that
    were written it may be used again.
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
        """Take rows that another run kept."""
        if len(rows) > len(self._table):
            self._table = np.empty((2 * len(rows), self._table.shape[1]))
        self._table[: len(rows)], self._rows = rows, len(rows)

    @property
    def table(self) -> np.ndarray:
        return self._table[: self._rows]


class Some:
    """Hands blocks of records, each after the one before it, to somebody who keeps what is wanted of them."""

    def __init__(self, first: np.ndarray, use: Callable[[np.ndarray, int], None], done: int = 0) -> None:
        self._block = np.empty((ROOM + 1, len(first)))
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
    """Somebody to be told after every ``every`` steps, or now and then where that is None.

    ``look(row, done)`` gets the last record and the number of steps, and returns whether to stop.
    """

    every: int | None
    look: Callable[[np.ndarray, int], bool]


Occur = Callable[[np.ndarray, np.ndarray, int, np.ndarray], bool]


class Counts(NamedTuple):
    """At most ``limit`` steps, of which ``done`` were taken before, and ``earlier`` ones in other parts.

    Watchers that are told now and then are told after ``patience`` seconds.
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
    """Steps until the run is finished, enough are taken, or a watcher says stop; whether one did.

    ``occur(before, after, done, fired)`` is asked about events between two records. It may change the
    second, and returns whether the run ends there.
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
        over = bool(taken) and bool(events.any())
        if over:
            over = occur(out[taken - 2] if taken > 1 else before, last, done, events)
        before = last.copy()
        keeper.add(taken)
        if over:
            verdicts = [w.look(last, done) for w in watchers if counted(w) == 0]
            return any(verdicts)
        now = time.monotonic()
        late = now - told >= patience or runner.finished
        glance = glance if late else 2 * glance
        told = now if late else told
        due = [w for w in watchers if taken and (counted(w) == 0 if w.every else late)]
        verdicts = [w.look(last, done) for w in due]  # all of them are told
        if any(verdicts):
            return True
    return False
