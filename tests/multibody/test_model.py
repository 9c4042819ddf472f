"""Models: closing of joints, redundancy, names, bad input, inertia, pictures."""

import warnings

import jax
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb


def four_bar(spread=0.0, axis=(0, 1, 0)):
    """A planar loop of three bars in space. With ``spread`` its bars are not where they belong."""
    model = mb.Model()
    points = np.array([(0, 0, 0), (0.6, 0, 0.8), (2, 0, 1.5), (2, 0, 0)])
    rng, bars = np.random.default_rng(1), []
    for i, name in enumerate(("crank", "coupler", "rocker")):
        a, b = points[i], points[i + 1]
        x = (b - a) / np.linalg.norm(b - a)
        R = np.stack([x, [0, 1, 0], np.cross(x, [0, 1, 0])], axis=1)
        at = (a + b) / 2 + spread * rng.normal(size=3)
        bars.append(model.add(mb.Body(name, mb.rod(1.0, np.linalg.norm(b - a)), at=at, rotation=R)))
    ends = [bar.inertia.shape.length / 2 for bar in bars]
    frame = lambda bar, side, n: bar.frame((side * n, 0, 0), axis=axis)
    ground = [model.ground.frame(points[0], axis=axis), model.ground.frame(points[3], axis=axis)]
    model.add(mb.Revolute("A", ground[0], frame(bars[0], -1, ends[0])))
    model.add(mb.Revolute("B", frame(bars[0], 1, ends[0]), frame(bars[1], -1, ends[1])))
    model.add(mb.Revolute("C", frame(bars[1], 1, ends[1]), frame(bars[2], -1, ends[2])))
    model.add(mb.Revolute("D", frame(bars[2], 1, ends[2]), ground[1]))
    return model


def test_redundant_rows_are_named_and_left_out():
    """Four hinges in a plane: 20 rows, of which 17 count. The same loop of planar bodies moves alike."""
    model = four_bar()
    rows = "'D', y; 'D', about x; 'D', about y"
    with pytest.raises(ValueError, match=f"3 rows of joints depend on others: {rows}"):
        model.assemble()
    found = model.assemble(redundant="drop")
    assert found.freedom == 1
    assert str(found) == "1 degree of freedom; left out: 'D', y; 'D', about x; 'D', about y"
    with warnings.catch_warnings():
        warnings.simplefilter("error", ga.FallbackWarning)
        sol = model.solve((0.0, 1.0), h=2e-3)
    assert sol.backend == "native"
    flat = mb.Model(gravity=(0, -9.81, 0))
    for body in model.bodies:
        x, angle = body.x[[0, 2]], np.arctan2(body.R[2, 0], body.R[0, 0])
        flat.add(mb.PlanarBody(body.name, body.mass, body.inertia.tensor[1, 1], at=x, angle=angle))
    loop = [flat.ground, *flat.bodies, flat.ground]
    for name, a, b in zip("ABCD", loop, loop[1:], strict=False):
        at = model[name].markers[0].pose[0][[0, 2]]
        flat.add(mb.Revolute(name, a, b, at=at))
    assert flat.assemble().freedom == 1
    other = flat.solve((0.0, 1.0), h=2e-3)
    wanted = flat.motion(other).position("coupler")
    np.testing.assert_allclose(model.motion(sol).position("coupler")[:, [0, 2]], wanted[:, :2], atol=1e-8)


def test_rows_left_out_in_one_model_stay_in_another():
    """Models share the functions of their joints, but not which rows are left out later."""
    one, two = four_bar(), four_bar()
    systems = one.system, two.system
    one.drop([(one["D"], 1), (one["D"], 3), (one["D"], 4)])
    sizes = [jax.eval_shape(lambda q, s=s: s.g(0.0, q), two.q0).shape for s in (*systems, one.system)]
    assert sizes == [(20,), (20,), (17,)]


