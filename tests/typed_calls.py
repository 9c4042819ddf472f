"""Calls as users write them, with lists, tuples and arrays. `make check` checks their types.

Nothing here is run.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

import genalpha as ga

pendulum = ga.System(
    mass=np.eye(2),
    force=lambda t, q, v: jnp.array([0.0, -9.81]),
    holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
    names={"q": ["x", "y"], "holonomic": ("rod",)},
    units={"q": ["m", "m"], "t": "s"},
)


def lists() -> ga.Solution:
    return ga.solve(pendulum, (0, 1), [1.0, 0], [0, 0.0], rtol=1e-6, t_eval=[0.5, 1.0], args=[2.0, [1, 2]])


def arrays() -> ga.Solution:
    q0, v0 = np.array([1.0, 0.0]), jnp.zeros(2)
    return ga.solve(pendulum, (0.0, 1.0), q0, v0, h=np.full(10, 0.1), args=(np.ones(3), {"m": 1.0}))


def tuples() -> ga.State:
    return ga.consistent(pendulum, 0, (1.0, 0.0), (0.0, 2.0), args=())


def batches() -> ga.Solution:
    return ga.solve_batch(pendulum, (0, 1), [[1.0, 0.0], [0.0, 1.0]], [0.0, 0.0], h=1e-2)


def states(sol: ga.Solution) -> ga.Solution:
    return ga.solve(pendulum, (1.0, 2.0), state=sol.state, atol=[1e-6, 1e-8])


def events(sol: ga.Solution) -> ga.Solution:
    low = ga.Event(
        lambda t, q, v: q[0], reset=lambda t, q, v: ga.Reset(v=[0.0, 0.0], q=np.zeros(2), stop=True)
    )
    batch = ga.solve_batch(
        pendulum, (0, 1), np.zeros((3, 2)), [0, 0], h=0.1, events=[low], save=("all", ["q"])
    )
    return ga.concatenate(sol, batch[0], jumps=True)


def projections() -> None:
    q = ga.project_position(pendulum, 0.0, [0.6, 0.9])
    ga.project_velocity(pendulum, 0.0, q, [0.3, 2.0])


def views(sol: ga.Solution) -> ga.View:
    ball = ga.shapes.Sphere(0.1, at=lambda t, q: q[:2], color=(1, 0, 0))
    force = ga.shapes.Arrow(at=lambda t, q: q, vector=lambda t, q, lam: lam[0] * q)
    rod = ga.shapes.Rod(start=(0, 0), end=lambda t, q: q, name="rod")
    ga.View(ga.Scene([0.0, 1.0], [ga.shapes.Box((1, 1, 1), at=np.zeros((2, 3)))], up="z"), height=300).save(
        "box.html"
    )
    return ga.view(sol, [ball, force, rod], frames=100, ground=-1.0)
