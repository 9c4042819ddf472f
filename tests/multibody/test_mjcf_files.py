"""MJCF: what is read, what is listed, and what is refused by name."""

import re

import numpy as np
import pytest

import robot_files as files
from genalpha import multibody as mb

SOLID = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
QUIET = '<option><flag contact="disable"/></option>'


def load(folder, body, more="", **options):
    """A file with elements in its world, and more sections."""
    text = f"<mujoco>{QUIET}{more}<worldbody>{body}</worldbody></mujoco>"
    return mb.load(files.written(folder, text), **options)


def arm(inside='<joint name="pin"/>'):
    return f'<body name="arm">{inside}{SOLID}</body>'


def test_inertias_of_geoms(tmp_path):
    """By hand, or by functions that are tested elsewhere."""
    geoms = {
        "ball": ('type="sphere" size="0.2" density="500"', mb.sphere(radius=0.2, density=500)),
        "brick": ('type="box" size="0.1 0.2 0.3" mass="2"', mb.box(2.0, (0.2, 0.4, 0.6))),
        "can": ('type="cylinder" size="0.1 0.2"', mb.cylinder(radius=0.1, length=0.4, density=1000)),
        "pill": (
            'type="capsule" size="0.1" fromto="0 0 -0.2 0 0 0.2"',
            mb.capsule(radius=0.1, length=0.4, density=1000),
        ),
        "egg": ('type="ellipsoid" size="1 2 3" mass="5"', mb.Inertia(5.0, (13, 10, 5))),
    }
    bodies = "".join(
        f'<body name="{name}"><freejoint/><geom {text}/><geom group="6" size="1"/></body>'
        for name, (text, _) in geoms.items()
    )
    model = load(tmp_path, bodies, '<compiler inertiagrouprange="0 5"/>')
    for name, (_, expected) in geoms.items():
        assert model[name].mass == pytest.approx(expected.mass, rel=1e-14), name
        np.testing.assert_allclose(model[name].inertia.tensor, expected.tensor, rtol=1e-13, atol=1e-15)


def test_a_mesh_has_the_inertia_of_its_volume(tmp_path):
    mesh = '<mesh name="t" vertex="0 0 0 1 0 0 0 1 0 0 0 1" face="0 2 1 0 1 3 0 3 2 1 2 3" scale="2 1 1"/>'
    body = (
        '<body name="b" pos="1 0 0"><freejoint/><geom type="mesh" mesh="t" pos="0 0 1" density="6"/></body>'
    )
    model = load(tmp_path, body, f"<asset>{mesh}</asset>")
    assert model["b"].mass == pytest.approx(2.0)
    np.testing.assert_allclose(model["b"].center, [0.5, 0.25, 1.25])
    with pytest.raises(ValueError, match=r"geom.mesh is 'x': meshes of the assets are t"):
        load(tmp_path, body.replace('mesh="t"', 'mesh="x"'), f"<asset>{mesh}</asset>")
    with pytest.raises(ValueError, match=r"asset/mesh \(t\).inertia is 'convex', which is not supported"):
        load(tmp_path, body, f"<asset>{mesh}</asset>".replace("name=", "inertia='convex' name="))
    missing = '<asset><mesh name="t" file="a.stl"/></asset>'
    with pytest.raises(ValueError, match=r"asset/mesh \(t\): there is no mesh 'a.stl'"):
        load(tmp_path, body, missing)
    with pytest.raises(ValueError, match="its inertia is not known: state that of the body"):
        load(tmp_path, body, missing, meshes="ignore")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('euler="90 0 90"', [[0, -1, 0], [0, 0, -1], [1, 0, 0]]),  # x, then z of the body
        ('axisangle="0 0 2 90"', [[0, -1, 0], [1, 0, 0], [0, 0, 1]]),
        ('quat="2 0 0 2"', [[0, -1, 0], [1, 0, 0], [0, 0, 1]]),
        ('xyaxes="0 1 0 -1 1 0"', [[0, -1, 0], [1, 0, 0], [0, 0, 1]]),
        ('zaxis="1 0 0"', [[0, 0, 1], [0, 1, 0], [-1, 0, 0]]),
        ('zaxis="0 0 -1"', [[1, 0, 0], [0, -1, 0], [0, 0, -1]]),
    ],
)
def test_orientations(tmp_path, text, expected):
    model = load(tmp_path, f'<body name="arm" {text}><freejoint/>{SOLID}</body>')
    np.testing.assert_allclose(model["arm"].R, expected, atol=1e-15)


