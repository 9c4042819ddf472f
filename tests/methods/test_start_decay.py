"""How the starting error decays, and which theorem describes it.

The error of the start a_α = a_0 is followed through a run; its decay per step is compared with r (= r_αm) of
JN08 theorem 1 and with r_γ, r_αf of J11 theorem 6.1. docs/theory.md tells what follows.
"""

import numpy as np
import pytest

import genalpha as ga
from conftest import problem, run

H = 1e-4


def start_error(rho, h, name, t_end):
    """Difference between the runs from a_α = a_0 and from a_0 + αh a_0', step by step."""
    runs = [
        run(name, t_end=t_end, h=h, method=ga.SOI2(ga.chung_hulbert(rho), start=start))
        for start in ("a0", "second-order")
    ]
    return {
        f: np.linalg.norm(getattr(runs[0], f) - getattr(runs[1], f), axis=1)
        for f in ("a_alpha", "lam_method", "psi_method")
    }


def decay(error, first, last):
    """Factor per step, from a fit of log(error) over the steps first to last."""
    n = np.arange(first, last + 1)
    return float(np.exp(np.polyfit(n, np.log(error[first : last + 1]), 1)[0]))


# Where the error is followed: late enough for one factor to dominate, early enough to stay above rounding.
@pytest.mark.parametrize(
    ("rho", "a_steps", "multiplier_steps"),
    [pytest.param(0.9, (1, 40), (40, 80), marks=pytest.mark.slow), (0.2, (1, 6), (3, 9))],
)
def test_errors_that_break_the_constraints_decay_as_in_j11(rho, a_steps, multiplier_steps):
    """(15) has as many constraints as coordinates: every error of a breaks the hidden constraints."""
    c = ga.chung_hulbert(rho)
    error = start_error(rho, H, "jay-negrut", t_end=100 * H)
    assert decay(error["a_alpha"], *a_steps) == pytest.approx(c.r_gamma, abs=0.003)
    assert decay(error["lam_method"], *multiplier_steps) == pytest.approx(c.r_alpha_f, abs=0.01)
    assert decay(error["psi_method"], *multiplier_steps) == pytest.approx(c.r_alpha_f, abs=0.01)
    # r of JN08 theorem 1 is neither of them: too small for ρ∞ = 0.9, too large for 0.2
    assert abs(c.r_alpha_m - c.r_gamma) > 0.05
    assert abs(c.r_alpha_m - c.r_alpha_f) > 0.1


@pytest.mark.parametrize(("rho", "a_steps", "psi_steps"), [(0.9, (1, 20), (1, 60)), (0.2, (1, 5), (1, 4))])
def test_errors_that_respect_the_constraints_decay_with_r_alpha_m(rho, a_steps, psi_steps):
    """On the rolling disk the starting error of a is tangential; J11's estimate of a lacks this factor."""
    c = ga.chung_hulbert(rho)
    error = start_error(rho, H, "rolling-disk", t_end=100 * H)
    assert decay(error["a_alpha"], *a_steps) == pytest.approx(c.r_alpha_m, abs=0.003)
    assert decay(error["psi_method"], *psi_steps) == pytest.approx(c.r_alpha_f, abs=0.005)


@pytest.mark.parametrize("rho", [0.2, 0.9])
def test_second_order_start_has_no_transient(rho):
    """From the first step on, a, λ and ψ are within O(h²) of the truth; with a_0 within O(h) only."""
    p = problem("jay-negrut")
    sizes = [8e-4, 4e-4, 2e-4, 1e-4]
    for start, order in (("second-order", 2.0), ("a0", 1.0)):
        errors = []
        for h in sizes:
            sol = run("jay-negrut", t_end=3 * h, h=h, method=ga.SOI2(ga.chung_hulbert(rho), start=start))
            end, own = p.reference(sol.t[1]), p.reference(sol.t_alpha[1])
            pairs = [(sol.a_alpha, own.a), (sol.lam_method, end.lam), (sol.psi_method, end.psi)]
            errors.append([np.linalg.norm(x[1] - y) for x, y in pairs])
        slopes = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
        np.testing.assert_allclose(slopes, order, atol=0.15, err_msg=start)
