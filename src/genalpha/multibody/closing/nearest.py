"""What closes couplings from a rough guess: at the nearest turn or tooth."""

from __future__ import annotations

from typing import Any

from genalpha.multibody.couplings import Gear, Mimic, Rack, Screw, registered
from genalpha.multibody.joints import ANGLE, Joint

_NEAR = 0.8  # the cosine of an angle whose sine is nearly as large
_MET = 1e-6  # up to which a row counts as satisfied


def to_close(joint: Joint) -> Joint:
    """The joint, or another one that closes it from where its bodies are.

    Rows of couplings are sines of angles. They lead to a tooth further on, or nowhere, if such an angle is
    near a quarter of a turn or beyond. Then the row is the angle itself.
    """
    if isinstance(joint, Mimic):
        return _followed(joint)
    if not isinstance(joint, Screw | Gear | Rack):
        return joint
    if joint.sides(0.0, *(marker.state for marker in joint.markers))[-1] > _NEAR:
        return joint
    of: dict[str, Any] = joint.functions
    if isinstance(joint, Gear):
        by_angle = of["meshing"]._replace(by_angle=True).registered()
        return joint.changed(functions={"meshing": by_angle}, usual=joint)
    return joint.changed(functions=of | {"difference": ANGLE.off}, usual=joint)


def _followed(joint: Mimic) -> Mimic:
    """The angle counts from −π to π, unless the row is satisfied already, maybe after whole turns."""
    frames = [marker.state for marker in joint.markers]
    side = min(joint.sides(0.0, *frames), default=1.0)
    if side > _NEAR and not joint.row.inverse and joint.row.turns < 2:
        return joint
    if side > 0 and abs(float(joint.row(joint.numbers["coefficients"], frames))) < _MET:
        return joint
    row = registered(joint.row._replace(by_angle=True))
    return joint.changed(row=row, functions={"row": row}, usual=joint)
