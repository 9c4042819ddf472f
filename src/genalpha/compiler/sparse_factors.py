"""Factors of a sparse matrix whose pattern is known, by machine code."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from genalpha.compiler import machine, sparse_text
from genalpha.compiler.lu import CONDITION, GROWTH
from genalpha.compiler.machine import COUNT, POINTER
from genalpha.compiler.sparse_pattern import Pattern, address


class SparseFactors:
    """L and U of a matrix with entries (E,) at the places of a pattern; those at the same place are added.

    ``report`` (4,) says how it went (see `sparse_text`).
    """

    def __init__(self, pattern: Pattern, entries: np.ndarray) -> None:
        self.pattern, size = pattern, len(pattern.row)
        a = np.bincount(pattern.places, entries, len(pattern.ai))
        self._lower, self._upper = np.empty(len(pattern.li)), np.empty(len(pattern.ui))
        self._inverse, self._work, self.report = np.empty(size), np.zeros(size), np.empty(4)
        _, ap, ai, lp, li, up, ui, _, _ = pattern
        arrays = (a, ap, ai, self._lower, lp, li, self._upper, up, ui, self._inverse, self._work, self.report)
        functions()[0](size, *map(address, arrays))

    @property
    def healthy(self) -> bool:
        """Whether the factors are finite and their pivots good."""
        growth, largest, inverse, total = self.report.tolist()
        return abs(total) < np.inf and largest * inverse <= CONDITION and growth <= GROWTH

    def solve(self, b: np.ndarray) -> np.ndarray:
        """x (n,) with A x = b."""
        of, x, size = self.pattern, np.empty(len(b)), len(b)
        lists = (of.row, of.column)
        factors = (self._lower, of.lp, of.li, self._upper, of.up, of.ui, self._inverse)
        functions()[1](size, *map(address, (*factors, *lists, b, x, self._work)))
        return x


@functools.cache
def functions() -> list[Callable[..., None]]:
    """``lu_factor`` and ``lu_solve`` of `sparse_text`."""
    names, texts = ("lu_factor", "lu_solve"), (sparse_text.FACTOR, sparse_text.SOLVE)
    text = "\n".join([*(text.format(linkage="") for text in texts), "declare double @llvm.fabs.f64(double)"])
    library = machine.Library(text, names)
    return [library.function(name, COUNT, *[POINTER] * 12) for name in names]
