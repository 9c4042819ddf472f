"""The terms of the equations of one copy, and their rates along a motion."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.sparse.models import KindModel
from genalpha.compiler.differentiate import along
from genalpha.compiler.graph import ONE, Graph
from genalpha.compiler.reader import Symbols, inline
from genalpha.compiler.rows import RowFunction
from genalpha.mechanics.along import rate_along
from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import Dims, System
from genalpha.numerics.tracing import zeros


class Terms(NamedTuple):
    """Terms of one copy: M (n, n), G (m, n), K (p, n), applied forces, constraints and their derivatives.

    ``g_ddot`` and ``k_dot`` are the hidden acceleration constraints for accelerations that are zero.
    """

    M: Any
    G: Any
    K: Any
    applied: Any
    g: Any
    g_dot: Any
    g_ddot: Any
    k: Any
    k_dot: Any


def terms_of(model: KindModel, t: Any, q: Any, v: Any, data: Any) -> Terms:
    system, none = model.system(data, model.dims), zeros(0)
    n, m, p = model.dims[1:]
    g, g_dot = system.g_and_dot(t, q, v) if m else (none, none)
    rest = zeros(n)
    return Terms(
        M=system.M(t, q),
        G=system.G(t, q) if m else zeros(0, n),
        K=system.K(t, q, v) if p else zeros(0, n),
        applied=system.applied(t, q, v),
        g=g,
        g_dot=g_dot,
        g_ddot=system.g_ddot(t, q, v, rest) if m else none,
        k=system.k(t, q, v),
        k_dot=system.k_dot(t, q, v, rest) if p else none,
    )


def balance(system: System, dims: Dims, t: Any, q: Any, v: Any, a: Any, lam: Any, psi: Any) -> Any:
    """What a, λ and ψ make zero: the equations of motion (n,), and the hidden constraints (m,) and (p,)."""
    rows = [system.M(t, q) @ a - system.f(t, q, v, lam, psi)]
    rows += [system.g_ddot(t, q, v, a)] if dims.m else []
    rows += [system.k_dot(t, q, v, a)] if dims.p else []
    return jnp.concatenate(rows)


def along_motion(model: KindModel, t: Any, q: Any, v: Any, a: Any, lam: Any, psi: Any, data: Any) -> Any:
    """The time derivative of the equations of one copy, (n,), (m,) and (p,), if a, λ and ψ do not change."""
    system = model.system(data, model.dims)
    rows = lambda t, q, v: balance(system, model.dims, t, q, v, a, lam, psi)
    return rate_along(model.space, rows, t, q, v, (v, a))[1]


def read_off(name: str, model: KindModel, terms: RowFunction, example: Any) -> RowFunction:
    """`along_motion` for the default reactions, from the expressions of all ``terms``.

    This takes half the time that reading the function takes: their derivatives are known already.
    """

    def rates(graph: Graph, found: Terms, t: Any, q: Any, v: Any, a: Any, *others: Any) -> np.ndarray:
        moved = inline(graph, _rate_of(model.space), Symbols(q, "f"), Symbols(v, "f"))
        at, direction = np.concatenate([t.reshape(1), q, v]), np.concatenate([[ONE], moved, a])
        parts = [getattr(found, name) for name in _IN_EQUATIONS]
        rates = along(graph, np.concatenate([x.reshape(-1) for x in parts]), at, direction)
        apart = np.split(rates, np.cumsum([x.size for x in parts])[:-1])
        changes = [Symbols(rate.reshape(x.shape), "f") for rate, x in zip(apart, parts, strict=True)]
        return inline(graph, _combined, *changes, *(Symbols(x, "f") for x in (a, *others[:2])))

    needed = lambda row: (*row[:3], row[-1])  # t, q, v and the numbers of the copy
    return terms.then(name, rates, example, needed)


@functools.lru_cache(256)
def _rate_of(space: Space) -> Callable[..., Any]:
    """q' of a space, traced once."""
    return jax.jit(space.rate)


# The terms that the equations for a, λ and ψ are made of.
_IN_EQUATIONS = ("M", "G", "K", "applied", "g_ddot", "k_dot")


@jax.jit
def _combined(*inputs: Any) -> Any:
    """The rates of the equations, from those of their terms, and from a, λ and ψ."""
    M, G, K, applied, g_ddot, k_dot, a, lam, psi = inputs
    return jnp.concatenate([M @ a - applied + lam @ G + psi @ K, g_ddot + G @ a, k_dot + K @ a])
