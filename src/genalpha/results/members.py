"""Solutions of batches. Some members may have run alone or not at all."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.batch import lanes
from genalpha.backends.batch.plan import EVERYTHING, BatchPlan, Kept, Results
from genalpha.backends.batch.pool import Pool
from genalpha.backends.native.kernels import Kernels
from genalpha.engine import row
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived, Layout
from genalpha.engine.setup import Setup
from genalpha.mechanics.system import Dims
from genalpha.numerics import codes
from genalpha.results import assemble
from genalpha.results.assemble import Ending, Work
from genalpha.results.deferred import Deferred
from genalpha.results.output import NAMES, Output
from genalpha.results.records import NewtonHistory
from genalpha.results.solution import Solution

# Fields of a solution with one row for every kept time, except the history of Newton's method.
TIMED = ("t_alpha", *(name for name in NAMES if name != "newton"))


_RECORDED = ("q", "v", "a_alpha", "lam_method", "psi_method")
# The fields of `Derived` that belong to a quantity, and which of them are computed together.
_FIELDS = {name: (name,) for name in ("a", "lam", "psi")} | {
    "residuals": ("position", "velocity", "nonholonomic"),
    "reactions": ("holonomic_force", "nonholonomic_force", "reaction"),
}
_TOGETHER = (("a", "lam", "psi"), (*_FIELDS["residuals"], *_FIELDS["reactions"]))


class Alone(NamedTuple):
    """A member that ran alone: its solution, the rows of it that are kept, and their places in the batch."""

    member: int
    solution: Solution
    rows: np.ndarray
    places: np.ndarray


class NotStarted(NamedTuple):
    """A member that could not be started, with its status."""

    member: int
    status: int


class BatchSolution:
    """A batch computed by machine code: its records, and in ``apart`` the members without valid records.

    Quantities are computed, or copied from the GPU, on first access.
    """

    def __init__(
        self, setup: Setup, kernels: Kernels, plan: BatchPlan, results: Results, doubles: list[np.ndarray]
    ) -> None:
        self.kernels, self.plan, self.results, self.doubles = kernels, plan, results, doubles
        self.setup = setup  # of which the kernels may have another form
        self.layout = row.layout(self.setup)
        self.apart: list[Alone | NotStarted] = []
        self.rows = len(plan.times)
        later = lambda names: Deferred(lambda: self._derive(names))
        self._derived = tuple(map(later, _TOGETHER))

    def solution(self, backend: str, output: Output, events: int = 0) -> Solution:
        """The solution, batch axis first, with the quantities that ``output`` names and so many events."""
        found = self.results.summary
        status = found.status.astype(int)
        bad = (status != 0) & (found.taken == 0)
        totals = np.where(bad[:, None], 0, found.totals).astype(int)
        work = Work(found.taken.astype(int), found.rejected.astype(int), *totals.T.copy())
        ending = Ending(status, np.array(found.t_end, dtype=float), work, backend)
        if events and output.t_eval is None:
            longest = (len(one.places) for one in self.apart if isinstance(one, Alone))
            self.rows = max(len(self.plan.times), *longest, 0)
        return _assembled(self, ending, output, events)

    def quantity(self, name: str) -> Any:
        """A quantity of all members. Those of members in ``apart`` have no meaning yet."""
        found, more = self._quantity(name), self.rows - len(self.plan.times)
        if not more:
            return found
        blank = lambda x: np.nan if x.dtype.kind == "f" else 0
        wide = lambda x: [(0, 0), (0, more), *[(0, 0)] * (x.ndim - 2)]
        pad = lambda x: np.pad(x, wide(x), constant_values=blank(x))
        return jax.tree.map(pad, found)

    def _quantity(self, name: str) -> Any:
        if name in assemble.DERIVED:
            kept = self.results.records.derived
            found = kept or self._derived[name in ("residuals", "reactions")]()
            return assemble.derived(Deferred(lambda: _partial(found)))[name]()
        if name == "t_alpha":
            return self._t_alpha()
        column = self.results.records.column
        if name == "errors":
            return self.plan.errors(self.layout, column)
        if name == "newton":
            return assemble.history(column(self.layout.parts["report"]))
        if name == "extra":
            return {key: column(at) for key, at in self.layout.extra.items()}
        return column(self.layout.parts[name.removesuffix("_method")])

    def _t_alpha(self) -> np.ndarray:
        plan, count = self.plan, len(self.results.t_alpha)
        ends, sizes = plan.timing(self.layout, self.results.records.column)
        t_alpha = np.array(np.broadcast_to(ends + self.setup.method.alpha * sizes, (count, len(plan.times))))
        if plan.from_start:
            t_alpha[:, 0] = self.results.t_alpha
        return t_alpha

    def _derive(self, names: tuple[str, ...]) -> dict[str, np.ndarray]:
        """Derived quantities of all rows, on all cores, some members at a time."""
        parts = [self.results.records.column(self.layout.parts[name]) for name in ("q", "v", "lam", "psi")]
        rows = parts[0].shape[:2]
        found = lanes.empty(names, rows, self.setup.dims)
        times = np.broadcast_to(self.plan.times, rows)

        def some(here: slice) -> None:
            pick = lambda tree: jax.tree.map(lambda x: np.asarray(x)[here], tree)
            fixed = lanes.picked((self.results.scale, self.doubles), here)
            lanes.derive(self.kernels, StepEnd(*pick([times, *parts])), fixed, pick(found))

        step = max(1, lanes.ROWS // rows[1])
        with Pool() as pool:
            pool.map(some, [slice(first, first + step) for first in range(0, rows[0], step)])
        return found


def _partial(found: dict[str, np.ndarray]) -> Derived:
    """Some derived quantities. The others are None."""
    return Derived(**(dict.fromkeys(Derived._fields) | found))


def kept(layout: Layout, names: tuple[str, ...] | None, controlled: bool) -> Kept:
    """The columns of records, and the derived quantities, that belong to names of ``save``."""
    if names is None:
        return EVERYTHING
    slices = [layout.parts[name.removesuffix("_method")] for name in names if name in _RECORDED]
    slices += [layout.parts["report"]] * ("newton" in names)
    slices += layout.extra.values() if "extra" in names else []
    if controlled:
        slices += [slice(layout.plain, layout.plain + 2)] + [layout.of_errors] * ("errors" in names)
    columns = sorted({i for at in slices for i in range(at.start, at.stop)})
    derived = tuple(field for name in names for field in _FIELDS.get(name, ()))
    return Kept(np.array(columns, dtype=int), derived)


class _Blank:
    """A batch whose members have all run alone: everything is in ``apart``."""

    def __init__(self, setup: Setup, plan: BatchPlan, apart: list[Alone | NotStarted], rows: int) -> None:
        self.setup, self.plan, self.apart, self.rows = setup, plan, apart, rows
        self._example = next(one.solution for one in apart if isinstance(one, Alone))

    def quantity(self, name: str) -> Any:
        """Blank rows of a quantity; None if some members do not have it, as with ``accuracy``."""
        if any(getattr(one.solution, name) is None for one in self.apart if isinstance(one, Alone)):
            return None
        shape = (len(self.apart), self.rows)
        blank = lambda x: np.full((*shape, *x.shape[1:]), np.nan if x.dtype.kind == "f" else 0, x.dtype)
        return jax.tree.map(lambda x: blank(np.asarray(x)), getattr(self._example, name))


def all_alone(
    setup: Setup, plan: BatchPlan, apart: list[Alone | NotStarted], output: Output, events: int
) -> Solution:
    """The solution of a batch whose members have all run alone, or not at all."""
    longest = max((len(one.places) for one in apart if isinstance(one, Alone)), default=0)
    batch = _Blank(setup, plan, apart, max(longest, 1) if output.t_eval is None else len(plan.times))
    numbers = lambda: np.zeros(len(apart), dtype=int)
    work, example = Work(*(numbers() for _ in Work._fields)), batch._example
    ending = Ending(numbers(), np.zeros(len(apart)), work, example.backend, example.stats.fallback)
    return _assembled(batch, ending, output, events)


def _assembled(batch: BatchSolution | _Blank, ending: Ending, output: Output, events: int) -> Solution:
    """The solution of a batch. Members in ``apart`` are written into their places."""
    count, plan = len(ending.status), batch.plan
    for one in batch.apart:
        _count(one, ending.status, ending.t_end, ending.work, plan.t0)

    def patched(name: str) -> Any:
        found = batch.quantity(name)
        if isinstance(batch, BatchSolution):  # members that ran alone have the wanted entries already
            found = output.chosen(name, found)
        for one in batch.apart if found is not None else ():
            _write(name, found, one)
        return found

    later = lambda name: Deferred(lambda: patched(name))
    wanted = lambda name: output.names is None or name in (*output.names, "t_alpha")
    fields: dict[str, Any] = {name: later(name) if wanted(name) else None for name in (*TIMED, "newton")}
    if isinstance(batch, _Blank) and batch._example.error is not None:
        fields["error"] = later("error")
    t_alpha, times = fields.pop("t_alpha"), np.broadcast_to(plan.times, (count, len(plan.times)))
    happened = None
    if output.t_eval is None and (events or isinstance(batch, _Blank)):
        times = _own_times(batch, times, ending)
    if events:
        happened = _events(batch.apart, count, events, batch.setup.dims)
    return assemble.solution(batch.setup, fields, times, t_alpha, ending, False, None, happened)


def _own_times(batch: BatchSolution | _Blank, times: np.ndarray, ending: Ending) -> np.ndarray:
    """The times (B, K) of the rows of members that ran with events. Rows that were not reached are NaN."""
    found = np.full((len(times), batch.rows), np.nan)
    lost = (ending.status > codes.SUCCESS)[:, None] & (times > ending.t_end[:, None])
    found[:, : times.shape[1]] = np.where(lost, np.nan, times)
    for one in batch.apart:
        found[one.member] = np.nan
        if isinstance(one, Alone):
            found[one.member, one.places] = one.solution.t[one.rows]
    return found


def _events(
    apart: list[Alone | NotStarted], count: int, events: int, dims: Dims
) -> dict[str, list[np.ndarray]]:
    """``t_events`` and so on: for each event an array (B, E, ...), NaN where a member has fewer."""
    told = [one for one in apart if isinstance(one, Alone)]
    widths = {"t": (), "q": (dims.size,), "v": (dims.n,), "lam": (dims.m,), "psi": (dims.p,)}
    found: dict[str, list[np.ndarray]] = {}
    for name, width in widths.items():
        found[name] = []
        for event in range(events):
            rows = {one.member: getattr(one.solution, f"{name}_events")[event] for one in told}
            most = max(map(len, rows.values()), default=0)
            whole = np.full((count, most, *width), np.nan)
            for member, part in rows.items():
                whole[member, : len(part)] = part
            found[name].append(whole)
    return found


def patched(sol: Solution, apart: list[Alone | NotStarted], t0: float) -> Solution:
    """A solution of arrays in memory, in which the members in ``apart`` are replaced."""
    for one in apart:
        for name in (*TIMED, "newton"):
            _write(name, getattr(sol, name), one)
        _count(one, sol.status, sol.t_end, _work(sol), t0)
        sol.stats.factorizations[one.member] = sol.stats.jacobians[one.member]
    return sol


def _write(name: str, found: Any, one: Alone | NotStarted) -> None:
    """Write a member into its place. Rows that it did not reach are NaN."""
    i, leaves = one.member, jax.tree.leaves(found)
    for whole in leaves:
        if whole.dtype.kind == "f":
            whole[i] = np.nan
        else:
            whole[i] = 0
    if isinstance(one, NotStarted):
        return
    own = getattr(one.solution, name)
    if name == "newton" and own is not None and len(own.iterations) < len(one.solution.t):
        own = _with_starts(own, one.solution.t)
    for whole, part in zip(leaves, jax.tree.leaves(own), strict=True):
        whole[i, one.places] = part[one.rows]


def _with_starts(history: NewtonHistory, t: np.ndarray) -> NewtonHistory:
    """A history with zeros in the rows (K,) in which a run starts: the first one, and those after resets."""
    starts = np.append(True, np.diff(t) == 0)
    extra = len(t) - len(history.iterations)
    steps = np.flatnonzero(~starts) if starts.sum() == extra else np.arange(extra, len(t))

    def spread(x: np.ndarray) -> np.ndarray:
        whole = np.zeros(len(t), x.dtype)
        whole[steps] = x
        return whole

    return jax.tree.map(spread, history)


def _work(sol: Solution) -> Work:
    of = sol.stats
    return Work(
        of.steps, of.rejected, of.newton_iterations, of.jacobians, of.rounding_limited, of.near_singular
    )


def _count(one: Alone | NotStarted, status: Any, t_end: Any, work: Work, t0: float) -> None:
    """Write the totals of a member into their places."""
    i = one.member
    if isinstance(one, NotStarted):
        status[i], t_end[i], own = one.status, t0, (0,) * len(work)
    else:
        status[i], t_end[i], own = one.solution.status, one.solution.t_end, _work(one.solution)
    for column, number in zip(work, own, strict=True):
        column[i] = number
