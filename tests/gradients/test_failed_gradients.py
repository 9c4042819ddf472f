"""Runs that fail under transforms: a status, and NaN in all derivatives. Starts and pivots that are bad."""

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from genalpha.numerics import codes

KINDS = {
    "given": {"h": 0.1},
    "all": {"rtol": 1e-3},
    "times": {"rtol": 1e-3, "t_eval": [0.1, 0.9]},
    "final": {"rtol": 1e-3, "save": "final"},
}


def failing(q0, end, **options):
    return ga.solve(systems.ending(), (0.0, 1.0), q0, jnp.zeros(2), args=(end,), **options)


SLOW = ("all", "times")


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=pytest.mark.slow if k in SLOW else ()) for k in KINDS]
)
def test_a_run_that_stops_has_no_derivative_in_any_row(kind):
    """Not even in rows before the failure, whose values are finite."""
    run, q0 = functools.partial(failing, **KINDS[kind]), jnp.array([1.0, 0.0])
    sol = jax.jit(run)(q0, 0.5)
    assert sol.backend == "native"
    assert not sol.success
    assert np.isnan(sol.q[-1]).all()
    assert np.isfinite(jax.jit(run)(q0, 2.0).q).all()
    for row in (0, -1):
        number = lambda q0, end, row=row: run(q0, end).q[row, 0]
        for derivative in (jax.grad, jax.jacfwd):
            assert np.isnan(derivative(number, 1)(q0, 0.5))
            assert np.isnan(derivative(number)(q0, 0.5)).any()
            assert np.isfinite(derivative(number)(q0, 2.0)).all()


def ending_at(most, k, **options):
    run = functools.partial(ga.solve, systems.spring(), (0.0, 1.0), [1.0], [0.0], args=(k,), rtol=1e-4)
    return run(max_steps=most, **options).q[-1, 0]


@pytest.mark.parametrize("kept", [{}, {"save": "final"}, {"t_eval": [1.0]}], ids=str)
def test_too_many_steps_give_nan_in_value_and_derivative(kept):
    for most, fine in ((5, False), (400, True)):
        value, slope = jax.jit(jax.value_and_grad(functools.partial(ending_at, most, **kept)))(2.0)
        assert bool(np.isfinite(value)) == bool(np.isfinite(slope)) == fine


def test_only_all_rows_have_a_bound_of_their_own():
    """More than 4096 steps: rows at given times need no memory for them, and have their derivatives."""
    times, k = np.linspace(0, 10, 11), 4.0
    run = functools.partial(ga.solve, systems.spring(), (0.0, 10.0), jnp.ones(1), jnp.zeros(1), rtol=1e-7)
    loss = lambda k: jnp.mean(run(args=(k,), t_eval=times).q ** 2)
    assert run(args=(k,), save="final").stats.steps > 4096
    found = jax.jit(jax.value_and_grad(loss))(k)
    cosine = np.cos(2 * times)  # q = cos √k t
    slope = np.mean(-cosine * times * np.sin(2 * times) / 2)
    np.testing.assert_allclose(found, [np.mean(cosine**2), slope], rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["start", "steps", "number of steps"])
def test_second_derivatives_of_failed_runs_are_not_finite_either(kind):
    circle = functools.partial(ga.solve, systems.circle(), (0.0, 0.3))
    from_q0 = lambda q0: circle(q0, jnp.zeros(2), h=0.1).q[-1, 0]
    with_h = lambda h: circle([1.0, 0.0], [0.0, 0.0], h=h).q[-1, 0]
    function, bad = {
        "start": (from_q0, jnp.array([1.1, 0.0])),
        "steps": (with_h, jnp.array([0.1, 0.1, 0.2])),
        "number of steps": (functools.partial(ending_at, 5, save="final"), jnp.array(2.0)),
    }[kind]
    assert np.isnan(jax.grad(function)(bad)).all()
    assert np.isnan(jax.jit(jax.hessian(function))(bad)).all()


# --- starts ---------------------------------------------------------------------------------------------


def slope_of(mass, force, **options):
    """Two bodies on a slope, x = y/2: (1 + mass/4) y'' = force."""
    sol = ga.solve(_slope(), (0.0, 1.0), jnp.zeros(2), jnp.zeros(2), args=(mass, force), **options)
    return sol.q[-1, 1] + sol.a[-1, 1]


@functools.cache
def _slope():
    return ga.System(
        lambda t, q, mass, force: jnp.diag(jnp.stack([mass, jnp.ones_like(mass)])),
        lambda t, q, v, mass, force: jnp.stack([jnp.zeros_like(force), force]),
        lambda t, q, mass, force: jnp.array([q[0] - 0.5 * q[1]]),
    )


@pytest.mark.parametrize("options", [{"h": 0.1}, {"rtol": 1e-4, "save": "final"}], ids=str)
@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd])
def test_pivots_of_the_start_that_are_bad_for_other_arguments(derivative, options):
    """Without a mass of the first body, its pivot is zero."""
    found = jax.jit(derivative(functools.partial(slope_of, **options), (0, 1)))
    for mass in (1.0, 0.0, 2.0, 0.0, 1e-9):
        by = 1 + mass / 4
        np.testing.assert_allclose(found(mass, 2.0), [-2 * 1.5 / 4 / by**2, 1.5 / by], rtol=1e-9)


