"""Loads of forces and efforts of motors and drives, against their laws and against Newton and Euler."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from genalpha import multibody as mb


@pytest.fixture(scope="module")
def arm() -> tuple[mb.Model, Any]:
    """A bar on a hinge with a motor, a spring, a rotor, a limit, and a spring to the ground."""
    model = mb.Model(gravity=(0, 0, -9.81))
    bar = model.add(mb.Body.bar("bar", 2.0, (0, 0, 0), (1, 0, 0), radius=0.05))
    hinge = model.add(mb.Revolute("hinge", model.ground, bar, at=(0, 0, 0), axis=(0, -1, 0)))
    model.add(mb.Motor("motor", hinge, effort=lambda t: 12 + 3 * jnp.sin(5 * t)))
    model.add(mb.JointSpring("coil", hinge, 6.0, 0.4, free=0.2))
    model.add(mb.Rotor("rotor", hinge, 0.3))
    model.add(mb.Limit("limit", hinge, -1.0, 0.1, stiffness=200.0, damping=0.1))
    end = bar.frame_in_space((1.0, 0, 0), np.eye(3))
    model.add(mb.SpringDamper("spring", model.ground.frame((1, 0, 1)), end, 5.0, 0.3, length=0.8))
    model.add(mb.AppliedForce("push", bar, force=(1.0, 2.0, 3.0), follows=True))
    return model, model.motion(model.solve((0.0, 0.5), h=0.005))


def test_efforts_are_those_of_their_laws(arm: Any) -> None:
    _, motion = arm
    angle, rate = motion.coordinate("hinge"), motion.rate("hinge")
    np.testing.assert_allclose(motion.effort("motor"), 12 + 3 * np.sin(5 * motion.t), rtol=1e-12)
    np.testing.assert_allclose(motion.effort("coil"), -6.0 * (angle - 0.2) - 0.4 * rate, atol=1e-12)
    assert np.ptp(motion.effort("limit")) > 1.0
    for name in ("motor", "coil", "rotor", "limit"):
        np.testing.assert_allclose(motion.effort(name) * rate, motion.power(name), atol=1e-12)


def test_loads_of_a_spring_and_a_force_that_follows(arm: Any) -> None:
    """Along its line, equal and opposite at its ends; in the axes of its own frame."""
    model, motion = arm
    end = model["spring"].markers[1]
    line = motion.position(end) - np.array([1.0, 0, 1])
    length = np.linalg.norm(line, axis=1)
    speed = np.einsum("ki,ki->k", motion.velocity(end), line) / length
    pull = -(5.0 * (length - 0.8) + 0.3 * speed)
    np.testing.assert_allclose(motion.load("spring").force, (pull / length)[:, None] * line, atol=1e-12)
    np.testing.assert_allclose(motion.load("spring", 0).force, -motion.load("spring", 1).force, atol=1e-14)
    np.testing.assert_allclose(motion.load("push").force, np.tile([1.0, 2.0, 3.0], (len(motion.t), 1)))
    np.testing.assert_allclose(motion.load("motor").torque[:, 2], motion.effort("motor"), atol=1e-12)


def test_moments_about_the_hinge_are_in_balance(arm: Any) -> None:
    """Those of all efforts, of the spring, the push and the weight accelerate the bar."""
    model, motion = arm
    axis, middle, tip = (
        np.array([0, -1.0, 0]),
        motion.position("bar"),
        motion.position(model["spring"].markers[1]),
    )
    push = np.einsum("kij,kj->ki", motion.rotation("bar"), motion.load("push").force)
    weight = np.array([0, 0, -2.0 * 9.81])
    outer = np.cross(tip, motion.load("spring").force) + np.cross(middle, push + weight)
    efforts = sum(motion.effort(name) for name in ("motor", "coil", "rotor", "limit"))
    spin = motion.effort("rotor") / -0.3
    change = np.cross(middle, 2.0 * motion.acceleration("bar")) @ axis
    change += model["bar"].inertia.tensor[1, 1] * spin
    np.testing.assert_allclose(efforts + outer @ axis, change, atol=1e-9 * np.abs(change).max())


@pytest.mark.parametrize("kind", [mb.Revolute, mb.Prismatic])
def test_the_effort_of_a_drive(kind: Any) -> None:
    """A body of mass 2 or moment 3 that follows sin(2 t): inertia times acceleration, upwards positive."""
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.PlanarBody("body", 2.0, 3.0))
    axis = {} if kind is mb.Revolute else {"axis": (1, 0)}
    joint = model.add(kind("joint", model.ground, body, at=(0, 0), **axis))
    model.add(mb.Driven("drive", joint, lambda t: jnp.sin(2 * t)))
    model.assemble()
    motion = model.motion(model.solve((0.0, 1.0), h=0.01))
    inertia = 3.0 if kind is mb.Revolute else 2.0
    np.testing.assert_allclose(motion.effort("drive"), -4 * inertia * np.sin(2 * motion.t), atol=1e-9)
    np.testing.assert_allclose(
        motion.effort("drive") * motion.rate("joint"), motion.power("drive"), atol=1e-9
    )


def test_efforts_with_the_numbers_of_a_run() -> None:
    model = mb.Model(gravity=(0, 0, 0))
    wheel = model.add(mb.PlanarBody("wheel", 1.0, 2.0))
    hinge = model.add(mb.Revolute("hinge", model.ground, wheel, at=(0, 0)))
    model.add(mb.Motor("motor", hinge, effort=1.0))
    sol = model.solve((0.0, 1.0), {"motor.effort": 5.0}, h=0.1)
    np.testing.assert_allclose(model.motion(sol).effort("motor"), 5.0)


def test_what_has_no_load(arm: Any) -> None:
    model, motion = arm
    for ask, message in (
        (lambda: motion.load("hinge"), "'hinge' .* has no load: ask for the reaction"),
        (lambda: motion.load("rotor"), "'rotor' .* has no load: .*the effort of a rotor"),
        (lambda: motion.effort("spring"), "'spring' .* acts along no joint coordinate"),
        (lambda: motion.effort(model["bar"]), "acts along no joint coordinate"),
    ):
        with pytest.raises(TypeError, match=message):
            ask()
    with pytest.raises(ValueError, match=r"frame must be the number of a frame of .*, 0 to 1, got 2"):
        motion.load("spring", 2)
