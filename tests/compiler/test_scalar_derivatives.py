"""Derivatives of scalar programs against JAX's, and LU in a chosen order against NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.scipy import linalg as jsp_linalg
from jax.scipy import special

from genalpha.compiler import lu
from genalpha.compiler.arithmetic import FUNCTIONS
from genalpha.compiler.differentiate import RULES, jacobian, pulled_back
from genalpha.compiler.graph import ONE, ZERO, Graph
from genalpha.compiler.reader import Symbols, inline
from genalpha.numerics.stumpff import stumpff

Function = Callable[[Any], Any]


def found_jacobian(function: Function, x: np.ndarray) -> np.ndarray:
    graph = Graph()
    ids = graph.inputs(x.shape)
    outputs = np.ravel(inline(graph, function, Symbols(ids, "f")))
    slopes = jacobian(graph, outputs, ids)
    values = dict(zip(ids.tolist(), x.tolist(), strict=True))
    return np.array(graph.evaluate(slopes.reshape(-1).tolist(), values), dtype=float).reshape(slopes.shape)


def straight_through(slope: float) -> Function:
    """Rounds, and passes derivatives on all the same; what it computes in between has none."""

    @jax.custom_jvp
    def function(x: Any) -> Any:
        return jnp.round(2.0 * jnp.round(x))

    function.defjvp(lambda p, t: (function(*p), slope * t[0]))
    return function


@jax.custom_jvp
def same(x: Any) -> Any:
    return x


same.defjvp(lambda p, t: (same(*p), 3.0 * t[0]))


@jax.custom_jvp
def product_and_sum(x: Any, y: Any) -> Any:
    return x * y, jnp.argmax(x), x + y


@product_and_sum.defjvp
def _(p: Any, t: Any) -> Any:
    out = product_and_sum(*p)
    return out, (7.0 * t[0] + t[1], np.zeros((), jax.dtypes.float0), t[0] * p[1])


@jax.custom_jvp
def nothing(x: Any) -> Any:
    return 0.0 * x


nothing.defjvp(lambda p, t: (nothing(*p), 5.0 * t[0]))


@jax.custom_vjp
def backwards(x: Any, y: Any) -> Any:
    return jnp.sin(x) * y, x.sum()


backwards.defvjp(lambda x, y: (backwards(x, y), (x, y)), lambda r, g: (2.0 * g[0] * r[1] + g[1], g[0] * 0.5))


def matrix(x: Any) -> Any:
    return jnp.outer(x, jnp.cos(x)) + jnp.diag(x) + jnp.roll(4.0 * jnp.eye(3), 1, axis=0)


FUNCTIONS_OF_X: dict[str, Function] = {
    "polynomials": lambda x: jnp.stack([x[0] * x[1] / x[2], x[0] ** 3 - x[1] ** -2, -x[2]]),
    "trigonometry": lambda x: jnp.stack([jnp.sin(x), jnp.cos(x), jnp.tan(x), jnp.arctan2(x, x[0] + 3)]),
    "inverse_functions": lambda x: jnp.stack([jnp.arcsin(x / 3), jnp.arccos(x / 3), jnp.arctan(x)]),
    "hyperbolic": lambda x: jnp.stack([jnp.sinh(x), jnp.cosh(x), jnp.tanh(x), jnp.arcsinh(x)]),
    "inverse_hyperbolic": lambda x: jnp.stack([jnp.arccosh(3 + x), jnp.arctanh(x / 3)]),
    "exponentials": lambda x: jnp.stack(
        [jnp.exp(x), jnp.exp2(x), jnp.expm1(x), jnp.log(x + 3), jnp.log1p(x + 3)]
    ),
    "roots": lambda x: jnp.stack(
        [jnp.sqrt(x + 3), jnp.cbrt(x), lax.rsqrt(x + 3), (x + 3) ** 0.5, (x + 3) ** 2.5]
    ),
    "powers": lambda x: jnp.stack([(x + 3) ** x[0], 2.0**x, (x + 3) ** 1.3]),
    "errors": lambda x: jnp.stack([special.erf(x), special.erfc(x)]),
    "remainders": lambda x: jnp.stack(
        [lax.rem(x, x[1] + 5), jnp.mod(x, 0.7), jnp.floor(x), jnp.round(x), jnp.trunc(x), jnp.ceil(x)]
    ),
    "kinks": lambda x: jnp.stack(
        [jnp.abs(x), jnp.maximum(x, 0.3), jnp.minimum(x, x[0]), jnp.clip(x, -0.5, 0.5)]
    ),
    "logistic": lambda x: jnp.stack([jax.nn.sigmoid(x), jax.nn.sigmoid(1e4 * x), jax.nn.sigmoid(-x)]),
    "activations": lambda x: jnp.stack(
        [jax.nn.relu(x), jax.nn.softplus(x), jax.nn.silu(x), jnp.logaddexp(x, x[0])]
    ),
    "norm": lambda x: jnp.linalg.norm(x)[None],
    "where": lambda x: jnp.where(x > 0, x**2, jnp.sin(x)),
    "where_nan": lambda x: jnp.where(x > 0, x * 2, jnp.sqrt(jnp.where(x > 0, 1.0, -x))),
    "cond": lambda x: lax.cond(x[0] > x[1], lambda a: a**2, lambda a: jnp.exp(a), x),
    "cumulative": lambda x: jnp.cumsum(x) * jnp.cumprod(x),
    "index": lambda x: x[jnp.array([jnp.argmax(x), 0])] * x[1],
    "set": lambda x: (x**2).at[1].set(x[0]).at[jnp.argmax(x)].add(5 * x[2]),
    "integers": lambda x: x * (3 * x).astype(int) + (x > 0),
    "stop": lambda x: lax.stop_gradient(x) * x + lax.stop_gradient(x**2),
    "products": lambda x: matrix(x) @ matrix(x).T @ x,
    "solve": lambda x: jnp.linalg.solve(matrix(x), x**2),
    "solve_constant": lambda x: jnp.linalg.solve(
        jnp.array([[0.0, 2.0, 1.0], [1.0, 0.0, 0.0], [3.0, 1.0, 5.0]]), x**2
    ),
    "solve_of_constant": lambda x: jnp.linalg.solve(matrix(x), jnp.arange(3.0)),
    "solve_stopped": lambda x: jnp.linalg.solve(lax.stop_gradient(matrix(x)), x**2),
    "solve_many": lambda x: jnp.linalg.solve(matrix(x), matrix(x).T + 1.0),
    "inverse": lambda x: jnp.linalg.inv(matrix(x)),
    "determinant": lambda x: jnp.linalg.det(matrix(x))[None],
    "determinant_4": lambda x: jnp.linalg.det(
        jnp.outer(jnp.append(x, 1), jnp.append(x, 2)) + jnp.eye(4)[::-1]
    )[None],
    "positive": lambda x: jsp_linalg.solve(matrix(x) @ matrix(x).T + jnp.eye(3), x, assume_a="pos"),
    "cholesky": lambda x: jnp.linalg.cholesky(matrix(x) @ matrix(x).T + jnp.eye(3)),
    "triangular": lambda x: jsp_linalg.solve_triangular(matrix(x) + 3 * jnp.eye(3), x, lower=True),
    "loop": lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sin(c) + i * x, x),
    "scan": lambda x: lax.scan(lambda c, a: (c * a + 1, c), x[0], x)[1],
    "handed_on": lambda x: same(x) * x + x,
    "rounded": lambda x: straight_through(2.0)(x),
    "two_rules": lambda x: straight_through(2.0)(x) + 10 * straight_through(3.0)(x),
    "rule_and_not": lambda x: straight_through(2.0)(x) * jnp.round(2.0 * jnp.round(x)),
    "several_outputs": lambda x: jnp.concatenate(
        [a.reshape(-1) for a in product_and_sum(x, x[::-1] * 2)[::2]]
    ),
    "the_same_product": lambda x: product_and_sum(x, x)[0] + x * x,
    "partly_constant": lambda x: jax.nn.relu(x.at[1].set(-2.0)),
    "constant_with_slope": nothing,
    "remat": lambda x: jax.checkpoint(lambda a: jnp.sin(a) ** 2)(x),
    "inner_derivative": lambda x: jax.grad(lambda a: jnp.sum(jnp.sin(a) ** 3))(x),
    "inner_derivative_of_solve": lambda x: jax.jacfwd(lambda a: jnp.linalg.solve(matrix(a), a))(x),
    "softmax": lambda x: jax.nn.softmax(3 * x),
    "interp": lambda x: jnp.interp(x, np.array([-3.0, -0.4, 0.5, 3.0]), np.array([1.0, 0.0, 2.0, -1.0])),
}


@pytest.fixture(scope="module")
def expected() -> Callable[[np.ndarray], dict[str, Any]]:
    together = lambda x: {name: f(x).reshape(-1) for name, f in FUNCTIONS_OF_X.items()}
    return jax.jit(jax.jacfwd(together))


@pytest.fixture(scope="module")
def at_points(expected: Callable[..., Any]) -> list[tuple[np.ndarray, dict[str, Any]]]:
    points = [*np.random.default_rng(3).uniform(-2, 2, (3, 3)), np.array([0.4, -1.3, 0.9])]
    return [(x, expected(x)) for x in points]


@pytest.mark.parametrize("name", FUNCTIONS_OF_X)
def test_jacobian_is_jaxs(name: str, at_points: list[tuple[np.ndarray, dict[str, Any]]]) -> None:
    for x, by_jax in at_points:
        found = found_jacobian(FUNCTIONS_OF_X[name], x)
        np.testing.assert_allclose(found, by_jax[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (jnp.abs, [0.0, -0.0, 1.0]),
        (lambda x: jnp.maximum(x, x[0]), [1.0, 1.0, 2.0]),
        (lambda x: jnp.minimum(x, 1.0), [1.0, 0.0, 2.0]),
        (lambda x: jnp.max(x)[None], [1.0, 1.0, 0.0]),
        (jax.nn.relu, [0.0, 1.0, -1.0]),
        (lambda x: jnp.clip(x, 0.0, 1.0), [0.0, 1.0, 0.5]),
        (lambda x: jnp.maximum(x, 0.0) ** 1.5, [0.0, 1.0, -1.0]),
        (lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0)[1:], [0.0, 1.0, 4.0]),
        (
            lambda x: jnp.where(x > 0, x, jnp.where(x > 0, 1.0, 0.0) / jnp.where(x < 0, 0.0, 1.0)),
            [1.0, 2.0, 3.0],
        ),
        (lambda x: jnp.sqrt(jnp.sum(x**2))[None], [0.0, 0.0, 0.0]),
        (lambda x: jnp.abs(x) * 2, [np.nan, 1.0, -1.0]),
        (lambda x: jax.nn.sigmoid(x), [-800.0, 800.0, 0.0]),
        (lambda x: jnp.logaddexp(x, 0.0), [-800.0, 800.0, 0.0]),
        (lambda x: jnp.arccos(x), [1 - 1e-12, -1 + 1e-12, 0.0]),
    ],
)
def test_kinks_and_edges(function: Function, x: list[float]) -> None:
    point = np.array(x)
    np.testing.assert_allclose(found_jacobian(function, point), jax.jacfwd(function)(point), rtol=1e-9)


def test_branch_not_taken_may_be_nan() -> None:
    """What JAX needs two `where`s for works with one: derivatives are chosen, not added."""
    function = lambda x: jnp.where(x > 0, jnp.log(x) + jnp.sqrt(x), 3 * x)
    found = found_jacobian(function, np.array([-1.0, 0.0, 4.0]))
    np.testing.assert_allclose(found, np.diag([3.0, 3.0, 0.5]))


def test_power_zero_is_flat() -> None:
    """Also at zero, where the exponent times a negative power is NaN."""
    function = lambda x: x[1:] ** lax.stop_gradient(x[0])
    np.testing.assert_array_equal(found_jacobian(function, np.array([0.0, 0.0, 2.0])), np.zeros((2, 3)))


def test_custom_vjp() -> None:
    x = np.array([0.3, -0.7, 1.1])
    function = lambda x: jnp.append(*backwards(x, x[::-1]))
    np.testing.assert_allclose(found_jacobian(function, x), jax.jacrev(function)(x), rtol=1e-12)


def test_every_operation_has_a_derivative() -> None:
    assert set(FUNCTIONS) - {"floor", "ceil", "trunc", "rint"} <= set(RULES)


def test_zeros_are_zeros() -> None:
    """A derivative that is zero everywhere is the node ZERO: the pattern of the matrix depends on it."""
    graph = Graph()
    ids = graph.inputs(4)
    outputs = inline(
        graph, lambda x: jnp.stack([x[0] * 2, jnp.round(x[1]) + x[0], x[2] * x[3]]), Symbols(ids, "f")
    )
    pattern = jacobian(graph, outputs, ids) != ZERO
    np.testing.assert_array_equal(pattern, [[1, 0, 0, 0], [1, 0, 0, 0], [0, 0, 1, 1]])


# --- LU -------------------------------------------------------------------------------------------------


def solved(
    values: np.ndarray, rhs: np.ndarray, order: lu.Order | None = None
) -> tuple[np.ndarray, bool, bool]:
    """The solution by unrolled factors, and what the monitor says of them."""
    graph = Graph()
    pattern = values != 0
    ids = np.full(values.shape, ZERO)
    ids[pattern] = graph.inputs(int(pattern.sum()))
    right = graph.inputs(len(rhs))
    order = order or lu.choose(pattern, values[None])
    assert order is not None
    factors = lu.factor(graph, ids, order)
    x = lu.solve(graph, factors, right)
    outputs = [*x.tolist(), *lu.examine(graph, ids, factors)]
    given = dict(zip(ids[pattern].tolist(), values[pattern].tolist(), strict=True))
    found = graph.evaluate(outputs, given | dict(zip(right.tolist(), rhs.tolist(), strict=True)))
    return np.array(found[:-2], dtype=float), bool(found[-2]), bool(found[-1])


def sparse(rng: np.random.Generator, size: int) -> np.ndarray:
    """A regular matrix with zeros, on its diagonal too."""
    values = np.where(rng.uniform(size=(size, size)) < 0.35, rng.normal(size=(size, size)), 0.0)
    return values + 2 * np.eye(size)[rng.permutation(size)]


@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_sparse_systems(rng: np.random.Generator, size: int) -> None:
    for _ in range(8):
        values, rhs = sparse(rng, size), rng.normal(size=size)
        if np.linalg.cond(values) > 1e6:
            continue
        x, finite, healthy = solved(values, rhs)
        np.testing.assert_allclose(x, np.linalg.solve(values, rhs), rtol=1e-8, atol=1e-10)
        assert finite
        assert healthy


def test_saddle_point(rng: np.random.Generator) -> None:
    """Mass, constraints, and zeros on the diagonal: what Newton matrices look like."""
    mass, G = np.diag(rng.uniform(1, 2, 6)), rng.normal(size=(3, 6))
    values = np.block([[mass, G.T], [G, np.zeros((3, 3))]])
    x, finite, healthy = solved(values, np.arange(9.0))
    np.testing.assert_allclose(x, np.linalg.solve(values, np.arange(9.0)), rtol=1e-9)
    assert finite
    assert healthy


def test_monitor_sees_a_bad_order() -> None:
    values = np.array([[1e-14, 1.0], [1.0, 1.0]])
    assert not solved(values, np.ones(2), order=((0, 0), (1, 1)))[2]
    assert solved(values, np.ones(2))[2]


@pytest.mark.parametrize("defect", [0.0, 1e-15])
def test_monitor_sees_a_singular_matrix(rng: np.random.Generator, defect: float) -> None:
    values = rng.normal(size=(5, 5))
    order = lu.choose(np.ones((5, 5), dtype=bool), values[None])
    values[3] = values[1] + values[2] + defect
    assert not solved(values, np.ones(5), order)[2]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_monitor_sees_what_is_not_finite(rng: np.random.Generator, bad: float) -> None:
    values = sparse(rng, 5)
    order = lu.choose(values != 0, values[None])
    row, column = np.argwhere(values != 0)[2]
    values[row, column] = bad
    assert not solved(values, np.ones(5), order)[1]


def test_no_order_for_what_is_singular() -> None:
    pattern = np.ones((3, 3), dtype=bool)
    assert lu.choose(pattern, np.ones((1, 3, 3))) is None
    assert lu.choose(pattern, np.zeros((1, 3, 3))) is None
    assert lu.choose(pattern, np.full((1, 3, 3), np.nan)) is None
    assert lu.choose(np.zeros((3, 3), dtype=bool), np.ones((1, 3, 3))) is None


def test_no_unknowns() -> None:
    x, finite, healthy = solved(np.zeros((0, 0)), np.zeros(0), order=())
    assert x.shape == (0,)
    assert finite
    assert healthy


def test_order_keeps_fill_small() -> None:
    """An arrow: the other way round, everything fills."""
    values = np.diag(np.arange(1.0, 9.0))
    values[0], values[:, 0] = 1.0, 1.0
    graph = Graph()
    ids = np.where(values != 0, graph.inputs((8, 8)), ZERO)
    order = lu.choose(values != 0, values[None])
    assert order is not None
    assert order[-1][0] == 0 or order[-1][1] == 0
    assert len(lu.factor(graph, ids, order).entries()) == 8 + 7 + 7


def test_stated_derivatives_survive_a_reset_of_the_graph():
    """Partial derivatives are found when they are first needed. A reset may forget their nodes."""
    graph = Graph()
    x = graph.inputs(1)
    (value,) = inline(graph, lambda x: stumpff(1, x[0] ** 2)[None], Symbols(x, "f"))
    count, numbers = len(graph.nodes), {int(x[0]): 0.7}
    for function in (lambda: jacobian(graph, np.array([value]), x)[0, 0], lambda: pull(graph, value, x)):
        slope = graph.evaluate([int(function())], numbers)[0]
        assert slope == pytest.approx((np.cos(0.7) - np.sin(0.7) / 0.7) / 0.7, rel=1e-14)
        graph.reset(count)
        graph.add(int(x[0]), graph.constant(3.0))  # takes the place of a forgotten node


def pull(graph, value, x):
    return pulled_back(graph, np.array([value]), x, np.array([ONE]))[0]
