"""General DAE solvers on two of the problems: F(y, y') = 0 written by hand, and how the solvers are called.

Residuals and Jacobians use Python floats and ``math``, which in systems of ten unknowns is several times
faster than operations on NumPy arrays, and nothing of the package that is measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy_dae.integrate import solve_dae
from sksundae.ida import IDA

import genalpha as ga

Floats = list[float]
Array = np.ndarray

# An absolute tolerance that takes multipliers out of the error test.
_FREE = 1e6


class Mechanics(Protocol):
    """One statement of a problem: values of F, and their derivatives written into zeroed matrices.

    ``y`` and ``yp`` begin with (q, v) and (q', v'); the multipliers come apart. ``fill`` writes the
    derivatives with respect to y into Jy, y' into Jyp, and multipliers into Jm.
    """

    n: int
    multipliers: int

    def values(self, y: Floats, yp: Floats, multipliers: Floats) -> Floats: ...

    def fill(self, y: Floats, yp: Floats, multipliers: Floats, Jy: Array, Jyp: Array, Jm: Array) -> None: ...

    def violation(self, q: Array, v: Array) -> tuple[Array, Array]:
        """Constraints of position and of velocity along a path q (N, n), v (N, n)."""
        ...


# --- the problems ------------------------------------------------------------------------------------


class PendulumAcceleration:
    """The pendulum with its constraints differentiated twice: index 1, positions and velocities drift."""

    n, multipliers = 3, 2

    def __init__(self, p: dict[str, float]) -> None:
        self.m, self.L, self.k, self.c, self.g = (p[name] for name in ("m", "L", "k", "c", "g"))
        self.inertia, self.rest = self.m * self.L**2 / 3, 1.5 * math.pi

    def motion(self, y: Floats, yp: Floats, l1: float, l2: float, s: float, c: float) -> Floats:
        """M v' − f + Gᵀλ with s, c = L sin θ, L cos θ."""
        torque = self.c * y[5] + self.k * (y[2] - self.rest)
        m = self.m
        return [m * yp[3] + l1, m * (yp[4] + self.g) + l2, self.inertia * yp[5] + torque + s * l1 - c * l2]

    def values(self, y: Floats, yp: Floats, multipliers: Floats) -> Floats:
        l1, l2 = multipliers
        s, c, square = self.L * math.sin(y[2]), self.L * math.cos(y[2]), y[5] ** 2
        kinematics = [yp[0] - y[3], yp[1] - y[4], yp[2] - y[5]]
        constraints = [yp[3] + s * yp[5] + c * square, yp[4] - c * yp[5] + s * square]
        return kinematics + self.motion(y, yp, l1, l2, s, c) + constraints

    def fill_motion(
        self, y: Floats, multipliers: Floats, Jy: Array, Jyp: Array, Jm: Array
    ) -> tuple[float, float]:
        """The rows of kinematics and motion; returns L sin θ and L cos θ."""
        s, c = self.L * math.sin(y[2]), self.L * math.cos(y[2])
        Jy[0, 3] = Jy[1, 4] = Jy[2, 5] = -1.0
        Jyp[0, 0] = Jyp[1, 1] = Jyp[2, 2] = Jm[3, 0] = Jm[4, 1] = 1.0
        Jyp[3, 3] = Jyp[4, 4] = self.m
        Jyp[5, 5], Jy[5, 5] = self.inertia, self.c
        Jy[5, 2] = self.k + c * multipliers[0] + s * multipliers[1]
        Jm[5, 0], Jm[5, 1] = s, -c
        return s, c

    def fill(self, y: Floats, yp: Floats, multipliers: Floats, Jy: Array, Jyp: Array, Jm: Array) -> None:
        s, c = self.fill_motion(y, multipliers, Jy, Jyp, Jm)
        square = y[5] ** 2
        Jy[6, 2], Jy[7, 2] = c * yp[5] - s * square, s * yp[5] + c * square
        Jy[6, 5], Jy[7, 5] = 2 * c * y[5], 2 * s * y[5]
        Jyp[6, 3] = Jyp[7, 4] = 1.0
        Jyp[6, 5], Jyp[7, 5] = s, -c

    def violation(self, q: Array, v: Array) -> tuple[Array, Array]:
        tip = self.L * np.stack([np.cos(q[:, 2]), np.sin(q[:, 2])], axis=1)
        speed = v[:, 2:] * np.stack([-tip[:, 1], tip[:, 0]], axis=1)
        return q[:, :2] - tip, v[:, :2] - speed


