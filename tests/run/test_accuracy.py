"""``accuracy``: the error of a result is known, and as small as asked for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from conftest import problem
from genalpha.engine import grading
from genalpha.run.accurate import columns as running


def relative(name, sol):
    """Errors of v at every row, relative as in the package."""
    p = problem(name)
    exact = p.reference(sol.t)
    size = np.abs(sol.v).max(axis=0)
    size = np.maximum(size, 0.01 * np.sqrt(np.mean(size**2)))
    return np.sqrt(np.mean(((sol.v - np.asarray(exact.v)) / size) ** 2, axis=1))


SLOW = [
    ("heavy-top", 1e-8),
    ("rolling-disk", 1e-7),
    ("rolling-disk", 1e-4),
    ("rolling-disk", 1e-10),
    ("heavy-top", 1e-4),
    ("heavy-top", 1e-10),
]


@pytest.mark.parametrize(
    ("name", "accuracy"),
    [("pendulum", 1e-4), ("pendulum", 1e-10)]
    + [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW],
)
def test_the_error_is_as_small_as_asked_for_and_known(name, accuracy):
    sol = problem(name).solve(accuracy=accuracy)
    true = relative(name, sol).max()
    assert sol.success
    assert true < 1.5 * accuracy
    assert sol.error.norm.max() <= 1
    assert sol.error.norm.max() * accuracy > 0.2 * true
    assert max(sol.residuals.position.max(), sol.residuals.velocity.max()) < 1e-11


def test_andrews_reaches_its_published_values():
    p = problem("andrews")
    sol = p.solve(accuracy=1e-9)
    end = p.published[max(p.published)]
    for name, bound in (("q", 1e-9), ("v", 2e-9), ("a", 2e-8), ("lam", 2e-8)):
        exact = np.array(end[name])
        error = np.abs(getattr(sol, name)[-1] - exact).max()
        assert error < bound * np.abs(exact).max()
        assert error < 3 * getattr(sol.error, name)[-1].max()
    assert "digits" in sol.summary()


@pytest.mark.slow
def test_columns_on_all_cores_give_the_same_numbers(monkeypatch):
    """Threads change the time of a run and nothing else, also if a column fails."""
    found = {}
    for short in (0.0, np.inf):
        monkeypatch.setattr(running.machine, "cores", lambda: 2)
        monkeypatch.setattr(running, "SHORT", short)
        sol = problem("pendulum").solve(accuracy=1e-6)
        failed = problem("pendulum").solve(
            h=0.1, extrapolate=3, newton=ga.Newton(max_iterations=1), throw=False
        )
        found[short] = [sol.q, sol.v, sol.stats, failed.message, failed.q]
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("method", ["soi2", "stabilized", "dae-alpha", "index3"])
def test_every_column_raises_the_order(method):
    """Errors of columns have an expansion, so p columns are of order p + 1 or more."""
    p, errors = problem("double-pendulum"), []
    exact = np.asarray(p.reference(p.t_span[1]).v)
    for columns in (2, 3, 4):
        found = [
            np.abs(p.solve(method=method, h=h, extrapolate=columns).v[-1] - exact).max()
            for h in (0.05, 0.025)
        ]
        errors.append(found)
    orders = np.log2([first / second for first, second in errors])
    assert (orders > np.array([2.6, 3.6, 4.4])).all(), orders
    assert errors[2][1] < 1e-2 * errors[0][1]


@pytest.mark.parametrize("name", ["double-pendulum", pytest.param("heavy-top", marks=pytest.mark.slow)])
def test_rows_between_and_motion_on_request_keep_the_digits(name):
    p, t = problem(name), np.linspace(0.0, 1.0, 37)
    sol = p.solve(accuracy=1e-8, t_end=1.0, t_eval=t, dense_output=True)
    for at in (sol.t, np.linspace(0.0, 1.0, 101)):
        exact = p.reference(at)
        found = sol(at)
        assert np.abs(found.v - np.asarray(exact.v)).max() < 3e-8 * np.abs(exact.v).max()
        assert np.abs(found.q - np.asarray(exact.q)).max() < 3e-8
        assert np.abs(found.lam - np.asarray(exact.lam)).max() < 1e-6 * np.abs(exact.lam).max()
    if name == "heavy-top":
        assert np.abs(np.linalg.norm(sol.q[:, 3:], axis=1) - 1).max() < 1e-14
    assert sol.error.q.shape == (37, sol.v.shape[1])


@pytest.mark.slow
def test_a_mesh_follows_the_time_scales_of_the_motion(monkeypatch):
    """An orbit of eccentricity 0.9: at one end it is 19 times as fast as at the other."""
    e = 0.9
    system = ga.System(np.eye(2), lambda t, q, v: -q / (q @ q) ** 1.5)
    start = [1 - e, 0.0], [0.0, np.sqrt((1 + e) / (1 - e))]
    run = lambda: ga.solve(system, (0.0, 3 * np.pi), *start, accuracy=1e-6, save="final")
    graded = run()
    np.testing.assert_allclose(graded.q[-1], [-1 - e, 0.0], atol=1e-7)  # half a turn from the start
    assert graded.success
    monkeypatch.setattr(grading, "WORTH", np.inf)
    assert run().stats.steps > 10 * graded.stats.steps


def test_multipliers_have_an_accuracy_of_their_own():
    p = problem("double-pendulum")
    loose = p.solve(t_end=1.0, accuracy=1e-3)
    tight = p.solve(t_end=1.0, accuracy=1e-3, force_accuracy=1e-7)
    for sol, most in ((loose, 1.0), (tight, 1e-7)):
        exact = p.reference(sol.t)
        size = np.abs(exact.lam).max()
        true = np.abs(sol.lam - np.asarray(exact.lam)).max() / size
        assert true < most
        assert true < 3 * sol.error.lam.max() / size + 1e-9
    assert loose.error.lam.max() > 1e-7 * np.abs(loose.lam).max()
    hit = ga.Event(lambda t, q, v, *args: q[0], terminal=True)
    ended = p.solve(t_end=1.0, accuracy=1e-3, force_accuracy=1e-7, events=hit)
    assert ended.error.lam.max() < 1e-7 * np.abs(ended.lam).max()


@pytest.mark.parametrize("after", [jnp.greater, jnp.greater_equal])
def test_breakpoints_restore_the_order_at_a_jump(after):
    """On whichever side of the jump the force is evaluated at the breakpoint itself."""
    system = ga.System(jnp.eye(1), lambda t, q, v: -q + jnp.where(after(t, 1 / 3), 5.0, 0.0))
    t1, w = 2.0, 2.0 - 1 / 3
    exact = np.cos(t1) + 5 * (1 - np.cos(w))
    sol = ga.solve(system, (0.0, t1), [1.0], [0.0], accuracy=1e-10, breakpoints=[1 / 3])
    assert abs(sol.q[-1, 0] - exact) < 1e-9
    assert 1 / 3 in sol.t
    lost = ga.solve(system, (0.0, t1), [1.0], [0.0], accuracy=1e-10, throw=False, max_steps=50_000)
    assert not lost.success
    assert "breakpoints" in lost.message or "max_steps" in lost.message
    # The error that it states is honest.
    assert abs(lost.q[-1, 0] - exact) < 5 * lost.error.q[-1, 0]


@pytest.mark.slow
def test_error_control_and_named_problems_respect_breakpoints():
    system = ga.System(jnp.eye(1), lambda t, q, v: -q + jnp.where(t > 1 / 3, 5.0, 0.0))
    exact = np.cos(2.0) + 5 * (1 - np.cos(2.0 - 1 / 3))
    run = lambda **options: ga.solve(system, (0.0, 2.0), [1.0], [0.0], rtol=1e-7, **options)
    split, whole = run(breakpoints=[1 / 3]), run()
    assert abs(split.q[-1, 0] - exact) < 1e-6
    assert split.stats.rejected < whole.stats.rejected
    assert np.abs(split.t - 1 / 3).min() < 1e-14
    assert float(split(1.0).a[0]) == pytest.approx(5 - float(split(1.0).q[0]))
    crank = problem("slider-crank")
    sol = crank.solve(accuracy=1e-9)
    assert crank.breakpoints == (0.3,)
    assert 0.3 in sol.t
    assert relative("slider-crank", sol).max() < 2e-9


def test_a_short_load_between_breakpoints_is_seen():
    """A Gaussian of width 1e-3 in 10 s, which no column would sample."""
    load = lambda t: 100 * jnp.exp(-(((t - 3.21) / 1e-3) ** 2))
    system = ga.System(jnp.eye(1), lambda t, q, v: -q + load(t))
    sol = ga.solve(system, (0.0, 10.0), [1.0], [0.0], accuracy=1e-6, breakpoints=[3.204, 3.216])
    push = 100 * 1e-3 * np.sqrt(np.pi)
    assert abs(sol.q[-1, 0] - np.cos(10.0) - push * np.sin(10.0 - 3.21)) < 1e-6


def test_what_rounding_hides_is_not_claimed():
    sol = problem("pendulum").solve(accuracy=2e-14, throw=False)
    assert not sol.success
    assert "rounding" in sol.message
    assert relative("pendulum", sol).max() < 3 * sol.error.norm.max() * 2e-14
    with pytest.raises(ga.IntegrationError, match="the accuracy was not reached"):
        problem("pendulum").solve(accuracy=2e-14)


def test_a_run_continues_and_can_be_stopped_and_saved(tmp_path):
    p = problem("double-pendulum")
    half = p.solve(accuracy=1e-8, t_end=1.0)
    rest = ga.solve(p.system, (1.0, 2.0), state=half.state, args=p.args, accuracy=1e-8)
    assert np.abs(rest.v[-1] - np.asarray(p.reference(2.0).v)).max() < 1e-6
    seen = []
    sol = p.solve(accuracy=1e-6, callback=lambda state: seen.append(float(state.t)) or state.t > 0.5)
    assert sol.message == "the callback ended the run"
    assert sol.t[-1] == seen[-1] > 0.5 >= seen[-2]
    half.save(tmp_path / "half.npz")
    again = ga.load(tmp_path / "half.npz")
    np.testing.assert_array_equal(again.error.lam, half.error.lam)
    assert again.stats == half.stats


@pytest.mark.slow
def test_xla_gives_the_same():
    p = problem("pendulum")
    native, xla = (p.solve(accuracy=1e-5, t_end=0.5, backend=backend) for backend in ("native", "xla"))
    np.testing.assert_allclose(xla.q, native.q, atol=1e-10)
    np.testing.assert_allclose(xla.error.v, native.error.v, rtol=0.05, atol=1e-12)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"accuracy": 0.0}, "at least 1e-14"),
        ({"accuracy": 1e-15}, "at least 1e-14"),
        ({"accuracy": np.nan}, "must not be negative, NaN"),
        ({"accuracy": -1.0}, "must not be negative, NaN"),
        ({"accuracy": 1e-6, "h": 0.1}, "pass either accuracy or h, not both"),
        ({"accuracy": 1e-6, "rtol": 0.1}, "pass either accuracy or rtol, not both"),
        ({"accuracy": 1e-6, "max_steps": 10}, "max_steps = 10 is too small"),
        ({"accuracy": 1e-6, "breakpoints": [0.5, 0.2]}, "increasing times"),
        ({"accuracy": 1e-6, "breakpoints": [2.0]}, "inside of the time span"),
        ({"accuracy": 1e-6, "breakpoints": np.linspace(0.1, 0.9, 20_000)}, "at most 10000 breakpoints"),
        ({"h": 0.1, "breakpoints": [0.5]}, "breakpoints are not possible with h alone"),
        ({"extrapolate": 3}, "extrapolate needs h"),
        ({"extrapolate": 1, "h": 0.1}, "from 2 to 8"),
        (
            {"extrapolate": 3, "h": 0.1, "events": lambda t, q, v: q[0]},
            "events: not possible with extrapolate",
        ),
        ({"accuracy": [1e-6, 1e-6]}, "shape"),
        ({"force_accuracy": 1e-6}, "force_accuracy needs accuracy"),
        ({"accuracy": 1e-6, "force_accuracy": [1e-6]}, "force_accuracy must be a number"),
        ({"accuracy": 1e-6, "force_accuracy": 1e-18}, "force_accuracy must be at least"),
    ],
)
def test_bad_input(options, message):
    system = ga.System(jnp.eye(1), lambda t, q, v: -q)
    with pytest.raises(ValueError, match=message):
        ga.solve(system, (0.0, 1.0), [1.0], [0.0], **options)


def test_steps_by_values_are_refused_under_transforms():
    system = ga.System(jnp.eye(1), lambda t, q, v: -q)
    run = lambda q: ga.solve(system, (0.0, 1.0), q, jnp.zeros(1), accuracy=1e-6).q[-1]
    with pytest.raises(ValueError, match=r"accuracy: not possible under a JAX transform.*extrapolate"):
        jax.jit(run)(jnp.ones(1))


@pytest.mark.slow
def test_under_transforms():
    """Columns and mesh are static."""
    p = problem("pendulum")

    def end(q, **options):
        return ga.solve(p.system, (0.0, 0.4), q, p.v0, args=p.args, initial="project", **options)

    plain = end(np.asarray(p.q0), h=0.04, extrapolate=3)
    jitted = jax.jit(lambda q: end(q, h=0.04, extrapolate=3))(jnp.asarray(p.q0))
    np.testing.assert_allclose(jitted.q, plain.q, atol=1e-11)
    np.testing.assert_allclose(jitted.lam, plain.lam, rtol=1e-8)
    assert int(jitted.status) == 0
    assert jitted.error.v.shape == plain.v.shape


def test_under_jit():
    system = ga.System(jnp.eye(1), lambda t, q, v: -q)
    run = lambda q: ga.solve(system, (0.0, 1.0), q, [0.0], h=0.25, extrapolate=2)
    jitted, plain = jax.jit(run)(jnp.ones(1)), run([1.0])
    np.testing.assert_allclose(jitted.q, plain.q, atol=1e-13)
    assert jitted.error.a.shape == (5, 1)


@pytest.mark.slow
def test_derivatives_of_combinations():
    system = ga.System(jnp.eye(1), lambda t, q, v, k: -k * q)
    end = lambda k: ga.solve(system, (0.0, 2.0), [1.0], [0.0], args=(k,), h=0.1, extrapolate=4).q[-1, 0]
    value, slope = jax.value_and_grad(end)(4.0)
    assert float(value) == pytest.approx(np.cos(4.0), abs=1e-7)
    assert float(slope) == pytest.approx(-np.sin(4.0) * 0.5, abs=1e-6)


def test_a_bad_start_and_a_start_to_project():
    p = problem("pendulum")
    with pytest.raises(ga.InconsistentInitialValues):
        ga.solve(p.system, (0.0, 1.0), 1.1 * np.asarray(p.q0), p.v0, args=p.args, accuracy=1e-6)
    sol = ga.solve(
        p.system, (0.0, 0.1), 1.1 * np.asarray(p.q0), p.v0, args=p.args, accuracy=1e-6, initial="project"
    )
    assert sol.residuals.position.max() < 1e-12
