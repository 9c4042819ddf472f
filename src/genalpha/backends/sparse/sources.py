"""Where the numbers in frames come from: their places in vectors of all kinds."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from genalpha.backends.sparse.kinds import Kind
from genalpha.backends.sparse.models import KindModel
from genalpha.mechanics.system import Dims

# A kind, some of its slots, and the places (K, S) of their values for all copies.
Sources = tuple[Kind, np.ndarray, np.ndarray]


def of_constants(kinds: list[Any], models: list[KindModel], dims: Dims) -> list[Sources]:
    """The scale and the numbers of all copies, in the vector of both."""
    found, (n, m, p) = list[Sources](), dims[1:]
    done = n + m + p
    for kind, model in zip(kinds, models, strict=True):
        at, count = model.places, model.copies
        for slots, places in zip(kind.scale, (at.v, n + at.g, n + m + at.k), strict=True):
            found.append((kind, slots, places))
        for slots, leaf in zip(kind.data, jax.tree.leaves(model.data), strict=True):
            size = np.size(leaf)
            places = (done + np.arange(size)).reshape((count, size // count) if np.ndim(leaf) else (1, 1))
            found.append((kind, slots, np.broadcast_to(places, (count, slots.size))))
            done += size
    return found


def of_own(kinds: list[Any]) -> list[Sources]:
    """The method's own variables, in the vector of those of all kinds."""
    found, done = list[Sources](), 0
    for kind in kinds:
        for slots in jax.tree.leaves(kind.own):
            shape = (kind.model.copies, slots.size)
            found.append((kind, slots, done + np.arange(shape[0] * shape[1]).reshape(shape)))
            done += shape[0] * shape[1]
    return found


def of_tolerances(kinds: list[Any], dims: Dims) -> list[Sources]:
    """The tolerances of nodes, in four vectors of the whole, one after the other."""
    nodes = [kind for kind in kinds if kind.model.element is None]
    each = [(kind, i, slots) for kind in nodes for i, slots in enumerate(kind.tolerances)]
    return [(kind, slots, i * dims.n + kind.model.places.v) for kind, i, slots in each]
