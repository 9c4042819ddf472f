"""Accelerations and multipliers of a row are as right as its q and v."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from conftest import problem
from genalpha.engine.interpolate import StepEnd

METHODS = ["soi2", "hht-soi2", "index3", "stabilized", "dae-alpha", "cs", "cm", "projected"]
DRIVEN = ga.System(  # a point on a crank whose angle is 2 t²
    jnp.eye(3),
    lambda t, q, v: jnp.array([0.0, -9.81, 0.0]),
    lambda t, q: jnp.array([q[0] - jnp.cos(q[2]), q[1] - jnp.sin(q[2]), q[2] - 2 * t**2]),
)
START = ([1.0, 0.0, 0.0], [0.0, 0.0, 0.0])


def torque(t):
    return 8 + 9.81 * np.cos(2 * np.asarray(t) ** 2)


def drive(t_span=(0.0, 2.0), **options):
    return ga.solve(DRIVEN, t_span, *START, **options)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        # hht-soi2 and cm are soi2 and cs with other coefficients, or another matrix.
        pytest.param(m, o, marks=pytest.mark.slow if m in ("hht-soi2", "cm") else (), id=f"{o}-{m}")
        for m in METHODS
        for o in ({}, {"h": 0.1})
    ],
)
def test_the_torque_of_a_prescribed_motion_is_exact(method, options):
    """q and v are given by the constraints, however long the steps are."""
    sol = drive(method=method, **options)
    velocity = sol.residuals.velocity.max()  # index 3 and its kin do not satisfy the velocity constraints
    tolerance = 1e-9 + 40 * velocity
    np.testing.assert_allclose(-sol.lam[:, 2], torque(sol.t), atol=tolerance)
    np.testing.assert_allclose(sol.reactions.total[:, 2], 4.0, atol=tolerance)
    np.testing.assert_allclose(sol.a[:, 2], 4.0, atol=tolerance)
    if method == "soi2" and not options:
        assert sol.stats.steps < 200
        assert np.abs(-sol.lam_method[:, 2] - torque(sol.t)).max() > 1e-3  # the method's own


@pytest.mark.parametrize("backend", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_the_same_everywhere(backend, tmp_path):
    times, seen = np.linspace(0.0, 2.0, 9), []
    sol = drive(h=0.01, backend=backend, callback=seen.append, callback_every=50)
    for state in seen:
        np.testing.assert_allclose(-state.lam[2], torque(state.t), atol=1e-9)
        np.testing.assert_allclose(state.a[2], 4.0, atol=1e-9)
    for dense in (sol, drive(h=0.01, t_eval=[0.5], dense_output=True, backend=backend)):
        np.testing.assert_allclose(-dense(times).lam[:, 2], torque(times), atol=1e-5)  # of q and v there
        np.testing.assert_allclose(-dense(0.503).lam[2], torque(0.503), atol=1e-5)
        dense.save(tmp_path / "sol.npz")
        again = ga.load(tmp_path / "sol.npz")
        np.testing.assert_allclose(-again(times).lam[:, 2], torque(times), atol=2e-3)  # linear between rows
    sampled = drive(h=0.01, t_eval=times, backend=backend)
    np.testing.assert_allclose(-sampled.lam[:, 2], torque(times), atol=1e-5)
    many = ga.solve_batch(DRIVEN, (0.0, 2.0), [START[0]] * 3, START[1], h=0.05, save="all", backend=backend)
    np.testing.assert_allclose(-many.lam[1, :, 2], torque(many.t[1]), atol=1e-9)
    np.testing.assert_array_equal(many[1].lam, many.lam[1])


@pytest.mark.slow
def test_under_transforms():
    sol, between = jax.jit(lambda h: (sol := drive(h=h), sol(0.503).lam))(np.full(200, 0.01))
    np.testing.assert_allclose(-sol.lam[:, 2], torque(sol.t), atol=1e-9)
    np.testing.assert_allclose(-between[2], torque(0.503), atol=1e-5)
    plain = drive(h=0.01)
    slope = jax.jit(jax.grad(lambda t: -plain(t).lam[2]))(1.0)
    assert slope == pytest.approx(-9.81 * 4 * np.sin(2.0), rel=1e-3)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        *(("wheel-on-rod", "soi2"), ("double-pendulum", "index3")),
        pytest.param("double-pendulum", "soi2", marks=pytest.mark.slow),
        pytest.param("wheel-on-rod", "index3", marks=pytest.mark.slow),
        *(pytest.param(n, "stabilized", marks=pytest.mark.slow) for n in ("double-pendulum", "wheel-on-rod")),
    ],
)
def test_errors_of_multipliers_are_those_of_q_and_v(name, method):
    """Under error control the λ of index 3 was wrong by up to a hundred times more than its q and v."""
    p = problem(name)
    sol = p.solve(t_end=p.t_span[0] + 1.0, rtol=1e-5, method=method)
    true = p.reference(sol.t)
    size = lambda x: np.sqrt(np.mean(np.square(x)))
    relative = lambda part: size(getattr(sol, part) - getattr(true, part)) / size(getattr(true, part))
    motion = relative("q") + relative("v")
    for part in ("a", "lam", "psi"):
        if getattr(sol, part).size:
            assert relative(part) < 4 * motion, part


def test_a_reaction_of_the_users_own_keeps_its_branch():
    """A force λ|λ| along the rod: the solution with the sign of the method's own λ is found."""
    system = ga.System(
        jnp.eye(2),
        lambda t, q, v: jnp.array([0.0, -9.81]),
        lambda t, q: jnp.array([q @ q - 1.0]),
        reaction=lambda t, q, v, lam, psi: -2 * q * lam[0] * jnp.abs(lam[0]),
    )
    sol = ga.solve(system, (0.0, 0.5), [1.0, 0.0], [0.0, -2.0], h=0.01, multipliers=([1.0], []))
    plain = ga.solve(systems.pulled(), (0.0, 0.5), [1.0, 0.0], [0.0, -2.0], h=0.01, args=(9.81,))
    np.testing.assert_allclose(sol.lam * np.abs(sol.lam), plain.lam, atol=1e-3)
    hidden = np.sum(sol.q * sol.a, axis=1) + np.sum(sol.v**2, axis=1)
    np.testing.assert_allclose(hidden, 0.0, atol=1e-9)


@pytest.mark.parametrize("backend", ["native", pytest.param("xla", marks=pytest.mark.slow)])
def test_where_the_equations_have_no_solution_the_methods_own_are_kept(backend):
    """q₀ q₁ = 0 has no normal in the origin."""
    cross = ga.System(
        jnp.eye(2), lambda t, q, v: jnp.array([1.0, -9.81]), lambda t, q: jnp.array([q[0] * q[1]])
    )
    sol = ga.solve(cross, (0.0, 0.1), [0.0, -1.0], [0.0, 0.0], h=0.05, backend=backend)
    at = StepEnd(
        *map(np.array, ([1.0, 2.0], [[0.0, -0.5], [0.0, 0.0]], np.zeros((2, 2)), [[7.0], [7.0]])),
        np.zeros((2, 0)),
    )
    found = sol._equations(at)
    np.testing.assert_allclose(found.lam, [[-2.0], [7.0]], rtol=1e-12)
    np.testing.assert_allclose(found.reaction, [[-1.0, 0.0], [0.0, 0.0]], atol=1e-12)
    np.testing.assert_allclose(found.a[0], [0.0, -9.81], atol=1e-12)
    assert np.isnan(found.a[1]).all()
