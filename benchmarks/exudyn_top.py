"""The heavy top in Exudyn, a multibody code in C++ with a generalized-α method of its own.

The body's node sits at the centre of mass, a spherical joint holds it to the ground, and Exudyn solves for
the joint's force. Rotations are stated in one of three ways:

``"angles"``      Three angles, with the axes of the body relabelled so that the spin is the last of them.
                  They are singular with the top along ±x, which it avoids: -0.92 < x < 0.61 until t = 1.
``"parameters"``  Euler parameters, Exudyn's default; the length of the quaternion is a fourth constraint.
``"vector"``      Rotation vectors on the Lie group; with positions as constraints in the older of two kinds
                  of kinematics, as the newer, the default, fails here with ρ∞ = 0.9 and h > 1e-4.

Constraints are positions (index 3), or velocities (index 2), which Exudyn offers with the trapezoidal rule
only: ρ∞ is without effect there. ``newton`` says when there is a new Jacobian: in every iteration
(``"full"``), once a step (``"step"``), or when three iterations were not enough (``"modified"``; eight of
them, or slow convergence, are Exudyn's own rule, ``"default"``). Once a step is the fastest, for angles with
h < 5e-4 ``"modified"``. Analytic Jacobians and dense matrices, both defaults, are the fastest too.

Exudyn iterates until the Euclidean norm of the residual, forces and constraints in one vector without
weights, is ``tolerance`` times what it was with accelerations and multipliers zero, where every step starts.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import sys
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import genalpha as ga

Array = np.ndarray
Formulation = Literal["angles", "parameters", "vector"]
Newton = Literal["step", "modified", "default", "full"]

MASS = 15.0
INERTIA = np.diag([0.234375, 0.46875, 0.234375])  # about the centre of mass
CENTRE = np.array([0.0, 1.0, 0.0])  # from the fixed point, in axes of the body and, at t = 0, of space
GRAVITY = np.array([0.0, 0.0, -9.81])
OMEGA0 = np.array([0.0, 150.0, -4.61538])
U0 = np.cross(OMEGA0, CENTRE)

SPIN_LAST = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # turns y of the body into z

NODES = {
    "angles": "RotationRxyz",
    "parameters": "RotationEulerParameters",
    "vector": "RotationRotationVector",
}
PRESETS: list[dict[str, Any]] = [
    {"formulation": formulation} | options
    for formulation in NODES
    for options in (
        {"newton": "step"},
        {"newton": "modified"},
        {"newton": "default"},
        {"newton": "full"},
        {"newton": "step", "index2": True},
    )
]


@dataclass(frozen=True)
class Result:
    """A run: x at the end, the force of the joint on the body in axes of space from the start on (N+1, 3).

    ``iterations`` and ``jacobians`` (each with a factorization) are means per step, ``position`` and
    ``velocity`` the largest residuals of the constraints at any step.
    """

    x: Array
    lam: Array
    iterations: float
    jacobians: float
    position: float
    velocity: float


@cache
def exudyn() -> Any:
    """The package, in its variant compiled without checks of ranges, which has to be asked for beforehand."""
    sys.exudynFast = True  # type: ignore[attr-defined]
    with contextlib.redirect_stdout(io.StringIO()):  # it announces itself
        return importlib.import_module("exudyn")


def model(formulation: Formulation) -> tuple[Any, Any, Any, Array]:
    """The owner of it all, the assembled system, the body, and where it is held in its axes in the model."""
    exu = exudyn()
    bodies = importlib.import_module("exudyn.rigidBodyUtilities")
    turn = SPIN_LAST if formulation == "angles" else np.eye(3)
    container = exu.SystemContainer()
    system = container.AddSystem()
    body = system.CreateRigidBody(
        nodeType=getattr(exu.NodeType, NODES[formulation]),
        inertia=bodies.RigidBodyInertia(MASS, turn @ INERTIA @ turn.T),
        referencePosition=CENTRE,
        referenceRotationMatrix=turn.T,
        initialVelocity=U0,
        initialAngularVelocity=OMEGA0,
        gravity=GRAVITY,
    )
    system.CreateSphericalJoint(itemNumbers=[system.CreateGround(), body], position=[0.0, 0.0, 0.0])
    system.Assemble()
    return container, system, body, -turn @ CENTRE


def settings(steps: int, t_end: float, rho_inf: float, newton: Newton, index2: bool, tolerance: float) -> Any:
    """Exudyn's settings: a constant step size, one thread, no output of any kind."""
    chosen = exudyn().SimulationSettings()
    chosen.solution.file.write = False
    chosen.solution.sensors.active = False
    chosen.show.globalTimers = False
    chosen.parallel.numberOfThreads = 1
    integration = chosen.timeIntegration
    integration.numberOfSteps, integration.endTime = steps, t_end
    integration.adaptiveStep = integration.automaticStepSize = False
    integration.verboseMode = 0
    integration.newton.useModifiedNewton = newton != "full"
    integration.newton.modifiedNewtonJacUpdatePerStep = newton == "step"
    if newton == "modified":
        integration.newton.maxModifiedNewtonIterations = 3
    integration.newton.relativeTolerance = tolerance
    integration.newton.absoluteTolerance = 0.01 * tolerance  # as by default; without effect here
    alpha = integration.generalizedAlpha
    alpha.spectralRadius = rho_inf
    alpha.useIndex2Constraints = alpha.useNewmark = index2
    alpha.lieGroupSimplifiedKinematicRelations = not index2
    return chosen


