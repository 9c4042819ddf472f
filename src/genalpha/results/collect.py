"""The records of a run: which of them are kept, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends import loop
from genalpha.backends.native.kernels import Aim
from genalpha.backends.xla import controlled as adaptive
from genalpha.backends.xla import given as xla
from genalpha.engine import interpolate
from genalpha.engine import steps as control
from genalpha.engine.files import storable
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.step import Setup
from genalpha.numerics.data import Schedule, State
from genalpha.results import assemble
from genalpha.results.output import NAMES, Output

_KEPT = ("_pieces", "_nodes", "_last", "_some", "_totals")  # of `Pieces`, in checkpoints


class Begun(NamedTuple):
    """A run before its first step: how to go on, its first row, and what follows from rows."""

    runner: Any
    first: np.ndarray
    t_alpha: np.ndarray
    derive: Callable[[xla.Rows, np.ndarray], xla.Derived]
    backend: str


class RunSoFar(NamedTuple):
    """A run on its way, and when its steps end."""

    setup: Setup
    begun: Begun
    steps: Schedule | Aim

    def times(self, table: np.ndarray, done: int) -> tuple[np.ndarray, np.ndarray]:
        """Ends and sizes of the steps ``done``, ``done`` + 1, ... with these records; 0 is the start."""
        if isinstance(self.steps, Aim):
            return adaptive.timing(self.setup, table)[:2]
        times, sizes = np.asarray(self.steps.times), self.steps.steps.h
        last = done + len(table)
        h = np.append(0.0, sizes[: last - 1]) if done == 0 else sizes[done - 1 : last - 1]
        return times[done:last], h

    def time(self, row: np.ndarray, done: int) -> float:
        return float(self.times(row[None], done)[0][0])

    def state(self, row: np.ndarray, done: int) -> State:
        """The state at the end of step ``done``; its a is the method's own."""
        rows = xla.columns(self.setup, row[None], None)
        parts = (rows.q, rows.v, rows.a_alpha, rows.lam, rows.psi)
        return State(np.float64(self.time(row, done)), *(x[0].copy() for x in parts))  # type: ignore[arg-type]

    def nodes(self, table: np.ndarray, done: int) -> StepEnd:
        rows = xla.columns(self.setup, table, None)
        return StepEnd(self.times(table, done)[0], rows.q, rows.v, rows.lam, rows.psi)

    @property
    def next_size(self) -> float:
        """The size of the step that would be next."""
        runner = self.begun.runner
        if isinstance(self.steps, Aim):
            return float(runner.pace.h)
        return float(runner.steps.h[min(runner.done, len(runner.steps.h) - 1)])

    def quantities(self, table: np.ndarray, t: np.ndarray) -> dict[str, Any]:
        """What a solution tells about records and their times."""
        rows = xla.columns(self.setup, table, None)
        errors = adaptive.timing(self.setup, table)[2] if isinstance(self.steps, Aim) else None
        counts = xla.report(self.setup, table)
        return assemble.quantities(rows._replace(report=counts), self.begun.derive(rows, t), errors)


@storable
class Part(NamedTuple):
    """A part of a run that is over: what `Pieces` tells of it."""

    rows: tuple[dict[str, Any], np.ndarray, np.ndarray]
    ends: StepEnd | None
    done: int
    totals: np.ndarray
    rejected: int

    def joined(self) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
        return self.rows

    def nodes(self) -> StepEnd | None:
        return self.ends


@storable
class Selected(NamedTuple):
    """Records that are kept, their times and those of their a_α; or what is wanted of them, by name."""

    of_rows: Any
    t: np.ndarray
    t_alpha: np.ndarray


