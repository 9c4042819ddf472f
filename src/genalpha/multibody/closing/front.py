"""``model.assemble``: the joints to close, velocities, and redundant rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sparse

from genalpha.backends.sparse.equations import AtState
from genalpha.errors import hint, warn
from genalpha.multibody.bodies import AnyBody
from genalpha.multibody.closing import left_out, placing
from genalpha.multibody.closing.geometry import Geometry, Row, size_of, units_of, whole
from genalpha.multibody.closing.loaded import loaded, warn_of_lost
from genalpha.multibody.closing.nearest import to_close
from genalpha.multibody.closing.placing import HeldCoordinate, without_drives
from genalpha.multibody.closing.ranks import independent, unit_rows
from genalpha.multibody.couplings import OfCoordinate
from genalpha.multibody.forces import JointForce
from genalpha.multibody.frames import GROUND, FrameState, finite, vector
from genalpha.multibody.joints import Joint
from genalpha.multibody.markers import Marker
from genalpha.multibody.rolling import lying
from genalpha.statics import positions

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

SMALL = 1e-5  # the size of a mechanism whose units are much too large
_FAR = 0.02  # how far a mechanism is moved to see whether a dependence is one of this position alone


class Closed(NamedTuple):
    """What closing the joints of a model has found.

    ``freedom`` is the number of degrees of freedom. ``redundant`` are names of rows that depend on others,
    and were left out if ``dropped``. ``gap`` is the largest error of a joint before it was closed.
    """

    freedom: int
    redundant: tuple[str, ...]
    dropped: bool
    gap: float

    def __str__(self) -> str:
        text = f"{self.freedom} degree{'' if self.freedom == 1 else 's'} of freedom"
        if self.redundant:
            what = "left out" if self.dropped else "redundant"
            text += f"; {what}: " + "; ".join(self.redundant)
        return text


def closed(
    model: Model, hold: Sequence[Any], redundant: str, rates: Mapping[Any, Any], t: float = 0.0
) -> Closed:
    """Close the joints of a model, and move its bodies."""
    if redundant not in ("error", "drop", "keep"):
        raise ValueError(f"redundant must be 'error', 'drop' or 'keep', got {redundant!r}")
    if flat := lying(model):
        raise ValueError(flat)
    if (size := size_of(model)) < SMALL:
        warn(
            f"the mechanism has a size of about {size:.1g}, and joints may be open by 1e-8 at the start: "
            "take smaller units of length"
        )
    every = whole(model)  # elsewhere, other rows may depend on others
    full = Geometry(every, t=t)
    (free, held), closing = _held(model, hold, rates, t), [(one, to_close(one)) for one in every.joints]
    more = {one.name: one for one in (*held, *(new for old, new in closing if new is not old))}
    closer = Geometry(every._like(every._things | more), t=t) if more else full
    gap = float(np.abs(closer.at(model.q0, model.v0).g).max(initial=0.0))
    q = placing.placed(closer, model.v0, free)
    v = _velocities(closer, q, model.v0, free)
    before = [Row(joint, joint.row_names[k], k) for joint in model.joints for k in sorted(joint.dropped)]
    before = before if redundant == "error" else []
    dependent, freedom = _dependent(Geometry(model, t=t) if before else full, q, v, model)
    if dependent and redundant == "error":
        raise ValueError(
            f"{len(dependent)} rows of joints depend on others: {'; '.join(map(str, dependent))}. Pass "
            "redundant='drop' to leave them out, or 'keep' and solve(..., redundant='min_norm') for "
            "reactions of least norm"
        )
    if before:
        _warn_of_independent(full, q, v, freedom)
    model.place(q, v)  # nothing is refused after this
    if redundant == "drop":
        warn_of_lost(dependent)
    if redundant != "error":
        _leave_out(model, dependent if redundant == "drop" else [])
    driven = any(isinstance(joint, OfCoordinate) or joint.own_functions for joint in model.joints)
    if freedom == 0 and not driven:
        warn("the joints leave the bodies no motion: 0 degrees of freedom", RuntimeWarning)
    return Closed(freedom, tuple(map(str, before or dependent)), redundant == "drop" or bool(before), gap)


def _warn_of_independent(full: Geometry, q: np.ndarray, v: np.ndarray, freedom: int) -> None:
    """Warn if rows that stay left out do not follow from the others."""
    more = freedom - (len(v) - len(independent(full.at(q, v).B @ sparse.diags(units_of(full.model)))))
    if more > 0:
        warn(
            f"{more} of the rows that were left out do not follow from the others, so the bodies have more "
            "freedom than the joints allow: call assemble(redundant='drop'), which chooses anew"
        )


def _leave_out(model: Model, rows: list[Row]) -> None:
    """Leave out these rows of joints, and no others."""
    before = [joint.dropped for joint in model.joints]
    for joint in model.joints:
        joint.leave_out(row.number for row in rows if row.joint.name == joint.name)
    if [joint.dropped for joint in model.joints] != before:
        model._forget()


def _held(
    model: Model, hold: Sequence[Any], rates: Mapping[Any, Any], t: float
) -> tuple[np.ndarray, list[HeldCoordinate]]:
    """Which velocities (n,) may change, one or zero, and the joint coordinates that are held."""
    listed = [hold] if isinstance(hold, str | AnyBody | Joint) else hold
    if not isinstance(listed, Iterable):
        raise TypeError(f"hold must be a list of names of bodies and joints, got {hold!r}")
    if not isinstance(rates, Mapping):
        raise TypeError(f"rates must be a dictionary of joints and numbers, got {rates!r}")
    names = [_name(one, "hold") for one in listed]
    rates = {_name(one, "rates"): rate for one, rate in rates.items()}
    bodies = {body.name for body in model.bodies}
    held: dict[tuple[str, str], HeldCoordinate] = {}
    for named in [*(name for name in names if name not in bodies), *rates]:
        name, *one = named if isinstance(named, tuple) else (named,)
        joint = model._things.get(name)
        if not isinstance(joint, Joint):
            what = "rates" if named in rates else "hold"
            kinds = "joint" if named in rates else "body and no joint"
            known = [one.name for one in model.joints] + ([] if named in rates else [*bodies])
            raise ValueError(
                f"{what} names {name!r}, which is no {kinds} of the model: {hint(name, known, 'it has')}"
            )
        ways = [joint.coordinate(*one)] if one or not joint.coordinates else list(joint.coordinates)
        given = [None] * len(ways)
        if named in rates:
            given = [rates[named]] if np.ndim(rates[named]) == 0 else list(rates[named])
            if np.ndim(rates[named]) and len(given) != len(ways):
                raise ValueError(f"{name!r} has {len(ways)} coordinates, but {len(given)} rates are given")
        a, b = (_moving(marker) for marker in joint.markers[:2])
        for way, rate in zip(ways, given, strict=False):  # one number is the rate of the first
            now, speed = (float(x) for x in JointForce.moved(way, a, b))
            rate = speed if rate is None else finite(rate, f"the rate of {name!r}")
            held[name, way.name] = HeldCoordinate(joint, way, now, rate, t)
    parts = [np.full(body.kind.sizes[1], float(body.name not in names)) for body in model.bodies]
    return np.concatenate(parts), [*held.values()]


def _name(one: Any, what: str) -> Any:
    """The name of a body or a joint, or the pair of those of a joint and a coordinate."""
    if isinstance(one, tuple) and len(one) == 2 and isinstance(one[1], str):
        return _name(one[0], what), one[1]
    name = one.name if isinstance(one, AnyBody | Joint) else one
    if not isinstance(name, str):
        kinds = "bodies, joints" if what == "hold" else "joints"
        raise TypeError(
            f"{what} must name {kinds}, or pairs such as ('axle', 'angle') of a joint and a coordinate, "
            f"got {one!r}"
        )
    return name


def _moving(marker: Marker) -> FrameState:
    """A frame with the velocities of its body in the model."""
    body, (x, R) = marker.body, marker.pose
    if body.kind == GROUND:
        return marker.state
    v = vector(getattr(body, "velocity", np.zeros(3)), "velocity")
    w = np.asarray(getattr(body, "angular_velocity", np.zeros(3)), float)
    w = np.array([0.0, 0.0, float(w)]) if w.ndim == 0 else w
    return FrameState(x, R, v + np.cross(w, x - body.x), w)


def _velocities(geometry: Geometry, q: np.ndarray, v: np.ndarray, free: np.ndarray) -> np.ndarray:
    units = units_of(geometry.model)
    for _ in range(5):
        at = geometry.at(q, v)
        value = np.concatenate([at.g_dot, at.k])
        if np.abs(value).max(initial=0.0) <= 1e-13 * (1 + np.abs(v).max(initial=0.0)):
            return v
        v = v + positions.least(at.B, -value, free * units)
    at = geometry.at(q, v)
    left = np.abs(np.concatenate([at.g_dot, at.k]))
    if not left.max(initial=0.0) <= 1e-9 * (1 + np.abs(v).max(initial=0.0)):
        held = [joint for joint in geometry.model.joints if isinstance(joint, HeldCoordinate)]
        names = ", ".join(dict.fromkeys(repr(one.joint.name) for one in held)) or "none"
        raise ValueError(
            f"no velocities satisfy all joints. Those of {_worst(geometry.rows(), left)} contradict others: "
            f"give fewer rates, hold fewer bodies and joints (now: {names}), or check prescribed motions"
        )
    return v


def _worst(rows: list[Row], left: np.ndarray) -> str:
    """The names of the rows with the largest entries of ``left``."""
    largest = left.max(initial=0.0)
    order = [i for i in np.argsort(-left, kind="stable")[:4] if left[i] > 1e-6 * largest]
    return ", ".join(f"{rows[i]} ({left[i]:.3g})" for i in order)


def _check_accelerations(at: AtState, rows: list[Row], units: np.ndarray) -> None:
    """Refuse rows that depend on others, but want another motion, such as two motions of one joint."""
    wanted = -np.concatenate([at.g_ddot, at.k_dot])
    left = np.abs(wanted - at.B @ positions.least(at.B, wanted, units))
    if not left.max() <= 1e-6 * (1 + np.abs(wanted).max()):
        raise ValueError(
            f"no accelerations satisfy all joints. Those of {_worst(rows, left)} contradict others: check "
            "prescribed motions"
        )


def _dependent(geometry: Geometry, q: np.ndarray, v: np.ndarray, before: Model) -> tuple[list[Row], int]:
    """Rows that depend on others here and nearby, and the degrees of freedom.

    Those that were left out ``before`` are taken again if they are a good choice here.
    """
    n, rows = len(v), geometry.rows()
    units = units_of(geometry.model)
    at, matrix = geometry.at(q, v), lambda q: geometry.at(q, v).B @ sparse.diags(units)
    kept = independent(matrix(q))
    if len(kept) == len(rows):
        return [], n - len(kept)
    left = [i for i, row in enumerate(rows) if row.number in before[row.joint.name].dropped]
    if left and len(rows) <= left_out.MOST_ROWS and left_out.good(left, unit_rows(matrix(q)).toarray()):
        _check_accelerations(at, rows, units)
        return [rows[i] for i in left], n - len(kept)
    first = loaded(rows)  # these are kept if possible
    order = np.array([*first, *sorted(set(range(len(rows))) - set(first))])
    of = lambda q: np.sort(order[independent(matrix(q)[order])])
    kept = here = of(q) if first else kept
    if n > len(kept):  # somewhere else there may be more
        away = _along_constraints(geometry, units, q, np.random.default_rng(0).normal(size=n), _FAR)
        elsewhere = kept if away is None else of(away[0])
        kept = elsewhere if len(elsewhere) > len(kept) else kept
    if kept is here:  # at a singular position there may be no accelerations
        _check_accelerations(at, rows, units)
    left = sorted(set(range(len(rows))) - set(kept.tolist()))
    if len(rows) <= left_out.MOST_ROWS:
        free = Geometry(without_drives(geometry.model), t=geometry.t)
        moved = lambda q, d: _along_constraints(free, units, q, d, left_out.STEP)
        matrices = left_out.along(q, moved, lambda q: unit_rows(matrix(q)).toarray())
        left = left_out.chosen(left, matrices, first)
    return [rows[i] for i in left], n - len(kept)


def _along_constraints(
    geometry: Geometry, units: np.ndarray, q: np.ndarray, d: np.ndarray, far: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """The position at some distance along the constraints, as near to the direction d (n,) as possible.

    Also the direction that was taken. Both are in ``units`` (n,). None if there is no such position.
    """
    v = np.zeros(len(d))
    B, d = geometry.at(q, v).B, units * d
    for _ in range(2):
        d = d + positions.least(B, -(B @ d), units)
    size = np.abs(d / units).max()
    if not size > 1e-9:
        return None
    try:
        there = placing.closed(geometry, geometry.retract(q, far * d / size), v, np.ones(len(d)))
    except ValueError:
        return None
    return there, d / units / size
