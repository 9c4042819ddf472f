"""A model of :mod:`genalpha.multibody` in Exudyn: the same bodies, joints and forces, from its own elements.

Nodes are at centres of mass. Joints are Exudyn's own where it has them, and its generic joint elsewhere. Rows
that ``assemble`` has left out as redundant are left out there too. Bushings with stiffness about their axes
are refused, because Exudyn measures such rotations by angles and genalpha by a rotation vector.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from benchmarks.exudyn_top import NODES, Array, exudyn, settings, solve
from genalpha import multibody as mb
from genalpha.multibody.frames import quaternion_of
from genalpha.multibody.markers import Marker

# Axes of the generic joint, three displacements and three rotations, for the rows of a joint.
ROWS = {"x": 0, "y": 1, "z": 2, "about x": 3, "about y": 4, "about z": 5}
TOLERANCES = (1e-4, 1e-8)
DENSE = 30  # the most bodies with which dense matrices are tried


class Variant(NamedTuple):
    """How Exudyn runs: coordinates, rule for new matrices, linear solver, index, and Newton's tolerance."""

    formulation: str
    rule: str
    linear: str
    index2: bool
    tol: float

    def __str__(self) -> str:
        index = "index 2" if self.index2 else "index 3"
        return f"{index}, {self.formulation}, {self.rule}, {self.linear}, {self.tol:.0e}"


def variants(model: mb.Model) -> list[Variant]:
    """All that are tried, with the tighter tolerance."""
    many, flat = len(model.bodies) > DENSE, not any(isinstance(b, mb.Body) for b in model.bodies)
    formulations = ("planar",) if flat else ("angles", "parameters") if many else tuple(NODES)
    linear = ("EigenSparse",) if many else ("EigenSparse", "EXUdense")
    rules = ("step", "modified", "default")
    return [Variant(*v, TOLERANCES[-1]) for v in product(formulations, rules, linear, (False, True))]


class Mechanism:
    """The model, assembled in Exudyn, with rotations of bodies by a formulation of ``NODES``."""

    def __init__(self, model: mb.Model, formulation: str) -> None:
        self.model, self.exu = model, exudyn()
        self.items = importlib.import_module("exudyn.itemInterface")
        self.owner = self.exu.SystemContainer()
        self.system = self.owner.AddSystem()
        self.bodies = {"ground": self.system.AddObject(self.items.ObjectGround())}
        for body in model.bodies:
            self.bodies[body.name] = self._body(body, formulation)
        for group in model.groups:
            for member in group.members:
                ADDED[type(member).__name__](self, member)
        self.system.Assemble()

    def _body(self, body: Any, formulation: str) -> Any:
        if isinstance(body, mb.Body):
            return self._rigid(body, formulation)
        if isinstance(body, mb.PlanarBody):
            start = {"referenceCoordinates": body.coordinates(), "initialVelocities": body.velocities()}
            node = self.system.AddNode(self.items.NodeRigidBody2D(**start))
            inert = {"mass": body.mass, "inertia": body.moment}
            made = self.system.AddObject(self.items.ObjectRigidBody2D(nodeNumber=node, **inert))
        else:
            start = {"referenceCoordinates": body.x, "initialVelocities": body.velocity}
            node = self.system.AddNode(self.items.NodePoint(**start))
            made = self.system.AddObject(self.items.ObjectMassPoint(mass=body.mass, nodeNumber=node))
        at = self.system.AddMarker(self.items.MarkerBodyPosition(bodyNumber=made))
        weight = body.mass * self.model.gravity
        self.system.AddLoad(self.items.LoadForceVector(markerNumber=at, loadVector=weight))
        return made

    def _rigid(self, body: mb.Body, formulation: str) -> Any:
        tools = importlib.import_module("exudyn.rigidBodyUtilities")
        return self.system.CreateRigidBody(
            nodeType=getattr(self.exu.NodeType, NODES[formulation]),
            inertia=tools.RigidBodyInertia(body.mass, body.inertia.tensor),
            referencePosition=body.x,
            referenceRotationMatrix=body.R,
            initialVelocity=body.velocity,
            initialAngularVelocity=body.angular_velocity,
            gravity=self.model.gravity,
        )

    def point(self, marker: Marker) -> Any:
        """A point of a body."""
        at = {"bodyNumber": self.bodies[marker.body.name], "localPosition": marker.r}
        return self.system.AddMarker(self.items.MarkerBodyPosition(**at))

    def frame(self, marker: Marker, axes: Array | None = None) -> Any:
        """A frame on a body, with other ``axes`` (3, 3) in it than those of the marker, if given."""
        Q = marker.Q if axes is None else marker.Q @ axes
        at = self.exu.HT(rotation=Q, translation=marker.r)
        number = self.bodies[marker.body.name]
        return self.system.AddMarker(self.items.MarkerBodyRigid(bodyNumber=number, localHT=at))

    def frames(self, member: Any) -> list[Any]:
        return [self.frame(marker) for marker in member.markers]

    def add(self, kind: str, markers: list[Any], **options: Any) -> None:
        self.system.AddObject(getattr(self.items, kind)(markerNumbers=markers, **options))

    def runner(self, variant: Variant, steps: int, t_end: float, rho_inf: float) -> Callable[[], Any]:
        """A run from the start on, to be called."""
        rule: Any = variant.rule
        chosen = settings(steps, t_end, rho_inf, rule, variant.index2, variant.tol)
        chosen.linearSolver.solverType = getattr(self.exu.LinearSolverType, variant.linear)
        chosen.linearSolver.reuseAnalyzedPattern = True
        return lambda: solve(self.system, chosen)

    def state(self) -> tuple[Array, Array]:
        """q and v of genalpha at the end of the last run."""
        kinds, (q, v) = self.exu.OutputVariableType, ([], [])
        for body in self.model.bodies:
            of = lambda kind, number=self.bodies[body.name]: np.array(
                self.system.GetObjectOutputBody(number, kind, [0.0, 0.0, 0.0])
            )
            x: Any = of(kinds.Position)
            u: Any = of(kinds.Velocity)
            if isinstance(body, mb.PlanarBody):
                R = of(kinds.RotationMatrix).reshape(3, 3)
                x, u = [*x[:2], np.arctan2(R[1, 0], R[0, 0])], [*u[:2], of(kinds.AngularVelocity)[2]]
            elif isinstance(body, mb.Body):
                R = of(kinds.RotationMatrix).reshape(3, 3)
                x, u = [*x, *quaternion_of(R)], [*u, *(R.T @ of(kinds.AngularVelocity))]
            q.append(x)
            v.append(u)
        return np.concatenate(q), np.concatenate(v)


