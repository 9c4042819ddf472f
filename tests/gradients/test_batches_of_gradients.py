"""Batches of derivatives: the same numbers as one by one, and only what is read is computed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.backends.transforms.members import COMPUTED

TIMES = np.linspace(0.0, 0.1, 11)
SIZES = np.array([0.021, 0.018, 0.022, 0.017, 0.022])  # between the times
MEMBERS, LOST = 11, 7  # not a multiple of the lanes; one fails


@functools.cache
def pushed():
    """A point on the unit circle, args (u, end): forces at eleven times in an odd order, until the end."""

    def force(t, q, v, u, end):
        ordered = jnp.concatenate([u[::2], u[1::2]])
        return jnp.where(t > end, jnp.nan, jnp.array([jnp.interp(t, TIMES, ordered), -9.81]))

    return ga.System(np.eye(2), force, lambda t, q, u, end: jnp.array([q @ q - 1.0]))


def solve(u, end, angle=0.3, h=SIZES, **options):
    q0 = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return ga.solve(pushed(), (0.0, 0.1), q0, jnp.zeros(2), h=h, args=(u, end), method="index3", **options)


def members():
    u = np.random.default_rng(0).normal(size=(MEMBERS, len(TIMES)))
    end = np.where(np.arange(MEMBERS) == LOST, 0.05, 1.0)
    return u, end, np.linspace(0.0, 0.5, MEMBERS)


LOSSES = {
    "q": lambda sol: jnp.sum(sol.q[1:] ** 3),
    "last v": lambda sol: sol.v[-1, 1],
    "a of the method": lambda sol: jnp.sum(sol.a_alpha**2),
    "q and a": lambda sol: sol.q[2, 0] * sol.a_alpha[-1, 1],
    "multipliers": lambda sol: jnp.sum(sol.lam**2) + sol.q[-1, 1],
    "at times": lambda sol: jnp.sum(sol.v[:, 0] ** 2),
    "start": lambda sol: jnp.sum(sol.q[0] * sol.v[-1]),
}


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_what_is_read(name):
    times = {"t_eval": [0.011, 0.05, 0.1]} if name == "at times" else {}
    loss = lambda u, end, angle: LOSSES[name](solve(u, end, angle, **times))
    values, slopes = jax.jit(jax.vmap(jax.value_and_grad(loss, (0, 2))))(*members())
    one = jax.jit(jax.value_and_grad(loss, (0, 2)))
    for i, member in enumerate(zip(*members(), strict=True)):
        value, (of_u, of_angle) = one(*member)
        if i == LOST:
            assert np.isnan(slopes[0][i]).all()
            assert np.isnan([values[i], value, slopes[1][i]]).all()
            continue
        np.testing.assert_allclose(values[i], value, rtol=1e-12)
        np.testing.assert_allclose(slopes[0][i], of_u, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(slopes[1][i], of_angle, rtol=1e-10)


def test_both_modes_and_derivatives_to_the_steps():
    """With respect to the sizes of the steps too, along a direction, and without jit."""
    u, end, angle = members()
    loss = lambda h, u, end, angle: jnp.sum(solve(u, end, angle, h=h).v[2:] ** 2)
    back = jax.vmap(jax.grad(loss, (0, 1)), (None, 0, 0, 0))(jnp.array(SIZES), u, end, angle)
    forward = jax.vmap(jax.jacfwd(loss, (0, 1)), (None, 0, 0, 0))(jnp.array(SIZES), u, end, angle)
    for a, b in zip(back, forward, strict=True):
        assert np.isfinite(a).all(axis=1).tolist() == [i != LOST for i in range(MEMBERS)]
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)
    shift = 1e-5 * np.array([0.0, 1.0, -1.0, 0.0, 0.0])
    values = [float(loss(SIZES + s * shift, u[0], end[0], angle[0])) for s in (1, -1)]
    assert float(back[0][0] @ shift) == pytest.approx((values[0] - values[1]) / 2, rel=1e-5)


@pytest.fixture
def asked(monkeypatch):
    """What lanes were asked for, by kind."""
    found = {}

    def noted(compute, members, asked, more):
        found[asked.kind] = asked
        return compute(members, asked, more)

    for kind, compute in COMPUTED.items():
        monkeypatch.setitem(COMPUTED, kind, functools.partial(noted, compute))
    return found


def test_only_what_is_read_is_computed(asked):
    loss = lambda u, end: jnp.sum(solve(u, end).v ** 2)
    jax.jit(jax.vmap(jax.grad(loss)))(*members()[:2])
    assert np.flatnonzero(asked["value"].wanted).tolist() == [1]  # v
    assert np.flatnonzero(asked["cotangent"].given).tolist() == [1]
    assert np.flatnonzero(asked["cotangent"].wanted).tolist() == [6]  # u
    jax.jit(jax.vmap(lambda u, end: jax.jvp(lambda u: solve(u, end).q, (u,), (u,))[1]))(*members()[:2])
    assert np.flatnonzero(asked["tangent"].wanted).tolist() == [0]  # q
    assert np.flatnonzero(asked["tangent"].given).tolist() == [6]


def test_whole_solutions_of_a_batch():
    """All outputs, also those without columns, of a number of members that leaves lanes free."""
    u, end, _ = members()
    many = jax.jit(jax.vmap(solve))(u, end)
    for i in (0, LOST, MEMBERS - 1):
        one = jax.jit(solve)(u[i], end[i])
        for a, b in zip(jax.tree.leaves(many), jax.tree.leaves(one), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=1e-12, atol=1e-13)
