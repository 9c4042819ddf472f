"""Actuators and equalities of MJCF."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.polynomial import Polynomial

from genalpha.errors import hint
from genalpha.multibody.couplings import Mimic
from genalpha.multibody.forces import JointSpring, Motor
from genalpha.multibody.formats.markup import Entry
from genalpha.multibody.formats.mjcf_joints import Way
from genalpha.multibody.formats.mjcf_settings import Settings, silent
from genalpha.multibody.formats.trees import ORIGIN, Pose, Tree
from genalpha.multibody.joints import Joint, Spherical, Weld
from genalpha.multibody.markers import Marker
from genalpha.multibody.model import Model
from genalpha.multibody.vectors import EYE

_OTHER = "actuators of this kind are not read"
_UNREAD = {
    **silent("group user lengthrange interp nsample actdim actlimited actrange actearly"),
    **dict.fromkeys(("velrange", "ffrange"), "limits of actuators are not applied"),
    **dict.fromkeys(("armature", "damping"), "armature and damping of actuators are not read"),
    "delay": "delays of actuators are not read",
    "cranklength": "",
}
_TURNED = (
    "feedback counts angles from −180° to 180°, and no limits keep these joints there: beyond it it differs "
    "from that of MuJoCo"
)
_EXACT = "equalities hold exactly, without the softness of"
_SOFT = dict.fromkeys(("solref", "solimp"), _EXACT)


class Parts:
    """Adds the actuators and equalities of a file to its model."""

    def __init__(
        self, model: Model, tree: Tree, settings: Settings, ways: dict[str, Way], sites: dict[str, Any]
    ) -> None:
        self.model, self.tree, self.settings, self.ways, self.sites = model, tree, settings, ways, sites

    def _way(self, entry: Entry, key: str) -> tuple[Joint, Way] | None:
        """The joint that an attribute names, if it has a coordinate."""
        name = entry.needed(key)
        if name not in self.ways:
            raise entry.wrong(f"is {name!r}: {hint(name, self.ways, 'the joints are')}", key)
        way = self.ways[name]
        joint = self.tree.joints.get(way.link)
        return (joint, way) if way.coordinate and joint is not None else None

    # --- actuators --------------------------------------------------------------------------------

    def actuator(self, entry: Entry, controls: Mapping[str, Any]) -> None:
        """A motor, and a spring and a damper if its force depends on the joint."""
        notes, named = entry.notes, entry.text("name", "")
        if entry.integer("group") in self.settings.disabled or "actuation" in self.settings.off:
            notes.add("actuators that are disabled are left out", entry.where)
            return
        law = self.settings.law(entry).numbers(entry)
        key = "joint" if entry.text("joint") is not None else "jointinparent"
        others = ("tendon", "site", "body", "refsite", "cranksite", "slidersite")
        elsewhere = [other for other in others if entry.text(other) is not None]
        gear = float(entry.numbers("gear", (1, 6), np.ones(1))[0])
        if law is None or elsewhere or entry.text(key) is None:
            notes.add(_OTHER if law is None else "actuators without a joint are not read", entry.where)
            return
        found = self._way(entry, key)
        entry.text("jointinparent")
        kinds = (("ctrlrange", "ctrllimited"), ("forcerange", "forcelimited"))
        ranges = [self.settings.bounds(entry, *names) for names in kinds]
        if "clampctrl" in self.settings.off:
            ranges[0] = None
        entry.finish(_UNREAD)
        if found is None:
            notes.add("actuators of joints without a coordinate are not read", entry.where)
            return
        joint, way = found
        gain, bias, slope, drag = law
        name = self.tree.free_name(named or f"{way.spec.name} {entry.tag}", "motor", self.model)
        if ranges[1] is not None and (slope or drag):
            notes.add("limits of the force of actuators with feedback are not applied", entry.where)
            ranges[1] = None
        effort = _effort(controls.get(named, 0.0), (gain, bias, gear), ranges, entry)
        if slope > 0 or drag > 0:
            raise ValueError(
                f"{entry.where} drives its joint away from its target: biasprm must not be positive"
            )
        if slope and not self.tree.keeps(joint, way.link, way.coordinate, 0.0):
            notes.add(_TURNED, entry.where)
        if slope or drag:
            numbers = -(gear**2) * slope, -(gear**2) * drag
            spring = self.tree.free_name(f"{name} feedback", "force", self.model)
            self.model.add(JointSpring(spring, joint, *numbers, coordinate=way.coordinate))
        self.model.add(Motor(name, joint, effort, coordinate=way.coordinate))

    # --- equalities -------------------------------------------------------------------------------

    def equality(self, entry: Entry, number: int) -> None:
        """A constraint between bodies or joints."""
        if entry.tag not in ("connect", "weld", "joint"):
            if entry.tag not in ("tendon", "flex", "flexvert", "flexstrain", "distance"):
                raise entry.unknown(("connect", "weld", "joint", "tendon"))
            entry.notes.add("equalities of tendons and flexible bodies are not read", entry.where)
            return
        label = entry.text("name") or f"{entry.tag} {number}"
        if not entry.true("active", True):
            entry.notes.add("equalities that are not active are left out", entry.where)
            return
        free = lambda: self.tree.free_name(label, "equality", self.model)
        made = self._couple(entry, free()) if entry.tag == "joint" else self._tie(entry, free)
        scale = entry.number("torquescale", 1.0) if entry.tag == "weld" else 1.0
        entry.finish(_SOFT)
        if scale not in (0.0, 1.0):
            entry.notes.add(_EXACT, f"{entry.where}.torquescale")
        if made is None:
            entry.notes.add("equalities between bodies that are one are left out", entry.where)
        else:
            self.model.add(made)

    def _couple(self, entry: Entry, name: str) -> Joint:
        c = entry.numbers("polycoef", (1, 5), np.array([0.0, 1.0]))
        keys = ["joint1"] + (["joint2"] if entry.text("joint2") is not None else [])
        found = [self._way(entry, key) for key in keys]
        if None in found:
            raise ValueError(f"{entry.where} needs joints with a coordinate: hinges and slides")
        first, way = found[0]  # type: ignore[misc]
        if len(found) == 1:
            raise ValueError(
                f"{entry.where} has no joint2: leave the joint {way.spec.name!r} out of the file"
            )
        second, other = found[1]  # type: ignore[misc]
        moved = Polynomial(c)(Polynomial([-other.spec.ref, 1.0])) + way.spec.ref
        made = Mimic(name, first, second, np.atleast_1d(moved.coef), (way.coordinate, other.coordinate))
        self.tree.follow(made, (second, other.coordinate), other.link)
        return made

    def _tie(self, entry: Entry, name: Callable[[], str]) -> Joint | None:
        """A ball joint, or a weld, or None if it does nothing.

        A weld that does not hold angles is a ball joint too.
        """
        weld = entry.tag == "weld"
        cls = Weld if weld and entry.number("torquescale", 1.0) else Spherical
        a, b = self._ends(entry, weld)
        return None if a.body is b.body else cls(name(), a, b)

    def _ends(self, entry: Entry, weld: bool) -> tuple[Marker, Marker]:
        """The frames that a connect or a weld brings together."""
        anchor, relative = entry.numbers("anchor", 3), entry.numbers("relpose", 7) if weld else None
        sites = [key for key in ("site1", "site2") if entry.text(key) is not None]
        if sites:
            for key in ("body1", "body2", "anchor", "relpose"):
                if entry.text(key) is not None:
                    raise ValueError(f"{entry.where} has {sites[0]} and {key}: give sites or bodies")
            a, b = (self._site(entry, key) for key in ("site1", "site2"))
            if entry.text("site1") == entry.text("site2"):
                raise ValueError(f"{entry.where} ties the site {entry.text('site1')!r} to itself")
            return a, b
        first, second = self._link(entry, "body1"), self._link(entry, "body2")
        if first == second:
            raise ValueError(f"{entry.where} ties the body {first!r} to itself")
        if not weld and anchor is None:
            raise ValueError(f"{entry.where} has no anchor")
        at = ORIGIN if anchor is None else Pose(anchor, EYE)
        if not weld:
            a = self.tree.on(first, at)
            return a, self.tree.carriers[second].frame_in_space(*a.pose)
        b = self.tree.on(second, at)
        if relative is None or not relative[3:].any():  # they hold where they are
            return self.tree.carriers[first].frame_in_space(*b.pose), b
        pose = Pose(relative[:3], self.settings._axes("quat", relative[3:]))
        return self.tree.on(first, pose), b

    def _link(self, entry: Entry, key: str) -> str:
        """The name of a link."""
        name = entry.needed(key) if key == "body1" else str(entry.text(key, "world"))
        if name not in self.tree.poses:
            raise entry.wrong(f"is {name!r}: {hint(name, self.tree.poses, 'the bodies are')}", key)
        return name

    def _site(self, entry: Entry, key: str) -> Marker:
        name = entry.needed(key)
        if name not in self.sites:
            raise entry.wrong(f"is {name!r}: {hint(name, self.sites, 'the sites are')}", key)
        return self.tree.on(*self.sites[name])


def _effort(
    control: Any, law: tuple[float, float, float], ranges: list[np.ndarray | None], entry: Entry
) -> Callable[[Any], Any] | float:
    """The effort without feedback: gear·(gain·control + bias), with control and force in their ranges."""
    gain, bias, gear = law
    within = lambda xp, x, ends: x if ends is None else xp.clip(x, *ends)
    of = lambda xp, x: gear * within(xp, gain * within(xp, x, ranges[0]) + bias, ranges[1])
    if callable(control):
        return lambda t: of(jnp, control(t))
    try:
        return float(of(np, float(control)))
    except (TypeError, ValueError) as error:
        raise TypeError(f"controls[{entry.text('name')!r}] must be a number or a function of t") from error
