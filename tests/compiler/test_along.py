"""Derivatives that the reader of a scalar program takes are those that JAX takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.compiler.graph import Graph, Unsupported
from genalpha.compiler.reader import Symbols, inline
from genalpha.compiler.rows import RowFunction
from genalpha.numerics.derivatives import for_each, jacobian, pulled_back, value_and_rate
from genalpha.numerics.stumpff import stumpff
from scalar_functions import FUNCTIONS, split


@jax.custom_jvp
def tripled_slope(x: Any) -> Any:
    return jnp.sin(x)


tripled_slope.defjvp(lambda p, t: (tripled_slope(*p), 3.0 * t[0] * jnp.cos(p[0])))


def rate(function: Callable[..., Any], at: Any, direction: Any) -> Any:
    return value_and_rate(function, (at,), (direction,))[1]


def shadowed(x: Any, y: Any) -> Any:
    """What the function holds fixed is the same expression as one that it differentiates."""
    held = jnp.sin(x)
    return value_and_rate(lambda x: held * jnp.sin(x), (x,), (y,))


def entangled(x: Any, y: Any) -> Any:
    """One point is made of the other, in the way that the function makes it again."""
    return value_and_rate(lambda a, b: b - 2 * a + a * b, (x, 2 * x), (y, jnp.ones(3)))


def twice(x: Any, y: Any) -> Any:
    """A rate of a rate, in which the inner direction moves too."""
    inner = lambda x, y: rate(lambda x: x**3 * jnp.sum(jnp.cos(x)), x, y)
    return value_and_rate(inner, (x, y), (y, x))


def held_inside(x: Any, y: Any) -> Any:
    """The outer derivative passes through what the inner one holds fixed."""
    inner = lambda x: rate(lambda z: jnp.sin(x) * jnp.sin(z) + x * z, x, y)
    return value_and_rate(inner, (x,), (y,))


def chosen(x: Any, y: Any) -> Any:
    return value_and_rate(lambda x: jnp.where(x > 0, jnp.sqrt(x), x**2) + jnp.maximum(x, 0.2), (x,), (y,))


def stated(x: Any, y: Any) -> Any:
    """Derivatives that are stated are put in the place of derived ones, for rates of rates too."""
    inner = lambda x: rate(lambda z: tripled_slope(z * x) * stumpff(1, z * z), 2 * x, y)
    return value_and_rate(inner, (x,), (y,))


def known(x: Any, y: Any) -> Any:
    """Points and directions of which some are constants."""
    return value_and_rate(
        lambda a, b, c: a * b + jnp.exp(c) * a, (jnp.ones(3), x, jnp.zeros(3)), (y, jnp.zeros(3), jnp.ones(3))
    )


def matrices(x: Any, y: Any) -> Any:
    return value_and_rate(lambda m: m @ m.T, (jnp.outer(x, y),), (jnp.outer(y, x),))


def curved(x: Any) -> Any:
    return jnp.stack([x @ x - 1.0, jnp.sin(x[0]) * x[1] / (2 + x[2]), jnp.where(x[1] > 0, x[2] ** 3, x[0])])


def gradients(x: Any, y: Any) -> Any:
    """Reverse derivatives, where what is held fixed is made of the point."""
    return pulled_back(lambda z: curved(z) * jnp.sin(x), x, y), jacobian(lambda z: curved(z) * jnp.sin(x), x)


def stated_gradients(x: Any, y: Any) -> Any:
    both = lambda z: tripled_slope(z * x) * stumpff(1, z @ z)
    return pulled_back(both, x, y), jacobian(both, x)


def rates_of_gradients(x: Any, y: Any) -> Any:
    return value_and_rate(lambda x, y: pulled_back(curved, x, y), (x, y), (y, x))


def gradients_of_rates(x: Any, y: Any) -> Any:
    return pulled_back(lambda x: rate(curved, x, y), x, y), jacobian(lambda x: rate(curved, x, y), x)


def several(x: Any, y: Any) -> Any:
    rows = jnp.stack([y, 2 * x, jnp.zeros(3)])
    return for_each(lambda w: pulled_back(curved, x, w), rows), for_each(lambda a, b: a * b, rows, rows)


CASES = (
    *(shadowed, entangled, twice, held_inside, chosen, stated, known, matrices),
    *(gradients, stated_gradients, rates_of_gradients, gradients_of_rates, several),
)


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_derivatives_are_those_of_jax(function: Callable[..., Any]) -> None:
    rng = np.random.default_rng(3)
    x, y = rng.uniform(-1, 1, (2, 3))
    graph = Graph()
    ids = [graph.inputs(3), graph.inputs(3)]
    outputs = inline(graph, function, *(Symbols(i, "f") for i in ids))
    numbers = dict(zip(np.concatenate(ids).tolist(), [*x, *y], strict=True))
    for found, expected in zip(outputs, jax.jit(function)(x, y), strict=True):
        values = np.array(graph.evaluate(found.reshape(-1).tolist(), numbers)).reshape(found.shape)
        np.testing.assert_allclose(values, expected, rtol=1e-13, atol=1e-14)


def changing(function: Callable[..., Any]) -> Callable[[Any], Any]:
    """The entries of a function's outputs that are doubles, in one array."""

    def flat(row: Any) -> Any:
        leaves = [x for x in jax.tree.leaves(function(*split(row))) if jnp.result_type(x) == jnp.float64]
        return jnp.concatenate([jnp.ravel(x) for x in leaves] or [jnp.zeros(0)])

    return flat


