"""Runs as machine code on the CPU: the loop of steps, and what follows from its rows."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from genalpha import diagnose
from genalpha.advance import Memory, Setup
from genalpha.kernels import llvm, lu, machine
from genalpha.kernels.program import Loop, Program
from genalpha.kernels.step import PIVOT, Step, Values, floating
from genalpha.newton import MAX_CONDITION
from genalpha.state import Carry, Scale, Times
from genalpha.system import Args

_POINTER, _COUNT = ctypes.c_void_p, ctypes.c_int64


class Compiled:
    """The machine code of a step in one order of pivots, for one system or for several in lanes."""

    def __init__(self, step: Step, order: lu.Order, lanes: int = 1) -> None:
        self.program: Program
        self.loop: Loop
        self.program, self.loop = step.program(order)
        self.lanes = lanes
        text = llvm.emit(self.program, {"steps": self.loop}, lanes)
        self.library = machine.Library(text, ["steps"])
        kinds = [_POINTER] * 5 + [_COUNT] * 2
        self.steps = self.library.function("steps", *kinds, result=_COUNT)


@dataclass
class Kernels:
    """All that was compiled for one setup; the newest order of pivots last."""

    step: Step
    orders: dict[lu.Order, dict[int, Compiled]] = field(default_factory=dict)

    def compiled(self, order: lu.Order, lanes: int = 1) -> Compiled:
        known = self.orders.setdefault(order, {})
        if lanes not in known:
            known[lanes] = Compiled(self.step, order, lanes)
        return known[lanes]


def kernels(setup: Setup, values: Values) -> Kernels:
    """The expressions of a setup, traced once, and what was compiled from them."""
    fixed = floating(values.args)[2]
    shapes = tuple((np.shape(x), None) for x in jax.tree.leaves(values))
    key = ("native", *setup[1:], fixed, jax.tree.structure(values), shapes)
    cache = setup.system._programs
    if key not in cache:
        cache[key] = Kernels(Step(setup, values))
    return cache[key]


def aligned(count: int) -> np.ndarray:
    """Zeros that start at a multiple of 64 bytes, as vector instructions want."""
    raw = np.zeros(count + 8)
    shift = (-raw.ctypes.data % 64) // 8
    return raw[shift : shift + count]


def fill(step: Step, slots: np.ndarray, values: Values) -> None:
    """Write the start of a run into the slots (..., slots)."""
    doubles = floating(values.args)[0]
    places = (step.carry, step.scale, step.args, step.parabola[0])
    for place, value in zip(
        jax.tree.leaves(places), jax.tree.leaves((values.carry, values.scale, doubles, values.x)), strict=True
    ):
        slots[place.reshape(-1)] = np.asarray(value).reshape(-1)
    slots[step.flags["alive"]] = 1.0


def march(
    setup: Setup, carry: Carry, memory: Memory, first_row: np.ndarray, scale: Scale, steps: Times, args: Args
) -> tuple[np.ndarray, int]:
    """All steps. Returns the table of rows, which ends at the last good one, and the status."""
    values = Values(carry, scale, args, memory.x)
    found = kernels(setup, values)
    step = found.step
    slots = np.zeros(step.builder.slots)
    fill(step, slots, values)
    count = len(steps.h)
    times, sizes = np.ascontiguousarray(steps.t, dtype=float), np.ascontiguousarray(steps.h, dtype=float)
    slots[step.t], slots[step.h] = times[0], sizes[0]
    order = next(reversed(found.orders), None) or step.choose(step.matrix_at(slots, start=True))
    if order is None:
        raise NotImplementedError
    table = np.empty((count + 1, len(step.row)))
    table[0] = first_row
    row_of = np.arange(1, count + 1)
    done, status = 0, diagnose.SUCCESS
    while done < count and status == diagnose.SUCCESS:
        code = found.compiled(order)
        work = aligned(code.program.slots)
        work[: slots.size] = slots
        end = code.steps(
            work.ctypes.data, times.ctypes.data, sizes.ctypes.data, row_of.ctypes.data, table.ctypes.data, done, count
        )
        slots = work[: slots.size]
        status = int(slots[step.status])
        done = end if status == diagnose.SUCCESS else end - 1
        if status == PIVOT:
            matrix = step.matrix_at(slots, start=False)
            if not np.linalg.cond(matrix, np.inf) <= MAX_CONDITION:
                status = int(slots[step.if_singular])
                break
            order = step.choose(matrix)
            slots[step.flags["alive"]], slots[step.memory[0]], status = 1.0, 0.0, diagnose.SUCCESS
    return table[: done + 1], status
