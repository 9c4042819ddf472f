"""A tree of links as a model: what the readers of URDF and MJCF have in common.

A link without a joint is one with its parent: their masses are joined, and it stays as a frame with a name.
So massless links cost nothing, and a model has no more unknowns than it needs.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genalpha.errors import warn
from genalpha.multibody.bodies import AnyBody, Body
from genalpha.multibody.couplings import Mimic
from genalpha.multibody.formats import meshes
from genalpha.multibody.formats.markup import Notes
from genalpha.multibody.formats.meshes import Surface
from genalpha.multibody.inertia import Inertia, total
from genalpha.multibody.joints import Joint
from genalpha.multibody.limits import TURN, Limit
from genalpha.multibody.markers import Marker
from genalpha.multibody.model import Model
from genalpha.multibody.vectors import EYE
from genalpha.view import shapes

FREE = "free"  # in place of a class of joints
_FOLLOWED = (
    "angles that are followed must stay within ±3 rad, and no limits keep them there: beyond, runs fail"
)
_DEEP = 1e-3  # where the damping of a limit counts, as a part of the range


class Pose(NamedTuple):
    """A position (3,) and axes (3, 3)."""

    x: np.ndarray
    R: np.ndarray

    def __matmul__(self, other: Pose) -> Pose:
        """A pose in the axes of this one."""
        return Pose(self.x + self.R @ other.x, self.R @ other.R)


ORIGIN = Pose(np.zeros(3), EYE)


class Plan(NamedTuple):
    """A joint of a link with its parent: its class or FREE, and its frames in the axes of the link.

    Both are where they are in the reference position: ``a`` on the parent, ``b`` on the link.
    """

    name: str
    cls: Any
    a: Pose
    b: Pose


class Span(NamedTuple):
    """The range of a joint coordinate, and where the coordinate is in the file.

    The springs at its ends have a time constant and a damping ratio. ``rotor`` is an inertia at the joint.
    """

    lower: float
    upper: float
    start: float = 0.0
    time: float = 0.02
    ratio: float = 1.0
    rotor: float = 0.0


@dataclass
class TreeLink:
    """A body of a file. ``pose`` is relative to ``parent``, the number of a link before it, or to space.

    In its axes: ``solids`` are inertias, ``points`` masses with a place, ``tensors`` (3, 3) inertias without
    a mass. ``surfaces`` are drawn.
    """

    name: str
    parent: int | None
    pose: Pose
    where: str
    plan: Plan | None = None
    solids: list[Inertia] = field(default_factory=list)
    points: list[tuple[float, np.ndarray]] = field(default_factory=list)
    tensors: list[np.ndarray] = field(default_factory=list)
    surfaces: list[Surface] = field(default_factory=list)


def unused(name: str, taken: Container[str]) -> str:
    """A name, with strokes if others have it."""
    while name in taken:
        name += "'"
    return name


class Tree:
    """Links, and the model that they make. ``limits`` says whether joints keep to their ranges."""

    def __init__(self, path: Path, notes: Notes, limits: str = "stiff") -> None:
        if limits not in ("stiff", "ignore"):
            raise ValueError(f"limits must be 'stiff' or 'ignore', got {limits!r}")
        self.path, self.notes, self.limits = path, notes, limits
        self.links: list[TreeLink] = []
        self.poses: dict[str, Pose] = {}  # in space, by the name of a link
        self.carriers: dict[str, AnyBody] = {}
        self.joints: dict[str, Joint] = {}  # with the parent, by the name of a link
        self.ranges: dict[tuple[str, str], tuple[float, float]] = {}  # of limits, by link and coordinate

    def free_name(self, name: str, kind: str, taken: Any) -> str:
        """A name that nothing else has: bodies, joints and forces of a model share them."""
        if name not in taken:
            return name
        found = unused(f"{name} {kind}", taken)
        self.notes.add("renamed, since names must differ", f"the {kind} {name!r} is {found!r}")
        return found

    def on(self, link: str, pose: Pose = ORIGIN) -> Marker:
        """A frame on the body that carries a link, at a pose in the axes of the link."""
        at = self.poses[link] @ pose
        return self.carriers[link].frame_in_space(at.x, at.R)

    def model(self, gravity: Any) -> Model:
        """The model of bodies and joints."""
        model = Model(gravity)
        groups = self._place(model)
        for link in self.links:
            if link.plan is None:
                continue
            members = groups[link.name]
            name = self.free_name(link.name, "body", model)
            body = model.add(Body(name, self._inertia(link, members), *self.poses[link.name]))
            for one in members:
                self.carriers[one.name] = body
            body.shape = self._shape(members, body)
        model.ground.shape = self._shape(groups.get("", []), model.ground)
        for link in self.links:
            if link.plan is None:
                name = self.free_name(link.name, "frame", model)
                model.frames[name] = self.on(link.name)
            elif link.plan.cls is not FREE:
                self.joints[link.name] = self._joint(model, link, link.plan)
        return model

    def _place(self, model: Model) -> dict[str, list[TreeLink]]:
        """Poses of all links, and the links that move as one, by the name of the first; '' is the ground."""
        roots: dict[str, str] = {}
        groups: dict[str, list[TreeLink]] = {}
        for link in self.links:
            above = None if link.parent is None else self.links[link.parent]
            self.poses[link.name] = link.pose if above is None else self.poses[above.name] @ link.pose
            root = "" if above is None else roots[above.name]
            roots[link.name] = root = root if link.plan is None else link.name
            groups.setdefault(root, []).append(link)
            self.carriers[link.name] = model.ground
        return groups

    def _inertia(self, link: TreeLink, members: list[TreeLink]) -> Inertia:
        """Mass and inertia of a link and of all that are fixed to it, in its axes."""
        here, solids, points, more = self.poses[link.name], [], [], np.zeros((3, 3))
        for one in members:
            there = self.poses[one.name]
            x, R = here.R.T @ (there.x - here.x), here.R.T @ there.R
            solids += [solid.moved(x, R) for solid in one.solids]
            points += [(mass, x + R @ at) for mass, at in one.points]
            more = sum((R @ tensor @ R.T for tensor in one.tensors), more)
        if not solids and not (points and more.any()):
            what = "no mass" if not points else "a mass without an inertia"
            raise ValueError(
                f"{link.where} moves and has {what}: give it an inertia, or fix it to a body that has one"
            )
        try:
            if not solids:
                solids, points, more = [Inertia(points[0][0], more, points[0][1])], points[1:], 0 * more
            found = total(*solids) if len(solids) > 1 else solids[0]
            for mass, at in points:
                found = found.plus(mass, at)
            return Inertia(found.mass, found.tensor + more, found.center)
        except ValueError as error:
            raise ValueError(f"{link.where}: {error}") from error

    def _shape(self, members: list[TreeLink], body: AnyBody) -> shapes.Shape | None:
        """All surfaces of links as one, in the axes of their body at its centre of mass."""
        back = Pose(-body.R.T @ body.x, body.R.T)
        found = [surface.moved(*(back @ self.poses[one.name])) for one in members for surface in one.surfaces]
        return shapes.Mesh(*meshes.joined(found)) if found else None

    def _joint(self, model: Model, link: TreeLink, plan: Plan) -> Joint:
        """The joint of a link with its parent."""
        at = self.poses[link.name]
        above = model.ground if link.parent is None else self.carriers[self.links[link.parent].name]
        first, second = at @ plan.a, at @ plan.b
        a, b = above.frame_in_space(*first), self.carriers[link.name].frame_in_space(*second)
        return model.add(plan.cls(self.free_name(plan.name, "joint", model), a, b))

    def limit(self, model: Model, label: str, link: str, coordinate: str, span: Span) -> None:
        """Add the springs at the ends of the range of a joint, whose coordinate is '' if it has none.

        With the inertia I that the joint carries, the stiffness is I ω² with ω = 1/(time·ratio). At a depth
        of one thousandth of the range, the damping is 2·ratio·I·ω.
        """
        if self.limits == "ignore":
            return
        said = f"{label!r} from {span.lower:.6g} to {span.upper:.6g}"
        joint, size = self.joints.get(link), span.upper - span.lower
        if joint is None or not coordinate:
            self.notes.add("limits of joints without a coordinate are not applied", said)
            return
        if joint.coordinate(coordinate).turns and size >= TURN:
            self.notes.add("limits of one turn or more are not applied", said)
            return
        if not span.lower <= span.start <= span.upper:
            self.notes.add("joints start outside of their limits", f"{said} at {span.start:.6g}")
        omega, inertia = 1 / (span.time * span.ratio), self._carried(link, joint, coordinate) + span.rotor
        spring = inertia * omega**2, 2 * span.ratio / (omega * _DEEP * size)
        name = self.free_name(f"{label} limit", "force", model)
        model.add(Limit(name, joint, span.lower, span.upper, *spring, coordinate=coordinate))
        self.ranges[link, coordinate] = span.lower, span.upper

    def keeps(self, joint: Joint, link: str, coordinate: str, middle: float) -> bool:
        """Whether limits keep an angle within half a turn of a value. A displacement needs none."""
        way = joint.coordinate(coordinate)
        if not way.turns:
            return True
        lower, upper = self.ranges.get((link, way.name), (-np.inf, np.inf))
        return middle - np.pi < lower and upper < middle + np.pi

    def follow(self, made: Mimic, second: tuple[Joint, str], link: str) -> None:
        """Note an angle that is followed and may leave the half turns in which it is counted."""
        if made.within_a_turn and not self.keeps(second[0], link, second[1], 0.0):
            self.notes.add(_FOLLOWED, f"{made.name!r}")

    def _carried(self, link: str, joint: Joint, coordinate: str) -> float:
        """The inertia that a joint carries about or along its axis, with all other joints locked."""
        moments = self._moments[link]
        if not joint.coordinate(coordinate).turns:
            return float(moments[3, 3])
        a, b = (marker.state for marker in joint.markers[:2])
        x, axis = b.x, joint.coordinate(coordinate).axis(a, b)
        back = np.vstack([np.eye(3), -x]).T  # [1, −x]
        about = back @ moments @ back.T
        return float(np.trace(about) - axis @ about @ axis)

    @functools.cached_property
    def _moments(self) -> dict[str, np.ndarray]:
        """∫ (x, 1) (x, 1)ᵀ dm, (4, 4), of every link and all that it carries, where the links are."""
        found = {link.name: np.zeros((4, 4)) for link in self.links}
        for link in self.links[::-1]:
            body = self.carriers[link.name]
            if link.plan is not None and isinstance(body, Body):
                tensor, at = body.R @ body.inertia.tensor @ body.R.T, np.append(body.x, 1.0)
                found[link.name] += body.mass * np.outer(at, at)
                found[link.name][:3, :3] += 0.5 * np.trace(tensor) * EYE - tensor
            if link.parent is not None:
                found[self.links[link.parent].name] += found[link.name]
        return found

    def done(self, model: Model) -> Model:
        """The model with its notes, and a warning that sums them up."""
        model.notes = self.notes.listed()
        if self.notes.found:
            warn(f"{self.path.name}: {self.notes.summary()}. model.notes lists them all")
        return model


class MeshFiles:
    """The meshes that a file names. ``how`` says whether they are read; without them there is less to see."""

    def __init__(self, file: Path, folders: Any, how: str) -> None:
        if how not in ("read", "ignore"):
            raise ValueError(f"meshes must be 'read' or 'ignore', got {how!r}")
        one = isinstance(folders, str | os.PathLike)
        try:
            self.folders = [Path(folder).expanduser() for folder in ([folders] if one else folders)]
        except TypeError as error:
            raise TypeError(f"folders must be a folder or a list of folders, got {folders!r}") from error
        self.file, self.how = file, how

    def surface(self, name: str, where: str, notes: Notes) -> Surface | None:
        """The surface in a mesh file, or a note."""
        if self.how == "ignore":
            notes.add("meshes are not read", f"{where}: {name}")
            return None
        path = self._found(name, where)
        if path.suffix.lower() not in meshes.FORMATS:
            notes.add(f"meshes are read from {' and '.join(meshes.FORMATS)} only", f"{where}: {path.name}")
            return None
        return meshes.read(path)

    def _found(self, name: str, where: str) -> Path:
        """The file of a mesh: ``package://`` and relative names are looked up in folders."""
        plain = name
        for prefix in ("package://", "model://", "file://"):
            plain = plain.removeprefix(prefix)
        more = "pass folders=[...], or meshes='ignore' to leave all meshes out"
        if "://" in plain:
            raise ValueError(f"{where}: the mesh {name!r} is not on this machine: {more}")
        tails = [Path(plain)]
        if name.startswith(("package://", "model://")) and len(Path(plain).parts) > 1:
            tails.append(Path(*Path(plain).parts[1:]))  # without the name of the package
        near = [self.file.parent, *self.folders]
        if len(tails) > 1:
            near += list(self.file.resolve().parents)[1:4]  # robots of a package may be in urdf/
        for folder in near:
            for tail in tails:
                if (folder / tail).is_file():
                    return folder / tail
        tried = ", ".join(str(folder) for folder in near[: 1 + len(self.folders)])
        raise ValueError(f"{where}: there is no mesh {name!r}. It was looked for in {tried}: {more}")
