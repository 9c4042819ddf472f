"""What closes couplings from a rough guess: at the nearest turn or tooth."""

from __future__ import annotations

import copy
from typing import Any

import jax.numpy as jnp

from genalpha.multibody.couplings import Gear, Mimic, Rack, Screw, registered
from genalpha.multibody.frames import FrameState
from genalpha.multibody.joints import ANGLE, Joint, gap, tilt, turn

_NEAR = 0.8  # the cosine of an angle whose sine is nearly as large
_MET = 1e-6  # up to which a row counts as satisfied


def to_close(joint: Joint) -> Joint:
    """The joint, or another one that closes it from where its bodies are.

    Rows of couplings are sines of angles. They lead to a tooth further on, or nowhere, if such an angle is
    near a quarter of a turn or beyond. Then the row is the angle itself.
    """
    if isinstance(joint, Mimic):
        return _followed(joint)
    kind = next((by_angle for of, by_angle in _BY_ANGLE.items() if isinstance(joint, of)), None)
    if kind is None or joint.sides(0.0, *(marker.state for marker in joint.markers))[-1] > _NEAR:
        return joint
    found = copy.copy(joint)
    found.__class__ = kind
    return found


def _followed(joint: Mimic) -> Mimic:
    """The angle counts from −π to π, unless the row is satisfied already, maybe after whole turns."""
    frames = [marker.state for marker in joint.markers]
    off = abs(float(joint.row(joint.numbers["coefficients"], frames)))
    plain = not joint.row.inverse and joint.row.turns < 2
    if plain or (off < _MET and min(joint.sides(0.0, *frames)) > 0):
        return joint
    found = copy.copy(joint)
    found.__dict__["row"] = registered(joint.row._replace(inverse=False, turns=-1))
    found.functions = {"row": found.row}
    return found


class _ScrewByAngle(Screw):
    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState, lead: Any) -> Any:
        d = gap(a, b)
        return jnp.concatenate([d[:2], tilt(a, b), (lead * ANGLE.off(a, b, d[2] / lead))[None]])


class _GearByAngle(Gear):
    @staticmethod
    def holonomic(
        t: Any, a: FrameState, b: FrameState, c: FrameState, d: FrameState, start: Any, powers: Any
    ) -> Any:
        (cos, sin), c0, s0 = powers(turn(a, b), turn(c, d)), jnp.cos(start), jnp.sin(start)
        return (jnp.arctan2(sin * c0 - cos * s0, cos * c0 + sin * s0) / abs(powers.counts[0]))[None]


class _RackByAngle(Rack):
    @staticmethod
    def holonomic(
        t: Any,
        a: FrameState,
        b: FrameState,
        c: FrameState,
        d: FrameState,
        radius: Any,
        start: Any,
        travel: Any,
    ) -> Any:
        return (radius * ANGLE.off(a, b, start + travel(c, d) / radius))[None]


_BY_ANGLE: dict[type[Joint], type[Joint]] = {Screw: _ScrewByAngle, Gear: _GearByAngle, Rack: _RackByAngle}
