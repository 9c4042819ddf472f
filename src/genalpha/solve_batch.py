"""Many variations of one system at once: on all cores and vector lanes, or on a GPU."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from jax.typing import ArrayLike

from genalpha import methods
from genalpha.backends.batch.plan import BatchPlan
from genalpha.backends.native.kernels import Aim
from genalpha.compiler.graph import Unsupported
from genalpha.engine import interpolate
from genalpha.engine import steps as control
from genalpha.engine.step import Setup
from genalpha.mechanics.system import System
from genalpha.numerics.data import Schedule, Times
from genalpha.numerics.newton import Newton
from genalpha.results import output
from genalpha.results.solution import Solution
from genalpha.run import arguments
from genalpha.run.batch import Backend, Batch, Progress
from genalpha.run.batch_axes import find_axes, member
from genalpha.solve import DEFAULT_ATOL, DEFAULT_RTOL, Initial, check_options, choose_steps


def solve_batch(
    system: System,
    t_span: tuple[float, float],
    q0: ArrayLike,
    v0: ArrayLike,
    *,
    h: ArrayLike | None = None,
    rtol: ArrayLike = DEFAULT_RTOL,
    atol: ArrayLike = DEFAULT_ATOL,
    first_step: float | None = None,
    max_step: float | None = None,
    min_step: float | None = None,
    max_steps: int | None = None,
    args: tuple[Any, ...] = (),
    args_axes: Any = "auto",
    t_eval: ArrayLike | None = None,
    save: Literal["final", "all"] | int = "final",
    method: str | methods.Method = "soi2",
    rho_inf: float = 0.8,
    newton: Newton = Newton(),  # noqa: B008 - immutable
    initial: Initial = "check",
    backend: Backend = "auto",
    progress: bool = False,
    redundant: Literal["raise"] = "raise",
) -> Solution:
    """Integrate many variations of a system, over the same steps or each with its own error control.

    Parameters
    ----------
    q0 (size,) or (B, size), v0 (n,) or (B, n) : initial values, shared or one for each member.
    args : as in :func:`solve`; its arrays may have a leading axis B.
    args_axes : which of them have it. "auto" (default): those whose first axis has B entries, if the
        functions of the system can be called with a member's part. Otherwise a tree like ``args`` with 0 for
        an array that varies along its first axis and None for one that all members share; 0 or None for a
        whole argument will do.
    h, rtol, atol, first_step, max_step, min_step, max_steps : as in :func:`solve`. Under error control
        (``h=None``) every member takes steps of its own: the rows are the last one, or those at ``t_eval``.
    t_eval : increasing times (K,) at which the motion of all members is wanted, interpolated between their
        steps as :func:`solve` does.
    save : "final" keeps the last row, "all" every row, a number k the start, every k-th row and the last.
    initial : "check" marks members that break the constraints, "project" moves all onto them, "assume" trusts
        them.
    backend : "native" (threads and vector lanes on the CPU), "cuda" (a GPU, one thread a member; needs cupy),
        "xla", or "auto": native where it can serve.
    progress : show a bar.

    Other parameters are those of :func:`solve`; ``redundant="min_norm"`` is refused.

    Returns a :class:`Solution` whose arrays have the batch axis first: q (B, K, size) with K kept rows,
    t (B, K), status (B,), stats of B numbers each. ``batch[i]`` is a member. A member that fails raises
    nothing: it has a status, ``stats.steps`` good steps, and NaN in the rows after them; the others are not
    touched. Only where no member can be started, the first one's error is raised.

    Example
    -------
    Pendulums of four lengths; after one second:

    >>> import jax.numpy as jnp, numpy as np, genalpha as ga
    >>> pendulum = ga.System(
    ...     mass=jnp.eye(2),
    ...     force=lambda t, q, v, length: jnp.array([0.0, -9.81]),
    ...     holonomic=lambda t, q, length: jnp.array([q @ q - length**2]),
    ... )
    >>> lengths = np.array([0.5, 1.0, 1.5, 2.0])
    >>> q0 = np.stack([lengths, 0 * lengths], axis=1)
    >>> batch = ga.solve_batch(pendulum, (0.0, 1.0), q0, [0.0, 0.0], h=1e-3, args=(lengths,))
    >>> batch.q[:, -1, 0].round(4).tolist()
    [-0.4833, -0.9863, -1.1917, -0.9574]
    >>> batch.success.all()
    np.True_
    """
    if redundant != "raise":
        raise ValueError(
            f"solve_batch cannot choose among redundant constraints (redundant={redundant!r}): state "
            "independent ones, or call ga.solve for each member"
        )
    t0, t1 = arguments.span(t_span)
    arguments.is_system(system)
    check_options(initial, newton, method, rho_inf)
    arguments.backend(backend, get_args(Backend))
    q, v, args = _array("q0", q0), _array("v0", v0), arguments.arguments(args)
    if arguments.under_transform(q, v, args):
        raise TypeError("solve_batch must not be traced: under a JAX transform use jax.vmap of ga.solve")
    varying, count = find_axes(system, t0, q, v, args, args_axes)
    dims, _ = arguments.trace(system, t0, *member((q, v, args), (q.ndim == 2, v.ndim == 2, varying), 0))
    limits = {"first_step": first_step, "max_step": max_step, "min_step": min_step, "max_steps": max_steps}
    steps, _ = choose_steps((t0, t1), dims.n, h, rtol, atol, limits, (), None)
    if isinstance(method, str):
        method = methods.by_name(method, rho_inf)
    method.check(system, dims)
    setup = Setup(system, method, newton, dims)
    q, v = np.broadcast_to(q, (count, dims.size)), np.broadcast_to(v, (count, dims.n))
    plan = _plan((t0, t1), steps, save, t_eval, initial == "check", max_steps)
    if plan.aim is not None:
        arguments.adjusting(method)
    batch = Batch(setup, (t0, t1), h, plan, args, varying, initial)
    q, v, refused = batch.points(q, v)
    bar = Progress(count, progress)
    if backend == "xla":
        return batch.by_xla(q, v, refused, None, bar)
    try:
        fixed = plan.aim is None
        suited = setup._replace(method=control.suited(method, plan.steps.h) if fixed else method)
        return batch._replace(setup=suited).compiled(q, v, refused, backend, bar)
    except Unsupported as reason:
        if backend == "cuda":
            raise ValueError(f'backend="cuda" cannot run this system: {reason}') from reason
        return batch.by_xla(q, v, refused, str(reason), bar)


# --- what varies ----------------------------------------------------------------------------------------


def _array(name: str, value: ArrayLike) -> Any:
    """A finite array with one or two axes."""
    if arguments.is_traced(value):
        return value
    array = np.asarray(value)
    if array.ndim != 2:
        return arguments.vector(name, array)
    if array.size == 0:
        raise ValueError(f"{name} must have shape (B, n) with B, n > 0, got shape {array.shape}")
    if array.dtype.kind == "O" or not np.isfinite(array).all():
        for i, row in enumerate(array):
            arguments.vector(f"{name}[{i}]", row)  # says what is wrong with it
    return np.asarray(array, dtype=float)


def _plan(
    span: tuple[float, float], steps: Schedule | Aim, save: Any, t_eval: Any, strict: bool, most: int | None
) -> BatchPlan:
    wanted = None if t_eval is None else output.times(t_eval, span)
    if wanted is not None and save != "final":
        raise ValueError("t_eval says which times are kept, and so does save: leave out one of them")
    if isinstance(steps, Aim):
        if save != "final":
            raise ValueError(
                "under error control every member takes steps of its own, so that save must be 'final', got "
                f"{save!r}. Pass times as t_eval, or h"
            )
        ends = np.array(span)
        nothing = Times(ends[:1], np.array([np.nan]))
        return BatchPlan(nothing, ends, np.array([1]), strict, steps, most or 0, wanted)
    times, sizes = np.asarray(steps.times), np.asarray(steps.steps.h)
    count = len(sizes)
    if wanted is not None:
        after = interpolate.steps_of(times, wanted)
        kept = np.union1d(after, np.maximum(after - 1, 0))
    elif isinstance(save, str) and save in ("final", "all"):
        kept = np.array([count]) if save == "final" else np.arange(count + 1)
    elif isinstance(save, int | np.integer) and not isinstance(save, bool) and save > 0:
        kept = np.unique(np.append(np.arange(0, count + 1, int(save)), count))
    else:
        raise ValueError(
            f'save must be "final", "all" or a whole number k > 0 for every k-th step, got {save!r}'
        )
    given = Times(np.ascontiguousarray(times[:-1]), np.ascontiguousarray(sizes))
    return BatchPlan(given, times, kept, strict, t_eval=wanted)
