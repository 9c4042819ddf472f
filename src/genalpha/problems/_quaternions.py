"""Quaternions in NumPy for the references, independent of those of the package."""

from __future__ import annotations

import math

import numpy as np

from genalpha.problems._problem import Vector

BODY_COORDINATES = ("x", "y", "z", "qw", "qx", "qy", "qz")


def matrix(p: Vector) -> Vector:
    """Rotation matrix (3, 3) of a unit quaternion."""
    w, u = p[0], p[1:]
    return (w**2 - u @ u) * np.eye(3) + 2 * np.outer(u, u) + 2 * w * skew(u)


def skew(a: Vector) -> Vector:
    """The matrix (3, 3) with skew(a) b = a × b."""
    return np.array([[0.0, -a[2], a[1]], [a[2], 0.0, -a[0]], [-a[1], a[0], 0.0]])


def rate(p: Vector, omega: Vector) -> Vector:
    """Quaternion rate ½ p ∘ (0, Ω), which keeps |p| constant."""
    return 0.5 * np.array([-p[1:] @ omega, *(p[0] * omega + np.cross(p[1:], omega))])


def product(p: Vector, r: Vector) -> Vector:
    """Quaternion product p ∘ r."""
    return np.array([p[0] * r[0] - p[1:] @ r[1:], *(p[0] * r[1:] + r[0] * p[1:] + np.cross(p[1:], r[1:]))])


def turn(axis: int, angle: float) -> Vector:
    """Quaternion of a rotation about a coordinate axis."""
    p = np.zeros(4)
    p[0], p[1 + axis] = math.cos(angle / 2), math.sin(angle / 2)
    return p
