"""What connects frames: the base of joints and forces.

A connector is a class with up to three functions of frames at one time (:class:`FrameState`): constraints on
positions, constraints on velocities, and forces. All connectors of one class between the same kinds of bodies
are copies of one part, so they are compiled once.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np

from genalpha.compiler.kept import of_package
from genalpha.errors import hint
from genalpha.multibody import reactions
from genalpha.multibody.bodies import AnyBody, named
from genalpha.multibody.frames import Wrench, along, locked
from genalpha.multibody.friction import Rubbing
from genalpha.multibody.markers import Marker

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
        made.__dict__.update(given=(given, options), numbers=FixedNumbers(made.numbers))
        return made

    @property
    def __signature__(cls) -> inspect.Signature:
        """The arguments of the constructor, for ``help`` and for editors."""
        of = inspect.signature(cls.__init__)  # type: ignore[misc]
        return of.replace(parameters=list(of.parameters.values())[1:])


class FixedNumbers(dict[str, np.ndarray]):
    """The numbers of a joint or force by name. Models have made their equations with them."""

    def __init__(self, of: Mapping[str, Any]) -> None:
        super().__init__((key, locked(x)) for key, x in of.items())

    def _refuse(self, *given: Any, **named: Any) -> Any:
        """Every change is refused, since it would have no effect."""
        raise TypeError(self._hint(given[0] if given and isinstance(given[0], str) else ""))

    @staticmethod
    def _hint(name: str) -> str:
        return (
            f"{name or 'numbers'} of a joint or force cannot be changed: make another one, or "
            "pass other values to model.solve, such as values={'spring.stiffness': 3.0}"
        )

    __setitem__ = __delitem__ = update = setdefault = pop = popitem = clear = __ior__ = _refuse

    def __reduce__(self) -> Any:
        return type(self), (dict(self),)


# Attributes of connectors with which models have made their equations.
_MADE_WITH = ("markers", "numbers", "functions", "joints", "dropped", "given")


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
    usual: Any = None  # what it stands for while joints are closed from afar, with other rows

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
        if "given" in of and key in _MADE_WITH:
            raise AttributeError(
                f"{key} of {self.name!r} cannot be changed: make another {type(self).__name__}"
            )
        if "given" in of and not (key in of or hasattr(type(self), key) or key.startswith("_")):
            others = ": " + hint(key, of["numbers"], "its numbers are") if of["numbers"] else ""
            raise AttributeError(f"{self!r} has no {key}{others}")
        super().__setattr__(key, value)

    def changed(self, **attributes: Any) -> Self:
        """A copy with other attributes, for another model."""
        found = copy.copy(self)
        found.__dict__.update(attributes)
        return found

    def leave_out(self, rows: Iterable[int]) -> None:
        """Leave out these rows, by number, and no others. Models must forget their equations after that."""
        self.__dict__["dropped"] = frozenset(rows)

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
