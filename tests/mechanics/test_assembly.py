"""Assemblies: bad input, the same equations as systems written by hand, and runs."""

import copy
import math
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import assemblies
import genalpha as ga
from assemblies import distance, model, pairs, turned
from conftest import problem

PLANE = ga.Euclidean(2)
UNIT = np.eye(2)


def points(count=3, **changes):
    """Points in a plane, all of them copies of one part."""
    return ga.Part(**{"mass": UNIT, "nodes": np.arange(count), "name": "points", **changes})


def assembly(*more, count=3, space=PLANE, **changes):
    return ga.Assembly([points(count, **changes), *more], space=space, count=count)


# --- bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"nodes": None}, TypeError, "the part 'points' needs nodes"),
        ({"nodes": [0.0, 1.0]}, TypeError, "nodes of the part 'points' must be integers, got float64"),
        ({"nodes": [True, False]}, TypeError, "must be integers, got bool"),
        ({"nodes": np.zeros((2, 2, 1), int)}, ValueError, r"\(K,\) or \(K, k\), got \(2, 2, 1\)"),
        ({"nodes": np.zeros((0, 2), int)}, ValueError, r"shape \(K,\) or \(K, k\), got \(0, 2\)"),
        ({"nodes": 3}, ValueError, r"shape \(K,\) or \(K, k\), got \(\)"),
        ({"nodes": [[0, 1], [2]]}, ValueError, r"'points' must be an array \(K,\) or \(K, k\)"),
        (
            {"nodes": [[0, 1, 2], [4, 3, 4]]},
            ValueError,
            r"copy 1 of .*'points' has a node twice, \[4, 3, 4\]",
        ),
        ({"mass": None}, ValueError, "the part 'points' does nothing: give it a mass"),
        ({"mass": None, "name": ""}, ValueError, "a part does nothing"),
        ({"force": np.zeros(2)}, TypeError, "force of the part 'points' must be a function, got ndarray"),
        ({"holonomic": 1.0}, TypeError, "holonomic of the part 'points' must be a function, got float"),
        ({"args": np.ones(3)}, TypeError, r"args of the part 'points' .* write args=\(x,\)"),
        ({"args": (1.0, [1.0, 2.0])}, ValueError, r"each of its 3 copies, .* of shape \(2,\)"),
        ({"args": ({"k": np.ones((4, 2))},)}, ValueError, r"each of its 3 copies, .* of shape \(4, 2\)"),
        ({"mass": np.ones((2, 3))}, ValueError, r"mass of the part 'points' .* shape \(d, d\) or"),
        ({"mass": np.ones((2, 2, 2))}, ValueError, r"\(3, d, d\), or be a function; got \(2, 2, 2\)"),
        ({"mass": np.ones(2)}, ValueError, r"shape \(d, d\)"),
        ({"mass": np.diag([1.0, np.nan])}, ValueError, "mass of the part 'points' holds NaN"),
    ],
)
def test_parts(changes, error, message):
    with pytest.raises(error, match=message):
        points(**changes)


