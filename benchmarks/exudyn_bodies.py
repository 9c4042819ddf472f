"""The pendulum, Andrews' squeezing mechanism and the rolling disk from Exudyn's rigid bodies and joints.

See :mod:`benchmarks.exudyn_models` for how they are run.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import genalpha as ga
from benchmarks.exudyn_top import NODES, Array, exudyn
from genalpha.problems._andrews import _DATA as SIZES

Problem = ga.problems.Problem


class Model(NamedTuple):
    """The owner of it all, the assembled system, and a function that reads genalpha's q off its state."""

    owner: Any
    system: Any
    q: Callable[[], Array]


class Parts:
    """A system to which parts are added, with short names for what is added often."""

    def __init__(self) -> None:
        self.items = importlib.import_module("exudyn.itemInterface")
        self.owner = exudyn().SystemContainer()
        self.system = self.owner.AddSystem()
        self.ground = self.system.AddObject(self.items.ObjectGround())
        self.kept: list[Any] = []  # what has to outlive the building

    def body(self, at: Any, mass: float, inertia: float, velocity: Any = (0.0, 0.0, 0.0)) -> tuple[Any, Any]:
        """Node and body in the plane, with centre and angle ``at`` the start."""
        node = self.system.AddNode(
            self.items.NodeRigidBody2D(referenceCoordinates=at, initialVelocities=velocity)
        )
        body = self.items.ObjectRigidBody2D(mass=mass, inertia=inertia, nodeNumber=node)
        return node, self.system.AddObject(body)

    def point(self, body: Any, at: Any) -> Any:
        """A point of a body in the plane."""
        return self.system.AddMarker(self.items.MarkerBodyPosition(bodyNumber=body, localPosition=[*at, 0.0]))

    def pin(self, *points: Any) -> None:
        """Two points become one."""
        self.system.AddObject(self.items.ObjectJointRevolute2D(markerNumbers=list(points)))

    def coordinate(self, node: Any, number: int) -> Any:
        return self.system.AddMarker(self.items.MarkerNodeCoordinate(nodeNumber=node, coordinate=number))

    def load(self, coordinate: Any, size: float) -> None:
        """A constant force on a coordinate."""
        self.system.AddLoad(self.items.LoadCoordinate(markerNumber=coordinate, load=size))

    def coordinates(self) -> Array:
        """All coordinates, in the order of the nodes."""
        return np.array(self.system.systemData.GetODE2CoordinatesTotal())

    def model(self, q: Callable[[], Array]) -> Model:
        self.system.Assemble()
        return Model(self.owner, self.system, q)


# --- the pendulum ------------------------------------------------------------------------------------


def pendulum(problem: Problem) -> Model:
    """The spring is at rest at the start: Exudyn counts its coordinates from there."""
    (p,), parts = problem.args, Parts()
    m, L, items = p["m"], p["L"], parts.items
    node, bar = parts.body(problem.q0, m, m * L**2 / 3, problem.v0)
    parts.pin(parts.point(parts.ground, [0.0, 0.0]), parts.point(bar, [-L, 0.0]))
    still = parts.coordinate(parts.system.AddNode(items.NodePointGround()), 0)
    spring = items.ObjectConnectorCoordinateSpringDamper(
        markerNumbers=[still, parts.coordinate(node, 2)], stiffness=p["k"], damping=p["c"]
    )
    parts.system.AddObject(spring)
    parts.load(parts.coordinate(node, 1), -m * p["g"])
    return parts.model(parts.coordinates)


# --- Andrews' squeezing mechanism --------------------------------------------------------------------


class Link(NamedTuple):
    """A body of the mechanism, counted as in genalpha, with points in axes of bodies.

    It turns about ``pivot``, which is a point of ``parent`` (-1: of the ground) and its own origin.
    """

    number: int
    parent: int
    pivot: tuple[float, float]
    centre: tuple[float, float]


