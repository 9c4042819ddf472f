"""Projections onto constraints as operations of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha.backends.sparse import front, models
from genalpha.backends.sparse.copy_functions import CopyArgs, flat_data
from genalpha.backends.sparse.projections import DENSE, ProjectionFunctions, Projections
from genalpha.backends.sparse.whole_model import WholeArgs, WholeModel
from genalpha.backends.transforms.operation import Arrays, Asked, Operation, Shape
from genalpha.backends.transforms.records import Rebuild
from genalpha.engine.setup import Setup
from genalpha.mechanics.assembly import Assembly
from genalpha.mechanics.initial_values import Held
from genalpha.numerics import codes

_TOGETHER = 4e6  # numbers of the matrices and tables of members that are computed together


class Projection(Operation):
    """The nearest q and v on the constraints, and a status. Inputs are t, q, v and doubles.

    ``traced`` is the same as a function that JAX traces. Raises :class:`Unsupported` without machine code.
    """

    smooth = (True, True, False)

    def __init__(
        self, setup: Setup, held: Held, traced: Callable[..., Any], doubles: list[Any], rebuild: Rebuild
    ) -> None:
        self.setup, self.held, self._traced, self.rebuild = setup, held, traced, rebuild
        system, shapes = setup.system, [np.shape(x) for x in doubles]
        zeros, nodes = [np.zeros(shape) for shape in shapes], list[Any]()
        self._args: Any
        if isinstance(system, Assembly):
            nodes, parts = models.of_nodes(system), list[Any](models.of_parts(system, rebuild(zeros)))
            self._args = CopyArgs(parts, rebuild, shapes)
        else:
            parts = [WholeModel(system, setup.dims, [x[None] for x in zeros], rebuild)]
            self._args = WholeArgs(shapes)
        self.functions = ProjectionFunctions(nodes or parts, parts, setup.dims, held)
        self._fixed = {model.name: flat_data(model) for model in parts}  # all but the doubles
        self._large = isinstance(system, Assembly) and sum(setup.dims[1:]) > DENSE
        widths = {name: x.shape[1] for name, x in self._fixed.items()}
        rows = [model.copies * sum(model.dims[1:]) * (widths[model.name] + 60) for model in parts]
        self._most = max(1, int(_TOGETHER / max(sum(rows), sum(setup.dims[1:]) ** 2)))

    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        return [(self.setup.dims.size,), (self.setup.dims.n,), ()]

    def _data(self, doubles: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Numbers of all copies (R, K, D), or changes of them, from doubles (R, ...)."""
        return self._args.spread([*doubles], {name: x.shape[1] for name, x in self._fixed.items()})

    def _found(self, inputs: Sequence[np.ndarray]) -> Projections:
        """The projections of some states, each with an axis for them."""
        t, q, v, *doubles = inputs
        of = self._data(doubles)
        data = {name: np.broadcast_to(x + of[name], (len(q), *x.shape)) for name, x in self._fixed.items()}
        found = Projections(self.functions, t, q, v, data)
        if self._large and found.status[0] == codes.SUCCESS:  # one state; matrices with known patterns
            projector = front.projector(self.setup, self.rebuild([x[0] for x in doubles]))
            unit = found.at["position"]["q"][0]
            end, speed, status = projector.placed(float(t[0]), unit, v[0], self.held)
            if status == codes.SUCCESS:
                found.put(end[None], speed[None])
                return found
        found.solve()
        return found

    def _outputs(self, found: Projections) -> list[np.ndarray]:
        bad = found.status != codes.SUCCESS
        shown = [np.where(bad[:, None], np.nan, x) for x in (found.end, found.speed)]
        return [*shown, found.status.astype(float)]

    def _results(self, kind: str, found: Projections, more: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs of some members, or their changes, or weights, each with an axis for the members."""
        if kind in ("value", "taped"):
            return self._outputs(found)
        bad = found.status != codes.SUCCESS
        if not found.matrices:
            found.differentiate()
        if kind == "tangent":
            t, q, v, *doubles = more
            changes = found.changed(t, q, v, self._data(doubles))
            return [np.where(bad[:, None], np.nan, x) for x in changes]
        lost = bad & np.any([x.any(axis=1) for x in more], axis=0)
        state, args = found.pulled(more[0], more[1])
        results = [state["t"], state["q"], state["v"], *self._args.pulled(args)]
        for x in results:
            x[bad] = 0.0
            x[lost] = np.nan
        return results

    def members(self, asked: Asked, size: int, inputs: Arrays, more: Arrays) -> list[np.ndarray]:
        both = zip(inputs, asked.own(len(inputs)), strict=True)
        every = [np.asarray(x) if yes else np.broadcast_to(x, (size, *np.shape(x))) for x, yes in both]
        most = 1 if self._large else self._most
        part = lambda arrays, i: [x[i : i + most] for x in arrays]
        chunks = [
            self._results(asked.kind, self._found(part(every, i)), part(more, i))
            for i in range(0, size, most)
        ]
        return [np.concatenate(parts) for parts in zip(*map(asked.chosen, chunks), strict=True)]

    def several(self, asked: Asked, inputs: Arrays, tape: Arrays, more: Arrays) -> list[np.ndarray]:
        found = self._found([np.asarray(x)[None] for x in inputs])
        each = [self._results(asked.kind, found, [x[None] for x in one]) for one in zip(*more, strict=True)]
        return [np.concatenate(parts) for parts in zip(*map(asked.chosen, each), strict=True)]

    def _one(self, kind: str, inputs: Arrays, more: Arrays = ()) -> list[np.ndarray]:
        lead = lambda arrays: [np.asarray(x)[None] for x in arrays]
        return [x[0] for x in self._results(kind, self._found(lead(inputs)), lead(more))]

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        return self._one("value", inputs)

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        return self._one("tangent", inputs, changes)

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        return self._one("cotangent", inputs, weights)

    def by_xla(self, *inputs: Any) -> list[Any]:
        t, q, v, *doubles = inputs
        q, v, code = self._traced(self.setup, t, q, v, self.rebuild(doubles))
        return [q, v, jnp.asarray(code, float)]
