"""The loops that XLA runs: a scan under JAX transforms, blocks of steps otherwise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from genalpha.engine import events
from genalpha.engine.files import storable
from genalpha.engine.run_data import ExactNumbers, Fields, exact_key, numbers
from genalpha.engine.step import Memory, Setup, advance, no_memory
from genalpha.mechanics.initial_values import Beginning, accelerations
from genalpha.mechanics.system import Args
from genalpha.numerics import codes, linear, newton
from genalpha.numerics.data import Carry, NewtonReport, Scale, State, StepOutput, Times

# Steps that one call of the compiled loop takes at most. One program then serves every number of steps.
BLOCK = 512


class Rows(NamedTuple):
    """The recorded run, time first: start included in q to psi (N+1 rows), one report a step (N rows).

    ``report`` has the columns iterations, jacobians and rounding; ``t_alpha`` is the time of ``a_alpha[0]``;
    ``extra`` holds the method's own variables by name.
    """

    q: Any
    v: Any
    a_alpha: Any
    lam: Any
    psi: Any
    extra: Any
    report: Any
    t_alpha: Any


class Derived(NamedTuple):
    """What follows from the recorded rows: v', constraint residuals, reaction forces."""

    a: Any
    position: Any
    velocity: Any
    nonholonomic: Any
    holonomic_force: Any
    nonholonomic_force: Any
    reaction: Any


def start(setup: Setup, begin: Beginning, h: Array, args: Args) -> tuple[Carry, Memory, Array, Array]:
    """Carry, memory, recorded row and the time of a_α before the first step of size h."""
    state = begin.state
    carry, t_alpha = setup.method.begin(setup.system, setup.dims, begin, jnp.asarray(h, float), args)
    extra = setup.method.first_extra(setup.dims, begin, carry.h)
    # The method may start beside the given velocities; the record shows those that were given.
    row = record(carry._replace(v=state.v), StepOutput(state.lam, state.psi, extra, extra), jnp.zeros(3))
    return carry, no_memory(setup, begin.scale, carry, state), row, t_alpha


def record(carry: Carry, output: StepOutput, counts: Array) -> Array:
    """One row of numbers: a single write in the loop."""
    return jnp.concatenate([carry.q, carry.v, carry.a, output.lam, output.psi, output.extra, counts])


def _widths(setup: Setup) -> list[int]:
    """Widths of the columns of a record before the counts."""
    size, n, m, p = setup.dims
    return [size, n, n, m, p, *setup.method.extras(setup.dims).values()]


def width(setup: Setup) -> int:
    """The number of columns of a record."""
    return sum(_widths(setup)) + 3


def counts(report: NewtonReport) -> Array:
    return jnp.stack([report.iterations, report.jacobians, report.rounding]).astype(float)


def columns(setup: Setup, table: Any, t_alpha: Any) -> Rows:
    """The parts of records (..., width)."""
    ends = np.cumsum(_widths(setup))
    columns = [table[..., first:last] for first, last in zip([0, *ends[:-1]], ends, strict=True)]
    extra = dict(zip(setup.method.extras(setup.dims), columns[5:], strict=True))
    q, v, a, lam, psi = columns[:5]
    return Rows(q, v, a, lam, psi, extra, report(setup, table[..., 1:, :]), t_alpha)


def put(setup: Setup, table: Any, at: State) -> None:
    """Write a motion over that in records (..., width)."""
    rows = columns(setup, table, None)
    rows.q[...], rows.v[...], rows.lam[...], rows.psi[...] = at.q, at.v, at.lam, at.psi


def report(setup: Setup, table: Any) -> Any:
    """Newton's counts of records (..., width)."""
    first = sum(_widths(setup))
    return table[..., first : first + 3]


# --- under transforms -------------------------------------------------------------------------------


def scan(setup: Setup, begin: Beginning, steps: Times, args: Args) -> tuple[Rows, Array]:
    """All steps as one differentiable, batchable loop. Rows after a failure are NaN.

    Returns the rows and the status.
    """
    carry, memory, first, t_alpha = start(setup, begin, steps.h[0], args)

    def step(state: tuple[Carry, Memory, Array], at: Times) -> tuple[Any, Array]:
        carry, memory, status = state
        carry, memory, output, report = advance(setup, carry, memory, at, begin.scale, args)
        status = codes.first(status, report.status)
        row = jnp.where(status == codes.SUCCESS, record(carry, output, counts(report)), jnp.nan)
        return (carry, memory, status), row

    (_, _, status), rows = lax.scan(step, (carry, memory, begin.report.status), steps)
    return columns(setup, jnp.concatenate([first[None], rows]), t_alpha), status


