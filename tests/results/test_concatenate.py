"""Solutions of phases, one after the other, as one solution."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems

G = systems.G
spring, free_fall = systems.spring(), ga.System(np.eye(2), lambda t, q, v: jnp.array([0.0, -G]))
leave = ga.Event(lambda t, q, v: q[0], direction=-1, terminal=True)
low = ga.Event(lambda t, q, v: q[1] + 0.9)


def swing_and_fall(**options):
    """A pendulum whose rod is cut at the lowest point."""
    options = {"rtol": 1e-6} | options
    swing = ga.solve(systems.circle(), (0.0, 9.0), [1.0, 0.0], [0.0, 0.0], events=[low, leave], **options)
    t, q, v = swing.t_end, swing.state.q, swing.state.v
    return swing, ga.solve(free_fall, (t, t + 0.5), q, v, events=[low], **options)


def test_two_systems_in_one_solution():
    parts = swing, fall = swing_and_fall()
    sol, split = ga.concatenate(*parts), len(swing.t)
    assert sol.t[split - 1] == sol.t[split] == swing.t_end  # both rows, as at a reset
    for name in ("t", "q", "v", "a", "a_alpha", "t_alpha"):
        np.testing.assert_array_equal(
            getattr(sol, name), np.concatenate([getattr(x, name) for x in parts]), err_msg=name
        )
    np.testing.assert_array_equal(sol.reactions.total[:split], swing.reactions.total)
    assert not sol.reactions.total[split:].any()
    np.testing.assert_array_equal(sol.lam[:split], swing.lam)
    assert np.isnan(sol.lam[split:]).all()  # this system has no multiplier
    assert sol.errors.q.shape == sol.q.shape
    assert sol.stats.steps == swing.stats.steps + fall.stats.steps == len(sol.newton.iterations)
    assert (sol.status, sol.t_end, sol.success) == (fall.status, fall.t_end, True)
    assert sol.state is fall.state
    assert [(p.system, p.rows) for p in sol.phases] == [
        (systems.circle(), slice(0, split)),
        (free_fall, slice(split, len(sol.t))),
    ]


def test_the_motion_between_the_steps():
    swing, fall = parts = swing_and_fall()
    sol, times = ga.concatenate(*parts), np.array([0.3, swing.t_end, swing.t_end + 0.1])
    at, own = sol(times), [swing(times[:2]), fall(times[2:])]
    for name in ("q", "v", "a"):
        np.testing.assert_array_equal(
            getattr(at, name), np.concatenate([getattr(x, name) for x in own]), err_msg=name
        )
    np.testing.assert_array_equal(at.lam[:2], own[0].lam)
    assert np.isnan(at.lam[2]).all()
    traced = jax.jit(lambda t: sol(t).a)(times)
    np.testing.assert_allclose(traced, at.a, atol=1e-9)


def test_events_that_the_runs_share_have_one_list():
    swing, fall = swing_and_fall()
    sol = ga.concatenate(swing, fall)
    assert len(sol.t_events) == 2
    np.testing.assert_array_equal(sol.t_events[0], np.concatenate([swing.t_events[0], fall.t_events[0]]))
    np.testing.assert_array_equal(sol.t_events[1], swing.t_events[1])
    assert sol.lam_events[0].shape == (len(sol.t_events[0]), 1)
    assert swing_and_fall()[0].t_events is not None
    plain = ga.solve(spring, (0.0, 1.0), [1.0], [0.0], h=0.1, args=(1.0,))
    assert ga.concatenate(plain).t_events is None


def test_estimated_errors_of_all_rows():
    run = lambda span, at, **how: ga.solve(spring, span, *at, args=(1.0,), **how)
    first = run((0.0, 1.0), ([1.0], [0.0]), accuracy=1e-6)
    second = run((1.0, 2.0), (first.q[-1], first.v[-1]), accuracy=1e-8)
    sol = ga.concatenate(first, second)
    np.testing.assert_array_equal(sol.error.q, np.concatenate([first.error.q, second.error.q]))
    np.testing.assert_array_equal(sol.error.norm, np.concatenate([first.error.norm, second.error.norm]))
    plain = run((1.0, 2.0), (first.q[-1], first.v[-1]), h=0.1)
    assert ga.concatenate(first, plain).error is None


@pytest.mark.parametrize("options", [{}, {"t_eval": True}, {"save": (5, ["q", "v"])}])
def test_through_a_file(options, tmp_path):
    if "t_eval" in options:
        swing, fall = (
            ga.solve(spring, span, *at, args=(k,), h=0.01, dense_output=True, t_eval=np.linspace(*span, 5))
            for span, at, k in (((0.0, 1.0), ([1.0], [0.0]), 0.0), ((1.0, 2.0), ([1.0], [0.0]), 4.0))
        )
    else:
        swing, fall = swing_and_fall(dense_output=True, **options)
    sol = ga.concatenate(swing, fall)
    sol.save(tmp_path / "both.npz")
    again = ga.load(tmp_path / "both.npz")
    for ours, theirs in zip(*map(jax.tree.leaves, (again.q, sol.q)), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    times = np.linspace(sol.t[0], sol.t_end, 20)
    np.testing.assert_array_equal(again(times).q, sol(times).q)
    assert again.stats == sol.stats
    assert again.phases is None
    # Parts from files can be joined too.
    for name, part in (("a", swing), ("b", fall)):
        part.save(tmp_path / f"{name}.npz")
    both = ga.concatenate(ga.load(tmp_path / "a.npz"), ga.load(tmp_path / "b.npz"))
    np.testing.assert_array_equal(both.q, sol.q)
    np.testing.assert_array_equal(both(times).q, sol(times).q)


def test_three_phases_with_other_args_are_the_run_with_resets():
    """Other arguments after 1 and 2 seconds, by resets and by phases."""
    clock = ga.Event(
        lambda t, q, v, k: jnp.sin(np.pi * t + 1e-9), reset=lambda t, q, v, k: ga.Reset(args=(k + 1,))
    )
    at_once = ga.solve(spring, (0.0, 2.5), [1.0], [0.0], args=(1.0,), events=clock, h=1e-3)
    parts, at = [], ([1.0], [0.0])
    for span, k in (((0.0, 1.0), 1.0), ((1.0, 2.0), 2.0), ((2.0, 2.5), 3.0)):
        parts.append(ga.solve(spring, span, *at, args=(k,), h=1e-3))
        at = parts[-1].q[-1], parts[-1].v[-1]
    sol = ga.concatenate(ga.concatenate(*parts[:2]), parts[2])
    assert [p.args[0].item() for p in sol.phases] == [p.args[0].item() for p in at_once.phases] == [1, 2, 3]
    times = np.linspace(0.0, 2.5, 21)
    np.testing.assert_allclose(sol(times).q, at_once(times).q, atol=1e-5)
    np.testing.assert_allclose(sol.q[-1], at_once.q[-1], atol=1e-5)


def test_gaps_are_named():
    run = lambda span, q, v: ga.solve(spring, span, [q], [v], args=(0.0,), h=0.1)
    first = run((0.0, 1.0), 0.0, 1.0)
    with pytest.raises(ValueError, match=r"solution 1 starts at t = 1\.2, but solution 0 ends at t = 1"):
        ga.concatenate(first, run((1.2, 2.0), 1.0, 1.0))
    with pytest.raises(
        ValueError, match=r"at t = 1 q\[0\] is 0\.5 in solution 1, but 1 at the end of solution 0"
    ):
        ga.concatenate(first, run((1.0, 2.0), 0.5, 1.0))
    struck = run((1.0, 2.0), 1.0, -1.0)
    with pytest.raises(ValueError, match=r"v\[0\] is -1 in solution 1.*jumps=True"):
        ga.concatenate(first, struck)
    sol = ga.concatenate(first, struck, jumps=True)
    assert sol.v[10:12, 0].tolist() == pytest.approx([1.0, -1.0])
    ga.concatenate(first, run((1.0, 2.0), 1.0 + 1e-12, 1.0))  # rounding


@pytest.mark.parametrize(
    ("bad", "error", "match"),
    [
        (lambda one: (), TypeError, "needs at least one solution"),
        (lambda one: ([one, one],), TypeError, "solution 0 is a list"),
        (lambda one: (one, 3), TypeError, "solution 1 is a int"),
        (
            lambda one: (one, ga.solve_batch(spring, (1.0, 2.0), [1.0], [0.0], h=0.1, args=(np.ones(2),))),
            TypeError,
            "solution 1 is a batch",
        ),
        (
            lambda one: (one, ga.solve(free_fall, (1.0, 2.0), [0.0, 0.0], [0.0, 0.0], h=0.1)),
            ValueError,
            r"q has 2 entries in solution 1, but 1 in solution 0",
        ),
    ],
)
def test_what_cannot_be_joined(bad, error, match):
    one = ga.solve(spring, (0.0, 1.0), [1.0], [0.0], h=0.1, args=(1.0,))
    with pytest.raises(error, match=match):
        ga.concatenate(*bad(one))


def test_quantities_that_one_of_them_does_not_have():
    first = ga.solve(spring, (0.0, 1.0), [1.0], [0.0], h=0.1, args=(0.0,), save=["q", "v"])
    second = ga.solve(spring, (1.0, 2.0), [1.0], [0.0], rtol=1e-3, args=(0.0,), method="stabilized")
    sol = ga.concatenate(first, second)
    assert sol.a is None
    assert sol.errors is None
    assert sol.q.shape == (11 + len(second.t), 1)
    assert sol.method == "soi2, stabilized"
    with pytest.raises(ValueError, match="dense_output=True"):
        sol(0.5)
