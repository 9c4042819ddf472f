"""Redundant constraints: the choice changes during the run, or a constraint proves not to be redundant."""

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.mechanics.system import Dims
from genalpha.numerics import codes
from genalpha.run.redundant import legs
from genalpha.run.redundant.constraints import Constraints
from genalpha.run.redundant.monitor import ConstraintMonitor
from redundant_systems import (
    CLOSED,
    DOOR,
    NO_BARS,
    ROUND,
    SPAN,
    START,
    THREE_BARS,
    WEIGHT,
    assert_smallest,
    plate,
    solve,
)


@pytest.mark.parametrize("method", ["soi2", pytest.param("index3", marks=pytest.mark.slow)])
def test_constraints_change_when_those_kept_become_dependent(method):
    """When two of three bars are in line, they no longer hold the plate, but another two do."""
    span = (0.0, 3.0)
    sol = solve(THREE_BARS, span, *ROUND, h=5e-3, method=method)
    once = ga.solve(NO_BARS, span, *ROUND, h=5e-3, method=method)
    assert np.ptp(np.unwrap(np.arctan2(sol.q[:, 1], sol.q[:, 0]))) > 4 * np.pi
    np.testing.assert_allclose(sol.t, once.t, atol=1e-14)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-5)  # each change is a new start of the method
    choices = {key[1] for key in THREE_BARS._programs if key[0] == "rows"}
    assert {(0, 1), (0, 2), (1, 2)} >= choices
    assert len(choices) > 1
    assert sol.residuals.position.max() < 1e-13
    assert (sol.stats.steps, len(sol.newton.iterations)) == (600, 600)
    assert sol.stats.newton_iterations == sol.newton.iterations.sum()
    assert_smallest(THREE_BARS, sol, slice(None, None, 25))


def test_the_number_of_changes_is_bounded(monkeypatch):
    monkeypatch.setattr(legs, "MOST_LEGS", 3)
    sol = solve(THREE_BARS, (0.0, 3.0), *ROUND, h=5e-3, throw=False)
    assert sol.status == codes.REDUNDANT
    assert "too often: 3 times" in sol.message
    assert len(sol.q) == len(sol.t) == sol.stats.steps + 1


@pytest.mark.slow
def test_a_change_with_listed_steps_and_projections():
    steps = np.concatenate([np.full(100, 4e-3), np.full(120, 5e-3)])
    options = {"h": steps, "project_velocity_at": [0.2, 0.4, 0.8]}
    sol = solve(THREE_BARS, SPAN, *ROUND, **options)
    once = ga.solve(NO_BARS, SPAN, *ROUND, **options)
    np.testing.assert_allclose(sol.t, once.t, atol=1e-15)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-5)


def test_a_change_in_the_first_step():
    """Large steps, listed or not. The run continues from its start with other constraints."""
    q, v = [np.cos(0.1), np.sin(0.1), 0.0], [-6 * np.sin(0.1), 6 * np.cos(0.1), 0.0]
    once = ga.solve(NO_BARS, (0.0, 0.3), q, v, h=0.1)
    for h in (0.1, np.full(3, 0.1)):
        sol = solve(THREE_BARS, (0.0, 0.3), q, v, h=h)
        np.testing.assert_allclose(sol.q, once.q, atol=1e-12)
        assert sol.stats.steps == 3


def test_a_change_to_constraints_that_were_dependent_before():
    """Two bars are in line at the start, all others after one large step. The change comes after it."""
    sol = solve(THREE_BARS, (0.0, 0.3), *ROUND, h=0.1)
    np.testing.assert_allclose(sol.q, ga.solve(NO_BARS, (0.0, 0.3), *ROUND, h=0.1).q, atol=0.1)
    assert sol.residuals.position.max() < 1e-13


@pytest.mark.slow
def test_error_control_and_what_cannot_be_done_together():
    sol = solve(THREE_BARS, SPAN, *ROUND, rtol=1e-6, atol=1e-8)
    fine = solve(THREE_BARS, SPAN, *ROUND, h=1e-3)
    np.testing.assert_allclose(sol.q[-1], fine.q[-1], atol=2e-3)
    assert sol.not_unique
    assert sol.residuals.position.max() < 1e-9
    assert solve(DOOR, SPAN, *CLOSED, rtol=1e-3, t_eval=[0.01]).success
    stopped = solve(THREE_BARS, SPAN, *ROUND, h=5e-3, t_eval=[SPAN[1]], throw=False)
    assert stopped.status == codes.REDUNDANT or stopped.success
    for name, value in (("events", lambda t, q, v: q[0]), ("save", 3), ("dense_output", True)):
        with pytest.raises(ValueError, match=f"is not possible with {name}"):
            solve(DOOR, SPAN, *CLOSED, h=5e-3, **{name: value})


DRIVEN = ga.System(
    THREE_BARS.mass,
    lambda t, q, v: jnp.array([0.0, -10.0, 0.5]),
    lambda t, q: jnp.append(THREE_BARS.holonomic(t, q), q[1] * jnp.cos(t) - q[0] * jnp.sin(t)),
)


