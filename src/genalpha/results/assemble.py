"""From the records of a run to its solution."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from genalpha.engine import interpolate
from genalpha.engine.row import Errors, Rows
from genalpha.engine.setup import Setup
from genalpha.results.deferred import Deferred
from genalpha.results.solution import NewtonHistory, Reactions, Residuals, Solution, Stats

# Quantities that follow from a row and are computed when they are first asked for.
DERIVED = ("a", "residuals", "reactions")


class Work(NamedTuple):
    """What a run took: steps, rejected ones, and Newton's totals over both."""

    steps: Any
    rejected: Any
    iterations: Any
    jacobians: Any
    rounding: Any


def recorded(rows: Rows, errors: Errors | None) -> dict[str, Any]:
    """What records say about each row, by the names of a solution."""
    return {
        "q": rows.q,
        "v": rows.v,
        "a_alpha": rows.a_alpha,
        "lam": rows.lam,
        "psi": rows.psi,
        "extra": rows.extra,
        "errors": errors,
        "newton": Deferred(lambda: history(rows.report)),
    }


def derived(found: Deferred) -> dict[str, Deferred]:
    """What follows from rows, by the names of a solution; ``found`` is a :class:`Derived`."""
    return {
        "a": found.then(lambda x: x.a),
        "residuals": found.then(lambda x: Residuals(x.position, x.velocity, x.nonholonomic)),
        "reactions": found.then(lambda x: Reactions(x.holonomic_force, x.nonholonomic_force, x.reaction)),
    }


def history(report: Any) -> NewtonHistory:
    """Newton's work from columns iterations, jacobians and rounding, NaN in rows that were not reached."""
    np_ = np if isinstance(report, np.ndarray) else jnp
    counts = np_.where(np_.isnan(report), 0, report).astype(int)
    return NewtonHistory(counts[..., 0], counts[..., 1], counts[..., 2].astype(bool))


@dataclass(frozen=True)
class Ending:
    """How a run ended: its status, the time up to which it came, what it took, and what ran it.

    ``fallback`` says why XLA ran it instead of native code, ``detail`` what else is known about the end.
    """

    status: Any
    t_end: Any
    work: Work
    backend: str
    fallback: str | None = None
    detail: str = ""


def solution(
    setup: Setup,
    of_rows: dict[str, Any],
    t: Any,
    t_alpha: Any,
    ending: Ending,
    complete: bool = True,
    nodes: interpolate.StepEnd | None = None,
    happened: dict[str, list[Any]] | None = None,
) -> Solution:
    """``complete`` says that the rows are those of all steps; ``happened`` are events, by quantity."""
    found: dict[str, Any] = {f"{name}_events": rows for name, rows in (happened or {}).items()}
    steps, rejected, iterations, jacobians, rounding = ending.work
    return Solution(
        **of_rows,
        **found,
        t=t,
        t_alpha=t_alpha,
        stats=Stats(steps, rejected, iterations, jacobians, jacobians, rounding, ending.fallback),
        status=ending.status,
        t_end=ending.t_end,
        method=setup.method.name,
        rotations=setup.system.space.rotations,
        backend=ending.backend,
        detail=ending.detail,
        nodes=nodes,
        space=setup.system.space,
        complete=complete,
    )
