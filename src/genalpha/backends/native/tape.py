"""Derivatives of steps: tangents and adjoints, as machine code that goes through a record of a run.

A step solves R(x, c, p) = 0 for its unknowns x, where c is the carry and p are the arguments, its start and
its size, and returns y(x, c, p): the next carry, λ, ψ and more. By the implicit function theorem

    y' = y_x x' + y_c c' + y_p p'   with   R_x x' = −(R_c c' + R_p p'),

and the transposed formulas lead from derivatives with respect to y to those with respect to c and p. All
derivatives are taken in the graph of the step, at the solution, with the matrix R_x there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from genalpha.backends.native.code import MAKING, OPTIMIZED, aligned, small
from genalpha.backends.native.controlled_step import ControlledKernels
from genalpha.backends.native.step import StepKernels
from genalpha.backends.native.writer import ITERATION, ids
from genalpha.compiler import emit_llvm, lu, machine
from genalpha.compiler.differentiate import along, jacobian, pulled_back
from genalpha.compiler.graph import ONE, TRUE, ZERO, Unsupported
from genalpha.compiler.program import PIECE, AddTo, Builder, Walk, cut, reads
from genalpha.compiler.reader import Symbols
from genalpha.compiler.substitute import substitution
from genalpha.compiler.table_reads import TableReads

# Orders of pivots: of the matrix of a step, and of the linear systems after it.
PivotOrders = tuple[lu.Order, tuple[lu.Order, ...]]
# The numbers of rows of a tape from which an order of pivots is chosen.
SAMPLES = 5


@dataclass
class TapedKernels(StepKernels):
    """Steps whose records end with the rest of the carry and the unknowns."""

    taped = True


@dataclass
class TapedControlledKernels(ControlledKernels):
    """The same under error control."""

    taped = True


def flat(tree: Any) -> np.ndarray:
    """The nodes of all leaves, or the numbers."""
    leaves = jax.tree.leaves(tree, is_leaf=lambda x: isinstance(x, Symbols))
    parts = [np.ravel(x.ids if isinstance(x, Symbols) else x) for x in leaves]
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class TapeSteps:
    """Steps of a tape: records (N, W, lanes) of their starts and ends, and start and size (N, 2, lanes)."""

    before: np.ndarray
    after: np.ndarray
    times: np.ndarray

    @staticmethod
    def of(table: np.ndarray, t: np.ndarray, h: np.ndarray) -> TapeSteps:
        """All steps of a tape (N+1, W) of one system."""
        return TapeSteps(table[:-1, :, None], table[1:, :, None], np.stack([t, h], axis=1)[:, :, None])

    def __getitem__(self, which: slice) -> TapeSteps:
        return TapeSteps(self.before[which], self.after[which], self.times[which])

    def __len__(self) -> int:
        return len(self.times)


class Tape:
    """Where the numbers are in records of a run that its derivatives need, and its expressions."""

    def __init__(self, step: StepKernels) -> None:
        assert step.taped
        self.step, first = step, step.row.start
        self.carry_columns = flat(step.carry) - first
        self.x_columns = step.x - first
        carry, self.t, self.h, scale, doubles = step.given
        self.carry, self.scale, self.doubles = flat(carry), flat(scale), flat(doubles)
        self.x = step.symbols["x"].ids
        # q, v, a, λ, ψ and the method's own variables: the first columns of a record.
        self.width = step.counts[0] - first
        place_of = {column: k for k, column in enumerate(self.carry_columns.tolist())}
        self.visible = [place_of[i] for i in range(step.carry.a[-1] + 1 - first)]  # their places in the carry

    def inputs(self, steps: TapeSteps, some: np.ndarray) -> np.ndarray:
        """Carry, unknowns, start and size (K, ...) of some steps in the first lane."""
        before, x = steps.before[some][:, self.carry_columns, 0], steps.after[some][:, self.x_columns, 0]
        return np.concatenate([before, x, steps.times[some][:, :, 0]], axis=1)

    def nodes(self) -> np.ndarray:
        """The nodes in the order of :meth:`inputs`."""
        return np.concatenate([self.carry, self.x, [int(self.t.ids), int(self.h.ids)]])


class Derivative:
    """A kernel that goes through the steps of a run, with numbers that it keeps from row to row.

    ``columns`` are those of a record that have weights or whose changes are wanted; None for all. The starts
    and sizes of steps have changes, or derivatives, if they are ``timed``.

    ``rows`` are the slots of a row, ``more`` those of the numbers that follow the inputs of a step,
    ``shared`` those of numbers that all rows have in common, ``state`` those of the numbers that are kept,
    ``results`` those that are returned for every row; the last of them is 1 if the pivots are good.
    """

    def __init__(
        self, tape: Tape, orders: PivotOrders, columns: Sequence[int] | None = None, timed: bool = True
    ) -> None:
        self.tape, self.timed, step = tape, timed, tape.step
        self.columns = list(range(tape.width) if columns is None else columns)
        graph, count = step.graph, len(step.graph.nodes)
        try:
            self.builder = Builder(graph)
            self._write(*orders)
            self.program = self.builder.build({})
        finally:
            graph.reset(count)
        carry, x, times = np.split(self.rows, np.cumsum([len(tape.carry), len(tape.x)]))
        rows = [
            *reads(0, tape.carry_columns, carry),
            *reads(1, tape.x_columns, x),
            *reads(2, range(2), times),
            *reads(3, range(len(self.more)), self.more),
        ]
        results, width = range(int(self.results[0]), int(self.results[-1]) + 1), len(step.row)
        widths, kernel = (width, width, 2, len(self.more)), f"{self.name}_row"
        self.walk = Walk(kernel, widths, tuple(rows), results, tuple(self.adds), len(tape.doubles), common=2)
        self._cut, self._code = cut(self.program, PIECE), dict[int, Callable[..., Any]]()

    def _make(self, lanes: int) -> Callable[..., Any]:
        library = machine.Library(
            emit_llvm.emit([(self._cut, {self.name: self.walk})], lanes),
            [self.name],
            optimized=small(self.program, OPTIMIZED),
            scheduled=False,
            hosts=self.program.hosts,
        )
        pointer, number = machine.POINTER, machine.COUNT
        arrays = [pointer, number] * len(self.walk.widths)
        return library.function(self.name, *[pointer] * 3, number, *arrays)

    name = ""
    rows: np.ndarray
    more: np.ndarray
    adds: Sequence[AddTo] = ()
    shared: np.ndarray
    state: np.ndarray
    kept: np.ndarray  # which numbers of a state have slots
    results: np.ndarray

    def _write(self, order: lu.Order, systems: tuple[lu.Order, ...]) -> None:
        raise NotImplementedError

    @staticmethod
    def width(tape: Tape) -> int:
        """The number of results for every row, without the last one."""
        raise NotImplementedError

    def place(self, nodes: np.ndarray) -> np.ndarray:
        """Slots for input nodes."""
        slots = self.builder.slot(len(nodes))
        self.builder.slot_of.update(zip(nodes.tolist(), slots.tolist(), strict=True))
        self.builder.level_of.update(dict.fromkeys(nodes.tolist(), ITERATION))
        return slots

    def new(self, count: int) -> np.ndarray:
        return self.tape.step.graph.inputs(count)

    def equations(self, order: lu.Order, systems: tuple[lu.Order, ...]) -> tuple[Any, ...]:
        """y, R, the factors of R_x, and a node that says whether pivots are good."""
        step, graph = self.tape.step, self.tape.step.graph
        after, output, _ = step.finished
        found, good, others = flat([ids(after), ids(output[:3])]), TRUE, dict[int, int]()
        for system, pivots in zip(step.systems, systems, strict=True):
            factors = lu.factor(graph, system.matrix, pivots)
            solution = lu.solve(graph, factors, system.rhs).tolist()
            by_slot = dict(zip(system.places.tolist(), solution, strict=True))
            others |= {i: by_slot[s] for i, s in step.builder.slot_of.items() if s in by_slot}
            for fine in lu.examine(graph, system.matrix, factors):
                good = graph.logic("and", good, fine)
        if others:
            found = substitution(graph, others)(found)
        rows = step.value.ids
        matrix = jacobian(graph, rows, self.tape.x)
        factors = lu.factor(graph, matrix, order)
        for fine in lu.examine(graph, matrix, factors):
            good = graph.logic("and", good, fine)
        return found, rows, factors, graph.select(good, ONE, ZERO)

    def run(
        self, steps: TapeSteps, more: np.ndarray, shared: np.ndarray, state: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Go through steps, with more numbers (N, M, lanes) for each, from a state (S, lanes).

        Returns results (N, R, lanes) and the last state.
        """
        count, lanes = len(steps), steps.before.shape[2]
        with MAKING:
            if lanes not in self._code:
                self._code[lanes] = self._make(lanes)
        work, results = aligned(self._cut.slots * lanes), np.empty((count, len(self.results), lanes))
        sums = np.zeros((self.walk.sums, lanes))
        table = work.reshape(-1, lanes)
        table[self.shared], table[self.state] = shared, state[self.kept]
        arrays = (steps.before, steps.after, steps.times, more)
        memory = [number for x in arrays for number in (x.ctypes.data, x.strides[0])]
        self._code[lanes](*(x.ctypes.data for x in (work, results, sums)), count, *memory)
        after = state.copy()
        after[self.kept] = table[self.state]
        after[len(self.tape.carry) :] += sums[: len(after) - len(self.tape.carry)]
        return results, after