class PendulumStabilised(PendulumAcceleration):
    """The pendulum after Gear, Gupta and Leimkuhler: both constraints, and q' = v − Gᵀμ. Index 2."""

    multipliers = 4

    def values(self, y: Floats, yp: Floats, multipliers: Floats) -> Floats:
        l1, l2, m1, m2 = multipliers
        s, c = self.L * math.sin(y[2]), self.L * math.cos(y[2])
        kinematics = [yp[0] - y[3] + m1, yp[1] - y[4] + m2, yp[2] - y[5] + s * m1 - c * m2]
        constraints = [y[0] - c, y[1] - s, y[3] + s * y[5], y[4] - c * y[5]]
        return kinematics + self.motion(y, yp, l1, l2, s, c) + constraints

    def fill(self, y: Floats, yp: Floats, multipliers: Floats, Jy: Array, Jyp: Array, Jm: Array) -> None:
        s, c = self.fill_motion(y, multipliers, Jy, Jyp, Jm)
        Jy[2, 2] = c * multipliers[2] + s * multipliers[3]
        Jy[6, 0] = Jy[7, 1] = Jy[8, 3] = Jy[9, 4] = Jm[0, 2] = Jm[1, 3] = 1.0
        Jy[6, 2] = Jy[8, 5] = Jm[2, 2] = s
        Jy[7, 2] = Jy[9, 5] = Jm[2, 3] = -c
        Jy[8, 2], Jy[9, 2] = c * y[5], s * y[5]


