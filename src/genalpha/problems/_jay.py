"""The problems of Jay & Negrut (JN08) and Jay (J11), except the rolling disk."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.system import System
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
    """JN08 (15): both kinds of constraint, variable and unsymmetric mass, forces nonlinear in λ and ψ."""

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
