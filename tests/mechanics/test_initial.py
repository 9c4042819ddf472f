"""Consistent values, projection, and the start of the acceleration variable."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

import genalpha as ga
from conftest import problem, run


def test_consistent_values_of_a_problem_nonlinear_in_the_multipliers():
    p = problem("jay-negrut")
    state = ga.consistent(p.system, 0.0, p.q0, p.v0)
    np.testing.assert_allclose(state.a, [1, 4], atol=1e-14)
    np.testing.assert_allclose([*state.lam, *state.psi], [1, 1], atol=1e-14)
    later = p.reference(0.8)
    state = ga.consistent(p.system, 0.8, later.q, later.v)
    np.testing.assert_allclose(state.psi, later.psi, rtol=1e-13)
    assert (float(state.t), state.q.shape) == (0.8, (2,))


@pytest.mark.slow
def test_consistent_works_under_transforms():
    p = problem("pendulum")
    stiffness = lambda k: ga.consistent(p.system, 0.0, p.q0, p.v0, ({**p.args[0], "k": k},)).lam
    np.testing.assert_allclose(jax.vmap(stiffness)(jnp.array([3000.0]))[0], stiffness(3000.0))
    e = 1e-5 * np.array([0, 0, 1.0])
    at = lambda q: ga.consistent(p.system, 0.0, q, p.v0, p.args).a
    slope = (at(p.q0 + e) - at(p.q0 - e)) / 2e-5
    exact = jax.jacfwd(lambda q: ga.consistent(p.system, 0.0, q, p.v0, p.args).a)(jnp.array(p.q0))[:, 2]
    np.testing.assert_allclose(exact, slope, rtol=1e-6, atol=1e-5)


def test_projection_finds_the_nearest_point_in_the_mass_norm():
    mass = np.diag([1.0, 4.0])
    system = ga.System(mass, lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q @ q - 1.0]))
    q0, v0 = np.array([0.9, 0.7]), np.array([1.0, 1.0])
    sol = ga.solve(system, (0, 0.1), q0, v0, h=0.1, initial="project")
    q, v = sol.q[0], sol.v[0]
    angle = minimize(lambda s: (d := [np.cos(s[0]), np.sin(s[0])] - q0) @ mass @ d, [0.6], tol=1e-14).x[0]
    np.testing.assert_allclose(q, [np.cos(angle), np.sin(angle)], atol=1e-6)
    assert abs(q @ q - 1) < 1e-13
    assert abs(q @ v) < 1e-13
    # v - v0 is orthogonal, in the mass norm, to the tangent of the circle
    assert abs((v - v0) @ mass @ np.array([-q[1], q[0]])) < 1e-12


def test_projection_onto_nonlinear_nonholonomic_constraints():
    p = problem("jay-nonholonomic")
    sol = ga.solve(p.system, (0, 0.1), p.q0, p.v0 + 0.05, h=0.01, initial="project")
    assert abs(p.system.k(0.0, sol.q[0], sol.v[0])[0]) < 1e-13
    assert np.linalg.norm(sol.v[0] - p.v0) < 0.1


@pytest.mark.slow
def test_project_leaves_consistent_values_alone():
    p = problem("wheel-on-rod")
    sol = run("wheel-on-rod", t_end=0.1, initial="project")
    np.testing.assert_allclose(sol.q[0], p.q0, atol=1e-14)
    np.testing.assert_allclose(sol.v[0], p.v0, atol=1e-14)


def test_assume_trusts():
    system = ga.System(np.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q @ q - 1.0]))
    sol = ga.solve(system, (0, 0.1), [1.001, 0.0], [0.0, 1.0], h=0.01, initial="assume")
    assert sol.residuals.position[0] == pytest.approx(2.001e-3)
    assert sol.residuals.position[1] < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jay-negrut", "rolling-disk", "pendulum"])
def test_the_second_order_start(name):
    """a_0 + αh a_0' is within O(h²) of a(t_0 + αh), a_0 only within O(h)."""
    p, sizes = problem(name), np.array([4e-3, 2e-3, 1e-3, 5e-4])
    for start, order in (("second-order", 2), ("a0", 1)):
        errors = []
        for h in sizes:
            method = ga.SOI2(ga.chung_hulbert(0.2), start=start)
            sol = ga.solve(p.system, (0, h), p.q0, p.v0, h=h, method=method, args=p.args)
            alpha = method.coefficients.alpha
            assert sol.t_alpha[0] == pytest.approx(alpha * h if start == "second-order" else 0.0)
            # t_0 + αh lies before the start; the mirror image −αh tells a_0' as well, up to O(h²)
            own = sol.a_alpha[0] - sol.a[0]
            errors.append(np.linalg.norm(own + p.reference(-alpha * h).a - sol.a[0]))
        slope = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
        assert slope == pytest.approx(order, abs=0.15), (start, errors)


def test_row_zero_holds_the_start():
    p = problem("wheel-on-rod")
    sol, state = run("wheel-on-rod", t_end=0.1), ga.consistent(p.system, 0.0, p.q0, p.v0, p.args)
    for field in ("q", "v", "a", "lam", "psi"):
        np.testing.assert_allclose(getattr(sol, field)[0], getattr(state, field), rtol=1e-12, atol=1e-12)
    start = run("wheel-on-rod", t_end=0.1, method=ga.SOI2(start="a0"))
    np.testing.assert_allclose(start.a_alpha[0], state.a, rtol=1e-14)
    assert start.t_alpha[0] == 0.0


def test_a_kink_at_the_start_falls_back_to_a0():
    """Quadratic drag from rest has no derivative at v = 0: the start takes a_0."""
    drag = ga.System(np.eye(2), lambda t, q, v: jnp.array([1.0, 0.0]) - 0.1 * jnp.linalg.norm(v) * v)
    sol = ga.solve(drag, (0, 1), [0.0, 0.0], [0.0, 0.0], h=0.01)
    root = np.sqrt(0.1)
    assert sol.v[-1, 0] == pytest.approx(np.tanh(root) / root, abs=1e-5)
    assert sol.t_alpha[0] == 0.0
    np.testing.assert_array_equal(sol.a_alpha[0], sol.a[0])


def test_a_mass_matrix_that_does_not_exist_before_the_start():
    system = ga.System(lambda t, q: (1 + jnp.sqrt(t)) * jnp.eye(1), lambda t, q, v: jnp.ones(1))
    sol = ga.solve(system, (0, 1), [0.0], [0.0], h=1e-3)
    assert sol.v[-1, 0] == pytest.approx(2 * (1 - np.log(2)), abs=1e-3)
    assert sol.t_alpha[0] == 0.0


def test_the_user_may_choose_among_several_multipliers():
    """A force λ² = 4 holds the mass with λ = 2 or λ = −2."""
    system = ga.System(
        np.eye(1),
        lambda t, q, v: jnp.array([-4.0]),
        lambda t, q: q,
        reaction=lambda t, q, v, lam, psi: lam**2,
    )
    for guess in (1.5, -1.5):
        start = ga.consistent(system, 0.0, [0.0], [0.0], multipliers=([guess], []))
        assert start.lam[0] == pytest.approx(np.sign(guess) * 2)
        sol = ga.solve(system, (0, 1), [0.0], [0.0], h=0.1, multipliers=([guess], []))
        np.testing.assert_allclose(sol.lam, np.sign(guess) * 2)
