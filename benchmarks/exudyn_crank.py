"""The flexible slider crank in Exudyn, its rod in a floating frame of reference.

Exudyn's element is meant for finite elements reduced to modes, but takes any integrals over the mass. Given
those of the beam of genalpha, the nodes of the beam serving as modes, it has the same equations: masses and
forces agree to rounding in any state. The frame lies in space, and three constraints keep it in the plane.

Exudyn's load in proportion to the mass leaves out that bending shifts the centre of mass, an error of 1e-6 in
the angle of the crank. Weight is therefore a force at the centre of mass, which is stated as a point of the
rod that bending moves. The torque is an expression that Exudyn evaluates without Python.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from benchmarks.exudyn_bodies import Model, Parts, Problem
from benchmarks.exudyn_top import Array, exudyn
from genalpha.problems._yen import _DENSITY, _INERTIA, _LENGTH, _MASS, _PULSE, _SIDE, rod_matrices

UP = np.array([0.0, 1.0, 0.0])
TURN_UP = np.array([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])  # x ↦ UP × x


def flexible_slider_crank(problem: Problem) -> Model:
    """The problem with its defaults but for the numbers in ``args`` and the number of elements."""
    (p,), parts = problem.args, Parts()
    (m1, m2, m3), (l1, l2) = _MASS, _LENGTH
    items, system = parts.items, parts.system
    crank_node = system.AddNode(items.Node1D(referenceCoordinates=[0.0]))
    crank = system.AddObject(items.ObjectRotationalMass1D(inertia=_INERTIA[0], nodeNumber=crank_node))
    frame, rod = rod_in_frame(parts, len(problem.q0) - 3, p["modulus"])
    slider_node = system.AddNode(items.Node1D(referenceCoordinates=[0.0]))
    at = {"referencePosition": [l1 + l2, 0.0, 0.0], "nodeNumber": slider_node}
    slider = system.AddObject(items.ObjectMass1D(mass=m3, **at))

    centre, tip = (
        system.AddMarker(
            items.MarkerSuperElementPosition(bodyNumber=rod, meshNodeNumbers=[i], weightingFactors=[1.0])
        )
        for i in (0, 1)
    )
    parts.pin(parts.point(crank, [l1, 0.0]), system.AddMarker(items.MarkerNodePosition(nodeNumber=frame)))
    parts.pin(parts.point(slider, [0.0, 0.0]), tip)
    still = parts.coordinate(system.AddNode(items.NodePointGround()), 0)
    for number in (2, 3, 4):  # z, and turns about x and y
        ends = [still, parts.coordinate(frame, number)]
        system.AddObject(items.ObjectConnectorCoordinate(markerNumbers=ends))

    for marker, mass in ((parts.point(crank, [l1 / 2, 0.0]), m1), (centre, m2)):
        weight = -mass * p["gravity"] * UP
        system.AddLoad(items.LoadForceVector(markerNumber=marker, loadVector=weight))
    drive(parts, parts.coordinate(crank_node, 0), p["torque"] / _PULSE)

    def q() -> Array:
        angle, *place, x3 = parts.coordinates()
        return np.array([angle, place[5], l1 + l2 + x3, *place[6:]])

    return parts.model(q)


def rod_in_frame(parts: Parts, n: int, modulus: float) -> tuple[Any, Any]:
    """The node of the frame, and the rod with its centre of mass and its tip as points 0 and 1.

    A point (x, y) of the rod moves by (−y ψ', ψ) with a mode ψ. Integrals of odd powers of y vanish, and of
    matrices only what belongs to turns in the plane is filled in.
    """
    items, system, length = parts.items, parts.system, _LENGTH[1]
    beam = rod_matrices(n // 2, length, _SIDE, _DENSITY, "global")
    zero = np.zeros(n)
    frame = system.AddNode(items.NodeRigidBodyRxyz(referenceCoordinates=[_LENGTH[0], *[0.0] * 5]))
    node = items.NodeGenericODE2(
        referenceCoordinates=zero,
        initialCoordinates=zero,
        initialCoordinates_t=zero,
        numberOfODE2Coordinates=n,
    )
    tip = np.eye(n)[n - 2]
    rod = items.ObjectFFRFreducedOrder(
        nodeNumbers=[frame, system.AddNode(node)],
        massMatrixReduced=contained(beam.M),
        stiffnessMatrixReduced=contained(modulus * beam.K),
        dampingMatrixReduced=[],
        modeBasis=np.vstack([np.outer(UP, beam.moment / _MASS[1]), np.outer(UP, tip)]),
        referencePositions=[length / 2, 0.0, 0.0, length, 0.0, 0.0],
        mass=_MASS[1],
        inertia=_INERTIA[1] * np.eye(3),
        centerOfMass=[length / 2, 0.0, 0.0],
        mPsiTildePsi=np.zeros((3 * n, n)),
        mPsiTildePsiTilde=np.kron(beam.M, np.diag([0.0, 0.0, 1.0])),
        mPhitTPsi=np.outer(UP, beam.moment),
        mPhitTPsiTilde=np.kron(beam.moment, TURN_UP),
        mXRefTildePsi=np.outer([0.0, 0.0, -1.0], beam.coupling),
        mXRefTildePsiTilde=np.zeros((3, 3 * n)),
    )
    return frame, system.AddObject(rod)


def contained(matrix: Array) -> Any:
    """A matrix in Exudyn's hands."""
    container = exudyn().MatrixContainer()
    container.SetWithDenseMatrix(matrix, useDenseMatrix=True)
    return container


def drive(parts: Parts, coordinate: Any, size: float) -> None:
    """The smooth torque."""
    symbolic = exudyn().symbolic

    def torque(mbs: Any, t: Any, load: Any) -> Any:
        pulse = load * (1 - symbolic.cos(2 * math.pi / _PULSE * t))
        return symbolic.IfThenElse(t <= _PULSE, pulse, symbolic.Real(0.0))

    load = parts.system.AddLoad(parts.items.LoadCoordinate(markerNumber=coordinate, load=size))
    tools = importlib.import_module("exudyn.advancedUtilities")
    expression = tools.CreateSymbolicUserFunction(parts.system, torque, "loadUserFunction", load)
    parts.system.SetLoadParameter(load, "loadUserFunction", expression)
    parts.kept.append(expression)
