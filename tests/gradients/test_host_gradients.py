"""Derivatives of runs whose force runs in Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga

pytestmark = pytest.mark.slow


def end(force, k, q=1.0):
    system = ga.System(np.eye(1), force)
    return ga.solve(system, (0.0, 1.0), jnp.array([q]), jnp.zeros(1), h=0.02, args=(k,)).q[-1, 0]


def compiled(t, q, v, k):
    return -k * jnp.sin(q)


def by_differences(t, q, v, k):
    return ga.host(lambda q, k: -k * np.sin(q), 1)(q, k)


def with_slopes(t, q, v, k):
    law = ga.host(lambda q, k: -k * np.sin(q), 1, lambda q, k: (-k * np.cos(q)[None], -np.sin(q)))
    return law(q, k)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["plain", "jit"])
@pytest.mark.parametrize(("force", "error"), [(by_differences, 1e-9), (with_slopes, 1e-12)])
def test_gradients(force, error, transform):
    for number in (0, 1):  # with respect to k, and to the start
        right = jax.grad(lambda *x: end(compiled, *x), number)(1.3, 0.8)
        found = transform(jax.grad(lambda *x: end(force, *x), number))(1.3, 0.8)
        assert float(found) == pytest.approx(float(right), rel=error)


def test_members_run_one_after_the_other():
    starts = jnp.array([0.5, 1.0, 2.0])
    found = jax.vmap(lambda q: end(with_slopes, 1.3, q))(starts)
    assert np.asarray(found) == pytest.approx(np.array([end(compiled, 1.3, q) for q in starts]), abs=1e-13)


def test_second_derivatives():
    """By XLA, which calls the function too."""
    by_k = lambda force: float(jax.jacfwd(jax.grad(lambda k: end(force, k)))(1.3))
    assert by_k(with_slopes) == pytest.approx(by_k(compiled), rel=1e-8)


def test_traced_values_from_outside_are_refused():
    with pytest.raises(TypeError, match=r"force: .*mixes NumPy with traced values"):
        jax.grad(lambda a: end(lambda t, q, v, k: -a * np.array([np.sin(q[0])]), 1.0))(2.0)
