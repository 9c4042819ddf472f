"""``accuracy`` with events: times and states against exact ones, and errors that are known after impacts."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import ellipk

import genalpha as ga
import systems
from genalpha.run.accurate.columns import ColumnRuns
from systems import G

BOUNCE = ga.Event(lambda t, q, v: q[0], direction=-1, reset=lambda t, q, v: -0.8 * v)
WALL = ga.Event(lambda t, q, v: q[0] + 0.3, direction=-1, reset=lambda t, q, v: -0.9 * v)
LOWEST = ga.Event(lambda t, q, v: q[0])


def swing(t1=5.0, **options):
    return ga.solve(systems.circle(), (0.0, t1), [1.0, 0.0], [0.0, 0.0], **options)


def angles(t1, at):
    """Times of impacts of the pendulum at a wall, and the angles at other times, by DOP853."""
    hit = lambda t, y: np.sin(y[0]) + 0.3
    hit.terminal, hit.direction = True, -1
    t, y, times, found = 0.0, [np.pi / 2, 0.0], [], []
    while True:
        run = solve_ivp(
            lambda t, y: [y[1], -G * np.sin(y[0])],
            *((t, t1), y, "DOP853"),
            rtol=1e-13,
            atol=1e-13,
            events=hit,
            dense_output=True,
        )
        here = at[(at > t) & (at <= run.t[-1]) | (at == 0.0) & (t == 0.0)]
        found.append(run.sol(here)[0])
        t, y = run.t[-1], [run.y[0, -1], -0.9 * run.y[1, -1]]
        if run.status == 0:
            return np.array(times), np.concatenate(found)
        times.append(t)


def test_a_bouncing_ball_has_exact_times():
    sol = ga.solve(systems.ball(), (0.0, 2.0), [1.0], [0.0], accuracy=1e-10, events=BOUNCE)
    times, speed = [np.sqrt(2 / G)], 0.8 * np.sqrt(2 * G)
    for _ in range(2):
        times.append(times[-1] + 2 * speed / G)
        speed *= 0.8
    np.testing.assert_allclose(sol.t_events[0], times, rtol=1e-11)
    np.testing.assert_allclose(
        sol.v_events[0][:, 0], [-np.sqrt(2 * G) * 0.8**k for k in range(3)], rtol=1e-10
    )
    assert sol.success
    assert len(sol.phases) == 4
    assert (np.diff(sol.t) == 0).sum() == 3  # two rows at each impact


@pytest.mark.parametrize("accuracy", [1e-4, 1e-8, pytest.param(1e-10, marks=pytest.mark.slow)])
def test_the_error_after_impacts_is_as_small_as_asked_for_and_known(accuracy):
    """Each impact at a slightly wrong time leads to a slightly wrong motion, and so to the next."""
    at = np.linspace(0.0, 5.0, 23)
    sol = swing(accuracy=accuracy, events=[WALL, LOWEST], t_eval=at)
    times, angle = angles(5.0, at)
    assert len(sol.t_events[0]) == len(times) == 4
    assert len(sol.t_events[1]) == 8
    true = np.abs(sol.q - np.stack([np.sin(angle), -np.cos(angle)], axis=1))
    assert true.max() < accuracy
    assert true.max() < 2 * sol.error.q.max() + 1e-12
    assert np.abs(sol.t_events[0] - times).max() < accuracy
    assert sol.error.norm.max() <= 1
    assert sol.error.q.shape == sol.q.shape == (23, 2)


def test_a_terminal_event_ends_the_run_there():
    sol = swing(accuracy=1e-9, events=ga.Event(LOWEST.function, terminal=True))
    assert sol.status == -1
    assert sol.t_end == pytest.approx(ellipk(0.5) / np.sqrt(G), rel=1e-10)
    assert sol.t[-1] == sol.t_end == sol.t_events[0][0]
    assert abs(sol.q[-1, 0]) < 1e-11
    again = ga.solve(systems.circle(), (sol.t_end, 2 * sol.t_end), state=sol.state, accuracy=1e-9)
    np.testing.assert_allclose(again.q[-1], [-1.0, 0.0], atol=1e-8)


def test_a_reset_changes_args_and_the_motion_between_rows_is_as_accurate():
    """A spring that becomes four times as stiff when it is stretched to 0.5."""
    stiffen = lambda t, q, v, k: ga.Reset(args=(4 * k,))
    event = ga.Event(lambda t, q, v, k: q[0] - 0.5, direction=-1, terminal=2, reset=stiffen)
    sol = ga.solve(systems.spring(), (0.0, 1.6), [1.0], [0.0], args=(1.0,), accuracy=1e-10, events=event)
    first = np.pi / 3  # cos t = 1/2
    later = lambda t: 0.5 * np.cos(2 * (t - first)) - np.sin(first) / 2 * np.sin(2 * (t - first))
    assert sol.t_events[0][0] == pytest.approx(first, abs=1e-11)
    times = np.array([0.3, 1.0, 1.2, 1.59])
    exact = np.where(times < first, np.cos(times), later(times))
    np.testing.assert_allclose(sol(times).q[:, 0], exact, atol=1e-10)
    np.testing.assert_allclose(sol(times).a[:, 0], -np.where(times < first, 1, 4) * exact, atol=1e-9)
    assert [float(phase.args[0]) for phase in sol.phases] == [1.0, 4.0]


def test_one_reset_changes_args_and_q_and_another_one_stops_the_run():
    """A spring is moved from 0.5 to 0.8 and becomes four times as stiff. At zero the run ends."""
    change = ga.Event(
        lambda t, q, v, k: jnp.where(k < 2, q[0] - 0.5, 1.0),
        direction=-1,
        reset=lambda t, q, v, k: ga.Reset(q=[0.8], args=(4 * k,)),
    )
    stop = ga.Event(
        lambda t, q, v, k: q[0],
        direction=-1,
        reset=lambda t, q, v, k: ga.Reset(q=[0.3], args=(9 * k / 4,), stop=True),
    )
    options = {"args": (1.0,), "accuracy": 1e-8}
    run = lambda **more: ga.solve(
        *(systems.spring(), (0.0, 3.0), [1.0], [0.0]), events=[change, stop], **options, **more
    )
    sol, first, half = run(), np.pi / 3, np.sqrt(0.75) / 2  # cos t = 1/2; half of the speed there
    last = first + np.arctan(0.8 / half) / 2
    later = lambda t: 0.8 * np.cos(2 * (t - first)) - half * np.sin(2 * (t - first))
    np.testing.assert_allclose(np.concatenate(sol.t_events), [first, last], atol=1e-9)
    assert sol.status == -1
    assert sol.t_end == sol.t_events[1][0]
    assert sol.state.q.tolist() == [0.3]
    split = sol.phases[1].rows.start
    exact = np.concatenate([np.cos(sol.t[:split]), later(sol.t[split:])])
    true = np.abs(sol.q[:, 0] - exact)
    assert true.max() < 1e-8
    assert sol.error.q.shape == sol.q.shape
    assert sol.error.norm.max() <= 1
    assert (true <= 2 * sol.error.q.max() + 1e-12).all()
    some = run(t_eval=[0.0, 1.0, 1.5, 2.0])
    np.testing.assert_allclose(some.q[:, 0], [1.0, np.cos(1.0), later(1.5)], atol=1e-8)
    assert some.error.lam.shape == (3, 0)
    again = ga.solve(systems.spring(), (sol.t_end, 3.0), state=sol.state, **options)
    np.testing.assert_allclose(again.a[0], -9 * 0.3, rtol=1e-12)


def test_rows_and_the_callback_are_those_of_other_runs(tmp_path):
    last = swing(accuracy=1e-6, events=WALL, save="final")
    whole = swing(accuracy=1e-6, events=WALL)
    np.testing.assert_array_equal(last.q, whole.q[-1:])
    seen = []
    stopped = swing(accuracy=1e-6, events=WALL, callback=lambda s: seen.append(float(s.t)) or s.t > 1.0)
    assert stopped.status == -2
    assert stopped.t_end == seen[-1] > 1.0
    assert len(stopped.t_events[0]) == 1
    assert stopped.error.q.shape == stopped.q.shape
    one = swing(accuracy=1e-6, events=WALL, callback=lambda s: s.t > 0.2, save="final")  # before any impact
    assert one.status == -2
    assert 0.2 < one.t_end < 0.6
    assert one.t.tolist() == [one.t_end]
    few = swing(accuracy=1e-6, events=WALL, callback=lambda s: s.t > 0.2, save=1000)
    np.testing.assert_array_equal(few.error.q[-1], whole.error.q[whole.t == few.t_end][0])
    whole.save(tmp_path / "run.npz")
    np.testing.assert_array_equal(ga.load(tmp_path / "run.npz").error.q, whole.error.q)


@pytest.mark.parametrize("events", [None, WALL])
def test_a_checkpoint_keeps_finished_columns(events, tmp_path, monkeypatch):
    run, made = ColumnRuns._run, []

    def stops(columns, *arguments):
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(arguments)
        return run(columns, *arguments)

    options = {"t1": 1.0, "accuracy": 1e-7, "events": events, "checkpoint_every": 0.0}
    whole = swing(**options)
    monkeypatch.setattr(ColumnRuns, "_run", stops)
    with pytest.raises(KeyboardInterrupt):
        swing(**options, checkpoint=tmp_path / "run")
    monkeypatch.setattr(ColumnRuns, "_run", lambda columns, *at: made.append(at) or run(columns, *at))
    again = swing(**options, checkpoint=tmp_path / "run")
    for name in ("t", "q", "v", "lam"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name), name)
    np.testing.assert_array_equal(again.error.q, whole.error.q)
    assert again.stats == whole.stats
    total = len(made)
    once_more = swing(**options, checkpoint=tmp_path / "run")  # nothing is left to do
    assert len(made) == total
    np.testing.assert_array_equal(once_more.q, whole.q)
    with pytest.raises(ValueError, match="checkpoint of another run"):
        swing(**options | {"accuracy": 1e-6}, checkpoint=tmp_path / "run")


def test_what_cannot_go_on_says_why_and_keeps_its_rows():
    broken = ga.Event(WALL.function, direction=-1, reset=lambda t, q, v: v + np.array([1.0, 1.0]))
    sol = swing(accuracy=1e-6, events=broken, throw=False)
    assert not sol.success
    assert "break the constraints" in sol.message
    assert 0.6 < sol.t_end < 0.7
    zeno = ga.solve(systems.ball(), (0.0, 20.0), [1.0], [0.0], accuracy=1e-4, events=BOUNCE, throw=False)
    assert "resets" in zeno.message or "Zeno" in zeno.message
    assert zeno.t_end == pytest.approx(np.sqrt(2 / G) * (1 + 2 * 0.8 / 0.2), rel=1e-3)
