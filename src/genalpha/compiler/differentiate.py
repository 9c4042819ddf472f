"""Derivatives of scalar expressions. Derivatives that are zero are not stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence

import numpy as np

from genalpha.compiler.arithmetic import SEARCHES
from genalpha.compiler.graph import FEW, ONE, ZERO, Graph, Unsupported
from genalpha.compiler.substitute import substitution

Slopes = dict[int, int]  # the derivatives of one node that are not zero, by variable


def jacobian(graph: Graph, outputs: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """The derivatives (N, M) of N expressions with respect to M inputs, as nodes; zeros are the node ZERO."""
    slopes: dict[int, Slopes] = {}
    for j, v in enumerate(variables.tolist()):
        slopes.setdefault(v, {})[j] = ONE
    between = _turns(graph, outputs.tolist(), slopes)
    _spread(graph, outputs.tolist(), slopes, ())
    result = np.full((len(outputs), len(variables)), ZERO, dtype=np.int64)
    for row, i in enumerate(outputs.tolist()):
        for column, slope in _through(graph, slopes.get(i, {}), between).items():
            result[row, column] = slope
    return result


def _turns(graph: Graph, outputs: list[int], slopes: dict[int, Slopes]) -> dict[int, Slopes]:
    """Small turns between variables and outputs, as variables of their own; returns the derivatives of each.

    All that depends on a rotation depends on three turns, and turns on the unknowns of a step. So their
    matrix is multiplied with once for each output, and not at every operation between. Where outputs depend
    on the same unknowns in other ways too, by velocities, this would take more operations.
    """
    found = [i for i in _below(graph, outputs, slopes) if i in graph.turns]
    if not found:
        return {}
    _spread(graph, found, slopes, ())
    others = {
        j for i in _below(graph, outputs, {*slopes, *found}) for j in _depends(graph, i) if j not in found
    }
    direct = {column for j in others for column in slopes.get(j, ())}
    between = {}
    for i in found:
        if i in slopes and not direct.intersection(slopes[i]):
            between[-i] = slopes[i]
            slopes[i] = {-i: ONE}
    return between


def _through(graph: Graph, slopes: Slopes, between: dict[int, Slopes]) -> Slopes:
    """Derivatives in which those with respect to turns are replaced."""
    total: Slopes = {column: slope for column, slope in slopes.items() if column not in between}
    for turn in between:
        if turn in slopes:
            for column, slope in between[turn].items():
                term = graph.mul(slopes[turn], slope)
                total[column] = graph.add(total[column], term) if column in total else term
    return total


def along(graph: Graph, outputs: np.ndarray, variables: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """The derivatives (N,) of N expressions along a direction (M,) of M inputs, as nodes."""
    pairs = zip(variables.tolist(), direction.tolist(), strict=True)
    slopes: dict[int, Slopes] = {v: {0: d} for v, d in pairs if d != ZERO}
    _spread(graph, outputs.tolist(), slopes, ())
    return np.array([slopes.get(i, {}).get(0, ZERO) for i in outputs.tolist()], dtype=np.int64)


def pulled_back(graph: Graph, outputs: np.ndarray, variables: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The derivatives (M,) of weights · outputs, N expressions, with respect to M inputs, as nodes.

    By reverse accumulation: the number of operations does not grow with M.
    """
    stated: dict[int, Sequence[tuple[int, int]]] = {}
    order = _ordered(graph, outputs.tolist(), set(variables.tolist()), stated)
    moving = {*order, *variables.tolist()}
    pulls: dict[int, int] = {}

    def pull(i: int, by: int) -> None:
        if i in moving:
            pulls[i] = graph.add(pulls[i], by) if i in pulls else by

    for i, weight in zip(outputs.tolist(), weights.tolist(), strict=True):
        pull(i, weight)
    for i in reversed(order):
        by, (op, inputs, _) = pulls.get(i, ZERO), graph.nodes[i]
        if by == ZERO:
            continue
        if i in stated:
            for j, partial in stated[i]:
                pull(j, graph.mul(partial, by))
        elif op == "select":
            pull(inputs[1], graph.select(inputs[0], by, ZERO))
            pull(inputs[2], graph.select(inputs[0], ZERO, by))
        elif op == "take":
            for k, j in enumerate(graph.nodes[inputs[0]].inputs):
                here = graph.compare("eq", inputs[1], graph.constant(k))
                pull(j, graph.select(here, by, ZERO))
        else:
            for j, partial in _partials(graph, i, moving):
                pull(j, graph.mul(partial, by))
    held = [j for i in stated for j in graph.rules[i].held()]
    found = _released(graph, held, {k: pulls.get(i, ZERO) for k, i in enumerate(variables.tolist())})
    return np.array(list(found.values()), dtype=np.int64)


