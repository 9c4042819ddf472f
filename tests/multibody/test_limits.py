"""Events of joint coordinates, limits of joints, impacts on stops, momentum."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation

import genalpha as ga
from genalpha import multibody as mb

# --- one wheel: everything by hand ------------------------------------------------------------------------

MOMENT, RATE = 0.5, 4.0


def wheel(angle=0.3):
    """A wheel in the plane that turns freely; its hinge starts at zero, whatever its own angle."""
    model = mb.Model(gravity=(0, 0, 0))
    disk = mb.PlanarBody("disk", 1.0, MOMENT, angle=angle, at=(0.2, 0.1), angular_velocity=RATE)
    model.add(mb.Revolute("hinge", model.ground, model.add(disk), at=(0.2, 0.1)))
    return model


def test_an_angle_reaches_a_value_in_every_turn():
    """Also a value beyond half a turn. The opposite side is no event, in either direction."""
    model = wheel()
    late = model.event("hinge", 4.0)  # 4 − 2π = −2.28
    up, down = (model.event("hinge", 4.0, direction=x) for x in (1, -1))
    third = model.event("hinge", 1.0, terminal=3)
    sol = model.solve((0.0, 6.0), h=0.02, events=[late, up, down, third])
    wanted = (4.0 + 2 * np.pi * np.arange(3)) / RATE
    assert sol.t_end == pytest.approx((1.0 + 4 * np.pi) / RATE, abs=1e-9)
    np.testing.assert_allclose(sol.t_events[0], wanted[wanted < sol.t_end], atol=1e-9)
    np.testing.assert_allclose(sol.t_events[1], sol.t_events[0])
    assert sol.t_events[2].size == 0


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param({"h": 0.013}, id="given"),
        pytest.param({"rtol": 1e-6}, id="controlled", marks=pytest.mark.slow),
    ],
)
def test_a_wheel_between_two_stops_loses_energy_in_every_impact(steps):
    """It hits at 1/ω, then after 2 at ω e, then after 2 at ω e², and keeps e² of its energy."""
    e = 0.6
    model = wheel()
    sol = model.solve((0.0, 4.0), events=model.stops("hinge", -1.0, 1.0, restitution=e), **steps)
    times = np.cumsum([1.0 / RATE, *(2.0 / (RATE * e**k) for k in range(1, 6))])
    times = times[times < 4.0]
    upper, lower = sol.t_events[1], sol.t_events[0]
    np.testing.assert_allclose(upper, times[::2], atol=1e-8)
    np.testing.assert_allclose(lower, times[1::2], atol=1e-8)
    motion = model.motion(sol)
    energy = motion.energy()["kinetic"]
    assert energy[-1] == pytest.approx(0.5 * MOMENT * RATE**2 * e ** (2 * len(times)), rel=1e-9)
    assert np.abs(motion.coordinate("hinge")).max() < 1.0 + 1e-9


@pytest.mark.parametrize(
    ("start", "ends", "first"),
    [
        (2.0, (-2.5, 2.5), 2.5),
        (0.5, (0.0, 4.0), 4.0),
        (3.5, (0.0, 4.0), 4.0),
        (-2.0, (-2.0, 2.0), 2.0),
        (-2.0, (None, 2.5), 2.5),
        (5.0, (4.0, 7.0), 7.0),
    ],
)
def test_wide_ranges_of_angles(start, ends, first):
    """An angle counts as that near the middle of its range; also where a run goes on from a state."""
    model = mb.Model(gravity=(0, 0, 0))
    disk = model.add(mb.PlanarBody("disk", 1.0, MOMENT, angular_velocity=RATE))
    model.add(mb.Revolute("hinge", model.ground, disk, at=(0, 0)))
    disk.angle = start
    stops = model.stops("hinge", *ends)
    upper = len(stops) - 1
    begin = model.solve((0.0, 0.25 * (first - start) / RATE), h=0.02, events=stops)
    assert not any(len(times) for times in begin.t_events)
    end = begin.t[-1] + 1.0 * (first - start) / RATE
    sol = model.solve((begin.t[-1], end), h=0.02, state=begin.state, events=stops)
    np.testing.assert_allclose(sol.t_events[upper], [(first - start) / RATE], atol=1e-9)


def test_starts_beyond_wide_ranges():
    """Small ranges have small tolerances."""
    for start, ends in ((0.6, (None, 0.5)), (3.14, (-3.1, 3.1)), (2.0, (-4.0, 1.0))):
        model = wheel()
        model.place([0.2, 0.1, 0.3 + start], model.v0)
        with pytest.raises(ValueError, match="starts beyond its stop"):
            model.solve((0.0, 0.1), h=0.01, events=model.stops("hinge", *ends))
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.PlanarBody("body", 1e-12, 1e-24, velocity=(1e-3, 0)))
    model.add(mb.Prismatic("slide", model.ground, body, at=(0, 0), axis=(1, 0)))
    body.x = (9e-7, 0, 0)
    with pytest.raises(ValueError, match="starts beyond its stop, by 4e-07"):
        model.solve((0.0, 1e-2), h=1e-4, events=model.stops("slide", -5e-7, 5e-7))


def test_impacts_that_come_to_rest_end_the_run():
    """A bar falls on a stop, and keeps 0.2 of its rate: the run ends before it would rest on it."""
    model = mb.Model(gravity=(0, -9.81, 0))
    bar = model.add(mb.PlanarBody("bar", 1.0, 1 / 12, at=(0.5, 0)))
    model.add(mb.Revolute("hinge", model.ground, bar, at=(0, 0)))
    sol = model.solve((0.0, 3.0), h=5e-3, events=model.stops("hinge", lower=-1.0, restitution=0.2, rest=0.05))
    rates = model.motion(sol).rate("hinge")
    first = np.sqrt(2 * 9.81 * 0.5 * np.sin(1.0) * 3)  # ½ J ω² = m g ½ sin 1
    assert len(sol.t_events[0]) == 3  # ω e³ = 0.04
    assert sol.t_end == sol.t_events[0][-1]
    assert rates[-1] == pytest.approx(-(0.2**2) * first, rel=1e-3)
    assert sol.state.v[2] == pytest.approx(0.2**3 * first, rel=1e-3)


def test_a_limit_is_a_spring_at_the_end_of_the_range():
    """The wheel turns back after half a period of the spring, and loses nothing."""
    model, k = wheel(), 800.0
    stop = model.add(mb.Limit("stop", model["hinge"], lower=-2.0, upper=1.0, stiffness=k))
    sol = model.solve((0.0, 1.0), h=5e-4, method="index3")
    motion = model.motion(sol)
    omega = np.sqrt(k / MOMENT)
    t = sol.t - 1.0 / RATE
    inside, after = (t > 0) & (t < np.pi / omega), t > np.pi / omega
    wanted = np.where(inside, 1.0 + RATE / omega * np.sin(omega * t), 1.0 + RATE * t)
    wanted = np.where(after, 1.0 - RATE * (t - np.pi / omega), wanted)
    angle, energy = motion.coordinate("hinge"), motion.energy()
    np.testing.assert_allclose(angle, wanted, atol=2e-4)
    assert energy["springs"].max() == pytest.approx(0.5 * MOMENT * RATE**2, rel=1e-3)
    assert np.ptp(energy["total"]) < 2e-3 * energy["total"][0]
    power = np.gradient(energy["springs"], sol.t)
    np.testing.assert_allclose(motion.power(stop)[2:-2], -power[2:-2], atol=0.02 * np.abs(power).max())


@pytest.mark.slow
def test_a_limit_of_an_angle_holds_beyond_half_a_turn_and_takes_energy():
    """The range of 3 to 4 passes the angle at which arctan2 jumps. Damping takes energy, and never pulls."""
    model = wheel(angle=0.0)
    hinge = model["hinge"]
    stop = model.add(mb.Limit("stop", hinge, lower=2.5, upper=4.0, stiffness=2e3, damping=0.1))
    model["disk"].angle = 3.0
    motion = model.motion(model.solve((0.0, 2.0), h=1e-3, method="index3"))
    angle, energy, power = motion.coordinate(hinge), motion.energy()["total"], motion.power(stop)
    assert (angle.min(), angle.max()) == (pytest.approx(2.5, abs=0.08), pytest.approx(4.0, abs=0.08))
    lost = energy[0] - energy[-1]
    assert 0.1 * energy[0] < lost < energy[0]
    work = np.trapezoid(power, motion.t)
    kinetic = motion.energy()["kinetic"]
    assert kinetic[-1] - kinetic[0] == pytest.approx(work, rel=1e-2)


# --- a double pendulum ------------------------------------------------------------------------------------


def double():
    model = mb.Model(gravity=(0, -9.81, 0))
    one = model.add(mb.PlanarBody("one", 1.0, 1 / 12, at=(0.5, 0)))
    two = model.add(mb.PlanarBody("two", 2.0, 2 / 12, at=(1.5, 0)))
    model.add(mb.Revolute("a", model.ground, one, at=(0, 0)))
    model.add(mb.Revolute("b", one, two, at=(1, 0)))
    return model


def mass(p, q):
    """The mass matrix in the angles p and q of the two bars."""
    c = np.cos(p - q)
    return np.array([[1 / 3 + 2, c], [c, 2 / 3]])


def rate(t, y):
    p, q, u, w = y
    s = np.sin(p - q)
    f = np.array([-s * w**2 - 9.81 * 2.5 * np.cos(p), s * u**2 - 9.81 * np.cos(q)])
    return [u, w, *np.linalg.solve(mass(p, q), f)]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param({"h": 5e-4}, id="given", marks=pytest.mark.slow),
        pytest.param({"rtol": 1e-8}, id="controlled"),
    ],
)
def test_events_and_impacts_of_a_double_pendulum(steps):
    """Times against an independent integrator; velocities after the impact from the equations in angles.

    The stop of hinge b gives an impulse to both angles: M Δθ' = p (−1, 1).
    """
    model, e = double(), 0.7
    stop = model.stops("b", upper=0.25, restitution=e)[0]
    events = [model.event("a", -0.4, direction=-1), model.event("b", 1.0, rate=True, direction=1), stop]
    sol = model.solve((0.0, 0.6), events=events, **steps)
    reached = lambda t, y: y[0] + 0.4
    fast = lambda t, y: y[3] - y[2] - 1.0
    hit = lambda t, y: y[1] - y[0] - 0.25
    hit.terminal, hit.direction, fast.direction = True, 1, 1
    one = solve_ivp(rate, (0, 0.6), [0.0] * 4, rtol=1e-11, atol=1e-12, events=[reached, fast, hit])
    assert one.status == 1
    close = 2e-6 if "h" in steps else 2e-7
    assert sol.t_events[2][0] == pytest.approx(one.t_events[2][0], abs=close)
    for k in (0, 1):
        before = one.t_events[k]
        np.testing.assert_allclose(sol.t_events[k][: len(before)], before, atol=close)
    p, q, u, w = one.y[:, -1]
    to = np.array([-1.0, 1.0])
    push = np.linalg.solve(mass(p, q), to)
    after = np.array([u, w]) - (1 + e) * (w - u) / (to @ push) * push
    t, place, speed = sol.t_events[2][0], sol.q_events[2][0], sol.v_events[2][0]
    new = stop.reset(t, place, speed).v
    np.testing.assert_allclose(new[[2, 5]], after, atol=20 * close)
    assert new[5] - new[2] == pytest.approx(-e * (speed[5] - speed[2]), rel=1e-10)
    G = np.asarray(model.system.G(t, place))
    np.testing.assert_allclose(G @ new, 0.0, atol=1e-10)
    two = solve_ivp(rate, (t, 0.6), [p, q, *after], rtol=1e-11, atol=1e-12, events=hit)
    motion = model.motion(sol)
    assert two.status == 0  # no second impact
    angles = [motion.coordinate("a")[-1], (motion.coordinate("a") + motion.coordinate("b"))[-1]]
    np.testing.assert_allclose(angles, two.y[:2, -1], atol=20 * close)


# --- momentum ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_momentum_of_bodies_in_free_fall():
    """The impulse of gravity is all that changes it; about the centre of mass, it stays."""
    model = mb.Model(gravity=(0.5, 0, -9.81))
    tilt = Rotation.from_rotvec([0.3, 0.2, -0.5]).as_matrix()
    one = mb.Body("one", mb.box(1.5, (0.3, 0.5, 0.4)), velocity=(1, 2, 3), angular_velocity=(4, -2, 1))
    two = mb.Body("two", mb.box(0.8, (0.6, 0.2, 0.3)), at=(0.5, 0, 0), rotation=tilt)
    one, two = model.add(one), model.add(two)
    bob = model.add(mb.PointMass("bob", 0.4, at=(0, 1.0, 0)))
    model.add(mb.Spherical("ball", one, two, at=(0.25, 0, 0)))
    model.add(mb.Distance("rod", one, bob))
    model.assemble()
    drifts = []
    for h in (4e-3, 2e-3):
        motion = model.motion(model.solve((0.0, 0.5), h=h, method="index3"))
        linear, angular = motion.momentum()
        total, weight = 2.7, 2.7 * model.gravity
        np.testing.assert_allclose(linear, linear[0] + np.outer(motion.t, weight), atol=1e-9)
        center = sum(b.mass * motion.frame(b.middle).x for b in model.bodies) / total
        own = motion.momentum(about=center).angular
        np.testing.assert_allclose(angular, own + np.cross(center, linear), atol=1e-12)
        drifts.append(np.abs(own - own[0]).max())
    start = sum(np.cross(b.x, b.mass * b.velocity) for b in model.bodies)
    spins = [(b.R @ b.inertia.tensor @ b.R.T @ b.angular_velocity) for b in (one, two)]
    np.testing.assert_allclose(angular[0], start + sum(spins), atol=1e-12)
    assert np.abs(own).max() > 0.1
    assert drifts[1] < 1e-3
    assert drifts[0] / drifts[1] == pytest.approx(4.0, rel=0.2)
    with pytest.raises(ValueError, match="about must be a point"):
        motion.momentum(about=(1, 2))


# --- bad input --------------------------------------------------------------------------------------------

BAD = {
    "'s' has one end, but an angle comes back after a turn": lambda m, j: mb.Limit("s", j, 0, stiffness=1),
    "no end of a range is given for 's'": lambda m, j: mb.Limit("s", j, stiffness=1.0),
    "lower of 's' must be less than upper": lambda m, j: mb.Limit("s", j, 1.0, 0.0, stiffness=1.0),
    "the range of 's' must be less than one turn": lambda m, j: mb.Limit("s", j, -4, 4, stiffness=1.0),
    "upper of 's' must be finite": lambda m, j: mb.Limit("s", j, upper=np.inf, stiffness=1.0),
    "'s' needs a stiffness": lambda m, j: mb.Limit("s", j, 0.0, 1.0),
    "stiffness of 's' must be positive": lambda m, j: mb.Limit("s", j, 0, 1, stiffness=0),
    "damping of 's' must be zero or positive": lambda m, j: mb.Limit("s", j, 0, 1, stiffness=1, damping=-1),
    "'s' needs a joint, got str": lambda m, j: mb.Limit("s", "hinge", 0.0, stiffness=1),
    "has no coordinate 'way': it has angle": lambda m, j: m.event("hinge", coordinate="way"),
    "do you mean 'hinge'": lambda m, j: m.event("hinges"),
    "<PlanarBody 'disk'> is no joint": lambda m, j: m.event("disk"),
    "is not in this model": lambda m, j: m.event(mb.Revolute("pin", m.ground, m["disk"], at=(0, 0))),
    "the value of the event of 'hinge' must be a number": lambda m, j: m.event("hinge", "high"),
    "restitution of the stops of 'hinge' must be zero or": lambda m, j: m.stops(j, 0.0, restitution=-1),
    "restitution of the stops of 'hinge' must be at most 1": lambda m, j: m.stops(j, 0.0, restitution=2),
    "the stops of 'hinge' have one end beyond half a turn": lambda m, j: m.stops(j, upper=7.0),
    "no end of a range is given for the stops of 'hinge'": lambda m, j: m.stops(j),
    "rest of the stops of 'hinge' must be positive": lambda m, j: m.stops(j, 0.0, rest=0),
    "period of an event must be a positive number": lambda m, j: ga.Event(lambda t, q, v: q[0], period=-1),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_limits_are_named(message):
    model = wheel()
    with pytest.raises((ValueError, TypeError, KeyError), match=message):
        BAD[message](model, model["hinge"])


@pytest.mark.slow
def test_a_joint_that_others_hold_cannot_hit_a_stop():
    model = wheel()
    model.add(mb.Driven("drive", model["hinge"], lambda t: RATE * t))
    with pytest.raises(ValueError, match=r"'hinge' .* cannot move: other joints hold it"):
        model.solve((0.0, 1.0), h=0.01, method="index3", events=model.stops("hinge", upper=1.0))
