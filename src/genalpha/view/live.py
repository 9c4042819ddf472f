"""A live view: shapes in a browser while a run goes on, by viser."""

from __future__ import annotations

import time
import webbrowser
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from genalpha.numerics.data import State
from genalpha.results.solution import Solution
from genalpha.view import checks
from genalpha.view.drawing import camera
from genalpha.view.faces import drawn, local
from genalpha.view.front import moving
from genalpha.view.rows import Instant, MotionRows
from genalpha.view.scene import Item, Scene
from genalpha.view.shapes import Shape

_MOST_PER_SECOND = 30.0
_LONGEST_PATH = 3000  # points of a trace
_PATIENCE = 10.0  # seconds until a browser has opened the page


class Live:
    """Shapes in a browser that follow a run: pass it as the ``callback`` of ``ga.solve``.

    Needs viser (``pip install genalpha[live]``). ``live.play(sol)`` shows a run that has ended,
    ``live.show(sol(0.5))`` one time. The stop button of the page ends the run.

    Parameters
    ----------
    shapes : those of ``ga.view``. Lengths that they leave out follow from the first state. Their functions
        cannot have ``reaction``.
    rate : the time that passes in one second. A run that is faster waits; with None it does not.
    up : "y" or "z", see :class:`Scene`.
    port : of the page. If it is taken, the next free one.
    browser : whether a browser opens the page. ``address`` can be reached from this machine only.

    ``handles`` are viser's objects by the names of the shapes, and ``server`` is its server.

    >>> import genalpha as ga
    >>> ball = ga.shapes.Sphere(0.1, at=lambda t, q: q[:3], name="ball")
    >>> with ga.Live(ball) as live:  # doctest: +SKIP
    ...     sol = ga.solve(system, (0.0, 10.0), q0, v0, callback=live)
    """

    def __init__(
        self,
        shapes: Iterable[Shape] | Shape | Callable[[MotionRows], list[Shape]],
        *,
        rate: float | None = 1.0,
        up: str | None = None,
        port: int = 8080,
        browser: bool = True,
    ) -> None:
        try:
            import viser
        except ImportError as error:
            raise ImportError("a live view needs viser: pip install genalpha[live]") from error
        self._shapes = shapes if callable(shapes) else moving(shapes)
        self.rate = None if rate is None else checks.positive(rate, "rate")
        self._up, self._browser = up, browser
        self.server: Any = viser.ViserServer(host="127.0.0.1", port=port, label="genalpha", verbose=False)
        self.server.gui.configure_theme(show_logo=False, show_share_button=False)  # sharing needs the network
        self.address = f"http://127.0.0.1:{self.server.get_port()}"
        self.handles: dict[str, Any] = {}
        self._clock: Any = self.server.gui.add_text("t", "", disabled=True)
        self._stop: Any = self.server.gui.add_button("Stop the run")
        self._sizes: dict[str, dict[str, Any]] = {}
        self._begin(0.0)

    def _begin(self, t: float) -> None:
        """A run begins at the time t."""
        self._start, self._before, self._shown = (t, time.monotonic()), t, -np.inf
        self._paths: dict[str, deque[np.ndarray]] = {}
        self._stop.value = False

    def __call__(self, state: State) -> bool:
        """Show a state of a run if it is time for a picture. True if the stop button was pressed."""
        t = float(state.t)
        if not self.handles or t < self._before:
            self._begin(t)
            self.show(state)
            self._start = t, time.monotonic()
        self._before = t
        if self.rate is not None:
            begun, at = self._start
            time.sleep(max(0.0, at + (t - begun) / self.rate - time.monotonic()))
        if time.monotonic() - self._shown >= 1.0 / _MOST_PER_SECOND:
            self.show(state)
        return bool(self._stop.value)

    def play(self, sol: Solution, frames: int = 300) -> None:
        """Show a solution at evenly spaced times. ``rate`` says how fast."""
        for t in np.linspace(sol.t[0], sol.t[-1], frames):
            if self(sol(t)):
                return

    def show(self, state: State) -> None:
        """Show a state now."""
        rows, first = Instant(state), not self.handles
        if rows.t[0] < self._before:
            self._paths = {}
        self._before = rows.t[0]
        scene = Scene(rows.t, self._shapes(rows), up=self._up)
        with self.server.atomic():
            for item in scene.items:
                self._put(replace(item, sizes=self._sizes.setdefault(item.name, item.sizes)), rows.t)
        self._clock.value = f"{rows.t[0]:.4g}"
        self._shown = time.monotonic()
        if first:
            self._open(scene)

    def _put(self, item: Item, times: np.ndarray) -> None:
        """Move an item, which is made when it is first seen."""
        kind, name, tracks = item.shape.kind, item.name, item.tracks
        if "at" in tracks and kind != "arrow":
            if name not in self.handles:
                self.handles[name] = self._rigid(item)
            handle = self.handles[name]
            (handle.position,), (handle.wxyz,) = tracks["at"]
        elif kind == "trace":
            path = self._paths.setdefault(name, deque(maxlen=_LONGEST_PATH))
            path.append(tracks["point"].x[0])
            self._lines(item, np.array(path), item.sizes["width"], "screen")
        else:
            (part,) = drawn(item, times, times[0])
            if len(part.lines):
                self._lines(item, np.append(part.lines[:, 0], part.lines[-1:, 1], axis=0), part.wide, "world")
            elif name in self.handles:
                self.handles[name].vertices = part.faces.reshape(-1, 3)
            else:
                self.handles[name] = self._mesh(item, part.faces)

    def _rigid(self, item: Item) -> Any:
        if item.shape.kind != "frame":
            return self._mesh(item, local(item))
        length, make = item.sizes["size"], self.server.scene.add_frame
        return make(_node(item), axes_length=length, axes_radius=0.022 * length, origin_radius=0.0)

    def _mesh(self, item: Item, faces: np.ndarray) -> Any:
        corners = 4 * np.arange(len(faces))[:, None, None] + np.array([[0, 1, 2], [0, 2, 3]])
        points, color = faces.reshape(-1, 3), _rgb(item)
        make = self.server.scene.add_mesh_simple
        return make(_node(item), points, corners.reshape(-1, 3), color=color, side="double")

    def _lines(self, item: Item, points: np.ndarray, width: float, units: str) -> None:
        if len(points) > 1:
            pairs, look = np.stack([points[:-1], points[1:]], axis=1), {"thickness_units": units}
            make = self.server.scene.add_line_segments
            self.handles[item.name] = make(_node(item), pairs, _rgb(item), thickness=width, **look)

    def _open(self, scene: Scene) -> None:
        """Show the page in a browser, with room for the motion around the first state."""
        self.server.scene.set_up_direction(f"+{scene.up}")
        eye, centre, start = camera(scene, (4, 3)), scene.bounds.mean(axis=0), self.server.initial_camera
        start.fov = 2 * np.arctan(1.5 / eye.focus)
        start.look_at, start.position = centre, centre + 1.5 * (eye.place - centre)
        if scene.up == "z":
            look = {"infinite_grid": True, "cell_size": scene.size / 10, "section_size": scene.size / 2}
            self.server.scene.add_grid("/ground", position=(0.0, 0.0, scene.ground), **look)
        if self._browser and webbrowser.open(self.address):
            end = time.monotonic() + _PATIENCE
            while not self.server.get_clients() and time.monotonic() < end:
                time.sleep(0.05)

    def close(self) -> None:
        """End the server. The page stays as it is."""
        self.server.stop()

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Live view at {self.address}>"


def _node(item: Item) -> str:
    return "/" + item.name.replace("/", "|")  # a slash would make a child of another item


def _rgb(item: Item) -> tuple[int, ...]:
    return tuple(int(item.color[i : i + 2], 16) for i in (1, 3, 5))
