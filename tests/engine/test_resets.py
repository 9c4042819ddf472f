"""Resets that change positions and arguments, or end the run, and what a solution knows about its parts."""

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems

ball, pendulum, free, spring = systems.ball(), systems.circle(), systems.free(), systems.spring()
STEPS = [{"h": 0.01}, {"rtol": 1e-7, "atol": 1e-9}]
WAYS = [("native", STEPS[0]), ("native", STEPS[1]), ("xla", STEPS[0])]
# A spring that becomes four times as stiff when the mass passes the centre for the first time.
stiffer = ga.Event(lambda t, q, v, k: q[0], direction=-1, reset=lambda t, q, v, k: ga.Reset(args=(4 * k,)))
QUARTER = np.pi / 2


def stiffen(t1=3.0, **options):
    return ga.solve(spring, (0.0, t1), [1.0], [0.0], args=(1.0,), events=stiffer, **options)


def exact(t):
    """cos(t), then −sin(2 (t − π/2)) / 2."""
    return np.where(t < QUARTER, np.cos(t), -0.5 * np.sin(2 * (t - QUARTER)))


@pytest.mark.parametrize(("backend", "options"), WAYS)
def test_arguments_change_and_every_part_keeps_its_own(backend, options):
    sol = stiffen(backend=backend, **options)
    np.testing.assert_allclose(sol.t_events[0], [QUARTER], atol=1e-3)
    np.testing.assert_allclose(sol.q[:, 0], exact(sol.t), atol=2e-3)
    split = int(np.flatnonzero(np.diff(sol.t) == 0)[0]) + 1
    stiffness = np.where(np.arange(len(sol.t)) < split, 1.0, 4.0)
    np.testing.assert_allclose(sol.a[:, 0], -stiffness * sol.q[:, 0], atol=1e-12)
    # Between the steps; the event itself belongs to the part before it.
    times = np.array([0.3, sol.t_events[0][0], 2.0])
    at = sol(times)
    np.testing.assert_allclose(at.a[:, 0], -np.array([1.0, 1.0, 4.0]) * at.q[:, 0], atol=1e-12)
    assert [(p.args[0].item(), p.rows) for p in sol.phases] == [
        (1.0, slice(0, split)),
        (4.0, slice(split, len(sol.t))),
    ]
    assert sol.phases[0].t1 == sol.phases[1].t0 == sol.t_events[0][0]
    assert (sol.phases[0].t0, sol.phases[1].t1) == (0.0, 3.0)
    energy = np.concatenate([0.5 * (p.args[0] * sol.q[p.rows] ** 2 + sol.v[p.rows] ** 2) for p in sol.phases])
    np.testing.assert_allclose(energy, 0.5, atol=2e-3)


def test_multipliers_and_reactions_of_parts_with_other_arguments():
    """Gravity is switched off at the lowest point; then the tension of the rod is v² alone."""
    off = ga.Event(lambda t, q, v, g: q[0], direction=-1, reset=lambda t, q, v, g: ga.Reset(args=(0.0 * g,)))
    run = lambda **more: ga.solve(
        systems.pulled(), (0.0, 2.0), [1.0, 0.0], [0.0, 0.0], args=(9.81,), events=off, rtol=1e-7, **more
    )
    sol = run(dense_output=True, t_eval=[0.2, 1.5])
    np.testing.assert_allclose(
        2 * sol.lam[:, 0], (sol.v**2).sum(axis=1) - [9.81 * sol.q[0, 1], 0.0], atol=1e-9
    )
    np.testing.assert_allclose(sol.reactions.total, -2 * sol.lam * sol.q, atol=1e-12)
    np.testing.assert_allclose(sol(1.5).lam, sol.lam[1], atol=1e-9)
    assert [p.rows for p in sol.phases] == [slice(0, 1), slice(1, 2)]
    # λ jumps at the event: the nodes of a file know both values.
    t = sol.t_events[0][0]
    both = sol._nodes_for_a_file()
    at = np.flatnonzero(both.t == t)
    assert len(at) == 2
    np.testing.assert_allclose(both.lam[at[0], 0] - both.lam[at[1], 0], 9.81 / 2, rtol=1e-6)


