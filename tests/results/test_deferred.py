"""Accelerations, residuals and reactions are computed when they are first asked for, and stay right."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.results.assemble import DERIVED

PENDULUM = ga.System(
    mass=2.0 * np.eye(2),
    force=lambda t, q, v, g: jnp.array([0.0, -2.0 * g]),
    holonomic=lambda t, q, g: jnp.array([q @ q - 1.0]),
)


def solve(**options):
    return ga.solve(PENDULUM, (0.0, 0.5), [1.0, 0.0], [0.0, 0.0], args=(9.81,), **({"h": 0.01} | options))


def batch(**options):
    q0 = np.array([[1.0, 0.0], [0.0, -1.0], [0.6, -0.8]])
    return ga.solve_batch(PENDULUM, (0.0, 0.5), q0, [0.0, 0.0], args=(9.81,), **({"h": 0.01} | options))


def waiting(sol):
    return {name for name in DERIVED if name not in sol.__dict__}


@pytest.mark.parametrize("options", [{}, {"h": None}, {"t_eval": [0.1, 0.3]}, {"save": 7}, {"save": "final"}])
def test_nothing_is_computed_before_it_is_asked_for(options):
    sol = solve(**options)
    assert waiting(sol) == set(DERIVED)
    g, q = 9.81, sol.q
    lam = sol.lam
    np.testing.assert_allclose(sol.reactions.total, -2 * q * lam, atol=1e-12)
    np.testing.assert_allclose(2 * sol.a, [0.0, -2 * g] - 2 * q * lam, atol=1e-12)
    np.testing.assert_allclose(sol.residuals.position, np.abs(np.sum(q**2, axis=1) - 1), atol=1e-15)
    assert sol.psi.shape == (len(sol.t), 0)
    assert waiting(sol) == set()
    assert sol.a is sol.a


@pytest.mark.parametrize("backend", ["native", "xla"])
def test_what_is_kept_by_name_is_computed_and_nothing_else(backend):
    sol = solve(save=["q", "residuals"], backend=backend)
    assert sol.a is None
    assert sol.reactions is None
    np.testing.assert_array_equal(sol.residuals.velocity, solve(backend=backend).residuals.velocity)


def test_members_of_a_batch_wait_too():
    many = batch(save="all")
    assert waiting(many) == set(DERIVED)
    one = many[1]
    np.testing.assert_array_equal(one.q, many.q[1])
    assert waiting(many) == waiting(one) == set(DERIVED)
    np.testing.assert_array_equal(one.a, many.a[1])
    np.testing.assert_array_equal(many[[0, 2]].reactions.total, many.reactions.total[[0, 2]])


def test_members_that_ran_alone_or_not_at_all_are_in_their_places():
    q0 = np.array([[1.0, 0.0], [1.0, 0.5], [0.0, -1.0]])  # the second breaks the constraint
    many = ga.solve_batch(PENDULUM, (0.0, 0.1), q0, [0.0, 0.0], args=(9.81,), h=0.01, save="all")
    assert many.success.tolist() == [True, False, True]
    for name in ("q", "v", "a", "lam"):
        assert np.isnan(getattr(many, name)[1, 1:]).all()
        assert np.isfinite(getattr(many, name)[[0, 2]]).all()
    assert np.isnan(many.residuals.position[1, 1:]).all()
    assert many.newton.iterations[1].sum() == 0


@pytest.mark.parametrize(
    "copied",
    [
        lambda sol, folder: pickle.loads(pickle.dumps(sol)),
        lambda sol, folder: copy.deepcopy(sol),
        lambda sol, folder: dataclasses.replace(sol, detail="a word"),
        lambda sol, folder: jax.tree.map(lambda x: x, sol),
        lambda sol, folder: (sol.save(folder / "sol.npz"), ga.load(folder / "sol.npz"))[1],
    ],
    ids=["pickle", "deepcopy", "replace", "tree", "file"],
)
def test_copies_have_everything(copied, tmp_path):
    again, sol = copied(solve(), tmp_path), solve()
    for name in DERIVED:
        for a, b in zip(
            jax.tree.leaves(getattr(again, name)), jax.tree.leaves(getattr(sol, name)), strict=True
        ):
            np.testing.assert_array_equal(a, b)


def test_parts_between_events_are_joined():
    bounce = ga.Event(lambda t, q, v, g: q[0] - 0.8, direction=-1, reset=lambda t, q, v, g: -0.5 * v)
    sol = solve(events=bounce)
    assert len(sol.t_events[0]) == 1
    assert np.sum(sol.t == sol.t_events[0][0]) == 2  # before and after
    assert waiting(sol) == set(DERIVED)
    np.testing.assert_allclose(sol.reactions.total, -2 * sol.q * sol.lam, atol=1e-12)
    assert len(sol.a) == len(sol.t)


def test_an_attribute_that_does_not_exist():
    with pytest.raises(AttributeError, match="no attribute 'acceleration'"):
        solve().acceleration  # noqa: B018
