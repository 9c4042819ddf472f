"""The solution of an extrapolated run."""

from __future__ import annotations

from typing import Any

import numpy as np

from genalpha.backends import sampling
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived
from genalpha.numerics import codes
from genalpha.numerics.data import State
from genalpha.results import assemble
from genalpha.results.assemble import Ending, Work
from genalpha.results.deferred import Deferred
from genalpha.results.global_errors import GlobalErrors
from genalpha.results.output import NAMES
from genalpha.results.phases import Phase, Phases
from genalpha.results.solution import Solution
from genalpha.run import restart
from genalpha.run.accurate.columns import Column, ColumnRuns
from genalpha.run.accurate.combine import Combination, Combiner, MeshMotion, nodes
from genalpha.run.request import Request


class Result:
    """Makes a solution of an attempt."""

    def __init__(self, asked: Request, columns: ColumnRuns, combiner: Combiner) -> None:
        self.asked, self.columns, self.combiner = asked, columns, combiner
        self.setup, self.args, self.want = columns.setup, columns.args, columns.want

    def _called(self, attempt: Combination) -> Combination | None:
        """The attempt up to the row at which the callback ended the run; None if it did not."""
        callback, every, *_ = self.asked.watch
        if callback is None:
            return None
        motion = attempt.motion.all()
        found = self.columns.derived(motion)
        states = zip(*motion, found.a, found.lam, found.psi, strict=True)
        for i, values in enumerate(states):
            if i and i % every == 0 and callback(State(*values)):
                count, (dq, dv) = i + 1, attempt.difference
                return attempt._replace(
                    motion=attempt.motion.until(count),
                    other=attempt.other.until(count),
                    difference=(dq[:count], dv[:count]),
                    judgement=attempt.judgement._replace(rows=attempt.judgement.rows[:count]),
                )
        return None

    def solution(
        self, attempt: Combination, status: int, detail: str = "", errors: GlobalErrors | None = None
    ) -> Solution:
        """The solution with this status and more about it.

        ``errors`` are those of the rows of its motion. Without them the columns of the attempt give them.
        """
        columns = self.columns
        ended = self._called(attempt)
        if ended is not None:
            attempt, status = ended, codes.STOPPED
        motion, keep = attempt.motion, self.asked.output
        rows = slice(None) if keep.t_eval is not None else keep.rows(len(motion.t) - 1)
        complete = keep.t_eval is None and keep.every == 1
        of_mesh = Deferred(lambda: self.columns.derived(motion.all()))
        if keep.t_eval is not None:
            smooth = self.combiner.smooth(attempt.mesh, motion.all())
            times = keep.t_eval[keep.t_eval <= motion.t[-1]]
            q, v = sampling.smooth(self.setup.system.space, smooth, times)
            wanted = self.combiner.placed(Column(times, q, v), np.zeros_like(v), v)
        else:
            wanted = motion.all() if complete else motion.rows(rows)
        derived = of_mesh if complete else Deferred(lambda: self.columns.derived(wanted))
        known = {"q": wanted.q, "v": wanted.v} | assemble.derived(derived)
        kept = {name: known.get(name) if keep.names is None or name in keep.names else None for name in NAMES}
        of_all = Deferred(lambda: self._errors(attempt, of_mesh()) if errors is None else errors)
        error = of_all.then(lambda each: self._at_rows(each, motion.t, rows))
        work = Work(columns.steps, columns.earlier, *columns.totals.astype(int).tolist())
        assert columns.begun is not None
        ending = Ending(status, float(motion.t[-1]), work, columns.begun.backend, columns.fallback, detail)
        ends = None
        if keep.dense if not complete else len(attempt.mesh.counts) > 1:
            part = nodes(attempt.mesh, motion.all())
            own = self.columns.derived(part)
            ends = StepEnd(*part, own.lam, own.psi)
        found = kept | {"error": error}
        sol = assemble.solution(self.setup, found, wanted.t, None, ending, complete, ends)
        number = 0 if ends is None else len(ends.t)
        return sol.connected(self._after(motion), self._phases(len(sol.t), number))

    def _phases(self, rows: int, ends: int) -> Phases:
        assert self.columns.begun is not None
        dims, (t0, t1) = self.setup.dims, self.asked.span
        derive = self.columns.begun.derive
        phase = Phase(self.setup.system, self.args, t0, t1, slice(0, rows), derive, (dims.m, dims.p), ends)
        return Phases([phase], ())

    def _after(self, motion: MeshMotion) -> Deferred:
        """The state from which another run continues: it starts anew there."""
        setup, args = self.setup, restart.starting_args(self.asked)

        def state() -> Any:
            last = motion.rows(slice(-1, None))
            found = self.columns.derived(last)
            at = (last.t[0], last.q[0], last.v[0], found.a[0], found.lam[0], found.psi[0])
            return restart.state_anew(setup, State(*at), args, ())

        return Deferred(state)

    def _errors(self, attempt: Combination, one: Derived) -> GlobalErrors:
        """Estimated errors at the points of the mesh, for a motion with these accelerations and forces."""
        found = attempt.judgement
        two = self.columns.derived(attempt.other.all())
        accuracy = 1.0 if self.want.accuracy is None else self.want.accuracy.min()
        least = found.rounding * accuracy  # relative

        def of(difference: np.ndarray, like: np.ndarray) -> np.ndarray:
            floor = least * np.abs(like).max(axis=0, initial=0.0)
            return found.factor * np.abs(difference) + floor

        q, v = attempt.difference
        parts = [
            found.factor * np.abs(q) + found.rounding * attempt.sizes.q,
            of(v, attempt.motion.all().v),
            *(of(x - y, x) for x, y in ((one.a, two.a), (one.lam, two.lam), (one.psi, two.psi))),
        ]
        parts.append(found.rows * (np.nan if self.want.accuracy is None else 1.0))
        return GlobalErrors(*parts)

    def _at_rows(self, errors: GlobalErrors, t: np.ndarray, rows: Any) -> GlobalErrors:
        """Errors at the first points of a mesh, t, as those of the rows, or of ``t_eval`` between them."""
        errors = GlobalErrors(*(x[: len(t)] for x in errors))
        wanted = self.asked.output.t_eval
        if wanted is None:
            return GlobalErrors(*(x[rows] for x in errors))
        after = np.clip(np.searchsorted(t, wanted[wanted <= t[-1]]), 1, len(t) - 1)
        return GlobalErrors(*(np.maximum(x[after - 1], x[after]) for x in errors))

    def detail(self, attempt: Combination, reason: str) -> str:
        """Why the accuracy was not reached."""
        found = attempt.judgement
        return (
            f"The estimated error is {found.error:.2g} times the accuracy that was asked for, with "
            f"{attempt.mesh.intervals} intervals and {len(self.want.divisions)} columns: {reason}"
        )
