"""Factors of a sparse matrix whose pattern is known, by machine code."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np

from genalpha.compiler import machine, sparse_text
from genalpha.compiler.lu import CONDITION, GROWTH
from genalpha.compiler.machine import COUNT, POINTER
from genalpha.compiler.sparse_pattern import Pattern, address
from genalpha.compiler.sparse_transposed import SOLVE_TRANSPOSED


class Lists:
    """A pattern, and where its lists are in memory."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern, self.size = pattern, len(pattern.row)
        self.at = Pattern(*map(address, pattern))  # type: ignore[arg-type]


class SparseFactors:
    """L and U of a matrix with entries (E,) at the places of a pattern; those at the same place are added.

    ``report`` (4,) says how it went (see `sparse_text`). ``work`` (n,) is memory for the functions there.
    """

    def __init__(self, lists: Lists, entries: np.ndarray) -> None:
        self._lists, size, of, at = lists, lists.size, lists.pattern, lists.at
        a = np.bincount(of.places, entries, len(of.ai))
        lengths = (size, size, len(of.li), len(of.ui), 4)  # a work array that is zero, 1/pivots, L, U, report
        ends = list(itertools.accumulate(lengths))
        self._block = np.empty(ends[-1])  # one array, because addresses take time
        self._block[:size] = 0.0
        first = address(self._block)
        self._parts = work, inverse, lower, upper, report = [first, *(first + 8 * end for end in ends[:-1])]
        matrix = (address(a), at.ap, at.ai)
        factors = (lower, at.lp, at.li, upper, at.up, at.ui, inverse)
        functions()[0](size, *matrix, *factors, work, report)
        self.work, self.report = self._block[:size], self._block[-4:]

    @property
    def healthy(self) -> bool:
        """Whether the factors are finite and their pivots good."""
        growth, largest, inverse, total = self.report.tolist()
        return abs(total) < np.inf and largest * inverse <= CONDITION and growth <= GROWTH

    def solve(self, b: np.ndarray, trans: str = "N") -> np.ndarray:
        """x (n,) with A x = b, or with Aᵀ x = b if ``trans`` is "T", as SciPy's factors do."""
        x, at, (work, inverse, lower, upper, _) = np.empty(len(b)), self._lists.at, self._parts
        factors = (lower, at.lp, at.li, upper, at.up, at.ui, inverse, at.row, at.column)
        solve = functions()[1] if trans == "N" else transposed()
        solve(len(b), *factors, address(b), address(x), work)
        return x


@functools.cache
def functions() -> list[Callable[..., None]]:
    """``lu_factor`` and ``lu_solve`` of `sparse_text`."""
    names, texts = ("lu_factor", "lu_solve"), (sparse_text.FACTOR, sparse_text.SOLVE)
    text = "\n".join([*(text.format(linkage="") for text in texts), "declare double @llvm.fabs.f64(double)"])
    library = machine.Library(text, names)
    return [library.function(name, COUNT, *[POINTER] * 12) for name in names]


@functools.cache
def transposed() -> Callable[..., None]:
    """``lu_solve_transposed``, which only derivatives need."""
    name = "lu_solve_transposed"
    return machine.Library(SOLVE_TRANSPOSED.format(linkage=""), [name]).function(name, COUNT, *[POINTER] * 12)
