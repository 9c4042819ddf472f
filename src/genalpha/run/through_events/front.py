"""Runs with events under a JAX transform: from the request to the solution."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from genalpha.compiler.graph import Unsupported
from genalpha.engine import row
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Errors
from genalpha.engine.steps import MOST_STEPS, MOST_TRACED, Controlled, Steps
from genalpha.results.solution import Solution
from genalpha.run import native_traced
from genalpha.run.closures import opened
from genalpha.run.native_traced import FromRecords, separated
from genalpha.run.request import Request
from genalpha.run.through_events.operation import EventfulFound, EventfulRun, EventPlan


def run(asked: Request) -> Solution:
    """The solution. A failure becomes its status, and the rows after it are NaN."""
    reason, output = native_traced.refusal(asked), asked.output
    if output.every > 1 or (output.dense and not output.complete):
        reason = "rows other than those of all steps, the last one or t_eval"
    if reason:
        raise _refused(reason)
    if asked.start.closes_over_traced:
        asked = opened(asked)
    try:
        return _run(asked)
    except Unsupported as error:
        raise _refused(str(error)) from error


def _refused(reason: str) -> ValueError:
    return ValueError(
        f"events under a JAX transform need machine code, which cannot take this run: {reason}. Call "
        "ga.solve outside of jit, vmap and grad"
    )


def _run(asked: Request) -> Solution:
    setup, start, steps, output = asked.setup, asked.start, asked.steps, asked.output
    doubles, rebuild, about = separated(asked.args)
    at, code = native_traced.placed(asked)
    keep = "times" if output.t_eval is not None else ("final" if output.every == 0 else "all")
    plan = EventPlan(asked.watch.events, keep, asked.watch.max_events)
    steps, given = _steps(steps, keep)
    even, strict = getattr(steps, "even", False), start.mode == "check"
    shapes, most = tuple(jnp.shape(x) for x in doubles), steps.room(0) if steps.controlled else 0
    key = ("events, traced", *setup[1:], strict, about, shapes, plan, even, most)
    make = lambda: EventfulRun(setup, strict, doubles, rebuild, steps, plan)
    made = native_traced.operation(setup, key, make)
    times = [] if output.t_eval is None else [output.t_eval]
    found = made.found(*times, *asked.span, *at, *given, *doubles)
    return _WithEvents(asked, found, made.room, doubles, rebuild, key).solution(code)


def _steps(steps: Steps, keep: str) -> tuple[Steps, list[Any]]:
    """The steps, with a bound under error control, and their numbers."""
    if not isinstance(steps, Controlled):
        return steps, [steps.times, steps.steps.h]
    most = steps.rows(MOST_TRACED if keep == "all" else MOST_STEPS)
    bounded = dataclasses.replace(jax.lax.stop_gradient(steps), most=most)
    return bounded, jax.tree.leaves(bounded)


class _WithEvents(FromRecords):
    """Makes a solution of the rows that the operation has picked."""

    def __init__(self, asked: Request, found: EventfulFound, room: list[int], *others: Any) -> None:
        super().__init__(asked, found.run, *others)
        self.changed = found.doubles
        cut = lambda x: [x[i, :most] for i, most in enumerate(room)]
        self.happened = {name: cut(x) for name, x in found.happened.items()}

    def kept(self) -> tuple[StepEnd, Any, StepEnd | None]:
        found = self.found
        return found.ends(found.timing[0]), lambda x: x, None

    def errors(self) -> Errors | None:
        found = self.found.timing[2]
        return None if found is None else row.layout(self.setup).split_errors(found)

    def t_alpha(self) -> Any:
        return self.found.timing[1]
