"""``accuracy`` of ``solve``: runs with several step sizes, their combination, and its error."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends import sampling
from genalpha.backends.native.kernels import shapes
from genalpha.backends.native.step import floating
from genalpha.backends.rowwise import Rowwise
from genalpha.compiler.graph import Unsupported
from genalpha.engine import extrapolation, row
from genalpha.engine.extrapolation import Accurate, Judgement, Mesh, Sizes
from genalpha.engine.interpolate import Smooth, StepEnd
from genalpha.engine.row import Derived
from genalpha.engine.steps import Given
from genalpha.errors import warn_of_fallback
from genalpha.mechanics import initial_values
from genalpha.mechanics.spaces import Euclidean
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED, State
from genalpha.numerics.newton import Newton
from genalpha.results import assemble
from genalpha.results.assemble import Ending, Work
from genalpha.results.collect import Begun
from genalpha.results.deferred import Deferred
from genalpha.results.global_errors import GlobalErrors
from genalpha.results.output import NAMES, Output
from genalpha.results.phases import Phase, Phases
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import beginning, restart
from genalpha.run.beginning import StartPoint
from genalpha.run.request import Request, Restart, Start, Watch
from genalpha.run.single import SingleRun

# The number of intervals in the first attempt for an accuracy of 1e-3; it grows with this power of the
# accuracy. The most attempts.
FIRST, GROWTH, ATTEMPTS = 12.0, 1 / 7, 12
# Newton's tolerance for accuracies below the first of these. Its errors add up over the steps, and weights
# of columns amplify them.
TIGHT, NEWTON = 3e-7, 1e-14
# The most steps in one call of machine code, which cannot be interrupted.
BLOCK = 20_000
# Errors that fall more slowly than this power of the step size, twice in a row, do not have the expansion.
LEAST_ORDER = 2.5


class Column(NamedTuple):
    """The motion of one column at the points of the mesh: t (K,), q (K, size) and v (K, n)."""

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray


class Failed(Exception):
    """A column stopped before its end, with this solution."""

    def __init__(self, solution: Solution) -> None:
        super().__init__(solution.message)
        self.solution = solution


class Attempt(NamedTuple):
    """Columns on one mesh, combined.

    ``motion`` is the combination of all columns, ``other`` that of all but the coarsest, both on the
    constraints. ``difference`` is the difference of both, before they were moved there: (q, v), (K, n) each.
    """

    mesh: Mesh
    motion: Column
    other: Column
    difference: tuple[np.ndarray, np.ndarray]
    judgement: Judgement
    sizes: Sizes


def run(asked: Request) -> Solution:
    """The solution with an estimate of its global error. A failure becomes its status."""
    bar = Bar(asked.watch.progress)
    try:
        return AccurateRun(asked, bar).solution()
    finally:
        bar.close()


class AccurateRun:
    """Attempts with ever finer meshes, until the estimated error is small enough."""

    def __init__(self, asked: Request, bar: Bar) -> None:
        assert asked.accurate is not None
        self.want: Accurate = asked.accurate
        newton = asked.setup.newton
        if self.want.accuracy is not None:
            tol = min(newton.tol, NEWTON if self.want.accuracy.min() < TIGHT else newton.tol)
            newton = Newton(newton.policy, tol, newton.max_iterations)
        setup = asked.setup._replace(newton=newton, crossings=())
        self.asked, self.bar = asked._replace(setup=setup), bar
        self.setup, self.args = setup, restart.starting_args(asked).now
        self.steps = self.earlier = 0  # of the last attempt, and of those before
        self.totals = np.zeros(len(COUNTED))
        self.begun: Begun | None = None
        self.fallback: str | None = None

    def solution(self) -> Solution:
        start, want = self._start(), self.want
        count, failed = want.intervals or self._first_count(), None
        history: list[Attempt] = []
        reason = ""
        for _ in range(ATTEMPTS):
            mesh = Mesh.of(want.ends, count, want.intervals is None)
            if mesh.intervals * sum(want.divisions) > want.most:
                reason = f"more than max_steps = {want.most:g} steps would be needed"
                break
            try:
                history.append(self._attempt(mesh, start))
            except Failed as error:
                if want.intervals is not None:
                    return error.solution
                failed, count = error.solution, 3 * count
                continue
            found = history[-1].judgement
            if want.accuracy is None or found.error <= 1:
                return self._finished(history[-1], codes.SUCCESS)
            reason = _hopeless(history)
            if reason:
                break
            count = math.ceil(count * extrapolation.more(found, len(want.divisions)))
        if not history:
            assert failed is not None
            return failed
        best = min(history, key=lambda attempt: attempt.judgement.error)
        return self._finished(best, codes.INACCURATE, reason or "the error did not become small enough")

    def _first_count(self) -> int:
        assert self.want.accuracy is not None
        return math.ceil(FIRST * max(1.0, 1e-3 / self.want.accuracy.min()) ** GROWTH)

    def _start(self) -> Start:
        """The start, on the constraints if it is to be projected."""
        start = self.asked.start
        if start.mode != "project":
            return start
        q, v = beginning.projected(self.setup, start.t, start.q, start.v, self.args, start.held)
        return start._replace(q=q, v=v, mode="check")

    # --- columns --------------------------------------------------------------------------------

    def _attempt(self, mesh: Mesh, start: Start) -> Attempt:
        self.earlier, self.steps = self.earlier + self.steps, 0
        parts = self.want.divisions
        columns = [self._column(mesh, k, start) for k in parts]
        levels = [extrapolation.weights(parts[i:]) for i in range(min(3, len(parts)))]
        moves, velocities, magnitude = self._tangent(columns)
        combined = [
            (np.tensordot(w, moves[-len(w) :], 1), np.tensordot(w, velocities[-len(w) :], 1)) for w in levels
        ]
        combined += [combined[-1]] * (3 - len(combined))
        less = lambda one, two: (one[0] - two[0], one[1] - two[1])
        differences = [less(combined[0], combined[1]), less(combined[1], combined[2])]
        accuracy = self.want.accuracy
        if accuracy is None:
            accuracy = np.ones((2, self.setup.dims.n))
        sizes = Sizes.of(accuracy, magnitude, columns[-1].v)
        noise = extrapolation.noise(mesh.intervals * parts[-1], self.setup.newton.tol)
        judgement = extrapolation.judged(sizes, accuracy, parts, noise, differences)
        motion, other = (self._placed(columns[-1], *combined[i]) for i in range(2))
        return Attempt(mesh, motion, other, differences[0], judgement, sizes)

    def _column(self, mesh: Mesh, parts: int, start: Start) -> Column:
        """A run whose steps divide every interval of the mesh into so many parts."""
        found: list[Column] = []
        for i in range(len(mesh.counts)):
            times = mesh.segment(i, parts)
            part = self._run(times, parts, start)
            found.append(part if not found else Column(*(x[1:] for x in part)))
            start = start._replace(t=part.t[-1], q=part.q[-1], v=part.v[-1], guess=None, mode="assume")
        done = self.steps / max(1, mesh.intervals * sum(self.want.divisions))
        self.bar.update(min(done, 1.0), f"{mesh.intervals} intervals, {self.steps} steps")
        return found[0] if len(found) == 1 else Column(*map(np.concatenate, zip(*found, strict=True)))

    def _run(self, times: np.ndarray, parts: int, start: Start) -> Column:
        """The motion at every ``parts``-th of these times, of which one is the end of each step."""
        steps = Given.of(times, np.diff(times))
        at = StartPoint(start.t, start.q, start.v, start.guess, start.mode)
        begun = self.begun = self._begin(at, steps)
        runner, layout = begun.runner, row.layout(self.setup)
        rows, done = [begun.first[None]], 0
        while not runner.finished:
            block = np.empty((min(BLOCK, len(times) - 1 - done), runner.width))
            taken = runner.take(block)
            self.totals += layout.report(block[:taken]).sum(axis=0)
            rows.append(block[(-done - 1) % parts : taken : parts])
            done += taken
        self.steps += done
        self.fallback = self.fallback or getattr(runner, "fallback", None)
        if runner.status != codes.SUCCESS:
            raise Failed(SingleRun(self._request(steps, start), Bar(False)).solution())
        found = layout.rows(np.concatenate(rows))
        return Column(times[::parts], found.q, found.v)

    def _begin(self, at: StartPoint, steps: Given) -> Begun:
        nothing = lambda state: np.zeros(0)
        if self.asked.backend != "xla" and self.fallback is None:
            try:
                return beginning.by_machine_code(self.setup, at, steps, self.args, nothing)
            except Unsupported as reason:
                self.fallback = str(reason)
                warn_of_fallback(reason)
        return beginning.by_xla(self.setup, at, steps, self.args, nothing)

    def _request(self, steps: Given, start: Start) -> Request:
        """The request of a single column, to find out why it failed."""
        return self.asked._replace(
            span=(float(steps.times[0]), steps.end),
            start=start,
            steps=steps,
            output=Output(),
            watch=Watch(None, 1, False, ()),
            restart=Restart(None, None, None, 10.0),
            accurate=None,
        )

    # --- combinations ---------------------------------------------------------------------------

    def _tangent(self, columns: list[Column]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions of the columns in the tangent space at the finest one, and velocities: (p, K, n) each.

        The third result are the magnitudes of q (K, n).
        """
        base, space = columns[-1], self.setup.system.space
        velocities = np.stack([column.v for column in columns])
        if isinstance(space, Euclidean):
            return np.stack([column.q - base.q for column in columns]), velocities, np.abs(base.q)
        found = [_compared(space, base.q.shape[1:])((base.q, column.q)) for column in columns]
        return np.stack([move for move, _ in found]), velocities, found[0][1]

    def _placed(self, base: Column, move: np.ndarray, v: np.ndarray) -> Column:
        """The finest column moved in its tangent space and then onto the constraints, with velocities v."""
        system, dims = self.setup.system, self.setup.dims
        doubles, rebuild, fixed = floating(self.args)

        def function(t: Any, q: Any, d: Any, v: Any, x: Any) -> Any:
            return initial_values.nearest(system, dims, t, system.space.retract(q, d), v, rebuild(x))[:2]

        rows = (base.t, base.q, move, v, [np.asarray(x)[None] for x in doubles])
        example = jax.tree.map(lambda x: x[0], rows)
        key = ("nearest", dims, shapes(example), fixed)
        nearest = system._programs.made(key, lambda: Rowwise("nearest", function, example, often=True))
        return Column(base.t, *nearest(rows))

    # --- the solution ---------------------------------------------------------------------------

    def _derived(self, of: Column) -> Derived:
        """Accelerations, multipliers, residuals and reactions of rows."""
        assert self.begun is not None
        dims = self.setup.dims
        none = [np.zeros((len(of.t), size)) for size in (dims.m, dims.p)]
        return self.begun.derive(StepEnd(of.t, of.q, of.v, *none))

    def _finished(self, attempt: Attempt, status: int, reason: str = "") -> Solution:
        motion, keep = attempt.motion, self.asked.output
        rows = slice(None) if keep.t_eval is not None else keep.rows(len(motion.t) - 1)
        derived = Deferred(functools.partial(self._derived, motion))
        wanted = motion
        if keep.t_eval is not None:
            smooth = Smooth(motion.t, motion.q, motion.v, derived().a)
            q, v = sampling.smooth(self.setup.system.space, smooth, keep.t_eval)
            wanted = self._placed(Column(keep.t_eval, q, v), np.zeros_like(v), v)
            derived = Deferred(functools.partial(self._derived, wanted))
        pick = lambda tree: jax.tree.map(lambda x: x[rows], tree)
        known = {"q": wanted.q[rows], "v": wanted.v[rows]} | assemble.derived(derived.then(pick))
        kept = {name: known.get(name) if keep.names is None or name in keep.names else None for name in NAMES}
        error = Deferred(functools.partial(self._errors, attempt, rows if keep.t_eval is None else None))
        work = Work(self.steps, self.earlier, *self.totals.astype(int).tolist())
        assert self.begun is not None
        detail = self._detail(attempt, reason) if status else ""
        ending = Ending(status, float(motion.t[-1]), work, self.begun.backend, self.fallback, detail)
        complete = keep.t_eval is None and keep.every == 1
        nodes = None
        if not complete and keep.dense:
            nodes = StepEnd(motion.t, motion.q, motion.v, derived().lam, derived().psi)
        found = kept | {"error": error}
        sol = assemble.solution(self.setup, found, wanted.t[rows], None, ending, complete, nodes)
        return sol.connected(self._after(motion), self._phases(len(sol.t)))

    def _phases(self, rows: int) -> Phases:
        assert self.begun is not None
        dims, (t0, t1) = self.setup.dims, self.asked.span
        derive = self.begun.derive
        phase = Phase(self.setup.system, self.args, t0, t1, slice(0, rows), derive, (dims.m, dims.p), 0)
        return Phases([phase], ())

    def _after(self, motion: Column) -> Deferred:
        """The state from which another run continues: it starts anew there."""
        setup, args = self.setup, restart.starting_args(self.asked)

        def state() -> Any:
            last = Column(*(x[-1:] for x in motion))
            found = self._derived(last)
            at = (last.t[0], last.q[0], last.v[0], found.a[0], found.lam[0], found.psi[0])
            return restart.state_anew(setup, State(*at), args, ())

        return Deferred(state)

    def _errors(self, attempt: Attempt, rows: Any) -> GlobalErrors:
        """Estimated errors at the rows, or at the points of the mesh that bracket the rows of ``t_eval``."""
        found = attempt.judgement
        one, two = self._derived(attempt.motion), self._derived(attempt.other)
        accuracy = 1.0 if self.want.accuracy is None else self.want.accuracy.min()
        least = found.rounding * accuracy  # relative

        def of(difference: np.ndarray, like: np.ndarray) -> np.ndarray:
            floor = least * np.abs(like).max(axis=0, initial=0.0)
            return found.factor * np.abs(difference) + floor

        q, v = attempt.difference
        parts = [
            found.factor * np.abs(q) + found.rounding * attempt.sizes.q,
            of(v, attempt.motion.v),
            *(of(x - y, x) for x, y in ((one.a, two.a), (one.lam, two.lam), (one.psi, two.psi))),
        ]
        norm = found.rows * (np.nan if self.want.accuracy is None else 1.0)
        if rows is None:
            wanted = self.asked.output.t_eval
            after = np.clip(np.searchsorted(attempt.motion.t, wanted), 1, len(attempt.motion.t) - 1)
            return GlobalErrors(*(np.maximum(x[after - 1], x[after]) for x in (*parts, norm)))
        return GlobalErrors(*(x[rows] for x in (*parts, norm)))

    def _detail(self, attempt: Attempt, reason: str) -> str:
        found = attempt.judgement
        return (
            f"The estimated error is {found.error:.2g} times the accuracy that was asked for, with "
            f"{attempt.mesh.intervals} intervals and {len(self.want.divisions)} columns: {reason}"
        )


@functools.lru_cache(maxsize=64)
def _compared(space: Any, shape: tuple[int, ...]) -> Rowwise:
    """The tangent vectors from points of a space to others, and the magnitudes of the points."""
    example = np.full(shape, 0.5)
    function = lambda a, b: (space.difference(a, b), space.magnitude(a))
    return Rowwise("compared", function, (example, example), often=True)


def _hopeless(history: list[Attempt]) -> str:
    """Why a finer mesh will not help; empty if it may."""
    last = history[-1].judgement
    if last.rounding > 0.5:
        return "rounding errors of the columns are larger than that. Ask for less accuracy"
    if len(history) < 3:
        return ""
    orders = []
    for before, after in zip(history[-3:], history[-2:], strict=False):
        growth = after.mesh.intervals / before.mesh.intervals
        fall = before.judgement.error / max(after.judgement.error, 1e-300)
        orders.append(math.log(max(fall, 1e-300)) / math.log(growth))
    if max(orders) > LEAST_ORDER or last.converging:
        return ""
    return (
        f"with finer steps it falls only like h^{max(orders):.1f}. Forces may have kinks or jumps (pass "
        "their times as breakpoints), stiff components may not be resolved, or neighbouring motions may "
        "separate too fast"
    )
