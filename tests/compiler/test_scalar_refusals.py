"""Functions without a scalar form are refused with a reason; simplifications of the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from genalpha.compiler.graph import FALSE, TRUE, Graph, Unsupported
from genalpha.compiler.primitives import table
from genalpha.compiler.reader import Symbols, inline, nodes
from genalpha.numerics import linear

Function = Callable[..., Any]
KEY = jax.random.key(1)


def read(function: Function, limit: int | None = None, **options: Any) -> Graph:
    graph = Graph(limit)
    inline(graph, function, Symbols(graph.inputs(4), "f"), **options)
    return graph


def printed(x: Any) -> Any:
    jax.debug.print("{}", x)
    return x


def called(x: Any) -> Any:
    jax.debug.callback(lambda v: None, x)
    return x


def until_small(x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] > 1, lambda c: c / 2, x)


REFUSED: dict[str, tuple[Function, str]] = {
    "while": (until_small, "number of turns depends on values"),
    "fori": (lambda x: lax.fori_loop(0, x[0].astype(int), lambda i, c: c * 2, x), "number of turns depends"),
    "long_scan": (lambda x: lax.fori_loop(0, 1001, lambda i, c: c + x, x), "more than 1000 turns"),
    "long_while": (
        lambda x: lax.while_loop(lambda c: c[0] < 2000, lambda c: (c[0] + 1, c[1] * 2), (0, x)),
        "more than 1000 turns",
    ),
    "sort": (jnp.sort, "sorting"),
    "argsort": (jnp.argsort, "sorting"),
    "median": (jnp.median, "sorting"),
    "top_k": (lambda x: lax.top_k(x, 2), "sorting"),
    "print": (printed, "jax.debug"),
    "debug_callback": (called, "jax.debug"),
    "pure_callback": (
        lambda x: jax.pure_callback(np.sin, jax.ShapeDtypeStruct((4,), float), x),
        "back into Python",
    ),
    "random": (lambda x: x + jax.random.normal(jax.random.key(0), (4,)), "random"),
    "random_old": (lambda x: x + jax.random.uniform(jax.random.PRNGKey(0), (4,)), "random"),
    "key": (lambda x, key=KEY: x + jax.random.normal(key, (4,)), "random"),
    "single": (lambda x: x.astype(jnp.float32) * 2, "float32"),
    "single_constants": (lambda x: jnp.where(x > 0, jnp.float32(1), jnp.float32(2)), "float32"),
    "half": (lambda x: x.astype(jnp.bfloat16), "bfloat16"),
    "short": (lambda x: x.astype(jnp.int8), "int8"),
    "complex": (lambda x: jnp.abs(x + 1j), "complex"),
    "fft": (lambda x: jnp.abs(jnp.fft.fft(x)), "complex|Fourier"),
    "eigenvalues": (lambda x: jnp.linalg.eigvalsh(jnp.outer(x, x)), "matrix decomposition"),
    "svd": (lambda x: jnp.linalg.svd(jnp.outer(x, x), compute_uv=False), "matrix decomposition"),
    "qr": (lambda x: jnp.linalg.qr(jnp.outer(x, x))[0], "matrix decomposition"),
    "bits": (lambda x: x.astype(int) & 3, "bits of integers"),
    "shift": (lambda x: x.astype(int) << 1, "bits"),
    "apply": (lambda x: x.at[1].apply(jnp.sin), "at\\[...\\].apply"),
    "gamma": (jax.scipy.special.gammaln, "lgamma"),
    "coarse": (lambda x: lax.reduce_precision(x, 8, 23), "fewer than 64 bits"),
    "reduce": (lambda x: lax.reduce(x, 1.0, lambda a, b: a * b + 1, (0,)), "reduce"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name: str) -> None:
    function, reason = REFUSED[name]
    with pytest.raises(Unsupported, match=reason):
        read(function)


def test_too_many_operations() -> None:
    with pytest.raises(Unsupported, match="more than 100 scalar operations"):
        read(lambda x: lax.fori_loop(0, 40, lambda i, c: jnp.sin(c) + i, x), limit=100)
    with pytest.raises(Unsupported, match="more than 5000 scalar operations"):  # soon, not after a million
        read(lambda x: jnp.zeros((1000, 1000)).at[x[0].astype(int), x[1].astype(int)].set(1.0), limit=5000)


def test_unforeseen_forms_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever goes wrong inside becomes a refusal, so that another backend takes over."""
    for error in (
        KeyError("axis"),
        TypeError("no"),
        AssertionError(),
        RecursionError(),
        np.exceptions.AxisError("x"),
    ):

        def fail(*args: Any, error: Exception = error) -> Any:
            raise error

        monkeypatch.setitem(table.TABLE, "sin", fail)
        with pytest.raises(Unsupported, match=r"sin|nested"):
            read(lambda x: jax.jit(jnp.sin)(x))


