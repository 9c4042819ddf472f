"""Models as files: what is written is read again, and wrong entries are named."""

import inspect
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from genalpha import multibody as mb
from genalpha.multibody.formats import files
from genalpha.multibody.frames import axes_of
from genalpha.view import shapes
from genalpha.view.poses import track

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import iftomm


def everything():
    """A model with one joint or force of every class that needs no function."""
    model = mb.Model(gravity=(0, 1, -9))
    one = model.add(mb.Body("one", mb.box(1.0, (1, 0.2, 0.3)).plus(0.5, (0.5, 0, 0)), at=(0, 0, 1)))
    two = model.add(mb.Body("two", mb.cylinder(2.0, 0.2, 0.5), at=(1, 0, 1), angular_velocity=(1, 2, 3)))
    bob = model.add(mb.PointMass("bob", 0.5, at=(2, 0, 0), velocity=(0, 1, 0)))
    flat = model.add(mb.PlanarBody("flat", 1.0, 0.1, at=(3, 1), angle=0.3, center=(0.1, 0)))
    ground, at = model.ground, {"at": (0.5, 0, 1), "axis": (0, 1, 0)}
    rubs = mb.Friction(0.1, radius=0.02, length=0.1)
    hinge = model.add(mb.Revolute("hinge", one, two, **at, friction=rubs))
    slot = model.add(mb.Prismatic("slot", ground, two, **at))
    others = (mb.Spherical, mb.Cylindrical, mb.Planar, mb.Weld, mb.PointOnLine, mb.PointOnPlane, mb.KnifeEdge)
    for cls in others:
        model.add(cls(cls.__name__, one, two, **at))
    model.add(mb.Universal("cardan", one, two, at=(0.5, 0, 1), axis=(1, 0, 0), second=(0, 0, 1)))
    model.add(mb.Distance("rod", one.frame((0, 0, 0.1)), bob))
    model.add(mb.Screw("screw", one, two, 0.2, **at))
    other = model.add(mb.Revolute("other", ground, one, at=(0, 0, 1), axis=(0, 1, 0)))
    model.add(mb.Gear("gear", hinge, other, teeth=(12, 18), internal=True))
    model.add(mb.Rack("rack", hinge, slot, radius=0.1))
    model.add(mb.Mimic("mimic", hinge, slot, (0.1, 2.0, 0.3), of=("angle", "displacement")))
    model.add(mb.Rotor("rotor", slot, 0.2))
    model.add(mb.RollingDisk("wheel", ground, two, radius=0.2))
    model.add(mb.RollingSphere("ball", ground, one, radius=0.2))
    model.add(mb.Revolute("pin", ground, flat, at=(3, 1)))
    model.add(mb.SpringDamper("spring", one, bob, 10.0, damping=0.1))
    model.add(mb.JointSpring("coil", hinge, 3.0, free=0.1))
    model.add(mb.Motor("motor", slot, effort=2.0, limit=5.0))
    model.add(mb.Limit("range", hinge, -1.0, 2.0, stiffness=1e3, damping=0.1))
    model.add(mb.DryFriction("rub", hinge, 0.2, speed=0.05))
    model.add(mb.Bushing("rubber", one, two, stiffness=[1, 2, 3, 4, 5, 6]))
    model.add(mb.AppliedForce("push", one.frame((0.1, 0, 0)), force=(1, 2, 3), follows=True))
    model.add(mb.SphereContact("floor", ground, one, 0.1, 1e4, friction=0.3))
    model.add(mb.Drag("air", bob, linear=0.1))
    return model


