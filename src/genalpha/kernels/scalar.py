"""From a JAX function to scalar expressions: a jaxpr is read once, and every array becomes its entries.

Arrays that are known are NumPy's and folded with NumPy. Arrays that are not hold numbers of nodes
(:class:`Symbols`), so that whatever only moves entries about costs nothing. The table of primitives is in
`primitives`; docs/native.md lists them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend import core

from genalpha.kernels.graph import Graph, Unsupported


class Symbols(NamedTuple):
    """An array of scalars: numbers of nodes, and the kind of what they stand for.

    ``kind`` is "f" for doubles, "i" for integers (kept in doubles) and "b" for booleans.
    """

    ids: np.ndarray
    kind: str


Value = np.ndarray | Symbols
# Turns of one loop that are unrolled at most.
MOST_TURNS = 1000


# Functions known by their names, which something else than their jaxpr is put in the place of.
Helpers = dict[str, Callable[..., Sequence[np.ndarray]]]


def inline(
    graph: Graph, function: Callable[..., Any], *arguments: Any, helpers: Helpers | None = None
) -> Any:
    """``function`` of pytrees of arrays, of which some are :class:`Symbols`, as expressions in ``graph``.

    Returns its output with every array as node numbers (``np.ndarray`` of integers, constants included).
    The function is traced once, with the shapes of its arguments; nothing is executed by JAX.
    """
    leaves, structure = jax.tree.flatten(arguments, is_leaf=_is_symbols)
    leaves = [leaf if _is_symbols(leaf) else np.asarray(leaf) for leaf in leaves]
    shapes = [jax.ShapeDtypeStruct(_shape(leaf), _dtype(leaf)) for leaf in leaves]
    traced, out_shape = jax.make_jaxpr(
        lambda *flat: function(*jax.tree.unflatten(structure, flat)), return_shape=True
    )(*shapes)
    outputs = Reader(graph, helpers).closed(traced, leaves)
    return jax.tree.unflatten(
        jax.tree.structure(out_shape), [nodes(graph, output) for output in outputs]
    )


def nodes(graph: Graph, value: Value) -> np.ndarray:
    """The node numbers of an array's entries, known or not."""
    if isinstance(value, Symbols):
        return value.ids
    value = np.asarray(value)
    make: Callable[[Any], int] = graph.flag if value.dtype == bool else graph.constant
    flat = [make(x) for x in value.reshape(-1).tolist()]
    return np.array(flat, dtype=np.int64).reshape(value.shape)


def symbols(graph: Graph, ids: np.ndarray) -> Symbols:
    """Doubles from node numbers."""
    return Symbols(np.asarray(ids, dtype=np.int64), "f")


def kind_of(dtype: Any) -> str:
    return {"f": "f", "i": "i", "u": "i", "b": "b"}.get(np.dtype(dtype).kind, "?")


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
                return np.asarray(variable.val)
            return known[variable]

        for variable, const in zip(jaxpr.constvars, consts, strict=True):
            known[variable] = np.asarray(const)
        known.update(zip(jaxpr.invars, inputs, strict=True))
        for equation in jaxpr.eqns:
            outputs = self.equation(equation, [look(v) for v in equation.invars])
            known.update(zip(equation.outvars, outputs, strict=True))
        return [look(v) for v in jaxpr.outvars]

    def equation(self, equation: Any, inputs: list[Value]) -> Sequence[Value]:
        from genalpha.kernels import primitives

        name, params = equation.primitive.name, equation.params
        helper = self.helpers.get(params.get("name", ""))
        if helper is not None and any(isinstance(x, Symbols) for x in inputs):
            return [Symbols(x, "f") for x in helper(self.graph, *(nodes(self.graph, x) for x in inputs))]
        if name in CALLS:
            return CALLS[name](self, equation, inputs)
        handler = primitives.TABLE.get(name)
        if handler is None:
            raise Unsupported(f"the operation {name!r} has no scalar form")
        for variable in equation.outvars:
            if kind_of(variable.aval.dtype) == "?":
                raise Unsupported(f"the operation {name!r} on {variable.aval.dtype} has no scalar form")
        outputs = handler(self.graph, inputs, params)
        if not equation.primitive.multiple_results:
            outputs = [outputs]
        return [_typed(output, v.aval.dtype) for output, v in zip(outputs, equation.outvars, strict=True)]


