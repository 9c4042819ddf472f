"""Linear equations of a system along a motion, on the motions that the constraints allow.

With increments d of q in the tangent space and changes w of v, all at one time:

    d' = w − [v, d],   w' = δa,   M δa + K d + C w + L δμ = F u,
    B w + H d = 0,     B δa + J d + D w = 0.

d and w follow from the coordinates x of positions and y of velocities that are left. First-order states are
velocities without positions: they are among w and y, and their d is zero.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.step import floating
from genalpha.backends.rowwise import Rowwise
from genalpha.mechanics.along import rate_along
from genalpha.numerics.derivatives import jacobian, value_and_rate
from genalpha.statics.tangent import NullSpace, left_null
from genalpha.statics.whole import WholeSystem

# Columns of ignored coordinates are zero up to this, relative to the largest entry.
_ZERO = 1e-7
# Entries of d turn if their rates are larger than this, relative to the largest. They are chosen later, as if
# they were so many times larger.
_TURNING, _LATER = 1e-6, 1e4
# Steps of time that show whether equations change, and how fast they may, relative to their own rates.
_STEP, _STEADY = 1e-4, 1e-5


# Entries of increments and of velocities, or changes of both.
Places = tuple[np.ndarray, np.ndarray]


class StatePoint(NamedTuple):
    """A consistent state: t, q (size,), v (n,), a (n,), λ (m,), ψ (p,)."""

    t: float
    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    lam: np.ndarray
    psi: np.ndarray


class Measured(NamedTuple):
    """A function of the user's at a state, (r,), and derivatives (r, n) with respect to increments and v.

    ``rate_by_q`` and ``rate_by_v`` (r, n) are those of its time derivative along the motion.
    """

    value: np.ndarray
    by_q: np.ndarray
    by_v: np.ndarray
    rate_by_q: np.ndarray
    rate_by_v: np.ndarray


class Measure:
    """A function (t, q, v, *args) of the user's, and its derivatives at any state.

    Without ``rates``, those of its time derivative are left out.
    """

    def __init__(
        self, whole: WholeSystem, function: Callable[..., Any], what: str, rates: bool = True
    ) -> None:
        self.whole, self.function, self.what, self.rates = whole, function, what, rates
        self._made: Rowwise | None = None
        self._doubles, self._rebuild, _ = floating(whole.args)

    def _flat(self, t: Any, q: Any, v: Any, x: Any) -> Any:
        return jnp.ravel(jnp.asarray(self.function(t, q, v, *self._rebuild(x)), float))

    def _rows(self, t: Any, q: Any, v: Any, a: Any, x: Any) -> Any:
        space, size = self.whole.system.space, self.whole.dims.size
        value = lambda both: self._flat(t, both[:size], both[size:], x)

        def rate(both: Any) -> Any:
            q, v = both[:size], both[size:]
            direction = (jnp.ones_like(t), space.rate(q, v), a)
            return value_and_rate(lambda t, q, v: self._flat(t, q, v, x), (t, q, v), direction)[1]

        both, found = jnp.concatenate([q, v]), [self._flat(t, q, v, x)]
        for function in (value, rate) if self.rates else (value,):
            matrix = jacobian(function, both)
            found += [jax.vmap(lambda row: space.pull(q, row))(matrix[:, :size]), matrix[:, size:]]
        return tuple(found)

    def at(self, at: StatePoint) -> Measured:
        given = (np.float64(at.t), at.q, at.v, at.a, self._doubles)
        try:
            self._made = self._made or Rowwise("linear", self._rows, given)
            found = [np.asarray(x) for x in self._made.one(given)]
        except Exception as error:
            error.add_note(f"This happened in {self.what}, a function (t, q, v, *args).")
            raise
        return Measured(*found, *[np.zeros((0, 0))] * (5 - len(found)))


class Coordinates(NamedTuple):
    """Functions of the user's that measure positions and velocities."""

    positions: Measure
    speeds: Measure
    own_speeds: bool

    @classmethod
    def of(cls, whole: WholeSystem, positions: Any, speeds: Any) -> Coordinates:
        """From functions (t, q, *args) and (t, q, v, *args); speeds are rates of positions if not given."""
        first = Measure(whole, lambda t, q, v, *args: positions(t, q, *args), "coordinates")
        second = Measure(whole, speeds or _rate_of(whole, positions), "speeds")
        return cls(first, second, speeds is not None)