class Pieces:
    """What is kept of a run, block by block."""

    def __init__(self, course: RunSoFar, keep: Output, expected: int | None, later: bool = False) -> None:
        self.course, self.keep, self._later = course, keep, later
        self._whole = loop.All(course.begun.first, expected) if keep.everything else None
        self.keeper: Any = self._whole or loop.Some(course.begun.first, self._use)
        self._pieces: list[Selected] = []
        self._nodes: list[StepEnd] = []
        self._last: Selected | None = None
        self._some, self._totals = 0, np.zeros(3)

    @property
    def last_row(self) -> np.ndarray:
        """The record of the last step, or of the start."""
        return self._whole.table[-1] if self._whole is not None else self.keeper.last

    def dump(self) -> dict[str, Any]:
        """What a checkpoint needs to make this again."""
        if self._whole is not None:
            return {"table": self._whole.table.copy()}
        return {name: getattr(self, name) for name in _KEPT}

    def fill(self, dumped: dict[str, Any], row: np.ndarray) -> None:
        """Go on with what another run kept up to the record ``row``."""
        if self._whole is not None:
            self._whole.fill(dumped["table"])
            return
        for name in _KEPT:
            setattr(self, name, dumped[name])
        self.keeper = loop.Some(row, self._use, self._some)

    @property
    def done(self) -> int:
        return len(self._whole.table) - 1 if self._whole is not None else self._some

    @property
    def rejected(self) -> int:
        return self.course.begun.runner.rejected if isinstance(self.course.steps, Aim) else 0

    @property
    def totals(self) -> np.ndarray:
        """Newton's totals over all steps, those that were rejected too."""
        if isinstance(self.course.steps, Aim):
            return np.array(self.course.begun.runner.totals)
        if self._whole is not None:
            return xla.report(self.course.setup, self._whole.table[1:]).sum(axis=0)
        return self._totals

    def _use(self, block: np.ndarray, done: int) -> None:
        """Keep what is wanted of a block of records, of which the first is known already unless it is 0."""
        if done and len(block) == 1:
            return
        t, h = self.course.times(block, done)
        new = slice(0 if done == 0 else 1, None)
        self._some = done + len(block) - 1
        self._totals += xla.report(self.course.setup, block[1:]).sum(axis=0)
        if self.keep.dense:
            self._nodes.append(jax.tree.map(lambda x: x[new].copy(), self.course.nodes(block, done)))
        if self.keep.t_eval is not None:
            self._pieces.append(self._sampled(block, t, h, done))
            return
        numbers = np.arange(done, done + len(block))
        wanted = np.zeros(len(block), bool) if self.keep.every == 0 else numbers % self.keep.every == 0
        wanted[0] &= done == 0
        t_alpha = self._alphas(t, h)
        self._pieces.append(self._chosen(block[wanted], t[wanted], t_alpha[wanted]))
        self._last = None if wanted[-1] else self._chosen(block[-1:].copy(), t[-1:], t_alpha[-1:])

    def _sampled(self, block: np.ndarray, t: np.ndarray, h: np.ndarray, done: int) -> Selected:
        """Records at the times that were asked for: the motion is interpolated, the rest is the step's.

        At the start it is the start's.
        """
        wanted = self.keep.t_eval
        assert wanted is not None
        first = np.searchsorted(wanted, t[0], side="left" if done == 0 and not self._later else "right")
        times = wanted[first : np.searchsorted(wanted, t[-1], side="right")]
        after = interpolate.steps_of(t, times)
        table, nodes = block[after].copy(), self.course.nodes(block, done)
        if len(times):
            pick = lambda index: StepEnd(*(x[index] for x in nodes))
            before = pick(np.maximum(after - 1, 0))
            setup = self.course.setup
            xla.put(setup, table, interpolate.ends(setup.system.space, before, pick(after), times))
        return self._chosen(table, times, self._alphas(t, h)[after])

    def _alphas(self, t: np.ndarray, h: np.ndarray) -> np.ndarray:
        """The times of a_α of steps that end at t and have the size h."""
        return t + self.course.setup.method.alpha * h

    def _chosen(self, table: np.ndarray, t: np.ndarray, t_alpha: np.ndarray) -> Selected:
        if self.keep.names is None:
            return Selected(table, t, t_alpha)
        found = self.course.quantities(table, t) if len(t) else None
        return Selected(found and {k: found[k] for k in self.keep.names}, t, t_alpha)

    def over(self) -> Part:
        return Part(self.joined(), self.nodes(), self.done, self.totals, self.rejected)

    def nodes(self) -> StepEnd | None:
        """The ends of all steps, where they are kept apart."""
        if not self._nodes:
            return None
        return jax.tree.map(lambda *parts: np.concatenate(parts), *self._nodes)

    def _start(self) -> tuple[np.ndarray, np.ndarray]:
        """The record of the start and its time, one row each."""
        first = self.course.begun.first[None]
        return first, self.course.times(first, 0)[0]

    def end_at(self, number: int, state: State, row: np.ndarray) -> None:
        """Let step ``number`` end where an event ended it, and its record tell the state there."""
        setup, steps = self.course.setup, self.course.steps
        xla.put(setup, row[None], state)
        if isinstance(steps, Aim):
            at = xla.width(setup)
            row[at + 1] -= row[at] - float(state.t)
            row[at] = state.t
        else:
            self.course = self.course._replace(steps=control.cut(steps, number, float(state.t)))

    def joined(self) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
        """What the solution tells about all kept rows, their times and those of their a_α."""
        if self._whole is not None:
            table = self._whole.table
            t, h = self.course.times(table, 0)
            selected = self._chosen(table, t, self._alphas(t, h))
        else:
            pieces = [*self._pieces, *([self._last] if self._last is not None else [])]
            selected = _joined(pieces)
        of_rows, t, t_alpha = selected
        if not len(t):
            start = self.course.quantities(*self._start())
            of_rows = {k: jax.tree.map(lambda x: x[:0], start[k]) for k in self.keep.names or NAMES}
        elif isinstance(of_rows, np.ndarray):
            of_rows = self.course.quantities(of_rows, t)
        if len(t) and t[0] == self._start()[1][0]:
            t_alpha[0] = self.course.begun.t_alpha
        of_rows = dict.fromkeys(NAMES) | (of_rows or {})
        if self._whole is not None or (self.keep.t_eval is None and self.keep.every and of_rows["newton"]):
            of_rows["newton"] = jax.tree.map(lambda x: x[1:], of_rows["newton"])
        return of_rows, t, t_alpha


def _joined(pieces: list[Selected]) -> Selected:
    pieces = [p for p in pieces if len(p.t)]
    if not pieces:
        return Selected(None, np.zeros(0), np.zeros(0))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def single(node: StepEnd) -> StepEnd:
    """The only row of nodes."""
    return StepEnd(*(x[0] for x in node))


def joined(parts: list[tuple[dict[str, Any], np.ndarray, np.ndarray]]) -> tuple[dict[str, Any], Any, Any]:
    """What the parts of a run between events tell, one after the other."""
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *each: np.concatenate(each), *parts)


def joined_nodes(parts: list[StepEnd | None]) -> StepEnd | None:
    if parts[0] is None:
        return None
    return jax.tree.map(lambda *each: np.concatenate(each), *parts)
