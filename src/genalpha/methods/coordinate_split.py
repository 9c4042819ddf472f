"""The DAE α-method without multipliers: coordinate splitting, and the modified iteration CM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import jax.numpy as jnp
from jax import Array, lax

from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods import _splitting
from genalpha.methods._splitting import Factorization
from genalpha.methods._underlying import UnderlyingAlpha
from genalpha.methods.base import Unknown
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput

Iteration = Literal["cs", "cm"]


@dataclass(frozen=True)
class CoordinateSplit(UnderlyingAlpha):
    """The DAE α-method with multipliers eliminated by coordinate splitting, YPR98 (3.6).

    ::

        P (M (q_{n+1} − q̂_n) − β̂h² f) = 0,    g(t_{n+1}, q_{n+1}) = 0,
        P (M (v_{n+1} − v̂_n) − γ̂h  f) = 0,    g_t + G v_{n+1} = 0,

    with P = Xᵀ − XᵀGᵀ(GY)⁻ᵀYᵀ (the paper lacks the transposes), so that P Gᵀ = 0. The solution is that of
    :class:`DAEAlpha`, but Newton's iteration has no multipliers among its unknowns. So they are not part of
    its convergence test, and it need not resolve their oscillations.

    Parameters
    ----------
    coefficients, adjust, start : see :class:`GeneralizedAlpha`.
    iteration : ``"cs"`` uses the whole Jacobian, ``"cm"`` omits the term P d(Gᵀs)/dq. The solution satisfies
        the same equations.
    factorization : how the dependent coordinates Yᵀq are chosen. ``"lu"`` is elimination of Gᵀ with row
        pivoting (3.8). With ``"qr"`` (remark 3.2) they are combinations of all coordinates.

    The split stays the same during a step. If (GY)⁻¹G, in the scale of the mass matrix, would have an entry
    above 5 at the end of a step, a new split is chosen for that point before the step. If there is no good
    split, the run stops. ``own`` holds Y as ``split`` (n, m).

    Rows of the residual: let w = r + Gᵀs. Then Yᵀw = 0 and P r = Xᵀw. So w + Y g, (n,), contains the n − m
    equations of motion and the m constraints, and X is not needed.

    ``sol.lam`` is λ, ``sol.a_alpha`` is a_n; φ_n, ν_n and μ_n are in ``sol.extra`` as "phi", "nu" and "mu".
    Beyond the paper, constraints may depend on time and q may lie on a Lie group. Nonholonomic constraints
    are not possible: P Kᵀ would have to vanish for the velocities, but must not for the positions.
    """

    iteration: Iteration = "cs"
    factorization: Factorization = "lu"

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.iteration

    def __post_init__(self) -> None:
        super().__post_init__()
        for symbol, choices in (("iteration", Iteration), ("factorization", Factorization)):
            if getattr(self, symbol) not in get_args(choices):
                names = ", ".join(get_args(choices))
                raise ValueError(f"{symbol} must be one of {names}, got {getattr(self, symbol)!r}")

    def check(self, system: System, dims: Dims) -> None:
        super().check(system, dims)
        self.refuse_reaction(system)
        if not dims.m:
            raise ValueError(
                "coordinate splitting needs holonomic constraints, and the system has none. "
                "Use method='dae-alpha' or 'generalized-alpha'"
            )
        if dims.p:
            raise ValueError(
                "the system has nonholonomic constraints, but coordinate splitting is for holonomic ones: "
                "a nonholonomic constraint cannot replace an equation of motion of the positions. Use "
                "method='dae-alpha' or 'soi2'"
            )

    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        a_q = Unknown("a_q", dims.n, like="a", start="a", rounding=4.0)
        return a_q, Unknown("a_v", dims.n, like="a", start="a")

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        return {"motion (of q) and holonomic": dims.n, "motion (of v) and holonomic": dims.n}

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        """The weights of g and of g_t + G v, (2m,)."""
        position, velocity = 1 / (self.coefficients.beta * h**2), 1 / (self.coefficients.gamma * h)
        return jnp.concatenate([scale.lam * position, scale.lam * velocity])

    def begin(
        self, system: System, dims: Dims, start: Beginning, h: Array, args: Args
    ) -> tuple[Carry, Array]:
        carry, t_alpha = super().begin(system, dims, start, h, args)
        split = _splitting.choose(start.rows, self.factorization)
        return carry._replace(own=carry.own | {"split": split}), t_alpha

    def prepare(
        self, system: System, carry: Carry, t: Array, h: Array, dims: Dims, scale: Scale, args: Args
    ) -> StepConstants:
        """The constants of a step. If the split is bad at its end, a new one is chosen for that point."""
        step = super().prepare(system, carry, t, h, dims, scale, args)
        ahead = system.space.retract(carry.q, h * carry.v)
        G = lax.stop_gradient(self._rows(system, t + h, ahead, scale, args))
        Y = carry.own["split"]
        split = lax.cond(
            _splitting.ratio(G, Y) <= _splitting.WORST,
            lambda: Y,
            lambda: _splitting.choose(G, self.factorization),
        )
        return step._replace(own={"split": split})

    def own_at(self, system: System, t: Array, q: Array, scale: Scale, args: Args) -> dict[str, Array]:
        """Y (n, m) for the coordinates q."""
        return {"split": _splitting.choose(self._rows(system, t, q, scale, args), self.factorization)}

    def _rows(self, system: System, t: Array, q: Array, scale: Scale, args: Args) -> Array:
        """G (m, n) in the scale of the mass matrix."""
        return scale.lam[:, None] * system.G(t, q, args) * scale.a

    @property
    def exact_matrix(self) -> bool:
        return False

    def reached(self, s: StepConstants, u: dict[str, Array]) -> tuple[Array, Array]:
        return self.increment(s, u["a_q"]), self.v1(s, u["a_v"])

    def residual(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        _, G, rows, constraints = self._parts(system, s, dims, scale, x, args)
        Y, pairs = s.own["split"], zip(rows, constraints, strict=True)
        return jnp.concatenate(
            [r + _splitting.multipliers(G, Y, r) @ G + Y @ constraint for r, constraint in pairs]
        )

    def linearized(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        """The residual with P held fixed, so that its derivatives are not needed.

        For CS the forces Gᵀs of the constraints are added, with s held fixed. P Gᵀs is zero, and since
        dP r = P dGᵀs the derivative is that of the residual. CM omits these forces.
        """
        q1, G, rows, constraints = self._parts(system, s, dims, scale, x, args)
        G, Y, parts, t1 = lax.stop_gradient(G), s.own["split"], [], s.t0 + s.h
        for r, constraint in zip(rows, constraints, strict=True):
            if self.iteration == "cs":
                forces = scale.lam * lax.stop_gradient(_splitting.multipliers(G, Y, r))
                r = r - scale.a * system.holonomic_force(t1, q1, forces, args)
            parts += [r + _splitting.multipliers(G, Y, r) @ G + Y @ constraint]
        return jnp.concatenate(parts)

    def _parts(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Array, Array, list[Array], Array]:
        """q_{n+1}, G, the equations of motion without multipliers for q and v, and the constraints."""
        u, t1 = self.split(dims, scale, x), s.t0 + s.h
        d, v1 = self.reached(s, u)
        q1 = system.space.retract(s.q0, d)
        M1, f1 = system.M(t1, q1, args), system.applied(t1, q1, v1, args)
        rows = [scale.a * (M1 @ self.v_dot1(s, a) - f1) for a in (u["a_q"], u["a_v"])]
        constraints = s.weights.reshape(2, dims.m) * jnp.stack(system.g_and_dot(t1, q1, v1, args))
        return q1, self._rows(system, t1, q1, scale, args), rows, constraints

    def finish(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        u = self.split(dims, scale, x)
        _, G, rows, _ = self._parts(system, s, dims, scale, x, args)
        forces = [scale.lam * _splitting.multipliers(G, s.own["split"], r) for r in rows]
        d, v1 = self.reached(s, u)
        carry, output = self.close(system, s, dims, scale, d, v1, (forces[0], forces[1]), args)
        return carry._replace(own=carry.own | s.own), output
