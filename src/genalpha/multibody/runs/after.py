"""What is looked at after a run: drives and couplings that jumped, and rows that were left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from genalpha.errors import warn
from genalpha.multibody.closing.geometry import Geometry, whole
from genalpha.multibody.closing.sides import COUPLINGS, about, concerned, distinct, half_turns, remembered
from genalpha.multibody.couplings import OfCoordinate
from genalpha.multibody.values import in_args, with_numbers
from genalpha.numerics.tracing import is_traced
from genalpha.results.solution import Solution

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

# A step may move a body this many times further than the velocities around it say: they may change quickly.
_MARGIN = 3.0
_SMALL = 1e-6  # what counts as no motion, for positions of size one
_SLIPPED = 1e-4  # a motion without velocity after which a coupling may be half a turn off
_OPEN = 1e-4  # by which a row that was left out may be off, for positions of size one
# Couplings of members of a batch that are looked at. The rows that a member leaves out count as so many.
_MOST, _ROWS = 1000, 50


class _Row(NamedTuple):
    """One row of a run, with the numbers that are not those of the model."""

    t: float
    q: np.ndarray
    v: np.ndarray
    numbers: dict[str, Any]


def warn_if_untrue(model: Model, sol: Solution, values: Mapping[str, Any] | None) -> None:
    """Warn of a run whose rows cannot be true, or of such members of a batch.

    Numbers are those in the args of the run. Joints of which all rows were left out are not in args: theirs
    are in ``values``.
    """
    coupled = [joint for joint in model.joints if isinstance(joint, COUPLINGS) and not joint.dropped]
    dropped = [joint for joint in model.joints if joint.dropped]
    if not (coupled or dropped) or sol.q is None or sol.v is None or is_traced(sol.q, sol.t, sol.args):
        return
    out = {joint.name for joint in dropped if not joint.acts}
    apart = {name: x for name, x in (values or {}).items() if name.rpartition(".")[0] in out}
    if is_traced(apart) or not np.size(sol.t):
        return
    look = _look_at_members if np.ndim(sol.status) else _look_at_run
    for text in look(model, sol, coupled, dropped, apart):
        warn(text)


def _look_at_run(
    model: Model, sol: Solution, coupled: list[Any], dropped: list[Any], apart: dict[str, Any]
) -> Iterator[str]:
    phases = sol.phases
    args = (phases[0].args, phases[-1].args) if phases else (sol.args, sol.args)
    first = apart | in_args(model, args[0])
    last = first if args[1] is args[0] else apart | in_args(model, args[1])
    q, v = np.asarray(sol.q), np.asarray(sol.v)
    rows = [_Row(float(sol.t[k]), q[k], v[k], numbers) for k, numbers in ((0, first), (-1, last))]
    if coupled and len(sol.t) > 1:
        jump, slipped = _jump(model, sol, coupled) if sol.complete else ("", True)
        watched = coupled if slipped else [joint for joint in coupled if joint.own_functions]
        if text := _turned(model, rows[-1], watched) or jump:
            yield text
    if _may_contradict(model, dropped, {**first, **last}):
        yield from list(filter(None, (_contradiction(model, row) for row in rows)))[:1]


def _look_at_members(
    model: Model, sol: Solution, coupled: list[Any], dropped: list[Any], apart: dict[str, Any]
) -> Iterator[str]:
    """One text about all members, by their last rows. Of a large batch, some members are looked at."""
    numbers = {name: np.asarray(x, float) for name, x in apart.items()} | in_args(model, sol.args)
    t, q, v = (np.asarray(x) for x in (sol.t, sol.q, sol.v))
    reached = np.isfinite(t) & np.isfinite(q).all(axis=2)
    ends = np.where(reached.any(axis=1), t.shape[1] - 1 - np.argmax(reached[:, ::-1], axis=1), -1)
    names = set().union(*map(about, model.joints))
    own = {name: x for name, x in numbers.items() if name.rpartition(".")[0] in names}
    rows = _may_contradict(model, dropped, own)
    members = distinct(model, q[np.arange(len(q)), ends], own)
    most = max(1, _MOST // (len(coupled) + _ROWS * rows)) if coupled or rows else 0
    found, text = list[int](), ""
    for k in np.unique(np.linspace(0, len(members) - 1, min(most, len(members))).astype(int)):
        alike, at, given = members[k]
        i = alike[0] if alike else 0
        if at is None or not np.isfinite(at).all():
            continue
        row = _Row(float(t[i, ends[i]]), at, v[i, ends[i]], given)
        said = _turned(model, row, coupled) or (_contradiction(model, row) if rows else "")
        found, text = found + alike * bool(said), text or said
    if text:
        listed = ", ".join(map(str, found[:6])) + (" and others" if len(found) > 6 else "")
        yield f"in member {listed} of the batch: {text}"


def _turned(model: Model, row: _Row, joints: list[Any]) -> str:
    wrong = half_turns(model, row.t, row.q, row.numbers, joints, remembered(model, "motions"))
    if not wrong:
        return ""
    return (
        f"{wrong[0]!r} is half a turn from where it should be at t = {row.t:g}: a prescribed motion "
        "that jumps, or steps that are too long, have led it there"
    )


def _jump(model: Model, sol: Solution, coupled: list[Any]) -> tuple[str, bool]:
    """A text about a body that moves further than its velocities say; whether couplings may have slipped.

    Wheels with many teeth slip by far less than a jump.
    """
    h, at = np.diff(sol.t), model.slices()
    bodies = dict.fromkeys(marker.body for joint in coupled for marker in joint.markers)
    found, slipped = list[tuple[int, str]](), False
    for kind in dict.fromkeys(type(body) for body in bodies if body is not model.ground):
        names = [body.name for body in bodies if type(body) is kind]
        where = [at[name] for name in names]
        q, v = (
            np.asarray(x, float)[:, np.array([own[k].start for own in where])[:, None] + np.arange(width)]
            for k, (x, width) in enumerate(zip((sol.q, sol.v), kind.kind.sizes, strict=True))
        )
        size = np.abs(q).max(axis=(0, 2))
        for moved, speed in _moves(q, v):
            fast = np.linalg.norm(speed, axis=2)
            most = np.maximum(fast[1:], fast[:-1])
            around = most.copy()  # the largest velocity in a step, the one before and the one after
            around[1:] = np.maximum(around[1:], most[:-1])
            around[:-1] = np.maximum(around[:-1], most[1:])
            explained = h[:, None, None] * (speed[1:] + speed[:-1]) / 2
            unexplained = np.linalg.norm(moved - explained, axis=2) * (h > 0)[:, None]
            slipped |= bool((unexplained > _SLIPPED * np.minimum(1.0, size)).any())
            far = unexplained > _MARGIN * h[:, None] * around + _SMALL * (1 + size)
            if far.any():
                found += [(int(row), names[i]) for row, i in np.argwhere(far)[:1]]
    if not found:
        return "", slipped
    row, name = min(found)
    return (
        f"the body {name!r} moves further between t = {sol.t[row]:g} and {sol.t[row + 1]:g} than its "
        "velocities say. Do not trust the rows after that. Prescribed motions that jump and steps that "
        "are too long do this. Look at " + ", ".join(repr(joint.name) for joint in coupled[:6])
    ), True


def _moves(q: np.ndarray, v: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """How far bodies (K, n, ...) move from row to row, and their velocities: of centres, then of axes."""
    places = 3  # an angle of a body in the plane is one of them
    yield np.diff(q[..., :places], axis=0), v[..., :places]
    if q.shape[2] == places:
        return
    w, r = q[..., places], q[..., places + 1 :]  # of unit quaternions
    turned = w[:-1, :, None] * r[1:] - w[1:, :, None] * r[:-1] - np.cross(r[:-1], r[1:])
    sign = np.sign(w[:-1] * w[1:] + np.sum(r[:-1] * r[1:], axis=2))[..., None]
    yield 2 * sign * turned, v[..., places:]


def _may_contradict(model: Model, dropped: list[Any], numbers: dict[str, Any]) -> bool:
    """Whether rows that depended on others may contradict them: later, or with other numbers of joints."""
    driven = any(isinstance(joint, OfCoordinate) for joint in dropped)
    return driven or bool(dropped and concerned(model.joints, numbers))


def _contradiction(model: Model, row: _Row) -> str:
    """A text about a row that was left out and is not satisfied."""
    every = whole(model)
    geometry = Geometry(every, with_numbers(every, row.numbers, every.system.args) if row.numbers else ())
    out = [(k, one) for k, one in enumerate(geometry.rows()) if one.number in model[one.joint.name].dropped]
    at = geometry.at(row.q, row.v[: len(model.v0)], row.t)
    off = np.abs(np.concatenate([at.g, at.k])[[k for k, _ in out]])
    if off.max() <= _OPEN * (1 + np.abs(row.q).max()):
        return ""
    worst = out[int(np.argmax(off))][1]
    return (
        f"the row {worst} was left out as redundant, and is off by {off.max():.3g} at t = {row.t:g}: "
        "it contradicts other rows. Check prescribed motions and values"
    )
