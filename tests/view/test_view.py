"""The data in a page are those of the solution, whatever the shapes are called."""

import html
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import genalpha as ga
import pages
import systems
from conftest import problem
from genalpha import rotation, shapes

EVIL = "</script><script>alert(1)</script>\"'&<!--\u2028"
UNIT = {"rtol": 2**-23, "atol": 1e-7}  # single precision


def test_poses_in_the_plane_are_those_of_the_solution():
    sol = pages.crank()
    view = ga.view(sol, [shapes.Box((0.3, 0.02, 0.02), at=pages.rod, name="rod")])
    data = pages.scene(view.html)
    t, body = pages.times(data), pages.item(data, "rod")
    assert (data["up"], len(t)) == ("y", 300)
    np.testing.assert_array_equal(t, np.linspace(0, 0.4, 300))
    q = sol(t).q
    np.testing.assert_allclose(pages.numbers(body["at"]["x"], 3), np.c_[q[:, 3:5], 0 * t], **UNIT)
    p = pages.numbers(body["at"]["p"], 4)
    np.testing.assert_allclose(2 * np.arctan2(p[:, 3], p[:, 0]), q[:, 5], atol=5e-7)
    assert not p[:, 1:3].any()
    assert body["size"] == [0.3, 0.02, 0.02]


@pytest.mark.parametrize("form", ["quaternion", "matrix"])
def test_poses_in_space_are_those_of_the_solution(form):
    sol = pages.disk()
    turned = (lambda p: p) if form == "quaternion" else rotation.matrix
    wheel = shapes.Cylinder(1.0, 0.1, "y", at=lambda t, q: (q[:3], turned(q[3:])), name="wheel")
    data = pages.scene(ga.view(sol, [wheel], frames=50).html)
    body, q = pages.item(data, "wheel"), sol(pages.times(data)).q
    assert data["up"] == "z"
    np.testing.assert_allclose(pages.numbers(body["at"]["x"], 3), q[:, :3], **UNIT)
    p = pages.numbers(body["at"]["p"], 4)
    np.testing.assert_allclose(p * np.sign((p * q[:, 3:]).sum(axis=1, keepdims=True)), q[:, 3:], atol=2e-7)
    assert ((p[1:] * p[:-1]).sum(axis=1) > 0).all()  # no jumps of the sign
    assert data["ground"] == 0.0


def test_functions_with_jax_numpy_and_plain_numbers_agree():
    sol = pages.crank()
    with_math = lambda t, q: (float(q[0]), float(q[1]) if q[1] > -9 else 0.0)
    ways = [lambda t, q: jnp.array([q[0], q[1]]), lambda t, q: np.array([q[0], q[1]]), with_math]
    branches = jax.jit(lambda t, q: jnp.where(q[0] > 5, 0 * q[:2], q[:2]))
    one = [np.asarray(ga.view(sol, shapes.Sphere(1.0, at=f)).scene.items[0].tracks["at"].x) for f in ways]
    one.append(ga.view(sol, shapes.Sphere(1.0, at=branches)).scene.items[0].tracks["at"].x)
    for x in one[1:]:
        np.testing.assert_array_equal(x, one[0])


def test_a_function_that_only_numbers_can_pass_is_called_for_each_row():
    calls = []

    def at(t, q):
        calls.append(t)
        return jnp.array([0.0, 1.0]) if float(t) < 0.2 else jnp.array([1.0, 1.0])

    (item,) = ga.view(pages.crank(), shapes.Sphere(1.0, at=at), frames=10).scene.items
    np.testing.assert_array_equal(item.tracks["at"].x[:, 0], np.linspace(0, 0.4, 10) >= 0.2)


