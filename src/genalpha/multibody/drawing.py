"""A model as a scene: bodies with their shapes, springs, and points where joints are."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.multibody.forces import SpringDamper
from genalpha.multibody.joints import Revolute, Spherical, Universal
from genalpha.multibody.motion import Motion
from genalpha.results.solution import Solution
from genalpha.view import shapes
from genalpha.view.front import View
from genalpha.view.rows import Sampled
from genalpha.view.scene import Scene

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


def pictured(
    model: Model, sol: Solution, *, frames: int = 300, traces: Any = (), height: int = 480, **options: Any
) -> View:
    """The motion of a model. ``traces`` are frames, or names of bodies, whose paths are drawn."""
    rows = Sampled(sol, frames)
    sampled: Any = SimpleNamespace(t=rows.t, q=rows.column("q", "a view"), v=rows.column("v", "a view"))
    motion = Motion(model, sampled)
    bodies: list[Any] = [*([model.ground] if model.ground.shape else []), *model.bodies]
    drawn = [shape for body in bodies for shape in _body(model, motion, body)]
    for spring in (x for x in model.forces if isinstance(x, SpringDamper)):
        a, b = (motion.position(marker) for marker in spring.markers)
        drawn.append(shapes.Spring(start=a, end=b, name=spring.name))
    drawn += _joints(model, motion)
    for where in traces:
        drawn.append(shapes.Trace(motion.position(where)))
    notice = "" if sol.success else f"The run failed: {sol.message}"
    planar = all(body.kind.name == "planar" for body in model.bodies)
    options = {"up": "y" if planar else "z"} | options
    return View(Scene(rows.t, drawn, notice=notice, **options), height=height)


def _joints(model: Model, motion: Motion) -> list[shapes.Shape]:
    """A pin for each joint with an axis, a ball for each other one that holds a point."""
    points = np.concatenate([motion.position(body.middle) for body in model.bodies])
    size = float(np.ptp(points, axis=0).max()) or 1.0
    found: list[shapes.Shape] = []
    for joint in model.joints:
        if not isinstance(joint, Revolute | Spherical | Universal):
            continue
        frame = motion.frame(joint.markers[0])
        at, color = (np.asarray(frame.x), np.asarray(frame.R)), "black"
        if isinstance(joint, Revolute):
            pin = shapes.Cylinder(0.018 * size, 0.07 * size, at=at, name=joint.name, color=color)
        else:
            pin = shapes.Sphere(0.022 * size, at=at, name=joint.name, color=color)  # type: ignore[assignment]
        found.append(pin)
    return found


def _body(model: Model, motion: Motion, body: Any) -> list[shapes.Shape]:
    """The shape of a body, or rods from its centre to its joints."""
    state = motion.frame(body.middle)
    if body.shape is not None:
        return [replace(body.shape, at=(np.asarray(state.x), np.asarray(state.R)), name=body.name)]
    ends = [marker for joint in model.joints for marker in joint.markers[:2] if marker.body is body]
    size = max((float(np.linalg.norm(marker.r)) for marker in ends), default=0.0)
    found: list[shapes.Shape] = [shapes.Sphere(0.12 * size or 0.05, at=np.asarray(state.x), name=body.name)]
    for marker in ends:
        if np.linalg.norm(marker.r) > 0:
            found.append(shapes.Rod(start=np.asarray(state.x), end=motion.position(marker)))
    return found
