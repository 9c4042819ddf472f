"""Arguments are read once, None means "not given", and programs are not looked up by printed values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from conftest import problem
from genalpha.engine.steps import Controlled, Given
from genalpha.run import request
from genalpha.run.request import Options

SPRING = ga.System(mass=np.eye(1), force=lambda t, q, v: -q)


def solve(**options):
    return ga.solve(SPRING, (0.0, 1.0), [1.0], [0.0], **options)


@pytest.mark.parametrize("name", ["rtol", "atol", "first_step", "max_step", "min_step", "max_steps"])
@pytest.mark.parametrize("front", [solve, lambda **o: ga.solve_batch(SPRING, (0, 1), [[1.0]], [0.0], **o)])
def test_steps_are_given_or_controlled(name, front):
    value = {"rtol": 1e-4, "atol": 1e-6, "max_steps": 1000}.get(name, 0.1)  # the defaults, if there are any
    with pytest.raises(ValueError, match=f"pass either h or {name}, not both"):
        front(h=0.1, **{name: value})


def test_a_method_object_has_its_own_damping():
    with pytest.raises(ValueError, match="pass either rho_inf or a method object, not both"):
        solve(method=ga.SOI2(), rho_inf=0.8)


def test_a_problem_takes_its_own_steps_unless_others_are_asked_for():
    p = problem("pendulum")
    assert p.solve(t_end=0.1).errors is None
    controlled = p.solve(t_end=0.1, rtol=1e-5)
    assert controlled.errors is not None
    assert controlled.stats.steps != p.solve(t_end=0.1, rtol=1e-7).stats.steps
    assert len(p.solve(t_end=0.1, h=0.05).t) == 3


def test_a_request_says_what_was_asked_for():
    parse = lambda **o: request.parse(SPRING, (0, 2), [1.0], [0.0], Options(**o))
    asked = parse(save=(3, ["q"]), initial="assume")
    assert isinstance(asked.steps, Controlled)
    assert (asked.span, asked.start.mode, asked.output.every, asked.output.names) == (
        (0.0, 2.0),
        "assume",
        3,
        ("q",),
    )
    steps = request.StepOptions(h=0.3)
    asked = parse(steps=steps)
    assert isinstance(asked.steps, Given)
    assert asked.steps.expected == 7
    assert asked.steps.end == 2.0


@pytest.mark.slow
def test_printed_numbers_decide_nothing():
    """Tolerances that differ only in digits that are not printed are different."""
    with np.printoptions(suppress=True, precision=3):
        many = lambda rtol, end=0.5: ga.solve_batch(
            SPRING, (0.0, end), [[1.0], [2.0]], [0.0], rtol=rtol, atol=rtol, max_steps=500, backend="xla"
        )
        batches = [many(rtol).stats.steps.tolist() for rtol in (1e-4, 1e-5, 1e-6)]
        assert batches[0] < batches[1] < batches[2]
        assert many(1e-6).q[0, 0, 0] != many(1e-6, 0.5 + 1e-7).q[0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "kind"), [("auto", "native, traced"), ("xla", ("traced",))])
def test_values_of_traced_runs_are_arguments(backend, kind):
    """One program is used for all tolerances, spans and times of the same shapes."""
    options = {"max_steps": 400, "backend": backend}

    @jax.jit
    def traced(q0):
        ends = [
            ga.solve(SPRING, (0.0, end), q0, [0.0], rtol=rtol, t_eval=[0.1, end], **options)
            for rtol, end in ((1e-3, 0.2), (1e-5, 0.2), (1e-5, 0.3))
        ]
        return [(sol.q[-1, 0], sol.stats.steps) for sol in ends]

    SPRING._programs.clear()
    found = traced(jnp.array([1.0]))
    assert sum(kind in (key[0], key[0][:1]) for key in SPRING._programs) == 1
    (a, few), (b, more), (c, _) = found
    assert few < more
    np.testing.assert_allclose([a, b, c], np.cos([0.2, 0.2, 0.3]), atol=1e-4)
    assert c < b


def test_arguments_may_be_changed_in_place_after_the_run():
    stiff = ga.System(mass=np.eye(1), force=lambda t, q, v, k: -k * q)
    k = np.array([4.0])
    sol = ga.solve(stiff, (0.0, 1.0), [1.0], [0.0], h=0.1, args=(k,))
    k[:] = 400.0
    np.testing.assert_allclose(sol.a[0], [-4.0])
    assert sol.state is not None
    k[:] = 4.0
    rest = ga.solve(stiff, (1.0, 2.0), state=sol.state, h=0.1, args=(k,))
    whole = ga.solve(stiff, (0.0, 2.0), [1.0], [0.0], h=0.1, args=(k,))
    assert (rest.q[-1] == whole.q[-1]).all()
