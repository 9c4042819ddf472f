"""One step: predict, solve, finish."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from genalpha.engine.controller import Limits, Pace, Tolerances, judged, norm
from genalpha.engine.error_estimate import linearized
from genalpha.engine.setup import Setup
from genalpha.mechanics.initial_values import project_velocity
from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import Args
from genalpha.numerics import codes, linear, newton
from genalpha.numerics.data import (
    Carry,
    NewtonMemory,
    NewtonReport,
    Scale,
    StepConstants,
    StepOutput,
    Times,
)

Parabola = tuple[Array, Array, Array]


class Memory(NamedTuple):
    """Data that shorten the next Newton iteration: a parabola through the last solutions, and a matrix.

    ``x`` (N,) is the last solution, ``slope`` and ``bend`` are its first and second divided differences.
    """

    x: Array
    slope: Array
    bend: Array
    newton: NewtonMemory


def no_memory(x: Array) -> Memory:
    """The memory before the first step: the unknowns x at the start, zero differences, no matrix."""
    return Memory(x, jnp.zeros_like(x), jnp.zeros_like(x), newton.no_memory(x.size))


def advance(
    setup: Setup,
    carry: Carry,
    memory: Memory,
    at: Times,
    scale: Scale,
    args: Args,
    implicit: bool = True,
) -> tuple[Carry, Memory, StepOutput, NewtonReport]:
    """One step. ``implicit`` makes it differentiable."""
    step, memory, report = _solved(setup, carry, memory, at, scale, args, implicit)
    carry, output = setup.method.finish(setup.system, step, setup.dims, scale, memory.x, args)
    status = close_step(report.status, output)
    if at.project is not None:
        carry, status = _project(setup, carry, at, status, args)
    return carry, memory, output, report._replace(status=status)


def close_step(status: Array, output: StepOutput) -> Array:
    """The status of a step, from the status of its iteration.

    A body may have turned too far, or a later part of the step may have failed.
    """
    return codes.first(codes.turned(status, output.turns), output.fault)


class Attempt(NamedTuple):
    """A step under error control. If it was rejected, carry, parabola and time are those before it.

    ``errors`` (2n,) are the estimated local errors of q and v, ``size`` is their norm.
    """

    accepted: Array
    carry: Carry
    memory: Memory
    pace: Pace
    output: StepOutput
    report: NewtonReport
    errors: Array
    size: Array


def attempt(
    setup: Setup,
    carry: Carry,
    memory: Memory,
    pace: Pace,
    control: tuple[Tolerances, Limits],
    scale: Scale,
    args: Args,
) -> Attempt:
    """One step, which is rejected if its error is too large or it has no solution."""
    step, tried, report = _solved(setup, carry, memory, Times(pace.t, pace.h), scale, args, implicit=False)
    after, output = setup.method.finish(setup.system, step, setup.dims, scale, tried.x, args)
    status = close_step(report.status, output)
    around = linearized(setup, scale, carry, step, tried.x, after.a, args)
    inverse = linear.Inverse(tried.newton.inverse, jnp.zeros(()))
    errors = around.errors(linear.solve(inverse, around.disturbance()))
    fit, noise = tried.newton.fit_and_noise
    closed = close_attempt(
        setup,
        control,
        pace,
        Tried(status, errors, fit, noise, report.near_singular, (after, tried[:3])),
        Before(carry, memory.newton.fit_and_noise[1], (carry, memory[:3])),
    )
    after, parabola = closed.state
    kept = tried.newton._replace(fit_and_noise=jnp.stack(closed.fit_and_noise))
    memory = Memory(parabola[0], parabola[1], parabola[2], kept)
    report = report._replace(status=status)
    return Attempt(closed.accepted, after, memory, closed.pace, output, report, errors, closed.size)


class Tried(NamedTuple):
    """A step before it is accepted or rejected.

    It holds the status, the errors (2n,), whether the matrix can be used again (``fit``), the rounding noise
    in Newton's iteration, whether its matrix was nearly singular, and the state after the step, a tree whose
    first part is the carry.
    """

    status: Any
    errors: Any
    fit: Any
    noise: Any
    near_singular: Any
    state: Any


class Before(NamedTuple):
    """The carry, the noise and the state before a step. The state is a tree like that of the step."""

    carry: Carry
    noise: Any
    state: Any


class ClosedAttempt(NamedTuple):
    """The decision about a step: ``state`` is the one after it if it was accepted, else the one before it."""

    accepted: Any
    pace: Pace
    size: Any
    fit_and_noise: tuple[Any, Any]
    state: Any


def close_attempt(
    setup: Setup, control: tuple[Tolerances, Limits], pace: Pace, tried: Tried, before: Before
) -> ClosedAttempt:
    """Accept or reject a step, by its error and its status."""
    tolerances, limits = control
    size = norm(setup.system.space, tolerances, before.carry, tried.state[0], tried.errors)
    accepted, pace = judged(limits, pace, size, tried.status, tried.near_singular)
    fit = jnp.where(tried.status == codes.SUCCESS, tried.fit, 0.0)  # else the matrix may be wrong
    noise = jnp.where(accepted, tried.noise, before.noise)
    state = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), tried.state, before.state)
    return ClosedAttempt(accepted, pace, size, (fit, noise), state)


def _solved(
    setup: Setup, carry: Carry, memory: Memory, at: Times, scale: Scale, args: Args, implicit: bool
) -> tuple[StepConstants, Memory, NewtonReport]:
    """The equations of a step, and the memory with their solution."""
    system, method, options, dims, _ = setup
    t, h = at.t, at.h
    step = method.prepare(system, carry, t, h, dims, scale, args)
    levels, groups = rounding_levels(setup, sizes_of_motion(system.space, scale, carry.q, carry.v), h)
    x, kept, report = newton.solve(
        options,
        lambda x: method.equations(system, step, dims, scale, x, args),
        extrapolated(memory[:3], carry.h, h),
        memory.newton,
        levels,
        groups,
        implicit,
        None if method.exact_matrix else lambda x: method.linearized(system, step, dims, scale, x, args),
    )
    return step, Memory(*moved_parabola(memory[:3], x, carry.h, h), kept), report


def extrapolated(last: Parabola, h_old: Array, h: Array) -> Array:
    """The unknowns (N,) extrapolated by the parabola through the last three solutions."""
    x, slope, bend = last
    return x + h * (slope + (h + h_old) * bend)


def moved_parabola(last: Parabola, x: Array, h_old: Array, h: Array) -> Parabola:
    """The parabola (x, slope, bend) with a new solution x."""
    slope = (x - last[0]) * (1 / h)
    return x, slope, (slope - last[1]) * (1 / (h + h_old))


def _project(setup: Setup, carry: Carry, at: Times, status: Array, args: Args) -> tuple[Carry, Array]:
    """The velocity at the end of a marked step moved onto the hidden constraints by ACB15 (7)."""

    def move() -> tuple[Array, Array]:
        v, code = project_velocity(setup.system, setup.dims, at.t + at.h, carry.q, carry.v, args)
        return v, codes.first(status, code)

    v, status = lax.cond(at.project, move, lambda: (carry.v, status))
    return carry._replace(v=v), status


def sizes_of_motion(space: Space, scale: Scale, q: Array, v: Array) -> tuple[Array, Array, Array]:
    """The largest coordinate, the largest velocity, and one, all divided by the scale of accelerations."""
    unit = 1 / scale.a
    return jnp.max(space.magnitude(q) * unit), jnp.max(jnp.abs(v) * unit), jnp.max(unit)


# Corrections that stagnate and change coordinates by less than this count as rounding. At rest near the
# origin nothing else shows the size of what is rounded: springs and weights that balance, ends of springs.
_AT_REST = 1e-13


def rounding_levels(
    setup: Setup, sizes: tuple[Array, Array, Array], h: Array
) -> tuple[newton.Levels, tuple[newton.Group, ...]]:
    """Sizes of corrections to the scaled unknowns that are caused by rounding, or count as rounding.

    Rows g/(βh²) contain the rounding of q, which is of size ε|q|/(βh²). In SOI2 these rows determine δ, μ and
    ν, which only correct the positions. a, λ and ψ are determined by rows k/(γh) and by the hidden
    constraints, which contain the rounding of v. Each unknown declares its share of the rounding of
    positions. The size of the terms that cancel in a constraint is not known. Therefore, if Newton's
    iteration stagnates, larger corrections count as rounding too: those that change q or v by less than 1e-10
    of its size, or q by less than 1e-6 of its change in a step, or by less than 1e-13.

    Near a kinematic singularity, where gradients of constraints become dependent, rounding is amplified.
    Multipliers may then be arbitrary, but what they do to the motion is small. So only accelerations must be
    determined, to a thousandth of |v|/h.

    ``sizes`` are those of :func:`sizes_of_motion`. Returns the levels for groups of unknowns, and these
    groups.
    """
    eps = jnp.finfo(float).eps
    position, velocity = sizes[0] / h**2, sizes[1] / h
    loose_low, loose_high = 1e-10 * velocity, newton.NOISE * velocity + 1e-10 * position
    at_rest = _AT_REST * sizes[2] / h**2
    floor, loose, groups = [], [], []
    unknowns = [u for u in setup.method.blocks(setup.dims) if u.size]
    for part, blocks in itertools.groupby(unknowns, lambda u: u.rounding):
        floor += [eps * (2 * velocity + (part or 0.0) * position)]
        loose += [(loose_low if part is None else loose_high) + at_rest]
        alike = itertools.groupby(blocks, lambda u: u.like == "a")
        groups += [tuple(newton.Block(sum(u.size for u in some), motion) for motion, some in alike)]
    return newton.Levels(jnp.stack(floor), jnp.stack(loose), 1e-3 * velocity, at_rest), tuple(groups)