def solve(system: Any, chosen: Any) -> Any:
    """Solve from the initial values on, by the call that ``SolveDynamic`` wraps; returns the solver.

    The wrapper's 50 µs are left out.
    """
    solver = exudyn().MainSolverImplicitSecondOrder()
    if not solver.SolveSystem(system, chosen):
        raise RuntimeError(f"Exudyn gave up at t = {solver.it.currentTime:g}: {solver.GetErrorString()}")
    return solver


class Top:
    """The top, assembled and ready to be solved from 0 to ``t_end`` in equal steps of about ``h``."""

    def __init__(
        self,
        h: float,
        *,
        t_end: float = 1.0,
        rho_inf: float = 0.9,
        newton: Newton = "step",
        formulation: Formulation = "angles",
        index2: bool = False,
        tolerance: float = 1e-8,
    ) -> None:
        self.steps = max(1, round(t_end / h))
        self._owner, self._system, self._body, self._held = model(formulation)
        self._settings = settings(self.steps, t_end, rho_inf, newton, index2, tolerance)

    def solve(self) -> Any:
        """Solve from the initial values on; returns the solver."""
        return solve(self._system, self._settings)

    def result(self) -> Result:
        """Solve once more with a look at every step, which takes longer."""
        kinds, seen = exudyn().OutputVariableType, []

        def look(system: Any, t: float) -> bool:
            off = [
                system.GetObjectOutputBody(self._body, kind, self._held)
                for kind in (kinds.Position, kinds.Velocity)
            ]
            seen.append([-system.systemData.GetAECoordinates()[-3:], *off])  # on the left-hand side in Exudyn
            return True

        self._system.SetPostStepUserFunction(look)
        try:
            done = self.solve().it
        finally:
            self._system.SetPostStepUserFunction(0)
        lam, position, velocity = np.array(seen).transpose(1, 0, 2)
        return Result(
            x=np.array(self._system.GetObjectOutputBody(self._body, kinds.Position, [0.0, 0.0, 0.0])),
            lam=lam,
            iterations=done.newtonStepsCount / self.steps,
            jacobians=done.newtonJacobiCount / self.steps,
            position=float(abs(position).max()),
            velocity=float(abs(velocity).max()),
        )


def in_angles() -> ga.problems.Problem:
    """The same for genalpha: x and the three angles of R = Rx(a) Ry(b) Rz(c), axes relabelled as above."""
    J = jnp.asarray(SPIN_LAST @ np.diag(INERTIA))

    def omega(q: Any, w: Any) -> Any:
        """Angular velocity in axes of the body, from the rates of the angles."""
        (sb, sc), (cb, cc) = jnp.sin(q[4:]), jnp.cos(q[4:])
        return jnp.stack([cb * cc * w[0] + sc * w[1], cc * w[1] - cb * sc * w[0], sb * w[0] + w[2]])

    def rates(q: Any) -> Any:
        return jax.vmap(partial(omega, q), out_axes=1)(jnp.eye(3))

    def mass(t: Any, q: Any) -> Any:
        turning = rates(q).T @ (J[:, None] * rates(q))
        return jnp.zeros((6, 6)).at[:3, :3].set(MASS * jnp.eye(3)).at[3:, 3:].set(turning)

    def force(t: Any, q: Any, v: Any) -> Any:
        spin, change = jax.jvp(lambda q: omega(q, v[3:]), (q,), (v,))
        moment = -ga.rotation.cross(spin, J * spin) - J * change
        return jnp.concatenate([MASS * jnp.asarray(GRAVITY), rates(q).T @ moment])

    def holonomic(t: Any, q: Any) -> Any:
        (sa, sb), (ca, cb) = jnp.sin(q[3:5]), jnp.cos(q[3:5])
        return jnp.stack([sb, -sa * cb, ca * cb]) - q[:3]

    q0 = np.array([*CENTRE, -np.pi / 2, 0.0, -np.pi / 2])
    v0 = np.array([*U0, *np.linalg.solve(rates(q0), SPIN_LAST @ OMEGA0)])
    return ga.problems.Problem(
        name="heavy-top",
        title="Heavy top in angles",
        system=ga.System(mass=mass, force=force, holonomic=holonomic),
        t_span=(0.0, 1.0),
        q0=q0,
        v0=v0,
        coordinates=("x", "y", "z", "a", "b", "c"),
        source="ACB15 appendix A.1, in angles",
        h=1e-3,
    )