def test_every_kind_of_joint_and_force_is_written_and_read_again():
    model = everything()
    text = json.loads(json.dumps(files.written(model)))
    again = files.read(text)
    second = files.written(again)
    kinds = {type(x).__name__ for x in (*model.joints, *model.forces)}
    functions = {
        "Driven",
        "OnSurface",
        "VelocityCoupling",
        "Custom",
        "PlanarPrismatic",
        "PlanarWeld",
    }
    assert set(files.CONNECTORS) - kinds == functions
    assert [entry["name"] for entry in text["joints"]] == [entry["name"] for entry in second["joints"]]
    np.testing.assert_allclose(again.q0, model.q0, atol=1e-14)
    np.testing.assert_allclose(again.v0, model.v0, atol=1e-14)
    for one, two in zip([*model.joints, *model.forces], [*again.joints, *again.forces], strict=True):
        assert type(one) is type(two)
        assert one.numbers.keys() == two.numbers.keys()
        for key, value in one.numbers.items():
            np.testing.assert_allclose(two.numbers[key], value, atol=1e-12, err_msg=f"{one.name} {key}")
        for a, b in zip(one.markers, two.markers, strict=True):
            np.testing.assert_allclose(b.pose[0], a.pose[0], atol=1e-12)
            np.testing.assert_allclose(b.pose[1], a.pose[1], atol=1e-12)


def test_numbers_have_the_names_of_arguments():
    for one in (*everything().joints, *everything().forces):
        names = set(inspect.signature(type(one)).parameters)
        assert {key for key in one.numbers if not key.startswith("friction_")} <= names, one


def test_teeth_keep_their_phase():
    """The wheel was turned after the gear was made: the file says how its teeth mesh."""
    model = mb.Model(gravity=(0, 0, 0))
    add = lambda i: model.add(mb.PlanarBody(f"wheel {i}", 1.0, 0.1, at=(i, 0)))
    wheels = [add(i) for i in range(3)]
    hinges = [model.add(mb.Revolute(f"hinge {i}", model.ground, wheels[i], at=(i, 0))) for i in range(2)]
    slider = model.add(mb.Prismatic("slider", model.ground, wheels[2], at=(2, 0), axis=(1, 0)))
    model.add(mb.Gear("gear", *hinges, teeth=(1, 2)))
    model.add(mb.Rack("rack", hinges[0], slider, radius=0.5))
    wheels[0].angle = 0.3
    again = files.read(json.loads(json.dumps(files.written(model))))
    assert again["gear"].numbers["start"] == model["gear"].numbers["start"] == 0.0
    assert again["rack"].numbers["start"] == model["rack"].numbers["start"] == 0.0


def test_the_shape_of_the_ground_is_kept():
    model = everything()
    assert "ground" not in files.written(model)
    model.ground.shape = shapes.Box((2.0, 1.0, 0.1), color="#336699")
    text = json.loads(json.dumps(files.written(model)))
    again = files.read(text).ground.shape
    assert isinstance(again, shapes.Box)
    np.testing.assert_allclose(again.size, (2.0, 1.0, 0.1))
    assert again.color == "#336699"
    for wrong, message in (
        ({"shap": {}}, "ground.shap is unknown: do you mean 'shape'"),
        ({"shape": {"type": "Bax"}}, "ground.shape.type is 'Bax': there are Box"),
        ({"shape": {"type": "Sphere", "size": 1}}, "ground.shape.size is unknown"),
        ({"shape": {"type": "Sphere"}}, "ground.shape: .*radius"),
        ({"shape": {"type": ["Sphere"]}}, r"ground.shape.type is \['Sphere'\]"),
        (
            {"shape": {"type": "Sphere", "radius": "1"}},
            "ground.shape.radius must be a finite number, got '1'",
        ),
        (
            {"shape": {"type": "Sphere", "radius": 1, "at": "x"}},
            "ground.shape.at must be 2 or 3 finite numbers",
        ),
        (
            {"shape": {"type": "Sphere", "radius": 1, "rotation": [1, 1, 0, 0]}},
            "ground.shape: .*length 1.41421",
        ),
        ({"shape": {"type": "Box", "size": "x"}}, "ground.shape.size must be finite numbers, got 'x'"),
        (3, "ground must be a table"),
    ):
        with pytest.raises(ValueError, match=message):
            files.read({**text, "ground": wrong})


