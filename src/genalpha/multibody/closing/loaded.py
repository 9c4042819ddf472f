"""Rows of joints whose forces cause friction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from genalpha.errors import warn
from genalpha.multibody.closing.geometry import Row
from genalpha.multibody.reactions import ideal, rubbed

_FAST = 1e3  # a slip, as a multiple of that at which friction has its full size
_LEAST = 1e-6  # the least friction of a row that counts, as a part of the largest


def loaded(rows: Sequence[Row]) -> list[int]:
    """The numbers of the rows whose forces cause friction, where the bodies are."""
    of = {joint.name: _of(joint) for joint in {row.joint.name: row.joint for row in rows}.values()}
    return [i for i, row in enumerate(rows) if row.number in of[row.joint.name]]


def _of(joint: Any) -> set[int]:
    """The rows of a joint with friction for which a unit force causes some."""
    functions, kept = joint.bound(), joint.kept(False)
    if "friction" not in functions or not kept:
        return set()
    a, b = (marker.state for marker in joint.markers[:2])
    slip = a.R @ np.full(3, _FAST * float(joint.numbers["friction_speed"]))
    b = b._replace(v=slip, w=slip)

    def size(forces: np.ndarray) -> float:
        load = ideal(functions, 1, 0.0, forces, np.zeros(0), (a, b))
        return float(sum(np.abs(np.asarray(x)).sum() for x in rubbed(functions, load, a, b)))

    found = np.array([size(row) for row in np.eye(len(kept))]) - size(np.zeros(len(kept)))
    return {number for (number, _), x in zip(kept, found, strict=True) if x > _LEAST * max(found)}


def warn_of_lost(rows: Sequence[Row]) -> None:
    """Warn of rows that are left out although their forces would cause friction."""
    lost = [str(rows[i]) for i in loaded(rows)]
    if lost:
        warn(
            f"rows of joints with friction were left out, so their friction is too small: {'; '.join(lost)}. "
            "Use joints with fewer rows, such as a PointOnLine for the second hinge of a door, or one joint "
            "whose friction has a length"
        )
