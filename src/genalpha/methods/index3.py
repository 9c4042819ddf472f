"""The Lie group generalized-α method for the index-3 form, and HHT-I3."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods._equilibrium import EquilibriumAlpha
from genalpha.methods.base import StartValue, Unknown
from genalpha.methods.coefficients import Coefficients, only_hht
from genalpha.numerics.data import Scale


@dataclass(frozen=True)
class Index3(EquilibriumAlpha):
    """Generalized-α on the index-3 form: only the position constraints hold at t_{n+1} (ACB15 (3)).

    It is the cheapest method for holonomic constraints, and most multibody codes use it. The hidden velocity
    constraint is violated by O(h²). Nonholonomic constraints hold at t_{n+1}.

    Second order in q, v, a and λ for constant steps, with ``start="perturbed"``.

    Parameters
    ----------
    coefficients : the spectral radius of the error recursion (8) must be below one (ρ∞ < 1), because
        otherwise the multipliers do not converge. Default ``chung_hulbert(0.8)``.
    adjust : apply (14a) of JN08 to a_n when the step size changes. The velocity residual depends on the step
        size and cannot be adjusted in this way. So each change of the step size starts a transient in λ of
        size O(h), which decays like n²ρ∞ⁿ. Error control checks positions only.
    start : ``"perturbed"`` (default) starts from a velocity with B v_0 = h² B r(t_0), without a transient.
        ``"second-order"`` and ``"a0"`` start from v_0 as given. λ then has an error of first order in the
        first steps. The same happens after a projection of the velocity (ACB15 section 3).
    """

    start: StartValue = "perturbed"

    name = "index3"
    additive = True
    # Every change of the step size starts a transient in λ. Error control would take it for an error.
    watches_velocity = False
    starts = ("a0", "second-order", "perturbed")

    def __post_init__(self) -> None:
        super().__post_init__()
        radius = self.coefficients.r_index3
        if not radius < 1 - 1e-7:
            raise ValueError(
                f"{self.coefficients.name}: the errors of the multipliers do not decay with {self.name} (the "
                f"spectral radius of ACB15 (8) is {radius:.9g}, but must be below 1). Choose rho_inf < 1, or "
                'method="soi2"'
            )

    @property
    def needs_rate(self) -> bool:
        return self.start == "perturbed" or super().needs_rate

    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        # The recursion (8) amplifies errors of λ by up to (1 − ρ∞)⁻³, so Newton must reach rounding level.
        rounding = 0.25 if dims.m else None
        return (
            Unknown("a", dims.n, like="a", start="a", rounding=rounding),
            Unknown("lam", dims.m, like="lam", start="lam", rounding=rounding),
            Unknown("psi", dims.p, like="psi", start="psi", rounding=rounding),
        )

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        beta, gamma = self.coefficients.beta, self.coefficients.gamma
        return jnp.concatenate([scale.a, scale.lam * (1 / (beta * h**2)), scale.psi * (1 / (gamma * h))])

    def holonomic_rows(self, system: System, t1: Array, q1: Array, v1: Array, args: Args) -> Sequence[Array]:
        return [system.g(t1, q1, args)]  # (3f)


class HHTI3(Index3):
    """HHT-I3: :class:`Index3` with the coefficients of Hilber, Hughes & Taylor.

    For a constant mass matrix it is the HHT-I3 in the comparison of JN08 section 8.3. ``HHTI3(-0.1)`` and
    ``HHTI3(ga.hht(-0.1))`` are the same.

    >>> import genalpha as ga
    >>> ga.HHTI3(-0.1).coefficients == ga.hht(-0.1)
    True
    """

    name = "hht-i3"

    def __init__(
        self, coefficients: Coefficients | float = -0.1, adjust: bool = True, start: StartValue = "perturbed"
    ) -> None:
        super().__init__(only_hht(self.name, coefficients), adjust, start)
