"""The heavy top of ACB15 with ρ∞ = 0.9 and a projection of the velocity at t* = 0.7 s."""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

import genalpha as ga

RHO, T_STAR = 0.9, 0.7
METHODS: dict[str, ga.Index3 | ga.StabilizedIndex2 | ga.SOI2] = {
    "index 3": ga.Index3(ga.chung_hulbert(RHO)),
    "stabilized": ga.StabilizedIndex2(ga.chung_hulbert(RHO)),
    "SOI2": ga.SOI2(ga.chung_hulbert(RHO)),
}


@functools.cache
def top() -> ga.problems.Problem:
    return ga.problems.get("heavy-top")


@functools.cache
def run(method: str, h: float, projected: bool = True, t_end: float = 1.0) -> ga.Solution:
    at = [T_STAR] if projected else []
    return top().solve(t_end=t_end, h=h, method=METHODS[method], project_velocity_at=at)


def hidden(sol: ga.Solution) -> np.ndarray:
    """Residual B(q) v (N+1, 3) of the hidden constraints (4)."""
    p = top()
    return np.asarray(jax.vmap(lambda t, q, v: p.system.g_dot(t, q, v, p.args))(sol.t, sol.q, sol.v))


def multipliers(t: Any) -> np.ndarray:
    """The true λ at the times t."""
    reference = top().reference
    assert reference is not None
    return np.asarray(reference(t).lam)


def relative_error(sol: ga.Solution) -> np.ndarray:
    """‖λ(t_n) − λ_n‖/‖λ_n‖ (N+1,)."""
    return np.linalg.norm(sol.lam_method - multipliers(sol.t), axis=1) / np.linalg.norm(
        sol.lam_method, axis=1
    )
