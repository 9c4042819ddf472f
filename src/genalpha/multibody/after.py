"""What is looked at after a run: drives and couplings that jumped, and rows that were left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.errors import warn
from genalpha.multibody.closing import Geometry
from genalpha.multibody.couplings import Gear, Mimic, OfCoordinate, Rack, Screw
from genalpha.multibody.sharing import whole
from genalpha.multibody.sides import half_turns
from genalpha.numerics.tracing import is_traced
from genalpha.results.solution import Solution

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

_COUPLINGS = (OfCoordinate, Mimic, Gear, Rack, Screw)
_MARGIN, _SMALL = 3.0, 1e-6
_OPEN = 1e-4  # by which a row that was left out may be off, for positions of size one


def look(model: Model, sol: Solution, values: Any) -> None:
    """Warn of a run whose rows cannot be true."""
    coupled = [joint for joint in model.joints if isinstance(joint, _COUPLINGS) and not joint.dropped]
    dropped = [joint for joint in model.joints if joint.dropped]
    if not (coupled or dropped) or is_traced(sol.q, sol.t) or sol.q is None or sol.v is None:
        return
    if coupled and len(sol.t) > 1:
        _look_for_jumps(model, sol, coupled, values)
    if dropped and (values or any(isinstance(joint, OfCoordinate) for joint in dropped)):
        _look_at_rows(model, sol, values)


def _look_for_jumps(model: Model, sol: Solution, coupled: list[Any], values: Any) -> None:
    wrong = half_turns(model, float(sol.t[-1]), np.asarray(sol.q[-1]), values, coupled)
    if wrong:
        warn(
            f"{wrong[0]!r} is half a turn from where it should be at t = {sol.t[-1]:g}: a prescribed motion "
            "that jumps, or steps that are too long, have led it there"
        )
        return
    for row, name in _jumps(model, sol, coupled):
        warn(
            f"the body {name!r} moves further between t = {sol.t[row]:g} and {sol.t[row + 1]:g} than its "
            "velocities say. Do not trust the rows after that. Prescribed motions that jump and steps that "
            "are too long do this. Look at " + ", ".join(repr(joint.name) for joint in coupled[:6])
        )
        return


def _jumps(model: Model, sol: Solution, coupled: list[Any]) -> Iterator[tuple[int, str]]:
    """Rows after which a body moves further than its velocities say, and its name."""
    if not sol.complete:
        return
    h, at = np.diff(sol.t), model.slices()
    for body in dict.fromkeys(marker.body for joint in coupled for marker in joint.markers):
        if body is model.ground:
            continue
        q, v = (np.asarray(x[:, here], float) for x, here in zip((sol.q, sol.v), at[body.name], strict=True))
        places = q.shape[1] if body.kind.name == "planar" else 3
        for moved, speed in _moves(q, v, places):
            size = np.linalg.norm(speed, axis=1)
            most = np.maximum(size[1:], size[:-1])
            wide = np.maximum(np.append(most[1:], 0.0), np.append(0.0, most[:-1]))
            likely = np.linalg.norm(moved - (h * (speed[1:] + speed[:-1]).T / 2).T, axis=1)
            far = likely > _MARGIN * h * np.maximum(most, wide) + _SMALL * (1 + np.abs(q).max())
            for row in np.flatnonzero(far & (h > 0))[:1]:
                yield int(row), body.name


def _moves(q: np.ndarray, v: np.ndarray, places: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """How far a body moves from row to row, and its velocities: of its centre, then of its axes."""
    yield np.diff(q[:, :places], axis=0), v[:, :places]
    if q.shape[1] == places:
        return
    w, r = q[:, places], q[:, places + 1 :]  # of unit quaternions
    turned = w[:-1, None] * r[1:] - w[1:, None] * r[:-1] - np.cross(r[:-1], r[1:])
    sign = np.sign(w[:-1] * w[1:] + np.sum(r[:-1] * r[1:], axis=1))[:, None]
    yield 2 * sign * turned, v[:, places:]


def _look_at_rows(model: Model, sol: Solution, values: Any) -> None:
    """Rows that depended on others may contradict them with other numbers, or later."""
    kept = model.system.__dict__
    every: Model = kept["_whole"] if "_whole" in kept else kept.setdefault("_whole", whole(model))
    geometry, dropped = Geometry(every, every.args(values) if values else ()), {}
    for k, row in enumerate(geometry.rows()):
        if row.number in model[row.joint.name].dropped:
            dropped[k] = row
    for k in (0, -1):
        at = geometry.at(np.asarray(sol.q[k]), np.asarray(sol.v[k])[: len(model.v0)], float(sol.t[k]))
        off = np.abs(np.concatenate([at.g, at.k])[[*dropped]])
        if not off.max() <= _OPEN * (1 + np.abs(sol.q[k]).max()):
            worst = [*dropped.values()][int(np.argmax(off))]
            warn(
                f"the row {worst} was left out as redundant, and is off by {off.max():.3g} at t = "
                f"{sol.t[k]:g}: it contradicts other rows. Check prescribed motions and values"
            )
            return
