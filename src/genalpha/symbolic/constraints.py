"""Which constraints are holonomic, which are derivatives of others, and which are nonholonomic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from genalpha.symbolic.formulas import Formulas
from genalpha.symbolic.kinematics import Kinematics
from genalpha.symbolic.statement import Statement

_SAMPLES, _SMALL = 6, 1e-8
_STARTS, _TURNS, _CLOSED = 24, 30, 1e-11  # of Newton's method, to find points on the constraints


class Recognised(NamedTuple):
    """Holonomic (m,) and nonholonomic constraints (p,) as nodes, and their names."""

    holonomic: np.ndarray
    nonholonomic: np.ndarray
    names: dict[str, list[str]]


class _Rows:
    """Constraints as rows of numbers: values, and derivatives with respect to some variables."""

    def __init__(self, formulas: Formulas, values: np.ndarray, variables: np.ndarray) -> None:
        slopes = formulas.jacobian(values, variables)
        self._scalars = formulas.scalars(np.concatenate([slopes, values[:, None]], axis=1))
        self._shape = len(values), len(variables) + 1

    def at(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives (K, rows, variables) and values (K, rows) at K points."""
        numbers = self._scalars.evaluate(points).reshape(len(points), *self._shape)
        return numbers[..., :-1], numbers[..., -1]


def recognise(statement: Statement, kinematics: Kinematics, parameters: Mapping[str, float]) -> Recognised:
    """The constraints of a statement, without those that follow from others."""
    formulas = kinematics.formulas
    g = _configuration(statement, formulas)
    rates = formulas.rate(g)
    listed = formulas.nodes(statement.velocity, "a velocity constraint")
    k = np.concatenate([kinematics.constraints, listed]).astype(np.int64)
    expressions = ["of the kinematic equations"] * len(kinematics.constraints) + statement.velocity
    slopes = formulas.jacobian(k, formulas.v)
    accelerations = formulas.nodes(statement.acceleration, "an acceleration constraint")
    points = [formulas.samples(_SAMPLES, parameters), _closed(formulas, parameters, g)]
    kept: list[int] = []
    for i, expression in enumerate(expressions):
        if not slopes[i].any():
            raise ValueError(
                f"the velocity constraint {_short(expression)} depends on no speed: "
                "if it holds for coordinates, it is a configuration constraint"
            )
        before = _Rows(formulas, np.concatenate([rates, k[kept]]), formulas.v)
        relation = _relation(before, _Rows(formulas, k[[i]], formulas.v), points)
        if relation == "contradicts":
            raise ValueError(
                f"the velocity constraint {_short(expression)} contradicts other constraints: "
                "it is parallel to them, and no velocity satisfies all"
            )
        if relation != "follows":
            kept.append(i)
    if len(accelerations):
        velocities = np.concatenate([rates, k[kept]])
        _check_accelerations(statement.acceleration, accelerations, formulas, velocities, points)
    if set(formulas.parameters) <= set(parameters):
        _check_agreement(statement.configuration, formulas, g, parameters)
    names = {
        "holonomic": [f"configuration {i + 1}" for i in range(len(g))],
        "nonholonomic": [f"velocity {i + 1}" for i in range(len(kept))],
    }
    if statement.lagrangian is not None:  # as SymPy calls the multipliers
        names["holonomic"] = [f"lam{i + 1}" for i in range(len(g))]
        names["nonholonomic"] = [f"lam{len(g) + i + 1}" for i in kept]
    return Recognised(g, k[kept], names)


def _configuration(statement: Statement, formulas: Formulas) -> np.ndarray:
    g = formulas.nodes(statement.configuration, "a configuration constraint")
    for expression, node in zip(statement.configuration, g, strict=True):
        one = node[None]
        if formulas.depends(one, formulas.v) or formulas.depends(one, formulas.a):
            raise ValueError(
                f"the configuration constraint {_short(expression)} depends on speeds: "
                "it is a velocity constraint"
            )
        if not formulas.depends(one, formulas.q):
            raise ValueError(f"the configuration constraint {_short(expression)} depends on no coordinate")
    return g