# --- joints and forces -----------------------------------------------------------------------------------


def _held(to: Mechanism, joint: Any) -> None:
    """The generic joint that holds all rows of a joint that are not left out."""
    axes = [0] * 6
    for _, name in joint.kept(speeds=False):
        axes[ROWS[name]] = 1
    to.add("ObjectJointGeneric", to.frames(joint), constrainedAxes=axes)


def _revolute(to: Mechanism, joint: Any) -> None:
    if joint.dropped:
        _held(to, joint)
    else:
        to.add("ObjectJointRevoluteZ", to.frames(joint))


def _prismatic(to: Mechanism, joint: Any) -> None:
    """x of Exudyn's joint is its axis."""
    if joint.dropped:
        _held(to, joint)
    else:
        turned = np.eye(3)[:, [2, 0, 1]]
        to.add("ObjectJointPrismaticX", [to.frame(marker, turned) for marker in joint.markers])


def _spherical(to: Mechanism, joint: Any) -> None:
    to.add("ObjectJointSpherical", [to.point(marker) for marker in joint.markers])


def _pin(to: Mechanism, joint: Any) -> None:
    to.add("ObjectJointRevolute2D", [to.point(marker) for marker in joint.markers])


def _universal(to: Mechanism, joint: Any) -> None:
    """With one rotation held, about x, y of the first frame and z of the second are perpendicular."""
    turned = np.eye(3)[:, [0, 2, 1]] * np.array([1.0, 1.0, -1.0])  # its y is z of the frame
    markers = [to.frame(joint.markers[0], turned), to.frame(joint.markers[1])]
    to.add("ObjectJointGeneric", markers, constrainedAxes=[1, 1, 1, 1, 0, 0])


def _distance(to: Mechanism, joint: Any) -> None:
    length = float(joint.numbers["length"])
    to.add("ObjectConnectorDistance", [to.point(marker) for marker in joint.markers], distance=length)


def _spring(to: Mechanism, force: Any) -> None:
    of = {key: float(force.numbers[key]) for key in ("stiffness", "damping")}
    length = float(force.numbers["length"])
    markers = [to.point(marker) for marker in force.markers]
    to.add("ObjectConnectorSpringDamper", markers, referenceLength=length, **of)


def _along(to: Mechanism, force: Any, size: float, **options: Any) -> None:
    """A force along a slider, or a torque about a hinge."""
    if force.driven.turns:
        to.add("ObjectConnectorTorsionalSpringDamper", to.frames(force), torque=size, **options)
    else:
        axis = {"axisMarker0": [0.0, 0.0, 1.0]}
        to.add("ObjectConnectorLinearSpringDamper", to.frames(force), force=size, **axis, **options)


def _joint_spring(to: Mechanism, force: Any) -> None:
    of = force.numbers
    given = {"stiffness": float(of["stiffness"]), "damping": float(of["damping"])}
    _along(to, force, 0.0, offset=float(of["free"]), **given)


def _motor(to: Mechanism, force: Any) -> None:
    if force.functions.keys() - {"coordinate"} or "limit" in force.numbers:
        raise ValueError(f"{force!r} has a function or a limit")
    _along(to, force, -float(force.numbers["effort"]))  # its sign is that of a spring under tension


def _bushing(to: Mechanism, force: Any) -> None:
    k, c = force.numbers["stiffness"], force.numbers["damping"]
    if k[3:].any():
        raise ValueError(f"{force!r} has stiffness about its axes")
    given = {"stiffness": np.diag(k), "damping": np.diag(c)}
    to.add("ObjectConnectorRigidBodySpringDamper", to.frames(force), **given)


def _applied(to: Mechanism, force: Any) -> None:
    of, marker = force.numbers, to.point(force.markers[0])
    if force.functions or of["torque"].any() or of["follows"]:
        raise ValueError(f"{force!r} is not a constant force")
    to.system.AddLoad(to.items.LoadForceVector(markerNumber=marker, loadVector=of["force"]))


ADDED: dict[str, Callable[[Mechanism, Any], None]] = {
    "Revolute": _revolute,
    "Prismatic": _prismatic,
    "Spherical": _spherical,
    "PlanarRevolute": _pin,
    "Universal": _universal,
    "Distance": _distance,
    "PointOnPlane": _held,
    "SpringDamper": _spring,
    "JointSpring": _joint_spring,
    "Motor": _motor,
    "Bushing": _bushing,
    "AppliedForce": _applied,
}
