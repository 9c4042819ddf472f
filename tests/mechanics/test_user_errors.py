"""Errors inside the user's functions: where, what, and what to write instead."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga


def branch(t, q, v):
    if q[0] > 0:
        return -q
    return q


def larger(t, q, v):
    return jnp.array([max(q[0], 0.0), 0.0])


def numpy_item(t, q, v):
    f = np.zeros(2)
    f[0] = q[0]
    return f


def jax_item(t, q, v):
    f = jnp.zeros(2)
    f[0] = q[0]
    return f


def math_sine(t, q, v):
    return jnp.array([math.sin(q[0]), 0.0])


def numpy_sine(t, q, v):
    return np.sin(q)


def plain_number(t, q, v):
    return jnp.array([float(q[0]), 0.0])


def item(t, q, v):
    return jnp.array([q[0].item(), 0.0])


def loop(t, q, v):
    return sum(q for _ in range(int(q[0])))


def selected(t, q, v):
    return jnp.sum(q[q > 0]) * v


CASES = [
    (branch, r"`q\[0\] > 0` \(test_user_errors.py, line 13\).*jnp\.where"),
    (larger, r"`max\(q\[0\], 0\.0\)`.*jnp\.maximum"),
    (numpy_item, r"`f\[0\] = q\[0\]`.*\.at\[i\]\.set"),
    (jax_item, r"`f\[0\] = q\[0\]`.*\.at\[i\]\.set"),
    (math_sine, r"`math\.sin\(q\[0\]\)`.*jnp\.sin"),
    (numpy_sine, r"`np\.sin\(q\)`.*jax\.numpy"),
    (plain_number, r"`float\(q\[0\]\)`.*leave out float\(\)"),
    (item, r"`q\[0\]\.item\(\)`.*use the array"),
    (loop, r"`int\(q\[0\]\)`.*length of a loop"),
    (selected, r"`q\[q > 0\]`.*jnp\.where"),
]


@pytest.mark.parametrize(("force", "message"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_forces(force, message):
    with pytest.raises(TypeError, match="force: " + message):
        ga.solve(ga.System(jnp.eye(2), force), (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], h=0.1)


def test_other_functions():
    good = lambda t, q, v: -q
    system = ga.System(jnp.eye(2), good, lambda t, q: jnp.array([math.cos(q[0])]))
    with pytest.raises(TypeError, match=r"holonomic: `math\.cos\(q\[0\]\)`.*jnp\.cos"):
        ga.solve(system, (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], h=0.1)
    event = lambda t, q, v: 1.0 if q[0] > 0 else -1.0
    with pytest.raises(TypeError, match=r"the event '<lambda>': `q\[0\] > 0`.*jnp\.where"):
        ga.solve(ga.System(jnp.eye(2), good), (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], h=0.1, events=event)


def test_other_errors_stay_what_they_are():
    with pytest.raises(NameError, match="misspelt") as caught:
        ga.solve(ga.System(jnp.eye(1), lambda t, q, v: misspelt * q), (0.0, 1.0), [1.0], [0.0])  # noqa: F821
    assert "This happened in force(t, q, v, *args)" in "".join(caught.value.__notes__)
    broken = lambda t, q, v: jnp.zeros((2, 3)) @ q
    with pytest.raises(TypeError, match=r"dot_general|shapes"):
        ga.solve(ga.System(jnp.eye(2), broken), (0.0, 1.0), [1.0, 0.0], [0.0, 0.0])
