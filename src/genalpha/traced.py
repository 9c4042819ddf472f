"""A run as one traced computation: what `solve` does under JAX transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from genalpha import assemble, check, control, diagnose, initial
from genalpha.advance import Setup
from genalpha.drive import adaptive, xla
from genalpha.drive.native import Aim
from genalpha.initial import Beginning
from genalpha.solution import Solution
from genalpha.state import Schedule
from genalpha.states import begin as begin_program
from genalpha.system import Args

MOST_STEPS = 1024  # under error control, unless more are asked for


def run(
    setup: Setup,
    mode: str,
    span: tuple[float, float],
    steps: Schedule | Aim,
    q: Any,
    v: Any,
    args: Args,
    guess: Any,
    most: int | None,
    fallback: str | None,
) -> Solution:
    """The solution; failures become statuses, and rows after them NaN."""
    paced = isinstance(steps, Aim)
    most = MOST_STEPS if most is None else most
    name = f"traced {mode} {span} {fallback} {most if paced else ''}"
    body = _paced(mode, span, most, fallback) if paced else _listed(mode, span, fallback)
    return xla.program(setup, name, body, outermost=False)(steps, q, v, args, guess)


def _begun(
    setup: Setup, mode: str, t0: float, q: Any, v: Any, args: Args, guess: Any, status: Any
) -> Beginning:
    """The start, with a status that says what is wrong with it."""
    status = diagnose.first(
        status, diagnose.not_rotations(jnp.array(diagnose.SUCCESS), setup.system.space.defect(q))
    )
    q = setup.system.space.normalize(q)
    if mode == "project":
        q, v, code = initial.project(setup.system, setup.dims, t0, q, v, args)
        status = diagnose.first(status, code)
    begin = begin_program(setup, t0, q, v, args, guess)
    finite = jnp.where(initial.is_finite(begin), diagnose.SUCCESS, diagnose.NOT_FINITE)
    status = diagnose.first(status, finite)
    if mode == "check":
        fitting = check.consistent(begin)
        status = diagnose.first(status, jnp.where(fitting, diagnose.SUCCESS, diagnose.INCONSISTENT))
    status = diagnose.first(status, begin.report.status)
    return begin._replace(report=begin.report._replace(status=status))


def _massless(setup: Setup) -> bool:
    """Under a transform only a constant mass matrix can be known to be singular."""
    return setup.system.constant_mass and check.is_singular(setup.system.mass)


def _listed(mode: str, span: tuple[float, float], fallback: str | None) -> Callable[..., Solution]:
    t0, t1 = span

    def run(setup: Setup, schedule: Schedule, q: Any, v: Any, args: Args, guess: Any) -> Solution:
        times, steps = schedule
        fitting = jnp.all(steps.h > 0) & (jnp.abs(times[-1] - t1) <= control.SPAN_TOLERANCE * (t1 - t0))
        status = jnp.where(fitting, diagnose.SUCCESS, diagnose.BAD_STEPS)
        begin = _begun(setup, mode, t0, q, v, args, guess, status)
        rows, status = xla.scan(setup, begin, steps, args)
        derived = xla.derive(setup, rows, times, begin.scale, args, _massless(setup))
        counts = jnp.where(jnp.isnan(rows.report), 0, rows.report).astype(int)
        work = assemble.Work(jnp.sum(jnp.isfinite(rows.report[:, 0])), 0, *counts.sum(axis=0))
        return assemble.solution(setup, rows, derived, times, steps.h, status, "xla", fallback, work)

    return run


def _paced(mode: str, span: tuple[float, float], most: int, fallback: str | None) -> Callable[..., Solution]:
    def run(setup: Setup, aim: Aim, q: Any, v: Any, args: Args, guess: Any) -> Solution:
        begin = _begun(setup, mode, span[0], q, v, args, guess, jnp.array(diagnose.SUCCESS))
        whole = adaptive.whole(setup, begin, aim.control, aim.wish, args, most)
        rows = xla.columns(setup, whole.table, whole.t_alpha)
        times, sizes, errors = adaptive.timing(setup, whole.table)
        derived = xla.derive(setup, rows, times, begin.scale, args, _massless(setup))
        work = assemble.Work(whole.taken, whole.rejected.astype(int), *whole.totals.astype(int))
        solution = assemble.solution
        return solution(setup, rows, derived, times, sizes[1:], whole.status, "xla", fallback, work, errors)

    return run
