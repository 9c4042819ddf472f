"""Errors inside the user's functions in plain words: where, what, and what to write instead."""

from __future__ import annotations

import contextlib
import ctypes
import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax

# Files of packages are not the user's.
_PACKAGES = tuple(
    os.path.realpath(path)
    for path in {
        *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        os.path.dirname(os.path.dirname(__file__)),
    }
)
_ITEM = "arrays cannot be changed in place; write x = x.at[i].set(value), or build it with jnp.array([...])"
_BOOL = (
    "which of two cases applies is not known when the function is compiled; write jnp.where(condition, a, b)"
)
_MATH = "works on plain numbers only; write jnp.{name}"
_CONVERT = (
    "converts to a plain number, whose value is not known when the function is compiled; leave out {name}()"
)


class NotTraceable(TypeError):
    """A function of the user that JAX cannot trace. The message says why, and what to write instead."""


class CodeLine(NamedTuple):
    """A place in the user's code: file, line number, the line, and the expression in it."""

    file: str
    line: int
    text: str
    expression: str


@contextlib.contextmanager
def explaining(name: str, noted: bool = False) -> Iterator[None]:
    """Explain errors in this context, in which the user's function ``name`` is traced.

    Other errors get a note with its name, if they are to be ``noted``.
    """
    try:
        yield
    except Exception as error:
        better = explained(name, error)
        if better is None:
            note = f"This happened in {name}."
            if noted and note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise
        raise better from error


def explained(name: str, error: Exception) -> NotTraceable | None:
    """The error for the user, if JAX or NumPy raised ``error`` because the function ``name`` was traced."""
    place = _place(error)
    if place is None:
        return None
    advice = _advice(error, place)
    if advice is None:
        return None
    where = f"{os.path.basename(place.file)}, line {place.line}"
    shown = place.text if _ITEM in advice else place.expression
    return NotTraceable(f"{name}: `{shown}` ({where}) {advice}")


def _place(error: Exception) -> CodeLine | None:
    """The innermost line of the user's own code."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = os.path.realpath(frame.filename)
        if file.startswith(_PACKAGES) and "doctest" not in frame.filename:
            continue
        line = linecache.getline(frame.filename, frame.lineno or 0)
        expression = text = line.strip()
        if frame.end_lineno == frame.lineno and frame.colno is not None and frame.end_colno is not None:
            part = line.encode()[frame.colno : frame.end_colno].decode(errors="ignore")  # they count bytes
            expression = part.strip() or text
        return CodeLine(frame.filename, frame.lineno or 0, text, expression)
    return None


def line_of(frames: Iterable[tuple[str, int]]) -> CodeLine | None:
    """The first of some places, file and line number, that is the user's own code."""
    for file, line in frames:
        if not os.path.realpath(file).startswith(_PACKAGES) or "doctest" in file:
            text = linecache.getline(file, line).strip()
            return CodeLine(file, line, text, text)
    return None


def _advice(error: Exception, place: CodeLine) -> str | None:
    errors: Any = jax.errors
    text, message = place.text, str(error)
    if isinstance(error, errors.NonConcreteBooleanIndexError):
        return "selects by values, which are not known when the function is compiled; write jnp.where(...)"
    if isinstance(error, errors.TracerBoolConversionError):
        found = re.search(r"(?<![\w.])(max|min)\(", text)
        if found:
            return f"compares values that are not known when it is compiled; write jnp.{found[1]}imum(a, b)"
        return f"asks for a truth value: {_BOOL}"
    if isinstance(error, errors.TracerArrayConversionError):
        return "mixes NumPy with traced values; write it with jax.numpy (import jax.numpy as jnp)"
    in_place = "immutable" in message or "array element with a sequence" in message
    if isinstance(error, TypeError | ValueError) and in_place:
        return f"assigns to an item: {_ITEM}"
    if isinstance(error, errors.ConcretizationTypeError):
        function = re.search(r"\b(?:math|cmath)\.(\w+)", text)
        if function:
            return f"of Python's math {_MATH.format(name=function[1])}"
        if "range(" in text:
            return "sets the length of a loop, which must be known when the function is compiled"
        converted = re.search(r"(?<![\w.])(float|int|bool|complex)\(", text)
        if converted:
            return _CONVERT.format(name=converted[1])
        if re.search(r"\.(item|tolist)\(", text):
            return "asks for a plain number, which is not known when the function is compiled; use the array"
        return "needs a value that is not known when the function is compiled; write it with jax.numpy"
    if "Tracer" in message or isinstance(error, ctypes.ArgumentError):  # a dict, or a compiled library
        return "cannot use values that are not known when the function is compiled; write it with jax.numpy"
    return None
