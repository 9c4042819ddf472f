"""Functions of the rows of a motion, compiled once for all bodies, coordinates or connectors of a kind."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.rowwise import Rowwise
from genalpha.multibody import reactions
from genalpha.multibody.forces import JointForce, direction
from genalpha.multibody.frames import BodyKind, FrameState, Wrench
from genalpha.multibody.groups import Same
from genalpha.multibody.joints import Coordinate
from genalpha.multibody.vectors import skew

_STILL = FrameState(np.zeros(3), np.eye(3), np.zeros(3), np.zeros(3))


def load_on(functions: Any, k: int, t: Any, lam: Any, psi: Any, frames: Any) -> Wrench:
    """What a joint does to frame ``k``, with friction."""
    if "friction" in functions:
        return reactions.both(functions, t, lam, psi, *frames)[k]
    return reactions.ideal(functions, k, t, lam, psi, frames)


def seen_load(functions: Any, k: int, t: Any, lam: Any, psi: Any, *frames: FrameState) -> Any:
    return tuple(frames[0].seen(x) for x in load_on(functions, k, t, lam, psi, frames))


def seen_force(functions: Any, k: int, t: Any, lam: Any, psi: Any, *frames: FrameState) -> Any:
    return tuple(frames[0].seen(jnp.asarray(x)) for x in functions["force"](t, *frames)[k])


def effort_of(functions: Any, by: Coordinate, t: Any, lam: Any, psi: Any, *frames: FrameState) -> Any:
    """What acts along a coordinate, on the body of frame b."""
    a, b = frames
    given = "force" in functions
    load = functions["force"](t, a, b)[1] if given else load_on(functions, 1, t, lam, psi, frames)
    if by.turns:
        return jnp.asarray(load.torque) @ by.axis(a, b)
    return a.seen(jnp.asarray(load.force))[direction(by)]


def rubbing(functions: Any, t: Any, lam: Any, psi: Any, a: FrameState, b: FrameState) -> Any:
    load = reactions.ideal(functions, 1, t, lam, psi, (a, b))
    return tuple(a.seen(x) for x in reactions.rubbed(functions, load, a, b))


def power_of(functions: Any, t: Any, lam: Any, psi: Any, *frames: FrameState) -> Any:
    if "force" in functions:
        loads = functions["force"](t, *frames)
    else:
        loads = [load_on(functions, k, t, lam, psi, frames) for k in range(len(frames))]
    both = zip(loads, frames, strict=True)
    return sum(jnp.asarray(w.force) @ f.v + jnp.asarray(w.torque) @ f.w for w, f in both)


@functools.lru_cache(maxsize=128)
def function_of_kind(same: Same, what: Callable[..., Any], *more: Any) -> Rowwise:
    """``what(functions, *more, t, lam, psi, *frames)`` of connectors of a kind, with their numbers first."""
    one = same.one
    sizes = [np.zeros(len(one.kept(speeds))) for speeds in (False, True)]
    function = lambda own, *rest: what(one.bound(own), *more, *rest)
    still = [_STILL] * len(one.markers)
    return Rowwise("motion", function, (dict(one.numbers), np.zeros(()), *sizes, *still))


@functools.cache
def frames_of(kind: BodyKind) -> Rowwise:
    """The frames of bodies of a kind."""
    size, n = kind.sizes
    return Rowwise("frame", kind.state, (np.zeros(size), np.zeros(n), np.zeros(3), np.eye(3)))


@functools.cache
def changes_of(kind: BodyKind) -> Rowwise:
    """The derivatives of frames of bodies of a kind, for q, v and the derivative of v."""
    size, n = kind.sizes

    def change(q: Any, v: Any, a: Any, r: Any, Q: Any) -> FrameState:
        rate = kind.space.rate(q, v)  # type: ignore[union-attr]
        return jax.jvp(lambda q, v: kind.state(q, v, r, Q), (q, v), (rate, a))[1]

    return Rowwise("change", change, (np.zeros(size), np.zeros(n), np.zeros(n), np.zeros(3), np.eye(3)))


@functools.lru_cache(maxsize=32)
def value_of(one: Coordinate) -> Rowwise:
    """A coordinate as a function of two frames."""
    return Rowwise("coordinate", one.value, (_STILL, _STILL))


@functools.lru_cache(maxsize=32)
def rate_of(one: Coordinate) -> Rowwise:
    """The rate of a coordinate as a function of two frames."""

    def rate(a: FrameState, b: FrameState) -> Any:
        value = lambda x, R, y, S: one.value(a._replace(x=x, R=R), b._replace(x=y, R=S))
        spun = [skew(f.w) @ f.R for f in (a, b)]
        return jax.jvp(value, (a.x, a.R, b.x, b.R), (a.v, spun[0], b.v, spun[1]))[1]

    return Rowwise("rate", rate, (_STILL, _STILL))


@functools.lru_cache(maxsize=32)
def rate_change_of(one: Coordinate) -> Rowwise:
    """The derivative of the rate of a coordinate, for two frames and their derivatives."""
    rate = lambda a, b: JointForce.moved(one, a, b)[1]
    change = lambda a, b, da, db: jax.jvp(rate, (a, b), (da, db))[1]
    return Rowwise("change", change, (_STILL,) * 4)
