"""Redundant constraints: the start, refusals, and the choice of rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.run.redundant import rank
from redundant_systems import (
    CLOSED,
    DOOR,
    HUNG_ONCE,
    NO_BARS,
    ONE,
    ROUND,
    SPAN,
    START,
    THREE_BARS,
    TWO,
    WEIGHT,
    circle,
    solve,
)


def test_rounded_initial_values():
    """At rounded values, the gradients of redundant constraints are dependent only up to rounding."""
    q, off = np.array([np.cos(0.7), np.sin(0.7), 0.0]), 1e-9 * np.array([1.0, -2.0, 1.0])
    sol, exact = (solve(THREE_BARS, SPAN, x, [0.0] * 3, h=0.01) for x in (q + off, q))
    assert sol.not_unique == (0, 1, 2)
    assert 1e-9 < sol.residuals.position[0] < 1e-8
    assert sol.residuals.position[1:].max() < 1e-13
    np.testing.assert_allclose(sol.q, exact.q, atol=1e-7)
    np.testing.assert_allclose(sol.lam, exact.lam, atol=1e-5)


def test_projection_onto_redundant_constraints():
    """At the given q and v all constraints are independent; at the projected ones some are dependent."""
    q, v = [1.02, 0.01, -0.03], [0.1, 1.5, 0.2]
    once = ga.solve(NO_BARS, SPAN, q, v, h=0.01, initial="project")
    sol = solve(THREE_BARS, SPAN, q, v, h=0.01, initial="project")
    np.testing.assert_allclose(sol.q[0], once.q[0], atol=1e-13)
    np.testing.assert_allclose(sol.v[0], once.v[0], atol=1e-12)
    assert sol.residuals.velocity.max() < 1e-12
    assert sol.success


@pytest.mark.parametrize("initial", ["check", pytest.param("project", marks=pytest.mark.slow), "assume"])
def test_without_redundant_constraints_nothing_changes(initial):
    for system, start in ((ONE, START), (HUNG_ONCE, CLOSED), (NO_BARS, ROUND)):
        plain = ga.solve(system, SPAN, *start, h=0.02, initial=initial)
        sol = solve(system, SPAN, *start, h=0.02, initial=initial)
        for name in ("t", "q", "v", "a", "a_alpha", "lam"):
            assert (getattr(sol, name) == getattr(plain, name)).all(), name
        assert (sol.message, sol.not_unique) == (plain.message, ())


def test_programs_are_made_once():
    system = circle(1.0, 1.0)
    solve(system, SPAN, *START, h=0.01)
    made = len(system._programs)
    reduced = next(x for x in system._programs.values() if isinstance(x, ga.System))
    inner = len(reduced._programs)
    solve(system, SPAN, *START, h=0.005)
    assert (len(system._programs), len(reduced._programs)) == (made, inner)


@pytest.mark.slow
@pytest.mark.parametrize("system", [TWO, THREE_BARS])
def test_native_code_and_xla_agree(system):
    start = START if system is TWO else ROUND
    native, xla = (solve(system, (0.0, 0.5), *start, h=0.01, backend=b) for b in ("native", "xla"))
    assert (native.backend, xla.backend) == ("native", "xla")
    for name in ("q", "v", "lam"):
        expected = getattr(xla, name)
        np.testing.assert_allclose(getattr(native, name), expected, atol=1e-9 * (1 + np.abs(expected).max()))
    assert native.not_unique == xla.not_unique


def test_arguments_and_a_mass_matrix_that_varies():
    def system(count):
        return ga.System(
            lambda t, q, p: jnp.diag(jnp.array([p["m"], p["m"] * (1 + q[0] ** 2)])),
            lambda t, q, v, p: jnp.array([0.0, -9.81]),
            lambda t, q, p: jnp.array([q @ q - p["length"] ** 2] * count),
        )

    args = ({"m": 2.0, "length": np.float64(1.0)},)
    once = ga.solve(system(1), SPAN, *START, h=0.01, args=args)
    sol = solve(system(3), SPAN, *START, h=0.01, args=args)
    np.testing.assert_allclose(sol.q, once.q, atol=1e-13)
    np.testing.assert_allclose(3 * sol.lam[:, 1], once.lam[:, 0], atol=1e-11)


def test_save_and_load(tmp_path):
    sol = solve(TWO, SPAN, *START, h=0.1)
    sol.save(tmp_path / "door.npz")
    again = ga.load(tmp_path / "door.npz")
    assert (again.not_unique, again.message) == (sol.not_unique, sol.message)
    assert (again.lam == sol.lam).all()


# --- refusals -------------------------------------------------------------------------------------------


def test_refusals():
    with pytest.raises(ValueError, match="raise, min_norm"):
        ga.solve(TWO, SPAN, *START, h=0.1, redundant="drop")
    with pytest.raises(ga.RedundantConstraints, match="redundant='min_norm'"):
        ga.solve(TWO, SPAN, *START, h=0.1)
    with pytest.raises(ValueError, match="takes no multipliers"):
        solve(TWO, SPAN, *START, h=0.1, multipliers=([1.0, 1.0], []))
    own = ga.System(
        np.eye(2),
        lambda t, q, v: WEIGHT,
        TWO.holonomic,
        reaction=lambda t, q, v, lam, psi: -2 * q * (lam[0] + lam[1]),
    )
    with pytest.raises(ValueError, match="reaction of your own"):
        solve(own, SPAN, *START, h=0.1)
    with pytest.raises(ValueError, match=r"10 constraints for 6 coordinates.*redundant='min_norm'"):
        ga.solve(DOOR, SPAN, *CLOSED, h=0.1)
    with pytest.raises(TypeError, match="JAX transform"):
        jax.jit(lambda q: solve(TWO, SPAN, q, jnp.zeros(2), h=0.1).q)(jnp.array([1.0, 0.0]))
    with pytest.raises(ValueError, match=r"ga\.solve for each member"):
        ga.solve_batch(TWO, SPAN, *START, h=0.1, redundant="min_norm")
    with pytest.raises(TypeError, match="unknown"):
        solve(TWO, SPAN, *START, h=0.1, unknown=1)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"mass": lambda t, q: jnp.eye(2) / t}, "mass.*NaN or infinite at the start"),
        ({"holonomic": lambda t, q: jnp.array([jnp.log(-q[0])] * 3)}, r"holonomic.*entries \[0, 1, 2\]"),
        ({"holonomic": lambda t, q: jnp.array([jnp.sqrt(q[1])] * 3)}, "derivative of a constraint"),
        ({"force": lambda t, q, v: jnp.full(2, jnp.nan)}, "force.*NaN or infinite at the start"),
    ],
)
def test_functions_that_are_not_finite_at_the_start(parts, message):
    good = {"mass": np.eye(2), "force": lambda t, q, v: WEIGHT, "holonomic": TWO.holonomic}
    with pytest.raises(ValueError, match=message):
        solve(ga.System(**{**good, **parts}), SPAN, *START, h=0.1)


# --- linear algebra -------------------------------------------------------------------------------------


def test_a_choice_of_rows_is_well_conditioned(rng):
    for _ in range(100):
        n, m, p = rng.integers(2, 12), rng.integers(0, 10), rng.integers(1, 10)
        of_rank = rng.integers(1, min(n, m + p) + 1)
        rows = rng.normal(size=(m + p, of_rank)) @ rng.normal(size=(of_rank, n))
        rows *= 10.0 ** rng.uniform(-6, 0, size=(m + p, 1))
        rows[rng.random(m + p) < 0.1] = 0.0
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(lengths > 0, lengths, 1.0)
        kept = rank.choose(rows, m, 1e-11)
        assert len(kept) == np.linalg.matrix_rank(rows, tol=1e-9)
        assert sum(i < m for i in kept) == (np.linalg.matrix_rank(rows[:m], tol=1e-9) if m else 0)
        relation = rank.relation(rows, kept)
        assert relation.rest.max(initial=0.0) < 1e-9
        assert rank.worst(relation.factors, kept, m) <= rank.WELL
        if kept:
            smallest = np.linalg.svd(rows[list(kept)])[1][-1]
            assert smallest / np.sqrt(len(kept)) * 0.999 < relation.smallest < smallest * 1.001


def test_multipliers_of_minimum_norm(rng):
    base, wanted = rng.normal(size=(5, 3, 7)), rng.normal(size=(5, 3))
    factors = rng.normal(size=(5, 4, 3)) * 10.0 ** rng.uniform(-6, 6, (1, 4, 1))
    x, y = rank.minimum_norm(factors, wanted)
    for i in range(5):
        rows = np.concatenate([base[i], factors[i] @ base[i]])
        both = np.concatenate([x[i], y[i]])
        np.testing.assert_allclose(rows.T @ both, base[i].T @ wanted[i], rtol=1e-9, atol=1e-9)
        expected = np.linalg.lstsq(rows.T, base[i].T @ wanted[i], rcond=1e-13)[0]
        np.testing.assert_allclose(both, expected, atol=1e-9 * np.abs(expected).max())
