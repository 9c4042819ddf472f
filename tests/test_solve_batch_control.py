"""Batches under error control: every member takes its own steps."""

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from genalpha.engine.steps import MOST_TRACED
from genalpha.numerics import codes

LENGTHS = np.linspace(0.2, 3.0, 37)
pendulum = systems.pendulum()
START = np.stack([LENGTHS, 0 * LENGTHS], axis=1)


def run(backend="native", lengths=LENGTHS, **options):
    start = np.stack([lengths, 0 * lengths], axis=1)
    return ga.solve_batch(
        pendulum, (0.0, 2.0), start, [0.0, 0.0], args=(lengths,), backend=backend, **options
    )


@pytest.mark.parametrize("method", ["soi2", "stabilized", "cs"])
def test_members_are_single_runs(method):
    batch = run(rtol=1e-5, method=method)
    assert batch.success.all()
    assert batch.stats.fallback is None
    assert len(set(batch.stats.steps.tolist())) > 10  # of their own
    for i in (0, 7, 36):
        one = ga.solve(
            pendulum, (0.0, 2.0), START[i], [0.0, 0.0], args=(LENGTHS[i],), rtol=1e-5, method=method
        )
        assert abs(batch.stats.steps[i] - one.stats.steps) <= 2
        np.testing.assert_allclose(batch.q[i, -1], one.q[-1], atol=2e-5)
        np.testing.assert_allclose(batch.lam[i, -1], one.lam[-1], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(batch.errors.norm[i, -1], one.errors.norm[-1], rtol=0.2)
    assert (batch.t == 2.0).all()
    assert batch.residuals.position.max() < 1e-11
    assert (batch.stats.rejected > 0).any()


@pytest.mark.slow
def test_xla_and_native_agree():
    some = LENGTHS[::9]
    native, xla = run(lengths=some, rtol=1e-4), run("xla", lengths=some, rtol=1e-4, max_steps=1000)
    assert xla.backend == "xla"
    np.testing.assert_allclose(native.q[:, -1], xla.q[:, -1], atol=1e-4)
    assert np.abs(native.stats.steps - xla.stats.steps).max() <= 3


def test_members_that_fail_have_a_status():
    most = int(np.median(run(rtol=1e-4).stats.steps))
    batch = run(rtol=1e-4, max_steps=most)
    assert not batch.success.all()
    assert batch.success.any()
    short = ~batch.success
    assert (batch.stats.steps[short] == most).all()
    assert np.isnan(batch.q[short]).all()
    assert np.isfinite(batch.q[~short]).all()
    assert "max_steps" in batch[int(np.argmax(short))].message
    bad = START.copy()
    bad[5] = [9.0, 9.0]
    mixed = ga.solve_batch(pendulum, (0.0, 0.5), bad, [0.0, 0.0], args=(LENGTHS,), rtol=1e-3)
    assert mixed.status[5] != 0
    assert np.delete(mixed.success, 5).all()


def test_what_batches_cannot_keep():
    with pytest.raises(ValueError, match="save='all' needs h"):
        run(save="all")
    with pytest.raises(ValueError, match="pass h, or times as t_eval"):
        run(save=3)
    with pytest.raises(ValueError, match="pass either h or rtol, not both"):
        run(h=0.1, rtol=1e-3)


def test_one_member_that_fails_at_once_does_not_decide_for_the_others():
    """Its first step has no matrix from which pivots could be chosen."""
    system = systems.ending()
    ends = np.full(9, 9.0)
    ends[:3] = 0.0005
    batch = ga.solve_batch(system, (0.0, 2.0), [1.0, 0.0], [0.0, 0.0], args=(ends,), rtol=1e-6)
    assert (batch.backend, batch.stats.fallback) == ("native", None)
    assert batch.success.tolist() == [False] * 3 + [True] * 6


SORTED = ga.System(jnp.eye(1), lambda t, q, v, k: -k * jnp.sort(q))  # has no scalar form
SWING, TIGHT = ((0.0, 8.0), [1.0], [0.0]), {"rtol": 5e-7}


@pytest.mark.slow
@pytest.mark.parametrize("times", [{}, {"t_eval": [1.0, 8.0]}], ids=str)
def test_batches_by_xla_take_as_many_steps_as_they_need(times):
    batch = ga.solve_batch(SORTED, *SWING, args=(np.array([0.01, 1.0]),), **TIGHT, **times)
    assert batch.backend == "xla"
    assert batch.success.all()
    assert batch.stats.steps[1] > MOST_TRACED
    np.testing.assert_allclose(batch.q[:, -1, 0], np.cos(np.array([0.8, 8.0])), atol=1e-4)


@pytest.mark.slow
def test_batches_by_xla_take_no_more_steps_than_allowed():
    batch = ga.solve_batch(SORTED, *SWING, args=(np.array([0.01, 1.0]),), **TIGHT, max_steps=1100)
    assert batch.status.tolist() == [0, codes.TOO_MANY]


@pytest.mark.parametrize("backend", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_members_that_could_not_be_started_have_not_reached_the_end(backend):
    system = ga.System(jnp.eye(3), lambda t, q, v, k: -k * v, space=ga.SO3())
    q0 = np.array([[1.0, 0.0, 0.0, 0.0], [1.01, 0.0, 0.0, 0.0]])
    batch = ga.solve_batch(
        system, (0.0, 1.0), q0, [0.0, 0.0, 1.0], args=(np.ones(2),), h=0.01, backend=backend
    )
    assert batch.t_end.tolist() == [1.0, 0.0]
    assert batch.stats.steps.tolist() == [100, 0]
    assert np.isnan(batch.q[1]).all()
    assert batch[1].message.startswith("stopped after t = 0 (step 0): the quaternion of SO3")
