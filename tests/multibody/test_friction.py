"""Friction in joints: sliding, creeping and turning by hand formulas, orders, balances of energy."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import cumulative_simpson, solve_ivp
from scipy.optimize import brentq
from scipy.spatial.transform import Rotation

import genalpha as ga
from genalpha import multibody as mb
from genalpha.multibody import friction as laws

G = 9.81


# --- a slider in the plane --------------------------------------------------------------------------------


def slope(mu, angle=0.5, torque=0.0, start=0.0, g=G):
    """A block on a slope, with a torque that presses on the ends of its guide."""
    down = np.array([np.cos(angle), -np.sin(angle)])
    model = mb.Model(gravity=(0, -g, 0))
    block = model.add(mb.PlanarBody("block", 2.0, 0.1, at=(0.3, 0.2), velocity=start * down))
    rubs = mb.Friction(mu, speed=1e-2, length=0.2)
    model.add(mb.Prismatic("guide", model.ground, block, at=(0.3, 0.2), axis=down, friction=rubs))
    model.add(mb.AppliedForce("twist", block, torque=(0, 0, torque)))
    return model


@pytest.fixture(scope="module")
def sliding():
    """Runs of blocks with other numbers, by the code of the first: numbers make no kinds of their own."""
    base = slope(0.3)

    def run(**numbers):
        model = slope(**numbers)
        span, how = (0.0, 0.5), {"h": 1e-3, "method": "index3", "args": model.system.args}
        return model.motion(ga.solve(base.system, span, model.q0, model.v0, **how))

    return run


def test_a_block_slides_down_a_slope_against_its_friction(sliding):
    motion = sliding(mu=0.3, start=1.0)
    down = G * (np.sin(0.5) - 0.3 * np.cos(0.5))
    t = motion.t
    np.testing.assert_allclose(motion.coordinate("guide"), t + 0.5 * down * t**2, atol=1e-9)
    force, torque = motion.reaction("guide")
    weight = 2.0 * G * np.cos(0.5)
    np.testing.assert_allclose(force, np.tile([-0.3 * weight, weight, 0], (len(t), 1)), atol=1e-6)
    np.testing.assert_allclose(torque, 0.0, atol=1e-9)
    friction = motion.friction("guide").force
    np.testing.assert_allclose(friction[:, 0], -0.3 * weight, rtol=1e-9)
    np.testing.assert_allclose(friction[:, 1:], 0.0, atol=1e-12)
    np.testing.assert_allclose(motion.power("guide"), -0.3 * weight * (1.0 + down * t), rtol=1e-6)
    assert motion.friction("guide").torque.shape == (len(t), 3)


def test_a_block_creeps_where_friction_holds(sliding):
    """tan α = μ tanh(v/speed)."""
    motion = sliding(mu=0.8)
    creep = 1e-2 * np.arctanh(np.tan(0.5) / 0.8)
    np.testing.assert_allclose(motion.rate("guide")[-1], creep, rtol=1e-9)


def test_a_guide_without_load_has_no_friction(sliding):
    motion = sliding(mu=0.5, start=1.0, g=0.0)
    np.testing.assert_allclose(motion.coordinate("guide"), motion.t, atol=1e-6)
    resting = sliding(mu=0.5, g=0.0)
    np.testing.assert_allclose(resting.coordinate("guide"), 0.0, atol=1e-12)


def test_a_torque_presses_on_both_ends_of_a_guide(sliding):
    """Normal forces of the ends are |F/2 ± M/L|; if the torque is large, their sum is 2 |M|/L."""
    for torque, normal in ((1.0, 2 * G * np.cos(0.5)), (-5.0, 2 * 5.0 / 0.2)):
        motion = sliding(mu=0.2, torque=torque, start=2.0)
        np.testing.assert_allclose(motion.friction("guide").force[:, 0], -0.2 * normal, rtol=1e-8)
        np.testing.assert_allclose(motion.reaction("guide").torque[:, 2], -torque, rtol=1e-9)


# --- a pendulum in a bearing ------------------------------------------------------------------------------

MASS, MOMENT, ARM, MU, PIN, SLOW = 1.5, 0.2, 0.6, 0.5, 0.1, 0.2


def pendulum():
    model = mb.Model(gravity=(0, -G, 0))
    bar = model.add(mb.PlanarBody("bar", MASS, MOMENT, at=(ARM, 0)))
    rubs = mb.Friction(MU, radius=PIN, speed=SLOW)
    model.add(mb.Revolute("pin", model.ground, bar, at=(0, 0), friction=rubs))
    return model


def pin_force(angle, rate, turning):
    """Angular acceleration and the force of the pin (2,), with friction of the pin from that force."""
    c, s = np.cos(angle), np.sin(angle)
    for _ in range(60):  # a contraction
        force = MASS * (ARM * (turning * np.array([-s, c]) - rate**2 * np.array([c, s])) + [0, G])
        torque = -MU * PIN * np.linalg.norm(force) * np.tanh(PIN * rate / SLOW)
        turning = (torque - MASS * G * ARM * c) / (MOMENT + MASS * ARM**2)
    return turning, force, torque


@pytest.fixture(scope="module")
def reference():
    rate = lambda t, y: [y[1], pin_force(y[0], y[1], 0.0)[0]]
    return solve_ivp(rate, (0, 1), [0.0, 0.0], rtol=1e-11, atol=1e-12, dense_output=True).sol


@pytest.fixture(scope="module")
def swinging():
    return pendulum()


@pytest.mark.parametrize("method", ["index3", pytest.param("soi2", marks=pytest.mark.slow)])
def test_a_pendulum_with_friction_has_order_two(method, swinging, reference):
    """Angles, rates and the force of the pin, against the equation in one angle."""
    errors = []
    for h in (4e-3, 2e-3):
        sol = swinging.solve((0.0, 1.0), h=h, method=method)
        motion = swinging.motion(sol)
        angle, rate = reference(sol.t)
        forces = np.array([pin_force(p, w, 0.0)[1] for p, w in zip(angle, rate, strict=True)])
        force = np.einsum("kij,kj->ki", motion.rotation(swinging.ground), motion.reaction("pin").force)
        parts = (motion.coordinate("pin") - angle, motion.rate("pin") - rate, force[:, :2] - forces)
        errors.append([np.abs(x).max() for x in parts])
    assert (np.array(errors[1]) < [1e-4, 1e-3, 1e-2]).all()
    np.testing.assert_allclose(np.log2(np.divide(*errors)), 2.0, atol=0.15)


def test_the_loss_of_energy_is_the_work_of_friction(swinging):
    drifts = []
    for h in (8e-3, 4e-3):
        motion = swinging.motion(swinging.solve((0.0, 1.0), h=h, method="index3"))
        energy, power = motion.energy()["total"], motion.power("pin")
        assert (power <= 0).all()
        work = cumulative_simpson(power, x=motion.t, initial=0.0)
        drifts.append(np.abs(energy - energy[0] - work).max())
    assert energy[0] - energy[-1] > 0.5
    assert drifts[1] < 1e-3
    assert drifts[0] / drifts[1] == pytest.approx(4.0, rel=0.2)


# --- in space -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_pulley_in_a_journal_is_turned_by_its_belt_and_slowed_by_its_pin():
    """J ω' = (T₁ − T₂) R − μ r |W + T| − μ f |A|, with the force A of the shaft on its collar."""
    tight, slack, axial, mass, wide = 30.0, 18.0, 12.0, 2.0, 0.3
    model = mb.Model()
    wheel = mb.Body("wheel", mb.cylinder(mass, wide, 0.1), rotation=[[1, 0, 0], [0, 0, 1], [0, -1, 0]])
    wheel = model.add(wheel)
    wheel.angular_velocity = np.array([0, 10.0, 0])
    rubs = mb.Friction(0.15, radius=0.05, face=0.08, length=0.2)
    model.add(mb.Revolute("pin", model.ground, wheel, at=(0, 0, 0), axis=(0, 1, 0), friction=rubs))
    pulls, turns = (tight + slack, axial, 0), (0, (tight - slack) * wide, 0)
    model.add(mb.AppliedForce("belt", wheel, force=pulls, torque=turns))
    sol = model.solve((0.0, 0.5), h=5e-3, method="index3")
    motion = model.motion(sol)
    lost = 0.15 * (0.05 * np.hypot(mass * G, tight + slack) + 0.08 * axial)
    faster = ((tight - slack) * wide - lost) / (mass * wide**2 / 2)
    np.testing.assert_allclose(motion.rate("pin"), 10.0 + faster * sol.t, rtol=1e-7)
    np.testing.assert_allclose(motion.reaction("pin").torque[:, 2], -lost, rtol=1e-7)
    np.testing.assert_allclose(motion.power("pin"), -lost * motion.rate("pin"), rtol=1e-7)


