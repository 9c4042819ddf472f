"""Derivatives of steps: tangents and adjoints, as machine code that goes through a record of a run.

A step solves R(x, c, p) = 0 for its unknowns x, where c is the carry and p are the arguments, its start and
its size, and returns y(x, c, p): the next carry, λ, ψ and more. By the implicit function theorem

    y' = y_x x' + y_c c' + y_p p'   with   R_x x' = −(R_c c' + R_p p'),

and the transposed formulas lead from derivatives with respect to y to those with respect to c and p. All
derivatives are taken in the graph of the step, at the solution, with the matrix R_x there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from genalpha.backends.native.code import MAKING, OPTIMIZED, PIECE, aligned, small
from genalpha.backends.native.controlled_step import ControlledKernels
from genalpha.backends.native.step import StepKernels
from genalpha.backends.native.writer import ITERATION, ids
from genalpha.compiler import emit_llvm, lu, machine
from genalpha.compiler.differentiate import along, jacobian, pulled_back
from genalpha.compiler.graph import ONE, TRUE, ZERO, Unsupported
from genalpha.compiler.program import Builder, Map, cut
from genalpha.compiler.reader import Symbols
from genalpha.compiler.substitute import substitution
from genalpha.compiler.table_reads import TableReads

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

    def inputs(self, table: np.ndarray, t: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Carry, unknowns, start and size of steps (N, ...), from the records (N+1, width) of their ends.

        Records may have a last axis for lanes.
        """
        before, x = table[:-1, self.carry_columns], table[1:, self.x_columns]
        times = np.stack([t, h], axis=1).reshape(-1, 2, *[1] * (table.ndim - 2))
        return np.concatenate([before, x, np.broadcast_to(times, (len(t), 2, *table.shape[2:]))], axis=1)

    def nodes(self) -> np.ndarray:
        """The nodes in the order of `inputs`."""
        return np.concatenate([self.carry, self.x, [int(self.t.ids), int(self.h.ids)]])


