"""Forces as functions of frames, and changes of the axes of space: balance, power, energy, invariance."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

import genalpha as ga
from genalpha import multibody as mb
from joint_freedoms import closed, elsewhere, frame, joints, moved

seeds = given(seed=st.integers(0, 2**32 - 1))
few = settings(max_examples=3, deadline=None, derandomize=True)
ONE, TWO = (
    mb.Body(name, mb.box(1.0, (0.1, 0.2, 0.3)), at=(i, 0, 0)) for i, name in enumerate(("one", "two"))
)
HINGE, SLOT = mb.Revolute("hinge", ONE, TWO), mb.Prismatic("slot", ONE, TWO)


def forces(**damping):
    """Every force between two bodies, springs with this damping."""
    stiff = {"stiffness": 7.0, **damping}
    six = {key: value * np.array([1.0, 2, 3, 0.1, 0.2, 0.3]) for key, value in stiff.items()}
    ball = {"stiffness": 50.0, "friction": 0.4, "slow": 0.1}
    return {
        "spring": mb.SpringDamper("spring", ONE, TWO, length=0.4, **stiff),
        "law": mb.SpringDamper("law", ONE, TWO, length=0.0, law=lambda x, rate: x**3 + 0.2 * rate),
        "coil": mb.JointSpring("coil", HINGE, free=0.2, **stiff),
        "slider": mb.JointSpring("slider", SLOT, free=0.2, **stiff),
        "motor": mb.Motor("motor", HINGE, target=lambda t: jnp.sin(t), kp=3.0, kd=0.5, limit=2.0),
        "drive": mb.Motor("drive", SLOT, effort=lambda t: 1.0 + t),
        "bushing": mb.Bushing("bushing", ONE, TWO, **six),
        "contact": mb.SphereContact("contact", ONE, TWO, radius=1.5, damping=0.3, **ball),
    }


PAIRS = forces(damping=0.6)


def wrenches(force, t, *frames):
    """Forces (k, 3) and torques (k, 3) on the frames."""
    found = force.bound()["force"](t, *frames)
    return tuple(np.array([np.asarray(w[i], dtype=float) for w in found]) for i in range(2))


def power(force, t, *frames):
    push, turning = wrenches(force, t, *frames)
    return sum(f @ x.v + m @ x.w for f, m, x in zip(push, turning, frames, strict=True))


def turned(rng):
    return Rotation.random(rng=rng).as_matrix(), rng.normal(size=3)


@pytest.mark.parametrize("name", PAIRS)
@few
@seeds
def test_forces_between_bodies_are_opposite_and_do_not_depend_on_the_observer(name, seed):
    """Forces and moments cancel; they turn with the axes of space; a common motion changes nothing."""
    rng = np.random.default_rng(seed)
    force, a, b = PAIRS[name], frame(rng), frame(rng)
    push, turning = wrenches(force, 0.3, a, b)
    size = np.abs(np.stack([push, turning])).max()
    np.testing.assert_allclose(push.sum(axis=0), 0.0, atol=1e-13 * size)
    moment = turning + np.cross(np.stack([a.x, b.x]), push)
    np.testing.assert_allclose(moment.sum(axis=0), 0.0, atol=1e-12 * size)
    S, shift = turned(rng)
    seen = wrenches(force, 0.3, *(elsewhere(f, S, shift) for f in (a, b)))
    np.testing.assert_allclose(seen, np.stack([push, turning]) @ S.T, atol=1e-9 * (1 + size))
    v, w = rng.normal(size=(2, 3))
    faster = [f._replace(v=f.v + v + np.cross(w, f.x), w=f.w + w) for f in (a, b)]
    np.testing.assert_allclose(wrenches(force, 0.3, *faster), (push, turning), atol=1e-9 * (1 + size))


SPRINGS = {  # energies by hand, of the position d of b in the axes of a, and of its angle
    "spring": lambda d, angle: 3.5 * (np.linalg.norm(d) - 0.4) ** 2,
    "coil": lambda d, angle: 3.5 * (angle - 0.2) ** 2,
    "slider": lambda d, angle: 3.5 * (d[2] - 0.2) ** 2,
    "bushing": lambda d, angle: 3.5 * (d @ (np.array([1.0, 2, 3]) * d) + 0.3 * angle**2),
}


@pytest.mark.parametrize("name", SPRINGS)
@few
@seeds
def test_springs_give_what_they_stored_and_dampers_only_take(name, seed):
    """Two bodies whose z axes agree, in any motion that keeps them so."""
    rng = np.random.default_rng(seed)
    a, b = closed("cylindrical", rng)
    angle = rng.uniform(-2, 2)
    b = b._replace(x=b.x + a.R @ [*rng.normal(size=2), 0.0])
    b = b._replace(R=a.R @ Rotation.from_rotvec([0, 0, angle]).as_matrix(), w=a.w + rng.normal() * a.R[:, 2])

    def stored(t):
        c, d = (moved(f, f.v, f.w, f.x, t) for f in (a, b))
        seen = c.R.T @ d.R
        return SPRINGS[name](c.R.T @ (d.x - c.x), np.arctan2(seen[1, 0], seen[0, 0]))

    h = 1e-3
    change = (8 * (stored(h) - stored(-h)) - stored(2 * h) + stored(-2 * h)) / (12 * h)
    plain, damped = (power(of[name], 0.0, a, b) for of in (forces(), PAIRS))
    assert plain == pytest.approx(-change, abs=1e-7)
    assert damped < plain


@few
@seeds
def test_friction_and_drag_take_power(seed):
    rng = np.random.default_rng(seed)
    a, b = frame(rng), frame(rng)
    smooth = mb.SphereContact("smooth", ONE, TWO, radius=1.5, stiffness=50.0, damping=0.3)
    assert power(PAIRS["contact"], 0.0, a, b) <= power(smooth, 0.0, a, b)
    wind = rng.normal(size=3)
    S, shift = turned(rng)
    drag, other = (mb.Drag("air", TWO, linear=0.2, quadratic=0.3, wind=w) for w in (wind, S @ wind))
    still = b._replace(v=wind)
    np.testing.assert_allclose(wrenches(drag, 0.0, still)[0], 0.0, atol=1e-12)
    assert power(mb.Drag("calm", TWO, linear=0.2, quadratic=0.3), 0.0, b) < 0
    push = wrenches(drag, 0.0, b)[0]
    np.testing.assert_allclose(wrenches(other, 0.0, elsewhere(b, S, shift))[0], push @ S.T, atol=1e-13)
    thrust = mb.AppliedForce("thrust", TWO, force=(1, 2, 3), torque=(0.1, 0, 0.2), follows=True)
    found = wrenches(thrust, 0.0, elsewhere(b, S, shift))
    np.testing.assert_allclose(found, [[S @ b.R @ (1, 2, 3)], [S @ b.R @ (0.1, 0, 0.2)]], atol=1e-13)


IN_SPACE = ("spherical", "revolute", "universal", "weld")  # their first three rows are in space-fixed axes


@few
@seeds
def test_rows_of_joints_turn_with_the_axes_of_space_or_stay(seed):
    rng = np.random.default_rng(seed)
    (S, shift), a, b = turned(rng), frame(rng), frame(rng)
    for name, joint in joints().items():
        rows = np.array(joint.bound()["holonomic"](0.0, a, b))
        seen = joint.bound()["holonomic"](0.0, elsewhere(a, S, shift), elsewhere(b, S, shift))
        if name in IN_SPACE:
            rows[:3] = S @ rows[:3]
        np.testing.assert_allclose(seen, rows, atol=1e-12, err_msg=name)


# --- a model in other axes of space -----------------------------------------------------------------------


def machine(S, shift):
    """A cart on a slope with a pendulum, a ball that rolls, a spring, a bushing, drag and a motor."""
    put = lambda x: S @ np.asarray(x, dtype=float) + shift
    model = mb.Model(gravity=S @ (0, 0.5, -9.81))
    tilt = Rotation.from_rotvec([0.2, 0.1, 0]).as_matrix()
    slope = model.ground.frame(put((0, 0, 0)), rotation=S @ tilt)
    body = lambda name, inertia, at, v, w: model.add(
        mb.Body(name, inertia, put(at), S @ tilt, velocity=S @ tilt @ v, angular_velocity=S @ tilt @ w)
    )
    cart = body("cart", mb.box(2.0, (0.5, 0.3, 0.1)), (0, 0, 0), (0, 0, 0.7), (0, 0, 0))
    spin = np.array([0.0, 0.0, 1.2])
    arm = body("arm", mb.rod(0.7, 0.8), tilt @ (0.4, 0, 0), (0, 0.48, 0.7), spin)
    ball = body("ball", mb.sphere(0.5, 0.2), tilt @ (1, 1, 0.2), (0.2, 0.1, 0), (-0.5, 1.0, 3.0))
    guide = model.add(mb.Prismatic("guide", slope, cart.frame()))
    hinge = model.add(mb.Revolute("hinge", cart.frame(), arm.frame((-0.4, 0, 0))))
    model.add(mb.RollingSphere("floor", slope, ball, radius=0.2))
    model.add(
        mb.SpringDamper("spring", arm.frame((0.4, 0, 0)), ball, stiffness=30.0, damping=0.5, length=0.3)
    )
    model.add(mb.Bushing("rubber", slope, arm.frame((0.1, 0, 0)), stiffness=[9, 8, 7, 3, 2, 1]))
    model.add(mb.Drag("air", arm, linear=0.3, wind=S @ (1, 2, 3)))
    model.add(mb.Motor("motor", hinge, effort=0.4))
    model.add(mb.JointSpring("coil", guide, stiffness=5.0, damping=0.2))
    model.add(mb.SphereContact("bump", slope, arm.frame((0.4, 0, 0)), 0.05, 2e3, friction=0.3))
    return model


def test_a_model_in_other_axes_of_space_has_the_same_accelerations_and_reactions():
    S, shift = turned(np.random.default_rng(3))
    here, there = machine(np.eye(3), np.zeros(3)), machine(S, shift)
    motions, found = [], []
    for model in (here, there):  # the compiled code of one serves both: all that differs are its args
        args = model.system.args
        found.append(ga.consistent(here.system, 0.0, model.q0, model.v0, args=args))
        rows = {key: np.asarray(x)[None] for key, x in found[-1]._asdict().items()}
        motions.append(model.motion(SimpleNamespace(**rows)))
    a, b = ((x.a.reshape(-1, 2, 3)) for x in found)
    np.testing.assert_allclose(b[:, 0], a[:, 0] @ S.T, atol=1e-11 * np.abs(a).max())
    np.testing.assert_allclose(b[:, 1], a[:, 1], atol=1e-11 * np.abs(a).max())  # in axes of the bodies
    assert np.abs(a).max() > 1.0
    for name in ("guide", "hinge", "floor"):
        one, two = (np.stack(motion.reaction(name)) for motion in motions)
        np.testing.assert_allclose(two, one, atol=1e-10 * np.abs(one).max(), err_msg=name)
