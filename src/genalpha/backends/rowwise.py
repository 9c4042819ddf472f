"""Functions of rows of numbers, compiled once: as machine code if possible, else by XLA."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from genalpha.backends.cache import compiler_options
from genalpha.backends.native.code import MAKING, RowCode
from genalpha.compiler.graph import Unsupported
from genalpha.compiler.rows import RowFunction

# The most rows in one call of a program by XLA. So a few programs are enough for any number of rows.
BLOCK = 512
_FEW = 16  # rows of a block of those that need other pivots
# How often a function of one row is interpreted before it is compiled.
_INTERPRETED = 3
# How many more orders of pivots a function may have.
_OTHERS = 2
# The least rows that are computed in lanes. Where code is not optimized, it takes half the time to compile
# without lanes, and gives the same bits.
_MANY = 2000


def in_blocks(run: Callable[..., Any], rows: Any, *fixed: Any, size: int | None = None) -> Any:
    """``run(rows, *fixed)`` for any number of rows, in blocks of a few sizes; returns NumPy arrays.

    The last bits of a row may depend on the size of its block. With ``size`` all blocks have this size.
    """
    count = max(len(x) for x in jax.tree.leaves(rows))
    size = min(BLOCK, 1 << (count - 1).bit_length()) if size is None else size
    parts = []
    for first in range(0, count, size):
        index = np.minimum(np.arange(first, first + size), count - 1)  # the block is padded with the last row
        block = jax.tree.map(lambda x, at=index: x[at] if len(x) == count else x[:1].repeat(size, 0), rows)
        parts.append(jax.tree.map(np.asarray, run(block, *fixed)))
    return jax.tree.map(lambda *blocks: np.concatenate(blocks)[:count], *parts)


class Rowwise:
    """``function(*arguments)`` of trees of doubles, applied to rows of them.

    ``rows`` is its scalar form. If that is None, XLA runs it. ``often`` says that the function is called
    often, so that its machine code is optimized. ``limit`` is the largest number of operations. ``make``
    makes its scalar form, if there is a better way than to read the function. For rows that need other pivots
    ``others`` more scalar forms are made at most. Then XLA runs them, which takes long to compile.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        example: Any,
        limit: int | None = None,
        often: bool = False,
        make: Callable[[], RowFunction] | None = None,
        others: int = _OTHERS,
    ) -> None:
        self._function, self._options, self._others = function, (name, limit, often), others
        self._other: Rowwise | None = None
        self._by_xla: Any = None
        self._codes: dict[int, RowCode] = {}
        self._asked = 0
        self.rows: RowFunction | None = None
        self.reason: Unsupported | None = None  # why there is no scalar form
        try:
            self.rows = make() if make else RowFunction(name, function, example, limit, often)
        except Unsupported as reason:
            self.reason = reason

    def shapes(self, example: Any) -> Any:
        """The shapes of the results of one row."""
        return jax.eval_shape(self._function, *example)

    @property
    def in_lanes(self) -> bool:
        """Whether there is machine code for several lanes."""
        return self.rows is not None and not self.rows.hosted

    def code(self, lanes: int = 1) -> RowCode:
        """The machine code, made on first use."""
        with MAKING:
            if lanes not in self._codes:
                assert self.rows is not None
                self._codes[lanes] = RowCode(self.rows, lanes)
            return self._codes[lanes]

    def __call__(self, arguments: Any, lanes: int = 1) -> Any:
        """The function of rows (K, ...) of arguments. An array with one row is shared by all.

        Several rows may be computed at a time, in ``lanes``.
        """
        if self.rows is None:
            return self._xla(arguments)
        few = not self.rows.often and max(map(len, jax.tree.leaves(arguments))) < _MANY
        found, good = self.code(lanes if self.in_lanes and not few else 1)(arguments)
        if not good.all():  # these rows need other pivots
            bad, count = np.flatnonzero(~good), len(good)
            again = self._by_another(jax.tree.map(lambda x: x[bad] if len(x) == count else x, arguments))
            for whole, part in zip(jax.tree.leaves(found), jax.tree.leaves(again), strict=True):
                whole[bad] = part
        return found

    def _by_another(self, arguments: Any) -> Any:
        """The function of rows that need other pivots."""
        finite = _finite(arguments)
        if self._other is None and self._others and finite.any():
            k = int(np.argmax(finite))  # what is not finite needs no pivots
            example = jax.tree.map(lambda x: x[k if len(x) > 1 else 0], arguments)
            name, limit, often = self._options
            other = Rowwise(name, self._function, example, limit, often, others=self._others - 1)
            if other.rows is None or not other.rows.interpret(other.rows.row(example))[1]:
                self._others = 0  # they are as bad
            else:
                self._other = other
        return self._other(arguments) if self._other else self._xla(arguments, _FEW)

    def one(self, arguments: Any) -> Any:
        """The function of one set of arguments.

        The first few calls are interpreted. Later calls use machine code without optimization, which gives
        the same bits faster.
        """
        if self.rows is not None:
            self._asked += 1
            if self._asked <= _INTERPRETED or self.rows.often:
                found, good = self.rows.interpret(self.rows.row(arguments))
            else:
                found, good = self.code().one(arguments)
            if good:
                return found
        rows = jax.tree.map(lambda x: np.asarray(x)[None], arguments)
        return jax.tree.map(lambda x: x[0], self._by_another(rows) if self.rows else self._xla(rows))

    def _xla(self, arguments: Any, size: int | None = None) -> Any:
        if self._by_xla is None:
            mapped = jax.vmap(lambda row: self._function(*row))
            self._by_xla = jax.jit(mapped, compiler_options=compiler_options())
        with jax.ensure_compile_time_eval():
            return in_blocks(self._by_xla, arguments, size=size)


def _finite(arguments: Any) -> np.ndarray:
    """Which rows of arguments, each (K, ...) or (1, ...), are finite."""
    rows = (np.isfinite(x).reshape(len(x), -1).all(axis=1) for x in jax.tree.leaves(arguments))
    return np.asarray(functools.reduce(np.logical_and, rows))
