"""Linear equations of a system along a motion, on the motions that the constraints allow.

With increments d of q in the tangent space and changes w of v, all at one time:

    d' = w − [v, d],   w' = δa,   M δa + K d + C w + L δμ = F u,
    B w + H d = 0,     B δa + J d + D w = 0.

d and w follow from the coordinates x of positions and y of velocities that are left.
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
from genalpha.numerics.derivatives import jacobian, value_and_rate
from genalpha.statics.tangent import Tangent
from genalpha.statics.whole import Whole

# Columns of ignored coordinates are zero up to this, relative to the largest entry.
_ZERO = 1e-7


class Point(NamedTuple):
    """A consistent state: t, q (size,), v (n,), a (n,), λ (m,), ψ (p,)."""

    t: float
    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    lam: np.ndarray
    psi: np.ndarray


class Values(NamedTuple):
    """A function of the user's at a state, (r,), and derivatives (r, n) with respect to increments and v.

    ``rate_by_q`` and ``rate_by_v`` (r, n) are those of its time derivative along the motion.
    """

    value: np.ndarray
    by_q: np.ndarray
    by_v: np.ndarray
    rate_by_q: np.ndarray
    rate_by_v: np.ndarray


def evaluated(whole: Whole, function: Callable[..., Any], at: Point, what: str) -> Values:
    """A function (t, q, v, *args) of the user's at a state, with derivatives."""
    doubles, rebuild, _ = floating(whole.args)
    space, size = whole.system.space, whole.dims.size
    flat = lambda t, q, v, x: jnp.ravel(jnp.asarray(function(t, q, v, *rebuild(x)), float))

    def rows(t: Any, q: Any, v: Any, a: Any, x: Any) -> Any:
        value = lambda both: flat(t, both[:size], both[size:], x)

        def rate(both: Any) -> Any:
            direction = (jnp.ones_like(t), space.rate(both[:size], both[size:]), a)
            return value_and_rate(lambda t, q, v: flat(t, q, v, x), (t, both[:size], both[size:]), direction)[
                1
            ]

        both = jnp.concatenate([q, v])
        pulled = lambda matrix: jax.vmap(lambda row: space.pull(q, row))(matrix[:, :size])
        first, second = jacobian(value, both), jacobian(rate, both)
        return flat(t, q, v, x), pulled(first), first[:, size:], pulled(second), second[:, size:]

    given = (np.float64(at.t), at.q, at.v, at.a, doubles)
    try:
        found = Rowwise("linear", rows, given).one(given)
    except Exception as error:
        error.add_note(f"This happened in {what}, a function (t, q, v, *args).")
        raise
    return Values(*map(np.asarray, found))


class Coordinates(NamedTuple):
    """Functions of the user's that measure positions, (t, q, *args), and velocities, (t, q, v, *args)."""

    positions: Callable[..., Any]
    speeds: Callable[..., Any] | None


@dataclass(frozen=True)
class Variation:
    """Linear equations at a state.

    x are r coordinates of positions, y are s coordinates of velocities. ``d`` and ``w`` (n, r + s) give
    increments and changes of velocities from (x, y), and (x', y') = A (x, y). ``solved(F)`` (n, k) are
    accelerations by more forces F (n, k), and ``measured`` are their effects (s, k) on y'. ``places`` are the
    entries of d and w that x and y are; None if they are functions.
    """

    whole: Whole
    at: Point
    M: np.ndarray
    d: np.ndarray
    w: np.ndarray
    A: np.ndarray
    solved: Callable[[np.ndarray], np.ndarray]
    measured: Callable[[np.ndarray], np.ndarray]
    sizes: tuple[int, int]
    places: tuple[np.ndarray, np.ndarray] | None

    def B(self, forces: np.ndarray) -> np.ndarray:
        """The matrix (r + s, k) of forces (n, k) that are added."""
        return np.vstack([np.zeros((self.sizes[0], forces.shape[1])), self.measured(self.solved(forces))])


def point(whole: Whole, t: float, q: np.ndarray, v: np.ndarray, guess: np.ndarray | None = None) -> Point:
    """A state with consistent accelerations and multipliers."""
    a, mult, _ = whole.accelerations(whole.at(q, v, t), guess)
    return Point(t, q, v, a, *whole.split(mult))


