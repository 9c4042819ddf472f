"""Values at the start: consistent a, λ, ψ, their rate of change, and projection of q and v."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from genalpha.mechanics.along import rate_along
from genalpha.mechanics.roots import corrected, linear_root, root
from genalpha.mechanics.system import Args, Dims, System
from genalpha.numerics import codes, linear
from genalpha.numerics.data import NewtonReport, Scale, State
from genalpha.numerics.derivatives import by_reader, jacobian

Multipliers = tuple[Array, Array]
_QUICK = 4


class Once(NamedTuple):
    """A guess of multipliers from which only one iteration is made: then it is repeated from outside."""

    lam: Array
    psi: Array


class Beginning(NamedTuple):
    """Consistent values at t_0, and what is needed to check them.

    ``rows`` (m + p, n) is the scaled constraint matrix. ``g``, ``g_dot`` and ``k`` are the constraints. ``M``
    and ``applied`` are the mass matrix and the applied forces. All are at (t_0, q_0, v_0).
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

    def shift(self, r: Array) -> Array:
        """The smallest change d (n,) of the velocities, in the norm of M, with G d = G r and K d = 0.

        M d + Bᵀμ = 0 with B = (G; K): the projection of ACB15 (7) with another right-hand side.
        """
        scale, m = self.scale.a, self.g.size
        wanted = jnp.concatenate([jnp.zeros(scale.size), self.rows[:m] @ (r / scale), jnp.zeros(self.k.size)])
        return scale * linear.solve_once(_saddle(self.M, self.rows, scale), wanted)[: scale.size]


class Matrices(NamedTuple):
    """Mass matrix (n, n) and constraint matrices (m, n), (p, n) at one state."""

    M: Array
    G: Array
    K: Array


def matrices(system: System, dims: Dims, t: Array, q: Array, v: Array, args: Args) -> Matrices:
    G = system.G(t, q, args) if dims.m else jnp.zeros((0, dims.n))
    K = system.K(t, q, v, args) if dims.p else jnp.zeros((0, dims.n))
    return Matrices(system.M(t, q, args), G, K)


def inverse_of_sizes(sizes: Array) -> Array:
    """1/sizes. Zeros are replaced by the largest size."""
    largest = jnp.max(sizes, initial=0.0)
    fallback = jnp.where(largest > 0, largest, 1.0)
    return 1 / jnp.where(sizes > 0, sizes, fallback)


def size_of_mass(M: Array) -> Array:
    """1/√(max_j |M_ij|) (n,), the scale of accelerations."""
    return jnp.sqrt(inverse_of_sizes(jnp.max(jnp.abs(M), axis=1)))


def scales(of: Matrices) -> Scale:
    """Typical sizes from the mass matrix and the constraint matrices at one state."""
    a = size_of_mass(of.M)
    lam, psi = (
        inverse_of_sizes(jnp.max(jnp.abs(matrix) * a, axis=1, initial=0.0)) for matrix in (of.G, of.K)
    )
    return lax.stop_gradient(Scale(a, lam, psi))


def _saddle(M: Array, rows: Array, scale: Array) -> Array:
    """The matrix (12) of JN08 for the default reaction, from scaled constraint rows (m + p, n)."""
    scaled = scale[:, None] * M * scale
    return jnp.block([[scaled, rows.T], [rows, jnp.zeros((len(rows), len(rows)))]])


