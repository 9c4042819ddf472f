"""Equilibria, linear equations and modes of systems with first-order states, against formulas."""

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.statics import modes as module

# q'' = −4 q − 0.1 q' + 2 z + u,  z' = (1 − z − q'/2)/0.2
MOTOR = ga.StateSystem(
    jnp.eye(1),
    lambda t, q, v, z: -4 * q - 0.1 * v + 2 * z,
    lambda t, q, v, z: (1 - z - 0.5 * v) / 0.2,
    n_states=1,
    names={"q": ["turn"], "v": ["speed", "current"]},
)
MATRIX = np.array([[0.0, 1.0, 0.0], [-4.0, -0.1, 2.0], [0.0, -2.5, -5.0]])


@pytest.fixture(scope="module")
def rest():
    return ga.equilibrium(MOTOR, [3.0])


def same(found, wanted):
    np.testing.assert_allclose(np.sort_complex(found), np.sort_complex(wanted), atol=1e-9)


def test_a_motor_rests_where_its_current_does(rest):
    np.testing.assert_allclose([*rest.q, *rest.v], [0.5, 0.0, 1.0], atol=1e-12)
    assert rest.stable
    np.testing.assert_allclose(rest.curvatures, [4.0])
    again = ga.solve(MOTOR, (0.0, 0.5), rest.q, rest.v, h=0.05)
    np.testing.assert_allclose(again.q, 0.5, atol=1e-12)


def test_a_state_has_one_eigenvalue_and_no_position(rest):
    linear = ga.linearize(MOTOR, rest, inputs=[0])
    assert linear.names == linear.output_names == ("turn", "speed", "current")
    np.testing.assert_allclose(linear.A, MATRIX, atol=1e-12)
    np.testing.assert_allclose(linear.C, np.eye(3), atol=1e-12)
    wanted = np.linalg.solve(3j * np.eye(3) - MATRIX, [0.0, 1.0, 0.0])
    np.testing.assert_allclose(linear.frequency_response(3.0)[:, 0], wanted, rtol=1e-9)
    assert linear.steady
    doubled = ga.linearize(MOTOR, rest, coordinates=lambda t, q: 2 * q)
    same(doubled.eigenvalues, linear.eigenvalues)
    np.testing.assert_allclose(doubled.A[1], [-4.0, -0.1, 4.0], atol=1e-12)  # of 2 q and its rate
    own = ga.linearize(MOTOR, rest, coordinates=lambda t, q: q, speeds=lambda t, q, v: v[::-1])
    same(own.eigenvalues, linear.eigenvalues)


@pytest.mark.parametrize("dense", [400, 1])
def test_shapes_of_modes_hold_the_states(rest, dense, monkeypatch):
    monkeypatch.setattr(module, "DENSE", dense)
    # The sparse iteration needs more unknowns than eigenvalues: several motors, which are not connected
    count = 6
    motors = ga.Assembly(
        [
            ga.Part(mass=jnp.eye(1), force=lambda t, q, v: -4 * q - 0.1 * v, nodes=np.arange(count)),
            ga.Part(mass=jnp.eye(1), force=lambda t, q, z: 5 * (1 - z), nodes=count + np.arange(count)),
            ga.Part(
                force=lambda t, q, v: (2 * v[1], -2.5 * v[0]),
                nodes=np.stack([np.arange(count), count + np.arange(count)], axis=1),
            ),
        ],
        space=[ga.Euclidean(1)] * count + [ga.States(1)] * count,
    )
    state = (0.0, np.repeat(rest.q, count), np.repeat(rest.v, count))
    found = ga.modes(motors, state, 2 * count if dense > 1 else 2)
    wanted = np.linalg.eigvals(MATRIX)
    for i, value in enumerate(found.eigenvalues):
        assert np.abs(value - wanted).min() < 1e-8
        q, z = found.shapes[:count, i], found.shapes[count:, i]
        np.testing.assert_allclose((value + 5) * z, -2.5 * value * q, atol=1e-7)
    assert len(found) == (2 * count if dense > 1 else 2)


