"""``redundant="min_norm"`` of ``solve``: checks, and the choice of constraints at the start."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import numpy as np

from genalpha.engine.step_choice import steps_of_size
from genalpha.errors import InconsistentInitialValues, IntegrationError
from genalpha.mechanics import start_errors
from genalpha.mechanics.system import System
from genalpha.numerics.tracing import under_transform
from genalpha.results.solution import Solution
from genalpha.run import arguments, dispatch, projection
from genalpha.run.redundant import rank
from genalpha.run.redundant.constraints import Constraints, Seen
from genalpha.run.redundant.legs import Legs
from genalpha.run.redundant.monitor import BROKEN, ConstraintMonitor
from genalpha.run.redundant.rank import Kept
from genalpha.run.request import Options

# Tolerances of the rank before a projection, tried one after the other. Rows that are nearly dependent off
# the constraints may be exactly dependent on them.
_LOOSE = (0.3, 0.1, 0.03, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)
# At rounded initial values the relative error of gradients is at most this multiple of that of constraints.
_ROUNDING = 100.0
# It is never larger than this.
_NOT_ROUNDING = 1e-6


def run(system: System, t_span: Any, q0: Any, v0: Any, given: Options) -> Solution:
    """``solve`` for redundant constraints."""
    _refuse(system, given)
    span, args = arguments.span(t_span), arguments.arguments(given.args)
    q, v = arguments.vector("q0", q0), arguments.vector("v0", v0)
    dims, closes_over_traced = arguments.trace(system, span[0], q, v, args, redundant=True)
    if closes_over_traced or under_transform(q, v, args, given.steps.h):
        raise TypeError(
            "redundant='min_norm' is not possible under a JAX transform, because it chooses constraints by "
            "their values, which are not known there: state independent constraints"
        )
    full = Constraints(system, dims, args, given.backend != "xla")
    start = _start(full, span[0], arguments.point(system.space, q), v, given)
    if start is None:
        return dispatch.run(system, t_span, q0, v0, given)
    if given.initial == "project":  # already done
        given = given._replace(initial="check", hold=None)
    h = given.steps.h
    grid = None if h is None else steps_of_size(*span, h)
    sol = Legs(start.watch, span, grid, given).run(start.q, start.v, start.kept)
    if given.throw and not sol.success:
        raise IntegrationError(sol.message, sol)
    return sol


def _refuse(system: System, given: Options) -> None:
    if system.reaction is not None:
        raise ValueError(
            "redundant='min_norm' is not possible with a reaction of your own, or with friction in joints, "
            "only with −Gᵀλ − Kᵀψ: state independent constraints"
        )
    if given.multipliers is not None:
        raise ValueError(
            "redundant='min_norm' takes no multipliers, they follow from q and v: leave them out"
        )
    if given.steps.accuracy is not None or given.steps.extrapolate is not None:
        raise ValueError(
            "redundant='min_norm' is not possible with accuracy or extrapolate: pass h or rtol, or state "
            "independent constraints"
        )
    usual = {"events": None, "save": "all", "dense_output": False, "state": None, "checkpoint": None}
    usual["controller"] = None
    for name, value in usual.items():
        asked = getattr(given, name)
        if asked is not value and not (isinstance(asked, str) and asked == value):
            raise ValueError(
                f"redundant='min_norm' is not possible with {name}, because the multipliers of all "
                f"constraints are computed after the run: leave out {name}, or state independent constraints"
            )


class _IndependentStart(NamedTuple):
    """The start of a run with redundant constraints, and the independent rows at the start."""

    q: np.ndarray
    v: np.ndarray
    kept: Kept
    watch: ConstraintMonitor


def _start(full: Constraints, t: float, q: Any, v: Any, given: Options) -> _IndependentStart | None:
    """The start; None if all constraints are independent."""
    seen = full.look_once(t, q, v)
    start_errors.finite(full.system.labels, holonomic=seen.g[0], nonholonomic=seen.k[0])
    if not np.isfinite(seen.unit).all():
        start_errors.finite(full.system.labels, mass=full.system.M(t, q, full.args))
    if not np.isfinite(seen.gradients).all():
        raise ValueError(
            "the derivative of a constraint is NaN or infinite at the start: change q0 or the constraint"
        )
    if given.initial == "project":
        moved = _projected(full, seen, t, q, v, given.hold)
        if moved is None:
            return None
        q, v, seen = moved
    elif given.initial == "check":
        _on_all(full, t, q, v)
    kept = _independent(full, seen, q, v)
    if len(kept) == len(full.names):
        return None
    watch = ConstraintMonitor(full, seen)
    relation = rank.relation(watch.rows(seen), kept)
    mismatch = watch.mismatch(seen, q[None], v[None], kept, watch.factors(relation, kept))
    if not mismatch.max() <= BROKEN:
        _on_all(full, t, q, v)
        name = full.names[rank.left_out(kept, len(full.names))[mismatch.argmax()]]
        raise InconsistentInitialValues(
            f"{name} contradicts other constraints at the start: correct q0 and v0, or the constraints"
        )
    return _IndependentStart(q, v, kept, watch)


def _independent(full: Constraints, seen: Seen, q: np.ndarray, v: np.ndarray) -> Kept:
    """The rows to keep at one state on the constraints.

    If rounding of q and v breaks the constraints a little, it changes the gradients too. Then they are
    dependent only up to this rounding.
    """
    reach = np.abs(seen.gradients[0]).max(axis=1)
    values = np.concatenate([seen.g[0] / (1 + np.abs(q).max()), seen.k[0] / (1 + np.abs(v).max())])
    off = np.abs(values / np.where(reach > 0, reach, np.inf)).max(initial=0.0)
    tolerance = max(start_errors.RANK_TOLERANCE, min(_ROUNDING * off, _NOT_ROUNDING))
    return rank.choose(ConstraintMonitor(full, seen).rows(seen)[0], full.dims.m, tolerance)


def _projected(
    full: Constraints, seen: Seen, t: float, q: np.ndarray, v: np.ndarray, hold: Any
) -> tuple[np.ndarray, np.ndarray, Seen] | None:
    """q and v projected onto all constraints if some are redundant; None if none is."""
    rows, tried = ConstraintMonitor(full, seen).rows(seen)[0], set()
    for tolerance in _LOOSE:
        kept = rank.choose(rows, full.dims.m, tolerance)
        if len(kept) == len(rows):
            return None
        if kept in tried:
            continue
        tried.add(kept)
        with contextlib.suppress(InconsistentInitialValues):
            near = full.nearby(t, q, v, kept)
            kept = _independent(full, _on_all(full, t, *near), *near)
            if len(kept) == len(rows):
                return None
            reduced = full.reduced(kept)
            p = np.asarray(projection.position(reduced, t, q, full.args, hold))
            w = np.asarray(projection.velocity(reduced, t, p, v, full.args, hold))
            return p, w, _on_all(full, t, p, w)
    raise ValueError(
        "initial='project' found no q and v on all constraints near q0 and v0: correct q0 and v0, or look "
        "for constraints that contradict each other"
    )


def _on_all(full: Constraints, t: float, q: np.ndarray, v: np.ndarray) -> Seen:
    """The constraints at a state. Raises if they do not all hold."""
    seen = full.look_once(t, q, v)
    start_errors.consistency(q, seen.g[0], seen.g_dot[0], seen.k[0], full.system.labels)
    return seen
