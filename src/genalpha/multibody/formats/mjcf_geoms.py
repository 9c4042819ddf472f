"""Geoms of MJCF: their inertias and surfaces, and the meshes of its assets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genalpha.multibody import inertia
from genalpha.multibody.formats import meshes
from genalpha.multibody.formats.markup import Entry
from genalpha.multibody.formats.meshes import Surface
from genalpha.multibody.formats.mjcf_settings import Settings, silent, upright
from genalpha.multibody.formats.trees import MeshFiles, Pose
from genalpha.multibody.inertia import Inertia

_SIZES = {"sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3, "box": 3}
TYPES = (*_SIZES, "plane", "mesh", "hfield", "sdf")
_LOOKS = silent("castshadow fitscale material rgba user name")
_CONTACT = silent("adhesion condim friction gap margin priority solimp solmix solref surfacevel")
_MEDIUM = silent("fluidcoef fluidshape")
_LEGACY = (
    "inertias of meshes are exact, and MuJoCo's default ('legacy') is not for these: inertia=\"exact\" makes "
    "both the same"
)
_WITHOUT = "or pass meshes='ignore' if no inertia needs it"
MOST_DRAWN = 2  # the largest group that MuJoCo draws by default


class Geom(NamedTuple):
    """What a geom gives to its body. ``solid`` makes its inertia, which is not always needed.

    ``negative`` says whether its mass counts and is below zero.
    """

    where: str
    kind: str
    solid: Callable[[], Inertia] | None = None
    surface: Surface | None = None
    negative: bool = False


class Meshes:
    """The meshes of a file by name. They are read when they are first needed."""

    def __init__(self, settings: Settings, files: MeshFiles) -> None:
        self.settings, self.files = settings, files
        self.entries: dict[str, Entry] = {}
        self._read: dict[str, Surface | None] = {}

    def add(self, entry: Entry) -> None:
        file = str(entry.text("file", ""))
        name = str(entry.text("name", Path(file).stem))
        if not name:
            raise ValueError(f"{entry.where} has no name and no file")
        if name in self.entries:
            raise ValueError(f"{entry.where}: there are two meshes with the name {name!r}")
        self.entries[name] = entry

    def __call__(self, name: str | None, where: str) -> Surface | None:
        if name not in self.entries:
            known = ", ".join(self.entries) or "none"
            raise ValueError(f"{where}.mesh is {name!r}: meshes of the assets are {known}")
        if name not in self._read:
            self._read[name] = self._surface(self.entries[name])
        return self._read[name]

    def drawn(self, name: str | None, where: str) -> Surface | None:
        """The surface of a mesh to look at, if meshes are drawn."""
        entry = self.entries.get(str(name))
        if entry is None or self.files.how == "read" or entry.text("file") is not None:
            return self(name, where)
        entry.notes.add("meshes are not drawn", entry.where)
        return None

    def solid(self, name: str | None, where: str) -> Surface | None:
        """The surface of a mesh whose inertia is needed. A note says where that of MuJoCo is another."""
        surface = self(name, where)
        entry = self.entries[str(name)]
        how = entry.text("inertia", "legacy")
        if how in ("convex", "shell"):
            raise entry.wrong(f"is {how!r}, which is not supported: state the inertia of the body", "inertia")
        if how == "legacy" and surface is not None and _some_behind(surface):
            entry.notes.add(_LEGACY, entry.where)
        return surface

    def _surface(self, entry: Entry) -> Surface | None:
        file, scale = entry.text("file"), entry.numbers("scale", 3, np.ones(3))
        for key in ("builtin", "params"):
            if entry.text(key) is not None:
                raise entry.wrong(f"is not supported: write vertices and faces, {_WITHOUT}", key)
        points, corners = _threes(entry, "vertex"), _threes(entry, "face")
        at = entry.numbers("refpos", 3, np.zeros(3))
        R = self.settings._axes("quat", entry.numbers("refquat", 4, np.array([1.0, 0, 0, 0])))
        entry.choice("inertia", ("legacy", "exact", "convex", "shell"), "legacy")
        looks = "content_type material maxhullvert name normal smoothnormal texcoord"
        entry.finish(silent(looks))
        if file is not None:
            name = Path(file).name if self.settings.strip else file
            inside = str(Path(self.settings.folder) / name)
            found = self.files.surface(inside, entry.where, entry.notes)
        elif points is None or corners is None:
            raise ValueError(
                f"{entry.where} has no file, or vertices and faces, which are needed: add them, {_WITHOUT}"
            )
        else:
            found = Surface(points, corners)
            if found.triangles.min() < 0 or found.triangles.max() >= len(found.points):
                raise entry.wrong(f"must be numbers of vertices, from 0 to {len(found.points) - 1}", "face")
        if found is None:
            return None
        triangles = found.triangles if np.prod(scale) > 0 else found.triangles[:, ::-1]
        return Surface(((found.points - at) @ R) * scale, triangles)


def _threes(entry: Entry, key: str) -> np.ndarray | None:
    """The points (V, 3) or the triangles (T, 3) of a mesh."""
    found = entry.numbers(key, (12, 10**9)) if key == "vertex" else entry.integers(key, (3, 10**9))
    if found is None:
        return None
    if len(found) % 3:
        of = "point" if key == "vertex" else "triangle"
        raise entry.wrong(f"must be 3 numbers for each {of}, got {len(found)} numbers", key)
    return np.reshape(found, (-1, 3))


def _some_behind(surface: Surface) -> bool:
    """Whether some triangles are seen from behind from the middle of all.

    MuJoCo's legacy inertia adds the volumes of the tetrahedra from there without their signs. It is exact if
    all signs are the same, as for convex meshes.
    """
    corners = surface.points[surface.triangles]
    areas = np.linalg.norm(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), axis=1)
    if not areas.sum() > 0:
        return False
    corners = corners - areas @ corners.mean(axis=1) / areas.sum()
    volumes = np.einsum("ti,ti->t", corners[:, 0], np.cross(corners[:, 1], corners[:, 2]))
    return bool(np.minimum(volumes, 0.0).sum() < -1e-9 * np.abs(volumes).sum())


def read(entry: Entry, settings: Settings, assets: Meshes) -> Geom:
    """What a geom gives to its body, in the axes around it."""
    kind = entry.choice("type", TYPES, "sphere")
    if kind == "sdf" or entry.true("shellinertia"):
        raise ValueError(
            f"{entry.where}: sdf and shellinertia are not supported: state the inertia of the body"
        )
    mesh = entry.text("mesh")
    if mesh is not None and kind != "mesh":
        raise entry.wrong(f"is given for a {kind}, which is not supported: state its size", "mesh")
    pose, sizes = placed(entry, settings, kind)
    mass, density = entry.numbers("mass", 1), entry.number("density", 1000.0)
    group = entry.integer("group")
    touches = [entry.integer(key, 1) for key in ("contype", "conaffinity")]
    entry.text("hfield")
    entry.finish({**_LOOKS, **_CONTACT, **_MEDIUM})
    if any(touches) and "contact" not in settings.off:
        entry.notes.add("contacts are not read", entry.where)
    if kind == "plane":
        _check_plane(entry)
    if kind in ("plane", "hfield"):
        return Geom(entry.where, kind)
    drawn = None
    if group <= MOST_DRAWN:
        drawn = assets.drawn(mesh, entry.where) if kind == "mesh" else _surface(kind, sizes)
    weight: Any = {"density": density} if mass is None else {"mass": float(mass[0])}

    def solid() -> Inertia:
        try:
            surface = assets.solid(mesh, entry.where) if kind == "mesh" else None
            return _solid(kind, sizes, surface, weight).moved(*pose)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{entry.where}: {error}") from error

    size = next(iter(weight.values())) if settings.groups[0] <= group <= settings.groups[1] else 0.0
    seen = None if drawn is None else drawn.moved(*pose)
    return Geom(entry.where, kind, solid if size > 0 else None, seen, size < 0)


def _check_plane(entry: Entry) -> None:
    """The third size of a plane is how far apart the lines of its grid are."""
    sizes = entry.numbers("size", (1, 3))
    if sizes is None or (len(sizes) == 3 and not sizes[2] > 0):
        raise entry.wrong(
            f"of a plane must be three numbers, the last one positive, got {entry.text('size')!r}", "size"
        )


def placed(entry: Entry, settings: Settings, kind: str) -> tuple[Pose, np.ndarray]:
    """Pose and sizes, also from two ends."""
    pose, sizes = settings.pose(entry), entry.numbers("size", (1, 3), np.zeros(0))
    ends = entry.numbers("fromto", 6)
    if ends is not None:
        if kind not in _SIZES or kind == "sphere":
            raise entry.wrong(
                f"is given for a {kind}: it is for a capsule, cylinder, box or ellipsoid", "fromto"
            )
        if pose.x.any():
            raise ValueError(f"{entry.where} has pos and fromto: give one of them")
        start, end = ends[:3], ends[3:]
        half = np.linalg.norm(end - start) / 2
        if not half > 0 or not len(sizes):
            raise entry.wrong("needs two different ends, and a size", "fromto")
        sizes = np.array([sizes[0], half] if _SIZES[kind] == 2 else [sizes[0], sizes[0], half])
        pose = Pose((start + end) / 2, upright(start - end))
    count = _SIZES.get(kind, 0)
    if entry.tag == "geom" and count and (len(sizes) < count or not (sizes[:count] > 0).all()):
        if entry.text("size") is None:
            raise ValueError(f"{entry.where} has no size: a {kind} needs {count} positive numbers")
        raise entry.wrong(f"of a {kind} must be {count} positive numbers, got {entry.text('size')!r}", "size")
    return pose, sizes[:count]


def _surface(kind: str, sizes: np.ndarray) -> Surface:
    if kind == "box":
        return meshes.box(sizes)
    if kind in ("sphere", "capsule"):
        return meshes.capsule(float(sizes[0]), float(sizes[1]) if kind == "capsule" else 0.0)
    return meshes.cylinder(*sizes.tolist()) if kind == "cylinder" else meshes.ellipsoid(sizes)


def _solid(kind: str, sizes: np.ndarray, surface: Surface | None, weight: Any) -> Inertia:
    if kind == "mesh":
        if surface is None:
            raise ValueError("its mesh cannot be read, so its inertia is not known: state that of the body")
        return inertia.mesh(*surface, **weight)
    if kind == "box":
        return inertia.box(size=2 * sizes, **weight)
    if kind == "sphere":
        return inertia.sphere(radius=sizes[0], **weight)
    if kind == "ellipsoid":
        mass = weight.get("mass", 4 / 3 * np.pi * np.prod(sizes) * weight.get("density", 0.0))
        squares = sizes**2
        return Inertia(mass, mass / 5 * (squares.sum() - squares))
    made = inertia.cylinder if kind == "cylinder" else inertia.capsule
    return made(radius=sizes[0], length=2 * sizes[1], **weight)
