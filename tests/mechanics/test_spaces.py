"""Configuration spaces: group laws, maps against each other, near the identity and far from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import genalpha as ga

MIXED = ga.Product(ga.SE3(), ga.SE3(), ga.Euclidean(2), ga.R3xSO3(), ga.SO3())
SPACES = {
    "Euclidean": ga.Euclidean(3),
    "SO3": ga.SO3(),
    "R3xSO3": ga.R3xSO3(),
    "SE3": ga.SE3(),
    "Product": MIXED,
}
EPS = np.finfo(float).eps


def compiled(name):
    """The maps of a space, compiled once for all examples."""
    space = SPACES[name]
    both = lambda q, d: space.difference(q, space.retract(q, d))
    maps = {
        "retract": space.retract,
        "difference": space.difference,
        "rate": space.rate,
        "pull": space.pull,
        "default_rate": lambda q, v: ga.Space.rate(space, q, v),
        "default_pull": lambda q, w: ga.Space.pull(space, q, w),
        "there_and_back": both,
        "jacobian": lambda q, d: jax.jacfwd(both, argnums=1)(q, d),
        "second": lambda q, d, u, w: jax.jvp(
            lambda d: jax.jvp(lambda d: both(q, d), (d,), (u,))[1], (d,), (w,)
        ),
        "interpolate": space.interpolate,
        "defect": space.defect,
        "normalize": space.normalize,
    }
    return {key: jax.jit(function) for key, function in maps.items()}


MAPS = {name: compiled(name) for name in SPACES}
# Sizes of increments: from nothing through rounding up to almost π.
SIZES = st.one_of(st.just(0.0), st.floats(-300, -1).map(lambda e: 10.0**e), st.floats(0.1, 3.1))
SEEDS = st.integers(0, 2**32 - 1)
examples = settings(max_examples=60, deadline=None, derandomize=True)


def point(name, rng):
    space = SPACES[name]
    return np.asarray(MAPS[name]["normalize"](rng.normal(size=space.size(space.dim))))


def increment(name, rng, size):
    """A random increment whose rotations turn by at most ``size``."""
    d = rng.normal(size=SPACES[name].dim)
    angles = np.asarray(SPACES[name].turns(d))
    return d * size / (angles.max() if angles.size else np.linalg.norm(d))


@pytest.mark.parametrize("name", SPACES)
@given(seed=SEEDS, size=SIZES)
@examples
def test_difference_inverts_retract(name, seed, size):
    rng = np.random.default_rng(seed)
    q, d = point(name, rng), increment(name, rng, size)
    p = MAPS[name]["retract"](q, d)
    # The logarithm loses digits towards π, as 1/(π − angle); positions carry the rounding of q.
    np.testing.assert_allclose(MAPS[name]["difference"](q, p), d, rtol=2e-13, atol=2e-14)
    assert np.all(MAPS[name]["defect"](p) < 4 * EPS)


# Products are their factors, see below.
SINGLE = [pytest.param(n, marks=pytest.mark.slow if n not in ("Euclidean", "SO3") else ()) for n in SPACES]


@pytest.mark.parametrize("name", SINGLE)
@given(seed=SEEDS, size=SIZES)
@examples
def test_derivatives_of_retract_and_difference_are_exact(name, seed, size):
    """difference(q, retract(q, d)) is the identity in d: its Jacobian is I, second derivatives are 0."""
    rng = np.random.default_rng(seed)
    q, d = point(name, rng), increment(name, rng, size)
    n = d.size
    np.testing.assert_allclose(MAPS[name]["jacobian"](q, d), np.eye(n), atol=2e-12)
    u, w = rng.normal(size=(2, n))
    np.testing.assert_allclose(MAPS[name]["second"](q, d, u, w)[1], np.zeros(n), atol=1e-9)


@pytest.mark.parametrize("name", SINGLE)
@given(seed=SEEDS)
@examples
def test_rate_is_the_derivative_of_retract_and_pull_its_transpose(name, seed):
    rng = np.random.default_rng(seed)
    space, q = SPACES[name], point(name, rng)
    v, w = rng.normal(size=space.dim), rng.normal(size=q.size)
    rate = MAPS[name]["rate"](q, v)
    np.testing.assert_allclose(rate, MAPS[name]["default_rate"](q, v), atol=1e-14)
    assert float(w @ rate) == pytest.approx(float(v @ MAPS[name]["pull"](q, w)), abs=1e-12)
    np.testing.assert_allclose(MAPS[name]["pull"](q, w), MAPS[name]["default_pull"](q, w), atol=1e-14)


@pytest.mark.parametrize("name", SINGLE)
def test_retract_solves_the_kinematic_equation(name, rng):
    """q(s) = retract(q, s v) moves with the constant velocity v: q' = rate(q, v) all along."""
    space = SPACES[name]
    q, v = point(name, rng), increment(name, rng, 2.0)
    moves = jax.jit(lambda s: jax.jvp(lambda s: space.retract(q, s * v), (s,), (1.0,)))
    for s in (0.0, 0.3, 1.0):
        p, p_dot = moves(s)
        np.testing.assert_allclose(p_dot, MAPS[name]["rate"](p, v), atol=1e-14)


