"""Shapes of bodies in model files."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from genalpha.multibody.bodies import AnyBody
from genalpha.multibody.formats.entries import as_list, check_shape
from genalpha.view import poses, shapes

_SHAPES: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        shapes.Box,
        shapes.Cylinder,
        shapes.Capsule,
        shapes.Sphere,
        shapes.Mesh,
        shapes.Plane,
        shapes.Frame,
    )
}


def _listed() -> str:
    return ", ".join(sorted(_SHAPES))


def drawn(body: AnyBody) -> dict[str, Any]:
    """The entry of the shape of a body, if it has one."""
    shape = body.shape
    if shape is None:
        return {}
    kind = type(shape).__name__
    if _SHAPES.get(kind) is not type(shape):
        raise ValueError(f"the shape of {body!r} is a {kind}, which a file cannot hold: use {_listed()}")
    said = lambda value, usual: isinstance(value, np.ndarray) or value not in (None, usual)
    own = [one for one in dataclasses.fields(shape) if one.name != "at"]
    fields = [(one.name, getattr(shape, one.name), one.default) for one in own]
    sizes = {key: as_list(value) for key, value, usual in fields if said(value, usual)}
    return {"shape": {"type": kind, **sizes, **_pose(getattr(shape, "at", None), body)}}


def _pose(at: Any, body: AnyBody) -> dict[str, Any]:
    """The fixed pose of a shape: its position, and its rotation if it has one."""
    if at is None:
        return {}
    if callable(at) or (isinstance(at, tuple) and any(callable(part) for part in at)):
        raise ValueError(f"the shape of {body!r} has the function 'at', which a file cannot hold")
    track, _ = poses.track(at, 1, f"at of the shape of {body!r}")
    turned = {"rotation": track.p[0].tolist()} if track.p[0, 1:].any() else {}
    return {"at": track.x[0].tolist(), **turned}


def shape_from(entry: Any, where: str) -> shapes.Shape | None:
    """The shape that an entry says, with ``where`` the path around it."""
    if entry is None:
        return None
    kind = entry.get("type") if isinstance(entry, dict) else None
    if not isinstance(kind, str) or kind not in _SHAPES:
        raise ValueError(f"{where}.shape.type is {kind!r}: there are {_listed()}")
    names = [one.name for one in dataclasses.fields(_SHAPES[kind])]
    check_shape(entry, names, f"{where}.shape")
    given = {key: value for key, value in entry.items() if key not in ("type", "rotation")}
    if "rotation" in entry:
        given["at"] = given.get("at", (0.0, 0.0, 0.0)), entry["rotation"]
    try:
        poses.track(given.get("at"), 1, "at")
        return _SHAPES[kind](**given)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}.shape: {error}") from error
