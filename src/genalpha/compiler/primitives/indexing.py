"""Primitives that read and write at indices. Writing at an unknown index costs a choice for every place."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from genalpha.compiler.graph import FALSE, TRUE, Graph, Unsupported
from genalpha.compiler.primitives import lookup
from genalpha.compiler.reader import Handler, Params, Symbols, Value, nodes


def _inside(graph: Graph, indices: Sequence[int], highs: Sequence[int]) -> int:
    """Whether all indices lie within [0, high]."""
    result = TRUE
    for index, high in zip(indices, highs, strict=True):
        low = graph.compare("le", graph.constant(0.0), index)
        result = graph.logic("and", result, low)
        result = graph.logic("and", result, graph.compare("le", index, graph.constant(high)))
    return result


def dynamic_slice(graph: Graph, inputs: list[Value], params: Params) -> Value:
    value, starts, sizes = inputs[0], inputs[1:], params["slice_sizes"]
    first = {k: int(nodes(graph, start)) for k, start in enumerate(starts)}
    return Symbols(lookup.read(graph, value, first, sizes), lookup.kind(value))


def dynamic_update_slice(graph: Graph, inputs: list[Value], params: Params) -> Value:
    value, update, starts = inputs[0], inputs[1], inputs[2:]
    ids, new = nodes(graph, value), nodes(graph, update)
    highs = [full - size for full, size in zip(ids.shape, new.shape, strict=True)]

    def take(*at: int) -> np.ndarray:
        result = ids.copy()
        result[tuple(slice(a, a + s) for a, s in zip(at, new.shape, strict=True))] = new
        return result

    return Symbols(lookup.pick(graph, [int(nodes(graph, s)) for s in starts], highs, take), _kind(graph, ids))


def _kind(graph: Graph, ids: np.ndarray) -> str:
    """The kind of entries. Whether "f" are integers follows from the equation."""
    return graph.nodes[int(ids.flat[0])].kind if ids.size else "f"


def _mode(params: Params) -> str:
    return getattr(params["mode"], "name", str(params["mode"]))


def _outside(value: Value, params: Params) -> float | bool:
    """The value that is read outside of an array."""
    filling = params.get("fill_value")
    if filling is not None:
        return filling
    kind = (
        value.kind
        if isinstance(value, Symbols)
        else {"i": "i", "u": "u", "b": "b"}.get(value.dtype.kind, "f")
    )
    if kind == "i" and isinstance(value, Symbols):
        raise Unsupported("reading integers that depend on values outside of an array has no scalar form")
    if kind in "iu":
        return np.iinfo(value.dtype).min if kind == "i" else np.iinfo(value.dtype).max  # type: ignore[union-attr]
    return True if kind == "b" else np.nan


def gather(graph: Graph, inputs: list[Value], params: Params) -> Value:
    value, starts = inputs
    d, sizes = params["dimension_numbers"], params["slice_sizes"]
    at, shape = nodes(graph, starts), lookup.array(value).shape
    filling = (
        int(nodes(graph, np.array(_outside(value, params)))) if _mode(params) == "FILL_OR_DROP" else None
    )
    batch = at.shape[:-1]
    kept = [k for k in range(len(shape)) if k not in (*d.collapsed_slice_dims, *d.operand_batching_dims)]
    window = [sizes[k] for k in kept]
    result = np.empty([*batch, *window], dtype=np.int64)
    highs = [shape[k] - sizes[k] for k in d.start_index_map]
    batched = list(zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True))
    for where in np.ndindex(*batch):
        index = [int(i) for i in at[where]]
        first = dict(zip(d.start_index_map, index, strict=True))
        first |= {k: graph.constant(where[axis]) for k, axis in batched}
        found = lookup.read(graph, value, first, sizes).reshape(window)
        if filling is not None:
            good = _inside(graph, index, highs)
            found = lookup.either(graph, good, found, np.full(found.shape, filling, dtype=np.int64))
        result[where] = found
    rank = len(batch) + len(window)
    others = [k for k in range(rank) if k not in d.offset_dims]
    order = [*others, *d.offset_dims]
    return Symbols(result.transpose(np.argsort(order) if order else None), lookup.kind(value))


def scatter(combine: Callable[[Graph, int, int], int] | None) -> Handler:
    """A handler that writes (None) or combines updates. Windows that leave the array are dropped."""

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        value, starts, updates = inputs
        if combine is None and params.get("update_jaxpr") is not None:
            raise Unsupported("a function applied at indices (at[...].apply) has no scalar form")
        d, clip = params["dimension_numbers"], _mode(params) == "CLIP"
        result, new, at = nodes(graph, value).copy(), nodes(graph, updates), nodes(graph, starts)
        scattered = [k for k in range(new.ndim) if k not in d.update_window_dims]
        kept = [k for k in range(result.ndim) if k not in (*d.inserted_window_dims, *d.operand_batching_dims)]
        window = dict(zip(kept, [new.shape[k] for k in d.update_window_dims], strict=True))
        highs = [result.shape[k] - window.get(k, 1) for k in d.scatter_dims_to_operand_dims]
        batched = list(zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True))
        parts = new.transpose([*scattered, *d.update_window_dims])
        for batch in np.ndindex(*(new.shape[k] for k in scattered)):
            fixed = {k: batch[axis] for k, axis in batched}
            for here, start in _places(graph, [int(i) for i in at[batch]], highs, clip):
                first = dict(zip(d.scatter_dims_to_operand_dims, start, strict=True)) | fixed
                for where in np.ndindex(*parts[batch].shape):
                    inner = dict(zip(kept, where, strict=True))
                    spot = tuple(first.get(k, 0) + inner.get(k, 0) for k in range(result.ndim))
                    old, update = int(result[spot]), int(parts[batch][where])
                    both = update if combine is None else combine(graph, old, update)
                    result[spot] = graph.select(here, both, old)
        return Symbols(result, _kind(graph, result))

    return handler


def _places(
    graph: Graph, indices: list[int], highs: list[int], clip: bool
) -> list[tuple[int, tuple[int, ...]]]:
    """All places at which a window may start, each with its condition."""
    options: list[list[tuple[int, int]]] = []
    for index, high in zip(indices, highs, strict=True):
        if clip:
            index = graph.extreme(
                "min", graph.extreme("max", index, graph.constant(0.0)), graph.constant(high)
            )
        cases = [(graph.compare("eq", index, graph.constant(k)), k) for k in range(high + 1)]
        options.append([case for case in cases if case[0] != FALSE])
    places = []
    for case in itertools.product(*options):
        here = TRUE
        for condition, _ in case:
            here = graph.logic("and", here, condition)
        places.append((here, tuple(k for _, k in case)))
    return places
