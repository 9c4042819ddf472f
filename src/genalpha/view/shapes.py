"""Shapes of a scene: what is drawn, and how it moves.

Bodies, frames and planes have a pose, ``at``. It is a position, or a pair (position, rotation):

- a position has 2 or 3 numbers; with 2, the third is zero,
- a rotation is a matrix (3, 3), a unit quaternion (w, x, y, z), or an angle about z.

Rods and springs go from the point ``start`` to the point ``end``. Each of these may be

- a function ``f(t, q)`` of one row of a solution; further arguments are passed by name, see :func:`view`,
- an array with a row for each time of the scene, or such a pair,
- a fixed value.

Lengths that are not given follow from the size of the scene.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from genalpha.errors import unknown
from genalpha.view import checks


@dataclass(frozen=True, eq=False, kw_only=True)
class Shape:
    """What all shapes have: a name, which must be unique in a scene, a colour, and a group.

    A colour is a name such as "blue", a text "#rrggbb", or three numbers from 0 to 1. Groups are shown and
    hidden together: "bodies", "joints", "frames", "traces", "forces".
    """

    name: str = ""
    color: Any = None
    group: str = "bodies"
    kind: ClassVar[str] = ""  # the name in the file
    moves: ClassVar[tuple[str, ...]] = ()  # attributes that say where the shape is

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise TypeError(f"name of {type(self).__name__} must be a text, got {self.name!r}")
        if self.group not in checks.GROUPS:
            raise unknown(f"group of {self.label}:", self.group, checks.GROUPS)
        if self.color is not None:
            self._set(color=checks.color(self.color, self.label))
        self._check()

    def _check(self) -> None:
        """Check the sizes and convert them to plain numbers."""

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _positive(self, *names: str) -> None:
        """These lengths are positive, or None if that means that the scene decides."""
        for name in names:
            if getattr(self, name) is not None:
                self._set(**{name: checks.positive(getattr(self, name), f"{name} of {self.label}")})

    def _need(self, *names: str) -> None:
        for name in names:
            if getattr(self, name) is None:
                raise TypeError(f"{self.label} has no {name}: pass {name}=, a function of (t, q) or an array")

    @property
    def label(self) -> str:
        """The class and the name, for messages."""
        return f"{type(self).__name__} {self.name!r}" if self.name else type(self).__name__

    def sizes(self, scene: float) -> dict[str, Any]:
        """Numbers for the page, by name. ``scene`` is the size of the scene."""
        return {}

    def corners(self) -> np.ndarray:
        """Points (N, 3) relative to the pose, which turn with it. ``margin`` is all around them."""
        return np.zeros((1, 3))

    def margin(self) -> float:
        """See ``corners``."""
        return 0.0


def _around(*half: float) -> np.ndarray:
    """The corners (8, 3) of a box with these half lengths."""
    signs = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1], indexing="ij"), -1).reshape(-1, 3)
    return signs * np.array(half)


def _rings(axis: str, length: float, radius: float) -> np.ndarray:
    """Points (48, 3) on two circles around an axis, at the ends of a length."""
    angle = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    ring = np.stack([np.zeros(24), radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    half = np.array([0.5 * length, 0.0, 0.0])
    return np.roll(np.concatenate([ring - half, ring + half]), checks.AXES[axis], axis=1)


# --- bodies ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Posed(Shape):
    """A shape with a pose ``at``. Without one it stays at the origin."""

    at: Any = None
    moves: ClassVar[tuple[str, ...]] = ("at",)


@dataclass(frozen=True, eq=False)
class Box(Posed):
    """A box with three edge lengths, centred at its pose.

    >>> Box((1.0, 0.1, 0.1), at=lambda t, q: (q[:2], q[2]), name="crank").size
    (1.0, 0.1, 0.1)
    """

    size: Any
    kind: ClassVar[str] = "box"

    def _check(self) -> None:
        self._set(size=checks.lengths(self.size, 3, f"size of {self.label}"))

    def sizes(self, scene: float) -> dict[str, Any]:
        return {"size": self.size}

    def corners(self) -> np.ndarray:
        return _around(*(0.5 * x for x in self.size))


@dataclass(frozen=True, eq=False)
class Cylinder(Posed):
    """A cylinder, centred at its pose, along one of its axes."""

    radius: Any
    length: Any
    axis: str = "z"
    kind: ClassVar[str] = "cylinder"

    def _check(self) -> None:
        self._positive("radius", "length")
        self._need("radius", "length")
        checks.axis(self.axis, self.label)

    def sizes(self, scene: float) -> dict[str, Any]:
        return {"radius": self.radius, "length": self.length, "axis": self.axis}

    def corners(self) -> np.ndarray:
        return _rings(self.axis, self.length, self.radius)


@dataclass(frozen=True, eq=False)
class Capsule(Cylinder):
    """A cylinder with half spheres at its ends. ``length`` is without them."""

    kind: ClassVar[str] = "capsule"

    def corners(self) -> np.ndarray:
        return _rings(self.axis, self.length, 0.0)

    def margin(self) -> float:
        return float(self.radius)


@dataclass(frozen=True, eq=False)
class Sphere(Posed):
    """A ball."""

    radius: Any
    kind: ClassVar[str] = "sphere"

    def _check(self) -> None:
        self._positive("radius")
        self._need("radius")

    def sizes(self, scene: float) -> dict[str, Any]:
        return {"radius": self.radius}

    def margin(self) -> float:
        return float(self.radius)


@dataclass(frozen=True, eq=False)
class Mesh(Posed):
    """A surface of triangles: ``vertices`` (V, 3), and ``triangles`` (T, 3) with their indices.

    >>> Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 3]])
    Traceback (most recent call last):
    ValueError: triangles of Mesh must be indices from 0 to 2, got 3: pass indices of its vertices
    """

    vertices: Any
    triangles: Any
    kind: ClassVar[str] = "mesh"

    def _check(self) -> None:
        points = checks.array(self.vertices, f"vertices of {self.label}")
        corners = np.asarray(self.triangles)
        if points.ndim != 2 or points.shape[1] != 3 or len(points) < 3:
            raise ValueError(
                f"vertices of {self.label} have shape {points.shape}: pass an array (V, 3), V ≥ 3"
            )
        if corners.ndim != 2 or corners.shape[1] != 3 or not len(corners) or corners.dtype.kind not in "iu":
            raise ValueError(
                f"triangles of {self.label} have shape {corners.shape} and type {corners.dtype}: "
                "pass integers (T, 3) with T of 1 or more"
            )
        wrong = corners[(corners < 0) | (corners >= len(points))]
        if wrong.size:
            raise ValueError(
                f"triangles of {self.label} must be indices from 0 to {len(points) - 1}, got {wrong[0]}: "
                "pass indices of its vertices"
            )
        self._set(vertices=points, triangles=corners.astype(np.uint32))

    def sizes(self, scene: float) -> dict[str, Any]:
        return {"vertices": self.vertices, "triangles": self.triangles}

    def corners(self) -> np.ndarray:
        low, high = self.vertices.min(0), self.vertices.max(0)
        return 0.5 * (low + high) + _around(*(0.5 * (high - low)))


@dataclass(frozen=True, eq=False)
class Plane(Posed):
    """A thin rectangle with the lengths ``size``, in the x-y plane of its pose."""

    size: Any
    kind: ClassVar[str] = "plane"

    def _check(self) -> None:
        self._set(size=checks.lengths(self.size, 2, f"size of {self.label}"))

    def sizes(self, scene: float) -> dict[str, Any]:
        return {"size": self.size}

    def corners(self) -> np.ndarray:
        return _around(0.5 * self.size[0], 0.5 * self.size[1], 0.0)


@dataclass(frozen=True, eq=False)
class Frame(Posed):
    """Three axes, x red, y green, z blue, with the length ``size``."""

    size: Any = None
    kind: ClassVar[str] = "frame"
    group: str = field(default="frames", kw_only=True)

    def _check(self) -> None:
        self._positive("size")

    def sizes(self, scene: float) -> dict[str, Any]:
        return {"size": self.size or 0.12 * scene}


# --- between points -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class Link(Shape):
    """A shape that goes from the point ``start`` to the point ``end``."""

    start: Any = None
    end: Any = None
    moves: ClassVar[tuple[str, ...]] = ("start", "end")


@dataclass(frozen=True, eq=False)
class Rod(Link):
    """A round rod between two points.

    >>> Rod(start=(0, 0), end=lambda t, q: q[:2], radius=0.02).radius
    0.02
    """

    radius: Any = None
    kind: ClassVar[str] = "rod"

    def _check(self) -> None:
        self._positive("radius")
        self._need("start", "end")

    def sizes(self, scene: float) -> dict[str, Any]:
        return {"radius": self.radius or 0.008 * scene}

    def margin(self) -> float:
        return float(self.radius or 0.0)


@dataclass(frozen=True, eq=False)
class Spring(Link):
    """A helix between two points, with a number of coils and a radius, of wire with the radius ``wire``."""

    radius: Any = None
    coils: int = 8
    wire: Any = None
    kind: ClassVar[str] = "spring"

    def _check(self) -> None:
        self._positive("radius", "wire")
        self._need("start", "end")
        if not isinstance(self.coils, int | np.integer) or not 1 <= self.coils <= 100:
            raise ValueError(f"coils of {self.label} must be 1 to 100, got {self.coils!r}: pass an integer")

    def sizes(self, scene: float) -> dict[str, Any]:
        radius = self.radius or 0.035 * scene
        return {"radius": radius, "coils": int(self.coils), "wire": self.wire or 0.14 * radius}

    def margin(self) -> float:
        return float(self.radius or 0.0)


@dataclass(frozen=True, eq=False)
class Arrow(Shape):
    """A vector at a point, such as a reaction force.

    The arrow is ``scale`` times as long as the vector. Arrows without a scale share one, by which the longest
    of them has a quarter of the size of the scene. ``width`` is the thickness of the shaft.
    """

    at: Any = None
    vector: Any = None
    scale: Any = None
    width: Any = None
    kind: ClassVar[str] = "arrow"
    group: str = field(default="forces", kw_only=True)
    moves: ClassVar[tuple[str, ...]] = ("at", "vector")

    def _check(self) -> None:
        self._positive("scale", "width")
        self._need("at", "vector")

    def sizes(self, scene: float) -> dict[str, Any]:
        return {"scale": self.scale, "width": self.width or 0.012 * scene}


@dataclass(frozen=True, eq=False)
class Trace(Shape):
    """The path of a point, up to the present time or ``whole``, ``width`` pixels wide."""

    point: Any
    whole: bool = False
    width: Any = 2.0
    kind: ClassVar[str] = "trace"
    group: str = field(default="traces", kw_only=True)
    moves: ClassVar[tuple[str, ...]] = ("point",)

    def _check(self) -> None:
        self._positive("width")
        self._need("point", "width")

    def sizes(self, scene: float) -> dict[str, Any]:
        return {"whole": bool(self.whole), "width": self.width}
