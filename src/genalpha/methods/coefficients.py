"""Coefficients (α_m, α_f, β, γ), checked against the assumptions of the convergence theorems."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from genalpha.errors import warn

# Tolerance for rounding errors: a ratio of exactly 1 is accepted.
_BOUNDARY = 1e-12


@dataclass(frozen=True)
class Coefficients:
    """The four numbers of a generalized-α method (JN08 (2), J11 (1.2)).

    The acceleration variable of the method belongs to the time t_n + αh with α = α_m − α_f.

    α_m = 1, α_f = 1, γ = 0, and ``r_alpha_m``, ``r_gamma`` or ``r_alpha_f`` above 1 raise an error: JN08
    theorem 1 and J11 theorem 6.1 exclude them. The theorems require ratios below 1. A ratio of exactly 1
    (ρ∞ = 1, the trapezoidal rule) is accepted: perturbations of a, λ and ψ are then neither damped nor
    amplified.

    γ ≠ ½ − α gives a warning: the method is then of first order.

    >>> c = Coefficients(alpha_m=0.0, alpha_f=0.1, beta=0.3025, gamma=0.6)
    >>> round(c.alpha, 12), round(c.r_gamma, 12), c.order
    (-0.1, 0.666666666667, 2)
    """

    alpha_m: float
    alpha_f: float
    beta: float
    gamma: float
    name: str = field(default="generalized-α", compare=False)

    def __post_init__(self) -> None:
        for symbol in ("alpha_m", "alpha_f", "beta", "gamma"):
            value = float(getattr(self, symbol))
            object.__setattr__(self, symbol, value)
            if not math.isfinite(value):
                raise ValueError(f"{symbol} = {value} is not finite")
        for symbol, forbidden in (("alpha_m", 1.0), ("alpha_f", 1.0), ("gamma", 0.0)):
            if getattr(self, symbol) == forbidden:
                raise ValueError(
                    f"{symbol} = {forbidden:g} is excluded by JN08 theorem 1 and J11 theorem 6.1: "
                    "the equations of a step would not determine its unknowns"
                )
        if self.beta < 0:
            raise ValueError(f"beta = {self.beta:g} must not be negative")
        for symbol, formula, theorem in (
            ("r_alpha_m", "|α_m/(1 − α_m)|", "JN08 theorem 1 (r) and J11 theorem 6.1 (r_αm)"),
            ("r_gamma", "|(γ − 1)/γ|", "J11 theorem 6.1 (r_γ)"),
            ("r_alpha_f", "|α_f/(1 − α_f)|", "J11 theorem 6.1 (r_αf)"),
        ):
            ratio = getattr(self, symbol)
            if ratio > 1 + _BOUNDARY:
                raise ValueError(
                    f"{symbol} = {formula} = {ratio:.6g} must not exceed 1 ({theorem}): "
                    "errors of a, λ and ψ would grow in every step"
                )
        if self.order == 1:
            warn(
                f"gamma = {self.gamma:g} differs from 1/2 - alpha = {0.5 - self.alpha:g}: "
                "the method is of first order only (J11 theorem 4.1)"
            )

    @property
    def alpha(self) -> float:
        """α = α_m − α_f."""
        return self.alpha_m - self.alpha_f

    @property
    def r_alpha_m(self) -> float:
        """r of JN08 theorem 1, r_αm of J11 theorem 6.1: decay of errors of a that respect the constraints."""
        return abs(self.alpha_m / (1 - self.alpha_m))

    @property
    def r_gamma(self) -> float:
        """r_γ of J11 theorem 6.1: decay of errors of a that break the hidden acceleration constraint."""
        return abs((self.gamma - 1) / self.gamma)

    @property
    def r_alpha_f(self) -> float:
        """r_αf of J11 theorem 6.1: decay of errors of the multipliers."""
        return abs(self.alpha_f / (1 - self.alpha_f))

    @property
    def r_index3(self) -> float:
        """Spectral radius of T₊⁻¹T₀ in ACB15 (8): decay of errors of v and λ in the index-3 method.

        det(z T₊ − T₀) is the product of (1 − α_f) z + α_f and β z² + (γ + ½ − 2β) z + (½ + β − γ). For Chung
        & Hulbert's family all three roots are −ρ∞, in one Jordan block. A perturbation of the matrix moves
        them by its cube root, a perturbation of the factors by its square root at most.
        """
        if self.beta == 0:
            return math.inf
        linear, constant = (self.gamma + 0.5) / self.beta - 2, (0.5 - self.gamma) / self.beta + 1
        spread = linear**2 / 4 - constant
        pair = abs(linear) / 2 + math.sqrt(spread) if spread > 0 else math.sqrt(constant)
        return max(self.r_alpha_f, pair)

    @property
    def order(self) -> int:
        """2 if γ = ½ − α, otherwise 1."""
        return 2 if abs(self.gamma + self.alpha - 0.5) <= _BOUNDARY else 1


def _check_range(symbol: str, value: float, low: float, high: float) -> float:
    value = float(value)
    if not low - _BOUNDARY <= value <= high + _BOUNDARY:
        raise ValueError(f"{symbol} = {value:g} must lie in [{low:g}, {high:g}]")
    return min(max(value, low), high)


def chung_hulbert(rho_inf: float) -> Coefficients:
    """The optimal family of Chung & Hulbert, ρ∞ in [0, 1] (JN08 section 1).

    In each step the amplitude of the highest frequencies is multiplied by ρ∞: 0 removes them, 1 keeps them.

    >>> c = chung_hulbert(0.5)
    >>> c.alpha_m, round(c.alpha_f, 12), round(c.beta, 12), round(c.gamma, 12)
    (0.0, 0.333333333333, 0.444444444444, 0.833333333333)
    """
    rho = _check_range("rho_inf", rho_inf, 0.0, 1.0)
    alpha_m, alpha_f = (2 * rho - 1) / (1 + rho), rho / (1 + rho)
    alpha = alpha_m - alpha_f
    return Coefficients(alpha_m, alpha_f, (1 - alpha) ** 2 / 4, 0.5 - alpha, f"Chung-Hulbert(ρ∞={rho:g})")


def hht(alpha: float) -> Coefficients:
    """The family of Hilber, Hughes & Taylor, α in [−1/3, 0] (JN08 section 1).

    >>> hht(-0.1).alpha_f
    0.1
    """
    alpha = _check_range("alpha", alpha, -1 / 3, 0.0)
    return Coefficients(0.0, 0.0 - alpha, (1 - alpha) ** 2 / 4, 0.5 - alpha, f"HHT(α={alpha:g})")


def only_hht(method: str, coefficients: Coefficients | float) -> Coefficients:
    """Coefficients of the HHT family, given as coefficients or as α. Others raise an error."""
    if not isinstance(coefficients, Coefficients):
        return hht(coefficients)
    c = coefficients
    alpha = -c.alpha_f
    if c.alpha_m != 0 or not -1 / 3 <= alpha <= 0 or c != hht(alpha):
        raise ValueError(f"{method} takes coefficients from ga.hht(alpha), got {c.name}")
    return c


def newmark(beta: float, gamma: float) -> Coefficients:
    """Newmark's family, α_m = α_f = 0 (JN08 section 1). Second order only for γ = ½.

    >>> newmark(1 / 4, 1 / 2).order
    2
    """
    return Coefficients(0.0, 0.0, beta, gamma, f"Newmark(β={beta:g}, γ={gamma:g})")


def trapezoidal() -> Coefficients:
    """The trapezoidal rule, β = 1/4, γ = 1/2 (JN08 section 1). It has r_γ = 1: outside the theorems.

    >>> trapezoidal().r_gamma
    1.0
    """
    return Coefficients(0.0, 0.0, 0.25, 0.5, "trapezoidal")


def stormer() -> Coefficients:
    """Störmer's rule, β = 0, γ = 1/2: explicit in the positions (JN08 section 1).

    With β = 0 a step cannot correct its positions, so no method accepts it for holonomic constraints.

    >>> stormer().beta
    0.0
    """
    return Coefficients(0.0, 0.0, 0.0, 0.5, "Störmer")


def wbz(alpha_m: float) -> Coefficients:
    """The family of Wood, Bossak & Zienkiewicz, α_f = 0 and α_m in [−1, 0].

    β = (1 − α)²/4 and γ = ½ − α as in JN08 section 1, with α = α_m.

    >>> wbz(-0.1).gamma
    0.6
    """
    alpha_m = _check_range("alpha_m", alpha_m, -1.0, 0.0)
    return Coefficients(alpha_m, 0.0, (1 - alpha_m) ** 2 / 4, 0.5 - alpha_m, f"WBZ(α_m={alpha_m:g})")
