"""Wrong entries of model files: each is refused, with its path and without words of Python."""

import copy
import json
import re

import pytest

from genalpha import multibody as mb
from genalpha.multibody.formats import files

MODEL = {
    "format": "genalpha model 1",
    "bodies": [
        {"name": "bar", "type": "Body", "mass": 1.0, "inertia": [1, 1, 1]},
        {"name": "flat", "type": "PlanarBody", "mass": 1.0, "moment": 1.0},
        {"name": "bob", "type": "PointMass", "mass": 1.0, "at": [1, 0, 0]},
    ],
    "joints": [
        {"name": "pin", "type": "Revolute", "a": "ground", "b": {"body": "bar", "at": [0, 0, 0]}},
        {"name": "slot", "type": "Prismatic", "a": "ground", "b": "bar"},
        {"name": "cardan", "type": "Universal", "a": "ground", "b": "bar"},
        {"name": "screw", "type": "Screw", "a": "ground", "b": "bar", "pitch": 0.1},
        {"name": "mimic", "type": "Mimic", "first": "pin", "second": "slot", "coefficients": [0, 1]},
        {"name": "gear", "type": "Gear", "first": "pin", "second": "screw", "teeth": [1, 2]},
    ],
    "forces": [
        {"name": "coil", "type": "JointSpring", "joint": "pin", "stiffness": 1.0},
        {"name": "motor", "type": "Motor", "joint": "pin"},
        {"name": "rubber", "type": "Bushing", "a": "ground", "b": "bar", "stiffness": 1.0},
        {"name": "push", "type": "AppliedForce", "body": "bar", "force": [0, 0, 1]},
        {"name": "ball", "type": "SphereContact", "a": "ground", "b": "bar", "radius": 1, "stiffness": 1},
    ],
    "frames": {"tool": {"body": "bar"}},
}
NAN = float("nan")
BAR, FLAT, PIN, RUBBER = "bodies[0] (bar)", "bodies[1] (flat)", "joints[0] (pin)", "forces[2] (rubber)"
WRONG = [  # where, what, and the message
    ("bodies 0 mass", "1", f"{BAR}.mass must be a finite number, got '1'"),
    ("bodies 0 mass", True, f"{BAR}.mass must be a finite number, got True"),
    ("bodies 0 mass", 10**400, f"{BAR}.mass must be a finite number"),
    ("bodies 0 inertia", "x", f"{BAR}.inertia must be 3 principal moments, or 3 rows of 3"),
    ("bodies 0 inertia", [1, 1, [1]], f"{BAR}.inertia must be 3 principal moments"),
    ("bodies 0 at", [0, 0, NAN], f"{BAR}.at must be 2 or 3 finite numbers, got [0, 0, nan]"),
    ("bodies 0 rotation", [0, 0], f"{BAR}.rotation must be an angle about z, a quaternion"),
    ("bodies 0 name", 3, "bodies[0] (3).name must be a text, got 3"),
    ("bodies 0 name", None, "bodies[0] (None) has no name"),
    ("bodies 0 type", ["x"], f"{BAR}.type is ['x'], which is unknown: there are Body, PlanarBody, PointMass"),
    ("bodies 1 angular_velocity", NAN, f"{FLAT}.angular_velocity must be a finite number, got nan"),
    ("bodies 1 inertia", [1, 1, 1], f"{FLAT}.inertia is unknown"),
    ("bodies 1 moment", None, f"{FLAT} has no moment"),
    ("bodies 2 mass", None, "bodies[2] (bob) has no mass"),
    ("joints 0 type", ["x"], f"{PIN}.type is ['x'], which is unknown"),
    ("joints 0 a", None, f"{PIN} has no a"),
    ("joints 0 a", 3, f"{PIN}.a must be the name of a body, or a table with body and at, got 3"),
    ("joints 0 b body", ["x"], f"{PIN}.b.body must be a text, got ['x']"),
    ("joints 0 b at", [1], f"{PIN}.b.at must be 2 or 3 finite numbers, got [1]"),
    ("joints 0 friction", 0.1, f"{PIN}.friction must be a table with a coefficient, got 0.1"),
    ("joints 0 friction", {"coefficient": "x"}, f"{PIN}.friction.coefficient must be a finite number"),
    ("joints 0 dropped", [0.0], f"{PIN}.dropped must be numbers of rows from 0 to 4, got [0.0]"),
    ("joints 0 dropped", [True], f"{PIN}.dropped must be numbers of rows from 0 to 4, got [True]"),
    (
        "joints 2 second",
        [0, 1, 0],
        "joints[2] (cardan).second is given without at: the axes are z of the frames",
    ),
    ("joints 2 axis", [0, 1, 0], "joints[2] (cardan).axis is given without at"),
    ("joints 3 pitch", "x", "joints[3] (screw).pitch must be a finite number, got 'x'"),
    ("joints 4 of", ["angle"], "joints[4] (mimic).of must be two texts, got ['angle']"),
    ("joints 4 coefficients", "x", "joints[4] (mimic).coefficients must be a list of numbers, got 'x'"),
    ("joints 4 first", ["pin"], "joints[4] (mimic).first must be a text, got ['pin']"),
    ("joints 4 first", "pinn", "joints[4] (mimic).first: the model has nothing with the name 'pinn'"),
    ("joints 5 teeth", [1.5, 2], "joints[5] (gear).teeth must be two integers, got [1.5, 2]"),
    ("joints 5 internal", "no", "joints[5] (gear).internal must be true or false, got 'no'"),
    ("forces 0 free", "x", "forces[0] (coil).free must be a finite number, got 'x'"),
    ("forces 0 law", "x", "forces[0] (coil).law is a function, which a file cannot hold"),
    (
        "forces 0 type",
        "Force",
        "forces[0] (coil).type is 'Force', which is unknown: there are SpringDamper",
    ),
    ("forces 0 type", "JointForce", "forces[0] (coil).type is 'JointForce', which is unknown"),
    (
        "forces 0 type",
        "Custom",
        "forces[0] (coil).type is 'Custom', which needs a function: add it in Python",
    ),
    ("forces 1 effort", "x", "forces[1] (motor).effort must be a finite number, got 'x'"),
    (
        "forces 2 stiffness",
        -1.0,
        f"{RUBBER}.stiffness must be a number or 6 numbers, zero or positive, got -1.0",
    ),
    (
        "forces 2 damping",
        [0, 0, 0, 0, 0, -1],
        f"{RUBBER}.damping must be a number or 6 numbers, zero or positive",
    ),
    ("forces 3 follows", 2, "forces[3] (push).follows must be true or false, got 2"),
    ("forces 4 friction", {}, "forces[4] (ball).friction must be a finite number"),
    ("frames tool at", [1], "frames.tool.at must be 2 or 3 finite numbers, got [1]"),
    (
        "frames tool rotation",
        [1, 1, 0, 0],
        "frames.tool: rotation of a frame on 'bar' is a quaternion of length",
    ),
    ("frames tool body", "pin", "frames.tool.body is 'pin', which is no body"),
    ("frames tool", 3, "frames.tool must be the name of a body"),
    ("gravity", "down", "gravity must be 2 or 3 finite numbers, got 'down'"),
]