def _relation(before: _Rows, one: _Rows, points: Sequence[np.ndarray]) -> str:
    """Whether a constraint "follows" from others or "contradicts" them; empty if neither.

    The points are points in general, and points at which the configuration constraints hold.
    """
    for at in [at for at in points if len(at)]:
        rows = zip(*before.at(at), *one.at(at), strict=True)
        found = [_compare(G, g, row[0], value[0]) for G, g, row, value in rows]
        parallel, equal = (all(each) for each in zip(*found, strict=True))
        if parallel and equal:
            return "follows"
        if parallel and at is points[-1] and not any(same for _, same in found):
            return "contradicts"
    return ""


def _compare(G: np.ndarray, g: np.ndarray, row: np.ndarray, value: float) -> tuple[bool, bool]:
    """Whether a row is a combination of rows G, and whether its value is that combination of g."""
    weights = np.linalg.lstsq(G.T, row, rcond=1e-12)[0]
    size = np.abs(row).max() + 1e-300
    scale = abs(value) + np.abs(weights) @ np.abs(g) + size
    parallel = np.abs(weights @ G - row).max() < _SMALL * size
    return bool(parallel), bool(abs(weights @ g - value) < _SMALL * scale)


def _closed(formulas: Formulas, parameters: Mapping[str, float], g: np.ndarray) -> np.ndarray:
    """Points (K, inputs) with g = 0, as many as Newton's method finds. Without constraints, any points."""
    points = formulas.samples(_STARTS, parameters)
    if not len(g):
        return points[:_SAMPLES]
    rows, at = _Rows(formulas, g, formulas.q), slice(1, 1 + len(formulas.q))
    for _ in range(_TURNS):
        slopes, values = rows.at(points)
        good = np.isfinite(slopes).all(axis=(1, 2)) & np.isfinite(values).all(axis=1)
        points, pairs = points[good], zip(slopes[good], values[good], strict=True)
        steps = np.array([np.linalg.lstsq(G, value, rcond=1e-10)[0] for G, value in pairs])
        steps = steps.reshape(len(points), len(formulas.q))
        points[:, at] -= steps / np.maximum(1.0, np.abs(steps).max(axis=1, keepdims=True))
    return points[np.abs(rows.at(points)[1]).max(axis=1) < _CLOSED][:_SAMPLES]


def _check_accelerations(
    expressions: Sequence[Any],
    listed: np.ndarray,
    formulas: Formulas,
    rates: np.ndarray,
    points: Sequence[np.ndarray],
) -> None:
    """Acceleration constraints must be derivatives of velocity constraints, which the integration upholds."""
    before = _Rows(formulas, formulas.rate(rates, accelerated=True), formulas.a)
    moving = [_moving(formulas, rates, at) for at in points]
    for i, expression in enumerate(expressions):
        if _relation(before, _Rows(formulas, listed[[i]], formulas.a), moving) != "follows":
            raise ValueError(
                f"the acceleration constraint {_short(expression)} is not the derivative of a velocity "
                "constraint: state the velocity constraint that it follows from"
            )


def _moving(formulas: Formulas, rates: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The points, with velocities that satisfy velocity constraints, if these are linear in them."""
    points, at = points.copy(), slice(1 + len(formulas.q), 1 + 2 * len(formulas.q))
    for point, G, value in zip(points, *_Rows(formulas, rates, formulas.v).at(points), strict=True):
        point[at] -= np.linalg.lstsq(G, value, rcond=1e-10)[0]
    return points


def _check_agreement(
    expressions: Sequence[Any], formulas: Formulas, g: np.ndarray, parameters: Mapping[str, float]
) -> None:
    """Configuration constraints whose gradients depend on each other must agree in value."""
    slopes = _Rows(formulas, g, formulas.q).at(formulas.samples(_SAMPLES, parameters))[0]
    for i in range(1, len(g)):
        ranks = [np.linalg.matrix_rank(slopes[:, :n], tol=_SMALL) for n in (i, i + 1)]
        if (ranks[0] < ranks[1]).any():
            continue
        closed = _closed(formulas, parameters, g[:i])
        if len(closed) and (np.abs(formulas.numbers(g[i], closed)) > _SMALL).all():
            raise ValueError(
                f"the configuration constraint {_short(expressions[i])} contradicts those before it: "
                "no position satisfies all of them"
            )


def _short(expression: Any) -> str:
    text = str(expression)
    return f"{text} = 0" if len(text) <= 60 else f"{text[:57]}... = 0"
