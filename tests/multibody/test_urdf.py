"""URDF: what is read, what is listed, and what is refused by name."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

import robot_files as files
from genalpha import multibody as mb
from genalpha.multibody.formats import files as model_files

SOLID = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
NO_INERTIA = "<inertia ixx='0' iyy='0' izz='0'/>"


def robot(*parts):
    return f"<robot name='r'>{''.join(parts)}</robot>"


def link(name, inside=SOLID):
    return f"<link name='{name}'>{inside}</link>"


def joint(name, parent, child, kind="continuous", inside=""):
    ends = f"<parent link='{parent}'/><child link='{child}'/>"
    return f"<joint name='{name}' type='{kind}'>{ends}{inside}</joint>"


TWO = link("base", ""), link("arm")


def test_links_joints_and_frames(tmp_path):
    """The lamp is one with the boom, and the tool is a frame on it. Masses by hand."""
    model = files.read(tmp_path, files.URDF, "robot.urdf")
    assert [body.name for body in model.bodies] == ["column", "boom", "rail"]
    assert [type(one).__name__ for one in model.joints] == ["Revolute", "Revolute", "Prismatic"]
    assert model["boom"].mass == pytest.approx(2.5)
    R = files.axes_of(np.array([np.cos(0.35), 0, np.sin(0.35), 0]))
    lamp = np.array([0.6, 0, 0]) + R @ [0, 0, 0.05]
    np.testing.assert_allclose(
        model["boom"].center, (2 * np.array([0.3, 0, 0]) + 0.5 * lamp) / 2.5, atol=1e-15
    )
    tool = model.frames["tool0"]
    assert tool.body is model["boom"]
    np.testing.assert_allclose(tool.r + tool.body.center, [0.6, 0, 0] + R @ [0, 0, 0.1], atol=1e-15)
    assert model["tool0"] is tool
    assert model["base"].body is model.ground
    again = model_files.read(model_files.written(model))  # frames are kept in files
    np.testing.assert_allclose(again["tool0"].pose[0], tool.pose[0], atol=1e-14)
    for wrong, message in (
        ({"x": {"body": "bom"}}, "frames.x.body: .*'boom'"),
        ({"boom": "boom"}, "already"),
        (1, "table"),
    ):
        with pytest.raises(ValueError, match=message):
            model_files.read({**model_files.written(model), "frames": wrong})
    assert {one.name: one.numbers["damping"] for one in model.forces if isinstance(one, mb.JointSpring)} == {
        "yaw damper": 0.3,
        "shift damper": 1.5,
    }


def test_limits_and_friction(tmp_path):
    """The inertia that a joint carries from the kinetic energy of its motion with rate one."""
    model = files.read(tmp_path, files.URDF, "robot.urdf")
    assert model["yaw friction"].numbers["size"] == 0.2
    for name, (lower, upper) in {"pitch": (-1.0, 2.0), "shift": (0.0, 0.4)}.items():
        limit = model[f"{name} limit"].numbers
        assert (limit["lower"], limit["upper"]) == (lower, upper)
        q, v = model.pose({}, {name: 1.0})
        row = SimpleNamespace(t=np.zeros(1), q=q[None], v=v[None])
        inertia = 2 * model.motion(row).energy()["kinetic"].item()
        assert limit["stiffness"] == pytest.approx(inertia / 0.02**2, rel=1e-12)
        depth = 1e-3 * (upper - lower)
        viscous = limit["stiffness"] * depth * limit["damping"]
        assert viscous / (2 * np.sqrt(limit["stiffness"] * inertia)) == pytest.approx(1.0)
    free = files.read(tmp_path, files.URDF, "robot.urdf", limits="ignore")
    assert [one.name for one in free.forces] == ["yaw damper", "yaw friction", "shift damper"]
    with pytest.raises(ValueError, match="limits must be 'stiff' or 'ignore', got 'soft'"):
        mb.load(files.written(tmp_path, files.URDF, "robot.urdf"), limits="soft")


def test_what_is_not_supported_is_listed(tmp_path):
    path = files.written(tmp_path, files.URDF, "robot.urdf")
    with pytest.warns(UserWarning, match=r"robot.urdf: .*contacts are not read \(1\)"):
        model = mb.load(path)
    assert model.notes == [
        "limits of effort and velocity are not applied: 'pitch' (10, 3)",
        "contacts are not read: 'column'",
    ]
    limits = {"a": "lower='-6.3' upper='6.3'", "b": "lower='1' upper='2'", "c": "effort='0'"}
    arms = [
        link(name) + joint(f"to {name}", "base", name, "revolute", f"<limit {ends}/>")
        for name, ends in limits.items()
    ]
    model = files.read(tmp_path, robot(link("base", ""), *arms), "robot.urdf")
    assert model.notes == [
        "limits without a range are not applied: 'to c' at 0",
        "limits of one turn or more are not applied: 'to a' from -6.3 to 6.3",
        "joints start outside of their limits: 'to b' from 1 to 2 at 0",
    ]
    assert [one.name for one in model.forces] == ["to b limit"]


NOT_APPLIED = {
    "floating": [
        "damping and friction of floating and fixed joints are not applied: 'j' (5, 2)",
        "limits of joints that are neither revolute nor prismatic are not applied: 'j' from -1 to 1",
    ],
    "planar": ["limits of joints that are neither revolute nor prismatic are not applied: 'j' from -1 to 1"],
    "continuous": [
        "limits of joints that are neither revolute nor prismatic are not applied: 'j' from -1 to 1"
    ],
}
NOT_APPLIED["fixed"] = NOT_APPLIED["floating"]


@pytest.mark.parametrize("kind", NOT_APPLIED)
def test_numbers_of_joints_that_mean_nothing_are_listed(tmp_path, kind):
    inside = "<dynamics damping='5' friction='2'/><limit lower='-1' upper='1'/>"
    text = robot(*TWO, joint("j", "base", "arm", kind, inside))
    assert files.read(tmp_path, text, "robot.urdf").notes == NOT_APPLIED[kind]
    inside = "<dynamics damping='0' friction='0'/><limit lower='0' upper='0'/>"
    text = robot(*TWO, joint("j", "base", "arm", kind, inside))
    assert files.read(tmp_path, text, "robot.urdf").notes == []


ORIGIN = "<origin xyz='1 0 0'/>"
BALL = "<geometry><sphere radius='1'/></geometry>"
TWICE = {
    "joint (j)/axis": joint("j", "base", "arm", inside="<axis xyz='1 0 0'/><axis xyz='0 1 0'/>"),
    "joint (j)/origin": joint("j", "base", "arm", inside=ORIGIN + ORIGIN),
    "joint (j)/parent": joint("j", "base", "arm", inside="<parent link='base'/>"),
    "joint (j)/child": joint("j", "base", "arm", inside="<child link='arm'/>"),
    "joint (j)/limit": joint("j", "base", "arm", "revolute", "<limit upper='1'/><limit upper='2'/>"),
    "joint (j)/dynamics": joint("j", "base", "arm", inside="<dynamics/><dynamics damping='1'/>"),
    "link (x)/inertial": link("x", SOLID + SOLID),
    "link (x)/inertial/mass": link("x", SOLID.replace("<mass", "<mass value='3'/><mass")),
    "link (x)/inertial/inertia": link("x", SOLID.replace("<inertia ", "<inertia ixx='3'/><inertia ")),
    "link (x)/inertial/origin": link("x", SOLID.replace("<mass", f"{ORIGIN}{ORIGIN}<mass")),
    "link (x)/visual/origin": link("x", f"<visual>{ORIGIN}{ORIGIN}{BALL}</visual>"),
    "link (x)/visual/geometry": link("x", f"<visual>{BALL}{BALL}</visual>"),
}


@pytest.mark.parametrize("path", TWICE)
def test_elements_that_occur_twice_are_refused(tmp_path, path):
    text = robot(*TWO, joint("to arm", "base", "arm"), joint("to x", "arm", "x"), TWICE[path])
    with pytest.raises(ValueError, match=re.escape(f"robot/{path}: there are two, and there can be one")):
        mb.load(files.written(tmp_path, text, "robot.urdf"))


def test_a_geometry_has_one_shape(tmp_path):
    two = BALL.replace("</", "<sphere radius='2'/></", 1)
    with pytest.raises(ValueError, match=r"robot/link \(x\)/visual/geometry has two shapes"):
        mb.load(files.written(tmp_path, robot(link("x", f"<visual>{two}</visual>")), "robot.urdf"))


def test_a_free_base(tmp_path):
    text = robot(link("base"), link("arm"), joint("pin", "base", "arm"))
    assert len(mb.load(files.written(tmp_path, text, "robot.urdf")).bodies) == 1
    free = mb.load(files.written(tmp_path, text, "robot.urdf"), base="free", gravity=(0, 0, -1.62))
    assert [body.name for body in free.bodies] == ["base", "arm"]
    assert free.gravity[2] == -1.62
    assert free.assemble().freedom == 7


def test_floating_and_planar_joints(tmp_path):
    parts = link("base", ""), link("puck"), link("bird")
    text = robot(*parts, joint("table", "base", "puck", "planar", "<axis xyz='0 0 1'/>"))
    text = text.replace("</robot>", joint("air", "base", "bird", "floating") + "</robot>")
    model = mb.load(files.written(tmp_path, text, "robot.urdf"))
    assert [type(one).__name__ for one in model.joints] == ["Planar"]
    assert model.assemble().freedom == 9
    q, _ = model.pose({"table": (0.1, 0.2, 0.3)})
    np.testing.assert_allclose(q[:3], [0.1, 0.2, 0.0], atol=1e-15)


def test_mimic(tmp_path):
    """A gripper: both fingers move by one value."""
    slide = "<axis xyz='0 1 0'/>"
    parts = link("palm", ""), link("left"), link("right"), joint("l", "palm", "left", "prismatic", slide)
    follows = slide + "<mimic joint='l' multiplier='-1' offset='0.02'/>"
    text = robot(*parts, joint("r", "palm", "right", "prismatic", follows))
    model = mb.load(files.written(tmp_path, text, "robot.urdf"))
    model.place(*model.pose({"l": 0.3}))
    assert model.assemble(hold=["left"]).freedom == 1
    assert model["right"].x[1] == pytest.approx(-0.28, abs=1e-12)


def test_an_angle_that_is_followed_without_limits_is_listed(tmp_path):
    parts = link("base", ""), link("a"), link("b"), joint("to a", "base", "a")
    for ratio, limits, listed in (
        ("2", "", False),
        ("0.5", "", False),
        ("0.377", "", True),
        ("0.377", "lower='-1' upper='1'", False),
    ):
        follows = f"<mimic joint='to a' multiplier='{ratio}'/>"
        kind = "revolute" if limits else "continuous"
        first = joint("to a", "base", "a", kind, f"<limit {limits}/>" if limits else "")
        text = robot(*parts[:3], joint("to b", "base", "b", inside=follows), first)
        notes = files.read(tmp_path, text, "robot.urdf").notes
        assert [x for x in notes if x.startswith("angles that are followed") and "'to b mimic'" in x] == notes
        assert bool(notes) is listed


def test_an_inertia_without_a_mass_is_added(tmp_path):
    """The rotor of a motor, turned by 90° about z. It needs no mass of its own."""
    rotor = SOLID.replace('"1"', '"0"', 1).replace('iyy="1"', 'iyy="0.5"')
    turned = "<origin xyz='3 0 0' rpy='0 0 1.5707963267948966'/>"
    pins = joint("pin", "base", "arm") + joint("hold", "arm", "rotor", "fixed", turned)
    load = lambda arm: files.read(
        tmp_path, robot(link("base", ""), arm, link("rotor", rotor), pins), "r.urdf"
    )
    np.testing.assert_allclose(load(link("arm"))["arm"].inertia.tensor, np.diag([1.5, 2, 2]), atol=1e-15)
    point = link("arm", "<inertial><origin xyz='1 0 0'/><mass value='2'/>" + NO_INERTIA + "</inertial>")
    only = load(point)["arm"]
    np.testing.assert_allclose(only.inertia.tensor, np.diag([0.5, 1, 1]), atol=1e-15)
    assert (only.mass, *only.center) == (2, 1, 0, 0)
    with pytest.raises(ValueError, match=r"link \(arm\) moves and has no mass"):
        load(link("arm", ""))


def test_names_that_occur_twice_are_changed_and_listed(tmp_path):
    text = robot(link("base", ""), link("arm"), joint("arm", "base", "arm"))
    model = files.read(tmp_path, text, "robot.urdf")
    assert model["arm joint"] in model.joints
    assert model.notes == ["renamed, since names must differ: the joint 'arm' is 'arm joint'"]


# --- meshes -------------------------------------------------------------------------------------------

CORNERS = "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\n"
OBJ = CORNERS + "f 1 3 2\nf 1 2 4\nf 1/1/1 4/2/2 3/3/3\nf -3 -2 -1\n"


def drawn(file):
    shape = (
        f"<visual><origin xyz='0 0 1'/><geometry><mesh filename='{file}' scale='2 2 2'/></geometry></visual>"
    )
    return robot(link("base", ""), link("arm", SOLID + shape), joint("pin", "base", "arm"))


def stl(points, triangles):
    kind = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("rest", "<u2")])
    data = np.zeros(len(triangles), kind)
    data["corners"] = points[triangles]
    return b"\0" * 80 + len(triangles).to_bytes(4, "little") + data.tobytes()


@pytest.mark.parametrize("ending", ["obj", "stl", "text.stl"])
def test_meshes_of_packages(tmp_path, ending):
    """The package is the folder above that of the file."""
    for name in ("urdf", "meshes"):
        (tmp_path / "arm" / name).mkdir(parents=True)
    points, triangles = (
        np.vstack([np.zeros(3), np.eye(3)]),
        np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]),
    )
    file = tmp_path / "arm" / "meshes" / f"part.{ending}"
    if ending == "obj":
        file.write_text(OBJ)
    elif ending == "stl":
        file.write_bytes(stl(points, triangles))
    else:
        rows = "\n".join(f"vertex {x} {y} {z}" for x, y, z in points[triangles].reshape(-1, 3))
        file.write_text(f"solid part\n{rows}\nendsolid")
    text = drawn(f"package://arm/meshes/part.{ending}")
    model = mb.load(files.written(tmp_path / "arm" / "urdf", text, "robot.urdf"))
    shape = model["arm"].shape
    np.testing.assert_allclose(shape.vertices.min(axis=0), [0, 0, 1])
    np.testing.assert_allclose(shape.vertices.max(axis=0), [2, 2, 3])
    assert mb.mesh(shape.vertices - [0, 0, 1], shape.triangles, density=1.0).mass == pytest.approx(8 / 6)
    model.save(tmp_path / "again.json")
    np.testing.assert_array_equal(mb.load(tmp_path / "again.json")["arm"].shape.vertices, shape.vertices)


def test_folders_for_meshes_and_missing_ones(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "part.obj").write_text(OBJ)
    path = files.written(tmp_path, drawn("package://arm/part.obj"), "robot.urdf")
    with pytest.raises(
        ValueError, match=r"geometry/mesh: there is no mesh 'package://arm/part.obj'.*folders"
    ):
        mb.load(path)
    for folders in ([tmp_path / "far"], tmp_path / "far", str(tmp_path / "far"), (str(tmp_path / "far"),)):
        assert mb.load(path, folders=folders)["arm"].shape is not None
    for folders in (None, 3, [3]):
        with pytest.raises(TypeError, match=re.escape(f"a folder or a list of folders, got {folders!r}")):
            mb.load(path, folders=folders)
    with pytest.warns(UserWarning, match="meshes are not read"):
        bare = mb.load(path, meshes="ignore")
    assert bare["arm"].shape is None
    assert bare.notes == [
        "meshes are not read: robot/link (arm)/visual/geometry/mesh: package://arm/part.obj"
    ]
    with pytest.raises(ValueError, match="meshes must be 'read' or 'ignore', got None"):
        mb.load(path, meshes=None)
    with pytest.raises(ValueError, match="is not on this machine"):
        mb.load(files.written(tmp_path, drawn("http://example.org/part.stl"), "robot.urdf"))
    (tmp_path / "part.dae").write_text("")
    with pytest.warns(UserWarning, match="meshes are read from"):
        assert mb.load(files.written(tmp_path, drawn("part.dae"), "robot.urdf"))["arm"].shape is None
    (tmp_path / "part.stl").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"part.stl cannot be read: it is no STL"):
        mb.load(files.written(tmp_path, drawn("part.stl"), "robot.urdf"))


# --- bad input ----------------------------------------------------------------------------------------

BAD = {
    "robot/joint (pin)/axis.xyz must be 3 numbers, got '1 0'": joint(
        "pin", "base", "arm", inside="<axis xyz='1 0'/>"
    ),
    "robot/joint (pin)/axis.xyz must be 3 numbers, got 'a b c'": joint(
        "pin", "base", "arm", inside="<axis xyz='a b c'/>"
    ),
    "robot/joint (pin)/axis.xyz is zero": joint("pin", "base", "arm", inside="<axis xyz='0 0 0'/>"),
    "robot/joint (pin)/axs is unknown: do you mean 'axis'?": joint("pin", "base", "arm", inside="<axs/>"),
    "robot/joint (pin)/origin.rpj is unknown: do you mean 'rpy'?": joint(
        "pin", "base", "arm", inside="<origin rpj='0 0 0'/>"
    ),
    "robot/joint (pin).type is 'revolut': do you mean 'revolute'?": joint("pin", "base", "arm", "revolut"),
    "robot/joint (pin)/child.link is 'hand': there is no such link": joint("pin", "base", "hand"),
    "the link 'arm' has the joint 'a' already. URDF has trees only": joint("a", "base", "arm")
    + joint("b", "base", "arm"),
    "must have one link that is no child of a joint, and has 'base', 'arm'": "",
    "robot/joint (pin)/mimic: 'other' is no joint": joint(
        "pin", "base", "arm", inside="<mimic joint='other'/>"
    ),
    "robot/joint (pin)/dynamics.damping is -1, and must not be negative": joint(
        "pin", "base", "arm", inside="<dynamics damping='-1'/>"
    ),
    "robot/link (arm): there are two with this name": joint("pin", "base", "arm") + link("arm"),
    "robot/linc (x) is unknown: do you mean 'link'?": "<linc name='x'/>",
}


@pytest.mark.parametrize("message", BAD)
def test_wrong_entries_are_named(tmp_path, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        mb.load(files.written(tmp_path, robot(*TWO, BAD[message]), "robot.urdf"))
    assert str(caught.value).startswith(str(tmp_path / "robot.urdf"))


def test_wrong_inertias_are_named(tmp_path):
    def load(inside):
        return mb.load(
            files.written(tmp_path, robot(link("base", ""), link("arm", inside), pin), "robot.urdf")
        )

    pin = joint("pin", "base", "arm")
    with pytest.raises(ValueError, match=r"robot/link \(arm\) moves and has no mass"):
        load("")
    with pytest.raises(ValueError, match=r"robot/link \(arm\) moves and has a mass without an inertia"):
        load(f"<inertial><mass value='1'/>{NO_INERTIA}</inertial>")
    with pytest.raises(ValueError, match=r"robot/link \(arm\)/inertial: no body has the principal moments"):
        load(SOLID.replace("izz='1'", "izz='9'").replace('izz="1"', 'izz="9"'))
    with pytest.raises(ValueError, match=r"mass.value is -1: a mass is not negative"):
        load(SOLID.replace('value="1"', 'value="-1"'))


def test_files_that_are_more_than_text_are_refused(tmp_path):
    bomb = "<!DOCTYPE robot [<!ENTITY a 'aaaa'>]><robot name='&a;'/>"
    with pytest.raises(ValueError, match=r"robot.urdf: it has a document type"):
        mb.load(files.written(tmp_path, bomb, "robot.urdf"))
    with pytest.raises(ValueError, match="is no XML that can be read"):
        mb.load(files.written(tmp_path, "<robot>", "robot.urdf"))
    with pytest.raises(ValueError, match="run xacro first"):
        mb.load(files.written(tmp_path, "<robot><xacro:arm/></robot>", "robot.urdf"))
    space = "xmlns:xacro='http://www.ros.org/wiki/xacro'"
    with pytest.raises(ValueError, match=r"robot.urdf has the element 'xacro:arm', a macro: run xacro first"):
        mb.load(files.written(tmp_path, f"<robot {space}><xacro:arm/></robot>", "robot.urdf"))
    value = joint("pin", "base", "arm", inside="<axis xyz='${x} 0 0'/>")
    with pytest.raises(ValueError, match=r"axis.xyz must be 3 numbers, got '\$\{x\} 0 0': run xacro first"):
        mb.load(files.written(tmp_path, robot(*TWO, value), "robot.urdf"))
    mb.load(files.written(tmp_path, f"<robot {space}><link name='a'/></robot>", "robot.urdf"))
    with pytest.raises(ValueError, match="its first element is 'mujoco'"):
        mb.load(files.written(tmp_path, "<mujoco/>", "robot.urdf"))
    with pytest.raises(ValueError, match="base must be 'fixed' or 'free'"):
        mb.load(files.written(tmp_path, files.URDF, "robot.urdf"), base="loose")
    with pytest.raises(TypeError, match="has no option 'base'"):
        mb.load(files.written(tmp_path, "{}", "model.json"), base="free")


@pytest.mark.slow
def test_a_robot_is_drawn_with_its_base(tmp_path):
    model = files.read(tmp_path, files.URDF, "robot.urdf")
    page = model.view(model.solve((0.0, 0.02), h=1e-3), traces=["tool0"])
    drawn = {item.name for item in page.scene.items}
    assert {"ground", "column", "boom", "rail"} <= drawn
    assert len(model["column"].shape.triangles) > 50
