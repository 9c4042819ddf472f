"""What connects frames: the base of joints and forces, and how many of one kind become a part of an assembly.

A connector is a class with up to three functions of frames at one time (:class:`FrameState`): constraints on
positions, constraints on velocities, and forces. All connectors of one class between the same kinds of bodies
are copies of one part, so they are compiled once.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.compiler.kept import of_package
from genalpha.errors import hint
from genalpha.mechanics.parts import Part
from genalpha.mechanics.reads import FOLLOWED, Reads
from genalpha.multibody import reactions
from genalpha.multibody.bodies import AnyBody, Marker, named
from genalpha.multibody.frames import FrameState, Wrench, along
from genalpha.multibody.friction import Rubbing

# Functions of connectors, and whether their rows are those of velocities.
_FUNCTIONS = (("holonomic", False), ("nonholonomic", True), ("force", None), ("kinetic", None))
# Functions of the library that connectors may have, by what they are called in every process.
IDENTITIES: dict[Any, str] = {}


class _Made(type):
    """The class of connectors: it knows when one is complete."""

    def __call__(cls, *given: Any, **options: Any) -> Any:
        names = _parameters(cls)
        for key in options:
            if names and key not in names:
                raise TypeError(f"{cls.__name__} has no argument {key!r}: {hint(key, names, 'it has')}")
        made = super().__call__(*given, **options)
        made.__dict__["given"] = given, options
        return made

    @property
    def __signature__(cls) -> inspect.Signature:
        """The arguments of the constructor, for ``help`` and for editors."""
        of = inspect.signature(cls.__init__)  # type: ignore[misc]
        return of.replace(parameters=list(of.parameters.values())[1:])


@functools.cache
def _parameters(cls: type) -> tuple[str, ...]:
    """The arguments of a class by name; none if it takes any."""
    found = list(inspect.signature(cls.__init__).parameters.values())[1:]  # type: ignore[misc]
    some = any(x.kind in (x.VAR_POSITIONAL, x.VAR_KEYWORD) for x in found)
    return () if some else tuple(x.name for x in found)


@functools.cache
def _arguments(cls: type) -> frozenset[str]:
    """The arguments of a class that no attribute stands for."""
    names = frozenset(inspect.signature(cls.__init__).parameters)  # type: ignore[misc]
    return names - {"self", "markers", "numbers", "functions"}


class Connector(metaclass=_Made):
    """Something between frames. Subclasses are joints and forces.

    A subclass defines some of these static functions. Their arguments are t, a :class:`FrameState` for each
    frame, and the ``numbers`` and ``functions`` of the connector by name:

    - ``holonomic`` -> (m,), constraints on positions, with names in ``rows``,
    - ``nonholonomic`` -> (p,), constraints on velocities, with names in ``speed_rows``,
    - ``force`` -> a :class:`Wrench` for each frame,
    - ``kinetic`` -> (k,), rates s of functions of positions alone: ½ s·s is kinetic energy.

    ``numbers`` are arrays that may differ between connectors of a kind; they are arguments of the compiled
    code; those in ``positive`` and ``not_negative`` keep their sign. ``functions`` are callables of the user;
    each makes a kind of its own. Numbers with names like ``friction`` of a class with a law of friction,
    ``rubbing``, are for that law.
    """

    rows: ClassVar[tuple[str, ...]] = ()
    speed_rows: ClassVar[tuple[str, ...]] = ()
    holonomic: ClassVar[Callable[..., Any] | None] = None
    nonholonomic: ClassVar[Callable[..., Any] | None] = None
    force: ClassVar[Callable[..., Any] | None] = None
    rubbing: ClassVar[Rubbing | None] = None
    kinetic: ClassVar[Callable[..., Any] | None] = None
    positive: ClassVar[tuple[str, ...]] = ()
    not_negative: ClassVar[tuple[str, ...]] = ()
    given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})  # the arguments it was made with, for files
    joints: tuple[Any, ...] = ()  # those that it is about

    def __init__(
        self,
        name: str,
        markers: Sequence[Marker],
        numbers: dict[str, Any] | None = None,
        functions: dict[str, Any] | None = None,
    ) -> None:
        self.name, self.markers = named(name, "a " + type(self).__name__), tuple(markers)
        self.numbers = {key: np.array(value, dtype=float) for key, value in (numbers or {}).items()}
        self.functions: dict[str, Any] = dict(functions or {})
        self.dropped: frozenset[int] = frozenset()  # numbers of rows that are left out as redundant
        for key, value in self.numbers.items():
            if not np.isfinite(value).all():
                raise ValueError(f"{key} of {name!r} must be finite, got {value.tolist()}")
        for key, function in self.functions.items():
            if not callable(function):
                raise TypeError(f"{key} of {name!r} must be a function, got {type(function).__name__}")
            if type(function).__hash__ is None:  # an object of a dataclass: methods can be told apart
                self.functions[key] = function.__call__

    def __setattr__(self, key: str, value: Any) -> None:
        """Numbers and functions are those of the constructor. Models have made their equations with them."""
        of = self.__dict__
        if "given" in of and key in (*of["numbers"], *of["functions"], *_arguments(type(self))):
            names = ", ".join(f"'{self.name}.{name}'" for name in of["numbers"])
            raise AttributeError(
                f"{key} of {self.name!r} cannot be changed: make another {type(self).__name__}"
                + (f", or pass other values of {names} to model.solve" if names else "")
            )
        if "given" in of and not (key in of or hasattr(type(self), key) or key.startswith("_")):
            others = ": " + hint(key, of["numbers"], "its numbers are") if of["numbers"] else ""
            raise AttributeError(f"{self!r} has no {key}{others}")
        super().__setattr__(key, value)

    def check_number(self, key: str, value: np.ndarray) -> None:
        """Refuse another value of a number, (...) or with an axis more for the members of a batch."""
        for names, wrong, allowed in (
            (self.positive, value <= 0, "positive"),
            (self.not_negative, value < 0, "zero or positive"),
        ):
            if key in names and np.any(wrong):
                raise ValueError(f"{self.name}.{key} must be {allowed}, got {value.tolist()}")

    def allowed(self, key: str, value: Any) -> Any:
        """A traced number, or NaN if its sign is wrong."""
        if key in self.positive:
            return jnp.where(value > 0, value, jnp.nan)
        return jnp.where(value >= 0, value, jnp.nan) if key in self.not_negative else value

    @property
    def kind(self) -> tuple[Any, ...]:
        """What connectors have in common that are copies of one part."""
        shapes = tuple((key, value.shape) for key, value in self.numbers.items())
        kinds = tuple(marker.body.kind for marker in self.markers)
        return type(self), kinds, self.which, shapes, tuple(self.functions.items()), self.dropped

    @property
    def identity(self) -> str:
        """What its functions are, in a text for other processes; empty if some are of the user's own."""
        cls, kinds, which, shapes, functions, dropped = self.kind
        known = [(key, IDENTITIES.get(function)) for key, function in functions]
        if not all(map(of_package, (cls, *kinds))) or any(name is None for _, name in known):
            return ""
        names = [kind.name for kind in kinds]
        return f"{cls.__module__}.{cls.__qualname__} {names} {which} {shapes} {known} but {sorted(dropped)}"

    @property
    def row_names(self) -> tuple[str, ...]:
        """The names of all its rows, also of those that were left out."""
        return (*self.rows, *self.speed_rows)

    def kept(self, speeds: bool) -> list[tuple[int, str]]:
        """Numbers and names of the rows for positions, or for velocities, that were not left out."""
        first = len(self.rows) if speeds else 0
        names = self.speed_rows if speeds else self.rows
        return [(first + i, name) for i, name in enumerate(names) if first + i not in self.dropped]

    def bound(self, numbers: dict[str, Any] | None = None) -> dict[str, Callable[..., Any]]:
        """Its functions of t and frames by name, without rows that are left out; with other ``numbers``.

        ``friction``, if it has one, is a function of load and motion (:mod:`genalpha.multibody.friction`).
        """
        found: dict[str, Callable[..., Any]] = {}
        own: dict[str, Any] = dict(self.numbers if numbers is None else numbers)
        if self.rubbing is not None and "friction" in own:
            found["friction"] = reactions.law(self.rubbing.law, own)
        for name, speeds in _FUNCTIONS:
            function, kept = getattr(type(self), name), [] if speeds is None else self.kept(speeds)
            if function is None or (speeds is not None and not kept):
                continue
            given = functools.partial(function, **own, **self.functions)
            first = len(self.rows) if speeds else 0
            whole = speeds is None or len(kept) == len(self.speed_rows if speeds else self.rows)
            chosen = np.array([i - first for i, _ in kept], dtype=int)
            found[name] = given if whole else functools.partial(_chosen, given, chosen)
        return found

    @property
    def acts(self) -> bool:
        """Whether it does anything: all rows of a joint may have been left out."""
        return bool(set(self.bound()) - {"friction"})

    @property
    def moving(self) -> list[AnyBody]:
        """Its bodies that are nodes of an assembly, each once."""
        return list(dict.fromkeys(m.body for m in self.markers if m.body.kind.space is not None))

    @property
    def which(self) -> tuple[int | None, ...]:
        """For every frame, the place of its body in ``moving``; None for the ground."""
        moving = self.moving
        return tuple(moving.index(m.body) if m.body in moving else None for m in self.markers)

    @property
    def own_functions(self) -> tuple[Callable[..., Any], ...]:
        """Its functions that the user has written."""
        package = lambda function: str(getattr(function, "__module__", "")).partition(".")[0]
        return tuple(function for function in self.functions.values() if package(function) != "genalpha")

    def __repr__(self) -> str:
        between = " and ".join(repr(marker.body.name) for marker in self.markers)
        return f"<{type(self).__name__} {self.name!r} of {between}>"


