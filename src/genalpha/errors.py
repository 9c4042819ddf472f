"""Exceptions: what is wrong, in which part of the input, and what to do about it."""

from __future__ import annotations

import difflib
import sys
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genalpha.results.solution import Solution
    from genalpha.statics.equilibrium import Equilibrium


def hint(name: object, known: Iterable[str], listing: str) -> str:
    """The known name that is most like a wrong one, or all of them after ``listing``.

    >>> hint("Revolut", ["Revolute", "Weld"], "there are"), hint("x", ["Revolute", "Weld"], "there are")
    ("do you mean 'Revolute'?", 'there are Revolute, Weld')
    """
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=1)
    return f"do you mean {near[0]!r}?" if near else f"{listing} {', '.join(known)}"


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


class FallbackWarning(UserWarning):
    """Native code cannot run a system, so XLA does, which compiles for long. The message gives the reason."""


class GradientWarning(UserWarning):
    """Derivatives of a run are NaN, because a function has no derivative there. The message names it."""


class HostWarning(UserWarning):
    """A function of a system cannot be traced by JAX, so it runs in Python. The message gives the reason."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's program that called the package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(("genalpha", "jax")):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def warn_of_fallback(reason: object) -> None:
    """Warn that XLA runs a system, before it compiles."""
    warn(
        f"Native code cannot run this system: {reason}. XLA runs it: it compiles for seconds to minutes, and "
        "its steps take longer. Pass backend='xla' to choose it without this warning",
        FallbackWarning,
    )


def warn_of_gradient(reason: object) -> None:
    """Warn that derivatives of a run are NaN."""
    warn(
        f"Derivatives of this run are NaN: {reason}. It has no derivative there. Write jnp.sqrt(x + 1e-12) "
        "for a root, or a product such as v * jnp.abs(v)",
        GradientWarning,
    )


class InconsistentInitialValues(ValueError):
    """q0 or v0 break the constraints. The message lists the broken rows; ``broken`` is this list alone."""

    broken = ""


class RedundantConstraints(ValueError):
    """Some constraint rows are combinations of others at the start, so the multipliers are not unique."""


class NoMultipliers(ValueError):
    """No accelerations and multipliers satisfy the equations at the start."""


class SingularSystem(ValueError):
    """The matrix (12) of JN08 is singular at the start: the accelerations are not determined."""


class IntegrationError(RuntimeError):
    """A run stopped before its end. ``solution`` holds everything up to the last good row."""

    def __init__(self, message: str, solution: Solution) -> None:
        super().__init__(message)
        self.solution = solution

    def __reduce__(self) -> tuple[type[IntegrationError], tuple[str, Solution]]:
        return IntegrationError, (str(self), self.solution)


class EquilibriumNotFound(RuntimeError):
    """No equilibrium was found. ``best`` is how far the search came."""

    def __init__(self, message: str, best: Equilibrium) -> None:
        super().__init__(message)
        self.best = best

    def __reduce__(self) -> tuple[type[EquilibriumNotFound], tuple[str, Equilibrium]]:
        return EquilibriumNotFound, (str(self), self.best)
