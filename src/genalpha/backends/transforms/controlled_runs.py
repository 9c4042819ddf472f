"""Runs under error control as operations of JAX. Their derivatives are those with the steps taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.kernels import StartValues
from genalpha.backends.native.runners import NativeControlled
from genalpha.backends.native.tape import TapedControlledKernels
from genalpha.backends.transforms.base_run import RunOperation
from genalpha.backends.transforms.dense_run import DenseRun
from genalpha.backends.transforms.operation import Arrays, Shape
from genalpha.backends.transforms.records import NUMBERS, Rebuild, Taken
from genalpha.backends.transforms.rows import RowOperation
from genalpha.backends.xla import whole
from genalpha.engine import interpolate
from genalpha.engine.interpolate import StepEnd
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Controlled
from genalpha.numerics import codes
from genalpha.numerics.host import raise_pending


class _Kept(NamedTuple):
    """Which rows are kept of a run with K steps: the numbers of their steps, and the times between them."""

    steps: np.ndarray
    times: np.ndarray | None = None


class ControlledSteps(RunOperation):
    """A run under error control.

    Inputs are t0, q, v, the leaves of the control, and the arguments; and first, if rows at given times (R,)
    are kept, these times. Otherwise the rows are those of all steps, as many as may be taken, of which those
    after the end repeat the last one; or only the last one.
    """

    timed = 3

    def __init__(
        self, setup: Setup, strict: bool, doubles: list[Any], rebuild: Rebuild, steps: Controlled, keep: str
    ) -> None:
        super().__init__(setup, strict, doubles, rebuild, steps)
        self.control: Any = jax.tree.structure(steps)
        self.keep, self.most = keep, steps.room(0)
        self._sampling = self._make_sampling() if keep == "times" else None

    def _make_sampling(self) -> Any:
        """The motion between two ends of a step, as an operation on rows."""
        raise NotImplementedError

    def _split(self, inputs: Arrays) -> tuple[Any, Any, Any, Any, Controlled, list[Any]]:
        """The wanted times or None, t0, q, v, the control and the arguments."""
        times, rest = (inputs[0], inputs[1:]) if self.keep == "times" else (None, inputs)
        t0, q, v, *others = rest
        count = self.control.num_leaves
        return times, t0, q, v, jax.tree.unflatten(self.control, others[:count]), list(others[count:])

    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        dims = self.setup.dims
        count = {"times": lambda: inputs[0][0], "final": lambda: 1, "all": lambda: self.most + 1}[self.keep]()
        of_parts = [(count, at.stop - at.start) for at in self.parts]
        timing = [(count,), (count,), (count, 1 + 2 * dims.n)]
        return [*of_parts, *timing, *[()] * len(NUMBERS), (dims.n + dims.m + dims.p,)]

    # --- the value --------------------------------------------------------------------------------

    def _run(self, inputs: Arrays) -> tuple[Taken, np.ndarray, tuple[float, ...], np.ndarray]:
        """The run, its records (K+1, width), its numbers, and the scale."""
        _, t0, q, v, control, doubles = self._split(inputs)
        run, runner, status = self.starting(StartValues(float(t0), q, v, control), control, doubles)
        first, record = self.first_rows(run)
        table, taken, rejected, totals = np.empty((512, len(first))), 0, 0, np.zeros(len(NUMBERS) - 5)
        if runner is not None:
            while not runner.finished and taken < self.most:
                if taken == len(table):
                    table = np.concatenate([table, np.empty_like(table)])
                taken += runner.take(table[taken : min(len(table), self.most)])
                raise_pending()
            status, rejected, totals = runner.status, runner.rejected, np.array(runner.totals)
            status = codes.TOO_MANY if status == codes.SUCCESS and not runner.finished else status
        table = np.concatenate([first[None], table[:taken]])
        shown = table[:, : self.layout.controlled].copy()
        shown[0] = record
        if run is None:
            shown[0, self.layout.plain : self.layout.plain + 2] = t0, 0.0
        ends, sizes = self.layout.timing(shown)
        t_alpha = float(t0 if run is None else run.t_alpha)
        numbers = (status, taken, rejected, ends[-1], t_alpha, *totals)
        blocks = lambda backward: [(0, table)] if taken else []
        scale, guess = self.scale_of(run), self.guess_of(run)
        at = Taken(float(t0), q, v, doubles, ends[:-1], sizes[1:], scale, blocks, guess)
        return at, shown, numbers, at.scale

    def _kept(self, inputs: Arrays, ends: np.ndarray) -> _Kept:
        """The rows that are kept, from the times (K+1,) of all steps."""
        last = len(ends) - 1
        if self.keep == "times":
            return _Kept(interpolate.steps_of(ends, inputs[0]), inputs[0])
        if self.keep == "final":
            return _Kept(np.array([last]))
        return _Kept(np.minimum(np.arange(self.most + 1), last))

    def _ends(self, shown: np.ndarray, ends: np.ndarray, steps: np.ndarray) -> list[np.ndarray]:
        """The motion at the ends of steps, as leaves of a `StepEnd`."""
        q, v, lam, psi = (shown[steps][:, self.layout.parts[name]] for name in ("q", "v", "lam", "psi"))
        return [ends[steps], q, v, lam, psi]

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        _, shown, numbers, scale = self._run(inputs)
        ends, sizes = self.layout.timing(shown)
        kept = self._kept(inputs, ends)
        rows = shown[kept.steps]
        if kept.times is not None:
            rows = self._put(rows, self._sampled(shown, ends, kept))
        lost = np.zeros(len(rows), bool)
        if numbers[0] != codes.SUCCESS:
            late = kept.times > ends[-1] if kept.times is not None else np.arange(len(rows)) >= len(ends)
            lost = late if self.keep != "final" else ~lost
            lost[-1] |= self.keep == "all"  # the end was not reached
        rows[lost] = np.nan
        errors = rows[:, self.layout.of_errors]
        timing = [np.where(lost, np.nan, ends[kept.steps]), sizes[kept.steps], errors]
        of_numbers = [np.asarray(x, dtype=float) for x in numbers]
        return [*(rows[:, at] for at in self.parts), *timing, *of_numbers, scale]

    def _sample_inputs(self, shown: np.ndarray, ends: np.ndarray, kept: _Kept) -> list[np.ndarray]:
        before, after = (self._ends(shown, ends, i) for i in (np.maximum(kept.steps - 1, 0), kept.steps))
        assert kept.times is not None
        return [*before, *after, np.asarray(kept.times)]

    def _sampled(self, shown: np.ndarray, ends: np.ndarray, kept: _Kept) -> list[np.ndarray]:
        """q, v, λ and ψ at the wanted times."""
        assert self._sampling is not None
        return self._sampling.value(self._sample_inputs(shown, ends, kept))

    def _put(self, rows: np.ndarray, motion: Sequence[np.ndarray]) -> np.ndarray:
        for name, x in zip(("q", "v", "lam", "psi"), motion, strict=True):
            rows[:, self.layout.parts[name]] = x
        return rows

    # --- derivatives ------------------------------------------------------------------------------

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        taken, shown, numbers, _ = self._run(inputs)
        _, t0, q, v, _, doubles = self._split(changes)
        start = np.concatenate([np.ravel(x) for x in (t0, q, v, 0.0, *doubles)])
        ends, _ = self.layout.timing(shown)
        kept = self._kept(inputs, ends)
        if numbers[0] != codes.SUCCESS:
            return [np.full((len(kept.steps), at.stop - at.start), np.nan) for at in self.parts[:-1]]
        table = self.changed(taken, start, np.zeros((len(taken.sizes), 2)))
        rows = table[kept.steps]
        if kept.times is not None:
            assert self._sampling is not None
            zero = np.zeros(len(ends))
            moved = self._sample_inputs(table, zero, kept)
            moved[-1] = np.zeros(len(rows))
            motion = self._sampling.tangent(self._sample_inputs(shown, ends, kept), [], moved)
            rows = self._put(rows, motion)
        return [rows[:, at] for at in self.parts[:-1]]

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        taken, shown, numbers, _ = self._run(inputs)
        if numbers[0] != codes.SUCCESS:
            return [np.full(np.shape(x), np.nan) for x in inputs]
        ends, _ = self.layout.timing(shown)
        kept, rows = self._kept(inputs, ends), np.concatenate(weights, axis=1)
        table = np.zeros((len(ends), rows.shape[1]))
        if kept.times is not None:
            assert self._sampling is not None
            names = ("q", "v", "lam", "psi")
            wanted = [rows[:, self.layout.parts[name]].copy() for name in names]
            rows = self._put(rows.copy(), [np.zeros_like(x) for x in wanted])
            back = self._sampling.cotangent(self._sample_inputs(shown, ends, kept), [], wanted)
            for first, steps in ((1, np.maximum(kept.steps - 1, 0)), (6, kept.steps)):
                for name, x in zip(names, back[first : first + 4], strict=True):
                    at = self.layout.parts[name]
                    np.add.at(table, (steps[:, None], np.arange(at.start, at.stop)[None]), x)
        np.add.at(table, kept.steps, rows)
        start, _ = self.pulled(taken, table)
        t0, q, v, _, *doubles = self.apart(start, taken.doubles)
        zeros = [np.zeros(np.shape(x)) for x in inputs]
        lead = int(self.keep == "times")
        zeros[lead : lead + 3] = t0, q, v
        zeros[len(zeros) - len(doubles) :] = doubles
        return [np.reshape(x, np.shape(y)) for x, y in zip(zeros, inputs, strict=True)]

    def by_xla(self, *inputs: Any) -> list[Any]:
        times, t0, q, v, control, doubles = self._split(inputs)
        args, space = self.rebuild(doubles), self.setup.system.space
        begin = self.begun_by_xla(t0, q, v, args)
        found = whole.run(self.setup, begin, control, args)
        numbers = [found.status, found.taken, found.rejected, jnp.max(found.t), found.t_alpha, *found.totals]
        table, t, h = found.table, found.t, found.h
        if times is not None:
            steps = interpolate.steps_of(t, times)
            motion = interpolate.within(space, self.layout.ends(table, t), steps, times)
            table, t, h = table[steps], t[steps], h[steps]
            for name in ("q", "v", "lam", "psi"):
                table = table.at[:, self.layout.parts[name]].set(getattr(motion, name))
        elif self.keep == "final":
            table, t, h = table[-1:], t[-1:], h[-1:]
        parts = self.unless_failed([table[:, at] for at in self.parts], found.status)
        timing = [t, h, table[:, self.layout.of_errors]]
        scale = jnp.concatenate([*begin.scale])
        return [*parts, *timing, *(jnp.asarray(x, float) for x in numbers), scale]


class ControlledOnly(NativeControlled):
    """A run that fails where no order of pivots is good: XLA must not be called from inside XLA."""

    def _leave(self) -> None:
        self.machine.slots[self.step.pace.status] = codes.NOT_CONVERGED


class ControlledRun(DenseRun, ControlledSteps):
    """The same with dense matrices."""

    kind, runner = TapedControlledKernels, ControlledOnly

    def _make_sampling(self) -> Any:
        return sampling(self.setup)


def sampling(setup: Setup) -> RowOperation:
    """The motion between two ends of a step as an operation on rows."""
    space, dims = setup.system.space, setup.dims

    def one(before: StepEnd, after: StepEnd, t: Any) -> Any:
        at = interpolate.between(space, before, after, t)
        return at.q, at.v, at.lam, at.psi

    zeros = lambda *shape: np.zeros(shape)
    at = StepEnd(zeros(), zeros(dims.size), zeros(dims.n), zeros(dims.m), zeros(dims.p))
    return RowOperation("sample", one, (at, at, zeros()), [False] * 11)
