"""A run with redundant constraints. A new leg begins whenever the choice of independent rows changes."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.engine.step_choice import StepOptions
from genalpha.mechanics import start_errors
from genalpha.mechanics.labels import NO_LABELS
from genalpha.numerics import codes
from genalpha.results.members import TIMED
from genalpha.results.records import NewtonHistory, Reactions, Stats
from genalpha.results.solution import Solution
from genalpha.run import dispatch
from genalpha.run.redundant.monitor import ConstraintMonitor, LegVerdict, Share
from genalpha.run.redundant.rank import Kept
from genalpha.run.request import Options, named_method

MOST_LEGS = 1000
# A leg after the first runs this many times as long as the longest before it. If its constraints stay
# independent for that time, it is run again up to the end of the time span.
_FURTHER = 4.0
_TIMED = ("t", *TIMED)


class _Leg(NamedTuple):
    """A leg: its start, its constraints, its argument ``initial``, and its end."""

    t: float
    q: np.ndarray
    v: np.ndarray
    kept: Kept
    initial: str
    end: float


class Legs:
    """Legs from t0 to t1, with the given options, and the steps of ``grid`` if there is one."""

    def __init__(
        self,
        watch: ConstraintMonitor,
        span: tuple[float, float],
        grid: tuple[Any, Any] | None,
        given: Options,
    ) -> None:
        self.watch, self.span, self.given = watch, span, given
        self.times: Any = None if grid is None else np.asarray(grid[0])
        self.sizes: Any = None if grid is None else np.asarray(grid[1])
        self.shared = np.zeros(len(watch.lengths), dtype=bool)

    def run(self, q: np.ndarray, v: np.ndarray, kept: Kept) -> Solution:
        """The whole run from q and v, first with the constraints ``kept``."""
        leg = _Leg(self.span[0], q, v, kept, self.given.initial, self.span[1])
        parts: list[Solution] = []
        while True:
            try:
                part, verdict = self._integrated(leg)
            except ValueError as error:
                if not parts:
                    raise
                detail = f"A new start with other constraints failed: {self._renamed(str(error), leg.kept)}"
                verdict = LegVerdict(0, codes.SINGULAR, detail)
                break
            parts.append(part)
            if verdict.kept is not None:
                verdict = self._bounded(verdict, parts)
            if verdict.kept is None:
                break
            leg = self._next(parts, verdict.kept)
        return self._finished(_joined(parts), verdict)

    def _integrated(self, leg: _Leg) -> tuple[Solution, LegVerdict]:
        """A leg up to the first bad row, with the multipliers of all constraints, and what to do next."""
        given = self.given._replace(initial=leg.initial, throw=False)
        if (leg.t, leg.end) != self.span:
            given = given._replace(steps=self._steps(leg))
        system = self.watch.full.reduced(leg.kept)
        sol = dispatch.run(system, (leg.t, leg.end), leg.q, leg.v, given)
        multipliers = np.concatenate([sol.lam, sol.psi], axis=1)
        share, verdict = self.watch.examine(sol.t, sol.q, sol.v, multipliers, leg.kept)
        if verdict.good == len(sol.t) and not sol.success:
            verdict = self._failed(sol, leg)
        elif verdict.good == len(sol.t) and leg.end < self.span[1]:
            return self._integrated(leg._replace(end=self.span[1]))
        self.shared |= share.shared.any(axis=0)
        return self._expanded(sol, share, leg.kept, verdict.good), verdict

    def _steps(self, leg: _Leg) -> StepOptions:
        """The steps of a leg that is not the whole run."""
        asked = self.given.steps
        at = np.atleast_1d(np.asarray(asked.project_velocity_at, dtype=float))
        small = 1e-9 * (leg.end - leg.t)
        asked = asked._replace(project_velocity_at=at[(at > leg.t + small) & (at < leg.end + small)].tolist())
        if self.sizes is None:
            return asked
        return asked._replace(h=self.sizes[self._index(leg.t) : self._index(leg.end)])

    def _index(self, t: float) -> int:
        return int(np.abs(self.times - t).argmin())

    def _failed(self, sol: Solution, leg: _Leg) -> LegVerdict:
        """What to do after a failed step: other constraints may help."""
        verdict = LegVerdict(len(sol.t), int(sol.status), self._renamed(sol.detail, leg.kept))
        h = self._step_after(sol.t)
        if sol.status not in (codes.NOT_CONVERGED, codes.SINGULAR, codes.NOT_FINITE) or h is None:
            return verdict
        found = self.watch.ahead(sol.t[-1], sol.q[-1], sol.v[-1], h, leg.kept)
        if isinstance(found, str):
            return verdict._replace(detail=f"{verdict.detail}. {found}" if verdict.detail else found)
        return verdict if found is None else LegVerdict(len(sol.t), kept=found)

    def _renamed(self, text: str, kept: Kept) -> str:
        """A message about the constraints ``kept``, in which their numbers are replaced by the user's."""
        names, m = self.watch.full.names, self.watch.full.dims.m
        holonomic = sum(i < m for i in kept)
        counted = start_errors.row_names(holonomic, len(kept) - holonomic, NO_LABELS)
        own = dict(zip(counted, (names[i] for i in kept), strict=True))
        return re.sub(r"(non)?holonomic\[\d+\]", lambda name: own.get(name[0], name[0]), text)

    def _step_after(self, t: np.ndarray) -> float | None:
        if self.sizes is not None:
            return float(self.sizes[self._index(t[-1])])
        return float(t[-1] - t[-2]) if len(t) > 1 else None

    def _bounded(self, verdict: LegVerdict, parts: list[Solution]) -> LegVerdict:
        """The verdict, unless the run is at its end or another change of constraints is not possible."""
        if parts[-1].t[-1] >= self.span[1]:
            return LegVerdict(verdict.good)
        once = {"t_eval": self.given.t_eval, "first_step": self.given.steps.first_step}
        strange = [name for name, value in once.items() if value is not None]
        if strange:
            reason = f"and a run with {', '.join(strange)} cannot change them"
        elif len(parts) == MOST_LEGS:
            reason = f"too often: {MOST_LEGS} times"
        elif len(parts) > 1 and all(len(part.t) == 1 for part in parts[-2:]):
            reason = "twice without a step in between"
        else:
            return verdict
        detail = f"Near t = {parts[-1].t[-1]:.9g} the constraints that were kept become dependent, {reason}"
        return LegVerdict(verdict.good, codes.REDUNDANT, detail)

    def _next(self, parts: list[Solution], kept: Kept) -> _Leg:
        """The next leg. Its velocities satisfy the constraints even if those of the method do not."""
        last, end = parts[-1], self.span[1]
        t, q = float(last.t[-1]), last.q[-1]
        if self.times is not None:
            longest = max(float(part.t[-1] - part.t[0]) for part in parts)
            further = t + max(_FURTHER * longest, 2 * float(self.sizes[self._index(t)]))
            end = float(self.times[self.times <= further][-1])
        return _Leg(t, q, self.watch.full.settled(t, q, last.v[-1], kept), kept, "assume", end)

    def _expanded(self, sol: Solution, share: Share, kept: Kept, good: int) -> Solution:
        """The first ``good`` rows of a leg, with multipliers and residuals of all constraints."""
        m, p = self.watch.full.dims.m, self.watch.full.dims.p
        parts = {name: getattr(sol, name) for name in _TIMED}
        parts |= {"lam": share.lam, "psi": share.psi, "residuals": share.residuals}
        if m and p:  # a holonomic and a nonholonomic constraint may share a force
            holonomic: Any = share.holonomic_force
            total = sol.reactions.total[: len(holonomic)]
            parts["reactions"] = Reactions(holonomic, total - holonomic, total)
        parts["extra"] = {name: self._filled(name, value, kept) for name, value in sol.extra.items()}
        own = np.zeros((len(sol.t), m + p))
        own[:, list(kept)] = np.concatenate([sol.lam_method, sol.psi_method], axis=1)
        parts |= {"lam_method": own[:, :m], "psi_method": own[:, m:]}
        parts = jax.tree.map(lambda x: x[:good], parts)
        steps = len(sol.newton.iterations)
        by_rows = steps == len(sol.t) - 1
        end = sol.t_end if good == len(sol.t) else float(sol.t[good - 1])
        sol = dataclasses.replace(sol, **parts, t_end=end)
        if steps < good or not by_rows:
            return sol
        history = jax.tree.map(lambda x: x[: good - 1], sol.newton)
        return dataclasses.replace(sol, newton=history, stats=_counted(history, sol.stats))

    def _filled(self, name: str, value: np.ndarray, kept: Kept) -> np.ndarray:
        """A variable of the method, with zeros for the holonomic constraints that were left out."""
        method, dims = named_method(self.given), self.watch.full.dims
        width = method.extras(dims)[name]
        if value.shape[1] == width:
            return value
        filled = np.zeros((len(value), width))
        filled[:, [i for i in kept if i < dims.m]] = value
        return filled

    def _finished(self, sol: Solution, verdict: LegVerdict) -> Solution:
        names, shared = self.watch.full.names, np.flatnonzero(self.shared)
        told = start_errors.some([names[i] for i in shared])
        note = f"The multipliers of {told} are not unique: these are the ones of minimum norm"
        status = verdict.status if verdict.status != codes.SUCCESS else sol.status
        detail, which = verdict.detail or note, tuple(shared.tolist())
        sol = dataclasses.replace(sol, status=status, detail=detail, not_unique=which)
        return sol.labelled(self.watch.full.system.labels, members=(self.watch.full.args, None))


