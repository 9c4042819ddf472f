"""The end of a step: computed once for each node, and read by all parts that are attached to it.

This is the position and the velocity that the unknowns lead to, the matrix of each rotation, and, for the
matrix of Newton's method, the tangent of its increment. Parts read values only: their derivatives are those
of the expressions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from genalpha.backends.native.writer import ITERATION
from genalpha.compiler import turned
from genalpha.compiler.graph import ONE, Graph
from genalpha.compiler.program import Builder
from genalpha.compiler.reader import inline
from genalpha.compiler.stated import Rule
from genalpha.compiler.turned import GivenRotation, Nodes

# What nodes compute: q, v and the matrices of rotations; tangents of rotations; defects of a step.
STATES, TANGENTS, DEFECTS = "states", "tangents", "defects"


class Rotation(NamedTuple):
    """The start of a rotation and its increment, as nodes, and the place of its quaternion in q."""

    start: Nodes
    d: Nodes
    place: int


class Reached(NamedTuple):
    """The end of a step as nodes: q (size,), v (n,), and its rotations."""

    q: np.ndarray
    v: np.ndarray
    rotations: list[Rotation]

    @classmethod
    def by(
        cls,
        graph: Graph,
        function: Callable[..., Any],
        given: tuple[Any, ...],
        q0: np.ndarray,
        point: Callable[[int], GivenRotation | None],
    ) -> Reached:
        """The end of a step from ``q0``; ``point`` tells what is known about the rotation at a place."""
        where = {start: place for place, start in enumerate(q0.tolist())}
        found: dict[int, Rotation] = {}

        def seek(start: Nodes, d: Nodes) -> GivenRotation | None:
            place = where.get(start[0])
            if place is None:
                return None
            found[place] = Rotation(start, d, place)
            return point(place)

        graph.seek = seek
        try:
            q, v = inline(graph, function, *given)
        finally:
            graph.seek = None
        return cls(q, v, [found[place] for place in sorted(found)])


class NodePoints:
    """What a node computes. ``slots`` are those of each array, ``places`` those of quaternions in q."""

    def __init__(self, builder: Builder) -> None:
        self.builder, self.slots = builder, dict[str, np.ndarray]()
        self.places: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        """What others read."""
        return {"slots": self.slots, "places": self.places}

    def write(self, found: Reached, kernel: Callable[[str], str]) -> None:
        """Write the kernels for the end of a step, and for the tangents of its rotations."""
        graph, self.places = self.builder.graph, [rotation.place for rotation in found.rotations]
        matrices = [turned.matrix(graph, turned.retracted(graph, *r[:2])) for r in found.rotations]
        tangents = [turned.tangent(graph, r.d) for r in found.rotations]
        flat = lambda squares: np.array(squares, dtype=np.int64).reshape(-1)
        self.store(STATES, np.concatenate([found.q, found.v, flat(matrices)]), kernel)
        self.store(TANGENTS, flat(tangents), kernel)

    def store(self, name: str, ids: np.ndarray, kernel: Callable[[str], str]) -> None:
        self.slots[name] = self.builder.slot(len(ids))
        self.builder.kernel(kernel(name), ITERATION, (self.slots[name], ids))


class PartPoints:
    """What a part reads of its ``nodes``, in order. ``sizes`` are those of their q and v."""

    def __init__(
        self, builder: Builder, nodes: Sequence[NodePoints], sizes: Sequence[tuple[int, int]]
    ) -> None:
        self.builder, self.graph, self.nodes, self.sizes = builder, builder.graph, nodes, list(sizes)
        self.slots: dict[str, np.ndarray] = {}
        self._read: dict[int, int] = {}  # nodes that are read, and what they stand for
        self._rotations: list[tuple[GivenRotation, Rotation]] = []

    def __getstate__(self) -> dict[str, Any]:
        """What others read."""
        return {"slots": self.slots, "sizes": self.sizes}

    def read(self, name: str) -> list[list[int]]:
        """The numbers of an array, those of each node of the part."""
        widths = [len(node.slots[name]) for node in self.nodes]
        self.slots[name] = self.builder.slot(sum(widths))
        inputs, ends = self.builder.inputs(self.slots[name], ITERATION).tolist(), np.cumsum(widths).tolist()
        return [inputs[end - width : end] for end, width in zip(ends, widths, strict=True)]

    def lend(self, function: Callable[..., Any], given: tuple[Any, ...], q0: np.ndarray) -> None:
        """Let expressions of the end of a step be read, wherever they occur."""
        states, tangents = self.read(STATES), self.read(TANGENTS)
        points = self._points(states, tangents)
        found = Reached.by(self.graph, function, given, q0, points.get)
        self._rotations = [(points[r.place], r) for r in found.rotations if r.place in points]
        at_q, at_v = 0, 0
        for (size, n), state in zip(self.sizes, states, strict=True):
            ids = [*found.q[at_q : at_q + size].tolist(), *found.v[at_v : at_v + n].tolist()]
            at_q, at_v = at_q + size, at_v + n
            for node, number in zip(ids, state, strict=False):
                if self.graph.lend(node, functools.partial(self._copy, node, number)):
                    self._read[number] = node

    def _copy(self, node: int, number: int) -> int:
        """A number that is read, with the derivatives of the node that it stands for."""
        return self.graph.stated(number, Rule((node,), lambda: [(node, ONE)]), ("read", number))

    def _points(self, states: list[list[int]], tangents: list[list[int]]) -> dict[int, GivenRotation]:
        """The rotations that nodes compute, by the places of their quaternions."""
        square = lambda row, first: [row[i : i + 3] for i in (first, first + 3, first + 6)]
        found, at = dict[int, GivenRotation](), 0
        for (size, n), node, state, tangent in zip(self.sizes, self.nodes, states, tangents, strict=True):
            for k, place in enumerate(node.places):
                matrix, quaternion = square(state, size + n + 9 * k), tuple(state[place : place + 4])
                found[at + place] = GivenRotation(quaternion, matrix, square(tangent, 9 * k))
            at += size
        return found

    def stand_ins(self) -> dict[int, int]:
        """The nodes that are read, and the expressions that they stand for."""
        found = dict(self._read)
        for point, rotation in self._rotations:
            value = turned.reached(self.graph, *rotation[:2])
            rows = zip(
                (point.quaternion, *point.matrix), (value, *turned.matrix(self.graph, value)), strict=True
            )
            for read, ids in rows:
                found |= dict(zip(read, ids, strict=True))
        return found


def arrays(kinds: Sequence[Any]) -> dict[str, int]:
    """The arrays that nodes write, and their sizes."""
    nodes = [kind for kind in kinds if kind.is_node]
    each = [(kind, name, slots) for kind in nodes for name, slots in kind.points.slots.items()]
    return {f"{name}:{kind.name}": kind.model.copies * len(slots) for kind, name, slots in each}


def lists(kinds: Sequence[Any], first: Mapping[str, int], n: int) -> list[tuple[Any, str, np.ndarray]]:
    """For every kind and each array, where its numbers are (K, S)."""
    found = []
    for name in (STATES, TANGENTS, DEFECTS):
        begin = np.zeros(n, int)  # of the numbers of a node, by the place of its first velocity
        for kind in kinds:
            if kind.is_node and name in kind.points.slots:
                copies, width = kind.model.copies, len(kind.points.slots[name])
                begin[kind.model.places.v[:, 0]] = first[f"{name}:{kind.name}"] + width * np.arange(copies)
        for kind in kinds:
            if name in kind.points.slots:
                nodes = [kind.points] if kind.is_node else kind.points.nodes
                starts = [0] if kind.is_node else np.cumsum([0, *(n for _, n in kind.points.sizes)]).tolist()
                at = [
                    begin[kind.model.places.v[:, start], None] + np.arange(len(node.slots[name]))
                    for start, node in zip(starts, nodes, strict=False)
                ]
                found.append((kind, name, np.concatenate(at, axis=1)))
    return found
