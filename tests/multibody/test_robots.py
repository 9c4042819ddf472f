"""Robots from files: accelerations that MuJoCo computed, poses, rotors and coupled joints."""

import numpy as np
import pytest

import genalpha as ga
import robot_files as files
from genalpha import multibody as mb
from robot_numbers import STATES


@pytest.mark.parametrize("name", STATES)
def test_accelerations_are_those_of_mujoco(tmp_path, name):
    values, rates, expected = STATES[name]
    options = {"controls": files.CONTROLS} if name == "ARM" else {}
    file, text = ("robot.urdf", "SMOOTH_URDF") if name == "URDF" else ("robot.xml", name)
    options |= {"limits": "ignore"} if name == "URDF" else {}
    model = files.read(tmp_path, getattr(files, text), file, **options)
    q, v = model.pose(values, rates)
    found = files.joint_accelerations(model, q, v, ga.consistent(model.system, 0.0, q, v).a)
    size = max(np.abs(x).max() for x in expected.values())
    for joint, value in expected.items():
        np.testing.assert_allclose(found[joint], value, rtol=0, atol=1e-10 * size, err_msg=joint)
    for joint, value in values.items():  # the pose is the one that was asked for
        if len(value) == 1:
            now, rate = files.coordinates(_put(model, q, v), [joint])
            assert now[joint] == pytest.approx(value[0], abs=1e-12)
            assert rate[joint] == pytest.approx(rates[joint][0], abs=1e-12)


def _put(model, q, v):
    model.place(q, v)
    return model


def test_a_slider_crank_closed_by_connect(tmp_path):
    """From M, forces and Jacobians of MuJoCo 4.0.0 with the constraint held exactly; see test_mujoco.py."""
    model, names, values, _ = files.closed_crank(tmp_path)
    assert values == pytest.approx({"drive": 0.7, "pin": -0.9164248223580085, "guide": -0.061028710282121645})
    crank = 0.2 * np.cos(0.7) + np.sqrt(0.6**2 - (0.2 * np.sin(0.7)) ** 2) - 0.8  # by hand
    assert values["guide"] == pytest.approx(crank, abs=1e-12)
    found = files.joint_accelerations(model, model.q0, model.v0, files.accelerations(model))
    expected = dict(zip(names, (8.325714120248021, -8.655054850692201, -2.8512376445878203), strict=True))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-10)


def test_a_four_bar_closed_by_weld_and_a_cam(tmp_path):
    model, names, values, rates = files.closed_four_bar(tmp_path)
    x = values["A"]
    assert values["F"] == pytest.approx(0.1 + 0.05 - 0.7 * x + 0.3 * x**2 + 0.1 * x**3, abs=1e-12)
    assert rates["F"] == pytest.approx((-0.7 + 0.6 * x + 0.3 * x**2) * rates["A"], abs=1e-12)
    found = files.joint_accelerations(model, model.q0, model.v0, files.accelerations(model))
    numbers = (
        25.153962730059444,
        -35.761700856456244,
        9.268527522446671,
        -1.3392106039501248,
        -9.280903625919306,
    )
    for name, value in zip(names, numbers, strict=True):
        np.testing.assert_allclose(found[name], value, rtol=1e-9, err_msg=name)


# --- poses --------------------------------------------------------------------------------------------


def chain():
    """A free body, a slider on it and an arm on that; the last joint is written from the arm inwards."""
    model = mb.Model()
    base = model.add(mb.Body("base", mb.box(2.0, (1, 1, 1)).plus(1.0, (0.3, 0.1, 0)), at=(1, 2, 3)))
    cart = model.add(mb.Body("cart", mb.box(1.0, (0.2, 0.1, 0.1)), at=(1, 2, 4)))
    arm = model.add(mb.Body("arm", mb.rod(1.0, 2.0), at=(2, 2, 4)))
    model.add(mb.Prismatic("rail", base, cart, at=(1, 2, 4), axis=(1, 1, 0)))
    model.add(mb.Revolute("hinge", arm, cart, at=(1, 2, 4), axis=(0, 0, 1)))
    return model


def test_poses_are_followed_in_both_directions():
    """Numbers by hand. The hinge is seen from the arm, so its angle is that of the cart."""
    model = chain()
    q, v = model.pose({"rail": 0.5, "hinge": -0.3}, {"hinge": -2.0})
    cart = np.array([1, 2, 4]) + 0.5 * np.array([1, 1, 0]) / np.sqrt(2)
    arm = cart + np.array([np.cos(0.3), np.sin(0.3), 0])
    slices = model.slices()
    np.testing.assert_allclose(q[slices["cart"][0]][:3], cart, atol=1e-14)
    np.testing.assert_allclose(q[slices["arm"][0]][:3], arm, atol=1e-14)
    np.testing.assert_allclose(v[slices["arm"][1]][3:], [0, 0, 2], atol=1e-14)
    np.testing.assert_allclose(v[slices["arm"][1]][:3], [-2 * np.sin(0.3), 2 * np.cos(0.3), 0], atol=1e-14)


