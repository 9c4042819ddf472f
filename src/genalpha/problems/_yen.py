"""The problems of Yen, Petzold & Raha (YPR98): stiff pendulum, bushing, flexible slider crank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.errors import unknown
from genalpha.mechanics.system import System
from genalpha.problems._flexible_slider_crank_data import PUBLISHED
from genalpha.problems._problem import Problem, ReducedODE, Vector
from genalpha.statics.modes import modes

Params = dict[str, Any]
_NONE = np.zeros(0)


def stiff_spring_pendulum(eps2: float = 1e-3, gravity: float = 1.0) -> Problem:
    """YPR98 (4.3): a unit mass on a spring of natural length 1 and stiffness 1/ε², with ``eps2`` = ε².

    The index-1 multiplier λ = (r − 1)/(r ε²) of (4.3e) is put into the equations, so there is no constraint.
    Gravity acts along +y, as printed in (4.3d). In the text it acts along −y.
    """

    def force(t: Array, q: Array, v: Array, eps2: Array, gravity: Array) -> Array:
        r = jnp.sqrt(q @ q)
        return -(r - 1) / (r * eps2) * q + jnp.array([0.0, gravity])

    def energy(t: Array, q: Array, v: Array, eps2: Array, gravity: Array) -> Array:
        return 0.5 * v @ v + (jnp.sqrt(q @ q) - 1) ** 2 / (2 * eps2) - gravity * q[1]

    def rhs(t: float, y: Vector) -> Vector:
        """In polar coordinates, with the angle counted from the x-axis."""
        r, angle, r_dot, rate = y
        r_ddot = r * rate**2 - (r - 1) / eps2 + gravity * math.sin(angle)
        return np.array([r_dot, rate, r_ddot, (gravity * math.cos(angle) - 2 * r_dot * rate) / r])

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        r, angle, r_dot, rate = y
        r_ddot, second = rhs(t, y)[2:]
        e, n = np.array([math.cos(angle), math.sin(angle)]), np.array([-math.sin(angle), math.cos(angle)])
        a = (r_ddot - r * rate**2) * e + (r * second + 2 * r_dot * rate) * n
        return r * e, r_dot * e + r * rate * n, a, _NONE, _NONE

    return Problem(
        name="stiff-spring-pendulum",
        title="Pendulum on a stiff spring",
        system=System(mass=np.eye(2), force=force),
        t_span=(0.0, 5.0),
        q0=np.array([0.9, 0.0]),
        v0=np.zeros(2),
        args=(eps2, gravity),
        coordinates=("x", "y"),
        source="YPR98 (4.3) and figures 2, 3",
        h=1e-3,
        energy=energy,
        conserved_from=0.0,
        reference=ReducedODE(rhs, lift, 0.0, np.array([0.9, 0.0, 0.0, 0.0])),
    )


def bushing(eps: float = 1e-5, form: str = "conservative") -> Problem:
    """YPR98 (4.4): a body held by a bushing of stiffness 1/ε². Its reference point is guided along a circle.

    With f_x = ½ − x + ½ cos θ and f_y = ½ sin θ − y the forces have the potential
    V = (f_x² + f_y²)/(2ε²) + θ²/(20ε²) − y − ½ sin θ, from which the torque is
    −θ/(10ε²) + ½ (sin θ f_x − cos θ f_y)/ε² + ½ cos θ. In (4.4c) the middle term has the other sign;
    ``form="printed"`` uses that sign. The printed forces do work along closed paths on the circle, so there
    is no energy. Linearised at (1, 0, 0), the time span 40πε holds 5.6 cycles of θ and 22.6 of (x, y). This
    fits the text ("roughly 6", "around 20"), and x does not fall below 0.8 ("x ≈ 1"). With the printed
    torque the numbers are 7.5 and 16.8, and x becomes negative.
    """
    if form not in ("conservative", "printed"):
        raise unknown("form", form, ["conservative", "printed"])
    sign = 1.0 if form == "conservative" else -1.0

    def offset(q: Array) -> tuple[Array, Array]:
        return 0.5 - q[0] + 0.5 * jnp.cos(q[2]), 0.5 * jnp.sin(q[2]) - q[1]

    def force(t: Array, q: Array, v: Array, eps: Array) -> Array:
        (fx, fy), c, s = offset(q), jnp.cos(q[2]), jnp.sin(q[2])
        torque = -q[2] / 10 + sign * 0.5 * (s * fx - c * fy)
        return jnp.stack([fx, fy, torque]) / eps**2 + jnp.array([0.0, 1.0, 0.5 * c])

    def energy(t: Array, q: Array, v: Array, eps: Array) -> Array:
        fx, fy = offset(q)
        potential = (fx**2 + fy**2) / (2 * eps**2) + q[2] ** 2 / (20 * eps**2) - q[1] - 0.5 * jnp.sin(q[2])
        return 0.5 * v @ v + potential

    t_end = 40 * math.pi * eps
    return Problem(
        name="bushing",
        title="Stiff nonlinear bushing on a circle",
        system=System(
            mass=np.eye(3), force=force, holonomic=lambda t, q, eps: jnp.array([q[:2] @ q[:2] - 1])
        ),
        t_span=(0.0, t_end),
        q0=np.array([0.8, 0.6, 0.0]),
        v0=np.zeros(3),
        args=(eps,),
        coordinates=("x", "y", "θ"),
        source="YPR98 (4.4)" if form == "printed" else "YPR98 (4.4), the sign of the torque corrected",
        h=t_end / 4000,
        energy=energy if form == "conservative" else None,
        conserved_from=0.0 if form == "conservative" else None,
        reference=_bushing_reference(eps, sign),
    )


def _bushing_reference(eps: float, sign: float) -> ReducedODE:
    """Motion in the angle on the circle, θ, and ε times their rates; ``sign`` is that of the torque."""

    def forces(angle: float, theta: float) -> tuple[float, float, float]:
        """Force along and across the radius of the circle, and torque, all times ε².

        Distances are those between the points e(angle) and ½ (1, 0) + ½ e(θ).
        """
        apart, c, s = angle - theta, math.cos(angle), math.sin(angle)
        radial = 0.5 * c + 0.5 * math.cos(apart) - 1 + eps**2 * s
        across = -0.5 * s - 0.5 * math.sin(apart) + eps**2 * c
        turn = sign * 0.5 * (math.sin(apart) + 0.5 * math.sin(theta))
        return radial, across, turn - theta / 10 + 0.5 * eps**2 * math.cos(theta)

    def rhs(t: float, y: Vector) -> Vector:
        """The variables, angles and ε times their rates, are all of size 1."""
        angle, theta, rate, spin = y
        _, across, torque = forces(angle, theta)
        return np.array([rate, spin, across, torque]) / eps

    def lift(t: float, y: Vector) -> tuple[Any, ...]:
        angle, theta, rate, spin = y
        radial, across, torque = forces(angle, theta)
        e, n = np.array([math.cos(angle), math.sin(angle)]), np.array([-math.sin(angle), math.cos(angle)])
        a = np.array([*(across * n - rate**2 * e), torque]) / eps**2
        # The radial equation: −rate² = radial − 2λ, with G = (2x, 2y, 0).
        return [*e, theta], [*(rate * n / eps), spin / eps], a, [(radial + rate**2) / (2 * eps**2)], _NONE

    start = np.array([math.atan2(0.6, 0.8), 0.0, 0.0, 0.0])
    return ReducedODE(rhs, lift, 0.0, start)


class RodMatrices(NamedTuple):
    """Constant matrices of the clamped rod for (w_1, w_1', ..., w_k, w_k').

    ``M`` (2k, 2k) is the mass matrix with rotary inertia and ``K`` (2k, 2k) the stiffness for a modulus of 1.
    ``moment`` (2k,) is the integral of the shape functions ψ over the mass, ``coupling`` (2k,) that of
    x ψ + y² ψ'.
    """

    M: np.ndarray
    K: np.ndarray
    moment: np.ndarray
    coupling: np.ndarray


def rod_matrices(k: int, length: float, side: float, density: float, coupling: str) -> RodMatrices:
    """A rod of square section in k elements, cubic Hermite functions between nodes, clamped at x = 0."""
    h, A, inertia = length / k, side**2, side**4 / 12
    D = np.diag([1.0, h, 1.0, h])  # slopes are multiplied by a length
    bend = np.array([[6, 3, -6, 3], [3, 2, -3, 1], [-6, -3, 6, -3], [3, 1, -3, 2]])
    shift = np.array([[156, 22, 54, -13], [22, 4, 13, -3], [54, 13, 156, -22], [-13, -3, -22, 4]])
    turn = np.array([[36, 3, -36, 3], [3, 4, -3, -1], [-36, -3, 36, -3], [3, -1, -3, 4]])
    M_e = density * D @ (A * h / 420 * shift + inertia / (30 * h) * turn) @ D
    K_e = inertia * 2 / h**3 * D @ bend @ D
    mean = density * A * h / 12 * D @ np.array([6.0, 1, 6, -1])
    local = density * (
        inertia * np.array([-1.0, 0, 1, 0]) + A * h**2 / 10 * D @ [3 / 2, 1 / 3, 7 / 2, -1 / 2]
    )
    M, K = np.zeros((2, 2 * k + 2, 2 * k + 2))
    moment, coupled = np.zeros((2, 2 * k + 2))
    for e in range(k):
        at = slice(2 * e, 2 * e + 4)
        M[at, at] += M_e
        K[at, at] += K_e
        moment[at] += mean
        coupled[at] += local + (e * h * mean if coupling == "global" else 0.0)
    return RodMatrices(M[2:, 2:], K[2:, 2:], moment[2:], coupled[2:])


# Simeon's "data set 2"; inertias about the joint ends. Mass and inertia of the rod follow from its density.
_MASS, _LENGTH, _INERTIA = (0.36, 0.151104, 0.075552), (0.15, 0.30), (0.002727, 0.0045339259)
_SIDE, _DENSITY, _POISSON, _PULSE = 0.008, 7870.0, 0.3, 0.3


@dataclass(frozen=True, eq=False)
class FlexibleCrank:
    """Equations of motion of the slider crank with a flexible rod.

    ``p`` in the methods holds the parameters that a run may change: gravity, torque and modulus. The torque
    is a pulse, smooth or constant.
    """

    rod: RodMatrices
    smooth: bool

    @cached_property
    def fixed(self) -> np.ndarray:
        """The entries of the mass matrix that do not depend on q."""
        (_, m2, m3), l1, J1, n = _MASS, _LENGTH[0], _INERTIA[0], 3 + len(self.rod.M)
        fixed = np.zeros((n, n))
        fixed[0, 0], fixed[2, 2], fixed[3:, 3:] = J1 + m2 * l1**2, m3, self.rod.M
        fixed[1, 3:] = fixed[3:, 1] = self.rod.coupling
        return fixed

    def drive(self, t: Array, p: Params) -> Array:
        size = p["torque"]
        if self.smooth:
            size = size / _PULSE * (1 - jnp.cos(2 * jnp.pi * t / _PULSE))
        return jnp.where(t <= _PULSE, size, 0.0)

    def mass(self, t: Array, q: Array, p: Params) -> Array:
        rod, m2, (l1, l2), J2 = self.rod, _MASS[1], _LENGTH, _INERTIA[1]
        w, s12, c12 = q[3:], jnp.sin(q[0] - q[1]), jnp.cos(q[0] - q[1])
        M12 = l1 * (0.5 * l2 * m2 * c12 + s12 * (rod.moment @ w))
        bend = l1 * c12 * rod.moment
        M = jnp.asarray(self.fixed).at[[0, 1, 1], [1, 0, 1]].set(jnp.stack([M12, M12, J2 + w @ (rod.M @ w)]))
        return M.at[0, 3:].set(bend).at[3:, 0].set(bend)

    def force(self, t: Array, q: Array, v: Array, p: Params) -> Array:
        rod, (m1, m2, _), (l1, l2) = self.rod, _MASS, _LENGTH
        (p1, p2), w, (v1, v2), w_dot, g = q[:2], q[3:], v[:2], v[3:], p["gravity"]
        s12, c12 = jnp.sin(p1 - p2), jnp.cos(p1 - p2)
        inertia, lag = rod.M @ w, 0.5 * l2 * m2 * s12 - c12 * (rod.moment @ w)  # ∂M12/∂φ2 = l1 lag
        f1 = self.drive(t, p) - g * l1 * (0.5 * m1 + m2) * jnp.cos(p1)
        f1 -= l1 * v2 * (v2 * lag + 2 * s12 * (rod.moment @ w_dot))
        f2 = -g * (0.5 * l2 * m2 * jnp.cos(p2) - jnp.sin(p2) * (rod.moment @ w))
        f2 += l1 * v1**2 * lag - 2 * v2 * (w_dot @ inertia)
        bend = v2**2 * inertia + (l1 * v1**2 * s12 - g * jnp.cos(p2)) * rod.moment
        return jnp.concatenate([jnp.stack([f1, f2, jnp.zeros_like(f1)]), bend - p["modulus"] * (rod.K @ w)])

    def holonomic(self, t: Array, q: Array, p: Params) -> Array:
        l1, l2 = _LENGTH
        p1, p2, x3, tip = q[0], q[1], q[2], q[-2]
        height = l1 * jnp.sin(p1) + l2 * jnp.sin(p2) + tip * jnp.cos(p2)
        return jnp.stack([height, x3 - l1 * jnp.cos(p1) - l2 * jnp.cos(p2) + tip * jnp.sin(p2)])

    def energy(self, t: Array, q: Array, v: Array, p: Params) -> Array:
        rod, (m1, m2, _), (l1, l2) = self.rod, _MASS, _LENGTH
        w, s1, s2, c2 = q[3:], jnp.sin(q[0]), jnp.sin(q[1]), jnp.cos(q[1])
        height = (0.5 * m1 + m2) * l1 * s1 + 0.5 * m2 * l2 * s2 + c2 * (rod.moment @ w)
        bending = 0.5 * p["modulus"] * (w @ (rod.K @ w))
        return 0.5 * v @ self.mass(t, q, p) @ v + bending + p["gravity"] * height


def flexible_slider_crank(
    k: int = 4,
    coupling: str = "global",
    torque: str = "smooth",
    gravity: float = 9.81,
    modulus: str = "plane-strain",
    E: float = 2e11,
    amplitude: float = 0.2,
) -> Problem:
    """YPR98 section 4.3: a slider crank whose rod is a beam of k elements (Simeon 1996), stretched at rest.

    Coordinates are the angles of crank and rod, the position of the slider, and (w_i, w_i') at the nodes: the
    displacement across the rod and its slope, in a frame that is clamped to the rod at the crank pin. The
    clamped node is left out; the paper counts its two coordinates too. The rod does not stretch.

    ``torque="smooth"`` is amplitude/0.3 (1 − cos(2πt/0.3)) for t <= 0.3, with the amplitude in N m s, and
    ``"constant"`` is the amplitude in N m for t <= 0.3. With ``modulus="plane-strain"`` the modulus of the
    beam is E (1 − ν)/(1 − ν − 2ν²), as in Simeon's program; with ``"beam"`` it is E. ``coupling="local"``
    repeats an error of that program: in the coupling of rotation and bending, x is measured from the end of
    each element. No rod has this mass matrix, but it is symmetric and positive definite, and energy is still
    conserved.

    The paper gives 1.3e4 as the greatest eigenvalue for k = 4. The highest of :func:`frequencies` is 1.2e5
    rad/s, its third 1.4e4.
    """
    if k < 1:
        raise ValueError(f"k = {k} must be a number of elements, at least 1")
    for kind, name, known in (
        ("coupling", coupling, ["global", "local"]),
        ("torque", torque, ["smooth", "constant"]),
        ("modulus", modulus, ["plane-strain", "beam"]),
    ):
        if name not in known:
            raise unknown(kind, name, known)
    (l1, l2), nu = _LENGTH, _POISSON
    crank = FlexibleCrank(rod_matrices(k, l2, _SIDE, _DENSITY, coupling), smooth=torque == "smooth")
    stiffness = E * (1 - nu) / (1 - nu - 2 * nu**2) if modulus == "plane-strain" else E
    standard = (k, modulus, E, amplitude) == (4, "plane-strain", 2e11, 0.2)
    q0 = np.zeros(3 + 2 * k)
    q0[2] = l1 + l2
    return Problem(
        name="flexible-slider-crank",
        title="Slider crank with a flexible rod",
        system=System(mass=crank.mass, force=crank.force, holonomic=crank.holonomic),
        t_span=(0.0, 1.0),
        q0=q0,
        v0=np.zeros(3 + 2 * k),
        args=({"gravity": gravity, "torque": amplitude, "modulus": stiffness},),
        coordinates=("φ1", "φ2", "x3", *(f"w{i}{prime}" for i in range(1, k + 1) for prime in ("", "'"))),
        source="YPR98 section 4.3; Simeon, Math. Model. Syst. 2 (1996), and his program of 1995",
        h=1e-4,
        energy=crank.energy,
        conserved_from=_PULSE,
        published=PUBLISHED.get((coupling, torque, gravity), {}) if standard else {},
    )


def frequencies(problem: Problem, q: Any) -> np.ndarray:
    """Angular frequencies (n − m,) of small vibrations about a configuration q at rest, sorted.

    They are those of :func:`genalpha.modes`. Unstable ones have frequency 0. If q is not an equilibrium, the
    result is meaningful only for vibrations that are much faster than the motion.

    >>> crank = flexible_slider_crank(k=1)
    >>> frequencies(crank, crank.q0)[1:].round().tolist()
    [1818.0, 7775.0]
    """
    values = modes(problem.system, (problem.t_span[0], q), args=problem.args).eigenvalues
    return np.sort(np.where(values.imag > 0, np.abs(values), 0.0))
