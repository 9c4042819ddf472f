"""Solutions of batches: put together from chunks, with members that ran alone or could not be started."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.batch.plan import BatchPlan, Results
from genalpha.backends.xla import given as xla
from genalpha.engine.step import Setup
from genalpha.results import assemble
from genalpha.results.solution import Solution

_TIMED = ("t", "q", "v", "a", "a_alpha", "t_alpha", "lam", "psi", "residuals", "reactions", "extra", "errors")


def solution(setup: Setup, plan: BatchPlan, part: Results, status: np.ndarray, backend: str) -> Solution:
    """Results as a solution, batch axis first."""
    rows = xla.columns(setup, part.table, None)._replace(report=xla.report(setup, part.table))
    times = np.broadcast_to(plan.times, (len(status), len(plan.times)))
    ends, sizes, errors = plan.timing(setup, part.table)
    t_alpha = np.array(np.broadcast_to(ends + setup.method.alpha * sizes, times.shape))
    if plan.from_start:
        t_alpha[:, 0] = part.t_alpha
    bad = (status != 0) & (part.taken == 0)
    totals = np.where(bad[:, None], 0, part.totals).astype(int)
    work = assemble.Work(part.taken.astype(int), part.rejected.astype(int), *totals.T)
    of_rows = assemble.quantities(rows, part.derived, errors)
    end = part.t_end
    sol = assemble.solution(setup, of_rows, times, t_alpha, status, end, backend, None, work, complete=False)
    return dataclasses.replace(sol, space=None)  # rows between which nobody can interpolate


def keep(sol: Solution, kept: np.ndarray) -> Solution:
    """The rows ``kept`` of a single run; the history of Newton gets a row for the start, if it has none."""
    np_, history = np if isinstance(sol.q, np.ndarray) else jnp, sol.newton
    if len(history.iterations) < len(sol.t):
        history = jax.tree.map(lambda x: np_.concatenate([np_.zeros_like(x[:1]), x]), history)
    history = jax.tree.map(lambda x: x[kept], history)
    rows = lambda tree: jax.tree.map(lambda x: x[kept], tree)
    parts = {name: rows(getattr(sol, name)) for name in _TIMED}
    return dataclasses.replace(sol, **parts, newton=history)


def write(sol: Solution, i: int, one: Solution, kept: np.ndarray, good: np.ndarray) -> None:
    """Put the kept rows of a single run in the place of member ``i``; rows it did not reach are NaN."""
    reached = keep(one, kept[good])
    for name in (*_TIMED[1:], "newton"):
        for whole, part in zip(
            jax.tree.leaves(getattr(sol, name)), jax.tree.leaves(getattr(reached, name)), strict=True
        ):
            if whole.dtype.kind == "f":
                whole[i] = np.nan
            whole[i, good] = part
    for whole, part in zip(jax.tree.leaves(sol.stats), jax.tree.leaves(one.stats), strict=True):
        whole[i] = part
    sol.status[i], sol.t_end[i] = one.status, one.t_end


def blank(sol: Solution, i: int, status: int, t0: float) -> None:
    """Mark member ``i`` as one that could not be started at t0."""
    for name in _TIMED[1:]:
        for whole in jax.tree.leaves(getattr(sol, name)):
            whole[i] = np.nan
    for whole in jax.tree.leaves(sol.stats):
        whole[i] = 0
    sol.status[i], sol.t_end[i] = status, t0
