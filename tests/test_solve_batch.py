"""solve_batch: members equal single runs, failures affect no other member; axes, kept rows, chunks."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from conftest import problem
from genalpha.backends.batch import lanes
from genalpha.numerics import codes

SPAN = (0.0, 0.2)


def pendulum():
    return ga.System(
        mass=lambda t, q, m, length: m * jnp.eye(2),
        force=lambda t, q, v, m, length: m * jnp.array([0.0, -9.81]),
        holonomic=lambda t, q, m, length: jnp.array([q @ q - length**2]),
    )


PENDULUM = pendulum()
LENGTHS = np.linspace(0.5, 2.0, 19)  # not a multiple of the lanes
STARTS = np.stack([LENGTHS, 0 * LENGTHS], axis=1)


def batch(**options):
    options = {"args": (1.5, LENGTHS), "h": 0.01} | options
    return ga.solve_batch(
        options.pop("system", PENDULUM), SPAN, options.pop("q0", STARTS), [0.0, 0.0], **options
    )


def single(i, **options):
    return ga.solve(PENDULUM, SPAN, STARTS[i], [0.0, 0.0], h=0.01, args=(1.5, LENGTHS[i]), **options)


def assert_members_equal(many, kept, exact=True):
    for i in range(len(LENGTHS)):
        one, member = single(i), many[i]
        for name in (
            "t",
            "q",
            "v",
            "a",
            "a_alpha",
            "t_alpha",
            "lam",
            "psi",
            "residuals",
            "reactions",
            "extra",
        ):
            for a, b in zip(
                jax.tree.leaves(getattr(member, name)), jax.tree.leaves(getattr(one, name)), strict=True
            ):
                if exact:
                    np.testing.assert_array_equal(a, b[kept], err_msg=name)
                else:
                    np.testing.assert_allclose(a, b[kept], rtol=1e-10, atol=1e-10, err_msg=name)
        assert member.stats == one.stats
        assert member.success
        assert member.message == one.message


@pytest.mark.parametrize(
    ("save", "kept"), [("final", [20]), ("all", range(21)), (5, [0, 5, 10, 15, 20]), (8, [0, 8, 16, 20])]
)
def test_members_are_what_single_runs_give_bit_by_bit(save, kept):
    many = batch(save=save)
    assert many.backend == "native"
    assert many.q.shape == (19, len(kept), 2)
    assert many.status.shape == (19,)
    assert_members_equal(many, list(kept))


def test_xla_gives_the_same():
    many = batch(save=5, backend="xla")
    assert many.backend == "xla"
    assert_members_equal(many, [0, 5, 10, 15, 20], exact=False)


def test_every_method_and_kind_of_constraint_in_lanes():
    for name, method in (("wheel-on-rod", "soi2"), ("heavy-top", "stabilized"), ("rolling-disk", "index3")):
        p = problem(name)
        v0 = p.v0 * np.linspace(1.0, 1.05, 5)[:, None]
        t_end = p.t_span[0] + 20 * p.h
        args = (p.system, (p.t_span[0], t_end))
        many = ga.solve_batch(*args, p.q0, v0, h=p.h, args=p.args, method=method, initial="assume")
        for i in (0, 4):
            one = ga.solve(*args, p.q0, v0[i], h=p.h, args=p.args, method=method, initial="assume")
            np.testing.assert_array_equal(many.q[i, -1], one.q[-1])
            np.testing.assert_array_equal(many.lam[i, -1], one.lam[-1])


def test_the_result_does_not_depend_on_chunks(monkeypatch):
    whole = batch(save=5)
    monkeypatch.setattr(lanes, "CHUNK", 8)
    parts = batch(save=5)
    assert all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True)
    )


# --- failures ---------------------------------------------------------------------------------------


def members_that_fail(**options):
    """One becomes NaN half-way, one starts off the constraints, one has a mass that is NaN."""
    m, end = np.ones(11), np.full(11, 9.0)
    q0 = np.tile([1.0, 0.0], (11, 1))
    end[3], q0[5], m[7] = 0.105, [1.1, 0.0], np.nan
    return ga.solve_batch(MORTAL, SPAN, q0, [0.0, 0.0], h=0.01, args=(m, end), save=5, **options)


MORTAL = ga.System(
    mass=lambda t, q, m, end: m * jnp.eye(2),
    force=lambda t, q, v, m, end: jnp.where(t > end, jnp.nan, m * jnp.array([0.0, -9.81])),
    holonomic=lambda t, q, m, end: jnp.array([q @ q - 1.0]),
)


@pytest.mark.slow
def test_members_that_fail_are_marked_by_xla_too():
    assert members_that_fail(backend="xla").status.tolist() == members_that_fail().status.tolist()


def test_members_that_fail_are_marked_and_disturb_nobody():
    many = members_that_fail()
    expected = np.zeros(11, dtype=int)
    expected[[3, 5, 7]] = codes.NOT_FINITE, codes.INCONSISTENT, codes.NOT_FINITE
    assert many.status.tolist() == expected.tolist()
    assert many.message == "8 of 11 runs reached the end of the time span"
    assert many.stats.steps[[0, 3]].tolist() == [20, 10]
    assert many[3].message.startswith("stopped after t = 0.1 (step 10): a force")
    assert np.isfinite(many.q[3, :3]).all()
    assert np.isnan(many.q[3, 3:]).all()
    assert np.isnan(many.a[3, 3:]).all()
    good = ga.solve(MORTAL, SPAN, [1.0, 0.0], [0.0, 0.0], h=0.01, args=(1.0, 9.0))
    for i in np.flatnonzero(expected == 0):
        np.testing.assert_array_equal(many.q[i], good.q[::5])


def test_members_that_need_other_pivots_run_alone():
    """The first mass vanishes at t = 1 for some members only."""
    system = systems.fading()
    options = {"h": 1 / 64, "method": "index3", "newton": ga.Newton("full")}
    gone = np.array([3.0, 1.0, 5.0, 1.5, 4.0])
    many = ga.solve_batch(system, (0.0, 2.0), [0.0, 0.0], [0.0, 0.0], args=(gone,), save=32, **options)
    assert many.success.all()
    for i in range(5):
        one = ga.solve(system, (0.0, 2.0), [0.0, 0.0], [0.0, 0.0], args=(gone[i],), backend="xla", **options)
        np.testing.assert_allclose(many.q[i], one.q[::32], atol=1e-12)
        assert many.stats.steps[i] == 128


def test_redundant_members_are_marked():
    system = ga.System(
        mass=np.eye(2),
        force=lambda t, q, v, c: jnp.zeros(2),
        holonomic=lambda t, q, c: jnp.array([q[0], c * q[1] + q[0]]),
    )
    many = ga.solve_batch(system, SPAN, [0.0, 0.0], [0.0, 0.0], h=0.01, args=(np.array([1.0, 0.0, 2.0]),))
    assert many.status.tolist() == [0, codes.SINGULAR, 0]
    assert np.isnan(many.q[1]).all()


def test_where_no_member_can_start_the_reason_is_raised():
    with pytest.raises(ga.InconsistentInitialValues, match="d/dt holonomic") as error:
        ga.solve_batch(PENDULUM, SPAN, STARTS, [1.0, 0.0], h=0.01, args=(1.0, LENGTHS))
    assert "No member of the batch" in error.value.__notes__[0]
    moved = ga.solve_batch(PENDULUM, SPAN, STARTS, [1.0, 0.0], h=0.01, args=(1.0, LENGTHS), initial="project")
    assert moved.success.all()
    assert np.abs(moved.residuals.velocity).max() < 1e-10


def test_rotations_of_members():
    p = problem("heavy-top")
    q0 = np.tile(p.q0, (3, 1))
    q0[1, 3:] *= 2
    many = ga.solve_batch(p.system, (0.0, 0.01), q0, p.v0, h=1e-3, args=p.args)
    assert many.status.tolist() == [0, codes.NOT_A_ROTATION, 0]


# --- axes -----------------------------------------------------------------------------------------------


def test_axes_that_disagree_are_named():
    with pytest.raises(ValueError, match=r"q0 19, args\[0\] 18"):
        batch(args=(np.ones(18), 1.0))
    with pytest.raises(ValueError, match=r"q0 19, v0 3"):
        ga.solve_batch(PENDULUM, SPAN, STARTS, np.zeros((3, 2)), h=0.01, args=(1.0, LENGTHS))
    with pytest.raises(ValueError, match=r"q0 19, args\[1\] 18"):
        batch(args=(1.0, LENGTHS[:18]), args_axes=(None, 0))


def test_nothing_that_varies_is_refused():
    with pytest.raises(ValueError, match="nothing varies"):
        ga.solve_batch(PENDULUM, SPAN, STARTS[0], [0.0, 0.0], h=0.01, args=(1.0, 0.5))


def test_a_shared_vector_is_told_from_one_that_varies():
    """A vector g (2,) that all share, and masses that vary. With two members only args_axes can tell."""
    system = ga.System(
        mass=lambda t, q, m, g: m * jnp.eye(2), force=lambda t, q, v, m, g: m * g + jnp.array([m, 0.0])
    )
    g = np.array([0.0, -9.81])
    for count, axes in ((2, (0, None)), (5, "auto")):
        m = np.arange(1.0, count + 1)
        many = ga.solve_batch(system, SPAN, [0.0, 0.0], [0.0, 0.0], h=0.1, args=(m, g), args_axes=axes)
        assert many.q.shape == (count, 1, 2)
        np.testing.assert_allclose(many.q[:, -1], np.tile([0.02, -0.1962], (count, 1)), atol=1e-12)
    named = ga.solve_batch(system, SPAN, [0.0, 0.0], [0.0, 0.0], h=0.1, args=(m, g), args_axes=(0, None))
    np.testing.assert_array_equal(named.q, many.q)


def test_trees_of_arguments():
    system = ga.System(np.eye(1), lambda t, q, v, p: -p["k"] * q * p["c"][0])
    k = np.array([1.0, 2.0, 3.0])
    args = ({"k": k, "c": np.array([1.0, 7.0])},)
    many = ga.solve_batch(system, (0, 1), [1.0], [0.0], h=0.01, args=args)
    np.testing.assert_allclose(many.q[:, -1, 0], np.cos(np.sqrt(k)), atol=1e-3)
    same = ga.solve_batch(system, (0, 1), [1.0], [0.0], h=0.01, args=args, args_axes=({"k": 0, "c": None},))
    np.testing.assert_array_equal(same.q, many.q)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"args_axes": "all"}, 'args_axes must be "auto"'),
        ({"args_axes": (1, None)}, "args_axes must hold 0"),
        ({"args_axes": (0,)}, "args_axes does not match args"),
        ({"args_axes": (0, 0)}, "for a number"),
        ({"save": 0}, "save must be"),
        ({"save": "last"}, "save must be"),
        ({"backend": "gpu"}, "backend must be one of"),
        ({"q0": np.full((19, 2), np.nan)}, r"q0\[0\] holds NaN"),
        ({"q0": np.zeros((0, 2))}, "q0 must have shape"),
        ({"q0": np.zeros((3, 2, 2))}, "q0 must have shape"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        batch(**options)


@pytest.mark.slow
def test_integers_that_vary_fall_back():
    system = ga.System(np.eye(1), lambda t, q, v, n: -q * n)
    many = ga.solve_batch(system, (0, 1), [1.0], [0.0], h=0.01, args=(np.array([1, 2, 3]),))
    assert many.backend == "xla"
    assert "integer" in many.stats.fallback
    np.testing.assert_allclose(many.q[:, -1, 0], np.cos(np.sqrt([1, 2, 3])), atol=1e-3)


@pytest.mark.slow
def test_systems_without_a_scalar_form_fall_back_with_the_reason():
    system = ga.System(np.eye(2), lambda t, q, v, k: -k * jnp.sort(q))
    many = ga.solve_batch(system, (0, 1), [1.0, 1.0], [0.0, 0.0], h=0.01, args=(np.array([1.0, 2.0]),))
    assert many.backend == "xla"
    assert "sort" in many.stats.fallback


def test_progress_is_shown_on_one_line(capsys, monkeypatch):
    monkeypatch.setattr(lanes, "CHUNK", 8)
    batch(progress=True)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.endswith("19 of 19 systems\n")


def test_under_a_transform_vmap_is_recommended():
    with pytest.raises(TypeError, match=r"jax\.vmap of ga\.solve"):
        jax.jit(lambda q: batch(q0=q).q)(STARTS)


def test_cuda_without_cupy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(ImportError, match=r'pip install "genalpha\[cuda12\]"'):
        batch(backend="cuda")


def test_batches_are_saved_and_loaded(tmp_path):
    many = batch(save=10)
    many.save(tmp_path / "batch.npz")
    again = ga.load(tmp_path / "batch.npz")
    np.testing.assert_array_equal(again.q, many.q)
    assert again.backend == "native"
    assert again[3].stats == many[3].stats


@pytest.mark.slow
def test_reactions_of_the_users_own_start_by_xla():
    name = next(n for n in ga.problems.names() if problem(n).system.reaction is not None)
    p = problem(name)
    v0 = np.tile(p.v0, (3, 1))
    many = ga.solve_batch(p.system, (p.t_span[0], p.t_span[0] + 0.1), p.q0, v0, h=p.h, args=p.args)
    assert many.backend == "native"
    one = ga.solve(p.system, (p.t_span[0], p.t_span[0] + 0.1), p.q0, p.v0, h=p.h, args=p.args)
    np.testing.assert_allclose(many.q[1, -1], one.q[-1], rtol=1e-12)


# --- special cases --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_integers_of_another_call_are_not_used_again():
    """A reaction of one's own starts by XLA, with the integers of this call: loads are k times as large."""
    system = ga.System(
        np.eye(2),
        lambda t, q, v, k: jnp.array([0.0, -9.81]) * k,
        holonomic=lambda t, q, k: jnp.array([q @ q - 1]),
        reaction=lambda t, q, v, lam, psi, k: -2 * q * lam[0],
    )
    angles = np.linspace(0.0, 1.0, 3)
    q0 = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    one, three = (
        ga.solve_batch(system, (0.0, 0.1), q0, [0.0, 0.0], h=0.01, args=(k,), save="all") for k in (1, 3)
    )
    assert one.backend == three.backend == "native"
    np.testing.assert_allclose(three.lam[:, 0], 3 * one.lam[:, 0], rtol=1e-10)


