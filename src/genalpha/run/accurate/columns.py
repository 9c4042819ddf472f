"""The columns of an extrapolated run: runs with different numbers of steps on one mesh."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from genalpha.backends.batch.pool import Pool
from genalpha.compiler import machine
from genalpha.engine import row
from genalpha.engine.extrapolation import StepMesh
from genalpha.engine.files import storable
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived
from genalpha.engine.run_data import identity
from genalpha.engine.steps import Given
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED
from genalpha.numerics.host import raise_pending
from genalpha.results.collect import Begun
from genalpha.results.deferred import Deferred
from genalpha.results.progress import Bar
from genalpha.run import beginning, checkpoint, restart
from genalpha.run.beginning import StartPoint
from genalpha.run.checkpoint import Saving
from genalpha.run.request import Request, Restart, Start, Watch
from genalpha.run.single import SingleRun

# The most steps in one call of machine code, which cannot be interrupted.
BLOCK = 20_000
# If the coarsest column takes longer than this many seconds, the others run on all cores. To start and end
# threads takes half a millisecond.
SHORT = 3e-3


@storable
class Column(NamedTuple):
    """The motion of one column at the points of the mesh: t (K,), q (K, size) and v (K, n)."""

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray

    def rows(self, rows: Any) -> Column:
        """Some of the points."""
        return Column(*(x[rows] for x in self))


@storable
class Done(NamedTuple):
    """Columns that were computed, with the steps and the totals of Newton's method of each, by their keys."""

    keys: list[bytes]
    columns: list[Column]
    totals: list[np.ndarray]


class ColumnStore:
    """All columns of a run, kept in its checkpoint. A run that is repeated takes them from there."""

    def __init__(self, saving: Saving) -> None:
        self.saving = saving
        found: Done = saving.file.read() or Done([], [], [])
        self._known = dict(zip(found.keys, zip(found.columns, found.totals, strict=True), strict=True))

    @classmethod
    def of(cls, asked: Request) -> ColumnStore | None:
        """The store of a run, if it has a checkpoint."""
        saving = checkpoint.saving(asked, Done, _sound)
        return None if saving is None else cls(saving)

    def column(self, key: bytes, make: Callable[[], tuple[Column, np.ndarray]]) -> tuple[Column, np.ndarray]:
        """The column with this key; it is made if it is not known."""
        if key not in self._known:
            self._known[key] = make()
            self.write(now=False)
        return self._known[key]

    def write(self, now: bool) -> None:
        """Write the checkpoint if it is time."""
        if self.saving.due(now):
            columns, totals = zip(*self._known.values(), strict=True) if self._known else ((), ())
            self.saving.write(Done([*self._known], [*columns], [*totals]))


def _sound(done: Done) -> bool:
    """Whether the parts of a checkpoint match."""
    return len(done.keys) == len(done.columns) == len(done.totals) and all(
        isinstance(one, Column) and len(one.t) == len(one.q) == len(one.v) for one in done.columns
    )


class Failed(Exception):
    """A column stopped before its end. ``solution()`` runs it again, up to there, and says why."""

    def __init__(self, solution: Deferred) -> None:
        super().__init__("a column failed")
        self.solution = solution


