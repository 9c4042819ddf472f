"""Multipliers of least norm for models from which redundant rows were left out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_matrix, diags_array, eye_array
from scipy.sparse.linalg import splu

from genalpha.multibody.closing import Geometry
from genalpha.multibody.connectors import Connector

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


DENSE = 200  # rows up to which dense matrices are faster
_EPS, _CLOSE, _TRIES = 1e-11, 1e-12, 6


def least(B: csr_matrix, force: np.ndarray) -> np.ndarray:
    """The λ of least norm with Bᵀλ = force, for a B whose rows and columns may depend on others.

    It is B μ with BᵀB μ = force. A small multiple of the identity makes this matrix regular, and corrections
    with the same factors remove its effect. Columns are scaled, which changes μ alone.
    """
    if B.shape[0] > DENSE:
        size = np.sqrt(np.asarray(B.multiply(B).sum(axis=0))).reshape(-1)
        scaled = (B @ diags_array(1 / np.where(size > 0, size, 1.0))).tocsc()
        wanted = force / np.where(size > 0, size, 1.0)
        normal = (scaled.T @ scaled + _EPS * eye_array(len(force))).tocsc()
        factors = splu(normal, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
        lam, left, largest = np.zeros(B.shape[0]), wanted, np.abs(wanted).max()
        for _ in range(_TRIES):
            lam = lam + scaled @ factors.solve(left)
            left = wanted - scaled.T @ lam
            if np.abs(left).max() <= _CLOSE * largest:
                return lam
    return np.asarray(np.linalg.lstsq(B.toarray().T, force, rcond=1e-10)[0])


def whole(model: Model) -> Model:
    """The same model with all rows of its joints."""
    return model._like({name: _whole(thing) for name, thing in model._things.items()})


def _whole(thing: object) -> object:
    if not isinstance(thing, Connector) or not thing.dropped:
        return thing
    found = copy.copy(thing)
    found.dropped = frozenset()
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