def heavy(mass, **options):
    return ga.solve(_heavy(), (0.0, 0.5), jnp.ones(1), jnp.zeros(1), args=(mass,), **options)


@functools.cache
def _heavy():
    return ga.System(lambda t, q, mass: mass * jnp.eye(1), lambda t, q, v, mass: -q)


@pytest.mark.parametrize("options", [{"h": 0.1}, {"rtol": 1e-3, "save": "final"}], ids=str)
def test_a_start_that_is_singular_or_no_number_becomes_a_status(options):
    """Whether the first run or a later one starts so, alone or in a batch."""
    _heavy.cache_clear()
    run = functools.partial(heavy, **options)
    end = lambda mass: run(mass).q[-1, 0]
    assert int(jax.jit(run)(0.0).status) == codes.SINGULAR
    assert float(jax.jit(end)(1.0)) == pytest.approx(np.cos(0.5), abs=1e-2)
    assert int(jax.jit(run)(np.nan).status) == codes.NOT_FINITE
    batch = jax.jit(jax.vmap(run))(jnp.array([1.0, 0.0, np.nan, 4.0]))
    assert batch.status.tolist() == [codes.SUCCESS, codes.SINGULAR, codes.NOT_FINITE, codes.SUCCESS]
    assert np.isnan(batch.q[:, -1, 0]).tolist() == [False, True, True, False]
    for derivative in (jax.grad, jax.jacfwd):
        slopes = jax.vmap(derivative(end))(jnp.array([1.0, 0.0, np.nan]))
        assert np.isnan(slopes).tolist() == [False, True, True]


def test_a_start_off_the_constraints_is_projected():
    run = functools.partial(ga.solve, systems.circle(), (0.0, 0.2), v0=jnp.array([0.1, 1.0]), h=0.1)
    off = jnp.array([1.1, 0.0])
    expected = run(q0=np.asarray(off), initial="project").q
    np.testing.assert_allclose(jax.jit(lambda q0: run(q0=q0, initial="project"))(off).q, expected, atol=1e-12)


# --- pivots on the way ----------------------------------------------------------------------------------


def fading(force, gone, method="index3", h=1 / 64):
    """The mass of the first body is gone at a time, so that its pivot is zero there."""
    options = {"h": h, "method": method, "args": (gone, force), "newton": ga.Newton("full")}
    return ga.solve(_fading(), (0.0, 2.0), jnp.zeros(2), jnp.zeros(2), **options)


@functools.cache
def _fading():
    return ga.System(
        lambda t, q, gone, force: jnp.diag(jnp.stack([2 * jnp.abs(gone - t), jnp.ones_like(t)])),
        lambda t, q, v, gone, force: jnp.stack([jnp.zeros_like(force), force]),
        lambda t, q, gone, force: jnp.array([q[0] - 0.5 * q[1]]),
    )


@pytest.mark.parametrize("method", ["index3", pytest.param("soi2", marks=pytest.mark.slow)])
def test_other_pivots_half_way(method):
    """The motion is proportional to the force. Later runs use the orders of pivots that are known."""
    end = lambda force, gone: fading(force, gone, method).q[-1, 1]
    for gone in (1.0, 0.5, 1.0, 1.5):
        expected = float(end(1.0, gone))
        for derivative in (jax.grad, jax.jacfwd):
            assert float(derivative(end)(1.0, gone)) == pytest.approx(expected, rel=1e-12)
    runs = [x for x in _fading()._programs.values() if hasattr(x, "_orders")]
    assert 0 < max(len(x._orders) for x in runs) <= 4


# --- functions without a derivative ---------------------------------------------------------------------


@pytest.mark.parametrize("derivative", [jax.grad, pytest.param(jax.jacfwd, marks=pytest.mark.slow)])
def test_a_norm_at_rest_gives_nan_and_never_a_wrong_number(derivative):
    """|v| has no derivative at v = 0: JAX's derivative of a norm is NaN there. A warning names the line."""

    def drag(t, q, v, c):
        speed = jnp.linalg.norm(v)
        return jnp.array([0.0, -9.81]) - c * v * speed

    system = ga.System(np.eye(2), drag, lambda t, q, c: jnp.array([q @ q - 1.0]))
    start = jnp.array([1.0, 0.0]), jnp.zeros(2)
    run = lambda c: ga.solve(system, (0.0, 0.1), *start, args=(c,), h=1e-2).q[-1, 0]
    assert np.isfinite(jax.jit(run)(0.1))
    named = r"force of the system has a square root of zero at t = 0: `speed = .*norm\(v\)` \(test_failed"
    with pytest.warns(ga.GradientWarning, match=named):
        assert np.isnan(jax.jit(derivative(run))(0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        assert np.isnan(jax.jit(derivative(run))(0.2))
