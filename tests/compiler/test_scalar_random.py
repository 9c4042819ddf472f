"""Random expressions mean the same to NumPy, to the graph, to LLVM with one and several lanes, and to C."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from compiled import HAS_CC, Rows, by_c, by_llvm
from genalpha.compiler import machine
from genalpha.compiler.arithmetic import COMPARISONS, FUNCTIONS, LOGIC
from genalpha.compiler.graph import Graph

INPUTS = 4
ODD = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    2.0,
    3.0,
    np.inf,
    -np.inf,
    np.nan,
    1e308,
    -1e300,
    1e-308,
    5e-324,
    -2.5,
    1e17,
]
numbers = st.one_of(st.sampled_from(ODD), st.floats(-10, 10), st.floats(allow_nan=True, allow_infinity=True))

# Arithmetic is exact: each operation rounds once. A library's functions differ in the last places, and what
# comes of that afterwards is without bounds, so they come last.
EXACT = ["add", "sub", "mul", "neg", "abs", "sqrt", "max", "min", "floor", "ceil", "trunc", "rint", "fmod"]
LIBRARY = sorted(set(FUNCTIONS) - set(EXACT) - {"div"})
TWO = {"add", "sub", "mul", "div", "max", "min", "fmod", "pow", "atan2"}


def zero_like(graph: Graph, i: int) -> bool:
    return i in graph.constants and graph.constants[i] == 0


class Pair:
    """A node, and the function of NumPy numbers it stands for."""

    def __init__(self, node: int, value: Any) -> None:
        self.node, self.value = node, value


def numpy_value(op: str, *values: Any) -> Any:
    with np.errstate(all="ignore"):
        if op == "select":
            return np.where(values[0], values[1], values[2])
        if op in COMPARISONS:
            return {"lt": np.less, "le": np.less_equal, "eq": np.equal, "ne": np.not_equal}[op](*values)
        if op in LOGIC:
            return {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor, "not": np.logical_not}[
                op
            ](*values)
        direct = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative,
            "abs": np.abs, "sqrt": np.sqrt, "max": np.maximum, "min": np.minimum, "floor": np.floor,
            "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint, "fmod": np.fmod,
        }  # fmt: skip
        if op in direct:
            return direct[op](*values)
        wide = np.broadcast_arrays(*values)
        return np.array([FUNCTIONS[op](*map(float, at)) for at in zip(*wide, strict=True)])


def unsure(graph: Graph, pair: Pair) -> bool:
    """Whether a result may be a zero, whose sign is not kept: what is infinite with one sign or the other."""
    return graph.nodes[pair.node].op not in ("input", "constant") and bool((pair.value == 0).any())


def draw_expressions(
    choose: Callable[[Sequence[Any]], Any],
    graph: Graph,
    inputs: list[int],
    table: np.ndarray,
    constant: float,
    depth: int,
) -> dict[str, list[Pair]]:
    """Expressions of all kinds: doubles ("f"), booleans ("b"), results of a library's functions ("l")."""
    count = len(table)
    pool = {"f": [Pair(i, table[:, k]) for k, i in enumerate(inputs)], "b": [], "l": []}
    pool["f"].append(Pair(graph.constant(constant), np.full(count, constant)))
    for _ in range(depth):
        pick = lambda kind: choose(pool[kind])
        what = choose(["exact", "exact", "div", "compare", "logic", "select", "library"])
        if what == "exact":
            op = choose(EXACT)
            args = [pick("f") for _ in range(2 if op in TWO else 1)]
            nodes = [a.node for a in args]
            if op == "mul" and any(zero_like(graph, i) for i in nodes):
                continue  # zero, whatever the other factor: the one thing that is not as in NumPy
            make = {"add": graph.add, "sub": graph.sub, "mul": graph.mul, "neg": graph.neg}.get(op)
            node = (
                graph.extreme(op, *nodes)
                if op in ("max", "min")
                else make(*nodes)
                if make
                else graph.apply(op, *nodes)
            )
            pool["f"].append(Pair(node, numpy_value(op, *(a.value for a in args))))
        elif what == "div":
            a, b = pick("f"), pick("f")
            if zero_like(graph, a.node) or b.node in graph.constants or unsure(graph, b):
                continue  # 0/b is zero, and a constant divisor is inverted: tested elsewhere
            pool["f"].append(Pair(graph.div(a.node, b.node), numpy_value("div", a.value, b.value)))
        elif what == "compare":
            op, a, b = choose(sorted(COMPARISONS)), pick("f"), pick("f")
            if pool["b"] and choose([True, False]):
                a, b = pick("b"), pick("b")
            pool["b"].append(Pair(graph.compare(op, a.node, b.node), numpy_value(op, a.value, b.value)))
        elif what == "logic" and pool["b"]:
            op = choose(sorted(LOGIC))
            args = [pick("b") for _ in range(1 if op == "not" else 2)]
            pool["b"].append(
                Pair(graph.logic(op, *(a.node for a in args)), numpy_value(op, *(a.value for a in args)))
            )
        elif what == "select" and pool["b"]:
            kind = choose(["f", "b"])
            c, a, b = pick("b"), pick(kind), pick(kind)
            node = graph.select(c.node, a.node, b.node)
            pool[kind].append(Pair(node, numpy_value("select", c.value, a.value, b.value)))
        elif what == "library":
            op = choose(LIBRARY)
            args = [pick("f") for _ in range(2 if op in TWO else 1)]
            if op in TWO and any(unsure(graph, a) for a in args):
                continue
            value = numpy_value(op, *(a.value for a in args))
            pool["l"].append(Pair(graph.apply(op, *(a.node for a in args)), value))
    return pool


