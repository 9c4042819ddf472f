"""Why derivatives of a run are NaN: operations in the user's functions that have no derivative there."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Literal

from genalpha.backends.native.code import MAKING, RowCode
from genalpha.backends.sparse.models import KindModel
from genalpha.backends.transforms.records import Rebuild, Taken
from genalpha.compiler.graph import Unsupported
from genalpha.compiler.rows import RowFunction
from genalpha.engine.row import Layout
from genalpha.engine.setup import Setup
from genalpha.errors import warn_of_gradient
from genalpha.mechanics.user_errors import line_of

# Where operations have no finite derivative.
_WHERE: dict[str, tuple[str, Callable[..., Any]]] = {
    "sqrt": ("a square root of zero", lambda x: x == 0),
    "rsqrt": ("a square root of zero", lambda x: x == 0),
    "cbrt": ("a cube root of zero", lambda x: x == 0),
    "pow": ("a power of zero", lambda x, y: (x == 0) & (y < 1)),
    "atan2": ("an angle of a vector of length zero", lambda x, y: (x == 0) & (y == 0)),
    "asin": ("an arc sine of one", lambda x: jnp.abs(x) == 1),
    "acos": ("an arc cosine of one", lambda x: jnp.abs(x) == 1),
}
_INPUTS = {"mass": "tq", "force": "tqv", "holonomic": "tq", "nonholonomic": "tqv"}


class Suspect(NamedTuple):
    """An operation that may have no derivative: what it is, and the line of the user's code."""

    what: str
    line: str


def explained(setup: Setup, states: Sequence[np.ndarray], doubles: list[Any], rebuild: Rebuild) -> str | None:
    """The first of some states t, q, v (K, ...) at which a function has no derivative; None if unknown."""
    t = states[0]
    for name, letters in _INPUTS.items():
        function = getattr(setup.system, name)
        if not callable(function):
            continue
        rows = list(states[: len(letters)])
        found = _first(function, rows, doubles, rebuild)
        if found is not None:
            at, one = found
            return f"{name} of the system has {one.what} at t = {t[at]:.9g}{one.line}"
    return None


def explained_copies(parts: Sequence[KindModel], states: Sequence[np.ndarray]) -> str | None:
    """The same for the parts of an assembly."""
    t = states[0]
    for model in parts:
        assert model.element is not None
        leaves, structure = jax.tree.flatten(model.data[0])
        places, count = model.places, len(t) * model.copies
        flat = lambda x, count=count: x.reshape(count, -1)
        motion = [np.repeat(t, model.copies), flat(states[1][:, places.q]), flat(states[2][:, places.v])]
        data = [np.asarray(x, float) if np.ndim(x) else np.full(model.copies, x) for x in leaves]
        data = [np.concatenate([x] * len(t)) for x in data]
        for name, letters in _INPUTS.items():
            if not callable(getattr(model.element.part, name)):
                continue
            used = len(letters)

            def function(
                *x: Any, model: Any = model, name: str = name, used: int = used, to: Any = structure
            ) -> Any:
                return model.element.evaluate(name, *x[:used], own=jax.tree.unflatten(to, x[used:]))

            found = _first(function, [*motion[:used], *data], [], lambda x: ())
            if found is not None:
                at, one = found
                where = f"copy {at % model.copies} of {model.label}"
                return f"{name} of {where} has {one.what} at t = {motion[0][at]:.9g}{one.line}"
    return None


def warn(layout: Layout, taken: Taken, explain: Callable[..., str | None]) -> None:
    """Warn of the first state of a run at which a function has no derivative, if there is one.

    ``explain`` is a function of states t, q, v (K, ...) and doubles.
    """
    times, nodes = np.append(taken.times, np.nan), [(np.array([taken.t0]), taken.q[None], taken.v[None])]
    for first, table in taken.blocks(False):
        nodes.append(layout.ends(table, times[first : first + len(table)])[:3])
    states = [np.concatenate(parts) for parts in zip(*nodes, strict=True)]
    try:
        reason = explain(states, taken.doubles)
    except Exception:  # what cannot be explained is NaN all the same
        return
    if reason is not None:
        warn_of_gradient(reason)


def _first(
    function: Callable[..., Any], rows: list[np.ndarray], doubles: list[Any], rebuild: Rebuild
) -> tuple[int, Suspect] | None:
    """The first row at which a function has no derivative, and the operation; None if there is none."""
    found, suspects = _flags(function, rows, doubles, rebuild)
    bad = np.flatnonzero(found.any(axis=1))
    return (int(bad[0]), suspects[int(np.argmax(found[bad[0]]))]) if len(bad) else None


def _flags(
    function: Callable[..., Any], rows: list[np.ndarray], doubles: list[Any], rebuild: Rebuild
) -> tuple[np.ndarray, list[Suspect]]:
    """Which operations of a function have no derivative at some rows (K, suspects)."""
    suspects: list[Suspect] = []

    def flags(inputs: list[Any], x: list[Any]) -> Any:
        suspects.clear()
        traced = jax.make_jaxpr(lambda inputs, x: function(*inputs, *rebuild(x)))(inputs, x)
        found: list[Any] = []
        _follow(traced, jax.tree.leaves((inputs, x)), suspects, found, None)
        return jnp.stack(found) if found else jnp.zeros(0)

    example = ([x[0] for x in rows], doubles)
    try:
        with MAKING:
            code = RowCode(RowFunction("undefined", flags, example, None, False), 1)
    except Unsupported:
        return np.zeros((len(rows[0]), 0), bool), []
    found, _ = code((rows, [np.asarray(x)[None] for x in doubles]))
    return np.asarray(found) != 0, list(suspects)


def _follow(
    closed: ClosedJaxpr, inputs: list[Any], suspects: list[Suspect], found: list[Any], line: str | None
) -> list[Any]:
    """Evaluate a program, and note where its operations have no derivative. Returns its outputs."""
    jaxpr = closed.jaxpr
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*closed.consts, *inputs], strict=True))
    read = lambda x: x.val if isinstance(x, Literal) else known[x]
    for equation in jaxpr.eqns:
        values, name = [read(x) for x in equation.invars], equation.primitive.name
        here = _line(equation) if line is None else line  # what JAX compiles is traced once, for any caller
        inner = [x for x in equation.params.values() if isinstance(x, ClosedJaxpr)]
        if len(inner) == 1 and name in (
            "jit",
            "pjit",
            "closed_call",
            "custom_jvp_call",
            "remat",
            "checkpoint",
        ):
            outputs = _follow(inner[0], values, suspects, found, here)
        else:
            if name in _WHERE:
                what, test = _WHERE[name]
                suspects.append(Suspect(what, here))
                found.append(jnp.max(jnp.where(test(*values), 1.0, 0.0), initial=0.0))
            bound = equation.primitive.get_bind_params(equation.params)  # a pair in older versions of JAX
            functions, params = bound if isinstance(bound, tuple) else ((), bound)
            outputs = equation.primitive.bind(*functions, *values, **params)
            outputs = outputs if equation.primitive.multiple_results else [outputs]
        known |= dict(zip(equation.outvars, outputs, strict=True))
    return [read(x) for x in jaxpr.outvars]


def _line(equation: Any) -> str:
    """The user's line of an operation."""
    trace = getattr(equation.source_info, "traceback", None)
    frames = [] if trace is None else [(f.file_name, f.line_num) for f in trace.frames]
    found = line_of(frames)
    return "" if found is None else f": `{found.text}` ({os.path.basename(found.file)}, line {found.line})"
