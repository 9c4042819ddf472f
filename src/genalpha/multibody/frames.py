"""Frames on bodies: where they are, how they move, and what a force on them does to their body."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.spaces import Euclidean, R3xSO3, Space
from genalpha.multibody.vectors import EYE, cross
from genalpha.numerics.tracing import zeros
from genalpha.rotation import matrix
from genalpha.view.checks import number
from genalpha.view.checks import positive as positive
from genalpha.view.poses import matrices, quaternions, rotations

axes_of, quaternion_of = matrices, quaternions  # of one quaternion (4,), of one matrix (3, 3)


def quaternions_of(R: np.ndarray) -> np.ndarray:
    """The quaternions (K, 4) of matrices (K, 3, 3). Those of the last calls are kept: SciPy takes 0.1 ms."""
    return _kept_quaternions(R.tobytes())


@functools.lru_cache(8)
def _kept_quaternions(R: bytes) -> np.ndarray:
    return quaternions(np.frombuffer(R).reshape(-1, 3, 3))


class FrameState(NamedTuple):
    """A frame at one time: position (3,), axes as columns (3, 3), velocity (3,) and angular velocity (3,).

    All are in space-fixed axes. Velocities are zero where only positions are asked for.
    """

    x: Any
    R: Any
    v: Any
    w: Any

    @property
    def axis(self) -> Array:
        """The z axis, about which joints turn."""
        return self.R[:, 2]

    def seen(self, x: Array) -> Array:
        """A vector (3,) in the axes of this frame."""
        return x @ self.R


def drift(a: FrameState, b: FrameState, arm: Any = None) -> Any:
    """The velocity (3,) relative to a of the origin of b, or of a point of its body at ``arm`` from it."""
    v, d = b.v - a.v, b.x - a.x
    if arm is not None:
        v, d = v + cross(b.w, arm), d + arm
    return v - cross(a.w, d)


class Wrench(NamedTuple):
    """A force (3,) at the origin of a frame and a torque (3,), in space-fixed axes."""

    force: Any
    torque: Any


class BodyKind(NamedTuple):
    """A kind of body: its space, and how frames on it move. See RIGID, PLANAR and POINT.

    A frame is given by its position r (3,) from the centre of mass and its axes Q (3, 3), in the axes of the
    body.
    """

    name: str
    space: Space | None

    @property
    def sizes(self) -> tuple[int, int]:
        """How many coordinates and velocities a body has."""
        dim = 0 if self.space is None else int(self.space.dim or 0)
        return (0 if self.space is None else self.space.size(dim)), dim

    @property
    def entries(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Names of the coordinates and velocities of a body. A prime is a rate, w the angular velocity."""
        place = ("x", "y", "z")[: 2 if self.name == "planar" else 3]
        speed = tuple(f"{name}'" for name in place)
        turned = {
            "rigid": (("qw", "qx", "qy", "qz"), ("wx", "wy", "wz")),
            "planar": (("angle",), ("angle'",)),
        }
        angles, spins = turned.get(self.name, ((), ()))
        return (*place, *angles), (*speed, *spins)

    def state(self, q: Any, v: Any, r: Any, Q: Any) -> FrameState:
        """A frame of a body with coordinates ``q`` and velocities ``v``. For the ground both are unused."""
        zero = zeros(3)
        if self.name == "ground":
            return FrameState(r, Q, zero, zero)
        if self.name == "point":
            return FrameState(q, Q, zero if v is None else v, zero)  # its axes do not turn
        if self.name == "planar":
            c, s, one, none = jnp.cos(q[2]), jnp.sin(q[2]), jnp.ones(()), jnp.zeros(())
            R = jnp.stack([jnp.stack([c, -s, none]), jnp.stack([s, c, none]), jnp.stack([none, none, one])])
            x, speed = jnp.array([q[0], q[1], 0.0]), zero if v is None else jnp.array([v[0], v[1], 0.0])
            spin = zero if v is None else jnp.array([0.0, 0.0, v[2]])
        else:
            R, x = matrix(q[3:]), q[:3]
            speed, spin = (zero, zero) if v is None else (v[:3], R @ v[3:])
        arm = R @ r
        moving = speed if v is None else speed + cross(spin, arm)
        return FrameState(x + arm, R @ Q, moving, spin)

    def load(self, q: Array, r: Array, wrench: Wrench) -> Array:
        """The generalized force on the body of a force and a torque at a frame."""
        if self.name == "point":
            return wrench.force
        if self.name == "planar":
            c, s = jnp.cos(q[2]), jnp.sin(q[2])
            arm = jnp.stack([c * r[0] - s * r[1], s * r[0] + c * r[1]])
            turn = wrench.torque[2] + arm[0] * wrench.force[1] - arm[1] * wrench.force[0]
            return jnp.stack([wrench.force[0], wrench.force[1], turn])
        R = matrix(q[3:])
        torque = wrench.torque @ R + cross(r, wrench.force @ R)
        return jnp.concatenate([wrench.force, torque])