def test_default_classes_and_included_files(tmp_path):
    """The nearest class counts: of the element, of the body around it, of the file."""
    defaults = """<default><joint damping="1"/><default class="soft"><joint damping="0.1" stiffness="2"/>
      <default class="softer"><joint damping="0.01"/></default></default></default>"""
    (tmp_path / "defaults.xml").write_text(f"<mujoco>{defaults}</mujoco>")
    (tmp_path / "tail.xml").write_text(f'<x><body><joint name="d" class="main"/>{SOLID}</body></x>')
    inside = f"""<body><joint name="a"/>{SOLID}
      <body childclass="soft"><joint name="b"/>{SOLID}
        <body><joint name="c" class="softer"/>{SOLID}<include file="tail.xml"/></body></body></body>"""
    with pytest.warns(UserWarning, match="springs count angles within half a turn"):
        model = load(tmp_path, inside, '<include file="defaults.xml"/>')
    numbers = {f.name: (float(f.numbers["damping"]), float(f.numbers["stiffness"])) for f in model.forces}
    springs = {"a spring": (1, 0), "b spring": (0.1, 2), "c spring": (0.01, 2), "d spring": (1, 0)}
    assert numbers == springs
    with pytest.raises(ValueError, match=r"there is no file 'gone.xml' to include"):
        load(tmp_path, '<include file="gone.xml"/>')
    with pytest.raises(ValueError, match=r"joint.class is 'sof': do you mean 'soft'"):
        load(tmp_path, arm('<joint class="sof"/>'), defaults)


def test_joints_and_inertias_in_frames(tmp_path):
    """The pose of a frame counts, its elements are read in their order, and the last inertia counts."""
    frame = '<frame pos="1 0 0" euler="0 90 0" childclass="c"><joint name="pin" pos="0 0 0.5"/>{}</frame>'
    inside = frame.format('<inertial pos="0 0 1" mass="2" diaginertia="1 2 2.5"/>')
    body = f'<body name="arm"><joint name="guide" type="slide" axis="1 0 0"/>{SOLID}{inside}</body>'
    more = '<default><default class="c"><joint damping="3"/></default></default>'
    with pytest.warns(UserWarning, match="several joints of a body are one"):
        model = load(tmp_path, body, more)
    pin = model["arm joint"].markers[0]
    np.testing.assert_allclose(pin.pose[0], [1.5, 0, 0], atol=1e-15)
    np.testing.assert_allclose(pin.pose[1][:, 2], [1, 0, 0], atol=1e-15)
    assert model["pin spring"].numbers["damping"] == 3
    assert (model["arm"].mass, *model["arm"].center) == pytest.approx((2, 2, 0, 0))
    np.testing.assert_allclose(model["arm"].inertia.tensor, np.diag([2.5, 2, 1]), atol=1e-15)
    free = load(
        tmp_path, f'<frame pos="1 2 3"><body name="b"><frame><freejoint/></frame>{SOLID}</body></frame>'
    )
    np.testing.assert_allclose(free["b"].x, [1, 2, 3])


def test_inertias_from_geoms_or_stated(tmp_path):
    """``inertiafromgeom="true"`` keeps the stated inertia of a body without geoms that count."""
    mass = lambda geom, more: load(tmp_path, arm(f'<joint name="pin"/>{geom}'), more)["arm"].mass
    always = '<compiler inertiafromgeom="true" inertiagrouprange="0 1"/>'
    assert mass("", always) == 1
    assert mass('<geom size="1" mass="0"/>', always) == 1
    assert mass('<geom size="1" mass="3" group="2"/>', always) == 1
    assert mass('<geom size="1" mass="3"/>', always) == 3
    assert mass('<geom size="1" mass="3"/>', "") == 1


