"""Questions about one state: consistent accelerations and multipliers, projections onto the constraints."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from genalpha import methods
from genalpha.backends.xla import given as xla
from genalpha.engine.step import Setup
from genalpha.mechanics import initial_values, start_errors
from genalpha.mechanics.system import Args, System
from genalpha.numerics import codes
from genalpha.numerics.data import State
from genalpha.numerics.newton import Newton
from genalpha.run import arguments


def consistent(
    system: System,
    t0: ArrayLike,
    q0: ArrayLike,
    v0: ArrayLike,
    args: tuple[Any, ...] = (),
    multipliers: tuple[ArrayLike, ArrayLike] | None = None,
) -> State:
    """Accelerations and multipliers that belong to (t0, q0, v0), from the hidden acceleration constraints.

    Returns a :class:`State` with t, q (size,), v (n,), a (n,), lam (m,), psi (p,); JN08 below (12). q0 and v0
    are taken as they are, on the constraints or not. ``multipliers`` is as in :func:`solve`.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> pendulum = ga.System(
    ...     mass=jnp.eye(2),
    ...     force=lambda t, q, v: jnp.array([0.0, -9.81]),
    ...     holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
    ... )
    >>> state = ga.consistent(pendulum, 0.0, [1.0, 0.0], [0.0, 2.0])
    >>> state.a.round(12).tolist(), state.lam.round(12).tolist()  # centripetal, and the force that causes it
    ([-4.0, -9.81], [2.0])
    """
    q0, v0, args = arguments.vector("q0", q0), arguments.vector("v0", v0), arguments.arguments(args)
    dims, closes_over_traced = arguments.trace(system, t0, q0, v0, args)
    q0 = arguments.point(system.space, q0)
    setup = Setup(system, methods.SOI2(start="a0"), Newton(), dims)
    guess = arguments.multipliers(dims, multipliers)
    if closes_over_traced or arguments.under_transform(t0, q0, v0, args, guess):
        run = xla.program(setup, "begin, traced", begin, outermost=False)
        state = run(jnp.asarray(t0, float), system.space.normalize(jnp.asarray(q0)), v0, args, guess).state
        return jax.tree.map(lambda x: jnp.where(_is_point(system, q0), x, jnp.nan), state)
    found = xla.program(setup, "begin", begin)(float(t0), q0, v0, args, guess)  # type: ignore[arg-type]
    start_errors.examine(found, "assume", system.space)
    return jax.tree.map(np.asarray, found.state)


def project_position(system: System, t: ArrayLike, q: ArrayLike, args: tuple[Any, ...] = ()) -> Array:
    """The point q ∘ exp(d) (size,) on the holonomic constraints with the smallest dᵀM d: ACB15 (6).

    The left side of (6a), printed q_n, is q_{n+1}.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> circle = ga.System(jnp.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q @ q - 1.0]))
    >>> ga.project_position(circle, 0.0, [0.6, 0.9]).round(6).tolist()  # straight outwards
    [0.5547, 0.83205]
    """
    arguments.is_system(system)
    q, args = arguments.vector("q", q), arguments.arguments(args)
    n = q.size if system.space.dim is None else system.space.dim
    return _projected(system, "position", t, q, jnp.zeros(n), args)


def project_velocity(
    system: System, t: ArrayLike, q: ArrayLike, v: ArrayLike, args: tuple[Any, ...] = ()
) -> Array:
    """The velocity v + d (n,) with g_t + G (v + d) = 0, k = 0 and the smallest dᵀM d: ACB15 (7).

    >>> import jax.numpy as jnp, genalpha as ga
    >>> circle = ga.System(jnp.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q @ q - 1.0]))
    >>> (ga.project_velocity(circle, 0.0, [1.0, 0.0], [0.3, 2.0]) + 0.0).round(6).tolist()
    [0.0, 2.0]
    """
    q, v, args = arguments.vector("q", q), arguments.vector("v", v), arguments.arguments(args)
    return _projected(system, "velocity", t, q, v, args)


def _projected(system: System, what: str, t: Any, q: Any, v: Any, args: Args) -> Array:
    dims, closes_over_traced = arguments.trace(system, t, q, v, args)
    q = arguments.point(system.space, q)
    setup = Setup(system, methods.SOI2(start="a0"), Newton(), dims)
    traced = closes_over_traced or arguments.under_transform(t, q, v, args)
    project = {"position": _project_position, "velocity": _project_velocity}[what]
    run = xla.program(setup, f"project {what}, {traced}", project, outermost=not traced)
    result, status = run(jnp.asarray(t, float), q, v, args)
    if traced:
        return jnp.where((status == codes.SUCCESS) & _is_point(system, q), result, jnp.nan)
    if int(status) != codes.SUCCESS:
        raise ValueError(f"found no {what} on the constraints nearby: {codes.reason(int(status))}")
    return jax.tree.map(np.asarray, result)


def _is_point(system: System, q: Any) -> Array:
    """Whether the quaternions of a traced q are nearly of length one."""
    return codes.not_rotations(jnp.array(codes.SUCCESS), system.space.defect(q)) == codes.SUCCESS


def _project_position(setup: Setup, t: Any, q: Any, v: Any, args: Args) -> tuple[Any, Any]:
    q = setup.system.space.normalize(q)
    return initial_values.project_position(setup.system, setup.dims, t, q, args)


def _project_velocity(setup: Setup, t: Any, q: Any, v: Any, args: Args) -> tuple[Any, Any]:
    q = setup.system.space.normalize(q)
    return initial_values.project_velocity(setup.system, setup.dims, t, q, v, args)


def begin(setup: Setup, t: Any, q: Any, v: Any, args: Args, guess: Any) -> initial_values.Beginning:
    """Everything about the start of a run, to be compiled."""
    return initial_values.begin(setup.system, setup.dims, t, q, v, args, guess, setup.method.needs_rate)
