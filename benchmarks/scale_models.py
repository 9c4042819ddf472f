"""Systems of any size for :mod:`benchmarks.scale`: a chain of rigid bodies, bars, a net, and a truss.

The chain is stated for genalpha and for Exudyn. The others are stated for genalpha alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import genalpha as ga
from benchmarks.exudyn_top import NODES, exudyn, settings, solve

Array = np.ndarray

RHO_INF, TOL = 0.8, 1e-8
DENSE = 30  # the longest chain that Exudyn tries with dense matrices
GRAVITY = 9.81
MASS = 1.0  # of a body in kg
HALF = 0.5  # half its length in m
INERTIA = np.array([1.0 + 0.1**2, 1.0 + 0.2**2, 0.1**2 + 0.2**2]) / 12  # of a box of 0.2 x 0.1 x 1 m
# Axes of four joints in a row, in the bodies on both sides: y, x, x, y.
TURNS = ((0.0, 1.0, 0.0), (1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))
SPEED = 2.0  # largest rate of a joint at the start, rad/s


class Case(NamedTuple):
    """An assembly and where it starts."""

    system: ga.Assembly
    q0: Array
    v0: Array


# --- the chain of rigid bodies ---------------------------------------------------------------------------


class Start(NamedTuple):
    """Bodies at the start: centres, rotations, velocities and angular velocities in space; axes of joints."""

    x: Array
    R: Array
    v: Array
    omega: Array
    axes: Array


def chain_start(count: int) -> Start:
    """A chain that hangs from the origin in bends and waves.

    Four joints in a row turn by a, b, -b, -a about y, x, x, y. The next body then has the attitude of the
    first again, so that velocities stay bounded along the chain. All change along the chain like a wave, and
    the wave moves.
    """
    groups = -(-count // 4)
    phase, sign = np.arange(groups), (1.0, 1.0, -1.0, -1.0)
    rates = SPEED * np.cos(phase)
    R, omega = np.empty((groups, 4, 3, 3)), np.empty((groups, 4, 3))
    turned, spin = np.tile(np.eye(3), (groups, 1, 1)), np.zeros((groups, 3))
    for i, (axis, mean) in enumerate(zip(TURNS, (0.5, 0.3, 0.3, 0.5), strict=True)):
        spin = spin + sign[i] * rates[:, None] * (turned @ np.array(axis))
        turned = turned @ rotations(axis, sign[i] * (mean + 0.3 * np.sin(phase)))
        R[:, i], omega[:, i] = turned, spin
    R, omega = R.reshape(-1, 3, 3)[:count], omega.reshape(-1, 3)[:count]
    down = -HALF * R[:, :, 2]  # from the upper end of a body to its centre
    moves = np.cross(omega, down)
    axes = np.tile(TURNS, (groups, 1))[:count]
    return Start(2 * np.cumsum(down, axis=0) - down, R, 2 * np.cumsum(moves, axis=0) - moves, omega, axes)


def rotations(axis: Sequence[float], angles: Array) -> Array:
    """Rotations (K, 3, 3) about one axis."""
    x, y, z = axis
    S = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angles)[:, None, None] * S + (1 - np.cos(angles))[:, None, None] * (S @ S)


def quaternions(R: Array) -> Array:
    """Unit quaternions (w, x, y, z) of rotations by less than half a turn."""
    w = np.sqrt(1 + np.trace(R, axis1=1, axis2=2)) / 2
    u = np.stack([R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1]], axis=1)
    return np.concatenate([w[:, None], u / (4 * w[:, None])], axis=1)


def turned(q: Any, s: Any) -> Any:
    """The vector s of a body, in space."""
    a = 2 * ga.rotation.cross(q[4:], s)
    return s + q[3] * a + ga.rotation.cross(q[4:], a)


def chain(count: int) -> Case:
    """The chain in genalpha."""
    J, end = jnp.asarray(INERTIA), jnp.array([0.0, 0.0, HALF])
    weight = jnp.array([0.0, 0.0, -GRAVITY * MASS])

    def force(t: Any, q: Any, v: Any) -> Any:
        return jnp.concatenate([weight, -ga.rotation.cross(v[3:], J * v[3:])])

    def hinge(point: Any, axis: Any, q: Any, across: Any) -> Any:
        """The upper end of a body is at a point, and two of its directions are across an axis."""
        return jnp.concatenate(
            [q[:3] + turned(q, end) - point, jnp.stack([axis @ turned(q, across[i]) for i in range(2)])]
        )

    def joint(t: Any, q: Any, axis: Any, across: Any) -> Any:
        return hinge(q[0][:3] - turned(q[0], end), turned(q[0], axis), q[1], across)

    start, one = chain_start(count), np.ones(3)
    across = np.stack([np.cross(start.axes, one), np.cross(start.axes, np.cross(start.axes, one))], axis=1)
    across /= np.linalg.norm(across, axis=2, keepdims=True)
    bodies = np.arange(count)
    parts = [
        ga.Part(mass=np.diag([MASS] * 3 + [*INERTIA]), force=force, nodes=bodies, name="bodies"),
        ga.Part(
            holonomic=lambda t, q, axis, across: hinge(jnp.zeros(3), axis, q, across),
            nodes=[0],
            args=(start.axes[:1], across[:1]),
            name="hook",
        ),
    ]
    if count > 1:
        pairs, args = np.stack([bodies[:-1], bodies[1:]], axis=1), (start.axes[1:], across[1:])
        parts.append(ga.Part(holonomic=joint, nodes=pairs, args=args, name="joints"))
    q0 = np.concatenate([start.x, quaternions(start.R)], axis=1).reshape(-1)
    v0 = np.concatenate([start.v, np.einsum("kji,kj->ki", start.R, start.omega)], axis=1).reshape(-1)
    return Case(ga.Assembly(parts, space=ga.R3xSO3(), count=count), q0, v0)


class Peer(NamedTuple):
    """Exudyn's model: its owner, the system, and a function that reads the centres (N, 3)."""

    owner: Any
    system: Any
    x: Callable[[], Array]

    @property
    def unknowns(self) -> int:
        """Coordinates and constraints."""
        data = self.system.systemData
        return len(data.GetODE2Coordinates()) + len(data.GetAECoordinates())


