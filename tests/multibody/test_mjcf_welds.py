"""Welds of MJCF: their frames, compared with the rows of MuJoCo, and those that hold no angles."""

import re

import numpy as np
import pytest

from genalpha import multibody as mb
from mujoco_states import mujoco  # skips all where MuJoCo is not installed

SOLID = '<geom type="box" size="0.1 0.2 0.3"/>'
BODIES = f"""<body name="one" pos="1 2 3" euler="10 20 30"><freejoint/>{SOLID}
    <site name="s" pos="0 1 0"/></body>
  <body name="two" pos="3 0 1" euler="40 0 9"><freejoint/>{SOLID}<site name="t" euler="0 0 9"/></body>"""
QUIET = '<option><flag contact="disable"/></option>'


def written(folder, weld):
    text = f"<mujoco>{QUIET}<worldbody>{BODIES}</worldbody><equality>{weld}</equality></mujoco>"
    path = folder / "welds.xml"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "given",
    [
        'body1="one" body2="two" anchor="0.3 0.2 0.1" relpose="0.1 0.2 0.3 1 0 0 0"',
        'body1="one" body2="two" anchor="0.3 0.2 0.1" relpose="0.1 0.2 0.3 1 0 0 1" torquescale="0"',
        'body1="one" body2="two" anchor="0.3 0.2 0.1" relpose="9 9 9 0 0 0 0"',
        'body1="one" body2="two" anchor="0.3 0.2 0.1" torquescale="0"',
        'body1="one" body2="two" relpose="0.1 0.2 0.3 1 2 0 1"',
        'body1="one" anchor="0.3 0.2 0.1" relpose="0.1 0.2 0.3 1 2 0 1"',
        'body1="one" body2="two"',
        'site1="s" site2="t" torquescale="0"',
    ],
)
def test_frames_of_welds_are_those_of_mujoco(tmp_path, given):
    """The distance of the frames, and their angle, in the state of the file. MuJoCo has half of its sine."""
    path = written(tmp_path, f'<weld name="w" {given}/>')
    m = mujoco.MjModel.from_xml_path(str(path))
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    joint = mb.load(path)["w"]
    (x, R), (y, S) = (marker.pose for marker in joint.markers[:2])
    np.testing.assert_allclose(x - y, d.efc_pos[:3], atol=1e-12)
    ball = "torquescale" in given
    assert type(joint) is (mb.Spherical if ball else mb.Weld)
    assert ball == (not d.efc_J.reshape(6, -1)[3:].any())
    if not ball:
        sine = np.sqrt(max(0.0, (3 - np.trace(R.T @ S)) / 4))  # of half the angle
        assert sine == pytest.approx(np.linalg.norm(d.efc_pos[3:]), abs=1e-7)


def test_scales_of_torques_say_only_how_soft_a_weld_is(tmp_path):
    weld = '<weld name="w" body1="one" torquescale="{}"/>'
    assert mb.load(written(tmp_path, weld.format(1))).notes == []
    with pytest.warns(UserWarning, match="equalities hold exactly"):
        model = mb.load(written(tmp_path, weld.format(0.3)))
    assert isinstance(model["w"], mb.Weld)
    assert model.notes == [
        "equalities hold exactly, without the softness of: mujoco/equality/weld (w).torquescale"
    ]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("weld has site1 and relpose", '<weld site1="s" site2="t" relpose="0 0 0 1 0 0 0"/>'),
        ("weld has site1 and anchor", '<weld site1="s" site2="t" anchor="0 0 0"/>'),
        ("connect has site1 and body1", '<connect body1="one" site1="s" site2="t"/>'),
        ("weld has no site1", '<weld site2="t"/>'),
        ("weld ties the body 'one' to itself", '<weld body1="one" body2="one"/>'),
        ("connect.torquescale is unknown", '<connect body1="one" anchor="0 0 0" torquescale="1"/>'),
    ],
)
def test_what_mujoco_refuses(tmp_path, message, text):
    path = written(tmp_path, text)
    with pytest.raises(ValueError, match=re.escape(f"mujoco/equality/{message}")):
        mb.load(path)
    with pytest.raises(ValueError, match="Error"):
        mujoco.MjModel.from_xml_path(str(path))
