"""What derivatives may be taken of and with respect to: kinds of arguments, functions, outputs, programs."""

import dataclasses
import functools
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from differences import EXACT, gradient, richardson
from genalpha.backends.transforms import host

SPAN = (0.0, 0.2)
START = np.array([1.0, 0.0]), np.zeros(2)


def solve(g, **options):
    return ga.solve(systems.pulled(), SPAN, *START, args=(g,), newton=EXACT, **({"h": 0.02} | options))


# --- outputs ----------------------------------------------------------------------------------------------

OUTPUTS = {
    "a": lambda g: solve(g).a[3],
    "λ": lambda g: solve(g).lam[:, 0],
    "λ of the method": lambda g: solve(g).lam_method[:, 0],
    "reactions": lambda g: solve(g).reactions.holonomic[-1],
    "residuals": lambda g: solve(g, method="index3").residuals.velocity[-1:],
    "extra": lambda g: jnp.concatenate([x[-1] for x in solve(g, method="stabilized").extra.values()]),
    "between steps": lambda g: jnp.concatenate([(at := solve(g)(0.077)).q, at.v, at.a, at.lam]),
    "at times": lambda g: (sol := solve(g, t_eval=[0.0, 0.033, 0.2])).q[:, 1] + sol.a[:, 0] + sol.lam[:, 0],
    "some steps": lambda g: solve(g, save=3).v[:, 1],
    "the last step": lambda g: solve(g, save="final").q[-1],
    "some quantities": lambda g: solve(g, save={"q": [1], "lam": None}).q[-1],
    "times kept apart": lambda g: solve(g, t_eval=[0.0, 0.2], dense_output=True)(0.077).q,
}


FAST = ("a", "λ", "at times", "some quantities")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in OUTPUTS]
)
def test_every_output_has_derivatives(name):
    function = OUTPUTS[name]
    expected = richardson(lambda e: function(9.0 + e), 0.5)
    assert np.abs(expected).max() > 1e-6
    for derivative in (jax.jacfwd, jax.jacrev):
        np.testing.assert_allclose(derivative(function)(9.0), expected, rtol=1e-7, atol=1e-9)


@pytest.mark.slow
def test_only_the_final_row_leaves_a_run_that_keeps_no_other():
    """No array has as many rows as the run has steps, except for the tape of its derivatives."""
    final = lambda g: (sol := solve(g, save="final")).q[-1, 1] + sol.lam[-1, 0]
    every = lambda g: (sol := solve(g)).q[-1, 1] + sol.lam[-1, 0]
    gravities = jnp.array([8.0, 9.0, 10.0])
    for derivative in (jax.grad, jax.jacfwd):
        assert float(derivative(final)(9.0)) == float(derivative(every)(9.0))
        found, expected = (jax.vmap(derivative(f))(gravities) for f in (final, every))
        np.testing.assert_allclose(found, expected, rtol=1e-14)
    run = jax.make_jaxpr(final)(9.0)
    shapes = [x.aval.shape for e in run.eqns if "genalpha" in e.primitive.name for x in e.outvars]
    assert shapes
    assert all(shape[:1] != (11,) for shape in shapes)


def test_numbers_of_a_run_are_constants():
    """Counts, estimated errors and the steps under error control do not count as changing."""
    control = {"rtol": 1e-4, "h": None}
    assert float(jax.grad(lambda g: solve(g).stats.newton_iterations + g)(9.0)) == 1.0
    assert float(jax.grad(lambda g: jnp.nansum(solve(g, **control).errors.norm) + g)(9.0)) == 1.0
    assert float(jax.grad(lambda g: jnp.sum(solve(g, **control).t) + g)(9.0)) == 1.0


# --- arguments --------------------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Loads:
    pull: jax.Array
    more: dict[str, jax.Array]


@functools.cache
def loaded():
    """Arguments as a dataclass, an integer, and one that nothing reads."""
    force = lambda t, q, v, loads, power, unused: loads.pull * jnp.sin(t) ** power - loads.more["k"] @ q
    return ga.System(np.eye(2), force)


