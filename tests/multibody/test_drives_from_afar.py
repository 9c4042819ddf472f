"""Drives that start far from where the bodies are: the mechanism is moved there as it would move itself."""

from __future__ import annotations

import numpy as np
import pytest

from genalpha import multibody as mb

LENGTHS = (0.3, 1.0, 0.8, 1.1)  # crank, coupler, rocker, ground
Lengths = tuple[float, float, float, float]


def corners(angle: float, lengths: Lengths = LENGTHS) -> list[np.ndarray]:
    """The points A, B, C, D of a four-bar by plane geometry: C is on the left of the way from B to D."""
    crank, coupler, rocker, ground = lengths
    b, d = crank * np.array([np.cos(angle), np.sin(angle)]), np.array([ground, 0.0])
    r = np.linalg.norm(d - b)
    x = (coupler**2 - rocker**2 + r**2) / (2 * r)
    e = (d - b) / r
    return [np.zeros(2), b, b + x * e + np.sqrt(coupler**2 - x**2) * np.array([-e[1], e[0]]), d]


def four_bar(angle: float, planar: bool = True, lengths: Lengths = LENGTHS) -> mb.Model:
    """A four-bar whose crank is at an angle, with hinges of zero angle there."""
    model, (a, b, c, d) = mb.Model(gravity=(0, 0, 0)), corners(angle, lengths)
    bars, axis = [], {} if planar else {"axis": (0, 0, 1)}
    for name, (start, end) in {"crank": (a, b), "coupler": (b, c), "rocker": (d, c)}.items():
        at = (start + end) / 2
        if planar:
            turned = np.arctan2(*(end - start)[::-1])
            bars.append(model.add(mb.PlanarBody(name, 1.0, 0.1, at=at, angle=turned)))
        else:
            bars.append(model.add(mb.Body(name, mb.sphere(1.0, 0.1), at=(*at, 0))))
    ends = [(model.ground, bars[0]), (bars[0], bars[1]), (bars[1], bars[2]), (model.ground, bars[2])]
    for name, pair, at in zip("ABCD", ends, (a, b, c, d), strict=True):
        model.add(mb.Revolute(name, *pair, at=at if planar else (*at, 0), **axis))
    return model


@pytest.mark.parametrize("turned", [0.8, 1.5, 2.4, 3.1, -1.2, -2.9])
@pytest.mark.parametrize("angle", [0.0, 2.0, 4.0])
def test_a_four_bar_keeps_its_side(angle: float, turned: float) -> None:
    """There are two positions for one angle of the crank: that which it reaches in motion is taken."""
    model = four_bar(angle)
    model.add(mb.Driven("drive", model["A"], lambda t: turned + t))
    model.assemble()
    middle = (corners(angle + turned)[2] + corners(0)[3]) / 2
    np.testing.assert_allclose(model["rocker"].x[:2], middle, atol=1e-9)


def test_a_four_bar_in_space_keeps_its_side() -> None:
    model = four_bar(1.0, planar=False)
    model.add(mb.Driven("drive", model["A"], lambda t: 2.5 + t))
    model.assemble(redundant="drop")
    middle = (corners(3.5)[2] + corners(0)[3]) / 2
    np.testing.assert_allclose(model["rocker"].x, [*middle, 0], atol=1e-9)


def slider_crank(start: float) -> mb.Model:
    """A crank of 0.2 and a rod of 0.6, all along x, with a drive that starts at an angle."""
    model = mb.Model(gravity=(0, -9.81, 0))
    bodies = [
        model.add(mb.PlanarBody(name, 1.0, 0.01, at=(x, 0)))
        for name, x in (("crank", 0.1), ("rod", 0.5), ("slider", 0.8))
    ]
    hinge = model.add(mb.Revolute("hinge", model.ground, bodies[0], at=(0, 0)))
    model.add(mb.Revolute("pin", bodies[0], bodies[1], at=(0.2, 0)))
    model.add(mb.Revolute("end", bodies[1], bodies[2], at=(0.8, 0)))
    model.add(mb.Prismatic("slide", model.ground, bodies[2], at=(0.8, 0), axis=(1, 0)))
    model.add(mb.Driven("drive", hinge, lambda t: start + 2 * t))
    return model


