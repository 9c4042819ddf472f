"""The central program of a run with sparse matrices: Newton's course, and what all parts share."""

from __future__ import annotations

import functools
import itertools
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.step import floating
from genalpha.backends.native.writer import ITERATION, RUN, STEP, flagged, ids, renewed_by
from genalpha.backends.sparse.models import Blocks
from genalpha.compiler.graph import Graph, Unsupported
from genalpha.compiler.program import Builder, Call, Instructions, Program
from genalpha.compiler.reader import Symbols, inline
from genalpha.compiler.repeated import Each, Largest, Load, Pick, Spread, Unload
from genalpha.engine import events
from genalpha.engine.setup import Setup
from genalpha.engine.step import close_step, extrapolated, moved_parabola, rounding_levels
from genalpha.mechanics.system import Args
from genalpha.numerics import codes, newton
from genalpha.numerics.data import COUNTED, Carry, StepOutput

# The most coordinates and velocities that the functions of events may read.
MOST_SEEN = 2000
FLAGS = ("unfinished", "running", "slow", "converged", "alive", "astray")


class Central:
    """Slots and kernels of the central program.

    ``times`` are the slots of t, h, the last h and the two lags, ``sizes`` those of the largest coordinate
    and velocity, ``largest`` those of the largest unknown and correction of each block, ``error`` that of the
    largest residual, and ``report`` (stages, 4) those of the factors.
    """

    def __init__(self, setup: Setup, blocks: Blocks, adjusts: bool, turns: bool, args: Args) -> None:
        self.setup, self.blocks, self.adjusts, self.has_turns = setup, blocks, adjusts, turns
        self.graph = Graph()
        self.builder = builder = Builder(self.graph)
        slot, number = builder.slot, lambda: int(builder.slot(1)[0])
        self.counts = slot(len(COUNTED))
        self.times, self.sizes = slot(5 if adjusts else 3), slot(3)
        self.memory, self.numbers = slot(2), slot(len(newton.Numbers._fields))
        self.largest, self.error = slot(2 * len(blocks.unknowns)), number()
        self.report, self.turns = slot(4 * blocks.stages).reshape(-1, 4), number()
        self.flags = {name: number() for name in FLAGS}
        self.status, self.taken, self.if_singular = number(), number(), number()
        self.totals = slot(len(COUNTED))
        self.events, self.fired = slot(len(setup.crossings)), slot(len(setup.crossings))
        self._extend()
        self._trace()
        self.watched = Watched(self, args)
        self.program: Program = builder.build({RUN: "once", STEP: "prepare"})

    def _extend(self) -> None:
        """Reserve further slots."""
        self.end_time = int(self.builder.slot(1)[0])

    @property
    def listed(self) -> tuple[int, int]:
        return int(self.times[0]), int(self.times[1])

    def _inline(self, function: Any, *arguments: Any) -> Any:
        found = inline(self.graph, function, *arguments)
        kind = lambda x: self.graph.nodes[int(x.reshape(-1)[0])].kind if x.size else "f"
        return jax.tree.map(lambda x: Symbols(x, kind(x)), found)

    def _inputs(self, slots: Any, level: int) -> Symbols:
        return Symbols(self.builder.inputs(np.asarray(slots), level), "f")

    def _trace(self) -> None:
        options, setup = self.setup.newton, self.setup
        h, sizes, memory = (
            self._inputs(self.times[1], STEP),
            self._inputs(self.sizes, STEP),
            self._inputs(self.memory, STEP),
        )
        numbers = newton.Numbers(*(self._inputs(s, ITERATION) for s in self.numbers))  # type: ignore[arg-type]
        groups: tuple[newton.Group, ...] = ()

        def levels(sizes: Any, h: Any) -> newton.Levels:
            nonlocal groups
            found, _ = rounding_levels(setup, (sizes[0], sizes[1], sizes[2]), h)
            groups = _groups(setup)
            return found

        level = self._inline(levels, sizes, h)
        course = (self.numbers, np.array([self.flags[name] for name in ("running", "unfinished", "slow")]))

        self.builder.kernel("once", RUN)
        begun = ids(self._inline(lambda memory: flagged(options, newton.begun(*memory)), memory))
        self.builder.kernel("prepare", STEP, *zip(course, begun, strict=True))

        renew = functools.partial(renewed_by, options)
        new = ids(self._inline(renew, numbers, self._inputs(self.report, ITERATION)))
        targets = (*course, np.array(self.if_singular))
        self.builder.kernel("renew", ITERATION, *zip(targets, new, strict=True))

        def correct(levels: Any, n: newton.Numbers, largest: Any, error: Any) -> Any:
            x, by = largest.reshape(2, -1)
            value = jnp.full(x.shape, error)
            if self.blocks.stages == 1:
                return flagged(options, newton.judged(options, levels, groups, n, x, value, by, "large"))
            after = newton.judged(options, levels, groups, n, x, value, by, "staged")
            return flagged(options, newton.stopped_if_astray(options, n, after))

        inputs = (level, numbers, self._inputs(self.largest, ITERATION), self._inputs(self.error, ITERATION))
        self.builder.kernel(
            "correct", ITERATION, *zip(course, ids(self._inline(correct, *inputs)), strict=True)
        )
        self._judge(numbers, course)
        self._finish(numbers)

    def _judge(self, numbers: newton.Numbers, course: Any) -> None:
        options = self.setup.newton

        def reconsider(n: newton.Numbers) -> Any:
            astray, n = newton.reconsidered(options, n)
            unfinished, converged = newton.unfinished(options, n), n.status == codes.SUCCESS
            ends = jnp.stack(self._ends(n, unfinished, converged, astray)).astype(float)
            return *flagged(options, n), ends, newton.final_status(n)

        flags = np.array([self.flags[name] for name in self.end_flags])
        after = ids(self._inline(reconsider, numbers))
        targets = (*course, flags, np.array(self.status))
        self.builder.kernel("judge", ITERATION, *zip(targets, after, strict=True))

    end_flags: tuple[str, ...] = ("converged", "alive", "astray")

    def _ends(self, n: newton.Numbers, unfinished: Any, converged: Any, astray: Any) -> list[Any]:
        """Whether an iteration converged, whether the run continues, and whether it starts again."""
        return [converged, unfinished | converged, astray]

    def _finish(self, numbers: newton.Numbers) -> None:
        method, none = self.setup.method, cast(Any, np.zeros(0))

        def close(n: newton.Numbers, times: Any, turns: Any, taken: Any, totals: Any) -> Any:
            output = StepOutput(none, none, none, turns[None] if self.has_turns else none)
            status = close_step(jnp.array(codes.SUCCESS), output)
            good = status == codes.SUCCESS
            counts = jnp.stack(newton.counted(n))
            after = [times[1]]
            if self.adjusts:
                carry = Carry(none, none, none, times[2], none, times[3:])
                after += [method.lag(carry, times[1])]
            memory = newton.remembered(self.setup.newton, n, large=True)
            return (
                counts,
                memory,
                status,
                good.astype(float),
                taken + good,
                totals + jnp.where(good, counts, 0.0),
                times[0] + times[1],
                after,
            )

        inputs = [self._inputs(s, STEP) for s in (self.times, self.turns, self.taken, self.totals)]
        *closed, after = ids(self._inline(close, numbers, *inputs))
        single = map(np.array, (self.status, self.flags["alive"], self.taken))
        targets = [self.counts, self.memory, *single, self.totals, np.array(self.end_time)]
        pairs = list(zip(targets, closed, strict=True))
        pairs += zip([self.times[2], self.times[3:]], after, strict=False)
        self.builder.kernel("finish", ITERATION, *pairs)


