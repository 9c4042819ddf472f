"""``accuracy`` in batches: every member is as accurate as asked for, and knows its error."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import ellipj, ellipk

import genalpha as ga
import systems
from systems import G

LENGTHS = np.array([0.3, 0.5, 1.0, 1.7, 2.4])
START = np.stack([LENGTHS, 0 * LENGTHS], axis=1)


def swing(span=(0.0, 2.0), lengths=LENGTHS, start=START, **options):
    return ga.solve_batch(systems.pendulum(), span, start, [0.0, 0.0], args=(lengths,), **options)


def exact(t):
    """Positions (B, K, 2) of pendulums that start at 90°: sin(θ/2) = sn(K − ωt)/√2."""
    sn, *_ = ellipj(ellipk(0.5) - np.sqrt(G / LENGTHS)[:, None] * t, 0.5)
    half = np.arcsin(sn * np.sqrt(0.5))
    return LENGTHS[:, None, None] * np.stack([np.sin(2 * half), -np.cos(2 * half)], axis=-1)


@pytest.mark.parametrize("accuracy", [1e-4, 1e-9])
def test_every_member_has_its_accuracy(accuracy):
    t = np.linspace(0.0, 2.0, 9)
    batch = swing(accuracy=accuracy, t_eval=t)
    assert batch.success.all()
    true = np.abs(batch.q - exact(t)) / LENGTHS[:, None, None]
    assert true.max() < accuracy
    assert batch.error.norm.shape == (5, 9)
    assert (batch.error.norm <= 1).all()
    assert batch.error.lam.shape == batch.lam.shape == (5, 9, 1)
    assert (
        true.max(axis=(1, 2)) < 3 * (batch.error.q / LENGTHS[:, None, None]).max(axis=(1, 2)) + 1e-13
    ).all()


def test_rows_of_members_are_their_own():
    batch = swing((0.0, 6.0), accuracy=1e-8, save="all")
    last = swing((0.0, 6.0), accuracy=1e-8)
    assert batch.q.shape[1] > 20
    counts = np.isfinite(batch.t).sum(axis=1)
    assert len(set(counts)) > 1  # faster pendulums need more
    for i, count in enumerate(counts):
        assert batch.t[i, 0] == 0.0
        assert batch.t[i, count - 1] == 6.0
        assert np.isfinite(batch.q[i, :count]).all()
        assert np.isnan(batch.q[i, count:]).all()
        np.testing.assert_array_equal(batch.q[i, count - 1], last.q[i, -1])
    np.testing.assert_allclose(last.q[:, -1], exact(np.array([6.0]))[:, 0], atol=1e-7)


def test_members_that_fail_have_a_status_and_disturb_nobody():
    start = START.copy()
    start[1, 1] = 0.2  # off its circle
    batch = swing(start=start, accuracy=1e-6)
    assert batch.success.tolist() == [True, False, True, True, True]
    assert np.isnan(batch.q[1]).all()
    rest = [0, 2, 3, 4]
    np.testing.assert_allclose(batch.q[rest, -1], exact(np.array([2.0]))[rest, 0], atol=1e-5)
    few = swing(accuracy=3e-14)
    assert not few.success.any()
    assert (few.error.norm > 1).all()  # rounding, and the error that was reached is known
    assert (few.error.norm < 1e4).all()


def test_breakpoints_and_events():
    system = ga.System(np.eye(1), lambda t, q, v, at: -q + jnp.where(t > 1 / 3, at, 0.0))
    push = np.array([1.0, 5.0])
    batch = ga.solve_batch(
        system, (0.0, 2.0), [1.0], [0.0], args=(push,), accuracy=1e-9, breakpoints=[1 / 3], save="final"
    )
    expected = np.cos(2.0) + push * (1 - np.cos(2.0 - 1 / 3))
    np.testing.assert_allclose(batch.q[:, -1, 0], expected, atol=2e-9)
    lowest = ga.Event(lambda t, q, v, length: q[0], terminal=True)
    ended = swing(accuracy=1e-9, events=lowest)
    np.testing.assert_allclose(ended.t_end, ellipk(0.5) * np.sqrt(LENGTHS / G), rtol=1e-9)


def test_a_member_that_fails():
    """Runs with accuracy have no histories of Newton's method. The failed member has no row after its end."""
    system = ga.System(np.eye(1), lambda t, q, v, end: jnp.sqrt(end - t)[None])
    options = {"accuracy": 1e-6, "t_eval": [0.2, 0.5, 0.9]}
    batch = ga.solve_batch(system, (0.0, 1.0), [0.0], [0.0], args=(np.array([2.0, 0.7]),), **options)
    assert batch.status[0] == 0 < batch.status[1]
    assert batch.t_end[1] == pytest.approx(0.7, abs=1e-3)
    assert batch.newton is batch.lam_method is None
    one = ga.solve(system, (0.0, 1.0), [0.0], [0.0], args=(2.0,), **options)
    np.testing.assert_array_equal(batch.q[0], one.q)
    np.testing.assert_array_equal(np.isnan(batch.q[1, :, 0]), [False, False, True])
    at = np.array([0.2, 0.5])
    speed = lambda t: (2 / 3) * (0.7**1.5 - (0.7 - t) ** 1.5)
    np.testing.assert_allclose(batch.v[1, :2, 0], speed(at), atol=1e-6)


@pytest.mark.slow
def test_xla_gives_the_same():
    one, two = (swing(accuracy=1e-6, backend=backend) for backend in ("native", "xla"))
    np.testing.assert_allclose(one.q, two.q, atol=1e-11)


def test_bad_input():
    with pytest.raises(ValueError, match="pass either accuracy or h, not both"):
        swing(accuracy=1e-6, h=0.1)
    with pytest.raises(ValueError, match="breakpoints need accuracy in solve_batch"):
        swing(rtol=1e-4, breakpoints=[0.5])
    with pytest.raises(ga.InconsistentInitialValues):
        swing(start=START + 1.0, accuracy=1e-6)
