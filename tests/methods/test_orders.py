"""Orders of convergence of every method, family and component, against independent references."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from conftest import problem
from genalpha.convergence import study

# The coarsest step is small enough for the leading error term to dominate; each next one is half of it.
COARSEST = {
    "jay-negrut": (0.01, 1.0),
    "jay-nonholonomic": (0.01, 1.0),
    "pendulum": (2e-3, 0.5),
    "rolling-disk": (4e-3, 2.0),
    "slider-crank": (1e-3, 0.2),
    "double-pendulum": (4e-3, 1.0),
    "wheel-on-rod": (0.01, 1.0),
    "spring-chain": (2.5e-3, 1.0),
}
FAMILIES = {
    c.name: c
    for c in (
        ga.chung_hulbert(0.0),
        ga.chung_hulbert(0.2),
        ga.chung_hulbert(0.8),
        ga.chung_hulbert(1.0),
        ga.hht(-0.1),
        ga.wbz(-0.3),
        ga.trapezoidal(),
        ga.stormer(),
    )
}
# Fast suite: a family of every kind on a small problem, one on a problem of every kind of constraint.
FAST = {(p, "Chung-Hulbert(ρ∞=0.2)") for p in COARSEST if p not in ("pendulum", "slider-crank")}
FAST |= {("double-pendulum", c.name) for c in (ga.chung_hulbert(1.0), ga.hht(-0.1), ga.wbz(-0.3))}
FAST |= {("spring-chain", "Störmer")}


def cases():
    for name in COARSEST:
        for family, c in FAMILIES.items():
            if c.beta == 0 and problem(name).system.holonomic is not None:
                continue  # refused, see test_bad_input
            marks = () if (name, family) in FAST else (pytest.mark.slow,)
            yield pytest.param(name, family, marks=marks, id=f"{name}-{family}")


def measured(name, method, **options):
    coarsest, t_end = COARSEST[name]
    h = [coarsest / 2**i for i in range(4)]
    return study(problem(name), method, h=h, t_end=t_end, **options)


def assert_order(result, order=2.0, band=0.15):
    for component, slope in result.slopes.items():
        assert slope == pytest.approx(order, abs=band), f"{component}\n{result.table()}"


@pytest.mark.parametrize(("name", "family"), list(cases()))
def test_soi2_is_of_second_order_in_every_component(name, family):
    assert_order(measured(name, ga.SOI2(FAMILIES[family])))


@pytest.mark.parametrize("family", ["Chung-Hulbert(ρ∞=0.2)", "HHT(α=-0.1)", "Störmer"])
def test_generalized_alpha_is_of_second_order(family):
    assert_order(measured("spring-chain", ga.GeneralizedAlpha(FAMILIES[family])))


@pytest.mark.parametrize("method", [pytest.param("soi2", marks=pytest.mark.slow), "hht-soi2"])
def test_methods_by_name(method):
    assert_order(measured("double-pendulum", method))


def test_first_order_coefficients_are_of_first_order():
    with pytest.warns(UserWarning, match="first order"):
        c = ga.newmark(0.36, 0.7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = measured("double-pendulum", ga.SOI2(c))
    assert_order(result, order=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jay-negrut", "wheel-on-rod"])
@pytest.mark.parametrize("rho", [0.0, 0.2, 0.8])
def test_reduced_soi2_keeps_the_order(name, rho):
    """The question under JN08 (13): without ψ̃, (13b) and (13h)."""
    assert_order(measured(name, ga.SOI2(ga.chung_hulbert(rho), reduced=True)))


def test_nonconstant_mass_without_constraints():
    """JN08 section 3: M_{1+α} explicit, M_α from the step before. A pendulum in a stretched coordinate."""
    # q = u + 0.3 u³ for u'' = -sin u: M(q) = 1, so use y with u = y + 0.2 sin y and T = u'²/2.
    slope, bend = lambda y: 1 + 0.2 * jnp.cos(y), lambda y: -0.2 * jnp.sin(y)
    system = ga.System(
        mass=lambda t, y: (slope(y) ** 2)[:, None],
        force=lambda t, y, z: -slope(y) * jnp.sin(y + 0.2 * jnp.sin(y)) - slope(y) * bend(y) * z**2,
    )
    plain = ga.System(mass=np.eye(1), force=lambda t, u, w: -jnp.sin(u))
    y0, z0 = np.array([1.0]), np.array([0.5])
    fine = ga.solve(plain, (0, 2), y0 + 0.2 * np.sin(y0), slope(y0) * z0, h=2e-5)
    errors = []
    for h in (0.04, 0.02, 0.01, 0.005):
        sol = ga.solve(system, (0, 2), y0, z0, h=h, method="generalized-alpha", rho_inf=0.2)
        y, z, a = sol.q[-1], sol.v[-1], sol.a[-1]
        u, w = y + 0.2 * np.sin(y), slope(y) * z
        b = slope(y) * a + bend(y) * z**2
        errors.append([abs(u - fine.q[-1])[0], abs(w - fine.v[-1])[0], abs(b - fine.a[-1])[0]])
    slopes = np.polyfit(np.log([0.04, 0.02, 0.01, 0.005]), np.log(errors), 1)[0]
    np.testing.assert_allclose(slopes, 2, atol=0.15)


def test_rheonomic_constraint_and_time_dependent_mass():
    """A point of mass 2 + sin t on a circle whose centre moves: the angle obeys a known ODE."""
    centre = lambda t: jnp.array([0.3 * jnp.sin(2 * t), 0.1 * t**2])
    system = ga.System(
        mass=lambda t, q: (2 + jnp.sin(t)) * jnp.eye(2),
        force=lambda t, q, v: jnp.array([0.0, -9.81]) * (2 + jnp.sin(t)) - jnp.cos(t) * v,
        holonomic=lambda t, q: jnp.array([(q - centre(t)) @ (q - centre(t)) - 1.0]),
    )
    from scipy.integrate import solve_ivp

    def rhs(t, y):
        angle, rate = y
        m, drag = 2 + np.sin(t), np.cos(t)
        n = np.array([-np.sin(angle), np.cos(angle)])
        c_dot, c_ddot = np.array([0.6 * np.cos(2 * t), 0.2 * t]), np.array([-1.2 * np.sin(2 * t), 0.2])
        v = c_dot + rate * n
        return [rate, n @ (np.array([0, -9.81]) - drag / m * v - c_ddot)]

    true = solve_ivp(rhs, (0, 1), [0.3, 0.5], method="DOP853", rtol=1e-13, atol=1e-14).y[:, -1]
    e0, n0 = np.array([np.cos(0.3), np.sin(0.3)]), np.array([-np.sin(0.3), np.cos(0.3)])
    v0 = np.array([0.6, 0.0]) + 0.5 * n0
    e1, n1 = np.array([np.cos(true[0]), np.sin(true[0])]), np.array([-np.sin(true[0]), np.cos(true[0])])
    q1 = np.array([0.3 * np.sin(2), 0.1]) + e1
    v1 = np.array([0.6 * np.cos(2), 0.2]) + true[1] * n1
    exact = ga.consistent(system, 1.0, q1, v1)
    steps, errors = (0.02, 0.01, 0.005, 0.0025), []
    for h in steps:
        sol = ga.solve(system, (0, 1), e0, v0, h=h, rho_inf=0.2)
        pairs = [(sol.q, q1), (sol.v, v1), (sol.a, exact.a), (sol.lam, exact.lam)]
        errors.append([np.linalg.norm(x[-1] - y) for x, y in pairs])
        assert sol.residuals.velocity.max() < 1e-11
    slopes = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    np.testing.assert_allclose(slopes, 2, atol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("adjust", [True, False])
def test_adjusting_matters_for_positions_too(adjust):
    """JN08 section 7 says that q and v keep order 2 without (14): not where constraints leave a freedom."""
    method = ga.SOI2(ga.chung_hulbert(0.2), adjust=adjust)
    slopes = measured("double-pendulum", method, pattern=(0.1, 0.2, 0.3, 0.4)).slopes
    for component, slope in slopes.items():
        assert slope == pytest.approx(2.0 if adjust else 1.0, abs=0.15), component
