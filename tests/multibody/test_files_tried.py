"""URDF and MJCF as people have them: what MuJoCo reads, refuses or does not need."""

import re

import pytest

import robot_files
from genalpha import multibody as mb

try:
    import mujoco
except ImportError:
    mujoco = None

SOLID = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'
TETRAHEDRON = 'vertex="0 0 0 1 0 0 0 1 0 0 0 1"'
FACES = 'face="0 2 1 0 1 3 0 3 2 1 2 3"'


def xml(bodies: str = "", more: str = "") -> str:
    quiet = '<option><flag contact="disable"/></option>'
    return f"<mujoco>{quiet}{more}<worldbody>{bodies}</worldbody></mujoco>"


def peer(text: str) -> None:
    """MuJoCo reads it, if it is installed."""
    if mujoco:
        mujoco.MjModel.from_xml_string(text)


def refused(folder, text: str, message: str) -> None:
    """It is refused with this message, and by MuJoCo."""
    path = robot_files.written(folder, text)
    with pytest.raises(ValueError, match=re.escape(f"{path}: {message}")):
        mb.load(path)
    if mujoco:
        with pytest.raises(ValueError, match="Error"):
            mujoco.MjModel.from_xml_string(text)


# --- meshes that are not needed -------------------------------------------------------------------------


@pytest.mark.parametrize("mesh", [TETRAHEDRON, 'builtin="sphere" params="2"', f"{TETRAHEDRON} {FACES}"])
@pytest.mark.filterwarnings("ignore:robot.xml")
def test_meshes_that_only_draw_may_be_left_out(tmp_path, mesh):
    body = f'<body name="b"><joint/>{SOLID}<geom type="mesh" mesh="m"/></body>'
    text = xml(body, f'<asset><mesh name="m" {mesh}/></asset>')
    peer(text)
    path = robot_files.written(tmp_path, text)
    model = mb.load(path, meshes="ignore")
    assert model.notes == ["meshes are not drawn: mujoco/asset/mesh (m)"]
    assert (model["b"].mass, model["b"].shape) == (1.0, None)
    if FACES in mesh:
        assert mb.load(path)["b"].shape is not None
        heavy = mb.load(robot_files.written(tmp_path, text.replace(SOLID, "")), meshes="ignore")
        assert heavy["b"].mass == pytest.approx(1000 / 6)  # its inertia is needed
    else:
        with pytest.raises(ValueError, match=r"asset/mesh \(m\).* or pass meshes='ignore' if no inertia"):
            mb.load(path)
    with pytest.raises(ValueError, match=r"geom.mesh is 'n': meshes of the assets are m"):
        mb.load(robot_files.written(tmp_path, text.replace('mesh="m"', 'mesh="n"')), meshes="ignore")


# --- wrong numbers and words ----------------------------------------------------------------------------

BODY = "mujoco/worldbody/body (b)"
GEOM = '<geom type="mesh" mesh="m"/>'


@pytest.mark.parametrize(
    ("message", "inside", "more"),
    [
        (f"{BODY}/inertial.mass must be 1 number, got '1_0'", SOLID.replace('"1"', '"1_0"'), ""),
        (f"{BODY}/inertial.mass must be 1 number, got '٣'", SOLID.replace('"1"', '"٣"'), ""),
        (f"{BODY}/inertial.mass must be 1 number, got '1,'", SOLID.replace('"1"', '"1,"'), ""),
        (f"{BODY}/geom.group must be an integer, got '1.7'", SOLID + '<geom size="1" group="1.7"/>', ""),
        (f"{BODY}/geom.contype must be an integer", SOLID + '<geom size="1" contype="0.5"/>', ""),
        ("mujoco/compiler.inertiagrouprange must be int", SOLID, '<compiler inertiagrouprange="0 1.5"/>'),
        ("mujoco/option.actuatorgroupdisable must be int", SOLID, '<option actuatorgroupdisable="1.0"/>'),
        (
            "mujoco/asset/mesh (m).face must be integers, got '0 2.9 1 0",
            GEOM,
            f'<asset><mesh name="m" {TETRAHEDRON} {FACES}/></asset>'.replace("0 2 1", "0 2.9 1"),
        ),
        (
            "mujoco/asset/mesh (m).face must be 3 numbers for each triangle, got 13 numbers",
            GEOM,
            f'<asset><mesh name="m" {TETRAHEDRON} {FACES}/></asset>'.replace("1 2 3", "1 2 3 0"),
        ),
        (
            "mujoco/asset/mesh (m).vertex must be 3 numbers for each point, got 13 numbers",
            GEOM,
            f'<asset><mesh name="m" {TETRAHEDRON} {FACES}/></asset>'.replace('vertex="0', 'vertex="0 0'),
        ),
    ],
)
def test_numbers_that_are_none_in_xml(tmp_path, message, inside, more):
    """Python would read them all."""
    refused(tmp_path, xml(f'<body name="b"><joint/>{inside}</body>', more), message)


