"""Derivatives of a step for one kind of thing: kernels for tangents and adjoints.

A step solves R(x, c, p) = 0, a sum over all copies, and leads to y(x, c, p), of which every copy has its own
part (see `native.tape`). So the derivatives of a copy are products with those of its own R and y. Only the
linear system is that of the whole.
"""

from __future__ import annotations

import jax
import numpy as np

from genalpha.backends.native.writer import ITERATION, RUN, STEP
from genalpha.backends.sparse.kinds import Kind
from genalpha.backends.sparse.models import Blocks
from genalpha.backends.sparse.shared_kinds import SharedKind
from genalpha.compiler.differentiate import along, jacobian, pulled_back
from genalpha.compiler.graph import ZERO
from genalpha.compiler.program import Builder, Call
from genalpha.compiler.repeated import Add, Each, Gather, Inside, Keep, Put, Spread
from genalpha.compiler.substitute import substitution


class DerivativeKind(Kind):
    """The kernels of a kind, made from the expressions of its step.

    The kernel ``prepare`` computes the entries of the matrix, and what the others have in common. The slots
    ``carried``, ``own``, ``data``, ``times`` and ``x`` are those of a step. ``found`` are the slots of the
    weights, or of the changes, of what it leads to: the motion of nodes or the forces of parts, and the
    method's own variables.
    """

    def __init__(self, of: Kind, blocks: Blocks) -> None:
        SharedKind.__init__(self, of.setup, of.model, blocks)
        self.taped, self.dims, self.begun = True, of.dims, of.begun
        self.graph, count, given = of.graph, len(of.graph.nodes), of.graph.given
        try:
            self.builder = Builder(self.graph)
            self._lay_out()
            self._place(of)
            self._entries()
            self._write()
            self._build()
        finally:
            self.graph.reset(count)
            self.graph.given = given

    def _place(self, of: Kind) -> None:
        """Say in which slots the expressions of a step are read."""
        traced = self.traced = of.traced
        stand_ins = of.stand_ins()
        self.graph.given = {}
        if stand_ins:
            put = substitution(self.graph, stand_ins)
            self.traced = traced = traced._replace(value=put(traced.value), found=put(traced.found))
        slots = (
            self.carried,
            self.own_slots,
            np.concatenate(self.scale),
            self.data_slots,
            self.times,
            self.x,
        )
        nodes = (traced.carried, traced.own, traced.scale, traced.data, traced.times, traced.x)
        for at, ids, level in zip(slots, nodes, (STEP, STEP, RUN, RUN, STEP, STEP), strict=True):
            self.builder.slot_of.update(zip(ids.tolist(), at.tolist(), strict=True))
            self.builder.level_of.update(dict.fromkeys(ids.tolist(), level))
        seen = len(traced.found) - len(traced.own)
        self.found = self.builder.slot(len(traced.found))
        self.motion, self.forces = np.split(self.found[:seen], [seen if self.model.element is None else 0])
        self.found_own = self.found[seen:]
        args = sum(int(np.prod(np.shape(x)[1:])) for x in jax.tree.leaves(self.model.data[:1]))
        self.args = traced.data[:args]  # without masses that are given copy by copy
        self.variables = np.concatenate([traced.carried, traced.own, self.args, traced.times])

    @property
    def data_slots(self) -> np.ndarray:
        return np.concatenate([np.zeros(0, int), *(np.reshape(s, -1) for s in self.data)])

    def _entries(self) -> None:
        traced, slot = self.traced, self.builder.slot
        matrix = jacobian(self.graph, traced.value, traced.x)
        at = np.argwhere(matrix != ZERO)
        self.patterns, self.entries = [at], slot(len(at))
        self.used = [np.arange(len(traced.value))]
        self.builder.kernel(self.kernel("once"), RUN)
        self.builder.kernel(self.kernel("prepare"), STEP, (self.entries, matrix[tuple(at.T)]))

    def _write(self) -> None:
        """Write the kernels of the derivatives."""
        raise NotImplementedError

    @property
    def held(self) -> np.ndarray:
        return np.concatenate([super().held, self.found_own])

    # --- instructions -----------------------------------------------------------------------------

    def _gather(self, slots: np.ndarray, name: str) -> list[Inside]:
        return [Gather(int(slots[0]), len(slots), f"{self.name}:{name}")] if len(slots) else []

    def _add(self, slots: np.ndarray, name: str) -> list[Inside]:
        return [Add(int(slots[0]), len(slots), f"{self.name}:{name}")] if len(slots) else []

    def at_step(self, central: np.ndarray) -> list[Inside]:
        """Read a step, and prepare its derivatives; ``central`` are the central slots of times."""
        spread = [Spread(int(a), int(b)) for a, b in zip(self.times, central, strict=True)]
        reads = (*self._gather(self.carried, "carry"), *self._gather(self.own_slots, "own"), self._unknowns())
        return [*spread, *reads, Call(self.kernel("prepare"))]

    def kept_entries(self, central: np.ndarray) -> Each:
        """The entries of the matrix, kept for every copy."""
        keep = (
            [Keep(int(self.entries[0]), len(self.entries), f"entries:{self.name}")]
            if len(self.entries)
            else []
        )
        return self.each(*self.at_step(central), *keep)


