"""Joints. Frame a is on the first body, b on the second; z is the axis of a joint.

Each row of a constraint is a length, or the sine of an angle that is zero, so its multiplier is a force or a
torque. Where all three displacements are zero, their rows are in space-fixed axes, which takes the fewest
operations. All other rows are in the axes of frame a.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
import numpy as np

from genalpha.multibody import friction as laws
from genalpha.multibody.connectors import IDENTITIES, Connector, between
from genalpha.multibody.frames import GROUND, PLANAR, POINT, FrameState, along, positive
from genalpha.multibody.friction import Friction, Rubbing
from genalpha.multibody.markers import Marker

SHIFT = ("x", "y", "z")
TILT, TURN = ("about x", "about y"), "about z"


def apart(a: FrameState, b: FrameState) -> Any:
    """The displacement (3,) from a to b in space-fixed axes."""
    return b.x - a.x


def gap(a: FrameState, b: FrameState) -> Any:
    """The position (3,) of b in the axes of a."""
    return a.seen(b.x - a.x)


def tilt(a: FrameState, b: FrameState) -> Any:
    """The sines (2,) of the angles about x and y of a by which the z axes differ."""
    seen = a.seen(b.axis)
    return jnp.stack([-seen[1], seen[0]])


def turn(a: FrameState, b: FrameState) -> tuple[Any, Any]:
    """Cosine and sine of the angle of b about z of a."""
    seen = a.seen(b.R[:, 0])
    return seen[0], seen[1]


class Coordinate(NamedTuple):
    """How a joint has moved: a function of its two frames. Angles are from −π to π.

    ``turn`` is the cosine and the sine of an angle. It is about z of a, or, ``about_b``, about z of b.
    """

    name: str
    value: Callable[..., Any]
    turns: bool = False
    turn: Callable[..., tuple[Any, Any]] = turn
    about_b: bool = False

    def __call__(self, a: FrameState, b: FrameState) -> Any:
        return self.value(a, b)

    def __reduce__(self) -> Any:
        """Those of this module are written down by name, since their functions have none."""
        names = {id(one): name for name, one in globals().items() if isinstance(one, Coordinate)}
        return names.get(id(self)) or (Coordinate, tuple(self))

    def gap(self, a: FrameState, b: FrameState, wanted: Any) -> Any:
        """The difference to a wanted value, or its sine: smooth over any number of turns."""
        if not self.turns:
            return self.value(a, b) - wanted
        cos, sin = self.turn(a, b)
        return sin * jnp.cos(wanted) - cos * jnp.sin(wanted)

    def near(self, a: FrameState, b: FrameState, wanted: Any) -> Any:
        """The cosine of the difference of angles, by NumPy."""
        cos, sin = self.turn(a, b)
        return cos * np.cos(wanted) + sin * np.sin(wanted)

    def off(self, a: FrameState, b: FrameState, wanted: Any, xp: Any = jnp) -> Any:
        """The difference to a wanted value, by JAX or NumPy; that of angles is from −π to π."""
        if not self.turns:
            return self.value(a, b) - wanted
        (cos, sin), c, s = self.turn(a, b), xp.cos(wanted), xp.sin(wanted)
        return xp.arctan2(sin * c - cos * s, cos * c + sin * s)

    def axis(self, a: FrameState, b: FrameState) -> Any:
        """The axis of an angle, in space-fixed axes."""
        return b.axis if self.about_b else a.axis


def _first_turn(a: FrameState, b: FrameState) -> tuple[Any, Any]:
    """Of the cross of a cardan joint about z of a."""
    seen = a.seen(b.axis)
    return seen[1], -seen[0]


def _second_turn(a: FrameState, b: FrameState) -> tuple[Any, Any]:
    """Of b about its z, from the cross of a cardan joint."""
    seen = b.seen(a.axis)
    return -seen[1], -seen[0]


def _angle_of(turn: Callable[..., tuple[Any, Any]]) -> Callable[..., Any]:
    def value(a: FrameState, b: FrameState) -> Any:
        cos, sin = turn(a, b)
        return jnp.arctan2(sin, cos)

    return value


ANGLE = Coordinate("angle", _angle_of(turn), turns=True)
FIRST = Coordinate("first", _angle_of(_first_turn), True, _first_turn)
SECOND = Coordinate("second", _angle_of(_second_turn), True, _second_turn, about_b=True)
SLIDE = Coordinate("displacement", lambda a, b: gap(a, b)[2])
SLIDE_X = Coordinate("displacement", lambda a, b: gap(a, b)[0])
ALONG_X, ALONG_Y = Coordinate("x", SLIDE_X.value), Coordinate("y", lambda a, b: gap(a, b)[1])
IDENTITIES |= {
    way: f"{name} of {__name__}" for name, way in list(vars().items()) if isinstance(way, Coordinate)
}


class Joint(Connector):
    """A joint between two frames, on the bodies ``a`` and ``b``.

    With ``at`` and ``axis``, the joint is at a point in space, with its axis z along a direction in space,
    where the bodies are in the model. Otherwise ``a`` and ``b`` are frames (:meth:`Body.frame`), which the
    joint brings together; :meth:`Model.assemble` moves bodies so that they meet. ``friction`` is for joints
    that slide or turn.
    """

    coordinates: ClassVar[tuple[Coordinate, ...]] = ()
    positive = tuple(name for name in laws.NUMBERS.values() if name != "friction")
    not_negative = ("friction",)
    planar: ClassVar[type[Joint] | None] = None  # what replaces it between bodies in the plane

    def __new__(cls, *given: Any, **options: Any) -> Any:
        """Between bodies in the plane, or one of them and the ground, the joint of the plane."""
        ends = {_kind(x) for x in (*given[1:3], *(options[x] for x in "ab" if x in options))}
        if cls.planar is not None and PLANAR in ends and ends <= {PLANAR, GROUND}:
            return super().__new__(cls.planar if "planar" in cls.__dict__ else _in_the_plane(cls))
        return super().__new__(cls)

    def __init__(
        self, name: str, a: Any, b: Any, at: Any = None, axis: Any = None, *, friction: Friction | None = None
    ) -> None:
        numbers: dict[str, Any] = {}
        if friction is not None:
            label = f"the {type(self).__name__} {name!r}"
            if self.rubbing is None:
                raise ValueError(f"{label} has no surfaces that slide: it cannot have friction")
            numbers = self.rubbing.numbers(friction, label)
        super().__init__(name, self._frames(name, a, b, at, axis), numbers)

    def _frames(self, name: str, a: Any, b: Any, at: Any, axis: Any) -> tuple[Marker, Marker]:
        return between(name, a, b, at, axis)

    def sides(self, t: float, *frames: FrameState) -> list[Any]:
        """Cosines of the angles whose sines are rows. A negative one: the joint is half a turn off."""
        a, b = frames[:2]
        found = [a.axis @ b.axis] if TILT[0] in self.rows else []
        return [*found, turn(a, b)[0]] if TURN in self.rows else found

    def coordinate(self, name: str = "") -> Coordinate:
        """One of its coordinates, the first by default."""
        if not self.coordinates:
            raise ValueError(f"the {type(self).__name__} {self.name!r} has no coordinate")
        for one in self.coordinates:
            if one.name == (name or self.coordinates[0].name):
                return one
        has = ", ".join(one.name for one in self.coordinates)
        raise ValueError(f"the joint {self.name!r} has no coordinate {name!r}: it has {has}")


@functools.cache
def _in_the_plane(cls: Any) -> Any:
    """What replaces a subclass of the user's own between bodies in the plane."""
    own = {"__module__": cls.__module__, "__reduce__": _as_one_in_the_plane}
    return type(cls)(f"Planar{cls.__name__}", (cls, cls.planar), own)


