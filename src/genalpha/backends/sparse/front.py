"""Runs of large assemblies: which of them use sparse matrices, their start, and derived quantities."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from genalpha.backends.native.code import MAKING
from genalpha.backends.native.kernels import StartValues
from genalpha.backends.native.step import floating
from genalpha.backends.sparse import checks, models
from genalpha.backends.sparse.code import SparseCode, TapedCode
from genalpha.backends.sparse.controlled import ControlledCode, TapedControlledCode
from genalpha.backends.sparse.controlled_runner import SparseControlled
from genalpha.backends.sparse.equations import AtState, Equations
from genalpha.backends.sparse.models import KindModel, Kinds
from genalpha.backends.sparse.projection import Projector
from genalpha.backends.sparse.runner import SparseGiven
from genalpha.backends.sparse.start import Starter
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given, Steps
from genalpha.errors import FallbackWarning, warn
from genalpha.mechanics.assembly import Assembly
from genalpha.mechanics.system import Args, Dims
from genalpha.methods import Method
from genalpha.numerics.data import State

Known = Callable[[Callable[[], State]], np.ndarray]
# The most unknowns of an assembly that runs with dense matrices if it must.
MOST_DENSE = 5000
# Assemblies with more unknowns in a step than this are solved with sparse matrices (docs/benchmarks.md);
# members of batches, which run in lanes with dense ones, with more velocities than the second number.
DENSE, DENSE_IN_BATCHES = 66, 40
# States of assemblies with more velocities than this are found with sparse matrices.
LARGE = 6


class SparseRun(NamedTuple):
    """A run before its first step: who takes the steps, the first record, and the time of its a_α."""

    runner: SparseGiven | SparseControlled
    row: np.ndarray
    t_alpha: np.ndarray
    derive: Callable[..., Derived]


class Made(NamedTuple):
    """What is made once for a setup and the shapes of its arguments."""

    code: SparseCode
    functions: dict[Any, Any]


def refusal(setup: Setup, steps: Steps) -> str:
    """Why sparse matrices cannot serve a run of an assembly; empty if they can."""
    method = setup.method.staged(setup.dims)
    if not method.adds_up(setup.dims):
        return f"the equations of {method.name} for a whole are not the sum of those for its parts"
    if any(crossing.loads for crossing in setup.crossings):
        return "events that depend on λ or ψ"
    if isinstance(steps, Given) and steps.steps.project is not None:
        return "projections of the velocity"
    return ""


def large(setup: Setup) -> bool:
    """Whether states of a system are found with sparse matrices."""
    return isinstance(setup.system, Assembly) and setup.dims.n > LARGE


def unknowns(setup: Setup) -> int:
    """The number of unknowns of a step."""
    return _unknowns(setup.method, setup.dims)


@functools.lru_cache
def _unknowns(method: Method, dims: Dims) -> int:
    return sum(method.sizes(dims).values())


def sizeable(setup: Setup, batch: bool = False) -> bool:
    """Whether a run, or all runs of a batch, are too large for dense matrices to be faster."""
    some = setup.dims.n > DENSE_IN_BATCHES if batch else unknowns(setup) > DENSE
    return some and large(setup)


def wanted(setup: Setup, steps: Steps, batch: bool = False) -> bool:
    """Whether a run, or all runs of a batch, use sparse matrices."""
    return sizeable(setup, batch) and not refusal(setup, steps)


def refuse_dense(setup: Setup, steps: Steps) -> None:
    """Warn of a run of a large assembly that needs dense matrices. Raises if they would be too large."""
    if not isinstance(setup.system, Assembly) or unknowns(setup) <= DENSE:
        return
    size = setup.dims.n + setup.dims.m + setup.dims.p
    what = f"an assembly with {size} unknowns cannot be solved part by part: {refusal(setup, steps)}"
    if size > MOST_DENSE:
        raise ValueError(
            f"{what}. Dense matrices would take {8e-9 * size**2:.2g} GB each. Use another method than 'cs' "
            "and 'cm', and let events depend on q and v only"
        )
    warn(
        f"{what}. It is compiled as a whole, which takes seconds to minutes, and its steps take longer",
        FallbackWarning,
    )


def refuse_large(setup: Setup) -> None:
    """Raise if the dense matrices of XLA would be too large."""
    size = setup.dims.n + setup.dims.m + setup.dims.p
    if size > MOST_DENSE:
        raise ValueError(
            f"backend='xla' solves an assembly with dense matrices, {8e-9 * size**2:.2g} GB each for {size} "
            "unknowns. Use backend='auto'"
        )


def projector(setup: Setup, args: Args) -> Projector:
    """Moves states of an assembly onto its constraints."""
    assembly = setup.system
    assert isinstance(assembly, Assembly)
    kinds = models.of_assembly(assembly, args)
    functions = assembly._programs.made(("sparse functions", kinds.shapes), dict)
    return Projector(kinds.nodes, _equations(setup, kinds.parts, functions, args))


# The classes of code: with given steps and under error control, without and with a tape.
_CODES = {(False, False): SparseCode, (False, True): TapedCode}
_CODES |= {(True, False): ControlledCode, (True, True): TapedControlledCode}


def begin(
    setup: Setup, at: StartValues, steps: Steps, args: Args, known: Known, taped: bool = False
) -> SparseRun:
    """Everything before the first step, checked. Records of a run that is ``taped`` serve derivatives."""
    assembly = setup.system
    assert isinstance(assembly, Assembly)
    setup = setup._replace(method=setup.method.staged(setup.dims))
    nodes, parts, _ = kinds = models.of_assembly(assembly, args)
    made = _made(setup, kinds, _CODES[steps.controlled, taped], args)
    if made.code.kept.get("coupled"):  # an earlier run had to couple the stages
        made = made._replace(code=_made(setup, kinds, type(made.code), args, coupled=True).code)
    equations = _equations(setup, parts, made.functions, args)
    state = equations.at(float(at.t), np.asarray(at.q, dtype=float), np.asarray(at.v, dtype=float))
    checks.examine(state, at.mode)
    with checks.explaining(state):
        start = Starter(setup, nodes, equations).run(state, at.first, at.guess)
    checks.solved(state, start)
    runner: Any = SparseControlled if steps.controlled else SparseGiven
    runner = runner(setup, made.code, [*nodes, *parts], start, steps, args)
    runner.watch(known(lambda: start.state))
    if made.code.blocks.stages > 1:
        runner.coupled = lambda: _made(setup, kinds, type(made.code), args, coupled=True).code

    def derive(ends: StepEnd, args: Args = args) -> Derived:
        parts = models.of_assembly(assembly, args).parts
        return derived(_equations(setup, parts, made.functions, args), ends)

    return SparseRun(runner, start.row, np.asarray(start.t_alpha), derive)


def _equations(setup: Setup, parts: list[KindModel], functions: dict[Any, Any], args: Args) -> Equations:
    """The equations of an assembly with these args. Those with the own args of the parts are made once."""
    make = lambda: Equations(parts, setup.dims, functions, setup.system.labels)
    if args:
        return make()
    if "equations" not in functions:
        functions["equations"] = make()
    return functions["equations"]


def _made(setup: Setup, kinds: Kinds, code: type[SparseCode], args: Args, coupled: bool = False) -> Made:
    fixed = floating(args)[2] if setup.crossings else ()
    with MAKING:
        key = ("sparse", code, coupled, *setup[1:], kinds.shapes, fixed)
        make = lambda: Made(code(setup, [*kinds.nodes, *kinds.parts], args, coupled), {})
        return setup.system._programs.made(key, make)


def code(setup: Setup, kinds: Kinds, args: Args, controlled: bool, taped: bool) -> SparseCode:
    """The code of a run."""
    return _made(setup, kinds, _CODES[controlled, taped], args).code


def derived(equations: Equations, ends: StepEnd) -> Derived:
    """Accelerations, multipliers, residuals and reactions of rows (K, ...), as in `derive_row`."""
    t, q, v, lam, psi = map(np.asarray, ends)
    rows = [_derived(at, guess) for at, *guess in zip(equations.rows(t, q, v), lam, psi, strict=True)]
    return Derived(*(np.stack(part) for part in zip(*rows, strict=True)))


def _derived(at: AtState, guess: list[np.ndarray]) -> Derived:
    _, n, m, p = at.dims
    try:
        a, lam, psi = at.accelerations(guess)[0]
    except RuntimeError:  # singular
        a, lam, psi = (np.full(size, np.nan) for size in (n, m, p))
    holonomic, nonholonomic = at.reactions(lam, psi)
    largest = lambda x: np.abs(x).max(initial=0.0)
    sizes = (largest(at.g), largest(at.g_dot), largest(at.k))
    return Derived(a, lam, psi, *sizes, holonomic, nonholonomic, at.reaction(lam, psi))


def consistent(setup: Setup, t: float, q: np.ndarray, v: np.ndarray, args: Args, guess: Any = None) -> State:
    """Consistent accelerations and multipliers at a state."""
    at = projector(setup, args).equations.at(t, q, v)
    checks.examine(at, "assume")
    with checks.explaining(at):
        found = at.accelerations(guess)[0]
    return State(np.float64(t), q, v, *found)  # type: ignore[arg-type]


def detail(setup: Setup, at: State, h: float, args: Args) -> str:
    """A sentence about a failure in the step of size h after the state ``at``."""
    found = projector(setup, args)
    q, v = np.asarray(at.q), np.asarray(at.v)
    before = found.equations.at(float(at.t), q, v)
    return checks.detail(before, found.equations.at(float(at.t) + h, found.retract(q, h * v), v))
