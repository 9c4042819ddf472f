"""What the α-methods on (t, q, v, a_α) share: start, adjusting formulas, mass matrices, update formulas."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import jax.numpy as jnp
from jax import Array

from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods.coefficients import Coefficients, chung_hulbert
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput

StartValue = Literal["a0", "second-order", "perturbed"]


@dataclass(frozen=True)
class AlphaMethod:
    """Base of the generalized-α methods.

    Parameters
    ----------
    coefficients : (α_m, α_f, β, γ), default ``chung_hulbert(0.8)``.
    adjust : apply the adjusting formulas (14a), (14b) of JN08 at every change of the step size. Without
        them all components are of first order where steps change (docs/theory.md).
    start : ``"second-order"`` starts from a_α = a_0 + αh a_0' (from a_0 where that is not finite), ``"a0"``
        from a_α = a_0. Both give second order in q and v; with ``"a0"`` the first values of a, λ, ψ carry an
        O(h) error that decays.
    """

    coefficients: Coefficients = field(default_factory=lambda: chung_hulbert(0.8))
    adjust: bool = True
    start: StartValue = "second-order"

    name: ClassVar[str] = "alpha"
    # Whether local errors of velocities can be told from the accelerations of a few steps.
    watches_velocity: ClassVar[bool] = True
    starts: ClassVar[tuple[StartValue, ...]] = ("a0", "second-order")

    def __post_init__(self) -> None:
        if not isinstance(self.coefficients, Coefficients):
            raise TypeError(
                f"coefficients must come from a family such as ga.chung_hulbert(0.8), "
                f"got {self.coefficients!r}"
            )
        if not isinstance(self.adjust, bool):
            raise TypeError(f"adjust must be True or False, got {self.adjust!r}")
        if self.start not in self.starts:
            raise ValueError(
                f"start of {self.name} must be one of {', '.join(self.starts)}, got {self.start!r}"
            )

    @property
    def alpha(self) -> float:
        return self.coefficients.alpha

    def sizes(self, dims: Dims) -> dict[str, int]:
        """The blocks of unknowns of a step and their sizes, in order."""
        raise NotImplementedError

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        """What the rows of the residual say, in order, and how many there are of each, for messages."""
        return {"motion": dims.n}

    def extras(self, dims: Dims) -> dict[str, int]:
        """The variables that only this method has, in the order of ``Output.extra``, and their sizes."""
        return {}

    def position_rounding(self, dims: Dims) -> dict[str, float]:
        """The unknowns that rows g/(βh²) determine, and how many ε|q|/h² Newton may leave in them."""
        return {}

    def first_extra(self, dims: Dims, start: Beginning, h: Array) -> Array:
        """The variables named in ``extras`` before the first step of size h."""
        return jnp.zeros(sum(self.extras(dims).values()))

    @property
    def exact_matrix(self) -> bool:
        """Whether Newton's matrix is that of the residual, not that of ``linearized``."""
        return True

    def linearized(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        """A function with the values of the residual, whose derivatives make the matrix of the iteration."""
        raise NotImplementedError

    def split_at(self, system: System, t: Array, q: Array, scale: Scale, args: Args) -> Array:
        """The split (n, m) of coordinates that a method which has one would choose at q."""
        raise NotImplementedError

    @property
    def needs_rate(self) -> bool:
        """Whether the start needs a_0'; with α = 0 only error estimates know it."""
        return self.start == "second-order" and (self.alpha != 0 or self.adjust)

    def begin(
        self, system: System, dims: Dims, start: Beginning, h: Array, args: Args
    ) -> tuple[Carry, Array]:
        """The carry before the first step, from consistent values and a_0', and the time of its a_α.

        The second-order start differentiates the consistent accelerations, a_0 + αh a_0', instead of
        solving JN08 (8): that couples a_α with the unknowns of the first step, which would need equations
        of its own, while a_0' follows from the consistent values by one linear solve, for every method.
        Where a_0' or M(t_α, ...) is not finite (a force with a kink at the start, a mass matrix that does
        not exist before t_0), it starts from a_0.
        """
        c, state, shift = self.coefficients, start.state, jnp.zeros_like(h)
        a = state.a
        moved = not system.constant_mass and c.alpha_m != 0
        Ma0 = system.M(state.t, state.q, args) @ a if moved else jnp.zeros_like(a)
        Ma = Ma0 if moved else None
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
        a_old, Ma_old, lag = self._before(start, h, shift, a, Ma, Ma0)
        carry = Carry(
            q=state.q,
            v=state.v,
            a=a,
            h=h,
            f=system.f(*state[:3], state.lam, state.psi, args) if c.alpha_f != 0 else None,
            a_old=a_old,
            Ma=Ma,
            Ma_old=Ma_old,
            lag=lag,
        )
        return carry, state.t + shift

    def _before(
        self, start: Beginning, h: Array, shift: Array, a: Array, Ma: Array | None, Ma0: Array
    ) -> tuple[Array, Array | None, Array | None]:
        """a_α and M_α a_α one step before the start, and the errors of a_α then and now.

        With them the adjusting formulas, for a first step that is repeated with another size, lead to what
        would have been the start for that size. Both lie on the line through a_0 with slope a_0'.
        """
        finite = jnp.all(jnp.isfinite(start.a_dot))
        a_old = jnp.where(finite, a - h * start.a_dot, a) if self.needs_rate else a
        Ma_old = Ma
        if Ma is not None and self.alpha != 0:
            Ma_old = jnp.where(shift != 0, Ma - (Ma - Ma0) / self.alpha, Ma)
        return a_old, Ma_old, -0.5 * jnp.stack([shift, shift - h]) ** 2 if self.adjust else None

    def settled_lag(self, h: Array) -> Array:
        """The errors of :meth:`lag` after many steps of size h."""
        c = self.coefficients
        return jnp.full(2, 0.5 * self.alpha * (c.alpha_m + c.alpha_f - 1)) * h**2

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        """The factors (N,) that scale the rows of the residual."""
        raise NotImplementedError

    def prepare(
        self, system: System, carry: Carry, t: Array, h: Array, dims: Dims, scale: Scale, args: Args
    ) -> StepConstants:
        """The constants of a step from t with size h: adjusted a_α, M_{1+α}, and forces of the past."""
        c = self.coefficients
        a, Ma = self.adjusted(carry, h)
        ahead = (1 + self.alpha) * h
        M1 = system.M(t + ahead, system.space.retract(carry.q, ahead * carry.v), args)
        known = jnp.zeros_like(a)
        if c.alpha_m != 0:
            known = known + c.alpha_m * ((M1 @ a) if Ma is None else Ma)
        if carry.f is not None:
            known = known - c.alpha_f * carry.f
        lag = self.lag(carry, h)
        coast = self.coast(carry.v, a, h)
        return StepConstants(t, h, carry.q, *coast, a, known, self.weights(dims, scale, h), Ma, M1, lag=lag)

    def adjusted(self, carry: Carry, h: Array) -> tuple[Array, Array | None]:
        """a_α and M_α a_α for a step of size h, by (14a) and (14b) where it differs from the last one."""
        if not self.adjust or self.alpha == 0:
            return carry.a, carry.Ma
        shift = self.alpha * (h / carry.h - 1)
        assert carry.a_old is not None
        a, Ma = carry.a + shift * (carry.a - carry.a_old), carry.Ma
        if carry.Ma is not None and carry.Ma_old is not None:
            Ma = carry.Ma + shift * (carry.Ma - carry.Ma_old)
        return a, Ma

    def coast(self, v0: Array, a: Array, h: Array) -> tuple[Array, Array]:
        """The parts of (13a) and (13c) without a_{1+α}: h z_0 + h²(½ − β) a_α, and z_0 + h(1 − γ) a_α."""
        c = self.coefficients
        return h * v0 + (0.5 - c.beta) * h**2 * a, v0 + (1 - c.gamma) * h * a

    def increment(self, s: StepConstants, a1: Array) -> Array:
        """h z_0 + h²/2 ((1 − 2β) a_α + 2β a_{1+α}), which leads from y_0 to y_1 in (13a)."""
        return s.coast_q + self.coefficients.beta * s.h**2 * a1

    def v1(self, s: StepConstants, a1: Array) -> Array:
        """(13c): z_1 = z_0 + h ((1 − γ) a_α + γ a_{1+α})."""
        return s.coast_v + self.coefficients.gamma * s.h * a1

    def reached(self, s: StepConstants, u: dict[str, Array]) -> tuple[Array, Array]:
        """The increment d (n,) with q_1 = q_0 ∘ exp(d), and v_1 (n,), from the unknowns of a step."""
        return self.increment(s, u["a"]), self.v1(s, u["a"])

    def lag(self, carry: Carry, h: Array) -> Array | None:
        """ε_1 and ε_0 in a_{1+α} = v'(t_{1+α}) + ε_1 v''' and a_α = v'(t_α) + ε_0 v''', for a step of size h.

        (14a) extrapolates a_α along a line; the mixing of accelerations, with v' at t_0 and t_1, gives
        (1 − α_m)ε_1 + α_m ε_0 = ½α(α_m + α_f − 1)h². What much longer steps left says nothing about this one:
        their v''' was another, so that no more is believed than 4h².
        """
        if carry.lag is None:
            return None
        c, ahead = self.coefficients, self.alpha * (h - carry.h)
        before = carry.lag[0] + ahead * ((carry.lag[0] - carry.lag[1]) / carry.h - 0.5 * (ahead + carry.h))
        before = jnp.clip(before, -4 * h**2, 4 * h**2)
        after = self.settled_lag(h)[0] - c.alpha_m * before
        return jnp.stack([after / (1 - c.alpha_m), before])

    def defect(
        self, bracket: Callable[[Array, Array], Array], carry: Carry, s: StepConstants, a1: Array
    ) -> tuple[Array, Array]:
        """By how much the motion misses (13a) and (13c), (n,) each: the source of the local error.

        With v'' and v''' from divided differences of a_{n+α}, and ε_0 and ε_1 of :meth:`lag`::

            δq = (½α + β − 1/6) h³v'' − h³/12 [v, v'],
            δv = ((½(1 − γ)α² + ½γ(1 + α)² − 1/6) h³ + (1 − γ)h ε_0 + γh ε_1) v'''.

        The bracket is that of a Lie group (ACB15 below (8)).
        """
        c, alpha, h, h_old = self.coefficients, self.alpha, s.h, carry.h
        assert carry.a_old is not None
        assert carry.lag is not None
        span = (1 + alpha) * h - alpha * h_old  # between the times of a_{n+α} and a_{n+1+α}
        old, last = jnp.clip(carry.lag[1], -4 * h**2, 4 * h**2), jnp.clip(carry.lag[0], -4 * h**2, 4 * h**2)
        bend = lambda old, last, new: 2 * ((new - last) / span - (last - old) / h_old) / (span + h_old)
        # What is seen of v''' in the differences, and what is added to it by those of the lags.
        seen = jnp.maximum(1 + bend(old, last, s.lag[0]), 0.1)
        rest = 0.5 * ((1 - c.gamma) * alpha**2 + c.gamma * (1 + alpha) ** 2) - 1 / 6
        of_v = rest * h**3 + h * ((1 - c.gamma) * s.lag[1] + c.gamma * s.lag[0])
        of_q = (0.5 * alpha + c.beta - 1 / 6) * h**2
        drift = bracket(carry.v, a1) * (h**3 / 12)
        return of_q * (a1 - s.a) - drift, (of_v / seen) * bend(carry.a_old, carry.a, a1)

    def hand_over(
        self, system: System, s: StepConstants, d: Array, a1: Array, lam: Array, psi: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        """Carry and output after a step with the increment d of positions and (a_{1+α}, λ_1, ψ_1)."""
        q1, v1 = system.space.retract(s.q0, d), self.v1(s, a1)
        carry = Carry(
            q=q1,
            v=v1,
            a=a1,
            h=s.h,
            f=system.f(s.t0 + s.h, q1, v1, lam, psi, args) if self.coefficients.alpha_f != 0 else None,
            a_old=s.a,
            Ma=None if s.Ma is None else s.M1 @ a1,
            Ma_old=s.Ma,
            lag=s.lag,
        )
        return carry, StepOutput(lam, psi, jnp.zeros(0), system.space.turns(d))

    def split(self, dims: Dims, scale: Scale, x: Array) -> dict[str, Array]:
        """The scaled unknowns x as named, physical blocks."""
        blocks, at = {}, 0
        for name, size in self.sizes(dims).items():
            unit = getattr(scale, SCALED_LIKE[name]) if name in SCALED_LIKE else 1.0
            blocks[name] = x[at : at + size] * unit
            at += size
        return blocks


# Unknowns that are measured like accelerations, like λ and like ψ; others have units of their own.
SCALED_LIKE = {
    **dict.fromkeys(("a", "delta", "a_q", "a_v", "phi", "e_q", "e_v"), "a"),
    **dict.fromkeys(("lam", "mu", "lam_q", "lam_v"), "lam"),
    **dict.fromkeys(("psi", "nu", "psi_v"), "psi"),
}
