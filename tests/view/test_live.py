"""The live view. Without viser most of these tests are skipped: pip install genalpha[live]."""

import sys
import time

import jax.numpy as jnp
import numpy as np
import pytest

import browser
import genalpha as ga
from genalpha import multibody as mb
from genalpha import shapes
from genalpha.numerics.data import State

try:
    import viser
except ImportError:
    viser = None
needs_viser = pytest.mark.skipif(viser is None, reason="there is no viser: pip install genalpha[live]")
PORT = 18080


def test_a_missing_viser_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "viser", None)
    with pytest.raises(ImportError, match=r"a live view needs viser: pip install genalpha\[live\]"):
        ga.Live(shapes.Sphere(1.0))


def state(t, *q):
    return State(t, np.array(q), *(np.array([0.5 * t]) for _ in range(4)))


@needs_viser
def test_every_shape_is_where_its_functions_say():
    point = lambda t, q: q
    every = [
        shapes.Box((1, 2, 3), at=lambda t, q: (q, t), name="a/box"),
        shapes.Frame(at=lambda t, q: (q, np.array([0.6, 0.8, 0, 0])), name="frame"),
        shapes.Rod(start=(0, 0, 0), end=point, radius=0.1, name="rod"),
        shapes.Arrow(at=point, vector=lambda t, q, lam: jnp.array([0, 0, lam[0]]), scale=2.0, name="arrow"),
        shapes.Spring(start=(0, 0, 0), end=point, name="spring"),
        shapes.Trace(point, name="trace"),
    ]
    with ga.Live(every, port=PORT, browser=False) as live:
        live.show(state(0.5, 1.0, 2.0, 3.0))
        live.show(state(0.75, 2.0, 2.0, 5.0))
        box, frame = live.handles["a/box"], live.handles["frame"]
        np.testing.assert_allclose(box.position, [2, 2, 5])
        np.testing.assert_allclose(box.wxyz, [np.cos(0.375), 0, 0, np.sin(0.375)], atol=1e-12)
        np.testing.assert_allclose(frame.wxyz, [0.6, 0.8, 0, 0], atol=1e-12)
        np.testing.assert_allclose(np.abs(box.vertices).max(axis=0), [0.5, 1, 1.5])
        # The rod ends at the point: its farthest corner along the direction has this distance.
        reach = live.handles["rod"].vertices @ np.array([2, 2, 5]) / np.sqrt(33)
        assert reach.max() == pytest.approx(np.sqrt(33), rel=1e-6)
        assert live.handles["arrow"].vertices[:, 2].max() == pytest.approx(5 + 2 * 0.375)
        np.testing.assert_allclose(live.handles["spring"].points[[0, -1], [0, 1]], [[0, 0, 0], [2, 2, 5]])
        np.testing.assert_allclose(live.handles["trace"].points, [[[1, 2, 3], [2, 2, 5]]])
        live.show(state(0.5, 1.0, 2.0, 3.0))
        live.show(state(0.6, 4.0, 4.0, 4.0))  # time has gone back, and the path begins again
        np.testing.assert_allclose(live.handles["trace"].points, [[[1, 2, 3], [4, 4, 4]]])


@needs_viser
def test_what_only_a_solution_has_is_refused():
    arrow = shapes.Arrow(at=(0, 0, 0), vector=lambda t, q, reaction: reaction)
    with (
        ga.Live(arrow, port=PORT, browser=False) as live,
        pytest.raises(ValueError, match="needs reaction, which is known after a run"),
    ):
        live.show(state(0.0, 1.0))


@needs_viser
@pytest.mark.slow
def test_a_model_is_shown_while_it_runs():
    model = mb.Model()
    bob = model.add(mb.Body("bob", mb.box(1.0, (0.2, 0.1, 0.1)), at=(1.0, 0.0, 0.0)))
    model.add(mb.Revolute("hinge", model.ground, bob, at=(0, 0, 0), axis=(0, 1, 0)))
    with model.live(rate=2.0, port=PORT, browser=False, reactions=["hinge"], force_scale=0.1) as live:
        seen = []

        def look(now):
            live(now)
            seen.append([time.monotonic(), *live.handles["bob"].position])

        sol = model.solve((0.0, 0.6), h=0.01, callback=look)
        took = seen[-1][0] - seen[0][0]
        assert took > 0.28  # 0.59 s at twice the speed, and at most 30 pictures a second
        assert 3 <= len(np.unique(np.array(seen)[:, 1:], axis=0)) <= 30 * took + 2
        motion = model.motion(sol)
        for k in (0, 25, 60):
            live.show(sol(sol.t[k]))
            np.testing.assert_allclose(live.handles["bob"].position, motion.position("bob")[k], atol=1e-9)
            w, x, y, z = live.handles["bob"].wxyz
            axis = [1 - 2 * (y * y + z * z), 2 * (x * y + w * z), 2 * (x * z - w * y)]
            np.testing.assert_allclose(axis, motion.rotation("bob")[k][:, 0], atol=1e-9)


@needs_viser
@pytest.mark.slow
@pytest.mark.skipif(browser.path() is None, reason="there is no Chromium: apt-get install chromium")
def test_the_page_in_a_browser(tmp_path):
    ball = shapes.Sphere(0.5, at=lambda t, q: q, name="ball")
    chromium = browser.Browser(tmp_path)
    try:
        with ga.Live([ball, shapes.Frame(1.0)], port=PORT, browser=False) as live:
            live.show(state(0.0, 0.0, 0.0, 0.0))
            chromium.open(live.address)
            stop = "[...document.querySelectorAll('button')].find((x) => x.textContent === 'Stop the run')"
            chromium.until(f"{stop} !== undefined")
            live.show(state(0.001, 1.0, 0.0, 1.0))
            chromium.until("[...document.querySelectorAll('input')].some((x) => x.value === '0.001')")
            assert live(state(0.002, 1.0, 0.0, 1.0)) is False
            chromium.evaluate(f"{stop}.click()")
            end = time.monotonic() + 20
            while not live._stop.value and time.monotonic() < end:
                time.sleep(0.05)
            assert live(state(0.003, 1.0, 0.0, 1.0)) is True
            assert live(state(0.0, 0.0, 0.0, 0.0)) is False  # another run
            local = (live.address, live.address.replace("http", "ws"), "data:", "blob:")
            assert [x[:80] for x in chromium.requests if not x.startswith(local)] == []
    finally:
        chromium.close()