def _ordered(
    graph: Graph, outputs: Sequence[int], variables: set[int], stated: dict[int, Sequence[tuple[int, int]]]
) -> list[int]:
    """The nodes between ``variables`` and ``outputs``, each after those that it depends on.

    Stated derivatives are added to ``stated``. They may contain new nodes, so numbers do not give the order.
    """
    moving: dict[int, bool] = dict.fromkeys(variables, True)
    order: list[int] = []
    stack = [(i, False) for i in outputs]
    needs: dict[int, Sequence[int]] = {}
    while stack:
        i, visited = stack.pop()
        if i in moving:
            continue
        if not visited:
            table = graph.nodes[i].op == "take" and i not in graph.rules
            needs[i] = graph.nodes[graph.nodes[i].inputs[0]].inputs if table else _depends(graph, i)
        elif not any(moving[j] for j in needs[i]):
            moving[i] = False
            continue
        elif i in graph.rules and i not in stated:
            stated[i] = [(j, p) for j, p in graph.rules[i].partials() if p != ZERO]
            needs[i] = [j for j, _ in stated[i]]
        else:
            moving[i] = True
            order.append(i)
            continue
        stack.append((i, True))
        stack.extend((j, False) for j in needs[i])
    return order


def _below(graph: Graph, outputs: Iterable[int], halt: Container[int]) -> list[int]:
    """The nodes that the derivatives of ``outputs`` depend on, in order, down to the nodes in ``halt``."""
    seen: set[int] = set()
    stack = list(outputs)
    while stack:
        i = stack.pop()
        if i not in seen and i not in halt:
            seen.add(i)
            stack.extend(_depends(graph, i))
    return sorted(seen)


def _spread(graph: Graph, outputs: Iterable[int], slopes: dict[int, Slopes], stop: Iterable[int]) -> None:
    """Add the derivatives of all nodes that ``outputs`` depend on. Those of ``stop`` are known already."""
    for i in _below(graph, outputs, {*slopes, *stop}):
        if any(j in slopes for j in _depends(graph, i)):
            found = _slopes(graph, i, slopes)
            if found:
                slopes[i] = found


def _depends(graph: Graph, i: int) -> tuple[int, ...]:
    """The nodes that the derivatives of a node depend on."""
    if i in graph.rules:
        return graph.rules[i].inputs
    op, inputs, kind = graph.nodes[i]
    if kind == "b" or op in FLAT:
        return ()
    return inputs[:1] if op == "take" else inputs[1:] if op == "select" else inputs


def _partials(graph: Graph, i: int, moving: Container[int]) -> list[tuple[int, int]]:
    """The derivatives of an operation with respect to those of its inputs that are in ``moving``."""
    op, inputs, _ = graph.nodes[i]
    if op not in RULES:
        raise Unsupported(f"the derivative of the operation {op!r} has no scalar form")
    rules = zip(inputs, RULES[op], strict=True)
    return [(j, rule(graph, i, *inputs)) for j, rule in rules if j in moving]


