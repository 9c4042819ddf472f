"""Index-3 and stabilized methods against their equations; starts, projections, changes of the step size."""

import jax
import numpy as np
import pytest

import genalpha as ga
from conftest import problem, run
from genalpha.convergence import slope, study
from random_mechanisms import STRUCTURES

C = ga.chung_hulbert(0.6)


def steps_of(sol):
    fields = (sol.t, sol.q, sol.v, sol.a_alpha, sol.lam_method, sol.psi_method)
    return [tuple(zip(*(f[i : i + 2] for f in fields), strict=True)) for i in range(sol.stats.steps)]


@pytest.mark.parametrize(
    "method",
    [
        ga.Index3(C, start="second-order"),
        pytest.param(ga.StabilizedIndex2(C), marks=pytest.mark.slow),
        ga.StabilizedIndex2(C, metric="identity"),
    ],
    ids=["index3", "stabilized", "stabilized-identity"],
)
def test_every_step_satisfies_equations_3(method):
    """ACB15 (3a) to (3f), and (4) with η for the stabilized method, recomputed from the solution."""
    p, h = problem("heavy-top"), 2e-3
    space = p.system.space
    M, G, g, g_dot = (jax.jit(f) for f in (p.system.M, p.system.G, p.system.g, p.system.g_dot))
    sol = p.solve(t_end=0.02, h=h, method=method)
    for i, step in enumerate(steps_of(sol)):
        (t0, q0, v0, a0, *own0), (t1, q1, v1, a1, *own1) = step
        solve = lambda t, q, v, lam, psi: np.linalg.solve(
            M(t, q, p.args), p.system.f(t, q, v, lam, psi, p.args)
        )
        vdot0, vdot1 = solve(t0, q0, v0, *own0), solve(t1, q1, v1, *own1)  # (3e)
        delta = v0 + (0.5 - C.beta) * h * a0 + C.beta * h * a1  # (3b)
        if "eta" in sol.extra:
            mass = np.abs(M(t0, q0, p.args)).max(axis=1)
            metric = 1 / mass if method.metric == "mass" else np.ones(6)
            delta = delta - metric * (G(t0, q0, p.args).T @ sol.extra["eta"][i + 1])
            np.testing.assert_allclose(g_dot(t1, q1, v1, p.args), 0, atol=1e-11)
        np.testing.assert_allclose(q1, space.retract(q0, h * np.asarray(delta)), atol=1e-14)  # (3a)
        np.testing.assert_allclose(v1, v0 + h * ((1 - C.gamma) * a0 + C.gamma * a1), atol=1e-12)  # (3c)
        mixed = (1 - C.alpha_m) * a1 + C.alpha_m * a0 - (1 - C.alpha_f) * vdot1 - C.alpha_f * vdot0
        np.testing.assert_allclose(mixed, 0, atol=1e-7)  # (3d)
        np.testing.assert_allclose(g(t1, q1, p.args), 0, atol=1e-15)  # (3f)


@pytest.mark.slow
def test_hht_i3_is_that_of_jay_and_negrut_for_constant_mass():
    """M a_1 = (1 + α) f_1 − α f_0, position constraints only."""
    alpha, h, p = -0.1, 0.01, problem("double-pendulum")
    sol = run("double-pendulum", t_end=0.3, h=h, method=ga.HHTI3(alpha, start="a0"))
    for (t0, q0, v0, _, lam0, psi0), (t1, q1, v1, a1, lam1, psi1) in steps_of(sol):
        f0, f1 = p.system.f(t0, q0, v0, lam0, psi0, p.args), p.system.f(t1, q1, v1, lam1, psi1, p.args)
        M = p.system.M(t1, q1, p.args)
        np.testing.assert_allclose(M @ a1, (1 + alpha) * f1 - alpha * f0, atol=1e-8)
        np.testing.assert_allclose(p.system.g(t1, q1, p.args), 0, atol=1e-14)