def _as_one_in_the_plane(joint: Any) -> Any:
    """How pickle and copy make such a joint: its class has no name in a module."""
    return _empty_in_the_plane, (type(joint).__bases__[0],), joint.__dict__


def _empty_in_the_plane(cls: Any) -> Any:
    return object.__new__(_in_the_plane(cls))


def _kind(thing: Any) -> Any:
    return getattr(thing.body if isinstance(thing, Marker) else thing, "kind", None)


class Spherical(Joint):
    """A ball joint: the origins of the frames coincide."""

    rows = SHIFT
    rubbing = Rubbing(laws.ball, ("radius",), ("radius",))

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return apart(a, b)


class Revolute(Joint):
    """A hinge: the bodies turn about the common z axis. ``angle`` is that of b relative to a."""

    rows: ClassVar[tuple[str, ...]] = (*SHIFT, *TILT)
    coordinates = (ANGLE,)
    rubbing = Rubbing(laws.hinge, ("radius", "face", "length"), ("radius", "face"))

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return jnp.concatenate([apart(a, b), tilt(a, b)])


class Prismatic(Joint):
    """A slider along the common z axis, without rotation."""

    rows: ClassVar[tuple[str, ...]] = ("x", "y", *TILT, TURN)
    coordinates = (SLIDE,)
    rubbing = Rubbing(laws.guide, ("radius", "length"))

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return jnp.concatenate([gap(a, b)[:2], tilt(a, b), turn(a, b)[1][None]])


