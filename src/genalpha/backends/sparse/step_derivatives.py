"""Tangents and adjoints of the steps of a large assembly, along the tape of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from genalpha.backends.native.writer import GROWTH
from genalpha.backends.sparse.code import SparseCode
from genalpha.backends.sparse.derivative_kinds import AdjointKind, TangentKind
from genalpha.backends.sparse.memory import SparseMemory
from genalpha.backends.sparse.models import Blocks, KindModel, numbers_of, places_of
from genalpha.compiler import machine, repeated_modules
from genalpha.compiler.graph import Graph, Unsupported
from genalpha.compiler.lu import CONDITION
from genalpha.compiler.machine import POINTER
from genalpha.compiler.program import Builder, Program
from genalpha.compiler.repeated import Clear, Each, Factor, Solve
from genalpha.compiler.sparse_pattern import Singular
from genalpha.engine.setup import Setup
from genalpha.mechanics.system import Dims
from genalpha.numerics.data import Scale

# Some steps of a run: the number of the first one, and the tape (n+1, W) from its start on.
Block = tuple[int, np.ndarray]


# Machine code of a derivative: before the first step, to choose pivots, and the two parts of every step.
PLANS = ("once", "probe", "first", "second")


class _Center(NamedTuple):
    """Slots that all kinds share: times of a step, their changes, and the report of the factors."""

    program: Program
    times: np.ndarray
    changes: np.ndarray
    report: np.ndarray


def _center(times: int) -> _Center:
    builder = Builder(Graph())
    slots = builder.slot(times), builder.slot(times), builder.slot(4)
    return _Center(builder.build({}), *slots)


class DerivativeCode:
    """Machine code for the derivatives of one step, in two parts: before and after the linear system.

    All unknowns are solved for at once, also if the step itself has stages.
    """

    taped = True
    kind: Any

    def __init__(self, setup: Setup, of: SparseCode) -> None:
        self.width, self.controlled = of.width, of.controlled
        self.blocks = Blocks.of(setup, of.width, coupled=True)
        self.kinds: list[Any] = []
        self.central = _center(len(of.central.times))
        self.patterns: list[Any] = []
        self.kept: dict[str, Any] = {}
        self.library = machine.Library(self._texts(of), [*PLANS], scheduled=False)

    def _texts(self, of: SparseCode) -> Iterator[str]:
        """The modules of all kinds, each as soon as it is written, and of all the rest."""
        apart, times = repeated_modules.Apart(), self.central.times
        for kind in of.kinds:
            one = kind.derived(self.kind, self.blocks)
            self.kinds.append(one)
            yield apart.text(one.name, *one.module(self._loops))
        clear, rhs, result = self._arrays
        first = [Clear("lu0:a"), Clear(rhs), *map(self._before, self.kinds)]
        solve = Solve("lu0", rhs, result, transposed=self.transposed)
        plans = (
            [kind.once() for kind in self.kinds],
            [kind.kept_entries(times) for kind in self.kinds],
            [*first, Factor("lu0", int(self.central.report[0]))],
            [solve, *map(Clear, clear), *(kind.second() for kind in self.kinds)],
        )
        text, self.entries_of_head, self.frames = repeated_modules.emit(
            self.central.program, None, {}, "", self.width, dict(zip(PLANS, plans, strict=True)), {}, apart
        )
        yield text

    @functools.cached_property
    def plans(self) -> dict[str, Callable[..., None]]:
        return {name: self.library.function(name, *[POINTER] * 3) for name in PLANS}

    # Arrays that the second part clears, and those of the right-hand side and the solution.
    _arrays: tuple[tuple[str, ...], str, str]
    transposed: bool

    def _loops(self, kind: Any) -> list[Each]:
        """All loops over the groups of a kind."""
        times = self.central.times
        return [kind.once(), kind.kept_entries(times), self._before(kind), kind.second()]

    def _before(self, kind: Any) -> Each:
        """The loop of a kind before the linear system."""
        raise NotImplementedError


class AdjointCode(DerivativeCode):
    kind, transposed = AdjointKind, True
    _arrays = ("pulled", "pulled_old", "of_times"), "d", "r"

    def __init__(self, setup: Setup, of: SparseCode) -> None:
        super().__init__(setup, of)
        if any((kind.times_used > 2).any() for kind in self.kinds):
            raise Unsupported("a method whose steps depend on the lag of its accelerations")

    def _before(self, kind: AdjointKind) -> Each:
        return kind.first(self.central.times)


class TangentCode(DerivativeCode):
    kind, transposed = TangentKind, False
    _arrays = (), "r", "d"

    def _before(self, kind: TangentKind) -> Each:
        return kind.first(self.central.times, self.central.changes)


class DerivativeMemory(SparseMemory):
    """The numbers of a step, and weights or changes in arrays with the form of a record."""

    def _more_arrays(self) -> None:
        seen, n = self.first["counts"] - self.first["record"], self.dims.n
        names = ("weights", "pulled") if isinstance(self.code, AdjointCode) else ("changes",)
        for name in names:
            self._array(name, seen)
            self._array(f"{name}_old", n)
        self._array("of_times", len(self.code.central.times))

    def _write_lists(self) -> None:
        for kind in self.code.kinds:
            self._read_lists(kind)
            at, trash = kind.model.places, self.first["trash"]
            unknowns = self.first["d"] + places_of(self.code.blocks.unknowns, at)
            rows = self.first["r"] + places_of(self.code.blocks.rows, at)
            if isinstance(kind, AdjointKind):
                _, motion, forces = self._of_record(kind, "weights", "weights_old")
                self._list(kind, "motion_weights", motion, None)
                self._list(kind, "force_weights", forces, None)
                carry = np.concatenate(self._of_record(kind, "pulled", "pulled_old")[0], axis=1)
                times = np.broadcast_to(
                    self.first["of_times"] + kind.times_used, (len(carry), len(kind.times_used))
                )
                self._list(kind, "of_carry", [carry[:, kind.carry_used]], trash)
                self._list(kind, "of_times", [times], trash)
                self._list(kind, "of_x", [unknowns[:, kind.x_used]], trash)
                self._list(kind, "by", [rows], None)
            elif isinstance(kind, TangentKind):
                moved, motion, forces = self._of_record(kind, "changes", "changes_old")
                self._list(kind, "moved", moved, None)
                self._list(kind, "caused", [rows[:, kind.rows_used]], trash)
                self._list(kind, "response", [unknowns], None)
                self._list(kind, "motion_changes", motion, trash)
                self._list(kind, "force_changes", forces, trash)


class Moments(NamedTuple):
    """Weights or changes of what a run starts from: the carry, and the method's own variables of all copies.

    ``motion`` are those of q, v and a, ``a_old`` and ``h`` of the carry. ``own`` has one row for each copy.
    """

    motion: np.ndarray
    a_old: np.ndarray
    h: float
    own: list[np.ndarray]


class StepDerivatives:
    """Goes through the steps of a run. All results are NaN if a matrix is singular."""

    def __init__(self, code: DerivativeCode, dims: Dims, models: list[KindModel], scale: Scale) -> None:
        self.code, self.dims = code, dims
        self.memory = DerivativeMemory(code, dims)  # type: ignore[arg-type]
        self.memory.fill_constants(models, scale, numbers_of(models))
        self.memory.run("once")
        self.carried = dims.size + 2 * dims.n

    def _part(self, row: np.ndarray, name: str) -> np.ndarray:
        """An array in a row of the tape."""
        first = self.memory.first[name] - self.memory.first["record"]
        return row[first : first + self.memory.lengths[name]]

    def _at(self, before: np.ndarray, after: np.ndarray, t: float, h: float) -> bool:
        """Do the first part for a step between two rows of the tape. False if its matrix is singular."""
        memory = self.memory
        memory.array("record")[:] = before
        memory.array("x")[:] = self._part(after, "x")
        memory.w[self.code.central.times] = [t, h, *self._part(before, "past")]
        if self.code.patterns and not memory.orders:
            memory.use(self.code.patterns)
        for _ in range(2):
            if memory.orders:
                memory.run("first")
                growth, largest, inverse, total = memory.w[self.code.central.report]
                if np.isfinite(total) and largest * inverse <= CONDITION and growth <= GROWTH:
                    return True
            memory.run("probe")
            try:
                self.code.patterns = memory.analyse()
            except Singular:
                return False
            memory.use(self.code.patterns)
        memory.run("first")
        return bool(np.isfinite(memory.w[self.code.central.report]).all())


class Adjoints(StepDerivatives):
    """From weights of records to those of the start, of the args of all copies, and of the steps."""

    def run(
        self, blocks: Iterable[Block], times: np.ndarray, sizes: np.ndarray, weights: np.ndarray
    ) -> tuple[Moments, dict[str, np.ndarray], np.ndarray]:
        """Weights of the start, of the args of all copies (K, D) by kind, and of the steps (N, 2).

        ``weights`` (N+1, width) are those of the records. The blocks of the tape come in the order of falling
        time.
        """
        memory, of_times = self.memory, np.zeros((len(sizes) + 1, len(self.code.central.times)))
        for first, table in blocks:
            for k in reversed(range(len(table) - 1)):
                n = first + k
                memory.array("weights")[:] = weights[n + 1]
                memory.array("weights")[: self.carried] += memory.array("pulled")[: self.carried]
                memory.array("weights_old")[:] = memory.array("pulled_old")
                if not self._at(table[k], table[k + 1], times[n], sizes[n]):
                    memory.w[:] = np.nan
                    return self._found(of_times * np.nan)
                memory.run("second")
                of_times[n] = memory.array("of_times")
        return self._found(of_times)

    def _found(self, of_times: np.ndarray) -> tuple[Moments, dict[str, np.ndarray], np.ndarray]:
        memory = self.memory
        own = [memory.read(kind, kind.found_own) for kind in self.code.kinds]
        args = {kind.name: np.zeros((kind.model.copies, len(kind.args))) for kind in self.code.kinds}
        for kind in self.code.kinds:
            args[kind.name][:, kind.data_used] = memory.read(kind, kind.of_data)
        pulled, old = memory.array("pulled")[: self.carried].copy(), memory.array("pulled_old").copy()
        of_steps = of_times[:-1, :2].copy()
        of_steps[:, 1] += of_times[1:, 2]  # the last size, in the next step
        return Moments(pulled, old, float(of_times[0, 2]), own), args, of_steps


class Tangents(StepDerivatives):
    """From changes of the start, of the args and of the steps to those of all records."""

    def run(
        self,
        blocks: Iterable[Block],
        steps: np.ndarray,
        start: Moments,
        data: dict[str, np.ndarray],
        of_steps: np.ndarray,
    ) -> np.ndarray:
        """Changes of the records (N, width) after all steps, whose starts and sizes are ``steps`` (N, 2)."""
        memory, code = self.memory, self.code
        memory.array("changes")[: self.carried], memory.array("changes_old")[:] = start.motion, start.a_old
        for kind, own in zip(code.kinds, start.own, strict=True):
            memory.fill(kind, kind.found_own, own)
            memory.fill(kind, kind.turned, data[kind.name][:, : len(kind.args)])
        found, last = np.empty((len(steps), memory.lengths["changes"])), start.h
        for first, table in blocks:
            for k in range(len(table) - 1):
                n = first + k
                memory.w[code.central.changes[:3]] = *of_steps[n], last
                last = of_steps[n, 1]
                if not self._at(table[k], table[k + 1], *steps[n]):
                    return found * np.nan
                memory.run("second")
                found[n] = memory.array("changes")
        return found