def _slopes(graph: Graph, i: int, slopes: dict[int, Slopes]) -> Slopes:
    op, inputs, _ = graph.nodes[i]
    partials: Sequence[tuple[int, int]]
    if i in graph.rules:
        given, partials = set(graph.rules[i].inputs), graph.rules[i].partials()
        _spread(graph, [j for j, _ in partials if j not in given], slopes, given)
    elif op == "select":
        # A choice between derivatives, not a sum: the derivative that is not taken may be NaN.
        yes, no = slopes.get(inputs[1], {}), slopes.get(inputs[2], {})
        columns = dict.fromkeys((*yes, *no))
        return {c: graph.select(inputs[0], yes.get(c, ZERO), no.get(c, ZERO)) for c in columns}
    elif op == "table":  # the derivatives of a table are tables
        entries = [slopes.get(j, {}) for j in inputs]
        columns = dict.fromkeys(c for entry in entries for c in entry)
        return {c: graph.table(*(entry.get(c, ZERO) for entry in entries)) for c in columns}
    elif op == "take":
        return _taken_slopes(graph, inputs[1], slopes[inputs[0]])
    else:
        partials = _partials(graph, i, slopes)
    total: Slopes = {}
    for j, partial in partials:
        if partial != ZERO:
            for column, slope in slopes.get(j, {}).items():
                term = graph.mul(partial, slope)
                total[column] = graph.add(total[column], term) if column in total else term
    if i in graph.rules:
        total = _released(graph, graph.rules[i].held(), total)
    return {column: slope for column, slope in total.items() if slope != ZERO}


def _taken_slopes(graph: Graph, index: int, tables: Slopes) -> Slopes:
    """The derivatives of an entry of a table, from tables of derivatives.

    If few of these are not zero, choices cost less.
    """
    found = {}
    for column, table in tables.items():
        numbers = graph.contents.get(table, np.array(graph.nodes[table].inputs) != ZERO)
        moving = np.flatnonzero(numbers).tolist()
        if len(moving) > FEW:
            found[column] = graph.take(table, index)
            continue
        slope = ZERO
        for k in map(graph.constant, moving):
            slope = graph.select(graph.compare("eq", index, k), graph.take(table, k), slope)
        found[column] = slope
    return {column: slope for column, slope in found.items() if slope != ZERO}


def _released(graph: Graph, held: Sequence[int], slopes: Slopes) -> Slopes:
    """The derivatives, in which the nodes ``held`` are no longer stopped."""
    if not held:
        return slopes
    put = substitution(graph, {graph.stopped(i): i for i in held if i not in graph.constants})
    moved = put(np.array(list(slopes.values()), dtype=np.int64)).tolist()
    return dict(zip(slopes, moved, strict=True))


# --- the derivative of each operation with respect to each of its inputs -------------------------------

Rule = Callable[..., int]


def _constant(value: float) -> Rule:
    return lambda g, i, *inputs: g.constant(value)


def _one_over(function: Callable[[Graph, int, int], int], sign: float = 1.0) -> tuple[Rule]:
    return (lambda g, i, a: g.div(g.constant(sign), function(g, i, a)),)


def _square(g: Graph, a: int) -> int:
    return g.mul(a, a)


def _sign(g: Graph, i: int, a: int) -> int:
    """One at zero, as in JAX."""
    return g.select(g.compare("le", ZERO, a), ONE, g.constant(-1.0))


def _bell(factor: float) -> tuple[Rule]:
    """The derivative of erf, times a factor."""
    return (lambda g, i, a: g.mul(g.constant(factor), g.apply("exp", g.neg(_square(g, a)))),)


def _taken(better: str) -> tuple[Rule, Rule]:
    """The derivative is that of the larger (smaller) input; half of each if they are equal, as in JAX."""

    def rule(g: Graph, mine: int, other: int) -> int:
        ahead = g.compare("lt", *((other, mine) if better == "max" else (mine, other)))
        tie = g.select(g.compare("eq", mine, other), g.constant(0.5), ZERO)
        return g.select(ahead, ONE, tie)

    return (lambda g, i, a, b: rule(g, a, b), lambda g, i, a, b: rule(g, b, a))


