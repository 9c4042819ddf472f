"""Models that are closed again after rows were left out, in poses where little is said, or not at all."""

import copy
import pickle

import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb


def cranks(count, spatial=False):
    """Cranks of equal length on one bar. All but two add rows that depend on others."""
    model, angle = mb.Model(gravity=(0, -9.81, 0)), 0.5
    tip = np.array([np.cos(angle), np.sin(angle), 0.0])
    inertia, axis = mb.Inertia(1.0, np.eye(3)), {"axis": (0, 0, 1)} if spatial else {}
    flat = lambda name, at: mb.PlanarBody(name, 1.0, 1.0, at=at[:2])
    body = (lambda name, at: mb.Body(name, inertia, at=at)) if spatial else flat
    hinge = lambda name, a, b, at: mb.Revolute(name, a, b, at=at, **axis)
    bar = model.add(body("bar", np.array([count / 2, 0, 0]) + tip))
    for k in range(count):
        foot = np.array([float(k), 0, 0])
        crank = model.add(body(f"c{k}", foot + tip / 2))
        model.add(hinge(f"a{k}", model.ground, crank, foot))
        model.add(hinge(f"b{k}", crank, bar, foot + tip))
    return model


def open_by(model):
    """How far the two points of each hinge are apart."""
    return max(np.linalg.norm(a.pose[0] - b.pose[0]) for a, b in (one.markers for one in model.joints))


def test_rows_that_were_left_out_are_closed_again():
    """They follow from the others where they were left out, but elsewhere there is another way to close."""
    model = cranks(3)
    assert len(model.assemble(redundant="drop").redundant) == 1
    model["c1"].angle, model["bar"].x = 2.0, (1.7, 0.9, 0)
    report = model.assemble(redundant="drop")
    assert (report.freedom, len(report.redundant)) == (1, 1)
    assert open_by(model) < 1e-9
    model["c0"].angle, model["bar"].x = 1.0, (2.0, 0.7, 0)
    assert model.assemble().redundant == report.redundant  # they stay left out
    assert open_by(model) < 1e-9


def test_many_redundant_rows():
    """19 of 60, found at once; the forces of the others stay small while it moves."""
    model = cranks(6, spatial=True)
    report = model.assemble(redundant="drop")
    assert (report.freedom, len(report.redundant)) == (1, 19)
    motion = model.motion(model.solve((0.0, 1.0), h=5e-3, method="index3"))
    assert max(np.abs(motion.reaction(one.name).force).max() for one in model.joints) < 300
    assert np.ptp(motion.energy()["total"]) < 1e-3 * np.ptp(motion.energy()["kinetic"])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("at", [0.3, 0.1 + 0.2])
def test_joints_at_centres_up_to_rounding(at):
    model, inertia = mb.Model(), mb.Inertia(1.0, np.eye(3))
    one = model.add(mb.Body("one", inertia, at=(at, 0, 0)))
    two = model.add(mb.Body("two", inertia, at=(2.0, 0.1, 0)))
    model.add(mb.Prismatic("slide", model.ground, one, at=(0.3, 0, 0), axis=(1, 0, 0)))
    model.add(mb.Distance("rod", one, two, length=3.0))
    assert model.assemble().freedom == 6
    assert np.linalg.norm(one.x - two.x) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("coefficients", "start", "other"),
    [
        ([0.0, 0.7123], 2.5, np.pi),
        ([0.1, 0.3, 0.2], 3.0, np.pi),
        ([0.0, 0.5], 2.5, np.pi / 2),  # after a turn of the other joint it is half a turn further
        ([0.0, 2.0], -2.5, np.pi),
    ],
)
def test_joints_that_follow_close_on_the_right_side(coefficients, start, other):
    model = mb.Model(gravity=(0, 0, 0))
    one, two = (model.add(mb.PlanarBody(name, 1.0, 0.1, at=(i, 0))) for i, name in enumerate("ab"))
    first, second = (model.add(mb.Revolute(f"hinge {x.name}", model.ground, x, at=x.x)) for x in (one, two))
    model.add(mb.Mimic("mimic", first, second, coefficients))
    one.angle, two.angle = start, 0.3
    model.assemble(hold=["b"])
    assert one.angle == pytest.approx(np.polyval(coefficients[::-1], 0.3))
    one.angle += other
    with pytest.raises(ga.InconsistentInitialValues, match="'mimic'"):
        model.solve((0.0, 0.1), h=0.01)


