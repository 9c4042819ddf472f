"""Multipliers of least norm for models from which redundant rows were left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sparse

from genalpha.multibody.closing.geometry import Geometry, whole
from genalpha.statics import positions

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


# The corrections of multipliers, and the part of the loads up to which they need not carry them.
_MOST, _SMALL, _WRONG = 60, 1e-13, 1e-8


def least(B: Any, force: np.ndarray) -> np.ndarray:
    """The λ of least norm with Bᵀλ = force, for a B whose rows and columns may depend on others."""
    found, free = np.zeros(B.shape[0]), np.ones(B.shape[0])
    lengths = np.sqrt(np.asarray(B.multiply(B).sum(axis=0)).reshape(-1))
    scale = 1 / np.where(lengths > 0, lengths, 1.0)  # of forces and moments, whatever the unit of length
    turned, wanted = sparse.diags(scale) @ B.T, scale * force
    size, before = np.abs(wanted).max(initial=0.0), np.inf
    for _ in range(_MOST):  # corrections remove the effect of damping
        left = wanted - turned @ found
        rest = np.abs(left).max(initial=0.0)
        if rest <= _SMALL * size or rest > 0.9 * before:
            break
        found, before = found + positions.least(turned, left, free), rest
    if not rest <= _WRONG * size:
        raise ValueError(
            "the loads of redundant joints cannot be shared, since sizes in the model are too different: use "
            "redundant='keep' and solve(..., redundant='min_norm')"
        )
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
