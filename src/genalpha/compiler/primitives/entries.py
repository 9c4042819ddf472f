"""Primitives that work entry by entry, on known (NumPy) or unknown arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from genalpha.compiler.graph import ONE, ZERO, Graph, Unsupported
from genalpha.compiler.reader import Handler, Params, Symbols, Value, kind_of, nodes
from genalpha.compiler.stated import Rule


def is_whole(value: Value) -> bool:
    return (value.kind if isinstance(value, Symbols) else kind_of(value.dtype)) == "i"


def entrywise(known: Callable[..., Any], entry: Callable[..., int], of: str = "fi") -> Handler:
    """A handler from a NumPy function and a function of a graph; ``of`` are the kinds that it accepts."""

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        if not any(isinstance(x, Symbols) for x in inputs):
            with np.errstate(all="ignore"):
                return np.asarray(known(*inputs))
        kinds = [x.kind for x in inputs if isinstance(x, Symbols)]
        if not set(kinds) <= set(of):
            raise Unsupported("arithmetic with booleans that depend on values has no scalar form")
        arrays = [nodes(graph, x) for x in inputs]
        if any(a.shape != arrays[0].shape for a in arrays):
            arrays = list(np.broadcast_arrays(*arrays))
        flat = [entry(graph, *at) for at in zip(*(a.reshape(-1).tolist() for a in arrays), strict=True)]
        return Symbols(np.array(flat, dtype=np.int64).reshape(arrays[0].shape), kinds[0])

    return handler


def function(op: str, known: Callable[..., Any]) -> Handler:
    return entrywise(known, lambda graph, *at: graph.apply(op, *at))


# --- arithmetic -----------------------------------------------------------------------------------------


def add(graph: Graph, a: int, b: int) -> int:
    return graph.logic("or", a, b) if graph.nodes[a].kind == "b" else graph.add(a, b)


def multiply(graph: Graph, a: int, b: int) -> int:
    return graph.logic("and", a, b) if graph.nodes[a].kind == "b" else graph.mul(a, b)


def product(graph: Graph, inputs: list[Value], params: Params) -> Value:
    """Products. Integers are multiplied only if they cannot overflow, as for positions in small arrays."""
    if any(isinstance(x, Symbols) and x.kind == "i" for x in inputs):
        known = [np.abs(x).max(initial=0) for x in inputs if not isinstance(x, Symbols)]
        if not known or known[0] > 2**12:
            raise Unsupported("a product of integers that depend on values may overflow")
    return entrywise(np.multiply, multiply, "fib")(graph, inputs, params)


def divide(graph: Graph, inputs: list[Value], params: Params) -> Value:
    if is_whole(inputs[0]):
        return entrywise(_known_quotient, _quotient)(graph, inputs, params)
    return entrywise(np.divide, Graph.div)(graph, inputs, params)


def _known_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rounded towards zero, and −1 if the divisor is zero, as in XLA."""
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = (a - np.fmod(a, safe)) // safe
    return np.where(b == 0, np.array(-1).astype(quotient.dtype), quotient)


def _quotient(graph: Graph, a: int, b: int) -> int:
    zero = graph.compare("eq", b, ZERO)
    # apply, not div: multiplication by an inverse may give slightly less than an integer.
    quotient = graph.apply("trunc", graph.apply("div", a, graph.select(zero, ONE, b)))
    return graph.select(zero, graph.constant(-1.0), quotient)


def remainder(graph: Graph, inputs: list[Value], params: Params) -> Value:
    """With the sign of the dividend. For integers and a zero divisor it is the dividend, as in XLA."""
    if not is_whole(inputs[0]):
        return function("fmod", np.fmod)(graph, inputs, params)

    def known(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b)))

    def entry(g: Graph, a: int, b: int) -> int:
        zero = g.compare("eq", b, ZERO)
        return g.select(zero, a, g.apply("fmod", a, g.select(zero, ONE, b)))

    return entrywise(known, entry)(graph, inputs, params)


def integer_pow(graph: Graph, inputs: list[Value], params: Params) -> Value:
    y = params["y"]
    known = lambda x: np.power(x, y) if x.dtype.kind in "iu" else np.power(np.asarray(x, dtype=float), y)
    return entrywise(known, lambda g, a: g.power(a, y))(graph, inputs, params)


