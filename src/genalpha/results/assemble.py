"""Makes a solution from the records of a run."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.engine import interpolate
from genalpha.engine.row import Errors, Rows
from genalpha.engine.setup import Setup
from genalpha.results.deferred import Deferred
from genalpha.results.records import NewtonHistory, Reactions, Residuals, Stats
from genalpha.results.solution import Solution

# Quantities that are derived from rows, and computed on first access.
DERIVED = ("a", "lam", "psi", "residuals", "reactions")


class Work(NamedTuple):
    """The work of a run: accepted steps, rejected steps, and Newton's totals over both."""

    steps: Any
    rejected: Any
    iterations: Any
    jacobians: Any
    rounding: Any
    near_singular: Any


def recorded(rows: Rows, errors: Errors | None) -> dict[str, Any]:
    """The quantities that records contain, by their names in a solution."""
    return {
        "q": rows.q,
        "v": rows.v,
        "a_alpha": rows.a_alpha,
        "lam_method": rows.lam,
        "psi_method": rows.psi,
        "extra": rows.extra,
        "errors": errors,
        "newton": Deferred(lambda: history(rows.report)),
    }


def derived(found: Deferred) -> dict[str, Deferred]:
    """The quantities derived from rows, by their names in a solution; ``found`` is a :class:`Derived`."""
    return {
        "a": found.then(lambda x: x.a),
        "lam": found.then(lambda x: x.lam),
        "psi": found.then(lambda x: x.psi),
        "residuals": found.then(lambda x: Residuals(x.position, x.velocity, x.nonholonomic)),
        "reactions": found.then(lambda x: Reactions(x.holonomic_force, x.nonholonomic_force, x.reaction)),
    }


def history(report: Any) -> NewtonHistory:
    """Newton's work, from the columns that are counted. Rows not reached are NaN there."""
    np_ = np if isinstance(report, np.ndarray) else jnp
    counts = np_.where(np_.isnan(report), 0, report).astype(int)
    flags = (counts[..., k].astype(bool) for k in (2, 3))
    return NewtonHistory(counts[..., 0], counts[..., 1], *flags)


def without_start(history: NewtonHistory) -> NewtonHistory:
    """The history of Newton's method for the steps: the start has none."""
    return jax.tree.map(lambda x: x[1:], history)


class Ending(NamedTuple):
    """How a run ended: its status, the time it reached, its work, and its backend.

    ``fallback`` is the reason why XLA was used instead of native code. ``detail`` is more about the end.
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
    """The solution. ``complete`` says that all steps are rows; ``happened`` are the events, by quantity."""
    found: dict[str, Any] = {f"{name}_events": rows for name, rows in (happened or {}).items()}
    steps, rejected, iterations, jacobians, rounding, near_singular = ending.work
    return Solution(
        **({"error": None} | of_rows),
        **found,
        t=t,
        t_alpha=t_alpha,
        stats=Stats(
            steps, rejected, iterations, jacobians, jacobians, rounding, near_singular, ending.fallback
        ),
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
