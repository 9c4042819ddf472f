"""The page in a real browser: it loads without errors or network, plays, and shows the right poses."""

import numpy as np
import pytest

import browser
import genalpha as ga
import pages
from genalpha import multibody as mb
from genalpha import shapes

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.path() is None, reason="there is no Chromium: apt-get install chromium"),
]
EVIL = """</script><script>window.hurt = 1</script>"'><img src=x onerror="window.hurt = 2">"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    found = browser.Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The slider crank and its solution."""
    sol = pages.crank()
    path = tmp_path_factory.mktemp("pages") / "crank.html"
    parts = [
        shapes.Box((0.3, 0.02, 0.02), at=pages.rod, name="rod"),
        shapes.Rod(start=(0, 0), end=lambda t, q: 2 * q[:2], name="crank"),
        shapes.Trace(lambda t, q: q[3:5]),
        shapes.Frame(at=pages.rod),
        shapes.Arrow(at=lambda t, q: q[6:8], vector=lambda t, q, reaction: reaction[6:8]),
        shapes.Spring(start=(0, 0), end=lambda t, q: q[6:8]),
    ]
    ga.view(sol, parts, title="Slider crank").save(path)
    return path.as_uri(), sol


def clean(chromium, address):
    assert not chromium.errors
    assert {request.partition("#")[0] for request in chromium.requests} == {address}


def test_it_loads_and_plays_without_errors_or_network(chromium, page):
    address, _ = page
    chromium.open(address)
    chromium.until("genalpha.playing && genalpha.time > 0.01")
    chromium.evaluate("document.getElementById('play').click()")
    assert chromium.evaluate("genalpha.playing") is False
    at = chromium.evaluate("genalpha.time")
    assert chromium.evaluate("new Promise((done) => setTimeout(() => done(genalpha.time), 300))") == at
    space = "document.dispatchEvent(new KeyboardEvent('keydown', {key: ' '}))"
    chromium.evaluate(space)
    chromium.until(f"genalpha.time !== {at}")
    clean(chromium, address)


def test_the_pose_of_a_body_is_that_of_the_solution(chromium, page):
    address, sol = page
    chromium.open(f"{address}#t=0.25")
    assert chromium.evaluate("[genalpha.time, genalpha.playing]") == [0.25, False]
    for t, error in ((0.0, 1e-7), (0.4, 1e-7), (0.4 * 100 / 299, 1e-7), (0.123, 2e-5), (0.25, 2e-5)):
        x, y, angle = sol(t).q[3:6]
        found = chromium.evaluate(f"genalpha.poseAt('rod', {t})")
        # Between two of 300 frames positions are on a straight line.
        np.testing.assert_allclose(found["position"], [x, y, 0], atol=error)
        p = np.array(found["quaternion"])
        turned = np.array([np.cos(angle / 2), 0, 0, np.sin(angle / 2)])
        np.testing.assert_allclose(p * np.sign(p @ turned), turned, atol=5 * error)
        pin = chromium.evaluate(f"genalpha.poseAt('crank', {t})")["position"]
        np.testing.assert_allclose(pin, [*sol(t).q[:2], 0], atol=error)
    clean(chromium, address)


def test_controls(chromium, page):
    address, sol = page
    chromium.open(f"{address}#t=0.1")
    ends = """(() => {
        const scrub = document.getElementById("scrub");
        scrub.value = 1;
        scrub.dispatchEvent(new Event("input"));
        return genalpha.time;
    })()"""
    assert chromium.evaluate(ends) == pytest.approx(sol.t[-1], abs=1e-12)
    before = chromium.picture()
    for name in ("frames", "traces", "forces"):
        chromium.evaluate(f"document.getElementById('{name}').click()")
    drawn = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
    chromium.evaluate(drawn)
    hidden = chromium.picture()
    assert hidden != before
    chromium.evaluate("genalpha.follow('rod')")
    chromium.evaluate(drawn)
    assert chromium.picture() != hidden
    names = chromium.evaluate("[...document.querySelectorAll('#follow option')].map((x) => x.value)")
    assert names == ["", "rod", "crank", "spring 1"]
    clean(chromium, address)


def test_dragging_turns_and_the_wheel_zooms(chromium, page):
    address, _ = page
    chromium.open(f"{address}#t=0.1")
    drawn = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
    pictures = [chromium.picture()]
    mouse = lambda kind, x, y, **more: chromium.call(
        "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", **more
    )
    mouse("mousePressed", 300, 300, buttons=1, clickCount=1)
    mouse("mouseMoved", 380, 340, buttons=1)
    mouse("mouseReleased", 380, 340, clickCount=1)
    chromium.evaluate(drawn)
    pictures.append(chromium.picture())
    chromium.call("Input.dispatchMouseEvent", type="mouseWheel", x=400, y=300, deltaX=0, deltaY=200)
    chromium.until("true")
    chromium.evaluate(drawn)
    pictures.append(chromium.picture())
    assert len(set(pictures)) == 3
    clean(chromium, address)