def test_an_integral_finds_the_force_that_holds_a_pendulum():
    """The rate of z does not depend on z: the force balance determines it."""
    held = ga.StateSystem(
        jnp.eye(2),
        lambda t, q, v, z: jnp.array([-3 * (q[0] - 0.5) - 2 * v[0] + z[0], -9.81]),
        lambda t, q, v, z: 1e3 * (0.5 - q[:1]),
        n_states=1,
        holonomic=lambda t, q: jnp.array([q @ q - 1]),
    )
    rest, other = ga.equilibrium(held, [0.1, -0.8]), ga.equilibrium(held, ([0.1, -0.8], [40.0]))
    depth = np.sqrt(0.75)
    lam = 9.81 / (2 * depth)
    for found in (rest, other):
        np.testing.assert_allclose(found.q, [0.5, -depth], atol=1e-10)
        np.testing.assert_allclose([*found.lam, *found.v], [lam, 0.0, 0.0, lam], atol=1e-9)
    # (1 + 1/3) x'' = (−3 − 2 λ/depth²) x − 2 x' + z on the circle, z' = −1000 x
    A = np.array([[0, 1, 0], [0.75 * (-3 - 2 * lam / depth**2), -1.5, 0.75], [-1e3, 0, 0]])
    same(ga.linearize(held, rest).eigenvalues, np.linalg.eigvals(A))
    assert rest.stable is bool(np.linalg.eigvals(A).real.max() < 0) is False


def test_nonlinear_states_from_a_guess():
    """z' = 4 − z², of any size: the guess decides which of both is found."""
    for size in (1.0, 1e6):
        valve = ga.StateSystem(
            jnp.eye(1),
            lambda t, q, v, z, size=size: z / size - q - v,
            lambda t, q, v, z, size=size: 4 * size - z**2 / size,
            n_states=1,
        )
        high, low = (ga.equilibrium(valve, ([0.0], [guess * size])) for guess in (1.0, -1.0))
        np.testing.assert_allclose([*high.q, high.v[1] / size], 2.0, rtol=1e-9)
        np.testing.assert_allclose([*low.q, low.v[1] / size], -2.0, rtol=1e-9)
        assert (high.stable, low.stable) == (True, False)


def test_what_has_no_rest_is_named():
    ever = ga.StateSystem(jnp.eye(1), lambda t, q, v, z: -q + z, lambda t, q, v, z: jnp.ones(1), n_states=1)
    never = ga.StateSystem(jnp.eye(1), lambda t, q, v, z: -q, lambda t, q, v, z: 4 + z**2, n_states=1)
    for system, z in ((ever, [0.0]), (never, [0.1])):
        with pytest.raises(ga.EquilibriumNotFound, match="small changes do not reduce the force"):
            ga.equilibrium(system, ([0.0], z))
    with pytest.raises(ValueError, match=r"z of q_guess must have shape \(1,\), got shape \(2,\)"):
        ga.equilibrium(MOTOR, ([0.0], [1.0, 2.0]))
    with pytest.raises(ValueError, match=r"has no first-order states: pass \(t, q, v\)"):
        ga.linearize(MOTOR, (0.0, [0.5]))


def test_inverse_dynamics_asks_for_the_states():
    """Torque and voltage of a motor with q = sin t and a current of 1 + t."""
    t = np.linspace(0.0, 1.0, 5)
    with pytest.raises(ValueError, match="q does not say what the first-order states do"):
        ga.inverse_dynamics(MOTOR, t, lambda t: jnp.array([jnp.sin(t)]))
    q, v = np.sin(t)[:, None], np.stack([np.cos(t), 1 + t], axis=1)
    found = ga.inverse_dynamics(MOTOR, t, q, v=v, a=np.stack([-np.sin(t), np.ones(5)], axis=1))
    torque = 3 * np.sin(t) + 0.1 * np.cos(t) - 2 * (1 + t)
    voltage = 1 - (1 - (1 + t) - 0.5 * np.cos(t)) / 0.2
    np.testing.assert_allclose(found.u, np.stack([torque, voltage], axis=1), atol=1e-12)
