"""Pictures and animated GIFs of a scene by matplotlib."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from genalpha.engine import files
from genalpha.view import checks
from genalpha.view.faces import Drawn, drawn
from genalpha.view.scene import Scene

_DPI = 100
_MOST_PICTURES = 3000
_SHADOW, _GRID = "#ececee", "#d5d8dc"


class Eye(NamedTuple):
    """A camera: its axes (3, 3), to the right, up and back, its place (3,), and pixels for a slope of one."""

    axes: np.ndarray
    place: np.ndarray
    focus: float
    size: tuple[int, int]

    def project(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pixels (..., 2) from the lower left corner, and the depths (...)."""
        x, y, z = np.moveaxis((points - self.place) @ self.axes.T, -1, 0)
        depth = np.maximum(-z, 1e-6 * np.abs(z).max(initial=1e-300))
        at = self.focus * np.stack([x, y], axis=-1) / depth[..., None]
        return at + 0.5 * np.array(self.size), depth


def animate(scene: Scene, path: str, size: tuple[int, int], fps: int, seconds: float | None) -> None:
    """Write an animated GIF, whole or not at all."""
    if not path.lower().endswith(".gif"):
        raise ValueError(
            f"{path} is no GIF: pass a name that ends with .gif, or save the page with view.save"
        )
    if not isinstance(fps, int) or not 1 <= fps <= 50:
        raise ValueError(f"fps is {fps!r}: pass an integer from 1 to 50")
    start, end = scene.times[[0, -1]]
    seconds = (end - start) / scene.rate if seconds is None else checks.positive(seconds, "seconds")
    count = max(1, round(seconds * fps))
    if count > _MOST_PICTURES:
        raise ValueError(
            f"the GIF would have {count} pictures: pass seconds or fps for at most {_MOST_PICTURES}"
        )
    picture = figure(scene, start, size)
    from matplotlib.animation import PillowWriter

    with tempfile.TemporaryDirectory() as folder:
        name = Path(folder) / "motion.gif"
        writer = PillowWriter(fps=fps)
        with writer.saving(picture, str(name), _DPI):
            for t in np.linspace(start, end, count):
                _draw(picture, scene, t, size)
                writer.grab_frame(facecolor="white")
        files.replace(path, lambda file: file.write(name.read_bytes()))


def figure(scene: Scene, t: float | None, size: tuple[int, int]) -> Any:
    """A figure with the scene at the time t."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("a picture needs matplotlib: pip install genalpha[plot]") from error
    if len(size) != 2 or not all(isinstance(x, int) and 16 <= x <= 8192 for x in size):
        raise ValueError(f"size is {size!r}: pass two integers from 16 to 8192, width and height in pixels")
    t = scene.times[0] if t is None else float(checks.array(t, "t"))
    if not scene.times[0] <= t <= scene.times[-1]:
        raise ValueError(
            f"t = {t:g} is outside of the scene, which reaches from t = {scene.times[0]:g} to "
            f"{scene.times[-1]:g}: pass a time within it"
        )
    picture = Figure(figsize=(size[0] / _DPI, size[1] / _DPI), dpi=_DPI, facecolor="white")
    FigureCanvasAgg(picture)
    _draw(picture, scene, t, size)
    return picture


def _draw(picture: Any, scene: Scene, t: float, size: tuple[int, int]) -> None:
    from matplotlib.collections import LineCollection, PolyCollection

    picture.clear()
    axes = picture.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, size[0])
    axes.set_ylim(0, size[1])
    axes.axis("off")
    eye, light = camera(scene, size), _light(scene)
    parts = [(item, part) for item in scene.items for part in drawn(item, scene.times, t)]
    if scene.ground is not None:
        thrown = [
            part
            for item, part in parts
            if item.shape.group in ("bodies", "joints") and item.shape.kind != "plane"
        ]
        axes.add_collection(
            PolyCollection(list(_shadows(thrown, scene.ground, light, eye)), facecolors=_SHADOW, zorder=0)
        )
        axes.add_collection(LineCollection(list(_grid(scene, eye)), colors=_GRID, linewidths=0.6, zorder=1))
    faces, colors, depths = [], [], []
    for item, part in parts:
        front = 1e-3 if item.shape.group in ("frames", "forces") else 1.0  # frames and forces are in front
        for polygons, shades, depth in (_solid(part, eye, light), _strips(part, eye)):
            faces.append(polygons)
            colors.append(shades)
            depths.append(front * depth)
    order = np.argsort(-np.concatenate(depths), kind="stable")
    shades = np.concatenate(colors)[order]
    # Edges in the colour of the face close the gaps between neighbours.
    axes.add_collection(
        PolyCollection(
            list(np.concatenate(faces)[order]),
            facecolors=shades,
            edgecolors=shades,
            linewidths=0.35,
            zorder=2,
        )
    )
    note = {"fontsize": 10, "color": "#444a50"}
    axes.text(10, 9, f"t = {t:.{_digits(scene)}f}", **note)
    if scene.title:
        axes.text(10, size[1] - 9, scene.title, va="top", **note | {"fontsize": 11})


def _digits(scene: Scene) -> int:
    span = scene.times[-1] - scene.times[0]
    return min(9, max(2, math.ceil(2 - math.log10(span)))) if span > 0 else 2


def camera(scene: Scene, size: tuple[int, int]) -> Eye:
    """The camera of the page before anybody moves it: it shows the space that the motion takes."""
    if scene.up == "y":
        tangent, axes = math.tan(math.radians(8)), np.eye(3)
    else:
        tangent, yaw, pitch = math.tan(math.radians(15)), -1.05, 0.34
        back = np.array([math.cos(pitch) * math.cos(yaw), math.cos(pitch) * math.sin(yaw), math.sin(pitch)])
        right = np.array([-math.sin(yaw), math.cos(yaw), 0.0])
        axes = np.stack([right, np.cross(back, right), back])
    centre = scene.bounds.mean(axis=0)
    choice = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij"), -1).reshape(-1, 3)
    corners = (np.take_along_axis(scene.bounds, choice, axis=0) - centre) @ axes.T
    wide = np.maximum(np.abs(corners[:, 0]) * size[1] / size[0], np.abs(corners[:, 1]))
    distance = 1.12 * float((wide / tangent + corners[:, 2]).max()) or 4 * scene.size
    return Eye(axes, centre + distance * axes[2], 0.5 * size[1] / tangent, size)


def _light(scene: Scene) -> np.ndarray:
    light = np.array([-0.4, 0.65, 1.0] if scene.up == "y" else [-0.45, -0.75, 1.35])
    return np.asarray(light / np.linalg.norm(light))


def _solid(part: Drawn, eye: Eye, light: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Faces in the picture (F, 4, 2), their colours (F, 3) and their depths (F,)."""
    normal = np.cross(part.faces[:, 2] - part.faces[:, 0], part.faces[:, 3] - part.faces[:, 1])
    flat = np.cross(part.faces[:, 1] - part.faces[:, 0], part.faces[:, 2] - part.faces[:, 0])  # of triangles
    normal = np.where(np.abs(normal).max(axis=1, keepdims=True, initial=0) > 0, normal, flat)
    normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)
    seen = eye.place - part.faces.mean(axis=1)
    seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    facing = np.einsum("ij,ij->i", normal, seen)
    normal = np.where(facing[:, None] < 0, -normal, normal)
    sun = np.maximum(normal @ light, 0)
    sky = 0.5 + 0.5 * normal @ light
    strength = 0.22 + 0.24 * sky + 0.60 * sun + 0.16 * np.abs(facing)
    base = _rgb(part.color) ** 2.2
    at, depth = eye.project(part.faces)
    return at, np.clip(strength[:, None] * base, 0, 1) ** (1 / 2.2), depth.mean(axis=1)


