"""Combinations of columns, on the space of the system and on its constraints."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends import sampling
from genalpha.backends.native.kernels import shapes
from genalpha.backends.native.step import LIMIT, floating
from genalpha.backends.rowwise import Rowwise
from genalpha.backends.sparse import front as sparse
from genalpha.backends.sparse.models import KindModel, of_nodes
from genalpha.backends.sparse.projection import Projector
from genalpha.engine import extrapolation
from genalpha.engine.extrapolation import Judgement, Sizes, StepMesh
from genalpha.engine.interpolate import Smooth
from genalpha.engine.setup import Setup
from genalpha.mechanics import initial_values
from genalpha.mechanics.assembly import Assembly
from genalpha.mechanics.spaces import Euclidean
from genalpha.mechanics.system import Args
from genalpha.run.accurate.columns import Column, ColumnRuns
from genalpha.run.request import Start

# The ratio of errors of interpolants through every second row and through every row, with some safety.
BETWEEN = 16.0


class MeshMotion:
    """States at the points t (K,) of a mesh. ``place(rows)`` moves some of them onto the constraints."""

    def __init__(self, t: np.ndarray, place: Callable[[Any], Column]) -> None:
        self.t, self._place = t, place
        self._all: Column | None = None

    @classmethod
    def of(cls, column: Column) -> MeshMotion:
        """A motion that is known."""
        return cls(column.t, column.rows)

    def all(self) -> Column:
        """All states. They are computed once."""
        if self._all is None:
            self._all = self._place(slice(None))
        return self._all

    def rows(self, rows: Any) -> Column:
        """Some states. Others need not be computed."""
        return self._place(rows) if self._all is None else self._all.rows(rows)

    def until(self, count: int) -> MeshMotion:
        """The first of the states."""
        return MeshMotion(self.t[:count], lambda rows: self.rows(np.arange(count)[rows]))


class Combination(NamedTuple):
    """Columns on one mesh, combined.

    ``motion`` is the combination of all columns, ``other`` that of all but the coarsest. ``difference`` is
    the difference of both, before they are moved onto the constraints: (q, v), (K, n) each.
    """

    mesh: StepMesh
    motion: MeshMotion
    other: MeshMotion
    difference: tuple[np.ndarray, np.ndarray]
    judgement: Judgement
    sizes: Sizes


class Combiner:
    """Combines columns of a run."""

    def __init__(self, columns: ColumnRuns) -> None:
        self.columns, self.setup, self.want = columns, columns.setup, columns.want
        self.args = columns.args

    def attempt(self, mesh: StepMesh, start: Start) -> Combination:
        """Run all columns on a mesh and combine them."""
        return self.combined(mesh, self.columns.all(mesh, start))

    def combined(self, mesh: StepMesh, columns: list[Column]) -> Combination:
        """The combination of all columns on a mesh, from the coarsest to the finest."""
        parts = self.want.divisions
        levels = [extrapolation.weights(parts[i:]) for i in range(min(3, len(parts)))]
        moves, velocities, magnitude = self._tangent(columns)
        combined = [
            (np.tensordot(w, moves[-len(w) :], 1), np.tensordot(w, velocities[-len(w) :], 1)) for w in levels
        ]
        combined += [combined[-1]] * (3 - len(combined))
        less = lambda one, two: (one[0] - two[0], one[1] - two[1])
        differences = [less(combined[0], combined[1]), less(combined[1], combined[2])]
        accuracy = self.want.accuracy
        if accuracy is None:
            accuracy = np.ones((2, self.setup.dims.n))
        sizes = Sizes.of(accuracy, magnitude, columns[-1].v, mesh.ends[-1] - mesh.ends[0])
        noise = extrapolation.noise(mesh.intervals * parts[-1], self.setup.newton.tol)
        judgement = extrapolation.judged(sizes, accuracy, parts, noise, differences)
        motion, other = (self._motion(columns[-1], *moved) for moved in combined[:2])
        return Combination(mesh, motion, other, differences[0], judgement, sizes)

    def _motion(self, base: Column, move: np.ndarray, v: np.ndarray) -> MeshMotion:
        """The finest column moved in its tangent space, with velocities v."""
        place = lambda rows: self.placed(base.rows(rows), move[rows], v[rows])
        return MeshMotion(base.t, place)

    def _tangent(self, columns: list[Column]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions of the columns in the tangent space at the finest one, and velocities: (p, K, n) each.

        The third result are the magnitudes of q (K, n).
        """
        base, velocities = columns[-1], np.stack([column.v for column in columns])
        found = [self.compared(base.q, column.q) for column in columns]
        return np.stack([move for move, _ in found]), velocities, found[0][1]

    def compared(self, q: np.ndarray, other: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tangent vectors (K, n) from points q (K, size) to others, and the magnitudes of q (K, n).

        Those of assemblies are computed node by node.
        """
        system = self.setup.system
        if isinstance(system.space, Euclidean):
            return other - q, np.abs(q)
        if not isinstance(system, Assembly):
            return _compared(system.space, q.shape[1:])((q, other))
        move, magnitude = (np.empty((len(q), self.setup.dims.n)) for _ in range(2))
        for model in self._nodes:
            at, (size, n) = model.places, model.dims[:2]
            found = _compared(model.space, (size,))([x[:, at.q].reshape(-1, size) for x in (q, other)])
            move[:, at.v], magnitude[:, at.v] = (x.reshape(len(q), -1, n) for x in found)
        return move, magnitude

    def placed(self, base: Column, move: np.ndarray, v: np.ndarray) -> Column:
        """States moved in their tangent space and then onto the constraints, with velocities v."""
        system, dims = self.setup.system, self.setup.dims
        if sparse.sizeable(self.setup):
            near = self._projector.near
            found = [near(t, q, d, v) for t, q, d, v in zip(*base[:2], move, v, strict=True)]
            return Column(base.t, *(np.stack(x) for x in zip(*found, strict=True)))
        doubles, rebuild, fixed = floating(self.args)

        def function(t: Any, q: Any, d: Any, v: Any, x: Any) -> Any:
            return moved(self.setup, t, q, d, v, rebuild(x))

        rows = (base.t, base.q, move, v, [np.asarray(x)[None] for x in doubles])
        example = jax.tree.map(lambda x: x[0], rows)
        key = ("nearest", dims, shapes(example), fixed)
        nearest = system._programs.made(key, lambda: Rowwise("nearest", function, example, LIMIT, often=True))
        return Column(base.t, *nearest(rows))

    @functools.cached_property
    def _nodes(self) -> list[KindModel]:
        assembly = self.setup.system
        assert isinstance(assembly, Assembly)
        return of_nodes(assembly)

    @functools.cached_property
    def _projector(self) -> Projector:
        return sparse.projector(self.setup, self.args)

    def excess(self, attempt: Combination, dense: bool) -> tuple[float, str]:
        """Errors of the motion between the rows and of forces in units of what is wanted, and in words."""
        if dense and (inside := self.between(attempt)) > 1:
            return inside, f"between the rows it is {inside:.2g} times that"
        if self.want.forces is not None and (forces := self._forces(attempt)) > 1:
            return forces, f"that of the multipliers is {forces:.2g} times their own accuracy"
        return 0.0, ""

    def _forces(self, attempt: Combination) -> float:
        """The largest error of λ and of ψ, in units of their accuracy."""
        one, two = (self.columns.derived(x.all()) for x in (attempt.motion, attempt.other))
        assert self.want.forces is not None
        parts = ((one.lam, two.lam), (one.psi, two.psi))
        errors = (relative(x - y, x) for x, y in parts)
        return attempt.judgement.factor * max(errors) / self.want.forces

    def between(self, attempt: Combination) -> float:
        """The error of the motion between the rows, in units of the accuracy.

        It is found from the interpolant through every second row, whose error is some 2⁵ times as large. That
        of first-order states, which have one derivative less, is 2⁴ times as large.
        """
        worst, space = 0.0, self.setup.system.space
        whole = self.smooth(attempt.mesh, attempt.motion.all())
        order = np.where(space.moved(whole.v.shape[1]), 1.0, 2.0)
        first = 0
        for count in attempt.mesh.counts:
            part = Smooth(*(x[first : first + count + 1] for x in whole))
            first += count + 1
            even, inner = (Smooth(*(x[of] for x in part)) for of in (slice(0, None, 2), slice(1, None, 2)))
            inner = inner if count % 2 == 0 else Smooth(*(x[:-1] for x in inner))
            q, v = sampling.smooth(space, even, inner.t)
            error = attempt.sizes.norm(self.compared(inner.q, q)[0], order * (v - inner.v)) / BETWEEN
            worst = max(worst, float(error.max(initial=0.0)))
        return worst

    def smooth(self, mesh: StepMesh, motion: Column) -> Smooth:
        """The motion on a mesh, or on the first part of it, with its accelerations."""
        part = nodes(mesh, motion)
        return Smooth(*part, self.columns.derived(part).a)


def nodes(mesh: StepMesh, motion: Column) -> Column:
    """The motion on a mesh, or on the first part of it, with two rows at each breakpoint.

    They lie beside it, because accelerations may differ on its sides.
    """
    inner, last = np.cumsum(mesh.counts)[:-1], len(motion.t) - 1
    rows = np.sort(np.concatenate([np.arange(last + 1), inner[inner < last]]))
    part = motion.rows(rows)
    for i in np.flatnonzero(np.diff(rows) == 0):
        part.t[i : i + 2] += np.array([-mesh.aside, mesh.aside])
    return part


def relative(difference: np.ndarray, of: np.ndarray) -> float:
    """The largest difference, relative to the largest value; zero if there are none."""
    size = np.abs(of).max(initial=0.0)
    return float(np.abs(difference).max() / size) if size > 0 else 0.0


def moved(setup: Setup, t: Any, q: Any, d: Any, v: Any, args: Args) -> tuple[Any, Any]:
    """q moved by d in its tangent space, and v, both then moved onto the constraints."""
    q = setup.system.space.retract(q, d)
    return initial_values.nearest(setup.system, setup.dims, t, q, v, args)[:2]


@functools.lru_cache(maxsize=64)
def _compared(space: Any, shape: tuple[int, ...]) -> Rowwise:
    """The tangent vectors from points of a space to others, and the magnitudes of the points."""
    example = np.full(shape, 0.5)
    function = lambda a, b: (space.difference(a, b), space.magnitude(a))
    return Rowwise("compared", function, (example, example), often=True)
