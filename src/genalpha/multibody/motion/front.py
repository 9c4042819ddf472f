"""What a solution of a model says, by name: frames, joint coordinates, reactions, energies."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from genalpha.backends.rowwise import Rowwise
from genalpha.compiler import machine
from genalpha.multibody.bodies import AnyBody, Body, PlanarBody
from genalpha.multibody.connectors import Connector
from genalpha.multibody.contact import SphereContact, contact_energy
from genalpha.multibody.couplings import OfCoordinate
from genalpha.multibody.forces import Bushing, Force, JointForce, JointSpring, SpringDamper
from genalpha.multibody.frames import FrameState
from genalpha.multibody.groups import Same, of_kind
from genalpha.multibody.joints import Joint
from genalpha.multibody.limits import TURN, Limit
from genalpha.multibody.markers import Marker
from genalpha.multibody.motion.functions import (
    changes_of,
    effort_of,
    frames_of,
    function_of_kind,
    power_of,
    rate_change_of,
    rate_of,
    rubbing,
    seen_force,
    seen_load,
    value_of,
)
from genalpha.multibody.motion.sharing import shared
from genalpha.multibody.rotors import Rotor
from genalpha.multibody.rows import rows_of
from genalpha.multibody.values import with_values
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
    """A solution of a model, or a state. Every result has one entry for each row of it, first axis."""

    def __init__(self, model: Model, sol: Solution, values: Mapping[str, Any] | None = None) -> None:
        self.sol, self.given = rows_of(model, sol), model
        self.model = with_values(model, values) if values else model
        self._functions: dict[Any, Rowwise] = {}
        self.t, self._q = np.asarray(self.sol.t), np.asarray(self.sol.q)
        self._v = np.asarray(self.sol.v)[:, : len(model.v0)]  # first-order states come after them
        self._first = model.slices()

    def __repr__(self) -> str:
        times = f"from t = {self.t[0]:g} to {self.t[-1]:g}" if len(self.t) else ""
        return f"<Motion of {self.given!r}: {len(self.t)} rows {times}>"

    # --- frames -----------------------------------------------------------------------------------

    def frame(self, where: Any, at: Any = (0.0, 0.0, 0.0)) -> FrameState:
        """A frame in all rows: x (K, 3), axes R (K, 3, 3), v (K, 3) and w (K, 3), in space-fixed axes.

        ``where`` is a frame, a body or its name; ``at`` a point of the body in its own frame.
        """
        return self._state(self._marker(where, at))

    def _marker(self, where: Any, at: Any) -> Marker:
        where = self.model[where] if isinstance(where, str) else where
        if not isinstance(where, AnyBody | Marker):
            raise TypeError(f"{where!r} is no body and no frame")
        body = where if isinstance(where, AnyBody) else where.body
        if body.name not in self._first and body.kind.space is not None:
            raise ValueError(f"{body!r} is not in the model")
        return where if isinstance(where, Marker) else where.frame(at)

    def _state(self, marker: Marker) -> FrameState:
        body = marker.body
        if body.kind.space is None:
            found = [np.broadcast_to(x, (len(self.t), *x.shape)) for x in marker.state]
        else:
            of_q, of_v = self._first[body.name]
            rows = (self._q[:, of_q], self._v[:, of_v], marker.r[None], marker.Q[None])
            found = frames_of(body.kind)(rows, machine.lanes())
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
        return np.asarray(self._change(self._marker(where, at)).v)

    def _change(self, marker: Marker) -> FrameState:
        """The derivative of a frame with respect to time, in all rows."""
        body, count = marker.body, len(self.t)
        if body.kind.space is None:
            return FrameState(*(np.zeros((count, *x.shape)) for x in marker.state))
        of_q, of_v = self._first[body.name]
        rows = (self._q[:, of_q], self._v[:, of_v], self._kept("a")[:, of_v])
        found = changes_of(body.kind)((*rows, marker.r[None], marker.Q[None]), machine.lanes())
        return FrameState(*map(np.asarray, found))

    def _kept(self, name: str) -> np.ndarray:
        """Accelerations or multipliers of all rows, if the solution has them."""
        found = np.asarray(getattr(self.sol, name, None))
        if not found.ndim and not hasattr(self.sol, "status"):
            raise ValueError(
                f"this needs {name}, which positions and velocities alone do not have: pass a solution, or "
                "the state ga.consistent(model.system, t, q, v)"
            )
        if found.ndim != 2 or len(found) != len(self.t):
            raise ValueError(
                f"the solution has not saved {name}, which this needs: add {name!r} to save, or leave it out"
            )
        return found

    # --- joints -----------------------------------------------------------------------------------

    def _joint(self, name: Any) -> Joint:
        found = self._thing(name)
        if not isinstance(found, Joint):
            raise TypeError(f"{found!r} is no joint")
        return found

    def _thing(self, name: Any) -> Any:
        """A joint or a force, with the numbers of this motion."""
        own = isinstance(name, Connector) and self.given._things.get(name.name) is name
        return self.model[name.name if own else name] if own or isinstance(name, str) else name

    def coordinate(self, joint: Any, name: str = "") -> np.ndarray:
        """A coordinate (K,) of a joint, the first by default. Angles are unwrapped over the rows.

        Whole turns between two rows follow from the mean of the rates there. Where rows are so far apart that
        this is wrong by half a turn (``save``, ``t_eval``), turns are missed: keep more rows.
        """
        found = self._joint(joint)
        one = found.coordinate(name)
        a, b = (self._state(marker) for marker in found.markers[:2])
        values = np.asarray(value_of(one)((a, b), machine.lanes()))
        if not one.turns or len(values) < 2:
            return values
        # Between two rows there may be whole turns: the rates tell how many.
        rates = np.asarray(rate_of(one)((a, b), machine.lanes()))
        likely = np.diff(self.t) * (rates[1:] + rates[:-1]) / 2
        turned = np.diff(values)
        turned += TURN * np.round((likely - turned) / TURN)
        return values[0] + np.concatenate([[0.0], np.cumsum(turned)])

    def rate(self, joint: Any, name: str = "") -> np.ndarray:
        """The rate (K,) of a coordinate of a joint."""
        found = self._joint(joint)
        one = found.coordinate(name)
        a, b = (self._state(marker) for marker in found.markers[:2])
        return np.asarray(rate_of(one)((a, b), machine.lanes()))

    def reaction(self, joint: Any, frame: int = 1, redundant: str = "zero") -> Reaction:
        """The force and torque of a joint on the body of frame b, at the origin of that frame.

        They are in the axes of frame a, and include friction. The opposite force acts on the body of a, at
        the same point. ``frame`` is the number of another frame of the joint. Rows that were left out as
        redundant count as "zero", or ``redundant="min_norm"`` shares loads among all rows: multipliers of
        least norm with the same forces on the bodies.
        """
        if redundant not in ("zero", "min_norm"):
            raise ValueError(f"redundant must be 'zero' or 'min_norm', got {redundant!r}")
        found = self._joint(joint)
        frame = self._frame_of(found, frame)
        if redundant == "min_norm":
            return self._whole.reaction(found.name, frame)
        return Reaction(*map(np.asarray, self._loaded(found, seen_load, frame)))

    @functools.cached_property
    def _whole(self) -> Motion:
        """The same motion, with multipliers of least norm for all rows, also those that were left out."""
        model, lam, psi = shared(self.model, self.t, self._q, self._v, self._kept)
        rows = SimpleNamespace(t=self.t, q=self._q, v=self._v, lam=lam, psi=psi)
        return Motion(model, rows)  # type: ignore[arg-type]

    def friction(self, joint: Any) -> Reaction:
        """The part of :meth:`reaction` that is friction: on the body of frame b, in the axes of frame a."""
        found = self._joint(joint)
        if "friction" not in found.bound():
            raise ValueError(f"{found!r} has no friction")
        return Reaction(*map(np.asarray, self._loaded(found, rubbing)))

    def load(self, force: Any, frame: int | None = None) -> Reaction:
        """What a spring, a motor or another force does to the body of a frame, at the origin of that frame.

        It is in the axes of frame a, as in :meth:`reaction`; if it has one frame, these turn with the body.
        ``frame`` is the number of the frame, by default the last one.
        """
        found = self._thing(force)
        if not isinstance(found, Force) or isinstance(found, Rotor):
            raise TypeError(f"{found!r} has no load: ask for the reaction of a joint, the effort of a rotor")
        k = len(found.markers) - 1 if frame is None else self._frame_of(found, frame)
        return Reaction(*map(np.asarray, self._loaded(found, seen_force, k)))

    def effort(self, thing: Any) -> np.ndarray:
        """The torque or force (K,) of a motor, spring, limit or drive along its joint coordinate.

        It acts on the body of frame b, and its opposite on that of a: it is positive if it pushes the
        coordinate upwards.
        """
        found = self._thing(thing)
        if isinstance(found, Rotor):
            return -found.numbers["inertia"] * self._faster(found)
        if not isinstance(found, JointForce | OfCoordinate):
            raise TypeError(f"{found!r} acts along no joint coordinate: ask for its load or reaction")
        return np.asarray(self._loaded(found, effort_of, found.driven))

    def _faster(self, rotor: Rotor) -> np.ndarray:
        """The derivative (K,) of the rate of a rotor."""
        ends = [each(marker) for each in (self._state, self._change) for marker in rotor.markers]
        return np.asarray(rate_change_of(rotor.driven)(tuple(ends), machine.lanes()))

    def _frame_of(self, thing: Connector, frame: Any) -> int:
        """The checked number of a frame."""
        many = len(thing.markers)
        if not isinstance(frame, int | np.integer) or not 0 <= frame < many:
            raise ValueError(
                f"frame must be the number of a frame of {thing!r}, 0 to {many - 1}, got {frame!r}"
            )
        return int(frame)

    def _loaded(self, thing: Connector, what: Callable[..., Any], *more: Any) -> Any:
        """``what(functions, *more, t, lam, psi, *frames)`` of a joint or a force in all rows."""
        lam, psi = self._multipliers(thing)
        own = {key: value[None] for key, value in thing.numbers.items()}
        states = [self._state(marker) for marker in thing.markers]
        key = thing.name, what, *more
        if key not in self._functions:
            self._functions[key] = of_kind(function_of_kind, Same(copy.copy(thing)), what, *more)
        return self._functions[key]((own, self.t, lam, psi, *states), machine.lanes())

    def _multipliers(self, thing: Connector) -> tuple[np.ndarray, np.ndarray]:
        """λ (K, m) and ψ (K, p) of a joint or a force."""
        if isinstance(thing, Force):
            return np.zeros((len(self.t), 0)), np.zeros((len(self.t), 0))
        system = self.model.system
        first = len(system.parts) - len(self.model.groups)
        for i, group in enumerate(self.model.groups):
            if thing in group.members:
                places, number = system.places[first + i], group.members.index(thing)
                m, p = len(places.g[number]), len(places.k[number])
                empty = np.zeros((len(self.t), 0))
                lam = self._kept("lam")[:, places.g[number]] if m else empty
                return lam, self._kept("psi")[:, places.k[number]] if p else empty
        if self.model._things.get(thing.name) is not thing:
            raise ValueError(f"{thing!r} is not in this model")
        return np.zeros((len(self.t), 0)), np.zeros((len(self.t), 0))  # all of its rows were left out

    # --- forces and energies ----------------------------------------------------------------------

    def power(self, thing: Any) -> np.ndarray:
        """The power (K,) that a force or a joint gives to the bodies.

        That of a joint is the loss in its friction, which is never positive, or the power of a drive. An
        ideal joint has none. A rotor gives what its kinetic energy loses.
        """
        found = self._thing(thing)
        if not isinstance(found, Force | Joint):
            raise TypeError(f"{found!r} is no force and no joint")
        if isinstance(found, Rotor):
            return self.effort(found) * self.rate(found.joint, found.driven.name)
        return np.asarray(self._loaded(found, power_of))

    def momentum(self, about: Any = (0.0, 0.0, 0.0)) -> Momentum:
        """Linear and angular momentum of all bodies without rotors, (K, 3) each, in space-fixed axes.

        ``about`` (3,) or (K, 3) is the point in space that the angular momentum is about.
        """
        try:
            point = np.asarray(about, dtype=float)
        except (TypeError, ValueError):
            point = np.full(3, np.nan)
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

        That of rotors, bushings, limits and contacts counts, that of laws of the user's own does not. Torques
        of a bushing have an energy if its rotation is small, or its stiffness the same about all axes.
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
            if one.driven.turns:  # as the spring counts it
                longer = np.remainder(longer + np.pi, TURN) - np.pi
        elif isinstance(one, Bushing):
            from_, to = (self._state(marker) for marker in one.markers)
            d = np.einsum("ki,kij->kj", to.x - from_.x, from_.R)
            turned = Rotation.from_matrix(np.einsum("kji,kjl->kil", from_.R, to.R)).as_rotvec()
            longer = np.concatenate([d, turned], axis=1)
            return 0.5 * longer**2 @ one.numbers["stiffness"]
        elif isinstance(one, Limit):
            return one.stored(self.coordinate(one.joint, one.driven.name))
        elif isinstance(one, SphereContact):
            plane, ball = (self._state(marker) for marker in one.markers)
            height = np.einsum("ki,ki->k", ball.x - plane.x, plane.R[:, :, 2])
            return contact_energy(one.numbers, one.numbers["radius"] - height)
        else:
            return 0.0
        return 0.5 * one.numbers["stiffness"] * longer**2
