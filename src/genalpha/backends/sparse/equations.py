"""The equations of motion and the hidden constraints of an assembly at one state, with sparse matrices."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sparse.models import KindModel
from genalpha.compiler import machine
from genalpha.mechanics.system import Dims
from genalpha.numerics.data import Scale
from genalpha.numerics.derivatives import value_and_rate

# a (n,), λ (m,) and ψ (p,).
Vectors = tuple[np.ndarray, np.ndarray, np.ndarray]


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


def _terms(model: KindModel, t: Any, q: Any, v: Any, data: Any) -> Terms:
    system, none = model.system(data, model.dims), jnp.zeros(0)
    n, m, p = model.dims[1:]
    g, g_dot = system.g_and_dot(t, q, v) if m else (none, none)
    rest = jnp.zeros(n)
    return Terms(
        M=system.M(t, q),
        G=system.G(t, q) if m else jnp.zeros((0, n)),
        K=system.K(t, q, v) if p else jnp.zeros((0, n)),
        applied=system.applied(t, q, v),
        g=g,
        g_dot=g_dot,
        g_ddot=system.g_ddot(t, q, v, rest) if m else none,
        k=system.k(t, q, v),
        k_dot=system.k_dot(t, q, v, rest) if p else none,
    )


def _along(model: KindModel, t: Any, q: Any, v: Any, a: Any, lam: Any, psi: Any, data: Any) -> Any:
    """The time derivative of the equations of one copy, (n,), (m,) and (p,), if a, λ and ψ do not change."""
    system = model.system(data, model.dims)

    def rows(t: Any, q: Any, v: Any) -> Any:
        motion = system.M(t, q) @ a - system.f(t, q, v, lam, psi)
        found = [motion]
        found += [system.g_ddot(t, q, v, a)] if model.dims.m else []
        found += [system.k_dot(t, q, v, a)] if model.dims.p else []
        return jnp.concatenate(found)

    direction = (jnp.ones_like(t), model.space.rate(q, v), a)
    return value_and_rate(rows, (t, q, v), direction)[1]


class Equations:
    """Functions of single copies, applied to all of them, and what the whole is made of.

    ``functions`` are those that were made before, by name; they do not depend on the numbers of a run.
    """

    def __init__(self, parts: list[KindModel], dims: Dims, functions: dict[Any, Rowwise]) -> None:
        self.parts, self.dims, self._functions = parts, dims, functions

    def each(self, name: str, model: KindModel, function: Any, *rows: Any) -> Any:
        """``function(model, *row)`` of all copies of a part. Inputs have one row for each, or one for all."""
        key = (name, model.name)
        if key not in self._functions:
            example = jax.tree.map(lambda x: np.asarray(x)[0], rows)
            one = lambda *x: function(model, *x)
            self._functions[key] = Rowwise(f"{name}_{model.name}", one, example, often=True)
        return self._functions[key](rows, machine.lanes())

    def data(self, model: KindModel) -> Any:
        """The numbers of all copies. Single numbers have one row."""
        return jax.tree.map(lambda x: np.asarray(x, dtype=float)[None] if np.ndim(x) == 0 else x, model.data)

    def at(self, t: float, q: np.ndarray, v: np.ndarray) -> AtState:
        terms = [
            self.each(
                "terms", model, _terms, np.array([t]), q[model.places.q], v[model.places.v], self.data(model)
            )
            for model in self.parts
        ]
        return AtState(self, t, q, v, terms)


class AtState:
    """The equations at one state."""

    def __init__(
        self, equations: Equations, t: float, q: np.ndarray, v: np.ndarray, terms: list[Terms]
    ) -> None:
        self.equations, self.t, self.q, self.v, self.terms = equations, t, q, v, terms
        self.parts, self.dims = equations.parts, equations.dims
        self.M = self._matrix("M", "v", "v")
        self.applied = self.total("applied", "v")
        self.g, self.g_dot, self.g_ddot = (self.total(name, "g") for name in ("g", "g_dot", "g_ddot"))
        self.k, self.k_dot = self.total("k", "k"), self.total("k_dot", "k")
        self.B = sparse.vstack([self._matrix("G", "g", "v"), self._matrix("K", "k", "v")]).tocsr()

    def _count(self, kind: str) -> int:
        return {"v": self.dims.n, "g": self.dims.m, "k": self.dims.p}[kind]

    def total(self, name: str, kind: str) -> np.ndarray:
        """The sum of terms of all copies."""
        found = np.zeros(self._count(kind))
        for model, terms in zip(self.parts, self.terms, strict=True):
            np.add.at(found, getattr(model.places, kind), getattr(terms, name))
        return found

    def _matrix(self, name: str, rows: str, columns: str) -> Any:
        data, row, column = [np.zeros(0)], [np.zeros(0, int)], [np.zeros(0, int)]
        for model, terms in zip(self.parts, self.terms, strict=True):
            values, at = getattr(terms, name), model.places
            shape = values.shape
            data.append(values.reshape(-1))
            row.append(np.broadcast_to(getattr(at, rows)[:, :, None], shape).reshape(-1))
            column.append(np.broadcast_to(getattr(at, columns)[:, None, :], shape).reshape(-1))
        entries = (np.concatenate(data), (np.concatenate(row), np.concatenate(column)))
        found = sparse.csr_matrix(entries, shape=(self._count(rows), self._count(columns)))
        found.eliminate_zeros()
        return found

    def finite(self) -> bool:
        values = (self.M.data, self.B.data, self.applied, self.g, self.g_dot, self.g_ddot, self.k, self.k_dot)
        return all(np.isfinite(x).all() for x in values)

    def scale(self) -> Scale:
        """Typical sizes, as in `initial_values.scales`."""
        a = np.sqrt(_inverse(_largest(self.M)))
        rows = _largest(self.B @ sparse.diags(a))
        m = self.dims.m
        return Scale(a, _inverse(rows[:m]), _inverse(rows[m:]))  # type: ignore[arg-type]

    def saddle(self, scale: Scale) -> Saddle:
        return Saddle(self.M, self.B, scale)

    def accelerations(self, saddle: Saddle) -> Vectors:
        """Consistent a, λ and ψ."""
        return saddle.solve(self.applied, -self.g_ddot, -self.k_dot)

    def rate(self, saddle: Saddle, a: np.ndarray, lam: np.ndarray, psi: np.ndarray) -> np.ndarray:
        """a' along the motion."""
        n, m, p = self.dims[1:]
        total = np.zeros(n + m + p)
        for model in self.parts:
            at = model.places
            inputs = (self.q[at.q], self.v[at.v], a[at.v], lam[at.g], psi[at.k])
            data = self.equations.data(model)
            found = self.equations.each("along", model, _along, np.array([self.t]), *inputs, data)
            np.add.at(total, np.concatenate([at.v, n + at.g, n + m + at.k], axis=1), found)
        return saddle.solve(-total[:n], -total[n : n + m], -total[n + m :])[0]


