"""Systems whose functions read traced values from outside: these values become arguments.

Machine code is made from functions of their arguments alone. A function that reads a traced value, such as
the variable of ``jax.grad``, is traced once more. The result is a program in which that value is an input.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from genalpha.mechanics.system import Args, System
from genalpha.run.request import Request

# Systems that were made, by the text of their functions. Each has its compiled programs.
MOST = 32
_known: OrderedDict[Any, System] = OrderedDict()

_INPUTS = {
    "mass": "tq",
    "force": "tqv",
    "holonomic": "tq",
    "nonholonomic": "tqv",
    "reaction": "tqvlp",
}


def opened(asked: Request) -> Request:
    """The same run of a system that reads nothing traced. Its last argument is the list of these values."""
    setup, args = asked.setup, asked.args
    values: list[Any] = []
    programs = {name: _program(setup, name, args, values) for name in _INPUTS}
    key = (setup.system.space, jax.tree.structure(args), *(about for _, about in programs.values()))
    system = _known.get(key)
    if system is None:
        functions = {name: function for name, (function, _) in programs.items()}
        system = System(**functions, space=setup.system.space)
        _known[key] = system
        while len(_known) > MOST:
            _known.popitem(last=False)
    start = asked.start._replace(closes_over_traced=False)
    return asked._replace(setup=setup._replace(system=system), args=(*args, values), start=start)


def _program(setup: Any, name: str, args: Args, values: list[Any]) -> tuple[Any, Any]:
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
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(jnp.shape(x), jnp.result_type(x)), tuple(args))
    traced = jax.make_jaxpr(function)(*inputs, *shapes)
    where = {i: len(values) + k for k, i in enumerate(_of_outside(traced.consts))}
    values += [jnp.asarray(traced.consts[i], float) for i in where]
    fixed = [None if i in where else x for i, x in enumerate(traced.consts)]

    def again(*inputs: Any) -> Any:
        *others, extra = inputs
        constants = [extra[where[i]] if i in where else x for i, x in enumerate(fixed)]
        return jaxpr_as_fun(ClosedJaxpr(traced.jaxpr, constants))(*jax.tree.leaves(others))[0]

    known = tuple(None if x is None else (np.shape(x), np.asarray(x).tobytes()) for x in fixed)
    return again, (str(traced.jaxpr), tuple(where.items()), known)


def _of_outside(constants: Any) -> list[int]:
    return [i for i, x in enumerate(constants) if isinstance(x, jax.core.Tracer)]
