"""Output of a run: times, dense output, every k-th row, chosen quantities, callback, progress."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from conftest import problem
from genalpha.backends import loop

TIMES = np.linspace(0.013, 0.47, 41)


def solve(name="wheel-on-rod", *, t_end=0.5, **options):
    p = problem(name)
    return ga.solve(p.system, (0.0, t_end), p.q0, p.v0, args=p.args, **options)


def errors_between(name, h, method):
    """Largest errors of q, v, λ, ψ between the steps, and of the constraints there."""
    p = problem(name)
    sol = solve(name, t_end=0.5 if name != "heavy-top" else 0.1, h=h, method=method)
    times = sol.t[:-1] + 0.37 * np.diff(sol.t)
    times = times[:: max(1, len(times) // 12)]
    here, exact = sol(times), p.reference(times)
    difference = np.array([p.system.space.difference(a, b) for a, b in zip(exact.q, here.q, strict=True)])
    parts = [difference, here.v - exact.v]
    parts += [x - y for x, y in ((here.lam, exact.lam), (here.psi, exact.psi)) if x.shape[1]]
    of = functools.partial(jax.vmap, in_axes=(0, 0))
    system, args = p.system, p.args
    position = of(lambda t, q: system.g(t, q, args))(times, here.q)
    velocity = jax.vmap(lambda t, q, v: system.g_dot(t, q, v, args))(times, here.q, here.v)
    return [np.abs(x).max() for x in parts], [np.abs(position).max(), np.abs(velocity).max()]


@pytest.mark.parametrize(
    ("name", "method", "steps"),
    [
        ("wheel-on-rod", "soi2", [0.02, 0.01, 0.005, 0.0025]),
        pytest.param("heavy-top", "stabilized", [2e-3, 1e-3, 5e-4, 2.5e-4], marks=pytest.mark.slow),
    ],
)
def test_the_interpolant_has_the_order_of_the_method(name, method, steps):
    found = [errors_between(name, h, method) for h in steps]
    slope = lambda column: np.polyfit(np.log(steps), np.log(column), 1)[0]
    orders = [slope(column) for column in np.transpose([motion for motion, _ in found])]
    assert min(orders) > 1.9, orders
    # Constraints hold between the steps far better than the motion is exact.
    position, velocity = (slope(column) for column in np.transpose([rows for _, rows in found]))
    assert position > 3.7
    assert velocity > 2.7


@pytest.mark.parametrize("name", ["wheel-on-rod", "heavy-top"])
def test_the_interpolant_meets_the_steps(name):
    sol = solve(name, t_end=0.05, h=1e-3)
    here = sol(sol.t)
    for one in ("q", "v", "lam", "psi"):
        np.testing.assert_allclose(getattr(here, one), getattr(sol, one), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(here.a, sol.a, rtol=0.05, atol=0.05 * np.abs(sol.a).max())
    if name == "heavy-top":
        between = sol(sol.t[:-1] + 4e-4)
        np.testing.assert_allclose(np.linalg.norm(between.q[:, 3:], axis=1), 1.0, atol=1e-14)


@pytest.mark.parametrize(
    "options",
    [{"h": 0.01}, {"rtol": 1e-4}, pytest.param({"h": 0.01, "backend": "xla"}, marks=pytest.mark.slow)],
)
def test_t_eval_is_the_dense_output_at_those_times(options, monkeypatch):

    monkeypatch.setattr(loop, "ROOM", 7)  # several blocks
    whole, sol = solve(**options), solve(t_eval=TIMES, **options)
    assert (sol.t == TIMES).all()
    expected = whole(TIMES)
    for name in ("q", "v", "lam", "psi"):
        np.testing.assert_allclose(getattr(sol, name), getattr(expected, name), rtol=1e-13, atol=1e-13)
    assert sol.stats == whole.stats
    assert sol.a.shape == (41, 4)
    assert sol.residuals.position.max() < 1e-6
    with pytest.raises(ValueError, match="dense_output=True"):
        sol(0.2)


def test_t_eval_with_both_ends_and_dense_output():
    sol = solve(h=0.01, t_eval=[0.0, 0.25, 0.5], dense_output=True)
    whole = solve(h=0.01)
    assert sol.t.tolist() == [0.0, 0.25, 0.5]
    np.testing.assert_allclose(sol.q, whole.q[[0, 25, 50]], rtol=1e-13)
    assert sol.t_alpha[0] == whole.t_alpha[0]
    np.testing.assert_array_equal(sol(TIMES).q, whole(TIMES).q)


def test_every_kth_step_and_the_last():
    whole = solve(h=0.01)
    for save, index in ((7, [*range(0, 50, 7), 50]), (10, range(0, 51, 10)), ("final", [50]), (100, [0, 50])):
        sol = solve(h=0.01, save=save)
        for name in ("t", "q", "v", "a", "a_alpha", "t_alpha", "lam", "psi"):
            np.testing.assert_array_equal(getattr(sol, name), getattr(whole, name)[list(index)], name)
        np.testing.assert_array_equal(sol.residuals.velocity, whole.residuals.velocity[list(index)])
        assert sol.stats == whole.stats


def test_chosen_quantities():
    whole = solve(rtol=1e-3)
    sol = solve(rtol=1e-3, save=["q", "residuals", "errors"])
    np.testing.assert_array_equal(sol.q, whole.q)
    np.testing.assert_array_equal(sol.residuals.position, whole.residuals.position)
    np.testing.assert_array_equal(sol.errors.v, whole.errors.v)
    assert sol.v is None
    assert sol.lam is None
    thin = solve(rtol=1e-3, save=(5, ["lam"]), t_eval=None)
    np.testing.assert_array_equal(thin.lam[:-1], whole.lam[::5][: len(thin.lam) - 1])
    assert thin.q is None


def test_chosen_entries():
    whole = solve(rtol=1e-3)
    sol = solve(rtol=1e-3, save={"q": [1], "reactions": [0], "errors": [1], "newton": None})
    np.testing.assert_array_equal(sol.q, whole.q[:, [1]])
    np.testing.assert_array_equal(sol.reactions.total, whole.reactions.total[:, [0]])
    np.testing.assert_array_equal(sol.errors.v, whole.errors.v[:, [1]])
    np.testing.assert_array_equal(sol.errors.norm, whole.errors.norm)
    np.testing.assert_array_equal(sol.newton.iterations, whole.newton.iterations)
    assert sol.lam is None
    sampled = solve(rtol=1e-3, t_eval=TIMES, save={"v": [1, 0]}, dense_output=True)
    np.testing.assert_array_equal(sampled.v, solve(rtol=1e-3, t_eval=TIMES).v[:, [1, 0]])
    np.testing.assert_array_equal(sampled(TIMES).q, whole(TIMES).q)


def test_a_solution_with_dense_output_survives_a_file(tmp_path):
    for options in ({}, {"t_eval": TIMES, "dense_output": True}, {"save": ["q", "lam"]}):
        sol = solve(rtol=1e-3, **options)
        sol.save(tmp_path / "run.npz")
        again = ga.load(tmp_path / "run.npz")
        np.testing.assert_array_equal(again.q, sol.q)
        if "save" in options:
            assert again.v is None
        else:
            np.testing.assert_array_equal(again(0.3).q, sol(0.3).q)
            np.testing.assert_array_equal(again.errors.norm, sol.errors.norm)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"t_eval": [0.0, 0.6]}, ValueError, "beyond the time span"),
        ({"t_eval": [0.2, 0.1]}, ValueError, "must increase"),
        ({"t_eval": []}, ValueError, "one-dimensional"),
        ({"t_eval": "now"}, TypeError, "array of times"),
        ({"t_eval": [0.1], "save": 3}, ValueError, "pass either t_eval or save, not both"),
        ({"save": 0}, ValueError, "save must be"),
        ({"save": ["speed"]}, ValueError, "unknown quantity in save 'speed'"),
        ({"save": {"speed": [0]}}, ValueError, "unknown quantity in save 'speed'"),
        ({"save": {"q": [4]}}, ValueError, "q in save asks for entry 4, but there are 4"),
        ({"save": {"newton": [0]}}, ValueError, "newton in save is kept whole"),
        ({"save": {"q": 0}}, TypeError, "list of whole numbers"),
        ({"save": {"q": [0.5]}}, TypeError, "list of whole numbers"),
        ({"dense_output": "yes"}, TypeError, "dense_output"),
        ({"callback": 3}, TypeError, "callback must be a function"),
        ({"callback": print, "callback_every": 0}, ValueError, "callback_every"),
    ],
)
def test_bad_requests(options, error, message):
    with pytest.raises(error, match=message):
        solve(h=0.01, **options)


def test_times_outside_of_the_run():
    with pytest.raises(ValueError, match=r"reaches from t = 0 to 0\.5"):
        solve(h=0.1)(0.6)


# --- under transforms ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"h": 0.01}, {"rtol": 1e-4, "max_steps": 200}])
def test_output_under_jit(options):
    plain = {k: v for k, v in options.items() if k != "max_steps"}
    run = functools.partial(
        ga.solve, systems.pulled(), (0.0, 0.5), jnp.array([1.0, 0.0]), jnp.zeros(2), args=(9.81,)
    )
    whole = run(**plain)  # XLA may choose other steps, by rounding
    sampled = jax.jit(lambda: run(t_eval=TIMES, **options))()
    np.testing.assert_allclose(sampled.q, whole(TIMES).q, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(sampled.lam, whole(TIMES).lam, rtol=1e-6, atol=1e-9)
    final = jax.jit(lambda: run(save="final", **options))()
    np.testing.assert_allclose(final.q, whole.q[-1:], rtol=1e-9, atol=1e-11)
    inside = jax.jit(lambda t: run(**options)(t).q)(jnp.array(0.3))
    np.testing.assert_allclose(inside, whole(0.3).q, rtol=1e-9, atol=1e-11)
    with pytest.raises(ValueError, match="under a JAX transform"):
        jax.jit(lambda: run(callback=print, **options))()


@pytest.mark.slow
def test_derivatives_of_what_was_interpolated():
    p = problem("pendulum")

    def height(v0):
        sol = ga.solve(p.system, (0.0, 0.5), p.q0, v0, args=p.args, h=0.01, t_eval=[0.231])
        return sol.q[0, 1]

    v0 = jnp.asarray(p.v0)
    tangent = jnp.asarray(ga.project_velocity(p.system, 0.0, p.q0, [0.3, -0.2, 0.1], args=p.args) * 1e-3)
    slope = jax.jvp(height, (v0,), (tangent,))[1]
    assert np.isfinite(slope)
    np.testing.assert_allclose(slope, jnp.vdot(jax.grad(height)(v0), tangent), rtol=1e-8)


# --- callback and progress ------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_the_callback_sees_every_kth_step_and_may_stop(backend):
    seen = []
    sol = solve(h=0.01, backend=backend, callback=seen.append, callback_every=20)
    assert [round(float(s.t), 12) for s in seen] == [0.2, 0.4]
    np.testing.assert_array_equal(seen[1].q, sol.q[40])
    np.testing.assert_array_equal(seen[1].lam, sol.lam[40])
    stopped = solve(h=0.01, backend=backend, callback=lambda s: s.t > 0.25)
    assert stopped.success
    assert stopped.status != 0
    assert "callback" in stopped.message
    assert len(stopped.t) == stopped.stats.steps + 1 == 27
    np.testing.assert_array_equal(stopped.q, sol.q[:27])
    controlled = solve(rtol=1e-4, backend=backend, callback=lambda s: s.t > 0.25)
    assert 0.25 < controlled.t[-1] < 0.5


def test_an_error_in_the_callback_comes_through():
    def broken(state):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        solve(h=0.1, callback=broken)


def test_progress_draws_a_bar(capsys):
    solve(h=1e-4, progress=True)
    text = capsys.readouterr().err
    assert text.rstrip().endswith("t = 0.5 of 0.5, 5000 steps")  # spaces hide what was drawn before
    assert "█" * 40 in text
    solve(rtol=1e-4, t_eval=[0.1], progress=True)
    assert "t = 0.5 of 0.5" in capsys.readouterr().err
    solve(h=1e-2)
    assert capsys.readouterr().err == ""


# --- solutions of which little was kept -----------------------------------------------------------------


@pytest.mark.parametrize("options", [{"save": 3}, {"save": ["q"]}, {"save": ["lam"]}, {"t_eval": [0.1]}])
def test_solutions_with_few_rows_can_be_printed_and_report_failures(options):
    assert "reached the end" in repr(solve(h=0.01, **options))
    start = ((0.0, 2.0), [1.0, 0.0], [0.0, 0.0])
    for steps in ({"h": 0.01}, {"rtol": 1e-3}):
        sol = ga.solve(systems.ending(), *start, args=(1.0,), throw=False, **steps, **options)
        assert not sol.success
        assert "force[0] is nan" in sol.message
        assert repr(sol)
    if "t_eval" not in options and options["save"] != 3:
        with pytest.raises(ValueError, match="a plot needs"):
            solve(h=0.01, **options).plot()


@pytest.mark.slow
def test_saved_events_and_dense_output_at_no_time(tmp_path):
    system = systems.oscillator()
    zero, half = (lambda t, q, v: q[0]), (lambda t, q, v: q[0] - 0.5)
    sol = ga.solve(system, (0.0, 6.0), [1.0], [0.0], events=[zero, half, lambda t, q, v: q[0] + 0.9])
    sol.save(tmp_path / "run.npz")
    again = ga.load(tmp_path / "run.npz")
    for kept, told in zip(again.q_events, sol.q_events, strict=True):
        np.testing.assert_array_equal(kept, told)
    assert sol(np.zeros(0)).q.shape == (0, 1)
    np.testing.assert_allclose(jax.grad(lambda t: sol(t).q[0])(1.0), sol(1.0).v[0], rtol=1e-10)
    other = ga.solve(system, (0.0, 6.0), [1.0], [0.0], events=[zero, half, lambda t, q, v: q[0] + 0.9])
    assert jax.tree.structure(sol) == jax.tree.structure(other)


def test_times_beyond_the_end_by_rounding_are_the_end():
    run = lambda times, t1=0.3: ga.solve(systems.oscillator(), (0.0, t1), [1.0], [0.0], t_eval=times)
    assert run(np.arange(4) * 0.1).t[-1] == 0.3 < 3 * 0.1
    with pytest.raises(
        ValueError, match=r"from 3\.0000001 to 3\.0000001, beyond the time span \(0\.0, 3\.0\)"
    ):
        run([3.0000001], 3.0)
    with pytest.raises(ValueError, match="differ from an end of the time span only by rounding"):
        run([0.3, 3 * 0.1])
