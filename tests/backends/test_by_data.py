"""Single runs of systems with many unknowns, whose factors are data: against unrolled ones and XLA."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from conftest import problem
from genalpha.backends.native import kernels as native
from genalpha.backends.native import machine, writer
from genalpha.numerics import codes


@pytest.fixture
def small(monkeypatch):
    """Small systems use factors that are data, too."""
    monkeypatch.setattr(native, "UNROLLED", -1)


def chain(count, angles):
    """Point masses and rods: a system that the caller owns, and its start."""
    length = 1 / count

    def rods(t, q):
        d = jnp.diff(q.reshape(count, 2), axis=0, prepend=jnp.zeros((1, 2)))
        return jnp.sum(d**2, axis=1) - length**2

    weight = np.tile([0.0, -9.81 / count], count)
    system = ga.System(np.eye(2 * count) / count, lambda t, q, v: weight, rods)
    d = length * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return system, np.cumsum(d, axis=0).ravel()


def by_data(system):
    return [k for k in system._programs.values() if isinstance(k, native.Kernels) and k.by_data]


# --- the same results as unrolled factors ---------------------------------------------------------------

CASES = [
    ("heavy-top", "soi2", {"h": 0.01}),
    ("heavy-top", "index3", {"h": 0.01}),
    ("rolling-disk", "soi2", {"rtol": 1e-6}),
    ("slider-crank", "stabilized", {"h": 1e-3}),
    ("pendulum", "dae-alpha", {"rtol": 1e-5}),  # it solves other systems after each iteration
    ("spring-chain", "projected", {"h": 0.01}),
    ("pendulum", "cs", {"h": 0.01}),
]


@pytest.mark.parametrize(("name", "method", "steps"), CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_results_are_those_of_unrolled_factors(name, method, steps, monkeypatch):
    runs = []
    for limit in (10**6, -1):
        monkeypatch.setattr(native, "UNROLLED", limit)
        p = ga.problems.get(name)
        options = {"method": method, "args": p.args, **steps}
        runs.append(ga.solve(p.system, (0, 0.1), p.q0, p.v0, **options))
        assert runs[-1].backend == "native"
        found = by_data(p.system)
        assert bool(found) == (limit < 0)
    one, two = runs
    assert len(one.t) == len(two.t)
    for x in ("q", "v", "lam", "psi"):
        np.testing.assert_allclose(getattr(one, x), getattr(two, x), rtol=1e-8, atol=1e-8)


@pytest.mark.slow
def test_sixty_rods_agree_with_an_assembly():
    """Dense and sparse statements of the same chain."""
    count = 60
    system, q0 = chain(count, np.linspace(0.3, 2.0, count))
    long = lambda d: jnp.array([jnp.sum(d**2) - count**-2.0])
    masses = ga.Part(
        mass=np.eye(2) / count,
        force=lambda t, q, v: jnp.array([0.0, -9.81 / count]),
        nodes=np.arange(count),
    )
    ends = np.stack([np.arange(count - 1), np.arange(1, count)], axis=1)
    rods = [
        ga.Part(holonomic=lambda t, q: long(q), nodes=[0]),
        ga.Part(holonomic=lambda t, q: long(q[1] - q[0]), nodes=ends),
    ]
    parts = ga.Assembly([masses, *rods], space=ga.Euclidean(2), count=count)
    one, two = (ga.solve(s, (0, 0.02), q0, 0 * q0, h=1e-3, method="index3") for s in (system, parts))
    assert by_data(system)
    np.testing.assert_allclose(one.q, two.q, atol=1e-9)
    np.testing.assert_allclose(one.lam, two.lam, rtol=1e-6, atol=1e-6)


# --- pivots ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_start_in_a_straight_line_is_native():
    """Many pivots of the first matrix are zero at other configurations: they change without compilation."""
    system, q0 = chain(40, np.zeros(40))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sol = ga.solve(system, (0, 0.1), q0, 0 * q0, h=1e-3, method="index3")
    assert sol.backend == "native"
    assert by_data(system)
    d = np.diff(sol.q.reshape(-1, 40, 2), axis=1, prepend=0)
    np.testing.assert_allclose(np.linalg.norm(d, axis=2), 1 / 40, atol=1e-10)
    energy = 0.5 / 40 * np.sum(sol.v**2, axis=1) + 9.81 / 40 * np.sum(sol.q[:, 1::2], axis=1)
    np.testing.assert_allclose(energy, energy[0], atol=1e-4)


FADING = {"t_span": (0.0, 2.0), "q0": [0.0, 0.0], "v0": [0.0, 0.0], "args": (1.0,), "method": "index3"}
FULL = {"newton": ga.Newton("full")}  # a new matrix at every step


def fading():
    """At t = 1 the first pivot is exactly zero. The system is new, and its kernels are too."""
    return systems.fading.__wrapped__()


@pytest.mark.parametrize("steps", [{"h": 1 / 64}, {"rtol": 1e-5}], ids=["h", "rtol"])
def test_an_order_of_pivots_that_fails_is_replaced(small, steps):
    sol = ga.solve(fading(), **FADING, **FULL, **steps)
    assert sol.backend == "native"
    assert sol.stats.fallback is None
    before = 2 * np.log(1.5 / (1 + 0.5 * (1 - sol.t)))
    after = 2 * np.log(1.5) + 2 * np.log(1 + 0.5 * (sol.t - 1).clip(0))
    np.testing.assert_allclose(sol.v[:, 1], np.where(sol.t < 1, before, after), atol=2e-4)


def test_without_the_monitor_the_same_run_fails(small, monkeypatch):
    monkeypatch.setattr(writer, "GROWTH", np.inf)
    monkeypatch.setattr(writer.lu, "CONDITION", np.inf)
    sol = ga.solve(fading(), **FADING, **FULL, h=1 / 64, throw=False)
    assert sol.status == codes.NOT_FINITE
    assert sol.t[-1] == 1 - 1 / 64


def test_xla_continues_if_pivots_change_too_often(small, monkeypatch):
    monkeypatch.setattr(machine, "MOST_CHANGES", 0)
    with pytest.warns(ga.FallbackWarning, match="no order of pivots was good for long"):
        sol = ga.solve(fading(), **FADING, **FULL, h=1 / 64)
    assert sol.success
    assert sol.stats.fallback == "no order of pivots was good for long; XLA continued from t = 0.984375"


def test_a_singular_matrix_is_seen(small):
    """The stiffness (1e20) makes the matrix singular to rounding."""
    system = ga.System(np.eye(2), lambda t, q, v, k: -jnp.array([k, 1.0]) * q - 0.1 * v)
    sol = ga.solve(system, (0, 0.5), [0.0, 1.0], [0.0, 0.0], args=(1e20,), h=0.01, throw=False)
    assert sol.status == codes.SINGULAR


def test_a_force_that_is_not_finite_is_named(small):
    system = ga.System(np.eye(1), lambda t, q, v: jnp.where(t < 0.5, 0.0, jnp.log(-1.0 - q**2)))
    sol = ga.solve(system, (0, 1), [0.0], [1.0], h=0.1, throw=False)
    assert sol.status == codes.NOT_FINITE
    assert sol.t[-1] == pytest.approx(0.4)


# --- what runs offer ------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [{"h": 0.01}, {"rtol": 1e-5}], ids=["h", "rtol"])
def test_a_run_that_continues_has_the_same_bits(small, steps):
    p = problem("heavy-top")
    whole = ga.solve(p.system, (0, 0.4), p.q0, p.v0, args=p.args, **steps)
    part = {"max_steps": 7} if "rtol" in steps else {}
    first = ga.solve(
        p.system, (0, 0.4 if part else 0.2), p.q0, p.v0, args=p.args, throw=False, **steps, **part
    )
    rest = ga.solve(p.system, (first.t[-1], 0.4), state=first.state, args=p.args, **steps)
    np.testing.assert_array_equal(np.concatenate([first.q, rest.q[1:]]), whole.q)


def test_events_and_batches(small):
    """Members of a batch run in lanes, with unrolled factors."""
    p = ga.problems.get("pendulum")
    crossing = ga.Event(lambda t, q, v, *args: q[0], terminal=True)
    sol = ga.solve(p.system, (0, 5), p.q0, p.v0, args=p.args, h=0.01, events=[crossing])
    assert 0 < sol.t[-1] < 5
    assert abs(sol.q[-1, 0]) < 1e-9
    many = ga.solve_batch(p.system, (0, 0.5), np.tile(p.q0, (3, 1)), p.v0, args=p.args, h=0.01, save="all")
    one = ga.solve(p.system, (0, 0.5), p.q0, p.v0, args=p.args, h=0.01)
    np.testing.assert_allclose(many.q[1], one.q, atol=1e-10)