class DiskRolling:
    """The rolling disk with its rolling conditions as they are: index 2."""

    n, multipliers = 5, 2

    def __init__(self, p: dict[str, float]) -> None:
        self.m, self.r, self.I1, self.I2, g = (p[name] for name in ("m", "r", "I1", "I2", "g"))
        self.mr, self.A = self.m * self.r, self.m * self.r**2
        self.B, self.weight = self.A - self.I1 + self.I2, self.mr * g

    def motion(self, y: Floats, yp: Floats, multipliers: Floats, s4: float, c4: float) -> Floats:
        """q' − v and M v' − f + Kᵀψ, with the motion of the centre split along and across the heading."""
        s3, c3 = math.sin(y[2]), math.cos(y[2])
        z3, z4, z5 = y[7:10]
        a1, a2, a3, a4, a5 = yp[5:10]
        p1, p2 = multipliers
        m, mr, A, B, I1, I2 = self.m, self.mr, self.A, self.B, self.I1, self.I2
        along = mr * (s3 * a4 + 2 * z3 * z4 * c3)
        across = mr * (c3 * a3 - (z3 * z3 + z4 * z4) * s3)
        tilting = z4 * c3 * (B * s3 * z4 + I2 * z5) + self.weight * s3
        turning = z3 * c3 * (2 * B * s3 * z4 + I2 * z5) - mr * s3 * (c4 * a1 + s4 * a2)
        return [
            yp[0] - y[5],
            yp[1] - y[6],
            yp[2] - z3,
            yp[3] - z4,
            yp[4] - z5,
            m * a1 - along * c4 - across * s4 + p1,
            m * a2 - along * s4 + across * c4 + p2,
            mr * c3 * (c4 * a2 - s4 * a1) + (A + I1) * a3 - tilting,
            ((A + I2) * s3 * s3 + I1 * c3 * c3) * a4 + I2 * s3 * a5 + turning,
            I2 * (s3 * a4 + a5 + z4 * z3 * c3) - self.r * (c4 * p1 + s4 * p2),
        ]

    def values(self, y: Floats, yp: Floats, multipliers: Floats) -> Floats:
        s4, c4, speed = math.sin(y[3]), math.cos(y[3]), self.r * y[9]
        return [*self.motion(y, yp, multipliers, s4, c4), y[5] - speed * c4, y[6] - speed * s4]

    def fill_mass(self, y: Floats, Jyp: Array) -> None:
        """The mass matrix, and the unit matrix of the kinematics."""
        s3, c3, s4, c4 = math.sin(y[2]), math.cos(y[2]), math.sin(y[3]), math.cos(y[3])
        Jyp[0, 0] = Jyp[1, 1] = Jyp[2, 2] = Jyp[3, 3] = Jyp[4, 4] = 1.0
        Jyp[5, 5] = Jyp[6, 6] = self.m
        Jyp[5, 7] = Jyp[7, 5] = -self.mr * c3 * s4
        Jyp[5, 8] = Jyp[8, 5] = -self.mr * s3 * c4
        Jyp[6, 7] = Jyp[7, 6] = self.mr * c3 * c4
        Jyp[6, 8] = Jyp[8, 6] = -self.mr * s3 * s4
        Jyp[7, 7], Jyp[9, 9] = self.A + self.I1, self.I2
        Jyp[8, 8] = (self.A + self.I2) * s3 * s3 + self.I1 * c3 * c3
        Jyp[8, 9] = Jyp[9, 8] = self.I2 * s3

    def fill_centre(self, y: Floats, yp: Floats, Jy: Array) -> None:
        """Rows of x and y: how the motion of the centre depends on angles and their velocities."""
        s3, c3, s4, c4 = math.sin(y[2]), math.cos(y[2]), math.sin(y[3]), math.cos(y[3])
        z3, z4, a3, a4, mr = y[7], y[8], yp[7], yp[8], self.mr
        squares, double = z3 * z3 + z4 * z4, 2 * z3 * z4
        along, across = mr * (s3 * a4 + double * c3), mr * (c3 * a3 - squares * s3)
        along3, across3 = mr * (c3 * a4 - double * s3), -mr * (s3 * a3 + squares * c3)
        Jy[5, 2], Jy[5, 3] = -along3 * c4 - across3 * s4, along * s4 - across * c4
        Jy[6, 2], Jy[6, 3] = -along3 * s4 + across3 * c4, -along * c4 - across * s4
        Jy[5, 7], Jy[5, 8] = 2 * mr * (s3 * z3 * s4 - c3 * z4 * c4), 2 * mr * (s3 * z4 * s4 - c3 * z3 * c4)
        Jy[6, 7], Jy[6, 8] = -2 * mr * (s3 * z3 * c4 + c3 * z4 * s4), -2 * mr * (s3 * z4 * c4 + c3 * z3 * s4)

    def fill_angles(self, y: Floats, yp: Floats, multipliers: Floats, Jy: Array) -> None:
        """Rows of tilt, heading and spin."""
        s3, c3, s4, c4 = math.sin(y[2]), math.cos(y[2]), math.sin(y[3]), math.cos(y[3])
        z3, z4, z5 = y[7:10]
        a1, a2, _, a4, a5 = yp[5:10]
        p1, p2 = multipliers
        B, I2 = self.B, self.I2
        along, across = self.mr * (c4 * a1 + s4 * a2), self.mr * (c4 * a2 - s4 * a1)
        cos2, sin2 = c3 * c3 - s3 * s3, 2 * s3 * c3
        Jy[7, 2] = -s3 * across - B * z4 * z4 * cos2 + I2 * z5 * z4 * s3 - self.weight * c3
        Jy[7, 3], Jy[7, 8], Jy[7, 9] = -c3 * along, -B * z4 * sin2 - I2 * z5 * c3, -I2 * z4 * c3
        Jy[8, 2] = B * (sin2 * a4 + 2 * cos2 * z3 * z4) + I2 * (c3 * a5 - s3 * z3 * z5) - c3 * along
        Jy[8, 3], Jy[8, 7] = -s3 * across, B * sin2 * z4 + I2 * z5 * c3
        Jy[8, 8], Jy[8, 9] = B * sin2 * z3, I2 * z3 * c3
        Jy[9, 2], Jy[9, 3] = I2 * (c3 * a4 - z3 * z4 * s3), self.r * (s4 * p1 - c4 * p2)
        Jy[9, 7], Jy[9, 8] = I2 * z4 * c3, I2 * z3 * c3

    def fill_motion(
        self, y: Floats, yp: Floats, multipliers: Floats, Jy: Array, Jyp: Array, Jm: Array
    ) -> tuple[float, float]:
        """The rows of kinematics and motion; returns sin and cos of the heading."""
        s4, c4 = math.sin(y[3]), math.cos(y[3])
        Jy[0, 5] = Jy[1, 6] = Jy[2, 7] = Jy[3, 8] = Jy[4, 9] = -1.0
        Jm[5, 0] = Jm[6, 1] = 1.0
        Jm[9, 0], Jm[9, 1] = -self.r * c4, -self.r * s4
        self.fill_mass(y, Jyp)
        self.fill_centre(y, yp, Jy)
        self.fill_angles(y, yp, multipliers, Jy)
        return s4, c4

    def fill(self, y: Floats, yp: Floats, multipliers: Floats, Jy: Array, Jyp: Array, Jm: Array) -> None:
        s4, c4 = self.fill_motion(y, yp, multipliers, Jy, Jyp, Jm)
        speed = self.r * y[9]
        Jy[10, 5] = Jy[11, 6] = 1.0
        Jy[10, 3], Jy[11, 3] = speed * s4, -speed * c4
        Jy[10, 9], Jy[11, 9] = -self.r * c4, -self.r * s4

    def violation(self, q: Array, v: Array) -> tuple[Array, Array]:
        heading = np.stack([np.cos(q[:, 3]), np.sin(q[:, 3])], axis=1)
        return np.zeros((len(q), 0)), v[:, :2] - self.r * v[:, 4:] * heading


