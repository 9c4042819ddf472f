"""Splits of the coordinates into dependent and independent ones: chosen, kept and changed."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from genalpha.methods import _splitting


def slow(value: Any) -> Any:
    return pytest.param(value, marks=pytest.mark.slow)


@pytest.mark.parametrize("by", ["lu", "qr"])
@pytest.mark.parametrize(("m", "n"), [(1, 2), (3, 6), (8, 9), pytest.param(14, 20, marks=pytest.mark.slow)])
def test_P_annihilates_the_constraint_forces(by: Any, m: int, n: int) -> None:
    rng = np.random.default_rng(m * n)
    choose = jax.jit(lambda G: _splitting.choose(G, by))
    multipliers = jax.jit(jax.vmap(_splitting.multipliers, in_axes=(None, None, 0)))
    for _ in range(20):
        G = rng.normal(size=(m, n)) * 10.0 ** rng.uniform(-3, 3, size=(m, 1))
        Y = np.asarray(choose(G))
        assert np.linalg.matrix_rank(Y) == m
        if by == "lu":
            assert sorted(np.unique(Y)) == [0.0, 1.0]
            assert np.all(np.sum(Y, axis=0) == 1)
        r, free = G.T @ rng.normal(size=m), rng.normal(size=n)
        s = multipliers(G, Y, np.stack([r, free]))
        np.testing.assert_allclose(r + G.T @ s[0], 0, atol=1e-12 * np.abs(r).max())
        np.testing.assert_allclose(Y.T @ (free + G.T @ s[1]), 0, atol=1e-9)


def test_the_split_of_elimination_is_that_of_scipy() -> None:
    """Rows that LU with row pivoting of Gᵀ moves to the top, in their order."""
    from scipy.linalg import lu

    rng = np.random.default_rng(5)
    for _ in range(10):
        G = rng.normal(size=(4, 9))
        order, _, _ = lu(G.T)
        Y = _splitting.choose(jnp.asarray(G), "lu")
        np.testing.assert_array_equal(Y, order[:, :4])


@pytest.mark.parametrize("backend", ["native", slow("xla")])
@pytest.mark.parametrize("iteration", ["cs", "cm"])
def test_the_split_survives_full_turns(monkeypatch: Any, backend: Any, iteration: Any) -> None:
    """A point pendulum in (x, y) that turns over: each coordinate is the dependent one in its quarter."""
    system, c = systems.circle(), ga.chung_hulbert(0.9)
    turning = functools.partial(
        ga.solve, system, (0.0, 3.0), [0.0, -1.0], [8.0, 0.0], h=2e-3, backend=backend, throw=False
    )
    sol = turning(method=ga.CoordinateSplit(c, iteration=iteration))
    assert sol.success, sol.message
    assert sol.backend == backend
    angle = np.unwrap(np.arctan2(sol.q[:, 1], sol.q[:, 0]))
    assert angle[-1] - angle[0] > 4 * np.pi
    np.testing.assert_allclose(sol.q, turning(method=ga.DAEAlpha(c)).q, atol=1e-8)
    energy = 0.5 * np.sum(sol.v**2, axis=1) + 9.81 * sol.q[:, 1]
    assert np.ptp(energy) < 2e-2


@pytest.mark.parametrize(
    ("backend", "dependent"),
    [("native", 0), *(pytest.param(b, 1, marks=pytest.mark.slow) for b in ("native", "xla"))],
)
def test_any_fixed_split_fails(monkeypatch: Any, backend: Any, dependent: int) -> None:
    """Where a pendulum hangs, x has no influence on its length; where it is pulled aside, y has none."""
    rest = jnp.eye(2)[1 - dependent]
    system = lambda: ga.System(np.eye(2), lambda t, q, v: 9.81 * rest, lambda t, q: jnp.array([q @ q - 1.0]))
    run = lambda: ga.solve(
        system(), (0.0, 0.1), rest, [0.0, 0.0], h=1e-2, method="cs", throw=False, backend=backend
    )
    sol = run()
    assert sol.success
    np.testing.assert_allclose(sol.q, np.tile(rest, (11, 1)), atol=1e-14)
    fixed = jnp.eye(2)[:, dependent : dependent + 1]
    monkeypatch.setattr(_splitting, "choose", lambda G, by: fixed)
    assert not run().success


def test_dependent_coordinates_are_never_much_faster_than_others() -> None:
    """(GY)⁻¹G along the turning pendulum, at the end of every step with the split of that step."""
    made, system, h = ga.CoordinateSplit(ga.chung_hulbert(0.9)), systems.circle(), 2e-3
    sol = ga.solve(system, (0.0, 3.0), [0.0, -1.0], [8.0, 0.0], h=h, method=made)
    G = lambda q: 2 * q[None]
    dependent, ratios, changes = 1, [], 0
    for q, v, end in zip(sol.q[:-1], sol.v[:-1], sol.q[1:], strict=True):
        ahead = np.abs(q + h * v)
        if ahead.max() > _splitting.WORST * ahead[dependent]:
            dependent, changes = 1 - dependent, changes + 1
        ratios.append(float(_splitting.ratio(G(end), np.eye(2)[:, dependent : dependent + 1])))
    assert max(ratios) < 1.1 * _splitting.WORST
    assert changes >= 4


@pytest.mark.parametrize("factorization", ["lu", "qr"])
def test_steps_of_more_than_thirty_degrees(factorization: Any) -> None:
    """The split is chosen where a step leads, not where it comes from."""
    made = ga.CoordinateSplit(ga.chung_hulbert(0.8), factorization=factorization)
    run = functools.partial(ga.solve, systems.circle(), (0.0, 3.0), [1.0, 0.0], [0.0, -8.0], h=0.07)
    one, two = run(method=made), run(method="dae-alpha")
    np.testing.assert_allclose(one.q, two.q, atol=1e-8)
