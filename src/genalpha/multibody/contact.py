"""Contact of a ball and a plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha.multibody.connectors import between
from genalpha.multibody.forces import Force
from genalpha.multibody.frames import FrameState, Wrench, drift, nonnegative, positive
from genalpha.multibody.joints import gap
from genalpha.multibody.vectors import cross


class SphereContact(Force):
    """A ball on a plane, by a smooth penalty: normal force and regularized Coulomb friction.

    ``a`` has the plane, x and y of its frame; ``b`` the ball, at its centre. The normal force is
    stiffness·p^exponent·(1 + damping·p'), never negative, with the penetration p smoothed over ``soft``.
    Friction is μ times the normal force, times tanh(slip/``slow``).
    """

    positive = ("radius", "stiffness", "exponent", "soft", "slow")
    not_negative = ("damping", "friction")

    def __init__(
        self,
        name: str,
        a: Any,
        b: Any,
        radius: Any,
        stiffness: Any,
        damping: Any = 0.0,
        friction: Any = 0.0,
        exponent: Any = 1.5,
        soft: Any = 1e-6,
        slow: Any = 1e-3,
    ) -> None:
        given = (radius, stiffness, exponent, soft, slow)
        both = zip(self.positive, given, strict=True)
        numbers = {key: positive(value, f"{key} of {name!r}") for key, value in both}
        numbers |= {"damping": nonnegative(damping, f"damping of {name!r}")}
        numbers |= {"friction": nonnegative(friction, f"friction of {name!r}")}
        super().__init__(name, between(name, a, b), numbers)

    @staticmethod
    def force(t: Any, a: FrameState, b: FrameState, **of: Any) -> Any:
        deep = of["radius"] - gap(a, b)[2]
        p = 0.5 * (deep + jnp.sqrt(deep**2 + of["soft"] ** 2))
        down = -of["radius"] * a.axis
        seen = a.seen(drift(a, b, down))
        push = of["stiffness"] * p ** of["exponent"] * jnp.maximum(0.0, 1 - of["damping"] * seen[2])
        slip = jnp.sqrt(seen[0] ** 2 + seen[1] ** 2 + 1e-6 * of["slow"] ** 2)
        drag = of["friction"] * push * jnp.tanh(slip / of["slow"]) / slip
        force = a.R @ jnp.stack([-drag * seen[0], -drag * seen[1], push])
        arm = b.x + down - a.x
        return Wrench(-force, -cross(arm, force)), Wrench(force, cross(down, force))


def contact_energy(of: Mapping[str, Any], deep: np.ndarray) -> np.ndarray:
    """The energy (K,) in a :class:`SphereContact` without damping, for penetrations (K,) before smoothing.

    With p = (d + √(d² + s²))/2, it is the integral of k pᵉ over d = p − s²/(4p).
    """
    k, e, s = (of[key] for key in ("stiffness", "exponent", "soft"))
    root = np.sqrt(deep**2 + s**2)
    p = 0.5 * np.where(deep > 0, deep + root, s**2 / np.maximum(root - deep, s))  # keeps digits far away
    rest = np.log(p / s) if e == 1 else p ** (e - 1) / (e - 1)
    return np.asarray(k * (p ** (e + 1) / (e + 1) + 0.25 * s**2 * rest))
