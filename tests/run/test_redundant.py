"""Redundant constraints: same motion, smallest multipliers, and every violation is reported."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.convergence import slope
from redundant_systems import (
    CLOSED,
    DOOR,
    HUNG_ONCE,
    ONE,
    ROUND,
    SCALED,
    SPAN,
    START,
    THREE_BARS,
    TWO,
    WEIGHT,
    assert_smallest,
    solve,
)


def test_a_constraint_given_twice():
    once, twice = ga.solve(ONE, SPAN, *START, h=0.01), solve(TWO, SPAN, *START, h=0.01)
    np.testing.assert_allclose(twice.q, once.q, atol=1e-14)
    np.testing.assert_allclose(twice.v, once.v, atol=1e-13)
    np.testing.assert_allclose(twice.lam, np.repeat(once.lam, 2, axis=1) / 2, atol=1e-12)
    np.testing.assert_allclose(twice.reactions.total, once.reactions.total, atol=1e-11)
    assert twice.not_unique == (0, 1)
    assert twice.success
    assert "holonomic[0]; holonomic[1] are not unique" in twice.message
    assert "not unique" in repr(twice)
    assert once.not_unique == ()
    assert twice.stats == once.stats


def test_the_scale_of_a_constraint_changes_its_share_of_the_force():
    """The Euclidean norm of λ is minimal, so a larger row takes more of the force, here almost all."""
    once, sol = ga.solve(ONE, SPAN, *START, h=0.01), solve(SCALED, SPAN, *START, h=0.01)
    factors = np.array([1.0, -3.0, 1e4])
    np.testing.assert_allclose(sol.lam, once.lam * factors / (factors @ factors), rtol=1e-10, atol=1e-15)
    assert sol.residuals.position.max() < 1e-10
    assert_smallest(SCALED, sol)


@pytest.mark.parametrize(
    "method",
    [
        "soi2",
        *(
            pytest.param(m, marks=pytest.mark.slow)
            for m in ("stabilized", "cs", "index3", "dae-alpha", "projected", "hht-i3")
        ),
    ],
)
def test_every_method(method):
    once = ga.solve(HUNG_ONCE, SPAN, *CLOSED, h=0.02, method=method)
    sol = solve(DOOR, SPAN, *CLOSED, h=0.02, method=method)
    assert sol.lam.shape == (51, 10)
    assert sol.not_unique == tuple(range(10))
    tolerance = 1e-10 if method in ("index3", "hht-i3") else 1e-12
    np.testing.assert_allclose(sol.q, once.q, atol=tolerance)
    np.testing.assert_allclose(sol.reactions.total, once.reactions.total, atol=1e4 * tolerance)
    assert_smallest(DOOR, sol, slice(None, None, 10))
    assert sol.residuals.position.max() < 1e-13
    if method == "stabilized":
        assert sol.extra["eta"].shape == (51, 10)
        assert np.count_nonzero(sol.extra["eta"][-1]) == 5  # those of the constraints that were kept


@pytest.mark.slow
def test_a_plane_loop_of_bodies_in_space():
    """A four-bar linkage of hinges. Three constraints are redundant: the others keep it in the plane too."""
    lengths, up = np.array([1.0, 2.0, 1.5]), jnp.array([0.0, 0.0, 1.0])
    angles = 2 * np.arctan2([0.6, 0.2, 1.1], 1.0)
    arms = lengths[:, None] * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    ground = arms[0] + arms[1] - arms[2]
    centres = [arms[0] / 2, arms[0] + arms[1] / 2, ground + arms[2] / 2]
    bodies = [np.r_[x, np.cos(a / 2), 0, 0, np.sin(a / 2)] for x, a in zip(centres, angles, strict=True)]
    rotate, x, y = ga.rotation.rotate, jnp.array([1.0, 0.0, 0.0]), jnp.array([0.0, 1.0, 0.0])

    def hinge(a, at_a, b, at_b):
        axis, here = rotate(a[3:], up), a[:3] + rotate(a[3:], at_a)
        there = b[:3] + rotate(b[3:], at_b)
        return jnp.append(here - there, jnp.array([rotate(b[3:], x) @ axis, rotate(b[3:], y) @ axis]))

    def hinges(t, q):
        fixed, (one, two, three) = jnp.eye(7)[3], jnp.split(q, 3)
        a, b, c = (x * length / 2 for length in lengths)
        return jnp.concatenate(
            [
                hinge(fixed, 0 * x, one, -a),
                hinge(one, a, two, -b),
                hinge(two, b, three, c),
                hinge(fixed, jnp.asarray(ground), three, -c),
            ]
        )

    weight = jnp.array([0.0, -9.81, 0.0])
    linkage = ga.System(
        np.diag([1.0, 1.0, 1.0, 0.01, 0.1, 0.1] * 3),
        lambda t, q, v: jnp.tile(jnp.append(weight, jnp.zeros(3)), 3),
        hinges,
        space=ga.Product(*[ga.R3xSO3()] * 3),
    )
    sol = solve(linkage, SPAN, np.concatenate(bodies), np.zeros(18), h=0.01)
    assert sol.lam.shape == (101, 20)
    out_of_plane = [i + j for i in (0, 5, 10, 15) for j in (2, 3, 4)]
    assert sol.not_unique == tuple(out_of_plane)
    assert sol.residuals.position.max() < 1e-13
    assert_smallest(linkage, sol, slice(None, None, 20))


def test_variables_of_a_method_are_those_of_all_constraints():
    """Those that belong to constraints have zeros where one was left out; others are as they are."""
    sol = solve(TWO, SPAN, *START, h=0.1, method="dae-alpha")
    once = ga.solve(ONE, SPAN, *START, h=0.1, method="dae-alpha")
    np.testing.assert_allclose(sol.extra["phi"], once.extra["phi"], atol=1e-12)
    for name in ("nu", "mu"):
        assert sol.extra[name].shape == (11, 2)
        np.testing.assert_allclose(sol.extra[name].sum(axis=1), once.extra[name][:, 0], atol=1e-12)
        assert np.count_nonzero(sol.extra[name][-1]) == 1


def test_velocities_of_the_index_3_method_may_be_off():
    sol = solve(DOOR, SPAN, *CLOSED, h=0.02, method="index3")
    assert sol.success
    assert 1e-4 < sol.residuals.velocity.max() < 1e-1


@pytest.mark.slow
def test_second_order():
    """q, v and the smallest λ of the door, and of the plate that changes its constraints on the way."""
    for system, start, ends, steps in (
        (DOOR, CLOSED, 1.0, [25, 50, 100, 200]),
        (THREE_BARS, ROUND, 0.6, [60, 120, 240, 480]),
    ):
        fine = solve(system, (0.0, ends), *start, h=ends / 6400)
        errors = {"q": [], "v": [], "lam": []}
        for n in steps:
            sol = solve(system, (0.0, ends), *start, h=ends / n)
            for name, list_ in errors.items():
                list_.append(np.linalg.norm(getattr(sol, name)[-1] - getattr(fine, name)[-1]))
        for name, list_ in errors.items():
            assert 1.85 < slope(1 / np.array(steps), list_) < 2.25, (name, list_)


def test_constraints_that_depend_on_time():
    driven = lambda *c: ga.System(
        np.diag([1.0, 2.0]),
        lambda t, q, v: jnp.array([0.3, -q[1]]),
        lambda t, q: jnp.array([x * (q[0] - q[1] * jnp.sin(t) - 1.0) for x in c]),
    )
    q0, v0 = [1.0, 2.0], [2.0, 0.0]
    once = ga.solve(driven(1.0), SPAN, q0, v0, h=0.01)
    sol = solve(driven(1.0, 2.0), SPAN, q0, v0, h=0.01)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-13)
    np.testing.assert_allclose(sol.lam, once.lam * [0.2, 0.4], atol=1e-11)


def sleigh(*rows) -> ga.System:
    edge = lambda t, q, v: jnp.cos(q[2]) * v[1] - jnp.sin(q[2]) * v[0]
    return ga.System(
        np.diag([2.0, 2.0, 0.5]),
        lambda t, q, v: jnp.array([0.3, 0.0, jnp.cos(t)]),
        nonholonomic=lambda t, q, v: jnp.array([row(edge(t, q, v), v) for row in rows]),
    )


@pytest.mark.parametrize(
    "method", ["index3", *(pytest.param(m, marks=pytest.mark.slow) for m in ("soi2", "dae-alpha"))]
)
def test_nonholonomic_constraints(method):
    start = ([0.0, 0.0, 0.0], [1.0, 0.0, 0.0])
    once = ga.solve(sleigh(lambda k, v: k), SPAN, *start, h=0.01, method=method)
    system = sleigh(lambda k, v: k, lambda k, v: 2 * k * (1 + v[2] ** 2))  # not linear in v
    sol = solve(system, SPAN, *start, h=0.01, method=method)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-12)
    assert sol.not_unique == (0, 1)
    assert "nonholonomic[1]" in sol.message
    assert_smallest(system, sol)


@pytest.mark.parametrize("method", ["soi2", pytest.param("index3", marks=pytest.mark.slow)])
def test_a_velocity_constraint_that_is_a_position_constraint_too(method):
    """Positions must not drift, so both position constraints are kept, although they are nearly parallel."""
    on_cylinder = lambda q: q[0] ** 2 + q[1] ** 2 - 1.0
    nearly = lambda t, q: jnp.array([on_cylinder(q), on_cylinder(q) + 0.1 * (q[2] - q[0] ** 2)])
    mass, force = np.eye(3), lambda t, q, v: jnp.array([0.0, -9.81, 1.0])
    both = ga.System(mass, force, nearly, lambda t, q, v: jnp.array([v[2] - 2 * q[0] * v[0]]))
    start = ([1.0, 0.0, 1.0], [0.0] * 3)
    sol = solve(both, SPAN, *start, h=0.01, method=method)
    once = ga.solve(ga.System(mass, force, nearly), SPAN, *start, h=0.01, method=method)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-12)
    assert sol.residuals.position.max() < 1e-13
    assert sol.not_unique == (0, 1, 2)
    assert_smallest(both, sol)
    parts = sol.reactions.holonomic + sol.reactions.nonholonomic
    np.testing.assert_allclose(parts, sol.reactions.total, atol=1e-12)
    gradients = jax.jit(jax.vmap(both.G))(sol.t, sol.q)
    np.testing.assert_allclose(
        sol.reactions.holonomic, -np.einsum("ni,nij->nj", sol.lam, gradients), atol=1e-11
    )


def test_a_constraint_on_nothing():
    idle = ga.System(np.eye(2), lambda t, q, v: WEIGHT, lambda t, q: jnp.array([0.0 * q[0]]))
    sol = solve(idle, SPAN, *START, h=0.1)
    np.testing.assert_allclose(sol.q[-1], [1.0, -4.905], atol=1e-12)
    assert (sol.lam == np.zeros((11, 1))).all()
    assert sol.not_unique == (0,)


def test_multipliers_that_are_unique_are_left_alone():
    mixed = ga.System(
        np.eye(4),
        lambda t, q, v: jnp.array([0.0, -9.81, 1.0, 2.0]),
        lambda t, q: jnp.array([q[2], q[0] ** 2 + q[1] ** 2 - 1.0, 0.0 * q[0], q[2] + q[3], 2 * q[2]]),
    )
    sol = solve(mixed, SPAN, [1.0, 0, 0, 0], [0.0] * 4, h=0.01)
    assert sol.not_unique == (0, 2, 4)
    assert (sol.lam[:, 2] == 0).all()  # exerts no force
    assert_smallest(mixed, sol)
