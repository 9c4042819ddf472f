"""Every method on Lie groups: orders against independent references, invariants, derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import ellipj, ellipk

import genalpha as ga
from conftest import problem
from genalpha.convergence import slope, study
from problem_energies import energies

slow = pytest.mark.slow
TOPS = {"R3xSO3": {}, "SE3": {"space": "SE3"}}
METHODS = {
    "index3": ga.Index3(ga.chung_hulbert(0.9)),
    "stabilized": ga.StabilizedIndex2(ga.chung_hulbert(0.9)),
    "soi2": ga.SOI2(ga.chung_hulbert(0.9)),
}


@functools.cache
def top_runs(space, method):
    p = problem("heavy-top", **TOPS[space])
    return [p.solve(h=h, method=METHODS[method]) for h in (2e-3, 1e-3, 5e-4, 2.5e-4)]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("space", ["R3xSO3", pytest.param("SE3", marks=slow)])
def test_heavy_top_is_of_second_order_against_published_values(space, method):
    """x, R, Ω, λ at t = 1 with ρ∞ = 0.9, against values to 20 digits that were computed elsewhere."""
    end = problem("heavy-top").published[1.0]
    R = ga.rotation.matrix(jnp.array(end["q"][3:]))
    runs = top_runs(space, method)
    errors = {
        "x": [np.linalg.norm(sol.q[-1, :3] - end["q"][:3]) for sol in runs],
        "R": [np.linalg.norm(ga.rotation.matrix(sol.q[-1, 3:]) - R) for sol in runs],
        "Ω": [np.linalg.norm(sol.v[-1, 3:] - end["v"][3:]) for sol in runs],
        "λ": [np.linalg.norm(sol.lam[-1] - end["lam"]) for sol in runs],
    }
    for name, error in errors.items():
        assert slope([2e-3, 1e-3, 5e-4, 2.5e-4], error) == pytest.approx(2.0, abs=0.15), (name, error)


@pytest.mark.parametrize("method", METHODS)
def test_constraint_residuals_of_the_heavy_top(method):
    """Positions hold for every method, velocities for all but index 3, where h² B r is left."""
    runs = top_runs("R3xSO3", method)
    for sol in runs:
        assert sol.residuals.position.max() < 1e-14
        assert np.abs(np.linalg.norm(sol.q[:, 3:], axis=1) - 1).max() < 1e-15
    worst = [sol.residuals.velocity.max() for sol in runs]
    if method == "index3":
        assert slope([2e-3, 1e-3, 5e-4, 2.5e-4], worst) == pytest.approx(2.0, abs=0.1)
    else:
        assert max(worst) < 5e-12


@pytest.mark.slow
def test_published_and_integrated_references_agree():
    p = problem("heavy-top")
    true = p.reference(list(p.published))
    for i, values in enumerate(p.published.values()):
        for field, bound in (("q", 1e-11), ("v", 1e-10), ("a", 1e-8), ("lam", 1e-8)):
            np.testing.assert_allclose(getattr(true, field)[i], values[field], atol=bound)


# problem, its parameters, method, coarsest step, end, pattern of steps
RHO = ga.chung_hulbert(0.6)
CASES = [
    ("heavy-top", {"space": "SE3"}, ga.SOI2(RHO), 1e-3, 0.3, (1.0,)),
    ("heavy-top", {}, ga.SOI2(RHO), 1e-3, 0.3, (1 / 3, 2 / 3)),
    ("heavy-top", {}, ga.StabilizedIndex2(RHO), 1e-3, 0.3, (1 / 3, 2 / 3)),
    ("heavy-top", {}, ga.HHTSOI2(-0.1), 1e-3, 0.3, (1.0,)),
    ("heavy-top", {}, ga.HHTI3(-0.1), 1e-3, 0.3, (1.0,)),
    ("rolling-disk", {"space": "R3xSO3"}, ga.SOI2(RHO), 8e-3, 2.0, (1.0,)),
    ("rolling-disk", {"space": "R3xSO3"}, ga.SOI2(RHO, reduced=True), 8e-3, 2.0, (1 / 3, 2 / 3)),
    ("rolling-disk", {"space": "R3xSO3"}, ga.StabilizedIndex2(RHO), 8e-3, 2.0, (1.0,)),
    ("rolling-disk", {"space": "R3xSO3"}, ga.Index3(RHO), 8e-3, 2.0, (1.0,)),
    ("rolling-disk", {"sense": -1.0}, ga.StabilizedIndex2(RHO), 8e-3, 2.0, (1.0,)),
    ("rigid-body", {}, ga.GeneralizedAlpha(RHO), 0.02, 2.0, (1.0,)),
    ("rigid-body", {}, ga.Index3(RHO), 0.02, 2.0, (1 / 3, 2 / 3)),
    ("body-chain", {}, ga.SOI2(RHO), 4e-3, 0.5, (1.0,)),
    ("body-chain", {}, ga.Index3(RHO), 4e-3, 0.5, (1.0,)),
    ("body-chain", {}, ga.StabilizedIndex2(RHO), 4e-3, 0.5, (1 / 3, 2 / 3)),
    ("wheel-on-rod", {}, ga.StabilizedIndex2(RHO), 0.01, 1.0, (1 / 3, 2 / 3)),
    ("wheel-on-rod", {}, ga.Index3(RHO), 0.01, 1.0, (1.0,)),
    ("jay-negrut", {}, ga.StabilizedIndex2(RHO), 0.01, 1.0, (1.0,)),
    ("jay-negrut", {}, ga.Index3(RHO), 0.01, 1.0, (1.0,)),
    ("jay-nonholonomic", {}, ga.Index3(RHO), 0.01, 1.0, (1.0,)),
    ("slider-crank", {}, ga.Index3(RHO), 1e-3, 0.2, (1.0,)),
    ("slider-crank", {}, ga.StabilizedIndex2(RHO), 1e-3, 0.2, (1.0,)),
]
FAST = {5, 10, 16}


@pytest.mark.parametrize(
    ("name", "parameters", "method", "coarsest", "t_end", "pattern"),
    [
        pytest.param(
            *case,
            marks=() if i in FAST else slow,
            id=f"{case[0]}-{'-'.join(map(str, case[1].values()))}-{case[2].name}-{i}",
        )
        for i, case in enumerate(CASES)
    ],
)
def test_second_order_in_every_component(name, parameters, method, coarsest, t_end, pattern):
    steps = [coarsest / 2**i for i in range(4)]
    result = study(problem(name, **parameters), method, h=steps, t_end=t_end, pattern=pattern)
    for component, value in result.slopes.items():
        assert value == pytest.approx(2.0, abs=0.15), f"{component}\n{result.table()}"


def test_energy_and_momentum_of_a_free_body():
    """Both are kept to second order."""
    p = problem("rigid-body")
    keep = jax.jit(jax.vmap(p.momentum, in_axes=(0, 0, 0, None)))
    drifts = []
    for h in (0.02, 0.01):
        sol = p.solve(h=h, method="generalized-alpha", rho_inf=1.0)
        momentum = keep(sol.t, sol.q, sol.v, *p.args)
        energy = energies(p, sol.t, sol.q, sol.v)
        drifts.append([np.abs(momentum - momentum[0]).max(), np.abs(energy - energy[0]).max()])
    np.testing.assert_allclose(np.divide(*drifts), 4.0, rtol=0.1)
    assert drifts[1][1] < 2e-4 * float(energy[0])


def test_the_reference_of_the_free_body_against_elliptic_functions():
    """Ω = (A₁ cn, A₂ sn, A₃ dn) up to signs (Landau & Lifshitz §37, for L² > 2 E J₂)."""
    p = problem("rigid-body")
    J, v = p.args[0], p.v0
    E2, L2 = float(v @ (J * v)), float((J * v) @ (J * v))
    small, large = E2 * J[2] - L2, L2 - E2 * J[0]
    assert E2 * J[1] < L2 < E2 * J[2]
    squares = [small / (J[0] * (J[2] - J[0])), small / (J[1] * (J[2] - J[1])), large / (J[2] * (J[2] - J[0]))]
    k2 = (J[1] - J[0]) * small / ((J[2] - J[1]) * large)
    rate = np.sqrt((J[2] - J[1]) * large / np.prod(J))

    def shape(tau):
        sn, cn, dn, _ = ellipj(tau, k2)
        return np.sqrt(squares) * [cn, sn, dn]

    # The phase at the start lies on either side of the turning point of the middle axis.
    early = brentq(lambda tau: shape(tau)[1] - v[1], 0.0, ellipk(k2))
    t = np.linspace(0, 10, 11)
    omega = np.abs(p.reference(t).v)
    gaps = [
        np.abs(omega - np.abs([shape(tau + rate * x) for x in t])).max()
        for tau in (early, 2 * ellipk(k2) - early)
    ]
    assert min(gaps) < 1e-9


@pytest.mark.slow
def test_the_disk_is_the_same_in_coordinates_and_on_the_group():
    """Two formulations, two runs: contact point and axis agree to second order."""
    flat, body = problem("rolling-disk", sense=-1.0), problem("rolling-disk", space="R3xSO3")
    gaps = []
    for h in (4e-3, 2e-3):
        a, b = flat.solve(t_end=2.0, h=h), body.solve(t_end=2.0, h=h)
        y = a.q[-1]
        axis = [-np.cos(y[2]) * np.sin(y[3]), np.cos(y[2]) * np.cos(y[3]), -np.sin(y[2])]
        up = np.array([-np.sin(y[2]) * np.sin(y[3]), np.sin(y[2]) * np.cos(y[3]), np.cos(y[2])])
        gaps.append(np.linalg.norm(ga.rotation.rotate(b.q[-1, 3:], [0.0, 1.0, 0.0]) - np.array(axis)))
        centre = np.array([y[0], y[1], 0.0]) + up
        gaps[-1] += np.linalg.norm(b.q[-1, :3] - centre)
        assert b.residuals.position.max() < 1e-13
        assert b.residuals.nonholonomic.max() < 1e-11
        energy = [float(body.energy(0.0, b.q[i], b.v[i], *body.args)) for i in (0, -1)]
        assert energy[1] == pytest.approx(energy[0], rel=1e-5)
    assert gaps[0] < 1e-3
    assert gaps[0] / gaps[1] == pytest.approx(4.0, rel=0.2)


def test_the_printed_disk_is_not_a_rigid_body():
    """J11 (7.2): with the printed sign of the spin the contact point moves otherwise than on the group."""
    printed, rigid = problem("rolling-disk", spin=3.0), problem("rolling-disk", sense=-1.0)
    np.testing.assert_allclose(printed.v0[:2], rigid.v0[:2])  # the same motion of the contact point at first
    gap = printed.reference(1.0).q[:4] - rigid.reference(1.0).q[:4]
    assert np.abs(gap).max() > 0.01


def test_eta_is_an_extra_of_size_h_squared():
    runs = top_runs("R3xSO3", "stabilized")
    eta = [sol.extra["eta"] for sol in runs]
    assert eta[0].shape == (501, 3)
    assert not eta[0][0].any()
    sizes = [np.abs(values[1:]).max() for values in eta]
    assert slope([2e-3, 1e-3, 5e-4, 2.5e-4], sizes) == pytest.approx(2.0, abs=0.1)
    assert runs[0].extra.keys() == {"eta"}
    assert top_runs("R3xSO3", "soi2")[0].extra == {}


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=slow) for name in ("index3", "stabilized", "soi2")]
)
def test_gradients_on_a_lie_group(method):
    """With respect to a parameter and to the start, along a direction that stays on the constraints."""
    p = problem("heavy-top")
    weights = jnp.array([1.0, -0.5, 2.0])

    def end(m, turn):
        q0 = ga.R3xSO3().retract(
            jnp.asarray(p.q0), jnp.concatenate([jnp.zeros(3), jnp.array([turn, 0.0, 0.0])])
        )
        X = ga.rotation.rotate(q0[3:], jnp.array([0.0, 1.0, 0.0]))
        q0 = q0.at[:3].set(X)
        spin = jnp.array([0.0, 20.0, -4.0])
        v0 = jnp.concatenate(
            [ga.rotation.rotate(q0[3:], ga.rotation.cross(spin, jnp.array([0.0, 1.0, 0.0]))), spin]
        )
        sol = ga.solve(
            p.system, (0.0, 0.1), q0, v0, h=5e-3, method=METHODS[method], args=({"m": m, "g": 9.81},)
        )
        return weights @ sol.q[-1, :3] + 1e-3 * weights @ sol.lam[-1] + weights @ sol.v[-1, 3:]

    gradient = jax.jit(jax.grad(end, argnums=(0, 1)))(15.0, 0.1)
    value = jax.jit(end)
    for i, (e, expected) in enumerate(zip((1e-4, 1e-5), gradient, strict=True)):
        shift = np.eye(2)[i] * e
        central = (value(*(np.array([15.0, 0.1]) + shift)) - value(*(np.array([15.0, 0.1]) - shift))) / (
            2 * e
        )
        assert float(expected) == pytest.approx(float(central), rel=1e-6)


@pytest.mark.slow
def test_a_batch_on_a_lie_group_equals_single_runs():
    p = problem("rigid-body")
    spins = jnp.stack([p.v0 * factor for factor in (0.5, 1.0, 1.5)])
    run = lambda v0: ga.solve(p.system, (0.0, 1.0), p.q0, v0, h=0.02, method="index3", args=p.args)
    batch = jax.jit(jax.vmap(run))(spins)
    for i, v0 in enumerate(spins):
        single = run(np.asarray(v0))
        np.testing.assert_allclose(batch[i].q, single.q, atol=1e-9)


def test_the_euclidean_case_costs_nothing_extra():
    """Spaces leave no trace in a flat run: no quaternion, no sine, no check of turns."""
    text = str(jax.make_jaxpr(lambda q, d: ga.Euclidean(3).retract(q, d))(jnp.ones(3), jnp.ones(3)))
    assert text.count("add") == 1
    for empty in (ga.Euclidean(3).turns(jnp.ones(3)), ga.Euclidean(3).defect(jnp.ones(3))):
        assert empty.size == 0
