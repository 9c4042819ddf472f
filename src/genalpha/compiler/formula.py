"""The entries of a table as one formula, so that a loop can compute them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from genalpha.compiler.graph import Graph

# The most numbers in a formula.
MOST = 100


class Formula(NamedTuple):
    """The node ``entry`` is the entry of a table whose number is in the node ``counter``.

    ``body`` lists the nodes to be computed, in order. ``needs`` are the nodes outside of it: the numbers that
    all entries share, and the tables that are read.
    """

    counter: int
    entry: int
    body: tuple[int, ...]
    needs: tuple[int, ...]


def find(graph: Graph, entries: tuple[int, ...], slots: dict[int, int]) -> Formula | None:
    """The formula of these entries; None if they are not the same expression of numbers side by side.

    ``slots`` are those of inputs.
    """
    first, count = len(graph.nodes), len(entries)
    counter = int(graph.inputs(1)[0])
    known: dict[tuple[int, ...], int | None] = {}

    def written(column: tuple[int, ...]) -> int | None:
        if column not in known:
            if len(known) > MOST:
                return None
            known[column] = None  # until it is found
            known[column] = _column(graph, column, slots, counter) or again(column)
        return known[column]

    def again(column: tuple[int, ...]) -> int | None:
        nodes = [graph.nodes[i] for i in column]
        op, inputs, _ = nodes[0]
        if not inputs or any(node.op != op or len(node.inputs) != len(inputs) for node in nodes):
            return None
        below = [written(tuple(node.inputs[k] for node in nodes)) for k in range(len(inputs))]
        return None if None in below else graph.make(op, *below)  # type: ignore[arg-type]

    entry = written(entries)
    if entry is None or count < 2:
        graph.reset(first)
        return None
    outside = {*graph.constants, *graph.contents, counter}
    inside = [i for i in graph.reachable([entry]) if i >= first and i not in outside]
    body = [i for i in inside if graph.nodes[i].kind != "t"]
    below = {j for i in body for j in graph.nodes[i].inputs} - {*body, counter}
    needs = sorted(below - graph.constants.keys())
    return Formula(counter, entry, tuple(body), tuple(needs))


def _column(graph: Graph, column: tuple[int, ...], slots: dict[int, int], counter: int) -> int | None:
    """Numbers that are the same, or known, or side by side in memory."""
    if column.count(column[0]) == len(column):
        return column[0]
    if all(i in graph.constants for i in column):
        return None if graph.nodes[column[0]].kind == "b" else graph.take(graph.table(column), counter)
    if equidistant(column, slots) is not None:
        return graph.take(graph.table(column), counter)
    return None


def equidistant(column: tuple[int, ...], slots: dict[int, int]) -> tuple[int, int] | None:
    """The first slot and the distance of inputs in equidistant slots."""
    places = [slots.get(i, -1) for i in column]
    steps = set(np.diff(places).tolist())
    return (places[0], steps.pop()) if min(places) >= 0 and len(steps) == 1 and 0 not in steps else None
