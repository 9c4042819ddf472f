"""What a System derives from the user's functions, against finite differences and hand calculation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import genalpha as ga
from conftest import problem


def rheonomic():
    """Every derivative of g and k with respect to t, q and v is different from zero."""
    return ga.System(
        mass=lambda t, q, c: jnp.eye(3) * (2 + jnp.sin(t * q[0])),
        force=lambda t, q, v, c: -v * q,
        holonomic=lambda t, q, c: jnp.array([q[0] * q[1] * jnp.exp(c * t), jnp.sin(q[2] + t) * q[0] ** 2]),
        nonholonomic=lambda t, q, v, c: jnp.array([v[0] * v[1] * q[2] + jnp.cos(t) * v[2] ** 2 - q[0] * t]),
    )


SYSTEM, ARGS = rheonomic(), (0.7,)
vectors = st.lists(st.floats(-2, 2), min_size=3, max_size=3).map(np.array)


@settings(deadline=None, max_examples=25)
@given(st.floats(0, 2), vectors, vectors, vectors)
def test_hidden_constraints_are_time_derivatives_along_a_motion(t, q, v, a):
    """d/dt and d²/dt² of g and k along q + τv + τ²a/2, by central differences."""
    path = lambda s: (t + s, q + s * v + s**2 / 2 * a, v + s * a)
    g = lambda s: np.asarray(SYSTEM.g(*path(s)[:2], ARGS))
    k = lambda s: np.asarray(SYSTEM.k(*path(s), ARGS))
    e = 1e-4
    np.testing.assert_allclose(SYSTEM.g_dot(t, q, v, ARGS), (g(e) - g(-e)) / (2 * e), atol=1e-5)
    np.testing.assert_allclose(SYSTEM.g_ddot(t, q, v, a, ARGS), (g(e) - 2 * g(0) + g(-e)) / e**2, atol=1e-4)
    np.testing.assert_allclose(SYSTEM.k_dot(t, q, v, a, ARGS), (k(e) - k(-e)) / (2 * e), atol=1e-5)


@settings(deadline=None, max_examples=25)
@given(st.floats(0, 2), vectors, vectors, vectors)
def test_hidden_constraints_as_the_paper_writes_them(t, q, v, a):
    found, expected = both_ways(t, *map(jnp.array, (q, v, a)))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-10)


@jax.jit
def both_ways(t, q, v, a):
    """g_tt + 2 g_tq v + g_qq(v, v) + G a and k_t + k_q v + k_v a: by the package, and term by term."""
    g = lambda t, q: SYSTEM.g(t, q, ARGS)
    k = lambda t, q, v: SYSTEM.k(t, q, v, ARGS)
    g_tt = jax.jacfwd(jax.jacfwd(g, 0), 0)(t, q)
    g_tq = jax.jacfwd(jax.jacfwd(g, 0), 1)(t, q)
    g_qq = jax.hessian(g, 1)(t, q)
    g_ddot = g_tt + 2 * g_tq @ v + jnp.einsum("ijk,j,k", g_qq, v, v) + SYSTEM.G(t, q, ARGS) @ a
    k_dot = jax.jacfwd(k, 0)(t, q, v) + jax.jacfwd(k, 1)(t, q, v) @ v + SYSTEM.K(t, q, v, ARGS) @ a
    return (SYSTEM.g_ddot(t, q, v, a, ARGS), SYSTEM.k_dot(t, q, v, a, ARGS)), (g_ddot, k_dot)


@pytest.mark.slow
def test_default_reactions_are_minus_gt_lambda_minus_kt_psi(rng):
    q, v, lam, psi = (jnp.array(rng.normal(size=k)) for k in (3, 3, 2, 1))
    G, K = SYSTEM.G(0.3, q, ARGS), SYSTEM.K(0.3, q, v, ARGS)
    assert G.shape == (2, 3)
    assert K.shape == (1, 3)
    reactions = SYSTEM.reactions(0.3, q, v, lam, psi, ARGS)
    np.testing.assert_allclose(reactions, -G.T @ lam - K.T @ psi, atol=1e-13)
    total = SYSTEM.f(0.3, q, v, lam, psi, ARGS)
    np.testing.assert_allclose(total, -v * q - G.T @ lam - K.T @ psi, atol=1e-13)


def test_reactions_and_change_of_a_nonlinear_reaction(rng):
    system = problem("jay-negrut").system
    q, v, *multipliers = (jnp.array(rng.normal(size=k)) for k in (2, 2, 1, 1, 1, 1))
    lam, psi, mu, nu = multipliers
    _, change = system.reactions_and_change(0.2, q, v, lam, psi, mu, nu)
    expected = system.f(0.2, q, v, lam + mu, psi + nu) - system.f(0.2, q, v, lam, psi)
    np.testing.assert_allclose(change, expected, atol=1e-12)


def test_a_systems_functions_run_in_python_only_once_for_each_shape():
    calls = []

    def force(t, q, v):
        calls.append(1)
        return -q

    system = ga.System(mass=np.eye(2), force=force)
    ga.solve(system, (0, 1), [1.0, 0.0], [0.0, 0.0], h=0.1)
    first = len(calls)
    ga.solve(system, (0, 2), [1.0, 0.5], [0.0, 0.1], h=0.01)
    assert first <= 2
    assert len(calls) == first


def test_rolling_disk_forces_are_those_of_the_lagrangian(rng):
    """J11 below (7.2): d/dt L_z = L_y. The printed f_4 lacks −I2 z5 z3 cos(y3); ours has it."""
    p = problem("rolling-disk")
    m, r, I1, I2, g = 2.0, 1.0, 2.0, 2.0, 10.0

    def lagrangian(y, z):
        sin, cos = jnp.sin, jnp.cos
        kinetic = m / 2 * (z[0] ** 2 + z[1] ** 2 + r**2 * z[2] ** 2 + r**2 * z[3] ** 2 * sin(y[2]) ** 2)
        kinetic -= m * r * z[2] * cos(y[2]) * (z[0] * sin(y[3]) - z[1] * cos(y[3]))
        kinetic -= m * r * z[3] * sin(y[2]) * (z[0] * cos(y[3]) + z[1] * sin(y[3]))
        kinetic += I1 / 2 * (z[2] ** 2 + z[3] ** 2 * cos(y[2]) ** 2) + I2 / 2 * (z[4] + z[3] * sin(y[2])) ** 2
        return kinetic - m * g * r * cos(y[2])

    @jax.jit
    def compare(y, z):
        mixed = jax.jacfwd(jax.grad(lagrangian, 1), 0)(y, z)
        force = jax.grad(lagrangian, 0)(y, z) - mixed @ z
        found = p.system.M(0.0, y, p.args), p.system.applied(0.0, y, z, p.args)
        return found, (jax.hessian(lagrangian, 1)(y, z), force)

    for _ in range(5):
        found, expected = compare(jnp.array(rng.normal(size=5)), jnp.array(rng.normal(size=5)))
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-12)


def known_state(p):
    """A state of the true motion: of the reference or, where there is none, the first published one."""
    if p.reference is not None:
        return p.reference(p.t_span[0] + 0.13 * (p.t_span[1] - p.t_span[0]))
    t, values = next((t, values) for t, values in p.published.items() if "q" in values)
    return ga.State(t, **{field: np.array(value) for field, value in values.items()}, psi=np.zeros(0))


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=pytest.mark.slow if n in ("body-chain", "andrews") else ())
        for n in ga.problems.names()
    ],
)
def test_references_fulfil_the_equations(name):
    """Hand-derived references against the System: equations of motion and all constraint levels."""
    p = problem(name)
    true = known_state(p)
    t, speed = true.t, max(1.0, np.abs(true.v).max())
    state = ga.consistent(p.system, t, true.q, true.v, p.args)
    for field in ("a", "lam", "psi"):
        np.testing.assert_allclose(getattr(state, field), getattr(true, field), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(p.system.g(t, true.q, p.args), 0, atol=1e-13)
    np.testing.assert_allclose(p.system.g_dot(t, true.q, true.v, p.args), 0, atol=1e-12 * speed)
    np.testing.assert_allclose(p.system.k(t, true.q, true.v, p.args), 0, atol=1e-12)
    if p.conservative:
        first = p.energy(0.0, p.q0, p.v0, *p.args)
        assert abs(p.energy(t, true.q, true.v, *p.args) - first) < 1e-11 * max(1.0, abs(first))
    if p.reference is not None:
        start = p.reference(p.t_span[0])
        np.testing.assert_allclose(start.q, p.q0, atol=1e-15)
        np.testing.assert_allclose(start.v, p.v0, atol=1e-15)


@pytest.mark.parametrize("t", [0.01, 0.02, 0.03])
def test_published_states_fulfil_the_equations(t):
    """Values of quadruple precision against the System, all constraint levels included."""
    p = problem("andrews")
    true = {field: np.array(values) for field, values in p.published[t].items()}
    state = ga.consistent(p.system, t, true["q"], true["v"], p.args)
    np.testing.assert_allclose(state.a, true["a"], rtol=1e-11)
    np.testing.assert_allclose(state.lam, true["lam"], rtol=1e-11)
    np.testing.assert_allclose(p.system.g(t, true["q"], p.args), 0, atol=1e-16)
    np.testing.assert_allclose(p.system.g_dot(t, true["q"], true["v"], p.args), 0, atol=1e-13)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (-np.eye(2), "negative eigenvalue -1"),
        ([[1.0, 2.0], [0.0, 1.0]], r"not symmetric: mass\[0, 1\] = 2, mass\[1, 0\] = 0"),
    ],
)
def test_odd_mass_matrices_are_warned_of(matrix, message):
    force = lambda t, q, v: -q
    with pytest.warns(UserWarning, match=message):
        ga.System(matrix, force)
    for backend in ("native", "xla"):
        varying = ga.System(lambda t, q: jnp.asarray(matrix) * (2 + jnp.sin(t)) / 2, force)
        with pytest.warns(UserWarning, match="at the start"):
            ga.solve(varying, (0.0, 0.1), [1.0, 0.0], [0.0, 0.0], h=0.05, backend=backend)


def test_singular_and_nearly_symmetric_masses_are_not():
    ga.System(np.diag([1.0, 0.0]), lambda t, q, v: -q)
    ga.System(np.array([[1.0, 1e-12], [0.0, 1.0]]), lambda t, q, v: -q)
