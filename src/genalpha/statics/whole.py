"""The equations of any system at one state, and their derivatives, as sums over its parts.

A :class:`System` is the only part of itself. The functions of a part are compiled once, for all its copies.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sparse

from genalpha.backends.native.step import floating
from genalpha.backends.sparse import models
from genalpha.backends.sparse.equations import AtState, Equations
from genalpha.backends.sparse.projection import Projector
from genalpha.backends.sparse.whole_model import WholeModel
from genalpha.errors import SingularSystem
from genalpha.mechanics.assembly import Assembly
from genalpha.mechanics.system import Args, Dims, System
from genalpha.numerics.derivatives import jacobian
from genalpha.run import arguments
from genalpha.run.arguments import Numbers
from genalpha.statics.tangent import Constrained

_MOST = 30  # iterations for multipliers of reactions of the user's own


def _of_system(system: System, dims: Dims, args: Args) -> tuple[WholeModel, Any]:
    """The system as a part, and what its compiled functions depend on."""
    doubles, rebuild, fixed = floating(args)
    key = (fixed, tuple(x.shape for x in doubles), jax.tree.structure(args))
    return WholeModel(system, dims, [x[None] for x in doubles], rebuild), key


class Slopes(NamedTuple):
    """Derivatives of the equations of one copy, or of a whole as sparse matrices.

    The rows of ``by_q`` and ``by_v`` are those of M a − f (n,), g_t + G v (m,), k (p,), and of the hidden
    acceleration constraints (m,) and (p,). Columns of ``by_q`` belong to increments in the tangent space.
    """

    by_q: Any
    by_v: Any


def _slopes(model: Any, t: Any, q: Any, v: Any, a: Any, lam: Any, psi: Any, data: Any) -> Slopes:
    system, (size, _, m, p) = model.system(data, model.dims), model.dims

    def rows(x: Any) -> Any:
        q, v = x[:size], x[size:]
        found = [system.M(t, q) @ a - system.f(t, q, v, lam, psi)]
        found += [system.g_dot(t, q, v)] if m else []
        found += [system.k(t, q, v)] if p else []
        found += [system.g_ddot(t, q, v, a)] if m else []
        found += [system.k_dot(t, q, v, a)] if p else []
        return jnp.concatenate(found)

    both = jacobian(rows, jnp.concatenate([q, v]))
    return Slopes(jax.vmap(lambda row: model.space.pull(q, row))(both[:, :size]), both[:, size:])


def _stiffness(model: Any, t: Any, q: Any, v: Any, lam: Any, psi: Any, data: Any) -> Any:
    """Minus the derivative (n, n) of all forces with respect to increments of q and to states."""
    system, moved = model.system(data, model.dims), model.space.moved(model.dims.n)
    change = jacobian(lambda q: -system.f(t, q, v, lam, psi), q)
    found = jax.vmap(lambda row: model.space.pull(q, row))(change)
    if moved.all():
        return found
    return jnp.where(moved, found, jacobian(lambda v: -system.f(t, q, v, lam, psi), v))


def _bracket(model: Any, v: Any) -> Any:
    return jacobian(lambda d: model.space.bracket(v, d), jnp.zeros_like(v))


class WholeSystem:
    """A system with its args: its equations at any state, and their derivatives."""

    def __init__(self, system: System, t: Numbers, q: Any, v: Any, args: Any) -> None:
        self.system, self.args = system, arguments.arguments(args)
        self.dims, traced = arguments.trace(system, t, q, v, self.args, redundant=True)
        if traced or any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((t, q, v, self.args))):
            raise TypeError(
                "equilibria and linear equations are not possible under a JAX transform: call this outside "
                "of jit, vmap and grad"
            )
        parts: list[Any]
        nodes: list[Any]
        if isinstance(system, Assembly):
            parts, nodes, key = models.of_parts(system, self.args), models.of_nodes(system), ()
        else:
            one, key = _of_system(system, self.dims, self.args)
            parts = nodes = [one]
        functions = system._programs.made(("statics", *key), dict)
        self.equations = Equations(parts, self.dims, functions, system.labels)
        self._nodes, self.retract = nodes, Projector(nodes, self.equations).retract

    @property
    def moved(self) -> np.ndarray:
        """Which of the velocities move a position, (n,); the others are first-order states."""
        return self.system.space.moved(self.dims.n)

    def at(self, q: np.ndarray, v: np.ndarray, t: float) -> AtState:
        return self.equations.at(t, q, v)

    def split(self, mult: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """λ and ψ from all multipliers (m + p,)."""
        return mult[: self.dims.m], mult[self.dims.m :]

    def accelerations(
        self, at: AtState, guess: np.ndarray | None = None, frozen: bool = False
    ) -> tuple[np.ndarray, np.ndarray, Constrained]:
        """Consistent a (n,) and multipliers (m + p,) at a state, and the solver of their equations.

        If time is ``frozen``, the hidden acceleration constraints are B a = 0. Multipliers of reactions of
        the user's own are found by Newton's method from a ``guess``.
        """
        linear, m = self.equations.linear, self.dims.m
        mult = np.zeros(m + self.dims.p) if linear or guess is None else guess
        hidden = np.concatenate([at.g_ddot, at.k_dot]) * (0.0 if frozen else 1.0)
        for _ in range(1 if linear else _MOST):
            lam, psi = self.split(mult)
            solver = Constrained(at.B, self.loads(at, lam, psi), np.asarray(at.scale.a))
            first = solver.part(-hidden)
            try:
                rest, change = solver.solve(at.M, at.applied + at.reaction(lam, psi) - at.M @ first)
            except np.linalg.LinAlgError as error:
                raise SingularSystem(
                    "the mass matrix is singular for motions that the constraints allow: give every "
                    "coordinate a mass"
                ) from error
            mult = mult + change
            if np.abs(change).max(initial=0.0) <= 1e-12 * np.abs(mult).max(initial=0.0):
                break
        return first + rest, mult, solver

    def bracket(self, v: np.ndarray) -> Any:
        """The matrix (n, n) of d ↦ [v, d], by which increments change along a motion."""
        found = []
        for model in self._nodes:
            at = model.places.v
            values = self.equations.each("bracket", model, _bracket, v[at])
            found.append((values, at, at))
        return _summed(found, (self.dims.n,) * 2)

    def slopes(self, t: float, q: np.ndarray, v: np.ndarray, a: Any, lam: Any, psi: Any) -> Slopes:
        """Derivatives of the rows of all parts, (n + 2m + 2p, n) each."""
        n, m, p = self.dims[1:]
        starts = np.cumsum([0, n, m, p, m])
        found: list[list[Any]] = [[], []]
        for model in self.equations.parts:
            at = model.places
            inputs = (q[at.q], v[at.v], a[at.v], lam[at.g], psi[at.k])
            both = self.equations.each(
                "slopes", model, _slopes, np.array([t]), *inputs, self.equations.data(model)
            )
            rows = np.concatenate(
                [first + x for first, x in zip(starts, (at.v, at.g, at.k, at.g, at.k), strict=True)], axis=1
            )
            for some, values in zip(found, both, strict=True):
                some.append((values, rows, at.v))
        return Slopes(*(_summed(some, (int(starts[-1]) + p, n)) for some in found))

    def stiffness(self, at: AtState, lam: np.ndarray, psi: np.ndarray) -> Any:
        """Minus the derivative (n, n) of all forces with respect to increments of q and to states."""
        found = []
        for model in self.equations.parts:
            places = model.places
            inputs = (at.q[places.q], at.v[places.v], lam[places.g], psi[places.k])
            data = self.equations.data(model)
            values = self.equations.each("stiffness", model, _stiffness, np.array([at.t]), *inputs, data)
            found.append((values, places.v, places.v))
        return _summed(found, (self.dims.n,) * 2)

    def loads(self, at: AtState, lam: np.ndarray, psi: np.ndarray) -> Any:
        """Minus the derivatives (n, m + p) of the reactions with respect to λ and ψ."""
        if self.equations.linear:
            return at.B.T.tocsc()
        found, n, m = [], self.dims.n, self.dims.m
        for model, load in zip(self.equations.parts, at._loads(lam, psi), strict=True):
            places = model.places
            for values, columns in ((load.by_lam, places.g), (load.by_psi, m + places.k)):
                found.append((np.swapaxes(values, 1, 2), places.v, columns))
        return _summed(found, (n, m + self.dims.p))


def _summed(parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]], shape: tuple[int, int]) -> Any:
    """The sparse matrix that sums blocks (K, r, c) at rows (K, r) and columns (K, c)."""
    values = np.concatenate([np.zeros(0), *(np.ravel(x) for x, _, _ in parts)])
    spread = lambda places, form, axis: np.broadcast_to(np.expand_dims(places, axis), form).reshape(-1)
    none = np.zeros(0, int)
    rows = np.concatenate([none, *(spread(r, x.shape, 2) for x, r, _ in parts)])
    columns = np.concatenate([none, *(spread(c, x.shape, 1) for x, _, c in parts)])
    return sparse.coo_matrix((values, (rows, columns)), shape=shape).tocsc()
