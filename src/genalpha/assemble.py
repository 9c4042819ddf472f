"""From the arrays of a run to its solution."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from genalpha.advance import Setup
from genalpha.drive import xla
from genalpha.solution import Errors, NewtonHistory, Reactions, Residuals, Solution, Stats


class Work(NamedTuple):
    """What a run took: steps, rejected ones, and Newton's totals over both."""

    steps: Any
    rejected: Any
    iterations: Any
    jacobians: Any
    rounding: Any


def solution(
    setup: Setup,
    rows: xla.Rows,
    derived: xla.Derived,
    times: Any,
    sizes: Any,
    status: Any,
    backend: str,
    fallback: str | None,
    work: Work,
    errors: Errors | None = None,
) -> Solution:
    np_ = np if isinstance(rows.q, np.ndarray) else jnp
    method = setup.method
    t_alpha = np_.concatenate([rows.t_alpha[None], times[1:] + method.alpha * sizes])
    counts = np_.where(np_.isnan(rows.report), 0, rows.report).astype(int)
    return Solution(
        t=times,
        q=rows.q,
        v=rows.v,
        a=derived.a,
        a_alpha=rows.a_alpha,
        t_alpha=t_alpha,
        lam=rows.lam,
        psi=rows.psi,
        residuals=Residuals(derived.position, derived.velocity, derived.nonholonomic),
        reactions=Reactions(derived.holonomic_force, derived.nonholonomic_force, derived.reaction),
        stats=Stats(*work[:4], work.jacobians, work.rounding, fallback),
        newton=NewtonHistory(counts[:, 0], counts[:, 1], counts[:, 2].astype(bool)),
        status=status,
        extra=rows.extra,
        errors=errors,
        method=method.name,
        rotations=setup.system.space.rotations,
        backend=backend,
    )