def _joined(parts: list[Solution]) -> Solution:
    """All legs as one run. The first row of a leg is the last one of the leg before."""
    if len(parts) == 1:
        return parts[0]
    rows = lambda first, *later: np.concatenate([first, *(x[1:] for x in later)])
    timed = [{name: getattr(part, name) for name in _TIMED} for part in parts]
    history = jax.tree.map(lambda *x: np.concatenate(x), *(part.newton for part in parts))
    rejected = sum(part.stats.rejected for part in parts)
    reasons = [part.stats.fallback for part in parts if part.stats.fallback is not None]
    stats = dataclasses.replace(parts[-1].stats, rejected=rejected, fallback=reasons[0] if reasons else None)
    return dataclasses.replace(
        parts[-1], **jax.tree.map(rows, *timed), newton=history, stats=_counted(history, stats)
    )


def _counted(history: NewtonHistory, stats: Stats) -> Stats:
    """Totals of the steps of ``history``."""
    iterations, jacobians, rounding, near_singular = (int(column.sum()) for column in history)
    counts: dict[str, Any] = {
        "newton_iterations": iterations,
        "jacobians": jacobians,
        "factorizations": jacobians,
        "rounding_limited": rounding,
        "near_singular": near_singular,
    }
    steps = len(history.iterations)
    return dataclasses.replace(stats, steps=steps, **counts)
