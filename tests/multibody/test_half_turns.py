"""Joints whose rows are sines: they must not close half a turn off, and a run must not start so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import genalpha as ga
from genalpha import multibody as mb


def body(name: str = "b", **options: Any) -> mb.Body:
    return mb.Body(name, mb.box(1.0, (1.0, 0.1, 0.1)), **options)


def turned(joint: Callable[..., Any], *more: Any) -> tuple[mb.Model, mb.Body, Any]:
    """A body whose frame is nearly half a turn from where a joint to the ground wants it."""
    model = mb.Model()
    far = Rotation.from_rotvec([2.6, 0.3, 0.2]).as_matrix()
    b = model.add(body(at=(0.2, 0.1, 0.3), rotation=far))
    return model, b, model.add(joint("j", model.ground.frame(), b.frame(), *more))


@pytest.mark.parametrize("joint", [mb.Weld, mb.Revolute, mb.Prismatic, mb.Cylindrical, mb.Planar])
def test_a_rough_guess_closes_the_right_way_round(joint: Any) -> None:
    model, b, _ = turned(joint)
    with pytest.raises(ga.InconsistentInitialValues, match="quarter of a turn"):
        model.solve((0.0, 0.1), h=0.01)
    if joint is mb.Weld:
        with pytest.warns(RuntimeWarning, match="no motion"):
            model.assemble()
    else:
        model.assemble()
    assert b.R[2, 2] == pytest.approx(1.0, abs=1e-12)
    if joint in (mb.Weld, mb.Prismatic):
        assert np.allclose(b.R, np.eye(3), atol=1e-10)
    assert model.solve((0.0, 0.02), h=0.01).success


def test_a_guess_that_cannot_be_turned_is_named() -> None:
    """A held body does not move, and a screw is not followed from the ground outwards."""
    model, *_ = turned(mb.Weld)
    before = model.q0
    with pytest.raises(ValueError, match=r"half a turn off: 'j'|joints cannot be closed"):
        model.assemble(hold=["b"])
    assert np.array_equal(model.q0, before)


def test_a_drive_starts_at_its_own_angle() -> None:
    model = mb.Model()
    b = model.add(body(at=(0.5, 0.0, 0.0)))
    hinge = model.add(mb.Revolute("h", model.ground, b, at=(0, 0, 0)))
    model.add(mb.Driven("d", hinge, lambda t: 2.5 + t))
    with pytest.raises(ga.InconsistentInitialValues, match="'d'"):
        model.solve((0.0, 0.1), h=0.01)
    model.assemble()
    assert model.motion(model.solve((0.0, 0.1), h=0.01)).coordinate("h")[0] == pytest.approx(2.5)
    model.assemble(t=1.0)
    motion = model.motion(model.solve((1.0, 1.1), h=0.01))
    assert motion.coordinate("h")[0] == pytest.approx(3.5 - 2 * np.pi)
    assert motion.rate("h")[0] == pytest.approx(1.0)


def hinges() -> tuple[mb.Model, Any, Any, Any]:
    model = mb.Model(gravity=(0, 0, 0))
    one, two, three = (model.add(body(name, at=(k, 0, 0))) for k, name in enumerate("abc"))
    first = model.add(mb.Revolute("first", model.ground, one, at=(0, 0, 0)))
    second = model.add(mb.Revolute("second", model.ground, two, at=(1, 0, 0)))
    return model, first, second, model.add(mb.Prismatic("slider", model.ground, three, at=(2, 0, 0)))


def test_couplings_half_a_turn_off_are_named() -> None:
    """Gears, racks, screws and mimics. All rows are satisfied there."""
    model, first, second, slider = hinges()
    model.add(mb.Gear("gear", first, second, (1, 2)))
    model.add(mb.Rack("rack", first, slider, 0.5))
    assert model.solve((0.0, 0.02), h=0.01).success
    model.place(*model.pose({"first": np.pi, "second": 0.0, "slider": 0.0}))
    with pytest.raises(ga.InconsistentInitialValues, match="'gear', 'rack'"):
        model.solve((0.0, 0.02), h=0.01)
    model, first, second, slider = hinges()
    model.add(mb.Mimic("mimic", second, first, [0.0, -1.0]))
    model.place(*model.pose({"second": np.pi}))
    with pytest.raises(ga.InconsistentInitialValues, match="'mimic'"):
        model.solve((0.0, 0.02), h=0.01)
    model = mb.Model(gravity=(0, 0, 0))
    nut = model.add(body())
    model.add(mb.Screw("screw", model.ground, nut, 0.1, at=(0, 0, 0)))
    nut.x = nut.x + np.array([0.0, 0.0, 0.05])  # half a pitch
    with pytest.raises(ga.InconsistentInitialValues, match="'screw'"):
        model.solve((0.0, 0.02), h=0.01)
    nut.x = nut.x + np.array([0.0, 0.0, 0.05])
    assert model.solve((0.0, 0.02), h=0.01).success


def four_bar() -> mb.Model:
    model = mb.Model(gravity=(0, 0, 0))
    points = ((0, 0), (0.2, 0.3), (1.0, 0.7), (1.2, 0))
    bars = []
    for name, a, b in zip(("crank", "coupler", "rocker"), points, points[1:], strict=False):
        middle, along = np.add(a, b) / 2, np.subtract(b, a)
        angle = float(np.arctan2(along[1], along[0]))
        bars.append(model.add(mb.PlanarBody(name, 1.0, 0.1, at=middle, angle=angle)))
    ends = zip("ABCD", (model.ground, *bars), (*bars, model.ground), points, strict=True)
    for name, a, b, at in ends:
        model.add(mb.Revolute(name, a, b, at=at))
    return model


def test_velocities_follow_from_the_rate_of_one_joint() -> None:
    """Given as that of the body, with its joint held, or by name. The position is kept too."""
    found = []
    for how in ("held", "named"):
        model = four_bar()
        if how == "held":
            crank = model["crank"]
            crank.angular_velocity = 5.0
            crank.velocity = 5.0 * np.array([-crank.x[1], crank.x[0]])
        report = model.assemble(hold=["A"]) if how == "held" else model.assemble(rates={"A": 5.0})
        assert report.freedom == 1
        motion = model.motion(model.solve((0.0, 0.02), h=0.01))
        assert motion.rate("A")[0] == pytest.approx(5.0, abs=1e-12)
        assert motion.coordinate("A")[0] == pytest.approx(0.0, abs=1e-12)
        found.append(model.v0)
    assert np.allclose(*found, atol=1e-12)
    with pytest.raises(ValueError, match="'E', which is no joint"):
        four_bar().assemble(rates={"E": 1.0})
    with pytest.raises(ValueError, match="no body and no joint"):
        four_bar().assemble(hold=["cranc"])


def test_starts_with_other_values() -> None:
    """The numbers of the run count, not those of the model."""
    model, first, second, _ = hinges()
    model.add(mb.Mimic("mimic", second, first, [2.0, 1.0]))
    with pytest.raises(ga.InconsistentInitialValues):
        model.solve((0.0, 0.01), h=1e-3)
    assert model.solve((0.0, 0.01), h=1e-3, values={"mimic.coefficients": [0.0, 1.0]}).success
    with pytest.raises(ga.InconsistentInitialValues, match="'mimic'"):
        model.solve((0.0, 0.01), h=1e-3, values={"mimic.coefficients": [np.pi, 1.0]})
    model.assemble()  # by the least change of both
    motion = model.motion(model.solve((0.0, 0.01), h=1e-3))
    assert [motion.coordinate(name)[0] for name in ("first", "second")] == pytest.approx([-1.0, 1.0])


def test_a_joint_that_follows_by_halves_may_start_after_a_turn() -> None:
    model, first, second, _ = hinges()
    model.add(mb.Mimic("mimic", second, first, [0.0, 0.5]))
    model.place(*model.pose({"first": 4.0 - 2 * np.pi, "second": 2.0}, {"first": 1.0, "second": 0.5}))
    assert model.solve((0.0, 0.01), h=1e-3).success


def test_derivatives_through_a_drive() -> None:
    def end(w: Any) -> Any:
        model = mb.Model(gravity=(0, 0, 0))
        arm = model.add(mb.PlanarBody("arm", 1.0, 1.0, at=(1, 0)))
        hinge = model.add(mb.Revolute("hinge", model.ground, arm, at=(0, 0)))
        model.add(mb.Driven("drive", hinge, lambda t: w * t * t))
        return model.solve((0.0, 0.1), h=1e-2).q[-1, 2]

    assert float(jax.grad(end)(2.0)) == pytest.approx(0.01)


def test_a_held_joint_keeps_its_side() -> None:
    """From this guess the iteration ends half a turn away from the angle of A."""
    random = np.random.default_rng(23)
    model, bodies = mb.Model(), []
    for i in range(3):
        place = {"at": random.normal(size=3) * 0.3, "rotation": _turned(random.normal(size=3))}
        bodies.append(model.add(mb.Body(f"b{i}", mb.box(1.0, (0.1, 0.2, 0.3)), **place)))
    at = lambda i, x: bodies[i].frame((x, 0, 0))
    held = model.add(mb.Revolute("A", model.ground, at(0, -0.5)))
    model.add(mb.Revolute("B", at(0, 0.5), at(1, -1.0)))
    model.add(mb.Revolute("C", at(1, 1.0), at(2, -0.9)))
    model.add(mb.Revolute("D", at(2, 0.9), model.ground.frame((2.0, 0, 0))))
    angle = lambda: float(held.coordinate()(*[marker.state for marker in held.markers]))
    before = angle()
    model.assemble(rates={"A": 1.0}, redundant="drop")
    assert angle() == pytest.approx(before, abs=1e-9)


def _turned(w: np.ndarray) -> np.ndarray:
    return Rotation.from_rotvec(w).as_matrix()


def test_a_start_is_looked_at_again_after_changes() -> None:
    """A joint that was added after a run, and a drive whose function reads another number."""
    model = mb.Model(gravity=(0, 0, 0))
    body = model.add(mb.Body("body", mb.box(1.0, (1, 1, 1))))
    hinge = model.add(mb.Revolute("hinge", model.ground, body, at=(0, 0, 0), axis=(0, 0, 1)))
    model.solve((0.0, 0.1), h=0.05)
    start = {"angle": 0.0}
    model.add(mb.Driven("drive", hinge, lambda t: start["angle"] + 0.0 * t))
    model.solve((0.0, 0.1), h=0.05)
    start["angle"] = np.pi
    with pytest.raises(ga.InconsistentInitialValues, match="'drive' are more than a quarter of a turn"):
        model.solve((0.0, 0.1), h=0.05)
    start["angle"] = 0.0
    model.add(mb.Weld("weld", model.ground, body.frame((0, 0, 0), rotation=np.pi)))
    with pytest.raises(ga.InconsistentInitialValues, match="'weld' are more than a quarter of a turn"):
        model.solve((0.0, 0.1), h=0.05)


def test_starts_of_members_are_looked_at() -> None:
    model, *_ = turned(mb.Revolute)
    model.assemble()
    q, v = model.q0, model.v0
    upside_down = np.concatenate([q[:3], ga.rotation.multiply(q[3:], [0.0, 1.0, 0.0, 0.0])])
    with pytest.raises(ga.InconsistentInitialValues, match="frames of 'j'"):
        model.solve_batch((0.0, 0.1), h=0.01, q0=np.stack([q, upside_down]), v0=np.stack([v, v]))
