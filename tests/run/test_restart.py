"""Runs that are stopped and continued give the same bits: in memory, through files, after a kill."""

import functools
import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from conftest import problem

METHODS = ["soi2", "hht-soi2", "index3", "stabilized", "dae-alpha", "cs", "cm", "projected"]
STEPS = {"fixed": {"h": 0.01}, "controlled": {"rtol": 1e-4}}


def solve(t_span=(0.0, 0.5), *, name="pendulum", state=None, **options):
    p = problem(name)
    start = (p.q0, p.v0) if state is None else ()
    return ga.solve(p.system, t_span, *start, args=p.args, state=state, **options)


def assert_same(whole, first, second):
    """Two parts equal the whole run, bit for bit. The row between them is in both."""
    for name in ("q", "v", "a", "a_alpha", "lam", "psi", "t", "t_alpha"):
        parts = np.concatenate([getattr(first, name), getattr(second, name)[1:]])
        np.testing.assert_array_equal(parts, getattr(whole, name), name)
    np.testing.assert_array_equal(
        np.concatenate([first.newton.iterations, second.newton.iterations]), whole.newton.iterations
    )
    assert first.stats.steps + second.stats.steps == whole.stats.steps
    assert first.stats.rejected + second.stats.rejected == whole.stats.rejected
    total = first.stats.newton_iterations + second.stats.newton_iterations
    assert total == whole.stats.newton_iterations


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(
    ("backend", "method"),
    # hht-soi2 and cm store what soi2 and cs do.
    [pytest.param("native", m, marks=pytest.mark.slow if m in ("hht-soi2", "cm") else ()) for m in METHODS]
    + [pytest.param("xla", m, marks=pytest.mark.slow) for m in METHODS],
)
def test_stopped_and_continued_is_the_uninterrupted_run(method, backend, steps):
    options = {"method": method, "backend": backend, **STEPS[steps]}
    whole = solve(**options)
    assert whole.backend == backend
    for stop in (1, 7, 23):
        first = solve(callback=lambda s: True, callback_every=stop, **options)
        assert first.stats.steps == stop
        assert_same(whole, first, solve(state=first.state, **options))


def test_many_stops(tmp_path):
    whole, parts, state = solve(rtol=1e-4), [], None
    while not parts or parts[-1].t[-1] < 0.5:
        parts.append(solve(rtol=1e-4, state=state, callback=lambda s: True, callback_every=5))
        parts[-1].state.save(tmp_path / "state")
        state = ga.load_state(tmp_path / "state")  # also in another process
    assert len(parts) > 10
    np.testing.assert_array_equal(np.concatenate([p.q[1:] for p in parts]), whole.q[1:])


@pytest.mark.parametrize("method", ["soi2", "stabilized", "cs"])
def test_a_span_in_two_pieces_on_one_grid(method):
    """Also if the end is not on the grid, so that the last step is shorter."""
    for end in (0.5, 0.457):
        whole = solve((0.0, end), h=0.01, method=method)
        first = solve((0.0, 0.2), h=0.01, method=method)
        for start in (0.2, 0.0):
            second = solve((start, end), h=0.01, method=method, state=first.state)
            np.testing.assert_allclose(second.q[-1], whole.q[-1], rtol=1e-10)
            np.testing.assert_array_equal(second.t[1:], whole.t[21:])
        if end == 0.5:
            np.testing.assert_array_equal(second.q[1:], whole.q[21:])


def test_max_steps_and_raising_them():
    whole = solve(rtol=1e-4)
    first = solve(rtol=1e-4, max_steps=10, throw=False)
    assert not first.success
    assert_same(whole, first, solve(rtol=1e-4, state=first.state))


def test_positional_state_and_a_longer_span():
    first = solve((0.0, 0.25), rtol=1e-6)
    p = problem("pendulum")
    second = ga.solve(p.system, (0.25, 0.5), first.state, args=p.args, rtol=1e-6)
    assert second.t[0] == 0.25
    np.testing.assert_array_equal(second.q[0], first.q[-1])
    np.testing.assert_allclose(second.q[-1], solve(rtol=1e-6).q[-1], atol=3e-5)


