"""The rolling disk of Jay (J11), in coordinates and as a rigid body."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha import rotation
from genalpha.errors import unknown
from genalpha.mechanics.spaces import R3xSO3
from genalpha.mechanics.system import System
from genalpha.problems._problem import Problem, ReducedODE, Vector
from genalpha.problems._quaternions import BODY_COORDINATES, matrix, product, turn

Params = dict[str, Any]
_NONE = np.zeros(0)


def rolling_disk(
    m: float = 2.0,
    r: float = 1.0,
    I1: float = 2.0,
    I2: float = 2.0,
    g: float = 10.0,
    sense: float = 1.0,
    spin: float | None = None,
    space: str | None = None,
) -> Problem:
    """J11 (7.2): a disk that rolls without slipping. Coordinates: contact point, tilt, heading and spin.

    The forces follow from the printed Lagrangian. The printed f_4 lacks the term −I_2 z_5 z_3 cos(y_3).
    Without it the energy is not conserved. Terms of f_3 and f_4 that cancel are left out here.

    The printed constraint z_1 = r z_5 cos(y_4) is right for a spin that is positive forwards. The printed
    kinetic energy of the spin, ½I_2 (z_5 + z_4 sin(y_3))², is right for one that is positive backwards.
    ``sense=-1`` changes the sign in the constraint; this is the motion of a rigid disk. ``space="R3xSO3"`` is
    that disk as a body with one holonomic and two nonholonomic constraints. ``spin`` is z_5 at the start. Its
    default is 0.1, as printed, and −3 for the rigid disk, which would fall over with 0.1.
    """
    if space not in (None, "R3xSO3"):
        raise unknown("space", str(space), ["R3xSO3"])
    if space is not None:
        sense = -1.0
    if spin is None:
        spin = 0.1 if sense == 1.0 else -3.0
    y0, z0 = np.array([0.1, 0.0, 0.3, 0.0, 1.0]), np.array([sense * r * spin, 0.0, 0.02, -0.02, spin])
    reference = _reference(m, r, I1, I2, g, sense, y0, z0)
    if space == "R3xSO3":
        return _rigid_disk(m, r, I1, I2, g, reference)
    return Problem(
        name="rolling-disk",
        title="Disk rolling on a plane",
        system=System(mass=_mass, force=_force, nonholonomic=_nonholonomic),
        t_span=(0.0, 10.0),
        q0=y0,
        v0=z0,
        args=({"m": m, "r": r, "I1": I1, "I2": I2, "g": g, "sense": sense},),
        coordinates=("x", "y", "tilt", "heading", "spin"),
        source="J11 (7.2), parameters and initial values below it",
        h=0.01,
        energy=_energy,
        conserved_from=0.0,
        reference=reference,
    )


# --- in coordinates -------------------------------------------------------------------------------------


def _mass(t: Array, y: Array, p: Params) -> Array:
    m, r, I1, I2 = p["m"], p["r"], p["I1"], p["I2"]
    s3, c3, s4, c4 = jnp.sin(y[2]), jnp.cos(y[2]), jnp.sin(y[3]), jnp.cos(y[3])
    mr = m * r
    return jnp.array(
        [
            [m, 0.0, -mr * c3 * s4, -mr * s3 * c4, 0.0],
            [0.0, m, mr * c3 * c4, -mr * s3 * s4, 0.0],
            [-mr * c3 * s4, mr * c3 * c4, mr * r + I1, 0.0, 0.0],
            [-mr * s3 * c4, -mr * s3 * s4, 0.0, (mr * r + I2) * s3**2 + I1 * c3**2, I2 * s3],
            [0.0, 0.0, 0.0, I2 * s3, I2],
        ]
    )


def _force(t: Array, y: Array, z: Array, p: Params) -> Array:
    m, r, I1, I2, g = p["m"], p["r"], p["I1"], p["I2"], p["g"]
    s3, c3, s4, c4 = jnp.sin(y[2]), jnp.cos(y[2]), jnp.sin(y[3]), jnp.cos(y[3])
    z3, z4, z5 = z[2], z[3], z[4]
    squares, product = (z3**2 + z4**2) * s3, 2 * z3 * z4 * c3
    return jnp.array(
        [
            m * r * (product * c4 - squares * s4),
            m * r * (product * s4 + squares * c4),
            (m * r**2 - I1 + I2) * z4**2 * s3 * c3 + I2 * z5 * z4 * c3 + m * g * r * s3,
            -2 * (m * r**2 - I1 + I2) * z4 * s3 * c3 * z3 - I2 * z5 * z3 * c3,
            -I2 * z4 * c3 * z3,
        ]
    )


def _nonholonomic(t: Array, y: Array, z: Array, p: Params) -> Array:
    return z[:2] - p["sense"] * p["r"] * z[4] * jnp.array([jnp.cos(y[3]), jnp.sin(y[3])])


def _energy(t: Array, y: Array, z: Array, p: Params) -> Array:
    return 0.5 * z @ _mass(t, y, p) @ z + p["m"] * p["g"] * p["r"] * jnp.cos(y[2])


def _reference(
    m: float, r: float, I1: float, I2: float, g: float, sense: float, y0: Vector, z0: Vector
) -> ReducedODE:
    """Motion in (y, z_3, z_4, z_5), from z = N(y) w and the equations of motion multiplied by Nᵀ.

    Eliminating the contact velocity from Lagrange's equations leaves a 3 × 3 system for w'. It is written by
    hand from the printed Lagrangian (with A = m r², and mixed terms from the rolling constraints) and is
    independent of the functions above.
    """
    A = m * r**2
    B = sense * A

    def accelerations(y: Vector, z: Vector) -> tuple[Vector, Vector]:
        s, c, sh, ch = math.sin(y[2]), math.cos(y[2]), math.sin(y[3]), math.cos(y[3])
        z3, z4, z5 = z[2:]
        # Along the heading the contact accelerates by ±r z5', across it by ±r z5 z4.
        tilt = (A - I1 + I2) * z4**2 * s * c + (I2 - B) * z5 * z4 * c + m * g * r * s
        z3_dot = tilt / (A + I1)
        heading = -2 * (A - I1 + I2) * z4 * z3 * s * c - I2 * z5 * z3 * c
        spin = -I2 * z4 * z3 * c + 2 * B * z3 * z4 * c
        inertia = np.array([[(A + I2) * s**2 + I1 * c**2, (I2 - B) * s], [(I2 - B) * s, I2 + A]])
        z4_dot, z5_dot = np.linalg.solve(inertia, [heading, spin])
        x_dot = sense * r * (z5_dot * ch - z5 * z4 * sh)
        y_dot = sense * r * (z5_dot * sh + z5 * z4 * ch)
        a = np.array([x_dot, y_dot, z3_dot, z4_dot, z5_dot])
        # Multipliers: the first two equations of motion, m times the acceleration of the centre.
        squares, product = (z3**2 + z4**2) * s, 2 * z3 * z4 * c
        centre = r * np.array(
            [
                squares * sh - product * ch - z3_dot * c * sh - z4_dot * s * ch,
                -squares * ch - product * sh + z3_dot * c * ch - z4_dot * s * sh,
            ]
        )
        centre += [x_dot, y_dot]
        return a, -m * centre

    def full(y: Vector) -> tuple[Vector, Vector]:
        z5 = y[7]
        z = np.array([sense * r * z5 * math.cos(y[3]), sense * r * z5 * math.sin(y[3]), *y[5:]])
        return y[:5], z

    def rhs(t: float, y: Vector) -> Vector:
        q, z = full(y)
        return np.concatenate([z, accelerations(q, z)[0][2:]])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        q, z = full(y)
        a, psi = accelerations(q, z)
        return q, z, a, _NONE, psi

    return ReducedODE(rhs, lift, 0.0, np.concatenate([y0, z0[2:]]))


# --- as a rigid body ------------------------------------------------------------------------------------


def _rigid_disk(m: float, r: float, I1: float, I2: float, g: float, coordinates: ReducedODE) -> Problem:
    """The disk as a rigid body in R³×SO(3), its axis along the body's y.

    The height of the centre is a holonomic constraint. Rolling gives two nonholonomic ones: the velocity of
    the body at the contact point vanishes. ``coordinates`` is the reference of the version in coordinates.
    """
    J = np.array([I1, I2, I1])
    reference = _rigid_reference(m, r, g, coordinates)
    q0, v0, *_ = reference.lift(0.0, reference.y0)
    return Problem(
        name="rolling-disk",
        title="Disk rolling on a plane, in R³×SO(3)",
        system=System(
            mass=_rigid_mass,
            force=_rigid_force,
            holonomic=_rigid_holonomic,
            nonholonomic=_rigid_nonholonomic,
            space=R3xSO3(),
        ),
        t_span=(0.0, 10.0),
        q0=np.array(q0),
        v0=np.array(v0),
        args=({"m": m, "r": r, "J": J, "g": g},),
        coordinates=BODY_COORDINATES,
        source="J11 (7.2) with the rolling constraint of a rigid disk",
        h=0.01,
        energy=_rigid_energy,
        conserved_from=0.0,
        reference=reference,
    )


def _rigid_mass(t: Array, q: Array, p: Params) -> Array:
    return jnp.diag(jnp.concatenate([jnp.full(3, p["m"]), p["J"]]))


def _lever(q: Array, p: Params) -> Array:
    """The vector (3,) from the centre to the lowest point of the rim."""
    axis = rotation.rotate(q[3:], jnp.array([0.0, 1.0, 0.0]))
    up = jnp.array([0.0, 0.0, 1.0]) - axis[2] * axis
    return -p["r"] * up / jnp.sqrt(1 - axis[2] ** 2)


def _rigid_holonomic(t: Array, q: Array, p: Params) -> Array:
    return (q[2] + _lever(q, p)[2])[None]


def _rigid_nonholonomic(t: Array, q: Array, v: Array, p: Params) -> Array:
    return (v[:3] + rotation.cross(rotation.rotate(q[3:], v[3:]), _lever(q, p)))[:2]


def _rigid_force(t: Array, q: Array, v: Array, p: Params) -> Array:
    weight = jnp.array([0.0, 0.0, -1.0]) * p["m"] * p["g"]
    return jnp.concatenate([weight, -rotation.cross(v[3:], p["J"] * v[3:])])


def _rigid_energy(t: Array, q: Array, v: Array, p: Params) -> Array:
    return 0.5 * (p["m"] * v[:3] @ v[:3] + v[3:] @ (p["J"] * v[3:])) + p["m"] * p["g"] * q[2]


def _rigid_reference(m: float, r: float, g: float, coordinates: ReducedODE) -> ReducedODE:
    """The reference of the version in coordinates, converted to the coordinates of the body."""

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        """Body coordinates from contact point, tilt, heading and spin (which is positive backwards)."""
        (y1, y2, y3, y4, y5), z, z_dot, _, psi = coordinates.lift(t, y)
        p = product(product(turn(2, y4), turn(0, -y3)), turn(1, -y5))
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
        R = matrix(p)
        q = [*(np.array([y1, y2, 0.0]) + r * up), *p]
        return q, [*u, *(R.T @ omega)], [*a, *(R.T @ omega_dot)], [-m * (lift_ddot + g)], psi

    return ReducedODE(coordinates.rhs, lift, 0.0, coordinates.y0)
