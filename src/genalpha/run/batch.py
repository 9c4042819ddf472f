"""The run of a batch: by machine code, by XLA, and single members that must run alone."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.batch import lanes
from genalpha.backends.batch.plan import BatchPlan, Members, Results, begun_status
from genalpha.backends.batch.pool import Pool
from genalpha.backends.cache import program
from genalpha.backends.native import kernels as native
from genalpha.backends.native.kernels import Kernels, StartValues
from genalpha.backends.native.lean_step import lean
from genalpha.backends.native.step import floating
from genalpha.backends.sparse import front as sparse
from genalpha.compiler.graph import CallsHost, Unsupported
from genalpha.engine.events import Event
from genalpha.engine.extrapolation import Accurate
from genalpha.engine.setup import Setup
from genalpha.engine.start import RunStart, project, start_run
from genalpha.engine.steps import MOST_TRACED, Controlled
from genalpha.errors import (
    InconsistentInitialValues,
    IntegrationError,
    RedundantConstraints,
    SingularSystem,
    warn_of_fallback,
)
from genalpha.mechanics.initial_values import Held
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.host import from_host
from genalpha.results import members as gathered
from genalpha.results.members import Alone, BatchSolution, NotStarted
from genalpha.results.output import Output
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import single, traced
from genalpha.run.batch_axes import member
from genalpha.run.event_handling import Handler
from genalpha.run.request import Backend, BatchBackend, Initial, Request, Restart, Start, Watch

# How many members are tried as an example from which kernels are made: before and after all members have been
# started by XLA.
_EXAMPLES = 2, 6
_MEMORY = 2**28  # bytes of rows that XLA computes at a time


class Progress(Bar):
    """A bar that shows how many members are done."""

    def __init__(self, count: int, shown: bool) -> None:
        super().__init__(shown)
        self.count, self.done = count, 0

    def add(self, members: int) -> None:
        self.done += members
        self.update(self.done / self.count, f"{self.done} of {self.count} systems")
        if self.done == self.count:
            self.close()


class Batch(NamedTuple):
    """A batch with checked arguments: q (B, size), v (B, n), and which leaves of ``args`` vary.

    ``plan`` is for machine code, ``output`` is the same for single runs and for XLA.
    """

    setup: Setup
    span: tuple[float, float]
    plan: BatchPlan
    output: Output
    q: np.ndarray
    v: np.ndarray
    args: Args
    varying: Any  # a tree like args, of booleans
    mode: Initial
    events: tuple[Event, ...] = ()

    def placed(self) -> tuple[Batch, np.ndarray]:
        """The batch with normalised q, and q and v projected if wanted; and the status of each member."""
        space, q, v = self.setup.system.space, self.q, self.v
        status = np.zeros(len(q), dtype=int)
        if space.rotations:
            of = lambda setup, q: (space.defect(q), space.normalize(q))
            defects, q = map(np.asarray, self._mapped("rotations", of, (0,))(q))
            wrong = ~(defects <= codes.UNIT_TOLERANCE)
            which = codes.NOT_A_ROTATION + 16 * wrong.argmax(axis=1)
            status = np.where(wrong.any(axis=1), which, status)
        if self.mode == "project" and sparse.large(self.setup):
            one = lambda i: sparse.projector(self.setup, member(self.args, self.varying, i))
            placed = [one(i).placed(self.span[0], q[i], v[i]) for i in range(len(q))]
            q, v = np.stack([x.q for x in placed]), np.stack([x.v for x in placed])
            status = np.where(status, status, [x.status for x in placed])
        elif self.mode == "project":
            mapped = self._mapped("project", project, (None, 0, 0, self._in_axes))
            q, v, found = map(np.asarray, mapped(self.span[0], q, v, self.args))
            status = np.where(status, status, found)
        return self._replace(q=q, v=v), status

    @property
    def mode_of_members(self) -> Initial:
        """The argument ``initial`` for members that have been placed: they need no second projection."""
        return "assume" if self.mode == "project" else self.mode

    @property
    def _in_axes(self) -> Any:
        return jax.tree.map(lambda varies: 0 if varies else None, self.varying)

    def _mapped(self, key: Any, function: Callable[..., Any], axes: Any) -> Callable[..., Any]:
        """``function(setup, ...)`` of all members, compiled by XLA once."""
        run = lambda setup, *inputs: jax.vmap(lambda *one: function(setup, *one), axes)(*inputs)
        flags = tuple(jax.tree.leaves(self.varying))
        return program(self.setup, ("batch", key, flags, jax.tree.structure(self.varying)), run)

    def run(self, backend: BatchBackend, bar: Progress) -> Solution:
        """The solution. Members that fail have a status."""
        batch, refused = self.placed()
        if backend in ("auto", "native") and sparse.wanted(self.setup, self.plan.steps, batch=True):
            return batch.each_alone(refused, "auto", bar)
        if backend == "xla" and self.events:
            return batch.each_alone(refused, "xla", bar)
        if backend == "xla":
            return batch.by_xla(refused, None, bar)
        try:
            suited = self.setup._replace(method=self.plan.steps.suited(self.setup.method))
            return batch._replace(setup=suited).compiled(refused, backend, bar)
        except Unsupported as reason:
            if backend == "cuda":
                raise ValueError(
                    f'backend="cuda" cannot run this system: {reason}. Use backend="auto"'
                ) from reason
            if self.events or isinstance(reason, CallsHost):
                return batch.each_alone(refused, "auto", bar)
            warn_of_fallback(reason)
            return batch.by_xla(refused, str(reason), bar)

    # --- machine code ---------------------------------------------------------------------------

    def compiled(self, refused: np.ndarray, backend: BatchBackend, bar: Progress) -> Solution:
        """The solution by machine code, on the CPU or on a GPU."""
        leaves = [
            np.asarray(x) if varies else np.asarray(x)[None]
            for x, varies in zip(jax.tree.leaves(self.args), jax.tree.leaves(self.varying), strict=True)
            if np.asarray(x).dtype.kind == "f" or _no_integer(x, varies)
        ]
        members = Members(self.q, self.v, [np.asarray(x, dtype=float) for x in leaves])
        if backend == "cuda":
            kernels, results = self._on_gpu(refused, members, bar.add)
        else:
            kernels = self._kernels(refused, members)
            results = lanes.run(kernels, members, self.plan, self._begun, bar.add, self._known())
        found = BatchSolution(self.setup, kernels, self.plan, results, members.doubles)
        found.apart = not_started(refused)
        found.apart += self._some_alone(np.flatnonzero(~results.trusted & (refused == 0)))
        sol = found.solution("cuda" if backend == "cuda" else "native", self.output, len(self.events))
        if not sol.success.any() and not sol.stats.steps.any():
            self.explain(refused)
        return sol

    def _on_gpu(
        self, refused: np.ndarray, members: Members, done: Callable[[int], None]
    ) -> tuple[Kernels, Results]:
        """The results on a GPU, and the kernels that began.

        They have one matrix for all stages of the method, where it has such a form. Members for which this
        matrix is not good enough run once more with the whole matrix.
        """
        from genalpha.backends.batch import cuda

        def run(batch: Batch, those: Members, shared: bool, done: Callable[[int], None]) -> Any:
            kernels = batch._kernels(refused, members, shared)
            return kernels, cuda.run(kernels, those, self.plan, batch._begun, done)

        form = None if isinstance(self.plan.steps, Controlled) else lean(self.setup)
        if form is not None:
            with contextlib.suppress(Unsupported):  # the small matrix may be singular
                kernels, results = run(self._replace(setup=form), members, True, done)
                status, trusted = results.summary.status, results.trusted
                doubtful = (refused == codes.SUCCESS) & (status != codes.INCONSISTENT)
                again = np.flatnonzero(doubtful & ((status != codes.SUCCESS) | ~trusted))
                done = lambda count: None
                if again.size < len(members):
                    if again.size:
                        rest = run(self, members[again], False, done)[1]
                        results = results.replaced(again, rest)
                    return kernels, results
                del results  # its memory
        return run(self, members, False, done)

    def _kernels(self, refused: np.ndarray, members: Members, shared: bool = False) -> Kernels:
        """Kernels, made from a member that can be started: one of the first, or one that XLA can start.

        With ``shared``, the stages of the method share one matrix.
        """
        tried = np.flatnonzero(refused == codes.SUCCESS)[: _EXAMPLES[0]]

        def kernels(those: np.ndarray) -> Kernels | None:
            for i in those.tolist():
                first = self.plan.steps.first
                at = StartValues(self.span[0], self.q[i], self.v[i], first, None, self.mode)
                with contextlib.suppress(ValueError, native.AtFirst):
                    args, sampled = member(self.args, self.varying, i), self.plan.t_eval is not None
                    doubles, _, fixed = floating(args)
                    return native.kernels(self.setup, at, args, doubles, fixed, sampled, shared)
            return None

        found = kernels(tried)
        if found is None:
            start = self._begun(members)
            status = begun_status(self.plan, start.status, start.consistent)
            good = np.flatnonzero((status == codes.SUCCESS) & (refused == codes.SUCCESS))
            if not len(good):
                self.explain(refused)
                raise Unsupported("no member of the batch can be started")
            rest = np.setdiff1d(good, tried)
            found = kernels(rest[:: max(1, len(rest) // _EXAMPLES[1])][: _EXAMPLES[1]])
        if found is None:
            raise Unsupported("no member of the batch that was tried can be started by native code")
        return found

    def _begun(self, members: Members) -> RunStart:
        """The start of members by XLA."""
        _, rebuild, fixed = floating(member(self.args, self.varying, 0))
        begin = lambda setup, t, q, v, h, doubles: start_run(setup, t, q, v, h, rebuild(doubles))
        mapped = self._mapped(("start", fixed), begin, (None, 0, 0, None, 0))
        doubles = [np.broadcast_to(x, (len(members), *x.shape[1:])) for x in members.doubles]
        found = mapped(self.span[0], members.q, members.v, self.plan.steps.first, doubles)
        return jax.tree.map(np.asarray, found)

    # --- single members -------------------------------------------------------------------------

    def _known(self) -> lanes.Known | None:
        """The values of events at the start, if there are events."""
        if not self.events:
            return None
        t0, t1 = self.span
        handler = Handler(self.setup, self.events, t0, t1 - t0, member(self.args, self.varying, 0))
        return lambda states, members: handler.known_of(states, members.doubles)

    def request(self, i: int, backend: Backend = "auto", accurate: Accurate | None = None) -> Request:
        """Member ``i`` as a run of its own."""
        return Request(
            self.setup,
            member(self.args, self.varying, i),
            self.span,
            Start(self.span[0], self.q[i], self.v[i], None, self.mode_of_members, False),
            self.plan.steps,
            self.output,
            Watch(events=self.events),
            Restart(),
            backend,
            accurate=accurate,
        )

    def explain(self, refused: np.ndarray) -> None:
        """Raise the error of the first member, because no member can be started."""
        i = int(np.argmax(refused == codes.SUCCESS))
        if refused[i]:
            names = self.setup.system.space.rotations
            raise ValueError(f"no member of the batch can be started: {codes.reason(int(refused[i]), names)}")
        try:
            single.run(self.request(i))
        except ValueError as error:
            error.add_note("No member of the batch can be started. This is the error of the first one.")
            raise
        except IntegrationError:
            return

    def each_alone(self, refused: np.ndarray, backend: Backend, bar: Progress) -> Solution:
        """The solution if the members cannot run in lanes."""
        ready = np.flatnonzero(refused == codes.SUCCESS)
        apart = not_started(refused) + self._some_alone(ready, backend)
        bar.add(len(refused))
        if not any(isinstance(one, Alone) for one in apart):
            self.explain(refused)
        return gathered.all_alone(self.setup, self.plan, apart, self.output, len(self.events))

    def _some_alone(self, which: np.ndarray, backend: Backend = "auto") -> list[Alone | NotStarted]:
        """Members in runs of their own, on all cores; the first one compiles what the others need."""
        first = [self._alone(int(i), backend) for i in which[:1]]
        with Pool() as pool:

            def one(i: int) -> Alone | NotStarted:
                pool.proceed()
                return self._alone(i, backend)

            return first + pool.map(one, which[1:].tolist())

    def _alone(self, i: int, backend: Backend = "auto") -> Alone | NotStarted:
        """Member ``i`` in a run of its own."""
        return self.alone(i, lambda: single.run(self.request(i, backend)), bool(self.events))

    def alone(self, i: int, run: Callable[[], Solution], own: bool) -> Alone | NotStarted:
        """Member ``i``, with the solution that ``run`` returns."""
        try:
            return self.kept(i, run(), own)
        except InconsistentInitialValues:
            return NotStarted(i, codes.INCONSISTENT)
        except (RedundantConstraints, SingularSystem):
            return NotStarted(i, codes.SINGULAR)
        except Exception as error:
            if not isinstance(error, ValueError) or _of_a_reset(error) or from_host(error):
                error.add_note(f"This happened in member {i} of the batch.")
                raise
            return NotStarted(i, codes.NOT_FINITE)

    def kept(self, i: int, one: Solution, own: bool) -> Alone:
        """The rows of a solution of member ``i`` that are kept. ``own`` says that it has times of its own."""
        times = self.plan.times
        ended = one.success or one.status == codes.INACCURATE
        if self.output.t_eval is None and self.output.every == 0 and not ended:
            return Alone(i, one, np.zeros(0, int), np.zeros(0, int))
        if own:
            return Alone(i, one, np.arange(len(one.t)), np.arange(len(one.t)))
        places = np.flatnonzero(np.isin(times, one.t))
        return Alone(i, one, np.searchsorted(one.t, times[places]), places)

    # --- XLA ------------------------------------------------------------------------------------

    def by_xla(self, refused: np.ndarray, fallback: str | None, bar: Progress) -> Solution:
        """The solution by XLA: ``vmap`` of a traced run, in chunks of limited memory."""
        dims, mode = self.setup.dims, self.mode_of_members
        steps, output, q, v = self.plan.steps, self.output, self.q, self.v
        axes = (None, None, None, 0, 0, self._in_axes, None)
        run = self._mapped(("traced", mode), traced.compute(mode, Held(), None), axes)
        width = 12 * (dims.size + 3 * dims.n + 2 * dims.m + 2 * dims.p) * (steps.rows(MOST_TRACED) + 1)
        chunk = max(1, min(len(q), _MEMORY // (8 * width)))
        parts = []
        for first in range(0, len(q), chunk):
            here = slice(first, first + chunk)
            args = jax.tree.map(lambda x, b: x[here] if b else x, self.args, self.varying)  # noqa: B023
            found = run(self.span, steps, output, q[here], v[here], args, None)
            parts.append(jax.tree.map(np.asarray, found))
            bar.add(len(q[here]))
        sol = jax.tree.map(lambda *chunks: np.concatenate(chunks), *parts)
        sol = _with_history_of_start(jax.tree.map(np.array, sol))  # copies, which can be written to
        some = {name: output.chosen(name, getattr(sol, name)) for name, _ in output.entries}
        sol = dataclasses.replace(sol, **some)
        sol = gathered.patched(sol, not_started(refused), self.span[0])
        if not sol.success.any() and not sol.stats.steps.any():
            self.explain(refused)
        if isinstance(steps, Controlled) and steps.most is None:  # more steps than memory was reserved for
            longer = [self._alone(k) for k in np.flatnonzero(sol.status == codes.TOO_MANY).tolist()]
            sol = gathered.patched(sol, longer, self.span[0])
        return dataclasses.replace(sol, stats=dataclasses.replace(sol.stats, fallback=fallback))


def _of_a_reset(error: Exception) -> bool:
    """Whether an error comes from the reset of an event, and not from the start of a run."""
    return any("reset of event" in text for text in (str(error), *getattr(error, "__notes__", ())))


def not_started(refused: np.ndarray) -> list[Alone | NotStarted]:
    """The members with a status before the run."""
    return [NotStarted(int(i), int(refused[i])) for i in np.flatnonzero(refused)]


def _with_history_of_start(sol: Solution) -> Solution:
    """A batch whose history of Newton's method has a row for the start too, which is zero."""
    if sol.newton is None:
        return sol
    missing = sol.t.shape[1] - sol.newton.iterations.shape[1]
    padded = jax.tree.map(lambda x: np.pad(x, [(0, 0), (missing, 0)]), sol.newton)
    return dataclasses.replace(sol, newton=padded)


def _no_integer(x: Any, varies: bool) -> bool:
    if varies:
        raise Unsupported("an integer argument that varies over the batch")
    return False
