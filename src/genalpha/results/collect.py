"""Collects the records of a run that are to be kept."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends import loop, sampling
from genalpha.engine import interpolate
from genalpha.engine.files import storable
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived, Layout
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Steps
from genalpha.numerics.data import COUNTED, State
from genalpha.results import assemble
from genalpha.results.deferred import Deferred, value
from genalpha.results.output import NAMES, Output

_KEPT = ("_pieces", "_nodes", "_last", "_some", "_totals")  # the fields of `Pieces` in checkpoints


class Begun(NamedTuple):
    """A run before its first step.

    ``runner`` takes the steps, ``first`` is the first record, ``t_alpha`` the time of its a_α.
    ``derive(ends)`` computes the derived quantities at ends of steps, ``derive(ends, args)`` with other args.
    """

    runner: Any
    first: np.ndarray
    t_alpha: np.ndarray
    derive: Callable[..., Derived]
    backend: str


class RunSoFar(NamedTuple):
    """A run in progress. ``changed`` are the leaves of its args if a reset has changed them."""

    setup: Setup
    begun: Begun
    steps: Steps
    layout: Layout
    changed: list[np.ndarray] | None = None

    def times(self, table: np.ndarray, done: int) -> tuple[np.ndarray, np.ndarray]:
        """Ends and sizes of the steps ``done``, ``done`` + 1, ... with these records; 0 is the start."""
        return self.steps.timing(self.layout, table, done)

    def time(self, record: np.ndarray, done: int) -> float:
        return float(self.times(record[None], done)[0][0])

    def state(self, record: np.ndarray, done: int) -> State:
        """The state at the end of step ``done``. Its ``a`` is the method's own a_{n+α}."""
        rows = self.layout.rows(record)
        parts = (rows.q, rows.v, rows.a_alpha, rows.lam, rows.psi)
        return State(np.float64(self.time(record, done)), *(x.copy() for x in parts))  # type: ignore[arg-type]

    def nodes(self, table: np.ndarray, done: int) -> StepEnd:
        return self.layout.ends(table, self.times(table, done)[0])

    def quantities(self, table: np.ndarray, t: np.ndarray) -> dict[str, Any]:
        """The quantities of a solution for these records and times; some of them are deferred."""
        recorded = assemble.recorded(self.layout.rows(table), self.steps.errors(self.layout, table))
        ends, derive = self.layout.ends(table, t), self.begun.derive
        return recorded | assemble.derived(Deferred(lambda: derive(ends)))


# The quantities of some rows by name, the times of the rows, and the times of their a_α.
OfRows = tuple[dict[str, Any], np.ndarray, np.ndarray]


@storable
class FinishedPart(NamedTuple):
    """A finished part of a run, with the same interface as `Pieces`."""

    rows: OfRows
    ends: StepEnd | None
    done: int
    totals: np.ndarray
    rejected: int
    t_end: float
    changed: list[np.ndarray] | None

    def joined(self) -> OfRows:
        return self.rows

    def nodes(self) -> StepEnd | None:
        return self.ends

    def computed(self) -> FinishedPart:
        """This part with nothing deferred, for a file."""
        found, *times = self.rows
        return self._replace(rows=({name: value(x) for name, x in found.items()}, *times))  # type: ignore[arg-type]


@storable
class Selected(NamedTuple):
    """Records that are kept, or the wanted quantities of them by name; their times and those of their a_α."""

    of_rows: Any
    t: np.ndarray
    t_alpha: np.ndarray