def test_mass_is_taken_at_the_new_point():
    """A nonconstant mass matrix: the equations of motion hold at t_{n+1} exactly, as (3e) demands."""
    p = problem("rolling-disk")
    sol = run("rolling-disk", t_end=0.5, h=0.01, method="index3")
    i = -1
    M = p.system.M(sol.t[i], sol.q[i], p.args)
    f = p.system.f(sol.t[i], sol.q[i], sol.v[i], sol.lam_method[i], sol.psi_method[i], p.args)
    c = ga.chung_hulbert(0.8)
    vdot0 = sol.a[-2]
    vdot1 = ((1 - c.alpha_m) * sol.a_alpha[-1] + c.alpha_m * sol.a_alpha[-2] - c.alpha_f * vdot0) / (
        1 - c.alpha_f
    )
    np.testing.assert_allclose(M @ vdot1, f, atol=1e-9)


# --- the start --------------------------------------------------------------------------------------


def largest_lambda_error(name, method, h, t_end, first=1):
    p = problem(name)
    sol = run(name, t_end=t_end, h=h, method=method)
    return np.abs(sol.lam_method - p.reference(sol.t).lam)[first:].max()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "order"),
    [("perturbed", 2.0), ("second-order", 1.0), ("a0", 1.0)],
)
@pytest.mark.parametrize("name", ["body-chain", "heavy-top"])
def test_the_start_of_index3_decides_about_the_transient(name, start, order):
    """Largest error of λ over all steps: second order only from B v_0 = h² B r(t_0)."""
    method = ga.Index3(ga.chung_hulbert(0.8), start=start)
    steps = {"body-chain": (2e-3, 1e-3, 5e-4, 2.5e-4), "heavy-top": (1e-3, 5e-4, 2.5e-4, 1.25e-4)}[name]
    errors = [largest_lambda_error(name, method, h, 0.2) for h in steps]
    assert slope(steps, errors) == pytest.approx(order, abs=0.2), errors


def test_the_record_starts_with_the_given_velocity():
    sol = run("double-pendulum", t_end=0.1, h=0.01, method="index3")
    np.testing.assert_array_equal(sol.v[0], problem("double-pendulum").v0)
    assert sol.residuals.velocity[0] < 1e-14
    assert sol.residuals.velocity[1] > 1e-6
    assert sol.t_alpha[0] == pytest.approx(ga.chung_hulbert(0.8).alpha * 0.01)


def test_a_kinked_force_starts_without_perturbation():
    """Where v̈ does not exist at the start, index 3 starts from the values as they are."""
    import jax.numpy as jnp

    system = ga.System(
        mass=np.eye(2),
        force=lambda t, q, v: jnp.array([0.0, -9.81]) - jnp.sqrt(t) * v,
        holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
    )
    sol = ga.solve(system, (0.0, 0.5), [1.0, 0.0], [0.0, 1.0], h=0.01, method="index3")
    assert np.isfinite(sol.lam).all()
    assert sol.t_alpha[0] == 0.0


# --- projections ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_projections_are_the_nearest_points_in_the_norm_of_mass(rng):
    """(6) and (7): on the constraints, and the change is orthogonal to what the constraints allow."""
    system, p = STRUCTURES["tilt"].system, STRUCTURES["tilt"].draw(np.random.default_rng(0))
    assert p.trait == "plain"
    args = (p.args,)
    d = 1e-3 * rng.normal(size=3)
    away = np.asarray(jax.jit(system.space.retract)(p.q0, d))
    q = ga.project_position(system, 0.0, away, args)
    assert np.abs(system.g(0.0, q, args)).max() < 1e-14
    moved = np.asarray(jax.jit(system.space.difference)(away, q))
    # M d lies in the range of the gradient of g(away ∘ exp(d)) with respect to d
    gradient = jax.jit(jax.jacfwd(lambda d: system.g(0.0, system.space.retract(away, d), args)))(moved)
    M = np.asarray(system.M(0.0, q, args))
    rest = M @ moved - gradient.T @ np.linalg.lstsq(np.asarray(gradient).T, M @ moved, rcond=None)[0]
    assert np.abs(rest).max() < 1e-10 * np.abs(M @ moved).max()

    v = p.v0 + rng.normal(size=3)
    projected = ga.project_velocity(system, 0.0, p.q0, v, args)
    G = np.asarray(system.G(0.0, p.q0, args))
    by_formula = v - np.linalg.solve(M, G.T) @ np.linalg.solve(G @ np.linalg.solve(M, G.T), G @ v)
    np.testing.assert_allclose(projected, by_formula, atol=1e-12)  # below ACB15 (7)