def exudyn_chain(count: int, formulation: str) -> Peer:
    """The chain of Exudyn's rigid bodies and joints; rotations as in :mod:`benchmarks.exudyn_top`."""
    exu = exudyn()
    bodies = importlib.import_module("exudyn.rigidBodyUtilities")
    items = importlib.import_module("exudyn.itemInterface")
    owner, start = exu.SystemContainer(), chain_start(count)
    system = owner.AddSystem()
    inertia, kind = bodies.RigidBodyInertia(MASS, np.diag(INERTIA)), getattr(exu.NodeType, NODES[formulation])
    ground = system.AddObject(items.ObjectGround())
    below = system.AddMarker(items.MarkerBodyRigid(bodyNumber=ground))
    numbers = []
    for x, R, v, omega, axis in zip(*start, strict=True):
        body = system.CreateRigidBody(
            nodeType=kind,
            inertia=inertia,
            referencePosition=x,
            referenceRotationMatrix=R,
            initialVelocity=v,
            initialAngularVelocity=omega,
            gravity=[0.0, 0.0, -GRAVITY],
        )
        numbers.append(body)
        ends = [[0.0, 0.0, HALF], [0.0, 0.0, -HALF]]
        above, lower = (
            system.AddMarker(items.MarkerBodyRigid(bodyNumber=body, localPosition=end)) for end in ends
        )
        frame = np.stack([np.roll(axis, 1), np.roll(axis, 2), axis], axis=1)  # z is the axis
        system.AddObject(
            items.ObjectJointRevoluteZ(
                markerNumbers=[below, above], rotationMarker0=frame, rotationMarker1=frame
            )
        )
        below = lower
    system.Assemble()
    place = exu.OutputVariableType.Position

    def centres() -> Array:
        return np.array([system.GetObjectOutputBody(body, place, [0.0, 0.0, 0.0]) for body in numbers])

    return Peer(owner, system, centres)


def variants(bodies: int) -> list[tuple[str, ...]]:
    """Ways to run Exudyn: coordinates, the rule for new matrices, and the linear solver."""
    if bodies > 1000:
        return [("angles", rule, "EigenSparse") for rule in ("modified", "default")]
    linear = ("EigenSparse", "EigenDense", "EXUdense") if bodies <= DENSE else ("EigenSparse",)
    return list(product(("angles", "parameters"), ("step", "modified", "default"), linear))


def exudyn_run(peer: Peer, variant: tuple[str, ...], t_end: float, h: float) -> Callable[[], Any]:
    """A run of Exudyn, to be called. Sparse matrices keep the order of their pivots."""
    rule: Any = variant[1]
    chosen = settings(round(t_end / h), t_end, RHO_INF, rule, False, TOL)
    chosen.linearSolver.solverType = getattr(exudyn().LinearSolverType, variant[2])
    chosen.linearSolver.reuseAnalyzedPattern = True
    return lambda: solve(peer.system, chosen)


# --- points and rods -------------------------------------------------------------------------------------


def four_bars(count: int) -> Case:
    """``count`` four-bar mechanisms in a row, problem A02 of the IFToMM library: all bars 1 m and 1 kg.

    Nodes are the joints between cranks and couplers. Cranks are upright at the start.
    """
    joints = count + 1
    pivots = np.stack([np.arange(joints), np.zeros(joints)], axis=1)
    weight = jnp.array([0.0, -GRAVITY / 2])  # half a bar
    bar = np.kron(np.array([[2.0, 1.0], [1.0, 2.0]]) / 6, np.eye(2))
    length = lambda d: jnp.array([(d @ d - 1.0) / 2])
    crank = ga.Part(
        mass=np.eye(2) / 3,
        force=lambda t, q, v, pivot: weight,
        holonomic=lambda t, q, pivot: length(q - pivot),
        nodes=np.arange(joints),
        args=(pivots,),
        name="cranks",
    )
    coupler = ga.Part(
        mass=bar,
        force=lambda t, q, v: jnp.stack([weight, weight]),
        holonomic=lambda t, q: length(q[1] - q[0]),
        nodes=np.stack([np.arange(count), np.arange(1, joints)], axis=1),
        name="couplers",
    )
    system = ga.Assembly([crank, coupler], space=ga.Euclidean(2), count=joints)
    return Case(system, (pivots + np.array([0.0, 1.0])).reshape(-1), np.tile([1.0, 0.0], joints))


