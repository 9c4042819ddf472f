"""The estimated global errors of an extrapolated run, its digits in words, and its motion between rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from genalpha.backends import sampling
from genalpha.engine.files import storable
from genalpha.engine.interpolate import Smooth, StepEnd
from genalpha.numerics.data import State

if TYPE_CHECKING:
    from genalpha.results.solution import Solution

_NAMES = {"q": "q", "v": "v", "a": "v'", "lam": "λ", "psi": "ψ"}


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


def summary(sol: Solution) -> str:
    """What a run has computed, in a few lines: its end, its work, and its digits."""
    work = f"rows {len(sol.t)}, steps {sol.stats.steps}, t = {sol.t_end:.9g}"
    lines = [f"{sol.method}, {sol.backend}: {sol.message}", work]
    if sol.error is None:
        return "\n".join([*lines, "no estimate of the global error: pass accuracy to ga.solve"])
    for name, symbol in _NAMES.items():
        value, error = getattr(sol, name), getattr(sol.error, name)
        if value is None or not np.size(error):
            continue
        largest, size = float(np.max(error)), float(np.max(np.abs(value)))
        line = f"{symbol}: error {largest:.1e}"
        if size > 0:
            digits = max(0, math.floor(-math.log10(max(largest / size, 1e-16))))
            line += f", largest value {size:.4g}, {digits} digits"
        lines.append(line)
    return "\n".join(lines)
