"""The values that the user's functions read from outside: closures, globals, modules and attributes.

A function is traced once, and what it reads becomes a constant of the compiled program. `Reads` remembers
these values, so that a program is made again if one of them has changed.
"""

from __future__ import annotations

import functools
import operator
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import jax

from genalpha.errors import warn
from genalpha.mechanics.attributes import (
    MAKERS,
    METHODS,
    MISSING,
    OF_C,
    all_of,
    defined,
    in_class,
    in_object,
    operators,
    runs_code,
    stored,
)
from genalpha.mechanics.copies import CONTAINERS, PLAIN, ContainerCopy, same
from genalpha.mechanics.named import named

# Functions of these packages read nothing that changes.
_KNOWN = {"jax", "jaxlib", "numpy", "scipy", "builtins", "math", "functools", "genalpha"}
# Functions of these modules do not read attributes of objects that they are given.
_HARMLESS = {"itertools", "time", "random", "warnings", "logging", "contextlib", "typing", "collections"}
# One function may read so many values and objects. The rest is not looked at.
_MOST_FOUND = 10_000
_warned: set[str] = set()  # the functions that have been told to read too much
# The name that stands for all attributes of an object.
_ALL = "__dict__"

# The attribute of a function that lists functions of the user's own, which it calls.
FOLLOWED = "functions_of_the_user"

Read = Callable[[], Any]
Sources = dict[tuple[Any, ...], tuple[Read, Any, ContainerCopy | None]]


class Reads:
    """What some functions read from outside, with the values at the time of the call."""

    def __init__(self, functions: Iterable[Any]) -> None:
        self._sources: Sources = {}
        self._kept: dict[int, Any] = {}  # so that no id in the keys of the sources is used again
        left = deque(functions)
        while left:
            function = left.popleft()
            if id(function) in self._kept:
                continue
            self._kept[id(function)] = function
            if isinstance(function, types.FunctionType) and _is_known(function):
                left.extend((*getattr(function, FOLLOWED, ()), *_wrapped(function)))
            else:
                search = _SearchOfReads(function, self._sources)
                left.extend(search.followed)
                self._kept[id(search)] = search

    @property
    def found(self) -> bool:
        """Whether they read anything."""
        return bool(self._sources)

    @property
    def traced(self) -> bool:
        """Whether JAX is tracing one of the values."""
        sources = self._sources.values()
        values = (x for _, value, copy in sources for x in (copy.objects if copy else (value,)))
        return any(isinstance(x, jax.core.Tracer) for x in values)

    def changed(self) -> bool:
        """Whether one of the values has changed."""
        return not all(map(_unchanged, self._sources.values()))

    def settle(self) -> None:
        """Disregard values that have changed, because the functions change them when they are called."""
        self._sources = {key: source for key, source in self._sources.items() if _unchanged(source)}


def reads_traced(functions: Iterable[Any]) -> bool:
    """Whether some functions read values from outside that JAX is tracing."""
    return Reads(functions).traced


