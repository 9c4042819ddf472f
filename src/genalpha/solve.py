"""The front door for one run."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from genalpha import methods
from genalpha.engine.run_data import RunState
from genalpha.engine.step_choice import StepOptions
from genalpha.mechanics.system import System
from genalpha.numerics.data import State
from genalpha.numerics.newton import Newton
from genalpha.results.solution import Solution
from genalpha.run import dispatch
from genalpha.run import redundant as min_norm
from genalpha.run.arguments import Numbers
from genalpha.run.request import Backend, Initial, Options, one_of

Redundant = Literal["raise", "min_norm"]


def solve(
    system: System,
    t_span: tuple[float, float],
    q0: Numbers | RunState | None = None,
    v0: Numbers | None = None,
    *,
    method: str | methods.Method = "soi2",
    rho_inf: float | None = None,
    h: Numbers | None = None,
    rtol: Numbers | None = None,
    atol: Numbers | None = None,
    first_step: float | None = None,
    max_step: float | None = None,
    min_step: float | None = None,
    max_steps: int | None = None,
    newton: Newton = Newton(),  # noqa: B008 - immutable
    t_eval: Numbers | None = None,
    dense_output: bool = False,
    save: Any = "all",
    events: Any = None,
    args: Sequence[Any] = (),
    initial: Initial = "check",
    multipliers: tuple[Numbers, Numbers] | None = None,
    project_velocity_at: Numbers = (),
    callback: Callable[[State], Any] | None = None,
    callback_every: int = 1,
    progress: bool = False,
    state: RunState | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 10.0,
    throw: bool = True,
    backend: Backend = "auto",
    redundant: Redundant = "raise",
) -> Solution:
    """Integrate a constrained mechanical system over a time span.

    Parameters
    ----------
    system : the equations of motion.
    t_span : (t0, t1) with t1 > t0.
    q0 (size,), v0 (n,) : coordinates and velocities at t0.
    h : a step size, or an array of step sizes that sum to t1 − t0. If a number does not divide the span, the
        last step is shorter. None (default): error control.
    rtol, atol : under error control, the local error of every component of q (in the tangent space) and of v
        that a step may add: atol + rtol · size, in the root mean square over all components. Numbers, arrays
        (n,) for q and v alike, or arrays (2, n), for q and for v. By default 1e-4 and 1e-6. The error at the
        end of the span falls like the tolerance to the power 2/3 (docs/theory.md).
    first_step, max_step, min_step : sizes of steps under error control; chosen by default, 0.0618 of the
        span, and rounding.
    max_steps : steps that may be taken under error control, by default a million; under a transform, where
        memory for all of them is set aside, 1024.
    method : "soi2" (JN08 (13)), "hht-soi2" (JN08 (17)), "index3" and "hht-i3" (ACB15 (3)), "stabilized"
        (ACB15 section 3), "dae-alpha" (YPR98 (3.3)), "cs" and "cm" (YPR98 (3.6)), "projected" (YPR98 (2.5)),
        "generalized-alpha" (JN08 (2)), or a method object such as
        ``ga.SOI2(ga.chung_hulbert(0.2), adjust=False)``.
    rho_inf : for methods given by name, the damping of the highest frequencies: 0 most, 1 none; 0.8 by
        default.
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
    limits = (first_step, max_step, min_step, max_steps)
    given = Options(
        method=method,
        rho_inf=rho_inf,
        steps=StepOptions(h, rtol, atol, *limits, project_velocity_at),
        newton=newton,
        t_eval=t_eval,
        dense_output=dense_output,
        save=save,
        events=events,
        args=args,
        initial=initial,
        multipliers=multipliers,
        callback=callback,
        callback_every=callback_every,
        progress=progress,
        state=state,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        throw=throw,
        backend=backend,
    )
    one_of("redundant", redundant, get_args(Redundant))
    run = min_norm.run if redundant == "min_norm" else dispatch.run
    return run(system, t_span, q0, v0, given)
