"""Components that a projection of the initial values keeps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from conftest import problem

CRANK = 2  # the angle of the slider crank's crank


@pytest.mark.slow
def test_a_crank_keeps_its_angle_and_rate():
    p = problem("slider-crank")
    q0, v0 = np.array(p.q0) + 1e-3, np.zeros(9)
    q0[CRANK], v0[CRANK] = 0.3, 10.0
    solve = lambda **more: ga.solve(
        p.system, (0.0, 0.01), q0, v0, args=p.args, h=0.005, initial="project", **more
    )
    held = solve(hold=[CRANK])
    assert held.q[0, CRANK] == 0.3
    assert held.v[0, CRANK] == 10.0
    assert held.residuals.position[0] < 1e-12
    assert held.residuals.velocity[0] < 1e-10
    assert abs(solve().v[0, CRANK] - 10.0) > 0.1  # everything moves
    only_rate = solve(hold={"v": [CRANK]})
    assert only_rate.v[0, CRANK] == 10.0
    assert only_rate.q[0, CRANK] != 0.3


@pytest.mark.slow
def test_the_change_is_the_smallest_of_those_that_are_left(rng):
    """In the norm of mass: M d is orthogonal to what constraints and held components allow."""
    p = problem("slider-crank")
    q0 = np.array(p.q0) + 1e-3 * rng.normal(size=9)
    q = ga.project_position(p.system, 0.0, q0, p.args, hold=[CRANK])
    G = np.asarray(p.system.G(0.0, q, p.args))
    M = np.asarray(p.system.M(0.0, q0, p.args))
    normal = np.vstack([G, np.eye(9)[CRANK]])
    push = M @ (q - q0)
    rest = push - normal.T @ np.linalg.lstsq(normal.T, push, rcond=None)[0]
    assert np.abs(rest).max() < 1e-5 * np.abs(push).max()
    v = ga.project_velocity(p.system, 0.0, q, rng.normal(size=9), p.args, hold=[CRANK])
    assert np.abs(np.asarray(p.system.g_dot(0.0, q, v, p.args))).max() < 1e-9


def test_what_contradicts_the_constraints_is_refused():
    circle = systems.circle()
    with pytest.raises(ValueError, match=r"found no position.*What hold keeps may contradict"):
        ga.project_position(circle, 0.0, [2.0, 0.5], hold=[0])
    with pytest.raises(ValueError, match=r"initial='project' found no q and v.*hold fewer"):
        ga.solve(circle, (0.0, 1.0), [2.0, 0.5], [0.0, 0.0], h=0.1, initial="project", hold=[0, 1])
    for wrong, message in (([5], "component 5 of q"), (["x"], "numbers of components"), ({"p": [0]}, "keys")):
        with pytest.raises((TypeError, ValueError), match=message):
            ga.project_position(circle, 0.0, [0.6, 0.9], hold=wrong)
    with pytest.raises(ValueError, match="hold needs initial='project'"):
        ga.solve(circle, (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], h=0.1, hold=[0])


@pytest.mark.slow
def test_under_a_transform_and_on_a_lie_group():
    q = jax.jit(lambda q: ga.project_position(systems.circle(), 0.0, q, hold=[0]))(jnp.array([0.6, 0.9]))
    np.testing.assert_allclose(q, [0.6, 0.8], atol=1e-12)
    top = problem("heavy-top")
    q0 = np.array(top.q0, dtype=float)
    q0[:3] += 0.01
    sol = top.system, (0.0, 1e-3), q0, np.array(top.v0)
    turned = ga.solve(*sol, args=top.args, h=1e-3, initial="project", hold={"q": [3, 4, 5]})
    np.testing.assert_allclose(turned.q[0, 3:], top.q0[3:], atol=1e-14)  # the rotation stays
    assert turned.residuals.position[0] < 1e-12


def test_with_redundant_constraints():
    twice = ga.System(jnp.eye(2), lambda t, q, v: -q, lambda t, q: (q @ q - 1.0) * jnp.array([1.0, 2.0]))
    sol = ga.solve(
        twice, (0.0, 0.1), [0.6, 0.9], [0.0, 0.0], h=0.05, initial="project", hold=[0], redundant="min_norm"
    )
    np.testing.assert_allclose(sol.q[0], [0.6, 0.8], atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heavy-top", "wheel-on-rod", "slider-crank"])
def test_machine_code_finds_what_xla_finds(name, rng):
    """Plain calls iterate with machine code, traced ones by XLA with second derivatives of constraints."""
    p = problem(name)
    q0, v0 = np.array(p.q0, dtype=float), np.array(p.v0, dtype=float)
    q0[:2] += 1e-3 * rng.normal(size=2)
    v0 = v0 + 0.1 * rng.normal(size=len(v0))
    q = ga.project_position(p.system, 0.0, q0, p.args)
    v = ga.project_velocity(p.system, 0.0, q, v0, p.args)
    by_xla = jax.jit(lambda q0: ga.project_position(p.system, 0.0, q0, p.args))(q0)
    np.testing.assert_allclose(q, by_xla, atol=1e-12)
    by_xla = jax.jit(lambda v0: ga.project_velocity(p.system, 0.0, q, v0, p.args))(v0)
    np.testing.assert_allclose(v, by_xla, rtol=1e-11, atol=1e-11)
