"""Mechanisms: double pendulum, a wheel on a rod, a chain of springs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.system import System
from genalpha.problems._problem import ClosedForm, Problem, ReducedODE, Vector

Params = dict[str, Any]
_NONE = np.zeros(0)


def double_pendulum(
    m1: float = 1.0, m2: float = 1.0, l1: float = 1.0, l2: float = 1.0, g: float = 9.81
) -> Problem:
    """Two point masses on rods, in Cartesian coordinates, released horizontally."""

    def mass(t: Array, q: Array, p: Params) -> Array:
        return jnp.diag(jnp.array([p["m1"], p["m1"], p["m2"], p["m2"]]))

    def force(t: Array, q: Array, v: Array, p: Params) -> Array:
        return -p["g"] * jnp.array([0.0, p["m1"], 0.0, p["m2"]])

    def holonomic(t: Array, q: Array, p: Params) -> Array:
        first, second = q[:2], q[2:] - q[:2]
        return 0.5 * jnp.array([first @ first - p["l1"] ** 2, second @ second - p["l2"] ** 2])

    def energy(t: Array, q: Array, v: Array, p: Params) -> Array:
        kinetic = 0.5 * (p["m1"] * v[:2] @ v[:2] + p["m2"] * v[2:] @ v[2:])
        return kinetic + p["g"] * (p["m1"] * q[1] + p["m2"] * q[3])

    def rhs(t: float, y: Vector) -> Vector:
        """Textbook equations in the angles from the downward vertical."""
        p1, p2, w1, w2 = y
        c, s = math.cos(p1 - p2), math.sin(p1 - p2)
        matrix = np.array([[(m1 + m2) * l1, m2 * l2 * c], [l1 * c, l2]])
        right = [
            -m2 * l2 * s * w2**2 - (m1 + m2) * g * math.sin(p1),
            l1 * s * w1**2 - g * math.sin(p2),
        ]
        return np.array([w1, w2, *np.linalg.solve(matrix, right)])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        p1, p2, w1, w2 = y
        b1, b2 = rhs(t, y)[2:]
        e = [np.array([math.sin(p), -math.cos(p)]) for p in (p1, p2)]
        n = [np.array([math.cos(p), math.sin(p)]) for p in (p1, p2)]
        r, u = [l1 * e[0], l2 * e[1]], [l1 * w1 * n[0], l2 * w2 * n[1]]
        acc = [l1 * (b1 * n[0] - w1**2 * e[0]), l2 * (b2 * n[1] - w2**2 * e[1])]
        a1, a2 = acc[0], acc[0] + acc[1]
        gravity = np.array([0.0, -g])
        lam2 = m2 * e[1] @ (gravity - a2) / l2  # the lower rod first, then the upper one
        lam1 = e[0] @ (m1 * (gravity - a1) + lam2 * r[1]) / l1
        return [*r[0], *(r[0] + r[1])], [*u[0], *(u[0] + u[1])], [*a1, *a2], [lam1, lam2], _NONE

    start = np.array([math.pi / 2, math.pi / 2, 0.0, 0.0])
    q, v, *_ = lift(0.0, start)
    return Problem(
        name="double-pendulum",
        title="Planar double pendulum",
        system=System(mass=mass, force=force, holonomic=holonomic),
        t_span=(0.0, 2.0),
        q0=np.round(q, 15),
        v0=np.array(v),
        args=({"m1": m1, "m2": m2, "l1": l1, "l2": l2, "g": g},),
        coordinates=("x1", "y1", "x2", "y2"),
        source="textbook mechanics",
        h=2e-3,
        energy=energy,
        conserved_from=0.0,
        reference=ReducedODE(rhs, lift, 0.0, start),
    )


def wheel_on_rod(
    m: float = 2.0,
    J: float = 0.5,
    Iw: float = 0.3,
    L: float = 1.0,
    r: float = 0.2,
    A: float = 0.5,
    g: float = 3.0,
) -> Problem:
    """A rod whose front slides on the curve y = A sin x and whose rear is carried by a rolling wheel.

    Coordinates: centre (x, y) and heading θ of the rod, roll angle φ of the wheel. The front stays on the
    curve; this is a holonomic constraint. The wheel slips neither sideways nor along the rod; these are two
    nonholonomic constraints. A constant force m g along x drives the rod.
    """

    def force(t: Array, q: Array, v: Array, p: Params) -> Array:
        return jnp.array([p["m"] * p["g"], 0.0, 0.0, 0.0])

    def holonomic(t: Array, q: Array, p: Params) -> Array:
        half = p["L"] / 2
        return jnp.array([q[1] + half * jnp.sin(q[2]) - p["A"] * jnp.sin(q[0] + half * jnp.cos(q[2]))])

    def nonholonomic(t: Array, q: Array, v: Array, p: Params) -> Array:
        s, c = jnp.sin(q[2]), jnp.cos(q[2])
        along, across = c * v[0] + s * v[1], c * v[1] - s * v[0] - p["L"] / 2 * v[2]
        return jnp.array([across, along - p["r"] * v[3]])

    def mass(t: Array, q: Array, p: Params) -> Array:
        return jnp.diag(jnp.array([p["m"], p["m"], p["J"], p["Iw"]]))

    def energy(t: Array, q: Array, v: Array, p: Params) -> Array:
        kinetic = p["m"] * (v[0] ** 2 + v[1] ** 2) + p["J"] * v[2] ** 2 + p["Iw"] * v[3] ** 2
        return 0.5 * kinetic - p["m"] * p["g"] * q[0]

    reference = _wheel_reference(m, J, Iw, L, r, A, g)
    q, v, *_ = reference.lift(0.0, reference.y0)
    return Problem(
        name="wheel-on-rod",
        title="Rolling wheel on a rod guided along a curve",
        system=System(mass=mass, force=force, holonomic=holonomic, nonholonomic=nonholonomic),
        t_span=(0.0, 2.0),
        q0=np.array(q),
        v0=np.array(v),
        args=({"m": m, "J": J, "Iw": Iw, "L": L, "r": r, "A": A, "g": g},),
        coordinates=("x", "y", "θ", "φ"),
        source="made for this package: both kinds of constraint on a conservative mechanism",
        h=5e-3,
        energy=energy,
        conserved_from=0.0,
        reference=reference,
    )


def _wheel_reference(m: float, J: float, Iw: float, L: float, r: float, A: float, g: float) -> ReducedODE:
    """Motion in the abscissa s of the front, θ, φ and s'."""
    inertia = np.array([m, m, J, Iw])

    def directions(s: float, theta: float) -> tuple[Vector, Callable[[float], Vector]]:
        """N in v = N s', with the abscissa s of the front, and N' as a function of s'."""
        st, ct, ss, cs = math.sin(theta), math.cos(theta), math.sin(s), math.cos(s)
        turn = (A * cs * ct - st) / L  # dθ/ds, without sideways slip at the rear
        N = np.array([1 + L / 2 * st * turn, A * cs - L / 2 * ct * turn, turn, (ct + A * cs * st) / r])

        def rate(w: float) -> Vector:
            d = w * turn  # θ'
            turn_rate = (-A * ss * w * ct - A * cs * st * d - ct * d) / L
            x = L / 2 * (ct * d * turn + st * turn_rate)
            y = -A * ss * w + L / 2 * (st * d * turn - ct * turn_rate)
            roll = (-st * d - A * ss * w * st + A * cs * ct * d) / r
            return np.array([x, y, turn_rate, roll])

        return N, rate

    def motion(y: Vector) -> tuple[Vector, Vector, float]:
        """v, v' and s'', from the equations of motion multiplied by N."""
        s, theta, _, w = y
        N, rate = directions(s, theta)
        bias = rate(w) * w
        w_dot = (m * g * N[0] - N @ (inertia * bias)) / (N @ (inertia * N))
        return N * w, N * w_dot + bias, w_dot

    def rhs(t: float, y: Vector) -> Vector:
        v, _, w_dot = motion(y)
        return np.array([y[3], v[2], v[3], w_dot])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        s, theta, phi, _ = y
        v, a, _ = motion(y)
        st, ct = math.sin(theta), math.cos(theta)
        q = [s - L / 2 * ct, A * math.sin(s) - L / 2 * st, theta, phi]
        rest = np.array([m * g, 0.0, 0.0, 0.0]) - inertia * a  # = Gᵀλ + Kᵀψ
        psi_along = -rest[3] / r
        slope = A * math.cos(s)
        # The remainder of rest_x and rest_y determines λ and the sideways multiplier.
        left = rest[:2] - psi_along * np.array([ct, st])
        lam, psi_across = np.linalg.solve([[-slope, -st], [1.0, ct]], left)
        return q, v, a, [lam], [psi_across, psi_along]

    return ReducedODE(rhs, lift, 0.0, np.array([0.0, 0.3, 0.0, 0.5]))