LINKS = (
    Link(0, -1, (0.0, 0.0), (SIZES.ra, 0.0)),
    Link(1, 0, (SIZES.rr, 0.0), (-SIZES.da, 0.0)),
    Link(2, -1, SIZES.B, (SIZES.sa, SIZES.sb)),
    Link(4, -1, SIZES.A, (SIZES.ta, SIZES.tb)),
    Link(3, 4, (SIZES.zt, 0.0), (0.0, SIZES.ea - SIZES.e)),
    Link(6, -1, SIZES.A, (SIZES.ua, SIZES.ub)),
    Link(5, 6, (0.0, -SIZES.u), (SIZES.zf - SIZES.fa, 0.0)),
)
ORDER = [link.number for link in LINKS]
PARENTS = {link.number: link.parent for link in LINKS if link.parent >= 0}
TIPS = {1: (-SIZES.d, 0.0), 2: (0.0, -SIZES.ss), 3: (0.0, -SIZES.e), 5: (SIZES.zf, 0.0)}  # all the same point
HOOK = (SIZES.sd, -SIZES.sc)  # of the spring, on body 2


def close(parts: Parts, stiffness: float, point: Callable[[int, Any], Any]) -> None:
    """Close the loops and hook the spring in; ``point(number, at)`` is a point of a body."""
    tip, *others = (point(number, at) for number, at in TIPS.items())
    for other in others:
        parts.pin(tip, other)
    ends = [parts.point(parts.ground, SIZES.C), point(2, HOOK)]
    spring = {"referenceLength": SIZES.l0, "stiffness": stiffness}
    parts.system.AddObject(parts.items.ObjectConnectorSpringDamper(markerNumbers=ends, **spring))


def andrews(problem: Problem, arms: bool) -> Model:
    """In absolute coordinates; with ``arms`` bodies on fixed pivots have an angle and nothing else."""
    (torque, stiffness), parts, angles = problem.args, Parts(), problem.q0.copy()
    for number, parent in PARENTS.items():
        angles[number] += angles[parent]
    bodies: dict[int, Any] = {-1: parts.ground}
    nodes: list[Any] = []
    places, centres = {-1: np.zeros(2)}, {-1: np.zeros(2)}  # of pivots in space, of nodes in axes of bodies

    def turned(number: int, at: Any) -> Array:
        c, s = (math.cos(angles[number]), math.sin(angles[number])) if number >= 0 else (1.0, 0.0)
        return np.array([c * at[0] - s * at[1], s * at[0] + c * at[1]])

    def point(number: int, at: Any) -> Any:
        return parts.point(bodies[number], at - centres[number])

    for number, parent, pivot, centre in LINKS:
        mass, inertia = SIZES.m[number], SIZES.I[number]
        places[number] = places[parent] + turned(parent, pivot)
        if arms and parent < 0:
            node = parts.system.AddNode(parts.items.Node1D(referenceCoordinates=[angles[number]]))
            about = inertia + mass * (centre[0] ** 2 + centre[1] ** 2)
            at = {"referencePosition": [*pivot, 0.0], "nodeNumber": node}
            bodies[number] = parts.system.AddObject(parts.items.ObjectRotationalMass1D(inertia=about, **at))
            centres[number] = np.zeros(2)
        else:
            start = [*(places[number] + turned(number, centre)), angles[number]]
            node, bodies[number] = parts.body(start, mass, inertia)
            centres[number] = np.array(centre)
            parts.pin(point(parent, pivot), point(number, (0.0, 0.0)))
        nodes.append(node)
    close(parts, stiffness, point)
    parts.load(parts.coordinate(nodes[0], 0 if arms else 2), torque)
    sizes = [1 if arms and link.parent < 0 else 3 for link in LINKS]
    last = np.cumsum(sizes) - 1  # the angle is a node's last coordinate

    def q() -> Array:
        found = np.empty(7)
        found[ORDER] = parts.coordinates()[last]
        for number, parent in PARENTS.items():
            found[number] -= found[parent]
        return found

    return parts.model(q)


