"""Rigid bodies on Lie groups: heavy top, free body, rolling disk, chain of three bodies."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha import rotation
from genalpha.errors import unknown
from genalpha.mechanics.spaces import SE3, SO3, Product, R3xSO3, Space
from genalpha.mechanics.system import System
from genalpha.problems._heavy_top_data import PUBLISHED
from genalpha.problems._problem import Problem, ReducedODE, Vector

Params = dict[str, Any]
_NONE = np.zeros(0)
_NAMES = ("x", "y", "z", "qw", "qx", "qy", "qz")
_SPACES: dict[str, Callable[[], Space]] = {"R3xSO3": R3xSO3, "SE3": SE3}


# --- kinematics for the references, in NumPy and apart from the package's own ---------------------------


def _matrix(p: Vector) -> Vector:
    w, u = p[0], p[1:]
    return (w**2 - u @ u) * np.eye(3) + 2 * np.outer(u, u) + 2 * w * _skew(u)


def _skew(a: Vector) -> Vector:
    return np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


def _rate(p: Vector, omega: Vector) -> Vector:
    """Quaternion rate ½ p ∘ (0, Ω), which keeps |p| constant."""
    return 0.5 * np.array([-p[1:] @ omega, *(p[0] * omega + np.cross(p[1:], omega))])


def _product(p: Vector, r: Vector) -> Vector:
    return np.array([p[0] * r[0] - p[1:] @ r[1:], *(p[0] * r[1:] + r[0] * p[1:] + np.cross(p[1:], r[1:]))])


def _turn(axis: int, angle: float) -> Vector:
    p = np.zeros(4)
    p[0], p[1 + axis] = math.cos(angle / 2), math.sin(angle / 2)
    return p


# --- heavy top ------------------------------------------------------------------------------------------


def heavy_top(space: str = "R3xSO3", m: float = 15.0, g: float = 9.81) -> Problem:
    """ACB15 appendix A.1: a top that spins about a fixed point, in absolute coordinates.

    ``space`` is "R3xSO3", as in the paper, or "SE3", with body-fixed velocities of the centre. The
    constraint −x + R X = 0 and so λ are the same in both.
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

    about_tip = np.diag(J) - m * _skew(X) @ _skew(X)
    gravity = np.array([0.0, 0.0, -g])

    def omega_dot(p: Vector, omega: Vector) -> Vector:
        moment = np.cross(X, m * _matrix(p).T @ gravity) - np.cross(omega, about_tip @ omega)
        return np.linalg.solve(about_tip, moment)

    def rhs(t: float, y: Vector) -> Vector:
        return np.concatenate([_rate(y[:4], y[4:]), omega_dot(y[:4], y[4:])])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        p, omega, alpha = y[:4], y[4:], omega_dot(y[:4], y[4:])
        R = _matrix(p)
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
        coordinates=_NAMES,
        source="ACB15 appendix A.1",
        h=1e-3,
        energy=energy,
        conserved_from=0.0,
        reference=ReducedODE(rhs, lift, 0.0, y0),
        published=PUBLISHED if standard else {},
    )


# --- free body ------------------------------------------------------------------------------------------


def rigid_body(J: tuple[float, float, float] = (1.0, 2.0, 3.0)) -> Problem:
    """A free body that turns almost about its middle axis, in SO(3): no constraints, energy and momentum.

    ``momentum(t, q, v, *args)`` is the angular momentum R JΩ in inertial directions.
    """
    inertia = np.array(J, dtype=float)

    def energy(t: Array, q: Array, v: Array, J: Array) -> Array:
        return 0.5 * v @ (J * v)

    def momentum(t: Array, q: Array, v: Array, J: Array) -> Array:
        return rotation.rotate(q, J * v)

    def rhs(t: float, y: Vector) -> Vector:
        omega = y[4:]
        return np.concatenate([_rate(y[:4], omega), -np.cross(omega, inertia * omega) / inertia])

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
        coordinates=_NAMES[3:],
        source="Euler's equations",
        h=0.01,
        energy=energy,
        momentum=momentum,
        conserved_from=0.0,
        reference=ReducedODE(rhs, lift, 0.0, y0),
    )


# --- rolling disk ---------------------------------------------------------------------------------------


