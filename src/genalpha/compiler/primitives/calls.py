"""Equations that contain other jaxprs: calls, branches, and loops, which are unrolled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from genalpha.compiler import differentiate, turned
from genalpha.compiler.graph import Graph, Unsupported
from genalpha.compiler.primitives import custom, hosts, lookup
from genalpha.compiler.reader import Reader, Symbols, Value, kind_of, nodes
from genalpha.compiler.substitute import substitution
from genalpha.numerics import derivatives, host

# Largest number of turns of a loop that is unrolled.
MOST_TURNS = 1000


def _jit(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    match equation.params["name"].split("_"):
        case derivatives.PREFIX, kind, count if kind in (
            derivatives.RATE,
            derivatives.PULL,
            derivatives.JACOBIAN,
        ):
            return _derivative(reader, equation, inputs, kind, int(count))
    if equation.params["name"] == lookup.SEARCH and any(isinstance(x, Symbols) for x in inputs):
        found = lookup.search(reader, equation, inputs)
        if found is not None:
            return found
    return _call(reader, equation, inputs)


def _derivative(reader: Reader, equation: Any, inputs: list[Value], kind: str, count: int) -> list[Value]:
    """A value and its derivative, which `numerics.derivatives` left to the reader.

    The derivative is taken with respect to new variables, which are then replaced by the point. This is
    needed because entries of the point may depend on each other, and other values in the function on them.
    """
    graph, factors = (
        reader.graph,
        {derivatives.RATE: count, derivatives.PULL: 1, derivatives.JACOBIAN: 0}[kind],
    )
    last = len(inputs) - factors
    point = [nodes(graph, x) for x in inputs[last - count : last]]
    variables = [graph.inputs(ids.shape) for ids in point]
    moving = [*inputs[: last - count], *(Symbols(ids, "f") for ids in variables), *inputs[last:]]
    value = nodes(graph, _call(reader, equation, moving)[0])
    of, by = _flat(variables), _flat([nodes(graph, x) for x in inputs[last:]])
    if kind == derivatives.RATE:
        found = differentiate.along(graph, value.reshape(-1), of, by)
    elif kind == derivatives.PULL:
        found = differentiate.pulled_back(graph, value.reshape(-1), of, by)
    else:
        found = differentiate.jacobian(graph, value.reshape(-1), of)
    put = substitution(graph, dict(zip(of.tolist(), _flat(point).tolist(), strict=True)))
    shapes = [variable.aval.shape for variable in equation.outvars]
    both = zip((value, found), shapes, strict=True)
    return [Symbols(put(ids.reshape(-1)).reshape(shape), "f") for ids, shape in both]


def _flat(arrays: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([ids.reshape(-1) for ids in arrays]) if arrays else np.zeros(0, dtype=np.int64)


def _call(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    params = equation.params
    inner = next(params[key] for key in ("jaxpr", "call_jaxpr", "fun_jaxpr") if key in params)
    if hasattr(inner, "consts"):
        return reader.closed(inner, inputs)
    return reader.read(inner, (), inputs)


def _custom_jvp(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    find = lambda: custom.forward(reader, equation, inputs)
    return custom.with_rule(
        reader.graph, custom.kinds(equation), inputs, _call(reader, equation, inputs), find
    )


def _custom_vjp(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    find = lambda: custom.backward(reader, equation, inputs)
    return custom.with_rule(
        reader.graph, custom.kinds(equation), inputs, _call(reader, equation, inputs), find
    )


def _same(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    return inputs


def _stand_in(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    """Zeros: `_derivative` replaces them by the derivative."""
    return [np.zeros(equation.outvars[0].aval.shape)]


def _cond(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    """All branches, and a choice between their outputs. If the index is known, one branch."""
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
        result = [_chosen(graph, here, a, b) for a, b in zip(outcomes[k], result, strict=True)]
    return [Symbols(x, kind_of(v.aval.dtype)) for x, v in zip(result, equation.outvars, strict=True)]


def _chosen(graph: Graph, condition: int, yes: np.ndarray, no: np.ndarray) -> np.ndarray:
    pairs = zip(yes.reshape(-1).tolist(), no.reshape(-1).tolist(), strict=True)
    return np.array([graph.select(condition, a, b) for a, b in pairs], dtype=np.int64).reshape(yes.shape)


def _while(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    """A loop, unrolled. Its number of turns must be known."""
    p = equation.params
    tests, bodies = p["cond_nconsts"], p["body_nconsts"]
    test_consts, body_consts = inputs[:tests], inputs[tests : tests + bodies]
    state = inputs[tests + bodies :]
    for _ in range(MOST_TURNS):
        (going,) = reader.closed(p["cond_jaxpr"], [*test_consts, *state])
        if isinstance(going, Symbols):
            raise Unsupported(
                "a loop whose number of turns depends on values (while_loop) has no scalar form"
            )
        if not going:
            return list(state)
        state = reader.closed(p["body_jaxpr"], [*body_consts, *state])
    raise Unsupported(f"a loop of more than {MOST_TURNS} turns has no scalar form")


def _parts_of_scan(params: dict[str, Any]) -> tuple[int, int]:
    """How many inputs of a scan are constant, and how many are carried from turn to turn."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    inputs = params["ft_in"]  # since JAX 0.11: three flat trees
    consts, carries, _ = inputs.unpack()
    return len(consts), len(carries)


def _scan(reader: Reader, equation: Any, inputs: list[Value]) -> list[Value]:
    p = equation.params
    consts, carries = _parts_of_scan(p)
    fixed, state, columns = inputs[:consts], inputs[consts : consts + carries], inputs[consts + carries :]
    if p["length"] > MOST_TURNS:
        raise Unsupported(f"a loop of more than {MOST_TURNS} turns has no scalar form")
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
    **dict.fromkeys(("jit", "pjit"), _jit),
    **dict.fromkeys(("closed_call", "core_call", "remat", "checkpoint", "remat2"), _call),
    "custom_jvp_call": _custom_jvp,
    "custom_vjp_call": _custom_vjp,
    **turned.OPERATIONS,
    "custom_linear_solve": custom.linear_solve,
    "cond": _cond,
    "while": _while,
    "scan": _scan,
    derivatives.STAND_IN.name: _stand_in,
    host.HOST.name: hosts.call,
    "optimization_barrier": _same,
    "device_put": _same,
}