def _typed(value: Value, dtype: Any) -> Value:
    if isinstance(value, Symbols):
        return value
    return np.asarray(value, dtype=dtype)


# --- equations that hold other jaxprs -----------------------------------------------------------------


def _call(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    params = equation.params
    inner = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
    if hasattr(inner, "consts"):
        return reader.closed(inner, inputs)
    return reader.read(inner, (), inputs)


def _custom_jvp(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    """The value, with the stated derivative remembered for those who ask for it."""
    graph = reader.graph
    outputs = _call(reader, equation, inputs)
    if not any(isinstance(x, Symbols) for x in inputs):
        return outputs
    given = {i for x in inputs if isinstance(x, Symbols) for i in x.ids.reshape(-1).tolist()}
    ids = [nodes(graph, output) for output in outputs]
    passed = [np.isin(x, list(given)) for x in ids]
    for x, same in zip(ids, passed, strict=True):  # a function that hands its input on: nothing to hang on to
        if same.any():
            x[same] = [graph.distinct("copy", i) for i in x[same].tolist()]
    fresh = [i for x in ids for i in x.reshape(-1).tolist() if i not in graph.constants]
    rule = _Rule(reader, equation, inputs, ids)
    for i in fresh:
        graph.rules.setdefault(i, lambda i=i: rule.partials(i))  # type: ignore[misc]
    kinds = [kind_of(v.aval.dtype) for v in equation.outvars]
    return [
        Symbols(x, kind) if isinstance(old, Symbols) or same.any() else old
        for x, kind, old, same in zip(ids, kinds, outputs, passed, strict=True)
    ]


class _Rule:
    """The derivatives of one call of a ``custom_jvp`` function, found when first asked for."""

    def __init__(self, reader: Reader, equation: Any, inputs: list[Value], outputs: list[np.ndarray]) -> None:
        self.reader, self.equation, self.inputs, self.outputs = reader, equation, inputs, outputs
        self.found: dict[int, list[tuple[int, int]]] | None = None

    def partials(self, output: int) -> list[tuple[int, int]]:
        if self.found is None:
            self.found = self._find()
        return self.found[output]

    def _find(self) -> dict[int, list[tuple[int, int]]]:
        graph, equation = self.reader.graph, self.equation
        variables = [v for v in dict.fromkeys(equation.invars) if not isinstance(v, core.Literal)]
        lone = core.Jaxpr((), variables, equation.outvars, [equation], equation.effects)
        function = core.jaxpr_as_fun(core.ClosedJaxpr(lone, ()))
        values = dict(zip(equation.invars, self.inputs, strict=True))
        primals = [values[v] for v in variables]
        smooth = [k for k, x in enumerate(primals) if isinstance(x, Symbols) and x.kind == "f"]
        shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in variables]

        def push(*flat: Any) -> Any:
            at, along = list(flat[: len(shapes)]), flat[len(shapes) :]

            def moved(*chosen: Any) -> Any:
                point = list(at)
                for k, x in zip(smooth, chosen, strict=True):
                    point[k] = x
                return function(*point)

            return jax.jvp(moved, tuple(at[k] for k in smooth), tuple(along))[1]

        traced = jax.make_jaxpr(push)(*shapes, *(shapes[k] for k in smooth))
        result: dict[int, list[tuple[int, int]]] = {}
        for k in smooth:
            for position, i in enumerate(primals[k].ids.reshape(-1).tolist()):  # type: ignore[union-attr]
                along = [np.zeros(shapes[j].shape) for j in smooth]
                along[smooth.index(k)].reshape(-1)[position] = 1.0
                slopes = self.reader.closed(traced, [*primals, *along])
                for out, slope in zip(self.outputs, slopes, strict=True):
                    if _dtype(slope) == jax.dtypes.float0:
                        continue
                    for o, s in zip(out.reshape(-1).tolist(), nodes(graph, slope).reshape(-1).tolist(), strict=True):
                        result.setdefault(o, []).append((i, s))
        return result


def _linear_solve(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    consts = inputs[first : first + lengths.solve]
    rhs = inputs[first + lengths.solve + lengths.transpose_solve :]
    return reader.closed(jaxprs.solve, [*consts, *rhs])


def _cond(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    """All branches, and a choice between their outputs; one branch where the index is known."""
    graph, branches = reader.graph, equation.params["branches"]
    index, operands = inputs[0], inputs[1:]
    if not isinstance(index, Symbols):
        return reader.closed(branches[min(max(int(index), 0), len(branches) - 1)], operands)
    outcomes = [[nodes(graph, x) for x in reader.closed(branch, operands)] for branch in branches]
    which = int(index.ids)
    result = outcomes[-1]
    for k in reversed(range(len(branches) - 1)):
        if index.kind == "b":
            here = graph.logic("not", which)
        else:
            here = graph.compare("le", which, graph.constant(k))
        choose = np.frompyfunc(lambda yes, no, here=here: graph.select(here, yes, no), 2, 1)
        result = [choose(a, b).astype(np.int64) if a.size else a for a, b in zip(outcomes[k], result, strict=True)]
    return [
        Symbols(np.asarray(x, dtype=np.int64), kind_of(v.aval.dtype))
        for x, v in zip(result, equation.outvars, strict=True)
    ]


def _while(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    """A loop whose number of turns is known, unrolled."""
    p = equation.params
    tests, bodies = p["cond_nconsts"], p["body_nconsts"]
    test_consts, body_consts = inputs[:tests], inputs[tests : tests + bodies]
    state = inputs[tests + bodies :]
    for _ in range(MOST_TURNS):
        (going,) = reader.closed(p["cond_jaxpr"], [*test_consts, *state])
        if isinstance(going, Symbols):
            raise Unsupported("a loop whose number of turns depends on values (while_loop)")
        if not going:
            return list(state)
        state = reader.closed(p["body_jaxpr"], [*body_consts, *state])
    raise Unsupported(f"a loop of more than {MOST_TURNS} turns")


def _scan(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    p = equation.params
    consts, carries = p["num_consts"], p["num_carry"]
    fixed, state, columns = inputs[:consts], inputs[consts : consts + carries], inputs[consts + carries :]
    if p["length"] > MOST_TURNS:
        raise Unsupported(f"a loop of more than {MOST_TURNS} turns")
    turns = range(p["length"])
    rows: dict[int, list[Value]] = {}
    for k in reversed(turns) if p["reverse"] else turns:
        at = [Symbols(x.ids[k], x.kind) if isinstance(x, Symbols) else x[k] for x in columns]
        outputs = reader.closed(p["jaxpr"], [*fixed, *state, *at])
        state, rows[k] = outputs[:carries], outputs[carries:]
    stacked: list[Value] = []
    for j, variable in enumerate(equation.outvars[carries:]):
        column = [rows[k][j] for k in turns]
        if any(isinstance(x, Symbols) for x in column):
            ids = [nodes(reader.graph, x) for x in column]
            stacked.append(Symbols(np.stack(ids), kind_of(variable.aval.dtype)))
        else:
            known = [np.asarray(x) for x in column]
            stacked.append(np.stack(known) if known else np.zeros(variable.aval.shape, variable.aval.dtype))
    return [*state, *stacked]


CALLS: dict[str, Callable[[Reader, Any, list[Value]], Sequence[Value]]] = {
    **dict.fromkeys(
        ("jit", "pjit", "closed_call", "core_call", "remat", "checkpoint", "remat2", "custom_vjp_call"), _call
    ),
    "custom_vjp_call_jaxpr": _call,
    "custom_jvp_call": _custom_jvp,
    "custom_linear_solve": _linear_solve,
    "cond": _cond,
    "while": _while,
    "scan": _scan,
}
