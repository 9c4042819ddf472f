"""Bad input of the viewer: messages say what is wrong and what to do."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import genalpha as ga
import pages
import systems
from genalpha import multibody as mb
from genalpha import shapes

FAR = np.ones((3, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: shapes.Box((1, -1, 1)), "size of Box must be 3 positive numbers"),
        (lambda: shapes.Box((1, 1), name="b"), "size of Box 'b' must be 3 positive numbers"),
        (lambda: shapes.Sphere(0), "radius of Sphere must be positive and finite, got 0"),
        (lambda: shapes.Sphere(np.nan), "radius of Sphere must be positive and finite, got nan"),
        (lambda: shapes.Sphere("big"), "radius of Sphere must be a number, got 'big'"),
        (lambda: shapes.Sphere(None), "Sphere has no radius"),
        (lambda: shapes.Sphere([1, 2]), "radius of Sphere must be a number"),
        (lambda: shapes.Cylinder(1, 1, "w"), "axis of Cylinder must be 'x', 'y' or 'z'"),
        (lambda: shapes.Capsule(1, -2), "length of Capsule"),
        (lambda: shapes.Rod(start=(0, 0)), "Rod has no end: pass end="),
        (lambda: shapes.Spring(start=(0, 0), end=(1, 0), coils=0), "coils of Spring must be 1 to 100"),
        (lambda: shapes.Arrow(at=(0, 0)), "Arrow has no vector"),
        (lambda: shapes.Trace(None), "Trace has no point"),
        (lambda: shapes.Frame(-1), "size of Frame must be positive and finite"),
        (lambda: shapes.Plane((1, 1, 1)), "size of Plane must be 2 positive numbers"),
        (lambda: shapes.Mesh(np.zeros((4, 2)), [[0, 1, 2]]), r"vertices of Mesh have shape \(4, 2\)"),
        (lambda: shapes.Mesh(np.zeros((4, 3)), [[0.5, 1, 2]]), "triangles of Mesh .* float64: pass integers"),
        (lambda: shapes.Mesh(np.zeros((4, 3)), [[0, 1, 9]]), "indices from 0 to 3, got 9"),
        (lambda: shapes.Box((1, 1, 1), color="blu"), "Did you mean 'blue'"),
        (lambda: shapes.Box((1, 1, 1), color="#12"), "write #rgb or #rrggbb"),
        (lambda: shapes.Box((1, 1, 1), color=(2, 0, 0)), "3 numbers from 0 to 1"),
        (lambda: shapes.Box((1, 1, 1), name=3), "name of Box must be a text"),
    ],
)
def test_sizes(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (np.ones((2, 3)), "at of Sphere 'ball' has 2 rows for 3 times: pass one for each time"),
        (np.ones(4), r"at of Sphere 'ball' has positions of shape \(4,\): a position must have 2 or 3"),
        (1.0, "a position must have 2 or 3 numbers"),
        (FAR * [[1], [np.nan], [1]], "at of Sphere 'ball' is nan in row 1"),
        ((FAR, np.ones(2)), r"rotation in at of Sphere 'ball' has shape \(2,\)"),
        ((FAR, 2 * np.eye(3)), "rotation in at of Sphere 'ball' is not orthonormal"),
        ((FAR, np.diag([1.0, 1, -1])), "rotation in at of Sphere 'ball' is not orthonormal"),
        ((FAR, np.ones(4)), "is a quaternion of length 2: divide it by its length"),
        (lambda t, q: q, r"is a function, and a scene needs arrays: call ga.view\(sol, shapes=...\)"),
        ("here", "must be numbers"),
    ],
)
def test_poses(at, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ga.Scene([0.0, 1.0, 2.0], [shapes.Sphere(1.0, at=at, name="ball")])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ga.Scene([], [shapes.Sphere(1)]), r"times have shape \(0,\)"),
        (lambda: ga.Scene([1.0, 0.0], [shapes.Sphere(1)]), "times must not decrease"),
        (lambda: ga.Scene([0.0, np.inf], [shapes.Sphere(1)]), "times is inf"),
        (lambda: ga.Scene([0.0], []), "there are no shapes to draw"),
        (lambda: ga.Scene([0.0], ["ball"]), "'ball' is no shape"),
        (lambda: ga.Scene([0.0], 2 * [shapes.Sphere(1, name="a")]), "'a': names must be unique"),
        (lambda: ga.Scene([0.0], [shapes.Sphere(1)], up="x"), "pass 'y' or 'z'"),
        (lambda: ga.Scene([0.0], [shapes.Sphere(1)], rate=-1), "rate must be positive and finite"),
        (lambda: ga.View([shapes.Sphere(1)]), "a View needs a ga.Scene, got list"),
        (lambda: ga.View(ga.Scene([0.0], [shapes.Sphere(1)]), height=0), "pass an integer of 100"),
    ],
)
def test_scenes(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (lambda q: q, r"is a function of \(q\): its first two parameters must be t and q"),
        (lambda t, q, force: q, "further ones can be v, a, lam, psi, reaction"),
        (lambda t, q: None, "must return a position of 2 or 3 numbers"),
        (lambda t, q: q[: 2 + (t > 0.1)], "for every row"),
        (lambda t, q: q[:2] / 0, "at of Sphere 'ball' is (inf|nan|-inf)"),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
def test_functions(at, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ga.view(pages.crank(), shapes.Sphere(1.0, at=at, name="ball"))


def test_an_error_in_a_function_says_where():
    with pytest.raises(IndexError) as caught:
        ga.view(pages.crank(), shapes.Sphere(1.0, at=lambda t, q: (q[9], q[10]), name="ball"))
    assert "at of Sphere 'ball'" in caught.value.__notes__[0]


def test_solutions():
    ball = shapes.Sphere(1.0)
    spring = systems.spring()
    batch = ga.solve_batch(spring, (0.0, 1.0), [[1.0], [2.0]], [0.0], h=0.1, args=(1.0,), t_eval=[0.0, 1.0])
    with pytest.raises(TypeError, match=r"view a member, ga\.view"):
        ga.view(batch, ball)
    assert len(ga.view(batch[0], shapes.Sphere(0.1, at=lambda t, q: (q[0], 0.0))).scene.times) > 1
    with pytest.raises(TypeError, match="a view needs a Solution, got list"):
        ga.view([1, 2], ball)
    with pytest.raises(ValueError, match="frames is 0: pass an integer"):
        ga.view(pages.crank(), ball, frames=0)
    growing = ga.System(mass=np.eye(1), force=lambda t, q, v: 50 * q**3)
    sol = ga.solve(growing, (0.0, 10.0), [1.0], [1.0], h=0.01, throw=False, t_eval=[9.0])
    with pytest.raises(ValueError, match="this solution has no rows"):
        ga.view(sol, ball)
    sol = ga.solve(spring, (0.0, 1.0), [1.0], [0.0], h=0.1, args=(1.0,), t_eval=[0.5], save=["q"])
    with pytest.raises(ValueError, match="needs v, and save left it out"):
        ga.view(sol, shapes.Sphere(0.1, at=lambda t, q, v: (q[0], v[0])))


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    view = ga.View(ga.Scene([0.0, 1.0], [shapes.Sphere(1.0)]))
    view.save("~/ball.html")
    assert (tmp_path / "ball.html").read_text(encoding="utf-8") == view.html
    view.__dict__["html"] = "\ud800"  # cannot be written
    with pytest.raises(UnicodeEncodeError):
        view.save(tmp_path / "ball.html")
    assert (tmp_path / "ball.html").stat().st_size > 10_000
    assert [path.name for path in tmp_path.iterdir()] == ["ball.html"]
    with pytest.raises(IsADirectoryError):
        ga.View(view.scene).save(tmp_path)


def test_rotations_with_three_digits_are_made_exact():
    """Shapes and bodies take the same forms. 0.866 stands for the cosine of 30°."""
    R = np.array([[0.866, -0.5, 0], [0.5, 0.866, 0], [0, 0, 1]])
    exact = Rotation.from_euler("z", 30, degrees=True)
    (item,) = ga.Scene([0.0], [shapes.Box((1, 1, 1), at=((0, 0, 0), R))]).items
    np.testing.assert_allclose(np.roll(item.tracks["at"].p[0], -1), exact.as_quat(), atol=1e-4)
    for turned in (R, np.roll(exact.as_quat().round(3), 1), np.pi / 6):
        body = mb.Body("body", mb.sphere(1.0, 0.1), rotation=turned)
        np.testing.assert_allclose(body.R @ body.R.T, np.eye(3), atol=1e-14)
        np.testing.assert_allclose(body.R, exact.as_matrix(), atol=5e-4)
    with pytest.raises(ValueError, match="rotation of 'body' is not orthonormal"):
        mb.Body("body", mb.sphere(1.0, 0.1), rotation=R.round(2))
