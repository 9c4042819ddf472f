"""Constraints on velocities: wheels and balls that roll without slip, and knife edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha.multibody.connectors import Connector, between
from genalpha.multibody.frames import FrameState, drift, positive
from genalpha.multibody.joints import Joint, gap


class _Rolling(Joint):
    """A round body ``b`` on a plane, x and y of the frame of ``a``, whose contact point does not slip."""

    rows, speed_rows = ("contact",), ("slip x", "slip y")
    positive = ("radius",)

    def __init__(self, name: str, a: Any, b: Any, radius: Any) -> None:
        numbers = {"radius": positive(radius, f"radius of {name!r}")}
        Connector.__init__(self, name, between(name, a, b), numbers)


class RollingDisk(_Rolling):
    """A thin disk that rolls on a plane without slip.

    ``a`` has the plane, x and y of its frame; ``b`` has the disk, whose axis is z of its frame. The rim
    touches the plane, and its lowest point does not slip.
    """

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState, radius: Any) -> Any:
        lean = a.axis @ b.axis
        return (gap(a, b)[2] - radius * jnp.sqrt(1 - lean**2))[None]

    @staticmethod
    def nonholonomic(t: Any, a: FrameState, b: FrameState, radius: Any) -> Any:
        lean = a.axis @ b.axis
        down = (lean * b.axis - a.axis) * (radius / jnp.sqrt(1 - lean**2))
        return a.seen(drift(a, b, down))[:2]


def lying(model: Any) -> str:
    """What to do about disks that lie flat on their planes, if there are any."""
    disks = [joint for joint in model.joints if isinstance(joint, RollingDisk)]
    axes = [[marker.state.axis for marker in joint.markers] for joint in disks]
    flat = [repr(joint.name) for joint, (a, b) in zip(disks, axes, strict=True) if abs(a @ b) > 1 - 1e-9]
    return (
        f"The disk of {', '.join(flat)} lies flat on its plane. Its axis is z of frame b: turn the body, or "
        "give it another axis (mb.cylinder(..., axis='y') and body.frame(axis=(0, 1, 0)))"
        if flat
        else ""
    )


class RollingSphere(_Rolling):
    """A ball that rolls on a plane without slip: ``a`` has the plane, ``b`` the ball, at its centre."""

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState, radius: Any) -> Any:
        return (gap(a, b)[2] - radius)[None]

    @staticmethod
    def nonholonomic(t: Any, a: FrameState, b: FrameState, radius: Any) -> Any:
        return a.seen(drift(a, b, -radius * a.axis))[:2]


class KnifeEdge(Joint):
    """The origin of b does not move along y of its own frame, relative to a: a skate or a blade."""

    speed_rows = ("slip y",)

    @staticmethod
    def nonholonomic(t: Any, a: FrameState, b: FrameState) -> Any:
        return (b.R[:, 1] @ drift(a, b))[None]


def _count(found: Any, name: str) -> int:
    """How many rows a function of the user's own has."""
    count = np.size(np.asarray(found))
    if not count:
        raise ValueError(f"the function of {name!r} returns no number: it has no row")
    return count


class VelocityCoupling(Joint):
    """A constraint of the user's own: ``function(t, a, b)`` is an array (p,) that is zero.

    a and b are :class:`FrameState`. It must depend on velocities.
    """

    def __init__(self, name: str, a: Any, b: Any, function: Callable[..., Any]) -> None:
        Connector.__init__(self, name, between(name, a, b), functions={"function": function})
        still = FrameState(np.zeros(3), np.eye(3), np.zeros(3), np.zeros(3))
        count = _count(function(0.0, still, still), name)
        self.speed_rows = tuple(f"row {i}" for i in range(count))  # type: ignore[misc]

    @staticmethod
    def nonholonomic(t: Any, a: FrameState, b: FrameState, function: Any) -> Any:
        return jnp.atleast_1d(jnp.asarray(function(t, a, b), float))


class OnSurface(Joint):
    """The origin of b is where ``function(x)`` is zero, x (3,) in the axes of a: a surface, or a curve.

    The function returns an array (m,): one number for a surface, two for a curve.
    """

    def __init__(self, name: str, a: Any, b: Any, function: Callable[[Any], Any]) -> None:
        Connector.__init__(self, name, between(name, a, b), functions={"function": function})
        count = _count(function(np.array([0.1, 0.2, 0.3])), name)
        self.rows = tuple(f"row {i}" for i in range(count))  # type: ignore[misc]

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState, function: Any) -> Any:
        return jnp.atleast_1d(jnp.asarray(function(gap(a, b)), float))
