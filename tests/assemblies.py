"""Assemblies that tests share: each with a start that satisfies its constraints.

Sparse and dense runs need objects of their own, because compiled programs belong to the assembly.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from conftest import problem
from genalpha.backends.sparse import front

G = 9.81
ARM = np.array([0.0, 0.0, -0.5])  # from the centre of a body to its lower joint
LIMIT = {"sparse": 0, "dense": 10**9}  # of the sizes of dense runs


class Model(NamedTuple):
    assembly: ga.Assembly
    q0: np.ndarray
    v0: np.ndarray


def turned(q, s):
    """A vector of the body frame in space, from the quaternion of a body."""
    across = 2 * jnp.cross(q[4:], s)
    return s + q[3] * across + jnp.cross(q[4:], across)


def weight(t, q, v, m, J):
    """Gravity on a rigid body, and the gyroscopic torque."""
    return jnp.concatenate([-G * m * jnp.array([0.0, 0.0, 1.0]), -jnp.cross(v[3:], J * v[3:])])


def inertia(t, q, m, J):
    return jnp.diag(jnp.concatenate([m * jnp.ones(3), J]))


def pairs(count: int) -> np.ndarray:
    return np.stack([np.arange(count - 1), np.arange(1, count)], axis=1)


def bodies(m, J, joint="spherical") -> ga.Assembly:
    """Rigid bodies that hang from the origin in a chain."""
    count = len(m)

    def hook(t, q):
        d = q[:3] - turned(q, ARM)
        return d if joint == "spherical" else jnp.concatenate([d, hinge(jnp.array, q)])

    def link(t, q):
        d = q[1][:3] - turned(q[1], ARM) - (q[0][:3] + turned(q[0], ARM))
        before = lambda s: turned(q[0], jnp.array(s))
        return d if joint == "spherical" else jnp.concatenate([d, hinge(before, q[1])])

    def hinge(before, q):
        """The y axes of two bodies are parallel."""
        axis = before([0.0, 1.0, 0.0])
        return jnp.array([axis @ turned(q, jnp.array(s)) for s in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0])])

    parts = [
        ga.Part(mass=inertia, force=weight, nodes=np.arange(count), args=(m, J), name="bodies"),
        ga.Part(holonomic=hook, nodes=[0], name="hook"),
        ga.Part(holonomic=link, nodes=pairs(count), name="joints"),
    ]
    return ga.Assembly(parts, space=ga.R3xSO3(), count=count)


def spherical() -> Model:
    """The named problem, whose bodies all differ."""
    p = problem("body-chain")
    J = np.array([[0.2, 0.25, 0.1], [0.1, 0.08, 0.05], [0.15, 0.12, 0.2]])
    return Model(bodies(np.array([2.0, 1.0, 1.5]), J), p.q0, p.v0)


def revolute(count: int = 5) -> Model:
    """A chain that moves in a plane, at rest at the start."""
    q, end = np.zeros((count, 7)), np.zeros(3)
    for i in range(count):
        angle = 0.5 + 0.3 * np.sin(i)
        arm = np.array([np.sin(angle), 0.0, np.cos(angle)]) * ARM[2]
        q[i] = [*(end + arm), np.cos(angle / 2), 0.0, np.sin(angle / 2), 0.0]
        end = end + 2 * arm
    m, J = 1.0 + 0.2 * np.arange(count), np.tile([0.2, 0.25, 0.1], (count, 1))
    return Model(bodies(m, J, "revolute"), q.reshape(-1), np.zeros(6 * count))


def distance(d, length):
    return jnp.array([0.5 * (d @ d - length**2)])


def rods(count: int = 6) -> Model:
    """Point masses on a chain of rods with springs to the next but one, args per copy and shared.

    A force that depends on time pulls all of them. args are ((masses, g), (), (lengths,), (k,)).
    """
    m, lengths = 1.0 + 0.3 * np.cos(np.arange(count)), 0.5 + 0.1 * np.arange(count - 1)

    def pull(t, q, v, m, g):
        return m * jnp.array([0.5 * jnp.sin(3 * t), -g]) - 0.1 * v

    def spring(t, q, v, k):
        d = q[1] - q[0]
        return jnp.stack([k * d, -k * d])

    parts = [
        ga.Part(
            mass=lambda t, q, m, g: m * jnp.eye(2),
            force=pull,
            nodes=np.arange(count),
            args=(m, G),
            name="points",
        ),
        ga.Part(holonomic=lambda t, q: distance(q, 1.0), nodes=[0], name="hook"),
        ga.Part(
            holonomic=lambda t, q, length: distance(q[1] - q[0], length),
            nodes=pairs(count),
            args=(lengths,),
            name="rods",
        ),
        ga.Part(force=spring, nodes=np.arange(count - 2)[:, None] + [0, 2], args=(5.0,), name="springs"),
    ]
    angles = 0.3 + 0.2 * np.arange(count)
    steps = np.stack([np.sin(angles), -np.cos(angles)], axis=1) * np.array([1.0, *lengths])[:, None]
    q0 = np.cumsum(steps, axis=0).reshape(-1)
    return Model(ga.Assembly(parts, space=ga.Euclidean(2), count=count), q0, np.zeros(2 * count))


def sledges(count: int = 4) -> Model:
    """Sledges (x, y, θ) that do not slip sideways, in a row joined by springs, turned by torques in time.

    Their masses are given copy by copy.
    """
    masses = np.diag([1.0, 1.0, 0.3]) * (1 + 0.2 * np.arange(count)[:, None, None])

    def skate(t, q, v):
        return jnp.array([jnp.cos(q[2]) * v[1] - jnp.sin(q[2]) * v[0]])

    def drive(t, q, v):
        along = jnp.array([jnp.cos(q[2]), jnp.sin(q[2])])
        return jnp.concatenate([1.5 * along - 0.2 * v[:2], jnp.array([0.4 * jnp.cos(2 * t)])])

    def spring(t, q, v):
        d = q[1][:2] - q[0][:2]
        f = jnp.concatenate([3.0 * d * (1 - 1 / jnp.sqrt(d @ d)), jnp.zeros(1)])
        return jnp.stack([f, -f])

    parts = [
        ga.Part(
            mass=masses,
            force=drive,
            nonholonomic=skate,
            nodes=np.arange(count),
            name="sledges",
        ),
        ga.Part(force=spring, nodes=pairs(count), name="springs"),
    ]
    q0, v0 = np.zeros((count, 3)), np.zeros((count, 3))
    q0[:, 0], q0[:, 2] = 1.2 * np.arange(count), 0.3 * np.arange(count)
    v0[:, :2] = 0.5 * np.stack([np.cos(q0[:, 2]), np.sin(q0[:, 2])], axis=1)
    return Model(ga.Assembly(parts, space=ga.Euclidean(3), count=count), q0.reshape(-1), v0.reshape(-1))


def beads(count: int = 4, constrained: bool = True) -> Model:
    """Beads in polar coordinates (r, φ), whose masses depend on q and t, joined by springs.

    The radii of neighbours have a given difference if the beads are constrained.
    """

    def mass(t, q):
        return (2 + jnp.sin(t)) * jnp.array([[1.0, 0.1 * q[0]], [0.1 * q[0], q[0] ** 2]])

    def force(t, q, v):
        return jnp.array([q[0] * v[1] ** 2 - 4 * (q[0] - 1), -2 * q[0] * v[0] * v[1] + jnp.cos(t)])

    def spring(t, q, v):
        f = 2.0 * jnp.sin(q[1][1] - q[0][1])
        return jnp.array([[0.0, f], [0.0, -f]])

    parts = [
        ga.Part(mass=mass, force=force, nodes=np.arange(count), name="beads"),
        ga.Part(force=spring, nodes=pairs(count), name="springs"),
    ]
    if constrained:
        apart = lambda t, q, d: jnp.array([q[1][0] * jnp.cos(0.1 * q[1][1]) - q[0][0] - d])
        parts += [ga.Part(holonomic=apart, nodes=pairs(count), args=(0.1 * np.ones(count - 1),), name="bars")]
    q0, v0 = np.zeros((count, 2)), np.zeros((count, 2))
    q0[:, 0], v0[:, 1] = 1 + 0.1 * np.arange(count), 0.2 * np.arange(count)
    return Model(ga.Assembly(parts, space=ga.Euclidean(2), count=count), q0.reshape(-1), v0.reshape(-1))


def flails() -> Model:
    """Bodies and points in turn: each point is fixed to its body, and all are joined by springs."""
    tip = np.array([0.1, 0.2, 0.3])

    def spring(t, q, v):
        f = 4.0 * (q[1] - q[0][:3])
        return jnp.concatenate([f, jnp.zeros(3)]), -f

    J, body = np.array([[0.2, 0.25, 0.1], [0.3, 0.1, 0.2]]), np.array([0, 2])
    parts = [
        ga.Part(mass=inertia, force=weight, nodes=body, args=(np.array([1.0, 2.0]), J), name="bodies"),
        ga.Part(mass=0.5 * np.eye(3), nodes=[3, 1], name="points"),
        ga.Part(
            holonomic=lambda t, q: q[1] - q[0][:3] - turned(q[0], tip), nodes=[[2, 3], [0, 1]], name="fix"
        ),
        ga.Part(force=spring, nodes=[[0, 3], [2, 1]], name="springs"),
    ]
    spaces = [ga.R3xSO3(), ga.Euclidean(3)] * 2
    place, spin = np.array([1.0, 0.0, 0.0]), np.array([0.5, -1.0, 2.0])
    one, other = (np.array([*x, 1.0, 0.0, 0.0, 0.0, *(x + tip)]) for x in (place, -place))
    moving = np.array([0.0, 0.0, 0.0, *spin, *np.cross(spin, tip)])
    return Model(ga.Assembly(parts, spaces), np.concatenate([one, other]), np.concatenate([moving, -moving]))


def wires(count: int = 4) -> Model:
    """Points (x, y) on wires y = c x², with Coulomb friction of the wire's own force, joined by springs.

    One more point moves on a knife edge, so that there are multipliers of both kinds.
    """
    across = lambda q, c: jnp.array([-2 * c * q[0], 1.0])

    def rub(t, q, v, lam, psi, c):
        pressure = jnp.sqrt((lam[0] ** 2) * (1 + (2 * c * q[0]) ** 2) + 1e-4)
        along = jnp.array([1.0, 2 * c * q[0]]) / jnp.sqrt(1 + (2 * c * q[0]) ** 2)
        return -across(q, c) * lam[0] - 0.3 * pressure * jnp.tanh(along @ v / 0.1) * along

    def spring(t, q, v):
        f = 3.0 * (q[1] - q[0] - jnp.array([1.0, 0.0]))
        return jnp.stack([f, -f])

    parts = [
        ga.Part(
            mass=np.eye(2), force=lambda t, q, v: jnp.array([0.0, -G]), nodes=np.arange(count), name="points"
        ),
        ga.Part(
            holonomic=lambda t, q, c: jnp.array([q[1] - c * q[0] ** 2]),
            reaction=rub,
            nodes=np.arange(count - 1),
            args=(np.linspace(0.2, 0.5, count - 1),),
            name="wires",
        ),
        ga.Part(nonholonomic=lambda t, q, v: jnp.array([v[1] - jnp.sin(q[0]) * v[0]]), nodes=[count - 1]),
        ga.Part(force=spring, nodes=pairs(count), name="springs"),
    ]
    x = 0.8 * np.arange(count) - 1.0
    q0 = np.stack([x, np.append(np.linspace(0.2, 0.5, count - 1) * x[:-1] ** 2, 0.3)], axis=1)
    return Model(ga.Assembly(parts, space=ga.Euclidean(2), count=count), q0.reshape(-1), np.zeros(2 * count))


MODELS: dict[str, Callable[[], Model]] = {
    "spherical": spherical,
    "revolute": revolute,
    "flails": flails,
    "rods": rods,
    "sledges": sledges,
    "wires": wires,
    "beads": beads,
    "free beads": functools.partial(beads, constrained=False),
}


@functools.cache
def model(name: str, kind: str) -> Model:
    """A model of its own for sparse and for dense runs."""
    return MODELS[name]()


@contextmanager
def matrices(kind: str, begun: bool | None = None) -> Iterator[None]:
    """Let assemblies run with sparse or dense matrices, whatever their size. Fails if they do not.

    ``begun`` says whether sparse runs must begin, if ``kind`` does not say it.
    """
    runs, begin = [], front.begin
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(front, "DENSE", LIMIT[kind])
        patch.setattr(front, "DENSE_IN_BATCHES", LIMIT[kind])
        patch.setattr(front, "LARGE", LIMIT[kind])
        patch.setattr(front, "begin", lambda *args, **more: (runs.append(1), begin(*args, **more))[1])
        yield
    assert bool(runs) == (kind == "sparse" if begun is None else begun)


def solve(name: str, kind: str = "sparse", t_end: float = 0.2, **options: object) -> ga.Solution:
    """A run of a model."""
    assembly, q0, v0 = model(name, kind)
    start = () if "state" in options else (q0, v0)
    with matrices(kind):
        return ga.solve(assembly, options.pop("t_span", (0.0, t_end)), *start, **options)
