"""Newton's method for the equations of a step: policies, stopping test, report, implicit derivatives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax

from genalpha import diagnose, linear
from genalpha.state import NewtonMemory, NewtonReport

Policy = Literal["full", "modified", "frozen"]
Residual = Callable[[Array], Array]

# A matrix beyond this condition number has lost all digits: it is singular to double precision.
MAX_CONDITION = 1e15
# A matrix is replaced at once when a correction with it shrinks less than by this factor,
SLOW = 0.3
# and before the next step when it shrinks less than by this one.
STALE = 0.03
# Corrections that stop shrinking within this factor of the rounding level have stagnated there.
STAGNATION_BAND = 30.0


@dataclass(frozen=True)
class Newton:
    """How the nonlinear equations of a step are solved.

    Parameters
    ----------
    policy : ``"modified"`` keeps the factorized matrix from step to step and renews it when the measured
        contraction rate gets poor; ``"full"`` takes a new matrix in every iteration; ``"frozen"`` never
        renews the matrix of the first step (for linear systems with one step size).
    tol : the iteration stops when the estimated error that remains is below ``tol`` times the size of the
        unknowns, both scaled to accelerations times the root of mass.
    max_iterations : corrections allowed in one step.

    The remaining error is estimated from the contraction rate, rate/(1 − rate) times the last correction.
    A row g/(βh²) carries rounding of size ε|q|/(βh²); corrections that small, or that stop shrinking near
    it, end the iteration too, and are counted in ``sol.stats.rounding_limited``.

    >>> Newton(policy="full", tol=1e-8)
    Newton(policy='full', tol=1e-08, max_iterations=20)
    """

    policy: Policy = "modified"
    tol: float = 1e-12
    max_iterations: int = 20

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise ValueError(f"policy must be one of {', '.join(get_args(Policy))}, got {self.policy!r}")
        if not 0 < self.tol < 1:
            raise ValueError(f"tol = {self.tol} must lie between 0 and 1")
        if self.max_iterations < 1:
            raise ValueError(f"max_iterations = {self.max_iterations} must be at least 1")


class _Iterate(NamedTuple):
    """The unknowns, and four numbers about them in one array: a loop pays for every array it carries.

    They are the norm of the last correction, in units of what may be left over (inf before the first), the
    ratio of the last two norms (NaN before the second), _RUNNING, _SLOW or a status, and a count.
    """

    x: Array
    numbers: Array

    @property
    def norm(self) -> Array:
        return self.numbers[0]

    @property
    def rate(self) -> Array:
        return self.numbers[1]

    @property
    def status(self) -> Array:
        return self.numbers[2]

    @property
    def iterations(self) -> Array:
        return self.numbers[3]


class _Attempt(NamedTuple):
    iterate: _Iterate
    factors: linear.Factors
    jacobians: Array


_RUNNING, _SLOW = -1, -2


def no_memory(size: int) -> NewtonMemory:
    """The memory before the first step: no matrix."""
    return NewtonMemory(inverse=linear.no_inverse(size), fit=jnp.array(0.0))


def solve(
    newton: Newton, residual: Residual, guess: Array, memory: NewtonMemory, floor: Array
) -> tuple[Array, NewtonMemory, NewtonReport]:
    """Solve residual(x) = 0, with derivatives by the implicit function theorem.

    ``guess`` (N,) starts the iteration, ``floor`` is the size of corrections that rounding alone causes,
    ``memory`` comes from the step before. Returns x (N,), the memory for the next step, and the report.
    Derivatives with respect to everything ``residual`` closes over come from one linear solve at the
    solution; the iteration itself is not differentiated.
    """
    memory, floor = lax.stop_gradient((memory, floor))

    def iterate(residual: Residual, guess: Array) -> tuple[Array, tuple[Any, ...]]:
        end, factors, jacobians = _iterate(newton, residual, guess, memory, floor)
        stale = _renewing(newton, end.rate > STALE)
        kept = NewtonMemory(factors.inverse, jnp.where(stale, 0.0, 1.0))
        status = jnp.where(end.status < 0, diagnose.NOT_CONVERGED, end.status)
        limited = jnp.max(floor) > _allowed(newton, end.x)
        # custom_root wants auxiliary outputs of one kind: counts travel as floats.
        counts = jnp.stack([status, end.iterations, jacobians, limited]).astype(float)
        return end.x, (kept, counts, newton.tol * _remaining(end.norm, end.rate), factors.condition)

    def tangent_solve(linear_map: Callable[[Array], Array], rhs: Array) -> Array:
        return jnp.linalg.solve(jax.jacfwd(linear_map)(rhs), rhs)

    x, (kept, counts, error, condition) = lax.custom_root(
        residual, guess, iterate, tangent_solve, has_aux=True
    )
    status, iterations, jacobians, rounding = counts.astype(int)
    return x, kept, NewtonReport(status, iterations, jacobians, rounding != 0, error, condition)


def _iterate(
    newton: Newton, residual: Residual, guess: Array, memory: NewtonMemory, floor: Array
) -> _Attempt:
    """Corrections with a kept matrix; where they are slow, a new matrix and more corrections."""

    def running(s: _Iterate) -> Array:
        return (s.status == _RUNNING) & (s.iterations < newton.max_iterations)

    def unfinished(s: _Attempt) -> Array:
        return (s.iterate.status < 0) & (s.iterate.iterations < newton.max_iterations)

    def renew(s: _Attempt) -> _Attempt:
        matrix = jax.jacfwd(residual)(s.iterate.x)
        factors = linear.factor(matrix)
        status = jnp.where(factors.condition <= MAX_CONDITION, _RUNNING, diagnose.SINGULAR)
        status = jnp.where(jnp.isfinite(jnp.sum(matrix)), status, diagnose.NOT_FINITE)
        # Where a growing iteration has led to such a matrix, the iteration is to blame.
        diverged = (status != _RUNNING) & (s.iterate.rate > 1)
        status = jnp.where(diverged, diagnose.NOT_CONVERGED, status)
        # The rate belongs to a matrix, except where every correction has its own.
        norm = s.iterate.norm if newton.policy == "full" else jnp.array(jnp.inf)
        numbers = jnp.stack([norm, s.iterate.rate, status.astype(float), s.iterate.iterations])
        return _Attempt(_Iterate(s.iterate.x, numbers), factors, s.jacobians + 1)

    def attempt(s: _Attempt) -> _Attempt:
        s = lax.cond(s.iterate.status == _SLOW, renew, lambda s: s, s)
        end = lax.while_loop(running, lambda i: _correct(newton, residual, floor, s.factors, i), s.iterate)
        if newton.policy == "modified":
            # A stale matrix may have led astray: start again from the guess, with a new one.
            astray = (s.jacobians == 0) & ((end.rate > 1) | (end.status == diagnose.NOT_FINITE))
            again = jnp.stack([jnp.inf, jnp.nan, float(_SLOW), end.iterations])
            end = _Iterate(jnp.where(astray, guess, end.x), jnp.where(astray, again, end.numbers))
        return s._replace(iterate=end)

    status = jnp.where(memory.fit > 0, float(_RUNNING), float(_SLOW))
    start = _Iterate(guess, jnp.stack([jnp.inf, jnp.nan, status, 0.0]))
    factors = linear.Factors(memory.inverse, jnp.array(0.0))
    return lax.while_loop(unfinished, attempt, _Attempt(start, factors, jnp.array(0)))


def _correct(
    newton: Newton, residual: Residual, floor: Array, factors: linear.Factors, s: _Iterate
) -> _Iterate:
    """One correction, and the verdict on it."""
    step = linear.solve(factors, residual(s.x))
    x = s.x - step
    allowed = _allowed(newton, x)
    norm = jnp.max(jnp.abs(step) / (allowed + floor))
    rate = jnp.where(jnp.isinf(s.norm), jnp.nan, norm / s.norm)  # NaN compares false
    stagnated = (rate > SLOW) & (norm <= STAGNATION_BAND) & (jnp.max(floor) > allowed)
    converged = (norm <= 1) | (_remaining(norm, rate) <= 1) | stagnated
    status = jnp.where(_renewing(newton, rate > SLOW), _SLOW, _RUNNING)
    status = jnp.where(converged, diagnose.SUCCESS, status)
    # Overflow at the end of a growing iteration is divergence; out of the blue it is a bad function value.
    failed = jnp.where(s.rate > 1, diagnose.NOT_CONVERGED, diagnose.NOT_FINITE)
    status = jnp.where(jnp.isfinite(norm), status, failed)
    return _Iterate(x, jnp.stack([norm, rate, status.astype(float), s.iterations + 1]))


def _renewing(newton: Newton, poor: Array) -> Array:
    """Whether the policy wants a new matrix after a correction, given whether it was poor."""
    return {"full": jnp.array(True), "modified": poor, "frozen": jnp.array(False)}[newton.policy]


def _allowed(newton: Newton, x: Array) -> Array:
    """The error that may be left over, rounding aside."""
    return newton.tol * jnp.max(jnp.abs(x)) + jnp.finfo(float).tiny


def _remaining(norm: Array, rate: Array) -> Array:
    """Error left after a correction of that size, if the iteration goes on to contract at that rate."""
    return jnp.where(rate < 1, norm * rate / (1 - rate), jnp.inf)
