"""Objects as text. Objects that compute the same have the same text, in every process.

NumPy's print options do not matter.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import types
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Limits of the nesting depth and of the number of objects that are described by their contents.
_DEEPEST, _MOST = 30, 10_000
PROCESS = os.urandom(8).hex()
_OWN = ("genalpha", "builtins", "abc", "typing", "copyreg")
_PLAIN = (type(None), type(...), bool, int, complex, str, bytes)


def described(x: Any, without: str = "") -> str:
    """A text that differs if the objects differ: in any bit of a number, in a field, in the code of a class.

    Fields that are ignored when objects are compared are ignored here too, and so is a field called
    ``without``. The text includes the code of functions, and the code of classes from outside the package.
    An object whose contents cannot be read gets a text of its own, which is valid only in this process.

    >>> described((1, 0.1, "x"))
    "(1, 0x1.999999999999ap-4, 'x')"
    """
    return _Text(without).of(x, 0)


class _Text:
    def __init__(self, without: str) -> None:
        self.left, self.without = _MOST, without

    def of(self, x: Any, depth: int) -> str:
        kind, self.left = type(x), self.left - 1
        if kind in _PLAIN:
            return repr(x)
        if kind is float:
            return x.hex()
        if depth > _DEEPEST or self.left < 0:
            return _alone(x)
        depth += 1
        if isinstance(x, np.ndarray | np.generic | jax.Array):
            return self._array(x, depth)
        if kind in (tuple, list):
            return f"({self._each(x, depth)})" if kind is tuple else f"[{self._each(x, depth)}]"
        if kind in (set, frozenset):
            return f"{{{', '.join(sorted(self.of(part, depth) for part in x))}}}"
        if kind is dict:
            return f"{{{', '.join(sorted(self._each(pair, depth) for pair in x.items()))}}}"
        if isinstance(x, type):
            return self._class(x, depth)
        if isinstance(x, types.ModuleType):
            return f"module {x.__name__}"
        return self._object(x, depth)

    def _each(self, parts: Iterable[Any], depth: int) -> str:
        return ", ".join(self.of(part, depth) for part in parts)

    def _array(self, x: Any, depth: int) -> str:
        array = as_array(x)
        if array.dtype.hasobject:
            return self.of(array.tolist(), depth)
        if isinstance(x, np.generic) and array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
            return self.of(x.item(), depth)
        return f"{array.dtype.str}{array.shape} {hashlib.sha256(array.tobytes()).hexdigest()}"

    def _class(self, kind: type, depth: int) -> str:
        """The name of a class and, if it is from outside the package, a hash of its code."""
        own = []
        for base in kind.__mro__:
            if base.__module__.partition(".")[0] in _OWN:
                continue
            for name, member in sorted(vars(base).items()):
                member = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
                member = getattr(member, "__wrapped__", member)
                if isinstance(member, types.FunctionType):
                    own.append((name, self.of(member.__code__, depth)))
        code = hashlib.sha256(repr(own).encode()).hexdigest() if own else ""
        return f"{kind.__module__}.{kind.__qualname__}{code and ' '}{code}"

    def _object(self, x: Any, depth: int) -> str:
        if isinstance(x, types.FunctionType):
            name, cells = f"{x.__module__}.{x.__qualname__}", [_content(cell) for cell in x.__closure__ or ()]
            parts: Any = (x.__code__, x.__defaults__, x.__kwdefaults__, cells)
            if name == "copyreg.__newobj__":
                parts = ()
        elif isinstance(x, types.CodeType):
            name, parts = "code", (x.co_code, x.co_names, x.co_varnames, x.co_freevars, x.co_consts)
        elif isinstance(x, types.MethodType):
            name, parts = "method", (x.__func__, x.__self__)
        elif isinstance(x, functools.partial):
            name, parts = "partial", (x.func, x.args, x.keywords)
        elif dataclasses.is_dataclass(x):
            names = [f.name for f in dataclasses.fields(x) if f.compare and f.name != self.without]
            parts = [(name, getattr(x, name)) for name in names]
            name = self._class(type(x), depth)
        elif hasattr(x, "__wrapped__"):  # such as a function that JAX compiles
            name, parts = self._class(type(x), depth), (x.__wrapped__,)
        else:
            return self._made(x, depth)
        return f"{name}({self._each(parts, depth)})"

    def _made(self, x: Any, depth: int) -> str:
        """Any other object, described by what pickle would rebuild it from."""
        try:
            made = x.__reduce_ex__(2)
        except Exception:  # it cannot be pickled
            return _alone(x)
        if isinstance(made, str):
            return f"{getattr(x, '__module__', '')}.{made}"
        first, more = made[:3], [list(part) for part in made[3:5] if part is not None]
        return f"{self._class(type(x), depth)}({self._each([*first, *more], depth)})"


def as_array(x: Any) -> np.ndarray:
    """These numbers as a NumPy array; also for JAX's keys of random numbers."""
    if isinstance(x, jax.Array) and jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
        x = jax.random.key_data(x)
    return np.asarray(x)


def _alone(x: Any) -> str:
    return f"<{type(x).__module__}.{type(x).__qualname__} {id(x)} of {PROCESS}>"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is still empty
        return None
