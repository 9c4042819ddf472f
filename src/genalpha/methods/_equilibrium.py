"""What the methods of Arnold, Cardona & Brüls share: equilibrium at t_{n+1}, accelerations mixed by (3d)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods.base import AlphaMethod
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput


@dataclass(frozen=True)
class EquilibriumAlpha(AlphaMethod):
    """Generalized-α on a Lie group with the equations of motion at t_{n+1}, ACB15 (3a) to (3e).

    The unknown is a_{n+1}; v̇_{n+1} follows from (3d). M is taken at q_{n+1}, so it is implicit.
    """

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        return {"motion": dims.n, "holonomic": dims.m, "nonholonomic": dims.p}

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
        a_old, _, lag = self._before(start, h, shift, a, None, a)
        carry = Carry(
            q=state.q,
            v=v,
            a=a,
            h=h,
            v_dot=state.a if c.alpha_f != 0 else None,
            a_old=a_old,
            lag=lag,
        )
        return carry, state.t + shift

    def prepare(
        self, system: System, carry: Carry, t: Array, h: Array, dims: Dims, scale: Scale, args: Args
    ) -> StepConstants:
        """The constants of a step from t with size h: adjusted a_n, and what (3d) takes from the past."""
        c = self.coefficients
        a, _ = self.adjusted(carry, h)
        known = c.alpha_m * a
        if carry.v_dot is not None:
            known = known - c.alpha_f * carry.v_dot
        lag = self.lag(carry, h)
        return StepConstants(
            t, h, carry.q, *self.coast(carry.v, a, h), a, known, self.weights(dims, scale, h), lag=lag
        )

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
        """The holonomic constraints that hold at t_{n+1}."""
        raise NotImplementedError

    def residual(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        u, none, t1 = self.split(dims, scale, x), jnp.zeros(0), s.t0 + s.h
        q1 = system.space.retract(s.q0, self.moved(s, u))  # (3a)
        v1 = self.v1(s, u["a"])  # (3c)
        f1 = system.f(t1, q1, v1, u.get("lam", none), u.get("psi", none), args)
        rows = [system.M(t1, q1, args) @ self.v_dot1(s, u["a"]) - f1]  # (3d), (3e)
        if dims.m:
            rows += self.holonomic_rows(system, t1, q1, v1, args)
        if dims.p:
            rows += [system.k(t1, q1, v1, args)]
        return s.weights * jnp.concatenate(rows)

    def finish(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        u, none = self.split(dims, scale, x), jnp.zeros(0)
        a1, (d, v1) = u["a"], self.reached(s, u)
        carry = Carry(
            q=system.space.retract(s.q0, d),
            v=v1,
            a=a1,
            h=s.h,
            v_dot=self.v_dot1(s, a1) if self.coefficients.alpha_f != 0 else None,
            a_old=s.a,
            lag=s.lag,
        )
        lam, psi = u.get("lam", none), u.get("psi", none)
        return carry, StepOutput(lam, psi, self.extra(s, u), system.space.turns(d))
