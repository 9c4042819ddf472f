"""Unit quaternions whose derivatives go through three small turns.

A rotation R that turns by a small δ, in the axes of the body, changes by R δ̃, and its quaternion p by
½ p (0, δ). These are products with entries of R and p alone. The derivatives of the four entries of p, and
of R as a function of them, would take several times as many operations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.compiler.graph import ONE, ZERO, Graph
from genalpha.compiler.reader import Reader, Symbols, Value, inline, nodes
from genalpha.compiler.stated import Rule
from genalpha.numerics import turns as formulas

Nodes = tuple[int, ...]
Put = Callable[[np.ndarray], np.ndarray]
# R δ̃: for every column, two turns with the columns of R, and the signs, that they are multiplied with.
_COLUMNS = (((2, 1, 1), (1, 2, -1)), ((0, 2, 1), (2, 0, -1)), ((1, 0, 1), (0, 1, -1)))
# p (0, δ): for every entry and each turn, an entry of p and its sign.
_ENTRIES = (
    ((1, -1), (2, -1), (3, -1)),
    ((0, 1), (3, -1), (2, 1)),
    ((3, 1), (0, 1), (1, -1)),
    ((2, -1), (1, 1), (0, 1)),
)


class GivenRotation(NamedTuple):
    """A rotation that is computed elsewhere: its quaternion, its matrix, and the tangent of its increment."""

    quaternion: Nodes
    matrix: list[list[int]]
    tangent: list[list[int]]


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make each thing once for a graph."""

    @functools.wraps(function)
    def found(graph: Graph, *given: Any) -> Any:
        key = (function, *given)
        if key not in graph.made:
            graph.made[key] = function(graph, *given)
        return graph.made[key]

    return found


@_once
def nudged(graph: Graph, base: Nodes, turns: Nodes) -> Nodes:
    """The quaternion ``base`` with further derivatives: with respect to small ``turns`` (3,), now zero."""
    if all(i == ZERO for i in turns):
        return base
    half: Any = lambda j, sign: graph.mul(graph.constant(0.5 * sign), found[j])

    def rule(j: int) -> Rule:
        partials = lambda: [*((turns[k], half(*_ENTRIES[j][k])) for k in range(3)), (base[j], ONE)]
        again = lambda put: nudged(graph, _put(put, base), _put(put, turns))[j]
        return Rule((*turns, base[j]), partials, again=again)

    found: Nodes = tuple(graph.stated(base[j], rule(j), ("nudged", base, turns, j)) for j in range(4))
    graph.turned[found] = base, turns
    return found


@_once
def retracted(graph: Graph, start: Nodes, d: Nodes) -> Nodes:
    """The quaternion start ∘ exp(d)."""
    point = None if graph.seek is None else graph.seek(start, d)
    value = reached(graph, start, d) if point is None else point.quaternion
    base = _carried(graph, value, start, d)
    if point is not None:
        graph.given |= {("matrix", base): point.matrix, ("tangent", d): point.tangent}
    return nudged(graph, base, _turns(graph, d))


def reached(graph: Graph, start: Nodes, d: Nodes) -> Nodes:
    """The same, without derivatives."""
    return tuple(read(graph, formulas.retract.plain, start, d).tolist())


def tangent(graph: Graph, d: Nodes) -> list[list[int]]:
    """T (3, 3) with exp(d + ε) = exp(d) ∘ exp(T ε) for small ε."""
    return graph.given.get(("tangent", d)) or read(graph, formulas.tangent, d).tolist()


@_once
def matrix(graph: Graph, p: Nodes) -> list[list[int]]:
    """The rotation matrix (3, 3) of a quaternion."""
    if p not in graph.turned:
        return read(graph, formulas.matrix.plain, p).tolist()
    base, turns = graph.turned[p]
    plain = matrix(graph, base)

    def rule(i: int, j: int) -> Rule:
        def partials() -> list[tuple[int, int]]:
            by = [(turns[k], graph.mul(graph.constant(sign), found[i][m])) for k, m, sign in _COLUMNS[j]]
            return [*by, (plain[i][j], ONE)]

        return Rule((*turns, plain[i][j]), partials, again=lambda put: matrix(graph, _put(put, p))[i][j])

    value = graph.given.get(("matrix", base), plain)
    stated = lambda i, j: graph.stated(value[i][j], rule(i, j), ("matrix", p, i, j))
    found = [[stated(i, j) for j in range(3)] for i in range(3)]
    return found


@_once
def rotated(graph: Graph, p: Nodes, x: Nodes) -> list[int]:
    """A vector x (3,) turned by a quaternion."""
    if p not in graph.turned:
        return read(graph, formulas.rotate.plain, p, x).tolist()
    rows = [[graph.mul(a, b) for a, b in zip(row, x, strict=True)] for row in matrix(graph, p)]
    return [functools.reduce(graph.add, row) for row in rows]