@pytest.mark.parametrize(
    ("parts", "changes", "error", "message"),
    [
        (points(), {}, TypeError, r"parts must be a list of ga\.Part, got Part"),
        ("points", {}, TypeError, r"parts must be a list of ga\.Part, but one is 'p'"),
        (7, {}, TypeError, r"parts must be a list of ga\.Part, got int"),
        ([points(), None], {}, TypeError, r"parts must be a list of ga\.Part, but one is None"),
        ([], {}, ValueError, "parts is empty"),
        ([points()], {"count": None}, ValueError, "count must be the number of nodes, at least 1, got None"),
        ([points()], {"count": 0}, ValueError, "count must be the number of nodes, at least 1, got 0"),
        ([points()], {"count": 3.0}, ValueError, "count must be the number of nodes, at least 1, got 3.0"),
        ([points()], {"space": [PLANE] * 2}, ValueError, "count is 3, but space lists 2 nodes"),
        ([points()], {"space": []}, TypeError, r"space must be a space such as ga\.R3xSO3\(\), or a list"),
        ([points()], {"space": [PLANE, 2, PLANE]}, TypeError, "space must hold spaces .*, got 2"),
        ([points()], {"space": ga.Euclidean()}, ValueError, "a node needs the dimension of its space"),
        ([points(4)], {}, ValueError, "'points': copy 3 has the node 3, but .* 3 nodes: 0 to 2"),
        ([points(nodes=[0, -1, 2])], {}, ValueError, "the part 'points': copy 1 has the node -1"),
        ([points(), points(nodes=[5], name="")], {}, ValueError, "nodes of part 1: copy 0 has the node 5"),
        ([points(nodes=[0, 2])], {}, ValueError, "no part gives a mass to node 1: every node needs one"),
        ([points(1)], {"count": 20}, ValueError, "to nodes 1, 2, 3, 4, 5, 6 and 13 more"),
        (
            [points()],
            {"space": [PLANE, PLANE, ga.Euclidean(1)]},
            ValueError,
            "copy 2 of the part 'points' has nodes with other spaces than copy 0",
        ),
    ],
)
def test_arguments_of_an_assembly(parts, changes, error, message):
    with pytest.raises(error, match=message):
        ga.Assembly(parts, **{"space": PLANE, "count": 3, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"force": lambda t, q, v: jnp.zeros(3)}, r"force of .*'points' must have shape \(2,\).* got \(3,\)"),
        ({"force": lambda t, q, v: 0.0}, r"force of .*'points' must have shape \(2,\).* got \(\)"),
        ({"mass": np.eye(3)}, r"mass of .*'points' must have shape \(2, 2\) for one copy, got \(3, 3\)"),
        ({"mass": lambda t, q: jnp.ones(2)}, r"mass of .*'points' must have shape \(2, 2\) .* got \(2,\)"),
        ({"holonomic": lambda t, q: q @ q}, r"holonomic of .*'points' .* one-dimensional .* got shape \(\)"),
        ({"holonomic": lambda t, q: jnp.zeros((2, 1))}, r"one-dimensional .*, got shape \(2, 1\)"),
        (
            {"nonholonomic": lambda t, q, v: jnp.zeros((1, 1))},
            r"nonholonomic of .*one-dimensional .*\(1, 1\)",
        ),
        (
            {"holonomic": lambda t, q: q[:1], "reaction": lambda t, q, v, lam, psi: lam},
            r"reaction of .*'points' must have shape \(2,\).* got \(1,\)",
        ),
    ],
)
def test_shapes_of_what_functions_return(changes, message):
    with pytest.raises(ValueError, match=message):
        assembly(**changes)


def test_forces_on_several_nodes_have_one_row_for_each():
    spring = ga.Part(force=lambda t, q, v: q[1] - q[0], nodes=[[0, 1]], name="spring")
    with pytest.raises(
        ValueError, match=r"'spring' must have shape \(4,\) or \(2, 2\) for one copy, got \(2,\)"
    ):
        assembly(spring)


@pytest.mark.parametrize(
    ("force", "message"),
    [
        (lambda t, q, v: np.sin(q), r"force of the part 'points': `np\.sin\(q\)`.*mixes NumPy.*jax\.numpy"),
        (lambda t, q, v: q * math.cos(t), r"force of the part 'points': `math\.cos\(t\)`.*write jnp\.cos"),
        (lambda t, q, v: q if t > 1 else v, r"force of the part 'points': .*jnp\.where"),
    ],
)
def test_functions_that_cannot_be_traced_are_explained(force, message):
    with pytest.raises(TypeError, match=message):
        assembly(force=force)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((1.0,), r"args has 1 entries, but there are 4 parts: pass net\.args"),
        (((np.ones(6), 1.0), (), (np.ones(4),), (5.0,)), r"'rods' .* each of its 5 copies, .* shape \(4,\)"),
    ],
)
@pytest.mark.parametrize("kind", ["sparse", "dense"])
def test_args_of_another_form(args, message, kind):
    with pytest.raises(ValueError, match=message):
        assemblies.solve("rods", kind, h=0.01, args=args)


