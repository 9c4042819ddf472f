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


def key(*about: Any) -> bytes | None:
    """The key of something with this description, whose text is the same in every process."""
    if code_cache.folder() is None or not _version():
        return None
    return hashlib.sha256(f"kept\n{_version()}\n{about!r}".encode()).digest()


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


def value(about: Any, make: Callable[[], Any]) -> Any:
    """A value with a description that is the same in every process; None if there is no such description."""
    place = None if about is None else key(about)
    found = None if place is None else load(place)
    if found is None:
        found = make()
        if place is not None:
            store(place, found)
    return found


class KeptOnDisk:
    """An object without its expressions. They are made anew where they are asked for.

    ``HEAVY`` are the names of attributes that are not kept. ``remake`` makes the whole object.
    """

    HEAVY: ClassVar[frozenset[str]]
    remake: Any = None

    def __getattr__(self, name: str) -> Any:
        if name not in type(self).HEAVY or self.remake is None:
            raise AttributeError(f"{type(self).__name__} has no {name}")
        whole = self.remake()
        self.__dict__ |= {key: value for key, value in whole.__dict__.items() if key in type(self).HEAVY}
        return self.__dict__[name]

    def light(self) -> dict[str, Any]:
        """All other attributes, to be kept."""
        dropped = {*type(self).HEAVY, "remake"}
        return {name: value for name, value in self.__dict__.items() if name not in dropped}

    @classmethod
    def of(cls, light: dict[str, Any], remake: Any) -> Self:
        """The object that has these attributes."""
        found = cls.__new__(cls)
        found.__dict__ |= light
        found.remake = remake
        return found
