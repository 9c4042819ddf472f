"""States of MuJoCo in the words of a model: values, rates and accelerations of joints by name."""

from __future__ import annotations

import numpy as np
import pytest

from genalpha import multibody as mb
from genalpha.multibody.frames import axes_of

mujoco = pytest.importorskip("mujoco", reason="MuJoCo is not installed: pip install --group peers")


class Peer:
    """A file in MuJoCo, next to the model that was read from it."""

    def __init__(self, text: str, model: mb.Model, controls: dict[str, float] | None = None) -> None:
        self.m, self.model = mujoco.MjModel.from_xml_string(text), model
        self.d = mujoco.MjData(self.m)
        for name, value in (controls or {}).items():
            self.d.ctrl[self.m.actuator(name).id] = value

    def random(self, rng: np.random.Generator, size: float = 0.6) -> None:
        """A random state near the first one."""
        self.d.qpos[:] = self.m.qpos0
        mujoco.mj_integratePos(self.m, self.d.qpos, size * rng.normal(size=self.m.nv), 1.0)
        self.d.qvel[:] = rng.normal(size=self.m.nv)

    def groups(self) -> dict[str, tuple[list[int], list[int]]]:
        """Places in qpos and qvel of each joint of the model, or free body."""
        found: dict[str, tuple[list[int], list[int]]] = {}
        per_body: dict[int, list[int]] = {}
        for j in range(self.m.njnt):
            per_body.setdefault(int(self.m.jnt_bodyid[j]), []).append(j)
        for body, joints in per_body.items():
            name = self.m.body(body).name
            sizes = {0: (7, 6), 1: (4, 3)}.get(int(self.m.jnt_type[joints[0]]), (1, 1))
            if sizes[0] < 7:
                name = self.m.joint(joints[0]).name if len(joints) == 1 else f"{name} joint"
            if len(joints) > 1 and isinstance(self.model[name], mb.Planar):
                axes = self.m.jnt_axis[joints]
                joints = [joints[1], joints[0], joints[2]] if np.linalg.det(axes) < 0 else joints
            q = [int(self.m.jnt_qposadr[j]) + k for j in joints for k in range(sizes[0])]
            v = [int(self.m.jnt_dofadr[j]) + k for j in joints for k in range(sizes[1])]
            found[name] = q, v
        return found

    def state(self) -> tuple[dict, dict, dict]:
        """Values and rates for ``model.pose``, and accelerations by name."""
        values, rates, accelerations = {}, {}, {}
        for name, (of_q, of_v) in self.groups().items():
            q, v = self.d.qpos[of_q].copy(), self.d.qvel[of_v].copy()
            accelerations[name] = self.d.qacc[of_v].copy()
            if len(q) == 7:
                R = axes_of(q[3:])
                spin = R @ v[3:]
                values[name] = q[:3], q[3:]
                rates[name] = v[:3] + np.cross(spin, R @ self.model[name].center), spin
            elif len(q) == 4:
                values[name], rates[name] = q, axes_of(q) @ v
            else:
                values[name], rates[name] = q, v
        return values, rates, accelerations

    def constrained(self, rows: np.ndarray, bias: np.ndarray) -> np.ndarray:
        """qacc with constraints J qacc + bias = 0, from the mass matrix and the forces of MuJoCo."""
        n = self.m.nv
        M = np.zeros((n, n))
        for column, unit in zip(M, np.eye(n), strict=True):
            mujoco.mj_mulM(self.m, self.d, column, unit)
        K = np.block([[M, rows.T], [rows, np.zeros((len(rows), len(rows)))]])
        right = np.concatenate([self.d.qfrc_smooth, -bias])
        return np.linalg.lstsq(K, right, rcond=1e-12)[0][:n]

    def put(self, values: dict[str, float], rates: dict[str, float]) -> None:
        """Set hinges and slides by name."""
        for name, value in values.items():
            self.d.joint(name).qpos[:], self.d.joint(name).qvel[:] = value, rates[name]
        mujoco.mj_forward(self.m, self.d)

    def point(self, body: str, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Jacobian (6, n) of a point in space, that belongs to a body, and its derivative times qvel (6,)."""
        n, number = self.m.nv, self.m.body(body).id
        J, rate = np.zeros((6, n)), np.zeros((6, n))
        mujoco.mj_jac(self.m, self.d, J[:3], J[3:], at, number)
        mujoco.mj_jacDot(self.m, self.d, rate[:3], rate[3:], at, number)
        return J, rate @ self.d.qvel
