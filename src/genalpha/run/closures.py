"""Systems whose functions read traced values from outside: these values become arguments.

Machine code is made from functions of their arguments alone. A function that reads a traced value, such as
the variable of ``jax.grad``, is traced once more. The result is a program in which that value is an input.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from genalpha.engine import events
from genalpha.engine.events import Crossing, Event, Reset
from genalpha.engine.setup import Setup
from genalpha.mechanics.system import Args, System
from genalpha.numerics.data import State
from genalpha.run.request import Request

# Systems and events that were made, by the text of their functions. A system has its compiled programs.
MOST = 32
_known: OrderedDict[Any, tuple[System, tuple[Event, ...]]] = OrderedDict()

_INPUTS = {
    "mass": "tq",
    "force": "tqv",
    "holonomic": "tq",
    "nonholonomic": "tqv",
    "reaction": "tqvlp",
}


def opened(asked: Request) -> Request:
    """The same run of a system and events that read nothing traced.

    Its last argument is the list of these values.
    """
    setup, args, listed = asked.setup, asked.args, asked.watch.events
    values: list[Any] = []
    programs = {name: _program(setup, name, args, values) for name in _INPUTS}
    of_events = [_of_event(setup, event, args, values) for event in listed]
    about = [x for _, x in (*programs.values(), *(pair for pairs in of_events for pair in pairs))]
    plain = [(e.terminal, e.direction, e.period) for e in listed]
    key = (setup.system.space, jax.tree.structure(args), *about, *plain)
    known = _known.get(key)
    if known is None:
        functions = {name: function for name, (function, _) in programs.items()}
        again = (
            dataclasses.replace(event, function=function, reset=reset)
            for event, ((function, _), (reset, _)) in zip(listed, of_events, strict=True)
        )
        known = System(**functions, space=setup.system.space), tuple(again)
        _known[key] = known
        while len(_known) > MOST:
            _known.popitem(last=False)
    system, listed = known
    args = (*args, values)
    crossings = events.crossings(listed, setup.dims, args)
    return asked._replace(
        setup=setup._replace(system=system, crossings=crossings),
        args=args,
        start=asked.start._replace(closes_over_traced=False),
        watch=asked.watch._replace(events=listed),
    )


def _program(setup: Setup, name: str, args: Args, values: list[Any]) -> tuple[Any, Any]:
    """A function of the system whose traced constants are in its last argument, and what identifies it.

    The constants are appended to ``values``.
    """
    given, dims = getattr(setup.system, name), setup.dims
    if given is None:
        return None, None
    sizes = {"t": (), "q": (dims.size,), "v": (dims.n,), "l": (dims.m,), "p": (dims.p,)}
    inputs = [jax.ShapeDtypeStruct(sizes[x], float) for x in _INPUTS[name]]
    function = given if callable(given) else lambda *inputs: jnp.asarray(given, float)
    function = setup.system._traced.get(name, function)
    return _extracted(function, (*inputs, *args), values)


def _of_event(setup: Setup, event: Event, args: Args, values: list[Any]) -> list[tuple[Any, Any]]:
    """The same for the function (t, q, v, λ, ψ, *args) and the reset (state, *args) of an event."""
    dims, number = setup.dims, lambda *shape: jax.ShapeDtypeStruct(shape, float)
    t, q, v, lam, psi = number(), *(number(k) for k in (dims.size, dims.n, dims.m, dims.p))
    crossing = (Crossing(event.function, 0.0),)
    value = lambda t, q, v, lam, psi, *args: events.values(crossing, t, q, v, lam, psi, args)
    inner, about = _extracted(value, (t, q, v, lam, psi, *args), values)
    function = lambda t, q, v, lam, psi, *args: inner(t, q, v, lam, psi, *args)
    if event.reset is None:
        return [(function, about), (None, None)]

    def changed(state: State, *args: Any) -> Any:
        found = events.reset_of(event, state, args)
        q, v = (old if new is None else new for old, new in ((state.q, found.q), (state.v, found.v)))
        return q, v, args if found.args is None else found.args, found.stop

    state = State(t, q, v, v, lam, psi)  # type: ignore[arg-type]
    after, about_reset = _extracted(changed, (state, *args), values)

    def reset(state: State, *args: Any) -> Reset:
        q, v, own, stop = after(state, *args)
        return Reset(v, q, (*own, args[-1]), stop)

    return [(function, about), (reset, about_reset)]


def _extracted(function: Any, inputs: Any, values: list[Any]) -> tuple[Any, Any]:
    """A function of arrays whose traced constants are in its last argument, and what identifies it.

    The constants are appended to ``values``.
    """
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), tuple(inputs))
    traced, out = jax.make_jaxpr(function, return_shape=True)(*shapes)
    where = {i: len(values) + k for k, i in enumerate(_of_outside(traced.consts))}
    values += [jnp.asarray(traced.consts[i], float) for i in where]
    fixed = [None if i in where else x for i, x in enumerate(traced.consts)]
    structure = jax.tree.structure(out)

    def again(*inputs: Any) -> Any:
        *others, extra = inputs
        constants = [extra[where[i]] if i in where else x for i, x in enumerate(fixed)]
        found = jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, constants))(*jax.tree.leaves(others))
        return jax.tree.unflatten(structure, found)

    known = tuple(None if x is None else (np.shape(x), np.asarray(x).tobytes()) for x in fixed)
    return again, (str(traced.jaxpr), tuple(where.items()), known)


def _of_outside(constants: Any) -> list[int]:
    return [i for i, x in enumerate(constants) if isinstance(x, jax.core.Tracer)]
