"""Linear systems with dense matrices: ``factor`` and ``solve``, and solutions without kept factors."""

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

    A Newton matrix is factorized once and used for many corrections. With the inverse, a correction is one
    product. In compiled code this takes a fraction of the time of two triangular solves, and the condition
    number comes for free. Rounding errors of the inverse do no harm: Newton's iteration corrects them, and
    only its contraction rate changes.
    """
    inverse = jnp.linalg.inv(matrix)
    return Inverse(_split(inverse), _norm(matrix) * _norm(inverse))


# Every backend compiles these two functions in its own way. It finds them by their names in a jaxpr.
SOLVE, CONDITION = "genalpha_solve", "genalpha_condition"


def _named(name: str, function: Callable[..., Array]) -> Callable[..., Array]:
    function.__name__ = name
    return jax.jit(function)


_solve = _named(SOLVE, lambda matrix, rhs: jnp.linalg.solve(matrix, rhs))
_condition = _named(CONDITION, lambda matrix: _norm(matrix) * _norm(jnp.linalg.inv(matrix)))


def solve_once(matrix: Array, rhs: Array) -> Array:
    """matrix⁻¹ rhs (N,), for a matrix that is used only once or a few times."""
    return _solve(matrix, rhs)


def solve_in_order(matrix: Array, rhs: Array) -> Array:
    """matrix⁻¹ rhs, (N,) or (N, K), by elimination without pivoting. Rows must be in pivot order."""
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


# Above this size an unrolled elimination takes longer to trace than it saves.
MOST_ELIMINATED = 12


def condition_number(matrix: Array) -> Array:
    """Condition number in the maximum norm."""
    return _condition(matrix)


@functools.cache
def _blas() -> Any:
    import scipy.linalg  # noqa: F401 - threadpoolctl finds loaded libraries only
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def single_threaded(size: int) -> AbstractContextManager[object]:
    """A context in which LAPACK factorizes matrices of this size on one thread.

    For small matrices, threads spend more time waiting for each other than factorizing. With 34 unknowns,
    several threads make a step twice as long on idle cores, and six to forty times as long on busy ones.
    """
    if size > SMALL:
        return nullcontext()
    return _blas().limit(limits=1, user_api="blas")


SMALL = 256


def solve(factors: Inverse, rhs: Array) -> Array:
    return jnp.concatenate([rows @ rhs for rows in factors.inverse])


def no_inverse(size: int) -> tuple[Array, ...]:
    """Zeros in the form of an inverse, before there is one."""
    return _split(jnp.zeros((size, size)))


def _split(inverse: Array) -> tuple[Array, ...]:
    """The inverse in blocks of rows of at most 512 bytes each, if a block has at least four rows.

    XLA's CPU runtime moves operations on larger arrays to other threads. This costs several times as much as
    the operation itself.
    """
    size = len(inverse)
    height = 512 // (inverse.itemsize * size)
    if not 4 <= height < size:
        return (inverse,)
    return tuple(inverse[first : first + height] for first in range(0, size, height))


def _norm(matrix: Array) -> Array:
    return jnp.max(jnp.sum(jnp.abs(matrix), axis=1))