def test_an_orientation_replaces_that_of_a_default(tmp_path):
    body = '<body name="arm"><freejoint/><geom type="box" size="1 2 3" mass="1" quat="1 0 0 0"/></body>'
    model = load(tmp_path, body, '<default><geom euler="90 0 0"/></default>')
    np.testing.assert_allclose(model["arm"].inertia.tensor, mb.box(1.0, (2, 4, 6)).tensor)


def test_frames_of_equalities(tmp_path):
    """A connect and a weld of sites, and a weld with a stated pose, which need not hold in the file."""
    one = f'<body name="one" pos="1 0 0"><freejoint/>{SOLID}<site name="s" pos="0 1 0"/></body>'
    two = f'<body name="two" pos="0 0 2"><freejoint/>{SOLID}<site name="t" euler="0 0 90"/></body>'
    more = """<equality><connect site1="s" site2="t"/><weld site1="s" site2="t"/>
      <weld body1="one" body2="two" relpose="0 0 3 0 0 0 1"/><weld body1="one" body2="two"/></equality>"""
    model = load(tmp_path, one + two, more)
    frames = [[marker.pose for marker in joint.markers] for joint in model.joints]
    turned, half = [[0, -1, 0], [1, 0, 0], [0, 0, 1]], np.diag([-1, -1, 1])
    expected = [
        [((1, 1, 0), np.eye(3)), ((0, 0, 2), turned)],
        [((1, 1, 0), np.eye(3)), ((0, 0, 2), turned)],
        [((1, 0, 3), half), ((0, 0, 2), np.eye(3))],
        [((0, 0, 2), np.eye(3)), ((0, 0, 2), np.eye(3))],
    ]
    for found, wanted in zip(frames, expected, strict=True):
        for (x, R), (at, axes) in zip(found, wanted, strict=True):
            np.testing.assert_allclose(x, at, atol=1e-15)
            np.testing.assert_allclose(R, axes, atol=1e-15)


def test_controls_are_numbers_or_functions(tmp_path):
    more = '<actuator><motor name="m" joint="pin" gear="2"/></actuator>'
    model = load(tmp_path, arm(), more, controls={"m": lambda t: 3 * t})
    assert model["m"].functions["effort"](2.0) == pytest.approx(12.0)
    assert load(tmp_path, arm(), more, controls={"m": 3.0})["m"].numbers["effort"] == pytest.approx(6.0)
    with pytest.raises(ValueError, match=r"controls has 'n': the actuators are m"):
        load(tmp_path, arm(), more, controls={"n": 1.0})


def test_actuators_keep_to_their_ranges(tmp_path):
    """Control and force are clipped, then the gear counts."""
    one = '<motor name="m" joint="pin" gear="2" ctrlrange="-1 3" forcerange="-0.5 2.5"/>'
    efforts = lambda text, values, more="": [
        float(
            load(tmp_path, arm(), f"{more}<actuator>{text}</actuator>", controls={"m": x})["m"].numbers[
                "effort"
            ]
        )
        for x in values
    ]
    assert efforts(one, (-2.0, 1.0, 2.7, 9.0)) == [-1.0, 2.0, 5.0, 5.0]
    moved = load(tmp_path, arm(), f"<actuator>{one}</actuator>", controls={"m": lambda t: t})
    assert [float(moved["m"].functions["effort"](t)) for t in (-2.0, 1.0, 9.0)] == [-1.0, 2.0, 5.0]
    assert efforts(one.replace("forcerange", "forcelimited='false' forcerange"), (9.0,)) == [6.0]
    free = one.replace("gear", "ctrllimited='false' forcelimited='false' gear")
    assert efforts(free, (9.0,), '<compiler autolimits="false"/>') == [18.0]
    assert efforts(one, (9.0,), '<option><flag clampctrl="disable"/></option>') == [5.0]
    spring = '<position name="m" joint="pin" kp="4" ctrlrange="-1 1" forcerange="-2 2"/>'
    with pytest.warns(UserWarning, match="limits of the force of actuators with feedback are not applied"):
        assert efforts(spring, (3.0,)) == [4.0]


