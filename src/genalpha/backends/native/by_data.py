"""Kernels of a step with many unknowns: the factors of its matrix are data, and not unrolled into code."""

from __future__ import annotations

import functools
import operator
from typing import Any, NamedTuple

import numpy as np

from genalpha.backends.native.code import OPTIMIZED_DATA, aligned, small
from genalpha.backends.native.controlled_step import ControlledWriter
from genalpha.backends.native.step import Orders, StepKernels
from genalpha.backends.native.writer import ITERATION, Writer, examined, renewed_by
from genalpha.compiler import machine, repeated_modules
from genalpha.compiler.graph import ZERO
from genalpha.compiler.machine import COUNT, POINTER
from genalpha.compiler.program import PIECE, Call, Instructions, Loop, Program, cut
from genalpha.compiler.reader import Symbols
from genalpha.compiler.repeated import Factor, Pick, Solve
from genalpha.compiler.sparse_pattern import Pattern, Singular, address, analysed, patterned


class MatrixLayout(NamedTuple):
    """Where a matrix and its systems are.

    ``rows`` and ``columns`` (E,) are the places of entries that are not always zero, ``source`` (E,) the
    slots with their values. ``matrix`` (E,), ``report`` (4,), ``rhs`` (N,) and ``result`` (N,) are slots of
    the entries in the order of the factors, of how the factorization went, and of a system. ``name`` is that
    of the matrix in instructions.
    """

    name: str
    rows: np.ndarray
    columns: np.ndarray
    source: np.ndarray
    matrix: np.ndarray
    report: np.ndarray
    rhs: np.ndarray
    result: np.ndarray

    def factor(self) -> Instructions:
        """Factorize the matrix, whose entries are in their slots."""
        gather = Pick(int(self.matrix[0]), len(self.matrix), f"{self.name}:entries")
        return gather, Factor(self.name, int(self.report[0]))

    def solve(self) -> Solve:
        return Solve(self.name, f"{self.name}:rhs", f"{self.name}:result")


class DataWriter(Writer):
    """Writes kernels for the entries of matrices, and instructions that factorize and solve by loops.

    The first of ``layouts`` is that of the Newton matrix. Those of systems after the iteration follow.
    """

    def __init__(self, step: StepKernels) -> None:
        super().__init__(step)
        self.layouts: list[MatrixLayout] = []

    def _lay_out(self, matrix: np.ndarray, rhs: np.ndarray | None = None, result: Any = None) -> MatrixLayout:
        """Write the kernel for the entries of a matrix, and of ``rhs`` if its system has only this one."""
        slot, number = self.builder.slot, len(self.layouts)
        rows, columns = np.nonzero(matrix != ZERO)
        nodes, which = np.unique(matrix[rows, columns], return_inverse=True)
        values, right = slot(len(nodes)), slot(len(matrix))
        result = slot(len(matrix)) if result is None else result
        given = [] if rhs is None else [(right, rhs)]
        self.builder.kernel(f"matrix{number}", ITERATION, (values, nodes), *given)
        places = (rows, columns, values[which], slot(len(rows)), slot(4), right, result)
        self.layouts.append(MatrixLayout(f"lu{number}", *places))
        return self.layouts[-1]

    def _inputs(self, slots: np.ndarray) -> Symbols:
        return Symbols(self.builder.inputs(slots, ITERATION), "f")

    def renew(self, orders: Orders) -> None:
        report = self._inputs(self._lay_out(self.step.matrix).report[None])
        self.resume(self.step.inline(functools.partial(renewed_by, self.options), self.numbers, report))

    def renewal(self) -> Instructions:
        return Call("matrix0"), *self.layouts[0].factor(), Call("renew")

    def solved(self, name: str, rhs: Symbols) -> tuple[Symbols, Symbols]:
        newton = self.layouts[0]
        self.builder.kernel(name, ITERATION, (newton.rhs, rhs.ids))
        return self._inputs(newton.rhs), self._inputs(newton.result)

    def solution(self, name: str) -> Instructions:
        return Call(name), self.layouts[0].solve()

    def settle(self, orders: Orders) -> None:
        found = [self._lay_out(system.matrix, system.rhs, system.places) for system in self.step.systems]
        reports = self._inputs(np.stack([layout.report for layout in found]))
        trusted = self.step.inline(
            lambda reports: functools.reduce(operator.and_, examined(reports)), reports
        )
        self.decide(int(trusted.ids))

    def settling(self) -> Instructions:
        each = [(Call(f"matrix{k}"), *x.factor(), x.solve()) for k, x in enumerate(self.layouts)][1:]
        return *(part for parts in each for part in parts), Call("settle")


