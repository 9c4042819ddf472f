"""Linear analysis: error recursion of the index-3 method, amplification, period error, numerical damping.

``amplification`` is a closed form for one oscillator. ``constrained_amplification`` is the derivative of one
step of a method, for an oscillator with a constraint. Both return matrices. ``spectral_radius``,
``period_error`` and ``numerical_damping`` are computed from such a matrix; ``plot`` draws all three over hω.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from genalpha import methods
from genalpha.engine.setup import Setup
from genalpha.engine.step import advance, no_memory
from genalpha.mechanics import initial_values
from genalpha.mechanics.system import Dims, System
from genalpha.methods.coefficients import Coefficients
from genalpha.numerics import newton
from genalpha.numerics.data import Carry, Times


def error_recursion(coefficients: Coefficients) -> np.ndarray:
    """The matrix T₊⁻¹T₀ (3, 3) of ACB15 (8).

    For the index-3 method, it maps the errors of (B v/h, λ, B a) at one step to those at the next.

    >>> import genalpha as ga
    >>> T = error_recursion(ga.chung_hulbert(0.5))
    >>> np.linalg.matrix_power(T + 0.5 * np.eye(3), 3).round(12).any()  # all eigenvalues are −ρ∞
    np.False_
    """
    c = coefficients
    after = np.array([[0.0, 0.0, -c.beta], [1.0, 0.0, -c.gamma], [0.0, 1 - c.alpha_f, 1 - c.alpha_m]])
    before = np.array([[1.0, 0.0, 0.5 - c.beta], [1.0, 0.0, 1 - c.gamma], [0.0, -c.alpha_f, -c.alpha_m]])
    return np.linalg.solve(after, before)


def error_recursion_radius(coefficients: Coefficients) -> float:
    """The spectral radius of T₊⁻¹T₀: ρ∞ for Chung & Hulbert's family (ACB15 below (8)).

    For that family all three eigenvalues are −ρ∞, in one Jordan block. A perturbation of the matrix moves
    them by its cube root, so rounding may cost ten digits. The radius is therefore computed from the factors
    of the characteristic polynomial, of degree one and two (``Coefficients.r_index3``), to 1e-7 or better.

    >>> import genalpha as ga
    >>> round(error_recursion_radius(ga.chung_hulbert(0.9)), 6)
    0.9
    """
    return coefficients.r_index3


def amplification(coefficients: Coefficients, h_omega: ArrayLike, damping: float = 0.0) -> np.ndarray:
    """The matrix (..., 3, 3) that maps (q, h v, h² a) over one step of q'' + 2ζω q' + ω² q = 0.

    ``h_omega`` (...) is hω, ``damping`` is ζ, and a is the method's own a_{n+α}. This is JN08 (2) with the
    force of the oscillator.

    >>> import genalpha as ga
    >>> A = amplification(ga.trapezoidal(), 2.0)
    >>> sorted(np.abs(np.linalg.eigvals(A)).round(12).tolist())  # no damping; a is not needed
    [0.0, 1.0, 1.0]
    """
    c, z = coefficients, np.asarray(h_omega, dtype=float)
    if np.any(z < 0):
        raise ValueError(
            f"h_omega must not be negative, got {z.min():g}: pass the product of step and frequency"
        )
    one, none = np.ones_like(z), np.zeros_like(z)
    stiffness, damper = z**2, 2 * damping * z

    def matrix(*rows: Sequence[Any]) -> np.ndarray:
        return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)

    # q1 − β h²a1 = ..., hv1 − γ h²a1 = ..., (1 − α_m) h²a1 + (1 − α_f)(z² q1 + 2ζz hv1) = ...
    after = matrix(
        [one, none, -c.beta * one],
        [none, one, -c.gamma * one],
        [(1 - c.alpha_f) * stiffness, (1 - c.alpha_f) * damper, (1 - c.alpha_m) * one],
    )
    before = matrix(
        [one, one, (0.5 - c.beta) * one],
        [none, one, (1 - c.gamma) * one],
        [-c.alpha_f * stiffness, -c.alpha_f * damper, -c.alpha_m * one],
    )
    return np.linalg.solve(after, before)


def constrained_amplification(
    method: str | methods.Method, h_omega: ArrayLike, *, rho_inf: float = 0.8, angle: float = np.pi / 4
) -> np.ndarray:
    """The matrix (..., N, N) that maps all variables of a method over one step of the constrained oscillator.

    The oscillator is a unit mass in the plane with the constraint y = 0. A spring of stiffness ω² acts along
    (cos φ, sin φ) with φ = ``angle``. Along x the mass oscillates with the frequency ω cos φ; the multiplier
    balances the rest of the spring force. The matrix is the derivative of the actual step, with the variables
    scaled to (q, h v, h² a, ...). ``method`` is a name, used with ``rho_inf``, or an object.

    >>> A = constrained_amplification("index3", 0.1, rho_inf=0.5)
    >>> round(float(spectral_radius(A)), 3)
    1.0
    """
    if isinstance(method, str):
        method = methods.by_name(method, rho_inf)
    if not isinstance(method, methods.Method):
        raise TypeError(f"method must be a name or an object such as ga.Index3(), got {method!r}")
    direction = jnp.array([jnp.cos(angle), jnp.sin(angle)])
    system = System(
        mass=np.eye(2),
        force=lambda t, q, v, omega: -(omega**2) * (direction @ q) * direction,
        holonomic=lambda t, q, omega: q[1:],
    )
    dims = Dims(2, 2, 1, 0)
    method.check(system, dims)
    setup = Setup(system, method, newton.Newton(policy="full"), dims)
    zero, t, h = jnp.zeros(2), jnp.array(0.0), jnp.array(1.0)

    def one(omega: Array) -> Array:
        start = initial_values.begin(system, dims, t, zero, zero, (omega,))
        carry, _ = method.begin(system, dims, start, h, (omega,))
        memory = no_memory(method.first_guess(dims, start.scale, carry, start.state))
        chosen = method.own_at(system, t, zero, start.scale, (omega,))

        # What is the same in every step is left out: its size, what changes of it need, and the parts of
        # ``own`` that are chosen for a configuration.
        def bare(carry: Carry) -> Carry:
            kept = {name: part for name, part in carry.own.items() if name not in chosen}
            return carry._replace(h=None, a_old=None, lag=None, own=kept)  # type: ignore[arg-type]

        state, rebuild = jax.flatten_util.ravel_pytree(bare(carry))

        def step(values: Array) -> Array:
            before: Carry = rebuild(values)
            before = before._replace(h=h, a_old=before.a, own=before.own | chosen)
            after = advance(setup, before, memory, Times(t, h), start.scale, (omega,))[0]
            return jax.flatten_util.ravel_pytree(bare(after))[0]

        return jax.jacfwd(step)(state)

    shape = np.shape(h_omega)
    flat = jnp.asarray(np.ravel(h_omega), float)
    matrices = np.asarray(jax.jit(jax.vmap(one))(flat))
    return matrices.reshape(*shape, *matrices.shape[-2:])


def spectral_radius(A: np.ndarray) -> np.ndarray:
    """Largest modulus (...) of the eigenvalues of A (..., N, N)."""
    return np.abs(np.linalg.eigvals(A)).max(axis=-1)


def _principal(A: np.ndarray) -> np.ndarray:
    """The eigenvalue (...) of the oscillation: in the upper half plane, with the largest real part."""
    values = np.linalg.eigvals(A).astype(complex)
    candidates = np.where(values.imag > 1e-9, values.real, -np.inf)
    at = candidates.argmax(axis=-1)[..., None]
    best = np.take_along_axis(values, at, axis=-1)[..., 0]
    return np.where(np.isfinite(candidates.max(axis=-1)), best, np.nan)


def period_error(A: np.ndarray, h_omega: ArrayLike) -> np.ndarray:
    """Relative error (...) of the period of an oscillation with ``h_omega``; NaN if nothing oscillates.

    >>> import genalpha as ga
    >>> A = amplification(ga.trapezoidal(), 0.1)
    >>> round(float(period_error(A, 0.1)) / (0.1**2 / 12), 2)  # (hω)²/12
    1.0
    """
    return np.asarray(h_omega) / np.angle(_principal(A)) - 1


def numerical_damping(A: np.ndarray) -> np.ndarray:
    """Damping ratio ζ (...) that the method adds: |eigenvalue| = exp(−ζ times its angle).

    >>> import genalpha as ga
    >>> float(numerical_damping(amplification(ga.trapezoidal(), 1.0)).round(12)) + 0.0
    0.0
    """
    value = _principal(A)
    return -np.log(np.abs(value)) / np.angle(value)


def plot(families: Sequence[Coefficients | methods.Method | str], h_omega: ArrayLike | None = None) -> Any:
    """Spectral radius, period error and numerical damping over hω; returns the figure.

    ``families`` are coefficients, for the free oscillator, or methods (objects, or names with ρ∞ = 0.8), for
    the constrained oscillator. The latter has φ = 0, so that ω is the frequency of the free motion along x.
    Needs matplotlib.
    """
    from matplotlib.figure import Figure

    if isinstance(families, Coefficients | methods.Method | str):
        families = [families]
    z = np.geomspace(1e-2, 1e3, 400) if h_omega is None else np.asarray(h_omega, dtype=float)
    figure = Figure(figsize=(11.0, 3.6), layout="constrained")
    axes = figure.subplots(1, 3)
    for family, style in zip(families, itertools.cycle(["-", "--", "-.", ":"]), strict=False):
        if isinstance(family, str):
            family = methods.by_name(family, 0.8)
        if isinstance(family, Coefficients):
            A, name = amplification(family, z), family.name
        else:
            A, name = (
                constrained_amplification(family, z, angle=0.0),
                f"{family.name}, {family.coefficients.name}",
            )
        axes[0].semilogx(z, spectral_radius(A), label=name, ls=style, lw=1.2)
        axes[1].semilogx(z, period_error(A, z), ls=style, lw=1.2)
        axes[2].semilogx(z, numerical_damping(A), ls=style, lw=1.2)
    axes[0].set_ylim(0, 1.05)
    axes[1].set(xlim=(z[0], 2.0), ylim=(0, 0.5))
    axes[2].set(xlim=(z[0], 2.0), ylim=(-0.005, 0.2))
    for ax, title in zip(axes, ("spectral radius", "period error", "numerical damping"), strict=True):
        ax.set_title(title, fontsize="medium")
        ax.set_xlabel("hω")
        ax.grid(alpha=0.2)
    axes[0].legend(fontsize="small")
    return figure
