"""Newton's method for the equations of a step: policies, stopping test, report, implicit derivatives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jax import Array, lax

from genalpha.numerics import codes, linear
from genalpha.numerics.data import NewtonMemory, NewtonReport

Policy = Literal["full", "modified", "frozen"]
Case = Literal["usual", "partial", "large", "staged"]
Residual = Callable[[Array], Array]

# A matrix beyond this condition number has lost all digits: it is singular to double precision.
MAX_CONDITION = 1e15
# The rate is the size of a correction divided by that of the correction before.
# A matrix is replaced at once if the rate is above SLOW, or if more than LONG corrections would still follow.
# If a new matrix helps, it brings the rate to the fraction BETTER of the one before.
SLOW, LONG, BETTER = 0.3, 8, 0.5
# One is replaced before the next step if the rate is above STALE, and corrections well above the tolerance.
STALE, WELL_ABOVE = 0.03, 10.0
# If corrections are amplified rounding, it is replaced before the next step after more than FEW corrections.
FEW = 3
# Parts of the unknowns shrink at different rates. With a kept matrix, a rate below this one may belong only
# to the part that was large at first, so this one is used instead.
LEAST_RATE = 0.01
# An iteration with a rate above this one does not converge.
DIVERGING = 0.9
# Corrections that stop shrinking below the fraction NOISE of the unknowns are at rounding level. Those above
# the fraction WILD are large.
NOISE, WILD = 1e-6, 1e-3
# Corrections below this count as zero, whatever the units: such small numbers have lost their digits.
NOTHING = 1e-150
# Residuals up to this multiple of the expected rounding cannot be made smaller.
AT_ROUNDING = 64.0
# Residuals up to this multiple of those seen at rounding level are at rounding level too.
AT_NOISE = 4.0
# The remembered rounding level is multiplied by this in every step.
FADING = 0.9


@dataclass(frozen=True)
class Newton:
    """How the nonlinear equations of a step are solved.

    Parameters
    ----------
    policy : ``"modified"`` keeps the factorized matrix from step to step and renews it when the measured
        contraction rate is poor. ``"full"`` computes a new matrix in every iteration. ``"frozen"`` never
        renews the matrix of the first step (for linear systems with one step size).
    tol : the iteration stops when the estimated remaining error is below ``tol`` times the size of the
        unknowns. Both are scaled: acceleration times the square root of mass.
    max_iterations : largest number of corrections in one step.

    The remaining error is estimated from the contraction rate, as rate/(1 − rate) times the last correction.
    With a matrix of an earlier step, one correction is never enough.

    Rounding sets a limit: a row g/(βh²) has rounding errors of size ε|q|/(βh²), a stiff force ε times its
    stiffness. If the matrix is new and small corrections stop shrinking, this limit is reached. The size of
    the residual there is remembered. Steps that end at this limit are counted in
    ``sol.stats.rounding_limited``.

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
    """Sizes of corrections at rounding level: expected (``floor``), and largest possible (``loose``).

    Both have one number (G,) per group of unknowns. Near a singular matrix rounding is amplified. If the
    residual is at rounding level there, corrections of the motion up to ``harmless`` are accepted. So are
    late corrections up to ``at_rest``, which change coordinates by nothing that counts.
    """

    floor: Array
    loose: Array
    harmless: Array
    at_rest: Array | float = 0.0


class Block(NamedTuple):
    """Consecutive unknowns: their number, and whether they are part of the motion. Others are multipliers."""

    size: int
    motion: bool


# A group of unknowns with the same rounding level.
Group = tuple[Block, ...]


def one_group(size: int) -> tuple[Group]:
    """A single group with ``size`` unknowns."""
    return ((Block(size, True),),)


class Numbers(NamedTuple):
    """The state of an iteration. Loops carry it as one array, since every array they carry costs time."""

    norm: Array  # size of the last correction, divided by the allowed error; inf before the first
    rate: Array  # ratio of the last two norms; NaN before the second
    status: Array  # RUNNING, SLOW_DOWN, or a status of `codes`
    iterations: Array
    noise: Array  # size of residuals at rounding level; 0 if it is not known
    rounding: Array  # whether the iteration ended at rounding level
    jacobians: Array  # number of new matrices so far
    near_singular: Array  # whether the residual is at rounding level, but the corrections are larger


class _Iterate(NamedTuple):
    x: Array
    numbers: Array

    @property
    def known(self) -> Numbers:
        return Numbers(*self.numbers)


class _Round(NamedTuple):
    iterate: _Iterate
    factors: linear.Inverse


RUNNING, SLOW_DOWN = -1.0, -2.0


