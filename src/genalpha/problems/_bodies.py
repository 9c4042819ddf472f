"""One rigid body on a Lie group: heavy top, free body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha import rotation
from genalpha.errors import unknown
from genalpha.mechanics.spaces import SE3, SO3, R3xSO3, Space
from genalpha.mechanics.system import System
from genalpha.problems._heavy_top_data import PUBLISHED
from genalpha.problems._problem import Problem, ReducedODE, Vector
from genalpha.problems._quaternions import BODY_COORDINATES, matrix, rate, skew

Params = dict[str, Any]
_NONE = np.zeros(0)
_SPACES: dict[str, Callable[[], Space]] = {"R3xSO3": R3xSO3, "SE3": SE3}


# --- heavy top ------------------------------------------------------------------------------------------


def heavy_top(space: str = "R3xSO3", m: float = 15.0, g: float = 9.81) -> Problem:
    """ACB15 appendix A.1: a top that spins about a fixed point, in absolute coordinates.

    ``space`` is "R3xSO3", as in the paper, or "SE3", with body-fixed velocities of the centre. Both have the
    same constraint −x + R X = 0 and so the same λ.
    """
    if space not in _SPACES:
        raise unknown("space", space, _SPACES)
    J, X = np.array([0.234375, 0.46875, 0.234375]), np.array([0.0, 1.0, 0.0])
    body_fixed = space == "SE3"

    def mass(t: Array, q: Array, p: Params) -> Array:
        return jnp.diag(jnp.concatenate([jnp.full(3, p["m"]), J]))

    def force(t: Array, q: Array, v: Array, p: Params) -> Array:
        weight, omega = jnp.array([0.0, 0.0, -1.0]) * p["m"] * p["g"], v[3:]
        if body_fixed:
            weight = rotation.rotate(rotation.inverse(q[3:]), weight) - p["m"] * rotation.cross(omega, v[:3])
        return jnp.concatenate([weight, -rotation.cross(omega, J * omega)])

    def holonomic(t: Array, q: Array, p: Params) -> Array:
        return rotation.rotate(q[3:], X) - q[:3]

    def energy(t: Array, q: Array, v: Array, p: Params) -> Array:
        kinetic = 0.5 * p["m"] * v[:3] @ v[:3] + 0.5 * v[3:] @ (J * v[3:])
        return kinetic + p["m"] * p["g"] * q[2]

    about_tip = np.diag(J) - m * skew(X) @ skew(X)
    gravity = np.array([0.0, 0.0, -g])

    def omega_dot(p: Vector, omega: Vector) -> Vector:
        moment = np.cross(X, m * matrix(p).T @ gravity) - np.cross(omega, about_tip @ omega)
        return np.linalg.solve(about_tip, moment)

    def rhs(t: float, y: Vector) -> Vector:
        return np.concatenate([rate(y[:4], y[4:]), omega_dot(y[:4], y[4:])])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        p, omega, alpha = y[:4], y[4:], omega_dot(y[:4], y[4:])
        R = matrix(p)
        U, U_dot = np.cross(omega, X), np.cross(alpha, X)
        x_ddot = R @ (U_dot + np.cross(omega, U))
        u, a = (U, U_dot) if body_fixed else (R @ U, x_ddot)
        return [*(R @ X), *p], [*u, *omega], [*a, *alpha], m * (x_ddot - gravity), _NONE

    y0 = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 150.0, -4.61538])
    q0, v0, *_ = lift(0.0, y0)
    standard = (m, g, space) == (15.0, 9.81, "R3xSO3")
    return Problem(
        name="heavy-top",
        title=f"Heavy top in {space}",
        system=System(mass=mass, force=force, holonomic=holonomic, space=_SPACES[space]()),
        t_span=(0.0, 1.0),
        q0=np.array(q0),
        v0=np.array(v0),
        args=({"m": m, "g": g},),
        coordinates=BODY_COORDINATES,
        source="ACB15 appendix A.1",
        h=1e-3,
        energy=energy,
        conserved_from=0.0,
        reference=ReducedODE(rhs, lift, 0.0, y0),
        published=PUBLISHED if standard else {},
    )


# --- free body ------------------------------------------------------------------------------------------


def rigid_body(J: tuple[float, float, float] = (1.0, 2.0, 3.0)) -> Problem:
    """A free body in SO(3) that turns nearly about its middle axis. Energy and momentum are conserved.

    ``momentum(t, q, v, *args)`` is the angular momentum R JΩ in the inertial frame.
    """
    inertia = np.array(J, dtype=float)

    def energy(t: Array, q: Array, v: Array, J: Array) -> Array:
        return 0.5 * v @ (J * v)

    def momentum(t: Array, q: Array, v: Array, J: Array) -> Array:
        return rotation.rotate(q, J * v)

    def rhs(t: float, y: Vector) -> Vector:
        omega = y[4:]
        return np.concatenate([rate(y[:4], omega), -np.cross(omega, inertia * omega) / inertia])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        return y[:4], y[4:], rhs(t, y)[4:], _NONE, _NONE

    y0 = np.array([1.0, 0.0, 0.0, 0.0, 0.1, 2.0, 0.2])
    return Problem(
        name="rigid-body",
        title="Free asymmetric rigid body",
        system=System(
            mass=lambda t, q, J: jnp.diag(J),
            force=lambda t, q, v, J: -rotation.cross(v, J * v),
            space=SO3(),
        ),
        t_span=(0.0, 10.0),
        q0=y0[:4],
        v0=y0[4:],
        args=(inertia,),
        coordinates=BODY_COORDINATES[3:],
        source="Euler's equations",
        h=0.01,
        energy=energy,
        momentum=momentum,
        conserved_from=0.0,
        reference=ReducedODE(rhs, lift, 0.0, y0),
    )
