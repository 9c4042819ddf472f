"""Functions of copies evaluated together, and the matrices of an assembly that are made of their results."""

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from assemblies import matrices, model
from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sparse import models
from genalpha.backends.sparse.equations import Equations
from genalpha.backends.sparse.together import KindFunction, Together
from genalpha.mechanics.system import Dims
from genalpha.numerics.linear import solve_once

# Two numbers that all copies share, and then three for each of 14 copies. The first one of copy 2 is zero.
VECTOR = np.concatenate([[2.0, 0.5], np.random.default_rng(3).normal(size=42)])
VECTOR[2 + 3 * 2] = 0.0
PLACES = 2 + np.arange(42).reshape(14, 3)


def rotated(angle, x):
    return {"x": jnp.array([x[0] * jnp.cos(angle), x[1] + angle, 0.0]), "size": x @ x}


def solved(shared, x):
    """A linear system whose first pivot is x[0]."""
    return solve_once(jnp.array([[x[0], 1.0], [1.0, 0.1]]), jnp.array([shared, x[2]]))


def together():
    """Three copies of one function, eleven of another, and some that machine code does not have."""
    shared = lambda count, place: np.full(count, place)
    applied = []
    for function, place, rows in ((rotated, 0, PLACES[:3]), (rotated, 1, PLACES[3:]), (solved, 0, PLACES)):
        one = Rowwise("one", function, (VECTOR[place], VECTOR[rows[0]]))
        assert one.rows is not None
        applied.append(KindFunction(one, (shared(len(rows), place), rows)))
    by_xla = Rowwise("other", rotated, (VECTOR[0], VECTOR[PLACES[0]]), limit=0)
    assert by_xla.rows is None
    return Together([*applied, KindFunction(by_xla, (shared(9, 1), PLACES[:9]))], VECTOR)


def test_results_are_those_of_single_copies():
    found = together()
    results = found(VECTOR)
    for k, (shared, rows) in enumerate(
        ((2.0, PLACES[:3]), (0.5, PLACES[3:]), (2.0, PLACES), (0.5, PLACES[:9]))
    ):
        x = VECTOR[rows]
        got = found.of(k, results)
        if k == 2:
            systems = np.array([[[a, 1.0], [1.0, 0.1]] for a in x[:, 0]])
            wanted = np.linalg.solve(systems, np.stack([np.full(14, 2.0), x[:, 2]], axis=1)[..., None])
            np.testing.assert_allclose(got, wanted[..., 0], rtol=1e-9)
            continue
        wanted = np.stack([x[:, 0] * np.cos(shared), x[:, 1] + shared, np.zeros(len(x))], axis=1)
        np.testing.assert_allclose(got["x"], wanted, rtol=1e-14)
        np.testing.assert_allclose(got["size"], (x**2).sum(axis=1), rtol=1e-14)
        np.testing.assert_array_equal(results[found.places(k, found.columns[k]["x"])], got["x"])


def test_results_that_are_always_zero_are_known():
    found = together()
    zero = [found.zero(k, found.columns[k]["x"]).tolist() for k in (0, 3)]
    assert zero == [[False, False, True], [False, False, False]]


def equations(assembly, dims):
    return Equations(models.of_parts(assembly, ()), dims, {}, assembly.labels)