@pytest.mark.parametrize("start", [0.5, 1.94, 2.6, -2.06, 3.0])
def test_a_slider_crank_starts_at_any_angle(start: float) -> None:
    model = slider_crank(start)
    model.assemble()
    slider = model["slider"]
    along = 0.2 * np.cos(start) + np.sqrt(0.36 - 0.04 * np.sin(start) ** 2)
    np.testing.assert_allclose([*slider.x[:2], slider.angle], [along, 0, 0], atol=1e-9)
    speed = -0.4 * np.sin(start) - 0.04 * np.sin(2 * start) / np.sqrt(0.36 - 0.04 * np.sin(start) ** 2)
    np.testing.assert_allclose(slider.velocity[0], speed, atol=1e-9)


def test_what_is_held_stays_while_a_drive_moves() -> None:
    """Two cranks on one ground: one is driven by two radians, the other held at half of one."""
    model = mb.Model(gravity=(0, 0, 0))
    for name, x in (("a", 0.0), ("b", 3.0)):
        crank = model.add(mb.PlanarBody(name, 1.0, 0.1, at=(x + 0.5, 0)))
        model.add(mb.Revolute(f"hinge {name}", model.ground, crank, at=(x, 0)))
    model["b"].angle = 0.5
    model.add(mb.Driven("drive", model["hinge a"], lambda t: 2.0))
    model.assemble(hold=["hinge b"])
    np.testing.assert_allclose([model["a"].angle, model["b"].angle], [2.0, 0.5], atol=1e-12)


def test_a_drive_that_cannot_be_reached_is_refused() -> None:
    """The rocker cannot point away from the crank: C would be 1.9 from A. Nothing is moved."""
    model = four_bar(1.0)
    model.add(mb.Driven("drive", model["D"], lambda t: -model["rocker"].angle))
    before = model.q0
    with pytest.raises(ValueError, match=r"'drive' goes from 0 to -1\.\d+, and joints close up to -\d"):
        model.assemble()
    np.testing.assert_array_equal(model.q0, before)


def test_a_drive_does_not_lead_to_the_other_side() -> None:
    """The rocker reaches 86.4 to 147.8 degrees. At -86.7 there is a position of the other side only."""
    lengths = (0.4, 1.0, 0.8, 1.1)
    _, _, c, d = corners(0.5, lengths)
    model = four_bar(0.5, lengths=lengths)
    model.add(mb.Driven("drive", model["D"], lambda t: -2 * np.arctan2(*(c - d)[::-1]) + 0 * t))
    with pytest.raises(ValueError, match=r"'drive' goes from .* and joints close up to"):
        model.assemble()


def add_rack(model: mb.Model, wanted: float) -> mb.PlanarBody:
    """A pinion that is driven to an angle, and the bar that it moves."""
    pinion = model.add(mb.PlanarBody("pinion", 1.0, 0.1))
    bar = model.add(mb.PlanarBody("bar", 1.0, 0.1, at=(1, 0)))
    hinge = model.add(mb.Revolute("hinge", model.ground, pinion, at=(0, 0)))
    slide = model.add(mb.Prismatic("slide", model.ground, bar, at=(1, 0), axis=(1, 0)))
    model.add(mb.Rack("rack", hinge, slide, 0.05))
    model.add(mb.Driven("drive of the pinion", hinge, lambda t: wanted + 0 * t))
    return bar


@pytest.mark.parametrize("wanted", [2.0, 3.5, -3.5, 6.0, -6.0, 6.58, 10.0])
def test_a_drive_beyond_half_a_turn_goes_there_itself(wanted: float) -> None:
    """A pinion moves a rack by its radius times the angle, not by that of the nearest turn."""
    model = mb.Model(gravity=(0, 0, 0))
    bar = add_rack(model, wanted)
    for _ in range(2):  # once is enough
        model.assemble()
        assert bar.x[0] - 1 == pytest.approx(0.05 * wanted)


