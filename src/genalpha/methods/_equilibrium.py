"""What the methods of Arnold, Cardona & Brüls share: equilibrium at t_{n+1}, accelerations mixed by (3d)."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from genalpha.initial import Beginning
from genalpha.methods._alpha import AlphaMethod
from genalpha.state import Carry, Output, Scale, Step
from genalpha.system import Args, Dims, System


@dataclass(frozen=True)
class EquilibriumAlpha(AlphaMethod):
    """Generalized-α on a Lie group with the equations of motion at t_{n+1}, ACB15 (3a) to (3e).

    The unknown is a_{n+1}; v̇_{n+1} follows from (3d). M is taken at q_{n+1}, so it is implicit.
    """

    def begin(
        self, system: System, dims: Dims, start: Beginning, h: Array, args: Args
    ) -> tuple[Carry, Array]:
        """The carry before the first step, and the time of its a_0 (see :class:`AlphaMethod`).

        ``start="perturbed"`` adds to v_0 the smallest change with B v_0 = h² B r(t_0), where
        12 r = 2(1 − 6β − 3Δ) v̈ + [v, v̇] with Δ = α_m − α_f: then E_0 of ACB15 (8) is O(h²) (with the first
        component −B v_n/h + h B r; the paper prints the other sign, with which the transient doubles). Where
        v̈ is not finite, it starts from the values as they are.
        """
        c, state = self.coefficients, start.state
        usable = jnp.all(jnp.isfinite(start.a_dot))
        a_dot = jnp.where(usable, start.a_dot, 0.0)
        shift = jnp.where(usable, self.alpha * h, 0.0) if self.needs_rate else jnp.zeros_like(h)
        a, v = state.a + shift * a_dot, state.v
        if self.start == "perturbed" and dims.m:
            r = (2 * (1 - 6 * c.beta - 3 * c.alpha) * a_dot + system.space.bracket(v, state.a)) / 12
            moved = v + h**2 * start.shift(r)
            v = jnp.where(usable & jnp.all(jnp.isfinite(moved)), moved, v)
        carry = Carry(
            q=state.q,
            v=v,
            a=a,
            h=h,
            v_dot=state.a if c.alpha_f != 0 else None,
            a_old=a if self.adjusts else None,
        )
        return carry, state.t + shift

    def prepare(
        self, system: System, carry: Carry, t: Array, h: Array, dims: Dims, scale: Scale, args: Args
    ) -> Step:
        """The constants of a step from t with size h: adjusted a_n, and what (3d) takes from the past."""
        c = self.coefficients
        a, _ = self.adjusted(carry, h)
        known = c.alpha_m * a
        if carry.v_dot is not None:
            known = known - c.alpha_f * carry.v_dot
        return Step(t, h, carry.q, carry.v, a, known, self.weights(dims, scale, h))

    def v_dot1(self, s: Step, a1: Array) -> Array:
        """(3d) solved for v̇_{n+1}."""
        c = self.coefficients
        return ((1 - c.alpha_m) * a1 + s.known) / (1 - c.alpha_f)

    def equilibrium(
        self, system: System, s: Step, q1: Array, v1: Array, u: dict[str, Array], args: Args
    ) -> Array:
        """(3e): M(q_{n+1}) v̇_{n+1} − f(t_{n+1}, q_{n+1}, v_{n+1}, λ_{n+1}, ψ_{n+1}), (n,)."""
        none, t1 = jnp.zeros(0), s.t0 + s.h
        f1 = system.f(t1, q1, v1, u.get("lam", none), u.get("psi", none), args)
        return system.M(t1, q1, args) @ self.v_dot1(s, u["a"]) - f1

    def close(
        self, system: System, s: Step, d: Array, u: dict[str, Array], extra: Array
    ) -> tuple[Carry, Output]:
        """Carry and output after a step with the increment d of positions and the unknowns u."""
        none, a1 = jnp.zeros(0), u["a"]
        carry = Carry(
            q=system.space.retract(s.q0, d),
            v=self.v1(s, a1),
            a=a1,
            h=s.h,
            v_dot=self.v_dot1(s, a1) if self.coefficients.alpha_f != 0 else None,
            a_old=s.a if self.adjusts else None,
        )
        return carry, Output(u.get("lam", none), u.get("psi", none), extra, system.space.turns(d))
