"""The work of a sweep: what travels to the workers, and how a number of runs is computed.

Runs are computed in cells: some neighbouring runs in one call of ``solve_batch``. Cells follow from the sweep
alone, and a cell is always computed as a whole, since the last bits of XLA depend on the size of a batch. So
neither the size of blocks nor the number of workers changes a bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from genalpha.errors import FallbackWarning, unknown
from genalpha.mechanics.system import System
from genalpha.results.solution import Solution
from genalpha.solve import solve
from genalpha.solve_batch import solve_batch
from genalpha.sweep.store import MESSAGE, RAISED, Variable
from genalpha.sweep.targets import Inputs, Placing

QUANTITIES = ("q", "v", "a", "lam", "psi")
# Arguments of ``solve_batch`` that a sweep passes on.
OPTIONS = (
    *("h", "rtol", "atol", "first_step", "max_step", "min_step", "max_steps", "accuracy", "force_accuracy"),
    *("breakpoints", "method", "rho_inf", "newton", "initial", "backend"),
)
_COSTS = ("steps", "rejected", "newton_iterations", "jacobians")
# Errors of functions of the user in single runs. A worker that is out of memory or time is another matter.
_ERRORS = (ArithmeticError, LookupError, TypeError, ValueError)
Values = dict[str, np.ndarray]


@dataclass(eq=False)
class Job:
    """Everything that a worker needs to compute runs. ``names`` are those of the axes.

    ``options`` are for ``solve_batch``. ``example`` are the values of the axes of a run that can be started.
    It is the first run of every batch: machine code is made from it, whichever blocks a worker gets.
    """

    system: System
    t_span: tuple[float, float]
    q0: Any
    v0: Any
    args: tuple[Any, ...]
    names: tuple[str, ...]
    member: Callable[..., Mapping[str, Any]] | None
    observe: Callable[[Solution], Mapping[str, Any]] | None
    options: dict[str, Any]
    save: tuple[str, ...]
    most_events: int
    example: Values | None = None
    variables: dict[str, Variable] = field(default_factory=dict)  # of the store

    def __post_init__(self) -> None:
        self.placing = Placing(self.names, self.q0, self.v0, self.args, self.member)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "placing"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.__post_init__()

    @property
    def events(self) -> int:
        """How many events there are."""
        given = self.options.get("events")
        return 0 if given is None else len(given) if isinstance(given, list | tuple) else 1

    def prepare(self, example: Values) -> None:
        """Compile what all runs need, from the example (1, ...) alone, whichever blocks come first."""
        self.example, self.system._programs.learning = example, False
        given = {name for name, value in self.options.items() if value is not None} | {*self.names}
        sampled = "t_eval" in given and "h" not in given
        if self.options.get("backend") == "xla" or not ("accuracy" in given or sampled):
            return
        inputs = self.placing.inputs(example)  # members that run alone have code of their own
        settings = {name: float(x[0]) for name, x in inputs.settings.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)
            solve(
                self.system,
                self.t_span,
                inputs.q0[0],
                inputs.v0[0],
                args=inputs.args_of(0),
                throw=False,
                **(self.options | settings | {"backend": "auto"}),
            )

    # --- runs -----------------------------------------------------------------------------------

    def computed(self, axes: Values, cell: int) -> Values:
        """The variables of some runs, ``cell`` runs at a time; the first run must be the first of a cell."""
        count = _length(axes)
        found = {name: variable.blank(count) for name, variable in self.variables.items()}
        for first in range(0, count, cell):
            here = slice(first, min(first + cell, count))
            part = self._safely({name: x[here] for name, x in axes.items()}, cell)
            for name, whole in found.items():
                whole[here] = part[name]
        return found

    def _safely(self, axes: Values, cell: int) -> Values:
        """The variables of one cell. If an error ends it, its halves are tried, down to single runs."""
        try:
            return self._beside(axes, cell)
        except _ERRORS:
            return self._halved(axes)

    def _halved(self, axes: Values) -> Values:
        count = _length(axes)
        try:
            return self._beside(axes, count)
        except _ERRORS as error:
            if count == 1:
                return not_run(self.variables, 1, RAISED, f"{type(error).__name__}: {error}")
        halves = slice(0, count // 2), slice(count // 2, count)
        parts = [self._halved({name: x[half] for name, x in axes.items()}) for half in halves]
        return {name: np.concatenate([part[name] for part in parts]) for name in self.variables}

    def _beside(self, axes: Values, size: int) -> Values:
        """The variables of some runs, in a batch of ``size`` runs and the example before them.

        The batch is filled up with the example: XLA compiles again for every other size.
        """
        assert self.example is not None
        count = _length(axes)
        fill = lambda x: np.repeat(x, size - count, axis=0)
        whole = {n: np.concatenate([own := self.example[n], x, fill(own)]) for n, x in axes.items()}
        return {name: x[1 : count + 1] for name, x in self.solved(whole).items()}

    def solved(self, axes: Values) -> Values:
        """The variables of some runs, one batch for each combination of settings; run 0 is the example."""
        inputs = self.placing.inputs(axes)
        if not inputs.settings:
            return self._batch(inputs, {})
        rows = np.stack(list(inputs.settings.values()), axis=1)
        different, which = np.unique(rows, axis=0, return_inverse=True)
        found: Values = {}
        for i, row in enumerate(different):
            here = np.append(0, np.flatnonzero(which.reshape(-1) == i))
            chosen = dict(zip(inputs.settings, row.tolist(), strict=True))
            for name, part in self._batch(inputs.some(here), chosen).items():
                whole = found.setdefault(name, np.empty((len(rows), *part.shape[1:]), part.dtype))
                whole[here] = part
        return found

    def _batch(self, inputs: Inputs, settings: dict[str, float]) -> Values:
        # All quantities are there for ``observe``; those that nobody reads are not computed.
        save: Any = list(self.save or ("q",)) if self.observe is None else "final"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FallbackWarning)  # the driver has warned
            sol = solve_batch(
                self.system,
                self.t_span,
                inputs.q0,
                inputs.v0,
                args=inputs.args,
                args_axes=inputs.axes if inputs.args else "auto",
                save=save,
                **(self.options | settings),
            )
            return self._variables(sol)

    def _variables(self, sol: Solution) -> Values:
        """What is kept of a batch."""
        found: Values = {"status": np.asarray(sol.status, np.int32), "t_end": np.asarray(sol.t_end, float)}
        for name in self.save:
            rows = np.asarray(getattr(sol, name), dtype=float)
            if not rows.shape[-1]:  # such as multipliers of a system without constraints
                continue
            found[name] = rows[:, -1] if self.options.get("t_eval") is None else rows
        for name in _COSTS:
            found[name] = np.asarray(getattr(sol.stats, name), np.int32)
        for i in range(self.events):
            times = np.array(sol.t_events[i])  # type: ignore[index]
            padded = np.full((len(times), self.most_events), np.nan)
            width = min(self.most_events, times.shape[1])
            padded[:, :width] = times[:, :width]
            found[f"t_event_{i}"] = padded
            found[f"events_{i}"] = np.isfinite(times).sum(axis=1).astype(np.int32)
        found["message"] = np.zeros((len(found["status"]), MESSAGE), np.uint8)
        found["retried"] = np.zeros(len(found["status"]), np.uint8)
        return found | self._observed(sol, len(found["status"]))

    def _observed(self, sol: Solution, count: int) -> Values:
        if self.observe is None:
            return {}
        seen = self.observe(sol)
        if not isinstance(seen, Mapping):
            raise TypeError(f"observe must return a dict of arrays, got {type(seen).__name__}")
        found = {}
        for name, value in seen.items():
            array = np.asarray(value, dtype=float)
            if array.shape[:1] != (count,):
                raise ValueError(
                    f"observe must return arrays with one row for each of the {count} runs of the batch, but "
                    f"{name!r} has shape {array.shape}"
                )
            found[str(name)] = array
        return found


def _length(values: Values) -> int:
    return len(next(iter(values.values())))


def checked_options(options: dict[str, Any]) -> dict[str, Any]:
    """These options, if all are known."""
    for name in options:
        if name not in OPTIONS:
            raise TypeError(str(unknown("argument of sweep", name, OPTIONS)))
    return dict(options)


def not_run(variables: dict[str, Variable], count: int, status: int, reason: str) -> Values:
    """The variables of runs that have no result."""
    found = {name: variable.blank(count) for name, variable in variables.items()}
    found["status"][:] = status
    text = np.frombuffer(reason.encode()[:MESSAGE], np.uint8)
    found["message"][:, : len(text)] = text
    return found


def variables_of(job: Job, found: Values) -> dict[str, Variable]:
    """The variables of the store, from the results of some runs."""
    timed = job.options.get("t_eval") is not None
    listed = {}
    for name, x in found.items():
        shape = x.shape[1:]
        dims = tuple(f"{name}_{i}" for i in range(len(shape)))
        if name in job.save:
            dims = ("time", f"{name}_index") if timed else (f"{name}_index",)
        elif name.startswith("t_event_"):
            dims = ("occurrence",)
        listed[name] = Variable(dims, shape, x.dtype.newbyteorder("<").str.lstrip("<|"))
    return listed