def test_laws_by_hand():
    """Every law at one load and one motion, far above its smallest speed and force."""
    F, M, v, w = (
        np.array(x) for x in ([3.0, -4.0, 5.0], [0.2, 0.7, -0.4], [0.6, -0.8, 2.0], [1.0, 2.0, -2.0])
    )
    rubs = mb.Friction(0.5, radius=0.1, face=0.3, length=0.25, speed=1e-4, soft=1e-9)
    of, size = laws.Of.taken(rubs.numbers()), np.linalg.norm
    arm = np.array([0.0, 0.0, 0.125])
    end = np.cross(M, [0, 0, 1]) / 0.25  # what the two ends add to F/2 to carry M
    across = np.array([*F[:2], 0.0])
    np.testing.assert_allclose(
        np.cross(arm, across / 2 + end) - np.cross(arm, across / 2 - end), [0.2, 0.7, 0]
    )
    rings = size(across / 2 + end) + size(across / 2 - end)
    slip = np.array([2.0, 0.1 * -2.0])
    push = -0.5 * rings * slip / size(slip)
    wanted = {
        laws.hinge: ([0, 0, 0], [0, 0, 0.5 * (0.1 * rings + 0.3 * 5.0)]),
        laws.guide: ([0, 0, -0.5 * (rings + 0.4 / 0.1)], [0, 0, 0]),
        laws.sleeve: ([0, 0, push[0]], [0, 0, 0.1 * push[1]]),
        laws.ball: ([0, 0, 0], -0.5 * 0.1 * np.sqrt(50) * w / 3.0),
        laws.slot: ([-0.5 * (abs(-2 - 1.6) + abs(-2 + 1.6)), 0, 0], [0, 0, 0]),
        laws.wire: ([0, 0, -0.5 * 5.0], [0, 0, 0]),
        laws.table: ([-0.5 * 5.0 * 0.6, 0.5 * 5.0 * 0.8, 0], [0, 0, 0.5 * 5.0 * 0.1]),
    }
    for law, (force, torque) in wanted.items():
        found = law(of, F, M, v, w)
        np.testing.assert_allclose(found[0], force, rtol=1e-7, atol=1e-9, err_msg=law.__name__)
        np.testing.assert_allclose(found[1], torque, rtol=1e-7, atol=1e-9, err_msg=law.__name__)


