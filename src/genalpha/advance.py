"""One step: predict, solve, finish."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from genalpha import newton
from genalpha.methods import Method
from genalpha.state import Carry, NewtonMemory, NewtonReport, Output, Scale, State
from genalpha.system import Args, Dims, System


class Setup(NamedTuple):
    """What a run is made of, fixed before anything is traced."""

    system: System
    method: Method
    newton: newton.Newton
    dims: Dims


class Memory(NamedTuple):
    """What makes the next Newton iteration short: a parabola through the last solutions, and a matrix.

    ``x`` (N,) is the last solution, ``slope`` and ``bend`` are its first and second divided differences.
    """

    x: Array
    slope: Array
    bend: Array
    newton: NewtonMemory


def no_memory(setup: Setup, scale: Scale, carry: Carry, state: State) -> Memory:
    """The memory before the first step: unknowns as at the start, differences zero, no matrix."""
    start = {"a": carry.a / scale.a, "lam": state.lam / scale.lam, "psi": state.psi / scale.psi}
    sizes = setup.method.sizes(setup.dims)
    x = jnp.concatenate([start.get(name, jnp.zeros(size)) for name, size in sizes.items()])
    return Memory(x, jnp.zeros_like(x), jnp.zeros_like(x), newton.no_memory(x.size))


def advance(
    setup: Setup, carry: Carry, memory: Memory, t: Array, h: Array, scale: Scale, args: Args
) -> tuple[Carry, Memory, Output, NewtonReport]:
    """One step from t to t + h."""
    system, method, options, dims = setup
    step = method.prepare(system, carry, t, h, dims, scale, args)
    guess = memory.x + h * (memory.slope + (h + carry.h) * memory.bend)
    x, kept, report = newton.solve(
        options,
        lambda x: method.residual(system, step, dims, scale, x, args),
        guess,
        memory.newton,
        rounding_level(setup, scale, carry, h),
    )
    slope = (x - memory.x) / h
    memory = Memory(x, slope, (slope - memory.slope) / (h + carry.h), kept)
    carry, output = method.finish(system, step, dims, scale, x, args)
    return carry, memory, output, report


def rounding_level(setup: Setup, scale: Scale, carry: Carry, h: Array) -> Array:
    """Corrections (N,) that rounding alone causes in each scaled unknown.

    Rows g/(βh²) carry rounding of q, of size ε|q|/(βh²). They determine δ, μ, ν, which only correct the
    positions; a, λ and ψ are determined by rows k/(γh) and the hidden ones, with rounding of v.
    """
    eps = jnp.finfo(float).eps
    position = jnp.max(setup.system.space.magnitude(carry.q) / scale.a)
    velocity = jnp.max(jnp.abs(carry.v) / scale.a)
    low = 2 * eps / h * velocity
    high = low + 4 * eps / h**2 * position
    sizes = setup.method.sizes(setup.dims).items()
    return jnp.concatenate([jnp.full(size, high if name in POSITION_LEVEL else low) for name, size in sizes])


POSITION_LEVEL = {"delta", "mu", "nu"}
