"""jit, vmap, jvp, grad, scan and cond around runs by machine code, in any order."""

import functools
import pickle
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems

STEPS = {"h": 0.02}
CONTROL = {"rtol": 1e-5, "save": "final"}
GRAVITIES, ANGLES = np.array([9.0, 10.0, 11.0]), np.array([0.0, 0.3])


def solve(g, angle=0.0, **options):
    q0 = jnp.stack([jnp.cos(angle), jnp.sin(angle)])
    return ga.solve(systems.pulled(), (0.0, 0.2), q0, jnp.zeros(2), args=(g,), **(options or STEPS))


def height(g, angle=0.0, **options):
    return solve(g, angle, **options).q[-1, 1]


def rows(g):
    return solve(g).q


slope = jax.grad(height)


@functools.cache
def each():
    return np.array([float(slope(g)) for g in GRAVITIES])


def branched(g):
    return jax.lax.cond(g > 5, height, jnp.sin, g)


def test_machine_code_runs():
    sol = jax.jit(solve)(9.0)
    assert sol.backend == "native"
    plain = ga.solve(systems.pulled(), (0.0, 0.2), [1.0, 0.0], [0.0, 0.0], args=(9.0,), **STEPS)
    np.testing.assert_allclose(sol.q, plain.q, atol=1e-15)


