"""Methods against their printed equations and against each other."""

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from conftest import problem, run
from problem_energies import energies as energies_of


def history(sol, i):
    return sol.t[i], sol.q[i], sol.v[i], sol.a_alpha[i], sol.lam_method[i], sol.psi_method[i]


@pytest.mark.parametrize("alpha", [-0.1, pytest.param(-1 / 3, marks=pytest.mark.slow)])
def test_hht_soi2_solves_equations_17(alpha):
    """Every step of HHT-SOI2 satisfies JN08 (17a) to (17f), with δ̃ and μ̃ eliminated from the solution."""
    p = problem("double-pendulum")
    h, beta, gamma = 0.01, (1 - alpha) ** 2 / 4, 0.5 - alpha
    sol = run("double-pendulum", t_end=0.3, h=h, method=ga.HHTSOI2(alpha))
    for i in range(sol.stats.steps):
        (t0, y0, z0, a0, lam0, psi0), (t1, y1, z1, a1, lam1, psi1) = history(sol, i), history(sol, i + 1)
        M, G = p.system.M(t1, y1, p.args), p.system.G(t1, y1, p.args)
        delta = (2 * (y1 - y0 - h * z0) / h**2 - (1 - 2 * beta) * a0) / (2 * beta) - a1  # (17a)
        mu = np.linalg.lstsq(G.T, M @ delta, rcond=None)[0]
        np.testing.assert_allclose(M @ delta, G.T @ mu, atol=1e-9)  # (17c): δ̃ = M⁻¹Gᵀμ̃ for some μ̃
        np.testing.assert_allclose(z1, z0 + h * ((1 - gamma) * a0 + gamma * a1), atol=1e-12)  # (17b)
        f1 = p.system.f(t1, y1, z1, lam1, psi1, p.args)
        f0 = p.system.f(t0, y0, z0, lam0, psi0, p.args)
        np.testing.assert_allclose(M @ a1, (1 + alpha) * f1 - alpha * f0, atol=1e-9)  # (17d)
        np.testing.assert_allclose(p.system.g(t1, y1, p.args), 0, atol=1e-13)  # (17e)
        np.testing.assert_allclose(p.system.g_dot(t1, y1, z1, p.args), 0, atol=1e-12)  # (17f)


@pytest.mark.slow
def test_soi2_solves_equations_13_of_a_nonadditive_problem():
    """JN08 (15): ã, λ̃, ψ̃ are recovered from y_1 and (13d), (13h) and checked in the printed equations."""
    from scipy.optimize import fsolve

    p, c, h = problem("jay-negrut"), ga.chung_hulbert(0.3), 0.05
    system = p.system
    sol = run("jay-negrut", t_end=0.5, h=h, method=ga.SOI2(c))
    M_old = system.M(sol.t_alpha[0], p.q0 + h * c.alpha * p.v0)
    for i in range(sol.stats.steps):
        (t0, y0, z0, a0, lam0, psi0), (t1, y1, z1, a1, lam1, psi1) = history(sol, i), history(sol, i + 1)
        M_new = system.M(t1 + c.alpha * h, y0 + h * (1 + c.alpha) * z0)
        a_tilde = (2 * (y1 - y0 - h * z0) / h**2 - (1 - 2 * c.beta) * a0) / (2 * c.beta)  # (13a)
        z_tilde = z0 + h * ((1 - c.gamma) * a0 + c.gamma * a_tilde)  # (13b)
        past = c.alpha_m * M_old @ a0 - c.alpha_f * system.f(t0, y0, z0, lam0, psi0)

        def dynamics(a, lam, psi, t1=t1, y1=y1, z1=z1, M_new=M_new, past=past):
            f1 = system.f(t1, y1, z1, jnp.atleast_1d(lam), jnp.atleast_1d(psi))
            return np.asarray((1 - c.alpha_m) * M_new @ a + past - (1 - c.alpha_f) * f1)

        np.testing.assert_allclose(z1, z0 + h * ((1 - c.gamma) * a0 + c.gamma * a1), atol=1e-12)  # (13c)
        # (13d): two equations for λ̃ and ψ̃, which have a solution near λ and ψ
        tilde, _, found, _ = fsolve(
            lambda u, a=a_tilde: dynamics(a, u[0], u[1]), [lam1[0], psi1[0]], full_output=True, xtol=1e-13
        )
        assert found == 1
        assert np.abs(tilde - [lam1[0], psi1[0]]).max() < h
        np.testing.assert_allclose(dynamics(a1, lam1, psi1), 0, atol=1e-10)  # (13e)
        np.testing.assert_allclose(system.g(t1, y1), 0, atol=1e-13)  # (13f)
        np.testing.assert_allclose(system.g_dot(t1, y1, z1), 0, atol=1e-12)  # (13g)
        np.testing.assert_allclose(system.k(t1, y1, z_tilde), 0, atol=1e-10)  # (13h)
        np.testing.assert_allclose(system.k(t1, y1, z1), 0, atol=1e-12)  # (13i)
        M_old = M_new


def test_soi2_without_constraints_is_generalized_alpha():
    for c in (ga.chung_hulbert(0.3), ga.stormer()):
        soi2 = run("spring-chain", method=ga.SOI2(c))
        plain = run("spring-chain", method=ga.GeneralizedAlpha(c))
        for field in ("q", "v", "a", "a_alpha"):
            np.testing.assert_allclose(getattr(soi2, field), getattr(plain, field), rtol=1e-11, atol=1e-11)
    assert (soi2.method, plain.method) == ("soi2", "generalized-alpha")


