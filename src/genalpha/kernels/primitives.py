"""The primitives of JAX that have a scalar form, each on known (NumPy) or unknown arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from genalpha.kernels.graph import FALSE, ONE, TRUE, ZERO, Graph, Unsupported
from genalpha.kernels.scalar import Symbols, Value, kind_of, nodes

Params = dict[str, Any]
Handler = Callable[[Graph, list[Value], Params], Any]


# --- entry by entry -------------------------------------------------------------------------------------


def _entrywise(
    known: Callable[..., Any], entry: Callable[..., int], kind: str | None = None, reorder: bool = False
) -> Handler:
    """A handler from a NumPy function and one of the graph's methods; ``kind`` is that of the result."""

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        if not any(isinstance(x, Symbols) for x in inputs):
            with np.errstate(all="ignore"):
                return np.asarray(known(*inputs, **({"params": params} if reorder else {})))
        result = kind or next(x.kind for x in inputs if isinstance(x, Symbols))
        arrays = np.broadcast_arrays(*(nodes(graph, x) for x in inputs))
        extra = (params,) if reorder else ()
        flat = [entry(graph, *at, *extra) for at in zip(*(a.reshape(-1).tolist() for a in arrays), strict=True)]
        return Symbols(np.array(flat, dtype=np.int64).reshape(arrays[0].shape), result)

    return handler


def _function(op: str, known: Callable[..., Any]) -> Handler:
    return _entrywise(known, lambda graph, *at: graph.apply(op, *at))


def _divide(graph: Graph, inputs: list[Value], params: Params) -> Value:
    if not any(isinstance(x, Symbols) for x in inputs):
        whole = np.asarray(inputs[0]).dtype.kind in "iu"
        with np.errstate(all="ignore"):
            return np.trunc(np.divide(*inputs)) if whole else np.divide(*inputs)
    whole = any(isinstance(x, Symbols) and x.kind == "i" for x in inputs)
    entry = (lambda g, a, b: g.apply("trunc", g.apply("div", a, b))) if whole else Graph.div
    return _entrywise(np.divide, entry)(graph, inputs, params)


def _compare(op: str, known: Callable[..., Any], swap: bool = False) -> Handler:
    def entry(graph: Graph, a: int, b: int) -> int:
        return graph.compare(op, b, a) if swap else graph.compare(op, a, b)

    return _entrywise(known, entry, "b")


def _logic(op: str, known: Callable[..., Any]) -> Handler:
    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        if any(isinstance(x, Symbols) and x.kind != "b" for x in inputs):
            raise Unsupported(f"the operation {op!r} on the bits of integers that depend on values")
        return _entrywise(known, lambda graph, *at: graph.logic(op, *at), "b")(graph, inputs, params)

    return handler


def _sign(graph: Graph, a: int) -> int:
    minus = graph.constant(-1.0)
    zero_or_nan = a
    negative = graph.select(graph.compare("lt", a, ZERO), minus, zero_or_nan)
    return graph.select(graph.compare("lt", ZERO, a), ONE, negative)


def _logistic(graph: Graph, a: int) -> int:
    return graph.div(ONE, graph.add(ONE, graph.apply("exp", graph.neg(a))))


def _convert(graph: Graph, inputs: list[Value], params: Params) -> Value:
    (value,), target = inputs, kind_of(params["new_dtype"])
    if target == "?":
        raise Unsupported(f"conversion to {params['new_dtype']}")
    if not isinstance(value, Symbols):
        with np.errstate(all="ignore"):
            return value.astype(params["new_dtype"])
    if np.dtype(params["new_dtype"]) in (np.float32, np.float16):
        raise Unsupported("single precision")
    if value.kind == target or (value.kind, target) == ("i", "f"):
        return Symbols(value.ids, target)
    entry: Callable[[Graph, int], int]
    if value.kind == "b":
        entry = lambda g, a: g.select(a, ONE, ZERO)
    elif target == "b":
        entry = lambda g, a: g.compare("ne", a, ZERO)
    else:
        entry = lambda g, a: g.apply("trunc", a)
    return _entrywise(np.trunc, entry, target)(graph, inputs, params)


def _integer_pow(known: Any, params: Params) -> Any:
    return np.power(np.asarray(known, dtype=float), params["y"])


