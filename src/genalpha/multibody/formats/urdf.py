"""Robots in URDF."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.transform import Rotation

from genalpha.multibody.couplings import Mimic
from genalpha.multibody.forces import DryFriction, JointSpring
from genalpha.multibody.formats import meshes as surfaces
from genalpha.multibody.formats.markup import Entry, Notes, parsed
from genalpha.multibody.formats.meshes import Surface
from genalpha.multibody.formats.trees import FREE, ORIGIN, MeshFiles, Plan, Pose, Span, Tree, TreeLink
from genalpha.multibody.frames import along
from genalpha.multibody.inertia import Inertia
from genalpha.multibody.joints import Joint, Planar, Prismatic, Revolute
from genalpha.multibody.model import Model
from genalpha.multibody.things import GRAVITY
from genalpha.multibody.vectors import EYE

JOINTS: dict[str, Any] = {
    "revolute": Revolute,
    "continuous": Revolute,
    "prismatic": Prismatic,
    "planar": Planar,
    "floating": FREE,
    "fixed": None,
}
# What is no part of the motion, by element. All of it is listed.
_OF_ROBOT = {
    "transmission": "transmissions are not read",
    "gazebo": "extensions of simulators are not read",
    "ros2_control": "extensions of simulators are not read",
    "mujoco": "extensions of simulators are not read",
    "sensor": "sensors are not read",
}
_CONTACT = "contacts are not read"


def load(
    path: Path,
    *,
    base: str = "fixed",
    folders: Any = (),
    gravity: Any = GRAVITY,
    limits: str = "stiff",
    meshes: str = "read",
) -> Model:
    """The robot in a URDF file. See :func:`genalpha.multibody.load`."""
    if base not in ("fixed", "free"):
        raise ValueError(f"base must be 'fixed' or 'free', got {base!r}")
    notes, files = Notes(), MeshFiles(path, folders, meshes)
    root = Entry(parsed(path), "", notes)
    if root.tag != "robot":
        raise ValueError(f"its first element is {root.tag!r}, and must be 'robot'")
    root.finish({"name": "", "version": ""})
    links: dict[str, Entry] = {}
    joints: dict[str, _JointEntry] = {}
    for entry in root.children():
        if entry.tag in ("link", "joint"):
            name, named = entry.needed("name"), links if entry.tag == "link" else joints
            if name in named:
                raise ValueError(f"{entry.where}: there are two with this name")
            named[name] = entry if entry.tag == "link" else _JointEntry(entry)  # type: ignore[assignment]
        elif entry.tag in _OF_ROBOT:
            notes.add(_OF_ROBOT[entry.tag], entry.where)
        elif entry.tag != "material":
            raise entry.unknown(("link", "joint", "material", *_OF_ROBOT))
    tree = Tree(path, notes, limits)
    numbers: dict[str, int] = {}
    for name, joint in _ordered(links, joints, root.where):
        plan = (
            joint.plan(name)
            if joint
            else Plan(f"{name} joint", FREE, ORIGIN, ORIGIN)
            if base == "free"
            else None
        )
        above, pose = (numbers[joint.parent], joint.origin) if joint else (None, ORIGIN)
        link = TreeLink(name, above, pose, links[name].where, plan)
        _read_link(links[name], link, files)
        numbers[name] = len(tree.links)
        tree.links.append(link)
    model = tree.model(gravity)
    _forces(model, tree, joints)
    return tree.done(model)


class _JointEntry:
    """A joint element."""

    def __init__(self, entry: Entry) -> None:
        self.entry, self.name = entry, entry.needed("name")
        self.kind = entry.choice("type", JOINTS, "")
        entry.finish()
        self.origin, self.axis, self.parent, self.child = ORIGIN, np.array([1.0, 0.0, 0.0]), "", ""
        self.damping = self.friction = 0.0
        self.span: Span | None = None
        self.mimic: tuple[str, float, float] | None = None
        for one in _children(entry, ("origin", "parent", "child", "axis", "dynamics", "limit", "mimic")):
            self._child(one)
            one.finish()
        if not self.parent or not self.child:
            raise ValueError(f"{entry.where} has no {'child' if self.parent else 'parent'}")

    def _child(self, one: Entry) -> None:
        notes = one.notes
        if one.tag == "origin":
            self.origin = _origin(one)
        elif one.tag in ("parent", "child"):
            setattr(self, one.tag, one.needed("link"))
        elif one.tag == "axis":
            self.axis = one.numbers("xyz", 3, self.axis)
            if not np.linalg.norm(self.axis) > 0:
                raise one.wrong("is zero: it must be a direction", "xyz")
        elif one.tag == "dynamics":
            self.damping, self.friction = one.number("damping"), one.number("friction")
            for key in ("damping", "friction"):
                if one.number(key) < 0:
                    raise one.wrong(f"is {one.number(key):g}, and must not be negative", key)
            if self.kind in ("floating", "fixed") and (self.damping or self.friction):
                reason = "damping and friction of floating and fixed joints are not applied"
                notes.add(reason, f"{self.name!r} ({self.damping:g}, {self.friction:g})")
        elif one.tag == "limit":
            self._limit(one)
        elif one.tag == "mimic":
            self.mimic = one.needed("joint"), one.number("multiplier", 1.0), one.number("offset")
        elif one.tag in ("safety_controller", "calibration"):
            notes.add("calibrations and safety controllers are not read", one.where)
            one.attributes.clear()
        else:
            known = ("origin", "parent", "child", "axis", "dynamics", "limit", "mimic")
            raise one.unknown((*known, "safety_controller", "calibration"))

    def _limit(self, one: Entry) -> None:
        lower, upper, effort, velocity = (one.number(x) for x in ("lower", "upper", "effort", "velocity"))
        if self.kind in ("revolute", "prismatic"):
            if lower > upper:
                raise one.wrong(f"is {lower:g}, above upper, {upper:g}", "lower")
            if lower < upper:
                self.span = Span(lower, upper)
            else:
                one.notes.add("limits without a range are not applied", f"{self.name!r} at {lower:g}")
        elif lower or upper:
            reason = "limits of joints that are neither revolute nor prismatic are not applied"
            one.notes.add(reason, f"{self.name!r} from {lower:g} to {upper:g}")
        if effort or velocity:
            reason = "limits of effort and velocity are not applied"
            one.notes.add(reason, f"{self.name!r} ({effort:g}, {velocity:g})")

    def plan(self, link: str) -> Plan | None:
        cls = JOINTS[self.kind]
        frame = Pose(np.zeros(3), along(self.axis, f"{self.entry.where}/axis.xyz"))
        return None if cls is None else Plan(self.name, cls, frame, frame)


def _ordered(
    links: dict[str, Entry], joints: dict[str, _JointEntry], where: str
) -> list[tuple[str, _JointEntry | None]]:
    """The links, parents first, each with the joint that carries it."""
    carried: dict[str, _JointEntry] = {}
    below: dict[str, list[str]] = {name: [] for name in links}
    for joint in joints.values():
        for key, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in links:
                raise ValueError(f"{joint.entry.where}/{key}.link is {link!r}: there is no such link")
        if joint.child in carried:
            raise ValueError(
                f"{joint.entry.where}: the link {joint.child!r} has the joint {carried[joint.child].name!r} "
                "already. URDF has trees only: close loops with joints in Python, after loading"
            )
        carried[joint.child] = joint
        below[joint.parent].append(joint.child)
    roots = [name for name in links if name not in carried]
    if len(roots) != 1:
        listed = ", ".join(map(repr, roots)) or "none"
        raise ValueError(f"{where} must have one link that is no child of a joint, and has {listed}")
    found, waiting = [], roots
    while waiting:
        name = waiting.pop(0)
        found.append((name, carried.get(name)))
        waiting += below[name]
    if len(found) < len(links):
        lost = next(name for name in links if name not in {one for one, _ in found})
        raise ValueError(f"{where}: joints run in a circle at the link {lost!r}")
    return found


def _children(entry: Entry, single: Sequence[str] = ()) -> Iterator[Entry]:
    """The elements in an element. There can be one of each tag in ``single``."""
    seen = set[str]()
    for one in entry.children():
        if one.tag in single and one.tag in seen:
            raise ValueError(f"{one.where}: there are two, and there can be one")
        seen.add(one.tag)
        yield one


def _origin(entry: Entry) -> Pose:
    x, rpy = entry.numbers("xyz", 3, np.zeros(3)), entry.numbers("rpy", 3, np.zeros(3))
    entry.finish()
    return Pose(x, Rotation.from_euler("xyz", rpy).as_matrix() if rpy.any() else EYE)


def _read_link(entry: Entry, link: TreeLink, files: MeshFiles) -> None:
    """Inertia and surfaces of a link."""
    entry.finish({"name": "", "type": ""})
    for one in _children(entry, ("inertial",)):
        if one.tag == "inertial":
            _inertial(one, link)
        elif one.tag == "visual":
            _visual(one, link, files)
        elif one.tag in ("collision", "contact", "self_collision_checking"):
            entry.notes.add(_CONTACT, repr(link.name))
        else:
            raise one.unknown(("inertial", "visual", "collision"))


def _inertial(entry: Entry, link: TreeLink) -> None:
    entry.finish()
    at, mass, tensor, given = ORIGIN, 0.0, np.zeros((3, 3)), set[str]()
    for one in _children(entry, ("origin", "mass", "inertia")):
        if one.tag == "origin":
            at = _origin(one)
        elif one.tag == "mass":
            one.needed("value")
            mass = one.number("value")
        elif one.tag == "inertia":
            xx, xy, xz, yy, yz, zz = (one.number(key) for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz"))
            tensor = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        else:
            raise one.unknown(("origin", "mass", "inertia"))
        given.add(one.tag)
        one.finish()
    for tag, zero in (("mass", 'value="0"'), ("inertia", 'ixx="0" iyy="0" izz="0"')):
        if tag not in given:
            raise ValueError(f"{entry.where} has no {tag}: if it is zero, write <{tag} {zero}/>")
    if mass < 0:
        raise ValueError(f"{entry.where}/mass.value is {mass:g}: a mass is not negative")
    if tensor.any() and not mass:
        link.tensors.append(at.R @ tensor @ at.R.T)
    elif tensor.any():
        try:
            link.solids.append(Inertia(mass, tensor).moved(*at))
        except ValueError as error:
            raise ValueError(f"{entry.where}: {error}") from error
    elif mass:
        link.points.append((mass, at.x))


def _visual(entry: Entry, link: TreeLink, files: MeshFiles) -> None:
    entry.finish({"name": ""})
    at, surface = ORIGIN, None
    for one in _children(entry, ("origin", "geometry")):
        if one.tag == "origin":
            at = _origin(one)
        elif one.tag == "geometry":
            shapes = list(one.children())
            if len(shapes) > 1:
                raise ValueError(f"{one.where} has two shapes: write two elements 'visual'")
            for shape in shapes:
                surface = _geometry(shape, files)
                shape.finish()
        elif one.tag != "material":
            raise one.unknown(("origin", "geometry", "material"))
    if surface is not None:
        link.surfaces.append(surface.moved(*at))


def _size(entry: Entry, key: str, count: int = 1) -> np.ndarray:
    entry.needed(key)
    found = entry.numbers(key, count)
    if not (found > 0).all():
        raise entry.wrong(f"must be positive, got {entry.text(key)!r}", key)
    return found


def _geometry(entry: Entry, files: MeshFiles) -> Surface | None:
    if entry.tag == "box":
        return surfaces.box(_size(entry, "size", 3) / 2)
    if entry.tag == "sphere":
        return surfaces.capsule(float(_size(entry, "radius")[0]), 0.0)
    if entry.tag in ("cylinder", "capsule"):
        sizes = float(_size(entry, "radius")[0]), float(_size(entry, "length")[0]) / 2
        return surfaces.cylinder(*sizes) if entry.tag == "cylinder" else surfaces.capsule(*sizes)
    if entry.tag == "mesh":
        scale = entry.numbers("scale", 3, np.ones(3))
        found = files.surface(entry.needed("filename"), entry.where, entry.notes)
        return found and Surface(found.points * scale, found.triangles)
    raise entry.unknown(("box", "cylinder", "sphere", "mesh"))


def _along(model: Model, tree: Tree, one: _JointEntry, joint: Joint) -> None:
    """Dampers, friction and limits of a joint."""
    for way in joint.coordinates:
        names = [f"{one.name} {kind}" for kind in ("damper", "friction")]
        if len(joint.coordinates) > 1:
            names = [f"{name}, {way.name}" for name in names]
        if one.damping:
            name = tree.free_name(names[0], "force", model)
            model.add(JointSpring(name, joint, damping=one.damping, coordinate=way.name))
        if one.friction:
            name = tree.free_name(names[1], "force", model)
            model.add(DryFriction(name, joint, one.friction, coordinate=way.name))
        if one.span is not None:
            tree.limit(model, one.name, one.child, way.name, one.span)


def _forces(model: Model, tree: Tree, joints: dict[str, _JointEntry]) -> None:
    """Dampers, friction and limits, and joints that follow others."""
    made = {one.name: tree.joints.get(one.child) for one in joints.values()}
    for one in joints.values():
        joint = made[one.name]
        if joint is not None:
            _along(model, tree, one, joint)
    for one in joints.values():
        if one.mimic is None:
            continue
        other, factor, offset = one.mimic
        found = [made.get(name) for name in (one.name, other)]
        for name, joint in zip((one.name, other), found, strict=True):
            if joint is None or len(joint.coordinates) != 1:
                raise ValueError(f"{one.entry.where}/mimic: {name!r} is no joint with one coordinate")
        first, second = found
        name = tree.free_name(f"{one.name} mimic", "joint", model)
        follows = Mimic(name, first, second, (offset, factor))  # type: ignore[arg-type]
        model.add(follows)
        tree.follow(follows, (second, ""), joints[other].child)  # type: ignore[arg-type]
