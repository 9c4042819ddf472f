"""Modes of vibration: frequencies, damping ratios and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from genalpha.mechanics.system import System
from genalpha.statics import pencil
from genalpha.statics.inputs import increment_names
from genalpha.statics.linear import read_state
from genalpha.statics.stability import symmetric
from genalpha.statics.tangent import DENSE
from genalpha.statics.variation import StatePoint, variation
from genalpha.statics.whole import WholeSystem

# Damping counts as none below this, relative to its critical size.
_UNDAMPED = 1e-12
_MOST_NAMED = 3


@dataclass(frozen=True)
class Modes:
    """Modes by rising frequency. Of a pair of complex eigenvalues there is the one above the real axis.

    eigenvalues (k,), complex; omega (k,) = |λ| in rad/s; damping (k,) = −Re λ/|λ|, 1 for a motion that decays
    without oscillation and −1 for one that grows so. shapes (n, k) are increments of q, real without damping,
    then with unit mass; else the largest entry is one. Entries of first-order states are their own changes.
    ``names`` are those of the increments.
    """

    eigenvalues: np.ndarray
    shapes: np.ndarray
    names: tuple[str, ...]

    @property
    def omega(self) -> np.ndarray:
        return np.abs(self.eigenvalues)

    @property
    def frequency(self) -> np.ndarray:
        """Frequencies (k,) in Hz: omega/2π."""
        return self.omega / (2 * np.pi)

    @property
    def damping(self) -> np.ndarray:
        size = self.omega
        return np.where(size > 0, -self.eigenvalues.real / np.where(size > 0, size, 1.0), 0.0)

    def __len__(self) -> int:
        return len(self.eigenvalues)

    def __str__(self) -> str:
        lines = ["  mode   frequency [Hz]   damping ratio   moves most"]
        for i in range(len(self)):
            sizes = np.abs(self.shapes[:, i])
            most = [j for j in np.argsort(-sizes)[:_MOST_NAMED] if sizes[j] > 0.1 * sizes.max()]
            named = ", ".join(self.names[j] for j in most)
            lines.append(f"{i:6d}   {self.frequency[i]:14.6g}   {self.damping[i]:13.6f}   {named}")
        return "\n".join(lines)

    def plot(self, most: int = 6) -> Any:
        """A figure: eigenvalues, and the shapes of the first modes. Needs matplotlib."""
        from genalpha.statics.plots import of_modes

        return of_modes(self, most)


def modes(
    system: System, state: Any, count: int | None = None, *, args: Sequence[Any] = (), near: float = 0.0
) -> Modes:
    """Modes of small motions about a state, which is read as in :func:`linearize`.

    count : how many, those with frequencies nearest to ``near`` (rad/s). By default all, and 10 of a system
        with more than 400 velocities, which is solved with sparse matrices.

    Without damping and speeds they are the eigenvectors of stiffness and mass. A negative stiffness gives a
    real eigenvalue λ > 0, which grows.

    >>> import jax.numpy as jnp, genalpha as ga
    >>> springs = ga.System(jnp.eye(2), lambda t, q, v: jnp.array([q[1] - 2 * q[0], q[0] - 2 * q[1]]))
    >>> found = ga.modes(springs, (0.0, [0.0, 0.0]))
    >>> (found.omega**2).round(6).tolist(), abs(found.shapes * 2**0.5).round(6).tolist()
    ([1.0, 3.0], [[1.0, 1.0], [1.0, 1.0]])
    """
    whole, at = read_state(system, state, args)
    if count is not None and (not isinstance(count, int | np.integer) or count < 1):
        raise ValueError(f"count must be a whole number, at least 1, got {count!r}")
    names = tuple(increment_names(whole))
    large = whole.dims.n > DENSE
    values, shapes = _sparse(whole, at, count or 10, near) if large else _dense(whole, at)
    order = np.argsort(np.abs(values), kind="stable")
    if count is not None and len(order) > count:
        nearest = np.argsort(np.abs(np.abs(values) - near), kind="stable")[:count]
        order = np.array([i for i in order if i in set(nearest.tolist())])
    return Modes(values[order], shapes[:, order], names)


def _of_curvatures(values: np.ndarray) -> np.ndarray:
    """Eigenvalues of undamped modes: iω, or the growing one of a negative stiffness."""
    return np.where(values >= 0, 1j, 1.0) * np.sqrt(np.abs(values))


def _upper(values: np.ndarray, shapes: np.ndarray, real: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """One of each pair of eigenvalues, and shapes whose largest entry is one.

    ``real`` is the imaginary part of real eigenvalues by rounding, relative to the largest.
    """
    upper = values.imag >= -real * np.abs(values).max(initial=0.0)
    values, shapes = values[upper], shapes[:, upper]
    largest = np.take_along_axis(shapes, np.abs(shapes).argmax(axis=0)[None], axis=0)
    return values, shapes / np.where(largest == 0, 1.0, largest)


def _dense(whole: WholeSystem, at: StatePoint) -> tuple[np.ndarray, np.ndarray]:
    found = variation(whole, at)
    r, s = found.sizes
    w = found.w[:, r:]
    mass = w.T @ found.M @ w
    if not at.v.any() and r == s:
        stiffness, damping = -mass @ found.A[r:, :r], -mass @ found.A[r:, r:]
        critical = np.sqrt(np.abs(stiffness).max(initial=0.0) * np.abs(mass).max(initial=0.0))
        if np.abs(damping).max(initial=0.0) <= _UNDAMPED * critical and symmetric(stiffness):
            values, vectors = scipy.linalg.eigh(0.5 * (stiffness + stiffness.T), mass)
            return _of_curvatures(values), w @ vectors
    values, vectors = np.linalg.eig(found.A)
    shapes = np.where(whole.moved[:, None], found.d, found.w)
    return _upper(values.astype(complex), shapes @ vectors)


def _sparse(whole: WholeSystem, at: StatePoint, count: int, near: float) -> tuple[np.ndarray, np.ndarray]:
    n, m, p = whole.dims[1:]
    here, slopes = whole.at(at.q, at.v, at.t), whole.slopes(*at)
    K, H = slopes.by_q[:n], slopes.by_q[n : n + m + p]
    C, unit = slopes.by_v[:n], np.asarray(here.scale.a)
    moved = whole.moved
    undamped = not p and not at.v.any() and moved.all() and whole.equations.linear and symmetric(K)
    critical = np.sqrt(np.abs(K.diagonal()).max() * np.abs(here.M.diagonal()).max())
    if undamped and abs(C).max() <= _UNDAMPED * critical:
        values, vectors = pencil.curvatures(K, here.M, here.B, unit, count, near**2 or None)
        return _of_curvatures(values), vectors
    drift = whole.bracket(at.v)
    E, A = pencil.first_order(K, C, here.M, H, drift, here.B, whole.loads(here, at.lam, at.psi), m)
    places = np.flatnonzero(moved)
    kept = np.r_[places, n : A.shape[0]]  # states have no position
    E, A = (x[kept][:, kept] for x in (E, A))
    entries = len(places) + n
    if near:
        values, vectors = pencil.eigenvalues(E, A, 2 * count, 1j * near + 1e-7, entries)
    else:
        first = 1e-4 * np.sqrt(np.abs(K.diagonal() * unit**2).max()) or 1.0
        values, vectors = pencil.smallest(E, A, 2 * count, first, entries)
    shapes = vectors[len(places) :].copy()
    shapes[places] = vectors[: len(places)]
    return _upper(values, shapes, 1e-9)