@pytest.mark.parametrize("backend", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_many_members_that_cannot_start_before_one_that_can(backend):
    lengths = np.ones(20)
    lengths[:17] = np.nan
    system, q0 = pendulum(), np.tile([1.0, 0.0], (20, 1))  # one for which there are no kernels yet
    run = lambda lengths: batch(system=system, q0=q0, args=(1.0, lengths), backend=backend)
    assert run(lengths).status.tolist() == [codes.NOT_FINITE] * 17 + [0] * 3
    with pytest.raises(ValueError, match="NaN or infinite at the start"):
        run(np.nan * lengths)


@pytest.mark.slow
def test_where_xla_can_start_no_member_the_reason_is_raised():
    with pytest.raises(ValueError, match="NaN or infinite at the start"):
        ga.solve_batch(
            systems.spring(), SPAN, [1.0], [0.0], h=0.01, args=(np.full(3, np.nan),), backend="xla"
        )


def test_members_with_and_without_a_singular_mass_matrix():
    system = ga.System(
        lambda t, q, m: jnp.diag(jnp.array([1.0, 1.0, 0.0]) + m * jnp.array([0.0, 0.0, 1.0])),
        lambda t, q, v, m: jnp.array([0.0, -9.81, -q[2]]),
        holonomic=lambda t, q, m: jnp.array([q[0] ** 2 + q[1] ** 2 - 1, q[2] - q[0] * q[1]]),
    )
    start = ((0.0, 0.1), [1.0, 0.0, 0.0], [0.0, 1.0, 1.0])
    for masses in ([0.0, 1.0, 2.0], [1.0, 0.0, 2.0]):
        many = ga.solve_batch(system, *start, h=0.01, args=(np.array(masses),), save="all")
        for i, m in enumerate(masses):
            np.testing.assert_allclose(many.a[i], ga.solve(system, *start, h=0.01, args=(m,)).a, atol=1e-12)


def test_the_last_time_of_listed_steps_is_the_end():
    h = np.random.default_rng(0).uniform(0.01, 0.02, 20)
    many = ga.solve_batch(PENDULUM, (0.0, h.sum()), STARTS, [0.0, 0.0], h=h, args=(1.0, LENGTHS), save=5)
    assert (many.t[:, -1] == h.sum()).all()
