"""The equations of motion and the hidden constraints of an assembly at one state, with sparse matrices."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sparse.models import KindModel
from genalpha.compiler import machine
from genalpha.compiler.sparse_pattern import by_columns
from genalpha.mechanics.labels import Labels
from genalpha.mechanics.system import Dims
from genalpha.numerics.data import Scale
from genalpha.numerics.derivatives import jacobian, value_and_rate

# a (n,), λ (m,) and ψ (p,).
Vectors = tuple[np.ndarray, np.ndarray, np.ndarray]
# Multipliers of reactions of the user's own are found by Newton's method, to this relative change.
CHANGE, MOST_ITERATIONS = 1e-10, 50
# Functions of parts with so many copies are optimized. With fewer copies this takes longer than it saves.
MANY = 64


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


class Loads(NamedTuple):
    """Reactions (n,) of one copy, and minus their derivatives with respect to λ (m, n) and ψ (p, n)."""

    force: Any
    by_lam: Any
    by_psi: Any


def _loads(model: KindModel, t: Any, q: Any, v: Any, lam: Any, psi: Any, data: Any) -> Loads:
    system = model.system(data, model.dims)
    forces = lambda x: system.reactions(t, q, v, x[: len(lam)], x[len(lam) :])
    both = jnp.concatenate([lam, psi])
    change = jacobian(forces, both) if both.size else jnp.zeros((len(v), 0))
    by_lam, by_psi = jnp.split(-change.T, [len(lam)])
    return Loads(forces(both), by_lam, by_psi)


# Functions that depend on the part alone.
_OF_PARTS = (_terms, _along, _loads)


class Equations:
    """Functions of single copies, applied to all of them, and what the whole is made of.

    ``functions`` are those that were made before, by name; they do not depend on the numbers of a run.
    ``labels`` are for messages.
    """

    def __init__(self, parts: list[KindModel], dims: Dims, functions: dict[Any, Any], labels: Labels) -> None:
        self.parts, self.dims, self._functions, self.labels = parts, dims, functions, labels
        self._data: dict[str, Any] = {}

    def each(self, name: str, model: KindModel, function: Any, *rows: Any) -> Any:
        """``function(model, *row)`` of all copies of a part. Inputs have one row for each, or one for all."""
        key = (name, model.name)
        if key not in self._functions:
            example = jax.tree.map(lambda x: np.asarray(x)[0], rows)
            one, often = lambda *x: function(model, *x), model.copies >= MANY
            make = lambda: Rowwise(f"{name}_{model.name}", one, example, often=often)
            if function in _OF_PARTS and model.element is not None:  # any assembly may use it
                shapes = tuple(map(np.shape, jax.tree.leaves(example)))
                made = model.element.made((name, often, jax.tree.structure(example), shapes), make)
            else:
                made = make()
            self._functions[key] = made
        return self._functions[key](rows, machine.lanes())

    def data(self, model: KindModel) -> Any:
        """The numbers of all copies. Single numbers have one row."""
        if model.name not in self._data:
            row = lambda x: np.asarray(x, dtype=float)[None] if np.ndim(x) == 0 else x
            self._data[model.name] = jax.tree.map(row, model.data)
        return self._data[model.name]

    def at(self, t: float, q: np.ndarray, v: np.ndarray) -> AtState:
        """The equations at one state."""
        return next(self.rows(np.array([t]), q[None], v[None]))

    def rows(self, t: np.ndarray, q: np.ndarray, v: np.ndarray) -> Iterator[AtState]:
        """The equations at states (R, ...)."""
        found = []
        for model in self.parts:
            at, count = model.places, model.copies
            flat = lambda x: x.reshape(x.shape[0] * x.shape[1], x.shape[2])
            data = self.data(model)
            if len(t) > 1:
                data = jax.tree.map(lambda x, n=count: _repeated(x, len(t)) if len(x) == n else x, data)
            inputs = (np.repeat(t, count), flat(q[:, at.q]), flat(v[:, at.v]), data)
            terms = self.each("terms", model, _terms, *inputs)
            found.append(Terms(*(x.reshape(len(t), count, *x.shape[1:]) for x in terms)))
        for i in range(len(t)):
            yield AtState(self, float(t[i]), q[i], v[i], [Terms(*(x[i] for x in terms)) for terms in found])

    @property
    def linear(self) -> bool:
        """Whether all reactions are the default ones, which are linear in λ and ψ."""
        return not any(model.own_reaction for model in self.parts)

    @property
    def structure(self) -> Structure:
        """Where the entries of matrices are."""
        if "structure" not in self._functions:
            self._functions["structure"] = Structure(self.parts, self.dims)
        return self._functions["structure"]


def _repeated(x: np.ndarray, times: int) -> np.ndarray:
    """The rows of an array, repeated as a whole."""
    return np.tile(x, (times, *[1] * (np.ndim(x) - 1)))


class Structure:
    """Where the entries of all copies are in the mass matrix and in the matrix (12) of JN08, by columns."""

    def __init__(self, parts: list[KindModel], dims: Dims) -> None:
        n, m = dims.n, dims.m
        pairs: list[list[np.ndarray]] = [[], []]
        of_mass: list[list[np.ndarray]] = [[], []]
        for model in parts:
            at = model.places
            for first in (at.v, n + at.g, n + m + at.k):
                shape = (len(first), first.shape[1], at.v.shape[1])
                row = np.broadcast_to(first[:, :, None], shape).reshape(-1)
                column = np.broadcast_to(at.v[:, None, :], shape).reshape(-1)
                both = [(row, column)] if first is at.v else [(row, column), (column, row)]
                for lists in (pairs, of_mass) if first is at.v else (pairs,):
                    for a, b in both:
                        lists[0].append(a)
                        lists[1].append(b)
        self.rows, self.columns = (np.concatenate(x).astype(np.int32) for x in pairs)
        self.size = n + m + dims.p
        self.places, self.indices, self.starts = by_columns(self.size, self.rows, self.columns)
        self.of_mass = by_columns(n, *(np.concatenate(x) for x in of_mass))


class AtState:
    """The equations at one state."""

    def __init__(
        self, equations: Equations, t: float, q: np.ndarray, v: np.ndarray, terms: list[Terms]
    ) -> None:
        self.equations, self.t, self.q, self.v, self.terms = equations, t, q, v, terms
        self.parts, self.dims = equations.parts, equations.dims
        self.applied = self.total("applied", "v")
        self.g, self.g_dot, self.g_ddot = (self.total(name, "g") for name in ("g", "g_dot", "g_ddot"))
        self.k, self.k_dot = self.total("k", "k"), self.total("k_dot", "k")

    def total(self, name: str, kind: str) -> np.ndarray:
        """The sum of terms of all copies."""
        return self._sum(kind, [getattr(terms, name) for terms in self.terms])

    def _sum(self, kind: str, values: list[np.ndarray]) -> np.ndarray:
        found = np.zeros({"v": self.dims.n, "g": self.dims.m, "k": self.dims.p}[kind])
        for model, some in zip(self.parts, values, strict=True):
            places = getattr(model.places, kind)
            if places.size:
                found += np.bincount(places.reshape(-1), some.reshape(-1), len(found))
        return found

    def finite(self) -> bool:
        return all(np.isfinite(x).all() for terms in self.terms for x in terms)

    @functools.cached_property
    def M(self) -> Any:
        """The mass matrix, sparse."""
        n, (places, indices, starts) = self.dims.n, self.equations.structure.of_mass
        values = np.concatenate([terms.M.reshape(-1) for terms in self.terms])
        return sparse.csc_matrix((np.bincount(places, values, len(indices)), indices, starts), shape=(n, n))

    @functools.cached_property
    def B(self) -> Any:
        """The constraint matrices (G; K), sparse."""
        n, m = self.dims.n, self.dims.m
        units: Any = Scale(np.ones(n), np.ones(m), np.ones(self.dims.p))  # type: ignore[arg-type]
        return self.saddle(units).matrix[n:, :n].tocsr()

    @functools.cached_property
    def scale(self) -> Scale:
        """Typical sizes, as in `initial_values.scales`."""
        a = np.sqrt(_inverse(np.maximum.reduceat(np.abs(self.M.data), self.M.indptr[:-1])))
        found = []
        for name, kind, count in (("G", "g", self.dims.m), ("K", "k", self.dims.p)):
            sizes = np.zeros(count)
            for model, terms in zip(self.parts, self.terms, strict=True):
                places, rows = getattr(model.places, kind), getattr(terms, name)
                if places.size:
                    sizes[places] = np.abs(rows * a[model.places.v][:, None, :]).max(axis=2)
            found.append(_inverse(sizes))
        return Scale(a, *found)  # type: ignore[arg-type]

    def saddle(self, scale: Scale, loads: list[Loads] | None = None) -> Saddle:
        """The matrix (12) of JN08, scaled. With ``loads``, Bᵀ are the derivatives of these reactions."""
        of, parts = self.equations.structure, []
        for i, terms in enumerate(self.terms):
            by_lam, by_psi = (terms.G, terms.K) if loads is None else loads[i][1:]
            parts += [x.reshape(-1) for x in (terms.M, terms.G, by_lam, terms.K, by_psi)]
        sizes = np.concatenate([scale.a, scale.lam, scale.psi])
        values = np.concatenate(parts) * sizes[of.rows] * sizes[of.columns]
        entries = np.bincount(of.places, values, len(of.indices))
        matrix = sparse.csc_matrix((entries, of.indices, of.starts), shape=(of.size, of.size))
        return Saddle(matrix, scale)

    def accelerations(self, guess: Any = None) -> tuple[Vectors, Saddle]:
        """Consistent a, λ and ψ, and the matrix of their equations.

        With reactions of the user's own, Newton's method starts from the ``guess`` of λ and ψ, by default
        ones as in `initial_values`. Raises a RuntimeError if the matrix is singular or the iteration fails.
        """
        if self.equations.linear:
            saddle = self.saddle(self.scale)
            return saddle.solve(self.applied, -self.g_ddot, -self.k_dot), saddle
        n, m, p = self.dims[1:]
        lam, psi = (np.ones(m), np.ones(p)) if guess is None else (np.asarray(x, float) for x in guess)
        x, sizes = np.concatenate([np.zeros(n), lam, psi]), np.concatenate([*self.scale])
        for _ in range(MOST_ITERATIONS):
            a, lam, psi = np.split(x, [n, n + m])
            loads = self._loads(lam, psi)
            saddle = self.saddle(self.scale, loads)
            motion = self.applied + self._sum("v", [one.force for one in loads]) - self.M @ a
            hidden = np.concatenate([self.g_ddot, self.k_dot]) + self.B @ a
            step = np.concatenate(saddle.solve(motion, -hidden[:m], -hidden[m:]))
            x = x + step
            if not np.abs(step / sizes).max(initial=0.0) > CHANGE * np.abs(x / sizes).max(initial=0.0):
                a, lam, psi = np.split(x, [n, n + m])
                return (a, lam, psi), saddle
        raise RuntimeError("no multipliers were found, the matrix may be singular")

    def _loads(self, lam: np.ndarray, psi: np.ndarray) -> list[Loads]:
        """The reactions of all parts, and their derivatives."""
        found = []
        for model, terms in zip(self.parts, self.terms, strict=True):
            at = model.places
            forces = lam[at.g], psi[at.k]
            if model.own_reaction:
                found.append(self._of_part("loads", model, _loads, self.q[at.q], self.v[at.v], *forces))
            else:
                pushes = [np.einsum("kmn,km->kn", *x) for x in zip((terms.G, terms.K), forces, strict=True)]
                found.append(Loads(-pushes[0] - pushes[1], terms.G, terms.K))
        return found

    def _of_part(self, name: str, model: KindModel, function: Any, *rows: np.ndarray) -> Any:
        data = self.equations.data(model)
        return self.equations.each(name, model, function, np.array([self.t]), *rows, data)

    def reaction(self, lam: np.ndarray, psi: np.ndarray) -> np.ndarray:
        """All reaction forces (n,)."""
        if self.equations.linear:
            return np.add(*self.reactions(lam, psi))
        return self._sum("v", [one.force for one in self._loads(lam, psi)])

    def reactions(self, lam: np.ndarray, psi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """−Gᵀλ and −Kᵀψ (n,)."""
        found = []
        for name, kind, by in (("G", "g", lam), ("K", "k", psi)):
            pushes = [
                -np.einsum("kmn,km->kn", getattr(terms, name), by[getattr(model.places, kind)])
                for model, terms in zip(self.parts, self.terms, strict=True)
            ]
            found.append(self._sum("v", pushes))
        return found[0], found[1]

    def rate(self, saddle: Saddle, a: np.ndarray, lam: np.ndarray, psi: np.ndarray) -> np.ndarray:
        """a' along the motion."""
        n, m, p = self.dims[1:]
        total = np.zeros(n + m + p)
        for model in self.parts:
            at = model.places
            inputs = (self.q[at.q], self.v[at.v], a[at.v], lam[at.g], psi[at.k])
            found = self._of_part("along", model, _along, *inputs)
            places = np.concatenate([at.v, n + at.g, n + m + at.k], axis=1)
            total += np.bincount(places.reshape(-1), found.reshape(-1), len(total))
        return saddle.solve(-total[:n], -total[n : n + m], -total[n + m :])[0]


