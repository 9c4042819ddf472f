"""From the records of a run to its solution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from genalpha.backends.xla import given as xla
from genalpha.engine import interpolate
from genalpha.engine.run_data import Later, RunState
from genalpha.engine.step import Setup
from genalpha.results.solution import NewtonHistory, Reactions, Residuals, Solution, Stats


class Work(NamedTuple):
    """What a run took: steps, rejected ones, and Newton's totals over both."""

    steps: Any
    rejected: Any
    iterations: Any
    jacobians: Any
    rounding: Any


def quantities(rows: xla.Rows, derived: xla.Derived, errors: Any = None) -> dict[str, Any]:
    """What a solution tells about each row, by name; ``newton`` has a row for every row of the report."""
    np_ = np if isinstance(rows.q, np.ndarray) else jnp
    counts = np_.where(np_.isnan(rows.report), 0, rows.report).astype(int)
    return {
        "q": rows.q,
        "v": rows.v,
        "a": derived.a,
        "a_alpha": rows.a_alpha,
        "lam": rows.lam,
        "psi": rows.psi,
        "residuals": Residuals(derived.position, derived.velocity, derived.nonholonomic),
        "reactions": Reactions(derived.holonomic_force, derived.nonholonomic_force, derived.reaction),
        "extra": rows.extra,
        "errors": errors,
        "newton": NewtonHistory(counts[..., 0], counts[..., 1], counts[..., 2].astype(bool)),
    }


def solution(
    setup: Setup,
    of_rows: dict[str, Any],
    t: Any,
    t_alpha: Any,
    status: Any,
    t_end: Any,
    backend: str,
    fallback: str | None,
    work: Work,
    complete: bool = True,
    nodes: interpolate.StepEnd | None = None,
    happened: dict[str, list[Any]] | None = None,
    state: Callable[[], RunState] | None = None,
    detail: str = "",
) -> Solution:
    """``complete`` says that the rows are those of all steps; ``happened`` tells about events, by
    quantity."""
    told: dict[str, Any] = {f"{name}_events": rows for name, rows in (happened or {}).items()}
    sol = Solution(
        **of_rows,
        t=t,
        t_alpha=t_alpha,
        stats=Stats(*work[:4], work.jacobians, work.rounding, fallback),
        status=status,
        t_end=t_end,
        method=setup.method.name,
        rotations=setup.system.space.rotations,
        backend=backend,
        detail=detail,
        **told,
        nodes=nodes,
        space=setup.system.space,
        complete=complete,
    )
    return sol.continued_by(None if state is None else Later(state))