def test_rates_are_derivatives_of_poses():
    """By central differences, with a free body that turns."""
    model, h = chain(), 1e-6
    spin = np.array([0.3, -0.2, 0.5])

    def at(t):
        turned = ga.rotation.from_rotation_vector(spin * t)
        # The frame of the base turns about its centre of mass, which moves straight on.
        R = np.asarray(mb.frames.axes_of(np.asarray(turned)))
        origin = (
            np.array([1, 2, 3]) + model["base"].center + np.array([1, 0, 2]) * t - R @ model["base"].center
        )
        return model.pose({"base": (origin, R), "rail": 0.5 + t, "hinge": -0.3 + 2 * t})[0]

    q, v = model.pose(
        {"base": ((1, 2, 3), None), "rail": 0.5, "hinge": -0.3},
        {"base": ((1, 0, 2), spin), "rail": 1.0, "hinge": 2.0},
    )
    slope = (at(h) - at(-h)) / (2 * h)
    rate = np.asarray(model.system.space.rate(q, v))
    np.testing.assert_allclose(slope, rate, atol=1e-8)


def test_wrong_poses_are_named():
    model = chain()
    with pytest.raises(KeyError, match="do you mean 'hinge'"):
        model.pose({"hnge": 1.0})
    with pytest.raises(ValueError, match="value of 'hinge' must be one finite number"):
        model.pose({"hinge": (1.0, 2.0)})
    model.add(mb.Spherical("loop", model["base"], model["arm"], at=(3, 2, 4)))
    with pytest.raises(ValueError, match=r"'loop' .* closes a loop"):
        model.pose({"rail": 0.1, "hinge": 0.2, "loop": None})
    model.add(mb.SpringDamper("spring", model["base"], model["arm"], 1.0))
    with pytest.raises(ValueError, match="has no value"):
        model.pose({"spring": 1.0})


def test_poses_in_the_plane():
    model = mb.Model(gravity=(0, -9.81, 0))
    bar = model.add(mb.PlanarBody("bar", 1.0, 0.1, at=(0.5, 0)))
    block = model.add(mb.PlanarBody("block", 1.0, 0.1, at=(1.0, 0)))
    model.add(mb.Revolute("pin", model.ground, bar, at=(0, 0)))
    model.add(mb.Prismatic("slot", bar, block, at=(1, 0), axis=(1, 0)))
    q, v = model.pose({"pin": np.pi / 2, "slot": 0.5}, {"pin": 1.0, "slot": 2.0})
    np.testing.assert_allclose(q, [0, 0.5, np.pi / 2, 0, 1.5, np.pi / 2], atol=1e-14)
    np.testing.assert_allclose(v, [-0.5, 0, 1, -1.5, 2, 1], atol=1e-14)


# --- rotors and coupled joints ------------------------------------------------------------------------


@pytest.mark.slow
def test_a_rotor_adds_to_the_inertia_of_its_joint():
    """A pendulum by hand; its energy is kept."""
    model = mb.Model(gravity=(0, 0, -9.81))
    bob = model.add(mb.Body("bob", mb.sphere(mass=2.0, radius=0.1), at=(0.5, 0, 0)))
    hinge = model.add(mb.Revolute("hinge", model.ground, bob, at=(0, 0, 0), axis=(0, 1, 0)))
    model.add(mb.Rotor("rotor", hinge, 0.3))
    inertia = 2.0 * (0.4 * 0.1**2 + 0.5**2) + 0.3
    state = ga.consistent(model.system, 0.0, model.q0, model.v0)
    assert state.a[4] == pytest.approx(9.81 * 2.0 * 0.5 / inertia, rel=1e-12)
    sol = model.solve((0.0, 1.0), h=1e-3)
    motion = model.motion(sol)
    energy = motion.energy()
    np.testing.assert_allclose(energy["total"], energy["total"][0], atol=2e-4)
    assert energy["kinetic"][-1] == pytest.approx(0.5 * inertia * motion.rate("hinge")[-1] ** 2, rel=1e-9)
    power = -np.gradient(0.5 * 0.3 * motion.rate("hinge") ** 2, sol.t)
    np.testing.assert_allclose(motion.power("rotor")[1:-1], power[1:-1], atol=1e-4 * np.abs(power).max())
    with pytest.raises(ValueError, match="inertia of 'r' must be positive"):
        mb.Rotor("r", hinge, -1.0)


def test_wrong_couplings_are_named():
    model = chain()
    with pytest.raises(TypeError, match="needs two joints"):
        mb.Mimic("m", model["rail"], model["base"], (0, 1))
    with pytest.raises(ValueError, match=r"couples .* with itself"):
        mb.Mimic("m", model["rail"], model["rail"], (0, 1))
    with pytest.raises(ValueError, match="one or more numbers"):
        mb.Mimic("m", model["rail"], model["hinge"], 2.0)