@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize(
    "args",
    [
        ((np.ones(6),), (), (np.ones(5),), (5.0,)),  # one of two is missing
        ((np.ones(6), 1.0), (), (np.ones(5), 1.0), (5.0,)),
        ((np.ones(6), 1.0), (), np.ones(5), (5.0,)),
    ],
)
def test_args_of_a_part_in_another_number(args, kind):
    with pytest.raises((TypeError, ValueError), match=r"args of the part '(points|rods)'"):
        assemblies.solve("rods", kind, h=0.01, args=args)


# --- the same equations as a system written by hand ---------------------------------------------------


def springs():
    """spring-chain: m and k are shared by all copies."""
    wall = ga.Part(force=lambda t, q, v, k: -k * q, nodes=[0, 4], args=(100.0,))
    pull = lambda t, q, v, k: k * jnp.array([q[1] - q[0], q[0] - q[1]])
    inner = ga.Part(force=pull, nodes=pairs(5), args=(100.0,))
    masses = ga.Part(mass=lambda t, q, m: m * jnp.eye(1), nodes=np.arange(5), args=(1.0,))
    return ga.Assembly([masses, wall, inner], ga.Euclidean(1), 5)


def double_pendulum():
    """Masses copy by copy, dictionaries as args."""
    gravity = lambda t, q, v, p: jnp.array([0.0, -p["g"] * p["m"]])
    weights = ga.Part(
        mass=np.array([2.0 * UNIT, 0.5 * UNIT]),
        force=gravity,
        nodes=[0, 1],
        args=({"m": [2.0, 0.5], "g": 9.81},),
    )
    first = ga.Part(holonomic=lambda t, q, l1: distance(q, l1), nodes=[0], args=([0.8],))
    second = ga.Part(holonomic=lambda t, q, l2: distance(q[1] - q[0], l2), nodes=[[0, 1]], args=(1.3,))
    return ga.Assembly([weights, first, second], PLANE, 2)


def slider_crank():
    """Bodies (x, y, φ); constraints of one, two and again one body; a torque in time."""
    inertia = np.diagonal(problem("slider-crank").system.mass).reshape(3, 3)
    arm = lambda q, half: half * jnp.array([jnp.cos(q[2]), jnp.sin(q[2])])
    torque = lambda t: jnp.where(t <= 0.3, 0.2 / 0.3 * (1 - jnp.cos(2 * jnp.pi * t / 0.3)), 0.0)
    parts = [
        ga.Part(
            mass=np.array([np.diag(row) for row in inertia]),
            force=lambda t, q, v, m: jnp.array([0.0, -9.81 * m, 0.0]),
            nodes=[0, 1, 2],
            args=(inertia[:, 0],),
        ),
        ga.Part(force=lambda t, q, v: jnp.array([0.0, 0.0, torque(t)]), nodes=[0]),
        ga.Part(holonomic=lambda t, q: q[:2] - arm(q, 0.075), nodes=[0]),
        ga.Part(
            holonomic=lambda t, q, a, b: q[0][:2] + arm(q[0], a) - q[1][:2] + arm(q[1], b),
            nodes=[[0, 1], [1, 2]],
            args=([0.075, 0.15], [0.15, 0.0]),
        ),
        ga.Part(holonomic=lambda t, q: q[1:], nodes=[2]),
    ]
    return ga.Assembly(parts, ga.Euclidean(3), 3)


MIXED = [ga.R3xSO3(), ga.Euclidean(3), ga.Euclidean(1), ga.R3xSO3()]
TIP = np.array([0.1, 0.2, 0.3])


def mixed():
    """Bodies and points, with every kind of function, in an order of nodes that is not theirs."""
    stick = lambda t, q, c: c * (q[0] - q[1][:3] - turned(q[1], TIP))
    skid = lambda t, q, v: jnp.array([v[0][3] * q[1][0] - 2 * v[1][0] + t])
    push = lambda t, q, v, lam, psi: (jnp.zeros(6).at[0].set(psi[0] ** 3), jnp.array([q[1][0] * psi[0]]))
    wind = lambda t, q, v: (jnp.sin(t) * v[0], jnp.array([q[1][0] * v[0][2]]))
    parts = [
        ga.Part(mass=lambda t, q, m: m * (1 + q[0] ** 2) * jnp.eye(6), nodes=[3, 0], args=([1.0, 2.0],)),
        ga.Part(mass=np.eye(4) + 0.1, force=wind, nodes=[[1, 2]]),
        ga.Part(holonomic=stick, nodes=[[1, 3], [1, 0]], args=([1.0, 0.5],)),
        ga.Part(nonholonomic=skid, reaction=push, nodes=[[3, 2]]),
    ]
    return ga.Assembly(parts, MIXED)


