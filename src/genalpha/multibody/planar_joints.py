"""Joints between bodies in the plane, which replace those of space there."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha.multibody import friction as laws
from genalpha.multibody.connectors import between
from genalpha.multibody.frames import FrameState, vector
from genalpha.multibody.friction import Rubbing
from genalpha.multibody.joints import SHIFT, SLIDE_X, TURN, Prismatic, Revolute, Weld, apart, gap, turn
from genalpha.multibody.markers import Marker


def _checked_axis(name: str, ends: tuple[Marker, Marker]) -> tuple[Marker, Marker]:
    """Frames of a joint in the plane, whose z axes must be that of the plane."""
    first, second = (end.Q[2, 2] for end in ends)
    if abs(first) < 1 - 1e-9 or abs(first - second) > 1e-9:
        raise ValueError(f"the axis of {name!r} must be that of the plane, (0, 0, 1), on both bodies")
    return ends


class PlanarRevolute(Revolute):
    """A pin between bodies in the plane: ``at`` (2,)."""

    rows = SHIFT[:2]
    rubbing = Rubbing(laws.hinge, ("radius",), ("radius",))
    planar = None

    def _frames(self, name: str, a: Any, b: Any, at: Any, axis: Any) -> tuple[Marker, Marker]:
        return _checked_axis(name, between(name, a, b, at, axis))

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return apart(a, b)[:2]


class PlanarPrismatic(Prismatic):
    """A slot between bodies in the plane, along ``axis`` (2,), which is x of the frames."""

    rows = ("y", TURN)
    coordinates = (SLIDE_X,)
    rubbing = Rubbing(laws.slot, ("length",))
    planar = None

    def _frames(self, name: str, a: Any, b: Any, at: Any, axis: Any) -> tuple[Marker, Marker]:
        if at is None:
            one, other = map(self._along_x, between(name, a, b, at, axis))
            return _checked_axis(name, (one, other))
        first, second = between(name, a, b, at, None)
        direction = vector((1.0, 0.0) if axis is None else axis, f"axis of {name!r}")
        if not np.linalg.norm(direction[:2]) > 0:
            raise ValueError(f"axis of {name!r} must be a direction in the plane, got {axis!r}")
        x = np.array([*direction[:2], 0.0]) / np.linalg.norm(direction[:2])
        axes = np.stack([x, [-x[1], x[0], 0.0], [0.0, 0.0, 1.0]], axis=1)
        return first.body.frame_in_space(at, axes), second.body.frame_in_space(at, axes)

    @staticmethod
    def _along_x(marker: Marker) -> Marker:
        """A frame whose z axis is in the plane was made with an axis: this becomes x."""
        x, z = marker.Q[:, 2], np.array([0.0, 0.0, 1.0])
        if abs(x[2]) > 1e-9:
            return marker
        return Marker(marker.body, marker.r, np.stack([x, np.cross(z, x), z], axis=1))

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return jnp.stack([gap(a, b)[1], turn(a, b)[1]])


class PlanarWeld(Weld):
    """Two bodies in the plane that are one."""

    rows = ("x", "y", TURN)
    planar = None

    def _frames(self, name: str, a: Any, b: Any, at: Any, axis: Any) -> tuple[Marker, Marker]:
        return _checked_axis(name, between(name, a, b, at, axis))

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return jnp.concatenate([apart(a, b)[:2], turn(a, b)[1][None]])


Revolute.planar, Prismatic.planar, Weld.planar = PlanarRevolute, PlanarPrismatic, PlanarWeld
