"""Actuators of MJCF: defaults of all kinds, disabled groups, controls, and angles beyond half a turn."""

import numpy as np
import pytest

import robot_files as files
from genalpha import multibody as mb

SOLID = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
QUIET = '<option><flag contact="disable"/></option>'
SERVO = '<general gainprm="50" biastype="affine" biasprm="3 -50 -2"/>'

# The law that MuJoCo 4.0 makes: gain, bias, slope and drag, or None where it has a state of its own.
LAWS = [
    ("", "position", (1, 0, -1, 0)),
    (SERVO, "general", (50, 3, -50, -2)),
    (SERVO, "position", (50, 0, -50, -2)),
    (SERVO, 'position kv="9"', (50, 0, -50, -9)),
    (SERVO, "velocity", (50, 0, 0, -50)),
    (SERVO, "motor", (1, 0, 0, 0)),
    (SERVO, 'general gainprm="2"', (2, 3, -50, -2)),
    (SERVO, 'general biasprm="4"', (50, 4, -50, -2)),
    ('<position kp="7" kv="3"/>', "general", (7, 0, -7, -3)),
    ('<position kp="7" kv="3"/>', 'general gainprm="2"', (2, 0, -7, -3)),
    ('<position kp="7" kv="3"/>', "velocity", (1, 0, 0, -1)),
    ('<position kp="7" kv="3"/>', 'position kp="2"', (2, 0, -2, -3)),
    ('<position kp="7" kv="3"/><velocity kv="3"/>', "position", (1, 0, -1, 0)),
    ('<velocity kv="5"/>', "general", (5, 0, 0, -5)),
    ('<velocity/><general gainprm="3 4 5"/>', "position", (3, 0, -3, -1)),
    ('<position kp="7"/><general/>', "velocity", (7, 0, 0, -7)),
    (
        '<position kp="7" kv="2"/><default class="c"><velocity/></default>',
        'position class="c"',
        (7, 0, -7, -2),
    ),
    (
        '<position kp="7"/><default class="c"><general gainprm="9"/></default>',
        'velocity class="c"',
        (9, 0, 0, -9),
    ),
    ('<position kp="7" timeconst="0.2"/>', "general", None),
    ('<position kp="7" timeconst="0.2"/>', "position", None),
    ('<position kp="7" timeconst="0.2"/>', 'position timeconst="0"', (7, 0, -7, 0)),
    ('<general dyntype="integrator" gainprm="3"/>', "position", (3, 0, -3, 0)),
    ('<general gaintype="affine" gainprm="3"/>', "position", (1, 0, -1, 0)),
    ('<damper kv="3" ctrlrange="0 1"/>', "general", None),
    ('<damper kv="3" ctrlrange="0 1"/>', "velocity", (1, 0, 0, -1)),
]


def whole(actuator, default="", joint='range="-90 90"', more=""):
    body = f'<body name="arm"><joint name="pin" {joint}/>{SOLID}</body>'
    kind, _, rest = actuator.partition(" ")
    element = f'<{kind} name="m" joint="pin" {rest}/>'
    return (
        f"<mujoco>{QUIET}{more}<default>{default}</default><worldbody>{body}</worldbody>"
        f"<actuator>{element}</actuator></mujoco>"
    )


def law(folder, text):
    """What a model makes of an actuator, from its efforts at two controls and from its feedback."""
    one, two = (files.read(folder, text, controls={"m": x}) for x in (0.0, 1.0))
    if "m" not in one:
        return None
    effort = [float(model["m"].numbers["effort"]) for model in (one, two)]
    back = one["m feedback"].numbers if "m feedback" in one else {"stiffness": 0.0, "damping": 0.0}
    return effort[1] - effort[0], effort[0], -float(back["stiffness"]), -float(back["damping"])


@pytest.mark.parametrize(("default", "actuator", "expected"), LAWS)
def test_defaults_of_one_kind_count_for_the_others(tmp_path, default, actuator, expected):
    assert law(tmp_path, whole(actuator, default)) == expected


@pytest.mark.slow
def test_these_are_the_laws_of_mujoco():
    mujoco = pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install --group peers")
    for default, actuator, expected in LAWS:
        found = mujoco.MjModel.from_xml_string(whole(actuator, default))
        plain = found.actuator_dyntype[0] == 0 and found.actuator_gaintype[0] == 0
        bias = found.actuator_biasprm[0][:3] * (found.actuator_biastype[0] == 1)
        assert expected == ((found.actuator_gainprm[0][0], *bias) if plain else None), (default, actuator)