def no_memory(size: int) -> NewtonMemory:
    """The memory before the first step: no matrix, no known rounding level."""
    return NewtonMemory(inverse=linear.no_inverse(size), fit_and_noise=jnp.zeros(2))


def solve(
    newton: Newton,
    residual: Residual,
    guess: Array,
    memory: NewtonMemory,
    levels: Levels,
    groups: Sequence[Group],
    implicit: bool = True,
    linearized: Residual | None = None,
) -> tuple[Array, NewtonMemory, NewtonReport]:
    """Solve residual(x) = 0, with derivatives by the implicit function theorem.

    ``guess`` (N,) starts the iteration. ``levels`` are the rounding levels of ``groups`` of unknowns.
    ``memory`` comes from the step before. Returns x (N,), the memory for the next step, and
    the report.

    Derivatives with respect to everything ``residual`` closes over come from one linear solve at the
    solution; the iteration itself is not differentiated. If no derivatives are needed, ``implicit=False``
    makes the traced program smaller. ``linearized``, if given, is a function with the same values as
    ``residual``; its derivatives are used as the Newton matrix.
    """
    memory, levels = lax.stop_gradient((memory, levels))

    def iterate(residual: Residual, guess: Array) -> tuple[Array, tuple[Any, ...]]:
        end, factors = _iterate(newton, residual, linearized or residual, guess, memory, levels, groups)
        known = end.known
        kept = NewtonMemory(factors.inverse, remembered(newton, known))
        # custom_root needs auxiliary outputs of one type, so counts are floats.
        counts = jnp.stack([final_status(known), *counted(known)])
        return end.x, (kept, counts, factors.condition)

    def tangent_solve(linear_map: Callable[[Array], Array], rhs: Array) -> Array:
        return jnp.linalg.solve(jax.jacfwd(linear_map)(rhs), rhs)

    if implicit:
        x, (kept, counts, condition) = lax.custom_root(residual, guess, iterate, tangent_solve, has_aux=True)
    else:
        x, (kept, counts, condition) = iterate(residual, guess)
    status, iterations, jacobians, rounding, near_singular = counts.astype(int)
    return x, kept, NewtonReport(status, iterations, jacobians, rounding != 0, near_singular != 0, condition)


def _iterate(
    newton: Newton,
    residual: Residual,
    linearized: Residual,
    guess: Array,
    memory: NewtonMemory,
    levels: Levels,
    groups: Sequence[Group],
) -> _Round:
    """Corrections with the kept matrix. If they are slow, a new matrix and more corrections."""

    def renew(s: _Round) -> _Round:
        matrix = jax.jacfwd(linearized)(s.iterate.x)
        factors = linear.factor(matrix)
        singular = ~(factors.condition <= MAX_CONDITION)
        numbers = renewed(newton, s.iterate.known, jnp.isfinite(jnp.sum(matrix)), singular)
        return _Round(_Iterate(s.iterate.x, jnp.stack(numbers)), factors)

    def correct(s: _Iterate, factors: linear.Inverse) -> _Iterate:
        value = residual(s.x)
        step = linear.solve(factors, value)
        x = s.x - step
        return _Iterate(x, jnp.stack(judged(newton, levels, groups, s.known, x, value, step)))

    def attempt(s: _Round) -> _Round:
        s = lax.cond(s.iterate.known.status == SLOW_DOWN, renew, lambda s: s, s)
        end = lax.while_loop(lambda i: running(newton, i.known), lambda i: correct(i, s.factors), s.iterate)
        astray, numbers = reconsidered(newton, end.known)
        return s._replace(iterate=_Iterate(jnp.where(astray, guess, end.x), jnp.stack(numbers)))

    start = _Iterate(guess, jnp.stack(begun(*memory.fit_and_noise)))
    factors = linear.Inverse(memory.inverse, jnp.array(0.0))
    return lax.while_loop(lambda s: unfinished(newton, s.iterate.known), attempt, _Round(start, factors))


# --- the course of an iteration, in numbers: every backend runs these -------------------------------


def begun(fit: Array, noise: Array) -> Numbers:
    """The numbers before the first correction of a step. ``fit`` is 1 if the kept matrix can be used."""
    zero = jnp.zeros(())
    status = jnp.where(fit > 0, RUNNING, SLOW_DOWN)
    return Numbers(jnp.array(jnp.inf), jnp.array(jnp.nan), status, zero, noise, zero, zero, zero)


def running(newton: Newton, s: Numbers) -> Array:
    """Whether another correction with the same matrix follows."""
    return (s.status == RUNNING) & (s.iterations < newton.max_iterations)