def _below_one(g: Graph, i: int, a: int) -> int:
    """1 − a², without cancellation near 1."""
    return g.mul(g.sub(ONE, a), g.add(ONE, a))


def _root(square: Callable[[Graph, int, int], int]) -> Callable[[Graph, int, int], int]:
    return lambda g, i, a: g.apply("sqrt", square(g, i, a))


def _pow_base(g: Graph, i: int, a: int, b: int) -> int:
    flat = g.compare("eq", b, ZERO)  # a⁰ is 1 everywhere: no 0 · ∞ at a = 0
    exponent = g.select(flat, ONE, g.sub(b, ONE))
    return g.select(flat, ZERO, g.mul(b, g.apply("pow", a, exponent)))


def _pow_exponent(g: Graph, i: int, a: int, b: int) -> int:
    positive = g.select(g.compare("eq", a, ZERO), ONE, a)
    return g.mul(g.apply("log", positive), i)


# Operations whose derivatives are zero, or are meant to be zero.
FLAT = {"stop", "floor", "ceil", "trunc", "rint", *SEARCHES}

RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_constant(1.0), _constant(1.0)),
    "sub": (_constant(1.0), _constant(-1.0)),
    "mul": (lambda g, i, a, b: b, lambda g, i, a, b: a),
    "div": (lambda g, i, a, b: g.div(ONE, b), lambda g, i, a, b: g.neg(g.mul(i, g.div(ONE, b)))),
    "neg": (_constant(-1.0),),
    "copy": (_constant(1.0),),
    "abs": (_sign,),
    "sqrt": (lambda g, i, a: g.div(g.constant(0.5), i),),
    "cbrt": (lambda g, i, a: g.div(i, g.mul(g.constant(3.0), a)),),
    "max": _taken("max"),
    "min": _taken("min"),
    "fmod": (_constant(1.0), lambda g, i, a, b: g.neg(g.apply("trunc", g.apply("div", a, b)))),
    "pow": (_pow_base, _pow_exponent),
    "atan2": (
        lambda g, i, a, b: g.div(b, g.add(_square(g, a), _square(g, b))),
        lambda g, i, a, b: g.neg(g.div(a, g.add(_square(g, a), _square(g, b)))),
    ),
    "sin": (lambda g, i, a: g.apply("cos", a),),
    "cos": (lambda g, i, a: g.neg(g.apply("sin", a)),),
    "tan": (lambda g, i, a: g.add(ONE, _square(g, i)),),
    "asin": _one_over(_root(_below_one)),
    "acos": _one_over(_root(_below_one), -1.0),
    "atan": _one_over(lambda g, i, a: g.add(ONE, _square(g, a))),
    "sinh": (lambda g, i, a: g.apply("cosh", a),),
    "cosh": (lambda g, i, a: g.apply("sinh", a),),
    "tanh": (lambda g, i, a: g.sub(ONE, _square(g, i)),),
    "asinh": _one_over(_root(lambda g, i, a: g.add(ONE, _square(g, a)))),
    "acosh": _one_over(_root(lambda g, i, a: g.mul(g.sub(a, ONE), g.add(a, ONE)))),
    "atanh": _one_over(_below_one),
    "exp": (lambda g, i, a: i,),
    "exp2": (lambda g, i, a: g.mul(g.constant(math.log(2.0)), i),),
    "expm1": (lambda g, i, a: g.add(ONE, i),),
    "log": _one_over(lambda g, i, a: a),
    "log1p": _one_over(lambda g, i, a: g.add(ONE, a)),
    "erf": _bell(2 / math.sqrt(math.pi)),
    "erfc": _bell(-2 / math.sqrt(math.pi)),
}
