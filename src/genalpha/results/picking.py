"""Members of a batch, each without the rows that others have more."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from genalpha.results.deferred import Deferred

if TYPE_CHECKING:
    from genalpha.results.solution import Solution

_EVENTS = ("t_events", "q_events", "v_events", "lam_events", "psi_events")
# Fields with a row for each kept time.
_ROWS = (
    *("t", "q", "v", "a", "a_alpha", "t_alpha", "lam", "psi", "lam_method", "psi_method", "residuals"),
    *("reactions", "newton", "extra", "errors", "error"),
)


def picked(batch: Solution, index: Any, meta: tuple[str, ...]) -> Solution:
    """Member ``index`` of a batch, or several. Fields of ``meta`` are the same for all members."""
    of_member = lambda leaf: leaf[index]
    rows = _rows(batch.t[index], batch.t_end[index])
    of_rows = of_member if rows is None else lambda leaf: leaf[index][rows]

    def pick(name: str, tree: Any) -> Any:
        return jax.tree.map(of_rows if name in _ROWS else of_member, tree)

    later = lambda name: Deferred(lambda: pick(name, getattr(batch, name)))
    parts: dict[str, Any] = {}
    for name in (spec.name for spec in fields(batch)):
        waiting = name not in batch.__dict__
        part = later(name) if waiting else batch.__dict__[name]
        parts[name] = part if waiting or name in meta else pick(name, part)
    if batch.t_events is not None and not np.ndim(parts["status"]):
        counts = [np.isfinite(times).sum() for times in parts["t_events"]]
        for name in _EVENTS:
            parts[name] = [x[:count] for x, count in zip(parts[name], counts, strict=True)]
    args, axes = batch.__dict__.get("_members", (None, None))
    own = jax.tree.map(lambda x, varies: x[index] if varies else x, args, axes)
    found = type(batch)(**parts)
    found.__dict__["_members"] = own, axes
    return found


def _rows(t: Any, t_end: Any) -> slice | None:
    """The rows of a member: those up to its end. None stands for all, as for several members."""
    if not isinstance(t, np.ndarray) or t.ndim != 1:
        return None
    good = t <= t_end + 1e-12 * abs(t_end)  # rows after the end may have no time
    return None if good.all() else slice(int(np.argmin(good)))
