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


# --- mechanisms, against differences of plain runs -----------------------------------------------------------


def agrees(function, p, step, levels=4, tol=3e-8):
    """Both derivatives agree with differences, relative to the largest derivative of each number."""
    p = jnp.asarray(p)
    forward, back = jax.jacfwd(function)(p), jax.jacrev(function)(p)
    shifted = lambda d: lambda e: function(np.asarray(p) + e * d)
    each = [richardson(shifted(d), step, levels) for d in np.eye(len(p))]
    expected = np.stack(each, axis=-1)
    size = np.abs(expected).max(axis=1, keepdims=True)
    assert size.min() > 1e-4
    np.testing.assert_allclose(forward / size, expected / size, atol=tol)
    np.testing.assert_allclose(back / size, forward / size, atol=1e-10)


def pull(t, q, v, g, e):
    return jnp.stack([0.0 * g, -g]) - 0.1 * v


PENDULUM = ga.System(np.eye(2), pull, lambda t, q, g, e: jnp.array([q @ q - 1.0]))
WALL = ga.Event(lambda t, q, v, g, e: q[0] + 0.01 * g, direction=-1, reset=lambda t, q, v, g, e: -e * v)
S = np.array([9.81, 0.8, 0.1, 0.2])  # gravity, restitution, angle and angular velocity at the start


def swing(p, **options):
    c, s = jnp.cos(p[2]), jnp.sin(p[2])
    start = jnp.stack([c, s]), p[3] * jnp.stack([-s, c])
    return ga.solve(PENDULUM, (0.0, 2.0), *start, args=(p[0], p[1]), events=WALL, newton=EXACT, **options)


def parts(sol):
    lists = [sol.t_events[0][:2], sol.q_events[0][:2].ravel(), sol.v_events[0][1], sol.lam_events[0][0]]
    return jnp.concatenate([*lists, sol.q[-1], sol.v[-1], sol.a[-1], sol.lam[-1]])


