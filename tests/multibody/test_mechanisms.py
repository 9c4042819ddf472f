"""Mechanisms as models, against the hand-written systems of the package and equations derived by hand."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from examples import iftomm, mechanisms
from scipy.integrate import solve_ivp

import genalpha as ga
from conftest import problem
from genalpha import multibody as mb


def test_the_slider_crank_is_the_hand_written_one():
    """Both have absolute coordinates, so all numbers agree up to Newton's tolerance, reactions too."""
    model = mechanisms.slider_crank()
    pulse = lambda t: jnp.where(t <= 0.3, 0.2 / 0.3 * (1 - jnp.cos(2 * np.pi * t / 0.3)), 0.0)
    model.add(mb.Motor("torque", model["bearing"], effort=pulse))
    assert model.assemble().freedom == 1
    sol, hand = model.solve((0.0, 0.5), h=2e-3), problem("slider-crank").solve(t_end=0.5, h=2e-3)
    np.testing.assert_allclose(sol.q, hand.q, atol=1e-11)
    np.testing.assert_allclose(sol.v, hand.v, atol=1e-9)
    np.testing.assert_allclose(sol.a, hand.a, atol=1e-9 * np.abs(hand.a).max())
    force = model.motion(sol).reaction("bearing").force[:, :2]
    np.testing.assert_allclose(force, -hand.lam[:, :2], atol=1e-9 * np.abs(hand.lam).max())


@pytest.mark.slow
def test_the_rolling_disk_is_the_hand_written_one():
    model = mechanisms.rolling_disk()
    assert model.assemble().freedom == 3
    p = problem("rolling-disk", space="R3xSO3")
    np.testing.assert_allclose(model.v0, p.v0, atol=1e-14)
    sol, hand = model.solve((0.0, 2.0), h=0.01), p.solve(t_end=2.0, h=0.01)
    np.testing.assert_allclose(sol.q, hand.q, atol=1e-11)
    np.testing.assert_allclose(sol.v, hand.v, atol=1e-10)
    force = model.motion(sol).reaction("floor").force
    np.testing.assert_allclose(force, -np.hstack([hand.psi, hand.lam]), atol=1e-8)


@pytest.mark.slow
def test_the_heavy_top_is_the_hand_written_one():
    model, p = mechanisms.heavy_top(), problem("heavy-top")
    model.assemble()
    sol, hand = model.solve((0.0, 0.5), h=1e-3), p.solve(t_end=0.5, h=1e-3)
    np.testing.assert_allclose(sol.q, hand.q, atol=1e-10)
    np.testing.assert_allclose(sol.v, hand.v, atol=1e-8)
    force = model.motion(sol).reaction("tip").force
    np.testing.assert_allclose(force, hand.lam, atol=1e-9 * np.abs(hand.lam).max())


# --- Andrews' squeezing mechanism ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def squeezer():
    model = iftomm.squeezer()
    assert model.assemble().freedom == 1
    return model


def along(angle, order=0):
    """(cos, sin) of an angle, or a derivative of it."""
    angle = angle + order * np.pi / 2
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def moving(angles, rates, seconds, arms):
    """Position, velocity and acceleration (2,) of a chain of arms: (number of its angle, x, y)."""
    x = v = a = np.zeros(2)
    for i, *arm in arms:
        for order, length in enumerate(arm):
            e, n = along(angles[i], order), along(angles[i], order + 1)
            x, v, a = (
                x + length * e,
                v + length * rates[i] * n,
                a + length * (seconds[i] * n - rates[i] ** 2 * e),
            )
    return x, v, a


def squeezed(q, v, a):
    """q, v and a (21,) of the seven bodies, from the angles of the IVP Test Set and their derivatives."""
    turned = lambda x: np.array([x[0], x[0] + x[1], x[2], x[3] + x[4], x[4], x[5] + x[6], x[6]])
    absolute = [turned(np.asarray(x)) for x in (q, v, a)]
    A, B, none = (-0.06934, -0.00227), (-0.03635, 0.03273), (0.0, 0.0)
    centers = (
        (none, [(0, 0.00092, 0)]),
        (none, [(0, 0.007, 0), (1, -0.0115, 0)]),
        (B, [(2, 0.01043, -0.01874)]),
        (A, [(4, 0.04, 0), (3, 0, 0.01421 - 0.02)]),
        (A, [(4, 0.02308, 0.00916)]),
        (A, [(6, 0, -0.04), (5, 0.02 - 0.01421, 0)]),
        (A, [(6, -0.00449, -0.01228)]),
    )
    found = [moving(*absolute, arms) for _, arms in centers]
    full = [np.concatenate([[*x[k], absolute[k][i]] for i, x in enumerate(found)]) for k in range(3)]
    full[0] += np.concatenate([[*at, 0.0] for at, _ in centers])
    return full


@pytest.mark.parametrize("t", [0.01, 0.02, 0.03])
def test_a03_has_the_equations_of_the_hand_written_squeezer(squeezer, t):
    """At reference states in quadruple precision: the same accelerations, and forces of the pins at E."""
    of = problem("andrews").published[t]
    q, v, a = squeezed(of["q"], of["v"], of["a"])
    found = ga.consistent(squeezer.system, t, q, v)
    np.testing.assert_allclose(found.a, a, atol=1e-10 * np.abs(a).max())
    row = SimpleNamespace(**{key: np.asarray(x)[None] for key, x in found._asdict().items()})
    motion = squeezer.motion(row)
    for i, body in enumerate((3, 4, 6)):  # the pins close the loops, so λ is their force on bodies 3, 4 and 6
        axes = motion.rotation(squeezer[f"E{body}"].markers[0])[0]
        force = axes @ motion.reaction(f"E{body}").force[0]
        np.testing.assert_allclose(force[:2], of["lam"][2 * i : 2 * i + 2], rtol=1e-9)