def loaded_end(loads, power, unused):
    options = {"h": 0.05, "args": (loads, power, unused), "newton": EXACT}
    return ga.solve(loaded(), SPAN, *START, **options).q[-1].sum()


def test_trees_of_arguments():
    loads = Loads(jnp.array([1.0, 2.0]), {"k": jnp.eye(2), "not read": jnp.ones(3)})
    found, nothing = jax.grad(loaded_end, argnums=(0, 2))(loads, 2, jnp.ones(2))
    assert isinstance(found, Loads)
    change = lambda e: Loads(loads.pull + e[:2], {**loads.more, "k": jnp.eye(2) + e[2]})
    expected = gradient(lambda e: loaded_end(change(e), 2, jnp.ones(2)), 3, 0.1)
    np.testing.assert_allclose([*found.pull, found.more["k"].sum()], expected, rtol=1e-9)
    assert not np.any(found.more["not read"])
    assert not np.any(nothing)


def test_integers_are_constants_and_other_integers_other_programs():
    loads = Loads(jnp.array([1.0, 2.0]), {"k": jnp.eye(2), "not read": jnp.ones(3)})
    ends = [float(jax.jit(lambda x, power=power: loaded_end(x, power, 0.0))(loads)) for power in (1, 2)]
    np.testing.assert_allclose(ends, [float(loaded_end(loads, power, 0.0)) for power in (1, 2)], rtol=1e-14)
    assert ends[0] != ends[1]


@pytest.mark.slow
def test_traced_integers_are_named():
    """XLA runs them, which a warning says."""
    loads = Loads(jnp.array([1.0, 2.0]), {"k": jnp.eye(2), "not read": jnp.ones(3)})
    with pytest.warns(ga.FallbackWarning, match=r"args\[1\] is traced and of type int64"):
        found = jax.jit(lambda power: loaded_end(loads, power, 0.0))(2)
    np.testing.assert_allclose(found, loaded_end(loads, 2, 0.0), rtol=1e-10)


def test_single_precision():
    """Runs are made in doubles. The derivative has the type of the input."""
    for function, x in (
        (lambda g: solve(g).q[-1, 1], 9.0),
        (lambda q0: ga.solve(systems.pulled(), SPAN, q0, START[1], h=0.02, args=(9.0,)).q[-1, 1], START[0]),
    ):
        found, wide = jax.grad(function)(jnp.asarray(x, np.float32)), jax.grad(function)(jnp.asarray(x))
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wide, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_values_that_a_system_closes_over_are_arguments_of_machine_code():
    def end(k, **steps):
        force = lambda t, q, v: jnp.array([0.0, -9.81]) - k * v
        system = ga.System(np.eye(2), force, lambda t, q: jnp.array([q @ q - 1.0]))
        return ga.solve(system, SPAN, *START, **steps)

    for steps in ({"h": 0.05}, {"rtol": 1e-2, "max_steps": 50, "save": "final"}):
        sol = jax.jit(functools.partial(end, **steps))(0.1)
        assert sol.backend == "native"
        assert bool(sol.success)
    slope = jax.jit(jax.grad(lambda k: end(k, rtol=1e-2, max_steps=50, save="final").q[-1, 1]))(0.1)
    expected = richardson(lambda e: end(0.1 + e, h=1e-3).q[-1, 1], 0.05, 3)
    assert float(slope) == pytest.approx(float(expected), rel=1e-2)


def test_initial_values_off_the_constraints():
    """There the derivative is that of a run from the values as they are."""
    run = functools.partial(ga.solve, systems.pulled(), SPAN, h=0.02, args=(9.0,), newton=EXACT)
    number = lambda s, mode: run(START[0] + s[:2], START[1] + s[2:], initial=mode).q[-1].sum()
    expected = gradient(lambda s: number(s, "assume"), 4)
    for mode in ("check", "assume"):
        np.testing.assert_allclose(jax.grad(number)(jnp.zeros(4), mode), expected, rtol=1e-8)


# --- functions --------------------------------------------------------------------------------------------


@jax.custom_jvp
def soft(x):
    return jnp.log1p(jnp.exp(x))


