"""Functions of single copies, applied to all copies of all kinds by few operations of Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.native.code import aligned, one_by_one, side_by_side
from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sparse.models import KindModel
from genalpha.compiler import machine
from genalpha.compiler.graph import TRUE, ZERO
from genalpha.mechanics.system import Dims


class CopyInputs:
    """Where the inputs of all copies are in one vector.

    It holds a zero, t, h, vectors of the whole system, and the numbers of all copies. Names of its parts are
    those in ``where``.
    """

    def __init__(self, dims: Dims, parts: Sequence[KindModel]) -> None:
        size, n, m, p = dims
        sizes = {"zero": 1, "t": 1, "h": 1, "q": size, "v": n, "a": n, "lam": m, "psi": p}
        sizes |= {"a_dot": n, "scale": n, "moved": n}
        self.where: dict[str, slice] = {}
        self.length = 0
        for name, count in sizes.items():
            self.where[name] = slice(self.length, self.length + count)
            self.length += count
        self._data: dict[str, list[np.ndarray]] = {}
        first = self.length
        for model in parts:
            places = self._data[model.name] = []
            for leaf in jax.tree.leaves(model.data):
                shape = np.shape(leaf) or (1,)
                places.append(self.length + np.arange(np.prod(shape)).reshape(shape))
                self.length += places[-1].size
        self.where["numbers"] = slice(first, self.length)

    def vector(self, **values: Any) -> np.ndarray:
        """The vector with these values. All others are zero."""
        found = np.zeros(self.length)
        for name, value in values.items():
            found[self.where[name]] = value
        return found

    def of(self, model: KindModel, names: Sequence[str], m: int, p: int) -> list[np.ndarray]:
        """The places (K, ...) of inputs of a kind, and of its numbers. Single numbers have no other axis.

        It has ``m`` multipliers λ and ``p`` multipliers ψ. Those that it does not have are zero.
        """
        at, count, found = model.places, model.copies, []
        for name in names:
            if name in ("t", "h"):
                found.append(np.full(count, self.where[name].start))
                continue
            places = {"q": at.q, "lam": at.g, "psi": at.k}.get(name, at.v)
            missing = {"lam": m, "psi": p}.get(name, 0) - places.shape[1]
            here = self.where[name].start + places
            found.append(here if missing <= 0 else np.zeros((count, missing), int))
        for places in self._data.get(model.name, []):
            found.append(np.broadcast_to(places, (count, *places.shape[1:])))
        return found


class KindFunction(NamedTuple):
    """A function of one copy, and the places of the inputs of all copies of a kind, as trees of arrays."""

    function: Rowwise
    inputs: Any


class Together:
    """Functions of one copy, one for each of some kinds, for all their copies.

    A call reads the inputs from one vector and writes all results to one array. ``columns`` are trees with
    the numbers of the results of each function.
    """

    def __init__(self, kinds: Sequence[KindFunction], vector: np.ndarray) -> None:
        self._kinds, self._lanes = kinds, machine.lanes()
        self.columns: list[Any] = []
        self._zero: list[np.ndarray] = []
        self._first, self._widths, self._counts = [0], list[int](), list[int]()
        self._calls: list[tuple[Any, ...]] = []
        self._apart: list[int] = []  # kinds without machine code for several lanes
        self._doubtful: list[tuple[int, np.ndarray]] = []
        read, at, self._slots = [], 0, 0
        for k, (function, inputs) in enumerate(kinds):
            table = np.concatenate([x.reshape(len(x), -1) for x in jax.tree.leaves(inputs)], axis=1)
            self._counts.append(len(table))
            self._add(k, function, jax.tree.map(lambda x: vector[x[0]], inputs))
            if k not in self._apart:
                code, groups = function.code(self._lanes), self._groups(k)
                read.append(side_by_side(table, self._lanes))
                call = (code, 8 * at, 8 * self._first[k], groups, table.shape[1])
                self._calls.append(call)
                at += read[-1].size
                self._slots = max(self._slots, code.slots)
        self._read = np.concatenate([np.zeros(0, int), *(x.reshape(-1) for x in read)])

    def _add(self, k: int, function: Rowwise, example: Any) -> None:
        """Make room for the results of a kind."""
        rows = function.rows
        if rows is None:
            shapes = function.shapes(example)
            sizes = [int(np.prod(x.shape)) for x in jax.tree.leaves(shapes)]
            numbers = iter(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]))
            columns = jax.tree.map(lambda x: next(numbers).reshape(x.shape), shapes)
            width, zero = sum(sizes), np.zeros(sum(sizes), bool)
        else:
            width = rows.width
            columns, zero = rows.unpack(np.arange(width))[0], np.array(rows.results) == ZERO
        self.columns.append(columns)
        self._zero.append(zero)
        self._widths.append(width)
        self._first.append(self._first[-1] + self._groups(k) * width * self._lanes)
        if rows is None or not function.in_lanes:
            self._apart.append(k)
        elif rows.results[-1] != TRUE:
            self._doubtful.append((k, self.places(k, np.array(width - 1))))

    def _groups(self, k: int) -> int:
        return -(-self._counts[k] // self._lanes)

    def zero(self, k: int, columns: np.ndarray) -> np.ndarray:
        """Which results of a kind are always zero."""
        return self._zero[k][columns]

    def places(self, k: int, columns: np.ndarray) -> np.ndarray:
        """The places (K, ...) of results of all copies of a kind."""
        lanes, width = self._lanes, self._widths[k]
        group, lane = np.divmod(np.arange(self._counts[k]), lanes)
        first = self._first[k] + group * width * lanes + lane
        return first.reshape(-1, *[1] * columns.ndim) + lanes * columns

    def __call__(self, vector: np.ndarray) -> np.ndarray:
        """All results."""
        found = np.empty(self._first[-1])
        columns, work = vector[self._read], aligned(self._slots * self._lanes)
        slots, inputs, results = work.ctypes.data, columns.ctypes.data, found.ctypes.data
        for code, at, to, groups, width in self._calls:
            code.run(slots, inputs + at, results + to, groups, width)
        for k in self._apart:
            self._slowly(k, vector, found)
        for k, good in self._doubtful:
            if not found[good].all():
                self._slowly(k, vector, found)
        return found

    def _slowly(self, k: int, vector: np.ndarray, found: np.ndarray) -> None:
        """Compute the results of a kind in another way."""
        function, inputs = self._kinds[k]
        results = jax.tree.leaves(function(jax.tree.map(lambda x: vector[x], inputs), self._lanes))
        for columns, values in zip(jax.tree.leaves(self.columns[k]), results, strict=True):
            found[self.places(k, columns)] = values

    def of(self, k: int, found: np.ndarray) -> Any:
        """The results of a kind, as a tree of arrays (K, ...)."""
        groups, width = self._groups(k), self._widths[k]
        table = found[self._first[k] : self._first[k + 1]].reshape(groups, width, self._lanes)
        rows = one_by_one(table, self._counts[k])
        return jax.tree.map(lambda columns: rows[:, columns], self.columns[k])