def andrews_trees(problem: Problem) -> Model:
    """In angles relative to the body before; one tree for each fixed pivot is faster than one for all."""
    (torque, stiffness), parts, exu = problem.args, Parts(), exudyn()
    where = {}
    for first in (link for link in LINKS if link.parent < 0):
        chain = [first, *(link for link in LINKS if link.parent == first.number)]
        numbers, n = [link.number for link in chain], len(chain)
        start = {"initialCoordinates": problem.q0[numbers], "initialCoordinates_t": np.zeros(n)}
        node = parts.items.NodeGenericODE2(
            referenceCoordinates=np.zeros(n), numberOfODE2Coordinates=n, **start
        )
        tree = parts.items.ObjectKinematicTree(
            nodeNumber=parts.system.AddNode(node),
            jointTypes=[exu.JointType.RevoluteZ] * n,
            linkParents=list(range(-1, n - 1)),
            jointTransformations=exu.Matrix3DList([np.eye(3)] * n),
            jointOffsets=exu.Vector3DList([[*link.pivot, 0.0] for link in chain]),
            linkInertiasCOM=exu.Matrix3DList([np.diag([0.0, 0.0, SIZES.I[i]]) for i in numbers]),
            linkCOMs=exu.Vector3DList([[*link.centre, 0.0] for link in chain]),
            linkMasses=[SIZES.m[i] for i in numbers],
            jointForceVector=[torque if i == 0 else 0.0 for i in numbers],
        )
        added = parts.system.AddObject(tree)
        where.update({number: (added, place) for place, number in enumerate(numbers)})

    def point(number: int, at: Any) -> Any:
        tree, link = where[number]
        on = {"objectNumber": tree, "linkNumber": link, "localPosition": [*at, 0.0]}
        return parts.system.AddMarker(parts.items.MarkerKinematicTreeRigid(**on))

    close(parts, stiffness, point)
    return parts.model(lambda: parts.coordinates()[np.argsort(ORDER)])


# --- the rolling disk --------------------------------------------------------------------------------

AXES = [2, 0, 1]  # x, y, z of the model are z, x, y of genalpha, in space and in the body
BACK = [1, 2, 0]


def disk(problem: Problem, formulation: str) -> Model:
    """A rigid body with its node at the centre, and Exudyn's joint for rolling.

    The start is that of the body in R³×SO(3), whichever of the two statements ``problem`` is.
    """
    body = ga.problems.get("rolling-disk", space="R3xSO3")
    (p,), parts = body.args, Parts()
    bodies = importlib.import_module("exudyn.rigidBodyUtilities")
    R, r = np.asarray(ga.rotation.matrix(body.q0[3:])), p["r"]
    rolling = parts.system.CreateRigidBody(
        nodeType=getattr(exudyn().NodeType, NODES[formulation]),
        inertia=bodies.RigidBodyInertia(p["m"], np.diag(p["J"][AXES])),
        referencePosition=body.q0[:3][AXES],
        referenceRotationMatrix=R[np.ix_(AXES, AXES)],
        initialVelocity=body.v0[:3][AXES],
        initialAngularVelocity=(R @ body.v0[3:])[AXES],
    )
    parts.load(parts.coordinate(parts.system.GetObject(rolling)["nodeNumber"], 0), -p["m"] * p["g"])
    markers = [
        parts.system.AddMarker(parts.items.MarkerBodyRigid(bodyNumber=each))
        for each in (parts.ground, rolling)
    ]
    shape = {"discRadius": r, "discAxis": [0.0, 0.0, 1.0], "planeNormal": [1.0, 0.0, 0.0]}
    parts.system.AddObject(parts.items.ObjectJointRollingDisc(markerNumbers=markers, **shape))

    def contact() -> Array:
        _, x, y, heading, tilt, spin = parts.coordinates()
        aside = -r * math.sin(tilt)  # the tilt counts backwards here, as does the spin
        ahead = [x + aside * math.sin(heading), y - aside * math.cos(heading)]
        return np.array([*ahead, -tilt, heading, -spin])

    def centre() -> Array:
        found = parts.coordinates()
        return np.concatenate([found[:3][BACK], found[3:4], found[4:][BACK]])

    return parts.model(contact if formulation == "angles" else centre)
