"""Inverse dynamics against statics by hand, and against simulations with the forces that it finds."""

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb

G = 9.81
SWING = lambda t: 0.5 * jnp.sin(2 * t) + 0.2 * t


@pytest.fixture(scope="module")
def arm() -> ga.System:
    """A point on a rod, with a table of torques about the pivot in its args."""
    torque = lambda q, u: u * jnp.array([-q[1], q[0]])
    return ga.System(
        mass=2.0 * jnp.eye(2),
        force=lambda t, q, v, times, u: jnp.array([0.0, -2.0 * G]) + torque(q, jnp.interp(t, times, u)),
        holonomic=lambda t, q, times, u: jnp.array([q @ q - 1.0]),
    )


NO_TORQUE = (np.array([0.0, 10.0]), np.zeros(2))
TURNING = {"torque": lambda t, q, *args: np.array([-q[1], q[0]])}
CIRCLE = lambda t: jnp.array([jnp.cos(SWING(t)), jnp.sin(SWING(t))])


def test_the_torque_of_a_pendulum(arm):
    """m φ'' + m g cos φ, and the tension of the rod m φ'² − m g sin φ = 2 λ."""
    t = np.linspace(0, 2, 5)
    need = ga.inverse_dynamics(arm, t, CIRCLE, actuators=TURNING, args=NO_TORQUE)
    angle, rate, second = (np.asarray(x) for x in (SWING(t), np.cos(2 * t) + 0.2, -2 * np.sin(2 * t)))
    np.testing.assert_allclose(need.u[:, 0], 2 * second + 2 * G * np.cos(angle), rtol=1e-10)
    np.testing.assert_allclose(2 * need.lam[:, 0], 2 * rate**2 - 2 * G * np.sin(angle), rtol=1e-9)
    np.testing.assert_allclose(need.effort, need.u * np.stack([-np.sin(angle), np.cos(angle)], axis=1))
    weight = np.array([0.0, -2 * G])
    np.testing.assert_allclose(2 * need.a, weight + need.effort + need.reaction, atol=1e-10)


@pytest.mark.slow
def test_forces_that_are_applied_reproduce_the_motion_at_order_two(arm):
    errors = []
    for h in (0.02, 0.01):
        t = np.arange(round(2 / h) + 1) * h
        u = ga.inverse_dynamics(arm, t, CIRCLE, actuators=TURNING, args=NO_TORQUE).u[:, 0]
        first = ga.inverse_dynamics(arm, t[:1], CIRCLE, actuators=TURNING, args=NO_TORQUE)
        sol = ga.solve(arm, (0.0, 2.0), first.q[0], first.v[0], h=h, args=(t, u))
        errors.append(np.abs(sol.q - np.asarray(CIRCLE(t)).T).max())
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)
    assert errors[1] < 1e-3


@pytest.mark.slow
def test_samples_approach_a_function(arm):
    """At order five at the ends, where polynomials of degree six have their largest errors in a."""
    errors = []
    for count in (81, 161):
        t = np.linspace(0, 2, count)
        exact = ga.inverse_dynamics(arm, t, CIRCLE, actuators=TURNING, args=NO_TORQUE)
        found = ga.inverse_dynamics(arm, t, exact.q, actuators=TURNING, args=NO_TORQUE)
        errors.append(np.abs(found.u - exact.u).max())
    assert errors[0] / errors[1] == pytest.approx(32, rel=0.2)
    assert errors[1] < 5e-6
    given = ga.inverse_dynamics(arm, t, exact.q, v=exact.v, a=exact.a, actuators=TURNING, args=NO_TORQUE)
    np.testing.assert_allclose(given.u, exact.u, atol=1e-10)


