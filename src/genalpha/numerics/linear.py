"""Dense factorizations behind one pair: factor, solve."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Inverse(NamedTuple):
    """A factorized matrix: its inverse (N, N) in blocks of rows, and its condition number (maximum norm)."""

    inverse: tuple[Array, ...]
    condition: Array


def factor(matrix: Array) -> Inverse:
    """Factorize a small dense matrix by pivoted LU, and keep the explicit inverse.

    A Newton matrix is factorized once and used for many corrections. With the inverse a correction is a
    single product, which compiled code does in a fraction of the time of two triangular solves, and the
    condition number comes for free. Its rounding does no harm: it only changes the contraction rate of an
    iteration that corrects itself.
    """
    inverse = jnp.linalg.inv(matrix)
    return Inverse(_split(inverse), _norm(matrix) * _norm(inverse))


# Every backend compiles these two in its own way; it knows them by the names that they have in a jaxpr.
SOLVE, CONDITION = "genalpha_solve", "genalpha_condition"


def _named(name: str, function: Callable[..., Array]) -> Callable[..., Array]:
    function.__name__ = name
    return jax.jit(function)


_solve = _named(SOLVE, lambda matrix, rhs: jnp.linalg.solve(matrix, rhs))
_condition = _named(CONDITION, lambda matrix: _norm(matrix) * _norm(jnp.linalg.inv(matrix)))


def solve_once(matrix: Array, rhs: Array) -> Array:
    """matrix⁻¹ rhs (N,), for a matrix that is used once or a few times."""
    return _solve(matrix, rhs)


def solve_in_order(matrix: Array, rhs: Array) -> Array:
    """matrix⁻¹ rhs, (N,) or (N, K), by elimination without pivoting: for matrices whose rows are in order."""
    size = len(matrix)
    if size > MOST_ELIMINATED:
        return jnp.linalg.solve(matrix, rhs)
    rows = [matrix[i] for i in range(size)]
    right = [rhs[i] for i in range(size)]
    inverse = []
    for k in range(size):
        inverse.append(1 / rows[k][k])
        for i in range(k + 1, size):
            multiple = rows[i][k] * inverse[k]
            rows[i], right[i] = rows[i] - multiple * rows[k], right[i] - multiple * right[k]
    for k in reversed(range(size)):
        for j in range(k + 1, size):
            right[k] = right[k] - rows[k][j] * right[j]
        right[k] = right[k] * inverse[k]
    return jnp.stack(right) if size else rhs


# Beyond, an unrolled elimination takes longer to trace than it saves.
MOST_ELIMINATED = 12


def condition_number(matrix: Array) -> Array:
    """Condition number in the maximum norm."""
    return _condition(matrix)


@functools.cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401 - the library must be loaded to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def single_threaded(size: int) -> AbstractContextManager[object]:
    """A context in which LAPACK factorizes matrices of that size on one thread.

    Threads that wait for each other cost more than a small factorization: with 34 unknowns they double the
    time of a step on idle cores, and make it six to forty times as long on busy ones.
    """
    if size > SMALL:
        return nullcontext()
    return _blas().limit(limits=1, user_api="blas")


SMALL = 256


def solve(factors: Inverse, rhs: Array) -> Array:
    return jnp.concatenate([rows @ rhs for rows in factors.inverse])


def no_inverse(size: int) -> tuple[Array, ...]:
    """Zeros in the place of an inverse."""
    return _split(jnp.zeros((size, size)))


def _split(inverse: Array) -> tuple[Array, ...]:
    """The inverse in blocks of rows of at most 512 bytes, where few are needed.

    XLA's CPU runtime hands operations to other threads when they touch larger arrays, at several times the
    cost of the operation itself.
    """
    size = len(inverse)
    height = 512 // (inverse.itemsize * size)
    if not 4 <= height < size:
        return (inverse,)
    return tuple(inverse[first : first + height] for first in range(0, size, height))


def _norm(matrix: Array) -> Array:
    return jnp.max(jnp.sum(jnp.abs(matrix), axis=1))
