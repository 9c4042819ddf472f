"""Expressions in which some nodes are replaced by others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from genalpha.compiler.graph import Graph
from genalpha.compiler.stated import Rule


def substitution(graph: Graph, others: dict[int, int]) -> Callable[[np.ndarray], np.ndarray]:
    """A function that replaces nodes by ``others``, and rebuilds the expressions that contain them."""
    known, resets, first = dict(others), len(graph.resets), _first(graph, others)
    now = lambda i: i if i < first else known[i]

    def again(i: int) -> int:
        op, inputs, _ = graph.nodes[i]
        moved = [now(j) for j in inputs]
        if i not in graph.rules:
            if tuple(moved) == inputs:
                return i
            return graph.host(graph.hosts[i], *moved) if op == "host" else graph.make(op, *moved)
        old = graph.rules[i]
        given = put(np.array(old.inputs)).tolist()
        if tuple(moved) == inputs and tuple(given) == old.inputs:
            return i
        if old.again is not None:
            return old.again(put)

        def partials() -> Sequence[tuple[int, int]]:
            flat = put(np.array(old.partials(), dtype=np.int64).reshape(-1)).tolist()
            return list(zip(flat[::2], flat[1::2], strict=True))

        rule = Rule(tuple(given), partials, lambda: put(np.array(old.held(), dtype=np.int64)).tolist())
        if op == "copy":
            return graph.stated(moved[0], rule)
        node = graph.make(op, *moved)
        if node not in graph.constants:
            graph.rules.setdefault(node, rule)
        return node

    def put(ids: np.ndarray) -> np.ndarray:
        nonlocal known, resets
        if resets < len(graph.resets):  # a rule asks again: nodes may have been forgotten
            left, resets = min(graph.resets[resets:]), len(graph.resets)
            known = {i: other for i, other in known.items() if max(i, other) < left}
        new, waiting = set[int](), ids.tolist()
        while waiting:
            i = waiting.pop()
            if i >= first and i not in known and i not in new:
                new.add(i)
                waiting.extend(graph.nodes[i].inputs)
        for i in sorted(new):
            if i not in known:
                known[i] = again(i)
        return np.array([now(i) for i in ids.tolist()], dtype=np.int64)

    return put


def _first(graph: Graph, others: dict[int, int]) -> int:
    """The first node that may depend on those that are replaced: nodes depend on others before them.

    A rule may have been added later to a node that was there already.
    """
    first = min(others, default=0)
    late = {i: max(rule.inputs, default=0) for i, rule in graph.rules.items() if i < first}
    while lower := [i for i, most in late.items() if i < first <= most]:
        first = min(lower)  # others may depend on it
    return first
