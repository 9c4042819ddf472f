"""Derivatives of solutions with respect to named parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga

H = 0.01


@pytest.fixture(scope="module")
def problem():
    return ga.problems.get("pendulum")


def test_derivatives_agree_with_differences_and_with_jax(problem):
    """Numbers in dicts, and the initial velocity along the constraints; q, v and forces."""
    options = {"h": H, "args": problem.args}
    span, start = (0.0, 0.5), (problem.q0, problem.v0)
    found = ga.sensitivity(problem.system, span, *start, wrt=["k", "v0"], of=("q", "v", "lam"), **options)
    plain = ga.solve(problem.system, span, *start, **options)
    np.testing.assert_array_equal(found.solution.q, plain.q)
    assert found.lam["v0"].shape == (51, 2, 3)
    assert found.a is None
    run = lambda k, v0: ga.solve(
        problem.system, span, problem.q0, v0, h=H, args=({**problem.args[0], "k": k},)
    )
    for name in ("q", "v", "lam"):
        high, low = (np.asarray(getattr(run(3000.0 + d, problem.v0), name)) for d in (0.3, -0.3))
        by_k, by_v = getattr(found, name)["k"], getattr(found, name)["v0"]
        np.testing.assert_allclose(by_k, (high - low) / 0.6, atol=1e-6 * np.abs(by_k).max())
        high, low = (np.asarray(getattr(run(3000.0, s * problem.v0), name)) for s in (1 + 1e-5, 1 - 1e-5))
        along = by_v @ problem.v0  # other directions break the hidden constraints
        np.testing.assert_allclose(along, (high - low) / 2e-5, atol=1e-6 * np.abs(along).max())
    same = jax.jacfwd(lambda k: run(k, problem.v0).lam)(3000.0)
    np.testing.assert_allclose(found.lam["k"], same, rtol=1e-12, atol=1e-12 * np.abs(same).max())


def test_error_control_has_a_row_for_every_step_and_for_given_times():
    """Derivatives of cos(ω t) with respect to two values of ω; more steps than a transform has room for."""
    system = ga.System(jnp.eye(2), lambda t, q, v, w: -(w**2) * q)
    rates = np.array([1.0, 3.0])
    for options in ({}, {"t_eval": [0.0, 0.5, 2.0]}):
        found = ga.sensitivity(
            system, (0.0, 2.0), [1.0, 1.0], [0.0, 0.0], wrt="args[0]", args=(rates,), rtol=1e-7, **options
        )
        t, by = found.solution.t, found.q["args[0]"]
        assert by.shape == (len(t), 2, 2)
        exact = -t[:, None] * np.sin(rates * t[:, None])
        np.testing.assert_allclose(by[:, [0, 1], [0, 1]], exact, atol=2e-5)
        assert np.abs(by[:, [0, 1], [1, 0]]).max() == 0.0


def test_wrong_names_are_explained(problem):
    call = lambda **more: ga.sensitivity(
        problem.system, (0.0, 0.1), problem.q0, problem.v0, h=H, args=problem.args, **more
    )
    with pytest.raises(ValueError, match=r"wrt: 'stiffness' is unknown. Known: L, c, g, k, m, q0, v0"):
        call(wrt="stiffness")
    with pytest.raises(ValueError, match=r"'forces' has no derivatives. Choose among q, v, a, lam, psi"):
        call(wrt="k", of=["forces"])
    twice = ({"k": 1.0}, {"k": 2.0})
    with pytest.raises(ValueError, match="'k' names several parameters"):
        ga.sensitivity(problem.system, (0.0, 0.1), problem.q0, problem.v0, wrt="k", args=twice)
