"""The front door: checks the arguments, finds consistent values, picks a driver."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import jax
import numpy as np
from jax.typing import ArrayLike

from genalpha import methods
from genalpha.backends.native.kernels import Aim
from genalpha.engine import steps as control
from genalpha.engine.describe import described
from genalpha.engine.events import Crossing, check_events
from genalpha.engine.events import parse as parse_events
from genalpha.engine.run_data import Grid, RunState, fingerprint, identity, of_system
from genalpha.engine.step import Setup
from genalpha.errors import IntegrationError
from genalpha.mechanics.system import System
from genalpha.numerics.data import Schedule, State, Times
from genalpha.numerics.newton import Newton
from genalpha.results.output import parse
from genalpha.results.progress import Bar
from genalpha.results.solution import Solution
from genalpha.run import arguments, redundant, single, traced
from genalpha.run.checkpoint import Checkpoint, Saving

Initial = Literal["check", "project", "assume"]
Backend = Literal["auto", "native", "xla"]
_DEFAULT_RHO_INF, DEFAULT_RTOL, DEFAULT_ATOL = 0.8, 1e-4, 1e-6


@redundant.allowed
def solve(
    system: System,
    t_span: tuple[float, float],
    q0: ArrayLike | RunState | None = None,
    v0: ArrayLike | None = None,
    *,
    method: str | methods.Method = "soi2",
    rho_inf: float = _DEFAULT_RHO_INF,
    h: ArrayLike | None = None,
    rtol: ArrayLike = DEFAULT_RTOL,
    atol: ArrayLike = DEFAULT_ATOL,
    first_step: float | None = None,
    max_step: float | None = None,
    min_step: float | None = None,
    max_steps: int | None = None,
    newton: Newton = Newton(),  # noqa: B008 - immutable
    t_eval: ArrayLike | None = None,
    dense_output: bool = False,
    save: Any = "all",
    events: Any = None,
    args: tuple[Any, ...] = (),
    initial: Initial = "check",
    multipliers: tuple[ArrayLike, ArrayLike] | None = None,
    project_velocity_at: Sequence[float] | float = (),
    callback: Callable[[State], Any] | None = None,
    callback_every: int = 1,
    progress: bool = False,
    state: RunState | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 10.0,
    throw: bool = True,
    backend: Backend = "auto",
    redundant: redundant.Redundant = "raise",
) -> Solution:
    """Integrate a constrained mechanical system over a time span.

    Parameters
    ----------
    system : the equations of motion.
    t_span : (t0, t1) with t1 > t0.
    q0 (size,), v0 (n,) : coordinates and velocities at t0.
    h : a step size, or an array of step sizes that sum to t1 − t0. Where a number does not divide the span,
        the last step is shorter. None (default): error control.
    rtol, atol : under error control, the local error of every component of q (in the tangent space) and of v
        that a step may add: atol + rtol · size, in the root mean square over all components. Numbers, arrays
        (n,) for q and v alike, or arrays (2, n), for q and for v. The error at the end of the span falls like
        the tolerance to the power 2/3 (docs/theory.md).
    first_step, max_step, min_step : sizes of steps under error control; chosen by default, 0.0618 of the
        span, and rounding.
    max_steps : steps that may be taken under error control, by default a million; under a transform, where
        memory for all of them is set aside, 1024.
    method : "soi2" (JN08 (13)), "hht-soi2" (JN08 (17)), "index3" and "hht-i3" (ACB15 (3)), "stabilized"
        (ACB15 section 3), "dae-alpha" (YPR98 (3.3)), "cs" and "cm" (YPR98 (3.6)), "projected" (YPR98 (2.5)),
        "generalized-alpha" (JN08 (2)), or a method object such as
        ``ga.SOI2(ga.chung_hulbert(0.2), adjust=False)``.
    rho_inf : for methods given by name, the damping of the highest frequencies: 0 most, 1 none.
    newton : policy and tolerance of the nonlinear solver.
    t_eval : increasing times (K,) at which the motion is wanted: the rows of the solution are those,
        interpolated between the steps (see :meth:`Solution.__call__`).
    dense_output : keep what ``sol(t)`` needs where ``t_eval`` or ``save`` leave out steps.
    save : which steps become rows of the solution: "all", "final", or a whole number k for every k-th and the
        last; or which quantities are kept, such as ``["q", "lam"]`` (others are None); or both,
        ``(k, ["q", "lam"])``. Memory is needed for what is kept only.
    events : a function (t, q, v, *args), (t, q, v, lam, psi, *args) or (state, *args) -> number, or
        several. Where it changes its sign, ``sol.t_events``, ``q_events``, ``v_events``, ``lam_events``,
        ``psi_events`` tell. Its attributes ``terminal``, ``direction`` and ``reset``, or those of a
        :class:`ga.Event`, say what follows.
    callback : a function of the :class:`State` (its ``a`` is the method's own a_{n+α}) that is called after
        every ``callback_every`` steps, and ends the run where it returns True.
    progress : show a bar on standard error.
    state : ``sol.state`` of another run, in the place of q0 and v0: go on from its end, as if it had not
        stopped. Bit for bit so with the same system, method, step size (or tolerances) and backend;
        otherwise from what they have in common, or anew from q and v: with another system, other arguments
        or tolerances in the place of steps, and where the next step is much longer than the last one was.
        t_span must start where it stands, or where it began.
    checkpoint : a file that the run is written to every ``checkpoint_every`` seconds and at its end. Where it
        exists, the same call goes on from it, with the same result, bit for bit, as without interruption.
        The file is replaced at once or not at all. It holds data only: reading it runs no code.
    args : tuple of pytrees, appended to the arguments of every function of the system.
    initial : "check" raises where q0, v0 break the constraints by more than 1e-8 (1 + |q|), "project" moves
        them onto the constraints first, "assume" trusts them.
    multipliers : (λ, ψ) near which to look for those at t0, where ``reaction`` is nonlinear in them; ones by
        default.
    project_velocity_at : times of steps at whose end the velocity is moved onto the hidden constraints by (7)
        of ACB15, to see what that does to a method (to "index3" nothing good: docs/theory.md).
    throw : raise :class:`IntegrationError`, which carries the partial solution, where a run stops half-way.
        With ``False`` the partial solution is returned; look at ``sol.success``.
    backend : "native" runs machine code made for this system, "xla" JAX's compiler, "auto" (default) native
        code where it can and XLA under transforms. Where native code cannot serve, XLA takes over and
        ``sol.stats.fallback`` says why; ``sol.backend`` says what ran. docs/native.md tells the difference.
    redundant : "raise" where constraints are redundant at the start, which makes multipliers ambiguous.
        "min_norm" integrates an independent choice of constraints and gives the multipliers of all with the
        smallest Euclidean norm that exert the same forces; ``sol.not_unique`` says which are ambiguous. Not
        under JAX transforms, nor for a ``reaction`` of one's own.

    Works inside ``jax.jit``, ``vmap``, ``jvp`` and ``grad`` with respect to q0, v0, args and an array h.
    Under such a transform nothing raises: failures become ``sol.status`` and NaN rows.

    Example
    -------
    A pendulum in Cartesian coordinates, released at rest; after one second:

    >>> import jax.numpy as jnp, genalpha as ga
    >>> pendulum = ga.System(
    ...     mass=jnp.eye(2),
    ...     force=lambda t, q, v: jnp.array([0.0, -9.81]),
    ...     holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
    ... )
    >>> sol = ga.solve(pendulum, (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], h=1e-3)
    >>> sol.q[-1].round(4).tolist()
    [-0.9863, -0.165]
    >>> bool(sol.residuals.velocity.max() < 1e-12)
    True
    """
    t0, t1 = arguments.span(t_span)
    args = arguments.arguments(args)
    state = arguments.state(q0, v0, state)
    if state is not None:
        (t0, t1), q0, v0 = arguments.from_state((t0, t1), state), state.q, state.v
    q0, v0 = arguments.vector("q0", q0), arguments.vector("v0", v0)  # type: ignore[arg-type]
    check_options(initial, newton, method, rho_inf)
    arguments.backend(backend, get_args(Backend))
    limits = {"first_step": first_step, "max_step": max_step, "min_step": min_step, "max_steps": max_steps}
    steps, grid = choose_steps((t0, t1), len(v0), h, rtol, atol, limits, project_velocity_at, state)
    keep = parse(save, t_eval, dense_output, (t0, t1))
    arguments.callback(callback, callback_every)
    dims, closes_over_traced = arguments.trace(system, t0, q0, v0, args)
    q0 = arguments.point(system.space, q0)
    if isinstance(method, str):
        method = methods.by_name(method, rho_inf)
    method.check(system, dims)
    if isinstance(steps, Aim):
        arguments.adjusting(method)
    listed = parse_events(events, args)
    crossings = tuple(Crossing(e.function, float(e.direction)) for e in listed)
    setup = Setup(system, method, newton, dims, crossings)
    check_events(crossings, dims, args)
    guess = arguments.multipliers(dims, multipliers)
    if closes_over_traced or arguments.under_transform(q0, v0, args, steps, guess):
        fallback = "under a JAX transform" if backend == "native" else None
        arguments.possible_under_transform(callback, progress, events, state, checkpoint)
        span = (t0, t1)
        return traced.run(setup, initial, span, steps, q0, v0, args, guess, max_steps, keep, fallback)
    bar = Bar(progress)
    show = lambda t, done: bar.update((t - t0) / (t1 - t0), f"t = {t:.4g} of {t1:.4g}, {done} steps")
    watch = single.Observers(callback, callback_every, show if progress else None)
    saving = None
    if checkpoint is not None:
        asked = (
            (t0, t1),
            q0,
            v0,
            steps,
            args,
            guess,
            initial,
            backend,
            described((method, newton, keep[2:], max_steps)),
        )
        of_events = repr([(e.direction, e.terminal, e.reset is None) for e in listed])
        file = Checkpoint(
            checkpoint, identity(*asked, keep.every, keep.t_eval, of_events, fingerprint(setup, args))
        )
        saving = Saving(file, arguments.interval(checkpoint_every))
    run = single.SingleRun(setup, args, backend, max_steps, keep, watch, listed, grid, saving)
    try:
        q, v = single.projected(setup, t0, q0, v0, args) if initial == "project" else (q0, v0)
        start = single.StartPoint(t0, q, v, guess, initial)
        if state is not None:
            same = state.args == identity(args) and state.system == of_system(setup, args)
            mode: Any = "assume" if same else initial
            guess = (state.lam, state.psi) if state.dims == dims else guess
            start = start._replace(mode=mode, guess=guess, just=state.just)
            size = None if isinstance(steps, Aim) else float(steps.steps.h[0])
            first = 0.0 if size is not None and grid is None else size  # steps of a list differ as they like
            if same and state.fits(method, first):
                start = state.start._replace(mode="assume", after=None)
            else:
                state = None
        sol = run.solution(start, steps, state)
    finally:
        bar.close()
    if throw and not sol.success:
        raise IntegrationError(sol.message, sol)
    return sol


def choose_steps(
    span: tuple[float, float],
    n: int,
    h: ArrayLike | None,
    rtol: ArrayLike,
    atol: ArrayLike,
    limits: dict[str, Any],
    project_velocity_at: Any,
    state: RunState | None,
) -> tuple[Schedule | Aim, Grid | None]:
    """The steps that were asked for, or what is to decide about them, and the grid they lie on."""
    if h is not None:
        given = [name for name, value in limits.items() if value is not None]
        tolerances = (("rtol", rtol, DEFAULT_RTOL), ("atol", atol, DEFAULT_ATOL))
        given += [name for name, value, default in tolerances if np.any(np.asarray(value) != default)]
        if given:
            raise ValueError(f"{', '.join(given)} belong to error control: leave out h, or leave them out")
        times, sizes, grid = _grid(span, h, state)
        marks = arguments.projections(project_velocity_at, times)
        return Schedule(times, Times(times[:-1], sizes, marks)), grid
    if np.size(project_velocity_at):
        raise ValueError("project_velocity_at names ends of steps, which error control does not know: pass h")
    arguments.count("max_steps", limits["max_steps"])
    longest, shortest = limits["max_step"], limits["min_step"]
    if state is not None and state.limits is not None:  # those of the span of which this is the rest
        longest, shortest = longest or state.limits[0], shortest or state.limits[1]
        longest = min(longest, span[1] - span[0])
        shortest = min(shortest, longest)
    wanted = control.controlled(span, n, rtol, atol, longest, shortest)
    first = limits["first_step"]
    wish = np.nan if first is None else control.limit("first_step", first, span[1] - span[0])
    return Aim(np.float64(wish), wanted), None


def _grid(span: tuple[float, float], h: ArrayLike, state: RunState | None) -> tuple[Any, Any, Grid | None]:
    """Times and sizes of steps; where a state stands on a grid of this step size, those that come next on
    it."""
    if np.ndim(h) or isinstance(h, str | jax.core.Tracer):
        return *control.steps(*span, h), None
    size = float(h)  # type: ignore[arg-type]
    if state is not None and state.grid is not None and state.grid.h == size:
        grid, done = state.grid, state.grid.steps
        rest = grid.rest if grid.rest is not None and grid.rest[0][-1] == span[1] else None
        times, sizes = map(np.asarray, control.steps(grid.t0, span[1], size) if rest is None else rest)
        if done < len(sizes) and abs(times[done] - state.t) <= 1e-9 * size:
            return times[done:], sizes[done:], grid
    if state is not None and 0 < span[1] - span[0] < size:  # little is left after an event
        size = span[1] - span[0]
    return *control.steps(*span, size), Grid(span[0], float(h), 0)  # type: ignore[arg-type]


def check_options(initial: str, newton: Any, method: Any, rho_inf: Any) -> None:
    if initial not in get_args(Initial):
        raise ValueError(f"initial must be one of {', '.join(get_args(Initial))}, got {initial!r}")
    if not isinstance(newton, Newton):
        raise TypeError(f"newton must be a ga.Newton, got {newton!r}")
    if isinstance(rho_inf, jax.core.Tracer) or not isinstance(rho_inf, float | int | np.number):
        raise TypeError(f"rho_inf must be a number in [0, 1] that is not traced, got {rho_inf!r}")
    if isinstance(method, str):
        return
    if not isinstance(method, methods.AlphaMethod):
        raise TypeError(
            f"method must be a name ({', '.join(methods.names())}) or a method object such as ga.SOI2(), "
            f"got {method!r}"
        )
    if rho_inf != _DEFAULT_RHO_INF:
        raise ValueError(
            "rho_inf is for methods given by name; this method object has its own coefficients, "
            f"{method.coefficients.name}"
        )
