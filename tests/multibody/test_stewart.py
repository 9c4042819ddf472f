"""Inverse dynamics of a Stewart platform: forces of its legs against the principle of virtual work."""

from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest
from examples import mechanisms
from scipy.spatial.transform import Rotation

import genalpha as ga

G = np.array([0.0, 0.0, -9.81])


def pose(t, xp=np):
    """Position and three angles (6,) of the platform."""
    s = xp.sin
    return xp.stack(
        [
            0.06 * s(2 * t),
            0.05 * s(3 * t + 0.4),
            1.0 + 0.08 * s(2.5 * t),
            0.2 * s(2 * t + 1),
            0.15 * s(3 * t),
            0.3 * s(t),
        ]
    )


def turned(angles, xp=np):
    """Rx(α) Ry(β) Rz(γ)."""
    (ca, cb, cg), (sa, sb, sg) = xp.cos(angles), xp.sin(angles)
    one, no = 0 * ca + 1, 0 * ca
    X = xp.stack([xp.stack([one, no, no]), xp.stack([no, ca, -sa]), xp.stack([no, sa, ca])])
    Y = xp.stack([xp.stack([cb, no, sb]), xp.stack([no, one, no]), xp.stack([-sb, no, cb])])
    Z = xp.stack([xp.stack([cg, -sg, no]), xp.stack([sg, cg, no]), xp.stack([no, no, one])])
    return X @ Y @ Z


def motion(t):
    p = pose(t, jnp)
    return p[:3], turned(p[3:], jnp)


BASE, TOP = mechanisms.anchors()
SIDE = np.cross([0, 0, 1.0], TOP + np.array([0, 0, mechanisms.HEIGHT]) - BASE)  # axes of the feet
SIDE /= np.linalg.norm(SIDE, axis=1)[:, None]


def bodies(p):
    """Centres of mass (13, 3), axes (13, 3, 3) and lengths of the legs (6,). p may be complex."""
    unit = lambda x: x / np.sqrt((x * x).sum(axis=-1, keepdims=True))
    R = turned(p[3:])
    head = p[:3] + TOP @ R.T
    z = unit(head - BASE)
    y = unit(np.cross(z, SIDE))
    legs = np.stack([np.cross(y, z), y, z], axis=-1)
    low, high = BASE + mechanisms.LEG * z, head - mechanisms.LEG * z
    x = np.concatenate([p[None, :3], np.stack([low, high], axis=1).reshape(12, 3)])
    axes = np.concatenate([R[None], np.repeat(legs, 2, axis=0)])
    return x, axes, ((head - BASE) * z).sum(axis=1)


def rates(p, direction):
    """Velocities (13, 3), angular velocities (13, 3) and rates of the lengths (6,), by a complex step."""
    x, R, length = (part.imag / 1e-30 for part in bodies(p + 1e-30j * direction))
    spin = R @ bodies(p)[1].transpose(0, 2, 1)
    return x, np.stack([spin[:, 2, 1], spin[:, 0, 2], spin[:, 1, 0]], axis=1), length


def moving(t):
    """Velocities and spins of all bodies as one array (2, 13, 3)."""
    return np.stack(rates(pose(t), pose(t + 1e-30j).imag / 1e-30)[:2])


def derivative(function, t, h=2e-3):
    """By differences of sixth order."""
    weights = zip((1, 2, 3), (3 / 4, -3 / 20, 1 / 60), strict=True)
    return sum(w * (function(t + k * h) - function(t - k * h)) for k, w in weights) / h


def forces_by_hand(model, t):
    """The forces (6,) of the legs: in every possible motion, their power is that of inertia and weight."""
    masses = np.array([body.mass for body in model.bodies])
    tensors = np.stack([body.inertia.tensor for body in model.bodies])

    def momenta(t):
        R, (v, w) = bodies(pose(t))[1], moving(t)
        spin = np.einsum("bij,bjk,blk,bl->bi", R, tensors, R, w)
        return np.stack([masses[:, None] * v, spin])

    force, torque = derivative(momenta, t) - np.stack([masses[:, None] * G, np.zeros((13, 3))])
    possible = [rates(pose(t), direction) for direction in np.eye(6)]
    power = [np.sum(force * v) + np.sum(torque * w) for v, w, _ in possible]
    return np.linalg.solve(np.array([lengths for *_, lengths in possible]), power)


@pytest.fixture(scope="module")
def driven():
    model = mechanisms.stewart()
    mechanisms.platform_drives(model, motion)
    assert model.assemble().freedom == 0
    return model


def forces(model, sol):
    """Along every leg: of its drive, and of its motor, which is constant."""
    found = model.motion(sol)
    motors = [model[f"motor {i}"].numbers["effort"] for i in range(1, 7)]
    return np.stack([found.reaction(f"drive {i}").force[:, 2] for i in range(1, 7)], axis=1) + motors


@pytest.mark.slow
def test_constant_forces_hold_the_platform_at_rest():
    model = mechanisms.stewart()
    model.assemble()
    found = ga.consistent(model.system, 0.0, model.q0, model.v0)
    np.testing.assert_allclose(found.a, 0.0, atol=1e-10)


def test_forces_of_the_legs_are_those_of_virtual_work(driven):
    """At two times, where all bodies are put by hand."""
    for t in (0.0, 0.37):
        x, R, _ = bodies(pose(t))
        v, w = moving(t)
        quaternions = np.roll(Rotation.from_matrix(R).as_quat(), 1, axis=1)
        own = np.einsum("bji,bj->bi", R, w)
        state = ga.consistent(
            driven.system, t, np.hstack([x, quaternions]).ravel(), np.hstack([v, own]).ravel()
        )
        row = SimpleNamespace(**{key: np.asarray(value)[None] for key, value in state._asdict().items()})
        wanted = forces_by_hand(driven, t)
        assert np.ptp(wanted) > 20.0
        np.testing.assert_allclose(forces(driven, row)[0], wanted, rtol=1e-10)


@pytest.mark.slow
def test_forces_of_the_legs_along_a_run(driven):
    sol = driven.solve((0.0, 0.4), h=0.02)
    found = driven.motion(sol)
    by_hand = [bodies(pose(t)) for t in sol.t]
    for i, body in enumerate(driven.bodies):
        np.testing.assert_allclose(found.position(body), [x[i] for x, *_ in by_hand], atol=1e-10)
        np.testing.assert_allclose(found.rotation(body), [R[i] for _, R, _ in by_hand], atol=1e-10)
    wanted = [forces_by_hand(driven, t) for t in sol.t]
    np.testing.assert_allclose(forces(driven, sol), wanted, rtol=1e-9)
