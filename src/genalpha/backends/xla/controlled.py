"""A run under error control by XLA, in blocks of steps."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from genalpha.backends.cache import program
from genalpha.backends.xla import given as xla
from genalpha.engine import controller, row
from genalpha.engine.controller import Limits, Pace, Tolerances
from genalpha.engine.files import storable
from genalpha.engine.run_data import ExactNumbers, Fields, exact_key, numbers
from genalpha.engine.setup import Setup
from genalpha.engine.step import Memory, attempt
from genalpha.mechanics.system import Args
from genalpha.numerics import codes, linear
from genalpha.numerics.data import COUNTED, Carry, Scale

Control = tuple[Tolerances, Limits]


@storable
class Point(NamedTuple):
    """The data of a run between two steps."""

    carry: Carry
    memory: Memory
    pace: Pace
    known: xla.Crossed = xla.NOTHING


def block(
    setup: Setup, point: Point, control: Control, scale: Scale, args: Args, most: Any, capacity: int
) -> tuple[Point, Array, Array, Array]:
    """Take steps until ``most`` of them are accepted, or up to the end, a failure or an event.

    Returns the point after them, the records (capacity, width), their number, and Newton's totals (4,).
    """
    _, limits = control

    def going(state: tuple[Any, ...]) -> Array:
        taken, point, _, _ = state
        return (taken < most) & unfinished(limits, point.pace) & ~jnp.any(point.known.fired)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        taken, (carry, memory, before, known), totals, rows = state
        tried = attempt(setup, carry, memory, before, control, scale, args)
        counts = row.counts(tried.report)
        record = row.record(tried.carry, tried.output, counts)
        timing = jnp.stack([tried.pace.t, before.h, tried.size])
        record = jnp.concatenate([record, timing, tried.errors])
        # The row of a rejected step is overwritten by the next one.
        rows = lax.dynamic_update_index_in_dim(rows, record, taken, 0)
        new = xla.crossed(setup, tried.pace.t, tried.carry, tried.output, scale, args, known)
        known = jax.tree.map(lambda new, old: jnp.where(tried.accepted, new, old), new, known)
        point = Point(tried.carry, tried.memory, tried.pace, known)
        return taken + tried.accepted, point, totals + counts, rows

    rows = jnp.zeros((capacity, row.layout(setup).controlled))
    point = point._replace(known=xla.nothing_crossed(point.known.values))
    first = (jnp.array(0), point, jnp.zeros(len(COUNTED)), rows)
    taken, point, totals, rows = lax.while_loop(going, step, first)
    return point, rows, taken, totals


def unfinished(limits: Limits, at: Pace) -> Any:
    return (at.status == codes.SUCCESS) & (at.t < limits.end)


def renewed(limits: Limits, at: Pace, done: int) -> Pace:
    """The pace of a run that is continued, possibly to another end.

    If ``done`` is 0, rejected steps are counted from zero.
    """
    h = np.asarray(controller.fitted(limits, at.t, at.wish))
    rejected = at.rejected if done else np.zeros(())
    return at._replace(h=h, rejected=rejected, status=np.zeros(()))


# --- outside of transforms --------------------------------------------------------------------------


class XlaControlled:
    """A run that takes its steps in blocks."""

    def __init__(self, setup: Setup, point: Point, control: Control, scale: Scale, args: Args) -> None:
        self.setup, self.point, self.control, self.scale, self.args = setup, point, control, scale, args
        self.totals, self.width = np.zeros(len(COUNTED)), row.layout(setup).controlled
        run = functools.partial(block, capacity=xla.BLOCK)
        self._block, self._size = program(setup, "controlled block", run), xla.BlockSize()

    @property
    def status(self) -> int:
        return int(self.point.pace.status)

    @property
    def finished(self) -> bool:
        return not bool(unfinished(self.control[1], self.point.pace))

    @property
    def next_size(self) -> float:
        return float(self.point.pace.h)

    @property
    def fired(self) -> np.ndarray:
        return np.asarray(self.point.known.fired)

    @property
    def rejected(self) -> int:
        return int(self.point.pace.rejected)

    def fields(self) -> Fields:
        carry, memory, pace, known = self.point
        kept = (carry, jnp.stack(memory[:3]), memory.newton.fit_and_noise[1])
        return numbers(Fields(*kept, pace, known.values))

    def exact(self) -> ExactNumbers:
        return ExactNumbers(
            exact_key("xla, controlled", self.setup, self.args), (numbers(self.point), self.totals.copy())
        )

    def restore(self, fields: Fields, exact: ExactNumbers, done: int) -> None:
        """Continue from a state, to the last bit if possible. If ``done`` is 0, counts start from zero."""
        if exact.key == exact_key("xla, controlled", self.setup, self.args):
            point, totals = exact.numbers
            self.point = Point(*jax.tree.map(jnp.asarray, point))
        else:
            carry, memory, known = xla.rebuilt(self.setup, self.point.carry, fields)
            at = self.point.pace if fields.pace is None else fields.pace
            self.point, totals = Point(carry, memory, at, known), np.zeros(len(COUNTED))
        self.totals = totals.copy() if done else np.zeros(len(COUNTED))
        self.point = self.point._replace(pace=renewed(self.control[1], self.point.pace, done))

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with records of steps. Returns the number of filled rows."""
        done = 0
        with linear.single_threaded(self.point.memory.x.size):
            self.point = self.point._replace(known=xla.nothing_crossed(self.point.known.values))
            while done < len(out) and not self.finished and not self.fired.any():
                with self._size as most:
                    inputs = (self.control, self.scale, self.args, min(most, len(out) - done))
                    self.point, rows, taken, totals = self._block(self.point, *inputs)
                    out[done : done + int(taken)] = np.asarray(rows)[: int(taken)]
                    done += int(taken)
                    self.totals += np.asarray(totals)
        return done
