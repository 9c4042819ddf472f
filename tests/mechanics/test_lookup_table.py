"""Tables of one and two inputs, and warnings when a run has left one."""

import pickle
import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.interpolate import CubicSpline, RegularGridInterpolator

import genalpha as ga

RNG = np.random.default_rng(3)
X, W = (np.linspace(a, b, n) + 0.1 * RNG.uniform(-0.5, 0.5, n) for a, b, n in ((0, 3, 25), (-1, 1, 12)))
Y, Z = RNG.normal(size=25), RNG.normal(size=(25, 12))
AT = np.linspace(X[0], X[-1], 301)


@pytest.mark.parametrize("ends", ["not-a-knot", "natural"])
def test_cubic_splines_are_those_of_scipy(ends):
    table, wanted = ga.LookupTable(X, Y, ends=ends), CubicSpline(X, Y, bc_type=ends)
    assert np.abs(table(AT) - wanted(AT)).max() < 1e-14 * np.abs(wanted(AT)).max()
    slope = jax.vmap(jax.grad(table))(AT)
    assert np.abs(slope - wanted(AT, 1)).max() < 1e-13 * np.abs(slope).max()


def test_lines_and_grids_are_those_of_scipy():
    assert np.abs(ga.LookupTable(X, Y, "linear")(AT) - np.interp(AT, X, Y)).max() < 1e-14
    a, b = RNG.uniform(X[0], X[-1], 200), RNG.uniform(W[0], W[-1], 200)
    wanted = RegularGridInterpolator((X, W), Z)(np.stack([a, b], axis=1))
    assert np.abs(ga.LookupTable((X, W), Z, "linear")(a, b) - wanted).max() < 1e-14
    wanted = np.array([CubicSpline(W, row)(w) for row, w in zip(CubicSpline(X, Z)(a), b, strict=True)])
    assert np.abs(ga.LookupTable((X, W), Z)(a, b) - wanted).max() < 1e-13 * np.abs(wanted).max()


def test_outside_of_the_inputs():
    low, high, spline = X[0] - 0.5, X[-1] + 0.5, CubicSpline(X, Y)
    assert ga.LookupTable(X, Y)(np.array([low, high])) == pytest.approx(Y[[0, -1]])
    tangents = [spline(X[0]) - 0.5 * spline(X[0], 1), spline(X[-1]) + 0.5 * spline(X[-1], 1)]
    assert ga.LookupTable(X, Y, outside="linear")(np.array([low, high])) == pytest.approx(tangents)
    stops = ga.LookupTable(X, Y, outside="error")
    assert np.isnan(stops(high))
    assert stops(X[-1]) == pytest.approx(Y[-1])
    assert pickle.loads(pickle.dumps(stops))(1.0) == stops(1.0)


GRID = np.linspace(-1.0, 1.0, 21)
SPRING = ga.LookupTable(GRID, np.sinh(GRID), outside="linear", name="spring")
DAMPER = ga.LookupTable((GRID, 3 * GRID), np.add.outer(GRID**2, 3 * GRID), name="damper")
MASS = ga.System(jnp.eye(1), lambda t, q, v, k: -k * SPRING(q) - 0.1 * DAMPER(q[0], v[0]))


def test_tables_are_native_and_a_run_that_leaves_one_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sol = ga.solve(MASS, (0.0, 2.0), [0.5], [0.0], h=0.02, args=(2.0,))
    assert sol.backend == "native"
    near = ga.System(jnp.eye(1), lambda t, q, v: -2 * jnp.sinh(q) - 0.1 * (q**2 + v))
    assert sol.q[-1] == pytest.approx(ga.solve(near, (0.0, 2.0), [0.5], [0.0], h=0.02).q[-1], abs=1e-5)
    told = r"the table 'spring' with inputs from -1 to 1 was left, first at t = 0: .* to 1.2. .* are linear"
    with pytest.warns(UserWarning, match=told), pytest.warns(UserWarning, match="'damper'"):
        ga.solve(MASS, (0.0, 2.0), [1.2], [0.0], h=0.02, args=(2.0,))


@pytest.mark.slow
def test_derivatives_through_a_table():
    last = lambda k: ga.solve(MASS, (0.0, 1.0), [0.5], [0.0], h=0.02, args=(k,)).q[-1, 0]
    assert jax.grad(last)(2.0) == pytest.approx(float((last(2 + 1e-5) - last(2 - 1e-5)) / 2e-5), rel=1e-6)


@pytest.mark.slow
def test_a_run_that_needs_missing_values_stops_and_names_the_table():
    short = ga.LookupTable(GRID, GRID, outside="error", name="valve")
    system = ga.System(jnp.eye(1), lambda t, q, v: -short(q))
    with pytest.raises(ga.IntegrationError) as caught:
        ga.solve(system, (0.0, 5.0), [0.0], [2.0], h=0.01)
    assert "the table 'valve' has no values outside of its inputs, -1 to 1" in caught.value.__notes__[0]


BAD = {
    "x of the table 'a' must increase, but x[1] = 2 and x[2] = 1": ([0, 2, 1], [0, 1, 2]),
    "y of the table 'a' holds NaN or infinite values, the first at [1]": ([0, 1, 2], [0, np.nan, 2]),
    "y of the table 'a' must have shape (3,) to fit to x, got (2,)": ([0, 1, 2], [0, 1]),
    "x of the table 'a' must list at least two inputs": ([0], [0]),
    "x[1] of the table 'a' must increase": (([0, 1], [1, 1]), np.zeros((2, 2))),
    "y of the table 'a' must have shape (2, 3)": (([0, 1], [0, 1, 2]), np.zeros((3, 2))),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_tables_are_named(message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ga.LookupTable(*BAD[message], name="a")


def test_wrong_choices_are_named():
    with pytest.raises(ValueError, match="kind of a table must be one of linear, cubic; got 'spline'"):
        ga.LookupTable([0, 1], [0, 1], "spline")
    with pytest.raises(TypeError, match="the table 'spring' takes 1 inputs, got 2"):
        SPRING(0.0, 1.0)