def spring_chain(n: int = 5, m: float = 1.0, k: float = 100.0) -> Problem:
    """n masses in a row between two walls, joined by linear springs. Only the first is displaced at t = 0."""
    modes = np.arange(1, n + 1)
    omega = 2 * math.sqrt(k / m) * np.sin(modes * math.pi / (2 * (n + 1)))
    shape = math.sqrt(2 / (n + 1)) * np.sin(np.outer(modes, modes) * math.pi / (n + 1))
    q0 = np.zeros(n)
    q0[0] = 0.1

    def stretch(q: Array) -> Array:
        return jnp.diff(jnp.concatenate([jnp.zeros(1), q, jnp.zeros(1)]))

    def exact(t: float) -> tuple[Any, ...]:
        weights = shape @ q0
        q = shape @ (weights * np.cos(omega * t))
        v = shape @ (-weights * omega * np.sin(omega * t))
        return q, v, shape @ (-weights * omega**2 * np.cos(omega * t)), _NONE, _NONE

    return Problem(
        name="spring-chain",
        title="Chain of masses and springs",
        system=System(
            mass=m * np.eye(n),
            force=lambda t, q, v, k: k * jnp.diff(stretch(q)),
        ),
        t_span=(0.0, 2.0),
        q0=q0,
        v0=np.zeros(n),
        args=(k,),
        coordinates=tuple(f"x{i + 1}" for i in range(n)),
        source="textbook mechanics; exact by its normal modes",
        h=1e-2,
        energy=lambda t, q, v, k: 0.5 * m * v @ v + 0.5 * k * jnp.sum(stretch(q) ** 2),
        conserved_from=0.0,
        reference=ClosedForm(exact),
    )