def test_numbers_of_all_forms(tmp_path):
    text = xml(f'<body name="b"><joint/>{SOLID}</body>')
    for word, value in (("1e1", 10), ("+1", 1), (".5", 0.5), ("5.", 5), ("2.5E-1", 0.25)):
        given = text.replace('mass="1"', f'mass="{word}"')
        peer(given)
        assert mb.load(robot_files.written(tmp_path, given))["b"].mass == value
    for word in ("inf", "-Infinity", "nan"):
        path = robot_files.written(tmp_path, text.replace('mass="1"', f'mass="{word}"'))
        with pytest.raises(ValueError, match=f"mass must be 1 number, got '{word}'"):
            mb.load(path)


@pytest.mark.parametrize("kind", ["continuous", "fixed"])
@pytest.mark.parametrize("left", ["mass", "inertia"])
def test_inertias_of_urdf_without_a_mass_or_an_inertia(tmp_path, kind, left):
    parts = {"mass": '<mass value="2"/>', "inertia": '<inertia ixx="1" iyy="1" izz="1"/>'}
    inertial = f"<inertial>{parts['inertia' if left == 'mass' else 'mass']}</inertial>"
    ends = '<parent link="base"/><child link="arm"/>'
    joint = f'<joint name="pin" type="{kind}">{ends}</joint>'
    text = f'<robot name="r"><link name="base"/><link name="arm">{inertial}</link>{joint}</robot>'
    path = robot_files.written(tmp_path, text, "robot.urdf")
    with pytest.raises(ValueError, match=rf"robot/link \(arm\)/inertial has no {left}: if it is zero, write"):
        mb.load(path)


def actuated(given: str, joint: str = "", default: str = "") -> str:
    more = f'<actuator><general name="m" joint="pin" {given}/></actuator><default>{default}</default>'
    return xml(f'<body name="b"><joint name="pin" {joint}/>{SOLID}</body>', more)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ('biastype="afine"', ".biastype is 'afine': do you mean 'affine'?"),
        ('gaintype="none"', ".gaintype is 'none': there are fixed, affine"),
        ('dyntype="filtr"', ".dyntype is 'filtr': do you mean 'filter'?"),
        ('input="vell"', ".input is 'vell': do you mean 'vel'?"),
    ],
)
def test_types_of_actuators_that_mujoco_does_not_have(tmp_path, given, message):
    refused(tmp_path, actuated(given), f"mujoco/actuator/general (m){message}")
    default = f"<general {given}/>"
    refused(tmp_path, actuated("", default=default), f"mujoco/default/general{message}")


@pytest.mark.filterwarnings("ignore:robot.xml")
@pytest.mark.parametrize(
    "given",
    [
        'gaintype="affine"',
        'gaintype="user"',
        'gaintype="pid" biastype="affine" dyntype="pid"',
        'biastype="user"',
        'biastype="dcmotor"',
        *(f'dyntype="{word}"' for word in ["integrator", "filter", "filterexact", "muscle", "user"]),
    ],
)
def test_types_of_actuators_that_are_not_read(tmp_path, given):
    peer(actuated(given))
    model = mb.load(robot_files.written(tmp_path, actuated(given)))
    assert model.notes == ["actuators of this kind are not read: mujoco/actuator/general (m)"]


