"""Functions of one state: consistent accelerations and multipliers, projections onto the constraints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha import methods
from genalpha.backends.cache import program
from genalpha.backends.sparse import front as sparse
from genalpha.engine import start as starts
from genalpha.engine.setup import Setup
from genalpha.mechanics import start_errors
from genalpha.mechanics.system import System
from genalpha.numerics.data import State
from genalpha.numerics.newton import Newton
from genalpha.numerics.tracing import under_transform
from genalpha.run import arguments, projection
from genalpha.run.arguments import Hold, Numbers


def consistent(
    system: System,
    t0: Numbers,
    q0: Numbers,
    v0: Numbers,
    args: Sequence[Any] = (),
    multipliers: tuple[Numbers, Numbers] | None = None,
) -> State:
    """Consistent accelerations and multipliers at (t0, q0, v0), from the hidden acceleration constraints.

    Returns a :class:`State` with t, q (size,), v (n,), a (n,), lam (m,), psi (p,). See JN08 below (12). q0
    and v0 are not checked: they need not satisfy the constraints. ``args`` and ``multipliers`` are as in
    :func:`solve`.

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
    if closes_over_traced or under_transform(t0, q0, v0, args, guess):
        run = program(setup, "begin, traced", starts.begin, outermost=False)
        state = run(jnp.asarray(t0, float), system.space.normalize(jnp.asarray(q0)), v0, args, guess).state
        return jax.tree.map(lambda x: jnp.where(projection.is_point(system, q0), x, jnp.nan), state)
    if sparse.large(setup):
        return sparse.consistent(setup, float(t0), np.asarray(q0), np.asarray(v0), args, guess)  # type: ignore[arg-type]
    found = program(setup, "begin", starts.begin)(float(t0), q0, v0, args, guess)  # type: ignore[arg-type]
    start_errors.examine(found, "assume", system)
    return jax.tree.map(np.asarray, found.state)


def project_position(
    system: System, t: Numbers, q: Numbers, args: Sequence[Any] = (), hold: Hold | None = None
) -> Array:
    """Project coordinates q (size,) onto the holonomic constraints, ACB15 (6).

    Returns the point q ∘ exp(d) (size,) on the constraints with the smallest dᵀM d. Raises a ValueError if
    there is none near q. (The left side of (6a), printed as q_n, is q_{n+1}.) ``hold`` lists the components
    that stay as they are, numbered as the velocities.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> circle = ga.System(jnp.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q @ q - 1.0]))
    >>> ga.project_position(circle, 0.0, [0.6, 0.9]).round(6).tolist()  # straight outwards
    [0.5547, 0.83205]
    >>> ga.project_position(circle, 0.0, [0.6, 0.9], hold=[0]).round(6).tolist()
    [0.6, 0.8]
    """
    arguments.is_system(system)
    q, args = arguments.vector("q", q), arguments.arguments(args)
    return projection.position(system, t, q, args, hold)


def project_velocity(
    system: System, t: Numbers, q: Numbers, v: Numbers, args: Sequence[Any] = (), hold: Hold | None = None
) -> Array:
    """Project velocities v (n,) onto the hidden and nonholonomic constraints, ACB15 (7).

    Returns the velocity v + d (n,) with g_t + G (v + d) = 0, k(t, q, v + d) = 0 and the smallest dᵀM d.
    Raises a ValueError if there is none near v. q is not changed. ``hold`` lists the components of v that
    stay as they are.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> circle = ga.System(jnp.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q @ q - 1.0]))
    >>> (ga.project_velocity(circle, 0.0, [1.0, 0.0], [0.3, 2.0]) + 0.0).round(6).tolist()
    [0.0, 2.0]
    """
    q, v, args = arguments.vector("q", q), arguments.vector("v", v), arguments.arguments(args)
    return projection.velocity(system, t, q, v, args, hold)