def _chosen(function: Callable[..., Any], rows: np.ndarray, *frames: Any) -> Any:
    return function(*frames)[rows]


def frame_on(thing: Any, what: str) -> Marker:
    """A frame, or the frame of a body."""
    if isinstance(thing, Marker):
        return thing
    if isinstance(thing, AnyBody):
        return thing.frame()
    raise TypeError(f"{what} must be a body or a frame on it, got {type(thing).__name__}")


def between(name: str, a: Any, b: Any, at: Any = None, axis: Any = None) -> tuple[Marker, Marker]:
    """Frames of a connector on two bodies.

    With ``at``, both are at this point in space, with z along ``axis``, where the bodies are in the model.
    Otherwise ``a`` and ``b`` are frames, or bodies, whose own frames are meant.
    """
    first, second = frame_on(a, f"a of {name!r}"), frame_on(b, f"b of {name!r}")
    if first.body is second.body:
        raise ValueError(f"{name!r} connects {first.body.name!r} with itself: it needs two bodies")
    if at is None:
        if axis is not None:
            raise ValueError(f"{name!r} has an axis and no at: pass the point in space, or frames with axes")
        return first, second
    if isinstance(a, Marker) or isinstance(b, Marker):
        raise ValueError(f"{name!r} has frames and at: pass bodies with at, or frames without it")
    axes = along((0.0, 0.0, 1.0) if axis is None else axis, f"axis of {name!r}")
    return first.body.frame_in_space(at, axes), second.body.frame_in_space(at, axes)


