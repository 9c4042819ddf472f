"""A run as one traced computation: what `solve` does under JAX transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.kernels import Aim
from genalpha.backends.xla import controlled as adaptive
from genalpha.backends.xla import given as xla
from genalpha.consistent import begin as begin_program
from genalpha.engine import interpolate
from genalpha.engine import steps as control
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.step import Setup
from genalpha.mechanics import initial_values, start_errors
from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import Scale, Schedule
from genalpha.results import assemble
from genalpha.results.output import Output
from genalpha.results.solution import Solution

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
    keep: Output,
    fallback: str | None,
) -> Solution:
    """The solution; failures become statuses, and rows after them NaN."""
    paced = isinstance(steps, Aim)
    most = MOST_STEPS if most is None else most
    wanted = None if keep.t_eval is None else keep.t_eval.tobytes()
    name = f"traced {mode} {span} {fallback} {most if paced else ''} {keep._replace(t_eval=None)} {wanted!r}"
    body = _paced(mode, span, most, keep, fallback) if paced else _listed(mode, span, keep, fallback)
    return xla.program(setup, name, body, outermost=False)(steps, q, v, args, guess)


def _begun(
    setup: Setup, mode: str, t0: float, q: Any, v: Any, args: Args, guess: Any, status: Any
) -> Beginning:
    """The start, with a status that says what is wrong with it."""
    status = codes.first(status, codes.not_rotations(jnp.array(codes.SUCCESS), setup.system.space.defect(q)))
    q = setup.system.space.normalize(q)
    if mode == "project":
        q, v, code = initial_values.project(setup.system, setup.dims, jnp.asarray(t0), q, v, args)
        status = codes.first(status, code)
    begin = begin_program(setup, t0, q, v, args, guess)
    finite = jnp.where(initial_values.is_finite(begin), codes.SUCCESS, codes.NOT_FINITE)
    status = codes.first(status, finite)
    if mode == "check":
        fitting = start_errors.consistent(begin)
        status = codes.first(status, jnp.where(fitting, codes.SUCCESS, codes.INCONSISTENT))
    status = codes.first(status, begin.report.status)
    return begin._replace(report=begin.report._replace(status=status))


def _massless(setup: Setup) -> bool:
    """Under a transform only a constant mass matrix can be known to be singular."""
    return setup.system.constant_mass and start_errors.is_singular(setup.system.mass)


def _listed(
    mode: str, span: tuple[float, float], keep: Output, fallback: str | None
) -> Callable[..., Solution]:
    t0, t1 = span

    def run(setup: Setup, schedule: Schedule, q: Any, v: Any, args: Args, guess: Any) -> Solution:
        times, steps = schedule
        fitting = jnp.all(steps.h > 0) & (jnp.abs(times[-1] - t1) <= control.SPAN_TOLERANCE * (t1 - t0))
        status = jnp.where(fitting, codes.SUCCESS, codes.BAD_STEPS)
        begin = _begun(setup, mode, t0, q, v, args, guess, status)
        rows, status = xla.scan(setup, begin, steps, args)
        counts = jnp.where(jnp.isnan(rows.report), 0, rows.report).astype(int)
        work = assemble.Work(jnp.sum(jnp.isfinite(rows.report[:, 0])), 0, *counts.sum(axis=0))
        ends = _ends(setup, rows, times, jnp.append(0.0, steps.h), None)
        return _solution(setup, keep, ends, begin.scale, args, status, fallback, work)

    return run


def _paced(
    mode: str, span: tuple[float, float], most: int, keep: Output, fallback: str | None
) -> Callable[..., Solution]:
    def run(setup: Setup, aim: Aim, q: Any, v: Any, args: Args, guess: Any) -> Solution:
        begin = _begun(setup, mode, span[0], q, v, args, guess, jnp.array(codes.SUCCESS))
        whole = adaptive.whole(setup, begin, aim.control, aim.wish, args, most)
        rows = xla.columns(setup, whole.table, whole.t_alpha)
        work = assemble.Work(whole.taken, whole.rejected.astype(int), *whole.totals.astype(int))
        ends = _ends(setup, rows, *adaptive.timing(setup, whole.table))
        return _solution(setup, keep, ends, begin.scale, args, whole.status, fallback, work)

    return run


class _Ends(NamedTuple):
    """The start and the ends of all steps: rows, times, those of a_α, and estimated errors."""

    rows: xla.Rows
    t: Any
    t_alpha: Any
    errors: Any


def _ends(setup: Setup, rows: xla.Rows, t: Any, h: Any, errors: Any) -> _Ends:
    return _Ends(rows, t, (t + setup.method.alpha * h).at[0].set(rows.t_alpha), errors)


def _solution(
    setup: Setup,
    keep: Output,
    ends: _Ends,
    scale: Scale,
    args: Args,
    status: Any,
    fallback: str | None,
    work: assemble.Work,
) -> Solution:
    """The rows and quantities that were asked for."""
    rows, t, *_ = ends
    nodes = StepEnd(t, rows.q, rows.v, rows.lam, rows.psi)
    if keep.t_eval is not None:
        ends = _sampled(setup.system.space, ends, nodes, jnp.asarray(keep.t_eval))
    elif ends.errors is not None:  # under error control
        ends = _without_end(ends, status)
    if keep.t_eval is None and keep.every != 1:
        last = len(t) - 1
        wanted = np.unique(np.append(np.arange(0, last + 1, keep.every) if keep.every else last, last))
        ends = _picked(ends, wanted)
    rows, t, t_alpha, errors = ends
    derived = xla.derive(setup, rows, t, scale, args, _massless(setup))
    found = assemble.quantities(rows, derived, errors)
    if keep.names is not None:
        found = dict.fromkeys(found) | {name: found[name] for name in keep.names}
    apart = nodes if keep.dense and not keep.complete else None
    good = jnp.all(jnp.isfinite(nodes.q), axis=1)
    end = jnp.max(jnp.where(good, nodes.t, nodes.t[0]))
    return assemble.solution(
        setup, found, t, t_alpha, status, end, "xla", fallback, work, keep.complete, apart
    )


def _without_end(ends: _Ends, status: Any) -> _Ends:
    """The last row is the end of the run; where it was not reached, it must not pass for it."""
    ends = ends._replace(rows=ends.rows._replace(t_alpha=None))
    last = lambda x: jnp.where(status == codes.SUCCESS, x[-1], jnp.nan)
    return jax.tree.map(lambda x: x.at[-1].set(last(x)), ends)


def _picked(ends: _Ends, index: Any) -> _Ends:
    """Some of the rows; the history of Newton gets a row for each of them."""
    report = jnp.concatenate([jnp.zeros_like(ends.rows.report[:1]), ends.rows.report])
    whole = ends._replace(rows=ends.rows._replace(report=report, t_alpha=None))
    return jax.tree.map(lambda x: x[index], whole)


def _sampled(space: Space, ends: _Ends, nodes: StepEnd, times: Any) -> _Ends:
    """The motion at given times; the rest is that of the step in which they lie, or of the start."""
    steps = interpolate.steps_of(nodes.t, times)
    found, chosen = interpolate.within(space, nodes, steps, times), _picked(ends, steps)
    rows = chosen.rows._replace(q=found.q, v=found.v, lam=found.lam, psi=found.psi)
    return chosen._replace(rows=rows, t=times)
