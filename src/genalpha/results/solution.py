"""The result of a run: arrays, statistics, save and load, a plot."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from genalpha.backends import sampling
from genalpha.engine import interpolate
from genalpha.engine.files import storable
from genalpha.engine.row import Errors
from genalpha.engine.run_data import RunState
from genalpha.mechanics.spaces import Space
from genalpha.numerics import codes
from genalpha.numerics.data import State
from genalpha.results.deferred import Deferred

META = ("method", "rotations", "backend", "detail", "not_unique", "space", "complete")  # not arrays


@storable
class Residuals(NamedTuple):
    """Largest constraint residual at each time (N+1,), unscaled: g, g_t + G v, and k."""

    position: Array
    velocity: Array
    nonholonomic: Array


@storable
class Reactions(NamedTuple):
    """Reaction forces at each time (N+1, n): −Gᵀλ, −Kᵀψ, and all of them together.

    ``total`` is the sum of the two unless the system has a ``reaction`` of its own; then it is that.
    """

    holonomic: Array
    nonholonomic: Array
    total: Array


@dataclass(frozen=True)
class Stats:
    """Totals of a run. ``rounding_limited`` counts steps whose Newton iteration ended at rounding level.

    ``fallback`` says why XLA ran it, or a part of it, where native code was wanted; None otherwise.
    """

    steps: Any
    rejected: Any
    newton_iterations: Any
    jacobians: Any
    factorizations: Any
    rounding_limited: Any
    fallback: str | None = None


COUNTS = tuple(spec.name for spec in fields(Stats) if spec.name != "fallback")
jax.tree_util.register_dataclass(Stats, data_fields=list(COUNTS), meta_fields=["fallback"])


@storable
class NewtonHistory(NamedTuple):
    """Newton's work step by step (N,): iterations, new matrices, and whether rounding ended it."""

    iterations: Array
    jacobians: Array
    rounding: Array


