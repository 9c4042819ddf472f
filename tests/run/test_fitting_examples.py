"""Examples that fit, design and control: their results, and their gradients against differences."""

import jax.numpy as jnp
import numpy as np
import pytest
from examples import four_bar_design, swing_up
from examples import identify_slider_crank as crank


def slope(function, x, direction, step):
    """A difference of fourth order."""
    at = lambda k: np.asarray(function(x + k * step * direction))
    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)


def test_jacobian_of_positions_and_forces_with_respect_to_an_inertia_and_a_speed():
    """Parameters in the mass matrix and in the initial velocity, rows of q and of λ."""
    x, direction = np.log(crank.GUESS), np.array([0.3, -0.5, 0.7, 0.4])
    data = np.zeros((crank.STEPS // crank.EVERY + 1, 2))
    expected = slope(lambda x: crank.values(x, data), x, direction, 1e-3)
    found = np.asarray(crank.slopes(x, data)) @ direction
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())
    back = np.asarray(crank.loss(x, data)[1]) @ direction  # reverse mode
    assert back == pytest.approx(np.mean(expected * np.asarray(crank.values(x, data))), rel=1e-7)


def test_least_squares_finds_the_parameters_within_their_standard_errors():
    """The mean over parameters and seeds of squared errors, in units of the standard errors, is one."""
    off = []
    for seed in range(4):
        data = crank.measured(seed)
        fit = crank.by_least_squares(data)
        off.append((fit.parameters - crank.TRUE) / fit.errors)
        rest = np.asarray(crank.values(np.log(fit.parameters), data))
        assert np.std(rest) == pytest.approx(1.0, abs=0.2)
    assert np.abs(off).max() < 3.5
    assert 0.3 < np.mean(np.square(off)) < 2.2  # 16 numbers: 1 ± 0.35


@pytest.mark.slow
def test_gradient_steps_find_the_same_as_least_squares(tmp_path, capsys):
    first, second = crank.main(str(tmp_path))
    np.testing.assert_allclose(first.parameters, second.parameters, atol=0.02 * first.errors.min())
    assert "true 120" in capsys.readouterr().out
    assert (tmp_path / "identify-slider-crank.png").stat().st_size > 10_000


def test_gradient_with_respect_to_two_hundred_torques():
    rng = np.random.default_rng(3)
    x, direction = rng.normal(size=(2, swing_up.VALUES))
    expected = slope(lambda x: swing_up.both(x, 1.0)[0], x, direction, 1e-4)
    assert np.asarray(swing_up.both(x, 1.0)[1]) @ direction == pytest.approx(float(expected), rel=1e-7)


@pytest.mark.slow
def test_the_pendulum_stands_upright_at_rest(tmp_path, capsys):
    control, sol = swing_up.main(str(tmp_path))
    assert "200 values" in capsys.readouterr().out
    assert np.degrees(swing_up.upright(sol)[-1]) < 0.5
    assert np.abs(sol.v[-1]).max() < 0.02
    # The torque works in the model too: its work is the gain of energy and what friction took.
    power = np.interp(sol.t, swing_up.TIMES, control.torque) * sol.v[:, 0]
    lost = swing_up.FRICTION * sol.v[:, 0] ** 2
    gain = swing_up.BOB * swing_up.GRAVITY * 2 * swing_up.PENDULUM
    assert np.trapezoid(power - lost, sol.t) == pytest.approx(gain, rel=2e-3)
    assert (tmp_path / "swing-up.png").stat().st_size > 10_000


@pytest.mark.slow
def test_forces_of_a_four_bar_depend_on_its_dimensions_as_differences_say():
    """Lengths in masses, in constraints and in the start. The start is closed for every design."""
    x, direction = four_bar_design.GUESS, np.linspace(-1, 1, 9)
    at = lambda x: jnp.append(four_bar_design.values(x)[1], four_bar_design.values(x)[0])
    expected = slope(at, x, direction, 1e-4)
    of_distance, of_forces = four_bar_design.slopes(x)
    found = np.append(np.asarray(of_forces) @ direction, np.asarray(of_distance) @ direction)
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max())


@pytest.mark.slow
def test_a_bound_on_forces_holds_and_costs_accuracy(tmp_path, capsys):
    free, bounded = four_bar_design.main(str(tmp_path))
    assert "largest force" in capsys.readouterr().out
    assert free.force > 1.5 * four_bar_design.BOUND
    assert bounded.force < 1.001 * four_bar_design.BOUND
    assert free.distance < bounded.distance < 0.02
    start = 1e-2 * np.sqrt(four_bar_design.values(four_bar_design.GUESS)[0])
    assert bounded.distance < 0.2 * start
    assert (tmp_path / "four-bar-design.png").stat().st_size > 10_000


def test_forces_of_a_four_bar_agree_with_newtons_law():
    """The force at D on the rocker, from those in all joints and the accelerations of the centres of mass."""
    d = four_bar_design.GUESS
    sol = four_bar_design.simulate(d)
    masses = four_bar_design.DENSITY * d[:3]
    momentum = sum(masses[i] * sol.a[:, 3 * i : 3 * i + 2] for i in range(3))
    weight = np.array([0.0, -9.81 * masses.sum()])
    lam = sol.lam[:, :8].reshape(-1, 4, 2)
    outer = -lam[:, 0] - lam[:, 3]  # the ground holds A and D
    np.testing.assert_allclose(outer + weight, momentum, atol=1e-8 * np.abs(lam).max())
