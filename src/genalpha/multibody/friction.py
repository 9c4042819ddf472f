"""Coulomb friction in joints, from the joint's own reaction.

A law is a function of the load and the motion of a joint: force F (3,) and torque M (3,) on the body of frame
b at the origin of b, velocity v (3,) and angular velocity w (3,) of b relative to a, all in the axes of frame
a. It returns the force and the torque of friction on b.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from genalpha.multibody.frames import nonnegative, positive

_LEAST = 1e-8  # a slip below this part of ``speed`` has no direction


@dataclass(frozen=True)
class Friction:
    """Coulomb friction in a joint: coefficient · N · tanh(slip/``speed``), against the slip.

    N is the normal force between the surfaces of the joint, from its own reaction. Lengths that are None do
    not count.

    Parameters
    ----------
    coefficient : of friction.
    radius : of the pin or the ball. In a :class:`Prismatic`, half the width that carries the torque about its
        axis; in a :class:`Planar`, the mean radius of the pad.
    face : mean radius of the collar of a :class:`Revolute`, which carries the force along the axis.
    length : of the bearing, whose middle is the frame of b. Its ends carry the torque across the axis.
    speed : the slip at which friction has 76 % of its full size. Below it friction is viscous: at rest, a
        joint creeps.
    soft : a small force, which makes normal forces smooth at zero: N = √(F² + soft²).

    >>> Friction(0.2, radius=0.01).speed
    0.001
    """

    coefficient: float
    radius: float | None = None
    face: float | None = None
    length: float | None = None
    speed: float = 1e-3
    soft: float = 1e-6

    def __post_init__(self) -> None:
        for one in fields(self):
            value, check = getattr(self, one.name), nonnegative if one.name == "coefficient" else positive
            if value is not None or one.default is not None:
                object.__setattr__(self, one.name, check(value, f"{one.name} of a Friction"))

    def numbers(self) -> dict[str, float]:
        """The numbers of a joint with this friction, by name."""
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        return {NUMBERS[key]: value for key, value in given.items() if value is not None}


# The names of these numbers among those of a joint.
NUMBERS = {one.name: f"friction_{one.name}" for one in fields(Friction)} | {"coefficient": "friction"}


class Of(NamedTuple):
    """The numbers of a friction in compiled code."""

    coefficient: Any
    speed: Any
    soft: Any
    radius: Any = None
    face: Any = None
    length: Any = None

    @classmethod
    def taken(cls, numbers: dict[str, Any]) -> Of:
        """The friction among the numbers of a joint, which are left without it."""
        return cls(**{key: numbers.pop(name) for key, name in NUMBERS.items() if name in numbers})

    def size(self, *x: Any) -> Any:
        """The size of a force, smooth at zero."""
        return jnp.sqrt(sum(one * one for one in x) + self.soft**2)

    def sense(self, slip: Any) -> Any:
        """The direction of a slip, a number or a vector, times tanh(|slip|/speed)."""
        if jnp.ndim(slip) == 0:
            return jnp.tanh(slip / self.speed)
        size = jnp.sqrt(slip @ slip + (_LEAST * self.speed) ** 2)
        return slip * (jnp.tanh(size / self.speed) / size)

    def at_ends(self, moment: Any) -> Any:
        """The force on each end of a bearing that carries a moment."""
        return 0.0 if self.length is None else moment / self.length

    def rings(self, F: Any, M: Any) -> Any:
        """The normal forces of the two ends of a bearing along z: they carry F across z, and M across z."""
        x, y, u, w = F[0] / 2, F[1] / 2, self.at_ends(M[0]), self.at_ends(M[1])
        return self.size(x + w, y - u) + self.size(x - w, y + u)


Load = tuple[Any, Any]


def _along(k: int, size: Any) -> Any:
    """A vector (3,) along an axis."""
    return size * np.eye(3)[k]


def hinge(of: Of, F: Any, M: Any, v: Any, w: Any) -> Load:
    """A pin in a bearing, with a collar."""
    torque = 0.0
    if of.radius is not None:
        torque += of.radius * of.rings(F, M) * of.sense(of.radius * w[2])
    if of.face is not None:
        torque += of.face * of.size(F[2]) * of.sense(of.face * w[2])
    return jnp.zeros(3), _along(2, -of.coefficient * torque)


def guide(of: Of, F: Any, M: Any, v: Any, w: Any) -> Load:
    """A slider that cannot turn."""
    normal = of.rings(F, M)
    if of.radius is not None:
        normal = normal + of.size(M[2] / of.radius)
    return _along(2, -of.coefficient * normal * of.sense(v[2])), jnp.zeros(3)


def sleeve(of: Of, F: Any, M: Any, v: Any, w: Any) -> Load:
    """A sleeve that slides and turns on a shaft: friction is along the helix of its slip."""
    radius = 0.0 if of.radius is None else of.radius
    push = -of.coefficient * of.rings(F, M) * of.sense(jnp.stack([v[2], radius * w[2]]))
    return _along(2, push[0]), _along(2, radius * push[1])


def ball(of: Of, F: Any, M: Any, v: Any, w: Any) -> Load:
    """A ball in a socket."""
    return jnp.zeros(3), (-of.coefficient * of.radius * of.size(*F)) * of.sense(of.radius * w)


def slot(of: Of, F: Any, M: Any, v: Any, w: Any) -> Load:
    """A slider in a slot along x, in the plane."""
    normal = of.size(F[1] / 2 + of.at_ends(M[2])) + of.size(F[1] / 2 - of.at_ends(M[2]))
    return _along(0, -of.coefficient * normal * of.sense(v[0])), jnp.zeros(3)


def wire(of: Of, F: Any, M: Any, v: Any, w: Any) -> Load:
    """A bead on a wire along z."""
    return _along(2, -of.coefficient * of.size(F[0], F[1]) * of.sense(v[2])), jnp.zeros(3)


def table(of: Of, F: Any, M: Any, v: Any, w: Any) -> Load:
    """A pad on the plane of x and y. It resists turning with its mean radius."""
    normal = of.coefficient * of.size(F[2])
    push = -normal * of.sense(v[:2])
    torque = 0.0 if of.radius is None else -normal * of.radius * of.sense(of.radius * w[2])
    return jnp.append(push, 0.0), _along(2, torque)


class Rubbing(NamedTuple):
    """The friction of a class of joints: its law, and the lengths that it uses. It needs one of ``needs``."""

    law: Callable[..., Load]
    uses: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def numbers(self, friction: Any, joint: str) -> dict[str, float]:
        """The numbers of a friction that suits, by name."""
        if not isinstance(friction, Friction):
            raise TypeError(
                f"friction of {joint} must be a Friction, such as mb.Friction(0.1), got {friction!r}"
            )
        for name in ("radius", "face", "length"):
            if getattr(friction, name) is not None and name not in self.uses:
                has = " and ".join(self.uses) or "no lengths"
                raise ValueError(
                    f"friction of {joint} has a {name}, which does not count there: it has {has}"
                )
        if self.needs and all(getattr(friction, name) is None for name in self.needs):
            raise ValueError(f"friction of {joint} needs a {' or a '.join(self.needs)}: it is a torque")
        return friction.numbers()