STATED = ("solve", "inv", "logistic", "sigmoid", "power", "pow", "custom", "handed", "clipped", "det")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if any(word in name for word in STATED) else pytest.mark.slow)
        for name in sorted(FUNCTIONS)
    ],
)
def test_second_derivatives_of_every_function(name: str) -> None:
    """A rate of a rate, of all functions that the reader is tested with, where JAX has one that is finite."""
    rng = np.random.default_rng(len(name))
    x, y = rng.uniform(0.2, 0.9, 18), rng.uniform(-1, 1, 18)
    function = changing(FUNCTIONS[name])
    second = lambda x, y: rate(lambda x: rate(function, x, y), x, y)
    try:
        expected = np.asarray(jax.jit(second)(x, y))
    except (NotImplementedError, TypeError, ValueError) as reason:
        pytest.skip(f"JAX: {reason}")
    graph = Graph()
    ids = [graph.inputs(18), graph.inputs(18)]
    try:
        found = inline(graph, second, *(Symbols(i, "f") for i in ids))
    except Unsupported as reason:
        pytest.skip(str(reason))
    numbers = dict(zip(np.concatenate(ids).tolist(), [*x, *y], strict=True))
    values = np.array(graph.evaluate(found.tolist(), numbers), dtype=float)
    good = np.isfinite(expected)
    np.testing.assert_allclose(values[good], expected[good], rtol=1e-9, atol=1e-9)


MATRIX = np.array([[2.0, 0.3], [0.3, 1.0]])


@pytest.mark.parametrize(
    ("curve", "method"),
    [
        (lambda q: q[1] - jax.nn.sigmoid(q[0] - 1) + (1 + q @ q) ** 1.5, "soi2"),
        pytest.param(
            lambda q: jax.nn.silu(q[1]) + q @ jnp.linalg.solve(MATRIX + jnp.diag(q**2), q),
            "cm",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["powers", "solves"],
)
def test_hidden_constraints_of_functions_with_derivatives_of_their_own(curve: Any, method: str) -> None:
    """Consistent multipliers need second derivatives: of logistic curves, half powers and linear solves."""
    q0 = jnp.array([1.0, 0.2])
    normal = jax.grad(curve)(q0)
    v0 = 2 * jnp.array([-normal[1], normal[0]]) / jnp.linalg.norm(normal)
    system = ga.System(
        np.eye(2), lambda t, q, v: jnp.array([0.3, -9.81]), lambda t, q: (curve(q) - curve(q0))[None]
    )
    one, two = (
        ga.solve(system, (0.0, 0.1), q0, v0, h=0.01, method=method, backend=backend)
        for backend in ("native", "xla")
    )
    assert one.backend == "native"
    np.testing.assert_allclose(one.lam, two.lam, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "transform",
    [lambda f: jax.jacfwd(f), lambda f: jax.jacrev(f), lambda f: lambda x: jax.vmap(f)(jnp.stack([x, x]))],
)
@pytest.mark.parametrize("function", [lambda x: rate(curved, x, x), lambda x: pulled_back(curved, x, x)])
def test_what_jax_transforms_in_turn_is_refused(transform: Any, function: Any) -> None:
    graph = Graph()
    x = Symbols(graph.inputs(3), "f")
    with pytest.raises(Unsupported):
        inline(graph, transform(function), x)


def test_hidden_constraints_inside_of_the_user_s_functions() -> None:
    """A force made of another system's hidden constraint and its derivative: JAX keeps what it traced."""
    circle = ga.System(jnp.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q @ q - 1.0]))

    def force(t: Any, q: Any, v: Any) -> Any:
        g_dot = lambda v: circle.g_dot(t, q, v)[0]
        return jnp.array([0.0, -9.81]) - 5.0 * g_dot(v) * jax.grad(g_dot)(v) - 2.0 * circle.g(t, q) * q

    system = ga.System(jnp.eye(2), force)
    solve = lambda backend: ga.solve(system, (0.0, 1.0), [1.0, 0.0], [0.0, 0.5], h=1e-2, backend=backend)
    for backends in (("native", "xla"), ("xla", "native")):
        first, second = map(solve, backends)
        assert (first.backend, second.backend) == backends
        np.testing.assert_allclose(first.q, second.q, atol=1e-12)


def test_a_pull_through_a_linear_solve_has_derivatives() -> None:
    """The solution is held in the derivative of the solve itself, and in no higher one."""
    x, v, weight = np.array([1.0, 0.2]), np.array([0.7, -1.1]), np.array([1.3])
    curve = lambda x: (x @ jnp.linalg.solve(MATRIX + jnp.diag(x**2), x))[None]
    pull = lambda x: pulled_back(curve, jnp.asarray(x), jnp.asarray(weight))
    expected = jax.jvp(pull, (x,), (v,))[1]
    rows = RowFunction("pull", lambda x: value_and_rate(pull, (x,), (v,))[1], (x,))
    found, good = rows.interpret(x)
    assert good
    np.testing.assert_allclose(found, expected, rtol=1e-13)