class DiskAcceleration(DiskRolling):
    """The rolling disk with the time derivative of its rolling conditions: index 1, velocities drift."""

    def values(self, y: Floats, yp: Floats, multipliers: Floats) -> Floats:
        s4, c4 = math.sin(y[3]), math.cos(y[3])
        gain, turn = self.r * yp[9], self.r * y[9] * y[8]
        constraints = [yp[5] - gain * c4 + turn * s4, yp[6] - gain * s4 - turn * c4]
        return self.motion(y, yp, multipliers, s4, c4) + constraints

    def fill(self, y: Floats, yp: Floats, multipliers: Floats, Jy: Array, Jyp: Array, Jm: Array) -> None:
        s4, c4 = self.fill_motion(y, yp, multipliers, Jy, Jyp, Jm)
        r, z4, z5 = self.r, y[8], y[9]
        gain, turn = r * yp[9], r * z5 * z4
        Jyp[10, 5] = Jyp[11, 6] = 1.0
        Jyp[10, 9], Jyp[11, 9] = -r * c4, -r * s4
        Jy[10, 3], Jy[11, 3] = gain * s4 + turn * c4, -gain * c4 + turn * s4
        Jy[10, 8], Jy[10, 9] = r * z5 * s4, r * z4 * s4
        Jy[11, 8], Jy[11, 9] = -r * z5 * c4, -r * z4 * c4