def test_an_arrow_has_the_reaction_force():
    sol = pages.crank()
    arrow = shapes.Arrow(at=lambda t, q: q[6:8], vector=lambda t, q, reaction: reaction[6:8], name="force")
    multiplier = shapes.Arrow(at=(0, 0), vector=lambda t, q, lam, v: (lam[0], v[0]), name="lam")
    body = shapes.Box((0.3, 0.02, 0.02), at=pages.rod)
    data = pages.scene(ga.view(sol, [body, arrow, multiplier], frames=401).html)
    found = pages.numbers(pages.item(data, "force")["vector"]["x"], 3)
    np.testing.assert_allclose(found[:, :2], sol.reactions.total[:, 6:8], rtol=1e-6, atol=1e-6)
    lam = pages.numbers(pages.item(data, "lam")["vector"]["x"], 3)
    np.testing.assert_allclose(lam[:, 0], sol.lam[:, 0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(lam[:, 1], sol.v[:, 0], rtol=1e-6, atol=1e-6)
    scale = pages.item(data, "force")["scale"]
    assert scale == pages.item(data, "lam")["scale"]
    longest = max(np.linalg.norm(x, axis=1).max() for x in (found, lam))
    assert scale * longest == pytest.approx(0.25 * data["size"])


def test_a_solution_from_a_file_is_shown_too(tmp_path):
    pages.crank().save(tmp_path / "crank.npz")
    sol = ga.load(tmp_path / "crank.npz")
    arrow = shapes.Arrow(at=pages.rod, vector=lambda t, q, reaction: reaction[3:5])
    (item,) = ga.view(sol, arrow, frames=401).scene.items
    np.testing.assert_allclose(item.tracks["vector"].x[:, :2], sol.reactions.total[:, 3:5], atol=1e-9)


def test_without_dense_output_the_frames_are_rows():
    times = [0.0, 0.1, 0.15, 0.3]
    sol = problem("slider-crank").solve(t_end=0.3, t_eval=times)
    assert not sol.complete
    scene = ga.view(sol, shapes.Box((0.3, 0.02, 0.02), at=pages.rod)).scene
    np.testing.assert_array_equal(scene.times, times)
    np.testing.assert_array_equal(scene.items[0].tracks["at"].x[:, :2], sol.q[:, 3:5])
    (item,) = ga.view(sol, shapes.Arrow(at=pages.rod, vector=lambda t, q, reaction: reaction[:2])).scene.items
    np.testing.assert_array_equal(item.tracks["vector"].x[:, :2], sol.reactions.total[:, :2])


def test_a_failed_run_is_shown_up_to_where_it_came():
    growing = ga.System(mass=jnp.eye(1), force=lambda t, q, v: q**3 * 50)
    sol = ga.solve(growing, (0.0, 10.0), [1.0], [1.0], h=0.01, throw=False)
    assert not sol.success
    view = ga.view(sol, shapes.Sphere(0.1, at=lambda t, q: (q[0], 0.0)))
    assert view.scene.times[-1] == sol.t[-1] < 10
    assert sol.message in pages.scene(view.html)["notice"]


@pytest.mark.slow
def test_a_jitted_run_that_failed_is_shown_up_to_where_it_came():
    growing = ga.System(mass=jnp.eye(1), force=lambda t, q, v: q**3 * 50)
    run = jax.jit(lambda q: ga.solve(growing, (0.0, 1.0), q, jnp.ones(1), h=0.01, throw=False))
    view = ga.view(run(jnp.ones(1)), shapes.Sphere(0.1, at=lambda t, q: (q[0], 0.0)))
    assert 0.0 < view.scene.times[-1] < 1.0


def test_a_single_row_is_a_still_picture():
    sol = ga.solve(systems.spring(), (0.0, 1.0), [1.0], [0.0], h=0.1, args=(1.0,), t_eval=[1.0])
    view = ga.view(sol, shapes.Sphere(0.1, at=lambda t, q: (q[0], 0.0, 0.0)))
    assert len(view.scene.times) == 1
    assert view.scene.rate == 1.0


def test_names_do_not_end_the_script_or_begin_another():
    ball = shapes.Sphere(1.0, name=EVIL)
    view = ga.View(ga.Scene([0.0], [ball], title=EVIL, notice=EVIL))
    assert view.html.count("<script") == view.html.count("</script>") == 2
    data = pages.scene(view.html)
    assert (data["items"][0]["name"], data["title"], data["notice"]) == (EVIL, EVIL, EVIL)
    assert f"<title>{html.escape(EVIL)}</title>" in view.html
    (inner,) = re.findall(r'srcdoc="([^"]*)"', view._repr_html_())
    assert html.unescape(inner) == view.html
    assert "default-src 'none'" in html.unescape(view.html)
    assert not re.search(r"https?://|eval\(|innerHTML|new Function", view.html)


def test_the_page_of_twenty_bodies_is_small():
    t = np.linspace(0, 10, 300)
    parts = []
    for i in range(20):
        x = np.stack([np.cos(t + i), np.sin(t * i), t * i], axis=1)
        p = np.stack([np.cos(t), np.sin(t) * np.cos(i), np.sin(t) * np.sin(i), 0 * t], axis=1)
        parts.append(shapes.Box((1, 1, 1), at=(x, p)))
    assert len(ga.View(ga.Scene(t, parts)).html) < 300_000


def test_fixed_poses_are_stored_once():
    t = np.linspace(0, 1, 100)
    scene = ga.Scene(t, [shapes.Sphere(1.0, at=np.ones((100, 3))), shapes.Box((1, 1, 1))])
    assert [item.tracks["at"].x.tolist() for item in scene.items] == [[[1, 1, 1]], [[0, 0, 0]]]


def test_bounds_contain_turned_bodies():
    bar = shapes.Box((2, 0.2, 0.2), at=(np.zeros((2, 3)), np.array([0.0, np.pi / 2])))
    rod = shapes.Rod(start=(0, 0, 0), end=np.array([[0.0, 0, 1], [0, 0, 3]]), radius=0.1)
    scene = ga.Scene([0.0, 1.0], [bar, rod])
    np.testing.assert_allclose(scene.bounds, [[-1, -1, -0.1], [1, 1, 3.1]], atol=1e-12)
    assert scene.size == pytest.approx(3.2)


def test_a_mesh_is_stored_with_its_triangles():
    corners, triangles = np.eye(4)[:, :3], [[0, 1, 2], [0, 2, 3]]
    data = pages.scene(ga.View(ga.Scene([0.0], [shapes.Mesh(corners, triangles, name="m")])).html)
    found = pages.item(data, "m")
    np.testing.assert_array_equal(pages.numbers(found["vertices"], 3), corners)
    np.testing.assert_array_equal(pages.numbers(found["triangles"], 3).view("<u4"), triangles)


def test_a_short_run_is_slowed_down_and_a_long_one_sped_up():
    rate = lambda end: ga.Scene([0.0, end], [shapes.Sphere(1.0)]).rate
    assert [rate(10.0), rate(60.0), rate(0.01), rate(1000.0)] == [1.0, 1.0, 0.001, 100.0]