# --- outside of transforms --------------------------------------------------------------------------


@storable
class Crossed(NamedTuple):
    """The functions of events (E,) after the last step, and which of them fired in it."""

    values: Array
    fired: Array


def crossed(setup: Setup, t: Array, carry: Carry, output: StepOutput, args: Args, before: Crossed) -> Crossed:
    """After a step that ended at t."""
    if not setup.crossings:
        return before
    found = events.values(setup.crossings, t, carry.q, carry.v, output.lam, output.psi, args)
    return Crossed(found, events.fired(setup.crossings, before.values, found))


NOTHING = Crossed(np.zeros(0), np.zeros(0, bool))  # type: ignore[arg-type]


def nothing_crossed(values: Any) -> Crossed:
    return Crossed(jnp.asarray(values), jnp.zeros(len(values), bool))


def _block(
    setup: Setup,
    carry: Carry,
    memory: Memory,
    known: Crossed,
    steps: Times,
    count: Array,
    scale: Scale,
    args: Args,
) -> tuple[Carry, Memory, Crossed, Array, Array, Array]:
    """Up to ``count`` <= BLOCK steps; ends early where one fails or an event happens.

    Returns the number of good ones too.
    """

    def going(state: tuple[Any, ...]) -> Array:
        i, *_, known, status, _ = state
        return (i < count) & (status == codes.SUCCESS) & ~jnp.any(known.fired)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        i, carry, memory, known, _, rows = state
        at = jax.tree.map(lambda column: column[i], steps)
        carry, memory, output, report = advance(setup, carry, memory, at, scale, args, implicit=False)
        known = crossed(setup, at.t + at.h, carry, output, args, known)
        row = record(carry, output, counts(report))
        rows = lax.dynamic_update_index_in_dim(rows, row, i, 0)
        return i + 1, carry, memory, known, report.status, rows

    rows = jnp.zeros((BLOCK, width(setup)))
    first = (jnp.array(0), carry, memory, nothing_crossed(known.values), jnp.array(codes.SUCCESS), rows)
    taken, carry, memory, known, status, rows = lax.while_loop(going, step, first)
    good = jnp.where(status == codes.SUCCESS, taken, taken - 1)
    return carry, memory, known, rows, good, status


