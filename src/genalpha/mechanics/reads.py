"""The values that the user's functions read from outside: closures, globals, modules and attributes.

A function is traced once, and what it reads becomes a constant of the compiled program. `Reads` remembers
these values, so that a program is made again if one of them has changed.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax

from genalpha.mechanics.copies import CONTAINERS, PLAIN, Copy, same
from genalpha.numerics.tracing import is_traced

# Functions of these packages read nothing that changes.
_KNOWN = {"jax", "jaxlib", "numpy", "scipy", "builtins", "math", "functools", "genalpha"}
_DEEPEST, _MOST_SOURCES = 16, 500
_MISSING = object()
_METHODS = (types.FunctionType, property, classmethod, staticmethod)
# Methods that have no name in the code that calls them, but for these, which make or compare objects.
_NOT_OPERATORS = {
    *("__init__", "__new__", "__post_init__", "__setattr__", "__delattr__", "__init_subclass__", "__repr__"),
    *("__str__", "__eq__", "__hash__", "__del__", "__reduce__", "__getstate__", "__setstate__"),
}

# The attribute of a function that lists functions of the user's own, which it calls.
FOLLOWED = "functions_of_the_user"

Read = Callable[[], Any]


class Reads:
    """What some functions read from outside, with the values at the time of the call."""

    def __init__(self, functions: Iterable[Any]) -> None:
        self._plain: list[tuple[Read, Any]] = []
        self._copied: list[tuple[Read, Copy]] = []
        self._seen: set[tuple[int, tuple[str, ...]]] = set()
        self._kept: list[Any] = []  # so that no id in _seen is used again
        for function in functions:
            self._follow(function, 0)

    @property
    def found(self) -> bool:
        """Whether they read anything."""
        return bool(self._plain or self._copied)

    def changed(self) -> bool:
        """Whether one of the values has changed."""
        plain = all(same(read(), value) for read, value in self._plain)
        return not (plain and all(_unchanged(read(), copy) for read, copy in self._copied))

    def settle(self) -> None:
        """Disregard values that have changed, because the functions change them when they are called."""
        self._plain = [(read, value) for read, value in self._plain if same(read(), value)]
        self._copied = [(read, copy) for read, copy in self._copied if _unchanged(read(), copy)]

    def _follow(self, function: Any, depth: int) -> None:
        """Find what a function or an object that is called reads."""
        if isinstance(function, functools.partial):
            self._follow(function.func, depth)
            for value in (*function.args, *function.keywords.values()):
                self._value(lambda value=value: value, _names(function.func), depth)  # type: ignore[misc]
        elif isinstance(function, types.MethodType):
            self._follow(function.__func__, depth)
            self._value(lambda: function.__self__, _names(function.__func__), depth)
        elif isinstance(function, types.FunctionType):
            self._of_code(function, depth)
        elif hasattr(function, "__wrapped__"):
            self._follow(function.__wrapped__, depth)
        elif not isinstance(function, type) and isinstance(
            called := type(function).__call__, types.FunctionType
        ):
            self._follow(called, depth)
            self._value(lambda: function, _names(called), depth)

    def _of_code(self, function: types.FunctionType, depth: int) -> None:
        if not self._is_new(function):
            return
        for other in getattr(function, FOLLOWED, ()):
            self._follow(other, depth)
        if _package(function.__globals__.get("__name__")) in _KNOWN:
            return
        names = _names(function)
        for default in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._value(lambda default=default: default, names, depth + 1)  # type: ignore[misc]
        for cell in function.__closure__ or ():
            self._value(functools.partial(_content, cell), names, depth + 1)
        read, imported = _globals(function.__code__)
        for known, some in ((function.__globals__, read), (sys.modules, imported)):
            for name in some:
                if name in known:
                    self._value(functools.partial(known.get, name, _MISSING), names, depth + 1)

    def _value(self, read: Read, names: tuple[str, ...], depth: int) -> None:
        """Remember a value, and what it leads to; ``names`` are the attributes that the function may read."""
        value = read()
        if len(self._plain) + len(self._copied) > _MOST_SOURCES:
            return
        if isinstance(value, types.ModuleType):
            if _is_own(value):
                self._attributes(value, names, depth)
            return
        if isinstance(value, CONTAINERS):
            copy = Copy(value)
            self._copied.append((read, copy))
            for thing in copy.objects:
                if not isinstance(thing, (*CONTAINERS, jax.Array)):
                    self._value(lambda thing=thing: thing, names, depth + 1)  # type: ignore[misc]
            return
        self._plain.append((read, value))
        if isinstance(value, (*PLAIN, jax.Array, jax.core.Tracer)) or depth >= _DEEPEST:
            return
        if callable(value):
            self._follow(value, depth + 1)
        if not isinstance(value, types.FunctionType):
            self._attributes(value, names, depth)

    def _attributes(self, value: Any, names: tuple[str, ...], depth: int) -> None:
        """Remember attributes, and follow methods: those with these names, and operators such as ``a[0]``."""
        own = isinstance(value, type | types.ModuleType)
        if depth >= _DEEPEST or not self._is_new(value, more=names):
            return
        if not own and _package(getattr(type(value), "__module__", "")) in _KNOWN:
            return
        for name in names if own else {*names, *_operators(type(value))}:  # type: ignore[arg-type]
            found = inspect.getattr_static(value, name, _MISSING)
            if found is _MISSING:
                continue
            if own or not isinstance(found, _METHODS):
                self._value(functools.partial(getattr, value, name, _MISSING), names, depth + 1)
                continue
            method = getattr(found, "fget", None) or getattr(found, "__func__", found)
            if isinstance(method, types.FunctionType):
                self._of_code(method, depth + 1)
                self._attributes(value, _names(method), depth + 1)
                self._attributes(type(value), _names(method), depth + 1)

    def _is_new(self, thing: Any, more: tuple[str, ...] = ()) -> bool:
        key = id(thing), more
        new = key not in self._seen
        self._seen.add(key)
        self._kept.append(thing)
        return new


def reads_traced(functions: Iterable[Any]) -> bool:
    """Whether some functions read values from outside that JAX is tracing."""
    found = Reads(functions)
    return is_traced([read() for read, _ in (*found._plain, *found._copied)])


def _unchanged(now: Any, copy: Copy) -> bool:
    return isinstance(now, CONTAINERS) and Copy(now).content == copy.content


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return _MISSING


def _package(module: Any) -> str:
    return str(module).partition(".")[0]


def _is_own(module: types.ModuleType) -> bool:
    """Whether a module is neither Python's own nor an installed package."""
    name, file = _package(module.__name__), getattr(module, "__file__", None) or ""
    installed = "site-packages" in file or "dist-packages" in file
    return not (name in _KNOWN or name in sys.stdlib_module_names or installed)


@functools.lru_cache(maxsize=1024)
def _operators(cls: type) -> tuple[str, ...]:
    """The operators that a class of the user has."""
    own = [base for base in cls.__mro__ if _package(base.__module__) not in _KNOWN]
    found = {name for base in own for name in vars(base) if name.startswith("__") and name.endswith("__")}
    return tuple(sorted(found - _NOT_OPERATORS))


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


@functools.lru_cache(maxsize=1024)
def _globals(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the globals that a function reads, and of the modules that it imports."""
    steps = [step for part in _codes(code) for step in dis.get_instructions(part)]
    of = lambda *kinds: tuple(sorted({str(step.argval) for step in steps if step.opname in kinds}))
    return of("LOAD_GLOBAL", "LOAD_NAME"), of("IMPORT_NAME")


def _names(function: Any) -> tuple[str, ...]:
    """The names of the attributes that a function may read."""
    if not isinstance(function, types.FunctionType):
        return ()
    codes = [*_codes(function.__code__)]
    texts = (
        x for part in codes for x in part.co_consts if isinstance(x, str) and x.isidentifier()
    )  # getattr
    return tuple(sorted({*(name for part in codes for name in part.co_names), *texts}))