@pytest.mark.slow
def test_a_custom_reaction_equal_to_the_default_gives_the_same_run():
    """The general (13d) and its replacement for the default reaction are the same equations."""
    p = problem("wheel-on-rod")
    G, K = p.system.G, p.system.K
    custom = ga.System(
        p.system.mass,
        p.system.force,
        p.system.holonomic,
        p.system.nonholonomic,
        reaction=lambda t, q, v, lam, psi, a: -G(t, q, (a,)).T @ lam - K(t, q, v, (a,)).T @ psi,
    )
    one = ga.solve(custom, (0, 0.5), p.q0, p.v0, h=0.01, args=p.args)
    two = ga.solve(p.system, (0, 0.5), p.q0, p.v0, h=0.01, args=p.args)
    for field in ("q", "v", "a_alpha", "lam", "psi"):
        np.testing.assert_allclose(getattr(one, field), getattr(two, field), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_constant_and_callable_mass_agree():
    p = problem("slider-crank")
    callable_mass = ga.System(lambda t, q, g: jnp.asarray(p.system.mass), p.system.force, p.system.holonomic)
    sizes = np.tile([1e-3, 2e-3], 20)
    one = ga.solve(callable_mass, (0, 0.06), p.q0, p.v0, h=sizes, args=p.args, rho_inf=0.3)
    two = ga.solve(p.system, (0, 0.06), p.q0, p.v0, h=sizes, args=p.args, rho_inf=0.3)
    for field in ("q", "v", "a_alpha", "lam"):
        np.testing.assert_allclose(getattr(one, field), getattr(two, field), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_adjusting_matters_only_where_the_step_size_changes():
    p = problem("jay-negrut")
    on, off = (ga.SOI2(ga.chung_hulbert(0.2), adjust=adjust) for adjust in (True, False))
    run = lambda method, h: ga.solve(p.system, (0, 1), p.q0, p.v0, h=h, method=method)
    np.testing.assert_allclose(run(on, 0.05).a_alpha, run(off, 0.05).a_alpha, rtol=1e-12)
    sizes = np.tile([0.05, 0.1, 0.1], 4)
    changed = np.abs(run(on, sizes).a_alpha - run(off, sizes).a_alpha).max(axis=1)
    assert changed[1] == 0.0
    assert changed[2] > 1e-3


def test_damping_of_the_highest_frequency():
    """A stiff spring at hω = 1e3: ρ∞ is the factor a step; ρ∞ = 0.5 leaves 2⁻ⁿ, ρ∞ = 1 everything."""
    stiff = ga.System(np.eye(1), lambda t, q, v: -1e10 * q)
    for rho, low, high in ((0.5, 0.0, 1e-6), (1.0, 0.5, 2.0)):
        sol = ga.solve(stiff, (0, 1), [1.0], [0.0], h=0.01, rho_inf=rho, method="generalized-alpha")
        late = np.abs(sol.q[60:]).max()
        assert low <= late <= high
    decay = ga.solve(stiff, (0, 1), [1.0], [0.0], h=0.01, rho_inf=0.5, method="generalized-alpha")
    n = np.arange(20, 40)
    fitted = np.exp(np.polyfit(n, np.log(np.abs(decay.q[20:40, 0]) / n), 1)[0])  # a double root: n ρⁿ
    assert fitted == pytest.approx(0.5, abs=0.02)


def energies(name, **options):
    sol = run(name, **options)
    return energies_of(problem(name), sol.t, sol.q, sol.v)


@pytest.mark.parametrize("name", ["rolling-disk", "double-pendulum", "wheel-on-rod"])
def test_energy_error_is_of_second_order(name):
    sizes = [0.02, 0.01, 0.005, 0.0025]
    errors = [np.ptp(energies(name, t_end=1.0, h=h, rho_inf=1.0)) for h in sizes]
    assert np.polyfit(np.log(sizes), np.log(errors), 1)[0] == pytest.approx(2, abs=0.2)


def test_the_trapezoidal_rule_conserves_quadratic_energies():
    values = energies("spring-chain", t_end=2.0, h=0.02, method=ga.GeneralizedAlpha(ga.trapezoidal()))
    assert np.ptp(values) < 1e-12 * values[0]


def test_a_reaction_without_constraints_is_a_force_like_any_other():
    system = ga.System(np.eye(1), lambda t, q, v: -q, reaction=lambda t, q, v, lam, psi: -3 * q)
    for method in ("soi2", "generalized-alpha"):
        sol = ga.solve(system, (0, 1), [1.0], [0.0], h=1e-3, method=method)
        assert sol.q[-1, 0] == pytest.approx(np.cos(2.0), abs=1e-5)
        assert sol.a[-1, 0] == pytest.approx(-4 * np.cos(2.0), abs=1e-4)


def test_a_massless_coordinate_that_a_constraint_determines():
    """M is singular but (12) is not: z = x y follows the pendulum without mass, and v' exists."""
    system = ga.System(
        np.diag([1.0, 1.0, 0.0]),
        lambda t, q, v: jnp.array([0, -9.81, 0.0]),
        lambda t, q: jnp.array([q[0] ** 2 + q[1] ** 2 - 1, q[2] - q[0] * q[1]]),
    )
    sol = ga.solve(system, (0, 1), [1.0, 0.0, 0.0], [0.0, 0.0, 0.0], h=1e-3)
    (x, y, z), (u, w, _) = sol.q.T, sol.v.T
    np.testing.assert_allclose(z, x * y, atol=1e-14)
    np.testing.assert_allclose(sol.a[:, 2], sol.a[:, 0] * y + 2 * u * w + x * sol.a[:, 1], atol=1e-9)
    np.testing.assert_allclose(sol.a[0], [0, -9.81, -9.81], atol=1e-12)
