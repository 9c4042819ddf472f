"""Derivatives along a direction: by JAX, or left to the reader of a scalar program, which is much faster."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

import jax
from jax import Array
from jax.extend.core import Primitive

_left_to_reader = ContextVar("left_to_reader", default=False)

# The name in a jaxpr of a call whose inputs end with ``count`` arrays and their directions.
NAME = "genalpha_along_{count}"

# Stands for a rate inside of such a call. JAX can neither differentiate nor batch it, and says so.
RATE = Primitive("genalpha_rate")
RATE.def_abstract_eval(lambda value: value)


@contextlib.contextmanager
def left_to_reader(choice: bool) -> Iterator[None]:
    """Whether derivatives along directions that are traced meanwhile are left to a reader."""
    token = _left_to_reader.set(choice)
    try:
        yield
    finally:
        _left_to_reader.reset(token)


def value_and_rate(
    function: Callable[..., Array], at: tuple[Array, ...], direction: tuple[Array, ...]
) -> tuple[Array, Array]:
    """``function(*at)`` and its derivative along ``direction``, of arrays of the same shapes as ``at``."""
    if not _left_to_reader.get():
        return jax.jvp(function, at, direction)

    def both(at: tuple[Array, ...], direction: tuple[Array, ...]) -> tuple[Array, Array]:
        value = function(*at)
        return value, RATE.bind(value)

    both.__name__ = NAME.format(count=len(at))
    return jax.jit(both)(at, direction)