def variation(whole: Whole, at: Point, by: Coordinates | None = None) -> Variation:
    """The linear equations at a state, by dense matrices."""
    n, m, p = whole.dims[1:]
    here, slopes = whole.at(at.q, at.v, at.t), whole.slopes(*at)
    B, unit = here.B.toarray(), np.asarray(here.scale.a)
    all_by_q, all_by_v = (x.toarray() for x in slopes)
    K, H, J = np.split(all_by_q, [n, n + m + p])
    C, _, D = np.split(all_by_v, [n, n + m + p])
    M, L = here.M.toarray(), whole.loads(here, at.lam, at.psi).toarray()
    of_all = Tangent(B, unit)
    chosen = _by_entries if by is None else functools.partial(_by_functions, by)
    found = chosen(whole, at, B, H, unit)
    left = of_all.basis if whole.equations.linear else Tangent(L.T, np.ones(n)).basis
    inner = left.T @ M @ of_all.basis

    def solved(forces: np.ndarray, rows: np.ndarray | None = None) -> np.ndarray:
        first = np.zeros_like(forces) if rows is None else of_all.part(rows)
        if not of_all.basis.shape[1]:
            return first
        return first + of_all.basis @ np.linalg.solve(inner, left.T @ (forces - M @ first))

    free = solved(-K @ found.d - C @ found.w, -J @ found.d - D @ found.w)
    A = np.vstack([found.x_rate, found.measured(free) + found.y_rate])
    r, s = found.sizes
    if found.ignored:
        _check_ignored(A, found.ignored, r)
        keep = np.r_[:r, r + found.ignored : A.shape[1]]
        A, found = A[:, keep], found._replace(d=found.d[:, keep], w=found.w[:, keep])
    return Variation(whole, at, M, found.d, found.w, A, solved, found.measured, (r, s), found.places)


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
    places: tuple[np.ndarray, np.ndarray] | None


def _by_entries(whole: Whole, at: Point, B: np.ndarray, H: np.ndarray, unit: np.ndarray) -> _Chosen:
    """x and y are entries of d and w that determine the others."""
    n, m = whole.dims.n, whole.dims.m
    of_g, of_all = Tangent(B[:m], unit), Tangent(B, unit)
    Z = of_g.basis
    rest = Tangent(B[m:] @ Z, unit[of_g.free])
    Y, speeds = Z @ rest.basis, of_g.free[rest.free]
    w_of_x = of_all.part(-H @ Z)
    w_of_x -= Y @ w_of_x[speeds]
    r, s = Z.shape[1], Y.shape[1]
    d, w = np.hstack([Z, np.zeros((n, s))]), np.hstack([w_of_x, Y])
    drift = whole.bracket(at.v) @ d if at.v.any() else 0.0
    x_rate = (w - drift)[of_g.free]
    return _Chosen(d, w, x_rate, np.zeros((s, r + s)), lambda a: a[speeds], (r, s), 0, (of_g.free, speeds))


def _by_functions(
    by: Coordinates, whole: Whole, at: Point, B: np.ndarray, H: np.ndarray, unit: np.ndarray
) -> _Chosen:
    """x and y are functions of the user's. Motions that change none of them are ignored."""
    n, m = whole.dims.n, whole.dims.m
    places = evaluated(whole, lambda t, q, v, *args: by.positions(t, q, *args), at, "coordinates")
    r = len(places.value)
    of_x = Tangent(np.vstack([B[:m], places.by_q]), unit)
    if of_x.rank < Tangent(B[:m], unit).rank + r:
        raise ValueError(
            "coordinates: some are not independent of each other and of the holonomic constraints here. "
            "Leave them out"
        )
    Z = np.hstack([of_x.part(np.vstack([np.zeros((m, r)), np.eye(r)])), of_x.basis])
    fast = evaluated(whole, by.speeds or _rate_of(whole, by.positions), at, "speeds")
    s = len(fast.value)
    of_y = Tangent(np.vstack([B, fast.by_v]), unit)
    dofs = n - Tangent(B, unit).rank
    if of_y.rank < n or s != dofs:
        raise ValueError(
            f"speeds: {s} functions must determine the {dofs} independent velocities here, and do not"
            + (". Pass them: the rates of the coordinates were taken" if by.speeds is None else "")
        )
    rows = len(B)
    w_of_x = of_y.part(np.vstack([-H @ Z, -fast.by_q @ Z]))
    w_of_y = of_y.part(np.vstack([np.zeros((rows, s)), np.eye(s)]))
    d, w = np.hstack([Z, np.zeros((n, s))]), np.hstack([w_of_x, w_of_y])
    x_rate = places.rate_by_q @ d + places.rate_by_v @ w
    y_rate = fast.rate_by_q @ d + fast.rate_by_v @ w
    return _Chosen(d, w, x_rate, y_rate, lambda a: fast.by_v @ a, (r, s), Z.shape[1] - r, None)


def _rate_of(whole: Whole, function: Callable[..., Any]) -> Callable[..., Any]:
    """The time derivative of a function (t, q, *args) as one of (t, q, v, *args)."""
    space = whole.system.space

    def rate(t: Any, q: Any, v: Any, *args: Any) -> Any:
        value = lambda t, q: jnp.ravel(jnp.asarray(function(t, q, *args), float))
        return value_and_rate(value, (t, q), (jnp.ones_like(t), space.rate(q, v)))[1]

    return rate


def _check_ignored(A: np.ndarray, ignored: int, r: int) -> None:
    worst = np.abs(A[:, r : r + ignored]).max(initial=0.0)
    size = np.abs(A).max(initial=0.0)
    if worst > _ZERO * size:
        raise ValueError(
            f"coordinates: {ignored} more motions are possible, which change none of them, and the equations "
            f"depend on these (by {worst:.3g}). Add coordinates, or choose others if this is a steady motion"
        )
