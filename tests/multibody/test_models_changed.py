"""Runs whose numbers change, models that were changed after a run, and models with thousands of rows."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from examples import iftomm, suspension
from examples.four_bar import linkage

import genalpha as ga
from genalpha import multibody as mb
from genalpha.multibody.closing import ranks


def hanging() -> mb.Model:
    model = mb.Model(gravity=(0, 0, -9.81))
    bob = model.add(mb.PointMass("bob", 1.0, at=(0, 0, -2)))
    model.add(mb.SpringDamper("spring", model.ground, bob, 100.0, length=1.0))
    return model


def row(bars: int) -> mb.Model:
    """Bars in a plane, each hinged to the one before."""
    model = mb.Model(gravity=(0, -9.81, 0))
    before: Any = model.ground
    for k in range(bars):
        bar = model.add(mb.PlanarBody(f"bar {k}", 1.0, 0.1, at=(k + 0.5, 0)))
        model.add(mb.Revolute(f"hinge {k}", before, bar, at=(k, 0)))
        before = bar
    return model


# --- numbers that change ------------------------------------------------------------------------------


def test_a_motion_has_the_numbers_of_its_run() -> None:
    model, values = hanging(), {"spring.stiffness": 1000.0, "bob.mass": 2.0, "gravity": [0.0, 0.0, -3.0]}
    sol = model.solve((0.0, 0.3), values, h=1e-3)
    found, wanted = model.motion(sol), model.motion(sol, values)
    for key in ("kinetic", "gravity", "springs"):
        np.testing.assert_array_equal(found.energy()[key], wanted.energy()[key])
    assert np.ptp(found.energy()["total"]) < 1e-5 * found.energy()["springs"].max()
    np.testing.assert_array_equal(found.power(model["spring"]), wanted.power("spring"))  # also by the thing
    assert found.energy()["springs"][0] == pytest.approx(500.0)


def test_numbers_that_change_during_a_run() -> None:
    """Rows of a run that goes on with other numbers, and of a controller that changes them."""
    model, values = hanging(), {"spring.stiffness": 1000.0, "bob.mass": 2.0}
    first = model.solve((0.0, 0.3), h=1e-3)
    second = model.solve((0.3, 0.6), values, h=1e-3, state=first.state)
    both = model.motion(ga.concatenate(first, second))
    parts = [model.motion(first), model.motion(second, values)]
    for of in (
        lambda x: x.power("spring"),
        lambda x: x.energy()["total"],
        lambda x: x.momentum().linear,
        lambda x: x.momentum(about=np.outer(x.t, [1.0, 2.0, 3.0])).angular,
    ):
        np.testing.assert_array_equal(of(both), np.concatenate([of(one) for one in parts]))

    softer = lambda t, q, v, s: (s, {"spring.stiffness": 100.0 - 50.0 * t})
    sol = model.solve((0.0, 0.3), h=0.01, controller=ga.Controller(0.1, softer, {"spring.stiffness": 1.0}))
    longer = np.linalg.norm(sol.q, axis=1) - 1.0
    stiffness = 100.0 - 50.0 * np.array([0.0, 0.1, 0.2]).repeat(11)
    np.testing.assert_allclose(model.motion(sol).energy()["springs"], 0.5 * stiffness * longer**2)


def test_coordinates_and_reactions_of_rows_with_other_numbers() -> None:
    model, values = row(2), {"bar 1.mass": 3.0}
    first = model.solve((0.0, 0.2), h=1e-2)
    second = model.solve((0.2, 0.4), values, h=1e-2, state=first.state)
    both = model.motion(ga.concatenate(first, second))
    parts = [model.motion(first), model.motion(second, values)]
    for of in (
        lambda x: x.reaction("hinge 1").force,
        lambda x: x.rate("hinge 0"),
        lambda x: x.coordinate("hinge 0"),
    ):
        np.testing.assert_allclose(of(both), np.concatenate([of(one) for one in parts]), atol=1e-12)


# --- models that were changed -------------------------------------------------------------------------


def test_a_run_from_before_a_joint_was_added() -> None:
    model = row(3)
    sol = model.solve((0.0, 0.1), h=0.01)
    before = model.motion(sol).energy()["gravity"]
    model.gravity = np.array([0.0, -1.0, 0.0])
    np.testing.assert_array_equal(model.motion(sol).energy()["gravity"], before)  # that of the run
    model.add(mb.SpringDamper("spring", model.ground.frame((5, 0, 0)), model["bar 2"], 10.0))
    with pytest.raises(ValueError, match=r"joints or forces of .* were added or left out after the run"):
        model.motion(sol)


def test_a_model_is_pickled_after_a_run() -> None:
    model = row(2)
    before = model.solve((0.0, 0.1), h=0.01)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.solve((0.0, 0.1), h=0.01).q, before.q)
    assert again.motion(before).energy()["kinetic"][-1] > 0


def test_events_of_another_model() -> None:
    model, other = row(1), row(2)
    events = [other.event("hinge 1", -0.5), other.event("hinge 1", 1.0, rate=True)]
    events += model.stops("hinge 0", lower=-0.5)
    model.add(mb.PointMass("new", 1.0, at=(0, 5, 0)))
    for event in events:
        with pytest.raises(ValueError, match="belongs to another model, or was made before"):
            model.solve((0.0, 0.1), h=0.01, events=event)


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("spring", "stiffness", "stiffness of 'spring' cannot be changed.*'spring.stiffness'"),
        ("bob", "mass", "mass of the body 'bob' cannot be changed.*'bob.mass'"),
        ("bob", "at", "at is for the constructor: set x, the centre of mass of 'bob'"),
        ("bob", "rotation", "set R, the axes"),
    ],
)
def test_attributes_that_would_change_nothing(name: str, key: str, message: str) -> None:
    with pytest.raises(AttributeError, match=message):
        setattr(hanging()[name], key, 1.0)


# --- thousands of rows --------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [iftomm.bricard, iftomm.squeezer, suspension.car, linkage])
def test_ranks_with_sparse_matrices_are_those_with_dense_ones(
    make: Callable[[], mb.Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for most in (ranks.DENSE, 0):
        monkeypatch.setattr(ranks, "DENSE", most)
        closed = make().assemble(redundant="keep")
        found.append((closed.freedom, len(closed.redundant)))
    assert found[0] == found[1]


def test_redundancy_among_thousands_of_rows() -> None:
    """A row of 1,600 bars, and a door on two hinges, of which five rows are redundant."""
    model = row(1600)
    door = model.add(mb.Body("door", mb.box(10.0, (0.8, 0.05, 2.0)), at=(0.4, 5, 1)))
    for k, z in enumerate((0.2, 1.8)):
        model.add(mb.Revolute(f"side {k}", model.ground, door, at=(0, 5, z), axis=(0, 0, 1)))
    with pytest.raises(ValueError, match="5 rows of joints depend on others: 'side"):
        model.assemble()
    closed = model.assemble(redundant="drop")
    assert (closed.freedom, len(closed.redundant)) == (1601, 5)
    assert model.solve((0.0, 2e-3), h=1e-3, method="index3").success


def test_an_impact_in_a_large_model() -> None:
    """The velocities after it are those of a small model with the same free bars."""
    small, large = row(2), row(2)
    for k in range(150):  # bodies that have nothing to do with it
        large.add(mb.PointMass(f"ball {k}", 1.0, at=(0, 0, k + 1.0)))
    ends = []
    for model in (small, large):
        stops = model.stops("hinge 1", lower=-0.02, upper=0.02, restitution=0.5)
        sol = model.solve((0.0, 0.2), h=2e-3, events=stops)
        assert sum(map(len, sol.t_events)) >= 1
        ends.append(sol.q[-1, :6])
    np.testing.assert_allclose(ends[0], ends[1], atol=1e-9)
