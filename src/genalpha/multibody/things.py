"""What a model consists of: bodies, joints, forces and frames, by name."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np

from genalpha.compiler.kept import of_package
from genalpha.errors import hint
from genalpha.multibody.bodies import AnyBody, Ground
from genalpha.multibody.connectors import Connector, FixedNumbers
from genalpha.multibody.forces import Force
from genalpha.multibody.frames import locked, vector
from genalpha.multibody.joints import Joint, turns_a_point
from genalpha.multibody.markers import Marker

_SET = ("gravity", "ground", "frames", "notes")  # attributes that may be set
_owners: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()  # the models of things
_ENDS = "ab"  # the frames of a connector
T = TypeVar("T", bound=AnyBody | Connector)
GRAVITY = (0.0, 0.0, -9.81)


class Things:
    """Bodies, joints and forces, and the gravity that acts on them."""

    def __init__(self, gravity: Any = GRAVITY) -> None:
        self.gravity = gravity
        self.ground: Any = Ground()
        self._things: dict[str, Any] = {"ground": self.ground}
        self.frames: dict[str, Marker] = {}  # by name, such as the links of a robot that do not move
        self.notes: list[str] = []  # what a file has that was not read

    def add(self, thing: T) -> T:
        """Add a body, a joint or a force, and return it."""
        if not isinstance(thing, AnyBody | Connector):
            raise TypeError(f"{thing!r} is no body, joint or force")
        if thing.name in self:
            raise ValueError(
                f"the model has {self[thing.name]!r} already: names must differ, choose another for {thing!r}"
            )
        owner = _owners.get(thing)
        if owner is not None and owner() not in (None, self):
            raise ValueError(f"{thing!r} is in another model: make another one, or copy.copy the other model")
        if isinstance(thing, Connector):
            self._check(thing)
        _owners[thing] = weakref.ref(self)
        self._things[thing.name] = thing
        self._forget()
        return thing

    @property
    def gravity(self) -> np.ndarray:
        """The acceleration of free fall (3,). It may be set at any time."""
        return self._gravity

    @gravity.setter
    def gravity(self, value: Any) -> None:
        self._gravity = locked(vector(value, "gravity"))  # or the equations would not know of a change
        self._forget()

    def __setattr__(self, key: str, value: Any) -> None:
        """Refuse attributes that would change nothing, such as a misspelt one."""
        if key == "ground" and key in self.__dict__:
            raise AttributeError("the ground of a model cannot be changed")
        if key not in _SET and not key.startswith("_") and of_package(type(self)):
            raise AttributeError(f"a model has no {key} that can be set: {hint(key, _SET, 'there are')}")
        super().__setattr__(key, value)

    def _forget(self) -> None:
        """Make the assembly anew when it is next needed."""
        self.__dict__ = self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        """All but the assembly."""
        return {key: value for key, value in self.__dict__.items() if key not in ("system", "groups")}

    def __copy__(self) -> Self:
        """A model of copies of all bodies, joints and forces. Either may be changed without the other."""
        found = self._copied({})
        found._own()
        return found

    def _own(self) -> None:
        """Remember that all things are in this model."""
        for name, thing in self._things.items():
            if name != self.ground.name:
                _owners[thing] = weakref.ref(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """As it was written down by pickle or copy.deepcopy."""
        self.__dict__ = state
        self._gravity = locked(self._gravity)
        self._own()

    def _copied(self, given: Mapping[str, Any]) -> Self:
        """A model of copies of all things, with other numbers by name."""
        bodies = {id(body): _copied_body(body, given) for body in (self.ground, *self.bodies)}
        made: dict[Any, Any] = {}  # frames and joints that several things share

        def marker(name: str, old: Marker) -> Marker:
            new = Marker(bodies[id(old.body)], given.get(name, old.r), old.Q)
            return made.setdefault((name, id(old)), new)

        things: dict[str, Any] = {}
        for name, one in self._things.items():
            if isinstance(one, AnyBody):
                things[name] = bodies[id(one)]
                continue
            own = {"joint": made[id(one.joint)]} if hasattr(one, "joint") else {}
            made[id(one)] = things[name] = one.changed(
                markers=tuple(map(marker, points(one), one.markers)),
                numbers=FixedNumbers({key: given.get(f"{name}.{key}", x) for key, x in one.numbers.items()}),
                joints=tuple(made[id(joint)] for joint in one.joints),
                **own,
            )
        found = self._like(things)
        found.frames = {name: marker("", old) for name, old in self.frames.items()}
        found.gravity = given.get("gravity", self.gravity)
        return found

    def _like(self, things: dict[str, Any]) -> Self:
        """A model of other things, by name, with an assembly of its own."""
        found = object.__new__(type(self))
        found.__dict__ = self.__getstate__()
        found.frames, found.notes = dict(self.frames), [*self.notes]
        found.__dict__ |= {"_things": things, "ground": things[self.ground.name]}
        return found

    def _check(self, thing: Connector) -> None:
        for marker in thing.markers:
            if isinstance(marker.body, Ground) and marker.body is not self.ground:
                raise ValueError(f"{thing!r} is on the ground of another model: use model.ground of this one")
            if self._things.get(marker.body.name) is not marker.body:
                raise ValueError(
                    f"{thing!r}: the body {marker.body.name!r} is not in the model: add it first"
                )
        if all(marker.body is self.ground for marker in thing.markers):
            raise ValueError(f"{thing!r} has no body that can move")
        for joint in thing.joints:
            if self._things.get(joint.name) is not joint:
                raise ValueError(f"{thing!r}: the joint {joint.name!r} is not in the model: add it first")
        if isinstance(thing, Joint) and turns_a_point(thing):
            raise ValueError(f"{thing!r}: a point mass has no axes; use Spherical, PointOnLine or Distance")

    def __getitem__(self, name: str) -> Any:
        """The body, joint, force or frame with this name."""
        for named in (self._things, self.frames):
            if name in named:
                return named[name]
        raise KeyError(f"the model has nothing with the name {name!r}: {self.nearest(name)}")

    def __iter__(self) -> Iterator[str]:
        """The names of all bodies, joints, forces and frames."""
        return iter([*(name for name in self._things if name != self.ground.name), *self.frames])

    def nearest(self, name: str) -> str:
        """A hint at the name that is most like a wrong one."""
        return hint(name, [*self._things, *self.frames], "it has")

    def __contains__(self, name: object) -> bool:
        return name in self._things or name in self.frames

    def _all(self, kind: type[Any]) -> list[Any]:
        return [x for x in self._things.values() if isinstance(x, kind) and x is not self.ground]

    @property
    def bodies(self) -> list[AnyBody]:
        """All bodies but the ground, in the order in which they were added."""
        return self._all(AnyBody)

    @property
    def joints(self) -> list[Joint]:
        """All joints and couplings."""
        return self._all(Joint)

    @property
    def forces(self) -> list[Force]:
        """All forces."""
        return self._all(Force)


def _copied_body(body: Any, given: Mapping[str, Any]) -> Any:
    """A copy of a body with other numbers."""
    found = copy.copy(body)
    found.__dict__ |= {key: x.copy() for key, x in body.__dict__.items() if isinstance(x, np.ndarray)}
    if isinstance(body, Ground):
        return found
    own = {key: given.get(f"{body.name}.{key}", x) for key, x in body.numbers().items()}
    found.__dict__["mass"] = float(own["mass"])
    if "inertia" in own:
        found.__dict__["inertia"] = replace(body.inertia, mass=own["mass"], tensor=own["inertia"])
    if "moment" in own:
        found.__dict__["moment"] = float(own["moment"])
    return found


def points(one: Connector) -> list[str]:
    """The names of the points of its frames. Motors and springs of a joint, and gears, have those of joints.

    Frames after the second one have no name: they are empty.
    """
    if one.joints:
        return [name for joint in one.joints for name in points(joint)]
    names = [f"{one.name}.{end}" for end in _ENDS]
    return [*names, *[""] * len(one.markers)][: len(one.markers)]
