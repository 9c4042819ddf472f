"""Joints of MJCF: those of one body become one joint of a model."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

import numpy as np

from genalpha.multibody.forces import Bushing, DryFriction, JointSpring
from genalpha.multibody.formats.markup import Entry
from genalpha.multibody.formats.mjcf_settings import Settings, silent
from genalpha.multibody.formats.trees import FREE, ORIGIN, Plan, Pose, Span, Tree, TreeLink, unused
from genalpha.multibody.frames import along, orientation
from genalpha.multibody.joints import (
    Cylindrical,
    Planar,
    Prismatic,
    Revolute,
    Spherical,
    Universal,
)
from genalpha.multibody.model import Model
from genalpha.multibody.rotors import Rotor
from genalpha.multibody.vectors import EYE

_EFFORT = "limits of actuators are not applied"
_TURNED = (
    "springs count angles within half a turn of their rest, and no limits keep these joints there: beyond it "
    "they differ from those of MuJoCo"
)
_UNREAD = {
    **silent("group user solreflimit solimplimit solreffriction solimpfriction"),
    "margin": "margins of limits are not read",
    "actuatorgravcomp": "compensation of gravity is not read",
    "springdamper": "springs by time constants are not read",
    "springyield": "yield of springs is not read",
}


class Spec(NamedTuple):
    """A joint element, with angles in radians."""

    name: str
    kind: str
    pos: np.ndarray
    axis: np.ndarray
    ref: float = 0.0
    springref: float = 0.0
    stiffness: float = 0.0
    damping: float = 0.0
    armature: float = 0.0
    frictionloss: float = 0.0
    span: Span | None = None

    def moved(self, pose: Pose) -> Spec:
        """The joint of an element in a frame, which has a pose."""
        return self._replace(pos=pose.x + pose.R @ self.pos, axis=pose.R @ self.axis)


class Way(NamedTuple):
    """Where a joint of a file is in the model: the link that it moves, and a coordinate of its joint."""

    spec: Spec
    link: str
    coordinate: str


def read(entry: Entry, settings: Settings, unnamed: str) -> Spec:
    """A joint or freejoint element. ``unnamed`` is what it is called without a name of its own."""
    name = entry.text("name") or unnamed
    if entry.tag == "freejoint":
        entry.finish(silent("align group"))
        return Spec(name, "free", np.zeros(3), EYE[2])
    kind = entry.choice("type", ("free", "ball", "slide", "hinge"), "hinge")
    unit = settings.unit if kind in ("hinge", "ball") else 1.0
    axis = entry.numbers("axis", 3, EYE[2])
    if not np.linalg.norm(axis) > 0:
        raise entry.wrong("is zero: it must be a direction", "axis")
    sizes = ("stiffness", "damping", "armature", "frictionloss")
    numbers = {key: entry.number(key) for key in ("ref", "springref", *sizes)}
    for key in sizes:
        if numbers[key] < 0:
            raise entry.wrong(f"is {numbers[key]:g}, and must not be negative", key)
    numbers["ref"], numbers["springref"] = unit * numbers["ref"], unit * numbers["springref"]
    if settings.bounds(entry, "actuatorfrcrange", "actuatorfrclimited") is not None:
        entry.notes.add(_EFFORT, f"{entry.where}.actuatorfrcrange")
    limits, (time, ratio) = settings.bounds(entry, "range", "limited"), _spring(entry)
    span = None
    if limits is not None and kind != "free" and "limit" not in settings.off:
        lower, upper = (float(x) for x in unit * limits)
        span = Span(lower, upper, numbers["ref"], time, ratio, numbers["armature"])
    pos = entry.numbers("pos", 3, np.zeros(3))
    entry.finish(_UNREAD)
    for switch, key in (("spring", "stiffness"), ("damper", "damping"), ("frictionloss", "frictionloss")):
        numbers[key] = 0.0 if switch in settings.off else numbers[key]
    return Spec(name, kind, pos, axis / np.linalg.norm(axis), **numbers, span=span)


def _spring(entry: Entry) -> tuple[float, float]:
    """The time constant and the damping ratio of a limit."""
    one, two = entry.numbers("solreflimit", 2, np.array([0.02, 1.0]))
    if one > 0 and two > 0:
        return float(one), float(two)
    if one < 0 and two < 0:  # minus stiffness and damping for an inertia of one
        return float(-2 / two), float(-two / (2 * np.sqrt(-one)))
    raise entry.wrong("must be two positive or two negative numbers", "solreflimit")


def plan(specs: list[Spec], of: TreeLink, taken: Set[str]) -> tuple[Plan | None, list[Way]]:
    """The one joint that the joints of a body make, and which coordinate of it each of them is.

    If there are several, it has a name that no other joint has taken.
    """
    kinds, link = [spec.kind for spec in specs], of.name
    if not specs:
        return None, []
    one, name = specs[0], specs[0].name
    if len(specs) > 1:
        name = unused(f"{link} joint", taken - {spec.name for spec in specs})
    if kinds == ["free"]:
        return Plan(name, FREE, ORIGIN, ORIGIN), [Way(one, link, "")]
    if kinds == ["ball"]:
        frame = Pose(one.pos, EYE)
        return Plan(name, Spherical, frame, frame), [Way(one, link, "")]
    if len(specs) == 1:
        frame = Pose(one.pos, along(one.axis, "axis"))
        cls = Revolute if one.kind == "hinge" else Prismatic
        turn, shift = (one.ref, 0.0) if one.kind == "hinge" else (0.0, one.ref)
        back = Pose(np.array([0, 0, -shift]), orientation(-turn, "ref"))
        return Plan(name, cls, frame @ back, frame), [Way(one, link, cls.coordinates[0].name)]
    found = _compound(specs, link, name)
    if found is None:
        listed = ", ".join(f"{spec.kind} {spec.name!r}" for spec in specs)
        raise ValueError(
            f"{of.where} has the joints {listed}, which are no joint of this package together. There are two "
            "perpendicular hinges at one point, a slide and a hinge along one axis, and two perpendicular "
            "slides with a hinge across them. Put a body with a mass between the others"
        )
    return found


def _compound(specs: list[Spec], link: str, name: str) -> tuple[Plan, list[Way]] | None:
    kinds, axes = [spec.kind for spec in specs], np.array([spec.axis for spec in specs])
    angles = axes @ axes.T
    small = 1e-9
    if kinds == ["hinge", "hinge"] and abs(angles[0, 1]) < small:
        if np.abs(specs[0].pos - specs[1].pos).max() > small:
            return None
        x = np.cross(axes[1], axes[0])
        first, second = np.stack([x, axes[1], axes[0]], axis=1), np.stack([x, -axes[0], axes[1]], axis=1)
        at = specs[0].pos
        a, b = first @ orientation(-specs[0].ref, "ref"), second @ orientation(specs[1].ref, "ref")
        angles_of = zip(specs, Universal.coordinates, strict=True)
        ways = [Way(one, link, way.name) for one, way in angles_of]
        return Plan(name, Universal, Pose(at, a), Pose(at, b)), ways
    if sorted(kinds) == ["hinge", "slide"] and angles[0, 1] > 1 - small:
        hinge, slide = sorted(specs, key=lambda spec: spec.kind)
        frame = Pose(hinge.pos, along(hinge.axis, "axis"))
        a = frame @ Pose(np.array([0, 0, -slide.ref]), orientation(-hinge.ref, "ref"))
        names = {"hinge": "angle", "slide": "displacement"}
        return Plan(name, Cylindrical, a, frame), [Way(one, link, names[one.kind]) for one in specs]
    if kinds == ["slide", "slide", "hinge"] and np.abs(angles - EYE).max() < small:
        swapped = np.linalg.det(axes) < 0
        one, two, hinge = (specs[1], specs[0], specs[2]) if swapped else specs
        frame = Pose(hinge.pos, np.stack([one.axis, two.axis, hinge.axis], axis=1))
        a = frame @ Pose(np.array([-one.ref, -two.ref, 0]), EYE)
        b = frame @ Pose(np.zeros(3), orientation(hinge.ref, "ref"))
        return Plan(name, Planar, a, b), [Way(one, link, "x"), Way(two, link, "y"), Way(hinge, link, "angle")]
    return None


def forces(model: Model, tree: Tree, way: Way) -> None:
    """Springs, dampers, friction, limits and rotors of a joint."""
    spec, joint = way.spec, tree.joints.get(way.link)
    if spec.span is not None:
        tree.limit(model, spec.name, way.link, way.coordinate, spec.span)
    new = lambda kind: tree.free_name(f"{spec.name} {kind}", "force", model)
    if way.coordinate and joint is not None:
        if spec.stiffness or spec.damping:
            if spec.stiffness and not tree.keeps(joint, way.link, way.coordinate, spec.springref):
                tree.notes.add(_TURNED, repr(spec.name))
            numbers = spec.stiffness, spec.damping, spec.springref
            model.add(JointSpring(new("spring"), joint, *numbers, coordinate=way.coordinate))
        if spec.frictionloss:
            model.add(DryFriction(new("friction"), joint, spec.frictionloss, coordinate=way.coordinate))
        if spec.armature:
            model.add(Rotor(new("rotor"), joint, spec.armature, way.coordinate))
        return
    for key in ("armature", "frictionloss"):
        if getattr(spec, key):
            tree.notes.add(f"{key} of a joint without a coordinate is not read", repr(spec.name))
    if not (spec.stiffness or spec.damping):
        return
    b = tree.on(way.link)
    a, b = joint.markers[:2] if joint is not None else (model.ground.frame_in_space(*b.pose), b)
    straight = 1.0 if spec.kind == "free" else 0.0
    each = np.array([straight] * 3 + [1.0] * 3)
    model.add(Bushing(new("spring"), a, b, spec.stiffness * each, spec.damping * each))