class Pieces:
    """The part of a run that is kept, collected block by block."""

    def __init__(self, course: RunSoFar, keep: Output, expected: int | None, later: bool = False) -> None:
        self.course, self.keep, self._later = course, keep, later
        self._whole = loop.All(course.begun.first, expected) if keep.everything else None
        self.keeper: Any = self._whole or loop.Some(course.begun.first, _weak(self))
        self._pieces: list[Selected] = []
        self._nodes: list[StepEnd] = []
        self._last: Selected | None = None
        self._some, self._totals = 0, np.zeros(len(COUNTED))

    @property
    def last_row(self) -> np.ndarray:
        """The record of the last step, or of the start."""
        return self._whole.table[-1] if self._whole is not None else self.keeper.last

    def dump(self) -> dict[str, Any]:
        """The data from which a checkpoint restores this object."""
        if self._whole is not None:
            return {"table": self._whole.table.copy()}
        return {name: getattr(self, name) for name in _KEPT}

    def fill(self, dumped: dict[str, Any], row: np.ndarray) -> None:
        """Restore what another run had kept up to the record ``row``."""
        if self._whole is not None:
            self._whole.fill(dumped["table"])
            return
        for name in _KEPT:
            setattr(self, name, dumped[name])
        self.keeper = loop.Some(row, _weak(self), self._some)

    @property
    def done(self) -> int:
        return len(self._whole.table) - 1 if self._whole is not None else self._some

    @property
    def t_end(self) -> float:
        return self.course.time(self.last_row, self.done)

    @property
    def changed(self) -> list[np.ndarray] | None:
        return self.course.changed

    @property
    def rejected(self) -> int:
        return self.course.begun.runner.rejected

    @property
    def totals(self) -> np.ndarray:
        """Newton's totals over all steps, rejected ones too."""
        course, counted = self.course, self._totals
        if self._whole is not None:
            counted = course.layout.report(self._whole.table[1:]).sum(axis=0)
        return course.steps.totals(course.begun.runner, counted)

    def _use(self, block: np.ndarray, done: int) -> None:
        """Keep the wanted part of a block of records. Its first record is new only if ``done`` is 0."""
        if done and len(block) == 1:
            return
        t, h = self.course.times(block, done)
        new = slice(0 if done == 0 else 1, None)
        self._some = done + len(block) - 1
        self._totals += self.course.layout.report(block[1:]).sum(axis=0)
        if self.keep.dense:
            self._nodes.append(jax.tree.map(lambda x: x[new].copy(), self.course.nodes(block, done)))
        if self.keep.t_eval is not None:
            self._pieces.append(self._sampled(block, t, h, done))
            return
        wanted = self.keep.wanted(np.arange(done, done + len(block)))
        wanted[0] &= done == 0
        t_alpha = self._alphas(t, h)
        self._pieces.append(self._chosen(block[wanted], t[wanted], t_alpha[wanted]))
        self._last = None if wanted[-1] else self._chosen(block[-1:].copy(), t[-1:], t_alpha[-1:])

    def _sampled(self, block: np.ndarray, t: np.ndarray, h: np.ndarray, done: int) -> Selected:
        """Records at the times of ``t_eval`` in this block.

        The motion is interpolated. The other columns are those of the step, or of the start at the start.
        """
        wanted = self.keep.t_eval
        assert wanted is not None
        first = np.searchsorted(wanted, t[0], side="left" if done == 0 and not self._later else "right")
        times = wanted[first : np.searchsorted(wanted, t[-1], side="right")]
        after = interpolate.steps_of(t, times)
        table, nodes = block[after].copy(), self.course.nodes(block, done)
        if len(times):
            space = self.course.setup.system.space
            self.course.layout.put(table, sampling.sampled(space, nodes, after, times))
        return self._chosen(table, times, self._alphas(t, h)[after])

    def _alphas(self, t: np.ndarray, h: np.ndarray) -> np.ndarray:
        """The times of a_α for steps of size h that end at t."""
        return t + self.course.setup.method.alpha * h

    def _chosen(self, table: np.ndarray, t: np.ndarray, t_alpha: np.ndarray) -> Selected:
        if self.keep.names is None:
            return Selected(table, t, t_alpha)
        found = self.course.quantities(table, t) if len(t) else None
        return Selected(found and self._named(found), t, t_alpha)

    def _named(self, found: dict[str, Any]) -> dict[str, Any]:
        """The wanted quantities, and of these the wanted entries."""
        return {name: self.keep.chosen(name, value(found[name])) for name in self.keep.names or NAMES}

    def over(self) -> FinishedPart:
        counts = (self.done, self.totals, self.rejected)
        return FinishedPart(self.joined(), self.nodes(), *counts, self.t_end, self.changed)

    def nodes(self) -> StepEnd | None:
        """The ends of all steps, if they are kept separately."""
        if not self._nodes:
            return None
        return jax.tree.map(lambda *parts: np.concatenate(parts), *self._nodes)

    def _start(self) -> tuple[np.ndarray, np.ndarray]:
        """The record of the start and its time, one row each."""
        first = self.course.begun.first[None]
        return first, self.course.times(first, 0)[0]

    def end_at(self, number: int, state: State, row: np.ndarray) -> None:
        """End step ``number`` at an event. Its record ``row`` becomes that of the state at the event."""
        course = self.course
        course.layout.put(row, state)
        self.course = course._replace(steps=course.steps.cut(course.layout, number, float(state.t), row))

    def joined(self) -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
        """The quantities of all kept rows, their times and those of their a_α."""
        if self._whole is not None:
            return self._all(self._whole.table)
        pieces = [*self._pieces, *([self._last] if self._last is not None else [])]
        of_rows, t, t_alpha = _joined(pieces)
        if not len(t):
            start = self.course.quantities(*self._start())
            of_rows = jax.tree.map(lambda x: x[:0], self._named(start))
        elif isinstance(of_rows, np.ndarray):
            of_rows = self.course.quantities(of_rows, t)
        if len(t) and t[0] == self._start()[1][0]:
            t_alpha[0] = self.course.begun.t_alpha
        of_rows = dict.fromkeys(NAMES) | (of_rows or {})
        history = of_rows["newton"]
        if history is not None and self.keep.t_eval is None and self.keep.every:
            of_rows["newton"] = _deferred(assemble.without_start, history)
        return of_rows, t, t_alpha

    def _all(self, table: np.ndarray) -> OfRows:
        """The same for a run of which every record is kept."""
        t, h = self.course.times(table, 0)
        t_alpha = self._alphas(t, h)
        t_alpha[0] = self.course.begun.t_alpha
        of_rows = self.course.quantities(table, t)
        of_rows["newton"] = of_rows["newton"].then(assemble.without_start)
        return of_rows, t, t_alpha