class ColumnRuns:
    """Runs columns, and counts their work."""

    def __init__(self, asked: Request, bar: Bar, store: ColumnStore | None = None) -> None:
        assert asked.accurate is not None
        self.store = store
        self.asked, self.bar, self.setup, self.want = asked, bar, asked.setup, asked.accurate
        self.args = restart.starting_args(asked).now
        self.steps = self.earlier = 0  # of the last attempt, and of those before
        self.totals = np.zeros(len(COUNTED))
        self.begun: Begun | None = None
        self.fallback: str | None = None  # why XLA runs columns of the last attempt
        self._refused: str | None = None  # why it runs all columns
        self._checked: tuple[Any, Any] | None = None
        self._counting = threading.Lock()
        self._proceed: Callable[[], None] = lambda: None

    def all(self, mesh: StepMesh, start: Start) -> list[Column]:
        """All columns on a mesh, from the coarsest to the finest. Raises :class:`Failed`."""
        self.earlier, self.steps, self.fallback = self.earlier + self.steps, 0, self._refused
        coarsest, *rest = self.want.divisions
        began = time.perf_counter()
        found = [self._column(mesh, coarsest, start)]
        run = lambda parts: self._column(mesh, parts, start)
        if len(rest) < 2 or not self._sharable or time.perf_counter() - began < SHORT:
            return found + [run(parts) for parts in rest]
        try:
            with Pool() as pool:
                self._proceed = pool.proceed
                return found + pool.map(run, rest)
        finally:
            self._proceed = lambda: None

    @property
    def _sharable(self) -> bool:
        """Whether columns may run on all cores: by machine code, not in a thread, not stored."""
        native = self.begun is not None and self.begun.backend == "native" and self.fallback is None
        main = threading.current_thread() is threading.main_thread()
        return native and main and self.store is None and machine.cores() > 1

    def count(self, mesh: StepMesh) -> None:
        """Count the steps of columns that were run elsewhere."""
        self.earlier, self.steps = self.earlier + self.steps, mesh.intervals * sum(self.want.divisions)

    def _column(self, mesh: StepMesh, parts: int, start: Start) -> Column:
        """A run whose steps divide every interval of the mesh into so many parts."""
        found: list[Column] = []
        for i in range(len(mesh.counts)):
            times = mesh.segment(i, parts)
            part = self._known(times, parts, start._replace(t=times[0]))
            part.t[[0, -1]] = mesh.ends[i : i + 2]
            found.append(part if not found else part.rows(slice(1, None)))
            start = start._replace(t=part.t[-1], q=part.q[-1], v=part.v[-1], guess=None, mode="assume")
        with self._counting:
            done = self.steps / max(1, mesh.intervals * sum(self.want.divisions))
            self.bar.update(min(done, 1.0), f"{mesh.intervals} intervals, {self.steps} steps")
        return found[0] if len(found) == 1 else Column(*map(np.concatenate, zip(*found, strict=True)))

    def _known(self, times: np.ndarray, parts: int, start: Start) -> Column:
        """The motion at every ``parts``-th of these times, from the checkpoint if it is there."""
        run = functools.partial(self._run, times, parts, start)
        if self.store is None:
            found, totals = run()
        else:
            if self.begun is None:
                self._begin(times, start)
            key = identity(times, parts, start.q, start.v, self.args, self.setup.newton.tol)
            found, totals = self.store.column(key, run)
            found = Column(*(x.copy() for x in found))
        with self._counting:
            self.steps += len(times) - 1
            self.totals += totals
        return found

    def _begin(self, times: np.ndarray, start: Start) -> tuple[Given, Begun]:
        """The steps of a run to these times, and its start."""
        steps = Given.of(times, np.diff(times))
        same = self._checked is not None and self._checked[0] is start.q and self._checked[1] is start.v
        at = StartPoint(start.t, start.q, start.v, start.guess, "known" if same else start.mode)
        native, nothing = self.asked.backend != "xla" and self.fallback is None, lambda state: np.zeros(0)
        begun, refused = beginning.begun(self.setup, at, steps, self.args, nothing, native)
        self.begun, self._refused = begun, self._refused or refused
        self.fallback = self.fallback or refused
        self._checked = (start.q, start.v)  # other columns start there, too
        return steps, begun

    def _run(self, times: np.ndarray, parts: int, start: Start) -> tuple[Column, np.ndarray]:
        """The motion at every ``parts``-th of these times, and the totals of Newton's method."""
        steps, begun = self._begin(times, start)
        runner, layout, totals = begun.runner, row.layout(self.setup), np.zeros(len(COUNTED))
        rows, done = [begun.first[None]], 0
        while not runner.finished:
            self._proceed()
            block = np.empty((min(BLOCK, len(times) - 1 - done), runner.width))
            taken = runner.take(block)
            raise_pending()
            totals += layout.report(block[:taken]).sum(axis=0)
            rows.append(block[(-done - 1) % parts : taken : parts])
            done += taken
        self.fallback = self.fallback or getattr(runner, "fallback", None)
        if runner.status != codes.SUCCESS:
            raise Failed(Deferred(lambda: SingleRun(self._request(steps, start), Bar(False)).solution()))
        found = layout.rows(np.concatenate(rows))
        return Column(times[::parts].copy(), found.q, found.v), totals

    def _request(self, steps: Given, start: Start) -> Request:
        """The request of a single column, to find out why it failed."""
        return self.asked._replace(
            span=(float(steps.times[0]), steps.end),
            start=start,
            steps=steps,
            output=self.asked.output,
            watch=Watch(),
            restart=Restart(),
            accurate=None,
        )

    def derived(self, of: Column) -> Derived:
        """Accelerations, multipliers, residuals and reactions of rows.

        With friction from reactions, Newton's method may fail from zero multipliers. Then it starts from
        those of the nearest other row, or from ones.
        """
        assert self.begun is not None
        derive, dims = self.begun.derive, self.setup.dims
        none = [np.zeros((len(of.t), size)) for size in (dims.m, dims.p)]
        found = derive(StepEnd(of.t, of.q, of.v, *none), self.args)
        good = np.isfinite(found.a).all(axis=1)
        if good.all() or self.setup.system.reaction is None:
            return found
        bad, known = np.flatnonzero(~good), np.flatnonzero(good)
        near = known[np.abs(known - bad[:, None]).argmin(axis=1)] if known.size else bad
        guess = [x[near] if known.size else np.ones((len(bad), x.shape[1])) for x in (found.lam, found.psi)]
        again = derive(StepEnd(of.t[bad], of.q[bad], of.v[bad], *guess), self.args)
        for whole, part in zip(found, again, strict=True):
            whole[bad] = part
        return found
