"""What MuJoCo refuses in MJCF is refused with the path, and its bounds of masses hold for all bodies."""

import re

import numpy as np
import pytest

from genalpha import multibody as mb

try:
    import mujoco
except ImportError:
    mujoco = None

SOLID = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
BALL = '<geom size="0.1" contype="0" conaffinity="0"/>'
MESH = '<mesh name="t" vertex="0 0 0 1 0 0 0 1 0 0 0 1"/>'
PIN = '<joint name="pin"/>'


def written(folder, inside, head="", joint=PIN):
    body = f'<body name="b">{joint}{inside}</body>'
    quiet = '<option><flag contact="disable"/></option>'
    path = folder / "model.xml"
    path.write_text(f"<mujoco>{quiet}{head}<worldbody>{body}</worldbody></mujoco>")
    return path


def compiled(path):
    """The model in MuJoCo, or None if it is not installed."""
    return mujoco and mujoco.MjModel.from_xml_path(str(path))


BODY = "mujoco/worldbody/body (b)"
FULL = f"{BODY}/inertial has fullinertia and {{}}: give one of them"
TWICE = "there are two elements of the kind"
INSIDE = {
    f"{BODY}/geom has a negative mass or density": BALL + '<geom size="0.1" mass="-1"/>',
    f"{BODY}/geom (g) has a negative mass or density": BALL + '<geom name="g" size="0.1" density="-1"/>',
    f"{BODY}/body/geom has a negative mass": f'{BALL}<body><geom size="0.1" mass="-1"/></body>',
    f"{BODY}/geom (floor) is a plane": SOLID + '<geom name="floor" type="plane" size="1 1 1"/>',
    f"{BODY}/body/geom is a plane": f'{SOLID}<body><geom type="plane" size="1 1 1"/></body>',
    f"{BODY}/inertial: there are two in this body": SOLID + SOLID,
    FULL.format("diaginertia"): SOLID.replace("mass", 'fullinertia="1 1 1 0 0 0" mass'),
    FULL.format("euler"): '<inertial pos="0 0 0" mass="1" euler="0 0 0" fullinertia="1 1 1 0 0 0"/>',
    FULL.format("quat"): '<inertial pos="0 0 0" mass="1" quat="1 0 0 0" fullinertia="1 1 1 0 0 0"/>',
    f"{BODY}/inertial has no pos": '<inertial mass="1" diaginertia="1 1 1"/>',
    f"{BODY}/inertial.class is unknown": SOLID.replace("mass", 'class="main" mass'),
    f"{BODY}/body/site (s): {TWICE} 'site'": SOLID + '<site name="s"/><body><site name="s"/></body>',
    f"{BODY}/geom (s): {TWICE} 'geom'": BALL.replace("size", 'name="s" size') * 2,
    f"{BODY}/frame (s): {TWICE} 'frame'": SOLID + '<frame name="s"/><frame name="s"/>',
    f"{BODY}/camera (s): {TWICE} 'camera'": SOLID + '<camera name="s"/><camera name="s"/>',
}
CLASS = "<default><default class='a'><geom density='1'/></default>{}</default>"
MOTOR = '<motor name="m" joint="pin"/>'
SECTIONS = {
    "mujoco/default.class is 'foo': it must be 'main'": '<default class="foo"><geom density="1"/></default>',
    "mujoco/default/default.class is 'a': there are two": CLASS.format("<default class='a'/>"),
    "mujoco/default/default.class is 'main': there are two": CLASS.format("<default class='main'/>"),
    "mujoco/default/default has no class": CLASS.format("<default class=''/>"),
    f"mujoco/actuator/motor (m): {TWICE} 'actuator'": f"<actuator>{MOTOR}{MOTOR}</actuator>",
    f"mujoco/actuator/position (m): {TWICE} 'actuator'": (
        f"<actuator>{MOTOR}{MOTOR.replace('motor', 'position')}</actuator>"
    ),
    f"mujoco/equality/connect (e): {TWICE} 'equality'": (
        '<equality><joint name="e" joint1="pin"/><connect name="e" body1="b" anchor="0 0 0"/></equality>'
    ),
    f"mujoco/asset/mesh (t): {TWICE} 'mesh'": f"<asset>{MESH}{MESH}</asset>",
    "mujoco/asset/mesh has no name and no file": f"<asset>{MESH.replace('name=', 'class=')}</asset>".replace(
        'class="t"', ""
    ),
    "mujoco/include has no file": "<include/>",
    "mujoco/include: there is no file 'gone.xml'": '<include file="gone.xml"/>',
    "mujoco/include has elements inside": '<include file="empty.xml"><option/></include>',
    "mujoco/include: empty.xml has no elements": '<include file="empty.xml"/>',
    "mujoco/include: odd.xml is no XML that can be read": '<include file="odd.xml"/>',
}


