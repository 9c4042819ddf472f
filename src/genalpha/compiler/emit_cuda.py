"""Kernels and loops as CUDA C, with one thread per system. A few macros make it plain C, for tests.

In memory, the values of one slot for all systems are adjacent, so that neighbouring threads read neighbouring
addresses. Each thread works on its own copy, most of which the compiler keeps in registers. Tables of inputs
are not copied. What all systems share is in memory once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from genalpha.compiler.branches import Body, Branch, structured
from genalpha.compiler.graph import CallsHost
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
    Walk,
    While,
)

_PLAIN_C = """\
#include <math.h>
#include <stdbool.h>
#define FUNCTION static inline
#define CONSTANTS static const Bits
#define SINE_AND_COSINE(a, s, c) (*(s) = sin(a), *(c) = cos(a))
#define ENTRY void
#define FOR_EACH_SYSTEM(b, count) for (long long b = 0; b < count; ++b)
"""
_CUDA = """\
#define FUNCTION __device__ __forceinline__
#define CONSTANTS __device__ const Bits
#define SINE_AND_COSINE sincos
#define ENTRY extern "C" __global__ void __launch_bounds__(BLOCK)
#define FOR_EACH_SYSTEM(b, count) \\
    long long b = blockIdx.x * (long long)BLOCK + threadIdx.x; if (b < count)
