"""The mechanisms of :mod:`benchmarks.multibody`, as models of genalpha whose joints are closed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from examples import iftomm, mechanisms, suspension

from benchmarks.scale_models import HALF, INERTIA, MASS, chain_start
from genalpha import multibody as mb


@dataclass(frozen=True)
class Case:
    """A mechanism, how long it moves, and the numbers of equal steps that are tried.

    ``fine`` is the number of steps of the reference.
    """

    name: str
    build: Callable[[], mb.Model]
    t_end: float
    steps: tuple[int, ...]
    fine: int
    tree: bool = False

    def model(self) -> mb.Model:
        model = self.build()
        model.assemble(redundant="drop")
        return model


def chain(count: int) -> mb.Model:
    """The chain of :mod:`benchmarks.scale_models`: boxes of 1 kg and 1 m, hinges about two axes in turn."""
    start, model = chain_start(count), mb.Model()
    above = model.ground.frame
    last: mb.Body | None = None
    for i in range(count):
        speeds = {"velocity": start.v[i], "angular_velocity": start.omega[i]}
        body = mb.Body(f"link {i}", mb.Inertia(MASS, INERTIA), at=start.x[i], rotation=start.R[i], **speeds)
        model.add(body)
        axis = start.axes[i]
        hook = above((0, 0, 0), axis=axis) if last is None else last.frame((0, 0, -HALF), axis=axis)
        model.add(mb.Revolute(f"hinge {i}", hook, body.frame((0, 0, HALF), axis=axis)))
        last = body
    return model


def arm() -> mb.Model:
    """An arm of six hinges as robots have, which falls from a bent pose with its base turning."""
    model, at = mb.Model(), np.zeros(3)
    links = (
        (12.0, (0.0, 0.0, 0.35), (0, 0, 1)),
        (8.0, (0.45, 0.0, 0.3), (0, 1, 0)),
        (6.0, (0.5, 0.0, -0.1), (0, 1, 0)),
        (3.0, (0.15, 0.0, -0.05), (1, 0, 0)),
        (2.0, (0.1, 0.05, -0.1), (0, 1, 0)),
        (1.0, (0.05, 0.1, -0.05), (0, 0, 1)),
    )
    a: Any = model.ground
    for i, (mass, along, axis) in enumerate(links):
        end = at + np.array(along)
        body = model.add(mb.Body.bar(f"link {i}", mass, at, end, radius=0.05))
        model.add(mb.Revolute(f"hinge {i}", a, body, at=at, axis=axis))
        a, at = body, end
    q, v = model.pose({}, {"hinge 0": 2.0, "hinge 3": 4.0, "hinge 5": -6.0})
    model.place(q, v)
    return model


def stewart() -> mb.Model:
    """The platform with forces of its legs that are 20 % too large and too small, in turn."""
    return mechanisms.stewart(uneven=0.2)


JOINTS = (
    mb.Revolute,
    mb.Universal,
    mb.Prismatic,
    mb.Spherical,
    mb.Cylindrical,
    mb.Planar,
    mb.PointOnLine,
    mb.PointOnPlane,
    mb.Screw,
    mb.Weld,
)


def mix(count: int = 20) -> mb.Model:
    """Boxes, each below the last one: every joint is of the next of ten kinds, every force of five.

    For first results only: the more kinds a model has, the more must be traced and compiled.
    """
    model, forces = mb.Model(), list[mb.Force]()
    above: Any = model.ground
    for i in range(count):
        at = np.array([0.1 * (i % 2), 0.0, -0.5 * i])
        body = model.add(mb.Body(f"box {i}", mb.box(1.0, (0.1, 0.2, 0.4)), at=at - (0, 0, 0.25)))
        kind, given = JOINTS[i % len(JOINTS)], dict[str, Any](at=at)
        if kind is not mb.Spherical:
            given["axis"] = (1, 0, 0)
        if kind is mb.Universal:
            given["second"] = (0, 1, 0)
        if kind is mb.Screw:
            given["pitch"] = 0.1
        joint = model.add(kind(f"joint {i}", above, body, **given))
        if kind is mb.Revolute:
            forces.append(mb.JointSpring(f"spring {i}", joint, stiffness=3.0, damping=0.2))
        forces.append(_force(i, model.ground.frame((0.5, 0, 0)), above, body, at))
        above = body
    for force in forces:
        model.add(force)
    return model


def _force(i: int, fixed: Any, above: Any, body: mb.Body, at: np.ndarray) -> mb.Force:
    name, end = f"force {i}", body.frame((0, 0.1, 0))
    match i % 4:
        case 0:
            return mb.SpringDamper(name, fixed, end, stiffness=50.0, damping=1.0, length=0.5)
        case 1:
            return mb.Bushing(name, above, body, (10.0,) * 6, (1.0,) * 6, at=at)
        case 2:
            return mb.AppliedForce(name, end, force=(0, 0, 1.0))
        case _:
            return mb.Drag(name, end, linear=0.1)


def ladder(first: int, count: int) -> tuple[int, ...]:
    return tuple(first * 2**i for i in range(count))


CASES = (
    Case("chain of 10", lambda: chain(10), 1.0, ladder(50, 7), 1600, tree=True),
    Case("chain of 1,000", lambda: chain(1000), 0.1, ladder(5, 6), 160, tree=True),
    Case("arm of 6 hinges", arm, 1.0, ladder(100, 7), 1600, tree=True),
    Case("Stewart platform", stewart, 0.5, ladder(12, 8), 800),
    Case("car, 20 bodies", suspension.car, 1.0, ladder(62, 7), 2000),
    Case("A01, pendulum", iftomm.pendulum, 10.0, ladder(500, 8), 10000),
    Case("A02, 40 four-bars", iftomm.four_bars, 1.0, ladder(50, 6), 1600),
    Case("A03, squeezer", iftomm.squeezer, 0.05, ladder(250, 7), 8000),
    Case("A04, Bricard", iftomm.bricard, 10.0, ladder(125, 8), 4000),
    Case("A05, governor", iftomm.governor, 10.0, ladder(500, 6), 4000),
)
MIX = Case("mix of 20 bodies", mix, 1.0, ladder(125, 6), 2000)
