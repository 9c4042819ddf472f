"""Runs as machine code on the CPU: where they begin, the loop of steps, and what follows from its rows."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.controlled_step import ControlledKernels, SampledKernels
from genalpha.backends.native.step import LIMIT, Orders, StepKernels, Values, floating
from genalpha.backends.xla import controlled as adaptive
from genalpha.backends.xla import given as xla
from genalpha.compiler import emit_llvm, machine
from genalpha.compiler.graph import Unsupported
from genalpha.compiler.program import Loop, Program, cut
from genalpha.compiler.rows import RowFunction
from genalpha.engine import interpolate
from genalpha.engine.controller import Pace
from genalpha.engine.step import Setup
from genalpha.mechanics import initial_values, start_errors
from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.data import Carry, Scale

_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64
# Graphs and programs are made by one thread at a time; machine code runs in as many as there are.
MAKING = threading.RLock()
# Operations in one compiled function at most.
PIECE = 1500


class AtFirst(Unsupported):
    """Why this run cannot be native, although others of its kind may be."""


class RunStart(NamedTuple):
    """A run before its first step: consistent values, what the method makes of them, the first row.

    ``status`` is that of the start where q and v are trusted, ``consistent`` says whether they could be.
    """

    begin: Beginning
    carry: Carry
    x: Any
    row: Any
    t_alpha: Any
    status: Any
    consistent: Any
    pace: Pace | None = None


class Aim(NamedTuple):
    """What takes the place of a first step size under error control: a wish for it (or NaN), and the
    control."""

    wish: Any
    control: adaptive.Control


def start_run(setup: Setup, t: Any, q: Any, v: Any, h: Any, args: Args, guess: Any = None) -> RunStart:
    """Everything before the first step, of size h or towards an :class:`Aim`."""
    begin = initial_values.begin(setup.system, setup.dims, t, q, v, args, guess, setup.method.needs_rate)
    pace = None
    if isinstance(h, Aim):
        (carry, memory, pace, _), row, t_alpha = adaptive.start(setup, begin, h.control, h.wish, args)
    else:
        carry, memory, row, t_alpha = xla.start(setup, begin, h, args)
    status = jnp.where(initial_values.is_finite(begin), begin.report.status, codes.NOT_FINITE)
    return RunStart(begin, carry, memory.x, row, t_alpha, status, start_errors.consistent(begin), pace)


class StepCode:
    """The machine code of a setup with one order of pivots, for one system or for several in lanes."""

    def __init__(self, kernels: Kernels, order: Orders, lanes: int) -> None:
        self.lanes = lanes
        program, loop = kernels.program(order)
        self.program = cut(program, PIECE)
        self.library = machine.Library(emit_llvm.emit([(self.program, {"steps": loop})], lanes), ["steps"])
        self.steps = self.library.function("steps", *[_POINTER] * 5, *[_COUNT] * 2, result=_COUNT)


class RowCode:
    """The machine code of a function of rows, one after the other or several in lanes."""

    def __init__(self, rows: RowFunction, lanes: int) -> None:
        self.rows, self.lanes, self.program = rows, lanes, cut(rows.program, PIECE)
        text = emit_llvm.emit([(self.program, {rows.name: rows.map})], lanes)
        self.library = machine.Library(text, [rows.name], optimized=rows.often)
        self._map = self.library.function(rows.name, *[_POINTER] * 3, _COUNT)

    def __call__(self, arguments: Any) -> tuple[Any, np.ndarray]:
        """The function applied to every row of its arguments: results, and which of them are good."""
        columns = self.rows.pack(arguments)
        count, lanes = len(columns), self.lanes
        groups = -(-count // lanes)
        if groups * lanes > count:
            columns = np.concatenate([columns, np.repeat(columns[-1:], groups * lanes - count, axis=0)])
        columns = np.ascontiguousarray(columns.reshape(groups, lanes, columns.shape[1]).swapaxes(1, 2))
        results = np.empty((groups, self.rows.width, lanes))
        work = aligned(self.program.slots * lanes)
        self._map(work.ctypes.data, columns.ctypes.data, results.ctypes.data, groups)
        return self.rows.unpack(results.swapaxes(1, 2).reshape(groups * lanes, self.rows.width)[:count])

    def one(self, arguments: Any) -> tuple[Any, np.ndarray]:
        """The function of one set of arguments, without lanes."""
        assert self.lanes == 1
        row, results, work = self.rows.row(arguments), np.empty(self.rows.width), aligned(self.program.slots)
        self._map(work.ctypes.data, row.ctypes.data, results.ctypes.data, 1)
        return self.rows.unpack(results)


@dataclass
class Kernels:
    """What was traced for a setup, and the code compiled from it when it is first needed.

    ``start`` and ``derive`` are None where they hold something without a scalar form; XLA runs them then.
    ``order`` is the order of pivots that runs start with. ``derive`` was made of ``derivation`` and an
    ``example`` of its arguments.
    """

    step: StepKernels
    start: RowFunction | None
    derive: RowFunction | None
    massless: bool
    order: Orders
    derivation: Callable[..., Any]
    example: Any
    codes: dict[tuple[Orders, int], StepCode] = field(default_factory=dict)
    maps: dict[tuple[str, int], RowCode] = field(default_factory=dict)
    programs: dict[Orders, tuple[Program, Loop]] = field(default_factory=dict)

    @functools.cached_property
    def sample(self) -> RowFunction | None:
        """The motion at a time between the ends of a step, and what `derive` tells about it."""
        space = self.step.setup.system.space

        def sample(
            before: interpolate.StepEnd, after: interpolate.StepEnd, t: Any, scale: Scale, x: Any
        ) -> Any:
            at = interpolate.between(space, before, after, t)
            return at, self.derivation(at.t, at.q, at.v, at.lam, at.psi, scale, x)

        *state, scale, x = self.example
        before = interpolate.StepEnd(*state)
        return _rows("sample", sample, (before, before._replace(t=before.t + 1), before.t, scale, x), True)

    def evaluation(self, sampled: bool) -> RowFunction | None:
        """What is made of records after the loop."""
        return self.sample if sampled else self.derive

    def program(self, order: Orders) -> tuple[Program, Loop]:
        """The kernels of a step in one order of pivots, written once."""
        with MAKING:
            if order not in self.programs:
                self.programs[order] = self.step.program(order)
            return self.programs[order]

    def code(self, lanes: int = 1, order: Orders | None = None) -> StepCode:
        with MAKING:
            key = (order or self.order, lanes)
            if key not in self.codes:
                self.codes[key] = StepCode(self, *key)
            return self.codes[key]

    def map(self, rows: RowFunction, lanes: int = 1) -> RowCode:
        with MAKING:
            key = (rows.name, lanes)
            if key not in self.maps:
                self.maps[key] = RowCode(rows, lanes)
            return self.maps[key]


def _rows(name: str, function: Callable[..., Any], example: Any, often: bool) -> RowFunction | None:
    try:
        return RowFunction(name, function, example, LIMIT, often)
    except Unsupported:
        return None


def aligned(count: int) -> np.ndarray:
    """Zeros that start at a multiple of 64 bytes, as vector instructions want."""
    raw = np.zeros(count + 8)
    shift = (-raw.ctypes.data % 64) // 8
    return raw[shift : shift + count]


# --- the beginning --------------------------------------------------------------------------------------


class NativeRun(NamedTuple):
    """A run that has begun."""

    kernels: Kernels
    start: RunStart
    massless: bool


def shapes(tree: Any) -> Any:
    """What decides about a compiled function of arrays."""
    return jax.tree.structure(tree), tuple(np.shape(x) for x in jax.tree.leaves(tree))


def _key(setup: Setup, kind: type[StepKernels], args: Args) -> Any:
    doubles, _, fixed = floating(args)
    return (
        "native",
        kind.__name__,
        *setup[1:],
        fixed,
        tuple(np.shape(x) for x in doubles),
        jax.tree.structure(args),
    )


def kernels(
    setup: Setup,
    t: float,
    q: np.ndarray,
    v: np.ndarray,
    h: Any,
    args: Args,
    guess: Any,
    mode: str,
    sampled: bool = False,
) -> Kernels:
    """The kernels of a setup, made from these values if there are none yet.

    With ``sampled``, steps under error control keep what is needed at given times. Raises what is wrong with
    the values, and :class:`Unsupported` where XLA must take over.
    """

    kind = StepKernels if not isinstance(h, Aim) else SampledKernels if sampled else ControlledKernels

    def make() -> Kernels | str:
        try:
            return _make(setup, kind, t, q, v, h, args, guess, mode)
        except AtFirst:  # other values may do
            raise
        except Unsupported as reason:
            return str(reason)

    with MAKING:
        found = setup.system._programs.made(_key(setup, kind, args), make)
    if isinstance(found, str):
        raise Unsupported(found)
    return found


def _make(
    setup: Setup,
    kind: type[StepKernels],
    t: float,
    q: np.ndarray,
    v: np.ndarray,
    h: Any,
    args: Args,
    guess: Any,
    mode: str,
) -> Kernels:
    doubles, rebuild, _ = floating(args)
    rows, found, good = None, None, np.array(False)
    if setup.system.reaction is None:  # others need an iteration
        columns = (np.float64(t), q, v, _numbers(h), doubles)
        rows = _rows("start", lambda t, q, v, h, x: start_run(setup, t, q, v, h, rebuild(x)), columns, False)
    if rows is not None:
        found, good = rows.interpret(rows.example)
    if found is None or not good:
        found = _start_by_xla(setup, t, q, v, h, args, guess)
    start_errors.examine(found.begin, mode, setup.system.space)
    step = kind(setup, Values(found.carry, found.begin.scale, args, found.x))
    made = _build(setup, step, found, rows, (t, h), args)
    made.program(made.order)
    return made


def _numbers(h: Any) -> Any:
    return jax.tree.map(np.float64, h)


def begin(
    setup: Setup, t: float, q: np.ndarray, v: np.ndarray, h: Any, args: Args, guess: Any, mode: str
) -> NativeRun:
    """Everything before the first step, checked."""
    found, good = None, np.array(False)
    made = kernels(setup, t, q, v, h, args, guess, mode)
    if made.start is not None:
        columns = (np.float64(t), q, v, _numbers(h), floating(args)[0])
        found, good = made.map(made.start).one(columns)
    if found is None or not good:
        found = _start_by_xla(setup, t, q, v, h, args, guess)
    start_errors.examine(found.begin, mode, setup.system.space)
    massless = made.massless if setup.system.constant_mass else start_errors.is_singular(found.begin.M)
    return NativeRun(made, found, massless)


def _start_by_xla(setup: Setup, *values: Any) -> RunStart:
    return jax.tree.map(np.asarray, xla.program(setup, "native start", start_run)(*values))


def _build(
    setup: Setup,
    step: StepKernels,
    start: RunStart,
    rows: RowFunction | None,
    at: tuple[float, Any],
    args: Args,
) -> Kernels:
    state, scale = start.begin.state, start.begin.scale
    massless = start_errors.is_singular(start.begin.M)
    doubles, rebuild, _ = floating(args)
    slots = np.zeros(step.builder.slots)
    fill(step, slots, start, doubles)
    if not isinstance(step, ControlledKernels):
        slots[step.t], slots[step.h] = at
    order = step.choose(slots, start=True)
    if order is None:
        raise AtFirst("the Newton matrix is singular or not finite at the first step")

    def derivation(t: Any, q: Any, v: Any, lam: Any, psi: Any, scale: Scale, x: Any) -> xla.Derived:
        return xla.derive_row(setup, t, q, v, lam, psi, scale, rebuild(x), massless)

    example = (state.t, state.q, state.v, state.lam, state.psi, scale, doubles)
    derive = _rows("derive", derivation, example, often=True)
    return Kernels(step, rows, derive, massless, order, derivation, example)


def fill(step: StepKernels, slots: np.ndarray, start: RunStart, doubles: list[np.ndarray]) -> None:
    """Write the start of a run into the slots."""
    places = (step.carry, step.scale, step.args, step.parabola[0])
    values = (start.carry, start.begin.scale, doubles, start.x)
    for place, value in zip(jax.tree.leaves(places), jax.tree.leaves(values), strict=True):
        slots[place.reshape(-1)] = np.asarray(value).reshape(-1)
    if isinstance(step, ControlledKernels):
        slots[list(step.pace)] = start.pace
    slots[step.flags["alive"]] = 1.0


def derive(
    setup: Setup, run: NativeRun, rows: xla.Rows, times: np.ndarray, scale: Scale, args: Args
) -> xla.Derived:
    """Accelerations, residuals and reactions."""
    made = run.kernels
    if made.derive is not None and made.massless == run.massless:
        fixed = jax.tree.map(lambda x: np.asarray(x)[None], (scale, floating(args)[0]))
        arguments = (times, rows.q, rows.v, rows.lam, rows.psi, *fixed)
        found, good = made.map(made.derive)(arguments)
        if good.all():
            return found
    return xla.derive_blocks(setup, rows, times, scale, args, run.massless)
