"""What native code cannot take runs by XLA, with a reason."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from genalpha.backends.native import step


def data_dependent(t, q, v):
    return -jax.lax.while_loop(lambda x: jnp.abs(x[0]) > 1, lambda x: x / 2, q)


@jax.custom_jvp
def called_back(t, q, v):
    shape = jax.ShapeDtypeStruct((1,), float)
    return -jax.pure_callback(lambda x: np.asarray(x), shape, q, vmap_method="sequential")


called_back.defjvp(lambda primals, tangents: (called_back(*primals), -tangents[1]))


@pytest.mark.parametrize(
    ("force", "reason"),
    [(data_dependent, "loop"), (called_back, "callback"), (lambda t, q, v: -jnp.sort(q), "sort")],
)
def test_what_has_no_scalar_form_falls_back_with_a_reason(force, reason):
    system = ga.System(np.eye(1), force)
    for backend in ("auto", "native"):  # the reason is remembered
        with pytest.warns(
            ga.FallbackWarning, match=f"Native code cannot run this system: .*{reason}"
        ) as told:
            sol = ga.solve(system, (0, 1), [1.0], [0.0], h=0.1, backend=backend)
        assert [warning.filename for warning in told] == [__file__]
        assert sol.backend == "xla"
        assert reason in sol.stats.fallback
    np.testing.assert_allclose(sol.q[-1], np.cos(1.0), atol=2e-3)


@pytest.mark.slow
def test_too_many_operations_fall_back(monkeypatch):
    monkeypatch.setattr(step, "LIMIT", 300)
    circle = systems.circle.__wrapped__()  # of which no kernels were made before
    sol = ga.solve(circle, (0.0, 0.1), [1.0, 0.0], [0.0, 0.0], h=0.01)
    assert sol.backend == "xla"
    assert "300 scalar operations" in sol.stats.fallback
    with pytest.warns(ga.FallbackWarning, match="300 scalar operations"):
        ga.solve_batch(circle, (0.0, 0.1), [[1.0, 0.0]] * 2, [0.0, 0.0], h=0.01)


@pytest.mark.slow
def test_xla_by_choice_has_no_reason_and_transforms_need_none():
    system = systems.oscillator()
    with warnings.catch_warnings(action="error"):
        assert ga.solve(system, (0, 1), [1.0], [0.0], h=0.1, backend="xla").stats.fallback is None
    traced = jax.jit(lambda q: ga.solve(system, (0, 1), q, [0.0], h=0.1))(jnp.ones(1))
    assert (traced.backend, traced.stats.fallback) == ("native", None)


def test_unknown_backends_are_refused():
    with pytest.raises(ValueError, match="backend must be one of auto, native, xla, cuda, got 'gpu'"):
        ga.solve(systems.oscillator(), (0, 1), [1.0], [0.0], h=0.1, backend="gpu")


@pytest.mark.slow
def test_integers_that_may_overflow_fall_back():
    noise = lambda t: ((jnp.floor(t * 1000 + 0.5).astype(jnp.int32) * 1103515245 + 12345) % 1000) / 1000.0
    sol = ga.solve(ga.System(np.eye(1), lambda t, q, v: -q + noise(t)), (0, 0.5), [1.0], [0.0], h=0.01)
    assert sol.backend == "xla"
    assert "overflow" in sol.stats.fallback


@pytest.mark.slow
def test_keys_of_random_numbers_fall_back():
    system = ga.System(np.eye(1), lambda t, q, v, key: -q + 0 * jax.random.normal(key, (1,)))
    sol = ga.solve(system, (0, 1), [1.0], [0.0], h=0.1, args=(jax.random.key(0),))
    assert sol.backend == "xla"
    assert "not an array of numbers" in sol.stats.fallback


@pytest.mark.slow
def test_long_programs_are_native_without_optimization():
    """A chain of forty links, against XLA. It starts straight, and every bar of it may turn over."""
    n = 40
    rods = lambda t, q: jnp.sum(jnp.diff(q.reshape(n, 2), axis=0, prepend=jnp.zeros((1, 2))) ** 2, 1) - 1.0
    chain = ga.System(np.eye(2 * n), lambda t, q, v: jnp.tile(jnp.array([0.0, -9.81]), n), rods)
    start = np.stack([np.arange(1.0, n + 1), np.zeros(n)], axis=1).ravel()
    run = lambda **options: ga.solve(chain, (0.0, 0.5), start, np.zeros(2 * n), h=5e-3, **options)
    native, xla = run(), run(backend="xla")
    assert native.backend == "native"
    np.testing.assert_allclose(native.q, xla.q, atol=1e-9)
    np.testing.assert_allclose(native.lam, xla.lam, atol=1e-6 * np.abs(xla.lam).max())
