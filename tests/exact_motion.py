"""The motion of any system by an independent integrator: DOP853 on the underlying ODE."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from genalpha.mechanics import initial_values


@functools.cache
def right_side(system, dims):
    """The underlying ODE."""

    @jax.jit
    def rhs(t, y, args):
        q, v = y[: dims.size], y[dims.size :]
        scale = initial_values.scales(initial_values.matrices(system, dims, t, q, v, args))
        a, _, _ = initial_values.underlying(system, dims, scale, t, q, v, args)
        return jnp.concatenate([system.space.rate(q, v), a])

    return rhs


@functools.cache
def multipliers(system, dims):
    """λ and ψ of a state, one after the other."""

    @jax.jit
    def found(t, q, v, args):
        scale = initial_values.scales(initial_values.matrices(system, dims, t, q, v, args))
        return jnp.concatenate(initial_values.underlying(system, dims, scale, t, q, v, args)[1:])

    return found


def motion(system, dims, span, start, args, rtol, atol, **options):
    """The result of ``solve_ivp`` from ``start`` (q, v)."""
    rhs = right_side(system, dims)
    return solve_ivp(
        lambda t, y: np.asarray(rhs(t, y, args)),
        span,
        np.concatenate(start),
        method="DOP853",
        rtol=rtol,
        atol=atol,
        **options,
    )
