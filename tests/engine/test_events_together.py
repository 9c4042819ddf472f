"""Simultaneous events, repeated events, and events in runs that are stopped and continued."""

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from test_events import STEPS, G, ball, pendulum, position, swing


def floors(*bodies):
    def floor(i):
        return ga.Event(
            lambda t, q, v: q[i], direction=-1, reset=lambda t, q, v: np.where(np.arange(len(v)) == i, -v, v)
        )

    return [floor(i) for i in bodies]


two_balls = ga.System(mass=np.eye(2), force=lambda t, q, v: jnp.full(2, -G))


@pytest.mark.parametrize("apart", [0.0, 1e-13, 1e-9])
def test_all_resets_of_one_moment_are_carried_out(apart):
    sol = ga.solve(two_balls, (0.0, 3.0), [1.0, 1.0 + apart], [0.0, 0.0], h=1e-2, events=floors(0, 1))
    assert [len(t) for t in sol.t_events] == [3, 3]
    assert sol.q.min() > -1e-9


@pytest.mark.parametrize("order", [1, -1])
def test_a_terminal_event_goes_before_a_reset_of_the_same_moment(order):
    swings = systems.oscillator()
    both = [
        ga.Event(lambda t, q, v: 2 * q[0], reset=lambda t, q, v: -v),
        ga.Event(position, terminal=True),
    ]
    sol = ga.solve(swings, (0.0, 10.0), [1.0], [0.0], rtol=1e-6, events=both[::order])
    assert sol.status == -1
    assert [len(t) for t in sol.t_events] == [1, 1]


def test_a_long_span_does_not_make_events_simultaneous_or_crowded():
    end = ga.Event(lambda t, q, v: t - 30.0, terminal=True)
    options = {"rtol": 1e-6, "max_step": 0.1, "events": [*floors(0, 1), end]}
    long, short = (ga.solve(two_balls, (0.0, t1), [1.0, 1.0004], [0.0, 0.0], **options) for t1 in (1e8, 40.0))
    assert long.status == short.status == -1
    for one, other in zip(long.t_events, short.t_events, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4)
    assert len(long.t_events[0]) == 33


def test_many_events_without_reset_are_not_zeno():
    watching = [position] * 30
    bounce = ga.Event(position, direction=-1, reset=lambda t, q, v: -v)
    sol = ga.solve(ball, (0.0, 0.6), [1.0], [0.0], h=0.01, events=[*watching, bounce])
    assert sol.status == 0
    assert [len(t) for t in sol.t_events] == [1] * 31


def test_a_reset_may_write_into_its_arguments():
    def bounce(t, q, v):
        q += 5.0
        v *= -1
        return v

    floor = ga.Event(position, direction=-1, reset=bounce)
    sol = ga.solve(ball, (0.0, 0.6), [1.0], [0.0], h=0.01, events=floor)
    np.testing.assert_allclose(sol.v_events[0], [[-np.sqrt(2 * G)]], rtol=1e-9)
    np.testing.assert_allclose(sol.q_events[0], [[0.0]], atol=1e-12)
    assert sol.q.max() == 1.0


def test_an_event_of_accelerations_is_refused():
    with pytest.raises(TypeError, match="cannot depend on the accelerations"):
        ga.solve(ball, (0.0, 1.0), [1.0], [0.0], events=lambda state: state.a[0])
    with pytest.raises(TypeError, match="cannot depend on the accelerations"):
        ga.solve(ball, (0.0, 1.0), [1.0], [0.0], events=lambda state: jnp.sum(state.a))


def test_no_event_happens_twice_because_the_run_was_stopped_there():
    floor = ga.Event(position, reset=lambda t, q, v: -0.9 * v)
    for height in np.linspace(1.0, 3.0, 12):
        whole = ga.solve(ball, (0.0, 2.0), [height], [0.0], rtol=1e-6, events=floor)
        strikes = whole.t_events[0][0]
        first = ga.solve(
            ball, (0.0, 2.0), [height], [0.0], rtol=1e-6, events=floor, callback=lambda s, t=strikes: s.t == t
        )
        rest = ga.solve(ball, (first.t[-1], 2.0), state=first.state, rtol=1e-6, events=floor)
        assert len(rest.t_events[0]) == len(whole.t_events[0]) - 1
        np.testing.assert_allclose(rest.q[-1], whole.q[-1], atol=1e-6)


