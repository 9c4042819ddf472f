"""Values at the start: consistent a, λ, ψ, their rate of change, and projection of q and v."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from genalpha import diagnose, linear, newton
from genalpha.state import NewtonReport, Scale, State
from genalpha.system import Args, Dims, System

Multipliers = tuple[Array, Array]
_NEWTON = newton.Newton(policy="full", tol=1e-11, max_iterations=50)


class Beginning(NamedTuple):
    """Consistent values at t_0 and what is needed to judge them.

    ``rows`` (m + p, n) is the scaled constraint matrix, ``g``, ``g_dot``, ``k`` are the constraints, ``M``
    and ``applied`` the mass matrix and the applied forces, all at (t_0, q_0, v_0).
    """

    state: State
    a_dot: Array
    scale: Scale
    report: NewtonReport
    rows: Array
    g: Array
    g_dot: Array
    k: Array
    M: Array
    applied: Array


def scales(system: System, dims: Dims, t: Array, q: Array, v: Array, args: Args) -> Scale:
    """Typical sizes from the mass matrix and the constraint matrices at one state."""

    def inverse_size(sizes: Array) -> Array:
        largest = jnp.max(sizes, initial=0.0)
        fallback = jnp.where(largest > 0, largest, 1.0)
        return 1 / jnp.where(sizes > 0, sizes, fallback)

    def rows_of(matrix: Array) -> Array:
        return inverse_size(jnp.max(jnp.abs(matrix) * a, axis=1, initial=0.0))

    a = jnp.sqrt(inverse_size(jnp.max(jnp.abs(system.M(t, q, args)), axis=1)))
    G = system.G(t, q, args) if dims.m else jnp.zeros((0, dims.n))
    lam = rows_of(G)
    psi = rows_of(system.K(t, q, v, args)) if dims.p else jnp.zeros(0)
    eta = inverse_size(lam * jnp.sum(G**2, axis=1))
    return lax.stop_gradient(Scale(a, lam, psi, eta))


def accelerations(
    system: System,
    dims: Dims,
    scale: Scale,
    t: Array,
    q: Array,
    v: Array,
    args: Args,
    multipliers: Multipliers | None = None,
) -> tuple[tuple[Array, Array, Array], NewtonReport]:
    """Consistent (a, λ, ψ): the equations of motion and the hidden acceleration constraints.

    JN08, the conditions below (12). They are linear in a, and for the default reaction in λ and ψ too:
    Newton then needs its first correction only. Otherwise it starts from ``multipliers`` (λ, ψ), ones by
    default, because forces such as λ² have no derivative at zero.
    """

    def unpack(x: Array) -> tuple[Array, Array, Array]:
        a, lam, psi = jnp.split(x, [dims.n, dims.n + dims.m])
        return a * scale.a, lam * scale.lam, psi * scale.psi

    def residual(x: Array) -> Array:
        a, lam, psi = unpack(x)
        rows = [scale.a * (system.M(t, q, args) @ a - system.f(t, q, v, lam, psi, args))]
        if dims.m:
            rows += [scale.lam * system.g_ddot(t, q, v, a, args)]
        if dims.p:
            rows += [scale.psi * system.k_dot(t, q, v, a, args)]
        return jnp.concatenate(rows)

    if system.reaction is None:
        x, report = _linear_root(residual, dims.n + dims.m + dims.p)
    else:
        lam, psi = (jnp.ones(dims.m), jnp.ones(dims.p)) if multipliers is None else multipliers
        guess = jnp.concatenate([jnp.zeros(dims.n), lam / scale.lam, psi / scale.psi])
        x, report = _root(residual, guess, jnp.max(jnp.abs(residual(guess))))
    return unpack(x), report


def begin(
    system: System,
    dims: Dims,
    t: Array,
    q: Array,
    v: Array,
    args: Args,
    multipliers: Multipliers | None = None,
    want_rate: bool = True,
) -> Beginning:
    """Everything about the start in one traced function; a_0' by differentiating the consistent values."""
    scale = scales(system, dims, t, q, v, args)

    def consistent(t: Array, q: Array, v: Array) -> tuple[tuple[Array, Array, Array], NewtonReport]:
        return accelerations(system, dims, scale, t, q, v, args, multipliers)

    if want_rate:
        values, tangent, report = jax.linearize(consistent, t, q, v, has_aux=True)
        a_dot = tangent(jnp.ones_like(t), system.space.rate(q, v), values[0])[0]
    else:
        values, report = consistent(t, q, v)
        a_dot = jnp.zeros_like(v)
    g, g_dot = system.g_and_dot(t, q, v, args) if dims.m else (jnp.zeros(0), jnp.zeros(0))
    rows = []
    if dims.m:
        rows += [scale.lam[:, None] * system.G(t, q, args) * scale.a]
    if dims.p:
        rows += [scale.psi[:, None] * system.K(t, q, v, args) * scale.a]
    return Beginning(
        state=State(t, q, v, *values),
        a_dot=a_dot,
        scale=scale,
        report=report,
        rows=jnp.concatenate(rows) if rows else jnp.zeros((0, dims.n)),
        g=g,
        g_dot=g_dot,
        k=system.k(t, q, v, args),
        M=system.M(t, q, args),
        applied=system.applied(t, q, v, args),
    )


