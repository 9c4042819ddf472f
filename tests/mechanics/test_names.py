"""Names and units of coordinates, velocities and constraints: what is accepted, and messages with them."""

import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb

NAMES = {"q": ["x", "y"], "holonomic": ["rod"]}


def pendulum(**options):
    return ga.System(
        mass=jnp.eye(2),
        force=lambda t, q, v: jnp.array([0.0, -9.81]),
        holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
        **options,
    )


def test_velocities_are_named_after_coordinates_in_flat_spaces_only():
    labels = pendulum(names=NAMES, units={"q": ["m", "m"], "t": "s"}).labels
    assert labels.v == ("x'", "y'")
    assert labels.a == ("x''", "y''")
    assert labels.v_units == ("m/s", "m/s")
    assert labels.a_units == ("m/s²", "m/s²")
    flat = pendulum(names=NAMES, space=ga.Product(ga.Euclidean(1), ga.Euclidean(1)))
    assert flat.labels.v == ("x'", "y'")
    turned = ga.System(jnp.eye(3), lambda t, q, v: jnp.zeros(3), space=ga.SO3(), names={"q": list("wxyz")})
    assert turned.labels.v == ()
    assert pendulum(names=NAMES | {"v": ["u", "w"]}).labels.v == ("u", "w")


@pytest.mark.parametrize(
    ("names", "kind", "told"),
    [
        (["x", "y"], TypeError, "names must be a dict of lists"),
        ({"positions": ["x", "y"]}, ValueError, "unknown list in names 'positions'. Known: q, v"),
        ({"q": "xy"}, TypeError, r"names\['q'\] must be a list of strings, got 'xy'"),
        ({"q": ["x", 2]}, TypeError, r"names\['q'\]\[1\] must be a string"),
        ({"q": ["x", ""]}, TypeError, r"names\['q'\]\[1\] must be a string that is not empty"),
        ({"q": ["x", "x"]}, ValueError, r"names\['q'\] has 'x' 2 times"),
        ({"q": ["x", "x'"]}, ValueError, 'the name "x\'" belongs to two of'),
        ({"q": ["x", "y"], "v": ["y", "z"]}, ValueError, "the name 'y' belongs to two of"),
        ({"q": ["x", "lam[0]"]}, ValueError, "by which solutions know something else"),
        ({"q": ["x", "t"]}, ValueError, "by which solutions know something else"),
    ],
)
def test_bad_names_are_refused(names, kind, told):
    with pytest.raises(kind, match=told):
        pendulum(names=names)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"names": {"q": ["x"]}}, r"names\['q'\] has 1 entries, but the system has 2 coordinates"),
        ({"names": {"v": list("uvw")}}, r"names\['v'\] has 3 entries, but the system has 2 velocities"),
        (
            {"names": {"holonomic": ["a", "b"]}},
            r"names\['holonomic'\] has 2 entries, but the system has 1 holonomic constraints",
        ),
        ({"names": {"nonholonomic": ["a"]}}, "the system has 0 nonholonomic constraints"),
        ({"units": {"q": ["m"]}}, r"units\['q'\] has 1 entries, but the system has 2 coordinates"),
    ],
)
def test_lengths_are_checked_when_sizes_are_known(given, told):
    with pytest.raises(ValueError, match=told):
        ga.solve(pendulum(**given), (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], h=0.1)


def test_broken_and_redundant_constraints_are_told_by_name():
    with pytest.raises(ga.InconsistentInitialValues, match=r": holonomic\[0\] \(rod\) = 0.21"):
        ga.solve(pendulum(names=NAMES), (0.0, 1.0), [1.1, 0.0], [0.0, 0.0], h=0.1, backend="xla")
    twice = ga.System(
        jnp.eye(2),
        lambda t, q, v: jnp.zeros(2),
        lambda t, q: jnp.stack([q @ q - 1.0, 2 * (q @ q - 1.0)]),
        names={"holonomic": ["rod", "again"]},
    )
    told = r"holonomic\[1\] \(again\) is a combination of holonomic\[0\] \(rod\)"
    with pytest.raises(ga.RedundantConstraints, match=told):
        ga.consistent(twice, 0.0, [1.0, 0.0], [0.0, 0.0])


def test_values_that_are_no_numbers_are_told_by_name():
    system = ga.System(
        jnp.eye(2),
        lambda t, q, v: jnp.where(t > 0.5, jnp.nan, 1.0) * jnp.array([q[0], 0.0]),
        names={"q": ["x", "y"]},
    )
    with pytest.raises(ga.IntegrationError, match=r"force\[0\] \(x'\) is nan"):
        ga.solve(system, (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], h=0.1)
    bad = ga.System(jnp.eye(2), lambda t, q, v: q / q[1], names={"q": ["x", "y"]})
    with pytest.raises(ValueError, match=r"is NaN or infinite at the start, entries \[0 \(x'\), 1 \(y'\)\]"):
        ga.consistent(bad, 0.0, [1.0, 0.0], [0.0, 0.0])


def test_a_pickled_system_has_its_names():
    system = ga.System(np.eye(1), np.negative, names={"q": ["x"]}, units={"q": ["m"]})
    assert pickle.loads(pickle.dumps(system)).labels == system.labels


def test_a_model_names_its_bodies_and_joints():
    model = mb.Model()
    arm = model.add(mb.Body("arm", mb.rod(1.0, 2.0), at=(1, 0, 0)))
    bob = model.add(mb.PointMass("bob", 1.0, at=(3, 0, 0)))
    model.add(mb.Revolute("hinge", model.ground, arm, at=(0, 0, 0), axis=(0, 1, 0)))
    model.add(mb.Distance("rope", arm.frame((1, 0, 0)), bob, length=1.0))
    labels = model.system.labels
    assert labels.q == (
        *("arm.x", "arm.y", "arm.z", "arm.qw", "arm.qx", "arm.qy", "arm.qz"),
        *("bob.x", "bob.y", "bob.z"),
    )
    assert labels.v[:6] == ("arm.x'", "arm.y'", "arm.z'", "arm.wx", "arm.wy", "arm.wz")
    assert labels.holonomic == (
        *("hinge.x", "hinge.y", "hinge.z", "hinge.about x", "hinge.about y"),
        "rope.length",
    )
    bob.x[0] = 3.5
    with pytest.raises(ga.InconsistentInitialValues, match=r"holonomic\[5\] \(rope.length\) ="):
        model.solve((0.0, 1.0), h=0.1)