def power(graph: Graph, inputs: list[Value], params: Params) -> Value:
    """Known exponents that are integers, or half an integer, become products and square roots (NaN at −∞)."""

    def entry(g: Graph, a: int, b: int) -> int:
        exponent = float(g.constants.get(b, np.nan))
        if a not in g.constants and exponent == np.rint(exponent) and abs(exponent) <= 64:
            return g.power(a, int(exponent))
        if a not in g.constants and exponent in (0.5, 1.5, 2.5, 3.5):
            return _half(g, a, exponent)
        return g.apply("pow", a, b)

    return entrywise(np.power, entry)(graph, inputs, params)


def _half(graph: Graph, a: int, exponent: float) -> int:
    """a to the power of 1/2, 3/2, ... Its derivative is stated, since that of the product is NaN at zero."""
    root = graph.apply("sqrt", a)
    if exponent < 1:
        return root
    result = graph.mul(graph.power(a, int(exponent)), root)
    slope = lambda: [(a, graph.mul(graph.constant(exponent), _half(graph, a, exponent - 1)))]
    graph.rules[result] = Rule((a,), slope)
    return result


def sign(graph: Graph, a: int) -> int:
    negative = graph.select(graph.compare("lt", a, ZERO), graph.constant(-1.0), a)  # zero, or NaN
    return graph.select(graph.compare("lt", ZERO, a), ONE, negative)


def logistic(graph: Graph, a: int) -> int:
    """1/(1 + e⁻ᵃ), with a derivative that is finite even if the exponential overflows."""
    negative = graph.neg(a)
    result = graph.div(ONE, graph.add(ONE, graph.apply("exp", negative)))
    if result not in graph.constants:
        slope = lambda: [(negative, graph.neg(graph.mul(result, graph.sub(ONE, result))))]
        graph.rules[result] = Rule((negative,), slope)
    return result


def round_(graph: Graph, inputs: list[Value], params: Params) -> Value:
    if int(params["rounding_method"]) == 1:
        return function("rint", np.rint)(graph, inputs, params)

    def known(x: np.ndarray) -> np.ndarray:
        whole = np.trunc(x)
        return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)

    def away(g: Graph, a: int) -> int:
        # Not ⌊|a| + 1/2⌋, which is wrong just below 1/2, and above 2⁵².
        whole = g.apply("trunc", a)
        half = g.compare("le", g.constant(0.5), g.apply("abs", g.sub(a, whole)))
        return g.select(half, g.add(whole, sign(g, a)), whole)

    return entrywise(known, away)(graph, inputs, params)


def extreme(op: str, known: Callable[..., Any]) -> Handler:
    return entrywise(known, lambda g, a, b: g.extreme(op, a, b), "fib")


def clamp(graph: Graph, inputs: list[Value], params: Params) -> Value:
    low, value, high = inputs
    larger = extreme("max", np.maximum)(graph, [low, value], params)
    return extreme("min", np.minimum)(graph, [larger, high], params)


def is_finite(graph: Graph, a: int) -> int:
    return graph.compare("lt", graph.apply("abs", a), graph.constant(np.inf))


def listed(graph: Graph, inputs: list[Value], params: Params) -> Value:
    """Operations of :class:`genalpha.compiler.scalars.Scalars` for every row of the inputs."""
    scalars = params["scalars"]
    known = [x for x in inputs if not isinstance(x, Symbols)]
    if len(known) == len(inputs):
        return scalars.evaluate(np.concatenate(known, axis=-1))
    rows = np.concatenate([nodes(graph, x) for x in inputs], axis=-1)
    flat = [scalars.into(graph, row) for row in rows.reshape(-1, rows.shape[-1]).tolist()]
    return Symbols(np.array(flat, dtype=np.int64).reshape(*rows.shape[:-1], len(scalars.outputs)), "f")


# --- booleans -------------------------------------------------------------------------------------------


def compare(op: str, known: Callable[..., Any], swap: bool = False) -> Handler:
    def entry(graph: Graph, a: int, b: int) -> int:
        return graph.compare(op, b, a) if swap else graph.compare(op, a, b)

    return entrywise(known, entry, "fib")


