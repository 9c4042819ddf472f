"""Quantities by name: what keys mean, which are refused, and how far names travel with a solution."""

from __future__ import annotations

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb
from genalpha.run.batch_axes import varied

SYSTEM = ga.System(
    mass=jnp.eye(2),
    force=lambda t, q, v, length: jnp.array([0.0, -9.81]),
    holonomic=lambda t, q, length: jnp.array([q @ q - length**2]),
    names={"q": ["x", "y"], "holonomic": ["rod"]},
    units={"q": ["m", "m"], "t": "s", "holonomic": ["N/m"]},
)
solve = functools.partial(ga.solve, SYSTEM, (0.0, 0.5), h=0.05, args=(1.0,))
START = [1.0, 0.0], [0.0, 0.0]


@pytest.fixture(scope="module")
def sol():
    return solve(*START)


@pytest.fixture(scope="module")
def batch():
    lengths = np.array([1.0, 2.0, 3.0])
    q0 = np.stack([lengths, 0 * lengths], axis=1)
    return ga.solve_batch(SYSTEM, (0.0, 0.5), q0, [0.0, 0.0], h=0.05, args=(lengths,), save="all")


def test_keys_mean_columns(sol):
    expected = {
        "x": sol.q[:, 0],
        "y": sol.q[:, 1],
        "x'": sol.v[:, 0],
        "y''": sol.a[:, 1],
        "lam[rod]": sol.lam[:, 0],
        "lam_rod": sol.lam[:, 0],
        "lam[0]": sol.lam[:, 0],
        "q[1]": sol.q[:, 1],
        "a[0]": sol.a[:, 0],
        "t": sol.t,
        "v": sol.v,
        "residuals.velocity": sol.residuals.velocity,
    }
    for key, values in expected.items():
        np.testing.assert_array_equal(sol[key], values, err_msg=key)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("X", "the solution has no X. Near names: x"),
        ("lam[Rod]", r"Near names: lam\[rod\]"),
        ("rod", r"rod is a constraint: its multiplier is lam\[rod\]"),
        ("pressure", r"Its names are x, y, x'.*Numbers work too, such as q\[0\]"),
        ("q[2]", "of q it has the entries 0 to 1"),
        ("psi[0]", "of psi it has none"),
    ],
)
def test_wrong_keys_are_refused_with_near_ones(sol, key, told):
    with pytest.raises(KeyError, match=told):
        sol[key]


def test_chosen_entries_keep_their_names():
    sol = solve(*START, save={"q": [1], "a": [0], "v": None})
    whole = solve(*START)
    np.testing.assert_array_equal(sol["y"], whole["y"])
    np.testing.assert_array_equal(sol["q[1]"], whole["y"])
    np.testing.assert_array_equal(sol["x''"], whole["x''"])
    with pytest.raises(KeyError, match="of q it has the entries 1"):
        sol["x"]
    with pytest.raises(KeyError, match="has no lam, because save left it out"):
        sol["lam[rod]"]


def test_batches_have_names_and_parameters(batch):
    assert batch["x"].shape == (3, 11)
    np.testing.assert_array_equal(batch["lam[rod]"], batch.lam[..., 0])
    np.testing.assert_array_equal(batch["args.0"], [1.0, 2.0, 3.0])
    one = batch[1]
    np.testing.assert_array_equal(one["x"], batch.q[1, :, 0])
    assert one.parameters == {"args.0": 2.0}
    assert list(batch[1:].parameters["args.0"]) == [2.0, 3.0]


def test_parameters_are_numbers_that_vary_with_their_places():
    args = ({"k": np.array([1.0, 2.0]), "d": np.zeros(2)}, np.zeros((2, 3)))
    found = varied(args, ({"k": True, "d": False}, True))
    assert {name: x.tolist() for name, x in found.items()} == {"args.0.k": [1.0, 2.0]}


def test_names_pass_through_jit(sol):
    made = jax.jit(lambda q: solve(q, [0.0, 0.0]))(jnp.array(START[0]))
    assert made.labels == sol.labels
    np.testing.assert_allclose(made["y"], sol["y"], atol=1e-12)


