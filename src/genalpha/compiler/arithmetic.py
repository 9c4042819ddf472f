"""What each scalar operation computes, on plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def _round(x: float) -> float:
    return float(np.rint(x))


def _quiet(function: Callable[..., float]) -> Callable[..., float]:
    def evaluate(*values: float) -> float:
        with np.errstate(all="ignore"):
            return function(*map(np.float64, values))

    return evaluate


def _ufunc(function: Callable[..., float]) -> Callable[..., float]:
    return _quiet(lambda *values: float(function(*values)))


def _power(a: float, b: float) -> float:
    # NumPy computes a square root if b is 1/2. At −∞ and −0 this differs from the C library.
    return math.inf if b == 0.5 and a == -math.inf else np.power(a + 0.0 if b == 0.5 else a, b)


def _scipy(name: str) -> Callable[..., float]:
    def evaluate(x: float) -> float:
        import scipy.special

        return float(getattr(scipy.special, name)(x))

    return evaluate


# What each operation on doubles computes, for constant folding and for tests.
FUNCTIONS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _ufunc(np.divide),
    "neg": lambda a: -a,
    "abs": abs,
    "sqrt": _ufunc(np.sqrt),
    "max": _ufunc(np.maximum),
    "min": _ufunc(np.minimum),
    "floor": _ufunc(np.floor),
    "ceil": _ufunc(np.ceil),
    "trunc": _ufunc(np.trunc),
    "rint": _round,
    "fmod": _ufunc(np.fmod),
    "pow": _ufunc(_power),
    "atan2": _ufunc(np.arctan2),
    "sin": _ufunc(np.sin),
    "cos": _ufunc(np.cos),
    "tan": _ufunc(np.tan),
    "asin": _ufunc(np.arcsin),
    "acos": _ufunc(np.arccos),
    "atan": _ufunc(np.arctan),
    "sinh": _ufunc(np.sinh),
    "cosh": _ufunc(np.cosh),
    "tanh": _ufunc(np.tanh),
    "asinh": _ufunc(np.arcsinh),
    "acosh": _ufunc(np.arccosh),
    "atanh": _ufunc(np.arctanh),
    "exp": _ufunc(np.exp),
    "exp2": _ufunc(np.exp2),
    "expm1": _ufunc(np.expm1),
    "log": _ufunc(np.log),
    "log1p": _ufunc(np.log1p),
    "cbrt": _ufunc(np.cbrt),
    "erf": _scipy("erf"),
    "erfc": _scipy("erfc"),
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
}
LOGIC: dict[str, Callable[..., bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
    "not": lambda a: not a,
}


def _search(before: Callable[[float, float], bool]) -> Callable[..., float]:
    """Bisection with the middles and the number of turns of `jnp.searchsorted`; NaN is the largest number.

    ``before(x, a)`` says whether x belongs before the entry a.
    """

    def search(table: Sequence[float], x: float) -> float:
        low, high = 0, len(table)
        for _ in range(high.bit_length()):
            middle = (low + high) // 2
            low, high = (low, middle) if before(x, table[middle]) else (middle, high)
        return float(high)

    return search


# Where a number belongs in a sorted table: before or after the entries that equal it.
SEARCHES: dict[str, Callable[..., float]] = {
    "search_left": _search(lambda x, a: x <= a or a != a),
    "search_right": _search(lambda x, a: x < a or (a != a and x == x)),
}


def operate(op: str, *values: Any) -> Any:
    """One operation on numbers."""
    if op == "table":
        return values
    if op == "take":
        return float(values[0][int(values[1])])
    if op in SEARCHES:
        return SEARCHES[op](*values)
    if op == "select":
        return values[1] if values[0] else values[2]
    if op in ("copy", "stop"):
        return values[0]
    table = FUNCTIONS if op in FUNCTIONS else COMPARISONS if op in COMPARISONS else LOGIC
    return table[op](*values)
