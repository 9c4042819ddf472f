"""All constraints of a system along a motion: values, rates and gradients at many states at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha import methods
from genalpha.backends.cache import program
from genalpha.backends.native.code import MAKING
from genalpha.backends.native.step import LIMIT, floating
from genalpha.backends.rowwise import Rowwise, in_blocks
from genalpha.compiler.graph import Unsupported
from genalpha.engine.setup import Setup
from genalpha.mechanics import initial_values, start_errors
from genalpha.mechanics.system import Args, Dims, System
from genalpha.numerics.newton import Newton
from genalpha.run.redundant.rank import Kept

_CORRECTIONS, _SMALL = 20, 1e-13


class Seen(NamedTuple):
    """The constraints at N states: g and g_t + G v (N, m), k (N, p), and (G; K) (N, m + p, n).

    ``unit`` (N, n) is 1/√mass, the unit of velocities.
    """

    g: Any
    g_dot: Any
    k: Any
    gradients: Any
    unit: Any

    @property
    def rates(self) -> np.ndarray:
        """(g_t + G v; k) (N, m + p)."""
        return np.concatenate([self.g_dot, self.k], axis=1)

    @property
    def scaled(self) -> np.ndarray:
        """(G; K) (N, m + p, n) scaled by the mass matrix."""
        return self.gradients * self.unit[:, None, :]


def _look(system: System, dims: Dims, t: Any, q: Any, v: Any, args: Args) -> Seen:
    g, g_dot = system.g_and_dot(t, q, v, args) if dims.m else (jnp.zeros(0), jnp.zeros(0))
    of = initial_values.matrices(system, dims, t, q, v, args)
    gradients = jnp.concatenate([of.G, of.K])
    return Seen(g, g_dot, system.k(t, q, v, args), gradients, initial_values.size_of_mass(of.M))


@dataclass(frozen=True)
class Constraints:
    """The constraints of a system with given ``args``, by machine code if ``compiled`` and possible."""

    system: System
    dims: Dims
    args: Args
    compiled: bool

    @property
    def names(self) -> list[str]:
        """Names of the rows of (G; K)."""
        return start_errors.row_names(self.dims.m, self.dims.p, self.system.labels)

    def look(self, t: np.ndarray, q: np.ndarray, v: np.ndarray) -> Seen:
        """The constraints at times (N,), coordinates (N, size) and velocities (N, n)."""
        rowwise = self._rowwise()
        if rowwise is None:
            return self._by_xla(t, q, v)
        return rowwise((t, q, v, [x[None] for x in floating(self.args)[0]]))

    def look_once(self, t: float, q: Any, v: Any) -> Seen:
        """The constraints at one state, as arrays with N = 1."""
        rowwise, at = self._rowwise(), (np.array(t, dtype=float), np.asarray(q), np.asarray(v))
        if rowwise is None:
            return self.look(*(x[None] for x in at))
        return jax.tree.map(lambda x: x[None], rowwise.one((*at, floating(self.args)[0])))

    def _rowwise(self) -> Rowwise | None:
        """The compiled function of one state, made once; None if only XLA can run it."""
        if not self.compiled:
            return None
        try:
            doubles, rebuild, fixed = floating(self.args)
        except Unsupported:
            return None
        shapes = tuple(x.shape for x in doubles)
        key = ("constraints", self.dims, fixed, shapes, jax.tree.structure(self.args))
        example = (np.float64(0.5), np.full(self.dims.size, 0.5), np.full(self.dims.n, 0.5), doubles)

        def make() -> Rowwise:
            look = lambda t, q, v, x: _look(self.system, self.dims, t, q, v, rebuild(x))
            return Rowwise("constraints", look, example, LIMIT, often=True)

        with MAKING:
            return self.system._programs.made(key, make)

    def _by_xla(self, t: np.ndarray, q: np.ndarray, v: np.ndarray) -> Seen:
        setup = Setup(self.system, methods.SOI2(start="a0"), Newton(), self.dims)
        every = lambda setup, rows, args: jax.vmap(
            lambda t, q, v: _look(setup.system, setup.dims, t, q, v, args)
        )(*rows)
        return in_blocks(program(setup, "constraints", every), (t, q, v), self.args)

    def nearby(self, t: float, q: Any, v: Any, kept: Kept) -> tuple[np.ndarray, np.ndarray]:
        """A point and a velocity near q and v on the constraints ``kept``, by the Gauss-Newton method."""
        rows, M = [i for i in kept if i < self.dims.m], np.asarray(self.system.M(t, q, self.args))
        for _ in range(_CORRECTIONS):
            seen = self.look_once(t, q, v)
            d = _shift(M, seen, rows, seen.g[0, rows])
            q = self.moved(q, d)
            if np.abs(d).max(initial=0.0) <= _SMALL * (1 + np.abs(q).max()):
                break
        return q, self.settled(t, q, v, kept)

    def moved(self, q: Any, d: Any) -> np.ndarray:
        """The point q ∘ exp(d) of the space."""
        return np.asarray(self.system.space.retract(q, d))

    def settled(self, t: float, q: Any, v: Any, kept: Kept) -> np.ndarray:
        """The velocity nearest to v that satisfies the constraints ``kept``, ACB15 (7)."""
        rows, M = list(kept), np.asarray(self.system.M(t, q, self.args))
        for _ in range(_CORRECTIONS):
            seen = self.look_once(t, q, v)
            d = _shift(M, seen, rows, seen.rates[0, rows])
            if np.abs(d).max(initial=0.0) <= _SMALL * (1 + np.abs(v).max()):
                break
            v = v + d
        return v

    def reduced(self, kept: Kept) -> System:
        """The system with only these rows of (G; K). It is always the same object, so it compiles once."""
        key = ("rows", kept, self.dims)
        return self.system._programs.made(key, lambda: _with_rows(self.system, kept, self.dims.m))


def _shift(M: np.ndarray, seen: Seen, rows: list[int], values: np.ndarray) -> np.ndarray:
    """The smallest change (n,), in the norm of M, that reduces these rows by ``values``, to first order."""
    unit, B = seen.unit[0], seen.scaled[0, rows]
    matrix = np.block([[unit[:, None] * M * unit, B.T], [B, np.zeros((len(rows), len(rows)))]])
    wanted = np.concatenate([np.zeros(len(unit)), values])
    return -unit * np.linalg.lstsq(matrix, wanted, rcond=None)[0][: len(unit)]


def _with_rows(system: System, kept: Kept, m: int) -> System:
    holonomic, other = [i for i in kept if i < m], [i - m for i in kept if i >= m]
    pick = lambda values, rows: jnp.stack([values[i] for i in rows])
    return System(
        system.mass,
        system.force,
        (lambda t, q, *args: pick(system.g(t, q, args), holonomic)) if holonomic else None,
        (lambda t, q, v, *args: pick(system.k(t, q, v, args), other)) if other else None,
        space=system.space,
    )
