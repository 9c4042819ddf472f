"""Values that are computed on first access."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Deferred:
    """A value that ``make`` computes on first access. Then it is kept.

    >>> later = Deferred(lambda: print("computed") or 6)
    >>> later.then(lambda x: x * 7)(), later()
    computed
    (42, 6)
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make: Callable[[], Any] | None = make
        self._value: Any = None

    def __call__(self) -> Any:
        make = self._make  # another thread may set it to None meanwhile
        if make is not None:
            self._value = make()
            self._make = None
        return self._value

    def then(self, function: Callable[[Any], Any]) -> Deferred:
        """``function`` of the value, deferred as well."""
        return Deferred(lambda: function(self()))

    def __getstate__(self) -> dict[str, Any]:
        return {"_value": self(), "_make": None}


def value(x: Any) -> Any:
    """x itself, or its value if it is deferred."""
    return x() if isinstance(x, Deferred) else x
