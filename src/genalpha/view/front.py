"""``ga.view``, and what it returns."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from genalpha.engine import files
from genalpha.errors import hint
from genalpha.results.solution import Solution
from genalpha.view.page import embedded, page
from genalpha.view.rows import MotionRows, Sampled
from genalpha.view.scene import Scene
from genalpha.view.shapes import Shape


class View:
    """A scene as a page with a player. A notebook shows it; ``save`` writes a file that a browser plays.

    ``html`` is the page, ``scene`` the data in it. ``height`` is that of the frame in a notebook, in pixels.
    """

    def __init__(self, scene: Scene, *, height: int = 480) -> None:
        if not isinstance(scene, Scene):
            raise TypeError(
                f"a View needs a ga.Scene, got {type(scene).__name__}: call ga.view(sol, shapes=...)"
            )
        if not isinstance(height, int) or height < 100:
            raise ValueError(f"height is {height!r}: pass an integer of 100 pixels or more")
        self.scene, self.height = scene, height

    @functools.cached_property
    def html(self) -> str:
        """The page as a text. It holds its data and its script, and needs no network."""
        return page(self.scene)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file. A write replaces the whole file or leaves it unchanged.

        A browser opens it at a given time with ``crank.html#t=0.5``.
        """
        name = os.path.expanduser(os.fspath(path))
        if (suffix := os.path.splitext(name)[1].lower()) not in ("", ".html", ".htm"):
            raise ValueError(
                f"a view is saved as an HTML page, not as {suffix}: name the file .html. A GIF is written by "
                "animate, a picture by figure(t).savefig"
            )
        text = self.html.encode()
        files.replace(name, lambda file: file.write(text))

    def figure(self, t: float | None = None, *, size: tuple[int, int] = (640, 480)) -> Any:
        """A figure of matplotlib at the time t, by default the first one. ``size`` is in pixels."""
        from genalpha.view import drawing  # rarely needed

        return drawing.figure(self.scene, t, size)

    def animate(
        self,
        path: str | os.PathLike[str],
        *,
        size: tuple[int, int] = (640, 480),
        fps: int = 25,
        seconds: float | None = None,
    ) -> None:
        """Write an animated GIF by matplotlib. ``seconds`` is its length; by default that of the player."""
        from genalpha.view import drawing

        drawing.animate(self.scene, os.path.expanduser(os.fspath(path)), size, fps, seconds)

    def _repr_html_(self) -> str:
        return embedded(self.html, self.height)

    def __repr__(self) -> str:
        return f"<View of {repr(self.scene)[1:-1]}>"


def view(
    sol: Solution,
    shapes: Iterable[Shape] | Shape | None = None,
    *,
    frames: int = 300,
    title: str = "",
    up: str | None = None,
    ground: bool | float = True,
    rate: float | None = None,
    height: int = 480,
) -> View:
    """A player of a solution, with shapes that move as functions of its rows.

    Parameters
    ----------
    sol : the solution of any system. A run that failed is shown up to where it came.
    shapes : shapes of ``ga.shapes``. Their functions ``f(t, q)`` take one row. Further parameters are passed
        by their names: v, a, lam, psi, and reaction, the row of ``sol.reactions.total``. They may use JAX or
        NumPy.
    frames : the number of times, evenly spaced. If the run has no dense output, they are times of rows.
    title : a text above the picture.
    up, ground, rate : see :class:`Scene`.
    height : of the frame in a notebook, in pixels.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> pendulum = ga.System(
    ...     mass=jnp.eye(2),
    ...     force=lambda t, q, v: jnp.array([0.0, -9.81]),
    ...     holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
    ... )
    >>> sol = ga.solve(pendulum, (0.0, 2.0), [1.0, 0.0], [0.0, 0.0], h=0.01)
    >>> rod = ga.shapes.Rod(start=(0, 0), end=lambda t, q: q)
    >>> ball = ga.shapes.Sphere(0.08, at=lambda t, q: q, name="ball")
    >>> force = ga.shapes.Arrow(at=lambda t, q: q, vector=lambda t, q, reaction: reaction)
    >>> ga.view(sol, [rod, ball, force, ga.shapes.Trace(lambda t, q: q)])
    <View of Scene of 4 shapes, 300 frames, t = 0 to 2>
    """
    moved = moving(shapes)
    return shown(sol, moved, frames=frames, height=height, title=title, up=up, ground=ground, rate=rate)


def moving(shapes: Iterable[Shape] | Shape | None) -> Callable[[MotionRows], list[Shape]]:
    """A function of rows: the shapes with arrays in place of their functions."""
    if shapes is None:
        raise TypeError(
            "there are no shapes, and a System does not say what its bodies look like: pass shapes=[...], "
            "such as ga.shapes.Sphere(0.1, at=lambda t, q: q[:3]). For a multibody model call "
            "model.view(sol) or model.animate(sol, path)"
        )
    given = [shapes] if isinstance(shapes, Shape) else list(shapes)

    def evaluated(shape: Shape, rows: MotionRows) -> Shape:
        motions = {name: getattr(shape, name) for name in shape.moves}
        arrays = {
            name: rows.evaluate(motion, f"{name} of {shape.label}")
            for name, motion in motions.items()
            if callable(motion)
        }
        return replace(shape, **arrays)

    return lambda rows: [evaluated(shape, rows) if isinstance(shape, Shape) else shape for shape in given]


def shown(
    sol: Solution | MotionRows,
    shapes: Callable[[MotionRows], list[Shape]],
    *,
    frames: int = 300,
    height: int = 480,
    **options: Any,
) -> View:
    """A view of shapes that are functions of the rows of a solution. ``options`` are those of a scene."""
    if not isinstance(sol, Solution | MotionRows):
        raise TypeError(f"a view needs a Solution, got {type(sol).__name__}: pass what ga.solve returned")
    known = [
        name for name in inspect.signature(Scene).parameters if name not in ("times", "shapes", "notice")
    ]
    for name in options:
        if name not in known:
            raise TypeError(
                f"a view has no option {name!r}: {hint(name, [*known, 'frames', 'height'], 'it has')}"
            )
    rows = Sampled(sol, frames) if isinstance(sol, Solution) else sol
    notice = f"The run failed: {sol.message}" if isinstance(sol, Solution) and not sol.success else ""
    return View(Scene(rows.t, shapes(rows), notice=notice, **options), height=height)


def animated(path: str | os.PathLike[str], make: Callable[..., View], **options: Any) -> None:
    """Write a GIF of the view that ``make`` returns. Options are those of ``make`` and of View.animate."""
    gif = {name: options.pop(name) for name in ("size", "fps", "seconds") if name in options}
    make(**options).animate(path, **gif)