class Watched:
    """The functions of events. They read only some entries of q and v, and of the arguments.

    ``seen`` are the slots of these entries of the record, at the ``places`` in it. ``given`` are the slots of
    arguments, ``numbers`` the leaf and the number of each. ``time`` is the slot of the end of a step.
    """

    def __init__(self, central: Central, args: Args) -> None:
        setup, graph, builder = central.setup, central.graph, central.builder
        self.seen, self.places, self.given = builder.slot(0), np.zeros(0, int), builder.slot(0)
        self.numbers: list[tuple[int, int]] = []
        if not setup.crossings:
            return
        doubles, rebuild, _ = floating(args)
        q, v = graph.inputs(setup.dims.size), graph.inputs(setup.dims.n)
        leaves = [graph.inputs(x.shape) for x in doubles]
        t = central._inputs(central.end_time, ITERATION)
        none: Any = np.zeros(0)

        def values(t: Any, q: Any, v: Any, x: Any) -> Any:
            return events.values(setup.crossings, t, q, v, none, none, rebuild(x))

        found = inline(graph, values, t, Symbols(q, "f"), Symbols(v, "f"), [Symbols(x, "f") for x in leaves])
        used = np.array(graph.reachable(found.tolist()))
        state = np.concatenate([q, v])
        self.places = np.flatnonzero(np.isin(state, used))
        if len(self.places) > MOST_SEEN:
            raise Unsupported(f"events that read more than {MOST_SEEN} coordinates and velocities")
        self.seen = self._slots(builder, state[self.places], ITERATION)
        for k, leaf in enumerate(leaves):
            self.numbers += [(k, int(i)) for i in np.flatnonzero(np.isin(leaf.reshape(-1), used))]
        own = [leaves[k].reshape(-1)[i] for k, i in self.numbers]
        self.given = self._slots(builder, np.array(own, dtype=int), RUN)
        before = central._inputs(central.events, ITERATION)
        alive = central._inputs(central.flags["alive"], ITERATION)

        def look(before: Any, now: Any, alive: Any) -> Any:
            fired = events.fired(setup.crossings, before, now)
            return now, fired.astype(float), jnp.where(jnp.any(fired), 0.0, alive)

        after = ids(central._inline(look, before, Symbols(found, "f"), alive))
        targets = (central.events, central.fired, np.array(central.flags["alive"]))
        builder.kernel("watch", ITERATION, *zip(targets, after, strict=True))

    @staticmethod
    def _slots(builder: Builder, nodes: np.ndarray, level: int) -> np.ndarray:
        slots = builder.slot(len(nodes))
        builder.slot_of.update(zip(nodes.tolist(), slots.tolist(), strict=True))
        builder.level_of.update(dict.fromkeys(nodes.tolist(), level))
        return slots

    def instructions(self) -> Instructions:
        """Read the state after a step, and look whether an event has happened."""
        if not len(self.seen) and not len(self.given) and not self.numbers:
            return []
        pick = [Pick(int(self.seen[0]), len(self.seen), "seen")] if len(self.seen) else []
        return [*pick, Call("watch")]


