"""The motion of all members of a batch at given times, and the times at which members fail."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from genalpha.numerics import codes

TIMES = {
    "with both ends": np.linspace(0.0, 0.4, 9),
    "many in one step": np.array([0.1, 0.1001, 0.1002, 0.1003, 0.39]),
    "one": np.array([0.123]),
    "only the start": np.array([0.0]),
}
# By fixed steps, by fixed steps of which the last is shorter, and under error control.
STEPS = [{"h": 0.01}, {"h": 0.007}, {"rtol": 1e-4}]
SPAN = (0.0, 0.4)


def names(one):
    return [name for name in gathered() if getattr(one, name) is not None]


def gathered():
    motion = ("t", "q", "v", "a", "lam", "psi")
    return (*motion, "a_alpha", "t_alpha", "residuals", "reactions", "extra", "errors", "newton")


def assert_alike(member, one, rows=slice(None), rtol=0.0):
    """The rows of a member are those of a run of its own."""
    for name in names(one):
        for a, b in zip(
            jax.tree.leaves(getattr(member, name)), jax.tree.leaves(getattr(one, name)), strict=True
        ):
            if rtol and b.dtype == bool:  # whether Newton ended at rounding is a question of rounding
                continue
            scale = np.abs(b).max(initial=0.0)
            np.testing.assert_allclose(a[rows], b, rtol=0, atol=rtol * (1 + scale), err_msg=name)


@functools.cache
def alone(name):
    """A problem that no other file runs: pivots, and so the last bits, are chosen at the first start."""
    return ga.problems.get(name)


def varied(name, count=5):
    p = alone(name)
    v0 = p.v0 * np.linspace(1.0, 1.2, count)[:, None]
    return p, p.q0, v0


@pytest.mark.parametrize("steps", STEPS, ids=str)
@pytest.mark.parametrize(
    ("name", "times"),
    [
        pytest.param(
            name,
            times,
            marks=pytest.mark.slow if (name == "heavy-top") != (key == "many in one step") else (),
            id=f"{name}-{key}",
        )
        for name in ("heavy-top", "wheel-on-rod")
        for key, times in TIMES.items()
    ],
)
def test_members_at_given_times_are_what_single_runs_give_bit_by_bit(name, times, steps):
    p, q0, v0 = varied(name)
    options = {"args": p.args, "t_eval": times, "initial": "assume", **steps}
    many = ga.solve_batch(p.system, SPAN, q0, v0, **options)
    assert (many.backend, many.stats.fallback) == ("native", None)
    assert many.q.shape == (5, len(times), len(p.q0))
    assert (many.t_end == SPAN[1]).all()
    for i in (0, 4):
        one = ga.solve(p.system, SPAN, q0, v0[i], **options)
        assert_alike(many[i], one)
        assert (many[i].stats, many[i].t_end) == (one.stats, one.t_end)


@pytest.mark.parametrize("steps", [pytest.param(STEPS[1], marks=pytest.mark.slow), STEPS[2]], ids=str)
@pytest.mark.parametrize(
    "method",
    ["index3", *(pytest.param(m, marks=pytest.mark.slow) for m in ("stabilized", "cs", "projected"))],
)
def test_samples_of_every_method_are_what_single_runs_give(method, steps):
    """Those of index3 start beside the given velocities; in the first step too, the given ones count."""
    p, q0, v0 = varied("pendulum", 3)
    times = np.array([0.0, 1e-5, 1e-4, 0.01, 0.02])
    options = {"args": p.args, "t_eval": times, "initial": "assume", "method": method, **steps}
    many = ga.solve_batch(p.system, (0.0, 0.02), q0, v0, **options)
    for i in range(3):
        assert_alike(many[i], ga.solve(p.system, (0.0, 0.02), q0, v0[i], **options))


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS, ids=str)
def test_xla_gives_the_same_rows(steps):
    p, q0, v0 = varied("wheel-on-rod", 3)
    options = {"args": p.args, "t_eval": TIMES["with both ends"], "initial": "assume", **steps}
    one, two = (ga.solve_batch(p.system, SPAN, q0, v0, backend=b, **options) for b in ("native", "xla"))
    assert two.backend == "xla"
    assert_alike(two, one, rtol=1e-7)


def test_samples_between_steps_have_the_order_of_the_interpolant():
    """q and v of third order, λ of second, against a run with steps a hundred times as short."""
    p, q0, v0 = varied("heavy-top", 2)
    times = np.array([0.0513, 0.0771, 0.0997])
    run = lambda h: ga.solve_batch(
        p.system, (0.0, 0.1), q0, v0, t_eval=times, h=h, args=p.args, initial="assume"
    )
    reference = run(1e-5)
    errors = [
        [np.abs(getattr(run(h), name) - getattr(reference, name)).max() for name in ("q", "v", "lam")]
        for h in (4e-3, 2e-3, 1e-3)
    ]
    assert (np.log2(np.divide(errors[1], errors[2])) > 1.8).all()


# --- members that fail ----------------------------------------------------------------------------------


ENDING = systems.ending()


@pytest.mark.parametrize(
    ("backend", "steps"),
    [
        *(("native", s) for s in STEPS),
        *(pytest.param("xla", s, marks=pytest.mark.slow) for s in STEPS[::2]),
    ],
)
def test_rows_before_a_failure_are_kept(backend, steps):
    ends = np.array([9.0, 0.2503, 0.0001, 9.0, 0.3107])
    q0, times = np.tile([1.0, 0.0], (5, 1)), np.linspace(0.0, 0.4, 41)
    q0[3] = [1.1, 0.0]
    run = lambda i, **more: ga.solve(
        ENDING, SPAN, [1.0, 0.0], [0.0, 0.0], args=(ends[i],), throw=False, **steps, **more
    )
    many = ga.solve_batch(
        ENDING, SPAN, q0, [0.0, 0.0], args=(ends,), t_eval=times, backend=backend, max_steps=None, **steps
    )
    assert many.success.tolist() == [True, False, False, False, False]
    assert many.status[3] == codes.INCONSISTENT
    assert np.isnan(many.q[3, 1:]).all()
    assert many[3].message.startswith("stopped after t = 0 (step 0): q0 or v0 break")
    assert_alike(many[0], run(0, t_eval=times), rtol=0.0 if backend == "native" else 1e-7)
    for i in (1, 2, 4):
        one = run(i, t_eval=times)
        good = len(one.t)
        assert 0 < good < len(times)  # the start at least
        assert np.isnan(many.q[i, good:]).all()
        assert_alike(many[i], one, slice(good), 0.0 if backend == "native" else 1e-7)
        assert many.t_end[i] == pytest.approx(one.t_end, rel=1e-9)
        assert one.t_end == run(i).t[-1] <= ends[i] + 0.03
        told = ": " if backend == "native" else "(step"  # how many steps go up to a jump is rounding
        assert many[i].message.split(told)[0] == one.message.split(told)[0]


def test_a_batch_that_keeps_the_end_knows_when_its_members_stopped(tmp_path):
    ends = np.array([9.0, 0.25])
    options = {"args": (ends,), "h": 0.01}
    many = ga.solve_batch(ENDING, SPAN, [1.0, 0.0], [0.0, 0.0], **options)
    np.testing.assert_allclose(many.t_end, [0.4, 0.25], rtol=1e-12)
    assert many[1].message.startswith("stopped after t = 0.25 (step 25): a force")
    many.save(tmp_path / "batch.npz")
    assert ga.load(tmp_path / "batch.npz")[1].message == many[1].message


def test_members_that_need_other_pivots_run_alone_to_the_same_times():
    """The first mass vanishes at t = 1 for some members only."""
    system = systems.fading()
    times = np.linspace(0.0, 2.0, 14)
    options = {"h": 1 / 64, "method": "index3", "newton": ga.Newton("full"), "t_eval": times}
    gone = np.array([3.0, 1.0, 5.0, 1.5])
    many = ga.solve_batch(system, (0.0, 2.0), [0.0, 0.0], [0.0, 0.0], args=(gone,), **options)
    assert many.success.all()
    for i in range(4):
        one = ga.solve(system, (0.0, 2.0), [0.0, 0.0], [0.0, 0.0], args=(gone[i],), backend="xla", **options)
        assert_alike(many[i], one, rtol=1e-8)


# --- the rest of a row ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("steps", STEPS, ids=str)
@pytest.mark.parametrize("traced", [False, True])
def test_the_rest_of_a_sampled_row_is_the_steps(steps, traced):
    """a_α and its time belong to each other: to the step in which a time lies, and at t0 to the start."""
    times, q0 = np.linspace(0.0, 0.4, 14), np.array([1.0, 0.0])
    solve = lambda q, **more: ga.solve(
        systems.pulled(), SPAN, q, jnp.zeros(2), args=(9.81,), initial="assume", **more
    )
    run = (
        jax.jit(lambda q: solve(q, t_eval=times, **steps))
        if traced
        else lambda q: solve(q, t_eval=times, **steps)
    )
    whole, some = solve(q0, **steps), run(jnp.asarray(q0))
    after = np.searchsorted(whole.t, times)
    assert after[0] == 0
    for name in ("a_alpha", "t_alpha"):
        np.testing.assert_allclose(getattr(some, name), getattr(whole, name)[after], rtol=1e-8, atol=1e-9)
    taken = np.append(0, whole.newton.iterations)[after]
    assert np.abs(np.asarray(some.newton.iterations) - taken).max() <= 1


def test_bad_times_are_refused():
    run = lambda **options: ga.solve_batch(
        ENDING, SPAN, [1.0, 0.0], [0.0, 0.0], args=(np.array([8.0, 9.0]),), **options
    )
    with pytest.raises(ValueError, match="t_eval must increase"):
        run(t_eval=[0.2, 0.1])
    with pytest.raises(ValueError, match="beyond the time span"):
        run(t_eval=[0.2, 0.5], h=0.01)
    with pytest.raises(ValueError, match="pass either t_eval or save, not both"):
        run(t_eval=[0.2], h=0.01, save="all")
