"""Positions of bodies that close all joints, from where the bodies are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.backends.sparse.equations import AtState
from genalpha.multibody.closing.geometry import Geometry, size_of, turning
from genalpha.multibody.closing.posing import POSED, travel
from genalpha.multibody.closing.sides import half_turns
from genalpha.multibody.couplings import Mimic, OfCoordinate, Screw
from genalpha.multibody.frames import FrameState
from genalpha.multibody.joints import Coordinate, Joint
from genalpha.multibody.markers import Marker
from genalpha.multibody.values import with_numbers
from genalpha.statics import positions

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

# Drives are moved to their values in steps of at most so many radians, or sizes of the mechanism.
_STEP = 0.3
_MOST_STEPS = 200
_LEAST = 0.02  # parts of a step
_MET = 1e-6  # up to which a drive is where it wants to be, maybe after whole turns


class HeldCoordinate(OfCoordinate):
    """A joint coordinate that keeps its value, or its rate: for :meth:`Model.assemble` alone."""

    rows = ("held",)

    def __init__(self, joint: Joint, by: Coordinate, value: Any, rate: Any, t: float) -> None:
        numbers = {"value": value, "speed": rate, "start": t}
        super().__init__(f"{by.name} of {joint.name} is held", joint, by, numbers, {})

    @staticmethod
    def holonomic(t: Any, a: FrameState, b: FrameState, value: Any, speed: Any, start: Any, gap: Any) -> Any:
        return gap(a, b, value + speed * (t - start))[None]

    def wanted(self, t: float) -> float:
        return float(self.numbers["value"])


def placed(geometry: Geometry, v: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Positions (size,) at which no joint is open or half a turn off.

    Only velocities (n,) in ``free`` may change. Raises a ValueError that names the joints.
    """
    model, t = geometry.model, geometry.t
    refused: ValueError | None = None
    for way in _ways(model, t):
        try:
            q = way(geometry, v, free)
        except _Stuck as error:
            raise ValueError(str(error)) from error.__cause__
        except ValueError as error:
            refused = refused or error
            continue
        wrong = half_turns(model, t, q)
        if not wrong:
            return q
        names = ", ".join(repr(joint.name) for joint in wrong[:6])
        refused = refused or ValueError(
            f"joints would close half a turn off: {names}. Put their bodies nearer to where they belong, "
            "turned by less than a quarter of a turn, or hold fewer bodies"
        )
    assert refused is not None
    raise refused


def _ways(model: Model, t: float) -> Iterator[Any]:
    """The ways to close joints, the best first."""
    ends = lambda drive: [marker.state for marker in drive.markers[:2]]
    if any(_steps(model, drive, _way(drive, t, ends(drive))) > 1 for drive in _drives(model)):
        yield _by_steps
    yield lambda geometry, v, free: closed(geometry, geometry.model.q0, v, free)
    yield _from_ground


def closed(geometry: Geometry, q: np.ndarray, v: np.ndarray, free: np.ndarray) -> np.ndarray:
    """The positions that a damped Gauss-Newton iteration finds from q."""
    turns, size = turning(geometry.model), size_of(geometry.model)
    from_there = lambda q: positions.closed(
        lambda q: geometry.at(q, v), geometry.retract, q, free, turns=turns, size=size
    )
    found = from_there(q)
    if found.open and free.any():  # all bodies may be in line, where the joints do not say which way to go
        shake = 0.01 * np.random.default_rng(0).normal(size=len(v)) * np.where(turns, 1.0, size)
        again = from_there(geometry.retract(q, free * shake))
        found = found if again.open else again
    if found.open:
        raise _open(geometry, found.at)
    return found.q


def _open(geometry: Geometry, at: AtState) -> ValueError:
    """The error that names the joints that stay open."""
    gaps: dict[str, list[str]] = {}
    small = min(1e-6, 1e-3 * float(np.abs(at.g).max()))
    for row, value in zip(geometry.rows(), at.g, strict=False):
        if not abs(value) <= small:  # nor if it is not finite
            gaps.setdefault(repr(row.joint.name), []).append(f"{row.name}: {value:.3g}")
    listed = "; ".join(f"{name} ({', '.join(parts)})" for name, parts in list(gaps.items())[:6])
    return ValueError(
        f"{len(gaps)} joints cannot be closed from where the bodies are, and stay open by: {listed}. "
        "Check lengths and frames, or put the bodies nearer to where they belong"
    )


# --- drives are moved in steps ----------------------------------------------------------------------------


def without_drives(model: Model) -> Model:
    """The model without prescribed motions and held coordinates."""
    return model._like({name: x for name, x in model._things.items() if not isinstance(x, OfCoordinate)})


def _drives(model: Model) -> list[OfCoordinate]:
    return [joint for joint in model.joints if isinstance(joint, OfCoordinate)]


class _Stuck(ValueError):
    """A drive cannot be moved to its value. Other positions may exist, which the mechanism does not reach."""


