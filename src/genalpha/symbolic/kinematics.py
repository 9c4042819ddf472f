"""Speeds as functions of coordinates and their derivatives: u = U(t, q) q' + w(t, q)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.csgraph
from sympy.physics.mechanics import dynamicsymbols

from genalpha.compiler import lu
from genalpha.compiler.graph import ONE, ZERO
from genalpha.symbolic.formulas import Formulas
from genalpha.symbolic.statement import Statement

_SAMPLES = 8
_SINGULAR = 1e-10  # relative to the largest entry
_COFACTORS = 4  # up to this size a matrix is inverted without choosing pivots


class Kinematics(NamedTuple):
    """The graph, the nodes of the speeds (nu,), and velocity constraints among the rates of coordinates.

    ``extra`` are the speeds that are derivatives of no coordinate. Each gets a coordinate of its own.
    """

    formulas: Formulas
    speeds: np.ndarray
    constraints: np.ndarray
    extra: list[int]


def solve(statement: Statement, given: Mapping[Any, Any], parameters: Mapping[str, float]) -> Kinematics:
    """Solve the kinematic equations for the speeds; ``given`` as in :class:`TimeFunctions`.

    With more coordinates than speeds, some equations are constraints of the coordinates. With fewer, some
    speeds are the derivatives of new coordinates, which nothing else depends on.
    """
    q, u = statement.coordinates, statement.speeds
    _checked(statement)
    extra = max(len(u) - len(q), 0)
    formulas = Formulas(q, extra)
    for function, expression in given.items():
        if expression is None:
            formulas.give(function)
        else:
            formulas.define(function, expression)
    for function in statement.auxiliary:
        formulas.state(function, ZERO, ZERO)
    if not statement.kinematics:
        rates = [x.diff(formulas.time) for x in q]
        order = [rates.index(speed) for speed in u] if u else range(len(q))
        return Kinematics(formulas, formulas.v[list(order)], np.zeros(0, np.int64), [])
    unknown = formulas.graph.inputs(len(u))
    for speed, node in zip(u, unknown.tolist(), strict=True):
        formulas.state(speed, node)
    rows = formulas.nodes(statement.kinematics, "a kinematic equation")
    matrix = formulas.jacobian(rows, unknown)
    if formulas.depends(matrix, unknown) or formulas.depends(matrix, formulas.v):
        raise ValueError("the kinematic equations are not linear in the speeds")
    rest = formulas.at_rest(rows, unknown)
    values = formulas.numbers(matrix, formulas.samples(_SAMPLES, parameters))
    chosen, lone = _split(values, [str(x) for x in u])
    columns = [k for k in range(len(u)) if k not in lone]
    square = matrix[np.ix_(chosen, columns)]
    found = np.full(len(u), ZERO, dtype=np.int64)
    found[lone] = formulas.v[len(q) :]
    right = formulas.matmul(matrix[np.ix_(chosen, lone)], found[lone]) if lone else np.full(len(chosen), ZERO)
    right = formulas.negative(formulas.add(rest[chosen], right))
    found[columns] = _solved(formulas, square, right, values[:, chosen][:, :, columns])
    others = [k for k in range(len(rows)) if k not in chosen]
    constraints = formulas.add(formulas.matmul(matrix[others], found), rest[others])
    formulas.forget(u)
    slopes = formulas.rate(found, accelerated=True)
    for speed, node, slope in zip(u, found.tolist(), slopes.tolist(), strict=True):
        formulas.state(speed, node, slope)
    return Kinematics(formulas, found, constraints, lone)


def _checked(statement: Statement) -> None:
    q, u = statement.coordinates, statement.speeds
    if not q:
        raise ValueError("there are no coordinates")
    listed = [*q, *u]
    twice = [str(x) for k, x in enumerate(listed) if x in listed[:k]]
    if twice:
        raise ValueError(f"listed twice among coordinates and speeds: {', '.join(twice)}")
    rates = [x.diff(dynamicsymbols._t) for x in q]
    own = [speed for speed in u if speed in rates]
    if len(own) == len(u) and len(u) in (0, len(q)):
        statement.kinematics = []
        return
    if own:
        raise ValueError(
            f"{own[0]} is among the speeds: let all speeds be derivatives of coordinates, or give each a name"
        )
    if not statement.kinematics:
        raise ValueError(
            f"kinematic equations are missing: say how the speeds {', '.join(map(str, u))} follow from the "
            "derivatives of the coordinates"
        )
    if len(statement.kinematics) != len(q):
        raise ValueError(
            f"there are {len(statement.kinematics)} kinematic equations for {len(q)} coordinates: "
            "one for each is needed"
        )


def _split(values: np.ndarray, names: list[str]) -> tuple[list[int], list[int]]:
    """Rows of the equations that determine the speeds, and speeds that are in none; for (K, q, u) numbers."""
    _, rows, columns = values.shape
    sizes = np.abs(values).max(initial=0.0)
    typical = values[np.abs(np.linalg.svd(values, compute_uv=False)).min(axis=1).argmax()]
    rank = np.linalg.matrix_rank(typical, tol=_SINGULAR * sizes)
    if rank < min(rows, columns):
        idle = [name for name, column in zip(names, typical.T, strict=True) if not column.any()]
        which = f" {', '.join(idle)}" if idle else ""
        raise ValueError(f"the kinematic equations do not determine the speeds{which}")
    pick = lambda matrix: scipy.linalg.qr(matrix, mode="r", pivoting=True)[1].tolist()
    lone = sorted(pick(typical)[rows:]) if columns > rows else []
    chosen = sorted(pick(typical.T)[:columns]) if rows > columns else list(range(rows))
    return chosen, lone


def _solved(formulas: Formulas, matrix: np.ndarray, right: np.ndarray, values: np.ndarray) -> np.ndarray:
    """matrix⁻¹ right (N,), as nodes: block by block, the small ones by cofactors, which need no pivots."""
    linked = scipy.sparse.csgraph.connected_components(_bipartite(matrix != ZERO), directed=False)[1]
    size, result = len(matrix), np.full(len(matrix), ZERO, dtype=np.int64)
    for label in np.unique(linked):
        rows, columns = (np.flatnonzero(part == label) for part in (linked[:size], linked[size:]))
        at = np.ix_(rows, columns)
        result[columns] = _block(formulas, matrix[at], right[rows], values[:, rows][:, :, columns])
    return result


def _bipartite(pattern: np.ndarray) -> np.ndarray:
    none = np.zeros_like(pattern)
    return np.block([[none, pattern], [pattern.T, none]])


def _block(formulas: Formulas, matrix: np.ndarray, right: np.ndarray, values: np.ndarray) -> np.ndarray:
    graph, size = formulas.graph, len(matrix)
    if size > _COFACTORS:
        order = lu.choose(matrix != ZERO, values)
        if order is None:
            raise ValueError("the kinematic equations are singular")
        return lu.solve(graph, lu.factor(graph, matrix, order), right)
    over = graph.div(ONE, _determinant(formulas, matrix))
    result = []
    for k in range(size):
        replaced = matrix.copy()
        replaced[:, k] = right
        result.append(graph.mul(_determinant(formulas, replaced), over))
    return np.array(result, dtype=np.int64)


def _determinant(formulas: Formulas, matrix: np.ndarray) -> int:
    graph = formulas.graph
    if len(matrix) == 1:
        return int(matrix[0, 0])
    total = ZERO
    for k, x in enumerate(matrix[0].tolist()):
        if x != ZERO:
            minor = np.delete(matrix[1:], k, axis=1)
            term = graph.mul(x, _determinant(formulas, minor))
            total = graph.sub(total, term) if k % 2 else graph.add(total, term)
    return total