def _groups(setup: Setup) -> tuple[newton.Group, ...]:
    """The groups of unknowns with the same rounding level, in which every block counts as one unknown."""
    unknowns = [u for u in setup.method.blocks(setup.dims) if u.size]
    groups = []
    for _, blocks in itertools.groupby(unknowns, lambda u: u.rounding):
        alike = itertools.groupby(blocks, lambda u: u.like == "a")
        groups += [tuple(newton.Block(len(list(some)), motion) for motion, some in alike)]
    return tuple(groups)


class Stream:
    """Kernels on arrays of all unknowns: the first guess, corrections, and the parabola through solutions."""

    name = "stream"

    def __init__(self) -> None:
        graph = Graph()
        builder = Builder(graph)
        slots = builder.slot(9)
        self.p0, self.p1, self.p2, self.x, self.d, self.h, self.h_old, self.size, self.step = map(int, slots)
        p0, p1, p2, x, d, h, h_old = (Symbols(i, "f") for i in map(np.array, builder.inputs(slots[:7], 0)))
        guess = inline(graph, extrapolated, (p0, p1, p2), h_old, h)
        builder.kernel("stream_predict", 0, (slots[3:4], guess.reshape(1)))
        correct = inline(graph, lambda x, d: (x - d, jnp.abs(x - d), jnp.abs(d)), x, d)
        builder.kernel("stream_correct", 0, (slots[[3, 7, 8]], np.array([int(i) for i in correct])))
        moved = inline(graph, moved_parabola, (p0, p1, p2), x, h_old, h)
        builder.kernel("stream_move", 0, (slots[:3], np.array([int(i) for i in moved])))
        size = inline(graph, jnp.abs, x)
        builder.kernel("stream_size", 0, (slots[7:8], size.reshape(1)))
        self.program = builder.build({})
        self.slots = self.program.slots

    def _each(self, name: str, *body: Any) -> Each:
        return Each(name, 0, body)

    def predict(self, central: Central) -> Each:
        times = [Spread(self.h, int(central.times[1])), Spread(self.h_old, int(central.times[2]))]
        loads = [Load(slot, name) for slot, name in ((self.p0, "p0"), (self.p1, "p1"), (self.p2, "p2"))]
        stores = [Unload(self.x, "x"), Unload(self.x, "guess")]
        return self._each("unknowns", *times, *loads, Call("stream_predict"), *stores)

    def correct(self, central: Central, stage: int) -> Instructions:
        """Apply the corrections of a stage block by block, and measure them and the residual."""
        count, parts = len(central.blocks.unknowns), []
        for k, block in enumerate(central.blocks.unknowns):
            if block.stage == stage:
                loads = [Load(self.x, f"x:{k}"), Load(self.d, f"d:{k}")]
                first = int(central.largest[0]) + k
                largest = [Largest(self.size, 1, first), Largest(self.step, 1, first + count)]
                store = Unload(self.x, f"x:{k}")
                parts.append(self._each(f"block:{k}", *loads, Call("stream_correct"), store, *largest))
        size = (Load(self.x, f"r:{stage}"), Call("stream_size"), Largest(self.size, 1, central.error))
        return [*parts, self._each(f"rows:{stage}", *size)]

    def restart(self) -> Each:
        return self._each("unknowns", Load(self.x, "guess"), Unload(self.x, "x"))

    def move(self, central: Central) -> Each:
        times = [Spread(self.h, int(central.times[1])), Spread(self.h_old, int(central.times[2]))]
        names = ((self.p0, "p0"), (self.p1, "p1"), (self.p2, "p2"), (self.x, "x"))
        loads = [Load(slot, name) for slot, name in names]
        stores = [Unload(slot, name) for slot, name in names[:3]]
        return self._each("unknowns", *times, *loads, Call("stream_move"), *stores)
