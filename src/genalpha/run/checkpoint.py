"""Checkpoints: what they hold, and when they are written."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from genalpha.engine import files
from genalpha.engine.describe import described
from genalpha.engine.events import Happened
from genalpha.engine.files import storable
from genalpha.engine.run_data import RunState, column, fingerprint, follow, identity, sound
from genalpha.engine.steps import Given
from genalpha.results.collect import FinishedPart
from genalpha.run.request import Request

_SELDOM = 20  # the pause between two checkpoints is at least this many times the time to write one
_REMEDY = "delete it to start anew, or choose another file for this run"


@storable
class Saved(NamedTuple):
    """The contents of a checkpoint.

    ``state`` is the state of the last part of a run, ``kept`` its rows so far, ``done`` the number of its
    steps. ``parts`` are the parts before it, ``happened`` the events. ``steps`` are the steps of the last
    part if they differ from the wanted ones.
    """

    state: RunState
    parts: list[FinishedPart]
    kept: dict[str, Any]
    done: int
    happened: list[Happened]
    steps: Given | None


class Checkpoint:
    """The file of a run. A write replaces the whole file or leaves it unchanged. It holds data only.

    ``kind`` is the type of its content, and ``sound`` says whether the parts of it match.
    """

    def __init__(
        self, path: str | os.PathLike[str], identity: bytes, kind: type, sound: Callable[[Any], bool]
    ) -> None:
        self.path, self._identity = os.path.expanduser(os.fspath(path)), identity
        self._kind, self._sound = kind, sound
        folder = os.path.dirname(os.path.abspath(self.path))
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            raise ValueError(
                f"the checkpoint {self.path} cannot be written: no folder {folder} that can be written to. "
                "Create it, or choose another file"
            )

    def write(self, content: Any) -> None:
        """Replace the file."""
        files.write(self.path, "checkpoint", (self._identity, content), mode=0o600)

    def read(self) -> Any:
        """What was written last, or None if there is no file yet.

        Raises if the file is not a checkpoint, or is that of another run.
        """
        if not os.path.exists(self.path):
            return None
        found = files.read(self.path, "checkpoint", _REMEDY, same=True)
        identity, content = found if isinstance(found, tuple) and len(found) == 2 else (None, None)
        if not files.passes(content, self._kind, self._sound):
            raise ValueError(f"{self.path} is damaged: it holds no run. {_REMEDY.capitalize()}")
        if identity != self._identity:
            raise ValueError(
                f"{self.path} is the checkpoint of another run (another time span, start, step size, method, "
                f"arguments or output). {_REMEDY.capitalize()}"
            )
        return content


def _sound(saved: Saved) -> bool:
    """Whether the parts of a checkpoint match, which compiled loops rely on."""
    state, kept, steps = saved.state, saved.kept, saved.steps
    if not (isinstance(state, RunState) and sound(state) and state.start and state.fields and state.exact):
        return False
    done = len(kept["table"]) - 1 if "table" in kept else kept["_some"]
    if steps is not None:
        t, h, _ = steps.steps
        if not (column(h) and column(t, len(h)) and follow(steps.times, h)):
            return False
    return type(saved.done) is int and 0 <= saved.done == done


class Saving:
    """Writes a checkpoint every ``interval`` seconds, and spends at most a twentieth of the time on it.

    With an interval of zero it writes at every opportunity.
    """

    def __init__(self, file: Checkpoint, interval: float) -> None:
        self.file, self.interval, self._cost = file, interval, 0.0
        self._written = time.monotonic()

    def due(self, now: bool) -> bool:
        pause = max(self.interval, _SELDOM * self._cost) if self.interval else 0.0
        return now or time.monotonic() - self._written >= pause

    def write(self, content: Any) -> None:
        start = time.monotonic()
        self.file.write(content)
        self._written = time.monotonic()
        self._cost = self._written - start


def saving(asked: Request, kind: type = Saved, sound: Callable[[Any], bool] = _sound) -> Saving | None:
    """The checkpoint of a run, if it has one; ``kind`` is what it holds."""
    path = asked.restart.checkpoint
    if path is None:
        return None
    setup, start, kept, steps = asked.setup, asked.start, asked.output, asked.steps
    options = described((setup.method, setup.newton, kept.names, kept.dense, kept.every))
    of_events = [(e.direction, e.terminal, e.reset is None, e.period) for e in asked.watch.events]
    identifier = identity(
        asked.span,
        (start.q, start.v, start.guess, start.mode),
        (steps, asked.args, asked.backend, options),
        (kept.t_eval, described(of_events), fingerprint(setup, asked.args)),
        () if asked.accurate is None else tuple(asked.accurate),
    )
    return Saving(Checkpoint(path, identifier, kind, sound), asked.restart.every)
