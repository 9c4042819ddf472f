"""solve under jit, vmap, jvp and grad; compiled once; closures over traced values."""

import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from conftest import problem
from genalpha.numerics import codes

STEPS = {"h": 0.01, "rho_inf": 0.6}


def with_param(p, key, value):
    return ({**p.args[0], key: value},)


def end_of(p, t_end, **options):
    """A smooth number made of every component at the end."""

    def number(q0, v0, args):
        sol = ga.solve(p.system, (0.0, t_end), q0, v0, args=args, **{**STEPS, **options})
        parts = [sol.q, sol.v, sol.a, sol.a_alpha, sol.lam, sol.psi]
        return sum(jnp.sum(jnp.sin(part[-1] * 0.01)) for part in parts)

    return number


def central(function, x, e):
    return (function(x + e) - function(x - e)) / (2 * e)


@pytest.mark.parametrize(
    ("name", "key", "e"),
    [
        ("pendulum", "k", 1e-2),
        ("rolling-disk", "I1", 1e-5),
        ("wheel-on-rod", "m", 1e-5),
    ],
)
@pytest.mark.slow
def test_gradients_match_central_differences(name, key, e):
    p = problem(name)
    number = end_of(p, 0.3)
    value = p.args[0][key]
    by_param = lambda x: number(p.q0, p.v0, with_param(p, key, x))
    expected = central(lambda x: float(by_param(x)), value, e)
    reverse = float(jax.jit(jax.grad(by_param))(value))
    assert reverse == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "key"), [("pendulum", "k"), ("rolling-disk", "I1"), ("wheel-on-rod", "m")])
def test_forward_derivatives_are_reverse_ones(name, key):
    p = problem(name)
    by_param = lambda x: end_of(p, 0.3)(p.q0, p.v0, with_param(p, key, x))
    forward, reverse = (jax.jit(of(by_param))(p.args[0][key]) for of in (jax.jacfwd, jax.grad))
    assert float(forward) == pytest.approx(float(reverse), rel=1e-11)


def test_gradients_of_everything_with_respect_to_everything():
    """Gravity, and the angle and the speed of a pendulum, on a run whose steps are given one by one."""

    def end(s):
        along = jnp.array([jnp.cos(s[0]), jnp.sin(s[0])])
        across = jnp.array([-along[1], along[0]])
        sol = ga.solve(systems.pulled(), (0.0, 0.2), along, s[1] * across, h=s[3:], args=(s[2],))
        return sum(jnp.sum(jnp.sin(0.1 * x[-1])) for x in (sol.q, sol.v, sol.a, sol.a_alpha, sol.lam))

    start = np.array([0.3, 0.5, 9.81, *np.full(10, 0.02)])
    gradient = jax.jit(jax.grad(end))(jnp.array(start))
    keeps_the_sum = np.eye(13)[7] - np.eye(13)[12]
    for direction in (*np.eye(13)[:3], keeps_the_sum):
        expected = float(central(lambda e, d=direction: end(start + e * d), 0.0, 1e-6))
        assert float(gradient @ direction) == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_gradients_with_respect_to_initial_values_of_a_disk():
    """Along directions that stay on the constraints: the disk's tilt, and its spin with rolling velocity."""
    p = problem("rolling-disk")
    number = end_of(p, 0.3)
    along = jnp.array([1.0, 0, 0, 0, 1.0])
    end = lambda s: number(p.q0 + s[0] * jnp.eye(5)[2], p.v0 + s[1] * along, p.args)
    gradient = jax.jit(jax.grad(end))(jnp.zeros(2))
    for i, direction in enumerate(np.eye(2)):
        expected = float(central(lambda e, d=direction: end(e * d), 0.0, 1e-5))
        assert float(gradient[i]) == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_gradient_with_respect_to_step_sizes():
    p = problem("pendulum")

    def angle(sizes):
        return ga.solve(p.system, (0, 0.2), p.q0, p.v0, h=sizes, args=p.args).q[-1, 2]

    sizes, e = np.full(20, 0.01), 1e-6 * np.eye(20)[4] - 1e-6 * np.eye(20)[9]  # keeps the sum
    expected = (angle(sizes + e) - angle(sizes - e)) / 2
    gradient = jax.grad(lambda s: angle(s))(jnp.array(sizes))
    assert float(gradient @ e) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.slow
