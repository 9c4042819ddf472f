"""The result of a run: arrays, statistics, interpolation, files, a plot."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import jax
import numpy as np

from genalpha.backends import sampling
from genalpha.engine.discrete import ControlRecord
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Errors
from genalpha.engine.run_data import RunState
from genalpha.mechanics.labels import NO_LABELS, Labels
from genalpha.mechanics.spaces import Space
from genalpha.numerics import codes
from genalpha.numerics.data import State
from genalpha.results import global_errors, named, summary
from genalpha.results.deferred import Deferred
from genalpha.results.global_errors import GlobalErrors
from genalpha.results.phases import Phase, Phases
from genalpha.results.picking import picked
from genalpha.results.records import NewtonHistory, Reactions, Residuals, Stats

# Fields that are no arrays.
META = ("method", "rotations", "backend", "detail", "not_unique", "space", "complete", "labels", "entries")


@dataclass(frozen=True, eq=False)
class Solution:
    """A computed motion. The first axis of the arrays is time, including the start and the end.

    The shapes below are for N steps that are all kept. ``t_eval`` and ``save`` of ``solve`` select other
    rows. In a batch, all arrays have the batch axis B in front.

    Attributes
    ----------
    t (N+1,), q (N+1, size), v (N+1, n) : times, coordinates, velocities.
    z (N+1, n_states) : first-order states, see :class:`StateSystem`. They are the last columns of v.
    a (N+1, n), lam (N+1, m), psi (N+1, p) : accelerations v' and multipliers λ and ψ at t. They solve the
        equations of motion and the twice differentiated constraints at (t, q, v), so they are as accurate
        as q and v.
    a_alpha (N+1, n), t_alpha (N+1,) : the method's own a_{n+α} and its time t_n + α(t_n − t_{n−1}). Row 0 is
        the starting value and its time.
    lam_method (N+1, m), psi_method (N+1, p) : the method's own λ and ψ at t, of second order.
    residuals : .position, .velocity and .nonholonomic (N+1,), see :class:`Residuals`.
    reactions : .holonomic, .nonholonomic and .total (N+1, n), see :class:`Reactions`.
    stats : totals of the run, see :class:`Stats`.
    newton : Newton's work in each step (N,), see :class:`NewtonHistory`.
    status : 0 if the run reached the end. It is negative if an event or the callback ended the run, and
        positive after a failure.
    success, message : whether the status is not a failure, and the status in words.
    t_end : the time that the run reached, whichever rows were kept. After a failure it is the time of the
        last good step.
    extra : variables that only some methods have, by name, each (N+1, ...).
    error : estimated global errors, see :class:`GlobalErrors`; None without ``accuracy`` or ``extrapolate``.
    errors : estimated local errors .q and .v (N+1, n) and .norm (N+1,); None without error control.
    method, rotations : names of the method and of the rotations in the space.
    backend : "native", "xla" or "cuda".
    detail : more about a failure or about the multipliers. It is part of the message.
    not_unique : indices into (lam, psi) of the constraints whose multipliers are not unique. They occur only
        with ``redundant="min_norm"``. The multipliers are then those of smallest norm.
    t_events, q_events, v_events, lam_events, psi_events : lists with one array for each event, which has one
        row for each occurrence. In a batch, members with fewer occurrences have NaN. None without events.
    labels, entries : names and units of the entries of q, v, lam and psi (:class:`Labels`), and the places of
        those that were kept, for quantities of which ``save`` chose some.
    parameters : in a batch, the numbers in args that vary from member to member, by names such as "args.0".
    nodes, space, complete : data for ``sol(t)``: the ends of all steps (if the rows are not enough), the
        space of q, and whether the rows are enough.

    Outside of JAX transforms the arrays are NumPy's and end at the last good row. a, lam, psi, residuals and
    reactions are computed on first access. Under a transform all arrays are traced, and rows after a failure
    are NaN.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> pendulum = ga.System(
    ...     mass=jnp.eye(2),
    ...     force=lambda t, q, v: jnp.array([0.0, -9.81]),
    ...     holonomic=lambda t, q: jnp.array([q @ q - 1.0]),
    ... )
    >>> sol = ga.solve(pendulum, (0.0, 0.5), [1.0, 0.0], [0.0, 0.0], h=0.01)
    >>> sol
    <Solution by soi2: 50 steps, t = 0 to 0.5, reached the end of the time span>
    >>> sol.q.shape, sol.lam.shape, sol.reactions.total.shape
    ((51, 2), (51, 1), (51, 2))
    """

    t: Any
    q: Any
    v: Any
    a: Any
    a_alpha: Any
    t_alpha: Any
    lam: Any
    psi: Any
    lam_method: Any
    psi_method: Any
    residuals: Residuals
    reactions: Reactions
    stats: Stats
    newton: NewtonHistory
    status: Any
    t_end: Any
    extra: dict[str, Any]
    errors: Errors | None
    error: GlobalErrors | None
    method: str
    rotations: tuple[str, ...] = ()
    backend: str = "xla"
    detail: str = ""
    not_unique: tuple[int, ...] = ()
    t_events: list[Any] | None = None
    q_events: list[Any] | None = None
    v_events: list[Any] | None = None
    lam_events: list[Any] | None = None
    psi_events: list[Any] | None = None
    nodes: StepEnd | None = None
    space: Space | None = None
    complete: bool = False
    labels: Labels = NO_LABELS
    entries: tuple[tuple[str, tuple[int, ...]], ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Move deferred values out of the fields. `__getattr__` computes them on first access."""
        deferred = {name: x for name, x in self.__dict__.items() if isinstance(x, Deferred)}
        for name in deferred:
            del self.__dict__[name]
        object.__setattr__(self, "_deferred", deferred)

    def __getattr__(self, name: str) -> Any:
        later = self.__dict__.get("_deferred", {}).get(name)
        if later is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        found = later()
        object.__setattr__(self, name, found)
        return found

    def __getstate__(self) -> dict[str, Any]:
        for name in self._deferred:
            getattr(self, name)
        return self.__dict__ | {
            "_deferred": {},
            "_equations": None,
            "_control": None,
            "nodes": self._nodes_for_a_file(),
        }

    @property
    def state(self) -> RunState | None:
        """The state at the end, from which ``ga.solve(..., state=sol.state)`` continues.

        It is None after a failure, for a solution from a file, and under a JAX transform.
        """
        later = self.__dict__.get("_later")
        return None if later is None else later()

    @property
    def phases(self) -> tuple[Phase, ...] | None:
        """The parts of the run, each with one system and one set of args, see :class:`Phase`.

        There are several if a reset changed the args, and after ``ga.concatenate``. It is None for a solution
        from a file, a member of a batch, one that a jitted function returned, and with
        ``redundant="min_norm"``. :attr:`args` of a member are known all the same.
        """
        equations = self.__dict__.get("_equations")
        return None if equations is None else tuple(equations.phases)

    @property
    def control(self) -> ControlRecord | None:
        """The samples of the controller: .t (K,), .u and .s; None without one, and for one from a file."""
        return None if (later := self.__dict__.get("_control")) is None else later()

    def connected(self, later: Any, equations: Phases, control: Deferred | None = None) -> Solution:
        """This solution, with the state from which another run can continue, and its equations of motion.

        ``equations`` computes a, λ and ψ for ``sol(t)``, ``control`` lists samples. They are no fields,
        because JAX must treat them neither as arrays nor as constants. A solution from a file has none.
        """
        self.__dict__.update(_control=control, _later=later, _equations=equations)
        return self

    @property
    def args(self) -> Any:
        """The args of the run, or of all members; at its end if they changed, None for one from a file."""
        phases = self.phases
        return phases[-1].args if phases else self.__dict__.get("_members", (None,))[0]

    def labelled(
        self, labels: Labels, entries: Any = (), parameters: Any = None, members: Any = (None, None)
    ) -> Solution:
        """This solution with names and units, places of entries, and parameters of a batch.

        ``members`` are the args of a batch, and a tree that says which of them vary.
        """
        self.__dict__.update(labels=labels, entries=entries, parameters=parameters or {}, _members=members)
        return self

    def __call__(self, t: Any) -> State:
        """The motion at a time t, or at an array of times (K,), within the run.

        Returns a :class:`State` with t, q, v, a, lam, psi; for an array of times each has a leading axis K.
        Between the steps, q and v are interpolated with third order on their space. a, λ and ψ solve the
        equations of motion there, as those of the rows do. A solution that was read from a file, is a member
        of a batch, or was returned by a jitted function has no equations: its λ and ψ are interpolated
        linearly, and its a is the derivative of the interpolated v. All steps are needed: a run with
        ``t_eval`` or ``save`` keeps them if ``dense_output=True``.

        >>> import jax.numpy as jnp, genalpha as ga
        >>> fall = ga.System(mass=jnp.eye(1), force=lambda t, q, v: jnp.array([-10.0]))
        >>> sol = ga.solve(fall, (0.0, 1.0), [0.0], [0.0])
        >>> sol(0.5).q.round(12).tolist(), sol([0.25, 0.75]).v.round(12).tolist()
        ([-1.25], [[-2.5], [-7.5]])
        """
        if np.ndim(self.status):
            raise TypeError("sol(t) needs a single solution, and this is a batch: call a member, sol[0](t)")
        if self.space is None or (self.nodes is None and not self.complete):
            raise ValueError(
                "sol(t) needs all steps, and this run did not keep them: pass dense_output=True to ga.solve"
            )
        equations = self.__dict__.get("_equations")
        nodes = self.nodes or self._rows_as_nodes(equations is not None)
        times = t if isinstance(t, jax.core.Tracer) else np.asarray(t, dtype=float)
        if isinstance(nodes.t, np.ndarray) and isinstance(times, np.ndarray):
            first, last = nodes.t[0], nodes.t[-1]
            if not ((times >= first) & (times <= last)).all():
                raise ValueError(
                    f"t = {t!r} is outside of the run, which reaches from t = {first:.9g} to {last:.9g}: "
                    "pass times within it"
                )
        if self.error is not None and equations is not None and isinstance(times, np.ndarray):
            a = self.a if self.nodes is None else equations.at_nodes(nodes).a
            found = global_errors.motion(self.space, nodes, a, times.reshape(-1))
        else:
            found = sampling.at(self.space, nodes, times.reshape(-1))
        if equations is not None:
            t, q, v, _, *own = found
            exact = equations(StepEnd(t, q, v, *own))
            found = State(t, q, v, exact.a, exact.lam, exact.psi)
        return State(*(x.reshape((*np.shape(times), *x.shape[1:])) for x in found))

    def _rows_as_nodes(self, own: bool) -> StepEnd:
        """The rows as ends of steps, with the method's own multipliers or with those of the rows."""
        own = own and self.lam_method is not None
        multipliers = (self.lam_method, self.psi_method) if own else (self.lam, self.psi)
        return StepEnd(self.t, self.q, self.v, *multipliers)

    @property
    def z(self) -> Any:
        """First-order states (N+1, n_states), a part of ``v``; None if ``save`` left out some of it."""
        moved = None if self.space is None or self.v is None else self.space.moved(self.v.shape[-1])
        return None if moved is None or len(moved) != self.v.shape[-1] else self.v[..., ~moved]

    @property
    def success(self) -> Any:
        """Whether the run reached its end, or an event or the callback ended it."""
        return self.status <= codes.SUCCESS

    @property
    def message(self) -> str:
        """The status in words, with the time and step of a failure."""
        if np.ndim(self.status):
            ended = int(np.sum(np.asarray(self.status) < codes.SUCCESS))
            text = (
                f"{int(np.sum(self.success))} of {np.size(self.status)} runs reached the end of the time span"
            )
            return f"{text}, {ended} of them the end by an event" if ended else text
        steps, end = int(self.stats.steps), float(self.t_end)
        text = codes.message(int(self.status), end, steps, self.rotations)
        return f"{text}. {self.detail}" if self.detail else text

    def __getitem__(self, index: Any) -> Any:
        """A quantity by name, or member ``index`` of a batch; a slice or an array of numbers gives several.

        Names are those of coordinates, velocities and accelerations (``sol["x"]``, ``sol["x'"]``,
        ``sol["x''"]``), and those of constraints for multipliers (``sol["lam[hinge]"]``). Numbers work too:
        ``sol["q[0]"]``, ``sol["psi[1]"]``. Each is an array (N+1,), in a batch (B, N+1).
        """
        if isinstance(index, str):
            return named.found(self, index)
        if not np.ndim(self.status):
            raise TypeError("this solution is a single run, not a batch: it has no members")
        return picked(self, index, META)

    def __len__(self) -> int:
        """The number of members of a batch."""
        if not np.ndim(self.status):
            raise TypeError(
                "this solution is a single run, not a batch: it has no members. Its rows are sol.t"
            )
        return len(self.status)

    def __iter__(self) -> Iterator[Solution]:
        """The members of a batch."""
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        if isinstance(self.status, jax.core.Tracer):
            return f"<Solution by {self.method}, traced, q {np.shape(self.q)}>"
        if np.ndim(self.status):
            return f"<Solutions by {self.method}: {self.message}>"
        span = f"t = {self.t[0]:g} to {self.t[-1]:g}" if len(self.t) else "no times"
        return f"<Solution by {self.method}: {self.stats.steps} steps, {span}, {self.message}>"

    def _repr_html_(self) -> str:
        return summary.html(self)

    def summary(self) -> str:
        """The run in a few lines of text: its end and its work, first and last values by name, residuals.

        With ``accuracy`` it states digits, after a failure what to look at, and of a batch how members ended.
        """
        return summary.text(self)

    def to_pandas(self, *keys: str) -> Any:
        """A DataFrame of pandas with one row for each time, which is the index, and columns by name.

        ``keys`` choose columns, as in :meth:`plot`; by default all of q, v, a, lam and psi. A batch has the
        index (member, t), and its parameters as further columns. ``attrs`` holds units and metadata.
        """
        from genalpha.results import tables

        return tables.to_pandas(self, keys)

    def to_xarray(self) -> Any:
        """A Dataset of xarray: q, v, a, lam, psi and residuals with named axes, and metadata.

        Axes are time, coordinate, velocity, constraint (of lam), velocity_constraint (of psi), and member in
        a batch, which has its parameters as coordinates.
        """
        from genalpha.results import tables

        return tables.to_xarray(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the solution to a file.

        The suffix chooses the form: .nc and .zarr hold :meth:`to_xarray`, .csv and .parquet the table of
        :meth:`to_pandas`. Any other file is .npz of NumPy: everything, without loss, and ``ga.load`` reads it
        back. Except for .zarr, which is a folder, a write replaces the whole file or leaves it unchanged.
        """
        from genalpha.results import tables

        tables.save(self, path)

    def _nodes_for_a_file(self) -> StepEnd | None:
        """The ends of all steps with the multipliers that solve the equations of motion there."""
        equations = self.__dict__.get("_equations")
        if self.nodes is None or equations is None:
            return self.nodes
        exact = equations.at_nodes(self.nodes)
        return self.nodes._replace(lam=exact.lam, psi=exact.psi)

    def plot(self, *keys: str, names: Sequence[str] | None = None) -> Any:
        """Draw curves over time, with one panel for each kind and unit; returns the figure.

        ``keys`` are names as in ``sol["x"]``, or whole quantities: "q", "v", "a", "lam", "psi", "residuals".
        By default coordinates, velocities, multipliers and constraint residuals are drawn. ``names`` are
        other names of the coordinates. Needs matplotlib (``pip install genalpha[plot]``).
        """
        from genalpha.results.plot import plot

        return plot(self, keys, names)

    def animate(self, path: str | os.PathLike[str], shapes: Any = None, **options: Any) -> None:
        """Write an animated GIF by matplotlib. ``options`` are those of ``ga.view`` and of ``View.animate``.

        ``shapes`` says what is drawn, see ``ga.shapes``. For a multibody model call ``model.animate``.
        """
        from genalpha.view.front import animated, view

        animated(path, lambda **given: view(self, shapes, **given), **options)


jax.tree_util.register_dataclass(
    Solution,
    data_fields=[spec.name for spec in fields(Solution) if spec.name not in META],
    meta_fields=list(META),
)
