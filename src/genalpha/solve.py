"""``ga.solve``: integrate one system."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from genalpha import methods
from genalpha.engine.discrete import Controller
from genalpha.engine.run_data import RunState
from genalpha.engine.step_choice import StepOptions
from genalpha.mechanics.state_system import with_states
from genalpha.mechanics.system import System
from genalpha.numerics.data import State
from genalpha.numerics.newton import Newton
from genalpha.results.solution import Solution
from genalpha.run import dispatch
from genalpha.run import redundant as min_norm
from genalpha.run.arguments import Hold, Numbers
from genalpha.run.request import BatchBackend, Initial, Options, one_of

Redundant = Literal["raise", "min_norm"]


def solve(
    system: System,
    t_span: tuple[float, float],
    q0: Numbers | RunState | None = None,
    v0: Numbers | None = None,
    *,
    z0: Numbers | None = None,
    method: str | methods.Method = "soi2",
    rho_inf: float | None = None,
    h: Numbers | None = None,
    rtol: Numbers | None = None,
    atol: Numbers | None = None,
    accuracy: Numbers | None = None,
    force_accuracy: float | None = None,
    extrapolate: int | None = None,
    breakpoints: Numbers = (),
    first_step: float | None = None,
    max_step: float | None = None,
    min_step: float | None = None,
    max_steps: int | None = None,
    newton: Newton = Newton(),  # noqa: B008 - immutable
    t_eval: Numbers | None = None,
    dense_output: bool = False,
    save: Any = "all",
    events: Any = None,
    max_events: int | None = None,
    args: Sequence[Any] = (),
    controller: Controller | None = None,
    initial: Initial = "check",
    hold: Hold | None = None,
    multipliers: tuple[Numbers, Numbers] | None = None,
    project_velocity_at: Numbers = (),
    callback: Callable[[State], Any] | None = None,
    callback_every: int = 1,
    progress: bool = False,
    state: RunState | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 10.0,
    throw: bool = True,
    backend: BatchBackend = "auto",
    redundant: Redundant = "raise",
) -> Solution:
    """Integrate a constrained mechanical system over a time span.

    Sizes: q has ``size`` entries and v has n. There are m holonomic and p nonholonomic constraints.

    Parameters
    ----------
    system : the equations of motion.
    t_span : (t0, t1) with t1 > t0.
    q0 (size,), v0 (n,) : coordinates and velocities at t0.
    z0 (n_states,) : first-order states at t0, of a :class:`StateSystem`.
    method : "soi2" (JN08 (13)), "hht-soi2" (JN08 (17)), "index3" and "hht-i3" (ACB15 (3)), "stabilized"
        (ACB15 section 3), "dae-alpha" (YPR98 (3.3)), "cs" and "cm" (YPR98 (3.6)), "projected" (YPR98 (2.5)),
        "generalized-alpha" (JN08 (2)), or a method object such as
        ``ga.SOI2(ga.chung_hulbert(0.2), adjust=False)``.
    rho_inf : damping of the highest frequencies, for methods given by name. It lies between 0 (most damping)
        and 1 (none). The default is 0.8.
    h : the step size, or an array of step sizes that sum to t1 − t0. If a number does not divide the span,
        the last step is shorter. None (default): error control chooses the steps.
    rtol, atol : tolerances of error control. The error at the end is about as large as atol + rtol · size in
        the root mean square over the components of q (in the tangent space) and of v, and proportional to it
        (docs/theory.md). Each is a number, an array (n,) for q and v alike, or an array (2, n), first for q,
        then for v. The default of rtol is 1e-4, that of atol is a hundredth of rtol.
    accuracy : the largest error of q and v over the whole run, relative to the size of the motion: a number,
        an array (n,) or (2, n). Runs with several step sizes are combined, and ``sol.error`` estimates the
        error of the result (docs/theory.md). It replaces ``h`` and ``rtol``. With events, resets are called
        several times for each occurrence.
    force_accuracy : with ``accuracy``, the largest error of λ, relative to the largest |λ| of the run, and
        the same for ψ. By default multipliers have the errors that follow from those of q and v.
    extrapolate : combine so many runs (2 to 8) with steps h/2, h/3, ...; needs ``h``.
    breakpoints : increasing times at which forces or constraints jump or have kinks. The run starts anew
        there. They need ``accuracy``, ``extrapolate`` or error control.
    first_step, max_step, min_step : step sizes under error control. By default the first step is estimated
        (one that is given is shortened if q would change by much more than a hundredth), the longest is
        0.0618 of the span (0.00618 while errors are negligible), and the shortest is set by rounding.
    max_steps : the most steps that error control may take. The default is one million. Under a JAX transform
        it is 4096, because memory for all of them is reserved in advance.
    newton : the policy and the tolerance of the nonlinear solver.
    t_eval : increasing times (K,). The rows of the solution are then at these times, interpolated between the
        steps (see :meth:`Solution.__call__`).
    dense_output : keep the ends of all steps, so that ``sol(t)`` works although ``t_eval`` or ``save`` leave
        out steps.
    save : what is kept. "all" or "final" steps, or a whole number k for the start, every k-th step and the
        last one. Or a list of quantities such as ``["q", "lam"]``; the others are None. Or a dict of
        quantities with the entries to keep, ``{"q": [0, 5], "lam": None}``: numbers of nodes of an
        :class:`Assembly` for q, v, a, reactions and errors, numbers of entries otherwise; None for all. Or
        both: ``(k, ["q", "lam"])``. Only what is kept takes memory.
    events : a function (t, q, v, *args), (t, q, v, lam, psi, *args) or (state, *args) that returns a number,
        or a list of such functions. An event is a change of sign. ``sol.t_events``, ``q_events``,
        ``v_events``, ``lam_events`` and ``psi_events`` list all events. To end the run at an event or to
        change velocities, positions or args there (:class:`ga.Reset`), pass a :class:`ga.Event`, or set the
        attributes ``terminal``, ``direction`` and ``reset`` of the function.
    max_events : how often an event may happen under a JAX transform, where ``t_events`` and so on have this
        length and end with NaN (docs/guide.md, Gradients). It has no effect elsewhere. The default is 64.
    args : a tuple of pytrees of numbers. They are appended to the arguments of every function of the system.
    controller : a :class:`Controller` with a sample time. Functions get one more argument after ``args``.
    initial : "check" (default) raises if q0, v0 break the constraints by more than 1e-8 (1 + |q|).
        "project" moves them onto the constraints first. "assume" takes them as they are.
    hold : with ``initial="project"``, the numbers of the components that stay as given, such as the angle and
        the rate of a crank. A list holds for q and v alike; a dict may name "q" and "v" apart. On a Lie group
        the components of q are numbered as those of v. The default is None: everything may move.
    multipliers : a guess (λ, ψ), of shapes (m,) and (p,), for the multipliers at t0. It matters only if
        ``reaction`` is nonlinear in them. The default is all ones.
    project_velocity_at : times of step ends at which the velocity is projected onto the hidden constraints by
        ACB15 (7). This is for experiments: with "index3" it makes the multipliers oscillate
        (docs/theory.md).
    callback : a function of the :class:`State` that is called after every ``callback_every`` steps. If it
        returns True, the run ends.
    progress : show a progress bar on standard error.
    state : ``sol.state`` of another run, instead of q0 and v0. The run continues from its end. t_span must
        start at the time of the state, or at the start of the run that it comes from. With the same system,
        args, method, step size (or tolerances) and backend, the result is the same to the last bit as without
        the stop. If a reset has changed the args, the run continues with the changed ones: pass those that
        the first run was given, or the changed ones. After other changes the run continues from whatever
        still applies. It starts again from q and v if the system or the args changed, if tolerances replace
        steps or steps replace tolerances, or if the next step is more than twice as long as the last one.
    checkpoint : a file to which the run is written every ``checkpoint_every`` seconds and at its end. If the
        file exists, the same call continues from it, and the result is the same to the last bit as without
        interruption. A write replaces the whole file or leaves it unchanged. The file holds data only:
        reading it runs no code.
    throw : if a run stops half-way, raise :class:`IntegrationError`, which carries the partial solution. With
        ``False`` the partial solution is returned; check ``sol.success``.
    backend : "native" runs machine code made for this system, "xla" uses JAX's compiler. "auto" (default)
        is native code, and XLA under JAX transforms. If native code is not possible, XLA is used and
        ``sol.stats.fallback`` gives the reason. ``sol.backend`` is the one that was used. docs/native.md
        compares them. "cuda" runs members of a ``jax.vmap``, and their derivatives, on a GPU.
    redundant : what to do if constraints are redundant at the start, so that the multipliers are not unique.
        "raise" (default) raises :class:`RedundantConstraints`. "min_norm" integrates with independent
        constraints among them and returns the multipliers of smallest Euclidean norm that exert the same
        forces; ``sol.not_unique`` lists the constraints with ambiguous multipliers. It works neither under
        JAX transforms nor with a ``reaction`` of your own.

    Returns
    -------
    A :class:`Solution`.

    ``solve`` works inside ``jax.jit``, ``vmap``, ``jvp`` and ``grad`` with respect to q0, v0, args and an
    array h. Under such a transform failures during the run do not raise: they set ``sol.status`` and leave
    NaN in the rows.

    Examples
    --------
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

    The same with error control, up to the first passage of the lowest point:

    >>> lowest = ga.Event(lambda t, q, v: q[0], terminal=True)
    >>> sol = ga.solve(pendulum, (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], rtol=1e-6, events=lowest)
    >>> round(float(sol.t[-1]), 3), sol.message
    (0.592, 'a terminal event ended the run')
    """
    limits = (first_step, max_step, min_step, max_steps)
    accurate = (accuracy, extrapolate, breakpoints, force_accuracy)
    given = Options(
        method=method,
        rho_inf=rho_inf,
        steps=StepOptions(h, rtol, atol, *limits, project_velocity_at, *accurate),
        newton=newton,
        t_eval=t_eval,
        dense_output=dense_output,
        save=save,
        events=events,
        max_events=max_events,
        args=args,
        controller=controller,
        initial=initial,
        hold=hold,
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
    return run(system, t_span, q0, with_states(system, v0, z0), given)