@pytest.mark.filterwarnings("ignore:robot.xml")
def test_inputs_of_actuators_are_listed(tmp_path):
    """What a control stands for changes no force."""
    given = 'gainprm="3" {}'
    for word in ("pos", "vel", "quat", "pressure"):
        text = actuated(given.format(f'input="{word}"'))
        peer(text)
        model = mb.load(robot_files.written(tmp_path, text), controls={"m": 2.0})
        assert model.notes == ["inputs of actuators are not read: mujoco/actuator/general (m).input"]
        assert model["m"].numbers["effort"] == 6.0
        if mujoco:
            m = mujoco.MjModel.from_xml_string(text)
            d = mujoco.MjData(m)
            d.ctrl[:], d.qvel[:] = 2.0, 1.0
            mujoco.mj_forward(m, d)
            assert d.qfrc_actuator[0] == 6.0
    text = actuated("", default='<general input="vel"/>').replace("general name", "motor name")
    peer(text)
    model = mb.load(robot_files.written(tmp_path, text))
    assert model.notes == ["inputs of actuators are not read: mujoco/default/general.input"]


# --- what MuJoCo reads ----------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
def test_things_without_a_name_leave_those_of_others(tmp_path, first):
    """A body and a joint whose names are those that bodies and joints without one would have."""
    unnamed = f"<body><joint/>{SOLID}</body>"
    named = f'<body name="body {1 if first else 2}"><joint/>{SOLID}</body>'
    text = xml(unnamed + named if first else named + unnamed)
    peer(text)
    model = mb.load(robot_files.written(tmp_path, text))
    assert len(model.bodies) == len(model.joints) == 2
    assert {"body 1", "body 1'"} <= set(model) if first else {"body 2", "body 2'"} <= set(model)
    unnamed = f'<body name="b"><joint/>{SOLID}</body>'
    named = f'<body name="c"><joint name="b joint"/>{SOLID}</body>'
    text = xml(unnamed + named if first else named + unnamed)
    peer(text)
    model = mb.load(robot_files.written(tmp_path, text))
    assert model["b joint"].markers[1].body.name == "c"
    assert model["b joint'"].markers[1].body.name == "b"
    assert model.notes == []


@pytest.mark.filterwarnings("ignore:robot.xml")
def test_joints_of_several_leave_the_names_of_others(tmp_path):
    two = '<joint {} axis="1 0 0"/><joint {} axis="0 1 0"/>'
    for names in (("", ""), ('name="b joint"', 'name="x"')):
        model = mb.load(
            robot_files.written(tmp_path, xml(f'<body name="b">{two.format(*names)}{SOLID}</body>'))
        )
        assert isinstance(model["b joint"], mb.Universal)
    other = f'<body name="c"><joint name="b joint"/>{SOLID}</body>'
    text = xml(f'<body name="b">{two.format("", "")}{SOLID}</body>{other}')
    model = mb.load(robot_files.written(tmp_path, text))
    assert isinstance(model["b joint"], mb.Revolute)
    assert isinstance(model["b joint'"], mb.Universal)


INCLUDES = [  # files, what they include, and the file that counts, or none
    ({"robot.xml": "sub/as.xml", "sub/as.xml": "inc.xml"}, ["sub/inc.xml"], "sub/inc.xml"),
    ({"robot.xml": "sub/as.xml", "sub/as.xml": "inc.xml"}, ["sub/inc.xml", "inc.xml"], "inc.xml"),
    (
        {"robot.xml": "sub/as.xml", "sub/as.xml": "sub/inc.xml"},
        ["sub/inc.xml", "sub/sub/inc.xml"],
        "sub/inc.xml",
    ),
    ({"robot.xml": "a/a.xml", "a/a.xml": "b/b.xml", "a/b/b.xml": "c.xml"}, ["a/b/c.xml"], "a/b/c.xml"),
    ({"robot.xml": "a/a.xml", "a/a.xml": "b/b.xml", "a/b/b.xml": "c.xml"}, ["a/c.xml"], None),
    ({"robot.xml": "s/robot.xml", "s/robot.xml": "x.xml"}, ["s/x.xml"], "s/x.xml"),
]


