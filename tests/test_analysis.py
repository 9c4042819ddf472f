"""Linear analysis: closed forms, the papers' spectral radii, and the real step."""

import numpy as np
import pytest

import genalpha as ga
from genalpha import analysis

FAMILIES = [ga.chung_hulbert(0.3), ga.hht(-0.2), ga.wbz(-0.4), ga.trapezoidal()]


@pytest.mark.parametrize("rho", [*np.linspace(0, 0.99, 34), 0.999, 0.9999])
def test_the_error_recursion_has_the_spectral_radius_rho(rho):
    """ACB15 below (8), to 1e-6, although −ρ∞ is a triple eigenvalue."""
    c = ga.chung_hulbert(rho)
    assert analysis.error_recursion_radius(c) == pytest.approx(rho, abs=1e-6)
    T = analysis.error_recursion(c)
    np.testing.assert_allclose(np.linalg.matrix_power(T + rho * np.eye(3), 3), 0, atol=1e-12)
    # a full Jordan block
    assert np.abs(np.linalg.matrix_power(T + rho * np.eye(3), 2)).max() > 4 * rho * (1 - rho)


@pytest.mark.parametrize(
    "c", [ga.hht(-0.05), ga.hht(-0.3), ga.wbz(-0.2), ga.wbz(-1.0), ga.chung_hulbert(0.5)]
)
def test_radius_of_other_families_against_numerical_eigenvalues(c):
    numerical = np.abs(np.linalg.eigvals(analysis.error_recursion(c))).max()
    assert analysis.error_recursion_radius(c) == pytest.approx(numerical, abs=1e-4)


@pytest.mark.parametrize("c", FAMILIES, ids=lambda c: c.name)
def test_amplification_is_what_a_run_does(c):
    """The closed form against three runs of the method itself, one from each unit vector."""
    omega, zeta, h = 3.0, 0.1, 0.2
    A = analysis.amplification(c, h * omega, damping=zeta)
    system = ga.System(np.eye(1), lambda t, q, v: -2 * zeta * omega * v - omega**2 * q)
    sol = ga.solve(system, (0.0, 1.0), [0.7], [-0.4], h=h, method=ga.GeneralizedAlpha(c))
    states = np.hstack([sol.q, h * sol.v, h**2 * sol.a_alpha])
    np.testing.assert_allclose(states[1:], states[:-1] @ A.T, atol=1e-13)


@pytest.mark.parametrize("rho", [0.0, 0.4, 0.9, 1.0])
def test_limits_of_the_spectral_radius(rho):
    """One for slow, ρ∞ for fast oscillations (Chung & Hulbert), never above one."""
    c = ga.chung_hulbert(rho)
    radius = analysis.spectral_radius(analysis.amplification(c, np.geomspace(1e-3, 1e8, 200)))
    assert radius.max() <= 1 + 1e-9
    assert radius[0] == pytest.approx(1.0, abs=1e-8)
    assert radius[-1] == pytest.approx(rho, abs=1e-3)


def test_period_error_and_damping_of_known_methods():
    z = np.array([0.05, 0.5, 2.0])
    A = analysis.amplification(ga.trapezoidal(), z)
    np.testing.assert_allclose(analysis.period_error(A, z), z / (2 * np.arctan(z / 2)) - 1, rtol=1e-9)
    np.testing.assert_allclose(analysis.numerical_damping(A), 0, atol=1e-12)
    # physical damping is found again for small steps
    A = analysis.amplification(ga.trapezoidal(), 1e-3, damping=0.05)
    assert analysis.numerical_damping(A) == pytest.approx(0.05, rel=2e-3)  # ζ/√(1 − ζ²)
    # second order: the period error falls like h², the damping of a dissipative family like h³
    c, z = ga.chung_hulbert(0.2), np.array([0.02, 0.01])
    A = analysis.amplification(c, z)
    assert np.divide(*analysis.period_error(A, z)) == pytest.approx(4.0, rel=0.01)
    assert np.divide(*analysis.numerical_damping(A)) == pytest.approx(8.0, rel=0.02)


slow = pytest.mark.slow


@pytest.mark.parametrize(
    "method", ["index3", pytest.param("stabilized", marks=slow), "soi2", pytest.param("hht-i3", marks=slow)]
)
def test_the_constrained_test_equation(method):
    """The free motion is amplified as without a constraint; what is left are the papers' ratios."""
    rho = 0.6
    c = ga.hht(-(1 - rho) / (1 + rho)) if method == "hht-i3" else ga.chung_hulbert(rho)
    z = np.array([0.1, 3.0])
    A = analysis.constrained_amplification(method, z, rho_inf=rho, angle=0.5)
    free = analysis.amplification(c, z * np.cos(0.5))
    np.testing.assert_allclose(analysis.period_error(A, z), analysis.period_error(free, z), rtol=1e-6)
    np.testing.assert_allclose(analysis.numerical_damping(A), analysis.numerical_damping(free), atol=1e-9)
    index3 = method in ("index3", "hht-i3")
    expected = [c.r_index3] if index3 else [c.r_gamma, c.r_alpha_f]
    for values in np.abs(np.linalg.eigvals(A)):
        for ratio in expected:
            assert np.abs(values - ratio).min() < 2e-4
    assert analysis.spectral_radius(A).max() <= 1 + 1e-9


@pytest.mark.slow
def test_plots(tmp_path):
    for families in (FAMILIES, [ga.Index3(ga.chung_hulbert(0.5))]):
        figure = analysis.plot(families, np.geomspace(0.01, 10, 20))
        assert len(figure.axes) == 3
        assert [len(ax.lines) for ax in figure.axes] == [len(families)] * 3
        assert figure.axes[0].lines[0].get_ydata()[0] == pytest.approx(1.0, abs=1e-4)