def _weak(pieces: Pieces) -> Callable[[np.ndarray, int], None]:
    """The function that keeps blocks. It does not keep the pieces, and the memory of their run, alive."""
    known = weakref.ref(pieces)

    def use(block: np.ndarray, done: int) -> None:
        found = known()
        assert found is not None
        found._use(block, done)

    return use


def _deferred(function: Callable[..., Any], *parts: Any) -> Any:
    """``function`` of these values, deferred if one of them is deferred."""
    if any(isinstance(part, Deferred) for part in parts):
        return Deferred(lambda: function(*map(value, parts)))
    return function(*parts)


def _joined(pieces: list[Selected]) -> Selected:
    pieces = [p for p in pieces if len(p.t)]
    if not pieces:
        return Selected(None, np.zeros(0), np.zeros(0))
    return jax.tree.map(lambda *parts: np.concatenate(parts), *pieces)


def single(node: StepEnd) -> StepEnd:
    """The first of some rows."""
    return StepEnd(*(x[0] for x in node))


def joined(parts: list[OfRows]) -> OfRows:
    """The rows of all parts of a run between events, one after the other."""
    if len(parts) == 1:
        return parts[0]
    together = lambda *each: jax.tree.map(lambda *arrays: np.concatenate(arrays), *each)
    found, t, t_alpha = zip(*parts, strict=True)
    of_rows = {name: _deferred(together, *(each[name] for each in found)) for name in found[0]}
    return of_rows, np.concatenate(t), np.concatenate(t_alpha)


def joined_nodes(parts: list[StepEnd | None]) -> StepEnd | None:
    if parts[0] is None:
        return None
    return jax.tree.map(lambda *each: np.concatenate(each), *parts)
