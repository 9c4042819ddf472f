"""Masses and inertia tensors of simple bodies, with the shapes that draw them."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from genalpha.multibody.formats import meshes
from genalpha.multibody.frames import locked, orientation, positive, vector
from genalpha.multibody.vectors import EYE
from genalpha.view import checks, shapes
from genalpha.view.shapes import Shape


def _tensor(value: Any) -> np.ndarray:
    """A tensor (3, 3), from one or from three moments."""
    try:
        found = np.array(value, dtype=float)
    except (TypeError, ValueError, OverflowError):
        found = np.full(3, np.nan)
    found = np.diag(found) if found.shape == (3,) else found
    if found.shape != (3, 3) or not np.isfinite(found).all():
        raise ValueError(f"inertia must be (3, 3) numbers, or three principal moments, got {value!r}")
    return found


@dataclass(frozen=True, eq=False)
class Inertia:
    """Mass, inertia tensor (3, 3) about the centre of mass, and the centre of mass (3,) in the body.

    ``tensor`` may also be three principal moments. ``shape`` is drawn at the centre of mass.

    >>> Inertia(2.0, [0.1, 0.2, 0.25]).mass
    2.0
    """

    mass: Any
    tensor: Any
    center: Any = (0.0, 0.0, 0.0)
    shape: Shape | None = None

    def __post_init__(self) -> None:
        put = lambda name, value: object.__setattr__(self, name, value)
        put("mass", positive(self.mass, "mass"))
        put("center", locked(vector(self.center, "center")))
        found = _tensor(self.tensor)
        size = np.abs(found).max()
        if np.abs(found - found.T).max() > 1e-9 * size:
            raise ValueError("inertia must be symmetric: entry [i, j] must equal entry [j, i]")
        found = 0.5 * (found + found.T)
        moments = np.linalg.eigvalsh(found)
        if moments[0] < -1e-9 * size:
            raise ValueError(f"inertia has the negative principal moment {moments[0]:.6g}")
        if moments[2] > (moments[0] + moments[1]) * (1 + 1e-9):
            named = "{:.6g}, {:.6g} and {:.6g}".format(*moments)
            raise ValueError(
                f"no body has the principal moments of inertia {named}: the largest is at most the sum of "
                "the other two"
            )
        if moments[0] <= 1e-12 * size:
            raise ValueError(
                "inertia has a principal moment of zero, but a rigid body turns about every axis: give a rod "
                "a radius, or use a PointMass"
            )
        put("tensor", locked(found))

    def __reduce__(self) -> Any:
        """What was written down by pickle cannot be written to either."""
        return Inertia, (self.mass, self.tensor, self.center, self.shape)

    @classmethod
    def in_frame(
        cls, mass: Any, tensor: Any, center: Any, at: Any = (0.0, 0.0, 0.0), rotation: Any = None
    ) -> Inertia:
        """From a tensor (3, 3) about the origin of a frame, in its axes.

        The frame is at the point ``at`` (3,) of the body, with its axes turned by ``rotation``; by default it
        is that of the body. ``center`` is the centre of mass in the body.

        >>> rod = Inertia.in_frame(3.0, [0.1, 4.0, 4.0], center=(1, 0, 0))  # about its end: m l²/3
        >>> rod.tensor[1, 1].round(12).item()  # m l²/12
        1.0
        """
        given, R = _tensor(tensor), orientation(rotation, "rotation")
        m, d = positive(mass, "mass"), vector(at, "at") - vector(center, "center")
        return cls(m, R @ given @ R.T - m * (d @ d * EYE - np.outer(d, d)), center)

    def about(self, point: Any) -> np.ndarray:
        """The tensor (3, 3) about another point of the body (Steiner)."""
        d = vector(point, "point") - self.center
        return self.tensor + self.mass * (d @ d * EYE - np.outer(d, d))

    def plus(self, mass: Any, at: Any) -> Inertia:
        """With a point mass at a place of the body frame.

        >>> rod(1.0, 2.0).plus(1.0, (1, 0, 0)).center.tolist()
        [0.5, 0.0, 0.0]
        """
        m, x = positive(mass, "mass"), vector(at, "at")
        center = (self.mass * self.center + m * x) / (self.mass + m)
        d = x - center
        tensor = self.about(center) + m * (d @ d * EYE - np.outer(d, d))
        return Inertia(self.mass + m, tensor, center, self.shape)

    def moved(self, at: Any = (0.0, 0.0, 0.0), turned: Any = None) -> Inertia:
        """The same body at another place of the body frame, turned by a rotation."""
        R = orientation(turned, "turned")
        return Inertia(self.mass, R @ self.tensor @ R.T, vector(at, "at") + R @ self.center, self.shape)


def total(*parts: Inertia) -> Inertia:
    """Several bodies that are one.

    >>> bar = total(sphere(1.0, 0.1).moved((-1, 0, 0)), sphere(1.0, 0.1).moved((1, 0, 0)))
    >>> bar.mass, bar.tensor[2, 2].round(3).item()
    (2.0, 2.008)
    """
    if not parts or not all(isinstance(part, Inertia) for part in parts):
        raise TypeError(f"total needs one or more of Inertia, such as mb.sphere(1.0, 0.1), got {parts!r}")
    mass = sum(part.mass for part in parts)
    center = sum(part.mass * part.center for part in parts) / mass
    return Inertia(mass, sum(part.about(center) for part in parts), center)


def _mass(mass: Any, density: Any, volume: float) -> float:
    if (mass is None) == (density is None):
        raise ValueError("pass either mass or density")
    return positive(mass, "mass") if density is None else positive(density, "density") * volume


def box(mass: Any = None, size: Any = None, *, density: Any = None) -> Inertia:
    """A box with three edge lengths."""
    lengths = vector(size, "size")
    for length in lengths:
        positive(length, "size of a box")
    m = _mass(mass, density, float(np.prod(lengths)))
    squares = lengths**2
    return Inertia(m, m / 12 * (squares.sum() - squares), shape=shapes.Box(tuple(lengths)))


def sphere(mass: Any = None, radius: Any = None, *, density: Any = None, hollow: bool = False) -> Inertia:
    """A ball, or a thin shell if it is ``hollow`` (``density`` is then per area)."""
    r = positive(radius, "radius")
    m = _mass(mass, density, 4 * np.pi * r**2 if hollow else 4 / 3 * np.pi * r**3)
    return Inertia(m, np.full(3, (2 / 3 if hollow else 2 / 5) * m * r**2), shape=shapes.Sphere(r))


def _round(mass: float, across: float, along: float, axis: str) -> tuple[float, np.ndarray]:
    """Principal moments of a body that is round about an axis."""
    moments = np.full(3, across)
    moments[checks.AXES[checks.axis(axis, "a round body")]] = along
    return mass, moments


def cylinder(
    mass: Any = None, radius: Any = None, length: Any = None, axis: str = "z", *, density: Any = None
) -> Inertia:
    """A cylinder along an axis of the body."""
    r, n = positive(radius, "radius"), positive(length, "length")
    m = _mass(mass, density, np.pi * r**2 * n)
    moments = _round(m, m * (3 * r**2 + n**2) / 12, m * r**2 / 2, axis)
    return Inertia(*moments, shape=shapes.Cylinder(r, n, axis))


def capsule(
    mass: Any = None, radius: Any = None, length: Any = None, axis: str = "z", *, density: Any = None
) -> Inertia:
    """A cylinder of a length with half spheres at its ends."""
    r, n = positive(radius, "radius"), positive(length, "length")
    tube, ends = np.pi * r**2 * n, 4 / 3 * np.pi * r**3
    m = _mass(mass, density, tube + ends)
    a, b = m * tube / (tube + ends), m * ends / (tube + ends)  # the masses of the two
    across = a * (3 * r**2 + n**2) / 12 + b * (2 / 5 * r**2 + n**2 / 4 + 3 / 8 * n * r)
    moments = _round(m, across, a * r**2 / 2 + b * 2 / 5 * r**2, axis)
    return Inertia(*moments, shape=shapes.Capsule(r, n, axis))


def rod(
    mass: Any = None, length: Any = None, axis: str = "x", radius: Any = None, *, density: Any = None
) -> Inertia:
    """A slender rod along an axis. Without a radius, a fiftieth of the length."""
    n = positive(length, "length")
    return cylinder(mass, n / 50 if radius is None else radius, n, axis, density=density)


def mesh(
    surface: Any, triangles: Any = None, *, mass: Any = None, density: Any = None, scale: Any = 1.0
) -> Inertia:
    """A solid whose surface is made of triangles (T, 3), which are seen counter-clockwise from outside.

    ``surface`` are points (V, 3), to which the triangles refer; or a file, STL or OBJ, or another one that
    trimesh reads if it is installed; or an object with ``vertices`` and ``faces``, such as those of trimesh.
    ``scale`` multiplies the points: 1e-3 for a file in millimetres.

    The integrals are sums over tetrahedra from the origin to each triangle.

    >>> corners = np.stack(np.meshgrid([0, 1], [0, 1], [0, 1], indexing="ij"), -1).reshape(-1, 3)
    >>> faces = [[0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1]]
    >>> faces += [[2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]]
    >>> cube = mesh(corners, faces, density=6.0)
    >>> cube.mass.__round__(12), (cube.tensor.round(12) + 0.0).tolist()
    (6.0, [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    """
    vertices, triangles = _surface(surface, triangles)
    vertices = positive(scale, "scale of a mesh") * np.asarray(vertices, dtype=float)
    drawn = shapes.Mesh(vertices, triangles)
    _check_closed(vertices, np.asarray(triangles))
    corners = vertices[np.asarray(triangles)]  # (T, 3, 3)
    volumes = np.einsum("ti,ti->t", corners[:, 0], np.cross(corners[:, 1], corners[:, 2])) / 6
    volume = volumes.sum()
    if not volume > 0:
        raise ValueError(
            f"the mesh encloses the volume {volume:.6g}: it must be closed, with triangles that are seen "
            "counter-clockwise from outside"
        )
    m = _mass(mass, density, float(volume))
    sums = corners.sum(axis=1)
    center = volumes @ sums / 4 / volume
    square = np.einsum("t,tki,tkj->ij", volumes, corners, corners)
    square = (square + np.einsum("t,ti,tj->ij", volumes, sums, sums)) / 20 / volume
    spread = square - np.outer(center, center)
    placed = shapes.Mesh(vertices - center, drawn.triangles)
    return Inertia(m, m * (np.trace(spread) * EYE - spread), center, placed)


def _surface(surface: Any, triangles: Any) -> tuple[Any, Any]:
    """Points (V, 3) and triangles (T, 3) of a surface."""
    if triangles is not None:
        return surface, triangles
    if isinstance(surface, str | os.PathLike):
        path = Path(surface)
        if not path.is_file():
            raise FileNotFoundError(f"there is no mesh {os.fspath(path)!r}")
        if path.suffix.lower() in meshes.FORMATS:
            return meshes.read(path)
        try:
            trimesh = importlib.import_module("trimesh")
        except ImportError as error:
            formats = " and ".join(meshes.FORMATS)
            raise ValueError(
                f"a mesh in a {path.suffix} file needs trimesh: pip install trimesh, or write {formats}"
            ) from error
        surface = trimesh.load(path, force="mesh")
    if not (hasattr(surface, "vertices") and hasattr(surface, "faces")):
        raise TypeError(
            "a mesh is points and triangles, a file, or an object with vertices and faces, got "
            f"{type(surface).__name__} and no triangles"
        )
    return surface.vertices, surface.faces


def _check_closed(vertices: np.ndarray, triangles: np.ndarray) -> None:
    """Refuse a surface in which an edge has not the two directions of two triangles."""
    same = np.unique(vertices, axis=0, return_inverse=True)[1].reshape(-1)
    edges = np.concatenate([same[triangles[:, pair]] for pair in ([0, 1], [1, 2], [2, 0])])
    edges = edges[edges[:, 0] != edges[:, 1]]
    lowest, direction = np.sort(edges, axis=1), np.where(edges[:, 0] < edges[:, 1], 1, -1)
    _, first, which = np.unique(lowest, axis=0, return_index=True, return_inverse=True)
    wrong = np.flatnonzero(np.bincount(which.reshape(-1), direction))
    if wrong.size:
        a, b = (np.flatnonzero(same == i)[0] for i in edges[first[wrong[0]]])
        raise ValueError(
            f"{wrong.size} edges of the mesh do not belong to two triangles with opposite directions, the "
            f"first from {vertices[a].tolist()} to {vertices[b].tolist()}: it must be closed, with triangles "
            "that are seen counter-clockwise from outside"
        )
