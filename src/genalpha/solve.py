"""The front door: checks the arguments, finds consistent values, picks a driver."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from genalpha import check, control, diagnose, initial, methods, redundant
from genalpha.advance import Setup
from genalpha.drive import native, xla
from genalpha.errors import IntegrationError
from genalpha.kernels.graph import Unsupported
from genalpha.newton import Newton
from genalpha.solution import NewtonHistory, Reactions, Residuals, Solution, Stats
from genalpha.state import Times
from genalpha.states import begin as begin_program
from genalpha.system import Args, System

Initial = Literal["check", "project", "assume"]
Backend = Literal["auto", "native", "xla"]
_DEFAULT_RHO_INF = 0.8


@redundant.allowed
def solve(
    system: System,
    t_span: tuple[float, float],
    q0: ArrayLike,
    v0: ArrayLike,
    *,
    h: ArrayLike,
    method: str | methods.Method = "soi2",
    rho_inf: float = _DEFAULT_RHO_INF,
    newton: Newton = Newton(),  # noqa: B008 - immutable
    args: tuple[Any, ...] = (),
    initial: Initial = "check",
    multipliers: tuple[ArrayLike, ArrayLike] | None = None,
    project_velocity_at: Sequence[float] | float = (),
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
        the last step is shorter.
    method : "soi2" (JN08 (13)), "hht-soi2" (JN08 (17)), "index3" and "hht-i3" (ACB15 (3)), "stabilized"
        (ACB15 section 3), "dae-alpha" (YPR98 (3.3)), "cs" and "cm" (YPR98 (3.6)), "projected" (YPR98 (2.5)),
        "generalized-alpha" (JN08 (2)), or a method object such as
        ``ga.SOI2(ga.chung_hulbert(0.2), adjust=False)``.
    rho_inf : for methods given by name, the damping of the highest frequencies: 0 most, 1 none.
    newton : policy and tolerance of the nonlinear solver.
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
    t0, t1 = check.span(t_span)
    q0, v0, args = check.vector("q0", q0), check.vector("v0", v0), check.arguments(args)
    check_options(initial, newton, method, rho_inf)
    check.backend(backend, get_args(Backend))
    times, sizes = control.steps(t0, t1, h)
    dims, closes_over_traced = check.trace(system, t0, q0, v0, args)
    q0 = check.point(system.space, q0)
    steps = Times(times[:-1], sizes, check.projections(project_velocity_at, times))  # type: ignore[index]
    if isinstance(method, str):
        method = methods.by_name(method, rho_inf)
    method.check(system, dims)
    setup = Setup(system, method, newton, dims)
    guess = check.multipliers(dims, multipliers)
    if closes_over_traced or check.under_transform(q0, v0, args, sizes, guess):
        traced = _traced(initial, t1, "under a JAX transform" if backend == "native" else None)
        run = xla.program(setup, f"traced {initial} {t1} {backend == 'native'}", traced, outermost=False)
        return run(times, steps, q0, v0, args, guess)
    sol = _concrete(setup, initial, np.asarray(times), steps, q0, v0, args, guess, backend)
    if not sol.success:
        sol = _explained(setup, sol, steps, args)
    if throw and not sol.success:
        raise IntegrationError(sol.message, sol)
    return sol


def _explained(setup: Setup, sol: Solution, steps: Times, args: Args) -> Solution:
    """A solution that failed, with what is known beyond its status: constraints that become dependent."""
    dims, failures = setup.dims, (diagnose.SINGULAR, diagnose.NOT_CONVERGED, diagnose.NOT_FINITE)
    if not (dims.m or dims.p) or sol.status not in failures:
        return sol
    h = steps.h[sol.stats.steps]
    before, rows = xla.program(setup, "rows", _rows)(sol.t[-1], sol.q[-1], sol.v[-1], h, args)
    detail = check.dependence(np.asarray(rows), np.asarray(before), dims.m, sol.t[-1] + h)
    return dataclasses.replace(sol, detail=detail)


def _rows(setup: Setup, t: Any, q: Any, v: Any, h: Any, args: Args) -> tuple[Any, Any]:
    """The constraint matrix in the scale of the mass matrix, at a state and where it leads in a step h."""

    def rows(t: Any, q: Any) -> Any:
        of = initial.matrices(setup.system, setup.dims, t, q, v, args)
        return jnp.concatenate([of.G, of.K]) * initial.size_of_mass(of.M)

    return rows(t, q), rows(t + h, setup.system.space.retract(q, h * v))


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


def _project(setup: Setup, t: Any, q: Any, v: Any, args: Args) -> tuple[Any, Any, Any]:
    return initial.project(setup.system, setup.dims, t, q, v, args)


def _traced(mode: str, t1: float, fallback: str | None) -> Callable[..., Solution]:
    """The whole run as one traced computation."""

    def run(setup: Setup, times: Any, steps: Times, q: Any, v: Any, args: Args, guess: Any) -> Solution:
        status = diagnose.not_rotations(jnp.array(diagnose.SUCCESS), setup.system.space.defect(q))
        q, sizes = setup.system.space.normalize(q), steps.h
        if mode == "project":
            q, v, code = _project(setup, times[0], q, v, args)
            status = diagnose.first(status, code)
        begin = begin_program(setup, times[0], q, v, args, guess)
        fitting = jnp.all(sizes > 0) & (jnp.abs(times[-1] - t1) <= control.SPAN_TOLERANCE * (t1 - times[0]))
        status = diagnose.first(status, jnp.where(fitting, diagnose.SUCCESS, diagnose.BAD_STEPS))
        finite = jnp.where(initial.is_finite(begin), diagnose.SUCCESS, diagnose.NOT_FINITE)
        status = diagnose.first(status, finite)
        if mode == "check":
            fitting = check.consistent(begin)
            status = diagnose.first(status, jnp.where(fitting, diagnose.SUCCESS, diagnose.INCONSISTENT))
        status = diagnose.first(status, begin.report.status)
        begin = begin._replace(report=begin.report._replace(status=status))
        rows, status = xla.scan(setup, begin, steps, args)
        # Under a transform only a constant mass matrix can be known to be singular.
        massless = setup.system.constant_mass and check.is_singular(setup.system.mass)
        derived = xla.derive(setup, rows, times, begin.scale, args, massless)
        return _solution(setup, rows, derived, times, sizes, status, "xla", fallback)

    return run


def _concrete(
    setup: Setup,
    mode: str,
    times: np.ndarray,
    steps: Times,
    q: Any,
    v: Any,
    args: Args,
    guess: Any,
    backend: Backend,
) -> Solution:
    """The whole run as a few calls of compiled programs."""
    if mode == "project":
        q, v, status = xla.program(setup, "project", _project)(times[0], q, v, args)
        if int(status) != diagnose.SUCCESS:
            raise ValueError(
                "initial='project' found no q and v on the constraints near q0 and v0: "
                + diagnose.reason(int(status))
            )
    fallback = None
    if backend != "xla":
        try:
            return _native(setup, mode, times, steps, np.asarray(q), np.asarray(v), args, guess)
        except Unsupported as reason:
            fallback = str(reason)
    begin = xla.program(setup, "begin", begin_program)(times[0], q, v, args, guess)
    check.beginning(begin, mode, setup.system.space)
    rows, status = xla.march(setup, begin, steps, args)
    times, sizes = times[: len(rows.q)], steps.h[: len(rows.q) - 1]
    derived = xla.derive_blocks(setup, rows, times, begin.scale, args, check.is_singular(begin.M))
    return _solution(setup, rows, derived, times, sizes, status, "xla", fallback)


def _native(
    setup: Setup,
    mode: str,
    times: np.ndarray,
    steps: Times,
    q: np.ndarray,
    v: np.ndarray,
    args: Args,
    guess: Any,
) -> Solution:
    setup = setup._replace(method=control.suited(setup.method, steps.h))
    run = native.begin(setup, float(times[0]), q, v, float(steps.h[0]), args, guess, mode)
    rows, status, fallback = native.march(setup, run, steps, args)
    times, sizes = times[: len(rows.q)], steps.h[: len(rows.q) - 1]
    derived = native.derive(setup, run, rows, times, run.start.begin.scale, args)
    return _solution(setup, rows, derived, times, sizes, status, "native", fallback)


def _solution(
    setup: Setup,
    rows: xla.Rows,
    derived: xla.Derived,
    times: Any,
    sizes: Any,
    status: Any,
    backend: str,
    fallback: str | None,
) -> Solution:
    np_ = np if isinstance(rows.q, np.ndarray) else jnp
    method = setup.method
    t_alpha = np_.concatenate([rows.t_alpha[None], times[1:] + method.alpha * sizes])
    counts = np_.where(np_.isnan(rows.report), 0, rows.report).astype(int)
    iterations, jacobians, rounding = counts[:, 0], counts[:, 1], counts[:, 2]

    def total(column: Any) -> Any:
        return int(column.sum()) if np_ is np else column.sum()

    steps = len(sizes) if np_ is np else jnp.sum(jnp.isfinite(rows.report[:, 0]))
    return Solution(
        t=times,
        q=rows.q,
        v=rows.v,
        a=derived.a,
        a_alpha=rows.a_alpha,
        t_alpha=t_alpha,
        lam=rows.lam,
        psi=rows.psi,
        residuals=Residuals(derived.position, derived.velocity, derived.nonholonomic),
        reactions=Reactions(derived.holonomic_force, derived.nonholonomic_force, derived.reaction),
        stats=Stats(
            steps, 0, total(iterations), total(jacobians), total(jacobians), total(rounding), fallback
        ),
        newton=NewtonHistory(iterations, jacobians, rounding.astype(bool)),
        status=status,
        extra=rows.extra,
        method=method.name,
        rotations=setup.system.space.rotations,
        backend=backend,
    )
