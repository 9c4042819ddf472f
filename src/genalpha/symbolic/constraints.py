"""Which constraints are configuration constraints, which are their derivatives, and which are nonholonomic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from genalpha.symbolic.formulas import Formulas
from genalpha.symbolic.kinematics import Kinematics
from genalpha.symbolic.statement import Statement

_SAMPLES, _SMALL = 6, 1e-8
_STARTS, _TURNS = 24, 40  # of Newton's method, to find points on the constraints


class Found(NamedTuple):
    """Holonomic (m,) and nonholonomic constraints (p,) as nodes, and their names."""

    holonomic: np.ndarray
    nonholonomic: np.ndarray
    names: dict[str, list[str]]


class _Rows:
    """Constraints as rows: derivatives with respect to q', v or v', and values that vanish with them."""

    def __init__(self, formulas: Formulas, slopes: np.ndarray, values: np.ndarray) -> None:
        self.formulas, self.slopes, self.values = formulas, slopes, values

    def at(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        both = np.concatenate([self.slopes, self.values[:, None]], axis=1)
        numbers = self.formulas.numbers(both, points)
        return numbers[..., :-1], numbers[..., -1]


def recognise(statement: Statement, kinematics: Kinematics, parameters: Mapping[str, float]) -> Found:
    """The constraints of a statement, without those that follow from others."""
    formulas = kinematics.formulas
    g = _configuration(statement, formulas)
    listed = formulas.nodes(statement.velocity, "a velocity constraint")
    k = np.concatenate([kinematics.constraints, listed]).astype(np.int64)
    expressions = [*["a kinematic equation"] * len(kinematics.constraints), *statement.velocity]
    for expression, slopes in zip(expressions, formulas.jacobian(k, formulas.v), strict=True):
        if not slopes.any():
            raise ValueError(
                f"the velocity constraint {_short(expression)} = 0 depends on no speed: "
                "if it holds for coordinates, it is a configuration constraint"
            )
    rates = formulas.rate(g)
    g_slopes, k_slopes = formulas.jacobian(rates, formulas.v), formulas.jacobian(k, formulas.v)
    points = _points(formulas, parameters, g)
    kept: list[int] = []
    for i, expression in enumerate(expressions):
        slopes = np.concatenate([g_slopes, k_slopes[kept]])
        before = _Rows(formulas, slopes, np.concatenate([rates, k[kept]]))
        one = _Rows(formulas, k_slopes[[i]], k[[i]])
        if not _follows(before, one, points, f"the velocity constraint {_short(expression)} = 0"):
            kept.append(i)
    _check_accelerations(statement, formulas, rates, k[kept], points)
    if set(formulas.parameters) <= set(parameters):
        _check_agreement(statement.configuration, formulas, g, parameters)
    names = {
        "holonomic": [f"configuration {i + 1}" for i in range(len(g))],
        "nonholonomic": [f"velocity {i + 1}" for i in range(len(kept))],
    }
    if statement.lagrangian is not None:  # as SymPy calls the multipliers
        names["holonomic"] = [f"lam{i + 1}" for i in range(len(g))]
        names["nonholonomic"] = [f"lam{len(g) + i + 1}" for i in kept]
    return Found(g, k[kept], names)


def _configuration(statement: Statement, formulas: Formulas) -> np.ndarray:
    g = formulas.nodes(statement.configuration, "a configuration constraint")
    for expression, node in zip(statement.configuration, g, strict=True):
        one = node[None]
        if formulas.depends(one, formulas.v) or formulas.depends(one, formulas.a):
            raise ValueError(
                f"the configuration constraint {_short(expression)} = 0 depends on speeds: it is a velocity constraint"
            )
        if not formulas.depends(one, formulas.q):
            raise ValueError(f"the configuration constraint {_short(expression)} = 0 depends on no coordinate")
    return g


def _follows(before: _Rows, one: _Rows, points: Sequence[np.ndarray], what: str) -> bool:
    """Whether a constraint is a combination of others, at points in general or at points on the constraints."""
    for at in points:
        if not len(at):
            continue
        slopes, values = before.at(at)
        row, value = one.at(at)
        apart, differ = [], []
        for G, g, k_row, k in zip(slopes, values, row[:, 0], value[:, 0], strict=True):
            weights = np.linalg.lstsq(G.T, k_row, rcond=1e-12)[0]
            size = np.abs(k_row).max() + 1e-300
            apart.append(np.abs(weights @ G - k_row).max() > _SMALL * size)
            scale = abs(k) + np.abs(weights) @ np.abs(g) + size
            differ.append(abs(weights @ g - k) > _SMALL * scale)
        if not any(apart):
            if all(differ):
                raise ValueError(f"{what} contradicts the other constraints: their left sides are parallel")
            if not any(differ):
                return True
    return False


def _points(formulas: Formulas, parameters: Mapping[str, float], g: np.ndarray) -> list[np.ndarray]:
    """Points in general position, and points at which the configuration constraints hold."""
    return [formulas.samples(_SAMPLES, parameters), _closed(formulas, parameters, g)]


def _closed(formulas: Formulas, parameters: Mapping[str, float], g: np.ndarray) -> np.ndarray:
    """Points (K, inputs) with g = 0, as many as Newton's method finds."""
    points = formulas.samples(_STARTS, parameters)
    if not len(g):
        return points[:0]
    rows, at = _Rows(formulas, formulas.jacobian(g, formulas.q), g), slice(1, 1 + len(formulas.q))
    for _ in range(_TURNS):
        slopes, values = rows.at(points)
        with np.errstate(all="ignore"):
            steps = np.stack([np.linalg.lstsq(G, v, rcond=1e-10)[0] for G, v in zip(slopes, values, strict=True)])
        length = np.abs(steps).max(axis=1, keepdims=True)
        points[:, at] -= steps / np.maximum(1.0, length)
    values = rows.at(points)[1]
    return points[np.abs(values).max(axis=1) < 1e-11][:_SAMPLES]


