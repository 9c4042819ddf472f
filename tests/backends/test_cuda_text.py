"""The text of the GPU's kernels compiled as plain C, and the driver of the GPU run on it, without a GPU."""

import functools
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import plain_gpu
import systems
from conftest import problem
from genalpha.backends.batch import cuda as driver
from genalpha.numerics import codes

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    return plain_gpu.installed(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("name", "method"),
    [
        ("wheel-on-rod", "soi2"),
        *(pytest.param("heavy-top", m, marks=pytest.mark.slow) for m in ("index3", "stabilized")),
    ],
)
def test_the_text_computes_what_the_cpu_does(gpu, name, method):
    p = problem(name)
    v0 = p.v0 * np.linspace(1.0, 1.05, 5)[:, None]
    run = functools.partial(
        ga.solve_batch, p.system, (p.t_span[0], p.t_span[0] + 25 * p.h), p.q0, v0, h=p.h, args=p.args
    )
    run = functools.partial(run, method=method, initial="assume", save=10)
    one, two = run(backend="cuda"), run(backend="native")
    assert (one.backend, two.backend) == ("cuda", "native")
    assert one.success.all()
    assert one.stats.steps.tolist() == [25] * 5
    np.testing.assert_array_equal(one.newton.iterations, two.newton.iterations)
    for name in ("t", "q", "v", "a", "a_alpha", "t_alpha", "lam", "psi"):
        a, b = getattr(one, name), getattr(two, name)
        if a.size:
            scale = np.abs(b).max()
            np.testing.assert_allclose(
                a, b, rtol=0, atol=1e-8 * scale if name in ("a", "lam") else 1e-11 * scale
            )
    np.testing.assert_allclose(
        one.reactions.total, two.reactions.total, atol=1e-8 * np.abs(two.reactions.total).max()
    )


@pytest.mark.parametrize(
    ("steps", "first"),
    [
        ({"h": 0.003}, 0.0),
        ({"rtol": 1e-3}, 0.013),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (({"h": 0.003}, 0.013), ({"rtol": 1e-3}, 0.0))
        ),
    ],
    ids=str,
)
def test_the_text_samples_as_the_cpu_does(gpu, steps, first):
    p = problem("heavy-top")
    v0, times = p.v0 * np.linspace(1.0, 1.05, 5)[:, None], np.array([first, 0.0171, 0.0172, 0.0173, 0.05])
    run = functools.partial(ga.solve_batch, p.system, (0.0, 0.06), p.q0, v0, args=p.args, t_eval=times)
    one, two = (run(backend=b, initial="assume", **steps) for b in ("cuda", "native"))
    assert (one.backend, two.backend) == ("cuda", "native")
    assert one.t_end.tolist() == two.t_end.tolist()
    np.testing.assert_array_equal(one.stats.steps, two.stats.steps)
    for name in ("t", "q", "v", "a", "a_alpha", "t_alpha", "lam"):
        a, b = getattr(one, name), getattr(two, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-8 * np.abs(b).max(), err_msg=name)


def test_members_that_fail_or_need_other_pivots_on_the_gpu(gpu):
    options = {"h": 1 / 64, "method": "index3", "newton": ga.Newton("full"), "save": 32}
    gone = np.array([3.0, 1.0, 5.0, -1.0, 4.0])
    run = functools.partial(
        ga.solve_batch, systems.fading(), (0.0, 2.0), [0.0, 0.0], [0.0, 0.0], args=(gone,), **options
    )
    many, same = run(backend="cuda"), run(backend="native")
    assert many.status.tolist() == [0, 0, 0, codes.NOT_FINITE, 0]
    np.testing.assert_allclose(many.q, same.q, atol=1e-12)
    assert np.isnan(many.q[3, 1:]).all()


def test_chunks_that_fit_the_memory(gpu):
    p = problem("spring-chain")
    v0 = p.v0 + np.linspace(0.0, 1.0, 9)[:, None]
    run = functools.partial(
        ga.solve_batch, p.system, (0.0, 0.1), p.q0, v0, h=0.01, args=p.args, backend="cuda"
    )
    whole = run()
    gpu.free = 20_000  # a few members at a time
    parts = run()
    assert all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True)
    )
    gpu.free = 100
    with pytest.raises(MemoryError, match="keep fewer rows"):
        run()


