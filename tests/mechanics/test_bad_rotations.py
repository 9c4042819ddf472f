"""Bad input that has to do with configuration spaces: quaternions, sizes, turns."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from conftest import problem
from genalpha.numerics import codes


def spinning(space, force=None):
    """A body that turns freely, in a space with rotations."""
    n = space.dim
    return ga.System(np.eye(n), force or (lambda t, q, v: jnp.zeros(n)), space=space)


def test_quaternions_are_normalised_or_refused():
    system, p = spinning(ga.R3xSO3()), np.array([0.0, 0.0, 0.0, 0.6, 0.0, 0.8, 0.0])
    nearly = p * np.array([1, 1, 1, *[1 + 5e-7] * 4])
    sol = ga.solve(system, (0.0, 0.1), nearly, np.ones(6), h=0.01)
    assert np.linalg.norm(sol.q[0, 3:]) == pytest.approx(1.0, abs=2e-16)
    far = p * np.array([1, 1, 1, *[1.001] * 4])
    with pytest.raises(ValueError, match=r"quaternion of R3xSO3 in q0 .* differs from one by 0.001"):
        ga.solve(system, (0.0, 0.1), far, np.ones(6), h=0.01)
    with pytest.raises(ValueError, match=r"quaternion of R3xSO3"):
        ga.consistent(system, 0.0, far, np.ones(6))
    # under a transform nothing raises: a status that names the rotation
    sol = jax.jit(lambda q: ga.solve(system, (0.0, 0.1), q, np.ones(6), h=0.01))(far)
    assert not sol.success
    assert "the quaternion of R3xSO3 is not of length one" in sol.message
    assert np.isnan(sol.q[1:]).all()


def test_the_refused_quaternion_is_named_by_its_factor():
    space = ga.Product(ga.SO3(), ga.Euclidean(2), ga.SE3())
    q = np.array([1.0, 0, 0, 0, 0, 0, 0, 0, 0, 2.0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"quaternion of factor 2 \(SE3\) in q0"):
        ga.solve(spinning(space), (0.0, 0.1), q, np.zeros(11), h=0.01)


def test_sizes_that_do_not_fit_the_space():
    with pytest.raises(ValueError, match=r"q0 has 6 entries, but R3xSO3\(\) with v0 of size 6 needs 7"):
        ga.solve(spinning(ga.R3xSO3()), (0.0, 0.1), np.ones(6), np.ones(6), h=0.01)
    with pytest.raises(ValueError, match=r"v0 has 4 entries, but SO3\(\) has velocities of size 3"):
        ga.solve(spinning(ga.SO3()), (0.0, 0.1), [1.0, 0, 0, 0], np.zeros(4), h=0.01)


@pytest.mark.parametrize("constraint", [lambda q: q[3:] @ q[3:] - 1, lambda q: q[3] - 1])
def test_constraints_that_ignore_the_space(constraint):
    """A quaternion's length, or a component taken for an angle: no velocity changes them."""
    system = ga.System(
        np.eye(6), lambda t, q, v: jnp.zeros(6), lambda t, q: constraint(q)[None], space=ga.R3xSO3()
    )
    with pytest.raises(ga.RedundantConstraints, match=r"gradient is zero.*q lies in R3xSO3\(\).*no angles"):
        ga.solve(system, (0.0, 0.1), [0.0, 0, 0, 1, 0, 0, 0], np.zeros(6), h=0.01)


@pytest.mark.slow
def test_a_traced_run_that_turned_too_far_has_the_same_status():
    speeding, q0 = speeding_body(), np.array([1.0, 0, 0, 0, 1.0, 0, 0, 0])
    traced = jax.jit(lambda q: ga.solve(speeding, (0.0, 2.0), q, np.zeros(6), h=0.1))(q0)
    assert int(traced.status) == codes.TURNED + 16
    assert np.isnan(traced.q[-1]).all()


def speeding_body():
    return spinning(ga.Product(ga.SO3(), ga.SO3()), lambda t, q, v: jnp.array([0.0, 0, 0, 40.0, 0, 0]))


def test_a_turn_of_more_than_pi_in_one_step_names_the_factor():
    speeding, q0 = speeding_body(), [1.0, 0, 0, 0, 1.0, 0, 0, 0]
    sol = ga.solve(speeding, (0.0, 2.0), q0, np.zeros(6), h=0.1, throw=False)
    assert not sol.success
    assert sol.status == codes.TURNED + 16
    assert "factor 1 (SO3) turned by more than π in one step" in sol.message
    assert "smaller h" in sol.message
    # 40 t h reaches π at t = 0.785, and everything before is there
    assert 0.6 < sol.t[-1] < 0.85
    np.testing.assert_allclose(sol.v[:, 3], 40 * sol.t, rtol=1e-9)
    with pytest.raises(ga.IntegrationError, match="turned by more than π"):
        ga.solve(speeding, (0.0, 2.0), q0, np.zeros(6), h=0.1)


def test_names_of_rotations_survive_a_file(tmp_path):
    fast = spinning(ga.SO3())
    sol = ga.solve(fast, (0.0, 1.0), [1.0, 0, 0, 0], [50.0, 0, 0], h=0.1, throw=False)
    sol.save(tmp_path / "run.npz")
    assert ga.load(tmp_path / "run.npz").message == sol.message
    assert "SO3 turned" in sol.message


@pytest.mark.parametrize("name", ["heavy-top", "rolling-disk"])
def test_unknown_space_of_a_problem(name):
    with pytest.raises(ValueError, match="unknown space 'SE2'"):
        ga.problems.get(name, space="SE2")


@pytest.mark.slow
def test_a_traced_quaternion_that_is_none():
    """Questions about one state under jit: normalised within 1e-6, NaN beyond."""
    p = problem("heavy-top")
    ask = jax.jit(lambda q: ga.consistent(p.system, 0.0, q, p.v0, p.args).a)
    nearly, far = p.q0 * (1 + 5e-7 * (np.arange(7) > 2)), p.q0 * (1 + 1e-3 * (np.arange(7) > 2))
    np.testing.assert_allclose(ask(nearly), ga.consistent(p.system, 0.0, p.q0, p.v0, p.args).a, rtol=1e-9)
    assert np.isnan(ask(far)).all()
    assert np.isnan(jax.jit(lambda q: ga.project_position(p.system, 0.0, q, p.args))(far)).all()


@pytest.mark.parametrize(
    ("space", "hint"),
    [("SO3", "such as ga.R3xSO3"), (ga.SO3, r"write SO3\(\)"), ((ga.SO3(), ga.SO3()), r"ga\.Product")],
)
def test_a_space_that_is_none(space, hint):
    with pytest.raises(TypeError, match=hint):
        ga.System(np.eye(3), lambda t, q, v: v, space=space)
    with pytest.raises(TypeError, match=r"must be a ga\.System"):
        ga.project_position(3, 0.0, [1.0])
