"""Derivatives of projections onto constraints, and projections by Newton's method.

The nearest point q ∘ exp(d) satisfies F = (M d + Bᵀμ, g) = 0, with M at q and B = ∂g/∂d. The nearest velocity
v + e satisfies E = (M e + Gᵀμ + Kᵀν, g', k) = 0. Both are sums over the parts, of equations and of their
derivatives with respect to the unknowns d, μ and e, μ, ν. So derivatives are those of implicit functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from genalpha.backends.sparse.copy_functions import CopyFunction, Vectors, flat_data
from genalpha.backends.sparse.models import KindModel
from genalpha.backends.sparse.projection import MOST, SMALL, Projector
from genalpha.mechanics.initial_values import Held
from genalpha.mechanics.system import Dims

_POSITION = {"t": "", "q": "q", "d": "v", "mu": "g"}
_VELOCITY = {"t": "", "q": "q", "v": "v", "e": "v", "mu": "g", "nu": "k"}
_UNKNOWNS = {"position": ("d", "mu"), "velocity": ("e", "mu", "nu")}


def _position(model: KindModel, x: dict[str, Any], data: Any) -> Any:
    """F of one copy."""
    system, (t, q, d, mu) = model.system(data, model.dims), (x[name] for name in _POSITION)
    motion = system.M(t, q) @ d
    if not model.dims.m:
        return motion
    g, transpose = jax.vjp(lambda d: system.g(t, model.space.retract(q, d)), d)
    return jnp.concatenate([motion + transpose(mu)[0], g])


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
    """The functions of all kinds that a projection is made of, made once."""

    def __init__(self, nodes: Sequence[Any], parts: Sequence[Any]) -> None:
        self.nodes, self.parts = nodes, parts
        self._made: dict[tuple[str, str], CopyFunction] = {}

    def get(self, name: str, model: KindModel) -> CopyFunction:
        if (name, model.name) not in self._made:
            (function, kinds), of_part = _FUNCTIONS[name], name in _UNKNOWNS
            data = model.data if of_part else ()
            self._made[name, model.name] = CopyFunction(name, model, function, kinds, data)
        return self._made[name, model.name]

    def unit(self, q: np.ndarray) -> np.ndarray:
        """The coordinates with unit quaternions."""
        return self.of_nodes("unit", {"q": q})

    def of_nodes(self, name: str, x: Vectors, changes: Vectors | None = None) -> np.ndarray:
        """The vector of the whole that a function of nodes makes, or its change."""
        of = lambda model: model.places.v if name == "increment" else model.places.q
        total = np.zeros(sum(of(model).size for model in self.nodes))
        for model in self.nodes:
            function, none = self.get(name, model), np.zeros((model.copies, 0))
            made = function.value(x, none) if changes is None else function.change(x, none, changes, none)
            total[of(model)] = made
        return total

    def pull(self, name: str, x: Vectors, weights: np.ndarray, total: Vectors) -> None:
        """Add the weights of what nodes depend on, from those of their coordinates, to ``total``."""
        for model in self.nodes:
            none = np.zeros((model.copies, 0))
            self.get(name, model).pull(x, none, weights[model.places.q], total)


class _Matrix:
    """The matrix of one of the equations. What is held does not move."""

    def __init__(self, matrix: Any, held: tuple[int, ...], sizes: np.ndarray) -> None:
        self._free = np.setdiff1d(np.arange(len(sizes)), held)
        self._sizes = sizes[self._free]
        scaled = (sparse.diags(sizes) @ matrix @ sparse.diags(sizes)).tocsc()
        self._matrix = scaled[self._free][:, self._free]
        self._factors = splu(self._matrix)

    def solved(self, rows: np.ndarray, transposed: bool = False) -> np.ndarray:
        wanted, how = self._sizes * rows[self._free], "T" if transposed else "N"
        matrix, found = (self._matrix.T if transposed else self._matrix), np.zeros(len(rows))
        x = self._factors.solve(wanted, how)
        x += self._factors.solve(wanted - matrix @ x, how)
        found[self._free] = self._sizes * x
        return found


class ProjectionEquations:
    """The equations of a projection from (q, v) at time t, with the numbers of the ``parts``."""

    def __init__(
        self,
        functions: ProjectionFunctions,
        projector: Projector,
        parts: Sequence[Any],
        start: tuple[np.ndarray, np.ndarray, np.ndarray],
        held: Held,
    ) -> None:
        self.of, self.projector, self.parts = functions, projector, parts
        self.dims: Dims = projector.dims
        self.data = {model.name: flat_data(model) for model in parts}
        t, q, v = start
        self.given: Vectors = {"q": q}
        self.position: Vectors = {"t": t, "q": functions.unit(q), "d": np.zeros(self.dims.n)}
        self.velocity: Vectors = {"t": t, "q": self.position["q"], "v": v, "e": np.zeros(self.dims.n)}
        for x in (self.position, self.velocity):
            x |= {"mu": np.zeros(self.dims.m), "nu": np.zeros(self.dims.p)}
        self._held = {"position": held.q, "velocity": held.v}

    @property
    def end(self) -> np.ndarray:
        """The point q ∘ exp(d)."""
        return self.of.of_nodes("end", self.position)

    def _at(self, name: str) -> Vectors:
        return self.position if name == "position" else self.velocity

    def size(self, name: str) -> int:
        """The number of unknowns."""
        return self.dims.n + self.dims.m + (self.dims.p if name == "velocity" else 0)

    def places(self, name: str, model: Any) -> np.ndarray:
        """Where the unknowns of all copies are, which is also where their rows are."""
        at, (_, n, m, _) = model.places, self.dims
        parts = [at.v, n + at.g, n + m + at.k]
        return np.concatenate(parts[: len(_UNKNOWNS[name])], axis=1)

    def sum(self, name: str, of_part: Callable[[CopyFunction, np.ndarray], np.ndarray]) -> np.ndarray:
        """The sum of rows of all parts."""
        total = np.zeros(self.size(name))
        for model in self.parts:
            found = of_part(self.of.get(name, model), self.data[model.name])
            total += np.bincount(self.places(name, model).reshape(-1), found.reshape(-1), len(total))
        return total

    def rows(self, name: str) -> np.ndarray:
        """What is to be zero."""
        return self.sum(name, lambda function, data: function.value(self._at(name), data))

    def matrix(self, name: str) -> _Matrix:
        """The derivative of the rows with respect to the unknowns. A RuntimeError if it is singular."""
        values, rows, columns = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
        for model in self.parts:
            places = self.places(name, model)
            found = self.of.get(name, model).jacobian(self._at(name), self.data[model.name], _UNKNOWNS[name])
            row, column = np.broadcast_arrays(places[:, :, None], places[:, None, :])
            for kept, part in zip((values, rows, columns), (found, row, column), strict=True):
                kept.append(part.reshape(-1))
        entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
        whole = sparse.coo_matrix(entries, shape=(self.size(name),) * 2)
        x = self._at(name)
        scale = self.projector.at(float(x["t"]), x["q"], np.zeros(self.dims.n)).scale
        return _Matrix(whole, self._held[name], np.concatenate(scale)[: self.size(name)])

    def move(self, name: str, by: np.ndarray) -> None:
        """Add a correction to the unknowns."""
        parts = np.split(by, [self.dims.n, self.dims.n + self.dims.m])
        x = self._at(name)
        x |= {key: x[key] + part for key, part in zip(_UNKNOWNS[name], parts, strict=False)}

    def solve(self) -> bool:
        """Newton's method. It has second derivatives of the constraints, unlike :class:`Projector`."""
        try:
            return self._solve("position") and self._solve("velocity")
        except RuntimeError:  # a singular matrix
            return False

    def _solve(self, name: str) -> bool:
        for _ in range(MOST):
            step = -self.matrix(name).solved(self.rows(name))
            self.move(name, step)
            d = self._at(name)[_UNKNOWNS[name][0]]
            change = np.abs(step[: self.dims.n]).max(initial=0.0)
            if not np.isfinite(change):
                return False
            if change <= SMALL * (1 + np.abs(d).max(initial=0.0)):
                self.velocity["q"] = self.end
                return True
        return False