def rolling_disk(m: float, r: float, I1: float, I2: float, g: float, coordinates: ReducedODE) -> Problem:
    """The disk of J11 (7.2) as a rigid body in R³×SO(3), its axis along the body's y.

    The height of the centre is a holonomic constraint, rolling two nonholonomic ones: the velocity of the
    body at the contact point vanishes. ``coordinates`` is the reference of the version in coordinates.
    """
    J = np.array([I1, I2, I1])

    def lever(q: Array, p: Params) -> Array:
        """From the centre to the lowest point of the rim."""
        axis = rotation.rotate(q[3:], jnp.array([0.0, 1.0, 0.0]))
        up = jnp.array([0.0, 0.0, 1.0]) - axis[2] * axis
        return -p["r"] * up / jnp.sqrt(1 - axis[2] ** 2)

    def holonomic(t: Array, q: Array, p: Params) -> Array:
        return (q[2] + lever(q, p)[2])[None]

    def nonholonomic(t: Array, q: Array, v: Array, p: Params) -> Array:
        return (v[:3] + rotation.cross(rotation.rotate(q[3:], v[3:]), lever(q, p)))[:2]

    def force(t: Array, q: Array, v: Array, p: Params) -> Array:
        weight = jnp.array([0.0, 0.0, -1.0]) * p["m"] * p["g"]
        return jnp.concatenate([weight, -rotation.cross(v[3:], p["J"] * v[3:])])

    def energy(t: Array, q: Array, v: Array, p: Params) -> Array:
        return 0.5 * (p["m"] * v[:3] @ v[:3] + v[3:] @ (p["J"] * v[3:])) + p["m"] * p["g"] * q[2]

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        """Body coordinates from contact point, tilt, heading and spin (which counts backwards)."""
        (y1, y2, y3, y4, y5), z, z_dot, _, psi = coordinates.lift(t, y)
        p = _product(_product(_turn(2, y4), _turn(0, -y3)), _turn(1, -y5))
        s, c, sh, ch = math.sin(y3), math.cos(y3), math.sin(y4), math.cos(y4)
        vertical, ahead, axis = (
            np.array([0.0, 0.0, 1.0]),
            np.array([ch, sh, 0.0]),
            np.array([-c * sh, c * ch, -s]),
        )
        up = np.array([-s * sh, s * ch, c])
        frame = z[3] * vertical - z[2] * ahead  # angular velocity of heading and tilt
        omega = frame - z[4] * axis
        omega_dot = z_dot[3] * vertical - z_dot[2] * ahead - z_dot[4] * axis
        omega_dot += -z[2] * z[3] * np.cross(vertical, ahead) - z[4] * np.cross(frame, axis)
        lift_dot, lift_ddot = -r * s * z[2], -r * (s * z_dot[2] + c * z[2] ** 2)
        a = np.array([*(-psi / m), lift_ddot])  # psi of the coordinates is −m times this
        u = np.array([*(z[:2] + r * np.cross(frame, up)[:2]), lift_dot])
        R = _matrix(p)
        q = [*(np.array([y1, y2, 0.0]) + r * up), *p]
        return q, [*u, *(R.T @ omega)], [*a, *(R.T @ omega_dot)], [-m * (lift_ddot + g)], psi

    q0, v0, *_ = lift(0.0, coordinates.y0)
    return Problem(
        name="rolling-disk",
        title="Disk rolling on a plane, in R³×SO(3)",
        system=System(
            mass=lambda t, q, p: jnp.diag(jnp.concatenate([jnp.full(3, p["m"]), p["J"]])),
            force=force,
            holonomic=holonomic,
            nonholonomic=nonholonomic,
            space=R3xSO3(),
        ),
        t_span=(0.0, 10.0),
        q0=np.array(q0),
        v0=np.array(v0),
        args=({"m": m, "r": r, "J": J, "g": g},),
        coordinates=_NAMES,
        source="J11 (7.2) with the rolling constraint of a rigid disk",
        h=0.01,
        energy=energy,
        conserved_from=0.0,
        reference=ReducedODE(coordinates.rhs, lift, 0.0, coordinates.y0),
    )


# --- chain ----------------------------------------------------------------------------------------------