@pytest.mark.parametrize(
    "change",
    [{"h": 0.005}, {"rtol": 1e-5}, {"method": "stabilized", "h": 0.01}, {"backend": "xla", "h": 0.01}],
)
def test_continuing_with_other_options(change):
    """No transient: the error stays that of the method."""
    exact = problem("pendulum").reference(0.5)
    first = solve((0.0, 0.25), h=0.01)
    second = solve((0.25, 0.5), state=first.state, **change)
    assert np.abs(second.q[-1] - exact.q).max() < 2e-2
    assert np.abs(second.lam[-1] - exact.lam).max() < 0.05 * np.abs(exact.lam).max()
    jump = np.abs(np.diff(second.lam[:4], axis=0)).max()
    assert jump < 0.2 * np.abs(second.lam).max()


def test_a_state_after_a_terminal_event():
    low = ga.Event(lambda t, q, v, *args: q[0], terminal=True)
    first = solve((0.0, 2.0), h=0.002, events=low)
    assert first.status == -1
    second = solve((first.t[-1], 2.0), h=0.002, state=first.state)
    whole = solve((0.0, 2.0), h=0.002)
    np.testing.assert_allclose(second.q[-1], whole.q[-1], atol=2e-2)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"state": 3}, TypeError, r"state must be the state of a solution, sol\.state"),
        ({"t_span": (0.4, 0.5)}, ValueError, "t_span starts at 0.4, but the state is at t = 0.25"),
        ({"t_span": (0.25, 0.2)}, ValueError, "end must be later than the start"),
        ({"t_span": (0.0, 0.2)}, ValueError, "is at t = 0.25 already"),
    ],
)
def test_bad_states(options, error, message):
    given = {"t_span": (0.25, 0.5), "state": solve((0.0, 0.25), h=0.01).state, "h": 0.01, **options}
    with pytest.raises(error, match=message):
        solve(**given)
    with pytest.raises(TypeError, match="v0 must be given"):
        ga.solve(problem("pendulum").system, (0.0, 1.0), [1.0, 0.0, 0.0], h=0.1)


oscillator = systems.oscillator()


@pytest.mark.parametrize(
    "backends",
    [("native", "native")]
    + [
        pytest.param(b, marks=pytest.mark.slow)
        for b in (("native", "xla"), ("xla", "xla"), ("xla", "native"))
    ],
)
def test_events_that_only_the_second_part_has(backends):
    state = ga.solve(oscillator, (0.0, 1.0), [1.0], [0.0], backend=backends[0]).state
    zero = ga.Event(lambda t, q, v: q[0], terminal=True)
    sol = ga.solve(oscillator, (1.0, 10.0), state=state, events=zero, backend=backends[1])
    assert sol.status == -1
    assert abs(sol.t[-1] - np.pi / 2) < 1e-2
    without = ga.solve(oscillator, (sol.t[-1], 10.0), state=sol.state, backend=backends[1])
    assert without.t[-1] == 10.0


def test_other_arguments_are_checked_again():
    system = systems.pendulum()
    state = ga.solve(system, (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], args=(1.0,)).state
    with pytest.raises(ga.InconsistentInitialValues):
        ga.solve(system, (1.0, 2.0), state=state, args=(2.0,))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "xla"])
def test_another_system_starts_anew_from_the_motion(backend):
    """One without the constraint, a heavier one, and one that the motion does not fit."""
    pull = lambda g: lambda t, q, v: jnp.array([0.0, -g])
    rod = lambda length: lambda t, q: jnp.array([q @ q - length**2])
    pendulum = ga.System(np.eye(2), pull(9.81), rod(1.0))
    first = ga.solve(pendulum, (0.0, 1.0), [1.0, 0.0], [0.0, 0.0], rtol=1e-5, backend=backend)
    go_on = functools.partial(ga.solve, t_span=(1.0, 1.2), state=first.state, rtol=1e-5, backend=backend)
    for other in (ga.System(np.eye(2), pull(9.81)), ga.System(np.eye(2), pull(19.62), rod(1.0))):
        fresh = ga.solve(other, (1.0, 1.2), first.q[-1], first.v[-1], rtol=1e-5, backend=backend)
        sol = go_on(other)
        np.testing.assert_allclose(sol.a[0], fresh.a[0], rtol=1e-9)
        np.testing.assert_allclose(sol.q[-1], fresh.q[-1], atol=1e-5)
    with pytest.raises(ga.InconsistentInitialValues, match="holonomic"):
        go_on(ga.System(np.eye(2), pull(9.81), rod(2.0)))
    again = go_on(ga.System(np.eye(2), pull(9.81), rod(1.0)))  # the same, made once more
    np.testing.assert_array_equal(again.q, go_on(pendulum).q)


