"""The machine code of a run and its numbers, and changes of the order of pivots."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from genalpha.backends.native.by_data import DataCode
from genalpha.backends.native.code import MAKING, OPTIMIZED, StepCode, aligned, small
from genalpha.backends.native.kernels import Kernels
from genalpha.backends.native.step import Orders, floating
from genalpha.backends.native.writer import PIVOT
from genalpha.backends.xla import given as xla
from genalpha.compiler import lu
from genalpha.compiler.sparse_pattern import Singular
from genalpha.engine.controller import Pace
from genalpha.engine.run_data import ExactNumbers, Fields, exact_key
from genalpha.engine.setup import Setup
from genalpha.mechanics.system import Args
from genalpha.numerics import codes
from genalpha.numerics.newton import MAX_CONDITION

# How often one run may change its order of pivots. Then XLA continues, which chooses pivots for every matrix.
MOST_ORDERS = 8
# The same for long programs, whose steps XLA would take far more slowly; and the most different orders.
MOST_CHANGES, MOST_OF_LONG = 1000, 24


class Machine:
    """The code of a run, and the numbers that it works on."""

    def __init__(self, kernels: Kernels) -> None:
        self.kernels = kernels
        self.orders: list[Orders] = []  # those that were used before
        self.changes = 0
        self.code, self.order = self._first()
        self.long = not small(self.code.program, OPTIMIZED)
        self.slots = aligned(self.code.numbers)

    def _first(self) -> tuple[StepCode | DataCode, Orders]:
        """The code and the order of pivots at the start."""
        return self.kernels.code(), self.kernels.order

    def _code(self, order: Orders) -> StepCode | DataCode:
        return self.kernels.code(order=order)

    @property
    def fired(self) -> np.ndarray:
        return self.slots[self.kernels.step.fired] != 0

    def fields(self, pace: Pace | None) -> Fields:
        step, slots = self.kernels.step, self.slots
        carry = jax.tree.map(lambda place: slots[place].copy(), step.carry)
        parabola = np.stack([slots[place] for place in step.parabola])
        return Fields(carry, parabola, slots[step.memory[1]], pace, slots[step.events].copy())

    def exact(self, key: tuple[Any, ...]) -> ExactNumbers:
        return ExactNumbers(key, self.slots.copy(), self.order, tuple(self.orders), self.changes)

    def restore(self, kind: str, setup: Setup, fields: Fields, exact: ExactNumbers, args: Args) -> None:
        """Restore the numbers of a stopped run: all if the code is the same, else those in ``fields``."""
        step = self.kernels.step
        if exact.key == exact_key(kind, setup, args):
            self.order, self.orders, self.changes = exact.order, [*exact.orders], exact.changes
            self.code = self._code(exact.order)
            self.slots = aligned(self.code.numbers)
            self.slots[:] = exact.numbers
            step.fill_arguments(self.slots, floating(args)[0])
            return
        carry = xla.fitting(setup, step.values.carry, fields.carry)
        places = jax.tree.leaves((step.carry, step.parabola, step.events))
        for place, value in zip(
            places, jax.tree.leaves((carry, [*fields.parabola], fields.known)), strict=True
        ):
            self.slots[place.reshape(-1)] = np.asarray(value).reshape(-1)
        self.slots[step.memory] = 0.0, fields.noise

    def new_order(self) -> int:
        """Choose other pivots, unless a matrix is singular. Returns a status.

        The status is PIVOT if no order is good, or if too many have been tried.
        """
        step, slots = self.kernels.step, self.slots
        self.changes += 1
        matrices = step.matrices_at(slots, start=False)
        if (bad := self._judged(matrices)) != codes.SUCCESS:
            return bad
        with MAKING, np.errstate(all="ignore"):
            order = self._known(matrices) or step.choose(slots, start=False)
        if (
            order is None
            or order == self.order
            or self.changes > (MOST_CHANGES if self.long else MOST_ORDERS)
        ):
            return PIVOT
        self.kernels.successors[self.order] = order
        self.orders = list(dict.fromkeys([*self.orders, self.order, order]))
        if len(self.orders) > MOST_OF_LONG:
            return PIVOT
        self.order = order
        self._use(self.kernels.code(order=order))
        return codes.SUCCESS

    def _judged(self, matrices: list[np.ndarray]) -> int:
        """SUCCESS, or the status of a step with these matrices if one is singular or not finite."""
        first, *others = matrices
        verdict = int(self.slots[self.kernels.step.if_singular])
        if not np.isfinite(first).all():
            return verdict if verdict == codes.NOT_CONVERGED else codes.NOT_FINITE
        if not all(np.isfinite(matrix).all() for matrix in others):
            return codes.NOT_FINITE
        with np.errstate(all="ignore"):
            if not np.linalg.cond(first, np.inf) <= MAX_CONDITION:
                return verdict
            good = all(np.linalg.cond(matrix, np.inf) <= MAX_CONDITION for matrix in others)
        return codes.SUCCESS if good else codes.SINGULAR

    def _known(self, matrices: list[np.ndarray]) -> Orders | None:
        """An order that is good for these matrices: the one that followed the present one in an earlier run.

        For long programs, it may also be any order that this run has used before.
        """
        good = lambda order: all(map(lu.trusted, matrices, order))
        learning = self.kernels.step.setup.system._programs.learning
        after = self.kernels.successors.get(self.order) if learning else None
        known = ([] if after is None else [after]) + (self.orders if self.long else [])
        return next((order for order in known if order != self.order and good(order)), None)

    def _use(self, code: StepCode | DataCode) -> None:
        """Go on with other code."""
        old, step = self.slots, self.kernels.step
        own = step.builder.slots
        self.code, self.slots = code, aligned(code.numbers)
        self.slots[:own] = old[:own]
        self.slots[step.flags["alive"]], self.slots[step.memory[0]] = 1.0, 0.0


class DataMachine(Machine):
    """The same with factors that are data. Another order of pivots needs no other code."""

    def _first(self) -> tuple[StepCode | DataCode, Orders]:
        code = self.kernels.first_data
        return code, code.order

    def _code(self, order: Orders) -> DataCode:
        return DataCode(self.kernels.data, self.kernels.data.patterns_of(order))

    def new_order(self) -> int:
        step, slots, data = self.kernels.step, self.slots, self.kernels.data
        self.changes += 1
        verdict = int(slots[step.if_singular])
        if (bad := self._judged(data.matrices(slots))) != codes.SUCCESS:
            return bad
        try:
            code = DataCode(data, data.patterns(slots, "entries"))
        except Singular:
            return verdict
        if code.order == self.order or self.changes > MOST_CHANGES:
            return PIVOT
        self.order = code.order
        self._use(code)
        return codes.SUCCESS


def machine_of(kernels: Kernels) -> Machine:
    return DataMachine(kernels) if kernels.by_data else Machine(kernels)