def body_chain(g: float = 9.81) -> Problem:
    """Three rigid bodies that hang in each other by spherical joints, in (R³×SO(3))³; made here.

    Body i spans from its joint at −s to the next one at +s in body directions; the first hangs from the
    origin. All inertias differ, and all bodies spin.
    """
    bodies, s = 3, np.array([0.0, 0.0, -0.5])
    m = np.array([2.0, 1.0, 1.5])
    J = np.array([[0.2, 0.25, 0.1], [0.1, 0.08, 0.05], [0.15, 0.12, 0.2]])
    inertia = np.concatenate([[*np.full(3, m[i]), *J[i]] for i in range(bodies)])

    def force(t: Array, q: Array, v: Array, g: Array) -> Array:
        omega = v.reshape(bodies, 6)[:, 3:]
        weight = jnp.outer(-g * m, jnp.array([0.0, 0.0, 1.0]))
        return jnp.concatenate([weight, -jnp.cross(omega, J * omega)], axis=1).reshape(-1)

    def holonomic(t: Array, q: Array, g: Array) -> Array:
        q = q.reshape(bodies, 7)
        w, u = q[:, 3:4], q[:, 4:]
        across = 2 * jnp.cross(u, s)
        arm = s + w * across + jnp.cross(u, across)
        ends = jnp.concatenate([jnp.zeros((1, 3)), q[:-1, :3] + arm[:-1]])
        return (q[:, :3] - arm - ends).reshape(-1)

    def energy(t: Array, q: Array, v: Array, g: Array) -> Array:
        return 0.5 * jnp.sum(inertia * v**2) + g * jnp.sum(m * q.reshape(bodies, 7)[:, 2])

    def motion(y: Vector) -> tuple[Vector, ...]:
        """q, v, the part of v' of the centres that needs no Ω', and the matrix that takes Ω' to v'."""
        quaternions, omegas = y[: 4 * bodies].reshape(bodies, 4), y[4 * bodies :].reshape(bodies, 3)
        q, v, bias, lead = (
            np.zeros((bodies, 7)),
            np.zeros((bodies, 6)),
            np.zeros((bodies, 6)),
            np.zeros((18, 9)),
        )
        end, end_v, end_a, end_lead = np.zeros(3), np.zeros(3), np.zeros(3), np.zeros((3, 9))
        for i, (p, omega) in enumerate(zip(quaternions, omegas, strict=True)):
            R = _matrix(p)
            arm = [R @ s, R @ np.cross(omega, s), R @ np.cross(omega, np.cross(omega, s))]
            turning = np.zeros((3, 9))
            turning[:, 3 * i : 3 * i + 3] = -R @ _skew(s)
            q[i], v[i], bias[i, :3] = [*(end + arm[0]), *p], [*(end_v + arm[1]), *omega], end_a + arm[2]
            lead[6 * i : 6 * i + 3] = end_lead + turning
            lead[6 * i + 3 : 6 * i + 6, 3 * i : 3 * i + 3] = np.eye(3)
            end, end_v, end_a = end + 2 * arm[0], end_v + 2 * arm[1], end_a + 2 * arm[2]
            end_lead = end_lead + 2 * turning
        return q.reshape(-1), v.reshape(-1), bias.reshape(-1), lead

    def loads(v: Vector) -> Vector:
        omega = v.reshape(bodies, 6)[:, 3:]
        weight = np.outer(-g * m, [0.0, 0.0, 1.0])
        return np.concatenate([weight, -np.cross(omega, J * omega)], axis=1).reshape(-1)

    def rhs(t: float, y: Vector) -> Vector:
        q, v, bias, lead = motion(y)
        alpha = np.linalg.solve(lead.T @ (inertia[:, None] * lead), lead.T @ (loads(v) - inertia * bias))
        rates = [_rate(q[7 * i + 3 : 7 * i + 7], v[6 * i + 3 : 6 * i + 6]) for i in range(bodies)]
        return np.concatenate([*rates, alpha])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        q, v, bias, lead = motion(y)
        a = bias + lead @ rhs(t, y)[4 * bodies :]
        # λ from the centres' equations, last body first: m a = weight − λ_i + λ_{i+1}
        rest = (inertia * a - loads(v)).reshape(bodies, 6)[:, :3]
        return q, v, a, -np.cumsum(rest[::-1], axis=0)[::-1].reshape(-1), _NONE

    start = [_turn(1, 1.2), _turn(0, 0.7), _product(_turn(1, -0.5), _turn(0, 0.3))]
    spins = [[0.3, -0.5, 4.0], [1.0, 0.2, -2.0], [-0.4, 1.5, 3.0]]
    y0 = np.concatenate([*start, *spins])
    q0, v0, *_ = lift(0.0, y0)
    return Problem(
        name="body-chain",
        title="Chain of three rigid bodies with spherical joints",
        system=System(
            mass=np.diag(inertia), force=force, holonomic=holonomic, space=Product(*[R3xSO3()] * bodies)
        ),
        t_span=(0.0, 2.0),
        q0=q0,
        v0=v0,
        args=(g,),
        coordinates=tuple(f"{name}{i + 1}" for i in range(bodies) for name in _NAMES),
        source="made here",
        h=2e-3,
        energy=energy,
        conserved_from=0.0,
        reference=ReducedODE(rhs, lift, 0.0, y0),
    )