def test_long_programs_are_refused(gpu, monkeypatch):
    monkeypatch.setattr(driver, "OPTIMIZED", 100)
    circle = systems.circle.__wrapped__()  # of which no kernels were made before
    with pytest.raises(ValueError, match=r"cannot run this system: a step has more than 100.*on a GPU"):
        ga.solve_batch(circle, (0.0, 0.1), [[1.0, 0.0]] * 2, [0.0, 0.0], h=0.01, backend="cuda")


@pytest.mark.slow
def test_starts_by_xla_go_to_the_gpu_too(gpu):
    name = next(n for n in ga.problems.names() if problem(n).system.reaction is not None)
    p = problem(name)
    v0 = np.tile(p.v0, (3, 1))
    run = functools.partial(
        ga.solve_batch, p.system, (p.t_span[0], p.t_span[0] + 0.1), p.q0, v0, h=p.h, args=p.args
    )
    np.testing.assert_allclose(run(backend="cuda").q, run(backend="native").q, rtol=1e-12)


def test_systems_without_a_scalar_form_are_refused_on_the_gpu(gpu):
    system = ga.System(np.eye(2), lambda t, q, v, k: -k * jnp.sort(q))
    with pytest.raises(ValueError, match=r'backend="cuda" cannot run this system: sorting'):
        ga.solve_batch(
            system, (0, 1), [1.0, 1.0], [0.0, 0.0], h=0.01, args=(np.array([1.0, 2.0]),), backend="cuda"
        )


TABLED = {
    "arguments": lambda t, q, v, x, f: jnp.interp(q, x, f),
    "derived": lambda t, q, v, x, f: jnp.interp(q, 2.0 * x, jnp.sinh(f)),
    "moving": lambda t, q, v, x, f: jnp.interp(t, x, q[0] * f) - q,
    "known": lambda t, q, v, x, f: jnp.interp(q, np.linspace(-3, 3, 50), -np.linspace(-3, 3, 50)) + f[0],
}


@pytest.mark.parametrize(
    ("kind", "axes"),
    [
        pytest.param(
            kind,
            (None, 0) if own else (None, None),
            marks=() if own == (kind in ("derived", "moving")) else pytest.mark.slow,
            id=f"{kind}-{'own' if own else 'shared'}",
        )
        for kind in TABLED
        for own in (False, True)
    ],
)
def test_tables_on_the_gpu(gpu, kind, axes):
    x, q0 = np.linspace(-3.0, 3.0, 101), np.linspace(-1.0, 1.0, 5)[:, None]
    f = -np.sin(x) * (np.linspace(0.5, 1.5, 5)[:, None] if axes[1] == 0 else 1.0)
    system = ga.System(np.eye(1), TABLED[kind])
    run = functools.partial(
        ga.solve_batch, system, (0.0, 0.5), q0, [0.3], args=(x, f), args_axes=axes, h=0.01
    )
    one, two = run(backend="cuda"), run(backend="native")
    assert (one.backend, two.backend) == ("cuda", "native")
    np.testing.assert_allclose(one.q, two.q, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(one.a, two.a, rtol=1e-9, atol=1e-9)


def test_a_shared_table_is_in_memory_once(gpu, monkeypatch):
    sizes = []
    steps = driver.CudaCode.steps
    measured = lambda code, inputs, *rest: (
        sizes.append([len(x) for x in inputs]),
        steps(code, inputs, *rest),
    )
    monkeypatch.setattr(driver.CudaCode, "steps", measured)
    x, q0 = np.linspace(-3.0, 3.0, 501), np.linspace(-1.0, 1.0, 5)[:, None]
    system = ga.System(np.eye(1), TABLED["arguments"])
    for axes, f in (((None, None), -x), ((None, 0), np.tile(-x, (5, 1)))):
        run = functools.partial(ga.solve_batch, system, (0.0, 0.1), q0, [0.3], h=0.01, backend="cuda")
        assert run(args=(x, f), args_axes=axes).success.all()
    (few, shared), (many, rest) = sizes
    assert few < 100 < 501 < many
    assert shared > 1000 > rest > 500


def test_accuracy_on_the_gpu(gpu):
    """Columns run there, and are combined on the CPU."""
    lengths = np.array([0.5, 1.0, 1.5])
    start = np.stack([lengths, 0 * lengths], axis=1)
    run = functools.partial(
        ga.solve_batch, systems.pendulum(), (0.0, 0.5), start, [0.0, 0.0], args=(lengths,), accuracy=1e-6
    )
    many, same = run(backend="cuda"), run()
    assert (many.backend, same.backend) == ("cuda", "native")
    np.testing.assert_allclose(many.q, same.q, atol=1e-12)
    assert many.error.norm.max() <= 1
