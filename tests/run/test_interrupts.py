"""Ctrl-C during a run: the process stops soon, keeps what was computed, and goes on to work."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from conftest import problem
from genalpha.backends.batch.pool import Pool, Stopped
from genalpha.numerics import codes


@pytest.fixture(autouse=True)
def heard():
    """Programs that a shell starts in the background ignore Ctrl-C, and so do their tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press():
    """As Ctrl-C, a while later."""
    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()


@pytest.mark.parametrize(
    ("backend", "steps"),
    [("native", {"h": 1e-3}), ("native", {"rtol": 1e-9, "max_steps": 10**9}), ("xla", {"h": 1e-3})],
)
def test_a_single_run(backend, steps):
    spring = systems.oscillator()
    solve = lambda span, **more: ga.solve(
        spring, span, [1.0], [0.0], save=1000, backend=backend, **steps, **more
    )
    seen = []
    begun = lambda state: seen.append(state) or (press() if len(seen) == 1 else None)
    with pytest.raises(KeyboardInterrupt) as caught:
        solve((0.0, 1e7 if "rtol" in steps else 1e4), callback=begun, callback_every=2000)
    sol = caught.value.solution
    assert sol.status == codes.INTERRUPTED
    assert "interrupted" in sol.message
    assert sol.state is None
    again = solve((0.0, 1.0))
    if "h" in steps and len(sol.t) > 1:
        np.testing.assert_array_equal(sol.q[1], again.q[1])


@pytest.mark.parametrize(
    "steps", [{"h": 1e-4}, pytest.param({"rtol": 1e-9, "max_steps": 10**9}, marks=pytest.mark.slow)]
)
def test_a_batch(steps):
    p = problem("spring-chain")
    v0 = p.v0 + np.linspace(0.0, 0.1, 64)[:, None]
    solve = lambda end: ga.solve_batch(p.system, (0.0, end), p.q0, v0, args=p.args, **steps)
    few = solve(0.01)
    press()
    with pytest.raises(KeyboardInterrupt):
        solve(1e4)
    np.testing.assert_array_equal(solve(0.01).q, few.q)


def test_threads_end_soon_after_an_exception_elsewhere():
    done = []

    def work(pool, i):
        for _ in range(10**6):
            pool.proceed()
        done.append(i)

    def fail(i):
        raise RuntimeError("elsewhere") if i == 0 else None

    with pytest.raises(RuntimeError, match="elsewhere"), Pool() as pool:
        pool.map(fail, range(1))
    with pytest.raises(Stopped):
        pool.proceed()

    def busy():
        with Pool() as pool:
            for i in range(100):
                pool._threads.submit(work, pool, i)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        busy()
    assert len(done) < 100


CHILD = """
    import sys, signal
    import jax.numpy as jnp, numpy as np, genalpha as ga
    from genalpha.compiler import machine

    n, links, old = 8, 0, machine.Library.__init__

    def init(self, *a, **k):
        global links
        old(self, *a, **k)
        links += 1
        if links == int(sys.argv[1]):
            signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]), 0.3)  # JAX ignores some

    machine.Library.__init__ = init
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    rods = lambda q: jnp.diff(q.reshape(n, 2), axis=0, prepend=jnp.zeros((1, 2)))
    force = lambda t, q, v: -0.1 * v - jnp.tile(jnp.array([0.0, 9.81]), n)
    chain = ga.System(jnp.eye(2 * n), force, lambda t, q: jnp.sum(rods(q) ** 2, axis=1) - 1.0)
    q0 = np.stack([np.arange(1.0, n + 1), np.zeros(n)], 1).reshape(-1)
    try:
        ga.solve(chain, (0.0, 1e4), q0, np.zeros(2 * n), rtol=1e-7, save="final", max_steps=10**9)
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
        print("interrupted", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("link", [1, 2, 3])
@pytest.mark.parametrize("seconds", [0.01, 0.1, 0.5])
def test_a_process_ends_well_after_an_interrupt(link, seconds, tmp_path):
    """During the compilation of the next piece of code, or in the run."""
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    command = [sys.executable, script, str(link), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_runs_compiled_code():
    spring = systems.oscillator()
    solve = lambda: ga.solve(spring, (0.0, 1.0), [1.0], [0.0], h=0.01).q[-1]
    expected = solve()
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX warns of forks
        child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(solve(), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert jnp.ones(1).sum() == 1
