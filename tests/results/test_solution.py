"""The contents of a solution, and files of solutions."""

from dataclasses import fields

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from conftest import problem, run
from genalpha.results import picking
from genalpha.results.files import parts


def test_shapes_and_times():
    sol = run("wheel-on-rod", t_end=1.0, h=0.3)  # does not divide the span: the last step is shorter
    n, m, p = 4, 1, 2
    np.testing.assert_allclose(sol.t, [0, 0.3, 0.6, 0.9, 1.0])
    assert sol.t[0] == 0.0
    assert sol.t[-1] == 1.0
    for field, width in (("q", n), ("v", n), ("a", n), ("a_alpha", n), ("lam", m), ("psi", p)):
        assert getattr(sol, field).shape == (5, width), field
    for part in (*sol.residuals, sol.t_alpha):
        assert part.shape == (5,)
    for part in sol.reactions:
        assert part.shape == (5, n)
    alpha = ga.chung_hulbert(0.8).alpha
    np.testing.assert_allclose(sol.t_alpha[1:], sol.t[1:] + alpha * np.diff(sol.t))
    assert (sol.stats.steps, sol.stats.rejected) == (4, 0)
    assert (sol.success, sol.status, sol.extra) == (True, 0, {})
    assert "reached the end" in sol.message
    assert "soi2" in repr(sol)


def test_a_remainder_below_1e_9_is_spread():
    sol = run("spring-chain", t_end=1.0, h=0.1 * (1 + 1e-11))
    assert sol.stats.steps == 10
    np.testing.assert_allclose(np.diff(sol.t), 0.1, rtol=1e-12)
    assert run("spring-chain", t_end=1.0, h=0.1 * (1 - 1e-6)).stats.steps == 11


def test_a_span_that_does_not_start_at_zero():
    p = problem("spring-chain")
    shifted = ga.solve(p.system, (-3.0, -2.0), p.q0, p.v0, h=0.1, args=p.args)
    plain = ga.solve(p.system, (0.0, 1.0), p.q0, p.v0, h=0.1, args=p.args)
    np.testing.assert_allclose(shifted.q, plain.q, atol=1e-12)
    assert shifted.t[-1] == -2.0


@pytest.mark.parametrize("name", ["wheel-on-rod", "jay-negrut", "pendulum"])
def test_accelerations_solve_the_equations_of_motion(name):
    p, sol = problem(name), run(name, t_end=0.2)
    for i in (0, 3, -1):
        t, q, v, lam, psi = (x[i] for x in (sol.t, sol.q, sol.v, sol.lam, sol.psi))
        force = p.system.f(t, q, v, lam, psi, p.args)
        np.testing.assert_allclose(p.system.M(t, q, p.args) @ sol.a[i], force, rtol=1e-10, atol=1e-9)


def test_residuals_are_those_of_the_constraints():
    p, sol, i = problem("wheel-on-rod"), run("wheel-on-rod", t_end=0.2), 5
    t, q, v = sol.t[i], sol.q[i], sol.v[i]
    expected = [p.system.g(t, q, p.args), p.system.g_dot(t, q, v, p.args), p.system.k(t, q, v, p.args)]
    for residual, value in zip(sol.residuals, expected, strict=True):
        assert residual[i] == pytest.approx(float(np.abs(value).max()), abs=1e-14)
    assert sol.residuals.position.max() < 1e-14
    assert max(sol.residuals.velocity.max(), sol.residuals.nonholonomic.max()) < 1e-12
    wrong = p.q0 + 1e-3
    off = ga.solve(p.system, (0, 0.1), wrong, p.v0, h=0.05, args=p.args, initial="assume")
    assert off.residuals.position[0] == pytest.approx(float(np.abs(p.system.g(0.0, wrong, p.args)).max()))


