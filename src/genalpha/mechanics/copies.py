"""Copies of values that can be compared with the values of later."""

from __future__ import annotations

import types
import zlib
from array import array
from collections import deque
from typing import Any

import jax
import numpy as np

PLAIN = (int, float, complex, bool, str, bytes, type(None), np.number, np.bool_)
_EXACTLY = frozenset({int, float, complex, bool, str, bytes, type(None)})
_LISTS = (list, tuple, set, frozenset, deque)
_TABLES = (dict, types.MappingProxyType)
_ARRAYS = (np.ndarray, array, bytearray)
CONTAINERS = (*_LISTS, *_TABLES, *_ARRAYS)
# Containers with more items, and containers nested deeper, are compared by identity. So is the rest of a
# container with more items altogether.
_MOST, _MOST_ALTOGETHER, _DEEPEST = 4096, 2**16, 50
# Arrays with more entries than _MOST are compared by a checksum, and larger ones by identity.
_LARGEST = 2**20


class ContainerCopy:
    """The content of a container. ``objects`` are what is in it and is compared by identity.

    They are kept, so that no other object can have the same id.
    """

    def __init__(self, value: Any) -> None:
        self.objects: list[Any] = []
        self._numbers: dict[int, int] = {}
        self._left = _MOST_ALTOGETHER
        self.content = self._of(value, 0)

    def _of(self, value: Any, depth: int) -> Any:
        """The content of a value, as nested tuples."""
        if isinstance(value, PLAIN):
            return type(value), value
        if not isinstance(value, CONTAINERS):
            return self._object(value)
        if id(value) in self._numbers:
            return "again", self._numbers[id(value)]
        if depth >= _DEEPEST:
            return self._object(value)
        self._numbers[id(value)] = len(self._numbers)
        content = self._content(value, depth)
        of_the_user = type(value).__module__ not in ("builtins", "numpy", "collections", "array", "types")
        return (self._object(value), content) if of_the_user else content  # it may have attributes

    def _content(self, value: Any, depth: int) -> Any:
        """The content of a container."""
        if isinstance(value, _ARRAYS) and not (isinstance(value, np.ndarray) and value.dtype.hasobject):
            return self._array(value)
        return self._items(value, depth)

    def _object(self, value: Any) -> Any:
        """The id of an object, which is kept."""
        self.objects.append(value)
        return id(value)

    def _array(self, value: Any) -> Any:
        """The numbers of an array, or a checksum."""
        if not isinstance(value, np.ndarray):
            large = len(value) > _LARGEST
            return self._object(value) if large else (type(value), len(value), zlib.crc32(value))
        if value.size > _LARGEST:
            return self._object(value)
        whole: Any = np.ascontiguousarray(value)
        if value.size <= _MOST:
            return type(value), value.shape, value.dtype.str, whole.tobytes()
        return type(value), value.shape, value.dtype.str, zlib.crc32(whole.reshape(-1).view(np.uint8))

    def _items(self, value: Any, depth: int) -> Any:
        """The items of a container. Methods of the user's own subclasses are not called."""
        items: Any
        if isinstance(value, np.ndarray):
            count, items = value.size, np.asarray(value).flat
        else:
            kind: Any = next(kind for kind in (*_LISTS, *_TABLES) if isinstance(value, kind))
            count = kind.__len__(value)
            items = kind.__iter__(value) if kind in _LISTS else (*kind.keys(value), *kind.values(value))
        if count > min(_MOST, self._left):
            return self._object(value)
        self._left -= count
        found = tuple(items)
        kinds = tuple(map(type, found))
        if _EXACTLY.issuperset(kinds):
            return type(value), kinds, found
        return type(value), tuple(self._of(item, depth + 1) for item in found)


def same(now: Any, value: Any) -> bool:
    """Whether two values are the same object or equal. Arrays of JAX cannot be changed, only replaced."""
    if now is value:
        return True
    if type(now) is not type(value):
        return False
    if isinstance(now, PLAIN):
        return bool(now == value)
    if isinstance(now, types.MethodType):
        return now.__func__ is value.__func__ and now.__self__ is value.__self__
    if isinstance(now, jax.Array) and not isinstance(now, jax.core.Tracer):
        alike = now.shape == value.shape and now.dtype == value.dtype and now.size <= _MOST
        return alike and bool(np.array_equal(np.asarray(now), np.asarray(value)))
    return False
