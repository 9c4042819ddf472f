"""Nodes that are replaced by others."""

import numpy as np

from genalpha.compiler.graph import Graph
from genalpha.compiler.stated import Rule
from genalpha.compiler.substitute import substitution


def test_rules_after_a_reset():
    """A stated derivative that is asked for again after its nodes were forgotten is made again."""
    graph = Graph()
    x, y = graph.inputs(2).tolist()
    copy = graph.stated(x, Rule((x,), lambda: [(x, graph.mul(x, graph.constant(3.0)))]))
    (moved,) = substitution(graph, {x: y})(np.array([copy])).tolist()
    count = len(graph.nodes)
    for _ in range(2):
        ((node, slope),) = graph.rules[moved].partials()
        assert node == y
        assert graph.evaluate([slope], {y: 2.0}) == [6.0]
        graph.reset(count)
        graph.apply("sin", graph.apply("cos", y))  # takes the numbers of the forgotten nodes
