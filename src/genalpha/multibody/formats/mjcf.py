"""Models of MuJoCo in MJCF."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genalpha.errors import hint
from genalpha.multibody.formats import mjcf_geoms, mjcf_joints
from genalpha.multibody.formats.markup import Entry, Notes
from genalpha.multibody.formats.mjcf_actuators import ACTUATORS
from genalpha.multibody.formats.mjcf_geoms import Geom, Meshes
from genalpha.multibody.formats.mjcf_joints import Spec, Way
from genalpha.multibody.formats.mjcf_parts import Parts
from genalpha.multibody.formats.mjcf_settings import ORIENTATIONS, Settings, silent, whole
from genalpha.multibody.formats.trees import ORIGIN, MeshFiles, Pose, Tree, TreeLink, unused
from genalpha.multibody.inertia import Inertia, total
from genalpha.multibody.model import Model
from genalpha.multibody.vectors import EYE

# Sections that are no part of the motion, and those that are and are not read.
_SILENT = ("compiler", "option", "size", "statistic", "visual", "default", "custom")
_UNREAD = {
    "contact": "contacts are not read",
    "tendon": "tendons are not read",
    "sensor": "sensors are not read",
    "keyframe": "keyframes are not read",
    "deformable": "deformable bodies are not read",
    "extension": "plugins are not read",
}
_SECTIONS = ("worldbody", "asset", "equality", "actuator", *_SILENT, *_UNREAD)
# Sections whose elements have names, and the kinds of these; None is for their tags.
_OF_NAMES: dict[str, str | None] = {
    **{key: key for key in ("actuator", "equality", "sensor", "tendon")},
    **dict.fromkeys(("asset", "contact", "keyframe", "deformable", "custom")),
}
_IN_BODIES = ["inertial", "joint", "freejoint", "geom", "site", "camera", "light", "body", "frame"]
_OF_BODIES = ("inertial", "joint", "freejoint")
_MAKERS = ("composite", "flexcomp", "attach", "replicate", "plugin")


class _Waiting(NamedTuple):
    """An element, the path around it, and the link, the pose and the default class that it is in."""

    entry: Entry
    around: str
    link: int
    pose: Pose
    childclass: str | None


def load(
    path: Path,
    *,
    folders: Any = (),
    controls: Mapping[str, Any] | None = None,
    limits: str = "stiff",
    meshes: str = "read",
) -> Model:
    """The model in an MJCF file. See :func:`genalpha.multibody.load`."""
    if not isinstance(controls, Mapping | None):
        raise TypeError(
            "controls must be a dictionary of numbers or functions of t by the names of actuators, "
            f"got {controls!r}"
        )
    notes = Notes()
    root = Entry(whole(path), "", notes)
    if root.tag != "mujoco":
        more = ": a URDF file has the ending .urdf" if root.tag == "robot" else ""
        raise ValueError(f"its first element is {root.tag!r}, and must be 'mujoco'{more}")
    root.finish({"model": ""})
    return _Reader(root, Tree(path, notes, limits), MeshFiles(path, folders, meshes)).model(controls or {})


class _Reader:
    """A file that is being read."""

    def __init__(self, root: Entry, tree: Tree, files: MeshFiles) -> None:
        self.root, self.notes = root, root.notes
        self.settings = Settings(root, self.notes)
        self.meshes, self.tree = Meshes(self.settings, files), tree
        self.ways: dict[str, Way] = {}
        self.sites: dict[str, tuple[str, Pose]] = {}
        self._names, self._joints, self._named = set[str](), set[str](), set[tuple[str, str]]()
        inside = [one for world in root.element.iter("worldbody") for one in world.iter()]
        given = lambda *tags: {one.get("name", "") for one in inside if one.tag in tags}
        # Names in the file. Things without a name have others.
        self._of_bodies, self._of_joints = given("body"), given("joint", "freejoint")
        self._specs: list[list[Spec]] = []  # of every link
        self._stated: list[Inertia | None] = []
        self._geoms: list[list[tuple[Geom, Pose]]] = []
        self._moves: list[bool] = []
        self._at: list[np.ndarray] = []  # pos of its element

    def model(self, controls: Mapping[str, Any]) -> Model:
        sections: dict[str, list[Entry]] = {}
        for one in self.root.children():
            if one.tag not in _SECTIONS:
                raise one.unknown(_SECTIONS)
            sections.setdefault(one.tag, []).append(one)
            for inside in one.children() if one.tag in _OF_NAMES else ():
                self._once(inside, _OF_NAMES[one.tag] or inside.tag)
            if one.tag in _UNREAD and not (one.tag == "contact" and "contact" in self.settings.off):
                self.notes.add(_UNREAD[one.tag], one.where)
        for asset in (x for section in sections.get("asset", []) for x in section.children()):
            self._asset(asset)
        self._walk(sections.get("worldbody", []))
        for i, link in enumerate(self.tree.links):
            self._finish(link, i)
        model = self.tree.model(self.settings.gravity)
        for name, (on, pose) in self.sites.items():
            model.frames[self.tree.free_name(name, "site", model)] = self.tree.on(on, pose)
        for way in self.ways.values():
            mjcf_joints.forces(model, self.tree, way)
        self._parts(model, sections, controls)
        return self.tree.done(model)

    def _once(self, entry: Entry, kind: str) -> None:
        """Refuse a name that another element of the same kind has."""
        name = entry.element.get("name")
        if name and (kind, name) in self._named:
            raise ValueError(f"{entry.where}: there are two elements of the kind {kind!r} with this name")
        self._named.add((kind, name or ""))

    def _parts(self, model: Model, sections: dict[str, list[Entry]], controls: Mapping[str, Any]) -> None:
        parts = Parts(model, self.tree, self.settings, self.ways, self.sites)
        actuators = [x for section in sections.get("actuator", []) for x in section.children()]
        for one in actuators:
            if one.tag not in ACTUATORS:
                raise one.unknown(ACTUATORS)
            parts.actuator(self.settings.entry(one.element, f"{self.root.where}/actuator"), controls)
        named = [name for one in actuators if (name := one.text("name"))]
        for name in controls:
            if name not in named:
                known = hint(name, named, "the actuators are") if named else "no actuator has a name"
                raise ValueError(f"controls has {name!r}: {known}")
        equalities = [x for section in sections.get("equality", []) for x in section.children()]
        for i, one in enumerate(equalities if "equality" not in self.settings.off else []):
            given = self.settings.entry(one.element, f"{self.root.where}/equality")
            shared = self.settings.classes[one.element.get("class", "main")].get("equality", {})
            given.attributes = {**shared, **one.element.attrib}
            parts.equality(given, i)

    def _asset(self, entry: Entry) -> None:
        if entry.tag == "mesh":
            self.meshes.add(self.settings.entry(entry.element, f"{self.root.where}/asset"))
        elif entry.tag == "model":
            self.notes.add("models that are attached are not read", entry.where)
        elif entry.tag not in ("texture", "material", "hfield", "skin"):
            raise entry.unknown(("mesh", "texture", "material", "hfield", "skin", "model"))

    # --- bodies -----------------------------------------------------------------------------------

    def _walk(self, worlds: list[Entry]) -> None:
        """All bodies, parents first, without recursion: chains may be long."""
        self._link("world", None, ORIGIN, "worldbody")
        waiting: list[_Waiting] = [_Waiting(one, self.root.where, 0, ORIGIN, None) for one in worlds[::-1]]
        while waiting:
            entry, around, link, pose, childclass = waiting.pop()
            if entry.tag == "worldbody":
                entry.finish()
            elif entry.tag == "body":
                link, childclass = self._body(entry, link, pose, childclass)
                pose = ORIGIN
            elif entry.tag == "frame":
                self._once(entry, "frame")
                childclass = entry.text("childclass", childclass)
                pose = pose @ self.settings.pose(entry)
                entry.finish({"name": ""})
            else:
                self._element(entry, around, link, pose, childclass)
                continue
            inside = list(entry.children())[::-1]
            if entry.tag == "body" and sum(one.tag == "inertial" for one in inside) > 1:
                raise ValueError(f"{entry.where}/inertial: there are two in this body")
            waiting += [_Waiting(one, entry.where, link, pose, childclass) for one in inside]

    def _link(self, name: str, above: int | None, pose: Pose, where: str) -> None:
        self.tree.links.append(TreeLink(name, above, pose, where))
        self._names.add(name)
        self._specs.append([])
        self._stated.append(None)
        self._geoms.append([])
        self._at.append(np.zeros(3))

    def _body(self, entry: Entry, above: int, pose: Pose, childclass: Any) -> tuple[int, Any]:
        made = unused(f"body {len(self.tree.links)}", self._of_bodies)
        name = str(entry.text("name") or made)
        if name in self._names:
            raise ValueError(f"{entry.where}: there are two bodies with this name")
        childclass = entry.text("childclass", childclass)
        if entry.true("mocap"):
            self.notes.add("mocap bodies stay where they are", repr(name))
        if entry.number("gravcomp"):
            self.notes.add("compensation of gravity is not read", repr(name))
        own = self.settings.pose(entry)
        self._link(name, above, pose @ own, entry.where)
        self._at[-1] = own.x
        entry.finish(silent("user sleep fuse simple"))
        return len(self.tree.links) - 1, childclass

    def _element(self, one: Entry, around: str, link: int, pose: Pose, childclass: Any) -> None:
        """Read an element in a body or in its frames."""
        if one.tag in _MAKERS:
            raise ValueError(f"{one.where} is not supported: write its bodies, or save the file with MuJoCo")
        if one.tag not in _IN_BODIES:
            raise one.unknown(_IN_BODIES)
        if one.tag in _OF_BODIES and link == 0:
            raise ValueError(f"{one.where} is unknown here: the world does not move. Put it in a body")
        if one.tag in ("camera", "light", "geom", "site"):
            self._once(one, one.tag)
        if one.tag in ("camera", "light"):
            return
        classless = one.tag == "inertial"
        given = one if classless else self.settings.entry(one.element, around, childclass)
        act: Callable[..., None] = getattr(self, f"_{one.tag}")
        act(given, link, pose)

    def _inertial(self, entry: Entry, link: int, pose: Pose) -> None:
        at, full = self.settings.pose(entry), entry.numbers("fullinertia", 6)
        for key in ("mass", "pos"):
            entry.needed(key)
        for key in ("diaginertia", *ORIENTATIONS) if full is not None else ():
            if entry.text(key) is not None:
                raise ValueError(f"{entry.where} has fullinertia and {key}: give one of them")
        mass, tensor = entry.number("mass"), entry.numbers("diaginertia", 3)
        if full is not None:
            xx, yy, zz, xy, xz, yz = full
            tensor = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
        if tensor is None:
            raise ValueError(f"{entry.where} has no diaginertia and no fullinertia")
        entry.finish()
        try:
            self._stated[link] = Inertia(mass, tensor).moved(*(pose @ at))
        except ValueError as error:
            raise ValueError(f"{entry.where}: {error}") from error

    def _joint(self, entry: Entry, link: int, pose: Pose) -> None:
        number = f" {count + 1}" if (count := len(self._specs[link])) else ""
        made = unused(f"{self.tree.links[link].name} joint{number}", self._of_joints)
        spec = mjcf_joints.read(entry, self.settings, made)
        if spec.name in self._joints:
            raise ValueError(f"{entry.where}: there are two joints with the name {spec.name!r}")
        if spec.kind == "free" and self.tree.links[link].parent != 0:
            raise ValueError(f"{entry.where} is free, so its body must be in the world, not in another body")
        self._joints.add(spec.name)
        self._specs[link].append(spec.moved(pose))

    _freejoint = _joint

    def _geom(self, entry: Entry, link: int, pose: Pose) -> None:
        geom = mjcf_geoms.read(entry, self.settings, self.meshes)
        self._geoms[link].append((geom, pose))
        if geom.surface is not None:
            self.tree.links[link].surfaces.append(geom.surface.moved(*pose))

    def _site(self, entry: Entry, link: int, pose: Pose) -> None:
        kind = entry.choice("type", mjcf_geoms.TYPES, "sphere")
        at, _ = mjcf_geoms.placed(entry, self.settings, kind)
        name = entry.text("name")
        entry.finish(silent("group material mesh rgba user"))
        if name:
            self.sites[name] = self.tree.links[link].name, pose @ at

    def _finish(self, link: TreeLink, i: int) -> None:
        """The joint and the inertia of a link, when all its elements are read."""
        link.plan, ways = mjcf_joints.plan(self._specs[i], link, self._of_joints)
        if len(ways) > 1:
            names = ", ".join(
                f"{way.spec.name!r}{' as ' if way.coordinate else ''}{way.coordinate}" for way in ways
            )
            self.notes.add("several joints of a body are one", f"{link.plan.name!r}: {names}")  # type: ignore[union-attr]
        self.ways |= {way.spec.name: way for way in ways}
        self._moves.append(link.plan is not None or (link.parent is not None and self._moves[link.parent]))
        self._check_geoms(i)
        stated, how = self._stated[i], self.settings.from_geoms
        solids = [(geom.solid, pose) for geom, pose in self._geoms[i] if geom.solid is not None]
        if i == 0:  # the world has no mass
            return
        if stated is not None and (how != "true" or not solids):
            link.solids = [stated]
        elif how != "false":
            link.solids = [solid().moved(*pose) for solid, pose in solids]
        self._bound(link, i)

    def _check_geoms(self, i: int) -> None:
        """Refuse the geoms of a link that cannot be in it."""
        inferred = i > 0 and (self._stated[i] is None or self.settings.from_geoms == "true")
        for geom, _ in self._geoms[i]:
            if geom.kind == "plane" and self._moves[i]:
                raise ValueError(f"{geom.where} is a plane, and its body moves: planes do not move")
            if geom.negative and inferred:
                raise ValueError(f"{geom.where} has a negative mass or density")

    def _bound(self, link: TreeLink, i: int) -> None:
        """Apply the least mass and moments of inertia, also to a link that has none of its own.

        As in MuJoCo, such a mass is not at the origin of the link: the ``pos`` of its body counts twice.
        """
        mass, moment = self.settings.least
        if link.solids and (mass > 0 or moment > 0):
            found = total(*link.solids)
            moments, axes = np.linalg.eigh(found.tensor)
            tensor = axes @ np.diag(np.maximum(moments, moment)) @ axes.T
            link.solids = [Inertia(max(found.mass, mass), tensor, found.center)]
        elif not link.solids:
            link.points = [(mass, self._at[i])] if mass > 0 else []
            link.tensors = [moment * EYE] if moment > 0 else []
