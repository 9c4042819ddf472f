"""The functions of events at states of a run, with the multipliers that belong to the state."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.engine import events
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.setup import Setup
from genalpha.mechanics import initial_values
from genalpha.mechanics.along import rate_along
from genalpha.mechanics.system import Args
from genalpha.numerics.data import Scale, State


def values(setup: Setup, at: StepEnd, args: Args, scale: Scale | None = None) -> Array:
    """The functions of all events (E,) at a state.

    If one of them depends on λ or ψ, these solve the equations of motion and the hidden acceleration
    constraints at (t, q, v), as those of the rows do. With a reaction of the user's own they are the method's
    own, because its equations need an iteration.
    """
    system, dims, (t, q, v, lam, psi) = setup.system, setup.dims, at
    if any(c.loads for c in setup.crossings) and dims.m + dims.p and system.reaction is None:
        if scale is None:
            scale = initial_values.scales(initial_values.matrices(system, dims, t, q, v, args))
        _, lam, psi = initial_values.underlying(system, dims, scale, t, q, v, args)
    return events.values(setup.crossings, t, q, v, lam, psi, args)


def soon(setup: Setup, state: State, by: float, args: Args) -> Array:
    """The changes of the functions of events (E,) within a short time ``by`` after a state.

    They follow from the rates along v and a. If a rate is zero, or if the function depends on λ or ψ, the
    change is that of the function itself.
    """
    t, q, v, a, lam, psi = state
    space, loads = setup.system.space, np.array([c.loads for c in setup.crossings])
    at = lambda t, q, v: values(setup, StepEnd(t, q, v, lam, psi), args)
    fixed = lambda t, q, v: events.values(setup.crossings, t, q, v, lam, psi, args)
    now, rate = rate_along(space, fixed, t, q, v, (v, a))
    now = jnp.where(loads, at(t, q, v), now)
    later = at(t + by, space.retract(q, by * v + 0.5 * by**2 * a), v + by * a)
    return jnp.where((rate == 0) | loads, later - now, rate * by)