def mixed_by_hand():
    def mass(t, q):
        M = jnp.zeros((16, 16)).at[:6, :6].set(2 * (1 + q[0] ** 2) * jnp.eye(6))
        M = M.at[10:, 10:].set((1 + q[11] ** 2) * jnp.eye(6))
        return M.at[6:10, 6:10].set(np.eye(4) + 0.1)

    def force(t, q, v):
        return jnp.zeros(16).at[6:9].set(jnp.sin(t) * v[6:9]).at[9].set(q[10] * v[8])

    def holonomic(t, q):
        end = lambda body: body[:3] + turned(body, TIP)
        return jnp.concatenate([q[7:10] - end(q[11:]), 0.5 * (q[7:10] - end(q[:7]))])

    def nonholonomic(t, q, v):
        return jnp.array([v[13] * q[10] - 2 * v[9] + t])

    def reaction(t, q, v, lam, psi):
        g = lambda q: holonomic(t, q)
        usual = -space.pull(q, jax.vjp(g, q)[1](lam)[0])
        return usual.at[10].add(psi[0] ** 3).at[9].add(q[10] * psi[0])

    space = ga.Product(*MIXED)
    return ga.System(mass, force, holonomic, nonholonomic, reaction, space)


def of(name, **parameters):
    return lambda: (problem(name, **parameters).system, problem(name, **parameters).args)


