"""Joints: they do no work, hold what their rows say, and let move what their coordinates say."""

import functools
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import genalpha as ga
from genalpha import multibody as mb
from genalpha.multibody.frames import FrameState
from joint_freedoms import JOINTS, freedoms

NAMES = [pytest.param(x, marks=pytest.mark.slow) for x in JOINTS]
AXIS, AT = np.array([0.3, -0.5, 0.8]), np.array([0.4, 0.1, -0.2])


def pair(joint, turn=None, gravity=(0.0, 0.0, -9.81), shift=(0.0, 0.0, 0.0)):
    """Two bodies with a joint between them. The first hangs from a ball joint. All is turned and shifted."""
    R = np.eye(3) if turn is None else Rotation.from_rotvec(turn).as_matrix()
    put = lambda x: R @ np.asarray(x, dtype=float) + np.asarray(shift)
    model = mb.Model(gravity=R @ np.array(gravity))
    spin = {"angular_velocity": R @ np.array([0.5, 1.0, -0.7])}
    first = mb.Body("one", mb.box(1.5, (0.3, 0.5, 0.4)), at=put((0.1, 0.2, 0.3)), rotation=R, **spin)
    one = model.add(first)
    tilt = Rotation.from_rotvec([0.2, -0.4, 0.9]).as_matrix()
    two = mb.Body("two", mb.box(0.8, (0.6, 0.2, 0.3)), at=put((0.7, -0.2, 0.1)), rotation=R @ tilt)
    two = model.add(two)
    model.add(mb.Spherical("hook", model.ground, one, at=put((0, 0, 0.6))))
    options = {"axis": R @ AXIS}
    if joint is mb.Universal:
        across = np.cross(AXIS, [0.0, 0.0, 1.0])
        options |= {"second": R @ across}
    model.add(joint("joint", one, two, at=put(AT), **options))
    model.assemble()
    return model


@functools.cache
def run(name, h):
    model = pair(JOINTS[name])
    sol = model.solve((0.0, 0.4), h=h, method="soi2")
    return model, sol


@pytest.mark.parametrize("name", NAMES)
def test_an_ideal_joint_does_no_work(name):
    """Positions and velocities stay on the constraints, and the error of the energy is of second order."""
    drifts = []
    for h in (4e-3, 2e-3):
        model, sol = run(name, h)
        assert sol.success
        assert sol.residuals.position.max() < 1e-11
        assert sol.residuals.velocity.max() < 1e-10
        energy = model.motion(sol).energy()
        drifts.append(np.ptp(energy["total"]))
        assert drifts[-1] < 0.02 * np.ptp(energy["kinetic"])
    assert drifts[0] / drifts[1] == pytest.approx(4.0, rel=0.3)
    joint = model["joint"]
    m = len(joint.rows) + 3
    assert sol.lam.shape[1] == m
    assert model.assemble().freedom == 12 - m


