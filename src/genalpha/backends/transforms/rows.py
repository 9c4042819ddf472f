"""Functions of rows as operations of JAX, with derivatives by machine code."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from genalpha.backends.batch.pool import Pool
from genalpha.backends.native.code import MAKING, RowCode, aligned, one_by_one, side_by_side
from genalpha.backends.transforms.operation import Arrays, Asked, Operation, Shape
from genalpha.compiler import emit_llvm, machine
from genalpha.compiler.differentiate import along, pulled_back
from genalpha.compiler.graph import ZERO, CallsHost
from genalpha.compiler.machine import COUNT, POINTER
from genalpha.compiler.program import PIECE, Builder, Map, cut
from genalpha.compiler.rows import RowFunction
from genalpha.compiler.table_reads import TableReads

# The most forms of a function, each with other pivots, that are made for rows which the others cannot serve.
MOST_FORMS = 8
# Of batches: the rows that are computed together, and the most numbers that each row has a copy of.
TOGETHER, MOST_COPIED = 4096, 64


class RowDerivative:
    """Changes of the results of a function of rows, or its transpose, as machine code on rows.

    A row has the inputs and a direction, which has as many numbers as the inputs; or, in ``reverse``, the
    inputs and a weight for each result. The last inputs may be ``shared`` by all rows. Their directions are
    shared too, and derivatives with respect to them are summed over the rows. In several ``lanes`` nothing is
    shared.
    """

    def __init__(self, rows: RowFunction, reverse: bool, shared: int = 0, lanes: int = 1) -> None:
        assert lanes == 1 or not shared
        graph, count = rows.graph, len(rows.graph.nodes)
        results, good = np.array(rows.results[:-1], dtype=np.int64), rows.results[-1]
        own = len(rows.columns) - shared
        try:
            builder = Builder(graph)
            more, total = graph.inputs(len(results) if reverse else own), graph.inputs(shared)
            of_row = np.concatenate([rows.columns[:own], more])
            given = np.concatenate([of_row, rows.columns[own:], total])
            slots = builder.slot(len(given))
            builder.slot_of.update(zip(given.tolist(), slots.tolist(), strict=True))
            builder.level_of.update(dict.fromkeys(given.tolist(), 0))
            self._reads = TableReads(graph, results, rows.columns[own:]) if reverse else None
            if self._reads is not None:
                columns = np.concatenate([rows.columns, self._reads.nodes])
                found = pulled_back(graph, results, columns, more)
                masked = np.array([graph.select(good, i, ZERO) for i in found[own:].tolist()], dtype=np.int64)
                used = np.flatnonzero(masked[:shared] != ZERO)  # the others are only read from tables
                sums = [graph.add(int(total[k]), int(masked[k])) for k in used]
                stores = [(slots[len(given) - shared :][used], np.array(sums, dtype=np.int64))]
                found = np.concatenate([found[:own], masked[shared:], self._reads.indices])
            else:
                found, stores = along(graph, results, rows.columns, np.append(more, total)), []
            places = builder.slot(len(found) + 1)
            builder.kernel("change_row", 0, (places, np.append(found, good)), *stores)
            self.program = builder.build({})
        finally:
            graph.reset(count)
        self._widths, self._lanes = (len(of_row), len(given), len(places)), lanes
        self._total = slice(len(given) - shared, len(given))
        outputs = range(int(places[0]), int(places[0]) + len(places))
        self.map = Map("change_row", range(len(given)), outputs)

    @functools.cached_property
    def _code(self) -> tuple[int, Callable[..., Any]]:
        """The number of slots, and the machine code."""
        with MAKING:
            program = cut(self.program, PIECE)
            text = emit_llvm.emit([(program, {"change": self.map})], self._lanes)
            library = machine.Library(text, ["change"], optimized=False, hosts=program.hosts)
            return program.slots, library.function("change", *[POINTER] * 3, *[COUNT] * 2)

    def run(
        self, table: np.ndarray, more: np.ndarray, same: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Results (K, ...), which rows (K,) have good pivots, and the sums over those rows.

        ``same`` are the shared inputs, and their directions or zeros.
        """
        (width, inputs, out), (slots, code), lanes = self._widths, self._code, self._lanes
        groups = side_by_side(np.concatenate([table, more], axis=1), lanes)
        found, work = np.empty((len(groups), out, lanes)), aligned(slots * lanes)
        work[width * lanes : inputs * lanes] = same
        code(work.ctypes.data, groups.ctypes.data, found.ctypes.data, len(groups), width)
        results = one_by_one(found, len(table))
        total, own = work[self._total].copy(), out - 1
        if self._reads is not None:
            own -= 2 * len(self._reads.nodes)
            self._reads.add(total, results[:, own:-1])
        return results[:, :own], results[:, -1] != 0, total


