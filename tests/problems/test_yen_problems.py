"""The stiff pendulum and the bushing of YPR98: forces against potentials, motion, refused choices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from conftest import problem
from genalpha.convergence import study
from genalpha.problems._yen import frequencies
from problem_energies import energies

CRANK = "flexible-slider-crank"


@pytest.mark.parametrize("name", ["stiff-spring-pendulum", "bushing"])
def test_forces_are_minus_the_gradient_of_the_potential(name, rng):
    p = problem(name)
    n = len(p.q0)
    slope = jax.jit(jax.grad(lambda q: p.energy(0.0, q, jnp.zeros(n), *p.args)))
    for _ in range(5):
        q, v = rng.normal(size=n), rng.normal(size=n)
        gradient = slope(q)
        force = p.system.applied(0.0, q, v, p.args)
        np.testing.assert_allclose(force, -gradient, rtol=0, atol=1e-14 * np.abs(gradient).max())


@pytest.mark.parametrize("name", ["stiff-spring-pendulum", "bushing"])
def test_energy_is_conserved_along_the_reference(name):
    p = problem(name)
    true = p.reference(np.linspace(*p.t_span, 101))
    energy = energies(p, true.t, true.q, true.v)
    np.testing.assert_allclose(energy, energy[0], rtol=1e-11)


@pytest.mark.parametrize(
    ("name", "parameters", "counts"),
    [
        ("stiff-spring-pendulum", {}, (10000, 20000, 40000, 80000)),
        ("stiff-spring-pendulum", {"gravity": -3.0}, (10000, 20000, 40000, 80000)),
        ("bushing", {}, (8000, 16000, 32000, 64000)),
        ("bushing", {"form": "printed"}, (8000, 16000, 32000, 64000)),
    ],
)
def test_runs_converge_to_the_reference_with_order_two(name, parameters, counts):
    p = problem(name, **parameters)
    result = study(p, h=[p.t_span[1] / n for n in counts], rho_inf=0.9)
    for component, slope in result.slopes.items():
        assert slope == pytest.approx(2, abs=0.05), component
    size = np.abs(p.reference(p.t_span[1]).v).max()
    assert result.errors["v"][-1] < 1e-3 * size


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stiff-spring-pendulum", "bushing"])
def test_energy_of_undamped_small_steps(name):
    """The error of the energy is of order two: a quarter for half the step."""
    p = problem(name)
    swings = []
    for divide in (4, 8):
        sol = p.solve(h=p.h / divide, rho_inf=1.0)
        swings += [np.ptp(energies(p, sol.t, sol.q, sol.v))]
    assert swings[1] < 1e-4 * p.energy(0.0, p.q0, p.v0, *p.args)
    assert swings[0] / swings[1] == pytest.approx(4, abs=0.2)


def test_stiff_pendulum_starts_as_calculated_by_hand():
    """λ = −0.1/(0.9 ε²), and gravity along +y."""
    p = problem("stiff-spring-pendulum")
    state = ga.consistent(p.system, 0.0, p.q0, p.v0, p.args)
    np.testing.assert_allclose(state.a, [100.0, 1.0], rtol=1e-14)
    assert state.lam.size == 0


@pytest.mark.slow
def test_stiff_pendulum_can_be_differentiated_with_respect_to_its_arguments():
    p = problem("stiff-spring-pendulum")

    def end(h):
        run = lambda *args: ga.solve(p.system, (0.0, 0.5), p.q0, p.v0, h=h, args=args, rho_inf=0.9).q[-1]
        return np.array(jax.jacfwd(run, (0, 1))(*p.args))

    got = (4 * end(2e-4) - end(4e-4)) / 3
    for i, name in enumerate(("eps2", "gravity")):
        step = 1e-4 * p.args[i]
        pair = [problem(p.name, **{name: p.args[i] + sign * step}) for sign in (1, -1)]
        expected = (pair[0].reference(0.5).q - pair[1].reference(0.5).q) / (2 * step)
        np.testing.assert_allclose(got[i], expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(("form", "sign"), [("conservative", 1), ("printed", -1)])
def test_bushing_starts_as_calculated_by_hand(form, sign):
    """At (0.8, 0.6, 0): f = (0.2, −0.6), radius (0.8, 0.6), tangent (−0.6, 0.8), G = 2 (0.8, 0.6, 0)."""
    p = problem("bushing", form=form)
    stiff = 1e10
    state = ga.consistent(p.system, 0.0, p.q0, p.v0, p.args)
    along = -0.6 * stiff + 0.8
    np.testing.assert_allclose(state.a, [-0.6 * along, 0.8 * along, sign * 0.3 * stiff + 0.5], rtol=1e-13)
    np.testing.assert_allclose(state.lam, [-0.1 * stiff + 0.3], rtol=1e-13)


def test_printed_bushing_is_not_the_gradient_of_anything():
    """Neither in space nor on the circle: forces along (angle, θ) with ∂Q_angle/∂θ ≠ ∂Q_θ/∂angle."""

    def curl(form):
        p = problem("bushing", form=form)
        force = lambda q: p.system.applied(0.0, q, jnp.zeros(3), p.args)
        place = lambda y: jnp.array([jnp.cos(y[0]), jnp.sin(y[0]), y[1]])
        on_circle = lambda y: jax.jacfwd(place)(y).T @ force(place(y))
        places = [(force, [0.8, 0.6, 0.1]), (on_circle, [0.6, 0.1])]
        jacobians = [np.asarray(jax.jit(jax.jacfwd(f))(jnp.array(at))) for f, at in places]
        return [1e-10 * np.abs(J - J.T).max() for J in jacobians]

    np.testing.assert_allclose(curl("conservative"), 0, atol=1e-14)
    assert min(curl("printed")) > 0.5
    assert problem("bushing", form="printed").energy is None
    assert not problem("bushing", form="printed").conservative


@pytest.mark.slow
def test_the_corrected_bushing_stays_near_one():
    """YPR98 section 4.2: "x ≈ 1 during the simulation". As printed, x becomes negative."""
    lowest = {}
    for form in ("conservative", "printed"):
        p = problem("bushing", form=form)
        lowest[form] = p.reference(np.linspace(*p.t_span, 1001)).q[:, 0].min()
    assert lowest["conservative"] > 0.799
    assert lowest["printed"] < -0.05


@pytest.mark.parametrize(
    ("form", "cycles"), [("conservative", (5.609, 22.551)), ("printed", (7.511, 16.840))]
)
def test_cycles_of_the_bushing(form, cycles):
    """YPR98 says roughly 6 of θ and around 20 of (x, y) in 40πε: the corrected sign fits better.

    Tangent directions at (1, 0, 0) are y and θ; ε² times the stiffness is there ((1, −½), (∓½, 0.1 ± ¼)).
    """
    p, sign = problem("bushing", form=form), 1 if form == "conservative" else -1
    squares = np.linalg.eigvals([[1, -0.5], [-sign * 0.5, 0.1 + sign * 0.25]])
    np.testing.assert_allclose(np.sort(20 * np.sqrt(squares)), cycles, atol=1e-3)
    got = frequencies(p, [1.0, 0.0, 0.0]) * p.t_span[1] / (2 * np.pi)
    np.testing.assert_allclose(got, cycles, atol=1e-3)


def test_the_bushing_scales_with_eps():
    """Without gravity, which is small against the bushing, the motion depends on t/ε only."""
    soft, stiff = problem("bushing", eps=1e-4), problem("bushing")
    assert soft.t_span[1] == pytest.approx(10 * stiff.t_span[1])
    one, two = soft.reference(soft.t_span[1]), stiff.reference(stiff.t_span[1])
    np.testing.assert_allclose(one.q, two.q, atol=1e-5)
    np.testing.assert_allclose(10 * one.v, two.v, atol=1e-5 * np.abs(two.v).max())


def test_frequencies_of_an_unconstrained_system():
    """The stiff pendulum at rest in its stretched spring: along the spring and as a pendulum."""
    p = problem("stiff-spring-pendulum")
    got = frequencies(p, [0.0, 1.001])
    np.testing.assert_allclose(got, [np.sqrt(1 / 1.001), np.sqrt(1000)], rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("bushing", {"form": "print"}, "unknown form 'print'.*Did you mean 'printed'"),
        (CRANK, {"coupling": "globl"}, "unknown coupling 'globl'.*Did you mean 'global'"),
        (CRANK, {"torque": "step"}, "unknown torque 'step'. Known: smooth, constant"),
        (CRANK, {"modulus": "E"}, "unknown modulus 'E'. Known: plane-strain, beam"),
        (CRANK, {"k": 0}, "k = 0 must be a number of elements, at least 1"),
    ],
)
def test_unknown_choices_are_refused(name, parameters, message):
    with pytest.raises(ValueError, match=message):
        ga.problems.get(name, **parameters)
