"""Closing the joints of a model: positions by a damped Gauss-Newton iteration, velocities, and ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.linalg

from genalpha.backends.sparse import models
from genalpha.backends.sparse.equations import AtState, Equations
from genalpha.backends.sparse.projection import Projector
from genalpha.mechanics.system import Dims
from genalpha.statics import positions

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

# Rows are redundant if a combination of the others comes as close to them, in units of their length.
RANK = 1e-8
# The most rows whose rank is found.
MOST_ROWS = 3000
_FAR = 0.02  # how far a mechanism is moved to see whether a dependence is one of this position alone


class Row(NamedTuple):
    """One row of a constraint: the joint, the name of the row, and its place among those of its joint."""

    joint: Any
    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.joint.name!r}, {self.name}"


class Closed(NamedTuple):
    """What closing the joints of a model has found.

    ``freedom`` is the number of degrees of freedom. ``redundant`` are names of rows that depend on others,
    and were left out if ``dropped``. ``gap`` is the largest error of a joint before it was closed.
    """

    freedom: int
    redundant: tuple[str, ...]
    dropped: bool
    gap: float

    def __str__(self) -> str:
        text = f"{self.freedom} degrees of freedom"
        if self.redundant:
            what = "left out" if self.dropped else "redundant"
            text += f"; {what}: " + "; ".join(self.redundant)
        return text


class Geometry:
    """The constraints of a model at any positions and velocities."""

    def __init__(self, model: Model, args: Any = ()) -> None:
        self.model, system = model, model.system
        parts = models.of_parts(system, args)
        size, n = len(model.q0), len(model.v0)
        self.m = sum(at.g.size for at in system.places)
        self.p = sum(at.k.size for at in system.places)
        functions = system._programs.made(("multibody",), dict)
        self.equations = Equations(parts, Dims(size, n, self.m, self.p), functions, system.labels)
        self.retract = Projector(models.of_nodes(system), self.equations).retract

    def at(self, q: np.ndarray, v: np.ndarray, t: float = 0.0) -> AtState:
        return self.equations.at(t, q, v)

    def rows(self) -> list[Row]:
        """All rows, holonomic ones first, in the order of λ and ψ."""
        found: list[list[Row]] = [[], []]
        for group in self.model.groups:
            for member in group.members:
                for rows, speeds in zip(found, (False, True), strict=True):
                    rows += [Row(member, name, i) for i, name in member.kept(speeds)]
        return found[0] + found[1]


def closed(model: Model, hold: Sequence[str], redundant: str) -> Closed:
    """Close the joints of a model, and move its bodies."""
    if redundant not in ("error", "drop", "keep"):
        raise ValueError(f"redundant must be 'error', 'drop' or 'keep', got {redundant!r}")
    geometry, free = Geometry(model), _free(model, hold)
    q, gap = _positions(geometry, model.q0, model.v0, free)
    v = _velocities(geometry, q, model.v0, free)
    model.place(q, v)
    dependent, freedom = _dependent(geometry, q, v)
    names = tuple(str(row) for row in dependent)
    if dependent and redundant == "error":
        raise ValueError(
            f"{len(names)} rows of joints depend on others: {'; '.join(names)}. Pass redundant='drop' to "
            "leave them out, or 'keep' and solve(..., redundant='min_norm') for reactions of least norm"
        )
    if redundant == "drop":
        model.drop([(row.joint, row.number) for row in dependent])
    return Closed(freedom, names, redundant == "drop", gap)


def _free(model: Model, hold: Sequence[str]) -> np.ndarray:
    """Which velocities (n,) may change: one or zero."""
    held = [hold] if isinstance(hold, str) else list(hold)
    bodies = {body.name for body in model.bodies}
    for name in held:
        if name not in bodies:
            raise ValueError(f"hold names {name!r}, which is no body of the model: {model.nearest(name)}")
    parts = [np.full(body.kind.sizes[1], float(body.name not in held)) for body in model.bodies]
    return np.concatenate(parts)


def _positions(
    geometry: Geometry, q: np.ndarray, v: np.ndarray, free: np.ndarray
) -> tuple[np.ndarray, float]:
    found = positions.closed(lambda q: geometry.at(q, v), geometry.retract, q, free)
    if found.open:
        raise _open(geometry, found.at)
    return found.q, found.first


def _open(geometry: Geometry, at: AtState) -> ValueError:
    """The error that names the joints that stay open."""
    gaps: dict[str, list[str]] = {}
    for row, value in zip(geometry.rows(), at.g, strict=False):
        if abs(value) > 1e-6:
            gaps.setdefault(repr(row.joint.name), []).append(f"{row.name}: {value:.3g}")
    listed = "; ".join(f"{name} ({', '.join(parts)})" for name, parts in list(gaps.items())[:6])
    return ValueError(
        f"{len(gaps)} joints cannot be closed from where the bodies are, and stay open by: {listed}. Check "
        "lengths and frames, or put the bodies nearer to where they belong"
    )


def _velocities(geometry: Geometry, q: np.ndarray, v: np.ndarray, free: np.ndarray) -> np.ndarray:
    for _ in range(5):
        at = geometry.at(q, v)
        value = np.concatenate([at.g_dot, at.k])
        if np.abs(value).max(initial=0.0) <= 1e-13 * (1 + np.abs(v).max(initial=0.0)):
            return v
        v = v + positions.least(at.B, -value, free)
    at = geometry.at(q, v)
    worst = np.abs(np.concatenate([at.g_dot, at.k])).max(initial=0.0)
    if worst > 1e-9 * (1 + np.abs(v).max(initial=0.0)):
        raise ValueError(
            f"no velocities satisfy all joints: the constraints on velocities are broken by {worst:.3g}. "
            "Hold fewer bodies, or check prescribed motions"
        )
    return v


def _rank(B: np.ndarray) -> np.ndarray:
    """Numbers of rows that are independent: the first ones where they are far enough from each other.

    So the rows that are left out belong to few joints.
    """
    lengths = np.linalg.norm(B, axis=1)
    unit = B / np.where(lengths > 0, lengths, 1.0)[:, None]
    if not unit.size:
        return np.zeros(0, int)
    triangle, order = scipy.linalg.qr(unit.T, mode="r", pivoting=True)
    best = np.sort(order[: int((np.abs(np.diagonal(triangle)) > RANK).sum())])
    if len(best) == len(B):
        return best
    first: list[int] = []
    basis = np.zeros((B.shape[1], 0))
    for i, row in enumerate(unit):
        rest = row - basis @ (basis.T @ row)
        rest -= basis @ (basis.T @ rest)
        if np.linalg.norm(rest) > _FAR:
            first.append(i)
            basis = np.column_stack([basis, rest / np.linalg.norm(rest)])
    return np.array(first) if len(first) == len(best) else best


def _dependent(geometry: Geometry, q: np.ndarray, v: np.ndarray) -> tuple[list[Row], int]:
    """Rows that depend on others here and nearby, and the degrees of freedom."""
    n, rows = len(v), geometry.rows()
    if len(rows) > MOST_ROWS:
        return [], n - len(rows)
    B = geometry.at(q, v).B.toarray()
    kept = _rank(B)
    if len(kept) < len(rows):  # somewhere else there may be more
        basis = scipy.linalg.null_space(B) if n > len(kept) else np.zeros((n, 0))
        if basis.size:
            away = basis @ np.random.default_rng(0).normal(size=basis.shape[1])
            there = geometry.retract(q, _FAR * away / np.abs(away).max())
            try:
                there, _ = _positions(geometry, there, v, np.ones(n))
            except ValueError:
                there = q
            elsewhere = _rank(geometry.at(there, v).B.toarray())
            kept = elsewhere if len(elsewhere) > len(kept) else kept
    left = sorted(set(range(len(rows))) - set(kept.tolist()))
    return [rows[i] for i in left], n - len(kept)
