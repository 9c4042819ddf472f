"""Choices that become branches: in the right place, with the right values, for mixed lanes and for NaN."""

import jax.numpy as jnp
import numpy as np
import pytest

from compiled import HAS_CC, Rows, by_c, by_llvm
from genalpha.compiler import machine
from genalpha.compiler.branches import Branch, StoreNode, arranged, structured
from genalpha.compiler.reader import Symbols, inline

CASES = {
    # one expensive side, used twice
    "one_side": lambda x: jnp.stack([jnp.where(x[0] < 0, x[1], jnp.sin(x[1]) * jnp.cos(x[1])), x[0]]),
    # two choices on one condition share what is expensive
    "shared": lambda x: jnp.where(x[0] < 0, jnp.stack([x[1], x[2]]), jnp.sqrt(x[1]) * jnp.exp(x[2]) * x[1:3]),
    # both sides expensive
    "both": lambda x: jnp.where(
        x[0] < x[1], jnp.sin(x[2]) ** 3 * jnp.tan(x[1]), jnp.exp(x[1]) * jnp.log(x[2])
    ),
    # a choice inside a choice, and a result of one that the next one needs
    "nested": lambda x: jnp.where(
        x[0] < 0,
        jnp.where(x[1] < 0, jnp.sin(x[2]) * jnp.cos(x[2]), jnp.exp(x[2]) * jnp.tanh(x[2])),
        jnp.sinh(x[1]) * jnp.cosh(x[1]),
    ),
    "chained": lambda x: (lambda y: jnp.where(x[0] < 0, y, jnp.exp(y) * jnp.sin(y) * jnp.cos(y)))(
        jnp.where(x[0] < 0, x[1], jnp.sin(x[1]) * jnp.cos(x[1]) * jnp.tan(x[1]))
    ),
    # what is expensive is needed anyway
    "needed": lambda x: jnp.stack(
        [jnp.where(x[0] < 0, x[1], jnp.sin(x[1]) * jnp.cos(x[1])), jnp.sin(x[1]) * jnp.cos(x[1])]
    ),
    # two branches each of which needs a result of the other
    "crossed": lambda x: (lambda p, q: jnp.stack([p, q]))(
        jnp.where(
            x[0] < 0, x[1], jnp.sin(x[1]) * jnp.cos(x[1]) + jnp.where(x[2] < 0, x[1], jnp.exp(x[1] * x[2]))
        ),
        jnp.where(
            x[2] < 0, x[1], jnp.sin(x[2]) * jnp.cos(x[2]) + jnp.where(x[0] < 0, x[2], jnp.exp(x[0] * x[2]))
        ),
    ),
}


def rows(name):
    made = Rows(name, 3)
    ids = inline(made.graph, CASES[name], Symbols(made.inputs, "f"))
    return made.finish(np.ravel(ids))


def branches(made):
    kernel = next(iter(made.program.kernels.values()))
    body = structured(made.program.nodes, kernel.body, [i for _, i in kernel.stores])
    return kernel, body


@pytest.fixture(scope="module")
def table():
    values = np.random.default_rng(3).normal(size=(50, 3))
    values[:3] = [[np.nan, 1.0, 1.0], [1.0, np.nan, 1.0], [-1.0, np.inf, -1.0]]
    return values


def test_all_ways_of_running_agree(table, tmp_path):
    made = [rows(name) for name in CASES]
    runs = [by_llvm(made, 1), by_llvm(made, machine.lanes())] + ([by_c(made, tmp_path)] if HAS_CC else [])
    for one in made:
        with np.errstate(all="ignore"):
            expected = one.evaluate(table)
        for run in runs:
            np.testing.assert_allclose(run(one, table), expected, rtol=1e-13, err_msg=one.name)


def walk(nodes, parts, seen):
    """Follow a body, and see that everything is at hand when it is needed."""
    for part in parts:
        if not isinstance(part, Branch):
            assert all(j in seen for j in nodes[part].inputs)
            assert part not in seen
            seen.add(part)
            continue
        assert part.condition in seen
        for side, inside in ((1, part.yes), (2, part.no)):
            local = set(seen)
            walk(nodes, inside, local)
            assert all(nodes[r].inputs[side] in local for r in part.results)
        seen |= set(part.results)


def test_every_node_is_computed_once_and_in_order():
    for name in CASES:
        made = rows(name)
        kernel, body = branches(made)
        seen = {i for i, _ in kernel.loads} | set(made.program.constants)
        walk(made.program.nodes, body, seen)
        assert {i for _, i in kernel.stores} <= seen


@pytest.mark.parametrize(
    ("name", "number"), [("one_side", 1), ("shared", 1), ("both", 1), ("nested", 1), ("needed", 0)]
)
def test_what_becomes_a_branch(name, number):
    _, body = branches(rows(name))
    found = [part for part in body if isinstance(part, Branch)]
    assert len(found) == number
    if name == "nested":
        assert any(isinstance(part, Branch) for part in found[0].yes)
    if name == "shared":
        assert len(found[0].results) == 2


@pytest.mark.parametrize("name", CASES)
def test_order_of_a_kernel(name):
    """Everything once, after what it needs, on its side of branches; what is read is stored last."""
    made = rows(name)
    nodes, (kernel, body) = made.program.nodes, branches(made)
    loads, stores = [i for i, _ in kernel.loads], [StoreNode(*store) for store in kernel.stores]
    read = {stores[0].slot}
    found = arranged(nodes, body, loads, stores, read)
    assert sorted(map(repr, found)) == sorted(map(repr, [*loads, *body, *stores]))
    walk(
        nodes,
        [part for part in found if not isinstance(part, StoreNode) and part not in loads],
        {*loads, *made.program.constants},
    )
    assert found[-1] == stores[0]
    seen = set()
    for part in found:
        if isinstance(part, StoreNode):
            assert part.node in seen | set(made.program.constants)
        elif isinstance(part, Branch):
            seen |= set(part.results)
        else:
            assert part in loads or set(nodes[part].inputs) <= seen | set(made.program.constants)
            seen.add(part)
    sides = lambda parts: [
        set(parts[:k]) - set(loads) - set(stores) for k, part in enumerate(parts) if isinstance(part, Branch)
    ]
    assert sides(found) == sides(list(body))


def test_few_numbers_wait():
    """Sums of neighbours of a product: each is stored as soon as it is there."""
    made = Rows("neighbours", 20)
    function = lambda x: (lambda y: y[:-1] + y[1:])(jnp.sin(x) * x)
    made.finish(np.ravel(inline(made.graph, function, Symbols(made.inputs, "f"))))
    kernel, body = branches(made)
    loads, stores = [i for i, _ in kernel.loads], [StoreNode(*store) for store in kernel.stores]
    found = arranged(made.program.nodes, body, loads, stores, ())
    last = {
        j: k
        for k, part in enumerate(found)
        for j in ([part.node] if isinstance(part, StoreNode) else made.program.nodes[part].inputs)
    }
    wait = [
        sum(1 for j in found[:k] if not isinstance(j, StoreNode) and last.get(j, -1) >= k)
        for k in range(len(found))
    ]
    assert max(wait) <= 5
