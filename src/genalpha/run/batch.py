"""The run of a batch: its kernels, its chunks, members that have to run alone, and XLA where it must."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jax.typing import ArrayLike

from genalpha.backends.batch import lanes
from genalpha.backends.batch.plan import BatchPlan, Members, Results, begun_status
from genalpha.backends.native import kernels as native
from genalpha.backends.native.step import floating
from genalpha.backends.xla import given as xla
from genalpha.compiler.graph import Unsupported
from genalpha.engine.step import Setup
from genalpha.errors import InconsistentInitialValues, IntegrationError, RedundantConstraints, SingularSystem
from genalpha.mechanics import initial_values as start
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.results import gather
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import traced
from genalpha.run.batch_axes import member
from genalpha.solve import Initial, solve

Backend = Literal["auto", "native", "xla", "cuda"]
# Members that are looked at for one from which the kernels can be made, before and after XLA starts all of
# them.
_EXAMPLES = 2, 6
_MEMORY = 2**28  # bytes of rows that XLA computes at a time


class Progress(Bar):
    """How many members are done."""

    def __init__(self, count: int, shown: bool) -> None:
        super().__init__(shown)
        self.count, self.done = count, 0

    def add(self, members: int) -> None:
        self.done += members
        self.update(self.done / self.count, f"{self.done} of {self.count} systems")
        if self.done == self.count:
            self.close()


class Batch(NamedTuple):
    """A batch whose arguments are understood."""

    setup: Setup
    span: tuple[float, float]
    h: ArrayLike | None
    plan: BatchPlan
    args: Args
    varying: Any  # a tree like args, of booleans
    mode: Initial

    def points(self, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """q on the space, q and v on the constraints if asked for, and statuses of those that cannot be."""
        space = self.setup.system.space
        status = np.zeros(len(q), dtype=int)
        if space.rotations:
            of = lambda setup, q: (space.defect(q), space.normalize(q))
            defects, q = map(np.asarray, self._mapped("rotations", of, (0,))(q))
            wrong = ~(defects <= codes.UNIT_TOLERANCE)
            which = codes.NOT_A_ROTATION + 16 * wrong.argmax(axis=1)
            status = np.where(wrong.any(axis=1), which, status)
        if self.mode == "project":
            project = lambda setup, t, q, v, args: start.project(setup.system, setup.dims, t, q, v, args)
            mapped = self._mapped("project", project, (None, 0, 0, self._in_axes))
            q, v, found = map(np.asarray, mapped(self.span[0], q, v, self.args))
            status = np.where(status, status, found)
        return q, v, status

    @property
    def _options(self) -> dict[str, Any]:
        """How a member chooses its steps, as arguments of ``solve``."""
        if self.plan.aim is None:
            return {"h": self.h}
        (wish, (tolerances, limits)), most = self.plan.aim, self.plan.most
        rtol_q, atol_q, rtol_v, atol_v = tolerances
        options: dict[str, Any] = {"rtol": np.stack([rtol_q, rtol_v]), "atol": np.stack([atol_q, atol_v])}
        options |= {"max_steps": most or None}
        options |= {"max_step": float(limits.max_step), "first_step": None if np.isnan(wish) else float(wish)}
        return options | {"min_step": float(limits.min_step) or None}

    @property
    def _in_axes(self) -> Any:
        return jax.tree.map(lambda varies: 0 if varies else None, self.varying)

    def _mapped(self, name: str, function: Callable[..., Any], axes: Any) -> Callable[..., Any]:
        """``function(setup, ...)`` of all members, compiled by XLA once."""
        flags = tuple(jax.tree.leaves(self.varying))
        run = lambda setup, *inputs: jax.vmap(lambda *one: function(setup, *one), axes)(*inputs)
        return xla.program(self.setup, f"batch {name} {flags}", run)

    def compiled(
        self, q: np.ndarray, v: np.ndarray, refused: np.ndarray, backend: Backend, bar: Progress
    ) -> Solution:
        """By machine code, on the CPU or on a GPU."""
        setup, plan = self.setup, self.plan
        leaves = [
            np.asarray(x) if varies else np.broadcast_to(x, (len(q), *np.shape(x)))
            for x, varies in zip(jax.tree.leaves(self.args), jax.tree.leaves(self.varying), strict=True)
            if np.asarray(x).dtype.kind == "f" or _no_integer(x, varies)
        ]
        members = Members(q, v, [np.asarray(x, dtype=float) for x in leaves])
        kernels = self._kernels(q, v, refused, members)
        if kernels.evaluation(plan.t_eval is not None) is None:
            raise Unsupported("accelerations that need an iteration of their own")
        if backend == "cuda":
            from genalpha.backends.batch import cuda

            results: Iterable[Results] = cuda.run(setup, kernels, members, plan, self._begun)
        else:
            results = lanes.run(setup, kernels, members, plan, self._begun)
        parts, first = [], 0
        for part in results:
            here = slice(first, first + len(part.status))
            parts.append(self._finished(part, q[here], v[here], refused[here], first, backend))
            first = here.stop
            bar.add(len(part.status))
        sol = jax.tree.map(lambda *chunks: np.concatenate(chunks), *parts)
        if not sol.success.any() and not sol.stats.steps.any():
            self._explain(q, v, refused)
        return sol

    def _kernels(self, q: np.ndarray, v: np.ndarray, refused: np.ndarray, members: Members) -> native.Kernels:
        """Kernels made for a member that can be started: one of the first, or one that XLA can start."""
        steps = self.plan.steps
        tried = np.flatnonzero(refused == codes.SUCCESS)[: _EXAMPLES[0]]

        def kernels(those: np.ndarray) -> native.Kernels | None:
            for i in those.tolist():
                at = (float(steps.t[0]), q[i], v[i], self.plan.first)
                with contextlib.suppress(ValueError, native.AtFirst):
                    args, sampled = member(self.args, self.varying, i), self.plan.t_eval is not None
                    return native.kernels(self.setup, *at, args, None, self.mode, sampled)
            return None

        found = kernels(tried)
        if found is None:
            start = self._begun(members)
            status = begun_status(self.plan, start.status, start.consistent)
            good = np.flatnonzero((status == codes.SUCCESS) & (refused == codes.SUCCESS))
            if not len(good):
                self._explain(q, v, refused)
                raise Unsupported("no member of the batch can be started")
            rest = np.setdiff1d(good, tried)
            found = kernels(rest[:: max(1, len(rest) // _EXAMPLES[1])][: _EXAMPLES[1]])
        if found is None:
            raise Unsupported("no member of the batch that was tried can be started by native code")
        return found

    def _explain(self, q: np.ndarray, v: np.ndarray, refused: np.ndarray) -> None:
        """Raise what is wrong with the first member, where no member can be started."""
        i = int(np.argmax(refused == codes.SUCCESS))
        if refused[i]:
            names = self.setup.system.space.rotations
            raise ValueError(f"no member of the batch can be started: {codes.reason(int(refused[i]), names)}")
        system, method, newton, *_ = self.setup
        args = member(self.args, self.varying, i)
        mode: Initial = "assume" if self.mode == "project" else self.mode
        try:
            start = (system, self.span, q[i], v[i])
            solve(*start, method=method, newton=newton, args=args, initial=mode, **self._options)
        except ValueError as error:
            error.add_note("No member of the batch can be started; this is what is wrong with the first.")
            raise
        except IntegrationError:
            return

    def _begun(self, members: Members) -> native.RunStart:
        """The start of members by XLA."""
        _, rebuild, fixed = floating(member(self.args, self.varying, 0))
        begin = lambda setup, t, q, v, h, doubles: native.start_run(setup, t, q, v, h, rebuild(doubles))
        mapped = self._mapped(f"start {fixed}", begin, (None, 0, 0, None, 0))
        steps = self.plan.steps
        found = mapped(steps.t[0], members.q, members.v, self.plan.first, members.doubles)
        return jax.tree.map(np.asarray, found)

    def _finished(
        self, part: Results, q: np.ndarray, v: np.ndarray, refused: np.ndarray, first: int, backend: Backend
    ) -> Solution:
        """A chunk as a solution; members that need other pivots run once more, alone."""
        status = np.where(refused, refused, part.status.astype(int))
        name = "cuda" if backend == "cuda" else "native"
        sol = gather.solution(self.setup, self.plan, part, status, name)
        for i in np.flatnonzero(refused):
            gather.blank(sol, int(i), int(refused[i]), self.span[0])
        for i in np.flatnonzero(~part.trusted & (refused == 0)):
            self._alone(sol, int(i), q[i], v[i], member(self.args, self.varying, first + int(i)))
        return sol

    def _alone(self, sol: Solution, i: int, q: np.ndarray, v: np.ndarray, args: Args) -> None:
        """Write a run of its own over member ``i``."""
        system, method, newton, *_ = self.setup
        mode: Initial = "assume" if self.mode == "project" else self.mode
        try:
            one = solve(
                system,
                self.span,
                q,
                v,
                **self._options,
                method=method,
                newton=newton,
                args=args,
                initial=mode,
                t_eval=self.plan.t_eval,
                throw=False,
            )
        except InconsistentInitialValues:
            gather.blank(sol, i, codes.INCONSISTENT, self.span[0])
            return
        except (RedundantConstraints, SingularSystem):
            gather.blank(sol, i, codes.SINGULAR, self.span[0])
            return
        except ValueError:
            gather.blank(sol, i, codes.NOT_FINITE, self.span[0])
            return
        kept = self.plan.kept if self.plan.t_eval is None else np.arange(len(self.plan.t_eval))
        good = kept < len(one.t)
        if self.plan.aim is not None and self.plan.t_eval is None:
            kept, good = np.array([len(one.t) - 1]), np.array([one.success])
        gather.write(sol, i, one, kept, good)

    def by_xla(
        self, q: np.ndarray, v: np.ndarray, refused: np.ndarray, fallback: str | None, bar: Progress
    ) -> Solution:
        """By XLA: ``vmap`` of a traced run, in chunks that need no more than some memory."""
        system, method, newton, dims, _ = self.setup
        plan, steps = (
            self.plan,
            len(self.plan.steps.h) if self.plan.aim is None else self.plan.most or traced.MOST_STEPS,
        )
        mode: Initial = "assume" if self.mode == "project" else self.mode

        def one(setup: Setup, q: Any, v: Any, args: Args) -> Solution:
            options = {"method": method, "newton": newton, "args": args, "initial": mode, **self._options}
            if plan.t_eval is not None:
                return solve(system, self.span, q, v, t_eval=plan.t_eval, **options)
            if plan.aim is not None:
                return solve(system, self.span, q, v, save="final", **options)
            return gather.keep(solve(system, self.span, q, v, **options), plan.kept)

        run = self._mapped(
            f"solve {self.span} {mode} {plan.steps.h.tobytes()!r} {plan.kept.tobytes()!r} "
            f"{plan.aim} {plan.most} {None if plan.t_eval is None else plan.t_eval.tobytes()!r}",
            one,
            (0, 0, self._in_axes),
        )
        width = 12 * (dims.size + 3 * dims.n + 2 * dims.m + 2 * dims.p) * (steps + 1)
        chunk = max(1, min(len(q), _MEMORY // (8 * width)))
        parts = []
        for first in range(0, len(q), chunk):
            here = slice(first, first + chunk)
            args = jax.tree.map(lambda x, b: x[here] if b else x, self.args, self.varying)  # noqa: B023
            parts.append(jax.tree.map(np.asarray, run(q[here], v[here], args)))
            bar.add(len(q[here]))
        sol = jax.tree.map(lambda *chunks: np.concatenate(chunks), *parts)
        sol = jax.tree.map(np.array, sol)  # that can be written to
        for i in np.flatnonzero(refused):
            gather.blank(sol, int(i), int(refused[i]), self.span[0])
        if not sol.success.any() and not sol.stats.steps.any():
            self._explain(q, v, refused)
        if plan.aim is not None and not plan.most:  # more steps than there was memory set aside for
            for k in np.flatnonzero(sol.status == codes.TOO_MANY).tolist():
                self._alone(sol, k, q[k], v[k], member(self.args, self.varying, k))
        return dataclasses.replace(sol, stats=dataclasses.replace(sol.stats, fallback=fallback))


def _no_integer(x: Any, varies: bool) -> bool:
    if varies:
        raise Unsupported("an integer argument that varies over the batch")
    return False
