"""Reactions of joints as forces and torques on their frames, and the friction that they cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from genalpha.multibody.frames import FrameState, Wrench, drift
from genalpha.multibody.friction import Of
from genalpha.multibody.vectors import cross, skew

Functions = Mapping[str, Callable[..., Any]]


def ideal(functions: Functions, k: int, t: Any, lam: Any, psi: Any, frames: Sequence[FrameState]) -> Wrench:
    """What the constraints of a joint do to frame ``k``: the virtual work of λ and ψ."""
    one = frames[k]
    placed = lambda name, moved: functions[name](t, *frames[:k], moved, *frames[k + 1 :])
    shifted = lambda dx, turn: placed("holonomic", one._replace(x=one.x + dx, R=one.R + skew(turn) @ one.R))
    faster = lambda dv, dw: placed("nonholonomic", one._replace(v=one.v + dv, w=one.w + dw))
    zero, found = jnp.zeros(3), Wrench(jnp.zeros(3), jnp.zeros(3))
    for function, by in ((shifted, lam), (faster, psi)):
        if by.size:
            pulled = jax.vjp(function, zero, zero)[1](-by)
            found = Wrench(*(x + y for x, y in zip(found, pulled, strict=True)))
    return found


def relative(a: FrameState, b: FrameState) -> tuple[Any, Any]:
    """Velocity and angular velocity of b as seen from a, in the axes of a."""
    return a.seen(drift(a, b)), a.seen(b.w - a.w)


def rubbed(functions: Functions, load: Wrench, a: FrameState, b: FrameState) -> Wrench:
    """What the friction of a joint does to frame b, from what its constraints do to it."""
    seen = [a.seen(x) for x in load]
    return Wrench(*(a.R @ x for x in functions["friction"](*seen, *relative(a, b))))


def opposite(load: Wrench, a: FrameState, b: FrameState) -> Wrench:
    """The opposite of a load at frame b, as a load at frame a."""
    return Wrench(-load.force, -load.torque - cross(b.x - a.x, load.force))


def both(functions: Functions, t: Any, lam: Any, psi: Any, a: FrameState, b: FrameState) -> list[Wrench]:
    """What a joint with friction does to its two frames."""
    load = ideal(functions, 1, t, lam, psi, (a, b))
    more = rubbed(functions, load, a, b)
    load = Wrench(load.force + more.force, load.torque + more.torque)
    return [opposite(load, a, b), load]


def law(function: Callable[..., Any], numbers: dict[str, Any]) -> Callable[..., Any]:
    """The friction of a joint, taken from its numbers: a function of load and motion."""
    of = Of.taken(numbers)
    return lambda *of_joint: function(of, *of_joint)