def _by_steps(geometry: Geometry, v: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Close the joints without drives, then move the drives to their values step by step.

    A mechanism may have several positions for one value of a drive. This leads to the one that it reaches
    in motion: an angle goes the shorter way, or to the value itself if that is beyond half a turn, or, if
    the mechanism cannot go there, the other way round.
    """
    model, t = geometry.model, geometry.t
    q = closed(Geometry(without_drives(model), t=t), model.q0, v, free)
    drives, slices = _drives(model), model.slices()
    ends = [[_frame_at(end, q, slices) for end in one.markers[:2]] for one in drives]
    values = [float(np.asarray(one.driven(*frames))) for one, frames in zip(drives, ends, strict=True)]
    first = [_way(one, t, frames) for one, frames in zip(drives, ends, strict=True)]
    the_other = lambda x: x - np.copysign(2 * np.pi, x)
    far = [i for i, x in enumerate(first) if drives[i].driven.turns and _steps(model, drives[i], x) > 1]
    refused: _Stuck | None = None
    for some in ([], *([i] for i in far), *([far] if len(far) > 1 else [])):
        try:
            ways = [the_other(x) if i in some else x for i, x in enumerate(first)]
            return _moved(geometry, q, v, free, values, ways)
        except _Stuck as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _moved(
    geometry: Geometry,
    q: np.ndarray,
    v: np.ndarray,
    free: np.ndarray,
    values: list[float],
    ways: list[float],
) -> np.ndarray:
    """The positions when drives have gone from ``values`` along ``ways``.

    Joints are closed at ``q``, so their usual rows are followed, over any number of turns.
    """
    usual = {name: getattr(x, "usual", None) or x for name, x in geometry.model._things.items()}
    model, t, drives = geometry.model._like(usual), geometry.t, _drives(geometry.model)
    held = [HeldCoordinate(one.joint, one.driven, x, 0.0, t) for one, x in zip(drives, values, strict=True)]
    free_of_drives = without_drives(model)
    moving = free_of_drives._like(free_of_drives._things | {one.name: one for one in held})
    count = max(_steps(model, one, off) for one, off in zip(drives, ways, strict=True))
    moved = lambda share: [x - off * share for x, off in zip(values, ways, strict=True)]
    share, step = 0.0, 1 / count
    while share < 1:
        further = min(share + step, 1.0)
        numbers = {f"{one.name}.value": np.array(x) for one, x in zip(held, moved(further), strict=True)}
        here = Geometry(moving, with_numbers(moving, numbers, moving.system.args), t)
        try:
            q = closed(here, q, v, free)
        except ValueError as error:
            step /= 2
            if step * count < _LEAST:
                far = [_steps(model, one, off) > 1 for one, off in zip(drives, ways, strict=True)]
                raise _stuck(drives, far, values, moved(1.0), moved(share)) from error
            continue
        share, step = further, min(2 * step, 1 / count)
    return closed(Geometry(model, t=t), q, v, free)


def _stuck(drives: list[OfCoordinate], far: list[bool], *values: list[float]) -> _Stuck:
    """The error of drives that cannot be moved to their values. It names those that are ``far`` away."""
    listed = [
        f"{one.name!r} goes from {start:.4g} to {end:.4g}, and joints close up to {reached:.4g} only"
        for one, named, start, end, reached in zip(drives, far, *np.round(values, 9) + 0.0, strict=True)
        if named
    ]
    return _Stuck(
        f"joints cannot be closed where drives want them: {'; '.join(listed)}. Check lengths and motions, "
        "put the bodies nearer to where they belong, or hold fewer of them"
    )


def _frame_at(end: Marker, q: np.ndarray, slices: dict[str, tuple[slice, slice]]) -> FrameState:
    """A frame at positions q."""
    body = end.body
    if body.name in slices:  # not the ground
        body = body.moved(q[slices[body.name][0]])
    return Marker(body, end.r, end.Q).state


def _steps(model: Model, drive: OfCoordinate, off: float) -> int:
    """In how many steps a drive is moved, if its value is ``off`` by so much."""
    size = abs(off) / (1.0 if drive.driven.turns else size_of(model))
    return int(np.clip(np.ceil(size / _STEP), 1, _MOST_STEPS)) if np.isfinite(size) else 1


def _way(drive: OfCoordinate, t: float, ends: list[FrameState]) -> float:
    """The value of a coordinate for two frames, minus that to which its drive moves it.

    An angle goes the shorter way, or to the value itself if that is beyond half a turn and not met yet.
    """
    a, b = ends
    wanted = drive.wanted(t)
    off = float(drive.driven.off(a, b, wanted, np))
    if drive.driven.turns and abs(wanted) > np.pi and abs(off) > _MET:
        return float(np.asarray(drive.driven(a, b))) - wanted
    return off


# --- joints are followed from the ground ------------------------------------------------------------------


def _from_ground(geometry: Geometry, v: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Close the joints from where they are if they are followed from the ground outwards.

    Those cannot be half a turn off.
    """
    model = geometry.model
    if not free.all():
        raise ValueError("some bodies are held")
    return closed(geometry, model.pose(_wanted(model, geometry.t))[0], v, free)


def _wanted(model: Model, t: float) -> dict[str, list[float]]:
    """The coordinates of joints that are driven, held, or follow others."""
    found: dict[str, list[float]] = {}
    for drive in _drives(model):
        now = found.get(drive.joint.name) or _values(drive.joint)
        found[drive.joint.name] = _with(drive.joint, drive.driven, drive.wanted(t), now)
    for mimic in model.joints:
        if isinstance(mimic, Mimic) and all(len(joint.coordinates) == 1 for joint in mimic.joints):
            first, second = mimic.joints
            led = found.get(second.name, _values(second))[0]
            found.setdefault(first.name, [float(np.polyval(mimic.numbers["coefficients"][::-1], led))])
    return {name: values for name, values in found.items() if isinstance(model[name], POSED)}


def _with(joint: Any, driven: Coordinate, value: float, now: list[float]) -> list[float]:
    """The coordinates of a joint, with another value of one of them."""
    if isinstance(joint, Screw):
        return [travel(joint, value) if driven.turns else value]
    return [value if way == driven else x for way, x in zip(joint.coordinates, now, strict=True)]


def _values(joint: Any) -> list[float]:
    """The coordinates of a joint where the bodies are."""
    a, b = (marker.state for marker in joint.markers[:2])
    return [float(np.asarray(way(a, b))) for way in joint.coordinates]
