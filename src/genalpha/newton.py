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
# or would need more than this number of further ones,
SLOW, LONG = 0.3, 8
# and before the next step when it shrinks less than by this one, seen well above the tolerance.
STALE, WELL_ABOVE = 0.03, 10.0
# Parts of the unknowns shrink at rates of their own: a better rate than this one, with a kept matrix, may be
# that of the part that was large at first, and is not relied on.
LEAST_RATE = 0.01
# Corrections that shrink less than by this factor may lead anywhere.
DIVERGING = 0.9
# Corrections that stop shrinking below this fraction of the unknowns have come down to rounding.
NOISE = 1e-6
# Residuals up to this multiple of those seen at rounding level are at rounding level too,
AT_NOISE = 4.0
# and what was seen counts a little less with every step.
FADING = 0.9


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

    The remaining error is estimated from the contraction rate, rate/(1 − rate) times the last correction;
    with a matrix of an earlier step one correction is never enough. Rounding sets a limit: a row g/(βh²)
    carries rounding of size ε|q|/(βh²), a stiff force ε times its stiffness. Corrections that stop shrinking
    although the matrix is new have reached it, if they are small; the size of the residual there is
    remembered. Steps that end in this way are counted in ``sol.stats.rounding_limited``.

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


class Levels(NamedTuple):
    """Sizes of corrections (N,) that rounding is expected to cause, and that may be taken for rounding."""

    floor: Array
    loose: Array


class _Iterate(NamedTuple):
    """The unknowns, and some numbers about them in one array: a loop pays for every array it carries."""

    x: Array
    numbers: Array

    @property
    def norm(self) -> Array:
        """Size of the last correction in units of what may be left over; inf before the first."""
        return self.numbers[0]

    @property
    def rate(self) -> Array:
        """Ratio of the last two norms; NaN before the second."""
        return self.numbers[1]

    @property
    def status(self) -> Array:
        """_RUNNING, _SLOW, or a status of `diagnose`."""
        return self.numbers[2]

    @property
    def iterations(self) -> Array:
        return self.numbers[3]

    @property
    def noise(self) -> Array:
        """Size of residuals at rounding level, as far as known; 0 if it is not."""
        return self.numbers[4]

    @property
    def rounding(self) -> Array:
        """Whether the iteration ended at rounding level."""
        return self.numbers[5]


class _Attempt(NamedTuple):
    iterate: _Iterate
    factors: linear.Factors
    jacobians: Array


_RUNNING, _SLOW = -1.0, -2.0


def no_memory(size: int) -> NewtonMemory:
    """The memory before the first step: no matrix, no known noise."""
    return NewtonMemory(inverse=linear.no_inverse(size), fit_and_noise=jnp.zeros(2))


def solve(
    newton: Newton,
    residual: Residual,
    guess: Array,
    memory: NewtonMemory,
    levels: Levels,
    implicit: bool = True,
) -> tuple[Array, NewtonMemory, NewtonReport]:
    """Solve residual(x) = 0, with derivatives by the implicit function theorem.

    ``guess`` (N,) starts the iteration, ``levels`` are those of rounding, ``memory`` comes from the step
    before. Returns x (N,), the memory for the next step, and the report. Derivatives with respect to
    everything ``residual`` closes over come from one linear solve at the solution; the iteration itself is
    not differentiated. Where nobody will ask for them (``implicit=False``), less is traced.
    """
    memory, levels = lax.stop_gradient((memory, levels))

    def iterate(residual: Residual, guess: Array) -> tuple[Array, tuple[Any, ...]]:
        end, factors, jacobians = _iterate(newton, residual, guess, memory, levels)
        stale = _renewing(newton, (end.rate > STALE) & (end.norm > WELL_ABOVE * end.rate))
        fit = jnp.where(stale, 0.0, 1.0)
        kept = NewtonMemory(factors.inverse, jnp.stack([fit, FADING * end.noise]))
        status = jnp.where(end.status < 0, diagnose.NOT_CONVERGED, end.status)
        # custom_root wants auxiliary outputs of one kind: counts travel as floats.
        counts = jnp.stack([status, end.iterations, jacobians.astype(float), end.rounding])
        return end.x, (kept, counts, factors.condition)

    def tangent_solve(linear_map: Callable[[Array], Array], rhs: Array) -> Array:
        return jnp.linalg.solve(jax.jacfwd(linear_map)(rhs), rhs)

    if implicit:
        x, (kept, counts, condition) = lax.custom_root(residual, guess, iterate, tangent_solve, has_aux=True)
    else:
        x, (kept, counts, condition) = iterate(residual, guess)
    status, iterations, jacobians, rounding = counts.astype(int)
    return x, kept, NewtonReport(status, iterations, jacobians, rounding != 0, condition)