@pytest.mark.parametrize("method", ["soi2", "index3", "stabilized", "cs"])
@pytest.mark.parametrize("rest", [1e-4, 1e-6, 1e-8])
def test_a_short_last_step_does_not_spoil_the_next_run(method, rest):
    """a_α would be adjusted to a step that is up to a million times as long."""
    whole = solve((0.0, 0.5), h=0.001, method=method)
    first = solve((0.0, 0.2 + rest), h=0.001, method=method)
    second = solve((0.2 + rest, 0.5), h=0.001, method=method, state=first.state)
    np.testing.assert_allclose(second.q[-1], whole.q[-1], atol=1e-5)
    np.testing.assert_allclose(second.lam[-1], whole.lam[-1], atol=1e-3 * np.abs(whole.lam).max())


# --- files --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"h": 0.01}, {"rtol": 1e-4}, {"h": 0.01, "t_eval": [0.1, 0.33]}, {"rtol": 1e-4, "save": 4}]
)
def test_a_run_that_is_interrupted_goes_on_from_its_file(options, tmp_path):
    class Interrupted(Exception):
        pass

    def break_off(state):
        raise Interrupted

    whole, path = solve(**options), tmp_path / "run"
    for attempt in range(3):  # each time a little further
        with pytest.raises(Interrupted):
            solve(
                **options,
                checkpoint=path,
                checkpoint_every=0.0,
                callback=break_off,
                callback_every=8 * (attempt + 1),
            )
        assert path.exists() or attempt == 0
    sol = solve(**options, checkpoint=path)
    for name in ("t", "q", "v", "a", "lam", "a_alpha", "t_alpha"):
        np.testing.assert_array_equal(getattr(sol, name), getattr(whole, name), name)
    assert sol.stats == whole.stats
    again = solve(**options, checkpoint=path)  # finished: nothing is left to do
    np.testing.assert_array_equal(again.q, whole.q)
    assert os.listdir(tmp_path) == ["run"]