def test_the_pose_of_a_shape_is_kept():
    """A position, and a rotation. A shape that a file cannot hold is an error."""
    model, turned = mb.Model(), [[0.0, -1, 0], [1, 0, 0], [0, 0, 1]]
    ball = model.add(mb.PointMass("ball", 1.0, shape=shapes.Sphere(0.1, at=(1, 2))))
    model.ground.shape = shapes.Plane((2.0, 1.0), at=((0, 0, -1), turned))
    again = files.read(json.loads(json.dumps(files.written(model))))
    assert isinstance(again.ground.shape, shapes.Plane)
    for shape, x, R in (
        (again.ground.shape, (0, 0, -1), turned),
        (again["ball"].shape, (1, 2, 0), np.eye(3)),
    ):
        found = track(shape.at, 1, "at")[0]
        np.testing.assert_allclose(found.x[0], x)
        np.testing.assert_allclose(axes_of(found.p[0]), R, atol=1e-15)
    for shape, message in (
        (shapes.Sphere(0.1, at=lambda t, q: q), "the shape of .*'ball'.* has the function 'at'"),
        (
            shapes.Rod(start=(0, 0), end=(1, 0)),
            "the shape of .*'ball'.* is a Rod, which a file cannot hold: use Box",
        ),
    ):
        ball.shape = shape
        with pytest.raises(ValueError, match=message):
            files.written(model)


@pytest.mark.slow
def test_a_model_from_a_file_moves_alike(tmp_path):
    """After closing its joints and leaving out a row."""
    model = iftomm.bricard()
    model.assemble(redundant="drop")
    model.save(tmp_path / "bricard.json")
    again = mb.load(tmp_path / "bricard.json")
    assert [joint.dropped for joint in again.joints] == [joint.dropped for joint in model.joints]
    one, two = (m.solve((0.0, 0.1), h=5e-3, method="index3") for m in (model, again))
    np.testing.assert_allclose(two.q, one.q, atol=1e-10)


TOML = """
format = "genalpha model 1"
gravity = [0, -9.81, 0]
[[bodies]]
name = "bar"
type = "PlanarBody"
mass = 1.0
moment = 0.1
at = [0.5, 0]
[[joints]]
name = "pin"
type = "Revolute"
a = "ground"
b = { body = "bar", at = [-0.5, 0, 0] }
friction = { coefficient = 0.2, radius = 0.01 }
[[forces]]
name = "range"
type = "Limit"
joint = "pin"
lower = -1.0
upper = 1.5
stiffness = 100.0
"""


def test_a_file_written_by_hand(tmp_path):
    path = tmp_path / "bar.toml"
    path.write_text(TOML)
    model = mb.load(path)
    assert model.assemble().freedom == 1
    assert type(model["pin"]).__name__ == "PlanarRevolute"
    friction = {key: x for key, x in model["pin"].numbers.items() if key.startswith("friction")}
    assert friction == {
        "friction": 0.2,
        "friction_radius": 0.01,
        "friction_speed": 1e-3,
        "friction_soft": 1e-6,
    }
    assert model["range"].numbers["upper"] == 1.5


def test_functions_cannot_be_written():
    model = mb.Model()
    body = model.add(mb.Body("wheel", mb.sphere(1.0, 0.1)))
    model.add(mb.AppliedForce("wind", body, force=lambda t: (t, 0, 0)))
    with pytest.raises(ValueError, match=r"'wind' .* has the function 'force', which a file cannot hold"):
        files.written(model)