@pytest.mark.parametrize(("names", "ends", "found"), INCLUDES)
def test_files_that_included_files_include(tmp_path, names, ends, found):
    """In the folder of the main file first, then beside the file that includes them, as in MuJoCo."""

    def write(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    for name, other in names.items():
        write(name, f'<mujoco><include file="{other}"/></mujoco>')
    for name in ends:
        write(name, f'<mujoco><worldbody><body name="{name}"><joint/>{SOLID}</body></worldbody></mujoco>')
    main = tmp_path / "robot.xml"
    if found is None:
        with pytest.raises(ValueError, match=r"no file 'c.xml' to include. It was looked for in .*/a/b$"):
            mb.load(main)
    else:
        assert [body.name for body in mb.load(main).bodies] == [found]
    if mujoco and found is None:
        with pytest.raises(ValueError, match="Error opening file"):
            mujoco.MjModel.from_xml_path(str(main))
    elif mujoco:
        assert mujoco.MjModel.from_xml_path(str(main)).body(1).name == found


STILL = '<body name="a"><site name="s"/></body><body name="b"><site name="t"/></body>'
TWO = f'<body name="a"><joint/>{SOLID}<site name="s"/><body name="b"><site name="t"/></body></body>'


@pytest.mark.filterwarnings("ignore:robot.xml")
@pytest.mark.parametrize("bodies", [STILL, TWO])
@pytest.mark.parametrize(
    "tie",
    [
        '<weld body1="a" body2="b"/>',
        '<weld body1="a" body2="b" relpose="1 2 3 1 0 0 0"/>',
        '<connect body1="a" body2="b" anchor="0 0 0"/>',
        '<weld site1="s" site2="t"/>',
    ],
)
def test_equalities_between_bodies_that_are_one(tmp_path, bodies, tie):
    """They do nothing: both bodies do not move, or move as one."""
    text = xml(bodies, f"<equality>{tie}</equality>")
    peer(text)
    model = mb.load(robot_files.written(tmp_path, text))
    where = f"mujoco/equality/{tie[1:].split()[0]}"
    assert model.notes == [f"equalities between bodies that are one are left out: {where}"]
    assert len(model.joints) == len(model.bodies) == (bodies is TWO)


def test_a_site_is_not_tied_to_itself(tmp_path):
    text = xml(TWO, '<equality><weld site1="s" site2="s"/></equality>')
    refused(tmp_path, text, "mujoco/equality/weld ties the site 's' to itself")


# --- surfaces -------------------------------------------------------------------------------------------

CORNERS = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.obj", "# a part\nv 1 1\n" + CORNERS, "line 2 must be 'v' and 3 numbers, got 'v 1 1'"),
        ("a.obj", CORNERS + "v 1 1 x\n", "line 5 must be 'v' and 3 numbers, got 'v 1 1 x'"),
        ("a.obj", CORNERS + "f 1 2 c\n", "line 5 must be 'f' and numbers of points, from 1 or from -1"),
        ("a.obj", CORNERS + "f 0 1 2\n", "line 5 must be 'f' and numbers of points, from 1 or from -1"),
        ("a.stl", "solid a\n outer loop\n vertex 1 1\n", "line 3 must be 'vertex' and 3 numbers, got"),
    ],
)
def test_wrong_lines_of_meshes_are_named(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=re.escape(f"{name} cannot be read: {message}")):
        mb.mesh(tmp_path / name, density=1.0)
