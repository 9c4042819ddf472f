"""Compiled programs that belong to a system."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

# Programs that a system keeps at most. A run needs about ten, and another ten where its events are new
# functions.
MOST = 256


class Programs(OrderedDict[tuple[Any, ...], Any]):
    """What was made for a system, by what it was made from; what was not used for longest goes first.

    >>> programs = Programs()
    >>> [programs.made(("square",), lambda: made) for made in ("compiled", "compiled again")]
    ['compiled', 'compiled']
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.RLock()

    def made(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """What is kept under a key, made now if nothing is."""
        with self._lock:
            if key in self:
                self.move_to_end(key)
                return self[key]
        value = make()
        with self._lock:
            self[key] = value
            while len(self) > MOST:
                self.popitem(last=False)
        return value
