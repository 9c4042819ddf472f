"""Primitives that rearrange arrays, reduce them, or multiply them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from genalpha.compiler.graph import ONE, ZERO, Graph, Unsupported
from genalpha.compiler.reader import Handler, Params, Symbols, Value, nodes


def moving(move: Callable[..., np.ndarray]) -> Handler:
    """A handler for a function that only rearranges one array."""

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        (value,) = inputs
        if isinstance(value, Symbols):
            return Symbols(move(value.ids, params), value.kind)
        return move(np.asarray(value), params)

    return handler


def joining(join: Callable[..., np.ndarray]) -> Handler:
    """A handler for a function that rearranges several arrays into one."""

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        kinds = [x.kind for x in inputs if isinstance(x, Symbols)]
        if not kinds:
            return join([np.asarray(x) for x in inputs], params)
        return Symbols(join([nodes(graph, x) for x in inputs], params), kinds[0])

    return handler


def broadcast(x: np.ndarray, p: Params) -> np.ndarray:
    shape = [1] * len(p["shape"])
    for axis, size in zip(p["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), p["shape"])


def cut(x: np.ndarray, p: Params) -> np.ndarray:
    steps = p["strides"] or [1] * x.ndim
    cuts = zip(p["start_indices"], p["limit_indices"], steps, strict=True)
    return x[tuple(slice(a, b, c) for a, b, c in cuts)]


def pad(arrays: Sequence[np.ndarray], p: Params) -> np.ndarray:
    x, filling = arrays
    shape = [
        low + high + size + max(size - 1, 0) * inside
        for size, (low, high, inside) in zip(x.shape, p["padding_config"], strict=True)
    ]
    result = np.full([max(0, s) for s in shape], filling, dtype=x.dtype)
    grids = []
    keep = []
    for size, total, (low, _, inside) in zip(x.shape, shape, p["padding_config"], strict=True):
        at = low + np.arange(size) * (inside + 1)
        good = (at >= 0) & (at < total)
        grids.append(at[good])
        keep.append(np.flatnonzero(good))
    result[np.ix_(*grids)] = x[np.ix_(*keep)]
    return result


def split(graph: Graph, inputs: list[Value], params: Params) -> list[Value]:
    cuts = np.cumsum(params["sizes"])[:-1]
    (value,) = inputs
    if isinstance(value, Symbols):
        return [Symbols(part, value.kind) for part in np.split(value.ids, cuts, axis=params["axis"])]
    return list(np.split(np.asarray(value), cuts, axis=params["axis"]))


def unstack(graph: Graph, inputs: list[Value], params: Params) -> list[Value]:
    (value,) = inputs
    kind = value.kind if isinstance(value, Symbols) else ""
    parts = np.moveaxis(value.ids if isinstance(value, Symbols) else np.asarray(value), params["axis"], 0)
    return [Symbols(part, kind) if kind else part for part in parts]


def iota(graph: Graph, inputs: list[Value], params: Params) -> Value:
    shape, axis = params["shape"], params["dimension"]
    line = np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(line, shape).astype(params["dtype"])


def platform(graph: Graph, inputs: list[Value], params: Params) -> Value:
    """Which of several implementations is for the CPU. None stands for all platforms that are not named."""
    named = [k for k, names in enumerate(params["platforms"]) if names is not None and "cpu" in names]
    return np.array([*named, *(k for k, names in enumerate(params["platforms"]) if names is None)][0])


# --- reductions -----------------------------------------------------------------------------------------


def reduction(known: Callable[..., Any], entry: Callable[[Graph, list[int]], int]) -> Handler:
    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        (value,), axes = inputs, tuple(int(a) for a in params["axes"])
        if not isinstance(value, Symbols):
            return known(value, axis=axes)
        ids = value.ids
        kept = [k for k in range(ids.ndim) if k not in axes]
        shape = [ids.shape[k] for k in kept]
        inner = int(np.prod([ids.shape[k] for k in axes]))
        rows = ids.transpose(kept + list(axes)).reshape(int(np.prod(shape)), inner)
        flat = [entry(graph, row) for row in rows.tolist()]
        return Symbols(np.array(flat, dtype=np.int64).reshape(shape), value.kind)

    return handler


def total(graph: Graph, row: Sequence[int]) -> int:
    """The sum of nodes."""
    result = ZERO
    for x in row:
        result = graph.add(result, x)
    return result


def product(graph: Graph, row: Sequence[int]) -> int:
    """The product of nodes."""
    result = ONE
    for x in row:
        result = graph.mul(result, x)
    return result


def extremum(op: str) -> Handler:
    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        (value,) = inputs
        whole = not isinstance(value, Symbols) and value.dtype.kind in "iu"
        empty = (np.iinfo(value.dtype).min if op == "max" else np.iinfo(value.dtype).max) if whole else np.inf  # type: ignore[union-attr]
        if not whole and op == "max":
            empty = -np.inf

        def known(x: Any, axis: Any) -> Any:
            if x.size == 0:
                return np.full([s for k, s in enumerate(x.shape) if k not in axis], empty)
            return {"max": np.max, "min": np.min}[op](x, axis=axis)

        return reduction(known, lambda g, row: g.largest(row, op) if row else g.constant(empty))(
            graph, inputs, params
        )

    return handler


def every(op: str, known: Callable[..., Any], empty: int) -> Handler:
    def entry(graph: Graph, row: list[int]) -> int:
        result = empty
        for x in row:
            result = graph.logic(op, result, x)
        return result

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        if isinstance(inputs[0], Symbols) and inputs[0].kind != "b":
            raise Unsupported(
                f"the operation {op!r} on the bits of integers that depend on values has no scalar form"
            )
        return reduction(known, entry)(graph, inputs, params)

    return handler


def position(better: str) -> Handler:
    """argmax and argmin. The first NaN counts as best, as in NumPy."""

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        (value,), (axis,) = inputs, params["axes"]
        if not isinstance(value, Symbols):
            return {"max": np.argmax, "min": np.argmin}[better](value, axis=axis)
        if value.kind == "b":
            flat = [graph.select(i, ONE, ZERO) for i in value.ids.reshape(-1).tolist()]
            value = Symbols(np.array(flat, dtype=np.int64).reshape(value.ids.shape), "f")
        rows = np.moveaxis(value.ids, axis, -1)
        shape = rows.shape[:-1]
        flat = []
        for row in rows.reshape(-1, rows.shape[-1]).tolist():
            best, at = row[0], ZERO
            for k, x in enumerate(row[1:], 1):
                ahead = graph.compare("lt", *((best, x) if better == "max" else (x, best)))
                nan = graph.logic("and", graph.compare("ne", x, x), graph.compare("eq", best, best))
                ahead = graph.logic("or", ahead, nan)
                best, at = graph.select(ahead, x, best), graph.select(ahead, graph.constant(k), at)
            flat.append(at)
        return Symbols(np.array(flat, dtype=np.int64).reshape(shape), "i")

    return handler


def cumulative(known: Callable[..., Any], entry: Callable[[Graph, int, int], int]) -> Handler:
    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        (value,), axis, backwards = inputs, params["axis"], params["reverse"]
        if not isinstance(value, Symbols):
            x = np.flip(value, axis) if backwards else value
            return np.flip(known(x, axis=axis), axis) if backwards else known(x, axis=axis)
        rows = np.moveaxis(value.ids, axis, -1)
        rows = (rows[..., ::-1] if backwards else rows).copy()
        for row in rows.reshape(-1, rows.shape[-1]) if rows.size else ():
            for k in range(1, len(row)):
                row[k] = entry(graph, int(row[k - 1]), int(row[k]))
        rows = rows[..., ::-1] if backwards else rows
        return Symbols(np.moveaxis(rows, -1, axis), value.kind)

    return handler


def dot(graph: Graph, inputs: list[Value], params: Params) -> Value:
    (left, right), (batch_left, batch_right) = params["dimension_numbers"]
    if any(isinstance(x, Symbols) and x.kind == "b" for x in inputs):
        raise Unsupported("arithmetic with booleans that depend on values has no scalar form")
    known = not any(isinstance(x, Symbols) for x in inputs)
    a, b = (np.asarray(x) for x in inputs) if known else (nodes(graph, x) for x in inputs)
    free_a = [k for k in range(a.ndim) if k not in left and k not in batch_left]
    free_b = [k for k in range(b.ndim) if k not in right and k not in batch_right]
    count = lambda x, axes: math.prod(x.shape[k] for k in axes)  # computed, not −1 in reshape: it may be zero
    shape = [a.shape[k] for k in batch_left] + [a.shape[k] for k in free_a] + [b.shape[k] for k in free_b]
    inner, batches = count(a, left), count(a, batch_left)
    a = a.transpose([*batch_left, *free_a, *left]).reshape(batches, count(a, free_a), inner)
    b = b.transpose([*batch_right, *right, *free_b]).reshape(batches, inner, count(b, free_b))
    if known:
        return np.matmul(a, b).reshape(shape)
    flat = []
    for k in range(batches):
        columns = b[k].T.tolist()
        for row in a[k].tolist():
            for column in columns:
                result = ZERO
                for x, y in zip(row, column, strict=True):
                    if ZERO not in (x, y):
                        result = graph.add(result, graph.mul(x, y))
                flat.append(result)
    return Symbols(np.array(flat, dtype=np.int64).reshape(shape), "f")
