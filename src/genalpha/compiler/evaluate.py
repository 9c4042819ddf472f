"""Expressions of a graph as numbers, one after the other: slow, but this defines the results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from genalpha.compiler.arithmetic import operate

if TYPE_CHECKING:
    from genalpha.compiler.graph import Graph


def evaluator(
    graph: Graph, outputs: Sequence[int], given: Iterable[int]
) -> Callable[[dict[int, Any]], list[Any]]:
    """A function that evaluates nodes, from the values of the nodes in ``given``."""
    given = set(given)
    needed = [i for i in graph.reachable(outputs, given) if i not in given]
    known_before = {**graph.constants, **graph.contents}
    fixed = {i: known_before[i] for i in (*needed, *outputs) if i in known_before}
    plan = [(i, *graph.nodes[i][:2]) for i in needed if i not in fixed]
    doubles = {i for i in given if graph.nodes[i].kind == "f"}

    def run(values: dict[int, Any]) -> list[Any]:
        # Python's floats overflow without a warning, NumPy's with one.
        known = fixed | {i: float(x) if i in doubles else x for i, x in values.items()}
        for i, op, inputs in plan:
            if op == "mul":
                known[i] = known[inputs[0]] * known[inputs[1]]
            elif op == "add":
                known[i] = known[inputs[0]] + known[inputs[1]]
            elif op == "host":
                known[i] = graph.hosts[i]([known[j] for j in inputs])
            else:
                known[i] = operate(op, *[known[j] for j in inputs])
        return [known[i] for i in outputs]

    return run