def net(count: int) -> Case:
    """A square net of count x count points of 10 g and rods of 1 m, held at two corners.

    A point is the sum of a point of one curve and a point of another, both of rods of 1 m. So all rods have
    their length. The upper edge hangs in an arc, in zigzag, between the corners: no three points are in line,
    and no constraint is redundant.
    """
    number = np.arange(count * count).reshape(count, count)
    along = np.linspace(-0.8, 0.8, count - 1) + 0.15 * (-1.0) ** np.arange(count - 1)
    down = 0.3 * np.sin(0.2 * np.arange(count - 1)) + 0.15 * (-1.0) ** np.arange(count - 1)
    across = np.stack([np.cos(along), 0 * along, np.sin(along)], axis=1)
    below = np.stack([0 * down, np.sin(down), -np.cos(down)], axis=1)
    curves = [np.concatenate([np.zeros((1, 3)), np.cumsum(steps, axis=0)]) for steps in (below, across)]
    q0 = curves[0][:, None] + curves[1][None]
    corners = number[0, [0, -1]]
    points = ga.Part(
        mass=0.01 * np.eye(3),
        force=lambda t, q, v: jnp.array([0.0, 0.0, -0.01 * GRAVITY]),
        nodes=number.reshape(-1),
        name="points",
    )
    held = ga.Part(
        holonomic=lambda t, q, at: q - at,
        nodes=corners,
        args=(q0[0, [0, -1]],),
        name="corners",
    )
    ends = [number[:, :-1], number[:, 1:]], [number[:-1], number[1:]]
    rods = ga.Part(
        holonomic=lambda t, q: jnp.array([((q[1] - q[0]) @ (q[1] - q[0]) - 1.0) / 2]),
        nodes=np.concatenate([np.stack([a.reshape(-1), b.reshape(-1)], axis=1) for a, b in ends]),
        name="rods",
    )
    system = ga.Assembly([points, held, rods], space=ga.Euclidean(3), count=count * count)
    return Case(system, q0.reshape(-1), np.zeros(3 * count * count))


STIFFNESS = 1e7  # of a bar of the truss, N/m
BAYS_HIGH = 4


def truss(count: int) -> Case:
    """A plane truss of ``count`` x 4 squares of 1 m with both diagonals; its left edge is held by springs.

    Bars are springs with little damping, points have 1 kg. A wave runs through it, and its weight bends it.
    There are no constraints.
    """
    number = np.arange((count + 1) * (BAYS_HIGH + 1)).reshape(count + 1, BAYS_HIGH + 1)
    places = np.stack(np.meshgrid(np.arange(count + 1), np.arange(BAYS_HIGH + 1), indexing="ij"), axis=2)
    q0 = places.reshape(-1, 2).astype(float)

    def pull(d: Any, rate: Any, length: Any) -> Any:
        """The force of a spring on its first end."""
        now = jnp.sqrt(d @ d)
        return (STIFFNESS * (now - length) + 1e-4 * STIFFNESS * (d @ rate) / now) * d / now

    def bar(t: Any, q: Any, v: Any, length: Any) -> Any:
        force = pull(q[1] - q[0], v[1] - v[0], length)
        return jnp.stack([force, -force])

    pairs = [
        (number[:-1], number[1:]),
        (number[:, :-1], number[:, 1:]),
        (number[:-1, :-1], number[1:, 1:]),
        (number[:-1, 1:], number[1:, :-1]),
    ]
    ends = np.concatenate([np.stack([a.reshape(-1), b.reshape(-1)], axis=1) for a, b in pairs])
    lengths = np.linalg.norm(q0[ends[:, 1]] - q0[ends[:, 0]], axis=1)
    parts = [
        ga.Part(
            mass=np.eye(2),
            force=lambda t, q, v: jnp.array([0.0, -GRAVITY]),
            nodes=number.reshape(-1),
            name="points",
        ),
        ga.Part(force=bar, nodes=ends, args=(lengths,), name="bars"),
        ga.Part(
            force=lambda t, q, v, at: STIFFNESS * (at - q),
            nodes=number[0],
            args=(q0[number[0]],),
            name="wall",
        ),
    ]
    system = ga.Assembly(parts, space=ga.Euclidean(2), count=number.size)
    v0 = np.stack([np.sin(q0[:, 0]), 0 * q0[:, 0]], axis=1)
    return Case(system, q0.reshape(-1), v0.reshape(-1))