class _Form:
    """A function of rows with pivots that suit an example, and its derivatives."""

    def __init__(self, rows: RowFunction) -> None:
        self.rows = rows
        self._made: dict[Any, Any] = {}

    def _get(self, key: Any, make: Callable[[], Any]) -> Any:
        with MAKING:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]

    def value(self, arguments: Any, lanes: int) -> tuple[Any, np.ndarray]:
        return self._get(lanes, lambda: RowCode(self.rows, lanes))(arguments)

    def change(self, reverse: bool, shared: int, lanes: int) -> RowDerivative:
        key = (reverse, shared, lanes)
        return self._get(key, lambda: RowDerivative(self.rows, reverse, shared, lanes))


class RowOperation(Operation):
    """``function(*arguments)`` of trees of doubles, for rows of them. All rows may share the last leaves.

    ``example`` has the shapes of the leaves for one row.
    """

    def __init__(self, name: str, function: Callable[..., Any], example: Any, shared: Sequence[bool]) -> None:
        self.name, self.function, self.shared = name, function, tuple(shared)
        leaves, self.structure = jax.tree.flatten(example)
        self._sizes = [np.shape(x) for x in leaves]
        out = jax.eval_shape(function, *example)
        self._out, self.out_structure = jax.tree.flatten(out)
        self.smooth = (True,) * len(self._out)
        self._forms: list[_Form] = []
        self._lanes = 1

    def apply(self, *arguments: Any) -> Any:
        """The function of traced rows."""
        return jax.tree.unflatten(self.out_structure, self(*jax.tree.leaves(arguments)))

    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        count = next(s[0] for s, shared in zip(inputs, self.shared, strict=True) if not shared)
        return [(count, *x.shape) for x in self._out]

    def _table(self, inputs: Arrays) -> tuple[np.ndarray, np.ndarray]:
        """The inputs as rows of numbers, and the shared ones."""
        count, own = self.shapes([np.shape(x) for x in inputs])[0][0], len(self.shared) - sum(self.shared)
        parts = [np.reshape(x, (count, -1)) for x in inputs[:own]]
        return np.concatenate(parts, axis=1), np.concatenate([np.zeros(0), *map(np.ravel, inputs[own:])])

    def _row(self, row: np.ndarray) -> Any:
        """The arguments in a row of numbers."""
        ends = np.cumsum([int(np.prod(s)) for s in self._sizes])[:-1]
        parts = [x.reshape(s) for x, s in zip(np.split(row, ends), self._sizes, strict=True)]
        return jax.tree.unflatten(self.structure, parts)

    def _served(
        self, table: np.ndarray, same: np.ndarray, width: int, compute: Callable[[_Form, np.ndarray], Any]
    ) -> np.ndarray:
        """Results (K, width) by forms whose pivots are good; NaN in rows that none can serve."""
        found, left = np.full((len(table), width), np.nan), np.arange(len(table))
        left = left[: len(left) if np.isfinite(same).all() else 0]
        for k in range(MOST_FORMS):
            finite = left[np.isfinite(table[left]).all(axis=1)]
            if not len(finite):
                break
            with MAKING:
                if k == len(self._forms):
                    example = self._row(np.append(table[finite[0]], same))
                    form = RowFunction(self.name, self.function, example, None, False)
                    self._forms.append(_Form(form))
            values, good = compute(self._forms[k], finite)
            found[finite[good]] = values[good]
            left = finite[~good]
        return found

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        table, same = self._table(inputs)

        def compute(form: _Form, which: np.ndarray) -> Any:
            tree, good = form.value([table[which], same[None]], self._lanes)
            return np.concatenate([np.reshape(x, (len(which), -1)) for x in jax.tree.leaves(tree)], 1), good

        return self._apart(self._served(table, same, self._results, compute))

    @property
    def _results(self) -> int:
        return sum(int(np.prod(x.shape)) for x in self._out)

    def _apart(self, found: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([int(np.prod(x.shape)) for x in self._out])[:-1]
        return [
            x.reshape((len(found), *out.shape))
            for x, out in zip(np.split(found, ends, axis=1), self._out, strict=True)
        ]

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        table, same = self._table(inputs)
        more, turned = self._table(changes)

        def compute(form: _Form, which: np.ndarray) -> Any:
            code = form.change(False, len(same), self._lanes)
            return code.run(table[which], more[which], np.append(same, turned))[:2]

        return self._apart(self._served(table, same, self._results, compute))

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        table, same = self._table(inputs)
        wide = np.concatenate([np.reshape(w, (len(table), -1)) for w in weights], axis=1)
        total = np.zeros(len(same))

        def compute(form: _Form, which: np.ndarray) -> Any:
            code = form.change(True, len(same), self._lanes)
            values, good, sums = code.run(table[which], wide[which], np.append(same, 0 * same))
            total[:] += sums
            return values, good

        found = self._served(table, same, table.shape[1], compute)
        if np.isnan(found).any():
            total[:] = np.nan
        own = len(self.shared) - sum(self.shared)
        ends = np.cumsum([int(np.prod(s)) for s in self._sizes])
        parts = np.split(found, ends[: own - 1], axis=1)
        parts += np.split(total, ends[own:-1] - ends[own - 1]) if len(same) else []
        return [np.reshape(part, np.shape(x)) for part, x in zip(parts, inputs, strict=True)]

    # --- batches ----------------------------------------------------------------------------------

    def members(self, asked: Asked, size: int, inputs: Arrays, more: Arrays) -> list[np.ndarray]:
        """The rows of all members together, each with a copy of what the rows of a member share."""
        own, numbers = asked.own(len(inputs)), [int(np.prod(s)) for s in self._sizes]
        copied = sum(n for n, shared in zip(numbers, self.shared, strict=True) if shared)
        apart = copy.copy(self)
        apart.shared, apart._lanes = (False,) * len(self.shared), machine.lanes()
        one = [np.shape(x)[yes:] for x, yes in zip(inputs, own, strict=True)]
        count = self.shapes(one)[0][0]
        if copied > MOST_COPIED or not count:
            return super().members(asked, size, inputs, more)
        outs = [np.empty((size, *s)) for s in asked.shapes_of(one)]
        changes = asked.kind == "tangent"
        own_more, shared_more = (True,) * len(more), self.shared if changes else (False,) * len(more)

        def some(first: int) -> None:
            here = slice(first, min(first + share, size))
            rows = _flat(inputs, own, self.shared, here, count)
            along = _flat(more, own_more, shared_more, here, count)
            given = (rows,) if asked.kind == "value" else (rows, [], along)
            found = getattr(apart, asked.kind)(*given)
            wide = [x.reshape(here.stop - first, count, *x.shape[1:]) for x in found]
            if asked.kind == "cotangent":
                wide = [x.sum(axis=1) if yes else x for x, yes in zip(wide, self.shared, strict=True)]
            for out, x in zip(outs, asked.chosen(wide), strict=True):
                out[here] = x

        share = max(1, TOGETHER // count)
        try:
            some(0)  # compiles
            with Pool() as pool:
                pool.map(some, range(share, size, share))
        except CallsHost:  # not in lanes
            return super().members(asked, size, inputs, more)
        return outs

    def by_xla(self, *inputs: Any) -> list[Any]:
        axes = [None if shared else 0 for shared in self.shared]
        one = lambda *leaves: jax.tree.leaves(self.function(*jax.tree.unflatten(self.structure, leaves)))
        return jax.vmap(one, in_axes=axes)(*inputs)


def _flat(
    arrays: Arrays, own: Sequence[bool], shared: Sequence[bool], here: slice, count: int
) -> list[np.ndarray]:
    """Rows of some members, one after the other, from arrays of which members have their own, or share one.

    Arrays that the ``count`` rows of a member share are repeated.
    """
    found, size = [], here.stop - here.start
    for x, yes, same in zip(arrays, own, shared, strict=True):
        part = x[here] if yes else np.broadcast_to(x, (size, *np.shape(x)))
        if same:
            part = np.broadcast_to(part[:, None], (size, count, *part.shape[1:]))
        found.append(part.reshape(size * count, *part.shape[2:]))
    return found