class _Hidden(NamedTuple):
    """The equations of motion and the hidden acceleration constraints (JN08 below (12)), scaled.

    They are equations for x = (a, λ, ψ) at one state. They are linear in a and, for the default reaction,
    in λ and ψ.
    """

    system: System
    dims: Dims
    scale: Scale
    args: Args

    def unpack(self, x: Array) -> tuple[Array, Array, Array]:
        a, lam, psi = jnp.split(x, [self.dims.n, self.dims.n + self.dims.m])
        return a * self.scale.a, lam * self.scale.lam, psi * self.scale.psi

    def guess(self, lam: Array, psi: Array) -> Array:
        """x with these multipliers and no accelerations."""
        return jnp.concatenate([jnp.zeros(self.dims.n), lam / self.scale.lam, psi / self.scale.psi])

    def residual(self, x: Array, t: Array, q: Array, v: Array) -> Array:
        (system, dims, scale, args), (a, lam, psi) = self, self.unpack(x)
        rows = [scale.a * (system.M(t, q, args) @ a - system.f(t, q, v, lam, psi, args))]
        if dims.m:
            rows += [scale.lam * system.g_ddot(t, q, v, a, args)]
        if dims.p:
            rows += [scale.psi * system.k_dot(t, q, v, a, args)]
        return jnp.concatenate(rows)

    def rows(self, of: Matrices) -> Array:
        """The scaled constraint matrix (m + p, n)."""
        weights = jnp.concatenate([self.scale.lam, self.scale.psi])
        return weights[:, None] * jnp.concatenate([of.G, of.K]) * self.scale.a

    def solve(
        self, of: Matrices, t: Array, q: Array, v: Array, multipliers: Multipliers | None
    ) -> tuple[Array, NewtonReport]:
        """x at a state, and a report.

        For the default reaction this is one linear solve. Otherwise Newton's method starts from
        ``multipliers`` (λ, ψ). The default is ones, because the derivative of forces such as λ² is zero at
        zero.
        """
        dims, scale = self.dims, self.scale
        if self.system.reaction is None:
            return linear_root(
                _saddle(of.M, self.rows(of), scale.a),
                self.residual(jnp.zeros(dims.n + dims.m + dims.p), t, q, v),
            )
        guess = self.guess(*(multipliers or (jnp.ones(dims.m), jnp.ones(dims.p))))
        size = jnp.max(jnp.abs(self.residual(guess, t, q, v)))
        solve = corrected if isinstance(multipliers, Once) else root
        return solve(lambda x: self.residual(x, t, q, v), guess, size)

    def rate(self, x: Array, of: Matrices, t: Array, q: Array, v: Array) -> Array:
        """x' along the motion, from the differentiated equations."""
        space, a = self.system.space, self.unpack(x)[0]
        _, along = rate_along(space, lambda *at: self.residual(x, *at), t, q, v, (v, a))
        if self.system.reaction is None:
            matrix = _saddle(of.M, self.rows(of), self.scale.a)
        else:
            matrix = jacobian(lambda x: self.residual(x, t, q, v), x)
        return -linear.solve_once(matrix, along)


def accelerations(
    system: System, dims: Dims, scale: Scale, t: Array, q: Array, v: Array, args: Args, guess: Multipliers
) -> tuple[Array, Array, Array]:
    """Consistent (a, λ, ψ) at one state; NaN if there are none.

    ``guess`` (λ, ψ) decides between several solutions, which only a reaction of the user's own can have.
    """
    hidden = _Hidden(system, dims, scale, args)
    x, report = hidden.solve(matrices(system, dims, t, q, v, args), t, q, v, guess)
    if system.reaction is not None:
        x = jnp.where(report.status == codes.SUCCESS, x, jnp.nan)
    return hidden.unpack(x)


def quick_accelerations(
    system: System, dims: Dims, scale: Scale, t: Array, q: Array, v: Array, args: Args, guess: Multipliers
) -> tuple[Array, Array, Array]:
    """The same with few iterations, which can be unrolled; NaN if they are not enough."""
    if system.reaction is None:
        return accelerations(system, dims, scale, t, q, v, args, guess)
    hidden = _Hidden(system, dims, scale, args)
    residual = lambda x: hidden.residual(x, t, q, v)
    x = hidden.guess(*guess)
    size = jnp.max(jnp.abs(residual(x)))
    for _ in range(_QUICK):
        x, report = corrected(residual, x, size)
    return hidden.unpack(jnp.where(report.status == codes.SUCCESS, x, jnp.nan))


