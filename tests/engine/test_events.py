"""Events: SciPy's semantics on plain motion, constraints at the event, resets without a transient."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import genalpha as ga
import systems
from genalpha.engine.events import POINTS, located
from genalpha.mechanics import programs
from genalpha.numerics import codes

G = 9.81
ball, pendulum, free = systems.ball(), systems.circle(), systems.free()
STEPS = [{"h": 0.01}, {"rtol": 1e-6, "atol": 1e-8}]
BY_XLA = pytest.param("xla", STEPS[1], marks=pytest.mark.slow)
WAYS = [*(("native", steps) for steps in STEPS), pytest.param("xla", STEPS[0], marks=pytest.mark.slow)]


def position(t, q, v):
    """One function for all, so that it is compiled once."""
    return q[0]


def swing(**options):
    steps = {} if "rtol" in options or "h" in options else {"h": 0.01}
    return ga.solve(pendulum, (0.0, 3.0), [1.0, 0.0], [0.0, 0.0], **steps, **options)


def angle(t_end):
    """The pendulum in its angle from the lowest point, by SciPy, with the passages of the lowest point."""
    low = lambda t, y: y[0]
    return solve_ivp(
        lambda t, y: [y[1], -G * np.sin(y[0])],
        (0.0, t_end),
        [np.pi / 2, 0.0],
        events=low,
        rtol=1e-12,
        atol=1e-13,
        method="DOP853",
    )


@pytest.mark.parametrize(("backend", "options"), [*WAYS, BY_XLA])
def test_times_of_events_against_scipy(backend, options):
    low = position
    sol = swing(events=low, backend=backend, **options)
    exact = angle(3.0).t_events[0]
    assert sol.success
    assert len(sol.t_events) == 1
    np.testing.assert_allclose(sol.t_events[0], exact, atol=1e-3)
    assert sol.q_events[0].shape == (len(exact), 2)
    assert sol.lam_events[0].shape == (len(exact), 1)
    # At the event the state is on the constraints, and the multiplier belongs to it: λ = (g + v²)/2 below.
    q, v = sol.q_events[0], sol.v_events[0]
    assert np.abs((q**2).sum(axis=1) - 1).max() < 1e-13
    assert np.abs((q * v).sum(axis=1)).max() < 1e-13
    np.testing.assert_allclose(sol.lam_events[0][:, 0], (G + (v**2).sum(axis=1)) / 2, rtol=1e-9)
    whole = swing(backend=backend, **options)
    np.testing.assert_array_equal(sol.q, whole.q)  # events without reset change nothing


def test_times_of_events_converge_with_second_order():
    exact = angle(3.0).t_events[0]
    errors = [np.abs(swing(h=h, events=position).t_events[0] - exact).max() for h in (0.02, 0.01, 0.005)]
    assert 1.8 < np.log2(errors[0] / errors[1]) < 2.2
    assert 1.8 < np.log2(errors[1] / errors[2]) < 2.2


@pytest.mark.parametrize("options", STEPS)
def test_the_zero_is_found_on_the_interpolant(options):
    low = position
    sol = swing(events=low, **options)
    for t in sol.t_events[0]:
        assert abs(sol(t).q[0]) < 1e-10 * abs(sol(t).v[0])


@pytest.mark.parametrize(("backend", "options"), [*WAYS, BY_XLA])
def test_a_terminal_event_ends_the_run_there(backend, options):
    def low(t, q, v):
        return q[0]

    low.terminal = True
    sol = swing(events=low, backend=backend, **options)
    assert sol.success
    assert sol.status == -1
    assert "terminal event" in sol.message
    assert sol.t[-1] == sol.t_events[0][0]
    np.testing.assert_array_equal(sol.q[-1], sol.q_events[0][0])
    assert abs(sol.q[-1, 0]) < 1e-6
    assert np.abs(sol.residuals.position).max() < 1e-12
    third = swing(events=ga.Event(position, terminal=3), backend=backend, **options)
    assert len(third.t_events[0]) == 3
    assert third.t[-1] == third.t_events[0][2]


def test_direction_and_several_events():
    both, up, down = (ga.Event(position, direction=d) for d in (0, 1, -1))
    top = lambda state: state.v[0] ** 2 + state.v[1] ** 2 - 0.01
    sol = swing(events=[both, up, down, top], rtol=1e-5)
    np.testing.assert_allclose(np.sort([*sol.t_events[1], *sol.t_events[2]]), sol.t_events[0], atol=1e-12)
    assert (sol.v_events[1][:, 0] > 0).all()
    assert (sol.v_events[2][:, 0] < 0).all()
    assert len(sol.t_events[3]) > 2
    none = swing(events=lambda t, q, v: q[0] + 5.0)
    assert none.t_events[0].shape == (0,)
    assert none.q_events[0].shape == (0, 2)


def test_events_of_multipliers_and_of_arguments():
    run = lambda event: ga.solve(
        systems.pulled(), (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], args=(G,), rtol=1e-8, atol=1e-10, events=event
    )
    # The tension is 3 g cos(angle), twice the multiplier.
    sol = run(lambda t, q, v, lam, psi, g: 2 * lam[0] - 1.5 * g)
    assert len(sol.t_events[0]) == 2
    np.testing.assert_allclose(sol.q_events[0][:, 1], -0.5, atol=1e-5)
    other = run(lambda state, g: 2 * state.lam[0] - 1.5 * g)
    np.testing.assert_allclose(sol.t_events[0], other.t_events[0], rtol=1e-12)


def test_event_points_are_not_lost_with_t_eval():
    sol = swing(events=ga.Event(position, terminal=2), t_eval=[0.1, 0.2, 2.9])
    assert sol.t.tolist() == [0.1, 0.2]
    assert len(sol.t_events[0]) == 2
    assert sol.status == -1


# --- resets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("backend", "options"), [*WAYS, pytest.param("xla", STEPS[1], marks=pytest.mark.slow)]
)
def test_a_bouncing_ball(backend, options):
    """Between impacts the motion is a parabola, which the methods and the interpolant reproduce exactly."""
    floor = ga.Event(position, direction=-1, reset=lambda t, q, v: -0.5 * v)
    sol = ga.solve(ball, (0.0, 1.2), [1.0], [0.0], events=floor, backend=backend, **options)
    first = np.sqrt(2 / G)
    exact = first * np.array([1.0, 2.0, 2.5])
    np.testing.assert_allclose(sol.t_events[0], exact, atol=1e-10)
    np.testing.assert_allclose(sol.v_events[0][:, 0], -G * first * np.array([1.0, 0.5, 0.25]), rtol=1e-9)
    twice = np.flatnonzero(np.diff(sol.t) == 0)
    assert len(twice) == 3
    np.testing.assert_allclose(sol.v[twice + 1], -0.5 * sol.v[twice], rtol=1e-12)
    assert sol.t[-1] == 1.2
    np.testing.assert_allclose(sol(first + 0.1).q[0], 0.5 * G * first * 0.1 - 0.5 * G * 0.01, atol=1e-9)


def wall(restitution):
    """A pendulum that strikes a wall at its lowest point."""
    return ga.Event(position, direction=-1, reset=lambda t, q, v: -restitution * v)


@pytest.mark.parametrize(
    "method",
    [
        *("soi2", "stabilized", "index3", "projected"),
        *(pytest.param(m, marks=pytest.mark.slow) for m in ("dae-alpha", "cs")),
    ],
)
def test_a_pendulum_at_a_wall_has_second_order_and_no_transient(method):
    """The energy falls by e² in each impact, and λ is of second order right after the impact.

    Without a consistent restart λ would have an error of first order that decays over many steps (ACB15).
    """
    e, found = 0.8, []
    for h in (0.01, 0.005, 0.0025):
        sol = swing(events=wall(e), method=method, h=h, rho_inf=0.9)
        assert len(sol.t_events[0]) >= 2
        after = np.flatnonzero(np.diff(sol.t) == 0)[0] + 1
        rows = slice(after + 1, after + 9)
        q, v = sol.q[rows], sol.v[rows]
        exact = 0.5 * ((v**2).sum(axis=1) - G * q[:, 1])  # λ that belongs to (q, v)
        of_lambda = np.abs(sol.lam[rows, 0] - exact).max()
        energy = 0.5 * (v[-1] ** 2).sum() + G * q[-1, 1]
        # λ of some methods is exact in this sense.
        found.append([max(of_lambda, 1e-6 * h**2), abs(energy - (e**2 * G - G))])
    orders = np.log2(np.array(found[:-1]) / np.array(found[1:]))
    assert orders.min() > 1.6, orders


@pytest.mark.parametrize(
    "options",
    [{"h": 0.01}, {"rtol": 1e-5}, pytest.param({"rtol": 1e-5, "backend": "xla"}, marks=pytest.mark.slow)],
    ids=str,
)
@pytest.mark.parametrize(
    ("velocity", "told"),
    [
        ([0.0, 1.0], r"reset of event 0 returned break the constraints: d/dt holonomic\[0\] = \S+\. ga"),
        ([np.nan, 0.0], r"reset of event 0 returned are NaN or infinite: \[nan"),
    ],
)
def test_what_was_computed_before_a_bad_reset_is_kept(velocity, told, options):
    bad = ga.Event(position, reset=lambda t, q, v: jnp.array(velocity))
    with pytest.raises(
        ga.IntegrationError, match=f"cannot continue after an event. The velocities that the {told}"
    ):
        swing(events=bad, **options)
    sol = swing(events=bad, throw=False, **options)
    good = swing(events=ga.Event(position, terminal=True), **options)
    assert sol.status == codes.NOT_RESUMED
    assert sol.t_end == sol.t_events[0][0] == good.t_events[0][0]
    np.testing.assert_array_equal(sol.q, good.q)
    assert sol.state is None


def test_a_run_that_cannot_go_on_after_a_reset_says_why():
    """A force that has no value at the speed after the event."""
    system = ga.System(jnp.eye(1), lambda t, q, v: jnp.where(v > 5, jnp.nan, jnp.array([1.0])))
    kick = ga.Event(lambda t, q, v: q[0] - 0.5, reset=lambda t, q, v: v + 10)
    with pytest.raises(
        ga.IntegrationError, match=r"that the reset of event 0 returned, force\(t, q, v.* is NaN"
    ):
        ga.solve(system, (0.0, 2.0), [0.0], [0.0], events=kick)


def test_a_reset_of_the_wrong_shape_is_refused():
    with pytest.raises(ValueError, match=r"velocities of shape \(2,\); at t = "):
        swing(events=ga.Event(position, reset=lambda t, q, v: jnp.zeros(3)))


def test_a_zeno_motion_is_ended():
    """A ball that loses its speed in infinitely many bounces before t = 1.5."""
    floor = ga.Event(position, direction=-1, reset=lambda t, q, v: -0.5 * v)
    sol = ga.solve(ball, (0.0, 2.0), [1.0], [0.0], events=floor, rtol=1e-6, throw=False)
    assert not sol.success
    assert sol.t[-1] < 1.5
    assert sol.q[:, 0].min() > -1e-3


def test_dense_output_across_a_reset():
    sol = swing(events=wall(1.0), t_eval=np.linspace(0.0, 3.0, 31), dense_output=True)
    assert len(sol.t) == 31
    t = sol.t_events[0][0]
    before, after = sol(t - 1e-9), sol(t + 1e-9)
    np.testing.assert_allclose(before.v, -after.v, atol=1e-6)
    np.testing.assert_allclose(before.q, after.q, atol=1e-6)
    assert sol.q[:, 0].min() > -1e-9


# --- bad events ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "error", "message"),
    [
        (3, TypeError, "an event must be a function"),
        (lambda t, q, v: q, ValueError, r"must return one number, got shape \(2,\)"),
        (lambda t, q: q[0], TypeError, r"take \(t, q, v, \*args\)"),
        (lambda t, q, v, lam: q[0], TypeError, r"\(state, \*args\), with 0 args here"),
    ],
)
def test_bad_events(event, error, message):
    with pytest.raises(error, match=message):
        swing(events=event)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"terminal": "yes"}, ValueError, "terminal of an event"),
        ({"terminal": -1}, ValueError, "terminal of an event"),
        ({"direction": np.nan}, ValueError, "direction of an event"),
        ({"reset": 1.0}, TypeError, "reset of an event"),
    ],
)
def test_bad_parts_of_an_event(options, error, message):
    with pytest.raises(error, match=message):
        ga.Event(position, **options)


# --- several things at once ---------------------------------------------------------------------------

hit = ga.Event(position, direction=-1, reset=lambda t, q, v: -0.9 * v)


def test_a_reset_at_the_end_of_the_span():
    sol = ga.solve(free, (0.0, 1.0), [1.0], [-1.0], h=0.25, events=hit)
    assert sol.status == 0
    np.testing.assert_allclose(sol.state.v, 0.9)
    assert ga.solve(free, (1.0, 2.0), state=sol.state, h=0.25).q[-1, 0] > 0


def test_all_events_at_the_time_of_a_reset_are_listed():
    plain = ga.Event(position)
    for order in ([hit, plain], [plain, hit]):
        sol = ga.solve(ball, (0.0, 3.0), [1.0], [0.0], events=order)
        np.testing.assert_allclose(sol.t_events[0], sol.t_events[1], atol=1e-12)
        assert len(sol.t_events[0]) == 4


@pytest.mark.slow
def test_integers_in_args_are_not_taken_from_an_earlier_run():
    system = ga.System(mass=np.eye(1), force=lambda t, q, v, k: -q)
    level = lambda t, q, v, k: q[0] - 0.5 * k
    for k, exact in ((0, np.pi / 2), (1, np.pi / 3), (-1, 2 * np.pi / 3)):
        sol = ga.solve(system, (0.0, 5.0), [1.0], [0.0], args=(k,), events=level, rtol=1e-6)
        assert abs(sol.t_events[0][0] - exact) < 1e-3


def test_an_event_closer_to_the_start_than_rounding():
    here = ga.Event(lambda t, q, v: q[0] - 1e-17, reset=lambda t, q, v: v)
    sol = ga.solve(free, (0.0, 1.0), [0.0], [1.0], h=0.25, t_eval=[0.0, 0.5], dense_output=True, events=here)
    np.testing.assert_allclose(sol.q[:, 0], [0.0, 0.5], atol=1e-12)
    assert np.isfinite(sol(0.0).q).all()


@pytest.mark.parametrize("save", ["all", ["q"]])
@pytest.mark.parametrize("t_eval", [[0.0, 4.9], [4.9], [0.1, 0.2]])
def test_resets_with_parts_that_contain_no_time_of_t_eval(t_eval, save):
    sol = ga.solve(ball, (0.0, 5.0), [1.0], [0.0], events=hit, t_eval=t_eval, save=save)
    assert sol.t.tolist() == t_eval
    assert sol.q.shape == (len(t_eval), 1)
    assert ga.solve(ball, (0.0, 5.0), [1.0], [0.0], events=hit, save="final").q.shape == (1, 1)


def test_no_time_before_a_terminal_event():
    sol = ga.solve(ball, (0.0, 5.0), [1.0], [0.0], t_eval=[4.0], events=ga.Event(hit.function, terminal=True))
    assert sol.q.shape == (0, 1)
    assert sol.lam.shape == (0, 0)
    assert len(sol.t_events[0]) == 1


# --- location of events, and memory ----------------------------------------------------------------------


def test_the_event_of_a_function_that_is_zero_over_an_interval_is_at_its_beginning():
    gap = lambda t, q, v: jnp.maximum(q[0] - 0.33, 0.0)
    sol = ga.solve(free, (0.0, 2.0), [1.0], [-1.0], h=0.1, events=gap)
    np.testing.assert_allclose(sol.t_events[0], [0.67], atol=1e-13)


@pytest.mark.parametrize("power", [1, 3, 9])
@pytest.mark.parametrize("zero", [1.0, 1.0 + 1e-9, 1.37, 2.0 - 1e-12, 2.0])
def test_zeros_are_located_to_rounding(zero, power):
    calls = []

    def function(t):
        calls.append(len(t))
        return np.sign(t - zero) * np.abs(t - zero) ** power * (1 + t**2)

    assert located(function, 1.0 - 1e-6, 2.0) == pytest.approx(zero, abs=1e-14 if power == 1 else 1e-13)
    assert set(calls) == {POINTS}  # so that one program is enough
    assert len(calls) < 20


def test_the_first_of_three_zeros_is_found():
    assert located(lambda t: (t - 0.2) * (t - 0.5) * (t - 0.9), 0.0, 1.0) == pytest.approx(0.2, abs=1e-14)


@pytest.mark.slow
def test_new_event_functions_in_every_run_use_bounded_memory(monkeypatch):
    monkeypatch.setattr(programs, "MOST", 20)
    free = ga.System(mass=np.eye(1), force=lambda t, q, v: jnp.zeros(1))
    for i in range(6):
        sol = ga.solve(
            free, (0.0, 1.0), [0.0], [1.0], h=0.1, events=lambda t, q, v, i=i: q[0] - 0.11 * (i + 1)
        )
        np.testing.assert_allclose(sol.t_events[0], [0.11 * (i + 1)])
    assert len(free._programs) == 20


@pytest.mark.parametrize("options", STEPS)
def test_the_callback_counts_the_steps_of_the_whole_run(options):
    """A step that ends at an event counts too, and the callback may stop the run there."""
    wall = ga.Event(position, direction=-1, reset=lambda t, q, v: -0.8 * v)
    seen = []
    sol = swing(events=wall, callback=seen.append, callback_every=7, **options)
    assert len(sol.t_events[0]) == 3
    assert len(seen) == sol.stats.steps // 7
    steps = np.delete(sol.t, np.flatnonzero(np.diff(sol.t) == 0))[1:]  # an event has two rows
    np.testing.assert_array_equal([s.t for s in seen], steps[6::7])
    stopped = swing(events=wall, callback=lambda s: s.t == sol.t_events[0][1], **options)
    assert stopped.status == -2
    assert stopped.t[-1] == sol.t_events[0][1]
    rest = ga.solve(pendulum, (stopped.t[-1], 3.0), state=stopped.state, events=wall, **options)
    np.testing.assert_allclose(rest.q[-1], sol.q[-1], atol=1e-4)
