"""Discrete controllers with a sample time and a state of their own."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from examples import servo
from scipy.linalg import expm, solve_discrete_are

import genalpha as ga

MASS, DAMPING, STIFFNESS, T = 1.3, 0.2, 2.0, 0.05
CART = ga.System(jnp.array([[MASS]]), lambda t, q, v, c: c.u - DAMPING * v - STIFFNESS * q)


def discretised():
    """x_{k+1} = A x_k + B u_k of the cart with a held input, exactly."""
    a = np.array([[0.0, 1.0], [-STIFFNESS / MASS, -DAMPING / MASS]])
    whole = np.zeros((3, 3))
    whole[:2, :2], whole[1, 2] = a, 1 / MASS
    found = expm(whole * T)
    return found[:2, :2], found[:2, 2]


A, B = discretised()
P = solve_discrete_are(A, B[:, None], np.diag([10.0, 1.0]), np.array([[0.1]]))
GAIN = (B @ P @ A) / (0.1 + B @ P @ B)


def update(t, q, v, s):
    """LQR with an integral of the position, which is the state of the controller."""
    return s + T * q, -GAIN @ np.append(q, v) - 0.5 * s


LQR = ga.Controller(T, update, u0=[0.0], s0=[0.0])


def exact(count):
    x, s, rows = np.array([1.0, 0.0]), 0.0, []
    for _ in range(count):
        rows.append((-GAIN @ x - 0.5 * s, s + T * x[0]))
        x, s = A @ x + B * rows[-1][0], rows[-1][1]
    return x, np.array(rows)


def solved(t_end=1.0, **options):
    return ga.solve(CART, (0.0, t_end), [1.0], [0.0], controller=LQR, **options)


def test_lqr_against_an_exact_discretisation():
    wanted, signals = exact(20)
    sols = [solved(h=T / k) for k in (2, 4)]
    errors = [np.abs(np.append(s.q[-1], s.v[-1]) - wanted).max() for s in sols]
    assert 3.8 < errors[0] / errors[1] < 4.2
    record = sols[1].control
    assert record.t == pytest.approx(T * np.arange(20))
    assert record.u[:, 0] == pytest.approx(signals[:, 0], abs=2e-3)
    assert record.s[:, 0] == pytest.approx(signals[:, 1], abs=2e-3)
    fine = solved(rtol=1e-7)
    assert np.append(fine.q[-1], fine.v[-1]) == pytest.approx(wanted, abs=1e-6)
    assert np.isin(record.t.round(12), fine.t.round(12)).all()  # steps end at all samples


def test_a_run_continues_at_a_sample_and_between_samples():
    whole = solved(h=T / 4)
    for middle in (0.5, 0.5 + T / 2):
        first = solved(middle, h=T / 4)
        rest = ga.solve(CART, (middle, 1.0), state=first.state, controller=LQR, h=T / 4)
        assert np.array_equal(rest.q[-1], whole.q[-1])
        assert np.append(first.control.t, rest.control.t) == pytest.approx(whole.control.t)


@pytest.mark.slow
def test_a_checkpoint_continues_with_the_state_of_the_controller(tmp_path):
    path, left, whole = tmp_path / "run", [37], solved(h=T / 4)

    def interrupt(state):
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        solved(h=T / 4, checkpoint=path, checkpoint_every=0, callback=interrupt)
    again = solved(h=T / 4, checkpoint=path, checkpoint_every=0)
    assert np.array_equal(again.q, whole.q)
    assert np.array_equal(again.control.s, whole.control.s)


def test_rows_at_given_times_and_events_between_samples():
    times = T * np.arange(21)
    sol = solved(rtol=1e-6, t_eval=times)
    assert sol.t == pytest.approx(times)
    x, states = np.array([1.0, 0.0]), []
    for u in exact(20)[1][:, 0]:
        states.append(x)
        x = A @ x + B * u
    assert sol.q[:, 0] == pytest.approx(np.array([*states, x])[:, 0], abs=1e-5)
    slower = ga.Event(lambda t, q, v, c: q[0] - 0.5, reset=lambda t, q, v, c: 0.5 * v)
    hit = solved(h=T / 4, events=slower)
    assert hit.q_events[0][0, 0] == pytest.approx(0.5, abs=1e-12)
    assert len(hit.control.t) == 20


def test_samples_with_an_offset_hold_the_first_output_before():
    seen = []
    late = ga.Controller(0.2, lambda t, q, v, s: (seen.append(t) or s, 0.0), u0=1.0, offset=0.1)
    push = ga.System(jnp.eye(1), lambda t, q, v, c: jnp.array([c.u]))
    sol = ga.solve(push, (0.0, 0.5), [0.0], [0.0], h=0.05, controller=late)
    assert seen == pytest.approx([0.1, 0.3])
    assert sol.v[-1, 0] == pytest.approx(0.1)
    assert sol.control.s == ()


def test_events_and_stops_at_the_time_of_a_sample():
    push = ga.System(jnp.eye(1), lambda t, q, v, c: jnp.array([c.u]))
    on = ga.Controller(0.25, lambda t, q, v, s: (s, 1.0), u0=1.0)
    turn = ga.Event(lambda t, q, v, c: t - 0.5, reset=lambda t, q, v, c: -v)
    for steps in ({"h": 0.125}, {"rtol": 1e-5}):
        sol = ga.solve(push, (0.0, 1.0), [0.0], [0.0], controller=on, events=turn, **steps)
        assert sol.t_events[0] == pytest.approx([0.5])
        assert sol.v[-1, 0] == pytest.approx(0.0, abs=1e-9)
        assert sol.control.t == pytest.approx([0.0, 0.25, 0.5, 0.75])
    stop = ga.solve(push, (0.0, 1.0), [0.0], [0.0], controller=on, callback=lambda s: s.t >= 0.5, h=0.125)
    assert (stop.t[-1], stop.message) == (0.5, "the callback ended the run")
    rest = ga.solve(push, (0.5, 1.0), state=stop.state, controller=on, h=0.125)
    assert rest.v[-1, 0] == pytest.approx(1.0)


BAD = {
    "no step ends at the sample t = 0.05": {"h": 0.03},
    "u of the form (2,)": {"update": lambda t, q, v, s: (s, [1.0, 2.0])},
    "must return (s, u), got 1.0": {"update": lambda t, q, v, s: 1.0},
    "u that update of the controller returned at t = 0 holds NaN": {
        "update": lambda t, q, v, s: (s, [np.nan])
    },
    "not possible with accuracy": {"accuracy": 1e-6, "h": None},
    "controller must be a ga.Controller": {"controller": 3},
    "redundant='min_norm' is not possible with controller": {"redundant": "min_norm"},
}


@pytest.mark.parametrize("message", BAD)
def test_what_is_not_possible_is_named(message):
    options = {"h": T, "controller": LQR} | BAD[message]
    changed = options.pop("update", None)
    if changed is not None:
        options["controller"] = ga.Controller(T, changed, u0=[0.0], s0=[0.0])
    with pytest.raises((ValueError, TypeError), match=re.escape(message)):
        ga.solve(CART, (0.0, 1.0), [1.0], [0.0], **options)


def test_bad_controllers_are_named():
    with pytest.raises(ValueError, match="sample of a controller must be a positive number"):
        ga.Controller(0.0, update, u0=0.0)
    with pytest.raises(TypeError, match="update of a controller must be a function"):
        ga.Controller(0.1, None, u0=0.0)
    with pytest.raises(ValueError, match="u0 of a controller holds NaN"):
        ga.Controller(0.1, update, u0=np.nan)


@pytest.mark.slow
def test_the_servo_keeps_its_energy_and_reaches_its_target(tmp_path, capsys):
    sol = servo.main(str(tmp_path))
    assert "500 samples" in capsys.readouterr().out
    supplied, used = servo.energies(sol)
    assert supplied == pytest.approx(used, abs=1e-3)
    assert np.degrees(sol.q[-1, 0]) == pytest.approx(150.0, abs=1e-2)
    # At rest the motor holds the load, less what friction holds at the last speed.
    crank, slider = sol.q[-1]
    lever = servo.CRANK * np.sin(crank) * slider / (slider - servo.CRANK * np.cos(crank))
    torque = servo.LOAD * lever + float(servo.FRICTION(sol.v[-1, 0]))
    assert servo.GEAR * servo.TORQUE * sol.z[-1, 0] == pytest.approx(torque, abs=1e-2)
    assert (tmp_path / "servo.png").stat().st_size > 10_000
