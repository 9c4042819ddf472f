"""Data types that the packages exchange. They hold data only."""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array


class State(NamedTuple):
    """The state at one time: t, q (size,), v (n,), a = v' (n,), λ (m,), ψ (p,)."""

    t: Array
    q: Array
    v: Array
    a: Array
    lam: Array
    psi: Array


class Signals(NamedTuple):
    """What a discrete controller holds between two samples: its output ``u`` and its own state ``s``."""

    u: Any
    s: Any


class Times(NamedTuple):
    """The steps of a run, or one of them: their start times ``t`` and sizes ``h``.

    ``project`` is true for steps that end with a projection of the velocity; None if no step does.
    """

    t: Any
    h: Any
    project: Any = None


class Scale(NamedTuple):
    """Typical sizes that make the Newton system dimensionless.

    ``a`` (n,) holds 1/√mass. Accelerations are divided by it, equations of motion are multiplied by it.
    ``lam`` (m,) and ``psi`` (p,) do the same for multipliers and constraint rows. So the scaled matrix (12)
    of JN08 has entries of size one, whatever the units.
    """

    a: Array
    lam: Array
    psi: Array


class NewtonReport(NamedTuple):
    """How one nonlinear solve went.

    ``status`` is a code of ``numerics.codes``. ``rounding`` is true if the iteration ended at rounding level,
    above its tolerance. ``near_singular`` is true if a nearly singular matrix amplified rounding, so that the
    multipliers have lost digits. ``condition`` is the condition number of the last factorized matrix, scaled
    (0 if there was none).
    """

    status: Array
    iterations: Array
    jacobians: Array
    rounding: Array
    near_singular: Array
    condition: Array


# The fields of a report that are counted, in this order.
COUNTED = NewtonReport._fields[1:-1]


class NewtonMemory(NamedTuple):
    """What a step passes to the next: the inverse of a past matrix (see `linear`), and two numbers.

    The first number is 1 if the matrix is fit for further use, else 0. The second is the size of residuals
    at rounding level, or 0 if it is not known.
    """

    inverse: tuple[Array, ...]
    fit_and_noise: Array


class StepOutput(NamedTuple):
    """The results of a step that are not in its carry: multipliers λ (m,) and ψ (p,) at its end, and more.

    ``extra`` holds the method's own variables one after the other. ``turns`` holds the angle of each rotation
    of the space in this step. ``fault`` is the status of computations after Newton's iteration.
    """

    lam: Array
    psi: Array
    extra: Array
    turns: Array
    fault: Array | int = 0


class Carry(NamedTuple):
    """What a step of an α-method passes to the next.

    ``a`` is the method's own a_{n+α}, ``a_old`` the value from which the last step started, ``h`` its size.
    ``lag`` (2,) holds the errors of ``a`` and ``a_old`` that the method causes, in units of v'''. It is None
    if no adjusting formulas need it. ``own`` holds further variables of the method, by name.
    """

    q: Array
    v: Array
    a: Array
    h: Array
    a_old: Array | None = None
    lag: Array | None = None
    own: dict[str, Array] = {}  # noqa: RUF012 - nothing changes it


class StepConstants(NamedTuple):
    """The constants of a step: what is known before its equations are solved.

    ``coast_q`` and ``coast_v`` (n,) are the increment of the positions and the velocity at the end of the
    step if the new accelerations were zero. ``a`` (n,) is a_α, adjusted to this step. ``known`` (n,) is the
    part of the equations of motion that comes from the past. ``weights`` (N,) scale the rows of the residual.
    ``lag`` (2,) holds the errors of a_{1+α} and a_α in units of v'''. ``own`` holds further constants of the
    method, by name.
    """

    t0: Array
    h: Array
    q0: Array
    coast_q: Array
    coast_v: Array
    a: Array
    known: Array
    weights: Array
    lag: Array | None = None
    own: dict[str, Array] = {}  # noqa: RUF012 - nothing changes it
