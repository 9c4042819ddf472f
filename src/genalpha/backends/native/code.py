"""Machine code on the CPU, called on arrays of numbers: the loop of steps, and functions of rows."""

from __future__ import annotations

import functools
import gc
import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from genalpha.compiler import emit_llvm, machine, tiers
from genalpha.compiler.machine import COUNT, POINTER
from genalpha.compiler.program import PIECE, Loop, Program, cut
from genalpha.compiler.rows import RowFunction

# Only one thread at a time makes graphs and programs. Machine code runs in any number of threads.
MAKING = threading.RLock()
# The most operations of a program that is optimized: this takes 0.1 to 0.2 ms for each of them, twenty times
# as long as without it, and makes the code two to three times as fast. Functions of rows run less often.
# Where factors are data, a program has only the operations of the equations.
OPTIMIZED, OPTIMIZED_ROWS, OPTIMIZED_DATA = 40_000, 10_000, 15_000
# The most operations of a program whose instructions are put in a good order.
ORDERED = 8_000
# Unused objects are looked for when so many more blocks of memory are in use: some 200 MB.
MANY_BLOCKS = 1_000_000
# Seconds after which a thread that waits for Python's lock gets it, while code is made.
TURNS = 2e-4


class _MakingCode:
    """While some thread is in here, Python does not look for unused objects, threads take turns often, and
    nothing is optimized in the background.

    To trace and to write code makes many objects that stay, so the search takes a sixth of the time and finds
    little. So would a search right after that: all objects so far count as old ones, which it leaves alone.
    Then Python would never search among these, so it is told to after many more.

    Threads that compile need Python's lock some twenty times for each module. If they waited for five
    milliseconds each time, as is usual, they would do little before the thread that traces is done.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._enabled, self._turns = threading.Lock(), 0, False, 0.0
        self._looked = 0  # the blocks of memory in use when unused objects were last looked for

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._enabled, self._turns = gc.isenabled(), sys.getswitchinterval()
                gc.disable()
                sys.setswitchinterval(min(self._turns, TURNS))
                tiers.quiet.clear()
            self._inside += 1

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            sys.setswitchinterval(self._turns)
            tiers.quiet.set()
            if not self._enabled:
                return
            if not gc.get_freeze_count():  # none that someone else has put aside
                gc.freeze()
                gc.unfreeze()
            gc.enable()
            now = sys.getallocatedblocks()
            self._looked = self._looked or now
            many = now - self._looked > MANY_BLOCKS
            self._looked = now if many else min(self._looked, now)
        if many:  # Python itself would not look among old objects
            gc.collect()
            self._looked = sys.getallocatedblocks()


making_code = _MakingCode()


def aligned(count: int) -> np.ndarray:
    """Zeros that start at a multiple of 64 bytes, as vector instructions require."""
    raw = np.zeros(count + 8)
    shift = (-raw.ctypes.data % 64) // 8
    return raw[shift : shift + count]


def side_by_side(rows: np.ndarray, lanes: int) -> np.ndarray:
    """Rows (K, W) in groups of one for each lane (K/lanes, W, lanes), the last one repeated."""
    count, width = rows.shape
    groups = -(-count // lanes)
    if groups * lanes > count:
        rows = np.concatenate([rows, np.repeat(rows[-1:], groups * lanes - count, axis=0)])
    return np.ascontiguousarray(rows.reshape(groups, lanes, width).swapaxes(1, 2))


def one_by_one(groups: np.ndarray, count: int) -> np.ndarray:
    """The first ``count`` rows (K, W) of groups (K/lanes, W, lanes)."""
    return groups.swapaxes(1, 2).reshape(groups.shape[0] * groups.shape[2], groups.shape[1])[:count]


def small(program: Program, most: int) -> bool:
    """Whether a program has at most so many operations."""
    return sum(kernel.operations for kernel in program.kernels.values()) <= most


class StepCode:
    """The machine code of a step with one order of pivots, for one system or for several in lanes.

    Several lanes share the slots ``common``. They follow after all other slots.
    """

    def __init__(self, program: Program, loop: Loop, lanes: int, common: Sequence[int] = ()) -> None:
        self.lanes = lanes
        self.program = cut(program, PIECE)
        self.common = np.array(common, dtype=int)
        text = emit_llvm.emit([(self.program, {"steps": loop})], lanes, common)
        optimized, scheduled = small(program, OPTIMIZED), small(program, ORDERED)
        self.library = machine.Library(text, ["steps"], optimized, scheduled, hosts=program.hosts)
        self.steps = self.library.function("steps", *[POINTER] * 5, *[COUNT] * 2, result=COUNT)

    @property
    def numbers(self) -> int:
        """The size of the array that the code works on."""
        return self.program.slots * self.lanes + len(self.common)


class RowCode:
    """The machine code of a function of rows, one after the other or several in lanes."""

    def __init__(self, rows: RowFunction, lanes: int) -> None:
        self.rows, self.lanes = rows, lanes
        text, self.slots, operations = rows.written(lanes)
        self.library = machine.Library(
            text,
            [rows.name],
            optimized=rows.often and operations <= OPTIMIZED_ROWS,
            hosts=rows.program.hosts if rows.hosted else {},
            wait=False,
        )

    @functools.cached_property
    def run(self) -> Any:
        """The function. Until it is asked for, another thread may compile it."""
        return self.library.function(self.rows.name, *[POINTER] * 3, *[COUNT] * 2)

    def __call__(self, arguments: Any) -> tuple[Any, np.ndarray]:
        """The function applied to every row of its arguments: results, and which of them are good."""
        columns, same = self.rows.pack(arguments)
        lanes, width = self.lanes, columns.shape[1]
        groups = side_by_side(columns, lanes)
        results = np.empty((len(groups), self.rows.width, lanes))
        work = aligned(self.slots * lanes)
        start = self.rows.map.inputs.start + width
        work.reshape(-1, lanes)[start : start + len(same)] = same[:, None]
        self.run(work.ctypes.data, groups.ctypes.data, results.ctypes.data, len(groups), width)
        return self.rows.unpack(one_by_one(results, len(columns)))

    def one(self, arguments: Any) -> tuple[Any, np.ndarray]:
        """The function of one set of arguments, without lanes: results, and whether they are good."""
        return self.rows.unpack(self.numbers(arguments))

    def numbers(self, arguments: Any) -> np.ndarray:
        """The results as one row of numbers. The last number is 1 if they are good."""
        assert self.lanes == 1
        slots, inputs = self.slots, self.rows.inputs
        block = aligned(slots + inputs + self.rows.width)  # one array, because addresses take time
        self.rows.row(arguments, block[slots : slots + inputs])
        address = block.ctypes.data
        self.run(address, address + 8 * slots, address + 8 * (slots + inputs), 1, inputs)
        return block[slots + inputs :]
