"""A method of one's own: generalized-α on the index-1 form, with Baumgarte's stabilization.

docs/own_method.md explains it. ``python examples/own_method.py`` prints its orders of convergence.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

import genalpha as ga
from genalpha.convergence import study
from genalpha.methods import Args, Beginning, Carry, Dims, Scale, StepConstants, StepOutput


@dataclass(frozen=True)
class Baumgarte(ga.Method):
    """M v' = f, g'' + 2ωg' + ω²g = 0 and k' + ωk = 0 at the end of a step; a is mixed from v'."""

    rate: float = 20.0  # ω: errors in the constraints decay like exp(−ωt)

    name = "baumgarte"

    def unknowns(self, dims: Dims) -> tuple[ga.Unknown, ...]:
        return (
            ga.Unknown("a", dims.n, like="a", start="a"),
            ga.Unknown("lam", dims.m, like="lam", start="lam"),
            ga.Unknown("psi", dims.p, like="psi", start="psi"),
        )

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        return jnp.concatenate([scale.a, scale.lam, scale.psi])

    def begin(
        self, system: ga.System, dims: Dims, start: Beginning, h: Array, args: Args
    ) -> tuple[Carry, Array]:
        carry, t_alpha = super().begin(system, dims, start, h, args)
        return carry._replace(own={"v_dot": start.state.a}), t_alpha

    def v_dot(self, s: StepConstants, a: Array) -> Array:
        """v' at the end of a step, from (1 − α_m) a_{n+1} + α_m a_n = (1 − α_f) v'_{n+1} + α_f v'_n."""
        c = self.coefficients
        return ((1 - c.alpha_m) * a + c.alpha_m * s.a - c.alpha_f * s.own["v_dot"]) / (1 - c.alpha_f)

    def residual(
        self, system: ga.System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        u, t, w = self.split(dims, scale, x), s.t0 + s.h, self.rate
        (d, v), v_dot = self.reached(s, u), self.v_dot(s, u["a"])
        q = system.space.retract(s.q0, d)
        rows = [system.M(t, q, args) @ v_dot - system.f(t, q, v, u["lam"], u["psi"], args)]
        if dims.m:
            g, g_dot = system.g_and_dot(t, q, v, args)
            rows += [system.g_ddot(t, q, v, v_dot, args) + 2 * w * g_dot + w**2 * g]
        if dims.p:
            rows += [system.k_dot(t, q, v, v_dot, args) + w * system.k(t, q, v, args)]
        return s.weights * jnp.concatenate(rows)

    def finish(
        self, system: ga.System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        u = self.split(dims, scale, x)
        own, multipliers = {"v_dot": self.v_dot(s, u["a"])}, (u["lam"], u["psi"])
        return self.hand_over(system, s, self.reached(s, u), u["a"], multipliers, own)


def main() -> None:
    problem = ga.problems.get("double-pendulum")
    print(study(problem, Baumgarte(), h=[4e-3, 2e-3, 1e-3, 5e-4], t_end=0.5).table())


if __name__ == "__main__":
    main()
