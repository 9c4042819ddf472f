"""Events in batches: members are what single runs give, whether they run in lanes or alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems

G = systems.G
HEIGHTS = np.linspace(0.9, 40.0, 21)  # those from about 5 on do not reach the floor within a second
TIMES = np.linspace(0.0, 1.0, 7)
ball = systems.ball()
stop = ga.Event(lambda t, q, v: q[0], direction=-1, terminal=True)
bounce = ga.Event(lambda t, q, v: q[0], direction=-1, reset=lambda t, q, v: -0.5 * v)
top = ga.Event(lambda t, q, v: v[0], direction=-1)
WAYS = [{"h": 0.03, "save": "all"}, {"h": 0.03, "save": 5}, {"h": 0.03}, {"rtol": 1e-5}]
WAYS += [
    {"h": 0.03, "t_eval": TIMES},
    {"rtol": 1e-5, "t_eval": TIMES},
    {"h": 0.03, "save": ("all", ["q", "a"])},
]


def batch(events, heights=HEIGHTS, **options):
    return ga.solve_batch(ball, (0.0, 1.0), heights[:, None], [0.0], events=events, **options)


def single(height, events, **options):
    options = {"save": "final"} | options
    if "t_eval" in options:
        del options["save"]
    return ga.solve(ball, (0.0, 1.0), [height], [0.0], events=events, throw=False, **options)


KINDS = {"stop": stop, "bounce": bounce, "two": [top, bounce]}
FAST = {("stop", 0), ("stop", 2), ("bounce", 1), ("bounce", 5), ("bounce", 6), ("two", 3), ("two", 4)}
CASES = [
    pytest.param(KINDS[kind], way, marks=() if (kind, i) in FAST else pytest.mark.slow, id=f"{kind}-{i}")
    for kind in KINDS
    for i, way in enumerate(WAYS)
]


@pytest.mark.parametrize(("events", "options"), CASES)
def test_members_are_single_runs(events, options):
    found = batch(events, **options)
    kinds = len(events) if isinstance(events, list) else 1
    assert found.success.all()
    for i, height in enumerate(HEIGHTS):
        one, member = single(height, events, **options), found[i]
        assert (member.status, member.t_end) == (one.status, one.t_end)
        assert member.stats == one.stats
        for name in ("q", "v", "a", "residuals", "a_alpha"):
            for ours, theirs in zip(
                *(jax.tree.leaves(getattr(sol, name)) for sol in (member, one)), strict=True
            ):
                np.testing.assert_array_equal(ours, theirs, err_msg=name)  # also its number of rows
        np.testing.assert_array_equal(member.t, one.t)
        assert len(member.t_events) == kinds
        for name in ("t_events", "q_events", "v_events", "lam_events"):
            for ours, theirs in zip(getattr(member, name), getattr(one, name), strict=True):
                np.testing.assert_array_equal(ours, theirs, err_msg=name)


def test_shapes_and_numbers_of_events():
    found = batch([top, bounce], h=0.03, save="all")
    falls = np.sqrt(2 * HEIGHTS / G)
    first = np.where(falls < 1, falls, np.nan)
    assert [x.shape[0] for x in found.t_events] == [21, 21]
    np.testing.assert_allclose(found.t_events[1][:, 0], first, atol=1e-9)
    counts = np.isfinite(found.t_events[1]).sum(axis=1)
    assert counts.max() == found.t_events[1].shape[1] == 2
    assert (counts[falls > 1] == 0).all()
    assert found.q_events[1].shape == (21, 2, 1)
    assert found.t.shape == found.q.shape[:2]
    assert np.isnan(found.t[-1, 35:]).all()  # this member has no reset, so it has fewer rows
    assert "21 of 21" in found.message
    ended = batch(stop, h=0.03)
    assert "an event" in ended.message
    np.testing.assert_allclose(ended.t_end, np.minimum(falls, 1.0), atol=1e-9)
    np.testing.assert_array_equal(ended.t[:, 0], ended.t_end)


def test_members_without_events_run_in_lanes(monkeypatch):
    """Only members with events run alone."""
    from genalpha.run import single as one

    asked = []
    run = one.run
    monkeypatch.setattr(
        one, "run", lambda request: (asked.append(float(request.start.q[0])), run(request))[1]
    )
    batch([stop, top], h=0.03)  # the second one is zero at the start
    assert sorted(asked) == HEIGHTS[np.sqrt(2 * HEIGHTS / G) < 1].tolist()


def test_arguments_of_members_and_changed_arguments():
    k = np.linspace(1.0, 9.0, 9)
    stiffer = ga.Event(
        lambda t, q, v, k: q[0], direction=-1, reset=lambda t, q, v, k: ga.Reset(args=(4 * k,))
    )
    found = ga.solve_batch(
        systems.spring(), (0.0, 2.0), [1.0], [0.0], args=(k,), h=1e-3, t_eval=[1.9], events=stiffer
    )
    quarter = np.pi / 2 / np.sqrt(k)
    np.testing.assert_allclose(found.t_events[0][:, 0], quarter, atol=1e-4)
    w = np.sqrt(4 * k)
    late = k > 2
    exact = np.where(quarter < 1.9, -0.5 * np.sin(w * (1.9 - quarter)), np.cos(np.sqrt(k) * 1.9))
    once = np.isfinite(found.t_events[0]).sum(axis=1) == 1
    assert once.any()
    assert late.any()
    np.testing.assert_allclose(found.q[once, 0, 0], exact[once], atol=1e-3)
    np.testing.assert_allclose(found.a[once, 0, 0], -4 * k[once] * found.q[once, 0, 0], atol=1e-9)


def test_members_that_fail_or_cannot_start():
    ends = np.array([9.0, 0.3, 9.0, 0.9])
    start = np.array([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    low = ga.Event(lambda t, q, v, end: q[0], terminal=True)
    found = ga.solve_batch(
        systems.ending(), (0.0, 1.0), start, [0.0, 0.0], args=(ends,), h=0.01, save="all", events=low
    )
    assert found.status.tolist() == [-1, 3, 4, -1]
    assert found.success.tolist() == [True, False, False, True]
    assert np.isnan(found.q[2, 1:]).all()
    assert np.isnan(found.t[1, 31:]).all()
    assert np.isnan(found.t[2, 1:]).all()
    assert np.isfinite(found.q[1][:30]).all()
    assert np.isnan(found.t_events[0][1:3]).all()
    bad = ga.Event(lambda t, q, v, end: q[0], reset=lambda t, q, v, end: v + 1.0)
    refused = ga.solve_batch(
        systems.ending(), (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], args=(ends[[0, 3]],), h=0.01, events=bad
    )
    assert refused.status.tolist() == [13, 13]


def test_through_a_file(tmp_path):
    found = batch(bounce, h=0.03, t_eval=TIMES)
    found.save(tmp_path / "batch.npz")
    again = ga.load(tmp_path / "batch.npz")
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert len(again[0].t_events[0]) == len(found[0].t_events[0]) == 2
    assert found[[0, 20]].t_events[0].shape == (2, 2)


def test_by_xla():
    few = HEIGHTS[[0, 3]]
    ours, theirs = (batch(bounce, few, h=0.03, save="all", backend=b) for b in ("xla", "native"))
    assert ours.backend == "xla"
    np.testing.assert_allclose(ours.q, theirs.q, atol=1e-12)
    np.testing.assert_allclose(ours.t_events[0], theirs.t_events[0], atol=1e-12)


def test_an_event_at_the_start_and_events_of_multipliers():
    """A function that is zero at the start; and λ, which is solved for in lanes too."""
    lengths = np.linspace(0.5, 2.0, 9)
    q0 = np.stack([lengths, 0 * lengths], axis=1)
    zero = lambda t, q, v, length: q[1]
    taut = lambda t, q, v, lam, psi, length: lam[0] * length - G
    found = ga.solve_batch(
        systems.pendulum(), (0.0, 0.4), q0, [0.0, 0.0], args=(lengths,), h=0.01, events=[zero, taut]
    )
    for i, length in enumerate(lengths):
        one = ga.solve(
            systems.pendulum(), (0.0, 0.4), q0[i], [0.0, 0.0], args=(length,), h=0.01, events=[zero, taut]
        )
        np.testing.assert_array_equal(found[i].t_events[1], one.t_events[1])
        np.testing.assert_array_equal(found[i].q[-1], one.q[-1])


def test_what_is_refused():
    with pytest.raises(ValueError, match=r'events.*backend="cuda"'):
        batch(stop, h=0.03, backend="cuda")
    with pytest.raises(TypeError, match="an event must be a function"):
        batch(3, h=0.03)

    for kind in (RuntimeError, ValueError):

        def broken(t, q, v, kind=kind):
            raise kind("broken")

        with pytest.raises(kind, match="broken") as error:
            batch(ga.Event(stop.function, reset=broken), h=0.03)
        assert "reset of event 0 at t = 0.428" in error.value.__notes__[0]
        assert "member 0 of the batch" in error.value.__notes__[1]
    system = ga.System(jnp.eye(1), lambda t, q, v: jnp.zeros(1), lambda t, q: q - 1.0)
    with pytest.raises(ga.InconsistentInitialValues):
        ga.solve_batch(system, (0.0, 1.0), np.zeros((3, 1)), [0.0], h=0.1, events=stop)
