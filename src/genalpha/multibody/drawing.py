"""A model as a scene: bodies with their shapes, springs, joints, frames, paths and reaction forces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.multibody.bodies import AnyBody
from genalpha.multibody.couplings import Driven, Gear, Mimic, Rack, Screw
from genalpha.multibody.forces import SpringDamper
from genalpha.multibody.frames import FrameState
from genalpha.multibody.joints import (
    Cylindrical,
    Distance,
    Joint,
    Planar,
    PointOnLine,
    PointOnPlane,
    Prismatic,
    Revolute,
    Spherical,
    Universal,
    Weld,
)
from genalpha.multibody.markers import Marker
from genalpha.multibody.motion.front import Motion
from genalpha.multibody.planar_joints import PlanarPrismatic
from genalpha.multibody.rolling import OnSurface
from genalpha.multibody.rows import rows_of
from genalpha.multibody.values import different, with_values
from genalpha.results.solution import Solution
from genalpha.view import poses, shapes
from genalpha.view.rows import Instant, MotionRows

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


def to_draw(model: Model, sol: Any) -> tuple[Model, Solution | MotionRows]:
    """The model with the numbers of a run, and what is drawn of it: a solution, or the row of a state."""
    if isinstance(sol, Solution):
        if np.ndim(sol.status) or sol.q is None or sol.v is None:
            return model, sol  # the view says what is wrong
        own = different(model, sol.args) if rows_of(model, sol).args else {}
        return with_values(model, own) if own else model, sol
    row = rows_of(model, sol)
    return model, Instant(SimpleNamespace(**{name: x[0] for name, x in vars(row).items()}))


def drawn(
    model: Model,
    rows: MotionRows,
    *,
    traces: Any = (),
    reactions: Any = (),
    force_scale: float | None = None,
    axes: Any = (),
    joints: bool = True,
) -> list[shapes.Shape]:
    """The shapes of a model in all rows. :meth:`Model.view` says what the options are."""
    forces = _chosen(
        model, reactions, [x for x in model.joints if not isinstance(x, Gear | Rack | Mimic | Driven)]
    )
    needed = ("q", "v", "lam", "psi") if forces else ("q", "v")
    columns = {name: rows.column(name, f"a view of {model!r}") for name in needed}
    solution: Any = SimpleNamespace(t=rows.t, **columns)
    motion = Motion(model, solution)
    bodies: list[AnyBody] = [*([model.ground] if model.ground.shape else []), *model.bodies]
    ends: dict[str, list[Marker]] = {body.name: [] for body in (model.ground, *model.bodies)}
    for joint in model.joints:
        for marker in joint.markers[:2]:
            ends[marker.body.name].append(marker)
    found = [shape for body in bodies for shape in _body(motion, body, ends[body.name])]
    for spring in (x for x in model.forces if isinstance(x, SpringDamper)):
        a, b = (motion.position(marker) for marker in spring.markers)
        longest = float(np.linalg.norm(b - a, axis=1).max())
        found.append(shapes.Spring(start=a, end=b, radius=0.06 * longest or None, name=spring.name))
    size, whole = _sizes(model, motion)
    found += _joints(model, motion, size) if joints else []
    for where in _chosen(model, axes, model.bodies):
        state = motion.frame(where)
        found.append(shapes.Frame(at=(state.x, state.R), name=_called("axes of", where)))
    for where in _chosen(model, traces, model.bodies):
        found.append(shapes.Trace(motion.position(where), name=_called("path of", where)))
    arrow = {"scale": force_scale, "width": max(0.016 * size, 0.003 * whole)}
    return found + [_force(model, motion, joint, arrow) for joint in forces]


def _chosen(model: Model, given: Any, every: Sequence[Any]) -> list[Any]:
    """Things of a model, by names or not: all of them if True, or those that are given."""
    if given is True:
        return list(every)
    listed = [given] if isinstance(given, str | AnyBody | Marker | Joint) else list(given or ())
    return [model[x.name] if isinstance(x, AnyBody | Joint) else x for x in listed]


def _called(what: str, where: Any) -> str:
    """A name in the scene. A frame has none."""
    return "" if isinstance(where, Marker) else f"{what} {getattr(where, 'name', where)}"


def _sizes(model: Model, motion: Motion) -> tuple[float, float]:
    """A usual length of a body, twice a usual distance of a joint from a centre of mass, and of the whole."""
    markers = [marker for joint in model.joints for marker in joint.markers]
    arms = [float(np.linalg.norm(m.r)) for m in markers if m.body is not model.ground and m.r.any()]
    points = np.concatenate(
        [motion.position(marker) for marker in [b.middle for b in model.bodies] + markers]
    )
    whole = float(np.ptp(points, axis=0).max()) or 1.0
    return min(whole, 2 * float(np.median(arms))) if arms else whole, whole


def _force(model: Model, motion: Motion, joint: Any, look: dict[str, Any]) -> shapes.Shape:
    """The force of a joint on the body of its second frame."""
    force = motion.reaction(joint).force  # in the axes of the first frame
    found = model[joint] if isinstance(joint, str) else joint
    vector = np.einsum("kij,kj->ki", motion.rotation(found.markers[0]), force)
    at = motion.position(found.markers[1])
    return shapes.Arrow(at=at, vector=vector, **look, name=f"force of {found.name}")


def _joints(model: Model, motion: Motion, size: float) -> list[shapes.Shape]:
    """Small symbols of the joints. ``size`` is a usual length of a body."""
    frames = {joint: [motion.frame(marker) for marker in joint.markers[:2]] for joint in model.joints}
    return [
        replace(shape, name=f"{part}{joint.name}", color="black", group="joints")
        for joint, (a, b) in frames.items()
        for part, shape in _symbol(joint, a, b, size).items()
    ]


def _symbol(joint: Joint, a: FrameState, b: FrameState, size: float) -> dict[str, shapes.Shape]:
    """The parts of the symbol of a joint between two frames, with the beginnings of their names.

    Couplings and rolling have none.
    """
    first, second = (a.x, a.R), (b.x, b.R)
    radius, length = 0.022 * size, 0.09 * size
    rail = {"rail of ": shapes.Rod(start=a.x, end=b.x, radius=0.4 * radius)}
    if isinstance(joint, Revolute):
        return {"": shapes.Cylinder(radius, length, at=first)}
    if isinstance(joint, Universal):
        pin = shapes.Cylinder(0.6 * radius, length, at=first)
        return {"": pin, "second axis of ": replace(pin, at=second)}
    if isinstance(joint, Prismatic):
        edges = np.full(3, 2 * radius)
        edges[0 if isinstance(joint, PlanarPrismatic) else 2] = length
        return {"": shapes.Box(edges, at=second), **rail}
    if isinstance(joint, Cylindrical | Screw):
        return {"": shapes.Cylinder(radius, length, at=second), **rail}
    if isinstance(joint, PointOnLine):
        return {"": shapes.Sphere(1.2 * radius, at=b.x), **rail}
    if isinstance(joint, Spherical | PointOnPlane | OnSurface):
        return {"": shapes.Sphere(1.2 * radius, at=b.x)}
    if isinstance(joint, Planar):
        return {"": shapes.Box((length, length, 0.5 * radius), at=second)}
    if isinstance(joint, Weld):
        return {"": shapes.Box(np.full(3, 2 * radius), at=first)}
    return {"": rail["rail of "]} if isinstance(joint, Distance) else {}


def _body(motion: Motion, body: Any, ends: list[Marker]) -> list[shapes.Shape]:
    """The shape of a body, or rods from its centre to its joints, the frames ``ends``."""
    state = motion.frame(body.middle)
    if body.shape is not None:
        own, _ = poses.track(body.shape.at, 1, f"at of the shape of {body.name!r}")
        x, R = state.x + state.R @ own.x[0], state.R @ poses.matrices(own.p[0])
        return [replace(body.shape, at=(x, R), name=body.name)]
    size = max((float(np.linalg.norm(marker.r)) for marker in ends), default=0.0)
    found: list[shapes.Shape] = [shapes.Sphere(0.12 * size or 0.05, at=state.x, name=body.name)]
    for marker in ends:
        if np.linalg.norm(marker.r) > 0:
            found.append(shapes.Rod(start=state.x, end=motion.position(marker)))
    return found
