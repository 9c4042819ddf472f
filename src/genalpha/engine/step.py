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
    """What makes the next Newton iteration short: a parabola through the last solutions, and a matrix.

    ``x`` (N,) is the last solution, ``slope`` and ``bend`` are its first and second divided differences.
    """

    x: Array
    slope: Array
    bend: Array
    newton: NewtonMemory


def no_memory(x: Array) -> Memory:
    """The memory before the first step: unknowns x as at the start, differences zero, no matrix."""
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
    """One step; ``implicit`` if it may be differentiated."""
    step, memory, report = _solved(setup, carry, memory, at, scale, args, implicit)
    carry, output = setup.method.finish(setup.system, step, setup.dims, scale, memory.x, args)
    status = close_step(report.status, output)
    if at.project is not None:
        carry, status = _project(setup, carry, at, status, args)
    return carry, memory, output, report._replace(status=status)


def close_step(status: Array, output: StepOutput) -> Array:
    """The status of a step whose iteration ended with a status: it may have turned too far, or have failed
    afterwards."""
    return codes.first(codes.turned(status, output.turns), output.fault)


class Attempt(NamedTuple):
    """A step under error control. Where it was not accepted, carry, parabola and time are those before it.

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
    """One step that is taken back if its error is too large or it has no solution."""
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
        Tried(status, errors, fit, noise, (after, tried[:3])),
        Before(carry, memory.newton.fit_and_noise[1], (carry, memory[:3])),
    )
    after, parabola = closed.state
    kept = tried.newton._replace(fit_and_noise=jnp.stack(closed.fit_and_noise))
    memory = Memory(parabola[0], parabola[1], parabola[2], kept)
    report = report._replace(status=status)
    return Attempt(closed.accepted, after, memory, closed.pace, output, report, errors, closed.size)


class Tried(NamedTuple):
    """A step that was tried: status, errors (2n,), whether its matrix is fit for further use, the noise that
    Newton met, and the state after it, a tree that starts with the carry."""

    status: Any
    errors: Any
    fit: Any
    noise: Any
    state: Any


class Before(NamedTuple):
    """The carry and the noise before a step that is tried, and the state, a tree like that of the step."""

    carry: Carry
    noise: Any
    state: Any


class ClosedAttempt(NamedTuple):
    """The verdict on a step: ``state`` is that after it if it was accepted, else that before it."""

    accepted: Any
    pace: Pace
    size: Any
    fit_and_noise: tuple[Any, Any]
    state: Any


def close_attempt(
    setup: Setup, control: tuple[Tolerances, Limits], pace: Pace, tried: Tried, before: Before
) -> ClosedAttempt:
    """Accept a step or take it back, by its error and its status."""
    tolerances, limits = control
    size = norm(setup.system.space, tolerances, before.carry, tried.state[0], tried.errors)
    accepted, pace = judged(limits, pace, size, tried.status)
    fit = jnp.where(tried.status == codes.SUCCESS, tried.fit, 0.0)  # else the matrix may be anything
    noise = jnp.where(accepted, tried.noise, before.noise)
    state = jax.tree.map(lambda new, old: jnp.where(accepted, new, old), tried.state, before.state)
    return ClosedAttempt(accepted, pace, size, (fit, noise), state)


def _solved(
    setup: Setup, carry: Carry, memory: Memory, at: Times, scale: Scale, args: Args, implicit: bool
) -> tuple[StepConstants, Memory, NewtonReport]:
    """The equations of a step and, in the memory, their solution."""
    system, method, options, dims, _ = setup
    t, h = at.t, at.h
    step = method.prepare(system, carry, t, h, dims, scale, args)
    levels, groups = rounding_levels(setup, scale, carry, h)
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
    """The unknowns (N,) where the parabola through the last three solutions leads."""
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


def rounding_levels(
    setup: Setup, scale: Scale, carry: Carry, h: Array
) -> tuple[newton.Levels, tuple[int, ...]]:
    """Corrections that rounding is expected to cause in the scaled unknowns, and that may pass for it.

    Rows g/(βh²) carry rounding of q, of size ε|q|/(βh²). In SOI2 they determine δ, μ, ν, which only correct
    the positions; a, λ and ψ are determined by rows k/(γh) and the hidden ones, with rounding of v. An
    unknown declares its share of the rounding of positions. How large the terms are that cancel in a
    constraint is not known, so larger corrections pass for rounding too where Newton stagnates: those that
    move q or v by less than 1e-10 of itself, or q by less than 1e-6 of a step.

    Returns levels for groups of unknowns, and the sizes of these groups.
    """
    eps = jnp.finfo(float).eps
    unit = 1 / scale.a
    position = jnp.max(setup.system.space.magnitude(carry.q) * unit) / h**2
    velocity = jnp.max(jnp.abs(carry.v) * unit) / h
    loose_low, loose_high = 1e-10 * velocity, newton.NOISE * velocity + 1e-10 * position
    floor, loose, groups = [], [], []
    unknowns = [u for u in setup.method.blocks(setup.dims) if u.size]
    for part, blocks in itertools.groupby(unknowns, lambda u: u.rounding):
        floor += [eps * (2 * velocity + (part or 0.0) * position)]
        loose += [loose_low if part is None else loose_high]
        groups += [sum(u.size for u in blocks)]
    return newton.Levels(jnp.stack(floor), jnp.stack(loose)), tuple(groups)
