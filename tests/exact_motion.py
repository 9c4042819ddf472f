"""The motion of any system by an independent integrator: DOP853 on the underlying ODE."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import solve_ivp

from genalpha.mechanics import initial_values
from genalpha.mechanics.system import Dims, System


@functools.cache
def right_side(system: System, dims: Dims) -> Callable[..., jax.Array]:
    """The underlying ODE."""

    @jax.jit
    def rhs(t: Any, y: Any, args: Any) -> jax.Array:
        q, v = y[: dims.size], y[dims.size :]
        scale = initial_values.scales(initial_values.matrices(system, dims, t, q, v, args))
        a, _, _ = initial_values.underlying(system, dims, scale, t, q, v, args)
        return jnp.concatenate([system.space.rate(q, v), a])

    return rhs


@functools.cache
def multipliers(system: System, dims: Dims) -> Callable[..., jax.Array]:
    """λ and ψ of a state, one after the other."""

    @jax.jit
    def found(t: Any, q: Any, v: Any, args: Any) -> jax.Array:
        scale = initial_values.scales(initial_values.matrices(system, dims, t, q, v, args))
        return jnp.concatenate(initial_values.underlying(system, dims, scale, t, q, v, args)[1:])

    return found


def motion(
    system: System,
    dims: Dims,
    span: tuple[float, float],
    start: Sequence[np.ndarray],
    args: Any,
    rtol: float,
    atol: float,
    **options: Any,
) -> Any:
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
