"""Exceptions that say what is wrong, where, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genalpha.solution import Solution


class InconsistentInitialValues(ValueError):
    """q0 or v0 break the constraints; the message lists the rows and by how much."""


class RedundantConstraints(ValueError):
    """Some constraint rows are combinations of others at the start, so multipliers are not unique."""


class SingularSystem(ValueError):
    """The matrix (12) of JN08 is singular at the start: accelerations are not determined."""


class IntegrationError(RuntimeError):
    """A run stopped half-way. ``solution`` holds everything up to the last good row."""

    def __init__(self, message: str, solution: Solution) -> None:
        super().__init__(message)
        self.solution = solution

    def __reduce__(self) -> tuple[type[IntegrationError], tuple[str, Solution]]:
        return IntegrationError, (str(self), self.solution)
