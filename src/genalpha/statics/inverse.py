"""Inverse dynamics: the forces of actuators that a prescribed motion needs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.sparse.equations import AtState
from genalpha.mechanics.spaces import Space
from genalpha.mechanics.system import System
from genalpha.run import arguments
from genalpha.run.arguments import Numbers
from genalpha.statics import inputs as given_inputs
from genalpha.statics.tangent import RANK, NullSpace, left_null
from genalpha.statics.variation import StatePoint
from genalpha.statics.whole import WholeSystem

# How far a motion may break constraints, relative to 1 + |q|, 1 + |v| and 1 + |a|.
_BROKEN = 1e-6
_BROKEN_BY_SAMPLES = 1e-3  # if v and a were found from samples
_NEAR = 7  # so many samples have a polynomial through them
_MOST = 30


@dataclass(frozen=True)
class InverseDynamics:
    """The motion in K rows, and what it needs.

    u (K, k) are the forces of the actuators, ``names`` theirs; effort (K, n) the generalized forces that they
    make; lam (K, m) and psi (K, p) multipliers and reaction (K, n) the forces of the constraints, so that
    M a = applied forces + effort + reaction.
    """

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    a: np.ndarray
    u: np.ndarray
    effort: np.ndarray
    lam: np.ndarray
    psi: np.ndarray
    reaction: np.ndarray
    names: tuple[str, ...]


def inverse_dynamics(
    system: System,
    t: Numbers,
    q: Callable[[Any], Any] | Numbers,
    *,
    v: Numbers | None = None,
    a: Numbers | None = None,
    actuators: Any = None,
    args: Sequence[Any] = (),
) -> InverseDynamics:
    """The forces of actuators that a prescribed motion needs, and the reactions of the constraints.

    system, args : as in :func:`solve`.
    t : times (K,).
    q : the motion: a JAX function of one time that returns q (size,), or samples (K, size) at the times t.
    v, a : velocities and accelerations (K, n) of the samples. By default those of polynomials of degree 6
        through seven neighbours, whose errors are largest at the ends.
    actuators : numbers of entries of v on which forces act, or a dict with names and directions as the inputs
        of :func:`linearize`. By default all entries of v.

    The motion must satisfy the constraints. If several forces do the same, those with the least norm are
    found. Raises a ValueError if the actuators cannot cause the motion.

    A mass of 2 on a slider, moved along t²:

    >>> import jax.numpy as jnp, genalpha as ga
    >>> slider = ga.System(
    ...     mass=2 * jnp.eye(2),
    ...     force=lambda t, q, v: jnp.array([0.0, -19.62]),
    ...     holonomic=lambda t, q: q[1:],
    ... )
    >>> need = ga.inverse_dynamics(slider, [0.0, 1.0], lambda t: jnp.array([t**2, 0.0]), actuators=[0])
    >>> need.u.round(6).tolist(), need.reaction[0].round(6).tolist()  # 2 · 2, and the weight
    ([[4.0], [4.0]], [0.0, 19.62])
    """
    arguments.is_system(system)
    times = np.asarray(arguments.vector("t", t))
    given = arguments.arguments(args)
    motion = _motion(system.space, times, q, v, a)
    if v is None and not system.space.moved(motion[1].shape[1]).all():
        raise ValueError("q does not say what the first-order states do: pass samples of q, v and a")
    whole = WholeSystem(system, times[0], motion[0][0], motion[1][0], given)
    n = whole.dims.n
    chosen = given_inputs.read(whole, list(range(n)) if actuators is None else actuators, "actuators")
    wrong = [name for name, value in chosen.items() if isinstance(value, str)]
    if wrong:
        raise TypeError(f"actuators: {wrong[0]!r} is a name; pass a number of a velocity or a direction (n,)")
    limit = _BROKEN if callable(q) or v is not None else _BROKEN_BY_SAMPLES
    rows: list[Any] = []
    names: tuple[str, ...] = ()
    guess = None
    for at in whole.equations.rows(times, motion[0], motion[1]):
        accelerations = motion[2][len(rows)]
        _check(at, accelerations, limit)
        here = StatePoint(at.t, at.q, at.v, accelerations, np.zeros(0), np.zeros(0))
        found, S, _ = given_inputs.forces(whole, here, chosen, "actuators")
        names = tuple(found)
        u, guess = _solved(whole, at, accelerations, S, names, guess)
        rows.append((u, S @ u, *whole.split(guess), at.reaction(*whole.split(guess))))
    u, effort, lam, psi, reaction = (np.stack(x) for x in zip(*rows, strict=True))
    return InverseDynamics(times, *motion, u, effort, lam, psi, reaction, names)


def _solved(
    whole: WholeSystem,
    at: AtState,
    a: np.ndarray,
    S: np.ndarray,
    names: tuple[str, ...],
    guess: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Forces u (k,) of the least norm, and multipliers (m + p,), with M a = applied + S u + reactions."""
    linear, wanted, B = whole.equations.linear, at.M @ a - at.applied, at.B.toarray()
    mult = np.zeros(len(B)) if linear or guess is None else guess
    unit = np.asarray(at.scale.a)
    for _ in range(1 if linear else _MOST):
        lam, psi = whole.split(mult)
        L, rest = whole.loads(at, lam, psi).toarray(), wanted - at.reaction(lam, psi)
        left = left_null(L, NullSpace(B, unit).basis, B)
        u = np.linalg.lstsq(left.T @ S, left.T @ rest, rcond=RANK)[0]
        change = np.linalg.lstsq(-L, rest - S @ u, rcond=RANK)[0]
        mult = mult + change
        if np.abs(change).max(initial=0.0) <= 1e-12 * np.abs(mult).max(initial=0.0):
            break
    missing = left.T @ (rest - S @ u) if left.size else np.zeros(0)
    size = (
        np.abs(left.T).sum(axis=1) * (np.abs(at.M @ a).max() + np.abs(at.applied).max())
        if left.size
        else missing
    )
    if np.any(np.abs(missing) > 1e-8 * size):
        raise ValueError(
            f"the actuators {', '.join(names)} cannot cause this motion at t = {at.t:.6g}: a generalized "
            f"force of {np.abs(missing).max():.3g} is missing along motions that the constraints allow. "
            f"Add actuators: there are {left.shape[1]} independent motions, and these act on "
            f"{np.linalg.matrix_rank(left.T @ S) if S.size else 0}"
        )
    return u, mult


