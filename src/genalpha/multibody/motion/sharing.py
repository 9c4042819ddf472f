"""Multipliers of least norm for models from which redundant rows were left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.multibody.closing.geometry import Geometry, whole
from genalpha.statics import positions

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


def least(B: Any, force: np.ndarray) -> np.ndarray:
    """The λ of least norm with Bᵀλ = force, for a B whose rows and columns may depend on others."""
    found, free = np.zeros(B.shape[0]), np.ones(B.shape[0])
    for _ in range(3):  # corrections remove the effect of damping
        found = found + positions.least(B.T, force - B.T @ found, free)
    return found


def shared(
    model: Model, t: np.ndarray, q: np.ndarray, v: np.ndarray, known: Callable[[str], np.ndarray]
) -> tuple[Model, np.ndarray, np.ndarray]:
    """The model with all rows, and its λ (K, m) and ψ (K, p): those of least norm with the same forces.

    ``known`` gives "lam" and "psi" of the rows that were not left out.
    """
    for joint in model.joints:
        if "friction" in joint.bound():
            raise ValueError(
                f"{joint!r} has friction, which depends on how loads are shared: they cannot be shared after "
                "the run"
            )
    full = whole(model)
    kept, every = Geometry(model), Geometry(full)
    given = [known(name) for name, count in (("lam", kept.m), ("psi", kept.p)) if count]
    found = []
    for now, at, speed, multipliers in zip(t, q, v, np.concatenate(given, axis=1), strict=True):
        force = kept.at(at, speed, float(now)).B.T @ multipliers
        found.append(least(every.at(at, speed, float(now)).B, force))
    both = np.array(found).reshape(len(t), every.m + every.p)
    return full, both[:, : every.m], both[:, every.m :]
