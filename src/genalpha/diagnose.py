"""Status codes, and the sentences they become."""

from __future__ import annotations

SUCCESS = 0
NOT_CONVERGED = 1
SINGULAR = 2
NOT_FINITE = 3
INCONSISTENT = 4
BAD_STEPS = 5

MESSAGES = {
    SUCCESS: "reached the end of the time span",
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
    BAD_STEPS: "the traced step sizes are not all positive, or do not sum to the time span",
    INCONSISTENT: (
        "q0 or v0 break the constraints. Correct them, or pass initial='project' to move them there"
    ),
}


def reason(status: int) -> str:
    """What went wrong, without the advice.

    >>> reason(NOT_CONVERGED)
    "Newton's iteration did not converge"
    """
    return MESSAGES[status].split(". ")[0]


def message(status: int, t: float | None = None, step: int | None = None) -> str:
    """The sentence behind a status code, with the time and step of a failure.

    >>> message(SUCCESS)
    'reached the end of the time span'
    """
    text = MESSAGES[status]
    if status == SUCCESS or t is None:
        return text
    return f"stopped after t = {t:.9g} (step {step}): {text}"