def test_what_assemble_refuses_changes_nothing():
    model = cranks(3)
    model["bar"].x = (1.6, 0.5, 0)
    before = model.q0
    with pytest.raises(ValueError, match="depend on others"):
        model.assemble()
    np.testing.assert_array_equal(model.q0, before)
    model.assemble(redundant="drop")
    dropped = [joint.dropped for joint in model.joints]
    with pytest.raises(ValueError, match="'nothing'"):
        model.assemble(hold=["nothing"], redundant="keep")
    assert [joint.dropped for joint in model.joints] == dropped


@pytest.mark.parametrize(
    "options", [{"hold": [("a0", "angle", "x")]}, {"hold": [["a0"]]}, {"hold": [3]}, {"rates": [("a0", 1.0)]}]
)
def test_what_cannot_be_held_is_named(options):
    with pytest.raises(TypeError, match=f"{next(iter(options))} must .*got"):
        cranks(2).assemble(**options)


def lift(size):
    """A scissor lift of two stages with bars of this length, held at its base."""
    model, y = mb.Model(gravity=(0, 0, -9.81)), (0, 1, 0)
    across, up = size * np.cos(0.3), size * np.sin(0.3)
    before = None
    for i in range(2):
        z = i * up
        a = model.add(mb.Body.bar(f"a{i}", 1.0, (0, 0, z), (across, 0, z + up)))
        b = model.add(mb.Body.bar(f"b{i}", 1.0, (across, 0, z), (0, 0, z + up)))
        model.add(mb.Revolute(f"m{i}", a, b, at=(across / 2, 0, z + up / 2), axis=y))
        if before is None:
            base = model.add(mb.Revolute("base", model.ground, a, at=(0, 0, 0), axis=y))
            rail, foot = model.ground.frame(axis=(1, 0, 0)), b.frame((-size / 2, 0, 0))
            model.add(mb.PointOnLine("slide", rail, foot))
        else:
            model.add(mb.Revolute("left", before[1], a, at=(0, 0, z), axis=y))
            model.add(mb.Revolute("right", before[0], b, at=(across, 0, z), axis=y))
        before = a, b
    model.add(mb.Driven("hold", base, lambda t: 0.0 * t))
    return model


@pytest.mark.filterwarnings("ignore:the mechanism has a size")
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e3, 1e5])
def test_shared_loads_carry_the_weight_in_any_unit(size):
    model = lift(size)
    model.assemble(redundant="drop")
    motion = model.motion(model.solve((0.0, 0.01), h=1e-3))
    vertical = lambda name: (
        model[name].markers[0].Q @ motion.reaction(name, redundant="min_norm").force[-1]
    )[2]
    assert vertical("base") + vertical("slide") == pytest.approx(4 * 9.81, rel=1e-8)


def test_rows_left_out_by_hand_are_looked_at():
    model = cranks(3)
    model.assemble(redundant="drop")
    model.drop([("a0", 0)])
    with pytest.warns(UserWarning, match="1 of the rows that were left out do not follow"):
        model.assemble()
    with pytest.raises(ValueError, match="has no row 17"):
        model.drop([(model["a0"], 17)])


# --- what models have made their equations with -------------------------------------------------------------


class OwnHinge(mb.Revolute):
    """A joint of the user's own, which is another one in the plane."""


