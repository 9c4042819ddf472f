"""Functions of time that the user gives: expressions, numbers, functions, tables."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.interpolate
import sympy
from jax import Array
from sympy.core.function import AppliedUndef
from sympy.physics.mechanics import dynamicsymbols

from genalpha.symbolic.formulas import Formulas
from genalpha.symbolic.statement import Statement


class TimeFunctions:
    """``expressions`` by function, None for those with a function of JAX in ``calls``."""

    def __init__(self, expressions: dict[Any, Any], calls: dict[Any, Callable[..., Array]]) -> None:
        self.expressions, self.calls = expressions, calls

    def values(self, formulas: Formulas, t: Array, needed: Container[int]) -> list[Array]:
        """All functions and derivatives at one time; zeros for nodes that are not needed."""
        return [
            _derivative(self.calls[function], order)(t) if node in needed else jnp.zeros(())
            for function, orders in formulas.given.items()
            for order, node in enumerate(orders)
        ]

    def check(self) -> None:
        """Whether functions return numbers."""
        for function in self.calls:
            try:
                shape = jax.eval_shape(self.calls[function], jax.ShapeDtypeStruct((), float)).shape
            except Exception as error:
                raise ValueError(f"specified {function} cannot be computed for a time t: {error}") from error
            if shape != ():
                raise ValueError(
                    f"specified {function} returns an array of shape {shape}: a number is needed"
                )


def _derivative(call: Callable[..., Array], order: int) -> Callable[..., Array]:
    function = lambda t: jnp.asarray(call(t), float)
    for _ in range(order):
        function = _rate(function)
    return function


def _rate(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda t: jax.jvp(function, (t,), (jnp.ones_like(t),))[1]


def read(specified: Mapping[Any, Any], stated: Statement) -> TimeFunctions:
    """What the user gives for functions of time, by function or name."""
    if not isinstance(specified, Mapping):
        raise TypeError(f"specified must be a dict from functions of time, got {type(specified).__name__}")
    expressions: dict[Any, Any] = {}
    calls: dict[Any, Callable[..., Array]] = {}
    own = {str(x.func) for x in [*stated.coordinates, *stated.speeds] if isinstance(x, AppliedUndef)}
    for key, value in specified.items():
        function = dynamicsymbols(key) if isinstance(key, str) else key
        if not isinstance(function, AppliedUndef) or function.args != (dynamicsymbols._t,):
            raise ValueError(f"specified has the key {key!r}, which is no function of time such as F(t)")
        if str(function.func) in own:
            raise ValueError(f"specified has {function}, which is a coordinate or a speed")
        if isinstance(value, sympy.Basic | int | float):
            expressions[function] = sympy.sympify(value)
            continue
        expressions[function] = None
        calls[function] = value if callable(value) else _spline(function, value)
    return TimeFunctions(expressions, calls)


def _spline(function: Any, table: Any) -> Callable[..., Array]:
    """A cubic spline through a table (times, values), as a function of JAX."""
    try:
        times, values = (np.asarray(x, dtype=float) for x in table)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"specified {function} must be an expression, a number, a function of t, or (times, values)"
        ) from error
    if times.ndim != 1 or times.shape != values.shape or len(times) < 2:
        raise ValueError(
            f"the table of {function} has times of shape {times.shape} and values of shape {values.shape}: "
            "two arrays of the same length are needed, at least 2 long"
        )
    if not (np.diff(times) > 0).all():
        raise ValueError(f"the times in the table of {function} must increase")
    coefficients = scipy.interpolate.CubicSpline(times, values).c

    def evaluate(t: Array) -> Array:
        inside = jnp.clip(t, times[0], times[-1])
        k = jnp.clip(jnp.searchsorted(jnp.asarray(times), inside, side="right") - 1, 0, len(times) - 2)
        result = jnp.zeros(())
        for row in coefficients:
            result = result * (inside - jnp.asarray(times)[k]) + jnp.asarray(row)[k]
        return result

    return evaluate
