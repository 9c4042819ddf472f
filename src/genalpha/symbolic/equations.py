"""Mass matrix and forces in the coordinates q and their derivatives v = q', from a statement."""

from __future__ import annotations

from typing import Any

import numpy as np
from sympy.physics import mechanics

from genalpha.compiler.graph import ZERO
from genalpha.symbolic.formulas import Formulas
from genalpha.symbolic.kinematics import Kinematics
from genalpha.symbolic.statement import Statement


def form(statement: Statement, kinematics: Kinematics) -> tuple[np.ndarray, np.ndarray]:
    """The mass matrix (n, n) and the forces (n,) as nodes, without reactions of constraints.

    Derivatives are taken in the graph. SymPy takes none, and forms no equations.
    """
    if statement.lagrangian is not None:
        mass, force = _from_lagrangian(statement, kinematics.formulas)
    elif statement.mass is not None:
        mass, force = _from_speeds(statement, kinematics)
    else:
        mass, force = _from_bodies(statement, kinematics.formulas)
    return _checked(kinematics.formulas, statement, mass, force)


def _from_lagrangian(statement: Statement, formulas: Formulas) -> tuple[np.ndarray, np.ndarray]:
    """∂²L/∂v∂v, and ∂L/∂q − d/dt ∂L/∂v without accelerations, plus forces."""
    lagrangian = formulas.node(statement.lagrangian, "the Lagrangian")
    momenta = formulas.pulled(lagrangian, formulas.v)
    mass = formulas.jacobian(momenta, formulas.v)
    slopes = formulas.pulled(lagrangian, formulas.q)
    force = formulas.add(slopes, formulas.negative(formulas.rate(momenta)))
    return mass, formulas.add(force, _load_forces(statement, formulas))


def _from_bodies(statement: Statement, formulas: Formulas) -> tuple[np.ndarray, np.ndarray]:
    """Kane's equations with the speeds v: partial velocities times inertia forces and loads."""
    count = len(formulas.v)
    mass, force = np.full((count, count), ZERO), _load_forces(statement, formulas)
    vectors = Vectors(formulas, statement.frame)
    for body in statement.bodies:
        for partial, heavy, rest in _inertia(body, vectors):
            mass = formulas.add(mass, formulas.matmul(partial.T, heavy))
            force = formulas.add(force, formulas.negative(formulas.matmul(partial.T, rest)))
    return mass, force


def _inertia(body: Any, vectors: Vectors) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each momentum of a body (3,): partial velocities, the momentum's, and its rate without v'."""
    formulas, frame, where = vectors.formulas, vectors.frame, f"body {body.name!r}"
    weight = formulas.node(body.mass, f"the mass of {where}")
    change = int(formulas.rate(np.array([weight]))[0])
    scale = lambda by, x: _each(x, lambda i: formulas.graph.mul(by, i))
    vector, what = body.masscenter.vel(frame), f"the velocity of {where}"
    velocity = vectors.components(vector, frame, what)
    partial = formulas.jacobian(velocity, formulas.v)
    rest = formulas.add(scale(weight, vectors.rates(vector, frame, what)), scale(change, velocity))
    found = [(partial, scale(weight, partial), rest)]
    if isinstance(body, mechanics.RigidBody):
        own, what = body.frame, f"the inertia of {where}"
        tensor = formulas.nodes(list(body.central_inertia.to_matrix(own)), what).reshape(3, 3)
        spin, turn = vectors.spin(own), own.ang_vel_in(frame)
        partial, momentum = formulas.jacobian(spin, formulas.v), formulas.matmul(tensor, spin)
        rest = formulas.matmul(tensor, vectors.rates(turn, own, f"the angular velocity of {where}"))
        rest = formulas.add(rest, formulas.matmul(formulas.rate(tensor), spin))
        rest = formulas.add(rest, _cross(formulas, spin, momentum))
        found.append((partial, formulas.matmul(tensor, partial), rest))
    return found


def _load_forces(statement: Statement, formulas: Formulas) -> np.ndarray:
    """Partial velocities times loads (n,)."""
    force, vectors = np.full(len(formulas.v), ZERO), Vectors(formulas, statement.frame)
    for place, load in statement.loads:
        if statement.frame is None:
            raise ValueError("there are loads and no inertial frame: pass frame= to LagrangesMethod")
        turning = isinstance(place, mechanics.ReferenceFrame)
        axes = place if turning else statement.frame
        velocity = place.ang_vel_in(statement.frame) if turning else place.vel(statement.frame)
        moved = vectors.components(velocity, axes, f"the velocity of {place}")
        applied = vectors.components(load, axes, f"the load on {place}")
        force = formulas.add(force, formulas.matmul(formulas.jacobian(moved, formulas.v).T, applied))
    return force


def _from_speeds(statement: Statement, kinematics: Kinematics) -> tuple[np.ndarray, np.ndarray]:
    """From M u' = f in the speeds u = U v + w: Uᵀ M U, and Uᵀ (f − M (U' v + w'))."""
    formulas = kinematics.formulas
    count = len(kinematics.speeds)
    mass = formulas.nodes(list(statement.mass), "mass").reshape(count, count)
    force = formulas.nodes(statement.forcing, "forcing")
    slopes = formulas.jacobian(kinematics.speeds, formulas.v)
    bias = formulas.matmul(mass, formulas.rate(kinematics.speeds))
    left = formulas.add(force, formulas.negative(bias))
    return formulas.matmul(formulas.matmul(slopes.T, mass), slopes), formulas.matmul(slopes.T, left)