class ProjectionDerivatives:
    """The derivatives of a projection that was ``found``, from t, q, v and args to the nearest q and v."""

    def __init__(self, equations: ProjectionEquations, found: tuple[np.ndarray, np.ndarray]) -> None:
        self.on, self.of, self.dims = equations, equations.of, equations.dims
        self.position, self.velocity = equations.position, equations.velocity
        end, speed = found
        self.position["d"] = self.of.of_nodes("increment", {"q": self.position["q"], "end": end})
        self.velocity |= {"q": end, "e": speed - self.velocity["v"]}
        self.matrices = {name: self._solved(name) for name in _UNKNOWNS}

    def _solved(self, name: str) -> _Matrix:
        """The matrix of some equations, with the multipliers that belong to the increments."""
        n, zero = self.dims.n, np.zeros(self.on.size(name))
        multipliers = -self.on.matrix(name).solved(self.on.rows(name))[n:]
        self.on.move(name, np.concatenate([zero[:n], multipliers]))
        return self.on.matrix(name)

    def changed(self, t: Any, q: Any, v: Any, turned: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Changes of the nearest q and v, from those of t, q, v and the data of all copies."""
        unit = self.of.of_nodes("unit", self.on.given, {"q": q})
        d = self._moved("position", self.position, {"t": t, "q": unit}, turned)
        end = self.of.of_nodes("end", self.position, {"q": unit, "d": d})
        return end, v + self._moved("velocity", self.velocity, {"t": t, "q": end, "v": v}, turned)

    def _moved(self, name: str, x: Vectors, changes: Vectors, turned: dict[str, np.ndarray]) -> np.ndarray:
        rows = self.on.sum(name, lambda f, data: f.change(x, data, changes, turned[f.model.name]))
        return -self.matrices[name].solved(rows)[: self.dims.n]

    def pulled(self, of_q: np.ndarray, of_v: np.ndarray) -> tuple[Vectors, dict[str, np.ndarray]]:
        """Weights of t, q, v, and of the data of all copies (K, D), from those of the nearest q and v."""
        size, n, _, _ = self.dims
        args = {name: np.zeros(x.shape) for name, x in self.on.data.items()}
        total: Vectors = {"t": np.zeros(()), "q": np.array(of_q), "v": np.array(of_v)}
        self._pull("velocity", self.velocity, total["v"], total, args)
        first: Vectors = {"t": total["t"], "q": np.zeros(size), "d": np.zeros(n)}
        self.of.pull("end", self.position, total["q"], first)
        self._pull("position", self.position, first["d"], first, args)
        given: Vectors = {"q": np.zeros(size)}
        self.of.pull("unit", self.on.given, first["q"], given)
        return {"t": first["t"], "q": given["q"], "v": total["v"]}, args

    def _pull(
        self, name: str, x: Vectors, weights: np.ndarray, total: Vectors, args: dict[str, np.ndarray]
    ) -> None:
        """Add the weights of what an increment depends on, from those of the increment."""
        more = np.zeros(self.on.size(name) - self.dims.n)
        by = -self.matrices[name].solved(np.concatenate([weights, more]), transposed=True)
        for model in self.on.parts:
            function, own = self.of.get(name, model), by[self.on.places(name, model)]
            args[model.name] += function.pull(x, self.on.data[model.name], own, total)