def test_limits_and_friction_of_joints(tmp_path):
    """SOLID has the moment 1 about any axis through its centre; the armature counts as well."""
    limit = lambda joint, more="": (
        load(tmp_path, arm(f'<joint name="pin" {joint}/>'), more)["pin limit"].numbers
    )
    numbers = lambda found: [float(found[key]) for key in ("lower", "upper", "stiffness", "damping")]
    ends, size = np.deg2rad((-90, 45)), np.deg2rad(135)
    plain = [*ends, 1 / 0.02**2, 2 * 0.02 / (1e-3 * size)]
    assert numbers(limit('range="-90 45"')) == pytest.approx(plain)
    assert numbers(limit('range="-90 45" armature="0.5"'))[2] == pytest.approx(1.5 / 0.02**2)
    assert numbers(limit('range="-90 45" pos="0 0.6 0.3"'))[2] == pytest.approx(1.36 / 0.02**2)
    ratio, omega = 0.5, 1 / (0.1 * 0.5)
    other = [*ends, omega**2, 2 * ratio / (omega * 1e-3 * size)]
    assert numbers(limit('range="-90 45" solreflimit="0.1 0.5"')) == pytest.approx(other)
    assert numbers(limit('range="-90 45" solreflimit="-400 -20"')) == pytest.approx(other)  # ω², 2 ζ ω
    slide = limit('range="0 0.5" type="slide" limited="true"', '<compiler autolimits="false"/>')
    assert numbers(slide) == pytest.approx([0, 0.5, 1 / 0.02**2, 2 * 0.02 / (1e-3 * 0.5)])
    for joint, more in (
        ('range="-90 45" limited="false"', ""),
        ('range="-90 45" limited="false"', '<compiler autolimits="false"/>'),
        ('range="0 0"', ""),
        ('range="0 0"', '<compiler autolimits="false"/>'),
        ('range="-90 45"', '<option><flag limit="disable"/></option>'),
    ):
        assert not load(tmp_path, arm(f'<joint name="pin" {joint}/>'), more).forces
    inside = '<joint name="pin" type="ball" range="0 60" frictionloss="0.1"/>'
    with pytest.warns(UserWarning, match="without a coordinate"):
        assert load(tmp_path, arm(inside)).notes == [
            "limits of joints without a coordinate are not applied: 'pin' from 0 to 1.0472",
            "frictionloss of a joint without a coordinate is not read: 'pin'",
        ]
    rubs = load(tmp_path, arm('<joint name="pin" frictionloss="0.3"/>'))["pin friction"]
    assert (rubs.numbers["size"], rubs.numbers["speed"]) == (0.3, 0.01)


def test_an_arm_falls_on_its_limit_and_rests_there(tmp_path):
    """It goes beyond the end by the torque over the stiffness, and leaves it with less than 1/damping."""
    solid = SOLID.replace("0 0 0", "0.5 0 0")
    model = load(tmp_path, f'<body><joint name="pin" axis="0 1 0" range="-10 40"/>{solid}</body>')
    limit = model["pin limit"].numbers
    assert limit["stiffness"] == pytest.approx(1.25 / 0.02**2)
    motion = model.motion(model.solve((0.0, 4.0), h=2e-3, method="index3"))
    angle, rate, end = motion.coordinate("pin"), motion.rate("pin"), np.deg2rad(40)
    assert rate.max() == pytest.approx(np.sqrt(2 * 9.81 * 0.5 * np.sin(end) / 1.25), rel=0.02)
    assert -rate.min() < 1 / limit["damping"]
    assert angle.max() < end + 0.02
    torque = 9.81 * 0.5 * np.cos(angle[-1])
    assert angle[-1] == pytest.approx(end + torque / limit["stiffness"], abs=1e-5)


