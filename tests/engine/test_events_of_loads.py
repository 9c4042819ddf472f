"""Events that depend on multipliers: they are zeros of the multipliers that belong to the motion."""

import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import systems
from genalpha.backends.native.step import StepKernels
from genalpha.engine import events
from genalpha.mechanics.system import Dims

G = systems.G
METHODS = ("soi2", "index3", "stabilized", "dae-alpha", "cs", "projected")
sphere = systems.circle()


def slide(method="soi2", **options):
    """A ball slides from the top of a smooth sphere and leaves it at the height 2/3 + v²/3g."""
    leaves = ga.Event(lambda t, q, v, lam, psi: lam[0], terminal=True)
    steps = {} if "rtol" in options else {"h": 0.01}
    return ga.solve(
        sphere, (0.0, 9.0), [0.0, 1.0], [0.5, 0.0], events=leaves, method=method, **steps, **options
    )


@pytest.mark.parametrize(
    ("method", "options"),
    [
        *((method, {}) for method in METHODS[:2]),
        *(pytest.param(method, {}, marks=pytest.mark.slow) for method in METHODS[2:]),
        ("soi2", {"rtol": 1e-5}),
        *(
            pytest.param("soi2", {"backend": "xla"} | steps, marks=pytest.mark.slow)
            for steps in ({}, {"rtol": 1e-4})
        ),
    ],
)
def test_the_multiplier_is_zero_at_its_event(method, options):
    """The method's own multiplier is 1e-3 off there with these steps."""
    sol = slide(method, **options)
    assert sol.status == -1
    assert abs(sol.lam_events[0][0, 0]) < 1e-6
    assert abs(sol.lam[-1, 0]) < 1e-6
    assert sol.backend == options.get("backend", "native")
    (t, before), last = (sol.t[-1], sol.t[-2]), sol.q[-1, 1]
    assert sol(before).lam[0] < -1e-6 < 0
    assert last == pytest.approx(2 / 3 + 0.25 / (3 * G), abs=2e-4)
    assert sol(t).lam[0] == pytest.approx(0.0, abs=1e-6)


def test_an_event_of_a_nonholonomic_multiplier():
    """The side force of a knife edge is ω v m; its zero is that of ω."""
    sleigh = ga.System(
        jnp.diag(jnp.array([2.0, 2.0, 0.5])),
        lambda t, q, v: jnp.array([0.0, 0.0, -jnp.sin(t)]),
        nonholonomic=lambda t, q, v: jnp.array([jnp.cos(q[2]) * v[1] - jnp.sin(q[2]) * v[0]]),
    )
    side = lambda state: state.psi[0]
    turn = lambda t, q, v: v[2]
    sol = ga.solve(sleigh, (0.0, 6.0), [0.0] * 3, [1.0, 0.0, 2.0], h=0.05, events=[side, turn])
    np.testing.assert_allclose(sol.t_events[0], sol.t_events[1], atol=1e-9)
    assert len(sol.t_events[0]) >= 1


def test_which_functions_depend_on_multipliers():
    listed = (lambda t, q, v, lam, psi: q[0], lambda s: s.lam[0], lambda s: s.v[0], lambda t, q, v: q[0])
    found = events.crossings(tuple(map(ga.Event, listed)), Dims(2, 2, 1, 0), ())
    assert [crossing.loads for crossing in found] == [False, True, False, False]


def test_a_step_solves_one_linear_system_more_only_if_an_event_needs_it(monkeypatch):
    made = []
    trace = StepKernels._trace
    monkeypatch.setattr(StepKernels, "_trace", lambda self: (trace(self), made.append(len(self.systems))))
    system = ga.System(np.eye(2), lambda t, q, v: jnp.zeros(2), lambda t, q: jnp.array([q @ q - 1.0]))
    for method in ("soi2", "dae-alpha"):  # the second one solves the same system anyway
        for event in (lambda t, q, v, lam, psi: q[0], lambda t, q, v, lam, psi: lam[0] - 9):
            ga.solve(system, (0.0, 0.1), [1.0, 0.0], [0.0, 1.0], h=0.01, events=event, method=method)
    assert made == [0, 1, 1, 1]


def test_after_a_reset_the_multiplier_may_return_to_zero_in_one_step():
    """A reset that turns the motion around at λ = 0: the ball slides back up and comes down again."""
    turn = ga.Event(lambda t, q, v, lam, psi: lam[0], direction=1, reset=lambda t, q, v, lam, psi: -v)
    sol = ga.solve(sphere, (0.0, 3.0), [0.0, 1.0], [0.5, 0.0], events=turn, h=0.01)
    assert len(sol.t_events[0]) == 2
    np.testing.assert_allclose(sol.q_events[0][0], sol.q_events[0][1] * [-1.0, 1.0], atol=1e-3)


@pytest.mark.slow
def test_a_reaction_of_the_users_own_uses_the_methods_multipliers():
    rod = ga.System(
        np.eye(2),
        lambda t, q, v: jnp.array([0.0, -G]),
        lambda t, q: jnp.array([q @ q - 1.0]),
        reaction=lambda t, q, v, lam, psi: -2 * q * lam[0],
    )
    tension = ga.Event(lambda t, q, v, lam, psi: lam[0] - G / 2, terminal=True)
    sol = ga.solve(rod, (0.0, 2.0), [1.0, 0.0], [0.0, 0.0], h=1e-3, events=tension)
    assert sol.q[-1, 1] == pytest.approx(-1 / 3, abs=1e-4)
