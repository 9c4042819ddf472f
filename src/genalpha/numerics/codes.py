"""Status codes and their messages."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

UNIT_TOLERANCE = 1e-6  # for the length of a quaternion at the start

# Zero and negative codes mean success.
SUCCESS = 0
EVENT = -1
STOPPED = -2
INTERRUPTED = -3
NOT_CONVERGED = 1
SINGULAR = 2
NOT_FINITE = 3
INCONSISTENT = 4
BAD_STEPS = 5
TURNED = 6
NOT_A_ROTATION = 7
# 8 is used inside the native driver only (`backends.native.writer`).
TOO_SMALL = 9
TOO_MANY = 10
CROWDED = 11
REDUNDANT = 12
NOT_RESUMED = 13
INACCURATE = 14
TOO_MANY_EVENTS = 15

# status = code + _WHICH * detail. The detail is the number of a rotation, or the code of the cause.
_WHICH = 16

MESSAGES = {
    SUCCESS: "reached the end of the time span",
    EVENT: "a terminal event ended the run",
    STOPPED: "the callback ended the run",
    INTERRUPTED: "the run was interrupted",
    NOT_CONVERGED: "Newton's iteration did not converge. Try a smaller h",
    SINGULAR: (
        "the Newton matrix is singular: constraints are dependent there, or the mass matrix is singular on "
        "the motions they allow. Look for a kinematic singularity at this configuration, or try a smaller h"
    ),
    NOT_FINITE: (
        "a force, mass matrix or constraint became NaN or infinite. Evaluate the system's functions at the "
        "last good row, or try a smaller h"
    ),
    TURNED: (
        "{} turned by more than π in one step, so the direction of the turn is not known. Choose a smaller "
        "h, below π divided by the angular velocity"
    ),
    NOT_A_ROTATION: "the quaternion of {} is not of length one. Divide it by its length",
    BAD_STEPS: "the traced step sizes h are not all positive, or do not add up to the time span. Correct h",
    TOO_SMALL: (
        "the step size fell below its limit: {}. Look for the cause at this time (a force that jumps, a "
        "kinematic singularity). If there is none, loosen rtol and atol"
    ),
    TOO_MANY: (
        "max_steps were taken before the end of the time span. Loosen rtol and atol, or raise max_steps"
    ),
    CROWDED: (
        "one event reset the velocities 30 times within a millionth of the time span: its resets never end "
        "(Zeno behaviour). Let the reset end the run at a small speed, with ga.Reset(stop=True), and "
        "continue with a system in which the contact stays closed"
    ),
    TOO_MANY_EVENTS: (
        "an event happened more often than max_events, which bounds the number of events under a JAX "
        "transform. Raise max_events"
    ),
    INACCURATE: "the accuracy was not reached",
    NOT_RESUMED: "the run cannot continue after an event",
    REDUNDANT: "the run cannot continue with the independent constraints that redundant='min_norm' chose",
    INCONSISTENT: (
        "q0 or v0 break the constraints. Correct them, or pass initial='project' to move them onto the "
        "constraints"
    ),
}


def turned(status: Array, turns: Array) -> Array:
    """The status of a step in which the rotations of the space turned by the angles ``turns`` (k,).

    >>> int(turned(jnp.array(SUCCESS), jnp.array([0.1, 4.0]))) == TURNED + 16
    True
    """
    return status if turns.size == 0 else _about(TURNED, turns > jnp.pi, status)


def not_rotations(status: Array, defects: Array) -> Array:
    """The status of a start with quaternions whose lengths differ from one by ``defects`` (k,)."""
    return status if defects.size == 0 else _about(NOT_A_ROTATION, ~(defects <= UNIT_TOLERANCE), status)


def not_a_rotation(defects: np.ndarray) -> np.ndarray:
    """The same for NumPy and defects (..., k): SUCCESS, or the status of the first one that is too large."""
    if not defects.shape[-1]:
        return np.full(defects.shape[:-1], SUCCESS)
    bad = ~(defects <= UNIT_TOLERANCE)
    return np.where(bad.any(axis=-1), NOT_A_ROTATION + _WHICH * np.argmax(bad, axis=-1), SUCCESS)


def _about(code: int, where: Array, status: Array) -> Array:
    return first(status, jnp.where(jnp.any(where), code + _WHICH * jnp.argmax(where), SUCCESS))


def too_small(behind: Array) -> Array:
    """The status of a run whose step size fell below its limit; ``behind`` is that of the last step tried.

    >>> int(too_small(jnp.array(NOT_CONVERGED))) == TOO_SMALL + 16 * NOT_CONVERGED
    True
    """
    return TOO_SMALL + _WHICH * (behind - _WHICH * jnp.floor(behind / _WHICH))


def behind(status: int) -> int:
    """The code of a status. If the step size fell below its limit, the code of the cause."""
    which, code = divmod(int(status), _WHICH)
    return which if code == TOO_SMALL else code


def first(status: Array, later: Array | int) -> Array:
    """The first of two statuses that is not success."""
    return jnp.where(status == SUCCESS, later, status)


def reason(status: int, rotations: tuple[str, ...] = ()) -> str:
    """The first sentence of a message: what went wrong, without the advice.

    >>> reason(NOT_CONVERGED)
    "Newton's iteration did not converge"
    """
    return _text(status, rotations).split(". ")[0]


def no_projection(status: int, held: bool) -> str:
    """Why there is no nearest point on the constraints. ``held`` says that some components were kept."""
    if held:
        return (
            f"{reason(status)}. What hold keeps may contradict the constraints, or leave too little free: "
            "hold fewer components, or choose their values so that the constraints can be met"
        )
    if status != SINGULAR:
        return reason(status)
    return (
        "gradients of the constraints vanish or are dependent there. Start from another guess, for example "
        "with links that are neither aligned nor of length zero"
    )


def _text(status: int, rotations: tuple[str, ...]) -> str:
    if status <= SUCCESS:
        return MESSAGES[status]
    which, code = divmod(status, _WHICH)
    if code == TOO_SMALL:
        behind = (
            reason(which) if which else "the estimated error stays above the tolerance in the smallest step"
        )
        return MESSAGES[code].format(behind)
    name = rotations[which] if which < len(rotations) else f"rotation {which}"
    return MESSAGES[code].format(name)


def message(status: int, t: float, step: int, rotations: tuple[str, ...] = ()) -> str:
    """The message of a status, with the time and step of a failure.

    ``rotations`` are the names of the rotations in the space.

    >>> message(SUCCESS, 1.0, 100)
    'reached the end of the time span'
    """
    text = _text(status, rotations)
    return text if status <= SUCCESS else f"stopped after t = {t:.9g} (step {step}): {text}"
