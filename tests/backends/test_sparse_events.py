"""Large assemblies: events, projections and batches, compared with dense matrices."""

import jax
import numpy as np
import pytest

import assemblies
import genalpha as ga
from assemblies import matrices, model


def both(run, begun=None):
    """``run(model)`` with sparse and with dense matrices; ``begun`` is False if no run begins."""
    found = []
    for kind in ("sparse", "dense"):
        with matrices(kind, begun):
            found.append(run(model("rods", kind)))
    return found


@pytest.mark.parametrize("steps", [{"h": 0.005}, pytest.param({"rtol": 1e-6}, marks=pytest.mark.slow)])
def test_events_are_found_and_resets_applied(steps):
    """They read few coordinates. The run goes on after a reset, and ends at the third event."""

    def run(case):
        last, rest = len(case.q0) - 1, float(case.q0[-1])
        passed = lambda s: s.q[last] - (rest - 0.05)
        slowed = ga.Event(lambda s: s.q[last] - (rest - 0.2), reset=lambda s: 0.5 * s.v)
        ended = ga.Event(lambda s: s.v @ s.v - s.t - 12.0, terminal=True, direction=1)
        return ga.solve(case.assembly, (0.0, 1.0), case.q0, case.v0, events=[passed, slowed, ended], **steps)

    sparse, dense = both(run)
    assert sparse.status == dense.status
    assert len(sparse.t_events[0])
    assert len(sparse.t_events[1])
    for one, other in zip(sparse.t_events, dense.t_events, strict=True):
        assert len(one) == len(other)
        np.testing.assert_allclose(one, other, atol=1e-6 if "rtol" in steps else 1e-10)
    np.testing.assert_allclose(sparse.q[-1], dense.q[-1], atol=1e-5 if "rtol" in steps else 1e-9)
    assert sparse.residuals.position.max() < 1e-12


@pytest.mark.slow
def test_events_of_multipliers_use_dense_matrices():
    case, far = model("rods", "sparse"), lambda s: s.lam[0] - 1e9
    with matrices("sparse", begun=False), pytest.warns(ga.FallbackWarning, match="events that depend on λ"):
        sol = ga.solve(case.assembly, (0.0, 0.05), case.q0, case.v0, h=0.01, events=far)
    assert sol.success


@pytest.mark.parametrize("hold", [None, [0, 3]])
def test_initial_values_are_projected_as_with_dense_matrices(hold):
    def run(case):
        q = case.q0 + 0.02 * np.random.default_rng(0).normal(size=len(case.q0))
        placed = ga.project_position(case.assembly, 0.0, q, hold=hold)
        moved = ga.project_velocity(case.assembly, 0.0, placed, case.v0 + 0.1, hold=hold)
        if hold is not None:
            np.testing.assert_array_equal(placed[hold], q[hold])
            np.testing.assert_array_equal(moved[hold], 0.1)
        return placed, moved

    sparse, dense = both(run, begun=False)
    for one, other in zip(sparse, dense, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_the_nearest_point_among_rotations(kind):
    """M d is in the range of the derivatives of g(q ∘ exp(d)) with respect to d, ACB15 (6)."""
    case = model("flails", kind)
    system, space = case.assembly, case.assembly.space
    push = 0.1 * np.random.default_rng(0).normal(size=len(case.v0))
    q = np.asarray(jax.jit(space.retract)(case.q0, push))
    with matrices(kind, begun=False):
        placed = ga.project_position(system, 0.0, q)
    assert np.abs(system.g(0.0, placed)).max() < 1e-13
    d = np.asarray(jax.jit(space.difference)(q, placed))
    slopes = np.asarray(jax.jit(jax.jacfwd(lambda d: system.g(0.0, space.retract(q, d))))(d))
    force = np.asarray(system.M(0.0, q)) @ d
    mu = np.linalg.lstsq(slopes.T, force, rcond=None)[0]
    np.testing.assert_allclose(slopes.T @ mu, force, atol=1e-10 * np.abs(force).max())


def test_consistent_values_are_those_of_dense_matrices():
    sparse, dense = both(lambda case: ga.consistent(case.assembly, 0.0, case.q0, case.v0), begun=False)
    for one, other in zip(sparse, dense, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


@pytest.mark.slow
def test_a_batch_is_a_run_for_each_member():
    """Members differ in their start. One of them cannot be started."""

    def run(case):
        q, v = np.stack([case.q0, -case.q0, 1.1 * case.q0]), np.zeros((3, len(case.v0)))
        return ga.solve_batch(case.assembly, (0.0, 0.1), q, v, h=0.01)

    sparse, dense = both(run)
    assert sparse.success.tolist() == dense.success.tolist() == [True, True, False]
    np.testing.assert_allclose(sparse.q[:2], dense.q[:2], atol=1e-10)
    np.testing.assert_array_equal(sparse.status, dense.status)


@pytest.mark.slow
def test_projected_batches():
    def run(case):
        q = np.stack([case.q0, case.q0 + 1e-3])
        v = np.stack([case.v0, case.v0])
        return ga.solve_batch(case.assembly, (0.0, 0.05), q, v, h=0.01, initial="project")

    sparse, dense = both(run)
    np.testing.assert_allclose(sparse.q, dense.q, atol=1e-9)


@pytest.mark.slow
def test_motion_between_steps_of_many_nodes():
    """Nodes are interpolated one by one, with rotations among them."""
    case, options = assemblies.revolute(10), {"method": "index3"}
    sol = ga.solve(case.assembly, (0.0, 0.1), case.q0, case.v0, h=0.01, dense_output=True, **options)
    fine = ga.solve(case.assembly, (0.0, 0.1), case.q0, case.v0, h=0.0025, **options)
    np.testing.assert_allclose(sol(sol.t).q, sol.q, atol=1e-14)
    np.testing.assert_allclose(sol(fine.t[1::4]).q, fine.q[1::4], atol=2e-4)
    norms = np.linalg.norm(case.assembly.by_node(sol(fine.t).q)[..., 3:], axis=-1)
    np.testing.assert_allclose(norms, 1.0, atol=1e-14)