def _pow(graph: Graph, inputs: list[Value], params: Params) -> Value:
    base, exponent = inputs
    if isinstance(base, Symbols) and not isinstance(exponent, Symbols):
        whole = np.unique(exponent)
        if whole.size == 1 and whole[0] == np.rint(whole[0]) and abs(whole[0]) <= 64:
            power = lambda g, a, b: g.power(a, int(whole[0]))
            return _entrywise(np.power, power)(graph, inputs, params)
    return _function("pow", np.power)(graph, inputs, params)


def _select(graph: Graph, inputs: list[Value], params: Params) -> Value:
    which, cases = inputs[0], inputs[1:]
    if not any(isinstance(x, Symbols) for x in inputs):
        return np.choose(np.asarray(which).astype(int), cases)
    if not isinstance(which, Symbols):
        arrays = [nodes(graph, x) for x in cases]
        kind = next(x.kind for x in cases if isinstance(x, Symbols))
        return Symbols(np.choose(np.asarray(which).astype(int), arrays).astype(np.int64), kind)
    kinds = [x.kind if isinstance(x, Symbols) else kind_of(np.asarray(x).dtype) for x in cases]
    if which.kind == "b":
        choose = lambda g, c, no, yes: g.select(c, yes, no)
    else:

        def choose(g: Graph, c: int, *at: int) -> int:
            result = at[-1]
            for k in reversed(range(len(at) - 1)):
                result = g.select(g.compare("le", c, g.constant(k)), at[k], result)
            return result

    return _entrywise(np.choose, choose, kinds[0])(graph, inputs, params)


def _stop(graph: Graph, inputs: list[Value], params: Params) -> Value:
    (value,) = inputs
    if not isinstance(value, Symbols):
        return value
    flat = [i if i in graph.constants else graph.distinct("stop", i) for i in value.ids.reshape(-1).tolist()]
    return Symbols(np.array(flat, dtype=np.int64).reshape(value.ids.shape), value.kind)


# --- moving entries about -------------------------------------------------------------------------------


def _moving(move: Callable[..., np.ndarray]) -> Handler:
    """A handler for what only rearranges one array."""

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        (value,) = inputs
        if isinstance(value, Symbols):
            return Symbols(move(value.ids, params), value.kind)
        return move(np.asarray(value), params)

    return handler


def _joining(join: Callable[..., np.ndarray]) -> Handler:
    """A handler for what rearranges several arrays into one."""

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        kinds = [x.kind for x in inputs if isinstance(x, Symbols)]
        if not kinds:
            return join([np.asarray(x) for x in inputs], params)
        return Symbols(join([nodes(graph, x) for x in inputs], params), kinds[0])

    return handler


def _broadcast(x: np.ndarray, p: Params) -> np.ndarray:
    shape = [1] * len(p["shape"])
    for axis, size in zip(p["broadcast_dimensions"], x.shape, strict=True):
        shape[axis] = size
    return np.broadcast_to(x.reshape(shape), p["shape"])


def _slice(x: np.ndarray, p: Params) -> np.ndarray:
    steps = p["strides"] or [1] * x.ndim
    cuts = zip(p["start_indices"], p["limit_indices"], steps, strict=True)
    return x[tuple(slice(a, b, c) for a, b, c in cuts)]


def _pad(arrays: Sequence[np.ndarray], p: Params) -> np.ndarray:
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


def _split(graph: Graph, inputs: list[Value], params: Params) -> list[Value]:
    cuts = np.cumsum(params["sizes"])[:-1]
    (value,) = inputs
    if isinstance(value, Symbols):
        return [Symbols(part, value.kind) for part in np.split(value.ids, cuts, axis=params["axis"])]
    return list(np.split(np.asarray(value), cuts, axis=params["axis"]))


def _unstack(graph: Graph, inputs: list[Value], params: Params) -> list[Value]:
    (value,) = inputs
    kind = value.kind if isinstance(value, Symbols) else ""
    parts = np.moveaxis(value.ids if isinstance(value, Symbols) else np.asarray(value), params["axis"], 0)
    return [Symbols(part, kind) if kind else part for part in parts]


