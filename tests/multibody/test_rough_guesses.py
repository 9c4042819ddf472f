"""Models whose bodies are far from where their joints want them, and input of models that cannot be meant."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import genalpha as ga
from genalpha import multibody as mb

# --- teeth and threads: the nearest position -------------------------------------------------------------


def gears(off: float) -> mb.Model:
    """Two wheels with 17 and 31 teeth. The first is turned away from where they mesh."""
    model = mb.Model(gravity=(0, 0, 0))
    wheels = [model.add(mb.PlanarBody(name, 1.0, 0.1, at=(x, 0))) for x, name in enumerate("ab")]
    first, second = (
        model.add(mb.Revolute(f"hinge {w.name}", model.ground, w, at=(x, 0))) for x, w in enumerate(wheels)
    )
    model.add(mb.Gear("gear", first, second, (17, 31)))
    wheels[0].angle = off
    return model


@pytest.mark.parametrize("off", [0.02, 0.1, 0.16])
def test_gears_mesh_by_the_least_change(off: float) -> None:
    """Least squares on one row, 17 a + 31 b = 0."""
    model = gears(off)
    model.assemble()
    way = np.array([17.0, 31.0]) / np.hypot(17.0, 31.0)
    closed = np.array([off, 0.0]) - way * (way @ [off, 0.0])
    np.testing.assert_allclose([model["a"].angle, model["b"].angle], closed, atol=1e-9)


def test_a_gear_that_is_held_turns_the_other_one() -> None:
    model = gears(0.1)
    model.assemble(hold=["hinge a"])
    assert model["b"].angle == pytest.approx(-1.7 / 31, abs=1e-12)


def rack(x: float) -> mb.Model:
    model = mb.Model(gravity=(0, 0, 0))
    pinion = model.add(mb.PlanarBody("pinion", 1.0, 0.1))
    bar = model.add(mb.PlanarBody("bar", 1.0, 0.1, at=(1, 0)))
    hinge = model.add(mb.Revolute("hinge", model.ground, pinion, at=(0, 0)))
    slide = model.add(mb.Prismatic("slide", model.ground, bar, at=(1, 0), axis=(1, 0)))
    model.add(mb.Rack("rack", hinge, slide, 0.02))
    bar.x = (x, 0, 0)
    return model


@pytest.mark.parametrize("travel", [0.02, 0.03, 0.05])
def test_a_rack_closes_by_the_least_change(travel: float) -> None:
    """Nearest point on x = 0.02 a, with lengths in units of 1 + travel. A held bar turns the pinion."""
    model = rack(1 + travel)
    model.assemble()
    a = 0.02 * travel / ((1 + travel) ** 2 + 0.02**2)
    np.testing.assert_allclose([model["bar"].x[0] - 1, model["pinion"].angle], [0.02 * a, a], atol=1e-9)
    model = rack(1 + travel)
    model.assemble(hold=["slide"])
    np.testing.assert_allclose([model["bar"].x[0] - 1, model["pinion"].angle], [travel, travel / 0.02])


def test_a_screw_closes_at_the_nearest_turn() -> None:
    model = mb.Model(gravity=(0, 0, 0))
    nut = model.add(mb.Body("nut", mb.cylinder(1.0, 0.05, 0.1)))
    screw = model.add(mb.Screw("screw", model.ground, nut, 0.005, at=(0, 0, 0)))
    nut.x = (0, 0, 0.007)
    model.assemble(hold=[(screw, "displacement")])
    assert np.arctan2(nut.R[1, 0], nut.R[0, 0]) == pytest.approx(2 * np.pi * 0.4, abs=1e-9)


# --- bodies in line ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("planar", [True, False])
def test_a_four_bar_closes_from_one_line(planar: bool) -> None:
    """All bodies lie at the origin along x. By symmetry no row says to which side they should go."""
    model, lengths = mb.Model(gravity=(0, 0, 0)), (0.3, 1.0, 0.8)
    turned: dict[str, Any] = {} if planar else {"axis": (0, 0, 1)}
    bars: list[Any] = []
    for length in lengths:
        name = f"bar {length}"
        bars += [mb.PlanarBody(name, 1.0, 0.1) if planar else mb.Body(name, mb.rod(1.0, length, axis="x"))]
        model.add(bars[-1])
    end = lambda i, sign: bars[i].frame((sign * lengths[i] / 2, 0, 0), **turned)
    ends = [
        (model.ground.frame(**turned), end(0, -1)),
        (end(0, 1), end(1, -1)),
        (end(1, 1), end(2, 1)),
        (model.ground.frame((1.0, 0, 0), **turned), end(2, -1)),
    ]
    for name, (a, b) in zip("ABCD", ends, strict=True):
        model.add(mb.Revolute(name, a, b))
    assert model.assemble(redundant="drop").freedom == 1
    motion = model.motion((0.0, model.q0, model.v0))
    for a, b in ends:
        np.testing.assert_allclose(motion.position(a), motion.position(b), atol=1e-9)


def rough_four_bar(unit: float, origin: tuple[float, float]) -> list[Any]:
    """Three bars with wrong positions and velocities, in some unit of length."""
    model, lengths, bars = mb.Model(gravity=(0, 0, 0)), (0.3, 1.0, 0.8), list[Any]()
    at = lambda x, y: (origin[0] + unit * x, origin[1] + unit * y)
    guesses = ((0.0, 0.1, 1.4), (0.5, 0.4, 0.5), (1.1, 0.3, -1.9))
    for length, (x, y, angle) in zip(lengths, guesses, strict=True):
        more: dict[str, Any] = {"at": at(x, y), "angle": angle, "velocity": (-0.3 * unit, 0.1 * unit)}
        bars.append(
            model.add(mb.PlanarBody(f"bar {length}", 1.0, 0.1 * unit**2, angular_velocity=2.0, **more))
        )
    end = lambda i, sign: bars[i].frame((sign * unit * lengths[i] / 2, 0, 0))
    hooks = [model.ground.frame((*at(x, 0.0), 0.0)) for x in (0.0, 1.0)]
    ends = [(hooks[0], end(0, -1)), (end(0, 1), end(1, -1)), (end(1, 1), end(2, 1)), (hooks[1], end(2, -1))]
    for name, (a, b) in zip("ABCD", ends, strict=True):
        model.add(mb.Revolute(name, a, b))
    model.assemble()
    return bars


def test_units_and_the_place_of_the_origin_do_not_matter() -> None:
    unit, origin = 1000.0, (7000.0, -3000.0)
    for a, b in zip(rough_four_bar(1.0, (0.0, 0.0)), rough_four_bar(unit, origin), strict=True):
        np.testing.assert_allclose((b.x[:2] - origin) / unit, a.x[:2], atol=1e-8)
        np.testing.assert_allclose(b.velocity[:2] / unit, a.velocity[:2], atol=1e-8)
        np.testing.assert_allclose([b.angle, b.angular_velocity], [a.angle, a.angular_velocity], atol=1e-8)


def test_points_in_one_place() -> None:
    """A string of three rods between two hooks, with all of its points at the first hook."""
    model = mb.Model()
    points = [model.add(mb.PointMass(name, 1.0)) for name in "ab"]
    hooks = model.ground.frame((0, 0, 0)), model.ground.frame((2.5, 0, 0))
    for i, (a, b) in enumerate(zip((hooks[0], *points), (*points, hooks[1]), strict=True)):
        model.add(mb.Distance(f"rod {i}", a, b, 1.0))
    model.assemble()
    places = np.array([[0, 0, 0], *(point.x for point in points), [2.5, 0, 0]])
    np.testing.assert_allclose(np.linalg.norm(np.diff(places, axis=0), axis=1), 1.0, atol=1e-9)


# --- what cannot be meant ---------------------------------------------------------------------------------


def wheel() -> tuple[mb.Model, mb.PlanarBody, Any]:
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.PlanarBody("wheel", 1.0, 0.1))
    return model, body, model.add(mb.Revolute("hinge", model.ground, body, at=(0, 0)))


def rolling_point(kind: Any, *more: float) -> Any:
    model = mb.Model()
    point = model.add(mb.PointMass("p", 1.0, at=(0, 0, 0.1)))
    return model.add(kind("r", model.ground, point, *more))


def flat_disk(what: Callable[[mb.Model], Any]) -> Any:
    model = mb.Model()
    disk = model.add(mb.Body("disk", mb.cylinder(1.0, 0.3, 0.05), at=(0, 0, 0.3), velocity=(1, 0, 0)))
    model.add(mb.RollingDisk("roll", model.ground, disk, 0.3))
    return what(model)


def unmotivated() -> Any:
    model, _, hinge = wheel()
    model.add(mb.Motor("motor", hinge, lambda t: None))
    return model.solve((0.0, 1.0), h=0.1)


def pushed(values: dict[str, float]) -> Any:
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.Body("body", mb.sphere(mass=1.0, radius=0.1)))
    model.add(mb.AppliedForce("push", body, force=(1, 0, 0)))
    return model.solve((0.0, 1.0), values, h=0.1)


def other(name: str) -> Any:
    _, _, hinge = wheel()
    return hinge, mb.Revolute(name, mb.Model().ground, mb.PlanarBody("b", 1.0, 1.0), at=(0, 0))


WRONG: dict[str, Callable[[], Any]] = {
    "<RollingSphere 'r'.*a point mass has no axes": lambda: rolling_point(mb.RollingSphere, 0.1),
    "<RollingDisk 'r'.*a point mass has no axes": lambda: rolling_point(mb.RollingDisk, 0.1),
    "<KnifeEdge 'r'.*a point mass has no axes": lambda: rolling_point(mb.KnifeEdge),
    "in velocity its z must be 0": lambda: mb.PlanarBody("b", 1.0, 2.0, velocity=(0, 0, 1.0)),
    r"in center its z must be 0, got \(0, 0, 0.1\)": lambda: mb.PlanarBody("b", 1, 2, center=(0, 0, 0.1)),
    "'c' has an inertia: leave out mass": lambda: mb.PlanarBody("c", 1.0, 2.0, inertia=mb.sphere(3.0, 1.0)),
    "disk of 'roll' lies flat on its plane": lambda: flat_disk(lambda model: model.assemble()),
    "hold must be a list of names": lambda: wheel()[0].assemble(hold=5),  # type: ignore[arg-type]
    "q0 is no option: .* see model.place": lambda: wheel()[0].solve((0.0, 1.0), h=0.1, q0=[0.0, 0, 0]),
    "effort must return one number, got None": unmotivated,
    r"\(3, 3\) numbers.* got \[\[1, 0\], \[1\]\]": lambda: mb.Inertia(1.0, [[1, 0], [1]]),
    "three principal moments, got 'abc'": lambda: mb.Inertia.in_frame(1.0, "abc", (0, 0, 0)),
    "push.follows must be 0 or 1": lambda: pushed({"push.follows": 0.5}),
    "coefficients of 'm' must be one or more": lambda: mb.Mimic("m", *other("second"), ["a", 1]),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_meant(message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        WRONG[message]()


def test_a_disk_that_lies_flat_is_named_at_the_start() -> None:
    with pytest.raises(ValueError, match="is NaN or infinite") as error:
        flat_disk(lambda model: model.solve((0.0, 1.0), h=0.1))
    assert "'roll' lies flat on its plane" in str(error.value)


def test_rates_that_contradict_each_other_are_named() -> None:
    model = gears(0.0)
    with pytest.raises(ValueError, match=r"contradict others.*now: 'hinge a', 'hinge b'"):
        model.assemble(rates={"hinge a": 1.0, "hinge b": 1.0})


def test_motions_of_states() -> None:
    """The a and λ in the state of a run are those of the method, at other times: they are no results."""
    model = mb.Model(gravity=(0, -9.81, 0))
    bar = model.add(mb.PlanarBody("bar", 2.0, 0.1, at=(0.5, 0)))
    model.add(mb.Revolute("pin", model.ground, bar, at=(0, 0)))
    sol, at = model.solve((0.0, 0.5), h=0.01), (0.0, model.q0, model.v0)
    np.testing.assert_array_equal(model.motion(sol.state).velocity("bar"), sol.v[-1:] * [1, 1, 0])
    for ask in (lambda m: m.acceleration("bar"), lambda m: m.reaction("pin")):
        for alone in (at, sol.state):
            with pytest.raises(ValueError, match=r"velocities alone do not have: .*ga.consistent"):
                ask(model.motion(alone))
    falling = 9.81 * 2.0 * 0.5**2 / (0.1 + 2.0 * 0.5**2)
    found = model.motion(ga.consistent(model.system, *at))
    np.testing.assert_allclose(found.acceleration("bar"), [[0, -falling, 0]], atol=1e-12)
    np.testing.assert_allclose(found.reaction("pin").force, [[0, 2.0 * (9.81 - falling), 0]], atol=1e-12)
    with pytest.raises(ValueError, match="the solution has not saved 'v'"):
        model.motion(model.solve((0.0, 0.5), h=0.01, save=("all", ["q"])))


def test_things_stand_for_their_names() -> None:
    model, body, hinge = wheel()
    model.assemble(rates={hinge: 1.0})
    assert body.angular_velocity == pytest.approx(1.0)
    model.assemble(hold=body, rates={})
    model.assemble(hold=[hinge], rates={(hinge, "angle"): 2.0})
    assert body.angular_velocity == pytest.approx(2.0)


def test_a_copy_of_a_model_takes_other_things() -> None:
    model, *_ = wheel()
    twin = copy.copy(model)
    twin.add(mb.PlanarBody("more", 1.0, 1.0))
    assert ([*model], [*twin]) == (["wheel", "hinge"], ["wheel", "hinge", "more"])
    assert isinstance(twin.solve((0.0, 0.1), h=0.05), ga.Solution)
