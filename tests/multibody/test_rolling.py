"""Constraints on velocities: known motions of rolling bodies and skates."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from genalpha import multibody as mb


def test_a_ball_rolls_down_a_slope():
    """g sin α / (1 + 2/5), with a plane whose frame is tilted."""
    tilt = Rotation.from_rotvec([0, 0.3, 0]).as_matrix()
    model = mb.Model()
    ball = model.add(mb.Body("ball", mb.sphere(2.0, 0.1), at=tilt @ [0, 0, 0.1]))
    model.add(mb.RollingSphere("slope", model.ground.frame(rotation=tilt), ball, radius=0.1))
    assert model.assemble().freedom == 3
    sol = model.solve((0.0, 1.0), h=0.01)
    motion = model.motion(sol)
    down = motion.position("ball") @ tilt[:, 0]
    np.testing.assert_allclose(down, 0.5 * 9.81 * np.sin(0.3) / 1.4 * sol.t**2, atol=1e-4)
    force = motion.reaction("slope").force[5]
    assert force[2] == pytest.approx(2.0 * 9.81 * np.cos(0.3), rel=1e-6)  # the plane carries the ball
    assert force[0] == pytest.approx(-2.0 * 9.81 * np.sin(0.3) * 2 / 7, rel=1e-6)  # and turns it


def test_a_disk_that_leans_rolls_without_slip_and_keeps_its_energy():
    model = mb.Model()
    body = mb.cylinder(1.0, 0.5, 1e-3)
    lean = Rotation.from_euler("x", 80, degrees=True).as_matrix()
    R = lean @ Rotation.from_euler("z", 0.3).as_matrix()
    disk = model.add(mb.Body("disk", body, at=(0, 0, 0.5 * np.sin(np.radians(80))), rotation=R))
    disk.angular_velocity = R @ np.array([0.0, 0.0, 8.0])
    model.add(mb.RollingDisk("floor", model.ground, disk, radius=0.5))
    model.assemble()
    drifts = []
    for h in (2e-3, 1e-3):
        sol = model.solve((0.0, 1.0), h=h)
        assert sol.residuals.nonholonomic.max() < 1e-10
        drifts.append(np.ptp(model.motion(sol).energy()["total"]))
    assert drifts[0] / drifts[1] == pytest.approx(4.0, rel=0.4)


def test_a_skate_turns_on_a_circle():
    """A blade under the centre of mass: constant speed and constant rate of turning give a circle."""
    model = mb.Model(gravity=(0, 0, 0))
    skate = model.add(
        mb.Body("skate", mb.box(1.0, (0.3, 0.1, 0.1)), velocity=(1.0, 0, 0), angular_velocity=(0, 0, 2.0))
    )
    model.add(mb.Planar("ice", model.ground, skate, at=(0, 0, 0)))
    model.add(mb.KnifeEdge("blade", model.ground, skate))
    assert model.assemble().freedom == 2
    sol = model.solve((0.0, 2.0), rtol=1e-7)
    x = model.motion(sol).position("skate")
    np.testing.assert_allclose(x[:, 0], 0.5 * np.sin(2 * sol.t), atol=2e-6)
    np.testing.assert_allclose(x[:, 1], 0.5 * (1 - np.cos(2 * sol.t)), atol=2e-6)


def test_couplings_of_the_users_own():
    """A point on an ellipse, and a point whose velocities are coupled."""
    model = mb.Model(gravity=(0, 0, -9.81))
    bead = model.add(mb.PointMass("bead", 1.0, at=(2.0, 0, 0)))
    wire = lambda x: jnp.array([x[0] ** 2 / 4 + x[2] ** 2 - 1, x[1]])
    model.add(mb.OnSurface("wire", model.ground, bead, wire))
    other = model.add(mb.PointMass("other", 1.0, at=(0, 5.0, 0)))
    belt = lambda t, a, b: jnp.array([b.v[0] - 2 * b.v[2]])
    model.add(mb.VelocityCoupling("belt", model.ground, other, belt))
    assert model.assemble().freedom == 3
    sol = model.solve((0.0, 1.0), h=2e-3)
    x = model.motion(sol).position("bead")
    np.testing.assert_allclose(x[:, 0] ** 2 / 4 + x[:, 2] ** 2, 1.0, atol=1e-11)
    v = model.motion(sol).velocity("other")
    np.testing.assert_allclose(v[:, 0], 2 * v[:, 2], atol=1e-11)
    assert v[-1, 2] == pytest.approx(-9.81 / 5, rel=1e-6)  # a falls with a fifth of g: M = 1 + 4


def test_a_bead_slides_on_a_helix():
    """A curve in space is two functions. With slope p/r, it falls with g p²/(r² + p²)."""
    r, p = 0.5, 0.2
    model = mb.Model()
    bead = model.add(mb.PointMass("bead", 0.3, at=(r, 0, 0)))
    wire = lambda x: jnp.stack([x[0] - r * jnp.cos(x[2] / p), x[1] - r * jnp.sin(x[2] / p)])
    model.add(mb.OnSurface("wire", model.ground, bead, wire))
    assert model.assemble().freedom == 1
    motion = model.motion(model.solve((0.0, 1.0), rtol=1e-7))
    fall = -0.5 * 9.81 * p**2 / (r**2 + p**2) * motion.t**2
    assert fall[-1] < -p * np.pi / 2  # a good quarter of a turn
    turns = np.stack([r * np.cos(fall / p), r * np.sin(fall / p), fall], axis=1)
    np.testing.assert_allclose(motion.position("bead"), turns, atol=1e-6)
