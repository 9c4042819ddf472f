"""Derivatives of scalar expressions: forward, and only where they are not zero."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from genalpha.kernels.graph import ONE, ZERO, Graph, Unsupported

Slopes = dict[int, int]  # the derivatives of one node that are not zero, by variable


def jacobian(graph: Graph, outputs: np.ndarray, variables: np.ndarray) -> np.ndarray:
    """The derivatives (N, M) of N expressions with respect to M inputs, as nodes; zeros are the node ZERO."""
    slopes: dict[int, Slopes] = {int(v): {j: ONE} for j, v in enumerate(variables)}
    for i in graph.reachable(outputs.tolist(), list(slopes)):
        if i not in slopes and any(j in slopes for j in graph.nodes[i].inputs):
            found = _slopes(graph, i, slopes)
            if found:
                slopes[i] = found
    result = np.full((len(outputs), len(variables)), ZERO, dtype=np.int64)
    for row, i in enumerate(outputs.tolist()):
        for column, slope in slopes.get(i, {}).items():
            result[row, column] = slope
    return result


def _slopes(graph: Graph, i: int, slopes: dict[int, Slopes]) -> Slopes:
    op, inputs, _ = graph.nodes[i]
    if i in graph.rules:
        partials = graph.rules[i]()
    elif op == "select":
        # A choice between derivatives, not a sum: the one that is not taken may be NaN.
        yes, no = slopes.get(inputs[1], {}), slopes.get(inputs[2], {})
        columns = dict.fromkeys((*yes, *no))
        return {c: graph.select(inputs[0], yes.get(c, ZERO), no.get(c, ZERO)) for c in columns}
    elif op in RULES:
        wanted = [j in slopes for j in inputs]
        partials = [
            (j, rule(graph, i, *inputs))
            for j, rule, needed in zip(inputs, RULES[op], wanted, strict=True)
            if needed
        ]
    else:
        raise Unsupported(f"the operation {op!r} has no derivative here")
    total: Slopes = {}
    for j, partial in partials:
        if partial != ZERO:
            for column, slope in slopes.get(j, {}).items():
                term = graph.mul(partial, slope)
                total[column] = graph.add(total[column], term) if column in total else term
    return {column: slope for column, slope in total.items() if slope != ZERO}


# --- the derivative of each operation with respect to each of its inputs -------------------------------

Rule = Callable[..., int]


def _constant(value: float) -> Rule:
    return lambda g, i, *inputs: g.constant(value)


def _one_over(function: Callable[[Graph, int, int], int], sign: float = 1.0) -> tuple[Rule]:
    return (lambda g, i, a: g.div(g.constant(sign), function(g, i, a)),)


def _square(g: Graph, a: int) -> int:
    return g.mul(a, a)


def _sign(g: Graph, i: int, a: int) -> int:
    negative = g.select(g.compare("lt", a, ZERO), g.constant(-1.0), ZERO)
    return g.select(g.compare("lt", ZERO, a), ONE, negative)


def _bell(factor: float) -> tuple[Rule]:
    """The derivative of erf, times a factor."""
    return (lambda g, i, a: g.mul(g.constant(factor), g.apply("exp", g.neg(_square(g, a)))),)


def _taken(better: str) -> tuple[Rule, Rule]:
    """The larger (smaller) one passes its derivative on; equal ones half of it each, as in JAX."""

    def rule(g: Graph, mine: int, other: int) -> int:
        ahead = g.compare("lt", *((other, mine) if better == "max" else (mine, other)))
        tie = g.select(g.compare("eq", mine, other), g.constant(0.5), ZERO)
        return g.select(ahead, ONE, tie)

    return (lambda g, i, a, b: rule(g, a, b), lambda g, i, a, b: rule(g, b, a))


def _root(g: Graph, a: int, offset: float, sign: float) -> int:
    """√(offset + sign a²)."""
    square = _square(g, a)
    return g.apply("sqrt", g.add(g.constant(offset), square if sign > 0 else g.neg(square)))


def _pow_base(g: Graph, i: int, a: int, b: int) -> int:
    return g.mul(b, g.apply("pow", a, g.sub(b, ONE)))


def _pow_exponent(g: Graph, i: int, a: int, b: int) -> int:
    positive = g.select(g.compare("eq", a, ZERO), ONE, a)
    return g.mul(g.apply("log", positive), i)


_FLAT = _constant(0.0)

RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_constant(1.0), _constant(1.0)),
    "sub": (_constant(1.0), _constant(-1.0)),
    "mul": (lambda g, i, a, b: b, lambda g, i, a, b: a),
    "div": (lambda g, i, a, b: g.div(ONE, b), lambda g, i, a, b: g.neg(g.mul(i, g.div(ONE, b)))),
    "neg": (_constant(-1.0),),
    "copy": (_constant(1.0),),
    "stop": (_FLAT,),
    "abs": (_sign,),
    "sqrt": (lambda g, i, a: g.div(g.constant(0.5), i),),
    "cbrt": (lambda g, i, a: g.div(i, g.mul(g.constant(3.0), a)),),
    "max": _taken("max"),
    "min": _taken("min"),
    "floor": (_FLAT,),
    "ceil": (_FLAT,),
    "trunc": (_FLAT,),
    "rint": (_FLAT,),
    "fmod": (_constant(1.0), lambda g, i, a, b: g.neg(g.apply("trunc", g.apply("div", a, b)))),
    "pow": (_pow_base, _pow_exponent),
    "atan2": (
        lambda g, i, a, b: g.div(b, g.add(_square(g, a), _square(g, b))),
        lambda g, i, a, b: g.neg(g.div(a, g.add(_square(g, a), _square(g, b)))),
    ),
    "sin": (lambda g, i, a: g.apply("cos", a),),
    "cos": (lambda g, i, a: g.neg(g.apply("sin", a)),),
    "tan": (lambda g, i, a: g.add(ONE, _square(g, i)),),
    "asin": _one_over(lambda g, i, a: _root(g, a, 1.0, -1.0)),
    "acos": _one_over(lambda g, i, a: _root(g, a, 1.0, -1.0), -1.0),
    "atan": _one_over(lambda g, i, a: g.add(ONE, _square(g, a))),
    "sinh": (lambda g, i, a: g.apply("cosh", a),),
    "cosh": (lambda g, i, a: g.apply("sinh", a),),
    "tanh": (lambda g, i, a: g.sub(ONE, _square(g, i)),),
    "asinh": _one_over(lambda g, i, a: _root(g, a, 1.0, 1.0)),
    "acosh": _one_over(lambda g, i, a: _root(g, a, -1.0, 1.0)),
    "atanh": _one_over(lambda g, i, a: g.sub(ONE, _square(g, a))),
    "exp": (lambda g, i, a: i,),
    "exp2": (lambda g, i, a: g.mul(g.constant(math.log(2.0)), i),),
    "expm1": (lambda g, i, a: g.add(ONE, i),),
    "log": _one_over(lambda g, i, a: a),
    "log1p": _one_over(lambda g, i, a: g.add(ONE, a)),
    "erf": _bell(2 / math.sqrt(math.pi)),
    "erfc": _bell(-2 / math.sqrt(math.pi)),
}