def test_what_is_not_supported_is_listed(tmp_path):
    inside = """<joint name="pin" range="-90 45" frictionloss="0.2" actuatorfrcrange="-1 1"/>
      <geom name="g" size="0.1"/><site name="tip"/>"""
    more = """<tendon><fixed name="t"><joint joint="pin" coef="1"/></fixed></tendon>
      <equality><tendon tendon1="t"/><connect body1="arm" anchor="0 0 0" active="false"/></equality>
      <actuator><muscle name="m" joint="pin"/><motor name="n" joint="pin" ctrlrange="-1 1"/>
      <motor name="o" site="tip"/></actuator><sensor><gyro site="tip"/></sensor>
      <keyframe><key qpos="1"/></keyframe><option viscosity="0.1"/>"""
    text = f"<mujoco>{more}<worldbody>{arm(inside)}</worldbody></mujoco>"
    with pytest.warns(UserWarning, match=r"robot.xml: .*model.notes lists them all"):
        model = mb.load(files.written(tmp_path, text))
    where = "mujoco/worldbody/body (arm)"
    assert model.notes == [
        "forces of a medium are not read: mujoco/option.viscosity",
        "tendons are not read: mujoco/tendon",
        "sensors are not read: mujoco/sensor",
        "keyframes are not read: mujoco/keyframe",
        f"limits of actuators are not applied: {where}/joint (pin).actuatorfrcrange",
        f"contacts are not read: {where}/geom (g)",
        "actuators of this kind are not read: mujoco/actuator/muscle (m)",
        "actuators without a joint are not read: mujoco/actuator/motor (o)",
        "equalities of tendons and flexible bodies are not read: mujoco/equality/tendon",
        "equalities that are not active are left out: mujoco/equality/connect",
    ]
    assert model["tip"].body is model["arm"]


def test_a_long_chain_needs_no_recursion(tmp_path):
    count = 1500
    text = f"<body><joint/>{SOLID}" * count + "</body>" * count
    model = load(tmp_path, text)
    assert len(model.bodies) == len(model.joints) == count


def test_joints_that_are_none_together_are_refused(tmp_path):
    three = '<joint name="x" axis="1 0 0"/><joint name="y" axis="0 1 0"/><joint name="z"/>'
    message = (
        r"body \(arm\) has the joints hinge 'x', hinge 'y', hinge 'z', which are no joint.*a body with a mass"
    )
    with pytest.raises(ValueError, match=message):
        load(tmp_path, arm(three))


