"""Three more problems in Exudyn: the pendulum, Andrews' squeezing mechanism, the rolling disk.

``models(name)`` lists the ways to run a problem, ``python -m benchmarks.exudyn_models`` prints errors and
times of all of them; ``taskset -c 1`` before it keeps it on one core. Elements are Exudyn's own, none of them
calls Python. A problem can be stated in several kinds of coordinates:

``pendulum``      ``"body"``: (x, y, θ) of the bar, held by two constraints, as in genalpha.
``andrews``       ``"bodies"``: (x, y, θ) of all seven bodies, 20 constraints. ``"arms"``: the four bodies on
                  fixed pivots have an angle only, 13 coordinates and 12 constraints. ``"trees"``: four open
                  chains in relative angles, 7 coordinates and 6 constraints, as in genalpha.
``rolling-disk``  ``"angles"``: the centre, heading, tilt and spin. ``"parameters"``: the centre and Euler
                  parameters. Axes are relabelled so that the plane is x = 0 and the disk turns about its z:
                  Exudyn's angles are then those of genalpha, singular with the disk flat on the plane only.

The disk is the rigid one, ``sense=-1`` or ``space="R3xSO3"`` in genalpha. The printed one of J11 is no rigid
body and has no counterpart. Exudyn's joint holds all three velocities at the contact point, the vertical one
too, with either method: the height drifts by an error of second order.

The method is the generalized-α method with positions as constraints ("index 3"), or the trapezoidal rule with
velocities ("index 2"); ρ∞ is without effect on the latter. New matrices once a step are the fastest but for
the disk with short steps, where ``"modified"`` is about as fast. Of the linear solvers Eigen's dense one is
the fastest for Andrews' mechanism and Exudyn's own for the others; the sparse one is behind both. With a
tolerance of 1e-4 a step is one iteration and takes a quarter to a third less, at errors that are still of
second order and seldom much greater. Left out: ``"modified"`` with such tolerances, and Euler parameters with
"index 2", which do not converge then. All other settings of Exudyn are without effect on times.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

import genalpha as ga
from benchmarks.exudyn_top import NODES, Array, Newton, exudyn, settings, solve
from benchmarks.small import in_turns, plain
from genalpha.problems._andrews import _DATA as SIZES

Problem = ga.problems.Problem

RHO_INF = 0.9
HEAD, REPEATS = ("variant", "h", "error", "µs", "iter.", "Jac."), 5
POLICIES: tuple[tuple[Newton, float], ...] = (("step", 1e-8), ("step", 1e-4), ("modified", 1e-8))


class Model(NamedTuple):
    """The owner of it all, the assembled system, and a function that reads genalpha's q off its state."""

    owner: Any
    system: Any
    q: Callable[[], Array]


class End(NamedTuple):
    """q at the end; Newton iterations and new matrices per step."""

    q: Array
    iterations: float
    jacobians: float


class Run(NamedTuple):
    """What is timed, and the same with a look at the end; ``steps`` is their number."""

    solve: Callable[[], Any]
    result: Callable[[], End]
    steps: int


@dataclass(frozen=True)
class Variant:
    """One way to run a problem; ``problem`` is the statement in genalpha whose q its results have."""

    problem: Problem
    coordinates: str
    index2: bool
    newton: Newton
    tolerance: float
    linear: str
    build: Callable[[Problem], Model]

    @property
    def name(self) -> str:
        method = "index 2" if self.index2 else "index 3"
        return f"{self.problem.name} {self.coordinates} {method} {self.newton} {self.tolerance:.0e}"

    def prepare(self, h: float, t_end: float, rho_inf: float = RHO_INF) -> Run:
        """Assemble it, to be run from 0 to ``t_end`` in equal steps of about ``h``."""
        steps = max(1, round(t_end / h))
        model = self.build(self.problem)
        chosen = settings(steps, t_end, rho_inf, self.newton, self.index2, self.tolerance)
        chosen.linearSolver.solverType = getattr(exudyn().LinearSolverType, self.linear)
        run = partial(solve, model.system, chosen)

        def result() -> End:
            done = run().it
            return End(model.q(), done.newtonStepsCount / steps, done.newtonJacobiCount / steps)

        return Run(run, result, steps)


class Parts:
    """A system to which parts are added, with short names for what is added often."""

    def __init__(self) -> None:
        self.items = importlib.import_module("exudyn.itemInterface")
        self.owner = exudyn().SystemContainer()
        self.system = self.owner.AddSystem()
        self.ground = self.system.AddObject(self.items.ObjectGround())

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
        gravity=[-p["g"], 0.0, 0.0],
    )
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


# --- all of them -------------------------------------------------------------------------------------

STATEMENTS: dict[str, dict[str, tuple[dict[str, Any], Callable[[Problem], Model]]]] = {
    "pendulum": {"body": ({}, pendulum)},
    "andrews": {
        "arms": ({}, partial(andrews, arms=True)),
        "bodies": ({}, partial(andrews, arms=False)),
        "trees": ({}, andrews_trees),
    },
    "rolling-disk": {
        "angles": ({"sense": -1.0}, partial(disk, formulation="angles")),
        "parameters": ({"space": "R3xSO3"}, partial(disk, formulation="parameters")),
    },
}  # for all kinds of coordinates the parameters of the problem in genalpha, and the model


def models(name: str) -> list[Variant]:
    """All ways to run a problem: ``"pendulum"``, ``"andrews"`` or ``"rolling-disk"``."""
    linear = "EigenDense" if name == "andrews" else "EXUdense"
    return [
        Variant(ga.problems.get(name, **parameters), coordinates, index2, newton, tolerance, linear, build)
        for coordinates, (parameters, build) in STATEMENTS[name].items()
        for index2, (newton, tolerance) in product((False, True), POLICIES)
        if (coordinates, index2, tolerance) != ("parameters", True, 1e-4)
    ]


def truth(problem: Problem) -> Array:
    """q at the end of the time span."""
    t_end = problem.t_span[1]
    return np.array(problem.reference(t_end).q if problem.reference else problem.published[t_end]["q"])


def lines(variants: Sequence[Variant], steps: int) -> list[tuple[str, ...]]:
    """For each variant and each number of steps the relative error of q and a step's best time in µs."""
    found, runs = [], []
    for variant in variants:
        t_end, true = variant.problem.t_span[1], truth(variant.problem)
        run = variant.prepare(t_end / steps, t_end)
        end = run.result()
        error = np.linalg.norm(end.q - true) / np.linalg.norm(true)
        found.append((variant.name, f"{t_end / steps:.2e}", f"{error:.1e}", end))
        runs.append(run)
    times = 1e6 / steps * np.array(in_turns([run.solve for run in runs], REPEATS)).min(axis=1)
    return [
        (name, h, error, f"{us:.2f}", f"{end.iterations:.2f}", f"{end.jacobians:.2f}")
        for (name, h, error, end), us in zip(found, times, strict=True)
    ]


def main() -> None:
    """Errors and times of all variants, from long steps to short ones."""
    for name, first in (("pendulum", 500), ("andrews", 750), ("rolling-disk", 1000)):
        rows = [row for k in (0, 2, 4) for row in lines(models(name), first * 2**k)]
        print(plain(HEAD, sorted(rows, key=lambda row: row[0])), end="\n\n")


if __name__ == "__main__":
    main()
