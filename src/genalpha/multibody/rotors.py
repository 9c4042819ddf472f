"""Inertia that moves with a coordinate of a joint."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha.multibody.forces import JointForce
from genalpha.multibody.frames import FrameState, positive
from genalpha.multibody.joints import Joint


class Rotor(JointForce):
    """The inertia of a rotor behind a gear, seen at a joint: kinetic energy ½·inertia·rate².

    For a displacement ``inertia`` is a mass. It adds to what the joint has to accelerate and to nothing else:
    the rotor has no weight, and does not resist a motion of both bodies. MJCF calls it armature.
    """

    positive = ("inertia",)

    def __init__(self, name: str, joint: Joint, inertia: Any, coordinate: str = "") -> None:
        numbers = {"inertia": positive(inertia, f"inertia of {name!r}")}
        super().__init__(name, joint, numbers, {}, coordinate)

    @staticmethod
    def kinetic(t: Any, a: FrameState, b: FrameState, inertia: Any, coordinate: Any) -> Any:
        return (jnp.sqrt(inertia) * JointForce.moved(coordinate, a, b)[1])[None]

    def energy(self, rate: np.ndarray) -> np.ndarray:
        """Kinetic energy (K,) for rates (K,) of the coordinate."""
        return np.asarray(0.5 * self.numbers["inertia"] * rate**2)