def _iota(graph: Graph, inputs: list[Value], params: Params) -> Value:
    shape, axis = params["shape"], params["dimension"]
    line = np.arange(shape[axis]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(line, shape).astype(params["dtype"])


# --- reductions -----------------------------------------------------------------------------------------


def _reduction(known: Callable[..., Any], entry: Callable[[Graph, list[int]], int]) -> Handler:
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


def _sum(graph: Graph, row: list[int]) -> int:
    total = ZERO
    for x in row:
        total = graph.add(total, x)
    return total


def _product(graph: Graph, row: list[int]) -> int:
    total = ONE
    for x in row:
        total = graph.mul(total, x)
    return total


def _extremum(op: str, empty: float) -> Handler:
    def known(x: Any, axis: Any) -> Any:
        if x.size == 0:
            return np.full([s for k, s in enumerate(x.shape) if k not in axis], empty)
        return {"max": np.max, "min": np.min}[op](x, axis=axis)

    return _reduction(known, lambda g, row: g.largest(row, op) if row else g.constant(empty))


def _all(op: str, empty: int) -> Callable[[Graph, list[int]], int]:
    def entry(graph: Graph, row: list[int]) -> int:
        total = empty
        for x in row:
            total = graph.logic(op, total, x)
        return total

    return entry


def _position(better: str) -> Handler:
    """argmax and argmin; NaN counts as best, as in NumPy."""

    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        (value,), (axis,) = inputs, params["axes"]
        if not isinstance(value, Symbols):
            return {"max": np.argmax, "min": np.argmin}[better](value, axis=axis)
        if value.kind == "b":
            value = _convert(graph, [value], {"new_dtype": np.float64})
            assert isinstance(value, Symbols)
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


def _cumulative(known: Callable[..., Any], entry: Callable[[Graph, int, int], int]) -> Handler:
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


def _dot(graph: Graph, inputs: list[Value], params: Params) -> Value:
    (left, right), (batch_left, batch_right) = params["dimension_numbers"]
    known = not any(isinstance(x, Symbols) for x in inputs)
    a, b = (np.asarray(x) for x in inputs) if known else (nodes(graph, x) for x in inputs)
    free_a = [k for k in range(a.ndim) if k not in left and k not in batch_left]
    free_b = [k for k in range(b.ndim) if k not in right and k not in batch_right]
    shape = [a.shape[k] for k in batch_left] + [a.shape[k] for k in free_a] + [b.shape[k] for k in free_b]
    inner = int(np.prod([a.shape[k] for k in left]))
    batches = int(np.prod([a.shape[k] for k in batch_left]))
    a = a.transpose([*batch_left, *free_a, *left]).reshape(batches, -1, inner)
    b = b.transpose([*batch_right, *right, *free_b]).reshape(batches, inner, -1)
    if known:
        return np.matmul(a, b).reshape(shape)
    flat = []
    for k in range(batches):
        columns = b[k].T.tolist()
        for row in a[k].tolist():
            for column in columns:
                total = ZERO
                for x, y in zip(row, column, strict=True):
                    if x and y:  # neither is the constant zero
                        total = graph.add(total, graph.mul(x, y))
                flat.append(total)
    return Symbols(np.array(flat, dtype=np.int64).reshape(shape), "f")


# --- indices --------------------------------------------------------------------------------------------


def _choices(graph: Graph, index: int, low: int, high: int) -> list[tuple[int, int]]:
    """Conditions under which an unknown index, kept within [low, high], takes each of its values."""
    if index in graph.constants:
        return [(TRUE, min(max(int(graph.constants[index]), low), high))]
    ends = [graph.compare("lt", index, graph.constant(k + 1)) for k in range(low, high)]
    return [*zip(ends, range(low, high), strict=True), (TRUE, high)]


def _pick(graph: Graph, indices: Sequence[int], highs: Sequence[int], take: Callable[..., np.ndarray]) -> np.ndarray:
    """``take(*indices)`` for indices that may be unknown: every case, and a choice between them."""
    result: np.ndarray | None = None
    options = [_choices(graph, i, 0, high) for i, high in zip(indices, highs, strict=True)]
    for case in reversed(list(itertools.product(*options))):
        taken = np.asarray(take(*(k for _, k in case)))
        if result is None:
            result = taken
            continue
        here = TRUE
        for condition, _ in case:
            here = graph.logic("and", here, condition)
        old = result.reshape(-1).tolist()
        flat = [graph.select(here, new, o) for new, o in zip(taken.reshape(-1).tolist(), old, strict=True)]
        result = np.array(flat, dtype=np.int64).reshape(taken.shape)
    assert result is not None
    return result


def _dynamic_slice(graph: Graph, inputs: list[Value], params: Params) -> Value:
    value, starts = inputs[0], inputs[1:]
    ids, sizes = nodes(graph, value), params["slice_sizes"]
    highs = [full - size for full, size in zip(ids.shape, sizes, strict=True)]
    take = lambda *at: ids[tuple(slice(a, a + s) for a, s in zip(at, sizes, strict=True))]
    if not any(isinstance(x, Symbols) for x in inputs):
        cuts = [min(max(int(s), 0), h) for s, h in zip(starts, highs, strict=True)]
        return np.asarray(value)[tuple(slice(a, a + s) for a, s in zip(cuts, sizes, strict=True))]
    kind = value.kind if isinstance(value, Symbols) else kind_of(np.asarray(value).dtype)
    indices = [int(nodes(graph, s)) for s in starts]
    return Symbols(_pick(graph, indices, highs, take), kind)


def _dynamic_update_slice(graph: Graph, inputs: list[Value], params: Params) -> Value:
    value, update, starts = inputs[0], inputs[1], inputs[2:]
    ids, new = nodes(graph, value), nodes(graph, update)
    highs = [full - size for full, size in zip(ids.shape, new.shape, strict=True)]

    def take(*at: int) -> np.ndarray:
        result = ids.copy()
        result[tuple(slice(a, a + s) for a, s in zip(at, new.shape, strict=True))] = new
        return result

    kinds = [x.kind for x in (value, update) if isinstance(x, Symbols)]
    kind = kinds[0] if kinds else kind_of(np.asarray(value).dtype)
    return Symbols(_pick(graph, [int(nodes(graph, s)) for s in starts], highs, take), kind)


def _gather(graph: Graph, inputs: list[Value], params: Params) -> Value:
    value, starts = inputs
    d, sizes = params["dimension_numbers"], params["slice_sizes"]
    ids, at = nodes(graph, value), nodes(graph, starts)
    fill = getattr(params["mode"], "name", "") == "FILL_OR_DROP"
    if fill and isinstance(starts, Symbols):
        raise Unsupported("an index that depends on values, with filling outside of the array")
    outside = params.get("fill_value")
    if outside is None:
        outside = np.nan
    batch = at.shape[:-1]
    kept = [k for k in range(ids.ndim) if k not in (*d.collapsed_slice_dims, *d.operand_batching_dims)]
    window = [sizes[k] for k in kept]
    result = np.empty([*batch, *window], dtype=np.int64)
    highs = [ids.shape[k] - sizes[k] for k in d.start_index_map]
    for where in np.ndindex(*batch):
        fixed = {
            k: where[axis] for k, axis in zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True)
        }

        def take(*index: int, fixed: dict[int, int] = fixed) -> np.ndarray:
            first = dict(zip(d.start_index_map, index, strict=True)) | fixed
            cut = tuple(slice(first.get(k, 0), first.get(k, 0) + sizes[k]) for k in range(ids.ndim))
            return ids[cut].reshape(window)

        index = [int(i) for i in at[where]]
        if fill:
            known = [int(graph.constants[i]) for i in index]
            if not all(0 <= i <= high for i, high in zip(known, highs, strict=True)):
                result[where] = graph.constant(outside)
                continue
        result[where] = _pick(graph, index, highs, take)
    rank = len(batch) + len(window)
    others = [k for k in range(rank) if k not in d.offset_dims]
    order = np.argsort([*others, *d.offset_dims])
    kind = value.kind if isinstance(value, Symbols) else kind_of(np.asarray(value).dtype)
    return Symbols(result.transpose(order), kind)


