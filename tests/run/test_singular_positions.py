"""Mechanisms that pass positions in which their constraints are dependent.

Problem A02 of the library of benchmark problems of the IFToMM committee for multibody dynamics: N + 1 cranks
and N couplers in a row, all bars 1 m and 1 kg. When the cranks are horizontal, all bars are aligned, and the
mechanism could leave the motion of parallelograms. On the regular branch it has one degree of freedom.
"""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import genalpha as ga
from conftest import problem

GRAVITY = 9.81


@functools.cache
def four_bars(count: int) -> tuple[ga.System, np.ndarray, np.ndarray]:
    """Coordinates: the joints between cranks and couplers."""
    joints = count + 1
    mass = np.eye(joints) / 3
    weight = np.full(joints, 0.5)
    for i in range(count):
        mass[i : i + 2, i : i + 2] += np.array([[2.0, 1.0], [1.0, 2.0]]) / 6
        weight[i : i + 2] += 0.5
    mass = jnp.asarray(np.kron(mass, np.eye(2)))
    force = jnp.asarray(np.stack([0 * weight, -GRAVITY * weight], axis=1).reshape(-1))
    pivots = jnp.stack([jnp.arange(joints), jnp.zeros(joints)], axis=1)

    def lengths(t, q):
        points = q.reshape(-1, 2)
        bars = jnp.concatenate([points - pivots, points[1:] - points[:-1]])
        return (jnp.sum(bars**2, axis=1) - 1) / 2

    q0 = np.stack([np.arange(joints), np.ones(joints)], axis=1).reshape(-1)
    v0 = np.tile([1.0, 0.0], joints)
    return ga.System(mass, lambda t, q, v: force, lengths), q0, v0


@functools.cache
def regular(count: int, t_end: float) -> tuple[np.ndarray, np.ndarray]:
    """Times, and the first joint on the regular branch: all cranks have the same angle."""
    t = np.linspace(0.0, t_end, round(20 * t_end) + 1)
    factor = GRAVITY * ((count + 1) / 2 + count) / ((count + 1) / 3 + count)
    angle = solve_ivp(
        lambda t, y: [y[1], -factor * np.cos(y[0])],
        (0.0, t_end),
        [np.pi / 2, -1.0],
        t_eval=t,
        rtol=1e-13,
        atol=1e-13,
        method="DOP853",
    ).y[0]
    return t, np.stack([np.cos(angle), np.sin(angle)], axis=1)


def run(count: int, t_end: float, **options) -> tuple[ga.Solution, np.ndarray]:
    """The solution and the errors of the first joint, relative as in the library, at its times."""
    system, q0, v0 = four_bars(count)
    t, exact = regular(count, t_end)
    sol = ga.solve(system, (0.0, t_end), q0, v0, t_eval=t, **options)
    return sol, np.abs(sol.q[:, :2] - exact) / np.maximum(np.abs(exact), 1e-3)


def test_the_reference_has_the_published_values():
    joint = regular(2, 10.0)[1]
    np.testing.assert_allclose(joint[-1], [0.32845811153380, 0.94451853818104], rtol=1e-9)
    joint = regular(40, 20.0)[1]
    np.testing.assert_allclose(joint[200], [0.1805122266811, 0.9835727405833], rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "steps"),
    [
        *(("stabilized", {"h": 1e-4}), ("soi2", {"rtol": 1e-8}), ("index3", {"h": 1e-4})),
        pytest.param("stabilized", {"rtol": 1e-8}, marks=pytest.mark.slow),
        pytest.param("soi2", {"h": 1e-4}, marks=pytest.mark.slow),
        pytest.param("index3", {"rtol": 1e-8}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_aligned_bars_are_passed_on_the_regular_branch(method, steps):
    """Fourteen passages in ten seconds. Before, steps near them failed, or became ever shorter."""
    sol, error = run(2, 10.0, method=method, **steps)
    assert sol.backend == "native"
    assert error.max() < 1e-3
    assert 10 < sol.stats.near_singular < 0.02 * sol.stats.steps
    assert sol.stats.rejected < 0.01 * sol.stats.steps
    heights = sol.q[:, 1::2] @ np.array([1.0, 1.5, 1.0])
    energy = 0.5 * np.einsum("ti,ij,tj->t", sol.v, four_bars(2)[0].mass, sol.v) + GRAVITY * heights
    assert np.abs(energy - energy[0]).max() < 1e-3 * GRAVITY


@pytest.mark.slow
@pytest.mark.parametrize("rtol", [1e-5, 1e-6, 1e-7])
def test_errors_are_proportional_to_the_tolerance(rtol):
    """The motion passes upright positions slowly: errors grow to some 150 times the tolerance."""
    sol, _ = run(2, 10.0, rtol=rtol)
    assert np.abs(sol.q[-1, :2] - regular(2, 10.0)[1][-1]).max() < 400 * rtol


@pytest.mark.slow
def test_a_batch_counts_the_passages_of_every_member():
    system, q0, v0 = four_bars(2)
    v0 = np.array([1.0, 1.1, 1.2])[:, None] * v0
    batch = ga.solve_batch(system, (0.0, 3.0), q0, v0, h=1e-4)
    alone = [ga.solve(system, (0.0, 3.0), q0, v, h=1e-4) for v in v0]
    assert batch.success.all()
    assert batch.stats.near_singular.tolist() == [sol.stats.near_singular for sol in alone]
    assert min(sol.stats.near_singular for sol in alone) > 0
    assert [sol.newton.near_singular.sum() for sol in alone] == batch.stats.near_singular.tolist()


def test_regular_motions_are_not_counted():
    for name in ("pendulum", "heavy-top"):
        p = problem(name)
        assert p.solve(t_end=0.2 * p.t_span[1], rtol=1e-4).stats.near_singular == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["soi2", "stabilized", "index3", "dae-alpha", "projected"])
@pytest.mark.parametrize("steps", [{"h": 1e-3}, {"rtol": 1e-7}], ids=lambda s: next(iter(s)))
def test_all_methods_and_xla(method, steps):
    for backend in ("native", "xla"):
        sol, error = run(2, 10.0, method=method, backend=backend, **steps)
        assert error.max() < 0.03
        assert sol.stats.near_singular > 0 or (method == "index3" and "h" in steps)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["soi2", "stabilized", "index3"])
def test_forty_four_bars(method):
    """Twenty seconds, with all cranks and couplers in line again and again."""
    for h, most in ((0.01, 0.1), (0.005, 0.03)):
        sol, _ = run(40, 20.0, method=method, h=h)
        assert np.abs(sol.q[:, :2] - regular(40, 20.0)[1]).max() < most
    for steps in ({"h": 1e-4}, {"rtol": 2e-9 if method == "index3" else 5e-8}):
        four_bars.cache_clear()  # pivots are chosen anew
        sol, error = run(40, 20.0, method=method, **steps)
        assert sol.backend == "native"
        # Rounding is amplified at the passages: index3 had 4e-4 and 1.1e-3 with different pivots.
        assert error.max() < (3e-3 if method == "index3" and "rtol" in steps else 1e-3)