@pytest.mark.slow
def test_redundant_rows_may_be_kept_for_reactions_of_least_norm():
    model = four_bar()
    kept = model.assemble(redundant="keep")
    assert (len(kept.redundant), kept.dropped) == (3, False)
    sol = model.solve((0.0, 0.02), h=2e-3, redundant="min_norm", method="index3")
    assert sol.lam.shape[1] == 20
    left = four_bar()
    left.assemble(redundant="drop")
    other = left.solve((0.0, 0.02), h=2e-3, method="index3")
    np.testing.assert_allclose(sol.q, other.q, atol=1e-9)


def test_a_rough_guess_is_moved_onto_the_joints():
    model = four_bar(spread=0.15)
    found = model.assemble(redundant="drop")
    assert found.gap > 0.1
    for joint in model.joints:
        a, b = (marker.pose for marker in joint.markers)
        np.testing.assert_allclose(a[0], b[0], atol=1e-11)
    held = four_bar(spread=0.15)
    before = held["crank"].x.copy()
    with pytest.raises(ValueError, match="cannot be closed"):
        held.assemble(hold=["crank"], redundant="drop")
    np.testing.assert_array_equal(held["crank"].x, before)  # nothing is half moved


def test_a_loop_that_cannot_be_closed_names_its_joints():
    model = mb.Model()
    bar = model.add(mb.Body("bar", mb.rod(1.0, 1.0), at=(0.5, 0, 0)))
    model.add(mb.Spherical("left", model.ground, bar.frame((-0.5, 0, 0))))
    model.add(mb.Spherical("right", model.ground.frame((3.0, 0, 0)), bar.frame((0.5, 0, 0))))
    with pytest.raises(ValueError, match=r"2 joints cannot be closed .*'left' \(x: .*'right' \(x: "):
        model.assemble()


def test_a_model_that_is_not_assembled_says_so():
    model = mb.Model()
    bar = model.add(mb.Body.bar("bar", 1.0, (0, 0, 0), (1, 0, 0)))
    model.add(mb.Spherical("hook", model.ground.frame((0, 0, 0.1)), bar.frame((-0.5, 0, 0))))
    with pytest.raises(ga.InconsistentInitialValues) as caught:
        model.solve((0.0, 0.1), h=0.01)
    assert str(caught.value).endswith("not closed: model.assemble() closes them, at a time t.")


def test_a_singular_position_is_no_redundancy():
    """A flat parallelogram: its rows depend on each other there, and nowhere else."""
    model = mb.Model(gravity=(0, -9.81, 0))
    bar = lambda name, at, n: model.add(mb.PlanarBody(name, 1.0, 0.1 * n, at=at))
    one, two, top = bar("one", (0.5, 0), 1.0), bar("two", (2.5, 0), 1.0), bar("top", (2.0, 0), 2.0)
    model.add(mb.Revolute("a", model.ground, one, at=(0, 0)))
    model.add(mb.Revolute("b", model.ground, two, at=(2, 0)))
    model.add(mb.Revolute("c", one, top, at=(1, 0)))
    model.add(mb.Revolute("d", two, top, at=(3, 0)))
    assert model.assemble() == (1, (), False, 0.0)


@pytest.mark.slow
def test_velocities_follow_from_a_few():
    """The crank is given a rate; the other bodies get theirs from the joints."""
    model = four_bar()
    model["crank"].angular_velocity = np.array([0, 2.0, 0])
    model["crank"].velocity = np.cross([0, 2.0, 0], model["crank"].x)
    model.assemble(hold=["crank"], redundant="drop")
    sol = model.solve((0.0, 0.01), h=1e-3)
    assert model.motion(sol).rate("A")[0] == pytest.approx(2.0, abs=1e-12)
    assert np.abs(sol.residuals.velocity).max() < 1e-12


# --- inertia ------------------------------------------------------------------------------------------------


