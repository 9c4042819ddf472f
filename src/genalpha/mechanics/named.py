"""The names in the code of a function: globals, imports and attributes that it may read."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

# Code with one of these may read any attribute of an object.
_ANY = {
    *("vars", "dir", "getattr", "attrgetter", "methodcaller", "__dict__", "__getattribute__", "MATCH_CLASS"),
    *("tree", "tree_util", "tree_map", "tree_leaves", "tree_flatten", "ravel_pytree"),
}
_ATTRIBUTES = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR", "IMPORT_FROM"}
_GLOBALS = {"LOAD_GLOBAL", "LOAD_NAME"}


class Named(NamedTuple):
    """What the code of a function names, in the order of the code."""

    globals: tuple[str, ...]
    imports: tuple[str, ...]
    # Attributes, each with the variable that it is read from if that follows at once, as in np.linalg.norm.
    attributes: tuple[tuple[str, str], ...]
    any_attribute: bool


@functools.lru_cache(maxsize=1024)
def named(code: types.CodeType) -> Named:
    """What a code names, with the functions that are defined in it."""
    known: dict[str, None] = {}
    imports: dict[str, None] = {}
    attributes: dict[tuple[str, str], None] = {}
    kinds: set[str] = set()
    for part in _codes(code):
        variable = ""
        for step in dis.get_instructions(part):
            kind, name = step.opname, str(step.argval)
            kinds.add(kind)
            if kind in _ATTRIBUTES:
                attributes[variable, name] = None
                continue
            variable = name if kind in _GLOBALS or kind == "LOAD_DEREF" else ""
            if kind in _GLOBALS:
                known[name] = None
            elif kind == "IMPORT_NAME":
                imports[name] = None
        # Texts may be names for getattr.
        attributes |= {("", text): None for text in _texts(part.co_consts)}
    anything = not _ANY.isdisjoint({*kinds, *known, *(name for _, name in attributes)})
    return Named(tuple(known), tuple(imports), tuple(attributes), anything)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _texts(constants: Any) -> Iterator[str]:
    """The constants that are identifiers."""
    for constant in constants:
        if isinstance(constant, str) and constant.isidentifier():
            yield constant
        elif isinstance(constant, tuple | frozenset):
            yield from _texts(constant if isinstance(constant, tuple) else sorted(constant, key=repr))