@pytest.mark.parametrize("name", SPACES)
def test_bracket_is_the_commutator_of_exponentials(name, rng):
    """q∘exp(εv)∘exp(εw)∘exp(−εv)∘exp(−εw) = q∘exp(ε²[v, w] + O(ε³))."""
    space, q, e = SPACES[name], point(name, rng), 1e-4
    v, w = rng.normal(size=space.dim), rng.normal(size=space.dim)
    p = q
    for d in (e * v, e * w, -e * v, -e * w):
        p = MAPS[name]["retract"](p, d)
    np.testing.assert_allclose(MAPS[name]["difference"](q, p) / e**2, space.bracket(v, w), atol=2e-2)
    np.testing.assert_allclose(space.bracket(v, w), -space.bracket(w, v), atol=1e-14)


@pytest.mark.parametrize("name", SINGLE)
def test_interpolation(name, rng):
    space, maps = SPACES[name], MAPS[name]
    q = point(name, rng)
    p = maps["retract"](q, increment(name, rng, 2.5))
    np.testing.assert_allclose(maps["interpolate"](q, p, 0.0), q, atol=1e-15)
    np.testing.assert_allclose(maps["interpolate"](q, p, 1.0), p, atol=1e-13)
    half = maps["interpolate"](q, p, 0.5)
    np.testing.assert_allclose(maps["difference"](q, half), maps["difference"](half, p), atol=1e-13)
    assert np.all(np.asarray(space.defect(half)) < 4 * EPS)


def test_quaternions_keep_their_length_over_a_million_steps():
    space, d = ga.R3xSO3(), jnp.array([1e-3, 0.0, 2e-3, 0.01, 0.15, -0.03])
    q0 = space.normalize(jnp.arange(1.0, 8.0))
    worst = lambda i, s: (q := space.retract(s[0], d), jnp.maximum(s[1], space.defect(q)[0]))
    q, drift = jax.jit(lambda q: jax.lax.fori_loop(0, 10**6, worst, (q, jnp.array(0.0))))(q0)
    assert float(drift) < 4 * EPS
    # and the rotation itself after a million turns about one axis
    angle = 1e6 * np.linalg.norm(d[3:])
    turn = np.array([np.cos(angle / 2), *(np.sin(angle / 2) * d[3:] / np.linalg.norm(d[3:]))])
    np.testing.assert_allclose(q[3:], ga.rotation.multiply(q0[3:], turn), atol=1e-8)


def test_composition_laws():
    """R³×SO(3) adds positions; SE(3) turns the second position by the first rotation (ACB15 A.1)."""
    turn = ga.rotation.from_rotation_vector([0.0, 0.0, np.pi / 2])
    q = np.array([1.0, 2.0, 3.0, *turn])
    d = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(ga.R3xSO3().retract(q, d)[:3], [2.0, 2.0, 3.0], atol=1e-15)
    np.testing.assert_allclose(ga.SE3().retract(q, d)[:3], [1.0, 3.0, 3.0], atol=1e-15)
    # screw motion: a full turn with pitch brings the body back, moved along the axis
    d = np.array([0.5, 0.0, 2.0, 0.0, 0.0, 2 * np.pi])
    np.testing.assert_allclose(ga.SE3().retract(q, d)[:3], [1.0, 2.0, 5.0], atol=1e-14)


