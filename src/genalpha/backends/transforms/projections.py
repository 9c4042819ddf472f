"""Projections onto constraints as operations of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.code import MAKING
from genalpha.backends.native.projection import WholeProjector
from genalpha.backends.sparse import front, models
from genalpha.backends.sparse.copy_functions import CopyArgs
from genalpha.backends.sparse.projection import Projector
from genalpha.backends.sparse.projection_derivatives import (
    ProjectionDerivatives,
    ProjectionEquations,
    ProjectionFunctions,
)
from genalpha.backends.sparse.whole_model import WholeArgs, WholeModel
from genalpha.backends.transforms.operation import Arrays, Operation, Shape
from genalpha.backends.transforms.records import Rebuild
from genalpha.engine.setup import Setup
from genalpha.mechanics.assembly import Assembly
from genalpha.mechanics.initial_values import Held
from genalpha.numerics import codes


class Projection(Operation):
    """The nearest q and v on the constraints, and a status. Inputs are t, q, v and doubles.

    ``traced`` is the same as a function that JAX traces. Raises :class:`Unsupported` without machine code.
    """

    smooth = (True, True, False)

    def __init__(
        self, setup: Setup, held: Held, traced: Callable[..., Any], doubles: list[Any], rebuild: Rebuild
    ) -> None:
        self.setup, self.held, self._traced, self.rebuild = setup, held, traced, rebuild
        shapes = [np.shape(x) for x in doubles]
        zeros = [np.zeros(shape) for shape in shapes]
        parts = self._parts(zeros)
        self._projector(zeros)
        self._args: Any = WholeArgs(shapes)
        nodes: Sequence[Any] = parts
        if isinstance(setup.system, Assembly):
            nodes = models.of_nodes(setup.system)
            self._args = CopyArgs(parts, rebuild, shapes)
        self.functions = ProjectionFunctions(nodes, parts)

    def _parts(self, doubles: list[Any]) -> list[Any]:
        """The parts of the system with some numbers, or itself."""
        system = self.setup.system
        if isinstance(system, Assembly):
            return models.of_parts(system, self.rebuild(doubles))
        return [WholeModel(system, self.setup.dims, [x[None] for x in doubles], self.rebuild)]

    def _projector(self, doubles: list[Any]) -> Projector:
        whole = not isinstance(self.setup.system, Assembly)
        return (WholeProjector if whole else front.projector)(self.setup, self.rebuild(doubles))

    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        return [(self.setup.dims.size,), (self.setup.dims.n,), ()]

    def _found(self, inputs: Arrays) -> tuple[ProjectionEquations | None, list[np.ndarray]]:
        """The equations of the projection, if there is one, and the outputs."""
        t, q, v, *doubles = map(np.asarray, inputs)
        status = codes.NOT_FINITE
        if all(np.isfinite(x).all() for x in (t, q, v, *doubles)):
            projector = self._projector(doubles)
            equations = ProjectionEquations(
                self.functions, projector, self._parts(doubles), (t, q, v), self.held
            )
            q, v, status = projector.placed(float(t), equations.position["q"], v, self.held)
            if status == codes.SUCCESS:
                return equations, [q, v, np.array(float(status))]
            if equations.solve():  # it may converge from farther away
                found = [equations.end, equations.velocity["v"] + equations.velocity["e"]]
                return equations, [*found, np.array(float(codes.SUCCESS))]
        return None, [np.full(q.shape, np.nan), np.full(v.shape, np.nan), np.array(float(status))]

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        with MAKING:
            return self._found(inputs)[1]

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        equations, found = self._found(inputs)
        if equations is None:
            return found[:2]
        t, q, v, *doubles = map(np.asarray, changes)
        turned = self._args.spread(doubles, {name: x.shape[1] for name, x in equations.data.items()})
        return [*ProjectionDerivatives(equations, (found[0], found[1])).changed(t, q, v, turned)]

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        equations, found = self._found(inputs)
        if equations is None:
            wanted = any(np.any(x) for x in weights)
            return [np.full(np.shape(x), np.nan if wanted else 0.0) for x in inputs]
        at = ProjectionDerivatives(equations, (found[0], found[1]))
        state, args = at.pulled(*map(np.asarray, weights))
        return [state["t"], state["q"], state["v"], *self._args.pulled(args)]

    def by_xla(self, *inputs: Any) -> list[Any]:
        t, q, v, *doubles = inputs
        q, v, code = self._traced(self.setup, t, q, v, self.rebuild(doubles))
        return [q, v, jnp.asarray(code, float)]