@pytest.mark.slow
def test_samples_of_rotations():
    """A body in space: the torque of Euler's equations, from quaternions of any sign."""
    J = np.array([1.0, 2.0, 3.0])
    body = ga.System(np.diag(J), lambda t, q, v: -jnp.cross(v, J * v), space=ga.SO3())
    t = np.linspace(0, 1, 60)
    spin = lambda t: ga.rotation.multiply(
        ga.rotation.from_rotation_vector(jnp.array([0.0, 0.0, 3 * t])),
        ga.rotation.from_rotation_vector(jnp.array([t**2, 0.0, 0.0])),
    )
    exact = ga.inverse_dynamics(body, t, spin)
    v = np.stack([2 * t, 3 * np.sin(t**2), 3 * np.cos(t**2)], axis=1)
    np.testing.assert_allclose(exact.v, v, atol=1e-12)
    rate = np.stack([2 + 0 * t, 6 * t * np.cos(t**2), -6 * t * np.sin(t**2)], axis=1)
    np.testing.assert_allclose(exact.u, J * rate + np.cross(v, J * v), atol=1e-10)
    signs = np.where(np.arange(60) % 3 == 0, -1, 1)[:, None]
    found = ga.inverse_dynamics(body, t, signs * exact.q)
    np.testing.assert_allclose(found.u, exact.u, atol=1e-5)


def test_the_least_norm_of_two_motors_that_do_the_same(arm):
    twice = TURNING | {"stronger": lambda t, q, *args: 2 * np.array([-q[1], q[0]])}
    need = ga.inverse_dynamics(arm, [0.0], CIRCLE, actuators=twice, args=NO_TORQUE)
    np.testing.assert_allclose(need.u[0], 2 * G * np.array([1, 2]) / 5, rtol=1e-9)
    free = ga.inverse_dynamics(arm, [0.0], CIRCLE, args=NO_TORQUE)
    np.testing.assert_allclose(free.u[0], [0, 2 * G], atol=1e-9)  # along the motion
    assert need.names == ("torque", "stronger")


def test_a_robot_arm_of_two_links_in_a_model():
    """Torques that hold two links level: by hand from weights and levers."""
    model = mb.Model(gravity=(0, -G, 0))
    first = model.add(mb.PlanarBody("first", mass=2.0, moment=0.1, at=(0.5, 0)))
    second = model.add(mb.PlanarBody("second", mass=1.0, moment=0.1, at=(1.5, 0)))
    model.add(mb.Revolute("shoulder", model.ground, first, at=(0, 0, 0)))
    model.add(mb.Revolute("elbow", first, second, at=(1, 0, 0)))
    still = [np.zeros((1, 6))] * 2
    need = model.inverse_dynamics([0.0], model.q0[None], ["shoulder", "elbow"], v=still[0], a=still[1])
    np.testing.assert_allclose(need.u[0], [G * (2 * 0.5 + 1.5), G * 0.5], rtol=1e-10)
    with pytest.raises(ValueError, match=r"actuators elbow cannot cause.*2 independent motions.*act on 1"):
        model.inverse_dynamics([0.0], model.q0[None], ["elbow"], v=still[0], a=still[1])


def test_errors(arm):
    with pytest.raises(ValueError, match="breaks the holonomic constraints by 3"):
        ga.inverse_dynamics(arm, [0.0], lambda t: jnp.array([2.0, 0.0]), args=NO_TORQUE)
    with pytest.raises(ValueError, match="3 samples are too few: pass at least 7"):
        ga.inverse_dynamics(arm, [0.0, 1.0, 2.0], np.ones((3, 2)), args=NO_TORQUE)
    with pytest.raises(ValueError, match=r"samples of shape \(1, size\)"):
        ga.inverse_dynamics(arm, [0.0], np.ones((3, 2)), args=NO_TORQUE)
    with pytest.raises(ValueError, match="pass both v and a"):
        ga.inverse_dynamics(arm, [0.0], np.ones((1, 2)), v=np.ones((1, 2)), args=NO_TORQUE)
    with pytest.raises(TypeError, match="'motor' is a name"):
        ga.inverse_dynamics(arm, [0.0], CIRCLE, actuators=["motor"], args=NO_TORQUE)
