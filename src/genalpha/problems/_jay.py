"""The problems of Jay & Negrut (JN08) and Jay (J11)."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.errors import unknown
from genalpha.mechanics.system import System
from genalpha.problems import _bodies
from genalpha.problems._problem import ClosedForm, Problem, ReducedODE, Vector

Params = dict[str, Any]
_NONE = np.zeros(0)


def _jay_mass(t: Array, y: Array) -> Array:
    first = [y[0], y[1] - jnp.exp(-2 * t)]
    return jnp.array([first, [jnp.sin(y[0] - jnp.exp(t)), y[0] * y[1]]])


def _jay_exact(multiplier_exponents: tuple[int, ...], holonomic: int) -> ClosedForm:
    def formula(t: float) -> tuple[Any, ...]:
        e = math.exp
        multipliers = [e(k * t) for k in multiplier_exponents]
        return (
            [e(t), e(-2 * t)],
            [e(t), -2 * e(-2 * t)],
            [e(t), 4 * e(-2 * t)],
            multipliers[:holonomic],
            multipliers[holonomic:],
        )

    return ClosedForm(formula)


def jay_negrut() -> Problem:
    """JN08 (15): both kinds of constraint, nonconstant and unsymmetric mass, nonlinear in λ and ψ."""

    def force(t: Array, y: Array, z: Array) -> Array:
        f1 = jnp.exp(t) * (y[0] * z[1] + 2 * y[1] * z[0]) - 2
        f2 = jnp.exp(-t) * (0.5 * y[1] * z[1] - 2 * y[0] * z[0] * y[1] * z[1]) + jnp.exp(3 * t)
        return jnp.array([f1, f2])

    def reaction(t: Array, y: Array, z: Array, lam: Array, psi: Array) -> Array:
        r1 = jnp.exp(2 * t) * y[0] * lam[0] - y[0] * z[1] * psi[0]
        r2 = jnp.exp(-t) * y[1] * lam[0] ** 2 - y[0] * y[1] * z[0] * psi[0] ** 3
        return jnp.array([r1, r2])

    return Problem(
        name="jay-negrut",
        title="Nonlinear test problem with holonomic and nonholonomic constraints",
        system=System(
            mass=_jay_mass,
            force=force,
            holonomic=lambda t, y: jnp.array([y[0] ** 2 * y[1] - 1]),
            nonholonomic=lambda t, y, z: jnp.array([y[0] * z[0] * z[1] + 2]),
            reaction=reaction,
        ),
        t_span=(0.0, 1.0),
        q0=np.array([1.0, 1.0]),
        v0=np.array([1.0, -2.0]),
        coordinates=("y1", "y2"),
        source="JN08 (15), JN07 section 8",
        h=0.01,
        reference=_jay_exact((-1, 1), holonomic=1),
    )


def jay_nonholonomic() -> Problem:
    """J11 (7.1): a nonholonomic constraint nonlinear in the velocities, forces nonlinear in ψ."""

    def force(t: Array, y: Array, z: Array) -> Array:
        f1 = jnp.exp(t) * (y[0] * z[1] + 2 * y[1] * z[0])
        return jnp.array([f1, jnp.exp(-t) * (0.5 * y[1] * z[1] - 2 * y[0] * z[0] * y[1] * z[1])])

    def reaction(t: Array, y: Array, z: Array, lam: Array, psi: Array) -> Array:
        return jnp.array([jnp.exp(2 * t) * y[0] * psi[0], jnp.exp(-t) * y[1] * psi[0] ** 2])

    return Problem(
        name="jay-nonholonomic",
        title="Nonlinear test problem with a nonholonomic constraint",
        system=System(
            mass=_jay_mass,
            force=force,
            nonholonomic=lambda t, y, z: jnp.array([z[0] ** 2 * z[1] + 6 * y[0] * y[1] * z[0] - 4]),
            reaction=reaction,
        ),
        t_span=(0.0, 1.0),
        q0=np.array([1.0, 1.0]),
        v0=np.array([1.0, -2.0]),
        coordinates=("y1", "y2"),
        source="J11 (7.1)",
        h=0.01,
        reference=_jay_exact((-1,), holonomic=0),
    )


def pendulum(m: float = 5.0, L: float = 2.0, k: float = 3000.0, c: float = 100.0, g: float = 9.81) -> Problem:
    """JN08 (16): a bar with a torsional spring and damper, in (x, y, θ) with two constraints."""

    def mass(t: Array, q: Array, p: Params) -> Array:
        return jnp.diag(p["m"] * jnp.array([1.0, 1.0, p["L"] ** 2 / 3]))

    def force(t: Array, q: Array, v: Array, p: Params) -> Array:
        torque = -p["c"] * v[2] - p["k"] * (q[2] - 1.5 * jnp.pi)
        return jnp.array([0.0, -p["m"] * p["g"], torque])

    def holonomic(t: Array, q: Array, p: Params) -> Array:
        return jnp.array([q[0] - p["L"] * jnp.cos(q[2]), q[1] - p["L"] * jnp.sin(q[2])])

    def energy(t: Array, q: Array, v: Array, p: Params) -> Array:
        kinetic = 0.5 * p["m"] * (v[0] ** 2 + v[1] ** 2 + p["L"] ** 2 / 3 * v[2] ** 2)
        return kinetic + p["m"] * p["g"] * q[1] + 0.5 * p["k"] * (q[2] - 1.5 * jnp.pi) ** 2

    def rhs(t: float, y: Vector) -> Vector:
        theta, omega = y
        torque = -m * g * L * math.cos(theta) - c * omega - k * (theta - 1.5 * math.pi)
        return np.array([omega, torque / (m * L**2 + m * L**2 / 3)])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        (theta, omega), alpha = y, rhs(t, y)[1]
        e = L * np.array([math.cos(theta), math.sin(theta)])
        n = np.array([-e[1], e[0]])
        a = alpha * n - omega**2 * e
        return [*e, theta], [*(omega * n), omega], [*a, alpha], [-m * a[0], -m * (a[1] + g)], _NONE

    q, v, *_ = lift(0.0, np.array([1.5 * math.pi, 10.0]))
    return Problem(
        name="pendulum",
        title="Pendulum with torsional spring and damper",
        system=System(mass=mass, force=force, holonomic=holonomic),
        t_span=(0.0, 2.0),
        q0=np.array(q),
        v0=np.array(v),
        args=({"m": m, "L": L, "k": k, "c": c, "g": g},),
        coordinates=("x", "y", "θ"),
        source="JN08 (16) and figure 3",
        h=1e-3,
        energy=energy,
        reference=ReducedODE(rhs, lift, 0.0, np.array([1.5 * math.pi, 10.0])),
    )


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
    """J11 (7.2): a disk that rolls without slipping; contact point, tilt, heading and spin.

    Forces follow from the printed Lagrangian. The printed f_4 lacks the term −I_2 z_5 z_3 cos(y_3); without
    it the energy is not conserved. Terms of f_3 and f_4 that cancel are left out here.

    The printed constraint z_1 = r z_5 cos(y_4) belongs to a spin that counts forwards, the printed kinetic
    energy of the spin, ½I_2 (z_5 + z_4 sin(y_3))², to one that counts backwards. ``sense=-1`` turns the sign
    in the constraint: that is the motion of a rigid disk. ``space="R3xSO3"`` is that disk as a body with one
    holonomic and two nonholonomic constraints. ``spin`` is z_5 at the start, 0.1 as printed; the rigid
    disk would fall over with it and gets −3.
    """
    if space not in (None, "R3xSO3"):
        raise unknown("space", str(space), ["R3xSO3"])
    if space is not None:
        sense = -1.0
    if spin is None:
        spin = 0.1 if sense == 1.0 else -3.0

    def mass(t: Array, y: Array, p: Params) -> Array:
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

    def force(t: Array, y: Array, z: Array, p: Params) -> Array:
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

    def nonholonomic(t: Array, y: Array, z: Array, p: Params) -> Array:
        return z[:2] - p["sense"] * p["r"] * z[4] * jnp.array([jnp.cos(y[3]), jnp.sin(y[3])])

    def energy(t: Array, y: Array, z: Array, p: Params) -> Array:
        return 0.5 * z @ mass(t, y, p) @ z + p["m"] * p["g"] * p["r"] * jnp.cos(y[2])

    y0, z0 = np.array([0.1, 0.0, 0.3, 0.0, 1.0]), np.array([sense * r * spin, 0.0, 0.02, -0.02, spin])
    reference = _rolling_disk_reference(m, r, I1, I2, g, sense, y0, z0)
    if space == "R3xSO3":
        return _bodies.rolling_disk(m, r, I1, I2, g, reference)
    return Problem(
        name="rolling-disk",
        title="Disk rolling on a plane",
        system=System(mass=mass, force=force, nonholonomic=nonholonomic),
        t_span=(0.0, 10.0),
        q0=y0,
        v0=z0,
        args=({"m": m, "r": r, "I1": I1, "I2": I2, "g": g, "sense": sense},),
        coordinates=("x", "y", "tilt", "heading", "spin"),
        source="J11 (7.2), parameters and initial values below it",
        h=0.01,
        energy=energy,
        conserved_from=0.0,
        reference=reference,
    )


def _rolling_disk_reference(
    m: float, r: float, I1: float, I2: float, g: float, sense: float, y0: Vector, z0: Vector
) -> ReducedODE:
    """Motion in (y, z_3, z_4, z_5), from z = N(y) w and the equations of motion multiplied by Nᵀ.

    Eliminating the contact velocity from the Lagrangian's equations leaves a 3 × 3 system for w'. It is
    written out by hand from the printed Lagrangian (with A = m r², mixed terms from the rolling rows), with
    nothing in common with the functions above.
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
