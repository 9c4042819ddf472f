"""Whole runs with given steps as operations of JAX: values, changes and derivatives by machine code."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.code import aligned
from genalpha.backends.native.kernels import StartValues
from genalpha.backends.native.runners import NativeGiven
from genalpha.backends.native.tape import TapedKernels
from genalpha.backends.transforms.base_run import RunOperation
from genalpha.backends.transforms.dense_run import DenseRun
from genalpha.backends.transforms.lanes import LaneMembers
from genalpha.backends.transforms.members import COMPUTED, RunMembers
from genalpha.backends.transforms.operation import Arrays, Asked, Shape
from genalpha.backends.transforms.records import NUMBERS, Block, Rebuild, Taken
from genalpha.backends.xla import whole
from genalpha.compiler.graph import CallsHost
from genalpha.engine import step_choice
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given
from genalpha.numerics import codes
from genalpha.numerics.data import Times
from genalpha.numerics.host import raise_pending

# The most numbers in a tape. Runs with more are computed again for their derivatives, in blocks.
TAPE = 4_000_000


class GivenSteps(RunOperation):
    """A run with given steps.

    Inputs are t0, t1, q, v, the starts (N,) and the sizes (N,) of the steps, and the arguments. The records
    (N+1, ...) are NaN after a failure. If only the ``final`` one is kept, there is one.
    """

    def __init__(
        self, setup: Setup, strict: bool, doubles: list[Any], rebuild: Rebuild, final: bool = False
    ) -> None:
        super().__init__(setup, strict, doubles, rebuild, 1.0)
        self.kept = slice(-1, None) if final else slice(None)

    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        rows, dims = len(range(inputs[4][0] + 1)[self.kept]), self.setup.dims
        of_parts = [(rows, at.stop - at.start) for at in self.parts]
        return [*of_parts, *[()] * len(NUMBERS), (dims.n + dims.m + dims.p,)]

    def tape_shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        count, (width, _) = inputs[4][0] + 1, self.widths
        return [(count, width), (sum(self.setup.dims[1:]),)] if count * width <= TAPE else []

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        return self._run(inputs, None)

    def taped(self, inputs: Arrays) -> list[np.ndarray]:
        table = np.full((len(inputs[5]) + 1, self.widths[0]), np.nan)
        found = self._run(inputs, table)
        return [*found, table, found[-1]]

    def _run(self, inputs: Arrays, tape: np.ndarray | None) -> list[np.ndarray]:
        """The outputs. The tape (N+1, W) is written if it is given."""
        t0, _, _, _, times, sizes, *_ = inputs
        run, runner, status = self._begin_at(inputs)
        shown = np.full((len(sizes) + 1, self.layout.plain), np.nan)
        first, shown[0] = self.first_rows(run)
        taken = 0
        for here, table in self._blocks(runner, first) if status == codes.SUCCESS else ():
            taken = here + len(table) - 1
            shown[here + 1 : taken + 1] = table[1:, : self.layout.plain]
            if tape is not None:
                tape[here : taken + 1] = table
        status = status if runner is None else runner.status
        totals = self.layout.report(shown[1 : taken + 1]).sum(axis=0)
        end = times[taken - 1] + sizes[taken - 1] if taken else t0
        numbers = (status, taken, 0.0, end, t0 if run is None else run.t_alpha, *totals)
        parts = [shown[self.kept, at] for at in self.parts]
        return [*parts, *(np.asarray(x, dtype=float) for x in numbers), self.scale_of(run)]

    def _begin_at(self, inputs: Arrays) -> tuple[Any, Any, int]:
        """The start of a run, who takes its steps, and the status."""
        t0, t1, q, v, times, sizes, *doubles = inputs
        steps = Given(np.append(times, t1), Times(times, sizes))
        run, runner, status = self.starting(StartValues(float(t0), q, v, float(sizes[0])), steps, doubles)
        if not step_choice.fitting((t0, t1), times, sizes):
            return run, None, codes.BAD_STEPS
        return run, runner, status

    def _blocks(self, runner: Any, last: np.ndarray, marks: list[Any] | None = None) -> Iterator[Block]:
        """Take all steps, some at a time. ``marks`` notes where each block starts, to take it again."""
        count, (width, _) = len(runner.sizes), self.widths
        size = count if count * width <= TAPE else math.isqrt(count) + 1
        while not runner.finished:
            if marks is not None:
                marks.append((runner.mark(), last))
            first, table = runner.done, np.empty((min(size, count - runner.done) + 1, width))
            table[0] = last
            taken = runner.take(table[1:])
            raise_pending()
            last = table[taken].copy()
            if taken:
                yield first, table[: taken + 1]

    def _again(self, runner: Any, marks: list[Any], backward: bool) -> Iterator[Block]:
        """The tape of a run in blocks, computed again: about √N steps are in memory at a time."""
        for mark, last in reversed(marks) if backward else marks:
            runner.go_back(mark)
            yield next(self._blocks(runner, last))

    def _taken(self, inputs: Arrays, tape: Arrays) -> Taken | None:
        """The run with its tape, computed again if it was not kept; None if it has failed."""
        t0, _, q, v, times, sizes, *doubles = inputs
        run, runner, _ = self._begin_at(inputs) if self.iterates or not tape else (None, None, 0)
        blocks: Any
        if tape:
            table, scale = tape
            blocks, failed = lambda backward: [(0, table)], not np.isfinite(table[-1]).all()
        elif runner is None:
            return None
        else:
            marks: list[Any] = []
            for _ in self._blocks(runner, self.first_rows(run)[0], marks):
                pass
            blocks, scale = functools.partial(self._again, runner, marks), self.scale_of(run)
            failed = runner.status != codes.SUCCESS
        if failed:
            return None
        return Taken(float(t0), q, v, doubles, times, sizes, scale, blocks, self.guess_of(run))

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        t0, _, q, v, times, sizes, *doubles = changes
        start = np.concatenate([np.ravel(x) for x in (t0, q, v, sizes[0], *doubles)])
        taken = self._taken(inputs, tape)
        if taken is None:
            shapes = self.shapes([np.shape(x) for x in inputs])
            return [np.full(s, np.nan) for s in shapes[: len(self.parts) - 1]]
        table = self.changed(taken, start, np.stack([times, sizes], axis=1))[self.kept]
        return [table[:, at] for at in self.parts[:-1]]

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        taken = self._taken(inputs, tape)
        if taken is None:
            return [np.full(np.shape(x), np.nan) for x in inputs]
        table = np.zeros((len(taken.sizes) + 1, self.widths[1]))
        table[self.kept] = np.concatenate(weights, axis=1)
        start, of_steps = self.pulled(taken, table)
        t0, q, v, first, *doubles = self.apart(start, taken.doubles)
        times, sizes = of_steps.T.copy()
        sizes[0] += first[0]
        parts = (t0, np.zeros(()), q, v, times, sizes, *doubles)
        return [np.reshape(x, np.shape(y)) for x, y in zip(parts, inputs, strict=True)]

    def by_xla(self, *inputs: Any) -> list[Any]:
        t0, t1, q, v, times, sizes, *doubles = inputs
        args = self.rebuild(list(doubles))
        fitting = step_choice.fitting((t0, t1), times, sizes)
        begin = self.begun_by_xla(t0, q, v, args, jnp.where(fitting, codes.SUCCESS, codes.BAD_STEPS))
        steps = Given(jnp.append(times, times[-1] + sizes[-1]), Times(times, sizes))
        found = whole.run(self.setup, begin, steps, args)
        numbers = [found.status, found.taken, 0.0, jnp.max(steps.times), found.t_alpha, *found.totals]
        parts = self.unless_failed([found.table[self.kept, at] for at in self.parts], found.status)
        return [*parts, *(jnp.asarray(x, float) for x in numbers), jnp.concatenate([*begin.scale])]


class GivenOnly(NativeGiven):
    """A run that fails where no order of pivots is good: XLA must not be called from inside XLA."""

    def _leave(self) -> None:
        self.status = codes.NOT_CONVERGED

    def mark(self) -> tuple[Any, ...]:
        """All that is needed to take the next steps once more, to the last bit."""
        of = self.machine
        return of.slots.copy(), of.code, of.order, [*of.orders], of.changes, self.done

    def go_back(self, mark: tuple[Any, ...]) -> None:
        of = self.machine
        slots, of.code, of.order, of.orders, of.changes, self.done = mark
        of.slots, self.status = aligned(len(slots)), codes.SUCCESS
        of.slots[:] = slots


class GivenRun(DenseRun, GivenSteps):
    """The same with dense matrices. Members of a batch run side by side."""

    kind, runner = TapedKernels, GivenOnly
    runs_members: type[RunMembers] = LaneMembers

    def members(self, asked: Asked, size: int, inputs: Arrays, more: Arrays) -> list[np.ndarray]:
        own = asked.own(len(inputs))
        one = [x[0] if yes else x for x, yes in zip(inputs, own, strict=True)]
        same = not any(own[i] for i in (0, 1, 4, 5))  # the steps
        first = StartValues(float(one[0]), one[2], one[3], float(one[5][0])) if same else None
        made = None if first is None or self.iterates else self.made(first, one[6:])
        if made is None:
            return super().members(asked, size, inputs, more)
        try:
            batch = self.runs_members(self, made, size, inputs, own)
        except CallsHost:
            return super().members(asked, size, inputs, more)
        found = COMPUTED[asked.kind](batch, asked, more)
        for i in np.flatnonzero(batch.alone):
            for out, part in zip(found, self.member(asked, int(i), inputs, more), strict=True):
                out[i] = part
        return found