@pytest.mark.parametrize("options", [STEPS[0]])
def test_integers_may_change_too(options):
    system = ga.System(np.eye(1), lambda t, q, v, k: jnp.array([1.0]) * k)
    turn = ga.Event(lambda t, q, v, k: v[0] - 1, direction=1, reset=lambda t, q, v, k: ga.Reset(args=(-k,)))
    sol = ga.solve(system, (0.0, 3.0), [0.0], [0.0], args=(1,), events=turn, **options)
    assert sol.v[-1, 0] == pytest.approx(-1.0)
    assert sol(0.5).a[0] == pytest.approx(1.0)
    assert sol(2.5).a[0] == pytest.approx(-1.0)


@pytest.mark.parametrize("options", STEPS)
def test_positions_may_jump(options):
    """A coordinate that is wrapped: from 1 back to −1."""
    wrap = ga.Event(lambda t, q, v: q[0] - 1.0, reset=lambda t, q, v: ga.Reset(q=q - 2.0))
    sol = ga.solve(free, (0.0, 5.0), [0.0], [1.0], events=wrap, **options)
    np.testing.assert_allclose(sol.t_events[0], [1.0, 3.0, 5.0][: len(sol.t_events[0])], atol=1e-12)
    assert len(sol.t_events[0]) >= 2
    np.testing.assert_allclose(sol(np.array([0.5, 1.5, 4.0])).q[:, 0], [0.5, -0.5, 0.0], atol=1e-12)
    twice = np.flatnonzero(np.diff(sol.t) == 0)
    np.testing.assert_allclose(sol.q[twice + 1] - sol.q[twice], -2.0, atol=1e-12)
    assert len(sol.phases) == 1  # the arguments are the same everywhere


def test_a_velocity_that_jumps_away_from_zero_is_no_event():
    """A speed that is set back when it reaches 1: the function is −1 then, and does not cross zero."""
    push = ga.System(np.eye(1), lambda t, q, v: jnp.ones(1))
    back = ga.Event(lambda t, q, v: v[0] - 1.0, reset=lambda t, q, v: 0.0 * v)
    for options in STEPS:
        sol = ga.solve(push, (0.0, 3.5), [0.0], [0.0], events=back, **options)
        np.testing.assert_allclose(sol.t_events[0], [1.0, 2.0, 3.0], atol=1e-9)


def test_positions_on_the_constraints_and_others():
    across = lambda q: ga.Event(
        lambda t, q, v: q[0], direction=-1, reset=lambda t, x, v: ga.Reset(q=q, v=0 * v)
    )
    run = lambda q, **more: ga.solve(
        pendulum, (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], h=0.01, events=across(q), **more
    )
    sol = run([0.6, 0.8])
    after = int(np.flatnonzero(np.diff(sol.t) == 0)[0]) + 1
    assert sol.q[after].tolist() == [0.6, 0.8]
    assert np.abs(sol.residuals.position).max() < 1e-12
    with pytest.raises(
        ga.IntegrationError, match=r"positions and velocities that the reset of event 0 returned break.*holon"
    ) as error:
        run([0.7, 0.8])
    assert "ga.project_position" in str(error.value)
    assert error.value.solution.t_end == pytest.approx(sol.t_events[0][0])
    only = ga.Event(lambda t, q, v: q[0], reset=lambda t, q, v: ga.Reset(q=[1.1, 0.0]))
    with pytest.raises(ga.IntegrationError, match=r"positions that the reset.*holonomic\[0\] = 0\.21"):
        ga.solve(pendulum, (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], h=0.01, events=only)
    longer = ga.Event(lambda t, q, v, x: q[0], reset=lambda t, q, v, x: ga.Reset(args=(2 * x,)))
    with pytest.raises(
        ga.IntegrationError, match=r"args that the reset of event 0 returned.*holonomic\[0\] = -3"
    ):
        ga.solve(systems.pendulum(), (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], args=(1.0,), h=0.01, events=longer)


