"""Derivatives of runs with sparse matrices: against those with dense matrices, and against differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import assemblies
import genalpha as ga
from assemblies import matrices, model
from differences import EXACT, richardson, weighted
from genalpha.backends.sparse import front

METHODS = ("soi2", "hht-soi2", "index3", "stabilized", "dae-alpha", "projected")
FAST = {("flails", "index3")}
STEPS = np.array([0.01, 0.01, 0.016, 0.008, 0.012, 0.012])


def cases():
    for name in assemblies.MODELS:
        methods = {"free beads": ("generalized-alpha", "soi2"), "wires": METHODS[:4]}.get(name, METHODS)
        for method in methods:
            yield pytest.param(name, method, marks=() if (name, method) in FAST else pytest.mark.slow)


def start(assembly, q0, v0):
    """What a run is differentiated with respect to: args, q0, v0 and the sizes of two steps."""
    args = jax.tree.map(lambda x: jnp.asarray(x, float), assembly.args)
    return args, jnp.asarray(q0), jnp.asarray(v0), jnp.zeros(())


def loss(assembly, args, q0, v0, later, **options):
    """A number that all outputs change. ``later`` makes one step longer and another shorter."""
    steps = jnp.asarray(STEPS).at[0].add(later).at[3].add(-later)
    options = {"h": steps, "initial": "assume", "newton": EXACT} | options
    if "rtol" in options:
        del options["h"]
    sol = ga.solve(assembly, (0.0, float(STEPS.sum())), q0, v0, args=args, **options)
    assert sol.backend == "native" or front.DENSE  # dense matrices may be too large for native code
    return weighted(sol)


def derivatives(name, kind, **options):
    """The gradient, and the derivative along one direction by forward mode."""
    assembly, q0, v0 = model(name, kind)
    at = start(assembly, q0, v0)
    rng = np.random.default_rng(4)
    along = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=np.shape(x))), at)
    number = functools.partial(loss, assembly, **options)
    with matrices(kind):
        found = jax.grad(lambda at: number(*at))(at)
        forward = jax.jvp(lambda at: number(*at), (at,), (along,))[1]
    reverse = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(along), strict=True))
    assert float(forward) == pytest.approx(float(reverse), rel=1e-9)
    return found


@pytest.mark.parametrize(("name", "method"), cases())
def test_derivatives_with_sparse_and_dense_matrices_agree(name, method):
    """All methods, spaces and kinds of constraints.

    Multipliers of index 3 have rounding errors of ε|q|/(βh²).
    """
    sparse, dense = (derivatives(name, kind, method=method) for kind in ("sparse", "dense"))
    tolerance = 1e-6 if method == "index3" else 1e-8
    for a, b in zip(jax.tree.leaves(sparse), jax.tree.leaves(dense), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * (1e-300 + np.abs(b).max(initial=0.0)))


@pytest.mark.parametrize("name", ["rods", pytest.param("spherical", marks=pytest.mark.slow)])
def test_derivatives_agree_with_differences(name):
    """Differences of the same steps, extrapolated. Quaternions must keep their length."""
    assembly, q0, v0 = model(name, "sparse")
    at = start(assembly, q0, v0)
    rng = np.random.default_rng(5)
    along = jax.tree.map(lambda x: 0.1 * rng.normal(size=np.shape(x)), at)
    along = (along[0], along[1] if name == "rods" else 0 * along[1], along[2], 1e-2)

    def number(e):
        moved = jax.tree.map(lambda x, d: np.asarray(x + e * d), at, along)
        return float(loss(assembly, *moved))

    with matrices("sparse"):
        expected = richardson(number, 0.02)
        found = jax.grad(lambda e: loss(assembly, *jax.tree.map(lambda x, d: x + e * d, at, along)))(0.0)
    assert float(found) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({"save": "final"}, marks=pytest.mark.slow),
        pytest.param({"t_eval": np.array([0.0, 0.013, 0.04, 0.06])}, marks=pytest.mark.slow),
        pytest.param({"save": "final", "method": "index3"}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_error_control_is_differentiated_with_the_steps_that_it_took(kept):
    assembly, q0, v0 = model("rods", "sparse")
    at = start(assembly, q0, v0)
    span, given = (0.0, float(STEPS.sum())), {"initial": "assume", "newton": EXACT} | kept
    with matrices("sparse"):
        plain = ga.solve(
            assembly, span, q0, v0, args=assembly.args, rtol=1e-4, **given | {"save": "all", "t_eval": None}
        )
        steps = np.diff(plain.t)
        assert len(np.unique(steps)) > 2

        def number(args, q0, v0, **steps):
            sol = ga.solve(assembly, span, q0, v0, args=args, **given, **steps)
            assert sol.backend == "native"
            return weighted(sol, ("q", "v", "lam", "lam_method"))

        found = jax.jit(jax.grad(functools.partial(number, rtol=1e-4), argnums=(0, 1, 2)))(*at[:3])
        expected = jax.grad(functools.partial(number, h=steps), argnums=(0, 1, 2))(*at[:3])
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * np.abs(b).max(initial=0.0))


@pytest.mark.slow
def test_members_of_a_batch_have_their_own_gradients():
    assembly, q0, v0 = model("rods", "sparse")
    args, *rest = start(assembly, q0, v0)
    number = lambda k: loss(assembly, (*args[:3], (k,)), *rest)
    stiff = jnp.array([2.0, 5.0])
    with matrices("sparse"):
        together = jax.jit(jax.vmap(jax.value_and_grad(number)))(stiff)
        alone = [jax.value_and_grad(number)(k) for k in stiff]
    np.testing.assert_allclose(together, np.transpose(alone), rtol=1e-12)


@pytest.mark.slow
def test_long_runs_are_computed_again_in_blocks(monkeypatch):
    """The same gradient to the last bit, with a tape for a few steps."""
    from genalpha.backends.transforms import runs

    assembly, q0, v0 = model("rods", "sparse")
    at = start(assembly, q0, v0)
    with matrices("sparse"):
        kept = jax.grad(lambda at: loss(assembly, *at))(at)
        monkeypatch.setattr(runs, "TAPE", 10)
        again = jax.grad(lambda at: loss(assembly, *at))(at)
    jax.tree.map(np.testing.assert_array_equal, again, kept)


def test_a_run_that_fails_has_no_gradient():
    """The start is not on the constraints."""
    assembly, q0, v0 = model("rods", "sparse")
    args, *_ = start(assembly, q0, v0)

    def number(q0):
        sol = ga.solve(assembly, (0.0, 0.1), q0, v0, args=args, h=0.01)
        return jnp.sum(sol.q)

    with matrices("sparse"):
        value, slope = jax.value_and_grad(number)(jnp.asarray(q0) + 0.1)
    assert np.isnan(value)
    assert np.isnan(slope).all()


def test_a_singular_start_has_no_gradient():
    """Masses of zero."""
    assembly, q0, v0 = model("rods", "sparse")
    args, *_ = start(assembly, q0, v0)

    def number(scale):
        (m, g), *others = args
        sol = ga.solve(assembly, (0.0, 0.1), q0, v0, args=((m * scale, g), *others), h=0.01)
        return jnp.sum(sol.q)

    with matrices("sparse"):
        value, slope = jax.value_and_grad(number)(0.0)
    assert np.isnan(value)
    assert np.isnan(slope)


@pytest.mark.slow
def test_a_force_without_a_derivative_is_named():
    """The speed of a point at rest."""

    def drag(t, q, v, c):
        return -c * v * jnp.sqrt(v @ v)

    parts = [
        ga.Part(mass=np.eye(2), force=lambda t, q, v: jnp.array([0.0, -9.81]), nodes=[0, 1], name="points"),
        ga.Part(force=drag, nodes=[1], args=([0.1],), name="drag"),
    ]
    assembly = ga.Assembly(parts, space=ga.Euclidean(2), count=2)
    number = lambda c: jnp.sum(
        ga.solve(assembly, (0.0, 0.1), np.zeros(4), np.zeros(4), args=((), (c,)), h=0.01).q
    )
    what = "force of copy 0 of the part 'drag' has a square root of zero at t = 0: `return -c"
    with matrices("sparse"), pytest.warns(ga.GradientWarning, match=what):
        assert np.isnan(jax.jit(jax.grad(number))(jnp.array([0.1]))).all()