class Adjoint(Derivative):
    """From derivatives with respect to records to those with respect to the first carry and the arguments.

    A row has, after the inputs of its step, the derivatives with respect to columns of its record. Rows come
    in the order of falling time. The state are the derivatives with respect to the carry, and to the
    arguments. Results are the derivatives with respect to the start and the size of each step.
    """

    name = "adjoint"

    @staticmethod
    def width(tape: Tape) -> int:
        return 2

    def _write(self, order: lu.Order, systems: tuple[lu.Order, ...]) -> None:
        tape, graph = self.tape, self.tape.step.graph
        found, rows, factors, good = self.equations(order, systems)
        seen, kept, total = (self.new(len(x)) for x in (self.columns, tape.carry, tape.doubles))
        self.rows, self.more = self.place(tape.nodes()), self.place(seen)
        self.shared = np.concatenate([self.place(tape.scale), self.place(tape.doubles)])
        weights = np.full(len(found), ZERO)
        weights[: len(kept)] = kept
        places = [*tape.visible, *range(len(kept), len(found))]  # of the columns of a record
        for column, i in zip(self.columns, seen.tolist(), strict=True):
            weights[places[column]] = graph.add(int(weights[places[column]]), i)
        of_x = pulled_back(graph, found, tape.x, weights)
        forces = lu.solve_transposed(graph, factors, of_x)
        forces = np.array([graph.neg(i) for i in forces.tolist()], dtype=np.int64)
        both, by = np.concatenate([found, rows]), np.concatenate([weights, forces])
        taken = TableReads(graph, both, tape.doubles)
        times = np.array([int(tape.t.ids), int(tape.h.ids)][: 2 * self.timed], dtype=np.int64)
        variables = [tape.carry, tape.doubles, times, taken.nodes]
        result = pulled_back(graph, both, np.concatenate(variables), by)
        cuts = np.cumsum([len(x) for x in variables])[:-1]
        of_carry, of_doubles, of_time, of_reads = np.split(result, cuts)
        used = np.flatnonzero(of_doubles != ZERO)  # the others are only read from tables
        pairs = zip(total[used].tolist(), of_doubles[used].tolist(), strict=True)
        sums = np.array([graph.add(a, b) for a, b in pairs], dtype=np.int64)
        self.state = np.concatenate([self.place(kept), self.place(total[used])]).astype(int)
        self.kept = np.concatenate([np.arange(len(tape.carry)), len(tape.carry) + used])
        shown, summed = np.append(of_time, good), np.concatenate([of_reads, taken.places(graph)])
        self.results, added = self.builder.slot(len(shown)), self.builder.slot(len(summed))
        self.adds = [AddTo(*pair) for pair in added.reshape(2, -1).T.tolist()]
        stores = [(self.state, np.concatenate([of_carry, sums])), (self.results, shown), (added, summed)]
        self.builder.kernel("adjoint_row", ITERATION, *stores)