class ControlledDataWriter(DataWriter, ControlledWriter):
    """The same under error control."""


class DataLibrary:
    """The machine code of a step, for all orders of pivots."""

    def __init__(self, step: StepKernels) -> None:
        kind = ControlledDataWriter if issubclass(step.writer, ControlledWriter) else DataWriter
        writer, program, loop = step.written(kind, ())
        self.layouts, self.row = writer.layouts, loop.row
        self.program: Program = cut(program, PIECE)
        self.library, self.entries_of_head = self._compiled(loop, small(program, OPTIMIZED_DATA))
        self.steps = self.library.function(
            "steps", *[POINTER] * 5, *[COUNT] * 2, *[POINTER] * 2, result=COUNT
        )

    def _compiled(self, loop: Loop, optimized: bool) -> tuple[machine.Library, list[str]]:
        entries = [Call(f"matrix{k}") for k in range(len(self.layouts))]
        plans: dict[str, Instructions] = {
            "probe": [Call("once"), Call("prepare"), *entries],
            "entries": entries,
        }
        text, head, _ = repeated_modules.emit(self.program, loop, {}, "steps", machine.lanes(), plans, {})
        return machine.Library(text, ["steps", *plans], optimized, False, self.program.hosts), head

    def patterns(self, slots: np.ndarray, plan: str) -> list[Pattern]:
        """Pivots for the matrices at the first guess of a step ("probe"), or at its iterate ("entries").

        Raises :class:`Singular`.
        """
        found = []
        for layout, values in zip(self.layouts, self._values(slots, plan), strict=True):
            if not np.isfinite(values).all():
                raise Singular("entries are not finite")
            found.append(analysed(len(layout.rhs), layout.rows, layout.columns, values))
        return found

    def patterns_of(self, orders: Orders) -> list[Pattern]:
        """Patterns for given orders of pivots."""
        return [
            patterned(tuple(np.array(order, dtype=np.int64).T), len(order), layout.rows, layout.columns)
            for order, layout in zip(orders, self.layouts, strict=True)
        ]

    def matrices(self, slots: np.ndarray) -> list[np.ndarray]:
        """The matrices (N, N) at the iterate of a step."""
        found = []
        for layout, values in zip(self.layouts, self._values(slots, "entries"), strict=True):
            size = len(layout.rhs)
            found.append(np.zeros((size, size)))
            found[-1][layout.rows, layout.columns] = values
        return found

    def _values(self, slots: np.ndarray, plan: str) -> list[np.ndarray]:
        """The entries (E,) of each matrix that are not always zero."""
        work = aligned(len(slots))
        work[:] = slots
        self.library.function(plan, *[POINTER] * 3)(address(work), 0, 0)
        return [work[layout.source] for layout in self.layouts]


class DataCode:
    """The machine code of a step together with the data of one order of pivots for each matrix."""

    lanes, common = 1, np.zeros(0, int)

    def __init__(self, library: DataLibrary, patterns: list[Pattern]) -> None:
        self._library, self.program = library, library.program
        self.order: Orders = tuple(
            tuple(zip(pattern.row.tolist(), pattern.column.tolist(), strict=True)) for pattern in patterns
        )
        self.numbers = library.program.slots
        self._places = {"record": library.row.start, "length:record": len(library.row)}
        self._parts: dict[str, np.ndarray] = {}
        for layout, pattern in zip(library.layouts, patterns, strict=True):
            self._add(layout, pattern)
        self._lists = np.concatenate([*self._parts.values()])
        starts = np.cumsum([0, *map(len, self._parts.values())])
        head = self._places | dict(zip(self._parts, starts, strict=False))
        self._head = np.array([head[name] for name in library.entries_of_head], dtype=np.int64)

    def _add(self, layout: MatrixLayout, pattern: Pattern) -> None:
        """Make room for the factors of a matrix, and keep its lists."""
        name, size = layout.name, len(pattern.row)
        slots = {"rhs": layout.rhs[0], "result": layout.result[0], "a": layout.matrix[0], "n": size}
        self._places |= {f"{name}:{part}": int(place) for part, place in slots.items()}
        for part, count in {"l": pattern.lp[-1], "u": pattern.up[-1], "inv": size, "x": size}.items():
            self._places[f"{name}:{part}"] = self.numbers
            self.numbers += int(count)
        source = np.empty(len(layout.source), np.int32)
        source[pattern.places] = layout.source
        self._parts[f"{name}:entries"] = source
        for part in ("ap", "ai", "lp", "li", "up", "ui", "row", "column"):
            self._parts[f"{name}:{part}"] = getattr(pattern, part)

    def steps(self, *arguments: Any) -> int:
        return self._library.steps(*arguments, address(self._head), address(self._lists))
