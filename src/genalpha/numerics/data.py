"""The data that flows between the rooms. Data only."""

from __future__ import annotations

from typing import Any, NamedTuple

from jax import Array


class State(NamedTuple):
    """A motion at one time: t, q (size,), v (n,), a = v' (n,), λ (m,), ψ (p,)."""

    t: Array
    q: Array
    v: Array
    a: Array
    lam: Array
    psi: Array


class Times(NamedTuple):
    """The steps of a run, or one of them: where they start, how long they are.

    ``project`` says which of them end with a projection of the velocity; None where none does.
    """

    t: Any
    h: Any
    project: Any = None


class Scale(NamedTuple):
    """Typical sizes that make the Newton system dimensionless.

    ``a`` (n,) holds 1/√mass: accelerations are measured in it, equations of motion multiplied by it.
    ``lam`` (m,) and ``psi`` (p,) do the same for multipliers and constraint rows, so that the scaled
    matrix (12) of JN08 has entries of size one whatever the units.
    """

    a: Array
    lam: Array
    psi: Array


class NewtonReport(NamedTuple):
    """How one nonlinear solve went.

    ``status`` is a code of ``genalpha.diagnose``; ``rounding`` says that the iteration ended at rounding
    level, above its tolerance; ``condition`` is that of the scaled matrix last factorized (0 if none was).
    """

    status: Array
    iterations: Array
    jacobians: Array
    rounding: Array
    condition: Array


class NewtonMemory(NamedTuple):
    """What the next step inherits: the inverse of a past matrix (`linear`), and two numbers.

    They are 1 where that matrix is fit for further use (0 where not), and the size of residuals at rounding
    level as far as it is known (0 where not).
    """

    inverse: tuple[Array, ...]
    fit_and_noise: Array


class StepOutput(NamedTuple):
    """What a step determines beyond its carry: multipliers λ (m,) and ψ (p,) at its end.

    ``extra`` holds the method's own variables one after the other, ``turns`` the angles by which the step
    turned each of the rotations in the space. ``fault`` is the status of what follows Newton's iteration.
    """

    lam: Array
    psi: Array
    extra: Array
    turns: Array
    fault: Array | int = 0


class Carry(NamedTuple):
    """What a step of an α-method hands to the next.

    ``a`` is the method's own a_{n+α}, ``a_old`` the value the last step started from, ``h`` its size.
    ``lag`` (2,) holds the errors of ``a`` and ``a_old`` as far as they follow from the method, in units of
    v'''; it is None if no adjusting formulas need it. ``own`` is what else the method carries, by name.
    """

    q: Array
    v: Array
    a: Array
    h: Array
    a_old: Array | None = None
    lag: Array | None = None
    own: dict[str, Array] = {}  # noqa: RUF012 - nothing changes it


class StepConstants(NamedTuple):
    """What is known when the equations of a step are set up: its constants.

    ``coast_q`` and ``coast_v`` (n,) are the increment of the positions and the velocity with which a step
    would end if its new accelerations were zero. ``a`` (n,) is a_α, adjusted to this step. ``known`` (n,)
    collects the parts of the equations of motion that come from the past, ``weights`` (N,) are the factors
    that scale the rows of the residual. ``lag`` (2,) are the errors of a_{1+α} and a_α in units of v''',
    ``own`` is what else the method needs, by name.
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
