"""Projections onto constraints with their derivatives, of many states at once.

The nearest point q ∘ exp(d) satisfies F = (M d + Bᵀμ, g) = 0, with M at q and B = ∂g/∂d. The nearest velocity
v + e satisfies E = (M e + Gᵀμ + Kᵀν, g', k) = 0. Both are sums over the parts, of equations and of their
derivatives with respect to the unknowns d, μ and e, μ, ν. So derivatives are those of implicit functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from genalpha.backends.sparse.copy_functions import CopyFunction, Vectors
from genalpha.backends.sparse.models import KindModel
from genalpha.backends.sparse.projection import MOST, ROUNDING, SMALL
from genalpha.mechanics.initial_values import Held
from genalpha.mechanics.system import Dims
from genalpha.numerics import codes
from genalpha.numerics.derivatives import pulled_back

DENSE = 200  # the most unknowns of dense matrices

_POSITION = {"t": "", "q": "q", "d": "v", "mu": "g"}
_VELOCITY = {"t": "", "q": "q", "v": "v", "e": "v", "mu": "g", "nu": "k"}
_UNKNOWNS = {"position": ("d", "mu"), "velocity": ("e", "mu", "nu")}


def _position(model: KindModel, x: dict[str, Any], data: Any) -> Any:
    """F of one copy."""
    system, (t, q, d, mu) = model.system(data, model.dims), (x[name] for name in _POSITION)
    motion = system.M(t, q) @ d
    if not model.dims.m:
        return motion
    g = lambda d: system.g(t, model.space.retract(q, d))
    return jnp.concatenate([motion + pulled_back(g, d, mu), g(d)])


def _velocity(model: KindModel, x: dict[str, Any], data: Any) -> Any:
    """E of one copy."""
    system, (t, q, v, e, mu, nu) = model.system(data, model.dims), (x[name] for name in _VELOCITY)
    motion, rest = system.M(t, q) @ e, []
    if model.dims.m:
        motion, rest = motion + mu @ system.G(t, q), [system.g_dot(t, q, v + e)]
    if model.dims.p:
        motion, rest = motion + nu @ system.K(t, q, v + e), [*rest, system.k(t, q, v + e)]
    return jnp.concatenate([motion, *rest])


_FUNCTIONS: dict[str, tuple[Any, dict[str, str]]] = {
    "position": (_position, _POSITION),
    "velocity": (_velocity, _VELOCITY),
    "unit": (lambda model, x, data: model.space.normalize(x["q"]), {"q": "q"}),
    "end": (lambda model, x, data: model.space.retract(x["q"], x["d"]), {"q": "q", "d": "v"}),
    "increment": (lambda model, x, data: model.space.difference(x["q"], x["end"]), {"q": "q", "end": "q"}),
}


class ProjectionFunctions:
    """The functions of all kinds that projections are made of, made once.

    Raises :class:`Unsupported` if the equations have no scalar form.
    """

    def __init__(self, nodes: Sequence[Any], parts: Sequence[Any], dims: Dims, held: Held) -> None:
        self.nodes, self.parts, self.dims = nodes, parts, dims
        self.held = {"position": held.q, "velocity": held.v}
        self._made: dict[tuple[str, str], CopyFunction] = {}
        for name in _UNKNOWNS:
            for model in parts:
                self.get(name, model)

    def get(self, name: str, model: Any) -> CopyFunction:
        if (name, model.name) not in self._made:
            function, kinds = _FUNCTIONS[name]
            data = model.data if name in _UNKNOWNS else ()
            self._made[name, model.name] = CopyFunction(name, model, function, kinds, data)
        return self._made[name, model.name]

    def of_nodes(self, name: str, x: Vectors, changes: Vectors | None = None) -> np.ndarray:
        """Vectors (R, ...) of the whole that a function of nodes makes, or their changes."""
        count = len(x["q"])
        found = np.zeros((count, self.dims.n if name == "increment" else self.dims.size))
        for model in self.nodes:
            function, none = self.get(name, model), np.zeros((model.copies, 0))
            made = function.value(x, none) if changes is None else function.change(x, none, changes, none)
            places = model.places.v if name == "increment" else model.places.q
            found[:, places] = np.reshape(made, (count, *places.shape))
        return found

    def pull(self, name: str, x: Vectors, weights: np.ndarray, total: Vectors) -> None:
        """Add the weights of what nodes depend on, from those of coordinates (R, size), to ``total``."""
        for model in self.nodes:
            of_copies = weights[:, model.places.q].reshape(-1, model.places.q.shape[1])
            self.get(name, model).pull(x, np.zeros((model.copies, 0)), of_copies, total)

    # --- equations --------------------------------------------------------------------------------

    def size(self, name: str) -> int:
        """The number of unknowns of some equations."""
        return self.dims.n + self.dims.m + (self.dims.p if name == "velocity" else 0)

    def trivial(self, name: str) -> bool:
        """Whether there is no constraint: then nothing moves."""
        return self.size(name) == self.dims.n

    def places(self, name: str, model: Any) -> np.ndarray:
        """Where the unknowns of all copies are, which is also where their rows are."""
        at, (_, n, m, _) = model.places, self.dims
        parts = [at.v, n + at.g, n + m + at.k]
        return np.concatenate(parts[: len(_UNKNOWNS[name])], axis=1)

    def sum(self, name: str, count: int, of_part: Callable[[CopyFunction], np.ndarray]) -> np.ndarray:
        """The sums (R, S) of rows of all parts."""
        size = self.size(name)
        total, first = np.zeros(count * size), np.arange(count)[:, None] * size
        for model in self.parts:
            places = (first + self.places(name, model).reshape(1, -1)).reshape(-1)
            total += np.bincount(places, of_part(self.get(name, model)).reshape(-1), len(total))
        return total.reshape(count, size)

    def matrix(self, name: str, x: Vectors, data: Vectors) -> ProjectionMatrices:
        """The derivatives of some equations with respect to their unknowns."""
        values, places, size = list[np.ndarray](), list[np.ndarray](), self.size(name)
        for model in self.parts:
            at = self.places(name, model)
            found = self.get(name, model).jacobian(x, data[model.name], _UNKNOWNS[name])
            values.append(found.reshape(len(x["q"]), -1))
            places.append((at[:, :, None] * size + at[:, None, :]).reshape(-1))
        return ProjectionMatrices(
            np.concatenate(values, axis=1), np.concatenate(places), size, self.held[name]
        )


class ProjectionMatrices:
    """Matrices (R, S, S) with entries at the same places, which are sums. What is held does not move.

    Solutions with a singular matrix are NaN.
    """

    def __init__(self, values: np.ndarray, places: np.ndarray, size: int, held: tuple[int, ...]) -> None:
        self._free = np.setdiff1d(np.arange(size), held)
        one = _dense if size <= DENSE else _sparse
        self._whole = one(values, places, size, self._free)

    def solved(self, rows: np.ndarray, transposed: bool = False) -> np.ndarray:
        """The solutions (R, S) for right-hand sides (R, S)."""
        found = np.zeros(rows.shape)
        wanted = rows[:, self._free]
        if isinstance(self._whole, np.ndarray):
            matrix = self._whole.swapaxes(1, 2) if transposed else self._whole
            found[:, self._free] = _solved(matrix, wanted)
        else:
            for row, one, right in zip(found, self._whole, wanted, strict=True):
                row[self._free] = one.solve(right, "T" if transposed else "N")
        return found


def _dense(values: np.ndarray, places: np.ndarray, size: int, free: np.ndarray) -> np.ndarray:
    count = len(values)
    at = (np.arange(count)[:, None] * size**2 + places).reshape(-1)
    whole = np.bincount(at, values.reshape(-1), count * size**2).reshape(count, size, size)
    return whole[:, free[:, None], free]


def _solved(matrix: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Solutions (R, S), with rows and columns of similar size, and one step of refinement."""
    inverse = lambda x: 1 / np.where(x > 0, x, 1.0)
    left = inverse(np.abs(matrix).max(axis=2, initial=0.0))
    right = inverse((left[:, :, None] * np.abs(matrix)).max(axis=1, initial=0.0))
    scaled = left[:, :, None] * matrix * right[:, None, :]
    wanted = (left * rows)[:, :, None]
    try:
        x = np.linalg.solve(scaled, wanted)
    except np.linalg.LinAlgError:
        if len(matrix) == 1:
            return np.full(rows.shape, np.nan)
        return np.concatenate([_solved(matrix[i : i + 1], rows[i : i + 1]) for i in range(len(matrix))])
    x += np.linalg.solve(scaled, wanted - scaled @ x)
    return right * x[:, :, 0]