def underlying(
    system: System, dims: Dims, scale: Scale, t: Array, q: Array, v: Array, args: Args
) -> tuple[Array, Array, Array]:
    """(φ, λ, ψ) of the underlying ODE v' = φ(t, q, v), YPR98 (2.2), for the default reaction.

    This is one linear solve, for use in every step. :func:`accelerations` also refines its result.
    """
    hidden, of = _Hidden(system, dims, scale, args), matrices(system, dims, t, q, v, args)
    value = hidden.residual(jnp.zeros(dims.n + dims.m + dims.p), t, q, v)
    return hidden.unpack(-linear.solve_once(_saddle(of.M, hidden.rows(of), scale.a), value))


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
    """All values at the start, in one function that can be traced."""
    t = jnp.asarray(t, float)
    of = matrices(system, dims, t, q, v, args)
    hidden = _Hidden(system, dims, scales(of), args)
    x, report = hidden.solve(of, t, q, v, multipliers)
    a_dot = hidden.unpack(hidden.rate(x, of, t, q, v))[0] if want_rate else jnp.zeros_like(v)
    g, g_dot = system.g_and_dot(t, q, v, args) if dims.m else (jnp.zeros(0), jnp.zeros(0))
    return Beginning(
        state=State(t, q, v, *hidden.unpack(x)),
        a_dot=a_dot,
        scale=hidden.scale,
        report=report,
        rows=hidden.rows(of),
        g=g,
        g_dot=g_dot,
        k=system.k(t, q, v, args),
        M=of.M,
        applied=system.applied(t, q, v, args),
    )


def settled(
    system: System, dims: Dims, t: Array, q: Array, v: Array, args: Args, guess: Multipliers
) -> tuple[State, Array]:
    """A state near (q, v) on the constraints, and the largest remaining residual (see :func:`nearest`).

    It is NaN if few iterations from ``guess`` (λ, ψ) are not enough for a reaction of the user's own.
    """
    q, v, scale, left = nearest(system, dims, t, q, v, args)
    if system.reaction is None:
        return State(t, q, v, *underlying(system, dims, scale, t, q, v, args)), left
    found = quick_accelerations(system, dims, scale, t, q, v, args, guess)
    return State(t, q, v, *found), left + 0 * sum(jnp.sum(x) for x in found)


def nearest(
    system: System, dims: Dims, t: Array, q: Array, v: Array, args: Args
) -> tuple[Array, Array, Scale, Array]:
    """q and v on the constraints near those given, as from :func:`project`, and the remaining residual.

    It makes a few corrections without a test of convergence. It is for q and v that nearly satisfy the
    constraints.
    """
    t = jnp.asarray(t, float)
    of = matrices(system, dims, t, q, v, args)
    scale = scales(of)
    hidden = _Hidden(system, dims, scale, args)
    position = hidden.rows(of)[: dims.m]
    for _ in range(3 if dims.m else 0):
        wanted = jnp.concatenate([jnp.zeros(dims.n), scale.lam * system.g(t, q, args)])
        d = linear.solve_once(_saddle(of.M, position, scale.a), wanted)[: dims.n]
        q = system.space.retract(q, -scale.a * d)
    left = [system.g(t, q, args)]
    if dims.m or dims.p:
        of = matrices(system, dims, t, q, v, args)
        saddle = _saddle(of.M, hidden.rows(of), scale.a)
        for _ in range(2):
            rows = _velocity_rows(system, dims, t, q, v, args)
            wanted = jnp.concatenate([jnp.zeros(dims.n), jnp.append(scale.lam, scale.psi) * rows])
            v = v - scale.a * linear.solve_once(saddle, wanted)[: dims.n]
        left += [_velocity_rows(system, dims, t, q, v, args)]
    return q, v, scale, jnp.max(jnp.abs(jnp.concatenate(left)), initial=0.0)


def _velocity_rows(system: System, dims: Dims, t: Array, q: Array, v: Array, args: Args) -> Array:
    """The hidden velocity constraints and the nonholonomic ones (m + p,)."""
    hidden = system.g_dot(t, q, v, args) if dims.m else jnp.zeros(0)
    return jnp.concatenate([hidden, system.k(t, q, v, args)])


