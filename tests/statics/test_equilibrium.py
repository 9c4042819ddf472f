"""Equilibria against formulas, the catenary, an independent minimisation, and statics by hand."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, minimize

import genalpha as ga
from genalpha import multibody as mb

G = 9.81


def chain(count: int, span: float, rows: int = 1) -> ga.Assembly:
    """Rods of total length one between two hooks, with masses at their joints; each rod has so many rows."""
    length = mass = 1.0 / count
    points = ga.Part(
        mass=mass * jnp.eye(2),
        force=lambda t, q, v: mass * jnp.array([0.0, -G]),
        nodes=np.arange(count - 1),
    )
    rods = ga.Part(
        holonomic=lambda t, q: jnp.full(rows, jnp.sum((q[1] - q[0]) ** 2) / length - length),
        nodes=np.stack([np.arange(count - 2), np.arange(1, count - 1)], axis=1),
    )
    hooks = ga.Part(
        holonomic=lambda t, q, x: jnp.array([((q[0] - x) ** 2 + q[1] ** 2) / length - length]),
        nodes=[0, count - 2],
        args=([0.0, span],),
    )
    return ga.Assembly([points, rods, hooks], space=ga.Euclidean(2), count=count - 1)


def arch(count: int, span: float, height: float) -> np.ndarray:
    x = np.linspace(0, span, count + 1)[1:-1]
    return np.stack([x, height * np.sin(np.pi * x / span)], axis=1).reshape(-1)


def catenary(span: float) -> float:
    """How far a chain of length one sags."""
    a = brentq(lambda a: 2 * a * np.sinh(span / (2 * a)) - 1, 0.01, 10)
    return a * np.cosh(span / (2 * a)) - a


def minimum(count: int, span: float) -> np.ndarray:
    """Angles of the rods that minimise the potential energy, by SciPy."""
    heights = lambda angles: np.cumsum(np.sin(angles))[:-1]
    ends = lambda angles: [np.cos(angles).sum() - span * count, np.sin(angles).sum()]
    start = np.linspace(-1, 1, count)
    rules = {"type": "eq", "fun": ends}
    options = {"ftol": 1e-14, "maxiter": 500}
    return minimize(lambda x: heights(x).sum(), start, constraints=rules, options=options).x


def test_a_chain_against_an_independent_minimisation():
    """From an arch that stands upright, which is near an unstable equilibrium."""
    rest = ga.equilibrium(chain(10, 0.6), arch(10, 0.6, 0.3))
    assert rest.found
    assert rest.stable
    angles = minimum(10, 0.6)
    wanted = 0.1 * np.stack([np.cumsum(np.cos(angles)), np.cumsum(np.sin(angles))], axis=1)[:-1]
    np.testing.assert_allclose(rest.q.reshape(-1, 2), wanted, atol=1e-6)


@pytest.mark.slow
def test_chains_approach_the_catenary_at_order_two():
    sags = [-ga.equilibrium(chain(n, 0.6), arch(n, 0.6, -0.3)).q[1::2].min() for n in (100, 1000)]
    errors = np.array(sags) - catenary(0.6)
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.05)
    assert abs(errors[1]) < 4e-7


@pytest.mark.slow
def test_a_straight_chain_bends_to_a_side():
    rest = ga.equilibrium(chain(20, 0.6), arch(20, 0.6, 0.0))
    assert rest.stable
    assert rest.q[1::2].min() == pytest.approx(-catenary(0.6), abs=1e-3)


@pytest.fixture(scope="module")
def pendulum() -> ga.System:
    return ga.System(
        mass=2.0 * jnp.eye(2),
        force=lambda t, q, v: jnp.array([0.0, -2.0 * G]),
        holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
        names={"holonomic": ["rod"]},
    )


def test_the_top_is_left_and_found_if_wanted(pendulum):
    down = ga.equilibrium(pendulum, [0.0, 1.0])
    np.testing.assert_allclose(down.q, [0, -1], atol=1e-12)
    assert down.stable is True
    assert down.curvatures == pytest.approx([G])
    np.testing.assert_allclose(down.lam, [G])  # 2 λ q = weight
    top = ga.equilibrium(pendulum, [0.2, 0.8], find="nearest")
    np.testing.assert_allclose(top.q, [0, 1], atol=1e-12)
    assert top.stable is False
    assert "unstable" in top.message


def test_redundant_constraints_share_the_load(pendulum):
    twice = ga.System(pendulum.mass, pendulum.force, lambda t, q: jnp.array([1.0, 2.0]) * (q @ q - 1))
    rest = ga.equilibrium(twice, [0.5, 0.5])
    np.testing.assert_allclose(rest.q, [0, -1], atol=1e-12)
    np.testing.assert_allclose(rest.lam, G * np.array([1, 2]) / 5)  # λ1 + 2 λ2 = G, of least norm


def test_a_body_on_so3_hangs_below_its_hinge():
    """A body fixed at a point, with its centre off the principal axes."""
    centre = jnp.array([0.3, -0.2, 0.6])
    weight = lambda q: ga.rotation.rotate(ga.rotation.inverse(q), jnp.array([0.0, 0.0, -G]))
    body = ga.System(
        mass=jnp.diag(jnp.array([2.0, 3.0, 4.0])),
        force=lambda t, q, v: jnp.cross(centre, weight(q)),
        space=ga.SO3(),
    )
    rest = ga.equilibrium(body, ga.rotation.from_rotation_vector([0.4, 1.0, -0.3]))
    lowest = ga.rotation.rotate(rest.q, centre)
    np.testing.assert_allclose(lowest, [0, 0, -0.7], atol=1e-9)
    assert rest.stable is None  # it may turn about the vertical
    assert np.sum(np.abs(rest.curvatures) < 1e-6) == 1


def test_a_follower_force_flutters():
    """Without a potential: two angles with the stiffness (1, c; −c, 1) are unstable without damping."""
    force = lambda t, q, v, c: -jnp.array([[1.0, c], [-c, 1.0]]) @ q - 0.1 * v
    system = ga.System(jnp.eye(2), force)
    verdicts = [ga.equilibrium(system, [0.3, 0.2], args=(c,)).stable for c in (0.05, 0.5)]
    assert verdicts == [True, False]  # unstable above the damping times the frequency, 0.1


def test_damping_that_adds_energy_is_unstable():
    system = ga.System(jnp.eye(1), lambda t, q, v, c: -q - c * v)
    verdicts = [ga.equilibrium(system, [0.3], args=(c,)) for c in (0.1, 0.0, -0.1)]
    assert [verdict.stable for verdict in verdicts] == [True, True, False]
    assert "grows by 0.05" in verdicts[2].message


def test_a_wheel_is_held_by_its_rolling_constraint():
    """A skate on a slope holds itself across its blade: ψ carries the weight."""
    skate = ga.System(
        mass=jnp.eye(3),
        force=lambda t, q, v: jnp.array([0.0, -G, -q[2]]),
        nonholonomic=lambda t, q, v: jnp.array([-jnp.sin(q[2]) * v[0] + jnp.cos(q[2]) * v[1]]),
    )
    rest = ga.equilibrium(skate, [0.5, 0.3, 0.4], find="nearest")
    np.testing.assert_allclose(rest.q[2], 0, atol=1e-9)
    np.testing.assert_allclose(np.abs(rest.psi), [G], rtol=1e-9)


def test_a_lever_with_a_spring_in_a_model():
    """A rod on a hinge, held by a spring of the joint: k φ = m g (l/2) cos φ."""
    model = mb.Model(gravity=(0, -G, 0))
    rod = model.add(mb.PlanarBody("rod", mass=2.0, moment=0.2, at=(0.5, 0.0)))
    hinge = model.add(mb.Revolute("hinge", model.ground, rod, at=(0, 0, 0)))
    model.add(mb.JointSpring("spring", hinge, stiffness=20.0))
    rest = model.equilibrium()
    angle = brentq(lambda x: 20 * x + 2 * G * 0.5 * np.cos(x), -1, 0)
    assert rest.stable
    assert np.arctan2(rod.x[1], rod.x[0]) == pytest.approx(angle, abs=1e-10)


def test_what_is_said_if_there_is_none(pendulum):
    free = ga.System(jnp.eye(1), lambda t, q, v: jnp.array([-1.0]))
    with pytest.raises(ga.EquilibriumNotFound, match=r"without bound.*unbalanced force is 1") as caught:
        ga.equilibrium(free, [0.0])
    assert not caught.value.best.found
    with pytest.raises(ga.EquilibriumNotFound, match="small changes do not reduce the force that is left"):
        ga.equilibrium(free, [0.0], find="nearest")
    never = ga.System(jnp.eye(1), free.force, lambda t, q: q**2 + 1, names={"holonomic": ["gap"]})
    with pytest.raises(ga.EquilibriumNotFound, match=r"cannot be satisfied.*holonomic\[0\] \(gap\): 1"):
        ga.equilibrium(never, [0.5])
    with pytest.raises(ValueError, match="'stable' or 'nearest'"):
        ga.equilibrium(pendulum, [0.0, 1.0], find="lowest")
    assert not ga.equilibrium(pendulum, [0.9, 0.3], max_iterations=1, throw=False).found
    moving = ga.System(jnp.eye(1), free.force, nonholonomic=lambda t, q, v: v - 1.0)
    with pytest.raises(ValueError, match="forbid rest"):
        ga.equilibrium(moving, [0.0])
