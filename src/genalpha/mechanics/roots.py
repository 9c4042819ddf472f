"""Roots of small systems of equations: consistent values at the start, and projections."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array, lax

from genalpha.numerics import codes, linear, newton
from genalpha.numerics.data import NewtonReport
from genalpha.numerics.derivatives import jacobian

_NEWTON = newton.Newton(policy="full", tol=1e-11, max_iterations=50)
_FEW = 5


def root(
    residual: Callable[[Array], Array], guess: Array, size: Array, few: bool = False
) -> tuple[Array, NewtonReport]:
    """A root by Newton's method; ``size`` is the size of the terms that cancel in the residual.

    With ``few``, a few corrections are made without a loop: machine code has no loops that end with values.
    """
    if few:
        for _ in range(_FEW):
            guess, report = corrected(residual, guess, size)
        return guess, report
    levels = newton.Levels(10 * jnp.finfo(float).eps * size[None], 1e-9 * size[None], jnp.zeros(()))
    memory = newton.no_memory(guess.size)
    x, _, report = newton.solve(_NEWTON, residual, guess, memory, levels, newton.one_group(guess.size))
    return x, report


def corrected(residual: Callable[[Array], Array], guess: Array, size: Array) -> tuple[Array, NewtonReport]:
    """One iteration of Newton's method, and whether it is the last."""
    x = guess - linear.solve_once(jacobian(residual, guess), residual(guess))
    last = jnp.max(jnp.abs(residual(x))) <= 1e-11 * size
    status, one, no = jnp.where(last, codes.SUCCESS, codes.NOT_CONVERGED), jnp.array(1), jnp.array(False)
    return x, NewtonReport(status, one, one, no, no, jnp.ones(()))


def linear_root(matrix: Array, value: Array) -> tuple[Array, NewtonReport]:
    """The root of matrix @ x + value: one correction from zero, and a second one against rounding errors."""
    x = -linear.solve_once(matrix, value)
    x = x - linear.solve_once(matrix, matrix @ x + value)
    condition = linear.condition_number(lax.stop_gradient(matrix))
    singular = jnp.isfinite(jnp.sum(matrix)) & ~(condition <= newton.MAX_CONDITION)
    status = jnp.where(jnp.isfinite(jnp.sum(x)), codes.SUCCESS, codes.NOT_FINITE)
    status = jnp.where(singular, codes.SINGULAR, status)
    one = jnp.array(1)
    return x, NewtonReport(status, one, one, jnp.array(False), jnp.array(False), condition)