def test_the_model_without_mistakes_is_read():
    assert len(files.read(MODEL).joints) == len(MODEL["joints"])


@pytest.mark.parametrize(("where", "value", "message"), WRONG)
def test_a_wrong_entry_is_named(where, value, message):
    data = copy.deepcopy(MODEL)
    *path, last = (int(x) if x.isdigit() else x for x in where.split())
    inside = data
    for key in path:
        inside = inside[key]
    inside[last] = value
    with pytest.raises(ValueError, match="^" + re.escape(message)):
        files.read(data)


def test_messages_have_the_name_of_the_file(tmp_path):
    path = tmp_path / "model.json"
    path.write_text(json.dumps(MODEL).replace('"mass": 1.0', '"mass": NaN', 1))
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: bodies\[0\] \(bar\).mass must be"):
        mb.load(path)
    path.write_text("[]")
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: this is no model"):
        mb.load(path)
    path.write_bytes(b"\x89PNG\xff\x00")
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} is no text, so it is no model"):
        mb.load(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("model.json", "[" * 100_000),
        ("model.json", '{"a":' * 100_000),
        ("model.toml", "a = " + "[" * 100_000),
        ("model.toml", "a = " + "{b=" * 100_000),
        ("model.json", '{"format": "genalpha model 1", "gravity": [' + "1" * 5000 + ", 0, 0]}"),
        ("model.toml", "a = " + "1" * 5000),
    ],
)
def test_files_that_no_reader_takes_are_named(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))} (is no|has tables or lists too deep)"):
        mb.load(path)


def test_lists_inside_lists_are_refused_as_far_as_they_are_read(tmp_path):
    path = tmp_path / "model.json"
    for depth in (50, 500, 900, 1500, 5000):
        for where in ('"gravity": {}', '"bodies": {}', '"bodies": [{{"name": {}, "type": "Body"}}]'):
            deep = where.format("[" * depth + "]" * depth)
            path.write_text(f'{{"format": "genalpha model 1", {deep}}}')
            with pytest.raises(ValueError, match=f"^{re.escape(str(path))}"):
                mb.load(path)


def test_endings_of_files_may_be_in_capitals(tmp_path):
    path = tmp_path / "model.TOML"
    path.write_text('format = "genalpha model 1"')
    assert not mb.load(path).bodies
    path.write_text("{")
    with pytest.raises(ValueError, match="is no TOML"):
        mb.load(path)


def test_nothing_is_as_if_it_were_left_out():
    data = copy.deepcopy(MODEL)
    data["forces"][1]["limit"] = None
    assert "limit" not in files.read(data)["motor"].numbers
