"""Runs against independent high-accuracy integrations and published values."""

import jax
import numpy as np
import pytest

import genalpha as ga
from conftest import problem, run


@pytest.mark.parametrize(
    ("name", "t_end", "h", "tolerance"),
    [
        ("pendulum", 0.5, 5e-5, {"q": 1e-6, "v": 1e-5, "a": 1e-3, "lam": 3e-3}),
        ("rolling-disk", 3.0, 5e-4, {"q": 1e-6, "v": 1e-6, "a": 1e-5, "psi": 1e-5}),
        ("slider-crank", 0.3, 5e-5, {"q": 1e-5, "v": 1e-4, "a": 1e-2, "lam": 1e-3}),
        ("double-pendulum", 1.0, 1e-4, {"q": 1e-6, "v": 1e-6, "a": 1e-5, "lam": 1e-5}),
        ("wheel-on-rod", 2.0, 5e-4, {"q": 1e-6, "v": 1e-6, "a": 1e-6, "lam": 1e-6, "psi": 1e-6}),
    ],
)
def test_against_the_reduced_equations_of_motion(name, t_end, h, tolerance):
    sol = run(name, t_end=t_end, h=h)
    times = np.linspace(0, len(sol.t) - 1, 6).astype(int)
    true = problem(name).reference(sol.t[times])
    for field, bound in tolerance.items():
        got = getattr(sol, field)[times]
        np.testing.assert_allclose(got, getattr(true, field), atol=bound, err_msg=field)


def test_slider_crank_against_published_values():
    """φ1, φ2, x3 and derivatives of the minimal form; the run is in absolute coordinates."""
    p, which = problem("slider-crank"), [2, 5, 6]
    sol = run("slider-crank", t_end=0.3, h=2.5e-5)
    at = {round(t, 9): i for i, t in enumerate(sol.t)}
    checked = 0
    for t, values in p.published.items():
        if t > 0.3:
            continue
        for field, bound in (("q", 2e-7), ("v", 1e-5), ("a", 1e-3)):
            np.testing.assert_allclose(getattr(sol, field)[at[t], which], values[field], atol=bound)
            checked += 1
    assert checked == 15


@pytest.mark.slow
def test_slider_crank_to_the_end():
    p, which = problem("slider-crank"), [2, 5, 6]
    sol = run("slider-crank", h=2e-5, rho_inf=0.9)
    np.testing.assert_allclose(sol.q[-1, which], p.published[1.0]["q"], atol=1e-5)
    np.testing.assert_allclose(sol.v[-1, which], p.published[1.0]["v"], atol=1e-4)


def test_our_reference_of_the_slider_crank_agrees_with_the_published_one():
    p, which = problem("slider-crank"), [2, 5, 6]
    for t in (0.05, 0.1, 0.2, 0.3):
        true = p.reference(t)
        np.testing.assert_allclose(true.q[which], p.published[t]["q"], atol=1e-12)
        np.testing.assert_allclose(true.v[which], p.published[t]["v"], atol=1e-11)
        np.testing.assert_allclose(true.a[which], p.published[t]["a"], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["soi2", "index3", "stabilized"])
def test_andrews_mechanism_converges_to_values_of_quadruple_precision(method):
    """Second order in every component, at the end of two and a half turns."""
    p = problem("andrews")
    runs = [p.solve(h=0.03 / n, method=method, rho_inf=0.9) for n in (3000, 6000, 12000)]
    for field, bound in (("q", 6e-6), ("v", 3e-3), ("a", 7.0), ("lam", 5e-4)):
        true = np.array(p.published[0.03][field])
        errors = [np.abs(getattr(sol, field)[-1] - true).max() for sol in runs]
        assert errors[-1] < bound, field
        orders = np.log2(np.divide(errors[:-1], errors[1:]))
        assert np.all(np.abs(orders - 2) < 0.05), (field, orders)
    for field, bound in (("a", 1e-9), ("lam", 1e-12)):  # at the start too
        np.testing.assert_allclose(getattr(runs[0], field)[0], p.published[0.0][field], atol=bound)
    last = runs[-1]
    energy = jax.vmap(lambda t, q, v: p.energy(t, q, v, *p.args))(last.t, last.q, last.v)
    assert np.ptp(energy) < 1e-5 * 0.033 * 15.8


def test_dense_and_exact_reference_times_agree():
    p = problem("double-pendulum")
    many = p.reference(np.linspace(0, 1, 101))
    few = p.reference([0.25, 1.0])
    for field in ("q", "v", "a", "lam"):
        np.testing.assert_allclose(getattr(many, field)[[25, 100]], getattr(few, field), atol=1e-10)


COSTLY = ("body-chain", "andrews", "jay-negrut", "jay-nonholonomic", "flexible-slider-crank")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in COSTLY else ()) for name in ga.problems.names()],
)
def test_constraints_hold_at_rounding_level(name):
    sol = run(name, t_end=problem(name).t_span[1] / 4)
    assert sol.residuals.position.max() < 1e-13
    assert sol.residuals.velocity.max() < 1e-11 + 1e-12 * np.abs(sol.v).max()
    assert sol.residuals.nonholonomic.max() < 1e-11
