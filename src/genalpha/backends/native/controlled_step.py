"""The kernels of a step under error control, as far as they differ from `step`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.step import StepKernels
from genalpha.backends.native.writer import ITERATION, PIVOT, RUN, STEP, Writer, ids
from genalpha.compiler.program import Call, If, Instructions, Loop, NextTime, StoreRow, While
from genalpha.compiler.reader import Symbols
from genalpha.engine import controller, events, interpolate
from genalpha.engine.error_estimate import Linearized, linearized
from genalpha.engine.step import Before, Tried, close_attempt, close_step
from genalpha.numerics import codes, newton
from genalpha.numerics.data import Carry, Scale


class ControlledWriter(Writer):
    """Writes kernels that estimate the error of a step, and reject the step if it is too large."""

    step: ControlledKernels

    def ends(self, numbers: newton.Numbers, unfinished: Any, converged: Any) -> list[Any]:
        pivot = numbers.status == PIVOT
        return [converged, ~pivot, ~(unfinished | converged | pivot)]

    def finish(self) -> None:
        self.close()
        self.retreat()

    def inputs(self, slots: Any, level: int) -> Any:
        """Symbols for a tree of slots, valid only in the kernels for this order of pivots."""
        make = lambda s: Symbols(self.builder.inputs(np.asarray(s), level), "f")
        return jax.tree.map(make, slots)

    def at_hand(self) -> tuple[Any, ...]:
        """The pace and the counters of the run, and its limits."""
        step = self.step
        at = self.inputs((step.pace, step.taken, step.totals, step.kept), STEP)
        return at, self.inputs((step.limits, step.until, step.room, step.every), RUN)

    def close(self) -> None:
        """Write the kernel after a step that converged: it accepts or rejects the step."""
        step = self.step
        carry, before = step.finished[0], step.parts[0]
        _, by = self.solved("disturb", step.disturbance)
        errors = step.inline(lambda by, a1, *of: step.around(a1, *of).errors(by), by, carry.a, *step.parts)
        old = self.inputs((step.output, step.parabola, step.memory[1], step.events), STEP)
        tolerances = self.inputs(step.tolerances, RUN)

        def close(
            numbers: newton.Numbers,
            course: Any,
            tolerances: Any,
            errors: Any,
            before: Any,
            new: Any,
            old: Any,
        ) -> Any:
            (carry, output, parabola), crossed = new
            ((at, *_), (limits, *_)), (old_output, old_parabola, old_noise, old_events) = course, old
            status = close_step(jnp.array(codes.SUCCESS), output).astype(float)
            after = (carry, tuple(output[:3]), parabola, crossed)
            fit, noise = newton.remembered(self.options, numbers)
            tried = Tried(status, errors, fit, noise, numbers.near_singular > 0, after)
            state = (before, old_output, old_parabola, old_events)
            closed = close_attempt(
                step.setup, (tolerances, limits), at, tried, Before(before, old_noise, state)
            )
            accepted = closed.accepted
            fired = jnp.zeros(0, bool)
            if step.setup.crossings:
                fired = accepted & events.fired(step.setup.crossings, old_events, crossed)
            onward = self.onward(numbers, course, accepted, closed.pace, fired)
            return *closed.state, jnp.stack(closed.fit_and_noise), at.h, closed.size, errors, *onward

        arguments = (
            self.numbers,
            self.at_hand(),
            tolerances,
            errors,
            before,
            (step.finished, step.crossed),
            old,
        )
        closed = ids(step.inline(close, *arguments))
        places = (step.carry, step.output, step.parabola, step.events, step.memory)
        estimate = (step.size, step.error, step.errors)
        self.store("finish", (*places, *estimate, *self.onward_places()), closed)

    def retreat(self) -> None:
        """Write the kernel after a step without a solution."""
        nan = jnp.array(jnp.nan)

        def retreat(numbers: newton.Numbers, course: Any) -> Any:
            (at, *_), (limits, *_) = course
            near_singular = numbers.near_singular > 0
            accepted, after = controller.judged(limits, at, nan, newton.final_status(numbers), near_singular)
            none = jnp.zeros(len(self.step.setup.crossings), bool)
            return jnp.zeros(()), *self.onward(numbers, course, accepted, after, none)

        found = ids(self.step.inline(retreat, self.numbers, self.at_hand()))
        self.store("retreat", (self.step.memory[0], *self.onward_places()), found)

    def onward_places(self) -> tuple[Any, ...]:
        step = self.step
        flags = [step.flags["alive"], step.keep]
        counters = (step.counts, step.totals, step.taken, step.kept, step.place)
        return step.pace, *counters, np.array(flags), step.fired

    def onward(
        self, numbers: newton.Numbers, course: Any, accepted: Any, after: controller.Pace, fired: Any
    ) -> Any:
        """Counters, and whether the run continues and the step is recorded; ordered as `onward_places`."""
        (_, taken, totals, kept), (limits, *asked) = course
        counts = jnp.stack(newton.counted(numbers))
        now = controller.counted(limits, asked, taken, kept, accepted, after)
        flags = jnp.stack([now.alive & ~jnp.any(fired), now.keep]).astype(float)
        return after, counts, totals + counts, now.taken, now.kept, now.place, flags, fired.astype(float)

    def store(self, name: str, places: Any, found: Any) -> None:
        """Write a kernel that stores a tree of nodes in a tree of slots."""
        pairs = zip(jax.tree.leaves(places), jax.tree.leaves(found), strict=True)
        self.builder.kernel(name, ITERATION, *((np.asarray(place), node) for place, node in pairs))

    def closing(self) -> Instructions:
        return (*self.solution("disturb"), *super().closing())

    def loop(self) -> Loop:
        step, flags = self.step, self.step.flags
        plain = super().loop()
        back = If(flags["lost"], (Call("retreat"),))
        keep = If(step.keep, (StoreRow(step.row, step.place),))
        return plain._replace(body=(*plain.body, back, keep), listed=None)


@dataclass
class ControlledKernels(StepKernels):
    """The expressions of a step under error control, and the slots of its data.

    The last columns of a row are the end of the step, its size, the norm of its error, and the errors of q
    and v.
    """

    writer = ControlledWriter

    def _extend_row(self) -> None:
        slot, n = self.builder.slot, self.setup.dims.n
        one = lambda: int(slot(1)[0])
        self.t, self.size, self.error, self.errors = slot(1), one(), one(), slot(2 * n)

    def _lay_out_times(self) -> None:
        slot, n = self.builder.slot, self.setup.dims.n
        one = lambda: int(slot(1)[0])
        self.h = slot(1)
        rest = [one() for _ in controller.Pace._fields[2:]]
        self.pace = controller.Pace(int(self.t[0]), int(self.h[0]), *rest)
        self.tolerances = controller.Tolerances(*(slot(n) for _ in controller.Tolerances._fields))
        self.limits = controller.Limits(*(one() for _ in controller.Limits._fields))
        self.until, self.room, self.every, self.kept, self.place, self.keep = (one() for _ in range(6))

    @property
    def places_of_pace(self) -> controller.Pace:
        return self.pace

    @property
    def counters(self) -> tuple[int, ...]:
        return self.kept, self.place, self.keep, self.flags["lost"]

    @property
    def ends(self) -> tuple[int, ...]:
        return self.pace.t, self.pace.rejected, self.pace.status

    def fill_first(self, slots: np.ndarray, t: float, first: Any) -> None:
        """Nothing to do: the pace contains both."""

    def control(self, slots: np.ndarray, control: Any) -> None:
        """Write tolerances and limits into the slots."""
        for place, value in self.control_places(control):
            slots[place] = value

    def control_places(self, control: Any) -> list[tuple[Any, Any]]:
        """The slots of tolerances and limits, and their values."""
        places = jax.tree.leaves((self.tolerances, self.limits))
        return list(zip(places, jax.tree.leaves(control), strict=True))

    def _trace(self) -> None:
        super()._trace()
        disturb = lambda a1, *of: self.around(a1, *of).disturbance()
        self.disturbance = self.inline(disturb, self.finished[0].a, *self.parts)

    def around(self, a1: Any, carry: Carry, step: Any, x: Any, scale: Scale, args: Any) -> Linearized:
        """The step linearized at its solution."""
        return linearized(self.setup, scale, carry, step, x, a1, args)


class SampledWriter(ControlledWriter):
    """Writes kernels that keep, for each of some times, both ends of the step that contains it."""

    step: SampledKernels

    def finish(self) -> None:
        super().finish()
        step = self.step
        t, due = self.inputs((step.t.reshape(()), np.array(step.due)), ITERATION)
        pending = step.inline(lambda t, due: (due <= t).astype(float), t, due)
        self.store("look", np.array(step.pending), ids(pending))

    def store(self, name: str, places: Any, found: Any) -> None:
        step = self.step
        if name == "finish":
            t, lam, psi = self.inputs((step.t, *step.output[:2]), STEP)
            before = ids((t, step.parts[0].q, step.parts[0].v, lam, psi))
            places, found = (places, tuple(step.before)), (found, before)
        super().store(name, places, found)

    def loop(self) -> Loop:
        step, paced = self.step, super().loop()
        keep = (StoreRow(step.row, step.sample), NextTime(step.due, step.sample), Call("look"))
        return paced._replace(body=(*paced.body[:-1], Call("look"), While(step.pending, keep)))


@dataclass
class SampledKernels(ControlledKernels):
    """A step under error control, with a list of times to sample.

    A row contains, in addition, t, q, v, λ and ψ at the start of the step.
    """

    writer = SampledWriter

    def _extend_row(self) -> None:
        super()._extend_row()
        dims, slot = self.setup.dims, self.builder.slot
        self.before = interpolate.StepEnd(slot(1), *map(slot, (dims.size, dims.n, dims.m, dims.p)))

    def _lay_out_times(self) -> None:
        super()._lay_out_times()
        self.due, self.sample, self.pending = (int(self.builder.slot(1)[0]) for _ in range(3))
