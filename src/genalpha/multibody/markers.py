"""Frames on bodies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.multibody.frames import FrameState, locked

if TYPE_CHECKING:
    from genalpha.multibody.bodies import AnyBody


@dataclass(frozen=True, eq=False, repr=False)
class Marker:
    """A frame on a body: position ``r`` (3,) from its centre of mass, axes ``Q`` (3, 3) as columns."""

    body: AnyBody
    r: np.ndarray
    Q: np.ndarray

    def __post_init__(self) -> None:
        """Models may have made their equations with these numbers."""
        for name in ("r", "Q"):
            object.__setattr__(self, name, locked(getattr(self, name)))

    def __reduce__(self) -> Any:
        """What was written down by pickle cannot be written to either."""
        return Marker, (self.body, self.r, self.Q)

    @property
    def pose(self) -> tuple[np.ndarray, np.ndarray]:
        """Position (3,) and axes (3, 3) in space, with the body where the model puts it."""
        x, R = self.body.x, self.body.R
        return x + R @ self.r, R @ self.Q

    @property
    def state(self) -> FrameState:
        """The same, at rest."""
        return FrameState(*self.pose, np.zeros(3), np.zeros(3))

    def __repr__(self) -> str:
        return f"<frame on {self.body.name!r}>"
