"""Steps that follow an error tolerance, run by XLA: in blocks, or as one loop under transforms."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from genalpha.backends.xla import given as xla
from genalpha.engine import controller
from genalpha.engine.controller import Limits, Pace, Tolerances
from genalpha.engine.files import storable
from genalpha.engine.run_data import ExactNumbers, Fields, exact_key, numbers
from genalpha.engine.step import Memory, Setup, advance, attempt
from genalpha.mechanics.initial_values import Beginning
from genalpha.mechanics.system import Args
from genalpha.numerics import codes, linear
from genalpha.numerics.data import Carry, Scale, Times
from genalpha.results.solution import Errors

Control = tuple[Tolerances, Limits]


@storable
class Point(NamedTuple):
    """A run between two steps."""

    carry: Carry
    memory: Memory
    pace: Pace
    known: xla.Crossed = xla.NOTHING


def width(setup: Setup) -> int:
    """Columns of a record: those of `xla`, the end and the size of the step, and its errors (1 + 2n)."""
    return xla.width(setup) + 3 + 2 * setup.dims.n


def timing(setup: Setup, table: Any) -> tuple[Any, Any, Errors]:
    """Ends and sizes of the steps of records, and their errors."""
    first, n = xla.width(setup), setup.dims.n
    t, h, norm = (table[..., first + k] for k in range(3))
    q, v = (table[..., first + 3 + k * n : first + 3 + (k + 1) * n] for k in range(2))
    return t, h, Errors(q, v, norm)


def start(
    setup: Setup, begin: Beginning, control: Control, wish: Any, args: Args
) -> tuple[Point, Array, Array]:
    """A run before its first step, its first row, and the time of its a_α.

    ``wish`` is the size of the first step, NaN where it is to be chosen.
    """
    state, (tolerances, limits) = begin.state, control
    chosen = controller.first(setup.system.space, tolerances, limits, state, begin.a_dot)
    first = controller.begun(limits, state.t, jnp.where(jnp.isnan(wish), chosen, wish), begin.report.status)
    carry, memory, row, t_alpha = xla.start(setup, begin, first.h, args)
    rest = jnp.zeros(2 + 2 * setup.dims.n)
    return Point(carry, memory, first), jnp.concatenate([row, state.t[None], rest]), t_alpha


def block(
    setup: Setup, point: Point, control: Control, scale: Scale, args: Args, most: Any, capacity: int
) -> tuple[Point, Array, Array, Array]:
    """Steps until ``most`` of them are accepted, or until the end or a failure comes.

    Returns the records (capacity, width), the number of those that were written, and Newton's totals (3,).
    """
    _, limits = control

    def going(state: tuple[Any, ...]) -> Array:
        taken, point, _, _ = state
        return (taken < most) & unfinished(limits, point.pace) & ~jnp.any(point.known.fired)

    def step(state: tuple[Any, ...]) -> tuple[Any, ...]:
        taken, (carry, memory, before, known), totals, rows = state
        tried = attempt(setup, carry, memory, before, control, scale, args)
        counts = xla.counts(tried.report)
        record = xla.record(tried.carry, tried.output, counts)
        timing = jnp.stack([tried.pace.t, before.h, tried.size])
        row = jnp.concatenate([record, timing, tried.errors])
        # A row that is not accepted is written over by the next one.
        rows = lax.dynamic_update_index_in_dim(rows, row, taken, 0)
        new = xla.crossed(setup, tried.pace.t, tried.carry, tried.output, args, known)
        known = jax.tree.map(lambda new, old: jnp.where(tried.accepted, new, old), new, known)
        point = Point(tried.carry, tried.memory, tried.pace, known)
        return taken + tried.accepted, point, totals + counts, rows

    rows = jnp.zeros((capacity, width(setup)))
    point = point._replace(known=xla.nothing_crossed(point.known.values))
    first = (jnp.array(0), point, jnp.zeros(3), rows)
    taken, point, totals, rows = lax.while_loop(going, step, first)
    return point, rows, taken, totals


def unfinished(limits: Limits, at: Pace) -> Any:
    return (at.status == codes.SUCCESS) & (at.t < limits.end)


def renewed(limits: Limits, at: Pace, done: int) -> Pace:
    """How a run goes on that is continued, maybe to another end; rejected steps are counted anew unless
    ``done``."""
    h = np.asarray(controller.fitted(limits, at.t, at.wish))
    rejected = at.rejected if done else np.zeros(())
    return at._replace(h=h, rejected=rejected, status=np.zeros(()))


# --- outside of transforms --------------------------------------------------------------------------


class XlaControlled:
    """A run that takes its steps in blocks."""

    def __init__(self, setup: Setup, point: Point, control: Control, scale: Scale, args: Args) -> None:
        self.setup, self.point, self.control, self.scale, self.args = setup, point, control, scale, args
        self.totals, self.width = np.zeros(3), width(setup)
        run = functools.partial(block, capacity=xla.BLOCK)
        self._block = xla.program(setup, "paced block", run)

    @property
    def status(self) -> int:
        return int(self.point.pace.status)

    @property
    def finished(self) -> bool:
        return not bool(unfinished(self.control[1], self.point.pace))

    @property
    def pace(self) -> Pace:
        return self.point.pace

    @property
    def fired(self) -> np.ndarray:
        return np.asarray(self.point.known.fired)

    @property
    def rejected(self) -> int:
        return int(self.pace.rejected)

    def fields(self) -> Fields:
        carry, memory, pace, known = self.point
        kept = (carry, jnp.stack(memory[:3]), memory.newton.fit_and_noise[1])
        return numbers(Fields(*kept, pace, known.values))

    def exact(self) -> ExactNumbers:
        return ExactNumbers(
            exact_key("xla, paced", self.setup, self.args), (numbers(self.point), self.totals.copy())
        )

    def restore(self, fields: Fields, exact: ExactNumbers, done: int) -> None:
        """Go on from there: exactly, where that is possible. Steps are counted from zero unless ``done``."""
        if exact.key == exact_key("xla, paced", self.setup, self.args):
            point, totals = exact.numbers
            self.point = Point(*jax.tree.map(jnp.asarray, point))
        else:
            carry, memory, known = xla.rebuilt(self.setup, self.point.carry, fields)
            at = self.point.pace if fields.pace is None else fields.pace
            self.point, totals = Point(carry, memory, at, known), np.zeros(3)
        self.totals = totals.copy() if done else np.zeros(3)
        self.point = self.point._replace(pace=renewed(self.control[1], self.point.pace, done))

    def take(self, out: np.ndarray) -> int:
        """Fill ``out`` (K, width) with steps; the number of rows that were filled."""
        done = 0
        with linear.single_threaded(self.point.memory.x.size):
            self.point = self.point._replace(known=xla.nothing_crossed(self.point.known.values))
            while done < len(out) and not self.finished and not self.fired.any():
                most = min(xla.BLOCK, len(out) - done)
                inputs = (self.control, self.scale, self.args, most)
                self.point, rows, taken, totals = self._block(self.point, *inputs)
                out[done : done + int(taken)] = np.asarray(rows)[: int(taken)]
                done += int(taken)
                self.totals += np.asarray(totals)
        return done


# --- under transforms -------------------------------------------------------------------------------


class Whole(NamedTuple):
    """A traced run: records (most + 1, width), of which those after the end repeat the last one."""

    table: Array
    t_alpha: Array
    taken: Array
    rejected: Array
    totals: Array
    status: Array


def whole(setup: Setup, begin: Beginning, control: Control, wish: Array, args: Args, most: int) -> Whole:
    """A run of at most ``most`` steps as one computation; rows after a failure are NaN.

    Derivatives are those of the method with the steps that were taken: in the rule for them, the same steps
    are taken once more as a list, in blocks of which only the first state is kept until the derivatives of
    the block are wanted. So reverse differentiation keeps about 2√most states, beside the rows.
    """
    control, wish = lax.stop_gradient((control, wish))

    @jax.custom_jvp
    def run(begin: Beginning, args: Args, control: Control, wish: Array) -> Whole:
        point, row, t_alpha = start(setup, begin, control, wish, args)
        point, rows, taken, totals = block(setup, point, control, begin.scale, args, most, most)
        complete = point.pace.t >= control[1].end
        status = jnp.where(complete, codes.SUCCESS, codes.TOO_MANY)
        status = codes.first(point.pace.status, status).astype(int)
        table = jnp.concatenate([row[None], rows])[jnp.minimum(jnp.arange(most + 1), taken)]
        bad = (status != codes.SUCCESS) & (jnp.arange(most + 1) > taken)
        table = jnp.where(bad[:, None], jnp.nan, table)
        return Whole(table, t_alpha, taken, point.pace.rejected, totals, status)

    def rule(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Whole, Whole]:
        result = run(*primals)
        first = xla.width(setup)
        times = Times(result.table[:-1, first], result.table[1:, first + 1])
        again = functools.partial(_listed, setup, times, result.taken)
        _, (table, t_alpha) = jax.jvp(again, primals[:2], tangents[:2])
        rest = jnp.zeros((most + 1, width(setup) - first))
        zero = jax.tree.map(_no_tangent, result)
        return result, zero._replace(table=jnp.concatenate([table, rest], axis=1), t_alpha=t_alpha)

    run.defjvp(rule)
    return run(begin, args, control, wish)


def _no_tangent(x: Array) -> Any:
    return (
        jnp.zeros_like(x) if jnp.issubdtype(x.dtype, jnp.floating) else np.zeros(x.shape, jax.dtypes.float0)
    )


def _listed(setup: Setup, steps: Times, taken: Array, begin: Beginning, args: Args) -> tuple[Array, Array]:
    """Records (most + 1, width) of steps of which only the first ``taken`` are real, and the time of a_α."""
    carry, memory, row, t_alpha = xla.start(setup, begin, steps.h[0], args)
    start, most = (carry, memory), len(steps.h)
    size = int(np.ceil(np.sqrt(most)))
    blocks = -(-most // size)

    def step(state: Any, at: tuple[Array, Times]) -> tuple[Any, Array]:
        (last, row), (index, here) = state, at
        real = index < taken
        choose = lambda yes, no: jax.tree.map(lambda a, b: jnp.where(real, a, b), yes, no)
        # Where there is nothing left to do, the first step is done again: it is known to have a solution.
        carry, memory = choose(last, start)
        here = choose(here, Times(steps.t[0], steps.h[0]))
        carry, memory, output, report = advance(setup, carry, memory, here, begin.scale, args)
        new = ((carry, memory), xla.record(carry, output, xla.counts(report)))
        state = choose(new, (last, row))
        return state, state[1]

    @jax.checkpoint
    def some(state: Any, at: Any) -> tuple[Any, Array]:
        skip = lambda state: (state, jnp.broadcast_to(state[1], (size, len(row))))
        return lax.cond(at[0][0] < taken, lambda state: lax.scan(step, state, at), skip, state)

    index = jnp.arange(blocks * size)
    at = jax.tree.map(lambda x: x[jnp.minimum(index, most - 1)].reshape(blocks, size), steps)
    _, rows = lax.scan(some, (start, row), (index.reshape(blocks, size), at))
    return jnp.concatenate([row[None], rows.reshape(blocks * size, -1)[:most]]), t_alpha
