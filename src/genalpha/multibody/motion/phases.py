"""Motions whose numbers change from phase to phase: controllers, resets, runs that continue others."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from genalpha.multibody.motion.front import Momentum, Reaction
from genalpha.multibody.motion.front import Motion as Motion
from genalpha.multibody.values import different

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


def motion_of(model: Model, sol: Any, values: Mapping[str, Any] | None) -> Motion:
    """The motion of a solution, with the numbers that it was computed with, or with ``values``."""
    if values:
        return Motion(model, sol, values)
    plain = Motion(model, sol)
    args = getattr(sol, "args", None)
    if getattr(sol, "phases", None) is None and args and isinstance(args, tuple):  # of a batch, or min_norm
        return Motion(model, sol, different(model, args))
    phases = getattr(sol, "phases", None) or ()
    found = [(phase.rows, different(model, phase.args or phase.system.args)) for phase in phases]
    found = [(rows, numbers) for rows, numbers in found if rows.stop > rows.start]
    if not any(numbers for _, numbers in found):
        return plain
    named = lambda one: {name: number.tobytes() for name, number in one[1].items()}
    runs = [list(alike) for _, alike in itertools.groupby(found, named)]
    if len(runs) == 1:
        return Motion(model, sol, found[0][1])
    return PhasedMotion(plain, [(slice(run[0][0].start, run[-1][0].stop), run[0][1]) for run in runs])


class _SomeRows:
    """Some rows of a solution. What is deferred is computed when it is asked for."""

    def __init__(self, sol: Any, rows: slice) -> None:
        self._sol, self._rows = sol, rows

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "phases":
            raise AttributeError(name)
        found = getattr(self._sol, name)
        return (
            found[self._rows] if isinstance(found, np.ndarray) and len(found) == len(self._sol.t) else found
        )


class PhasedMotion(Motion):
    """A motion whose numbers change: its results are those of its parts, one after the other."""

    def __init__(self, plain: Motion, parts: list[tuple[slice, dict[str, Any]]]) -> None:
        super().__init__(plain.given, plain.sol)
        self._parts = [Motion(plain.given, _SomeRows(plain.sol, rows), numbers) for rows, numbers in parts]  # type: ignore[arg-type]
        self._cuts = [rows for rows, _ in parts]

    def _each(self, name: str, *given: Any) -> Any:
        found = [getattr(part, name)(*given) for part in self._parts]
        return jax.tree.map(lambda *x: np.concatenate(x), *found)

    def coordinate(self, joint: Any, name: str = "") -> np.ndarray:
        if self._joint(joint).coordinate(name).turns:  # unwrapped over all rows; points do not matter
            return super().coordinate(joint, name)
        return np.asarray(self._each("coordinate", joint, name))

    def rate(self, joint: Any, name: str = "") -> np.ndarray:
        return np.asarray(self._each("rate", joint, name))

    def reaction(self, joint: Any, frame: int = 1, redundant: str = "zero") -> Reaction:
        found: Reaction = self._each("reaction", joint, frame, redundant)
        return found

    def friction(self, joint: Any) -> Reaction:
        found: Reaction = self._each("friction", joint)
        return found

    def load(self, force: Any, frame: int | None = None) -> Reaction:
        found: Reaction = self._each("load", force, frame)
        return found

    def effort(self, thing: Any) -> np.ndarray:
        return np.asarray(self._each("effort", thing))

    def power(self, thing: Any) -> np.ndarray:
        return np.asarray(self._each("power", thing))

    def momentum(self, about: Any = (0.0, 0.0, 0.0)) -> Momentum:
        if np.shape(about) != (len(self.t), 3):
            found: Momentum = self._each("momentum", about)
            return found
        both = zip(self._parts, self._cuts, strict=True)
        each = [part.momentum(np.asarray(about)[rows]) for part, rows in both]
        return Momentum(*map(np.concatenate, zip(*each, strict=True)))

    def energy(self) -> dict[str, np.ndarray]:
        found: dict[str, np.ndarray] = self._each("energy")
        return found
