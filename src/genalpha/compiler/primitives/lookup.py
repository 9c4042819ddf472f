"""Reading at indices that are not known: from memory, or by choices if there are few entries."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from genalpha.compiler.graph import FEW, ONE, ZERO, Graph, Unsupported
from genalpha.compiler.reader import Reader, Symbols, Value, kind_of, nodes

# How JAX names the function in which `jnp.searchsorted` bisects. Under another name its loop is unrolled.
SEARCH = "_searchsorted_scan_impl"
# The largest table. Each entry is a slot, or a constant in the code.
LARGEST = 300_000


def array(value: Value) -> np.ndarray:
    """The entries of an array: nodes, or numbers."""
    return value.ids if isinstance(value, Symbols) else np.asarray(value)


def kind(value: Value) -> str:
    return value.kind if isinstance(value, Symbols) else kind_of(value.dtype)


def read(graph: Graph, value: Value, first: Mapping[int, int], sizes: Sequence[int]) -> np.ndarray:
    """The window of these sizes that begins at the nodes ``first``, by axis, each limited to the array."""
    entries, unknown = array(value), {}
    for axis, index in first.items():
        high = entries.shape[axis] - sizes[axis]
        if index in graph.constants or high == 0:
            at = min(max(int(graph.constants.get(index, 0)), 0), high)
            entries = entries.take(range(at, at + sizes[axis]), axis=axis)
        else:
            unknown[axis] = index
    entries = entries[tuple(slice(None) if k in unknown else slice(size) for k, size in enumerate(sizes))]
    highs = {axis: entries.shape[axis] - sizes[axis] for axis in unknown}
    if math.prod(high + 1 for high in highs.values()) <= FEW:
        ids = nodes(graph, Symbols(entries, kind(value)) if isinstance(value, Symbols) else entries)
        return pick(graph, list(unknown.values()), list(highs.values()), _windows(ids, list(unknown), sizes))
    return _taken(graph, value, entries, unknown, sizes)


def _windows(ids: np.ndarray, axes: Sequence[int], sizes: Sequence[int]) -> Callable[..., np.ndarray]:
    def window(*at: int) -> np.ndarray:
        begin = dict(zip(axes, at, strict=True))
        return ids[tuple(slice(begin.get(k, 0), begin.get(k, 0) + size) for k, size in enumerate(sizes))]

    return window


def _taken(
    graph: Graph, value: Value, entries: np.ndarray, first: Mapping[int, int], sizes: Sequence[int]
) -> np.ndarray:
    """The window, read from a table of all entries."""
    if entries.size > LARGEST:
        raise Unsupported(f"a table of more than {LARGEST} entries has no scalar form")
    table, flags = _table(graph, entries, isinstance(value, Symbols)), kind(value) == "b"
    strides = [math.prod(entries.shape[k + 1 :]) for k in range(entries.ndim)]
    base = ZERO
    for axis, index in first.items():
        limited = _limited(graph, index, entries.shape[axis] - sizes[axis])
        base = graph.add(base, graph.mul(limited, graph.constant(strides[axis])))
    result = np.empty(sizes, dtype=np.int64)
    for where in np.ndindex(*sizes):
        offset = sum(a * b for a, b in zip(where, strides, strict=True))
        found = graph.take(table, graph.add(base, graph.constant(offset)))
        result[where] = graph.compare("ne", found, ZERO) if flags else found
    return result


def _table(graph: Graph, entries: np.ndarray, unknown: bool) -> int:
    if not unknown:
        return graph.known_table(entries.astype(float).reshape(-1))
    flat = entries.reshape(-1).tolist()
    if graph.nodes[flat[0]].kind == "b":
        flat = [graph.select(i, ONE, ZERO) for i in flat]
    return graph.table(*flat)


def _limited(graph: Graph, index: int, high: int) -> int:
    """An index within [0, high]; zero for NaN."""
    last = graph.constant(high)
    index = graph.select(graph.compare("lt", ZERO, index), index, ZERO)
    return graph.select(graph.compare("lt", index, last), index, last)


def pick(
    graph: Graph, indices: Sequence[int], highs: Sequence[int], take: Callable[..., np.ndarray]
) -> np.ndarray:
    """``take(*indices)`` for indices that may be unknown, each limited to [0, high], as a tree of choices."""
    if not indices:
        return np.asarray(take())
    index, rest = indices[0], indices[1:]

    def between(low: int, high: int) -> np.ndarray:
        if low == high:
            return pick(graph, rest, highs[1:], lambda *at: take(low, *at))
        middle = (low + high + 1) // 2
        return either(
            graph,
            graph.compare("lt", index, graph.constant(middle)),
            between(low, middle - 1),
            between(middle, high),
        )

    if index in graph.constants:
        only = min(max(int(graph.constants[index]), 0), highs[0])
        return between(only, only)
    return between(0, highs[0])


def either(graph: Graph, condition: int, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    pairs = zip(yes.reshape(-1).tolist(), no.reshape(-1).tolist(), strict=True)
    return np.array([graph.select(condition, a, b) for a, b in pairs], dtype=np.int64).reshape(yes.shape)


def search(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value] | None:
    """`jnp.searchsorted` as a search in memory; None if this call is something else.

    Which side it takes shows on numbers.
    """
    (table, x), inner = inputs, equation.params["jaxpr"]
    entries = array(table)
    if entries.ndim != 1 or len(entries) <= FEW or "b" in (kind(table), kind(x)):
        return None
    line = np.arange(len(entries)).astype(equation.invars[0].aval.dtype)
    probe = np.full(equation.invars[1].aval.shape, 1, dtype=equation.invars[1].aval.dtype)
    (found,) = reader.closed(inner, [line, probe])
    op = {1: "search_left", 2: "search_right"}.get(int(np.max(array(found), initial=0)))
    if op is None:
        return None
    graph = reader.graph
    memory = _table(graph, entries, isinstance(table, Symbols))
    flat = [graph.search(op, memory, i) for i in nodes(graph, x).reshape(-1).tolist()]
    return [Symbols(np.array(flat, dtype=np.int64).reshape(array(x).shape), "i")]
