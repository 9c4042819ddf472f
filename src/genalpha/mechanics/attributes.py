"""Attributes of objects and classes, found without running code of the user."""

from __future__ import annotations

import functools
import types
from typing import Any

MISSING = object()
METHODS = (types.FunctionType, property, classmethod, staticmethod)
# Methods in C. They read nothing, and are new objects each time.
OF_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
# Special methods of classes, which make objects.
MAKERS = {"__init__", "__new__", "__post_init__"}
# Special methods that no operator calls.
_NOT_OPERATORS = {
    *(
        "__init_subclass__",
        "__class_getitem__",
        "__subclasshook__",
        "__set_name__",
        "__setattr__",
        "__delattr__",
    ),
    *("__repr__", "__str__", "__format__", "__dir__", "__sizeof__", "__eq__", "__hash__", "__del__"),
    *("__copy__", "__deepcopy__", "__replace__", "__reduce__", "__reduce_ex__", "__getnewargs__"),
    *("__getstate__", "__setstate__"),
}


def defined(cls: type, name: str) -> list[Any]:
    """What a class and its bases have under a name."""
    return [vars(base)[name] for base in cls.__mro__ if name in vars(base)]


def in_class(cls: type, name: str) -> Any:
    """An attribute of a class as it is there: properties and methods are not called or bound."""
    return next(iter(defined(cls, name)), MISSING)


def in_object(owner: Any, name: str) -> Any:
    """An attribute in the dictionary of an object."""
    found = stored(owner, "__dict__")
    return found.get(name, MISSING) if isinstance(found, dict) else MISSING


def stored(owner: Any, name: str) -> Any:
    """An attribute of an object. ``__getattr__`` and ``__getattribute__`` of the user are not called."""
    try:
        return object.__getattribute__(owner, name)
    except AttributeError:
        return MISSING


def all_of(owner: Any) -> dict[str, Any]:
    """All attributes of an object, without those of its class."""
    members = (vars(base).items() for base in type(owner).__mro__)
    slots = (name for some in members for name, x in some if isinstance(x, types.MemberDescriptorType))
    found = stored(owner, "__dict__")
    return (found if isinstance(found, dict) else {}) | {name: stored(owner, name) for name in slots}


def runs_code(found: Any) -> bool:
    """Whether an attribute of a class is made by code of a property or another descriptor."""
    own = isinstance(getattr(type(found), "__get__", None), types.FunctionType)
    return own or isinstance(found, property)


@functools.lru_cache(maxsize=1024)
def operators(cls: type) -> tuple[str, ...]:
    """The special methods of a class that are written in Python, such as that of ``a[0]``."""
    members = ((name, found) for base in cls.__mro__ for name, found in vars(base).items())
    special = (name for name, x in members if name[:2] == name[-2:] == "__" and isinstance(x, METHODS))
    return tuple(name for name in dict.fromkeys(special) if name not in _NOT_OPERATORS)
