"""States of large assemblies on their constraints: the nearest positions and velocities."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import splu

from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sparse.equations import Equations
from genalpha.backends.sparse.models import KindModel
from genalpha.compiler import machine
from genalpha.mechanics.initial_values import NOTHING_HELD, Held
from genalpha.mechanics.spaces import Euclidean, Space, States
from genalpha.numerics import codes
from genalpha.numerics.data import State
from genalpha.numerics.derivatives import jacobian

# The most corrections, and the size of the last one relative to 1 + |q| or 1 + |v|.
MOST, SMALL = 50, 1e-13
# Corrections that stop shrinking below this are at rounding level.
ROUNDING = 1e-9
# The most corrections of states that nearly satisfy the constraints.
FEW = 3


class EqualFactors(NamedTuple):
    """Equal factors of a space, and the places of their points (K, size) and velocities (K, dim)."""

    space: Space
    q: np.ndarray
    v: np.ndarray

    def turning(self, q: np.ndarray, d: np.ndarray) -> np.ndarray:
        """How the end of an increment d (n,) from q (size,) moves with d: by T d', T (K, dim, dim)."""
        width = self.v.shape[1]
        if isinstance(self.space, Euclidean | States):
            return np.broadcast_to(np.eye(width), (len(self.v), width, width))
        return _turning(self.space, self.q.shape[1], width)((q[self.q], d[self.v]), machine.lanes())


@functools.lru_cache(maxsize=64)
def _turning(space: Space, size: int, dim: int) -> Rowwise:
    def function(q: Any, d: Any) -> Any:
        end = space.retract(q, d)
        return jacobian(lambda d: space.difference(end, space.retract(q, d)), d)

    return Rowwise("turning", function, (np.zeros(size), np.zeros(dim)))


class Placed(NamedTuple):
    """A state on the constraints, and the status of the projection."""

    q: np.ndarray
    v: np.ndarray
    status: int


