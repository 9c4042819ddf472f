"""Small systems that tests share, so that each compiles once in a worker; what differs goes through args."""

from __future__ import annotations

import functools

import jax.numpy as jnp
import numpy as np

import genalpha as ga

G = 9.81


@functools.cache
def oscillator() -> ga.System:
    """q'' = −q."""
    return ga.System(np.eye(1), lambda t, q, v: -q)


@functools.cache
def spring() -> ga.System:
    """q'' = −k q, args (k,)."""
    return ga.System(np.eye(1), lambda t, q, v, k: -k * q)


@functools.cache
def ball() -> ga.System:
    """A ball that falls."""
    return ga.System(np.eye(1), lambda t, q, v: jnp.array([-G]))


@functools.cache
def free() -> ga.System:
    """A point without forces."""
    return ga.System(np.eye(1), lambda t, q, v: jnp.zeros(1))


@functools.cache
def circle() -> ga.System:
    """A point on the unit circle, under gravity."""
    return ga.System(np.eye(2), lambda t, q, v: jnp.array([0.0, -G]), lambda t, q: jnp.array([q @ q - 1.0]))


@functools.cache
def pulled() -> ga.System:
    """A point on the unit circle, args (g,): gravity."""
    return ga.System(
        np.eye(2), lambda t, q, v, g: g * jnp.array([0.0, -1.0]), lambda t, q, g: jnp.array([q @ q - 1.0])
    )


@functools.cache
def pendulum() -> ga.System:
    """A point on a circle, args (length,)."""
    return ga.System(
        np.eye(2),
        lambda t, q, v, length: jnp.array([0.0, -G]),
        lambda t, q, length: jnp.array([q @ q - length**2]),
    )


@functools.cache
def ending() -> ga.System:
    """A point on the unit circle whose force is no number after a time, args (end,)."""
    return ga.System(
        np.eye(2),
        lambda t, q, v, end: jnp.where(t > end, jnp.nan, jnp.array([0.0, -G])),
        lambda t, q, end: jnp.array([q @ q - 1.0]),
    )


@functools.cache
def fading() -> ga.System:
    """Two bodies on a slope, x = y/2; the mass of the first one is gone at a time, args (gone,), and returns.

    The force is no number where that time is negative.
    """
    return ga.System(
        lambda t, q, gone: jnp.diag(jnp.array([2 * jnp.abs(gone - t), 1.0])),
        lambda t, q, v, gone: jnp.where(gone < 0, jnp.nan, 1.0) * jnp.array([0.0, 1.0]),
        lambda t, q, gone: jnp.array([q[0] - 0.5 * q[1]]),
    )


TROUBLES = ("jump", "square", "exponential", "no number", "steady")


@functools.cache
def trouble() -> ga.System:
    """q'' is one of five forces, args (index, t0): 50 after t0, v², exp(q), no number after t0, −1."""

    def force(t, q, v, kind, t0):
        every = [
            jnp.where(t > t0, 50.0, 0.0) * jnp.ones(1),
            v**2,
            jnp.exp(q),
            jnp.where(t > t0, jnp.nan, 1.0) * jnp.ones(1),
            -jnp.ones(1),
        ]
        return jnp.select([kind == i for i in range(4)], every[:4], every[4])

    return ga.System(np.eye(1), force)


def troubled(name: str, t0: float = 0.0) -> dict[str, object]:
    """The system and the arguments of one of the five."""
    return {"system": trouble(), "args": (float(TROUBLES.index(name)), t0)}