FLOOR = ga.Event(lambda t, q, v: q[0], direction=-1, reset=lambda t, q, v: -0.5 * v)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["native", "xla"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize(
    "output", [{}, {"t_eval": [0.1, 0.9, 1.25]}, {"save": (3, ["q", "newton", "residuals"])}]
)
def test_a_run_with_events_goes_on_from_its_file(backend, steps, output, tmp_path):
    class Interrupted(Exception):
        pass

    def break_off(state):
        if state.t > 1.2:  # after two bounces
            raise Interrupted

    options = {"events": FLOOR, "backend": backend, **STEPS[steps], **output}
    run = functools.partial(ga.solve, systems.ball(), (0.0, 1.3), [1.0], [0.0], **options)
    whole, path = run(), tmp_path / "run"
    with pytest.raises(Interrupted):
        run(checkpoint=path, checkpoint_every=0.0, callback=break_off)
    sol = run(checkpoint=path)
    assert len(sol.t_events[0]) >= 2
    assert sol.stats == whole.stats
    for ours, theirs in zip(*map(jax.tree.leaves, (sol, whole)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


OF_FILES = itertools.product(("pendulum", "heavy-top", "wheel-on-rod"), ("native", "xla"), STEPS)
FAST = {("pendulum", "native", "controlled"), ("heavy-top", "native", "controlled")}
FAST |= {("wheel-on-rod", "native", "fixed"), ("pendulum", "xla", "fixed")}


@pytest.mark.parametrize(
    ("name", "backend", "steps"),
    [pytest.param(*case, marks=() if case in FAST else pytest.mark.slow) for case in OF_FILES],
)
def test_a_state_from_a_file_goes_on_with_the_same_bits(name, backend, steps, tmp_path):
    options = {"name": name, "backend": backend, **STEPS[steps]}
    half = solve((0.0, 0.1), **options)
    half.state.save(tmp_path / "half.npz")
    again = ga.load_state(tmp_path / "half.npz")
    assert repr(again) == repr(half.state)
    from_file, from_memory = (solve((0.1, 0.2), state=state, **options) for state in (again, half.state))
    for ours, theirs in zip(*map(jax.tree.leaves, (from_file, from_memory)), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_files_of_other_runs_are_refused(tmp_path):
    path = tmp_path / "run"
    solve(h=0.01, checkpoint=path)
    with pytest.raises(ValueError, match="checkpoint of another run"):
        solve(h=0.02, checkpoint=path)
    solve_other = lambda k: ga.System(mass=np.eye(1), force=lambda t, q, v: -k * q)
    other = tmp_path / "other"
    ga.solve(solve_other(1.0), (0.0, 1.0), [1.0], [0.0], checkpoint=other)
    with pytest.raises(ValueError, match="checkpoint of another run"):  # the model was edited
        ga.solve(solve_other(4.0), (0.0, 1.0), [1.0], [0.0], checkpoint=other)
    with pytest.raises(ValueError, match="cannot be written: no folder"):
        solve(h=0.01, checkpoint=tmp_path / "missing" / "run")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(ValueError, match="damaged"):
        solve(h=0.01, checkpoint=path)
    with pytest.raises(ValueError, match="checkpoint_every must be a number"):
        solve(h=0.01, checkpoint=path, checkpoint_every="often")


OF_CHILD = {"fixed": {"h": 1e-3}, "controlled": {"rtol": 1e-7, "atol": 1e-9}}
CHILD = """
    import json, os, sys, time
    import numpy as np
    import genalpha as ga

    path, out, steps = sys.argv[1:4]
    p, options = ga.problems.get("wheel-on-rod"), json.loads(steps)
    slow = lambda state: time.sleep(3e-2)
    print("ready", flush=True)
    sol = ga.solve(p.system, (0.0, 2.0), p.q0, p.v0, args=p.args, checkpoint=path, checkpoint_every=0.0,
                   callback=slow, callback_every=10, **options)
    np.savez(out + ".part.npz", t=sol.t, q=sol.q, v=sol.v, a=sol.a, lam=sol.lam, psi=sol.psi)
    os.replace(out + ".part.npz", out)  # all of it or nothing, whenever the end comes
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "most"),
    [("controlled", 1), ("controlled", 40), ("fixed", 40)],
)
def test_a_process_that_is_killed_again_and_again_ends_with_the_same_bits(steps, most, tmp_path):
    script = tmp_path / "child.py"
    script.write_text(textwrap.dedent(CHILD))
    run = lambda path, out: subprocess.Popen(
        [sys.executable, script, path, out, json.dumps(OF_CHILD[steps])], stdout=subprocess.PIPE, text=True
    )
    path, out, rng, kills = tmp_path / "run", tmp_path / "out.npz", np.random.default_rng(0), 0
    while not out.exists():
        child = run(path, out)
        assert child.stdout.readline() == "ready\n"
        time.sleep(rng.uniform(0.5, 1.5))
        if child.poll() is None and kills < most:
            child.send_signal(signal.SIGKILL)
            kills += 1
        child.wait()
        child.stdout.close()
    assert kills >= 1
    whole = problem("wheel-on-rod").solve(t_end=2.0, **OF_CHILD[steps])
    with np.load(out) as killed:
        for name in killed.files:
            np.testing.assert_array_equal(killed[name], getattr(whole, name), name)


def test_a_solution_that_was_pickled_goes_on_as_well():
    half, whole = solve((0.0, 0.2), h=0.01), solve(h=0.01)
    again = solve(h=0.01, state=pickle.loads(pickle.dumps(half)).state)
    np.testing.assert_array_equal(again.q[-1], whole.q[-1])


def test_a_state_keeps_the_arguments_of_its_run_if_they_are_changed_later():
    spring = systems.spring()
    k = np.array([1.0])
    half = ga.solve(spring, (0.0, 1.0), [1.0], [0.0], h=0.01, args=(k,))
    k[0] = 25.0
    late = ga.solve(spring, (1.0, 2.0), state=half.state, h=0.01, args=(k,))
    anew = ga.solve(spring, (1.0, 2.0), half.q[-1], half.v[-1], h=0.01, args=(k,))
    np.testing.assert_allclose(late.q[-1], anew.q[-1], rtol=1e-10)


def test_a_checkpoint_of_other_events_is_refused(tmp_path):
    ball = systems.ball()
    floor = lambda t, q, v: q[0]
    run = lambda **event: ga.solve(
        ball, (0.0, 0.4), [1.0], [0.0], h=0.01, events=ga.Event(floor, **event), checkpoint=tmp_path / "run"
    )
    run(direction=-1)
    for other in (
        {"direction": 1},
        {"direction": -1, "terminal": True},
        {"direction": -1, "reset": lambda t, q, v: -v},
    ):
        with pytest.raises(ValueError, match="checkpoint of another run"):
            run(**other)