@dataclass(frozen=True, eq=False)
class Solution:
    """A computed motion; arrays with time first, start and end included.

    Attributes
    ----------
    t (N+1,), q (N+1, size), v (N+1, n) : times, coordinates, velocities.
    a (N+1, n) : accelerations v' at t: M a = f(t, q, v, λ, ψ). Where M is singular, they follow from the
        constraints; under a JAX transform only if it is an array, and NaN if it is a function.
    a_alpha (N+1, n), t_alpha (N+1,) : the method's own a_{n+α} and its time t_n + α(t_n − t_{n−1}); row 0 is
        the starting value and its time.
    lam (N+1, m), psi (N+1, p) : multipliers at t.
    residuals : .position, .velocity, .nonholonomic (N+1,).
    reactions : .holonomic, .nonholonomic, .total (N+1, n).
    stats : totals of the run; newton : the same step by step.
    status, success, message : 0, True and a sentence where the end was reached.
    t_end : the time up to which the run came, whichever rows were kept; that of the last good step where it
        failed.
    extra : variables that only some methods have, by name, each (N+1, ...).
    errors : .q, .v (N+1, n) and .norm (N+1,), estimated local errors, under error control; else None.
    method, rotations : names of the method and of the rotations in the space.
    backend : what computed it: "native", "xla" or "cuda".
    detail : what else is known about a failure or the multipliers, part of the message.
    not_unique : constraints whose multipliers are not unique, as indices into (lam, psi) one after the other;
        only ``redundant="min_norm"`` of ``solve`` allows for them, and gives the smallest.
    t_events, q_events, v_events, lam_events, psi_events : for each event an array with a row each time it
        happened; None without events.
    nodes, space, complete : what ``sol(t)`` is made of: the ends of all steps, unless t, q, v, lam and psi
        are.

    Outside of JAX transforms the arrays are NumPy's and end at the last good row; a, residuals and reactions
    are computed when they are first asked for. Under a transform all are traced, and rows after a failure are
    NaN.
    """

    t: Any
    q: Any
    v: Any
    a: Any
    a_alpha: Any
    t_alpha: Any
    lam: Any
    psi: Any
    residuals: Residuals
    reactions: Reactions
    stats: Stats
    newton: NewtonHistory
    status: Any
    t_end: Any
    extra: dict[str, Any]
    errors: Errors | None
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
    nodes: interpolate.StepEnd | None = None
    space: Space | None = None
    complete: bool = False

    def __post_init__(self) -> None:
        """Put away what is computed when it is first asked for: `__getattr__` finds it."""
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
        return self.__dict__ | {"_deferred": {}}

    @property
    def state(self) -> RunState | None:
        """From where ``ga.solve(..., state=sol.state)`` goes on; None after a failure, a file or a
        transform."""
        later = self.__dict__.get("_later")
        return None if later is None else later()

    def continued_by(self, later: Deferred | None) -> Solution:
        """This solution, with the state from which to go on.

        The state is no field: it is neither an array nor something to compile for.
        """
        object.__setattr__(self, "_later", later)
        return self

    def __call__(self, t: Any) -> State:
        """The motion at a time or at times t within the run: a :class:`State` with t, q, v, a, lam, psi.

        Between the steps q and v are interpolated with third order on their space, a, λ and ψ with second;
        at the ends of steps q, v, λ and ψ are those of the method, and a is the derivative of the
        interpolated v. Needs all steps: a run with ``t_eval`` or ``save`` keeps them where
        ``dense_output=True``.

        >>> import jax.numpy as jnp, genalpha as ga
        >>> fall = ga.System(mass=jnp.eye(1), force=lambda t, q, v: jnp.array([-10.0]))
        >>> sol = ga.solve(fall, (0.0, 1.0), [0.0], [0.0])
        >>> sol(0.5).q.round(12).tolist(), sol([0.25, 0.75]).v.round(12).tolist()
        ([-1.25], [[-2.5], [-7.5]])
        """
        if np.ndim(self.status):
            raise TypeError("this is a batch of solutions: ask its members, sol[0](t)")
        if self.space is None or (self.nodes is None and not self.complete):
            raise ValueError("not all steps of this run were kept: pass dense_output=True to ga.solve")
        nodes = self.nodes or interpolate.StepEnd(self.t, self.q, self.v, self.lam, self.psi)
        times = t if isinstance(t, jax.core.Tracer) else np.asarray(t, dtype=float)
        if isinstance(nodes.t, np.ndarray) and isinstance(times, np.ndarray):
            first, last = nodes.t[0], nodes.t[-1]
            if not ((times >= first) & (times <= last)).all():
                raise ValueError(f"the run reaches from t = {first:.9g} to {last:.9g}, asked for {t!r}")
        found = sampling.at(self.space, nodes, times.reshape(-1))
        return State(*(x.reshape((*np.shape(times), *x.shape[1:])) for x in found))

    @property
    def success(self) -> Any:
        """Whether the run came to its end, or was ended by an event or by the callback."""
        return self.status <= codes.SUCCESS

    @property
    def message(self) -> str:
        """What the status means, with time and step of a failure."""
        if np.ndim(self.status):
            return (
                f"{int(np.sum(self.success))} of {np.size(self.status)} runs reached the end of the time span"
            )
        steps, end = int(self.stats.steps), float(self.t_end)
        text = codes.message(int(self.status), end, steps, self.rotations)
        return f"{text}. {self.detail}" if self.detail else text

    def __getitem__(self, index: Any) -> Solution:
        """A member of a batch that ``vmap`` made."""
        if not np.ndim(self.status):
            raise TypeError("this solution is a single run, not a batch")
        return jax.tree.map(lambda leaf: leaf[index], self)

    def __repr__(self) -> str:
        if isinstance(self.status, jax.core.Tracer):
            return f"<Solution by {self.method}, traced, q {np.shape(self.q)}>"
        if np.ndim(self.status):
            return f"<Solutions by {self.method}: {self.message}>"
        span = f"t = {self.t[0]:g} to {self.t[-1]:g}" if len(self.t) else "no times"
        return f"<Solution by {self.method}: {self.stats.steps} steps, {span}, {self.message}>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to one file (NumPy's .npz), without loss; ``ga.load`` reads it back."""
        from genalpha.results import files

        files.save(self, path)

    def _parts(self) -> dict[str, Any]:
        """All arrays, by names such as ``q`` and ``residuals.position``."""
        parts: dict[str, Any] = {}
        for spec in fields(self):
            value = getattr(self, spec.name)
            if spec.name in META or value is None:
                continue
            if isinstance(value, Stats):
                parts |= {f"{spec.name}.{key}": getattr(value, key) for key in COUNTS}
            elif isinstance(value, tuple):
                parts |= {f"{spec.name}.{key}": part for key, part in value._asdict().items()}  # type: ignore[attr-defined]
            elif isinstance(value, list):
                parts |= {f"{spec.name}.{i}": part for i, part in enumerate(value)}
            elif isinstance(value, dict):
                parts |= {f"{spec.name}.{key}": part for key, part in value.items()}
            else:
                parts[spec.name] = value
        return parts

    def plot(self, names: list[str] | None = None) -> Any:
        """Draw coordinates, velocities, multipliers and constraint residuals; returns the figure.

        ``names`` labels the coordinates. Needs matplotlib (``pip install genalpha[plot]``).
        """
        from genalpha.results.plot import plot

        if np.ndim(self.status):
            raise TypeError("this is a batch of solutions: plot its members, sol[0].plot()")
        if any(x is None for x in (self.q, self.v, self.lam, self.psi, self.residuals)):
            raise ValueError("a plot needs q, v, lam, psi and residuals, and save left out some of them")
        return plot(self, names)


jax.tree_util.register_dataclass(
    Solution,
    data_fields=[spec.name for spec in fields(Solution) if spec.name not in META],
    meta_fields=list(META),
)