OUTPUTS = {
    "soi2": lambda p: parts(swing(p, h=0.01)),
    "index3": lambda p: parts(swing(p, h=0.01, method="index3")),
    "stabilized": lambda p: parts(swing(p, h=0.01, method="stabilized")),
    "projected": lambda p: parts(swing(p, h=0.01, method="projected")),
    "t_eval": lambda p: (sol := swing(p, h=0.01, t_eval=[0.3, 0.63, 1.99])).q[:, 1] + sol.lam[:, 0],
    "rows": lambda p: (sol := swing(p, h=0.01)).t[60:200] + sol.q[60:200, 0] + sol.a[60:200, 1],
    "between": lambda p: jnp.concatenate([(at := swing(p, h=0.01)(1.234)).q, at.v, at.a, at.lam]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OUTPUTS)
def test_a_pendulum_strikes_a_wall(name):
    """The derivatives are those of the discrete solution: the ends of steps move with the impact."""
    agrees(OUTPUTS[name], S, 1e-3)


@pytest.mark.slow
def test_a_list_of_steps():
    def run(p):
        sizes = jnp.concatenate([p[4:], (0.4 - p[4] - p[5])[None], np.full(160, 0.01)])
        return parts(swing(p[:4], h=sizes))

    agrees(run, [*S, 0.15, 0.13], 1e-4)


@pytest.mark.slow
def test_derivatives_converge_with_second_order():
    """The limit is that of the motion itself, whose impact transforms derivatives by the saltation matrix."""
    number = lambda p, h: parts(swing(p, h=h))
    best, *each = (np.asarray(jax.jacfwd(number)(jnp.array(S), h)) for h in (5e-4, 0.02, 0.01, 0.005))
    errors = [np.abs(x - best).max() for x in each]
    assert errors[-1] < 2e-3 * np.abs(best).max()
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert (abs(orders - 2) < 0.15).all()
    controlled = jax.jacfwd(lambda p: parts(swing(p, rtol=1e-6, save="final")))(jnp.array(S))
    np.testing.assert_allclose(controlled, best, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_the_height_at_which_a_ball_leaves_a_sphere():
    """It is 2/3 + v²/(3g), for a ball that starts on the top with a velocity v."""
    system = ga.System(
        np.eye(2), lambda t, q, v, g: jnp.stack([0.0 * g, -g]), lambda t, q, g: jnp.array([q @ q - 1.0])
    )
    leaves = ga.Event(lambda t, q, v, lam, psi, g: lam[0], terminal=True)

    def end(p, **options):
        start = jnp.array([0.0, 1.0]), jnp.stack([p[0], 0.0 * p[0]])
        return ga.solve(system, (0.0, 9.0), *start, args=(p[1],), events=leaves, **options)

    v, g = 0.5, 9.81
    for derivative in (jax.grad, jax.jacfwd):
        found = derivative(lambda p: end(p, rtol=1e-7, save="final").q[-1, 1])(jnp.array([v, g]))
        np.testing.assert_allclose(found, [2 * v / (3 * g), -(v**2) / (3 * g**2)], rtol=2e-4)
    numbers = lambda sol: jnp.concatenate([sol.q[-1], sol.v[-1], sol.t_events[0]])
    agrees(lambda p: numbers(end(p, h=0.005, newton=EXACT)), [v, g], 1e-4, 2, 1e-7)


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

    def run(p):
        reset = lambda t, q, v, *args: blow(t, q, v, p[0], args)
        stop = ga.Event(lambda t, q, v, *args: q[slider] - p[1], direction=-1, reset=reset)
        options = {"args": problem.args, "events": stop, "newton": EXACT, "h": 0.002}
        sol = ga.solve(problem.system, (0.0, 0.4), problem.q0, problem.v0, **options)
        return jnp.concatenate([sol.q[-1, 3:6], sol.v[-1, :7], sol.lam[-1, :2], sol.t_events[0][:1]])[:-1]

    agrees(run, [0.5, 0.2], 1e-5, 2)


@pytest.mark.slow
def test_resets_of_positions_and_arguments():
    """Functions that read traced values, args that change at every event, and a traced end of the run."""
    spring = ga.System(np.eye(1), lambda t, q, v, k: -k * q)

    def run(p):
        change = lambda t, q, v, k: ga.Reset(args=(4 * k * p[1],), q=-0.5 * p[1] * q, stop=k > 10 * p[0])
        event = ga.Event(lambda t, q, v, k: q[0] - 0.1 * p[1], direction=-1, reset=change)
        options = {"args": (p[0],), "events": event, "newton": EXACT, "h": 0.01}
        sol = ga.solve(spring, (0.0, 8.0), [1.0], [0.0], **options)
        middle = sol.a[200] / sol.q[200]  # −k of the second part
        return jnp.concatenate([sol.t_events[0][:2], sol.v[-1], sol.a[-1], middle, jnp.stack([sol.t_end])])

    agrees(run, [1.0, 1.0], 1e-5, 2)
    assert float(jax.jit(run)(np.ones(2))[4]) == pytest.approx(-4.0, rel=1e-12)


@pytest.mark.slow
def test_projections_in_resets():
    def run(p):
        target = lambda v, e: jnp.stack([-e * v[0], v[1] + 0.3 * e])
        back = lambda t, q, v, g, e: ga.project_velocity(PENDULUM, t, q, target(v, e), args=(g, e))
        event = ga.Event(lambda t, q, v, g, e: q[0], direction=-1, reset=back)
        options = {"args": (p[0], p[1]), "events": event, "newton": EXACT, "h": 0.01}
        sol = ga.solve(PENDULUM, (0.0, 1.2), [1.0, 0.0], [0.0, 0.0], **options)
        return jnp.concatenate([sol.q[-1], sol.v[-1], sol.t_events[0][:1]])[:-1]

    agrees(run, [9.81, 0.8], 1e-4)


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


# --- what is refused -----------------------------------------------------------------------------------------

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
