"""Interpolation between the steps, on any space: of third order in q and v, of second order in a, λ and ψ."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.mechanics.spaces import Space
from genalpha.numerics.data import State
from genalpha.numerics.derivatives import blanked, value_and_rate

_BESIDE = 1e-9  # distance from the end of a run, relative to its length, that counts as the end


class StepEnd(NamedTuple):
    """The motion at the start or the end of a step: t, q (size,), v (n,), λ (m,), ψ (p,)."""

    t: Any
    q: Any
    v: Any
    lam: Any
    psi: Any


class Smooth(NamedTuple):
    """The motion at the ends of intervals: t, q (size,), v (n,), a (n,)."""

    t: Any
    q: Any
    v: Any
    a: Any


def smooth(space: Space, before: Smooth, after: Smooth, t: Array) -> tuple[Array, Array]:
    """q and v at a time t in an interval, of fifth and fourth order. They meet q, v and v' at both ends.

    In coordinates θ with q = q_0 ∘ exp(θ) the motion is Hermite's quintic. Its derivatives at the end follow
    from those of the motion there, which to second order is q_1 ∘ exp(s v_1 + ½s²a_1).

    >>> from genalpha import Euclidean
    >>> ends = [Smooth(t, *(jnp.array([c * t**k]) for c, k in ((1, 5), (5, 4), (20, 3)))) for t in (1.0, 2.0)]
    >>> [float(x[0]) for x in smooth(Euclidean(1), *ends, jnp.array(1.5))]  # t⁵, 5t⁴
    [7.59375, 25.3125]
    """
    h = after.t - before.t
    h = jnp.where(h == 0, 1.0, h)
    x = (t - before.t) / h

    def along(s: Array) -> Array:
        return space.difference(before.q, space.retract(after.q, s * after.v + 0.5 * s**2 * after.a))

    def slope(s: Array) -> Array:
        return value_and_rate(along, (s,), (jnp.ones(()),))[1]

    zero = jnp.zeros(())
    end, (rate, bend) = along(zero), value_and_rate(slope, (zero,), (jnp.ones(()),))
    first, second = h * before.v, 0.5 * h**2 * before.a
    rest = end - first - second
    rise, turn = h * rate - first - 2 * second, h**2 * bend - 2 * second
    c3, c4 = 10 * rest - 4 * rise + 0.5 * turn, -15 * rest + 7 * rise - turn
    c5 = rest - c3 - c4
    theta = x * (first + x * (second + x * (c3 + x * (c4 + x * c5))))
    speed = (first + x * (2 * second + x * (3 * c3 + x * (4 * c4 + x * 5 * c5)))) / h
    q = space.retract(before.q, theta)
    moved = lambda s: space.difference(q, space.retract(before.q, theta + s * speed))
    v = value_and_rate(moved, (zero,), (jnp.ones(()),))[1]
    if not (of_positions := space.moved(len(v))).all():  # states: Hermite's cubic
        rise, slope = after.v - before.v, h * before.a
        bend = 3 * rise - h * (2 * before.a + after.a)
        cubic = before.v + x * (slope + x * (bend + x * (rise - slope - bend)))
        v = jnp.where(of_positions, v, cubic)
    return q, v


def within(space: Space, nodes: StepEnd, steps: Any, t: Any) -> State:
    """The motion at traced times t (K,) within the given steps (K,); step 0 is the start."""
    pick = lambda i: StepEnd(*(x[i] for x in nodes))
    step = lambda i, t: between(space, pick(jnp.maximum(i - 1, 0)), pick(i), t)
    last = jnp.nanmax(nodes.t)  # times after a failure are NaN; traced steps may end slightly off t1
    reached = t <= last + _BESIDE * (last - nodes.t[0])
    return jax.vmap(lambda i, t, reached: jax.tree.map(lambda x: blanked(~reached, x), step(i, t)))(
        steps, t, reached
    )


def steps_of(ends: Any, t: Any) -> Any:
    """The numbers of the steps that contain times t (K,), counted from 1; 0 is the start.

    ``ends`` (N+1,) are the start and the ends of all steps.
    """
    np_ = np if isinstance(ends, np.ndarray) and isinstance(t, np.ndarray) else jnp
    return np_.minimum(np_.searchsorted(ends, t, side="left"), len(ends) - 1)


def between(space: Space, before: StepEnd, after: StepEnd, t: Array) -> State:
    """The motion at a time t within a step. It meets q and v at both ends.

    The velocity is the parabola through v_0 and v_1 whose mean leads from q_0 to q_1. The position is its
    integral. On a vector space this is Hermite's cubic and its derivative. On a Lie group
    log(q_0⁻¹ q(t)) = ∫v + (t − t_0)³/12 [v, v'] + O(h⁴), and both formulas include the bracket. The
    acceleration is the derivative of the velocity. Multipliers, and first-order states, which have no
    positions, are interpolated linearly.

    >>> from genalpha import Euclidean
    >>> ends = [StepEnd(t, jnp.array([t**3]), jnp.array([3 * t**2]), *jnp.zeros((2, 0))) for t in (1.0, 2.0)]
    >>> [float(x[0]) for x in between(Euclidean(1), *ends, jnp.array(1.5))[1:4]]  # t³, 3t², 6t
    [3.375, 6.75, 9.0]
    """
    h = after.t - before.t
    h = jnp.where(h == 0, 1.0, h)  # h is 0 if both ends are the same
    s = (t - before.t) / h
    turn = space.bracket(before.v, after.v) * (h / 12)  # h²/12 [v, v']
    rise = after.v - before.v
    mean = space.difference(before.q, after.q) / h - turn
    bulge = 6 * (mean - before.v - 0.5 * rise)
    if not (of_positions := space.moved(len(rise))).all():
        bulge = jnp.where(of_positions, bulge, 0.0)
    along = h * (s * before.v + s**2 * (0.5 * rise + (0.5 - s / 3) * bulge) + s**3 * turn)
    mix = lambda a, b: a + s * (b - a)
    return State(
        t=t,
        q=space.retract(before.q, along),
        v=before.v + s * (rise + (1 - s) * bulge),
        a=(rise + (1 - 2 * s) * bulge) / h,
        lam=mix(before.lam, after.lam),
        psi=mix(before.psi, after.psi),
    )
