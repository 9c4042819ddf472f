"""Functions of rows of numbers, run in every possible way: by the graph, by LLVM, and as plain C."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from genalpha.backends.native.code import aligned
from genalpha.compiler import emit_cuda, emit_llvm, machine
from genalpha.compiler.graph import Graph
from genalpha.compiler.program import Builder, Map, Program

HAS_CC = shutil.which("cc") is not None
EXACT = "exact"  # without multiplications and additions contracted into one operation


class Rows:
    """Expressions of a graph, as a kernel on rows of its inputs."""

    def __init__(self, name: str, inputs: int) -> None:
        self.name, self.graph = f"rows_{name}", Graph()  # not the name of a function in the C library
        self.builder = Builder(self.graph)
        self.inputs = self.builder.inputs(self.builder.slot(inputs), 0)

    def finish(self, outputs: Sequence[int]) -> Rows:
        self.outputs = [int(i) for i in outputs]
        first = range(self.builder.slots)
        slots = self.builder.slot(len(self.outputs))
        self.builder.kernel(f"{self.name}_row", 0, (slots, np.array(self.outputs)))
        self.program: Program = self.builder.build({})
        self.map = Map(f"{self.name}_row", first, range(len(first), len(first) + len(self.outputs)))
        return self

    def evaluate(self, rows: np.ndarray) -> np.ndarray:
        ids = self.inputs.tolist()
        results = [
            self.graph.evaluate(self.outputs, dict(zip(ids, row, strict=True))) for row in rows.tolist()
        ]
        return np.array(results, dtype=float).reshape(len(rows), len(self.outputs))


def by_llvm(many: Sequence[Rows], lanes: int, exact: bool = False) -> Any:
    """A function (rows object, table) -> results, from one module for all of them."""
    text = emit_llvm.emit([(r.program, {r.name: r.map}) for r in many], lanes)
    library = machine.Library(text.replace(" contract", "") if exact else text, [r.name for r in many])
    pointers, counts = [ctypes.c_void_p] * 3, [ctypes.c_int64] * 2
    entries = {r.name: library.function(r.name, *pointers, *counts) for r in many}

    def run(rows: Rows, table: np.ndarray) -> np.ndarray:
        groups = -(-len(table) // lanes)
        full = np.concatenate([table, np.repeat(table[-1:], groups * lanes - len(table), axis=0)])
        columns = np.ascontiguousarray(full.reshape(groups, lanes, -1).swapaxes(1, 2))
        results, work = np.empty((groups, len(rows.outputs), lanes)), aligned(rows.program.slots * lanes)
        addresses = [x.ctypes.data for x in (work, columns, results)]
        entries[rows.name](*addresses, groups, columns.shape[1])
        return results.swapaxes(1, 2).reshape(groups * lanes, -1)[: len(table)]

    run.library = library  # type: ignore[attr-defined] # the code lives as long as this does
    return run


def by_c(many: Sequence[Rows], folder: Path) -> Any:
    """The same from C, compiled without contraction."""
    source, target = folder / "rows.c", folder / "rows.so"
    parts = [(r.program, r.name, r.map, emit_cuda.Columns(r.map.inputs)) for r in many]
    source.write_text(emit_cuda.emit(parts, block=None))
    flags = ["-O0", "-shared", "-fPIC", "-ffp-contract=off", "-w"]
    subprocess.run(["cc", *flags, str(source), "-o", str(target), "-lm"], check=True)
    library = ctypes.CDLL(str(target))

    def run(rows: Rows, table: np.ndarray) -> np.ndarray:
        columns, results = np.ascontiguousarray(table.T), np.empty((len(rows.outputs), len(table)))
        pointers = [ctypes.c_void_p(x) for x in (columns.ctypes.data, None, results.ctypes.data)]
        getattr(library, rows.name)(*pointers, ctypes.c_longlong(len(table)))
        return results.T

    return run
