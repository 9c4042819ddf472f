"""The equations of motion and the hidden constraints of an assembly at one state, with sparse matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sparse

from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sparse.matrices import Saddle, SaddlePattern, Structure, Vectors
from genalpha.backends.sparse.models import KindModel, numbers_of, rows_of
from genalpha.backends.sparse.terms import Terms, along_motion, read_off, terms_of
from genalpha.backends.sparse.together import CopyInputs, KindFunction, Together
from genalpha.compiler import kept, machine
from genalpha.compiler.rows import RowFunction
from genalpha.mechanics.labels import Labels
from genalpha.mechanics.system import Dims
from genalpha.numerics.data import Scale
from genalpha.numerics.derivatives import jacobian
from genalpha.numerics.tracing import zeros

# Multipliers of reactions of the user's own are found by Newton's method, to this relative change.
CHANGE, MOST_ITERATIONS = 1e-10, 50
# Functions of parts with so many copies are optimized. With fewer copies this takes longer than it saves.
MANY = 64


class Loads(NamedTuple):
    """Reactions (n,) of one copy, and minus their derivatives with respect to λ (m, n) and ψ (p, n)."""

    force: Any
    by_lam: Any
    by_psi: Any


def _loads(model: KindModel, t: Any, q: Any, v: Any, lam: Any, psi: Any, data: Any) -> Loads:
    system = model.system(data, model.dims)
    forces = lambda x: system.reactions(t, q, v, x[: len(lam)], x[len(lam) :])
    both = jnp.concatenate([lam, psi])
    change = jacobian(forces, both) if both.size else zeros(len(v), 0)
    by_lam, by_psi = jnp.split(-change.T, [len(lam)])
    return Loads(forces(both), by_lam, by_psi)


# Functions that depend on the part alone.
_OF_PARTS = (terms_of, along_motion, _loads)


class Equations:
    """Functions of single copies, applied to all of them, and what the whole is made of.

    ``functions`` are those that were made before, by name; they do not depend on the numbers of a run.
    ``labels`` are for messages.
    """

    def __init__(self, parts: list[KindModel], dims: Dims, functions: dict[Any, Any], labels: Labels) -> None:
        self.parts, self.dims, self.labels = parts, dims, labels
        self._data: dict[str, Any] = {}
        leaves = jax.tree.leaves([model.data for model in parts])
        self._functions: dict[Any, Any] = functions.setdefault(tuple(map(np.shape, leaves)), {})
        self.numbers = numbers_of(parts)

    def made(self, key: Any, make: Callable[[], Any]) -> Any:
        """What does not depend on numbers, made once."""
        if key not in self._functions:
            self._functions[key] = make()
        return self._functions[key]

    @property
    def inputs(self) -> CopyInputs:
        """Where functions of copies find their inputs."""
        return self.made("inputs", lambda: CopyInputs(self.dims, self.parts))

    def vector(self, **values: Any) -> np.ndarray:
        """The inputs of functions of copies, with the numbers of all copies."""
        return self.inputs.vector(numbers=self.numbers, **values)

    def _function(
        self, name: str, model: KindModel, function: Any, example: Callable[[], Any], on: Any = None
    ) -> Rowwise:
        """``function(model, *row)`` for rows of a part, made once; ``on`` is explained at `together`."""

        def make() -> Rowwise:
            one, often, row = lambda *x: function(model, *x), model.copies >= MANY, example()
            label = f"{name}_{model.name}"
            read = self._read_off(label, model, row) if function is along_motion else None
            read = read or (lambda: RowFunction(label, one, row, often=often))
            if model.element is None or (on is None and function not in _OF_PARTS):
                return Rowwise(label, one, row, make=read)
            shapes = tuple(map(np.shape, jax.tree.leaves(row)))  # any assembly may use it
            about = (name, on, often, jax.tree.structure(row), shapes)
            key = functools.partial(kept.key, model.element.identity, *about)
            make = lambda: Rowwise(label, one, row, make=lambda: RowFunction.at(key(), read))
            return model.element.made(about, make)

        return self.made((name, model.name), make)

    def _read_off(self, label: str, model: KindModel, row: Any) -> Callable[[], RowFunction] | None:
        """How the rates of the equations are made from the expressions of their terms, if there are any."""
        known = self._functions.get(("terms", model.name))
        terms = None if known is None else known.rows
        if model.own_reaction or terms is None or terms.hosted:
            return None
        return lambda: read_off(label, model, terms, row)

    def each(self, name: str, model: KindModel, function: Any, *rows: Any) -> Any:
        """``function(model, *row)`` of all copies of a part. Inputs have one row for each, or one for all."""
        example = lambda: jax.tree.map(lambda x: np.asarray(x)[0], rows)
        return self._function(name, model, function, example)(rows, machine.lanes())

    def together(
        self,
        name: str,
        models: Sequence[KindModel],
        function: Any,
        inputs: Sequence[str],
        vector: np.ndarray,
        whole: Dims | None = None,
        on: Any = None,
    ) -> Together:
        """``function(model, *inputs, data)`` of all copies of some kinds; ``vector`` is an example.

        With the sizes of the ``whole``, copies without constraints have one that is always satisfied. If the
        function depends on the part and on something else ``on`` alone, other assemblies may use it.
        """

        def make() -> Together:
            kinds = []
            for model in models:
                m, p = model.dims[2:] if whole is None else model.full(whole)[2:]
                places = self.inputs.of(model, inputs, m, p)
                own = jax.tree.unflatten(jax.tree.structure(model.data), places[len(inputs) :])
                tree = (*places[: len(inputs)], own)
                example = lambda tree=tree: jax.tree.map(lambda x: vector[x[0]], tree)
                made = self._function(name, model, function, example, on)
                if made.in_lanes:
                    made.code(machine.lanes())  # other threads compile it while the next one is traced
                kinds.append(KindFunction(made, tree))
            return Together(kinds, vector)

        return self.made(("together", name, tuple(model.name for model in models)), make)

    def data(self, model: KindModel) -> Any:
        """The numbers of all copies. Single numbers have one row."""
        if model.name not in self._data:
            row = lambda x: np.asarray(x, dtype=float)[None] if np.ndim(x) == 0 else x
            self._data[model.name] = jax.tree.map(row, model.data)
        return self._data[model.name]

    def at(self, t: float, q: np.ndarray, v: np.ndarray) -> AtState:
        """The equations at one state."""
        return AtState(self, float(t), q, v)

    def rows(self, t: np.ndarray, q: np.ndarray, v: np.ndarray) -> Iterator[AtState]:
        """The equations at states (R, ...)."""
        yield from map(self.at, t, q, v)

    @functools.cached_property
    def linear(self) -> bool:
        """Whether all reactions are the default ones, which are linear in λ and ψ."""
        return not any(model.own_reaction for model in self.parts)


class AtState:
    """The equations at one state."""

    def __init__(self, equations: Equations, t: float, q: np.ndarray, v: np.ndarray) -> None:
        self.equations, self.t, self.q, self.v = equations, t, q, v
        self.parts, self.dims = equations.parts, equations.dims
        vector = equations.vector(t=t, q=q, v=v)
        self._of_terms = equations.together("terms", self.parts, terms_of, ("t", "q", "v"), vector)
        make = lambda: Structure(self.parts, self.dims, self._of_terms)
        self.structure: Structure = equations.made("structure", make)
        self._found = found = self._of_terms(vector)
        of = self.structure
        self._sums = np.bincount(of.targets, found[of.sources], of.sums)
        self._B = found[of.of_B]
        self.applied, self.g, self.g_dot, self.g_ddot, self.k, self.k_dot = (
            self._sums[of.slices[name]] for name in ("applied", "g", "g_dot", "g_ddot", "k", "k_dot")
        )

    @functools.cached_property
    def terms(self) -> list[Terms]:
        """The terms of all copies of each part."""
        return [self._of_terms.of(k, self._found) for k in range(len(self.parts))]

    def _sum(self, kind: str, values: list[np.ndarray]) -> np.ndarray:
        found = np.zeros({"v": self.dims.n, "g": self.dims.m, "k": self.dims.p}[kind])
        for model, some in zip(self.parts, values, strict=True):
            places = getattr(model.places, kind)
            if places.size:
                found += np.bincount(places.reshape(-1), some.reshape(-1), len(found))
        return found

    def finite(self) -> bool:
        """Whether the terms of all copies are."""
        if np.isfinite(self._sums).all() and np.isfinite(self._B).all():
            return True
        return all(np.isfinite(x).all() for terms in self.terms for x in terms)

    @property
    def _mass(self) -> np.ndarray:
        """The entries of the mass matrix."""
        return self._sums[self.structure.first :]

    @functools.cached_property
    def M(self) -> Any:
        """The mass matrix, sparse."""
        return sparse.csc_matrix((self._mass, *self.structure.mass), shape=(self.dims.n,) * 2)

    @functools.cached_property
    def B(self) -> Any:
        """The constraint matrices (G; K), sparse."""
        n, m, p = self.dims[1:]
        return sparse.csr_matrix((self._B, *self.structure.rows), shape=(m + p, n))

    def rates(self, change: np.ndarray) -> np.ndarray:
        """B times a change (n,) of the velocities."""
        of = self.structure
        return np.bincount(of.row, self._B * change[of.column], self.dims.m + self.dims.p)

    @functools.cached_property
    def scale(self) -> Scale:
        """Typical sizes, as in `initial_values.scales`."""
        of, m = self.structure, self.dims.m
        a = np.sqrt(_inverse(np.maximum.reduceat(np.abs(self._mass), of.mass[1][:-1])))
        if not len(self._B):
            return Scale(a, np.zeros(0), np.zeros(0))  # type: ignore[arg-type]
        rows = np.maximum.reduceat(np.abs(self._B) * a[of.column], of.rows[1][:-1])
        return Scale(a, _inverse(rows[:m]), _inverse(rows[m:]))  # type: ignore[arg-type]

    def saddle(
        self, scale: Scale, loads: list[Loads] | None = None, mass: np.ndarray | None = None
    ) -> Saddle:
        """The matrix (12) of JN08, scaled. With ``loads``, Bᵀ are the derivatives of these reactions.

        ``mass`` are the entries of another mass matrix.
        """
        of = self.structure
        if loads is None:
            mass = self._mass if mass is None else mass
            return Saddle(of.saddle, np.concatenate([mass, self._B, self._B]), scale)
        pattern = self.equations.made("loaded", lambda: _loaded(of, self.parts))
        parts = [x.reshape(-1) for load in loads for x in (load.by_lam, load.by_psi)]
        return Saddle(pattern, np.concatenate([self._mass, self._B, *parts]), scale)

    def accelerations(self, guess: Any = None) -> tuple[Vectors, Saddle]:
        """Consistent a, λ and ψ, and the matrix of their equations.

        With reactions of the user's own, Newton's method starts from the ``guess`` of λ and ψ, by default
        ones as in `initial_values`, and if this fails, from the multipliers of ideal constraints. Raises a
        RuntimeError if the matrix is singular or the iteration fails.
        """
        if self.equations.linear:
            saddle = self.saddle(self.scale)
            return saddle.solve(self.applied, -self.g_ddot, -self.k_dot), saddle
        m, p = self.dims[2:]
        given = (np.ones(m), np.ones(p)) if guess is None else [np.asarray(x, float) for x in guess]
        try:
            return self._newton(*given)
        except RuntimeError:
            ideal = self.saddle(self.scale).solve(self.applied, -self.g_ddot, -self.k_dot)
            return self._newton(*ideal[1:])

    def _newton(self, lam: np.ndarray, psi: np.ndarray) -> tuple[Vectors, Saddle]:
        """The same with reactions of the user's own, from a guess of the multipliers."""
        n, m, _ = self.dims[1:]
        x, sizes = np.concatenate([np.zeros(n), lam, psi]), np.concatenate([*self.scale])
        before = np.inf
        for _ in range(MOST_ITERATIONS):
            a, lam, psi = np.split(x, [n, n + m])
            loads = self._loads(lam, psi)
            saddle = self.saddle(self.scale, loads)
            motion = self.applied + self._sum("v", [one.force for one in loads]) - self.M @ a
            hidden = np.concatenate([self.g_ddot, self.k_dot]) + self.rates(a)
            step = np.concatenate(saddle.solve(motion, -hidden[:m], -hidden[m:]))
            large = np.abs(step / sizes).max(initial=0.0)
            share = 1.0 if large < before else 0.5  # friction has kinks, which Newton's method may circle
            x, before = x + share * step, large
            if not large > CHANGE * np.abs(x / sizes).max(initial=0.0):
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
        of, (n, m) = self.structure, self.dims[1:3]
        push = lambda some, by: 0.0 - np.bincount(of.column[some], self._B[some] * by, n)
        holonomic, others = slice(of.rows[1][m]), slice(of.rows[1][m], None)
        return push(holonomic, lam[of.row[holonomic]]), push(others, psi[of.row[others] - m])

    def rate(self, saddle: Saddle, a: np.ndarray, lam: np.ndarray, psi: np.ndarray) -> np.ndarray:
        """a' along the motion."""
        vector = self.equations.vector(t=self.t, q=self.q, v=self.v, a=a, lam=lam, psi=psi)
        names = ("t", "q", "v", "a", "lam", "psi")
        along = self.equations.together("along", self.parts, along_motion, names, vector)
        targets, sources = self.equations.made(
            "sums along", lambda: _sums_along(self.parts, self.dims, along)
        )
        total = np.bincount(targets, along(vector)[sources], saddle.pattern.size)
        return saddle.solved(-total)[: self.dims.n]


