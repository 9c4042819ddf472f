"""Bodies: rigid bodies, bodies in a plane, point masses, and the ground."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Self

import jax.numpy as jnp
import numpy as np

from genalpha.compiler.kept import of_package
from genalpha.errors import hint
from genalpha.multibody.frames import (
    GROUND,
    PLANAR,
    POINT,
    RIGID,
    BodyKind,
    along,
    axes_of,
    finite,
    orientation,
    positive,
    quaternion_of,
    quaternions_of,
    upright,
    vector,
)
from genalpha.multibody.inertia import Inertia, rod
from genalpha.multibody.markers import Marker
from genalpha.multibody.vectors import EYE, cross
from genalpha.view.shapes import Shape


def named(name: Any, what: str) -> str:
    """A name that is not empty."""
    if not isinstance(name, str) or not name.strip():
        raise TypeError(f"the name of {what} must be a text, got {name!r}")
    return name


_FIXED = ("mass", "moment", "inertia")
_MOVES = ("x", "R", "velocity", "angular_velocity")
_SET = (*_FIXED, *_MOVES, "name", "center", "angle", "shape")
# Arguments of constructors, and the attributes that may be set instead of them.
_INSTEAD = {"at": "x, the centre of mass", "rotation": "R, the axes as columns, or the angle of a PlanarBody"}


class AnyBody:
    """What all bodies have: a name, a pose in the model, velocities, and frames.

    ``x`` (3,) is the centre of mass, ``R`` (3, 3) the axes.
    """

    kind: BodyKind
    mass = 0.0
    shape: Shape | None = None

    def __init__(self, name: str, x: np.ndarray, R: np.ndarray, center: np.ndarray) -> None:
        self.name, self.x, self.R, self.center = name, x, R, center

    def __setattr__(self, key: str, value: Any) -> None:
        """Models may have made their equations with the mass of a body already."""
        if key in _FIXED and key in self.__dict__:
            raise AttributeError(
                f"{key} of the body {self.name!r} cannot be changed: make another body, or pass "
                f"values={{'{self.name}.{key}': ...}} to model.solve"
            )
        if key not in _SET and not key.startswith("_") and key not in _INSTEAD and of_package(type(self)):
            raise AttributeError(f"{self!r} has no {key} that can be set: {hint(key, _SET, 'there are')}")
        if key in _INSTEAD:
            raise AttributeError(f"{key} is for the constructor: set {_INSTEAD[key]} of {self.name!r}")
        if key == "center" and key in self.__dict__:
            raise AttributeError(f"center of {self!r} cannot be changed: make another body, or set its x")
        if key == "name" and key in self.__dict__:
            raise AttributeError(f"the name of {self!r} cannot be changed: models know the body by it")
        if key == "shape" and value is not None and not isinstance(value, Shape):
            raise TypeError(f"shape of {self.name!r} must be one of ga.shapes, or None, got {value!r}")
        if key in _MOVES and key in self.__dict__:
            value = self._moves(key, value)
        elif key == "angle" and not hasattr(type(self), key):
            raise AttributeError(f"{self!r} has no angle: set R, the axes as columns")
        super().__setattr__(key, value)

    def _moves(self, key: str, value: Any) -> Any:
        """A checked value of an attribute that says where the body is or how it moves."""
        before, what = self.__dict__[key], f"{key} of {self.name!r}"
        if key == "R" and self.kind.name not in ("rigid", "ground"):
            raise AttributeError(f"{what} cannot be set: a PlanarBody has an angle, a PointMass no axes")
        if self.kind is GROUND:
            raise AttributeError("the ground does not move: its x and R cannot be set")
        if key == "R":
            return orientation(value, what)
        found = finite(value, what) if np.ndim(before) == 0 else vector(value, what, len(before))
        if key == "x" and self.kind is PLANAR and found[2]:  # type: ignore[index]
            raise ValueError(f"{self!r} moves in the plane of x and y: z of x must be 0, got {value!r}")
        return found

    def frame(self, at: Any = (0.0, 0.0, 0.0), rotation: Any = None, axis: Any = None) -> Marker:
        """A frame at a point of the body, in its own axes, turned, or with its z axis along ``axis``."""
        if rotation is not None and axis is not None:
            raise ValueError(f"a frame on {self.name!r} has a rotation and an axis: pass one of them")
        where = f"of a frame on {self.name!r}"
        Q = orientation(rotation, f"rotation {where}") if axis is None else along(axis, f"axis {where}")
        return Marker(self, vector(at, f"at {where}") - self.center, Q)

    @property
    def middle(self) -> Marker:
        """The frame at the centre of mass, with the axes of the body."""
        return Marker(self, np.zeros(3), EYE)

    def frame_in_space(self, at: Any, axes: np.ndarray) -> Marker:
        """The frame that is now at a point in space, with these axes (3, 3)."""
        x = vector(at, f"at, on {self.name!r}")
        return Marker(self, self.R.T @ (x - self.x), self.R.T @ axes)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    # --- what a model needs -----------------------------------------------------------------------

    def coordinates(self) -> np.ndarray:
        """q at the start."""
        raise NotImplementedError

    def velocities(self) -> np.ndarray:
        """v at the start."""
        raise NotImplementedError

    @staticmethod
    def starts(bodies: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """q and v at the start of several bodies of this class, a row for each."""
        rows = [(body.coordinates(), body.velocities()) for body in bodies]
        q, v = map(np.array, zip(*rows, strict=True))
        return q, v

    def put(self, q: np.ndarray, v: np.ndarray) -> None:
        """Move the body to coordinates and velocities."""
        raise NotImplementedError

    def moved(self, q: np.ndarray) -> Self:
        """A copy of the body at coordinates, at rest. The ground is where it is."""
        found = copy.copy(self)
        if self.kind.space is not None:
            found.put(q, np.zeros(self.kind.sizes[1]))
        return found

    def numbers(self) -> dict[str, np.ndarray]:
        """The args of its mass and force."""
        raise NotImplementedError


class Ground(AnyBody):
    """What does not move. Every model has it, as ``model.ground``."""

    kind = GROUND

    def __init__(self) -> None:
        super().__init__("ground", np.zeros(3), EYE.copy(), np.zeros(3))


class Body(AnyBody):
    """A rigid body.

    Parameters
    ----------
    name : its name in the model.
    inertia : an :class:`Inertia`, such as ``mb.box(mass=2, size=(1, 1, 1))``.
    at, rotation : where the frame of the body is: its origin (3,), and a rotation matrix (3, 3), a unit
        quaternion (w, x, y, z), or an angle about z.
    velocity : (3,) of the centre of mass, in space-fixed axes.
    angular_velocity : (3,), in space-fixed axes.
    shape : what is drawn, instead of the shape of ``inertia``.

    Its coordinates are the position of its centre of mass and a unit quaternion, its velocities that of the
    centre of mass and the angular velocity in axes of the body (:class:`R3xSO3`).
    """

    kind = RIGID

    def __init__(
        self,
        name: str,
        inertia: Inertia,
        at: Any = (0.0, 0.0, 0.0),
        rotation: Any = None,
        velocity: Any = (0.0, 0.0, 0.0),
        angular_velocity: Any = (0.0, 0.0, 0.0),
        shape: Shape | None = None,
    ) -> None:
        named(name, "a body")
        if not isinstance(inertia, Inertia):
            raise TypeError(
                f"inertia of the body {name!r} must be an Inertia, such as mb.box(mass=1, size=(1, 1, 1)), "
                f"got {type(inertia).__name__}"
            )
        R = orientation(rotation, f"rotation of {name!r}")
        x = vector(at, f"at of {name!r}") + R @ inertia.center
        super().__init__(name, x, R, inertia.center)
        self.inertia, self.mass = inertia, inertia.mass
        self.velocity = vector(velocity, f"velocity of {name!r}")
        self.angular_velocity = vector(angular_velocity, f"angular_velocity of {name!r}")
        self.shape = shape or inertia.shape

    @classmethod
    def bar(cls, name: str, mass: Any, start: Any, end: Any, radius: Any = None) -> Body:
        """A round bar from one point in space to another.

        Its x axis points along it, and y is horizontal: z points up, as far as it can. If the bar is
        vertical, y is that of space.

        >>> Body.bar("crank", 2.0, (0, 0, 0), (0, 0, 1)).R[:, 0].tolist()
        [0.0, 0.0, 1.0]
        """
        a, b = vector(start, f"start of {name!r}"), vector(end, f"end of {name!r}")
        length = float(np.linalg.norm(b - a))
        if not length > 0:
            raise ValueError(f"the bar {name!r} has no length: its ends are both at {a.tolist()}")
        return cls(name, rod(mass, length, radius=radius), at=(a + b) / 2, rotation=upright((b - a) / length))

    def coordinates(self) -> np.ndarray:
        return np.concatenate([self.x, quaternion_of(self.R)])

    def velocities(self) -> np.ndarray:
        return np.concatenate([self.velocity, self.R.T @ self.angular_velocity])

    @staticmethod
    def starts(bodies: Sequence[Any]) -> tuple[np.ndarray, np.ndarray]:
        """All at once: models may have thousands of bodies."""
        of_all = [part for body in bodies for part in (body.x, body.velocity, body.angular_velocity)]
        x, velocity, spin = np.concatenate(of_all, dtype=float).reshape(-1, 3, 3).transpose(1, 0, 2)
        R = np.concatenate([body.R for body in bodies], dtype=float).reshape(-1, 3, 3)
        return np.hstack([x, quaternions_of(R)]), np.hstack([velocity, np.einsum("kij,ki->kj", R, spin)])

    def put(self, q: np.ndarray, v: np.ndarray) -> None:
        R = axes_of(q[3:])
        self.__dict__.update(x=q[:3].copy(), R=R, velocity=v[:3].copy(), angular_velocity=R @ v[3:])

    def numbers(self) -> dict[str, np.ndarray]:
        return {"mass": np.array(self.mass), "inertia": self.inertia.tensor}

    @staticmethod
    def inertia_matrix(t: Any, q: Any, of: dict[str, Any], gravity: Any) -> Any:
        """The mass matrix (6, 6)."""
        none = jnp.zeros((3, 3))
        return jnp.block([[of["mass"] * jnp.asarray(EYE), none], [none, of["inertia"]]])

    @staticmethod
    def weight(t: Any, q: Any, v: Any, of: dict[str, Any], gravity: Any) -> Any:
        """Gravity, and the gyroscopic torque."""
        spin = v[3:]
        return jnp.concatenate([of["mass"] * gravity, -cross(spin, of["inertia"] @ spin)])


class PlanarBody(AnyBody):
    """A body that moves in the plane of x and y, with coordinates x, y of its centre of mass and an angle.

    ``moment`` is the moment of inertia about its centre of mass; ``inertia`` may be given instead of
    ``mass`` and ``moment``. ``at`` (2,) is where its frame is, ``center`` (2,) the centre of mass in it.
    """

    kind = PLANAR

    def __init__(
        self,
        name: str,
        mass: Any = None,
        moment: Any = None,
        at: Any = (0.0, 0.0),
        angle: float = 0.0,
        *,
        inertia: Inertia | None = None,
        center: Any = (0.0, 0.0),
        velocity: Any = (0.0, 0.0),
        angular_velocity: float = 0.0,
        shape: Shape | None = None,
    ) -> None:
        named(name, "a body")
        if inertia is not None:
            if mass is not None or moment is not None or np.any(center):
                raise ValueError(f"{name!r} has an inertia: leave out mass, moment and center")
            mass, moment, center = inertia.mass, inertia.tensor[2, 2], inertia.center[:2]
            shape = shape or inertia.shape
        R = orientation(angle, f"angle of {name!r}")
        given = {"at": at, "center": center, "velocity": velocity}
        origin, middle, speed = (vector(x, f"{key} of {name!r}") for key, x in given.items())
        for (key, value), found in zip(given.items(), (origin, middle, speed), strict=True):
            if found[2]:
                plane = f"the body {name!r} moves in the plane of x and y"
                raise ValueError(f"{plane}: in {key} its z must be 0, got {value!r}")
        super().__init__(name, origin + R @ middle, R, middle)
        self.mass, self.moment = positive(mass, f"mass of {name!r}"), positive(moment, f"moment of {name!r}")
        self.angle, self.shape = angle, shape
        self.velocity = speed[:2]
        self.angular_velocity = finite(angular_velocity, f"angular_velocity of {name!r}")

    @property
    def angle(self) -> float:
        """About z. A body that is turned keeps its centre of mass."""
        return self._angle

    @angle.setter
    def angle(self, value: float) -> None:
        self._angle = finite(value, f"angle of {self.name!r}")
        self.__dict__["R"] = orientation(self._angle, "angle")

    def coordinates(self) -> np.ndarray:
        return np.array([*self.x[:2], self.angle])

    def velocities(self) -> np.ndarray:
        return np.array([*self.velocity, self.angular_velocity])

    def put(self, q: np.ndarray, v: np.ndarray) -> None:
        self.angle = float(q[2])
        self.__dict__.update(x=np.array([*q[:2], 0.0]), velocity=v[:2].copy(), angular_velocity=float(v[2]))

    def numbers(self) -> dict[str, np.ndarray]:
        return {"mass": np.array(self.mass), "moment": np.array(self.moment)}

    @staticmethod
    def inertia_matrix(t: Any, q: Any, of: dict[str, Any], gravity: Any) -> Any:
        return jnp.diag(jnp.stack([of["mass"], of["mass"], of["moment"]]))

    @staticmethod
    def weight(t: Any, q: Any, v: Any, of: dict[str, Any], gravity: Any) -> Any:
        return of["mass"] * jnp.stack([gravity[0], gravity[1], jnp.zeros(())])


class PointMass(AnyBody):
    """A point with a mass. A frame on it is at the point itself, and its axes do not turn."""

    kind = POINT

    def __init__(
        self,
        name: str,
        mass: Any,
        at: Any = (0.0, 0.0, 0.0),
        velocity: Any = (0.0, 0.0, 0.0),
        shape: Shape | None = None,
    ) -> None:
        named(name, "a point mass")
        super().__init__(name, vector(at, f"at of {name!r}"), EYE.copy(), np.zeros(3))
        self.mass, self.shape = positive(mass, f"mass of {name!r}"), shape
        self.velocity = vector(velocity, f"velocity of {name!r}")

    def frame(self, at: Any = (0.0, 0.0, 0.0), rotation: Any = None, axis: Any = None) -> Marker:
        return self._at_the_point(super().frame(at, rotation, axis))

    def frame_in_space(self, at: Any, axes: np.ndarray) -> Marker:
        return self._at_the_point(super().frame_in_space(at, axes))

    def _at_the_point(self, marker: Marker) -> Marker:
        if np.linalg.norm(marker.r) > 1e-9 * (1 + np.linalg.norm(self.x)):
            raise ValueError(
                f"a frame on the point mass {self.name!r} must be at the point, {self.x.tolist()} in space, "
                f"not {marker.r.tolist()} from it: use a Body, or a Distance or a spring to the point"
            )
        return marker

    def coordinates(self) -> np.ndarray:
        return self.x.copy()

    def velocities(self) -> np.ndarray:
        return self.velocity.copy()

    def put(self, q: np.ndarray, v: np.ndarray) -> None:
        self.__dict__.update(x=q.copy(), velocity=v.copy())

    def numbers(self) -> dict[str, np.ndarray]:
        return {"mass": np.array(self.mass)}

    @staticmethod
    def inertia_matrix(t: Any, q: Any, of: dict[str, Any], gravity: Any) -> Any:
        return of["mass"] * jnp.asarray(EYE)

    @staticmethod
    def weight(t: Any, q: Any, v: Any, of: dict[str, Any], gravity: Any) -> Any:
        return of["mass"] * gravity


def check_torque(name: str, *ends: Marker) -> None:
    """Refuse a force with a torque on a point."""
    for end in ends:
        if isinstance(end.body, PointMass):
            raise ValueError(f"{name!r} has a torque on {end.body!r}, which cannot be turned: use a Body")
