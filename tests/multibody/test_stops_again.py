"""Stops and events that are made anew for each run, and runs with friction that need other pivots."""

import numpy as np

import genalpha as ga
from genalpha import multibody as mb
from genalpha.backends.rowwise import Rowwise


def door():
    model = mb.Model()
    leaf = model.add(mb.Body("leaf", mb.box(25.0, (0.9, 0.04, 2.0)), at=(0.45, 0, 1.0)))
    rubs = mb.Friction(0.1, radius=0.01, face=0.012, speed=0.01)
    hinge = model.add(mb.Revolute("hinge", model.ground, leaf, at=(0, 0, 0.2), axis=(0, 0, 1), friction=rubs))
    model.add(mb.JointSpring("closer", hinge, law=lambda angle, rate: -5.0 - 8 * angle - 6 * rate))
    model.assemble(rates={"hinge": 6.0})
    return model


def test_stops_that_are_made_anew_compile_nothing(monkeypatch):
    """Nor does XLA compile anything in the first run, though events need other pivots than the start."""
    monkeypatch.setattr(Rowwise, "_xla", None)
    model, made = door(), []
    for _ in range(2):
        stops = model.stops("hinge", lower=0.0, upper=1.0, restitution=0.3)
        sol = model.solve((0.0, 2.0), rtol=1e-5, events=[*stops, model.event("hinge", 0.5)])
        made.append(len(model.system._programs))
        assert [len(x) > 0 for x in sol.t_events] == [True, True, True]
    assert made[0] == made[1]
    assert model.stops("hinge", lower=0.0)[0] != model.stops("hinge", lower=0.1)[0]
    assert model.event("hinge", 0.5) == model.event("hinge", 0.5) != model.event("hinge", 0.5, rate=True)


def test_rows_that_need_other_pivots_have_machine_code(monkeypatch):
    monkeypatch.setattr(Rowwise, "_xla", None)
    solve = Rowwise(
        "solve", lambda A, b: ga.numerics.linear.solve_once(A, b), (np.diag([1.0, 1.0]), np.ones(2))
    )
    turned, b = np.array([[0.0, 2.0], [4.0, 0.0]]), np.array([2.0, 4.0])
    both = np.stack([np.eye(2), turned, 3 * turned])
    np.testing.assert_allclose(solve((both, np.stack([b] * 3))), [b, [1, 1], [1 / 3, 1 / 3]], atol=1e-15)


def test_rows_without_numbers_do_not_choose_pivots():
    """Rows after them would have been computed by XLA for good."""
    solve = Rowwise("solve", ga.numerics.linear.solve_once, (np.eye(2), np.ones(2)))
    turned = np.array([[0.0, 2.0], [4.0, 0.0]])
    found = solve((np.stack([np.full((2, 2), np.nan), turned]), np.array([[2.0, 4.0]])))
    np.testing.assert_allclose(found, [[np.nan, np.nan], [1, 1]])
    solve._xla = None
    np.testing.assert_allclose(solve((turned[None], np.array([[2.0, 4.0]]))), [[1, 1]])


def loop_with_friction():
    """A loop with friction in a bearing of some length, which moves from the start."""
    model = mb.Model(gravity=(0, 1, -9.81))
    body = lambda name, mass, moments, at: model.add(mb.Body(name, mb.Inertia(mass, moments), at=at))
    crank = body("crank", 1.0, (0.02, 0.03, 0.04), (0, 0.1, 0))
    rod = body("rod", 2.0, (0.05, 0.06, 0.02), (0.4, 0.1, 0))
    slider = body("slider", 1.5, (0.02, 0.02, 0.02), (0.8, 0, 0))
    rubs = mb.Friction(0.2, radius=0.02, length=0.1, speed=0.05)
    model.add(mb.Revolute("hinge", model.ground, crank, at=(0, 0, 0), axis=(1, 0, 0), friction=rubs))
    model.add(mb.Spherical("ball", crank, rod, at=(0, 0.2, 0)))
    model.add(mb.Universal("cross", rod, slider, at=(0.8, 0, 0), axis=(0, 0, 1), second=(0, 1, 0)))
    model.add(mb.Prismatic("guide", model.ground, slider, at=(0.8, 0, 0), axis=(1, 0, 0)))
    model.assemble(rates={"hinge": 6.0})
    return model


def test_accuracy_with_friction_in_a_bearing():
    """Newton's method for the multipliers of the first row does not converge from zero."""
    model = loop_with_friction()
    sol = model.solve((0.0, 0.5), accuracy=1e-6, t_eval=np.linspace(0.0, 0.5, 5))
    expected = ga.consistent(model.system, 0.0, model.q0, model.v0)
    np.testing.assert_allclose(sol.q[0], model.q0, atol=1e-9)
    np.testing.assert_allclose(sol.a[0], expected.a, atol=1e-6)
    steps = model.solve((0.0, 0.5), h=1e-3, t_eval=np.linspace(0.0, 0.5, 5))
    np.testing.assert_allclose(sol.q, steps.q, atol=2e-4)
    assert all(np.isfinite(getattr(sol, name)).all() for name in ("q", "v", "a", "lam"))