class AdjointKind(DerivativeKind):
    """From weights of what a step leads to, to those of what it comes from.

    ``of_x`` are the slots of weights of unknowns, ``by`` those of the solution of the transposed system.
    ``carry_used``, ``times_used`` and ``data_used`` say which weights are not always zero; ``of_carry``,
    ``of_times`` and ``of_data`` are their slots. ``found_own`` and ``of_data`` pass from step to step.
    """

    def _write(self) -> None:
        traced, graph, slot = self.traced, self.graph, self.builder.slot
        weights = self.builder.inputs(self.found, ITERATION)
        pulled = pulled_back(graph, traced.found, traced.x, weights)
        self.x_used = np.flatnonzero(pulled != ZERO)
        self.of_x = slot(len(self.x_used))
        self.builder.kernel(self.kernel("of_x"), ITERATION, (self.of_x, pulled[self.x_used]))
        self.by = slot(len(traced.value))
        by = [graph.neg(i) for i in self.builder.inputs(self.by, ITERATION).tolist()]
        both, given = np.concatenate([traced.found, traced.value]), np.concatenate([weights, by])
        found = pulled_back(graph, both, self.variables, given.astype(np.int64))
        ends = np.cumsum([len(traced.carried), len(traced.own), len(self.args)])
        carry, own, data, times = np.split(found, ends)
        self.carry_used, self.data_used, self.times_used = (
            np.flatnonzero(x != ZERO) for x in (carry, data, times)
        )
        self.of_carry, self.of_data = slot(len(self.carry_used)), slot(len(self.data_used))
        self.of_times = slot(len(self.times_used))
        total = self.builder.inputs(self.of_data, ITERATION).tolist()
        pairs = zip(total, data[self.data_used].tolist(), strict=True)
        sums = np.array([graph.add(a, b) for a, b in pairs], dtype=np.int64)
        stores = [(self.of_carry, carry[self.carry_used]), (self.found_own, own), (self.of_data, sums)]
        stores.append((self.of_times, times[self.times_used]))
        self.builder.kernel(self.kernel("pull"), ITERATION, *stores)

    @property
    def held(self) -> np.ndarray:
        return np.concatenate([super().held, self.of_data])

    def first(self, central: np.ndarray) -> Each:
        """Add the entries of the matrix and the weights of the unknowns."""
        weights = (*self._gather(self.motion, "motion_weights"), *self._gather(self.forces, "force_weights"))
        matrix = self._add(self.entries, "entries")
        calls = [Call(self.kernel("of_x")), *self._add(self.of_x, "of_x")] if len(self.of_x) else []
        return self.each(*self.at_step(central), *matrix, *weights, *calls)

    def second(self) -> Each:
        """Add the weights of the carry and of times, from the solution of the transposed system."""
        after = (*self._add(self.of_carry, "of_carry"), *self._add(self.of_times, "of_times"))
        return self.each(*self._gather(self.by, "by"), Call(self.kernel("pull")), *after)


class TangentKind(DerivativeKind):
    """From changes of what a step comes from, to those of what it leads to.

    ``moved`` are the slots of the changes of carried variables, ``turned`` those of the args, ``shifted``
    those of times, ``caused`` those of the right-hand side, ``response`` those of minus the change of
    unknowns. ``found_own`` passes from step to step.
    """

    def _write(self) -> None:
        traced, graph, slot = self.traced, self.graph, self.builder.slot
        self.moved, self.turned = slot(len(traced.carried)), slot(len(self.args))
        self.shifted, self.response = slot(len(traced.times)), slot(len(traced.x))
        parts = [
            self.builder.inputs(s, ITERATION) for s in (self.moved, self.found_own, self.turned, self.shifted)
        ]
        direction = np.concatenate(parts)
        caused = along(graph, traced.value, self.variables, direction)
        self.rows_used = np.flatnonzero(caused != ZERO)
        self.caused = slot(len(self.rows_used))
        self.builder.kernel(self.kernel("cause"), ITERATION, (self.caused, caused[self.rows_used]))
        by = [graph.neg(i) for i in self.builder.inputs(self.response, ITERATION).tolist()]
        variables = np.concatenate([self.variables, traced.x])
        found = along(
            graph, traced.found, variables, np.concatenate([direction, np.array(by, dtype=np.int64)])
        )
        self.builder.kernel(self.kernel("move"), ITERATION, (self.found, found))

    @property
    def held(self) -> np.ndarray:
        return np.concatenate([super().held, self.turned])

    def first(self, central: np.ndarray, changes: np.ndarray) -> Each:
        """Add the entries of the matrix and the right-hand side."""
        spread = [Spread(int(a), int(b)) for a, b in zip(self.shifted, changes, strict=True)]
        reads = [*spread, *self._gather(self.moved, "moved")]
        calls = [Call(self.kernel("cause")), *self._add(self.caused, "caused")] if len(self.caused) else []
        return self.each(*self.at_step(central), *self._add(self.entries, "entries"), *reads, *calls)

    def second(self) -> Each:
        """Write the changes of the motion and the forces, from those of the unknowns."""
        named = (("motion_changes", self.motion), ("force_changes", self.forces))
        put = [Put(int(s[0]), len(s), f"{self.name}:{name}") for name, s in named if len(s)]
        return self.each(*self._gather(self.response, "response"), Call(self.kernel("move")), *put)
