"""The start of a run: consistent values, the method's own starting values, and the first record."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.engine import controller
from genalpha.engine.controller import Pace
from genalpha.engine.row import record
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Controlled
from genalpha.mechanics import initial_values, start_errors
from genalpha.mechanics.initial_values import NOTHING_HELD, Beginning, Held
from genalpha.mechanics.system import Args, Dims
from genalpha.numerics import codes
from genalpha.numerics.data import COUNTED, Carry, NewtonReport, Scale, State, StepOutput


class RunStart(NamedTuple):
    """A run before its first step.

    ``begin`` are the consistent values, ``carry`` the method's own starting values, ``row`` the first record.
    ``x`` (N,) are the unknowns from which the first step extrapolates, and ``t_alpha`` is the time of a_α.
    ``status`` is the status of the start apart from the constraints; ``consistent`` says whether q and v
    satisfy them. ``pace`` belongs to error control and is None for given steps.
    """

    begin: Beginning
    carry: Carry
    x: Any
    row: Any
    t_alpha: Any
    status: Any
    consistent: Any
    pace: Pace | None = None


def begin(setup: Setup, t: Any, q: Any, v: Any, args: Args, guess: Any = None) -> Beginning:
    """Consistent values at the start, as the method needs them."""
    wanted = setup.method.needs_rate or not setup.system.space.moved(setup.dims.n).all()
    return initial_values.begin(setup.system, setup.dims, t, q, v, args, guess, wanted)


def judged(begin: Beginning, strict: bool, status: Any) -> Beginning:
    """``begin`` with the first failure: ``status``, or its own. If ``strict``, q and v must be consistent."""
    finite = jnp.where(initial_values.is_finite(begin), codes.SUCCESS, codes.NOT_FINITE)
    status = codes.first(status, finite)
    if strict:
        fitting = start_errors.consistent(begin)
        status = codes.first(status, jnp.where(fitting, codes.SUCCESS, codes.INCONSISTENT))
    status = codes.first(status, begin.report.status)
    return begin._replace(report=begin.report._replace(status=status))


def project(
    setup: Setup, t: Any, q: Any, v: Any, args: Args, held: Held = NOTHING_HELD
) -> tuple[Any, Any, Any]:
    """q and v moved onto the constraints, and a status."""
    return initial_values.project(setup.system, setup.dims, t, q, v, args, held)


def shapes(dims: Dims) -> Any:
    """The shapes of a :class:`Beginning`, without tracing how it is computed."""
    size, n, m, p = dims
    number: Any = lambda *shape: jax.ShapeDtypeStruct(shape, float)
    counts: list[Any] = [jax.ShapeDtypeStruct((), kind) for kind in (int, int, int, bool, bool, float)]
    return Beginning(
        State(number(), number(size), number(n), number(n), number(m), number(p)),
        number(n),
        Scale(number(n), number(m), number(p)),
        NewtonReport(*counts),
        *(number(m + p, n), number(m), number(m), number(p), number(n, n), number(n)),
    )


def start_run(setup: Setup, t: Any, q: Any, v: Any, first: Any, args: Args, guess: Any = None) -> RunStart:
    """Everything before the first step. ``first`` is its size, or the control that chooses it."""
    return from_consistent(setup, begin(setup, t, q, v, args, guess), first, args)


def from_consistent(setup: Setup, begin: Beginning, first: Any, args: Args) -> RunStart:
    """Everything before the first step, from consistent values."""
    state, pace, h = begin.state, None, first
    timing = []
    if isinstance(first, Controlled):
        size = setup.system.space.magnitude(state.q)
        pace = first_pace(setup, size, state, begin.a_dot, first, begin.report.status)
        h, timing = pace.h, [state.t[None], jnp.zeros(2 + 2 * setup.dims.n)]
    carry, t_alpha = setup.method.begin(setup.system, setup.dims, begin, jnp.asarray(h, float), args)
    extra = setup.method.first_extra(setup.dims, begin, carry.h)
    # A method may start from slightly different velocities. The record shows the given ones.
    row = record(
        carry._replace(v=state.v), StepOutput(state.lam, state.psi, extra, extra), jnp.zeros(len(COUNTED))
    )
    row = jnp.concatenate([row, *timing]) if timing else row
    x = setup.method.first_guess(setup.dims, begin.scale, carry, state)
    status = jnp.where(initial_values.is_finite(begin), begin.report.status, codes.NOT_FINITE)
    return RunStart(begin, carry, x, row, t_alpha, status, start_errors.consistent(begin), pace)


def first_pace(setup: Setup, size: Any, state: Any, a_dot: Any, first: Controlled, status: Any) -> Pace:
    """The pace before the first step under error control; ``size`` (n,) is the magnitude of q."""
    space, (tolerances, limits), xp = setup.system.space, first.control, controller.library(size)
    wish = controller.first(space, size, tolerances, limits, state, a_dot)
    if xp is jnp or not np.isnan(first.wish):
        wish = xp.where(xp.isnan(first.wish), wish, controller.asked(space, size, state, first.wish))
    return controller.begun(limits, state.t, wish, status)
