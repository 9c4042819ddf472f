"""The scalar expressions of SymPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import sympy

from genalpha.compiler.graph import FALSE, ONE, TRUE, ZERO, Graph
from genalpha.compiler.primitives.entries import sign

_Make = Callable[..., int]


def _same(op: str) -> _Make:
    return lambda g, *at: g.apply(op, *at)


_TURNS = ("sin", "cos", "tan", "asin", "acos", "atan", "atan2")
_OTHERS = ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp", "log", "floor", "erf", "erfc")


def _step(g: Graph, a: int, at_zero: int) -> int:
    below = g.select(g.compare("eq", a, ZERO), at_zero, ZERO)
    return g.select(g.compare("lt", ZERO, a), ONE, below)


def _remainder(g: Graph, a: int, b: int) -> int:
    return g.sub(a, g.mul(b, g.apply("floor", g.div(a, b))))


def _many(op: str) -> _Make:
    return lambda g, *at: g.largest(at, op)


def _logic(op: str, start: int) -> _Make:
    def make(g: Graph, *at: int) -> int:
        result = start
        for i in at:
            result = g.logic(op, result, i)
        return result

    return make


def _piecewise(g: Graph, *cases: int) -> int:
    """The first value whose condition holds, NaN if none does."""
    result = g.constant(np.nan)
    for value, condition in reversed(list(zip(cases[::2], cases[1::2], strict=True))):
        result = value if condition == TRUE else g.select(condition, value, result)
    return result


FUNCTIONS: dict[str, _Make] = {
    **{name: _same(name) for name in (*_TURNS, *_OTHERS)},
    "Abs": _same("abs"),
    "ceiling": _same("ceil"),
    "sec": lambda g, a: g.div(ONE, g.apply("cos", a)),
    "csc": lambda g, a: g.div(ONE, g.apply("sin", a)),
    "cot": lambda g, a: g.div(g.apply("cos", a), g.apply("sin", a)),
    "sign": sign,
    "Heaviside": _step,
    "Mod": _remainder,
    "Max": _many("max"),
    "Min": _many("min"),
    "Piecewise": _piecewise,
    "StrictLessThan": lambda g, a, b: g.compare("lt", a, b),
    "LessThan": lambda g, a, b: g.compare("le", a, b),
    "StrictGreaterThan": lambda g, a, b: g.compare("lt", b, a),
    "GreaterThan": lambda g, a, b: g.compare("le", b, a),
    "Equality": lambda g, a, b: g.compare("eq", a, b),
    "Unequality": lambda g, a, b: g.compare("ne", a, b),
    "And": _logic("and", TRUE),
    "Or": _logic("or", FALSE),
    "Not": lambda g, a: g.logic("not", a),
}


def children(expression: Any) -> tuple[Any, ...]:
    """The arguments of an expression; for ``Piecewise`` values and conditions in turn."""
    if expression.func.__name__ == "Piecewise":
        return tuple(part for case in expression.args for part in case.args)
    return expression.args


def number(value: Any) -> float | None:
    """A real and finite number of SymPy as a double, else None."""
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if np.isfinite(found) else None


def power(g: Graph, base: int, exponent: Any, given: int) -> int:
    """base to a power; ``given`` is the node of the exponent."""
    if isinstance(exponent, sympy.Rational) and exponent.q in (1, 2) and abs(exponent.p) <= 128:
        root = base if exponent.q == 1 else g.apply("sqrt", base)
        return g.power(root, int(exponent.p))
    return g.apply("pow", base, given)