def test_products_equal_their_factors(rng):
    q, p = point("Product", rng), point("Product", rng)
    d = increment("Product", rng, 1.0)
    parts = zip(MIXED.factors, MIXED.split(q), MIXED.split(p), MIXED.split_velocity(d), strict=True)
    retracted, differences = [], []
    for space, a, b, part in parts:
        retracted.append(space.retract(a, part))
        differences.append(space.difference(a, b))
    np.testing.assert_allclose(MAPS["Product"]["retract"](q, d), np.concatenate(retracted), atol=1e-15)
    np.testing.assert_allclose(MAPS["Product"]["difference"](q, p), np.concatenate(differences), atol=1e-14)


def test_a_product_costs_no_more_for_more_bodies():
    def equations(jaxpr):
        inner = [getattr(p, "jaxpr", p) for e in jaxpr.eqns for p in e.params.values()]
        return len(jaxpr.eqns) + sum(equations(j) for j in inner if hasattr(j, "eqns"))

    numbers = []
    for count in (2, 20):
        space = ga.Product(*[ga.R3xSO3()] * count)
        numbers.append(
            equations(jax.make_jaxpr(space.retract)(jnp.ones(7 * count), jnp.ones(6 * count)).jaxpr)
        )
    assert numbers[0] == numbers[1]


def test_spaces_compare_and_name_their_rotations():
    assert ga.R3xSO3() == ga.R3xSO3()
    assert ga.R3xSO3() != ga.Product(ga.Euclidean(3), ga.SO3())
    assert len({ga.SO3(), ga.SO3(), ga.SE3(), ga.Product(ga.SO3()), ga.Product(ga.SO3())}) == 3
    assert MIXED.rotations == ("factor 0 (SE3)", "factor 1 (SE3)", "factor 3 (R3xSO3)", "factor 4 (SO3)")
    assert repr(ga.Product(ga.R3xSO3(), ga.Euclidean(2))) == "Product(R3xSO3(), Euclidean(n=2))"


def test_bad_products():
    with pytest.raises(ValueError, match="at least one factor"):
        ga.Product()
    with pytest.raises(ValueError, match=r"needs its dimension, such as Euclidean\(3\)"):
        ga.Product(ga.SO3(), ga.Euclidean())
    with pytest.raises(TypeError, match=r"spaces such as ga\.SO3\(\), got 3"):
        ga.Product(3)
    for wrong in (-1, 0, 2.5, "3"):
        with pytest.raises(ValueError, match="positive integer"):
            ga.Euclidean(wrong)
    with pytest.raises(ValueError, match=r"expected shape \(27,\), got \(3,\)"):
        MIXED.split(np.zeros(3))


def test_a_space_of_ones_own_needs_only_three_maps():
    """Points on a circle, stored as (cos, sin)."""

    class Circle(ga.Space):
        dim = 1

        def size(self, dim):
            return 2

        def retract(self, q, d):
            c, s = jnp.cos(d[0]), jnp.sin(d[0])
            return jnp.array([c * q[0] - s * q[1], s * q[0] + c * q[1]])

        def difference(self, q, p):
            return jnp.arctan2(q[0] * p[1] - q[1] * p[0], q @ p)[None]

        def magnitude(self, q):
            return jnp.ones(1)

    swing = ga.System(mass=np.eye(1), force=lambda t, q, v: -9.81 * q[1:], space=Circle())
    start = [np.cos(0.5), np.sin(0.5)]
    sol = ga.solve(swing, (0.0, 2.0), start, [0.0], h=1e-3, rho_inf=1.0)
    flat = ga.System(mass=np.eye(1), force=lambda t, q, v: -9.81 * jnp.sin(q))
    plain = ga.solve(flat, (0.0, 2.0), [0.5], [0.0], h=1e-3, rho_inf=1.0)
    np.testing.assert_allclose(np.arctan2(sol.q[:, 1], sol.q[:, 0]), plain.q[:, 0], atol=1e-10)