@pytest.mark.parametrize("name", NAMES)
def test_rates_of_coordinates_are_their_derivatives(name):
    model, sol = run(name, 2e-3)
    motion = model.motion(sol)
    for coordinate in model["joint"].coordinates:
        value, rate = (f("joint", coordinate.name) for f in (motion.coordinate, motion.rate))
        assert np.ptp(value) > 1e-3
        middle = np.gradient(value, sol.t)[5:-5]
        np.testing.assert_allclose(middle, rate[5:-5], atol=1e-2 * np.abs(rate).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", JOINTS)
def test_results_do_not_depend_on_the_axes_of_space(name):
    """The same model, turned and shifted: positions turn with it, coordinates and reactions stay."""
    turn, shift = np.array([0.7, -1.1, 0.4]), np.array([1.0, -2.0, 0.5])
    R = Rotation.from_rotvec(turn).as_matrix()
    one, two = pair(JOINTS[name]), pair(JOINTS[name], turn, shift=shift)
    first, second = (model.solve((0.0, 0.2), h=2e-3) for model in (one, two))
    a, b = one.motion(first), two.motion(second)
    for body in ("one", "two"):
        np.testing.assert_allclose(b.position(body), a.position(body) @ R.T + shift, atol=1e-9)
        np.testing.assert_allclose(b.rotation(body), R @ a.rotation(body), atol=1e-9)
    names = {coordinate.name for coordinate in one["joint"].coordinates}
    for coordinate in names & {"angle", "displacement"}:  # x and y of a joint depend on how its axes lie
        values = [x.coordinate("joint", coordinate) for x in (a, b)]
        np.testing.assert_allclose(*(np.diff(x) for x in values), atol=1e-9)
    size = [np.linalg.norm(x.reaction("joint").force, axis=1) for x in (a, b)]
    np.testing.assert_allclose(*size, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_reactions_are_those_of_newton_and_euler(name):
    """m a and I w' + w × I w are those of weight and reaction, which has no power in free motions."""
    model, sol = run(name, 2e-3)
    motion, body, joint = model.motion(sol), model["two"], model["joint"]
    first, second = (motion.frame(marker) for marker in joint.markers)
    found = motion.reaction("joint")
    force, torque = (np.einsum("kij,kj->ki", first.R, x) for x in found)
    state, of_v = motion.frame(body.middle), model.slices()["two"][1]
    a, spin, w = sol.a[:, of_v][:, :3], sol.a[:, of_v][:, 3:], sol.v[:, of_v][:, 3:]
    np.testing.assert_allclose(body.mass * (a - model.gravity), force, atol=1e-8)
    tensor = body.inertia.tensor
    own = spin @ tensor + np.cross(w, w @ tensor)  # in axes of the body
    wanted = np.einsum("kij,kj->ki", state.R, own)
    np.testing.assert_allclose(torque + np.cross(second.x - state.x, force), wanted, atol=1e-8)
    row = lambda frame, k: FrameState(*(x[k] for x in frame))
    for k in (0, 50, 100):
        free = freedoms(name, row(first, k), row(second, k))
        np.testing.assert_allclose(np.concatenate([x[k] for x in found]) @ free, 0.0, atol=1e-9)


# --- by hand ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def at_once():
    """Four bodies that have nothing to do with each other: an arm, a pendulum, a slider and a cantilever."""
    model = mb.Model()
    speed = lambda w, x: {"angular_velocity": w, "velocity": np.cross(w, x)}
    arm = mb.Body("arm", mb.rod(1.5, 0.8), at=(0.4, 0, 0), **speed((0, 0, 7.0), (0.4, 0, 0)))
    model.add(mb.Revolute("bearing", model.ground, model.add(arm), at=(0, 0, 0)))
    model.add(mb.AppliedForce("torque", arm, torque=(0, 0, 0.5)))
    c, s = np.cos(0.6), np.sin(0.6)
    R, x = np.array([(s, -c, 0), (0, 0, 1), (-c, -s, 0)]), np.array([0.5 * s, 0, -0.5 * c])
    bar = mb.Body("bar", mb.rod(2.0, 1.0), at=x, rotation=R, **speed((0, -3.0, 0), x))
    model.add(mb.Revolute("pivot", model.ground, model.add(bar), at=(0, 0, 0), axis=(0, -1, 0)))
    down = np.array([np.cos(0.4), 0, -np.sin(0.4)])
    slider = model.add(mb.Body("slider", mb.box(3.0, (0.4, 0.2, 0.2)), at=5 * down))
    model.add(mb.Prismatic("rail", model.ground, slider, at=5 * down, axis=down))
    model.add(mb.AppliedForce("pull", slider.frame((0, 0, 0.1)), force=(0, 2.0, 0)))
    beam = model.add(mb.Body("beam", mb.box(4.0, (1.0, 0.1, 0.1)), at=(0.5, 9, 0)))
    model.add(mb.Weld("wall", model.ground, beam, at=(0, 9, 0)))
    model.add(mb.AppliedForce("load", beam.frame((0.5, 0, 0)), force=(1.0, 2.0, -5.0)))
    assert model.assemble().freedom == 3
    state = ga.consistent(model.system, 0.0, model.q0, model.v0)
    motion = model.motion(SimpleNamespace(**{key: np.asarray(x)[None] for key, x in state._asdict().items()}))

    def reaction(name):
        """Force and torque in axes of space."""
        axes = motion.rotation(model[name].markers[0])[0]
        return tuple(axes @ x[0] for x in motion.reaction(name))

    return reaction


def test_reactions_of_a_rotating_arm(at_once):
    """The bearing carries the weight and its moment, pulls inwards by m w² r, and across by m r w'."""
    force, torque = at_once("bearing")
    inertia = mb.rod(1.5, 0.8).tensor[2, 2]
    faster = 0.5 / (inertia + 1.5 * 0.4**2)
    np.testing.assert_allclose(force, [-1.5 * 49 * 0.4, 1.5 * 0.4 * faster, 1.5 * 9.81], rtol=1e-12)
    np.testing.assert_allclose(torque, [0, -0.4 * 1.5 * 9.81, 0], atol=1e-11)


def test_reactions_of_a_physical_pendulum(at_once):
    """Along the bar m (g cos φ + w² r), across it the share of the weight that does not turn it."""
    force, torque = at_once("pivot")
    inertia = mb.rod(2.0, 1.0).tensor[1, 1]
    second = -2.0 * 9.81 * 0.5 * np.sin(0.6) / (inertia + 2.0 * 0.25)
    inwards, across = np.array([-np.sin(0.6), 0, np.cos(0.6)]), np.array([np.cos(0.6), 0, np.sin(0.6)])
    wanted = 2.0 * (9.81 * np.cos(0.6) + 9 * 0.5) * inwards
    wanted += 2.0 * (9.81 * np.sin(0.6) + 0.5 * second) * across
    np.testing.assert_allclose(force, wanted, atol=1e-11)
    np.testing.assert_allclose(torque, 0.0, atol=1e-11)


def test_reactions_of_a_slider_and_a_cantilever(at_once):
    """What is across the rail, and the moment of a force that acts above the centre; all of the load."""
    force, torque = at_once("rail")
    normal = np.array([np.sin(0.4), 0, np.cos(0.4)])
    np.testing.assert_allclose(force, 3.0 * 9.81 * np.cos(0.4) * normal - (0, 2.0, 0), atol=1e-11)
    np.testing.assert_allclose(torque, -np.cross((0, 0, 0.1), (0, 2.0, 0)), atol=1e-11)
    force, torque = at_once("wall")
    np.testing.assert_allclose(force, [-1.0, -2.0, 4.0 * 9.81 + 5.0], atol=1e-11)
    np.testing.assert_allclose(torque, [0, -(0.5 * 4.0 * 9.81 + 5.0), -2.0], atol=1e-11)


# --- statics ----------------------------------------------------------------------------------------------


def test_a_rod_of_fixed_length_pulls_with_its_tension():
    model = mb.Model(gravity=(0, 0, -10))
    bob = model.add(mb.PointMass("bob", 3.0, at=(0, 0, -2.0)))
    rod = model.add(mb.Distance("rod", model.ground, bob))
    motion = model.motion(model.solve((0.0, 0.01), h=1e-3))
    np.testing.assert_allclose(motion.reaction(rod).force[-1], [0, 0, 30.0], atol=1e-9)
    np.testing.assert_allclose(np.abs(motion.sol.lam[-1]), [30.0], atol=1e-9)


# --- couplings --------------------------------------------------------------------------------------------


def wheels(coupling):
    """Two wheels on parallel axes, and a slider; the first wheel is pushed for many turns."""
    model = mb.Model(gravity=(0, 0, 0))
    disk = lambda name, x: model.add(mb.Body(name, mb.cylinder(1.0, 0.3, 0.1), at=(x, 0, 0)))
    one, two = disk("one", 0.0), disk("two", 1.0)
    model.add(mb.Revolute("a", model.ground, one, at=(0, 0, 0)))
    if coupling == "rack":
        model.add(mb.Prismatic("b", model.ground, two, at=(1, 0, 0), axis=(0, 1, 0)))
        model.add(mb.Rack("teeth", model["a"], model["b"], radius=0.2))
    else:
        model.add(mb.Revolute("b", model.ground, two, at=(1, 0, 0)))
        model.add(mb.Gear("teeth", model["a"], model["b"], teeth=(20, 31), internal=coupling == "internal"))
    model.add(mb.AppliedForce("push", one, torque=(0, 0, 3.0)))
    model.assemble()
    return model


@pytest.mark.parametrize(
    "coupling",
    ["outer", pytest.param("internal", marks=pytest.mark.slow), pytest.param("rack", marks=pytest.mark.slow)],
)
def test_gears_and_racks_keep_their_ratio_over_many_turns(coupling):
    model = wheels(coupling)
    sol = model.solve((0.0, 2.0), h=5e-3, method="index3")
    motion = model.motion(sol)
    first, second = motion.coordinate("a"), motion.coordinate("b")
    assert first[-1] > 4 * np.pi
    ratio = {"outer": -20 / 31, "internal": 20 / 31, "rack": 0.2}[coupling]
    np.testing.assert_allclose(second - second[0], ratio * (first - first[0]), atol=1e-9)
    inertia = [model[x].inertia.tensor[2, 2] for x in ("one", "two")]
    heavy = inertia[0] + ratio**2 * (1.0 if coupling == "rack" else inertia[1])
    assert first[-1] == pytest.approx(0.5 * 3.0 / heavy * 4.0, rel=1e-5)


def test_a_prescribed_motion_is_followed_and_its_torque_is_right():
    """A wheel on a vertical axis turned by a function of time: the torque is J times its acceleration."""
    model = mb.Model()
    wheel = model.add(mb.Body("wheel", mb.cylinder(2.0, 0.5, 0.1)))
    hinge = model.add(mb.Revolute("hinge", model.ground, wheel, at=(0, 0, 0)))
    drive = model.add(mb.Driven("drive", hinge, lambda t: 20 * t**2 + jnp.sin(t)))
    wheel.angular_velocity = np.array([0.0, 0.0, 1.0])
    assert model.assemble().freedom == 0
    sol = model.solve((0.0, 1.0), h=0.01)
    motion = model.motion(sol)
    np.testing.assert_allclose(motion.coordinate(hinge), 20 * sol.t**2 + np.sin(sol.t), atol=1e-10)
    torque = motion.reaction(drive).torque[:, 2]
    np.testing.assert_allclose(torque, 0.25 * (40 - np.sin(sol.t)), rtol=1e-9)
    np.testing.assert_allclose(motion.power(drive), torque * (40 * sol.t + np.cos(sol.t)), rtol=1e-9)
    np.testing.assert_allclose(motion.power(hinge), 0.0, atol=1e-9)


def test_joints_between_bodies_in_the_plane():
    """A double pendulum in the plane, against its equations in angles."""
    model = mb.Model(gravity=(0, -9.81, 0))
    one = model.add(mb.PlanarBody("one", 1.0, 1 / 12, at=(0.5, 0)))
    two = model.add(mb.PlanarBody("two", 2.0, 2 / 12, at=(1.5, 0)))
    a = model.add(mb.Revolute("a", model.ground, one, at=(0, 0)))
    model.add(mb.Revolute("b", one, two, at=(1, 0)))
    assert type(a).__name__ == "PlanarRevolute"
    assert model.assemble().freedom == 2
    motion = model.motion(model.solve((0.0, 1.0), rtol=1e-8))
    from scipy.integrate import solve_ivp

    def rate(t, y):
        p, q, u, w = y
        c, s = np.cos(p - q), np.sin(p - q)
        M = np.array([[1 / 3 + 2, 2 * 0.5 * c], [2 * 0.5 * c, 2 / 3]])
        f = np.array([-s * w**2 - 9.81 * (0.5 + 2) * np.cos(p), s * u**2 - 9.81 * 2 * 0.5 * np.cos(q)])
        return [u, w, *np.linalg.solve(M, f)]

    other = solve_ivp(rate, (0, 1), [0.0] * 4, rtol=1e-11, atol=1e-11)
    angles = [motion.coordinate("a")[-1], (motion.coordinate("a") + motion.coordinate("b"))[-1]]
    np.testing.assert_allclose(angles, other.y[:2, -1], atol=2e-7)
