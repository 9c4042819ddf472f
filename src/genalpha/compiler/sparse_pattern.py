"""The order of pivots of a sparse matrix, and the pattern of its factors."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from genalpha.compiler import machine, sparse_text
from genalpha.compiler.lu import THRESHOLD
from genalpha.compiler.markowitz import Elimination, Exhausted

# The most unknowns for which Markowitz' order is found. This takes about 30 µs for each, COLAMD 2 µs. Beyond,
# it is often worse: in long chains the least fill-in of each pivot leaves more to those after it.
SMALL = 2000
# By how much its pivots may differ more in size.
SPREAD = 10.0

_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64


class Singular(Exception):
    """A matrix has no factors."""


class Pattern(NamedTuple):
    """Where the entries of a matrix and of its factors are, in the order of pivots (see `sparse_text`).

    ``places`` (E,) are the places of the given entries in the matrix. ``row`` and ``column`` (n,) are the row
    and the column of each pivot.
    """

    places: np.ndarray
    ap: np.ndarray
    ai: np.ndarray
    lp: np.ndarray
    li: np.ndarray
    up: np.ndarray
    ui: np.ndarray
    row: np.ndarray
    column: np.ndarray


# The row and the column of each pivot (n,).
Order = tuple[np.ndarray, np.ndarray]


def analysed(size: int, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> Pattern:
    """The pattern for a matrix of this size with entries (E,), of which those at the same place are added.

    Pivots are not much smaller than others in their column. For little fill-in, columns are in the order of
    COLAMD. For a small matrix, Markowitz' order is tried as well. It is taken if it leads to less work, and
    if its pivots do not differ much more in size, as near a singular matrix. Raises :class:`Singular`.
    """
    matrix = sparse.csc_matrix((values, (rows, columns)), shape=(size, size))
    try:
        found = splu(matrix, permc_spec="COLAMD", diag_pivot_thresh=THRESHOLD)
    except RuntimeError as error:
        raise Singular(str(error)) from error
    order, room = (np.argsort(found.perm_r), np.argsort(found.perm_c)), found.nnz
    pivots = np.abs(found.U.diagonal()) if size <= SMALL else np.zeros(0)
    del matrix, found  # they are large
    pattern = patterned(order, size, rows, columns, room)
    if not len(pivots):
        return pattern
    with contextlib.suppress(Exhausted):
        elimination = Elimination(size, rows, columns, values, THRESHOLD)
        other = patterned(elimination.order(), size, rows, columns, room)
        if elimination.spread <= SPREAD * pivots.max() / pivots.min():
            return min(pattern, other, key=_work)
    return pattern


def _work(pattern: Pattern) -> int:
    """The number of products in a factorization."""
    return int(np.diff(pattern.lp)[pattern.ui].sum())


def patterned(order: Order, size: int, rows: np.ndarray, columns: np.ndarray, room: int = 0) -> Pattern:
    """The pattern for a matrix with entries in these rows and columns (E,), in an order of pivots."""
    row_at, column_at = np.empty(size, np.int64), np.empty(size, np.int64)
    row_at[order[0]] = column_at[order[1]] = np.arange(size)
    places, ai, ap = by_columns(size, row_at[rows], column_at[columns])
    room = max(room, len(ai)) + 2 * size + 16
    while True:
        factors = _factors(size, ap, ai, room)
        if factors is not None:
            return Pattern(places, ap, ai, *factors, *(x.astype(np.int32) for x in order))
        room *= 2


def by_columns(size: int, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The places of entries in a matrix stored by columns, its row numbers, and where columns begin."""
    keys = columns.astype(np.int64) * size + rows
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    new = np.concatenate([[True], keys[1:] != keys[:-1]])
    known = keys[new]
    del keys
    places = np.empty(len(order), np.int32)
    places[order] = np.cumsum(new, dtype=np.int32) - 1
    starts = np.searchsorted(known, np.arange(size + 1, dtype=np.int64) * size)
    return places, (known % size).astype(np.int32), starts.astype(np.int32)


def _factors(size: int, ap: np.ndarray, ai: np.ndarray, room: int) -> tuple[np.ndarray, ...] | None:
    """lp, li, up, ui; None if there is not enough room."""
    lp, up = np.zeros(size + 1, np.int32), np.zeros(size + 1, np.int32)
    li, ui = np.empty(room, np.int32), np.empty(room, np.int32)
    mark, work = np.full(size, -1, np.int32), [np.empty(size + 1, np.int32) for _ in range(3)]
    arrays = map(address, (ap, ai, lp, li, up, ui, mark, *work))
    if pattern_function()(size, *arrays, room) < 0:
        return None
    return lp, li[: lp[-1]].copy(), up, ui[: up[-1]].copy()


@functools.cache
def pattern_function() -> Any:
    """``lu_pattern`` of `sparse_text` as a function."""
    library = machine.Library(sparse_text.PATTERN, ["lu_pattern"])
    return library.function("lu_pattern", _COUNT, *[_POINTER] * 10, _COUNT, result=_COUNT)


def address(array: np.ndarray) -> int:
    return array.ctypes.data
