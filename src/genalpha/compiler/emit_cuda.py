"""Kernels and loops as CUDA C, with one thread per system. A few macros make it plain C, for tests.

In memory, the values of one slot for all systems are adjacent, so that neighbouring threads read neighbouring
addresses. Each thread works on its own copy, most of which the compiler keeps in registers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from genalpha.compiler.branches import Body, Branch, structured
from genalpha.compiler.program import (
    Call,
    If,
    Instructions,
    Kernel,
    Loop,
    Map,
    NextTime,
    Program,
    StoreRow,
    While,
)

_PLAIN_C = """\
#include <math.h>
#include <stdbool.h>
#define FUNCTION static inline
#define SINE_AND_COSINE(a, s, c) (*(s) = sin(a), *(c) = cos(a))
#define ENTRY void
#define FOR_EACH_SYSTEM(b, count) for (long long b = 0; b < count; ++b)
"""
_CUDA = """\
#define FUNCTION __device__ __forceinline__
#define SINE_AND_COSINE sincos
#define ENTRY extern "C" __global__ void __launch_bounds__(BLOCK)
#define FOR_EACH_SYSTEM(b, count) \\
    long long b = blockIdx.x * (long long)BLOCK + threadIdx.x; if (b < count)
"""
_COMMON = """\
#define INF (1e308 * 10)
#define NOT_A_NUMBER (INF - INF)
FUNCTION double larger(double a, double b) { return (a > b || a != a) ? a : b; }
FUNCTION double smaller(double a, double b) { return (a < b || a != a) ? a : b; }
"""
_OPERATORS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "and": "&",
    "or": "|",
    "xor": "^",
}
_NAMES = {"abs": "fabs", "max": "larger", "min": "smaller"}


class CudaEmitter:
    """Text for the kernels of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.depth = 1

    def constant(self, value: float | bool) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if math.isnan(value):
            return "NOT_A_NUMBER"
        if math.isinf(value):
            return "INF" if value > 0 else "(-INF)"
        return repr(value) if value >= 0 and math.copysign(1, value) > 0 else f"({value!r})"

    def name(self, i: int) -> str:
        constants = self.program.constants
        return self.constant(constants[i]) if i in constants else f"n{i}"

    def say(self, line: str) -> None:
        self.lines.append("  " * self.depth + line)

    def kernel(self, kernel: Kernel) -> None:
        self.lines.append(f"FUNCTION void {kernel.name}(double *w) {{")
        for i, slot in kernel.loads:
            self.say(f"const double n{i} = w[{slot}];")
        nodes = self.program.nodes
        self.body(structured(nodes, kernel.body, [i for _, i in kernel.stores]))
        for slot, i in kernel.stores:
            flag = nodes[i].kind == "b"
            self.say(f"w[{slot}] = {self.name(i)}{' ? 1.0 : 0.0' if flag else ''};")
        self.lines.append("}")

    def body(self, body: Body) -> None:
        nodes = self.program.nodes
        plain = [i for i in body if not isinstance(i, Branch)]
        sines = {nodes[i].inputs: i for i in plain if nodes[i].op == "sin"}
        cosines = {nodes[i].inputs: i for i in plain if nodes[i].op == "cos"}
        done: set[int] = set()
        for part in body:
            if isinstance(part, Branch):
                self.branch(part)
                continue
            op, inputs, kind = nodes[part]
            if op in ("sin", "cos") and inputs in sines and inputs in cosines:  # one function computes both
                sine, cosine = sines[inputs], cosines[inputs]
                if part not in done:
                    self.say(f"double n{sine}, n{cosine};")
                    self.say(f"SINE_AND_COSINE({self.name(inputs[0])}, &n{sine}, &n{cosine});")
                    done |= {sine, cosine}
                continue
            self.say(f"const {'double' if kind == 'f' else 'bool'} n{part} = {self.expression(part)};")

    def branch(self, branch: Branch) -> None:
        self.say(f"double {', '.join(f'n{i}' for i in branch.results)};")
        for side, body in ((1, branch.yes), (2, branch.no)):
            self.say(f"if ({'' if side == 1 else '!'}{self.name(branch.condition)}) {{")
            self.depth += 1
            self.body(body)
            for i in branch.results:
                self.say(f"n{i} = {self.name(self.program.nodes[i].inputs[side])};")
            self.depth -= 1
            self.say("}")

    def expression(self, i: int) -> str:
        op, inputs, _ = self.program.nodes[i]
        at = [self.name(j) for j in inputs]
        if op in _OPERATORS:
            return f"{at[0]} {_OPERATORS[op]} {at[1]}"
        if op == "neg":
            return f"-{at[0]}"
        if op == "not":
            return f"!{at[0]}"
        if op == "select":
            return f"{at[0]} ? {at[1]} : {at[2]}"
        if op in ("copy", "stop"):
            return at[0]
        return f"{_NAMES.get(op, op)}({', '.join(at)})"

    def plan(self, plan: Instructions) -> None:
        for part in plan:
            if isinstance(part, Call):
                self.say(f"{part.kernel}(w);")
                continue
            if isinstance(part, StoreRow):
                self.keep(f"(long long)w[{part.place}]", part.row)
                continue
            if isinstance(part, NextTime):
                self.say(f"w[{part.slot}] = times[(long long)(w[{part.place}] += 1)];")
                continue
            word = "while" if isinstance(part, While) else "if"
            assert isinstance(part, While | If)
            self.say(f"{word} (w[{part.flag}] != 0) {{")
            self.depth += 1
            self.plan(part.body)
            self.depth -= 1
            self.say("}")

    def keep(self, place: str, row: range) -> None:
        """Copy a record to row ``place`` of the records."""
        self.say(f"for (int k = 0; k < {len(row)}; ++k)")
        self.say(f"  rows[({place} * {len(row)} + k) * count + b] = w[{row.start} + k];")

    def loop(self, name: str, loop: Loop, inputs: Iterable[int], outputs: Iterable[int]) -> None:
        """Steps first to last - 1 of ``count`` systems, from slots ``inputs`` to slots ``outputs``."""
        self.lines.append(
            f"ENTRY {name}(double *in, double *out, const double *times, const double *steps, "
            "const long long *row_of, double *rows, long long first, long long last, long long count) {"
        )
        self.say("FOR_EACH_SYSTEM(b, count) {")
        self.depth += 1
        self.say(f"double w[{self.program.slots}];")
        for k, slot in enumerate(inputs):
            self.say(f"w[{slot}] = in[{k} * count + b];")
        self.say(f"{loop.once}(w);")
        self.say(f"for (long long i = first; i < last && w[{loop.alive}] != 0; ++i) {{")
        self.depth += 1
        if loop.listed is not None:
            for array, slot in zip(("times", "steps"), loop.listed, strict=True):
                self.say(f"w[{slot}] = {array}[i];")
        self.plan(loop.body)
        if loop.listed is not None:
            self.say(f"if (row_of[i] >= 0 && w[{loop.alive}] != 0) {{")
            self.depth += 1
            self.keep("row_of[i]", loop.row)
            self.depth -= 1
            self.say("}")
        self.depth -= 1
        self.say("}")
        for k, slot in enumerate(outputs):
            self.say(f"out[{k} * count + b] = w[{slot}];")
        self.depth -= 1
        self.say("}")
        self.lines.append("}")

    def map(self, name: str, map_: Map) -> None:
        """A function from columns of inputs of ``count`` systems to columns of results."""
        self.lines.append(f"ENTRY {name}(const double *in, double *out, long long count) {{")
        self.say("FOR_EACH_SYSTEM(b, count) {")
        self.depth += 1
        self.say(f"double w[{self.program.slots}];")
        for k, slot in enumerate(map_.inputs):
            self.say(f"w[{slot}] = in[{k} * count + b];")
        self.say(f"{map_.kernel}(w);")
        for k, slot in enumerate(map_.outputs):
            self.say(f"out[{k} * count + b] = w[{slot}];")
        self.depth -= 1
        self.say("}")
        self.lines.append("}")


def emit(
    parts: Sequence[tuple[Program, dict[str, tuple[Loop, Sequence[int], Sequence[int]] | Map]]],
    block: int | None = 128,
) -> str:
    """The source of all kernels and entries. ``block`` is the number of threads in a block; None: plain C."""
    lines = [_PLAIN_C if block is None else f"#define BLOCK {block}\n{_CUDA}", _COMMON]
    for program, entries in parts:
        emitter = CudaEmitter(program)
        for kernel in program.kernels.values():
            emitter.kernel(kernel)
        for name, entry in entries.items():
            if isinstance(entry, Map):
                emitter.map(name, entry)
            else:
                emitter.loop(name, *entry)
        lines += emitter.lines
    return "\n".join([*lines, ""])
