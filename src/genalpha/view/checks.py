"""Checks of the sizes, colours and arrays that a scene is made of."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from genalpha.errors import unknown

# Colours by name. Shapes without a colour get those of the first row, one after the other.
COLORS = {
    "blue": "#3b78c2",
    "orange": "#e08a2e",
    "green": "#3f9b5c",
    "red": "#cf4a45",
    "purple": "#8a63b8",
    "teal": "#2f9c9c",
    "pink": "#d36aa5",
    "brown": "#96694c",
    "olive": "#98983a",
    "gray": "#8b929a",
    "steel": "#a9b4c0",
    "black": "#26292d",
    "white": "#f2f2f0",
    "yellow": "#e3c23c",
}
PALETTE = ("blue", "orange", "green", "red", "purple", "teal", "pink", "brown", "olive")
GROUPS = ("bodies", "joints", "frames", "traces", "forces")
AXES = {"x": 0, "y": 1, "z": 2}
_HEX = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")


def array(value: Any, what: str) -> np.ndarray:
    """The value as an array of finite floats. ``what`` names it in error messages."""
    try:
        found = np.asarray(value, dtype=float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} must be numbers, got {value!r}: pass a number or an array") from error
    bad = ~np.isfinite(found)
    if bad.any():
        first = np.argwhere(bad)[0]
        where = f" in row {first[0]}" if found.ndim > 1 else ""
        raise ValueError(f"{what} is {found[bad][0]}{where}: all its numbers must be finite")
    return found


def number(value: Any, what: str) -> float:
    """The value as a number. A text is none."""
    try:
        if isinstance(value, str | bytes):
            raise TypeError("texts are no numbers")
        return float(value)
    except OverflowError as error:
        raise ValueError(f"{what} is too large for a number of the computer: {value!r:.60}") from error
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} must be a number, got {value!r}") from error


def positive(value: Any, what: str) -> float:
    """The value as a positive number.

    >>> positive(-1, "radius of Sphere")
    Traceback (most recent call last):
    ValueError: radius of Sphere must be positive and finite, got -1
    """
    found = number(value, what)
    if not 0.0 < found < np.inf:
        raise ValueError(f"{what} must be positive and finite, got {value!r}")
    return found


def lengths(value: Any, count: int, what: str) -> tuple[float, ...]:
    """So many positive numbers."""
    found = array(value, what)
    if found.shape != (count,) or not (found > 0).all():
        raise ValueError(f"{what} must be {count} positive numbers, got {value!r}: pass its lengths")
    return tuple(found.tolist())


def axis(value: Any, what: str) -> str:
    """The name of a coordinate axis."""
    if value not in AXES:
        raise ValueError(f"axis of {what} must be 'x', 'y' or 'z', got {value!r}: pass one of these")
    return str(value)


def color(value: Any, what: str) -> str:
    """A colour as ``#rrggbb``, from a name, such a text, or three numbers from 0 to 1.

    >>> color("#fff", "box"), color((1, 0, 0.5), "box"), color("red", "box")
    ('#ffffff', '#ff0080', '#cf4a45')
    """
    if isinstance(value, str):
        if value in COLORS:
            return COLORS[value]
        if not _HEX.fullmatch(value):
            if value.startswith("#"):
                raise ValueError(f"color of {what} is {value!r}: write #rgb or #rrggbb")
            raise unknown("color", value, COLORS)
        digits = value[1:]
        return f"#{digits if len(digits) == 6 else ''.join(2 * digit for digit in digits)}".lower()
    found = array(value, f"color of {what}")
    if found.shape != (3,) or not ((found >= 0) & (found <= 1)).all():
        raise ValueError(f"color of {what} is {value!r}: pass a name, '#rrggbb', or 3 numbers from 0 to 1")
    return "#" + "".join(f"{round(255 * part):02x}" for part in found.tolist())
