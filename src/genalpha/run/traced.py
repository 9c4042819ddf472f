"""A run under a JAX transform, as one traced computation."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from genalpha.backends.cache import program
from genalpha.backends.xla import whole
from genalpha.backends.xla.whole import Whole
from genalpha.compiler.graph import Unsupported
from genalpha.engine import interpolate, row, step_choice
from genalpha.engine import start as starts
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived, Errors
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given, Steps
from genalpha.errors import warn_of_fallback
from genalpha.mechanics import initial_values
from genalpha.mechanics.initial_values import Beginning, Held
from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import Scale
from genalpha.numerics.derivatives import blanked
from genalpha.results import assemble
from genalpha.results.assemble import Ending, Work
from genalpha.results.deferred import Deferred, value
from genalpha.results.output import Output
from genalpha.results.phases import Phase, Phases
from genalpha.results.solution import Solution
from genalpha.run import native_traced
from genalpha.run.request import Request
from genalpha.run.through_events import front as through_events


def run(asked: Request) -> Solution:
    """The solution. A failure becomes its status, and the rows after it are NaN."""
    if asked.watch.events:
        return through_events.run(asked)
    try:
        return native_traced.run(asked)
    except Unsupported as reason:
        if asked.backend == "cuda":
            raise ValueError(
                f'backend="cuda" cannot run this system: {reason}. Use backend="auto"'
            ) from reason
        fallback = str(reason) if asked.backend == "native" else None
        if isinstance(reason, native_traced.TracedConstant):
            warn_of_fallback(reason)
    start = asked.start
    run = compute(start.mode, start.held, fallback)
    compiled = program(asked.setup, ("traced", start.mode, start.held, fallback), run, False)
    sol = compiled(asked.span, asked.steps, asked.output, start.q, start.v, asked.args, start.guess)
    equations = functools.partial(derived, asked)
    sizes = (asked.setup.dims.m, asked.setup.dims.p)
    phase = Phase(asked.setup.system, asked.args, *asked.span, slice(0, len(sol.t)), equations, sizes)
    return sol.connected(None, Phases([phase]))


def derived(asked: Request, ends: StepEnd) -> Derived:
    """The quantities derived from the motion at some times, which JAX can trace."""
    (system, _, _, dims, _), start = asked.setup, asked.start
    of = initial_values.matrices(system, dims, jnp.asarray(start.t), start.q, start.v, asked.args)
    return row.derive_rows(asked.setup, ends, initial_values.scales(of), asked.args)


def compute(mode: str, held: Held, fallback: str | None) -> Any:
    """A run as a function of all its numbers, which JAX can trace."""

    def solution(
        setup: Setup, span: Any, steps: Steps, output: Output, q: Any, v: Any, args: Args, guess: Any
    ) -> Solution:
        begin = _begun(setup, mode, held, _status(steps, span), (span[0], q, v), args, guess)
        found = whole.run(setup, begin, steps, args)
        return _solution(setup, output, found, begin.scale, args, fallback)

    return solution


def _status(steps: Steps, span: Any) -> Any:
    """A status that says whether given steps are positive and sum to the span."""
    if not isinstance(steps, Given):
        return jnp.array(codes.SUCCESS)
    fitting = step_choice.fitting(span, steps.steps.t, steps.steps.h)
    return jnp.where(fitting, codes.SUCCESS, codes.BAD_STEPS)


def _begun(
    setup: Setup, mode: str, held: Held, status: Any, at: tuple[Any, Any, Any], args: Args, guess: Any
) -> Beginning:
    """The start. Its status says whether it is valid."""
    t, q, v = at
    t = jnp.asarray(t, float)
    status = codes.first(status, codes.not_rotations(jnp.array(codes.SUCCESS), setup.system.space.defect(q)))
    q = setup.system.space.normalize(q)
    if mode == "project":
        q, v, code = starts.project(setup, t, q, v, args, held)
        status = codes.first(status, code)
    begin = starts.begin(setup, t, q, v, args, guess)
    return starts.judged(begin, mode == "check", status)


class _Ends(NamedTuple):
    """The start and the ends of all steps: records, times, times of a_α, and estimated errors."""

    table: Any
    t: Any
    t_alpha: Any
    errors: Errors | None


def _solution(
    setup: Setup, keep: Output, found: Whole, scale: Scale, args: Args, fallback: str | None
) -> Solution:
    """The solution with the wanted rows and quantities."""
    layout = row.layout(setup)
    t_alpha = (found.t + setup.method.alpha * found.h).at[0].set(found.t_alpha)
    ends = _Ends(found.table, found.t, t_alpha, found.errors)
    nodes = layout.ends(found.table, found.t)
    if keep.t_eval is not None:
        ends = _sampled(setup, ends, nodes, jnp.asarray(keep.t_eval))
    elif found.errors is not None:
        ends = _without_end(ends, found.status)
    if keep.t_eval is None and keep.every != 1:
        ends = jax.tree.map(lambda x: x[keep.rows(len(found.t) - 1)], ends)
    derived = _derived_where_reached(setup, layout.ends(ends.table, ends.t), scale, args)
    quantities = assemble.recorded(layout.rows(ends.table), ends.errors)
    quantities |= assemble.derived(Deferred(lambda: derived))
    quantities = {name: value(x) for name, x in quantities.items()}
    if keep.t_eval is None and keep.every == 1:  # the start has no history
        quantities["newton"] = assemble.without_start(quantities["newton"])
    if keep.names is not None:
        quantities = dict.fromkeys(quantities) | {name: quantities[name] for name in keep.names}
    apart = nodes if keep.dense and not keep.complete else None
    good = jnp.all(jnp.isfinite(nodes.q), axis=1)
    end = jnp.max(jnp.where(good, nodes.t, nodes.t[0]))
    work = Work(found.taken, found.rejected, *found.totals)
    ending = Ending(found.status, end, work, "xla", fallback)
    return assemble.solution(setup, quantities, ends.t, ends.t_alpha, ending, keep.complete, apart)


def _derived_where_reached(setup: Setup, ends: StepEnd, scale: Scale, args: Args) -> Derived:
    """The quantities derived from rows, NaN in rows that were not reached.

    Those are replaced by the first row before, because derivatives of NaN are NaN even if nothing uses them.
    """
    bad = ~jnp.isfinite(sum(jnp.sum(x, axis=1) for x in (ends.q, ends.v)))
    wide = lambda x: bad.reshape(-1, *[1] * (x.ndim - 1))
    safe = jax.tree.map(lambda x: jnp.where(wide(x), x[:1], x), ends)
    return jax.tree.map(lambda x: blanked(wide(x), x), row.derive_rows(setup, safe, scale, args))


def _without_end(ends: _Ends, status: Any) -> _Ends:
    """The rows, with NaN in the last one if the run did not reach its end."""
    last = lambda x: blanked(status != codes.SUCCESS, x[-1])
    return jax.tree.map(lambda x: x.at[-1].set(last(x)), ends)


def _sampled(setup: Setup, ends: _Ends, nodes: StepEnd, times: Any) -> _Ends:
    """Rows at given times. The motion is interpolated; the rest is that of the step, or of the start."""
    space: Space = setup.system.space
    steps = interpolate.steps_of(nodes.t, times)
    found, chosen = interpolate.within(space, nodes, steps, times), jax.tree.map(lambda x: x[steps], ends)
    table, parts = chosen.table, row.layout(setup).parts
    for name in ("q", "v", "lam", "psi"):
        table = table.at[:, parts[name]].set(getattr(found, name))
    return chosen._replace(table=table, t=times)