BY_HAND = {
    "body-chain": (lambda: assemblies.spherical().assembly, of("body-chain")),
    "spring-chain": (springs, of("spring-chain")),
    "double-pendulum": (double_pendulum, of("double-pendulum", m1=2.0, m2=0.5, l1=0.8, l2=1.3)),
    "slider-crank": (slider_crank, of("slider-crank")),
    "mixed": (mixed, lambda: (mixed_by_hand(), ())),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_an_assembly_has_the_equations_of_a_system_written_by_hand(name, rng):
    make, (system, args) = BY_HAND[name][0], BY_HAND[name][1]()
    net = make()
    n, size = net.space.dim, net.space.size(net.space.dim)

    def everything(system, t, q, v, a, lam, psi, args):
        return {
            "M": system.M(t, q, args),
            "applied": system.applied(t, q, v, args),
            "g": system.g(t, q, args),
            "k": system.k(t, q, v, args),
            "reactions": system.reactions(t, q, v, lam, psi, args),
            "G": system.G(t, q, args),
            "K": system.K(t, q, v, args),
            "g_ddot": system.g_ddot(t, q, v, a, args),
            "k_dot": system.k_dot(t, q, v, a, args),
        }

    m, p = len(system.g(0.0, jnp.ones(size), args)), len(system.k(0.0, jnp.ones(size), jnp.ones(n), args))
    ours, theirs = (jax.jit(lambda *x, s=s: everything(s, *x)) for s in (net, system))
    for t in (0.1, 0.7):
        q, v, a, lam, psi = (rng.normal(size=k) for k in (size, n, n, m, p))
        expected = theirs(t, q, v, a, lam, psi, args)
        for given in ((), net.args):
            found = ours(t, q, v, a, lam, psi, given)
            for key, value in expected.items():
                np.testing.assert_allclose(found[key], value, rtol=1e-12, atol=1e-12, err_msg=key)
    keys = {"mass": "M", "force": "applied", "holonomic": "g", "nonholonomic": "k", "reaction": "reactions"}
    assert net.shapes(()) == {name: expected[key].shape for name, key in keys.items()}


def test_a_mass_that_depends_on_nothing_but_args_is_constant():
    """Its matrix can be kept for the whole run."""
    assert model("rods", "sparse").assembly.constant_mass
    assert model("sledges", "sparse").assembly.constant_mass
    assert not model("beads", "sparse").assembly.constant_mass
    assert not mixed().constant_mass


# --- runs ---------------------------------------------------------------------------------------------


def fall(t, q, v, m):
    return m * jnp.array([0.0, -9.81])


def on_circle(t, q, m):
    return distance(q, 1.0)


def attract(t, q, v, k):
    return k * jnp.stack([q[1] - q[0], q[0] - q[1]])


WEIGHTS = ga.Part(
    mass=UNIT, force=fall, holonomic=on_circle, nodes=[0, 1], args=([1.0, 2.0],), name="weights"
)
SPRING = ga.Part(force=attract, nodes=[[0, 1]], args=(5.0,))
NET, Q0, V0 = ga.Assembly([WEIGHTS, SPRING], PLANE, 2), np.array([1.0, 0.0, 0.0, 1.0]), np.zeros(4)


@pytest.mark.slow
def test_gradients_with_respect_to_args():
    """That of a number which copies share, and those of an array with a row for each copy."""

    def end(masses, k):
        sol = ga.solve(NET, (0.0, 0.1), Q0, V0, h=0.02, args=((masses,), (k,)))
        return jnp.sum(jnp.sin(sol.q[-1])) + 0.01 * jnp.sum(sol.lam[-1])

    masses, e = np.array([1.0, 2.0]), 1e-5
    by_masses, by_k = jax.jit(jax.grad(end, (0, 1)))(jnp.array(masses), 5.0)
    assert float(by_k) == pytest.approx(float(end(masses, 5 + e) - end(masses, 5 - e)) / (2 * e), rel=1e-5)
    for i, d in enumerate(e * np.eye(2)):
        expected = float(end(masses + d, 5.0) - end(masses - d, 5.0)) / (2 * e)
        assert float(by_masses[i]) == pytest.approx(expected, rel=1e-5)


def test_a_batch_over_args():
    """One array has an axis more than in a single run."""
    masses = np.array([[1.0, 2.0], [1.5, 1.0], [4.0, 3.0]])
    run = {"t_span": (0.0, 0.1), "q0": Q0, "v0": V0, "h": 0.02, "save": 1}
    batch = ga.solve_batch(NET, args=((masses,), (5.0,)), **run)
    assert batch.success.all()
    for i, row in enumerate(masses):
        single = ga.solve(NET, args=((row,), (5.0,)), **run)
        np.testing.assert_allclose(batch.q[i], single.q, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(batch.lam[i], single.lam, rtol=1e-9)
    assert np.abs(batch.q[0] - batch.q[2]).max() > 1e-3


def test_vectors_by_node():
    sol = ga.solve(NET, (0.0, 0.1), Q0, V0, h=0.02)
    by_node = NET.by_node(sol.q)
    assert by_node.shape == (6, 2, 2)
    np.testing.assert_array_equal(by_node[:, 1], sol.q[:, 2:4])
    assert isinstance(jax.jit(NET.by_node)(Q0), jax.Array)
    with pytest.raises(ValueError, match="7 numbers cannot be divided among 2 nodes"):
        NET.by_node(np.zeros(7))
    with pytest.raises(ValueError, match=r"different spaces: use space\.split"):
        mixed().by_node(np.zeros(18))


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_and_pickles(again):
    other = again(NET)
    assert other is not NET
    assert repr(other) == repr(NET)
    assert repr(NET) == "Assembly of 2 nodes: 2 copies of the part 'weights', 1 copies of part 1"
    np.testing.assert_array_equal(other.applied(0.0, Q0, V0), NET.applied(0.0, Q0, V0))
    np.testing.assert_array_equal(other.g(0.0, Q0 + 1), NET.g(0.0, Q0 + 1))


def test_arrays_that_change_later_do_not_change_a_part():
    """A part keeps copies of what it is given."""
    nodes, mass, m = np.arange(2), np.eye(2), np.array([1.0, 2.0])
    net = ga.Assembly([ga.Part(mass=mass, force=fall, nodes=nodes, args=(m,))], space=PLANE, count=2)
    nodes[:], mass[:], m[:] = 0, 0.0, 0.0
    q = np.zeros(4)
    np.testing.assert_array_equal(net.M(0.0, q), np.eye(4))
    np.testing.assert_array_equal(net.applied(0.0, q, q), [0.0, -9.81, 0.0, -19.62])
