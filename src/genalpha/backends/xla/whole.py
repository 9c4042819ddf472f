"""A whole run as one computation, which JAX can transform."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from genalpha.backends.xla.controlled import Control, Point, block
from genalpha.engine import row
from genalpha.engine.row import Errors
from genalpha.engine.setup import Setup
from genalpha.engine.start import from_consistent
from genalpha.engine.step import Memory, advance, no_memory
from genalpha.engine.steps import MOST_TRACED, Controlled, Given, Steps
from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import Carry, Times
from genalpha.numerics.derivatives import blanked


class Whole(NamedTuple):
    """A traced run: records (N+1, width), the start first, with the ends and sizes of their steps.

    Rows after a failure are NaN. Under error control N is the most steps that may be taken, and rows after
    the end repeat the last one. ``t_alpha`` is the time of a_α at the start.
    """

    table: Array
    t: Array
    h: Array
    errors: Errors | None
    t_alpha: Array
    taken: Array
    rejected: Any
    totals: Array
    status: Array


def run(setup: Setup, begin: Beginning, steps: Steps, args: Args) -> Whole:
    """Take all steps from consistent values. If the status of ``begin`` is a failure, later rows are NaN."""
    if isinstance(steps, Controlled):
        return _controlled(setup, begin, steps, args)
    return _given(setup, begin, steps, args)


def _given(setup: Setup, begin: Beginning, steps: Given, args: Args) -> Whole:
    start = from_consistent(setup, begin, steps.first, args)

    def step(state: tuple[Carry, Memory, Array], at: Times) -> tuple[Any, Array]:
        carry, memory, status = state
        carry, memory, output, report = advance(setup, carry, memory, at, begin.scale, args)
        status = codes.first(status, report.status)
        record = row.record(carry, output, row.counts(report))
        return (carry, memory, status), blanked(status != codes.SUCCESS, record)

    first = (start.carry, no_memory(start.x), begin.report.status)
    (_, _, status), rows = lax.scan(step, first, steps.steps)
    counts = row.layout(setup).report(rows)
    totals = jnp.where(jnp.isnan(counts), 0, counts).astype(int).sum(axis=0)
    return Whole(
        table=jnp.concatenate([start.row[None], rows]),
        t=steps.times,
        h=jnp.append(0.0, steps.steps.h),
        errors=None,
        t_alpha=start.t_alpha,
        taken=jnp.sum(jnp.isfinite(counts[:, 0])),
        rejected=0,
        totals=totals,
        status=status,
    )


class _Taken(NamedTuple):
    """The results of the loop under error control: records, the time of a_α at the start, and counts."""

    table: Array
    t_alpha: Array
    taken: Array
    rejected: Array
    totals: Array
    status: Array


def _controlled(setup: Setup, begin: Beginning, steps: Controlled, args: Args) -> Whole:
    """A run under error control.

    Derivatives are those of the method with the accepted steps. The rule for them repeats these steps as a
    list, in blocks. Only the first state of a block is kept until its derivatives are computed. So reverse
    differentiation keeps about 2√N states in addition to the rows.
    """
    steps, most, layout = lax.stop_gradient(steps), steps.rows(MOST_TRACED), row.layout(setup)

    def forward(begin: Beginning, args: Args, steps: Controlled) -> _Taken:
        start, control = from_consistent(setup, begin, steps, args), steps.control
        assert start.pace is not None
        point = Point(start.carry, no_memory(start.x), start.pace)
        point, rows, taken, totals = block(setup, point, control, begin.scale, args, most, most)
        return _taken(start.row, start.t_alpha, point, rows, taken, totals, control)

    def again(begin: Beginning, args: Args, times: Times, taken: Array) -> tuple[Array, Array]:
        return _once_more(setup, times, taken, begin, args)

    # Traced values that the functions of the system close over become arguments, because rules need this.
    forward, closed = jax.closure_convert(forward, begin, args, steps)
    closed_again: list[Any] = []
    if closed:
        spare = Times(jnp.zeros(most), jnp.ones(most))
        again, closed_again = jax.closure_convert(again, begin, args, spare, jnp.array(0))

    @jax.custom_jvp
    def run(begin: Beginning, args: Args, closed: Any, closed_again: Any, steps: Controlled) -> _Taken:
        return forward(begin, args, steps, *closed)

    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[_Taken, _Taken]:
        result, (begin, args, _, closed, _) = run(*primals), primals
        ends, sizes = layout.timing(result.table)
        times = Times(ends[:-1], sizes[1:])
        repeat = lambda begin, args, closed: again(begin, args, times, result.taken, *closed)
        changes = (tangents[0], tangents[1], tangents[3])
        _, (table, t_alpha) = jax.jvp(repeat, (begin, args, closed), changes)
        rest = jnp.zeros((most + 1, layout.controlled - layout.plain))
        bad = jnp.isnan(result.table[:, :1])
        _, table = jax.jvp(lambda x: blanked(bad, x), (result.table[:, : layout.plain],), (table,))
        zero = jax.tree.map(_no_tangent, result)
        return result, zero._replace(table=jnp.concatenate([table, rest], axis=1), t_alpha=t_alpha)

    run.defjvp(rule)
    table, t_alpha, taken, rejected, totals, status = run(begin, args, closed, closed_again, steps)
    t, h = layout.timing(table)
    counts = (taken, rejected.astype(int), totals.astype(int), status)
    return Whole(table, t, h, layout.errors(table), t_alpha, *counts)


def _taken(
    first: Array, t_alpha: Array, point: Point, rows: Array, taken: Array, totals: Array, control: Control
) -> _Taken:
    """The results, with records (most + 1, width). Records after the end repeat the last one."""
    most = len(rows)
    complete = point.pace.t >= control[1].end
    status = jnp.where(complete, codes.SUCCESS, codes.TOO_MANY)
    status = codes.first(point.pace.status, status).astype(int)
    table = jnp.concatenate([first[None], rows])[jnp.minimum(jnp.arange(most + 1), taken)]
    bad = (status != codes.SUCCESS) & (jnp.arange(most + 1) > taken)
    table = jnp.where(bad[:, None], jnp.nan, table)
    return _Taken(table, t_alpha, taken, point.pace.rejected, totals, status)


def _no_tangent(x: Array) -> Any:
    return (
        jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.floating) else np.zeros(x.shape, jax.dtypes.float0)
    )


def _once_more(setup: Setup, steps: Times, taken: Array, begin: Beginning, args: Args) -> tuple[Array, Array]:
    """Repeat the first ``taken`` steps: records (most + 1, width), and the time of a_α at the start."""
    begun = from_consistent(setup, begin, steps.h[0], args)
    start, first, most = (begun.carry, no_memory(begun.x)), begun.row, len(steps.h)
    size = int(np.ceil(np.sqrt(most)))
    blocks = -(-most // size)

    def step(state: Any, at: tuple[Array, Times]) -> tuple[Any, Array]:
        (last, record), (index, here) = state, at
        real = index < taken
        choose = lambda yes, no: jax.tree.map(lambda a, b: jnp.where(real, a, b), yes, no)
        # After the last step, the first one is repeated, because it is known to have a solution.
        carry, memory = choose(last, start)
        here = choose(here, Times(steps.t[0], steps.h[0]))
        carry, memory, output, report = advance(setup, carry, memory, here, begin.scale, args)
        new = ((carry, memory), row.record(carry, output, row.counts(report)))
        state = choose(new, (last, record))
        return state, state[1]

    @jax.checkpoint
    def some(state: Any, at: Any) -> tuple[Any, Array]:
        skip = lambda state: (state, jnp.broadcast_to(state[1], (size, len(first))))
        return lax.cond(at[0][0] < taken, lambda state: lax.scan(step, state, at), skip, state)

    index = jnp.arange(blocks * size)
    at = jax.tree.map(lambda x: x[jnp.minimum(index, most - 1)].reshape(blocks, size), steps)
    _, rows = lax.scan(some, (start, first), (index.reshape(blocks, size), at))
    return jnp.concatenate([first[None], rows.reshape(blocks * size, -1)[:most]]), begun.t_alpha