@_once
def vector(graph: Graph, R: Nodes) -> Nodes:
    """The rotation vector w (3,) of a rotation matrix, given row by row: R' = R δ̃ makes w' = T⁻¹ δ."""
    value = tuple(read(graph, formulas.vector.plain, R).tolist())
    given = tuple(i for i in R if i not in graph.constants)

    def turns() -> list[int]:
        """δ: products of columns of R, of which the first are held."""
        rows = [R[3 * i : 3 * i + 3] for i in range(3)]
        pairs = [
            [graph.mul(graph.stopped(row[m]), row[j]) for row in rows] for m, j in ((2, 1), (0, 2), (1, 0))
        ]
        return [functools.reduce(graph.add, pair) for pair in pairs]

    def rule(k: int) -> Rule:
        partials = lambda: list(zip(turns(), read(graph, formulas.untwist, found)[k].tolist(), strict=True))
        again = lambda put: vector(graph, _put(put, R))[k]
        return Rule(given, partials, lambda: given, again)

    if not given:
        return value
    found = tuple(graph.stated(value[k], rule(k), ("vector", R, k)) for k in range(3))
    return found


@_once
def _carried(graph: Graph, value: Nodes, start: Nodes, d: Nodes) -> Nodes:
    """The quaternion ``value`` = start ∘ exp(d), whose derivatives are those with respect to its start."""
    given = tuple(i for i in start if i not in graph.constants)
    if not given:
        return tuple(graph.stopped(i) for i in value)

    def rule(j: int) -> Rule:
        partials = lambda: list(zip(start, read(graph, formulas.carry, d)[j].tolist(), strict=True))
        again = lambda put: _carried(graph, *(_put(put, x) for x in (value, start, d)))[j]
        return Rule(given, partials, again=again)

    return tuple(graph.stated(value[j], rule(j), ("carried", value, start, d, j)) for j in range(4))


@_once
def _turns(graph: Graph, d: Nodes) -> Nodes:
    """Small turns (3,), which are zero, of exp(d)."""
    given = tuple(i for i in d if i not in graph.constants)

    def rule(k: int) -> Rule:
        partials = lambda: list(zip(d, tangent(graph, d)[k], strict=True))
        return Rule(given, partials, again=lambda put: _turns(graph, _put(put, d))[k])

    if not given:
        return (ZERO,) * 3
    found = tuple(graph.stated(ZERO, rule(k), ("turn", d, k)) for k in range(3))
    graph.turns.update(found)
    return found


def _put(put: Put, ids: Sequence[int]) -> Nodes:
    return tuple(put(np.array(ids, dtype=np.int64)).tolist())


@_once
def read(graph: Graph, formula: Callable[..., Any], *inputs: Nodes) -> np.ndarray:
    """A formula of vectors, or of a matrix (3, 3), as nodes."""
    template = _template(formula, *map(len, inputs))
    known = dict(zip(template.inputs, (i for ids in inputs for i in ids), strict=True))
    for i, op, needs, value in template.steps:
        if value is None:
            known[i] = graph.make(op, *(known[j] for j in needs))
        else:
            known[i] = graph.flag(bool(value)) if op == "flag" else graph.constant(value)
    return np.array([known[i] for i in template.outputs.reshape(-1).tolist()]).reshape(template.outputs.shape)


class Template(NamedTuple):
    """A formula as a list of scalar operations: number, name, inputs, and the value of constants."""

    inputs: Nodes
    steps: list[tuple[int, str, Nodes, float | None]]
    outputs: np.ndarray


@functools.cache
def _template(formula: Callable[..., Any], *sizes: int) -> Template:
    graph = Graph()
    given = [graph.inputs((3, 3) if size == 9 else size) for size in sizes]
    found = inline(graph, formula, *(Symbols(ids, "f") for ids in given))
    variables = tuple(i for ids in given for i in ids.reshape(-1).tolist())
    used = [i for i in graph.reachable(found.reshape(-1).tolist()) if i not in variables]
    steps = [(i, *graph.nodes[i][:2], graph.constants.get(i)) for i in used]
    return Template(variables, steps, found)


def _operation(known: formulas.Known, make: Callable[..., Any]) -> Callable[..., list[Value]]:
    """How the reader reads an operation, row by row."""

    def handler(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
        (variable,), graph = equation.outvars, reader.graph
        if not any(isinstance(x, Symbols) for x in inputs):
            return reader.closed(jax.make_jaxpr(known.rows)(*(v.aval for v in equation.invars)), inputs)
        shaped = zip(inputs, known.shapes, strict=False)
        rows = zip(*(_rows(nodes(graph, x), int(np.prod(shape))) for x, shape in shaped), strict=True)
        found = np.array([make(graph, *row) for row in rows], dtype=np.int64)
        return [Symbols(found.reshape(variable.aval.shape), "f")]

    return handler


def _rows(ids: np.ndarray, size: int) -> list[Nodes]:
    return [tuple(row) for row in ids.reshape(-1, size).tolist()]


OPERATIONS = {
    known.operation.name: _operation(known, make)
    for known, make in (
        (formulas.matrix, matrix),
        (formulas.rotate, rotated),
        (formulas.retract, retracted),
        (formulas.nudge, nudged),
        (formulas.vector, vector),
    )
}