@pytest.mark.parametrize("name", ["rods", "sledges", pytest.param("revolute", marks=pytest.mark.slow)])
def test_matrices_and_vectors_are_those_of_the_whole_system(name):
    """Compared with the functions of the assembly as a system, whose arrays are dense."""
    of, rng = model(name, "sparse"), np.random.default_rng(0)
    system, q, v = of.assembly, of.q0, rng.normal(size=len(of.v0))
    m, p = (sum(getattr(at, kind).size for at in system.places) for kind in "gk")
    at = equations(system, Dims(len(q), len(v), m, p)).at(0.3, q, v)
    rest, none = np.zeros(len(v)), np.zeros((0, len(v)))
    G, K = system.G(0.3, q) if m else none, system.K(0.3, q, v) if p else none
    lam, psi, d = rng.normal(size=m), rng.normal(size=p), rng.normal(size=len(v))
    pairs = [
        (at.M.toarray(), system.M(0.3, q)),
        (at.B.toarray(), np.concatenate([G, K])),
        (at.applied, system.applied(0.3, q, v)),
        (at.rates(d), np.concatenate([G @ d, K @ d])),
        *zip(at.reactions(lam, psi), (-lam @ G, -psi @ K), strict=True),
    ]
    if m:
        pairs += [(at.g, system.g(0.3, q)), (at.g_dot, system.g_dot(0.3, q, v))]
        pairs += [(at.g_ddot, system.g_ddot(0.3, q, v, rest))]
    if p:
        pairs += [(at.k, system.k(0.3, q, v)), (at.k_dot, system.k_dot(0.3, q, v, rest))]
    for got, wanted in pairs:
        np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-12 * (1 + np.abs(wanted).max(initial=0.0)))
    sizes = np.concatenate(at.scale)
    whole = np.block(
        [[np.asarray(system.M(0.3, q)), G.T, K.T], [np.concatenate([G, K]), np.zeros((m + p, m + p))]]
    )
    saddle = at.saddle(at.scale)
    np.testing.assert_allclose(
        saddle.pattern.matrix(saddle.entries).toarray(), sizes[:, None] * whole * sizes, atol=1e-12
    )
    wanted = np.linalg.solve(whole, np.concatenate([at.applied, -at.g_ddot, -at.k_dot]))
    found = np.concatenate(at.accelerations()[0])
    np.testing.assert_allclose(found, wanted, atol=1e-10 * np.abs(wanted).max())


def test_coordinates_without_mass_and_constraints_that_hold_always_have_a_scale():
    """Their entries are left out of the matrices, but each row and column keeps one."""
    points = ga.Part(mass=np.diag([4.0, 0.0]), nodes=[0, 1])
    fixed = ga.Part(holonomic=lambda t, q: jnp.array([q[0] * 2.0, t - t]), nodes=[1])
    assembly = ga.Assembly([points, fixed], space=ga.Euclidean(2), count=2)
    at = equations(assembly, Dims(4, 4, 2, 0)).at(0.0, np.zeros(4), np.zeros(4))
    np.testing.assert_array_equal(at.M.toarray(), np.diag([4.0, 0.0, 4.0, 0.0]))
    np.testing.assert_array_equal(at.B.toarray(), [[0, 0, 2, 0], [0, 0, 0, 0]])
    np.testing.assert_array_equal(at.scale.a, [0.5] * 4)
    np.testing.assert_array_equal(at.scale.lam, [1.0, 1.0])
    with pytest.raises(RuntimeError, match="singular"):
        at.accelerations()


def test_pivots_of_the_first_start_may_be_zero_at_another_one():
    """The diagonal of M is large at the first state and zero at the second. Bodies have no such masses."""
    mass = lambda t, q: jnp.array([[q[0], 1.0], [1.0, q[0]]])
    points = ga.Part(mass=mass, force=lambda t, q, v: jnp.array([1.0, -q[1]]), nodes=np.arange(5))
    of = equations(ga.Assembly([points], space=ga.Euclidean(2), count=5), Dims(10, 10, 0, 0))
    for first in (np.full(5, 9.0), np.zeros(5), np.array([0.0, 3.0, -2.0, 0.5, 0.0])):
        q = np.stack([first, np.arange(5.0)], axis=1)
        a = of.at(0.0, q.reshape(-1), np.zeros(10)).accelerations()[0][0].reshape(5, 2)
        swapped = np.stack([first * a[:, 0] + a[:, 1], a[:, 0] + first * a[:, 1]], axis=1)
        np.testing.assert_allclose(swapped, np.stack([np.ones(5), -q[:, 1]], axis=1), atol=1e-13)


def test_the_second_run_has_the_bits_of_the_first():
    """It uses what the first one has kept, and a run with other args in between."""
    of = model("rods", "sparse")
    run = lambda args: ga.solve(of.assembly, (0.0, 0.1), of.q0, of.v0, h=0.01, args=args)
    (m, g), hook, lengths, (k,) = of.assembly.args
    with matrices("sparse"):
        first, between = run(()), run(((2.0 * m, 0.5 * g), hook, lengths, (3.0 * k,)))
        second = run(of.assembly.args)
    assert np.abs(between.q - first.q).max() > 1e-6
    for name in ("q", "v", "a", "lam"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
