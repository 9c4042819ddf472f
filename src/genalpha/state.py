"""The data that flows between the rooms. Data only."""

from __future__ import annotations

from typing import NamedTuple

from jax import Array


class State(NamedTuple):
    """A motion at one time: t, q (size,), v (n,), a = v' (n,), λ (m,), ψ (p,)."""

    t: Array
    q: Array
    v: Array
    a: Array
    lam: Array
    psi: Array


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


class Output(NamedTuple):
    """What a step determines beyond its carry: multipliers λ (m,) and ψ (p,) at its end."""

    lam: Array
    psi: Array


class Carry(NamedTuple):
    """What a step of an α-method hands to the next. ``None`` marks what a method does not need.

    ``a`` is the method's own a_{n+α}, ``Ma`` its M_{n+α}a_{n+α}; ``a_old`` and ``Ma_old`` are the values
    the last step started from, ``h`` its size, all for the adjusting formulas. ``f`` is f(t_n, ...).
    """

    q: Array
    v: Array
    f: Array | None
    a: Array
    a_old: Array | None
    Ma: Array | None
    Ma_old: Array | None
    h: Array


class Step(NamedTuple):
    """What is known when the equations of a step are set up: its constants.

    ``known`` (n,) collects the parts of the equations of motion that come from the past, ``weights`` (N,)
    are the factors that scale the rows of the residual.
    """

    t0: Array
    h: Array
    q0: Array
    v0: Array
    a: Array
    Ma: Array | None
    M1: Array
    known: Array
    weights: Array
