"""Pictures of models: joints, axes, reaction forces, GIFs."""

import numpy as np
import pytest
from PIL import Image

from genalpha import multibody as mb
from genalpha.multibody.drawing import drawn
from genalpha.numerics.data import State
from genalpha.view import shapes
from genalpha.view.rows import Instant

GRAVITY = np.array([0.3, 0.0, -9.81])


@pytest.fixture(scope="module")
def pendulum():
    """A box on a hinge whose axes are not those of space."""
    model = mb.Model(GRAVITY)
    bob = model.add(mb.Body("bob", mb.box(2.0, (0.3, 0.1, 0.1)), at=(0.8, 0.2, 0.1)))
    hinge = model.add(mb.Revolute("hinge", model.ground, bob, at=(0, 0, 0), axis=(0.2, 1, 0.1)))
    model.add(mb.Driven("drive", hinge, lambda t: 0.5 * t**2))
    return model, model.solve((0.0, 1.0), h=0.01)


def items(view):
    return {item.name: item for item in view.scene.items}


def test_an_arrow_is_the_force_that_moves_the_body(pendulum):
    model, sol = pendulum
    found = items(model.view(sol, frames=101, reactions=True, traces="bob", axes="bob"))
    assert set(found) == {"bob", "hinge", "force of hinge", "path of bob", "axes of bob"}
    arrow, acceleration = found["force of hinge"], model.motion(sol).acceleration("bob")
    force = arrow.tracks["vector"].x
    # Only the hinge and the weight act on the bob: the drive is a torque.
    np.testing.assert_allclose(force, 2.0 * (acceleration - GRAVITY), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(arrow.tracks["at"].x, 0.0, atol=1e-12)
    box = found["bob"].tracks["at"]
    np.testing.assert_allclose(found["axes of bob"].tracks["at"].p, box.p)
    np.testing.assert_allclose(found["path of bob"].tracks["point"].x, box.x)
    assert [found[name].shape.group for name in ("bob", "hinge", "axes of bob")] == [
        "bodies",
        "joints",
        "frames",
    ]


def test_arrows_have_a_sensible_length_or_the_given_one(pendulum):
    model, sol = pendulum
    view = model.view(sol, frames=11, reactions=["hinge", "drive"])
    found = items(view)
    longest = np.linalg.norm(found["force of hinge"].tracks["vector"].x, axis=1).max()
    assert found["force of hinge"].sizes["scale"] * longest == pytest.approx(0.25 * view.scene.size)
    assert not found["force of drive"].tracks["vector"].x.any()
    view = model.view(sol, frames=11, reactions=model["hinge"], force_scale=0.02)
    assert items(view)["force of hinge"].sizes["scale"] == 0.02
    assert set(items(model.view(sol, frames=11, joints=False))) == {"bob"}


def test_wrong_names_are_named(pendulum):
    model, sol = pendulum
    with pytest.raises(KeyError, match="do you mean 'hinge'"):
        model.view(sol, frames=3, reactions="hing")
    with pytest.raises(TypeError, match="'bob'> is no joint"):
        model.view(sol, frames=3, reactions=["bob"])
    with pytest.raises(TypeError, match="a motion needs a solution, a state or an equilibrium of the model"):
        model.view("slow")
    other = mb.Model()
    other.add(mb.PointMass("p", 1.0))
    with pytest.raises(ValueError, match=r"7 coordinates and 6 velocities in a row, and .* has 3 and 3"):
        other.view(sol, frames=3)


def test_a_gif_of_a_model(pendulum, tmp_path):
    model, sol = pendulum
    model.animate(sol, tmp_path / "bob.gif", size=(64, 48), fps=5, seconds=1, reactions=True, frames=20)
    with Image.open(tmp_path / "bob.gif") as gif:
        assert (gif.size, gif.n_frames) == ((64, 48), 5)


def hung(kind, **options):
    """A body on a joint of a kind at (1, 0, 0) along (0, 0, 1), then moved along it by 0.5."""
    model = mb.Model()
    ball = model.add(mb.Body("ball", mb.sphere(1.0, 0.2), at=(1.0, 0.3, 0.0)))
    model.add(kind("joint", model.ground, ball, at=(1, 0, 0), axis=(0, 0, 1), **options))
    q = model.q0 + np.array([0, 0, 0.5, 0, 0, 0, 0])
    none = np.zeros(0)
    shapes = drawn(model, Instant(State(np.array(0.0), q, model.v0, none, none, none)))
    return {shape.name: shape for shape in shapes}


@pytest.mark.parametrize(
    ("kind", "symbol", "z"),
    [
        (mb.Revolute, "cylinder", 0.0),
        (mb.Spherical, "sphere", 0.5),
        (mb.Prismatic, "box", 0.5),
        (mb.Cylindrical, "cylinder", 0.5),
        (mb.Planar, "box", 0.5),
        (mb.Weld, "box", 0.0),
        (mb.PointOnLine, "sphere", 0.5),
        (mb.PointOnPlane, "sphere", 0.5),
    ],
)
def test_every_joint_has_a_symbol_at_its_place(kind, symbol, z):
    found = hung(kind)
    joint = found["joint"]
    x, R = joint.at if isinstance(joint.at, tuple) else (joint.at, None)
    assert (joint.kind, joint.group) == (symbol, "joints")
    np.testing.assert_allclose(x, [[1, 0, z]], atol=1e-12)
    if R is not None:
        np.testing.assert_allclose(R, [np.eye(3)], atol=1e-12)
    if kind is mb.Prismatic:
        assert joint.size[2] > joint.size[0]  # along the axis
    slides = kind in (mb.Prismatic, mb.Cylindrical, mb.PointOnLine)
    assert ("rail of joint" in found) == slides
    if slides:
        rail = found["rail of joint"]
        np.testing.assert_allclose([rail.start[0], rail.end[0]], [[1, 0, 0], [1, 0, 0.5]], atol=1e-12)


def test_a_universal_joint_has_two_axes_and_a_distance_is_a_rod():
    found = hung(mb.Universal, second=(1, 0, 0))
    axes = [found[name].at[1][0][:, 2] for name in ("joint", "second axis of joint")]
    np.testing.assert_allclose(axes, [[0, 0, 1], [1, 0, 0]], atol=1e-12)
    model = mb.Model()
    one, two = (model.add(mb.PointMass(name, 1.0, at=(x, 0, 0))) for name, x in (("a", 0), ("b", 2)))
    model.add(mb.Distance("rod", one, two))
    none = np.zeros(0)
    shapes = drawn(model, Instant(State(np.array(0.0), model.q0, model.v0, none, none, none)))
    (rod,) = [shape for shape in shapes if shape.name == "rod"]
    np.testing.assert_allclose([rod.start[0], rod.end[0]], [[0, 0, 0], [2, 0, 0]])


def test_a_slider_in_the_plane_is_a_box_along_its_way():
    model = mb.Model((0, -9.81, 0))
    block = model.add(mb.PlanarBody("block", 1.0, 0.1, at=(1.0, 1.0)))
    model.add(mb.Prismatic("slot", model.ground, block, at=(0, 0), axis=(1, 1)))
    none = np.zeros(0)
    rows = Instant(State(np.array(0.0), model.q0, model.v0, none, none, none))
    slot = {shape.name: shape for shape in drawn(model, rows)}["slot"]
    assert slot.size[0] > slot.size[1] == slot.size[2]
    np.testing.assert_allclose(slot.at[1][0][:, 0], np.array([1, 1, 0]) / np.sqrt(2))


def test_a_shape_with_a_place_of_its_own_is_drawn_there():
    model = mb.Model(gravity=(0, 0, 0))
    ball = shapes.Sphere(0.1, at=(0.0, 0.5, 0.0))
    turned = mb.Body("block", mb.box(1.0, (1, 1, 1)), rotation=np.pi / 2, velocity=(1, 0, 0), shape=ball)
    model.add(turned)
    view = model.view(model.solve((0.0, 1.0), h=0.5), frames=3)
    np.testing.assert_allclose(
        items(view)["block"].tracks["at"].x, [[-0.5, 0, 0], [0, 0, 0], [0.5, 0, 0]], atol=1e-6
    )


def test_a_model_before_a_run_a_state_and_other_values() -> None:
    """A picture of where the bodies are, of an equilibrium, and of a run whose hinge is elsewhere."""
    model = mb.Model()
    ball = model.add(mb.Body("ball", mb.sphere(1.0, 0.1), at=(1, 0, 0)))
    hinge = model.add(mb.Revolute("hinge", model.ground, ball, at=(0, 0, 0), axis=(0, 1, 0)))
    place = lambda view, name: next(x for x in view.scene.items if x.name == name).tracks["at"].x
    np.testing.assert_allclose(place(model.view(), "ball"), [[1, 0, 0]])
    values = {"hinge.a": [0.0, 0.0, 0.5], "hinge.b": [-1.0, 0.0, 0.5]}
    sol = model.solve((0.0, 0.2), values, h=0.01)
    np.testing.assert_allclose(
        place(model.view(sol, reactions=[hinge], traces=[ball]), "hinge"), [[0, 0, 0.5]]
    )
    rest = model.equilibrium()
    np.testing.assert_allclose(place(model.view(rest, reactions=True), "ball"), [[0, 0, -1]], atol=1e-6)
    np.testing.assert_allclose(place(model.view((0.0, model.q0, model.v0)), "ball"), [[0, 0, -1]], atol=1e-6)
    with pytest.raises(ValueError, match="needs lam, which is known after a run"):
        model.view(reactions=True)
    assert list(model) == ["ball", "hinge"]
    with pytest.raises(ValueError, match=r"is on the ground of another model: use model.ground of this one"):
        mb.Model().add(mb.Weld("weld", model.ground, ball, at=(0, 0, 0)))
    with pytest.raises(TypeError, match=r"shape of 'ball' must be one of ga.shapes"):
        ball.shape = "box"
    with pytest.raises(ValueError, match="<PointMass 'other'> is not in the model"):
        model.motion(sol).position(mb.PointMass("other", 1.0))


def test_runs_from_before_something_was_added_are_refused():
    """Their numbers belong to other things."""
    model = mb.Model(gravity=(0, 0, 0))
    cart = model.add(mb.PointMass("cart", 2.0, at=(1.5, 0, 0)))
    model.add(mb.SpringDamper("first", model.ground, cart, 8.0, length=1.0))
    sol = model.solve((0.0, 0.1), {"first.stiffness": 9.0}, h=0.05)
    batch = model.solve_batch((0.0, 0.1), {"first.stiffness": [8.0, 9.0]}, h=0.05, save="all")
    assert model.view(sol)
    assert model.view(batch[1])
    model.add(mb.SpringDamper("second", model.ground, cart, 10.0, length=1.0))
    for old in (sol, batch[1]):
        for read in (model.view, model.motion):
            with pytest.raises(ValueError, match=r"joints or forces of .* were added or left out"):
                read(old)
