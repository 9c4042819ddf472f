"""The same files in MuJoCo: accelerations at random states, masses, and motion."""

import numpy as np
import pytest

import genalpha as ga
import robot_files as files
from genalpha import multibody as mb
from mujoco_states import Peer, mujoco  # skips all where MuJoCo is not installed

pytestmark = pytest.mark.slow
TREES = {
    "pendulum": (files.PENDULUM, {}),
    "arm": (files.ARM, files.CONTROLS),
    "tree": (files.TREE, {}),
    "compound": (files.COMPOUND, {"push": 0.7, "servo": -0.2}),
    "servos": (files.SERVOS, {"p": 0.3, "v": 1.1, "g": -0.4, "s": 0.6, "off": 5.0}),
    "mixed": (files.MIXED, {"p": 0.3, "g": 1.1}),
}


@pytest.fixture(scope="module", params=TREES)
def pair(request, tmp_path_factory):
    text, controls = TREES[request.param]
    model = files.read(tmp_path_factory.mktemp("mjcf"), text, controls=controls)
    # MuJoCo keeps the points of meshes with single precision.
    return model, Peer(text, model, controls), 1e-9 if request.param == "mixed" else 1e-10


def test_accelerations_of_trees_at_random_states(pair):
    model, peer, tolerance = pair
    rng = np.random.default_rng(1)
    for _ in range(20):
        peer.random(rng)
        mujoco.mj_forward(peer.m, peer.d)
        values, rates, expected = peer.state()
        q, v = model.pose(values, rates)
        found = files.joint_accelerations(model, q, v, ga.consistent(model.system, 0.0, q, v).a)
        size = tolerance * (1 + np.abs(peer.d.qacc).max())
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=0, atol=size, err_msg=name)


def test_centres_and_masses(pair):
    """Poses of all bodies, with those that are merged counted with their parents."""
    model, peer, _ = pair
    peer.random(np.random.default_rng(2))
    mujoco.mj_forward(peer.m, peer.d)
    values, rates, _ = peer.state()
    model.place(*model.pose(values, rates))
    assert sum(body.mass for body in model.bodies) == pytest.approx(peer.m.body_mass[1:].sum(), rel=1e-13)
    for body in model.bodies:
        at = body.x - body.R @ body.center
        np.testing.assert_allclose(at, peer.d.body(body.name).xpos, atol=1e-13)
        np.testing.assert_allclose(body.R, peer.d.body(body.name).xmat.reshape(3, 3), atol=1e-13)


@pytest.mark.parametrize("name", ["pendulum", "tree"])
def test_motion(tmp_path, name):
    """Half a second: MuJoCo with RK4 at 1e-4, ours with an error of 1e-8 a step."""
    text, _ = TREES[name]
    model = files.read(tmp_path, text)
    peer = Peer(text, model)
    peer.m.opt.integrator, peer.m.opt.timestep = mujoco.mjtIntegrator.mjINT_RK4, 1e-4
    peer.random(np.random.default_rng(3), 0.3)
    values, rates, _ = peer.state()
    model.place(*model.pose(values, rates))
    sol = model.solve((0.0, 0.5), rtol=1e-8, atol=1e-10)
    for _ in range(5000):
        mujoco.mj_step(peer.m, peer.d)
    assert peer.d.time == pytest.approx(0.5)
    values, rates, _ = peer.state()
    q, v = model.pose(values, rates)
    for (of_q, of_v), body in zip(model.slices().values(), model.bodies, strict=True):
        sign = np.sign(q[of_q][3:] @ sol.q[-1][of_q][3:])
        np.testing.assert_allclose(sol.q[-1][of_q][:3], q[of_q][:3], atol=1e-8, err_msg=body.name)
        np.testing.assert_allclose(sign * sol.q[-1][of_q][3:], q[of_q][3:], atol=1e-8, err_msg=body.name)
        np.testing.assert_allclose(sol.v[-1][of_v], v[of_v], atol=1e-7, err_msg=body.name)


def test_slider_crank_with_the_tree_of_mujoco(tmp_path):
    """The mass matrix, forces and Jacobians of MuJoCo, with the constraint of connect held exactly."""
    model, names, values, rates = files.closed_crank(tmp_path)
    peer = Peer(files.CRANK, model)
    peer.put(values, rates)
    eye = peer.d.body("slider").xpos.copy()
    (J, bias), (K, other) = peer.point("rod", eye), peer.point("slider", eye)
    np.testing.assert_allclose((J - K)[:3] @ peer.d.qvel, 0, atol=1e-12)
    expected = peer.constrained((J - K)[:3], (bias - other)[:3])
    found = files.joint_accelerations(model, model.q0, model.v0, files.accelerations(model))
    for name in names:
        at = peer.m.joint(name).dofadr[0]
        np.testing.assert_allclose(found[name], expected[at], rtol=1e-10, err_msg=name)


def test_four_bar_with_the_tree_of_mujoco(tmp_path):
    model, names, values, rates = files.closed_four_bar(tmp_path)
    peer = Peer(files.FOUR_BAR, model)
    peer.put(values, rates)
    at = peer.d.body("rocker").xpos.copy()
    (J, bias), (K, other) = peer.point("half", at), peer.point("rocker", at)
    np.testing.assert_allclose((J - K) @ peer.d.qvel, 0, atol=1e-11)
    x, speed = values["A"], rates["A"]
    cam = np.zeros(peer.m.nv)
    slope, curve = -0.7 + 0.6 * x + 0.3 * x**2, 0.6 + 0.6 * x
    cam[peer.m.joint("F").dofadr[0]], cam[peer.m.joint("A").dofadr[0]] = 1.0, -slope
    assert values["F"] == pytest.approx(0.1 + 0.05 - 0.7 * x + 0.3 * x**2 + 0.1 * x**3, abs=1e-12)
    expected = peer.constrained(np.vstack([J - K, cam]), np.append(bias - other, -curve * speed**2))
    found = files.joint_accelerations(model, model.q0, model.v0, files.accelerations(model))
    for name in names:
        dof = peer.m.joint(name).dofadr[0]
        np.testing.assert_allclose(found[name], expected[dof], rtol=1e-9, err_msg=name)


def test_urdf(tmp_path):
    """MuJoCo reads URDF too, and joins links that are fixed to each other."""
    model = files.read(tmp_path, files.SMOOTH_URDF, "robot.urdf", limits="ignore")
    peer = Peer(files.URDF, model)
    peer.m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT | mujoco.mjtDisableBit.mjDSBL_LIMIT
    peer.m.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_FRICTIONLOSS
    rng = np.random.default_rng(4)
    for _ in range(10):
        peer.random(rng)
        mujoco.mj_forward(peer.m, peer.d)
        values, rates, expected = peer.state()
        q, v = model.pose(values, rates)
        found = files.joint_accelerations(model, q, v, ga.consistent(model.system, 0.0, q, v).a)
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-10, atol=1e-10, err_msg=name)
    assert isinstance(model, mb.Model)
