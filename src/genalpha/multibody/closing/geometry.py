"""The constraints of a model at any positions: values, derivatives, and names of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from genalpha.backends.sparse import models
from genalpha.backends.sparse.equations import AtState, Equations
from genalpha.backends.sparse.projection import Projector
from genalpha.mechanics.system import Dims

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


# Distances from a centre are rounding up to so much of coordinates, of how far joints are apart, or at all.
_ROUNDING, _OFF_CENTRE, _NONE = 1e-12, 1e-6, 1e-15


class Row(NamedTuple):
    """One row of a constraint: the joint, the name of the row, and its place among those of its joint."""

    joint: Any
    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.joint.name!r}, {self.name}"


class Geometry:
    """The constraints of a model at any positions and velocities."""

    def __init__(self, model: Model, args: Any = (), t: float = 0.0) -> None:
        self.model, self.t, system = model, t, model.system
        system.forget_if_changed()
        parts = models.of_parts(system, args)
        size, n = len(model.q0), len(model.v0)
        self.m = sum(at.g.size for at in system.places)
        self.p = sum(at.k.size for at in system.places)
        functions = system._programs.made(("multibody",), dict)
        self.equations = Equations(parts, Dims(size, n, self.m, self.p), functions, system.labels)
        self.retract = Projector(models.of_nodes(system), self.equations).retract

    def at(self, q: np.ndarray, v: np.ndarray, t: float | None = None) -> AtState:
        return self.equations.at(self.t if t is None else t, q, v)

    def rows(self) -> list[Row]:
        """All rows, holonomic ones first, in the order of λ and ψ."""
        found: list[list[Row]] = [[], []]
        for group in self.model.groups:
            for member in group.members:
                for rows, speeds in zip(found, (False, True), strict=True):
                    rows += [Row(member, name, i) for i, name in member.kept(speeds)]
        return found[0] + found[1]


def whole(model: Model) -> Model:
    """The same model with all rows of its joints: itself, if none is left out."""
    full = {joint.name: joint.changed(dropped=frozenset()) for joint in model.joints if joint.dropped}
    if not full:
        return model
    known: dict[str, Model] = model.system.__dict__  # a model that is changed has another system
    return known.get("_whole") or known.setdefault("_whole", model._like(model._things | full))


def size_of(model: Model) -> float:
    """How large bodies are: the largest distance of a joint from a centre of mass.

    If joints are at all centres, how far apart they are. The place of the origin does not matter.
    """
    ends = [marker for joint in model.joints for marker in joint.markers]
    if not ends:
        return 1.0
    places = np.array([marker.pose[0] for marker in ends])
    apart, rounding = np.ptp(places, axis=0).max(), max(_ROUNDING * np.abs(places).max(), _NONE)
    on_bodies = [np.abs(marker.r).max() for marker in ends if marker.body is not model.ground]
    size = max(on_bodies, default=0.0)
    if size > max(rounding, _OFF_CENTRE * apart):
        return float(size)
    return float(apart) if apart > rounding else 1.0


def units_of(model: Model) -> np.ndarray:
    """The units (n,) of velocities: one for angles, else the size of bodies."""
    return np.where(turning(model), 1.0, size_of(model))


def turning(model: Model) -> np.ndarray:
    """Which velocities (n,) are those of angles."""
    lengths = lambda body: 2 if body.kind.name == "planar" else 3
    return np.concatenate([np.arange(body.kind.sizes[1]) >= lengths(body) for body in model.bodies])
