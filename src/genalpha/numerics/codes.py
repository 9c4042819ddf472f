"""Status codes, and the sentences they become."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

UNIT_TOLERANCE = 1e-6  # of the length of a quaternion at the start

# Zero, or negative: what was asked for was done.
SUCCESS = 0
EVENT = -1
STOPPED = -2
NOT_CONVERGED = 1
SINGULAR = 2
NOT_FINITE = 3
INCONSISTENT = 4
BAD_STEPS = 5
TURNED = 6
NOT_A_ROTATION = 7
# 8 is a status that never leaves the native driver (`kernels.step`).
TOO_SMALL = 9
TOO_MANY = 10
CROWDED = 11
REDUNDANT = 12
NOT_RESUMED = 13

# The higher bits of a status say which rotation of the space it is about, or what else is behind it.
_WHICH = 16

MESSAGES = {
    SUCCESS: "reached the end of the time span",
    EVENT: "a terminal event ended the run",
    STOPPED: "the callback ended the run",
    NOT_CONVERGED: (
        "Newton's iteration did not converge. Try a smaller h, newton=ga.Newton(policy='full'), "
        "or more max_iterations"
    ),
    SINGULAR: (
        "the Newton matrix is singular: constraints have become dependent, or the mass matrix is singular "
        "on the motions they allow (JN08 (12)). Look for a kinematic singularity at this configuration"
    ),
    NOT_FINITE: (
        "a force, mass matrix or constraint became NaN or infinite. Evaluate the system's functions at the "
        "last good row, or try a smaller h"
    ),
    TURNED: (
        "{} turned by more than π in one step, so the direction of the turn is lost. Choose a smaller h, "
        "below π divided by the angular velocity"
    ),
    NOT_A_ROTATION: "the quaternion of {} is not of length one. Normalise it",
    BAD_STEPS: "the traced step sizes are not all positive, or do not sum to the time span",
    TOO_SMALL: (
        "the step size fell below its limit: {}. Look at what happens there (a force that jumps, a kinematic "
        "singularity); if all is well, loosen rtol and atol"
    ),
    TOO_MANY: (
        "max_steps were taken before the end of the time span. Loosen rtol and atol, or raise max_steps"
    ),
    CROWDED: (
        "events follow each other without end (thirty resets in no time). End the run before, by a terminal "
        "event where the speed is small, and go on with a system in which the contact stays closed"
    ),
    NOT_RESUMED: "the run cannot go on after an event",
    REDUNDANT: "the choice of independent constraints among redundant ones does not lead any further",
    INCONSISTENT: (
        "q0 or v0 break the constraints. Correct them, or pass initial='project' to move them there"
    ),
}


def turned(status: Array, turns: Array) -> Array:
    """The status of a step that turned the rotations of its space by these angles (k,).

    >>> int(turned(jnp.array(SUCCESS), jnp.array([0.1, 4.0]))) == TURNED + 16
    True
    """
    return status if turns.size == 0 else _about(TURNED, turns > jnp.pi, status)


def not_rotations(status: Array, defects: Array) -> Array:
    """The status of a start with quaternions of lengths that differ from one by these numbers (k,)."""
    return status if defects.size == 0 else _about(NOT_A_ROTATION, ~(defects <= UNIT_TOLERANCE), status)


def _about(code: int, where: Array, status: Array) -> Array:
    return first(status, jnp.where(jnp.any(where), code + _WHICH * jnp.argmax(where), SUCCESS))


def too_small(behind: Array) -> Array:
    """The status of a run whose step size fell below its limit, from that of the last step tried.

    >>> int(too_small(jnp.array(NOT_CONVERGED))) == TOO_SMALL + 16 * NOT_CONVERGED
    True
    """
    return TOO_SMALL + _WHICH * (behind - _WHICH * jnp.floor(behind / _WHICH))


def behind(status: int) -> int:
    """The code of a status, or of what is behind it."""
    which, code = divmod(int(status), _WHICH)
    return which if code == TOO_SMALL else code


def first(status: Array, later: Array | int) -> Array:
    """The first of two statuses that is not success."""
    return jnp.where(status == SUCCESS, later, status)


def reason(status: int, rotations: tuple[str, ...] = ()) -> str:
    """What went wrong, without the advice.

    >>> reason(NOT_CONVERGED)
    "Newton's iteration did not converge"
    """
    return _text(status, rotations).split(". ")[0]


def _text(status: int, rotations: tuple[str, ...]) -> str:
    if status <= SUCCESS:
        return MESSAGES[status]
    which, code = divmod(status, _WHICH)
    if code == TOO_SMALL:
        behind = (
            reason(which) if which else "the estimated error stays above the tolerance however small it is"
        )
        return MESSAGES[code].format(behind)
    name = rotations[which] if which < len(rotations) else f"rotation {which}"
    return MESSAGES[code].format(name)


def message(status: int, t: float, step: int, rotations: tuple[str, ...] = ()) -> str:
    """The sentence behind a status code, with the time and step of a failure.

    ``rotations`` are the names of the rotations in the space.

    >>> message(SUCCESS, 1.0, 100)
    'reached the end of the time span'
    """
    text = _text(status, rotations)
    return text if status <= SUCCESS else f"stopped after t = {t:.9g} (step {step}): {text}"
