"""Derivatives of runs with initial="project", through the projection of a start onto the constraints."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from differences import richardson
from genalpha import multibody as mb
from genalpha.numerics import codes

TILTED = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, -1.0], [0.0, 1.0, 0.0]])


@functools.cache
def crank() -> mb.Model:
    """A body on a ball joint and a bar on a driven hinge, joined by a rod, and a ball on a string."""
    model = mb.Model()
    arm = model.add(mb.Body("arm", mb.box(2.0, (0.2, 0.3, 1.0)), at=(0.5, 0.1, 0.0)))
    bar = model.add(mb.Body("bar", mb.rod(1.5, 1.0, axis="x"), at=(2.0, 0.0, 0.4)))
    ball = model.add(mb.PointMass("ball", 0.7, at=(2.5, 1.0, 0.4)))
    model.add(mb.Spherical("ball joint", model.ground, arm, at=(0, 0, 0)))
    hinge = model.add(mb.Revolute("hinge", model.ground, bar, at=(1.5, 0, 0.4), axis=(0, 1, 0.2)))
    model.add(mb.Distance("rod", arm.frame((0.5, 0, 0)), bar, length=1.2))
    model.add(mb.Distance("string", bar.frame((0.5, 0, 0)), ball, length=0.9))
    model.add(mb.Driven("drive", hinge, lambda t: 0.3 * t))
    return model


@functools.cache
def disk() -> mb.Model:
    """A disk that rolls, and a weight on a rod at its centre."""
    model = mb.Model()
    wheel = model.add(mb.Body("wheel", mb.cylinder(2.0, 0.5, 0.1), at=(0, 0, 0.45), rotation=TILTED))
    bob = model.add(mb.PointMass("bob", 0.5, at=(0.2, 0.3, 1.0)))
    model.add(mb.RollingDisk("rolling", model.ground, wheel, radius=0.5))
    model.add(mb.Distance("rod", wheel, bob, length=0.8))
    return model


def of_model(model: mb.Model, changed: str) -> Any:
    """The system, its start, and args as a function of s: all masses and one length."""
    masses = {x: y for x, y in model.values.items() if x.endswith((".mass", ".inertia"))}
    more = {changed: model.values[changed]}
    args = lambda s: model.args(
        {x: y * (1 + s) for x, y in masses.items()} | {x: y * (1 + 0.1 * s) for x, y in more.items()}
    )
    return model.system, model.q0, model.v0, args


@functools.cache
def skate() -> Any:
    """A skate on a wire, on which the mass depends, written by hand."""
    system = ga.System(
        lambda t, q, mass: jnp.diag(jnp.stack([mass, mass * (1 + 0.3 * q[0] ** 2), 0.4 * mass, mass])),
        lambda t, q, v, mass: jnp.zeros(4),
        holonomic=lambda t, q, mass: jnp.stack([q[1] - jnp.sin(q[0]) - 0.2 * q[3] * t * mass]),
        nonholonomic=lambda t, q, v, mass: jnp.stack(
            [v[0] * jnp.sin(q[2]) - v[3] * jnp.cos(q[2]) + 0.1 * v[2] ** 2]
        ),
    )
    return system, np.array([0.4, 0.2, 0.6, 0.3]), np.zeros(4), lambda s: (1.3 * (1 + s),)


CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "crank": (lambda: of_model(crank(), "rod.length"), {"q": [14], "v": [4, 12]}),
    "disk": (lambda: of_model(disk(), "rolling.radius"), {"q": [4], "v": [1, 7]}),
    "skate": (skate, [2]),
}


def start_of(name: str, held: bool) -> Callable[[Any], Any]:
    """q and v of the first row as a function of s. The start and the args follow s, off the constraints."""
    (make, hold), rng = CASES[name], np.random.default_rng(1)
    system, q0, v0, args = make()
    d, dv = 0.1 * rng.normal(size=v0.shape), rng.normal(size=v0.shape)
    options = {"hold": hold} if held else {}

    def start(s: Any) -> Any:
        q, v = system.space.retract(q0, (1 + s) * d), v0 + (1 + s) * dv
        sol = ga.solve(system, (0.3, 0.32), q, v, h=0.01, args=args(s), initial="project", **options)
        return jnp.concatenate([sol.q[0], sol.v[0]])

    return start


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
@pytest.mark.parametrize("name", CASES)
def test_derivatives_of_a_projected_start(name: str, held: bool) -> None:
    """In both directions, from far away, of coordinates, velocities and numbers."""
    function = start_of(name, held)
    expected = richardson(lambda s: np.asarray(function(float(s))), 0.02)
    value, forward = jax.jvp(function, (0.0,), (1.0,))
    np.testing.assert_allclose(value, function(0.0), atol=1e-12)
    np.testing.assert_allclose(forward, expected, rtol=1e-7, atol=1e-7)
    weights = np.random.default_rng(2).normal(size=len(expected))
    backward = jax.grad(lambda s: weights @ function(s))(0.0)
    assert float(backward) == pytest.approx(weights @ np.asarray(forward), rel=1e-9)


def test_a_start_without_a_projection_has_no_numbers() -> None:
    """Alone and as a member of a batch, whose other members are not concerned."""
    system = ga.System(
        jnp.eye(2),
        lambda t, q, v, r: jnp.zeros(2),
        holonomic=lambda t, q, r: jnp.stack([q @ q - r, q[0] - 1.0]),
    )

    def run(r: Any) -> Any:
        return ga.solve(system, (0.0, 0.1), [1.0, 0.5], [0.0, 0.0], h=0.05, args=(r,), initial="project")

    first = lambda r: run(r).q[0, 1]
    radii = jnp.array([1.5, 0.5, 1.2])
    assert jax.jit(jax.vmap(run))(radii).status.tolist()[::2] == [codes.SUCCESS] * 2
    assert int(jax.jit(run)(0.5).status) != codes.SUCCESS
    for derivative in (jax.grad, jax.jacfwd):
        found = jax.vmap(derivative(first))(radii)
        assert np.isnan(found[1])
        np.testing.assert_allclose(found[::2], 0.5 / np.sqrt([0.5, 0.2]), rtol=1e-9)


def test_a_start_that_is_far_away() -> None:
    """The point of (x/3)⁴ + y² = 1 nearest to (4, 4): only second derivatives find it."""
    system = ga.System(
        jnp.eye(2),
        lambda t, q, v: jnp.zeros(2),
        holonomic=lambda t, q: jnp.stack([(q[0] / 3) ** 4 + q[1] ** 2 - 1]),
    )

    def first(s: Any) -> Any:
        q0 = jnp.array([4.0, 4.0 + s])
        return ga.solve(system, (0.0, 0.1), q0, [0.0, 0.0], h=0.05, initial="project").q[0]

    x, y = np.asarray(jax.jit(first)(0.0))
    assert (x / 3) ** 4 + y**2 == pytest.approx(1.0, abs=1e-14)
    assert (4 - x) * 2 * y == pytest.approx((4 - y) * 4 * x**3 / 81, rel=1e-12)
    expected = richardson(lambda s: np.asarray(first(s)), 0.05)
    np.testing.assert_allclose(jax.jacfwd(first)(0.0), expected, rtol=1e-9)
    np.testing.assert_allclose(jax.jacrev(first)(0.0), expected, rtol=1e-9)


def test_a_start_without_a_derivative_leaves_the_others_alone() -> None:
    """(0, 1) is the focal point of y = x²/2: all of its derivatives are infinite there."""
    system = ga.System(
        jnp.eye(2), lambda t, q, v: jnp.zeros(2), holonomic=lambda t, q: q[1:] - q[:1] ** 2 / 2
    )

    def first(y: Any) -> Any:
        sol = ga.solve(system, (0.0, 0.1), jnp.stack([0.0, y]), [1.0, 0.0], h=0.05, initial="project")
        return sol.q[0, 0]

    slopes = jax.vmap(jax.grad(first))(jnp.array([0.5, 1.0]))
    assert float(slopes[0]) == 0.0
    assert np.isnan(slopes[1])


def test_linear_equations_in_constraints() -> None:
    def constraint(t: Any, q: Any, a: Any) -> Any:
        x = q[0]
        matrix, right = jnp.array([[2.0, x], [x, 3.0]]), jnp.array([1.0, x])
        return q[1:] - a * jnp.linalg.solve(matrix, right)[:1]

    system = ga.System(lambda t, q, a: a * jnp.eye(2), lambda t, q, v, a: jnp.zeros(2), constraint)

    def first(a: Any) -> Any:
        run = functools.partial(ga.solve, system, (0.0, 0.02), [0.43, 0.7], [1.0, 0.5], h=0.01)
        return run(args=(a,), initial="project").q[0, 1]

    expected = float(richardson(lambda s: first(1.2 + s), 0.05))
    assert float(jax.grad(first)(1.2)) == pytest.approx(expected, rel=1e-9)
    assert float(jax.jvp(first, (1.2,), (1.0,))[1]) == pytest.approx(expected, rel=1e-9)


def test_members_of_a_batch_have_their_own_projections() -> None:
    """Values, gradients and Jacobians of many are those of each alone."""
    function = start_of("disk", False)
    several = jnp.linspace(-0.1, 0.1, 5)
    alone = [np.asarray(function(float(s))) for s in several]
    np.testing.assert_allclose(jax.jit(jax.vmap(function))(several), alone, atol=1e-11)
    slopes = jax.vmap(jax.jacfwd(function))(several)
    np.testing.assert_allclose(slopes, [jax.jacrev(function)(s) for s in several], atol=1e-9)
    two = lambda x: function(x[0] + x[1] ** 2)
    found = jax.jacfwd(two)(jnp.array([0.05, 0.1]))
    np.testing.assert_allclose(found, np.outer(jax.jacfwd(function)(0.06), [1.0, 0.2]), atol=1e-9)


def test_arguments_may_be_infinite() -> None:
    """No limit is written as one that is infinite."""
    system = ga.System(
        lambda t, q, m, limit: m * jnp.eye(2),
        lambda t, q, v, m, limit: jnp.stack([0.0, -9.81 * m * jnp.minimum(1.0, limit)]),
        lambda t, q, m, limit: q @ q - jnp.ones(1),
    )

    def last(limit: float) -> Any:
        start = jnp.array([1.1, 0.0]), jnp.zeros(2)
        return lambda m: ga.solve(system, (0.0, 0.1), *start, args=(m, limit), h=0.01, initial="project").q[
            -1, 1
        ]

    for function in (jax.jit, jax.grad):
        assert float(function(last(jnp.inf))(2.0)) == float(function(last(1e300))(2.0))