def test_other_events_after_a_terminal_one():
    """An event of the second run that is far from zero is not taken for the one that ended the first run."""
    low = ga.Event(lambda t, q, v: q[0] - 0.5, terminal=True)
    first = ga.solve(ball, (0.0, 2.0), [1.0], [0.0], h=0.01, events=low)
    rest = ga.solve(ball, (first.t[-1], 2.0), state=first.state, h=0.01, events=position)
    np.testing.assert_allclose(rest.t_events[0], [np.sqrt(2 / G)], rtol=1e-10)
    near = ga.solve(ball, (first.t[-1], first.t[-1] + 0.004), state=first.state, h=0.01)
    assert len(near.t) == 2


def test_velocities_are_projected_after_a_reset_too():
    nothing = ga.Event(position, direction=-1, reset=lambda t, q, v: v)
    options = {"method": "index3", "h": 0.01, "events": nothing}
    plain, projected = swing(**options), swing(**options, project_velocity_at=[2.0])
    row = int(np.argmin(np.abs(projected.t - 2.0)))
    assert projected.residuals.velocity[row] < 1e-12 < plain.residuals.velocity[row]


def test_messages_give_the_time_even_if_no_row_has_it():
    broken = ga.System(mass=np.eye(1), force=lambda t, q, v: jnp.where(t > 0.5, jnp.nan, -q))
    sol = ga.solve(broken, (0.0, 1.0), [1.0], [0.0], h=0.1, t_eval=[0.9, 1.0], throw=False)
    assert sol.message.startswith("stopped after t = 0.5 (step 5)")
    end = ga.Event(position, direction=-1, terminal=True)
    none = ga.solve(ball, (0.0, 3.0), [1.0], [0.0], h=0.01, events=end, t_eval=[1.0, 2.0])
    assert "no times" in repr(none)


wall = ga.Event(position, direction=-1, reset=lambda t, q, v: -0.8 * v)


@pytest.mark.parametrize("options", STEPS)
@pytest.mark.parametrize("stop", [0.3, 1.0, 2.0])
def test_stopped_between_events_and_continued_is_the_uninterrupted_run(options, stop):
    whole = swing(events=wall, **options)
    part = swing(events=wall, callback=lambda s: s.t > stop, **options)
    for _ in range(2):  # stopped and continued again
        rest = ga.solve(pendulum, (part.t[-1], 3.0), state=part.state, events=wall, **options)
        np.testing.assert_array_equal(rest.q[-1], whole.q[-1])
        np.testing.assert_array_equal(rest.t[1:], whole.t[-len(rest.t) + 1 :])
        late = part.t[-1] + 0.2
        part = ga.solve(
            pendulum,
            (part.t[-1], 3.0),
            state=part.state,
            events=wall,
            callback=lambda s, t=late: s.t > t,
            **options,
        )


@pytest.mark.parametrize("options", [{"h": 0.02}, {"rtol": 1e-7}, {"h": 0.02, "backend": "xla"}], ids=str)
def test_the_jump_of_an_angle_is_no_event(options):
    """A point turns with the rate 2: its angle is zero once a turn, and jumps from π to −π between."""
    circle = ga.System(jnp.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([(q @ q - 1) / 2]))
    angle = lambda t, q, v: jnp.arctan2(q[1], q[0])
    kinds = [
        ga.Event(angle),
        ga.Event(angle, period=2 * np.pi),
        ga.Event(angle, period=2 * np.pi, direction=-1),
    ]
    c, s = np.cos(1.0), np.sin(1.0)
    turns = np.pi * np.arange(1, 4) - 0.5
    for sign in (1, -1):
        start = ([c, sign * s], [-2 * s, 2 * sign * c])
        both, zeros, falling = ga.solve(circle, (0.0, 9.0), *start, events=kinds, **options).t_events
        assert len(both) == 6
        np.testing.assert_allclose(zeros, turns, atol=2e-3 if "h" in options else 1e-5)
        assert len(falling) == (0 if sign > 0 else 3)
