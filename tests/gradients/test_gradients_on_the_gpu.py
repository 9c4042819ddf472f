"""Derivatives of batches on a GPU, whose kernels are compiled as plain C here: the numbers of the CPU."""

import functools
import shutil
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import plain_gpu
import systems
from conftest import problem
from genalpha.backends.batch import cuda as driver
from genalpha.backends.transforms.device import CudaRun

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
TIMES = np.linspace(0.0, 0.1, 11)
MEMBERS, LOST = 5, 3
LIBRARY = driver.library


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        yield plain_gpu.installed(tmp_path_factory.mktemp("gpu"), patch)


@pytest.fixture(scope="module")
def system():
    """A point on the unit circle, args (u, end): forces at eleven times, until the end."""

    def force(t, q, v, u, end):
        return jnp.where(t > end, jnp.nan, jnp.array([jnp.interp(t, TIMES, u), -9.81]))

    return ga.System(np.eye(2), force, lambda t, q, u, end: jnp.array([q @ q - 1.0]))


def members():
    u = np.random.default_rng(0).normal(size=(MEMBERS, len(TIMES)))
    end = np.where(np.arange(MEMBERS) == LOST, 0.05, 1.0)
    return u, end, np.linspace(0.0, 0.5, MEMBERS)


def runner(system, backend, **options):
    def solve(u, end, angle):
        q0 = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
        given = {"h": 0.02, "method": "index3"} | options
        return ga.solve(system, (0.0, 0.1), q0, jnp.zeros(2), args=(u, end), backend=backend, **given)

    return solve


def same(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_values_and_derivatives_are_those_of_the_cpu(gpu, system, monkeypatch):
    monkeypatch.setattr(CudaRun, "member", None)  # nobody runs on the CPU instead
    found = {}
    for backend in ("cuda", "native"):
        solve = runner(system, backend)
        number = lambda *x, solve=solve: jnp.sum(solve(*x).q[1:] ** 3) + solve(*x).v[-1, 1]
        forward = lambda *x, solve=solve: jax.jvp(lambda u: solve(u, *x[1:]).a_alpha, (x[0],), (x[0],))[1]
        value = jax.jit(jax.vmap(jax.value_and_grad(number, (0, 2))))(*members())
        found[backend] = value, jax.jit(jax.vmap(forward))(*members())
        whole = jax.jit(jax.vmap(solve))(*members())
        assert whole.backend == backend
        assert np.flatnonzero(~whole.success).tolist() == [LOST]
        found[backend] += (whole.q, whole.v, whole.stats.steps, whole.newton.iterations, whole.t_end)
    same(found["cuda"], found["native"])
    (values, slopes), changes = found["cuda"][:2]
    for x in (values[:, None], *(x.reshape(MEMBERS, -1) for x in slopes), changes.reshape(MEMBERS, -1)):
        assert np.isnan(x).all(axis=1).tolist() == np.isnan(x).any(axis=1).tolist()
        assert np.flatnonzero(np.isnan(x[:, 0])).tolist() == [LOST]


@pytest.mark.slow
def test_the_last_row_in_chunks_and_derivatives_to_the_steps(gpu, system, monkeypatch):
    def slopes(backend):
        run = lambda h, *x: runner(system, backend, h=h, save="final")(*x)
        number = lambda h, *x: jnp.sum(run(h, *x).q ** 3)
        return jax.vmap(jax.grad(number, (0, 1)), (None, 0, 0, 0))(jnp.full(5, 0.02), *members())

    whole = slopes("cuda")
    monkeypatch.setattr(gpu, "free", 20_000)  # a few members at a time
    same(slopes("cuda"), whole)
    same(whole, slopes("native"))


@pytest.mark.slow
def test_one_run_is_a_batch_of_one(gpu, system):
    one = [x[0] for x in members()]
    for derivative in (jax.grad, jax.jacfwd):
        found = [derivative(lambda *x, b=b: runner(system, b)(*x).q[-1, 0])(*one) for b in ("cuda", "native")]
        same(*found)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heavy-top", "slider-crank"])
@pytest.mark.parametrize("method", ["soi2", "index3"])
def test_named_problems(gpu, name, method):
    p = problem(name)
    v0 = p.v0 * np.linspace(1.0, 1.05, 5)[:, None]
    span = (p.t_span[0], p.t_span[0] + 20 * p.h)

    def number(v0, backend):
        run = functools.partial(ga.solve, p.system, span, p.q0, v0, h=p.h, args=p.args)
        return jnp.sum(run(method=method, initial="assume", backend=backend).q ** 3)

    slopes = lambda backend: jax.jit(jax.vmap(jax.grad(functools.partial(number, backend=backend))))(v0)
    one, two = map(slopes, ("cuda", "native"))
    np.testing.assert_allclose(one, two, rtol=0, atol=1e-11 * np.abs(two).max())


@pytest.mark.slow
def test_members_that_need_other_pivots_run_on_the_cpu(gpu):
    """One of them fails."""
    gone = np.array([3.0, 1.0, 5.0, -1.0])
    options = {"h": 1 / 64, "method": "index3", "newton": ga.Newton("full")}

    def number(gone, backend):
        run = functools.partial(ga.solve, systems.fading(), (0.0, 2.0), jnp.zeros(2), jnp.zeros(2))
        return run(args=(gone,), backend=backend, **options).q[-1, 1]

    slopes = [
        jax.vmap(jax.value_and_grad(functools.partial(number, backend=b)))(gone) for b in ("cuda", "native")
    ]
    same(*slopes)
    assert np.isnan(slopes[0]).all(axis=0).tolist() == [False, False, False, True]


REFUSED = {
    "no transform": ({}, False, "runs batches: call ga.solve_batch"),
    "error control": ({"h": None, "rtol": 1e-3}, True, "cannot run this system: error control"),
    "events": ({"events": lambda t, q, v, u, end: q[0]}, True, "events: not possible"),
    "extrapolate": ({"extrapolate": 2}, True, "extrapolate: not possible"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_refused(gpu, system, what):
    options, traced, text = REFUSED[what]
    solve = runner(system, "cuda", **options)
    with pytest.raises(ValueError, match=text):
        jax.vmap(solve)(*members()) if traced else solve(*[np.asarray(x[0]) for x in members()])


def on_a_line(force):
    """Two runs of a point on a line."""
    system = ga.System(np.eye(1), force)
    run = lambda q: ga.solve(system, (0.0, 0.1), q, jnp.zeros(1), h=0.05, backend="cuda")
    return jax.vmap(run)(jnp.ones((2, 1)))


def test_without_a_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(driver, "library", LIBRARY)
    with pytest.raises(ImportError, match='backend="cuda" needs the package cupy'):
        on_a_line(lambda t, q, v: -q)


def test_python_functions_and_different_steps_are_refused(gpu, system):
    with pytest.raises(ValueError, match=r"cannot run this system: .* runs in Python"):
        on_a_line(lambda t, q, v: ga.host(lambda q: -np.sin(q), (1,))(q))
    own = lambda h, *x: runner(system, "cuda", h=h)(*x).q
    with pytest.raises(ValueError, match="different steps"):
        jax.vmap(own)(np.full((MEMBERS, 5), 0.02), *members())
