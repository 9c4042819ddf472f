"""Calls of Python functions, whose derivatives are other calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from genalpha.compiler.graph import ZERO, Graph
from genalpha.compiler.primitives.custom import Partials, with_rule
from genalpha.compiler.reader import Reader, Symbols, Value, nodes
from genalpha.numerics.host import HostCall


def call(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    return [called(reader.graph, equation.params["call"], inputs)]


def called(graph: Graph, call: HostCall, inputs: Sequence[Value]) -> Value:
    """The result of a call. All its entries come from one node, so the function is called once for them."""
    if not any(isinstance(x, Symbols) for x in inputs):
        return call.of_arrays(*inputs)
    arrays = [nodes(graph, x).reshape(-1) for x in inputs]
    table = graph.host(call, *np.concatenate(arrays).tolist())
    flat = [ZERO if zero else graph.take(table, graph.constant(k)) for k, zero in enumerate(call.zeros)]

    def find() -> Partials:
        found: Partials = {}
        for k, (x, ids) in enumerate(zip(inputs, arrays, strict=True)):
            if not isinstance(x, Symbols) or x.kind != "f":
                continue
            slopes = nodes(graph, called(graph, call.partial(k), inputs)).reshape(call.count, len(ids))
            for row, partials in enumerate(slopes.tolist()):
                pairs = zip(ids.tolist(), partials, strict=True)
                found.setdefault(row, []).extend((i, s) for i, s in pairs if i not in graph.constants)
        return found

    result = Symbols(np.array(flat, dtype=np.int64).reshape(call.shape), "f")
    return with_rule(graph, "f", inputs, [result], find)[0]
