"""A model of :mod:`genalpha.multibody` in MuJoCo: trees of bodies with hinges, in joint coordinates."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from genalpha import multibody as mb
from genalpha.multibody.frames import quaternion_of

Array = np.ndarray
INTEGRATORS = ("RK4", "implicitfast", "Euler")


class Tree:
    """The model in MuJoCo. Its joint coordinates are zero where the model has its bodies.

    Each body hangs on the first body of one hinge, which comes before it in the model.
    """

    def __init__(self, model: mb.Model) -> None:
        self.lib = importlib.import_module("mujoco")
        self.model, spec = model, self.lib.MjSpec()
        spec.compiler.autolimits = False
        made = {"ground": spec.worldbody}
        speeds = []
        for joint in model.joints:
            ends: Any = joint.markers
            a, b = ends[0].body, ends[1].body
            made[b.name] = body = made[a.name].add_body(name=b.name)
            body.pos, body.quat = a.R.T @ (b.x - a.x), quaternion_of(a.R.T @ b.R)
            body.mass, body.explicitinertial, body.ipos = b.mass, True, np.zeros(3)
            J = b.inertia.tensor
            body.fullinertia = [J[0, 0], J[1, 1], J[2, 2], J[0, 1], J[0, 2], J[1, 2]]
            axis = joint.markers[1].Q[:, 2]
            hinge = body.add_joint(name=joint.name, pos=joint.markers[1].r, axis=axis)
            hinge.type = self.lib.mjtJoint.mjJNT_HINGE
            spin = b.angular_velocity - getattr(a, "angular_velocity", np.zeros(3))
            speeds.append(axis @ (b.R.T @ spin))
        if len(made) != len(model.bodies) + 1 or model.forces:
            raise ValueError("the model is not a tree of hinges without forces")
        spec.option.gravity = model.gravity
        spec.option.disableflags |= self.lib.mjtDisableBit.mjDSBL_CONTACT
        self.compiled = spec.compile()
        self.data = self.lib.MjData(self.compiled)
        self.start = np.array(speeds)
        self.numbers = [self.compiled.body(body.name).id for body in model.bodies]

    def runner(self, integrator: str, steps: int, t_end: float) -> Callable[[], None]:
        """A run from the start on, to be called."""
        kind = getattr(self.lib.mjtIntegrator, f"mjINT_{integrator.upper()}")

        def run() -> None:
            option: Any = self.compiled.opt
            option.integrator, option.timestep = kind, t_end / steps
            self.lib.mj_resetData(self.compiled, self.data)
            self.data.qvel[:] = self.start
            self.lib.mj_step(self.compiled, self.data, steps)

        return run

    def positions(self) -> Array:
        """Centres (N, 3) of the bodies at the end of the last run."""
        self.lib.mj_kinematics(self.compiled, self.data)
        return np.array(self.data.xpos[self.numbers])