class Tangent(Derivative):
    """From changes of the first carry, of the arguments and of the steps to changes of all records.

    A row has, after the inputs of its step, the changes of its start and its size. The arguments and their
    changes are shared. The state is the change of the carry. Results are changes of columns of a record.
    """

    name = "tangent"

    @staticmethod
    def width(tape: Tape) -> int:
        return tape.width

    def _write(self, order: lu.Order, systems: tuple[lu.Order, ...]) -> None:
        tape, graph = self.tape, self.tape.step.graph
        found, rows, factors, good = self.equations(order, systems)
        kept, change = self.new(len(tape.carry)), self.new(len(tape.doubles))
        times = self.new(2) if self.timed else np.full(2, ZERO)
        self.rows = self.place(tape.nodes())
        self.more = self.place(times) if self.timed else np.zeros(0, int)
        self.shared = np.concatenate([self.place(x) for x in (tape.scale, tape.doubles, change)])
        variables = np.concatenate([tape.carry, tape.doubles, [int(tape.t.ids), int(tape.h.ids)]])
        direction = np.concatenate([kept, change, times])
        by = lu.solve(graph, factors, along(graph, rows, variables, direction))
        by = np.array([graph.neg(i) for i in by.tolist()], dtype=np.int64)
        new = along(graph, found, np.concatenate([variables, tape.x]), np.concatenate([direction, by]))
        self.state, self.kept = self.place(kept), np.arange(len(kept))
        shown = np.array([*(new[i] for i in tape.visible), *new[len(kept) :]], dtype=np.int64)[self.columns]
        self.results = self.builder.slot(len(shown) + 1)
        stores = [(self.state, new[: len(kept)]), (self.results, np.append(shown, good))]
        self.builder.kernel("tangent_row", ITERATION, *stores)


def orders(tape: Tape, rows: np.ndarray, shared: np.ndarray) -> PivotOrders:
    """Orders of pivots that are good for some rows (K, W) of a tape, the first of them in any case."""
    step, graph = tape.step, tape.step.graph
    count = len(graph.nodes)
    try:
        matrices = [jacobian(graph, step.value.ids, tape.x), *(system.matrix for system in step.systems)]
        nodes = [i for matrix in matrices for i in matrix.reshape(-1).tolist()]
        given, constants = tape.nodes().tolist(), [*tape.scale.tolist(), *tape.doubles.tolist()]
        samples = []
        for row in rows:
            values = dict(zip([*given, *constants], [*row.tolist(), *shared.tolist()], strict=True))
            with np.errstate(all="ignore"):
                samples.append(np.array(graph.evaluate(nodes, values), dtype=float))
        found, first = [], 0
        for matrix in matrices:
            part = np.stack([x[first : first + matrix.size].reshape(matrix.shape) for x in samples])
            order = lu.choose(matrix != ZERO, part)
            if order is None:
                raise Unsupported("the matrix of a step is singular")
            found.append(order)
            first += matrix.size
        return found[0], tuple(found[1:])
    finally:
        graph.reset(count)