@pytest.mark.parametrize("wanted", [3.5, 4.5, -10.0])
def test_what_follows_a_drive_counts_its_turns(wanted: float) -> None:
    """A slider that follows a hinge is open at first."""
    model = mb.Model(gravity=(0, 0, 0))
    wheel = model.add(mb.PlanarBody("wheel", 1.0, 0.1))
    bar = model.add(mb.PlanarBody("bar", 1.0, 0.1, at=(3, 0)))
    hinge = model.add(mb.Revolute("hinge", model.ground, wheel, at=(0, 0)))
    slide = model.add(mb.Prismatic("slide", model.ground, bar, at=(3, 0), axis=(1, 0)))
    model.add(mb.Mimic("mimic", slide, hinge, (0.3, -0.5)))
    model.add(mb.Driven("drive", hinge, lambda t: wanted + 0 * t))
    model.assemble()
    assert bar.x[0] - 3 == pytest.approx(0.3 - 0.5 * wanted)


def test_a_drive_goes_the_other_way_round_if_it_must() -> None:
    """The crank turns from 37 to 323 degrees, through 180: it does not pass zero, the shorter way."""
    model = four_bar(np.radians(48.5), lengths=(0.5, 0.8, 0.5, 0.4))
    model.add(mb.Driven("drive", model["A"], lambda t: np.radians(263.1 - 48.5 - 360) + 0 * t))
    bar = add_rack(model, 5.0)  # another drive is not turned round
    model.assemble()
    assert bar.x[0] - 1 == pytest.approx(0.05 * 5.0)
    assert np.cos(model["crank"].angle - np.radians(263.1)) == pytest.approx(1.0)


# --- screws ------------------------------------------------------------------------------------------------


def nut(tilt: float, turned: float = 0.0) -> mb.Model:
    """A nut on a screw along z, tilted about y and turned about z."""
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.Body("nut", mb.cylinder(1.0, 0.05, 0.1)))
    model.add(mb.Screw("screw", model.ground, body, 0.02, at=(0, 0, 0)))
    c, s, cz, sz = np.cos(tilt), np.sin(tilt), np.cos(turned), np.sin(turned)
    body.R = np.array([[cz, -sz, 0], [sz, cz, 0], [0, 0, 1]]) @ [[c, 0, s], [0, 1, 0], [-s, 0, c]]
    body.x = (0.1, 0.2, 0.103)
    return model


@pytest.mark.parametrize("tilt", [0.3, 1.8, 2.8])
def test_a_screw_closes_from_any_tilt(tilt: float) -> None:
    model = nut(tilt, 0.7)
    model.assemble()
    body = model["nut"]
    np.testing.assert_allclose([*body.x[:2], body.R[2, 2]], [0, 0, 1], atol=1e-9)
    off = np.arctan2(body.R[1, 0], body.R[0, 0]) - 2 * np.pi * body.x[2] / 0.02
    assert abs(np.exp(1j * off) - 1) < 1e-8
    assert abs(body.x[2] - 0.103) < 0.011  # half a turn


@pytest.mark.parametrize(("coordinate", "value"), [("angle", 2.5), ("displacement", 0.33)])
def test_a_screw_that_is_driven(coordinate: str, value: float) -> None:
    model = nut(2.0)
    model.add(mb.Driven("drive", model["screw"], lambda t: value + t, coordinate))
    model.assemble()
    body = model["nut"]
    angle = value if coordinate == "angle" else 2 * np.pi * value / 0.02
    np.testing.assert_allclose(
        body.R, [[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]], atol=1e-8
    )
    turns = (body.x[2] - 0.02 * angle / (2 * np.pi)) / 0.02
    assert abs(turns - round(turns)) < 1e-8
    assert np.abs(body.x[2] - (0.103 if coordinate == "angle" else value)) < 0.011


def test_the_pose_of_a_screw() -> None:
    model = nut(0.0)
    model.place(*model.pose({"screw": 0.033}, {"screw": 0.04}))
    body, angle = model["nut"], 2 * np.pi * 0.033 / 0.02
    np.testing.assert_allclose(body.x, [0, 0, 0.033], atol=1e-15)
    np.testing.assert_allclose(body.R[:2, 0], [np.cos(angle), np.sin(angle)], atol=1e-14)
    np.testing.assert_allclose([*body.velocity, *body.angular_velocity], [0, 0, 0.04, 0, 0, 4 * np.pi])
    with pytest.raises(ValueError, match="screw"):
        model.pose({"screw": (0.1, 0.2)})
