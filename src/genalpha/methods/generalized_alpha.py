"""The generalized-α method for unconstrained systems (JN08 sections 1 to 3)."""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods._mixed_forces import MixedForces
from genalpha.methods.base import Unknown
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput


@dataclass(frozen=True)
class GeneralizedAlpha(MixedForces):
    """The generalized-α method of Chung & Hulbert for M(t, q) v' = f(t, q, v), JN08 (2) and section 3.

    M_{1+α} = M(t_{1+α}, q_0 + h(1+α) v_0) is explicit, M_α is the M_{1+α} of the step before.
    It is for systems without constraints; use :class:`SOI2` for others.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> oscillator = ga.System(mass=jnp.eye(1), force=lambda t, q, v: -q)
    >>> method = ga.GeneralizedAlpha(ga.chung_hulbert(0.9))
    >>> sol = ga.solve(oscillator, (0.0, 3.0), [1.0], [0.0], method=method, h=0.01)
    >>> abs(sol.q[-1, 0] - jnp.cos(3.0)) < 1e-5
    Array(True, dtype=bool)
    """

    name = "generalized-alpha"
    additive = True

    def check(self, system: System, dims: Dims) -> None:
        if dims.m or dims.p:
            raise ValueError(
                'the system has constraints, but "generalized-alpha" is for unconstrained systems: '
                'use method="soi2"'
            )

    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        return (Unknown("a", dims.n, like="a", start="a"),)

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        return {"motion": dims.n}

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        return scale.a

    def residual(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        """(2c) with q_1 and v_1 from (2a) and (2b), scaled, (n,)."""
        a1, none = self.split(dims, scale, x)["a"], jnp.zeros(0)
        q1 = system.space.retract(s.q0, self.increment(s, a1))
        f1 = system.f(s.t0 + s.h, q1, self.v1(s, a1), none, none, args)
        return s.weights * self.mixed(s, a1, f1)

    def finish(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        none = jnp.zeros(0)
        return self.close(system, s, self.split(dims, scale, x), (none, none), args)
