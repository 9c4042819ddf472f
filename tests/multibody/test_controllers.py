"""Discrete controllers that set numbers of a model by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb

KP, KD, SAMPLE = 20.0, 4.0, 0.02


def arm(bodies: int = 1) -> mb.Model:
    """Bars in a row, with a motor in every hinge."""
    model = mb.Model(gravity=(0, 0, -9.81))
    before: mb.Body | Any = model.ground
    for k in range(bodies):
        bar = model.add(mb.Body.bar(f"bar {k}", 1.0, (k, 0, 0), (k + 1, 0, 0)))
        hinge = model.add(mb.Revolute(f"hinge {k}", before, bar, at=(k, 0, 0), axis=(0, 1, 0)))
        model.add(mb.Motor(f"motor {k}", hinge, effort=0.0))
        before = bar
    return model


def servo(model: mb.Model) -> ga.Controller:
    """It holds the first hinge, from its angle and its rate, and counts samples."""

    def update(t: float, q: Any, v: Any, s: Any) -> Any:
        here = model.motion((t, q, v))
        angle, rate = here.coordinate("hinge 0")[0], here.rate("hinge 0")[0]
        return s + 1, {"motor 0.effort": -KP * angle - KD * rate}

    return ga.Controller(SAMPLE, update, {"motor 0.effort": 0.0}, 0.0)


def test_a_held_arm_moves_as_its_reduced_equation() -> None:
    model = arm()
    inertia = np.array([[model["bar 0"].inertia.tensor[1, 1] + 0.25]])
    reduced = ga.System(inertia, lambda t, q, v, c: jnp.array([c.u + 9.81 * 0.5 * jnp.cos(q[0])]))
    held = ga.Controller(SAMPLE, lambda t, q, v, s: (s, -KP * q[0] - KD * v[0]), 0.0)
    wanted = ga.solve(reduced, (0.0, 0.6), [0.0], [0.0], h=SAMPLE / 160, controller=held).q[-1, 0]
    errors = []
    for parts in (4, 8):
        sol = model.solve((0.0, 0.6), h=SAMPLE / parts, controller=servo(model))
        errors.append(abs(model.motion(sol).coordinate("hinge 0")[-1] - wanted))
    assert sol.backend == "native"
    assert errors[1] < 1e-5
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.1)
    assert sol.control is not None
    assert sol.control.s[-1] == 30 == len(sol.control.u["motor 0.effort"])


@pytest.mark.parametrize("bodies", [1, 8])
def test_a_run_in_two_halves_gives_the_same_bits(bodies: int) -> None:
    model, options = arm(bodies), {"h": SAMPLE / 4}
    whole = model.solve((0.0, 0.4), controller=servo(model), **options)
    first = model.solve((0.0, 0.2), controller=servo(model), **options)
    second = model.solve((0.2, 0.4), state=first.state, controller=servo(model), **options)
    np.testing.assert_array_equal(second.q[-1], whole.q[-1])
    assert second.control is not None
    assert second.control.s[-1] == 20


def test_a_constant_output_is_a_constant_effort() -> None:
    """Large models have sparse matrices. Other numbers of the run stay as they are."""
    model, names = arm(8), [f"motor {k}.effort" for k in (0, 5)]
    steady = ga.Controller(0.05, lambda t, q, v, s: (s, dict.fromkeys(names, 7.0)), dict.fromkeys(names, 0.0))
    values = {"gravity": [0.0, 0.0, -2.0], "bar 3.mass": 2.5}
    found = model.solve((0.0, 0.3), values, rtol=1e-7, controller=steady)
    wanted = model.solve((0.0, 0.3), values | dict.fromkeys(names, 7.0), rtol=1e-7)
    np.testing.assert_allclose(found.q[-1], wanted.q[-1], atol=1e-5)
    assert np.abs(model.solve((0.0, 0.3), values, rtol=1e-7).q[-1] - wanted.q[-1]).max() > 0.1


def test_stops_and_a_controller() -> None:
    model = mb.Model()
    block = model.add(mb.Body("block", mb.box(2.0, (0.1, 0.1, 0.1))))
    rail = model.add(mb.Prismatic("rail", model.ground, block, at=(0, 0, 0), axis=(1, 0, 0)))
    model.add(mb.Motor("motor", rail, effort=0.0))
    push = ga.Controller(0.1, lambda t, q, v, s: (s, {"motor.effort": 4.0}), {"motor.effort": 0.0})
    stops = model.stops("rail", upper=0.5, restitution=0.5)
    sol = model.solve((0.0, 1.2), h=0.01, events=stops, controller=push)
    assert sol.t_events[0][0] == pytest.approx(np.sqrt(0.5), abs=1e-6)  # x = F t²/(2 m), F/m = 2
    after = 1.2 - np.sqrt(0.5)
    fast = -0.5 * 2 * np.sqrt(0.5)
    assert model.motion(sol).coordinate("rail")[-1] == pytest.approx(0.5 + fast * after + after**2, abs=1e-6)


@pytest.mark.parametrize(
    ("u0", "update", "error", "message"),
    [
        (
            0.0,
            lambda t, q, v, s: (s, 0.0),
            TypeError,
            r"u0 .* must be a dictionary .* model\.values.*got 0\.0",
        ),
        (
            {"motor.effort": 0.0},
            lambda t, q, v, s: (s, {}),
            ValueError,
            "no number 'motor.effort'.*'motor 0",
        ),
        ({"motor 0.effort": [0.0]}, lambda t, q, v, s: (s, {}), ValueError, r"must have the shape \(\)"),
        ({"motor 0.effort": 0.0}, lambda t, q, v, s: (s, {"x": 1.0}), ValueError, "both must be alike"),
        (
            {"bar 0.mass": 1.0},
            lambda t, q, v, s: (s, {"bar 0.mass": 1.0 - 100 * t}),
            ValueError,
            r"bar 0\.mass must be positive, got -1\.0",
        ),
    ],
)
def test_wrong_outputs(u0: Any, update: Callable[..., Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        arm().solve((0.0, 0.1), h=0.01, controller=ga.Controller(0.02, update, u0))


def test_an_assembly_needs_to_know_where_the_output_goes() -> None:
    push = lambda t, q, v, f: jnp.array([f])
    net = ga.Assembly(
        [ga.Part(mass=np.eye(1), force=push, nodes=[0], args=([0.0],))], space=ga.Euclidean(1), count=1
    )
    options: dict[str, Any] = {"q0": [0.0], "v0": [0.0], "h": 0.05}
    step = lambda t, q, v, s: (s, t)
    with pytest.raises(TypeError, match="into"):
        ga.solve(net, (0.0, 1.0), controller=ga.Controller(0.1, step, 0.0), **options)
    into = lambda args, u: ((np.array([u]),),)
    sol = ga.solve(net, (0.0, 1.0), controller=ga.Controller(0.1, step, 0.0, into=into), **options)
    assert sol.v[-1, 0] == pytest.approx(0.1 * np.arange(0.0, 1.0, 0.1).sum(), abs=1e-12)