def test_the_last_range_of_all_kinds_counts(tmp_path):
    default = '<position gear="3" ctrlrange="-1 1"/><motor ctrlrange="-2 2"/>'
    model = files.read(tmp_path, whole("position", default), controls={"m": 9.0})
    assert model["m"].numbers["effort"] == pytest.approx(6.0)
    assert model["m feedback"].numbers["stiffness"] == pytest.approx(9.0)


def test_groups_that_are_disabled_do_not_act(tmp_path):
    off = '<option actuatorgroupdisable="1"/><option actuatorgroupdisable="0 3"/>'
    for group, acts in ((0, False), (1, False), (2, True), (3, False)):
        text = whole(f'motor group="{group}"', more=off)
        model = files.read(tmp_path, text, controls={"m": 1.0})
        assert ("m" in model) is acts
        left = ["actuators that are disabled are left out: mujoco/actuator/motor (m)"]
        assert model.notes == ([] if acts else left)
    everything = whole("motor", more='<option><flag actuation="disable"/></option>')
    assert "m" not in files.read(tmp_path, everything, controls={"m": 1.0})


def test_wrong_controls_are_named(tmp_path):
    load = lambda text, controls: files.read(tmp_path, text, controls=controls)
    off = '<option><flag actuation="disable"/></option>'
    with pytest.raises(ValueError, match=r"controls has 'n': the actuators are m$"):
        load(whole("motor", more=off), {"n": 1.0})
    with pytest.raises(ValueError, match=r"controls has 'n': no actuator has a name"):
        load(f"<mujoco><worldbody><body><joint/>{SOLID}</body></worldbody></mujoco>", {"n": 1.0})
    with pytest.raises(
        TypeError, match=r"controls must be a dictionary .* by the names of actuators, got \[1"
    ):
        load(whole("motor"), [1.0])


@pytest.mark.parametrize(
    ("joint", "listed"),
    [
        ("", True),
        ('range="-90 90"', False),
        ('range="-190 100"', True),
        ('range="-90 90" limited="false"', True),
        ('type="slide"', False),
    ],
)
def test_feedback_and_springs_beyond_half_a_turn_are_listed(tmp_path, joint, listed):
    """Only limits keep an angle within half a turn."""
    notes = files.read(tmp_path, whole("position", joint=joint)).notes
    assert [x for x in notes if "feedback counts angles" in x and "position (m)" in x] == notes
    assert bool(notes) is listed
    notes = files.read(tmp_path, whole("motor", joint=f'{joint} stiffness="2"')).notes
    assert [x for x in notes if "springs count angles" in x and x.endswith(": 'pin'")] == notes
    assert bool(notes) is listed
    assert not files.read(tmp_path, whole("velocity", joint=f'{joint} damping="2"')).notes


def test_the_rest_of_a_spring_counts(tmp_path):
    """A range from 0° to 200° is within half a turn of 100°, not of zero."""
    for rest, listed in ((100, False), (0, True)):
        joint = f'range="0 200" stiffness="1" springref="{rest}"'
        model = files.read(tmp_path, whole("motor", joint=joint))
        assert bool(model.notes) is listed
    free = files.read(tmp_path, whole("motor", joint=joint.replace('"0"', '"100"')), limits="ignore")
    assert len(free.notes) == 1


def test_angles_that_are_followed(tmp_path):
    """Whole turns do not matter where an angle follows an angle with a ratio of integers."""
    two = "".join(f'<body><joint name="{name}"/>{SOLID}</body>' for name in "ab")
    for ratio, listed in (("0 2", False), ("0 0.5", False), ("0 0.377", True), ("0 1 1", True)):
        equal = f'<equality><joint name="e" joint1="a" joint2="b" polycoef="{ratio}"/></equality>'
        model = files.read(tmp_path, f"<mujoco>{QUIET}<worldbody>{two}</worldbody>{equal}</mujoco>")
        assert [x for x in model.notes if x.endswith("beyond, runs fail: 'e'")] == model.notes
        assert bool(model.notes) is listed
        assert isinstance(model["e"], mb.Mimic)
        np.testing.assert_allclose(model["e"].numbers["coefficients"][0], 0.0)
