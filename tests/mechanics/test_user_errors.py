"""What JAX cannot trace in the user's functions: where, what, and what to write instead."""

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
    (math_sine, r"`math\.sin\(q\[0\]\)`.*jnp\.sin"),
    (numpy_sine, r"`np\.sin\(q\)`.*jax\.numpy"),
    (plain_number, r"`float\(q\[0\]\)`.*leave out float\(\)"),
    (item, r"`q\[0\]\.item\(\)`.*use the array"),
    (loop, r"`int\(q\[0\]\)`.*length of a loop"),
    (selected, r"`q\[q > 0\]`.*jnp\.where"),
]


@pytest.mark.parametrize(("force", "message"), CASES, ids=lambda x: getattr(x, "__name__", ""))
def test_forces_run_in_python(force, message):
    q = np.array([1.3, -0.5])
    with pytest.warns(ga.HostWarning, match="force: " + message + ".* runs in Python.*ga.host"):
        found = ga.System(jnp.eye(2), force).applied(0.0, q, 2 * q)
    assert found.tolist() == np.asarray(force(0.0, q, 2 * q)).tolist()
    ga.System(jnp.eye(2), force).applied(0.0, q, 2 * q)  # no other warning, which would be an error


def test_what_fails_in_python_too_is_explained():
    """Arrays of JAX cannot be changed in Python either."""
    with pytest.raises(TypeError, match=r"force: `f\[0\] = q\[0\]`.*\.at\[i\]\.set"):
        ga.System(jnp.eye(2), jax_item).applied(0.0, np.zeros(2), np.zeros(2))
    lost = lambda t, q, v: {"a": q}[float(q[0])]
    with pytest.raises(KeyError) as caught:
        ga.System(jnp.eye(2), lost).applied(0.0, np.ones(2), np.zeros(2))
    assert any("`float(q[0])`" in note for note in caught.value.__notes__)


def test_other_functions():
    system = ga.System(jnp.eye(2), lambda t, q, v: -q, lambda t, q: jnp.array([math.cos(q[0])]))
    with pytest.warns(ga.HostWarning, match=r"holonomic: `math\.cos\(q\[0\]\)`.*jnp\.cos"):
        assert system.G(0.0, jnp.array([1.0, 0.0])) == pytest.approx(np.array([[-math.sin(1.0), 0.0]]))
    event = lambda t, q, v: 1.0 if q[0] > 0 else -1.0
    good = ga.System(jnp.eye(2), lambda t, q, v: -q)
    with pytest.raises(TypeError, match=r"the event '<lambda>': `q\[0\] > 0`.*jnp\.where"):
        ga.solve(good, (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], h=0.1, events=event)


def test_other_errors_stay_what_they_are():
    with pytest.raises(NameError, match="misspelt") as caught:
        ga.solve(ga.System(jnp.eye(1), lambda t, q, v: misspelt * q), (0.0, 1.0), [1.0], [0.0])  # noqa: F821
    assert "This happened in force(t, q, v, *args)" in "".join(caught.value.__notes__)
    broken = lambda t, q, v: jnp.zeros((2, 3)) @ q
    with pytest.raises(TypeError, match=r"dot_general|shapes"):
        ga.solve(ga.System(jnp.eye(2), broken), (0.0, 1.0), [1.0, 0.0], [0.0, 0.0])
