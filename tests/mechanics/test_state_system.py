"""First-order states beside q and v."""

import copy
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import genalpha as ga

START = ([1.0, 0.0], [0.0, 0.0])
Z0 = [0.5, 0.2]


def turning(t, q, v, z):
    return jnp.array([0.0, -9.81]) + z[0] * jnp.array([-q[1], q[0]]) - 0.1 * v


def motor(t, q, v, z, tau):
    """A current with the back electromotive force of the pendulum, and a filtered height."""
    return jnp.array([(jnp.sin(3 * t) - z[0] - 0.5 * (q[0] * v[1] - q[1] * v[0])) / tau, q[1] - z[1]])


# A pendulum in Cartesian coordinates with two states.
PENDULUM = ga.StateSystem(
    jnp.eye(2),
    lambda t, q, v, z, tau: turning(t, q, v, z),
    motor,
    2,
    holonomic=lambda t, q, tau: jnp.array([q @ q - 1.0]),
)


def exact(t_end=1.0, t_eval=None, tau=0.2):
    """(x, y, z_1, z_2) at the end, or at some times, from the equation for the angle."""

    def rates(t, y):
        angle, speed, current, height = y
        pull = -9.81 * np.cos(angle) + current - 0.1 * speed
        return [speed, pull, (np.sin(3 * t) - current - 0.5 * speed) / tau, np.sin(angle) - height]

    start = [0.0, 0.0, *Z0]
    found = solve_ivp(rates, (0, t_end), start, "DOP853", rtol=1e-12, atol=1e-13, t_eval=t_eval).y
    rows = np.stack([np.cos(found[0]), np.sin(found[0]), found[2], found[3]], axis=1)
    return rows[-1] if t_eval is None else rows


def solved(**options):
    return ga.solve(PENDULUM, (0.0, 1.0), *START, z0=Z0, args=(0.2,), **options)


def _order(system, start, wanted, **options):
    steps = (0.02, 0.01, 0.005)
    errors = [
        np.abs(ga.solve(system, (0.0, 1.0), *start, h=h, **options).z[-1] - wanted).max() for h in steps
    ]
    return np.log2(errors[-2] / errors[-1])


NAMES = [name for name in ga.methods.names() if name != "generalized-alpha"]


@pytest.mark.parametrize(
    "method",
    [name if name == "soi2" else pytest.param(name, marks=pytest.mark.slow) for name in NAMES],
)
def test_states_are_of_second_order(method):
    found = _order(PENDULUM, START, exact()[2:], method=method, z0=Z0, args=(0.2,))
    assert 1.9 < found < 2.1


# A mass on a spring, pushed by a filtered signal.
FILTER = ga.StateSystem(
    jnp.eye(1),
    lambda t, q, v, z, tau: z - 4.0 * q,
    lambda t, q, v, z, tau: (jnp.sin(2.0 * t) - z) / tau,
    1,
)


def filtered(t, z0, tau, w=2.0):
    """z of a filter with time constant tau and the input sin(wt)."""
    scale = 1 / (1 + (w * tau) ** 2)
    return scale * (np.sin(w * t) - w * tau * np.cos(w * t)) + (z0 + scale * w * tau) * np.exp(-t / tau)


@pytest.mark.parametrize("method", ["generalized-alpha", pytest.param("soi2", marks=pytest.mark.slow)])
def test_a_filter_without_constraints(method):
    found = _order(FILTER, ([1.0], [0.0]), filtered(1.0, 0.3, 0.2), method=method, z0=[0.3], args=(0.2,))
    assert 1.9 < found < 2.1


def test_a_stiff_filter_is_stable_and_forgets_a_wrong_start():
    sol = ga.solve(
        FILTER, (0.0, 1.0), [1.0], [0.0], z0=[1.0], args=(1e-8,), h=0.01, method="generalized-alpha"
    )
    off = np.abs(sol.z[:, 0] - np.sin(2 * sol.t))
    assert off.max() <= 1.0
    assert off[1:20] == pytest.approx(0.8 ** np.arange(1, 20), rel=1e-3)  # rho_inf of every step


def test_error_control_weighs_states_as_velocities():
    for rtol in (1e-4, 1e-6):
        sol = solved(rtol=rtol)
        assert np.abs(sol.z[-1] - exact()[2:]).max() < 10 * rtol
        states = ~sol.space.moved(4)
        assert (np.abs(sol.errors.v[1:, states]) > 0).any(axis=0).all()


