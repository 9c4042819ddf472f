"""Joints that follow others over whole turns, and warnings of runs whose rows cannot be true."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb

SPEED = 3.0


def following(kind: Any, coefficients: Any) -> mb.Model:
    """A wheel at constant speed, and a body that follows it."""
    model = mb.Model(gravity=(0, 0, 0))
    wheel = model.add(mb.PlanarBody("wheel", 1.0, 1.0, angular_velocity=SPEED))
    hinge = model.add(mb.Revolute("hinge", model.ground, wheel, at=(0, 0)))
    body = model.add(mb.PlanarBody("body", 1.0, 1.0, at=(1, 0)))
    first = model.add(kind("first", model.ground, body, at=(1, 0), **kind_options(kind)))
    model.add(mb.Mimic("mimic", first, hinge, coefficients))
    model.assemble(rates={"hinge": SPEED})
    return model


def kind_options(kind: Any) -> dict[str, Any]:
    return {"axis": (1, 0)} if kind is mb.Prismatic else {}


@pytest.mark.parametrize("how", [{"h": 0.01}, {"rtol": 1e-5, "method": "index3"}], ids=str)
@pytest.mark.parametrize(
    ("kind", "ratio"),
    [
        (mb.Prismatic, 0.1),
        (mb.Prismatic, -0.377),
        (mb.Revolute, 0.3),
        (mb.Revolute, -2.5),
        (mb.Revolute, 3.0),
    ],
)
def test_whole_turns_are_followed(kind: Any, ratio: float, how: Any) -> None:
    """Nearly three turns at constant speed: c₀ + c₁ angle, and a force that does no work."""
    model = following(kind, [0.2, ratio])
    sol = model.solve((0.0, 6.0), **how)
    motion = model.motion(sol)
    np.testing.assert_allclose(motion.coordinate("hinge"), SPEED * sol.t, atol=1e-8)
    np.testing.assert_allclose(motion.coordinate("first"), 0.2 + ratio * SPEED * sol.t, atol=1e-8)
    np.testing.assert_allclose(motion.energy()["kinetic"], motion.energy()["kinetic"][0], rtol=1e-9)


@pytest.mark.parametrize("coefficients", [[0.0, 0.377], [0.0, 1.0, 0.1]], ids=str)
def test_other_followed_angles_stop_before_half_a_turn(coefficients: Any) -> None:
    """An odd ratio and a polynomial: the run ends at 3 rad, and the message names the row."""
    model = following(mb.Revolute, coefficients)
    sol = model.solve((0.0, 2.0), h=0.01, throw=False)
    assert not sol.success
    assert "(mimic.mimic) is nan" in sol.message
    assert 2.9 < model.motion(sol).coordinate("hinge")[-1] <= 3.0


@pytest.mark.parametrize(
    ("kind", "coefficients"),
    [
        (mb.Revolute, [0.2, 1 / 32]),
        (mb.Revolute, [2.9, 0.5]),
        (mb.Revolute, [1.0, -1 / 3]),
        (mb.Prismatic, [0.5, 0.01]),
    ],
)
def test_joints_close_where_the_coefficients_say(kind: Any, coefficients: Any) -> None:
    """Not a tooth further on; but after whole turns they stay where they are."""
    model = following(kind, [0.0, coefficients[1]])
    model._things["mimic"] = mb.Mimic("mimic", model["first"], model["hinge"], coefficients)
    model._forget()
    q, v = model.pose({"hinge": 0.7, "first": 0.0})
    model.place(q, v)
    model.assemble(hold=["hinge"])
    now = model.motion((0.0, model.q0, model.v0))
    np.testing.assert_allclose(now.coordinate("hinge"), 0.7, atol=1e-9)
    off = now.coordinate("first") - coefficients[0] - 0.7 * coefficients[1]
    np.testing.assert_allclose(off - 2 * np.pi * np.round(off / (2 * np.pi)), 0, atol=1e-9)
    turned = 0.7 + 2 * np.pi
    q, v = model.pose({"hinge": turned, "first": coefficients[0] + turned * coefficients[1]})
    model.place(q, v)
    model.assemble()
    np.testing.assert_allclose(model.q0, q, atol=1e-9)


def test_coefficients_of_another_form_are_refused() -> None:
    """Whole turns would count in another way."""
    hinges, slide = following(mb.Revolute, [0.0, 0.5]), following(mb.Prismatic, [0.0, 0.1])
    for model, value in ((hinges, [0.0, 1 / 3]), (hinges, [0.0, 0.377]), (slide, [0.0, 0.0])):
        with pytest.raises(ValueError, match="whole turns would count in another way"):
            model.solve((0.0, 0.1), {"mimic.coefficients": value}, h=0.01, initial="project")
    with pytest.raises(ValueError, match="whole turns would count in another way"):
        hinges.solve_batch((0.0, 0.1), {"mimic.coefficients": [[0.0, 0.5], [0.0, 1 / 3]]}, h=0.01)
    within = following(mb.Revolute, [0.0, 1.0, 0.1])  # stays within half a turn, where all forms are valid
    for model, value in ((hinges, [0.3, 1.0]), (within, [0.0, 0.5, 0.0]), (within, [0.1, 0.2, 0.3])):
        assert model.solve((0.0, 0.1), {"mimic.coefficients": value}, h=0.01, initial="project").success
    sol = hinges.solve((0.0, 6.0), {"mimic.coefficients": [0.0, 1.5]}, h=0.01, initial="project")
    motion = hinges.motion(sol)
    np.testing.assert_allclose(motion.coordinate("first"), 1.5 * motion.coordinate("hinge"), atol=1e-7)
    assert motion.coordinate("hinge")[-1] > 2 * np.pi


@pytest.mark.parametrize(
    ("coefficients", "fits"),
    [([0.0, 2.0], True), ([0.1, -1.5], True), ([0.0, 1 / 3], False), ([0.0, 0.377], False)],
    ids=str,
)
def test_traced_coefficients_of_another_form_fail(coefficients: Any, fits: bool) -> None:
    """They are known during the run only. The model has a ratio of halves."""
    model = following(mb.Revolute, [0.0, 0.5])

    def end(c: Any) -> Any:
        sol = model.solve((0.0, 2.5), {"mimic.coefficients": c}, h=0.05, initial="project")
        return sol.q[-1], sol.status

    (q, status), (slopes, _) = jax.jvp(end, (jnp.array(coefficients),), (jnp.array([0.0, 1.0]),))
    if fits:
        assert status == 0
        off = q[5] - coefficients[0] - coefficients[1] * q[2]
        assert off - 2 * np.pi * np.round(off / (2 * np.pi)) == pytest.approx(0.0, abs=1e-6)
        assert np.isfinite(slopes).all()
    else:
        assert status > 0


def test_traced_coefficients_of_higher_powers_fail() -> None:
    for kind, ratio in ((mb.Revolute, 0.5), (mb.Prismatic, 0.1)):
        model = following(kind, [0.0, ratio, 0.0])

        def status(c: Any, model: mb.Model = model) -> Any:
            return model.solve((0.0, 0.1), {"mimic.coefficients": c}, h=0.05, initial="project").status

        found = jax.jit(jax.vmap(status))(jnp.array([[0.0, ratio, 0.0], [0.0, ratio, 0.1]]))
        assert found[0] == 0
        assert found[1] > 0


def driven(kind: Any, motion: Any) -> mb.Model:
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.Body("body", mb.box(1.0, (1, 1, 1))))
    joint = model.add(kind("joint", model.ground, body, at=(0, 0, 0), axis=(1, 0, 0)))
    model.add(mb.Driven("drive", joint, motion))
    return model


@pytest.mark.parametrize("how", [{"h": 0.01}, {"rtol": 1e-5}], ids=str)
@pytest.mark.parametrize(
    ("kind", "jump", "message"),
    [
        (
            mb.Revolute,
            np.pi,
            "'drive' of 'ground' and 'body'> is half a turn from where it should be at t = 1",
        ),
        (mb.Revolute, 0.2, "the body 'body' moves further between"),
        (mb.Prismatic, 0.1, "the body 'body' moves further between"),
    ],
)
def test_prescribed_motions_that_jump(kind: Any, jump: float, message: str, how: Any) -> None:
    model = driven(kind, lambda t: jnp.where(t < 0.5, 0.0, jump))
    with pytest.warns(UserWarning, match=message):
        model.solve((0.0, 1.0), **how)


def test_fast_prescribed_motions_are_no_jumps() -> None:
    """Ramps whose rates jump, many turns, and rests between moves give no warning."""
    for kind in (mb.Revolute, mb.Prismatic):
        model = driven(kind, lambda t: 40.0 * jnp.clip(t - 0.3, 0.0, 0.4) ** 2)
        model.solve((0.0, 1.0), h=0.02)
        assert model.motion(model.solve((0.0, 1.0), rtol=1e-4)).coordinate("joint")[-1] == pytest.approx(6.4)


def test_rows_that_were_left_out_and_contradict_others_later() -> None:
    """Two motions that agree at the start alone, and a hinge that other values open."""
    model = mb.Model(gravity=(0, 0, 0))
    pins = []
    for name, x in (("one", 0.0), ("two", 1.0)):
        body = model.add(mb.PlanarBody(name, 1.0, 1.0, at=(x, 0)))
        pins.append(model.add(mb.Revolute(f"pin {name}", model.ground, body, at=(x, 0))))
    model.add(mb.Gear("gear", *pins, teeth=(10, 10)))
    model.add(mb.Driven("first", pins[0], lambda t: t**3))
    model.add(mb.Driven("second", pins[1], lambda t: -3 * t**3))
    model.assemble(redundant="drop")
    with pytest.warns(UserWarning, match="the row 'second', drive was left out as redundant, and is off by"):
        model.solve((0.0, 1.0), h=0.01)
    door = mb.Model()
    leaf = door.add(mb.Body("leaf", mb.box(1.0, (1, 0.1, 2)), at=(0.5, 0, 0)))
    for name, z in (("low", -0.5), ("high", 0.5)):
        door.add(mb.Revolute(name, door.ground, leaf, at=(0, 0, z), axis=(0, 0, 1)))
    door.assemble(redundant="drop")
    door.solve((0.0, 0.1), {"leaf.mass": 2.0}, h=0.01)
    with pytest.warns(UserWarning, match=r"the row 'high', x was left out .* is off by 0.3 at t = 0"):
        door.solve((0.0, 0.1), {"high.a": [0.3, 0.0, 0.5]}, h=0.01)


def rack() -> mb.Model:
    """A pinion and a rack, at constant speed."""
    model = mb.Model(gravity=(0, 0, 0))
    wheel = model.add(mb.PlanarBody("wheel", 1.0, 1.0, angular_velocity=3.0))
    bar = model.add(mb.PlanarBody("bar", 1.0, 1.0, at=(0, 1), velocity=(3.0, 0)))
    hinge = model.add(mb.Revolute("hinge", model.ground, wheel, at=(0, 0)))
    slide = model.add(mb.Prismatic("slide", model.ground, bar, at=(0, 1), axis=(1, 0)))
    model.add(mb.Rack("rack", hinge, slide, 1.0))
    return model


def test_runs_with_numbers_in_args_are_looked_at_with_them(recwarn: Any) -> None:
    model = rack()
    other = model.args({"rack.radius": 2.0})
    sol = model.solve((0.0, 1.0), args=other, h=0.01, initial="project")
    assert sol.q[-1, 2] == pytest.approx(sol.q[-1, 3] / 2, abs=1e-8)

    def turn(t: Any, q: Any, v: Any, *args: Any) -> ga.Reset:
        q, v = jnp.asarray(q), jnp.asarray(v)
        return ga.Reset(q=q.at[2].set(q[3] / 2), v=v.at[2].set(v[3] / 2), args=other)

    event = ga.Event(lambda t, q, v, *args: t - 0.505, reset=turn)
    sol = model.solve((0.0, 2.0), args=model.args({}), h=0.05, events=[event])
    assert len(sol.t_events[0]) == 1
    assert sol.q[-1, 2] == pytest.approx(sol.q[-1, 3] / 2, abs=1e-8)
    assert not recwarn


def test_rows_left_out_with_numbers_in_args() -> None:
    """The hinge has its place on the axis left out."""
    door = mb.Model()
    leaf = door.add(mb.Body("leaf", mb.box(1.0, (1, 0.1, 2)), at=(0.5, 0, 0)))
    door.add(mb.Spherical("low", door.ground, leaf, at=(0, 0, -0.5)))
    door.add(mb.Revolute("high", door.ground, leaf, at=(0, 0, 0.5), axis=(0, 0, 1)))
    door.assemble(redundant="drop")
    door.solve((0.0, 0.1), args=door.args({"leaf.mass": 2.0}), h=0.05)
    values = {"high.a": [0.3, 0.0, 0.5], "low.a": [0.3, 0.0, -0.4]}
    with pytest.warns(UserWarning, match="was left out as redundant, and is off by"):
        door.solve((0.0, 0.1), args=door.args(values), h=0.05, initial="project")


def test_prescribed_motions_are_evaluated_once() -> None:
    """Before and after runs: again for another time, or if they read another number."""
    calls, read = [0], {"rate": 1.0}

    def motion(t: Any) -> Any:
        calls[0] += 1
        return read["rate"] * t

    model = driven(mb.Revolute, motion)
    again = lambda end: model.solve((0.0, end), h=0.05, initial="project")
    again(0.1)
    again(0.1)
    before = calls[0]
    again(0.1)
    assert calls[0] == before
    again(0.2)
    assert calls[0] == before + 1
    read["rate"] = 2.0
    assert model.motion(again(0.2)).coordinate("joint")[-1] == pytest.approx(0.4)


# --- what cannot be changed ----------------------------------------------------------------------------


def test_arguments_of_constructors_cannot_be_set() -> None:
    """Nothing would change: other values are for a run."""
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.Body("body", mb.box(1.0, (1, 1, 1))))
    hinge = model.add(mb.Revolute("hinge", model.ground, body, at=(0, 0, 0), axis=(0, 0, 1)))
    motor = model.add(mb.Motor("motor", hinge, effort=1.0))
    push = model.add(mb.AppliedForce("push", body, force=(1, 0, 0)))
    for thing, key in (
        (motor, "effort"),
        (motor, "limit"),
        (push, "force"),
        (push, "torque"),
        (push, "name"),
    ):
        with pytest.raises(
            AttributeError, match=f"{key} of '{thing.name}' cannot be changed.*'{thing.name}."
        ):
            setattr(thing, key, 5.0)
    for key in ("axis", "at", "friction", "a"):
        with pytest.raises(
            AttributeError, match=f"{key} of 'hinge' cannot be changed: make another Revolute"
        ):
            setattr(hinge, key, (1, 0, 0))
    with pytest.raises(TypeError, match=r"pass values={'body.mass': \.\.\.} to model.solve"):
        model.values["body.mass"] = np.array(2.0)
    with pytest.raises(ValueError, match="read-only"):
        model.values["gravity"][2] = 1.0


def test_values_are_copied_and_not_changed() -> None:
    """A change would have no effect on the model. A copy is a plain dictionary."""
    model = following(mb.Revolute, [0.0, 1.0])
    values = model.values
    for copied in (copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)), dict):
        again = copied(values)
        assert type(again) is dict
        assert {*again} == {*values}
        again["wheel.mass"] = 2.0
    for change in (
        lambda: values.update({"wheel.mass": 2.0}),
        lambda: values.update([("wheel.mass", 2.0)]),
        lambda: values.setdefault("wheel.mass", 2.0),
        lambda: values.pop("wheel.mass"),
        lambda: values.__ior__({"wheel.mass": 2.0}),
        lambda: values.__delitem__("wheel.mass"),
        values.clear,
        values.popitem,
    ):
        with pytest.raises(TypeError, match=r"model.values cannot be changed: pass values={'.*mass': "):
            change()


def test_signatures_of_connectors() -> None:
    """For help and for editors; a class without a constructor of its own has that of its base."""

    class Hinge(mb.Revolute):
        pass

    for kind in (Hinge, mb.Revolute, mb.Mimic, mb.SpringDamper):
        expected = [*inspect.signature(kind.__init__).parameters][1:]
        assert [*inspect.signature(kind).parameters] == expected
    assert list(inspect.signature(mb.Mimic).parameters) == ["name", "first", "second", "coefficients", "of"]


def test_where_a_body_is_is_checked_when_it_is_set() -> None:
    body, flat, point = (
        mb.Body("body", mb.box(1.0, (1, 1, 1))),
        mb.PlanarBody("flat", 1.0, 1.0),
        mb.PointMass("point", 1.0),
    )
    body.velocity, body.R, flat.angle = [1, 0, 0], np.eye(3).tolist(), 0.3
    assert isinstance(body.velocity, np.ndarray)
    for thing, key, value, message in (
        (body, "x", (1, 2, 3, 4), "x of 'body' must be 3 finite numbers"),
        (body, "velocity", (1, np.nan, 0), "velocity of 'body' must be 3 finite numbers"),
        (body, "R", 2 * np.eye(3), "R of 'body' is not orthonormal"),
        (body, "angle", 0.3, "has no angle: set R"),
        (body, "name", "other", "the name of <Body 'body'> cannot be changed"),
        (flat, "velocity", (1, 2, 3), "velocity of 'flat' must be 2 finite numbers"),
        (flat, "angular_velocity", "fast", "angular_velocity of 'flat' must be a number"),
        (flat, "R", np.eye(3), "R of 'flat' cannot be set: a PlanarBody has an angle"),
        (point, "R", np.eye(3), "a PointMass no axes"),
    ):
        with pytest.raises((ValueError, TypeError, AttributeError), match=message):
            setattr(thing, key, value)


def test_rotations_of_scipy_are_taken() -> None:
    from scipy.spatial.transform import Rotation

    turned = Rotation.from_euler("xyz", [0.1, 0.2, 0.3])
    body = mb.Body("body", mb.box(1.0, (1, 1, 1)), rotation=turned)
    np.testing.assert_allclose(body.R, turned.as_matrix(), atol=1e-15)


def test_suffixes_of_files(tmp_path: Any) -> None:
    model = following(mb.Revolute, [0.0, 1.0])
    with pytest.raises(ValueError, match=r"a model is written as JSON, not as \.toml"):
        model.save(tmp_path / "model.toml")
    page = model.view(model.solve((0.0, 0.1), h=0.05))
    with pytest.raises(ValueError, match=r"an HTML page, not as \.png"):
        page.save(tmp_path / "page.png")
    assert not list(tmp_path.iterdir())
    assert isinstance(page, ga.View)
    model.save(os.fsencode(tmp_path / "robot.v2"))
    assert (tmp_path / "robot.v2").read_text().startswith("{")
