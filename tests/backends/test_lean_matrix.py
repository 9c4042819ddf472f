"""One small matrix for both stages of SOI2 on a GPU, with a stand-in for the GPU."""

import functools
import shutil

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha.backends.native import kernels as native
from genalpha.backends.native.lean_step import LeanKernels
from genalpha.backends.native.step import StepKernels
from genalpha.numerics import codes, newton
from test_cuda_text import gpu as gpu

needs_c = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def made(system):
    """The kinds of kernels of a system, and the operations and stored factors of each."""
    found = {}
    for kernels in system._programs.values():
        if isinstance(kernels, native.Kernels):
            program, _ = kernels.program(kernels.order)
            renew = program.kernels["renew"]
            found[type(kernels.step)] = (renew.operations, len(renew.stores))
    return found


@pytest.fixture
def damped():
    """Two points joined by a rod on a line, with a spring and a damper to the ground: args (k, c)."""
    return ga.System(
        np.eye(4),
        lambda t, q, v, k, c: -k * q - c * v + jnp.array([1.0, 0.0, 0.0, -1.0]),
        lambda t, q, k, c: jnp.array([(q[:2] - q[2:]) @ (q[:2] - q[2:]) - 1.0]),
    )


START = [0.0, 0.0, 1.0, 0.0], [0.0, 0.3, 0.0, -0.4]


@needs_c
def test_the_gpu_stores_the_factors_of_one_stage(gpu):
    p = ga.problems.get("heavy-top")
    v0 = p.v0 * np.linspace(1.0, 1.05, 3)[:, None]
    run = functools.partial(ga.solve_batch, p.system, (0.0, 0.03), p.q0, v0, h=1e-3, args=p.args)
    one, two = run(backend="cuda", initial="assume"), run(backend="native", initial="assume")
    kinds = made(p.system)
    assert set(kinds) == {LeanKernels, StepKernels}
    assert kinds[LeanKernels][0] < 400  # operations
    assert 2.5 * kinds[LeanKernels][0] < kinds[StepKernels][0]  # of which derivatives are a small part
    assert 2 * kinds[LeanKernels][1] < kinds[StepKernels][1]
    for name in ("q", "v", "a_alpha", "lam_method"):
        a, b = getattr(one, name), getattr(two, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=2e-11 * np.abs(b).max(), err_msg=name)


@pytest.mark.slow
@needs_c
@pytest.mark.parametrize("h", [4e-3, 1e-2])
def test_long_steps_run_again_with_the_whole_matrix(gpu, h):
    """At h = 4e-3 the rate of the small matrix is about 0.4, which must not be taken for rounding."""
    p = ga.problems.get("heavy-top")
    run = functools.partial(ga.solve_batch, p.system, (0.0, 20 * h), p.q0, p.v0[None], h=h, args=p.args)
    one, two = run(backend="cuda"), run(backend="native")
    assert one.success.all()
    assert set(made(p.system)) == {LeanKernels, StepKernels}
    np.testing.assert_array_equal(one.newton.iterations, two.newton.iterations)
    np.testing.assert_allclose(one.q, two.q, rtol=0, atol=1e-12)


@needs_c
def test_each_member_gets_the_matrix_that_it_needs(gpu, damped):
    k, c = np.array([1.0, 1e6, 1.0, 10.0, 1e7]), np.array([0.1, 0.1, 3e3, 0.0, 1e4])
    run = functools.partial(ga.solve_batch, damped, (0.0, 0.5), *START, h=0.01, args=(k, c), save=5)
    one, two = run(backend="cuda"), run(backend="native")
    assert (one.backend, two.backend) == ("cuda", "native")
    assert one.success.all()
    for name in ("t", "q", "v", "lam", "a_alpha"):
        a, b = getattr(one, name), getattr(two, name)
        scale = np.abs(b).max(axis=tuple(range(1, b.ndim)), keepdims=True)
        np.testing.assert_allclose(a / scale, b / scale, rtol=0, atol=1e-9, err_msg=name)
    same = (one.newton.iterations == two.newton.iterations).all(axis=1)
    assert same[[1, 2, 4]].all()


@needs_c
def test_rows_on_the_host_are_replaced_too(gpu, damped):
    k, c = np.array([1.0, 1e6, 10.0, 1.0, 1.0, 1e6]), np.full(6, 0.1)
    run = functools.partial(ga.solve_batch, damped, (0.0, 0.1), *START, h=0.01, args=(k, c), backend="cuda")
    whole = run()
    gpu.free = 20_000  # a few members at a time
    np.testing.assert_array_equal(whole.q, run().q)


@needs_c
def test_a_failure_is_that_of_the_whole_matrix(gpu, damped):
    k, c = np.array([1.0, np.nan]), np.zeros(2)
    sol = ga.solve_batch(
        damped, (0.0, 0.1), *START, h=0.01, args=(k, c), backend="cuda", method=ga.HHTSOI2(-0.1)
    )
    same = ga.solve_batch(damped, (0.0, 0.1), *START, h=0.01, args=(k, c), method=ga.HHTSOI2(-0.1))
    assert sol.status.tolist() == same.status.tolist()
    assert sol.status[0] == codes.SUCCESS
    assert sol.method == "hht-soi2"


@needs_c
@pytest.mark.parametrize("options", [{"rtol": 1e-4}, {"h": 0.01, "newton": ga.Newton("frozen")}], ids=str)
def test_where_the_matrix_is_whole(gpu, damped, options):
    run = ga.solve_batch(
        damped, (0.0, 0.05), *START, args=(np.array([1.0, 2.0]), 0.1), backend="cuda", **options
    )
    assert run.success.all()
    assert LeanKernels not in made(damped)


def test_a_poor_rate_is_no_rounding_if_the_matrix_is_not_exact():
    options, one = ga.Newton(), jnp.ones(1)
    levels = newton.Levels(jnp.full(1, 1e-14), jnp.full(1, 1e-8), jnp.zeros(()))
    before = newton.begun(jnp.zeros(()), jnp.zeros(()))._replace(
        norm=jnp.array(1e5), rate=jnp.array(0.5), jacobians=jnp.ones(())
    )

    def status(correction, residual, exact):
        x, value, step = one, one * residual, one * correction
        after = newton.judged(
            options, levels, newton.one_group(1), before, x, value, step, "usual" if exact else "partial"
        )
        return float(after.status)

    assert status(5e-8, 5e-8, True) == codes.SUCCESS
    assert status(5e-8, 5e-8, False) == newton.RUNNING
    assert status(5e-8, 1e-14, False) == codes.SUCCESS
