"""Couplings of joints: screws, gears, racks, and prescribed motions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from genalpha.multibody.connectors import IDENTITIES, Connector, between, returned
from genalpha.multibody.frames import FrameState, finite, positive
from genalpha.multibody.joints import ANGLE, SLIDE, TILT, Coordinate, Joint, gap, tilt, turn
from genalpha.multibody.markers import Marker
from genalpha.numerics.tracing import is_traced

FULL_TURN = 2 * np.pi
# Rows are sines of angles, over any number of turns. To close a joint from far away, they are the angles.
IDENTITIES |= {ANGLE.gap: f"sine of an angle of {__name__}", ANGLE.off: f"an angle of {__name__}"}


def _angle(a: Marker, b: Marker) -> Any:
    """The angle of b about z of a, where the bodies are in the model. NumPy needs no compilation."""
    cos, sin = turn(a.state, b.state)
    return np.arctan2(sin, cos)


class Screw(Joint):
    """A screw: per turn of b about z of a, it moves by ``pitch`` along z (right-handed if positive)."""

    rows = ("x", "y", *TILT, "screw")
    coordinates = (SLIDE, ANGLE)

    def __init__(self, name: str, a: Any, b: Any, pitch: Any, at: Any = None, axis: Any = None) -> None:
        if finite(pitch, f"pitch of {name!r}") == 0:
            raise ValueError(f"pitch of {name!r} is zero: use a Revolute")
        ends = between(name, a, b, at, axis)
        Connector.__init__(self, name, ends, {"pitch": pitch}, {"difference": ANGLE.gap})

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState, pitch: Any, difference: Any) -> Any:
        d, radius = gap(a, b), pitch / FULL_TURN
        # In units of length, so that the multiplier is a force.
        return jnp.concatenate([d[:2], tilt(a, b), (radius * difference(a, b, d[2] / radius))[None]])

    def check_number(self, key: str, value: np.ndarray) -> None:
        super().check_number(key, value)
        if key == "pitch" and not value.all():
            raise ValueError(f"{self.name}.pitch must not be zero")

    def allowed(self, key: str, value: Any) -> Any:
        return jnp.where(value != 0, value, jnp.nan) if key == "pitch" else value

    def sides(self, t: float, *frames: FrameState) -> list[Any]:
        a, b = frames
        return [*super().sides(t, a, b), ANGLE.near(a, b, FULL_TURN * gap(a, b)[2] / self.numbers["pitch"])]


class Gear(Joint):
    """Two hinges whose rates have a fixed ratio: teeth[0] ω_1 = ± teeth[1] ω_2.

    ``first`` and ``second`` are joints with an angle. The sign is + if ``internal``, else −. The numbers of
    teeth are integers, so the constraint holds for positions, over any number of turns. Only their ratio
    counts: 20 and 40 are 1 and 2, n₁ and n₂. ``start`` is n₁φ₁ ± n₂φ₂, with + if not ``internal``; by default
    that of the angles in the model.
    """

    rows = ("teeth",)

    def __init__(
        self,
        name: str,
        first: Joint,
        second: Joint,
        teeth: tuple[int, int],
        internal: bool = False,
        start: Any = None,
    ) -> None:
        for one in (first, second):
            if not isinstance(one, Joint) or ANGLE not in one.coordinates:
                raise TypeError(f"{name!r} needs two joints with an angle, got {one!r}")
        if first is second:
            raise ValueError(f"{name!r} couples {first!r} with itself: it needs two joints")
        self.joints = first, second
        counts = np.array(teeth)
        if counts.shape != (2,) or counts.dtype.kind not in "iu" or (counts < 1).any():
            raise ValueError(f"teeth of {name!r} must be two positive integers, got {teeth!r}")
        counts = counts // np.gcd(*counts)
        self.counts = (int(counts[0]), int(counts[1]) * (-1 if internal else 1))
        meshing: Any = _Meshing(self.counts).registered()
        Connector.__init__(self, name, (*first.markers, *second.markers), functions={"meshing": meshing})
        angles = _angle(*self.markers[:2]), _angle(*self.markers[2:])
        now = self.counts[0] * angles[0] + self.counts[1] * angles[1]
        self.numbers["start"] = np.array(now if start is None else finite(start, f"start of {name!r}"))

    @staticmethod
    def holonomic(
        t: Any, a: FrameState, b: FrameState, c: FrameState, d: FrameState, start: Any, meshing: Any
    ) -> Any:
        return meshing(turn(a, b), turn(c, d), start)[None]

    def sides(self, t: float, *frames: FrameState) -> list[Any]:
        cos, sin = _Meshing(self.counts).turned(turn(*frames[:2]), turn(*frames[2:]))
        start = self.numbers["start"]
        return [cos * np.cos(start) + sin * np.sin(start)]


class _Meshing(NamedTuple):
    """The row of a gear: sin(n₁φ₁ + n₂φ₂ − start)/|n₁|, or the angle itself instead of its sine."""

    counts: tuple[int, int]
    by_angle: bool = False

    def __call__(self, first: Any, second: Any, start: Any) -> Any:
        (cos, sin), c0, s0 = self.turned(first, second), jnp.cos(start), jnp.sin(start)
        off = sin * c0 - cos * s0
        return (jnp.arctan2(off, cos * c0 + sin * s0) if self.by_angle else off) / abs(self.counts[0])

    def turned(self, *turns: Any) -> tuple[Any, Any]:
        """Cosine and sine of n₁φ₁ + n₂φ₂, from those of φ₁ and φ₂."""
        cos, sin = 1.0, 0.0
        for (c, s), count in zip(turns, self.counts, strict=True):
            s = s if count > 0 else -s
            for bit in bin(abs(count))[2:][::-1]:
                if bit == "1":
                    cos, sin = cos * c - sin * s, cos * s + sin * c
                c, s = c * c - s * s, 2 * c * s
        return cos, sin

    def registered(self) -> _Meshing:
        """The row, with a name for other processes."""
        IDENTITIES[self] = f"a gear of {tuple(self)}"
        return self


class Rack(Joint):
    """A rack and a pinion: the pinion of ``hinge`` turns by the travel of ``slider`` over its ``radius``.

    ``hinge`` is a joint with an angle, ``slider`` one with a displacement. ``start`` is the angle minus the
    travel over the radius; by default that of the model.
    """

    rows = ("teeth",)
    positive = ("radius",)

    def __init__(self, name: str, hinge: Joint, slider: Joint, radius: Any, start: Any = None) -> None:
        for one, coordinate in ((hinge, "angle"), (slider, "displacement")):
            if not isinstance(one, Joint):
                raise TypeError(f"{name!r} needs two joints, got {one!r}")
            one.coordinate(coordinate)
        self.joints = hinge, slider
        frames = (*hinge.markers, *slider.markers)
        by = slider.coordinate("displacement")
        numbers = {"radius": positive(radius, f"radius of {name!r}"), "start": 0.0}
        Connector.__init__(self, name, frames, numbers, {"travel": by, "difference": ANGLE.gap})
        travel = by(*(marker.state for marker in slider.markers))
        now = _angle(*hinge.markers) - travel / numbers["radius"]
        self.numbers["start"] = np.array(now if start is None else finite(start, f"start of {name!r}"))

    @staticmethod
    def holonomic(t: Any, *frames: FrameState, radius: Any, start: Any, travel: Any, difference: Any) -> Any:
        return (radius * difference(*frames[:2], start + travel(*frames[2:]) / radius))[None]

    def sides(self, t: float, *frames: FrameState) -> list[Any]:
        moved = self.functions["travel"](*frames[2:]) / self.numbers["radius"]
        return [ANGLE.near(frames[0], frames[1], self.numbers["start"] + moved)]


_FAR = 3.0  # rad; an angle whose whole turns would matter must not leave ± this
_WHOLE = 1e-9  # up to which a ratio of angles may differ from one of integers
_MOST = 32  # the largest denominator of a ratio of angles that is taken as one of integers


class _Following(NamedTuple):
    """The row of a Mimic: first − c₀ − c₁·second − …, in a form that is valid over as many turns as possible.

    ``turns`` is zero if whole turns of the second coordinate matter: then it must stay within a limit. It is
    the denominator of c₁ if both are angles. ``by_angle``: to close joints, the row is the difference of
    angles instead of its sine, for any coefficients.
    """

    first: Coordinate
    second: Coordinate
    inverse: bool
    turns: int
    by_angle: bool = False

    def __call__(self, c: Any, frames: Any) -> Any:
        a, b, led, by = frames
        angle = self.second.value(led, by)
        if self.by_angle:
            return self.first.off(a, b, jnp.polyval(c[::-1], angle))
        if self.inverse:  # a displacement knows all turns of the angle that it follows
            row = -c[1] * self.second.gap(led, by, (self.first.value(a, b) - c[0]) / c[1])
        elif self.turns > 1:  # whole turns change this argument by multiples of 2π
            row = jnp.sin(self.turns * (self.first.value(a, b) - c[0] - c[1] * angle)) / self.turns
        else:
            row = self.first.gap(a, b, jnp.polyval(c[::-1], angle))
        for wrong in self._wrong(c, angle):
            row = jnp.where(wrong, jnp.nan, 1.0) * row
        return row

    def _wrong(self, c: Any, angle: Any) -> Iterator[Any]:
        """What must not be true. Traced coefficients are known during the run only."""
        if not (self.turns or self.inverse):
            yield jnp.abs(angle) > _FAR
        elif self.second.turns and len(c) > 1:
            if not self.inverse:
                count = self.turns * c[1]
                yield jnp.abs(count - jnp.round(count) * self.first.turns) > _WHOLE
            for higher in c[2:]:
                yield higher != 0


def _denominator(ratio: float) -> int:
    """Of a ratio of integers; zero if the denominator is too large."""
    found = Fraction(ratio).limit_denominator(_MOST)
    return found.denominator if abs(found - Fraction(ratio)) <= 1e-12 else 0


def _following(first: Coordinate, second: Coordinate, c: np.ndarray) -> Any:
    """The row for these coefficients."""
    c = np.append(c[:1], np.trim_zeros(c[1:], "b"))
    linear, turns = len(c) == 2 and c[1] != 0, 0
    if not second.turns or len(c) == 1:
        turns = 1
    elif linear and first.turns:
        turns = _denominator(c[1])
    return registered(_Following(first, second, linear and second.turns and not first.turns, turns))


def registered(row: _Following) -> Any:
    """The row, with a name for other processes if its coordinates have one."""
    if row.first in IDENTITIES and row.second in IDENTITIES:
        names = IDENTITIES[row.first], IDENTITIES[row.second], *row[2:]
        IDENTITIES[row] = f"a mimic of {names}"
    return row


class Mimic(Joint):
    """A joint that follows another: first = c₀ + c₁·second + c₂·second² + …

    ``coefficients`` are c₀, c₁, …; ``of`` names the coordinates of the two joints, their first by default.
    An angle may be followed over any number of turns by a displacement, c₀ + c₁·second, and by an angle if c₁
    is a ratio of integers with a denominator up to 32. Otherwise it must stay within ±3 rad: a run that
    leaves them fails.
    """

    rows = ("mimic",)

    def __init__(
        self, name: str, first: Joint, second: Joint, coefficients: Any, of: tuple[str, str] = ("", "")
    ) -> None:
        for one in (first, second):
            if not isinstance(one, Joint):
                raise TypeError(f"{name!r} needs two joints with coordinates, got {one!r}")
        if first is second:
            raise ValueError(f"{name!r} couples {first!r} with itself: it needs two joints")
        wrong = f"coefficients of {name!r} must be one or more numbers, got {coefficients!r}"
        try:
            c = np.array(coefficients, dtype=float)
        except (TypeError, ValueError) as error:
            raise TypeError(wrong) from error
        if c.ndim != 1 or not len(c):
            raise ValueError(wrong)
        if not np.isfinite(c).all():
            raise ValueError(f"coefficients of {name!r} must be finite, got {c.tolist()}")
        if len(of) != 2:
            raise ValueError(f"of {name!r} must name two coordinates, one of each joint, got {of!r}")
        self.joints, self.driven, self.led = (
            (first, second),
            first.coordinate(of[0]),
            second.coordinate(of[1]),
        )
        frames = (*first.markers[:2], *second.markers[:2])
        self.row: Any = _following(self.driven, self.led, c)
        Connector.__init__(self, name, frames, {"coefficients": c}, {"row": self.row})

    @property
    def within_a_turn(self) -> bool:
        """Whether the angle that is followed must stay within ±3 rad."""
        return not (self.row.turns or self.row.inverse)

    def check_number(self, key: str, value: np.ndarray) -> None:
        """Refuse coefficients for which the row would have another form."""
        for c in value.reshape(-1, value.shape[-1]):
            row = _following(self.driven, self.led, c)
            fits = row == self.row or self.within_a_turn
            if self.row.turns and row.turns:  # a multiple of the denominator of a ratio serves as well
                fits |= row.inverse == self.row.inverse and self.row.turns % row.turns == 0
            if not fits:
                raise ValueError(
                    f"{self.name}.{key} cannot be {c.tolist()}, since whole turns would count in another way "
                    f"than with {self.numbers[key].tolist()}: make another Mimic"
                )

    @staticmethod
    def holonomic(
        t: Any,
        a: FrameState,
        b: FrameState,
        c: FrameState,
        d: FrameState,
        coefficients: Any,
        row: Any,
    ) -> Any:
        return row(coefficients, (a, b, c, d))[None]

    def sides(self, t: float, *frames: FrameState) -> list[Any]:
        (a, b, led, by), c, row = frames, self.numbers["coefficients"], self.row
        if row.inverse:
            return [self.led.near(led, by, (np.asarray(self.driven.value(a, b)) - c[0]) / c[1])]
        if not self.driven.turns:
            return []
        wanted = np.polyval(c[::-1], np.asarray(self.led.value(led, by)))
        return [np.cos(max(row.turns, 1) * (np.asarray(self.driven.value(a, b)) - wanted))]


class OfCoordinate(Joint):
    """A constraint on one coordinate of a joint."""

    def __init__(self, name: str, joint: Joint, by: Coordinate, numbers: Any, functions: Any) -> None:
        self.joint, self.driven, self.joints = joint, by, (joint,)
        Connector.__init__(self, name, joint.markers, numbers, functions | {"gap": by.gap})

    def wanted(self, t: float) -> float:
        """The value that the coordinate is to have at one time."""
        raise NotImplementedError

    def sides(self, t: float, *frames: FrameState) -> list[Any]:
        return [self.driven.near(frames[0], frames[1], self.wanted(t))] if self.driven.turns else []


class Driven(OfCoordinate):
    """A prescribed motion of a joint coordinate: ``motion(t)``, an angle or a displacement.

    The multiplier is minus the torque or the force of the drive.
    """

    rows = ("drive",)

    def __init__(self, name: str, joint: Joint, motion: Callable[[Any], Any], coordinate: str = "") -> None:
        if not isinstance(joint, Joint):
            raise TypeError(f"{name!r} needs a joint with a coordinate, got {joint!r}")
        super().__init__(name, joint, joint.coordinate(coordinate), {}, {"motion": motion})

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState, motion: Any, gap: Any) -> Any:
        return gap(a, b, returned(motion(t), (), "motion"))[None]

    def wanted(self, t: float) -> float:
        """The prescribed value at one time, or NaN while JAX traces it."""
        found = self.functions["motion"](np.float64(t))
        return np.nan if is_traced(found) else float(np.asarray(found))
