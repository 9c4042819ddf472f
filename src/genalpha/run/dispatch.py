"""Starts a run with independent constraints: traced by JAX, or computed now."""

from __future__ import annotations

from typing import Any

from genalpha.errors import IntegrationError, warn
from genalpha.mechanics.system import System
from genalpha.numerics.host import watched
from genalpha.results.solution import Solution
from genalpha.run import accurate, left_tables, request, single, traced
from genalpha.run.accurate import under_transforms
from genalpha.run.request import Options


def run(system: System, t_span: Any, q0: Any, v0: Any, given: Options) -> Solution:
    """``solve`` for independent constraints."""
    with watched():
        return _run(system, t_span, q0, v0, given)


def _run(system: System, t_span: Any, q0: Any, v0: Any, given: Options) -> Solution:
    asked = request.parse(system, t_span, q0, v0, given)
    if asked.start.traced:
        sol = traced.run(asked) if asked.accurate is None else under_transforms.run(asked)
        return sol.labelled(system.labels, asked.output.entries)
    sol = single.run(asked) if asked.accurate is None else accurate.run(asked)
    sol = sol.labelled(system.labels, asked.output.entries)
    left = left_tables.messages(asked, sol)
    if asked.throw and not sol.success:
        error = IntegrationError(sol.message, sol)
        for text in left:
            error.add_note(text)
        raise error
    for text in left:
        warn(text)
    return sol