def agree(pools: list[tuple[Rows, dict[str, list[Pair]]]], table: np.ndarray, folder: Path) -> None:
    for rows, pool in pools:
        rows.finish([p.node for kind in "fbl" for p in pool[kind]])
    many = [rows for rows, _ in pools]
    ways = {"graph": lambda rows, table: rows.evaluate(table)}
    ways |= {f"{lanes} lanes": by_llvm(many, lanes, exact=True) for lanes in (1, machine.lanes())}
    if HAS_CC:
        ways["C"] = by_c(many, folder)
    for rows, pool in pools:
        pairs = [p for kind in "fbl" for p in pool[kind]]
        expected = np.array([np.asarray(p.value, dtype=float) for p in pairs]).T
        exact = len(pairs) - len(pool["l"])
        for way, run in ways.items():
            found = run(rows, table)
            np.testing.assert_array_equal(found[:, :exact], expected[:, :exact], err_msg=way)
            np.testing.assert_allclose(found[:, exact:], expected[:, exact:], rtol=1e-13, err_msg=way)


_count = itertools.count()


# Every example is compiled several times: shrinking one would take minutes.
@pytest.mark.slow
@given(st.data())
@settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_random_expressions(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    rowful = st.lists(numbers, min_size=INPUTS, max_size=INPUTS)
    table = np.array(data.draw(st.lists(rowful, min_size=9, max_size=9)))
    rows = Rows(f"random{next(_count)}", INPUTS)
    choose = lambda options: data.draw(st.sampled_from(options))
    pool = draw_expressions(choose, rows.graph, rows.inputs.tolist(), table, data.draw(numbers), depth=60)
    agree([(rows, pool)], table, tmp_path_factory.mktemp("random"))


def test_many_expressions(rng: np.random.Generator, tmp_path: Path) -> None:
    """Many more of them, in one module, at numbers of which few are odd, so that few results are NaN."""
    table = rng.uniform(-5, 5, (12, INPUTS))
    table[6:] = np.where(rng.uniform(size=(6, INPUTS)) < 0.4, rng.choice(ODD, (6, INPUTS)), table[6:])
    table[3:6] = np.round(table[3:6])
    pools = []
    for _ in range(20):
        rows = Rows(f"random{next(_count)}", INPUTS)
        choose = lambda options: options[int(rng.integers(len(options)))]
        constant = float(rng.choice([*ODD, 3.7, -1.2]))
        pools.append(
            (rows, draw_expressions(choose, rows.graph, rows.inputs.tolist(), table, constant, depth=80))
        )
    agree(pools, table, tmp_path)
