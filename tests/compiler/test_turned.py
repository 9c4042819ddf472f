"""Derivatives through small turns are those that JAX takes of the operations of quaternions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import rotation
from genalpha.compiler import differentiate
from genalpha.compiler.graph import Graph
from genalpha.compiler.reader import Symbols, inline
from genalpha.mechanics.along import force_of, matrix_of, rate_along
from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import System

BODY = ga.R3xSO3()
SPACES: dict[str, Space] = {
    "SO3": ga.SO3(),
    "R3xSO3": BODY,
    "SE3": ga.SE3(),
    "four bodies": ga.Product(BODY, BODY, BODY, BODY),  # as many as a quaternion has entries
    "mixed": ga.Product(ga.Euclidean(2), BODY, ga.SO3()),
}


def point(space: Space, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """A point and an increment that is not small."""
    rng, dim = np.random.default_rng(seed), int(space.dim or 0)
    q = space.normalize(jnp.asarray(rng.normal(size=space.size(dim))))
    return np.asarray(q), 0.6 * rng.normal(size=dim)


def seen(space: Space, q: Any) -> Any:
    """All that functions do with the last rotation: the matrix, a turned vector, the vector, entries of q."""
    R, u = rotation.matrix(q[-4:]), jnp.array([0.3, -1.0, 0.5])
    other = rotation.matrix(q[:4] / jnp.sqrt(q[:4] @ q[:4]))
    relative = rotation.vector_of_matrix(other.T @ R)
    return jnp.concatenate([(R @ R)[0], rotation.rotate(q[-4:], u), relative, q[-4:] * q[:4], q[:1] * R[1]])


def numbers(function: Callable[..., Any], *arguments: Any) -> Any:
    """A function as scalar operations, evaluated."""
    graph = Graph()
    given = [graph.inputs(np.shape(x)) for x in arguments]
    found = inline(graph, function, *(Symbols(ids, "f") for ids in given))
    values = {int(i): x for ids, a in zip(given, arguments, strict=True) for i, x in zip(ids, a, strict=True)}
    evaluate = lambda ids: np.array(graph.evaluate(ids.reshape(-1).tolist(), values)).reshape(ids.shape)
    return jax.tree.map(evaluate, found)


def slopes(function: Callable[..., Any], way: str, at: np.ndarray) -> np.ndarray:
    """The derivatives of a function of one vector, in the scalar program."""
    graph = Graph()
    x = graph.inputs(len(at))
    value = inline(graph, function, Symbols(x, "f"))
    if way == "matrix":
        found = differentiate.jacobian(graph, value, x)
    elif way == "along":
        units = np.eye(len(at), dtype=np.int64)  # the nodes of zero and one
        found = np.stack([differentiate.along(graph, value, x, unit) for unit in units], axis=1)
    else:
        units = np.eye(len(value), dtype=np.int64)
        found = np.stack([differentiate.pulled_back(graph, value, x, unit) for unit in units])
    given = dict(zip(x.tolist(), at.tolist(), strict=True))
    return np.array(graph.evaluate(found.reshape(-1).tolist(), given), float).reshape(found.shape)


@pytest.mark.parametrize("way", ["matrix", "along", "back"])
@pytest.mark.parametrize("name", SPACES)
def test_derivatives_along_increments(name: str, way: str) -> None:
    """Through retract, and through a further retract, for increments of a third of a turn."""
    space = SPACES[name]
    q, d = point(space)
    reached = lambda d: seen(space, space.retract(space.retract(jnp.asarray(q), d), 0.3 * d[::-1]))
    expected = jax.jacfwd(reached)(d)
    np.testing.assert_allclose(slopes(reached, way, d), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("way", ["matrix", "along", "back"])
def test_derivatives_along_the_start(way: str) -> None:
    """With respect to entries of the quaternion that a step starts from, tangential or not."""
    q, d = point(BODY)
    reached = lambda q: seen(BODY, BODY.retract(q, jnp.asarray(d)))
    expected = jax.jacfwd(reached)(q)
    assert np.abs(expected @ q).max() > 0.1
    np.testing.assert_allclose(slopes(reached, way, q), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", SPACES)
def test_forces_matrices_and_rates(name: str) -> None:
    """With respect to velocities, as those by `pull` and `rate` of the space."""
    space = SPACES[name]
    q, v = point(space)
    weights = np.arange(1.0, len(seen(space, jnp.asarray(q))) + 1)
    moved = lambda q: seen(space, q)

    def everything(q: Any, v: Any) -> Any:
        timed = lambda t, q, v: (1 + t) * seen(space, q) * v[0]
        rate = lambda t, q, v: rate_along(space, timed, t, q, v, (v, 2.0 * v))[1]
        twice = rate_along(space, rate, 0.5, q, v, (v, 2.0 * v))[1]
        return force_of(space, moved, q, weights), matrix_of(space, moved, q), rate(0.5, q, v), twice

    expected = everything(jnp.asarray(q), jnp.asarray(v))
    for found, wanted in zip(numbers(everything, q, v), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-11)


def test_second_derivatives() -> None:
    """A matrix of derivatives is differentiated again."""
    q, d = point(BODY)
    first = lambda d: matrix_of(BODY, lambda q: seen(BODY, q), BODY.retract(jnp.asarray(q), d))
    expected = jax.jacfwd(lambda d: first(d).reshape(-1))(d)
    found = slopes(lambda d: first(d).reshape(-1), "matrix", d)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_rotation_vector_near_zero_and_near_a_half_turn() -> None:
    """The stated derivative of the vector of a matrix holds for all angles below π."""
    axis = np.array([2.0, -1.0, 2.0]) / 3.0
    for angle in (0.0, 1e-9, 1e-4, 1.0, 3.0):
        at = angle * axis
        back = lambda w: rotation.vector_of_matrix(rotation.matrix(ga.SO3().retract(rotation.identity(), w)))
        np.testing.assert_allclose(slopes(back, "matrix", at), np.eye(3), atol=1e-7 if angle > 2 else 1e-11)


def test_a_turned_vector_is_linear_in_the_vector() -> None:
    """JAX transposes it, also under vmap."""
    q, x, weights = (jnp.asarray(np.random.default_rng(k).normal(size=n)) for k, n in enumerate((4, 3, 3)))
    q = rotation.normalize(q)
    turn = lambda x: rotation.rotate(q, x)
    (found,) = jax.linear_transpose(turn, x)(weights)
    np.testing.assert_allclose(found, rotation.matrix(q).T @ weights, rtol=1e-14)
    (rows,) = jax.linear_transpose(jax.vmap(turn), jnp.stack([x, x]))(jnp.stack([weights, x]))
    np.testing.assert_allclose(rows[0], found, rtol=1e-14)


def test_a_constraint_takes_fewer_operations() -> None:
    """A ball joint on a turned body: its forces, and Newton's matrix for them."""
    graph, arm = Graph(), jnp.array([0.2, 0.1, -0.3])
    tip = lambda t, q: q[:3] + rotation.rotate(q[3:], arm)
    system = System(np.eye(6), lambda t, q, v: jnp.zeros(6), tip, space=BODY)
    q, d, lam = (graph.inputs(n) for n in (7, 6, 3))
    force = lambda q, d, lam: system.holonomic_force(0.0, BODY.retract(q, d), lam)
    value = inline(graph, force, *(Symbols(x, "f") for x in (q, d, lam)))
    counted = lambda ids: sum(
        graph.nodes[i].op in ("add", "sub", "mul", "div") for i in graph.reachable(ids.reshape(-1).tolist())
    )
    rows = counted(value)
    both = counted(np.concatenate([value, differentiate.jacobian(graph, value, d).reshape(-1)]))
    assert rows <= 170  # 175 by derivatives of quaternions
    assert both <= 324  # 654