def _sums_along(parts: list[KindModel], dims: Dims, along: Together) -> tuple[np.ndarray, np.ndarray]:
    """The places in (a, λ, ψ) of the rows of all copies, and those of these rows in the results."""
    targets, sources = [np.zeros(0, int)], [np.zeros(0, int)]
    for k, model in enumerate(parts):
        some = np.flatnonzero(~along.zero(k, along.columns[k]))
        targets.append(rows_of(model, dims)[:, some].reshape(-1))
        sources.append(along.places(k, along.columns[k][some]).reshape(-1))
    return np.concatenate(targets), np.concatenate(sources)


def _loaded(of: Structure, parts: list[KindModel]) -> SaddlePattern:
    """The places of entries if reactions are the user's own: the blocks of all copies are full."""
    rows, columns, m = [np.zeros(0, int)], [np.zeros(0, int)], of.dims.m
    for model in parts:
        at = model.places
        for first in (at.g, m + at.k):
            shape = (len(first), first.shape[1], at.v.shape[1])
            rows.append(np.broadcast_to(at.v[:, None, :], shape).reshape(-1))
            columns.append(np.broadcast_to(first[:, :, None], shape).reshape(-1))
    return SaddlePattern(of, np.concatenate(rows), np.concatenate(columns))


def _inverse(sizes: np.ndarray) -> np.ndarray:
    """1/sizes. Zeros are replaced by the largest size, as in `initial_values.inverse_of_sizes`."""
    largest = sizes.max(initial=0.0)
    return 1 / np.where(sizes > 0, sizes, largest if largest > 0 else 1.0)
