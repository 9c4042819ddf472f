"""Derivatives of event times, and of motions after resets and terminal events."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from differences import EXACT, richardson
from genalpha import multibody as mb
from genalpha.numerics import codes

# --- a ball that falls on the floor, in closed form ---------------------------------------------------------


def height(t, q, v, g, e):
    return q[0]


@functools.cache
def ball():
    return ga.System(np.eye(1), lambda t, q, v, g, e: -g * jnp.ones(1))


FLOOR = ga.Event(height, direction=-1, reset=lambda t, q, v, g, e: -e * v)
P = np.array([9.81, 0.8, 1.0, -0.3])  # gravity, restitution, height and velocity at the start


def fall(p, event=FLOOR, **options):
    start = jnp.stack([p[2]]), jnp.stack([p[3]])
    return ga.solve(ball(), (0.0, 1.4), *start, args=(p[0], p[1]), events=event, **options)


def observed(sol):
    return jnp.concatenate([sol.t_events[0][:2], sol.v_events[0][:2, 0], sol.q[-1], sol.v[-1], sol.a[-1]])


def exact(p):
    """Two impacts before 1.4 s; the method has no error in a parabola."""
    g, e, z, v = p
    speed = jnp.sqrt(v**2 + 2 * g * z)
    first, between = (v + speed) / g, 2 * e * speed / g
    left = 1.4 - first - between
    end = e**2 * speed * left - g * left**2 / 2, e**2 * speed - g * left
    return jnp.stack([first, first + between, -speed, -e * speed, *end, -g])


STEPS = {"h": {"h": 0.02}, "rtol": {"rtol": 1e-4, "save": "final"}}


@pytest.mark.parametrize("steps", ["h", pytest.param("rtol", marks=pytest.mark.slow)])
def test_a_bouncing_ball(steps):
    function = lambda p: observed(fall(p, **STEPS[steps]))
    expected = jax.jacfwd(exact)(P)
    np.testing.assert_allclose(jax.jit(function)(P), exact(P), rtol=1e-10)
    forward, back = (derivative(function)(jnp.array(P)) for derivative in (jax.jacfwd, jax.jacrev))
    np.testing.assert_allclose(forward, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(back, forward, rtol=1e-10, atol=1e-11)


def test_padding_and_rows():
    """Lists of events end with NaN. Rows after the end repeat the last one. The rest is as in a plain run."""
    sol, plain = jax.jit(functools.partial(fall, h=0.02, max_events=5))(P), fall(P, h=0.02)
    assert sol.backend == "native"
    assert np.isnan(sol.t_events[0]).tolist() == [False, False, True, True, True]
    count = len(plain.t)
    for name in ("t", "t_alpha", "q", "v", "a", "a_alpha"):
        found, expected = getattr(sol, name), getattr(plain, name)
        np.testing.assert_allclose(found[:count], expected, rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(found[count:], np.broadcast_to(found[-1:], found[count:].shape))
    assert int(sol.stats.steps) == plain.stats.steps


def test_too_many_events_are_a_failure():
    run = lambda p: fall(p, h=0.02, max_events=1)
    sol = jax.jit(run)(P)
    assert int(sol.status) == codes.TOO_MANY_EVENTS
    assert np.isnan(sol.q[-1]).all()
    assert np.isnan(jax.grad(lambda p: run(p).t_events[0][0])(jnp.array(P))).all()


LANDS = ga.Event(height, terminal=True, direction=-1)


@pytest.mark.slow
def test_a_terminal_event_ends_all_rows():
    """The time of the end is a derivative too, and times after it are the end."""
    times = np.array([0.1, 0.3, 0.9, 1.4])
    run = functools.partial(fall, event=LANDS, h=0.02)
    sampled = jax.jit(functools.partial(run, t_eval=times))(P)
    assert int(sampled.status) == codes.EVENT
    end = float(exact(P)[0])
    np.testing.assert_allclose(sampled.t, [0.1, 0.3, end, end], rtol=1e-12)
    slope = jax.jacfwd(exact)(P)[0]
    for number in (
        lambda p: run(p).t_end,
        lambda p: run(p).t[-1],
        lambda p: run(p, t_eval=times).t[-1],
        lambda p: run(p, save="final").t_events[0][0],
    ):
        np.testing.assert_allclose(jax.grad(number)(jnp.array(P)), slope, rtol=1e-9)
    many = jax.jit(jax.vmap(jax.grad(lambda p: run(p).t_end)))(np.stack([P, 1.1 * P]))
    np.testing.assert_allclose(many[1], jax.jacfwd(exact)(1.1 * P)[0], rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("steps", ["equal", "listed", "rtol"])
def test_rows_move_with_the_impact(steps):
    """The method has no error here, so derivatives are also those of the discrete solution, in all rows."""
    sizes = lambda p: jnp.concatenate([p[4:], (0.4 - p[4] - p[5])[None], np.full(50, 0.02)])
    options = {
        "equal": lambda p: {"h": 0.02},
        "listed": lambda p: {"h": sizes(p)},
        "rtol": lambda p: {"rtol": 1e-4, "t_eval": [0.2, 0.41, 0.6, 1.4]},
    }[steps]

    def rows(p):
        sol = fall(p[:4], **options(p))
        columns = [sol.t, sol.q[:, 0], sol.v[:, 0]]
        return jnp.concatenate([x[:55] for x in (columns[1:] if steps == "rtol" else columns)])

    p = jnp.array([*P, 0.15, 0.13])
    expected = np.stack([richardson(lambda e, d=d: rows(p + e * d), 1e-4, 2) for d in np.eye(6)], axis=-1)
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(derivative(rows)(p), expected, atol=2e-7)


# --- mechanisms, against differences of accurate runs ------------------------------------------------------


def differences(function, p, accuracy=1e-10):
    """Derivatives by differences of accurate runs."""
    precise = lambda p: np.asarray(function(p, accuracy=accuracy))
    each = [richardson(lambda e, d=d: precise(np.asarray(p) + e * d), 2e-3, 3) for d in np.eye(len(p))]
    return np.stack(each, axis=-1)


def converges(function, p, h, tol, expected=None):
    """Derivatives with steps h, h/2 and h/4 converge with second order to those of the motion.

    Errors are relative to the largest derivative of each number. Forward and reverse mode agree.
    """
    expected, p = differences(function, p) if expected is None else expected, jnp.asarray(p)
    size = np.abs(expected).max(axis=1, keepdims=True)
    assert size.min() > 1e-4
    found = [jax.jacfwd(functools.partial(function, h=h / k, newton=EXACT))(p) for k in (1, 2, 4)]
    back = jax.jacrev(functools.partial(function, h=h, newton=EXACT))(p)
    np.testing.assert_allclose(back / size, found[0] / size, atol=1e-10)
    errors = [float(np.abs((x - expected) / size).max()) for x in found]
    assert errors[-1] < tol
    assert np.log(errors[0] / errors[-1]) / np.log(4) > 1.6, errors


def pull(t, q, v, g, e):
    return jnp.stack([0.0 * g, -g]) - 0.1 * v


PENDULUM = ga.System(np.eye(2), pull, lambda t, q, g, e: jnp.array([q @ q - 1.0]))
WALL = ga.Event(lambda t, q, v, g, e: q[0] + 0.01 * g, direction=-1, reset=lambda t, q, v, g, e: -e * v)
S = np.array([9.81, 0.8, 0.1, 0.2])  # gravity, restitution, angle and angular velocity at the start


def swing(p, **options):
    c, s = jnp.cos(p[2]), jnp.sin(p[2])
    start = jnp.stack([c, s]), p[3] * jnp.stack([-s, c])
    return ga.solve(PENDULUM, (0.0, 2.0), *start, args=(p[0], p[1]), events=WALL, **options)


def parts(sol):
    lists = [sol.t_events[0][:2], sol.v_events[0][1], sol.lam_events[0][0]]
    return jnp.concatenate([*lists, sol.q[-1], sol.v[-1], sol.a[-1], sol.lam[-1]])


@functools.cache
def of_the_motion():
    return differences(lambda p, **steps: parts(swing(p, **steps)), S)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["soi2", "index3", "stabilized", "projected"])
def test_a_pendulum_strikes_a_wall(method):
    converges(lambda p, **steps: parts(swing(p, method=method, **steps)), S, 0.01, 2e-3, of_the_motion())


@pytest.mark.slow
def test_between_steps_before_and_after_impacts():
    at_times = lambda p, **steps: (sol := swing(p, t_eval=[0.3, 0.7, 1.9], **steps)).v[:, 1] + sol.lam[:, 0]
    converges(at_times, S, 0.01, 2e-3)


@pytest.mark.slow
def test_error_control():
    found = [
        jax.jacfwd(lambda p, k=k: parts(swing(p, rtol=k, save="final")))(jnp.array(S)) for k in (1e-5, 1e-7)
    ]
    best = jax.jacfwd(lambda p: parts(swing(p, h=5e-4)))(jnp.array(S))
    errors = [float(np.abs(x - best).max() / np.abs(best).max()) for x in found]
    assert errors[1] < 0.2 * errors[0] < 1e-3
    back = jax.jacrev(lambda p: parts(swing(p, rtol=1e-5, save="final")))(jnp.array(S))
    np.testing.assert_allclose(back, found[0], rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_the_height_at_which_a_ball_leaves_a_sphere():
    """It is 2/3 + v²/(3g), for a ball that starts on the top with a velocity v."""
    system = ga.System(
        np.eye(2), lambda t, q, v, g: jnp.stack([0.0 * g, -g]), lambda t, q, g: jnp.array([q @ q - 1.0])
    )
    leaves = ga.Event(lambda t, q, v, lam, psi, g: lam[0], terminal=True)

    def end(p, **options):
        start = jnp.array([0.0, 1.0]), jnp.stack([p[0], 0.0 * p[0]])
        sol = ga.solve(system, (0.0, 9.0), *start, args=(p[1],), events=leaves, **options)
        return jnp.concatenate([sol.q[-1], sol.v[-1], sol.t_events[0]])

    v, g = 0.5, 9.81
    for derivative in (jax.jacrev, jax.jacfwd):
        found = derivative(lambda p: end(p, rtol=1e-7, save="final"))(jnp.array([v, g]))
        np.testing.assert_allclose(found[1], [2 * v / (3 * g), -(v**2) / (3 * g**2)], rtol=1e-4)
    converges(end, [v, g], 0.01, 2e-3)


@pytest.mark.slow
def test_a_slider_crank_with_a_stop():
    """The impact acts through all joints. Restitution and the place of the stop are read from outside."""
    problem, slider = ga.problems.get("slider-crank"), 6

    def blow(t, q, v, e, args):
        system, n = problem.system, len(v)
        G = system.G(t, q, args)
        matrix = jnp.block([[system.M(t, q, args), G.T], [G, jnp.zeros((len(G), len(G)))]])
        reply = jnp.linalg.solve(matrix, jnp.zeros(n + len(G)).at[slider].set(1.0))[:n]
        return v - (1 + e) * v[slider] / reply[slider] * reply

    def run(p, **steps):
        reset = lambda t, q, v, *args: blow(t, q, v, p[0], args)
        stop = ga.Event(lambda t, q, v, *args: q[slider] - p[1], direction=-1, reset=reset)
        options = {"args": problem.args, "events": stop, **steps}
        sol = ga.solve(problem.system, (0.0, 0.4), problem.q0, problem.v0, **options)
        return jnp.concatenate([sol.q[-1, 3:6], sol.v[-1, :7], sol.lam[-1, :2], sol.t_events[0][:1]])

    converges(run, [0.5, 0.2], 0.002, 2e-3, differences(run, [0.5, 0.2], accuracy=1e-9))


@pytest.mark.slow
def test_resets_of_positions_and_arguments():
    """Functions that read traced values, args that change at every event, and a traced end of the run."""
    spring = ga.System(np.eye(1), lambda t, q, v, k: -k * q)

    def run(p, **steps):
        change = lambda t, q, v, k: ga.Reset(args=(4 * k * p[1],), q=-0.5 * p[1] * q, stop=k > 10 * p[0])
        event = ga.Event(lambda t, q, v, k: q[0] - 0.1 * p[1], direction=-1, reset=change)
        sol = ga.solve(spring, (0.0, 8.0), [1.0], [0.0], args=(p[0],), events=event, **steps)
        return sol, jnp.concatenate([sol.t_events[0][:3], sol.v[-1], sol.a[-1], jnp.stack([sol.t_end])])

    def exact(p):
        """Harmonic motions from event to event, each up to the phase at which it falls through 0.1 p."""
        t, q, v, k, times = 0.0, 1.0, 0.0, p[0], []
        for _ in range(3):
            w = jnp.sqrt(k)
            size, phase = jnp.hypot(q, v / w), jnp.arctan2(-v / w, q)
            t = t + (jnp.arccos(0.1 * p[1] / size) - phase) % (2 * np.pi) / w
            times, last = [*times, t], (-w * jnp.sqrt(size**2 - (0.1 * p[1]) ** 2), -k * 0.1 * p[1])
            q, v, k = -0.05 * p[1] ** 2, last[0], 4 * k * p[1]
        return jnp.stack([*times, *last, t])

    p = jnp.ones(2)
    np.testing.assert_allclose(run(np.ones(2), h=1e-3)[1], exact(p), rtol=1e-4)
    converges(lambda p, **steps: run(p, **steps)[1], p, 0.02, 2e-3, jax.jacfwd(exact)(p))
    row = lambda p: (sol := run(p, h=0.01)[0]).a[200, 0] / sol.q[200, 0]  # −k of the second part
    assert float(jax.jit(row)(p)) == pytest.approx(-4.0, rel=1e-12)
    np.testing.assert_allclose(jax.grad(row)(p), [-4.0, -4.0], rtol=1e-10)


@pytest.mark.slow
def test_projections_in_resets():
    def run(p, **steps):
        target = lambda v, e: jnp.stack([-e * v[0], v[1] + 0.3 * e])
        back = lambda t, q, v, g, e: ga.project_velocity(PENDULUM, t, q, target(v, e), args=(g, e))
        event = ga.Event(lambda t, q, v, g, e: q[0], direction=-1, reset=back)
        options = {"args": (p[0], p[1]), "events": event, **steps}
        sol = ga.solve(PENDULUM, (0.0, 1.2), [1.0, 0.0], [0.0, 0.0], **options)
        return jnp.concatenate([sol.q[-1], sol.v[-1], sol.t_events[0][:1]])

    converges(run, [9.81, 0.8], 0.01, 2e-3)


@pytest.mark.slow
def test_stops_of_a_joint():
    """A wheel between stops at −1 and 1: it hits at 1/ω, then after 2/(ω e)."""
    model, e, rate = mb.Model(gravity=(0, 0, 0)), 0.6, 4.0
    disk = model.add(mb.PlanarBody("disk", 1.0, 0.5, angle=0.3, at=(0.2, 0.1), angular_velocity=rate))
    model.add(mb.Revolute("hinge", model.ground, disk, at=(0.2, 0.1)))
    stops = model.stops("hinge", -1.0, 1.0, restitution=e)

    def impacts(s):
        sol = ga.solve(model.system, (0.0, 1.3), model.q0, s * model.v0, h=0.013, events=stops)
        return jnp.stack([sol.t_events[1][0], sol.t_events[0][0], sol.v[-1, 2]])

    first, second = 1 / rate, 1 / rate + 2 / (rate * e)
    np.testing.assert_allclose(jax.jit(impacts)(1.0), [first, second, rate * e**2], rtol=1e-9)
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(derivative(impacts)(1.0), [-first, -second, rate * e**2], rtol=1e-8)


# --- what is refused -----------------------------------------------------------------------------------

REFUSED = {
    "with NumPy": (lambda t, q, v, g, e: -e * np.array(v), {}, "event 0.*jax.numpy"),
    "of another shape": (lambda t, q, v, g, e: jnp.zeros(2), {}, r"event 0 must return velocities of shape"),
    "with a loop": (
        lambda t, q, v, g, e: jax.lax.while_loop(lambda x: x[0] < 0, lambda x: -x, v),
        {},
        "event 0 cannot become machine code: a loop",
    ),
    "some rows": (FLOOR.reset, {"save": 3}, "rows other than"),
    "XLA": (FLOOR.reset, {"backend": "xla"}, "backend='xla'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_machine_code_cannot_take_is_refused(name):
    reset, options, text = REFUSED[name]
    event = ga.Event(height, direction=-1, reset=reset)
    with pytest.raises((TypeError, ValueError), match=text):
        jax.jit(lambda p: fall(p, event, h=0.1, **options).q)(P)


def test_second_derivatives_are_refused():
    with pytest.raises(NotImplementedError, match="second derivatives through events"):
        jax.hessian(lambda p: fall(p, h=0.02).t_events[0][0])(jnp.array(P))
