"""Joints that are half a turn off: their rows are sines of angles, which are zero there too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from genalpha.errors import InconsistentInitialValues, warn
from genalpha.multibody import values as values_of
from genalpha.multibody.couplings import Gear, Mimic, OfCoordinate, Rack, Screw
from genalpha.multibody.markers import Marker
from genalpha.multibody.things import points
from genalpha.numerics.tracing import is_traced

if TYPE_CHECKING:
    from genalpha.multibody.model import Model

COUPLINGS = (OfCoordinate, Mimic, Gear, Rack, Screw)
_MOST = 4096  # values of prescribed motions that are kept
Numbers = Mapping[str, Any]


def half_turns(
    model: Model,
    t: float,
    q: np.ndarray | None = None,
    numbers: Numbers | None = None,
    joints: list[Any] | None = None,
    known: dict[Any, float] | None = None,
) -> list[Any]:
    """The joints that are half a turn off, at positions q or where the bodies are, with other ``numbers``.

    ``known`` are the values of prescribed motions that were computed before; see :func:`remembered`.
    """
    joints = model.joints if joints is None else joints
    bodies = {marker.body.name: marker.body for joint in joints for marker in joint.markers}
    if q is not None:
        at = model.slices()
        bodies = {
            name: body if body is model.ground else body.moved(q[at[name][0]])
            for name, body in bodies.items()
        }
    found, numbers = [], numbers or {}
    for joint in joints:
        frames = []
        for name, marker in zip(points(joint), joint.markers, strict=True):
            r = np.asarray(numbers.get(name, marker.r), float)
            frames.append(Marker(bodies[marker.body.name], r, marker.Q).state)
        with jax.ensure_compile_time_eval():  # inside of jit, too
            if any(bool(side < 0) for side in _sides(_numbered(joint, numbers), t, frames, known)):
                found.append(joint)
    return found


def _sides(joint: Any, t: float, frames: list[Any], known: dict[Any, float] | None) -> list[Any]:
    """The cosines of a joint. A function of the user's own is evaluated once for each time."""
    if known is None or not isinstance(joint, OfCoordinate):
        return list(joint.sides(t, *frames))
    if not joint.driven.turns:
        return []
    key = joint.name, t
    if key not in known:
        if len(known) >= _MOST:
            known.clear()
        known[key] = joint.wanted(t)
    return [joint.driven.near(frames[0], frames[1], known[key])]


def _numbered(joint: Any, numbers: Numbers) -> Any:
    """A joint with other numbers."""
    given = {key: numbers.get(f"{joint.name}.{key}") for key in joint.numbers}
    other = {key: value for key, value in given.items() if value is not None}
    if not other:
        return joint
    return joint.changed(numbers=joint.numbers | {key: np.asarray(x, float) for key, x in other.items()})


def remembered(model: Model, what: str) -> dict[Any, Any]:
    """What is known of a model. It is forgotten if the model changes, or a value that functions read."""
    found: dict[Any, Any] = model.system._programs.made(("multibody", what), dict)
    return found


def about(joint: Any) -> set[str]:
    """The names of a joint and of those that it is about: it has their points."""
    return {joint.name}.union(*map(about, joint.joints))


def of_couplings(model: Model, numbers: Numbers) -> dict[str, Any]:
    """The numbers and points of couplings among these. Those of other joints do not turn them."""
    names = set[str]().union(*(about(joint) for joint in model.joints if isinstance(joint, COUPLINGS)))
    return {name: x for name, x in numbers.items() if name.rpartition(".")[0] in names}


def concerned(joints: list[Any], numbers: Numbers) -> list[Any]:
    """The joints whose numbers or points are among these."""
    things = {name.rpartition(".")[0] for name in numbers}
    return [joint for joint in joints if things & about(joint)] if things else []


def check_start(model: Model, t_span: Any, q: np.ndarray, args: Any, more: Numbers) -> None:
    """Raise an error if joints are half a turn off where a run starts, ``model.q0``, with its args.

    These, and ``more`` numbers, may be those of the members of a batch. Joints with the numbers of the model
    are looked at once.
    """
    if is_traced(t_span, args):
        return
    try:
        t = float(np.ravel(t_span)[0])
    except (TypeError, ValueError, IndexError):  # `solve` says what is wrong
        return
    model.system.forget_if_changed()
    starts, key = remembered(model, "starts"), (t, q.tobytes())
    at, seen = starts.get("last", (None, frozenset()))
    seen = seen if at == key else frozenset()
    couplings = [joint for joint in model.joints if isinstance(joint, COUPLINGS)]
    numbers = {**values_of.in_args(model, args), **more} if couplings else {}
    other = concerned(couplings, numbers)
    new = [joint for joint in model.joints if joint.name not in seen and joint not in other]
    if new:
        check(model, t, None, None, new)
    forces = [force for force in model.forces if force.name not in seen]
    for force in forces:
        if text := force.start_warning(*(marker.state for marker in force.markers)):
            warn(text)
    starts["last"] = key, seen.union(one.name for one in (*new, *forces))  # at once: there may be threads
    if other:
        check_members(model, t, None, numbers)


def check_members(model: Model, t: float, q0: np.ndarray | None, numbers: Numbers) -> None:
    """Raise an error if joints are half a turn off where members of a batch start.

    Without a ``q0`` they start where the bodies are. Then only joints with other numbers are looked at.
    """
    used = of_couplings(model, numbers)
    joints = concerned(model.joints, used) if q0 is None else model.joints
    for members, q, own in distinct(model, q0, used):
        check(model, t, q, own, joints, f" in member {members[0]}" if members else "")


def check(
    model: Model,
    t: float,
    q: np.ndarray | None,
    numbers: Numbers | None,
    joints: list[Any],
    who: str = "",
) -> None:
    """Raise an error if joints are half a turn off, see :func:`half_turns`. ``who`` is the run."""
    wrong = half_turns(model, t, q, numbers, joints, remembered(model, "motions"))
    if wrong:
        names = ", ".join(repr(joint.name) for joint in wrong[:6])
        raise InconsistentInitialValues(
            f"the frames of {names} are more than a quarter of a turn from where the joint wants them at "
            f"t = {t:g}{who}: turn the bodies, or call model.assemble()"
        )


def distinct(
    model: Model, q0: np.ndarray | None, numbers: Numbers
) -> list[tuple[list[int], np.ndarray | None, dict[str, Any]]]:
    """The members of a batch that differ in q0 or in numbers: which, their positions, and their numbers.

    A single run has no number.
    """
    usual = values_of.numbers(model) if numbers else {}
    own = {name: x for name, x in numbers.items() if np.ndim(x) > usual[name].ndim}
    both = [*own.values(), *([] if q0 is None or q0.ndim == 1 else [q0])]
    if not both:
        return [([], q0, dict(numbers))]
    if len({len(x) for x in both}) > 1:
        return []  # `solve_batch` says what is wrong
    alike: dict[bytes, list[int]] = {}
    for i, row in enumerate(np.hstack([np.reshape(x, (len(x), -1)) for x in both])):
        alike.setdefault(row.tobytes(), []).append(i)
    position = lambda i: q0[i] if q0 is not None and q0.ndim == 2 else q0
    of_member = lambda i: {**numbers, **{name: x[i] for name, x in own.items()}}
    return [(listed, position(listed[0]), of_member(listed[0])) for listed in alike.values()]