def test_second_derivatives():
    system = ga.System(np.eye(1), lambda t, q, v, stiffness: -stiffness * jnp.sin(q))

    def angle(stiffness):
        return ga.solve(system, (0, 0.5), [1.0], [0.0], h=0.05, args=(stiffness,)).q[-1, 0]

    e = 1e-3
    expected = (angle(2.0 + e) - 2 * angle(2.0) + angle(2.0 - e)) / e**2
    assert float(jax.jit(jax.hessian(angle))(2.0)) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rolling-disk", "wheel-on-rod"])
def test_vmap_equals_single_runs(name):
    p = problem(name)
    masses = np.linspace(1.0, 5.0, 3)
    run = lambda m: ga.solve(p.system, (0, 0.2), p.q0, p.v0, args=with_param(p, "m", m), **STEPS)
    batch = jax.jit(jax.vmap(run))(masses)
    assert batch.success.all()
    for i, m in enumerate(masses):
        single = run(m)
        for field in ("t", "q", "v", "a", "a_alpha", "t_alpha", "lam", "psi"):
            one, many = getattr(single, field), getattr(batch, field)[i]
            np.testing.assert_allclose(many, one, rtol=1e-9, atol=1e-9, err_msg=field)
        np.testing.assert_allclose(batch.residuals.velocity[i], single.residuals.velocity, atol=1e-11)
        np.testing.assert_allclose(batch.reactions.total[i], single.reactions.total, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_vmap_over_initial_values():
    p = problem("rolling-disk")
    tilts = np.linspace(-0.3, 0.3, 4)
    start = np.stack([p.q0 + tilt * np.eye(5)[2] for tilt in tilts])
    run = lambda q0: ga.solve(p.system, (0, 0.5), q0, p.v0, args=p.args, **STEPS)
    batch = jax.vmap(run)(start)
    for i in range(4):
        np.testing.assert_allclose(batch.q[i], run(start[i]).q, rtol=1e-9, atol=1e-9)


def test_jit_equals_the_plain_call_and_returns_a_solution():
    p = problem("pendulum")
    run = lambda k: ga.solve(p.system, (0, 0.3), p.q0, p.v0, args=with_param(p, "k", k), **STEPS)
    plain, jitted = run(3000.0), jax.jit(run)(3000.0)
    assert isinstance(jitted, ga.Solution)
    np.testing.assert_allclose(jitted.q, plain.q, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(jitted.lam, plain.lam, rtol=1e-9, atol=1e-7)
    assert int(jitted.stats.steps) == plain.stats.steps
    assert int(jitted.stats.newton_iterations) == plain.stats.newton_iterations
    assert jitted.message == plain.message
    assert len(jax.tree.leaves(jitted)) > 10  # a pytree


@pytest.mark.slow
@pytest.mark.parametrize("steps", [{"h": 0.02}, {"rtol": 1e-4, "max_steps": 100}])
def test_a_system_may_close_over_traced_values(steps):
    """A force, a constraint and the mass matrix that depend on the argument of grad, without args."""

    def end(p, **steps):
        system = ga.System(
            mass=p * jnp.eye(2),
            force=lambda t, q, v: jnp.array([p**2, -9.81]),
            holonomic=lambda t, q: jnp.array([q @ q - 1.0 + 0.0 * p]),
        )
        return ga.solve(system, (0, 0.3), [1.0, 0.0], [0.0, 0.0], **steps).q[-1, 1]

    sides, traced = 2.0 + 1e-5 * np.array([-1, 1]), functools.partial(end, **steps)
    same = steps if "h" in steps else {"h": 1e-3}  # differences need the same steps on both sides
    values = [float(end(p, **same)) for p in sides]
    found, tolerance = float(jax.jit(jax.grad(traced))(2.0)), 1e-6 if same is steps else 1e-3
    assert found == pytest.approx(np.diff(values)[0] / 2e-5, rel=tolerance)
    if same is steps:
        np.testing.assert_allclose(jax.jit(jax.vmap(traced))(sides), values, rtol=1e-10)


def count_compilations(function):
    """How many programs XLA compiles while the function runs."""
    compiled = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        function()
    finally:
        jax.monitoring.clear_event_listeners()
    return len(compiled)


def test_the_same_system_and_shapes_compile_once():
    p = ga.problems.get("rolling-disk")  # a system of its own
    args, moved, heavy = p.args, p.q0 + 0.01 * np.eye(5)[2], with_param(p, "m", 3.0)
    run = functools.partial(ga.solve, p.system, v0=p.v0, backend="xla")
    first = count_compilations(lambda: run((0, 0.5), p.q0, h=0.01, args=args))
    assert first > 0

    def again():
        run((0, 0.5), p.q0, h=0.01, args=args)
        run((0, 8.0), moved, h=0.003, args=heavy)
        run((0, 0.5), p.q0, h=np.full(25, 0.02), args=args)

    assert count_compilations(again) == 0  # other initial values, parameters, step sizes, numbers of steps


def test_programs_are_freed_with_their_system(new_garbage):
    system = ga.System(np.eye(1), lambda t, q, v: -q)
    ga.solve(system, (0, 1), [1.0], [0.0], h=0.1)
    alive = weakref.ref(system)
    del system
    gc.collect()
    assert alive() is None


def test_failures_under_transforms_become_status_and_nan():
    system = ga.System(np.eye(1), lambda t, q, v, tc: jnp.where(t > tc, jnp.nan, -q))
    run = lambda tc: ga.solve(system, (0, 1), [1.0], [0.0], h=0.1, args=(tc,))
    batch = jax.jit(jax.vmap(run))(jnp.array([0.45, 2.0]))
    assert batch.status.tolist() == [codes.NOT_FINITE, codes.SUCCESS]
    assert batch.success.tolist() == [False, True]
    assert np.isfinite(batch.q[0, :5]).all()
    assert np.isnan(batch.q[0, 5:]).all()
    assert np.isfinite(batch.t).all()  # the steps that were asked for
    assert batch.t_end[0] < batch.t_end[1] == batch.t[1, -1]
    assert batch.stats.steps.tolist() == [4, 10]
    assert np.isfinite(batch.q[1]).all()  # the other member is not disturbed


@pytest.mark.slow
@pytest.mark.parametrize("derivative", [jax.jacrev, jax.jacfwd])
def test_no_derivative_of_a_run_that_has_failed_is_finite(derivative):
    """Also of rows that were reached: they may not be what a loss is about."""
    run = functools.partial(ga.solve, systems.spring(), (0.0, 2.0), [1.0], [0.0], t_eval=[0.25, 2.0])
    rows = lambda k: (sol := run(args=(k,), rtol=1e-4, max_steps=60)).q[:, 0] + sol.a[:, 0]
    assert np.isfinite(jax.jit(rows)(1.0)).tolist() == [True, False]
    assert not np.isfinite(jax.jit(derivative(rows))(1.0)).any()


@pytest.mark.slow
def test_inconsistent_start_under_transforms_becomes_status():
    run = jax.jit(lambda q0: ga.solve(systems.circle(), (0, 1), q0, jnp.zeros(2), h=0.1))
    sol = run(jnp.array([1.1, 0.0]))
    assert int(sol.status) == codes.INCONSISTENT
    assert np.isnan(sol.q[1:]).all()
    assert bool(run(jnp.array([1.0, 0.0])).success)


def test_traced_steps_that_do_not_fit_become_status():
    run = jax.jit(lambda h: ga.solve(systems.oscillator(), (0, 1), [1.0], [0.0], h=h).status)
    assert int(run(jnp.array([0.5, 0.2, 0.3]))) == codes.SUCCESS
    assert int(run(jnp.array([0.5, 0.2, 0.4]))) == codes.BAD_STEPS
    assert int(run(jnp.array([0.9, -0.2, 0.3]))) == codes.BAD_STEPS


def test_a_traced_scalar_h_is_refused():
    p = problem("pendulum")
    with pytest.raises(TypeError, match="must not be traced"):
        jax.jit(lambda h: ga.solve(p.system, (0, 1), p.q0, p.v0, h=h, args=p.args))(0.1)
    with pytest.raises(TypeError, match="t_span must not be traced"):
        jax.jit(lambda t: ga.solve(p.system, (0, t), p.q0, p.v0, h=0.1, args=p.args))(0.1)


@pytest.mark.slow
def test_gradients_of_a_long_stiff_run_stay_finite():
    p = problem("pendulum")
    gradient = jax.jit(jax.grad(lambda k: end_of(p, 2.0)(p.q0, p.v0, with_param(p, "k", k))))(3000.0)
    assert np.isfinite(gradient)
