"""A list of scalar operations as one operation of JAX.

JAX takes seconds to trace a formula with thousands of operations. As one primitive it is one equation of a
jaxpr, and the reader copies its operations into the graph. Its derivatives are lists of operations too. XLA
gets the operations one by one, but only when it compiles.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from genalpha.compiler import differentiate
from genalpha.compiler.graph import Graph, Unsupported

# The name of an operation, and the positions of its inputs among all values.
Listed = tuple[str, tuple[int, ...]]

# Names of NumPy and JAX, where they differ from those of the graph.
_NAMES = {
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "neg": "negative",
    "max": "maximum",
    "min": "minimum",
    "atan2": "arctan2",
    "lt": "less",
    "le": "less_equal",
    "eq": "equal",
    "ne": "not_equal",
    "and": "logical_and",
    "or": "logical_or",
    "xor": "logical_xor",
    "not": "logical_not",
    "select": "where",
}


class Scalars:
    """Operations on ``count`` inputs. Values are the inputs, then ``constants``, then the results, in order.

    ``outputs`` are positions among the values.

    >>> graph = Graph()
    >>> x, y = graph.inputs(2).tolist()
    >>> product = Scalars.of(graph, [x, y], [graph.mul(x, graph.apply("sin", y)), x])
    >>> product.evaluate(np.array([2.0, np.pi / 2])).tolist()
    [2.0, 2.0]
    """

    def __init__(
        self,
        count: int,
        constants: Sequence[float | bool],
        operations: Sequence[Listed],
        outputs: Sequence[int],
    ) -> None:
        self.count, self.constants = count, tuple(constants)
        self.operations, self.outputs = tuple(operations), tuple(outputs)

    @staticmethod
    def of(graph: Graph, inputs: Sequence[int], outputs: Sequence[int]) -> Scalars:
        """The expressions ``outputs`` of a graph as functions of the nodes ``inputs``."""
        place = {int(i): k for k, i in enumerate(inputs)}
        found = [i for i in graph.reachable(map(int, outputs), place) if i not in place]
        known = [i for i in found if i in graph.constants]
        place.update({i: len(inputs) + k for k, i in enumerate(known)})
        operations: list[Listed] = []
        for i in found:
            if i in graph.constants:
                continue
            op, needed, kind = graph.nodes[i]
            if op == "input" or kind == "t" or i in graph.rules:
                raise Unsupported(f"the node {i} ({op}) is no plain function of the inputs")
            place[i] = len(inputs) + len(known) + len(operations)
            operations.append((op, tuple(place[j] for j in needed)))
        constants = [graph.constants[i] for i in known]
        return Scalars(len(inputs), constants, operations, [place[int(i)] for i in outputs])

    def into(self, graph: Graph, inputs: Sequence[int]) -> list[int]:
        """The outputs as nodes of another graph."""
        values = list(inputs)
        values += [graph.flag(c) if isinstance(c, bool) else graph.constant(c) for c in self.constants]
        for op, needed in self.operations:
            values.append(graph.make(op, *(values[j] for j in needed)))
        return [values[i] for i in self.outputs]

    def evaluate(self, x: Any) -> Any:
        """The outputs (..., outputs) for inputs (..., count): by JAX for arrays of JAX, else by NumPy."""
        library = jnp if isinstance(x, jax.Array) else np
        values: list[Any] = [x[..., i] for i in range(self.count)]
        values += self.constants
        with np.errstate(all="ignore"):
            for op, needed in self.operations:
                values.append(_function(library, op)(*(values[j] for j in needed)))
        rows = [library.broadcast_to(library.asarray(values[i], float), x.shape[:-1]) for i in self.outputs]
        return library.stack(rows, axis=-1) if rows else library.zeros((*x.shape[:-1], 0))

    @functools.cached_property
    def along(self) -> Scalars:
        """The derivatives of the outputs along a direction. The inputs are the point and the direction."""
        graph = Graph()
        x, direction = graph.inputs(self.count), graph.inputs(self.count)
        outputs = np.array(self.into(graph, x.tolist()), dtype=np.int64)
        slopes = differentiate.along(graph, outputs, x, direction)
        return Scalars.of(graph, [*x.tolist(), *direction.tolist()], slopes.tolist())

    def pulled(self, last: int) -> Scalars:
        """The derivatives of weights · outputs with respect to the last inputs.

        The inputs are the other inputs and the weights: the outputs must be linear in the last inputs.
        """
        graph = Graph()
        x, weights = graph.inputs(self.count), graph.inputs(len(self.outputs))
        outputs = np.array(self.into(graph, x.tolist()), dtype=np.int64)
        first = self.count - last
        slopes = differentiate.pulled_back(graph, outputs, x[first:], weights)
        return Scalars.of(graph, [*x[:first].tolist(), *weights.tolist()], slopes.tolist())


@functools.cache
def _function(library: Any, op: str) -> Any:
    if op == "copy":
        return lambda x: x
    if op in ("erf", "erfc"):
        import scipy.special

        return getattr(jax.scipy.special if library is jnp else scipy.special, op)
    return getattr(library, _NAMES.get(op, op))


# --- as an operation of JAX -----------------------------------------------------------------------------

# Inputs: a point (..., P) and a direction (..., D) in which the result is linear; P + D = scalars.count.
SCALARS = Primitive("genalpha_scalars")


def apply(scalars: Scalars, x: Array) -> Array:
    """The outputs (..., outputs) of operations on x (..., count), as one operation of JAX."""
    return _bind(scalars, x, jnp.zeros((*x.shape[:-1], 0)))


def _bind(scalars: Scalars, x: Array, direction: Array) -> Array:
    return SCALARS.bind(x, direction, scalars=scalars)


def _in_jax(x: Array, direction: Array, *, scalars: Scalars) -> Array:
    return scalars.evaluate(jnp.concatenate([x, direction], axis=-1))


@SCALARS.def_impl
def _in_numpy(x: Array, direction: Array, *, scalars: Scalars) -> Array:
    return jnp.asarray(scalars.evaluate(np.concatenate([x, direction], axis=-1)))


@SCALARS.def_abstract_eval
def _shape(x: Any, direction: Any, *, scalars: Scalars) -> Any:
    return x.update(shape=(*x.shape[:-1], len(scalars.outputs)))


def _derivative(primals: Any, tangents: Any, *, scalars: Scalars) -> tuple[Array, Array]:
    x, direction = primals
    moved = [ad.instantiate_zeros(tangent) for tangent in tangents]
    at, along = jnp.concatenate([x, direction], axis=-1), jnp.concatenate(moved, axis=-1)
    return _bind(scalars, x, direction), _bind(scalars.along, at, along)


@functools.lru_cache(maxsize=256)
def _transpose(scalars: Scalars, last: int) -> Scalars:
    return scalars.pulled(last)


def _transposed(weights: Any, x: Any, direction: Any, *, scalars: Scalars) -> tuple[None, Array]:
    last = direction.aval.shape[-1]
    weights = ad.instantiate_zeros(weights)
    return None, _bind(_transpose(scalars, last), x, weights)


def _batched(inputs: Any, axes: Any, *, scalars: Scalars) -> tuple[Array, int]:
    size = next(x.shape[axis] for x, axis in zip(inputs, axes, strict=True) if axis is not None)
    front = [batching.bdim_at_front(x, axis, size) for x, axis in zip(inputs, axes, strict=True)]
    return _bind(scalars, *front), 0


ad.primitive_jvps[SCALARS] = _derivative
ad.primitive_transposes[SCALARS] = _transposed
batching.primitive_batchers[SCALARS] = _batched
mlir.register_lowering(SCALARS, mlir.lower_fun(_in_jax, multiple_results=False))