class Derivative:
    """A kernel that goes through the steps of a run, with numbers that it keeps from row to row.

    ``rows`` are the slots of a row, ``shared`` those of numbers that all rows have in common, ``state`` those
    of the numbers that are kept, ``results`` those that are returned for every row; the last of them is 1 if
    the pivots are good.
    """

    def __init__(self, tape: Tape, order: lu.Order, systems: tuple[lu.Order, ...]) -> None:
        self.tape, step = tape, tape.step
        graph, count = step.graph, len(step.graph.nodes)
        try:
            self.builder = Builder(graph)
            self._write(order, systems)
            program = self.builder.build({})
        finally:
            graph.reset(count)
        program = cut(program, PIECE)
        inputs = range(int(self.rows[0]), int(self.rows[0]) + len(self.rows) + len(self.shared))
        results = range(int(self.results[0]), int(self.results[-1]) + 1)
        self._slots = program.slots
        optimized = small(program, OPTIMIZED)
        make = lambda lanes: machine.Library(
            emit_llvm.emit([(program, {self.name: Map(f"{self.name}_row", inputs, results)})], lanes),
            [self.name],
            optimized=optimized,
            scheduled=False,
            hosts=program.hosts,
        )
        self._make, self._code = make, dict[int, Callable[..., Any]]()

    name = ""
    rows: np.ndarray
    shared: np.ndarray
    state: np.ndarray
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

    def run(self, rows: np.ndarray, shared: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Go through rows (N, W, lanes) from a state (S, lanes): results (N, R, lanes) and the last state."""
        count, width, lanes = rows.shape
        with MAKING:
            if lanes not in self._code:
                library = self._make(lanes)
                pointer, number = machine.POINTER, machine.COUNT
                self._code[lanes] = library.function(self.name, *[pointer] * 3, *[number] * 2)
        work, results = aligned(self._slots * lanes), np.empty((count, len(self.results), lanes))
        table = work.reshape(-1, lanes)
        table[self.shared], table[self.state] = shared, state
        rows = np.ascontiguousarray(rows)
        self._code[lanes](work.ctypes.data, rows.ctypes.data, results.ctypes.data, count, width)
        return results, table[self.state].copy()


class Adjoint(Derivative):
    """From derivatives with respect to records to those with respect to the first carry and the arguments.

    A row has, after the inputs of its step, the derivatives with respect to its record. Rows come in the
    order of falling time. The state are the derivatives with respect to the carry, and to the arguments.
    Results are the derivatives with respect to the start and the size of each step.
    """

    name = "adjoint"

    @staticmethod
    def width(tape: Tape) -> int:
        return 2

    def _write(self, order: lu.Order, systems: tuple[lu.Order, ...]) -> None:
        tape, graph = self.tape, self.tape.step.graph
        found, rows, factors, good = self.equations(order, systems)
        seen, kept, total = self.new(tape.width), self.new(len(tape.carry)), self.new(len(tape.doubles))
        self.rows = np.concatenate([self.place(tape.nodes()), self.place(seen)])
        self.shared = np.concatenate([self.place(tape.scale), self.place(tape.doubles)])
        weights = kept.copy()
        for column, i in enumerate(tape.visible):
            weights[i] = graph.add(int(kept[i]), int(seen[column]))
        weights = np.concatenate([weights, seen[len(tape.visible) :]])
        of_x = pulled_back(graph, found, tape.x, weights)
        forces = lu.solve_transposed(graph, factors, of_x)
        forces = np.array([graph.neg(i) for i in forces.tolist()], dtype=np.int64)
        both, by = np.concatenate([found, rows]), np.concatenate([weights, forces])
        self.reads = reads = TableReads(graph, both, tape.doubles)
        times = np.array([int(tape.t.ids), int(tape.h.ids)])
        variables = [tape.carry, tape.doubles, times, reads.nodes]
        result = pulled_back(graph, both, np.concatenate(variables), by)
        cuts = np.cumsum([len(x) for x in variables])[:-1]
        of_carry, of_doubles, of_time, of_reads = np.split(result, cuts)
        used = np.flatnonzero(of_doubles != ZERO)  # the others are only read from tables
        pairs = zip(total[used].tolist(), of_doubles[used].tolist(), strict=True)
        sums = np.array([graph.add(a, b) for a, b in pairs], dtype=np.int64)
        self.state = np.concatenate([self.place(kept), self.place(total[used])]).astype(int)
        self._summed = np.concatenate([np.arange(len(tape.carry)), len(tape.carry) + used])
        shown = np.concatenate([of_time, of_reads, reads.indices, [good]])
        self.results = self.builder.slot(len(shown))
        stores = [(self.state, np.concatenate([of_carry, sums])), (self.results, shown)]
        self.builder.kernel("adjoint_row", ITERATION, *stores)

    def run(self, rows: np.ndarray, shared: np.ndarray, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        found, after = super().run(rows, shared, state[self._summed])
        whole = state.copy()
        whole[self._summed] = after
        self.reads.add(whole[len(self.tape.carry) :], found[:, 2:-1])
        return found[:, [0, 1, -1]], whole


class Tangent(Derivative):
    """From changes of the first carry, of the arguments and of the steps to changes of all records.

    A row has, after the inputs of its step, the changes of its start and its size. The arguments and their
    changes are shared. The state is the change of the carry. Results are the changes of a record.
    """

    name = "tangent"

    @staticmethod
    def width(tape: Tape) -> int:
        return tape.width

    def _write(self, order: lu.Order, systems: tuple[lu.Order, ...]) -> None:
        tape, graph = self.tape, self.tape.step.graph
        found, rows, factors, good = self.equations(order, systems)
        kept, change, times = self.new(len(tape.carry)), self.new(len(tape.doubles)), self.new(2)
        self.rows = np.concatenate([self.place(tape.nodes()), self.place(times)])
        self.shared = np.concatenate([self.place(x) for x in (tape.scale, tape.doubles, change)])
        variables = np.concatenate([tape.carry, tape.doubles, [int(tape.t.ids), int(tape.h.ids)]])
        direction = np.concatenate([kept, change, times])
        by = lu.solve(graph, factors, along(graph, rows, variables, direction))
        by = np.array([graph.neg(i) for i in by.tolist()], dtype=np.int64)
        new = along(graph, found, np.concatenate([variables, tape.x]), np.concatenate([direction, by]))
        self.state = self.place(kept)
        self.results = self.builder.slot(tape.width + 1)
        shown = [new[i] for i in tape.visible] + new[len(tape.carry) :].tolist()
        stores = [(self.state, new[: len(tape.carry)]), (self.results, np.append(shown, good))]
        self.builder.kernel("tangent_row", ITERATION, *stores)


def orders(tape: Tape, rows: np.ndarray, shared: np.ndarray) -> tuple[lu.Order, tuple[lu.Order, ...]]:
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