"""
_COMMON = """\
#define INF (1e308 * 10)
#define NOT_A_NUMBER (INF - INF)
typedef union { unsigned long long bits; double number; } Bits;
FUNCTION long long entry(double x, long long count) { return x >= 0 && x < count ? (long long)x : 0; }
FUNCTION double larger(double a, double b) { return (a > b || a != a) ? a : b; }
FUNCTION double smaller(double a, double b) { return (a < b || a != a) ? a : b; }
"""
_SEARCH = """\
FUNCTION double {name}(const double *a, long long step, int count, int turns, double x) {{
  int low = 0, high = count;
  for (int turn = 0; turn < turns; ++turn) {{
    const int middle = (low + high) / 2;
    const double entry = a[middle * step];
    if ({before}) high = middle; else low = middle;
  }}
  return high;
}}
"""
_BEFORE = {
    "search_left": "x <= entry || entry != entry",
    "search_right": "x < entry || (entry != entry && x == x)",
}
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
    """Text for the kernels of one program, whose entries read the slots ``inputs``.

    ``common`` are those of them that all systems share. ``prefix`` distinguishes the tables of programs.
    """

    def __init__(
        self, program: Program, inputs: Iterable[int], common: Iterable[int] = (), prefix: str = ""
    ) -> None:
        self.program, self.prefix = program, prefix
        self.common = {slot: k for k, slot in enumerate(sorted(common))}
        self.inputs = {slot: k for k, slot in enumerate(s for s in inputs if s not in self.common)}
        self.lines: list[str] = []
        self.depth = 1
        kernels, tables = program.kernels.values(), program.tables.values()
        loaded = {slot for kernel in kernels for _, slot in kernel.loads}
        stored = {slot for kernel in kernels for slot, _ in kernel.stores}
        # Tables have an array of their own, because numbers at unknown places are not kept in registers.
        copied = [slot for place in tables if place.copied for slot in place.slots]
        self.own = {slot: k for k, slot in enumerate(copied)}
        read = [t for t in tables if t.numbers is None and not t.copied and stored.isdisjoint(t.slots)]
        self.outside = [t for t in read if t.within(self.inputs) or t.within(self.common)]
        unread = {slot for place in self.outside for slot in place.slots} - loaded
        self.loaded = [slot for slot in (*self.inputs, *self.common) if slot not in unread]
        self.parameters, self.arguments = "double *w", "w"
        if self.own or self.outside:
            self.parameters += ", double *own, const double *in, const double *common, long long count"
            self.arguments += ", own, in + b, common, count"

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
        self.lines.append(f"FUNCTION void {kernel.name}({self.parameters}) {{")
        for i, slot in kernel.loads:
            self.say(f"const double n{i} = w[{slot}];")
        nodes = self.program.nodes
        self.body(structured(nodes, kernel.body, [i for _, i in kernel.stores]))
        for slot, i in kernel.stores:
            self.say(f"w[{slot}] = {self.number(i)};")
        self.lines.append("}")

    def number(self, i: int) -> str:
        """A node as a double."""
        return f"{self.name(i)}{' ? 1.0 : 0.0' if self.program.nodes[i].kind == 'b' else ''}"

    # --- tables ---------------------------------------------------------------------------------

    def constants(self) -> Iterable[str]:
        """The tables of constants. Their bits can be stated even if they are not finite."""
        for i, place in self.program.tables.items():
            if place.numbers is not None:
                numbers = ", ".join(f"{{0x{x:X}u}}" for x in place.numbers.view(np.uint64).tolist())
                yield f"CONSTANTS {self.prefix}t{i}[{place.size}] = {{{numbers}}};"

    def memory(self, table: int) -> tuple[str, str]:
        """A pointer to the first entry of a table, and the distance of entries."""
        place = self.program.tables[table]
        if place.numbers is not None:
            return f"(&{self.prefix}t{table}->number)", "1"
        if place.copied:
            return f"(own + {self.own[place.first]})", str(place.step)
        if place not in self.outside:
            return f"(w + {place.first})", str(place.step)
        if place.first in self.common:
            return f"(common + {self.common[place.first]})", str(place.step)
        return f"(in + {self.inputs[place.first]} * count)", f"{place.step} * count"

    def fill(self, i: int) -> None:
        """Write the entries of a table, by a loop if they have a formula."""
        place = self.program.tables[i]
        first = self.own[place.first]
        if place.formula is None:
            for k, j in enumerate(self.program.nodes[i].inputs):
                self.say(f"own[{first + k}] = {self.number(j)};")
            return
        counter, entry, body, others, _ = place.formula
        self.say(f"for (int k = 0; k < {place.size}; ++k) {{")
        self.depth += 1
        self.say(f"const double n{counter} = k;")
        self.body(body)
        self.say(f"own[{first} + k] = {self.number(entry)};")
        self.depth -= 1
        self.say("}")
        for k, j in others:
            self.say(f"own[{first + k}] = {self.number(j)};")

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
            if op == "table":
                self.fill(part)
                continue
            if op == "host":
                raise CallsHost(self.program.hosts[part])
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
        if op == "take" or op in _BEFORE:
            (pointer, step), place = self.memory(inputs[0]), self.program.tables[inputs[0]]
            if op == "take":
                return f"{pointer}[(long long){at[1]} * {step}]"
            return f"{op}({pointer}, {step}, {place.size}, {place.size.bit_length()}, {at[1]})"
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
                self.say(f"{part.kernel}({self.arguments});")
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

    def load(self) -> None:
        """Copy inputs into slots."""
        self.say(f"double w[{self.program.slots}];")
        if self.own or self.outside:
            self.say(f"double own[{len(self.own) or 1}];")
        for slot in self.loaded:
            if slot in self.common:
                self.say(f"w[{slot}] = common[{self.common[slot]}];")
            else:
                self.say(f"w[{slot}] = in[{self.inputs[slot]} * count + b];")

    def loop(self, name: str, loop: Loop, outputs: Iterable[int]) -> None:
        """Steps first to last - 1 of ``count`` systems, from the inputs to the slots ``outputs``."""
        self.lines.append(
            f"ENTRY {name}(const double *in, const double *common, double *out, const double *times, "
            "const double *steps, const long long *row_of, double *rows, "
            "long long first, long long last, long long count) {"
        )
        self.say("FOR_EACH_SYSTEM(b, count) {")
        self.depth += 1
        self.load()
        self.say(f"{loop.once}({self.arguments});")
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
        self.returned(outputs)

    def map(self, name: str, map_: Map) -> None:
        """A function from columns of inputs of ``count`` systems to columns of results."""
        self.lines.append(
            f"ENTRY {name}(const double *in, const double *common, double *out, long long count) {{"
        )
        self.say("FOR_EACH_SYSTEM(b, count) {")
        self.depth += 1
        self.load()
        self.say(f"{map_.kernel}({self.arguments});")
        self.returned(map_.outputs)

    def walk(self, name: str, walk: Walk, outputs: Sequence[int]) -> None:
        """Go through ``rows`` rows of arrays, ``backward`` or not, for ``count`` systems.

        The slots ``outputs`` are returned at the end.
        """
        arrays = "".join(f"const double *a{k}, " for k in range(len(walk.widths)))
        self.lines.append(
            f"ENTRY {name}(const double *in, const double *common, double *out, double *sums, "
            f"double *results, {arrays}long long rows, long long backward, long long count) {{"
        )
        self.say("FOR_EACH_SYSTEM(b, count) {")
        self.depth += 1
        self.load()
        self.say("for (long long k = 0; k < rows; ++k) {")
        self.depth += 1
        self.say("const long long i = backward ? rows - 1 - k : k;")
        for array, column, slots in walk.reads:
            place = f"i * {walk.widths[array]} + {column} + j"
            entry = place if array == walk.common else f"({place}) * count + b"
            self.say(f"for (int j = 0; j < {len(slots)}; ++j) w[{slots.start} + j] = a{array}[{entry}];")
        self.say(f"{walk.kernel}({self.arguments});")
        for value, at in walk.adds:
            self.say(f"sums[entry(w[{at}], {walk.sums}) * count + b] += w[{value}];")
        for k, slot in enumerate(walk.outputs):
            self.say(f"results[(i * {len(walk.outputs)} + {k}) * count + b] = w[{slot}];")
        self.depth -= 1
        self.say("}")
        self.returned(outputs)

    def returned(self, outputs: Iterable[int]) -> None:
        """The slots that an entry returns, and its end."""
        for k, slot in enumerate(outputs):
            self.say(f"out[{k} * count + b] = w[{slot}];")
        self.depth -= 1
        self.say("}")
        self.lines.append("}")


class Columns(NamedTuple):
    """The slots that entries of a program read, those of them that all systems share, and those written."""

    inputs: Sequence[int]
    common: Sequence[int] = ()
    outputs: Sequence[int] = ()


def emit(
    parts: Sequence[tuple[Program, str, Loop | Map | Walk, Columns]],
    block: int | None = 128,
) -> str:
    """The source of all programs, each with its entry. ``block`` is the number of threads in a block.

    Without a ``block`` it is plain C.
    """
    lines = [_PLAIN_C if block is None else f"#define BLOCK {block}\n{_CUDA}", _COMMON]
    lines += [_SEARCH.format(name=name, before=before) for name, before in _BEFORE.items()]
    for k, (program, name, entry, columns) in enumerate(parts):
        emitter = CudaEmitter(program, columns.inputs, columns.common, f"p{k}")
        for kernel in program.kernels.values():
            emitter.kernel(kernel)
        if isinstance(entry, Map):
            emitter.map(name, entry)
        elif isinstance(entry, Walk):
            emitter.walk(name, entry, columns.outputs)
        else:
            emitter.loop(name, entry, columns.outputs)
        lines += [*emitter.constants(), *emitter.lines]
    return "\n".join([*lines, ""])
