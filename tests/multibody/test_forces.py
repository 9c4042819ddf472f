"""Forces: known motions, energies, and the balance of power."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import cumulative_trapezoid

from genalpha import multibody as mb
from genalpha.multibody.motion.functions import function_of_kind

G = 9.81


def slider(mass=2.0):
    """A block that slides along x without gravity, and its joint."""
    model = mb.Model(gravity=(0, 0, 0))
    block = model.add(mb.Body("block", mb.box(mass, (0.2, 0.2, 0.2)), at=(1.0, 0, 0)))
    guide = model.add(mb.Prismatic("guide", model.ground, block, at=(1.0, 0, 0), axis=(1, 0, 0)))
    return model, block, guide


def spring(model, block):
    return mb.SpringDamper("spring", model.ground, block, stiffness=50.0, damping=1.0, length=0.7)


def joint_spring(model, block):
    return mb.JointSpring("spring", model["guide"], stiffness=50.0, damping=1.0, free=-0.3)


def law(model, block):
    return mb.SpringDamper("spring", model.ground, block, law=lambda x, r: 50.0 * (x - 0.7) + r, length=0.0)


def bushing(model, block):
    rest = model.ground.frame((0.7, 0, 0))
    return mb.Bushing("spring", rest, block, stiffness=[50.0] * 3 + [5.0] * 3, damping=[1.0] * 3 + [0.1] * 3)


def custom(model, block):
    def push(t, a, b):
        f = -(50.0 * (b.x[0] - 0.7) + b.v[0]) * jnp.array([1.0, 0.0, 0.0])
        return (-f, jnp.zeros(3)), (f, jnp.zeros(3))

    return mb.Custom("spring", model.ground, block, push)


def motor(model, block):
    return mb.Motor("spring", model["guide"], target=lambda t: -0.3 + 0 * t, kp=50.0, kd=1.0)


SLOW = (joint_spring, law, bushing, custom, motor)


@pytest.mark.parametrize("force", [spring, *(pytest.param(x, marks=pytest.mark.slow) for x in SLOW)])
def test_springs_and_dampers_in_all_forms_give_the_damped_oscillation(force):
    model, block, _ = slider()
    model.add(force(model, block))
    model.assemble()
    sol = model.solve((0.0, 2.0), rtol=1e-7)
    decay, omega = 1.0 / (2 * 2.0), np.sqrt(50.0 / 2.0 - (1 / 4.0) ** 2)
    x = 0.3 * np.exp(-decay * sol.t) * (np.cos(omega * sol.t) + decay / omega * np.sin(omega * sol.t))
    motion = model.motion(sol)
    np.testing.assert_allclose(motion.position("block")[:, 0], 0.7 + x, atol=1e-6)
    kinetic = motion.energy()["kinetic"]
    given = cumulative_trapezoid(motion.power("spring"), sol.t, initial=0.0)
    np.testing.assert_allclose(kinetic - kinetic[0], given, atol=2e-4 * kinetic.max())


def test_energy_of_springs_and_gravity_is_kept():
    """A body on a spring and a hinge with a spring."""
    model = mb.Model()
    bar = model.add(mb.Body("bar", mb.rod(1.0, 1.0), at=(0.5, 0, 0)))
    hinge = model.add(mb.Revolute("hinge", model.ground, bar, at=(0, 0, 0), axis=(0, 1, 0)))
    ends = model.ground.frame((1.0, 0, 1.0)), bar.frame((0.5, 0, 0))
    model.add(mb.SpringDamper("pull", *ends, stiffness=30.0))
    model.add(mb.JointSpring("coil", hinge, stiffness=4.0, free=0.2))
    model.assemble()
    total = []
    for h in (4e-3, 2e-3):
        motion = model.motion(model.solve((0.0, 1.0), h=h))
        energy = motion.energy()
        total.append(np.ptp(energy["total"]))
    assert np.ptp(energy["springs"]) > 1.0
    assert total[0] / total[1] == pytest.approx(4.0, rel=0.2)


def test_a_motor_follows_its_target_within_its_limit():
    model = mb.Model()
    wheel = model.add(mb.Body("wheel", mb.cylinder(2.0, 0.5, 0.1)))
    hinge = model.add(mb.Revolute("hinge", model.ground, wheel, at=(0, 0, 0)))
    drive = model.add(mb.Motor("drive", hinge, target=lambda t: 10.0 * t, kp=40.0, kd=8.0, limit=20.0))
    model.assemble()
    sol = model.solve((0.0, 4.0), rtol=1e-6)
    motion = model.motion(sol)
    assert abs(motion.coordinate(hinge)[-1] - 40.0) < 1e-3  # more than six turns
    effort = motion.power(drive)[1:] / motion.rate(hinge)[1:]
    assert 15.0 < effort.max() <= 20.0


def test_dry_friction_is_constant_until_the_joint_stops():
    """I ω' = −s tanh(ω/c) has sinh(ω/c) = sinh(ω₀/c) exp(−s t/(I c)).

    A slider that is pushed with F < s creeps at c artanh(F/s).
    """
    moment, size, speed, start = 0.5, 0.4, 0.05, 1.0
    model = mb.Model(gravity=(3.0, 0, 0))
    disk = model.add(mb.PlanarBody("disk", 1.0, moment, angular_velocity=start))
    hinge = model.add(mb.Revolute("hinge", model.ground, disk, at=(0, 0)))
    block = model.add(mb.PlanarBody("block", 2.0, 0.1))
    guide = model.add(mb.Prismatic("guide", model.ground, block, at=(0, 0), axis=(1, 0, 0)))
    model.add(mb.DryFriction("drag", hinge, size, speed))
    model.add(mb.DryFriction("rub", guide, 8.0, speed=speed))
    sol = model.solve((0.0, 2.0), h=1e-3)
    motion = model.motion(sol)
    wanted = speed * np.arcsinh(np.sinh(start / speed) * np.exp(-size * sol.t / (moment * speed)))
    np.testing.assert_allclose(motion.rate("hinge"), wanted, atol=1e-5)
    assert wanted[625] == pytest.approx(start - size / moment * 0.625, rel=1e-6)  # a constant torque
    assert wanted[-1] < 1e-6
    assert motion.rate("guide")[-1] == pytest.approx(speed * np.arctanh(2.0 * 3.0 / 8.0), rel=1e-6)
    rate = motion.rate("guide")
    np.testing.assert_allclose(motion.power("rub"), -8.0 * np.tanh(rate / speed) * rate, atol=1e-12)
    with pytest.raises(ValueError, match="size of 'd' must be zero or positive"):
        mb.DryFriction("d", hinge, -1.0)
    with pytest.raises(ValueError, match="speed of 'd' must be positive"):
        mb.DryFriction("d", hinge, 1.0, speed=0)


@pytest.mark.slow
def test_results_of_one_kind_are_compiled_once():
    """Of joints with other numbers, too: each has its own friction, found with the code of the first."""
    model = mb.Model()
    for k, friction in enumerate((0.1, 0.3)):
        disk = model.add(mb.Body(f"disk {k}", mb.cylinder(2.0, 0.5, 0.1), angular_velocity=(0, 0, 9.0)))
        rubs = mb.Friction(friction, face=0.2)
        model.add(mb.Revolute(f"pin {k}", model.ground, disk, at=(0, 0, 0), friction=rubs))
        model.add(mb.JointSpring(f"damper {k}", model[f"pin {k}"], damping=friction))
    motion = model.motion(model.solve((0.0, 0.01), h=1e-3))
    made = []
    for k, friction in enumerate((0.1, 0.3)):
        torque = motion.friction(f"pin {k}").torque[:, 2]
        np.testing.assert_allclose(torque, -friction * 2.0 * G * 0.2, rtol=1e-9)
        np.testing.assert_allclose(motion.reaction(f"pin {k}").torque[:, 2], torque, rtol=1e-12)
        rate = motion.rate(f"pin {k}")
        np.testing.assert_allclose(motion.power(f"pin {k}"), torque * rate, rtol=1e-9)
        np.testing.assert_allclose(motion.power(f"damper {k}"), -friction * rate**2, rtol=1e-12)
        made.append(function_of_kind.cache_info().misses)
    assert made[0] == made[1]


def test_loads_in_space_and_in_the_axes_of_a_body():
    """A thrust that turns with a spinning body, and one that does not."""
    for follows in (False, True):
        model = mb.Model(gravity=(0, 0, 0))
        disk = model.add(mb.Body("disk", mb.cylinder(2.0, 0.5, 0.1), angular_velocity=(0, 0, 3.0)))
        model.add(mb.AppliedForce("thrust", disk, force=(4.0, 0, 0), follows=follows))
        sol = model.solve((0.0, 1.0), rtol=1e-8)
        v = model.motion(sol).velocity("disk")[-1]
        wanted = [2 / 3 * np.sin(3.0), 2 / 3 * (1 - np.cos(3.0)), 0.0] if follows else [2.0, 0, 0]
        np.testing.assert_allclose(v, wanted, atol=1e-6)


def test_a_fall_with_drag_reaches_its_final_speed():
    model = mb.Model()
    model.add(mb.PointMass("drop", 0.5))
    model.add(mb.Drag("air", model["drop"], quadratic=0.2, wind=(1.0, 0, 0)))
    model.add(
        mb.AppliedForce("gust", model["drop"], force=lambda t: jnp.array([0.0, 0.1, 0.0]) * jnp.exp(-50 * t))
    )
    sol = model.solve((0.0, 8.0), rtol=1e-6)
    np.testing.assert_allclose(sol.v[-1], [1.0, 0.0, -np.sqrt(0.5 * G / 0.2)], atol=1e-3)


def test_a_ball_bounces_slides_and_rolls():
    """With friction, a ball thrown without spin ends rolling, with 5/7 of its speed."""
    model = mb.Model()
    ball = model.add(mb.Body("ball", mb.sphere(1.0, 0.1), at=(0, 0, 0.0985), velocity=(2.0, 0, 0)))
    model.add(mb.SphereContact("floor", model.ground, ball, 0.1, 1.7e5, damping=0.3, friction=0.4, slow=1e-2))
    sol = model.solve((0.0, 1.0), h=2e-4)
    motion = model.motion(sol)
    v, w = motion.velocity("ball")[-1], motion.angular_velocity("ball")[-1]
    assert v[0] == pytest.approx(2.0 * 5 / 7, rel=2e-2)
    assert v[0] == pytest.approx(0.1 * w[1], rel=2e-2)
    assert abs(motion.position("ball")[-1, 2] - 0.0985) < 1e-3