RIGID, PLANAR = BodyKind("rigid", R3xSO3()), BodyKind("planar", Euclidean(3))
POINT, GROUND = BodyKind("point", Euclidean(3)), BodyKind("ground", None)


def vector(value: Any, what: str, count: int = 3) -> np.ndarray:
    """Finite numbers (count,). For a position in space two numbers are enough; the third is then zero."""
    try:
        if np.asarray(value).dtype.kind in "US":
            raise TypeError("texts are no numbers")
        found = np.array(value, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{what} must be {plural(count)}, got {value!r}") from error
    if found.shape == (2,) and count == 3:
        found = np.append(found, 0.0)
    if found.shape != (count,) or not np.isfinite(found).all():
        raise ValueError(f"{what} must be {plural(count, 'finite ')}, got {value!r}")
    return found


def locked(x: Any) -> np.ndarray:
    """A copy that cannot be written to."""
    found = np.array(x)
    found.flags.writeable = False
    return found


def plural(count: int, which: str = "") -> str:
    """So many numbers, in words."""
    return f"{count} {which}numbers" if count != 1 else f"one {which}number"


def finite(value: Any, what: str) -> float:
    """A finite number."""
    found = number(value, what)
    if not np.isfinite(found):
        raise ValueError(f"{what} must be a finite number, got {value!r}")
    return found


def nonnegative(value: Any, what: str) -> float:
    """A number that is zero or positive."""
    found = finite(value, what)
    if found < 0:
        raise ValueError(f"{what} must be zero or positive, got {value!r}")
    return found


def orientation(value: Any, what: str) -> np.ndarray:
    """A rotation matrix (3, 3), from a matrix, a unit quaternion (w, x, y, z), an angle about z, or None."""
    return EYE.copy() if value is None else rotations(value, what)[0]


def upright(x: np.ndarray) -> np.ndarray:
    """Axes (3, 3) whose x axis is a unit vector, and whose y axis is horizontal. z does not point down."""
    side = np.cross(EYE[2], x)
    size = float(np.linalg.norm(side))
    y = side / size if size > 1e-6 else EYE[1]
    return np.stack([x, y, np.cross(x, y)], axis=1)


def along(axis: Any, what: str) -> np.ndarray:
    """Axes (3, 3) whose z axis has a given direction. Parallel directions give the same axes."""
    z = vector(axis, what)
    largest = np.abs(z).max()
    if largest == 0:
        raise ValueError(f"{what} is zero: it must be a direction")
    z = z / largest  # squares of very large and very small numbers are no numbers
    z = z / np.linalg.norm(z)
    helper = np.zeros(3)
    helper[int(np.argmin(np.abs(z)))] = 1.0
    x = np.cross(helper, z)
    x /= np.linalg.norm(x)
    if np.allclose(z, EYE[2]):  # the natural axes
        x = EYE[0]
    return np.stack([x, np.cross(z, x), z], axis=1)