class Saddle:
    """The matrix (12) of JN08, M and B = (G; K), scaled and factorized."""

    def __init__(self, M: Any, B: Any, scale: Scale) -> None:
        self.scale, self.n = scale, M.shape[0]
        a, weights = sparse.diags(scale.a), np.concatenate([scale.lam, scale.psi])
        self.B = sparse.diags(weights) @ B @ a
        self.matrix = (
            sparse.bmat([[a @ M @ a, self.B.T], [self.B, None]], format="csc")
            if len(weights)
            else (a @ M @ a).tocsc()
        )
        self._factors = splu(self.matrix)

    def solve(self, motion: np.ndarray, holonomic: np.ndarray, nonholonomic: np.ndarray) -> Vectors:
        """x = (a, λ, ψ) with M a + Bᵀ(λ, ψ) = motion and B a = (holonomic, nonholonomic)."""
        scale = self.scale
        wanted = np.concatenate([scale.a * motion, scale.lam * holonomic, scale.psi * nonholonomic])
        x = self._factors.solve(wanted)
        x += self._factors.solve(wanted - self.matrix @ x)
        m = len(holonomic)
        a, lam, psi = np.split(x, [self.n, self.n + m])
        return np.asarray(scale.a * a), np.asarray(scale.lam * lam), np.asarray(scale.psi * psi)


def _largest(matrix: Any) -> np.ndarray:
    """The largest absolute entry of each row."""
    if not matrix.shape[0]:
        return np.zeros(0)
    return np.asarray(abs(matrix).max(axis=1).todense()).reshape(-1)


def _inverse(sizes: np.ndarray) -> np.ndarray:
    """1/sizes. Zeros are replaced by the largest size, as in `initial_values.inverse_of_sizes`."""
    largest = sizes.max(initial=0.0)
    return 1 / np.where(sizes > 0, sizes, largest if largest > 0 else 1.0)
