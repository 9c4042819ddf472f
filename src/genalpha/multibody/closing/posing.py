"""Positions of bodies from the coordinates of joints: forward kinematics."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from genalpha.multibody.bodies import AnyBody, Body, PlanarBody
from genalpha.multibody.couplings import FULL_TURN, Screw
from genalpha.multibody.forces import direction
from genalpha.multibody.frames import FrameState, orientation, plural, vector
from genalpha.multibody.joints import (
    ANGLE,
    SLIDE,
    Cylindrical,
    Joint,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    Universal,
    Weld,
)
from genalpha.multibody.vectors import EYE

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

_BY_COORDINATES = (Revolute, Prismatic, Cylindrical, Planar, Weld)
POSED = (*_BY_COORDINATES, Spherical, Universal, Screw)
_QUARTER = Rotation.from_rotvec([-np.pi / 2, 0, 0]).as_matrix()  # z of b is y of a


class Relative(NamedTuple):
    """Frame b as seen from frame a: position d (3,), axes R (3, 3), and their rates, in the axes of a."""

    d: np.ndarray
    R: np.ndarray
    v: np.ndarray
    w: np.ndarray


def posed(model: Model, values: dict[str, Any], rates: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """See :meth:`Model.pose`."""
    _check(model, {**values, **rates})
    still = np.zeros(3)
    found: dict[str, FrameState] = {"ground": FrameState(still, EYE, still, still)}
    neighbours = _tree(model, values, rates)
    for body in (model.ground, *model.bodies):
        if body.name in found and body is not model.ground:
            continue
        if body is not model.ground:
            found[body.name] = _root(body, values.get(body.name), rates.get(body.name))
        waiting = [body]
        while waiting:
            here = waiting.pop()
            for joint in neighbours.get(here.name, []):
                a, b = joint.markers[:2]
                other = b.body if a.body is here else a.body
                if other.name not in found:
                    moved = _relative(joint, values.get(joint.name), rates.get(joint.name))
                    found[other.name] = _next(joint, moved, found[here.name], here)
                    waiting.append(other)
    states = [_coordinates(body, found[body.name]) for body in model.bodies]
    return np.concatenate([q for q, _ in states]), np.concatenate([v for _, v in states])


def _check(model: Model, named: dict[str, Any]) -> None:
    for name in named:
        thing = model[name]
        if not isinstance(thing, (AnyBody, *POSED)) or thing is model.ground:
            has = [joint.name for joint in model.joints if isinstance(joint, POSED)]
            raise ValueError(f"{thing!r} has no value: joints that have one are {', '.join(has)}")
        if not isinstance(thing, AnyBody):
            try:
                np.asarray(named[name], dtype=float)
            except (TypeError, ValueError) as error:
                what = f"the value of {name!r} must be a number, or several"
                raise TypeError(f"{what}, got {named[name]!r}") from error


def _tree(model: Model, values: dict[str, Any], rates: dict[str, Any]) -> dict[str, list[Joint]]:
    """Joints by the names of their bodies, without those that close loops.

    Joints that are named come first, so the others close the loops; a body that is named is a root.
    """
    named = {**values, **rates}
    part = {body.name: body.name for body in model.bodies} | {"ground": "ground"}

    def root(name: str) -> str:
        while part[name] != name:
            part[name] = name = part[part[name]]
        return name

    for body in model.bodies:
        if body.name in named:
            part[root(body.name)] = "ground"
    found: dict[str, list[Joint]] = {}
    pairs = [joint for joint in model.joints if isinstance(joint, POSED)]
    for joint in sorted(pairs, key=lambda joint: joint.name not in named):
        a, b = (marker.body.name for marker in joint.markers)
        if root(a) != root(b):
            part[root(a)] = root(b)
            found.setdefault(a, []).append(joint)
            found.setdefault(b, []).append(joint)
        elif joint.name in named:
            raise ValueError(f"{joint!r} closes a loop of joints that have values: leave one of them out")
    return found


def _numbers(value: Any, count: int, joint: Joint) -> np.ndarray:
    what = f"the value of {joint.name!r}"
    if np.size(value) < count:
        raise ValueError(f"{what} must be {plural(count)}, got {value!r}")
    return vector(np.atleast_1d(value), what, count)


def _relative(joint: Joint, value: Any, rate: Any) -> Relative:
    """The relative pose of the frames of a joint, and its rates."""
    a, b = (marker.state for marker in joint.markers[:2])
    now = Relative(a.R.T @ (b.x - a.x), a.R.T @ b.R, np.zeros(3), np.zeros(3))
    if isinstance(joint, Spherical):
        R = now.R if value is None else orientation(value, f"the value of {joint.name!r}")
        return Relative(
            np.zeros(3), R, np.zeros(3), np.zeros(3) if rate is None else _numbers(rate, 3, joint)
        )
    if isinstance(joint, Universal):
        return _cardan(joint, now, value, rate)
    if isinstance(joint, Screw):
        return _screwed(joint, value, rate)
    ways = joint.coordinates
    chosen = [float(one(a, b)) for one in ways] if value is None else _numbers(value, len(ways), joint)
    speeds = np.zeros(len(ways)) if rate is None else _numbers(rate, len(ways), joint)
    d, v, w, R = np.zeros(3), np.zeros(3), np.zeros(3), EYE
    for way, x, speed in zip(ways, chosen, speeds, strict=True):
        if way.turns:
            R, w[2] = orientation(x, "angle"), speed
        else:
            d[direction(way)], v[direction(way)] = x, speed
    return Relative(d, R, v, w)


def _screwed(screw: Screw, value: Any, rate: Any) -> Relative:
    """The pose of a screw from its displacement, or from displacement and angle."""
    a, b = (marker.state for marker in screw.markers)
    turns = FULL_TURN / float(screw.numbers["pitch"])
    d = travel(screw, float(ANGLE(a, b))) if value is None else _advance(screw, value, turns)
    speed = 0.0 if rate is None else _advance(screw, rate, turns)
    return Relative(d * EYE[2], orientation(turns * d, "angle"), speed * EYE[2], turns * speed * EYE[2])


def _advance(screw: Screw, given: Any, turns: float) -> float:
    """The displacement of a screw, or its rate: the first of one or two numbers, which must agree."""
    x = _numbers(given, 1 if np.size(given) < 2 else 2, screw)
    if len(x) == 2 and abs(x[1] - turns * x[0]) > 1e-9 * (1 + abs(x[1])):
        raise ValueError(
            f"{screw.name!r} has the angle {turns * x[0]:.9g} at the displacement {x[0]:.9g}, not "
            f"{x[1]:.9g}: pass the displacement alone"
        )
    return float(x[0])


def travel(screw: Screw, angle: float) -> float:
    """The displacement of a screw at an angle, after the whole turns that are nearest to where it is."""
    a, b = (marker.state for marker in screw.markers)
    pitch = float(screw.numbers["pitch"])
    part = angle / FULL_TURN
    return pitch * (part + round(float(SLIDE(a, b)) / pitch - part))


def _cardan(joint: Joint, now: Relative, value: Any, rate: Any) -> Relative:
    """The pose of a universal joint, from angles about z of a and about z of b."""
    if value is None:
        first = np.arctan2(-now.R[0, 2], now.R[1, 2])
        second = np.arctan2(-now.R[2, 0], -now.R[2, 1])
    else:
        first, second = _numbers(value, 2, joint)
    R = orientation(first, "angle") @ _QUARTER @ orientation(second, "angle")
    speeds = np.zeros(2) if rate is None else _numbers(rate, 2, joint)
    return Relative(np.zeros(3), R, np.zeros(3), speeds[0] * EYE[2] + speeds[1] * R[:, 2])


def _next(joint: Joint, moved: Relative, state: FrameState, here: AnyBody) -> FrameState:
    """The state of the centre of the other body of a joint."""
    a, b = joint.markers[:2]
    forward = a.body is here
    near, far = (a, b) if forward else (b, a)
    at, axes = state.x + state.R @ near.r, state.R @ near.Q
    speed = state.v + np.cross(state.w, state.R @ near.r)
    if forward:
        x, R, w = at + axes @ moved.d, axes @ moved.R, state.w + axes @ moved.w
        v = speed + np.cross(state.w, axes @ moved.d) + axes @ moved.v
    else:
        R = axes @ moved.R.T
        x, w = at - R @ moved.d, state.w - R @ moved.w
        v = speed - np.cross(w, R @ moved.d) - R @ moved.v
    R = R @ far.Q.T
    return FrameState(x - R @ far.r, R, v - np.cross(w, R @ far.r), w)


def _root(body: AnyBody, value: Any, rate: Any) -> FrameState:
    """A body that no joint holds: where it is, or where it is put."""
    x, R, v, w = body.x, body.R, np.zeros(3), np.zeros(3)
    if value is not None:
        at, rotation = value
        R = orientation(rotation, f"rotation of {body.name!r}")
        x = vector(at, f"at of {body.name!r}") + R @ body.center
    if rate is not None:
        speed, spin = rate
        v = vector(speed, f"velocity of {body.name!r}")
        w = vector(spin, f"angular_velocity of {body.name!r}")
    return FrameState(x, R, v, w)


def _coordinates(body: AnyBody, state: FrameState) -> tuple[np.ndarray, np.ndarray]:
    """q and v of a body in a state."""
    put: Any = copy.copy(body)
    x, R, v, w = state
    if isinstance(body, PlanarBody):
        put.angle, v, w = float(np.arctan2(R[1, 0], R[0, 0])), v[:2], float(w[2])
    elif not isinstance(body, Body):
        R = EYE
    put.__dict__.update(x=x, R=R, velocity=v, angular_velocity=w)
    return put.coordinates(), put.velocities()