class XlaGiven:
    """A run with given steps, taken in blocks."""

    def __init__(
        self,
        setup: Setup,
        carry: Carry,
        memory: Memory,
        scale: Scale,
        steps: Times,
        args: Args,
        status: int = 0,
        known: Any = (),
    ) -> None:
        self.setup, self.carry, self.memory, self.scale = setup, carry, memory, scale
        self.steps, self.args, self.status = steps, args, status
        self.done, self.width = 0, width(setup)
        self.known = nothing_crossed(np.asarray(known, dtype=float))
        self._block = program(setup, "block", _block)

    @property
    def finished(self) -> bool:
        return self.status != codes.SUCCESS or self.done == len(self.steps.h)

    @property
    def fired(self) -> np.ndarray:
        return np.asarray(self.known.fired)

    def fields(self) -> Fields:
        kept = (self.carry, jnp.stack(self.memory[:3]), self.memory.newton.fit_and_noise[1])
        return numbers(Fields(*kept, None, self.known.values))

    def exact(self) -> ExactNumbers:
        return ExactNumbers(
            exact_key("xla", self.setup, self.args), numbers((self.carry, self.memory, self.known))
        )

    def restore(self, fields: Fields, exact: ExactNumbers, done: int) -> None:
        """Go on after ``done`` steps: exactly, where that is possible."""
        self.done = done
        if exact.key == exact_key("xla", self.setup, self.args):
            self.carry, self.memory, self.known = jax.tree.map(jnp.asarray, exact.numbers)
        else:
            self.carry, self.memory, self.known = rebuilt(self.setup, self.carry, fields)

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with steps; the number of rows that were filled."""
        first = self.done
        with linear.single_threaded(self.memory.x.size):
            self.known = nothing_crossed(self.known.values)
            while not self.finished and self.done - first < len(out) and not self.fired.any():
                count = min(BLOCK, len(self.steps.h) - self.done, len(out) - (self.done - first))
                inputs = (_pick(self.steps, self.done), count, self.scale, self.args)
                before = (self.carry, self.memory, self.known)
                self.carry, self.memory, self.known, rows, good, status = self._block(*before, *inputs)
                at = self.done - first
                out[at : at + int(good)] = np.asarray(rows)[: int(good)]
                self.done, self.status = self.done + int(good), int(status)
        return self.done - first


def rebuilt(setup: Setup, like: Carry, fields: Fields) -> tuple[Carry, Memory, Crossed]:
    """Carry, memory without a matrix, and events of a run that goes on elsewhere than it was stopped."""
    carry = fitting(setup, like, fields.carry)
    kept = newton.no_memory(fields.parabola.shape[1])
    kept = kept._replace(fit_and_noise=jnp.array([0.0, fields.noise]))
    x, slope, bend = map(jnp.asarray, fields.parabola)
    memory = Memory(x, slope, bend, kept)
    return jax.tree.map(jnp.asarray, carry), memory, nothing_crossed(fields.known)


def fitting(setup: Setup, like: Carry, carry: Carry) -> Carry:
    """A carry with what those of this setup have; lags are those of many equal steps where they are
    unknown."""
    known = carry._asdict()
    if known["lag"] is None:
        known["lag"] = np.asarray(setup.method.settled_lag(carry.h))
    wanted: Any = {name: None if value is None else known[name] for name, value in like._asdict().items()}
    return Carry(**wanted)


def _pick(columns: Any, first: int) -> Any:
    """A block of rows; the last row fills it up, which can always be evaluated."""
    return jax.tree.map(
        lambda column: column[np.minimum(np.arange(first, first + BLOCK), len(column) - 1)], columns
    )


def program(
    setup: Setup, name: str, function: Callable[..., Any], outermost: bool = True
) -> Callable[..., Any]:
    """The compiled ``function(setup, ...)``, kept with the system it belongs to.

    ``outermost`` says that no JAX transform surrounds the call, so that compiler options may be given.
    """
    key = (name, *setup[1:])

    def make() -> Callable[..., Any]:
        options = compiler_options() if outermost else {}
        return jax.jit(lambda *inputs: function(setup, *inputs), compiler_options=options)

    return setup.system._programs.made(key, make)


@functools.cache
def compiler_options() -> dict[str, Any]:
    """Options that halve the time to compile and leave the run time as it is, where this XLA knows them."""
    options = {"xla_cpu_use_fusion_emitters": False}
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda x: x, compiler_options=options)(0.0)
    except Exception:  # an XLA without this option
        return {}
    return options


# --- what follows from the rows ---------------------------------------------------------------------


def derive(setup: Setup, rows: Rows, times: Array, scale: Scale, args: Args, massless: bool) -> Derived:
    """Accelerations, residuals and reactions for rows of any number."""
    one = lambda t, q, v, lam, psi: derive_row(setup, t, q, v, lam, psi, scale, args, massless)
    return jax.vmap(one)(times, rows.q, rows.v, rows.lam, rows.psi)


def derive_row(
    setup: Setup,
    t: Array,
    q: Array,
    v: Array,
    lam: Array,
    psi: Array,
    scale: Scale,
    args: Args,
    massless: bool,
) -> Derived:
    """Accelerations, residuals and reactions for one row.

    v' solves M v' = f; where the mass matrix is singular (``massless``), it follows from the hidden
    acceleration constraints too.
    """
    system, dims = setup.system, setup.dims
    holonomic = system.holonomic_force(t, q, lam, args)
    nonholonomic = system.nonholonomic_force(t, q, v, psi, args)
    custom = system.reaction is not None
    reaction = system.reactions(t, q, v, lam, psi, args) if custom else holonomic + nonholonomic
    if massless:
        acceleration = accelerations(system, dims, scale, t, q, v, args)[0]
    else:
        acceleration = linear.solve_once(system.M(t, q, args), system.applied(t, q, v, args) + reaction)
    position, velocity = system.g_and_dot(t, q, v, args) if dims.m else (jnp.zeros(0),) * 2
    return Derived(
        a=acceleration,
        position=jnp.max(jnp.abs(position), initial=0.0),
        velocity=jnp.max(jnp.abs(velocity), initial=0.0),
        nonholonomic=jnp.max(jnp.abs(system.k(t, q, v, args)), initial=0.0),
        holonomic_force=holonomic,
        nonholonomic_force=nonholonomic,
        reaction=reaction,
    )


def derive_blocks(
    setup: Setup, rows: Rows, times: np.ndarray, scale: Scale, args: Args, massless: bool
) -> Derived:
    """As ``derive``, compiled once for every number of rows."""
    run = program(setup, f"derive {massless}", functools.partial(derive, massless=massless))
    count = len(times)
    parts = []
    for at in range(0, count, BLOCK):
        block, at_times = _pick((rows._replace(extra=None, report=None, t_alpha=None), times), at)
        parts.append(jax.tree.map(np.asarray, run(block, at_times, scale, args)))
    return jax.tree.map(lambda *blocks: np.concatenate(blocks)[:count], *parts)
