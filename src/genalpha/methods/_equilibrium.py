"""The base of the methods of Arnold, Cardona & Brüls: equilibrium at t_{n+1}, accelerations from (3d)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods.base import Method
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput


@dataclass(frozen=True)
class EquilibriumAlpha(Method):
    """Generalized-α on a Lie group with the equations of motion at t_{n+1}, ACB15 (3a) to (3e).

    The unknown is a_{n+1}; v̇_{n+1} follows from (3d). M is taken at q_{n+1}, so it is implicit. If α_f ≠ 0,
    ``own`` holds ``v_dot``, which is v̇_n.
    """

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        return {"motion": dims.n, "holonomic": dims.m, "nonholonomic": dims.p}

    def begin(
        self, system: System, dims: Dims, start: Beginning, h: Array, args: Args
    ) -> tuple[Carry, Array]:
        """The carry before the first step, and the time of its a_0 (see :class:`Method`).

        ``start="perturbed"`` changes v_0 as little as possible such that B v_0 = h² B r(t_0), with
        12 r = 2(1 − 6β − 3Δ) v̈ + [v, v̇] and Δ = α_m − α_f. Then E_0 of ACB15 (8) is O(h²). Its first
        component is −B v_n/h + h B r; the paper prints the other sign, which would double the transient. If
        v̈ is not finite, v_0 is not changed.
        """
        c, state = self.coefficients, start.state
        carry, t_alpha = super().begin(system, dims, start, h, args)
        if self.start == "perturbed" and dims.m:
            usable = jnp.all(jnp.isfinite(start.a_dot))
            a_dot = jnp.where(usable, start.a_dot, 0.0)
            r = (2 * (1 - 6 * c.beta - 3 * c.alpha) * a_dot + system.space.bracket(state.v, state.a)) / 12
            moved = state.v + h**2 * start.shift(r)
            carry = carry._replace(v=jnp.where(usable & jnp.all(jnp.isfinite(moved)), moved, state.v))
        return carry._replace(own=self.past(state.a)), t_alpha

    def past(self, v_dot: Array) -> dict[str, Array]:
        """The part of ``own`` for the next step: v̇, if it is needed."""
        return {"v_dot": v_dot} if self.coefficients.alpha_f != 0 else {}

    def prepare(
        self, system: System, carry: Carry, t: Array, h: Array, dims: Dims, scale: Scale, args: Args
    ) -> StepConstants:
        """The constants of a step from t with size h: a_n, adjusted, and the terms of (3d) from the past."""
        c, step = self.coefficients, super().prepare(system, carry, t, h, dims, scale, args)
        known = c.alpha_m * step.a
        if "v_dot" in carry.own:
            known = known - c.alpha_f * carry.own["v_dot"]
        return step._replace(known=known, own={})

    def v_dot1(self, s: StepConstants, a1: Array) -> Array:
        """(3d) solved for v̇_{n+1}."""
        c = self.coefficients
        return ((1 - c.alpha_m) * a1 + s.known) / (1 - c.alpha_f)

    def moved(self, s: StepConstants, u: dict[str, Array]) -> Array:
        """h Δq_n of (3b)."""
        return self.increment(s, u["a"])

    def reached(self, s: StepConstants, u: dict[str, Array]) -> tuple[Array, Array]:
        return self.moved(s, u), self.v1(s, u["a"])

    def extra(self, s: StepConstants, u: dict[str, Array]) -> Array:
        """The variables named in ``extras``, one after the other."""
        return jnp.zeros(0)

    def holonomic_rows(self, system: System, t1: Array, q1: Array, v1: Array, args: Args) -> Sequence[Array]:
        """The holonomic constraints that the method enforces at t_{n+1}."""
        raise NotImplementedError

    def residual(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        u, t1 = self.split(dims, scale, x), s.t0 + s.h
        q1 = system.space.retract(s.q0, self.moved(s, u))  # (3a)
        v1 = self.v1(s, u["a"])  # (3c)
        f1 = system.f(t1, q1, v1, u["lam"], u["psi"], args)
        rows = [system.M(t1, q1, args) @ self.v_dot1(s, u["a"]) - f1]  # (3d), (3e)
        if dims.m:
            rows += self.holonomic_rows(system, t1, q1, v1, args)
        if dims.p:
            rows += [system.k(t1, q1, v1, args)]
        return s.weights * jnp.concatenate(rows)

    def finish(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        u = self.split(dims, scale, x)
        own, multipliers = self.past(self.v_dot1(s, u["a"])), (u["lam"], u["psi"])
        return self.hand_over(system, s, self.reached(s, u), u["a"], multipliers, own, self.extra(s, u))
