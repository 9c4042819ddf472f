"""A scene: shapes with their poses at all times, and what a picture of them needs to know."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from genalpha.view import checks
from genalpha.view.poses import Track, matrices, track
from genalpha.view.shapes import Arrow, Frame, Plane, Shape

_ROWS_OF_BOX = 100  # the least number of rows from which the size of the scene is known
_LONGEST_ARROW = 0.25  # in sizes of the scene
_STEPS = (1.0, 2.0, 5.0, 10.0)


@dataclass(frozen=True, eq=False)
class Item:
    """A shape in a scene, with its name, its colour, its numbers, and a track for each of ``shape.moves``."""

    shape: Shape
    name: str
    color: str
    tracks: dict[str, Track]
    sizes: dict[str, Any]


class Scene:
    """Shapes that move: ``times`` (K,), not decreasing, and shapes whose motions are arrays or fixed.

    ``up`` is "y" or "z". Without it, y is up if a position has two numbers, and z otherwise. ``ground`` is
    the height of a grid; True chooses one, and False leaves it out. With y up the grid is upright, behind the
    bodies. ``rate`` is the time that passes in one second of play. ``notice`` is a text in the picture.

    Attributes: ``times`` (K,), ``items``, ``up``, ``bounds`` (2, 3), the corners of the space that the motion
    takes, and ``size``, its largest length.

    >>> from genalpha.view.shapes import Box
    >>> positions = np.array([[0.0, 0.0, 1.0], [0.5, 0.0, 1.0]])
    >>> scene = Scene([0.0, 1.0], [Box((1, 1, 1), at=positions, name="crate")])
    >>> scene.up, scene.bounds.tolist(), scene.items[0].name
    ('z', [[-0.5, -0.5, 0.5], [1.0, 0.5, 1.5]], 'crate')
    """

    def __init__(
        self,
        times: Any,
        shapes: Iterable[Shape] | Shape,
        *,
        up: str | None = None,
        title: str = "",
        notice: str = "",
        ground: bool | float = True,
        rate: float | None = None,
    ) -> None:
        self.times = _times(times)
        given = _shapes(shapes)
        self.title, self.notice = str(title), str(notice)
        found = [_tracks(shape, len(self.times)) for shape in given]
        if up not in (None, "y", "z"):
            raise ValueError(f"up is {up!r}: pass 'y' or 'z'")
        self.up = up or ("y" if any(planar for _, planar in found) else "z")
        tracks = [part for part, _ in found]
        solid = [
            _box(shape, part)
            for shape, part in zip(given, tracks, strict=True)
            if not isinstance(shape, Frame | Plane)
        ]
        self.bounds = _hull(solid or [_box(*pair) for pair in zip(given, tracks, strict=True)])
        self.size = float((self.bounds[1] - self.bounds[0]).max()) or 1.0
        self.items = _items(given, tracks, self.size)
        arrows = [item for item in self.items if isinstance(item.shape, Arrow)]
        self.bounds = _hull([self.bounds, *(_tips(item, _LONGEST_ARROW * self.size) for item in arrows)])
        if ground is not True and ground is not False:
            checks.array(ground, "ground")
        self.ground = None if ground is False else self._height() if ground is True else float(ground)
        span = float(self.times[-1] - self.times[0])
        self.rate = _rate(span) if rate is None else checks.positive(rate, "rate")

    def _height(self) -> float:
        """A height of the grid below the bodies. With y up it is behind them."""
        low = float(self.bounds[0, 2])
        if self.up == "y":
            return low - 0.06 * self.size
        return 0.0 if -0.02 * self.size < low < 0.3 * self.size else low - 0.02 * self.size

    def __repr__(self) -> str:
        span = f"t = {self.times[0]:g} to {self.times[-1]:g}"
        return f"<Scene of {len(self.items)} shapes, {len(self.times)} frames, {span}>"


def _times(times: Any) -> np.ndarray:
    found = checks.array(times, "times")
    if found.ndim != 1 or not len(found):
        raise ValueError(f"times have shape {found.shape}: pass an array (K,) with K of 1 or more")
    if (np.diff(found) < 0).any():
        raise ValueError("times must not decrease: sort them, and the poses with them")
    return found


def _shapes(shapes: Iterable[Shape] | Shape) -> list[Shape]:
    given = [shapes] if isinstance(shapes, Shape) else list(shapes)
    if not given:
        raise ValueError("there are no shapes to draw: pass shapes=[...], for example ga.shapes.Box")
    for shape in given:
        if not isinstance(shape, Shape):
            raise TypeError(f"{shape!r} is no shape: pass shapes such as ga.shapes.Box")
    times = Counter(shape.name for shape in given if shape.name)
    twice = {name for name, count in times.items() if count > 1}
    if twice:
        raise ValueError(f"{len(twice)} names are used twice, such as {min(twice)!r}: names must be unique")
    return given


def _tracks(shape: Shape, count: int) -> tuple[dict[str, Track], bool]:
    """The tracks of a shape, and whether it has a position with two numbers."""
    found, planar = {}, False
    for name in shape.moves:
        value = getattr(shape, name)
        if callable(value):
            raise TypeError(
                f"{name} of {shape.label} is a function, and a scene needs arrays: "
                "call ga.view(sol, shapes=...)"
            )
        found[name], flat = track(value, count, f"{name} of {shape.label}")
        planar |= flat
    return found, planar


def _items(given: list[Shape], tracks: list[dict[str, Track]], size: float) -> tuple[Item, ...]:
    """The shapes with names, colours and lengths. Those without a colour get one after the other."""
    used = {shape.name for shape in given}
    palette = 0
    items = []
    scale = _arrow_scale(given, tracks, size)
    for shape, part in zip(given, tracks, strict=True):
        numbers = (f"{shape.kind} {i}" for i in range(1, len(given) + len(used) + 2))
        name = shape.name or next(name for name in numbers if name not in used)
        used.add(name)
        if shape.color is not None:
            color = shape.color
        elif shape.kind in _COLORS:
            color = checks.COLORS[_COLORS[shape.kind]]
        else:
            color = checks.COLORS[checks.PALETTE[palette % len(checks.PALETTE)]]
            palette += 1
        sizes = shape.sizes(size)
        if isinstance(shape, Arrow) and shape.scale is None:
            sizes["scale"] = scale
        items.append(Item(shape, name, color, part, sizes))
    return tuple(items)


_COLORS = {"spring": "gray", "arrow": "red", "frame": "gray", "plane": "steel"}


def _arrow_scale(given: list[Shape], tracks: list[dict[str, Track]], size: float) -> float:
    """The scale of the arrows that have none of their own."""
    found = [
        np.linalg.norm(part["vector"].x, axis=1).max()
        for shape, part in zip(given, tracks, strict=True)
        if isinstance(shape, Arrow) and shape.scale is None
    ]
    longest = max(found, default=0.0)
    return _LONGEST_ARROW * size / longest if longest > 0 else 1.0


def _box(shape: Shape, tracks: dict[str, Track]) -> np.ndarray:
    """The corners (2, 3) of the space that a shape takes during the motion, from some of its rows."""
    corners = shape.corners()
    names = ("at",) if isinstance(shape, Arrow) else shape.moves
    found = []
    for path in (tracks[name] for name in names):
        some = slice(None, None, max(1, len(path.x) // _ROWS_OF_BOX))
        turned = np.einsum("kij,cj->kci", matrices(path.p[some]), corners)
        found.append(path.x[some, None] + turned)
    points = np.concatenate([x.reshape(-1, 3) for x in found])
    return np.stack([points.min(axis=0) - shape.margin(), points.max(axis=0) + shape.margin()])


def _tips(item: Item, most: float) -> np.ndarray:
    """The corners (2, 3) of the space that the tips of an arrow take. Longer ones than ``most`` are cut."""
    along = item.sizes["scale"] * item.tracks["vector"].x
    length = np.linalg.norm(along, axis=1, keepdims=True)
    points = item.tracks["at"].x + along * np.minimum(1.0, most / np.where(length > 0, length, 1.0))
    return np.stack([points.min(axis=0), points.max(axis=0)])


def _hull(boxes: list[np.ndarray]) -> np.ndarray:
    return np.stack([np.min(boxes, axis=0)[0], np.max(boxes, axis=0)[1]])


def _rate(span: float) -> float:
    """The time that passes in one second of play: real time if the run then takes 2 to 60 seconds."""
    if span == 0.0 or 2.0 <= span <= 60.0:
        return 1.0
    wanted = span / 8.0
    unit = 10.0 ** math.floor(math.log10(wanted))
    return unit * max(step for step in _STEPS if step * unit <= wanted * (1 + 1e-9))
