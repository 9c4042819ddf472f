"""Errors at the start of a run: values that are not finite, broken constraints, dependent constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.errors import InconsistentInitialValues, NoMultipliers, RedundantConstraints, SingularSystem
from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.labels import Labels
from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import SIGNATURES, System
from genalpha.numerics import codes

TOLERANCE = 1e-8  # for constraint residuals at the start, relative to 1 + |q|
RANK_TOLERANCE = 1e-11  # below this relative distance a scaled constraint row depends on the others
NEARLY = 1e-3  # below this singular value rows are nearly dependent, and a message names them
_CLEARLY = 1e-6  # above this relative distance rows are clearly independent


def consistent(begin: Beginning) -> Any:
    """Whether q0 and v0 satisfy the constraints at the start. Works under JAX transforms too."""
    residuals = jnp.concatenate([begin.g, begin.g_dot, begin.k])
    return jnp.all(jnp.abs(residuals) <= TOLERANCE * (1 + jnp.max(jnp.abs(begin.state.q))))


def examine(begin: Beginning, initial: str, system: System) -> None:
    """Raise an error if the start is not finite, not consistent, redundant or singular."""
    if not isinstance(begin.M, np.ndarray):
        begin = jax.tree.map(np.asarray, begin)
    finite(system.labels, mass=begin.M, force=begin.applied, holonomic=begin.g, nonholonomic=begin.k)
    if not np.isfinite(begin.rows).all():
        raise ValueError("the derivative of a constraint is NaN or infinite at the start: check it at q0")
    if initial == "check":
        consistency(begin.state.q, begin.g, begin.g_dot, begin.k, system.labels)
    _rank(begin, system)
    if int(begin.report.status) != codes.SUCCESS:
        _unsolvable(begin, system.labels)


def finite(labels: Labels, **values: Any) -> None:
    """Raise an error if a value at the start, given by the name of its function, is not finite."""
    for name, value in values.items():
        if not np.isfinite(value).all():
            entries = np.argwhere(~np.isfinite(value)).tolist()
            where = ", ".join(str(i) if len(i) > 1 else f"{i[0]}{labels.told(name, i[0])}" for i in entries)
            raise ValueError(f"{name}{SIGNATURES[name]} is NaN or infinite at the start, entries [{where}]")


def row_names(m: int, p: int, labels: Labels) -> list[str]:
    """The names of all constraints in messages."""
    return [labels.row("holonomic", i) for i in range(m)] + [labels.row("nonholonomic", i) for i in range(p)]


def consistency(q: Any, g: Any, g_dot: Any, k: Any, labels: Labels) -> None:
    """Raise an error if constraints are broken at the start, from q (size,), g and g_dot (m,), k (p,)."""
    m, p = g.size, k.size
    residuals = np.concatenate([g, g_dot, k])
    tolerance = TOLERANCE * (1 + np.abs(q).max())
    names = row_names(m, p, labels)
    names[m:m] = [f"d/dt {name}" for name in names[:m]]
    broken = [
        f"{name} = {value:.3g}"
        for name, value in zip(names, residuals, strict=True)
        if not abs(value) <= tolerance
    ]
    if broken:
        error = InconsistentInitialValues(
            f"q0, v0 break {len(broken)} of {2 * m + p} constraints at the start "
            f"(tolerance {TOLERANCE:g} (1 + |q|)): {some(broken)}. "
            "Correct q0 and v0, or pass initial='project' to move them onto the constraints."
        )
        error.broken = some(broken)
        raise error


def _rank(begin: Beginning, system: System) -> None:
    """Raise an error if rows of (G; K) depend on rows before them. The message names them."""
    rows = begin.rows
    if independent(rows):
        return
    names = row_names(begin.g.size, begin.k.size, system.labels)
    kept: list[int] = []
    dependent: list[str] = []
    for i, row in enumerate(rows):
        norm = np.linalg.norm(row)
        if norm == 0:
            dependent.append(f"{names[i]} does not depend on the motion at all (its gradient is zero)")
            continue
        rest, combination = row, np.zeros(0)
        if kept:
            combination = np.linalg.lstsq(rows[kept].T, row, rcond=None)[0]
            rest = row - combination @ rows[kept]
        if np.linalg.norm(rest) > RANK_TOLERANCE * norm:
            kept.append(i)
            continue
        others = [names[j] for j, c in zip(kept, combination, strict=True) if abs(c) > 1e-8]
        dependent.append(f"{names[i]} is a combination of {', '.join(others)}")
    if dependent:
        raise RedundantConstraints(
            f"{len(dependent)} of {len(rows)} constraints are redundant at the start, so their multipliers "
            f"are not unique: {some(dependent)}. Remove the redundant ones, or pass redundant='min_norm' to "
            "ga.solve. If they are dependent only at this configuration, it is a kinematic singularity: "
            "start elsewhere." + _ignored(system.space)
        )


def independent(rows: Any) -> bool:
    """Whether rows (m + p, n) are clearly independent of each other, whatever their lengths."""
    if len(rows) < 2:
        return bool(rows.any()) or not len(rows)
    lengths = np.sqrt((rows * rows).sum(axis=1))
    if not (lengths > 0).all():
        return False
    triangle: Any = np.linalg.qr((rows / lengths[:, None]).T, mode="r")
    remainders = triangle.diagonal()
    return len(remainders) == len(rows) and bool((np.abs(remainders) > _CLEARLY).all())


def _ignored(space: Space) -> str:
    """A hint for constraints that seem to be written for another space."""
    if not space.rotations:
        return ""
    return (
        f" Note that q lies in {space}. Its quaternions (w, x, y, z) are no angles, and need no constraint "
        "to keep their length. Gradients are taken with respect to the velocities of the space."
    )


def _unsolvable(begin: Beginning, labels: Labels) -> None:
    if int(begin.report.status) == codes.SINGULAR:
        rows = np.asarray(begin.rows)
        names = row_names(begin.g.size, begin.k.size, labels)
        nearly = dependence(rows, rows, names, float(begin.state.t)) if len(rows) else ""
        condition = float(begin.report.condition)
        number = f" (condition number {condition:.1e})" if np.isfinite(condition) else ""
        raise SingularSystem(
            "the accelerations are not determined at the start: the matrix of mass and constraints is "
            f"singular{number}. Either the mass matrix is singular for motions that the constraints allow "
            "(check for massless coordinates), or a reaction of your own does not act against a constraint, "
            "at least not at the multipliers from which Newton's iteration starts (see the argument "
            "multipliers)." + (f" {nearly}." if nearly else "")
        )
    raise NoMultipliers(
        "found no consistent accelerations and multipliers at the start: "
        + codes.reason(int(begin.report.status))
        + f" ({int(begin.report.iterations)} iterations on the equations of motion and hidden constraints)"
    )


def dependence(rows: np.ndarray, before: np.ndarray, names: list[str], t: float) -> str:
    """A message that names the scaled constraint rows (m + p, n) that are nearly dependent at t.

    The measure is the smallest singular value of the rows, divided by the lengths of the rows ``before``.
    The rows with large entries in its singular vector are named. Empty if no rows are nearly dependent.
    """
    lengths = np.linalg.norm(before, axis=1, keepdims=True)
    if not (np.isfinite(rows).all() and np.isfinite(lengths).all()):
        return ""
    left, sizes, _ = np.linalg.svd(rows / np.where(lengths > 0, lengths, 1.0))
    ratio = sizes[-1] / max(sizes[0], 1.0)
    if ratio > NEARLY:
        return ""
    share = np.abs(left[:, -1])
    involved = [name for name, x in zip(names, share, strict=True) if x > 0.1 * share.max()]
    return (
        f"Near t = {t:.9g} the gradients of {some(involved)} become dependent, or vanish: their smallest "
        f"singular value falls to {ratio:.1e}"
    )


def some(items: Sequence[str], most: int = 6) -> str:
    rest = f"; and {len(items) - most} more" if len(items) > most else ""
    return "; ".join(items[:most]) + rest