def test_friction_is_smooth_where_nothing_moves_and_nothing_presses():
    of = laws.Of.taken(mb.Friction(0.5, radius=0.1, face=0.3, length=0.25).numbers())
    every = (laws.hinge, laws.guide, laws.sleeve, laws.ball)
    together = lambda x: [law(of, *x) for law in every]
    slopes = jax.jacfwd(together)(jnp.zeros((4, 3)))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(slopes))
    assert slopes[0][1][2, 3, 2] == pytest.approx(-0.5 * (0.1 * 2e-6 * 100 + 0.3 * 1e-6 * 300))  # ∂torque/∂ω


SPACE = {
    "spherical": (mb.Spherical, {"radius": 0.3}),
    "revolute": (mb.Revolute, {"radius": 0.3, "face": 0.1, "length": 0.2}),
    "prismatic": (mb.Prismatic, {"radius": 0.3, "length": 0.6}),
    "cylindrical": (mb.Cylindrical, {"radius": 0.3, "length": 0.6}),
    "planar": (mb.Planar, {"radius": 0.3}),
    "line": (mb.PointOnLine, {}),
    "plane": (mb.PointOnPlane, {}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SPACE)
def test_friction_between_two_free_bodies(name):
    """It keeps the momentum of both, and takes from their energy what its power says."""
    cls, lengths = SPACE[name]
    model = mb.Model(gravity=(0, 0, 0))
    one = mb.Body("one", mb.box(1.5, (0.3, 0.5, 0.4)), at=(0.1, 0.2, 0.3), angular_velocity=(0.5, 3, -2))
    tilt = Rotation.from_rotvec([0.2, -0.4, 0.9]).as_matrix()
    two = mb.Body("two", mb.box(0.8, (0.6, 0.2, 0.3)), at=(0.7, -0.2, 0.1), rotation=tilt, velocity=(0, 0, 1))
    one, two = model.add(one), model.add(two)
    rubs = mb.Friction(0.2, speed=0.05, soft=0.1, **lengths)  # soft: normal forces pass zero
    model.add(cls("joint", one, two, at=(0.4, 0.1, -0.2), axis=(0.3, -0.5, 0.8), friction=rubs))
    model.assemble()
    drifts = []
    for h in (4e-3, 2e-3):
        motion = model.motion(model.solve((0.0, 0.4), h=h, method="index3"))
        energy, power = motion.energy()["total"], motion.power("joint")
        work = cumulative_simpson(power, x=motion.t, initial=0.0)
        linear, angular = motion.momentum()
        np.testing.assert_allclose(linear - linear[0], 0.0, atol=1e-9)
        drifts.append([np.abs(energy - energy[0] - work).max(), np.abs(angular - angular[0]).max()])
    assert power.max() < 1e-9
    assert work[-1] < -1e-3
    assert max(drifts[1]) < 3e-3
    np.testing.assert_allclose(np.divide(*drifts), 4.0, rtol=0.35)


@pytest.mark.slow
def test_a_pendulum_with_friction_between_stops(reference):
    """Impacts ignore friction; the time of the first is that of the equation in one angle."""
    model = pendulum()
    sol = model.solve((0.0, 1.0), rtol=1e-7, events=model.stops("pin", lower=-1.2, restitution=0.5))
    hit = brentq(lambda t: reference(t)[0] + 1.2, 0.1, 0.8)
    assert sol.t_events[0][0] == pytest.approx(hit, abs=1e-6)
    assert sol.backend == "native"
    motion = model.motion(sol)
    k = int(np.argmax(np.diff(motion.rate("pin"))))
    assert motion.rate("pin")[k + 1] == pytest.approx(-0.5 * motion.rate("pin")[k], rel=1e-6)
    assert motion.coordinate("pin").min() > -1.2 - 1e-9


@pytest.mark.slow
def test_consistent_multipliers_by_native_code_are_those_by_xla(swinging):
    """At the start, and after an event, where friction is large."""
    fast = pendulum()
    fast["bar"].velocity, fast["bar"].angular_velocity = np.array([0, 6 * ARM]), 6.0
    q, v = fast.q0, fast.v0
    sol = ga.solve(swinging.system, (0.0, 0.1), q, v, h=4e-3, method="index3")
    found = ga.consistent(swinging.system, 0.0, q, v)
    np.testing.assert_allclose(sol.lam[0], found.lam, rtol=1e-10)
    np.testing.assert_allclose(sol.a[0], found.a, rtol=1e-10)
    here = swinging.event("pin", 0.2)
    sol = ga.solve(swinging.system, (0.0, 0.1), q, v, h=4e-3, method="index3", events=here)
    found = ga.consistent(swinging.system, sol.t_events[0][0], sol.q_events[0][0], sol.v_events[0][0])
    np.testing.assert_allclose(sol.lam_events[0][0], found.lam, rtol=1e-9)


@pytest.mark.slow
def test_a_chain_with_friction_uses_sparse_matrices():
    """Five bars on hinges in space: what they lose is the work of all hinges."""
    model = mb.Model()
    last, rubs = model.ground, mb.Friction(0.2, radius=0.05, length=0.2, speed=0.05)
    for i in range(5):
        bar = model.add(mb.Body.bar(f"bar {i}", 1.0, (i, 0, 0), (i + 1, 0, 0)))
        model.add(mb.Revolute(f"hinge {i}", last, bar, at=(i, 0, 0), axis=(0, 1, 0), friction=rubs))
        last = bar
    drifts = []
    for h in (2e-3, 1e-3):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ga.FallbackWarning)
            motion = model.motion(model.solve((0.0, 0.5), h=h))
        energy, power = motion.energy()["total"], sum(motion.power(joint) for joint in model.joints)
        work = cumulative_simpson(power, x=motion.t, initial=0.0)
        drifts.append(np.abs(energy - energy[0] - work).max())
    assert drifts[1] < 1e-2 * abs(work[-1])
    assert drifts[0] / drifts[1] == pytest.approx(4.0, rel=0.2)