def project(
    system: System, dims: Dims, t: Array, q: Array, v: Array, args: Args
) -> tuple[Array, Array, Array]:
    """The nearest q, then the nearest v, on the constraints: (6) and (7) of ACB15.

    Returns q (size,), v (n,) and the larger of the two Newton statuses.
    """
    q, position = project_position(system, dims, t, q, args)
    v, velocity = project_velocity(system, dims, t, q, v, args)
    return q, v, jnp.maximum(position, velocity)


def project_position(system: System, dims: Dims, t: Array, q: Array, args: Args) -> tuple[Array, Array]:
    """q ∘ exp(d) on the constraints with the smallest d, in the norm of M(t, q), and Newton's status.

    ACB15 (6), where the left side of (6a) must read q_{n+1}.
    """
    scale = scales(system, dims._replace(p=0), t, q, jnp.zeros(dims.n), args)
    M = system.M(t, q, args)

    def residual(x: Array) -> Array:
        d, mu = x[: dims.n] * scale.a, x[dims.n :] * scale.lam
        g, transpose = jax.vjp(lambda d: system.g(t, system.space.retract(q, d), args), d)
        return jnp.concatenate([scale.a * (M @ d + transpose(mu)[0]), scale.lam * g])

    size = (1 + jnp.max(system.space.magnitude(q))) / jnp.min(scale.a)
    x, report = _root(residual, jnp.zeros(dims.n + dims.m), size)
    return system.space.retract(q, x[: dims.n] * scale.a), report.status


def project_velocity(
    system: System, dims: Dims, t: Array, q: Array, v: Array, args: Args, offset: Array | float = 0.0
) -> tuple[Array, Array]:
    """v + d with g_t + G (v + d) = offset, k = 0 and the smallest d, in the norm of M(t, q), and the status.

    ACB15 (7) for offset = 0.
    """
    scale = scales(system, dims, t, q, v, args)
    M = system.M(t, q, args)

    def residual(x: Array) -> Array:
        d, mu, nu = jnp.split(x, [dims.n, dims.n + dims.m])
        d = d * scale.a
        push = system.holonomic_force(t, q, mu * scale.lam, args)
        push += system.nonholonomic_force(t, q, v + d, nu * scale.psi, args)
        rows = [scale.a * (M @ d - push)]
        if dims.m:
            rows += [scale.lam * (system.g_dot(t, q, v + d, args) - offset)]
        if dims.p:
            rows += [scale.psi * system.k(t, q, v + d, args)]
        return jnp.concatenate(rows)

    size = (1 + jnp.max(jnp.abs(v))) / jnp.min(scale.a)
    x, report = _root(residual, jnp.zeros(dims.n + dims.m + dims.p), size)
    return v + x[: dims.n] * scale.a, report.status


def _root(residual: Callable[[Array], Array], guess: Array, size: Array) -> tuple[Array, NewtonReport]:
    """A root by full Newton; ``size`` is that of the terms which cancel in the residual."""
    ones = jnp.ones(guess.size)
    levels = newton.Levels(10 * jnp.finfo(float).eps * size * ones, 1e-9 * size * ones)
    x, _, report = newton.solve(_NEWTON, residual, guess, newton.no_memory(guess.size), levels)
    return x, report


def _linear_root(residual: Callable[[Array], Array], size: int) -> tuple[Array, NewtonReport]:
    """The root of an affine function: one correction from zero, and a second against rounding."""
    zero = jnp.zeros(size)
    value, tangent = jax.linearize(residual, zero)
    matrix = jax.vmap(tangent, out_axes=1)(jnp.eye(size))
    factors = linear.factor(matrix)
    x = -linear.solve(factors, value)
    x = x - linear.solve(factors, tangent(x) + value)
    condition = lax.stop_gradient(factors.condition)
    singular = jnp.isfinite(jnp.sum(matrix)) & ~(condition <= newton.MAX_CONDITION)
    status = jnp.where(jnp.isfinite(jnp.sum(x)), diagnose.SUCCESS, diagnose.NOT_FINITE)
    status = jnp.where(singular, diagnose.SINGULAR, status)
    one = jnp.array(1)
    return x, NewtonReport(status, one, one, jnp.array(False), condition)