@pytest.mark.parametrize("h", [0.25, pytest.param(0.1, marks=pytest.mark.slow), 0.02])
def test_a_change_after_a_failed_step(h):
    """A driven plate reaches the position with its first two bars in line, in one step or in many."""
    c, s = np.cos(1.0), np.sin(1.0)
    sol = solve(DRIVEN, (-1.0, 1.0), [c, -s, 0.0], [s, c, 0.0], h=h)
    np.testing.assert_allclose(sol.q, np.stack([np.cos(sol.t), np.sin(sol.t), 0 * sol.t], axis=1), atol=1e-12)
    assert sol.not_unique == (0, 1, 2)  # that of the drive is
    assert_smallest(DRIVEN, sol, slice(None, None, 10))


def test_the_rank_of_all_constraints_falls():
    """A drive moves the plate to a position in which no choice of constraints is independent."""
    flat = plate([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    turn = lambda t: jnp.array([jnp.cos(jnp.pi * t / 2), jnp.sin(jnp.pi * t / 2)])
    drive = lambda t, q: jnp.append(flat.holonomic(t, q), q[:2] @ turn(t))
    driven = ga.System(flat.mass, lambda t, q, v: jnp.zeros(3), drive)
    sol = solve(driven, (0.0, 3.0), [0.0, 1.0, 0.0], [-np.pi / 2, 0.0, 0.0], h=1 / 64, throw=False)
    assert sol.status in (codes.SINGULAR, codes.NOT_CONVERGED)
    assert 0.9 < sol.t[-1] < 1.0
    assert "a kinematic singularity" in sol.message


def test_rows_at_a_singularity_are_refused():
    flat = plate([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    watch, angles = watched(flat, 3), np.array([0.5, 0.2, 0.0])
    _, verdict = watch.examine(*on_circle(angles), np.zeros((3, 2)), (0, 2))
    assert (verdict.good, verdict.status, verdict.kept) == (2, codes.SINGULAR, None)
    assert "falls from 2 to 1" in verdict.detail
    watch, angles = watched(THREE_BARS, 3), np.array([0.5, 0.4, 0.1, 0.0])
    _, verdict = watch.examine(*on_circle(angles), np.zeros((4, 2)), (0, 1))
    assert (verdict.good, verdict.status) == (2, codes.SUCCESS)
    assert verdict.kept in ((0, 2), (1, 2))


def watched(system: ga.System, m: int) -> ConstraintMonitor:
    full = Constraints(system, Dims(3, 3, m, 0), (), True)
    return ConstraintMonitor(full, full.look_once(0.0, [0.0, 1.0, 0.0], [0.0] * 3))


def on_circle(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    q = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    return np.arange(len(angles)) * 0.1, q, np.zeros_like(q)


# --- constraints that are not redundant -----------------------------------------------------------------


@pytest.mark.parametrize("method", ["soi2", pytest.param("index3", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (lambda t, q: q @ q - 1.0 + q[1] ** 3, "off by"),
        (lambda t, q: q @ q - 1.0 - t**2, "off by"),
        (lambda t, q: 1e-9 * (q @ q - 1.0 - 0.1 * t**2), "off by"),
        (lambda t, q: q[1] ** 2, "off by"),
        (lambda t, q: t**2, "off by"),
        (lambda t, q: (q @ q - 1.0) * jnp.sqrt(0.5 - t), "NaN"),
    ],
)
def test_a_constraint_that_follows_from_others_only_at_the_start(second, reason, method):
    system = ga.System(np.eye(2), lambda t, q, v: WEIGHT, lambda t, q: jnp.array([q @ q - 1.0, second(t, q)]))
    sol = solve(system, SPAN, *START, h=0.01, method=method, throw=False)
    assert sol.status == codes.REDUNDANT
    assert sol.t[-1] < 0.6
    assert f"stopped after t = {sol.t[-1]:.9g} (step {len(sol.t) - 1})" in sol.message
    assert "holonomic[1] followed from others at the start" in sol.message
    assert reason in sol.message
    assert sol.residuals.position.max() < 1e-5
    assert len(sol.newton.iterations) == sol.stats.steps == len(sol.t) - 1
    with pytest.raises(ga.IntegrationError, match="followed from others"):
        solve(system, SPAN, *START, h=0.01, method=method)


def test_a_constraint_that_the_motion_fulfils_by_chance():
    """Its gradient is zero at the start and independent later: a kinematic singularity, not redundancy."""
    system = ga.System(
        np.eye(3),
        lambda t, q, v: jnp.array([0.0, -9.81, 0.0]),
        lambda t, q: jnp.array([q[0] ** 2 + q[1] ** 2 - 1.0, q[2] * q[1]]),
    )
    sol = solve(system, SPAN, [1.0, 0.0, 0.0], [0.0] * 3, h=0.01, throw=False)
    assert sol.status == codes.REDUNDANT
    assert "gradient is no combination" in sol.message


def test_constraints_that_contradict_each_other():
    torn = ga.System(np.eye(1), lambda t, q, v: jnp.zeros(1), lambda t, q: jnp.array([q[0], q[0] - 1.0]))
    with pytest.raises(ga.InconsistentInitialValues, match=r"holonomic\[1\] = -1"):
        solve(torn, SPAN, [0.0], [0.0], h=0.1)
    with pytest.raises(ga.InconsistentInitialValues, match=r"holonomic\[1\] = -1"):
        solve(torn, SPAN, [0.0], [0.0], h=0.1, initial="assume")
    with pytest.raises(ValueError, match="found no q and v on all constraints"):
        solve(torn, SPAN, [0.0], [0.0], h=0.1, initial="project")
