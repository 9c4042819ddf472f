"""A chain of three rigid bodies in (R³×SO(3))³."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.spaces import Product, R3xSO3
from genalpha.mechanics.system import System
from genalpha.problems._problem import Problem, ReducedODE, Vector
from genalpha.problems._quaternions import BODY_COORDINATES, matrix, product, rate, skew, turn

_NONE = np.zeros(0)
_BODIES, _S = 3, np.array([0.0, 0.0, -0.5])  # the joints of a body are at −s and +s
_M = np.array([2.0, 1.0, 1.5])
_J = np.array([[0.2, 0.25, 0.1], [0.1, 0.08, 0.05], [0.15, 0.12, 0.2]])
_INERTIA = np.concatenate([[*np.full(3, _M[i]), *_J[i]] for i in range(_BODIES)])


def body_chain(g: float = 9.81) -> Problem:
    """Three rigid bodies connected by spherical joints, in (R³×SO(3))³. It was made for this package.

    The joints of body i are at −s and +s in its body frame. The first body hangs from the origin. All
    inertias differ, and all bodies spin.
    """
    reference = _reference(g)
    q0, v0, *_ = reference.lift(0.0, reference.y0)
    return Problem(
        name="body-chain",
        title="Chain of three rigid bodies with spherical joints",
        system=System(
            mass=np.diag(_INERTIA), force=_force, holonomic=_holonomic, space=Product(*[R3xSO3()] * _BODIES)
        ),
        t_span=(0.0, 2.0),
        q0=q0,
        v0=v0,
        args=(g,),
        coordinates=tuple(f"{name}{i + 1}" for i in range(_BODIES) for name in BODY_COORDINATES),
        source="made here",
        h=2e-3,
        energy=_energy,
        conserved_from=0.0,
        reference=reference,
    )


# --- equations of motion --------------------------------------------------------------------------------


def _force(t: Array, q: Array, v: Array, g: Array) -> Array:
    omega = v.reshape(_BODIES, 6)[:, 3:]
    weight = jnp.outer(-g * _M, jnp.array([0.0, 0.0, 1.0]))
    return jnp.concatenate([weight, -jnp.cross(omega, _J * omega)], axis=1).reshape(-1)


def _holonomic(t: Array, q: Array, g: Array) -> Array:
    q = q.reshape(_BODIES, 7)
    w, u = q[:, 3:4], q[:, 4:]
    across = 2 * jnp.cross(u, _S)
    arm = _S + w * across + jnp.cross(u, across)
    ends = jnp.concatenate([jnp.zeros((1, 3)), q[:-1, :3] + arm[:-1]])
    return (q[:, :3] - arm - ends).reshape(-1)


def _energy(t: Array, q: Array, v: Array, g: Array) -> Array:
    return 0.5 * jnp.sum(_INERTIA * v**2) + g * jnp.sum(_M * q.reshape(_BODIES, 7)[:, 2])


# --- reference ------------------------------------------------------------------------------------------


def _reference(g: float) -> ReducedODE:
    """Motion in the quaternions and angular velocities of the bodies."""

    def rhs(t: float, y: Vector) -> Vector:
        q, v, bias, lead = _motion(y)
        alpha = np.linalg.solve(
            lead.T @ (_INERTIA[:, None] * lead), lead.T @ (_loads(v, g) - _INERTIA * bias)
        )
        rates = [rate(q[7 * i + 3 : 7 * i + 7], v[6 * i + 3 : 6 * i + 6]) for i in range(_BODIES)]
        return np.concatenate([*rates, alpha])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        q, v, bias, lead = _motion(y)
        a = bias + lead @ rhs(t, y)[4 * _BODIES :]
        # λ from the equations of the centres, last body first: m a = weight − λ_i + λ_{i+1}
        rest = (_INERTIA * a - _loads(v, g)).reshape(_BODIES, 6)[:, :3]
        return q, v, a, -np.cumsum(rest[::-1], axis=0)[::-1].reshape(-1), _NONE

    start = [turn(1, 1.2), turn(0, 0.7), product(turn(1, -0.5), turn(0, 0.3))]
    spins = [[0.3, -0.5, 4.0], [1.0, 0.2, -2.0], [-0.4, 1.5, 3.0]]
    y0 = np.concatenate([*start, *spins])
    return ReducedODE(rhs, lift, 0.0, y0)


def _motion(y: Vector) -> tuple[Vector, ...]:
    """q, v, the part of v' that does not depend on Ω', and the matrix that maps Ω' to the other part."""
    quaternions, omegas = y[: 4 * _BODIES].reshape(_BODIES, 4), y[4 * _BODIES :].reshape(_BODIES, 3)
    q, v, bias, lead = (
        np.zeros((_BODIES, 7)),
        np.zeros((_BODIES, 6)),
        np.zeros((_BODIES, 6)),
        np.zeros((18, 9)),
    )
    end, end_v, end_a, end_lead = np.zeros(3), np.zeros(3), np.zeros(3), np.zeros((3, 9))
    for i, (p, omega) in enumerate(zip(quaternions, omegas, strict=True)):
        R = matrix(p)
        arm = [R @ _S, R @ np.cross(omega, _S), R @ np.cross(omega, np.cross(omega, _S))]
        turning = np.zeros((3, 9))
        turning[:, 3 * i : 3 * i + 3] = -R @ skew(_S)
        q[i], v[i], bias[i, :3] = [*(end + arm[0]), *p], [*(end_v + arm[1]), *omega], end_a + arm[2]
        lead[6 * i : 6 * i + 3] = end_lead + turning
        lead[6 * i + 3 : 6 * i + 6, 3 * i : 3 * i + 3] = np.eye(3)
        end, end_v, end_a = end + 2 * arm[0], end_v + 2 * arm[1], end_a + 2 * arm[2]
        end_lead = end_lead + 2 * turning
    return q.reshape(-1), v.reshape(-1), bias.reshape(-1), lead


def _loads(v: Vector, g: float) -> Vector:
    omega = v.reshape(_BODIES, 6)[:, 3:]
    weight = np.outer(-g * _M, [0.0, 0.0, 1.0])
    return np.concatenate([weight, -np.cross(omega, _J * omega)], axis=1).reshape(-1)