WAYS = {
    "vmap of grad": lambda: jax.vmap(slope)(GRAVITIES),
    "jit of vmap of grad": lambda: jax.jit(jax.vmap(slope))(GRAVITIES),
    "vmap of jit of grad": lambda: jax.vmap(jax.jit(slope))(GRAVITIES),
    "grad of a sum over vmap": lambda: jax.grad(lambda g: jnp.sum(jax.vmap(height)(g)))(jnp.array(GRAVITIES)),
    "vmap of jacfwd": lambda: jax.vmap(jax.jacfwd(height))(GRAVITIES),
    "jvp of jit": lambda: [jax.jvp(jax.jit(height), (g,), (1.0,))[1] for g in GRAVITIES],
    "linearize": lambda: [jax.linearize(height, g)[1](1.0) for g in GRAVITIES],
    "lax.map": lambda: jax.lax.map(slope, jnp.array(GRAVITIES)),
    "scan": lambda: jax.lax.scan(lambda carry, g: (carry, slope(g)), 0.0, jnp.array(GRAVITIES))[1],
    "checkpoint": lambda: [jax.grad(jax.checkpoint(height))(g) for g in GRAVITIES],
    "vmap of vmap": lambda: jax.vmap(jax.vmap(slope))(GRAVITIES[:, None])[:, 0],
    "cond": lambda: [jax.jit(jax.grad(branched))(g) for g in GRAVITIES],
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_the_same_derivative(way):
    np.testing.assert_allclose(WAYS[way](), each(), rtol=1e-13)


def test_derivatives_through_a_scan_add_up():
    heights = lambda s: jax.lax.scan(lambda carry, g: (carry, height(s * g)), 0.0, jnp.array(GRAVITIES))[1]
    total = lambda s: jnp.sum(heights(s))
    assert float(jax.grad(total)(1.0)) == pytest.approx(each() @ GRAVITIES, rel=1e-12)


def test_a_batch_in_which_members_take_another_branch():
    """JAX computes both branches, the one that is not taken with zeros for what the run has kept."""
    one = lambda g: jax.lax.cond(g > 9.5, height, lambda g: 0.5 * g, g)
    np.testing.assert_allclose(jax.jit(jax.vmap(jax.grad(one)))(GRAVITIES), [0.5, *each()[1:]], rtol=1e-13)


def test_batches_over_some_inputs():
    """Over q0 alone, with a gravity that all share; and over both, one within the other."""
    alone = np.array([[float(slope(g, angle)) for angle in ANGLES] for g in GRAVITIES])
    shared = jax.grad(lambda g: jnp.sum(jax.vmap(lambda angle: height(g, angle))(ANGLES)))
    np.testing.assert_allclose([shared(g) for g in GRAVITIES], alone.sum(axis=1), rtol=1e-12)
    nested = jax.vmap(lambda g: jax.vmap(lambda angle: slope(g, angle))(ANGLES))(GRAVITIES)
    np.testing.assert_allclose(nested, alone, rtol=1e-12)
    assert jax.vmap(height)(jnp.zeros(0)).shape == jax.vmap(slope)(jnp.zeros(0)).shape == (0,)


def test_directions_and_weights_that_a_batch_shares():
    """Derivatives with respect to the direction of a jvp and to the weights of a vjp."""
    jacobians = np.stack([jax.jacfwd(rows)(g) for g in GRAVITIES])
    np.testing.assert_allclose(jacobians, [jax.jacrev(rows)(g) for g in GRAVITIES], rtol=1e-11, atol=1e-15)
    along = lambda d: jnp.sum(jax.vmap(lambda g: jax.jvp(rows, (g,), (d,))[1])(GRAVITIES))
    assert float(jax.grad(along)(2.0)) == pytest.approx(jacobians.sum(), rel=1e-12)
    counted = jnp.arange(1.0, 4.0)
    back = lambda w: jnp.sum(jax.vmap(lambda g: jax.vjp(rows, g)[1](w)[0])(GRAVITIES) * counted)
    found = jax.grad(back)(jnp.ones(jacobians.shape[1:]))
    np.testing.assert_allclose(found, np.einsum("i,ijk", counted, jacobians), rtol=1e-12, atol=1e-15)


def test_members_of_a_batch_under_error_control_take_their_own_steps():
    one = lambda g: jax.value_and_grad(lambda g: height(g, **CONTROL))(g)
    found = jax.jit(jax.vmap(one))(GRAVITIES)
    np.testing.assert_allclose(np.transpose(found), [one(g) for g in GRAVITIES], rtol=1e-13)


@pytest.mark.slow
def test_second_derivatives_of_batches():
    second = jax.jit(jax.vmap(jax.hessian(height)))(GRAVITIES)
    expected = [(slope(g + 1e-4) - slope(g - 1e-4)) / 2e-4 for g in GRAVITIES]
    np.testing.assert_allclose(second, expected, rtol=1e-6)


def test_threads_share_one_program():
    found, program = {}, jax.jit(slope)

    def work(i):
        found[i] = [float(program(g)) for g in GRAVITIES] + [float(jax.jit(jax.vmap(slope))(GRAVITIES)[0])]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for numbers in found.values():
        np.testing.assert_allclose(numbers, [*each(), each()[0]], rtol=1e-13)


@pytest.mark.parametrize("steps", [STEPS, pytest.param(CONTROL, marks=pytest.mark.slow)], ids=str)
def test_threads_begin_together(steps):
    """All of them need code that does not exist yet: that of a system of their own, three times."""
    expected, interval = float(jax.grad(functools.partial(height, **steps))(9.0)), sys.getswitchinterval()
    for _ in range(3):
        system, found = systems.pulled.__wrapped__(), []
        run = functools.partial(ga.solve, system, (0.0, 0.2), [1.0, 0.0], [0.0, 0.0], **steps)
        program, together = (
            jax.jit(jax.grad(lambda g, run=run: run(args=(g,)).q[-1, 1])),
            threading.Barrier(3),
        )
        program.lower(9.0).compile()

        def work(program=program, together=together, found=found):
            together.wait()
            found.append(float(program(9.0)))

        threads = [threading.Thread(target=work) for _ in range(3)]
        sys.setswitchinterval(1e-6)
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(interval)
        np.testing.assert_allclose(found, [expected] * 3, rtol=1e-13)


def test_solutions_can_be_pickled():
    sol = jax.jit(solve)(9.0)
    again = pickle.loads(pickle.dumps(sol))
    np.testing.assert_array_equal(again.q, sol.q)
    np.testing.assert_array_equal(again.reactions.total, sol.reactions.total)


def test_a_program_ends_though_its_last_run_goes_on():
    """JAX runs in the background, and nobody waits for the last run."""
    script = """
import jax, jax.numpy as jnp, genalpha as ga
system = ga.System(jnp.eye(1), lambda t, q, v, k: -k * q)
loss = lambda k: jnp.sum(ga.solve(system, (0.0, 300.0), [1.0], [0.0], args=(k,), h=1e-3).q ** 2)
run = jax.jit(jax.value_and_grad(loss))
jax.block_until_ready(run(1.0))
run(2.0)
"""
    done = subprocess.run([sys.executable, "-c", script], timeout=120, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