@dataclass(frozen=True)
class Variation:
    """Linear equations at a state.

    x are r coordinates of positions, y are s coordinates of velocities. ``d`` and ``w`` (n, r + s) give
    increments and changes of velocities from (x, y), and (x', y') = A (x, y). ``solved(F)`` (n, k) are
    accelerations by more forces F (n, k), and ``measured`` are their effects (s, k) on y'. ``places`` are the
    entries of d and w that x and y are; None if they are functions. ``ignored`` are d and w (n, i) of motions
    that change no coordinate.
    """

    whole: WholeSystem
    at: StatePoint
    M: np.ndarray
    d: np.ndarray
    w: np.ndarray
    A: np.ndarray
    solved: Callable[[np.ndarray], np.ndarray]
    measured: Callable[[np.ndarray], np.ndarray]
    sizes: tuple[int, int]
    places: Places | None
    ignored: Places

    def B(self, forces: np.ndarray) -> np.ndarray:
        """The matrix (r + s, k) of forces (n, k) that are added."""
        return np.vstack([np.zeros((self.sizes[0], forces.shape[1])), self.measured(self.solved(forces))])


def point(
    whole: WholeSystem, t: float, q: np.ndarray, v: np.ndarray, guess: np.ndarray | None = None
) -> StatePoint:
    """A state with consistent accelerations and multipliers."""
    a, mult, _ = whole.accelerations(whole.at(q, v, t), guess)
    return StatePoint(t, q, v, a, *whole.split(mult))


