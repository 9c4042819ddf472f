"""The heavy top in Exudyn, a multibody code in C++ with a generalized-α method of its own.

``python -m benchmarks.exudyn_top`` prints what every preset costs and how exact it is.

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
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np

Array = np.ndarray
Formulation = Literal["angles", "parameters", "vector"]
Newton = Literal["step", "modified", "default", "full"]

MASS = 15.0
INERTIA = np.diag([0.234375, 0.46875, 0.234375])  # about the centre of mass
CENTRE = np.array([0.0, 1.0, 0.0])  # from the fixed point, in axes of the body and, at t = 0, of space
GRAVITY = np.array([0.0, 0.0, -9.81])
OMEGA0 = np.array([0.0, 150.0, -4.61538])
U0 = np.cross(OMEGA0, CENTRE)

X1 = np.array([0.173343964098386042592, 0.640088592070568782861, -0.748490791133581309484])
LAM1 = np.array([-517.600739476900040560, -396.843101489554226862, 404.574925162884662193])

SPIN_LAST = np.array([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])  # turns y of the body into z

NODES = {
    "angles": "RotationRxyz",
    "parameters": "RotationEulerParameters",
    "vector": "RotationRotationVector",
}
PRESETS: dict[str, dict[str, Any]] = {
    "angles": {},
    "angles, 1e-10": {"tolerance": 1e-10},
    "angles, modified": {"newton": "modified"},
    "angles, default": {"newton": "default"},
    "angles, full": {"newton": "full"},
    "angles, index 2": {"index2_velocity": True},
    "parameters": {"formulation": "parameters"},
    "parameters, default": {"formulation": "parameters", "newton": "default"},
    "parameters, full": {"formulation": "parameters", "newton": "full"},
    "parameters, index 2": {"formulation": "parameters", "index2_velocity": True},
    "vector": {"formulation": "vector"},
    "vector, index 2": {"formulation": "vector", "index2_velocity": True},
}


@dataclass(frozen=True)
class Result:
    """The end of a run and what it cost.

    ``omega`` is in axes of the body, ``lam`` the force of the joint on the body in axes of space. Times are
    medians over the repeats, of the call (``seconds``) and by Exudyn's own clock (``own_seconds``).
    ``iterations`` and ``jacobians`` (each with a factorization) are means per step.
    """

    x: Array
    omega: Array
    lam: Array
    steps: int
    seconds: float
    own_seconds: float
    iterations: float
    jacobians: float


@dataclass(frozen=True)
class Point:
    """Relative errors at t = 1 with one step size, and the run; infinite and None where Exudyn gave up."""

    h: float
    error_x: float
    error_lam: float
    result: Result | None


@cache
def exudyn() -> Any:
    """The package, in its variant compiled without checks of ranges, which has to be asked for beforehand."""
    sys.exudynFast = True  # type: ignore[attr-defined]
    with contextlib.redirect_stdout(io.StringIO()):  # it announces itself
        return importlib.import_module("exudyn")


def model(formulation: Formulation) -> tuple[Any, Any, Any, Array]:
    """The owner of it all, the assembled system, the body, and the rotation to its axes in the model."""
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
    return container, system, body, turn


def settings(
    steps: int, t_end: float, rho_inf: float, newton: Newton, index2_velocity: bool, tolerance: float
) -> Any:
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
    alpha.useIndex2Constraints = alpha.useNewmark = index2_velocity
    alpha.lieGroupSimplifiedKinematicRelations = not index2_velocity
    return chosen


def run(
    h: float,
    *,
    t_end: float = 1.0,
    rho_inf: float = 0.9,
    newton: Newton = "step",
    formulation: Formulation = "angles",
    index2_velocity: bool = False,
    tolerance: float = 1e-8,
    repeats: int = 1,
) -> Result:
    """Solve from 0 to ``t_end`` in equal steps of about ``h``; the model is assembled before the clock runs.

    The call that is timed is the one ``SolveDynamic`` wraps, without the wrapper's 50 µs.
    """
    exu, steps = exudyn(), max(1, round(t_end / h))
    _owner, system, body, turn = model(formulation)
    chosen = settings(steps, t_end, rho_inf, newton, index2_velocity, tolerance)
    seconds, own = [], []
    for _ in range(repeats):
        solver = exu.MainSolverImplicitSecondOrder()  # starts from the initial values again
        begin = time.perf_counter()
        success = solver.SolveSystem(system, chosen)
        seconds.append(time.perf_counter() - begin)
        own.append(solver.timer.total)
        if not success:
            raise RuntimeError(f"Exudyn gave up at t = {solver.it.currentTime:g}: {solver.GetErrorString()}")
    kind, origin = exu.OutputVariableType, [0.0, 0.0, 0.0]
    return Result(
        x=np.array(system.GetObjectOutputBody(body, kind.Position, origin)),
        omega=turn.T @ system.GetObjectOutputBody(body, kind.AngularVelocityLocal, origin),
        lam=-np.array(system.systemData.GetAECoordinates()[-3:]),  # Exudyn has them on the left-hand side
        steps=steps,
        seconds=statistics.median(seconds),
        own_seconds=statistics.median(own),
        iterations=solver.it.newtonStepsCount / steps,
        jacobians=solver.it.newtonJacobiCount / steps,
    )


def relative(found: Array, true: Array) -> float:
    """Relative error."""
    return float(np.linalg.norm(found - true) / np.linalg.norm(true))


def work_precision(step_sizes: Sequence[float], *, repeats: int = 5, **options: Any) -> list[Point]:
    """Errors at t = 1 and times for each step size; ``options`` are those of :func:`run`."""
    points = []
    for h in step_sizes:
        try:
            end = run(h, repeats=repeats, **options)
        except RuntimeError:
            points.append(Point(h, np.inf, np.inf, None))
        else:
            points.append(Point(h, relative(end.x, X1), relative(end.lam, LAM1), end))
    return points


def main() -> None:
    """One table: presets and step sizes."""
    print(f"Exudyn {exudyn().__version__}, errors at t = 1, ρ∞ = 0.9")
    print("preset                        h   error x   error λ  µs/step    own    it.   jac.")
    for name, options in PRESETS.items():
        for point in work_precision((4e-3, 2e-3, 1e-3, 5e-4, 2.5e-4), repeats=21, **options):
            line = f"{name:22} {point.h:8g} {point.error_x:9.2e} {point.error_lam:9.2e}"
            if end := point.result:
                line += f" {1e6 * end.seconds / end.steps:8.2f} {1e6 * end.own_seconds / end.steps:6.2f}"
                line += f" {end.iterations:6.2f} {end.jacobians:6.2f}"
            print(line)


if __name__ == "__main__":
    main()