def _scatter(combine: Callable[[Graph, int, int], int]) -> Handler:
    def handler(graph: Graph, inputs: list[Value], params: Params) -> Value:
        value, starts, updates = inputs
        d = params["dimension_numbers"]
        if isinstance(starts, Symbols):
            raise Unsupported("writing to an index that depends on values")
        result, new = nodes(graph, value).copy(), nodes(graph, updates)
        at = np.asarray(starts)
        scattered = [k for k in range(new.ndim) if k not in d.update_window_dims]
        kept = [k for k in range(result.ndim) if k not in (*d.inserted_window_dims, *d.operand_batching_dims)]
        clip = getattr(params["mode"], "name", "") == "CLIP"
        window = dict(zip(kept, [new.shape[k] for k in d.update_window_dims], strict=True))
        for where in np.ndindex(*new.shape):
            batch = tuple(where[k] for k in scattered)
            target = [0] * result.ndim
            for k, axis in zip(kept, d.update_window_dims, strict=True):
                target[k] = where[axis]
            for k, axis in zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True):
                target[k] += batch[axis]
            for k, i in zip(d.scatter_dims_to_operand_dims, at[batch].tolist(), strict=True):
                most = result.shape[k] - window.get(k, 1)
                target[k] += min(max(i, 0), most) if clip else i
            if all(0 <= i < size for i, size in zip(target, result.shape, strict=True)):
                spot = tuple(target)
                result[spot] = combine(graph, int(result[spot]), int(new[where]))
        kinds = [x.kind for x in (value, updates) if isinstance(x, Symbols)]
        return Symbols(result, kinds[0] if kinds else kind_of(np.asarray(value).dtype))

    return handler


