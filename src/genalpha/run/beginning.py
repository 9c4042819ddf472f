"""The start of a run, or of a part of it after an event: by machine code or by XLA."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from genalpha.backends.cache import program
from genalpha.backends.native import kernels as native
from genalpha.backends.native.code import making_code
from genalpha.backends.native.kernels import StartValues
from genalpha.backends.native.runners import NativeControlled, NativeGiven
from genalpha.backends.sparse import front as sparse
from genalpha.backends.xla.controlled import Point, XlaControlled
from genalpha.backends.xla.given import XlaGiven, derive_blocks, nothing_crossed
from genalpha.compiler.graph import Unsupported
from genalpha.engine.files import storable
from genalpha.engine.setup import Setup
from genalpha.engine.start import project, start_run
from genalpha.engine.step import no_memory
from genalpha.engine.steps import Controlled, Steps
from genalpha.errors import warn_of_fallback
from genalpha.mechanics import start_errors
from genalpha.mechanics.initial_values import Held
from genalpha.mechanics.system import Args, warn_of_mass
from genalpha.numerics import codes
from genalpha.numerics.data import State
from genalpha.results.collect import Begun
from genalpha.run import projection

# A function that returns the values (E,) of events at the start. It reads the consistent state only if there
# are events.
Known = Callable[[Callable[[], State]], np.ndarray]


@storable
class StartPoint(NamedTuple):
    """The start of a run, or of a part of it after an event."""

    t: float
    q: Any
    v: Any
    guess: Any
    mode: str
    h: float | None = None  # the first step of the run that is continued
    just: tuple[int, ...] = ()  # the events that have just happened
    before: Any = None  # the values of all events before the resets of this run

    def values(self, steps: Steps) -> StartValues:
        first = steps.first if self.h is None or isinstance(steps, Controlled) else self.h
        return StartValues(self.t, np.asarray(self.q), np.asarray(self.v), first, self.guess, self.mode)


def begun(
    setup: Setup, at: StartPoint, steps: Steps, args: Args, known: Known, machine_code: bool
) -> tuple[Begun, str | None]:
    """A run by machine code if wanted and possible, else by XLA; and why machine code cannot run it."""
    fallback = None
    with making_code:
        if machine_code:
            try:
                return by_machine_code(setup, at, steps, args, known), None
            except Unsupported as reason:
                fallback = str(reason)
                warn_of_fallback(reason)
        return by_xla(setup, at, steps, args, known), fallback


def by_machine_code(setup: Setup, at: StartPoint, steps: Steps, args: Args, known: Known) -> Begun:
    """A run by native code. Raises ``Unsupported`` if only XLA can run it."""
    setup = setup._replace(method=steps.suited(setup.method))
    if sparse.wanted(setup, steps):
        found = sparse.begin(setup, at.values(steps), steps, args, known)
        return Begun(found.runner, found.row, found.t_alpha, found.derive, "native")
    sparse.refuse_dense(setup, steps)
    begun = native.begin(setup, at.values(steps), args)
    values = known(lambda: begun.start.begin.state)
    runner: Any = NativeControlled if steps.controlled else NativeGiven
    runner = runner(setup, begun, steps, args, values)
    derive = lambda ends, args=args: native.derive(setup, begun, args, ends)
    return Begun(runner, begun.row, begun.t_alpha, derive, "native")


def by_xla(setup: Setup, at: StartPoint, steps: Steps, args: Args, known: Known) -> Begun:
    """A run by XLA."""
    if sparse.wanted(setup, steps):
        sparse.refuse_large(setup)
    t, q, v, first, guess, mode = at.values(steps)
    start = program(setup, "start", start_run)(t, q, v, first, args, guess)
    begin = start.begin
    start_errors.examine(begin, mode, setup.system)
    if not setup.system.constant_mass:
        warn_of_mass(begin.M, " at the start")
    crossed, memory = nothing_crossed(known(lambda: begin.state)), no_memory(start.x)
    runner: Any
    if isinstance(steps, Controlled):
        point = Point(start.carry, memory, start.pace, crossed)
        runner = XlaControlled(setup, point, steps.control, begin.scale, args)
    else:
        runner = XlaGiven(setup, (start.carry, memory, crossed), begin.scale, steps.steps, args)
    derive = lambda ends, args=args: derive_blocks(setup, ends, begin.scale, args)
    return Begun(runner, np.asarray(start.row), np.asarray(start.t_alpha), derive, "xla")


def projected(setup: Setup, t: float, q: Any, v: Any, args: Args, held: Held) -> tuple[Any, Any]:
    """q and v projected onto the constraints."""
    run = lambda projector: projector.placed(float(t), np.asarray(q), np.asarray(v), held)
    with making_code:
        found = projection.without_xla(setup, args, run)
        if found is None:
            by_xla = functools.partial(project, held=held)
            found = program(setup, ("project", held), by_xla)(t, q, v, args)
    q, v, status = found
    if int(status) != codes.SUCCESS:
        raise ValueError(
            "initial='project' found no q and v on the constraints near q0 and v0: "
            + codes.no_projection(int(status), bool(held.q or held.v))
        )
    return q, v
