"""Reads and checks the arguments of `solve` once, and makes a `Request` of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import numpy as np

from genalpha import methods
from genalpha.engine import events, step_choice
from genalpha.engine.discrete import Controller
from genalpha.engine.events import Crossing, Event
from genalpha.engine.extrapolation import Accurate
from genalpha.engine.run_data import Grid, RunState
from genalpha.engine.setup import Setup
from genalpha.engine.step_choice import StepOptions, whole_number
from genalpha.engine.steps import Steps
from genalpha.mechanics.initial_values import Held
from genalpha.mechanics.reads import reads_traced
from genalpha.mechanics.system import Args, Dims, System
from genalpha.methods import Method
from genalpha.numerics.data import State
from genalpha.numerics.newton import Newton
from genalpha.numerics.tracing import is_traced, outside, under_transform
from genalpha.results import output
from genalpha.results.output import Output
from genalpha.run import arguments

Initial = Literal["check", "project", "assume"]
Backend = Literal["auto", "native", "xla"]
BatchBackend = Literal["auto", "native", "xla", "cuda"]
DEFAULT_RHO_INF = 0.8
# How often an event may happen under a JAX transform, where memory for all of them is reserved.
MAX_EVENTS = 64


class Options(NamedTuple):
    """The keyword arguments of ``solve``; None means "not given"."""

    method: Any = "soi2"
    rho_inf: Any = None
    steps: StepOptions = StepOptions()
    newton: Any = Newton()
    t_eval: Any = None
    dense_output: Any = False
    save: Any = "all"
    events: Any = None
    args: Any = ()
    initial: Any = "check"
    hold: Any = None
    multipliers: Any = None
    callback: Any = None
    callback_every: Any = 1
    progress: bool = False
    state: Any = None
    checkpoint: str | os.PathLike[str] | None = None
    checkpoint_every: Any = 10.0
    throw: bool = True
    backend: Any = "auto"
    max_events: Any = None
    controller: Any = None


class Start(NamedTuple):
    """The start of a run: t, q (size,), v (n,), and a guess of the multipliers or None.

    ``mode`` is the argument ``initial``. ``traced`` says that JAX traces the run, ``closes_over_traced`` that
    a function of the system reads traced values from outside.
    """

    t: float
    q: Any
    v: Any
    guess: Any
    mode: Initial
    traced: bool
    held: Held = Held()
    closes_over_traced: bool = False


class Watch(NamedTuple):
    """What watches a run: a callback after every ``every`` steps, a progress bar, and events.

    Under a JAX transform an event may happen ``max_events`` times.
    """

    callback: Callable[[State], Any] | None = None
    every: int = 1
    progress: bool = False
    events: tuple[Event, ...] = ()
    max_events: int = MAX_EVENTS


class Restart(NamedTuple):
    """The state from which the run continues, and the file to which it is written every ``every`` seconds."""

    state: RunState | None = None
    grid: Grid | None = None
    checkpoint: str | os.PathLike[str] | None = None
    every: float = 0.0


class Request(NamedTuple):
    """A run with all its checked arguments."""

    setup: Setup
    args: Args
    span: tuple[float, float]
    start: Start
    steps: Steps
    output: Output
    watch: Watch
    restart: Restart
    backend: BatchBackend
    throw: bool = True
    accurate: Accurate | None = None
    breakpoints: tuple[float, ...] = ()
    controller: Controller | None = None


def parse(system: System, t_span: Any, q0: Any, v0: Any, given: Options) -> Request:
    """Read and check the arguments of ``solve``."""
    span, args = arguments.span(t_span), arguments.arguments(arguments.with_signals(system, given))
    state = arguments.state(q0, v0, given.state)
    if state is not None:
        span, q0, v0 = arguments.from_state(span, state), state.q, state.v
    q, v = arguments.vector("q0", q0), arguments.vector("v0", v0)
    check_options(given)
    whole_number("max_events", given.max_events)
    one_of("backend", given.backend, get_args(BatchBackend))
    accurate = step_choice.accurate(span, len(v), given.steps)
    steps, grid = step_choice.choose(span, len(v), given.steps, state)
    kept = output.parse(given.save, given.t_eval, given.dense_output, span)
    arguments.callback(given.callback, given.callback_every)
    dims, closes_over_traced = arguments.trace(system, span[0], q, v, args)
    q = arguments.point(system.space, q)
    kept = output.placed(kept, system, dims)
    method = chosen_method(given, system, dims, steps)
    listed, crossings = watched(system, given.events, dims, args)
    guess = arguments.multipliers(dims, given.multipliers)
    held = arguments.held(given.hold, dims.n)
    if given.hold is not None and given.initial != "project":
        raise ValueError("hold needs initial='project': otherwise q0 and v0 are not moved")
    if listed and not outside():
        closes_over_traced |= reads_traced(x for e in listed for x in (e.function, e.reset) if x is not None)
    traced = closes_over_traced or under_transform(q, v, args, steps, guess)
    if traced:
        arguments.possible_under_transform(given)
    if given.backend == "cuda":
        arguments.possible_on_gpu(given, traced)
    if accurate is not None:
        arguments.possible_with_accuracy(given)
        accurate = suited(accurate, method)
    elif traced and np.size(given.steps.breakpoints):
        raise ValueError("breakpoints: not possible under a JAX transform. Pass h as an array of step sizes")
    if given.controller is not None:
        arguments.possible_with_controller(given, steps, span, traced)
    every = arguments.interval(given.checkpoint_every)
    return Request(
        Setup(system, method, given.newton, dims, crossings),
        args,
        span,
        Start(span[0], q, v, guess, given.initial, traced, held, closes_over_traced),
        steps,
        kept,
        Watch(given.callback, given.callback_every, given.progress, listed, given.max_events or MAX_EVENTS),
        Restart(state, grid, given.checkpoint, every),
        given.backend,
        given.throw,
        accurate,
        tuple(step_choice.breakpoints(given.steps.breakpoints, span)),
        given.controller,
    )


def suited(accurate: Accurate, method: Method) -> Accurate:
    """The columns that suit a method: even numbers of steps if its errors alternate and do not decay."""
    of = method.coefficients
    lasting = max(of.r_alpha_m, of.r_gamma, of.r_alpha_f) > 1 - 1e-9
    return accurate.alternating() if accurate.accuracy is not None and lasting else accurate


def watched(
    system: System, given: Any, dims: Dims, args: Args
) -> tuple[tuple[Event, ...], tuple[Crossing, ...]]:
    """The argument ``events``, and what compiled loops need of it."""
    listed = events.parse(given, args)
    if not listed:
        return (), ()
    functions = tuple(e.function for e in listed)
    system.forget_if_changed(functions)

    def make() -> tuple[Crossing, ...]:
        found = events.crossings(listed, dims, args)
        system.settle(functions)
        return found

    if is_traced(args):
        return listed, make()
    leaves, structure = jax.tree.flatten(args)
    about = tuple(
        (np.shape(x), x.dtype, b"" if x.dtype.kind == "f" else np.asarray(x).tobytes()) for x in leaves
    )
    key = ("events", functions, tuple((e.direction, e.period) for e in listed), dims, structure, about)
    return listed, system._programs.made(key, make)


def one_of(name: str, value: Any, known: Sequence[str]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}")


def check_options(given: Options) -> None:
    """Check the options that do not depend on the system."""
    one_of("initial", given.initial, get_args(Initial))
    if not isinstance(given.newton, Newton):
        raise TypeError(f"newton must be a ga.Newton, got {given.newton!r}")
    rho_inf, method = given.rho_inf, given.method
    number = isinstance(rho_inf, float | int | np.number) and not isinstance(rho_inf, jax.core.Tracer)
    if rho_inf is not None and not number:
        raise TypeError(f"rho_inf must be a number in [0, 1] that is not traced, got {rho_inf!r}")
    if isinstance(method, str):
        return
    if not isinstance(method, Method):
        raise TypeError(
            f"method must be a name ({', '.join(methods.names())}) or a method object such as ga.SOI2(), "
            f"got {method!r}"
        )
    if rho_inf is not None:
        raise ValueError(
            "pass either rho_inf or a method object, not both: the object already has the coefficients "
            f"{method.coefficients.name}"
        )


def chosen_method(given: Options, system: System, dims: Dims, steps: Steps) -> Method:
    """The method. Raises if it does not suit the system or the steps."""
    method = named_method(given)
    method.check(system, dims)
    steps.check(method)
    return method


def named_method(given: Options) -> Method:
    """The method as an object."""
    if not isinstance(given.method, str):
        return given.method
    return methods.by_name(given.method, DEFAULT_RHO_INF if given.rho_inf is None else given.rho_inf)