@pytest.mark.parametrize(("backend", "options"), WAYS[:2])
def test_a_reset_may_end_the_run(backend, options):
    """A ball that is caught when it is slower than 2 m/s."""
    caught = lambda t, q, v: ga.Reset(v=0 * v, stop=True) if abs(v[0]) < 2 else -0.5 * v
    floor = ga.Event(lambda t, q, v: q[0], direction=-1, reset=caught)
    sol = ga.solve(ball, (0.0, 9.0), [1.0], [0.0], events=floor, backend=backend, **options)
    first = np.sqrt(2 / systems.G)
    assert (sol.status, sol.success) == (-1, True)
    np.testing.assert_allclose(sol.t_events[0], first * np.array([1.0, 2.0, 2.5]), atol=1e-9)
    assert sol.t[-1] == sol.t_end == sol.t_events[0][-1]
    assert sol.v[-1, 0] == pytest.approx(-systems.G * first / 4)  # before the reset, as at terminal events
    assert sol.state.v.tolist() == [0.0]


@pytest.mark.parametrize(
    ("reset", "told"),
    [
        (lambda t, q, v, k: ga.Reset(q=jnp.zeros(2)), r"positions of shape \(1,\); at t = "),
        (lambda t, q, v, k: ga.Reset(v=[0.0, 1.0]), r"velocities of shape \(1,\); at t = "),
        (lambda t, q, v, k: ga.Reset(args=(1.0, 2.0)), r"reset of event 0 returned args.*structure"),
        (lambda t, q, v, k: ga.Reset(args=([1.0, 2.0],)), "structure"),
        (lambda t, q, v, k: ga.Reset(args=(jnp.ones(2),)), r"args\[0\] has shape \(2,\).*must be \(\)"),
        (lambda t, q, v, k: ga.Reset(args=(1,)), r"args\[0\].*int64.*must be \(\) and float64"),
        (lambda t, q, v, k: ga.Reset(args=2.0), "args must be a tuple"),
    ],
)
def test_resets_that_do_not_fit(reset, told):
    with pytest.raises((ValueError, TypeError), match=told):
        ga.solve(
            spring,
            (0.0, 3.0),
            [1.0],
            [0.0],
            args=(1.0,),
            h=0.01,
            events=ga.Event(stiffer.function, reset=reset),
        )


@pytest.mark.parametrize("change", [{"v": [np.nan]}, {"q": [np.inf]}])
def test_numbers_that_are_not_finite(change):
    """They are found before the run goes on, even if the force does not depend on them."""
    bad = ga.Event(stiffer.function, reset=lambda t, q, v, k: ga.Reset(**change))
    sol = ga.solve(spring, (0.0, 3.0), [1.0], [0.0], args=(1.0,), h=0.01, events=bad, throw=False)
    assert sol.status == 13
    assert (
        f"{'positions' if 'q' in change else 'velocities'} that the reset of event 0 returned are NaN or"
        in sol.message
    )


def test_resets_at_one_moment_see_each_other():
    listed = []

    def note(t, q, v, k):
        listed.append((float(v[0]), float(k)))
        return ga.Reset(v=v / 2)

    both = [stiffer, ga.Event(stiffer.function, direction=-1, reset=note)]
    sol = ga.solve(spring, (0.0, 2.0), [1.0], [0.0], args=(1.0,), events=both, h=0.01)
    assert listed[0] == (pytest.approx(-1.0, abs=1e-3), 4.0)
    assert sol.v[-1, 0] == pytest.approx(-0.5 * np.cos(2 * (2.0 - QUARTER)), abs=2e-3)


