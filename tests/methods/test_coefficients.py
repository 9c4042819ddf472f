"""Coefficient families, and what the theorems exclude."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import genalpha as ga


@given(st.floats(0, 1))
def test_chung_hulbert_is_of_second_order_and_within_the_theorems(rho):
    c = ga.chung_hulbert(rho)
    assert c.order == 2
    assert max(c.r_alpha_m, c.r_gamma, c.r_alpha_f) <= 1 + 1e-12
    if rho < 0.999:
        assert max(c.r_alpha_m, c.r_gamma, c.r_alpha_f) < 1
    # JN08 section 1
    assert c.alpha_m == pytest.approx((2 * rho - 1) / (1 + rho))
    assert c.beta == pytest.approx((1 - c.alpha) ** 2 / 4)


@given(st.floats(0, 1))
def test_rho_inf_is_the_spectral_radius_at_infinite_frequency(rho):
    """ρ∞ by its definition: eigenvalues of the step for q'' = -ω² q as hω goes to infinity."""
    c, w2 = ga.chung_hulbert(rho), 1e10  # (hω)²
    # unknowns (q1, h v1, h² a1) from (q0, h v0, h² a0): (2a), (2b), (2c)
    left = np.array([[1, 0, -c.beta], [0, 1, -c.gamma], [(1 - c.alpha_f) * w2, 0, 1 - c.alpha_m]])
    right = np.array([[1, 1, 0.5 - c.beta], [0, 1, 1 - c.gamma], [-c.alpha_f * w2, 0, -c.alpha_m]])
    radius = np.abs(np.linalg.eigvals(np.linalg.solve(left, right))).max()
    assert radius == pytest.approx(rho, abs=2e-2)  # a double eigenvalue: accurate to the root of 1e-4


def test_special_cases_of_the_papers():
    assert ga.hht(-0.1).alpha == pytest.approx(-0.1)
    assert ga.hht(-0.1).alpha_m == 0
    assert ga.chung_hulbert(0.5).alpha_m == 0  # the member of both families: HHT with α = -1/3
    assert ga.chung_hulbert(0.5).beta == pytest.approx(ga.hht(-1 / 3).beta)
    trapezoidal = ga.trapezoidal()
    assert (trapezoidal.beta, trapezoidal.gamma) == (0.25, 0.5)
    assert (ga.stormer().beta, ga.stormer().gamma) == (0.0, 0.5)
    assert ga.wbz(-0.3).alpha_f == 0
    assert ga.wbz(-0.3).alpha == -0.3


def test_the_boundary_is_accepted():
    for c in (ga.chung_hulbert(1.0), ga.trapezoidal(), ga.stormer(), ga.hht(0.0), ga.wbz(0.0)):
        assert c.order == 2
        assert c.r_gamma == pytest.approx(1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1.0, 0.0, 0.25, 0.5), r"alpha_m = 1 .*theorem"),
        ((0.0, 1.0, 0.25, 0.5), r"alpha_f = 1 .*theorem"),
        ((0.0, 0.0, 0.25, 0.0), r"gamma = 0 .*theorem"),
        ((0.6, 0.0, 0.25, 0.5), r"r_alpha_m .* must not exceed 1.*JN08 theorem 1"),
        ((0.0, 0.6, 0.25, 0.5), r"r_alpha_f .* must not exceed 1.*J11 theorem 6.1"),
        ((0.0, 0.0, 0.25, 0.4), r"r_gamma .* must not exceed 1.*J11 theorem 6.1"),
        ((0.0, 0.0, -0.1, 0.5), "beta"),
        ((float("nan"), 0.0, 0.25, 0.5), "not finite"),
    ],
)
def test_what_the_theorems_exclude_is_refused(values, message):
    with pytest.raises(ValueError, match=message):
        ga.Coefficients(*values)


@pytest.mark.parametrize(
    "make",
    [
        lambda: ga.chung_hulbert(1.1),
        lambda: ga.chung_hulbert(-0.1),
        lambda: ga.hht(0.1),
        lambda: ga.hht(-0.4),
        lambda: ga.wbz(0.1),
        lambda: ga.wbz(-1.1),
    ],
)
def test_parameters_outside_their_range(make):
    with pytest.raises(ValueError, match="must lie in"):
        make()


def test_first_order_coefficients_warn():
    with pytest.warns(UserWarning, match="first order"):
        c = ga.newmark(0.4, 0.7)
    assert c.order == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ga.newmark(0.25, 0.5)
