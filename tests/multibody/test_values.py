"""Runs of models with other numbers, by name."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from differences import EXACT, richardson
from genalpha import multibody as mb


def swing(stiffness=40.0, second=30.0, mass=2.0, arm=0.5, gravity=-9.81):
    """Two bodies that hang in hinges, with springs between them and to the ground."""
    model = mb.Model(gravity=(0, 0, gravity))
    bodies = []
    for i, m in enumerate((mass, 1.0)):
        inertia = mb.Inertia(m, np.diag([0.2, 0.25, 0.1]))
        body = model.add(mb.Body(f"body {i}", inertia, at=(float(i), 0.0, -arm if i == 0 else -0.5)))
        pin = model.ground.frame(at=(float(i), 0.0, 0.0), axis=(0, 1, 0))
        end = body.frame(at=(0, 0, arm if i == 0 else 0.5), axis=(0, 1, 0))
        model.add(mb.Revolute(f"hinge {i}", pin, end))
        bodies.append(body)
    model.add(mb.SpringDamper("spring", *bodies, stiffness=stiffness, damping=0.3, length=0.8))
    model.add(mb.SpringDamper("stay", model.ground, bodies[1], stiffness=second, length=0.4))
    return model


@pytest.fixture(scope="module")
def model():
    return swing()


RUN = {"t_span": (0.0, 0.2), "h": 0.01, "method": "index3"}


@pytest.mark.parametrize(
    ("values", "other"),
    [
        ({"spring.stiffness": 70.0}, {"stiffness": 70.0}),
        ({"stay.stiffness": np.array(50.0), "body 0.mass": 3.0}, {"second": 50.0, "mass": 3.0}),
        ({"gravity": (0, 0, -1.6)}, {"gravity": -1.6}),
    ],
    ids=str,
)
def test_other_numbers_are_those_of_another_model(model, values, other):
    found, expected = model.solve(values=values, **RUN), swing(**other).solve(**RUN)
    np.testing.assert_allclose(found.q, expected.q, rtol=0, atol=1e-12)
    assert np.abs(found.q - model.solve(**RUN).q).max() > 1e-4


def test_the_point_of_a_joint_on_a_body(model):
    other = swing(arm=0.7)
    values = {"hinge 0.b": (0.0, 0.0, 0.7)}
    found = model.solve(values=values, initial="project", **RUN)
    assert np.abs(found.residuals.position).max() < 1e-9
    np.testing.assert_allclose(model.args(values)[1][0][1]["r"], other.system.args[1][0][1]["r"], atol=0)


def test_values_names_all_numbers(model):
    values = model.values
    assert values["spring.stiffness"] == 40.0
    assert values["body 0.inertia"].shape == (3, 3)
    np.testing.assert_array_equal(values["hinge 1.b"], (0, 0, 0.5))
    jax.tree.map(np.testing.assert_array_equal, model.args(values), model.system.args)
    jax.tree.map(np.testing.assert_array_equal, model.args({}), model.system.args)


@pytest.mark.slow
def test_gradients_with_respect_to_numbers(model):
    """Against extrapolated differences of the same steps."""

    def height(e):
        values = {"spring.stiffness": 40.0 * (1 + e), "body 1.mass": 1.0 + e, "gravity": (0, e, -9.81)}
        sol = model.solve(values=values, newton=EXACT, **RUN | {"method": "soi2"})
        return jnp.sum(sol.q[:, 2]) + 0.01 * jnp.sum(sol.lam)

    expected = richardson(lambda e: float(height(e)), 0.02)
    assert float(jax.grad(height)(0.0)) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"spring.stifness": 1.0}, "no number 'spring.stifness': do you mean 'spring.stiffness'"),
        ({"gravity": 9.81}, r"gravity must have the shape \(3,\), got \(\)"),
        ({"body 0.mass": np.nan}, "body 0.mass must be finite, got nan"),
    ],
    ids=str,
)
def test_wrong_values_are_named(model, values, message):
    with pytest.raises(ValueError, match=message):
        model.solve(values=values, **RUN)
