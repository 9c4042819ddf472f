"""Exceptions: what is wrong, in which part of the input, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genalpha.results.solution import Solution


def unknown(kind: str, name: str, known: Iterable[str]) -> ValueError:
    """The error for an unknown name. It lists the known names and suggests the nearest one.

    >>> unknown("method", "soi3", ["soi2", "hht-soi2"])
    ValueError("unknown method 'soi3'. Known: soi2, hht-soi2. Did you mean 'soi2'?")
    """
    known = list(known)
    lower = {one.lower(): one for one in known}
    nearest = difflib.get_close_matches(str(name).lower(), lower, n=1, cutoff=0.4)
    hint = f" Did you mean {lower[nearest[0]]!r}?" if nearest else ""
    return ValueError(f"unknown {kind} {name!r}. Known: {', '.join(known)}.{hint}")


class InconsistentInitialValues(ValueError):
    """q0 or v0 break the constraints. The message lists the broken rows; ``broken`` is this list alone."""

    broken = ""


class RedundantConstraints(ValueError):
    """Some constraint rows are combinations of others at the start, so the multipliers are not unique."""


class SingularSystem(ValueError):
    """The matrix (12) of JN08 is singular at the start: the accelerations are not determined."""


class IntegrationError(RuntimeError):
    """A run stopped before its end. ``solution`` holds everything up to the last good row."""

    def __init__(self, message: str, solution: Solution) -> None:
        super().__init__(message)
        self.solution = solution

    def __reduce__(self) -> tuple[type[IntegrationError], tuple[str, Solution]]:
        return IntegrationError, (str(self), self.solution)
