"""The entries of a table as one formula, so that a loop can compute them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from genalpha.compiler.graph import Graph

# The most numbers in a formula, and the largest fraction of entries that have another one.
MOST, OTHERS = 100, 0.1


class Formula(NamedTuple):
    """The node ``entry`` is the entry of a table whose number is in the node ``counter``.

    ``body`` lists the nodes to be computed, in order. ``others`` are entries that the formula does not give:
    their numbers, and their nodes. ``needs`` are all nodes from outside: numbers that the entries share,
    tables that are read, and ``others``.
    """

    counter: int
    entry: int
    body: tuple[int, ...]
    others: tuple[tuple[int, int], ...]
    needs: tuple[int, ...]


def find(graph: Graph, entries: Sequence[int], slots: dict[int, int]) -> Formula | None:
    """The formula of these entries; None if they are not the same expression of numbers side by side.

    ``slots`` are those of inputs.
    """
    shapes = _shapes(graph, entries)
    usual, count = Counter(shapes).most_common(1)[0]
    if count < (1 - OTHERS) * len(entries):
        return None
    others = tuple((k, i) for k, (i, shape) in enumerate(zip(entries, shapes, strict=True)) if shape != usual)
    first = len(graph.nodes)
    columns = _Columns(graph, [k for k, shape in enumerate(shapes) if shape == usual], len(entries), slots)
    entry = columns.written(tuple(i for i, shape in zip(entries, shapes, strict=True) if shape == usual))
    if entry is None:
        graph.reset(first)
        return None
    outside = {*graph.constants, columns.counter}
    inside = [i for i in graph.reachable([entry]) if i >= first and i not in outside]
    body = [i for i in inside if graph.nodes[i].kind != "t"]
    below = {j for i in body for j in graph.nodes[i].inputs} | {entry} | {i for _, i in others}
    needs = tuple(sorted(below - outside.union(body)))
    return Formula(columns.counter, entry, tuple(body), others, needs)


def _shapes(graph: Graph, entries: Sequence[int]) -> list[int]:
    """A number for each entry. Expressions that differ only in their inputs and constants have the same."""
    known: dict[tuple[object, ...], int] = {}
    found: dict[int, int] = {}
    for i in graph.reachable(entries):
        op, inputs, _ = graph.nodes[i]
        found[i] = known.setdefault((op, *(found[j] for j in inputs)), len(known))
    return [found[i] for i in entries]


class _Columns:
    """Corresponding nodes of the entries ``rows`` of a table, as expressions of the number of an entry."""

    def __init__(self, graph: Graph, rows: list[int], size: int, slots: dict[int, int]) -> None:
        self.graph, self.rows, self.size, self.slots = graph, np.array(rows), size, slots
        self.counter = int(graph.inputs(1)[0])
        self.inputs = {slot: i for i, slot in slots.items()}
        self.known: dict[tuple[int, ...], int | None] = {}

    def written(self, column: tuple[int, ...]) -> int | None:
        """One node for a column of nodes; None if there is none."""
        if column not in self.known and len(self.known) < MOST:
            same = column.count(column[0]) == len(column)
            self.known[column] = column[0] if same else self._read(column)
        return self.known.get(column)

    def _read(self, column: tuple[int, ...]) -> int | None:
        graph, (op, inputs, kind) = self.graph, self.graph.nodes[column[0]]
        if op == "constant":
            numbers = np.zeros(self.size)
            numbers[self.rows] = [graph.constants[i] for i in column]
            return graph.take(graph.known_table(numbers), self.counter)
        if op == "input":
            table = self._side_by_side(column)
            return None if table is None else graph.take(table, self.counter)
        if kind == "t" or not inputs:
            return None
        found = [self.written(below) for below in zip(*(graph.nodes[i].inputs for i in column), strict=True)]
        return None if None in found else graph.make(op, *found)  # type: ignore[arg-type]

    def _side_by_side(self, column: tuple[int, ...]) -> int | None:
        """A table that contains these inputs, if their slots are equidistant."""
        places = np.array([self.slots.get(i, -1) for i in column])
        step = (places[1] - places[0]) // (self.rows[1] - self.rows[0])
        all_places = places[0] + step * (np.arange(self.size) - self.rows[0])
        if step == 0 or min(places) < 0 or (all_places[self.rows] != places).any():
            return None
        whole = [self.inputs.get(slot, -1) for slot in all_places.tolist()]
        return None if min(whole) < 0 else self.graph.table(*whole)


def equidistant(column: Sequence[int], slots: dict[int, int]) -> tuple[int, int] | None:
    """The first slot and the distance of inputs in equidistant slots."""
    places = [slots.get(i, -1) for i in column]
    steps = set(np.diff(places).tolist())
    return (places[0], steps.pop()) if min(places) >= 0 and len(steps) == 1 and 0 not in steps else None
