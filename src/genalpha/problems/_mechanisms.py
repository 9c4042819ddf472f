"""Mechanisms: slider crank, double pendulum, a wheel on a rod, a chain of springs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.system import System
from genalpha.problems._problem import ClosedForm, Problem, ReducedODE, Vector
from genalpha.problems._slider_crank_data import PUBLISHED

Params = dict[str, Any]
_NONE = np.zeros(0)


def slider_crank(g: float = 9.81) -> Problem:
    """Rigid slider crank of Simeon and Raha in absolute coordinates: three bodies, eight constraints.

    Crank and rod are bars with their centres at mid-length, inertias given about the joint end; a smooth
    torque turns the crank for 0.3 s. Starts stretched out and at rest. The slider's own inertia does not
    matter, since it does not turn.
    """
    m = np.array([0.36, 0.151104, 0.075552])
    l1, l2 = 0.15, 0.30
    J1, J2, J3 = 0.002727 - m[0] * (l1 / 2) ** 2, 0.0045339259 - m[1] * (l2 / 2) ** 2, 1e-4
    inertia = np.array([m[0], m[0], J1, m[1], m[1], J2, m[2], m[2], J3])

    def torque(t: Any, xp: Any) -> Any:
        return xp.where(t <= 0.3, 0.2 / 0.3 * (1 - xp.cos(2 * np.pi * t / 0.3)), 0.0)

    def force(t: Array, q: Array, v: Array, g: Array) -> Array:
        weight = jnp.array([0.0, m[0], 0.0, 0.0, m[1], 0.0, 0.0, m[2], 0.0])
        return (-g * weight).at[2].add(torque(t, jnp))

    def holonomic(t: Array, q: Array, g: Array) -> Array:
        x1, y1, p1, x2, y2, p2, x3, y3, p3 = q
        u, w = l1 / 2 * jnp.array([jnp.cos(p1), jnp.sin(p1)]), l2 / 2 * jnp.array([jnp.cos(p2), jnp.sin(p2)])
        crank, rod = jnp.array([x1, y1]), jnp.array([x2, y2])
        bearing, pin, joint = crank - u, crank + u - rod + w, rod + w - jnp.array([x3, y3])
        return jnp.concatenate([bearing, pin, joint, jnp.array([y3, p3])])

    def energy(t: Array, q: Array, v: Array, g: Array) -> Array:
        return 0.5 * jnp.sum(inertia * v**2) + g * (m[0] * q[1] + m[1] * q[4] + m[2] * q[7])

    def motion(angle: float, rate: float, second: float) -> tuple[Vector, Vector, Vector]:
        """All coordinates and their two derivatives from the crank angle and its derivatives."""
        s1, c1 = math.sin(angle), math.cos(angle)
        s2 = -l1 * s1 / l2
        c2 = math.sqrt(1 - s2**2)
        rate2 = -l1 * c1 * rate / (l2 * c2)
        second2 = (l1 * s1 * rate**2 - l1 * c1 * second + l2 * s2 * rate2**2) / (l2 * c2)
        e1, n1, e2, n2 = np.array([c1, s1]), np.array([-s1, c1]), np.array([c2, s2]), np.array([-s2, c2])
        bar1 = l1 / 2 * np.array([e1, rate * n1, second * n1 - rate**2 * e1])
        bar2 = l2 / 2 * np.array([e2, rate2 * n2, second2 * n2 - rate2**2 * e2])
        angle2 = math.atan2(s2, c2)
        turns = np.array([[angle, angle2, 0.0], [rate, rate2, 0.0], [second, second2, 0.0]])
        centres = [bar1, 2 * bar1 + bar2, 2 * bar1 + 2 * bar2]
        q, v, a = (np.concatenate([[*centres[i][k], turns[k, i]] for i in range(3)]) for k in range(3))
        return q, v, a

    def power_balance(t: float, y: Vector) -> float:
        """Crank acceleration from d'Alembert's principle along the only possible motion."""
        angle, rate = y
        possible = motion(angle, 1.0, 0.0)[1]
        bias = motion(angle, rate, 0.0)[2]
        load = -g * (m[0] * possible[1] + m[1] * possible[4] + m[2] * possible[7])
        load += float(torque(np.asarray(t), np)) * possible[2]
        return (load - possible @ (inertia * bias)) / (possible @ (inertia * possible))

    def rhs(t: float, y: Vector) -> Vector:
        return np.array([y[1], power_balance(t, y)])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        q, v, a = motion(y[0], y[1], power_balance(t, y))
        applied = np.array([0, -g * m[0], float(torque(np.asarray(t), np)), 0, -g * m[1], 0, 0, -g * m[2], 0])
        rest = applied - inertia * a  # = Gᵀλ, solved joint by joint from the slider back to the bearing
        du = l1 / 2 * np.array([-math.sin(q[2]), math.cos(q[2])])
        dw = l2 / 2 * np.array([-math.sin(q[5]), math.cos(q[5])])
        # rod: rest_xy = joint − pin, rest_φ = dw·(joint + pin); slider: rest_x = −joint_x
        joint_x = -rest[6]
        pin_x = joint_x - rest[3]
        # dw_x (joint_x + pin_x) + dw_y (2 joint_y − rest_y) = rest_φ
        joint_y = ((rest[5] - dw[0] * (joint_x + pin_x)) / dw[1] + rest[4]) / 2
        pin = np.array([pin_x, joint_y - rest[4]])
        bearing = rest[:2] - pin
        guide = rest[7] + joint_y
        assert abs(du @ (pin - bearing) - rest[2]) < 1e-6 * (1 + np.abs(rest).max())
        return q, v, a, [*bearing, *pin, joint_x, joint_y, guide, rest[8]], _NONE

    return Problem(
        name="slider-crank",
        title="Rigid slider crank with a torque pulse",
        system=System(mass=np.diag(inertia), force=force, holonomic=holonomic),
        t_span=(0.0, 1.0),
        q0=np.array([l1 / 2, 0, 0, l1 + l2 / 2, 0, 0, l1 + l2, 0, 0]),
        v0=np.zeros(9),
        args=(g,),
        coordinates=("x1", "y1", "φ1", "x2", "y2", "φ2", "x3", "y3", "φ3"),
        source="data of Simeon's flexible slider crank, rigid bodies; values by DOP853 at 1e-13",
        h=1e-3,
        energy=energy,
        conserved_from=0.3,
        reference=ReducedODE(rhs, lift, 0.0, np.zeros(2)),
        published=PUBLISHED if g == 9.81 else {},
    )


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
        lam2 = m2 * e[1] @ (gravity - a2) / l2  # tension of the lower rod, then of the upper one
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
    """A rod whose front slides on the curve y = A sin x and whose rear rides on a rolling wheel.

    Coordinates: centre (x, y) and heading θ of the rod, roll angle φ of the wheel. The front on the curve is
    a holonomic constraint; the wheel's rear may neither slip sideways nor along: two nonholonomic ones. A
    constant force m g along x drives it.
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

    inertia = np.array([m, m, J, Iw])

    def directions(s: float, theta: float) -> tuple[Vector, Callable[[float], Vector]]:
        """v = N s' for the front's abscissa s, and N' for a given s'."""
        st, ct, ss, cs = math.sin(theta), math.cos(theta), math.sin(s), math.cos(s)
        turn = (A * cs * ct - st) / L  # dθ/ds: no slip across at the rear
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
        # What is left of rest_x and rest_y determines λ and the sideways multiplier.
        left = rest[:2] - psi_along * np.array([ct, st])
        lam, psi_across = np.linalg.solve([[-slope, -st], [1.0, ct]], left)
        return q, v, a, [lam], [psi_across, psi_along]

    start = np.array([0.0, 0.3, 0.0, 0.5])
    q, v, *_ = lift(0.0, start)
    return Problem(
        name="wheel-on-rod",
        title="Rolling wheel on a rod that is led along a curve",
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
        reference=ReducedODE(rhs, lift, 0.0, start),
    )


def spring_chain(n: int = 5, m: float = 1.0, k: float = 100.0) -> Problem:
    """n masses in a row between two walls, joined by springs; only the first is displaced. Linear."""
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
