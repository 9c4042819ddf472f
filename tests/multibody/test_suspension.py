"""The car of ``examples/suspension.py``: freedoms counted by hand, Newton's and Euler's laws, and energy."""

import numpy as np
import pytest
from examples import suspension

import genalpha as ga

G = np.array([0.0, 0.0, -9.81])
PUSH = np.array([0.0, 0.0, -800.0])  # on the chassis
WHEELS = [f"{end} {side} wheel" for end in ("front", "rear") for side in ("left", "right")]


@pytest.fixture(scope="module")
def car():
    return suspension.car()


def outer(model, x, v, w):
    """Force and moment about the origin (6,) of all that acts from outside: weights, the push and tyres.

    x, v and w (3,) by name: centres, velocities and angular velocities in space.
    """
    acting = [(x[body.name], body.mass * G, 0.0) for body in model.bodies]
    acting.append((x["chassis"], PUSH, 0.0))
    for name in WHEELS:
        end = suspension.FRONT if name.startswith("front") else suspension.REAR
        side = suspension.TRACK if "left" in name else -suspension.TRACK
        moved = x[name] - np.array([end, side, suspension.RADIUS])
        force = -np.array(suspension.TYRE) * moved - np.array(suspension.WOBBLE) * v[name]
        acting.append((x[name], force, -0.5 * w[name]))
    force = sum(f for _, f, _ in acting)
    moment = sum(np.cross(at, f) + m for at, f, m in acting)
    return np.concatenate([force, moment])


def test_the_car_has_25_freedoms(car):
    """120 of 20 bodies; hinges, sliders, balls, cardan joints, rods and the slot take 95."""
    rows = 5 * 7 + 5 * 3 + 3 * 8 + 4 * 4 + 4 + 1
    closed = car.assemble()
    assert closed.freedom == 6 * 20 - rows == 25
    assert not closed.redundant
    assert closed.gap < 1e-12


def test_momentum_changes_by_outer_forces_alone(car):
    """Newton's and Euler's laws for the whole car while all moves: springs, bushings and joints cancel."""
    car["chassis"].velocity = np.array([0.3, -0.2, -0.4])
    car["chassis"].angular_velocity = np.array([0.2, 0.3, -0.1])
    car["front left wheel"].angular_velocity = np.array([0.0, 30.0, 0.0])
    car.assemble()
    a = np.asarray(ga.consistent(car.system, 0.0, car.q0, car.v0).a).reshape(-1, 2, 3)
    change = np.zeros(6)
    for body, (linear, angular) in zip(car.bodies, a, strict=True):
        spin, J = body.R.T @ body.angular_velocity, body.inertia.tensor
        torque = body.R @ (J @ angular + np.cross(spin, J @ spin))
        change += np.concatenate([body.mass * linear, np.cross(body.x, body.mass * linear) + torque])
    by = lambda key: {body.name: getattr(body, key) for body in car.bodies}
    wanted = outer(car, by("x"), by("velocity"), by("angular_velocity"))
    np.testing.assert_allclose(change, wanted, atol=1e-9 * np.abs(wanted).max())


@pytest.mark.slow
def test_the_car_settles_where_outer_forces_balance():
    car = suspension.car()
    car.assemble()
    sol = car.solve((0.0, 20.0), h=5e-3, method="index3", save="final")
    motion = car.motion(sol)
    last = lambda read: {body.name: read(body.name)[-1] for body in car.bodies}
    state = [last(read) for read in (motion.position, motion.velocity, motion.angular_velocity)]
    assert max(np.abs(v).max() for v in state[1].values()) < 1e-6
    weight = 9.81 * sum(body.mass for body in car.bodies)
    np.testing.assert_allclose(outer(car, *state), 0, atol=1e-4 * weight)


@pytest.mark.slow
def test_forces_do_the_work_that_the_car_gains():
    """By the trapezoidal rule, so what is left falls with h²: it is that rule's and the method's error."""
    car, left = suspension.car(), []
    car.assemble()
    for h in (5e-4, 2.5e-4):
        sol = car.solve((0.0, 0.3), h=h, method="stabilized")
        motion = car.motion(sol)
        energy = motion.energy()
        gained = energy["kinetic"] + energy["gravity"]
        power = sum(motion.power(force) for force in car.forces)
        work = np.cumsum((power[1:] + power[:-1]) / 2 * h)
        left.append(np.abs(gained[1:] - gained[0] - work).max() / np.ptp(energy["gravity"]))
    assert left[0] < 1e-4
    assert 3.5 < left[0] / left[1] < 4.5