@pytest.mark.slow
def test_a_puck_slides_across_a_slope():
    """Friction is against the velocity, and bends its path: against the equations in the plane."""
    tilt = Rotation.from_rotvec([0, 0.3, 0]).as_matrix()
    model = mb.Model()
    puck = model.add(mb.PointMass("puck", 0.5, at=(0, 0, 0), velocity=tilt @ [0, 1.5, 0]))
    rubs = mb.Friction(0.4, speed=0.02)
    model.add(mb.PointOnPlane("table", model.ground.frame(rotation=tilt), puck, friction=rubs))
    sol = model.solve((0.0, 0.5), rtol=1e-7)
    pull, hold = G * np.sin(0.3), 0.4 * G * np.cos(0.3)

    def rate(t, y):
        s = np.hypot(y[2], y[3]) + 1e-300
        drag = hold * np.tanh(s / 0.02) / s
        return [y[2], y[3], pull - drag * y[2], -drag * y[3]]

    other = solve_ivp(rate, (0, 0.5), [0, 0, 0, 1.5], rtol=1e-10, atol=1e-12)
    found = model.motion(sol)
    place = [found.coordinate("table", x)[-1] for x in "xy"]
    np.testing.assert_allclose(place, other.y[:2, -1], atol=1e-5)


# --- bad input ----------------------------------------------------------------------------------------------