def _check_accelerations(
    statement: Statement, formulas: Formulas, rates: np.ndarray, k: np.ndarray, points: Sequence[np.ndarray]
) -> None:
    """Acceleration constraints must be derivatives of velocity constraints, which the integration upholds."""
    if not statement.acceleration:
        return
    listed = formulas.nodes(statement.acceleration, "an acceleration constraint")
    hidden = formulas.rate(np.concatenate([rates, k]), accelerated=True)
    before = _Rows(formulas, formulas.jacobian(hidden, formulas.a), hidden)
    slopes = formulas.jacobian(listed, formulas.a)
    moving = [_moving(formulas, np.concatenate([rates, k]), at) for at in points]
    for i, expression in enumerate(statement.acceleration):
        one = _Rows(formulas, slopes[[i]], listed[[i]])
        what = f"the acceleration constraint {_short(expression)} = 0"
        if not _follows(before, one, moving, what):
            raise ValueError(
                f"{what} is not the derivative of a velocity constraint: state the velocity constraint that it follows from"
            )


def _moving(formulas: Formulas, rows: np.ndarray, points: np.ndarray) -> np.ndarray:
    """The points, with velocities that satisfy the velocity constraints ``rows``, which are linear in them."""
    if not len(points) or not len(rows):
        return points
    slopes, values = _Rows(formulas, formulas.jacobian(rows, formulas.v), rows).at(points)
    points, count = points.copy(), len(formulas.q)
    for point, G, value in zip(points, slopes, values, strict=True):
        point[1 + count : 1 + 2 * count] -= np.linalg.lstsq(G, value, rcond=1e-10)[0]
    return points


def _check_agreement(
    expressions: Sequence[Any], formulas: Formulas, g: np.ndarray, parameters: Mapping[str, float]
) -> None:
    """Configuration constraints whose gradients depend on each other must agree in value."""
    slopes = formulas.jacobian(g, formulas.q)
    points = formulas.samples(_SAMPLES, parameters)
    for i in range(1, len(g)):
        ranks = [np.linalg.matrix_rank(_Rows(formulas, slopes[:n], g[:n]).at(points)[0], tol=_SMALL) for n in (i, i + 1)]
        if (ranks[0] < ranks[1]).any():
            continue
        closed = _closed(formulas, parameters, g[:i])
        if len(closed) and (np.abs(formulas.numbers(g[i], closed)) > _SMALL).all():
            raise ValueError(
                f"the configuration constraint {_short(expressions[i])} = 0 contradicts those before it: "
                "no position satisfies all of them"
            )


def _short(expression: Any) -> str:
    text = str(expression)
    return text if len(text) <= 60 else f"{text[:57]}..."