def test_joints_of_the_users_own_in_the_plane_are_pickled():
    model = mb.Model(gravity=(0, -9.81, 0))
    arm = model.add(mb.PlanarBody("arm", 1.0, 1.0, at=(1, 0)))
    model.add(OwnHinge("hinge", model.ground, arm, at=(0, 0)))
    for made in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert type(made["hinge"]) is type(model["hinge"])
        np.testing.assert_array_equal(made.solve((0.0, 0.1), h=0.01).q, model.solve((0.0, 0.1), h=0.01).q)


def spring():
    model = mb.Model()
    bob = model.add(mb.Body("bob", mb.box(1.0, (1, 1, 1)), at=(0, 0, -1)))
    model.add(mb.SpringDamper("spring", model.ground, bob, 100.0))
    return model


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_own_their_things(copied):
    other = copied(spring())
    with pytest.raises(ValueError, match="is in another model"):
        mb.Model().add(other["bob"])


def test_numbers_of_a_model_cannot_be_written_to():
    """A run before and after would use other numbers than those that are shown."""
    model = spring()
    for _ in range(2):
        force, bob = model["spring"], model["bob"]
        with pytest.raises(TypeError, match="stiffness of a joint or force cannot be changed"):
            force.numbers["stiffness"] = np.array(400.0)
        for array in (force.numbers["stiffness"], force.markers[1].r, bob.inertia.tensor, bob.inertia.center):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 3.0
        for key, value in (("markers", ()), ("dropped", frozenset([0])), ("numbers", {}), ("joints", ())):
            with pytest.raises(AttributeError, match=f"{key} of 'spring' cannot be changed"):
                setattr(force, key, value)
        with pytest.raises(ValueError, match="read-only"):
            model.gravity[2] = 0.0
        with pytest.raises(AttributeError, match=r"center of .* cannot be changed"):
            bob.center = np.ones(3)
        model = pickle.loads(pickle.dumps(model))


def test_a_place_that_is_refused_moves_nothing():
    model = mb.Model()
    one, two = (model.add(mb.Body(name, mb.box(1, (1, 1, 1)), at=(i, 0, 0))) for i, name in enumerate("ab"))
    q = model.q0
    q[0], q[10:14] = 9.0, 0.0
    with pytest.raises(ValueError, match="the quaternion of 'b' in q has the length 0"):
        model.place(q, model.v0)
    assert (one.x[0], two.x[0]) == (0.0, 1.0)


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_an_axis_has_any_length(size):
    bob = mb.Body("bob", mb.box(1, (1, 1, 1)))
    np.testing.assert_allclose(bob.frame(axis=(size, size, 0)).Q, bob.frame(axis=(1, 1, 0)).Q, atol=1e-15)


def test_points_are_not_turned_by_bushings():
    point, body = mb.PointMass("point", 1.0), mb.Body("body", mb.box(1, (1, 1, 1)))
    with pytest.raises(ValueError, match="'mount' has a torque on <PointMass 'point'>"):
        mb.Bushing("mount", point, body, [1, 1, 1, 0, 0, 1])
    mb.Bushing("mount", point, body, [1, 1, 1, 0, 0, 0], [1, 1, 1, 0, 0, 0])


@pytest.mark.parametrize("mass", ["1", 10**400])
def test_masses_that_are_no_numbers(mass):
    with pytest.raises((TypeError, ValueError), match="mass"):
        mb.Inertia(mass, (1, 1, 1))


def test_a_screw_is_posed_by_displacement_and_angle():
    model = mb.Model()
    nut = model.add(mb.Body("nut", mb.box(1.0, (1, 1, 1))))
    model.add(mb.Screw("screw", model.ground, nut, pitch=0.1, at=(0, 0, 0)))
    poses = [model.pose({"screw": x}, {"screw": x}) for x in (0.01, [0.01, 0.2 * np.pi])]
    for one, two in zip(*poses, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-15)
    with pytest.raises(ValueError, match=r"'screw' has the angle 0\.6283"):
        model.pose({"screw": [0.01, 0.3]})