@pytest.mark.slow
def test_the_unit_of_a_state_does_not_matter_to_error_control():
    def scaled(unit):
        system = ga.StateSystem(
            jnp.eye(1), lambda t, q, v, z, u: z / u - q, lambda t, q, v, z, u: (u * jnp.cos(t) - z) / 0.1, 1
        )
        return ga.solve(system, (0.0, 2.0), [1.0], [0.0], z0=[0.5 * unit], args=(unit,), rtol=1e-5)

    small, large = scaled(1.0), scaled(1e7)
    assert large.q[-1] == pytest.approx(small.q[-1], abs=1e-5)
    assert abs(large.stats.steps - small.stats.steps) < 0.05 * small.stats.steps


@pytest.mark.slow
def test_rows_between_the_steps():
    times = np.linspace(0.0, 1.0, 37)
    wanted = exact(t_eval=times)
    errors = [np.abs(solved(h=h, t_eval=times).z - wanted[:, 2:]).max() for h in (0.02, 0.01)]
    assert 3.0 < errors[0] / errors[1] < 5.0
    assert np.abs(solved(accuracy=1e-7, t_eval=times).z - wanted[:, 2:]).max() < 5e-7


def test_restart_event_file_and_batch(tmp_path):
    whole, first = solved(h=0.01), ga.solve(PENDULUM, (0.0, 0.5), *START, z0=Z0, args=(0.2,), h=0.01)
    rest = ga.solve(PENDULUM, (0.5, 1.0), state=first.state, args=(0.2,), h=0.01)
    assert np.array_equal(rest.z[-1], whole.z[-1])
    again = ga.solve(PENDULUM, (0.5, 1.0), first.q[-1], first.v[-1], args=(0.2,), h=0.01)  # v holds z
    assert again.z[-1] == pytest.approx(whole.z[-1], abs=1e-3)
    event = ga.Event(lambda t, q, v, tau: PENDULUM.parts(v)[1][1] + 0.1, terminal=True)
    stopped = solved(h=0.01, events=event)
    assert stopped.z[-1, 1] == pytest.approx(-0.1, abs=1e-12)
    whole.save(tmp_path / "sol.npz")
    assert np.array_equal(ga.load(tmp_path / "sol.npz").z, whole.z)
    starts = np.array([Z0, [0.0, 0.0]])
    batch = ga.solve_batch(PENDULUM, (0.0, 1.0), *START, z0=starts, args=(0.2,), h=0.01, save="all")
    assert batch.z.shape == (2, 101, 2)
    assert batch.z[0] == pytest.approx(whole.z, abs=1e-12)
    assert copy.copy(PENDULUM).n_states == 2


@pytest.mark.slow
def test_derivatives_with_respect_to_states_and_args():
    def last(z0, tau):
        return ga.solve(PENDULUM, (0.0, 0.5), *START, z0=z0, args=(tau,), h=0.01).q[-1, 0]

    by_z, by_tau = jax.grad(last, (0, 1))(jnp.array(Z0), 0.2)
    d = 1e-5
    move = lambda dz, dt: (last(np.array(Z0) + dz, 0.2 + dt) - last(np.array(Z0) - dz, 0.2 - dt)) / (2 * d)
    assert by_z[0] == pytest.approx(float(move(np.array([d, 0.0]), 0.0)), rel=1e-6)
    assert by_tau == pytest.approx(float(move(np.zeros(2), d)), rel=1e-6)


@pytest.mark.slow
def test_a_motor_with_pid_against_scipy():
    """Armature current and the integral of the error are states; accuracy 1e-8."""
    J, b, k, R, L, kp, ki, kd = 0.01, 0.05, 0.3, 0.6, 0.02, 8.0, 12.0, 0.4

    def voltage(q, v, z):
        return kp * (1.0 - q) + ki * z[1] - kd * v

    system = ga.StateSystem(
        jnp.array([[J]]),
        lambda t, q, v, z: k * z[:1] - b * v,
        lambda t, q, v, z: jnp.array([(voltage(q[0], v[0], z) - R * z[0] - k * v[0]) / L, 1.0 - q[0]]),
        2,
    )

    def rates(t, y):
        q, v, *z = y
        return [v, (k * z[0] - b * v) / J, (voltage(q, v, z) - R * z[0] - k * v) / L, 1.0 - q]

    wanted = solve_ivp(rates, (0, 0.5), [0, 0, 0, 0], "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    sol = ga.solve(system, (0.0, 0.5), [0.0], [0.0], z0=[0.0, 0.0], accuracy=1e-9, method="generalized-alpha")
    assert np.append(sol.q[-1], sol.v[-1]) == pytest.approx(wanted, abs=1e-8 * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 400])  # dense and sparse matrices
