"""Entries of model files: what they may hold. Messages have the path of the entry."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from genalpha.errors import hint

Check = Callable[[Any, str], None]
FUNCTIONS = ("law", "target", "motion", "function")  # arguments that a file cannot hold


def as_list(value: Any) -> Any:
    """A value as a file has it: arrays and tuples are lists."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def known(entry: dict[str, Any], names: Iterable[str], where: str) -> None:
    """All keys of a table are among these names."""
    for key in entry:
        if key not in names:
            near = hint(key, names, "there can be")
            raise ValueError(f"{where}{'.' if where else ''}{key} is unknown: {near}")


def needed(entry: dict[str, Any], names: Iterable[str], where: str) -> None:
    """A table has all of these keys."""
    for key in names:
        if key not in entry:
            raise ValueError(f"{where} has no {key}")


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _size(value: Any) -> tuple[int, ...] | None:
    """The shape of numbers in lists, or None."""
    if not isinstance(value, list):
        return () if _is_number(value) else None
    inside = [_size(one) for one in value]
    if any(one is None or one != inside[0] for one in inside):
        return None
    return (len(value), *(inside[0] or ())) if inside else (0,)


def number(value: Any, where: str) -> None:
    """A finite number."""
    if not _is_number(value):
        raise ValueError(f"{where} must be a finite number, got {value!r}")


def text(value: Any, where: str) -> None:
    """A text."""
    if not isinstance(value, str):
        raise ValueError(f"{where} must be a text, got {value!r}")


def truth(value: Any, where: str) -> None:
    """True or false, or one or zero."""
    if _size(value if not isinstance(value, bool) else 0) != () or value not in (0, 1):
        raise ValueError(f"{where} must be true or false, got {value!r}")


def among(said: str, *sizes: tuple[int, ...]) -> Check:
    """A check of finite numbers: one, or lists of these sizes."""

    def check(value: Any, where: str) -> None:
        if _size(value) not in sizes:
            raise ValueError(f"{where} must be {said}, got {value!r}")

    return check


def several(value: Any, where: str) -> None:
    """A list of numbers."""
    if len(_size(value) or ()) != 1:
        raise ValueError(f"{where} must be a list of numbers, got {value!r}")


def two_texts(value: Any, where: str) -> None:
    """Two names."""
    if not isinstance(value, list) or len(value) != 2 or not all(isinstance(x, str) for x in value):
        raise ValueError(f"{where} must be two texts, got {value!r}")


def two_counts(value: Any, where: str) -> None:
    """Two integers."""
    if _size(value) != (2,) or not all(isinstance(x, int) for x in value):
        raise ValueError(f"{where} must be two integers, got {value!r}")


def plain(value: Any, where: str) -> None:
    """What is allowed where nothing else is known: a text, true or false, or finite numbers."""
    if not isinstance(value, str | bool) and _size(value) is None:
        raise ValueError(f"{where} must be a text, true or false, or finite numbers, got {value!r}")


def six(value: Any, where: str) -> None:
    """One number or six, none of them negative."""
    if _size(value) not in ((), (6,)) or min(value if isinstance(value, list) else [value]) < 0:
        raise ValueError(f"{where} must be a number or 6 numbers, zero or positive, got {value!r}")


VECTOR = among("2 or 3 finite numbers", (2,), (3,))
ROTATION = among("an angle about z, a quaternion (4 numbers) or a matrix (3 rows of 3)", (), (4,), (3, 3))
TENSOR = among("3 principal moments, or 3 rows of 3 finite numbers", (3,), (3, 3))
_NUMBERS = (
    "mass moment angle stiffness damping length free kp kd limit effort pitch radius exponent soft slow "
    "linear quadratic lower upper size speed inertia start"
)
_VECTORS = "at axis velocity angular_velocity center force torque wind gravity"
_CHECKS: dict[str, Check] = {
    **dict.fromkeys(_NUMBERS.split(), number),
    **dict.fromkeys(_VECTORS.split(), VECTOR),
    **dict.fromkeys(("name", "coordinate"), text),
    **dict.fromkeys(("internal", "follows"), truth),
    "rotation": ROTATION,
    "coefficients": several,
    "teeth": two_counts,
    "of": two_texts,
}
_SPECIAL: dict[tuple[str, str], Check] = {
    ("Body", "inertia"): TENSOR,
    ("PlanarBody", "angular_velocity"): number,
    ("Universal", "second"): VECTOR,
    ("Bushing", "stiffness"): six,
    ("Bushing", "damping"): six,
    ("SphereContact", "friction"): number,
}


def check(kind: str, key: str, value: Any, where: str) -> None:
    """Check an argument of a class, by their names."""
    _SPECIAL.get((kind, key), _CHECKS.get(key, plain))(value, where)


def arguments(cls: Any) -> tuple[list[str], list[str]]:
    """The names of all arguments of a class, and of those that it needs."""
    found = list(inspect.signature(cls.__init__).parameters.values())[1:]
    return [x.name for x in found], [x.name for x in found if x.default is inspect.Parameter.empty]


_OF_SHAPES: dict[str, Check] = {
    "at": VECTOR,
    "rotation": ROTATION,
    **dict.fromkeys(("name", "group", "axis"), text),
    **dict.fromkeys(("radius", "length"), number),
    **dict.fromkeys(("vertices", "triangles", "size"), plain),
}


def check_shape(entry: dict[str, Any], names: Iterable[str], where: str) -> None:
    """Check the table of a shape, whose class has arguments with these names."""
    known(entry, ["type", *names, "rotation"], where)
    for key, value in entry.items():
        if key != "type" and value is not None:
            _OF_SHAPES.get(key, plain)(value, f"{where}.{key}")
        if key in ("vertices", "triangles", "size") and isinstance(value, str | bool):
            raise ValueError(f"{where}.{key} must be finite numbers, got {value!r}")