def test_files_keep_names_and_parameters(sol, batch, tmp_path):
    for name, one in {"single": sol, "batch": batch, "some": solve(*START, save={"q": [1]})}.items():
        one.save(tmp_path / f"{name}.npz")
        again = ga.load(tmp_path / f"{name}.npz")
        assert (again.labels, again.entries) == (one.labels, one.entries)
        assert again.parameters.keys() == one.parameters.keys()
        np.testing.assert_array_equal(again["y"], one["y"])
    np.testing.assert_array_equal(ga.load(tmp_path / "batch.npz")["args.0"], batch["args.0"])
    batch[2].save(tmp_path / "member.npz")
    assert ga.load(tmp_path / "member.npz").parameters == {"args.0": 3.0}


def test_files_without_names_are_read(sol, tmp_path):
    """Files of format 7 know of no names."""
    sol.save(tmp_path / "new.npz")
    with np.load(tmp_path / "new.npz") as opened:
        arrays = dict(opened)
    header = json.loads(str(arrays["header"])) | {"genalpha": 7}
    del header["labels"], header["entries"]
    np.savez(tmp_path / "old.npz", **arrays | {"header": np.array(json.dumps(header))})
    old = ga.load(tmp_path / "old.npz")
    np.testing.assert_array_equal(old["q[0]"], sol["x"])
    with pytest.raises(KeyError, match="Numbers work too"):
        old["x"]


def test_joined_solutions_keep_the_names_that_they_share(sol):
    later = ga.solve(SYSTEM, (0.5, 1.0), sol.q[-1], sol.v[-1], h=0.05, args=(1.0,))
    assert ga.concatenate(sol, later).labels == sol.labels
    other = later.labelled(later.labels._replace(holonomic=("rope",)))
    both = ga.concatenate(sol, other)
    assert both.labels.q == ("x", "y")
    assert both.labels.holonomic == ()
    np.testing.assert_array_equal(both["lam[0]"], both.lam[:, 0])


def test_a_failed_run_has_names():
    system = ga.System(np.eye(1), lambda t, q, v: jnp.where(t > 0.5, jnp.nan, -q), names={"q": ["x"]})
    with pytest.raises(ga.IntegrationError) as caught:
        ga.solve(system, (0.0, 1.0), [1.0], [0.0], h=0.1)
    part = caught.value.solution
    np.testing.assert_array_equal(part["x"], part.q[:, 0])
    assert "largest velocities of the last row: x' = -0.4" in part.summary()


@pytest.mark.slow
def test_redundant_constraints_have_their_names():
    twice = ga.System(
        jnp.eye(2),
        lambda t, q, v: jnp.array([0.0, -9.81]),
        lambda t, q: jnp.stack([q @ q - 1.0, 2 * (q @ q - 1.0)]),
        names={"holonomic": ["rod", "again"]},
    )
    sol = ga.solve(twice, (0.0, 0.5), *START, h=0.05, redundant="min_norm")
    np.testing.assert_allclose(sol["lam[again]"], 2 * sol["lam[rod]"], atol=1e-9)  # of minimum norm
    assert "holonomic[0] (rod); holonomic[1] (again) are not unique" in sol.message


def test_a_model_and_its_motion_agree():
    model = mb.Model()
    bob = model.add(mb.PointMass("bob", 2.0, at=(1.0, 0.0, 0.0)))
    model.add(mb.Distance("rope", model.ground, bob, length=1.0))
    sol = model.solve((0.0, 0.5), h=0.05)
    motion = model.motion(sol)
    np.testing.assert_allclose(sol["bob.z"], motion.position("bob")[:, 2], atol=1e-15)
    np.testing.assert_allclose(sol["bob.x'"], motion.velocity("bob")[:, 0], atol=1e-15)
    pulled = np.linalg.norm(motion.reaction("rope").force, axis=1)
    size = np.linalg.norm(sol.reactions.total, axis=1)
    np.testing.assert_allclose(pulled, size, atol=1e-12)
    assert sol["lam[rope.length]"].shape == (11,)