BAD = {
    "body (arm)/joint (pin).axis must be 3 numbers, got '1 0'": arm('<joint name="pin" axis="1 0"/>'),
    "body (arm)/joint (pin).axes is unknown: do you mean 'axis'?": arm('<joint name="pin" axes="1 0 0"/>'),
    "body (arm)/joint (pin).type is 'hing': do you mean 'hinge'?": arm('<joint name="pin" type="hing"/>'),
    "body (arm)/joint (pin).range must be two numbers, the smaller one first": arm(
        '<joint name="pin" range="2 1" limited="true"/>'
    ),
    "body (arm)/joint (pin).solreflimit must be two positive": arm('<joint name="pin" solreflimit="1 -1"/>'),
    "body (arm)/joint (pin).damping is -1": arm('<joint name="pin" damping="-1"/>'),
    "body (arm)/geo is unknown: do you mean 'geom'?": arm("<geo/>"),
    "body (arm)/geom.size of a box must be 3 positive numbers": arm('<geom type="box" size="1 1"/>'),
    "body (arm): there are two bodies with this name": arm() + arm(),
    "there are two joints with the name 'pin'": arm() + f'<body><joint name="pin"/>{SOLID}</body>',
    "body (b) moves and has no mass": '<body name="b"><joint/></body>',
    "body (b)/inertial has no mass": '<body name="b"><joint/><inertial pos="0 0 0"/></body>',
    "worldbody/joint is unknown here: the world does not move": "<joint/>",
    "worldbody/frame/inertial is unknown here": f"<frame>{SOLID}</frame>",
    "body (arm)/body/freejoint is free, so its body must be in the world": arm(
        f'<joint name="pin"/><body><freejoint/>{SOLID}</body>'
    ),
    "body (arm)/geom.fromto is given for a sphere: it is for a capsule": arm(
        '<geom size="1" fromto="0 0 0 0 0 1"/>'
    ),
    "body (arm)/site (s).fromto is given for a sphere": arm('<site name="s" fromto="0 0 0 0 0 1"/>'),
    "body (arm)/geom has pos and fromto: give one of them": arm(
        '<geom type="capsule" size="1" pos="0 0 1" fromto="0 0 0 0 0 1"/>'
    ),
    "body (arm)/geom.mesh is given for a box, which is not supported: state its size": arm(
        '<geom type="box" mesh="m"/>'
    ),
    "body (arm)/geom has no size: a box needs 3 positive numbers": arm('<geom type="box"/>'),
    "composite is not supported": "<composite/>",
    "body has quat and euler: give one orientation": '<body quat="1 0 0 0" euler="0 0 0"/>',
    "body.quat is no orientation": '<body quat="0 0 0 0"/>',
}
BAD_SECTIONS = {
    "mujoco/compiler.coordinate must be 'local'": '<compiler coordinate="global"/>',
    "mujoco/compiler.angel is unknown: do you mean 'angle'?": '<compiler angel="radian"/>',
    "mujoco/compiler.settotalmass changes masses": '<compiler settotalmass="3"/>',
    "mujoco/option.gravity must be 3 numbers": '<option gravity="down"/>',
    "mujoco/option.actuatorgroupdisable must be integers from 0 to 30": '<option actuatorgroupdisable="31"/>',
    "body (arm)/joint (pin).range is given without limited, and autolimits is false": (
        '<compiler autolimits="false"/><default><joint range="-1 1"/></default>'
    ),
    "motor.ctrlrange is given without ctrllimited, and autolimits is false": (
        '<compiler autolimits="false"/><actuator><motor joint="pin" ctrlrange="-1 1"/></actuator>'
    ),
    "joint (pin).actuatorfrcrange is given without actuatorfrclimited": (
        '<compiler autolimits="false"/><default><joint actuatorfrcrange="-1 1"/></default>'
    ),
    "mujoco/actuator/position has kv and dampratio: give one of them": (
        '<actuator><position joint="pin" kv="1" dampratio="1"/></actuator>'
    ),
    "mujoco/actuators is unknown: do you mean 'actuator'?": "<actuators/>",
    "mujoco/actuator/motor (m).joint is 'pinn': do you mean 'pin'?": (
        '<actuator><motor name="m" joint="pinn"/></actuator>'
    ),
    "mujoco/equality/connect.body1 is 'arms': do you mean 'arm'?": (
        '<equality><connect body1="arms" anchor="0 0 0"/></equality>'
    ),
    "mujoco/equality/connect has no anchor": '<equality><connect body1="arm"/></equality>',
    "mujoco/default/joins is unknown: do you mean 'joint'?": "<default><joins/></default>",
    "mujoco/equality/joint has no joint2": '<equality><joint joint1="pin"/></equality>',
}


@pytest.mark.parametrize("message", [*BAD, *BAD_SECTIONS])
def test_wrong_entries_are_named(tmp_path, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        load(tmp_path, BAD.get(message, arm()), BAD_SECTIONS.get(message, ""))
    assert str(caught.value).startswith(str(tmp_path / "robot.xml"))


def test_files_that_are_something_else(tmp_path):
    with pytest.raises(ValueError, match="it has a document type"):
        mb.load(files.written(tmp_path, "<!DOCTYPE a SYSTEM 'http://example.org/a.dtd'><mujoco/>"))
    with pytest.raises(ValueError, match=r"its first element is 'robot'.*ending .urdf"):
        mb.load(files.written(tmp_path, "<robot/>"))
    with pytest.raises(
        TypeError, match=r"robot.xml has no option 'base': there can be folders, controls, limits"
    ):
        mb.load(files.written(tmp_path, "<mujoco/>"), base="free")
