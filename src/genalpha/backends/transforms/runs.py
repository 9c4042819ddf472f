"""Whole runs with given steps as operations of JAX: values, changes and derivatives by machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from genalpha.backends.native.kernels import StartValues
from genalpha.backends.native.runners import NativeGiven
from genalpha.backends.native.tape import TapedKernels
from genalpha.backends.transforms.base_run import NUMBERS, Rebuild, RunOperation, Taken
from genalpha.backends.transforms.operation import Arrays, Shape
from genalpha.backends.xla import whole
from genalpha.engine import step_choice
from genalpha.engine.setup import Setup
from genalpha.engine.steps import Given
from genalpha.numerics import codes
from genalpha.numerics.data import Times


class _StrictGiven(NativeGiven):
    """A run that fails where no order of pivots is good: XLA must not be called from inside XLA."""

    def _leave(self) -> None:
        self.status = codes.NOT_CONVERGED


class GivenRun(RunOperation):
    """A run with given steps.

    Inputs are t0, t1, q, v, the starts (N,) and the sizes (N,) of the steps, and the arguments. The records
    (N+1, ...) are NaN after a failure.
    """

    kind = TapedKernels

    def __init__(self, setup: Setup, strict: bool, doubles: list[Any], rebuild: Rebuild) -> None:
        super().__init__(setup, strict, doubles, rebuild, 1.0)

    def shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        rows, dims = inputs[4][0] + 1, self.setup.dims
        of_parts = [(rows, at.stop - at.start) for at in self.parts]
        return [*of_parts, *[()] * len(NUMBERS), (dims.n + dims.m + dims.p,)]

    def tape_shapes(self, inputs: Sequence[Shape]) -> list[Shape]:
        return [(inputs[4][0] + 1, len(self.step.row)), (sum(self.setup.dims[1:]),)]

    def value(self, inputs: Arrays) -> list[np.ndarray]:
        return self.taped(inputs)[:-2]

    def taped(self, inputs: Arrays) -> list[np.ndarray]:
        t0, t1, q, v, times, sizes, *doubles = inputs
        table = np.full((len(sizes) + 1, len(self.step.row)), np.nan)
        run, status = self.begun(StartValues(float(t0), q, v, float(sizes[0])), doubles)
        status = status if self._fitting(t0, t1, times, sizes) else codes.BAD_STEPS
        table[0], first = self.first_rows(run)
        taken = 0
        if run is not None and status == codes.SUCCESS:
            steps = Given(np.append(times, t1), Times(times, sizes))
            runner = _StrictGiven(self.setup, run, steps, self.rebuild(doubles))
            taken, status = runner.take(table[1:]), runner.status
            table[taken + 1 :] = np.nan
        shown = table[:, : self.layout.plain].copy()
        shown[0] = first
        totals = self.layout.report(shown[1 : taken + 1]).sum(axis=0)
        end = times[taken - 1] + sizes[taken - 1] if taken else t0
        numbers = (status, taken, 0.0, end, t0 if run is None else run.t_alpha, *totals)
        scale = self.scale_of(run)
        parts = [shown[:, at] for at in self.parts]
        return [*parts, *(np.asarray(x, dtype=float) for x in numbers), scale, table, scale]

    @staticmethod
    def _fitting(t0: Any, t1: Any, times: np.ndarray, sizes: np.ndarray) -> bool:
        """Whether all steps are positive, and end at t1."""
        off = abs(times[-1] + sizes[-1] - t1)
        return bool((sizes > 0).all() and off <= step_choice.SPAN_TOLERANCE * (t1 - t0))

    @staticmethod
    def _taken(inputs: Arrays, tape: Arrays) -> Taken:
        t0, _, q, v, times, sizes, *doubles = inputs
        return Taken(float(t0), q, v, doubles, times, sizes, *tape)

    def tangent(self, inputs: Arrays, tape: Arrays, changes: Arrays) -> list[np.ndarray]:
        t0, _, q, v, times, sizes, *doubles = changes
        start = np.concatenate([np.ravel(x) for x in (t0, q, v, sizes[0], *doubles)])
        table = self.changed(self._taken(inputs, tape), start, np.stack([times, sizes], axis=1))
        if not np.isfinite(tape[0]).all():  # the run has failed
            table[:] = np.nan
        return [table[:, at] for at in self.parts[:-1]]

    def cotangent(self, inputs: Arrays, tape: Arrays, weights: Arrays) -> list[np.ndarray]:
        if not np.isfinite(tape[0]).all():  # the run has failed
            return [np.full(np.shape(x), np.nan) for x in inputs]
        taken = self._taken(inputs, tape)
        start, of_steps = self.pulled(taken, np.concatenate(weights, axis=1))
        t0, q, v, first, *doubles = self.apart(start, taken.doubles)
        times, sizes = of_steps.T.copy()
        sizes[0] += first[0]
        parts = (t0, np.zeros(()), q, v, times, sizes, *doubles)
        return [np.reshape(x, np.shape(y)) for x, y in zip(parts, inputs, strict=True)]

    def by_xla(self, *inputs: Any) -> list[Any]:
        t0, t1, q, v, times, sizes, *doubles = inputs
        args = self.rebuild(list(doubles))
        off = jnp.abs(times[-1] + sizes[-1] - t1)
        fitting = jnp.all(sizes > 0) & (off <= step_choice.SPAN_TOLERANCE * (t1 - t0))
        begin = self.begun_by_xla(t0, q, v, args, jnp.where(fitting, codes.SUCCESS, codes.BAD_STEPS))
        steps = Given(jnp.append(times, times[-1] + sizes[-1]), Times(times, sizes))
        found = whole.run(self.setup, begin, steps, args)
        numbers = [found.status, found.taken, 0.0, jnp.max(steps.times), found.t_alpha, *found.totals]
        parts = self.unless_failed([found.table[:, at] for at in self.parts], found.status)
        return [*parts, *(jnp.asarray(x, float) for x in numbers), jnp.concatenate([*begin.scale])]