def _checked(
    formulas: Formulas, statement: Statement, mass: np.ndarray, force: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mass and forces; the upper triangle of a matrix that is symmetric by its making is used twice."""
    names = lambda found: ", ".join(
        str(statement.coordinates[k]) for k in found if k < len(statement.coordinates)
    )
    found = formulas.depends(mass, formulas.v)
    if found:
        mass = _freed(formulas, mass, f"the mass matrix depends on the derivatives of {names(found)}")
    found = formulas.depends(force, formulas.a)
    if found:
        raise ValueError(
            f"the forces depend on second derivatives of {names(found)}: put these terms into the mass matrix"
        )
    if statement.mass is None:
        mass = np.where(np.tri(len(mass), k=-1) > 0, mass.T, mass)
    return mass, force


def _freed(formulas: Formulas, mass: np.ndarray, message: str) -> np.ndarray:
    """The mass matrix at v = 0, if velocities occur in it but change nothing."""
    still = formulas.at_rest(mass, formulas.v)
    points = formulas.samples(3, {})
    values, others = formulas.numbers(mass, points), formulas.numbers(still, points)
    if not np.allclose(values, others, rtol=1e-9, atol=1e-9 * np.abs(values).max()):
        raise ValueError(f"{message}: M(t, q) v' = f(t, q, v) is needed")
    return still


class Vectors:
    """Components of SymPy's vectors as nodes, and their rates seen from the inertial frame."""

    def __init__(self, formulas: Formulas, frame: Any) -> None:
        self.formulas, self.frame = formulas, frame
        self._turned: dict[tuple[Any, Any], np.ndarray] = {}
        self._spins: dict[Any, np.ndarray] = {}

    def components(self, vector: Any, axes: Any, where: str) -> np.ndarray:
        """The components (3,) of a vector along the axes of a frame."""
        formulas = self.formulas
        parts = [(formulas.nodes(list(parts), where), frame) for parts, frame in _parts(vector)]
        return self._joined(parts, axes)

    def rates(self, vector: Any, axes: Any, where: str) -> np.ndarray:
        """The rate of a vector in the inertial frame, with v held. Its parts change, and turn with frames."""
        formulas, parts = self.formulas, []
        for own, frame in _parts(vector):
            nodes = formulas.nodes(list(own), where)
            rate = formulas.rate(nodes)
            if frame != self.frame:
                rate = formulas.add(rate, _cross(formulas, self.spin(frame), nodes))
            parts.append((rate, frame))
        return self._joined(parts, axes)

    def spin(self, frame: Any) -> np.ndarray:
        """The angular velocity of a frame along its own axes."""
        if frame not in self._spins:
            where = f"the angular velocity of {frame}"
            self._spins[frame] = self.components(frame.ang_vel_in(self.frame), frame, where)
        return self._spins[frame]

    def _joined(self, parts: list[tuple[np.ndarray, Any]], axes: Any) -> np.ndarray:
        result = np.full(3, ZERO, dtype=np.int64)
        for own, frame in parts:
            turned = own if frame == axes else self.formulas.matmul(self._rotation(axes, frame), own)
            result = self.formulas.add(result, turned)
        return result

    def _rotation(self, axes: Any, frame: Any) -> np.ndarray:
        if (axes, frame) not in self._turned:
            where = f"the rotation from {axes} to {frame}"
            nodes = self.formulas.nodes(list(axes.dcm(frame)), where)
            self._turned[axes, frame] = nodes.reshape(3, 3)
        return self._turned[axes, frame]


def _cross(formulas: Formulas, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    graph, (ax, ay, az), (bx, by, bz) = formulas.graph, a.tolist(), b.tolist()
    pairs = [(ay, bz, az, by), (az, bx, ax, bz), (ax, by, ay, bx)]
    return np.array([graph.sub(graph.mul(i, j), graph.mul(k, m)) for i, j, k, m in pairs], dtype=np.int64)


def _each(nodes: np.ndarray, make: Any) -> np.ndarray:
    return np.array([make(i) for i in nodes.reshape(-1).tolist()], dtype=np.int64).reshape(nodes.shape)


def _parts(vector: Any) -> list[tuple[Any, Any]]:
    """Components and frames of a vector. The zero vector may be the number 0."""
    return list(getattr(vector, "args", []))