# --- small linear algebra -------------------------------------------------------------------------------


def _lu(graph: Graph, inputs: list[Value], params: Params) -> list[Value]:
    """LU with row pivoting at run time, by comparisons: what LAPACK does, unrolled."""
    (value,) = inputs
    matrix = nodes(graph, value)
    if matrix.ndim != 2:
        stacks = [_lu(graph, [Symbols(m, "f")], params) for m in matrix.reshape(-1, *matrix.shape[-2:])]
        joined = [np.stack([x.ids for x in part]) for part in zip(*stacks, strict=True)]
        lead = matrix.shape[:-2]
        return [Symbols(x.reshape(*lead, *x.shape[1:]), k) for x, k in zip(joined, "fii", strict=True)]
    # jnp.linalg.solve stops derivatives here, and states its own; the operations below have the right ones.
    rows = [[_started(graph, int(i)) for i in row] for row in matrix]
    height, width = matrix.shape
    order = [graph.constant(k) for k in range(height)]
    pivots = []
    for k in range(min(height, width)):
        best, at = graph.apply("abs", rows[k][k]), graph.constant(k)
        for i in range(k + 1, height):
            if rows[i][k] == ZERO:
                continue
            size = graph.apply("abs", rows[i][k])
            ahead = graph.compare("lt", best, size)
            best, at = graph.select(ahead, size, best), graph.select(ahead, graph.constant(i), at)
        pivots.append(at)
        for i in range(k + 1, height):  # row i is the pivot's: exchange it with row k
            if rows[i][k] == ZERO:
                continue
            here = graph.compare("eq", at, graph.constant(i))
            for j in range(width):
                a, b = rows[k][j], rows[i][j]
                rows[k][j], rows[i][j] = graph.select(here, b, a), graph.select(here, a, b)
            a, b = order[k], order[i]
            order[k], order[i] = graph.select(here, b, a), graph.select(here, a, b)
        for i in range(k + 1, height):
            if rows[i][k] == ZERO:
                continue
            factor = rows[i][k] = graph.div(rows[i][k], rows[k][k])
            for j in range(k + 1, width):
                rows[i][j] = graph.sub(rows[i][j], graph.mul(factor, rows[k][j]))
    return [
        Symbols(np.array(rows, dtype=np.int64).reshape(height, width), "f"),
        Symbols(np.array(pivots, dtype=np.int64), "i"),
        Symbols(np.array(order, dtype=np.int64), "i"),
    ]


def _started(graph: Graph, i: int) -> int:
    while graph.nodes[i].op == "stop":
        i = graph.nodes[i].inputs[0]
    return i


