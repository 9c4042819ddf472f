"""Models for tests of sweeps. Their functions are nested, so that cloudpickle sends them by value."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import genalpha as ga


def pendulum() -> ga.System:
    return ga.System(
        mass=jnp.eye(2),
        force=lambda t, q, v, length: jnp.array([0.0, -9.81]),
        holonomic=lambda t, q, length: jnp.array([q @ q - length**2]),
        names={"q": ["x", "y"], "holonomic": ["rod"]},
    )


def study(store: Path, count: int = 100, system: ga.System | None = None, **more: Any) -> ga.Sweep:
    """A sweep over pendulums of ``count`` lengths, in blocks of about 20 runs."""
    lengths = np.linspace(0.5, 1.5, count)
    given: dict[str, Any] = {
        "over": {"length": lengths},
        "member": lambda length: {"q0": jnp.array([length, 0.0]), "v0": jnp.zeros(2), "args": (length,)},
        "h": 1e-2,
        "store": store,
        "block": 20,
    }
    return ga.sweep(pendulum() if system is None else system, (0.0, 0.5), **(given | more))


def bits(found: Any) -> dict[str, bytes]:
    """All variables of a sweep, as bytes."""
    opened = found.open()
    return {str(name): opened[name].to_numpy().tobytes() for name in opened.variables}


def slowly(seconds: float) -> Callable[[ga.Solution], dict[str, Any]]:
    """A function for ``observe`` that observes nothing, and takes so long for every batch."""

    def observe(sol: ga.Solution) -> dict[str, Any]:
        time.sleep(seconds)
        return {}

    return observe
