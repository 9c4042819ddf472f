"""The error at the end of a run is proportional to the tolerance, and about as large."""

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from conftest import problem
from exact_motion import motion
from genalpha.mechanics.system import Dims
from random_mechanisms import STRUCTURES

ALL = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8)
SMOOTH = ["poly-1-0-0", "poly-2-1-0", "poly-4-2-1", "tilt", "suslov"]
NAMED = [
    "pendulum",
    "double-pendulum",
    "wheel-on-rod",
    "heavy-top",
    "rolling-disk",
    "jay-negrut",
    "slider-crank",
]
NAMED += ["body-chain", "andrews", "spring-chain", "rigid-body"]


def members(name, count):
    """Plain members of a random structure, as arguments of ``ga.solve``."""
    structure, found, seed = STRUCTURES[name], [], 0
    while len(found) < count:
        member = structure.draw(np.random.default_rng(seed))
        seed += 1
        if member.trait in ("plain", "bent") and member.fate == "ends":
            found.append((structure.system, member.span, member.q0, member.v0, (member.args,)))
    return found


def case(name, most=1.0):
    p = problem(name)
    t0, t1 = p.t_span
    return p.system, (t0, min(t1, t0 + most)), np.asarray(p.q0), np.asarray(p.v0), p.args


def ratios(system, span, q0, v0, args, tolerances, **options):
    """Error over tolerance at the end, root mean square over q and v, for each tolerance."""
    g, k = system.g(0.0, q0, args), system.k(0.0, q0, v0, args)
    dims = Dims(len(q0), len(v0), len(g), len(k))
    exact = motion(system, dims, span, (q0, v0), args, 1e-11, 1e-12)
    q, v = np.split(exact.y, [dims.size])
    magnitude = np.abs(system.space.magnitude(jnp.asarray(q[:, -1])))
    if dims.size == dims.n:
        magnitude = np.maximum(magnitude, np.abs(q).max(axis=1))
    size = np.concatenate([magnitude, np.abs(v).max(axis=1)])
    found = []
    for rtol in tolerances:
        sol = ga.solve(system, span, q0, v0, args=args, rtol=rtol, save="final", **options)
        dq = system.space.difference(jnp.asarray(q[:, -1]), jnp.asarray(sol.q[-1]))
        error = np.concatenate([dq, sol.v[-1] - v[:, -1]])
        found.append(np.sqrt(np.mean((error / (0.01 * rtol + rtol * size)) ** 2)))
    return found


@pytest.mark.slow
def test_a_few():
    cases = [*members("poly-2-1-0", 3), *members("poly-4-2-1", 2), case("pendulum"), case("rolling-disk")]
    found = np.array([ratios(*one, (1e-4, 1e-6)) for one in cases])
    assert 0.2 < np.median(found[:, 0]) < 5
    assert 0.2 < np.median(found[:, 1]) < 5
    assert 0.5 < np.median(found[:, 1] / found[:, 0]) < 2


@pytest.mark.slow
@pytest.mark.parametrize("method", ["soi2", "stabilized", "dae-alpha"])
def test_random_systems(method):
    cases = [one for name in SMOOTH for one in members(name, 6)]
    medians = np.median([ratios(*one, ALL, method=method) for one in cases], axis=0)
    assert ((medians > 0.2) & (medians < 5)).all(), medians


@pytest.mark.slow
@pytest.mark.parametrize("method", ["soi2", "stabilized"])
def test_named_problems(method):
    medians = np.median([ratios(*case(name), ALL, method=method) for name in NAMED], axis=0)
    assert ((medians > 0.2) & (medians < 5)).all(), medians


def test_atol_follows_rtol():
    """With a fixed atol, small components would stay as wrong as before."""
    small = ga.System(jnp.eye(1), lambda t, q, v: -q)
    errors = [
        abs(ga.solve(small, (0.0, 3.0), [1e-5], [0.0], rtol=rtol, save="final").q[-1, 0] - 1e-5 * np.cos(3.0))
        for rtol in (1e-5, 1e-7)
    ]
    assert errors[1] < errors[0] / 50


def test_without_rtol_the_error_follows_atol():
    spring = ga.System(jnp.eye(1), lambda t, q, v: -q)
    run = lambda atol: ga.solve(spring, (0.0, 5.0), [1.0], [0.0], rtol=0.0, atol=atol, save="final")
    errors = [abs(run(atol).q[-1, 0] - np.cos(5.0)) for atol in (1e-4, 1e-6)]
    assert 50 < errors[0] / errors[1] < 200
    mixed = ga.solve(spring, (0.0, 5.0), [1.0], [0.0], rtol=[[1e-5], [0.0]], atol=1e-6)
    assert mixed.success


def test_a_load_that_lasts_one_percent_of_the_span_is_seen():
    """By a body at rest, wherever the load lies."""
    pulse = lambda t, c: jnp.where(jnp.abs(t - c) < 0.05, jnp.cos(jnp.pi * (t - c) / 0.1) ** 2, 0.0)
    body = ga.System(jnp.eye(1), lambda t, q, v, c: pulse(t, c) * jnp.ones(1))
    centres = np.random.default_rng(0).uniform(0.5, 9.5, 64)
    batch = ga.solve_batch(body, (0.0, 10.0), [0.0], [0.0], args=(centres,), save="final")
    np.testing.assert_allclose(batch.v[:, -1, 0], 0.05, rtol=0.02)
    assert ga.solve(body, (0.0, 10.0), [0.0], [0.0], args=(20.0,)).stats.steps < 200