@pytest.mark.slow
def test_projection_of_rheonomic_and_nonholonomic_velocities():
    p = problem("wheel-on-rod")
    v = ga.project_velocity(p.system, 0.0, p.q0, p.v0 + 0.1, p.args)
    assert np.abs(p.system.g_dot(0.0, p.q0, v, p.args)).max() < 1e-13
    assert np.abs(p.system.k(0.0, p.q0, v, p.args)).max() < 1e-13
    traced = jax.jit(lambda v: ga.project_velocity(p.system, 0.0, p.q0, v, p.args))(p.v0 + 0.1)
    np.testing.assert_allclose(traced, v, atol=1e-12)


def test_a_projection_that_does_not_exist():
    import jax.numpy as jnp

    system = ga.System(np.eye(1), lambda t, q, v: -q, holonomic=lambda t, q: jnp.array([q[0] ** 2 + 1.0]))
    with pytest.raises(ValueError, match="found no position on the constraints near the given one"):
        ga.project_position(system, 0.0, [0.5])


@pytest.mark.slow
def test_a_velocity_projection_starts_a_transient_in_index3_only():
    """ACB15 section 3: zero residual at t*, then oscillations; nothing changes for the other two methods."""
    p, at = problem("double-pendulum"), 0.25
    for method, moved in ((ga.Index3(C), True), (ga.StabilizedIndex2(C), False), (ga.SOI2(C), False)):
        plain = p.solve(t_end=0.5, h=0.01, method=method)
        projected = p.solve(t_end=0.5, h=0.01, method=method, project_velocity_at=[at])
        k = 25
        np.testing.assert_array_equal(projected.q[: k + 1], plain.q[: k + 1])
        assert projected.residuals.velocity[k] < 1e-13
        change = np.abs(projected.lam_method - plain.lam_method)
        assert not change[:k].any()
        assert (change[k + 1 : k + 5].max() > 1e-3) == moved
        assert change[-1].max() < 1e-3 * max(change.max(), 1e-6)


@pytest.mark.parametrize(("projected", "order"), [(False, 2.0), (True, 1.0)])
def test_the_order_of_lambda_after_a_projection(projected, order):
    steps = (4e-3, 2e-3, 1e-3, 5e-4)
    p, errors = problem("double-pendulum"), []
    options = {"project_velocity_at": 0.1} if projected else {}
    for h in steps:
        sol = p.solve(t_end=0.2, h=h, method=ga.Index3(C), **options)
        errors.append(np.abs(sol.lam_method - p.reference(sol.t).lam).max())
    assert slope(steps, errors) == pytest.approx(order, abs=0.2)


@pytest.mark.slow
def test_projection_under_transforms_and_bad_times():
    import jax.numpy as jnp

    p = problem("double-pendulum")
    options = {"h": 0.01, "method": "index3", "args": p.args}
    run = lambda q0: ga.solve(p.system, (0.0, 0.3), q0, p.v0, project_velocity_at=0.1, **options)
    np.testing.assert_allclose(jax.jit(run)(p.q0).lam, run(p.q0).lam, atol=1e-8)
    with pytest.raises(ValueError, match=r"no step ends at t = 0.105, the nearest at 0.1"):
        p.solve(t_end=0.3, h=0.01, project_velocity_at=[0.1, 0.105])
    for wrong in ("0.1", None, [[0.1]], ["a"], True):
        with pytest.raises((TypeError, ValueError), match="project_velocity_at"):
            p.solve(t_end=0.3, h=0.01, project_velocity_at=wrong)
    with pytest.raises(TypeError, match="neither project_velocity_at nor h may be traced"):
        jax.jit(
            lambda h: ga.solve(p.system, (0.0, 0.3), p.q0, p.v0, args=p.args, h=h, project_velocity_at=0.1).q
        )(jnp.full(30, 0.01))


# --- changes of the step size -----------------------------------------------------------------------


