"""Entries that expressions read from tables of inputs, for derivatives with respect to long tables.

In reverse, the derivative with respect to a table is zero but for the few entries that were read. An
expression for every entry would take as long as the table is. Instead the derivatives with respect to what
was read are found, together with its places, and are added where they belong.
"""

from __future__ import annotations

import numpy as np

from genalpha.compiler.graph import FEW, Graph


class TableReads:
    """What ``outputs`` read at unknown places from tables whose entries are among ``inputs``.

    ``nodes`` (J,) are the expressions that were read and ``indices`` (J,) those of their places.
    """

    def __init__(self, graph: Graph, outputs: np.ndarray, inputs: np.ndarray) -> None:
        place_of = {node: k for k, node in enumerate(inputs.tolist())}
        nodes, indices, self._places = [], [], list[np.ndarray]()
        for i in graph.reachable(outputs.tolist()):
            op, needs, _ = graph.nodes[i]
            if op != "take" or i in graph.rules:
                continue
            entries = graph.nodes[needs[0]].inputs
            if len(entries) > FEW and all(j in place_of for j in entries):
                nodes.append(i)
                indices.append(needs[1])
                self._places.append(np.array([place_of[j] for j in entries]))
        self.nodes, self.indices = (np.array(x, dtype=np.int64) for x in (nodes, indices))

    def places(self, graph: Graph) -> np.ndarray:
        """Expressions (J,) for the numbers of the inputs that were read."""
        pairs = zip(self._places, self.indices.tolist(), strict=True)
        return np.array([graph.take(graph.known_table(x.astype(float)), i) for x, i in pairs], dtype=np.int64)

    def add(self, total: np.ndarray, found: np.ndarray) -> None:
        """Add derivatives to those with respect to all inputs (S, ...).

        ``found`` (N, 2J, ...) has the derivatives with respect to what was read, and the places.
        """
        count = len(self.nodes)
        lanes = [np.arange(n) for n in found.shape[2:]]  # at most one axis
        at = np.fmax(found[:, count:], 0.0).astype(int)  # a run that failed has NaN
        for k, places in enumerate(self._places):
            np.add.at(total, (places[at[:, k]], *lanes), found[:, k])
