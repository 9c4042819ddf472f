"""Between the steps: an interpolant of third order in q and v, of second in a, λ and ψ, on any space."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from genalpha.compiler.graph import Unsupported
from genalpha.compiler.rows import RowFunction
from genalpha.mechanics.spaces import Space
from genalpha.numerics.data import State

_BESIDE = 1e-9  # the end of a run, relative to its length


class StepEnd(NamedTuple):
    """What an end of a step says about the motion: t, q (size,), v (n,), λ (m,), ψ (p,)."""

    t: Any
    q: Any
    v: Any
    lam: Any
    psi: Any


def at(space: Space, nodes: StepEnd, t: Any) -> State:
    """The motion at times t (K,) from the ends of all steps, (N+1, ...) each; times may repeat in them."""
    if isinstance(nodes.q, np.ndarray) and isinstance(t, np.ndarray):
        after = np.maximum(steps_of(nodes.t, t), 1)
        pick = lambda index: StepEnd(*(x[index] for x in nodes))
        return ends(space, pick(after - 1), pick(after), t)
    nodes = StepEnd(*map(jnp.asarray, nodes))
    return within(space, nodes, jnp.maximum(steps_of(nodes.t, t), 1), t)


def within(space: Space, nodes: StepEnd, steps: Any, t: Any) -> State:
    """The motion at traced times t (K,) that lie in these steps (K,), or are the start."""
    pick = lambda i: StepEnd(*(x[i] for x in nodes))
    step = lambda i, t: between(space, pick(jnp.maximum(i - 1, 0)), pick(i), t)
    last = jnp.nanmax(nodes.t)  # nothing is known after a failure; traced steps may end beside t1
    reached = t <= last + _BESIDE * (last - nodes.t[0])
    return jax.vmap(lambda i, t, reached: jax.tree.map(lambda x: jnp.where(reached, x, jnp.nan), step(i, t)))(
        steps, t, reached
    )


def steps_of(ends: Any, t: Any) -> Any:
    """The steps in which times t (K,) lie, counted from 1, by their ends (N+1,); 0 is the start itself."""
    np_ = np if isinstance(ends, np.ndarray) and isinstance(t, np.ndarray) else jnp
    return np_.minimum(np_.searchsorted(ends, t, side="left"), len(ends) - 1)


def ends(space: Space, before: StepEnd, after: StepEnd, t: np.ndarray) -> State:
    """:func:`between` for every row of its arguments (K, ...), by machine code where it can."""
    shapes = tuple(x.shape[1:] for x in after)
    return jax.tree.map(np.asarray, _compiled(space, shapes)(before, after, t))


@functools.lru_cache(maxsize=64)
def _compiled(space: Space, shapes: tuple[tuple[int, ...], ...]) -> Callable[..., State]:
    from genalpha.backends.native.kernels import RowCode

    function = functools.partial(between, space)
    example = StepEnd(*(np.full(shape, 0.5) for shape in shapes))
    later = example._replace(t=np.array(1.5))
    by_xla = jax.jit(jax.vmap(function))
    try:
        code = RowCode(RowFunction("between", function, (example, later, np.array(1.0))), 1)
    except Unsupported:
        return by_xla
    return lambda *rows: code(rows)[0]


def between(space: Space, before: StepEnd, after: StepEnd, t: Array) -> State:
    """The motion at a time t between two ends of a step, (q, v) exact at both.

    The velocity is the parabola through v_0 and v_1 whose mean leads from q_0 to q_1; the position follows
    from it. On a vector space that is Hermite's cubic and its derivative. On a Lie group, where log(q_0⁻¹
    q(t)) = ∫v + (t − t_0)³/12 [v, v'] + O(h⁴), the bracket is taken into account in both. The acceleration
    is the derivative of the velocity; multipliers are interpolated linearly.

    >>> from genalpha import Euclidean
    >>> ends = [StepEnd(t, jnp.array([t**3]), jnp.array([3 * t**2]), *jnp.zeros((2, 0))) for t in (1.0, 2.0)]
    >>> [float(x[0]) for x in between(Euclidean(1), *ends, jnp.array(1.5))[1:4]]  # t³, 3t², 6t
    [3.375, 6.75, 9.0]
    """
    h = after.t - before.t
    h = jnp.where(h == 0, 1.0, h)  # both ends are the same then
    s = (t - before.t) / h
    turn = space.bracket(before.v, after.v) * (h / 12)  # h²/12 [v, v']
    rise = after.v - before.v
    mean = space.difference(before.q, after.q) / h - turn
    bulge = 6 * (mean - before.v - 0.5 * rise)
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