def test_errors_of_the_function_are_its_own() -> None:
    with pytest.raises(TypeError, match="dot_general"):
        read(lambda x: x @ jnp.ones(7))


# --- the graph itself -----------------------------------------------------------------------------------


def test_known_integers_divide_as_xla_does() -> None:
    """XLA itself crashes when it folds a division by zero, so there is nothing to compare with."""
    function = lambda x: (lax.div(jnp.array([5, -5, 7, -7]), jnp.array([0, 0, 2, 2])) + 0 * x.astype(int),)
    graph = Graph()
    (ids,) = inline(graph, function, Symbols(graph.inputs(4), "f"))
    assert [graph.constants[i] for i in ids.tolist()] == [-1, -1, 3, -3]
    (ids,) = inline(
        graph, lambda x: (lax.rem(jnp.array([5, -5]), jnp.array([0, 3])),), Symbols(graph.inputs(4), "f")
    )
    assert [graph.constants[i] for i in ids.tolist()] == [5, -2]


def test_zeros_and_repetitions_cost_nothing() -> None:
    graph = Graph()
    x = Symbols(graph.inputs(4), "f")
    before = len(graph.nodes)
    inline(graph, lambda x: jnp.diag(jnp.array([1.0, 0, 0, -1])) @ (x + 0) * 1.0, x)
    assert [n.op for n in graph.nodes[before:] if n.op != "constant"] == ["neg"]
    inline(graph, lambda x: x * x[::-1] + jnp.sin(x), x)
    count = len(graph.nodes)
    inline(graph, lambda x: jnp.sin(x) + x[::-1] * x, x)
    assert len(graph.nodes) == count


def test_choices_between_truths_are_the_condition() -> None:
    graph = Graph()
    x, y = graph.inputs(2).tolist()
    less = graph.compare("lt", x, y)
    assert graph.select(less, TRUE, FALSE) == less
    assert graph.select(graph.logic("not", less), TRUE, FALSE) == graph.logic("not", less)
    assert graph.select(less, FALSE, TRUE) == graph.logic("not", less)
    assert graph.select(less, x, x) == x


def test_only_the_package_s_own_functions_are_replaced() -> None:
    """A user's function may have the same name, and vmap keeps the name of what it changes."""

    @jax.jit
    def condition_number(matrix: Any) -> Any:
        return matrix.sum()

    calls_made: list[tuple[int, ...]] = []

    def helper(graph: Graph, matrix: np.ndarray, *rest: np.ndarray) -> list[np.ndarray]:
        calls_made.append(matrix.shape)
        return [rest[0] if rest else nodes(graph, np.array(1.0))]

    helpers = {linear.CONDITION: helper, linear.SOLVE: helper}
    read(lambda x: condition_number(jnp.outer(x, x)), helpers=helpers)
    read(
        lambda x: jax.vmap(linear.solve_once)(jnp.stack([jnp.outer(x, x)] * 2), jnp.stack([x, x])),
        helpers=helpers,
    )
    read(
        lambda x: jax.jvp(lambda b: linear.solve_once(jnp.eye(4) + jnp.outer(x, x), b), (x,), (x,)),
        helpers=helpers,
    )
    assert not calls_made
    read(lambda x: linear.solve_once(jnp.outer(x, x), x), helpers=helpers)
    assert calls_made == [(4, 4)]
