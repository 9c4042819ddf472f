"""What every joint lets move, by hand: for tests that do not believe its rows."""

from __future__ import annotations

import functools

import numpy as np
from scipy.spatial.transform import Rotation

from genalpha import multibody as mb
from genalpha.multibody.frames import FrameState

X, Y, Z = np.eye(3)
PITCH, LENGTH = 1.3, 0.7
SLIDE = {name: np.concatenate([v, 0 * v]) for name, v in zip("xyz", (X, Y, Z), strict=True)}
SPIN = {name: np.concatenate([0 * v, v]) for name, v in zip("xyz", (X, Y, Z), strict=True)}
BALL = [SPIN[x] for x in "xyz"]

# The motions (v, w) of the body of b relative to that of a, at the origin of b, in the axes of a.
FREEDOMS = {
    "spherical": BALL,
    "revolute": [SPIN["z"]],
    "prismatic": [SLIDE["z"]],
    "cylindrical": [SLIDE["z"], SPIN["z"]],
    "planar": [SLIDE["x"], SLIDE["y"], SPIN["z"]],
    "weld": [],
    "line": [SLIDE["z"], *BALL],
    "plane": [SLIDE["x"], SLIDE["y"], *BALL],
    "screw": [SPIN["z"] + PITCH / (2 * np.pi) * SLIDE["z"]],
}


def freedoms(name: str, a: FrameState, b: FrameState) -> np.ndarray:
    """The possible motions (6, f) of b relative to a."""
    if name == "universal":
        return np.stack([SPIN["z"], np.concatenate([0 * X, a.R.T @ b.R[:, 2]])], axis=1)
    if name == "distance":
        d = a.R.T @ (b.x - a.x)
        across = np.linalg.svd(d[None])[2][1:]
        return np.stack([*BALL, *(np.concatenate([v, 0 * v]) for v in across)], axis=1)
    return np.array(FREEDOMS[name]).reshape(-1, 6).T


# Joints that are made of a name and two frames.
JOINTS = {
    "spherical": mb.Spherical,
    "revolute": mb.Revolute,
    "prismatic": mb.Prismatic,
    "cylindrical": mb.Cylindrical,
    "universal": mb.Universal,
    "planar": mb.Planar,
    "weld": mb.Weld,
    "line": mb.PointOnLine,
    "plane": mb.PointOnPlane,
    "screw": functools.partial(mb.Screw, pitch=PITCH),
}


def joints() -> dict[str, mb.Joint]:
    """A joint of every kind between two bodies."""
    one, two = (mb.Body(name, mb.box(1.0, (0.1, 0.2, 0.3))) for name in ("one", "two"))
    found = {name: kind(name, one, two) for name, kind in JOINTS.items()}
    found["distance"] = mb.Distance("distance", one, two, length=LENGTH)
    return found


def frame(rng: np.random.Generator) -> FrameState:
    """A frame anywhere, with velocities."""
    R = Rotation.random(rng=rng).as_matrix()
    return FrameState(rng.normal(size=3), R, rng.normal(size=3), rng.normal(size=3))


def closed(name: str, rng: np.random.Generator) -> tuple[FrameState, FrameState]:
    """Frames a and b that the joint allows, with velocities that it need not allow."""
    a, b = frame(rng), frame(rng)
    x, angle = np.zeros(3), 0.0
    if name in ("revolute", "cylindrical", "planar"):
        angle = rng.uniform(-3, 3)
    if name in ("prismatic", "cylindrical", "line", "screw"):
        x = rng.normal() * Z
    if name in ("planar", "plane"):
        x = np.array([*rng.normal(size=2), 0.0])
    if name == "screw":
        angle = 2 * np.pi * x[2] / PITCH
    if name == "distance":
        x = rng.normal(size=3)
        x *= LENGTH / np.linalg.norm(x)
    turned = Rotation.from_rotvec(angle * Z).as_matrix()
    if name == "universal":  # about z of a, then z of b is across, then about that
        across = Rotation.from_euler("ZXZ", [rng.uniform(-3, 3), np.pi / 2, rng.uniform(-3, 3)])
        turned = across.as_matrix()
    if name in ("spherical", "line", "plane", "distance"):
        turned = a.R.T @ b.R
    return a, b._replace(x=a.x + a.R @ x, R=a.R @ turned)


def moved(f: FrameState, v: np.ndarray, w: np.ndarray, about: np.ndarray, t: float) -> FrameState:
    """A frame after a time t of a steady motion: its body turns by w about a point that moves with v."""
    turn = Rotation.from_rotvec(t * w).as_matrix()
    return f._replace(x=about + t * v + turn @ (f.x - about), R=turn @ f.R, v=turn @ f.v, w=turn @ f.w)


def elsewhere(f: FrameState, S: np.ndarray, shift: np.ndarray) -> FrameState:
    """A frame in other axes of space: all is turned by S and shifted."""
    return FrameState(S @ f.x + shift, S @ f.R, S @ f.v, S @ f.w)
