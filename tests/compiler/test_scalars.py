"""A list of operations as one operation of JAX: values and derivatives are those of plain JAX functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from genalpha.compiler.arithmetic import FUNCTIONS, LOGIC
from genalpha.compiler.graph import Graph
from genalpha.compiler.reader import Symbols, inline
from genalpha.compiler.scalars import Scalars, apply

POINT = np.array([0.3, 0.7, 0.2])


@pytest.fixture(scope="module")
def listed():
    graph = Graph()
    x, y, z = graph.inputs(3).tolist()
    larger = graph.select(graph.compare("lt", y, x), graph.apply("exp", z), graph.mul(x, z))
    outputs = [graph.mul(graph.apply("sin", x), graph.mul(y, y)), graph.div(larger, y), graph.add(x, z)]
    return Scalars.of(graph, [x, y, z], outputs)


def plain(p):
    x, y, z = p
    return jnp.stack([jnp.sin(x) * y**2, jnp.where(y < x, jnp.exp(z), x * z) / y, x + z])


DERIVATIVES = {
    "value": lambda f: f,
    "forward": jax.jacfwd,
    "reverse": jax.jacrev,
    "forward over reverse": lambda f: jax.jacfwd(jax.jacrev(f)),
    "reverse over reverse": lambda f: jax.jacrev(jax.jacrev(f)),
    "reverse over forward": lambda f: jax.jacrev(jax.jacfwd(f)),
}


@pytest.mark.parametrize("kind", DERIVATIVES)
def test_derivatives(listed, kind):
    take = DERIVATIVES[kind]
    np.testing.assert_allclose(take(lambda p: apply(listed, p))(POINT), take(plain)(POINT), atol=1e-14)


def test_compiled_and_batched(listed):
    points = jnp.array([POINT, POINT[::-1]])
    found = jax.jit(jax.vmap(lambda p: apply(listed, p)))(points)
    np.testing.assert_allclose(found, jax.vmap(plain)(points), atol=1e-15)


def test_the_reader_copies_the_operations(listed):
    """The graph has the same nodes as one that reads plain JAX."""
    graph = Graph()
    x = graph.inputs(3)
    one = inline(graph, lambda p: apply(listed, p), Symbols(x, "f"))
    size = len(graph.nodes)
    two = inline(graph, plain, Symbols(x, "f"))
    assert one.tolist() == two.tolist()
    assert len(graph.nodes) == size
    known = inline(graph, lambda p: apply(listed, p), POINT)
    np.testing.assert_allclose([graph.constants[i] for i in known.tolist()], plain(POINT), rtol=1e-15)


def test_every_operation_has_a_function():
    """NumPy and JAX compute all operations of the graph as the graph does."""
    for op in [*FUNCTIONS, *LOGIC]:
        graph = Graph()
        nodes = graph.inputs(2).tolist()
        count = 2 if op in ("add", "sub", "mul", "div", "max", "min", "fmod", "pow", "atan2") else 1
        if op in LOGIC:
            flags = [graph.compare("lt", i, graph.constant(0.5)) for i in nodes]
            flag = graph.logic(op, *flags[: 1 if op == "not" else 2])
            output = graph.select(flag, nodes[0], nodes[1])
        else:
            output = graph.make(op, *nodes[:count])
        at = np.array([1.3, 0.4]) if op == "acosh" else np.array([0.7, 0.4])
        wanted = graph.evaluate([output], dict(zip(nodes, at, strict=True)))[0]
        listed = Scalars.of(graph, nodes, [output])
        np.testing.assert_allclose(listed.evaluate(at), [wanted], rtol=1e-15, err_msg=op)
        np.testing.assert_allclose(listed.evaluate(jnp.asarray(at)), [wanted], rtol=1e-14, err_msg=op)