class _SearchOfReads:
    """Find what one function reads.

    An object may be passed to any function that this one calls. So the attributes of every object are looked
    at that the function or one of these names. The order is that of the code.
    """

    def __init__(self, function: Any, sources: Sources) -> None:
        self.followed: list[Any] = []  # functions that are searched by themselves
        self._sources, self._most = sources, len(sources) + _MOST_FOUND
        self._home = _package(getattr(function, "__module__", None))
        self._names: dict[str, None] = {}  # of attributes
        self._seen: dict[int, Any] = {}  # the things are kept, so that no id is used again
        self._left: deque[Any] = deque([function])
        self._owners: list[tuple[Any, int]] = []  # things with attributes, and how many names were looked at
        self._looked = 0  # how many were looked at in all of them
        while not self._full and (self._left or self._looked < len(self._names)):
            if self._left:
                self._visit(self._left.popleft())
            else:
                self._look_at_owners()
        if self._full:
            _warn(getattr(function, "__qualname__", type(function).__qualname__))

    @property
    def _full(self) -> bool:
        """Whether so much was found that the rest is not looked at."""
        return len(self._sources) + len(self._owners) > self._most

    def _note(self, thing: Any) -> None:
        """Note a thing with attributes, and look at those that were named so far."""
        names = [*self._names]
        self._owners.append((thing, len(names)))
        for name in names:
            self._attribute(thing, name)

    def _look_at_owners(self) -> None:
        """Look at the attributes that were named since the last time."""
        names, owners = [*self._names], self._owners
        self._owners, self._looked = [(thing, len(names)) for thing, _ in owners], len(names)
        for thing, done in owners:
            for name in () if self._full else names[done:]:
                self._attribute(thing, name)

    def _visit(self, thing: Any) -> None:
        """Go on from a value, if it is a function or has attributes."""
        if id(thing) in self._seen or isinstance(thing, PLAIN):
            return
        self._seen[id(thing)] = thing
        if isinstance(thing, types.FunctionType):
            self._function(thing)
        elif isinstance(thing, functools.partial):
            self._left.append(thing.func)
            for i, value in enumerate((*thing.args, *thing.keywords.values())):
                self._constant((id(thing), i), value)
        elif isinstance(thing, types.MethodType):
            self._method(thing.__self__, thing.__func__)
            self._left.append(thing.__self__)
        elif isinstance(thing, types.BuiltinFunctionType) and thing.__module__ is None:  # such as table.get
            self._constant((id(thing),), thing.__self__)
        elif isinstance(thing, types.BuiltinFunctionType | operator.attrgetter | operator.methodcaller):
            self._foreign_call(thing.__module__)
        elif isinstance(thing, types.ModuleType):
            if _package(thing.__name__) not in _KNOWN:
                self._note(thing)
        elif not isinstance(thing, jax.Array):
            self._object(thing)

    def _object(self, thing: Any) -> None:
        """Note an object or a class, and its operators such as ``a[0]``."""
        is_class = isinstance(thing, type)
        cls: Any = thing if is_class else type(thing)
        known = _package(cls.__module__) in _KNOWN
        wrapped = getattr(thing, "__wrapped__", MISSING) if known else in_object(thing, "__wrapped__")
        if wrapped is not MISSING:
            self._left.append(wrapped)
        if isinstance(thing, jax.custom_jvp | jax.custom_vjp):
            self._left.extend(getattr(thing, name, None) for name in ("jvp", "fwd", "bwd"))
        if known:
            return
        self._note(thing)
        for name in operators(cls):
            if is_class or name not in MAKERS:
                self._source((id(cls), name), functools.partial(in_class, cls, name), follow=False)
                for found in defined(cls, name):
                    self._method(thing, found)

    def _function(self, function: types.FunctionType) -> None:
        """Look at what a function reads: its defaults, closure, globals and imports."""
        self.followed.extend(getattr(function, FOLLOWED, ()))
        self._left.extend(_wrapped(function))
        if _is_known(function):
            return
        known = function.__globals__
        for i, default in enumerate(
            (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        ):
            self._constant((id(function), i), default)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for cell in cells.values():
            self._source((id(cell),), functools.partial(_content, cell))
        if self._place(known.get("__name__")) == "own":
            self._code(function.__code__, known, cells)
        elif not _wrapped(function):
            self._foreign_call(known.get("__name__"))
        if function.__dict__:
            self._note(function)

    def _code(self, code: types.CodeType, known: dict[str, Any], cells: dict[str, types.CellType]) -> None:
        """Look at what code names: globals, imports and attributes."""
        names = named(code)
        for name in names.globals:
            if name in known:
                self._source((id(known), name), functools.partial(known.get, name, MISSING))
        for name in names.imports:
            for full in (name, f"{known.get('__package__')}.{name}".rstrip(".")):
                self._left.append(sys.modules.get(full))
        for variable, name in names.attributes:
            thing = _content(cells[variable]) if variable in cells else known.get(variable)
            # Such as jnp.linalg.norm, which are no attributes of the user's objects.
            if not isinstance(thing, types.ModuleType) or _package(thing.__name__) not in _KNOWN:
                self._names.setdefault(name)
        if names.any_attribute:
            self._names.setdefault(_ALL)

    def _foreign_call(self, module: Any) -> None:
        """A function of another package may read any attribute."""
        if _package(module) not in _KNOWN | _HARMLESS:
            self._names.setdefault(_ALL)

    def _attribute(self, owner: Any, name: str) -> None:
        """Note an attribute, and follow methods. No code of the user runs."""
        if isinstance(owner, types.ModuleType):
            return self._of_module(owner, name)
        is_class = isinstance(owner, type)
        cls = owner if is_class else type(owner)
        if name == _ALL:
            return self._all(owner) if self._place(cls.__module__) != "installed" else None
        there = defined(cls, name)
        for found in (*there, *(defined(type(cls), name) if is_class else ())):
            # All of them, because the first may call the next by super().
            self._method(owner, found)
        first = there[0] if there else MISSING
        if isinstance(first, OF_C):
            return None
        if first is not MISSING and (is_class or runs_code(first)):
            read = functools.partial(in_class, cls, name)
            self._source((id(cls), name), read, follow=not isinstance(first, METHODS))
        if not is_class:
            read = functools.partial(in_object if runs_code(first) else stored, owner, name)
            if read() is not MISSING or isinstance(first, functools.cached_property):
                self._source((id(owner), name), read)
        return None

    def _of_module(self, module: types.ModuleType, name: str) -> None:
        """Note an attribute of a module, or a call of a function of another package."""
        found = vars(module).get(name, MISSING)
        if self._place(module.__name__, module) == "own":
            if found is not MISSING:
                self._source((id(module), name), functools.partial(vars(module).get, name, MISSING))
        elif isinstance(found, types.FunctionType | types.BuiltinFunctionType):
            self._foreign_call(module.__name__)
        elif isinstance(found, types.ModuleType):
            self._left.append(found)

    def _method(self, owner: Any, found: Any) -> None:
        """Follow what a class has under the name of an attribute, if it is a method or the like."""
        if isinstance(found, property):
            function = found.fget
        elif isinstance(found, functools.cached_property | functools.partialmethod):
            function = found.func
        elif isinstance(found, classmethod | staticmethod):
            function = found.__func__
        else:
            function = found
        if runs_code(found) and function is found:  # a descriptor of the user
            self._left.append(found)
            function = getattr(type(found), "__get__")  # noqa: B009
        if isinstance(found, classmethod):
            self._left.append(owner if isinstance(owner, type) else type(owner))
        if not isinstance(function, types.FunctionType):
            self._left.append(function)
        elif self._is_foreign(function):
            self._all(owner)
        else:
            self._left.appendleft(function)

    def _is_foreign(self, function: types.FunctionType) -> bool:
        """Whether a function belongs to another package, and is not a wrapper of one that can be followed."""
        place = self._place(function.__globals__.get("__name__"))
        return place in ("standard", "installed") and not _wrapped(function)

    def _all(self, owner: Any) -> None:
        """Note all attributes of an object."""
        if not isinstance(owner, type):
            self._source((id(owner), _ALL), functools.partial(all_of, owner))

    def _constant(self, key: tuple[Any, ...], value: Any) -> None:
        """Note a value that can only change in itself, such as a list that is a default."""
        self._source(key, lambda: value)

    def _source(self, key: tuple[Any, ...], read: Read, follow: bool = True) -> None:
        """Remember a value, and go on from it."""
        value = read()
        if isinstance(value, types.ModuleType):
            self._left.append(value)
            return
        if key not in self._sources:
            self._sources[key] = read, value, ContainerCopy(value) if isinstance(value, CONTAINERS) else None
        copy = self._sources[key][2]
        if follow and isinstance(value, types.FunctionType):  # first, for the names in its code
            self._left.appendleft(value)
        elif follow:
            self._left.extend(copy.objects if copy else (value,))

    def _place(self, name: Any, module: types.ModuleType | None = None) -> str:
        """Where a module is from: "known", "standard" (Python's own), "installed", or "own" (the user's)."""
        package = _package(name)
        if package in _KNOWN or package in sys.stdlib_module_names:
            return "known" if package in _KNOWN else "standard"
        file = getattr(module or sys.modules.get(name), "__file__", None) or ""
        installed = "site-packages" in file or "dist-packages" in file
        return "installed" if installed and package != self._home else "own"


def _unchanged(source: tuple[Read, Any, ContainerCopy | None]) -> bool:
    """Whether a value is what it was."""
    read, value, copy = source
    if copy is None:
        return same(read(), value)
    now = read()
    return isinstance(now, CONTAINERS) and ContainerCopy(now).content == copy.content


def _warn(name: str) -> None:
    """Say, once for each function, that it reads too much."""
    if name not in _warned:
        _warned.add(name)
        warn(
            f"{name} reads more than {_MOST_FOUND} values from outside. If one of the others changes between "
            "runs, the next run does not see it. Pass values that change as args, or put them into one NumPy "
            "array"
        )


def _content(cell: types.CellType) -> Any:
    """The value of a variable of an enclosing function."""
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return MISSING


@functools.lru_cache(maxsize=1024)
def _package(module: Any) -> str:
    """The package of a module."""
    return str(module).partition(".")[0]


def _wrapped(function: types.FunctionType) -> tuple[Any, ...]:
    """The functions that a function wraps. Those of JAX and functools may have some in their closures."""
    found = [function.__wrapped__] if hasattr(function, "__wrapped__") else []
    for cell in (function.__closure__ or ()) if _is_known(function) else ():
        value = _content(cell)
        items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
        functions = (x for x in items if isinstance(x, types.FunctionType))
        found += [x for x in functions if not _is_known(x) or x.__module__ == "functools"]
    return tuple(found)


def _is_known(function: types.FunctionType) -> bool:
    """Whether a function is one of a package whose functions read nothing."""
    return _package(function.__globals__.get("__name__")) in _KNOWN