WRONG = {
    "bodies\\[0\\] \\(bar\\).masss is unknown: do you mean 'mass'": ("mass = 1.0", "masss = 1.0"),
    "bodies\\[0\\] \\(bar\\): mass of 'bar' must be positive": ("mass = 1.0", "mass = -1.0"),
    "joints\\[0\\] \\(pin\\).type is 'Revolut', which is unknown: do you mean 'Revolute'": (
        '"Revolute"',
        '"Revolut"',
    ),
    "bar.toml: joints\\[0\\] \\(pin\\).b.body: the model has nothing with the name 'bat'": (
        'body = "bar"',
        'body = "bat"',
    ),
    "joints\\[0\\] \\(pin\\).b.att is unknown: do you mean 'at'": ("at = [-0.5, 0, 0]", "att = [0, 0, 0]"),
    "joints\\[0\\] \\(pin\\).friction.radios is unknown: do you mean 'radius'": ("radius =", "radios ="),
    "joints\\[0\\] \\(pin\\).friction has no coefficient": ("coefficient = 0.2, ", ""),
    "joints\\[0\\] \\(pin\\): coefficient of a Friction must be zero": (
        "coefficient = 0.2",
        "coefficient = -1",
    ),
    "forces\\[0\\] \\(range\\): 'range' has one end": ("upper = 1.5", ""),
    "this is no model": ("genalpha model 1", "something"),
    "is no TOML": ("[[bodies]]", "[[bodies"),
    "gravitas is unknown: do you mean 'gravity'": ("gravity =", "gravitas ="),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_entries_are_named(message, tmp_path):
    path = tmp_path / "bar.toml"
    path.write_text(TOML.replace(*WRONG[message]))
    with pytest.raises(ValueError, match=message):
        mb.load(path)


# --- what cannot be read again --------------------------------------------------------------


class SpringDamper(mb.SpringDamper):
    """A subclass with the name of its base."""

    force = staticmethod(lambda *given, **numbers: mb.SpringDamper.force(*given, **numbers))


class Magnet(mb.Force):
    force = staticmethod(lambda t, a, b: (mb.Wrench(a.x, b.x), mb.Wrench(b.x, a.x)))

    def __init__(self, name, a, b):
        super().__init__(name, [a, b])


class MyRevolute(mb.Revolute):
    pass


class MyBody(mb.Body):
    pass


@pytest.fixture
def pair():
    """A model with two bodies, one of them in a plane, and the file that it must not write."""
    model = mb.Model()
    body = model.add(mb.Body("ball", mb.sphere(1.0, 0.1), at=(1, 0, 0)))
    flat = model.add(mb.PlanarBody("flat", 1.0, 1.0))
    return model, body, flat


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda ground, ball, flat: SpringDamper("spring", ground, ball, 1.0),
            "<SpringDamper 'spring' of 'ground' and 'ball'> is a SpringDamper of your own",
        ),
        (
            lambda ground, ball, flat: Magnet("pull", ground.frame(), ball.frame()),
            "<Magnet 'pull' of 'ground' and 'ball'> is a Magnet of your own",
        ),
        (
            lambda ground, ball, flat: MyRevolute("pin", ground, ball),
            "<MyRevolute 'pin' of 'ground' and 'ball'> is a MyRevolute of your own",
        ),
        (
            lambda ground, ball, flat: MyRevolute("pin", ground, flat),
            "<PlanarMyRevolute 'pin' of 'ground' and 'flat'> is a MyRevolute of your own",
        ),
        (
            lambda ground, ball, flat: MyBody("own", mb.sphere(1.0, 0.1)),
            "<MyBody 'own'> is a MyBody of your own",
        ),
    ],
)
def test_own_classes_are_not_written(tmp_path, pair, make, message):
    """They would be read as classes of the library, or not at all."""
    model, ball, flat = pair
    model.add(make(model.ground, ball, flat))
    path = tmp_path / "model.json"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}, which a file cannot hold: save the model"):
        model.save(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "frame", "kind", "message"),
    [
        ("ball", lambda ball: ball.frame((1, 0, 0)), ValueError, "['ball']: the model has <Body 'ball'> alr"),
        ("ground", lambda ball: ball.frame(), ValueError, "['ground']: the model has <Ground 'ground'> alr"),
        ("t", lambda ball: 3, TypeError, "['t'] must be a body or a frame on it, got int"),
        (3, lambda ball: ball.frame(), TypeError, "[3]: the name of a frame must be a text"),
        (
            "t",
            lambda ball: mb.Body("ball", mb.sphere(1.0, 0.1)).frame(),
            ValueError,
            "['t']: the body 'ball' is not in the model",
        ),
    ],
)
def test_frames_that_cannot_be_read_again_are_not_written(tmp_path, pair, name, frame, kind, message):
    model, ball, _ = pair
    model.frames["tool"] = ball.frame((0, 0, 1))
    path = tmp_path / "model.json"
    model.save(path)
    np.testing.assert_allclose(mb.load(path)["tool"].pose[0], [1, 0, 1])
    path.unlink()
    model.frames[name] = frame(ball)
    with pytest.raises(kind, match=re.escape(f"model.frames{message}")):
        model.save(path)
    assert not path.exists()
