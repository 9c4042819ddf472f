"""Joints and forces as functions of frames, without compiled code: power, derivatives, changes of frame."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from genalpha import multibody as mb
from genalpha.multibody.frames import FrameState
from genalpha.multibody.vectors import skew
from joint_freedoms import closed, frame, freedoms, joints, moved

JOINTS, ZERO = joints(), np.zeros(6)
seeds = given(seed=st.integers(0, 2**32 - 1))
few = settings(max_examples=3, deadline=None, derandomize=True)
STEPS = np.array([-2.0, -1.0, 1.0, 2.0]) * 2e-4
WEIGHTS = np.array([1.0, -8.0, 8.0, -1.0]) / (12 * 2e-4)


def stack(frames):
    return FrameState(*(np.stack(x) for x in zip(*frames, strict=True)))


def rates(function, paths):
    """Derivatives of a function along paths: each is a function of a time that gives the frames."""
    rows = [path(t) for path in paths for t in STEPS]
    frames = [stack(column) for column in zip(*rows, strict=True)]
    values = np.asarray(jax.vmap(lambda *x: function(0.0, *x))(*frames))
    return np.einsum("k,pk...->p...", WEIGHTS, values.reshape(len(paths), 4, *values.shape[1:]))


@pytest.mark.parametrize("name", JOINTS)
@few
@seeds
def test_a_joint_lets_move_what_it_should_and_holds_the_rest(name, seed):
    """No row changes in a motion of both bodies together, or in one that the joint lets free.

    So reactions on the two bodies are opposite, and have no power. All other motions are held.
    """
    rng = np.random.default_rng(seed)
    a, b = closed(name, rng)
    holonomic = JOINTS[name].bound()["holonomic"]
    np.testing.assert_allclose(holonomic(0.0, a, b), 0.0, atol=1e-13)
    about = rng.normal(size=3)
    together = [lambda t, s=s: [moved(f, s[:3], s[3:], about, t) for f in (a, b)] for s in np.eye(6)]
    alone = lambda s: lambda t: [a, moved(b, a.R @ s[:3], a.R @ s[3:], b.x, t)]
    free = freedoms(name, a, b)
    np.testing.assert_allclose(rates(holonomic, together), 0.0, atol=1e-9)
    held = rates(holonomic, [alone(s) for s in np.eye(6)])
    np.testing.assert_allclose(free.T @ held, 0.0, atol=1e-9)
    assert np.linalg.matrix_rank(held, tol=1e-3) == len(JOINTS[name].rows) == 6 - free.shape[1]


@pytest.mark.parametrize("name", JOINTS)
@few
@seeds
def test_derivatives_of_joints_are_those_of_differences(name, seed):
    """The derivative along v and w is what reactions and hidden constraints are made of. Joints are open."""
    rng = np.random.default_rng(seed)
    a, b = frame(rng), frame(rng)
    holonomic = JOINTS[name].bound()["holonomic"]
    by_differences = rates(holonomic, [lambda t: [moved(f, f.v, f.w, f.x, t) for f in (a, b)]])[0]
    of = lambda x, R, y, S: holonomic(0.0, a._replace(x=x, R=R), b._replace(x=y, R=S))
    along = (a.v, np.asarray(skew(a.w)) @ a.R, b.v, np.asarray(skew(b.w)) @ b.R)
    found = jax.jvp(of, (a.x, a.R, b.x, b.R), along)[1]
    np.testing.assert_allclose(found, by_differences, atol=1e-8 * (1 + np.abs(by_differences).max()))


PLANE = {  # the motions (x, y, angle) that a joint of the plane lets free, in the axes of a
    "Revolute": [(0, 0, 1)],
    "Prismatic": [(1, 0, 0)],
    "Weld": [],
}


@pytest.mark.parametrize("name", PLANE)
@few
@seeds
def test_joints_of_the_plane(name, seed):
    rng = np.random.default_rng(seed)
    bodies = [mb.PlanarBody(x, 1.0, 1.0) for x in ("one", "two")]
    joint = getattr(mb, name)("joint", *bodies)
    holonomic, still = joint.bound()["holonomic"], np.zeros(3)
    turn = lambda angle: Rotation.from_rotvec([0, 0, angle]).as_matrix()
    a = FrameState(np.array([*rng.normal(size=2), 0.0]), turn(rng.uniform(-3, 3)), still, still)
    x = np.array([rng.normal() if name == "Prismatic" else 0.0, 0.0, 0.0])
    b = a._replace(x=a.x + a.R @ x, R=a.R @ turn(rng.uniform(-3, 3) if name == "Revolute" else 0.0))
    flat = lambda s: (np.array([s[0], s[1], 0.0]), np.array([0.0, 0.0, s[2]]))
    together = [lambda t, s=s: [moved(f, *flat(s), still, t) for f in (a, b)] for s in np.eye(3)]
    alone = [lambda t, s=s: [a, moved(b, a.R @ flat(s)[0], flat(s)[1], b.x, t)] for s in np.eye(3)]
    np.testing.assert_allclose(rates(holonomic, together), 0.0, atol=1e-9)
    held, free = rates(holonomic, alone), np.array(PLANE[name]).reshape(-1, 3)
    np.testing.assert_allclose(free @ held, 0.0, atol=1e-9)
    assert np.linalg.matrix_rank(held, tol=1e-3) == len(joint.rows) == 3 - len(free)


@pytest.mark.parametrize("kind", ["outer", "internal", "rack"])
@few
@seeds
def test_gears_and_racks_couple_two_joints(kind, seed):
    """Each pair of bodies may move as one; both joints move at the ratio of the teeth, and not otherwise."""
    rng = np.random.default_rng(seed)
    bodies = [mb.Body(x, mb.box(1.0, (0.1, 0.2, 0.3))) for x in "abcd"]
    hinge = mb.Revolute("first", *bodies[:2])
    if kind == "rack":
        coupling = mb.Rack("teeth", hinge, mb.Prismatic("second", *bodies[2:]), radius=0.2)
        ratio, name, second = 0.2, "prismatic", np.array([0, 0, 1.0, 0, 0, 0])
    else:
        inside = kind == "internal"
        coupling = mb.Gear("teeth", hinge, mb.Revolute("second", *bodies[2:]), teeth=(4, 6), internal=inside)
        ratio, name, second = (1 if inside else -1) * 4 / 6, "revolute", np.array([0, 0, 0, 0, 0, 1.0])
    a, c, d = frame(rng), *closed(name, rng)
    # The angle of the first joint follows from that of the second.
    seen = c.R.T @ (d.R if kind != "rack" else d.x - c.x)
    travel = seen[2] if kind == "rack" else np.arctan2(seen[1, 0], seen[0, 0])
    b = a._replace(R=a.R @ Rotation.from_rotvec([0, 0, travel / ratio]).as_matrix())
    holonomic = coupling.bound()["holonomic"]
    np.testing.assert_allclose(holonomic(0.0, a, b, c, d), 0.0, atol=1e-12)

    def path(first, other, pair=ZERO):
        turning, sliding = first * a.R[:, 2], (other * c.R @ second[:3], other * c.R @ second[3:])
        together = lambda f, t: moved(f, pair[:3], pair[3:], np.zeros(3), t)
        return lambda t: [
            *(together(f, t) for f in (a, moved(b, 0 * a.x, turning, b.x, t))),
            c,
            moved(d, *sliding, d.x, t),
        ]

    free = [path(1.0, ratio), *(path(0.0, 0.0, s) for s in np.eye(6))]
    np.testing.assert_allclose(rates(holonomic, free), 0.0, atol=1e-8)
    assert abs(rates(holonomic, [path(1.0, 0.0)])[0, 0]) > 0.1


# --- rolling ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["disk", "sphere"])
@few
@seeds
def test_rolling_bodies_touch_the_plane_and_do_not_slip(kind, seed):
    """The point of the rim that is lowest has the velocity of the plane there. Its slip is what rows say."""
    rng = np.random.default_rng(seed)
    a, b = frame(rng), frame(rng)
    wheel = mb.Body("wheel", mb.sphere(1.0, 0.1))
    joint = (mb.RollingDisk if kind == "disk" else mb.RollingSphere)(
        "floor", mb.Model().ground, wheel, radius=0.4
    )
    heights = a.R[:, 2] @ b.R[:, :2]  # how steep x and y of the disk are
    down = -0.4 * b.R[:, :2] @ heights / np.linalg.norm(heights) if kind == "disk" else -0.4 * a.R[:, 2]
    b = b._replace(x=a.x + a.R @ [*rng.normal(size=2), 0.0] - down)
    touching, slip = joint.bound()["holonomic"], joint.bound()["nonholonomic"]
    np.testing.assert_allclose(touching(0.0, a, b), 0.0, atol=1e-12)
    slipping = np.array([*rng.normal(size=2), 0.0])
    carried = a.v + np.cross(a.w, b.x + down - a.x)
    b = b._replace(v=carried - np.cross(b.w, down) + a.R @ slipping)
    np.testing.assert_allclose(slip(0.0, a, b), slipping[:2], atol=1e-9)
    np.testing.assert_allclose(
        rates(touching, [lambda t: [moved(f, f.v, f.w, f.x, t) for f in (a, b)]]), 0.0, atol=1e-6
    )


@few
@seeds
def test_a_knife_edge_stops_what_goes_across(seed):
    rng = np.random.default_rng(seed)
    a, b = frame(rng), frame(rng)
    blade = mb.KnifeEdge("blade", mb.Model().ground, mb.Body("skate", mb.sphere(1.0, 0.1)))
    own = rng.normal(size=3)
    b = b._replace(v=a.v + np.cross(a.w, b.x - a.x) + b.R @ own)
    np.testing.assert_allclose(blade.bound()["nonholonomic"](0.0, a, b), own[1:2], atol=1e-12)
