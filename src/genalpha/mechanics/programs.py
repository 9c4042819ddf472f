"""Compiled programs that belong to a system."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

# Largest number of programs that a system keeps. A run needs about ten, and ten more if its events are new
# functions.
MOST = 256


class Programs(OrderedDict[tuple[Any, ...], Any]):
    """Compiled programs of a system, by the key they were made from. The least recently used goes first.

    >>> programs = Programs()
    >>> [programs.made(("square",), lambda: made) for made in ("compiled", "compiled again")]
    ['compiled', 'compiled']
    """

    def __init__(self, most: int | None = None) -> None:
        super().__init__()
        self._most = MOST if most is None else most
        self._lock = threading.RLock()
        # Whether a run may profit from what earlier runs found out. Its last bits may then depend on them.
        self.learning = True

    def __reduce__(self) -> Any:
        """What was compiled stays in its process: pickle writes down that there are programs."""
        return Programs, (self._most,)

    def made(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The program of a key. If there is none, ``make`` makes it."""
        with self._lock:
            if key in self:
                self.move_to_end(key)
                return self[key]
        value = make()
        with self._lock:
            self[key] = value
            while len(self) > self._most:
                self.popitem(last=False)
        return value