BAD = {
    "coefficient of a Friction must be zero or positive": lambda a, b: mb.Friction(-0.1),
    "radius of a Friction must be positive": lambda a, b: mb.Friction(0.1, radius=-1),
    "speed of a Friction must be positive": lambda a, b: mb.Friction(0.1, speed=0),
    "coefficient of a Friction must be a number": lambda a, b: mb.Friction("much"),
    "friction of the Revolute 'j' needs a radius or a face": lambda a, b: mb.Revolute(
        "j", a, b, friction=mb.Friction(0.1)
    ),
    "friction of the Prismatic 'j' has a face, which does not count there: it has radius and length": (
        lambda a, b: mb.Prismatic("j", a, b, friction=mb.Friction(0.1, face=1))
    ),
    "the Weld 'j' has no surfaces that slide": lambda a, b: mb.Weld("j", a, b, friction=mb.Friction(0.1)),
    "must be a Friction, such as mb.Friction\\(0.1\\), got 0.3": lambda a, b: mb.PointOnLine(
        "j", a, b, friction=0.3
    ),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_friction_is_named(message):
    box = mb.box(1.0, (1, 1, 1))
    with pytest.raises((ValueError, TypeError), match=message):
        BAD[message](mb.Body("arm", box), mb.Body("hand", box))


def test_a_joint_without_friction_says_so(swinging):
    model = mb.Model(gravity=(0, -G, 0))
    bar = model.add(mb.PlanarBody("bar", 1.0, 1.0, at=(1, 0)))
    pin = model.add(mb.Revolute("pin", model.ground, bar, at=(0, 0)))
    motion = mb.Motion(model, swinging.solve((0.0, 0.008), h=8e-3, method="index3"))
    with pytest.raises(ValueError, match=r"'pin' .* has no friction"):
        motion.friction(pin)