@soft.defjvp
def _soft_rule(primals, tangents):
    return soft(*primals), jax.nn.sigmoid(primals[0]) * tangents[0]


TABLE = np.linspace(0.0, 2.0, 40) ** 3


def various(t, q, v, p):
    """Tables, choices, loops and derivatives that are stated."""
    by_table = jnp.interp(p[0] * q[0], jnp.linspace(0, 2, 40), TABLE)
    entry = p[1] * jnp.asarray(TABLE)[jnp.int32(20 * t)]
    choice = jnp.where(q[1] > p[2], p[3] * q[1] ** 2, jnp.exp(p[3] * q[1]))
    loop = jax.lax.fori_loop(0, 3, lambda i, x: jnp.sin(x + p[4]), q[0])
    branch = jax.lax.cond(p[5] > 0, lambda x: x**2, lambda x: x**3, p[5] * v[0])
    bends = jnp.clip(p[8] * t, 0.05, 10.0) + jnp.abs(p[9] - q[1]) - jnp.maximum(p[10], v[1])
    stated = soft(p[6] * q[0]) + jnp.arctan2(p[7], q[0]) + jax.lax.stop_gradient(p[11])
    return jnp.stack([by_table + entry + choice - loop, branch + bends + stated])


@pytest.mark.slow
def test_functions_of_arguments_in_forces():
    """The last entry of p is stopped, and p[2] only chooses. All others change the motion."""
    system = ga.System(np.eye(2), various)
    p = np.array([0.9, 0.3, 0.4, 0.5, 0.2, 0.7, 0.8, 0.6, 1.2, 2.0, 0.5, 1.0])
    run = lambda p: ga.solve(system, SPAN, [1.0, 0.9], [0.3, -0.2], h=0.04, args=(p,), newton=EXACT)

    def number(p):
        sol = run(p)
        return sol.q[-1].sum() + sol.a[2].sum()

    assert jax.jit(run)(p).backend == "native"
    expected = gradient(lambda e: number(p + np.append(e, 0.0)), 11, 1e-3)
    assert np.flatnonzero(np.abs(expected) < 1e-4).tolist() == [2]
    for derivative in (jax.grad, jax.jacfwd):
        np.testing.assert_allclose(derivative(number)(jnp.array(p)), [*expected, 0.0], rtol=1e-7, atol=1e-10)


# --- programs ---------------------------------------------------------------------------------------------


def compiled(g):
    """A program of its own."""
    return jax.jit(lambda g: solve(g).q[-1, 1])(g)


def test_programs_that_are_compiled_again_do_not_pile_up(monkeypatch):
    """Every new jit makes a program. What it calls is kept once, and is forgotten some time after it."""
    monkeypatch.setattr(host, "LATE", 3)
    compiled(9.0)
    before, uses = len(host._functions), sum(host._users.values())
    for k in range(20):
        compiled(9.0 + k)
    assert len(host._functions) <= before
    assert sum(host._users.values()) <= uses + 5


def test_systems_that_are_gone_are_forgotten(monkeypatch, new_garbage):
    def use(k):
        system = ga.System(np.eye(1), lambda t, q, v, x: -k * x * q)
        value = jax.jit(lambda x: ga.solve(system, SPAN, [1.0], [0.0], h=0.1, args=(x,)).q[-1, 0])(1.0)
        return weakref.ref(system), value

    monkeypatch.setattr(host, "LATE", 3)
    gone, value = use(1.0)
    assert float(value) == pytest.approx(np.cos(0.2), abs=1e-3)  # it may begin after the system is gone
    for k in range(6):
        gc.collect()
        compiled(9.0 + k)
    gc.collect()
    assert gone() is None


def test_repeated_calls_trace_nothing():
    traced = []

    def force(t, q, v, k):
        traced.append(k)
        return -k * q

    system = ga.System(np.eye(1), force)
    slope = jax.jit(jax.grad(lambda k: ga.solve(system, SPAN, [1.0], [0.0], h=0.1, args=(k,)).q[-1, 0]))
    slope(1.0)
    before = len(traced)
    for k in (2.0, 3.0, np.nan, 4.0):
        slope(k)
    assert 0 < before == len(traced)