def test_absent_constraints_give_empty_arrays_and_zero_residuals():
    sol = run("spring-chain", t_end=0.1)
    assert sol.lam.shape == (len(sol.t), 0)
    assert sol.psi.shape == (len(sol.t), 0)
    for part in sol.residuals:
        np.testing.assert_array_equal(part, np.zeros(len(sol.t)))
    for part in sol.reactions:
        np.testing.assert_array_equal(part, np.zeros((len(sol.t), 5)))


def test_reaction_forces_are_newtons_missing_forces():
    """−Gᵀλ − Kᵀψ is what M a lacks; the pendulum's pin carries weight and centripetal force."""
    p, sol = problem("wheel-on-rod"), run("wheel-on-rod", t_end=0.2)
    i = 7
    G, K = p.system.G(sol.t[i], sol.q[i], p.args), p.system.K(sol.t[i], sol.q[i], sol.v[i], p.args)
    np.testing.assert_allclose(sol.reactions.holonomic[i], -G.T @ sol.lam[i], atol=1e-12)
    np.testing.assert_allclose(sol.reactions.nonholonomic[i], -K.T @ sol.psi[i], atol=1e-12)
    np.testing.assert_allclose(sol.reactions.total, sol.reactions.holonomic + sol.reactions.nonholonomic)
    hanging = ga.System(
        np.eye(2) * 3, lambda t, q, v: jnp.array([0, -30.0]), lambda t, q: jnp.array([q @ q - 4])
    )
    rest = ga.solve(hanging, (0, 1), [0.0, -2.0], [0.0, 0.0], h=0.1)
    np.testing.assert_allclose(rest.reactions.total, np.tile([0, 30.0], (11, 1)), atol=1e-10)
    custom = run("jay-negrut", t_end=0.1)
    system = problem("jay-negrut").system
    expected = system.reactions(custom.t[3], custom.q[3], custom.v[3], custom.lam[3], custom.psi[3])
    np.testing.assert_allclose(custom.reactions.total[3], expected, atol=1e-12)


def test_save_and_load_without_loss(tmp_path):
    sol = run("wheel-on-rod", t_end=0.3)
    path = tmp_path / "run.genalpha"  # any name will do
    sol.save(path)
    again = ga.load(path)
    ours, theirs = parts(sol), parts(again)
    assert ours.keys() == theirs.keys()
    for name, value in ours.items():
        other = theirs[name]
        assert np.asarray(value).dtype == np.asarray(other).dtype, name
        np.testing.assert_array_equal(value, other, err_msg=name)
    assert again.method == sol.method
    assert again.stats == sol.stats
    assert again.success
    assert again.message == sol.message


def test_save_and_load_of_a_partial_solution(tmp_path):
    system = ga.System(np.eye(1), lambda t, q, v: jnp.where(t > 0.5, jnp.nan, -q))
    sol = ga.solve(system, (0, 1), [1.0], [0.0], h=0.1, throw=False)
    sol.save(tmp_path / "part.npz")
    again = ga.load(tmp_path / "part.npz")
    assert not again.success
    assert again.message == sol.message


def test_load_refuses_other_files(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "text.txt").write_text("hello")
    for name in ("other.npz", "array.npy", "text.txt"):
        with pytest.raises(ValueError, match="was not written by genalpha"):
            ga.load(tmp_path / name)


def test_plot_shows_what_there_is(tmp_path):
    sol = run("wheel-on-rod", t_end=0.3)
    figure = sol.plot(names=problem("wheel-on-rod").coordinates)
    titles = [ax.get_ylabel() for ax in figure.axes]
    assert titles == ["coordinates", "velocities", "multipliers", "constraint residuals"]
    lines = figure.axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["x", "y", "θ", "φ"]
    np.testing.assert_array_equal(lines[1].get_ydata(), sol.q[:, 1])
    assert figure.axes[3].get_yscale() == "log"
    assert len(run("spring-chain", t_end=0.1).plot().axes) == 2
    with pytest.raises(ValueError, match="names has 1 entries for 4"):
        sol.plot(names=["x"])