class Cylindrical(Joint):
    """A slider along the common z axis, with rotation about it."""

    rows = ("x", "y", *TILT)
    coordinates = (SLIDE, ANGLE)
    rubbing = Rubbing(laws.sleeve, ("radius", "length"))

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return jnp.concatenate([gap(a, b)[:2], tilt(a, b)])


class Universal(Joint):
    """A cardan joint: z of frame a and z of frame b are perpendicular, and their origins coincide.

    ``axis`` and ``second`` are the directions of the two in space, by default x and y, or any that is
    perpendicular to ``axis``. Its coordinates are the angles "first" about z of a, and "second" about z of b.
    They are zero where z of b is y of a, and y of b is −z of a.
    """

    rows = (*SHIFT, "between the axes")
    coordinates = (FIRST, SECOND)

    def __init__(
        self, name: str, a: Any, b: Any, at: Any = None, axis: Any = None, second: Any = None
    ) -> None:
        if at is None:
            if axis is not None or second is not None:
                raise ValueError(f"{name!r} has axes and no at: pass the point in space, or frames with axes")
            Connector.__init__(self, name, between(name, a, b))
            return
        axis = (1, 0, 0) if axis is None else axis
        ends, z = between(name, a, b, at, axis), along(axis, f"axis of {name!r}")[:, 2]
        if second is None:
            second = (0, 1, 0) if abs(z[1]) < 1e-6 else along(z, "axis")[:, 0]
        y = along(second, f"second of {name!r}")[:, 2]
        if abs(y @ z) > 1e-6:
            raise ValueError(f"axis and second of {name!r} must be perpendicular")
        y = y - (y @ z) * z
        y, x = y / np.linalg.norm(y), np.cross(y, z) / np.linalg.norm(y)
        axes = (np.stack(columns, axis=1) for columns in ((x, y, z), (x, -z, y)))  # both angles are zero
        frames = (end.body.frame_in_space(at, R) for end, R in zip(ends, axes, strict=True))
        Connector.__init__(self, name, tuple(frames))

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return jnp.concatenate([apart(a, b), (a.axis @ b.axis)[None]])


class Planar(Joint):
    """The body of b slides and turns in the plane of x and y of frame a."""

    rows = ("z", *TILT)
    coordinates = (ALONG_X, ALONG_Y, ANGLE)
    rubbing = Rubbing(laws.table, ("radius",))

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return jnp.concatenate([gap(a, b)[2:], tilt(a, b)])


class Weld(Joint):
    """Two bodies that are one."""

    rows: ClassVar[tuple[str, ...]] = (*SHIFT, *TILT, TURN)

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return jnp.concatenate([apart(a, b), tilt(a, b), turn(a, b)[1][None]])


class PointOnLine(Joint):
    """The origin of b is on the z axis of a."""

    rows = ("x", "y")
    coordinates = (SLIDE,)
    rubbing = Rubbing(laws.wire)

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return gap(a, b)[:2]


class PointOnPlane(Joint):
    """The origin of b is in the plane of x and y of a."""

    rows = ("z",)
    coordinates = (ALONG_X, ALONG_Y)
    rubbing = Rubbing(laws.table)

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return gap(a, b)[2:]


class Distance(Joint):
    """A massless rod with a ball joint at each end. Without a ``length``, that of the model."""

    rows = ("length",)
    positive = ("length",)

    def __init__(self, name: str, a: Any, b: Any, length: Any = None) -> None:
        markers = between(name, a, b)
        now = float(np.linalg.norm(markers[1].pose[0] - markers[0].pose[0]))
        found = positive(now if length is None else length, f"length of {name!r}")
        Connector.__init__(self, name, markers, {"length": found})

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState, length: Any) -> Any:
        d = b.x - a.x
        return ((d @ d - length**2) / (2 * length))[None]


def turns_a_point(joint: Connector) -> bool:
    """Whether a joint needs the axes of a point mass, which has none. Rolling bodies and blades do."""
    turning = any(row in joint.rows for row in (*TILT, TURN, "between the axes", "screw"))
    turning |= "slip y" in joint.speed_rows
    return turning and any(marker.body.kind == POINT for marker in joint.markers)
