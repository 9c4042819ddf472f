"""Functions of one copy of a part, and their derivatives for all copies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from genalpha.backends.native.code import MAKING, RowCode
from genalpha.backends.sparse.models import KindModel
from genalpha.backends.transforms.rows import RowDerivative
from genalpha.compiler.rows import RowFunction
from genalpha.mechanics.system import Args

# Vectors of the whole by name, or rows (R, ...) of them: numbers, weights or changes.
Vectors = dict[str, np.ndarray]


class CopyFunction:
    """``function(model, inputs, data)`` of one copy: ``inputs`` are entries of vectors of the whole, by name.

    ``kinds`` says for each of them whether a copy has the entries of its coordinates ("q"), of its velocities
    ("v") or of its constraints ("g", "k"), or whether it is a single number (""). ``columns`` are the
    results, as a tree of their numbers in a row. With rows (R, ...) of vectors, results have R·K rows.
    """

    def __init__(
        self, name: str, model: KindModel, function: Callable[..., Any], kinds: dict[str, str], data: Any
    ) -> None:
        self.model, self.kinds = model, kinds
        self._places = {x: getattr(model.places, kind) if kind else None for x, kind in kinds.items()}
        example = {x: np.zeros(() if at is None else at.shape[1]) for x, at in self._places.items()}
        names = list(kinds)
        one = lambda values, data: function(model, dict(zip(names, values, strict=True)), data)
        first = jax.tree.map(lambda x: np.asarray(x, float)[0] if np.ndim(x) else np.float64(x), data)
        with MAKING:
            self.rows = RowFunction(f"{name}_{model.name}", one, (list(example.values()), first), None, False)
        self.columns = self.rows.unpack(np.arange(self.rows.width))[0]
        self.columns = jax.tree.map(lambda x: np.asarray(x).astype(int), self.columns)
        self._code: RowCode | None = None
        self._made: dict[bool, RowDerivative] = {}
        self._widths = [1 if at is None else at.shape[1] for at in self._places.values()]

    @property
    def results(self) -> int:
        return self.rows.width - 1

    def constant(self, columns: np.ndarray) -> bool:
        """Whether some results are always the same numbers."""
        return all(self.rows.results[i] in self.rows.graph.constants for i in np.ravel(columns))

    def _derivative(self, reverse: bool) -> RowDerivative:
        with MAKING:
            if reverse not in self._made:
                self._made[reverse] = RowDerivative(self.rows, reverse)
            return self._made[reverse]

    def _count(self, vectors: Vectors) -> int:
        """The number of rows of vectors."""
        several = (len(x) for name, x in vectors.items() if np.ndim(x) == 1 + bool(self.kinds.get(name, "-")))
        return next(several, 1)

    def _table(self, vectors: Vectors, data: np.ndarray, count: int) -> np.ndarray:
        """Inputs of all copies (R·K, W). Vectors that are missing are zero."""
        parts, copies = [], self.model.copies
        for (name, at), width in zip(self._places.items(), self._widths, strict=True):
            x = np.asarray(vectors.get(name, 0.0))
            some = x[..., None, None] if at is None or x.ndim == 0 else x[..., at]
            parts.append(np.broadcast_to(some, (count, copies, width)))
        parts.append(np.broadcast_to(data, (count, *data.shape[-2:])))
        return np.concatenate(parts, axis=2).reshape(count * copies, -1)

    def value(self, vectors: Vectors, data: np.ndarray) -> Any:
        """The results, as a tree of arrays (R·K, ...)."""
        with MAKING:
            if self._code is None:
                self._code = RowCode(self.rows, 1)
        return self._code([self._table(vectors, data, self._count(vectors))])[0]

    def change(self, vectors: Vectors, data: np.ndarray, changes: Vectors, turned: np.ndarray) -> np.ndarray:
        """Changes of the results (R·K, results), from those of vectors and of the data (K, D)."""
        count = self._count(vectors)
        table, more = self._table(vectors, data, count), self._table(changes, turned, count)
        return self._derivative(False).run(table, more, np.zeros(0))[0]

    def jacobian(self, vectors: Vectors, data: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """Derivatives of the results (R·K, results, inputs) with respect to some vectors of each copy."""
        firsts = dict(zip(self.kinds, np.cumsum([0, *self._widths]).tolist(), strict=False))
        widths = dict(zip(self.kinds, self._widths, strict=True))
        inputs = [firsts[name] + k for name in names for k in range(widths[name])]
        table = self._table(vectors, data, self._count(vectors))
        along = np.zeros((len(table), len(inputs), table.shape[1]))
        along[:, np.arange(len(inputs)), inputs] = 1.0
        several = np.repeat(table, len(inputs), axis=0)
        found = self._derivative(False).run(several, along.reshape(several.shape), np.zeros(0))[0]
        return found.reshape(len(table), len(inputs), -1).swapaxes(1, 2)

    def pull(self, vectors: Vectors, data: np.ndarray, weights: np.ndarray, total: Vectors) -> np.ndarray:
        """Add the weights of vectors, from those of results (R·K, results), to ``total``.

        Returns the weights of the data (K, D), or (R, K, D) if each row has data of its own.
        """
        count, copies = self._count(vectors), self.model.copies
        found = self._derivative(True).run(self._table(vectors, data, count), weights, np.zeros(0))[0]
        *parts, of_data = np.split(found, np.cumsum(self._widths), axis=1)
        first = np.arange(count)[:, None, None]
        for (name, at), part in zip(self._places.items(), parts, strict=True):
            if name not in total:
                continue
            if at is None:
                total[name] += part.reshape(count, copies).sum(axis=1).reshape(total[name].shape)
            elif at.size:
                places = first * (total[name].size // count) + at
                sums = np.bincount(places.reshape(-1), part.reshape(-1), total[name].size)
                total[name] += sums.reshape(total[name].shape)
        of_rows = of_data.reshape(count, copies, -1)
        return of_rows if data.ndim == 3 else of_rows.sum(axis=0)


def flat_data(model: KindModel) -> np.ndarray:
    """The data of all copies as rows (K, D), as in a table of inputs: the args, and then masses."""
    leaves = [np.asarray(x, float) for x in jax.tree.leaves(model.data)]
    rows = [x.reshape(len(x), -1) if x.ndim else np.full((model.copies, 1), x) for x in leaves]
    return np.concatenate([np.zeros((model.copies, 0)), *rows], axis=1)


class _Mark:
    """Stands for a double in args. JAX takes it for a leaf."""

    def __init__(self, number: int) -> None:
        self.number = number


class CopyArgs:
    """The doubles of a run, as args of all copies of each kind (K, D).

    Leaves of the args of a part are single numbers, or have one row for each copy.
    """

    def __init__(
        self, kinds: list[KindModel], rebuild: Callable[[list[Any]], Args], shapes: list[Any]
    ) -> None:
        self._shapes, self._kinds = shapes, kinds
        marks: Any = rebuild([_Mark(i) for i in range(len(shapes))])
        parts = [model for model in kinds if model.element is not None]
        self._columns: list[tuple[int, str, slice]] = []  # of each double: its number, kind and columns
        for model, own in zip(parts, marks or [()] * len(parts), strict=True):
            leaves, first = jax.tree.leaves(model.data[:1]), 0
            for mark, leaf in zip(jax.tree.leaves(own), leaves, strict=bool(marks)):
                width = math.prod(np.shape(leaf)[1:])
                if isinstance(mark, _Mark):
                    self._columns.append((mark.number, model.name, slice(first, first + width)))
                first += width

    def pulled(self, weights: dict[str, np.ndarray]) -> list[np.ndarray]:
        """The weights of the doubles, from those of all copies (K, D) or (R, K, D) by kind."""
        lead = next((x.shape[:-2] for x in weights.values()), ())
        found = [np.zeros((*lead, *shape)) for shape in self._shapes]
        for i, name, at in self._columns:
            part, shape = weights[name][..., at], (*lead, *self._shapes[i])
            found[i] = part.reshape(shape) if self._shapes[i] else part.sum(axis=(-2, -1))
        return found

    def spread(self, changes: list[np.ndarray], width: dict[str, int]) -> dict[str, np.ndarray]:
        """The changes of the args of all copies (K, width) by kind, from those of the doubles.

        They may have one axis more, the first.
        """
        both = zip(changes, self._shapes, strict=True)
        lead = next((np.shape(x)[: np.ndim(x) - len(shape)] for x, shape in both), ())
        found = {model.name: np.zeros((*lead, model.copies, width[model.name])) for model in self._kinds}
        for i, name, at in self._columns:
            part, shape = np.asarray(changes[i]), self._shapes[i]
            split = (*lead, shape[0], -1) if shape else (*lead, 1, 1)
            found[name][..., at] = part.reshape(split)
        return found