def in_total_order(op: str, known: Callable[..., Any]) -> Handler:
    """lt or le, where NaN is larger than all numbers, and equal to itself."""

    def entry(graph: Graph, a: int, b: int) -> int:
        last = graph.compare("ne", b, b)
        if op == "lt":
            last = graph.logic("and", last, graph.compare("eq", a, a))
        return graph.logic("or", graph.compare(op, a, b), last)

    def ordered(a: Any, b: Any) -> Any:
        return known(a, b) | ((b != b) & ((op == "le") | (a == a)))

    return entrywise(ordered, entry, "fi")


def logic(op: str, known: Callable[..., Any]) -> Handler:
    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        if any(isinstance(x, Symbols) and x.kind != "b" for x in inputs):
            raise Unsupported(
                f"the operation {op!r} on the bits of integers that depend on values has no scalar form"
            )
        return entrywise(known, lambda graph, *at: graph.logic(op, *at), "b")(graph, inputs, params)

    return handler


def select(graph: Graph, inputs: list[Value], params: Params) -> Value:
    which, cases = inputs[0], inputs[1:]
    kinds = [x.kind for x in cases if isinstance(x, Symbols)]
    if not isinstance(which, Symbols):
        arrays = [nodes(graph, x) if kinds else np.asarray(x) for x in cases]
        chosen = np.broadcast_to(
            arrays[0], np.shape(cases[0].ids if isinstance(cases[0], Symbols) else cases[0])
        )
        for k, array in enumerate(arrays[1:], 1):
            chosen = np.where(np.asarray(which).astype(np.int64) >= k, array, chosen)
        return Symbols(chosen, kinds[0]) if kinds else chosen
    if which.kind == "b":
        choose = lambda g, c, no, yes: g.select(c, yes, no)
    else:

        def choose(g: Graph, c: int, *at: int) -> int:
            result = at[-1]
            for k in reversed(range(len(at) - 1)):
                result = g.select(g.compare("le", c, g.constant(k)), at[k], result)
            return result

    return entrywise(np.choose, choose, "fib")(graph, inputs, params)


# --- kinds ----------------------------------------------------------------------------------------------


def convert(graph: Graph, inputs: list[Value], params: Params) -> Value:
    (value,), new = inputs, np.dtype(params["new_dtype"])
    target = kind_of(new)
    if target == "?":
        raise Unsupported(f"conversion to {new} has no scalar form")
    if not isinstance(value, Symbols):
        with np.errstate(all="ignore"):
            return _whole(value, new) if target == "i" and value.dtype.kind == "f" else value.astype(new)
    if value.kind == target or (value.kind, target) == ("i", "f"):
        return Symbols(value.ids, target)
    if value.kind == "b":
        entry = lambda g, a: g.select(a, ONE, ZERO)
    elif target == "b":
        entry = lambda g, a: g.compare("ne", a, ZERO)
    else:
        low, high = float(np.iinfo(new).min), float(np.iinfo(new).max)  # type: ignore[type-var]

        def entry(g: Graph, a: int) -> int:  # as in XLA: limited to the range, and zero for NaN
            within = g.extreme(
                "min", g.extreme("max", g.apply("trunc", a), g.constant(low)), g.constant(high)
            )
            return g.select(g.compare("eq", a, a), within, ZERO)

    return entrywise(np.trunc, entry, "fib")(graph, inputs, params)


def _whole(value: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Integers as in XLA: limited to the range, and zero for NaN."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    inside = (value >= float(low)) & (value < float(high))
    ends = np.where(value > 0, np.array(high, dtype), np.array(low, dtype))
    result = np.where(inside, np.where(inside, value, 0.0).astype(dtype), ends)
    return np.where(np.isnan(value), np.array(0, dtype), result)


def precision(graph: Graph, inputs: list[Value], params: Params) -> Value:
    if params["exponent_bits"] < 11 or params["mantissa_bits"] < 52:
        raise Unsupported("rounding to fewer than 64 bits has no scalar form")
    return inputs[0]


def stop(graph: Graph, inputs: list[Value], params: Params) -> Value:
    (value,) = inputs
    if not isinstance(value, Symbols):
        return value
    flat = [graph.stopped(i) for i in value.ids.reshape(-1).tolist()]
    return Symbols(np.array(flat, dtype=np.int64).reshape(value.ids.shape), value.kind)
