"""The kernels of a run as machine code on the CPU, made once for each setup, and the start of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import numpy as np

from genalpha.backends.cache import program
from genalpha.backends.native.by_data import DataCode, DataLibrary
from genalpha.backends.native.code import MAKING, StepCode, aligned
from genalpha.backends.native.controlled_step import ControlledKernels, SampledKernels
from genalpha.backends.native.iterated import converged, one_turn
from genalpha.backends.native.lean_step import LeanKernels
from genalpha.backends.native.step import LIMIT, Orders, StepKernels, Values, floating
from genalpha.backends.rowwise import Rowwise
from genalpha.backends.xla.given import derive_blocks
from genalpha.compiler.graph import ZERO, Unsupported
from genalpha.compiler.program import Loop, Program, sharable
from genalpha.compiler.rows import RowFunction
from genalpha.compiler.sparse_pattern import Singular
from genalpha.engine import row
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived
from genalpha.engine.setup import Setup
from genalpha.engine.start import RunStart, start_run
from genalpha.mechanics import start_errors
from genalpha.mechanics.system import Args, warn_of_mass
from genalpha.numerics import codes
from genalpha.numerics.data import Scale

# The most unknowns, and about the most operations in factors, for which single runs unroll the factors of the
# Newton matrix (docs/benchmarks.md).
UNROLLED, FACTORS = 100, 40_000
_SINGULAR = "the Newton matrix is singular or not finite at the first step"


class AtFirst(Unsupported):
    """This run cannot be native at its first step, although other runs of the same setup may be."""


class StartValues(NamedTuple):
    """The start of a run. ``first`` is the size of its first step, or the control that estimates it.

    ``guess`` is a guess of the multipliers. ``mode`` is the argument ``initial`` of ``solve``.
    """

    t: float
    q: Any
    v: Any
    first: Any
    guess: Any = None
    mode: str = "check"

    def columns(self, doubles: list[np.ndarray]) -> Any:
        """The arguments of the compiled start."""
        return np.float64(self.t), self.q, self.v, self.first, doubles


@dataclass
class Kernels:
    """The expressions traced for a setup, and the code compiled from them on first use.

    ``start`` and ``derive`` are functions of rows: the start of a run, and the quantities derived at the end
    of a step. ``start`` is None if consistent values need an iteration; ``iteration`` is one turn of it.
    ``first`` are the slots before the first step. With many unknowns, single runs use factors that are data.
    """

    step: StepKernels
    start: Rowwise | None
    derive: Rowwise
    first: np.ndarray
    iteration: Rowwise | None = None
    codes: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    programs: dict[Orders, tuple[Program, Loop]] = field(default_factory=dict)
    # The order of pivots that was chosen after another one had become bad.
    successors: dict[Orders, Orders] = field(default_factory=dict)

    @functools.cached_property
    def by_data(self) -> bool:
        """Whether the factors of single runs are data."""
        size, entries = len(self.step.x), int(np.count_nonzero(self.step.matrix != ZERO))
        return size > UNROLLED or entries**2 > FACTORS * size

    @functools.cached_property
    def order(self) -> Orders:
        """The order of pivots with which unrolled runs start."""
        with MAKING:
            found = self.step.choose(self.first, start=True)
        if found is None:
            raise AtFirst(_SINGULAR)
        return found

    @functools.cached_property
    def data(self) -> DataLibrary:
        """The code for factors that are data."""
        with MAKING:
            return DataLibrary(self.step)

    @functools.cached_property
    def first_data(self) -> DataCode:
        """The code with the order of pivots with which runs start."""
        with MAKING:
            slots = aligned(self.data.program.slots)
            slots[: len(self.first)] = self.first
            try:
                return DataCode(self.data, self.data.patterns(slots, "probe"))
            except Singular as error:
                raise AtFirst(_SINGULAR) from error

    @functools.cached_property
    def columns(self) -> StartColumns:
        """The columns of the numbers that the compiled start returns."""
        assert self.start is not None
        assert self.start.rows is not None
        return StartColumns(self.step, self.start.rows)

    def program(self, order: Orders) -> tuple[Program, Loop]:
        """The kernels of a step in one order of pivots, written once."""
        with MAKING:
            if order not in self.programs:
                self.programs[order] = self.step.program(order)
            return self.programs[order]

    def code(self, lanes: int = 1, order: Orders | None = None, shared: tuple[bool, ...] = ()) -> StepCode:
        """Unrolled machine code of a step; ``shared`` says which arguments are the same in all lanes."""
        with MAKING:
            program, loop = self.program(order or self.order)
            common = sharable(program, self.step.slots_of(shared))
            key = (order or self.order, (lanes, *common))
            if key not in self.codes:
                self.codes[key] = StepCode(program, loop, lanes, common)
            return self.codes[key]


class NativeRun:
    """A run after its start. ``doubles`` are its floating-point arguments.

    The start is unpacked from the numbers of the compiled start on first access, because most runs need only
    some of them.
    """

    def __init__(self, kernels: Kernels, found: RunStart | np.ndarray, doubles: list[np.ndarray]) -> None:
        self.kernels, self.doubles, self._found = kernels, doubles, found

    @functools.cached_property
    def start(self) -> RunStart:
        if isinstance(self._found, np.ndarray):
            return self.kernels.columns.rows.unpack(self._found)[0]
        return self._found

    @property
    def row(self) -> np.ndarray:
        """The first record."""
        if isinstance(self._found, np.ndarray):
            return self._found[self.kernels.columns.row]
        return np.asarray(self._found.row)

    @property
    def t_alpha(self) -> Any:
        """The time of a_α at the start."""
        if isinstance(self._found, np.ndarray):
            return self._found[self.kernels.columns.t_alpha]
        return np.asarray(self._found.t_alpha)

    def fill(self, slots: np.ndarray) -> None:
        """Write the start into the slots of a run."""
        step = self.kernels.step
        if not isinstance(self._found, np.ndarray):
            step.fill(slots, self._found, self.doubles)
            return
        source, places = self.kernels.columns.start
        slots[places] = self._found[source]
        step.fill_arguments(slots, self.doubles)
        slots[step.flags["alive"]] = 1.0


class StartColumns:
    """The columns of the numbers that the compiled start returns."""

    def __init__(self, step: StepKernels, rows: RowFunction) -> None:
        self.rows = rows
        at: RunStart = rows.unpack(np.arange(rows.width))[0]
        flat = lambda tree: np.concatenate([np.ravel(x) for x in jax.tree.leaves(tree)]).astype(int)
        self.start = flat(step.start_values(at)), flat(step.start_places)
        self.row, self.t_alpha = slice(int(at.row[0]), int(at.row[-1]) + 1), int(at.t_alpha)
        self._status, self._consistent = int(at.status), int(at.consistent)
        self._rows, self._shape = np.ravel(at.begin.rows).astype(int), at.begin.rows.shape

    def fine(self, found: np.ndarray, mode: str) -> bool:
        """Whether a start passes all quick checks. The mode "known" says that its rows are independent."""
        if found[self._status] != codes.SUCCESS or (mode == "check" and not found[self._consistent]):
            return False
        if mode == "known":
            return bool(np.isfinite(found).all())
        independent = start_errors.independent(found[self._rows].reshape(self._shape))
        return independent and bool(np.isfinite(found).all())


def shapes(tree: Any) -> Any:
    """The structure and the shapes of a tree of arrays, which identify a compiled function."""
    return jax.tree.structure(tree), tuple(np.shape(x) for x in jax.tree.leaves(tree))


def kernels(
    setup: Setup,
    at: StartValues,
    args: Args,
    doubles: list[np.ndarray],
    fixed: Any,
    sampled: bool = False,
    lean: bool = False,
) -> Kernels:
    """The kernels of a setup, made from these values if there are none yet.

    ``doubles`` and ``fixed`` are what `floating` finds in ``args``. With ``sampled``, steps under error
    control keep both ends of the steps that contain given times. With ``lean``, the stages of given steps
    share one matrix. Raises the errors of a bad start, and :class:`Unsupported` if only XLA can run the
    setup.
    """
    controlled = SampledKernels if sampled else ControlledKernels
    given = LeanKernels if lean else StepKernels
    kind = controlled if getattr(at.first, "controlled", False) else given

    def make() -> Kernels | str:
        try:
            return _make(setup, kind, at, args)
        except AtFirst:  # it may work from other values
            raise
        except Unsupported as reason:
            return str(reason)

    shapes = tuple(x.shape for x in doubles)
    with MAKING:
        key = ("native", kind, *setup[1:], fixed, shapes, jax.tree.structure(args))
        found = setup.system._programs.made(key, make)
    if isinstance(found, str):
        raise Unsupported(found)
    return found


def _make(setup: Setup, kind: type[StepKernels], at: StartValues, args: Args) -> Kernels:
    doubles, rebuild, _ = floating(args)
    start, found = _started(setup, at, doubles, rebuild)
    iteration = None
    if setup.system.reaction is not None:  # it needs an iteration
        iteration = one_turn(setup, at, doubles, rebuild)
        found = converged(setup, iteration, at, doubles)
    if found is None:
        found = _start_by_xla(setup, at, args)
    start_errors.examine(found.begin, at.mode, setup.system)
    if not setup.system.constant_mass:
        warn_of_mass(found.begin.M, " at the start")
    step = kind(setup, Values(found.carry, found.begin.scale, args, found.x))
    made = built(step, found, start, at, rebuild, doubles)
    made.iteration = iteration
    if not made.by_data:
        made.program(made.order)
    return made


def _started(
    setup: Setup, at: StartValues, doubles: list[np.ndarray], rebuild: Callable[[Any], Args]
) -> tuple[Rowwise | None, RunStart | None]:
    """The start as a function of rows, and its results for these values; None if it has no scalar form."""
    if setup.system.reaction is not None:  # a reaction of the user's own needs an iteration
        return None, None
    run = lambda t, q, v, h, x: start_run(setup, t, q, v, h, rebuild(x))
    start = Rowwise("start", run, at.columns(doubles), LIMIT)
    if start.rows is None:
        return None, None
    found, good = start.rows.interpret(start.rows.example)
    return start, found if good else None


def begin(setup: Setup, at: StartValues, args: Args) -> NativeRun:
    """Everything before the first step, checked."""
    doubles, _, fixed = floating(args)
    made = kernels(setup, at, args, doubles, fixed)
    if made.by_data:
        _ = made.first_data  # raises if the first matrix is singular
    start = None
    if made.start is not None:
        found = made.start.code().numbers(at.columns(doubles))
        if found[-1]:  # its pivots are good
            if made.columns.fine(found, at.mode):
                return NativeRun(made, found, doubles)
            start = made.columns.rows.unpack(found)[0]
    if made.iteration is not None:
        start = converged(setup, made.iteration, at, doubles)
    start = _start_by_xla(setup, at, args) if start is None else start
    start_errors.examine(start.begin, at.mode, setup.system)
    return NativeRun(made, start, doubles)


def _start_by_xla(setup: Setup, at: StartValues, args: Args) -> RunStart:
    run = program(setup, "start", start_run)
    return jax.tree.map(np.asarray, run(at.t, at.q, at.v, at.first, args, at.guess))


def built(
    step: StepKernels,
    found: RunStart,
    start: Rowwise | None,
    at: StartValues,
    rebuild: Callable[[Any], Args],
    doubles: list[np.ndarray],
) -> Kernels:
    """The kernels of a step, with functions of rows for the start and for derived quantities."""
    setup, state, scale = step.setup, found.begin.state, found.begin.scale
    slots = np.zeros(step.builder.slots)
    step.fill(slots, found, doubles)
    step.fill_first(slots, at.t, at.first)

    def derive(at: StepEnd, scale: Scale, x: Any) -> Derived:
        return row.derive_row(setup, at, scale, rebuild(x), quick=True)

    example = (StepEnd(state.t, state.q, state.v, state.lam, state.psi), scale, doubles)
    return Kernels(step, start, Rowwise("derive", derive, example, LIMIT, often=True), slots)


def derive(setup: Setup, run: NativeRun, args: Args, ends: StepEnd) -> Derived:
    """Accelerations, multipliers, residuals and reactions at the ends of steps (K, ...)."""
    scale, (doubles, _, fixed) = run.start.begin.scale, floating(args)
    if fixed != run.kernels.step.fixed:  # constants of the code
        return derive_blocks(setup, ends, scale, args)
    found = run.kernels.derive((ends, *jax.tree.map(lambda x: np.asarray(x)[None], (scale, doubles))))
    bad = np.flatnonzero(np.isnan(found.a[:, 0]))
    if setup.system.reaction is not None and bad.size:  # they need more iterations
        again = derive_blocks(setup, StepEnd(*(x[bad] for x in ends)), scale, args)
        for whole, part in zip(found, again, strict=True):
            whole[bad] = part
    return found
