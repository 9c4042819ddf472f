"""First and second derivatives of whole runs against extrapolated differences of the same steps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import differences
import genalpha as ga
from differences import EXACT, OUTPUTS, gradient, richardson, weighted

CURVES = {
    "free": lambda: differences.poly(3, 0, 0),
    "holonomic": lambda: differences.poly(3, 1, 0),
    "both": lambda: differences.poly(3, 1, 1),
    "nonholonomic": lambda: differences.poly(3, 0, 1),
    "SO(3) × R²": differences.tied,
    "R³ × SO(3)": differences.top,
    "SE(3)": lambda: differences.top("top-se3"),
}
# Multipliers of index 3 have rounding errors of ε|q|/(βh²), which differences multiply by 1000.
TOLERANCE = {"index3": 1e-6, "hht-i3": 1e-6}
METHODS = ("soi2", "hht-soi2", "index3", "hht-i3", "stabilized", "dae-alpha", "cs", "cm", "projected")
FAST = {("both", "soi2"), ("SO(3) × R²", "stabilized")}


def suits(curve, method):
    if method == "generalized-alpha":
        return curve == "free"
    return curve != "free" and not (
        method in ("cs", "cm") and curve not in ("holonomic", "R³ × SO(3)", "SE(3)")
    )


CASES = [
    pytest.param(curve, method, marks=() if (curve, method) in FAST else pytest.mark.slow)
    for curve in CURVES
    for method in (*METHODS, "generalized-alpha")
    if suits(curve, method)
]
FAMILIES = {
    "chung-hulbert 0": ga.SOI2(ga.chung_hulbert(0.0)),
    "chung-hulbert 1": ga.SOI2(ga.chung_hulbert(1.0)),
    "hht": ga.SOI2(ga.hht(-0.2)),
    "wbz": ga.SOI2(ga.wbz(-0.3)),
    "not adjusted": ga.SOI2(ga.chung_hulbert(0.5), adjust=False),
}


def compare(curve, tolerance=1e-8, names=OUTPUTS, **options):
    """Reverse and forward derivatives with respect to arguments, q0 and v0."""
    number = lambda s: weighted(curve.solve(s, **options), names)
    expected = gradient(number, 3)
    assert curve.solve(np.zeros(3), **options).backend == "native"
    for derivative in (jax.grad, jax.jacfwd):
        found = derivative(number)(jnp.zeros(3))
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


@pytest.mark.parametrize(("curve", "method"), CASES)
def test_every_method_in_every_space(curve, method):
    compare(CURVES[curve](), TOLERANCE.get(method, 1e-8), method=method)


@pytest.mark.slow
def test_the_length_of_a_quaternion_changes_nothing():
    curve = differences.tied()
    q0, v0, args = curve.at(np.zeros(3))
    span = (0.0, float(curve.h.sum()))
    number = lambda q0: weighted(ga.solve(curve.system, span, q0, v0, args=args, h=curve.h, newton=EXACT))
    slope, along = jax.grad(number)(q0), q0.at[4:].set(0.0)
    assert abs(float(slope @ along)) < 1e-12 * np.linalg.norm(slope)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_of_coefficients(family):
    compare(differences.poly(), method=FAMILIES[family])


@pytest.mark.slow
@pytest.mark.parametrize("newton", [ga.Newton(tol=1e-14), ga.Newton("frozen", tol=1e-14, max_iterations=100)])
def test_every_policy_of_newton(newton):
    compare(differences.poly(), newton=newton)


@pytest.mark.parametrize("method", ["soi2", pytest.param("index3", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({"save": "final"}, marks=pytest.mark.slow),
        {"t_eval": np.array([0.0, 0.04, 0.043, 0.11, 0.148])},
        pytest.param({}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_error_control_is_differentiated_with_the_steps_that_it_took(method, kept):
    curve, control = differences.poly(), {"rtol": 1e-3, "method": method}
    steps = np.diff(curve.solve(np.zeros(3), **control).t)
    assert len(np.unique(steps)) > 3
    steps[-1] += curve.h.sum() - steps.sum()
    row = slice(None) if kept else slice(-1, None)  # rows after the end repeat the last one
    number = functools.partial(weighted, rows=row)
    expected = gradient(lambda s: number(curve.solve(s, h=steps, method=method, **kept)), 3)
    traced = jax.jit(lambda s: curve.solve(s, **control, **kept))
    assert traced(jnp.zeros(3)).backend == "native"
    for derivative in (jax.grad, jax.jacfwd):
        found = jax.jit(derivative(lambda s: number(curve.solve(s, **control, **kept))))(jnp.zeros(3))
        tolerance = TOLERANCE.get(method, 1e-7)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def test_sizes_of_steps():
    """With respect to every step: pairs of them, so that their sum stays the time span."""
    curve = differences.poly()
    number = lambda h: weighted(curve.solve(np.zeros(3), h=h), ("q", "v", "a_alpha", "lam"))
    span = float(curve.h.sum())
    whole = lambda h: (jnp if isinstance(h, jax.Array) else np).append(h, span - h.sum())
    expected = gradient(lambda e: number(whole(curve.h[:-1] + e)), len(curve.h) - 1, 0.002)
    for derivative in (jax.grad, jax.jacfwd):
        found = derivative(lambda h: number(whole(h)))(jnp.array(curve.h[:-1]))
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inner", "outer"), [(jax.jacrev, jax.jacfwd), (jax.jacfwd, jax.jacfwd), (jax.jacfwd, jax.jacrev)]
)
@pytest.mark.parametrize("curve", ["both", "SO(3) × R²"])
def test_second_derivatives(curve, inner, outer):
    number = lambda s: weighted(CURVES[curve]().solve(s))
    slopes = jax.jit(jax.grad(number))
    expected = gradient(lambda s: slopes(jnp.asarray(s)), 3)
    found = jax.jit(outer(inner(number)))(jnp.zeros(3))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6 * np.abs(expected).max())
    np.testing.assert_allclose(found, found.T, rtol=1e-7, atol=1e-7 * np.abs(expected).max())


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_random_systems_pass_the_check_of_jax(seed):
    curve = differences.poly(3, 1, 1, seed=10 + seed)
    number = lambda s: weighted(curve.solve(s)) / 100
    check_grads(number, (jnp.zeros(3),), order=1, modes=("fwd", "rev"), eps=1e-5, atol=1e-4, rtol=1e-4)


@pytest.mark.slow
def test_complex_steps_agree():
    """q'' = −k sin q by the trapezoidal rule in complex numbers, written here."""
    system = ga.System(np.eye(1), lambda t, q, v, k: -k * jnp.sin(q))
    h, steps = 0.1, 8

    def angle(k):
        q, v = 1.0 + 0j, 0j
        a = -k * np.sin(q)
        for _ in range(steps):
            new = a
            for _ in range(60):  # a contraction
                new = -k * np.sin(q + h * v + h**2 / 4 * (a + new))
            q, v, a = q + h * v + h**2 / 4 * (a + new), v + h / 2 * (a + new), new
        return q

    options = {"h": h, "method": ga.GeneralizedAlpha(ga.trapezoidal()), "newton": EXACT}
    run = lambda k: ga.solve(system, (0, 0.8), [1.0], [0.0], args=(k,), **options).q[-1, 0]
    expected = np.imag(angle(2.0 + 1e-100j)) / 1e-100
    assert float(run(2.0)) == pytest.approx(np.real(angle(2.0)), rel=1e-13)
    assert float(jax.grad(run)(2.0)) == pytest.approx(expected, rel=1e-12)
    slope = jax.jit(jax.grad(run))
    second = richardson(lambda e: slope(2.0 + e), 0.05)
    assert float(jax.jit(jax.hessian(run))(2.0)) == pytest.approx(float(second), rel=1e-9)