class Saddle:
    """The matrix (12) of JN08, M and B = (G; K), scaled. It is factorized when it is first used."""

    def __init__(self, matrix: Any, scale: Scale) -> None:
        self.matrix, self.scale = matrix, scale

    @functools.cached_property
    def _factors(self) -> Any:
        return splu(self.matrix)

    def solve(self, motion: np.ndarray, holonomic: np.ndarray, nonholonomic: np.ndarray) -> Vectors:
        """x = (a, λ, ψ) with M a + Bᵀ(λ, ψ) = motion and B a = (holonomic, nonholonomic)."""
        scale, n, m = self.scale, len(motion), len(holonomic)
        wanted = np.concatenate([scale.a * motion, scale.lam * holonomic, scale.psi * nonholonomic])
        x = self._factors.solve(wanted)
        x += self._factors.solve(wanted - self.matrix @ x)
        a, lam, psi = np.split(x, [n, n + m])
        return np.asarray(scale.a * a), np.asarray(scale.lam * lam), np.asarray(scale.psi * psi)


def _inverse(sizes: np.ndarray) -> np.ndarray:
    """1/sizes. Zeros are replaced by the largest size, as in `initial_values.inverse_of_sizes`."""
    largest = sizes.max(initial=0.0)
    return 1 / np.where(sizes > 0, sizes, largest if largest > 0 else 1.0)