@pytest.mark.parametrize("message", [*INSIDE, *SECTIONS])
def test_what_mujoco_refuses(tmp_path, message):
    (tmp_path / "empty.xml").write_text("<mujoco/>")
    (tmp_path / "odd.xml").write_text('<?xml version="1.0" encoding="none-such"?><mujoco><option/></mujoco>')
    path = written(tmp_path, INSIDE.get(message, SOLID), SECTIONS.get(message, ""))
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
        mb.load(path)
    if mujoco and "odd.xml" not in message:
        with pytest.raises(ValueError, match="Error"):
            compiled(path)


@pytest.mark.parametrize(
    ("inside", "head"),
    [
        (SOLID + '<geom size="0.1" mass="-1"/>', ""),  # its mass does not count
        (BALL + '<geom size="0.1" mass="-1" group="5"/>', '<compiler inertiagrouprange="0 1"/>'),
        (BALL + '<geom size="0.1" mass="1" density="-1"/>', ""),
        (SOLID + f"<frame>{SOLID.replace('1', '2')}</frame>", ""),
        (SOLID + '<site name=""/><site name=""/><body name="c"><site name="d"/></body>', ""),
        (SOLID, '<default class="main"/><default class=""/><default/>'),
        (SOLID + '<body name="mark"/>', "<compiler boundmass='-1'/>"),
    ],
)
def test_what_mujoco_takes(tmp_path, inside, head):
    path = written(tmp_path, inside, head)
    peer, model = compiled(path), mb.load(path)
    if peer is not None:
        assert sum(one.mass for one in model.bodies) == pytest.approx(peer.body_mass[1:].sum(), rel=1e-12)


def test_planes_in_bodies_that_do_not_move(tmp_path):
    plane = '<geom type="plane" size="0 0 1"/>'
    compiled(written(tmp_path, f"{plane}<body>{plane}</body>", joint=""))
    assert mb.load(written(tmp_path, f"{plane}<body>{plane}</body>", joint="")).bodies == []
    for size in ("", 'size="1 1 0"'):
        path = written(tmp_path, f'<geom type="plane" {size}/>', joint="")
        with pytest.raises(ValueError, match=r"geom.size of a plane must be three numbers"):
            mb.load(path)


TIP = '<body name="tip" pos="0.8 0 0"/>'
TILTED = '<inertial pos="0 1 0" euler="30 0 0" mass="1" diaginertia="0.001 0.002 0.003"/>'


@pytest.mark.parametrize(
    ("bounds", "inside"),
    [
        ('boundmass="0.5" boundinertia="0.01"', BALL + TIP),
        ('boundmass="0.5"', BALL + TIP),
        ('boundinertia="0.5"', BALL + TIP),
        ('boundmass="0.5" boundinertia="0.01"', TIP),
        ('boundmass="0.5" boundinertia="0.01"', f'<frame pos="0 0 0.3" euler="0 40 0">{BALL}{TIP}</frame>'),
        ('boundmass="0.5"', BALL + TIP.replace("/>", '><geom size="0.1" pos="1 0 0" mass="0"/></body>')),
        ('boundmass="0.5" boundinertia="0.01"', '<geom size="0.1" pos="1 0 0" mass="0"/>'),
        ('boundmass="0.5" boundinertia="0.01" inertiafromgeom="true"', ""),
        ('boundmass="0.5" boundinertia="0.01" inertiafromgeom="false"', BALL),
        ('boundmass="5" boundinertia="0.0025"', TILTED),
    ],
)
def test_least_masses_hold_for_all_bodies(tmp_path, bounds, inside):
    """Mass, centre and inertia of all that moves, which is one body here."""
    if mujoco is None:
        pytest.skip("MuJoCo is not installed")
    path = written(tmp_path, inside, f"<compiler {bounds}/>")
    peer, body = compiled(path), mb.load(path)["b"]
    data = mujoco.MjData(peer)
    mujoco.mj_forward(peer, data)
    masses, at = peer.body_mass[1:], data.xipos[1:]
    center = masses @ at / masses.sum()
    tensor = np.zeros((3, 3))
    for i, (mass, x) in enumerate(zip(masses, at - center, strict=True)):
        R = data.ximat[1 + i].reshape(3, 3)
        tensor += R @ np.diag(peer.body_inertia[1 + i]) @ R.T + mass * (x @ x * np.eye(3) - np.outer(x, x))
    assert body.mass == pytest.approx(masses.sum(), rel=1e-12)
    np.testing.assert_allclose(body.center, center, atol=1e-12)
    np.testing.assert_allclose(body.inertia.tensor, tensor, atol=1e-12)


def test_least_masses_by_hand(tmp_path):
    path = written(tmp_path, SOLID + TIP, '<compiler boundmass="0.5" boundinertia="0.01"/>')
    assert mb.load(path)["b"].mass == 1.5


@pytest.mark.parametrize("name", ["none-such", "shift_jis", "rot13", "idna"])
@pytest.mark.parametrize("ending", ["xml", "urdf"])
def test_encodings_that_are_unknown(tmp_path, name, ending):
    path = tmp_path / f"model.{ending}"
    path.write_text(f'<?xml version="1.0" encoding="{name}"?><mujoco/>')
    with pytest.raises(ValueError, match=rf"model.{ending} is no XML that can be read: .*"):
        mb.load(path)