class _SparseMatrix:
    """A sparse matrix with factors."""

    def __init__(self, matrix: Any) -> None:
        inverse = lambda x: 1 / np.where(x > 0, x, 1.0)
        self._left = inverse(abs(matrix).max(axis=1).toarray().reshape(-1))
        rows = sparse.diags(self._left) @ matrix
        self._right = inverse(abs(rows).max(axis=0).toarray().reshape(-1))
        self._matrix = (rows @ sparse.diags(self._right)).tocsc()
        try:
            self._factors = splu(self._matrix)
        except RuntimeError:  # it is singular
            self._factors = None

    def solve(self, row: np.ndarray, how: str) -> np.ndarray:
        if self._factors is None:
            return np.full(row.shape, np.nan)
        before, after = (self._left, self._right) if how == "N" else (self._right, self._left)
        matrix = self._matrix if how == "N" else self._matrix.T
        x = self._factors.solve(before * row, how)
        x += self._factors.solve(before * row - matrix @ x, how)
        return np.asarray(after * x)


def _sparse(values: np.ndarray, places: np.ndarray, size: int, free: np.ndarray) -> list[_SparseMatrix]:
    at = (places // size, places % size)
    of = lambda row: sparse.coo_matrix((row, at), shape=(size, size)).tocsc()[free][:, free]
    return [_SparseMatrix(of(row)) for row in values]


class Projections:
    """Projections of states t (R,), q (R, size) and v (R, n), with the numbers of all copies (R, K, D).

    ``status`` (R,) says which were found; ``end`` and ``speed`` are the nearest q and v.
    """

    def __init__(
        self, functions: ProjectionFunctions, t: np.ndarray, q: np.ndarray, v: np.ndarray, data: Vectors
    ) -> None:
        self.of, self.data, self.given = functions, data, {"q": q}
        n, m, p = functions.dims[1:]
        unit, zeros = functions.of_nodes("unit", self.given), lambda size: np.zeros((len(q), size))
        more = lambda: {"mu": zeros(m), "nu": zeros(p)}
        self.at: dict[str, Vectors] = {
            "position": {"t": t, "q": unit, "d": zeros(n), **more()},
            "velocity": {"t": t, "q": unit, "v": v, "e": zeros(n), **more()},
        }
        finite = [np.isfinite(x).reshape(len(q), -1).all(axis=1) for x in (t, q, v)]
        self.status = np.where(np.all(finite, axis=0), codes.SUCCESS, codes.NOT_FINITE)
        self.matrices: dict[str, ProjectionMatrices] = {}

    @property
    def end(self) -> np.ndarray:
        return self.at["velocity"]["q"]

    @property
    def speed(self) -> np.ndarray:
        return self.at["velocity"]["v"] + self.at["velocity"]["e"]

    def put(self, end: np.ndarray, speed: np.ndarray) -> None:
        """Take the nearest q and v that were found elsewhere."""
        position, velocity = self.at["position"], self.at["velocity"]
        position["d"] = self.of.of_nodes("increment", {"q": position["q"], "end": end})
        velocity |= {"q": end, "e": speed - velocity["v"]}

    def solve(self) -> None:
        """Find the nearest positions, then the nearest velocities.

        At first without second derivatives of the constraints, as :class:`Projector`; where this fails, by
        Newton's method, which converges from farther away.
        """
        for name in _UNKNOWNS:
            which = np.flatnonzero(self.status == codes.SUCCESS)
            if self.of.trivial(name):
                continue
            failed = self._iterated(name, which, ideal=True)
            for x in _UNKNOWNS[name]:
                self.at[name][x][failed] = 0.0
            failed = self._iterated(name, failed, ideal=False)
            self.status[failed] = codes.NOT_CONVERGED
            if name == "position":
                self.at["velocity"]["q"] = self.of.of_nodes("end", self.at["position"])

    def _rows(self, name: str, x: Vectors, data: Vectors) -> np.ndarray:
        """What is to be zero (R, S)."""
        return self.of.sum(name, len(x["q"]), lambda f: f.value(x, data[f.model.name]))

    def _iterated(self, name: str, which: np.ndarray, ideal: bool) -> np.ndarray:
        """Find the unknowns of some projections. Returns those that have failed."""
        n, left, failed, x = self.of.dims.n, which, list[np.ndarray](), self.at[name]
        last = np.full(len(which), np.inf)
        for _ in range(MOST if which.size else 0):
            some = {key: y[left] for key, y in x.items()}
            if ideal:  # multipliers without their share in the matrix
                some |= {key: np.zeros_like(some[key]) for key in ("mu", "nu")}
            data = {key: y[left] for key, y in self.data.items()}
            step = -self.of.matrix(name, some, data).solved(self._rows(name, some, data))
            parts = np.split(step, [n, n + self.of.dims.m], axis=1)
            for key, part in zip(_UNKNOWNS[name], parts, strict=False):
                some[key] = some[key] + part
                x[key][left] = some[key]
            reached = some["v"] + some["e"] if name == "velocity" else self.of.of_nodes("end", some)
            size = 1 + np.abs(reached).max(axis=1, initial=0.0)
            change = np.abs(parts[0]).max(axis=1, initial=0.0) / size
            done = (change <= SMALL) | ((change <= ROUNDING) & (change > 0.3 * last))
            lost = ~np.isfinite(change)
            failed.append(left[lost])
            left, last = left[~done & ~lost], change[~done & ~lost]
            if not left.size:
                break
        return np.concatenate([*failed, left])

    # --- derivatives ------------------------------------------------------------------------------

    def differentiate(self) -> None:
        """Make the matrices at the solution, with the multipliers that belong to the increments."""
        self.matrices = {name: self._at_solution(name) for name in _UNKNOWNS if not self.of.trivial(name)}

    def _at_solution(self, name: str) -> ProjectionMatrices:
        x, (n, m) = self.at[name], self.of.dims[1:3]
        x |= {key: np.zeros_like(x[key]) for key in ("mu", "nu")}
        found = -self.of.matrix(name, x, self.data).solved(self._rows(name, x, self.data))
        x["mu"] = found[:, n : n + m]
        if name == "velocity":
            x["nu"] = found[:, n + m :]
        return self.of.matrix(name, x, self.data)

    def changed(self, t: Any, q: Any, v: Any, turned: Vectors) -> tuple[np.ndarray, np.ndarray]:
        """Changes of the nearest q and v, from those of t, q, v and the data of all copies."""
        unit = self.of.of_nodes("unit", self.given, {"q": q})
        d = self._moved("position", {"t": t, "q": unit}, turned)
        end = self.of.of_nodes("end", self.at["position"], {"q": unit, "d": d})
        return end, v + self._moved("velocity", {"t": t, "q": end, "v": v}, turned)

    def _moved(self, name: str, changes: Vectors, turned: Vectors) -> np.ndarray:
        n, x, data = self.of.dims.n, self.at[name], self.data
        if self.of.trivial(name):
            return np.zeros((len(x["q"]), n))
        change = lambda f: f.change(x, data[f.model.name], changes, turned[f.model.name])
        return -self.matrices[name].solved(self.of.sum(name, len(x["q"]), change))[:, :n]

    def pulled(self, of_q: np.ndarray, of_v: np.ndarray) -> tuple[Vectors, Vectors]:
        """Weights of t, q, v, and of the data of all copies (R, K, D), from those of the nearest q and v."""
        args = {name: np.zeros(x.shape) for name, x in self.data.items()}
        later: Vectors = {"t": np.zeros(len(of_q)), "q": np.array(of_q), "v": np.array(of_v)}
        self._pull("velocity", later["v"].copy(), later, args)
        first: Vectors = {"t": later["t"], "q": np.zeros(of_q.shape), "d": np.zeros(of_v.shape)}
        self.of.pull("end", self.at["position"], later["q"], first)
        self._pull("position", first["d"].copy(), first, args)
        given: Vectors = {"q": np.zeros(of_q.shape)}
        self.of.pull("unit", self.given, first["q"], given)
        return {"t": first["t"], "q": given["q"], "v": later["v"]}, args

    def _pull(self, name: str, weights: np.ndarray, total: Vectors, args: Vectors) -> None:
        """Add the weights of what an increment depends on, from those of the increment."""
        if self.of.trivial(name):
            return
        more = np.zeros((len(weights), self.of.size(name) - self.of.dims.n))
        by = -self.matrices[name].solved(np.concatenate([weights, more], axis=1), transposed=True)
        for model in self.of.parts:
            places = self.of.places(name, model)
            own = by[:, places].reshape(-1, places.shape[1])
            function = self.of.get(name, model)
            args[model.name] += function.pull(self.at[name], self.data[model.name], own, total)