def returned(value: Any, shape: tuple[int, ...], what: str) -> Any:
    """What a function of the user returns, as an array of this shape."""
    wanted = f"an array of shape {shape}" if shape else "one number"
    try:
        found = jnp.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} must return {wanted}, got {value!r}") from error
    if found.shape != shape:
        raise ValueError(f"{what} must return {wanted}, got an array of shape {found.shape}")
    return found


def wrenches(found: Any, count: int) -> tuple[Wrench, ...]:
    """What a function of the user returns: a force and a torque, three numbers each, for each frame."""
    listed = found if isinstance(found, tuple | list) else ()
    shapes = [[np.shape(x) for x in w] if isinstance(w, tuple | list) else None for w in listed]
    if shapes != [[(3,), (3,)]] * count:
        each = "(force, torque) with three numbers each"
        raise ValueError(f"the function must return {count} Wrenches, {each}, got {found!r}")
    return tuple(Wrench(jnp.asarray(w[0], float), jnp.asarray(w[1], float)) for w in found)


class Group(NamedTuple):
    """All connectors of one kind."""

    members: list[Connector]

    def part(self, numbers: dict[str, int]) -> Part:
        """The part of an assembly; ``numbers`` are those of the nodes of bodies by name."""
        one = self.members[0]
        nodes = np.array([[numbers[body.name] for body in m.moving] for m in self.members])
        ends = tuple(
            {
                "r": np.stack([m.markers[k].r for m in self.members]),
                "Q": np.stack([m.markers[k].Q for m in self.members]),
            }
            for k in range(len(one.markers))
        )
        own = {key: np.stack([m.numbers[key] for m in self.members]) for key in one.numbers}
        single = nodes.shape[1] == 1
        # A copy, since rows of the joint itself may be left out later.
        functions, made = of_kind(_functions, Same(copy.copy(one)))
        label = f"{type(one).__name__} {one.name!r}" + ("" if len(self.members) == 1 else " and others")
        left_out = ", ".join(one.row_names[i] for i in sorted(one.dropped))
        label += f" without {left_out}" if left_out else ""
        nodes = nodes[:, 0] if single else nodes
        return Part(nodes=nodes, args=(ends, own), name=label, **functions).sharing(made, one.identity)


