"""Joints that are half a turn off: their rows are sines of angles, which are zero there too."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.errors import InconsistentInitialValues
from genalpha.multibody import values as values_of
from genalpha.multibody.bodies import AnyBody, Marker
from genalpha.numerics.tracing import is_traced

if TYPE_CHECKING:
    from genalpha.multibody.model import Model


def half_turns(
    model: Model,
    t: float,
    q: np.ndarray | None = None,
    values: Mapping[str, Any] | None = None,
    joints: list[Any] | None = None,
) -> list[Any]:
    """The joints that are half a turn off, at positions q or where the bodies are, with other ``values``."""
    place: dict[str, AnyBody] = {body.name: body for body in (model.ground, *model.bodies)}
    if q is not None:
        at = model.slices()
        place |= {body.name: body.moved(q[at[body.name][0]]) for body in model.bodies}
    values = values or {}
    found = []
    for joint in model.joints if joints is None else joints:
        frames = []
        for name, marker in zip(values_of.points(joint), joint.markers, strict=True):
            r = np.asarray(values.get(name, marker.r), float)
            frames.append(Marker(place[marker.body.name], r, marker.Q).state)
        if any(bool(side < 0) for side in _numbered(joint, values).sides(t, *frames)):
            found.append(joint)
    return found


def _numbered(joint: Any, values: Mapping[str, Any]) -> Any:
    """A joint with other numbers."""
    given = {key: values.get(f"{joint.name}.{key}") for key in joint.numbers}
    other = {key: value for key, value in given.items() if value is not None}
    if not other:
        return joint
    found = copy.copy(joint)
    found.numbers = joint.numbers | {key: np.asarray(x, float) for key, x in other.items()}
    return found


def check_start(model: Model, t_span: Any, q: np.ndarray, values: Mapping[str, Any] | None) -> None:
    """Raise an error if joints are half a turn off where a run starts, ``model.q0``.

    The answer is kept, but for joints with functions, which may read other numbers the next time.
    """
    if is_traced(t_span, dict(values or {})):
        return
    try:
        t = float(np.ravel(t_span)[0])
    except (TypeError, ValueError, IndexError):  # `solve` says what is wrong
        return
    key, kept = (t, q.tobytes()), model.system.__dict__
    known = not values and kept.get("_sides_at") == key
    check(model, t, None, values, [x for x in model.joints if x.functions] if known else None)
    if not values:
        kept["_sides_at"] = key


def check(
    model: Model,
    t: float,
    q: np.ndarray | None = None,
    values: Mapping[str, Any] | None = None,
    joints: list[Any] | None = None,
) -> None:
    """Raise an error if joints are half a turn off, see :func:`half_turns`."""
    wrong = half_turns(model, t, q, values, joints)
    if wrong:
        names = ", ".join(repr(joint.name) for joint in wrong[:6])
        raise InconsistentInitialValues(
            f"the frames of {names} are more than a quarter of a turn from where the joint wants them at "
            f"t = {t:g}: turn the bodies, or call model.assemble()"
        )