def variation(
    whole: WholeSystem, at: StatePoint, by: Coordinates | None = None, places: Places | None = None
) -> Variation:
    """The linear equations at a state, by dense matrices. ``places`` are the entries to take, if known."""
    n, m, p = whole.dims[1:]
    here, slopes = whole.at(at.q, at.v, at.t), whole.slopes(*at)
    B, unit = here.B.toarray(), np.asarray(here.scale.a)
    all_by_q, all_by_v = (x.toarray() for x in slopes)
    K, H, J = np.split(all_by_q, [n, n + m + p])
    C, _, D = np.split(all_by_v, [n, n + m + p])
    M, L = here.M.toarray(), whole.loads(here, at.lam, at.psi).toarray()
    of_all = NullSpace(B, unit)
    chosen = functools.partial(_by_entries, places) if by is None else functools.partial(_by_functions, by)
    found = chosen(whole, at, B, H, unit)
    left = left_null(L, of_all.basis, B)
    inner = left.T @ M @ of_all.basis

    def solved(forces: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        first = np.zeros_like(forces) if rows is None else of_all.part(rows)
        if not of_all.basis.shape[1]:
            return first
        return first + of_all.basis @ np.linalg.solve(inner, left.T @ (forces - M @ first))

    free = solved(-K @ found.d - C @ found.w, -J @ found.d - D @ found.w)
    A = np.vstack([found.x_rate, found.measured(free) + found.y_rate])
    r, s = found.sizes
    end = r + found.ignored
    _check_ignored(A, found.ignored, r)
    keep, others = np.r_[:r, end : A.shape[1]], np.r_[r:end]
    d, w, ignored = found.d[:, keep], found.w[:, keep], (found.d[:, others], found.w[:, others])
    return Variation(whole, at, M, d, w, A[:, keep], solved, found.measured, (r, s), found.places, ignored)


class _Chosen(NamedTuple):
    """d and w (n, r + ignored + s) from coordinates, and their rates.

    ``x_rate`` (r, ...) is that of x, ``y_rate`` (s, ...) that of y but for ``measured`` accelerations.
    """

    d: np.ndarray
    w: np.ndarray
    x_rate: np.ndarray
    y_rate: np.ndarray
    measured: Callable[[np.ndarray], np.ndarray]
    sizes: tuple[int, int]
    ignored: int
    places: Places | None


def _by_entries(
    places: Places | None, whole: WholeSystem, at: StatePoint, B: np.ndarray, H: np.ndarray, unit: np.ndarray
) -> _Chosen:
    """x and y are entries of d and w that determine the others.

    Entries that turn with a motion are determined by those that do not, if there are enough of these.
    """
    n, m = whole.dims.n, whole.dims.m
    bracket = whole.bracket(at.v) if at.v.any() else np.zeros((n, n))
    if places is None:
        turning = np.asarray(abs(bracket).sum(axis=1)).reshape(-1)
        later = np.where(turning > _TURNING * turning.max(initial=0.0), _LATER * unit, unit)
        of_g = NullSpace(B[:m], later)
        y = of_g.free[NullSpace(B[m:] @ of_g.basis, later[of_g.free]).free]
        places = of_g.free[whole.moved[of_g.free]], y
    r, s = (len(x) for x in places)
    pick = [np.eye(n)[x] for x in places]
    Z = NullSpace(np.vstack([B[:m], pick[0]]), unit).part(np.vstack([np.zeros((m, r)), np.eye(r)]))
    of_y = NullSpace(np.vstack([B, pick[1]]), unit)
    wanted = [np.vstack([-H @ Z, np.zeros((s, r))]), np.vstack([np.zeros((len(B), s)), np.eye(s)])]
    d, w = np.hstack([Z, np.zeros((n, s))]), of_y.part(np.hstack(wanted))
    x_rate, y_rate = (w - bracket @ d)[places[0]], np.zeros((s, r + s))
    return _Chosen(d, w, x_rate, y_rate, lambda a: a[places[1]], (r, s), 0, places)


def _by_functions(
    by: Coordinates, whole: WholeSystem, at: StatePoint, B: np.ndarray, H: np.ndarray, unit: np.ndarray
) -> _Chosen:
    """x and y are functions of the user's. Motions that change none of them are ignored."""
    n, places = whole.dims.n, by.positions.at(at)
    still = np.vstack([B[: whole.dims.m], np.eye(n)[~whole.moved]])  # zero for all increments of q
    r = len(places.value)
    of_x = NullSpace(np.vstack([still, places.by_q]), unit)
    if of_x.rank < NullSpace(still, unit).rank + r:
        raise ValueError(
            "coordinates: some are not independent of each other and of the holonomic constraints here. "
            "Leave them out"
        )
    Z = np.hstack([of_x.part(np.vstack([np.zeros((len(still), r)), np.eye(r)])), of_x.basis])
    fast = by.speeds.at(at)
    s = len(fast.value)
    of_y = NullSpace(np.vstack([B, fast.by_v]), unit)
    dofs = n - NullSpace(B, unit).rank
    if of_y.rank < n or s != dofs:
        raise ValueError(
            f"speeds: {s} functions must determine the {dofs} independent velocities here, and do not"
            + (". Pass them: the rates of the coordinates were taken" if not by.own_speeds else "")
        )
    rows = len(B)
    w_of_x = of_y.part(np.vstack([-H @ Z, -fast.by_q @ Z]))
    w_of_y = of_y.part(np.vstack([np.zeros((rows, s)), np.eye(s)]))
    d, w = np.hstack([Z, np.zeros((n, s))]), np.hstack([w_of_x, w_of_y])
    x_rate = places.rate_by_q @ d + places.rate_by_v @ w
    y_rate = fast.rate_by_q @ d + fast.rate_by_v @ w
    return _Chosen(d, w, x_rate, y_rate, lambda a: fast.by_v @ a, (r, s), Z.shape[1] - r, None)


def _rate_of(whole: WholeSystem, function: Callable[..., Any]) -> Callable[..., Any]:
    """The time derivative of a function (t, q, *args), and the states, as one of (t, q, v, *args)."""
    space, states = whole.system.space, np.flatnonzero(~whole.moved)

    def rate(t: Any, q: Any, v: Any, *args: Any) -> Any:
        value = lambda t, q: jnp.ravel(jnp.asarray(function(t, q, *args), float))
        found = rate_along(space, value, t, q, v)[1]
        return jnp.concatenate([found, v[states]])

    return rate


def _check_ignored(A: np.ndarray, ignored: int, r: int) -> None:
    worst = np.abs(A[:, r : r + ignored]).max(initial=0.0)
    size = np.abs(A).max(initial=0.0)
    if worst > _ZERO * size:
        raise ValueError(
            f"coordinates: {ignored} more motions are possible, which change none of them, and the equations "
            f"depend on these (by {worst:.3g}). Add coordinates, or choose others if this is a steady motion"
        )


def is_steady(found: Variation, by: Coordinates | None) -> bool:
    """Whether the linear equations stay the same along the motion, by differences."""
    at, whole = found.at, found.whole
    step = _STEP / max(1.0, np.abs(found.A).max(initial=0.0), np.abs(at.v).max(), np.abs(at.a).max() ** 0.5)
    matrices = []
    for h in (-step, step):
        q, v = whole.retract(at.q, h * at.v + 0.5 * h**2 * at.a), at.v + h * at.a
        there = point(whole, at.t + h, q, v, np.concatenate([at.lam, at.psi]))
        matrices.append(variation(whole, there, by, found.places).A)
    change = np.abs(matrices[1] - matrices[0]).max(initial=0.0) / (2 * step)
    size = np.abs(found.A).max(initial=0.0)
    return bool(change <= _STEADY * size * max(1.0, size))