def unfinished(newton: Newton, s: Numbers) -> Array:
    """Whether the iteration has neither converged nor failed."""
    return (s.status < 0) & (s.iterations < newton.max_iterations)


def renewed(newton: Newton, s: Numbers, finite: Array, singular: Array) -> Numbers:
    """The numbers after a new matrix was computed, which may be singular or not finite."""
    status = jnp.where(singular, codes.SINGULAR, RUNNING)
    status = jnp.where(finite, status, codes.NOT_FINITE)
    # If the iteration was diverging before it came to such a matrix, divergence is the cause.
    diverged = (status != RUNNING) & (s.rate > DIVERGING)
    status = jnp.where(diverged, codes.NOT_CONVERGED, status)
    # What was measured with the matrix of an earlier step says nothing about this one.
    comparable = (s.jacobians > 0) | (newton.policy == "full")
    norm, rate = jnp.where(comparable, s.norm, jnp.inf), jnp.where(comparable, s.rate, jnp.nan)
    return s._replace(norm=norm, rate=rate, status=status, jacobians=s.jacobians + 1)


def judged(
    newton: Newton,
    levels: Levels,
    groups: Sequence[Group],
    s: Numbers,
    x: Array,
    value: Array,
    step: Array,
    case: Case = "usual",
) -> Numbers:
    """The numbers after a correction ``step`` (N,) that led to ``x``; ``value`` is the residual before.

    In the case "partial", the matrix leaves out parts of the derivative. In "large" systems rounding may be
    amplified (see :func:`_amplified`). "staged" ones are large, and their stages depend on each other.
    """
    exact, large, staged = case != "partial", case in ("large", "staged"), case == "staged"
    size, error = jnp.max(jnp.abs(jnp.stack([x, value])), axis=1)
    allowed, moved = newton.tol * size + NOTHING, jnp.abs(step)
    ends = [0, *itertools.accumulate(part.size for group in groups for part in group)]
    parts = (jnp.max(moved[i:j]) for i, j in itertools.pairwise(ends))
    sizes = [[(next(parts), part.motion) for part in group] for group in groups]
    largest = jnp.stack([jnp.max(jnp.stack([x for x, _ in group])) for group in sizes])
    norm = jnp.max(largest / (allowed + levels.floor))
    above_noise = jnp.any(largest > NOISE * size + levels.loose)
    strict = jnp.max(largest)
    rate = jnp.where(jnp.isinf(s.norm), jnp.nan, norm / s.norm)  # NaN compares false

    # With the matrix of an earlier step, a small correction proves nothing: it may be far too stiff.
    trusted = (s.jacobians > 0) | (newton.policy == "frozen") & (s.iterations > 0)
    contracting = _contracts(newton, norm, rate, 1.0) | (error == 0)
    small = trusted & (norm <= 1)
    stagnates = trusted & (rate * s.rate > SLOW**2)  # rounding may alternate
    stagnated = stagnates & ~above_noise
    if exact:  # corrections of rounding may have any rates
        stagnated |= trusted & (s.iterations >= newton.max_iterations // 2) & (strict <= levels.at_rest)
    # A residual that is harmless with most matrices may not be so with a nearly singular one.
    at_noise = (error <= AT_NOISE * s.noise) & ~above_noise
    # Near a singular matrix, corrections stagnate far above rounding, but the residual does not.
    smallest = jnp.finfo(float).eps * size + jnp.max(levels.floor)
    at_rounding = error <= AT_ROUNDING * smallest
    near_singular = stagnates & above_noise & at_rounding
    if not exact:  # a poor rate may come from what was left out
        stagnated &= at_rounding
    motion = jnp.stack([x for group in sizes for x, moves in group if moves] or [jnp.zeros(())])
    amplified = near_singular & (jnp.max(motion) <= levels.harmless)
    found = stagnated | (small & (jnp.max(levels.floor) > allowed))  # rounding level, seen with a new matrix
    converged = contracting | small | stagnated | at_noise | amplified

    # A new matrix is cheaper than many corrections at a poor rate. If a second one was not good for long
    # either, the problem is too nonlinear to keep any, or the rate is due to what was left out.
    many = (s.jacobians > 1) & ~(rate > BETTER * s.rate) if staged else s.jacobians > 1
    slow = (rate > SLOW) | (norm * rate**LONG > 1) | many
    if not exact:  # a second one would leave out the same
        slow &= s.jacobians == 0
    status = jnp.where(_renewing(newton, slow), SLOW_DOWN, RUNNING)
    status = jnp.where(converged, codes.SUCCESS, status)
    # Overflow after poor rates is divergence. Overflow after good rates is a bad function value.
    failed = jnp.where(s.rate > DIVERGING, codes.NOT_CONVERGED, codes.NOT_FINITE)
    status = jnp.where(jnp.isfinite(norm), status, failed)
    proven = (trusted & (strict <= allowed)) | (error == 0)
    within_tolerance = proven | _contracts(newton, strict, rate, allowed)
    # Only residuals that would be harmless with any matrix are remembered as noise.
    harmless = error <= NOISE * size
    noise = jnp.where(found & harmless, error, s.noise)
    if large:
        stuck = (s.jacobians == 0) & (error <= AT_ROUNDING * smallest) & harmless & ~above_noise & ~converged
        noise = _amplified(s, error, noise, stuck & (rate > SLOW), trusted & converged & ~found)
    rounding = converged & ~within_tolerance
    counts = (s.iterations + 1, noise, rounding.astype(float), s.jacobians, near_singular.astype(float))
    return Numbers(norm, rate, status, *counts)


def _amplified(s: Numbers, error: Array, noise: Array, stuck: Array, settled: Array) -> Array:
    """The rounding level, if rounding is amplified, as in chains of thousands of bodies.

    Corrections with a kept matrix may be ``stuck`` above the allowed error, with a residual not far above
    rounding. This residual is noted, as a negative number. When the iteration has ``settled`` with a new
    matrix, the smaller of its residual and the noted one is the rounding level.
    """
    noise = jnp.where(settled & (s.noise < 0), jnp.minimum(error, -s.noise), noise)
    return jnp.where(stuck, -error, noise)


def reconsidered(newton: Newton, s: Numbers) -> tuple[Array, Numbers]:
    """After the corrections with one matrix: whether to start again from the guess, and the numbers then.

    The matrix of an earlier step may have led to a wrong point.
    """
    if newton.policy != "modified":
        return jnp.array(False), s
    astray = (s.jacobians == 0) & ((s.rate > SLOW) | (s.status == codes.NOT_FINITE))
    astray &= s.status != codes.SUCCESS
    again = Numbers(jnp.inf, jnp.nan, SLOW_DOWN, s.iterations, s.noise, 0.0, s.jacobians, 0.0)  # type: ignore[arg-type]
    return astray, Numbers(*(jnp.where(astray, new, old) for new, old in zip(again, s, strict=True)))


def stopped_if_astray(newton: Newton, before: Numbers, s: Numbers) -> Numbers:
    """The numbers after a correction, for a matrix that leaves out how stages depend on each other.

    Large corrections that do not shrink, though the third matrix is new, may lead to a solution far away.
    Then the iteration has failed. Near a singular matrix they may be rounding.
    """
    growing = (before.jacobians > 2) & (s.rate * before.rate > DIVERGING**2)  # NaN compares false
    astray = growing & (newton.tol * s.norm > WILD) & (s.status < 0) & (s.near_singular == 0)
    return s._replace(status=jnp.where(astray, codes.NOT_CONVERGED, s.status))


def remembered(newton: Newton, s: Numbers, large: bool = False) -> Array:
    """At the end of a step: 1 if the matrix is fit for the next step, and the remembered rounding level."""
    poor, noise = (s.rate > STALE) & (s.norm > WELL_ABOVE * s.rate), s.noise
    if large:
        # The ratio of two corrections that are amplified rounding says nothing about the matrix.
        told = (s.rounding == 0) | (s.near_singular > 0) | (s.norm <= WELL_ABOVE)
        poor &= told | (s.iterations > FEW)
        noise = jnp.maximum(noise, 0.0)
    return jnp.stack([jnp.where(_renewing(newton, poor), 0.0, 1.0), FADING * noise])


def counted(s: Numbers) -> tuple[Array, Array, Array, Array]:
    """What is counted in every step (see `NewtonReport`)."""
    return s.iterations, s.jacobians, s.rounding, s.near_singular


def final_status(s: Numbers) -> Array:
    return jnp.where(s.status < 0, codes.NOT_CONVERGED, s.status)


def _renewing(newton: Newton, poor: Array) -> Array:
    """Whether the policy requires a new matrix after a correction; ``poor`` says that its rate was poor."""
    return {"full": jnp.array(True), "modified": poor, "frozen": jnp.array(False)}[newton.policy]


def _contracts(newton: Newton, norm: Array, rate: Array, allowed: Array | float) -> Array:
    """Whether the error that remains after a correction of size ``norm`` is at most ``allowed``.

    The estimate is rate/(1 − rate) times the correction, if the rate stays the same.
    """
    reliable = rate if newton.policy == "full" else jnp.maximum(rate, LEAST_RATE)
    return (rate < 1) & (norm * reliable <= (1 - rate) * allowed)