def test_capsules_and_meshes_agree_with_integrals():
    """Monte Carlo points in a capsule; a box as a mesh."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(400_000, 3)) * [0.3, 0.3, 0.8]
    inside = np.hypot(np.hypot(x[:, 0], x[:, 1]), np.maximum(np.abs(x[:, 2]) - 0.5, 0)) < 0.3
    x = x[inside]
    square = np.einsum("ki,kj->ij", x, x) / len(x)
    wanted = np.trace(square) * np.eye(3) - square
    np.testing.assert_allclose(mb.capsule(1.0, 0.3, 1.0).tensor, wanted, atol=2e-3)


# --- bad input ----------------------------------------------------------------------------------------------

GOOD = mb.box(1.0, (1, 1, 1))


def with_bodies():
    model = mb.Model()
    return model, model.add(mb.Body("arm", GOOD)), model.add(mb.Body("hand", GOOD, at=(1, 0, 0)))


BAD = {
    "mass must be positive": lambda m, a, b: mb.sphere(-1.0, 0.1),
    "no body has the principal moments": lambda m, a, b: mb.Inertia(1.0, [1, 1, 3]),
    "must be symmetric": lambda m, a, b: mb.Inertia(1.0, [[1, 1, 0], [0, 1, 0], [0, 0, 1]]),
    "principal moment of zero": lambda m, a, b: mb.Inertia(1.0, [0, 1, 1]),
    "rotation of a frame on 'arm' is not orthonormal": lambda m, a, b: a.frame(rotation=2 * np.eye(3)),
    "names must differ": lambda m, a, b: m.add(mb.Body("arm", GOOD)),
    "'j' connects 'arm' with itself": lambda m, a, b: mb.Spherical("j", a, a),
    "do you mean 'arm'": lambda m, a, b: m["amr"],
    "'leg' is not in the model": lambda m, a, b: m.add(mb.Spherical("j", a, mb.Body("leg", GOOD))),
    "no body that can move": lambda m, a, b: m.add(mb.AppliedForce("f", m.ground)),
    "'j' has no coordinate": lambda m, a, b: mb.Motor("f", mb.Spherical("j", a, b)),
    "it has angle": lambda m, a, b: mb.JointSpring("f", mb.Revolute("j", a, b), coordinate="way"),
    "axis of 'j' is zero": lambda m, a, b: mb.Revolute("j", a, b, at=(0, 0, 0), axis=(0, 0, 0)),
    "frames and at": lambda m, a, b: mb.Revolute("j", a.frame(), b, at=(0, 0, 0)),
    "teeth of 'g' must be two positive": lambda m, a, b: mb.Gear("g", *hinges(a, b), teeth=(2.5, 1)),
    "radius of 'r' must be positive": lambda m, a, b: mb.RollingDisk("r", a, b, radius=-1),
    "stiffness of 's' must be zero or": lambda m, a, b: mb.SpringDamper("s", a, b, stiffness=-1),
    "inertia of the body 'leg' must be an Inertia": lambda m, a, b: mb.Body("leg", 3.0),
    "hold names 'arn'": lambda m, a, b: m.assemble(hold=["arn"]),
    "a point mass has no axes": lambda m, a, b: m.add(mb.Weld("w", a, m.add(mb.PointMass("p", 1.0)))),
    "the model has no body": lambda m, a, b: mb.Model().solve((0, 1)),
}


def hinges(a, b):
    return mb.Revolute("one", a, b), mb.Revolute("two", a, b)


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named(message):
    with pytest.raises((ValueError, TypeError, KeyError), match=message):
        BAD[message](*with_bodies())


# --- pictures -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_view_shows_every_body_and_spring(tmp_path):
    model = mb.Model()
    bar = model.add(mb.Body("bar", mb.rod(1.0, 1.0), at=(0.5, 0, 0)))
    bob = model.add(mb.PointMass("bob", 1.0, at=(1.0, 0, -1.0)))
    model.add(mb.Revolute("hinge", model.ground, bar, at=(0, 0, 0), axis=(0, 1, 0)))
    model.add(mb.SpringDamper("spring", bar.frame((0.5, 0, 0)), bob, stiffness=50.0))
    model.assemble()
    sol = model.solve((0.0, 0.5), h=5e-3)
    view = model.view(sol, frames=20, traces=["bob"])
    names = {item.name: item for item in view.scene.items}
    assert {"bar", "bob", "spring"} <= set(names)
    x = model.motion(sol).position("bar")
    np.testing.assert_allclose(names["bar"].tracks["at"].x[[0, -1]], x[[0, -1]], atol=1e-6)
    view.save(tmp_path / "model.html")
    assert (tmp_path / "model.html").stat().st_size > 10_000