def test_a03_moves_as_the_hand_written_squeezer(squeezer):
    """Absolute and relative coordinates differ by terms of h², so both meet in the limit."""
    reference = np.array(problem("andrews").published[0.03]["q"])
    wanted = squeezed(reference, 0 * reference, 0 * reference)[0]
    errors = [np.abs(squeezer.solve((0.0, 0.03), h=h).q[-1] - wanted).max() for h in (2e-5, 1e-5)]
    assert errors[1] < 2e-3
    assert errors[0] / errors[1] == pytest.approx(4.0, rel=0.02)
    sol = squeezer.solve((0.0, 0.05), h=1e-5)
    # F at 0.05 s, to 1e-3 relative. Our reference: quadruple precision, two tolerances.
    F = [-5.208504722296720e-03, 4.676695260310722e-03, 0.0]
    np.testing.assert_allclose(squeezer.motion(sol).position("body 2")[-1], F, rtol=1e-3)


# --- a gyroscope in gimbals ---------------------------------------------------------------------------------


# Moments of inertia: of the outer gimbal about z, of the inner one about the fixed point, with 0.3 kg at
# 0.12 m on the spin axis, and of the rotor.
OUTER, INNER = 0.008, (0.004 + 0.3 * 0.12**2, 0.003 + 0.3 * 0.12**2, 0.0045)
ROTOR, WEIGHT = (0.0022, 0.004), 0.3 * 0.12 * 9.81


def upright(theta):
    """The moment of inertia about z, without that of the rotor about its own axis, and its derivative."""
    c, s = np.cos(theta), np.sin(theta)
    across = INNER[1] + ROTOR[0]
    return OUTER + across * s**2 + INNER[2] * c**2, 2 * (across - INNER[2]) * s * c


def gyroscope_rates(t, y):
    """Lagrange's equations in the angles of the outer gimbal, the inner gimbal and the rotor."""
    _, theta, _, psi_, theta_, phi_ = y
    c, s, (D, slope) = np.cos(theta), np.sin(theta), upright(theta)
    spin = ROTOR[1] * (psi_ * c + phi_)
    theta__ = (0.5 * slope * psi_**2 - spin * psi_ * s + WEIGHT * s) / (INNER[0] + ROTOR[0])
    psi__ = (spin * s * theta_ - slope * theta_ * psi_) / D
    return [psi_, theta_, phi_, psi__, theta__, psi_ * s * theta_ - psi__ * c]


START = [0.0, 1.0, 0.0, 0.0, 0.2, 90.0]


def test_accelerations_of_a_gyroscope_in_gimbals():
    """The gimbals turn with their angles, and the rotor keeps its spin about its own axis."""
    model = mechanisms.gyroscope()
    assert model.assemble().freedom == 3
    a = ga.consistent(model.system, 0.0, model.q0, model.v0).a.reshape(3, 2, 3)[:, 1]
    psi__, theta__ = gyroscope_rates(0.0, START)[3:5]
    assert abs(psi__) > 1
    np.testing.assert_allclose([a[0, 2], a[1, 0], a[2, 2]], [psi__, theta__, 0.0], rtol=1e-11, atol=1e-11)


@pytest.mark.slow
def test_a_gyroscope_in_gimbals():
    """Motion, momenta about the spin axis and about z, and energy. Two step sizes are extrapolated."""
    model = mechanisms.gyroscope()
    model.assemble()
    found = []
    for h in (5e-4, 2.5e-4):
        motion = model.motion(model.solve((0.0, 1.0), h=h))
        names = ("stand", "gimbal", "spindle")
        y = np.array([f(name) for f in (motion.coordinate, motion.rate) for name in names])
        found.append(y[:, -1])
        _, theta, _, psi_, theta_, phi_ = y
        spin = ROTOR[1] * (psi_ * np.cos(theta) + phi_)
        turning = upright(theta)[0] * psi_ + spin * np.cos(theta)
        kinetic = upright(theta)[0] * psi_**2 + (INNER[0] + ROTOR[0]) * theta_**2 + spin**2 / ROTOR[1]
        energy = 0.5 * kinetic + WEIGHT * np.cos(theta)
        np.testing.assert_allclose(spin, 0.36, rtol=1e-12)
        np.testing.assert_allclose(turning, turning[0], rtol=100 * h**2)
        np.testing.assert_allclose(energy, energy[0], rtol=0.5 * h**2)
        total = motion.energy()["total"]
        np.testing.assert_allclose(total - total[0], energy - energy[0], atol=1e-10)
    assert np.ptp(theta) > 0.01
    np.testing.assert_allclose(y[:, 0], START, atol=1e-12)
    wanted = solve_ivp(gyroscope_rates, (0, 1), START, rtol=1e-11, atol=1e-12, method="DOP853").y[:, -1]
    extrapolated = (4 * found[1] - found[0]) / 3
    np.testing.assert_allclose(extrapolated, wanted, atol=2e-6)
    np.testing.assert_allclose(found[0] - wanted, 4 * (found[1] - wanted), rtol=0.05, atol=2e-6)
