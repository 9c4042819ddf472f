"""The Lie group generalized-α method for the stabilized index-2 form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import jax.numpy as jnp
from jax import Array

from genalpha.mechanics.initial_values import inverse_of_sizes
from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods._equilibrium import EquilibriumAlpha
from genalpha.methods.base import Method, Stage, Unknown
from genalpha.numerics.data import Carry, Scale, StepConstants

Metric = Literal["mass", "identity"]


@dataclass(frozen=True)
class StabilizedIndex2(EquilibriumAlpha):
    """Generalized-α on the stabilized index-2 form: position and velocity constraints hold at t_{n+1}.

    ACB15 (3) with an extra multiplier η and the hidden constraint::

        Δq_n = v_n − D B(q_n)ᵀη_n + (½ − β)h a_n + βh a_{n+1},    B(q_{n+1}) v_{n+1} = 0,

    after their reference [12], which has D = I. η is of size O(h²). ``sol.extra["eta"]`` (N+1, m) holds it:
    row n+1 belongs to the step from t_n to t_{n+1}, row 0 is zero. Nonholonomic constraints hold at t_{n+1}.

    During a step ``own`` holds the directions ``along`` (m, n), D Bᵀ, and the ``unit`` (m,) of η.

    Second order in q, v, a, λ and ψ, without a transient after the start or a change of the step size.

    Parameters
    ----------
    coefficients, adjust, start : see :class:`SOI2`.
    metric : ``"mass"`` (default) moves positions along D Bᵀ with D_ii = 1/M_ii(q_n), ``"identity"``
        along Bᵀ as in ACB15. D = I mixes lengths and angles, so that the motion and its error depend on their
        units. For the heavy top in metres the error is then four times as large.
    """

    metric: Metric = "mass"

    name = "stabilized"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.metric not in get_args(Metric):
            raise ValueError(f"metric must be one of {', '.join(get_args(Metric))}, got {self.metric!r}")

    def check(self, system: System, dims: Dims) -> None:
        if dims.m and self.coefficients.beta == 0:
            raise ValueError(
                f"{self.coefficients.name} has beta = 0, so positions would be explicit and could not "
                "satisfy the constraints. Choose coefficients with beta > 0"
            )

    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        return (
            Unknown("a", dims.n, like="a", start="a"),
            Unknown("lam", dims.m, like="lam", start="lam"),
            Unknown("psi", dims.p, like="psi", start="psi"),
            Unknown("eta", dims.m, rounding=4.0),
        )

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        holonomic = {"holonomic": dims.m, "holonomic (velocity)": dims.m}
        return {"motion": dims.n, **holonomic, "nonholonomic": dims.p}

    def extras(self, dims: Dims) -> dict[str, int]:
        return {"eta": dims.m}

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        position, velocity = 1 / (self.coefficients.beta * h**2), 1 / (self.coefficients.gamma * h)
        rows = [scale.a, scale.lam * position, scale.lam * velocity] if dims.m else [scale.a]
        return jnp.concatenate([*rows, scale.psi * velocity])

    def prepare(
        self, system: System, carry: Carry, t: Array, h: Array, dims: Dims, scale: Scale, args: Args
    ) -> StepConstants:
        step = super().prepare(system, carry, t, h, dims, scale, args)
        if not dims.m:
            return step
        G = system.G(t, carry.q, args)
        along = G
        if self.metric == "mass":
            along = G * inverse_of_sizes(jnp.abs(jnp.diagonal(system.M(t, carry.q, args))))
        # η is scaled such that the entries of G D Gᵀη have size one, in rows that are scaled like those of g.
        size = scale.lam * jnp.sum(along * G, axis=1)
        unit = self.coefficients.beta * h / jnp.where(size > 0, size, 1.0)
        return step._replace(own={"along": along, "unit": unit})

    def adds_up(self, dims: Dims) -> bool:
        """Without holonomic constraints nothing is displaced."""
        return self.additive or not dims.m

    def staged(self, dims: Dims) -> Method:
        """A form with the displacement as an unknown, for systems made of parts."""
        if not dims.m or self.metric != "mass":
            return self
        return StagedStabilized(self.coefficients, self.adjust, self.start, self.metric)

    def extra(self, s: StepConstants, u: dict[str, Array]) -> Array:
        """η."""
        return s.own["unit"] * u["eta"] if s.own else jnp.zeros(0)

    def moved(self, s: StepConstants, u: dict[str, Array]) -> Array:
        d = self.increment(s, u["a"])
        return d - s.h * (self.extra(s, u) @ s.own["along"]) if s.own else d

    def holonomic_rows(self, system: System, t1: Array, q1: Array, v1: Array, args: Args) -> Sequence[Array]:
        return system.g_and_dot(t1, q1, v1, args)  # (3f), and (4) at t_{n+1}


@dataclass(frozen=True)
class StagedStabilized(StabilizedIndex2):
    """:class:`StabilizedIndex2` with the displacement δ = D Bᵀη as an unknown, and the row D⁻¹δ = Bᵀη.

    D⁻¹ is the diagonal of the mass matrix. So the residual of a system made of parts is the sum of those of
    its parts. First a, λ and ψ are determined, with δ held, by the equations of motion and the constraints on
    velocities. They depend on δ only through the stiffness of forces and the curvature of constraints. Then δ
    and η follow from the constraints on positions. δ and η are measured in units of accelerations and of λ,
    times βh.

    During a step ``own`` holds ``B`` (m, n), ``diagonal`` (n,), which is D⁻¹, and ``unit``, which is βh.
    """

    additive = True

    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        return (
            Unknown("a", dims.n, like="a", start="a"),
            Unknown("lam", dims.m, like="lam", start="lam"),
            Unknown("psi", dims.p, like="psi", start="psi"),
            Unknown("delta", dims.n, like="a", rounding=4.0),
            Unknown("eta", dims.m, like="lam", rounding=4.0),
        )

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        first = {"motion": dims.n, "holonomic (velocity)": dims.m, "nonholonomic": dims.p}
        return first | {"displacement": dims.n, "holonomic": dims.m}

    def stages(self, dims: Dims) -> tuple[Stage, ...]:
        names = tuple(name for name, size in self.row_blocks(dims).items() if size)
        unknowns = tuple(self.sizes(dims))
        return Stage(unknowns[:-2], names[:-2]), Stage(unknowns[-2:], names[-2:])

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        c = self.coefficients
        velocity, position = 1 / (c.gamma * h), 1 / (c.beta * h**2)
        first = [scale.a, scale.lam * velocity, scale.psi * velocity]
        return jnp.concatenate([*first, scale.a, scale.lam * position])

    def prepare(
        self, system: System, carry: Carry, t: Array, h: Array, dims: Dims, scale: Scale, args: Args
    ) -> StepConstants:
        step = EquilibriumAlpha.prepare(self, system, carry, t, h, dims, scale, args)
        diagonal = jnp.diagonal(system.M(t, carry.q, args))
        own = {"B": system.G(t, carry.q, args), "diagonal": diagonal, "unit": self.coefficients.beta * h}
        return step._replace(own=own)

    def moved(self, s: StepConstants, u: dict[str, Array]) -> Array:
        return self.increment(s, u["a"]) - s.h * s.own["unit"] * u["delta"]

    def residual(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        u, t1 = self.split(dims, scale, x), s.t0 + s.h
        q1, v1 = system.space.retract(s.q0, self.moved(s, u)), self.v1(s, u["a"])
        f1 = system.f(t1, q1, v1, u["lam"], u["psi"], args)
        g, g_dot = self.holonomic_rows(system, t1, q1, v1, args)
        rows = [system.M(t1, q1, args) @ self.v_dot1(s, u["a"]) - f1, g_dot]
        rows += [system.k(t1, q1, v1, args)] if dims.p else []
        rows += [s.own["diagonal"] * u["delta"] - u["eta"] @ s.own["B"], g]
        return s.weights * jnp.concatenate(rows)
