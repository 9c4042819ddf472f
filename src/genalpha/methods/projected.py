"""The α-method on the underlying ODE, with projections: the first method of Yen, Petzold & Raha."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods._underlying import UnderlyingAlpha
from genalpha.methods.base import Unknown
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput
from genalpha.numerics.tracing import library


@dataclass(frozen=True)
class ProjectedAlpha(UnderlyingAlpha):
    """The α-method on the underlying ODE with positions and velocities projected, YPR98 (2.5).

    q̃ and ṽ come from (2.6) with a_{n+1} from (4.1), which is (2.5a) for the HHT family. Then::

        M̃ (q_{n+1} − q̃) + G̃ᵀν̃ = 0,    g(t_{n+1}, q_{n+1}) = 0,
        M̃ (v_{n+1} − ṽ) + G̃ᵀμ̃ = 0,    g_t + G v_{n+1} = 0,

    with M̃ and G̃ at q̃. All equations are solved together, since φ_{n+1} and λ_{n+1} of (2.2) belong to
    (q_{n+1}, v_{n+1}). With 3(n + m) unknowns it is the most expensive of the three methods of that paper.

    ``sol.lam`` is λ, ``sol.a_alpha`` is a_n; φ_n, ν̃_n and μ̃_n are in ``sol.extra`` as "phi", "nu" and "mu".

    Beyond the paper: constraints may depend on time, q may lie on a Lie group, the user may define the
    reaction, and the projection of the velocities includes nonholonomic constraints.
    Parameters: see :class:`GeneralizedAlpha`.
    """

    name = "projected"
    additive = True

    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        of_v = (
            Unknown("e_v", dims.n, like="a"),
            Unknown("lam_v", dims.m, like="lam", start="lam"),
            Unknown("psi_v", dims.p, like="psi"),
        )
        of_q = (
            Unknown("e_q", dims.n, like="a", rounding=4.0),
            Unknown("lam_q", dims.m, like="lam", start="lam", rounding=4.0),
        )
        return (
            Unknown("phi", dims.n, like="a", start="v_dot"),
            Unknown("lam", dims.m, like="lam", start="lam"),
            Unknown("psi", dims.p, like="psi", start="psi"),
            *(of_v if dims.m or dims.p else ()),
            *(of_q if dims.m else ()),
        )

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        rows = {"motion": dims.n, "holonomic (acceleration)": dims.m, "nonholonomic (acceleration)": dims.p}
        if dims.m or dims.p:
            rows |= {"projection (of v)": dims.n, "holonomic (velocity)": dims.m, "nonholonomic": dims.p}
        return rows | ({"projection (of q)": dims.n, "holonomic": dims.m} if dims.m else {})

    def first_extra(self, dims: Dims, start: Beginning, h: Array) -> Array:
        """φ_0, and zeros: nothing is projected at the start."""
        return library(start.state.a).concatenate([start.state.a, np.zeros(2 * dims.m)])

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        position, velocity = 1 / (self.coefficients.beta * h**2), 1 / (self.coefficients.gamma * h)
        rows = [scale.a, scale.lam, scale.psi]
        if dims.m or dims.p:
            rows += [scale.a, scale.lam * velocity, scale.psi * velocity]
        if dims.m:
            rows += [scale.a, scale.lam * position]
        return jnp.concatenate(rows)

    def residual(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        u, t1 = self.split(dims, scale, x), s.t0 + s.h
        phi, lam, psi = u["phi"], u["lam"], u["psi"]
        d, v = self._predicted(s, phi)
        q_tilde = system.space.retract(s.q0, d)
        (d, v1), q1 = self.reached(s, u), q_tilde
        if dims.m:
            q1 = system.space.retract(s.q0, d)
        f1 = system.f(t1, q1, v1, lam, psi, args)
        rows = [system.M(t1, q1, args) @ phi - f1]  # (2.1a)
        if dims.m:
            rows += [system.g_ddot(t1, q1, v1, phi, args)]  # (2.1b)
        if dims.p:
            rows += [system.k_dot(t1, q1, v1, phi, args)]
        if "e_v" in u:
            M = system.M(t1, q_tilde, args)
            push = system.holonomic_force(t1, q_tilde, u["lam_v"], args)
            push += system.nonholonomic_force(t1, q_tilde, v, u["psi_v"], args)
            rows += [M @ u["e_v"] - push]  # (2.5c)
            if dims.m:
                rows += [system.g_dot(t1, q1, v1, args)]  # (2.5d)
            if dims.p:
                rows += [system.k(t1, q1, v1, args)]
        if "e_q" in u:
            rows += [M @ u["e_q"] - system.holonomic_force(t1, q_tilde, u["lam_q"], args)]  # (2.5b)
            rows += [system.g(t1, q1, args)]  # (2.5e)
        return s.weights * jnp.concatenate(rows)

    def _predicted(self, s: StepConstants, phi: Array) -> tuple[Array, Array]:
        """The increment to q̃, and ṽ, from (2.6)."""
        a1 = self.mixed(s, phi)
        return self.increment(s, a1), self.v1(s, a1)

    def reached(self, s: StepConstants, u: dict[str, Array]) -> tuple[Array, Array]:
        """The increment to q_{n+1}, and v_{n+1}. The corrections e_q and e_v are in units of acceleration."""
        c, (d, v) = self.coefficients, self._predicted(s, u["phi"])
        return d + c.beta * s.h**2 * u.get("e_q", 0.0), v + c.gamma * s.h * u.get("e_v", 0.0)

    def finish(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        c, u, none = self.coefficients, self.split(dims, scale, x), jnp.zeros(0)
        nu, mu = c.beta * s.h**2 * u.get("lam_q", none), c.gamma * s.h * u.get("lam_v", none)
        extra = jnp.concatenate([u["phi"], nu, mu])
        return self.hand_on(system, s, self.reached(s, u), u["phi"], (u["lam"], u["psi"]), extra)