def _triangular(graph: Graph, inputs: list[Value], params: Params) -> Value:
    a, b = (nodes(graph, x) for x in inputs)
    if a.ndim != 2:
        lead = a.shape[:-2]
        pairs = zip(a.reshape(-1, *a.shape[-2:]), b.reshape(-1, *b.shape[-2:]), strict=True)
        parts = [_triangular(graph, [Symbols(x, "f"), Symbols(y, "f")], params).ids for x, y in pairs]  # type: ignore[union-attr]
        return Symbols(np.stack(parts).reshape(b.shape), "f") if lead else Symbols(parts[0], "f")
    lower = params["lower"]
    if params["transpose_a"]:
        a, lower = a.T, not lower
    if not params["left_side"]:
        a, b, lower = a.T, b.T, not lower
    size = len(a)
    result = b.copy()
    order = range(size) if lower else range(size - 1, -1, -1)
    for column in range(b.shape[1]):
        for i in order:
            total = int(result[i, column])
            for j in range(i) if lower else range(i + 1, size):
                total = graph.sub(total, graph.mul(int(a[i, j]), int(result[j, column])))
            result[i, column] = total if params["unit_diagonal"] else graph.div(total, int(a[i, i]))
    return Symbols(result if params["left_side"] else result.T, "f")


def _cholesky(graph: Graph, inputs: list[Value], params: Params) -> Value:
    a = nodes(graph, inputs[0])
    if a.ndim != 2:
        raise Unsupported("the Cholesky factors of several matrices")
    size = len(a)
    result = np.full(a.shape, ZERO, dtype=np.int64)
    for j in range(size):
        for i in range(j, size):
            total = int(a[i, j])
            for k in range(j):
                total = graph.sub(total, graph.mul(int(result[i, k]), int(result[j, k])))
            result[i, j] = graph.apply("sqrt", total) if i == j else graph.div(total, int(result[j, j]))
    return Symbols(result, "f")


def _folded(handler: Handler) -> Handler:
    """Results whose entries all turn out to be known go on as NumPy arrays: indices, above all."""

    def whole(graph: Graph, inputs: list[Value], params: Params) -> Any:
        result = handler(graph, inputs, params)
        if isinstance(result, list):
            return [_known(graph, x) for x in result]
        return _known(graph, result)

    return whole


def _known(graph: Graph, value: Value) -> Value:
    if not isinstance(value, Symbols):
        return value
    flat = value.ids.reshape(-1).tolist()
    if not all(i in graph.constants for i in flat):
        return value
    dtype = {"f": float, "i": np.int64, "b": bool}[value.kind]
    return np.array([graph.constants[i] for i in flat], dtype=dtype).reshape(value.ids.shape)


def _special(name: str) -> Callable[..., Any]:
    def evaluate(x: Any) -> Any:
        import scipy.special

        return getattr(scipy.special, name)(x)

    return evaluate


_UNARY: dict[str, tuple[str, Callable[..., Any]]] = {
    "sqrt": ("sqrt", np.sqrt),
    "abs": ("abs", np.abs),
    "floor": ("floor", np.floor),
    "ceil": ("ceil", np.ceil),
    "sin": ("sin", np.sin),
    "cos": ("cos", np.cos),
    "tan": ("tan", np.tan),
    "asin": ("asin", np.arcsin),
    "acos": ("acos", np.arccos),
    "atan": ("atan", np.arctan),
    "sinh": ("sinh", np.sinh),
    "cosh": ("cosh", np.cosh),
    "tanh": ("tanh", np.tanh),
    "asinh": ("asinh", np.arcsinh),
    "acosh": ("acosh", np.arccosh),
    "atanh": ("atanh", np.arctanh),
    "exp": ("exp", np.exp),
    "exp2": ("exp2", np.exp2),
    "expm1": ("expm1", np.expm1),
    "log": ("log", np.log),
    "log1p": ("log1p", np.log1p),
    "cbrt": ("cbrt", np.cbrt),
    "erf": ("erf", _special("erf")),
    "erfc": ("erfc", _special("erfc")),
}


def _round(graph: Graph, inputs: list[Value], params: Params) -> Value:
    if int(params["rounding_method"]) == 1:
        return _function("rint", np.rint)(graph, inputs, params)
    away = lambda g, a: g.mul(_sign(g, a), g.apply("floor", g.add(g.apply("abs", a), g.constant(0.5))))
    return _entrywise(lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5), away)(graph, inputs, params)


def _clamp(graph: Graph, inputs: list[Value], params: Params) -> Value:
    low, value, high = inputs
    larger = TABLE["max"](graph, [low, value], params)
    return TABLE["min"](graph, [larger, high], params)


_ABOVE = lambda g, a: g.compare("lt", g.apply("abs", a), g.constant(np.inf))

