"""Calls whose derivatives are stated instead of derived: custom_jvp, custom_vjp and linear solves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.api_util import debug_info
from jax.extend import core

from genalpha.compiler.graph import Graph
from genalpha.compiler.reader import Reader, Symbols, Value, kind_of, nodes
from genalpha.compiler.stated import Rule

Partials = dict[int, list[tuple[int, int]]]  # for each output, by its position among all outputs


def with_rule(
    graph: Graph,
    kinds: Sequence[str],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    find: Callable[[], Partials],
    held: Callable[[], Sequence[int]] = tuple,
) -> list[Value]:
    """The outputs of a call as new nodes, whose derivatives are those that ``find`` returns.

    ``kinds`` are those of the outputs. The nodes that ``held`` returns are stopped in these derivatives.
    """
    given = tuple(dict.fromkeys(i for x in inputs for i in _variables(graph, x)))
    if not given:
        return list(outputs)
    # If some inputs are known, an output may be constant because of them, and needs no rule. If all inputs
    # are unknown, a constant output does not depend on them, but its stated derivative may.
    folds = any(not isinstance(x, Symbols) or len(_variables(graph, x)) < x.ids.size for x in inputs)
    found: list[tuple[Partials, Callable[[], bool]]] = []

    def partials(position: int) -> list[tuple[int, int]]:
        if not found or not found[0][1]():  # its nodes have been forgotten
            found[:] = [(find(), graph.kept())]
        return found[0][0].get(position, [])

    result: list[Value] = []
    first = 0
    for output, kind in zip(outputs, kinds, strict=True):
        ids = nodes(graph, output)
        if kind == "f":
            flat = [
                i
                if i in graph.constants and folds
                else graph.stated(i, Rule(given, _at(partials, first + k), held))
                for k, i in enumerate(ids.reshape(-1).tolist())
            ]
            result.append(Symbols(np.array(flat, dtype=np.int64).reshape(ids.shape), "f"))
        else:
            result.append(output)
        first += ids.size
    return result


def kinds(equation: Any) -> list[str]:
    """The kinds of the outputs of an equation."""
    return [kind_of(variable.aval.dtype) for variable in equation.outvars]


def _at(
    partials: Callable[[int], list[tuple[int, int]]], position: int
) -> Callable[[], list[tuple[int, int]]]:
    return lambda: partials(position)


def _variables(graph: Graph, value: Value) -> list[int]:
    if not isinstance(value, Symbols) or value.kind != "f":
        return []
    return [i for i in value.ids.reshape(-1).tolist() if i not in graph.constants]


# --- rules of the user ----------------------------------------------------------------------------------


class _Lone:
    """One call as a separate JAX function, and the inputs with respect to which it has derivatives."""

    def __init__(self, equation: Any, inputs: Sequence[Value]) -> None:
        pairs = [
            (v, x) for v, x in zip(equation.invars, inputs, strict=True) if not isinstance(v, core.Literal)
        ]
        values = dict(pairs)  # an input may occur twice
        self.variables, self.values = list(values), list(values.values())
        paths = ("",) * len(equation.outvars)
        described = debug_info(
            "genalpha", lambda *inputs: None, self.variables, {}, result_paths_thunk=lambda: paths
        )
        jaxpr = core.Jaxpr(
            (), self.variables, equation.outvars, [equation], equation.effects, debug_info=described
        )
        self.function = core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, ()))
        self.shapes = [jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in self.variables]
        self.smooth = [k for k, x in enumerate(self.values) if isinstance(x, Symbols) and x.kind == "f"]

    def of_smooth(self, at: Sequence[Any]) -> Callable[..., Any]:
        """The function of its smooth inputs alone."""

        def moved(*chosen: Any) -> Any:
            point = list(at)
            for k, x in zip(self.smooth, chosen, strict=True):
                point[k] = x
            return self.function(*point)

        return moved


def _pushed(lone: _Lone, equation: Any) -> Any:
    """The rule of a custom_jvp call as a jaxpr. Calls of one function share it: parts are traced once."""

    def push(at: Sequence[Any], along: Sequence[Any]) -> Any:
        return jax.jvp(lone.of_smooth(at), tuple(at[k] for k in lone.smooth), tuple(along))[1]

    make = lambda: jax.make_jaxpr(push)(lone.shapes, [lone.shapes[k] for k in lone.smooth])
    if len(lone.variables) < len(equation.invars):  # numbers, or an input that occurs twice
        return make()
    about = equation.params["call_jaxpr"], equation.params["jvp_jaxpr_fun"]
    key = (*map(id, about), tuple(lone.smooth), *((shape.shape, shape.dtype) for shape in lone.shapes))
    if key not in _rules:
        while len(_rules) >= _MOST_RULES:
            del _rules[next(iter(_rules))]
        _rules[key] = about, make()  # kept together, so that no others have these ids
    return _rules[key][1]


_MOST_RULES = 50
_rules: dict[tuple[Any, ...], tuple[Any, Any]] = {}  # only one thread at a time makes graphs


def forward(reader: Reader, equation: Any, inputs: Sequence[Value]) -> Partials:
    """The derivatives of a custom_jvp call, from its rule for each unknown entry of its inputs."""
    lone, graph = _Lone(equation, inputs), reader.graph
    smooth, traced = [lone.shapes[k] for k in lone.smooth], _pushed(lone, equation)
    result: Partials = {}
    for which, k in enumerate(lone.smooth):
        for position, i in enumerate(lone.values[k].ids.reshape(-1).tolist()):
            if i in graph.constants:
                continue
            along = [np.zeros(shape.shape) for shape in smooth]
            along[which].reshape(-1)[position] = 1.0
            slopes = reader.closed(traced, [*lone.values, *along])
            for o, s in enumerate(_flat(graph, slopes, equation)):
                result.setdefault(o, []).append((i, s))
    return result


def backward(reader: Reader, equation: Any, inputs: Sequence[Value]) -> Partials:
    """The derivatives of a custom_vjp call, from its rule for each entry of its outputs."""
    lone, graph = _Lone(equation, inputs), reader.graph
    shapes = [v.aval for v in equation.outvars]
    moving = [k for k, v in enumerate(shapes) if kind_of(v.dtype) == "f"]

    def pull(at: Sequence[Any], along: Sequence[Any]) -> Any:
        whole = [np.zeros(v.shape, jax.dtypes.float0) for v in shapes]
        for k, x in zip(moving, along, strict=True):
            whole[k] = x
        outputs, back = jax.vjp(lone.of_smooth(at), *(at[k] for k in lone.smooth))
        return back(jax.tree.unflatten(jax.tree.structure(outputs), whole))

    smooth = [jax.ShapeDtypeStruct(shapes[k].shape, shapes[k].dtype) for k in moving]
    traced = jax.make_jaxpr(pull)(lone.shapes, smooth)
    columns = [i for k in lone.smooth for i in lone.values[k].ids.reshape(-1).tolist()]
    firsts = np.cumsum([0] + [int(np.prod(v.shape)) for v in shapes])
    result: Partials = {}
    for which, k in enumerate(moving):
        for position in range(int(np.prod(shapes[k].shape))):
            along = [np.zeros(shape.shape) for shape in smooth]
            along[which].reshape(-1)[position] = 1.0
            slopes = reader.closed(traced, [*lone.values, *along])
            flat = [int(s) for x in slopes for s in nodes(graph, x).reshape(-1)]
            result[int(firsts[k]) + position] = list(zip(columns, flat, strict=True))
    return result


def _flat(graph: Graph, slopes: Sequence[Value], equation: Any) -> list[int]:
    """The nodes of all entries; zeros for outputs without derivatives."""
    flat: list[int] = []
    for slope, variable in zip(slopes, equation.outvars, strict=True):
        if kind_of(variable.aval.dtype) == "f":
            flat += nodes(graph, slope).reshape(-1).tolist()
        else:
            flat += [0] * int(np.prod(variable.aval.shape))
    return flat


# --- linear systems -------------------------------------------------------------------------------------


def linear_solve(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    """x = A⁻¹ b; its derivatives are A⁻¹ (b' − A' x), not those of a factorization."""
    lengths = equation.params["const_lengths"]
    first = lengths.matvec + lengths.vecmat
    matrix, consts = inputs[: lengths.matvec], inputs[first : first + lengths.solve]
    rhs = inputs[first + lengths.solve + lengths.transpose_solve :]
    return _solved(reader, equation, matrix, consts, rhs)


def _solved(
    reader: Reader, equation: Any, matrix: list[Value], consts: list[Value], rhs: list[Value]
) -> list[Value]:
    """x = A⁻¹ b. Derivatives through the factorization are zero: JAX stops them before it factorizes."""
    graph, jaxprs = reader.graph, equation.params["jaxprs"]
    result: list[Value] = []
    held = lambda: [i for x in result for i in nodes(graph, x).reshape(-1).tolist()]

    def find() -> Partials:
        fixed = [Symbols(_stopped(graph, nodes(graph, x)), "f") for x in result]
        product = reader.closed(jaxprs.matvec, [*matrix, *fixed])
        left = [i for b in rhs for i in nodes(graph, b).reshape(-1).tolist()]
        right = [i for x in product for i in nodes(graph, x).reshape(-1).tolist()]
        sizes = np.cumsum([np.size(nodes(graph, b)) for b in rhs])[:-1]
        partials: Partials = {}
        for position, (b, x) in enumerate(zip(left, right, strict=True)):
            defect = graph.sub(b, x)
            if defect in graph.constants:
                continue
            units = np.zeros(len(left))
            units[position] = 1.0
            parts: list[Value] = [
                u.reshape(v.aval.shape) for u, v in zip(np.split(units, sizes), equation.outvars, strict=True)
            ]
            column = [
                i
                for x in _solved(reader, equation, matrix, consts, parts)
                for i in nodes(graph, x).reshape(-1).tolist()
            ]
            for o, s in enumerate(column):
                partials.setdefault(o, []).append((defect, s))
        return partials

    outputs = reader.closed(jaxprs.solve, [*consts, *rhs])
    result += with_rule(graph, kinds(equation), [*matrix, *rhs], outputs, find, held)
    return result


def _stopped(graph: Graph, ids: np.ndarray) -> np.ndarray:
    flat = [graph.stopped(i) for i in ids.reshape(-1).tolist()]
    return np.array(flat, dtype=np.int64).reshape(ids.shape)