def _check(at: AtState, a: np.ndarray, limit: float) -> None:
    """Raise if a motion breaks the constraints."""
    hidden = np.concatenate([at.g_ddot, at.k_dot]) + at.B @ a
    for what, rows, size in (
        ("holonomic constraints", at.g, at.q),
        ("constraints on velocities", np.concatenate([at.g_dot, at.k]), at.v),
        ("constraints on accelerations", hidden, a),
    ):
        worst = np.abs(rows).max(initial=0.0)
        if worst > limit * (1 + np.abs(size).max(initial=0.0)):
            raise ValueError(
                f"the prescribed motion breaks the {what} by {worst:.3g} at t = {at.t:.6g}. If it is given "
                "by samples, take more of them, or pass v and a"
            )


def _motion(space: Space, t: np.ndarray, q: Any, v: Any, a: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions (K, size), velocities and accelerations (K, n)."""
    if callable(q):
        if v is not None or a is not None:
            raise ValueError("v and a follow from the function q(t): pass them only with samples")
        return _of_function(space, t, q)
    points = np.asarray(q, dtype=float)
    if points.ndim != 2 or len(points) != len(t):
        raise ValueError(f"q must be a function or samples of shape ({len(t)}, size), got {points.shape}")
    if v is None and a is None:
        return points, *_of_samples(space, t, points)
    if v is None or a is None:
        raise ValueError("pass both v and a with samples of q, or none")
    return points, np.asarray(v, dtype=float), np.asarray(a, dtype=float)


def _of_function(space: Space, t: np.ndarray, q: Callable[[Any], Any]) -> tuple[Any, Any, Any]:
    def point(t: Any) -> Any:
        return space.normalize(jnp.asarray(q(t), float))

    def velocity(t: Any) -> Any:
        """The increment from q(t) to q(s), differentiated with respect to s at t."""
        here = point(t)
        return jax.jvp(lambda s: space.difference(here, point(s)), (t,), (jnp.ones_like(t),))[1]

    def all_of(t: Any) -> Any:
        return point(t), *jax.jvp(velocity, (t,), (jnp.ones_like(t),))

    found, v, a = jax.jit(jax.vmap(all_of))(jnp.asarray(t))
    return np.asarray(found), np.asarray(v), np.asarray(a)


@functools.lru_cache(maxsize=32)
def _increments(space: Space) -> Any:
    """The increments (K, near, n) from points (K, size) to others (K, near, size)."""
    return jax.jit(jax.vmap(jax.vmap(space.difference, (None, 0))))


def _of_samples(space: Space, t: np.ndarray, q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """v and a from the polynomials through the increments to neighbouring samples."""
    if len(t) < _NEAR:
        raise ValueError(f"{len(t)} samples are too few: pass at least {_NEAR}, or v and a")
    if not (np.diff(t) > 0).all():
        raise ValueError("the times of samples must rise")
    first = np.clip(np.arange(len(t)) - _NEAR // 2, 0, len(t) - _NEAR)
    near = first[:, None] + np.arange(_NEAR)
    ahead = t[near] - t[:, None]
    size = np.abs(ahead).max(axis=1)
    inverse = np.linalg.inv((ahead / size[:, None])[:, :, None] ** np.arange(_NEAR))
    increments = _increments(space)(jnp.asarray(q), jnp.asarray(q[near]))
    powers = inverse @ np.asarray(increments)
    return powers[:, 1] / size[:, None], 2 * powers[:, 2] / size[:, None] ** 2
