"""The estimated global errors of an extrapolated run, and its motion between rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from genalpha.backends import sampling
from genalpha.engine.files import storable
from genalpha.engine.interpolate import Smooth, StepEnd
from genalpha.numerics.data import State


@storable
class GlobalErrors(NamedTuple):
    """Estimated errors of an extrapolated solution at every row.

    ``q``, ``v`` and ``a`` are (K, n), ``lam`` (K, m), ``psi`` (K, p), absolute values; the errors of q are in
    the tangent space. ``norm`` (K,) is the root mean square of the errors of q and v, relative to the size of
    the motion and in units of the accuracy. A solution is accepted if it is at most 1.
    """

    q: Any
    v: Any
    a: Any
    lam: Any
    psi: Any
    norm: Any


def motion(space: Any, nodes: StepEnd, a: Any, t: np.ndarray) -> State:
    """The motion at times t (K,) by quintics through rows with accelerations a; its multipliers are zero."""
    q, v = sampling.smooth(space, Smooth(nodes.t, nodes.q, nodes.v, a), t)
    none = [np.zeros((len(t), x.shape[1])) for x in (nodes.lam, nodes.psi)]
    return State(t, q, v, np.zeros_like(v), *none)  # type: ignore[arg-type]