# --- stop and continue --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "given"), [(STEPS[0], 1.0), (STEPS[0], 4.0), ({"rtol": 1e-5, "atol": 1e-7}, 1.0)]
)
def test_a_state_goes_on_with_the_changed_arguments(options, given, tmp_path):
    whole = stiffen(**options)
    part = stiffen(callback=lambda s: s.t > 2.2, **options)
    part.state.save(tmp_path / "state.npz")
    for state in (part.state, ga.load_state(tmp_path / "state.npz")):
        rest = ga.solve(spring, (part.t[-1], 3.0), state=state, args=(given,), events=stiffer, **options)
        np.testing.assert_array_equal(rest.q[-1], whole.q[-1])
        np.testing.assert_array_equal(rest.a[1:], whole.a[-len(rest.t) + 1 :])
        assert rest.phases[0].args[0] == 4.0
    # Its own state knows the arguments as well, and other arguments replace them.
    again = ga.solve(spring, (2.3, 3.0), state=_until(part, 2.3, given, options), args=(given,), **options)
    assert again.phases[0].args[0] == 4.0
    other = ga.solve(spring, (part.t[-1], 3.0), state=part.state, args=(9.0,), **options)
    np.testing.assert_allclose(other.a, -9.0 * other.q, atol=1e-12)


def _until(part, t, given, options):
    return ga.solve(spring, (part.t[-1], t), state=part.state, args=(given,), **options).state


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_state_after_a_reset_goes_on_with_more_or_fewer_events(count):
    both = [stiffer, ga.Event(lambda t, q, v, k: q[0] - 9.0)]
    run = lambda span, **more: ga.solve(spring, span, args=(1.0,), h=0.01, **more)
    part = run((0.0, 3.0), q0=[1.0], v0=[0.0], events=both, callback=lambda s: s.t > 2.2)
    rest = run((part.t[-1], 3.0), state=part.state, events=[stiffer] * count or None)
    whole = run((0.0, 3.0), q0=[1.0], v0=[0.0], events=both)
    np.testing.assert_array_equal(rest.q[-1], whole.q[-1])


def test_a_state_at_the_event_goes_on_with_the_changed_arguments():
    ended = ga.Event(
        stiffer.function, direction=-1, reset=lambda t, q, v, k: ga.Reset(args=(4 * k,), stop=True)
    )
    first = ga.solve(spring, (0.0, 3.0), [1.0], [0.0], args=(1.0,), events=ended, rtol=1e-7)
    rest = ga.solve(spring, (first.t[-1], 3.0), state=first.state, args=(1.0,), rtol=1e-7)
    np.testing.assert_allclose(rest.a, -4.0 * rest.q, atol=1e-12)
    other = ga.System(np.eye(1), lambda t, q, v, k: -k * q + 1.0)  # another system: the args are as given
    fresh = ga.solve(other, (first.t[-1], 3.0), state=first.state, args=(1.0,), rtol=1e-7)
    np.testing.assert_allclose(fresh.a, 1 - fresh.q, atol=1e-12)


@pytest.mark.parametrize("options", [{"h": 0.05}, pytest.param({"rtol": 1e-3}, marks=pytest.mark.slow)])
def test_a_checkpoint_goes_on_with_the_changed_arguments(options, tmp_path):
    path, more = tmp_path / "run.ckpt", {"dense_output": True, "save": 3, **options}
    whole = stiffen(**more)

    def fail(state):
        if state.t > 2.2:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        stiffen(checkpoint=path, checkpoint_every=0.0, callback=fail, **more)
    assert path.exists()
    again = stiffen(checkpoint=path, checkpoint_every=0.0, **more)
    for name in ("t", "q", "v", "a"):
        np.testing.assert_array_equal(getattr(again, name), getattr(whole, name))
    times = np.linspace(0.0, 3.0, 50)
    np.testing.assert_array_equal(again(times).a, whole(times).a)
    assert [p.rows for p in again.phases] == [p.rows for p in whole.phases]


def test_a_state_with_arguments_of_another_shape_is_refused(tmp_path):
    part = stiffen(callback=lambda s: s.t > 2.2, h=0.01)
    object.__setattr__(part.state, "changed", [np.zeros(2)])
    with pytest.raises(ValueError, match=r"state holds args of other shapes"):
        ga.solve(spring, (part.t[-1], 3.0), state=part.state, args=(1.0,), h=0.01)