def test_batches_have_a_length_and_members_in_order():
    many = ga.solve_batch(systems.oscillator(), (0.0, 1.0), [[1.0], [2.0], [3.0]], [0.0], h=0.1, save="all")
    assert len(many) == 3
    assert [float(one.q[0, 0]) for one in many] == [1.0, 2.0, 3.0]
    assert many
    one = many[0]
    assert one
    with pytest.raises(TypeError, match="not a batch"):
        len(one)
    with pytest.raises(TypeError, match="not a batch"):
        list(one)


def test_batches_have_members(tmp_path):
    system = ga.System(np.eye(1), lambda t, q, v, tc: jnp.where(t > tc, jnp.nan, -q))
    batch = jax.vmap(lambda tc: ga.solve(system, (0, 1), [1.0], [0.0], h=0.1, args=(tc,)))(
        jnp.array([0.45, 2.0])
    )
    assert batch.message == "1 of 2 runs reached the end of the time span"
    assert "1 of 2" in repr(batch)
    assert "stopped after t = 0.4 (step 4)" in batch[0].message
    assert batch[1].success
    assert batch[1].plot().axes
    with pytest.raises(TypeError, match=r"sol\[0\].plot"):
        batch.plot()
    with pytest.raises(TypeError, match="single run"):
        batch[1][0]
    batch.save(tmp_path / "batch.npz")
    again = ga.load(tmp_path / "batch.npz")
    np.testing.assert_array_equal(again.q, batch.q)
    assert again[0].message == batch[0].message


def test_t_alpha_of_a_run_that_fails_in_its_first_step():
    system = ga.System(np.eye(1), lambda t, q, v: jnp.where(t > 0.01, jnp.nan, 1 + t)[None])
    sol = ga.solve(system, (0, 1), [0.0], [0.0], h=0.1, throw=False)
    assert sol.a_alpha[0, 0] == pytest.approx(1 + sol.t_alpha[0])
    assert sol.t_alpha[0] < 0


@pytest.mark.parametrize(
    "how",
    [
        {"h": 0.01, "save": "all", "method": "stabilized"},
        {"rtol": 1e-4, "t_eval": np.linspace(0, 1, 7)},
        {"accuracy": 1e-4, "t_eval": np.linspace(0, 1, 7)},
    ],
    ids=str,
)
def test_all_fields_with_rows_are_known(how):
    """Members are cut at their own last row: a new field with rows must be listed too."""
    pendulum = systems.pendulum()
    batch = ga.solve_batch(
        pendulum, (0.0, 1.0), [[1.0, 0.0]] * 2, [[0.0, 0.0], [0.0, 1.0]], args=(1.0,), **how
    )
    rows = batch.t.shape[1:]
    leaves = {field.name: jax.tree.leaves(getattr(batch, field.name)) for field in fields(batch)}
    found = {name for name, own in leaves.items() if any(np.shape(x)[1:2] == rows for x in own)}
    assert {"t", "q"} < found <= set(picking._ROWS)


@pytest.mark.parametrize("how", [{"t_eval": [0.9, 0.95]}, {"save": "final"}], ids=str)
def test_a_member_that_failed_before_the_first_row_has_none(how):
    system = ga.System(np.eye(1), lambda t, q, v, tc: jnp.where(t > tc, jnp.nan, -q))
    batch = ga.solve_batch(system, (0.0, 1.0), [1.0], [0.0], h=0.01, args=(np.array([0.5, 2.0]),), **how)
    lost, whole = batch
    assert lost.t.shape == (0,)
    assert lost.q.shape == lost.a.shape == (0, 1)
    assert lost.t_end == pytest.approx(0.5)
    assert "no times" in repr(lost)
    assert len(whole.t) == batch.t.shape[1]
    assert np.isfinite(whole.q).all()