def is_finite(start: Beginning) -> Array:
    """Whether all values at the start are finite."""
    values = (start.M, start.applied, start.rows, start.g, start.g_dot, start.k)
    return jnp.isfinite(sum(jnp.sum(x) for x in values))


class Held(NamedTuple):
    """The numbers of the coordinates (in the tangent space) and velocities that a projection keeps."""

    q: tuple[int, ...] = ()
    v: tuple[int, ...] = ()


NOTHING_HELD = Held()


def project(
    system: System, dims: Dims, t: Array, q: Array, v: Array, args: Args, held: Held = NOTHING_HELD
) -> tuple[Array, Array, Array]:
    """The nearest q, then the nearest v, on the constraints: (6) and (7) of ACB15.

    Returns q (size,), v (n,) and the larger of the two Newton statuses.
    """
    q, position = project_position(system, dims, t, q, args, held.q)
    v, velocity = project_velocity(system, dims, t, q, v, args, held=held.v)
    return q, v, jnp.maximum(position, velocity)


def _kept(held: tuple[int, ...], d: Array, rows: Array) -> Array:
    """Rows (n,) of a projection, in which d_i = 0 takes the place of the rows that are held."""
    if not held:
        return rows
    index = np.array(held)
    return rows.at[index].set(d[index])


def project_position(
    system: System, dims: Dims, t: Array, q: Array, args: Args, held: tuple[int, ...] = ()
) -> tuple[Array, Array]:
    """q ∘ exp(d) on the constraints with the smallest d, in the norm of M(t, q), and Newton's status.

    ACB15 (6). In the paper, the left side of (6a) must read q_{n+1}. d is zero where it is ``held``.
    """
    of = matrices(system, dims._replace(p=0), t, q, jnp.zeros(dims.n), args)
    scale, M = scales(of), of.M

    def residual(x: Array) -> Array:
        d, mu = x[: dims.n] * scale.a, x[dims.n :] * scale.lam
        g, transpose = jax.vjp(lambda d: system.g(t, system.space.retract(q, d), args), d)
        return jnp.concatenate([_kept(held, x, scale.a * (M @ d + transpose(mu)[0])), scale.lam * g])

    size = (1 + jnp.max(system.space.magnitude(q))) / jnp.min(scale.a)
    x, report = root(residual, jnp.zeros(dims.n + dims.m), size, few=by_reader())
    return system.space.retract(q, x[: dims.n] * scale.a), report.status


def project_velocity(
    system: System,
    dims: Dims,
    t: Array,
    q: Array,
    v: Array,
    args: Args,
    offset: Array | float = 0.0,
    held: tuple[int, ...] = (),
) -> tuple[Array, Array]:
    """v + d with g_t + G (v + d) = offset, k = 0 and the smallest d, in the norm of M(t, q), and the status.

    ACB15 (7) for offset = 0. d is zero where it is ``held``.
    """
    of = matrices(system, dims, t, q, v, args)
    scale, M = scales(of), of.M

    def residual(x: Array) -> Array:
        d, mu, nu = jnp.split(x, [dims.n, dims.n + dims.m])
        d = d * scale.a
        push = system.holonomic_force(t, q, mu * scale.lam, args)
        push += system.nonholonomic_force(t, q, v + d, nu * scale.psi, args)
        rows = [_kept(held, x, scale.a * (M @ d - push))]
        if dims.m:
            rows += [scale.lam * (system.g_dot(t, q, v + d, args) - offset)]
        if dims.p:
            rows += [scale.psi * system.k(t, q, v + d, args)]
        return jnp.concatenate(rows)

    size = (1 + jnp.max(jnp.abs(v))) / jnp.min(scale.a)
    x, report = root(residual, jnp.zeros(dims.n + dims.m + dims.p), size, few=by_reader())
    return v + x[: dims.n] * scale.a, report.status
