"""Surfaces of triangles for the view: simple solids, and files in the formats STL and OBJ."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

FORMATS = (".stl", ".obj")
_AROUND = 24  # how many corners a circle has


class Surface(NamedTuple):
    """Points (V, 3), and triangles (T, 3) with their indices, seen counter-clockwise from outside."""

    points: np.ndarray
    triangles: np.ndarray

    def moved(self, x: np.ndarray, R: np.ndarray) -> Surface:
        return Surface(x + self.points @ R.T, self.triangles)


def joined(surfaces: list[Surface]) -> Surface:
    """Several surfaces as one."""
    starts = np.cumsum([0, *(len(one.points) for one in surfaces[:-1])])
    triangles = [one.triangles + start for one, start in zip(surfaces, starts, strict=True)]
    return Surface(np.concatenate([one.points for one in surfaces]), np.concatenate(triangles))


def box(half: np.ndarray) -> Surface:
    """A box with three half lengths."""
    signs = np.stack(np.meshgrid([-1, 1], [-1, 1], [-1, 1], indexing="ij"), -1).reshape(-1, 3)
    sides = [[0, 1, 3, 2], [4, 6, 7, 5], [0, 4, 5, 1], [2, 3, 7, 6], [0, 2, 6, 4], [1, 5, 7, 3]]
    triangles = [[s[0], s[i], s[i + 1]] for s in sides for i in (1, 2)]
    return Surface(signs * half, np.array(triangles))


def _turned(radii: np.ndarray, heights: np.ndarray) -> Surface:
    """What an outline from the lowest to the highest point makes when it turns about z."""
    angle = np.linspace(0, 2 * np.pi, _AROUND, endpoint=False)
    ring = np.stack([np.cos(angle), np.sin(angle), np.zeros(_AROUND)], axis=1)
    points = [r * ring + [0, 0, z] for r, z in zip(radii, heights, strict=True)]
    i, j = np.meshgrid(np.arange(len(radii) - 1), np.arange(_AROUND), indexing="ij")
    a, b = i * _AROUND + j, i * _AROUND + (j + 1) % _AROUND
    quads = np.stack([a, b, b + _AROUND, a + _AROUND], axis=-1).reshape(-1, 4)
    return Surface(np.concatenate(points), np.concatenate([quads[:, [0, 1, 2]], quads[:, [0, 2, 3]]]))


def cylinder(radius: float, half: float) -> Surface:
    """A cylinder along z."""
    return _turned(np.array([0, radius, radius, 0]), half * np.array([-1, -1, 1, 1]))


def capsule(radius: float, half: float) -> Surface:
    """A cylinder along z with half spheres at its ends; a ball if ``half`` is zero."""
    turn = np.linspace(-np.pi / 2, np.pi / 2, 12)
    heights = radius * np.sin(turn) + half * np.sign(turn)
    return _turned(radius * np.cos(turn), heights)


def ellipsoid(half: np.ndarray) -> Surface:
    """An ellipsoid with three half axes."""
    ball = capsule(1.0, 0.0)
    return Surface(ball.points * half, ball.triangles)


def read(path: Path) -> Surface:
    """The surface in a file. Raises ValueError with what is wrong."""
    try:
        points, triangles = (
            _obj(path.read_text(errors="replace")) if path.suffix.lower() == ".obj" else _stl(path)
        )
    except (ValueError, IndexError) as error:
        raise ValueError(f"the mesh {path} cannot be read: {error}") from error
    if not len(triangles) or not np.isfinite(points).all():
        raise ValueError(f"the mesh {path} has no triangles, or points that are not finite")
    if triangles.min() < 0 or triangles.max() >= len(points):
        raise ValueError(f"the mesh {path} has triangles with points that it does not have")
    return Surface(points, triangles)


def _stl(path: Path) -> tuple[np.ndarray, np.ndarray]:
    data = path.read_bytes()
    count = int.from_bytes(data[80:84], "little")
    if len(data) == 84 + 50 * count:
        kind = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("rest", "<u2")])
        corners = np.frombuffer(data, kind, count, 84)["corners"].astype(float).reshape(-1, 3)
    elif data[:5] == b"solid":
        lines = enumerate(data.decode().splitlines(), 1)
        found = [_point(words, i) for i, line in lines if (words := line.split())[:1] == ["vertex"]]
        corners = np.array(found, float).reshape(-1, 3)
    else:
        raise ValueError(f"it is no STL: for {count} triangles it would have {84 + 50 * count} bytes")
    points, numbers = np.unique(corners, axis=0, return_inverse=True)
    return points, numbers.reshape(-1, 3)


def _point(words: list[str], number: int) -> list[float]:
    """The point of a line, such as ``v 0 0 1``."""
    try:
        found = [float(x) for x in words[1:4]]
    except ValueError:
        found = []
    if len(found) < 3:
        raise ValueError(f"line {number} must be {words[0]!r} and 3 numbers, got {' '.join(words)!r}")
    return found


def _corners(words: list[str], number: int) -> list[int]:
    """The numbers of points of a line, such as ``f 1/1 2/2 3/3``."""
    try:
        found = [int(word.split("/")[0]) for word in words[1:]]
    except ValueError:
        found = [0]
    if 0 in found:
        raise ValueError(
            f"line {number} must be 'f' and numbers of points, from 1 or from -1 backwards, "
            f"got {' '.join(words)!r}"
        )
    return found


def _obj(text: str) -> tuple[np.ndarray, np.ndarray]:
    points: list[list[float]] = []
    triangles: list[list[int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words[:1] == ["v"]:
            points.append(_point(words, number))
        elif words[:1] == ["f"]:
            corners = _corners(words, number)
            corners = [i - 1 if i > 0 else len(points) + i for i in corners]
            triangles += [[corners[0], corners[i], corners[i + 1]] for i in range(1, len(corners) - 1)]
    return np.array(points, float).reshape(-1, 3), np.array(triangles, int).reshape(-1, 3)