def test_names_are_shown_and_not_run(chromium, tmp_path):
    scene = ga.Scene([0.0, 1.0], [shapes.Sphere(1.0, name=EVIL)], title=EVIL, notice=EVIL)
    ga.View(scene).save(tmp_path / "evil.html")
    address = (tmp_path / "evil.html").as_uri()
    chromium.open(address)
    for id in ("title", "notice"):
        assert chromium.evaluate(f"document.getElementById('{id}').textContent") == EVIL
    assert chromium.evaluate("document.title") == EVIL
    assert chromium.evaluate("document.querySelectorAll('#follow option')[1].textContent") == EVIL
    assert chromium.evaluate("document.scripts.length") == 2
    assert chromium.evaluate("window.hurt") is None
    clean(chromium, address)


def test_two_views_in_one_notebook(chromium, tmp_path):
    views = [
        ga.View(ga.Scene([0.0, 1.0], [shapes.Sphere(1.0, name=name)], title=name))._repr_html_()
        for name in ("first", "second")
    ]
    # Frames with a sandbox cannot be looked into. This page takes it away and looks.
    text = "".join(views).replace('sandbox="allow-scripts"', "")
    (tmp_path / "book.html").write_text(f"<!DOCTYPE html><body>{text}</body>", encoding="utf-8")
    address = (tmp_path / "book.html").as_uri()
    chromium.open(address)
    chromium.until("Array.from(frames).length === 2 && Array.from(frames).every((frame) => frame.genalpha)")
    found = chromium.evaluate(
        "Array.from(frames).map((frame) => frame.document.getElementById('title').textContent)"
    )
    assert found == ["first", "second"]
    chromium.evaluate("frames[0].genalpha.pause()")
    assert chromium.evaluate("Array.from(frames).map((frame) => frame.genalpha.playing)") == [False, True]
    assert chromium.evaluate("window.genalpha === undefined")
    assert not chromium.errors
    (tmp_path / "book.html").write_text(f"<!DOCTYPE html><body>{''.join(views)}</body>", encoding="utf-8")
    chromium.open(address)
    chromium.until("true")
    assert not chromium.errors
    assert set(chromium.requests) <= {address, "about:srcdoc"}


def test_all_shapes_are_drawn(chromium, tmp_path):
    """Each shape alone changes the picture of an empty scene."""
    line = np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 1.0]])
    every = [
        shapes.Box((0.5, 0.5, 0.5)),
        shapes.Cylinder(0.3, 0.5, "x"),
        shapes.Sphere(0.4),
        shapes.Capsule(0.2, 0.5, "y"),
        shapes.Mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]]),
        shapes.Plane((1, 1)),
        shapes.Frame(0.7),
        shapes.Rod(start=(0, 0, 0), end=line),
        shapes.Spring(start=(0, 0, 0), end=(1, 1, 1)),
        shapes.Arrow(at=(0, 0, 0), vector=line),
        shapes.Trace(line),
    ]
    room = shapes.Sphere(1e-4, at=np.array([[-1.0, -1, -1], [1, 1, 1]]), name="corner")
    pictures = set()
    for shape in [room, *every]:
        parts = [room] if shape is room else [room, shape]
        ga.View(ga.Scene([0.0, 1.0], parts, ground=False)).save(tmp_path / "shape.html")
        chromium.open((tmp_path / "shape.html").as_uri() + "#t=1")
        chromium.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert not chromium.errors
        # Without the controls: the list of bodies and the boxes differ.
        chromium.evaluate("document.getElementById('bar').hidden = true")
        chromium.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        pictures.add(chromium.picture())
    assert len(pictures) == 1 + len(every)


def test_the_label_of_an_arrow_has_its_size_and_joints_can_be_hidden(chromium, tmp_path):
    room = shapes.Sphere(1e-4, at=np.array([[-1.0, -1, -1], [1, 1, 1]]), name="corner")
    force = shapes.Arrow(at=(0, 0, 0), vector=(0, 3, 4), scale=0.1, name="force of hinge")
    pin = shapes.Cylinder(0.2, 0.4, at=(0.7, 0, 0), name="hinge", group="joints")
    ga.View(ga.Scene([0.0, 1.0], [room, force, pin])).save(tmp_path / "force.html")
    address = (tmp_path / "force.html").as_uri()
    chromium.open(f"{address}#t=0")
    drawn = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
    chromium.evaluate(drawn)
    x, y = chromium.evaluate("[canvas.clientWidth / 2, canvas.clientHeight / 2]")
    chromium.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    chromium.until("!document.getElementById('label').hidden")
    assert chromium.evaluate("document.getElementById('label').textContent") == "force of hinge: 5"
    before = chromium.picture()
    chromium.evaluate("document.getElementById('joints').click()")
    chromium.evaluate(drawn)
    assert chromium.picture() != before
    names = chromium.evaluate("[...document.querySelectorAll('#follow option')].map((x) => x.value)")
    assert names == ["", "corner"]
    clean(chromium, address)


def test_a_model_that_stands_still(chromium, tmp_path):
    """A picture of a model before any run: one frame, without errors."""
    model = mb.Model()
    ball = model.add(mb.Body("ball", mb.sphere(1.0, 0.5), at=(1.0, 2.0, 3.0)))
    model.add(mb.Revolute("hinge", model.ground, ball, at=(0, 0, 0), axis=(0, 1, 0)))
    model.view().save(tmp_path / "still.html")
    address = (tmp_path / "still.html").as_uri()
    chromium.open(address)
    chromium.evaluate("new Promise((done) => setTimeout(() => done(1), 200))")
    np.testing.assert_allclose(chromium.evaluate("genalpha.poseAt('ball', 0)")["position"], ball.x)
    clean(chromium, address)
