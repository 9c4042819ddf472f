"""The generalized-α-SOI2 method of Jay & Negrut, and HHT-SOI2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import jax.numpy as jnp
from jax import Array

from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods._mixed_forces import MixedForces
from genalpha.methods.base import Method, Stage, StartValue, Unknown
from genalpha.methods.coefficients import Coefficients, only_hht
from genalpha.numerics.data import Carry, Scale, StepConstants, StepOutput

# What is added to the name of a row of which there are two.
AGAIN = " (correction)"


@dataclass(frozen=True)
class SOI2(MixedForces):
    """Generalized-α-SOI2 (JN08 (13)): position, velocity and nonholonomic constraints all hold at t_1.

    Second order in q, v, a_{n+α}, λ and ψ for holonomic and nonholonomic constraints, for mass matrices that
    are not constant, and for forces that are nonlinear in λ and ψ (JN08 theorem 1; J11 theorem 6.1).

    A step has only the unknowns that the system needs: (13) with both kinds of constraints, (9) without
    nonholonomic constraints, (10) (which is J11 (2.3)) without holonomic constraints, and (2) without any.

    Two things differ from the printed form. The numerical solution is the same:

    - the unknowns are δ = ã − a, μ = λ̃ − λ, ν = ψ̃ − ψ instead of ã, λ̃, ψ̃, and (13d) is replaced by its
      difference with (13e). Applied forces cancel in this difference for every f, additive or not. With the
      default reaction it is the replacement for (13d) printed below (13i); for α_m = 0 it is (17c).
    - z_1 and y_1 are eliminated, and rows are scaled by 1/(βh²) and 1/(γh).

    Parameters
    ----------
    coefficients, adjust, start : see :class:`GeneralizedAlpha`.
    reduced : use ψ instead of ψ̃ in (13d), and omit (13b), (13h) and ν. JN08 leaves open whether this is
        allowed. It is: the measured orders are the same (docs/theory.md).
    """

    reduced: bool = False

    name = "soi2"
    additive = True

    def check(self, system: System, dims: Dims) -> None:
        if dims.m and self.coefficients.beta == 0:
            raise ValueError(
                f"{self.coefficients.name} has beta = 0, which JN08 theorem 1 excludes: with holonomic "
                "constraints a step must be able to correct its positions. Choose coefficients with beta > 0"
            )

    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        blocks = [
            Unknown("a", dims.n, like="a", start="a"),
            Unknown("lam", dims.m, like="lam", start="lam"),
            Unknown("psi", dims.p, like="psi", start="psi"),
        ]
        if dims.m:
            blocks.append(Unknown("delta", dims.n, like="a", rounding=4.0))
            blocks.append(Unknown("mu", dims.m, like="lam", rounding=4.0))
        if dims.m and dims.p and not self.reduced:
            blocks.append(Unknown("nu", dims.p, like="psi", rounding=4.0))
        return tuple(blocks)

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        rows = {"motion": dims.n}
        if dims.m:
            rows |= {"motion" + AGAIN: dims.n, "holonomic": dims.m, "holonomic (velocity)": dims.m}
        again = dims.p if "nu" in self.sizes(dims) else 0
        return rows | {"nonholonomic": dims.p, "nonholonomic" + AGAIN: again}

    def weights(self, dims: Dims, scale: Scale, h: Array) -> Array:
        beta, gamma = self.coefficients.beta, self.coefficients.gamma
        factors: dict[str, Callable[[], Array]] = {
            "motion": lambda: scale.a,
            "holonomic": lambda: scale.lam / (beta * h**2),
            "holonomic (velocity)": lambda: scale.lam / (gamma * h),
            "nonholonomic": lambda: scale.psi / (gamma * h),
        }
        kinds = [name.removesuffix(AGAIN) for name, size in self.row_blocks(dims).items() if size]
        return jnp.concatenate([factors[kind]() for kind in kinds])

    def residual(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> Array:
        rows = self.rows(system, s, dims, self.split(dims, scale, x), args)
        names = [name for name, size in self.row_blocks(dims).items() if size]
        return s.weights * jnp.concatenate([rows[name] for name in names])

    def rows(
        self, system: System, s: StepConstants, dims: Dims, u: dict[str, Array], args: Args
    ) -> dict[str, Array]:
        """The equations of a step by name, without weights, for the unknowns u."""
        c, t1 = self.coefficients, s.t0 + s.h
        none = jnp.zeros(0)
        a1, lam1, psi1 = u["a"], u["lam"], u["psi"]
        delta, mu, nu = u.get("delta", 0.0), u.get("mu", none), u.get("nu", jnp.zeros_like(psi1))
        q1 = system.space.retract(s.q0, self.increment(s, a1 + delta))  # (13a)
        v1 = self.v1(s, a1)  # (13c)

        if dims.m:
            reaction, change = system.reactions_and_change(t1, q1, v1, lam1, psi1, mu, nu, args)
        else:
            reaction = system.reactions(t1, q1, v1, lam1, psi1, args)
        f1 = system.applied(t1, q1, v1, args) + reaction
        rows = {"motion": self.mixed(s, a1, f1)}  # (13e)
        if dims.m:
            M1 = s.own["M1"]
            # (13d) less (13e)
            rows["motion" + AGAIN] = (1 - c.alpha_m) * (M1 @ delta) - (1 - c.alpha_f) * change
            g = system.g_and_dot(t1, q1, v1, args)
            rows["holonomic"], rows["holonomic (velocity)"] = g  # (13f), (13g)
        if dims.p:
            rows["nonholonomic"] = system.k(t1, q1, v1, args)  # (13i)
        if "nu" in u:
            v1_tilde = v1 + c.gamma * s.h * delta  # (13b)
            rows["nonholonomic" + AGAIN] = system.k(t1, q1, v1_tilde, args)  # (13h)
        return rows

    def staged(self, dims: Dims) -> Method:
        """The printed form, whose equations for ã, λ̃ and ψ̃ depend on a only through forces of velocity.

        Without constraints on positions there is nothing to separate. The reduced form has no ψ̃.
        """
        if not dims.m or (dims.p and self.reduced):
            return self
        return StagedSOI2(self.coefficients, self.adjust, self.start, self.reduced)

    def reached(self, s: StepConstants, u: dict[str, Array]) -> tuple[Array, Array]:
        return self.increment(s, u["a"] + u.get("delta", 0.0)), self.v1(s, u["a"])

    def finish(
        self, system: System, s: StepConstants, dims: Dims, scale: Scale, x: Array, args: Args
    ) -> tuple[Carry, StepOutput]:
        u = self.split(dims, scale, x)
        return self.close(system, s, u, (u["lam"], u["psi"]), args)


@dataclass(frozen=True)
class StagedSOI2(SOI2):
    """SOI2 with the unknowns ã, λ̃ and ψ̃ of JN08 (13) instead of δ, μ and ν, and with (13d) itself.

    (13d), (13f) and (13h) are equations for ã, λ̃ and ψ̃, in which a appears only in applied forces that
    depend on velocities, and in K(v). (13e), (13g) and (13i) then determine a, λ and ψ. The matrix of each
    stage has the size of that of :class:`Index3`. The two differ by h ∂f/∂v, and by h² times the stiffness.
    """

    alike = True

    def unknowns(self, dims: Dims) -> tuple[Unknown, ...]:
        return (
            Unknown("a_tilde", dims.n, like="a", start="a", rounding=4.0),
            Unknown("lam_tilde", dims.m, like="lam", start="lam", rounding=4.0),
            Unknown("psi_tilde", dims.p, like="psi", start="psi", rounding=4.0),
            Unknown("a", dims.n, like="a", start="a"),
            Unknown("lam", dims.m, like="lam", start="lam"),
            Unknown("psi", dims.p, like="psi", start="psi"),
        )

    def row_blocks(self, dims: Dims) -> dict[str, int]:
        first = {"motion" + AGAIN: dims.n, "holonomic": dims.m, "nonholonomic" + AGAIN: dims.p}
        return first | {"motion": dims.n, "holonomic (velocity)": dims.m, "nonholonomic": dims.p}

    def stages(self, dims: Dims) -> tuple[Stage, ...]:
        unknowns, rows = tuple(self.sizes(dims)), [name for name, n in self.row_blocks(dims).items() if n]
        half = len(unknowns) // 2
        return Stage(unknowns[:half], tuple(rows[:half])), Stage(unknowns[half:], tuple(rows[half:]))

    def split(self, dims: Dims, scale: Scale, x: Array) -> dict[str, Array]:
        u = super().split(dims, scale, x)
        differences = (("delta", "a"), ("mu", "lam"), ("nu", "psi"))
        return u | {name: u[f"{of}_tilde"] - u[of] for name, of in differences if name != "nu" or dims.p}

    def reached(self, s: StepConstants, u: dict[str, Array]) -> tuple[Array, Array]:
        return self.increment(s, u["a_tilde"]), self.v1(s, u["a"])

    def rows(
        self, system: System, s: StepConstants, dims: Dims, u: dict[str, Array], args: Args
    ) -> dict[str, Array]:
        t1, tilde = s.t0 + s.h, u["a_tilde"]
        q1 = system.space.retract(s.q0, self.increment(s, tilde))  # (13a)
        v1 = self.v1(s, u["a"])  # (13c)
        forces = lambda lam, psi: system.reactions(t1, q1, v1, lam, psi, args)
        applied = system.applied(t1, q1, v1, args)
        g, g_dot = system.g_and_dot(t1, q1, v1, args)
        rows = {
            "motion" + AGAIN: self.mixed(s, tilde, applied + forces(u["lam_tilde"], u["psi_tilde"])),  # (13d)
            "motion": self.mixed(s, u["a"], applied + forces(u["lam"], u["psi"])),  # (13e)
            "holonomic": g,  # (13f)
            "holonomic (velocity)": g_dot,  # (13g)
        }
        if dims.p:
            rows["nonholonomic" + AGAIN] = system.k(t1, q1, self.v1(s, tilde), args)  # (13b), (13h)
            rows["nonholonomic"] = system.k(t1, q1, v1, args)  # (13i)
        return rows


class HHTSOI2(SOI2):
    """HHT-SOI2 (JN08 (17)): SOI2 with the coefficients of Hilber, Hughes & Taylor.

    ``HHTSOI2(-0.1)`` and ``HHTSOI2(ga.hht(-0.1))`` are the same. For holonomic constraints with the default
    reaction its equations are (17): δ̃ of (17) is the δ of :class:`SOI2`, and μ̃ = −(1 + α) μ.

    >>> import genalpha as ga
    >>> ga.HHTSOI2(-0.1).coefficients == ga.hht(-0.1)
    True
    """

    name = "hht-soi2"

    def __init__(
        self,
        coefficients: Coefficients | float = -0.1,
        adjust: bool = True,
        start: StartValue = "second-order",
        reduced: bool = False,
    ) -> None:
        super().__init__(only_hht(self.name, coefficients), adjust, start, reduced)