def _strips(part: Drawn, eye: Eye) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lines as strips in the picture, like :func:`_solid`. Those with a thickness look round."""
    at, depth = eye.project(part.lines)
    along = at[:, 1] - at[:, 0]
    size = np.linalg.norm(along, axis=1, keepdims=True)
    along = np.where(size > 0, along, [1.0, 0.0]) / np.where(size > 0, size, 1.0)
    mean = depth.mean(axis=1)
    half = np.full_like(mean, 0.5 * part.wide) if part.pixels else 0.5 * part.wide * eye.focus / mean
    side = half[:, None] * np.stack([-along[:, 1], along[:, 0]], axis=1)
    more = 0.4 * half[:, None] * along
    strip = lambda s: np.stack(
        [
            at[:, 0] - more - s * side,
            at[:, 1] + more - s * side,
            at[:, 1] + more + s * side,
            at[:, 0] - more + s * side,
        ],
        axis=1,
    )
    color = np.broadcast_to(_rgb(part.color), (len(at), 3))
    if part.pixels:
        return strip(1.0), color, mean
    near = 1e-3 * part.wide
    return (
        np.concatenate([strip(1.0), strip(0.45)]),
        np.concatenate([0.62 * color, np.minimum(1.0, 1.06 * color)]),
        np.concatenate([mean, mean - near]),
    )


def _shadows(parts: list[Drawn], ground: float, light: np.ndarray, eye: Eye) -> np.ndarray:
    """Shadows of faces on the grid, in the picture (F, 4, 2)."""
    faces = np.concatenate([part.faces for part in parts]) if parts else np.zeros((0, 4, 3))
    faces = faces[(faces[..., 2] >= ground).all(axis=1)]
    flat = faces - (faces[..., 2:] - ground) / light[2] * light
    return eye.project(flat)[0]


def _grid(scene: Scene, eye: Eye) -> np.ndarray:
    """Lines of the grid in the picture (L, 2, 2)."""
    unit = 10.0 ** math.floor(math.log10(scene.size / 4))
    step = unit * max(s for s in (1, 2, 5) if s * unit <= scene.size / 4 * (1 + 1e-9))
    (x0, y0), (x1, y1) = (
        np.floor(scene.bounds[0, :2] / step - 0.999) * step,
        np.ceil(scene.bounds[1, :2] / step + 0.999) * step,
    )
    z = scene.ground or 0.0
    lines = [[[x, y0, z], [x, y1, z]] for x in np.arange(x0, x1 + step / 2, step)]
    lines += [[[x0, y, z], [x1, y, z]] for y in np.arange(y0, y1 + step / 2, step)]
    return eye.project(np.array(lines))[0]


def _rgb(color: str) -> np.ndarray:
    return np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