def _iterate(
    newton: Newton, residual: Residual, guess: Array, memory: NewtonMemory, levels: Levels
) -> _Attempt:
    """Corrections with a kept matrix; where they are slow, a new matrix and more corrections."""

    def running(s: _Iterate) -> Array:
        return (s.status == _RUNNING) & (s.iterations < newton.max_iterations)

    def unfinished(s: _Attempt) -> Array:
        return (s.iterate.status < 0) & (s.iterate.iterations < newton.max_iterations)

    def renew(s: _Attempt) -> _Attempt:
        old = s.iterate
        matrix = jax.jacfwd(residual)(old.x)
        factors = linear.factor(matrix)
        status = jnp.where(factors.condition <= MAX_CONDITION, _RUNNING, diagnose.SINGULAR)
        status = jnp.where(jnp.isfinite(jnp.sum(matrix)), status, diagnose.NOT_FINITE)
        # Where an iteration that does not contract has led to such a matrix, the iteration is to blame.
        diverged = (status != _RUNNING) & (old.rate > DIVERGING)
        status = jnp.where(diverged, diagnose.NOT_CONVERGED, status)
        # What was measured with the matrix of an earlier step says nothing about this one.
        comparable = (s.jacobians > 0) | (newton.policy == "full")
        norm, rate = jnp.where(comparable, old.norm, jnp.inf), jnp.where(comparable, old.rate, jnp.nan)
        numbers = jnp.stack([norm, rate, status, old.iterations, old.noise, old.rounding])
        return _Attempt(_Iterate(old.x, numbers), factors, s.jacobians + 1)

    def attempt(s: _Attempt) -> _Attempt:
        s = lax.cond(s.iterate.status == _SLOW, renew, lambda s: s, s)
        end = lax.while_loop(running, lambda i: _correct(newton, residual, levels, s, i), s.iterate)
        if newton.policy == "modified":
            # A stale matrix may have led astray: start again from the guess, with a new one.
            astray = (s.jacobians == 0) & ((end.rate > SLOW) | (end.status == diagnose.NOT_FINITE))
            astray &= end.status != diagnose.SUCCESS
            again = jnp.stack([jnp.inf, jnp.nan, _SLOW, end.iterations, end.noise, 0.0])
            end = _Iterate(jnp.where(astray, guess, end.x), jnp.where(astray, again, end.numbers))
        return s._replace(iterate=end)

    fit, noise = memory.fit_and_noise
    start = _Iterate(
        guess, jnp.stack([jnp.inf, jnp.nan, jnp.where(fit > 0, _RUNNING, _SLOW), 0.0, noise, 0.0])
    )
    factors = linear.Factors(memory.inverse, jnp.array(0.0))
    return lax.while_loop(unfinished, attempt, _Attempt(start, factors, jnp.array(0)))


def _correct(newton: Newton, residual: Residual, levels: Levels, matrix: _Attempt, s: _Iterate) -> _Iterate:
    """One correction, and the verdict on it."""
    value = residual(s.x)
    step = linear.solve(matrix.factors, value)
    x = s.x - step
    size, error = jnp.max(jnp.abs(jnp.stack([x, value])), axis=1)
    allowed = newton.tol * size + jnp.finfo(float).tiny
    units = jnp.stack(
        [allowed + levels.floor, NOISE * size + levels.loose, jnp.broadcast_to(allowed, x.shape)]
    )
    norm, above_noise, strict = jnp.max(jnp.abs(step) / units, axis=1)
    rate = jnp.where(jnp.isinf(s.norm), jnp.nan, norm / s.norm)  # NaN compares false

    # A small correction means little with the matrix of an earlier step: it may be far too stiff.
    trusted = (matrix.jacobians > 0) | (newton.policy == "frozen") & (s.iterations > 0)
    contracting = (_remaining(newton, norm, rate) <= 1) | (error == 0)
    small = trusted & (norm <= 1)
    stagnated = trusted & (rate * s.rate > SLOW**2) & (above_noise <= 1)  # rounding may alternate
    at_noise = error <= AT_NOISE * s.noise
    found = stagnated | (small & (jnp.max(levels.floor) > allowed))  # rounding level, seen with a new matrix
    converged = contracting | small | stagnated | at_noise

    # A new matrix is cheaper than a long way at this rate. Where a second one did not serve for long either,
    # the problem is too nonlinear to keep any.
    slow = (rate > SLOW) | (norm * rate**LONG > 1) | (matrix.jacobians > 1)
    status = jnp.where(_renewing(newton, slow), _SLOW, _RUNNING)
    status = jnp.where(converged, diagnose.SUCCESS, status)
    # Overflow at the end of such an iteration is divergence; out of the blue it is a bad function value.
    failed = jnp.where(s.rate > DIVERGING, diagnose.NOT_CONVERGED, diagnose.NOT_FINITE)
    status = jnp.where(jnp.isfinite(norm), status, failed)
    within_tolerance = (_remaining(newton, strict, rate) <= 1) | (trusted & (strict <= 1)) | (error == 0)
    # Only residuals that would be harmless with any matrix are remembered as noise.
    noise = jnp.where(found & (error <= NOISE * size), error, s.noise)
    rounding = converged & ~within_tolerance
    return _Iterate(x, jnp.stack([norm, rate, status, s.iterations + 1, noise, rounding.astype(float)]))


def _renewing(newton: Newton, poor: Array) -> Array:
    """Whether the policy wants a new matrix after a correction, given whether it was poor."""
    return {"full": jnp.array(True), "modified": poor, "frozen": jnp.array(False)}[newton.policy]


def _remaining(newton: Newton, norm: Array, rate: Array) -> Array:
    """Error left after a correction of that size, if the iteration goes on to contract at that rate."""
    reliable = rate if newton.policy == "full" else jnp.maximum(rate, LEAST_RATE)
    return jnp.where(rate < 1, norm * reliable / (1 - rate), jnp.inf)
