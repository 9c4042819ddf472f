"""Derivatives of runs by differences, and systems whose start and arguments follow a few numbers."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import genalpha as ga
import random_mechanisms
import random_systems
from genalpha import rotation

EXACT = ga.Newton("full", tol=1e-14)
OUTPUTS = ("q", "v", "a", "a_alpha", "lam", "psi", "lam_method", "psi_method")


def richardson(function: Callable[[float], Any], step: float, levels: int = 5) -> Any:
    """The derivative at 0: central differences with steps that are halved, extrapolated to a step of zero."""
    rows: list[Any] = []
    for k in range(levels):
        e = step / 2**k
        new = [(np.asarray(function(e)) - np.asarray(function(-e))) / (2 * e)]
        for j, before in enumerate(rows, 1):
            new.append(new[-1] + (new[-1] - before) / (4**j - 1))
        rows = new
    return rows[-1]


def gradient(function: Callable[[np.ndarray], Any], count: int, step: float = 0.02) -> np.ndarray:
    """The derivatives at 0 with respect to ``count`` numbers."""
    return np.stack([richardson(lambda e, d=d: function(e * d), step) for d in np.eye(count)], axis=-1)


def weighted(sol: Any, names: tuple[str, ...] = OUTPUTS, rows: slice = slice(None)) -> Any:
    """A number that every entry of some outputs changes, each by another weight."""
    parts = [getattr(sol, name) for name in names] + [sol.reactions.total, sol.reactions.holonomic]
    parts = [x[rows] for x in (*parts, *(sol.extra[name] for name in sorted(sol.extra)))]
    weights = [np.cos(1.0 + k + 0.7 * np.arange(x.size)).reshape(x.shape) for k, x in enumerate(parts)]
    return sum((x * w).sum() for x, w in zip(parts, weights, strict=True))


@dataclass(frozen=True, eq=False)
class Curve:
    """A system, and a function of three numbers that returns q0, v0 and args on the constraints.

    The first number changes the arguments, the second q0, the third v0.
    """

    system: ga.System
    at: Callable[[Any], tuple[Any, Any, Any]]
    h: np.ndarray

    def solve(self, s: Any, **options: Any) -> Any:
        given = {"h": self.h, "newton": EXACT} | options
        if "rtol" in given:
            del given["h"]
        q0, v0, args = self.at(s)
        return ga.solve(self.system, (0.0, float(self.h.sum())), q0, v0, args=args, **given)


# Uneven steps, of which two are equal.
STEPS = np.array([0.02, 0.02, 0.031, 0.017, 0.025, 0.013, 0.022])


def _changed(args: dict[str, Any], by: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Arguments that a number changes, each entry otherwise. Matrices stay symmetric."""
    found = {}
    for name, x in args.items():
        change = rng.normal(size=np.shape(x))
        if change.ndim > 1 and change.shape[-1] == change.shape[-2]:
            change = change + change.swapaxes(-1, -2)
        found[name] = x + 0.1 * by * change
    return found


@functools.cache
def poly(n: int = 3, m: int = 1, p: int = 1, seed: int = 3) -> Curve:
    """Polynomials: a mass matrix that depends on q, constraints that move."""
    structure = random_systems.poly(n, m, p)
    member = structure.draw(np.random.default_rng(seed), trait="plain")
    rng = np.random.default_rng(seed + 1)
    dq, dv, state = rng.normal(size=n), rng.normal(size=n), rng.bit_generator.state
    base = dict(member.args) | {"mu": rng.uniform(0.1, 0.5, n)}
    base |= {"d": 0.3 * np.ones(m)} if m else {}
    base |= {"e": 0.3 * np.ones(p), "H": 0.3 * rng.normal(size=(p, n, n))} if p else {}

    def at(s: Any) -> tuple[Any, Any, Any]:
        own = np.random.default_rng()
        own.bit_generator.state = state
        a, q, v = _changed(base, s[0], own), member.q0 + s[1] * dq, member.v0 + s[2] * dv
        rows, rest = [jnp.zeros((0, n))], [jnp.zeros(0)]
        if m:
            a["c"] = jnp.zeros(m)
            a["c"] = random_systems.poly_g(jnp, 0.0, q, a)
            rows, rest = [a["A"] + a["B"] @ q], [a["d"] * a["omega"]]
        if p:
            rows, rest = [*rows, a["E"] + a["H"] @ q], [*rest, a["e"]]
        matrix, right = jnp.concatenate(rows), jnp.concatenate(rest)
        if m + p:
            v = v + matrix.T @ jnp.linalg.solve(matrix @ matrix.T, right - matrix @ v)
        return q, v, (a,)

    return Curve(structure.system, at, STEPS)


def structure(name: str) -> random_systems.Structure:
    return next(s for s in random_mechanisms._bodies() if s.name == name)


def _turning(name: str, seed: int) -> tuple[Any, ...]:
    """A structure, one of its members, a turn and a spin (3,), and its args as a function of a number."""
    found = structure(name)
    member = found.draw(np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 1)
    turn, spin, state = rng.normal(size=3), rng.normal(size=3), rng.bit_generator.state

    def args(s: Any) -> Any:
        own = np.random.default_rng()
        own.bit_generator.state = state
        return _changed(member.args, s, own)

    return found, member, turn, spin, args


@functools.cache
def tied(seed: int = 5) -> Curve:
    """SO(3) × R²: a constraint that moves, and one that is quadratic in v."""
    found, member, turn, spin, args = _turning("tied", seed)

    def at(s: Any) -> tuple[Any, Any, Any]:
        a = args(s[0])
        e = rotation.multiply(member.q0[:4], rotation.from_rotation_vector(s[1] * turn))
        omega = member.v0[:3] + s[2] * spin
        height = lambda t, e: random_mechanisms.tied(jnp, t, jnp.concatenate([e, jnp.zeros(2)]), a)[0]
        e_dot = 0.5 * rotation.multiply(e, jnp.concatenate([jnp.zeros(1), omega]))
        z, z_dot = jax.jvp(height, (0.0, e), (1.0, e_dot))
        q = jnp.concatenate([e, jnp.stack([z, jnp.zeros(())])])
        last = a["gear"] * omega[2] + 0.1 * omega[0] * omega[1]
        return q, jnp.concatenate([omega, jnp.stack([z_dot, last])]), (a,)

    return Curve(found.system, at, STEPS)


@functools.cache
def top(space: str = "top", seed: int = 7) -> Curve:
    """A body that hangs on a point, in R³ × SO(3) or SE(3)."""
    found, member, turn, spin, args = _turning(space, seed)

    def at(s: Any) -> tuple[Any, Any, Any]:
        a = args(s[0])
        e = rotation.multiply(member.q0[3:], rotation.from_rotation_vector(s[1] * turn))
        omega = member.v0[3:] + s[2] * spin
        speed = jnp.cross(omega, a["X"])
        speed = speed if space == "top-se3" else rotation.rotate(e, speed)
        return jnp.concatenate([rotation.rotate(e, a["X"]), e]), jnp.concatenate([speed, omega]), (a,)

    return Curve(found.system, at, STEPS / 2)
