"""What may be wrong with the start of a large assembly. Messages name the parts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from genalpha.backends.sparse.equations import AtState
from genalpha.backends.sparse.start import SparseStart
from genalpha.errors import InconsistentInitialValues, RedundantConstraints, SingularSystem
from genalpha.mechanics.start_errors import TOLERANCE, some

_SHIFT = 1e-9  # added to the diagonal of constraints to find those that are dependent
_TURNS = 3  # of an inverse iteration
_SHARE = 0.1  # rows with this share of the largest entry of a vector are named


def examine(at: AtState, initial: str) -> None:
    """Raise an error if a start is not finite or not consistent."""
    if not at.finite():
        bad = not_finite(at, "at the start")
        if bad:
            raise ValueError(bad)
        raise ValueError("the derivative of a constraint is NaN or infinite at the start: check it at q0")
    if initial == "check":
        _consistent(at)


def not_finite(at: AtState, where: str) -> str:
    """The first function of a part that is NaN or infinite; empty if there is none."""
    names = {"M": "mass", "applied": "force", "g": "holonomic", "k": "nonholonomic"}
    for model, terms in zip(at.parts, at.terms, strict=True):
        for field, name in names.items():
            bad = np.flatnonzero(~np.isfinite(getattr(terms, field)).reshape(model.copies, -1).all(axis=1))
            if bad.size:
                return f"{name} of {model.label} is NaN or infinite {where}, copies {bad[:6].tolist()}"
    return ""


def detail(before: AtState, after: AtState) -> str:
    """What is wrong with the step between two states, in one sentence; empty if nothing was found."""
    found = not_finite(before, "at the last row") or not_finite(after, "one step after the last row")
    if found or not (before.finite() and after.finite()):
        return found
    try:
        _dependent(after)
    except RedundantConstraints as error:
        return f"Near t = {after.t:.9g} {error}"
    return ""


def _consistent(at: AtState) -> None:
    tolerance = TOLERANCE * (1 + np.abs(at.q).max())
    broken = []
    for name, rows, values in (("", "g", at.g), ("d/dt ", "g", at.g_dot), ("", "k", at.k)):
        for i in np.flatnonzero(~(np.abs(values) <= tolerance)).tolist():
            broken.append(f"{name}{row_name(at, rows, i)} = {values[i]:.3g}")
    if broken:
        error = InconsistentInitialValues(
            f"q0, v0 break {len(broken)} of {2 * at.dims.m + at.dims.p} constraints at the start "
            f"(tolerance {TOLERANCE:g} (1 + |q|)): {some(broken)}. "
            "Correct q0 and v0, or pass initial='project' to move them onto the constraints."
        )
        error.broken = some(broken)
        raise error


def row_name(at: AtState, kind: str, i: int) -> str:
    """Constraint i in messages: its part, copy and number, and its name if it has one."""
    what = "holonomic" if kind == "g" else "nonholonomic"
    told = at.equations.labels.told(what, i)
    for model in at.parts:
        places = getattr(model.places, kind)
        if places.size and places[0, 0] <= i <= places[-1, -1]:
            copy, row = divmod(i - int(places[0, 0]), places.shape[1])
            return f"{what}[{row}] of copy {copy} of {model.label}{told}"
    return f"{what}[{i}]{told}"


@contextlib.contextmanager
def explaining(at: AtState) -> Iterator[None]:
    """Explain a singular matrix at the start."""
    try:
        yield
    except RuntimeError as error:
        if "singular" not in str(error):
            raise
        _dependent(at)
        raise SingularSystem(_SINGULAR) from error


_SINGULAR = (
    "the accelerations are not determined at the start: the matrix of mass and constraints is singular. The "
    "mass matrix may be singular for motions that the constraints allow (check for massless coordinates), or "
    "a reaction of your own does not act against a constraint, at least not at the multipliers from which "
    "Newton's iteration starts (see the argument multipliers)."
)


def solved(at: AtState, start: SparseStart) -> None:
    """Raise an error if the accelerations and multipliers at the start are not determined."""
    size = np.abs(np.concatenate([start.state.a / start.scale.a, start.state.lam / start.scale.lam])).max(
        initial=0.0
    )
    forces = np.abs(start.scale.a * at.applied).max(initial=0.0) + np.abs(start.scale.lam * at.g_ddot).max(
        initial=0.0
    )
    if not np.isfinite(size) or size > 1e10 * forces > 0:
        _dependent(at)
        raise SingularSystem(_SINGULAR)


def _dependent(at: AtState) -> None:
    """Raise an error that names dependent constraints, if there are any.

    The vector with (M Bᵀ; B −s) (x; y) = s (0; y) for a small s tends to combinations y of rows with Bᵀy = 0.
    """
    scale = at.scale
    weights = np.concatenate([scale.lam, scale.psi])
    a = sparse.diags(scale.a)
    M, B = a @ at.M @ a, sparse.diags(weights) @ at.B @ a
    n, rows = M.shape[0], B.shape[0]
    if not rows:
        return
    try:
        factors = splu(sparse.bmat([[M, B.T], [B, -_SHIFT * sparse.eye(rows)]], format="csc"))
    except RuntimeError:
        return
    y = np.random.default_rng(0).normal(size=rows)
    for _ in range(_TURNS):
        y = factors.solve(np.concatenate([np.zeros(n), y]))[n:]
        y /= np.abs(y).max()
    if np.abs(B.T @ y).max() > 1e-6 * np.sqrt(rows):
        return
    involved = np.flatnonzero(np.abs(y) > _SHARE)
    m = at.dims.m
    names = [row_name(at, "g", i) if i < m else row_name(at, "k", i - m) for i in involved.tolist()]
    raise RedundantConstraints(
        f"constraints depend on each other, so their multipliers are not unique: {some(names)}. Remove the "
        "redundant ones. If they are dependent only at this configuration, it is a kinematic singularity."
    )