def test_index3_loses_an_order_of_lambda_where_steps_change():
    """The velocity residual h² B r belongs to one step size: the other methods have none."""
    result = study(
        problem("double-pendulum"),
        ga.Index3(C),
        h=[4e-3, 2e-3, 1e-3, 5e-4],
        t_end=0.5,
        pattern=(1 / 3, 2 / 3),
    )
    assert result.slopes["q"] == pytest.approx(2.0, abs=0.15)
    assert result.slopes["v"] == pytest.approx(2.0, abs=0.15)
    assert result.slopes["lam_method"] == pytest.approx(1.0, abs=0.15)


# --- units and singular masses ----------------------------------------------------------------------


@pytest.mark.parametrize("method", ["soi2", "index3", pytest.param("stabilized", marks=pytest.mark.slow)])
def test_motions_do_not_depend_on_units(method):
    """A boom of 10 m that swings through, in metres and in millimetres, in the plane."""
    import jax.numpy as jnp

    ends = []
    for unit in (1.0, 1e3):
        length = 10.0 * unit
        boom = ga.System(
            mass=np.diag([2.0, 2.0, 2.0 * length**2 / 3]),
            force=lambda t, q, v, unit=unit: jnp.array([0.0, -2 * 9.81 * unit, 0.0]),
            holonomic=lambda t, q, r=length: q[:2] - r * jnp.array([jnp.cos(q[2]), jnp.sin(q[2])]),
        )
        sol = ga.solve(boom, (0.0, 3.0), [length, 0.0, 0.0], np.zeros(3), h=0.01, method=method)
        ends.append(np.concatenate([sol.q[-1] / [unit, unit, 1.0], sol.lam[-1] / unit]))
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-7)


@pytest.mark.parametrize("method", ["index3", "stabilized", pytest.param("soi2", marks=pytest.mark.slow)])
def test_a_massless_coordinate(method):
    """z = x² without mass of its own, with a spring: allowed, since the constraints determine it."""
    import jax.numpy as jnp

    system = ga.System(
        mass=np.diag([1.0, 1.0, 0.0]),
        force=lambda t, q, v: jnp.array([0.0, -9.81, -0.5 * q[2]]),
        holonomic=lambda t, q: jnp.array([q[0] ** 2 + q[1] ** 2 - 1, q[2] - q[0] ** 2]),
    )
    flat = ga.System(  # the same with the spring's potential ¼x⁴ on the circle
        mass=np.eye(2),
        force=lambda t, q, v: jnp.array([-(q[0] ** 3), -9.81]),
        holonomic=lambda t, q: jnp.array([q @ q - 1]),
    )
    sol = ga.solve(system, (0, 1), [1.0, 0, 1], np.zeros(3), h=1e-3, method=method)
    true = ga.solve(flat, (0, 1), [1.0, 0], np.zeros(2), h=1e-4)
    np.testing.assert_allclose(sol.q[-1, :2], true.q[-1], atol=2e-5)


# --- refusals ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", [ga.chung_hulbert(1.0), ga.trapezoidal(), ga.hht(0.0), ga.stormer()])
def test_index3_refuses_coefficients_that_do_not_damp(c):
    with pytest.raises(ValueError, match=r"errors of the multipliers do not decay with index3.*rho_inf < 1"):
        ga.Index3(c)


def test_refusals_by_name():
    p = problem("double-pendulum")
    for name in ("index3", "hht-i3"):
        with pytest.raises(ValueError, match="rho_inf < 1"):
            p.solve(t_end=0.1, h=0.01, method=name, rho_inf=1.0)
    with pytest.raises(ValueError, match=r"hht-i3 takes coefficients from ga\.hht"):
        ga.HHTI3(ga.chung_hulbert(0.7))
    with pytest.raises(ValueError, match="start of soi2 must be one of a0, second-order, got 'perturbed'"):
        ga.SOI2(start="perturbed")
    with pytest.raises(ValueError, match="metric must be one of mass, identity, got 'euclid'"):
        ga.StabilizedIndex2(metric="euclid")
    with pytest.raises(ValueError, match="beta = 0"):
        p.solve(t_end=0.1, h=0.01, method=ga.StabilizedIndex2(ga.stormer()))