# --- what the solvers see ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """F(y, y') = 0 with y = (q, v, x).

    x holds the multipliers or, where ``integrated``, their integrals: then the multipliers are entries of
    y', which lowers the index by one.
    """

    name: str
    mechanics: Mechanics
    integrated: bool

    @property
    def free(self) -> slice:
        """Where x lies in y."""
        return slice(2 * self.mechanics.n, None)

    def values(self, y: Array, yp: Array) -> Floats:
        """F(y, y')."""
        a, b = y.tolist(), yp.tolist()
        return self.mechanics.values(a, b, (b if self.integrated else a)[self.free])

    def matrices(self, y: Array, yp: Array) -> tuple[Array, Array]:
        """Derivatives of F with respect to y and to y'."""
        a, b = y.tolist(), yp.tolist()
        Jy, Jyp = np.zeros((len(a), len(a))), np.zeros((len(a), len(a)))
        Jm = (Jyp if self.integrated else Jy)[:, self.free]
        self.mechanics.fill(a, b, (b if self.integrated else a)[self.free], Jy, Jyp, Jm)
        return Jy, Jyp

    def start(self, state: ga.State) -> tuple[Array, Array]:
        """y and y' that belong to a state. Multipliers that only stabilise are zero."""
        known = np.concatenate([state.lam, state.psi])
        zero = np.zeros(self.mechanics.multipliers)
        multipliers = np.append(known, zero[known.size :])
        y, yp = [state.q, state.v], [state.v, state.a]
        if self.integrated:
            return np.concatenate([*y, zero]), np.concatenate([*yp, multipliers])
        return np.concatenate([*y, multipliers]), np.concatenate([*yp, zero])


def forms(problem: ga.problems.Problem) -> list[Form]:
    """The statements of a problem that are tried."""
    p = {name: float(value) for name, value in problem.args[0].items()}
    direct: Mechanics
    differentiated: Mechanics
    if problem.name == "pendulum":
        name, direct, differentiated = "GGL", PendulumStabilised(p), PendulumAcceleration(p)
    else:
        name, direct, differentiated = "index 2", DiskRolling(p), DiskAcceleration(p)
    return [
        Form(f"{name}∫", direct, integrated=True),
        Form(name, direct, integrated=False),
        Form("index 1", differentiated, integrated=False),
    ]


class Check(NamedTuple):
    """Largest residual, and largest error of a Jacobian, both relative to the largest entry."""

    residual: float
    jacobian: float


def check(form: Form, states: Sequence[ga.State]) -> Check:
    """How well F vanishes at states of the true motion, and how well the Jacobians are its derivatives."""
    residuals, jacobians = [], []
    for state in states:
        y, yp = form.start(state)
        terms = 1 + max(np.abs(matrix).max() for matrix in form.matrices(y, yp))
        residuals.append(float(np.abs(form.values(y, yp)).max() / terms))
        shift = 0.1 * np.sin(np.arange(1.0, 1 + y.size))
        jacobians.append(_mismatch(form, y + shift, yp - shift))
    return Check(max(residuals), max(jacobians))


def _mismatch(form: Form, y: Array, yp: Array, step: float = 1e-6) -> float:
    """Largest difference between the Jacobians and central differences, relative to their entries."""
    shifts = step * np.eye(y.size)
    by_y = [np.subtract(form.values(y + d, yp), form.values(y - d, yp)) for d in shifts]
    by_yp = [np.subtract(form.values(y, yp + d), form.values(y, yp - d)) for d in shifts]
    pairs = zip(form.matrices(y, yp), (by_y, by_yp), strict=True)
    return max(
        float(np.abs(exact - np.array(columns).T / (2 * step)).max() / (1 + np.abs(exact).max()))
        for exact, columns in pairs
    )


# --- the solvers -------------------------------------------------------------------------------------


class Path(NamedTuple):
    """What a run leaves: q and v (N+1, n) at its steps, and whether it reached the end."""

    q: Array
    v: Array
    success: bool


@dataclass(frozen=True)
class Peer:
    """A solver with everything settled but the tolerance."""

    solver: str
    detail: str
    run: Callable[[float], Path]


def peers(problem: ga.problems.Problem, state: ga.State) -> list[Peer]:
    """All solvers in all variants that work, from consistent initial values.

    scipy_dae gets the statement of its own examples, with integrals of the multipliers; on the others its
    BDF fails or takes forever. IDA gets all of them, but index 2 without integrals only with the
    multipliers taken out of the error test, which they make fail.
    """
    integrated, direct, differentiated = forms(problem)
    found = []
    for analytic in (True, False):
        jac = "J" if analytic else "fd"
        for stages in (3, 5):
            run = _scipy_dae(problem, state, integrated, analytic, method="Radau", stages=stages)
            found.append(Peer("scipy_dae Radau", f"{integrated.name} s{stages} {jac}", run))
        run = _scipy_dae(problem, state, integrated, analytic, method="BDF")
        found.append(Peer("scipy_dae BDF", f"{integrated.name} {jac}", run))
        for form in (integrated, direct, differentiated):
            for test in (True, False):
                if form is direct and test:
                    continue
                run = _ida(problem, state, form, analytic, test)
                found.append(Peer("sksundae IDA", f"{form.name} {jac}{'' if test else ' free'}", run))
    return found


def _scipy_dae(
    problem: ga.problems.Problem, state: ga.State, form: Form, analytic: bool, **options: Any
) -> Callable[[float], Path]:
    y0, yp0 = form.start(state)
    n = form.mechanics.n
    if analytic:
        options["jac"] = lambda t, y, yp: form.matrices(y, yp)

    def run(tolerance: float) -> Path:
        sol = solve_dae(
            lambda t, y, yp: form.values(y, yp),
            problem.t_span,
            y0,
            yp0,
            rtol=tolerance,
            atol=tolerance,
            **options,
        )
        return Path(sol.y[:n].T, sol.y[n : 2 * n].T, bool(sol.success))

    return run


def _ida(
    problem: ga.problems.Problem, state: ga.State, form: Form, analytic: bool, test_multipliers: bool
) -> Callable[[float], Path]:
    y0, yp0 = form.start(state)
    n = form.mechanics.n
    algebraic = None if form.integrated else list(range(y0.size)[form.free])

    def residual(t: float, y: Array, yp: Array, out: Array) -> None:
        out[:] = form.values(y, yp)

    def jacobian(t: float, y: Array, yp: Array, res: Array, cj: float, out: Array) -> None:
        Jy, Jyp = form.matrices(y, yp)
        Jyp *= cj
        np.add(Jy, Jyp, out=out)

    def run(tolerance: float) -> Path:
        atol = np.full(y0.size, tolerance)
        if not test_multipliers:
            atol[form.free] = _FREE
        solver = IDA(
            residual,
            rtol=tolerance,
            atol=atol,
            algebraic_idx=algebraic,
            jacfn=jacobian if analytic else None,
            max_num_steps=100_000,
        )
        sol = solver.solve(problem.t_span, y0, yp0)
        return Path(sol.y[:, :n], sol.y[:, n : 2 * n], bool(sol.success))

    return run