def test_states_as_nodes_of_an_assembly(count):
    """A chain of masses and springs, each with a damper behind a filter."""
    bodies, filters = np.arange(count), np.arange(count, 2 * count)
    parts = [
        ga.Part(mass=jnp.eye(1), force=lambda t, q, v: -q, nodes=bodies),
        ga.Part(mass=jnp.eye(1), nodes=filters),
        ga.Part(
            force=lambda t, q, v: (-0.5 * v[1], (v[0] - v[1]) / 0.1), nodes=np.stack([bodies, filters], 1)
        ),
        ga.Part(
            force=lambda t, q, v: (q[1] - q[0], q[0] - q[1]), nodes=np.stack([bodies[:-1], bodies[1:]], 1)
        ),
    ]
    chain = ga.Assembly(parts, space=[ga.Euclidean(1)] * count + [ga.States(1)] * count)

    def rates(t, y):
        q, v, z = y.reshape(3, count)
        pull, apart = -q - 0.5 * z, np.diff(q)
        pull[:-1] += apart
        pull[1:] -= apart
        return np.concatenate([v, pull, (v - z) / 0.1])

    q0, v0 = np.cos(np.arange(count)), np.zeros(2 * count)
    wanted = solve_ivp(rates, (0, 1), np.append(q0, v0), "DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    errors = [
        np.abs(ga.solve(chain, (0.0, 1.0), q0, v0, **options).z[-1] - wanted[2 * count :]).max()
        for options in ({"h": 0.02}, {"h": 0.01}, {"rtol": 1e-5})
    ]
    assert 3.7 < errors[0] / errors[1] < 4.3
    assert errors[2] < 3e-5


BAD = {
    "z0 must be given: the system has 2 states": {},
    "z0 must have shape (2,), got shape (1,)": {"z0": [1.0]},
    "z0 holds NaN": {"z0": [1.0, np.nan]},
    "v0 must have shape (2,), got shape (3,)": {"z0": Z0, "v0": [0.0, 0.0, 0.0]},
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_start_is_named(message):
    options = {"v0": START[1], "args": (0.2,), "h": 0.1} | BAD[message]
    with pytest.raises(ValueError, match=re.escape(message)):
        ga.solve(PENDULUM, (0.0, 1.0), START[0], **options)


def test_velocities_that_move_bodies_and_states():
    """Equal neighbours are counted each, also if they are products themselves."""
    inner = ga.Product(ga.Euclidean(1), ga.States(1))
    space = ga.Product(ga.R3xSO3(), ga.R3xSO3(), ga.States(2), inner, inner)
    assert space.moved(space.dim).tolist() == [True] * 12 + [False] * 2 + [True, False] * 2


def test_bad_systems_are_named():
    zero = lambda t, q, v, z: jnp.zeros(1)
    with pytest.raises(ValueError, match="number of states must be a positive integer"):
        ga.StateSystem(jnp.eye(1), zero, zero, 0)
    with pytest.raises(ValueError, match=r"pass space=ga.Euclidean\(n\)"):
        ga.StateSystem(lambda t, q: jnp.eye(1), zero, zero, 1)
    with pytest.raises(TypeError, match="states must be a function"):
        ga.StateSystem(jnp.eye(1), zero, None, 1)
    plain = ga.System(jnp.eye(1), lambda t, q, v: -q)
    with pytest.raises(ValueError, match="the system has no states"):
        ga.solve(plain, (0.0, 1.0), [1.0], [0.0], z0=[0.0], h=0.1)
    wide = ga.StateSystem(jnp.eye(1), zero, lambda t, q, v, z: jnp.zeros(3), 2)
    with pytest.raises(
        ValueError, match=r"states\(t, q, v, z, \*args\) must return shape \(2,\), got \(3,\)"
    ):
        ga.solve(wide, (0.0, 1.0), [1.0], [0.0], z0=[0.0, 0.0], h=0.1)
