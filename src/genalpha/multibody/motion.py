"""What a solution of a model says, by name: frames, joint coordinates, reactions, energies."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.rowwise import Rowwise
from genalpha.compiler import machine
from genalpha.multibody import reactions
from genalpha.multibody.bodies import AnyBody, Body, Marker, PlanarBody
from genalpha.multibody.connectors import Connector
from genalpha.multibody.forces import Force, JointSpring, SpringDamper
from genalpha.multibody.frames import BodyKind, FrameState, Wrench
from genalpha.multibody.joints import Joint
from genalpha.multibody.limits import Limit
from genalpha.multibody.rotors import Rotor
from genalpha.multibody.vectors import skew
from genalpha.results.solution import Solution

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


class Reaction(NamedTuple):
    """Force (K, 3) and torque (K, 3) in every row."""

    force: np.ndarray
    torque: np.ndarray


class Momentum(NamedTuple):
    """Linear (K, 3) and angular momentum (K, 3) in every row."""

    linear: np.ndarray
    angular: np.ndarray


class Motion:
    """A solution of a model. Every result has one entry for each row of the solution, first axis."""

    def __init__(self, model: Model, sol: Solution) -> None:
        self.model, self.sol = model, sol
        self.t, self._q, self._v = (np.asarray(x) for x in (sol.t, sol.q, sol.v))
        self._first = model.slices()
        found = [x.shape[-1] if x.ndim else 0 for x in (self._q, self._v)]
        if found != [len(model.q0), len(model.v0)]:
            raise ValueError(
                f"the solution has {found[0]} coordinates and {found[1]} velocities in a row, "
                f"and {model!r} has {len(model.q0)} and {len(model.v0)}: "
                "pass a solution of this model that saved all of q and v"
            )

    # --- frames -----------------------------------------------------------------------------------

    def frame(self, where: Any, at: Any = (0.0, 0.0, 0.0)) -> FrameState:
        """A frame in all rows: x (K, 3), axes R (K, 3, 3), v (K, 3) and w (K, 3), in space-fixed axes.

        ``where`` is a frame, a body or its name; ``at`` a point of the body in its own frame.
        """
        return self._state(self._marker(where, at))

    def _marker(self, where: Any, at: Any) -> Marker:
        where = self.model[where] if isinstance(where, str) else where
        if isinstance(where, Marker):
            return where
        if not isinstance(where, AnyBody):
            raise TypeError(f"{where!r} is no body and no frame")
        return where.frame(at)

    def _state(self, marker: Marker) -> FrameState:
        body = marker.body
        if body.kind.space is None:
            found = [np.broadcast_to(x, (len(self.t), *x.shape)) for x in marker.state]
        else:
            of_q, of_v = self._first[body.name]
            rows = (self._q[:, of_q], self._v[:, of_v], marker.r[None], marker.Q[None])
            found = _states(body.kind)(rows, machine.lanes())
        return FrameState(*(np.asarray(x) for x in found))

    def position(self, where: Any, at: Any = (0.0, 0.0, 0.0)) -> np.ndarray:
        """Positions (K, 3) of a point of a body, or of a frame."""
        return np.asarray(self.frame(where, at).x)

    def rotation(self, where: Any) -> np.ndarray:
        """Axes (K, 3, 3) of a body or a frame, as columns."""
        return np.asarray(self.frame(where).R)

    def velocity(self, where: Any, at: Any = (0.0, 0.0, 0.0)) -> np.ndarray:
        """Velocities (K, 3) of a point of a body, or of a frame."""
        return np.asarray(self.frame(where, at).v)

    def angular_velocity(self, where: Any) -> np.ndarray:
        """Angular velocities (K, 3) of a body, in space-fixed axes."""
        return np.asarray(self.frame(where).w)

    def acceleration(self, where: Any, at: Any = (0.0, 0.0, 0.0)) -> np.ndarray:
        """Accelerations (K, 3) of a point of a body, or of a frame."""
        marker = self._marker(where, at)
        if marker.body.kind.space is None:
            return np.zeros((len(self.t), 3))
        of_q, of_v = self._first[marker.body.name]
        kind, r, Q = marker.body.kind, jnp.asarray(marker.r), jnp.asarray(marker.Q)

        def moved(q: Any, v: Any, a: Any) -> Any:
            speed = lambda q, v: kind.state(q, v, r, Q).v
            return jax.jvp(speed, (q, v), (kind.space.rate(q, v), a))[1]  # type: ignore[union-attr]

        rows = (self._q[:, of_q], self._v[:, of_v], np.asarray(self.sol.a)[:, of_v])
        return np.asarray(_each(moved, rows))

    # --- joints -----------------------------------------------------------------------------------

    def _joint(self, name: Any) -> Joint:
        found = self.model[name] if isinstance(name, str) else name
        if not isinstance(found, Joint):
            raise TypeError(f"{found!r} is no joint")
        return found

    def coordinate(self, joint: Any, name: str = "") -> np.ndarray:
        """A coordinate (K,) of a joint, the first by default. Angles are unwrapped over the rows."""
        found = self._joint(joint)
        one = found.coordinate(name)
        a, b = (self._state(marker) for marker in found.markers[:2])
        values = np.asarray(_each(one.value, (a, b)))
        return np.unwrap(values) if one.turns else values

    def rate(self, joint: Any, name: str = "") -> np.ndarray:
        """The rate (K,) of a coordinate of a joint."""
        found = self._joint(joint)
        one = found.coordinate(name)
        a, b = (self._state(marker) for marker in found.markers[:2])

        def rate(a: FrameState, b: FrameState) -> Any:
            value = lambda x, R, y, S: one.value(a._replace(x=x, R=R), b._replace(x=y, R=S))
            spun = [skew(f.w) @ f.R for f in (a, b)]
            return jax.jvp(value, (a.x, a.R, b.x, b.R), (a.v, spun[0], b.v, spun[1]))[1]

        return np.asarray(_each(rate, (a, b)))

    def reaction(self, joint: Any, frame: int = 1) -> Reaction:
        """The force and torque of a joint on the body of frame b, at the origin of that frame.

        They are in the axes of frame a, and include friction. The opposite force acts on the body of a, at
        the same point. ``frame`` is the number of another frame of the joint. Rows that were left out as
        redundant count as zero.
        """

        def load(functions: Any, t: Any, lam: Any, psi: Any, *frames: FrameState) -> Any:
            found = _load(functions, frame, t, lam, psi, frames)
            return tuple(frames[0].seen(x) for x in found)

        return Reaction(*map(np.asarray, self._loaded(joint, load)))

    def friction(self, joint: Any) -> Reaction:
        """The part of :meth:`reaction` that is friction: on the body of frame b, in the axes of frame a."""
        found = self._joint(joint)
        if "friction" not in found.bound():
            raise ValueError(f"{found!r} has no friction")

        def load(functions: Any, t: Any, lam: Any, psi: Any, a: FrameState, b: FrameState) -> Any:
            more = reactions.rubbed(functions, reactions.ideal(functions, 1, t, lam, psi, (a, b)), a, b)
            return tuple(a.seen(x) for x in more)

        return Reaction(*map(np.asarray, self._loaded(found, load)))

    def _loaded(self, joint: Any, function: Callable[..., Any]) -> Any:
        """``function(functions, t, lam, psi, *frames)`` of a joint in all rows."""
        found = self._joint(joint)
        places, functions, copy = self._part(found)
        lam = np.asarray(self.sol.lam)[:, places.g[copy]]
        psi = np.asarray(self.sol.psi)[:, places.k[copy]]
        states = [self._state(marker) for marker in found.markers]
        return _each(functools.partial(function, functions), (self.t, lam, psi, *states))

    def _part(self, thing: Connector) -> tuple[Any, dict[str, Callable[..., Any]], int]:
        """Where a connector is among the parts: places, its functions of frames, and its number there."""
        system = self.model.system
        first = len(system.parts) - len(self.model.groups)
        for i, group in enumerate(self.model.groups):
            if thing in group.members:
                return system.places[first + i], thing.bound(), group.members.index(thing)
        raise ValueError(f"{thing!r} is not in this model")

    # --- forces and energies ----------------------------------------------------------------------

    def power(self, thing: Any) -> np.ndarray:
        """The power (K,) that a force or a joint gives to the bodies.

        That of a joint is the loss in its friction, which is never positive, or the power of a drive. An
        ideal joint has none.
        """
        found = self.model[thing] if isinstance(thing, str) else thing
        given = lambda wrenches, frames: sum(
            jnp.asarray(w.force) @ f.v + jnp.asarray(w.torque) @ f.w
            for w, f in zip(wrenches, frames, strict=True)
        )
        if isinstance(found, Force):
            states, act = [self._state(marker) for marker in found.markers], found.bound()["force"]
            return np.asarray(_each(lambda t, *frames: given(act(t, *frames), frames), (self.t, *states)))
        if not isinstance(found, Joint):
            raise TypeError(f"{found!r} is no force and no joint")

        def all_frames(functions: Any, t: Any, lam: Any, psi: Any, *frames: FrameState) -> Any:
            return given([_load(functions, k, t, lam, psi, frames) for k in range(len(frames))], frames)

        return np.asarray(self._loaded(found, all_frames))

    def momentum(self, about: Any = (0.0, 0.0, 0.0)) -> Momentum:
        """Linear and angular momentum of all bodies without rotors, (K, 3) each, in space-fixed axes.

        ``about`` (3,) or (K, 3) is the point in space that the angular momentum is about.
        """
        point = np.asarray(about, dtype=float)
        if point.shape not in ((3,), (len(self.t), 3)) or not np.isfinite(point).all():
            raise ValueError(
                f"about must be a point (3,), or one for each of {len(self.t)} rows, got {about!r}"
            )
        linear, angular = np.zeros((len(self.t), 3)), np.zeros((len(self.t), 3))
        for body in self.model.bodies:
            at = self._state(body.middle)
            push = body.mass * at.v
            linear += push
            angular += np.cross(at.x - point, push)
            if isinstance(body, Body):
                angular += np.einsum("kij,jl,kml,km->ki", at.R, body.inertia.tensor, at.R, at.w)
            elif isinstance(body, PlanarBody):
                angular += body.moment * at.w
        return Momentum(linear, angular)

    def energy(self) -> dict[str, np.ndarray]:
        """Kinetic energy, and potential energy of gravity and of springs (K,), and their total.

        Springs with a law of the user's own do not count.
        """
        kinetic, gravity = np.zeros(len(self.t)), np.zeros(len(self.t))
        for body in self.model.bodies:
            of_q, of_v = self._first[body.name]
            v, q = self._v[:, of_v], self._q[:, of_q]
            if isinstance(body, Body):
                kinetic += 0.5 * body.mass * (v[:, :3] ** 2).sum(axis=1)
                kinetic += 0.5 * np.einsum("ki,ij,kj->k", v[:, 3:], body.inertia.tensor, v[:, 3:])
            elif isinstance(body, PlanarBody):
                kinetic += 0.5 * body.mass * (v[:, :2] ** 2).sum(axis=1) + 0.5 * body.moment * v[:, 2] ** 2
            else:
                kinetic += 0.5 * body.mass * (v**2).sum(axis=1)
            count = 2 if isinstance(body, PlanarBody) else 3
            gravity -= body.mass * q[:, :count] @ self.model.gravity[:count]
        for rotor in (one for one in self.model.forces if isinstance(one, Rotor)):
            kinetic += rotor.energy(self.rate(rotor.joint, rotor.driven.name))
        springs = np.zeros(len(self.t))
        for one in self.model.forces:
            springs += self._stored(one)
        return {
            "kinetic": kinetic,
            "gravity": gravity,
            "springs": springs,
            "total": kinetic + gravity + springs,
        }

    def _stored(self, one: Force) -> np.ndarray | float:
        if isinstance(one, SpringDamper):
            a, b = (self.position(marker) for marker in one.markers)
            longer = np.linalg.norm(b - a, axis=1) - one.numbers["length"]
        elif isinstance(one, JointSpring):
            longer = self.coordinate(one.joint, one.driven.name) - one.numbers["free"]
        elif isinstance(one, Limit):
            return one.stored(self.coordinate(one.joint, one.driven.name))
        else:
            return 0.0
        return 0.5 * one.numbers["stiffness"] * longer**2


def _load(functions: Any, k: int, t: Any, lam: Any, psi: Any, frames: Any) -> Wrench:
    """What a joint does to frame ``k``, with friction."""
    if "friction" in functions:
        return reactions.both(functions, t, lam, psi, *frames)[k]
    return reactions.ideal(functions, k, t, lam, psi, frames)


@functools.cache
def _states(kind: BodyKind) -> Rowwise:
    """The frames of bodies of a kind: a function of rows, made once for all of them."""
    size, n = kind.sizes
    return Rowwise("frame", kind.state, (np.zeros(size), np.zeros(n), np.zeros(3), np.eye(3)))


def _each(function: Callable[..., Any], rows: Any) -> Any:
    """A function of rows, for all of them: by machine code, which is compiled faster than by XLA."""
    given = jax.tree.map(lambda x: np.asarray(x, dtype=float), tuple(rows))
    example = jax.tree.map(lambda x: x[0], given)
    return Rowwise("motion", function, example)(given, machine.lanes())
