"""The DAE α-method of Yen, Petzold & Raha, with multipliers for positions and for velocities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax.numpy as jnp
from jax import Array

from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods._underlying import UnderlyingAlpha
from genalpha.methods.base import Method, Stage, Unknown
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput
from genalpha.numerics.derivatives import for_each


@dataclass(frozen=True)
class DAEAlpha(UnderlyingAlpha):
    """The DAE α-method, YPR98 (3.3): position and velocity constraints hold at t_{n+1}.

    ::

        M (q_{n+1} − q̂_n) − β̂h² f + Gᵀν = 0,    g(t_{n+1}, q_{n+1}) = 0,
        M (v_{n+1} − v̂_n) − γ̂h  f + Gᵀμ = 0,    g_t + G v_{n+1} = 0,

    with M, f, G at t_{n+1}. q̂_n and v̂_n are those of (3.4) for the HHT family and of (4.2), with its sign
    corrected, for all others. Then φ_{n+1} and λ_{n+1} follow from the underlying ODE (2.2), and a_{n+1} from
    (4.1).

    ``sol.lam`` is λ, ``sol.a_alpha`` is a_n; φ_n, ν_n and μ_n are in ``sol.extra`` as "phi", "nu" and "mu".

    Beyond the paper: constraints may depend on time, and q may lie on a Lie group. Nonholonomic constraints
    hold at t_{n+1}; the same multiplier acts on positions and velocities. Without constraints this is the
    α-method with M at t_{n+1}.

    docs/theory.md has measured orders. Parameters: see :class:`GeneralizedAlpha`.
    """

    name = "dae-alpha"

    def check(self, system: System, dims: Dims) -> None:
        super().check(system, dims)
        self.refuse_reaction(system)

    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        of_q = (
            Unknown("a_q", dims.n, like="a", start="a", rounding=4.0),
            Unknown("lam_q", dims.m, like="lam", start="lam", rounding=4.0),
        )
        return (
            *(of_q if dims.m else ()),
            Unknown("a_v", dims.n, like="a", start="a"),
            Unknown("lam_v", dims.m, like="lam", start="lam"),
            Unknown("psi", dims.p, like="psi", start="psi"),
        )

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        rows = {"motion": dims.n}
        if dims.m:
            rows = {"motion (of q)": dims.n, "motion (of v)": dims.n}
            rows |= {"holonomic": dims.m, "holonomic (velocity)": dims.m}
        return rows | {"nonholonomic": dims.p}

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        position, velocity = 1 / (self.coefficients.beta * h**2), 1 / (self.coefficients.gamma * h)
        rows = [scale.a, scale.a, scale.lam * position, scale.lam * velocity] if dims.m else [scale.a]
        return jnp.concatenate([*rows, scale.psi * velocity])

    def reached(self, s: StepConstants, u: dict[str, Array]) -> tuple[Array, Array]:
        return self.increment(s, u.get("a_q", u["a_v"])), self.v1(s, u["a_v"])

    def residual(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        u, t1 = self.split(dims, scale, x), s.t0 + s.h
        a_v, (d, v1) = u["a_v"], self.reached(s, u)
        q1 = system.space.retract(s.q0, d)
        M1, f1 = system.M(t1, q1, args), system.applied(t1, q1, v1, args)
        f1 += system.nonholonomic_force(t1, q1, v1, u["psi"], args)
        rows = [M1 @ self.v_dot1(s, a_v) - f1]  # (3.3b)
        if dims.m:
            push = lambda lam: system.holonomic_force(t1, q1, lam, args)
            at_q, at_v = for_each(push, jnp.stack([u["lam_q"], u["lam_v"]]))
            rows = [M1 @ self.v_dot1(s, u["a_q"]) - f1 - at_q, rows[0] - at_v]  # (3.3a), (3.3b)
            rows += system.g_and_dot(t1, q1, v1, args)  # (3.3d), (3.3c)
        if dims.p:
            rows += [system.k(t1, q1, v1, args)]
        return s.weights * jnp.concatenate(rows)

    def adds_up(self, dims: Dims) -> bool:
        """Without constraints φ is known from a, and no other system is solved."""
        return self.additive or not (dims.m or dims.p)

    def staged(self, dims: Dims) -> Method:
        """A form with φ, λ and ψ of (2.2) as unknowns, for systems made of parts."""
        if self.adds_up(dims):
            return self
        return StagedDAEAlpha(self.coefficients, self.adjust, self.start)

    def finish(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        u, none = self.split(dims, scale, x), jnp.zeros(0)
        d, v1 = self.reached(s, u)
        if dims.m or dims.p:
            forces = u.get("lam_q", none), u["lam_v"]
            return self.close(system, s, dims, scale, d, v1, forces, args)
        phi = self.v_dot1(s, u["a_v"])
        return self.hand_on(system, s, (d, v1), phi, (none, none), phi)


@dataclass(frozen=True)
class StagedDAEAlpha(DAEAlpha):
    """:class:`DAEAlpha` with φ, λ and ψ of (2.2) at t_{n+1} as unknowns, and (2.2) as equations.

    So every equation of a system made of parts is the sum of those of its parts. (3.3a) and (3.3d) are
    equations for q_{n+1}, in which v_{n+1} appears only in applied forces. (3.3b) and (3.3c) then determine
    v_{n+1}, and (2.2) φ and the multipliers.
    """

    additive = True

    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        *before, psi = super().unknowns(dims)
        return (
            *before,
            replace(psi, name="psi_v"),
            Unknown("phi", dims.n, like="a", start="v_dot"),
            Unknown("lam", dims.m, like="lam", start="lam"),
            Unknown("psi", dims.p, like="psi", start="psi"),
        )

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        first = {"motion (of q)": dims.n, "holonomic": dims.m} if dims.m else {}
        first |= {"motion (of v)": dims.n, "holonomic (velocity)": dims.m, "nonholonomic": dims.p}
        last = {"holonomic (acceleration)": dims.m, "nonholonomic (acceleration)": dims.p}
        return first | {"motion": dims.n} | last

    def stages(self, dims: Dims) -> tuple[Stage, ...]:
        unknowns, rows = tuple(self.sizes(dims)), [name for name, n in self.row_blocks(dims).items() if n]
        starts = [k for k, name in enumerate(rows) if name.startswith("motion")]
        ends = [*starts[1:], len(rows)]
        return tuple(Stage(unknowns[a:b], tuple(rows[a:b])) for a, b in zip(starts, ends, strict=True))

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        position, velocity = 1 / (self.coefficients.beta * h**2), 1 / (self.coefficients.gamma * h)
        rows = [scale.a, scale.lam * position] if dims.m else []
        rows += [scale.a, scale.lam * velocity, scale.psi * velocity]
        return jnp.concatenate([*rows, scale.a, scale.lam, scale.psi])

    def residual(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        u, t1 = self.split(dims, scale, x), s.t0 + s.h
        d, v1 = self.reached(s, u)
        q1 = system.space.retract(s.q0, d)
        M1, applied = system.M(t1, q1, args), system.applied(t1, q1, v1, args)
        forces = lambda lam, psi: applied + system.reactions(t1, q1, v1, lam, psi, args)
        rows, of_v = [], []
        if dims.m:
            g, g_dot = system.g_and_dot(t1, q1, v1, args)
            rows = [M1 @ self.v_dot1(s, u["a_q"]) - forces(u["lam_q"], u["psi_v"]), g]  # (3.3a), (3.3d)
            of_v = [g_dot]  # (3.3c)
        rows += [M1 @ self.v_dot1(s, u["a_v"]) - forces(u["lam_v"], u["psi_v"]), *of_v]  # (3.3b)
        rows += [system.k(t1, q1, v1, args)] if dims.p else []
        rows += [M1 @ u["phi"] - forces(u["lam"], u["psi"])]  # (2.2)
        rows += [system.g_ddot(t1, q1, v1, u["phi"], args)] if dims.m else []
        rows += [system.k_dot(t1, q1, v1, u["phi"], args)] if dims.p else []
        return s.weights * jnp.concatenate(rows)

    def finish(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        u, (beta, gamma), none = self.split(dims, scale, x), self.hats, jnp.zeros(0)
        nu, mu = beta * s.h**2 * u.get("lam_q", none), gamma * s.h * u.get("lam_v", none)
        extra = jnp.concatenate([u["phi"], nu, mu])
        return self.hand_on(system, s, self.reached(s, u), u["phi"], (u["lam"], u["psi"]), extra)