class Same(NamedTuple):
    """A connector that stands for all of its kind."""

    one: Connector

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.one.kind == other.one.kind

    def __hash__(self) -> int:
        return hash(self.one.kind)


def of_kind(cached: Any, same: Same, *more: Any) -> Any:
    """What a cached function makes of a kind. It is not shared if functions of the user read other values.

    Those may have changed since.
    """
    shared = not Reads(same.one.own_functions).found
    return (cached if shared else cached.__wrapped__)(same, *more)


@functools.lru_cache(maxsize=128)
def _functions(same: Same) -> tuple[dict[str, Any], dict[Any, Any]]:
    """The functions of the part of a kind, and what is made of them, once for all models."""
    one = same.one
    kinds, which, count = [marker.body.kind for marker in one.markers], one.which, len(one.moving)
    single = count == 1
    listed = lambda x: [x] if single else x

    def frames(q: Any, v: Any, ends: Any) -> list[FrameState]:
        q, v = listed(q), None if v is None else listed(v)
        at: Any = lambda x, i: None if x is None or i is None else x[i]
        placed = zip(kinds, which, ends, strict=True)
        return [kind.state(at(q, i), at(v, i), end["r"], end["Q"]) for kind, i, end in placed]

    def loads(q: Any, ends: Any, wrenches: Any) -> Any:
        found: list[Any] = [0.0] * count
        for kind, i, end, wrench in zip(kinds, which, ends, wrenches, strict=True):
            if i is not None:
                found[i] = found[i] + kind.load(listed(q)[i], end["r"], wrench)
        return found[0] if single else tuple(found)

    def reaction(t: Any, q: Any, v: Any, lam: Any, psi: Any, ends: Any, own: Any) -> Any:
        return loads(q, ends, reactions.both(one.bound(own), t, lam, psi, *frames(q, v, ends)))

    def part_of(name: str) -> Any:
        """A function of the part, from that of frames."""
        act = lambda t, q, v, ends, own: one.bound(own)[name](t, *frames(q, v, ends))
        if name == "holonomic":
            return lambda t, q, ends, own: act(t, q, None, ends, own)
        if name == "nonholonomic":
            return act
        return lambda t, q, v, ends, own: loads(q, ends, act(t, q, v, ends, own))

    names = one.bound()
    found = {name: part_of(name) for name in names if name not in ("kinetic", "friction")}
    found |= {"reaction": reaction} if "friction" in names else {}
    for function in found.values():
        setattr(function, FOLLOWED, one.own_functions)
    return found | (_kinetic(one, frames) if "kinetic" in names else {}), {}


def _kinetic(one: Connector, frames: Callable[..., list[FrameState]]) -> dict[str, Any]:
    """The mass JᵀJ and the force −Jᵀ(dJ/dt)v of speeds s = J v."""
    kinds = [body.kind for body in one.moving]
    cuts, single = np.cumsum([kind.sizes[1] for kind in kinds]), len(kinds) == 1
    split = lambda v: v if single else jnp.split(v, cuts[:-1])

    def speeds(t: Any, q: Any, v: Any, ends: Any, own: Any) -> Any:
        return one.bound(own)["kinetic"](t, *frames(q, v, ends))

    def slopes(t: Any, q: Any, ends: Any, own: Any) -> Any:
        return jax.jacfwd(lambda v: speeds(t, q, split(v), ends, own))(jnp.zeros(cuts[-1]))

    def mass(t: Any, q: Any, ends: Any, own: Any) -> Any:
        J = slopes(t, q, ends, own)
        return J.T @ J

    def force(t: Any, q: Any, v: Any, ends: Any, own: Any) -> Any:
        space: Any = [kind.space for kind in kinds]
        rates = space[0].rate(q, v) if single else [s.rate(*x) for s, *x in zip(space, q, v, strict=True)]
        moved = jax.jvp(lambda q: speeds(t, q, v, ends, own), (q if single else list(q),), (rates,))[1]
        load = split(-(moved @ slopes(t, q, ends, own)))
        return load if single else tuple(load)

    return {"mass": mass, "force": force}


def groups(connectors: Sequence[Connector]) -> list[Group]:
    """The connectors by kind, in the order in which kinds first appear."""
    found: dict[Any, Group] = {}
    for one in connectors:
        found.setdefault(one.kind, Group([])).members.append(one)
    return list(found.values())
