"""Surfaces of shapes as quadrilaterals, for pictures without a browser."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from genalpha.view.checks import AXES
from genalpha.view.poses import Track, between, matrices
from genalpha.view.scene import Item

_SECTORS = 20
_AXIS_COLORS = ("#d4403a", "#409e52", "#3870d1")
_X_TO_Z = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])


class Drawn(NamedTuple):
    """What an item looks like at one time.

    ``faces`` (F, 4, 3) are quadrilaterals; in a triangle the last corner is there twice. ``lines`` (S, 2, 3)
    are segments with the width ``wide``, a length or, if ``pixels``, in pixels.
    """

    color: str
    faces: np.ndarray
    lines: np.ndarray
    wide: float = 0.0
    pixels: bool = False


_NO_FACES, _NO_LINES = np.zeros((0, 4, 3)), np.zeros((0, 2, 3))


def drawn(item: Item, times: np.ndarray, t: float) -> list[Drawn]:
    """The parts of an item at the time t."""
    kind, sizes = item.shape.kind, item.sizes
    if kind == "trace":
        points = item.tracks["point"].rows(len(times)).x
        past = times < t
        if not sizes["whole"]:
            points = np.concatenate([points[past], _at(item.tracks["point"], times, t).x])
        lines = np.stack([points[:-1], points[1:]], axis=1)
        return [Drawn(item.color, _NO_FACES, lines, sizes["width"], True)]
    if "start" in item.tracks:
        start, end = (_at(item.tracks[name], times, t).x for name in ("start", "end"))
        (R,), (length,) = between(start, end)
        if kind == "spring":
            points = _helix(sizes["coils"]) * [sizes["radius"], sizes["radius"], length] @ R.T + start
            return [
                Drawn(item.color, _NO_FACES, np.stack([points[:-1], points[1:]], axis=1), 2 * sizes["wire"])
            ]
        rod = _revolved(_CYLINDER * [sizes["radius"], length], parts=6)
        return [Drawn(item.color, rod @ R.T + 0.5 * (start + end), _NO_LINES)]
    at = _at(item.tracks["at"], times, t)
    if kind == "arrow":
        vector = sizes["scale"] * _at(item.tracks["vector"], times, t).x
        (R,), (length,) = between(np.zeros((1, 3)), vector)
        return [Drawn(item.color, _arrow(length, sizes["width"] / 2) @ R.T + at.x, _NO_LINES)]
    (R,) = matrices(at.p)
    if kind == "frame":
        faces = _arrow(sizes["size"], 0.022 * sizes["size"])
        turns = [_to_axis(axis) for axis in AXES]
        return [
            Drawn(color, faces @ turn.T @ R.T + at.x, _NO_LINES)
            for color, turn in zip(_AXIS_COLORS, turns, strict=True)
        ]
    return [Drawn(item.color, local(item) @ R.T + at.x, _NO_LINES)]


def _at(path: Track, times: np.ndarray, t: float) -> Track:
    """The pose (1, ...) at the time t, between two frames."""
    found = []
    for rows in path:
        if len(rows) == 1:
            found.append(rows)
        else:
            found.append(np.array([[np.interp(t, times, column) for column in rows.T]]))
    x, p = found
    return Track(x, p / np.linalg.norm(p))


def local(item: Item) -> np.ndarray:
    """The faces (F, 4, 3) of a body relative to its pose."""
    kind, sizes = item.shape.kind, item.sizes
    if kind == "box":
        return _BOX * np.array(sizes["size"])
    if kind == "plane":
        width, height = (0.5 * x for x in sizes["size"])
        return np.array(
            [[[-width, -height, 0], [width, -height, 0], [width, height, 0], [-width, height, 0]]]
        )
    if kind == "mesh":
        return np.asarray(sizes["vertices"][sizes["triangles"][:, [0, 1, 2, 2]]])
    radius = sizes["radius"]
    if kind == "cylinder":
        profile = _CYLINDER * [radius, sizes["length"]]
    else:
        half = 0.5 * sizes.get("length", 0.0)
        profile = radius * _SPHERE + np.where(_SPHERE[:, 1:] > 0, [0.0, half], [0.0, -half])
    return _revolved(profile) @ _to_axis(sizes.get("axis", "z")).T


def _to_axis(axis: str) -> np.ndarray:
    """The rotation (3, 3) that turns z into an axis."""
    return {"x": _X_TO_Z, "y": np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]]), "z": np.eye(3)}[axis]


def _revolved(profile: np.ndarray, parts: int = 1) -> np.ndarray:
    """The faces (F, 4, 3) of a surface around z, with radii and heights ``profile`` (P, 2).

    Each piece of the profile is cut into ``parts``, so that long faces can be sorted by depth.
    """
    if parts > 1:
        place = np.linspace(0, len(profile) - 1, parts * (len(profile) - 1) + 1)
        profile = np.stack([np.interp(place, range(len(profile)), column) for column in profile.T], axis=1)
    angle = np.linspace(0, 2 * math.pi, _SECTORS + 1)
    r, z = profile.T
    points = np.stack(
        [r[:, None] * np.cos(angle), r[:, None] * np.sin(angle), np.repeat(z[:, None], len(angle), axis=1)],
        -1,
    )
    quads = np.stack([points[:-1, :-1], points[1:, :-1], points[1:, 1:], points[:-1, 1:]], axis=2)
    return quads.reshape(-1, 4, 3)


def _arrow(length: float, radius: float) -> np.ndarray:
    """The faces (F, 4, 3) of an arrow along z. Its head is smaller if it is short."""
    head = min(7 * radius, 0.45 * length)
    wide = min(radius, head / 5)
    neck = length - head
    return _revolved(np.array([[0, 0], [wide, 0], [wide, neck], [2.6 * wide, neck], [0, length]]))


def _helix(coils: int) -> np.ndarray:
    """The points (N, 3) of a helix of radius 1 from z = 0 to z = 1, with its ends on the axis."""
    s = np.linspace(0, 1, 28 * coils + 1)
    lead = 0.4 / (coils + 1)
    smooth = lambda x: np.clip(x, 0, 1) ** 2 * (3 - 2 * np.clip(x, 0, 1))
    radius = smooth(s / lead) * smooth((1 - s) / lead)
    angle = 2 * math.pi * coils * np.clip((s - lead) / (1 - 2 * lead), 0, 1)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle), s], axis=1)


def _box_faces() -> np.ndarray:
    """The faces (6 · 16, 4, 3) of a cube. Each side is cut into 16, so that they can be sorted by depth."""
    faces = []
    for axis in range(3):
        for side in (-0.5, 0.5):
            for i in range(4):
                for j in range(4):
                    face = np.full((4, 3), side)
                    face[:, (axis + 1) % 3] = np.array([i, i + 1, i + 1, i]) / 4 - 0.5
                    face[:, (axis + 2) % 3] = np.array([j, j, j + 1, j + 1]) / 4 - 0.5
                    faces.append(face)
    return np.array(faces)


_BOX = _box_faces()
_CYLINDER = np.array([[0.0, -0.5], [1.0, -0.5], [1.0, 0.5], [0.0, 0.5]])
_SPHERE = np.array([[math.sin(math.pi * i / 11), -math.cos(math.pi * i / 11)] for i in range(12)])
