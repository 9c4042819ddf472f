"""The base of the methods of Yen, Petzold & Raha: the α-method on the underlying ODE v' = φ(t, q, v)."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from genalpha.mechanics import initial_values
from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods._equilibrium import EquilibriumAlpha
from genalpha.numerics import codes
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput
from genalpha.numerics.tracing import library


@dataclass(frozen=True)
class UnderlyingAlpha(EquilibriumAlpha):
    """Methods with the variables φ_n = M⁻¹(f − Gᵀλ)_n of YPR98 (2.2) and a_n, which follows from (4.1)::

        (1 − α_m) a_{n+1} + α_m a_n = (1 − α_f) φ_{n+1} + α_f φ_n.

    With coefficients of the HHT family this is (2.5a). q_{n+1} and v_{n+1} come from (1.3b) and (1.3c), with
    different accelerations a_q and a_v, which include a projection. In this form q̂_n and v̂_n of (3.4) and
    (4.2) are not needed: (1.3b) with a_{n+1} from (4.1) is q_{n+1} = q̂_n + β̂h²φ_{n+1}. The φ_n terms of
    (4.2) have the wrong sign in the paper.
    """

    def check(self, system: System, dims: Dims) -> None:
        if dims.m and self.coefficients.beta == 0:
            raise ValueError(
                f"{self.coefficients.name} has beta = 0, so positions would be explicit and could not "
                "satisfy the constraints. Choose coefficients with beta > 0"
            )

    def refuse_reaction(self, system: System) -> None:
        if system.reaction is not None:
            raise ValueError(
                f'the system has a reaction of its own, but "{self.name}" is for the reaction forces '
                "−Gᵀλ − Kᵀψ: its multipliers contain the projection too. Use method='soi2' or 'projected'"
            )

    @property
    def hats(self) -> tuple[float, float]:
        """β̂ and γ̂ below (4.2)."""
        c = self.coefficients
        share = (1 - c.alpha_f) / (1 - c.alpha_m)
        return c.beta * share, c.gamma * share

    def mixed(self, s: StepConstants, phi: Array) -> Array:
        """(4.1) solved for a_{n+1}."""
        c = self.coefficients
        return ((1 - c.alpha_f) * phi - s.known) / (1 - c.alpha_m)

    def first_extra(self, dims: Dims, start: Beginning, h: Array) -> Array:
        """φ_0, and ν_0 = β̂h²λ_0 and μ_0 = γ̂hλ_0 as in theorem 3.1."""
        (beta, gamma), state = self.hats, start.state
        return library(state.a).concatenate([state.a, beta * h**2 * state.lam, gamma * h * state.lam])

    def extras(self, dims: Dims) -> dict[str, int]:
        return {"phi": dims.n, "nu": dims.m, "mu": dims.m}

    def close(
        self,
        system: System,
        s: StepConstants,
        dims: Dims,
        scale: Scale,
        d: Array,
        v1: Array,
        multipliers: tuple[Array, Array],
        args: Args,
    ) -> tuple[Carry, StepOutput]:
        """Carry and output after a step to q_n ∘ exp(d) and v_{n+1}: φ, λ and ψ there follow from (2.2).

        ``multipliers`` are ν/(β̂h²) and μ/(γ̂h).
        """
        q1, (beta, gamma) = system.space.retract(s.q0, d), self.hats
        phi, lam, psi = initial_values.underlying(system, dims, scale, s.t0 + s.h, q1, v1, args)
        nu, mu = beta * s.h**2 * multipliers[0], gamma * s.h * multipliers[1]
        extra = jnp.concatenate([phi, nu, mu])
        # The matrix of (2.2) is singular if G loses rank. This is the only check of it.
        regular = jnp.all(jnp.isfinite(phi)) & jnp.all(jnp.isfinite(lam))
        fault = jnp.where(regular, codes.SUCCESS, codes.SINGULAR)
        carry, output = self.hand_on(system, s, (d, v1), phi, (lam, psi), extra)
        return carry, output._replace(fault=fault)

    def hand_on(
        self,
        system: System,
        s: StepConstants,
        reached: tuple[Array, Array],
        phi: Array,
        multipliers: tuple[Array, Array],
        extra: Array,
    ) -> tuple[Carry, StepOutput]:
        """As :meth:`hand_over`, with φ_{n+1} instead of a_{n+1}."""
        a1, own = self.mixed(s, phi), self.past(phi)
        return self.hand_over(system, s, reached, a1, multipliers, own, extra)
