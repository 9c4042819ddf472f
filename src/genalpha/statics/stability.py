"""Whether an equilibrium is stable."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from genalpha.backends.sparse.equations import AtState
from genalpha.statics import pencil
from genalpha.statics.tangent import DENSE
from genalpha.statics.variation import StatePoint, variation
from genalpha.statics.whole import WholeSystem

# Stiffness and growth count as zero below this, relative to the largest.
_NEUTRAL = 1e-9
# Matrices are symmetric up to this, relative to the largest entry.
SYMMETRIC = 1e-9


class Stability(NamedTuple):
    """The verdict, the smallest curvatures, the direction (n,) of the smallest, and a sentence.

    The direction is None if forces have no potential near the equilibrium.
    """

    stable: bool | None
    curvatures: np.ndarray
    way: np.ndarray | None
    message: str


def symmetric(K: Any) -> bool:
    """Whether a matrix, dense or sparse, is symmetric up to rounding."""
    size = abs(K).max() if K.size else 0.0
    return not size or bool(abs(K - K.T).max() <= SYMMETRIC * size)


def judged(whole: WholeSystem, at: AtState, lam: np.ndarray, psi: np.ndarray) -> Stability:
    """The stability of an equilibrium."""
    if whole.dims.n > DENSE:
        return _of_large(whole, at, lam, psi)
    rest = np.zeros(whole.dims.n)
    found = variation(whole, StatePoint(at.t, at.q, at.v, rest, lam, psi))
    r, s = found.sizes
    if not s:
        return Stability(True, np.zeros(0), None, "equilibrium: the constraints allow no motion")
    places, speeds = found.places  # type: ignore[misc]
    moving = whole.moved[speeds]
    w = found.w[:, r:][:, moving]
    mass = w.T @ found.M @ w
    # Positions move as velocities do, so those of the entries x follow from y.
    stiffness = -mass @ found.A[r:, :r][moving] @ w[places]
    growth = np.linalg.eigvals(found.A)
    size, worst = np.abs(growth).max(), growth.real.max()
    if moving.all() and symmetric(stiffness):
        values, vectors = scipy.linalg.eigh(0.5 * (stiffness + stiffness.T), mass)
        # Curvatures may be differences of large numbers, such as those of weights and reactions.
        parts = 1e-3 * (_size(whole.stiffness(at, lam, psi), at) + _weight(at, lam, psi))
        verdict = _by_curvature(values, w @ vectors[:, 0], max(np.abs(values).max(), parts))
        if verdict.stable and worst > _NEUTRAL**0.5 * size:  # damping that adds energy
            text = f"unstable equilibrium: an oscillation grows by {worst:.3g} per unit of time"
            return Stability(False, values[:6], None, text)
        return verdict
    values = np.sort(np.linalg.eigvals(np.linalg.solve(mass, stiffness)).real)
    if abs(worst) <= _NEUTRAL**0.5 * size:
        return Stability(None, values[:6], None, "equilibrium: the linear equations do not decide stability")
    word = "unstable" if worst > 0 else "stable"
    text = f"{word} equilibrium: the largest real part of the eigenvalues is {worst:.3g}"
    return Stability(bool(worst < 0), values[:6], None, text)


def _by_curvature(values: np.ndarray, way: np.ndarray, size: float) -> Stability:
    least = float(values[0])
    if least > _NEUTRAL * size:
        return Stability(True, values[:6], way, f"stable equilibrium: the least curvature is {least:.3g}")
    if least < -_NEUTRAL * size:
        text = f"unstable equilibrium: {int((values < -_NEUTRAL * size).sum())} curvatures are negative"
        return Stability(False, values[:6], way, f"{text}, the least is {least:.3g}")
    return Stability(None, values[:6], way, "equilibrium: a motion needs no force, so stability is undecided")


def _of_large(whole: WholeSystem, at: AtState, lam: np.ndarray, psi: np.ndarray) -> Stability:
    K = whole.stiffness(at, lam, psi)
    if not (whole.equations.linear and whole.moved.all() and symmetric(K)):
        return Stability(
            None, np.zeros(0), None, "equilibrium: stability was not judged, forces have no potential"
        )
    values, vectors = pencil.curvatures(K, at.M, at.B, np.asarray(at.scale.a), 6)
    return _by_curvature(values, vectors[:, 0], 1e-3 * (_size(K, at) + _weight(at, lam, psi)))


def _size(K: Any, at: AtState) -> float:
    """The size of a stiffness, as a square of frequencies."""
    return float(np.abs(K.diagonal() * np.asarray(at.scale.a) ** 2).max(initial=0.0))


def _weight(at: AtState, lam: np.ndarray, psi: np.ndarray) -> float:
    """The size of forces and reactions over masses and lengths, in the same units."""
    forces = np.abs(at.applied) + abs(at.B).T @ np.abs(np.concatenate([lam, psi]))
    return float((forces * np.asarray(at.scale.a) ** 2).max(initial=0.0) / (1 + np.abs(at.q).max()))
