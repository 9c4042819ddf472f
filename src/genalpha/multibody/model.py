"""A model: bodies, joints and forces with names, and the assembly that they make."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from genalpha.backends.native.code import making_code
from genalpha.engine.events import Event
from genalpha.mechanics.assembly import Assembly
from genalpha.multibody import limits
from genalpha.multibody import values as values_of
from genalpha.multibody.assembling import assembly, no_body
from genalpha.multibody.closing import front as closing
from genalpha.multibody.closing import sides
from genalpha.multibody.closing.front import Closed
from genalpha.multibody.closing.posing import posed
from genalpha.multibody.connectors import Connector
from genalpha.multibody.drawing import drawn, to_draw
from genalpha.multibody.formats import files
from genalpha.multibody.frames import finite
from genalpha.multibody.groups import Group, groups
from genalpha.multibody.motion.phases import Motion, motion_of
from genalpha.multibody.runs import after, linear, start_errors
from genalpha.multibody.things import Things
from genalpha.results.solution import Solution
from genalpha.solve import solve
from genalpha.statics.equilibrium import Equilibrium
from genalpha.statics.inverse import InverseDynamics
from genalpha.statics.linear import Linear
from genalpha.statics.modes import Modes
from genalpha.view.front import View, animated, shown
from genalpha.view.live import Live

if TYPE_CHECKING:
    from genalpha.sweep.sweeping import Sweep


class Model(Things):
    """A mechanism: bodies, joints and forces. SI units, or any other consistent ones.

    ``gravity`` (3,) is the acceleration of free fall, by default (0, 0, −9.81). Bodies in a plane move in x
    and y.

    >>> from genalpha import multibody as mb
    >>> model = mb.Model(gravity=(0, 0, -9.81))
    >>> bob = model.add(mb.Body("bob", mb.sphere(mass=1.0, radius=0.1), at=(1.0, 0.0, 0.0)))
    >>> hinge = model.add(mb.Revolute("hinge", model.ground, bob, at=(0, 0, 0), axis=(0, 1, 0)))
    >>> sol = model.solve((0.0, 1.0), rtol=1e-6)
    >>> model.motion(sol).coordinate("hinge")[-1].round(3).item()
    2.972
    """

    def __repr__(self) -> str:
        return f"<Model of {len(self.bodies)} bodies, {len(self.joints)} joints, {len(self.forces)} forces>"

    # --- the assembly -----------------------------------------------------------------------------

    @functools.cached_property
    def groups(self) -> list[Group]:
        """The joints and forces of each kind, in the order of the parts of ``system`` after the bodies."""
        return groups([one for one in self._all(Connector) if one.acts])

    @functools.cached_property
    def system(self) -> Assembly:
        """The assembly, which ``ga.solve`` and all else accept. Every body is a node."""
        return assembly(self)

    def slices(self) -> dict[str, tuple[slice, slice]]:
        """Where each body is in q and in v, by name."""
        found, (q, v) = {}, (0, 0)
        for body in self.bodies:
            size, n = body.kind.sizes
            found[body.name] = slice(q, q + size), slice(v, v + n)
            q, v = q + size, v + n
        return found

    def _start(self) -> list[np.ndarray]:
        """Coordinates and velocities of all bodies."""
        runs = itertools.groupby(self.bodies or no_body(), lambda body: body.__class__)
        rows = [kind.starts(list(bodies)) for kind, bodies in runs]
        return [np.concatenate([x.reshape(-1) for x in of_all]) for of_all in zip(*rows, strict=True)]

    @property
    def q0(self) -> np.ndarray:
        """Coordinates of all bodies where the model has them."""
        return self._start()[0]

    @property
    def v0(self) -> np.ndarray:
        """Velocities of all bodies in the model."""
        return self._start()[1]

    # --- use --------------------------------------------------------------------------------------

    def place(self, q: np.ndarray, v: np.ndarray) -> None:
        """Put all bodies where the coordinates ``q`` say, with velocities ``v``, such as those of a row."""
        for key, given, own in (("q", q, self.q0), ("v", v, self.v0)):
            if np.shape(given) != own.shape or not np.isfinite(given).all():
                raise ValueError(f"{key} must be {len(own)} finite numbers, as model.{key}0, got {given!r}")
        q, v = np.asarray(q, float), np.asarray(v, float)
        places = [*zip(self.bodies, self.slices().values(), strict=True)]
        for body, (of_q, _) in places:
            size = np.linalg.norm(q[of_q][3:]) if body.kind.name == "rigid" else 1.0
            if not 0.5 < size < 2:
                raise ValueError(
                    f"the quaternion of {body.name!r} in q has the length {size:.3g}: it must be 1"
                )
        for body, (of_q, of_v) in places:
            body.put(q[of_q], v[of_v])

    def pose(self, values: dict[str, Any], rates: dict[str, Any] | None = None) -> tuple[Any, Any]:
        """Coordinates q and velocities v of all bodies for values and rates of joints, by name.

        Joints are followed from the ground outwards. A value is an angle or a displacement, or as many
        numbers as the joint has coordinates; for a ``Screw`` the displacement is enough. For a ``Spherical``
        joint it is a rotation, and the rate is the angular velocity in the axes of its first frame. For a
        ``Universal`` joint there are two angles, about z of its frames; they are zero where the x axes agree
        and z of b is y of a. For a free body the value is the pair (at, rotation) and the rate the pair
        (velocity, angular_velocity) of :class:`Body`.

        Joints that are not named keep their coordinates, without a rate. Joints that close a loop, and those
        of other kinds, stay open: ``model.place(q, v)`` puts the bodies there, and :meth:`assemble` closes
        them.

        >>> from genalpha import multibody as mb
        >>> model = mb.Model()
        >>> arm = model.add(mb.Body("arm", mb.rod(1.0, 2.0), at=(1, 0, 0)))
        >>> hinge = model.add(mb.Revolute("hinge", model.ground, arm, at=(0, 0, 0), axis=(0, 0, 1)))
        >>> q, v = model.pose({"hinge": 0.5}, {"hinge": 2.0})
        >>> q[:2].round(3).tolist(), v[:2].round(3).tolist()
        ([0.878, 0.479], [-0.959, 1.755])
        """
        return posed(self, values, rates or {})

    def drop(self, rows: Sequence[tuple[Connector | str, int]]) -> None:
        """Leave out rows of joints, by number, which depend on others."""
        for joint, number in rows:
            joint = self[joint] if isinstance(joint, str) else joint
            if number not in range(len(joint.row_names)):
                names = ", ".join(joint.row_names)
                raise ValueError(f"{joint!r} has no row {number!r}: 0, 1, … are its rows {names}")
            joint.leave_out(joint.dropped | {number})
        self._forget()

    def assemble(
        self,
        hold: Sequence[Any] = (),
        redundant: str = "error",
        *,
        rates: Mapping[Any, Any] | None = None,
        t: float = 0.0,
    ) -> Closed:
        """Move the bodies so that all joints close at time ``t``, and correct their velocities.

        ``hold`` are names of bodies that must not move, and of joints that keep their coordinates and rates.
        ``rates`` are those of joints by name, one number or one for each coordinate, which is kept too; all
        velocities follow. ("axle", "angle") is one of the coordinates of a joint. Raises
        :class:`ValueError` with the joints that cannot be closed, and by how much.

        Returns the degrees of freedom, and the rows of joints that depend on others, as in planar loops in
        space. ``redundant`` says what to do with these: "error", "drop" them (the motion is the same, their
        reactions count as zero), or "keep" them, for ``solve(..., redundant="min_norm")``, with those that
        were left out before. A dependence that exists at this position only is not one.
        """
        with making_code:
            return closing.closed(self, hold, redundant, rates or {}, finite(t, "t"))

    @property
    def values(self) -> dict[str, np.ndarray]:
        """The numbers of bodies, joints and forces by name, such as ``spring.stiffness``, and the gravity.

        ``hinge.a`` and ``hinge.b`` are the points of a joint or force on its bodies, from their centres of
        mass and in their axes.
        """
        return values_of.numbers(self)

    def args(self, changes: Mapping[str, Any]) -> tuple[Any, ...]:
        """The ``args`` of ``model.system`` with other numbers, by the names of ``values``; may be traced.

        Arrays with one axis more, the first, are for the members of ``ga.solve_batch``.
        """
        return values_of.args_with(self, changes)

    def solve(self, t_span: Any, values: Mapping[str, Any] | None = None, **options: Any) -> Solution:
        """``ga.solve`` of the model from where its bodies are, or from a ``state``, with its options.

        ``values`` are other numbers for this run, by the names of ``model.values``. They may be traced, so
        that runs have derivatives with respect to them.
        """
        for name in {"q0", "v0"} & options.keys():
            raise TypeError(
                f"{name} is no option: a model starts where its bodies are, see model.place(q, v)"
            )
        options = values_of.options_of(self, options | {"values": values})
        if "state" in options and options["state"] is None:
            raise TypeError("state is None: a solution from a file has none (save sol.state beside it)")
        options, system = values_of.with_controller(self, options), self.system
        start = [] if options.get("state") is not None else self._start()
        if start:
            sides.check_start(self, t_span, start[0], options.get("args"), {})
        if options.get("events") is not None:
            q, v = start or (options["state"].q, options["state"].v)
            options["events"] = limits.from_start(self, options["events"], q, v, options.get("args") or ())
        with start_errors.noted(self):
            found = solve(system, t_span, *start, **options)
        after.warn_if_untrue(self, found, values)
        return found

    def solve_batch(self, t_span: Any, values: Mapping[str, Any] | None = None, **options: Any) -> Solution:
        """``ga.solve_batch`` of the model, with its options. Arrays in ``values`` have a number a member.

        All members start where the bodies are, or at ``q0`` (B, size) and ``v0`` (B, n) in the options. If
        other numbers open the joints, pass ``initial="project"``. ``model.motion(batch[i])`` has the numbers
        of its member.

        >>> from genalpha import multibody as mb
        >>> model = mb.Model(gravity=(0, 0, 0))
        >>> cart = model.add(mb.PointMass("cart", 2.0, at=(1.5, 0, 0)))
        >>> spring = model.add(mb.SpringDamper("spring", model.ground, cart, 8.0, length=1.0))
        >>> batch = model.solve_batch((0.0, 1.0), {"spring.stiffness": [4.0, 8.0]}, h=1e-3)
        >>> batch.q[:, -1, 0].round(4).tolist()  # 1 + cos(√(k/m) t) / 2
        [1.078, 0.7919]
        """
        from genalpha.multibody.runs import batches  # sweeps need not be imported by others

        return batches.solved(self, t_span, values, options)

    def sweep(self, t_span: Any, *, over: Any, store: str | os.PathLike[str], **options: Any) -> Sweep:
        """``ga.sweep`` of the model, with its options: many runs, kept in a store on disk.

        Axes in ``over`` may have the names of ``model.values``, such as "spring.stiffness". A function
        ``member`` of other axes returns a dict with q0, v0 and values, or some of them; a run fails if a
        stiffness, say, is negative. All other numbers are those of ``args``, or of the model.
        """
        from genalpha.multibody.runs import batches

        return batches.swept(self, t_span, over, options | {"store": store})

    def equilibrium(self, **options: Any) -> Equilibrium:
        """``ga.equilibrium`` of the model from where its bodies are, with its options. They move there.

        >>> from genalpha import multibody as mb
        >>> model = mb.Model(gravity=(0, 0, -9.81))
        >>> arm = model.add(mb.Body("arm", mb.rod(1.0, 2.0), at=(1, 0, 0)))
        >>> hinge = model.add(mb.Revolute("hinge", model.ground, arm, at=(0, 0, 0), axis=(0, 1, 0)))
        >>> model.equilibrium().stable, (arm.x.round(6) + 0.0).tolist()
        (True, [0.0, 0.0, -1.0])
        >>> linear = model.linearize(inputs=["hinge"], outputs=["hinge"])
        >>> linear.eigenvalues.imag.round(2).tolist()  # ± √(3 g / 2 l)
        [-2.71, 2.71]
        """
        return linear.at_rest(self, options)

    def linearize(self, inputs: Any = (), outputs: Any = None, **options: Any) -> Linear:
        """``ga.linearize`` about where the bodies are, with their velocities, or a ``state`` in its options.

        Inputs and outputs may be joints or their names: forces or torques along their coordinates, and these
        coordinates. ("axle", "displacement") is a coordinate that is not the first.
        """
        return linear.linear(self, inputs, outputs, options)

    def modes(self, count: int | None = None, **options: Any) -> Modes:
        """``ga.modes`` about where the bodies are, with their velocities, or a ``state`` in its options."""
        return linear.vibrations(self, count, options)

    def inverse_dynamics(self, t: Any, q: Any, actuators: Any = None, **options: Any) -> InverseDynamics:
        """``ga.inverse_dynamics`` of the model. Actuators may be joints or their names, as in linearize."""
        return linear.needed(self, t, q, actuators, options)

    def event(
        self, joint: Any, value: Any = 0.0, coordinate: str = "", rate: bool = False, **options: Any
    ) -> Event:
        """The event of a joint coordinate that reaches a value, or of its ``rate``; see :class:`ga.Event`.

        ``coordinate`` is its name, the first of the joint by default. ``options`` are ``terminal``,
        ``direction`` and ``reset``. An angle is meant up to whole turns: it reaches the value in every turn.
        """
        return limits.event(self, joint, value, coordinate, rate, **options)

    def stops(
        self,
        joint: Any,
        lower: Any = None,
        upper: Any = None,
        restitution: Any = 1.0,
        coordinate: str = "",
        rest: Any = 1e-3,
    ) -> list[Event]:
        """Events with the impacts of a joint on stops at the ends of its range.

        After an impact, the rate of the coordinate is −``restitution`` times that before, and all velocities
        satisfy the constraints. A rate below ``rest`` ends the run. An angle counts as that within half a
        turn of the middle of its range. With one end, it meets the stop in every turn, from that side only:
        pass both ends if the joint may turn around. See docs/multibody.md.
        """
        return limits.stops(self, joint, (lower, upper), restitution, coordinate, rest)

    def motion(self, sol: Any, values: Mapping[str, Any] | None = None) -> Motion:
        """Positions, velocities, joint coordinates, reactions and energies of a solution, by name.

        A state, an equilibrium or (t, q, v) is one row. ``values`` are its numbers, by default
        those of the run.
        """
        return motion_of(self, sol, values)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a JSON file that people can read. Functions of the user's own are refused."""
        files.save(self, path)

    def view(
        self,
        sol: Any = None,
        *,
        traces: Any = (),
        reactions: Any = (),
        force_scale: float | None = None,
        axes: Any = (),
        joints: bool = True,
        **options: Any,
    ) -> View:
        """The motion as an HTML page.

        Parameters
        ----------
        sol : a solution; or a state, an equilibrium or (t, q, v), of which a picture is made. By default the
            model is shown where its bodies are.
        traces : names of bodies, bodies or frames whose paths are drawn.
        reactions : names of joints, or joints, whose forces on their second body are drawn as arrows, or
            True for all but couplings.
        force_scale : the length of an arrow for a force of one. By default the longest arrow has a quarter
            of the size of the scene.
        axes : names of bodies, bodies or frames whose axes are drawn, or True for all bodies.
        joints : whether joints are drawn.
        options : those of ``ga.view``, but for its shapes.
        """
        more = {"reactions": reactions, "force_scale": force_scale, "axes": axes, "joints": joints}
        model, rows = to_draw(self, (0.0, *self._start()) if sol is None else sol)
        shapes = functools.partial(drawn, model, traces=traces, **more)
        return shown(rows, shapes, **{"up": self._up} | options)

    def animate(self, sol: Any, path: str | os.PathLike[str], **options: Any) -> None:
        """Write an animated GIF by matplotlib. Options are those of ``view`` and of :meth:`View.animate`."""
        animated(path, functools.partial(self.view, sol), **options)

    def live(
        self, *, rate: float | None = 1.0, port: int = 8080, browser: bool = True, **options: Any
    ) -> Live:
        """A view in a browser while a run goes on: ``model.solve(t_span, callback=model.live())``.

        ``rate``, ``port`` and ``browser`` are those of :class:`Live`, options those of ``view`` that say what
        is drawn. Arrows need a ``force_scale``, because the forces to come are not known.
        """
        shapes = functools.partial(drawn, self, **options)
        return Live(shapes, rate=rate, up=self._up, port=port, browser=browser)

    @property
    def _up(self) -> str:
        """Which axis points upwards in pictures: y if all bodies move in the plane of x and y."""
        return "y" if all(body.kind.name == "planar" for body in self.bodies) else "z"
