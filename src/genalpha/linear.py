"""Dense factorizations behind one pair: factor, solve."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from threadpoolctl import ThreadpoolController


class Factors(NamedTuple):
    """A factorized matrix: its inverse (N, N) in blocks of rows, and its condition number (maximum norm)."""

    inverse: tuple[Array, ...]
    condition: Array


def factor(matrix: Array) -> Factors:
    """Factorize a small dense matrix by pivoted LU, and keep the explicit inverse.

    A Newton matrix is factorized once and used for many corrections. With the inverse a correction is a
    single product, which compiled code does in a fraction of the time of two triangular solves, and the
    condition number comes for free. Its rounding does no harm: it only changes the contraction rate of an
    iteration that corrects itself.
    """
    inverse = jnp.linalg.inv(matrix)
    return Factors(_split(inverse), _norm(matrix) * _norm(inverse))


# Every backend compiles these two in its own way; it knows them by their names.


@jax.jit
def solve_once(matrix: Array, rhs: Array) -> Array:
    """matrix⁻¹ rhs (N,), for a matrix that is used once or a few times."""
    return jnp.linalg.solve(matrix, rhs)


@jax.jit
def condition_number(matrix: Array) -> Array:
    """Condition number in the maximum norm."""
    return _norm(matrix) * _norm(jnp.linalg.inv(matrix))


@functools.cache
def _blas() -> ThreadpoolController:
    import scipy.linalg  # noqa: F401 - the library must be loaded to be found

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


def solve(factors: Factors, rhs: Array) -> Array:
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