_BARE: dict[str, Handler] = {
    **{name: _function(op, known) for name, (op, known) in _UNARY.items()},
    "add": _entrywise(np.add, Graph.add),
    "add_any": _entrywise(np.add, Graph.add),
    "sub": _entrywise(np.subtract, Graph.sub),
    "mul": _entrywise(np.multiply, Graph.mul),
    "div": _divide,
    "neg": _entrywise(np.negative, Graph.neg),
    "max": _entrywise(np.maximum, lambda g, a, b: g.extreme("max", a, b)),
    "min": _entrywise(np.minimum, lambda g, a, b: g.extreme("min", a, b)),
    "rem": _function("fmod", np.fmod),
    "pow": _pow,
    "atan2": _function("atan2", np.arctan2),
    "square": _entrywise(np.square, lambda g, a: g.mul(a, a)),
    "integer_pow": _entrywise(_integer_pow, lambda g, a, p: g.power(a, p["y"]), reorder=True),
    "rsqrt": _entrywise(lambda x: 1 / np.sqrt(x), lambda g, a: g.div(ONE, g.apply("sqrt", a))),
    "sign": _entrywise(np.sign, _sign),
    "logistic": _entrywise(lambda x: 1 / (1 + np.exp(-x)), _logistic),
    "round": _round,
    "clamp": _clamp,
    "is_finite": _entrywise(np.isfinite, _ABOVE, "b"),
    "lt": _compare("lt", np.less),
    "le": _compare("le", np.less_equal),
    "gt": _compare("lt", np.greater, swap=True),
    "ge": _compare("le", np.greater_equal, swap=True),
    "eq": _compare("eq", np.equal),
    "ne": _compare("ne", np.not_equal),
    "lt_to": _compare("lt", np.less),
    "le_to": _compare("le", np.less_equal),
    "and": _logic("and", np.bitwise_and),
    "or": _logic("or", np.bitwise_or),
    "xor": _logic("xor", np.bitwise_xor),
    "not": _logic("not", np.invert),
    "select_n": _select,
    "convert_element_type": _convert,
    "stop_gradient": _stop,
    "copy": _moving(lambda x, p: x),
    "copy_p": _moving(lambda x, p: x),
    "reduce_precision": _moving(lambda x, p: x),
    "reshape": _moving(lambda x, p: x.reshape(p["new_sizes"])),
    "squeeze": _moving(lambda x, p: np.squeeze(x, axis=tuple(p["dimensions"]))),
    "expand_dims": _moving(lambda x, p: np.expand_dims(x, tuple(p["dimensions"]))),
    "transpose": _moving(lambda x, p: np.transpose(x, p["permutation"])),
    "rev": _moving(lambda x, p: np.flip(x, tuple(p["dimensions"]))),
    "broadcast_in_dim": _moving(_broadcast),
    "slice": _moving(_slice),
    "pad": _joining(_pad),
    "concatenate": _joining(lambda xs, p: np.concatenate(xs, axis=p["dimension"])),
    "stack": _joining(lambda xs, p: np.stack(xs, axis=p["axis"])),
    "split": _split,
    "unstack": _unstack,
    "iota": _iota,
    "reduce_sum": _reduction(np.sum, _sum),
    "reduce_prod": _reduction(np.prod, _product),
    "reduce_max": _extremum("max", -np.inf),
    "reduce_min": _extremum("min", np.inf),
    "reduce_and": _reduction(np.all, _all("and", TRUE)),
    "reduce_or": _reduction(np.any, _all("or", FALSE)),
    "argmax": _position("max"),
    "argmin": _position("min"),
    "cumsum": _cumulative(np.cumsum, Graph.add),
    "cumprod": _cumulative(np.cumprod, Graph.mul),
    "cummax": _cumulative(np.maximum.accumulate, lambda g, a, b: g.extreme("max", a, b)),
    "cummin": _cumulative(np.minimum.accumulate, lambda g, a, b: g.extreme("min", a, b)),
    "dot_general": _dot,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter(lambda g, old, new: new),
    "scatter-add": _scatter(Graph.add),
    "scatter_add": _scatter(Graph.add),
    "scatter-mul": _scatter(Graph.mul),
    "scatter_mul": _scatter(Graph.mul),
    "lu": _lu,
    "triangular_solve": _triangular,
    "cholesky": _cholesky,
}
TABLE: dict[str, Handler] = {name: _folded(handler) for name, handler in _BARE.items()}
