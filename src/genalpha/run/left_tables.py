"""Whether a run has left a table. Machine code cannot warn, so the rows of the solution are examined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from genalpha.backends.native.step import LIMIT, floating
from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sparse import front as sparse
from genalpha.engine.setup import Setup
from genalpha.mechanics import lookup_table
from genalpha.mechanics.lookup_table import LookupTable
from genalpha.mechanics.system import Args
from genalpha.results.solution import Solution
from genalpha.run.request import Request


class _Used(NamedTuple):
    """The tables that a system reads, in order, and a function of (t, q, v, args) -> their inputs."""

    tables: list[LookupTable]
    inputs: Rowwise


def messages(asked: Request, sol: Solution) -> list[str]:
    """What to say about tables that the rows of a solution have left, or that may have stopped the run."""
    if not len(lookup_table.known):
        return []
    dims = asked.setup.dims
    if [None if x is None else np.shape(x)[-1] for x in (sol.q, sol.v)] != [dims.size, dims.n]:
        return []
    parts = [(phase.args, phase.rows) for phase in sol.phases or ()] or [(asked.args, slice(len(sol.t)))]
    told = []
    for used, rows, doubles in _grouped(asked.setup, parts):
        t = np.asarray(sol.t)[rows]
        found = used.inputs((t, np.asarray(sol.q)[rows], np.asarray(sol.v)[rows], doubles))
        for table in dict.fromkeys(used.tables):
            own = [x for one, x in zip(used.tables, found, strict=True) if one is table]  # (K, axes, copies)
            inputs = np.moveaxis(np.concatenate(own, axis=2), 1, 2)
            times = np.repeat(t, inputs.shape[1])
            told.append(_about(table, times, inputs.reshape(len(times), -1), sol))
    return [text for text in told if text]


def _grouped(setup: Setup, parts: list[tuple[Args, slice]]) -> Iterator[tuple[_Used, np.ndarray, list[Any]]]:
    """The rows with the same tables, and the args of each; of all phases of a run, which may be many."""
    groups: dict[int, tuple[_Used, list[np.ndarray], list[Any]]] = {}
    for args, rows in parts:
        used = _used(setup, args)
        if used is not None:
            _, numbers, doubles = groups.setdefault(id(used), (used, [], []))
            numbers.append(np.arange(rows.start or 0, rows.stop))
            doubles.append(floating(args)[0])
    for used, numbers, doubles in groups.values():
        count = [len(x) for x in numbers]
        each = [np.repeat(np.stack(x), count, axis=0) for x in zip(*doubles, strict=True)]
        if sum(count):
            yield used, np.concatenate(numbers), each


def _about(table: LookupTable, t: np.ndarray, x: np.ndarray, sol: Solution) -> str:
    """What to say about one table with inputs x (K, axes) at times t (K,)."""
    low, high = (np.array([axis[i] for axis in table.axes]) for i in (0, -1))
    span = lambda a, b: " and ".join(f"{i:.6g} to {j:.6g}" for i, j in zip(a, b, strict=True))
    if table.outside == "error":
        if sol.success:
            return ""
        last = ", ".join(f"{i:.6g}" for i in x[-1])
        return f"{table} has no values outside of its inputs, {span(low, high)}. Its last input was {last}"
    left = ((x < low) | (x > high)).any(axis=1)
    if not left.any():
        return ""
    return (
        f"{table} with inputs from {span(low, high)} was left, first at t = {t[left].min():.6g}: its inputs "
        f"were {span(x.min(axis=0), x.max(axis=0))}. Outside, values are {table.outside}"
    )


def _used(setup: Setup, args: Args) -> _Used | None:
    """The tables that the functions of a system read; None if there are none."""
    doubles, rebuild, fixed = floating(args)
    key = ("tables", setup.dims, fixed, tuple(x.shape for x in doubles), jax.tree.structure(args))

    def make() -> _Used | None:
        system, dims = setup.system, setup.dims
        example = (np.zeros(()), np.zeros(dims.size), np.zeros(dims.n), doubles)

        def functions(t: Any, q: Any, v: Any, x: Any) -> Any:
            own = rebuild(x)
            return (
                system.M(t, q, own),
                system.applied(t, q, v, own),
                system.g(t, q, own),
                system.k(t, q, v, own),
            )

        closed = jax.make_jaxpr(functions)(*example)
        tables: list[LookupTable] = []

        def inputs(*at: Any) -> list[Any]:
            found: list[tuple[LookupTable, Any]] = []
            _evaluated(closed.jaxpr, closed.consts, jax.tree.leaves(at), found)
            tables[:] = [table for table, _ in found]
            return [jax.numpy.stack([x.reshape(-1) for x in given]) for _, given in found]

        jax.eval_shape(inputs, *example)
        if not tables:
            return None
        limit = 0 if sparse.large(setup) else LIMIT
        return _Used(list(tables), Rowwise("inputs", inputs, example, limit))

    return setup.system._programs.made(key, make)


def _evaluated(jaxpr: Any, consts: Any, inputs: Any, found: list[tuple[LookupTable, Any]]) -> list[Any]:
    """The outputs of a traced function. The inputs of tables in it are added to ``found``."""
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *inputs), strict=True))
    read = lambda x: x.val if isinstance(x, Literal) else values[x]
    for equation in jaxpr.eqns:
        given = [read(x) for x in equation.invars]
        table = None
        if equation.primitive.name in ("jit", "pjit"):
            table = lookup_table.known.get(equation.params["name"])
        if table is not None:
            found.append((table, given[-len(table.axes) :]))
        if table is None and equation.primitive.name in ("jit", "pjit"):
            inner = equation.params["jaxpr"]
            outputs = _evaluated(inner.jaxpr, inner.consts, given, found)
        else:
            needed = list(dict.fromkeys(x for x in equation.invars if not isinstance(x, Literal)))
            alone = jaxpr.replace(constvars=(), invars=needed, outvars=equation.outvars, eqns=[equation])
            outputs = jaxpr_as_fun(ClosedJaxpr(alone, ()))(*map(read, needed))
        values.update(zip(equation.outvars, outputs, strict=True))
    return [read(x) for x in jaxpr.outvars]
