"""The rigid slider crank of Simeon and Raha."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.system import System
from genalpha.problems._problem import Problem, ReducedODE, Vector
from genalpha.problems._slider_crank_data import PUBLISHED

_NONE = np.zeros(0)
# Crank, rod and slider. Crank and rod are bars with their centres at mid-length; 0.002727 and 0.0045339259
# are their inertias about the joint end. J3 of the slider does not matter, since the slider does not turn.
_M = np.array([0.36, 0.151104, 0.075552])
_L1, _L2 = 0.15, 0.30
_J1, _J2, _J3 = 0.002727 - _M[0] * (_L1 / 2) ** 2, 0.0045339259 - _M[1] * (_L2 / 2) ** 2, 1e-4
_INERTIA = np.array([_M[0], _M[0], _J1, _M[1], _M[1], _J2, _M[2], _M[2], _J3])


def slider_crank(g: float = 9.81) -> Problem:
    """Rigid slider crank of Simeon and Raha in absolute coordinates: three bodies, eight constraints.

    It starts at rest, stretched out. A smooth torque drives the crank for 0.3 s.
    """
    return Problem(
        name="slider-crank",
        title="Rigid slider crank with a torque pulse",
        breakpoints=(0.3,),
        system=System(mass=np.diag(_INERTIA), force=_force, holonomic=_holonomic),
        t_span=(0.0, 1.0),
        q0=np.array([_L1 / 2, 0, 0, _L1 + _L2 / 2, 0, 0, _L1 + _L2, 0, 0]),
        v0=np.zeros(9),
        args=(g,),
        coordinates=("x1", "y1", "φ1", "x2", "y2", "φ2", "x3", "y3", "φ3"),
        source="data of Simeon's flexible slider crank, rigid bodies; values by DOP853 at 1e-13",
        h=1e-3,
        energy=_energy,
        conserved_from=0.3,
        reference=_reference(g),
        published=PUBLISHED if g == 9.81 else {},
    )


# --- equations of motion --------------------------------------------------------------------------------


def _torque(t: Any, xp: Any) -> Any:
    return xp.where(t <= 0.3, 0.2 / 0.3 * (1 - xp.cos(2 * np.pi * t / 0.3)), 0.0)


def _force(t: Array, q: Array, v: Array, g: Array) -> Array:
    weight = jnp.array([0.0, _M[0], 0.0, 0.0, _M[1], 0.0, 0.0, _M[2], 0.0])
    return (-g * weight).at[2].add(_torque(t, jnp))


def _holonomic(t: Array, q: Array, g: Array) -> Array:
    x1, y1, p1, x2, y2, p2, x3, y3, p3 = q
    u, w = _L1 / 2 * jnp.array([jnp.cos(p1), jnp.sin(p1)]), _L2 / 2 * jnp.array([jnp.cos(p2), jnp.sin(p2)])
    crank, rod = jnp.array([x1, y1]), jnp.array([x2, y2])
    bearing, pin, joint = crank - u, crank + u - rod + w, rod + w - jnp.array([x3, y3])
    return jnp.concatenate([bearing, pin, joint, jnp.array([y3, p3])])


def _energy(t: Array, q: Array, v: Array, g: Array) -> Array:
    return 0.5 * jnp.sum(_INERTIA * v**2) + g * (_M[0] * q[1] + _M[1] * q[4] + _M[2] * q[7])


# --- reference ------------------------------------------------------------------------------------------


def _reference(g: float) -> ReducedODE:
    """Motion in the crank angle and its rate."""

    def rhs(t: float, y: Vector) -> Vector:
        return np.array([y[1], _power_balance(t, y, g)])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        q, v, a = _motion(y[0], y[1], _power_balance(t, y, g))
        applied = np.array(
            [0, -g * _M[0], float(_torque(np.asarray(t), np)), 0, -g * _M[1], 0, 0, -g * _M[2], 0]
        )
        return q, v, a, _multipliers(q, applied - _INERTIA * a), _NONE

    return ReducedODE(rhs, lift, 0.0, np.zeros(2))


def _motion(angle: float, rate: float, second: float) -> tuple[Vector, Vector, Vector]:
    """All coordinates and their two derivatives from the crank angle and its derivatives."""
    s1, c1 = math.sin(angle), math.cos(angle)
    s2 = -_L1 * s1 / _L2
    c2 = math.sqrt(1 - s2**2)
    rate2 = -_L1 * c1 * rate / (_L2 * c2)
    second2 = (_L1 * s1 * rate**2 - _L1 * c1 * second + _L2 * s2 * rate2**2) / (_L2 * c2)
    e1, n1, e2, n2 = np.array([c1, s1]), np.array([-s1, c1]), np.array([c2, s2]), np.array([-s2, c2])
    bar1 = _L1 / 2 * np.array([e1, rate * n1, second * n1 - rate**2 * e1])
    bar2 = _L2 / 2 * np.array([e2, rate2 * n2, second2 * n2 - rate2**2 * e2])
    angle2 = math.atan2(s2, c2)
    turns = np.array([[angle, angle2, 0.0], [rate, rate2, 0.0], [second, second2, 0.0]])
    centres = [bar1, 2 * bar1 + bar2, 2 * bar1 + 2 * bar2]
    q, v, a = (np.concatenate([[*centres[i][k], turns[k, i]] for i in range(3)]) for k in range(3))
    return q, v, a


def _power_balance(t: float, y: Vector, g: float) -> float:
    """Crank acceleration from d'Alembert's principle, along the only motion that is possible."""
    angle, rate = y
    possible = _motion(angle, 1.0, 0.0)[1]
    bias = _motion(angle, rate, 0.0)[2]
    load = -g * (_M[0] * possible[1] + _M[1] * possible[4] + _M[2] * possible[7])
    load += float(_torque(np.asarray(t), np)) * possible[2]
    return (load - possible @ (_INERTIA * bias)) / (possible @ (_INERTIA * possible))


def _multipliers(q: Vector, rest: Vector) -> list[float]:
    """λ from Gᵀλ = rest, solved joint by joint from the slider back to the bearing."""
    du = _L1 / 2 * np.array([-math.sin(q[2]), math.cos(q[2])])
    dw = _L2 / 2 * np.array([-math.sin(q[5]), math.cos(q[5])])
    # rod: rest_xy = joint − pin, rest_φ = dw·(joint + pin); slider: rest_x = −joint_x
    joint_x = -rest[6]
    pin_x = joint_x - rest[3]
    # dw_x (joint_x + pin_x) + dw_y (2 joint_y − rest_y) = rest_φ
    joint_y = ((rest[5] - dw[0] * (joint_x + pin_x)) / dw[1] + rest[4]) / 2
    pin = np.array([pin_x, joint_y - rest[4]])
    bearing = rest[:2] - pin
    guide = rest[7] + joint_y
    assert abs(du @ (pin - bearing) - rest[2]) < 1e-6 * (1 + np.abs(rest).max())
    return [*bearing, *pin, joint_x, joint_y, guide, rest[8]]
