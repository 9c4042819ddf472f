"""The base of the methods of Jay & Negrut: forces at t_n and t_{n+1} mixed, mass matrices at t_{n+1+α}."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods.base import Method
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput


@dataclass(frozen=True)
class MixedForces(Method):
    """Generalized-α with (1 − α_m) M_{1+α} a_{1+α} + α_m M_α a_α = (1 − α_f) f_1 + α_f f_0, JN08 (2c).

    M_{1+α} = M(t_{1+α}, q_0 + h(1+α) v_0) is explicit, M_α is the M_{1+α} of the step before.

    ``own`` holds ``f``, which is f(t_n, ...), if α_f ≠ 0. If M is not constant and α_m ≠ 0, it holds ``Ma``,
    which is M_{n+α} a_{n+α}, and ``Ma_old``, its value one step before. During a step it also holds ``M1``,
    which is M_{1+α}.
    """

    def begin(
        self, system: System, dims: Dims, start: Beginning, h: Array, args: Args
    ) -> tuple[Carry, Array]:
        """The carry before the first step (see :class:`Method`), with M_α a_α.

        If a_0' or M(t_α, ...) is not finite (a mass matrix that is not defined before t_0), the start is a_0.
        """
        start = self.damped(system, start, h)
        c, state, shift = self.coefficients, start.state, jnp.zeros_like(h)
        a, own = state.a, dict[str, Array]()
        moved = not system.constant_mass and c.alpha_m != 0
        Ma0 = system.M(state.t, state.q, args) @ a if moved else jnp.zeros_like(a)
        Ma = Ma0
        if self.needs_rate:
            ahead = self.alpha * h
            a_ahead = a + ahead * start.a_dot
            usable = jnp.all(jnp.isfinite(a_ahead))
            if moved:
                q_ahead = system.space.retract(state.q, ahead * state.v)
                Ma_ahead = system.M(state.t + ahead, q_ahead, args) @ a_ahead
                usable &= jnp.all(jnp.isfinite(Ma_ahead))
                Ma = jnp.where(usable, Ma_ahead, Ma0)
            a, shift = jnp.where(usable, a_ahead, a), jnp.where(usable, ahead, 0.0)
        a_old, lag = self.before_start(start, h, shift, a)
        if moved:
            # One step before, on the same line as a_α.
            Ma_old = jnp.where(shift != 0, Ma - (Ma - Ma0) / self.alpha, Ma) if self.alpha != 0 else Ma
            own |= {"Ma": Ma, "Ma_old": Ma_old}
        if c.alpha_f != 0:
            own["f"] = system.f(*state[:3], state.lam, state.psi, args)
        return Carry(state.q, state.v, a, h, a_old, lag, own), state.t + shift

    def prepare(
        self, system: System, carry: Carry, t: Array, h: Array, dims: Dims, scale: Scale, args: Args
    ) -> StepConstants:
        """The constants of a step from t with size h: a_α, adjusted, M_{1+α}, and past forces."""
        c, step = self.coefficients, super().prepare(system, carry, t, h, dims, scale, args)
        ahead = (1 + self.alpha) * h
        M1 = system.M(t + ahead, system.space.retract(carry.q, ahead * carry.v), args)
        own, known = {"M1": M1}, step.known
        if "Ma" in carry.own:
            own["Ma"] = self._adjusted_force(carry, h)
        if c.alpha_m != 0:
            known = known + c.alpha_m * (own["Ma"] if "Ma" in own else M1 @ step.a)
        if "f" in carry.own:
            known = known - c.alpha_f * carry.own["f"]
        return step._replace(known=known, own=own)

    def _adjusted_force(self, carry: Carry, h: Array) -> Array:
        """M_α a_α for a step of size h, by (14b) if the step size changes."""
        Ma = carry.own["Ma"]
        return Ma + self.ahead(carry, h) * (Ma - carry.own["Ma_old"]) if self.adjusts else Ma

    def mixed(self, s: StepConstants, a1: Array, f1: Array) -> Array:
        """The residual of (2c), with the forces f_1 at the end of the step."""
        c = self.coefficients
        return (1 - c.alpha_m) * (s.own["M1"] @ a1) + s.known - (1 - c.alpha_f) * f1

    def close(
        self,
        system: System,
        s: StepConstants,
        u: dict[str, Array],
        multipliers: tuple[Array, Array],
        args: Args,
    ) -> tuple[Carry, StepOutput]:
        """Carry and output after a step with the unknowns u and (λ_1, ψ_1)."""
        carry, output = self.hand_over(system, s, self.reached(s, u), u["a"], multipliers)
        own = {}
        if self.coefficients.alpha_f != 0:
            own["f"] = system.f(s.t0 + s.h, carry.q, carry.v, *multipliers, args)
        if "Ma" in s.own:
            own |= {"Ma": s.own["M1"] @ carry.a, "Ma_old": s.own["Ma"]}
        return carry._replace(own=own), output