class Projector:
    """Moves positions and velocities onto the constraints, by the smallest changes in the norm of M."""

    def __init__(self, nodes: list[KindModel], equations: Equations) -> None:
        self.nodes, self.equations, self.dims = nodes, equations, equations.dims
        self.factors = [EqualFactors(model.space, model.places.q, model.places.v) for model in nodes]

    def at(self, t: float, q: np.ndarray, v: np.ndarray) -> Any:
        """The constraints and the masses at one state."""
        return self.equations.at(t, q, v)

    def finite(self, at: Any) -> bool:
        """Whether the matrix of the constraints is finite."""
        return bool(np.isfinite(at.B.data).all())

    def retract(self, q: np.ndarray, d: np.ndarray) -> np.ndarray:
        """The point reached from q (size,) by the increment d (n,)."""
        found = np.empty_like(q)
        for model in self.nodes:
            at = model.places
            one = lambda model, q, d: model.space.retract(q, d)
            found[at.q] = self.equations.each("retract", model, one, q[at.q], d[at.v])
        return found

    def turned(self, B: Any, q: np.ndarray, d: np.ndarray) -> Any:
        """Derivatives of g (m, n) with respect to d, from those at q ∘ exp(d) with respect to velocities."""
        n, places, entries = self.dims.n, list[np.ndarray](), list[np.ndarray]()
        for one in self.factors:
            T = one.turning(q, d)
            both = np.broadcast_arrays(one.v[:, :, None], one.v[:, None, :])
            places.append(np.stack(both).reshape(2, -1))
            entries.append(T.reshape(-1))
        where = tuple(np.concatenate(places, axis=1))
        return B[: self.dims.m] @ sparse.csr_matrix((np.concatenate(entries), where), shape=(n, n))

    def position(self, t: float, q: np.ndarray, held: tuple[int, ...] = ()) -> tuple[np.ndarray, int]:
        """The point q ∘ exp(d) on the constraints with the smallest d, ACB15 (6), and a status.

        With M d + Bᵀμ = 0, M at the start and B the derivatives of the constraints with respect to d.
        """
        total, rest, M = np.zeros(self.dims.n), np.zeros(self.dims.n), None
        start, status = q, codes.NOT_CONVERGED
        last = np.inf
        for _ in range(MOST if self.dims.m else 0):
            at = self.at(t, q, rest)
            if not (np.isfinite(at.g).all() and self.finite(at)):
                return q, codes.NOT_FINITE
            M, B = (at.M, at.B[: self.dims.m]) if M is None else (M, self.turned(at.B, start, total))
            d, fine = self._solved(at, M, B, -(M @ total), -at.g, held)
            if not fine:
                return q, codes.SINGULAR
            total = total + d
            q = self.retract(start, total)
            size = np.abs(d).max(initial=0.0) / (1 + np.abs(q).max())
            if size <= SMALL or (size <= ROUNDING and size > 0.3 * last):
                status = codes.SUCCESS
                break
            last = size
        return q, status if self.dims.m else codes.SUCCESS

    def velocity(
        self, t: float, q: np.ndarray, v: np.ndarray, held: tuple[int, ...] = ()
    ) -> tuple[np.ndarray, int]:
        """v + d on the hidden constraints with the smallest d, ACB15 (7), and a status."""
        start, last = v, np.inf
        for _ in range(MOST):
            at = self.at(t, q, v)
            if not (np.isfinite(at.g_dot).all() and np.isfinite(at.k).all() and self.finite(at)):
                return v, codes.NOT_FINITE
            wanted = -np.concatenate([at.g_dot, at.k])
            d, fine = self._solved(at, at.M, at.B, -(at.M @ (v - start)), wanted, held)
            if not fine:
                return v, codes.SINGULAR
            v = v + d
            size = np.abs(d).max(initial=0.0) / (1 + np.abs(v).max())
            if size <= SMALL or (size <= ROUNDING and size > 0.3 * last):
                return v, codes.SUCCESS
            last = size
        return v, codes.NOT_CONVERGED

    def _solved(
        self,
        at: Any,
        M: Any,
        B: Any,
        motion: np.ndarray,
        wanted: np.ndarray,
        held: tuple[int, ...],
    ) -> tuple[np.ndarray, bool]:
        """The correction d, with M d + Bᵀμ = motion and B d = wanted, and whether it exists."""
        g, k = np.split(wanted, [self.dims.m])
        if B is at.B and not held:  # its pattern is known
            try:
                found = at.saddle(at.scale, mass=M.data).solve(motion, g, k)[0]
            except RuntimeError:
                return np.zeros(self.dims.n), False
            return found, bool(np.isfinite(found).all())
        free, found, scale = np.setdiff1d(np.arange(self.dims.n), held), np.zeros(self.dims.n), at.scale
        sizes = np.concatenate([scale.a[free], scale.lam, scale.psi[: len(k)]])
        rows = B[:, free]
        matrix = sparse.bmat([[M[free][:, free], rows.T], [rows, None]]) if B.shape[0] else M[free][:, free]
        matrix = (sparse.diags(sizes) @ matrix @ sparse.diags(sizes)).tocsc()
        wanted = sizes * np.concatenate([motion[free], wanted])
        try:
            factors = splu(matrix)
        except RuntimeError:
            return found, False
        x = factors.solve(wanted)
        x += factors.solve(wanted - matrix @ x)
        found[free] = (sizes * x)[: len(free)]
        return found, bool(np.isfinite(found).all())

    def placed(self, t: float, q: np.ndarray, v: np.ndarray, held: Held = NOTHING_HELD) -> Placed:
        """The nearest q, then the nearest v."""
        q, position = self.position(t, q, held.q)
        v, velocity = self.velocity(t, q, v, held.v) if position == codes.SUCCESS else (v, position)
        return Placed(q, v, max(position, velocity))

    def near(self, t: float, q: np.ndarray, d: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """q ∘ exp(d) and v moved onto the constraints, which they nearly satisfy: `initial_values.nearest`.

        The matrix of the first correction serves all corrections of q, and another one all those of v. At a
        singular position they stay where they are.
        """
        q = self.retract(q, d)
        try:
            return self._near(t, q, v)
        except RuntimeError:  # no factors
            return self.placed(t, q, v)[:2]

    def _near(self, t: float, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, _, p = self.dims[1:]
        at = self.at(t, q, v)
        if p and self.dims.m:  # the matrix of all constraints does not serve the holonomic ones alone
            q, _ = self.position(t, q)
            at = self.at(t, q, v)
        elif self.dims.m:
            saddle = at.saddle(at.scale)
            for _ in range(FEW):
                d = saddle.solve(np.zeros(n), -at.g, np.zeros(0))[0]
                q = self.retract(q, d)
                at = self.at(t, q, v)
                if np.abs(d).max() <= SMALL * (1 + np.abs(q).max()):
                    break
        saddle = at.saddle(at.scale)
        for _ in range(FEW if self.dims.m or p else 0):
            d = saddle.solve(np.zeros(n), -at.g_dot, -at.k)[0]
            v = v + d
            if np.abs(d).max() <= SMALL * (1 + np.abs(v).max()):
                break
            at = self.at(t, q, v)
        return q, v

    def settled(self, t: Any, q: np.ndarray, v: np.ndarray, guess: Any = None) -> State:
        """A state on the constraints near (q, v), with consistent a, λ and ψ, the latter near a ``guess``."""
        q, v, _ = self.placed(float(t), q, v)
        at = self.equations.at(t, q, v)
        return State(np.float64(t), q, v, *at.accelerations(guess)[0])  # type: ignore[arg-type]
