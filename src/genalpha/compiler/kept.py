"""What was made of functions of the library, kept on disk for other processes.

To trace a joint and to write its kernels takes ten times as long as to read them. Functions of the user are
not kept: whether they have changed is not known. What is kept belongs to the very files of this package.
It lies where machine code lies (see `code_cache`), and is trusted like it.
"""

from __future__ import annotations

import functools
import hashlib
import pickle
import platform
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import jax
import numpy as np

from genalpha.compiler import code_cache

WRITER = "genalpha writer"  # the name of threads
_PACKAGE = Path(__file__).resolve().parents[1]


@functools.cache
def _version() -> str:
    """All that expressions depend on beside their description; empty if the files cannot be read."""
    try:
        files = sorted(_PACKAGE.rglob("*.py"))
        found = hashlib.sha256(
            "\n".join([jax.__version__, np.__version__, platform.python_version()]).encode()
        )
        for file in files:
            found.update(f"\n{file.relative_to(_PACKAGE)}\n".encode() + file.read_bytes())
    except OSError:
        return ""
    return found.hexdigest() if files else ""


def of_package(thing: Any) -> bool:
    """Whether a class, or that of an object, is one of this package."""
    kind = thing if isinstance(thing, type) else type(thing)
    return kind.__module__.partition(".")[0] == __name__.partition(".")[0]


def key(identity: str, *about: Any) -> bytes | None:
    """The key of something made of functions of the library, None if it cannot be kept.

    ``identity`` says which functions, and is empty for others. The text of ``about``, all else that matters,
    is the same in every process.
    """
    if not identity or code_cache.folder() is None or not _version():
        return None
    return hashlib.sha256(f"kept\n{_version()}\n{(identity, *about)!r}".encode()).digest()


def load(place: bytes) -> Any:
    """What is kept under a key; None if there is nothing that can be read."""
    found = code_cache.load(place)
    try:
        return None if found is None else pickle.loads(zlib.decompress(found))
    except Exception:
        return None


def store(place: bytes, value: Any) -> None:
    """Keep a value, if it can be written down. Another thread does this."""
    try:
        data = pickle.dumps(value)
    except Exception:
        return
    write = lambda: code_cache.store(place, zlib.compress(data, 1))
    threading.Thread(target=write, name=WRITER).start()


def value(place: bytes | None, make: Callable[[], Any]) -> Any:
    """The value that is kept under a key, or else the one that ``make`` makes."""
    found = None if place is None else load(place)
    if found is None:
        found = make()
        if place is not None:
            store(place, found)
    return found


class KeptOnDisk:
    """An object that may be kept on disk, without its expressions: they are made anew if asked for.

    ``HEAVY`` are the names of attributes that are not kept. ``remake`` makes the whole object. ``place`` is
    the key under which it is kept.
    """

    HEAVY: ClassVar[frozenset[str]]
    remake: Any = None
    place: bytes | None = None

    def __getattr__(self, name: str) -> Any:
        if name not in type(self).HEAVY or self.remake is None:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        whole = self.remake()
        self.__dict__ |= {key: value for key, value in whole.__dict__.items() if key in type(self).HEAVY}
        return self.__dict__[name]

    def light(self) -> dict[str, Any]:
        """All other attributes, to be kept."""
        dropped = {*type(self).HEAVY, "remake", "place"}
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    def keep(self) -> None:
        """Write it to its place, if it has one."""
        if self.place is not None:
            store(self.place, self.light())

    @classmethod
    def at(cls, place: bytes | None, make: Callable[[], Self]) -> Self:
        """The object that is kept at a place, or else the one that ``make`` makes."""
        light = None if place is None else load(place)
        if light is None:
            found = make()
        else:
            found = cls.__new__(cls)
            found.__dict__ |= light
            found.remake = make
        found.place = place
        return found
