"""A run that is written to a file now and then, and goes on from it."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from genalpha.engine.events import Happened
from genalpha.engine.run_data import Checkpoint, RunState, fingerprint, identity
from genalpha.engine.steps import Steps
from genalpha.results.collect import Part
from genalpha.run.request import Request

_SELDOM = 20  # between two checkpoints pass so many times as long as it takes to write one


class Saved(NamedTuple):
    """What a checkpoint holds: the state of the last part of a run, what is kept of it, and all before it.

    ``done`` are its steps, ``steps`` those that it takes, if they are not the ones that were asked for.
    """

    state: RunState
    parts: list[Part]
    kept: dict[str, Any]
    done: int
    happened: list[Happened]
    steps: Steps | None


class Saving:
    """A checkpoint that is written every ``interval`` seconds, and takes a twentieth of the time at most.

    With an interval of zero it is written whenever there is an occasion.
    """

    def __init__(self, file: Checkpoint, interval: float) -> None:
        self.file, self.interval, self._cost = file, interval, 0.0
        self._written = time.monotonic()

    def due(self, now: bool) -> bool:
        pause = max(self.interval, _SELDOM * self._cost) if self.interval else 0.0
        return now or time.monotonic() - self._written >= pause

    def write(self, content: Saved) -> None:
        start = time.monotonic()
        self.file.write(content)
        self._written = time.monotonic()
        self._cost = self._written - start


def saving(asked: Request) -> Saving | None:
    """The checkpoint of a run, if it has one."""
    path = asked.restart.checkpoint
    if path is None:
        return None
    setup, start, kept, steps = asked.setup, asked.start, asked.output, asked.steps
    options = repr((setup.method, setup.newton, kept.names, kept.dense, getattr(steps, "most", None)))
    of_events = repr([(e.direction, e.terminal, e.reset is None) for e in asked.watch.events])
    identifier = identity(
        asked.span,
        (start.q, start.v, start.guess, start.mode),
        (steps, asked.args, asked.backend, options),
        (kept.every, kept.t_eval, of_events, fingerprint(setup, asked.args)),
    )
    return Saving(Checkpoint(path, identifier), asked.restart.every)
