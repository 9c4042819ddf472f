"""From a JAX function to scalar expressions: a jaxpr is read once, and every array is split into its entries.

Arrays with known values are NumPy arrays, and NumPy computes with them. Arrays with unknown values hold the
numbers of nodes (:class:`Symbols`), so that moving entries costs nothing. `primitives.table` has the table of
primitives, `primitives.calls` that of calls, branches and loops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from genalpha.compiler.graph import ZERO, Graph, Unsupported
from genalpha.numerics.derivatives import left_to_reader
from genalpha.numerics.host import from_host


class Symbols(NamedTuple):
    """An array of scalars whose values are not known: the numbers of their nodes, and their kind.

    ``kind`` is "f" for doubles, "i" for integers (kept in doubles) and "b" for booleans.
    """

    ids: np.ndarray
    kind: str


Value = np.ndarray | Symbols
Params = dict[str, Any]
Handler = Callable[[Graph, list[Value], Params], Any]

# Functions that replace calls of these names, instead of reading their jaxprs.
Helpers = dict[str, Callable[..., Sequence[np.ndarray]]]


def inline(
    graph: Graph, function: Callable[..., Any], *arguments: Any, helpers: Helpers | None = None
) -> Any:
    """``function(*arguments)`` as expressions in ``graph``. Some arguments contain :class:`Symbols`.

    Returns its output with every array as node numbers (``np.ndarray`` of integers, constants included).
    The function is traced once, with the shapes of its arguments; JAX executes nothing.
    """
    leaves, structure = jax.tree.flatten(arguments, is_leaf=_is_symbols)
    leaves = [leaf if _is_symbols(leaf) else _array(leaf) for leaf in leaves]
    shapes = [jax.ShapeDtypeStruct(_shape(leaf), _dtype(leaf)) for leaf in leaves]
    trace = jax.make_jaxpr(lambda *flat: function(*jax.tree.unflatten(structure, flat)), return_shape=True)
    try:
        with left_to_reader(True):
            traced, out_shape = trace(*shapes)
    except NotImplementedError as error:
        raise Unsupported(f"JAX cannot compute a derivative ({error})") from error
    outputs = Reader(graph, helpers).closed(traced, leaves)
    return jax.tree.unflatten(jax.tree.structure(out_shape), [nodes(graph, output) for output in outputs])


def nodes(graph: Graph, value: Value) -> np.ndarray:
    """The node numbers of the entries of an array, known or not."""
    if isinstance(value, Symbols):
        return value.ids
    value = np.asarray(value)
    make: Callable[[Any], int] = graph.flag if value.dtype == bool else graph.constant
    flat = [make(x) for x in value.reshape(-1).tolist()]
    return np.array(flat, dtype=np.int64).reshape(value.shape)


def kind_of(dtype: Any) -> str:
    return {"f": "f", "i": "i", "u": "i", "b": "b"}.get(np.dtype(dtype).kind, "?")


def _array(value: Any) -> np.ndarray:
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.extended):
        raise Unsupported("a key of random numbers has no scalar form")
    return np.asarray(value)


def _is_symbols(value: Any) -> bool:
    return isinstance(value, Symbols)


def _shape(value: Any) -> tuple[int, ...]:
    return value.ids.shape if isinstance(value, Symbols) else np.shape(value)


def _dtype(value: Any) -> Any:
    if isinstance(value, Symbols):
        return {"f": np.float64, "i": np.int64, "b": np.bool_}[value.kind]
    return np.asarray(value).dtype


class Reader:
    """Reads jaxprs into one graph."""

    def __init__(self, graph: Graph, helpers: Helpers | None = None) -> None:
        self.graph = graph
        self.helpers = helpers or {}

    def closed(self, program: Any, inputs: Sequence[Value]) -> list[Value]:
        return self.read(program.jaxpr, program.consts, inputs)

    def read(self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Value]) -> list[Value]:
        """The outputs of a jaxpr."""
        known: dict[Any, Value] = {}

        def look(variable: Any) -> Value:
            if isinstance(variable, core.Literal):
                return _array(variable.val)
            return known[variable]

        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            known[variable] = _array(const)
        known.update(zip(jaxpr.invars, inputs, strict=True))
        for equation in jaxpr.eqns:
            outputs = self.equation(equation, [look(v) for v in equation.invars])
            known.update(zip(equation.outvars, outputs, strict=True))
        return [look(v) for v in jaxpr.outvars]

    def equation(self, equation: Any, inputs: list[Value]) -> Sequence[Value]:
        """The outputs of one equation. Every error becomes :class:`Unsupported`."""
        name = equation.primitive.name
        try:
            return self._equation(equation, inputs)
        except Unsupported:
            raise
        except RecursionError as error:
            raise Unsupported("functions are nested too deeply") from error
        except Exception as error:
            if from_host(error):
                raise
            what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise Unsupported(f"this use of the operation {name!r} has no scalar form ({what})") from error

    def _equation(self, equation: Any, inputs: list[Value]) -> Sequence[Value]:
        calls, table = _primitives()
        name, params = equation.primitive.name, equation.params
        if name in calls.CALLS:
            if self._helps(equation) and any(isinstance(x, Symbols) for x in inputs):
                helper = self.helpers[params["name"]]
                return [Symbols(x, "f") for x in helper(self.graph, *(nodes(self.graph, x) for x in inputs))]
            return calls.CALLS[name](self, equation, inputs)
        handler = table.TABLE.get(name)
        if handler is None:
            reason = table.REASONS.get(name, f"the operation {name!r}")
            raise Unsupported(f"{reason} has no scalar form")
        for variable in equation.outvars:
            if kind_of(variable.aval.dtype) == "?":
                raise Unsupported(f"{name!r} makes {variable.aval.dtype} numbers, which have no scalar form")
        outputs = handler(self.graph, inputs, params)
        if name in ("sub", "neg"):
            outputs = _wrapped(self.graph, outputs, equation.outvars[0].aval.dtype)
        if not equation.primitive.multiple_results:
            outputs = [outputs]
        return [
            _typed(self.graph, output, v.aval) for output, v in zip(outputs, equation.outvars, strict=True)
        ]

    def _helps(self, equation: Any) -> bool:
        """Whether a helper replaces a call.

        The call must be one of the package's own functions, with a matrix (N, N) and perhaps a vector (N,).
        Under vmap or jvp it has the same name but other shapes, and is not replaced.
        """
        params = equation.params
        if equation.primitive.name not in ("jit", "pjit") or params["name"] not in self.helpers:
            return False
        shapes, outputs = [v.aval.shape for v in equation.invars], len(equation.outvars)
        square = bool(shapes) and len(shapes[0]) == 2 and shapes[0][0] == shapes[0][1]
        return square and shapes[1:] in ([], [shapes[0][:1]]) and outputs == 1


@functools.cache
def _primitives() -> tuple[Any, Any]:
    """The tables of calls and of other primitives. Their modules need this one."""
    from genalpha.compiler.primitives import calls, table

    return calls, table


def _wrapped(graph: Graph, value: Value, dtype: Any) -> Value:
    """A difference of unsigned integers, wrapped around if negative. Other overflows are not handled."""
    if not isinstance(value, Symbols) or dtype.kind != "u":
        return value
    if dtype.itemsize > 4:
        raise Unsupported("a difference of unsigned integers of 64 bits has no scalar form")
    flat = [
        graph.select(graph.compare("lt", i, ZERO), graph.add(i, graph.constant(2.0**32)), i)
        for i in value.ids.reshape(-1).tolist()
    ]
    return Symbols(np.array(flat, dtype=np.int64).reshape(value.ids.shape), value.kind)


def _typed(graph: Graph, value: Value, aval: Any) -> Value:
    """The output of a handler with the type of the equation; a NumPy array if all entries are known."""
    if isinstance(value, Symbols):
        flat = value.ids.reshape(-1).tolist()
        if all(i in graph.constants for i in flat):
            value = np.array([graph.constants[i] for i in flat]).reshape(value.ids.shape)
    if not isinstance(value, Symbols):
        with np.errstate(all="ignore"):
            return np.asarray(value, dtype=aval.dtype).reshape(aval.shape)
    kind = _KINDS.get(aval.dtype)
    if kind is None:
        raise Unsupported(
            f"numbers of type {aval.dtype} that depend on values have no scalar form: use float64 or int64"
        )
    assert value.ids.shape == aval.shape
    return value if value.kind == kind else Symbols(value.ids, kind)


# The kinds of unknown arrays by type. Narrower types round or wrap around, which doubles do not.
_KINDS = {np.dtype(name): kind_of(name) for name in ("float64", "int64", "int32", "uint64", "uint32", "bool")}
