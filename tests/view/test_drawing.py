"""Figures and GIFs by matplotlib."""

import io

import numpy as np
import pytest
from PIL import Image

import genalpha as ga
import pages
from genalpha import shapes

TIMES = np.array([0.0, 1.0, 3.0])
PATH = np.array([[-1.0, 0.0, 0.5], [1.0, 0.0, 0.5], [1.0, 1.0, 0.5]])
CORNERS = shapes.Rod(start=(-2, -2, 0), end=(2, 2, 2), radius=0.01)  # the same space for all
EVERY = [
    shapes.Box((0.5, 0.5, 0.5), at=PATH),
    shapes.Cylinder(0.3, 0.5, "x", at=PATH),
    shapes.Sphere(0.4, at=PATH),
    shapes.Capsule(0.2, 0.5, "y", at=PATH),
    shapes.Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0.5]], [[0, 1, 2]], at=PATH),
    shapes.Plane((1, 1), at=PATH),
    shapes.Frame(0.7, at=PATH),
    shapes.Rod(start=(0, 0, 0), end=PATH, radius=0.1),
    shapes.Spring(start=(0, 0, 1.5), end=PATH),
    shapes.Arrow(at=(0, 0, 0), vector=PATH),
    shapes.Trace(PATH),
]


def pixels(figure) -> np.ndarray:
    file = io.BytesIO()
    figure.savefig(file)
    return np.asarray(Image.open(file).convert("RGB")).astype(int)


def view(*parts: shapes.Shape, **options) -> ga.View:
    return ga.View(ga.Scene(TIMES, [CORNERS, *parts], **options))


@pytest.mark.parametrize("shape", EVERY, ids=lambda shape: shape.kind)
def test_every_shape_is_drawn_and_moves(shape):
    size = (160, 120)
    empty = pixels(view().figure(0.5, size=size))
    at = [pixels(view(shape).figure(t, size=size)) for t in (0.25, 2.0)]
    assert empty.shape == (120, 160, 3)
    assert [np.count_nonzero(np.abs(x - empty).max(axis=2) > 30) > 4 for x in at] == [True, True]
    assert (at[0] != at[1]).any()


def test_a_body_is_where_it_should_be():
    """A ball in the middle of the picture, and one that has moved to the right by a known distance."""
    x = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    wide = shapes.Box((4, 2, 1e-3), color="white", name="sheet")
    ball = shapes.Sphere(0.1, at=x, color="red")
    centre = []
    for t in (0.0, 0.5):
        found = pixels(ga.View(ga.Scene(TIMES, [wide, ball], ground=False)).figure(t, size=(400, 300)))
        red = (found[..., 0] - found[..., 1]) > 40
        centre.append(np.argwhere(red).mean(axis=0))
    np.testing.assert_allclose(centre[0], [150, 200], atol=2)
    # The width of 4 takes all but a rim of the picture, so that half a unit is about 45 pixels.
    np.testing.assert_allclose(centre[1] - centre[0], [0, 45], atol=3)


def test_a_gif_has_the_right_pictures(tmp_path):
    path = tmp_path / "ball.gif"
    view(shapes.Sphere(0.4, at=PATH), title="ball").animate(path, size=(80, 60), fps=10, seconds=1.5)
    with Image.open(path) as gif:
        assert gif.size == (80, 60)
        assert gif.n_frames == 15
        assert gif.info["duration"] == 100
    assert [x.name for x in tmp_path.iterdir()] == ["ball.gif"]


def test_bad_input():
    ball = view(shapes.Sphere(0.4, at=PATH))
    with pytest.raises(ValueError, match="t = 4 is outside of the scene"):
        ball.figure(4.0)
    with pytest.raises(ValueError, match="two integers from 16 to 8192"):
        ball.figure(size=(3, 3))
    with pytest.raises(ValueError, match=r"ball.mp4 is no GIF: pass a name that ends with .gif"):
        ball.animate("ball.mp4")
    with pytest.raises(ValueError, match="fps is 100"):
        ball.animate("ball.gif", fps=100)
    with pytest.raises(ValueError, match="would have 25000 pictures"):
        ball.animate("ball.gif", seconds=1000)


def test_a_solution_is_animated_with_shapes(tmp_path):
    ball = shapes.Sphere(0.05, at=lambda t, q: q[6:8], color="red")
    sol = pages.crank()
    sol.animate(tmp_path / "crank.gif", [ball], size=(80, 60), fps=10, seconds=0.3, frames=20, ground=False)
    view = ga.view(sol, ball, frames=20, ground=False)
    with Image.open(tmp_path / "crank.gif") as gif:
        assert (gif.size, gif.n_frames) == ((80, 60), 3)
        for k, t in enumerate((0.0, 0.2, 0.4)):
            gif.seek(k)
            drawn, wanted = np.asarray(gif.convert("RGB")).astype(int), pixels(view.figure(t, size=(80, 60)))
            assert np.abs(drawn - wanted).mean() < 2  # a GIF has few colours


def test_without_shapes_it_says_what_to_pass():
    for act in (lambda sol: sol.animate("crank.gif"), ga.view):
        with pytest.raises(TypeError, match=r"pass shapes=\[...\], such as .* model.animate\(sol, path\)"):
            act(pages.crank())
