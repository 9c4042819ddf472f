"""A run with given steps by XLA, in blocks of steps."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from genalpha.backends.cache import program
from genalpha.backends.rowwise import in_blocks
from genalpha.engine import event_values, events, row
from genalpha.engine.files import storable
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.row import Derived
from genalpha.engine.run_data import ExactNumbers, Fields, exact_key, numbers
from genalpha.engine.setup import Setup
from genalpha.engine.step import Memory, advance
from genalpha.mechanics.system import Args
from genalpha.numerics import codes, linear, newton
from genalpha.numerics.data import Carry, Scale, StepOutput, Times

# The most steps in one call of the compiled loop. So one program is enough for any number of steps. The first
# call takes few, and later ones so many that a call takes at most this many seconds.
BLOCK, FEW, LONG = 512, 16, 0.1


@storable
class Crossed(NamedTuple):
    """The functions of events (E,) after the last step, and which of them fired in it."""

    values: Array
    fired: Array


def crossed(
    setup: Setup, t: Array, carry: Carry, output: StepOutput, scale: Scale, args: Args, before: Crossed
) -> Crossed:
    """The values of events after a step that ended at t."""
    if not setup.crossings:
        return before
    found = event_values.values(setup, StepEnd(t, carry.q, carry.v, output.lam, output.psi), args, scale)
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
    """Take up to ``count`` <= BLOCK steps. Ends early if one fails or an event happens.

    Returns also the number of good steps.
    """

    def going(state: tuple[Any, ...]) -> Array:
        i, *_, known, status, _ = state
        return (i < count) & (status == codes.SUCCESS) & ~jnp.any(known.fired)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        i, carry, memory, known, _, rows = state
        at = jax.tree.map(lambda column: column[i], steps)
        carry, memory, output, report = advance(setup, carry, memory, at, scale, args, implicit=False)
        known = crossed(setup, at.t + at.h, carry, output, scale, args, known)
        record = row.record(carry, output, row.counts(report))
        rows = lax.dynamic_update_index_in_dim(rows, record, i, 0)
        return i + 1, carry, memory, known, report.status, rows

    rows = jnp.zeros((BLOCK, row.layout(setup).plain))
    first = (jnp.array(0), carry, memory, nothing_crossed(known.values), jnp.array(codes.SUCCESS), rows)
    taken, carry, memory, known, status, rows = lax.while_loop(going, step, first)
    good = jnp.where(status == codes.SUCCESS, taken, taken - 1)
    return carry, memory, known, rows, good, status


class BlockSize:
    """How many steps a call of a program takes. Ctrl-C is noticed between the calls: they must be short."""

    def __init__(self) -> None:
        self._most, self._began = FEW, 0.0

    def __enter__(self) -> int:
        self._began = time.monotonic()
        return self._most

    def __exit__(self, *_: object) -> None:
        took = time.monotonic() - self._began
        if took > LONG:
            self._most = max(1, self._most // 2)
        elif took < LONG / 4:
            self._most = min(BLOCK, 2 * self._most)


class XlaGiven:
    """A run with given steps, taken in blocks."""

    rejected = 0

    def __init__(
        self, setup: Setup, point: tuple[Carry, Memory, Crossed], scale: Scale, steps: Times, args: Args
    ) -> None:
        self.setup, self.scale, self.steps, self.args = setup, scale, steps, args
        self.carry, self.memory, self.known = point
        self.done, self.width, self.status = 0, row.layout(setup).plain, codes.SUCCESS
        self._block, self._size = program(setup, "block", _block), BlockSize()

    @property
    def next_size(self) -> float:
        return float(self.steps.h[min(self.done, len(self.steps.h) - 1)])

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
        """Continue after ``done`` steps, to the last bit if possible."""
        self.done = done
        if exact.key == exact_key("xla", self.setup, self.args):
            self.carry, self.memory, self.known = jax.tree.map(jnp.asarray, exact.numbers)
        else:
            self.carry, self.memory, self.known = rebuilt(self.setup, self.carry, fields)

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with records of steps. Returns the number of filled rows."""
        first = self.done
        with linear.single_threaded(self.memory.x.size):
            self.known = nothing_crossed(self.known.values)
            while not self.finished and self.done - first < len(out) and not self.fired.any():
                with self._size as most:
                    count = min(most, len(self.steps.h) - self.done, len(out) - (self.done - first))
                    inputs = (_pick(self.steps, self.done), count, self.scale, self.args)
                    before = (self.carry, self.memory, self.known)
                    self.carry, self.memory, self.known, rows, good, status = self._block(*before, *inputs)
                    at = self.done - first
                    out[at : at + int(good)] = np.asarray(rows)[: int(good)]
                    self.done, self.status = self.done + int(good), int(status)
        return self.done - first


def rebuilt(setup: Setup, like: Carry, fields: Fields) -> tuple[Carry, Memory, Crossed]:
    """Carry, memory without a matrix, and events of a run that is continued on another backend."""
    carry = fitting(setup, like, fields.carry)
    kept = newton.no_memory(fields.parabola.shape[1])
    kept = kept._replace(fit_and_noise=jnp.array([0.0, fields.noise]))
    x, slope, bend = map(jnp.asarray, fields.parabola)
    memory = Memory(x, slope, bend, kept)
    return jax.tree.map(jnp.asarray, carry), memory, nothing_crossed(fields.known)


def fitting(setup: Setup, like: Carry, carry: Carry) -> Carry:
    """A carry with the fields that carries of this setup have, those of ``like``.

    If the lag is not known, it is that of many equal steps.
    """
    known = carry._asdict()
    if known["lag"] is None:
        known["lag"] = np.asarray(setup.method.settled_lag(carry.h))
    wanted: Any = {name: None if value is None else known[name] for name, value in like._asdict().items()}
    return Carry(**wanted)


def _pick(columns: Any, first: int) -> Any:
    """A block of rows, padded with the last row, which can always be evaluated."""
    return jax.tree.map(
        lambda column: column[np.minimum(np.arange(first, first + BLOCK), len(column) - 1)], columns
    )


# --- what follows from the rows ---------------------------------------------------------------------


def derive_blocks(setup: Setup, ends: StepEnd, scale: Scale, args: Args) -> Derived:
    """Accelerations, multipliers, residuals and reactions at the ends of steps (K, ...)."""
    return in_blocks(program(setup, "derive", row.derive_rows), ends, scale, args)
